"""Items that were bought together with those in the basket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from contradpp._threads import resolve_n_jobs, run_blocks
from contradpp._types import Array
from contradpp.dpp.cooccurrence import co_occurrences
from contradpp.errors import ParameterError
from contradpp.experts.base import Baseline, check_at_least, tie_break
from contradpp.experts.statistics import BasketStatistics, Rows

SHRINKAGES = (1.0, 10.0, 100.0)  # of cosine weights, to choose from: the best depends on the shop
ROWS_PER_BLOCK = 256


@dataclass(eq=False, repr=False)
class ItemKNN(Baseline):
    """A model of items that were bought together: the score of j is Σ_{a∈A} S[a, j].

    Parameters
    ----------
    neighbors : int or None
        The number of most similar items of each item that count; None for all.
    shrinkage : float
        S[a, j] = n_aj / (√(n_a n_j) + shrinkage) for cosine weights, n_aj the number of baskets
        with a and j. Counts of few baskets count less.
    weights : {"cosine", "share", "bm25"}
        "share" is n_aj / (n_a + shrinkage): of the baskets with a, the share that holds j. "bm25"
        is that of the implicit package: S = WᵀW for the baskets × items matrix W with
        W[b, i] = idf_b (K1 + 1)/(K1 (1 − B + B n_i/mean n) + 1), idf_b = log M − log(1 + |b|).
    K1, B : float
        The parameters of BM25: how far, and how much, popular items are damped.

    Attributes
    ----------
    similarity_ : S as a SciPy CSR matrix

    Examples
    --------
    >>> model = ItemKNN(shrinkage=0).fit([["tea", "milk"], ["pasta", "sauce"]] * 5)
    >>> model.recommend(["tea"], N=1)[0].tolist()
    ['milk']
    """

    neighbors: int | None = None
    shrinkage: float = 10.0
    weights: str = "cosine"
    K1: float = 1.2
    B: float = 0.75

    def _fit(self, statistics: BasketStatistics) -> None:
        check_at_least(0, shrinkage=self.shrinkage, K1=self.K1, B=self.B)
        if self.neighbors is not None:
            check_at_least(1, neighbors=self.neighbors)
        if self.weights not in ("cosine", "share", "bm25"):
            raise ParameterError(
                f"weights must be 'cosine', 'share' or 'bm25', got {self.weights!r}"
            )
        train = statistics.train
        together = self._together(statistics)
        by_row, by_column = self._norms(statistics.counts)
        shrinkage = 0.0 if self.weights == "bm25" else self.shrinkage
        values = np.empty(len(together.values))

        def divide(block: int) -> None:  # many millions of pairs: a block stays in the cache
            rows = slice(block * ROWS_PER_BLOCK, (block + 1) * ROWS_PER_BLOCK)
            lengths = np.diff(together.indptr[rows.start : rows.stop + 1])
            start = together.indptr[rows.start]
            part = slice(start, start + lengths.sum())
            divisors = np.repeat(by_row[rows], lengths)
            divisors *= by_column[together.columns[part]]
            divisors += shrinkage
            np.divide(together.values[part], divisors, out=values[part])

        run_blocks(divide, -(-train.n_items // ROWS_PER_BLOCK), resolve_n_jobs(self.n_jobs))
        self.bias_ = tie_break(train, values)
        rows = Rows(together.indptr, together.columns, values)
        self.item_weights_: Rows = rows.where(values != 0).largest(self.neighbors)

    @property
    def similarity_(self) -> Any:
        """S as a SciPy CSR matrix."""
        return self.item_weights_.matrix(len(self.known_items))

    def _together(self, statistics: BasketStatistics) -> Rows:
        if self.weights != "bm25":
            return statistics.together
        train = statistics.train
        idf = np.log(train.n_items) - np.log1p(train.sizes)
        return Rows.of(co_occurrences(train.sets, np.square(idf), train.n_items))

    def _norms(self, counts: Array) -> tuple[Array, Array]:
        """Return the factors of the divisor of a pair: that of its row and that of its column."""
        if self.weights == "cosine":
            return np.sqrt(counts), np.sqrt(counts)
        if self.weights == "share":
            return counts, np.ones(len(counts))
        mean = max(counts.sum() / len(counts), 1e-300)
        least = (self.K1 * (1 - self.B) + 1) / (self.K1 + 1)
        norms = least + self.K1 * self.B * counts / mean / (self.K1 + 1)
        return norms, norms
