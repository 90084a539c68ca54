"""Leave-one-out ranks of models whose scores are sums over the basket, or do not depend on it at all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks
from contradpp.data.sets import Sets, runs, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.metrics.scoring import SCORES_PER_BLOCK, TIE, Array, Counts, Outcome, start_lists


class LinearScorer:
    """Scores bias + Σ_{a∈A} S[a]: leaving out i subtracts its row, so one pass over the rows of A ranks every i.

    Parameters
    ----------
    items : Vocabulary
    rows : callable
        Gives the rows of S for an array of codes, dense and in float64 (n, M).
    bias : array (M,), optional
    """

    def __init__(
        self, items: Vocabulary, rows: Callable[[NDArray[np.int32]], Array], bias: Array | None = None
    ) -> None:
        self.items = items
        self.rows = rows
        self.bias = np.zeros(len(items)) if bias is None else bias

    def rankable(self, sizes: Counts) -> NDArray[np.bool_]:
        """All sets that are not empty."""
        return sizes >= 1

    def log_probability(self, sets: Sets) -> None:  # noqa: ARG002
        """There is none: scores are not probabilities of sets."""
        return

    def leave_one_out(self, sets: Sets, held: Counts, n_top: int, n_jobs: int) -> Outcome:
        """Blocks of baskets on threads of their own."""
        from contradpp.dpp.compiled import ranks

        out = Outcome.blank(sets, n_top)
        blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // len(self.items), 1)))

        def work(block: int) -> None:
            first, last = blocks[block]
            part = take_sets(sets, np.arange(first, last))
            start, n = int(sets.indptr[first]), len(part.indices)
            counts = np.zeros((n, 2), dtype=np.int64)
            best = start_lists(part.count, n_top)
            ranks.compare_sums(
                self.rows(part.indices), self.bias, TIE, part.indptr, part.indices, held[first:last] - start,
                counts, best, out.top[first:last],
            )  # fmt: skip
            out.better[start : start + n] = counts[:, 0]
            out.equal[start : start + n] = counts[:, 1] - counts[:, 0]

        run_blocks(work, len(blocks), n_jobs)
        return out


class StaticScorer:
    """One score per item, whatever the basket holds.

    Parameters
    ----------
    items : Vocabulary
    scores : array (M,)
    log_probability : callable
        log P(A) of every set.
    """

    def __init__(self, items: Vocabulary, scores: Array, log_probability: Callable[[Sets], Array]) -> None:
        self.items = items
        self.scores = scores
        self.log_probability = log_probability

    def rankable(self, sizes: Counts) -> NDArray[np.bool_]:
        """All sets that are not empty."""
        return sizes >= 1

    def leave_one_out(self, sets: Sets, held: Counts, n_top: int, n_jobs: int) -> Outcome:  # noqa: ARG002
        """Ranks in the whole catalogue, less the other items of the basket."""
        out = Outcome.blank(sets, n_top)
        ascending = np.sort(self.scores)
        own = self.scores[sets.indices]
        above = np.searchsorted(ascending, own, side="right")
        out.better[:] = len(ascending) - above
        out.equal[:] = above - np.searchsorted(ascending, own, side="left") - 1
        order = np.argsort(-self.scores, kind="stable").astype(np.int32)
        for s in range(sets.count):
            entries = slice(int(sets.indptr[s]), int(sets.indptr[s + 1]))
            mine = own[entries]
            out.better[entries] -= (mine[None, :] > mine[:, None]).sum(axis=1)
            out.equal[entries] -= (mine[None, :] == mine[:, None]).sum(axis=1) - 1
            rest = np.delete(sets.indices[entries], held[s] - entries.start)
            best = order[: n_top + len(rest)]
            best = best[~np.isin(best, rest)][:n_top]
            out.top[s, : len(best)] = best
        return out
