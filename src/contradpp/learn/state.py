"""What changes while a kernel is learned: the factors, and the few things that are kept in step with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from contradpp._threads import run_blocks
from contradpp.data.sets import Sets
from contradpp.dpp.products import gram, times
from contradpp.learn.checkpoint import Snapshot, array_of

Array = NDArray[np.float64]
Positions = NDArray[np.int64]
SETS_PER_BLOCK = 64


class State:
    """The factors under training, with kernels over sets that use `n_jobs` threads and never depend on it.

    Attributes
    ----------
    V : ndarray (M, K)
        The factors; optimisers write to it and then call `changed` or `rows_changed`.
    pairs : ndarray (n_pairs,)
        Parameters of pairs of items, for kernels that have such; empty here.
    moved : ndarray of bool (M,)
        The rows that changed since someone last cleared it: what a copy of V has to catch up with.
    """

    def __init__(self, V: Array, *, n_jobs: int = 1) -> None:
        self.V = np.ascontiguousarray(V, dtype=np.float64)
        self.pairs: Array = np.empty(0)
        self.n_jobs = n_jobs
        self.block = max(64, int(np.sqrt(len(self.V))))  # items per block of `norm_blocks`
        self._marks = np.full(len(self.V), -1, dtype=np.int32)
        self._dual: Array | None = None
        self._dual_wanted = False
        self._norm_blocks: Array | None = None
        self.changed()
        self.moved = np.zeros(len(self.V), dtype=bool)

    @property
    def dual(self) -> Array:
        """C = Vᵀ V (K, K), kept in step with V for as long as every step asks for it."""
        if self._dual is None:
            self._dual = gram(self.V, self.V, self.n_jobs)
        self._dual_wanted = True
        return self._dual

    @property
    def norm_blocks(self) -> Array:
        """The squared norms summed over blocks of items, from which items are drawn by norm."""
        if self._norm_blocks is None:
            from contradpp.dpp.compiled import draws

            self._norm_blocks = draws.norm_blocks(self.squared_norms, self.block)
        return self._norm_blocks

    def changed(self) -> None:
        """Say that all of V has new values."""
        self._dual = None
        self._norm_blocks = None
        self.moved = np.ones(len(self.V), dtype=bool)
        self.squared_norms = np.einsum("ik,ik->i", self.V, self.V)

    def at(self, V: Array) -> State:
        """The same with other factors."""
        return State(V, n_jobs=self.n_jobs)

    def before(self, rows: NDArray[np.integer]) -> Array | None:
        """These rows of V, if `rows_changed` will want to know what they were."""
        return self.V[rows] if self._dual is not None and self._dual_wanted else None

    def rows_changed(self, rows: NDArray[np.integer], old: Array | None) -> None:
        """Say that these rows of V have new values, and what the old ones were (see `before`).

        C changes by V_newᵀ V_new − V_oldᵀ V_old, half of DᵀS + SᵀD with D and S the difference and the sum.
        """
        from contradpp.dpp.compiled import draws

        if old is not None and self._dual is not None and self._dual_wanted:
            new = self.V[rows]
            half = gram(new - old, new + old, self.n_jobs)
            self._dual = self._dual + 0.5 * (half + half.T)
        else:
            self._dual = None
        self._dual_wanted = False
        blocks = np.empty(0) if self._norm_blocks is None else self._norm_blocks
        draws.update_norms(self.V, rows, self.squared_norms, blocks, self.block)
        self.moved[rows] = True

    def moved_rows(self) -> NDArray[np.int64]:
        """The rows that `moved` marks."""
        return np.flatnonzero(self.moved)

    def snapshot(self) -> Snapshot:
        """Everything that steps change; sums kept in step with V differ from fresh ones in their last bits."""
        kept: Snapshot = {"V": self.V, "pairs": self.pairs, "moved": self.moved, "squared_norms": self.squared_norms}
        kept["dual_wanted"] = self._dual_wanted
        sums = {"dual": self._dual, "norm_blocks": self._norm_blocks}
        return kept | {name: array for name, array in sums.items() if array is not None}

    def restore(self, kept: Snapshot) -> None:
        """Become as `snapshot` found it."""
        M, K = self.V.shape
        self.V[:] = array_of(kept, "V", (M, K))
        self.pairs[:] = array_of(kept, "pairs", self.pairs.shape)
        self.moved[:] = array_of(kept, "moved", (M,), np.bool_)
        self.squared_norms[:] = array_of(kept, "squared_norms", (M,))
        self._dual_wanted = bool(kept["dual_wanted"])
        self._dual = array_of(kept, "dual", (K, K)).copy() if "dual" in kept else None
        blocks = (-(-M // self.block),)
        self._norm_blocks = array_of(kept, "norm_blocks", blocks).copy() if "norm_blocks" in kept else None

    @property
    def log_normalizer(self) -> float:
        """log det(I + C)."""
        return float(np.linalg.slogdet(np.eye(len(self.dual)) + self.dual)[1])

    def normalizer_factor(self) -> Array:
        """(I + C)⁻¹ (K, K): the gradient of log det(I + L) is 2 V times it."""
        inverse: Array = cho_solve(cho_factor(np.eye(len(self.dual)) + self.dual), np.eye(len(self.dual)))
        return inverse

    def over_sets(
        self,
        kernel: Callable[..., object],
        sets: Sets,
        *given: object,
        before: tuple[object, ...] = (),
        per_entry: tuple[Array, ...] = (),
        per_set: tuple[Array, ...] = (),
    ) -> None:
        """Run a Numba kernel over blocks of sets, which fills arrays with a row for each entry or for each set.

        The kernel is called as kernel(V, *before, indptr, indices, first, last, *given, *per_entry, *per_set).
        """
        n_blocks = -(-sets.count // SETS_PER_BLOCK)
        starts = np.minimum(np.arange(n_blocks + 1) * SETS_PER_BLOCK, sets.count)

        def work(block: int) -> None:
            first, last = starts[block], starts[block + 1]
            kernel(self.V, *before, sets.indptr, sets.indices, first, last, *given, *per_entry, *per_set)

        entries = sets.indptr[starts]
        self.in_blocks(work, [(array, entries) for array in per_entry] + [(array, starts) for array in per_set])

    def in_blocks(self, work: Callable[[int], None], results: Sequence[tuple[NDArray[Any], Positions]]) -> None:
        """Call `work(block)` for every block of some work that fills arrays.

        With each array comes where the blocks' parts of it begin, and at last where they end.
        """
        run_blocks(work, len(results[0][1]) - 1, self.n_jobs)

    def number_rows(self, sets: Sets) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The distinct items of the sets, and for each entry the position of its item among them."""
        from contradpp.dpp.compiled import gradients

        slots = np.empty(len(sets.indices), dtype=np.int32)
        rows = np.empty(min(len(sets.indices), len(self.V)), dtype=np.int32)
        count = gradients.number_rows(sets.indices, self._marks, slots, rows)
        return rows[:count], slots

    def log_det(self, sets: Sets) -> Array:
        """log det L_A of every set."""
        from contradpp.dpp.compiled import gradients

        out = np.empty(sets.count)
        self.over_sets(gradients.set_log_dets, sets, per_set=(out,))
        return out

    def conditional_log_likelihood(self, sets: Sets) -> Array:
        """log P(i | A∖i) for every entry of the sets; NaN where a set is singular."""
        from contradpp.dpp.compiled import gradients

        rows, slots = self.number_rows(sets)
        VC = times(self.V[rows], self.dual, self.n_jobs)
        out = np.empty(len(sets.indices))
        trace = float(np.trace(self.dual))
        self.over_sets(gradients.conditional_log_likelihoods, sets, before=(VC, slots, trace), per_entry=(out,))
        return out
