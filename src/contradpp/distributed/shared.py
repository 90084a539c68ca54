"""A training state whose work over sets is shared: every worker computes some blocks, and all get all results.

The blocks are those of one machine, so that the result is the same to the last bit, whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks
from contradpp.distributed.collective import Collective, fill
from contradpp.learn.state import Positions, State


class SharedState(State):
    """The factors, of which every worker has a copy, and kernels over sets that all workers run together."""

    def __init__(self, V: NDArray[np.float64], *, n_jobs: int = 1, collective: Collective) -> None:
        super().__init__(V, n_jobs=n_jobs)
        self.collective = collective

    def at(self, V: NDArray[np.float64]) -> SharedState:
        """See `State`."""
        return SharedState(V, n_jobs=self.n_jobs, collective=self.collective)

    def in_blocks(self, work: Callable[[int], None], results: Sequence[tuple[NDArray[Any], Positions]]) -> None:
        """See `State`: own blocks by our work, those of the others by their word."""
        rank, size, n_blocks = self.collective.rank, self.collective.size, len(results[0][1]) - 1
        ends = [n_blocks * other // size for other in range(size + 1)]
        first, last = ends[rank], ends[rank + 1]
        run_blocks(lambda block: work(first + block), last - first, self.n_jobs)
        if size > 1:
            fill(self.collective, [(array, starts[ends].tolist()) for array, starts in results])
