"""What a low-rank kernel knows: its factors V, the dual C = Vᵀ V, determinants and the normaliser."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from contradpp._threads import run_blocks
from contradpp.data.sets import Sets, runs, take_sets
from contradpp.dpp.linalg import log_elementary_symmetric
from contradpp.dpp.skew import Skew
from contradpp.errors import ParameterError

if TYPE_CHECKING:
    from contradpp.dpp.interface import Block, Growing, Sampling

Array = NDArray[np.float64]
SETS_PER_BLOCK = 256
ENTRIES_PER_CHUNK = 2**17  # the orthonormal rows of a chunk are all that is in memory at once
_LARGEST = {np.dtype(np.float64): 1e100, np.dtype(np.float32): 1e15}


class Bases(NamedTuple):
    """Orthonormal rows that span the factors of each set, aligned with the sets' entries."""

    rows: Array  # (nnz, K)
    pivots: Array  # (nnz,): their product over a set is det L_A


class LowRankKernel:
    """The kernel L = V Vᵀ of a DPP.

    Parameters
    ----------
    factors : array (M, K)
        V, of float64 or float32; anything else is converted to float64. It is copied and frozen.
    n_jobs : int
        Threads for work over many sets; results do not depend on it.
    """

    def __init__(self, factors: ArrayLike, *, n_jobs: int = 1) -> None:
        V = checked_factors(factors)
        V.flags.writeable = False
        self.factors = V
        self.n_jobs = n_jobs

    @property
    def n_items(self) -> int:
        """M, the size of the catalogue."""
        return int(self.factors.shape[0])

    @property
    def n_components(self) -> int:
        """K, the largest size that a set of positive probability can have."""
        return int(self.factors.shape[1])

    @property
    def largest_set(self) -> int:
        """K: no set can have more items, whatever V is."""
        return self.n_components

    @cached_property
    def dual(self) -> Array:
        """C = Vᵀ V (K, K), in float64."""
        V = self.factors.astype(np.float64, copy=False)
        return V.T @ V

    @cached_property
    def squared_norms(self) -> Array:
        """‖v_i‖², the diagonal of L, in float64 (M,)."""
        norms: Array = np.einsum("ik,ik->i", self.factors, self.factors, dtype=np.float64)
        return norms

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """The eigenvalues of C that are positive beyond rounding, ascending, and their eigenvectors (K, r)."""
        values, vectors = eigh(self.dual)
        # C is in float64: float32 factors blur singular values by their eps, eigenvalues by its square.
        K, eps = self.n_components, float(np.finfo(self.factors.dtype).eps)
        rounding = max(16.0 * K * float(np.finfo(np.float64).eps), (4.0 * K * eps) ** 2)
        positive = values > rounding * max(values[-1], 0.0)
        positive[: max(K - self.n_items, 0)] = False  # the rank is at most M
        return values[positive], vectors[:, positive]

    @property
    def rank(self) -> int:
        """The numerical rank of L."""
        return len(self.eigen[0])

    @cached_property
    def log_normalizer(self) -> float:
        """log det(I + L) = Σ log(1 + λ)."""
        return float(np.log1p(self.eigen[0]).sum())

    @cached_property
    def log_size_distribution(self) -> Array:
        """log P(|Y| = k) for k = 0..K."""
        values = self.eigen[0]
        sizes = np.full(self.n_components + 1, -np.inf)
        sizes[: len(values) + 1] = log_elementary_symmetric(values, len(values))[-1]
        return sizes - self.log_normalizer

    def bases(self, sets: Sets) -> Bases:
        """An orthonormal basis of the factors of every set; zero rows where items are dependent."""
        from contradpp.dpp.compiled import kernels

        rows = np.empty((len(sets.indices), self.n_components))
        pivots = np.empty(len(sets.indices))

        def work(block: int) -> None:
            first = block * SETS_PER_BLOCK
            last = min(first + SETS_PER_BLOCK, sets.count)
            kernels.orthonormal_rows(self.factors, sets.indptr, sets.indices, first, last, rows, pivots)

        run_blocks(work, -(-sets.count // SETS_PER_BLOCK), self.n_jobs)
        return Bases(rows, pivots)

    def log_det(self, sets: Sets) -> Array:
        """log det L_A for every set; −inf where it is zero, as for every set larger than the rank."""
        logs = np.full(sets.count, -np.inf)
        fits = np.flatnonzero(sets.sizes <= self.n_components)
        chosen = take_sets(sets, fits)
        pivots = np.empty(len(chosen.indices))
        for first, last in runs(chosen.indptr, ENTRIES_PER_CHUNK):
            part = self.bases(take_sets(chosen, np.arange(first, last))).pivots
            pivots[chosen.indptr[first] : chosen.indptr[last]] = part
        with np.errstate(divide="ignore"):
            totals = np.concatenate([np.log(pivots), [0.0]])
        sums = np.add.reduceat(totals, np.minimum(chosen.indptr[:-1], len(pivots))) if len(fits) else totals[:0]
        logs[fits] = np.where(chosen.sizes > 0, sums, 0.0)
        return logs

    plain = True

    @property
    def skew(self) -> Skew:
        return Skew.empty(self.n_items)

    def scaled(self, factor: float) -> LowRankKernel:
        return LowRankKernel(self.factors * np.sqrt(factor), n_jobs=self.n_jobs)

    def log_probability(self, sets: Sets) -> Array:
        """log P(A) for every set."""
        return self.log_det(sets) - self.log_normalizer

    # -- Questions answered in files of their own, by name so that estimators need not know the kind of kernel ----

    def next_scores(self, sets: Sets, *, candidates: NDArray[np.int64] | None = None) -> Iterator[Block]:
        """det L_{A∪j} / det L_A for every set A and candidate j (−inf for j in A), block by block."""
        from contradpp.dpp import conditioning

        return conditioning.next_scores(self, sets, candidates=candidates)

    def next_totals(self, sets: Sets) -> Array:
        """Σ_j det L_{A∪j} / det L_A for every set."""
        from contradpp.dpp import conditioning

        return conditioning.next_totals(self, sets)

    def marginals(self, given: NDArray[np.int32]) -> Array:
        """P(i ∈ Y | given ⊆ Y) for every item, 1 for the given."""
        from contradpp.dpp import conditioning

        return conditioning.marginals(self, given)

    def condition(self, given: NDArray[np.int32]) -> tuple[LowRankKernel, NDArray[np.int64]]:
        """The kernel of the remaining items given that `given` is in the set, and which items remain."""
        from contradpp.dpp import conditioning

        return conditioning.condition(self, given)

    def grow(self, given: ArrayLike = ()) -> Growing:
        """A set to which items are added one by one."""
        from contradpp.dpp.growing import GrowingSet

        return GrowingSet(self, given)

    def sampler(self) -> Sampling:
        """The kernel prepared for sampling."""
        from contradpp.dpp.sampling import Sampler

        return Sampler(self)

    def likeness(self, code: int) -> Array:
        """|cos| of the angle between the factors of an item and those of every item (M,)."""
        lengths = np.sqrt(self.squared_norms)
        products = np.abs(self.factors @ self.factors[code]).astype(np.float64)
        scale = lengths * lengths[code]
        cosines: Array = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
        return np.minimum(cosines, 1.0)


def checked_factors(factors: ArrayLike) -> NDArray[np.floating]:
    """A C-contiguous copy of the factors in float64 (or float32), or a `ParameterError` that says what is wrong."""
    try:
        V = np.asarray(factors)
    except ValueError as error:
        message = "factors must be a matrix of items × components, not rows of lengths that differ"
        raise ParameterError(message) from error
    if V.ndim != 2 or 0 in V.shape:
        raise ParameterError(f"factors must be a matrix of items × components, got shape {V.shape}")
    if not (np.issubdtype(V.dtype, np.floating) or np.issubdtype(V.dtype, np.integer)):
        raise ParameterError(f"factors must be real numbers, got dtype {V.dtype}")
    V = np.array(V, dtype=np.float32 if V.dtype == np.float32 else np.float64, order="C")
    bad = np.flatnonzero(~np.isfinite(V).all(axis=1))
    if len(bad):
        raise ParameterError(f"factors must be finite, but row {bad[0]} is not ({len(bad)} such rows)")
    largest = float(max(V.max(), -V.min()))
    if largest > _LARGEST[V.dtype]:
        limit = f"{_LARGEST[V.dtype]:.0e} in {V.dtype}"
        raise ParameterError(f"factors must not exceed {limit}, or L = V Vᵀ overflows: got {largest:.1e}")
    return V
