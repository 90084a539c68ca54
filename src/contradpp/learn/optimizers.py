"""Optimisers: how a gradient becomes a step. All of them ascend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks
from contradpp.dpp.products import times
from contradpp.learn.checkpoint import Resumable, Snapshot, array_of
from contradpp.learn.objectives import Gradient
from contradpp.learn.state import State

Array = NDArray[np.float64]
ROWS_PER_BLOCK = 1024


class Optimizer(Resumable, Protocol):
    """Changes `state.V` by one step along a gradient, and applies the popularity penalty."""

    def look(self, state: State) -> State:
        """The state at which the gradient of this step should be taken."""
        ...

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        """One step; `rate` scales the optimiser's own step size."""
        ...

    def settle(self, state: State) -> None:
        """Bring V up to date where work on it was put off."""
        ...


def dense_gradient(state: State, gradient: Gradient, penalty: Array, scale: float = 1.0) -> Array:
    """scale × ∂φ/∂V − 2 penalty_i v_i as one matrix (M, K), with penalty = α/μ."""
    if gradient.right is None:
        dense = np.zeros_like(state.V)
    else:
        dense = times(state.V, scale * gradient.right, state.n_jobs)
    dense[gradient.rows] += scale * gradient.values
    dense -= 2.0 * penalty[:, None] * state.V
    return dense


@dataclass
class Nesterov:
    """Stochastic gradient ascent with Nesterov momentum, as LowRankDPP.jl and the paper use it.

    δ ← β δ + (1 − β) ε ∇φ(V + β δ), V ← V + δ. The gradient is summed over the minibatch: `batch_scale` is
    the number of sets in a full one. β = 0.95 and ε = 5e-3 for 50 steps, then β = 0 and ε = 1e-5 / (1 + t/50).
    """

    penalty: Array
    batch_scale: float = 1.0
    momentum: float = 0.95
    step_size: float = 5e-3
    fixed_steps: int = 50
    later_step_size: float = 1e-5
    _t: int = 0
    _velocity: Array | None = field(default=None, repr=False)

    def look(self, state: State) -> State:
        """V + β δ."""
        if self._velocity is None or self._beta == 0:
            return state
        return state.at(state.V + self._beta * self._velocity)

    @property
    def _beta(self) -> float:
        return self.momentum if self._t < self.fixed_steps else 0.0

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        """See `Optimizer`."""
        size = self.step_size if self._t < self.fixed_steps else self.later_step_size / (1 + self._t / self.fixed_steps)
        ahead = self.look(state)
        delta = (1 - self._beta) * rate * size * dense_gradient(ahead, gradient, self.penalty, self.batch_scale)
        if self._velocity is not None:
            delta += self._beta * self._velocity
        self._velocity = delta
        state.V += delta
        state.changed()
        self._t += 1

    def settle(self, state: State) -> None:
        """Nothing is put off."""

    def snapshot(self) -> Snapshot:
        """See `Resumable`."""
        return {"t": self._t} | ({} if self._velocity is None else {"velocity": self._velocity})

    def restore(self, kept: Snapshot) -> None:
        """See `Resumable`."""
        self._t = int(kept["t"])
        velocity = kept.get("velocity")
        self._velocity = None if velocity is None else velocity.copy()


@dataclass
class RobbinsMonro:
    """Projected stochastic gradient ascent with steps η/(1 + t/τ): Σ η_t = ∞, Σ η_t² < ∞ (the paper's Theorem 1).

    After each step, rows longer than `radius` are scaled back to it.
    """

    penalty: Array
    radius: float = 10.0
    step_size: float = 0.5
    decay: float = 100.0
    _t: int = 0

    def look(self, state: State) -> State:
        """V itself."""
        return state

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        """See `Optimizer`."""
        size = rate * self.step_size / (1 + self._t / self.decay)
        state.V += size * dense_gradient(state, gradient, self.penalty)
        lengths = np.linalg.norm(state.V, axis=1)
        long = (lengths > self.radius) & np.isfinite(lengths)  # an overflow is for the guard in the loop
        state.V[long] *= (self.radius / lengths[long])[:, None]
        state.changed()
        self._t += 1

    def settle(self, state: State) -> None:
        """Nothing is put off."""

    def snapshot(self) -> Snapshot:
        """See `Resumable`."""
        return {"t": self._t}

    def restore(self, kept: Snapshot) -> None:
        """See `Resumable`."""
        self._t = int(kept["t"])


@dataclass
class RowAdam:
    """Adam over rows, with a step size of its own for the logarithm of a row's norm and for its direction.

    The second moment is one number a row for each of the two. Rows without a gradient keep their state.
    The penalty moves along its exact flow, ‖v‖² ← ‖v‖² / (1 + 2 c ‖v‖²), which for a row that was not touched for
    many steps can be applied at once when it is next touched: c counts the time since then.

    The part of a gradient that all rows share, V times a K×K matrix, is computed for all rows (dense), or put off:
    a row that is touched again after n steps gets n times its present value. Then no step touches a row outside
    the batch, at the price of a gradient that is up to date only to first order.

    Parameters
    ----------
    penalty : array (M,)
        α/μ_i.
    dense : bool
        Whether the shared part is computed for all rows.
    norm_step, direction_step : float
        Step sizes: of log ‖v_i‖, and of the direction in radians.
    """

    penalty: Array
    n_components: int
    dense: bool = True
    norm_step: float = 0.005
    direction_step: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    _clock: float = 0.0
    _t: int = 0

    def __post_init__(self) -> None:
        M = len(self.penalty)
        self._momentum = np.zeros((M, self.n_components))
        # Columns: first and second moment of log-norm, second moment of direction, steps taken, last clock.
        self._rows = np.zeros((M, 5))
        self._seen = np.zeros(M, dtype=bool)  # rows that ever took a step: the others owe nothing
        self._touched = np.zeros(0 if self.dense else M, dtype=np.int64)  # the step of the last touch

    def look(self, state: State) -> State:
        """V itself."""
        return state

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        """See `Optimizer`."""
        self._clock += rate
        self._t += 1
        if gradient.right is not None and self.dense:
            self._move_all(state, gradient, gradient.right, rate)
            return
        rows, values = gradient.rows, gradient.values
        old = state.before(rows)
        if gradient.right is not None:
            shared = times(state.V[rows] if old is None else old, gradient.right, state.n_jobs)
            shared *= (self._t - self._touched[rows])[:, None]
            values = np.add(values, shared, out=shared)
            self._touched[rows] = self._t
        self._move(state, rows, values, rate)
        state.rows_changed(rows, old)

    def _move_all(self, state: State, gradient: Gradient, right: Array, rate: float) -> None:
        values = times(state.V, right, state.n_jobs)
        values[gradient.rows] += gradient.values
        self._move(state, np.arange(len(state.V), dtype=np.int32), values, rate)
        state.changed()

    def _move(self, state: State, rows: NDArray[np.int32], values: Array, rate: float) -> None:
        from contradpp.dpp.compiled import steps

        self._seen[rows] = True

        def work(block: int) -> None:
            part = slice(block * ROWS_PER_BLOCK, (block + 1) * ROWS_PER_BLOCK)
            steps.adam_rows(
                state.V, rows[part], values[part], self._momentum, self._rows, self.penalty, self._clock,
                rate * self.norm_step, rate * self.direction_step, self.norm_step, self.beta1, self.beta2,
            )  # fmt: skip

        run_blocks(work, -(-len(rows) // ROWS_PER_BLOCK), state.n_jobs)

    def settle(self, state: State, rows: NDArray[np.int64] | None = None) -> None:
        """Apply the penalty that untouched rows still owe, so that V is what a dense computation would give.

        With `rows`, to those only; they must have taken a step.
        """
        from contradpp.dpp.compiled import steps

        rows = np.flatnonzero(self._seen) if rows is None else rows
        old = state.before(rows)
        steps.settle_rows(state.V, rows, self._rows, self.penalty, self._clock, self.norm_step, self.beta2)
        state.rows_changed(rows, old)

    def settled(self, rows: NDArray[np.int64]) -> None:
        """Say that these rows owe nothing: they are as another optimiser has settled them."""
        self._rows[rows, 4] = self._clock

    def snapshot(self) -> Snapshot:
        """See `Resumable`: all that is private, that of subclasses too."""
        return {name: value for name, value in vars(self).items() if name.startswith("_")}

    def restore(self, kept: Snapshot) -> None:
        """See `Resumable`."""
        for name, mine in self.snapshot().items():
            if isinstance(mine, np.ndarray):
                mine[:] = array_of(kept, name, mine.shape, mine.dtype)
            else:
                setattr(self, name, type(mine)(kept[name]))
