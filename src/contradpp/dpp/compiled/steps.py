"""Numba kernels of the row-wise Adam optimizer (see `learn/optimizers.py`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contradpp._types import Array, Codes
from contradpp.dpp.compiled._numba import entry, helper

ROUNDING = 1e-20  # (direction / length)² of a gradient whose direction is only rounding


class Memory(NamedTuple):
    """The moments of every row, and its penalty."""

    momentum: Array  # (M, K), of the direction
    # Columns: first and second moment of log-norm, second moment of direction, steps, last clock.
    moments: Array  # (M, 5)
    penalty: Array  # (M,)


class Pace(NamedTuple):
    """The lengths of a step; the clock counts the time for which the penalty is owed."""

    clock: float
    norm_rate: float
    direction_rate: float
    norm_step: float
    beta1: float
    beta2: float


@helper
def penalty_scale(squared: float, row: Array, penalty: float, pace: Pace) -> float:
    """Return the factor of a row along the penalty's exact flow since its last step.

    In log-norm s the penalty is p e^{2s}, and ds/dt = −2 p η d e^{2s} with d = 1/√(second moment)
    has the solution

        ‖v‖² ← ‖v‖² / (1 + 4 p η d t ‖v‖²),

    which is the same for one time t and for its parts.
    """
    steps = row[3]
    if steps == 0.0 or row[1] <= 0.0:
        return 1.0
    # A power takes several times as long.
    second = row[1] / (1.0 - np.exp(steps * np.log(pace.beta2)))
    time = pace.clock - row[4]
    return float(
        1.0 / np.sqrt(1.0 + 4.0 * penalty * pace.norm_step * time * squared / np.sqrt(second))
    )


@entry
def adam_rows(
    V: Array,
    rows: Codes,
    old: Array,
    values: Array,
    times: Array,
    shared: Array,
    memory: Memory,
    pace: Pace,
    squared_norms: Array,
    keep: bool,
) -> None:
    """Make an ascent step of rows of V, which are `old`, along values + times × shared.

    Rows move in log-norm and direction. Without `times`, `shared` is scratch. With `keep` it
    holds new − old rows afterwards, and `old` holds new + old rows.
    """
    momentum = memory.momentum
    beta1 = pace.beta1
    beta2 = pace.beta2
    K = V.shape[1]
    log_beta1 = np.log(beta1)
    log_beta2 = np.log(beta2)
    for r in range(len(rows)):
        i = rows[r]
        row = memory.moments[i]
        penalty = memory.penalty[i]
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
        # The penalty counts in the second moment, too: it bounds the step if the data pull is zero.
        pull = max(abs(dot), 2.0 * penalty * squared)
        row[0] = beta1 * row[0] + (1.0 - beta1) * dot
        row[1] = beta2 * row[1] + (1.0 - beta2) * pull * pull
        # It is rounding for an item that is only ever bought alone.
        if tangential <= ROUNDING * max(pull * pull, row[1]):
            for c in range(K):
                shared[r, c] = 0.0
            tangential = 0.0
        row[2] = beta2 * row[2] + (1.0 - beta2) * tangential
        first = 1.0 - np.exp(row[3] * log_beta1)
        second = 1.0 - np.exp(row[3] * log_beta2)
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
