"""One set A of items: what L_A gives, and the one rule that says where it is singular.

Scale the rows and columns of L_A so that its diagonal is 1. L_A is singular, and det L_A = 0, if its inverse then has
an entry of 1/SINGULAR or more: if a change of one entry by no more than SINGULAR makes the determinant zero. Where L is
symmetric that says that the other items leave some item i no more than SINGULAR of its weight, 1/W_ii ≤ SINGULAR L_ii.
(Where a skew part exceeds the diagonal, the largest entry of each row is made 1 instead.) The rule does not depend on
the order of the items, on their popularity, nor on how L is written, and double precision can decide it for all forms.

Two ways lead there. A symmetric L = D + V Vᵀ is factorised through the rows of [V √D], which never squares their
condition; any other through the inverse of the scaled L_A.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks
from contradpp.data.sets import Sets, pointers, runs, take_sets
from contradpp.dpp import compiled

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]

SINGULAR = 1e-13
SETS_PER_BLOCK = 256
ENTRIES_PER_CHUNK = 2**16  # the factors of a chunk are all that is in memory at once
# A score is a difference: below these shares of its terms it may be rounding. For factors in float32, and by inverses.
_CLEAR_SINGLE = 1e-4
_CLEAR_INVERSE = 1e-10
_WELL_CONDITIONED = 100.0


class Bases(NamedTuple):
    """Orthonormal rows that span the sets of a symmetric kernel, aligned with the sets' entries."""

    rows: Array  # (nnz, K): those of V; with a diagonal, without the coordinates that it adds
    scores: Array  # (nnz,): 1/W_ii, the score of i given the others of its set
    weights: Array  # (nnz, largest set): the direction of i off the others, in its set's rows; or no rows
    logs: Array  # log det L_A, −inf where it is singular
    worst: Array  # the largest entry of the inverse of the scaled L_A, ∞ where it is singular


class Inverses(NamedTuple):
    """L_A⁻¹ of several sets, one after the other in a flat array, and log det L_A."""

    W: Array
    offsets: NDArray[np.int64]  # W[offsets[s] : offsets[s + 1]] is that of set s, row by row
    logs: Array  # −inf where L_A is singular
    worst: Array  # the largest entry of the inverse of the scaled L_A, ∞ where it is singular

    def of(self, s: int) -> Array:
        """W of set s, a matrix."""
        flat = self.W[self.offsets[s] : self.offsets[s + 1]]
        return flat.reshape(round(len(flat) ** 0.5), -1) if len(flat) else np.empty((0, 0))

    def diagonals(self, sets: Sets) -> Array:
        """W_ii for every entry of the sets."""
        position = np.arange(len(sets.indices)) - np.repeat(sets.indptr[:-1], sets.sizes)
        sizes = np.repeat(sets.sizes, sets.sizes)
        diagonal: Array = self.W[np.repeat(self.offsets[:-1], sets.sizes) + position * (sizes + 1)]
        return diagonal


def factorise(kernel: Kernel, sets: Sets) -> Bases | Inverses:
    """The factors of every set, in the way that suits the kernel."""
    return (bases if kernel.symmetric else inverses)(kernel, sets)


def bases(kernel: Kernel, sets: Sets, *, directions: bool = False, n_jobs: int | None = None) -> Bases:
    """Orthonormal rows of every set of a symmetric kernel; zero rows where earlier items leave nothing of one."""
    V, d, n = kernel.vectors, kernel.diagonal if kernel.has_diagonal else kernel.diagonal[:0], len(sets.indices)
    weights = np.empty((n, int(sets.sizes.max(initial=1))) if directions else (0, 0))
    out = Bases(np.empty((n, V.shape[1])), np.empty(n), weights, np.empty(sets.count), np.empty(sets.count))

    def work(first: int, last: int) -> None:
        compiled.kernels.bases_of_sets(
            V, d, sets.indptr, sets.indices, first, last, out.rows, out.weights, out.scores, out.logs, out.worst
        )

    _in_blocks(work, sets.count, kernel.n_jobs if n_jobs is None else n_jobs)
    return out


def inverses(kernel: Kernel, sets: Sets, *, ridge: float = 0.0, n_jobs: int | None = None) -> Inverses:
    """L_A⁻¹ of every set; where L_A is singular, with `ridge` added to its scaled diagonal, or zero without one."""
    offsets = pointers(sets.sizes**2)
    out = Inverses(np.empty(offsets[-1]), offsets, np.empty(sets.count), np.empty(sets.count))

    def work(first: int, last: int) -> None:
        compiled.kernels.invert_sets(
            kernel.left, kernel.wide, kernel.diagonal, *kernel.skew, sets.indptr, sets.indices, first, last, offsets,
            ridge, out.W, out.logs, out.worst,
        )  # fmt: skip

    _in_blocks(work, sets.count, kernel.n_jobs if n_jobs is None else n_jobs)
    return out


def log_det(kernel: Kernel, sets: Sets) -> Array:
    """log det L_A for every set; −inf where L_A is singular, as for every set larger than the kernel's shape allows."""
    logs = np.full(sets.count, -np.inf)
    fits = np.flatnonzero(sets.sizes <= kernel.largest_set)
    chosen = take_sets(sets, fits)
    for first, last in runs(chosen.indptr, ENTRIES_PER_CHUNK, most=ENTRIES_PER_CHUNK):
        part = take_sets(chosen, np.arange(first, last))
        logs[fits[first:last]] = factorise(kernel, part).logs
    return logs


def score_limits(kernel: Kernel, worst: Array) -> tuple[Array, Array]:
    """For sets with these `worst`: up to which share of its terms a score is zero, and above which it is surely not.

    What lies between is left to log det L_{A∪j}. By the rule A∪j is singular if the score of j is at most SINGULAR
    L_jj, and is not if the score exceeds that by a factor of `worst`; the rest is room for rounding.
    """
    if not kernel.symmetric:
        well = worst <= _WELL_CONDITIONED
        return np.where(well, SINGULAR / 2, -1.0), _CLEAR_INVERSE * worst
    if kernel.vectors.dtype == np.float32:
        return np.full(len(worst), -1.0), np.maximum(3 * SINGULAR * worst, _CLEAR_SINGLE)
    return np.full(len(worst), SINGULAR / 2), 3 * SINGULAR * worst


def scores_by_definition(kernel: Kernel, sets: Sets, logs: Array, items: NDArray[np.integer]) -> Array:
    """det L_{A∪j} / det L_A for every set A, of which log det is known, with its own item j."""
    larger = np.insert(sets.indices, sets.indptr[1:], items).astype(np.int32)
    grown = Sets(sets.indptr + np.arange(sets.count + 1), larger)
    scores: Array = np.exp(log_det(kernel, grown) - logs)
    return scores


def _in_blocks(work: Callable[[int, int], None], n_sets: int, n_jobs: int) -> None:
    """Call work(first, last) for runs of sets."""

    def block(number: int) -> None:
        work(number * SETS_PER_BLOCK, min((number + 1) * SETS_PER_BLOCK, n_sets))

    run_blocks(block, -(-n_sets // SETS_PER_BLOCK), n_jobs)
