"""Linear algebra that NumPy and SciPy lack: products in blocks, symmetric polynomials in logs.

BLAS splits a product by the number of its threads, which changes the rounding. These functions
split tall matrices into fixed blocks of rows and add partial sums in the order of the blocks: the
same bytes for any number of our own threads. The caller holds BLAS to one thread.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from contradpp._threads import blas_threads, over_parts, run_blocks
from contradpp._types import Array, Floats

Rows = NDArray[np.integer[Any]]
ROWS_PER_BLOCK = 2048

# Above MAX_ROWS LAPACK's Cholesky may use one thread only: with two, that of OpenBLAS crashes from
# some 15,600 on. Below MIN_ROWS threads wait for each other longer than they work.
MIN_ROWS_FOR_THREADS = 1_000
MAX_ROWS_FOR_THREADS = 8_000


def cholesky_threads(n: int) -> AbstractContextManager[None]:
    """Hold BLAS to one thread where a Cholesky of n rows is slow or unsafe with more."""
    use_threads = MIN_ROWS_FOR_THREADS <= n <= MAX_ROWS_FOR_THREADS
    return nullcontext() if use_threads else blas_threads(1)


def inverse_and_log_det(A: Array) -> tuple[Array, float]:
    """Return A⁻¹ and log det A of a small positive definite matrix, else raise `LinAlgError`."""
    if not len(A):
        return A.copy(), 0.0
    factor, failed = lapack.dpotrf(A, lower=1)
    if failed:
        raise np.linalg.LinAlgError("not positive definite")
    lower = lapack.dpotri(factor, lower=1)[0]
    inverse = lower + lower.T  # above the diagonal `lower` is zero
    inverse[np.diag_indices(len(A))] *= 0.5
    return inverse, 2.0 * float(np.log(np.diagonal(factor)).sum())


def gram(A: Array, B: Array, n_jobs: int) -> Array:
    """Return Aᵀ B for two tall matrices with the same rows."""
    parts = np.empty((max(_n_blocks(len(A)), 1), A.shape[1], B.shape[1]))

    def work(block: int) -> None:
        rows = _rows_of(block)
        np.matmul(A[rows].T, B[rows], out=parts[block], dtype=np.float64)

    run_blocks(work, len(parts), n_jobs)
    total: Array = parts[0] if len(parts) == 1 else parts.sum(axis=0)
    return total


def change_of(parts: Array) -> Array:
    """Return ½ (DᵀS + SᵀD), the change of a Gram matrix, from DᵀS in parts.

    D is the difference of the old and the new rows, and S their sum.
    """
    half = parts.sum(axis=0)
    change: Array = 0.5 * (half + half.T)
    return change


def take_rows(A: Floats, rows: Rows, out: Array) -> Array:
    """Write rows of a matrix to `out` in float64."""
    if A.dtype == out.dtype:
        # mode="clip" spares a copy; no index is out of bounds.
        return np.take(A, rows, axis=0, out=out, mode="clip")
    out[:] = A[rows]
    return out


def times(
    A: Array, right: Array, n_jobs: int, rows: Rows | None = None, out: Array | None = None
) -> Array:
    """Return a tall matrix A, or some of its rows, times a small matrix."""
    n = len(A) if rows is None else len(rows)
    product = np.empty((n, right.shape[1])) if out is None else out

    def work(part: slice) -> None:
        np.matmul(A[part if rows is None else rows[part]], right, out=product[part])

    over_parts(work, n, ROWS_PER_BLOCK, n_jobs)
    return product


def triangle(A: Floats, n_jobs: int, lengths: Array | None = None) -> Array:
    """Return R (r, r), upper triangular, with RᵀR = AᵀA for a tall A, by QR block by block.

    With `lengths`, rows of A are divided by them first. QR never squares the condition of A.
    """
    r = A.shape[1]
    rows = max(ROWS_PER_BLOCK, 4 * r)
    n_blocks = max(-(-len(A) // rows), 1)
    parts = np.zeros((n_blocks, r, r))

    def work(block: int) -> None:
        part = slice(block * rows, (block + 1) * rows)
        if lengths is None:
            scaled = A[part].astype(np.float64, copy=False)
        else:
            scaled = A[part] / lengths[part, None]
        found = np.linalg.qr(scaled, mode="r")
        parts[block, : len(found)] = found

    run_blocks(work, n_blocks, n_jobs)
    return parts[0] if n_blocks == 1 else triangle(parts.reshape(n_blocks * r, r), n_jobs)


def log_elementary_symmetric(values: Array, degree: int) -> Array:
    """Return the logarithms of elementary symmetric polynomials (len(values) + 1, degree + 1).

    Row n, column k is that of degree k of the first n values (Kulesza and Taskar 2012, Algorithm
    7):

        e_k(λ_1..λ_n) = e_k(λ_1..λ_{n−1}) + λ_n e_{k−1}(λ_1..λ_{n−1}).

    In logarithms neither many nor large values overflow.
    """
    table = np.full((len(values) + 1, degree + 1), -np.inf)
    table[0, 0] = 0.0
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    for n, log_value in enumerate(logs):
        table[n + 1] = table[n]
        np.logaddexp(table[n, 1:], table[n, :-1] + log_value, out=table[n + 1, 1:])
    return table


def _n_blocks(n: int) -> int:
    return -(-n // ROWS_PER_BLOCK)


def _rows_of(block: int) -> slice:
    return slice(block * ROWS_PER_BLOCK, (block + 1) * ROWS_PER_BLOCK)
