"""The kernel of a DPP: L = D + X G Xᵀ + S.

D = diag(d) with d ≥ 0, X has one row of factors per item, G is the inner matrix, and S = −Sᵀ is
sparse. The symmetric part of L is positive semi-definite, so all principal minors are at least 0
and

    P(A) = det L_A / det(I + L)

is a distribution over sets. For a pair, det L_{ij} = L_ii L_jj − L_ij L_ji. The symmetric part of L
repels, as in every DPP. S and the skew part of G have L_ij and L_ji of opposite signs, which makes
the pair more likely. The paper's kernel has D = 0, G = I, S = 0.
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
from contradpp._types import Array, Codes, Floats, Ints
from contradpp.data.sets import Sets, pointers
from contradpp.dpp import factor, normalizer, sampling, scoring
from contradpp.dpp.factor import NO_ITEMS, Inverses
from contradpp.dpp.greedy import GrowingSet
from contradpp.dpp.linalg import triangle
from contradpp.dpp.normalizer import Estimate, Precision
from contradpp.errors import ParameterError

EPS = float(np.finfo(np.float64).eps)
LARGEST_FACTOR = {np.dtype(np.float64): 1e100, np.dtype(np.float32): 1e15}
LARGEST_SKEW_ENTRY = 1e100
# S_ij and −S_ji may differ by this share of the largest entry, which is rounding.
SKEW_ROUNDING = 1e-9
# The symmetric part of G may be less than positive semi-definite by this share.
SEMIDEFINITE_ROUNDING = 1e-8
CERTAIN = 1e-10  # the probability that an eigenvector of probability 1 has nevertheless not


class Kernel:
    """The matrix L = D + X G Xᵀ + S over items 0..M−1, never stored as an M × M array.

    Methods choose their algorithm by what L is, not by how it is written. An L with symmetric G and
    S = 0 is D + V Vᵀ, with V in `vectors`.

    Parameters
    ----------
    factors : array (M, r)
        X, of float64 or float32; anything else is converted to float64. It is copied and frozen.
        It may have no columns if there is a diagonal.
    inner : array (r, r), optional
        G, whose symmetric part is positive semi-definite; the identity if left out.
    skew : sparse matrix or array (M, M), optional
        S = −Sᵀ; zero if left out.
    diagonal : array (M,), optional
        d ≥ 0; zero if left out.
    n_jobs : int
        Threads for work over many sets; results do not depend on it.

    Examples
    --------
    >>> from contradpp.data.sets import Sets
    >>> from contradpp.dpp.kernel import Kernel
    >>> kernel = Kernel([[1.0, 0.0], [0.0, 1.0]])
    >>> kernel.log_det(Sets.one([0, 1])).tolist()
    [0.0]
    >>> kernel.size_distribution().round(3).tolist()
    [0.25, 0.5, 0.25]
    """

    factors: Floats
    inner: Array
    skew: Skew
    diagonal: Array
    n_jobs: int

    def __init__(
        self,
        factors: ArrayLike,
        inner: ArrayLike | None = None,
        skew: Skew | csr_array | ArrayLike | None = None,
        diagonal: ArrayLike | None = None,
        *,
        n_jobs: int = 1,
    ) -> None:
        X = checked_factors(factors, empty=diagonal is not None)
        G = None if inner is None else _checked_inner(inner, X.shape[1])
        d = None if diagonal is None else checked_diagonal(diagonal, len(X))
        self._set(X, G, Skew.from_matrix(skew, len(X)), d, n_jobs)

    @classmethod
    def trusted(
        cls,
        factors: Floats,
        inner: Array | None = None,
        skew: Skew | None = None,
        diagonal: Array | None = None,
        *,
        n_jobs: int = 1,
    ) -> Self:
        """Build a kernel from parts that need no check and no copy."""
        kernel = cls.__new__(cls)
        skew = Skew.empty(len(factors)) if skew is None else skew
        kernel._set(factors, inner, skew, diagonal, n_jobs)
        return kernel

    @classmethod
    def from_matrix(cls, L: ArrayLike) -> Self:
        """Build the kernel of a matrix (M, M) whose symmetric part is positive semi-definite.

        Factors come from the correlations, so that items of very different weight keep their
        digits.
        """
        matrix = _checked_matrix(L, "L")
        symmetric = (matrix + matrix.T) / 2
        skew = (matrix - matrix.T) / 2
        lengths = np.sqrt(np.maximum(np.diagonal(symmetric), 0.0))
        scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        skew[np.abs(skew) <= 8 * EPS * np.outer(lengths, lengths)] = 0.0  # rounding
        values, vectors = eigh(scale[:, None] * symmetric * scale)
        has_no_length = (lengths == 0) & (np.abs(symmetric).max(axis=1) > 0)
        if has_no_length.any() or values[0] < -SEMIDEFINITE_ROUNDING * max(values[-1], 1.0):
            raise ParameterError(
                "L must be positive semi-definite, or else its symmetric part: "
                "no distribution has this kernel"
            )
        positive = values > len(values) * EPS * values[-1]
        X = lengths[:, None] * vectors[:, positive] * np.sqrt(values[positive])
        return cls(X if X.shape[1] else np.zeros((len(X), 1)), skew=skew if skew.any() else None)

    @classmethod
    def from_marginal_kernel(cls, K: ArrayLike) -> Self:
        """Build the kernel L = K (I − K)⁻¹ of a DPP with P(A ⊆ Y) = det K_A.

        Eigenvalues above 1 − `CERTAIN` count as that, as L would be infinite.
        """
        matrix = _checked_matrix(K, "K")
        if np.abs(matrix - matrix.T).max() > 8 * EPS * np.abs(matrix).max():
            try:
                return cls.from_matrix(np.linalg.solve(np.eye(len(matrix)) - matrix, matrix))
            except np.linalg.LinAlgError:
                raise ParameterError("I − K is singular: no kernel L belongs to this K") from None
        values, vectors = eigh(matrix)
        if values[0] < -SEMIDEFINITE_ROUNDING or values[-1] > 1 + SEMIDEFINITE_ROUNDING:
            raise ParameterError(
                f"K must have eigenvalues from 0 to 1, got {values[0]:.3g}..{values[-1]:.3g}: "
                "a likelihood kernel is passed as L"
            )
        some = values > len(values) * EPS
        odds = np.minimum(values[some], 1 - CERTAIN)
        X = vectors[:, some] * np.sqrt(odds / (1 - odds))
        return cls(X if some.any() else np.zeros((len(matrix), 1)))

    def _set(
        self, factors: Floats, inner: Array | None, skew: Skew, diagonal: Array | None, n_jobs: int
    ) -> None:
        M, r = factors.shape
        self.factors = _frozen(np.ascontiguousarray(factors))
        self.inner = _frozen(np.eye(r) if inner is None else inner)
        self.skew = skew
        self.diagonal = _frozen(np.zeros(M) if diagonal is None else np.ascontiguousarray(diagonal))
        self.n_jobs = n_jobs

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what is large and quickly rebuilt."""
        rebuilt = ("by_column", "_samplers")
        return {name: value for name, value in self.__dict__.items() if name not in rebuilt}

    # -- The matrix --------------------------------------------------------------------------------

    def matrix(self) -> Array:
        """Return L as a dense array (M, M)."""
        instead = "Ask for factors, or for some items."
        normalizer.refuse_too_many(self.n_items, "L as a matrix is for few items", instead)
        L: Array = self.left @ self.X.T + self.skew.matrix().toarray()
        L[np.diag_indices_from(L)] += self.diagonal
        return L

    @property
    def kernel(self) -> Kernel:
        """The kernel itself: that of a `Mixture` is a part of it."""
        return self

    @property
    def n_items(self) -> int:
        """M, the number of items."""
        return int(self.factors.shape[0])

    @property
    def n_components(self) -> int:
        """r, the number of columns of X."""
        return int(self.factors.shape[1])

    @cached_property
    def has_diagonal(self) -> bool:
        """True if D is not zero."""
        return bool(self.diagonal.any())

    @cached_property
    def has_identity_inner(self) -> bool:
        """True if G is the identity."""
        return bool((self.inner == np.eye(len(self.inner))).all())

    @cached_property
    def symmetric(self) -> bool:
        """True if L is symmetric."""
        return self.skew.n_entries == 0 and bool((self.inner == self.inner.T).all())

    @property
    def is_low_rank(self) -> bool:
        """True if L = V Vᵀ, as in the paper."""
        return self.symmetric and not self.has_diagonal

    @property
    def is_exact(self) -> bool:
        """True if normalizer, marginals, samples and sizes need no estimate.

        They take a dense matrix over the items with an entry of S, for at most 4,000 of them.
        """
        return len(self.skew.connected) <= normalizer.MAX_DENSE_ITEMS

    @cached_property
    def X(self) -> Array:
        """The factors in float64 (M, r)."""
        return _frozen(self.factors.astype(np.float64, copy=False))

    @cached_property
    def by_column(self) -> Array:
        """X in column-major order: products of a few rows with Xᵀ take two thirds of the time."""
        return _frozen(np.asfortranarray(self.X))

    @cached_property
    def vectors(self) -> Floats:
        """V with D + V Vᵀ = (L + Lᵀ)/2: X, or X G^½ in float64 (M, at most r)."""
        if self.has_identity_inner:
            return self.factors
        values, vectors = eigh((self.inner + self.inner.T) / 2)
        positive = values > 16 * len(values) * EPS * values[-1]
        return _frozen(self.X @ (vectors[:, positive] * np.sqrt(values[positive])))

    @cached_property
    def left(self) -> Array:
        """X G (M, r), for rows of L: L_A: = left_A Xᵀ + D_A: + S_A:."""
        return self.X if self.has_identity_inner else _frozen(self.X @ self.inner)

    @cached_property
    def right(self) -> Array:
        """X Gᵀ (M, r), for columns of L: L_:Aᵀ = right_A Xᵀ + D_A: − S_A:."""
        return self.X if self.has_identity_inner else _frozen(self.X @ self.inner.T)

    @cached_property
    def squared_norms(self) -> Array:
        """The diagonal of L (M,)."""
        X = self.factors
        if self.has_identity_inner:
            norms: Array = np.einsum("ik,ik->i", X, X, dtype=np.float64)
        else:
            norms = np.maximum(np.einsum("ik,ik->i", self.left, self.X), 0.0)
        return norms + self.diagonal if self.has_diagonal else norms

    @cached_property
    def by_weight(self) -> Ints:
        """All items by descending L_ii, equal ones by ascending code (M,)."""
        return _frozen(np.argsort(-self.squared_norms, kind="stable"))

    @cached_property
    def trace(self) -> float:
        """The trace of L."""
        return float(self.squared_norms.sum())

    @cached_property
    def dual(self) -> Array:
        """XᵀX (r, r)."""
        return _frozen(self.X.T @ self.X)

    @cached_property
    def inverse_lengths(self) -> Array:
        """1/√L_ii, or 0 where L_ii = 0: the scale of the correlations (M,)."""
        norms = self.squared_norms
        return _frozen(np.divide(1.0, np.sqrt(norms), out=np.zeros_like(norms), where=norms > 0))

    @cached_property
    def root(self) -> Array:
        """R (r, r), upper triangular, with RᵀR = Vᵀ (I + D)⁻¹ V if L is symmetric, else XᵀX.

        QR keeps singular values down to rounding; a Gram matrix would keep only their squares.
        """
        lengths = np.sqrt(1.0 + self.diagonal) if self.symmetric and self.has_diagonal else None
        with blas_threads(1):
            return triangle(self.vectors if self.symmetric else self.factors, self.n_jobs, lengths)

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """The positive eigenvalues of VᵀV, ascending, and their eigenvectors; for L = V Vᵀ."""
        with blas_threads(1):
            _, lengths, vectors = svd(self.root)
        K = len(lengths)
        positive = lengths > 16 * K * EPS * lengths.max(initial=0.0)
        positive[self.n_items :] = False  # the rank is at most M
        positive &= np.square(lengths) > 0  # a square that underflows is no eigenvalue
        return np.square(lengths[positive])[::-1].copy(), vectors[positive][::-1].T.copy()

    @property
    def eigenvalues(self) -> NDArray[Any]:
        """The eigenvalues of L that are not zero, largest first; complex if L is not symmetric."""
        return normalizer.eigenvalues(self)

    @cached_property
    def rank(self) -> int:
        """The largest size of a set of positive probability; an upper bound unless L = V Vᵀ."""
        if self.is_low_rank:
            return len(self.eigen[0])
        lengths = svd(self.root, compute_uv=False)
        inner_values = svd(self.inner, compute_uv=False)
        X_rank = (lengths > 16 * len(lengths) * EPS * lengths.max(initial=0.0)).sum()
        G_rank = (inner_values > factor.SINGULAR * inner_values.max(initial=0.0)).sum()
        return min(int(min(X_rank, G_rank)) + self._n_full_rank_items, self.n_items)

    @cached_property
    def largest_set(self) -> int:
        """The largest size of a set by the shapes of the parts of L, an upper bound of `rank`."""
        columns = int((self.vectors if self.symmetric else self.factors).shape[1])
        return min(columns + self._n_full_rank_items, max(self.n_items, columns))

    @property
    def _n_full_rank_items(self) -> int:
        """The number of items with an entry of D or S, which need no column of X."""
        return int(((np.diff(self.skew.indptr) > 0) | (self.diagonal > 0)).sum())

    def scaled(self, factor: float) -> Kernel:
        """Return factor · L: the same distribution of sets of one size, but other sizes."""
        X = self.factors * self.factors.dtype.type(np.sqrt(factor))
        d = self.diagonal * factor
        return Kernel.trusted(X, self.inner, self.skew.scaled(factor), d, n_jobs=self.n_jobs)

    def in_double(self) -> Kernel:
        """Return the same kernel with factors in float64."""
        if self.factors.dtype == np.float64:
            return self
        return Kernel.trusted(self.X, self.inner, self.skew, self.diagonal, n_jobs=self.n_jobs)

    def tilted(self, tilts: Array) -> Kernel:
        """Return E L E for E = diag(exp(tilts / 2)), which multiplies L_ii by exp(tilts_i)."""
        half = np.exp(tilts / 2)
        X = self.factors * half[:, None].astype(self.factors.dtype)
        skew = self.skew
        if skew.n_entries:
            rows = np.repeat(np.arange(self.n_items), np.diff(skew.indptr))
            values = skew.values * (half[rows] * half[skew.indices])
            skew = _frozen_skew(Skew(skew.indptr, skew.indices, values))
        d = self.diagonal * np.square(half)
        return Kernel.trusted(X, self.inner, skew, d, n_jobs=self.n_jobs)

    def restrict(self, items: Ints) -> Kernel:
        """Return the kernel of these items alone (ascending codes)."""
        X = self.factors[items]
        d = self.diagonal[items]
        return Kernel.trusted(X, self.inner, self.skew.restrict(items), d, n_jobs=self.n_jobs)

    # -- Probabilities of sets ---------------------------------------------------------------------

    def log_det(self, sets: Sets) -> Array:
        """Return log det L_A of every set, −inf where it is zero (the rule is in `factor`)."""
        return factor.log_det(self, sets)

    def unnormalized_log_probability(self, sets: Sets) -> Array:
        """Return log P(A) up to a constant."""
        return self.log_det(sets)

    def log_probability(self, sets: Sets) -> Array:
        """Return log P(A) of every set."""
        return self.log_det(sets) - self.log_normalizer

    def log_choice(self, chosen: Sets, offered: Sets) -> Array:
        """Return log P(Y = chosen | Y ⊆ offered) for every pair of sets.

        It is log det L_chosen − log det(I + L_offered).
        """
        return self.log_det(chosen) - self.plus_identity.log_det(offered)

    @cached_property
    def plus_identity(self) -> Kernel:
        """I + L."""
        d = self.diagonal + 1.0
        return Kernel.trusted(self.factors, self.inner, self.skew, d, n_jobs=self.n_jobs)

    def inverses(self, sets: Sets, *, ridge: float = 0.0, n_jobs: int | None = None) -> Inverses:
        """Return L_A⁻¹ of every set; see `factor.inverses`."""
        return factor.inverses(self, sets, ridge=ridge, n_jobs=n_jobs)

    # -- The distribution as a whole ---------------------------------------------------------------

    @property
    def log_normalizer(self) -> float:
        """log det(I + L); an estimate unless `is_exact`."""
        return self._normalizer.value

    @property
    def log_normalizer_error(self) -> float:
        """The standard error of `log_normalizer`, and so of every log P; 0 if it is exact."""
        return self._normalizer.error

    @cached_property
    def _normalizer(self) -> Estimate:
        return normalizer.log_normalizer(self)

    def refine_normalizer(self, error: float, *, most: int = 65_536) -> float:
        """Estimate `log_normalizer` again unless its standard error is small enough already.

        The time grows with the inverse square of the error.

        Parameters
        ----------
        error : float
            The standard error to reach.
        most : int
            The largest number of random probes.

        Returns
        -------
        float
            The standard error that was reached.
        """
        if not error > 0:
            raise ParameterError(f"the error must be positive, got {error!r}")
        if self.log_normalizer_error > error:
            precision = Precision(error=error, max_probes=most)
            self._normalizer = normalizer.log_normalizer(self, precision)
        return self.log_normalizer_error

    @cached_property
    def log_size_distribution(self) -> Array:
        """log P(|Y| = k) for k = 0, 1, ..."""
        return normalizer.log_size_distribution(self)

    def size_distribution(self) -> Array:
        """Return P(|Y| = k) for k = 0, 1, ...; with S, for at most 4,000 items with an entry."""
        return np.asarray(np.exp(self.log_size_distribution))

    @cached_property
    def expected_size(self) -> float:
        """E|Y|, the sum of the marginals."""
        return normalizer.expected_size(self)

    def marginals(self, given: Codes = NO_ITEMS) -> Array:
        """Return P(i ∈ Y | given ⊆ Y) for every item i, which is 1 for the given items (M,)."""
        return self.marginals_with_errors(given)[0]

    @property
    def rates(self) -> Array:
        """P(i ∈ Y) of every item (M,)."""
        return self.marginals()

    def marginals_with_errors(self, given: Codes = NO_ITEMS) -> tuple[Array, Array]:
        """Return the marginals and their standard errors, which are 0 if `is_exact`."""
        return normalizer.marginals(self, given)

    def marginal_kernel(self) -> Array:
        """Return K = L (I + L)⁻¹ (M, M), for which P(A ⊆ Y) = det K_A; for at most 4,000 items."""
        return normalizer.marginal_kernel(self)

    @cached_property
    def inclusion(self) -> Kernel:
        """K as a kernel, whose log det K_A is log P(A ⊆ Y)."""
        if not self.symmetric:
            return Kernel.from_matrix(self.marginal_kernel())
        d = self.diagonal / (1.0 + self.diagonal)
        return Kernel.trusted(normalizer.marginal_factors(self), diagonal=d, n_jobs=self.n_jobs)

    # -- Given a basket ----------------------------------------------------------------------------

    def next_scores(self, sets: Sets, *, candidates: Ints | None = None) -> Iterator[scoring.Block]:
        """Score every candidate j given every set A, block by block; see `scoring.next_scores`."""
        return scoring.next_scores(self, sets, candidates=candidates)

    def write_scores(self, sets: Sets, out: Array) -> None:
        """Write the score of every item given every set (n, M), as far as rounding allows."""
        scoring.write_scores_given(self, sets, out)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        """Write the scores given every set without each of its entries in turn (nnz, M)."""
        scoring.write_scores_without_each(self, sets, out)

    def scores_given_prefixes(self, codes: Codes, items: Ints) -> Array:
        """Score items given the first 0, 1, ..., n of the codes (n + 1, m)."""
        return scoring.scores_given_prefixes(self, codes, items)

    def next_totals(self, sets: Sets) -> Array:
        """Return Σ_j det L_{A∪j} / det L_A for every set A."""
        return scoring.next_totals(self, sets)

    def condition(self, given: Codes) -> tuple[Kernel, Ints]:
        """Return the kernel of the remaining items given that `given` ⊆ Y, and their codes."""
        return scoring.condition(self, given)

    @cached_property
    def _samplers(self) -> sampling.Samplers:
        return sampling.Samplers(self)

    def sample(
        self,
        n: int,
        *,
        seed: int,
        size: int | None = None,
        given: Codes = NO_ITEMS,
        chain: bool = False,
        n_steps: int | None = None,
    ) -> Sets:
        """Draw n independent sets with the given items first, of exactly `size` items if given.

        With `chain`, by a Markov chain of so many steps for each.
        """
        if not chain:
            return self._samplers.sample(n, seed=seed, size=size, given=given)
        sampling.refuse_too_many(size, self.rank)
        found = sampling.Chain(self)
        return found.sample(n, seed=seed, size=size, given=given, n_steps=n_steps)

    def grow(self, given: ArrayLike = ()) -> GrowingSet:
        """Start a set to which items are added one by one."""
        return GrowingSet(self, given)

    def similarity(self, code: int) -> Array:
        """Return the similarity of every item to this one (M,).

        It is |cos| of the angle between their rows in the symmetric part of L. Items of similarity
        1 never occur together unless S or the skew part of G attracts them.
        """
        if self.has_identity_inner:
            symmetric = self.factors[code]
        else:
            symmetric = (self.left[code] + self.right[code]) / 2
        products: Array = np.abs(np.einsum("ik,k->i", self.factors, symmetric, dtype=np.float64))
        products[code] += self.diagonal[code]
        scale = np.sqrt(self.squared_norms) * np.sqrt(self.squared_norms[code])
        cosines: Array = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
        return np.minimum(cosines, 1.0)


class Skew(NamedTuple):
    """A skew-symmetric sparse matrix S: a CSR with ascending columns and without zeros."""

    indptr: Ints
    indices: Codes
    values: Array

    @property
    def n_items(self) -> int:
        """The number of rows, and of columns."""
        return len(self.indptr) - 1

    @property
    def n_entries(self) -> int:
        """The number of entries that are not zero; every pair has two."""
        return len(self.indices)

    @property
    def connected(self) -> Ints:
        """The items with an entry, ascending."""
        return np.flatnonzero(np.diff(self.indptr))

    @staticmethod
    def empty(n_items: int) -> Skew:
        """Return S = 0."""
        indptr = np.zeros(n_items + 1, dtype=np.int64)
        return _frozen_skew(Skew(indptr, np.empty(0, dtype=np.int32), np.empty(0)))

    @staticmethod
    def from_matrix(matrix: Skew | csr_array | ArrayLike | None, n_items: int) -> Skew:
        """Convert None, a `Skew`, an array or a SciPy sparse matrix, and check that S = −Sᵀ."""
        if isinstance(matrix, Skew):
            return matrix
        if matrix is None:
            return Skew.empty(n_items)
        return _checked_skew(matrix, n_items)

    @staticmethod
    def from_arrays(indptr: Ints, indices: Codes, values: Array, n_items: int) -> Skew:
        """Build S from the arrays of a CSR, which may come from a damaged file, and check them."""
        well_formed = (
            indptr.shape == (n_items + 1,)
            and indices.ndim == 1
            and indices.shape == values.shape
            and indptr.dtype.kind == indices.dtype.kind == "i"
            and values.dtype.kind == "f"
            and indptr[0] == 0
            and indptr[-1] == len(indices)
            and bool((np.diff(indptr) >= 0).all())
            and (not len(indices) or 0 <= indices.min() <= indices.max() < n_items)
        )
        if not well_formed:
            raise ParameterError("the arrays of its skew part do not fit each other, or its items")
        matrix = csr_array((values, indices, indptr), shape=(n_items, n_items))
        return _checked_skew(matrix, n_items)

    def matrix(self) -> csr_array:
        """Return S as a SciPy CSR array."""
        shape = (self.n_items, self.n_items)
        return csr_array((self.values, self.indices, self.indptr), shape=shape)

    def entries(self, rows: NDArray[np.integer]) -> tuple[Ints, Codes, Array]:
        """Return the entries of some rows in order: position in `rows`, column and value."""
        sizes = self.indptr[rows + 1] - self.indptr[rows]
        owner = np.repeat(np.arange(len(rows)), sizes)
        place = np.arange(len(owner)) + (self.indptr[rows] - np.cumsum(sizes) + sizes)[owner]
        return owner, self.indices[place], self.values[place]

    def block(self, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Skew:
        """Return S[rows, columns] for rows in any order and at least one column, ascending."""
        owner, codes, values = self.entries(rows)
        place = np.minimum(np.searchsorted(columns, codes), len(columns) - 1)
        found = columns[place] == codes
        sizes = np.bincount(owner[found], minlength=len(rows))
        return Skew(pointers(sizes), place[found].astype(np.int32), values[found])

    def restrict(self, items: Ints) -> Skew:
        """Return S of these items alone (ascending codes)."""
        if not self.n_entries:
            return Skew.empty(len(items))
        return _frozen_skew(_skew_of_csr(self.matrix()[items][:, items]))

    def scaled(self, factor: float) -> Skew:
        """Return factor · S."""
        return _frozen_skew(Skew(self.indptr, self.indices, self.values * factor))

    def dense(self, items: Ints) -> Array:
        """Return the rows and columns of these items as an array."""
        block: Array = self.matrix()[items][:, items].toarray()
        return block


# -- Checks ----------------------------------------------------------------------------------------


def checked_factors(factors: ArrayLike, *, empty: bool = False) -> Floats:
    """Return a C-contiguous copy of factors in float64 (or float32), or raise `ParameterError`."""
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
    largest = float(max(V.max(initial=0.0), -V.min(initial=0.0)))  # NaN if there is any
    if not np.isfinite(largest):
        bad = np.flatnonzero(~np.isfinite(V).all(axis=1))
        raise ParameterError(
            f"factors must be finite, but row {bad[0]} is not ({len(bad)} such rows)"
        )
    if largest > LARGEST_FACTOR[V.dtype]:
        limit = f"{LARGEST_FACTOR[V.dtype]:.0e} in {V.dtype}"
        raise ParameterError(
            f"factors must not exceed {limit}, or L = V Vᵀ overflows: got {largest:.1e}"
        )
    return V


def _checked_matrix(given: ArrayLike, name: str) -> Array:
    try:
        if np.iscomplexobj(given):
            raise TypeError
        matrix = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        hint = f": pass {name}.toarray()" if issparse(given) else ""
        raise ParameterError(f"{name} must be a square matrix of real numbers{hint}") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ParameterError(f"{name} must be a square matrix, got shape {matrix.shape}")
    largest = LARGEST_FACTOR[matrix.dtype]
    bad = np.argwhere(~(np.abs(matrix) <= largest))
    if len(bad):
        i, j = bad[0].tolist()
        raise ParameterError(
            f"{name} must be finite, with no entry above {largest:.0e}, but {name}[{i}, {j}] is "
            f"{matrix[i, j]} ({len(bad)} such entries)"
        )
    return matrix


def _checked_inner(inner: ArrayLike, r: int) -> Array:
    G = np.array(inner, dtype=np.float64)
    if G.shape != (r, r) or not np.isfinite(G).all():
        message = f"the inner matrix must be finite and of shape ({r}, {r}), got shape {G.shape}"
        raise ParameterError(message)
    largest = np.abs(G).max(initial=0.0)
    if r and eigvalsh(G + G.T)[0] < -SEMIDEFINITE_ROUNDING * largest:
        raise ParameterError(
            "the symmetric part of the inner matrix must be positive semi-definite"
        )
    if np.abs(G - G.T).max(initial=0.0) <= 8 * EPS * largest:
        G = (G + G.T) / 2  # symmetric except for rounding
    return G


def checked_diagonal(diagonal: ArrayLike, n_items: int) -> Array:
    d = np.array(diagonal, dtype=np.float64)
    largest = LARGEST_FACTOR[d.dtype]
    if d.shape != (n_items,) or not np.isfinite(d).all() or d.min() < 0 or d.max() > largest:
        raise ParameterError(
            f"the diagonal must be {n_items} numbers from 0 to {largest:.0e}, got shape {d.shape}"
        )
    return d


def _checked_skew(matrix: csr_array | ArrayLike, n_items: int) -> Skew:
    try:
        given = matrix if issparse(matrix) else np.asarray(matrix, dtype=np.float64)
        S = csr_array(given, dtype=np.float64, copy=True)  # the steps below work in place
    except (TypeError, ValueError) as error:
        raise ParameterError(f"the skew part must be a matrix of real numbers: {error}") from error
    if S.shape != (n_items, n_items):
        raise ParameterError(f"the skew part must have shape ({n_items}, {n_items}), got {S.shape}")
    S.sum_duplicates()
    if not np.isfinite(S.data).all() or np.abs(S.data).max(initial=0.0) > LARGEST_SKEW_ENTRY:
        raise ParameterError(f"the skew part must be finite, and at most {LARGEST_SKEW_ENTRY:.0e}")
    off = float(np.abs((S + S.T).data).max(initial=0.0))
    if off > SKEW_ROUNDING * np.abs(S.data).max(initial=0.0):
        raise ParameterError(
            f"the skew part must be skew-symmetric, S = −Sᵀ, but S + Sᵀ has an entry of {off:.1e}"
        )
    if off > 0:
        S = csr_array((S - S.T) / 2)
    S.eliminate_zeros()
    return _frozen_skew(_skew_of_csr(S))


def _skew_of_csr(S: csr_array) -> Skew:
    S.sort_indices()
    return Skew(S.indptr.astype(np.int64), S.indices.astype(np.int32), S.data.astype(np.float64))


def _frozen_skew(skew: Skew) -> Skew:
    for array in skew:
        _frozen(array)
    return skew


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
