"""Statistics that experts share: weights between items, sums of them, counts of pairs, regressions.

They are computed once for all experts.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp import experts
from contradpp._threads import resolve_n_jobs
from contradpp._types import Array, Codes, Flags, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets
from contradpp.dpp import files as persist
from contradpp.dpp.cooccurrence import co_occurrences, regress_on_neighbors

MOST_WEIGHT = 1e30  # in a file: sums of more might overflow
STORED_ROWS = {
    "indptr": persist.Stored(("M+1",), np.int64),
    "columns": persist.Stored(("n",), np.int32),
    "values": persist.Stored(("n",), low=-MOST_WEIGHT, high=MOST_WEIGHT, single=True),
}


class Rows(NamedTuple):
    """A sparse matrix in the form that the kernels take: a CSR with ascending columns.

    SciPy stores `indptr` and `columns` in one type, the kernels take 64 and 32 bits.
    """

    indptr: Ints
    columns: Codes
    values: Array

    @classmethod
    def of(cls, matrix: Any) -> Rows:
        """Return the rows of a SciPy matrix, without its diagonal."""
        csr = matrix.tocsr()
        csr.sort_indices()
        rows = cls(csr.indptr.astype(np.int64), csr.indices.astype(np.int32, copy=False), csr.data)
        rows = rows.where(rows.columns != rows.owners)
        return rows._replace(values=rows.values.astype(np.float64, copy=False))

    @classmethod
    def restored(cls, n_items: int, arrays: persist.Tensors) -> Rows:
        """Return the rows over n items that a file holds, or raise ValueError."""
        rows = cls(**persist.read_arrays(arrays, STORED_ROWS, "rows of weights", M=n_items))
        persist.check_rows(rows.indptr, rows.columns, n_items, "rows of weights")
        return rows

    @property
    def owners(self) -> Codes:
        """The row of every entry."""
        return np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int32), np.diff(self.indptr))

    def matrix(self, n_columns: int) -> Any:
        """Return the rows as a SciPy CSR matrix."""
        from scipy.sparse import csr_matrix

        shape = (len(self.indptr) - 1, n_columns)
        return csr_matrix((self.values, self.columns, self.indptr), shape=shape)

    def where(self, selected: Flags) -> Rows:
        """Return the selected entries only."""
        if selected.all():
            return self
        removed_before = np.searchsorted(np.flatnonzero(~selected), self.indptr)
        return Rows(self.indptr - removed_before, self.columns[selected], self.values[selected])

    def largest(self, n: int | None) -> Rows:
        """Return the n largest entries of every row (None for all), ties by lower column."""
        if n is None or not len(self.values) or np.diff(self.indptr).max() <= n:
            return self
        selected = np.empty(len(self.values), dtype=bool)
        experts.compiled.mark_largest_of_rows(self.indptr, self.values, n, selected)
        return self.where(selected)

    def at(self, row: int, column: int) -> float:
        """Return one entry, 0 where there is none."""
        columns = self.columns[self.indptr[row] : self.indptr[row + 1]]
        place = int(np.searchsorted(columns, column))
        present = place < len(columns) and columns[place] == column
        return float(self.values[self.indptr[row] + place]) if present else 0.0


ItemWeights = Rows | Array  # W (M, M), sparse or dense; its diagonal does not matter


def write_sums(W: ItemWeights, sets: Sets, out: Array) -> None:
    """Write Σ_{a∈A} W[a, j] of every set A and item j (n_sets, M)."""
    if isinstance(W, Rows):
        experts.compiled.sum_rows(*W, sets.indices, sets.indptr, out)
    else:
        out[:] = indicator(sets, len(W)) @ W


def write_sums_without_each(W: ItemWeights, sets: Sets, out: Array) -> None:
    """Write Σ_{a∈A∖i} W[a, j] of every entry i of the sets A and item j (nnz, M)."""
    if isinstance(W, Rows):
        experts.compiled.sum_other_rows(*W, sets.indices, sets.indptr, out)
    else:
        out[:] = (indicator(sets, len(W)) @ W)[sets.owners] - W[sets.indices]


def weights_to(W: ItemWeights, codes: Codes, item: int) -> Array:
    """Return W[a, item] for every code a."""
    if isinstance(W, Rows):
        return np.array([W.at(a, item) for a in codes.tolist()])
    terms: Array = W[codes, item]
    return terms


def indicator(sets: Sets, n_items: int) -> Any:
    """Return the sets as a SciPy CSR matrix of ones (n_sets, n_items)."""
    from scipy.sparse import csr_matrix

    ones = np.ones(len(sets.indices))
    return csr_matrix((ones, sets.indices, sets.indptr), shape=(sets.count, n_items))


class BasketStatistics:
    """Training baskets, and counts and regressions over them that several experts use."""

    def __init__(self, train: Baskets) -> None:
        self.train = train
        self.counts = train.item_counts.astype(np.float64)  # baskets with each item

    @cached_property
    def together(self) -> Rows:
        """The number of baskets that hold both items of a pair."""
        train = self.train
        ones = np.ones(train.n_baskets)
        return Rows.of(co_occurrences(train.sets, ones, train.n_items, resolve_n_jobs(None)))

    def regress(self, diagonal: NDArray[np.floating], n_neighbors: int, n_jobs: int) -> Rows:
        """Return the ridge regression of every item on its nearest items.

        See `dpp.cooccurrence.regress_on_neighbors`.
        """
        penalties: Array = diagonal.astype(np.float64)
        found = regress_on_neighbors(*self.together, self.counts, penalties, n_neighbors, n_jobs)
        return Rows.of(found)
