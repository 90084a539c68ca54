"""Learning a kernel that also attracts on several workers: every one has all parameters and a share of each batch.

The gradient is the sum over shares: rows of V, V's common part and the pairs' are summed in order of rank, so that all
workers make the same step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets, take_sets
from contradpp.distributed.collective import Collective, gather_arrays
from contradpp.learn.objectives import Batch, Divisible, Gradient
from contradpp.learn.partners import co_occurrences
from contradpp.learn.state import State

Array = NDArray[np.float64]


def share_of(sets: Sets, collective: Collective) -> NDArray[np.int64]:
    """The sets that are ours: a run of them with about as many entries as any other's."""
    marks = sets.indptr[-1] * np.arange(collective.size + 1) // collective.size
    ends = np.searchsorted(sets.indptr, marks, side="left")
    ends[0], ends[-1] = 0, sets.count
    return np.arange(ends[collective.rank], ends[collective.rank + 1])


@dataclass(frozen=True)
class SummedObjective:
    """Another objective, each worker over its share of the sets."""

    inner: Divisible
    collective: Collective

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """See `Objective`."""
        K = state.V.shape[1]
        inner, batch = self.inner.for_parts(batch, K)
        liked, others = share_of(batch.positives, self.collective), share_of(batch.negatives.sets, self.collective)
        negatives = replace(
            batch.negatives, sets=take_sets(batch.negatives.sets, others), weights=batch.negatives.weights[others]
        )
        own = Batch(take_sets(batch.positives, liked), batch.weights[liked], negatives)
        found = Gradient(np.empty(0, np.int32), np.empty((0, K)), None, 0.0)
        if own.positives.count or own.negatives.sets.count:
            found = inner.gradient(state, own)
        common = np.zeros(2 + K * K + len(state.pairs))
        common[0] = found.objective
        if found.right is not None:
            common[1], common[2 : 2 + K * K] = 1.0, found.right.reshape(-1)
        if found.pairs is not None:
            common[2 + K * K :] = found.pairs
        summed = np.sum(gather_arrays(self.collective, common), axis=0)
        rows, values = self._rows(found, len(state.V))
        right = summed[2 : 2 + K * K].reshape(K, K) if summed[1] else None
        return Gradient(rows, values, right, float(summed[0]), summed[2 + K * K :])

    def _rows(self, found: Gradient, n_items: int) -> tuple[NDArray[np.int32], Array]:
        """The rows of all shares, each once, and their sums."""
        K = found.values.shape[1]
        numbers = gather_arrays(self.collective, found.rows)
        told = gather_arrays(self.collective, found.values.reshape(-1))
        touched = np.zeros(n_items, dtype=bool)
        for rows in numbers:
            touched[rows] = True
        all_rows = np.flatnonzero(touched).astype(np.int32)
        place = np.cumsum(touched) - 1
        sums = np.zeros((len(all_rows), K))
        for rows, values in zip(numbers, told, strict=True):
            sums[place[rows]] += values.reshape(-1, K)
        return all_rows, sums


def counted_together(own: Sets, n_items: int, collective: Collective) -> Any:
    """How often any two items are in a basket together, over the baskets of all workers (sparse, M × M)."""
    from scipy.sparse import coo_array

    part = co_occurrences(own, np.ones(own.count), n_items).tocoo()
    keys = part.row.astype(np.int64) * n_items + part.col
    codes, counts = (np.concatenate(gather_arrays(collective, array)) for array in (keys, part.data))
    return coo_array((counts, (codes // n_items, codes % n_items)), shape=(n_items, n_items)).tocsr()
