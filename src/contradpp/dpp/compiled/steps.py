"""Numba kernels of the row-wise Adam optimiser (see `learn/optimizers.py`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled._numba import entry, helper

Array = NDArray[np.float64]
Codes = NDArray[np.int32]
ROUNDING = 1e-20  # the square of what a gradient's direction is beside its length when it is but rounding


class Memory(NamedTuple):
    """What Adam remembers of every row, and its penalty."""

    momentum: Array  # (M, K), of the direction
    # Columns: first and second moment of log-norm, second moment of direction, steps taken, last clock.
    moments: Array  # (M, 5)
    penalty: Array  # (M,)


class Pace(NamedTuple):
    """How far a step goes; the clock counts the time for which the penalty is owed."""

    clock: float
    norm_rate: float
    direction_rate: float
    norm_step: float
    beta1: float
    beta2: float


@helper
def penalty_scale(squared: float, row: Array, penalty: float, pace: Pace) -> float:
    """The factor by which a row shrinks for the time since its last step, along the penalty's exact flow.

    In log-norm s the penalty is p e^{2s}; ds/dt = −2 p η d e^{2s} with d = 1/√(second moment) has the solution
    ‖v‖² ← ‖v‖² / (1 + 4 p η d t ‖v‖²), which does not care whether t comes at once or in parts.
    """
    steps = row[3]
    if steps == 0.0 or row[1] <= 0.0:
        return 1.0
    second = row[1] / (1.0 - np.exp(steps * np.log(pace.beta2)))  # a power takes several times as long
    time = pace.clock - row[4]
    return float(1.0 / np.sqrt(1.0 + 4.0 * penalty * pace.norm_step * time * squared / np.sqrt(second)))


@entry
def adam_rows(
    V: Array, rows: Codes, old: Array, values: Array, times: Array, shared: Array, memory: Memory, pace: Pace,
    squared_norms: Array, keep: bool,
) -> None:  # fmt: skip
    """One ascent step of these rows of V, which are `old`, along values + times × shared, in log-norm and direction.

    Without `times`, `shared` is but room. Afterwards, if asked to `keep`, it holds the difference of the new rows
    and the old ones, and `old` their sum.
    """
    momentum, beta1, beta2 = memory.momentum, pace.beta1, pace.beta2
    K, log_beta1, log_beta2 = V.shape[1], np.log(beta1), np.log(beta2)
    for r in range(len(rows)):
        i = rows[r]
        row, penalty = memory.moments[i], memory.penalty[i]
        if len(times):
            for c in range(K):
                shared[r, c] = values[r, c] + times[r] * shared[r, c]
        else:
            for c in range(K):
                shared[r, c] = values[r, c]
        squared = dot = 0.0
        for c in range(K):
            squared += old[r, c] * old[r, c]
            dot += old[r, c] * shared[r, c]
        squared_norms[r] = squared
        if squared == 0.0:
            for c in range(K):
                shared[r, c] = 0.0
            continue
        shrink = penalty_scale(squared, row, penalty, pace)
        row[4] = pace.clock
        row[3] += 1.0
        # Tangential part of the gradient with respect to the unit direction: ‖v‖ g − (g·v) v/‖v‖.
        length = np.sqrt(squared)
        along = dot / length
        for c in range(K):
            shared[r, c] = length * shared[r, c] - along * old[r, c]
        tangential = 0.0
        for c in range(K):
            tangential += shared[r, c] * shared[r, c]
        # The penalty counts in the second moment, too: where the data's part is zero, its own step stays bounded.
        pull = max(abs(dot), 2.0 * penalty * squared)
        row[0] = beta1 * row[0] + (1.0 - beta1) * dot
        row[1] = beta2 * row[1] + (1.0 - beta2) * pull * pull
        if tangential <= ROUNDING * max(pull * pull, row[1]):  # as for an item only ever bought alone
            for c in range(K):
                shared[r, c] = 0.0
            tangential = 0.0
        row[2] = beta2 * row[2] + (1.0 - beta2) * tangential
        first, second = 1.0 - np.exp(row[3] * log_beta1), 1.0 - np.exp(row[3] * log_beta2)
        by_norm = pace.norm_rate * (row[0] / first) / (np.sqrt(row[1] / second) + 1e-12)
        by_direction = pace.direction_rate / (first * (np.sqrt(row[2] / second) + 1e-12))
        for c in range(K):
            momentum[i, c] = beta1 * momentum[i, c] + (1.0 - beta1) * shared[r, c]
        part = 1.0 / length
        for c in range(K):
            V[i, c] = part * old[r, c] + by_direction * momentum[i, c]
        moved = 0.0
        for c in range(K):
            moved += V[i, c] * V[i, c]
        scale = length * shrink * np.exp(by_norm) / np.sqrt(moved)
        squared_norms[r] = scale * scale * moved
        for c in range(K):
            V[i, c] *= scale
        if keep:
            for c in range(K):
                shared[r, c] = V[i, c] - old[r, c]
            for c in range(K):
                old[r, c] += V[i, c]


@entry
def settle_rows(V: Array, rows: Codes, memory: Memory, pace: Pace, squared_norms: Array) -> None:
    """Apply to the given rows the penalty for the time since their last step."""
    for r in range(len(rows)):
        i = rows[r]
        squared = 0.0
        for c in range(V.shape[1]):
            squared += V[i, c] * V[i, c]
        squared_norms[r] = squared
        if squared > 0.0:
            scale = penalty_scale(squared, memory.moments[i], memory.penalty[i], pace)
            for c in range(V.shape[1]):
                V[i, c] *= scale
            squared_norms[r] = scale * scale * squared
            memory.moments[i, 4] = pace.clock
