"""Popularity: the same best sellers for every basket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from contradpp._types import Array, Codes, Ints
from contradpp.data.sets import Sets
from contradpp.experts.base import Baseline, check_at_least
from contradpp.experts.queries import as_queries
from contradpp.experts.statistics import BasketStatistics


@dataclass(eq=False, repr=False)
class Popularity(Baseline):
    """A model that offers the items that sell most to every basket; items are independent.

    log P(A) = Σ_{i∈A} log p_i + Σ_{i∉A} log(1 − p_i), with p_i = (n_i + s)/(n + 2s) for an item
    in n_i of the n baskets. The score of i is p_i.

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

    def _fit(self, statistics: BasketStatistics) -> None:
        check_at_least(0, smoothing=self.smoothing)
        n_baskets = statistics.train.n_baskets
        self.probabilities_ = (statistics.counts + self.smoothing) / (
            n_baskets + 2 * self.smoothing
        )

    def score_samples(self, baskets: Any, *, unknown: str = "error") -> Array:
        """Return log P(A) of every basket; `baskets` and `unknown` are as in `predict_next`."""
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        logs = self.log_probability(queries.sets)
        return logs[0] if queries.single else logs

    def log_probability(self, sets: Sets) -> Array:
        p = self.probabilities_
        certain = p == 1  # in every basket: a set without such an item is impossible
        with np.errstate(divide="ignore"):
            log_odds = np.where(certain, 0.0, np.log(p) - np.log1p(-np.where(certain, 0.0, p)))
        # Differences of cumulative sums would turn −inf into NaN.
        padded = np.append(log_odds[sets.indices], 0.0)
        sums = np.add.reduceat(padded, np.minimum(sets.indptr[:-1], len(sets.indices)))
        n_certain = np.bincount(sets.owners, weights=certain[sets.indices], minlength=sets.count)
        logs: Array = np.log1p(-p[~certain]).sum() + np.where(sets.sizes > 0, sums, 0.0)
        logs[n_certain < certain.sum()] = -np.inf
        return logs

    def write_scores(self, sets: Sets, out: Array) -> None:  # noqa: ARG002
        out[:] = self.probabilities_

    def contributions(self, codes: Codes, item: int) -> Array:  # noqa: ARG002
        return np.zeros(len(codes))

    def alone(self, items: Ints) -> Array:
        return self.probabilities_[items]
