"""The metrics, as functions of how the held-out items rank.

Of the items outside A∖i, `better` beat the held-out item i and `equal` others tie with it. Where a metric needs an
order among items that tie, it is the mean over all orders: a model that cannot tell items apart gets what a coin
would, no more. Only `percentile_rank` without `fair`, the paper's, counts ties for the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


def percentile_rank(better: Counts, equal: Counts, others: Counts, *, fair: bool = False) -> Array:
    """The paper's PR_{i,A∖i}: the percentage of the items outside A∖i, i itself among them, with p_i ≥ p_i'.

    `others` is their number, M − |A∖i|. With `fair`, a tie with another item counts half.
    """
    beaten = others - better - (0.5 * equal if fair else 0)
    return 100.0 * beaten / others


def hits(better: Counts, equal: Counts, k: int) -> Array:
    """1[rank(i | A∖i) ≤ k], the term of the paper's p@k; with ties, the share of their orders in which it holds."""
    return np.clip((k - better) / (equal + 1.0), 0.0, 1.0)


def ndcg(better: Counts, equal: Counts, k: int = 10) -> Array:
    """1/log₂(1 + rank) where the rank is at most k, else 0: nDCG with one relevant item. Ties as in `hits`."""
    gains = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, k + 2)))])
    ahead = np.minimum(better, k)
    expected: Array = (gains[np.minimum(better + equal + 1, k)] - gains[ahead]) / (equal + 1.0)
    return expected


def basket_means(values: Array, indptr: Counts) -> Array:
    """The mean over each basket's entries; no basket may be empty."""
    means: Array = np.add.reduceat(values, indptr[:-1]) / np.diff(indptr) if len(indptr) > 1 else values[:0]
    return means


def paired_wins(scores: Array, random_scores: Array) -> Array:
    """1 where a set scores above its own random set, ½ where they tie (as two impossible sets do), else 0."""
    return np.where(scores == random_scores, 0.5, scores > random_scores).astype(np.float64)


def coverage(lists: NDArray[np.integer[Any]], n_items: int) -> float:
    """The share of the catalogue that appears in at least one list; −1 in a list is no item."""
    return float(len(np.unique(lists[lists >= 0])) / n_items)
