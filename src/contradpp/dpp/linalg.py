"""Small pieces of linear algebra that NumPy and SciPy lack: products in threads, symmetric polynomials in logs.

BLAS splits a product by the number of its threads, which changes the rounding. Here the tall matrix V is split into
fixed blocks of rows, and partial sums are added in the order of the blocks: the same bytes for any number of threads
of our own. The caller holds BLAS to one thread.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from contradpp._threads import blas_threads, run_blocks

Array = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]
ROWS_PER_BLOCK = 2048

# Above the second size LAPACK's Cholesky may use one thread only: with two, that of OpenBLAS crashes from some 15,600
# on. Below the first, threads wait for each other longer than they work, a hundred times as long on a busy machine.
FEWEST_FOR_THREADS, MOST_FOR_THREADS = 1_000, 8_000


def cholesky_threads(n: int) -> AbstractContextManager[None]:
    """Hold BLAS to one thread where a Cholesky factorisation of n rows is slower or not safe with more."""
    return nullcontext() if FEWEST_FOR_THREADS <= n <= MOST_FOR_THREADS else blas_threads(1)


def inverse_and_log_det(A: Array) -> tuple[Array, float]:
    """A⁻¹ and log det A of a small positive definite matrix; `LinAlgError` if it is not one to rounding."""
    if not len(A):
        return A.copy(), 0.0
    factor, failed = lapack.dpotrf(A, lower=1)
    if failed:
        raise np.linalg.LinAlgError("not positive definite")
    lower = lapack.dpotri(factor, lower=1)[0]
    inverse = lower + lower.T  # above the diagonal there are zeros
    inverse[np.diag_indices(len(A))] *= 0.5
    return inverse, 2.0 * float(np.log(np.diagonal(factor)).sum())


def gram(A: Array, B: Array, n_jobs: int) -> Array:
    """Aᵀ B for two tall matrices with the same rows."""
    n_blocks = max(-(-len(A) // ROWS_PER_BLOCK), 1)
    parts = np.empty((n_blocks, A.shape[1], B.shape[1]))

    def work(block: int) -> None:
        part = slice(block * ROWS_PER_BLOCK, (block + 1) * ROWS_PER_BLOCK)
        np.matmul(A[part].T, B[part], out=parts[block], dtype=np.float64)

    run_blocks(work, n_blocks, n_jobs)
    total: Array = parts[0] if n_blocks == 1 else parts.sum(axis=0)
    return total


def gram_change(old: Array, new: Array, rows: Rows, n_jobs: int) -> Array:
    """newᵀ new − oldᵀ old for two tall matrices that differ in these rows only: `change_of` their D and S."""
    parts = np.empty((-(-len(rows) // ROWS_PER_BLOCK), new.shape[1], new.shape[1]))

    def work(block: int) -> None:
        part = rows[block * ROWS_PER_BLOCK : (block + 1) * ROWS_PER_BLOCK]
        before, after = old[part].astype(np.float64, copy=False), new[part].astype(np.float64, copy=False)
        np.matmul((after - before).T, after + before, out=parts[block])

    run_blocks(work, len(parts), n_jobs)
    return change_of(parts)


def change_of(parts: Array) -> Array:
    """Half of DᵀS + SᵀD, of DᵀS in parts: the change of a Gram matrix, D the difference of its rows and S their sum."""
    half = parts.sum(axis=0)
    change: Array = 0.5 * (half + half.T)
    return change


def take_rows(A: NDArray[np.floating], rows: Rows, out: Array) -> Array:
    """Rows of a matrix in float64, in memory that is there."""
    if A.dtype == out.dtype:
        return np.take(A, rows, axis=0, out=out, mode="clip")  # which none needs, but it spares a copy
    out[:] = A[rows]
    return out


def copy_rows(source: Array, target: Array, rows: Rows, n_jobs: int) -> None:
    """Set these rows of one matrix to those of another."""

    def work(block: int) -> None:
        part = rows[block * ROWS_PER_BLOCK : (block + 1) * ROWS_PER_BLOCK]
        target[part] = source[part]

    run_blocks(work, -(-len(rows) // ROWS_PER_BLOCK), n_jobs)


def times(A: Array, right: Array, n_jobs: int, rows: Rows | None = None, out: Array | None = None) -> Array:
    """A (tall), or some of its rows, times a small matrix."""
    n = len(A) if rows is None else len(rows)
    product = np.empty((n, right.shape[1])) if out is None else out

    def work(block: int) -> None:
        part = slice(block * ROWS_PER_BLOCK, (block + 1) * ROWS_PER_BLOCK)
        np.matmul(A[part if rows is None else rows[part]], right, out=product[part])

    run_blocks(work, -(-n // ROWS_PER_BLOCK), n_jobs)
    return product


def triangle(A: NDArray[np.floating], n_jobs: int, lengths: Array | None = None) -> Array:
    """R (r, r), upper triangular, with RᵀR = AᵀA for a tall matrix A: by QR block by block, which never squares it.

    With `lengths`, rows are divided by them first.
    """
    r = A.shape[1]
    rows = max(ROWS_PER_BLOCK, 4 * r)
    n_blocks = max(-(-len(A) // rows), 1)
    parts = np.zeros((n_blocks, r, r))

    def work(block: int) -> None:
        part = slice(block * rows, (block + 1) * rows)
        own = A[part].astype(np.float64, copy=False) if lengths is None else A[part] / lengths[part, None]
        found = np.linalg.qr(own, mode="r")
        parts[block, : len(found)] = found

    run_blocks(work, n_blocks, n_jobs)
    return parts[0] if n_blocks == 1 else triangle(parts.reshape(n_blocks * r, r), n_jobs)


def log_elementary_symmetric(values: Array, degree: int) -> Array:
    """Row n, column k: the logarithm of the k-th elementary symmetric polynomial of the first n values.

    `e_k(λ_1..λ_n) = e_k(λ_1..λ_{n−1}) + λ_n e_{k−1}(λ_1..λ_{n−1})`, in logarithms, so that neither many nor
    large values overflow (Kulesza and Taskar 2012, Algorithm 7). Shape (len(values) + 1, degree + 1).
    """
    table = np.full((len(values) + 1, degree + 1), -np.inf)
    table[0, 0] = 0.0
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    for n, log_value in enumerate(logs):
        table[n + 1] = table[n]
        np.logaddexp(table[n, 1:], table[n, :-1] + log_value, out=table[n + 1, 1:])
    return table
