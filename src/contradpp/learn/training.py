"""Training: `learn`, the plan, the loop, the schedule, and the end of small problems.

`learn` solves a `Problem`, as `fit`, `partial_fit` and each worker of a cluster pose it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from typing import Any, cast

import numpy as np

from contradpp._random import DROPOUT, RESTART, TRAIN, root_seed, stream
from contradpp._threads import blas_threads
from contradpp._types import Array, Ints
from contradpp.data.sets import (
    EMPTY,
    Sets,
    concatenate,
    distinct_sets,
    kept_entries,
    places_by,
    take_sets,
)
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ConvergenceError, NumericalError
from contradpp.learn.calibration import calibrate_result
from contradpp.learn.callbacks import Callback, Record
from contradpp.learn.checkpoints import Checkpointer, checkpointed
from contradpp.learn.negatives import Negatives, NegativeSource, RefusedSource
from contradpp.learn.objectives import (
    Assignment,
    Batch,
    ChoiceLikelihood,
    Gradient,
    Objective,
    Setup,
    clustered_monitor,
    make_monitor,
    make_source,
    through_tilts,
    with_normalizer,
)
from contradpp.learn.optimizers import (
    CONTRASTIVE_STEPS,
    LIKELIHOOD_STEPS,
    Enough,
    FullBatch,
    Optimizer,
    RowwiseAdam,
    climb,
    make_optimizer,
)
from contradpp.learn.params import Params, Problem, TrainingData
from contradpp.learn.state import MOST_PARAMETERS, State, first_state, kernel_of, popularity

LARGEST = 1e200  # of a row's squared norm, and the square of an entry of S or D: L soon overflows

FULL_RANK_SHARE = (
    0.002  # of baskets that fill the rank, from which the diagonal is lowered in stages
)
STAGES = 12
STEPS_A_STAGE = 50
FEWEST_ROUNDS = 50  # with fewer there is no time for stages
MOST_ENTRIES = 300_000  # of the distinct sets
STAGE_ITERATIONS = 40  # of L-BFGS, at every value of the diagonal
PATIENCE = 10  # iterations without a better validation score
# At the optimum of p free parameters on n baskets, others are some p/2n nats less likely than
# under the true kernel. Up to so many nats the optimum is wanted: validation scores are noisier.
TRUSTED = 0.005
DETERMINED = 0.01  # nats up to which it is worth while to look for a better optimum
N_INIT = 20
RAISED = (0.1, 0.03, 0.01)  # the diagonal of each, as a share of the mean weight of an item
LOWERED = (0.003, 0.001)  # and after the best one
MOST_TO_RESTART = 100_000  # entries of the distinct sets


@dataclass(frozen=True)
class TrainingResult:
    """The kernel that was learned, and its data."""

    kernel: Kernel
    items: Vocabulary
    counts: Array  # liked baskets with each item
    n_baskets: float
    history: list[Record] = field(default_factory=list)
    n_iter: int = 0


@dataclass(frozen=True)
class Sharing:
    """The division of a batch among workers; by default there is one, who computes everything."""

    own: Callable[[Batch], Batch] = lambda batch: batch
    summed: Callable[[Gradient], Gradient] = lambda gradient: gradient
    alone: bool = True


@blas_threads(1)  # the threads are ours, so that results do not depend on their number
def learn(
    problem: Problem,
    params: Params,
    *,
    callbacks: Sequence[Callback] = (),
    model_of: Callable[[TrainingResult], Any] = lambda result: result,
    checkpointer: Checkpointer | None = None,
    sharing: Sharing = Sharing(),  # noqa: B008  (frozen)
) -> TrainingResult:
    """Train, set the scale of the kernel, and return the best parameters.

    If training is interrupted or fails, the exception has the best so far: see `result_before`.

    Parameters
    ----------
    problem : Problem
    params : Params
    callbacks : sequence of Callback
    model_of : callable
        Makes a model of a result, for callbacks that save one.
    checkpointer : Checkpointer, optional
    sharing : Sharing
    """
    state = first_state(problem, params)
    plan = make_plan(problem, params, state)
    if checkpointer is not None:
        checkpointer.identify(problem.seed, params.identity, problem.contents(state))
    best = BestSoFar.of(state)
    skew = state.skew

    def result(V: Array) -> TrainingResult:
        V = V.astype(params.dtype, copy=False)
        kernel = kernel_of(V, best.log_d, best.pairs, skew, n_jobs=params.n_jobs)
        counts = problem.counts
        n_baskets = problem.n_baskets
        return TrainingResult(kernel, problem.items, counts, n_baskets, best.history, best.n_iter)

    def calibrated() -> TrainingResult:
        found = result(best.V)
        try:
            return replace(found, kernel=calibrate_result(problem, params, found.kernel))
        except NumericalError as error:
            failure = ConvergenceError(
                f"the scale of the kernel cannot be set, and stays as it was learned: {error}"
            )
            raise _with_result(failure, found) from error

    try:
        with ExitStack() as ends:
            for callback in callbacks:
                ends.callback(callback.on_end)
                n_sets = problem.data.count
                callback.on_start(n_sets, plan.max_iter, lambda V: model_of(result(V)))
            everything = None
            if sharing.alone and problem.clusters is None:
                everything = small_problem(state, problem.data, plan)
            if everything is not None and plan.stages and checkpointer is None:
                anneal(state, everything, plan, best)
            else:
                train(state, problem.data, plan, callbacks, best, checkpointer, sharing)
            if everything is not None and best.converged:
                refine(state, everything, problem.data.count, plan, best, callbacks)
    except BaseException as error:
        _with_result(error, calibrated())
        raise
    del state, plan  # with the optimizer's memory they are most of what training takes
    return calibrated()


def result_before(error: BaseException) -> TrainingResult | None:
    """Return the best result before an exception that ended training, if there is one."""
    return getattr(error, "training_result", None)


def _with_result(error: BaseException, result: TrainingResult) -> BaseException:
    error.training_result = result  # type: ignore[attr-defined]
    return error


# -- The plan --------------------------------------------------------------------------------------


@dataclass
class Plan:
    """The parts of the loop besides the data and the state."""

    objective: Objective
    optimizer: Optimizer
    schedule: Schedule
    monitor: Callable[[State], float]
    source: NegativeSource | None
    negative_ratio: float
    batch_size: int
    max_iter: int
    seed: int
    dropout: float = 0.0
    keep_best: bool = True  # rather than the last
    penalty: Array = field(default_factory=lambda: np.empty(0))  # α/μ_i
    closed: Objective | None = None  # the same aim without sampling, if there is one
    stages: tuple[float, ...] = ()  # added to the diagonal in the first rounds, one after the other
    restarts: bool = False  # small problems are learned from other starts, too
    clusters: Assignment | None = None  # a step then takes baskets of one cluster


def make_plan(problem: Problem, params: Params, state: State) -> Plan:
    """Make the plan for these parameters and data."""
    data = problem.data
    spec = params.spec
    rate = problem.rate
    share = popularity(problem.counts, problem.n_baskets)
    removal = share if params.removal == "popularity" else np.ones_like(share)
    setup = Setup(params, data, share, removal)
    mu = np.maximum(problem.counts, 1)
    if spec.score == "choice":
        # The odds of a choice are about one for any item: alpha counts as so many choices.
        mu = np.full_like(problem.counts, max(problem.n_baskets, 1))
    penalty = params.alpha / mu
    fixed_steps = LIKELIHOOD_STEPS if spec.score == "likelihood" else CONTRASTIVE_STEPS
    batch_size = params.batch_for(data.count)
    batch_scale = min(batch_size, max(data.positives.count, data.negatives.count, 1))
    optimizer = make_optimizer(params.optimizer, state, penalty, batch_scale, fixed_steps)
    start = problem.start
    gradual = rate is not None and data.count and start is not None and start.counts is not None
    if gradual and isinstance(optimizer, RowwiseAdam):
        optimizer.assume_scale(share, min(batch_size, data.count))
    schedule: Schedule = Plateau(params.tol)
    if rate is not None:
        schedule = Schedule(rate=rate)
    elif params.paper:
        unchecked = 0 if spec.score == "likelihood" else CONTRASTIVE_STEPS
        schedule = RelativeChange(params.tol, unchecked)
    clusters = problem.clusters
    if clusters is None:
        monitor = make_monitor(setup, problem.validation)
    else:
        monitor = clustered_monitor(setup, problem.validation, clusters)
    return Plan(
        objective=spec.make(setup),
        optimizer=optimizer,
        schedule=schedule,
        monitor=monitor,
        source=make_source(setup),
        negative_ratio=getattr(params.negatives, "ratio", 0.5),
        batch_size=batch_size,
        max_iter=params.max_iter,
        seed=root_seed(stream(problem.seed, TRAIN)) if rate is None else problem.seed,
        dropout=params.dropout if spec.dropout else 0.0,
        keep_best=rate is None,
        penalty=penalty,
        closed=None if spec.closed is None or params.paper else spec.closed(setup),
        stages=make_stages(params, data, batch_size),
        clusters=clusters,
        restarts=params.anneal and params.max_iter >= FEWEST_ROUNDS,
    )


def make_stages(params: Params, data: TrainingData, batch_size: int) -> tuple[float, ...]:
    """Return what is added to the diagonal round by round, where barriers need it.

    Where baskets have as many items as V has columns, V_A is square. On the way to the optimum
    det V_A may have to change its sign, and log det forbids it.
    """
    full = float(np.mean(data.positives.sizes >= params.n_components)) if data.count else 0.0
    if not params.anneal or full < FULL_RANK_SHARE or params.max_iter < FEWEST_ROUNDS:
        return ()
    rounds = -(-STEPS_A_STAGE // max(data.count // batch_size, 1))
    return tuple(np.repeat(np.geomspace(1.0, 1e-3, STAGES), rounds).tolist())


# -- The loop --------------------------------------------------------------------------------------


@dataclass
class BestSoFar:
    """The best parameters so far: an interrupt or a failure loses nothing."""

    V: Array = checkpointed()
    log_d: Array = checkpointed(default_factory=lambda: np.empty(0))
    pairs: Array = checkpointed(default_factory=lambda: np.empty(0))
    history: list[Record] = checkpointed(default_factory=list)
    n_iter: int = checkpointed(default=0)
    converged: bool = checkpointed(default=False)
    score: float = checkpointed(default=-np.inf)

    @classmethod
    def of(cls, state: State) -> BestSoFar:
        """Begin with the parameters of a state."""
        return cls(state.V.copy(), state.log_d.copy(), state.pairs.copy())

    def update(self, state: State, score: float, *, always: bool = False) -> None:
        """Keep the parameters if their score is the best so far, or always."""
        if always or score > self.score:
            self.score = score
            self.V[:] = state.V
            self.log_d[:] = state.log_d
            self.pairs[:] = state.pairs

    def restore(self, state: State) -> None:
        """Set the state's parameters to the best ones."""
        state.V[:] = self.V
        state.log_d[:] = self.log_d
        state.pairs[:] = self.pairs
        state.changed()

    def add_record(self, record: Record, callbacks: Sequence[Callback]) -> None:
        """Add a round to the history."""
        self.history.append(record)
        self.n_iter = record["iteration"]
        for callback in callbacks:
            callback.on_iteration(record, self.V)


@dataclass
class Position:
    """The position in the run: the next batch, and what the present round has seen so far."""

    round: int = checkpointed(default=0)
    batch: int = checkpointed(default=0)
    n_steps: int = checkpointed(default=0)
    n_sets: int = checkpointed(default=0)
    seconds: float = checkpointed(default=0.0)
    score: float = checkpointed(default=np.nan)  # of the last step, if every step is checked
    objectives: list[float] = checkpointed(default_factory=list)

    def end_round(self, plan: Plan) -> Record:
        """Go on to the next round, and describe the one that ends."""
        objective = float(np.mean(self.objectives))
        self.round += 1
        self.batch = 0
        self.objectives = []
        return {
            "iteration": self.round,
            "step": self.n_steps,
            "objective": objective,
            "validation": self.score,
            "rate": plan.schedule.rate,
            "seconds": self.seconds,
            "sets_per_second": self.n_sets / self.seconds,
            "likely_end": int(min(self.round + plan.schedule.rounds_left(), plan.max_iter)),
        }


def train(
    state: State,
    data: TrainingData,
    plan: Plan,
    callbacks: Sequence[Callback],
    best: BestSoFar,
    checkpointer: Checkpointer | None = None,
    sharing: Sharing = Sharing(),  # noqa: B008  (frozen)
) -> None:
    """Run the plan until it converges or has made `max_iter` rounds over the data.

    A checkpointer first restores the last checkpoint, and then writes new ones along the way.
    """
    at = Position()
    schedule = plan.schedule
    parts = {"state": state, "best": best, "optimizer": plan.optimizer}
    parts |= {"schedule": schedule, "position": at}
    if checkpointer is not None and checkpointer.begin(parts):
        state.refresh()
        for callback in callbacks:
            callback.on_resume(at.n_steps, at.round * data.count + at.batch * plan.batch_size)
    started = time.perf_counter() - at.seconds
    every_step = isinstance(schedule, RelativeChange)
    unchecked = schedule.unchecked_steps if isinstance(schedule, RelativeChange) else 0
    while at.round < plan.max_iter and not best.converged:
        status = Status.CONTINUE
        annealing = at.round < len(plan.stages)
        state.refresh(plan.stages[at.round] if annealing else 0.0)
        for batch in batches(state, data, plan, at.round, first=at.batch):
            at.objectives.append(one_step(state, batch, plan, at.n_steps, sharing))
            at.batch += 1
            at.n_steps += 1
            at.n_sets += batch.positives.count + batch.negatives.sets.count
            for callback in callbacks:
                callback.on_step(at.n_steps, batch.positives.count)
            if every_step and at.n_steps > unchecked:
                status, at.score = check(state, plan, best, at.n_steps)
                if status is Status.CONVERGED:
                    break
            at.seconds = time.perf_counter() - started
            if checkpointer is not None:
                checkpointer.step(at.n_steps)
        if annealing or at.n_steps <= unchecked:  # training goes on, whatever the score
            at.score = plan.monitor(state)
            best.update(state, -np.inf, always=True)
        elif not every_step:
            status, at.score = check(state, plan, best, at.n_steps)
        at.seconds = time.perf_counter() - started
        best.converged = status is Status.CONVERGED
        best.add_record(at.end_round(plan), callbacks)
    if checkpointer is not None:
        checkpointer.write(at.n_steps)


def one_step(state: State, batch: Batch, plan: Plan, step: int, sharing: Sharing) -> float:
    """Make one step, and return the objective on the batch before it."""
    value = np.nan
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        try:
            where = plan.optimizer.look_ahead(state)
            if batch.tilts is not None:
                where = where.tilted(batch.tilts)
            gradient = sharing.summed(plan.objective.gradient(where, sharing.own(batch)))
            gradient = with_normalizer(where, gradient)
            if batch.tilts is not None:
                gradient = through_tilts(gradient, batch.tilts)
            value = gradient.objective
            good = bool(np.isfinite(value))
            if good:  # a gradient that is not finite shows in its rows
                plan.optimizer.step(state, gradient, plan.schedule.rate)
                good = bool(state.largest < LARGEST)
                for logs in (state.pairs, state.log_d):
                    good = good and bool((logs < np.log(LARGEST) / 2).all())
        except (np.linalg.LinAlgError, NumericalError):  # I + C is singular to rounding
            good = False
    if not good:
        raise ConvergenceError(
            f"training left the finite numbers at step {step + 1} (objective {value:g}); the model "
            "keeps its best parameters from before. Static negatives can drive the objective to "
            "infinity: try objective='dynamic', a smaller contrast, a larger alpha or smaller steps"
        )
    return value


def check(state: State, plan: Plan, best: BestSoFar, step: int) -> tuple[Status, float]:
    """Score the parameters, keep them if they are the best, and update the schedule."""
    plan.optimizer.settle(state)
    score = plan.monitor(state)
    if not np.isfinite(score):
        raise ConvergenceError(
            f"the validation score is {score} after step {step}; the model keeps its best "
            "parameters"
        )
    best.update(state, score, always=not plan.keep_best)
    status = plan.schedule.update(score)
    if status is Status.SLOW_DOWN:  # continue from the best, not from where the long steps ended
        best.restore(state)
    return status, score


def batches(
    state: State, data: TrainingData, plan: Plan, round: int, *, first: int = 0
) -> Iterator[Batch]:
    """Yield the positives in random order, from batch `first`, with negatives of the state."""
    supplied = stream(plan.seed, round, 0).permutation(data.negatives.count)
    parts = rows_of_batches(plan, data.count, stream(plan.seed, round))
    n_batches = len(parts)
    for number in range(first, n_batches):
        chosen = parts[number]
        positives, labels = data.take(chosen)
        tilts = None
        where = state
        if plan.clusters is not None and len(chosen):
            tilts = plan.clusters.tilts[plan.clusters.of_positives[chosen[0]]]
            where = state if plan.source is None else state.tilted(tilts)
        if plan.dropout:
            rng = stream(plan.seed, round, number + 1, DROPOUT)
            positives = thinned(positives, plan.dropout, rng)
        offered = data.offered_at(chosen)
        rng = stream(plan.seed, round, number + 1)
        drawn = draw_negatives(plan, where, positives, labels, offered, rng)
        own = supplied
        if len(supplied) >= n_batches:
            first_own = len(supplied) * number // n_batches
            own = supplied[first_own : len(supplied) * (number + 1) // n_batches]
        weights = np.concatenate([np.ones(drawn.count), data.negative_weights[own]])
        negatives = concatenate(drawn, take_sets(data.negatives, own))
        batch = assemble(positives, labels, negatives, weights)
        if tilts is not None:  # a small batch counts for as much as its baskets
            share = len(chosen) * n_batches / data.count
            drawn_weights = replace(batch.negatives, weights=batch.negatives.weights * share)
            batch = replace(batch, weights=batch.weights * share, negatives=drawn_weights)
        yield replace(batch, offered=offered, tilts=tilts)


def rows_of_batches(plan: Plan, n: int, rng: np.random.Generator) -> list[Ints]:
    """Return the positives of every batch of a round, in random order; of one cluster each."""
    order = rng.permutation(n)
    size = plan.batch_size
    if plan.clusters is None:
        return [order[first : first + size] for first in range(0, max(n, 1), size)]
    cluster = plan.clusters.of_positives[order]
    groups = [order[cluster == c] for c in np.unique(cluster)]
    parts = [own[first : first + size] for own in groups for first in range(0, len(own), size)]
    return [parts[k] for k in rng.permutation(len(parts))] or [order]


def assemble(positives: Sets, labels: Array, negatives: Sets, weights: Array) -> Batch:
    """Make a batch whose labels are divided by |A⁺|, and whose negatives weigh what the liked do.

    So the normalizer cancels with contrast = 1, whatever the labels of this batch sum to.
    """
    n = max(positives.count, 1)
    liked = float(labels[labels > 0].sum()) / n or 1.0
    size = float(np.abs(weights).sum())
    scaled = Negatives(negatives, weights * (liked / (size or 1.0)), size / n)
    return Batch(positives, labels / n, scaled)


def thinned(sets: Sets, dropout: float, rng: np.random.Generator) -> Sets:
    """Drop a share of the items of each set at random, and leave at least two."""
    draws = rng.random(len(sets.indices))
    return kept_entries(sets, (draws < 1 - dropout) | (places_by(draws, sets) < 2))


def draw_negatives(
    plan: Plan,
    state: State,
    positives: Sets,
    labels: Array,
    offered: Sets | None,
    rng: np.random.Generator,
) -> Sets:
    """Draw `negative_ratio` negatives a liked positive, rounded at random."""
    chosen = np.flatnonzero(labels > 0)
    if plan.source is None or plan.negative_ratio == 0 or not len(chosen):
        return EMPTY
    n = max(int(plan.negative_ratio * len(chosen) + rng.random()), 1)
    liked = take_sets(positives, chosen)
    if offered is not None and isinstance(plan.source, RefusedSource):
        shown = take_sets(offered, chosen)
        return plan.source.draw(state, liked, n, rng, labels[chosen], shown)
    return plan.source.draw(state, liked, n, rng, labels[chosen])


# -- The schedule: when steps get smaller, and when they end ---------------------------------------


class Status(Enum):
    """The state of training after a score."""

    CONTINUE = "continue"
    SLOW_DOWN = "slow down"
    CONVERGED = "converged"


@dataclass
class Schedule:
    """A rule that turns scores into step sizes and an end; here, equal steps and no end."""

    _: KW_ONLY
    rate: float = checkpointed(default=1.0)

    def update(self, score: float) -> Status:  # noqa: ARG002
        """Take note of the newest score; higher is better."""
        return Status.CONTINUE

    def rounds_left(self) -> float:
        """Return how many more rounds are likely; infinite if that does not depend on the score."""
        return np.inf


@dataclass
class Plateau(Schedule):
    """Smaller steps whenever the score stops rising, and an end when that has happened often."""

    tol: float  # a score counts as a rise if it is above the best one by more than tol × |best|
    patience: int = 2  # scores without a rise
    reductions: int = 3  # of the step size, before the end
    factor: float = 0.3  # by which it is reduced
    best: float = checkpointed(default=-np.inf, init=False)
    waited: int = checkpointed(default=0, init=False)
    reduced: int = checkpointed(default=0, init=False)

    def update(self, score: float) -> Status:
        if self.best == -np.inf or score > self.best + self.tol * abs(self.best):
            self.best = max(score, self.best)
            self.waited = 0
            return Status.CONTINUE
        self.waited += 1
        if self.waited < self.patience:
            return Status.CONTINUE
        if self.reduced == self.reductions:
            return Status.CONVERGED
        self.reduced += 1
        self.waited = 0
        self.rate *= self.factor
        return Status.SLOW_DOWN

    def rounds_left(self) -> float:
        # One more rise is expected at every step size to come.
        return self.patience - self.waited + (self.reductions - self.reduced) * (self.patience + 1)


@dataclass
class RelativeChange(Schedule):
    """An end when the score changes by at most `tol` of itself, as in the paper."""

    tol: float
    unchecked_steps: int = 0  # the first ones: a contrast need not raise the likelihood at once
    last: float = checkpointed(default=np.nan, init=False)

    def update(self, score: float) -> Status:
        change = abs(score - self.last)
        self.last = score
        return Status.CONVERGED if change <= self.tol * abs(score) else Status.CONTINUE


# -- The end of small problems ---------------------------------------------------------------------


def small_problem(state: State, data: TrainingData, plan: Plan) -> Batch | None:
    """Return all data as one batch of distinct sets, if its gradients are cheap; else None."""
    if plan.closed is None or state.V.size + len(state.log_d) + len(state.pairs) > MOST_PARAMETERS:
        return None
    sets = data.positives
    weights = data.weights
    offered = data.offered
    if not isinstance(plan.closed, ChoiceLikelihood):
        sets, weights = distinct_sets(sets, weights)
        offered = None
    if len(sets.indices) + (0 if offered is None else len(offered.indices)) > MOST_ENTRIES:
        return None
    labels = weights * sets.count / data.count
    batch = assemble(sets, labels, data.negatives, data.negative_weights)
    return replace(batch, offered=offered)


def climb_briefly(state: State, batch: Batch, plan: Plan, epsilon: float) -> float:
    """Climb with epsilon on the diagonal, and return the value."""
    state.refresh(epsilon)
    closed = cast(Objective, plan.closed)
    problem = FullBatch(state, closed, batch, plan.penalty, passes=4 * STAGE_ITERATIONS)
    return climb(problem, STAGE_ITERATIONS)


def anneal(state: State, batch: Batch, plan: Plan, best: BestSoFar) -> None:
    """Climb to an optimum while the diagonal is lowered to zero, past barriers of det V_A = 0.

    Stochastic steps would jump back over the barriers: L-BFGS runs from here to the end.
    """
    for epsilon in dict.fromkeys(plan.stages):
        climb_briefly(state, batch, plan, epsilon)
        best.update(state, -np.inf, always=True)
    state.refresh(0.0)
    best.update(state, plan.monitor(state))
    best.converged = True


def restart(state: State, batch: Batch, plan: Plan, best: BestSoFar, *, trusted: bool) -> None:
    """Climb from other directions of V, too, and keep the optimum that is best on the baskets.

    With a diagonal that is small but not zero, optima can be compared after few iterations. The
    validation sets decide if the best is taken, unless the data are trusted more.
    """
    best.restore(state)
    rng = stream(plan.seed, RESTART)
    start = state.V.copy()
    lengths = np.sqrt(state.squared_norms)[:, None]
    weight = float(state.squared_norms.mean())
    optimum = start
    value = -np.inf
    for number in range(N_INIT):
        state.V[:] = start
        if number:
            V = rng.standard_normal(start.shape)
            state.V[:] = V * (lengths / np.linalg.norm(V, axis=1, keepdims=True))
        state.changed()
        for share in RAISED if number else RAISED[-1:]:
            found = climb_briefly(state, batch, plan, share * weight)
        if found > value:
            optimum = state.V.copy()
            value = found
    state.V[:] = optimum
    state.changed()
    for share in LOWERED:
        climb_briefly(state, batch, plan, share * weight)
    state.refresh(0.0)
    best.update(state, plan.monitor(state), always=trusted)


def refine(
    state: State,
    batch: Batch,
    n_baskets: int,
    plan: Plan,
    best: BestSoFar,
    callbacks: Sequence[Callback],
) -> None:
    """Climb from the best parameters to the optimum.

    The validation sets still decide the result: an optimum of the training data alone is not
    taken, unless the data say far more about it than the validation sets.
    """
    optimism = n_free(state) / (2 * n_baskets)
    trusted = optimism <= TRUSTED
    began = time.perf_counter()
    few = len(batch.positives.indices) <= MOST_TO_RESTART
    if plan.restarts and optimism <= DETERMINED and few:
        restart(state, batch, plan, best, trusted=trusted)
    best.restore(state)
    passes = 2 * plan.max_iter if trusted or plan.stages else plan.max_iter - best.n_iter
    problem = FullBatch(state, cast(Objective, plan.closed), batch, plan.penalty, passes)
    waited = 0

    def look(x: Array) -> None:
        nonlocal waited
        problem.set_vector(x)
        score = plan.monitor(state)
        before = best.score
        best.update(state, score)
        waited = 0 if score > before else waited + 1
        if waited >= PATIENCE:
            raise Enough

    climb(problem, passes, None if trusted else look)
    if trusted:
        best.update(state, plan.monitor(state), always=True)
    best.restore(state)
    n_passes = passes - problem.passes
    seconds = time.perf_counter() - began
    record: Record = {
        "iteration": best.n_iter + 1,
        "step": n_passes,
        "objective": problem.value,
        "validation": best.score,
        "rate": 0.0,
        "seconds": seconds,
        "sets_per_second": batch.positives.count * n_passes / max(seconds, 1e-9),
        "likely_end": best.n_iter + 1,
    }
    best.add_record(record, callbacks)


def n_free(state: State) -> int:
    """Count the parameters, except for the rotations V → VQ that change nothing."""
    rank: int = min(state.V.shape)
    return int(state.V.size) - rank * (rank - 1) // 2 + len(state.log_d) + len(state.pairs)
