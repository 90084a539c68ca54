"""One set A of items: what L_A gives, and the one rule that says where it is singular.

The symmetric part of L_A is made of the rows of [V √D], its skew part N of entries. L_A is singular, and det L_A = 0,
if a change of one row by SINGULAR of its length, or of one entry of N by SINGULAR of itself, can make the determinant
zero: if W_ii L_ii ≥ 1/SINGULAR² or |N_ij W_ji| ≥ 1/SINGULAR, with W = L_A⁻¹. Where L is symmetric that says that the
other items leave some item i no more than SINGULAR of the length of its row. The rule does not depend on the order of
the items, on their popularity, nor on how L is written.

Two ways lead there. A symmetric L = D + V Vᵀ is factorised through the rows of [V √D], which never squares their
condition; any other through the inverse of the scaled L_A and, where that has an entry above `_HARD`, through
`bordered_inverse`, which squares no condition either. Sets of more than `LARGE` items go the same two ways by
LAPACK, which works in blocks that stay in the cache: 5,000 items take seconds instead of minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr, solve_triangular

from contradpp._threads import blas_threads, run_blocks
from contradpp.data.sets import Sets, pointers, runs, take_sets
from contradpp.dpp import compiled

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]

SINGULAR = 1e-13
SINGULAR_SINGLE = 3e-7  # the same for factors in float32: a few of their roundings
SETS_PER_BLOCK = 256
LARGE = 512  # items from which on LAPACK is worth its trouble; no block of products holds such a set and another
ENTRIES_PER_CHUNK = 2**16  # the factors of a chunk are all that is in memory at once
# A score is a difference: below these shares of its terms rounding counts. For float64, float32, and by inverses.
_CLEAR = 1e-7
_CLEAR_SINGLE = 1e-4
_CLEAR_INVERSE = 1e-8
_HARD = 1e6  # the largest entry of the inverse of a scaled L_A from which on it is computed with care
_BORDER = 1e-8  # so light that elimination takes no pivot of the border before those of rows of X
_CLEARLY_REGULAR = 1e-8  # of 1/‖A⁻¹‖ for a scaled A


class Bases(NamedTuple):
    """Orthonormal rows that span the sets of a symmetric kernel, aligned with the sets' entries."""

    rows: Array  # (nnz, K): those of V; with a diagonal, without the coordinates that it adds
    scores: Array  # (nnz,): 1/W_ii, the score of i given the others of its set
    weights: Array  # (nnz, largest set): the direction of i off the others, in its set's rows; or no rows
    logs: Array  # log det L_A, −inf where it is singular
    worst: Array  # the largest W_ii L_ii, ∞ where it is singular


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

    def large(s: int) -> None:
        entries = slice(int(sets.indptr[s]), int(sets.indptr[s + 1]))
        one = _large_basis(V, d, sets.indices[entries])
        out.rows[entries], out.scores[entries], out.logs[s], out.worst[s] = one

    _in_blocks(work, sets, kernel.n_jobs if n_jobs is None else n_jobs, None if directions else large)
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

    def large(s: int) -> None:
        W = out.W[offsets[s] : offsets[s + 1]].reshape(sets.sizes[s], -1)
        out.logs[s], out.worst[s] = _invert_large(kernel, take_sets(sets, np.array([s])).indices, ridge, W)

    _in_blocks(work, sets, kernel.n_jobs if n_jobs is None else n_jobs, large)
    for s in np.flatnonzero(out.worst > _HARD).tolist() if ridge == 0.0 else ():
        codes = take_sets(sets, np.array([s])).indices
        found, out.logs[s], out.worst[s] = bordered_inverse(kernel, codes)
        out.W[offsets[s] : offsets[s + 1]] = found[: len(codes), kernel.n_components :].ravel()
    return out


def bordered_inverse(kernel: Kernel, codes: NDArray[np.int32]) -> tuple[Array, float, float]:
    """Invert L_A = X_A G X_Aᵀ + B, B = D_A + S_A, without forming it: also log det L_A and the largest scaled entry.

    With C = X_A G, the inverse of [[X_Aᵀ, I], [B, −C]] is [[W C, W], [I − X_Aᵀ W C, −X_Aᵀ W]]. It is that for the
    factors as they are, each changed by a few roundings, so that its relative error is some 1e-16 √(W_ii L_ii).
    Zeros, −inf and ∞ where L_A is singular.
    """
    k, r = len(codes), kernel.n_components
    L, scales = _scaled(submatrix(kernel, codes))
    outer = np.concatenate([np.full(r, 1.0 / _BORDER), scales])  # of the rows; the columns have the items first
    F = np.block([[kernel.wide[codes].T, np.eye(r)], [_sparse_part(kernel, codes), -kernel.left[codes]]])
    F /= outer[:, None]
    F /= np.roll(outer, k)
    with blas_threads(1):
        factors, swaps, zero = lapack.dgetrf(F)
        if zero:
            return np.zeros_like(F), -np.inf, np.inf
        inverse = lapack.dgetrs(factors, swaps, np.eye(r + k))[0]
        inverse += lapack.dgetrs(factors, swaps, np.eye(r + k) - F @ inverse)[0]
    W = inverse[:k, r:]
    rows, entries = np.diagonal(W) * np.diagonal(L), (L - L.T) / 2 * W.T
    regular = (np.abs(rows) < tolerance(kernel.factors) ** -2).all() and (np.abs(entries) < 1.0 / SINGULAR).all()
    log_det = _log_of_pivots(factors, swaps, negate=r * k % 2 == 1) - 2 * r * np.log(_BORDER)
    if not regular or log_det == -np.inf:
        return np.zeros_like(F), -np.inf, np.inf
    worst = float(np.abs(W).max(initial=1.0))
    inverse /= np.roll(outer, k)[:, None]
    inverse /= outer
    return inverse, log_det + 2.0 * float(np.log(scales).sum()), worst


def log_det(kernel: Kernel, sets: Sets) -> Array:
    """log det L_A for every set; −inf where L_A is singular, as for every set larger than the kernel's shape allows."""
    logs = np.full(sets.count, -np.inf)
    for s in np.flatnonzero((sets.sizes > LARGE) & (sets.sizes <= kernel.largest_set)).tolist():
        logs[s] = _log_det_large(kernel, take_sets(sets, np.array([s])))
    fits = np.flatnonzero(sets.sizes <= min(kernel.largest_set, LARGE))
    chosen = take_sets(sets, fits)
    for first, last in runs(chosen.indptr, ENTRIES_PER_CHUNK, most=ENTRIES_PER_CHUNK):
        part = take_sets(chosen, np.arange(first, last))
        logs[fits[first:last]] = factorise(kernel, part).logs
    return logs


def clear_share(kernel: Kernel, worst: Array) -> Array:
    """For sets with these `worst`: the share of its terms up to which a score is left to log det L_{A∪j}."""
    if not kernel.symmetric:
        return _CLEAR_INVERSE * worst
    share = _CLEAR_SINGLE if kernel.vectors.dtype == np.float32 else _CLEAR
    return np.maximum(3 * tolerance(kernel.vectors) ** 2 * worst, share)


def tolerance(V: NDArray[np.floating]) -> float:
    """The share of its length by which a row of factors of this precision may be changed."""
    return SINGULAR_SINGLE if V.dtype == np.float32 else SINGULAR


def scores_by_definition(kernel: Kernel, sets: Sets, logs: Array, items: NDArray[np.integer]) -> Array:
    """det L_{A∪j} / det L_A for every set A, of which log det is known, with its own item j."""
    larger = np.insert(sets.indices, sets.indptr[1:], items).astype(np.int32)
    grown = Sets(sets.indptr + np.arange(sets.count + 1), larger)
    scores: Array = np.exp(log_det(kernel, grown) - logs)
    return scores


def _in_blocks(work: Callable[[int, int], None], sets: Sets, n_jobs: int, large: Callable[[int], None] | None) -> None:
    """Call work(first, last) for runs of sets, and large(s), if it is given, for those of more than `LARGE` items."""
    alone = np.flatnonzero(sets.sizes > LARGE) if large else np.empty(0, dtype=np.int64)
    edges = np.concatenate([np.arange(0, sets.count, SETS_PER_BLOCK), [sets.count], alone, alone + 1])
    is_alone = np.isin(np.arange(sets.count), alone)
    blocks = [(first, last) for first, last in itertools.pairwise(np.unique(edges).tolist()) if not is_alone[first]]
    run_blocks(lambda number: work(*blocks[number]), len(blocks), n_jobs)
    if large and len(alone):
        with blas_threads(1):  # with more, LAPACK rounds otherwise, and waits longer than it works on a busy machine
            for s in alone.tolist():
                large(s)


# -- One large set, by LAPACK ------------------------------------------------------------------------------------


def _invert_large(kernel: Kernel, codes: NDArray[np.int32], ridge: float, W: Array) -> tuple[float, float]:
    """Write L_A⁻¹ as `compiled.kernels.invert_sets` does; log det L_A and the largest entry of the scaled inverse."""
    L, scales = _scaled(submatrix(kernel, codes))
    log_det, largest = _inverted(L.copy(), W)
    if log_det == -np.inf:
        W[:] = 0.0
        if ridge > 0:
            np.fill_diagonal(L, np.diagonal(L) + ridge)
            if _inverted(L, W)[0] == -np.inf:
                W[:] = 0.0
    W /= scales[:, None]
    W /= scales
    return log_det + 2.0 * float(np.log(scales).sum()), max(largest, 1.0)


def _log_det_large(kernel: Kernel, one: Sets) -> float:
    """log det L_A of one set, without its inverse where an estimate shows that no entry of that is large."""
    with blas_threads(1):
        L, scales = _scaled(submatrix(kernel, one.indices))
        size = float(np.abs(L).sum(axis=1).max())
        factors, swaps, zero = lapack.dgetrf(L.T, overwrite_a=1)
        reciprocal = lapack.dgecon(factors, size)[0]
        if zero or not reciprocal * size > _CLEARLY_REGULAR:
            return float(factorise(kernel, one).logs[0])
        return _log_of_pivots(factors, swaps) + 2.0 * float(np.log(scales).sum())


def _log_of_pivots(factors: Array, swaps: NDArray[np.integer], *, negate: bool = False) -> float:
    """log det by LAPACK's L U, −inf where the determinant (or its negative) is negative."""
    pivots = np.diagonal(factors)
    negative = int(negate + (swaps != np.arange(len(swaps))).sum() + (pivots < 0).sum()) % 2
    return -np.inf if negative else float(np.log(np.abs(pivots)).sum())


def submatrix(kernel: Kernel, codes: NDArray[np.int32]) -> Array:
    """L_A, item by item in the order of the codes."""
    return np.asarray(kernel.left[codes] @ kernel.wide[codes].T + _sparse_part(kernel, codes))


def _sparse_part(kernel: Kernel, codes: NDArray[np.int32]) -> Array:
    """D_A + S_A, dense."""
    B = np.diag(kernel.diagonal[codes])
    place = np.full(kernel.n_items, -1)
    place[codes] = np.arange(len(codes))
    owner, columns, values = kernel.skew.entries(codes)
    there = place[columns] >= 0
    B[owner[there], place[columns[there]]] += values[there]
    return B


def _scaled(A: Array) -> tuple[Array, Array]:
    """A, divided in place, and its scales: see `scale_to_one` of `compiled.blocks`."""
    own = np.diagonal(A)
    factors, scales = 1.0 / np.sqrt(np.where(own > 1e-200, own, 1.0)), np.ones(len(A))
    for _ in range(4):
        A *= factors[:, None]
        A *= factors
        scales /= factors
        largest = np.maximum(A.max(axis=1), -A.min(axis=1))
        if (np.abs(largest - 1.0) < 1e-9).all():
            break
        factors = 1.0 / np.sqrt(np.where(largest > 0, largest, 1.0))
    return A, scales


def _inverted(A: Array, W: Array) -> tuple[float, float]:
    """Write A⁻¹ to W; log det A and the largest entry of A⁻¹, or −inf and ∞: see `invert_by_pivots`. A is used up."""
    factors, swaps, zero = lapack.dgetrf(A.T, overwrite_a=1)  # of the transpose, which lies in LAPACK's order
    log_det = -np.inf if zero else _log_of_pivots(factors, swaps)
    if log_det == -np.inf:
        return -np.inf, np.inf
    inverse = lapack.dgetri(factors, swaps, lwork=64 * len(A), overwrite_lu=1)[0]
    W[:] = inverse.T
    largest = float(max(W.max(), -W.min()))
    return (log_det, largest) if largest < 1.0 / SINGULAR else (-np.inf, np.inf)


def _large_basis(V: NDArray[np.floating], d: Array, codes: NDArray[np.int32]) -> tuple[Array, Array, float, float]:
    """Rows, scores, log det and the worst entry of one set, as `compiled.kernels.bases_of_sets` finds them."""
    wide = V[codes].astype(np.float64)
    rows = np.hstack([wide, np.diag(np.sqrt(d[codes]))]) if len(d) else wide
    norms, scores = np.square(rows).sum(axis=1), np.zeros(len(codes))
    R: Array = np.asarray(np.linalg.qr(rows.T, mode="r")).T
    pivots = np.zeros(len(codes))
    pivots[: min(R.shape)] = np.square(np.diagonal(R))
    if (pivots <= tolerance(V) ** 2 * norms).any():
        return _spanning_rows(rows, norms, tolerance(V))[:, : wide.shape[1]], scores, -np.inf, np.inf
    Q = solve_triangular(R, wide, lower=True)
    lengths = np.square(lapack.dtrtri(R, lower=1)[0]).sum(axis=0)
    scores[:] = 1.0 / lengths
    worst = max(float((norms * lengths).max()), 1.0)
    log_det = float(np.log(pivots).sum())
    return Q, scores, log_det if worst < tolerance(V) ** -2 else -np.inf, worst


def _spanning_rows(rows: Array, norms: Array, limit: float) -> Array:
    """Orthonormal rows that span these, which are dependent, and zeros after them.

    What is largest beside those before it comes next: without that, what follows a row that depends on those before it
    would be measured beside a direction that rounding has chosen.
    """
    Q, R, _ = qr(rows.T / np.sqrt(np.where(norms > 0, norms, 1.0)), mode="economic", pivoting=True)
    out = np.zeros_like(rows)
    independent = np.abs(np.diagonal(R)) > limit
    out[: independent.sum()] = Q.T[independent]
    return out
