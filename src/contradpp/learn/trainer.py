"""The training loop: batches, negatives, a gradient, a step; after each round a score and a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads
from contradpp.data.sets import EMPTY, Sets, concatenate, take_sets
from contradpp.errors import ConvergenceError, NumericalError
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import Keeper, Resumable, Snapshot, array_of
from contradpp.learn.negatives import Negatives, NegativeSource
from contradpp.learn.objectives import Batch, Objective
from contradpp.learn.optimizers import Optimizer
from contradpp.learn.schedule import Schedule, Verdict
from contradpp.learn.state import State

Array = NDArray[np.float64]
LARGEST = 1e200  # of a row's squared norm: beyond it L = V Vᵀ soon overflows


@dataclass(frozen=True)
class TrainingData:
    """Positives with a label each, and negatives that the user supplied, with a weight each."""

    positives: Sets
    weights: Array
    negatives: Sets
    negative_weights: Array

    @property
    def count(self) -> int:
        """How many positives there are."""
        return self.positives.count

    def take(self, chosen: NDArray[np.int64]) -> tuple[Sets, Array]:
        """The positives at these positions, and their labels."""
        return take_sets(self.positives, chosen), self.weights[chosen]


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
    refresh: int = 1  # steps for which drawn negatives are used
    check_every_step: bool = False
    keep_best: bool = True  # rather than the last


@dataclass
class Outcome:
    """What training leaves behind, kept up to date throughout, so that an interrupt or a failure loses nothing.

    `best` starts as a copy of the state's factors; from then on `state.moved` marks where the two differ, and only
    those rows are ever copied.
    """

    best: Array
    best_pairs: Array = field(default_factory=lambda: np.empty(0))
    history: list[dict[str, Any]] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = False
    best_score: float = -np.inf

    @classmethod
    def start(cls, state: State) -> Outcome:
        """Before the first step: the best parameters are those of the start."""
        return cls(best=state.V.copy(), best_pairs=state.pairs.copy())

    def take(self, state: State, score: float, *, anyway: bool = False) -> None:
        """Remember the factors if their score is the best so far, or anyway."""
        if anyway or score > self.best_score:
            self.best_score = score
            rows = state.moved_rows()
            self.best[rows] = state.V[rows]
            self.best_pairs = state.pairs.copy()
            state.moved[:] = False

    def give_back(self, state: State) -> None:
        """Set the state's factors to the best ones."""
        rows = state.moved_rows()
        old = state.before(rows)
        state.V[rows] = self.best[rows]
        state.rows_changed(rows, old)
        state.pairs[:] = self.best_pairs
        state.moved[:] = False

    def snapshot(self) -> Snapshot:
        """See `Resumable`."""
        return dict(vars(self))

    def restore(self, kept: Snapshot) -> None:
        """See `Resumable`."""
        self.best[:] = array_of(kept, "best", self.best.shape)
        self.best_pairs[:] = array_of(kept, "best_pairs", self.best_pairs.shape)
        self.history = [dict(record) for record in kept["history"]]
        self.n_iter, self.converged = int(kept["n_iter"]), bool(kept["converged"])
        self.best_score = float(kept["best_score"])


@dataclass
class Position:
    """How far training has come: the next batch, and what the present round has seen so far."""

    epoch: int = 0
    batch: int = 0
    n_steps: int = 0
    n_sets: int = 0
    seconds: float = 0.0
    score: float = np.nan  # of the last step, where every step is checked
    objectives: list[float] = field(default_factory=list)

    def next_epoch(self) -> None:
        """A round is done."""
        self.epoch, self.batch, self.objectives = self.epoch + 1, 0, []

    def snapshot(self) -> Snapshot:
        """See `Resumable`."""
        return vars(self) | {"objectives": np.array(self.objectives, dtype=np.float64)}

    def restore(self, kept: Snapshot) -> None:
        """See `Resumable`."""
        for name in ("epoch", "batch", "n_steps", "n_sets"):
            setattr(self, name, int(kept[name]))
        self.seconds, self.score = float(kept["seconds"]), float(kept["score"])
        self.objectives = array_of(kept, "objectives", (self.batch,)).tolist()


def train(
    state: State,
    data: TrainingData,
    plan: Plan,
    callbacks: Sequence[Callback],
    outcome: Outcome,
    keeper: Keeper | None = None,
) -> None:
    """Run the plan until it converges or has made `max_iter` rounds over the data.

    A keeper writes checkpoints along the way, and sets everything back to the last one first.
    """
    with blas_threads(1):  # the threads are ours, so that results do not depend on their number
        supply, position = Supply(plan, n_items=len(state.V)), Position()
        parts: dict[str, Resumable] = {
            "state": state, "outcome": outcome, "optimizer": plan.optimizer, "schedule": plan.schedule,
            "supply": supply, "position": position,
        }  # fmt: skip
        if keeper is not None and keeper.begin(parts):
            done = position.epoch * data.count + position.batch * plan.batch_size
            for callback in callbacks:
                callback.on_resume(position.n_steps, done)

        def keep(*, last: bool = False) -> None:
            if keeper is not None:
                (keeper.write if last else keeper.step)(position.n_steps, parts)

        _rounds(state, data, plan, callbacks, outcome, supply, position, keep)
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
) -> None:
    started = time.perf_counter() - at.seconds
    while at.epoch < plan.max_iter and not outcome.converged:
        verdict = Verdict.GO_ON
        for batch in batches(state, data, plan, at.epoch, supply, first=at.batch):
            at.objectives.append(one_step(state, batch, plan, at.n_steps))
            at.batch += 1
            at.n_steps += 1
            at.n_sets += batch.positives.count + batch.negatives.sets.count
            for callback in callbacks:
                callback.on_step(at.n_steps, batch.positives.count)
            if plan.check_every_step:
                verdict, at.score = check(state, plan, outcome, at.n_steps)
                if verdict is Verdict.CONVERGED:
                    break
            at.seconds = time.perf_counter() - started
            keep()
        if not plan.check_every_step:
            verdict, at.score = check(state, plan, outcome, at.n_steps)
        at.seconds = time.perf_counter() - started
        record = {
            "iteration": at.epoch + 1,
            "step": at.n_steps,
            "objective": float(np.mean(at.objectives)),
            "validation": at.score,
            "rate": plan.schedule.rate,
            "seconds": at.seconds,
            "sets_per_second": at.n_sets / at.seconds,
        }
        outcome.history.append(record)
        outcome.n_iter = at.epoch + 1
        outcome.converged = verdict is Verdict.CONVERGED
        at.next_epoch()
        for callback in callbacks:
            callback.on_iteration(record, outcome.best)


def one_step(state: State, batch: Batch, plan: Plan, step: int) -> float:
    """One gradient and one step; the objective on the batch before it."""
    value = np.nan
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        try:
            gradient = plan.objective.gradient(plan.optimizer.look(state), batch)
            value = gradient.objective
            good = bool(np.isfinite(value) and np.isfinite(gradient.values).all())
            good = good and (gradient.right is None or bool(np.isfinite(gradient.right).all()))
            if good:
                plan.optimizer.step(state, gradient, plan.schedule.rate)
                moved = gradient.rows if gradient.right is None else slice(None)
                good = bool((state.squared_norms[moved] < LARGEST).all())
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
    state: State, data: TrainingData, plan: Plan, epoch: int, supply: Supply, *, first: int = 0
) -> Iterator[Batch]:
    """The positives in random order, batch by batch from the `first`, with negatives drawn from the present factors."""
    order = stream(plan.seed, epoch).permutation(data.count)
    supplied = stream(plan.seed, epoch, 0).permutation(data.negatives.count)
    n_batches = max(-(-len(order) // plan.batch_size), 1)
    for number in range(first, n_batches):
        chosen = order[number * plan.batch_size : (number + 1) * plan.batch_size]
        positives, labels = data.take(chosen)
        drawn = supply.next(state, positives, labels, stream(plan.seed, epoch, number + 1))
        share = slice(len(supplied) * number // n_batches, len(supplied) * (number + 1) // n_batches)
        own = supplied[share] if len(supplied) >= n_batches else supplied
        weights = np.concatenate([np.ones(drawn.count), data.negative_weights[own]])
        yield assemble(positives, labels, concatenate(drawn, take_sets(data.negatives, own)), weights)


def assemble(positives: Sets, labels: Array, negatives: Sets, weights: Array) -> Batch:
    """A batch whose labels are divided by the number of positives, and whose negatives weigh what the liked ones do.

    So the normaliser cancels with contrast = 1, whatever the labels of this batch happen to sum to.
    """
    n = max(positives.count, 1)
    liked = float(labels[labels > 0].sum()) / n or 1.0
    size = float(np.abs(weights).sum())
    return Batch(positives, labels / n, Negatives(negatives, weights * (liked / (size or 1.0)), size / n))


class Supply:
    """Negatives for one batch after the other, drawn anew every `refresh` steps."""

    def __init__(self, plan: Plan, *, n_items: int = 0) -> None:
        self._plan = plan
        self._n_items = n_items
        self._drawn = EMPTY
        self._step = 0

    def next(self, state: State, positives: Sets, labels: Array, rng: np.random.Generator) -> Sets:
        """`negative_ratio` negatives a positive label, rounded at random so that small batches get their share."""
        plan, fresh = self._plan, self._step % self._plan.refresh == 0
        self._step += 1
        if not fresh:
            return self._drawn
        liked = np.flatnonzero(labels > 0)
        self._drawn = EMPTY
        if plan.source is not None and plan.negative_ratio > 0 and len(liked):
            n = max(int(plan.negative_ratio * len(liked) + rng.random()), 1)
            self._drawn = plan.source.draw(state, take_sets(positives, liked), n, rng, labels[liked])
        return self._drawn

    def snapshot(self) -> Snapshot:
        """See `Resumable`."""
        return {"step": self._step, "indptr": self._drawn.indptr, "indices": self._drawn.indices}

    def restore(self, kept: Snapshot) -> None:
        """See `Resumable`."""
        indptr = array_of(kept, "indptr", (len(kept["indptr"]),), np.int64)
        indices = array_of(kept, "indices", (int(indptr[-1]),), np.int32)
        known = (indices >= 0) & (indices < self._n_items)
        if indptr[0] != 0 or (np.diff(indptr) < 0).any() or not known.all():
            raise ValueError("the negatives are no sets of items")
        self._step, self._drawn = int(kept["step"]), Sets(indptr.copy(), indices.copy())
