"""How lists of recommendations differ, within (`intra_list`) and from basket to basket (`personalization`).

Two items are alike where they occur in the same baskets, by the Jaccard index: a list of best sellers, which meet
all the time, is less varied than one of items from different corners of the catalogue. Items that replace each
other rarely meet either, so that this rewards them too; it needs no description of the items, only baskets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets

Array = NDArray[np.float64]


def likeness(baskets: Baskets, items: NDArray[np.int32]) -> Any:
    """The Jaccard index of the occurrences of these items, |b ∋ i, j| / |b ∋ i or j|, as a sparse matrix."""
    from scipy.sparse import csr_matrix

    X = csr_matrix(baskets.to_csr())[:, items]
    together = csr_matrix(X.T @ X).tocoo()
    counts = np.asarray(X.sum(axis=0)).ravel()
    either = counts[together.row] + counts[together.col] - together.data
    return csr_matrix((together.data / either, (together.row, together.col)), shape=together.shape)


def intra_list(lists: NDArray[np.int32], baskets: Baskets) -> Array:
    """For every list, the mean of 1 − Jaccard over its pairs of items; NaN for lists of fewer than two items."""
    items, position = np.unique(lists[lists >= 0], return_inverse=True)
    if not len(items):
        return np.full(len(lists), np.nan)
    alike = likeness(baskets, items)
    placed = np.full(lists.shape, -1)
    placed[lists >= 0] = position
    pairs, total = np.zeros(len(lists)), np.zeros(len(lists))
    for a in range(lists.shape[1]):
        for b in range(a):
            there = np.flatnonzero((placed[:, a] >= 0) & (placed[:, b] >= 0))
            if not len(there):
                continue
            total[there] += 1.0 - np.asarray(alike[placed[there, a], placed[there, b]]).ravel()
            pairs[there] += 1
    means: Array = np.divide(total, pairs, out=np.full(len(lists), np.nan), where=pairs > 0)
    return means


def personalization(lists: NDArray[np.int32], n_items: int) -> float:
    """The expected share of a list that is not in the list of another basket: 0 if all are told the same."""
    n = len(lists)
    counts = np.bincount(lists[lists >= 0], minlength=n_items).astype(np.float64)
    if n < 2 or not counts.any():
        return float("nan")
    shared = (counts * (counts - 1)).sum() / (n * (n - 1))
    return float(1.0 - shared / (counts.sum() / n))
