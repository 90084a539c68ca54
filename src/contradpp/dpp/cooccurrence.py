"""Co-occurrence counts of items, and the regression of every item on its nearest items.

X is the matrix of baskets × items with X[b, i] = 1 if basket b holds item i, and C = Xᵀ X.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contradpp._threads import over_parts, results_of_blocks, run_blocks
from contradpp._types import Array, Codes, Ints
from contradpp.data.sets import Sets, pointers
from contradpp.dpp import compiled

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

N_PARTS = 8  # of the items, whose pairs are counted at the same time
ITEMS_PER_BLOCK = 64  # regressions that a thread does at a time


def co_occurrences(sets: Sets, weights: Array, n_items: int, n_jobs: int = 1) -> csr_array:
    """Count in how many sets any two items are together: C = Xᵀ diag(weights) X.

    Returns
    -------
    sparse array (M, M)
        With sorted columns; the diagonal counts the sets of each item.
    """
    from scipy import sparse

    owner = sets.owners
    # SciPy is half as fast if either index array has 64 bits.
    short = np.int32 if len(sets.indices) < 2**31 else np.int64
    pattern = (sets.indices.astype(short, copy=False), sets.indptr.astype(short))
    X = sparse.csr_array((np.sqrt(weights)[owner], *pattern), shape=(sets.count, n_items))
    by_item = X.T.tocsr()
    work_up_to = np.cumsum(np.bincount(sets.indices, sets.sizes[owner], n_items))
    shares = np.arange(1, N_PARTS) / N_PARTS * work_up_to[-1] if n_items else []
    edges = [0, *np.searchsorted(work_up_to, shares).tolist(), n_items]

    def multiply(part: int) -> csr_array:
        product = by_item[edges[part] : edges[part + 1]] @ X
        product.sort_indices()
        return product

    parts = results_of_blocks(multiply, len(edges) - 1, n_jobs)
    ends = pointers(np.array([part.nnz for part in parts]))
    indptr = pointers(np.concatenate([np.diff(part.indptr) for part in parts]))
    columns = np.empty(ends[-1], dtype=np.int32)
    values = np.empty(ends[-1])

    def join(part: int) -> None:  # on threads: touching new memory takes as long as copying
        own = slice(ends[part], ends[part + 1])
        columns[own] = parts[part].indices
        values[own] = parts[part].data
        parts[part] = None

    run_blocks(join, len(parts), n_jobs)
    return sparse.csr_array((values, columns, indptr), shape=(n_items, n_items))


def regress_on_neighbors(
    indptr: Ints,
    columns: Codes,
    together: Array,
    counts: Array,
    diagonal: Array,
    n_neighbors: int,
    n_jobs: int,
) -> csc_array:
    """Solve the ridge regression of every item j on the items N that are nearest to it by cosine.

    B_Nj = (C_NN + diag(d_N))⁻¹ C_Nj

    Parameters
    ----------
    indptr, columns, together : arrays
        The rows of C without its diagonal.
    counts : array (M,)
        The diagonal of C.
    diagonal : array (M,)
        d, the penalty of every item.

    Returns
    -------
    sparse array (M, M)
        B by columns.
    """
    from scipy.sparse import csc_array

    M = len(counts)
    system = (indptr, columns, together, counts, diagonal)
    width = int(min(n_neighbors, np.diff(indptr).max(initial=0)))
    codes = np.empty((M, width), dtype=np.int32)
    weights = np.empty((M, width))
    sizes = np.zeros(M, dtype=np.int64)

    def solve(part: slice) -> None:
        out = (codes[part], weights[part], sizes[part])
        compiled.neighbors.ridge_columns(*system, part.start, part.stop, *out)

    over_parts(solve, M, ITEMS_PER_BLOCK, n_jobs)
    found = np.arange(width) < sizes[:, None]
    return csc_array((weights[found], codes[found], pointers(sizes)), shape=(M, M))
