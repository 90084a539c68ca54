"""A sparse skew-symmetric matrix: what pairs of items add to a kernel, checked and frozen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import pointers
from contradpp.errors import ParameterError

Array = NDArray[np.float64]

# Entries S_ij and −S_ji that differ by no more than this share of the largest are equal but for rounding.
_ROUNDING = 1e-9
_LARGEST = 1e100


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
        return _frozen(Skew(np.zeros(n_items + 1, dtype=np.int64), nothing, nothing.astype(np.float64)))

    @staticmethod
    def of(matrix: Any, n_items: int) -> Skew:
        """From None, a `Skew`, an array or a SciPy sparse matrix; `ParameterError` if it is not skew-symmetric."""
        if isinstance(matrix, Skew):
            return matrix
        if matrix is None:
            return Skew.empty(n_items)
        return _checked(matrix, n_items)

    @staticmethod
    def of_parts(indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], n_items: int) -> Skew:
        """From the arrays of a CSR, maybe of a damaged file; `ParameterError` if they are not a skew matrix."""
        from scipy.sparse import csr_array

        good = indptr.shape == (n_items + 1,) and indices.ndim == 1 and indices.shape == values.shape
        good = good and indptr.dtype.kind == indices.dtype.kind == "i" and values.dtype.kind == "f"
        good = good and indptr[0] == 0 and indptr[-1] == len(indices) and bool((np.diff(indptr) >= 0).all())
        if not good or (len(indices) and not 0 <= indices.min() <= indices.max() < n_items):
            raise ParameterError("the arrays of its skew part do not fit each other, or its items")
        return _checked(csr_array((values, indices, indptr), shape=(n_items, n_items)), n_items)

    def matrix(self) -> Any:
        """As a SciPy CSR array."""
        from scipy.sparse import csr_array

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
        return _frozen(_parts(self.matrix()[items][:, items])) if self.n_entries else Skew.empty(len(items))

    def scaled(self, factor: float) -> Skew:
        """factor · S."""
        return _frozen(Skew(self.indptr, self.indices, self.values * factor))

    def dense(self, items: NDArray[np.int64]) -> Array:
        """The rows and columns of these items as an array."""
        block: Array = self.matrix()[items][:, items].toarray()
        return block


def _checked(matrix: Any, n_items: int) -> Skew:
    from scipy.sparse import csr_array, issparse

    try:
        given = matrix if issparse(matrix) else np.asarray(matrix, dtype=np.float64)
        S = csr_array(given, dtype=np.float64, copy=True)  # what follows works in place
    except (TypeError, ValueError) as error:
        raise ParameterError(f"the skew part must be a matrix of real numbers: {error}") from error
    if S.shape != (n_items, n_items):
        raise ParameterError(f"the skew part must have shape ({n_items}, {n_items}), got {S.shape}")
    S.sum_duplicates()
    if not np.isfinite(S.data).all() or np.abs(S.data).max(initial=0.0) > _LARGEST:
        raise ParameterError(f"the skew part must be finite, and at most {_LARGEST:.0e}")
    both = S + S.T
    off = float(np.abs(both.data).max(initial=0.0))
    if off > _ROUNDING * np.abs(S.data).max(initial=0.0):
        raise ParameterError(f"the skew part must be skew-symmetric, S = −Sᵀ, but S + Sᵀ has an entry of {off:.1e}")
    if off > 0:
        S = csr_array((S - S.T) / 2)
    S.eliminate_zeros()
    return _frozen(_parts(S))


def _parts(S: Any) -> Skew:
    S.sort_indices()
    return Skew(S.indptr.astype(np.int64), S.indices.astype(np.int32), S.data.astype(np.float64))


def _frozen(skew: Skew) -> Skew:
    for array in skew:
        array.flags.writeable = False
    return skew
