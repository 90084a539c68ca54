"""The distribution of a DPP as a whole: normalizer, marginals, expected size and size distribution.

They rest on I + L. For a symmetric L = D + V Vᵀ the small matrix Vᵀ (I + D)⁻¹ V is enough. In
general, with N = I + D + S and S̃ = (I + D)^-½ S (I + D)^-½,

    det(I + L) = Π(1 + d) det(I + S̃) det(I + G Xᵀ N⁻¹ X)
    (I + L)⁻¹ = N⁻¹ − N⁻¹ X (I + G Xᵀ N⁻¹ X)⁻¹ G Xᵀ N⁻¹.

Only connected items, those with an entry of S, enter I + S̃, a dense matrix for up to
MAX_DENSE_ITEMS of them. Beyond, random probes estimate its determinant and diagonal (`ByProbes`).
Rankings never need it.

P(|Y| = k) comes from E z^|Y| = det(I + zL) / det(I + L). For L = V Vᵀ its coefficients are
elementary symmetric polynomials of the eigenvalues. Otherwise it is evaluated at roots of unity z,
and a Fourier transform returns the probabilities. With A = D + S of the connected items and d of
the others,

    det(I + zL) = Π(1 + z d) · det(I + zA) · det(I + z G Xᵀ (I + z(D + S))⁻¹ X).

Factors with A are power series in z, with coefficients tr Aᵏ and Xᵀ Aᵏ X, computed once by sparse
products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import (
    cho_factor,
    cho_solve,
    eigh_tridiagonal,
    eigvals,
    eigvalsh,
    lu_factor,
    lu_solve,
    qr,
    solve_triangular,
    svd,
)
from scipy.sparse import csr_array, diags_array

from contradpp._random import stream
from contradpp._threads import blas_threads, over_parts, run_blocks
from contradpp._types import Array, Codes, Complex
from contradpp.dpp import compiled, scoring
from contradpp.dpp.linalg import cholesky_threads, log_elementary_symmetric
from contradpp.errors import NumericalError, ParameterError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel, Skew

LogDeterminants = Callable[[Complex], Complex]  # log det(I + zL) for every z

MAX_DENSE_ITEMS = 4_000  # no dense matrix is larger
MAX_DENSE_ITEMS_ROUGH = 500  # up to this a dense matrix is as quick as a rough estimate
# Up to this norm of S̃, forming I + S̃ᵀS̃ costs at most eight digits, and half the time of an LU.
MAX_NORM_TO_SQUARE = 1e4
MAX_NORM = 1e10  # of S̃: beside more, the identity is rounding
MAX_ERROR = 1e-6  # of log det(I + L), or of a marginal, by rounding
# From this ratio of squared lengths on, sums of squares lose more than half of all digits.
MAX_WEIGHT_RATIO = 1e8
SINGULAR_MESSAGE = "I + L is singular to rounding: some items are so heavy that nothing else counts"

# Of the estimates by random probes.
COLUMNS_PER_BLOCK = 8
ROWS_PER_BLOCK = 4096
MAX_STEPS = 400
PILOT_PROBES = 2  # they choose the polynomials
PILOT_SHARE = 1e-4  # the relative precision of their quadrature
QUADRATURE_SHARE = 0.05  # of the wanted standard error, which the quadrature may add

# Of the distribution of sizes.
MAX_ITEMS_FOR_EIGENVALUES = 500  # up to this eigenvalues are the quickest way
IDENTITY_COLUMNS = 32  # at a time: the products with them stay in the cache
MAX_POWERS = 40
NEGLIGIBLE = 1e-16
SAMPLE_INSTEAD = "Draw sets by sample(method='chain') and count their sizes instead"


class Precision(NamedTuple):
    """The precision of estimates."""

    error: float = 0.005  # the standard error of log det(I + S̃) to aim at
    min_probes: int = 64  # of the determinant; with fewer, its error is not well known itself
    max_probes: int = 256  # even if the error is larger then
    diagonal_probes: int = 32
    tolerance: float = 1e-10  # of a residual, relative to the right-hand side


FINE = Precision()
ROUGH = Precision(0.05, min_probes=16, max_probes=64, diagonal_probes=8, tolerance=1e-3)


class Estimate(NamedTuple):
    """A value and its standard error, 0 where it is exact."""

    value: float
    error: float


@blas_threads(1)
def log_normalizer(kernel: Kernel, precision: Precision = FINE) -> Estimate:
    """Return log det(I + L)."""
    log_det_D = float(np.log1p(kernel.diagonal).sum()) if kernel.has_diagonal else 0.0
    if kernel.symmetric:
        T = _root_of_one_plus(kernel.root)
        return Estimate(log_det_D + 2.0 * float(np.log(np.abs(np.diagonal(T))).sum()), 0.0)
    kernel = graded(kernel)
    part = resolvent(kernel, precision=precision)
    small = np.eye(kernel.n_components) + kernel.inner @ (kernel.X.T @ part.NX)
    log_det_small = float(np.linalg.slogdet(small)[1])
    return Estimate(log_det_D + part.log_det.value + log_det_small, part.log_det.error)


@blas_threads(1)
def marginals(kernel: Kernel, given: Codes) -> tuple[Array, Array]:
    """Return P(i ∈ Y | given ⊆ Y) of every item, and its standard error, 0 if it is exact.

    It is 1 − (I + L')⁻¹_ii, L' the kernel given those items, and 1 for them. Without given items
    the precision is relative, however rare the item. Given items, with D or S, it is absolute.
    """
    probabilities = np.ones(kernel.n_items)
    errors = np.zeros(kernel.n_items)
    if len(given) == kernel.n_items:
        scoring.refuse_impossible(kernel, given)
        return probabilities, errors
    rest_kernel, rest = kernel.condition(given)
    found, errors[rest] = inclusion(rest_kernel)
    probabilities[rest] = np.clip(found, 0.0, 1.0)
    return probabilities, errors


@blas_threads(1)
def expected_size(kernel: Kernel, precision: Precision = FINE) -> float:
    """Return E|Y|, the sum of the marginals."""
    if kernel.is_low_rank:
        refuse_lost(kernel.root)
        values = kernel.eigen[0]
        return float((values / (1.0 + values)).sum())
    return float(inclusion(kernel, precision)[0].sum())


@blas_threads(1)
def marginal_kernel(kernel: Kernel) -> Array:
    """Return K = L (I + L)⁻¹, dense (M, M)."""
    instead = "Ask for marginals, or condition on some items."
    refuse_too_many(kernel.n_items, "K as a matrix is for few items", instead)
    L = kernel.matrix()
    found: Array = np.linalg.solve(np.eye(len(L)) + L.T, L.T).T.astype(np.float64, copy=False)
    return found


def marginal_factors(kernel: Kernel) -> NDArray[np.floating]:
    """Return F (M, r) with K = D (I + D)⁻¹ + F Fᵀ, for a symmetric L."""
    V = kernel.vectors / (1.0 + kernel.diagonal)[:, None] if kernel.has_diagonal else kernel.vectors
    T = _root_of_one_plus(kernel.root)
    inverse = solve_triangular(T, np.eye(len(T))) if len(T) else T
    return np.asarray(V @ inverse.astype(V.dtype))


@blas_threads(1)
def eigenvalues(kernel: Kernel) -> NDArray[Any]:
    """Return the nonzero eigenvalues of L, largest first; complex unless L is symmetric."""
    if kernel.is_low_rank:
        return kernel.eigen[0][::-1].copy()
    if not kernel.skew.n_entries and not kernel.has_diagonal:
        values = eigvals(kernel.inner @ (kernel.root.T @ kernel.root))
    else:
        instead = "Take a LowRankDPP, L = V Vᵀ."
        refuse_too_many(kernel.n_items, "eigenvalues of this kernel are for few items", instead)
        find = eigvalsh if kernel.symmetric else eigvals
        values = find(kernel.matrix(), overwrite_a=True, check_finite=False)
    sizes = np.abs(values)
    order = np.argsort(-sizes, kind="stable")
    least = len(values) * np.finfo(float).eps * sizes.max(initial=0.0)
    found: NDArray[Any] = values[order[sizes[order] > least]]
    return found


@blas_threads(1)
def log_size_distribution(kernel: Kernel) -> Array:
    """Return log P(|Y| = k) for k = 0..K if L = V Vᵀ, else for k = 0..rank.

    The absolute precision is some 1e-15.

    Raises
    ------
    NumericalError
        If det(I + L) by the eigenvalues is off by more than `MAX_ERROR`.
    """
    if kernel.is_low_rank:
        refuse_lost(kernel.root)
        return _by_symmetric_polynomials(kernel.eigen[0], kernel.n_components)
    what = "the distribution of sizes takes the whole kernel of the items with an entry of S"
    refuse_too_many(len(kernel.skew.connected), what, SAMPLE_INSTEAD)
    logs: LogDeterminants | None = None
    if kernel.n_items > MAX_ITEMS_FOR_EIGENVALUES:
        logs = _log_dets_by_series(kernel)
    if logs is None:
        what = "the distribution of sizes takes all eigenvalues"
        refuse_too_many(kernel.n_items, what, SAMPLE_INSTEAD)
        values = eigenvalues(kernel)
        if kernel.symmetric:
            return _by_symmetric_polynomials(np.maximum(values.real, 0.0), kernel.rank)
        logs = _log_dets_by_eigenvalues(values)
    at_one = logs(np.ones(1, dtype=np.complex128))[0].real
    if not abs(at_one - kernel.log_normalizer) <= MAX_ERROR:
        message = "the eigenvalues of L are lost to rounding beside the largest. " + SAMPLE_INSTEAD
        raise NumericalError(message)
    probabilities = _coefficients(logs, kernel.rank + 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities / probabilities.sum()), dtype=np.float64)


def refuse_lost(R: Array) -> None:
    """Raise `NumericalError` if the rounding ε of R spoils log det(I + RᵀR).

    A singular value s contributes an error of 2 s ε / (1 + s²).
    """
    lengths = svd(R, compute_uv=False)
    error = np.finfo(np.float64).eps * lengths.max(initial=0.0)
    known = np.maximum(lengths, error)
    if (2 * error * known > MAX_ERROR * (1 + known**2)).any():
        raise NumericalError(SINGULAR_MESSAGE)


def refuse_too_many(n_items: int, what: str, instead: str) -> None:
    """Raise `ParameterError` if a dense matrix would have more than MAX_DENSE_ITEMS rows."""
    if n_items > MAX_DENSE_ITEMS:
        message = f"{what}, here {n_items:,}; the most is {MAX_DENSE_ITEMS:,}. {instead}"
        raise ParameterError(message)


def _root_of_one_plus(R: Array) -> Array:
    """Return T, upper triangular, with TᵀT = I + RᵀR, without forming a square."""
    refuse_lost(R)
    return np.asarray(np.linalg.qr(np.vstack([np.eye(R.shape[1]), R]), mode="r"), dtype=np.float64)


def inclusion(kernel: Kernel, precision: Precision = FINE) -> tuple[Array, Array]:
    """Return P(i ∈ Y) of every item, and its standard error."""
    d = kernel.diagonal
    if kernel.symmetric:
        squares: Array = np.square(marginal_factors(kernel)).sum(axis=1, dtype=np.float64)
        return d / (1.0 + d) + squares, np.zeros(len(d))
    kernel = graded(kernel)
    part = resolvent(kernel, diagonal=True, precision=precision)
    G = kernel.inner
    try:
        middle = np.linalg.solve(np.eye(len(G)) + G @ (kernel.X.T @ part.NX), G)
    except np.linalg.LinAlgError:
        raise NumericalError(SINGULAR_MESSAGE) from None
    found: Array = part.complement + np.einsum("ia,ia->i", part.NX @ middle, part.NtX)
    if not part.error.any() and not (np.abs(found - 0.5) <= 0.5 + MAX_ERROR).all():
        raise NumericalError(SINGULAR_MESSAGE)
    return found, part.error


def graded(kernel: Kernel) -> Kernel:
    """Rotate the columns of X so that heavy items leave the later ones to light items.

    XᵀN⁻¹X adds up squares. In columns that all items share, far lighter items would be lost beside
    heavy ones. L stays the same; without such items, so does X.
    """
    norms = np.einsum("ik,ik->i", kernel.X, kernel.X)
    some = norms[norms > 0]
    graded_enough = not len(some) or some.max() <= MAX_WEIGHT_RATIO * some.min()
    if graded_enough or not kernel.has_identity_inner:
        return kernel
    _, R, order = qr(kernel.X.T, mode="economic", pivoting=True)  # X[order] rotated by Q is Rᵀ
    X = np.zeros_like(kernel.X)
    X[order, : len(R)] = R.T
    return type(kernel).trusted(X, None, kernel.skew, kernel.diagonal, n_jobs=kernel.n_jobs)


# -- I + D + S -------------------------------------------------------------------------------------


class Resolvent(NamedTuple):
    """The parts of N⁻¹ = (I + D + S)⁻¹ that the low-rank part needs."""

    log_det: Estimate  # log det(I + S̃); 0 if the diagonal was asked for
    NX: Array  # N⁻¹ X (M, r)
    NtX: Array  # N⁻ᵀ X (M, r)
    complement: Array  # (M,): the diagonal of I − N⁻¹, or without `diagonal` of I − (I + D)⁻¹
    error: Array  # its standard error (M,)


def resolvent(kernel: Kernel, *, diagonal: bool = False, precision: Precision = FINE) -> Resolvent:
    """Compute N⁻¹ X, N⁻ᵀ X, and log det(I + S̃) or, with `diagonal`, the diagonal of I − N⁻¹."""
    connected = kernel.skew.connected
    shift = 1.0 + kernel.diagonal
    NX = kernel.X / shift[:, None]
    complement = kernel.diagonal / shift
    error = np.zeros(len(shift))
    log_det = Estimate(0.0, 0.0)
    if not len(connected):
        return Resolvent(log_det, NX, NX, complement, error)
    root = np.sqrt(shift[connected])
    with blas_threads(kernel.n_jobs):
        skew = kernel.skew.restrict(connected)
        solver = one_plus_skew(skew, 1.0 / root, kernel.n_jobs, precision)
        plain, transposed = solver.solve_both(kernel.X[connected] / root[:, None])
        NtX = NX.copy()
        NX[connected] = plain / root[:, None]
        NtX[connected] = transposed / root[:, None]
        if diagonal:
            added, error[connected] = solver.complement_diagonal() / shift[connected]
            complement[connected] += added
        else:
            log_det = solver.log_det()
    return Resolvent(log_det, NX, NtX, complement, error)


def one_plus_skew(skew: Skew, scale: Array, n_jobs: int, precision: Precision = FINE) -> SkewSolver:
    """Choose a solver for I + S̃, S̃ = diag(scale) S diag(scale), by its size and norm."""
    S = skew.matrix()
    S.data = S.data * scale[S.indices] * np.repeat(scale, np.diff(S.indptr))
    if skew.n_items > (MAX_DENSE_ITEMS_ROUGH if precision is ROUGH else MAX_DENSE_ITEMS):
        return ByProbes(S, n_jobs, precision)
    norm = float(np.abs(S).sum(axis=1).max())  # a bound of every eigenvalue
    if norm > MAX_NORM:
        raise NumericalError(SINGULAR_MESSAGE)
    return ByCholesky(S) if norm <= MAX_NORM_TO_SQUARE else ByLU(S)


class ByCholesky:
    """A solver by H = (I + SᵀS)⁻¹, which is positive definite.

    (I ± S)⁻¹ = (I ∓ S) H has the diagonal of H, because S H is skew.
    """

    def __init__(self, S: csr_array) -> None:
        self.S = S
        A = (S.T @ S).toarray(order="F")
        A[np.diag_indices_from(A)] += 1.0
        with cholesky_threads(len(A)):
            self.factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)

    def log_det(self) -> Estimate:
        """Return log det(I + S), half of log det(I + SᵀS)."""
        return Estimate(float(np.log(np.diagonal(self.factor[0])).sum()), 0.0)

    def solve_both(self, X: Array) -> tuple[Array, Array]:
        """Return (I + S)⁻¹ X and (I + S)⁻ᵀ X."""
        Y = cho_solve(self.factor, X, check_finite=False)
        SY = self.S @ Y
        return Y - SY, Y + SY

    def complement_diagonal(self) -> Array:
        """Return the diagonal of I − (I + S)⁻¹, that of SᵀH S, and its standard errors (2, n)."""
        A = self.S.toarray(order="F")
        A = solve_triangular(self.factor[0], A, lower=True, overwrite_b=True, check_finite=False)
        return _exact_squares(A)


class ByLU:
    """A solver for a large S, whose square would drown the identity."""

    def __init__(self, S: csr_array) -> None:
        self.S = S
        A = S.toarray(order="F")
        A[np.diag_indices_from(A)] += 1.0
        self.factor = lu_factor(A, overwrite_a=True, check_finite=False)

    def log_det(self) -> Estimate:
        return Estimate(float(np.log(np.abs(np.diagonal(self.factor[0]))).sum()), 0.0)

    def solve_both(self, X: Array) -> tuple[Array, Array]:
        solved = lu_solve(self.factor, X, check_finite=False)
        return solved, lu_solve(self.factor, X, trans=1, check_finite=False)

    def complement_diagonal(self) -> Array:  # that of Sᵀ (I + S)⁻ᵀ (I + S)⁻¹ S
        A = self.S.toarray(order="F")
        return _exact_squares(lu_solve(self.factor, A, overwrite_b=True, check_finite=False))


def _exact_squares(A: Array) -> Array:
    """Return the sum of squares of every column, and standard errors of zero."""
    return np.stack([np.einsum("ij,ij->j", A, A), np.zeros(A.shape[1])])


# -- Without a dense matrix: Lanczos quadrature and conjugate gradients ----------------------------

# With B = SᵀS = −S² ≥ 0: log det(I + S) = ½ tr log(I + B), and (I ± S)⁻¹ = (I ∓ S)(I + B)⁻¹. A
# trace is the mean of zᵀ f(B) z over random signs z. A polynomial c₀ + c₁ B close to f contributes
# exactly, because tr B is known: only the rest is estimated, so that its spread is small.
# docs/theory.md derives estimates and errors. Probes come in blocks with random streams of their
# own, so that results do not depend on the number of threads.


class Spectrum(NamedTuple):
    """Gauss rules of some probes: zᵀ f(B) z / ‖z‖² is about Σ weights f(nodes), in each row."""

    nodes: Array  # (probes, steps): eigenvalues of B
    weights: Array  # (probes, steps)
    width: Array  # (probes,): the gap between a rule above and one below, for ½ log(1 + B)


def half_log(x: Array) -> Array:
    """Return ½ log(1 + x)."""
    return np.asarray(0.5 * np.log1p(x), dtype=np.float64)


class ByProbes:
    """A solver that estimates by random signs, for a sparse S = −Sᵀ of any size.

    Parameters
    ----------
    S : CSR array (n, n)
    n_jobs : int
    precision : Precision
    seed : int
        The seed of the random signs.
    """

    def __init__(
        self, S: csr_array, n_jobs: int = 1, precision: Precision = FINE, *, seed: int = 0
    ) -> None:
        self.S = S
        self.n_jobs = n_jobs
        self.precision = precision
        self.seed = seed
        self.n = S.shape[0]
        squares = np.asarray(S.multiply(S).sum(axis=1), dtype=np.float64)
        self.B_diagonal: Array = squares.ravel()
        self.pilot = self._quadrature(self._signs(0)[:, :PILOT_PROBES], share=PILOT_SHARE)

    def log_det(self) -> Estimate:
        c = self._polynomial(half_log, 1)
        exact = c[0] * self.n + c[1] * self.B_diagonal.sum()
        error, min_probes, max_probes = self.precision[:3]
        values = np.empty(0)
        widths = np.empty(0)
        missing = float(min_probes)
        while missing > 0:
            first = len(values) // COLUMNS_PER_BLOCK
            last = first + int(np.ceil(missing / COLUMNS_PER_BLOCK))
            new_values, new_widths = self._rests(c, first, last, QUADRATURE_SHARE * error)
            values = np.append(values, new_values)
            widths = np.append(widths, new_widths)
            spread = float(values.std(ddof=1))
            missing = min((spread / error) ** 2, float(max_probes)) - len(values)
        uncertainty = float(np.hypot(spread / np.sqrt(len(values)), widths.mean() / 2))
        return Estimate(float(exact + values.mean()), uncertainty)

    def solve_both(self, X: Array) -> tuple[Array, Array]:
        plain = np.empty_like(X)
        transposed = np.empty_like(X)

        def work(part: slice) -> None:
            Y = self.solve(np.ascontiguousarray(X[:, part]))
            SY = self.S @ Y
            plain[:, part] = Y - SY
            transposed[:, part] = Y + SY

        over_parts(work, X.shape[1], COLUMNS_PER_BLOCK, self.n_jobs)
        return plain, transposed

    def complement_diagonal(self) -> Array:
        # Entry i is s_iᵀ (I + B)⁻¹ s_i, s_i column i of S. The error is a share of that, so that an
        # item with small entries has a small error.
        c = self._polynomial(lambda x: 1.0 / (1.0 + x), 1)
        n_blocks = -(-self.precision.diagonal_probes // COLUMNS_PER_BLOCK)
        sums = np.empty((n_blocks, self.n))
        squares = np.empty((n_blocks, self.n))

        def work(block: int) -> None:
            Z = self._signs(block + 1)
            SZ = self.S @ Z
            rest = self.solve(Z) - c[0] * Z + c[1] * (self.S @ SZ)  # S S z = −B z
            terms = SZ * (self.S @ rest)
            sums[block] = terms.sum(axis=1)
            squares[block] = np.square(terms).sum(axis=1)

        run_blocks(work, n_blocks, self.n_jobs)
        count = n_blocks * COLUMNS_PER_BLOCK
        mean: Array = sums.sum(axis=0) / count
        variance = np.maximum(squares.sum(axis=0) / count - mean**2, 0.0) / (count - 1)
        exact = c[0] * self.B_diagonal + c[1] * self._diagonal_of_square()
        found = np.clip(exact + mean, 0.0, 1.0)
        return np.stack([found, np.sqrt(variance)])

    def solve(self, R: Array) -> Array:
        """Solve (I + B) Y = R by conjugate gradients, until every column's residual is small.

        Raises
        ------
        NumericalError
            If they do not converge, or if the residual computed anew contradicts them by far.
        """
        S = self.S
        tolerance = self.precision.tolerance
        Y = np.zeros_like(R)
        residual = R.copy()
        direction = R.copy()
        goal = tolerance**2 * _column_products(R, R)
        size = _column_products(residual, residual)
        for _ in range(MAX_STEPS * 5):
            if (size <= goal).all():
                break
            image = direction - S @ (S @ direction)
            step = _ratio(size, _column_products(direction, image))
            Y += step * direction
            residual -= step * image
            before = size
            size = _column_products(residual, residual)
            direction *= _ratio(size, before)
            direction += residual
        residual = R - Y + S @ (S @ Y)
        if (_column_products(residual, residual) > 1e4 * goal).any():
            largest = float(self.pilot.nodes.max(initial=0.0)) ** 0.5
            raise NumericalError(
                f"conjugate gradients did not solve I + S to {tolerance:.0e}: S is too large "
                f"beside the identity (its largest singular value is {largest:.1e})"
            )
        return Y

    def _signs(self, block: int) -> Array:
        """Return the probes of a block (n, COLUMNS_PER_BLOCK): random signs."""
        shape = (self.n, COLUMNS_PER_BLOCK)
        bits = stream(self.seed, block).integers(0, 2, size=shape, dtype=np.int8)
        return np.asarray(2.0 * bits - 1.0, dtype=np.float64)

    def _diagonal_of_square(self) -> Array:
        """Return the diagonal of B², Σ_j (B_ij)² for every i."""
        out = np.empty(self.n)
        S = (self.S.indptr.astype(np.int64), self.S.indices.astype(np.int32), self.S.data)

        def work(part: slice) -> None:
            compiled.kernels.square_row_lengths(*S, part.start, part.stop, out)

        over_parts(work, self.n, ROWS_PER_BLOCK, self.n_jobs)
        return out

    def _polynomial(self, f: Callable[[Array], Array], degree: int) -> Array:
        """Fit a polynomial to f on the eigenvalues of B, as the pilot estimates them."""
        x = self.pilot.nodes.ravel()
        root = np.sqrt(self.pilot.weights.ravel())
        powers = np.vander(x, degree + 1, increasing=True)
        scale = np.maximum(np.abs(powers).max(axis=0, initial=0.0), 1e-300)
        found = np.linalg.lstsq(powers / scale * root[:, None], f(x) * root, rcond=1e-10)[0] / scale
        return np.asarray(found, dtype=np.float64)

    def _rests(self, c: Array, first: int, last: int, allowed: float) -> tuple[Array, Array]:
        """Return zᵀ (½ log(1 + B) − polynomial) z of the probes of some blocks, and widths."""
        values = np.empty((last - first, COLUMNS_PER_BLOCK))
        widths = np.empty_like(values)

        def work(block: int) -> None:
            rule = self._quadrature(self._signs(first + block + 1), allowed=allowed)
            rest = half_log(rule.nodes) - np.polynomial.polynomial.polyval(rule.nodes, c)
            values[block] = self.n * ((rule.weights * rest).sum(axis=1) - rule.width / 2)
            widths[block] = self.n * rule.width

        run_blocks(work, last - first, self.n_jobs)
        return values.ravel(), widths.ravel()

    def _quadrature(self, Z: Array, *, allowed: float = 0.0, share: float = 1e-12) -> Spectrum:
        """Compute Gauss rules of the probes by Lanczos steps.

        Because S is skew, S q_j = β_j q_{j+1} − β_{j−1} q_{j−1}. An even number of steps gives a
        rule whose value for ½ log(1 + B) is too large; an odd one, with a node at zero, one that is
        too small. Steps end when the two differ by at most `allowed` over the whole trace, or by
        this share of it. The rules returned are those of an even number of steps.
        """
        q = Z / np.sqrt(self.n)
        before = np.zeros_like(Z)
        betas: list[Array] = []
        check = 4
        while True:
            w = self.S @ q
            if betas:
                w += betas[-1] * before
            beta = np.sqrt(_column_products(w, w))
            before = q
            q = w * _ratio(np.ones_like(beta), beta)
            betas.append(beta)
            if len(betas) < check:
                continue
            rule = _gauss_rules(np.array(betas).T)
            total = (rule.weights * half_log(rule.nodes)).sum(axis=1)
            close = self.n * rule.width <= np.maximum(allowed, share * self.n * total)
            if close.all() or check >= MAX_STEPS:
                return rule
            check = min(2 * (int(1.2 * check) // 2 + 1), MAX_STEPS)


def _gauss_rules(betas: Array) -> Spectrum:
    """Return the rules of an even number of steps, one per column of betas (probes, steps)."""
    nodes = np.empty_like(betas)
    weights = np.empty_like(betas)
    widths = np.empty(len(betas))
    for p, beta in enumerate(betas):
        nodes[p], weights[p] = _gauss_rule(beta[:-1])
        below_nodes, below_weights = _gauss_rule(beta[:-2])
        above = weights[p] @ half_log(nodes[p])
        below = below_weights @ half_log(below_nodes)
        widths[p] = max(above - below, 0.0)
    return Spectrum(nodes, weights, widths)


def _gauss_rule(beta: Array) -> tuple[Array, Array]:
    """Return nodes and weights of the tridiagonal matrix with zero diagonal and these entries."""
    values, vectors = eigh_tridiagonal(np.zeros(len(beta) + 1), beta)
    return np.square(values), np.square(vectors[0])


def _column_products(A: Array, B: Array) -> Array:
    """Return the scalar products of the columns of two matrices."""
    return np.asarray(np.einsum("ij,ij->j", A, B), dtype=np.float64)


def _ratio(above: Array, below: Array) -> Array:
    """Return above / below, 0 where below is 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


SkewSolver = ByCholesky | ByLU | ByProbes


# -- Sizes -----------------------------------------------------------------------------------------


def _by_symmetric_polynomials(values: Array, most: int) -> Array:
    """Return log P(k heads), k = 0..most, of independent coins with these odds of heads."""
    logs = np.full(most + 1, -np.inf)
    degree = min(len(values), most)
    logs[: degree + 1] = log_elementary_symmetric(values, degree)[-1]
    return np.asarray(logs - np.logaddexp.reduce(logs), dtype=np.float64)


def _coefficients(logs: LogDeterminants, n: int) -> Array:
    """Return the n coefficients of det(I + zL) / det(I + L), by few roots of unity."""
    step = 1e-4j
    base, above, below = logs(np.array([1.0, 1.0 + step, 1.0 - step]))
    mean = ((above - below) / (2 * step)).real
    n_roots = int(max(128, 2 * mean))
    while True:
        n_roots = min(n_roots, n)
        roots = np.exp(-2j * np.pi * np.arange(n_roots // 2 + 1) / n_roots)
        half = np.exp(logs(roots) - base)
        found = np.maximum(np.fft.irfft(half, n_roots), 0.0)
        if n_roots == n or found[3 * n_roots // 4 :].max() <= 10 * NEGLIGIBLE:
            return np.concatenate([found, np.zeros(n - n_roots)])
        n_roots *= 2


def _log_dets_by_eigenvalues(values: Complex) -> LogDeterminants:
    def logs(z: Complex) -> Complex:
        with np.errstate(divide="ignore"):
            return np.array([np.log1p(one * values).sum() for one in z])

    return logs


def _log_dets_by_series(kernel: Kernel) -> LogDeterminants | None:
    """Return log det(I + zL) for |z| = 1, or None where the series would be too long."""
    connected = kernel.skew.connected
    others = np.setdiff1d(np.arange(kernel.n_items), connected)
    traces = np.zeros(0)
    moments = np.zeros((0, kernel.n_components, kernel.n_components))
    if len(connected):
        d = kernel.diagonal[connected]
        A = _plus_diagonal(kernel.skew.restrict(connected).matrix(), d)
        powers = _powers_needed(A)
        if powers is None:
            return None
        traces = _traces(A, powers, not d.any(), kernel.n_jobs)
        moments = _moments(A, kernel.X[connected], 2 * powers)
    X = kernel.X[others]
    d = kernel.diagonal[others]
    G = kernel.inner
    gram = X.T @ X

    def logs(z: Complex) -> Complex:
        found = np.empty(len(z), dtype=np.complex128)
        for n, one in enumerate(z):
            terms = -((-one) ** np.arange(1, len(traces) + 1)) / np.arange(1, len(traces) + 1)
            middle = X.T @ (X / (1.0 + one * d)[:, None]) if d.any() else gram
            middle = middle + np.tensordot((-one) ** np.arange(len(moments)), moments, axes=1)
            sign, size = np.linalg.slogdet(np.eye(len(G)) + one * (G @ middle))
            found[n] = np.log1p(one * d).sum() + terms @ traces + size + np.log(sign)
        return found

    return logs


def _plus_diagonal(S: csr_array, d: Array) -> csr_array:
    return csr_array(S + diags_array(d)) if d.any() else S


def _powers_needed(A: csr_array) -> int | None:
    """Return a j for which tr A²ʲ is negligible, by random signs; None if it is too large."""
    Z = np.sign(stream(0).random((A.shape[0], 8)) - 0.5)
    for j in range(1, MAX_POWERS + 1):
        Z = A @ Z
        if np.square(Z).sum(axis=0).max() <= NEGLIGIBLE:
            return j + 1
    return None


def _traces(A: csr_array, powers: int, skew: bool, n_jobs: int) -> Array:
    """Return tr Aᵏ for k = 1..2·powers, by products with some columns of the identity at a time.

    tr Aⁱ⁺ʲ is the sum of the products of the entries of (Aᵀ)ⁱ and Aʲ. A skew A has Aᵀ = −A.
    """
    n = A.shape[0]
    n_blocks = -(-n // IDENTITY_COLUMNS)
    At = None if skew else A.T.tocsr()
    parts = np.zeros((n_blocks, 2 * powers))

    def work(block: int) -> None:
        columns = np.arange(block * IDENTITY_COLUMNS, min((block + 1) * IDENTITY_COLUMNS, n))
        right = np.zeros((n, len(columns)))
        right[columns, np.arange(len(columns))] = 1.0
        left = right
        sign = 1.0  # (Aᵀ)ʲ is sign · left
        for j in range(powers):
            further = A @ right
            parts[block, 2 * j] = sign * np.vdot(left, further)
            left, sign = (further, -sign) if At is None else (At @ left, 1.0)
            right = further
            parts[block, 2 * j + 1] = sign * np.vdot(left, right)

    with blas_threads(1):
        run_blocks(work, n_blocks, n_jobs)
    return np.asarray(parts.sum(axis=0), dtype=np.float64)


def _moments(A: csr_array, X: Array, n: int) -> Array:
    """Return Xᵀ Aᵏ X for k = 0..n (n + 1, r, r)."""
    out = np.empty((n + 1, X.shape[1], X.shape[1]))
    Y = X
    for k in range(n + 1):
        out[k] = X.T @ Y
        Y = A @ Y
    return out
