"""A training state whose work over sets is shared: every worker computes some blocks, and all get all results.

The blocks are those of one machine, so that the result is the same to the last bit, whatever the number of workers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks
from contradpp.errors import ClusterError
from contradpp.learn.state import SETS_PER_BLOCK, State
from contradpp.model.kernel import Sets
from contradpp.scale.collective import Collective


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
        of_sets = ends
        of_entries = [int(sets.indptr[end]) for end in ends]
        shared = [a for a in arguments if isinstance(a, np.ndarray) and len(a) in (n_entries, sets.count)]
        self._exchange([(a, of_entries if len(a) == n_entries else of_sets) for a in shared])

    def _exchange(self, arrays: list[tuple[NDArray[np.float64], list[int]]]) -> None:
        """Fill the parts of arrays that others computed, in one message: worker r has rows ends[r]..ends[r + 1]."""
        rank = self.collective.rank
        own = np.concatenate([array[ends[rank] : ends[rank + 1]].reshape(-1) for array, ends in arrays])
        for other, part in enumerate(self.collective.gather(own.data.cast("B") if own.size else b"")):
            if other == rank:
                continue
            told, at = np.frombuffer(part, dtype=np.float64), 0
            targets = [array[ends[other] : ends[other + 1]] for array, ends in arrays]
            if len(told) != sum(target.size for target in targets):
                raise ClusterError(f"worker {other} is at another step than worker {rank}")
            for target in targets:
                target[...] = told[at : at + target.size].reshape(target.shape)
                at += target.size
