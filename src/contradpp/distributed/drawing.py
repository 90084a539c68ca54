"""The paper's dynamic negatives where no worker has all of V: candidates are proposed to all sets at once.

The law is that of `learn.negatives.Dynamic`. Chance is a hash of (batch, negative, how often), so that the same
negatives come out whatever the number of workers; they are not the ones that one machine draws from its streams.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets, take_sets
from contradpp.distributed.collective import total
from contradpp.distributed.owners import Owners, scrambled
from contradpp.distributed.sharded import OwnedState, fetch, own_sets
from contradpp.learn.negatives import room_for_children
from contradpp.learn.state import State

Array = NDArray[np.float64]
Positions = NDArray[np.int64]
TRIES = (2, 4, 8, 16, 32, *[64] * 160)  # candidates of a set in a round: most sets take one of the first


def chance(key: int, numbers: Positions, use: Positions) -> Array:
    """Uniform numbers in [0, 1), a function of the key and of both arrays."""
    mixed = scrambled(scrambled(numbers) ^ scrambled(use + (1 << 40)) ^ np.uint64(key))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class OwnedDynamic:
    """An item of a positive replaced by one that the current model finds likely, by whoever has the positive.

    Parameters
    ----------
    popularity : array (M,)
        How often an item is the one that is removed, relative to the others in its basket.
    """

    popularity: Array
    owners: Owners

    def draw(
        self, state: State, positives: Sets, n: int, rng: np.random.Generator, weights: Array | None = None
    ) -> Sets:
        """See `NegativeSource`."""
        from contradpp.dpp.compiled import draws

        assert isinstance(state, OwnedState)
        parents, out = room_for_children(positives, n, rng, weights)
        key = int(rng.integers(2**63))
        ours = np.flatnonzero(np.isin(parents, own_sets(positives, self.owners.collective.rank)))
        sets = take_sets(positives, parents[ours])
        removed = self._removed(sets, chance(key, ours, np.zeros_like(ours)))
        _, V, local = fetch(self.owners, state, sets)
        bases = np.empty((len(sets.indices), V.shape[1]))
        draws.spans(V, np.einsum("ik,ik->i", V, V), sets.indptr, local.indices, removed, bases)
        chosen = sets.indices[sets.indptr[:-1] + removed]
        norms = state.norms_of_all()
        cumulative = np.cumsum(draws.norm_blocks(norms, state.block))
        pending = np.arange(len(ours))
        for tries, tried in zip(TRIES, np.cumsum(TRIES) - TRIES, strict=True):
            if not total(self.owners.collective, np.array([len(pending)]))[0]:
                break
            which = np.repeat(pending, tries)
            use = 1 + 2 * (tried + np.tile(np.arange(tries), len(pending)))
            candidates = np.empty(len(which), dtype=np.int32)
            targets = chance(key, ours[which], use) * cumulative[-1]
            draws.items_at(norms, cumulative, state.block, targets, candidates)
            singles = Sets(np.arange(len(candidates) + 1), candidates)
            _, rows, places = fetch(self.owners, state, singles)
            left = np.empty(len(candidates))
            draws.shares_left(
                rows, places.indices, candidates, which, sets.indptr, sets.indices, removed, bases, left
            )  # fmt: skip
            accepted = (chance(key, ours[which], use + 1) < left).reshape(-1, tries)
            done = accepted.any(axis=1)
            chosen[pending[done]] = candidates.reshape(-1, tries)[done, accepted.argmax(axis=1)[done]]
            pending = pending[~done]
        return self._filled(out, ours, sets, removed, chosen)

    def _removed(self, sets: Sets, luck: Array) -> Positions:
        """Of every set the place of an item, ∝ popularity."""
        ends = np.concatenate([[0.0], np.cumsum(self.popularity[sets.indices])])
        first, last = ends[sets.indptr[:-1]], ends[sets.indptr[1:]]
        at = np.searchsorted(ends, first + luck * (last - first), side="right") - 1
        places: Positions = np.clip(at, sets.indptr[:-1], sets.indptr[1:] - 1) - sets.indptr[:-1]
        return places

    @staticmethod
    def _filled(out: Sets, ours: Positions, sets: Sets, removed: Positions, chosen: NDArray[np.int32]) -> Sets:
        """All sets, of which only ours have entries; the new item comes last."""
        out.indices[:] = -1
        kept = np.ones(len(sets.indices), dtype=bool)
        kept[sets.indptr[:-1] + removed] = False
        starts = np.repeat(out.indptr[ours] - sets.indptr[:-1], sets.sizes)
        place = starts + np.arange(len(sets.indices))
        after = np.arange(len(sets.indices)) - np.repeat(sets.indptr[:-1], sets.sizes) > np.repeat(removed, sets.sizes)
        out.indices[place[kept] - after[kept]] = sets.indices[kept]
        out.indices[out.indptr[ours + 1] - 1] = chosen
        return out
