"""Baselines that ask neighbours: items bought together, regressions on the nearest items, the most similar baskets.

Items whose scores tie, as all do for an empty basket, are offered by popularity: a share of 10⁻⁶ of the largest
weight times p̂_i is added to the scores, which is too little to change any other order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import resolve_n_jobs, run_blocks
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, pointers, sums_over_sets, take_sets
from contradpp.dpp import compiled
from contradpp.errors import ParameterError
from contradpp.learn.state import co_occurrences
from contradpp.models.rows import Labour, Rows, Sums, indicator
from contradpp.models.scores import Array, Baseline

Numbers = NDArray[np.int64]
SHRINKAGES = (1.0, 10.0, 100.0)  # of cosine weights: which is best depends on the shop
ROWS_PER_BLOCK = 256
MOST = 1e15  # of any parameter here: a whole number that every part can count to


class Norms(NamedTuple):
    """What a count of pairs is divided by: (base + row_a)(base + column_j) + shrinkage."""

    base: float
    row: Array
    column: Array


@dataclass
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
        together, norms = self._together(labour), self._norms(train.item_counts, train)
        values = np.empty(len(together.values))
        by_row, by_column = norms.base + norms.row, norms.base + norms.column

        def work(block: int) -> None:  # there may be many millions: what is done with one block stays in the cache
            own = slice(block * ROWS_PER_BLOCK, (block + 1) * ROWS_PER_BLOCK)
            lengths = np.diff(together.indptr[own.start : own.stop + 1])
            part = slice(together.indptr[own.start], together.indptr[own.start] + lengths.sum())
            divisors = np.repeat(by_row[own], lengths)
            divisors *= by_column[together.columns[part]]
            divisors += self._added
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
        return Rows.of(co_occurrences(train.sets, self._set_weights(train.sets, train), train.n_items))

    def _set_weights(self, sets: Sets, train: Baskets) -> Array:
        """How much a set counts for each pair of its items."""
        if self.weights != "bm25":
            return np.ones(sets.count)
        idf: Array = np.log(train.n_items) - np.log1p(sets.sizes)
        return np.square(idf)

    def _norms(self, item_counts: Numbers, train: Baskets) -> Norms:
        counts = item_counts.astype(np.float64)
        if self.weights == "cosine":
            return Norms(0.0, np.sqrt(counts), np.sqrt(counts))
        if self.weights == "share":
            return Norms(0.0, counts, np.ones(len(counts)))
        mean = max(len(train.indices) / train.n_items, 1e-300)
        damping = self.K1 * self.B * counts / mean / (self.K1 + 1)
        return Norms((self.K1 * (1 - self.B) + 1) / (self.K1 + 1), damping, damping)

    @property
    def _added(self) -> float:
        return 0.0 if self.weights == "bm25" else self.shrinkage


@dataclass
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

    LEARNED: ClassVar[tuple[str, ...]] = Rows._fields
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

    def learned(self) -> dict[str, NDArray[Any]]:
        """B."""
        return self.rows_._asdict() | {"values": self.rows_.values.astype(np.float32)}

    def take_learned(self, train: Baskets, learned: Mapping[str, NDArray[Any]]) -> None:
        """See `Baseline`."""
        self._take(train, Rows.checked(train.n_items, *(learned[part] for part in self.LEARNED)))

    def sums(self) -> Sums:
        """The rows of B: what each item says about those that it is a neighbour of."""
        return Sums(np.asarray(self.bias_), self.rows_)


@dataclass
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

    def write_scores(self, sets: Sets, out: Array) -> None:
        """Count the votes given every set."""
        self._count(sets, out, each=False)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        """Count the votes given every set without each of its entries: overlaps lose the weight of the entry."""
        self._count(sets, out, each=True)

    def contributions(self, codes: NDArray[np.int32], item: int) -> Array:
        """The share of every basket item in the votes for an item: that of its weight in each overlap."""
        shares = np.empty(len(codes))
        compiled.votes.share_votes(*self.index_, self.n_neighbours, self.power, self.shrinkage, codes, item, shares)
        return shares

    def _count(self, sets: Sets, out: Array, *, each: bool) -> None:
        compiled.votes.count_votes(*self.index_, self.n_neighbours, self.power, self.shrinkage, *sets, each, out)


class Index(NamedTuple):
    """Baskets that can be found by their items."""

    pointers: Numbers
    postings: NDArray[np.int32]  # the baskets that each item finds
    indptr: Numbers
    indices: NDArray[np.int32]  # the items of each basket
    weights: Array  # of the items
    scale: Array  # of the baskets


def tie_break(train: Baskets, weights: Array) -> Array:
    """The popularity term of the module's rule."""
    largest = max(weights.max(initial=0.0), -weights.min(initial=0.0)) or 1.0
    term: Array = 1e-6 * largest * train.item_counts / train.n_baskets
    return term


def at_least(least: float, **values: float) -> None:
    """Raise `ParameterError` for a value below `least` or above `MOST`, or that is no number."""
    for name, value in values.items():
        if not isinstance(value, (int, float, np.number)) or not least <= value <= MOST:
            raise ParameterError(f"{name} must be a number of at least {least} and at most {MOST:.0e}, got {value!r}")
