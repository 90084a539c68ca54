"""Products with the tall matrix V, on threads of our own: the same bytes for any number of them.

BLAS splits a product by the number of its threads, which changes the rounding. Here V is split into fixed blocks of
rows, and partial sums are added in the order of the blocks. The caller holds BLAS to one thread.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks

Array = NDArray[np.float64]
ROWS_PER_BLOCK = 2048


def gram(A: Array, B: Array, n_jobs: int) -> Array:
    """Aᵀ B for two tall matrices with the same rows."""
    n_blocks = max(-(-len(A) // ROWS_PER_BLOCK), 1)
    parts = np.empty((n_blocks, A.shape[1], B.shape[1]))

    def work(block: int) -> None:
        part = slice(block * ROWS_PER_BLOCK, (block + 1) * ROWS_PER_BLOCK)
        np.matmul(A[part].T, B[part], out=parts[block])

    run_blocks(work, n_blocks, n_jobs)
    total: Array = parts[0] if n_blocks == 1 else parts.sum(axis=0)
    return total


def times(A: Array, right: Array, n_jobs: int) -> Array:
    """A (tall) times a small matrix."""
    out = np.empty((len(A), right.shape[1]))

    def work(block: int) -> None:
        part = slice(block * ROWS_PER_BLOCK, (block + 1) * ROWS_PER_BLOCK)
        np.matmul(A[part], right, out=out[part])

    run_blocks(work, -(-len(A) // ROWS_PER_BLOCK), n_jobs)
    return out


def triangle(A: Array, n_jobs: int) -> Array:
    """R (r, r), upper triangular, with RᵀR = AᵀA for a tall matrix A: by QR block by block, which never squares it."""
    r = A.shape[1]
    rows = max(ROWS_PER_BLOCK, 4 * r)
    n_blocks = max(-(-len(A) // rows), 1)
    parts = np.zeros((n_blocks, r, r))

    def work(block: int) -> None:
        part = np.linalg.qr(A[block * rows : (block + 1) * rows], mode="r")
        parts[block, : len(part)] = part

    run_blocks(work, n_blocks, n_jobs)
    return parts[0] if n_blocks == 1 else triangle(parts.reshape(n_blocks * r, r), n_jobs)
