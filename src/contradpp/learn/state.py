"""What changes while a kernel L = D + V Vᵀ + S is learned, and the few sums that are kept in step with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import Scratch, results_of_blocks, run_blocks
from contradpp.data.sets import Sets
from contradpp.dpp import compiled
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.linalg import gram, times
from contradpp.learn.checkpoint import kept
from contradpp.learn.start import NO_PARTNERS, Partners

Array = NDArray[np.float64]
Codes = NDArray[np.int32]
SETS_PER_BLOCK = 64
NUMBERS_PER_BLOCK = 2**15  # of a vector: what is made of them on the way stays in the cache of a core
ROWS_PER_BLOCK = 512  # two such blocks of rows, old and new, stay in the cache of a core


@dataclass
class State:
    """The parameters under training, with kernels over sets that use `n_jobs` threads and never depend on it.

    Optimisers write to `V`, `log_d` and `pairs`, and then call `changed` or `rows_changed`.

    Attributes
    ----------
    V : ndarray (M, K)
        In float64, or float32 for half of the memory: a row is made float64 when it is looked at.
    log_d : ndarray (M,)
        log d of every item, empty where there is no diagonal.
    epsilon : float
        What is added to the diagonal while annealing; not learned.
    partners : Partners
        The pattern of S.
    pairs : ndarray (n_pairs,)
        log |s_ij| of every pair of partners.
    moved : ndarray of bool (M,)
        The rows of V that changed since someone last cleared it: what a copy of V has to catch up with.
    known_dual : ndarray (K, K) or None
        C = Vᵀ V, where it is known.
    largest : float
        The largest squared norm of the rows that changed last.
    """

    V: Array = kept()
    log_d: Array = kept(default_factory=lambda: np.empty(0))
    partners: Partners = NO_PARTNERS
    n_jobs: int = 1
    epsilon: float = kept(default=0.0, init=False)
    pairs: Array = kept(init=False)
    moved: NDArray[np.bool_] = kept(init=False)
    squared_norms: Array = kept(init=False)
    known_dual: Array | None = kept(default=None, init=False, shape=lambda own: (own.V.shape[1],) * 2)
    _norm_blocks: Array | None = kept(default=None, init=False, shape=lambda own: (-(-len(own.V) // own.block),))
    _dual_wanted: bool = kept(default=False, init=False)
    _parameters: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.V = np.ascontiguousarray(self.V, dtype=np.float32 if self.V.dtype == np.float32 else np.float64)
        self.pairs = self.partners.start.copy()
        self.block = max(64, int(np.sqrt(len(self.V)) / 8))  # items per block of `norm_blocks`
        self.scratch = Scratch()
        self._marked, self._places = np.zeros(len(self.V), dtype=bool), np.zeros(len(self.V), dtype=np.int32)
        self.changed()
        self.moved = np.zeros(len(self.V), dtype=bool)

    # -- The parameters ----------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """M."""
        return len(self.V)

    @property
    def symmetric(self) -> bool:
        """Whether there is no S."""
        return not len(self.partners.columns)

    @property
    def diagonal(self) -> Array:
        """d of every item, empty where there is none."""
        if not self.epsilon:
            return np.exp(self.log_d)
        return np.exp(self.log_d) + self.epsilon if len(self.log_d) else np.full(self.n_items, self.epsilon)

    @property
    def parameters(self) -> Any:
        """The parameters as kernels take them; looked up again after every change."""
        if self._parameters is None:
            pattern = self.partners
            skew = self._skew()
            where = (pattern.indptr, pattern.columns)
            self._parameters = compiled.gradients.Parameters(self.V, self.diagonal, *where, skew)
        return self._parameters

    def _skew(self) -> Array:
        """s_ij of every entry of S."""
        sizes, pattern = np.empty(len(self.pairs)), self.partners
        skew = np.empty(len(pattern.pair))

        def write_sizes(block: int) -> None:
            part = slice(block * NUMBERS_PER_BLOCK, (block + 1) * NUMBERS_PER_BLOCK)
            np.exp(self.pairs[part], out=sizes[part])

        def write_skew(block: int) -> None:
            part = slice(block * NUMBERS_PER_BLOCK, (block + 1) * NUMBERS_PER_BLOCK)
            np.multiply(pattern.signs[part], sizes[pattern.pair[part]], out=skew[part])

        for work, n in ((write_sizes, len(sizes)), (write_skew, len(skew))):
            run_blocks(work, -(-n // NUMBERS_PER_BLOCK), self.n_jobs)
        return skew

    @property
    def kernel(self) -> Kernel:
        """The kernel of the present parameters, ready for questions."""
        return kernel_of(self.V, self.log_d, self.pairs, self.partners, n_jobs=self.n_jobs)

    @property
    def trace(self) -> float:
        """tr L."""
        return float(np.trace(self.dual) + self.diagonal.sum())

    @property
    def dual(self) -> Array:
        """C = Vᵀ V (K, K), kept in step with V for as long as every step asks for it."""
        if self.known_dual is None:
            self.known_dual = gram(self.V, self.V, self.n_jobs)
        self._dual_wanted = True
        return self.known_dual

    @property
    def norm_blocks(self) -> Array:
        """The squared norms summed over blocks of items, from which items are drawn by norm."""
        if self._norm_blocks is None:
            self._norm_blocks = compiled.draws.norm_blocks(self.squared_norms, self.block)
        return self._norm_blocks

    # -- Changes -----------------------------------------------------------------------------------

    def changed(self) -> None:
        """Say that everything has new values."""
        self.known_dual = self._norm_blocks = self._parameters = None
        self.moved = np.ones(len(self.V), dtype=bool)
        self.squared_norms = np.einsum("ik,ik->i", self.V, self.V, dtype=np.float64)
        self.largest = self.squared_norms.max(initial=0.0)

    def refresh(self, epsilon: float | None = None) -> None:
        """Forget what was made from parameters that a checkpoint has replaced, or that change with this epsilon."""
        self.epsilon = self.epsilon if epsilon is None else epsilon
        self._parameters = None

    def at(self, V: Array) -> State:
        """The same with other factors."""
        other = State(V, self.log_d, self.partners, self.n_jobs)
        other.refresh(self.epsilon)
        return other

    def plus_identity(self) -> State:
        """The parameters of I + L, which share their arrays with these; for looking only."""
        other = copy(self)
        other.refresh(self.epsilon + 1.0)
        return other

    def dual_before(self, rows: Codes) -> Array | None:
        """C, if it pays to say how it changes with these rows: if it is asked for at every step, and they are few."""
        return self.known_dual if self._dual_wanted and len(rows) < self.n_items // 2 else None

    def rows_changed(self, rows: Codes, squared_norms: Array, dual: Array | None = None) -> None:
        """Say that these rows of V have new values, their squared norms, and C, if it is known; and log d and pairs."""
        self.known_dual, self._dual_wanted, self._parameters = dual, False, None
        blocks = np.empty(0) if self._norm_blocks is None else self._norm_blocks
        compiled.draws.update_norms(rows, squared_norms, self.squared_norms, blocks, self.block)
        self.largest = squared_norms.max(initial=0.0)
        self.moved[rows] = True

    def moved_rows(self) -> Codes:
        """The rows that `moved` marks."""
        return np.flatnonzero(self.moved).astype(np.int32)

    # -- Work over sets ----------------------------------------------------------------------------

    def over_sets(
        self, kernel: Callable[..., object], sets: Sets, before: tuple[Any, ...], after: tuple[Any, ...]
    ) -> None:
        """Run a Numba kernel over blocks of sets: kernel(parameters, *before, indptr, indices, first, last, *after).

        What it writes for a set must not depend on the others: one thread takes all of them as one block.
        """
        parameters, size = self.parameters, SETS_PER_BLOCK if self.n_jobs > 1 else max(sets.count, 1)

        def work(block: int) -> None:
            first, last = block * size, min((block + 1) * size, sets.count)
            kernel(parameters, *before, sets.indptr, sets.indices, first, last, *after)

        run_blocks(work, -(-sets.count // size), self.n_jobs, first_alone=not _loaded(kernel, self.symmetric))

    def at_once(self, kernels: Sequence[Any], *tasks: Callable[[], Any]) -> list[Any]:
        """What the tasks give, each on one thread; in turn as long as one of these kernels is still to be compiled."""
        n_jobs = self.n_jobs if all(map(_loaded, kernels)) else 1
        return results_of_blocks(lambda task: tasks[task](), len(tasks), n_jobs)

    @property
    def _no_room(self) -> tuple[NDArray[np.int64] | None, Array, Array]:
        """Links, rows and numbers of a gradient that is not asked for."""
        links = None if self.symmetric else np.zeros(1, dtype=np.int64)
        return links, np.empty((0, self.V.shape[1])), np.empty(0)

    def number_rows(self, sets: Sets) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The distinct items of the sets, ascending, and for each entry the position of its item among them.

        In this order their rows come from memory a tenth faster than in that of the sets.
        """
        self._marked[sets.indices] = True
        rows, slots = np.flatnonzero(self._marked).astype(np.int32), np.empty(len(sets.indices), dtype=np.int32)
        compiled.gradients.number_rows(rows, sets.indices, self._marked, self._places, slots)
        return rows, slots

    def terms(self, rows: NDArray[np.int32]) -> Any:
        """What the conditional likelihood needs of these items: rows of V C and S V, and tr L."""
        K = self.V.shape[1]
        VC = times(self.V, self.dual, self.n_jobs, rows, out=self.scratch("VC", len(rows), K))
        VS = self.scratch("VS", 0 if self.symmetric else len(rows), K)
        if not self.symmetric:
            parameters = self.parameters

            def work(block: int) -> None:
                part = slice(block * ROWS_PER_BLOCK, (block + 1) * ROWS_PER_BLOCK)
                compiled.gradients.partner_sums(parameters, rows[part], VS[part])

            alone = not _loaded(compiled.gradients.partner_sums)
            run_blocks(work, -(-len(rows) // ROWS_PER_BLOCK), self.n_jobs, first_alone=alone)
        return compiled.gradients.Terms(VC, VS, self.trace)

    def log_det(self, sets: Sets) -> Array:
        """log det L_A of every set."""
        out = np.empty(sets.count)
        kernel, (links, rows, numbers) = compiled.gradients.log_det_gradients, self._no_room
        self.over_sets(kernel, sets, (links,), (out, rows, numbers, numbers))
        return out

    def log_choice(self, chosen: Sets, offered: Sets) -> Array:
        """log P(chosen | offered) = log det L_chosen − log det(I + L_offered) for every pair of sets."""
        return self.log_det(chosen) - self.plus_identity().log_det(offered)

    def conditional_log_likelihood(self, sets: Sets) -> Array:
        """log P(i | A∖i) for every entry of the sets; NaN where a set is singular."""
        rows, slots = self.number_rows(sets)
        out = np.empty(len(sets.indices))
        kernel, (links, none, numbers) = compiled.gradients.conditional_gradients, self._no_room
        after = (out, numbers, none, none, none, numbers, numbers, numbers)
        self.over_sets(kernel, sets, (self.terms(rows), slots, links), after)
        return out


def kernel_of(V: Array, log_d: Array, pairs: Array, partners: Partners, *, n_jobs: int = 1) -> Kernel:
    """The kernel of learned parameters."""
    skew = partners.matrix(pairs) if len(partners.columns) else None
    return Kernel(V, skew=skew, diagonal=np.exp(log_d) if len(log_d) else None, n_jobs=n_jobs)


def _loaded(kernel: Any, symmetric: bool | None = None) -> bool:
    """Whether a kernel has been compiled, or read from the cache, in this process; one over sets in this form."""
    forms = getattr(kernel, "signatures", None)  # none of a plain function
    return forms is None or any(symmetric in (None, "none" in map(str, form)) for form in forms)
