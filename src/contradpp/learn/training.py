"""Training: a problem is solved by a plan, which is run from a first state and leaves an outcome.

`learn` solves a `Problem`, as `fit`, `partial_fit` and each worker of a cluster pose it. Read it from top to bottom:
what is done, the plan, the loop with its batches, and the end of small problems.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from contradpp._random import root_seed, stream
from contradpp._threads import blas_threads
from contradpp.data.sets import EMPTY, Sets, concatenate, distinct_sets, kept_entries, places_by, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp.linalg import copy_rows, gram_change
from contradpp.errors import ConvergenceError, NumericalError
from contradpp.learn.calibrate import calibrated_by
from contradpp.learn.callbacks import Callback, Record
from contradpp.learn.checkpoint import Keeper, kept
from contradpp.learn.negatives import Negatives, NegativeSource, Refused
from contradpp.learn.objectives import (
    Batch,
    ChoiceLikelihood,
    Contrastive,
    Gradient,
    Objective,
    make_closed,
    make_monitor,
    make_objective,
    make_source,
    with_normalizer,
)
from contradpp.learn.optimizers import (
    Adam,
    Enough,
    FullBatch,
    Optimizer,
    RelativeChange,
    Schedule,
    Verdict,
    climb,
    make_optimizer,
    make_schedule,
)
from contradpp.learn.params import Params, Problem, TrainingData
from contradpp.learn.state import MOST_PARAMETERS, TRAIN, State, first_state, kernel_of, popularity

Array = NDArray[np.float64]
DROPOUT = 1  # the last key of a batch's second stream
LARGEST = 1e200  # of a row's squared norm, and the square of an entry of S or D: beyond it L soon overflows

WALLS = 0.002  # share of baskets that fill the rank from which the diagonal is lowered in stages
STAGES, STEPS_A_STAGE = 12, 50
FEWEST_ROUNDS = 50  # with fewer there is no time for stages
MOST_ENTRIES = 300_000  # of the distinct sets
STAGE_ITERATIONS = 40  # of L-BFGS, at every value of the diagonal
PATIENCE = 10  # iterations without a better validation score
# At the optimum of p free parameters on n baskets others are some p/2n nats less likely than under the truth.
TRUSTED = 0.005  # nats up to which the optimum itself is wanted: a validation score is noisier than that
DETERMINED = 0.01  # nats up to which it is worth while to look for a better optimum
N_INIT, SIGNS_INIT = 20, 4  # starts, without S and with it
RAISED = (0.1, 0.03, 0.01)  # the diagonal of each, as a share of the mean weight of an item
LOWERED = (0.003, 0.001)  # and after the best one
MOST_TO_RESTART = 100_000  # entries of the distinct sets
RESTART = 2**31  # the key of its random stream: no round has it


@dataclass(frozen=True)
class Learned:
    """What learning leaves behind, however it ended."""

    kernel: Any
    items: Vocabulary
    counts: Array
    n_baskets: float
    history: list[Record] = field(default_factory=list)
    n_iter: int = 0


@dataclass(frozen=True)
class Sharing:
    """How the work over the sets of a batch is shared among workers; by default there is one, who does all."""

    own: Callable[[Batch], Batch] = lambda batch: batch
    summed: Callable[[Gradient], Gradient] = lambda gradient: gradient
    alone: bool = True


def learn(
    problem: Problem,
    params: Params,
    take: Callable[[Learned], None],
    *,
    callbacks: Sequence[Callback] = (),
    model_of: Callable[[Learned], Any] = lambda learned: learned,
    keeper: Keeper | None = None,
    sharing: Sharing = Sharing(),  # noqa: B008  (frozen)
    source: NegativeSource | None = None,
) -> None:
    """Train, set the scale of the kernel, and let `take` have the best, however training ends.

    Negatives are those of `source`, or those of the objective.
    """
    state = first_state(problem, params)
    plan = make_plan(problem, params, state)
    plan.source = source or plan.source
    if keeper is not None:
        keeper.identify(problem.seed, params.identity, problem.contents(state))
    outcome, partners = Outcome.start(state), state.partners

    def learned(V: Array) -> Learned:
        V = V.astype(params.dtype, copy=False)
        kernel = kernel_of(V, outcome.log_d, outcome.pairs, partners, n_jobs=params.n_jobs)
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
        del state, plan  # with the optimizer's memory they are most of what training takes
        best = learned(outcome.V)
        try:
            kernel = calibrated_by(problem, params, best.kernel)
        except NumericalError as error:
            take(best)
            raise ConvergenceError(
                f"the scale of the kernel cannot be set, and stays as it was learned: {error}"
            ) from error
        take(replace(best, kernel=kernel))


# -- The plan --------------------------------------------------------------------------------------


@dataclass
class Plan:
    """Everything the loop needs besides the data and the state."""

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
    refresh: int = 1  # steps for which drawn negatives are used
    keep_best: bool = True  # rather than the last
    penalty: Array = field(default_factory=lambda: np.empty(0))  # α/μ_i
    closed: Objective | None = None  # the same aim without chance, where there is one
    stages: tuple[float, ...] = ()  # what is added to the diagonal in the first rounds, one after the other
    restarts: bool = False  # whether small problems are learned from other starts, too


def make_plan(problem: Problem, params: Params, state: State) -> Plan:
    """Make the plan for these parameters and data."""
    data, counts, n_baskets = problem.data, problem.counts, problem.n_baskets
    rate, known = problem.rate, problem.known
    share = popularity(counts, n_baskets)
    removal = share if params.removal == "popularity" else np.ones_like(share)
    # Of choices the odds of an item are about one, whatever its popularity: a prior of as many choices as alpha says.
    penalty = params.alpha / (np.full_like(counts, max(n_baskets, 1)) if params.by_choice else np.maximum(counts, 1))
    optimizer = make_optimizer(params, state, penalty, data)
    gradual = rate is not None and data.count and known is not None and known.counts is not None
    if gradual and isinstance(optimizer, Adam):
        optimizer.expect(share, min(params.batch_size, data.count))
    return Plan(
        objective=make_objective(params, share, removal),
        optimizer=optimizer,
        schedule=make_schedule(params) if rate is None else Schedule(rate=rate),
        monitor=make_monitor(params, problem.validation, removal),
        source=make_source(params, share, removal, data), negative_ratio=params.negative_ratio,
        batch_size=params.batch_size, max_iter=params.max_iter,
        seed=root_seed(stream(problem.seed, TRAIN)) if rate is None else problem.seed,
        dropout=params.dropout if params.objective == "exact" else 0.0,  # others care about sizes
        refresh=params.refresh, keep_best=rate is None, penalty=penalty, closed=make_closed(params, removal),
        stages=make_stages(params, data), restarts=params.anneal and params.max_iter >= FEWEST_ROUNDS,
    )  # fmt: skip


def make_stages(params: Params, data: TrainingData) -> tuple[float, ...]:
    """What is added to the diagonal round by round, where there are walls between the start and the optimum.

    det V_A may have to change its sign on the way, and log det forbids it, if V_A is square: where a share of the
    baskets has as many items as V has columns.
    """
    full = float(np.mean(data.positives.sizes >= params.n_components)) if data.count else 0.0
    if not params.anneal or full < WALLS or params.max_iter < FEWEST_ROUNDS:
        return ()
    rounds = -(-STEPS_A_STAGE // max(data.count // params.batch_size, 1))
    return tuple(np.repeat(np.geomspace(1.0, 1e-3, STAGES), rounds).tolist())


# -- The loop --------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What training leaves behind, kept up to date throughout, so that an interrupt or a failure loses nothing.

    `V` starts as a copy of the state's factors; from then on `state.moved` marks where the two differ, and only those
    rows are ever copied.
    """

    V: Array = kept()
    log_d: Array = kept(default_factory=lambda: np.empty(0))
    pairs: Array = kept(default_factory=lambda: np.empty(0))
    history: list[Record] = kept(default_factory=list)
    n_iter: int = kept(default=0)
    converged: bool = kept(default=False)
    best_score: float = kept(default=-np.inf)
    dual: Array | None = kept(default=None, shape=lambda own: (own.V.shape[1],) * 2)  # VᵀV, where it is known

    @classmethod
    def start(cls, state: State) -> Outcome:
        """Before the first step: the best parameters are those of the start."""
        return cls(state.V.copy(), state.log_d.copy(), state.pairs.copy())

    def take(self, state: State, score: float, *, anyway: bool = False) -> None:
        """Remember the parameters if their score is the best so far, or anyway."""
        if anyway or score > self.best_score:
            self.best_score = score
            copy_rows(state.V, self.V, state.moved_rows(), state.n_jobs)
            self.log_d[:], self.pairs[:], self.dual = state.log_d, state.pairs, state.known_dual
            state.moved[:] = False

    def give_back(self, state: State) -> None:
        """Set the state's parameters to the best ones."""
        rows = state.moved_rows()
        copy_rows(self.V, state.V, rows, state.n_jobs)
        state.log_d[:], state.pairs[:] = self.log_d, self.pairs
        state.rows_changed(rows, np.einsum("ik,ik->i", self.V[rows], self.V[rows], dtype=np.float64), self.dual)
        state.moved[:] = False

    def note(self, record: Record, callbacks: Sequence[Callback]) -> None:
        """Add a round to the history."""
        self.history.append(record)
        self.n_iter = record["iteration"]
        for callback in callbacks:
            callback.on_iteration(record, self.V)

    def remind(self, state: State) -> None:
        """Tell the state its VᵀV where few rows have moved since it was known: summing over all costs more."""
        rows = state.moved_rows()
        if state.known_dual is None and self.dual is not None and len(rows) < state.n_items // 2:
            state.known_dual = self.dual + gram_change(self.V, state.V, rows, state.n_jobs)


@dataclass
class Position:
    """How far training has come: the next batch, and what the present round has seen so far."""

    round: int = kept(default=0)
    batch: int = kept(default=0)
    n_steps: int = kept(default=0)
    n_sets: int = kept(default=0)
    seconds: float = kept(default=0.0)
    score: float = kept(default=np.nan)  # of the last step, where every step is checked
    objectives: list[float] = kept(default_factory=list)

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


@blas_threads(1)  # the threads are ours, so that results do not depend on their number
def train(
    state: State,
    data: TrainingData,
    plan: Plan,
    callbacks: Sequence[Callback],
    outcome: Outcome,
    keeper: Keeper | None = None,
    sharing: Sharing = Sharing(),  # noqa: B008  (frozen)
) -> None:
    """Run the plan until it converges or has made `max_iter` rounds over the data.

    A keeper writes checkpoints along the way, and sets everything back to the last one first.
    """
    supply, at, schedule = Supply(plan, state.n_items), Position(), plan.schedule
    parts = {"state": state, "outcome": outcome, "optimizer": plan.optimizer, "schedule": schedule}
    if keeper is not None and keeper.begin(parts | {"supply": supply, "position": at}):
        state.refresh()
        for callback in callbacks:
            callback.on_resume(at.n_steps, at.round * data.count + at.batch * plan.batch_size)
    started = time.perf_counter() - at.seconds
    rule = schedule if isinstance(schedule, RelativeChange) else None  # it looks at every step
    unchecked = 0 if rule is None else rule.unchecked_steps
    while at.round < plan.max_iter and not outcome.converged:
        verdict, annealing = Verdict.GO_ON, at.round < len(plan.stages)
        state.refresh(plan.stages[at.round] if annealing else 0.0)
        for batch in batches(state, data, plan, at.round, supply, first=at.batch):
            at.objectives.append(one_step(state, batch, plan, at.n_steps, sharing))
            at.batch += 1
            at.n_steps += 1
            at.n_sets += batch.positives.count + batch.negatives.sets.count
            for callback in callbacks:
                callback.on_step(at.n_steps, batch.positives.count)
            if rule is not None and at.n_steps > unchecked:
                verdict, at.score = check(state, plan, outcome, at.n_steps)
                if verdict is Verdict.CONVERGED:
                    break
            at.seconds = time.perf_counter() - started
            if keeper is not None:
                keeper.step(at.n_steps)
        if annealing or at.n_steps <= unchecked:  # it is not over yet, whatever the score
            at.score = plan.monitor(state)
            outcome.take(state, -np.inf, anyway=True)
        elif rule is None:
            verdict, at.score = check(state, plan, outcome, at.n_steps)
        at.seconds = time.perf_counter() - started
        outcome.converged = verdict is Verdict.CONVERGED
        outcome.note(at.end_round(plan), callbacks)
    if keeper is not None:
        keeper.write(at.n_steps)


def one_step(state: State, batch: Batch, plan: Plan, step: int, sharing: Sharing) -> float:
    """One gradient and one step; the objective on the batch before it."""
    value = np.nan
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        try:
            where = plan.optimizer.look(state)
            gradient = sharing.summed(plan.objective.gradient(where, sharing.own(batch)))
            gradient = with_normalizer(where, gradient)
            value = gradient.objective
            good = bool(np.isfinite(value))
            if good:  # what is not finite in a gradient will be so in its rows, too
                plan.optimizer.step(state, gradient, plan.schedule.rate)
                good = bool(state.largest < LARGEST)
                good = good and all((logs < np.log(LARGEST) / 2).all() for logs in (state.pairs, state.log_d))
        except (np.linalg.LinAlgError, NumericalError):  # I + C is not positive definite to rounding
            good = False
    if not good:
        raise ConvergenceError(
            f"training left the finite numbers at step {step + 1} (objective {value:g}); the model keeps its best "
            "parameters from before. Static negatives can drive the objective to infinity: try objective='dynamic', "
            "a smaller contrast, a larger alpha or smaller steps"
        )
    return value


def check(state: State, plan: Plan, outcome: Outcome, step: int) -> tuple[Verdict, float]:
    """Score the current factors, keep them if they are the best, and ask the schedule what to do."""
    plan.optimizer.settle(state)
    outcome.remind(state)
    score = plan.monitor(state)
    if not np.isfinite(score):
        raise ConvergenceError(
            f"the validation score is {score} after step {step}; the model keeps its best parameters"
        )
    outcome.take(state, score, anyway=not plan.keep_best)
    verdict = plan.schedule.judge(score)
    if verdict is Verdict.SLOW_DOWN:  # go on from the best, not from where the long steps ended
        outcome.give_back(state)
    return verdict, score


def batches(
    state: State, data: TrainingData, plan: Plan, round: int, supply: Supply, *, first: int = 0
) -> Iterator[Batch]:
    """The positives in random order, batch by batch from the `first`, with negatives drawn from the present factors."""
    order = stream(plan.seed, round).permutation(data.count)
    supplied = stream(plan.seed, round, 0).permutation(data.negatives.count)
    n_batches = max(-(-len(order) // plan.batch_size), 1)
    for number in range(first, n_batches):
        chosen = order[number * plan.batch_size : (number + 1) * plan.batch_size]
        positives, labels = data.take(chosen)
        if plan.dropout:
            positives = thinned(positives, plan.dropout, stream(plan.seed, round, number + 1, DROPOUT))
        offered = data.offered_at(chosen)
        drawn = supply.next(state, positives, labels, stream(plan.seed, round, number + 1), offered)
        share = slice(len(supplied) * number // n_batches, len(supplied) * (number + 1) // n_batches)
        own = supplied[share] if len(supplied) >= n_batches else supplied
        weights = np.concatenate([np.ones(drawn.count), data.negative_weights[own]])
        batch = assemble(positives, labels, concatenate(drawn, take_sets(data.negatives, own)), weights)
        yield batch if offered is None else replace(batch, offered=offered)


def assemble(positives: Sets, labels: Array, negatives: Sets, weights: Array) -> Batch:
    """A batch whose labels are divided by the number of positives, and whose negatives weigh what the liked ones do.

    So the normaliser cancels with contrast = 1, whatever the labels of this batch happen to sum to.
    """
    n = max(positives.count, 1)
    liked = float(labels[labels > 0].sum()) / n or 1.0
    size = float(np.abs(weights).sum())
    return Batch(positives, labels / n, Negatives(negatives, weights * (liked / (size or 1.0)), size / n))


def thinned(sets: Sets, dropout: float, rng: np.random.Generator) -> Sets:
    """The sets with a share of their items dropped at random, at least two left of each that has as many."""
    luck = rng.random(len(sets.indices))
    return kept_entries(sets, (luck < 1 - dropout) | (places_by(luck, sets) < 2))  # the luckiest two stay


@dataclass
class Supply:
    """Negatives for one batch after the other, drawn anew every `refresh` steps."""

    plan: Plan
    n_items: int = 0
    drawn: Sets = kept(default=EMPTY)
    step: int = kept(default=0)

    def next(
        self, state: State, positives: Sets, labels: Array, rng: np.random.Generator, offered: Sets | None = None
    ) -> Sets:
        """`negative_ratio` negatives a positive label, rounded at random so that small batches get their share."""
        plan, fresh = self.plan, self.step % self.plan.refresh == 0
        self.step += 1
        if not fresh:
            return self.drawn
        liked = np.flatnonzero(labels > 0)
        self.drawn = EMPTY
        if plan.source is not None and plan.negative_ratio > 0 and len(liked):
            n = max(int(plan.negative_ratio * len(liked) + rng.random()), 1)
            asked: list[Any] = [state, take_sets(positives, liked), n, rng, labels[liked]]
            if offered is not None and isinstance(plan.source, Refused):
                asked.append(take_sets(offered, liked))
            self.drawn = plan.source.draw(*asked)
        return self.drawn


# -- The end of small problems ---------------------------------------------------------------------


def small_problem(state: State, data: TrainingData, plan: Plan) -> Batch | None:
    """All data as one batch of distinct sets, if full batches of them are cheap and the aim has a closed form."""
    if plan.closed is None or state.V.size + len(state.log_d) + len(state.pairs) > MOST_PARAMETERS:
        return None
    by_choice = isinstance(plan.closed, ChoiceLikelihood)  # the same set may be chosen from others
    sets, weights = (data.positives, data.weights) if by_choice else distinct_sets(data.positives, data.weights)
    if len(sets.indices) + (len(data.offered.indices) if by_choice and data.offered else 0) > MOST_ENTRIES:
        return None
    batch = assemble(sets, weights * sets.count / data.count, data.negatives, data.negative_weights)
    return replace(batch, offered=data.offered) if by_choice else batch


def climb_a_little(state: State, batch: Batch, plan: Plan, epsilon: float) -> float:
    """Climb with epsilon on the diagonal, and return the value."""
    state.refresh(epsilon)
    problem = FullBatch(state, cast(Objective, plan.closed), batch, plan.penalty, 4 * STAGE_ITERATIONS)
    return climb(problem, STAGE_ITERATIONS)


def anneal(state: State, batch: Batch, plan: Plan, outcome: Outcome) -> None:
    """Climb to an optimum while the diagonal is lowered to zero in stages, past walls where det V_A changes its sign.

    Steps by chance would jump back over the walls, so that there are none: L-BFGS to the end.
    """
    for epsilon in dict.fromkeys(plan.stages):
        climb_a_little(state, batch, plan, epsilon)
        outcome.take(state, -np.inf, anyway=True)
    state.refresh(0.0)
    outcome.take(state, plan.monitor(state))
    outcome.converged = True


def restart(state: State, batch: Batch, plan: Plan, outcome: Outcome, *, trusted: bool) -> None:
    """Climb from other starts, too, and keep the optimum that is best on the training baskets.

    Starts without S have other directions of V. With a diagonal that is small but not zero their optima can be compared
    after few iterations. The validation sets decide whether the best is taken, unless the data are trusted more.

    Starts with S have other signs: the parameters are log |s|, so that no climb turns one. Signs by chance are as good
    as any for pairs, det L_{ij} having s_ij² alone, but not around cycles. The best of these is always taken, and the
    validation sets decide how far the climb goes on from it.
    """
    outcome.give_back(state)
    rng, signs = stream(plan.seed, RESTART), state.partners.signs
    parameters = (state.V, state.log_d, state.pairs, signs)
    start = [part.copy() for part in parameters]
    lengths = np.sqrt(state.squared_norms)[:, None]
    weight = float(state.squared_norms.mean()) if state.symmetric else 0.0
    best, value = start, -np.inf

    def put(values: Sequence[Array]) -> None:
        for part, new in zip(parameters, values, strict=True):
            part[:] = new
        state.changed()

    try:
        for number in range(N_INIT if state.symmetric else SIGNS_INIT):
            put(start)
            if number and state.symmetric:
                V = rng.standard_normal(state.V.shape)
                state.V[:] = V * (lengths / np.linalg.norm(V, axis=1, keepdims=True))
            elif number:
                signs *= rng.choice([-1.0, 1.0], size=len(state.pairs))[state.partners.pair]
            for share in RAISED if number and state.symmetric else RAISED[-1:]:
                found = climb_a_little(state, batch, plan, share * weight)
            if found > value:
                best, value = [part.copy() for part in parameters], found
        put(best)
        for share in LOWERED if state.symmetric else ():
            climb_a_little(state, batch, plan, share * weight)
        state.refresh(0.0)
        score = plan.monitor(state)
    except BaseException:  # an interrupt: the best parameters so far have the signs of the start
        signs[:] = start[-1]
        raise
    outcome.take(state, score, anyway=trusted or not state.symmetric)


def polish(
    state: State, batch: Batch, n_baskets: int, plan: Plan, outcome: Outcome, callbacks: Sequence[Callback]
) -> None:
    """Climb from the best parameters to the optimum.

    What is kept is still what the validation sets like best: an optimum that is only one of the training data is not
    taken, unless the data say far more about it than the validation sets.
    """
    optimism = n_free(state) / (2 * n_baskets)
    trusted, began = optimism <= TRUSTED, time.perf_counter()
    by_signs = not state.symmetric and isinstance(plan.closed, Contrastive) and plan.keep_best
    few = len(batch.positives.indices) <= MOST_TO_RESTART or by_signs
    if (plan.restarts or by_signs) and optimism <= DETERMINED and few:
        restart(state, batch, plan, outcome, trusted=trusted)
    outcome.give_back(state)
    passes = 2 * plan.max_iter if trusted or plan.stages else plan.max_iter - outcome.n_iter
    problem, waited = FullBatch(state, cast(Objective, plan.closed), batch, plan.penalty, passes), 0

    def look(x: Array) -> None:
        nonlocal waited
        problem.put(x)
        score, before = plan.monitor(state), outcome.best_score
        outcome.take(state, score)
        waited = 0 if score > before else waited + 1
        if waited >= PATIENCE:
            raise Enough

    climb(problem, passes, None if trusted else look)
    if trusted:
        outcome.take(state, plan.monitor(state), anyway=True)
    outcome.give_back(state)
    done, seconds, end = passes - problem.passes, time.perf_counter() - began, outcome.n_iter + 1
    record: Record = {
        "iteration": end, "step": done, "objective": problem.value, "validation": outcome.best_score, "rate": 0.0,
        "seconds": seconds, "sets_per_second": batch.positives.count * done / max(seconds, 1e-9), "likely_end": end,
    }  # fmt: skip
    outcome.note(record, callbacks)


def n_free(state: State) -> int:
    """How many parameters there are, but for the rotations V → VQ that change nothing."""
    rank: int = min(state.V.shape)
    return int(state.V.size) - rank * (rank - 1) // 2 + len(state.log_d) + len(state.pairs)
