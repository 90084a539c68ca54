"""A Numba kernel for the square of a sparse matrix, row by row, of which nothing but the rows' lengths is kept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import entry

Array = NDArray[np.float64]


@entry
def square_row_lengths(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], values: Array, first: int, last: int, out: Array
) -> None:
    """Σ_j (S²)_ij² for rows first..last−1 of a CSR matrix S, written to their places in `out`."""
    n = len(indptr) - 1
    row, owner, touched = np.zeros(n), np.full(n, -1), np.empty(n, dtype=np.int32)
    for i in range(first, last):
        count = 0
        for a in range(indptr[i], indptr[i + 1]):
            k = indices[a]
            for b in range(indptr[k], indptr[k + 1]):
                j = indices[b]
                if owner[j] != i:
                    owner[j], row[j], touched[count] = i, 0.0, j
                    count += 1
                row[j] += values[a] * values[b]
        total = 0.0
        for t in range(count):
            total += row[touched[t]] * row[touched[t]]
        out[i] = total
