"""What a practitioner would try first, behind the interface of the DPPs: popularity, item neighbours, EASE, implicit.

Items whose scores tie, as all do for an empty basket, are offered by popularity: a share of 10⁻⁶ of the largest
weight times p̂_i is added to the scores of ItemKNN and EASE, which is too little to change any other order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets
from contradpp.dpp.linalg import cholesky_threads
from contradpp.errors import NumericalError, ParameterError
from contradpp.models.queries import as_queries
from contradpp.models.scores import Array, Baseline, Sums, sparse_rows

__all__ = ["EASE", "Implicit", "ItemKNN", "Popularity"]


@dataclass
class Popularity(Baseline):
    """Every basket is offered the items that sell most; as a distribution over sets, items are independent.

    log P(A) = Σ_{i∈A} log p_i + Σ_{i∉A} log(1 − p_i), with p_i = (n_i + s)/(n + 2s) for an item in n_i of the
    n baskets.

    Parameters
    ----------
    smoothing : float
        s. With 0, a set with an item that never sold is impossible. It changes no ranking.

    Examples
    --------
    >>> model = Popularity().fit([["tea", "milk"], ["milk"], ["milk", "bread"], ["bread"]])
    >>> model.recommend(["milk"])[0].tolist()
    ['bread', 'tea']
    """

    smoothing: float = 0.5

    def _learn(self, train: Baskets) -> None:
        _at_least(0, smoothing=self.smoothing)
        self.counts_ = train.item_counts
        self.probabilities_: Array = (self.counts_.astype(np.float64) + self.smoothing) / (
            train.n_baskets + 2 * self.smoothing
        )

    def score_samples(self, baskets: Any, *, unknown: str = "error") -> Array:
        """log P(A) of every basket."""
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        logs = self.log_probability(queries.sets)
        return logs[0] if queries.single else logs

    def log_probability(self, sets: Sets) -> Array:
        """log P(A) of every set."""
        p = self.probabilities_
        certain = p == 1  # in every basket: a set without such an item is impossible
        with np.errstate(divide="ignore"):
            gain = np.where(certain, 0.0, np.log(p) - np.log1p(-np.where(certain, 0.0, p)))
        owner = np.repeat(np.arange(sets.count), sets.sizes)
        held = np.bincount(owner, weights=certain[sets.indices], minlength=sets.count)
        impossible = np.zeros(sets.count)
        impossible[held < certain.sum()] = -np.inf
        logs: Array = np.log1p(-p[~certain]).sum() + _sums(gain[sets.indices], sets) + impossible
        return logs

    def scores(self, sets: Sets) -> Array:
        return np.tile(self.probabilities_, (sets.count, 1))

    def sums(self) -> Sums:
        """The counts, whatever the basket holds."""
        return Sums(self.counts_.astype(np.float64), None)


@dataclass
class ItemKNN(Baseline):
    """Items are offered that were bought with those in the basket: the score of j is Σ_{a∈A} S[a, j].

    Parameters
    ----------
    neighbours : int or None
        How many of the most similar items each item keeps; None for all that it ever met.
    shrinkage : float
        S[a, j] = n_aj / (√(n_a n_j) + shrinkage) for cosine weights: counts of few baskets count less.
    weights : {"cosine", "bm25"}
        "bm25" is that of the implicit package: S = WᵀW for the baskets × items matrix W with
        W[b, i] = idf_b (K1 + 1)/(K1 (1 − B + B n_i/mean n) + 1), idf_b = log M − log(1 + |b|).
    K1, B : float
        The parameters of BM25: how far, and how much, popular items are damped.

    Examples
    --------
    >>> model = ItemKNN(shrinkage=0).fit([["tea", "milk"], ["pasta", "sauce"]] * 5)
    >>> model.recommend(["tea"], N=1)[0].tolist()
    ['milk']
    """

    neighbours: int | None = None
    shrinkage: float = 10.0
    weights: str = "cosine"
    K1: float = 1.2
    B: float = 0.75

    def _learn(self, train: Baskets) -> None:
        from scipy.sparse import csr_matrix, diags_array

        _at_least(0, shrinkage=self.shrinkage, K1=self.K1, B=self.B)
        if self.neighbours is not None:
            _at_least(1, neighbours=self.neighbours)
        X = csr_matrix(train.to_csr())
        counts = train.item_counts.astype(np.float64)
        if self.weights == "cosine":
            together = csr_matrix(X.T @ X).tocoo()
            scale = np.sqrt(counts)
            values = together.data / (scale[together.row] * scale[together.col] + self.shrinkage)
        elif self.weights == "bm25":
            idf = np.log(train.n_items) - np.log1p(train.sizes)
            together = csr_matrix(X.T @ (diags_array(idf**2) @ X)).tocoo()
            scale = (self.K1 + 1) / (self.K1 * (1 - self.B + self.B * counts / max(counts.mean(), 1e-300)) + 1)
            values = together.data * scale[together.row] * scale[together.col]
        else:
            raise ParameterError(f"weights must be 'cosine' or 'bm25', got {self.weights!r}")
        values[together.row == together.col] = 0.0
        similarity = csr_matrix((values, (together.row, together.col)), shape=together.shape)
        similarity.eliminate_zeros()
        self.similarity_ = similarity if self.neighbours is None else _largest(similarity, self.neighbours)
        self.bias_ = _tie_break(train, similarity.data)

    def scores(self, sets: Sets) -> Array:
        scores: Array = (sparse_rows(sets, len(self.items_)) @ self.similarity_).toarray()
        return scores + self.bias_

    def sums(self) -> Sums:
        """The rows of the similarity."""
        return Sums(self.bias_, lambda codes: self.similarity_[codes].toarray())


@dataclass
class EASE(Baseline):
    """A linear model of every item on the others, in closed form (Steck 2019): B = I − P diag(P)⁻¹, P = (XᵀX + λI)⁻¹.

    The score of j is Σ_{a∈A} B[a, j]. B is dense: M² numbers, and M³ work.

    Parameters
    ----------
    regularization : float
        λ > 0.

    Examples
    --------
    >>> model = EASE(regularization=1.0).fit([["tea", "milk"], ["pasta", "sauce"]] * 5)
    >>> model.recommend(["tea"], N=1)[0].tolist()
    ['milk']
    """

    regularization: float = 100.0

    def _learn(self, train: Baskets) -> None:
        if not 0 < self.regularization < np.inf:
            raise ParameterError(f"regularization must be positive, got {self.regularization!r}")
        X = train.to_csr()
        P = _inverse((X.T @ X).toarray(), self.regularization)
        P /= -P.diagonal().copy()
        np.fill_diagonal(P, 0.0)
        self.weights_ = P
        self.bias_ = _tie_break(train, P)

    def scores(self, sets: Sets) -> Array:
        scores: Array = np.asarray(sparse_rows(sets, len(self.items_)) @ self.weights_)
        return scores + self.bias_

    def sums(self) -> Sums:
        """The rows of B."""
        return Sums(self.bias_, lambda codes: self.weights_[codes])


@dataclass
class Implicit(Baseline):
    """A model of the `implicit` package; a basket takes the place of a user.

    A basket is not one of the users that the model was fitted to, so it is scored by what the model offers:
    its item-item `similarity` (nearest neighbours), else `recalculate_user` (ALS), else the mean of the basket's
    item factors (BPR, logistic factorisation). In the last case a column that is the same for every user, such as
    the 1 that goes with the item biases, keeps its value.

    Parameters
    ----------
    model : object
        For instance `implicit.als.AlternatingLeastSquares(factors=64)`; `fit` fits it.
    """

    model: Any

    def _learn(self, train: Baskets) -> None:
        for name in ("fit", "recommend"):
            if not hasattr(self.model, name):
                raise ParameterError(f"{self.model!r} is no model of the implicit package: it has no {name}")
        from scipy.sparse import csr_matrix

        self.model.fit(csr_matrix(train.to_csr(), dtype=np.float32), show_progress=False)

    def scores(self, sets: Sets) -> Array:
        baskets = sparse_rows(sets, len(self.items_))
        similarity = getattr(self.model, "similarity", None)
        if similarity is not None:
            return np.asarray((baskets @ similarity).toarray(), dtype=np.float64)
        items = _dense(self.model.item_factors)
        users = self._users(baskets, items)
        return users @ items.T

    def _users(self, baskets: Any, items: Array) -> Array:
        """A factor per basket."""
        try:
            return _dense(self.model.recalculate_user(np.arange(baskets.shape[0]), baskets.astype(np.float32)))
        except (AttributeError, NotImplementedError):
            sizes = np.maximum(np.diff(baskets.indptr), 1)
            users: Array = (baskets @ items) / sizes[:, None]
            learned = _dense(self.model.user_factors)
            fixed = (learned == learned[0]).all(axis=0)
            users[:, fixed] = learned[0, fixed]
            return users

    def sums(self) -> Sums | None:
        """Those of an item-item similarity, if the model has one."""
        similarity = getattr(self.model, "similarity", None)
        if similarity is None:
            return None
        rows = similarity.tocsr()
        return Sums(np.zeros(len(self.known_items)), lambda codes: rows[codes].toarray().astype(np.float64))


def _tie_break(train: Baskets, weights: Array) -> Array:
    """The popularity term of the module's rule."""
    largest = max(weights.max(initial=0.0), -weights.min(initial=0.0)) or 1.0
    term: Array = 1e-6 * largest * train.item_counts / train.n_baskets
    return term


def _inverse(G: Array, ridge: float) -> Array:
    """(G + ridge I)⁻¹ of a symmetric matrix, in its own memory."""
    from scipy.linalg.lapack import dpotrf, dpotri

    G[np.diag_indices_from(G)] += ridge
    with cholesky_threads(len(G)):
        factor, failed = dpotrf(G.T, lower=1, overwrite_a=1, clean=0)
        inverse, also = dpotri(factor, lower=1, overwrite_c=1)
    if failed or also:
        raise NumericalError(f"XᵀX + {ridge:g} I is singular to rounding: use a larger regularization")
    P: Array = inverse.T  # in C order only the triangle above the diagonal is written
    for first in range(0, len(P), 1024):
        rows = slice(first, first + 1024)
        P[rows, :first] = P[:first, rows].T
        block = np.triu(P[rows, rows])
        P[rows, rows] = block + np.triu(block, 1).T
    return P


def _largest(similarity: Any, n: int) -> Any:
    """The n largest entries of every row of a CSR matrix; of equal ones those of the lower columns."""
    similarity.sort_indices()
    kept = np.ones(similarity.nnz, dtype=bool)
    for first, last in zip(similarity.indptr[:-1], similarity.indptr[1:], strict=True):
        if last - first > n:
            kept[first + np.argsort(-similarity.data[first:last], kind="stable")[n:]] = False
    rows = similarity.tocoo()
    return type(similarity)((rows.data[kept], (rows.row[kept], rows.col[kept])), shape=similarity.shape)


def _sums(values: Array, sets: Sets) -> Array:
    """The sum of each set's entries; −inf stays −inf."""
    padded = np.append(values, 0.0)
    sums: Array = np.add.reduceat(padded, np.minimum(sets.indptr[:-1], len(values)))
    return np.where(sets.sizes > 0, sums, 0.0)


def _at_least(least: float, **values: float) -> None:
    for name, value in values.items():
        if not least <= value < np.inf:
            raise ParameterError(f"{name} must be a number of at least {least}, got {value!r}")


def _dense(factors: Any) -> Array:
    """Factors of the CPU models are arrays, those of the GPU models know how to become one."""
    array = factors.to_numpy() if hasattr(factors, "to_numpy") else factors
    return np.asarray(array, dtype=np.float64)
