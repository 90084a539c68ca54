"""How many items a set has: P(|Y| = k), exactly, from E z^|Y| = det(I + zL) / det(I + L).

For L = V Vᵀ these are the elementary symmetric polynomials of its eigenvalues. Any other kernel is asked at roots of
unity z, and a Fourier transform gives the probabilities. With A = D + S over the items with partners and d over the
others, det(I + zL) = Π(1 + z d) · det(I + zA) · det(I + z G Xᵀ (I + z(D + S))⁻¹ X). What has an A in it is a power
series in z, with coefficients tr Aᵏ and Xᵀ Aᵏ X that are computed once, by sparse products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvals, eigvalsh

from contradpp._random import stream
from contradpp._threads import blas_threads, run_blocks
from contradpp.dpp import whole
from contradpp.dpp.linalg import log_elementary_symmetric
from contradpp.errors import NumericalError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Logs = Callable[[Complex], Complex]  # log det(I + zL) for every z

_FEW = 500  # items up to which eigenvalues are the quickest way
_COLUMNS = 32  # of the identity at a time: what is made of them stays in the cache
_MOST_POWERS = 40
_NEGLIGIBLE = 1e-16
_INSTEAD = "Draw sets by sample(method='chain') and count their sizes instead"


def log_size_distribution(kernel: Kernel) -> Array:
    """log P(|Y| = k) for k = 0..K if L = V Vᵀ, else for k = 0..rank, to an absolute precision of some 1e-15.

    `NumericalError` where det(I + L) by the eigenvalues is off by 1e-6 or more.
    """
    if kernel.symmetric and not kernel.has_diagonal:
        whole.refuse_lost(kernel.root)
        return _by_symmetric_polynomials(kernel.eigen[0], kernel.n_components)
    whole.refuse_too_many(
        len(kernel.skew.connected), "the distribution of sizes takes the whole kernel of the items with partners",
        _INSTEAD,
    )  # fmt: skip
    logs: Logs | None = None if kernel.n_items <= _FEW else _logs_by_series(kernel)
    if logs is None:
        whole.refuse_too_many(kernel.n_items, "the distribution of sizes takes all eigenvalues", _INSTEAD)
        values = _eigenvalues(kernel)
        if kernel.symmetric:
            return _by_symmetric_polynomials(np.maximum(values.real, 0.0), kernel.rank)
        logs = _logs_by_eigenvalues(values)
    if not abs(logs(np.ones(1, dtype=np.complex128))[0].real - kernel.log_normalizer) <= whole.LOST:
        raise NumericalError("the eigenvalues of L are lost to rounding beside the largest. " + _INSTEAD)
    shares = _coefficients(logs, kernel.rank + 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(shares / shares.sum()), dtype=np.float64)


def _by_symmetric_polynomials(values: Array, most: int) -> Array:
    """The law of how many coins of odds λ show heads, for k = 0..most."""
    sizes = np.full(most + 1, -np.inf)
    degree = min(len(values), most)
    sizes[: degree + 1] = log_elementary_symmetric(values, degree)[-1]
    return np.asarray(sizes - np.logaddexp.reduce(sizes), dtype=np.float64)


def _coefficients(logs: Logs, n: int) -> Array:
    """The n coefficients of det(I + zL) / det(I + L), from as many roots of unity as sizes are likely."""
    step = 1e-4j
    base, above, below = logs(np.array([1.0, 1.0 + step, 1.0 - step]))
    mean = ((above - below) / (2 * step)).real
    asked = int(max(128, 2 * mean))
    while True:
        asked = min(asked, n)
        roots = np.exp(-2j * np.pi * np.arange(asked // 2 + 1) / asked)
        half = np.exp(logs(roots) - base)
        shares = np.maximum(np.fft.irfft(half, asked), 0.0)
        if asked == n or shares[3 * asked // 4 :].max() <= 10 * _NEGLIGIBLE:
            return np.concatenate([shares, np.zeros(n - asked)])
        asked *= 2


# -- log det(I + zL) -----------------------------------------------------------------------------------------


def _logs_by_eigenvalues(values: Complex) -> Logs:
    def logs(z: Complex) -> Complex:
        with np.errstate(divide="ignore"):
            return np.array([np.log1p(one * values).sum() for one in z])

    return logs


def _eigenvalues(kernel: Kernel) -> Complex:
    """The eigenvalues of L that can differ from zero."""
    if not kernel.skew.n_entries and not kernel.has_diagonal:
        return np.asarray(eigvals(kernel.gain @ (kernel.root.T @ kernel.root)), dtype=np.complex128)
    L = kernel.left @ kernel.wide.T + kernel.skew.matrix().toarray()
    L[np.diag_indices_from(L)] += kernel.diagonal
    with blas_threads(kernel.n_jobs):
        find = eigvalsh if kernel.symmetric else eigvals
        return np.asarray(find(L, overwrite_a=True, check_finite=False), dtype=np.complex128)


def _logs_by_series(kernel: Kernel) -> Logs | None:
    """log det(I + zL) for |z| = 1, or None where the series would be too long."""
    connected = kernel.skew.connected
    others = np.setdiff1d(np.arange(kernel.n_items), connected)
    traces, moments = np.zeros(0), np.zeros((0, kernel.n_components, kernel.n_components))
    if len(connected):
        A = _with_diagonal(kernel.skew.take(connected).matrix(), kernel.diagonal[connected])
        powers = _powers_needed(A)
        if powers is None:
            return None
        traces = _traces(A, powers, not kernel.diagonal[connected].any(), kernel.n_jobs)
        moments = _moments(A, kernel.wide[connected], 2 * powers)
    X, d, G = kernel.wide[others], kernel.diagonal[others], kernel.gain
    free = X.T @ X

    def logs(z: Complex) -> Complex:
        found = np.empty(len(z), dtype=np.complex128)
        for n, one in enumerate(z):
            terms = -((-one) ** np.arange(1, len(traces) + 1)) / np.arange(1, len(traces) + 1)
            inner = X.T @ (X / (1.0 + one * d)[:, None]) if d.any() else free
            inner = inner + np.tensordot((-one) ** np.arange(len(moments)), moments, axes=1)
            sign, size = np.linalg.slogdet(np.eye(len(G)) + one * (G @ inner))
            found[n] = np.log1p(one * d).sum() + terms @ traces + size + np.log(sign)
        return found

    return logs


def _with_diagonal(S: Any, d: Array) -> Any:
    from scipy.sparse import csr_array, diags_array

    return csr_array(S + diags_array(d)) if d.any() else S


def _powers_needed(A: Any) -> int | None:
    """The j for which A²ʲ no longer matters in a trace, None if that takes too many; tried on random signs."""
    Z = np.sign(stream(0).random((A.shape[0], 8)) - 0.5)
    for j in range(1, _MOST_POWERS + 1):
        Z = A @ Z
        if np.square(Z).sum(axis=0).max() <= _NEGLIGIBLE:
            return j + 1
    return None


def _traces(A: Any, powers: int, skew: bool, n_jobs: int) -> Array:
    """tr Aᵏ for k = 1..2·powers, from products with some columns of the identity at a time.

    The trace of Aⁱ⁺ʲ is the sum of the products of the entries of (Aᵀ)ⁱ and Aʲ. Where A is skew, its transpose
    is −A.
    """
    n = A.shape[0]
    n_blocks, At = -(-n // _COLUMNS), None if skew else A.T.tocsr()
    parts = np.zeros((n_blocks, 2 * powers))

    def work(block: int) -> None:
        columns = np.arange(block * _COLUMNS, min((block + 1) * _COLUMNS, n))
        right = np.zeros((n, len(columns)))
        right[columns, np.arange(len(columns))] = 1.0
        left, sign = right, 1.0  # (Aᵀ)ʲ is sign · left
        for j in range(powers):
            further = A @ right
            parts[block, 2 * j] = sign * np.vdot(left, further)
            left, sign = (further, -sign) if At is None else (At @ left, 1.0)
            right = further
            parts[block, 2 * j + 1] = sign * np.vdot(left, right)

    with blas_threads(1):
        run_blocks(work, n_blocks, n_jobs)
    return np.asarray(parts.sum(axis=0), dtype=np.float64)


def _moments(A: Any, X: Array, n: int) -> Array:
    """Xᵀ Aᵏ X for k = 0..n (n + 1, r, r)."""
    out, Y = np.empty((n + 1, X.shape[1], X.shape[1])), X
    for k in range(n + 1):
        out[k] = X.T @ Y
        Y = A @ Y
    return out
