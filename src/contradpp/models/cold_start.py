"""Items with few sales or none, scored by their features and by their nearest neighbors.

The neighbors of an item are the 50 items with sales whose features have the largest cosine c with
its own. A neighbor with n sales has a weight proportional to c² n/(n + 5). A ridge regression on
features predicts log popularity. In a kernel, the row of a new item is the mean of its neighbors'.

In a combination of experts, item j given the basket A has the cold-start features

    s_j(A) = (1, log p̂_j, log p̃_j, log lift_j(A), cosine_j(A))

with the predicted popularity p̂, the mean popularity p̃ of its neighbors, the factor by which A
raises the probability of the neighbors, and the mean cosine with the basket's items. Let g be its
logit by the experts and n its sales. Its logit is

    (1 − cold_share) (g + blend · (blend_weights(|A|)ᵀ (log lift, cosine)))
        + cold_share · cold_weights(|A|)ᵀ s

    blend = decay/(decay + n)
    cold_share = 1 if n = 0, else 2/(2 + n) for items that came after `fit`, else 0

Both weights are linear in log|A|. `cold_weights` maximize the likelihood of held-out items with
sales that are scored as if they had none; `blend_weights` and `decay` that of all held-out items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import COLD_ITEMS, stream
from contradpp._threads import blas_threads, run_blocks
from contradpp._types import Array, Codes, Flags, Ints
from contradpp.data.features import (
    FeatureMatrix,
    ItemFeatures,
    TransposedFeatures,
    features_contents,
    restored_features,
)
from contradpp.data.sets import Sets, pointers, runs, take_sets, without_each
from contradpp.data.vocabulary import Labels, Vocabulary, plain, unusable_ids
from contradpp.dpp import files
from contradpp.dpp.files import Stored
from contradpp.dpp.kernel import Kernel
from contradpp.errors import DataError, ParameterError
from contradpp.experts.base import SCORES_PER_BLOCK, softmax
from contradpp.experts.statistics import Rows, indicator
from contradpp.models.combination import (
    MAX_WEIGHT,
    PRIOR,
    Combination,
    Examples,
    Weights,
    log_sizes,
    maximize_likelihood,
)

N_NEIGHBORS = 50
POWER = 2.0  # of the cosine
SUPPORT = 5.0  # sales at which a neighbor counts half
RIDGES = (1.0, 3.0, 10.0, 30.0)
N_FOLDS = 5
SPREAD = 1.0  # variance of log popularity that features cannot explain, beside 1/n of a count n
ITEMS_PER_BLOCK = 500
MAX_LOG_NORM = 200.0  # log L_jj of a new item: kernels hold up to 1e100

N_FEATURES = 5  # 1, log p̂, log p̃, log lift, cosine
INITIAL_WEIGHTS = np.array([[0.0, 0.5, 0.5, 1.0, 0.0], [0.0] * N_FEATURES])  # before any data
BASKET_FEATURES = (3, 4)  # the features that depend on the basket
DECAYS = (10.0, 30.0, 100.0)  # that are tried
LATE_SUPPORT = 2.0  # sales at which a late item's cold share is a half
MIN_SHARE = 0.1  # a smaller blend or cold share counts as 0

STORED_POPULARITY = {
    "popularity_slope": Stored(("columns",), np.float32),
    "log_popularity": Stored(("M",)),
}
STORED_COLD_START = {
    "neighbors": Stored(("n", "k"), np.int32, low=0),
    "neighbor_weights": Stored(("n", "k"), np.float32, low=0),
    "cold_weights": Stored((2, N_FEATURES), low=-MAX_WEIGHT, high=MAX_WEIGHT),
    "blend_weights": Stored((2, len(BASKET_FEATURES))),
}


# -- Nearest neighbors by features -----------------------------------------------------------------


class Neighbors(NamedTuple):
    """The nearest neighbors of items, best first; weights add up to 1, or are 0 without any."""

    codes: Codes  # (n, k)
    weights: NDArray[np.float32]  # (n, k)

    def mean(self, values: Array) -> Array:
        """Return the mean over each item's neighbors of values of all items (M,)."""
        means: Array = np.einsum("nk,nk->n", self.weights, values[self.codes])
        return means

    def matrix(self, n_items: int) -> Any:
        """Return the weights as a CSR matrix (n, n_items)."""
        from scipy.sparse import csr_matrix

        n, k = self.codes.shape
        flat = (self.weights.astype(np.float64).ravel(), self.codes.ravel(), np.arange(n + 1) * k)
        return csr_matrix(flat, shape=(n, n_items))


def nearest_neighbors(
    rows: FeatureMatrix,
    matrix: FeatureMatrix,
    counts: Array,
    own: Ints | None = None,
    *,
    n_jobs: int = 1,
) -> Neighbors:
    """Return the neighbors of feature rows among the items of the matrix that have sales.

    `own` are the codes of the rows' items, which are no neighbors of themselves.
    """
    from scipy.sparse import csr_matrix

    sold = np.flatnonzero((counts > 0) & matrix.has_row)
    among = matrix.take(sold)
    n = len(rows)
    k = N_NEIGHBORS + (own is not None)
    codes = np.zeros((n, k), dtype=np.int32)
    weights = np.zeros((n, k))
    if not len(sold):
        return Neighbors(codes, weights.astype(np.float32))
    transposed = among.sparse.T.tocsr()

    def work(block: int) -> None:
        part = slice(block * ITEMS_PER_BLOCK, min((block + 1) * ITEMS_PER_BLOCK, n))
        cosines = rows.sparse[part] @ transposed
        if among.dense.shape[1]:
            cosines = csr_matrix(cosines + rows.dense[part] @ among.dense.T)
        best = _rows_of(cosines).largest(k)
        places = np.arange(len(best.values)) - best.indptr[best.owners]
        codes[part][best.owners, places] = sold[best.columns]
        weights[part][best.owners, places] = np.maximum(best.values, 0.0)

    with blas_threads(1):
        run_blocks(work, -(-n // ITEMS_PER_BLOCK), n_jobs)
    if own is not None:
        weights[codes == own[:, None]] = 0.0
    order = np.argsort(-weights, axis=1, kind="stable")
    codes = np.take_along_axis(codes, order, axis=1)
    weights = np.take_along_axis(weights, order, axis=1)
    weights = weights**POWER * (counts[codes] / (counts[codes] + SUPPORT))
    totals = weights.sum(axis=1, keepdims=True)
    weights = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
    return Neighbors(codes[:, :N_NEIGHBORS], weights[:, :N_NEIGHBORS].astype(np.float32))


def _rows_of(csr: Any) -> Rows:
    return Rows(
        csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data.astype(np.float64)
    )


# -- Popularity ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PopularityRegression:
    """The ridge regression of log popularity on features."""

    center: float
    slope: NDArray[np.float32]  # a weight for every column
    explained: float  # the explained share of the variance, cross-validated
    log_popularity: Array  # log p̂ of the training items, cross-validated for those with sales

    def predict(self, rows: FeatureMatrix) -> Array:
        """Return log p̂ of items by their features."""
        return self.center + rows.times(self.slope)


def fit_popularity(matrix: FeatureMatrix, counts: Array) -> PopularityRegression:
    """Fit the regression with a cross-validated ridge; a constant if features explain nothing."""
    total = max(counts.sum(), 1.0)
    logs = np.log((counts + 0.5) / total)
    weights = 1.0 / (SPREAD + 1.0 / (counts + 0.5))
    sold = counts > 0
    known = np.flatnonzero(sold & matrix.has_row)
    center = float(np.average(logs[sold], weights=weights[sold])) if sold.any() else 0.0
    no_slope = np.zeros(matrix.width, dtype=np.float32)
    constant = PopularityRegression(center, no_slope, 0.0, np.full(len(counts), center))
    if len(known) < 2 * N_FOLDS:
        return constant
    fold = np.arange(len(known)) % N_FOLDS  # codes are in order of first appearance: as if random
    predictions = np.zeros((len(RIDGES), len(known)))
    for r, ridge in enumerate(RIDGES):
        for f in range(N_FOLDS):
            train = known[fold != f]
            slope = _ridge(matrix.take(train), logs[train] - center, weights[train], ridge)
            predictions[r, fold == f] = matrix.take(known[fold == f]).times(slope)
    errors = (weights[known] * np.square(logs[known] - center - predictions)).sum(axis=1)
    best = int(np.argmin(errors))
    variance = (weights[known] * np.square(logs[known] - center)).sum()
    explained = float(1 - errors[best] / variance) if variance > 0 else 0.0
    if explained <= 0:
        return constant
    slope = _ridge(matrix.take(known), logs[known] - center, weights[known], RIDGES[best])
    predicted = center + matrix.times(slope.astype(np.float32))
    predicted[known] = center + predictions[best]
    return PopularityRegression(center, slope.astype(np.float32), explained, predicted)


def _ridge(rows: FeatureMatrix, values: Array, weights: Array, ridge: float) -> Array:
    """Return argmin Σ w (value − xᵀb)² + ridge ‖b‖², by least squares that only needs products."""
    from scipy.sparse.linalg import LinearOperator, lsqr

    roots = np.sqrt(weights)
    operator = LinearOperator(
        (len(rows), rows.width),
        dtype=np.float64,
        matvec=lambda b: roots * rows.times(b.ravel()),
        rmatvec=lambda y: rows.transposed_times(roots * y.ravel()),
    )
    damp = np.sqrt(ridge)
    with blas_threads(1):
        found: Array = lsqr(operator, roots * values, damp, iter_lim=40, atol=1e-4, btol=1e-4)[0]
    return found


# -- The features of a model's items ---------------------------------------------------------------


@dataclass(frozen=True)
class FeatureModel:
    """The features of a model's items, and the popularity that they predict."""

    features: ItemFeatures
    popularity: PopularityRegression

    @property
    def matrix(self) -> FeatureMatrix:
        """A row of features per item."""
        return self.features.matrix

    @property
    def log_popularity(self) -> Array:
        """log p̂ of every item, later ones included."""
        known = self.popularity.log_popularity
        late = self.matrix.take(slice(len(known), None))
        return np.concatenate([known, self.popularity.predict(late)])

    @staticmethod
    def learn(features: ItemFeatures, counts: Array | Ints) -> FeatureModel:
        """Fit the regression to items with these sales."""
        return FeatureModel(features, fit_popularity(features.matrix, counts.astype(np.float64)))

    def recode(self, old: Vocabulary, new: Vocabulary) -> FeatureModel:
        """Return the same for another vocabulary, which begins with the known items."""
        return FeatureModel(self.features.recode(old, new), self.popularity)

    def contents(self) -> tuple[files.Tensors, dict[str, Any]]:
        """Return the tensors and the description of a model file."""
        tensors, info = features_contents(self.features)
        arrays = {
            "popularity_slope": self.popularity.slope,
            "log_popularity": self.log_popularity,
        }
        tensors |= files.stored_arrays(arrays, STORED_POPULARITY, "features.")
        info |= {"center": self.popularity.center, "explained": self.popularity.explained}
        return tensors, info

    @staticmethod
    def restored(tensors: files.Tensors, info: Mapping[str, Any], n_items: int) -> FeatureModel:
        """Return the features of a model file, or raise ValueError if they are damaged."""
        features = restored_features(tensors, info, n_items)
        sizes = {"columns": features.matrix.width, "M": n_items}
        schema = STORED_POPULARITY
        found = files.read_arrays(tensors, schema, "predictions of sales", "features.", **sizes)
        center = float(info["center"])
        explained = float(info["explained"])
        if not np.isfinite([center, explained]).all():
            raise ValueError("its predictions of sales are damaged")
        slope, log_popularity = (found[name] for name in schema)
        popularity = PopularityRegression(center, slope, explained, log_popularity)
        return FeatureModel(features, popularity)


class NewItems(NamedTuple):
    """Items to be added to a model."""

    items: Vocabulary  # all items, the new ones last
    rows: FeatureMatrix  # features of the new ones
    neighbors: Neighbors
    log_popularity: Array  # log p̂
    feature_model: FeatureModel  # of all items


def new_items(
    known: FeatureModel | None,
    items: Vocabulary,
    counts: Array,
    added: Vocabulary,
    features: Any,
    *,
    n_jobs: int = 1,
) -> NewItems:
    """Find the neighbors and the popularity of new items; raise an error for an item that exists.

    `known` are the features of the model's `items`, which are sold in `counts` baskets each.
    `added` comes from `check_new_ids`, and `features` from the user.
    """
    if known is None:
        raise ParameterError("add_items needs a model that was fitted with item_features")
    present = next((item for item in added if item in items), None)
    if present is not None:
        raise DataError(f"the item {present!r} is in the model already: only new ones can be added")
    rows = known.features.rows_for(list(added), features)
    neighbors = nearest_neighbors(rows, known.matrix, counts, n_jobs=n_jobs)
    log_popularity = known.popularity.predict(rows)
    joined = FeatureModel(known.features.append(rows), known.popularity)
    return NewItems(items.merge(added), rows, neighbors, log_popularity, joined)


def check_new_ids(
    ids: Iterable[Any], names: Labels | None = None, categories: Labels | None = None
) -> Vocabulary:
    """Return the vocabulary of new items, or raise `DataError` for ids that no item can have."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise DataError(f"add_items needs a list of ids, got {ids!r}")
    fresh = [plain(item) for item in ids]
    if bad := unusable_ids(fresh):
        raise DataError(
            f"{bad[0]!r} cannot be the id of an item: "
            "it must be a string, a number or a tuple of them"
        )
    if len(set(fresh)) < len(fresh):
        raise DataError("the ids of new items must be distinct")
    return Vocabulary(fresh, names=names, categories=categories)


# -- A kernel with rows for new items --------------------------------------------------------------


def enlarge_kernel(
    kernel: Kernel, neighbors: Neighbors, log_popularity: Array, counts: Array
) -> Kernel:
    """Return the kernel with a row for every new item, the mean of its neighbors.

    L_jj is p̂_j times the geometric mean of L_ii/p_i over the neighbors i. Directions v_i/√L_ii,
    with the sign that fits the closest neighbor, and attractions |S_ai|/√(L_aa L_ii) are averaged.
    The diagonal makes up for the length that the mean direction loses.
    """
    if not kernel.has_identity_inner:
        raise ParameterError("a kernel from condition() or with B cannot take new items")
    weights = neighbors.weights.astype(np.float64)
    norms = np.maximum(kernel.squared_norms, 1e-300)
    sold = counts > 0
    ratios = np.log(norms) - np.log((counts + 0.5) / max(counts.sum(), 1.0))
    typical = float(ratios[sold].mean()) if sold.any() else 0.0
    has_neighbors = weights.sum(axis=1) > 0
    logs = np.where(has_neighbors, neighbors.mean(ratios), typical) + log_popularity  # (n,)
    if not logs.max(initial=0.0) < MAX_LOG_NORM:
        raise ParameterError(
            "the features predict more sales than a kernel can hold for a new item: "
            "is one of them wrong?"
        )
    mass = np.exp(logs)
    units = kernel.X * kernel.inverse_lengths[:, None]
    near = units[neighbors.codes]  # (n, k, K)
    signs = np.where(np.einsum("nkc,nc->nk", near, near[:, 0]) < 0, -1.0, 1.0)
    directions = np.einsum("nk,nkc->nc", weights * signs, near)
    if not kernel.has_diagonal:
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        axis = np.eye(1, directions.shape[1])
        directions = np.where(lengths > 0, directions / np.where(lengths > 0, lengths, 1.0), axis)
    factors = directions * np.sqrt(mass)[:, None]
    diagonal = None
    if kernel.has_diagonal:
        rest = np.maximum(mass - np.square(factors).sum(axis=1), 1e-12 * mass)
        diagonal = np.concatenate([kernel.diagonal, rest])
    skew = _enlarge_skew(kernel, neighbors, mass) if kernel.skew.n_entries else None
    joined = np.vstack([kernel.factors, factors.astype(kernel.factors.dtype)])
    return Kernel(joined, skew=skew, diagonal=diagonal, n_jobs=kernel.n_jobs)


def _enlarge_skew(kernel: Kernel, neighbors: Neighbors, mass: Array) -> Any:
    from scipy.sparse import block_array, csr_array, diags_array

    skew = kernel.skew.matrix()
    scale = diags_array(kernel.inverse_lengths)
    means = csr_array(csr_array(neighbors.matrix(kernel.n_items)) @ scale @ abs(skew))
    means.sort_indices()
    most = int(np.diff(kernel.skew.indptr).max())
    largest = _rows_of(means).largest(most)
    attraction = csr_array(largest.matrix(kernel.n_items)) * np.sqrt(mass)[:, None]
    return block_array([[skew, -attraction.T], [attraction, None]], format="csr")


# -- In a combination of experts -------------------------------------------------------------------


class ColdStartWeights(NamedTuple):
    """The fitted weights of the module's formula, constant while items and sales arrive."""

    cold_weights: Array = INITIAL_WEIGHTS  # (2, 5): constant and slope in log|A|
    blend_weights: Array = np.zeros((2, 2))
    decay: float = 0.0  # 0: features do not count for items that sell
    n_fitted: int = 0  # items that were there when the model was fitted
    rank: float = float("nan")  # MPR of held-out items scored as if they had no sales

    def shares(self, counts: Array, n_known: int) -> tuple[Array, Array]:
        """Return blend and cold share of items with these sales; experts know the first ones."""
        numbers = np.arange(len(counts))
        blend = self.decay / (self.decay + np.maximum(counts, 1.0))
        late = np.where(numbers >= self.n_fitted, LATE_SUPPORT / (LATE_SUPPORT + counts), 0.0)
        cold = np.where(counts > 0, late, 1.0)
        blend = np.where((blend < MIN_SHARE) | (numbers >= n_known), 0.0, blend)
        return blend, np.where(cold < MIN_SHARE, 0.0, cold)


class ColdStart:
    """The cold-start items: all whose logits depend on features, wholly or in part.

    `model` has the features of all items, `counts` their sales. The experts know the first
    `n_known` items, or all. `codes` (C,) are the items, ascending, if it is not for the weights to
    say which they are.
    """

    def __init__(
        self,
        model: FeatureModel,
        counts: Array,
        weights: ColdStartWeights,
        codes: Ints | None = None,
        *,
        n_known: int | None = None,
        neighbors: Neighbors | None = None,
        n_jobs: int = 1,
    ) -> None:
        self.model = model
        self.counts = counts
        self.weights = weights
        self.matrix = model.matrix
        self.n_known = len(counts) if n_known is None else n_known
        blend, cold = weights.shares(counts, self.n_known)
        self.codes = np.flatnonzero((blend > 0) | (cold > 0)) if codes is None else codes
        self.blend = blend[self.codes]
        self.cold_share = cold[self.codes]
        if neighbors is None:
            rows = self.matrix.take(self.codes)
            neighbors = nearest_neighbors(rows, self.matrix, counts, self.codes, n_jobs=n_jobs)
        self.neighbors = neighbors
        self.is_unsold = np.zeros(len(counts), dtype=bool)  # no expert knows these
        self.is_unsold[self.codes[self.cold_share == 1.0]] = True
        popularity = (counts / max(counts.sum(), 1.0))[: self.n_known]
        sold = popularity[popularity > 0]
        # Twice the median popularity keeps the lift of rare neighbors from being chance.
        self._floor = 2.0 * float(np.median(sold)) if len(sold) else 1.0
        self._neighbor_popularity = neighbors.mean(popularity)

    def add(self, new: NewItems) -> ColdStart:
        """Return the cold-start items with new ones."""
        neighbors = Neighbors(
            np.vstack([self.neighbors.codes, new.neighbors.codes]),
            np.vstack([self.neighbors.weights, new.neighbors.weights]),
        )
        counts = np.concatenate([self.counts, np.zeros(len(new.rows))])
        return ColdStart(
            new.feature_model, counts, self.weights, n_known=self.n_known, neighbors=neighbors
        )

    def contents(self) -> tuple[files.Tensors, dict[str, Any]]:
        """Return the tensors and the description of a model file, besides the features."""
        weights = self.weights
        arrays = {
            "neighbors": self.neighbors.codes,
            "neighbor_weights": self.neighbors.weights,
            "cold_weights": weights.cold_weights,
            "blend_weights": weights.blend_weights,
        }
        info = {
            "decay": weights.decay,
            "n_fitted": weights.n_fitted,
            "n_known": self.n_known,
            "rank": weights.rank if np.isfinite(weights.rank) else None,
        }
        return files.stored_arrays(arrays, STORED_COLD_START, "cold_start."), info

    @classmethod
    def restored(
        cls, tensors: files.Tensors, info: Mapping[str, Any], model: FeatureModel, counts: Array
    ) -> ColdStart:
        """Return the cold-start items of a model file, or raise ValueError if it is damaged."""
        rank = float("nan") if info["rank"] is None else float(info["rank"])
        decay = float(info["decay"])
        n_fitted = int(info["n_fitted"])
        n_known = int(info["n_known"])
        if not 0 <= decay < np.inf:
            raise ValueError(f"its cold-start decay is {decay}")
        weights = ColdStartWeights(decay=decay, n_fitted=n_fitted, rank=rank)
        blend, cold = weights.shares(counts, n_known)
        n = int(np.count_nonzero((blend > 0) | (cold > 0)))
        schema = STORED_COLD_START
        found = files.read_arrays(tensors, schema, "parts for new items", "cold_start.", n=n)
        neighbor_codes, neighbor_weights, cold_weights, blend_weights = found.values()
        if not 0 < n_known <= len(counts) or neighbor_codes.max(initial=0) >= n_known:
            raise ValueError("its cold-start items do not fit its items")
        weights = weights._replace(cold_weights=cold_weights, blend_weights=blend_weights)
        neighbors = Neighbors(neighbor_codes, neighbor_weights)
        return cls(model, counts, weights, n_known=n_known, neighbors=neighbors)

    # -- Baskets that hold items without sales -----------------------------------------------------

    def substitute(self, sets: Sets) -> Sets:
        """Return the sets with the substitutes of items without sales; see `substitutes`."""
        if not self.is_unsold[sets.indices].any():
            return sets
        parts = np.split(sets.indices, sets.indptr[1:-1])[: sets.count]
        rows = [self.substitutes(part) for part in parts]
        rows = [row[row >= 0] for row in rows]
        indices = np.concatenate([*rows, np.zeros(0, dtype=np.int32)])
        return Sets(pointers([len(row) for row in rows]), indices)

    def substitutes(self, codes: Codes) -> Codes:
        """Return the items of a basket with the nearest other neighbor for one without sales.

        −1 stands for an item without sales and neighbors.
        """
        taken = set(codes[~self.is_unsold[codes]].tolist())
        found = codes.astype(np.int32).copy()
        for place in np.flatnonzero(self.is_unsold[codes]).tolist():
            row = int(np.searchsorted(self.codes, codes[place]))
            near = self.neighbors.codes[row][self.neighbors.weights[row] > 0].tolist()
            found[place] = next((code for code in near if code not in taken), -1)
            taken.add(int(found[place]))
        return found

    # -- Logits ------------------------------------------------------------------------------------

    def write_logits(
        self, combination: Combination, sets: Sets, out: Array, *, leave_one_out: bool = False
    ) -> None:
        """Write the logits of all items, later ones included; see `Combination.write_logits`."""
        if leave_one_out and self.is_unsold[sets.indices].any():
            sets = without_each(sets)
            leave_one_out = False
        known = np.empty((len(out), self.n_known))
        combination.write_logits(self.substitute(sets), known, leave_one_out=leave_one_out)
        known -= log_sums(known)[:, None]
        is_known = self.codes < self.n_known
        logits = np.zeros((len(out), len(self.codes)))
        logits[:, is_known] = known[:, self.codes[is_known]]
        out[:, : self.n_known] = known
        queries = without_each(sets) if leave_one_out else sets
        self._blend(logits, self._basket_features(queries, known), queries.sizes)
        out[:, self.codes] = logits

    def _blend(self, logits: Array, basket_features: Array, sizes: Ints) -> None:
        """Change the experts' logits of cold-start items (n_sets, C) by the module's formula."""
        cold_weights = _at_sizes(self.weights.cold_weights, sizes)
        blend_weights = _at_sizes(self.weights.blend_weights, sizes)
        for feature, weights in zip(basket_features, blend_weights.T, strict=True):
            logits += weights[:, None] * (self.blend * feature)
        logits *= 1.0 - self.cold_share
        which = np.flatnonzero(self.cold_share > 0)
        cold_logits = cold_weights[:, :3] @ self._constant_features[:, which]
        for feature, weights in zip(basket_features, cold_weights[:, 3:].T, strict=True):
            cold_logits += weights[:, None] * feature[:, which]
        logits[:, which] += self.cold_share[which] * cold_logits

    def features(self, sets: Sets, known: Array) -> Array:
        """Return all features of cold-start items given sets (5, n_sets, C).

        The logits of known items are overwritten.
        """
        features = np.empty((N_FEATURES, sets.count, len(self.codes)))
        features[:3] = self._constant_features[:, None]
        features[3:] = self._basket_features(sets, known)
        return features

    def _basket_features(self, sets: Sets, known: Array) -> Array:
        """Return log lift and cosine (2, n_sets, C); the logits of known items are overwritten."""
        softmax(known)
        floor = self._floor
        popularity = self._neighbor_popularity
        features = np.empty((2, sets.count, len(self.codes)))
        np.add((self._neighbor_matrix @ known.T).T, floor, out=features[0])
        features[0] /= popularity + floor
        np.log(features[0], out=features[0])
        features[0][:, popularity == 0] = 0.0
        features[1] = self._transposed.products(basket_means(self.matrix, sets))
        return features

    @cached_property
    def _constant_features(self) -> Array:
        """1, log p̂ and log p̃ (3, C)."""
        popularity = self._neighbor_popularity
        by_neighbors = np.log(np.where(popularity > 0, popularity, self._floor) / self._floor)
        by_features = self.model.log_popularity[self.codes] - np.log(self._floor)
        return np.stack([np.ones(len(popularity)), by_features, by_neighbors])

    @cached_property
    def _neighbor_matrix(self) -> Any:
        return self.neighbors.matrix(self.n_known)

    @cached_property
    def _transposed(self) -> TransposedFeatures:
        return self.matrix.take(self.codes).transposed()

    def explain(
        self, combination: Combination, codes: Codes, items: Ints
    ) -> tuple[Array, Array, Array]:
        """Divide the logits of items among the experts and the features.

        Return the weight of the experts, 1 − cold_share (m,), the logits by constant features (m,),
        and those by features of basket items (m, n). A basket item adds its own feature values over
        the basket's size, and an equal part of the rest.
        """
        n = len(codes)
        weight = np.ones(len(items))
        alone = np.zeros(len(items))
        parts = np.zeros((len(items), n))
        places = np.searchsorted(self.codes, items)
        is_cold = np.append(self.codes, -1)[places] == items
        if not is_cold.any():
            return weight, alone, parts
        sets = Sets(pointers([n, *[1] * n]), np.concatenate([codes, codes]))
        known = np.empty((n + 1, self.n_known))
        combination.write_logits(self.substitute(sets), known)
        features = self.features(sets, known)  # (5, n + 1, C)
        cold_weights = _at_sizes(self.weights.cold_weights, np.array([n]))[0]
        blend_weights = _at_sizes(self.weights.blend_weights, np.array([n]))[0]
        for row in np.flatnonzero(is_cold).tolist():
            place = places[row]
            share = float(self.cold_share[place])
            theta = share * cold_weights
            theta[list(BASKET_FEATURES)] += (1.0 - share) * self.blend[place] * blend_weights
            single = theta[3:] @ features[3:, 1:, place] / n
            rest = (theta[3:] @ features[3:, 0, place] - single.sum()) / n
            weight[row] = 1.0 - share
            alone[row] = theta[:3] @ features[:3, 0, place]
            parts[row] = single + rest
        return weight, alone, parts


def _at_sizes(coefficients: Array, sizes: Ints) -> Array:
    """Return constant + slope · log n for sets of these sizes."""
    weights: Array = coefficients[0] + log_sizes(sizes)[:, None] * coefficients[1]
    return weights


def basket_means(matrix: FeatureMatrix, sets: Sets) -> FeatureMatrix:
    """Return the mean features of every set's items."""
    weights = indicator(sets, len(matrix))
    weights.data = weights.data / np.repeat(np.maximum(sets.sizes, 1), sets.sizes)
    return matrix.combine(weights.astype(np.float32))


# -- Fitting the weights ---------------------------------------------------------------------------


def fit_cold_start_weights(
    combination: Combination,
    sets: Sets,
    examples: Examples | None,
    features: ItemFeatures,
    counts: Array,
    seed: int,
    n_jobs: int,
) -> ColdStartWeights:
    """Fit all weights to held-out items; half of the catalog is scored as if it had no sales."""
    if examples is None:
        return ColdStartWeights(n_fitted=len(counts))
    model = FeatureModel.learn(features, counts)
    all_cold = ColdStart(model, counts, ColdStartWeights(), np.arange(len(counts)), n_jobs=n_jobs)
    values, log_totals = _candidate_features(combination, sets, examples.codes, all_cold, n_jobs)
    warm = examples.logits(combination.theta(examples.context), n_jobs) - log_totals[:, None]
    cold_items = stream(seed, COLD_ITEMS).random(len(counts)) < 0.5
    is_cold = cold_items[examples.codes]
    offset = (np.where(is_cold, 0.0, warm) + examples.log_counts).astype(np.float32)
    by_size = examples.context[:, :2]
    masked = Examples(values * is_cold[..., None], offset, by_size, examples.codes)
    precision = np.diag(np.tile(np.square(masked.spread(n_jobs)), 2)) * PRIOR
    fitted = maximize_likelihood(masked, Weights(INITIAL_WEIGHTS, precision), n_jobs).theta
    cold = np.einsum("ncf,nf->nc", values, by_size @ fitted)
    rank = _mean_rank(cold, examples.log_counts, is_cold)
    basket_values = values[..., list(BASKET_FEATURES)]
    blend_weights, decay = _fit_blend(basket_values, warm, examples, counts)
    return ColdStartWeights(fitted, blend_weights, decay, len(counts), rank)


def _candidate_features(
    combination: Combination, sets: Sets, codes: Codes, cold_start: ColdStart, n_jobs: int
) -> tuple[NDArray[np.float32], Array]:
    """Return the cold-start features of candidates (N, C, 5), and log Σ exp of all logits (N,)."""
    M = cold_start.n_known
    features = np.empty((*codes.shape, N_FEATURES), dtype=np.float32)
    log_totals = np.empty(len(codes))
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // M, 1)))

    def work(block: int) -> None:
        first, last = blocks[block]
        part = take_sets(sets, np.arange(first, last))
        start = int(sets.indptr[first])
        known = np.empty((len(part.indices), M))
        combination.write_logits(part, known, leave_one_out=True)
        log_totals[start : start + len(known)] = log_sums(known)
        values = cold_start.features(without_each(part), known)
        for entry in range(len(known)):
            features[start + entry] = values[:, entry, codes[start + entry]].T

    run_blocks(work, len(blocks), n_jobs)
    return features, log_totals


def log_sums(logits: Array) -> Array:
    """Return log Σ exp of every row."""
    top = logits.max(axis=1)
    sums: Array = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return sums


def _mean_rank(cold: Array, log_counts: NDArray[np.floating], is_cold: Flags) -> float:
    """Return the MPR of held-out cold items among the other cold candidates."""
    weights = np.where(is_cold, np.exp(log_counts), 0.0)[:, 1:]
    ahead = (cold[:, :1] > cold[:, 1:]) + 0.5 * (cold[:, :1] == cold[:, 1:])
    totals = weights.sum(axis=1)
    usable = is_cold[:, 0] & (totals > 0)
    if not usable.any():
        return float("nan")
    return float(100.0 * ((weights * ahead).sum(axis=1)[usable] / totals[usable]).mean())


def _fit_blend(
    features: NDArray[np.float32], warm: Array, examples: Examples, counts: Array
) -> tuple[Array, float]:
    """Fit blend weights and decay, by cross-validation on two halves.

    Both are 0 unless the likelihood improves by more than a standard error.
    """
    offset = (warm + examples.log_counts).astype(np.float32)
    zero = np.zeros((2, len(BASKET_FEATURES)))
    half = np.arange(len(offset)) * 2 // max(len(offset), 1)

    def blended(decay: float, rows: Any) -> Examples:
        blend = decay / (decay + np.maximum(counts, 1.0))
        blend = np.where(blend < MIN_SHARE, 0.0, blend)[examples.codes[rows]].astype(np.float32)
        scaled = features[rows] * blend[..., None]
        return Examples(scaled, offset[rows], examples.context[rows, :2])

    def fitted(part: Examples) -> Array:
        precision = np.diag(np.tile(np.square(part.spread()), 2)) * PRIOR
        return maximize_likelihood(part, Weights(zero, precision)).theta

    def improvements(decay: float) -> Array:
        found = np.empty(len(offset))
        for h in (0, 1):
            theta = fitted(blended(decay, half != h))
            part = blended(decay, half == h)
            found[half == h] = _log_likelihoods(part, theta) - _log_likelihoods(part, zero)
        return found

    by_decay = {decay: improvements(decay) for decay in DECAYS}
    best = max(by_decay, key=lambda decay: float(by_decay[decay].mean()))
    if not by_decay[best].mean() > by_decay[best].std() / np.sqrt(len(offset)):
        return zero, 0.0
    return fitted(blended(best, slice(None))), best


def _log_likelihoods(examples: Examples, theta: Array) -> Array:
    """Return log P(held-out item) of every example."""
    logits = examples.logits(examples.context @ theta) + examples.log_counts
    found: Array = logits[:, 0] - log_sums(logits)
    return found
