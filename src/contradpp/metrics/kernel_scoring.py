"""Leave-one-out ranks of a low-rank DPP from one factorisation per basket.

With orthonormal rows Q that span V_A, and q_i the unit vector of that span which is orthogonal to V_{A∖i}, the
score of j given A∖i is ‖v_j‖² − ‖Q v_j‖² + (q_iᵀ v_j)² (docs/theory.md: c_j + U_ij²/W_ii). As q_i is a
combination of the rows of Q, the one matrix product Q Vᵀ serves all items that are left out. The score of i
itself is 1/W_ii.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads, run_blocks
from contradpp.data.sets import Sets, runs, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp.kernel import LowRankKernel
from contradpp.metrics.scoring import TIE, Array, Counts, Outcome, rank_one_by_one, start_lists

# A tile of the product (rows × columns) stays in the cache of one core until it has been compared.
ROWS_PER_BLOCK = 512
COLUMNS_PER_TILE = 256
# Where 1/W_ii is a smaller share of ‖v_i‖², the closed form loses more than rounding: leave out one by one.
NEARLY_DEPENDENT = 1e-6


class KernelScorer:
    """A DPP with the kernel L = V Vᵀ; always in float64, whatever V is."""

    def __init__(self, kernel: LowRankKernel, items: Vocabulary) -> None:
        self.kernel = kernel
        self.items = items
        self.factors: Array = kernel.factors.astype(np.float64, copy=False)
        self.rounding: Array = TIE * kernel.squared_norms

    def rankable(self, sizes: Counts) -> NDArray[np.bool_]:
        """Sets up to the rank: given as many items as that, every further one has probability zero."""
        return (sizes >= 1) & (sizes <= self.kernel.rank)

    def log_probability(self, sets: Sets) -> Array:
        """log P(A) of every set."""
        return self.kernel.log_probability(sets)

    def leave_one_out(
        self, sets: Sets, held: Counts, n_top: int, n_jobs: int, *, rows: int = ROWS_PER_BLOCK
    ) -> Outcome:
        """Blocks of baskets on threads of their own, each a row of tiles; `rows` is the size of a block."""
        out = Outcome.blank(sets, n_top)
        blocks = list(runs(sets.indptr, rows))
        hard = np.zeros(sets.count, dtype=bool)

        def work(block: int) -> None:
            first, last = blocks[block]
            hard[first:last] = self._block(sets, held, out, first, last)

        with blas_threads(1):
            run_blocks(work, len(blocks), n_jobs)
            self._hard(sets, held, out, np.flatnonzero(hard), n_jobs)
        return out

    def _block(self, sets: Sets, held: Counts, out: Outcome, first: int, last: int) -> NDArray[np.bool_]:
        """Rank sets first..last−1; returns which of them need to be done one by one."""
        from contradpp.dpp.compiled import kernels, ranks

        V, norms = self.factors, self.kernel.squared_norms
        part = take_sets(sets, np.arange(first, last))
        start, n = int(sets.indptr[first]), len(part.indices)
        Q, weights = np.empty((n, V.shape[1])), np.empty((n, int(part.sizes.max(initial=1))))
        pivots, scores = np.empty(n), np.empty(n)
        kernels.orthonormal_rows(V, part.indptr, part.indices, 0, part.count, Q, pivots)
        ranks.left_out_directions(V, part.indptr, part.indices, Q, weights, scores)
        slack = self.rounding[part.indices]
        counts = np.zeros((n, 2), dtype=np.int64)
        best = start_lists(part.count, out.top.shape[1])
        tile = np.empty(n * COLUMNS_PER_TILE)
        for offset in range(0, len(V), COLUMNS_PER_TILE):
            columns = slice(offset, offset + COLUMNS_PER_TILE)
            Y = tile[: n * len(V[columns])].reshape(n, -1)
            np.matmul(Q, V[columns].T, out=Y)
            ranks.compare_directions(
                Y, norms[columns], self.rounding[columns], offset, part.indptr, part.indices, weights,
                scores, slack, held[first:last] - start, counts, best, out.top[first:last],
            )  # fmt: skip
        out.better[start : start + n] = counts[:, 0]
        out.equal[start : start + n] = counts[:, 1] - counts[:, 0]
        unclear = ~(scores > NEARLY_DEPENDENT * norms[part.indices])
        hard: NDArray[np.bool_] = np.logical_or.reduceat(unclear, part.indptr[:-1])
        return hard

    def _hard(self, sets: Sets, held: Counts, out: Outcome, which: NDArray[np.int64], n_jobs: int) -> None:
        """The sets whose factors are dependent, or nearly so: a factorisation for every item that is left out."""
        if not len(which):
            return
        part = take_sets(sets, which)
        entries = np.repeat(sets.indptr[which] - part.indptr[:-1], part.sizes) + np.arange(len(part.indices))
        own = held[which] - sets.indptr[which] + part.indptr[:-1]
        done = rank_one_by_one(
            self._given, part, own, out.top.shape[1], len(self.items), n_jobs=n_jobs, rounding=self.rounding
        )
        out.better[entries], out.equal[entries], out.top[which] = done

    def _given(self, sets: Sets) -> Array:
        """‖v_j‖² − ‖Q v_j‖² for every set and item (n_sets, M), nothing ruled out."""
        from contradpp.dpp.compiled import kernels

        V = self.factors
        Q, pivots = np.empty((len(sets.indices), V.shape[1])), np.empty(len(sets.indices))
        kernels.orthonormal_rows(V, sets.indptr, sets.indices, 0, sets.count, Q, pivots)
        scores = np.tile(self.kernel.squared_norms, (sets.count, 1))
        for s in range(sets.count):
            scores[s] -= np.square(Q[sets.indptr[s] : sets.indptr[s + 1]] @ V.T).sum(axis=0)
        return scores
