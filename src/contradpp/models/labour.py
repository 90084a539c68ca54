"""The dear parts of learning from counts, done once for all voices: on this machine here, elsewhere on a cluster."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets
from contradpp.learn.partners import co_occurrences, regress_on_neighbours
from contradpp.models.rows import Rows

Array = NDArray[np.float64]


class Labour:
    """Counts and regressions over training baskets.

    Parameters
    ----------
    train : Baskets
    """

    def __init__(self, train: Baskets) -> None:
        self.train = train

    @cached_property
    def together(self) -> Rows:
        """In how many baskets any two items are together."""
        return Rows.of(self._count())

    def regress(self, diagonal: NDArray[np.floating], n_neighbours: int, n_jobs: int) -> Rows:
        """The ridge regression of every item on its neighbours: see `learn.partners.regress_on_neighbours`."""
        counts = self.train.item_counts.astype(np.float64)
        return Rows.of(self._regress(counts, diagonal.astype(np.float64), n_neighbours, n_jobs))

    def _count(self) -> Any:
        return co_occurrences(self.train.sets, np.ones(self.train.n_baskets), self.train.n_items)

    def _regress(self, counts: Array, diagonal: Array, n_neighbours: int, n_jobs: int) -> Any:
        return regress_on_neighbours(*self.together, counts, diagonal, n_neighbours, n_jobs)
