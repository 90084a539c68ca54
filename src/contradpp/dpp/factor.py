"""Factorizations of L_A for a set A, and the rule that says where L_A is singular.

The symmetric part of L_A is the Gram matrix of the rows of [V √D]; its skew part is N. With
W = L_A⁻¹, L_A counts as singular, and det L_A as 0, if for some i or j

    W_ii L_ii ≥ 1/SINGULAR²   or   |N_ij W_ji| ≥ 1/SINGULAR.

Then changing one row by SINGULAR of its length, or one entry of N by SINGULAR of itself, can make
the determinant zero. For a symmetric L, the other items then leave some item no more than SINGULAR
of the length of its row. The rule depends neither on the order of items, nor on their popularity,
nor on how L is written.

A symmetric L = D + V Vᵀ is factorized through the rows of [V √D], which never squares their
condition. Any other L goes through the inverse of the scaled L_A. If that has an entry above
`HARD_INVERSE`, `bordered_inverse` takes over, which squares no condition either. Sets of more than
`LARGE` items go the same two ways by LAPACK, which works in blocks that fit the cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr, solve_triangular

from contradpp._threads import blas_threads, run_blocks
from contradpp._types import Array, Codes, Floats, Ints
from contradpp.data.sets import Sets, pointers, runs, take_sets
from contradpp.dpp import compiled

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

NO_ITEMS = np.empty(0, dtype=np.int32)
SINGULAR = 1e-13
SINGULAR_SINGLE = 3e-7  # for factors in float32: a few of their roundings
SETS_PER_BLOCK = 256
LARGE = 512  # sets of more items are factorized by LAPACK, one at a time
ENTRIES_PER_CHUNK = 2**16  # the factors of one chunk are in memory at a time
# A score is a difference of terms. Below these shares of its terms rounding counts.
UNCLEAR_SHARE = 1e-7
UNCLEAR_SHARE_SINGLE = 1e-4
UNCLEAR_SHARE_INVERSE = 1e-8
HARD_INVERSE = 1e6  # the largest entry of a scaled inverse that needs no further care
BORDER_WEIGHT = 1e-8  # so small that elimination takes pivots from rows of X before the border's


class Bases(NamedTuple):
    """Orthonormal rows that span the sets of a symmetric kernel, one row per entry of the sets."""

    rows: Array  # (nnz, K): in the coordinates of V, without those that a diagonal adds
    scores: Array  # (nnz,): 1/W_ii, the score of i given the others of its set
    weights: Array  # (nnz, largest set): direction of i off the others in its set's rows; or empty
    logs: Array  # (n_sets,): log det L_A, −inf where it is singular
    worst: Array  # (n_sets,): the largest W_ii L_ii, ∞ where L_A is singular


class Inverses(NamedTuple):
    """L_A⁻¹ of several sets, flat and one after the other, and log det L_A."""

    W: Array
    offsets: Ints  # W[offsets[s] : offsets[s + 1]] is the inverse of set s, row by row
    logs: Array  # (n_sets,): −inf where L_A is singular
    worst: Array  # (n_sets,): the largest entry of the scaled inverse, ∞ where L_A is singular

    def of(self, s: int) -> Array:
        """Return the inverse of set s as a matrix."""
        flat = self.W[self.offsets[s] : self.offsets[s + 1]]
        return flat.reshape(round(len(flat) ** 0.5), -1) if len(flat) else np.empty((0, 0))

    def diagonals(self, sets: Sets) -> Array:
        """Return W_ii for every entry of the sets."""
        position = np.arange(len(sets.indices)) - np.repeat(sets.indptr[:-1], sets.sizes)
        sizes = np.repeat(sets.sizes, sets.sizes)
        diagonal: Array = self.W[np.repeat(self.offsets[:-1], sets.sizes) + position * (sizes + 1)]
        return diagonal


Factors = Bases | Inverses


def factorize(kernel: Kernel, sets: Sets) -> Factors:
    """Factorize every set: bases for a symmetric kernel, else inverses."""
    return bases(kernel, sets) if kernel.symmetric else inverses(kernel, sets)


def bases(
    kernel: Kernel, sets: Sets, *, directions: bool = False, n_jobs: int | None = None
) -> Bases:
    """Compute orthonormal rows of every set of a symmetric kernel.

    A row is zero where earlier items leave nothing of an item.

    Parameters
    ----------
    directions : bool
        Fill `Bases.weights`, too; sets then must not be larger than `LARGE`.
    n_jobs : int, optional
        Threads, those of the kernel if left out.
    """
    V = kernel.vectors
    d = kernel.diagonal if kernel.has_diagonal else kernel.diagonal[:0]
    n = len(sets.indices)
    weights = np.empty((n, int(sets.sizes.max(initial=1))) if directions else (0, 0))
    logs = np.empty(sets.count)
    worst = np.empty(sets.count)
    found = Bases(np.empty((n, V.shape[1])), np.empty(n), weights, logs, worst)
    outputs = (found.rows, found.weights, found.scores, found.logs, found.worst)

    def work(first: int, last: int) -> None:
        compiled.kernels.bases_of_sets(V, d, sets.indptr, sets.indices, first, last, *outputs)

    def large(s: int) -> None:
        entries = slice(int(sets.indptr[s]), int(sets.indptr[s + 1]))
        one = _large_basis(V, d, sets.indices[entries])
        found.rows[entries], found.scores[entries], found.logs[s], found.worst[s] = one

    n_jobs = kernel.n_jobs if n_jobs is None else n_jobs
    _in_blocks(work, sets, n_jobs, None if directions else large)
    return found


def inverses(
    kernel: Kernel, sets: Sets, *, ridge: float = 0.0, n_jobs: int | None = None
) -> Inverses:
    """Invert L_A of every set.

    Parameters
    ----------
    ridge : float
        Added to the diagonal of a scaled L_A that is singular. With 0, its inverse is zero.
    n_jobs : int, optional
        Threads, those of the kernel if left out.
    """
    offsets = pointers(sets.sizes**2)
    found = Inverses(np.empty(offsets[-1]), offsets, np.empty(sets.count), np.empty(sets.count))
    parts = compiled.kernels.KernelParts(kernel.left, kernel.X, kernel.diagonal, *kernel.skew)
    outputs = (offsets, ridge, found.W, found.logs, found.worst)

    def work(first: int, last: int) -> None:
        compiled.kernels.invert_sets(parts, sets.indptr, sets.indices, first, last, *outputs)

    def large(s: int) -> None:
        W = found.W[offsets[s] : offsets[s + 1]].reshape(sets.sizes[s], -1)
        codes = take_sets(sets, np.array([s])).indices
        found.logs[s], found.worst[s] = _invert_large(kernel, codes, ridge, W)

    _in_blocks(work, sets, kernel.n_jobs if n_jobs is None else n_jobs, large)
    for s in np.flatnonzero(found.worst > HARD_INVERSE).tolist() if ridge == 0.0 else ():
        codes = take_sets(sets, np.array([s])).indices
        inverse, found.logs[s], found.worst[s] = bordered_inverse(kernel, codes)
        found.W[offsets[s] : offsets[s + 1]] = inverse[: len(codes), kernel.n_components :].ravel()
    return found


def bordered_inverse(kernel: Kernel, codes: Codes) -> tuple[Array, float, float]:
    """Invert L_A = X_A G X_Aᵀ + B, B = D_A + S_A, without forming it.

    With C = X_A G, the inverse of the bordered matrix

        [[X_Aᵀ, I], [B, −C]]   is   [[W C, W], [I − X_Aᵀ W C, −X_Aᵀ W]].

    It is exact for factors that differ by a few roundings from those given, so that its relative
    error is some 1e-16 √(W_ii L_ii).

    Returns
    -------
    inverse : array (k + r, k + r)
        The inverse of the bordered matrix; zeros where L_A is singular.
    log_det : float
        log det L_A, −inf where it is singular.
    worst : float
        The largest entry of the scaled W, ∞ where L_A is singular.
    """
    k = len(codes)
    r = kernel.n_components
    L, scales = _scaled(submatrix(kernel, codes))
    # The scales of rows. Columns have the same, the items first.
    row_scales = np.concatenate([np.full(r, 1.0 / BORDER_WEIGHT), scales])
    column_scales = np.roll(row_scales, k)
    B = _sparse_part(kernel, codes)
    F = np.block([[kernel.X[codes].T, np.eye(r)], [B, -kernel.left[codes]]])
    F /= row_scales[:, None]
    F /= column_scales
    with blas_threads(1):
        factors, swaps, zero = lapack.dgetrf(F)
        if zero:
            return np.zeros_like(F), -np.inf, np.inf
        inverse = lapack.dgetrs(factors, swaps, np.eye(r + k))[0]
        inverse += lapack.dgetrs(factors, swaps, np.eye(r + k) - F @ inverse)[0]
    W = inverse[:k, r:]
    symmetric_terms = np.abs(np.diagonal(W) * np.diagonal(L))
    skew_terms = np.abs((L - L.T) / 2 * W.T)
    regular = (symmetric_terms < tolerance(kernel.factors) ** -2).all()
    regular = regular and (skew_terms < 1.0 / SINGULAR).all()
    log_det = _log_of_pivots(factors, swaps, negate=r * k % 2 == 1) - 2 * r * np.log(BORDER_WEIGHT)
    if not regular or log_det == -np.inf:
        return np.zeros_like(F), -np.inf, np.inf
    worst = float(np.abs(W).max(initial=1.0))
    inverse /= column_scales[:, None]
    inverse /= row_scales
    return inverse, log_det + 2.0 * float(np.log(scales).sum()), worst


def log_det(kernel: Kernel, sets: Sets) -> Array:
    """Return log det L_A for every set, −inf where L_A is singular or larger than L allows."""
    logs = np.full(sets.count, -np.inf)
    fits = np.flatnonzero(sets.sizes <= kernel.largest_set)
    chosen = take_sets(sets, fits)
    numbers = pointers(chosen.sizes.astype(np.int64) ** 2)  # of the inverses, with a skew part
    ends, most = (chosen.indptr, ENTRIES_PER_CHUNK) if kernel.symmetric else (numbers, 2**22)
    for first, last in runs(ends, most, most=ENTRIES_PER_CHUNK):
        part = take_sets(chosen, np.arange(first, last))
        logs[fits[first:last]] = factorize(kernel, part).logs
    return logs


def clear_share(kernel: Kernel, worst: Array) -> Array:
    """Return, per set, the share of its terms up to which a score needs `scores_by_definition`."""
    if not kernel.symmetric:
        return UNCLEAR_SHARE_INVERSE * worst
    is_single = kernel.vectors.dtype == np.float32
    share = UNCLEAR_SHARE_SINGLE if is_single else UNCLEAR_SHARE
    return np.maximum(3 * tolerance(kernel.vectors) ** 2 * worst, share)


def tolerance(V: Floats) -> float:
    """Return the share of its length by which a row of V may change: SINGULAR of its precision."""
    return SINGULAR_SINGLE if V.dtype == np.float32 else SINGULAR


def scores_by_definition(
    kernel: Kernel, sets: Sets, logs: Array, items: NDArray[np.integer]
) -> Array:
    """Return det L_{A∪j} / det L_A for every set A and its item j; `logs` are log det L_A."""
    larger = np.insert(sets.indices, sets.indptr[1:], items).astype(np.int32)
    grown = Sets(sets.indptr + np.arange(sets.count + 1), larger)
    scores: Array = np.exp(log_det(kernel, grown) - logs)
    return scores


def submatrix(kernel: Kernel, codes: Codes) -> Array:
    """Return L_A, in the order of the codes."""
    return np.asarray(kernel.left[codes] @ kernel.X[codes].T + _sparse_part(kernel, codes))


def _sparse_part(kernel: Kernel, codes: Codes) -> Array:
    """Return D_A + S_A, dense."""
    B = np.diag(kernel.diagonal[codes])
    place = np.full(kernel.n_items, -1)
    place[codes] = np.arange(len(codes))
    owner, columns, values = kernel.skew.entries(codes)
    inside = place[columns] >= 0
    B[owner[inside], place[columns[inside]]] += values[inside]
    return B


def _in_blocks(
    work: Callable[[int, int], None], sets: Sets, n_jobs: int, large: Callable[[int], None] | None
) -> None:
    """Call work(first, last) for runs of sets, and large(s), if given, for each large set."""
    alone = np.flatnonzero(sets.sizes > LARGE) if large else np.empty(0, dtype=np.int64)
    starts = np.arange(0, sets.count, SETS_PER_BLOCK)
    edges = np.unique(np.concatenate([starts, [sets.count], alone, alone + 1])).tolist()
    is_alone = np.isin(np.arange(sets.count), alone)
    blocks = [block for block in itertools.pairwise(edges) if not is_alone[block[0]]]
    run_blocks(lambda number: work(*blocks[number]), len(blocks), n_jobs)
    if large and len(alone):
        # With more threads LAPACK rounds in another way, and waits more than it works.
        with blas_threads(1):
            for s in alone.tolist():
                large(s)


# -- One large set, by LAPACK ----------------------------------------------------------------------


def _invert_large(kernel: Kernel, codes: Codes, ridge: float, W: Array) -> tuple[float, float]:
    """Write L_A⁻¹ as `compiled.kernels.invert_sets` does; return log det L_A and `worst`."""
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


def _log_of_pivots(factors: Array, swaps: NDArray[np.integer], *, negate: bool = False) -> float:
    """Return log det of LAPACK's L U (or of its negative), −inf if the determinant is negative."""
    pivots = np.diagonal(factors)
    negative = int(negate + (swaps != np.arange(len(swaps))).sum() + (pivots < 0).sum()) % 2
    return -np.inf if negative else float(np.log(np.abs(pivots)).sum())


def _scaled(A: Array) -> tuple[Array, Array]:
    """Scale A in place as `compiled.blocks.scale_to_one` does; return it and its scales."""
    own = np.diagonal(A)
    factors = 1.0 / np.sqrt(np.where(own > 1e-200, own, 1.0))
    scales = np.ones(len(A))
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
    """Write A⁻¹ to W, using up A; return log det A and the largest entry of A⁻¹, or −inf and ∞."""
    factors, swaps, zero = lapack.dgetrf(A.T, overwrite_a=1)  # Aᵀ lies in LAPACK's column order
    log_det = -np.inf if zero else _log_of_pivots(factors, swaps)
    if log_det == -np.inf:
        return -np.inf, np.inf
    inverse = lapack.dgetri(factors, swaps, lwork=64 * len(A), overwrite_lu=1)[0]
    W[:] = inverse.T
    largest = float(max(W.max(), -W.min()))
    return (log_det, largest) if largest < 1.0 / SINGULAR else (-np.inf, np.inf)


def _large_basis(V: Floats, d: Array, codes: Codes) -> tuple[Array, Array, float, float]:
    """Return rows, scores, log det and worst of one set, as `compiled.kernels.bases_of_sets`."""
    own = V[codes].astype(np.float64)
    rows = np.hstack([own, np.diag(np.sqrt(d[codes]))]) if len(d) else own
    norms = np.square(rows).sum(axis=1)
    R: Array = np.asarray(np.linalg.qr(rows.T, mode="r")).T
    pivots = np.zeros(len(codes))
    pivots[: min(R.shape)] = np.square(np.diagonal(R))
    if (pivots <= tolerance(V) ** 2 * norms).any():
        spanning = _spanning_rows(rows, norms, tolerance(V))[:, : own.shape[1]]
        return spanning, np.zeros(len(codes)), -np.inf, np.inf
    Q = solve_triangular(R, own, lower=True)
    lengths = np.square(lapack.dtrtri(R, lower=1)[0]).sum(axis=0)
    worst = max(float((norms * lengths).max()), 1.0)
    log_det = float(np.log(pivots).sum()) if worst < tolerance(V) ** -2 else -np.inf
    return Q, 1.0 / lengths, log_det, worst


def _spanning_rows(rows: Array, norms: Array, limit: float) -> Array:
    """Return orthonormal rows that span dependent rows, and zeros after them.

    QR with pivoting takes the row that is longest off the earlier ones. Without it, rows after a
    dependent one would be measured beside a direction that is rounding.
    """
    Q, R, _ = qr(rows.T / np.sqrt(np.where(norms > 0, norms, 1.0)), mode="economic", pivoting=True)
    spanning = np.zeros_like(rows)
    independent = np.abs(np.diagonal(R)) > limit
    spanning[: independent.sum()] = Q.T[independent]
    return spanning
