"""What features tell of items with few sales or none: how well they sell and with what, by the items that are alike.

The kin of an item are the 50 items with sales that are most alike to it by the cosine of their features; each counts by
the square of that and by n/(n + 5), n being its sales. Popularity is predicted by a ridge regression of log popularity
on the features, weighted by support. In a model of several voices an item j without sales has the logit

    ϑ(|A|)ᵀ (1, log p̂_j, log p̃_j, log lift_j(A), cosine_j(A))

with the popularity p̂ that features predict, that of its kin p̃, how much likelier the basket makes its kin than they are
anyway, as the model judges them, and the mean cosine of its features with those of the basket. ϑ is learned by the same
objective as θ, from items with sales that are judged as though they had none. In a kernel it has a row of its own, of
which kin are the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads, run_blocks
from contradpp.data.features import ItemFeatures, Matrix, features_contents, restored_features
from contradpp.data.vocabulary import Labels, Vocabulary, plain, unusable_ids
from contradpp.dpp.kernel import Kernel
from contradpp.errors import DataError, ParameterError
from contradpp.models.rows import Rows

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

N_KIN = 50
POWER = 2.0  # of the cosine
SUPPORT = 5.0  # sales at which an item counts half as kin
RIDGES = (1.0, 3.0, 10.0, 30.0)
N_FOLDS = 5
SPREAD = 1.0  # the variance of log popularity that features cannot explain, beside 1/n of a count n
KIN_PER_BLOCK = 500  # items
_HEAVIEST = 200.0  # log L_jj of a new item: kernels hold up to 1e100


class Alike(NamedTuple):
    """The kin of items: codes, and weights that add up to 1, or zeros where there are none; the best first."""

    codes: Codes  # (n, k)
    weights: NDArray[np.float32]  # (n, k)

    def mean(self, values: Array) -> Array:
        """The mean over the kin of each item of values of all items (M,)."""
        means: Array = np.einsum("nk,nk->n", self.weights, values[self.codes])
        return means

    def mix(self, n_items: int) -> Any:
        """The weights as a CSR matrix (n, n_items)."""
        from scipy.sparse import csr_matrix

        n, k = self.codes.shape
        flat = (self.weights.astype(np.float64).ravel(), self.codes.ravel(), np.arange(n + 1) * k)
        return csr_matrix(flat, shape=(n, n_items))


def find_kin(
    rows: Matrix, matrix: Matrix, counts: Array, own: NDArray[np.int64] | None = None, *, n_jobs: int = 1
) -> Alike:
    """The kin of these rows among the items of the matrix that have sales; `own` are the items that the rows are of."""
    sold = np.flatnonzero((counts > 0) & matrix.has_row)
    among, n, k = matrix.take(sold), len(rows), N_KIN + (own is not None)
    codes, weights = np.zeros((n, k), dtype=np.int32), np.zeros((n, k))
    if not len(sold):
        return Alike(codes, weights.astype(np.float32))
    transposed = among.sparse.T.tocsr()

    def work(block: int) -> None:
        part = slice(block * KIN_PER_BLOCK, min((block + 1) * KIN_PER_BLOCK, n))
        cosines = rows.sparse[part] @ transposed
        if among.dense.shape[1]:
            cosines = csr_matrix(cosines + rows.dense[part] @ among.dense.T)
        found = Rows(cosines.indptr.astype(np.int64), cosines.indices.astype(np.int32), cosines.data.astype(np.float64))
        found = found.largest(k)
        places = np.arange(len(found.values)) - found.indptr[found.owners]
        codes[part][found.owners, places] = sold[found.columns]
        weights[part][found.owners, places] = np.maximum(found.values, 0.0)

    from scipy.sparse import csr_matrix

    with blas_threads(1):
        run_blocks(work, -(-n // KIN_PER_BLOCK), n_jobs)
    if own is not None:
        weights[codes == own[:, None]] = 0.0
    order = np.argsort(-weights, axis=1, kind="stable")
    codes, weights = np.take_along_axis(codes, order, axis=1), np.take_along_axis(weights, order, axis=1)
    weights = weights**POWER * (counts[codes] / (counts[codes] + SUPPORT))
    totals = weights.sum(axis=1, keepdims=True)
    weights = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
    return Alike(codes[:, :N_KIN], weights[:, :N_KIN].astype(np.float32))


# -- Popularity ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sales:
    """The ridge regression of log popularity on features."""

    centre: float
    slope: NDArray[np.float32]  # a weight for every column
    explained: float  # the share of the variance of log popularity of items that it had not seen
    log_shares: Array  # log p̂ of the items that it was learned from: of those with sales by folds they are not in

    def predict(self, rows: Matrix) -> Array:
        """log p̂ of these items."""
        return self.centre + rows.times(self.slope)


def learn_sales(matrix: Matrix, counts: Array) -> Sales:
    """The regression, with a ridge that suits items it has not seen; nothing, if features explain nothing."""
    total = max(counts.sum(), 1.0)
    logs = np.log((counts + 0.5) / total)
    weights = 1.0 / (SPREAD + 1.0 / (counts + 0.5))
    known = np.flatnonzero((counts > 0) & matrix.has_row)
    sold = counts > 0
    centre = float(np.average(logs[sold], weights=weights[sold])) if sold.any() else 0.0
    nothing = Sales(centre, np.zeros(matrix.width, dtype=np.float32), 0.0, np.full(len(counts), centre))
    if len(known) < 2 * N_FOLDS:
        return nothing
    fold = np.arange(len(known)) % N_FOLDS  # codes come in the order of first appearance: as good as drawn
    told = np.zeros((len(RIDGES), len(known)))
    for r, ridge in enumerate(RIDGES):
        for f in range(N_FOLDS):
            seen, out = known[fold != f], known[fold == f]
            slope = _ridge(matrix.take(seen), logs[seen] - centre, weights[seen], ridge)
            told[r, fold == f] = matrix.take(out).times(slope)
    errors = (weights[known] * np.square(logs[known] - centre - told)).sum(axis=1)
    best = int(np.argmin(errors))
    spread = (weights[known] * np.square(logs[known] - centre)).sum()
    explained = float(1 - errors[best] / spread) if spread > 0 else 0.0
    if explained <= 0:
        return nothing
    slope = _ridge(matrix.take(known), logs[known] - centre, weights[known], RIDGES[best])
    predicted = centre + matrix.times(slope.astype(np.float32))
    predicted[known] = centre + told[best]
    return Sales(centre, slope.astype(np.float32), explained, predicted)


def _ridge(rows: Matrix, values: Array, weights: Array, ridge: float) -> Array:
    """argmin Σ w (value − xᵀb)² + ridge ‖b‖², by least squares that only needs products."""
    from scipy.sparse.linalg import LinearOperator, lsqr

    roots = np.sqrt(weights)
    operator = LinearOperator(
        (len(rows), rows.width), dtype=np.float64, matvec=lambda b: roots * rows.times(b.ravel()),
        rmatvec=lambda y: rows.transposed_times(roots * y.ravel()),
    )  # fmt: skip
    with blas_threads(1):
        found: Array = lsqr(operator, roots * values, damp=np.sqrt(ridge), iter_lim=40, atol=1e-4, btol=1e-4)[0]
    return found


# -- What a model keeps ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kin:
    """The features of a model's items, and what they say of popularity."""

    features: ItemFeatures
    sales: Sales

    @property
    def matrix(self) -> Matrix:
        """A row of features per item."""
        return self.features.matrix

    @property
    def log_shares(self) -> Array:
        """log p̂ of every item, those included that came later."""
        late = self.matrix.take(slice(len(self.sales.log_shares), None))
        return np.concatenate([self.sales.log_shares, self.sales.predict(late)])

    @staticmethod
    def learn(features: ItemFeatures, counts: Array | NDArray[np.int64]) -> Kin:
        """Features of items with these sales."""
        return Kin(features, learn_sales(features.matrix, counts.astype(np.float64)))

    def recode(self, old: Vocabulary, new: Vocabulary) -> Kin:
        """The same for another vocabulary."""
        return Kin(self.features.recode(old, new), self.sales)  # an update adds items behind those there are

    def contents(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """What a model file holds of it."""
        tensors, told = features_contents(self.features)
        tensors |= {"features.sales": self.sales.slope, "features.log_shares": self.log_shares}
        return tensors, {"features": told | {"centre": self.sales.centre, "explained": self.sales.explained}}

    @staticmethod
    def restored(tensors: Mapping[str, NDArray[Any]], told: Mapping[str, Any], n_items: int) -> Kin:
        """From a model file, or ValueError if it is damaged."""
        features = restored_features(tensors, told, n_items)
        slope, centre, explained = tensors["features.sales"], float(told["centre"]), float(told["explained"])
        log_shares = tensors["features.log_shares"].astype(np.float64)
        if log_shares.shape != (n_items,) or not np.isfinite(log_shares).all():
            raise ValueError("what its features say of popularity does not fit its items")
        if slope.shape != (features.matrix.width,) or not np.isfinite([*slope[:1], centre, explained]).all():
            raise ValueError("what its features say of popularity is damaged")
        return Kin(features, Sales(centre, slope.astype(np.float32), explained, log_shares))


class Arrivals(NamedTuple):
    """Items that are to be added."""

    items: Vocabulary  # all items, the new ones last
    rows: Matrix  # features of the new ones
    alike: Alike  # their kin
    log_shares: Array  # log p̂
    kin: Kin  # with them


def arriving(
    kin: Kin | None, items: Vocabulary, counts: Array, ids: Iterable[Any], features: Any, names: Labels | None = None,
    categories: Labels | None = None, *, n_jobs: int = 1,
) -> Arrivals:  # fmt: skip
    """What is to be known of new items; an error that says why not, if they cannot be added."""
    if kin is None:
        raise ParameterError("add_items needs a model that was fitted with item_features")
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise DataError(f"add_items needs a list of ids, got {ids!r}")
    fresh = [plain(item) for item in ids]
    bad = unusable_ids(fresh)
    if bad:
        raise DataError(f"{bad[0]!r} cannot be the id of an item: it must be a string, a number or a tuple of them")
    there = next((item for item in fresh if item in items), None)
    if there is not None:
        raise DataError(f"the item {there!r} is in the model already: only new ones can be added")
    if len(set(fresh)) < len(fresh):
        raise DataError("the ids of new items must be distinct")
    rows = kin.features.rows_for(fresh, features)
    return Arrivals(
        items.merge(Vocabulary(fresh, names=names, categories=categories)), rows,
        find_kin(rows, kin.matrix, counts, n_jobs=n_jobs), kin.sales.predict(rows),
        Kin(kin.features.append(rows), kin.sales),
    )  # fmt: skip


# -- A kernel with rows for new items ----------------------------------------------------------------------


def enlarged_kernel(kernel: Kernel, alike: Alike, log_shares: Array, counts: Array) -> Kernel:
    """The kernel with a row for every new item: as heavy as its popularity asks, else the mean of its kin.

    L_jj is p̂_j times the mean (of logarithms) of L_ii/p_i; directions v_i/√L_ii, turned to the side of the closest kin,
    and attractions |S_ai|/√(L_aa L_ii) are means. What the mean direction loses in length, the diagonal has.
    """
    if not kernel.plain:
        raise ParameterError("a kernel with a gain, as from condition(), cannot take new items")
    weights = alike.weights.astype(np.float64)
    norms, sold = np.maximum(kernel.squared_norms, 1e-300), counts > 0
    ratios = np.log(norms) - np.log((counts + 0.5) / max(counts.sum(), 1.0))
    usual = float(ratios[sold].mean()) if sold.any() else 0.0
    there = weights.sum(axis=1) > 0
    logs = np.where(there, alike.mean(ratios), usual) + log_shares  # (n,)
    if not logs.max(initial=0.0) < _HEAVIEST:
        raise ParameterError("the features promise a new item more sales than a kernel can hold: is one of them wrong?")
    mass = np.exp(logs)
    units = kernel.wide * kernel.inverse_lengths[:, None]
    near = units[alike.codes]  # (n, k, K)
    sides = np.where(np.einsum("nkc,nc->nk", near, near[:, 0]) < 0, -1.0, 1.0)
    directions = np.einsum("nk,nkc->nc", weights * sides, near)
    if not kernel.has_diagonal:
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        axis = np.eye(1, directions.shape[1])
        directions = np.where(lengths > 0, directions / np.where(lengths > 0, lengths, 1.0), axis)
    factors = directions * np.sqrt(mass)[:, None]
    diagonal = None
    if kernel.has_diagonal:
        diagonal = np.concatenate([kernel.diagonal, np.maximum(mass - np.square(factors).sum(axis=1), 1e-12 * mass)])
    skew = _enlarged_skew(kernel, alike, mass) if kernel.skew.n_entries else None
    joined = np.vstack([kernel.factors, factors.astype(kernel.factors.dtype)])
    return Kernel(joined, skew=skew, diagonal=diagonal, n_jobs=kernel.n_jobs)


def _enlarged_skew(kernel: Kernel, alike: Alike, mass: Array) -> Any:
    from scipy.sparse import block_array, csr_array, diags_array

    mix = csr_array(alike.mix(kernel.n_items))
    scale = diags_array(kernel.inverse_lengths)
    told = csr_array(mix @ scale @ abs(kernel.skew.matrix()))
    told.sort_indices()
    most = int(np.diff(kernel.skew.indptr).max())
    rows = Rows(told.indptr.astype(np.int64), told.indices.astype(np.int32), told.data.astype(np.float64)).largest(most)
    attraction = csr_array(rows.matrix(kernel.n_items)) * np.sqrt(mass)[:, None]
    return block_array([[kernel.skew.matrix(), -attraction.T], [attraction, None]], format="csr")
