"""Training where no worker has all of V: each owns some rows, with their part of the optimiser's memory.

A worker takes the gradient over its own baskets. It fetches the rows of their items, and gives the gradient of each to
the row's owner, who makes the step. Only rows of the batch and K×K matrices travel.

A set that is another worker's is known by its size only: its entries are −1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets, take_sets
from contradpp.distributed.collective import gather_arrays, total
from contradpp.distributed.owners import Owners, Route
from contradpp.learn.negatives import Negatives, NegativeSource
from contradpp.learn.objectives import Batch, Divisible, Gradient
from contradpp.learn.settings import Settings, Watched
from contradpp.learn.state import State

Array = NDArray[np.float64]
Positions = NDArray[np.int64]


class OwnedState(State):
    """Our own rows; C is that of all rows."""

    def __init__(self, V: Array, owners: Owners, *, n_jobs: int = 1) -> None:
        super().__init__(V, n_jobs=n_jobs)
        self.owners = owners
        self.block = max(64, int(np.sqrt(len(owners.owner))))
        self._whole: tuple[Array, Array] | None = None  # our part of C, and the sum of all parts
        self._norms: Array | None = None
        self._told = np.zeros(len(V))  # our squared norms as the others know them

    @property
    def dual(self) -> Array:
        """C = Vᵀ V over the rows of all workers; all ask for it at the same time."""
        own = super().dual
        if self._whole is None or self._whole[0] is not own:
            self._whole = own, total(self.owners.collective, own)
        return self._whole[1]

    def at(self, V: Array) -> OwnedState:
        """See `State`."""
        return OwnedState(V, self.owners, n_jobs=self.n_jobs)

    def norms_of_all(self) -> Array:
        """The squared norms of all rows (M,): everyone tells those that changed since they were last asked for."""
        if self._norms is None:
            self._norms = np.zeros(len(self.owners.owner))
        changed = np.flatnonzero(self.squared_norms != self._told)
        self._told[changed] = self.squared_norms[changed]
        numbers = gather_arrays(self.owners.collective, self.owners.own[changed].astype(np.int32))
        for rows, norms in zip(numbers, gather_arrays(self.owners.collective, self._told[changed]), strict=True):
            self._norms[rows] = norms
        return self._norms

    def snapshot(self) -> dict[str, object]:
        """See `State`; sums are made anew."""
        kept = super().snapshot()
        return {name: value for name, value in kept.items() if name not in ("dual", "norm_blocks")}


class FetchedState(State):
    """Rows from several owners, for as long as one gradient takes."""

    def __init__(self, V: Array, dual: Array | None, *, n_jobs: int) -> None:
        super().__init__(V, n_jobs=n_jobs)
        self._dual = dual


def own_sets(sets: Sets, rank: int) -> Positions:
    """Which of the sets are ours; the first worker has all that are empty."""
    filled = sets.sizes > 0
    ours = np.full(sets.count, rank == 0)
    ours[filled] = sets.indices[sets.indptr[:-1][filled]] >= 0
    return np.flatnonzero(ours)


def fetch(owners: Owners, state: OwnedState, sets: Sets) -> tuple[Route, Array, Sets]:
    """The way to the rows of the sets' items, the rows, and the sets with items numbered by their place in them."""
    rows, slots = owners.number(sets.indices)
    route = owners.route(rows)
    return route, route.fetch(state.V), Sets(sets.indptr, slots)


@dataclass(frozen=True)
class OwnedObjective:
    """Another objective, each worker over its own sets; every owner gets the gradient of its rows."""

    inner: Divisible
    owners: Owners

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """See `Objective`."""
        assert isinstance(state, OwnedState)
        K, rank = state.V.shape[1], self.owners.collective.rank
        inner, batch = self.inner.for_parts(batch, K)
        liked, others = own_sets(batch.positives, rank), own_sets(batch.negatives.sets, rank)
        positives, negatives = take_sets(batch.positives, liked), take_sets(batch.negatives.sets, others)
        own = Batch(positives, batch.weights[liked], replace(batch.negatives, sets=negatives))
        dual = state.dual if inner.needs_dual else None
        route, V, sets = fetch(self.owners, state, own.together())
        own = numbered(own, sets, batch.negatives.weights[others])
        values, header = np.zeros(V.shape), np.zeros(2 + K * K)
        if sets.count:
            found = inner.of_rows(route.rows).gradient(FetchedState(V, dual, n_jobs=state.n_jobs), own)
            values[found.rows] = found.values
            header[0] = found.objective
            if found.right is not None:
                header[1], header[2:] = 1.0, found.right.reshape(-1)
        rows, sums, header = route.deliver(values, header)
        return Gradient(rows, sums, header[2:].reshape(K, K) if header[1] else None, float(header[0]))


def numbered(batch: Batch, together: Sets, weights: Array) -> Batch:
    """The batch with the entries of `together`, its sets one after the other, and these weights of negatives."""
    n, split = batch.positives.count, int(batch.positives.indptr[-1])
    positives = Sets(batch.positives.indptr, together.indices[:split])
    negatives = Sets(together.indptr[n:] - split, together.indices[split:])
    return Batch(positives, batch.weights, Negatives(negatives, weights, batch.negatives.ratio))


def owned_monitor(
    settings: Settings, watched: Watched, share: Array, owners: Owners, state: OwnedState
) -> Callable[[State], float]:
    """The validation score: every worker scores some of the sets, and all get the mean."""
    collective = owners.collective
    used = np.arange(watched.sets.count) if settings.by_likelihood else np.flatnonzero(watched.sets.sizes > 0)
    ours = used[collective.rank :: collective.size]
    route, _, sets = fetch(owners, state, take_sets(watched.sets, ours))
    own = Watched(sets, watched.weights[ours])
    part = float(np.abs(own.weights).sum() / np.abs(watched.weights[used]).sum())
    score = settings.monitor_of(own, share[route.rows]) if len(ours) else None

    def monitor(state: State) -> float:
        dual, V = state.dual, route.fetch(state.V)
        value = 0.0 if score is None else part * score(FetchedState(V, dual, n_jobs=state.n_jobs))
        return float(total(collective, np.array([value]))[0])

    return monitor


@dataclass(frozen=True)
class Dealt:
    """Negatives that do not depend on V: all workers draw all of them, and each keeps its share."""

    source: NegativeSource
    owners: Owners

    def draw(
        self, state: State, positives: Sets, n: int, rng: np.random.Generator, weights: Array | None = None
    ) -> Sets:
        """See `NegativeSource`."""
        drawn = self.source.draw(state, positives, n, rng, weights)
        collective = self.owners.collective
        ours = np.repeat(np.arange(drawn.count) % collective.size == collective.rank, drawn.sizes)
        return Sets(drawn.indptr, np.where(ours, drawn.indices, np.int32(-1)))


def log_dets(owners: Owners, state: OwnedState, sets: Sets) -> Array:
    """log det L_A of sets that all workers know."""
    collective = owners.collective
    bounds = [sets.count * rank // collective.size for rank in range(collective.size + 1)]
    ours = np.arange(bounds[collective.rank], bounds[collective.rank + 1])
    _, V, own = fetch(owners, state, take_sets(sets, ours))
    return np.concatenate(gather_arrays(collective, FetchedState(V, None, n_jobs=state.n_jobs).log_det(own)))
