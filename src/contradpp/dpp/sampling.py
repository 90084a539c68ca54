"""Samples of a DPP, and of its sets of one size.

Exact samples are prepared once and then drawn in milliseconds. L = V Vᵀ is sampled by its
eigenvectors, at a cost per sample that does not grow with the number of items. Any other kernel is
sampled by elimination: items leave I + L one by one, and a sample goes back the same way and
decides on each item given those before it (see `compiled.samples`; the idea is Poulson's, 2019).
Items without an entry of S are eliminated within the r × r inner matrix, so that only connected
items take a dense matrix. No pivoting is needed: the symmetric part of I + L, and of what remains
of it, is at least I.

A kernel too large for that is sampled by a Markov chain, whose distribution tends to that of the
DPP.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from contradpp._random import stream
from contradpp._threads import blas_threads, run_blocks
from contradpp._types import Array, Codes, Ints, Rng
from contradpp.data.sets import Sets, pointers
from contradpp.dpp import compiled, normalizer, scoring
from contradpp.dpp.factor import NO_ITEMS
from contradpp.dpp.linalg import log_elementary_symmetric, triangle
from contradpp.dpp.normalizer import ROUGH
from contradpp.errors import ParameterError, RankError

if TYPE_CHECKING:
    from contradpp.dpp.compiled.samples import Elimination
    from contradpp.dpp.kernel import Kernel

Draw = Callable[[Rng, Ints], Codes]  # writes sizes of sets, returns their items
SAMPLES_PER_BLOCK = {"eigenvectors": 1024, "elimination": 64, "chain": 4}
MAX_TRIES = 10_000
MAX_PREPARED = 4  # samplers in memory, each with up to a dense matrix over the connected items
MIN_CHAIN_STEPS = 1000
CHAIN_STEPS_PER_ITEM = 200
SMALL_LU = 64


class Eigenvectors(NamedTuple):
    """The orthonormal eigenvectors of L = V Vᵀ, largest first.

    With VᵀV = U Λ Uᵀ they are the columns of V U Λ^(−1/2).
    """

    values: Array  # (r,)
    columns: Array  # (M, r)
    cumulative: Array  # (r, M): the running sums of the squares of each column


class Sampler:
    """A kernel prepared for exact samples."""

    def __init__(self, kernel: Kernel) -> None:
        refuse_too_large(kernel)
        self.kernel = kernel
        self.n_jobs = kernel.n_jobs
        self.way = "eigenvectors" if kernel.is_low_rank else "elimination"
        self._vectors = eigenvectors(kernel) if kernel.is_low_rank else None
        self._eliminated: tuple[int | None, tuple[Ints, Elimination]] | None = None  # by size
        self._polynomials = 0, np.empty((0, 0))  # size, symmetric polynomials up to it

    @property
    def rank(self) -> int:
        """The largest size that a sample can have, or an upper bound of it."""
        return self.kernel.rank

    def sample(self, n: int, *, seed: int, size: int | None = None) -> Sets:
        """Draw n independent sets, of exactly `size` items if it is given.

        The samples depend on the seed only, not on the number of threads.
        """
        if n < 0:
            raise ParameterError(f"n_samples must not be negative, got {n}")
        if size is not None and not 0 <= size <= self.rank:
            raise RankError(f"size must lie in 0..{self.rank}, the rank of the kernel, got {size}")
        if not n or not self.rank or size == 0:
            return Sets.empty(n)
        if self._vectors is None:
            draw = self._by_elimination(size)
        else:
            polynomials = self._polynomials
            if size is not None and size != polynomials[0]:
                polynomials = size, log_elementary_symmetric(self._vectors.values, size)
                self._polynomials = polynomials
            draw = _by_eigenvectors(self._vectors, size, polynomials[1])
        return _in_blocks(draw, n, SAMPLES_PER_BLOCK[self.way], seed, self.n_jobs)

    def _by_elimination(self, size: int | None) -> Draw:
        """Draw sets at the scale of L whose expected size is `size`, until one has that size.

        The distribution of sets of one size is the same at any scale.
        """
        eliminated = self._eliminated
        if eliminated is None or eliminated[0] != size:
            eliminated = self._eliminated = None  # so that only one is in memory
            kernel = self.kernel
            if size is not None:
                kernel = kernel.scaled(scale_for_size(kernel, size))
            eliminated = self._eliminated = size, eliminate(kernel)
        order, factors = eliminated[1]
        exact, most = (-1, self.rank) if size is None else (size, size)

        def draw(rng: Rng, sizes: Ints) -> Codes:
            drawn = compiled.samples.draw_sets(
                factors, rng, len(sizes), most, exact, MAX_TRIES, sizes
            )
            if (sizes < 0).any():
                raise ParameterError(
                    f"none of {MAX_TRIES:,} sets had {size} items: "
                    "sets of this size have probability zero, or nearly"
                )
            return order[drawn].astype(np.int32)

        return draw


class Samplers:
    """The samplers of a kernel given items; the last few stay in memory."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._prepared: OrderedDict[tuple[tuple[int, ...], int | None], tuple[Sampler, Ints]]
        self._prepared = OrderedDict()

    def given(self, items: Codes, size: int | None) -> tuple[Sampler, Ints]:
        """Return a sampler of what joins these items, prepared for this size, and its codes."""
        key = (tuple(items.tolist()), None if self.kernel.is_low_rank else size)
        prepared = self._prepared.pop(key, None)  # another thread may be here, too
        if prepared is None:
            refuse_too_large(self.kernel)
            kernel, rest = self.kernel.condition(items)
            prepared = Sampler(kernel), rest
        self._prepared[key] = prepared
        while len(self._prepared) > MAX_PREPARED:
            self._prepared.popitem(last=False)
        return prepared

    def sample(
        self, n: int, *, seed: int, size: int | None = None, given: Codes = NO_ITEMS
    ) -> Sets:
        """Draw n independent sets with the given items first, of exactly `size` items if given."""
        remaining = None if size is None else size - len(given)
        sampler, rest = self.given(given, remaining)
        refuse_too_many(size, sampler.rank + len(given))
        sampler.n_jobs = self.kernel.n_jobs
        drawn = sampler.sample(n, seed=seed, size=remaining)
        if not len(given):
            return drawn
        starts = np.repeat(drawn.indptr[:-1], len(given))
        codes = np.insert(rest[drawn.indices], starts, np.tile(given, drawn.count))
        return Sets(drawn.indptr + len(given) * np.arange(drawn.count + 1), codes.astype(np.int32))


class Chain:
    """A Markov chain over the sets of a kernel that is too large for exact samples.

    Every sample is the last set of a chain of its own, so that samples are independent. Their
    distribution approaches the DPP's with the number of steps. A step costs O(k³ + k r) for k
    items.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        skew = kernel.skew
        entry_squares = skew.values**2
        owner = np.repeat(np.arange(kernel.n_items), np.diff(skew.indptr))
        self.squares = _row_squares(kernel)
        running = np.concatenate([[0.0], np.cumsum(entry_squares / self.squares[owner])])
        self.row_cumulative: Array = running[1:] - running[skew.indptr[owner]]
        self.inclusion = first_order_inclusion(kernel)

    def sample(
        self,
        n: int,
        *,
        seed: int,
        size: int | None = None,
        given: Codes = NO_ITEMS,
        n_steps: int | None = None,
    ) -> Sets:
        """Draw n sets with the given items first, of exactly `size` items if it is given."""
        kernel = self.kernel
        total = float(self.inclusion.sum())
        if len(given):
            scoring.refuse_impossible(kernel, given)
        fixed = np.ascontiguousarray(given, dtype=np.int32)
        if not n or not total:
            return Sets(len(given) * np.arange(n + 1), np.tile(fixed, n))
        if n_steps is None:
            n_steps = chain_steps(len(given) + total if size is None else size)
        weights = self.inclusion / total
        proposals = compiled.samples.Proposals(
            weights, np.cumsum(weights), self.squares, self.row_cumulative
        )
        parts = compiled.kernels.KernelParts(kernel.left, kernel.X, kernel.diagonal, *kernel.skew)
        exact = -1 if size is None else size

        def draw(rng: Rng, sizes: Ints) -> Codes:
            drawn = []
            for s in range(len(sizes)):
                items, found = compiled.samples.run_chain(
                    parts, proposals, fixed, exact, n_steps, rng
                )
                if not found:
                    raise ParameterError(
                        f"no set of {size} items was found: their probability is zero, or nearly"
                    )
                drawn.append(items)
                sizes[s] = len(items)
            return np.concatenate(drawn)

        return _in_blocks(draw, n, SAMPLES_PER_BLOCK["chain"], seed, kernel.n_jobs)


def first_order_inclusion(kernel: Kernel) -> Array:
    """Return P(i ∈ Y) to first order in S, without the repulsion of V (M,)."""
    norms = kernel.squared_norms
    odds = norms + _row_squares(kernel) / (1.0 + norms)
    return np.asarray(odds / (1.0 + odds))


def _row_squares(kernel: Kernel) -> Array:
    """Return Σ_j S_ij² (M,)."""
    owner = np.repeat(np.arange(kernel.n_items), np.diff(kernel.skew.indptr))
    squares = np.bincount(owner, kernel.skew.values**2, minlength=kernel.n_items)
    return squares.astype(np.float64)


def chain_steps(size: float) -> int:
    """Return the default number of steps of a chain for sets of about this size."""
    return MIN_CHAIN_STEPS + int(CHAIN_STEPS_PER_ITEM * size)


def refuse_too_many(size: int | None, most: int) -> None:
    """Raise `RankError` if sets of this size are impossible."""
    if size is not None and size > most:
        message = f"size={size} is more than {most}, the most items that a set can have here"
        raise RankError(message, parameters=("size",))


def refuse_too_large(kernel: Kernel) -> None:
    """Raise `ParameterError` if the kernel has too many connected items for exact samples."""
    what = "exact samples take a dense matrix over the items with an entry of S"
    instead = "Use method='chain', a Markov chain, instead"
    normalizer.refuse_too_many(len(kernel.skew.connected), what, instead)


def _by_eigenvectors(vectors: Eigenvectors, size: int | None, polynomials: Array) -> Draw:
    """Draw eigenvectors (Kulesza and Taskar 2012, Algorithms 1 and 8), then items by rejection."""
    values, columns, cumulative = vectors
    inclusion = values / (1.0 + values)
    expected = float(inclusion.sum()) if size is None else size
    # The random numbers that items take, besides one per eigenvector.
    per_set = 3 * expected * (np.log(expected + 1.0) + 1.0)

    def draw_some(uniforms: Array, sizes: Ints) -> tuple[Codes, int, int]:
        if size is None:
            return compiled.samples.sample_dpp(columns, cumulative, inclusion, uniforms, sizes)
        return compiled.samples.sample_k_dpp(
            columns, cumulative, np.log(values), polynomials, size, uniforms, sizes
        )

    def draw(rng: Rng, sizes: Ints) -> Codes:
        drawn = []
        uniforms = np.empty(0)
        done = 0
        while done < len(sizes):
            n = len(sizes) - done
            enough = n * (len(values) + per_set) + 2 * np.sqrt(n) * per_set + 16  # nearly always
            uniforms = np.concatenate([uniforms, rng.random(int(enough))])
            items, n, used = draw_some(uniforms, sizes[done:])
            drawn.append(items)
            uniforms = uniforms[used:]
            done += n
        return np.concatenate(drawn)

    return draw


def _in_blocks(draw: Draw, n: int, step: int, seed: int, n_jobs: int) -> Sets:
    """Draw n sets, `step` at a time, each block by a random stream of its own."""
    sizes = np.zeros(n, dtype=np.int64)
    items: list[Codes] = [NO_ITEMS] * -(-n // step)

    def work(block: int) -> None:
        items[block] = draw(stream(seed, block), sizes[block * step : (block + 1) * step])

    run_blocks(work, len(items), n_jobs)
    return Sets(pointers(sizes), np.concatenate([NO_ITEMS, *items]))


def eigenvectors(kernel: Kernel) -> Eigenvectors:
    """Compute the eigenvectors of L = V Vᵀ in O(M K²)."""
    values, vectors = (array[..., ::-1] for array in kernel.eigen)
    Y = vectors.T @ kernel.vectors.astype(np.float64, copy=False).T  # (r, M)
    Y /= np.linalg.norm(Y, axis=1, keepdims=True)
    # Where eigenvalues span many orders, rounding leaves the small ones' vectors not orthogonal.
    with blas_threads(1):
        R = triangle(Y.T, kernel.n_jobs)
    Y = solve_triangular(R, Y, trans="T")
    columns = np.ascontiguousarray(Y.T)
    return Eigenvectors(np.ascontiguousarray(values), columns, np.cumsum(Y**2, axis=1))


def eliminate(kernel: Kernel) -> tuple[Ints, Elimination]:
    """Return the code of every position, connected items first, and the factors of I + L."""
    dense = kernel.skew.connected
    c = len(dense)
    others = np.setdiff1d(np.arange(kernel.n_items), dense)
    order = np.concatenate([dense, others])
    X = kernel.X[order]
    G = kernel.inner.copy()
    shift = 1.0 + kernel.diagonal[order]
    columns = np.empty((len(others), X.shape[1]))
    rows = np.empty((len(others), X.shape[1]))
    pivots = np.empty(len(others))
    compiled.samples.eliminate_rows(X[c:], shift[c:], G, columns, rows, pivots)
    with blas_threads(kernel.n_jobs):
        lu = X[:c] @ G @ X[:c].T
        if c:
            lu += kernel.skew.dense(dense)
        lu[np.diag_indices_from(lu)] += shift[:c]
        factorize(lu)
    return order, compiled.samples.Elimination(X, lu, columns, rows, pivots)


def factorize(A: Array) -> None:
    """Replace A by its LU factors, without pivoting, by halves: nearly all is matrix products."""
    n = len(A)
    if n <= SMALL_LU:
        block = np.ascontiguousarray(A)
        compiled.samples.eliminate(block)
        A[:] = block
        return
    h = n // 2
    factorize(A[:h, :h])
    A[:h, h:] = solve_triangular(
        A[:h, :h], A[:h, h:], lower=True, unit_diagonal=True, check_finite=False
    )
    A[h:, :h] = solve_triangular(A[:h, :h].T, A[h:, :h].T, lower=True, check_finite=False).T
    A[h:, h:] -= A[h:, :h] @ A[:h, h:]
    factorize(A[h:, h:])


def scale_for_size(kernel: Kernel, size: int) -> float:
    """Return a factor c such that sets of the kernel c L have about `size` items.

    A few steps of the secant method in logarithms; c only decides the number of tries per sample.
    """
    target = min(float(size), kernel.rank - 0.3)
    spread = np.sqrt(min(target, kernel.rank - target + 1.0))  # nearly full sets vary little
    x = 0.0
    low = -np.inf
    high = np.inf  # x = log c
    slope = 1.0
    before: tuple[float, float] | None = None
    for _ in range(12):
        expected = normalizer.expected_size(kernel.scaled(np.exp(x)), ROUGH)
        if abs(expected - target) <= 0.2 * spread or abs(x) > 60:
            break
        if expected < target:
            low = x
        else:
            high = x
        log = float(np.log(max(expected, 1e-300)))
        if before is not None and x != before[0]:
            slope = min(max((log - before[1]) / (x - before[0]), 0.05), 3.0)
        before = x, log
        x += (np.log(target) - log) / slope
        if not low < x < high:
            x = (low + high) / 2
    return float(np.exp(x))
