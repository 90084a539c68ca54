"""Optimizers: the settings that users pass as `optimizer=`, and the algorithms. All of them ascend.

`make_optimizer` makes the algorithm of settings. An algorithm turns a gradient into a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from contradpp._threads import blas_threads, over_parts
from contradpp._types import Array, Flags, Ints
from contradpp.dpp import compiled
from contradpp.dpp.linalg import change_of, take_rows, times
from contradpp.errors import NumericalError
from contradpp.learn.checkpoints import checkpointed
from contradpp.learn.objectives import Batch, Gradient, Objective, with_normalizer
from contradpp.learn.settings import Settings
from contradpp.learn.state import NUMBERS_PER_BLOCK, ROWS_PER_BLOCK, State

if TYPE_CHECKING:
    from numpy.typing import DTypeLike
    from scipy.optimize import OptimizeResult

    from contradpp.dpp.compiled import steps

__all__ = ["Adam", "Nesterov", "RobbinsMonro"]

BETA2 = 0.99  # of second moments
DENSE_ITEMS = 4096  # up to this catalog size a step over all rows costs no more than picking some
PAIR_STEP = 0.02  # of log |s_ij|
STEPS_KNOWN = 1e4  # as many steps as make a second moment certain
LIKELIHOOD_STEPS = 50  # as in LowRankDPP.jl
CONTRASTIVE_STEPS = 800  # chosen on validation baskets: experiments/paper/schedules.py


# -- Settings --------------------------------------------------------------------------------------


@dataclass(repr=False)
class Adam(Settings):
    """Row-wise lazy Adam: a row of V moves in the logarithm of its norm and in its direction.

    Parameters
    ----------
    learning_rate : float, optional
        For `LowRankDPP` the step of directions in radians (0.1 if omitted); log-norms move by a
        twentieth of it. For kernels with S the step of log |s_ij| (0.02); log-norms move by a tenth
        of it, directions by twice as much.
    batch_size : int, optional
        Positives a step. If omitted, 1000 for `LowRankDPP` and 300 for `NonsymmetricDPP`, or a
        hundredth of the baskets if that is more.

    Examples
    --------
    >>> import contradpp as cd
    >>> model = cd.LowRankDPP(optimizer=cd.optimizers.Adam(learning_rate=0.05))
    >>> model.get_params()["optimizer__learning_rate"]
    0.05
    """

    learning_rate: float | None = None
    batch_size: int | None = None


@dataclass(repr=False)
class Nesterov(Settings):
    """Gradient ascent with Nesterov momentum and sums over batches, as LowRankDPP.jl; V only.

    Parameters
    ----------
    learning_rate : float, optional
        Step size of the first phase, 0.005 if omitted.
    batch_size : int, optional
        Positives a step. If omitted, 1000, or a hundredth of the baskets if that is more.
    """

    learning_rate: float | None = None
    batch_size: int | None = None


@dataclass(repr=False)
class RobbinsMonro(Settings):
    """Projected gradient ascent that satisfies the paper's Theorem 1; V only.

    Parameters
    ----------
    learning_rate : float, optional
        The first step size, 0.5 if omitted.
    batch_size : int, optional
        Positives a step. If omitted, 1000, or a hundredth of the baskets if that is more.
    radius : float
        The longest row that is allowed.
    """

    learning_rate: float | None = None
    batch_size: int | None = None
    radius: float = 10.0


OptimizerSettings = Adam | Nesterov | RobbinsMonro
WORDS: dict[str, type[OptimizerSettings]] = {
    "adam": Adam,
    "nesterov": Nesterov,
    "robbins-monro": RobbinsMonro,
}


def make_optimizer(
    settings: OptimizerSettings, state: State, penalty: Array, batch_scale: int, fixed_steps: int
) -> Optimizer:
    """Make the algorithm of these settings.

    Parameters
    ----------
    settings : Adam, Nesterov or RobbinsMonro
    state : State
    penalty : array (M,)
        α/μ_i.
    batch_scale, fixed_steps : int
        The sets of a batch, and the steps of the first phase, for `Nesterov`.
    """
    rate = settings.learning_rate
    match settings:
        case Nesterov():
            size = 5e-3 if rate is None else rate
            return NesterovAscent(penalty, batch_scale, step_size=size, fixed_steps=fixed_steps)
        case RobbinsMonro(radius=radius):
            return ProjectedAscent(penalty, radius, step_size=0.5 if rate is None else rate)
    steps: dict[str, float] = {}
    if not state.symmetric:
        pair = PAIR_STEP if rate is None else rate
        steps = {"pair_step": pair, "norm_step": pair / 10, "direction_step": 2 * pair}
    elif rate is not None:
        steps = {"norm_step": rate / 20, "direction_step": rate}
    return RowwiseAdam.for_state(state, penalty, dense=state.n_items <= DENSE_ITEMS, **steps)


# -- Algorithms ------------------------------------------------------------------------------------


class Optimizer(ABC):
    """A rule for steps along a gradient, less the popularity penalty."""

    def look_ahead(self, state: State) -> State:
        """Return the state at which the gradient of this step is taken."""
        return state

    @abstractmethod
    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        """Make one step; `rate` scales the optimizer's own step size."""

    def settle(self, state: State) -> None:  # noqa: B027
        """Bring V up to date where work on it was put off."""


def dense_gradient(state: State, gradient: Gradient, penalty: Array, scale: float = 1.0) -> Array:
    """Return scale × ∂φ/∂V − 2 penalty_i v_i as one matrix (M, K), with penalty = α/μ."""
    dense = np.zeros(state.V.shape)
    if gradient.right is not None:
        dense = times(state.V, scale * gradient.right, state.n_jobs)
        if gradient.scale is not None:
            dense *= gradient.scale[:, None]
    dense[gradient.rows] += scale * gradient.values
    dense -= 2.0 * penalty[:, None] * state.V
    return dense


@dataclass
class RowwiseAdam(Optimizer):
    """Adam over rows of V, and over log d and log |s_ij|, each with a step size of its own.

    A row moves in the logarithm of its norm and in its direction. Each of the two has one second
    moment a row. Rows without a gradient keep their moments. The penalty has its exact flow,

        ‖v‖² ← ‖v‖² / (1 + 2 c ‖v‖²),

    where c counts the time since the row's last step, so that it can be applied late, at once.

    The part of a gradient that all rows share is computed for all rows (`dense`), or put off: a row
    that moves again after n steps gets n times its present value. Then no step moves a row outside
    of the batch, and the gradient is up to date to first order only.
    """

    penalty: Array  # (M,): α/μ_i
    n_components: int
    n_diagonal: int = 0
    n_pairs: int = 0
    dtype: DTypeLike = np.float64  # of V, and so of its momentum
    dense: bool = True  # the shared part is computed for all rows
    norm_step: float = 0.005  # of log ‖v_i‖
    direction_step: float = 0.1  # in radians
    diagonal_step: float = 0.02  # of log d_i
    pair_step: float = 0.02  # of log |s_ij|
    beta1: float = 0.9
    clock: float = checkpointed(default=0.0)
    t: int = checkpointed(default=0)
    momentum: Array = checkpointed(init=False)
    # Columns: first and second moment of log-norm, second moment of direction, steps, last clock.
    rows: Array = checkpointed(init=False)
    seen: Flags = checkpointed(init=False)  # rows that ever made a step: the others owe nothing
    touched: Ints = checkpointed(init=False)  # the step of the last touch
    pair_moments: Array = checkpointed(init=False)  # (2, n_pairs): first and second
    diagonal_moments: Array = checkpointed(init=False)

    def __post_init__(self) -> None:
        M = len(self.penalty)
        self.momentum = np.zeros((M, self.n_components), dtype=self.dtype)
        self.rows = np.zeros((M, 5))
        self.seen = np.zeros(M, dtype=bool)
        self.touched = np.zeros(0 if self.dense else M, dtype=np.int64)
        self.pair_moments = np.zeros((2, self.n_pairs))
        self.diagonal_moments = np.zeros((2, self.n_diagonal))

    @classmethod
    def for_state(cls, state: State, penalty: Array, **settings: Any) -> RowwiseAdam:
        """Make an optimizer of the parameters of a state."""
        K = state.V.shape[1]
        n_diagonal = len(state.log_d)
        return cls(penalty, K, n_diagonal, len(state.pairs), state.V.dtype, **settings)

    def assume_scale(self, popularity: Array, n_sets: int) -> None:
        """Set second moments to what chance gives in batches of `n_sets`: 4 popularity / n_sets.

        Adam's first steps are as long for a small gradient as for a large one. Calls of
        `partial_fit` make one or two: rows outside of the batch would go as far down as those in it
        go up, and rare items would vanish. Steps in proportion to the gradient have no such bias.
        """
        self.rows[:, 1] = self.rows[:, 2] = 4.0 * popularity / n_sets
        self.rows[:, 3] = STEPS_KNOWN
        self.beta1 = 0.0  # a momentum would keep most of a single step back

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        self.clock += rate
        self.t += 1
        for values, slope, moments, size in (
            (state.pairs, gradient.pairs, self.pair_moments, self.pair_step),
            (state.log_d, gradient.log_d, self.diagonal_moments, self.diagonal_step),
        ):
            if slope is not None:
                self._move_vector(values, slope, moments, rate * size, state.n_jobs)
        rows = gradient.rows
        values = gradient.values
        times = np.empty(0)
        if gradient.right is not None:
            if self.dense:
                values = state.scratch("dense", *state.V.shape)
                values[:] = 0.0
                values[rows] = gradient.values
                rows = np.arange(len(state.V), dtype=np.int32)
                times = np.ones(len(rows))
            else:
                times = (self.t - self.touched[rows]).astype(np.float64)
                self.touched[rows] = self.t
            if gradient.scale is not None:
                times *= gradient.scale[rows]
        self.seen[rows] = True
        moved = replace(gradient, rows=rows, values=values)
        self._move_rows(state, moved, times, rate)

    def _move_rows(self, state: State, gradient: Gradient, times: Array, rate: float) -> None:
        """Move rows along values + times × V right, in one pass over blocks that fit a cache."""
        rows = gradient.rows
        right = gradient.right
        V = state.V
        dual = state.dual_before(rows)
        memory, pace = self._kernel_arguments(rate)
        squared_norms = np.empty(len(rows))
        changes = np.empty((-(-len(rows) // ROWS_PER_BLOCK), V.shape[1], V.shape[1]))

        def work(part: slice) -> None:
            own = rows[part]
            old, shared = state.scratch("rows", 2, len(own), V.shape[1])
            take_rows(V, own, old)
            if right is not None:
                np.matmul(old, right, out=shared)
            given = (V, own, old, gradient.values[part], times[part], shared, memory, pace)
            compiled.steps.adam_rows(*given, squared_norms[part], dual is not None)
            if dual is not None:  # `shared` is now new − old, and `old` is new + old
                np.matmul(shared.T, old, out=changes[part.start // ROWS_PER_BLOCK])

        over_parts(work, len(rows), ROWS_PER_BLOCK, state.n_jobs)
        state.rows_changed(rows, squared_norms, None if dual is None else dual + change_of(changes))

    def _kernel_arguments(self, rate: float) -> tuple[steps.Memory, steps.Pace]:
        norm = rate * self.norm_step
        direction = rate * self.direction_step
        pace = compiled.steps.Pace(self.clock, norm, direction, self.norm_step, self.beta1, BETA2)
        return compiled.steps.Memory(self.momentum, self.rows, self.penalty), pace

    def _move_vector(
        self, values: Array, gradient: Array, moments: Array, size: float, n_jobs: int
    ) -> None:
        """Make one step of plain Adam."""
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
        rows = np.flatnonzero(self.seen).astype(np.int32)
        memory, pace = self._kernel_arguments(1.0)
        squared_norms = np.empty(len(rows))

        def work(part: slice) -> None:
            compiled.steps.settle_rows(state.V, rows[part], memory, pace, squared_norms[part])

        over_parts(work, len(rows), ROWS_PER_BLOCK, state.n_jobs)
        state.rows_changed(rows, squared_norms)


@dataclass
class NesterovAscent(Optimizer):
    """Stochastic gradient ascent with Nesterov momentum, as LowRankDPP.jl and the paper use it.

    δ ← β δ + (1 − β) ε ∇φ(V + β δ), V ← V + δ

    The gradient is summed over the minibatch: `batch_scale` is the number of sets in a full one.
    β = 0.95 and ε = 5e-3 for T = `fixed_steps` steps, then β = 0 and ε = 1e-5 / (1 + t/T).
    """

    penalty: Array
    batch_scale: float = 1.0
    momentum: float = 0.95
    step_size: float = 5e-3
    fixed_steps: int = 50
    later_step_size: float = 1e-5
    t: int = checkpointed(default=0)
    velocity: Array | None = checkpointed(default=None, repr=False)

    def look_ahead(self, state: State) -> State:
        if self.velocity is None or self._beta == 0:
            return state
        return state.with_factors(state.V + self._beta * self.velocity)

    @property
    def _beta(self) -> float:
        return self.momentum if self.t < self.fixed_steps else 0.0

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        size = self.step_size
        if self.t >= self.fixed_steps:
            size = self.later_step_size / (1 + self.t / self.fixed_steps)
        ahead = self.look_ahead(state)
        slope = dense_gradient(ahead, gradient, self.penalty, self.batch_scale)
        delta = (1 - self._beta) * rate * size * slope
        if self.velocity is not None:
            delta += self._beta * self.velocity
        self.velocity = delta
        state.V += delta
        state.changed()
        self.t += 1


@dataclass
class ProjectedAscent(Optimizer):
    """Projected stochastic gradient ascent with steps η_t = η/(1 + t/τ) (the paper's Theorem 1).

    Σ η_t = ∞ and Σ η_t² < ∞. After each step, rows longer than `radius` are scaled back to it.
    """

    penalty: Array
    radius: float = 10.0
    step_size: float = 0.5
    decay: float = 100.0
    t: int = checkpointed(default=0)

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        size = rate * self.step_size / (1 + self.t / self.decay)
        state.V += size * dense_gradient(state, gradient, self.penalty)
        lengths = np.linalg.norm(state.V, axis=1)
        # An overflow is left to the check in the training loop.
        long = (lengths > self.radius) & np.isfinite(lengths)
        state.V[long] *= (self.radius / lengths[long])[:, None]
        state.changed()
        self.t += 1


# -- All baskets at once ---------------------------------------------------------------------------


class Enough(Exception):
    """A signal that passes are used up, or that the validation score has long been at its best."""


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

    def set_vector(self, x: Array) -> None:
        """Set the parameters."""
        state = self.state
        V, log_d, pairs = np.split(x, np.cumsum([state.V.size, len(state.log_d)]))
        state.V[:] = V.reshape(state.V.shape)
        state.log_d[:] = log_d
        state.pairs[:] = pairs
        state.changed()

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Return −φ and its gradient; a barrier for line searches where φ is not finite."""
        if self.passes <= 0:
            raise Enough
        self.passes -= 1
        self.set_vector(x)
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


def climb(
    problem: FullBatch, iterations: int, look: Callable[[Array], None] | None = None
) -> float:
    """Run L-BFGS from the present parameters, and return the last value of φ."""
    from scipy.optimize import minimize

    options = {"maxiter": iterations, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-7}
    last = problem.vector
    value = -np.inf

    def note(intermediate_result: OptimizeResult) -> None:
        nonlocal last, value
        last = intermediate_result.x.copy()
        value = -float(intermediate_result.fun)
        if look is not None:
            look(last)

    with blas_threads(1), suppress(Enough):
        minimize(problem, last, jac=True, method="L-BFGS-B", callback=note, options=options)
    problem.set_vector(last)
    return value
