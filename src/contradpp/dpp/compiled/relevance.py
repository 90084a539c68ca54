"""Numba kernels for what several voices say of the next item: scores of a voice, shaped into features, and their sum.

A feature is a voice's score x as it is, its root with its sign, or log(x/n + floor), n being 1 or the basket's size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import entry, helper

Array = NDArray[np.float64]

PLAIN, ROOT, LOG = 0, 1, 2


@helper
def shaped(x: float, shape: int, floor: float) -> float:
    """The feature of one score."""
    if shape == PLAIN:
        return x
    if shape == ROOT:
        return float(np.sqrt(x)) if x >= 0.0 else -float(np.sqrt(-x))
    return float(np.log((x if x > 0.0 else 0.0) + floor))


@entry
def add_feature(scores: Array, shape: int, floor: float, rates: Array, weights: Array, out: Array) -> None:
    """out[r, j] += weights[r] · the feature of rates[r] · scores[r, j]; that of a zero is computed once."""
    nothing = shaped(0.0, shape, floor)
    for r in range(len(out)):
        row, target, rate, weight = scores[r], out[r], rates[r], weights[r]
        for j in range(len(row)):
            target[j] += weight * (nothing if row[j] == 0.0 else shaped(rate * row[j], shape, floor))


@entry
def write_feature(scores: Array, shape: int, floor: float, rates: Array, out: NDArray[np.floating]) -> None:
    """out[r, j] = the feature of rates[r] · scores[r, j]."""
    for r in range(len(out)):
        for j in range(out.shape[1]):
            out[r, j] = shaped(rates[r] * scores[r, j], shape, floor)


@entry
def softmax(logits: Array) -> None:
    """Turn every row of logits, −inf for what is impossible, into probabilities; a row of nothing else into zeros."""
    for r in range(len(logits)):
        row = logits[r]
        top, total = -np.inf, 0.0
        for j in range(len(row)):
            top = max(top, row[j]) if row[j] == row[j] else np.nan  # which no number exceeds
        for j in range(len(row)):
            row[j] = np.exp(row[j] - top) if row[j] > -np.inf else 0.0
        for j in range(len(row)):
            total += row[j]
        if total > 0.0:
            for j in range(len(row)):
                row[j] /= total
