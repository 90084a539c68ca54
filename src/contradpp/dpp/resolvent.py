"""What the law of a nonsymmetric DPP as a whole takes: (I + L)⁻¹, for the normaliser, marginals and sizes.

With R = (I + S)⁻¹, which is the identity but for the items that have partners,
det(I + L) = det(I + S) det(I + G Xᵀ R X) and (I + L)⁻¹ = R − R X (I + G Xᵀ R X)⁻¹ G Xᵀ R. The part of R is dense: its
cost is that of one factorisation over the items with partners. Rankings never need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigvals, lapack, lu_factor, lu_solve

from contradpp._threads import blas_threads
from contradpp.dpp.kernel import Array
from contradpp.errors import ParameterError

if TYPE_CHECKING:
    from contradpp.dpp.nonsymmetric import NonsymmetricKernel
    from contradpp.dpp.skew import Skew

MOST_CONNECTED = 20_000
MOST_FOR_EIGENVALUES = 5_000
# Up to this norm of S, forming I + SᵀS costs at most eight digits, and half the time.
_MODEST = 1e4
_NODES_PER_CHUNK = 2**21


class Resolvent(NamedTuple):
    """R = (I + S)⁻¹ as far as the low-rank part needs it."""

    log_det: float  # log det(I + S)
    RX: Array  # (M, r)
    RtX: Array  # Rᵀ X (M, r)
    diagonal: Array  # of R (M,); ones if it was not asked for


def log_normalizer(kernel: NonsymmetricKernel) -> float:
    """log det(I + L)."""
    part = resolvent(kernel)
    small = np.eye(kernel.n_components) + kernel.gain @ (kernel.factors.T @ part.RX)
    return part.log_det + float(np.linalg.slogdet(small)[1])


def marginals(kernel: NonsymmetricKernel, given: NDArray[np.int32]) -> Array:
    """P(i ∈ Y | given ⊆ Y) = 1 − (I + L')⁻¹_ii for every item, L' the kernel given those; 1 for the given."""
    rest_kernel, rest = kernel.condition(given)
    inside: Array = np.ones(kernel.n_items)
    if len(rest):
        part = resolvent(rest_kernel, diagonal=True)
        G = rest_kernel.gain
        middle = np.linalg.solve(np.eye(len(G)) + G @ (rest_kernel.factors.T @ part.RX), G)
        inside[rest] = 1.0 - part.diagonal + np.einsum("ia,ia->i", part.RX @ middle, part.RtX)
    return np.clip(inside, 0.0, 1.0)


def log_size_distribution(kernel: NonsymmetricKernel) -> Array:
    """log P(|Y| = k) for k = 0..rank, to an absolute precision of some 1e-15.

    E z^|Y| = Π (1 + z λ) / (1 + λ) over the eigenvalues of L, taken at the roots of unity: a Fourier transform.
    """
    values = _eigenvalues(kernel)
    n = kernel.rank + 1
    roots = np.exp(-2j * np.pi * np.arange(n) / n)
    transform = np.empty(n, dtype=np.complex128)
    base = np.log1p(values).sum()
    step = max(_NODES_PER_CHUNK // max(len(values), 1), 1)
    for first in range(0, n, step):
        z = roots[first : first + step, None]
        with np.errstate(divide="ignore"):
            transform[first : first + step] = np.exp(np.log1p(z * values).sum(axis=1) - base)
    shares = np.maximum(np.fft.ifft(transform).real, 0.0)
    with np.errstate(divide="ignore"):
        logs: Array = np.log(shares / shares.sum())
    return logs


def resolvent(kernel: NonsymmetricKernel, *, diagonal: bool = False) -> Resolvent:
    """R X, Rᵀ X, log det(I + S) and, if asked, the diagonal of R."""
    X, connected = kernel.factors, kernel.skew.connected
    ones = np.ones(kernel.n_items)
    if not len(connected):
        return Resolvent(0.0, X, X, ones)
    refuse_too_many(len(connected), "the normaliser and marginals")
    RX, RtX = X.copy(), X.copy()
    with blas_threads(kernel.n_jobs):
        modest = _norm(kernel.skew) <= _MODEST
        log_det, RX[connected], RtX[connected], ones[connected] = (_by_cholesky if modest else _by_lu)(
            kernel.skew.take(connected), X[connected], diagonal
        )
    return Resolvent(log_det, RX, RtX, ones)


def refuse_too_many(n_connected: int, what: str) -> None:
    """Raise `ParameterError` where the dense matrix over the items with partners would be too large."""
    if n_connected > MOST_CONNECTED:
        raise ParameterError(
            f"{what} take a dense matrix over the {n_connected:,} items that have partners "
            f"({n_connected**2 * 8 / 2**30:.0f} GiB); the most is {MOST_CONNECTED:,} items. Rankings, completion and "
            "log det L_A need no such matrix"
        )


def _by_cholesky(skew: Skew, X: Array, diagonal: bool) -> tuple[float, Array, Array, Array | float]:
    """By H = (I + SᵀS)⁻¹, positive definite: (I ± S)⁻¹ = (I ∓ S) H, whose diagonal is that of H, as S H is skew."""
    S = skew.matrix()
    A = (S.T @ S).toarray(order="F")
    A[np.diag_indices_from(A)] += 1.0
    factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    log_det = float(np.log(np.diagonal(factor[0])).sum())  # half of log det(I + SᵀS)
    Y = cho_solve(factor, X, check_finite=False)
    SY = S @ Y
    inverse = np.diagonal(lapack.dpotri(factor[0], lower=True, overwrite_c=True)[0]) if diagonal else 1.0
    return log_det, Y - SY, Y + SY, inverse


def _by_lu(skew: Skew, X: Array, diagonal: bool) -> tuple[float, Array, Array, Array | float]:
    """The same for a large S, whose square would drown the identity."""
    A = skew.matrix().toarray(order="F")
    A[np.diag_indices_from(A)] += 1.0
    factor = lu_factor(A, overwrite_a=True, check_finite=False)
    log_det = float(np.log(np.abs(np.diagonal(factor[0]))).sum())
    RX, RtX = lu_solve(factor, X, check_finite=False), lu_solve(factor, X, trans=1, check_finite=False)
    inverse = np.diagonal(lapack.dgetri(*factor, overwrite_lu=True)[0]) if diagonal else 1.0
    return log_det, RX, RtX, inverse


def _norm(skew: Skew) -> float:
    """The largest sum of absolute values of a row: a bound of every eigenvalue."""
    return float(np.abs(skew.matrix()).sum(axis=1).max())


def _eigenvalues(kernel: NonsymmetricKernel) -> NDArray[np.complex128]:
    if not kernel.skew.n_entries:
        return kernel.low_rank_eigenvalues
    if kernel.n_items > MOST_FOR_EIGENVALUES:
        raise ParameterError(
            f"the distribution of sizes takes the eigenvalues of a dense matrix over all {kernel.n_items:,} items; the "
            f"most is {MOST_FOR_EIGENVALUES:,}. Sample sets and count their sizes instead"
        )
    L = kernel.left @ kernel.factors.T + kernel.skew.matrix().toarray()
    with blas_threads(kernel.n_jobs):
        values: NDArray[np.complex128] = eigvals(L, overwrite_a=True, check_finite=False).astype(np.complex128)
    return values
