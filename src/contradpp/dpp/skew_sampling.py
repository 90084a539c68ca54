"""Exact samples of a nonsymmetric DPP: one factorisation of I + L, then milliseconds a sample.

Items are eliminated from I + L one by one; a sample goes back the same way and decides on each item given the ones
before it (see `compiled.skew_draws`; the idea of sampling along an LU factorisation is Poulson's, 2019). Items without
partners are eliminated within the r × r gain, so that only those with partners take a dense matrix. No pivoting is
needed: the symmetric part of I + L, and of whatever is left of it, is at least the identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from contradpp._random import stream
from contradpp._threads import blas_threads, run_blocks
from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Array
from contradpp.dpp.resolvent import refuse_too_many
from contradpp.errors import ParameterError, RankError

if TYPE_CHECKING:
    from contradpp.dpp.nonsymmetric import NonsymmetricKernel

SAMPLES_PER_BLOCK = 64
MOST_TRIES = 10_000
_SMALL_BLOCK = 64


class Elimination(NamedTuple):
    """The factors of I + L: dense for the items with partners, of low rank for the others, in that order."""

    order: NDArray[np.int64]  # the code of every position
    X: Array  # (M, r)
    lu: Array  # (c, c)
    columns: Array  # (M − c, r)
    rows: Array  # (M − c, r)
    pivots: Array  # (M − c,)


class SkewSampler:
    """A nonsymmetric kernel prepared for sampling: made once, asked often."""

    def __init__(self, kernel: NonsymmetricKernel) -> None:
        refuse_too_many(len(kernel.skew.connected), "samples")
        self.kernel = kernel
        self.n_jobs = kernel.n_jobs
        self._made: tuple[int | None, Elimination] | None = None  # the last one, and the size that it is for

    @property
    def rank(self) -> int:
        """The largest size that a sample can have, or a bound of it."""
        return self.kernel.rank

    def sample(self, n: int, *, seed: int, size: int | None = None) -> Sets:
        """n independent sets; of exactly `size` items if it is given.

        The law of sets of one size is that of the kernel at any scale: sets are drawn at the scale whose expected size
        is `size`, until one has it. The samples depend on the seed only, not on the number of threads.
        """
        from contradpp.dpp.compiled import skew_draws

        if n < 0:
            raise ParameterError(f"n_samples must not be negative, got {n}")
        if size is not None and not 0 <= size <= self.rank:
            raise RankError(f"size must lie in 0..{self.rank}, the rank of the kernel, got {size}")
        sizes = np.zeros(n, dtype=np.int64)
        n_blocks = -(-n // SAMPLES_PER_BLOCK)
        items: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)] * n_blocks
        if size == 0 or n == 0 or self.rank == 0:
            n_blocks = 0
        else:
            order, X, lu, columns, rows, pivots = self._prepared(size)
        wanted, most = (-1, self.rank) if size is None else (size, size)

        def work(block: int) -> None:
            first = block * SAMPLES_PER_BLOCK
            where = sizes[first : first + SAMPLES_PER_BLOCK]
            rng = stream(seed, block)
            drawn = skew_draws.draw_sets(X, lu, columns, rows, pivots, rng, len(where), most, wanted, MOST_TRIES, where)
            if (where < 0).any():
                raise ParameterError(
                    f"none of {MOST_TRIES:,} sets had {size} items: sets of this size have probability zero, or nearly"
                )
            items[block] = order[drawn].astype(np.int32)

        run_blocks(work, n_blocks, self.n_jobs)
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return Sets(indptr, np.concatenate([np.empty(0, dtype=np.int32), *items]))

    def _prepared(self, size: int | None) -> Elimination:
        if self._made is None or self._made[0] != size:
            self._made = None  # so that only one is in memory
            kernel = self.kernel if size is None else self.kernel.scaled(scale_for_size(self.kernel, size))
            self._made = size, eliminate(kernel)
        return self._made[1]


def eliminate(kernel: NonsymmetricKernel) -> Elimination:
    """The factors of I + L: items without partners first."""
    from contradpp.dpp.compiled import skew_draws

    dense = kernel.skew.connected
    others = np.setdiff1d(np.arange(kernel.n_items), dense)
    order = np.concatenate([dense, others])
    X, G = kernel.factors[order], kernel.gain.copy()
    columns, rows, pivots = (
        np.empty((len(others), X.shape[1])),
        np.empty((len(others), X.shape[1])),
        np.empty(len(others)),
    )
    skew_draws.eliminate_rows(X[len(dense) :], G, columns, rows, pivots)
    with blas_threads(kernel.n_jobs):
        lu = X[: len(dense)] @ G @ X[: len(dense)].T
        if len(dense):
            lu += kernel.skew.dense(dense)
        lu[np.diag_indices_from(lu)] += 1.0
        factorise(lu)
    return Elimination(order, X, lu, columns, rows, pivots)


def factorise(A: Array) -> None:
    """The LU factors of A in its place, without pivoting, by halves: nearly all of it is matrix products."""
    from contradpp.dpp.compiled import skew_draws

    n = len(A)
    if n <= _SMALL_BLOCK:
        block = np.ascontiguousarray(A)
        skew_draws.eliminate(block)
        A[:] = block
        return
    h = n // 2
    factorise(A[:h, :h])
    A[:h, h:] = solve_triangular(A[:h, :h], A[:h, h:], lower=True, unit_diagonal=True, check_finite=False)
    A[h:, :h] = solve_triangular(A[:h, :h].T, A[h:, :h].T, lower=True, check_finite=False).T
    A[h:, h:] -= A[h:, :h] @ A[:h, h:]
    factorise(A[h:, h:])


def scale_for_size(kernel: NonsymmetricKernel, size: int, *, most: int = 12) -> float:
    """A factor c such that sets of the kernel c L have about `size` items; the size grows with c.

    A few steps of the secant method in logarithms; it need not be exact, as it only decides how many tries it takes.
    """
    target = min(float(size), kernel.rank - 0.3)
    x, low, high, slope = 0.0, -np.inf, np.inf, 1.0
    before: tuple[float, float] | None = None
    for _ in range(most):
        expected = kernel.scaled(np.exp(x)).expected_size
        if abs(expected - target) <= 0.2 * np.sqrt(target) or abs(x) > 60:
            break
        low, high = (x, high) if expected < target else (low, x)
        log = float(np.log(max(expected, 1e-300)))
        if before is not None and x != before[0]:
            slope = min(max((log - before[1]) / (x - before[0]), 0.05), 3.0)
        before = x, log
        x += (np.log(target) - log) / slope
        if not low < x < high:
            x = (low + high) / 2
    return float(np.exp(x))
