"""A training state whose work over sets is shared: every worker computes some blocks, and all get all results.

The blocks are those of one machine, so that the result is the same to the last bit, whatever the number of workers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks
from contradpp.learn.state import SETS_PER_BLOCK, State
from contradpp.model.kernel import Sets
from contradpp.scale.collective import ClusterError, Collective


class SharedState(State):
    """The factors, of which every worker has a copy, and kernels over sets that all workers run together."""

    def __init__(self, V: NDArray[np.float64], *, n_jobs: int = 1, collective: Collective) -> None:
        super().__init__(V, n_jobs=n_jobs)
        self.collective = collective

    def over_sets(self, kernel: object, sets: Sets, *arguments: object, before: tuple[object, ...] = ()) -> None:
        """See `State`: own blocks by the kernel, those of the others by their word."""
        size, n_blocks = self.collective.size, -(-sets.count // SETS_PER_BLOCK)
        n_entries = len(sets.indices)
        if size == 1 or n_blocks < size or n_entries == sets.count:  # entries and sets must be told apart by number
            super().over_sets(kernel, sets, *arguments, before=before)
            return
        ends = [min(n_blocks * rank // size * SETS_PER_BLOCK, sets.count) for rank in range(size + 1)]
        first_block = ends[self.collective.rank] // SETS_PER_BLOCK
        last_block = -(-ends[self.collective.rank + 1] // SETS_PER_BLOCK)

        def work(block: int) -> None:
            first = (first_block + block) * SETS_PER_BLOCK
            last = min(first + SETS_PER_BLOCK, sets.count)
            kernel(self.V, *before, sets.indptr, sets.indices, first, last, *arguments)  # type: ignore[operator]

        run_blocks(work, last_block - first_block, self.n_jobs)
        for array in arguments:
            if isinstance(array, np.ndarray) and array.flags.writeable and len(array) in (n_entries, sets.count):
                self._exchange(array, [int(sets.indptr[end]) for end in ends] if len(array) == n_entries else ends)

    def _exchange(self, array: NDArray[np.float64], ends: list[int]) -> None:
        """Fill the parts of an array that others computed: worker r has rows ends[r]..ends[r + 1]."""
        rank = self.collective.rank
        own = np.ascontiguousarray(array[ends[rank] : ends[rank + 1]])
        parts = self.collective.gather(own.data.cast("B") if own.size else b"")
        for other, part in enumerate(parts):
            if other == rank:
                continue
            target = array[ends[other] : ends[other + 1]]
            if len(part) != target.nbytes:
                raise ClusterError(f"worker {other} is at another step than worker {rank}")
            target[...] = np.frombuffer(part, dtype=array.dtype).reshape(target.shape)
