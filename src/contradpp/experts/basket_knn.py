"""Votes of the most similar training baskets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contradpp import experts
from contradpp._random import stream
from contradpp._types import Array, Codes, Ints
from contradpp.data.sets import Sets, pointers, sums_over_sets, take_sets
from contradpp.experts.base import Baseline, check_at_least
from contradpp.experts.statistics import BasketStatistics, indicator


class BasketIndex(NamedTuple):
    """Training baskets, and an inverted index that finds them by their items."""

    pointers: Ints
    postings: Codes  # the baskets that each item finds
    indptr: Ints
    indices: Codes  # the items of each basket
    weights: Array  # of the items
    scale: Array  # of the baskets


@dataclass(eq=False, repr=False)
class BasketKNN(Baseline):
    """A vote of the most similar training baskets.

    The score of j is the share of the votes that is cast by baskets with j. The similarity of A and
    a training basket b is

    Σ_{i∈A∩b} w_i / (Σ_{i∈b} w_i)^γ,  w_i = log(1 + n/n_i),

    n the number of baskets and n_i of those with i. Sharing a rare item counts for more, and a
    large basket for less.

    Parameters
    ----------
    n_neighbors : int
        How many baskets vote; those that tie for the last places share them.
    power : float
        A vote is the similarity to this power.
    size_damping : float
        γ.
    shrinkage : float
        This many blank votes, each as strong as the strongest, are added: a few baskets that agree
        say less.
    max_postings : int
        Of an item that is in more baskets than this, only this many are found by it: the same
        random baskets for all such items. It bounds the memory (postings per item) and the time of
        a query (postings per basket item).
    random_state : int
        Chooses those baskets.
    n_jobs : int, optional
        Threads; None for all cores. The result does not depend on it.

    Examples
    --------
    >>> model = BasketKNN().fit([["tea", "milk"], ["pasta", "sauce"]] * 5)
    >>> model.recommend(["tea"], N=1)[0].tolist()
    ['milk']
    """

    n_neighbors: int = 1000
    power: float = 4.0
    size_damping: float = 0.4
    shrinkage: float = 0.0
    max_postings: int = 5000
    random_state: int = 0
    n_jobs: int | None = None

    def _fit(self, statistics: BasketStatistics) -> None:
        check_at_least(1, n_neighbors=self.n_neighbors, max_postings=self.max_postings)
        check_at_least(
            0, power=self.power, size_damping=self.size_damping, shrinkage=self.shrinkage
        )
        train = statistics.train
        counts = train.item_counts
        weights = np.log1p(train.n_baskets / np.maximum(counts, 1))
        order = stream(self.random_state).permutation(train.n_baskets)
        shuffled = take_sets(train.sets, order)
        by_item = indicator(shuffled, train.n_items).tocsc().indices  # the baskets of each item
        rank = np.arange(len(by_item)) - np.repeat(pointers(counts)[:-1], counts)
        postings = by_item[rank < self.max_postings]
        # Baskets that no item finds are dropped, the others numbered anew.
        found = np.bincount(postings, minlength=shuffled.count) > 0
        number = np.cumsum(found) - 1
        sets = take_sets(shuffled, np.flatnonzero(found))
        self.index_ = BasketIndex(
            pointers(np.minimum(counts, self.max_postings)),
            number[postings].astype(np.int32),
            sets.indptr,
            sets.indices,
            weights,
            sums_over_sets(weights[sets.indices], sets) ** -self.size_damping,
        )
        self.bias_ = 1e-9 * counts / train.n_baskets

    def write_scores(self, sets: Sets, out: Array) -> None:
        experts.compiled.count_votes(self.index_, *self._voting, *sets, False, out)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        experts.compiled.count_votes(self.index_, *self._voting, *sets, True, out)

    def contributions(self, codes: Codes, item: int) -> Array:
        shares = np.empty(len(codes))
        experts.compiled.share_votes(self.index_, *self._voting, codes, item, shares)
        return shares

    @property
    def _voting(self) -> tuple[int, float, float]:
        return self.n_neighbors, self.power, self.shrinkage
