"""A kernel that repels and attracts: L = X G Xᵀ + S, of low rank but for a sparse skew-symmetric part.

det L_{ij} = L_ii L_jj − L_ij L_ji: what L_ij and L_ji have in common (the symmetric part) repels, as in every DPP;
where they have opposite signs (the skew part) the pair is more likely than its items alone. All principal minors
are at least 0, because the symmetric part of L is positive semi-definite, so P(A) = det L_A / det(I + L) is a law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigvals, eigvalsh

from contradpp._threads import run_blocks
from contradpp.data.sets import Sets
from contradpp.dpp.interface import Block, Growing, Sampling
from contradpp.dpp.kernel import SETS_PER_BLOCK, Array, checked_factors
from contradpp.dpp.skew import Skew
from contradpp.errors import ParameterError

_ROUNDING = 1e-8


class Inverses(NamedTuple):
    """L_A⁻¹ of several sets, one after the other in a flat array, and log det L_A."""

    W: Array
    offsets: NDArray[np.int64]  # W[offsets[s] : offsets[s + 1]] is that of set s, row by row
    logs: Array  # −inf where L_A is singular

    @property
    def singular(self) -> NDArray[np.int64]:
        """The sets of probability zero."""
        return np.flatnonzero(np.isneginf(self.logs))

    def diagonals(self, sets: Sets) -> Array:
        """W_ii for every entry of the sets."""
        position = np.arange(len(sets.indices)) - np.repeat(sets.indptr[:-1], sets.sizes)
        sizes = np.repeat(sets.sizes, sets.sizes)
        diagonal: Array = self.W[np.repeat(self.offsets[:-1], sets.sizes) + position * (sizes + 1)]
        return diagonal


class NonsymmetricKernel:
    """The kernel L = X G Xᵀ + S of a nonsymmetric DPP.

    A learned one is V Vᵀ + S (G the identity) or V Vᵀ + B J Bᵀ (X = [V B], no S); given some items, a kernel of
    this form keeps it.

    Parameters
    ----------
    factors : array (M, r)
        X, in float64. It is copied and frozen.
    gain : array (r, r), optional
        G, whose symmetric part is positive semi-definite; the identity if left out.
    skew : sparse matrix or array (M, M), optional
        S = −Sᵀ; nothing if left out.
    n_jobs : int
        Threads for work over many sets; results do not depend on it.
    """

    def __init__(
        self, factors: ArrayLike, gain: ArrayLike | None = None, skew: Any | None = None, *, n_jobs: int = 1
    ) -> None:
        self.factors = _frozen(checked_factors(factors).astype(np.float64, copy=False))
        self.gain = _frozen(_checked_gain(gain, self.factors.shape[1]))
        self.skew = Skew.of(skew, len(self.factors))
        self.n_jobs = n_jobs

    # -- What it is --------------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """M, the size of the catalogue."""
        return int(self.factors.shape[0])

    @property
    def n_components(self) -> int:
        """r, the columns of X."""
        return int(self.factors.shape[1])

    @cached_property
    def plain(self) -> bool:
        """Whether G is the identity."""
        return bool((self.gain == np.eye(len(self.gain))).all())

    @cached_property
    def left(self) -> Array:
        """X G: L_A: = left_A Xᵀ + S_A: (M, r)."""
        return self.factors if self.plain else _frozen(self.factors @ self.gain)

    @cached_property
    def right(self) -> Array:
        """X Gᵀ: L_:Aᵀ = right_A Xᵀ − S_A: (M, r)."""
        return self.factors if self.plain else _frozen(self.factors @ self.gain.T)

    @cached_property
    def dual(self) -> Array:
        """C = Xᵀ X (r, r)."""
        return self.factors.T @ self.factors

    @cached_property
    def squared_norms(self) -> Array:
        """The diagonal of L: x_i G x_iᵀ (M,)."""
        norms: Array = np.maximum(np.einsum("ik,ik->i", self.left, self.factors), 0.0)
        return norms

    @cached_property
    def rank(self) -> int:
        """The most items that a set of positive probability can have, or a bound of it if there is a skew part."""
        values = np.abs(self.low_rank_eigenvalues)
        found = int((values > 1e-13 * values.max(initial=0.0)).sum())
        return min(found + len(self.skew.connected), self.n_items)

    @property
    def largest_set(self) -> int:
        """The most items that a set can have."""
        return self.rank

    @cached_property
    def low_rank_eigenvalues(self) -> NDArray[np.complex128]:
        """The eigenvalues of X G Xᵀ that can differ from zero: those of G C (r,)."""
        values: NDArray[np.complex128] = eigvals(self.gain @ self.dual).astype(np.complex128)
        return values

    def scaled(self, factor: float) -> NonsymmetricKernel:
        """factor · L: the same law given the size, larger or smaller sets."""
        root = float(np.sqrt(factor))
        return NonsymmetricKernel(self.factors * root, self.gain, self.skew.scaled(factor), n_jobs=self.n_jobs)

    def take(self, items: NDArray[np.int64]) -> NonsymmetricKernel:
        """The kernel of these items (ascending) alone."""
        return NonsymmetricKernel(self.factors[items], self.gain, self.skew.take(items), n_jobs=self.n_jobs)

    # -- Sets --------------------------------------------------------------------------------------

    def inverses(self, sets: Sets, *, ridge: float = 0.0, n_jobs: int | None = None) -> Inverses:
        """L_A⁻¹ of every set; where L_A is singular, with `ridge` added to its scaled diagonal, or zero without one."""
        from contradpp.dpp.compiled import skew_kernels

        offsets = np.concatenate([[0], np.cumsum(sets.sizes**2)]).astype(np.int64)
        W, logs = np.empty(offsets[-1]), np.empty(sets.count)

        def work(first: int, last: int) -> None:
            skew_kernels.invert_sets(
                self.left, self.factors, *self.skew, sets.indptr, sets.indices, first, last, offsets, ridge, W, logs
            )

        self._in_blocks(work, sets.count, self.n_jobs if n_jobs is None else n_jobs)
        return Inverses(W, offsets, logs)

    def log_det(self, sets: Sets) -> Array:
        """log det L_A for every set; −inf where it is zero, as for every set larger than the rank."""
        from contradpp.dpp.compiled import skew_kernels

        logs = np.empty(sets.count)

        def work(first: int, last: int) -> None:
            skew_kernels.log_dets(self.left, self.factors, *self.skew, sets.indptr, sets.indices, first, last, logs)

        self._in_blocks(work, sets.count, self.n_jobs)
        logs[sets.sizes > self.rank] = -np.inf
        return logs

    def log_probability(self, sets: Sets) -> Array:
        """log P(A) for every set."""
        return self.log_det(sets) - self.log_normalizer

    @staticmethod
    def _in_blocks(work: Callable[[int, int], None], n_sets: int, n_jobs: int) -> None:
        """Call work(first, last) for runs of sets."""

        def block(number: int) -> None:
            work(number * SETS_PER_BLOCK, min((number + 1) * SETS_PER_BLOCK, n_sets))

        run_blocks(block, -(-n_sets // SETS_PER_BLOCK), n_jobs)

    # -- The whole law -----------------------------------------------------------------------------

    @cached_property
    def log_normalizer(self) -> float:
        """log det(I + L)."""
        from contradpp.dpp.resolvent import log_normalizer

        return log_normalizer(self)

    @cached_property
    def log_size_distribution(self) -> Array:
        """log P(|Y| = k) for k = 0..rank."""
        from contradpp.dpp.resolvent import log_size_distribution

        return log_size_distribution(self)

    def marginals(self, given: NDArray[np.int32]) -> Array:
        """P(i ∈ Y | given ⊆ Y) for every item, 1 for the given."""
        from contradpp.dpp.resolvent import marginals

        return marginals(self, given)

    @cached_property
    def expected_size(self) -> float:
        """E|Y|, the sum of the marginals."""
        if self.skew.n_entries:
            return float(self.marginals(np.empty(0, dtype=np.int32)).sum())
        values = self.low_rank_eigenvalues
        return float((values / (1.0 + values)).sum().real)

    # -- Given a basket ----------------------------------------------------------------------------

    def next_scores(self, sets: Sets, *, candidates: NDArray[np.int64] | None = None) -> Iterator[Block]:
        """det L_{A∪j} / det L_A for every set A and candidate j (−inf for j in A), block by block."""
        from contradpp.dpp.skew_conditioning import next_scores

        return next_scores(self, sets, candidates=candidates)

    def next_totals(self, sets: Sets) -> Array:
        """Σ_j det L_{A∪j} / det L_A for every set."""
        from contradpp.dpp.skew_conditioning import next_totals

        return next_totals(self, sets)

    def condition(self, given: NDArray[np.int32]) -> tuple[NonsymmetricKernel, NDArray[np.int64]]:
        """The kernel of the remaining items given that `given` is in the set, and which items remain."""
        from contradpp.dpp.skew_conditioning import condition

        return condition(self, given)

    def grow(self, given: ArrayLike = ()) -> Growing:
        """A set to which items are added one by one."""
        from contradpp.dpp.skew_growing import GrowingSkewSet

        return GrowingSkewSet(self, given)

    def sampler(self) -> Sampling:
        """The kernel prepared for sampling."""
        from contradpp.dpp.skew_sampling import SkewSampler

        return SkewSampler(self)

    def likeness(self, code: int) -> Array:
        """|cos| of the angle between items in the symmetric part of L, as a symmetric DPP has it (M,)."""
        symmetric = (self.left[code] + self.right[code]) / 2
        scale = np.sqrt(self.squared_norms * self.squared_norms[code])
        products = np.abs(self.factors @ symmetric)
        cosines: Array = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
        return np.minimum(cosines, 1.0)


def _checked_gain(gain: ArrayLike | None, r: int) -> Array:
    if gain is None:
        return np.eye(r)
    G = np.array(gain, dtype=np.float64)
    if G.shape != (r, r) or not np.isfinite(G).all():
        raise ParameterError(f"the gain must be a finite matrix of shape ({r}, {r}), got shape {G.shape}")
    if r and eigvalsh(G + G.T)[0] < -_ROUNDING * np.abs(G).max(initial=0.0):
        raise ParameterError("the symmetric part of the gain must be positive semi-definite")
    return G


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array
