"""Statistics that experts share: rows of weights, sparse or dense, sums of them, and counts and regressions.

What takes long is done once for all experts: on this machine here, elsewhere on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp import experts
from contradpp._threads import resolve_n_jobs
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets
from contradpp.dpp import persist
from contradpp.learn.state import co_occurrences, regress_on_neighbours

Array = NDArray[np.float64]
MOST_WEIGHT = 1e30  # in a file: sums of more might overflow
STORED_ROWS = {
    "indptr": persist.Stored(("M+1",), np.int64),
    "columns": persist.Stored(("n",), np.int32),
    "values": persist.Stored(("n",), low=-MOST_WEIGHT, high=MOST_WEIGHT, single=True),
}


class Rows(NamedTuple):
    """A sparse matrix by rows as the kernels take it: a CSR with ascending columns."""

    indptr: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: Array

    @classmethod
    def of(cls, matrix: Any) -> Rows:
        """The rows of a SciPy matrix, without its diagonal."""
        csr = matrix.tocsr()
        csr.sort_indices()
        rows = cls(csr.indptr.astype(np.int64), csr.indices.astype(np.int32, copy=False), csr.data)
        rows = rows.where(rows.columns != rows.owners)
        return rows._replace(values=rows.values.astype(np.float64, copy=False))

    @classmethod
    def restored(cls, n_items: int, arrays: Mapping[str, NDArray[Any]]) -> Rows:
        """Rows over n items from a file, or ValueError if they are none."""
        rows = cls(**persist.read_arrays(arrays, STORED_ROWS, "rows of weights", M=n_items))
        persist.check_rows(rows.indptr, rows.columns, n_items, "rows of weights")
        return rows

    @property
    def owners(self) -> NDArray[np.int32]:
        """The row of every entry."""
        return np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int32), np.diff(self.indptr))

    def matrix(self, n_columns: int) -> Any:
        """As a SciPy CSR matrix."""
        from scipy.sparse import csr_matrix

        return csr_matrix((self.values, self.columns, self.indptr), shape=(len(self.indptr) - 1, n_columns))

    def where(self, kept: NDArray[np.bool_]) -> Rows:
        """Only these entries."""
        if kept.all():
            return self
        gone_before = np.searchsorted(np.flatnonzero(~kept), self.indptr)
        return Rows(self.indptr - gone_before, self.columns[kept], self.values[kept])

    def largest(self, n: int | None) -> Rows:
        """The n largest entries of every row; of equal ones those of the lower columns. None for all."""
        if n is None or not len(self.values) or np.diff(self.indptr).max() <= n:
            return self
        kept = np.empty(len(self.values), dtype=bool)
        experts.compiled.mark_largest_of_rows(self.indptr, self.values, n, kept)
        return self.where(kept)

    def at(self, row: int, column: int) -> float:
        """One entry, 0 where there is none."""
        columns = self.columns[self.indptr[row] : self.indptr[row + 1]]
        place = int(np.searchsorted(columns, column))
        there = place < len(columns) and columns[place] == column
        return float(self.values[self.indptr[row] + place]) if there else 0.0


class Sums(NamedTuple):
    """Scores of the kind bias_j + Σ_{a∈A} S[a, j]; without a matrix they do not depend on the basket."""

    bias: Array  # (M,)
    matrix: Rows | Array | None  # S; its diagonal does not matter

    def write(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        """out[s] = the sum of the rows of set s, without the bias (n_sets, M).

        With `each`, out[e] = the sum of the rows of e's set but its own, for every entry e (nnz, M).
        """
        if isinstance(self.matrix, Rows):
            add = experts.compiled.sum_other_rows if each else experts.compiled.sum_rows
            add(*self.matrix, sets.indices, sets.indptr, out)
        elif self.matrix is None:
            out[:] = 0.0
        else:
            sums = indicator(sets, len(self.bias)) @ self.matrix
            out[:] = sums[np.repeat(np.arange(sets.count), sets.sizes)] - self.matrix[sets.indices] if each else sums

    def contributions(self, codes: NDArray[np.int32], item: int) -> Array:
        """S[a, item] for every a."""
        if isinstance(self.matrix, Rows):
            return np.array([self.matrix.at(a, item) for a in codes.tolist()])
        return np.zeros(len(codes)) if self.matrix is None else self.matrix[codes, item]


def indicator(sets: Sets, n_items: int) -> Any:
    """The sets as a SciPy CSR matrix of ones (n_sets, n_items)."""
    from scipy.sparse import csr_matrix

    return csr_matrix((np.ones(len(sets.indices)), sets.indices, sets.indptr), shape=(sets.count, n_items))


class Labour:
    """Counts and regressions over training baskets."""

    def __init__(self, train: Baskets) -> None:
        self.train = train

    @cached_property
    def together(self) -> Rows:
        """In how many baskets any two items are together."""
        return Rows.of(self._count())

    def regress(self, diagonal: NDArray[np.floating], n_neighbours: int, n_jobs: int) -> Rows:
        """The ridge regression of every item on its neighbours: see `learn.state.regress_on_neighbours`."""
        counts = self.train.item_counts.astype(np.float64)
        return Rows.of(self._regress(counts, diagonal.astype(np.float64), n_neighbours, n_jobs))

    def _count(self) -> Any:
        train = self.train
        return co_occurrences(train.sets, np.ones(train.n_baskets), train.n_items, resolve_n_jobs(None))

    def _regress(self, counts: Array, diagonal: Array, n_neighbours: int, n_jobs: int) -> Any:
        return regress_on_neighbours(*self.together, counts, diagonal, n_neighbours, n_jobs)
