"""The law of a DPP as a whole: its normaliser, marginals and expected size, all of which rest on I + L.

A symmetric L = D + V Vᵀ needs nothing but the small matrix Vᵀ (I + D)⁻¹ V. In general, with N = I + D + S,
det(I + L) = Π(1 + d) det(I + S̃) det(I + G Xᵀ N⁻¹ X),  S̃ = (I + D)^-½ S (I + D)^-½,  and
(I + L)⁻¹ = N⁻¹ − N⁻¹ X (I + G Xᵀ N⁻¹ X)⁻¹ G Xᵀ N⁻¹. Only items with partners enter I + S̃, which is a dense matrix for
up to MOST_DENSE of them; beyond, its determinant and diagonal are estimated (`probes`). Rankings never need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lu_factor, lu_solve, qr, solve_triangular, svd

from contradpp._threads import blas_threads
from contradpp.dpp import condition
from contradpp.dpp.linalg import cholesky_threads
from contradpp.dpp.probes import FINE, ROUGH, ByProbes, Estimate, Precision
from contradpp.dpp.skew import Skew
from contradpp.errors import NumericalError, ParameterError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
MOST_DENSE = 4_000  # items; no dense matrix is larger
_MOST_DENSE_ROUGH = 500  # items up to which a dense matrix is as quick as a rough estimate
# Up to this norm of S̃, forming I + S̃ᵀS̃ costs at most eight digits, and half the time.
_MODEST = 1e4
_LARGEST_SKEW = 1e10  # beyond, the identity is rounding beside S̃
LOST = 1e-6  # the error of log det(I + L) or of a marginal that is not accepted
_FAR_HEAVIER = 1e8  # the ratio of weights from which sums of squares would lose more than half of all digits
_SINGULAR = "I + L is singular to rounding: some items are so heavy that nothing else counts"


def log_normalizer(kernel: Kernel, precision: Precision = FINE) -> Estimate:
    """log det(I + L)."""
    alone = float(np.log1p(kernel.diagonal).sum()) if kernel.has_diagonal else 0.0
    if kernel.symmetric:
        return Estimate(alone + 2.0 * float(np.log(np.abs(np.diagonal(_one_plus(kernel.root)))).sum()), 0.0)
    kernel = graded(kernel)
    part = resolvent(kernel, precision=precision)
    small = np.eye(kernel.n_components) + kernel.gain @ (kernel.wide.T @ part.NX)
    return Estimate(alone + part.log_det.value + float(np.linalg.slogdet(small)[1]), part.log_det.error)


def marginals(kernel: Kernel, given: NDArray[np.int32]) -> tuple[Array, Array]:
    """P(i ∈ Y | given ⊆ Y) = 1 − (I + L')⁻¹_ii for every item, L' the kernel given those; and their standard errors.

    It is 1 for the given. Errors are 0 where no estimate is needed. Without given items the precision is relative,
    however rare the item; given items, with D or S, it is absolute.
    """
    inside, errors = np.ones(kernel.n_items), np.zeros(kernel.n_items)
    if len(given) == kernel.n_items:
        condition.refuse_impossible(kernel, given)
        return inside, errors
    rest_kernel, rest = kernel.condition(given)
    found, errors[rest] = _inclusion(rest_kernel)
    inside[rest] = np.clip(found, 0.0, 1.0)
    return inside, errors


def expected_size(kernel: Kernel, precision: Precision = FINE) -> float:
    """E|Y|, the sum of the marginals."""
    if kernel.symmetric and not kernel.has_diagonal:
        refuse_lost(kernel.root)
        values = kernel.eigen[0]
        return float((values / (1.0 + values)).sum())
    return float(_inclusion(kernel, precision)[0].sum())


def marginal_kernel(kernel: Kernel) -> Array:
    """K = L (I + L)⁻¹, dense (M, M)."""
    refuse_too_many(kernel.n_items, "K as a matrix is for few items", "Ask for marginals, or condition on some items.")
    L = kernel.matrix()
    found: Array = np.linalg.solve(np.eye(len(L)) + L.T, L.T).T.astype(np.float64, copy=False)
    return found


def eigenvalues(kernel: Kernel) -> NDArray[Any]:
    """The eigenvalues of L that are not zero, largest first; complex where L is not symmetric."""
    if kernel.symmetric and not kernel.has_diagonal:
        return kernel.eigen[0][::-1].copy()
    refuse_too_many(kernel.n_items, "eigenvalues of this kernel are for few items", "Take a LowRankDPP, L = V Vᵀ.")
    find: Any = np.linalg.eigvalsh if kernel.symmetric else np.linalg.eigvals
    values = find(kernel.matrix())
    sizes = np.abs(values)
    order = np.argsort(-sizes, kind="stable")
    found: NDArray[Any] = values[order[sizes[order] > len(values) * np.finfo(float).eps * sizes.max(initial=0.0)]]
    return found


def refuse_lost(R: Array) -> None:
    """Raise `NumericalError` if the rounding ε of R spoils log det(I + RᵀR): 2 s ε / (1 + s²) per singular value s."""
    lengths = svd(R, compute_uv=False)
    error = np.finfo(np.float64).eps * lengths.max(initial=0.0)
    known = np.maximum(lengths, error)
    if (2 * error * known > LOST * (1 + known**2)).any():
        raise NumericalError(_SINGULAR)


def _one_plus(R: Array) -> Array:
    """T, upper triangular, with TᵀT = I + RᵀR; no cut and no square, so that small and large values both count."""
    refuse_lost(R)
    return np.asarray(np.linalg.qr(np.vstack([np.eye(R.shape[1]), R]), mode="r"), dtype=np.float64)


def _inclusion(kernel: Kernel, precision: Precision = FINE) -> tuple[Array, Array]:
    """P(i ∈ Y) for every item, and its standard error."""
    d = kernel.diagonal
    if kernel.symmetric:
        V = kernel.vectors / np.sqrt(1.0 + d)[:, None] if kernel.has_diagonal else kernel.vectors
        T = _one_plus(kernel.root)
        inverse = solve_triangular(T, np.eye(len(T))) if len(T) else T
        squares: Array = np.square(V @ inverse.astype(V.dtype)).sum(axis=1, dtype=np.float64)
        return (d + squares) / (1.0 + d), np.zeros(len(d))
    kernel = graded(kernel)
    part = resolvent(kernel, diagonal=True, precision=precision)
    G = kernel.gain
    try:
        middle = np.linalg.solve(np.eye(len(G)) + G @ (kernel.wide.T @ part.NX), G)
    except np.linalg.LinAlgError:
        raise NumericalError(_SINGULAR) from None
    inside: Array = part.outside + np.einsum("ia,ia->i", part.NX @ middle, part.NtX)
    if not part.error.any() and not (np.abs(inside - 0.5) <= 0.5 + LOST).all():
        raise NumericalError(_SINGULAR)
    return inside, part.error


def graded(kernel: Kernel) -> Kernel:
    """The same kernel with X turned so that heavy items leave the later columns to light ones, if some are far lighter.

    XᵀN⁻¹X adds up squares: in columns that all items share, what light ones say would be lost beside heavy ones.
    """
    norms = np.einsum("ik,ik->i", kernel.wide, kernel.wide)
    some = norms[norms > 0]
    if not (kernel.plain and len(some) and some.max() > _FAR_HEAVIER * some.min()):
        return kernel
    _, R, order = qr(kernel.wide.T, mode="economic", pivoting=True)  # X[order] turned by Q is Rᵀ
    X = np.zeros_like(kernel.wide)
    X[order, : len(R)] = R.T
    return type(kernel).trusted(X, None, kernel.skew, kernel.diagonal, n_jobs=kernel.n_jobs)


# -- I + D + S -------------------------------------------------------------------------------------------


class Resolvent(NamedTuple):
    """N⁻¹ = (I + D + S)⁻¹ as far as the low-rank part needs it."""

    log_det: Estimate  # log det(I + S̃); 0 if the diagonal was asked for
    NX: Array  # N⁻¹ X (M, r)
    NtX: Array  # N⁻ᵀ X (M, r)
    outside: Array  # the diagonal of I − N⁻¹ (M,); that of I − (I + D)⁻¹ if it was not asked for
    error: Array  # its standard error (M,)


def resolvent(kernel: Kernel, *, diagonal: bool = False, precision: Precision = FINE) -> Resolvent:
    """N⁻¹ X, N⁻ᵀ X, and log det(I + S̃) or, if asked, the diagonal of I − N⁻¹."""
    connected, shift = kernel.skew.connected, 1.0 + kernel.diagonal
    NX, log_det, error = kernel.wide / shift[:, None], Estimate(0.0, 0.0), np.zeros(len(shift))
    outside = kernel.diagonal / shift
    if not len(connected):
        return Resolvent(log_det, NX, NX, outside, error)
    root = np.sqrt(shift[connected])
    with blas_threads(kernel.n_jobs):
        solver = one_plus_skew(kernel.skew.take(connected), 1.0 / root, kernel.n_jobs, precision)
        right = kernel.wide[connected] / root[:, None]
        NtX = NX.copy()
        NX[connected], NtX[connected] = (part / root[:, None] for part in solver.solve_both(right))
        if diagonal:
            added, error[connected] = solver.complement_diagonal() / shift[connected]
            outside[connected] += added
        else:
            log_det = solver.log_det()
    return Resolvent(log_det, NX, NtX, outside, error)


class SkewSolver(Protocol):
    """I + S̃ over the items with partners, ready for questions."""

    def log_det(self) -> Estimate:
        """log det(I + S̃)."""

    def solve_both(self, X: Array) -> tuple[Array, Array]:
        """(I + S̃)⁻¹ X and (I + S̃)⁻ᵀ X."""

    def complement_diagonal(self) -> Array:
        """The diagonal of I − (I + S̃)⁻¹, a sum of squares, and its standard errors (2, n)."""


def one_plus_skew(skew: Skew, scale: Array, n_jobs: int, precision: Precision = FINE) -> SkewSolver:
    """A solver for I + S̃, S̃ = diag(scale) S diag(scale)."""
    S = skew.matrix()
    S.data = S.data * scale[S.indices] * np.repeat(scale, np.diff(S.indptr))
    if skew.n_items > (_MOST_DENSE_ROUGH if precision is ROUGH else MOST_DENSE):
        return ByProbes(S, n_jobs, precision)
    largest = float(np.abs(S).sum(axis=1).max())  # a bound of every eigenvalue
    if largest > _LARGEST_SKEW:
        raise NumericalError(_SINGULAR)
    return ByCholesky(S) if largest <= _MODEST else ByLU(S)


def refuse_too_many(n_items: int, what: str, instead: str) -> None:
    """Raise `ParameterError` where a dense matrix over so many items would be needed."""
    if n_items > MOST_DENSE:
        raise ParameterError(f"{what}, here {n_items:,}; the most is {MOST_DENSE:,}. {instead}")


class ByCholesky:
    """By H = (I + SᵀS)⁻¹, positive definite: (I ± S)⁻¹ = (I ∓ S) H, whose diagonal is that of H, as S H is skew."""

    def __init__(self, S: Any) -> None:
        self.S = S
        A = (S.T @ S).toarray(order="F")
        A[np.diag_indices_from(A)] += 1.0
        with cholesky_threads(len(A)):
            self.factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)

    def log_det(self) -> Estimate:
        """Half of log det(I + SᵀS)."""
        return Estimate(float(np.log(np.diagonal(self.factor[0])).sum()), 0.0)

    def solve_both(self, X: Array) -> tuple[Array, Array]:
        """See `SkewSolver`."""
        Y = cho_solve(self.factor, X, check_finite=False)
        SY = self.S @ Y
        return Y - SY, Y + SY

    def complement_diagonal(self) -> Array:
        """See `SkewSolver`: that of SᵀH S."""
        S = self.S.toarray(order="F")
        return _squares(solve_triangular(self.factor[0], S, lower=True, overwrite_b=True, check_finite=False))


class ByLU:
    """The same for a large S, whose square would drown the identity."""

    def __init__(self, S: Any) -> None:
        self.S = S
        A = S.toarray(order="F")
        A[np.diag_indices_from(A)] += 1.0
        self.factor = lu_factor(A, overwrite_a=True, check_finite=False)

    def log_det(self) -> Estimate:
        """log det(I + S)."""
        return Estimate(float(np.log(np.abs(np.diagonal(self.factor[0]))).sum()), 0.0)

    def solve_both(self, X: Array) -> tuple[Array, Array]:
        """See `SkewSolver`."""
        solved = lu_solve(self.factor, X, check_finite=False)
        return solved, lu_solve(self.factor, X, trans=1, check_finite=False)

    def complement_diagonal(self) -> Array:
        """See `SkewSolver`: that of Sᵀ (I + S)⁻ᵀ (I + S)⁻¹ S."""
        return _squares(lu_solve(self.factor, self.S.toarray(order="F"), overwrite_b=True, check_finite=False))


def _squares(A: Array) -> Array:
    """The sum of squares of every column, and standard errors of zero."""
    return np.stack([np.einsum("ij,ij->j", A, A), np.zeros(A.shape[1])])
