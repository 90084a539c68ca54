"""Training by local steps: every worker learns from its own baskets for a while, then all agree on the rows they moved.

What is exchanged grows with how often they meet, not with the number of steps. A row becomes the mean over the workers
that moved it since the last meeting, of its direction and of its log-norm, as the optimiser moves them: the plain mean
of rows that point apart is too short. One that a single worker has moved keeps all that was learned of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.distributed.collective import Collective, gather_arrays
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import Keeper, Resumable
from contradpp.learn.optimizers import RowAdam
from contradpp.learn.state import State

Array = NDArray[np.float64]


class LocalState(State):
    """Factors that remember which rows moved since the workers last met."""

    def __init__(self, V: Array, *, n_jobs: int = 1) -> None:
        super().__init__(V, n_jobs=n_jobs)
        self.apart = np.zeros(len(V), dtype=bool)

    def changed(self) -> None:
        """See `State`."""
        super().changed()
        self.apart = np.ones(len(self.V), dtype=bool)

    def rows_changed(self, rows: NDArray[np.integer], old: Array | None) -> None:
        """See `State`."""
        super().rows_changed(rows, old)
        self.apart[rows] = True


class Meetings(Callback):
    """After so many steps, and at the end of every round, makes the factors of all workers the same again."""

    def __init__(
        self, state: LocalState, optimizer: RowAdam, collective: Collective, *, every: int, steps_a_round: int
    ) -> None:
        self._state, self._optimizer, self._collective = state, optimizer, collective
        self._every, self._steps_a_round = every, steps_a_round
        self._step = 0  # of the present round

    def on_step(self, step: int, n_sets: int) -> None:  # noqa: ARG002
        """See `Callback`."""
        self._step += 1
        moved = self._state.apart.copy()
        if self._step == self._steps_a_round:
            self._optimizer.settle(self._state)  # what untouched rows owe differs from worker to worker
        elif self._step % self._every == 0:
            self._optimizer.settle(self._state, np.flatnonzero(moved))
        else:
            return
        self.meet(moved)

    def on_iteration(self, record: dict[str, Any], best: Array) -> None:  # noqa: ARG002
        """See `Callback`; what happens between rounds is the same everywhere."""
        self._step = 0
        self._state.apart[:] = False

    def meet(self, moved: NDArray[np.bool_]) -> None:
        """Rows that anyone moved become the mean over those who did; those only settled, over those who did that."""
        state, K = self._state, self._state.V.shape[1]
        apart = np.flatnonzero(state.apart)
        numbers = gather_arrays(self._collective, apart)
        movers = gather_arrays(self._collective, moved[apart])
        told = gather_arrays(self._collective, state.V[apart].reshape(-1))
        rows, slots = np.unique(np.concatenate(numbers), return_inverse=True)
        moved_by_any = np.zeros(len(rows), dtype=bool)
        np.logical_or.at(moved_by_any, slots, np.concatenate(movers))
        sums, logs, counts, at = np.zeros((len(rows), K)), np.zeros(len(rows)), np.zeros(len(rows)), 0
        for values, mover in zip(told, movers, strict=True):
            place = slots[at : at + len(mover)]
            counted = mover | ~moved_by_any[place]
            place, part = place[counted], values.reshape(-1, K)[counted]
            sums[place] += part
            logs[place] += log_norms(part)
            counts[place] += 1
            at += len(mover)
        sums *= np.exp(logs / counts - log_norms(sums))[:, None]
        old = state.before(rows)
        state.V[rows] = sums
        state.rows_changed(rows, old)
        self._optimizer.settled(rows)
        state.apart[:] = False


class LocalKeeper(Keeper):
    """Writes checkpoints between rounds only: there the workers agree, and another number of them can go on."""

    _parts: Mapping[str, Resumable]

    def begin(self, parts: Mapping[str, Resumable]) -> bool:
        """See `Keeper`."""
        self._parts = parts
        return super().begin(parts)

    def step(self, n_steps: int, parts: Mapping[str, Resumable]) -> None:
        """Nothing: see `Keeper`."""

    def at_round_ends(self) -> Callback:
        """A callback that writes them."""
        keeper = self

        class Writer(Callback):
            def on_iteration(self, record: dict[str, Any], best: Array) -> None:  # noqa: ARG002
                if keeper._due(record["step"]):
                    keeper.write(record["step"], keeper._parts)

        return Writer()


def log_norms(rows: Array) -> Array:
    """log ‖v‖ of every row; of a row of zeros, that of the smallest number."""
    squares = np.maximum(np.einsum("ik,ik->i", rows, rows), np.finfo(np.float64).tiny)
    logs: Array = 0.5 * np.log(squares)
    return logs
