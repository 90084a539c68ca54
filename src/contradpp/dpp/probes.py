"""I + S for a sparse skew S of any size, without a dense matrix: Lanczos quadrature, and conjugate gradients.

With B = SᵀS = −S² ≥ 0: log det(I + S) = ½ tr log(I + B), and (I ± S)⁻¹ = (I ∓ S)(I + B)⁻¹. A trace is the mean of
zᵀ f(B) z over random signs z. What a polynomial c₀ + c₁ B + c₂ B² has of f is known exactly, because tr B and tr B²
are: only the rest is estimated, so that its spread is small. docs/theory.md derives estimates and errors.

Probes come in blocks with random streams of their own: results depend neither on the number of threads nor on luck.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from contradpp._random import stream
from contradpp._threads import run_blocks
from contradpp.dpp import compiled
from contradpp.errors import NumericalError

Array = NDArray[np.float64]
COLUMNS_PER_BLOCK = 8
ROWS_PER_BLOCK = 4096
MOST_STEPS = 400
_PILOT, _PILOT_SHARE = 2, 1e-4  # probes that choose the polynomials, and how precise their quadrature is
_SMALL_SHARE = 0.05  # of the wanted error, which the quadrature may take


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
