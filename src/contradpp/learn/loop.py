"""The training loop: batches, negatives, a gradient, a step; after each round a score and a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads
from contradpp.data.sets import EMPTY, Sets, concatenate, kept_entries, places_by, take_sets
from contradpp.dpp.linalg import copy_rows, gram_change
from contradpp.errors import ConvergenceError, NumericalError
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import Keeper, kept
from contradpp.learn.negatives import Negatives, Refused
from contradpp.learn.objectives import Batch, Gradient, with_normalizer
from contradpp.learn.plan import Plan, TrainingData
from contradpp.learn.schedule import Verdict
from contradpp.learn.state import State

Array = NDArray[np.float64]
DROPOUT = 1  # the last key of a batch's second stream
LARGEST = 1e200  # of a row's squared norm, and the square of an entry of S or D: beyond it L soon overflows


@dataclass
class Outcome:
    """What training leaves behind, kept up to date throughout, so that an interrupt or a failure loses nothing.

    `V` starts as a copy of the state's factors; from then on `state.moved` marks where the two differ, and only those
    rows are ever copied.
    """

    V: Array = kept()
    log_d: Array = kept(default_factory=lambda: np.empty(0))
    pairs: Array = kept(default_factory=lambda: np.empty(0))
    history: list[dict[str, Any]] = kept(default_factory=list)
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

    def next_round(self) -> None:
        """A round is done."""
        self.round, self.batch, self.objectives = self.round + 1, 0, []


@dataclass(frozen=True)
class Sharing:
    """How the work over the sets of a batch is shared among workers; by default there is one, who does all."""

    own: Callable[[Batch], Batch] = lambda batch: batch
    summed: Callable[[Gradient], Gradient] = lambda gradient: gradient
    alone: bool = True


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
    with blas_threads(1):  # the threads are ours, so that results do not depend on their number
        supply, position = Supply(plan, state.n_items), Position()
        parts: dict[str, Any] = {
            "state": state, "outcome": outcome, "optimizer": plan.optimizer, "schedule": plan.schedule,
            "supply": supply, "position": position,
        }  # fmt: skip
        if keeper is not None and keeper.begin(parts):
            state.refresh()
            done = position.round * data.count + position.batch * plan.batch_size
            for callback in callbacks:
                callback.on_resume(position.n_steps, done)

        def keep(*, last: bool = False) -> None:
            if keeper is not None:
                (keeper.write if last else keeper.step)(position.n_steps, parts)

        _rounds(state, data, plan, callbacks, outcome, supply, position, keep, sharing)
        keep(last=True)


def _rounds(
    state: State,
    data: TrainingData,
    plan: Plan,
    callbacks: Sequence[Callback],
    outcome: Outcome,
    supply: Supply,
    at: Position,
    keep: Callable[[], None],
    sharing: Sharing,
) -> None:
    started = time.perf_counter() - at.seconds
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
            if plan.check_every_step and at.n_steps > plan.unchecked_steps:
                verdict, at.score = check(state, plan, outcome, at.n_steps)
                if verdict is Verdict.CONVERGED:
                    break
            at.seconds = time.perf_counter() - started
            keep()
        if annealing or at.n_steps <= plan.unchecked_steps:  # it is not over yet, whatever the score
            at.score = plan.monitor(state)
            outcome.take(state, -np.inf, anyway=True)
        elif not plan.check_every_step:
            verdict, at.score = check(state, plan, outcome, at.n_steps)
        at.seconds = time.perf_counter() - started
        record = {
            "iteration": at.round + 1,
            "step": at.n_steps,
            "objective": float(np.mean(at.objectives)),
            "validation": at.score,
            "rate": plan.schedule.rate,
            "seconds": at.seconds,
            "sets_per_second": at.n_sets / at.seconds,
            "likely_end": int(min(at.round + 1 + plan.schedule.rounds_left(), plan.max_iter)),
        }
        outcome.history.append(record)
        outcome.n_iter = at.round + 1
        outcome.converged = verdict is Verdict.CONVERGED
        at.next_round()
        for callback in callbacks:
            callback.on_iteration(record, outcome.V)


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
            asked = (state, take_sets(positives, liked), n, rng, labels[liked])
            if offered is not None and isinstance(plan.source, Refused):
                self.drawn = plan.source.draw(*asked, take_sets(offered, liked))
            else:
                self.drawn = plan.source.draw(*asked)
        return self.drawn
