"""Small pieces of linear algebra that NumPy and SciPy lack: symmetric polynomials in logs, threads for Cholesky."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads

Array = NDArray[np.float64]

# Above this size LAPACK's Cholesky may use one thread only: with two, that of OpenBLAS crashes from some 15,600 on.
MOST_FOR_THREADS = 8_000


def cholesky_threads(n: int) -> AbstractContextManager[None]:
    """Hold BLAS to one thread where a Cholesky factorisation of n rows is not safe with more."""
    return blas_threads(1) if n > MOST_FOR_THREADS else nullcontext()


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
