"""Leave-one-out ranks of a nonsymmetric DPP from one factorisation per basket.

With W = L_A⁻¹, U = W L_A: and Q = Wᵀ L_:Aᵀ, the score of j given A∖i is c_j + Q_ij U_ij / W_ii, c_j = L_jj − L_jA U_:j
that given all of A; the score of i itself is 1/W_ii. All three products are rows times Xᵀ, but for the entries of S.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads, run_blocks
from contradpp.data.sets import Sets, runs, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp.nonsymmetric import Inverses, NonsymmetricKernel
from contradpp.dpp.skew_conditioning import scores_given
from contradpp.errors import ParameterError
from contradpp.metrics.scoring import TIE, Array, Counts, Outcome, rank_one_by_one, start_lists

# A tile of the products (3 × rows × columns) stays in the cache of one core until it has been compared.
ROWS_PER_BLOCK = 256
COLUMNS_PER_TILE = 256
# Where 1/W_ii is further than this factor from L_ii, the closed form loses more than rounding: leave out one by one.
NEARLY_DEPENDENT = 1e-6
# A basket of probability zero is ranked as if L_A, scaled to entries of at most 1, had this much more on its diagonal.
RIDGE = 1e-6


class SkewScorer:
    """A DPP with the kernel L = X G Xᵀ + S."""

    def __init__(self, kernel: NonsymmetricKernel, items: Vocabulary) -> None:
        self.kernel = kernel
        self.items = items
        self.rounding: Array = TIE * kernel.squared_norms

    def rankable(self, sizes: Counts) -> NDArray[np.bool_]:
        """Sets up to the bound of the rank; one of them that has probability zero is ranked with a ridge."""
        return (sizes >= 1) & (sizes <= self.kernel.rank)

    def log_probability(self, sets: Sets) -> Array | None:
        """log P(A) of every set; None where the catalogue is too large for its normaliser."""
        try:
            return self.kernel.log_probability(sets)
        except ParameterError:
            return None

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
        from contradpp.dpp.compiled import skew_kernels

        kernel, X, norms = self.kernel, self.kernel.factors, self.kernel.squared_norms
        part = take_sets(sets, np.arange(first, last))
        start, n = int(sets.indptr[first]), len(part.indices)
        W, offsets, logs = inverses = self._inverses(part)
        with np.errstate(divide="ignore"):
            scores = 1.0 / inverses.diagonals(part)
        rows = np.empty((3 * n, X.shape[1]))
        skew_kernels.rows_of_sets(kernel.left, kernel.right, part.indptr, part.indices, offsets, W, rows)
        slack = self.rounding[part.indices]
        counts = np.zeros((n, 2), dtype=np.int64)
        best = start_lists(part.count, out.top.shape[1])
        tile = np.empty(3 * n * COLUMNS_PER_TILE)
        for offset in range(0, len(X), COLUMNS_PER_TILE):
            columns = slice(offset, offset + COLUMNS_PER_TILE)
            Y = tile[: 3 * n * len(X[columns])].reshape(3 * n, -1)
            np.matmul(rows, X[columns].T, out=Y)
            skew_kernels.add_partners(Y, offset, *kernel.skew, part.indptr, part.indices, offsets, W)
            skew_kernels.compare_products(
                Y, norms[columns], self.rounding[columns], offset, part.indptr, part.indices,
                scores, slack, held[first:last] - start, counts, best, out.top[first:last],
            )  # fmt: skip
        out.better[start : start + n] = counts[:, 0]
        out.equal[start : start + n] = counts[:, 1] - counts[:, 0]
        sizes = norms[part.indices]
        clear = (scores > NEARLY_DEPENDENT * sizes) & (scores * NEARLY_DEPENDENT < sizes)
        unclear: NDArray[np.bool_] = np.logical_or.reduceat(~clear, part.indptr[:-1])
        return unclear & np.isfinite(logs)

    def _hard(self, sets: Sets, held: Counts, out: Outcome, which: NDArray[np.int64], n_jobs: int) -> None:
        """The sets that are nearly dependent, with or without an item: a factorisation for every item left out."""
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
        """L_jj − L_jA W L_Aj for every set and item (n_sets, M), nothing ruled out."""
        scores = np.empty((sets.count, len(self.items)))
        for first, last in runs(sets.indptr, ROWS_PER_BLOCK):
            part = take_sets(sets, np.arange(first, last))
            scores[first:last] = scores_given(self.kernel, part, self._inverses(part))
        return scores

    def _inverses(self, sets: Sets) -> Inverses:
        """Of these sets, on the thread that asks."""
        return self.kernel.inverses(sets, ridge=RIDGE, n_jobs=1)
