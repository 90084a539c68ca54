"""The training loop: batches, negatives, a gradient, a step; after each round a score and a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp.errors import ConvergenceError
from contradpp.learn.callbacks import Callback
from contradpp.learn.negatives import EMPTY, Negatives, NegativeSource
from contradpp.learn.objectives import Batch, Objective, concatenate
from contradpp.learn.optimizers import Optimizer
from contradpp.learn.schedule import Schedule, Verdict
from contradpp.learn.state import State
from contradpp.model.kernel import Sets, take_sets

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TrainingData:
    """Positives with a label each, and negatives that the user supplied, with a weight each."""

    positives: Sets
    weights: Array
    negatives: Sets
    negative_weights: Array


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
    refresh: int = 1  # batches for which drawn negatives are used
    check_every_step: bool = False


@dataclass
class Outcome:
    """What training leaves behind, kept up to date throughout, so that an interrupt or a failure loses nothing."""

    best: Array
    history: list[dict[str, Any]] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = False
    best_score: float = -np.inf

    def take(self, state: State, score: float) -> None:
        """Remember the factors if their score is the best so far."""
        if score > self.best_score:
            self.best_score = score
            np.copyto(self.best, state.V)


def train(state: State, data: TrainingData, plan: Plan, callbacks: Sequence[Callback], outcome: Outcome) -> None:
    """Run the plan until it converges or has made `max_iter` rounds over the data."""
    started = time.perf_counter()
    n_sets = n_steps = 0
    for epoch in range(plan.max_iter):
        objectives: list[float] = []
        verdict, score = Verdict.GO_ON, np.nan
        for batch in batches(state, data, plan, epoch):
            objectives.append(one_step(state, batch, plan, n_steps))
            n_steps += 1
            n_sets += batch.positives.count + batch.negatives.sets.count
            for callback in callbacks:
                callback.on_step(n_steps, batch.positives.count)
            if plan.check_every_step:
                verdict, score = check(state, plan, outcome, n_steps)
                if verdict is Verdict.CONVERGED:
                    break
        if not plan.check_every_step:
            verdict, score = check(state, plan, outcome, n_steps)
        seconds = time.perf_counter() - started
        record = {
            "iteration": epoch + 1,
            "step": n_steps,
            "objective": float(np.mean(objectives)),
            "validation": score,
            "rate": plan.schedule.rate,
            "seconds": seconds,
            "sets_per_second": n_sets / seconds,
        }
        outcome.history.append(record)
        outcome.n_iter = epoch + 1
        for callback in callbacks:
            callback.on_iteration(record, outcome.best)
        if verdict is Verdict.CONVERGED:
            outcome.converged = True
            return


def one_step(state: State, batch: Batch, plan: Plan, step: int) -> float:
    """One gradient and one step; the objective on the batch before it."""
    gradient = plan.objective.gradient(plan.optimizer.look(state), batch)
    finite = np.isfinite(gradient.objective) and np.isfinite(gradient.values).all()
    if finite and gradient.right is not None:
        finite = bool(np.isfinite(gradient.right).all())
    if finite:
        plan.optimizer.step(state, gradient, plan.schedule.rate)
    if not finite or not np.isfinite(state.squared_norms).all():
        raise ConvergenceError(
            f"training left the finite numbers at step {step + 1} (objective {gradient.objective:g}); the model keeps "
            "its best parameters from before. Static negatives can drive the objective to infinity: try "
            "objective='dynamic', a smaller contrast, a larger alpha or smaller steps"
        )
    return gradient.objective


def check(state: State, plan: Plan, outcome: Outcome, step: int) -> tuple[Verdict, float]:
    """Score the current factors, keep them if they are the best, and ask the schedule what to do."""
    plan.optimizer.settle(state)
    score = plan.monitor(state)
    if not np.isfinite(score):
        raise ConvergenceError(
            f"the validation score is {score} after step {step}; the model keeps its best parameters"
        )
    outcome.take(state, score)
    verdict = plan.schedule.judge(score)
    if verdict is Verdict.SLOW_DOWN:  # go on from the best, not from where the long steps ended
        np.copyto(state.V, outcome.best)
        state.changed()
    return verdict, score


def batches(state: State, data: TrainingData, plan: Plan, epoch: int) -> Iterator[Batch]:
    """The positives in random order, a batch at a time, with negatives drawn from the current factors."""
    order = stream(plan.seed, epoch).permutation(data.positives.count)
    supplied = stream(plan.seed, epoch, 0).permutation(data.negatives.count)
    n_batches = max(-(-len(order) // plan.batch_size), 1)
    drawn = EMPTY
    for number in range(n_batches):
        chosen = order[number * plan.batch_size : (number + 1) * plan.batch_size]
        positives = take_sets(data.positives, chosen)
        if number % plan.refresh == 0:
            drawn = draw(state, positives, plan, stream(plan.seed, epoch, number + 1))
        share = slice(len(supplied) * number // n_batches, len(supplied) * (number + 1) // n_batches)
        own = supplied[share] if len(supplied) >= n_batches else supplied
        weights = np.concatenate([np.ones(drawn.count), data.negative_weights[own]])
        size = np.abs(weights).sum()
        negatives = Negatives(concatenate(drawn, take_sets(data.negatives, own)), weights / size if size else weights)
        yield Batch(positives, data.weights[chosen] / max(len(chosen), 1), negatives)


def draw(state: State, positives: Sets, plan: Plan, rng: np.random.Generator) -> Sets:
    """`negative_ratio` negatives a positive, rounded at random so that small batches get their share."""
    if plan.source is None or plan.negative_ratio == 0 or positives.count == 0:
        return EMPTY
    n = int(plan.negative_ratio * positives.count + rng.random())
    return plan.source.draw(state, positives, max(n, 1), rng)
