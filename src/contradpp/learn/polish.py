"""The end of small problems: full batches and L-BFGS, so that training stops at an optimum and not near one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from contradpp._threads import blas_threads
from contradpp.data.sets import distinct_sets
from contradpp.errors import NumericalError, ParameterError
from contradpp.learn.callbacks import Callback
from contradpp.learn.loop import Outcome, assemble
from contradpp.learn.objectives import Batch, Objective, with_normalizer
from contradpp.learn.optimizers import dense_gradient
from contradpp.learn.plan import Plan, TrainingData
from contradpp.learn.state import State

Array = NDArray[np.float64]
MOST_PARAMETERS = 20_000
MOST_ENTRIES = 300_000  # of the distinct sets
STAGE_ITERATIONS = 30  # of L-BFGS, at every value of the diagonal
PATIENCE = 10  # iterations without a better validation score


class Enough(Exception):
    """The passes over the data are used up, or the validation score has long been at its best."""


@dataclass
class FullBatch:
    """φ on all data as a function of one vector of parameters, with its gradient, for SciPy."""

    state: State
    objective: Objective
    batch: Batch
    penalty: Array
    passes: int
    value: float = np.nan  # the last one

    @property
    def vector(self) -> Array:
        """The parameters one after the other: V, log d, log |s|."""
        return np.concatenate([self.state.V.ravel(), self.state.log_d, self.state.pairs])

    def put(self, x: Array) -> None:
        """Set the parameters."""
        state = self.state
        ends = np.cumsum([state.V.size, len(state.log_d)])
        V, log_d, pairs = np.split(x, ends)
        state.V[:] = V.reshape(state.V.shape)
        state.log_d[:], state.pairs[:] = log_d, pairs
        state.changed()

    def __call__(self, x: Array) -> tuple[float, Array]:
        """−φ and its gradient; where φ is −inf or not defined, a wall that a line search turns back from."""
        if self.passes <= 0:
            raise Enough
        self.passes -= 1
        self.put(x)
        state = self.state
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                found = with_normalizer(state, self.objective.gradient(state, self.batch))
            except (np.linalg.LinAlgError, NumericalError):
                return 1e10, np.zeros_like(x)
            parts = [dense_gradient(state, found, self.penalty).ravel(), found.log_d, found.pairs]
            gradient = np.concatenate([part for part in parts if part is not None])
            value = found.objective - float(self.penalty @ np.square(state.V).sum(axis=1))
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return 1e10, np.zeros_like(x)
        self.value = value
        return -value, -gradient


def small_problem(state: State, data: TrainingData, plan: Plan) -> Batch | None:
    """All data as one batch of distinct sets, if full batches of them are cheap and the aim has a closed form."""
    if plan.closed is None or state.V.size + len(state.log_d) + len(state.pairs) > MOST_PARAMETERS:
        return None
    sets, weights = distinct_sets(data.positives, data.weights)
    if len(sets.indices) > MOST_ENTRIES:
        return None
    return assemble(sets, weights * sets.count / data.count, data.negatives, data.negative_weights)


def anneal(state: State, batch: Batch, plan: Plan, outcome: Outcome, callbacks: Sequence[Callback]) -> None:
    """Climb to an optimum while the diagonal is lowered to zero in stages, past walls where det V_A changes its sign.

    Steps by chance would jump back over the walls, so that there are none: L-BFGS to the end.
    """
    for epsilon in dict.fromkeys(plan.stages):
        state.refresh(epsilon)
        climb(FullBatch(state, _closed(plan), batch, plan.penalty, 2 * STAGE_ITERATIONS), STAGE_ITERATIONS)
        outcome.take(state, -np.inf, anyway=True)
    state.refresh(0.0)
    outcome.take(state, plan.monitor(state))
    polish(state, batch, plan, outcome, callbacks, passes=2 * plan.max_iter)


def polish(
    state: State, batch: Batch, plan: Plan, outcome: Outcome, callbacks: Sequence[Callback], *, passes: int
) -> None:
    """Climb from the best parameters to the optimum, by at most so many passes over the data.

    What is kept is still what the validation sets like best: an optimum that is only one of the training data is not
    taken.
    """
    outcome.give_back(state)
    problem = FullBatch(state, _closed(plan), batch, plan.penalty, passes)
    waited, began, n = 0, time.perf_counter(), batch.positives.count

    def look(x: Array) -> None:
        nonlocal waited
        problem.put(x)
        score, before = plan.monitor(state), outcome.best_score
        outcome.take(state, score)
        waited = 0 if score > before else waited + 1
        if waited >= PATIENCE:
            raise Enough

    climb(problem, passes, look)
    outcome.give_back(state)
    seconds = time.perf_counter() - began
    outcome.n_iter += 1
    done = passes - problem.passes
    record = {
        "iteration": outcome.n_iter, "step": done, "objective": problem.value, "validation": outcome.best_score,
        "rate": 0.0, "seconds": seconds, "sets_per_second": n * done / max(seconds, 1e-9),
    }  # fmt: skip
    outcome.history.append(record)
    for callback in callbacks:
        callback.on_iteration(record, outcome.V)


def climb(problem: FullBatch, iterations: int, look: Callable[[Array], None] | None = None) -> None:
    """L-BFGS from the present parameters; `look` sees every iterate."""
    options = {"maxiter": iterations, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-7}
    last = problem.vector

    def note(x: Array) -> None:
        nonlocal last
        last = x.copy()
        if look is not None:
            look(x)

    with blas_threads(1), suppress(Enough):
        minimize(problem, last, jac=True, method="L-BFGS-B", callback=note, options=options)
    problem.put(last)


def _closed(plan: Plan) -> Objective:
    if plan.closed is None:
        raise ParameterError("this objective has no closed form")
    return plan.closed
