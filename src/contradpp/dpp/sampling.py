"""Samples of a DPP and of its sets of one size: exact ones, prepared once and then drawn in milliseconds; or a chain's.

L = V Vᵀ is sampled by its eigenvectors, at a cost per sample that does not grow with the catalogue. Any other kernel by
elimination: items leave I + L one by one, and a sample goes back the same way and decides on each given the ones before
it (see `compiled.samples`; the idea of sampling along an LU factorisation is Poulson's, 2019). Items without partners
are eliminated within the r × r gain, so that only those with partners take a dense matrix. No pivoting is needed: the
symmetric part of I + L, and of whatever is left of it, is at least the identity.

A kernel too large for that is sampled by a Markov chain (`compiled.samples`), whose law only tends to that of the DPP.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from contradpp._random import stream
from contradpp._threads import blas_threads, run_blocks
from contradpp.data.sets import Sets, pointers
from contradpp.dpp import compiled, normalizer, scoring
from contradpp.dpp.linalg import log_elementary_symmetric, triangle
from contradpp.dpp.normalizer import ROUGH
from contradpp.errors import ParameterError, RankError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, NDArray[np.int64]], NDArray[np.int32]]  # fills in the sizes, returns the items
SAMPLES_PER_BLOCK = {"eigenvectors": 1024, "elimination": 64, "chain": 4}
MOST_TRIES = 10_000
MOST_PREPARED = 4  # samplers that are kept, each with up to a dense matrix over the items with partners
FEWEST_STEPS, STEPS_PER_ITEM = 1000, 200  # of a chain
_SMALL_BLOCK = 64
_NOTHING = np.empty(0, dtype=np.int32)


class Eigenvectors(NamedTuple):
    """The orthonormal eigenvectors of L = V Vᵀ: with VᵀV = U Λ Uᵀ, the columns of V U Λ^(−1/2), largest first."""

    values: Array  # (r,)
    columns: Array  # (M, r)
    cumulative: Array  # (r, M): the running sums of the squares of each column


class Elimination(NamedTuple):
    """The factors of I + L: dense for the items with partners, of low rank for the others, in that order."""

    order: NDArray[np.int64]  # the code of every position
    X: Array  # (M, r)
    lu: Array  # (c, c)
    columns: Array  # (M − c, r)
    rows: Array  # (M − c, r)
    pivots: Array  # (M − c,)


class Sampler:
    """A kernel prepared for sampling: made once, asked often."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.n_jobs = kernel.n_jobs
        self.way = "eigenvectors" if kernel.symmetric and not kernel.has_diagonal else "elimination"
        refuse_too_large(kernel)
        self._vectors = eigenvectors(kernel) if self.way == "eigenvectors" else None
        self._made: tuple[int | None, Elimination] | None = None  # the last one, and the size that it is for
        self._table = 0, np.empty((0, 0))  # symmetric polynomials up to this size

    @property
    def rank(self) -> int:
        """The largest size that a sample can have, or a bound of it."""
        return self.kernel.rank

    def sample(self, n: int, *, seed: int, size: int | None = None) -> Sets:
        """n independent sets; of exactly `size` items if it is given.

        The samples depend on the seed only, not on the number of threads.
        """
        if n < 0:
            raise ParameterError(f"n_samples must not be negative, got {n}")
        if size is not None and not 0 <= size <= self.rank:
            raise RankError(f"size must lie in 0..{self.rank}, the rank of the kernel, got {size}")
        if not n or not self.rank or size == 0:
            return Sets(np.zeros(n + 1, dtype=np.int64), np.empty(0, dtype=np.int32))
        if self._vectors is None:
            draw = self._by_elimination(size)
        else:
            table = self._table
            if size is not None and size != table[0]:
                table = self._table = size, log_elementary_symmetric(self._vectors.values, size)
            draw = _by_eigenvectors(self._vectors, size, table[1])
        return _in_blocks(draw, n, SAMPLES_PER_BLOCK[self.way], seed, self.n_jobs)

    def _by_elimination(self, size: int | None) -> Draw:
        """The law of sets of one size is that of the kernel at any scale.

        Sets are drawn at the scale whose expected size is `size`, until one has it.
        """
        made = self._made
        if made is None or made[0] != size:
            made = self._made = None  # so that only one is in memory
            kernel = self.kernel if size is None else self.kernel.scaled(scale_for_size(self.kernel, size))
            made = self._made = size, eliminate(kernel)
        order, X, lu, columns, rows, pivots = made[1]
        wanted, most = (-1, self.rank) if size is None else (size, size)

        def draw(rng: np.random.Generator, sizes: NDArray[np.int64]) -> NDArray[np.int32]:
            drawn = compiled.samples.draw_sets(
                X, lu, columns, rows, pivots, rng, len(sizes), most, wanted, MOST_TRIES, sizes
            )
            if (sizes < 0).any():
                raise ParameterError(
                    f"none of {MOST_TRIES:,} sets had {size} items: sets of this size have probability zero, or nearly"
                )
            return order[drawn].astype(np.int32)

        return draw


class Samplers:
    """The samplers of a kernel given items, the last few of which are kept."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._kept: OrderedDict[tuple[tuple[int, ...], int | None], tuple[Sampler, NDArray[np.int64]]] = OrderedDict()

    def given(self, items: NDArray[np.int32], size: int | None) -> tuple[Sampler, NDArray[np.int64]]:
        """A sampler of what may join these items, for sets of this size (it is prepared for one), and their codes."""
        key = tuple(items.tolist()), None if self.kernel.symmetric and not self.kernel.has_diagonal else size
        prepared = self._kept.pop(key, None)  # another thread may be here, too
        if prepared is None:
            refuse_too_large(self.kernel)
            kernel, rest = self.kernel.condition(items)
            prepared = Sampler(kernel), rest
        self._kept[key] = prepared
        while len(self._kept) > MOST_PREPARED:
            self._kept.popitem(last=False)
        return prepared

    def sample(
        self, n: int, *, seed: int, size: int | None = None, given: NDArray[np.int32] = _NOTHING
    ) -> Sets:  # fmt: skip
        """n independent sets that hold the given items, which come first; of exactly `size` items if it is given."""
        left = None if size is None else size - len(given)
        sampler, rest = self.given(given, left)
        refuse_too_many(size, sampler.rank + len(given))
        sampler.n_jobs = self.kernel.n_jobs
        drawn = sampler.sample(n, seed=seed, size=left)
        if not len(given):
            return drawn
        codes = np.insert(rest[drawn.indices], np.repeat(drawn.indptr[:-1], len(given)), np.tile(given, drawn.count))
        return Sets(drawn.indptr + len(given) * np.arange(drawn.count + 1), codes.astype(np.int32))


class Chain:
    """A Markov chain over the sets of a kernel, for one that is too large for exact samples.

    Every sample is the last set of a chain of its own, so that samples are independent of each other; how near their
    law is to the DPP's depends on the number of steps. A step costs O(k³ + k r) for sets of k items.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        skew, norms, r = kernel.skew, kernel.squared_norms, kernel.skew.values**2
        owner = np.repeat(np.arange(kernel.n_items), np.diff(skew.indptr))
        self.squares = np.bincount(owner, r, minlength=kernel.n_items).astype(np.float64)
        running = np.concatenate([[0.0], np.cumsum(r / self.squares[owner])])
        self.shares: Array = running[1:] - running[skew.indptr[owner]]
        odds = norms + self.squares / (1.0 + norms)  # P(i ∈ Y) to first order, in S
        self.inclusion: Array = odds / (1.0 + odds)

    def sample(
        self, n: int, *, seed: int, size: int | None = None, given: NDArray[np.int32] = _NOTHING,
        n_steps: int | None = None,
    ) -> Sets:  # fmt: skip
        """n sets that hold the given items, which come first; of exactly `size` items if it is given."""
        kernel, total = self.kernel, float(self.inclusion.sum())
        if len(given):
            scoring.refuse_impossible(kernel, given)
        if n_steps is None:
            n_steps = chain_steps(len(given) + total if size is None else size)
        weights = self.inclusion / total if total else self.inclusion
        by = compiled.samples.Proposals(weights, np.cumsum(weights), self.squares, self.shares)
        parts = compiled.samples.Parts(kernel.left, kernel.wide, kernel.diagonal, *kernel.skew)
        fixed = np.ascontiguousarray(given, dtype=np.int32)

        def draw(rng: np.random.Generator, sizes: NDArray[np.int64]) -> NDArray[np.int32]:
            drawn = []
            for s in range(len(sizes)):
                items, found = compiled.samples.run_chain(parts, by, fixed, -1 if size is None else size, n_steps, rng)
                if not found:
                    raise ParameterError(f"no set of {size} items was found: their probability is zero, or nearly")
                drawn.append(items)
                sizes[s] = len(items)
            return np.concatenate(drawn)

        if not n or not total:
            return Sets(len(given) * np.arange(n + 1), np.tile(fixed, n))
        return _in_blocks(draw, n, SAMPLES_PER_BLOCK["chain"], seed, kernel.n_jobs)


def chain_steps(size: float) -> int:
    """How many steps a chain makes for sets of about this size, unless it is told."""
    return FEWEST_STEPS + int(STEPS_PER_ITEM * size)


def _by_eigenvectors(vectors: Eigenvectors, size: int | None, table: Array) -> Draw:
    """A sample picks eigenvectors (Kulesza and Taskar 2012, Algorithms 1 and 8), then items by rejection."""
    values, columns, cumulative = vectors
    inclusion = values / (1.0 + values)
    expected = float(inclusion.sum()) if size is None else size
    proposed = 3 * expected * (np.log(expected + 1.0) + 1.0)  # numbers that items take, besides one an eigenvector

    def draw_some(uniforms: Array, sizes: NDArray[np.int64]) -> tuple[NDArray[np.int32], int, int]:
        if size is None:
            return compiled.samples.sample_dpp(columns, cumulative, inclusion, uniforms, sizes)
        return compiled.samples.sample_k_dpp(columns, cumulative, np.log(values), table, size, uniforms, sizes)

    def draw(rng: np.random.Generator, sizes: NDArray[np.int64]) -> NDArray[np.int32]:
        drawn, uniforms, done = [], np.empty(0), 0
        while done < len(sizes):
            n = len(sizes) - done
            enough = n * (len(values) + proposed) + 2 * np.sqrt(n) * proposed + 16  # nearly always
            uniforms = np.concatenate([uniforms, rng.random(int(enough))])
            items, n, used = draw_some(uniforms, sizes[done:])
            drawn.append(items)
            uniforms, done = uniforms[used:], done + n
        return np.concatenate(drawn)

    return draw


def _in_blocks(draw: Draw, n: int, step: int, seed: int, n_jobs: int) -> Sets:
    """n sets, so many at a time, each block by a random stream of its own."""
    sizes = np.zeros(n, dtype=np.int64)
    items: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)] * -(-n // step)

    def work(block: int) -> None:
        items[block] = draw(stream(seed, block), sizes[block * step : (block + 1) * step])

    run_blocks(work, len(items), n_jobs)
    return Sets(pointers(sizes), np.concatenate([np.empty(0, dtype=np.int32), *items]))


def refuse_too_many(size: int | None, most: int) -> None:
    """Raise `RankError` if sets of this size are impossible."""
    if size is not None and size > most:
        message = f"size={size} is more than {most}, the most items that a set can have here"
        raise RankError(message, parameters=("size",))


def refuse_too_large(kernel: Kernel) -> None:
    """Raise `ParameterError` if the kernel has too many items with partners for exact samples."""
    normalizer.refuse_too_many(
        len(kernel.skew.connected), "exact samples take a dense matrix over the items with partners",
        "Use method='chain', a Markov chain, instead",
    )  # fmt: skip


def eigenvectors(kernel: Kernel) -> Eigenvectors:
    """The eigenvectors of L = V Vᵀ in O(M K²)."""
    values, vectors = (array[..., ::-1] for array in kernel.eigen)
    Y = vectors.T @ kernel.vectors.astype(np.float64, copy=False).T  # (r, M)
    Y /= np.linalg.norm(Y, axis=1, keepdims=True)
    # Where eigenvalues span many orders, the small ones' vectors lean on the large: set them upright.
    with blas_threads(1):
        R = triangle(Y.T, kernel.n_jobs)
    Y = solve_triangular(R, Y, trans="T")
    return Eigenvectors(np.ascontiguousarray(values), np.ascontiguousarray(Y.T), np.cumsum(Y**2, axis=1))


def eliminate(kernel: Kernel) -> Elimination:
    """The factors of I + L: items without partners first."""
    dense = kernel.skew.connected
    others = np.setdiff1d(np.arange(kernel.n_items), dense)
    order = np.concatenate([dense, others])
    X, G, shift = kernel.wide[order], kernel.gain.copy(), 1.0 + kernel.diagonal[order]
    columns, rows = np.empty((len(others), X.shape[1])), np.empty((len(others), X.shape[1]))
    pivots = np.empty(len(others))
    compiled.samples.eliminate_rows(X[len(dense) :], shift[len(dense) :], G, columns, rows, pivots)
    with blas_threads(kernel.n_jobs):
        lu = X[: len(dense)] @ G @ X[: len(dense)].T
        if len(dense):
            lu += kernel.skew.dense(dense)
        lu[np.diag_indices_from(lu)] += shift[: len(dense)]
        factorise(lu)
    return Elimination(order, X, lu, columns, rows, pivots)


def factorise(A: Array) -> None:
    """The LU factors of A in its place, without pivoting, by halves: nearly all of it is matrix products."""
    n = len(A)
    if n <= _SMALL_BLOCK:
        block = np.ascontiguousarray(A)
        compiled.samples.eliminate(block)
        A[:] = block
        return
    h = n // 2
    factorise(A[:h, :h])
    A[:h, h:] = solve_triangular(A[:h, :h], A[:h, h:], lower=True, unit_diagonal=True, check_finite=False)
    A[h:, :h] = solve_triangular(A[:h, :h].T, A[h:, :h].T, lower=True, check_finite=False).T
    A[h:, h:] -= A[h:, :h] @ A[:h, h:]
    factorise(A[h:, h:])


def scale_for_size(kernel: Kernel, size: int, *, most: int = 12) -> float:
    """A factor c such that sets of the kernel c L have about `size` items; the size grows with c.

    A few steps of the secant method in logarithms; it need not be exact, as it only decides how many tries it takes.
    """
    target = min(float(size), kernel.rank - 0.3)
    spread = np.sqrt(min(target, kernel.rank - target + 1.0))  # of sizes: sets that are nearly full vary little
    x, low, high, slope = 0.0, -np.inf, np.inf, 1.0
    before: tuple[float, float] | None = None
    for _ in range(most):
        expected = normalizer.expected_size(kernel.scaled(np.exp(x)), ROUGH)
        if abs(expected - target) <= 0.2 * spread or abs(x) > 60:
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
