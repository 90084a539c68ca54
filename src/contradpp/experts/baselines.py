"""Baselines that count: popularity, items and baskets that are alike, linear regressions, and models of `implicit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp import experts
from contradpp._random import stream
from contradpp._threads import resolve_n_jobs, run_blocks
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, pointers, sums_over_sets, take_sets, without_each
from contradpp.dpp import persist
from contradpp.dpp.linalg import cholesky_threads
from contradpp.errors import NumericalError, ParameterError
from contradpp.experts.base import Array, Baseline, as_queries, at_least, tie_break
from contradpp.experts.statistics import STORED_ROWS, Labour, Rows, Sums, indicator
from contradpp.learn.state import co_occurrences

Numbers = NDArray[np.int64]
SHRINKAGES = (1.0, 10.0, 100.0)  # of cosine weights: which is best depends on the shop
ROWS_PER_BLOCK = 256
DENSE_UP_TO = 20_000  # items: the matrix of EASE has 3.2 GB then, and takes minutes


@dataclass(eq=False, repr=False)
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

    def _learn(self, labour: Labour) -> None:
        at_least(0, smoothing=self.smoothing)
        train = labour.train
        self.counts_ = train.item_counts
        self.probabilities_ = (self.counts_.astype(np.float64) + self.smoothing) / (
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

    def write_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:  # noqa: ARG002
        """Write p, whatever the basket holds."""
        out[:] = self.probabilities_

    def alone(self, items: NDArray[np.int64]) -> Array:
        return self.probabilities_[items]

    def sums(self) -> Sums:
        """The counts, whatever the basket holds."""
        return Sums(self.counts_.astype(np.float64), None)


class Norms(NamedTuple):
    """What a count of pairs is divided by: (base + row_a)(base + column_j) + shrinkage."""

    base: float
    row: Array
    column: Array


@dataclass(eq=False, repr=False)
class ItemKNN(Baseline):
    """Items are offered that were bought with those in the basket: the score of j is Σ_{a∈A} S[a, j].

    Parameters
    ----------
    neighbours : int or None
        How many of the most similar items each item keeps; None for all that it ever met.
    shrinkage : float
        S[a, j] = n_aj / (√(n_a n_j) + shrinkage) for cosine weights: counts of few baskets count less.
    weights : {"cosine", "share", "bm25"}
        "share" is n_aj / (n_a + shrinkage): of the baskets with a, the share that holds j. "bm25" is that of the
        implicit package: S = WᵀW for the baskets × items matrix W with
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

    def _learn(self, labour: Labour) -> None:
        at_least(0, shrinkage=self.shrinkage, K1=self.K1, B=self.B)
        if self.neighbours is not None:
            at_least(1, neighbours=self.neighbours)
        if self.weights not in ("cosine", "share", "bm25"):
            raise ParameterError(f"weights must be 'cosine', 'share' or 'bm25', got {self.weights!r}")
        train = labour.train
        together, norms = self._together(labour), self._norms(train)
        values = np.empty(len(together.values))
        by_row, by_column = norms.base + norms.row, norms.base + norms.column

        def work(block: int) -> None:  # there may be many millions: what is done with one block stays in the cache
            own = slice(block * ROWS_PER_BLOCK, (block + 1) * ROWS_PER_BLOCK)
            lengths = np.diff(together.indptr[own.start : own.stop + 1])
            part = slice(together.indptr[own.start], together.indptr[own.start] + lengths.sum())
            divisors = np.repeat(by_row[own], lengths)
            divisors *= by_column[together.columns[part]]
            divisors += 0.0 if self.weights == "bm25" else self.shrinkage
            np.divide(together.values[part], divisors, out=values[part])

        run_blocks(work, -(-train.n_items // ROWS_PER_BLOCK), resolve_n_jobs(self.n_jobs))
        self.bias_ = tie_break(train, values)
        rows = Rows(together.indptr, together.columns, values)
        self.rows_ = rows.where(values != 0).largest(self.neighbours)

    @property
    def similarity_(self) -> Any:
        """S as a SciPy CSR matrix."""
        return self.rows_.matrix(len(self.known_items))

    def sums(self) -> Sums:
        """The rows of the similarity."""
        return Sums(np.asarray(self.bias_), self.rows_)

    def _together(self, labour: Labour) -> Rows:
        if self.weights != "bm25":
            return labour.together
        train = labour.train
        idf = np.log(train.n_items) - np.log1p(train.sizes)
        return Rows.of(co_occurrences(train.sets, np.square(idf), train.n_items))

    def _norms(self, train: Baskets) -> Norms:
        counts = train.item_counts.astype(np.float64)
        if self.weights == "cosine":
            return Norms(0.0, np.sqrt(counts), np.sqrt(counts))
        if self.weights == "share":
            return Norms(0.0, counts, np.ones(len(counts)))
        mean = max(len(train.indices) / train.n_items, 1e-300)
        damping = self.K1 * self.B * counts / mean / (self.K1 + 1)
        return Norms((self.K1 * (1 - self.B) + 1) / (self.K1 + 1), damping, damping)


@dataclass(eq=False, repr=False)
class RidgeNeighbours(Baseline):
    """A linear model of every item on its nearest items: EASE restricted to neighbours, sparse at any size.

    The score of j is Σ_{a∈A} B[a, j]. For the n items N that are nearest to j by cosine, among those that it was ever
    bought with, B_Nj = (C_NN + λI)⁻¹ C_Nj, C = XᵀX: the ridge regression of column j of the baskets × items matrix X.

    Parameters
    ----------
    n_neighbours : int
        n. The work is n³ per item; with all items for neighbours it is EASE.
    ridge : float
        λ > 0.
    dropout : float
        δ in [0, 1): δ/(1 − δ) n_i is added to λ on the diagonal, as if a share δ of every basket were missing when
        the rest is predicted (Steck 2020). It helps where baskets are short.
    n_jobs : int, optional
        Threads; None for all cores. The result does not depend on it.

    Examples
    --------
    >>> model = RidgeNeighbours(ridge=1.0).fit([["tea", "milk"], ["pasta", "sauce"]] * 5)
    >>> model.recommend(["tea"], N=1)[0].tolist()
    ['milk']
    """

    LEARNED: ClassVar[persist.Schema] = STORED_ROWS
    n_neighbours: int = 100
    ridge: float = 50.0
    dropout: float = 0.0
    n_jobs: int | None = None

    def _learn(self, labour: Labour) -> None:
        at_least(1, n_neighbours=self.n_neighbours)
        if not 0 < self.ridge < np.inf:
            raise ParameterError(f"ridge must be positive, got {self.ridge!r}")
        if not 0 <= self.dropout < 1:
            raise ParameterError(f"dropout must lie in [0, 1), got {self.dropout!r}")
        diagonal = self.ridge + self.dropout / (1 - self.dropout) * labour.train.item_counts
        self._take(labour.train, labour.regress(diagonal, self.n_neighbours, resolve_n_jobs(self.n_jobs)))

    def _take(self, train: Baskets, rows: Rows) -> None:
        self.rows_, self.bias_ = rows, tie_break(train, rows.values)

    def learned(self) -> persist.Tensors:
        return persist.stored_arrays(self.rows_._asdict(), self.LEARNED)

    def take_learned(self, train: Baskets, learned: Mapping[str, NDArray[Any]]) -> None:
        self._take(train, Rows.restored(train.n_items, learned))

    def sums(self) -> Sums:
        """The rows of B: what each item says about those that it is a neighbour of."""
        return Sums(np.asarray(self.bias_), self.rows_)


@dataclass(eq=False, repr=False)
class EASE(Baseline):
    """A linear model of every item on the others, in closed form (Steck 2019): B = I − P diag(P)⁻¹, P = (XᵀX + λI)⁻¹.

    The score of j is Σ_{a∈A} B[a, j]. B is dense: M² numbers, and M³ work. Beyond 20,000 items it is refused:
    `RidgeNeighbours` is the same regression on the nearest items only.

    Parameters
    ----------
    regularization : float
        λ > 0.

    Examples
    --------
    Tea and milk say as much of each other as pasta and sauce:

    >>> EASE(regularization=1.0).fit([["tea", "milk"], ["pasta", "sauce"]] * 5).weights_.max().round(2).item()
    0.83
    """

    regularization: float = 100.0

    def _learn(self, labour: Labour) -> None:
        if not 0 < self.regularization < np.inf:
            raise ParameterError(f"regularization must be positive, got {self.regularization!r}")
        train = labour.train
        if train.n_items > DENSE_UP_TO:
            raise ParameterError(
                f"EASE is dense: for {train.n_items:,} items it would take {8e-9 * train.n_items**2:.0f} GB "
                f"(at most {DENSE_UP_TO:,} are allowed). RidgeNeighbours does the same with each item's nearest items"
            )
        X = train.to_csr()
        P = _inverse((X.T @ X).toarray(), self.regularization)
        P /= -P.diagonal().copy()
        np.fill_diagonal(P, 0.0)
        self.weights_ = P
        self.bias_ = tie_break(train, P)

    def sums(self) -> Sums:
        """The rows of B."""
        return Sums(np.asarray(self.bias_), self.weights_)


@dataclass(eq=False, repr=False)
class BasketNeighbours(Baseline):
    """The most similar training baskets vote: the score of j is the share of the votes of those that hold it.

    The similarity of A and a training basket b is Σ_{i∈A∩b} w_i / (Σ_{i∈b} w_i)^γ, w_i = log(1 + n/n_i): sharing a
    rare item counts for more, and a large basket for less.

    Parameters
    ----------
    n_neighbours : int
        How many baskets vote; those that tie for the last places share them.
    power : float
        A vote is the similarity to this power.
    size_damping : float
        γ.
    shrinkage : float
        As many blank votes, each as strong as the strongest, are cast besides: what few baskets say counts less.
    max_postings : int
        Of an item that is in more baskets than this, only so many are found by it: the same random baskets for all
        such items. It bounds the memory (postings per item) and the time of a question (postings per basket item).
    random_state : int
        Chooses those baskets.
    n_jobs : int, optional
        Threads; None for all cores. The result does not depend on it.

    Examples
    --------
    >>> model = BasketNeighbours().fit([["tea", "milk"], ["pasta", "sauce"]] * 5)
    >>> model.recommend(["tea"], N=1)[0].tolist()
    ['milk']
    """

    n_neighbours: int = 1000
    power: float = 4.0
    size_damping: float = 0.4
    shrinkage: float = 0.0
    max_postings: int = 5000
    random_state: int = 0
    n_jobs: int | None = None

    def _learn(self, labour: Labour) -> None:
        at_least(1, n_neighbours=self.n_neighbours, max_postings=self.max_postings)
        at_least(0, power=self.power, size_damping=self.size_damping, shrinkage=self.shrinkage)
        train = labour.train
        counts, weights = train.item_counts, np.log1p(train.n_baskets / np.maximum(train.item_counts, 1))
        order = stream(self.random_state).permutation(train.n_baskets)
        shuffled = take_sets(train.sets, order)
        by_item = indicator(shuffled, train.n_items).tocsc().indices  # the baskets of each item
        found = by_item[np.arange(len(by_item)) - np.repeat(pointers(counts)[:-1], counts) < self.max_postings]
        kept = np.bincount(found, minlength=shuffled.count) > 0
        place = np.where(kept, np.cumsum(kept) - 1, -1)  # of those that no item finds, nothing is kept
        sets = take_sets(shuffled, np.flatnonzero(kept))
        self.index_ = Index(
            pointers(np.minimum(counts, self.max_postings)), place[found].astype(np.int32), sets.indptr, sets.indices,
            weights, sums_over_sets(weights[sets.indices], sets) ** -self.size_damping,
        )  # fmt: skip
        self.bias_ = 1e-9 * counts / train.n_baskets

    def write_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        """Count the votes; with `each`, overlaps lose the weight of the entry."""
        voters = (*self.index_, self.n_neighbours, self.power, self.shrinkage)
        experts.compiled.count_votes(*voters, *sets, each, out)

    def contributions(self, codes: NDArray[np.int32], item: int) -> Array:
        """The share of every basket item in the votes for an item: that of its weight in each overlap."""
        shares = np.empty(len(codes))
        voters = (*self.index_, self.n_neighbours, self.power, self.shrinkage)
        experts.compiled.share_votes(*voters, codes, item, shares)
        return shares


class Index(NamedTuple):
    """Baskets that can be found by their items."""

    pointers: Numbers
    postings: NDArray[np.int32]  # the baskets that each item finds
    indptr: Numbers
    indices: NDArray[np.int32]  # the items of each basket
    weights: Array  # of the items
    scale: Array  # of the baskets


@dataclass(eq=False, repr=False)
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

    def _learn(self, labour: Labour) -> None:
        for name in ("fit", "recommend"):
            if not hasattr(self.model, name):
                raise ParameterError(f"{self.model!r} is no model of the implicit package: it has no {name}")
        from scipy.sparse import csr_matrix

        self.model.fit(csr_matrix(labour.train.to_csr(), dtype=np.float32), show_progress=False)
        similarity = getattr(self.model, "similarity", None)
        self._rows = None if similarity is None else Rows.of(similarity)

    def write_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        """Write what the model offers."""
        if self._rows is not None:
            super().write_scores(sets, out, each=each)
            return
        if each:
            sets = without_each(sets)
        items = _dense(self.model.item_factors)
        out[:] = self._users(indicator(sets, len(self.known_items)), items) @ items.T

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
        if self._rows is None:
            return None
        return Sums(np.zeros(len(self.known_items)), self._rows)


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


def _sums(values: Array, sets: Sets) -> Array:
    """The sum of each set's entries; −inf stays −inf."""
    padded = np.append(values, 0.0)
    sums: Array = np.add.reduceat(padded, np.minimum(sets.indptr[:-1], len(values)))
    return np.where(sets.sizes > 0, sums, 0.0)


def _dense(factors: Any) -> Array:
    """Factors of the CPU models are arrays, those of the GPU models know how to become one."""
    array = factors.to_numpy() if hasattr(factors, "to_numpy") else factors
    return np.asarray(array, dtype=np.float64)
