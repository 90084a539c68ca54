"""Negative sets: the settings that users pass as `negatives=`, and the sources that draw the sets.

A source draws n negative sets for a batch of positives; see `NegativeSource`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from contradpp._threads import over_parts
from contradpp._types import Array, Codes, Ints, Rng
from contradpp.data.sets import Sets, difference, joined, pointers, take_sets
from contradpp.dpp import compiled
from contradpp.learn.settings import Settings
from contradpp.learn.state import State

__all__ = ["DynamicNegatives", "ExplicitNegatives", "ProductNegatives", "WeightedSets"]

SETS_PER_BLOCK = 128


# -- Settings --------------------------------------------------------------------------------------


@dataclass(repr=False)
class DynamicNegatives(Settings):
    """Negatives drawn from the current model, for objective="dynamic" and "exact".

    An item i of a positive A is replaced by j with probability ∝ P(A∖i ∪ j): Algorithm 1 of the
    paper. The objective "exact" takes the expectation over these negatives, and draws none.

    Parameters
    ----------
    ratio : float
        |A⁻|/|A⁺|, the negatives drawn per positive; may exceed 1.
    removal : {"popularity", "uniform"}, optional
        How the item to leave out is chosen. If omitted, "popularity" for `LowRankDPP` and "uniform"
        for `NonsymmetricDPP`.

    Examples
    --------
    >>> import contradpp as cd
    >>> model = cd.LowRankDPP(negatives=cd.negatives.DynamicNegatives(ratio=1.0))
    >>> model.set_params(negatives__ratio=0.2).negatives.ratio
    0.2
    """

    ratio: float = 0.5
    removal: str | None = None


@dataclass(repr=False)
class ExplicitNegatives(Settings):
    """Negatives with an item pair that is rare in the data, for objective="explicit".

    Where baskets know what was `offered`, what was refused replaces generated negatives.

    Parameters
    ----------
    ratio : float
        |A⁻|/|A⁺|, the negatives drawn per positive; with 0 the user's own are the only ones.
    """

    ratio: float = 0.5


@dataclass(repr=False)
class ProductNegatives(Settings):
    """Sets of independent items, for objective="product" and as the noise of "nce".

    Parameters
    ----------
    ratio : float
        |A⁻|/|A⁺|, the negatives drawn per positive; above 0 for "nce".
    frequency_power : float
        Exponent of the item frequencies, such as ¾ (Mikolov et al.).
    """

    ratio: float = 0.5
    frequency_power: float = 1.0


NegativeSettings = DynamicNegatives | ExplicitNegatives | ProductNegatives
WORDS: dict[str, type[NegativeSettings]] = {
    "dynamic": DynamicNegatives,
    "explicit": ExplicitNegatives,
    "product": ProductNegatives,
}


@dataclass(frozen=True)
class WeightedSets:
    """Negative sets of the user with a weight each, for the argument `negatives` of `fit`.

    Parameters
    ----------
    sets : Baskets or list of lists
        Combinations that should become unlikely.
    weights : array of float
        A weight per set.
    """

    sets: Any
    weights: Any


# -- Sources ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Negatives:
    """Negative sets with positive weights; an objective decides their sign and scale.

    Attributes
    ----------
    sets : Sets
    weights : array
        They sum to what the positive labels of the batch sum to, about one.
    ratio : float
        |A⁻|/|A⁺| in this batch, with weights of the user: the "counted" contrast.
    """

    sets: Sets
    weights: Array
    ratio: float = 1.0


class NegativeSource(Protocol):
    """A source of negative sets: an object of the user's own as `negatives=` has this method."""

    def draw(
        self, state: State, positives: Sets, n: int, rng: Rng, weights: Array | None = None
    ) -> Sets:
        """Draw n negative sets.

        A positive has negatives in proportion to its weight, equally many if there are no weights.
        """


@dataclass(frozen=True)
class DynamicSource:
    """Algorithm 1 of the paper: an item i of a positive replaced by j ∝ P(A∖i ∪ j), exactly.

    A symmetric kernel bounds every score by d_j + ‖v_j‖², so that rejection finds j at a cost that
    does not grow with the catalog. With S there is no such bound, and all items are scored.

    Parameters
    ----------
    removal : array (M,)
        Weight of an item in the choice of the one that is replaced.
    """

    removal: Array

    def draw(
        self, state: State, positives: Sets, n: int, rng: Rng, weights: Array | None = None
    ) -> Sets:
        parents, indptr = draw_parents(positives, n, rng, weights)
        if not state.symmetric:
            return Sets(indptr, self._by_scores(state, take_sets(positives, parents), rng))
        d = state.diagonal
        weights = state.squared_norms
        blocks = state.norm_blocks
        if len(d):
            weights = weights + d
            blocks = compiled.draws.norm_blocks(weights, state.block)
        given = (state.V, d, weights, np.cumsum(blocks), state.block, self.removal, *positives)
        kernel = compiled.draws.dynamic_negatives
        return _draw_in_blocks(kernel, given, parents, indptr, rng, state.n_jobs)

    def _by_scores(self, state: State, chosen: Sets, rng: Rng) -> Codes:
        owner = chosen.owners
        # The smallest −log u / weight belongs to each entry with probability ∝ its weight.
        keys = rng.exponential(size=len(owner)) / self.removal[chosen.indices]
        removed = np.lexsort((keys, owner))[chosen.indptr[:-1]]
        rest_indptr = chosen.indptr - np.arange(chosen.count + 1)
        rest = Sets(rest_indptr, np.delete(chosen.indices, removed))
        new = np.empty(chosen.count, dtype=np.int32)
        for first, last, scores in state.kernel.next_scores(rest):
            totals = np.cumsum(np.maximum(scores, 0.0), axis=1)
            marks = rng.random(last - first) * totals[:, -1]
            places = (totals <= marks[:, None]).sum(axis=1)
            new[first:last] = np.minimum(places, totals.shape[1] - 1)
        return np.insert(rest.indices, rest.indptr[1:], new)


@dataclass(frozen=True)
class ExplicitSource:
    """The explicit negatives of the paper: an item replaced by one that rarely meets another item.

    Parameters
    ----------
    popularity : array (M,)
        p̂_i, the share of training baskets with item i.
    training : Sets
        The training baskets, for the pair frequencies.
    """

    popularity: Array
    training: Sets
    _postings: tuple[Ints, Codes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order = np.argsort(self.training.indices, kind="stable")
        owner = np.repeat(np.arange(self.training.count, dtype=np.int32), self.training.sizes)
        counts = np.bincount(self.training.indices, minlength=len(self.popularity))
        object.__setattr__(self, "_postings", (pointers(counts), owner[order]))

    def draw(
        self, state: State, positives: Sets, n: int, rng: Rng, weights: Array | None = None
    ) -> Sets:
        parents, indptr = draw_parents(positives, n, rng, weights)
        given = (self.popularity, self.training.count, *self._postings, *positives)
        kernel = compiled.draws.explicit_negatives
        return _draw_in_blocks(kernel, given, parents, indptr, rng, state.n_jobs)


@dataclass(frozen=True)
class ProductSource:
    """Sets in which every item occurs on its own with its frequency (the paper's Eq. 3).

    Parameters
    ----------
    probabilities : array (M,)
    """

    probabilities: Array

    @staticmethod
    def from_popularity(popularity: Array, power: float = 1.0) -> ProductSource:
        """Raise frequencies to a power, and scale them back to the same expected size."""
        if power == 1.0:
            return ProductSource(popularity)
        raised = popularity**power
        scaled = raised * (popularity.sum() / raised.sum())
        return ProductSource(np.minimum(scaled, popularity.max()))

    def draw(
        self,
        state: State,  # noqa: ARG002
        positives: Sets,  # noqa: ARG002
        n: int,
        rng: Rng,
        weights: Array | None = None,  # noqa: ARG002
    ) -> Sets:
        sizes = np.zeros(n, dtype=np.int64)
        order = np.argsort(-self.probabilities, kind="stable").astype(np.int32)
        capacity = int(2 * n * (1 + self.probabilities.sum())) + 64
        indices = compiled.draws.product_sets(self.probabilities, order, rng, n, sizes, capacity)
        return Sets(pointers(sizes), indices)

    def log_odds(self) -> Array:
        """Return logit p(i), where log p_n(A) = log p_n(∅) + Σ_{i∈A} logit p(i)."""
        return np.log(self.probabilities) - np.log1p(-self.probabilities)

    def log_empty(self) -> float:
        """Return log p_n(∅)."""
        return float(np.log1p(-self.probabilities).sum())


@dataclass(frozen=True)
class RefusedSource:
    """Negatives that people gave: a taken item replaced by one that was offered and refused.

    As in Algorithm 1 the current model chooses j among the taken item i and the refused ones, with
    probability ∝ P(A∖i ∪ j). Where nothing was taken, the whole refused set R is the negative, with
    probability P(R)/(P(R) + P(A)). A draw of the positive itself teaches nothing, so that training
    ends where the odds are those of the data.

    Parameters
    ----------
    otherwise : NegativeSource
        The source for positives of which nothing is known to be refused.
    set_share : float
        Share of negatives that are the whole refused set.
    """

    otherwise: NegativeSource
    set_share: float = 0.0

    def draw(
        self,
        state: State,
        positives: Sets,
        n: int,
        rng: Rng,
        weights: Array | None = None,
        offered: Sets | None = None,
    ) -> Sets:
        """Draw n negative sets.

        `offered` are the sets that the positives were chosen from, empty where that is not known.
        """
        if offered is None:
            return self.otherwise.draw(state, positives, n, rng, weights)
        parents, _ = draw_parents(positives, n, rng, weights)
        refused = difference(offered, positives, state.n_items)
        known = refused.sizes[parents] > 0
        nothing_taken = positives.sizes[parents] == 0
        as_sets = known & ((rng.random(n) < self.set_share) | nothing_taken)
        swapped = parents[known & ~as_sets]
        replaced = parents[as_sets]
        drawn = [
            _swap_items(state, take_sets(positives, swapped), take_sets(refused, swapped), rng),
            _swap_sets(state, take_sets(positives, replaced), take_sets(refused, replaced), rng),
        ]
        if not known.all():
            others = take_sets(positives, parents[~known])
            drawn.append(self.otherwise.draw(state, others, others.count, rng))
        return joined(drawn)


def _swap_items(state: State, sets: Sets, refused: Sets, rng: Rng) -> Sets:
    """Replace a random item i of each set by j ∝ det L_{A∖i∪j}, j among i and the refused items."""
    place = sets.indptr[:-1] + (rng.random(sets.count) * sets.sizes).astype(np.int64)
    candidates = Sets(
        refused.indptr + np.arange(refused.count + 1),
        np.insert(refused.indices, refused.indptr[:-1], sets.indices[place]),
    )
    grown = take_sets(sets, np.repeat(np.arange(sets.count), candidates.sizes))
    indices = grown.indices.copy()
    places = grown.indptr[:-1] + np.repeat(place - sets.indptr[:-1], candidates.sizes)
    indices[places] = candidates.indices
    grown = Sets(grown.indptr, indices)
    return take_sets(grown, _draw_one_each(state.log_det(grown), candidates.indptr, rng))


def _swap_sets(state: State, sets: Sets, refused: Sets, rng: Rng) -> Sets:
    """Draw each set or the refused set at its place, by their probabilities."""
    both = joined([sets, refused])
    pairs = np.arange(2 * sets.count).reshape(2, sets.count).T.ravel()
    indptr = 2 * np.arange(sets.count + 1)
    return take_sets(both, pairs[_draw_one_each(state.log_det(both)[pairs], indptr, rng)])


def _draw_one_each(log_weights: Array, indptr: Ints, rng: Rng) -> Ints:
    """Draw the position of one entry of every group, with probability ∝ its weight."""
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    exponentials = rng.exponential(size=len(owner))
    with np.errstate(divide="ignore"):
        keys = np.log(exponentials) - log_weights
    return np.lexsort((keys, owner))[indptr[:-1]]


def _draw_in_blocks(
    kernel: Callable[..., object],
    given: tuple[Any, ...],
    parents: Ints,
    indptr: Ints,
    rng: Rng,
    n_jobs: int,
) -> Sets:
    """Draw a negative of every parent by a Numba kernel, in blocks with a random stream each."""
    indices = np.empty(indptr[-1], dtype=np.int32)
    streams = rng.spawn(-(-len(parents) // SETS_PER_BLOCK))

    def work(part: slice) -> None:
        own = indptr[part.start : part.stop + 1]
        kernel(*given, parents[part], own, streams[part.start // SETS_PER_BLOCK], indices)

    over_parts(work, len(parents), SETS_PER_BLOCK, n_jobs)
    return Sets(indptr, indices)


def draw_parents(positives: Sets, n: int, rng: Rng, weights: Array | None) -> tuple[Ints, Ints]:
    """Draw n of the positives by their weights, and return the indptr of sets of their sizes.

    Systematic sampling along a shuffled line draws each as often as expected, up to rounding.
    """
    if weights is None:
        weights = np.ones(positives.count)
    order = rng.permutation(positives.count)
    ends = np.cumsum(weights[order])
    marks = (np.arange(n) + rng.random()) * (ends[-1] / n)
    places = np.minimum(np.searchsorted(ends, marks, side="right"), positives.count - 1)
    parents = np.sort(order[places])
    return parents, pointers(positives.sizes[parents])
