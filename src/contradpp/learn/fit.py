"""From baskets and parameters to a learned kernel: what `fit` and `partial_fit` do, step by step.

`problem_of` turns what the user gives into a `Problem`, `learn` solves it. A cluster poses the same problem from files
that are spread over workers, and calls the same `learn`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import root_seed, stream
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError, RankError
from contradpp.learn.calibrate import at_mean_size, at_old_scale, calibrated, reweighed
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import Keeper
from contradpp.learn.loop import Outcome, Sharing, train
from contradpp.learn.optimizers import Adam
from contradpp.learn.params import Params
from contradpp.learn.partners import NO_PARTNERS, Partners, co_occurrences, find_partners
from contradpp.learn.plan import Plan, TrainingData, Validation, make_plan, recipe_of
from contradpp.learn.polish import anneal, polish, small_problem
from contradpp.learn.schedule import Steady
from contradpp.learn.start import (
    LITTLE,
    NEARLY_ALL,
    ON_DIAGONAL,
    enlarged_start,
    popularity,
    split_off_diagonal,
    start_factors,
)
from contradpp.learn.state import State, kernel_of

log = logging.getLogger("contradpp")
Array = NDArray[np.float64]

VALIDATION_SHARE = 0.05
MOST_VALIDATION = 5000
FEWEST_TO_SPLIT = 40
LEAST_RATE = 0.2  # where there are only rejected sets: who rejects something expects to see it
HISTORY = 10.0  # times that an item is offered before its own rate counts for more than that of all
NEWS = 10.0  # steps of `partial_fit` are of full length if one set in so many is new
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


@dataclass(frozen=True)
class Learned:
    """What learning leaves behind, however it ended."""

    kernel: Any
    items: Vocabulary
    counts: Array
    n_baskets: float
    history: list[dict[str, Any]] = field(default_factory=list)
    n_iter: int = 0


def fit(
    given: Given,
    params: Params,
    seed: int,
    hand_over: Callable[[Learned], None],
    *,
    known: Known | None = None,
    callbacks: Sequence[Callback] = (),
    model_of: Callable[[Learned], Any] = lambda learned: learned,
    keeper: Keeper | None = None,
) -> None:
    """Learn a kernel from baskets; what was learned is handed over at the end, also of an interrupt or a failure."""
    problem = problem_of(given, params, seed, known)
    learn(problem, params, hand_over, callbacks=callbacks, model_of=model_of, keeper=keeper)


def learn(
    problem: Problem,
    params: Params,
    hand_over: Callable[[Learned], None],
    *,
    callbacks: Sequence[Callback] = (),
    model_of: Callable[[Learned], Any] = lambda learned: learned,
    keeper: Keeper | None = None,
    sharing: Sharing = Sharing(),  # noqa: B008  (frozen)
) -> None:
    """Solve a problem: train, then set the scale on the validation sets."""
    state = first_state(problem, params)
    seed = root_seed(stream(problem.seed, TRAIN))
    plan = make_plan(params, state, problem.data, problem.validation, problem.counts, problem.n_baskets, seed)
    if keeper is not None:
        keeper.identify(problem.seed, params.identity, problem.contents(state))

    def finish(learned: Learned) -> None:
        """An interrupted model is as ready for use as a finished one."""
        rng = stream(problem.seed, UNIFORM)
        how = None if recipe_of(params.objective).by_choice else params.calibrate  # choices say what the scale is
        kernel, by_likelihood = learned.kernel, how == "likelihood" and recipe_of(params.objective).by_likelihood
        if by_likelihood and params.diagonal and not params.n_skew and problem.only_baskets:
            kernel = weighed_by_all(better_than_popularity(kernel, problem), problem)
        else:
            kernel = calibrated(kernel, how, problem.validation, rng)
        hand_over(replace(learned, kernel=kernel))

    run(problem, state, plan, finish, callbacks, model_of, keeper, sharing)


def better_than_popularity(kernel: Any, problem: Problem) -> Any:
    """A kernel D + V Vᵀ, or one with next to no V if the validation sets are more likely by popularity alone.

    A kernel that only repels has little to say of baskets whose items go together, and steps by chance cost likelihood.
    """
    sets, weights, _ = problem.validation
    V = start_factors("popularity", problem.counts, problem.n_baskets, kernel.n_components, stream(problem.seed, START))
    log_d, V = split_off_diagonal(V, problem.counts, problem.n_baskets, NEARLY_ALL)
    plain = kernel_of(V, log_d, np.empty(0), NO_PARTNERS, n_jobs=kernel.n_jobs)
    learned, start = (float(weights @ one.log_probability(sets)) for one in (kernel, plain))
    return plain if start > learned else kernel


def weighed_by_all(kernel: Any, problem: Problem) -> Any:
    """The kernel whose items weigh what popularity among all baskets says, those of the validation sets included."""
    sets, weights, _ = problem.validation
    news = np.bincount(sets.indices, weights=np.repeat(weights, sets.sizes), minlength=len(problem.counts))
    counts, n_baskets = problem.counts + news, problem.n_baskets + float(weights.sum())
    before, after = popularity(problem.counts, problem.n_baskets), popularity(counts, n_baskets)
    weighed = reweighed(kernel, after / (1 - after) * (1 - before) / before)
    return at_mean_size(weighed, float(counts.sum()) / n_baskets)


def learn_more(
    given: Given,
    params: Params,
    seed: int,
    known: Known,
    hand_over: Callable[[Learned], None],
    *,
    callbacks: Sequence[Callback] = (),
    model_of: Callable[[Learned], Any] = lambda learned: learned,
) -> None:
    """Go on from what is known with new baskets and negatives: all rounds are made, and the last one counts."""
    params = replace(params, diagonal=known.kernel.has_diagonal)
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
    problem = Problem(items, data, what_to_validate(data), counts, n_baskets + known.n_baskets, seed, known)
    state = first_state(problem, params)
    plan = make_plan(params, state, data, problem.validation, counts, problem.n_baskets, seed)
    if isinstance(plan.optimizer, Adam) and positives.n_baskets and known.counts is not None:
        plan.optimizer.expect(popularity(counts, problem.n_baskets), min(params.batch_size, data.count))

    def finish(learned: Learned) -> None:
        if recipe_of(params.objective).by_choice:  # what is taken of what is offered says how large sets are
            hand_over(learned)
            return
        if not positives.n_baskets:  # rejected sets must lose probability, and no news says how large sets are
            hand_over(learned)
            return
        by_size = known.counts is not None and params.calibrate == "likelihood"
        mean_size = float(counts.sum() / problem.n_baskets) if by_size else None
        hand_over(replace(learned, kernel=at_old_scale(learned.kernel, known.kernel, mean_size)))

    # A step is as long whether it rests on ten sets or a thousand: little news must not shake what much data have said.
    news = float(np.abs(weights).sum() + np.abs(negative_weights).sum())
    rate = min(1.0, NEWS * news / max(known.n_baskets + news, 1e-300))
    rate = rate if positives.n_baskets else max(rate, LEAST_RATE)
    run(problem, state, replace(plan, schedule=Steady(rate), keep_best=False), finish, callbacks, model_of)


def run(
    problem: Problem,
    state: State,
    plan: Plan,
    hand_over: Callable[[Learned], None],
    callbacks: Sequence[Callback],
    model_of: Callable[[Learned], Any],
    keeper: Keeper | None = None,
    sharing: Sharing = Sharing(),  # noqa: B008  (frozen)
) -> None:
    """Train, and hand over the best parameters however the training ends."""
    outcome, partners, n_jobs = Outcome.start(state), state.partners, state.n_jobs

    def learned(V: Array) -> Learned:
        kernel = kernel_of(V, outcome.log_d, outcome.pairs, partners, n_jobs=n_jobs)
        return Learned(kernel, problem.items, problem.counts, problem.n_baskets, outcome.history, outcome.n_iter)

    try:
        with ExitStack() as ends:
            for callback in callbacks:
                ends.callback(callback.on_end)
                callback.on_start(problem.data.count, plan.max_iter, lambda V: model_of(learned(V)))
            everything = small_problem(state, problem.data, plan) if sharing.alone else None
            if everything is not None and plan.stages and keeper is None:
                anneal(state, everything, plan, outcome)
            else:
                train(state, problem.data, plan, callbacks, outcome, keeper, sharing)
            if everything is not None and outcome.converged:
                polish(state, everything, problem.data.count, plan, outcome, callbacks)
    finally:
        del state, plan  # with the optimiser's memory they are most of what training takes
        hand_over(learned(outcome.V))


# -- The problem -----------------------------------------------------------------------------------


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
    if params.objective == "explicit" and given.offered is not None:
        usable |= (given.sizes == 0) & (given.offered.sizes > 0) & (weights != 0)  # all was refused
    if not usable.any():
        raise DataError("there is no basket to learn from")
    return given.subset(usable), weights[usable] / np.abs(weights[usable]).mean()


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
    usable = (negatives.sizes > 0) & (negatives.sizes <= params.largest)
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
    chosen = held_out.subset(fits)
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


# -- The start -------------------------------------------------------------------------------------


def first_state(problem: Problem, params: Params) -> State:
    """Where training starts: at what is known, or at the popularity of items and what is bought together."""
    rng, known = stream(problem.seed, START), problem.known
    if known is not None:
        if not known.kernel.plain:
            raise ParameterError("a kernel with a gain, as from condition(), cannot be trained on")
        V, log_d = enlarged_start(known.kernel, problem.counts, problem.n_baskets, rng)
        partners = Partners.of_matrix(known.kernel.skew.matrix(), len(V)) if params.n_skew else NO_PARTNERS
        return State(V, log_d, partners, params.n_jobs)
    counts, on_diagonal = problem.counts, ON_DIAGONAL
    if recipe_of(params.objective).by_choice and problem.data.offered is not None:
        on_diagonal = LITTLE if params.n_components else ON_DIAGONAL
        counts = problem.n_baskets * rates(problem.data, len(counts))
    V = start_factors(params.init, counts, problem.n_baskets, params.n_components, rng)
    log_d = np.empty(0)
    if params.diagonal:
        log_d, V = split_off_diagonal(V, counts, problem.n_baskets, on_diagonal)
    return State(V, log_d, first_partners(problem, params), params.n_jobs)


def rates(data: TrainingData, n_items: int) -> Array:
    """How often each item is taken when it is offered; as often as all of them, as far as an item has no history."""
    sets, offered = data.positives, data.offered or data.positives
    liked = np.maximum(data.weights, 0.0)
    taken, shown = (
        np.bincount(part.indices, weights=np.repeat(liked, part.sizes), minlength=n_items) for part in (sets, offered)
    )
    mean = taken.sum() / max(shown.sum(), 1e-300)
    return np.asarray((taken + HISTORY * mean) / (shown + HISTORY), dtype=np.float64)


def first_partners(problem: Problem, params: Params) -> Partners:
    """The pattern of S, from the liked baskets."""
    if not params.n_skew:
        return NO_PARTNERS
    data, M = problem.data, len(problem.counts)
    liked = data.weights[data.weights > 0]
    together = co_occurrences(data.liked, liked, M) if problem.together is None else problem.together
    share = popularity(problem.counts, problem.n_baskets)
    seed = root_seed(stream(problem.seed, PARTNERS))
    n_sets = float(liked.sum()) if problem.together is None else problem.n_baskets
    return find_partners(together, n_sets, share / (1 - share), params.n_skew, seed, n_jobs=params.n_jobs)
