"""Negative sets: where each kind comes from, always the same interface: draw some for these positives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import EMPTY, Sets, concatenate, difference, joined, pointers, take_sets
from contradpp.dpp import compiled
from contradpp.learn.state import State, over_parts

Array = NDArray[np.float64]
SETS_PER_BLOCK = 128


@dataclass(frozen=True)
class Negatives:
    """Negative sets with positive weights; an objective decides their sign and scale.

    Attributes
    ----------
    sets : Sets
    weights : array
        They sum to what the positive labels of the batch sum to, about one.
    ratio : float
        |A⁻|/|A⁺| in this batch, user's weights counted: what the paper's appendix weighs the negatives by.
    """

    sets: Sets
    weights: Array
    ratio: float = 1.0


class NegativeSource(Protocol):
    """Something that draws n negative sets for a batch of positives."""

    def draw(
        self, state: State, positives: Sets, n: int, rng: np.random.Generator, weights: Array | None = None
    ) -> Sets:
        """n negative sets; a positive has offspring in proportion to its weight (all alike, if None)."""


@dataclass(frozen=True)
class Dynamic:
    """The paper's Algorithm 1: an item i of a positive replaced by j ∝ P(A∖i ∪ j) under the current model, exactly.

    A symmetric kernel bounds every score by d_j + ‖v_j‖², so that j is found by rejection, whatever the catalogue's
    size. Where items attract there is no such bound, and all items are scored.

    Parameters
    ----------
    popularity : array (M,)
        How often an item is the one that is removed, relative to the others in its basket.
    """

    popularity: Array

    def draw(
        self, state: State, positives: Sets, n: int, rng: np.random.Generator, weights: Array | None = None
    ) -> Sets:
        parents, indptr = parents_of(positives, n, rng, weights)
        if not state.symmetric:
            return Sets(indptr, self._by_scores(state, take_sets(positives, parents), rng))
        d, weights, blocks = state.diagonal, state.squared_norms, state.norm_blocks
        if len(d):
            weights = weights + d
            blocks = compiled.draws.norm_blocks(weights, state.block)
        given = (state.V, d, weights, np.cumsum(blocks), state.block, self.popularity, *positives)
        return _children(compiled.draws.dynamic_negatives, given, parents, indptr, rng, state.n_jobs)

    def _by_scores(self, state: State, chosen: Sets, rng: np.random.Generator) -> NDArray[np.int32]:
        owner = np.repeat(np.arange(chosen.count), chosen.sizes)
        # The one with the smallest −log u / weight is each with probability ∝ its weight.
        luck = rng.exponential(size=len(owner)) / self.popularity[chosen.indices]
        removed = np.lexsort((luck, owner))[chosen.indptr[:-1]]
        kept = np.ones(len(owner), dtype=bool)
        kept[removed] = False
        rest = Sets(chosen.indptr - np.arange(chosen.count + 1), chosen.indices[kept])
        new = np.empty(chosen.count, dtype=np.int32)
        for first, last, scores in state.kernel.next_scores(rest):
            totals = np.cumsum(np.maximum(scores, 0.0), axis=1)
            marks = rng.random(last - first) * totals[:, -1]
            new[first:last] = np.minimum((totals <= marks[:, None]).sum(axis=1), totals.shape[1] - 1)
        return np.insert(rest.indices, rest.indptr[1:], new)


@dataclass(frozen=True)
class Explicit:
    """The paper's last algorithm: an item of a positive replaced by one that rarely meets another of its items.

    Parameters
    ----------
    popularity : array (M,)
        p̂_i, the share of training baskets with item i.
    training : Sets
        The training baskets, for the pair frequencies.
    """

    popularity: Array
    training: Sets
    _postings: tuple[NDArray[np.int64], NDArray[np.int32]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order = np.argsort(self.training.indices, kind="stable")
        baskets = np.repeat(np.arange(self.training.count, dtype=np.int32), self.training.sizes)[order]
        counts = np.bincount(self.training.indices, minlength=len(self.popularity))
        object.__setattr__(self, "_postings", (pointers(counts), baskets))

    def draw(
        self, state: State, positives: Sets, n: int, rng: np.random.Generator, weights: Array | None = None
    ) -> Sets:
        parents, indptr = parents_of(positives, n, rng, weights)
        given = (self.popularity, self.training.count, *self._postings, *positives)
        return _children(compiled.draws.explicit_negatives, given, parents, indptr, rng, state.n_jobs)


@dataclass(frozen=True)
class Refused:
    """Negatives that people gave: a taken item replaced by one that was offered and refused, or all that was refused.

    As in the paper's Algorithm 1 the current model chooses: of what was refused and the taken item itself j comes in
    its place with probability ∝ P(A∖i ∪ j), and the refused set R instead of A with P(R)/(P(R) + P(A)). Where the
    positive itself is drawn nothing is to be learned, so that training ends where the odds are those of the data.

    Parameters
    ----------
    otherwise : NegativeSource
        Where negatives come from for positives of which nothing is known to be refused.
    whole : float
        The share of negatives that are the refused set as a whole; where nothing was taken, all are.
    """

    otherwise: NegativeSource
    whole: float = 0.0

    def draw(
        self, state: State, positives: Sets, n: int, rng: np.random.Generator, weights: Array | None = None,
        offered: Sets | None = None,
    ) -> Sets:  # fmt: skip
        """See `NegativeSource`; `offered` is what each positive was chosen from, empty where that is not known."""
        if offered is None:
            return self.otherwise.draw(state, positives, n, rng, weights)
        parents, _ = parents_of(positives, n, rng, weights)
        refused = difference(offered, positives, state.n_items)
        known = refused.sizes[parents] > 0
        as_whole = known & ((rng.random(n) < self.whole) | (positives.sizes[parents] == 0))
        drawn = [
            draw(state, take_sets(positives, some), take_sets(refused, some), rng)
            for draw, some in ((_swapped, parents[known & ~as_whole]), (_either, parents[as_whole]))
        ]
        if not known.all():
            others = take_sets(positives, parents[~known])
            drawn.append(self.otherwise.draw(state, others, others.count, rng))
        return joined(drawn)


def _swapped(state: State, sets: Sets, refused: Sets, rng: np.random.Generator) -> Sets:
    """The sets, an item i of each, any of them, replaced by j ∝ det L_{A∖i∪j} among i and what was refused."""
    place = sets.indptr[:-1] + (rng.random(sets.count) * sets.sizes).astype(np.int64)
    candidates = Sets(
        refused.indptr + np.arange(refused.count + 1),
        np.insert(refused.indices, refused.indptr[:-1], sets.indices[place]),
    )
    grown = take_sets(sets, np.repeat(np.arange(sets.count), candidates.sizes))
    indices = grown.indices.copy()
    indices[grown.indptr[:-1] + np.repeat(place - sets.indptr[:-1], candidates.sizes)] = candidates.indices
    grown = Sets(grown.indptr, indices)
    return take_sets(grown, _drawn(state.log_det(grown), candidates, rng))


def _either(state: State, sets: Sets, refused: Sets, rng: np.random.Generator) -> Sets:
    """Of every set and the refused one at its place, one by its probability."""
    both, n = joined([sets, refused]), sets.count
    pairs = np.arange(2 * n).reshape(2, n).T.ravel()
    lots = Sets(2 * np.arange(n + 1), EMPTY.indices)
    return take_sets(both, pairs[_drawn(state.log_det(both)[pairs], lots, rng)])


def _drawn(log_weights: Array, lots: Sets, rng: np.random.Generator) -> NDArray[np.int64]:
    """The position of one entry of every lot, drawn with probability ∝ its weight."""
    owner = np.repeat(np.arange(lots.count), lots.sizes)
    luck = rng.exponential(size=len(owner))
    with np.errstate(divide="ignore"):
        marks = np.log(luck) - log_weights  # the smallest is each with probability ∝ its weight
    return np.lexsort((marks, owner))[lots.indptr[:-1]]


@dataclass(frozen=True)
class Product:
    """Sets in which every item occurs on its own with its frequency (the paper's Eq. 3).

    Parameters
    ----------
    probabilities : array (M,)
    """

    probabilities: Array

    @staticmethod
    def from_popularity(popularity: Array, power: float = 1.0) -> Product:
        """Frequencies raised to a power (Mikolov's ¾), scaled back to the same expected size."""
        if power == 1.0:
            return Product(popularity)
        raised = popularity**power
        return Product(np.minimum(raised * (popularity.sum() / raised.sum()), popularity.max()))

    def draw(
        self, state: State, positives: Sets, n: int, rng: np.random.Generator, weights: Array | None = None
    ) -> Sets:
        """See `NegativeSource`; what the positives are does not matter."""
        del state, positives, weights
        sizes = np.zeros(n, dtype=np.int64)
        order = np.argsort(-self.probabilities, kind="stable").astype(np.int32)
        capacity = int(2 * n * (1 + self.probabilities.sum())) + 64
        indices = compiled.draws.product_sets(self.probabilities, order, rng, n, sizes, capacity)
        return Sets(pointers(sizes), indices)

    def log_odds(self) -> Array:
        """logit p(i): log p_n(A) = log p_n(∅) + Σ_{i∈A} logit p(i)."""
        return np.log(self.probabilities) - np.log1p(-self.probabilities)

    def log_empty(self) -> float:
        """log p_n(∅)."""
        return float(np.log1p(-self.probabilities).sum())


class NotInTraining:
    """Draws from another source, and draws again where a negative is itself a training basket.

    The paper keeps such false negatives (its footnote in section 3.2); this is the precaution it mentions.
    A negative that stays false after `tries` rounds is given up, so that fewer may come back than were asked.
    """

    def __init__(self, source: NegativeSource, training: Sets, *, tries: int = 10) -> None:
        self.source = source
        self.tries = tries
        self._known = {frozenset(basket.tolist()) for basket in np.split(training.indices, training.indptr[1:-1])}

    def draw(
        self, state: State, positives: Sets, n: int, rng: np.random.Generator, weights: Array | None = None
    ) -> Sets:
        drawn = self._true(self.source.draw(state, positives, n, rng, weights))
        for _ in range(self.tries):
            if drawn.count >= n:
                break
            more = self._true(self.source.draw(state, positives, n - drawn.count, rng, weights))
            drawn = concatenate(drawn, more)
        return drawn

    def _true(self, sets: Sets) -> Sets:
        found = [frozenset(chosen.tolist()) in self._known for chosen in np.split(sets.indices, sets.indptr[1:-1])]
        return take_sets(sets, np.flatnonzero(~np.array(found, dtype=bool)))


def _children(
    kernel: Callable[..., object],
    given: tuple[Any, ...],
    parents: NDArray[np.int64],
    indptr: NDArray[np.int64],
    rng: np.random.Generator,
    n_jobs: int,
) -> Sets:
    """Draw a child of every parent by a Numba kernel, in blocks with a stream each."""
    indices = np.empty(indptr[-1], dtype=np.int32)
    streams = rng.spawn(-(-len(parents) // SETS_PER_BLOCK))

    def work(part: slice) -> None:
        own = (parents[part], indptr[part.start : part.stop + 1], streams[part.start // SETS_PER_BLOCK])
        kernel(*given, *own, indices)

    over_parts(work, len(parents), SETS_PER_BLOCK, n_jobs)
    return Sets(indptr, indices)


def parents_of(
    positives: Sets, n: int, rng: np.random.Generator, weights: Array | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """n parents among the positives, each as often as its weight asks, and the indptr of children of their sizes."""
    if weights is None:
        weights = np.ones(positives.count)
    # Systematic sampling along a shuffled line: as often as expected, rounded up or down.
    order = rng.permutation(positives.count)
    ends = np.cumsum(weights[order])
    marks = (np.arange(n) + rng.random()) * (ends[-1] / n)
    parents = np.sort(order[np.minimum(np.searchsorted(ends, marks, side="right"), positives.count - 1)])
    return parents, pointers(positives.sizes[parents])
