"""The end of small problems: full batches and L-BFGS, so that training stops at an optimum and not near one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads
from contradpp.data.sets import distinct_sets, take_sets
from contradpp.errors import NumericalError, ParameterError
from contradpp.learn.callbacks import Callback
from contradpp.learn.loop import Outcome, assemble
from contradpp.learn.objectives import Batch, ChoiceLikelihood, Contrastive, Normalizer, Objective, with_normalizer
from contradpp.learn.optimizers import dense_gradient
from contradpp.learn.plan import Plan, TrainingData
from contradpp.learn.state import State

Array = NDArray[np.float64]
MOST_PARAMETERS = 20_000
MOST_ENTRIES = 300_000  # of the distinct sets
STAGE_ITERATIONS = 30  # of L-BFGS, at every value of the diagonal
PATIENCE = 10  # iterations without a better validation score
# At the optimum of p free parameters on n baskets others are some p/2n nats less likely than under the truth.
TRUSTED = 0.005  # nats up to which the optimum itself is wanted: a validation score is noisier than that
DETERMINED = 0.01  # nats up to which it is worth while to look for a better optimum
SHAKEN = (0.1, 0.03, 0.01)  # the diagonal after every shake, as a share of the mean weight of an item
LOWERED = (0.003, 0.001)  # and after the last one
SHAKE_ITERATIONS = 40
SHAKES = 9  # in a row without a better optimum, until it is held to be the best
MOST_SHAKES = 27
TURNED = (0.15, 0.3, 1.0)  # of the items get a new direction by a shake, in turn: some optima are near, some far
MOST_TO_SHAKE = 100_000  # entries of the distinct sets
MOST_SWEEPS = 5  # over the signs of S
LEAST_GAIN = 1e-6  # nats that turning a sign must gain
SHAKE = 2**31  # the key of its random stream: no round has it


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
    by_choice = isinstance(plan.closed, ChoiceLikelihood)  # the same set may be chosen from others
    sets, weights = (data.positives, data.weights) if by_choice else distinct_sets(data.positives, data.weights)
    if len(sets.indices) + (len(data.offered.indices) if by_choice and data.offered else 0) > MOST_ENTRIES:
        return None
    batch = assemble(sets, weights * sets.count / data.count, data.negatives, data.negative_weights)
    return replace(batch, offered=data.offered) if by_choice else batch


def anneal(state: State, batch: Batch, plan: Plan, outcome: Outcome) -> None:
    """Climb to an optimum while the diagonal is lowered to zero in stages, past walls where det V_A changes its sign.

    Steps by chance would jump back over the walls, so that there are none: L-BFGS to the end.
    """
    for epsilon in dict.fromkeys(plan.stages):
        state.refresh(epsilon)
        climb(FullBatch(state, _closed(plan), batch, plan.penalty, 2 * STAGE_ITERATIONS), STAGE_ITERATIONS)
        outcome.take(state, -np.inf, anyway=True)
    state.refresh(0.0)
    outcome.take(state, plan.monitor(state))
    outcome.converged = True


def shake(state: State, batch: Batch, plan: Plan, outcome: Outcome, *, trusted: bool) -> None:
    """Leave local optima: turn some rows of V, raise a diagonal and lower it again, and keep what is better.

    With a diagonal that is small but not zero optima can be compared after few iterations. The validation sets have the
    last word, unless the data are trusted more.
    """
    outcome.give_back(state)
    rng = stream(plan.seed, SHAKE)
    weight = float(state.squared_norms.mean())

    def lower(V: Array, shares: Sequence[float]) -> tuple[float, Array]:
        state.V[:] = V
        state.changed()
        value = -np.inf
        for share in shares:
            state.refresh(share * weight)
            problem = FullBatch(state, _closed(plan), batch, plan.penalty, 4 * SHAKE_ITERATIONS)
            value = climb(problem, SHAKE_ITERATIONS)
        return value, state.V.copy()

    best, V = lower(state.V, SHAKEN[-1:])
    waited = 0
    for number in range(MOST_SHAKES):
        value, other = lower(turned(V, TURNED[number % len(TURNED)], rng), SHAKEN)
        waited = 0 if value > best + 1e-5 else waited + 1
        if not waited:
            best, V = value, other
        if waited == SHAKES:
            break
    lower(V, LOWERED)
    state.refresh(0.0)
    outcome.take(state, plan.monitor(state), anyway=trusted)


def turned(V: Array, share: float, rng: np.random.Generator) -> Array:
    """V with new directions for about a share of its rows."""
    other = rng.standard_normal(V.shape)
    other *= np.sqrt(np.square(V).sum(axis=1) / np.square(other).sum(axis=1))[:, None]
    return np.where(rng.random(len(V))[:, None] < share, other, V)


def turn_signs(state: State, batch: Batch, plan: Plan, outcome: Outcome) -> None:
    """Turn the sign of one entry of S after the other where baskets become more likely by it, and climb; for "mle".

    The parameters are log |s|, so that no climb turns a sign. Signs by chance are as good as any for pairs, det L_{ij}
    having s_ij² alone, but not around cycles. A sweep counts if the validation sets like where it leads.
    """
    outcome.give_back(state)
    signs, entries = state.partners.signs, np.argsort(state.partners.pair, kind="stable").reshape(-1, 2)
    best = signs.copy()
    for _ in range(MOST_SWEEPS):
        if not sweep_signs(state, batch, entries):
            break
        climb(FullBatch(state, _closed(plan), batch, plan.penalty, 4 * SHAKE_ITERATIONS), SHAKE_ITERATIONS)
        score = plan.monitor(state)
        if score <= outcome.best_score:
            break
        outcome.take(state, score)
        best = signs.copy()
    signs[:] = best
    state.refresh()


def sweep_signs(state: State, batch: Batch, entries: NDArray[np.int64]) -> int:
    """Turn every sign of S that makes the sets more likely, the others as they are by then; how many those were.

    `entries` has the two places of every pair in the pattern of S. Only sets with both of its items change.
    """
    sets, signs = batch.positives, state.partners.signs
    owner = np.repeat(np.arange(sets.count), sets.sizes)
    holders = np.split(
        owner[np.argsort(sets.indices, kind="stable")], np.cumsum(np.bincount(sets.indices, minlength=state.n_items))
    )
    logs, normalizer, turned = state.log_det(sets), Normalizer.of(state).log, 0
    rows = np.repeat(np.arange(state.n_items), np.diff(state.partners.indptr))
    for pair in entries:
        i, j = rows[pair[0]], state.partners.columns[pair[0]]
        both = np.intersect1d(holders[i], holders[j], assume_unique=True)
        signs[pair] *= -1.0
        state.refresh()
        new, whole = state.log_det(take_sets(sets, both)), Normalizer.of(state).log
        gain = batch.weights[both] @ (new - logs[both]) - batch.weights.sum() * (whole - normalizer)
        if gain > LEAST_GAIN:
            logs[both], normalizer, turned = new, whole, turned + 1
        else:
            signs[pair] *= -1.0
    state.refresh()
    return turned


def polish(
    state: State, batch: Batch, n_baskets: int, plan: Plan, outcome: Outcome, callbacks: Sequence[Callback]
) -> None:
    """Climb from the best parameters to the optimum.

    What is kept is still what the validation sets like best: an optimum that is only one of the training data is not
    taken, unless the data say far more about it than the validation sets.
    """
    optimism = n_free(state) / (2 * n_baskets)
    trusted, began = optimism <= TRUSTED, time.perf_counter()
    if plan.shakes and optimism <= DETERMINED and len(batch.positives.indices) <= MOST_TO_SHAKE:
        shake(state, batch, plan, outcome, trusted=trusted)
    if optimism <= DETERMINED and not state.symmetric and isinstance(plan.closed, Contrastive) and plan.keep_best:
        turn_signs(state, batch, plan, outcome)
    outcome.give_back(state)
    passes = 2 * plan.max_iter if trusted or plan.stages else plan.max_iter - outcome.n_iter
    problem, waited = FullBatch(state, _closed(plan), batch, plan.penalty, passes), 0

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
    outcome.n_iter += 1
    done, seconds = passes - problem.passes, time.perf_counter() - began
    record = {
        "iteration": outcome.n_iter, "step": done, "objective": problem.value, "validation": outcome.best_score,
        "rate": 0.0, "seconds": seconds, "sets_per_second": batch.positives.count * done / max(seconds, 1e-9),
        "likely_end": outcome.n_iter,
    }  # fmt: skip
    outcome.history.append(record)
    for callback in callbacks:
        callback.on_iteration(record, outcome.V)


def n_free(state: State) -> int:
    """How many parameters there are, but for the rotations V → VQ that change nothing."""
    rank: int = min(state.V.shape)
    return int(state.V.size) - rank * (rank - 1) // 2 + len(state.log_d) + len(state.pairs)


def climb(problem: FullBatch, iterations: int, look: Callable[[Array], None] | None = None) -> float:
    """L-BFGS from the present parameters, and the value where it ends; `look` sees every iterate."""
    from scipy.optimize import minimize

    options = {"maxiter": iterations, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-7}
    last, value = problem.vector, -np.inf

    def note(intermediate_result: Any) -> None:
        nonlocal last, value
        last, value = intermediate_result.x.copy(), -float(intermediate_result.fun)
        if look is not None:
            look(last)

    with blas_threads(1), suppress(Enough):
        minimize(problem, last, jac=True, method="L-BFGS-B", callback=note, options=options)
    problem.put(last)
    return value


def _closed(plan: Plan) -> Objective:
    if plan.closed is None:
        raise ParameterError("this objective has no closed form")
    return plan.closed
