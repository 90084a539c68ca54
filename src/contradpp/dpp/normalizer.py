"""The distribution of a DPP as a whole: its normaliser, marginals, expected size and distribution of sizes.

They rest on I + L. A symmetric L = D + V Vᵀ needs nothing but the small matrix Vᵀ (I + D)⁻¹ V. In general, with
N = I + D + S, det(I + L) = Π(1 + d) det(I + S̃) det(I + G Xᵀ N⁻¹ X),  S̃ = (I + D)^-½ S (I + D)^-½,  and
(I + L)⁻¹ = N⁻¹ − N⁻¹ X (I + G Xᵀ N⁻¹ X)⁻¹ G Xᵀ N⁻¹. Only items with partners enter I + S̃, which is a dense matrix for
up to MOST_DENSE of them; beyond, its determinant and diagonal are estimated by random probes (`ByProbes`). Rankings
never need it.

P(|Y| = k) comes from E z^|Y| = det(I + zL) / det(I + L). For L = V Vᵀ these are the elementary symmetric polynomials of
its eigenvalues. Any other kernel is asked at roots of unity z, and a Fourier transform gives the probabilities. With
A = D + S over the items with partners and d over the others, det(I + zL) =
Π(1 + z d) · det(I + zA) · det(I + z G Xᵀ (I + z(D + S))⁻¹ X). What has an A in it is a power series in z, with
coefficients tr Aᵏ and Xᵀ Aᵏ X that are computed once, by sparse products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

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
from contradpp._threads import blas_threads, run_blocks
from contradpp.dpp import compiled, scoring
from contradpp.dpp.linalg import cholesky_threads, log_elementary_symmetric
from contradpp.errors import NumericalError, ParameterError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel, Skew

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Logs = Callable[[Complex], Complex]  # log det(I + zL) for every z


MOST_DENSE = 4_000  # items; no dense matrix is larger
_MOST_DENSE_ROUGH = 500  # items up to which a dense matrix is as quick as a rough estimate
# Up to this norm of S̃, forming I + S̃ᵀS̃ costs at most eight digits, and half the time.
_MODEST = 1e4
_LARGEST_SKEW = 1e10  # beyond, the identity is rounding beside S̃
LOST = 1e-6  # the error of log det(I + L) or of a marginal that is not accepted
_FAR_HEAVIER = 1e8  # the ratio of weights from which sums of squares would lose more than half of all digits
_SINGULAR = "I + L is singular to rounding: some items are so heavy that nothing else counts"

# Of probes.
COLUMNS_PER_BLOCK = 8
ROWS_PER_BLOCK = 4096
MOST_STEPS = 400
_PILOT, _PILOT_SHARE = 2, 1e-4  # probes that choose the polynomials, and how precise their quadrature is
_SMALL_SHARE = 0.05  # of the wanted error, which the quadrature may take

# Of the distribution of sizes.
_FEW = 500  # items up to which eigenvalues are the quickest way
_COLUMNS = 32  # of the identity at a time: what is made of them stays in the cache
_MOST_POWERS = 40
_NEGLIGIBLE = 1e-16
_INSTEAD = "Draw sets by sample(method='chain') and count their sizes instead"


class Precision(NamedTuple):
    """How precise answers should be."""

    error: float = 0.005  # the standard error of log det(I + S) to aim at
    fewest: int = 64  # probes of the determinant; with fewer, its error is not well known itself
    most: int = 256  # even if the error is larger then
    of_diagonal: int = 32  # probes
    tolerance: float = 1e-10  # of a residual, relative to the right-hand side


FINE = Precision()
ROUGH = Precision(of_diagonal=8, tolerance=1e-3)


class Estimate(NamedTuple):
    """A value and its standard error, 0 where it is exact."""

    value: float
    error: float


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
        scoring.refuse_impossible(kernel, given)
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
    if not kernel.skew.n_entries and not kernel.has_diagonal:
        values = eigvals(kernel.gain @ (kernel.root.T @ kernel.root))
    else:
        instead = "Take a LowRankDPP, L = V Vᵀ."
        refuse_too_many(kernel.n_items, "eigenvalues of this kernel are for few items", instead)
        find = eigvalsh if kernel.symmetric else eigvals
        with blas_threads(kernel.n_jobs):
            values = find(kernel.matrix(), overwrite_a=True, check_finite=False)
    sizes = np.abs(values)
    order = np.argsort(-sizes, kind="stable")
    found: NDArray[Any] = values[order[sizes[order] > len(values) * np.finfo(float).eps * sizes.max(initial=0.0)]]
    return found


def log_size_distribution(kernel: Kernel) -> Array:
    """log P(|Y| = k) for k = 0..K if L = V Vᵀ, else for k = 0..rank, to an absolute precision of some 1e-15.

    `NumericalError` where det(I + L) by the eigenvalues is off by 1e-6 or more.
    """
    if kernel.symmetric and not kernel.has_diagonal:
        refuse_lost(kernel.root)
        return _by_symmetric_polynomials(kernel.eigen[0], kernel.n_components)
    refuse_too_many(
        len(kernel.skew.connected), "the distribution of sizes takes the whole kernel of the items with partners",
        _INSTEAD,
    )  # fmt: skip
    logs: Logs | None = None if kernel.n_items <= _FEW else _logs_by_series(kernel)
    if logs is None:
        refuse_too_many(kernel.n_items, "the distribution of sizes takes all eigenvalues", _INSTEAD)
        values = eigenvalues(kernel)
        if kernel.symmetric:
            return _by_symmetric_polynomials(np.maximum(values.real, 0.0), kernel.rank)
        logs = _logs_by_eigenvalues(values)
    if not abs(logs(np.ones(1, dtype=np.complex128))[0].real - kernel.log_normalizer) <= LOST:
        raise NumericalError("the eigenvalues of L are lost to rounding beside the largest. " + _INSTEAD)
    shares = _coefficients(logs, kernel.rank + 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(shares / shares.sum()), dtype=np.float64)


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


# -- Without a dense matrix: Lanczos quadrature, and conjugate gradients -----------------------------------

# With B = SᵀS = −S² ≥ 0: log det(I + S) = ½ tr log(I + B), and (I ± S)⁻¹ = (I ∓ S)(I + B)⁻¹. A trace is the mean of
# zᵀ f(B) z over random signs z. What a polynomial c₀ + c₁ B + c₂ B² has of f is known exactly, because tr B and tr B²
# are: only the rest is estimated, so that its spread is small. docs/theory.md derives estimates and errors.
# Probes come in blocks with random streams of their own: results depend neither on the number of threads nor on luck.


class Spectrum(NamedTuple):
    """Gauss rules of some probes: zᵀ f(B) z / ‖z‖² is about Σ weights f(nodes), in each row."""

    nodes: Array  # (probes, steps): eigenvalues of B
    weights: Array  # (probes, steps)
    width: Array  # (probes,): how much two rules, one above and one below, differ for ½ log(1 + B)


def half_log(x: Array) -> Array:
    """½ log(1 + x)."""
    return np.asarray(0.5 * np.log1p(x), dtype=np.float64)


class ByProbes:
    """I + S over items of which nearly all have partners, S = −Sᵀ a CSR array; `seed` is that of the random signs."""

    def __init__(self, S: Any, n_jobs: int = 1, precision: Precision = FINE, *, seed: int = 0) -> None:
        self.S, self.n_jobs, self.precision, self.seed = S, n_jobs, precision, seed
        self.n = S.shape[0]
        self.squares = _row_squares(S)  # the diagonal of B
        self.fourth = self._diagonal_of_square()  # that of B²
        self.pilot = self._quadrature(self._signs(0)[:, :_PILOT], share=_PILOT_SHARE)

    # -- What it answers ---------------------------------------------------------------------------

    def log_det(self) -> Estimate:
        """log det(I + S): the exact part, and the mean of the rest over as many probes as the precision asks for."""
        c = self._polynomial(half_log, 2)
        exact = c[0] * self.n + c[1] * self.squares.sum() + c[2] * self.fourth.sum()
        error, fewest, most = self.precision[:3]
        values, widths = np.empty(0), np.empty(0)
        missing = float(fewest)
        while missing > 0:
            done = len(values) // COLUMNS_PER_BLOCK
            more = self._rests(c, done, done + int(np.ceil(missing / COLUMNS_PER_BLOCK)), _SMALL_SHARE * error)
            values, widths = np.append(values, more[0]), np.append(widths, more[1])
            spread = float(values.std(ddof=1))
            missing = min((spread / error) ** 2, float(most)) - len(values)
        uncertainty = float(np.hypot(spread / np.sqrt(len(values)), widths.mean() / 2))
        return Estimate(float(exact + values.mean()), uncertainty)

    def solve_both(self, X: Array) -> tuple[Array, Array]:
        """(I + S)⁻¹ X and (I + S)⁻ᵀ X."""
        plain, transposed = np.empty_like(X), np.empty_like(X)

        def work(block: int) -> None:
            part = slice(block * COLUMNS_PER_BLOCK, (block + 1) * COLUMNS_PER_BLOCK)
            Y = self.solve(np.ascontiguousarray(X[:, part]))
            SY = self.S @ Y
            plain[:, part], transposed[:, part] = Y - SY, Y + SY

        run_blocks(work, -(-X.shape[1] // COLUMNS_PER_BLOCK), self.n_jobs)
        return plain, transposed

    def complement_diagonal(self) -> Array:
        """The diagonal of I − (I + S)⁻¹, and the standard error of each entry (2, n).

        It is s_iᵀ (I + B)⁻¹ s_i, s_i column i of S: the estimate's error is a share of that, so that an item with small
        entries has a small one.
        """
        c = self._polynomial(lambda x: 1.0 / (1.0 + x), 1)
        n_blocks = -(-self.precision.of_diagonal // COLUMNS_PER_BLOCK)
        sums, squares = np.empty((n_blocks, self.n)), np.empty((n_blocks, self.n))

        def work(block: int) -> None:
            Z = self._signs(block + 1)
            SZ = self.S @ Z
            rest = self.solve(Z) - c[0] * Z + c[1] * (self.S @ SZ)  # S S z = −B z
            terms = SZ * (self.S @ rest)
            sums[block], squares[block] = terms.sum(axis=1), np.square(terms).sum(axis=1)

        run_blocks(work, n_blocks, self.n_jobs)
        count = n_blocks * COLUMNS_PER_BLOCK
        mean: Array = sums.sum(axis=0) / count
        variance = np.maximum(squares.sum(axis=0) / count - mean**2, 0.0) / (count - 1)
        inside = np.clip(c[0] * self.squares + c[1] * self.fourth + mean, 0.0, 1.0)
        return np.stack([inside, np.sqrt(variance)])

    def solve(self, R: Array) -> Array:
        """(I + B)⁻¹ R by conjugate gradients, column by column, until ‖R − (I + B) Y‖ ≤ tolerance · ‖R‖ in each.

        `NumericalError` if they do not get there, or if the residual computed anew contradicts them by far.
        """
        S, tolerance = self.S, self.precision.tolerance
        Y, left, direction = np.zeros_like(R), R.copy(), R.copy()
        goal = tolerance**2 * _columns(R, R)
        size = _columns(left, left)
        for _ in range(MOST_STEPS * 5):
            if (size <= goal).all():
                break
            image = direction - S @ (S @ direction)
            step = _ratio(size, _columns(direction, image))
            Y += step * direction
            left -= step * image
            before, size = size, _columns(left, left)
            direction *= _ratio(size, before)
            direction += left
        left = R - Y + S @ (S @ Y)
        if (_columns(left, left) > 1e4 * goal).any():
            largest = float(self.pilot.nodes.max(initial=0.0)) ** 0.5
            raise NumericalError(
                f"conjugate gradients did not solve I + S to {tolerance:.0e}: S is too large beside the identity (its "
                f"largest singular value is {largest:.1e})"
            )
        return Y

    # -- How ---------------------------------------------------------------------------------------

    def _signs(self, block: int) -> Array:
        """The probes of a block (n, COLUMNS_PER_BLOCK): random signs."""
        bits = stream(self.seed, block).integers(0, 2, size=(self.n, COLUMNS_PER_BLOCK), dtype=np.int8)
        return np.asarray(2.0 * bits - 1.0, dtype=np.float64)

    def _diagonal_of_square(self) -> Array:
        """Σ_j (B_ij)² for every i."""
        out = np.empty(self.n)
        parts = self.S.indptr.astype(np.int64), self.S.indices.astype(np.int32), self.S.data

        def work(block: int) -> None:
            first = block * ROWS_PER_BLOCK
            compiled.kernels.square_row_lengths(*parts, first, min(first + ROWS_PER_BLOCK, self.n), out)

        run_blocks(work, -(-self.n // ROWS_PER_BLOCK), self.n_jobs)
        return out

    def _polynomial(self, f: Callable[[Array], Array], degree: int) -> Array:
        """The coefficients of the polynomial that is nearest to f on the eigenvalues of B, as the pilot saw them."""
        x, root = self.pilot.nodes.ravel(), np.sqrt(self.pilot.weights.ravel())
        powers = np.vander(x, degree + 1, increasing=True)
        scale = np.maximum(np.abs(powers).max(axis=0, initial=0.0), 1e-300)
        found = np.linalg.lstsq(powers / scale * root[:, None], f(x) * root, rcond=1e-10)[0] / scale
        return np.asarray(found, dtype=np.float64)

    def _rests(self, c: Array, first: int, last: int, allowed: float) -> tuple[Array, Array]:
        """zᵀ (½ log(1 + B) − polynomial) z for the probes of some blocks, and how far two rules differ."""
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
        """Gauss rules of the probes by Lanczos steps: S q_j = β_j q_{j+1} − β_{j−1} q_{j−1}, as S is skew.

        An even number of steps gives a rule for B whose value of ½ log(1 + B) is too large, an odd one (with a node
        at zero) one that is too small. Steps are made until the two differ by `allowed` over the whole trace, or by
        this share of it; the rules returned are those of an even number.
        """
        q, before = Z / np.sqrt(self.n), np.zeros_like(Z)
        betas: list[Array] = []
        check = 4
        while True:
            w = self.S @ q
            if betas:
                w += betas[-1] * before
            beta = np.sqrt(_columns(w, w))
            before, q = q, w * _ratio(np.ones_like(beta), beta)
            betas.append(beta)
            if len(betas) < check:
                continue
            rule = _rule(np.array(betas).T)
            total = (rule.weights * half_log(rule.nodes)).sum(axis=1)
            if (self.n * rule.width <= np.maximum(allowed, share * self.n * total)).all() or check >= MOST_STEPS:
                return rule
            check = min(2 * (int(1.2 * check) // 2 + 1), MOST_STEPS)


def _rule(betas: Array) -> Spectrum:
    """The rules of as many steps as there are betas (probes, steps): an even number."""
    nodes, weights, widths = np.empty_like(betas), np.empty_like(betas), np.empty(len(betas))
    for p, beta in enumerate(betas):
        nodes[p], weights[p] = _gauss(beta[:-1])
        below = _gauss(beta[:-2])
        widths[p] = max(weights[p] @ half_log(nodes[p]) - below[1] @ half_log(below[0]), 0.0)
    return Spectrum(nodes, weights, widths)


def _gauss(beta: Array) -> tuple[Array, Array]:
    """Nodes and weights from the tridiagonal matrix with zero diagonal: squares of eigenvalues, of first entries."""
    values, vectors = eigh_tridiagonal(np.zeros(len(beta) + 1), beta)
    return np.square(values), np.square(vectors[0])


def _row_squares(A: Any) -> Array:
    """The sum of squares of every row of a CSR array."""
    sums: Array = np.asarray(A.multiply(A).sum(axis=1), dtype=np.float64).ravel()
    return sums


def _columns(A: Array, B: Array) -> Array:
    """The scalar products of the columns of two matrices."""
    return np.asarray(np.einsum("ij,ij->j", A, B), dtype=np.float64)


def _ratio(above: Array, below: Array) -> Array:
    """above / below, 0 where below is 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


# -- Sizes -----------------------------------------------------------------------------------------------


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
