"""Leave-one-out: how every item of a basket ranks among all others when it is left out, by definition and for a DPP.

Of a DPP one factorisation gives all ranks of a set. With W = L_A⁻¹, U = W L_A: and Q = Wᵀ L_:Aᵀ, the score of j given
A∖i is c_j + Q_ij U_ij / W_ii, c_j = L_jj − L_jA U_:j that given all of A (docs/theory.md); the score of i itself is
1/W_ii. All three products are rows times Xᵀ, but for the entries of S. Where L is symmetric one product is enough: with
orthonormal rows Q that span A, and q_i the direction of that span which is orthogonal to the items but i, the score is
L_jj − ‖Q v_j‖² + (q_iᵀ v_j)², and q_i is a combination of the rows of Q.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads, run_blocks
from contradpp.data.sets import Sets, runs, take_sets, without_each
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import compiled, factor
from contradpp.dpp.condition import COLUMNS_PER_TILE
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.rank import top_n
from contradpp.dpp.scoring import RIDGE, nearly_dependent, scores_given
from contradpp.experts.base import SCORES_PER_BLOCK

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

# Scores that differ by less than this share of the terms they are made of differ by rounding: they tie.
TIE = 1e-12
ROWS_PER_BLOCK = 512  # of a DPP


class Outcome(NamedTuple):
    """How the items of several baskets rank when each is left out in turn, entry by entry of the sets."""

    better: Counts  # (nnz,): items outside A∖i that the model prefers to i
    equal: Counts  # (nnz,): other items outside A∖i that tie with i
    top: NDArray[np.int32]  # (n_sets, n_top): best items given A without the held-out one, −1 where fewer are left

    @staticmethod
    def blank(sets: Sets, n_top: int) -> Outcome:
        """Zero counts and empty lists."""
        nothing = np.zeros(len(sets.indices), dtype=np.int64)
        return Outcome(nothing, nothing.copy(), np.full((sets.count, n_top), -1, dtype=np.int32))


def rank_one_by_one(
    scores: Callable[[Sets], Array], sets: Sets, held: Counts, n_top: int, n_items: int, *, n_jobs: int = 1,
    rounding: Array | None = None,
) -> Outcome:  # fmt: skip
    """Leave-one-out by its definition: all items scored given A∖i, for every i.

    `scores` takes sets and gives a new array (n_sets, n_items); `rounding` is that of `count_rows`.
    """
    return rank_entries(
        lambda part: scores(without_each(part)), sets, held, n_top, n_items, n_jobs=n_jobs, rounding=rounding
    )


def rank_entries(
    scores: Callable[[Sets], Array], sets: Sets, held: Counts, n_top: int, n_items: int, *, n_jobs: int = 1,
    rounding: Array | None = None,
) -> Outcome:  # fmt: skip
    """Leave-one-out from scores of all items for every entry of the sets, given its set without it (nnz, n_items)."""
    out = Outcome.blank(sets, n_top)
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // n_items, 1)))

    def work(block: int) -> None:
        first, last = blocks[block]
        part = take_sets(sets, np.arange(first, last))
        entries = slice(int(sets.indptr[first]), int(sets.indptr[last]))
        rest, x = without_each(part), scores(part)
        x[np.repeat(np.arange(rest.count), rest.sizes), rest.indices] = -np.inf
        out.better[entries], out.equal[entries] = count_rows(x, part.indices, rounding)
        lists = x[held[first:last] - entries.start]
        best = top_n(lists, n_top)
        found = np.take_along_axis(lists, best, axis=1) > -np.inf
        out.top[first:last, : best.shape[1]] = np.where(found, best, -1)

    run_blocks(work, len(blocks), n_jobs)
    return out


def start_lists(n_sets: int, n_top: int) -> Array:
    """Scores and rounding of lists that are still empty, for the kernels that fill them (2, n_sets, n_top)."""
    lists = np.zeros((2, n_sets, n_top))
    lists[0] = -np.inf
    return lists


def count_rows(scores: Array, codes: NDArray[np.int32], rounding: Array | None = None) -> tuple[Counts, Counts]:
    """Per row, how many scores beat that of the item `codes[row]`, and how many others tie with it.

    `rounding` bounds the error of each column; by default it is `TIE` of the scores themselves.
    """
    counts = np.empty((len(scores), 2), dtype=np.int64)
    none = np.zeros(scores.shape[1]) if rounding is None else rounding
    compiled.ranks.count_rows(scores, codes, TIE if rounding is None else 0.0, none, counts)
    return counts[:, 0], np.maximum(counts[:, 1] - counts[:, 0] - 1, 0)  # of −inf not even itself ties


# -- A DPP ---------------------------------------------------------------------------------------------------


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
