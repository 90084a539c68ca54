"""Optimizers: how a gradient becomes a step, when steps get smaller, and when they end. All of them ascend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads
from contradpp.dpp import compiled
from contradpp.dpp.linalg import change_of, take_rows, times
from contradpp.errors import NumericalError
from contradpp.learn.checkpoint import kept
from contradpp.learn.objectives import Batch, Gradient, Objective, with_normalizer
from contradpp.learn.state import NUMBERS_PER_BLOCK, ROWS_PER_BLOCK, State, over_parts

if TYPE_CHECKING:
    from contradpp.learn.params import Params, TrainingData

Array = NDArray[np.float64]
BETA2 = 0.99  # of second moments
DENSE_ITEMS = 4096  # up to this catalogue size a step over all rows costs no more than picking some
PAIR_STEP = 0.02  # of log |s_ij|; docs/beyond.md says how it was chosen
STEPS_KNOWN = 1e4  # as many steps as make a second moment certain


class Optimizer(ABC):
    """Changes the parameters by one step along a gradient, and applies the popularity penalty."""

    def look(self, state: State) -> State:
        """The state at which the gradient of this step should be taken."""
        return state

    @abstractmethod
    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        """One step; `rate` scales the optimiser's own step size."""

    def settle(self, state: State) -> None:  # noqa: B027
        """Bring V up to date where work on it was put off."""


def dense_gradient(state: State, gradient: Gradient, penalty: Array, scale: float = 1.0) -> Array:
    """scale × ∂φ/∂V − 2 penalty_i v_i as one matrix (M, K), with penalty = α/μ."""
    dense = np.zeros(state.V.shape)
    if gradient.right is not None:
        dense = times(state.V, scale * gradient.right, state.n_jobs)
        if gradient.scale is not None:
            dense *= gradient.scale[:, None]
    dense[gradient.rows] += scale * gradient.values
    dense -= 2.0 * penalty[:, None] * state.V
    return dense


@dataclass
class Adam(Optimizer):
    """Adam over rows of V, and over log d and the pairs' log |s_ij|, each with a step size of its own.

    A row moves in the logarithm of its norm and in its direction; the second moment is one number a row for each of
    the two. Rows without a gradient keep their state. The penalty moves along its exact flow,
    ‖v‖² ← ‖v‖² / (1 + 2 c ‖v‖²), which for a row that was not touched for many steps can be applied at once when it is
    next touched: c counts the time since then.

    The part of a gradient that all rows share is computed for all rows (dense), or put off: a row that is touched
    again after n steps gets n times its present value. Then no step touches a row outside the batch, at the price of
    a gradient that is up to date only to first order.
    """

    penalty: Array  # (M,): α/μ_i
    n_components: int
    n_diagonal: int = 0
    n_pairs: int = 0
    dtype: Any = np.float64  # of V, and so of its momentum
    dense: bool = True  # whether the shared part is computed for all rows
    norm_step: float = 0.005  # of log ‖v_i‖
    direction_step: float = 0.1  # in radians
    diagonal_step: float = 0.02  # of log d_i
    pair_step: float = 0.02  # of log |s_ij|
    beta1: float = 0.9
    clock: float = kept(default=0.0)
    t: int = kept(default=0)
    momentum: Array = kept(init=False)
    # Columns: first and second moment of log-norm, second moment of direction, steps taken, last clock.
    rows: Array = kept(init=False)
    seen: NDArray[np.bool_] = kept(init=False)  # rows that ever took a step: the others owe nothing
    touched: NDArray[np.int64] = kept(init=False)  # the step of the last touch
    pair_moments: Array = kept(init=False)  # (2, n_pairs): first and second
    diagonal_moments: Array = kept(init=False)

    def __post_init__(self) -> None:
        M = len(self.penalty)
        self.momentum, self.rows = np.zeros((M, self.n_components), dtype=self.dtype), np.zeros((M, 5))
        self.seen = np.zeros(M, dtype=bool)
        self.touched = np.zeros(0 if self.dense else M, dtype=np.int64)
        self.pair_moments, self.diagonal_moments = np.zeros((2, self.n_pairs)), np.zeros((2, self.n_diagonal))

    @classmethod
    def for_state(cls, state: State, penalty: Array, **settings: Any) -> Self:
        """For the parameters of a state."""
        K, n_diagonal, n_pairs = state.V.shape[1], len(state.log_d), len(state.pairs)
        return cls(penalty, K, n_diagonal=n_diagonal, n_pairs=n_pairs, dtype=state.V.dtype, **settings)

    def expect(self, share: Array, n_sets: int) -> None:
        """Know from the start how large gradients of rows are by chance, in batches of so many sets: 2√(share/n_sets).

        Adam's first steps are as long for a small gradient as for a large one. Where every call of `partial_fit` takes
        but one or two, rows whose item is not in the batch go as far down as those in it go up, and rare items vanish;
        steps in proportion to the gradient have no such bias.
        """
        self.rows[:, 1] = self.rows[:, 2] = 4.0 * share / n_sets
        self.rows[:, 3] = STEPS_KNOWN
        self.beta1 = 0.0  # a momentum would keep most of a single step back

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        self.clock += rate
        self.t += 1
        n_jobs = state.n_jobs
        self._move_vector(state.pairs, gradient.pairs, self.pair_moments, rate * self.pair_step, n_jobs)
        self._move_vector(state.log_d, gradient.log_d, self.diagonal_moments, rate * self.diagonal_step, n_jobs)
        rows, values, times = gradient.rows, gradient.values, np.empty(0)
        if gradient.right is not None:
            if self.dense:
                values, rows = state.scratch("dense", *state.V.shape), np.arange(len(state.V), dtype=np.int32)
                values[:] = 0.0
                values[gradient.rows] = gradient.values
                times = np.ones(len(rows))
            else:
                times = (self.t - self.touched[rows]).astype(np.float64)
                self.touched[rows] = self.t
            if gradient.scale is not None:
                times *= gradient.scale[rows]
        self.seen[rows] = True
        self._move_rows(state, rows, values, times, gradient.right, rate)

    def _move_rows(
        self, state: State, rows: NDArray[np.int32], values: Array, times: Array, right: Array | None, rate: float
    ) -> None:
        """Move rows along values + times × V right, and tell the state, in one pass over blocks that fit a cache."""
        V, K, dual = state.V, self.n_components, state.dual_before(rows)
        (memory, pace), squared_norms = self._rules(rate), np.empty(len(rows))
        parts = np.empty((-(-len(rows) // ROWS_PER_BLOCK), K, K))

        def work(part: slice) -> None:
            own = rows[part]
            old, shared = state.scratch("rows", 2, len(own), K)
            take_rows(V, own, old)
            if right is not None:
                np.matmul(old, right, out=shared)
            compiled.steps.adam_rows(
                V, own, old, values[part], times[part], shared, memory, pace, squared_norms[part], dual is not None
            )
            if dual is not None:
                np.matmul(
                    shared.T, old, out=parts[part.start // ROWS_PER_BLOCK]
                )  # the difference of new and old rows, and their sum

        over_parts(work, len(rows), ROWS_PER_BLOCK, state.n_jobs)
        state.rows_changed(rows, squared_norms, None if dual is None else dual + change_of(parts))

    def _rules(self, rate: float) -> tuple[Any, Any]:
        norm, direction = rate * self.norm_step, rate * self.direction_step
        pace = compiled.steps.Pace(self.clock, norm, direction, self.norm_step, self.beta1, BETA2)
        return compiled.steps.Memory(self.momentum, self.rows, self.penalty), pace

    def _move_vector(self, values: Array, gradient: Array | None, moments: Array, size: float, n_jobs: int) -> None:
        """One step of plain Adam."""
        if gradient is None:
            return
        scale = size / (1 - self.beta1**self.t)

        def work(part: slice) -> None:
            first, second = moments[:, part]
            slope = gradient[part]
            first *= self.beta1
            first += (1 - self.beta1) * slope
            second *= BETA2
            second += (1 - BETA2) * slope**2
            values[part] += scale * first / (np.sqrt(second / (1 - BETA2**self.t)) + 1e-12)

        over_parts(work, len(values), NUMBERS_PER_BLOCK, n_jobs)

    def settle(self, state: State) -> None:
        """Apply the penalty that untouched rows still owe, so that V is what a dense computation would give."""
        rows = np.flatnonzero(self.seen).astype(np.int32)
        (memory, pace), squared_norms = self._rules(1.0), np.empty(len(rows))

        def work(part: slice) -> None:
            compiled.steps.settle_rows(state.V, rows[part], memory, pace, squared_norms[part])

        over_parts(work, len(rows), ROWS_PER_BLOCK, state.n_jobs)
        state.rows_changed(rows, squared_norms)


def make_optimizer(params: Params, state: State, penalty: Array, data: TrainingData) -> Optimizer:
    """The optimiser that the parameters ask for; `penalty` is α/μ_i."""
    rate = params.learning_rate
    given: dict[str, Any] = {} if rate is None else {"step_size": rate}
    if params.optimizer == "nesterov":
        steps = LIKELIHOOD_STEPS if params.by_likelihood else CONTRASTIVE_STEPS
        batch = min(params.batch_size, max(data.positives.count, data.negatives.count, 1))
        return Nesterov(penalty, batch_scale=batch, fixed_steps=steps, **given)
    if params.optimizer == "robbins-monro":
        return RobbinsMonro(penalty, radius=params.radius, **given)
    lengths: dict[str, float] = {} if rate is None else {"norm_step": rate / 20, "direction_step": rate}
    if not state.symmetric:
        rate = PAIR_STEP if rate is None else rate
        lengths = {"pair_step": rate, "norm_step": rate / 10, "direction_step": 2 * rate}
    return Adam.for_state(state, penalty, dense=state.n_items <= DENSE_ITEMS, **lengths)


def make_schedule(params: Params) -> Schedule:
    """Make the schedule that the parameters ask for."""
    if not params.paper:
        return Plateau(params.tol)
    return RelativeChange(params.tol, 0 if params.by_likelihood else CONTRASTIVE_STEPS)


# -- When steps get smaller, and when they end ----------------------------------------------------


class Verdict(Enum):
    """What to do after a score."""

    GO_ON = "go on"
    SLOW_DOWN = "slow down"
    CONVERGED = "converged"


@dataclass
class Schedule:
    """A rule that turns scores into step sizes and an end; by itself, the same steps to the last round."""

    _: KW_ONLY
    rate: float = kept(default=1.0)

    def judge(self, score: float) -> Verdict:  # noqa: ARG002
        """Take note of the newest score (higher is better)."""
        return Verdict.GO_ON

    def rounds_left(self) -> float:
        """How many more rounds are likely, infinite if the score has no say."""
        return np.inf


@dataclass
class Plateau(Schedule):
    """Lower the step size when the score stops rising, and end when that has happened often enough."""

    tol: float  # a score counts as a rise if it is above the best one by more than tol × |best|
    patience: int = 2  # scores without a rise
    reductions: int = 3  # of the step size, before the end
    factor: float = 0.3  # by which it is reduced
    best: float = kept(default=-np.inf, init=False)
    waited: int = kept(default=0, init=False)
    reduced: int = kept(default=0, init=False)

    def judge(self, score: float) -> Verdict:
        if self.best == -np.inf or score > self.best + self.tol * abs(self.best):
            self.best = max(score, self.best)
            self.waited = 0
            return Verdict.GO_ON
        self.waited += 1
        if self.waited < self.patience:
            return Verdict.GO_ON
        if self.reduced == self.reductions:
            return Verdict.CONVERGED
        self.reduced += 1
        self.waited = 0
        self.rate *= self.factor
        return Verdict.SLOW_DOWN

    def rounds_left(self) -> float:
        """As if the score rose in one more round at every size of steps still to come."""
        return self.patience - self.waited + (self.reductions - self.reduced) * (self.patience + 1)


# -- All baskets at once --------------------------------------------------------------------------


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
        V, log_d, pairs = np.split(x, np.cumsum([state.V.size, len(state.log_d)]))
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


# -- As in the paper ------------------------------------------------------------------------------


LIKELIHOOD_STEPS = 50  # as in LowRankDPP.jl
CONTRASTIVE_STEPS = 800  # chosen on validation baskets: experiments/paper/schedules.py
PAPER_ROUNDS = 1000  # at least
PAPER: dict[str, Any] = {  # start, batch, optimizer and stopping rule of LowRankDPP.jl, whatever else is given
    "init": "uniform", "optimizer": "nesterov", "learning_rate": None, "batch_size": 1000, "tol": 1e-5,
    "monitor": "likelihood", "refresh": 1, "anneal": False,
}  # fmt: skip


@dataclass
class Nesterov(Optimizer):
    """Stochastic gradient ascent with Nesterov momentum, as LowRankDPP.jl and the paper use it; V only.

    δ ← β δ + (1 − β) ε ∇φ(V + β δ), V ← V + δ. The gradient is summed over the minibatch: `batch_scale` is
    the number of sets in a full one. β = 0.95 and ε = 5e-3 for T = `fixed_steps` steps, then β = 0 and
    ε = 1e-5 / (1 + t/T).
    """

    penalty: Array
    batch_scale: float = 1.0
    momentum: float = 0.95
    step_size: float = 5e-3
    fixed_steps: int = 50
    later_step_size: float = 1e-5
    t: int = kept(default=0)
    velocity: Array | None = kept(default=None, repr=False)

    def look(self, state: State) -> State:
        """V + β δ."""
        if self.velocity is None or self._beta == 0:
            return state
        return state.at(state.V + self._beta * self.velocity)

    @property
    def _beta(self) -> float:
        return self.momentum if self.t < self.fixed_steps else 0.0

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        size = self.step_size if self.t < self.fixed_steps else self.later_step_size / (1 + self.t / self.fixed_steps)
        ahead = self.look(state)
        delta = (1 - self._beta) * rate * size * dense_gradient(ahead, gradient, self.penalty, self.batch_scale)
        if self.velocity is not None:
            delta += self._beta * self.velocity
        self.velocity = delta
        state.V += delta
        state.changed()
        self.t += 1


@dataclass
class RobbinsMonro(Optimizer):
    """Projected stochastic gradient ascent with steps η/(1 + t/τ): Σ η_t = ∞, Σ η_t² < ∞ (the paper's Theorem 1).

    After each step, rows longer than `radius` are scaled back to it. V only.
    """

    penalty: Array
    radius: float = 10.0
    step_size: float = 0.5
    decay: float = 100.0
    t: int = kept(default=0)

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        size = rate * self.step_size / (1 + self.t / self.decay)
        state.V += size * dense_gradient(state, gradient, self.penalty)
        lengths = np.linalg.norm(state.V, axis=1)
        long = (lengths > self.radius) & np.isfinite(lengths)  # an overflow is for the guard in the loop
        state.V[long] *= (self.radius / lengths[long])[:, None]
        state.changed()
        self.t += 1


@dataclass
class RelativeChange(Schedule):
    """End when the score changes by at most `tol` of itself: the rule of LowRankDPP.jl and the paper."""

    tol: float
    unchecked_steps: int = 0  # at the start, where a contrast need not raise the likelihood that the rule looks at
    last: float = kept(default=np.nan, init=False)

    def judge(self, score: float) -> Verdict:
        change = abs(score - self.last)
        self.last = score
        return Verdict.CONVERGED if change <= self.tol * abs(score) else Verdict.GO_ON
