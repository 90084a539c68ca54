"""What is to be learned from: what the user gives, checked, set aside for validation, and coded by one vocabulary."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError, RankError
from contradpp.learn.params import Params
from contradpp.learn.plan import TrainingData, Validation
from contradpp.learn.recipes import recipe_of
from contradpp.learn.state import State

log = logging.getLogger("contradpp")
Array = NDArray[np.float64]

VALIDATION_SHARE = 0.05
MOST_VALIDATION = 5000
FEWEST_TO_SPLIT = 40
MOST_LEARNED = 500  # items of one basket: what a set costs grows with the cube of its size
START, SPLIT, TRAIN, UNIFORM, UPDATE, PARTNERS = range(6)  # keys of the random streams


@dataclass(frozen=True)
class Given:
    """What the user passes to `fit` or `partial_fit`; `LearnedDPP.fit` describes it."""

    baskets: Any
    sample_weight: Any = None
    negatives: Any = None
    negative_weight: Any = None
    validation: Any = None


@dataclass(frozen=True)
class Known:
    """What is learned already: where a warm start and `partial_fit` begin."""

    kernel: Any
    items: Vocabulary
    counts: Array | None = None  # in how many baskets each item was, if that is known
    n_baskets: float = 0.0


@dataclass(frozen=True)
class Problem:
    """What is to be learned from, as codes of one vocabulary."""

    items: Vocabulary
    data: TrainingData
    validation: Validation
    counts: Array  # in how many liked baskets each item is
    n_baskets: float
    seed: int
    known: Known | None = None
    set_aside: bool = False  # whether the validation sets are some of the user's baskets
    together: Any = None  # how often any two items are in a basket (sparse), where the data here are not all
    digests: tuple[NDArray[Any] | str, ...] | None = None  # of the data, where they are not all here

    @property
    def only_baskets(self) -> bool:
        """Whether there is nothing but baskets to learn from, some of which were set aside for validation."""
        return self.set_aside and self.known is None and not self.data.negatives.count

    def contents(self, state: State) -> Iterator[NDArray[Any] | str]:
        """All that training is given, for a fingerprint."""
        data, given = self.data, [self.validation]
        if self.digests is None:
            given += [Validation(data.positives, data.weights), Validation(data.negatives, data.negative_weights)]
        yield from self.digests or ()
        for sets, weights, _ in given:
            yield from (sets.indptr, sets.indices, weights)
        for offered in (data.offered, self.validation.offered):
            yield from offered or ()
        yield from (state.V, state.log_d, state.pairs)
        yield from map(repr, self.items)


def problem_of(given: Given, params: Params, seed: int, known: Known | None = None) -> Problem:
    """Check what the user gives, set some aside for validation, and code everything by one vocabulary."""
    positives, weights = usable_positives(as_baskets(given.baskets, empty=False), given.sample_weight, params)
    negatives, negative_weights = usable_negatives(given, params)
    items = positives.items.merge(negatives.items)
    if known is not None:
        K = known.kernel.n_components
        if params.n_components != K:
            raise ParameterError(f"warm_start: the factors have {K} components, not n_components")
        items = known.items.merge(items)
    aside, chosen = set_aside(given.validation, np.flatnonzero(weights > 0), positives.n_baskets, params, seed)
    if aside is None:
        validation = usable_validation(given.validation, items, params)
    else:
        held = positives.subset(aside).recode(items)
        validation = Validation(held.sets, weights[aside], held.offered)
    positives, weights = positives.subset(chosen).recode(items), weights[chosen]
    counts, n_baskets = weighted_counts(positives, weights)
    data = TrainingData(
        positives.sets, weights, negatives.recode(items).sets, negative_weights, offered=positives.offered
    )
    own = aside is not None and bool(validation.sets.count)
    validation = validation if validation.sets.count else what_to_validate(data)
    return Problem(items, data, validation, counts, n_baskets, seed, known, set_aside=own)


def problem_of_news(given: Given, params: Params, seed: int, known: Known) -> Problem:
    """As `problem_of` for what comes after what is known: nothing is set aside, and there may be only negatives."""
    positives, weights = Baskets.from_lists([], items=known.items), np.empty(0)
    if given.baskets is not None and (baskets := as_baskets(given.baskets)).n_baskets:
        positives, weights = usable_positives(baskets, given.sample_weight, params)
    negatives, negative_weights = usable_negatives(given, params)
    if not positives.n_baskets and not negatives.n_baskets:
        raise DataError("partial_fit needs baskets or negatives")
    items = known.items.merge(positives.items).merge(negatives.items)
    positives = positives.recode(items)
    counts, n_baskets = weighted_counts(positives, weights)
    if known.counts is not None:
        counts[: len(known.counts)] += known.counts
    data = TrainingData(
        positives.sets, weights, negatives.recode(items).sets, negative_weights, offered=positives.offered
    )
    return Problem(items, data, what_to_validate(data), counts, n_baskets + known.n_baskets, seed, known)


def usable_positives(given: Baskets, sample_weight: Any, params: Params) -> tuple[Baskets, Array]:
    """The baskets with their labels, without those that cannot be used."""
    weights = checked_weights(sample_weight, given.n_baskets, "sample_weight")
    # A power of two rounds nothing, and keeps sums of the largest numbers that there are finite.
    weights = np.ldexp(weights, -np.frexp(np.abs(weights).max(initial=0.0))[1])
    if not weights.any():
        raise DataError("there is no basket to learn from: every sample_weight is zero")
    if refuse_or_note_oversize(given.sizes, params) and params.oversize == "clip":
        given = given.clip(params.n_components)
    usable = usable_sizes(given.sizes, params) & (weights != 0) & usable_choices(given, params)
    disliked = usable & (given.sizes > MOST_LEARNED) & (weights < 0)
    note_disliked(int(disliked.sum()))
    usable &= ~disliked
    if params.objective == "explicit" and given.offered is not None:
        usable |= (given.sizes == 0) & (given.offered.sizes > 0) & (weights != 0)  # all was refused
    if not usable.any():
        raise DataError("there is no basket to learn from")
    return without_excess(given.subset(usable)), weights[usable] / np.abs(weights[usable]).mean()


def without_excess(given: Baskets) -> Baskets:
    """The baskets, of which none has more items than can be learned from at once."""
    return given.draw(MOST_LEARNED) if note_excess(given.sizes) else given


def note_excess(sizes: NDArray[np.integer[Any]], *, quiet: bool = False) -> bool:
    """Whether some baskets have more items than can be learned from at once, which is logged."""
    count = int((sizes > MOST_LEARNED).sum())
    if count and not quiet:
        log.warning(
            "%s of %s baskets have more than %s items (the largest has %s): of each, %s drawn at random are learned",
            f"{count:,}", f"{len(sizes):,}", MOST_LEARNED, f"{int(sizes.max()):,}", MOST_LEARNED,
        )  # fmt: skip
    return count > 0


def note_disliked(count: int) -> None:
    """Log that so many large sets with negative labels are not learned from: a part of one may well be liked."""
    if count:
        log.warning("%s sets that should become unlikely have more than %s items: left out", f"{count:,}", MOST_LEARNED)


def refuse_or_note_oversize(sizes: NDArray[np.integer[Any]], params: Params, *, quiet: bool = False) -> bool:
    """Whether some baskets are larger than the rank; `RankError` if that is not to be."""
    K, too_large = params.n_components, sizes > params.largest
    if not too_large.any():
        return False
    count, most = int(too_large.sum()), int(sizes.max())
    if params.oversize == "error":
        raise RankError(
            f"{count:,} of {len(sizes):,} baskets have more than n_components={K} items (the largest has {most}): "
            f"set n_components={most}, or oversize='drop' or 'clip'",
            parameters=("n_components", "oversize"),
        )
    if not quiet:
        log.warning("%s baskets have more than %s items: %s", count, K, params.oversize)
    return True


def usable_sizes(sizes: NDArray[np.integer[Any]], params: Params) -> NDArray[np.bool_]:
    """Which baskets can be learned from, by their size."""
    least = 1 if recipe_of(params.objective).needs_items else 0
    usable: NDArray[np.bool_] = (sizes >= least) & (sizes <= params.largest)
    return usable


def usable_choices(given: Baskets, params: Params) -> NDArray[np.bool_]:
    """Which baskets can be learned from, by whether it is known what they were chosen from."""
    if not recipe_of(params.objective).by_choice and params.calibrate != "choices":
        return np.ones(given.n_baskets, dtype=bool)
    known = np.zeros(given.n_baskets, dtype=bool) if given.offered is None else given.offered.sizes > 0
    if not known.any():
        raise DataError(
            "objective='choice' and calibrate='choices' need to know what baskets were chosen from: Baskets with "
            "`offered` sets"
        )
    if not recipe_of(params.objective).by_choice:
        return np.ones(given.n_baskets, dtype=bool)
    if not known.all():
        log.warning("%s baskets are left out: it is not known what they were chosen from", int((~known).sum()))
    return known


def usable_negatives(given: Given, params: Params) -> tuple[Baskets, Array]:
    """The user's own negative sets with their weights; sets beyond the rank are impossible already."""
    if given.negatives is None:
        if given.negative_weight is not None:
            raise ParameterError("negative_weight needs negatives")
        return Baskets.from_lists([]), np.empty(0)
    negatives = as_baskets(given.negatives, "negatives")
    if recipe_of(params.objective).by_choice and negatives.n_baskets:
        raise ParameterError("objective='choice' takes no negatives: what was refused belongs to `offered` of baskets")
    weights = checked_weights(given.negative_weight, negatives.n_baskets, "negative_weight")
    if np.abs(weights).max(initial=0.0) > np.finfo(np.float64).max / max(len(weights), 1):
        raise ParameterError("negative_weight holds numbers too large for a sum of them")
    usable, excess = (negatives.sizes > 0) & (negatives.sizes <= params.largest), negatives.sizes > MOST_LEARNED
    note_disliked(int((usable & excess).sum()))
    usable &= ~excess
    return negatives.subset(usable), weights[usable]


def set_aside(
    validation: Any, liked: NDArray[np.int64], n_baskets: int, params: Params, seed: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Which liked baskets are for validation (None if the user gave others), and which are left for training."""
    everything, n = np.arange(n_baskets), len(liked)
    share = validation
    if validation is None:
        if n < FEWEST_TO_SPLIT:
            return everything[:0], everything
        share = min(0.01 if params.paper else VALIDATION_SHARE, MOST_VALIDATION / n)
    if not isinstance(share, float):
        return None, everything
    if not 0 < share < 1:
        raise ParameterError(f"validation must be a share between 0 and 1, or baskets, got {validation!r}")
    count = min(max(round(share * n), 1), max(n - 1, 0))
    aside = np.sort(stream(seed, SPLIT).permutation(liked)[:count])
    return aside, np.setdiff1d(everything, aside)


def usable_validation(validation: Any, items: Vocabulary, params: Params) -> Validation:
    """The user's own validation baskets, as far as their items are known."""
    given = as_baskets(validation, "validation", empty=False)
    held_out = given.recode(items, unknown="ignore")
    fits = usable_sizes(held_out.sizes, params) & ((held_out.sizes > 0) | (given.sizes == 0))
    fits &= usable_choices(held_out, params)
    if not fits.any():
        raise DataError("no validation basket has known items and at most n_components of them")
    chosen = held_out.subset(fits).draw(MOST_LEARNED)
    return Validation(chosen.sets, np.ones(chosen.n_baskets), chosen.offered)


def what_to_validate(data: TrainingData) -> Validation:
    """Without validation data: the liked sets, else those that should become unlikely."""
    liked = np.flatnonzero(data.weights > 0)
    if len(liked):
        return Validation(take_sets(data.positives, liked), data.weights[liked], data.offered_at(liked))
    if data.positives.count:
        return Validation(data.positives, data.weights, data.offered)
    return Validation(data.negatives, -np.ones(data.negatives.count))


def weighted_counts(baskets: Baskets, weights: Array) -> tuple[Array, float]:
    """In how many liked baskets each item is, and how many there are; a basket of weight 2 counts as two."""
    liked = np.maximum(weights, 0.0)
    if (liked == 1.0).all():  # as usual: no number for every entry
        return baskets.item_counts.astype(np.float64), float(len(liked))
    counts = np.bincount(baskets.indices, weights=np.repeat(liked, baskets.sizes), minlength=baskets.n_items)
    return counts.astype(np.float64), float(liked.sum())


def checked_weights(weights: Any, n: int, name: str) -> Array:
    """A finite number per set; ones if none were given."""
    if weights is None:
        return np.ones(n)
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must hold {n} finite numbers, one for each set, got {weights!r:.60}") from None
    if values.shape != (n,) or not np.isfinite(values).all():
        raise ParameterError(f"{name} must hold {n} finite numbers, one for each set, got shape {values.shape}")
    return values
