"""The kernel of a DPP, L = D + X G Xᵀ + S: what it is made of, and everything that it can be asked.

D = diag(d), d ≥ 0, is what every item is worth on its own; X has a row of factors per item; S = −Sᵀ is sparse.
det L_{ij} = L_ii L_jj − L_ij L_ji: what L_ij and L_ji have in common (the symmetric part) repels, as in every DPP;
where they have opposite signs (S, or the skew part of G) the pair is more likely than its items alone. All principal
minors are at least 0, because the symmetric part of L is positive semi-definite, so P(A) = det L_A / det(I + L) is a
law. The paper's kernel is D = 0, G = I, S = 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh, eigvalsh, svd
from scipy.sparse import csr_array, issparse

from contradpp._threads import blas_threads
from contradpp.data.sets import Sets, pointers
from contradpp.dpp import factor, normalizer, scoring
from contradpp.dpp.factor import Inverses
from contradpp.dpp.greedy import GrowingSet
from contradpp.dpp.linalg import triangle
from contradpp.dpp.normalizer import Estimate, Precision
from contradpp.errors import ParameterError

Array = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
_LARGEST = {np.dtype(np.float64): 1e100, np.dtype(np.float32): 1e15}
_LARGEST_ENTRY = 1e100  # of S
_SKEW_ROUNDING = 1e-9  # of the largest entry: S_ij and −S_ji that differ by less are equal but for rounding
_ROUNDING = 1e-8  # by how much the symmetric part of a gain may be less than positive semi-definite


class Kernel:
    """L = D + X G Xᵀ + S over items 0..M−1; sets hold codes.

    How a question is answered depends on what L is, not on how it is written: one that is symmetric, with a symmetric G
    and S = 0, is D + V Vᵀ with `vectors` V.

    Parameters
    ----------
    factors : array (M, r)
        X, of float64 or float32; anything else is converted to float64. It is copied and frozen. It may have no
        columns if there is a diagonal.
    gain : array (r, r), optional
        G, whose symmetric part is positive semi-definite; the identity if left out.
    skew : sparse matrix or array (M, M), optional
        S = −Sᵀ; nothing if left out.
    diagonal : array (M,), optional
        d ≥ 0; zero if left out.
    n_jobs : int
        Threads for work over many sets; results do not depend on it.
    """

    factors: NDArray[np.floating]
    gain: Array
    skew: Skew
    diagonal: Array
    n_jobs: int

    def __init__(
        self,
        factors: ArrayLike,
        gain: ArrayLike | None = None,
        skew: Any | None = None,
        diagonal: ArrayLike | None = None,
        *,
        n_jobs: int = 1,
    ) -> None:
        X = checked_factors(factors, empty=diagonal is not None)
        G = None if gain is None else _checked_gain(gain, X.shape[1])
        d = None if diagonal is None else _checked_diagonal(diagonal, len(X))
        self._take(X, G, Skew.of(skew, len(X)), d, n_jobs)

    @classmethod
    def trusted(
        cls,
        factors: NDArray[np.floating],
        gain: Array | None = None,
        skew: Skew | None = None,
        diagonal: Array | None = None,
        *,
        n_jobs: int = 1,
    ) -> Self:
        """A kernel of parts that need no check and no copy."""
        kernel = cls.__new__(cls)
        kernel._take(factors, gain, Skew.empty(len(factors)) if skew is None else skew, diagonal, n_jobs)
        return kernel

    def _take(
        self, factors: NDArray[np.floating], gain: Array | None, skew: Skew, diagonal: Array | None, n_jobs: int
    ) -> None:
        M, r = factors.shape
        self.factors = _frozen(np.ascontiguousarray(factors))
        self.gain = _frozen(np.eye(r) if gain is None else gain)
        self.skew = skew
        self.diagonal = _frozen(np.zeros(M) if diagonal is None else np.ascontiguousarray(diagonal))
        self.n_jobs = n_jobs

    def __getstate__(self) -> dict[str, Any]:
        """All but what is as large as the factors, and quickly made of them."""
        return {name: value for name, value in self.__dict__.items() if name != "by_column"}

    # -- What it is --------------------------------------------------------------------------------

    @classmethod
    def of_matrix(cls, L: ArrayLike) -> Self:
        """A kernel with this matrix (M, M), whose symmetric part must be positive semi-definite.

        Factors are those of the correlations, so that items of very different weight keep their digits.
        """
        matrix = _checked_matrix(L)
        symmetric, skew = (matrix + matrix.T) / 2, (matrix - matrix.T) / 2
        lengths = np.sqrt(np.maximum(np.diagonal(symmetric), 0.0))
        scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        skew[np.abs(skew) <= 8 * _EPS * np.outer(lengths, lengths)] = 0.0  # rounding of a symmetric matrix
        values, vectors = eigh(scale[:, None] * symmetric * scale)
        alone = (lengths == 0) & (np.abs(symmetric).max(axis=1) > 0)
        if alone.any() or values[0] < -_ROUNDING * max(values[-1], 1.0):
            raise ParameterError("L must be positive semi-definite, or else its symmetric part: no law has this kernel")
        kept = values > len(values) * _EPS * values[-1]
        X = lengths[:, None] * vectors[:, kept] * np.sqrt(values[kept])
        return cls(X if X.shape[1] else np.zeros((len(X), 1)), skew=skew if skew.any() else None)

    def matrix(self) -> Array:
        """L itself, dense (M, M)."""
        instead = "Ask for factors, or for some items."
        normalizer.refuse_too_many(self.n_items, "L as a matrix is for few items", instead)
        L: Array = self.left @ self.wide.T + self.skew.matrix().toarray()
        L[np.diag_indices_from(L)] += self.diagonal
        return L

    @property
    def n_items(self) -> int:
        """M, the size of the catalogue."""
        return int(self.factors.shape[0])

    @property
    def n_components(self) -> int:
        """r, the columns of X."""
        return int(self.factors.shape[1])

    @cached_property
    def has_diagonal(self) -> bool:
        """Whether D is not zero."""
        return bool(self.diagonal.any())

    @cached_property
    def plain(self) -> bool:
        """Whether G is the identity."""
        return bool((self.gain == np.eye(len(self.gain))).all())

    @cached_property
    def symmetric(self) -> bool:
        """Whether L is symmetric."""
        return self.skew.n_entries == 0 and bool((self.gain == self.gain.T).all())

    @cached_property
    def vectors(self) -> NDArray[np.floating]:
        """V with D + V Vᵀ = (L + Lᵀ)/2, the part that repels: X, or X G^½ in float64 (M, at most r)."""
        if self.plain:
            return self.factors
        values, vectors = eigh((self.gain + self.gain.T) / 2)
        kept = values > 16 * len(values) * _EPS * values[-1]
        half = vectors[:, kept] * np.sqrt(values[kept])
        return _frozen(self.wide @ half)

    @cached_property
    def wide(self) -> Array:
        """X in float64."""
        return _frozen(self.factors.astype(np.float64, copy=False))

    @cached_property
    def by_column(self) -> Array:
        """X in float64 again, one column after the other in memory.

        Products of a few rows with Xᵀ take two thirds of the time so; it is made when the first is asked for.
        """
        return _frozen(np.asfortranarray(self.wide))

    @cached_property
    def left(self) -> Array:
        """X G: L_A: = left_A Xᵀ + S_A: but for D (M, r)."""
        return self.wide if self.plain else _frozen(self.wide @ self.gain)

    @cached_property
    def right(self) -> Array:
        """X Gᵀ: L_:Aᵀ = right_A Xᵀ − S_A: but for D (M, r)."""
        return self.wide if self.plain else _frozen(self.wide @ self.gain.T)

    @cached_property
    def squared_norms(self) -> Array:
        """The diagonal of L (M,)."""
        X = self.factors
        if self.plain:
            norms: Array = np.einsum("ik,ik->i", X, X, dtype=np.float64)
        else:
            norms = np.maximum(np.einsum("ik,ik->i", self.left, self.wide), 0.0)
        return norms + self.diagonal if self.has_diagonal else norms

    @cached_property
    def by_weight(self) -> NDArray[np.int64]:
        """All items, those with the largest L_ii first, of equal ones the lower code (M,)."""
        return _frozen(np.argsort(-self.squared_norms, kind="stable"))

    @cached_property
    def trace(self) -> float:
        """tr L."""
        return float(self.squared_norms.sum())

    @cached_property
    def dual(self) -> Array:
        """XᵀX (r, r)."""
        return _frozen(self.wide.T @ self.wide)

    @cached_property
    def inverse_lengths(self) -> Array:
        """1/√L_ii, 0 where L_ii is: what makes correlations of the symmetric part (M,)."""
        norms = self.squared_norms
        return _frozen(np.divide(1.0, np.sqrt(norms), out=np.zeros_like(norms), where=norms > 0))

    @cached_property
    def root(self) -> Array:
        """R (r, r), upper triangular, with RᵀR = Vᵀ (I + D)⁻¹ V of a symmetric kernel, else XᵀX.

        By orthogonal steps, so that it holds singular values down to rounding, and not only to the square root of it.
        """
        lengths = np.sqrt(1.0 + self.diagonal) if self.symmetric and self.has_diagonal else None
        with blas_threads(1):
            return triangle(self.vectors if self.symmetric else self.factors, self.n_jobs, lengths)

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Of L = V Vᵀ: the eigenvalues of VᵀV that are positive beyond rounding, ascending, and their eigenvectors."""
        _, lengths, vectors = svd(self.root)
        K = len(lengths)
        positive = lengths > 16 * K * _EPS * lengths.max(initial=0.0)
        positive[self.n_items :] = False  # the rank is at most M
        positive &= np.square(lengths) > 0  # nor is what underflows an eigenvalue
        return np.square(lengths[positive])[::-1].copy(), vectors[positive][::-1].T.copy()

    @cached_property
    def rank(self) -> int:
        """The most items that a set of positive probability can have, or a bound of it unless L = V Vᵀ."""
        if self.symmetric and not self.has_diagonal:
            return len(self.eigen[0])
        lengths, gains = svd(self.root, compute_uv=False), svd(self.gain, compute_uv=False)
        low = min(
            int((lengths > 16 * len(lengths) * _EPS * lengths.max(initial=0.0)).sum()),
            int((gains > factor.SINGULAR * gains.max(initial=0.0)).sum()),
        )
        return min(low + len(self._on_their_own), self.n_items)

    @cached_property
    def largest_set(self) -> int:
        """The most items that a set can have by the shape of the kernel: its columns, and items beyond those."""
        columns = int((self.vectors if self.symmetric else self.factors).shape[1])
        return min(columns + len(self._on_their_own), max(self.n_items, columns))

    @property
    def _on_their_own(self) -> NDArray[np.int64]:
        """The items that need no column: those with partners or a diagonal."""
        return np.flatnonzero((np.diff(self.skew.indptr) > 0) | (self.diagonal > 0))

    def scaled(self, factor: float) -> Kernel:
        """factor · L: the same law given the size, larger or smaller sets."""
        X = self.factors * self.factors.dtype.type(np.sqrt(factor))
        return Kernel.trusted(X, self.gain, self.skew.scaled(factor), self.diagonal * factor, n_jobs=self.n_jobs)

    def take(self, items: NDArray[np.int64]) -> Kernel:
        """The kernel of these items (ascending) alone."""
        d = self.diagonal[items]
        return Kernel.trusted(self.factors[items], self.gain, self.skew.take(items), d, n_jobs=self.n_jobs)

    # -- Sets --------------------------------------------------------------------------------------

    def log_det(self, sets: Sets) -> Array:
        """log det L_A for every set; −inf where it is zero (see `factor`)."""
        return factor.log_det(self, sets)

    def log_probability(self, sets: Sets) -> Array:
        """log P(A) for every set."""
        return self.log_det(sets) - self.log_normalizer

    def log_choice(self, chosen: Sets, offered: Sets) -> Array:
        """log P(Y = chosen | Y ⊆ offered) = log det L_chosen − log det(I + L_offered), for every pair of sets."""
        return self.log_det(chosen) - self.plus_identity.log_det(offered)

    @cached_property
    def plus_identity(self) -> Kernel:
        """I + L."""
        return Kernel.trusted(self.factors, self.gain, self.skew, self.diagonal + 1.0, n_jobs=self.n_jobs)

    def inverses(self, sets: Sets, *, ridge: float = 0.0, n_jobs: int | None = None) -> Inverses:
        """L_A⁻¹ of every set; where L_A is singular, with `ridge` added to its scaled diagonal, or zero without one."""
        return factor.inverses(self, sets, ridge=ridge, n_jobs=n_jobs)

    # -- The whole law -----------------------------------------------------------------------------

    @property
    def log_normalizer(self) -> float:
        """log det(I + L)."""
        return self.normalizer.value

    @cached_property
    def normalizer(self) -> Estimate:
        """log det(I + L), and its standard error: 0, unless more than `normalizer.MOST_DENSE` items have partners."""
        return normalizer.log_normalizer(self)

    def refine_normalizer(self, error: float, *, most: int = 65_536) -> None:
        """Estimate log det(I + L) anew with this standard error, if so many probes are enough for it."""
        if not error > 0:
            raise ParameterError(f"the error must be positive, got {error!r}")
        if self.normalizer.error > error:
            self.normalizer = normalizer.log_normalizer(self, Precision(error=error, most=most))

    @cached_property
    def log_size_distribution(self) -> Array:
        """log P(|Y| = k) for k = 0, 1, ... ."""
        return normalizer.log_size_distribution(self)

    def marginals(self, given: NDArray[np.int32]) -> Array:
        """P(i ∈ Y | given ⊆ Y) for every item, 1 for the given."""
        return self.marginals_with_errors(given)[0]

    def marginals_with_errors(self, given: NDArray[np.int32]) -> tuple[Array, Array]:
        """The marginals and their standard errors, which are 0 where they are exact."""
        return normalizer.marginals(self, given)

    @cached_property
    def expected_size(self) -> float:
        """E|Y|, the sum of the marginals."""
        return normalizer.expected_size(self)

    # -- Given a basket ----------------------------------------------------------------------------

    def next_scores(self, sets: Sets, *, candidates: NDArray[np.int64] | None = None) -> Iterator[scoring.Block]:
        """det L_{A∪j} / det L_A for every set A and candidate j (−inf for j in A), block by block."""
        return scoring.next_scores(self, sets, candidates=candidates)

    def next_totals(self, sets: Sets) -> Array:
        """Σ_j det L_{A∪j} / det L_A for every set."""
        return scoring.next_totals(self, sets)

    def condition(self, given: NDArray[np.int32]) -> tuple[Kernel, NDArray[np.int64]]:
        """The kernel of the remaining items given that `given` is in the set, and which items remain."""
        return scoring.condition(self, given)

    def grow(self, given: ArrayLike = ()) -> GrowingSet:
        """A set to which items are added one by one."""
        return GrowingSet(self, given)

    def likeness(self, code: int) -> Array:
        """How alike every item is to this one, 0 to 1: |cos| of the angle in the symmetric part of L; 1 are never
        together unless a skew part brings them there (M,).
        """
        symmetric = self.factors[code] if self.plain else (self.left[code] + self.right[code]) / 2
        products: Array = np.abs(np.einsum("ik,k->i", self.factors, symmetric, dtype=np.float64))
        products[code] += self.diagonal[code]
        scale = np.sqrt(self.squared_norms) * np.sqrt(self.squared_norms[code])
        cosines: Array = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
        return np.minimum(cosines, 1.0)


class Skew(NamedTuple):
    """A CSR with columns in ascending order and no zeros; the names are those that Numba kernels take."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: Array

    @property
    def n_items(self) -> int:
        """The number of rows, and of columns."""
        return len(self.indptr) - 1

    @property
    def n_entries(self) -> int:
        """How many entries are not zero; every pair has two."""
        return len(self.indices)

    @property
    def connected(self) -> NDArray[np.int64]:
        """The items that have a partner, ascending."""
        return np.flatnonzero(np.diff(self.indptr))

    @staticmethod
    def empty(n_items: int) -> Skew:
        """No pairs at all."""
        nothing = np.empty(0, dtype=np.int32)
        return _frozen_parts(Skew(np.zeros(n_items + 1, dtype=np.int64), nothing, nothing.astype(np.float64)))

    @staticmethod
    def of(matrix: Any, n_items: int) -> Skew:
        """From None, a `Skew`, an array or a SciPy sparse matrix; `ParameterError` if it is not skew-symmetric."""
        if isinstance(matrix, Skew):
            return matrix
        if matrix is None:
            return Skew.empty(n_items)
        return _checked_skew(matrix, n_items)

    @staticmethod
    def of_parts(indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], n_items: int) -> Skew:
        """From the arrays of a CSR, maybe of a damaged file; `ParameterError` if they are not a skew matrix."""
        good = indptr.shape == (n_items + 1,) and indices.ndim == 1 and indices.shape == values.shape
        good = good and indptr.dtype.kind == indices.dtype.kind == "i" and values.dtype.kind == "f"
        good = good and indptr[0] == 0 and indptr[-1] == len(indices) and bool((np.diff(indptr) >= 0).all())
        if not good or (len(indices) and not 0 <= indices.min() <= indices.max() < n_items):
            raise ParameterError("the arrays of its skew part do not fit each other, or its items")
        return _checked_skew(csr_array((values, indices, indptr), shape=(n_items, n_items)), n_items)

    def matrix(self) -> Any:
        """As a SciPy CSR array."""
        return csr_array((self.values, self.indices, self.indptr), shape=(self.n_items, self.n_items))

    def entries(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int32], Array]:
        """The entries of these rows, one row after the other: which of the rows each is in, its column, its value."""
        sizes = self.indptr[rows + 1] - self.indptr[rows]
        owner = np.repeat(np.arange(len(rows)), sizes)
        place = np.arange(len(owner)) + (self.indptr[rows] - np.cumsum(sizes) + sizes)[owner]
        return owner, self.indices[place], self.values[place]

    def part(self, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Skew:
        """These rows, in their order, and these columns (ascending), of which there is one: no longer square."""
        owner, codes, values = self.entries(rows)
        place = np.minimum(np.searchsorted(columns, codes), len(columns) - 1)
        there = columns[place] == codes
        sizes = np.bincount(owner[there], minlength=len(rows))
        return Skew(pointers(sizes), place[there].astype(np.int32), values[there])

    def take(self, items: NDArray[np.int64]) -> Skew:
        """The rows and columns of these items (ascending)."""
        return _frozen_parts(_parts_of(self.matrix()[items][:, items])) if self.n_entries else Skew.empty(len(items))

    def scaled(self, factor: float) -> Skew:
        """factor · S."""
        return _frozen_parts(Skew(self.indptr, self.indices, self.values * factor))

    def dense(self, items: NDArray[np.int64]) -> Array:
        """The rows and columns of these items as an array."""
        block: Array = self.matrix()[items][:, items].toarray()
        return block


def checked_factors(factors: ArrayLike, *, empty: bool = False) -> NDArray[np.floating]:
    """A C-contiguous copy of the factors in float64 (or float32), or a `ParameterError` that says what is wrong."""
    try:
        V = np.asarray(factors)
    except ValueError as error:
        message = "factors must be a matrix of items × components, not rows of lengths that differ"
        raise ParameterError(message) from error
    if V.ndim != 2 or len(V) == 0 or (V.shape[1] == 0 and not empty):
        raise ParameterError(f"factors must be a matrix of items × components, got shape {V.shape}")
    if not (np.issubdtype(V.dtype, np.floating) or np.issubdtype(V.dtype, np.integer)):
        raise ParameterError(f"factors must be real numbers, got dtype {V.dtype}")
    V = np.array(V, dtype=np.float32 if V.dtype == np.float32 else np.float64, order="C")
    bad = np.flatnonzero(~np.isfinite(V).all(axis=1))
    if len(bad):
        raise ParameterError(f"factors must be finite, but row {bad[0]} is not ({len(bad)} such rows)")
    largest = float(max(V.max(initial=0.0), -V.min(initial=0.0)))
    if largest > _LARGEST[V.dtype]:
        limit = f"{_LARGEST[V.dtype]:.0e} in {V.dtype}"
        raise ParameterError(f"factors must not exceed {limit}, or L = V Vᵀ overflows: got {largest:.1e}")
    return V


def _checked_matrix(L: ArrayLike) -> Array:
    try:
        matrix = np.array(L, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError("L must be a square matrix of real numbers") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ParameterError(f"L must be a square matrix, got shape {matrix.shape}")
    if not np.isfinite(matrix).all() or np.abs(matrix).max() > _LARGEST[matrix.dtype]:
        raise ParameterError(f"L must be finite, with no entry above {_LARGEST[matrix.dtype]:.0e}")
    return matrix


def _checked_gain(gain: ArrayLike, r: int) -> Array:
    G = np.array(gain, dtype=np.float64)
    if G.shape != (r, r) or not np.isfinite(G).all():
        raise ParameterError(f"the gain must be a finite matrix of shape ({r}, {r}), got shape {G.shape}")
    if r and eigvalsh(G + G.T)[0] < -_ROUNDING * np.abs(G).max(initial=0.0):
        raise ParameterError("the symmetric part of the gain must be positive semi-definite")
    if np.abs(G - G.T).max(initial=0.0) <= 8 * _EPS * np.abs(G).max(initial=0.0):
        G = (G + G.T) / 2  # symmetric, but for rounding
    return G


def _checked_diagonal(diagonal: ArrayLike, n_items: int) -> Array:
    d = np.array(diagonal, dtype=np.float64)
    if d.shape != (n_items,) or not np.isfinite(d).all() or d.min() < 0 or d.max() > _LARGEST[d.dtype]:
        raise ParameterError(f"the diagonal must be {n_items} numbers from 0 to {_LARGEST[d.dtype]:.0e}")
    return d


def _checked_skew(matrix: Any, n_items: int) -> Skew:
    try:
        given = matrix if issparse(matrix) else np.asarray(matrix, dtype=np.float64)
        S = csr_array(given, dtype=np.float64, copy=True)  # what follows works in place
    except (TypeError, ValueError) as error:
        raise ParameterError(f"the skew part must be a matrix of real numbers: {error}") from error
    if S.shape != (n_items, n_items):
        raise ParameterError(f"the skew part must have shape ({n_items}, {n_items}), got {S.shape}")
    S.sum_duplicates()
    if not np.isfinite(S.data).all() or np.abs(S.data).max(initial=0.0) > _LARGEST_ENTRY:
        raise ParameterError(f"the skew part must be finite, and at most {_LARGEST_ENTRY:.0e}")
    both = S + S.T
    off = float(np.abs(both.data).max(initial=0.0))
    if off > _SKEW_ROUNDING * np.abs(S.data).max(initial=0.0):
        raise ParameterError(f"the skew part must be skew-symmetric, S = −Sᵀ, but S + Sᵀ has an entry of {off:.1e}")
    if off > 0:
        S = csr_array((S - S.T) / 2)
    S.eliminate_zeros()
    return _frozen_parts(_parts_of(S))


def _parts_of(S: Any) -> Skew:
    S.sort_indices()
    return Skew(S.indptr.astype(np.int64), S.indices.astype(np.int32), S.data.astype(np.float64))


def _frozen_parts(skew: Skew) -> Skew:
    for array in skew:
        _frozen(array)
    return skew


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
