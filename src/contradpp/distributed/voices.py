"""The other voices of a `ConditionalDPP`: workers count and solve regressions, the driver does the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, pointers, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.distributed.crew import Crew
from contradpp.distributed.learning import Held, Model
from contradpp.distributed.shards import Positions
from contradpp.models.conditional import ConditionalDPP, not_in
from contradpp.models.labour import Labour


def parts_of(model: Any, validation: float | None) -> tuple[Model, Held]:
    """The kernel that is to be learned for a model, which may be one itself, and what is held out."""
    if isinstance(model, ConditionalDPP):
        return model.new_kernel(), model.held_out(validation)
    return model, validation


def learn_voices(model: ConditionalDPP, kernel: Model, crew: Crew, held_out: Callable[[int], Positions]) -> None:
    """All that comes after the kernel, with the crew that has just learned it."""
    baskets = gathered(crew, kernel.items_)
    held = held_out(baskets.n_baskets)
    rest = not_in(held, baskets.n_baskets)
    seen, everything = (SharedLabour(baskets, numbers, crew) for numbers in (rest, np.arange(baskets.n_baskets)))
    model.learn_voices(kernel, baskets.subset(held), seen, everything)


def gathered(crew: Crew, items: Vocabulary) -> Baskets:
    """The baskets of all workers, by their numbers."""
    numbers, parts = zip(*crew.ask("baskets"), strict=True)
    sizes = np.concatenate([part.sizes for part in parts])
    together = Sets(pointers(sizes), np.concatenate([part.indices for part in parts]))
    ordered = take_sets(together, np.argsort(np.concatenate(numbers)))
    return Baskets(ordered.indptr, ordered.indices, items)


class SharedLabour(Labour):
    """Counts and regressions over the baskets of these numbers, shared out among the workers."""

    def __init__(self, baskets: Baskets, numbers: Positions, crew: Crew) -> None:
        super().__init__(baskets.subset(numbers))
        self._numbers, self._crew = numbers, crew

    def _count(self) -> Any:
        numbers = self._crew.send(self._numbers)
        return reduce(add, self._crew.ask("count_together", [numbers] * self._crew.size))

    def _regress(
        self, counts: NDArray[np.float64], diagonal: NDArray[np.float64], n_neighbours: int, n_jobs: int
    ) -> Any:
        del n_jobs
        from scipy.sparse import hstack

        size = self._crew.size
        system = self._crew.send((*self.together, counts, diagonal))
        ends = np.linspace(0, len(counts), size + 1).astype(int).tolist()
        shares = [range(ends[k], ends[k + 1]) for k in range(size)]
        return hstack(self._crew.ask("regress", [system] * size, [n_neighbours] * size, shares), format="csc")
