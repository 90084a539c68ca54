"""Leave-one-out ranks of a DPP from one factorisation per basket.

With W = L_A⁻¹, U = W L_A: and Q = Wᵀ L_:Aᵀ, the score of j given A∖i is c_j + Q_ij U_ij / W_ii, c_j = L_jj − L_jA U_:j
that given all of A (docs/theory.md); the score of i itself is 1/W_ii. All three products are rows times Xᵀ, but for
the entries of S. Where L is symmetric one product is enough: with orthonormal rows Q that span A, and q_i the
direction of that span which is orthogonal to the items but i, the score is L_jj − ‖Q v_j‖² + (q_iᵀ v_j)², and q_i is a
combination of the rows of Q.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads, run_blocks
from contradpp.data.sets import Sets, runs, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import compiled, factor
from contradpp.dpp.condition import COLUMNS_PER_TILE, RIDGE, nearly_dependent, scores_given
from contradpp.dpp.kernel import Kernel
from contradpp.metrics.leave_one_out import TIE, Array, Counts, Outcome, rank_one_by_one, start_lists

ROWS_PER_BLOCK = 512


class KernelScorer:
    """A DPP; always in float64, whatever its factors are."""

    def __init__(self, kernel: Kernel, items: Vocabulary) -> None:
        self.asked = kernel  # it may know its normaliser already, more precisely than a copy would
        if kernel.factors.dtype != np.float64:
            kernel = Kernel.trusted(kernel.wide, kernel.gain, kernel.skew, kernel.diagonal, n_jobs=kernel.n_jobs)
        self.kernel = kernel
        self.items = items
        self.factors = kernel.vectors if kernel.symmetric else kernel.factors
        self.rounding: Array = TIE * kernel.squared_norms

    def rankable(self, sizes: Counts) -> NDArray[np.bool_]:
        """Sets up to the rank, or a bound of it: given as many items as that, every further one is impossible."""
        return (sizes >= 1) & (sizes <= self.kernel.rank)

    def log_probability(self, sets: Sets) -> Array | None:
        """log P(A) of every set."""
        return self.kernel.log_det(sets) - self.asked.log_normalizer

    @property
    def log_probability_error(self) -> float:
        """The standard error that all of them have in common, that of the normaliser."""
        return self.asked.normalizer.error

    def leave_one_out(
        self, sets: Sets, held: Counts, n_top: int, n_jobs: int, *, rows: int = ROWS_PER_BLOCK
    ) -> Outcome:
        """Blocks of baskets on threads of their own, each a row of tiles; `rows` is the size of a block."""
        out = Outcome.blank(sets, n_top)
        blocks = list(runs(sets.indptr, rows if self.kernel.symmetric else -(-rows // 2)))
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
        kernel, norms, X = self.kernel, self.kernel.squared_norms, self.factors
        part = take_sets(sets, np.arange(first, last))
        start, n = int(sets.indptr[first]), len(part.indices)
        if kernel.symmetric:
            rows, scores, weights, logs, _ = factor.bases(kernel, part, directions=True, n_jobs=1)
        else:  # a basket of probability zero is ranked with a ridge
            W, offsets, logs, _ = inverses = kernel.inverses(part, ridge=RIDGE, n_jobs=1)
            with np.errstate(divide="ignore"):
                scores = 1.0 / inverses.diagonals(part)
            rows = np.empty((3 * n, X.shape[1]))
            compiled.kernels.rows_of_sets(kernel.left, kernel.right, part.indptr, part.indices, offsets, W, rows)
        counts, best = np.zeros((n, 2), dtype=np.int64), start_lists(part.count, out.top.shape[1])
        slack, own, top = self.rounding[part.indices], held[first:last] - start, out.top[first:last]
        tile = np.empty(len(rows) * COLUMNS_PER_TILE)
        for offset in range(0, len(X), COLUMNS_PER_TILE):
            columns = slice(offset, offset + COLUMNS_PER_TILE)
            Y = tile[: len(rows) * len(X[columns])].reshape(len(rows), -1)
            np.matmul(rows, X[columns].T, out=Y)
            these = (norms[columns], self.rounding[columns], offset, part.indptr, part.indices)
            if kernel.symmetric:
                compiled.ranks.compare_directions(Y, weights, *these, scores, slack, own, counts, best, top)
            else:
                compiled.kernels.add_partners(Y, offset, *kernel.skew, part.indptr, part.indices, offsets, W)
                compiled.ranks.compare_products(Y, *these, scores, slack, own, counts, best, top)
        out.better[start : start + n] = counts[:, 0]
        out.equal[start : start + n] = counts[:, 1] - counts[:, 0]
        unclear = nearly_dependent(scores, norms[part.indices], part)
        return unclear if kernel.symmetric else unclear & np.isfinite(logs)

    def _hard(self, sets: Sets, held: Counts, out: Outcome, which: NDArray[np.int64], n_jobs: int) -> None:
        """The sets that are nearly dependent, with or without an item: a factorisation for every item left out."""
        if not len(which):
            return
        part = take_sets(sets, which)
        entries = np.repeat(sets.indptr[which] - part.indptr[:-1], part.sizes) + np.arange(len(part.indices))
        own = held[which] - sets.indptr[which] + part.indptr[:-1]
        done = rank_one_by_one(
            self.given, part, own, out.top.shape[1], len(self.items), n_jobs=n_jobs, rounding=self.rounding
        )
        out.better[entries], out.equal[entries], out.top[which] = done

    def given(self, sets: Sets) -> Array:
        """The scores of all items given every set, nothing ruled out (n_sets, M), on the thread that asks."""
        return scores_given(self.kernel, sets, n_jobs=1)
