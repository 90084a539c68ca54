"""From baskets and parameters to a learned kernel: what `fit` and `partial_fit` do, step by step.

`problem_of` (in `problem.py`) turns what the user gives into a `Problem`, `learn` solves it. A cluster poses the same
problem from files that are spread over workers, and calls the same `learn`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import root_seed, stream
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import ConvergenceError, NumericalError, ParameterError
from contradpp.learn.calibrate import at_mean_size, at_old_scale, calibrated, reweighed
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import Keeper
from contradpp.learn.loop import Outcome, Sharing, train
from contradpp.learn.optimizers import Adam
from contradpp.learn.params import Params
from contradpp.learn.plan import Plan, TrainingData, make_plan
from contradpp.learn.polish import MOST_PARAMETERS, anneal, polish, small_problem
from contradpp.learn.problem import (
    PARTNERS,
    START,
    TRAIN,
    UNIFORM,
    Given,
    Known,
    Problem,
    problem_of,
    problem_of_news,
)
from contradpp.learn.recipes import recipe_of
from contradpp.learn.schedule import Steady
from contradpp.learn.state import (
    LITTLE,
    NEARLY_ALL,
    NO_PARTNERS,
    ON_DIAGONAL,
    Partners,
    State,
    co_occurrences,
    enlarged_start,
    find_partners,
    kernel_of,
    popularity,
    split_off_diagonal,
    start_factors,
)

log = logging.getLogger("contradpp")
Array = NDArray[np.float64]

LEAST_RATE = 0.2  # where there are only rejected sets: who rejects something expects to see it
HISTORY = 10.0  # times that an item is offered before its own rate counts for more than that of all
NEWS = 10.0  # steps of `partial_fit` are of full length if one set in so many is new


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

    def begin() -> tuple[State, Plan]:
        state, seed = first_state(problem, params), root_seed(stream(problem.seed, TRAIN))
        plan = make_plan(params, state, problem.data, problem.validation, problem.counts, problem.n_baskets, seed)
        if keeper is not None:
            keeper.identify(problem.seed, params.identity, problem.contents(state))
        return state, plan

    def finish(learned: Learned) -> None:
        """An interrupted model is as ready for use as a finished one."""
        rng = stream(problem.seed, UNIFORM)
        how = None if recipe_of(params.objective).by_choice else params.calibrate  # choices say what the scale is
        kernel, by_likelihood = learned.kernel, how == "likelihood" and recipe_of(params.objective).by_likelihood
        try:
            if by_likelihood and params.diagonal and not params.n_skew and problem.only_baskets:
                kernel = weighed_by_all(better_than_popularity(kernel, problem), problem)
            else:
                kernel = calibrated(kernel, how, problem.validation, rng)
        except NumericalError as error:
            hand_over(learned)
            raise ConvergenceError(
                f"the scale of the kernel cannot be set, and stays as it was learned: {error}"
            ) from error
        hand_over(replace(learned, kernel=kernel))

    run(problem, begin, finish, callbacks, model_of, keeper, sharing, params.dtype)


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
    problem = problem_of_news(given, params, seed, known)
    data, counts = problem.data, problem.counts
    # A step is as long whether it rests on ten sets or a thousand: little news must not shake what much data have said.
    news = float(np.abs(data.weights).sum() + np.abs(data.negative_weights).sum())
    rate = min(1.0, NEWS * news / max(known.n_baskets + news, 1e-300))
    rate = rate if data.positives.count else max(rate, LEAST_RATE)

    def begin() -> tuple[State, Plan]:
        state = first_state(problem, params)
        plan = make_plan(params, state, data, problem.validation, counts, problem.n_baskets, seed)
        if isinstance(plan.optimizer, Adam) and data.positives.count and known.counts is not None:
            plan.optimizer.expect(popularity(counts, problem.n_baskets), min(params.batch_size, data.count))
        return state, replace(plan, schedule=Steady(rate), keep_best=False)

    def finish(learned: Learned) -> None:
        # What is taken of what is offered says how large sets are; where all is rejected, no news does.
        if recipe_of(params.objective).by_choice or not data.positives.count:
            hand_over(learned)
            return
        by_size = known.counts is not None and params.calibrate == "likelihood"
        mean_size = float(counts.sum() / problem.n_baskets) if by_size else None
        hand_over(replace(learned, kernel=at_old_scale(learned.kernel, known.kernel, mean_size)))

    run(problem, begin, finish, callbacks, model_of, dtype=params.dtype)


def run(
    problem: Problem,
    begin: Callable[[], tuple[State, Plan]],
    hand_over: Callable[[Learned], None],
    callbacks: Sequence[Callback],
    model_of: Callable[[Learned], Any],
    keeper: Keeper | None = None,
    sharing: Sharing = Sharing(),  # noqa: B008  (frozen)
    dtype: str = "float64",
) -> None:
    """Train, and hand over the best parameters however the training ends."""
    state, plan = begin()  # not arguments: the caller would keep them
    outcome, partners, n_jobs = Outcome.start(state), state.partners, state.n_jobs

    def learned(V: Array) -> Learned:
        kernel = kernel_of(V.astype(dtype, copy=False), outcome.log_d, outcome.pairs, partners, n_jobs=n_jobs)
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


# -- The start -------------------------------------------------------------------------------------


def first_state(problem: Problem, params: Params) -> State:
    """Where training starts: at what is known, or at the popularity of items and what is bought together."""
    rng, known = stream(problem.seed, START), problem.known
    if known is not None:
        if not known.kernel.plain:
            raise ParameterError("a kernel with a gain, as from condition(), cannot be trained on")
        V, log_d = enlarged_start(known.kernel, problem.counts, problem.n_baskets, rng)
        partners = Partners.of_matrix(known.kernel.skew.matrix(), len(V)) if params.n_skew else NO_PARTNERS
        return State(as_kept(V, params), log_d, partners, params.n_jobs)
    counts, on_diagonal = problem.counts, ON_DIAGONAL
    if recipe_of(params.objective).by_choice and problem.data.offered is not None:
        on_diagonal = LITTLE if params.n_components else ON_DIAGONAL
        counts = problem.n_baskets * rates(problem.data, len(counts))
    V = start_factors(params.init, counts, problem.n_baskets, params.n_components, rng)
    log_d = np.empty(0)
    if params.diagonal:
        log_d, V = split_off_diagonal(V, counts, problem.n_baskets, on_diagonal)
    return State(as_kept(V, params), log_d, first_partners(problem, params), params.n_jobs)


def as_kept(V: Array, params: Params) -> Array:
    """V as it is kept while it is learned: in float64 where a few parameters are polished to the last digit."""
    kept: Array = V if V.size <= MOST_PARAMETERS else V.astype(params.dtype, copy=False)
    return kept


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
    together = problem.together
    if together is None:
        together = co_occurrences(data.liked, liked, M, params.n_jobs)
    share = popularity(problem.counts, problem.n_baskets)
    seed = root_seed(stream(problem.seed, PARTNERS))
    n_sets = float(liked.sum()) if problem.together is None else problem.n_baskets
    return find_partners(together, n_sets, share / (1 - share), params.n_skew, seed, n_jobs=params.n_jobs)
