"""Small pieces of linear algebra that NumPy and SciPy lack: a safe Cholesky, symmetric polynomials in logs."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky

from contradpp._threads import blas_threads
from contradpp.errors import NumericalError, NumericalWarning

Array = NDArray[np.float64]

# Above this size LAPACK's Cholesky may use one thread only: with two, that of OpenBLAS crashes from some 15,600 on.
MOST_FOR_THREADS = 8_000


def cholesky_threads(n: int) -> AbstractContextManager[None]:
    """Hold BLAS to one thread where a Cholesky factorisation of n rows is not safe with more."""
    return blas_threads(1) if n > MOST_FOR_THREADS else nullcontext()


def safe_cholesky(matrix: Array, *, what: str = "matrix", jitter: float = 1e-12, tries: int = 4) -> Array:
    """The lower Cholesky factor; with a little on the diagonal, and a warning, where rounding makes it needed.

    Parameters
    ----------
    matrix : ndarray (n, n)
        Symmetric positive semi-definite in exact arithmetic: only then is jitter legitimate.
    what : str
        What the matrix is, for the messages.
    jitter : float
        The first addition, relative to the mean of the diagonal; every further try adds a hundred times more.
    tries : int
        How often jitter is added before `NumericalError` is raised.
    """
    if not np.isfinite(matrix).all():
        raise NumericalError(f"{what} has entries that are not finite")
    scale = float(np.trace(matrix)) / len(matrix) if len(matrix) else 1.0
    for attempt in range(tries + 1):
        added = 0.0 if attempt == 0 else scale * jitter * 100.0 ** (attempt - 1)
        try:
            factor: Array = cholesky(matrix + added * np.eye(len(matrix)), lower=True, check_finite=False)
        except LinAlgError:
            continue
        if added:
            message = f"{what} is singular to rounding: {added:.1e} was added to its diagonal"
            warnings.warn(message, NumericalWarning, stacklevel=2)
        return factor
    raise NumericalError(f"{what} is not positive definite, even with {added:.1e} on its diagonal")


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
