"""Items with few sales or none, judged by their features: how well they sell and with what, by items that are alike.

The kin of an item are the 50 items with sales that are most alike to it by the cosine of their features; each counts by
the square of that and by n/(n + 5), n being its sales. Popularity is predicted by a ridge regression of log popularity
on the features, weighted by support. In a kernel a new item has a row of its own, of which kin are the mean. In a model
of several experts an item j has the signs

    s_j(A) = (1, log p̂_j, log p̃_j, log lift_j(A), cosine_j(A))

with the popularity p̂ that features predict, that of its kin p̃, how much likelier the basket A makes its kin than they
are anyway, as the model judges them, and the mean cosine of its features with those of the basket. With g for what the
experts say, an item with n sales has the logit

    (1 − μ) (g + λ η(|A|)ᵀ(log lift, cosine)) + μ ϑ(|A|)ᵀs

μ is 1 without sales, 0 for items that were there when the model was fitted, and 2/(2 + n) for those that came later:
the more they sell, the more the experts speak for them. λ = κ/(κ + n): where little was seen, the items that are
alike count. ϑ is learned by the same objective as the weights of experts, from items with sales that are judged as
though they had none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads, run_blocks
from contradpp.data.features import ItemFeatures, Matrix, Turned, features_contents, restored_features
from contradpp.data.sets import Sets, pointers, runs, take_sets, without_each
from contradpp.data.vocabulary import Labels, Vocabulary, plain, unusable_ids
from contradpp.dpp import persist
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.persist import Stored
from contradpp.errors import DataError, ParameterError
from contradpp.experts.base import SCORES_PER_BLOCK, softmax
from contradpp.experts.statistics import Rows, indicator
from contradpp.models.relevance import (
    MOST_WEIGHT,
    PRIOR,
    Questions,
    Relevance,
    Weights,
    learn_weights,
    log_sizes,
)

Array = NDArray[np.float64]
Codes = NDArray[np.int32]
Entries = NDArray[np.int64]

N_KIN = 50
POWER = 2.0  # of the cosine
SUPPORT = 5.0  # sales at which an item counts half as kin
RIDGES = (1.0, 3.0, 10.0, 30.0)
N_FOLDS = 5
SPREAD = 1.0  # the variance of log popularity that features cannot explain, beside 1/n of a count n
KIN_PER_BLOCK = 500  # items
_HEAVIEST = 200.0  # log L_jj of a new item: kernels hold up to 1e100

N_SIGNS = 5  # one, log p̂, log p̃, log lift, cosine
START = np.array([[0.0, 0.5, 0.5, 1.0, 0.0], [0.0] * N_SIGNS])  # ϑ before any data
STEADY = (3, 4)  # the signs that steady items with sales
FADES = (10.0, 30.0, 100.0)  # κ that are tried
ARRIVED = 2.0  # sales at which the experts speak as loud as features for an item that came later
LEAST_SHARE = 0.1  # λ and μ below this count as nothing
_MOCK = 73  # key of a random stream

STORED_SALES = {"sales": Stored(("columns",), np.float32), "log_shares": Stored(("M",))}
STORED_NEWCOMERS = {
    "kin": Stored(("n", "k"), np.int32, low=0),
    "weights": Stored(("n", "k"), np.float32, low=0),
    "theta": Stored((2, N_SIGNS), low=-MOST_WEIGHT, high=MOST_WEIGHT),
    "steady": Stored((2, len(STEADY))),
}


# -- Nearest neighbors by features -----------------------------------------------------------------


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

    def contents(self) -> tuple[persist.Tensors, dict[str, Any]]:
        """What a model file holds of it."""
        tensors, told = features_contents(self.features)
        arrays = {"sales": self.sales.slope, "log_shares": self.log_shares}
        tensors |= persist.stored_arrays(arrays, STORED_SALES, "features.")
        return tensors, told | {"centre": self.sales.centre, "explained": self.sales.explained}

    @staticmethod
    def restored(tensors: persist.Tensors, told: Mapping[str, Any], n_items: int) -> Kin:
        """From a model file, or ValueError if it is damaged."""
        features = restored_features(tensors, told, n_items)
        sizes = {"columns": features.matrix.width, "M": n_items}
        found = persist.read_arrays(tensors, STORED_SALES, "predictions of sales", "features.", **sizes)
        centre, explained = float(told["centre"]), float(told["explained"])
        if not np.isfinite([centre, explained]).all():
            raise ValueError("what its features say of popularity is damaged")
        return Kin(features, Sales(centre, found["sales"], explained, found["log_shares"]))


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


# -- In a model of several experts -----------------------------------------------------------------


class Judgement(NamedTuple):
    """How features are heard: learned once, and kept as items and sales arrive."""

    theta: Array = START  # (2, 5): ϑ₀ and ϑ₁
    steady: Array = np.zeros((2, 2))  # η₀ and η₁
    fade: float = 0.0  # κ; 0: features say nothing of items that sell
    n_fitted: int = 0  # items that were there when the model was fitted
    rank: float = float("nan")  # MPR of held-out items that were judged as though they had no sales, among such items

    def shares(self, counts: Array) -> tuple[Array, Array]:
        """λ and μ of items with these sales."""
        steady = self.fade / (self.fade + np.maximum(counts, 1.0))
        late = np.where(np.arange(len(counts)) >= self.n_fitted, ARRIVED / (ARRIVED + counts), 0.0)
        alone = np.where(counts > 0, late, 1.0)
        return np.where(steady < LEAST_SHARE, 0.0, steady), np.where(alone < LEAST_SHARE, 0.0, alone)


@dataclass
class Newcomers:
    """The items that features speak for, wholly or in part, and how."""

    judgement: Judgement
    n_known: int  # items that the voices know; those behind them came later
    codes: Entries  # ascending
    steady: Array  # λ of each
    alone: Array  # μ of each
    alike: Alike
    log_shares: Array  # log p̂ of each
    usual: Array  # (n_known,): the share of every known item in all sales
    matrix: Matrix = field(repr=False)  # features of all items

    @classmethod
    def of(cls, kin: Kin, counts: Array, judgement: Judgement, n_jobs: int = 1) -> Newcomers:
        """Newcomers among items with these sales, all of which the voices know."""
        steady, alone = judgement.shares(counts)
        codes = np.flatnonzero((steady > 0) | (alone > 0))
        alike = find_kin(kin.matrix.take(codes), kin.matrix, counts, codes, n_jobs=n_jobs)
        usual, log_shares = counts / max(counts.sum(), 1.0), kin.log_shares[codes]
        return cls(judgement, len(counts), codes, steady[codes], alone[codes], alike, log_shares, usual, kin.matrix)

    def add(self, rows: Matrix, alike: Alike, log_shares: Array) -> Newcomers:
        """With items that came just now."""
        n, new = len(self.matrix), len(rows)
        return Newcomers(
            self.judgement, self.n_known, np.concatenate([self.codes, np.arange(n, n + new)]),
            np.concatenate([self.steady, np.zeros(new)]), np.concatenate([self.alone, np.ones(new)]),
            Alike(np.vstack([self.alike.codes, alike.codes]), np.vstack([self.alike.weights, alike.weights])),
            np.concatenate([self.log_shares, log_shares]), self.usual, self.matrix.append(rows),
        )  # fmt: skip

    def contents(self) -> tuple[persist.Tensors, dict[str, Any]]:
        """What a model file holds of it, besides the features."""
        judgement = self.judgement
        arrays: dict[str, NDArray[Any]] = {"kin": self.alike.codes, "weights": self.alike.weights}
        arrays |= {"theta": judgement.theta, "steady": judgement.steady}
        rank = judgement.rank if np.isfinite(judgement.rank) else None
        told = {"fade": judgement.fade, "n_fitted": judgement.n_fitted, "n_known": self.n_known, "rank": rank}
        return persist.stored_arrays(arrays, STORED_NEWCOMERS, "newcomers."), told

    @classmethod
    def restored(cls, tensors: persist.Tensors, told: Mapping[str, Any], kin: Kin, counts: Array) -> Newcomers:
        """From a model file, or ValueError if it is damaged."""
        rank = float("nan") if told["rank"] is None else float(told["rank"])
        fade, n_fitted, n_known = float(told["fade"]), int(told["n_fitted"]), int(told["n_known"])
        if not 0 <= fade < np.inf:
            raise ValueError(f"what it knows of new items fades by {fade}")
        steady, alone = Judgement(fade=fade, n_fitted=n_fitted).shares(counts)
        steady[n_known:] = 0.0  # of items that no expert knows yet
        codes = np.flatnonzero((steady > 0) | (alone > 0))
        found = persist.read_arrays(tensors, STORED_NEWCOMERS, "parts for new items", "newcomers.", n=len(codes))
        alike = Alike(found["kin"], found["weights"])
        if not 0 < n_known <= len(counts) or alike.codes.max(initial=0) >= n_known:
            raise ValueError("what it knows of new items does not fit its items")
        judgement = Judgement(found["theta"], found["steady"], fade, n_fitted, rank)
        usual, log_shares = (counts / max(counts.sum(), 1.0))[:n_known], kin.log_shares[codes]
        return cls(judgement, n_known, codes, steady[codes], alone[codes], alike, log_shares, usual, kin.matrix)

    # -- Baskets that hold items without sales ---------------------------------------------------------

    @cached_property
    def silent(self) -> NDArray[np.bool_]:
        """Which items no voice can hear, because they never sold (M,)."""
        silent = np.zeros(len(self.matrix), dtype=bool)
        silent[self.codes[self.alone == 1.0]] = True
        return silent

    def heard(self, sets: Sets) -> Sets:
        """The sets with the closest kin that is not in the set in the place of every item without sales."""
        if not self.silent[sets.indices].any():
            return sets
        rows = [self.stand_ins(sets.indices[a:b]) for a, b in zip(sets.indptr, sets.indptr[1:], strict=False)]
        kept = [row[row >= 0] for row in rows]
        return Sets(pointers([len(row) for row in kept]), np.concatenate([*kept, np.zeros(0, dtype=np.int32)]))

    def stand_ins(self, codes: NDArray[np.int32]) -> NDArray[np.int32]:
        """The items as the voices hear them, −1 for one that has no kin."""
        taken = set(codes[~self.silent[codes]].tolist())
        heard = codes.astype(np.int32).copy()
        for place in np.flatnonzero(self.silent[codes]).tolist():
            row = int(np.searchsorted(self.codes, codes[place]))
            kin = self.alike.codes[row][self.alike.weights[row] > 0].tolist()
            heard[place] = next((code for code in kin if code not in taken), -1)
            taken.add(int(heard[place]))
        return heard

    # -- Logits ------------------------------------------------------------------------------------------

    def write_logits(self, relevance: Relevance, sets: Sets, out: Array, *, each: bool = False) -> None:
        """As `Relevance.write_logits`, for all items: those that the voices know, and those that came later."""
        if each and self.silent[sets.indices].any():
            sets, each = without_each(sets), False
        known = np.empty((len(out), self.n_known))
        relevance.write_logits(self.heard(sets), known, each=each)
        known -= log_sums(known)[:, None]
        own = self.codes < self.n_known
        voiced = np.zeros((len(out), len(self.codes)))
        voiced[:, own] = known[:, self.codes[own]]
        out[:, : self.n_known] = known
        asked = without_each(sets) if each else sets
        out[:, self.codes] = self.mixed(voiced, self.company(asked, known), asked.sizes)

    def mixed(self, voiced: Array, company: Array, sizes: Entries) -> Array:
        """The logits of newcomers from what the voices say of them, and from their lift and cosine (n_sets, C)."""
        alone, steadying = (self._weights(sizes, steady=steady) for steady in (False, True))
        logits = voiced
        for sign, weights in zip(company, steadying.T, strict=True):
            logits += weights[:, None] * (self.steady * sign)
        logits *= 1.0 - self.alone
        which = np.flatnonzero(self.alone > 0)
        told = alone[:, :3] @ self._own_signs[:, which]
        for sign, weights in zip(company, alone[:, 3:].T, strict=True):
            told += weights[:, None] * sign[:, which]
        logits[:, which] += self.alone[which] * told
        return logits

    def _weights(self, sizes: Entries, *, steady: bool) -> Array:
        """η(n) or ϑ(n) for sets of these sizes."""
        first, second = self.judgement.steady if steady else self.judgement.theta
        weights: Array = first + log_sizes(sizes)[:, None] * second
        return weights

    def signs(self, sets: Sets, known: Array) -> Array:
        """g of every sign, set and newcomer, given the logits of known items, which are overwritten (5, n_sets, C)."""
        signs = np.empty((N_SIGNS, sets.count, len(self.codes)))
        signs[:3] = self._own_signs[:, None]
        signs[3:] = self.company(sets, known)
        return signs

    def company(self, sets: Sets, known: Array) -> Array:
        """The signs that depend on the basket, lift and cosine, as `signs` has them (2, n_sets, C)."""
        softmax(known)
        floor, shares = usual_floor(self.usual), self._kin_shares
        signs = np.empty((2, sets.count, len(self.codes)))
        np.add((self._mix @ known.T).T, floor, out=signs[0])
        signs[0] /= shares + floor
        np.log(signs[0], out=signs[0])
        signs[0][:, shares == 0] = 0.0
        signs[1] = self._turned.products(basket_means(self.matrix, sets))
        return signs

    @cached_property
    def _own_signs(self) -> Array:
        """The signs that do not depend on the basket (3, C)."""
        floor, shares = usual_floor(self.usual), self._kin_shares
        by_kin = np.log(np.where(shares > 0, shares, floor) / floor)
        return np.stack([np.ones(len(shares)), self.log_shares - np.log(floor), by_kin])

    @cached_property
    def _kin_shares(self) -> Array:
        return self.alike.mean(self.usual)

    def explain(
        self, relevance: Relevance, codes: NDArray[np.int32], items: NDArray[np.int64]
    ) -> tuple[Array, Array, Array]:
        """1 − μ of every item (m,), and what features say whatever the basket holds (m,) and by its items (m, n).

        What an item says is what it would say alone, over the size of the basket, and an equal part of what only the
        whole basket says.
        """
        n, m = len(codes), len(items)
        voiced, alone, parts = np.ones(m), np.zeros(m), np.zeros((m, n))
        places = np.searchsorted(self.codes, items)
        found = np.append(self.codes, -1)[places] == items
        if not found.any():
            return voiced, alone, parts
        sets = Sets(pointers([n, *[1] * n]), np.concatenate([codes, codes]))
        known = np.empty((n + 1, self.n_known))
        relevance.write_logits(self.heard(sets), known)
        signs = self.signs(sets, known)  # (5, n + 1, C)
        lone, steady = (self._weights(np.array([n]), steady=kind)[0] for kind in (False, True))
        for row in np.flatnonzero(found).tolist():
            place = places[row]
            own = float(self.alone[place])
            theta = own * lone
            theta[list(STEADY)] += (1.0 - own) * self.steady[place] * steady
            single = theta[3:] @ signs[3:, 1:, place] / n
            rest = (theta[3:] @ signs[3:, 0, place] - single.sum()) / n
            voiced[row], alone[row], parts[row] = 1.0 - own, theta[:3] @ signs[:3, 0, place], single + rest
        return voiced, alone, parts

    @cached_property
    def _mix(self) -> Any:
        return self.alike.mix(self.n_known)

    @cached_property
    def _turned(self) -> Turned:
        return self.matrix.take(self.codes).turned()


def usual_floor(usual: Array) -> float:
    """Twice the share of a usual item: what keeps the lift of rare kin from being luck."""
    sold = usual[usual > 0]
    return 2.0 * float(np.median(sold)) if len(sold) else 1.0


def basket_means(matrix: Matrix, sets: Sets) -> Matrix:
    """The mean features of every set's items."""
    mix = indicator(sets, len(matrix))
    mix.data = mix.data / np.repeat(np.maximum(sets.sizes, 1), sets.sizes)
    return matrix.mixed(mix.astype(np.float32))


# -- Learning ϑ and κ ------------------------------------------------------------------------------------


def learn_judgement(
    relevance: Relevance, sets: Sets, questions: Questions | None, matrix: Matrix, counts: Array, seed: int, n_jobs: int
) -> Judgement:
    """ϑ from held-out items, half of the catalogue judged as though it had no sales; then η and κ."""
    if questions is None:
        return Judgement(n_fitted=len(counts))
    everyone = np.arange(len(counts))
    alike = find_kin(matrix, matrix, counts, everyone, n_jobs=n_jobs)
    all_new = Newcomers(Judgement(), len(counts), everyone, np.zeros(len(counts)), np.ones(len(counts)), alike,
                        learn_sales(matrix, counts).log_shares, counts / max(counts.sum(), 1.0), matrix)  # fmt: skip
    signs, log_totals = ask_signs(relevance, sets, questions.codes, all_new, n_jobs)
    warm = questions.logits(relevance.theta(questions.given), n_jobs) - log_totals[:, None]
    mock = stream(seed, _MOCK).random(len(counts)) < 0.5
    judged = mock[questions.codes]
    offset = np.where(judged, 0.0, warm) + questions.log_counts
    by_size = questions.given[:, :2]
    asked = Questions(signs * judged[..., None], offset.astype(np.float32), by_size, questions.codes)
    precision = np.diag(np.tile(np.square(asked.spread(n_jobs)), 2)) * PRIOR
    found = learn_weights(asked, Weights(START, precision), n_jobs).theta
    cold = np.einsum("ncf,nf->nc", signs, by_size @ found)
    rank = _mean_rank(cold, questions.log_counts, judged)
    steady, fade = _learn_steadying(signs[..., list(STEADY)], warm, questions, counts)
    return Judgement(found, steady, fade, len(counts), rank)


def ask_signs(
    relevance: Relevance, sets: Sets, codes: NDArray[np.int32], newcomers: Newcomers, n_jobs: int
) -> tuple[NDArray[np.float32], Array]:
    """The signs of the items of every question, all judged as newcomers (N, C, 5), and log Σ exp of all logits (N,)."""
    M = newcomers.n_known
    signs, log_totals = np.empty((*codes.shape, N_SIGNS), dtype=np.float32), np.empty(len(codes))
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // M, 1)))

    def work(block: int) -> None:
        first, last = blocks[block]
        part, start = take_sets(sets, np.arange(first, last)), int(sets.indptr[first])
        known = np.empty((len(part.indices), M))
        relevance.write_logits(part, known, each=True)
        log_totals[start : start + len(known)] = log_sums(known)
        told = newcomers.signs(without_each(part), known)
        for entry in range(len(known)):
            signs[start + entry] = told[:, entry, codes[start + entry]].T

    run_blocks(work, len(blocks), n_jobs)
    return signs, log_totals


def log_sums(logits: Array) -> Array:
    """log Σ exp of every row."""
    top = logits.max(axis=1)
    sums: Array = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return sums


def _mean_rank(cold: Array, log_counts: NDArray[np.floating], judged: NDArray[np.bool_]) -> float:
    """MPR of the first item among the others that are judged alike, each of which stands for several."""
    weights = np.where(judged, np.exp(log_counts), 0.0)[:, 1:]
    ahead = (cold[:, :1] > cold[:, 1:]) + 0.5 * (cold[:, :1] == cold[:, 1:])
    totals = weights.sum(axis=1)
    usable = judged[:, 0] & (totals > 0)
    if not usable.any():
        return float("nan")
    return float(100.0 * ((weights * ahead).sum(axis=1)[usable] / totals[usable]).mean())


def _learn_steadying(
    signs: NDArray[np.float32], voiced: Array, questions: Questions, counts: Array
) -> tuple[Array, float]:
    """η and κ under which held-out items are likeliest, learned on one half and judged on the other.

    Nothing, unless that is better than the voices alone by more than a standard error.
    """
    offset = (voiced + questions.log_counts).astype(np.float32)
    nothing = Weights(np.zeros((2, len(STEADY))), np.empty((0, 0)))
    half = np.arange(len(offset)) * 2 // max(len(offset), 1)

    def asked(fade: float, rows: Any) -> Questions:
        share = fade / (fade + np.maximum(counts, 1.0))
        steadied = np.where(share < LEAST_SHARE, 0.0, share)[questions.codes[rows]].astype(np.float32)
        return Questions(signs[rows] * steadied[..., None], offset[rows], questions.given[rows, :2])

    def learned(part: Questions) -> Array:
        precision = np.diag(np.tile(np.square(part.spread()), 2)) * PRIOR
        return learn_weights(part, Weights(nothing.theta, precision)).theta

    def gains(fade: float) -> Array:
        found = np.empty(len(offset))
        for h in (0, 1):
            theta, part = learned(asked(fade, half != h)), asked(fade, half == h)
            found[half == h] = log_likelihoods(part, theta) - log_likelihoods(part, nothing.theta)
        return found

    found = {fade: gains(fade) for fade in FADES}
    best = max(found, key=lambda fade: float(found[fade].mean()))
    if not found[best].mean() > found[best].std() / np.sqrt(len(offset)):
        return nothing.theta, 0.0
    return learned(asked(best, slice(None))), best


def log_likelihoods(questions: Questions, theta: Array) -> Array:
    """log P(held-out item) of every question."""
    logits = questions.logits(questions.given @ theta) + questions.log_counts
    found: Array = logits[:, 0] - log_sums(logits)
    return found
