"""Numba kernels of the row-wise Adam optimiser (see `learn/optimizers.py`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import entry, helper

Array = NDArray[np.float64]
Codes = NDArray[np.int32]
Rows = NDArray[np.int64]
ROUNDING = 1e-20  # the square of what a gradient's direction is beside its length when it is but rounding


@helper
def penalty_scale(squared: float, row: Array, penalty: float, clock: float, norm_step: float, beta2: float) -> float:
    """The factor by which a row shrinks for the time since its last step, along the penalty's exact flow.

    In log-norm s the penalty is p e^{2s}; ds/dt = −2 p η d e^{2s} with d = 1/√(second moment) has the solution
    ‖v‖² ← ‖v‖² / (1 + 4 p η d t ‖v‖²), which does not care whether t comes at once or in parts.
    """
    steps = row[3]
    if steps == 0.0 or row[1] <= 0.0:
        return 1.0
    second = row[1] / (1.0 - beta2**steps)
    time = clock - row[4]
    return float(1.0 / np.sqrt(1.0 + 4.0 * penalty * norm_step * time * squared / np.sqrt(second)))


@entry
def adam_rows(
    V: Array, rows: Codes, values: Array, momentum: Array, moments: Array, penalty: Array, clock: float,
    norm_rate: float, direction_rate: float, norm_step: float, beta1: float, beta2: float,
) -> None:  # fmt: skip
    """One ascent step of the given rows of V along `values`, in log-norm and direction.

    `moments` holds a row each of: first and second moment of the log-norm's gradient, second moment of the
    direction's, number of steps, and the clock up to which the penalty has been applied.
    """
    K = V.shape[1]
    for r in range(len(rows)):
        i = rows[r]
        row = moments[i]
        squared = 0.0
        dot = 0.0
        for c in range(K):
            squared += V[i, c] * V[i, c]
            dot += V[i, c] * values[r, c]
        if squared == 0.0:
            continue
        shrink = penalty_scale(squared, row, penalty[i], clock, norm_step, beta2)
        row[4] = clock
        row[3] += 1.0
        steps = row[3]
        # Tangential part of the gradient with respect to the unit direction: ‖v‖ g − (g·v) v/‖v‖.
        length = np.sqrt(squared)
        for c in range(K):
            values[r, c] = length * values[r, c] - dot * V[i, c] / length
        tangential = 0.0
        for c in range(K):
            tangential += values[r, c] * values[r, c]
        # The penalty counts in the second moment, too: where the data's part is zero, its own step stays bounded.
        pull = max(abs(dot), 2.0 * penalty[i] * squared)
        row[0] = beta1 * row[0] + (1.0 - beta1) * dot
        row[1] = beta2 * row[1] + (1.0 - beta2) * pull * pull
        if tangential <= ROUNDING * max(pull * pull, row[1]):  # as for an item only ever bought alone
            for c in range(K):
                values[r, c] = 0.0
            tangential = 0.0
        row[2] = beta2 * row[2] + (1.0 - beta2) * tangential
        first, second = 1.0 - beta1**steps, 1.0 - beta2**steps
        by_norm = norm_rate * (row[0] / first) / (np.sqrt(row[1] / second) + 1e-12)
        by_direction = direction_rate / (first * (np.sqrt(row[2] / second) + 1e-12))
        for c in range(K):
            momentum[i, c] = beta1 * momentum[i, c] + (1.0 - beta1) * values[r, c]
            V[i, c] = V[i, c] / length + by_direction * momentum[i, c]
        moved = 0.0
        for c in range(K):
            moved += V[i, c] * V[i, c]
        scale = length * shrink * np.exp(by_norm) / np.sqrt(moved)
        for c in range(K):
            V[i, c] *= scale


@entry
def settle_rows(
    V: Array, rows: Rows, moments: Array, penalty: Array, clock: float, norm_step: float, beta2: float
) -> None:
    """Apply to the given rows the penalty for the time since their last step."""
    for r in range(len(rows)):
        i = rows[r]
        squared = 0.0
        for c in range(V.shape[1]):
            squared += V[i, c] * V[i, c]
        if squared > 0.0:
            scale = penalty_scale(squared, moments[i], penalty[i], clock, norm_step, beta2)
            for c in range(V.shape[1]):
                V[i, c] *= scale
            moments[i, 4] = clock
