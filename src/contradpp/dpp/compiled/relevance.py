"""Numba kernels for what several voices say of the next item: scores of a voice, shaped into features, and their sum.

A feature is a voice's score x as it is, its root with its sign, or log(x/n + floor), n being 1 or the basket's size.
Products are of features in units of their spread.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import entry, helper

Array = NDArray[np.float64]

PLAIN, ROOT, LOG = 0, 1, 2
FARTHEST = 10.0  # spreads from its centre that a feature may be in a product: beyond, nothing was ever learned
TILE = 512


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
def add_pairs(told: Array, centre: Array, spread: Array, alone: Array, both: Array, out: Array) -> None:
    """out[r, j] += Σ_v alone[r, v] f_v + Σ_{u≤v} both[r, uv] z_u z_v, with f_v = told[v, r, j] and z its distance.

    The products of u are those with u, u + 1, ...
    """
    V, n, M = told.shape
    z = np.empty((V, TILE))
    for r in range(n):
        for first in range(0, M, TILE):
            width = min(TILE, M - first)
            target = out[r, first : first + width]
            for v in range(V):
                row, step, c, rate, weight = (
                    told[v, r, first : first + width],
                    z[v],
                    centre[v],
                    1.0 / spread[v],
                    alone[r, v],
                )
                for j in range(width):
                    target[j] += weight * row[j]
                    step[j] = min(max(rate * (row[j] - c), -FARTHEST), FARTHEST)
            pair = 0
            for u in range(V):
                for v in range(u, V):
                    weight, one, other = both[r, pair], z[u], z[v]
                    pair += 1
                    for j in range(width):
                        target[j] += weight * one[j] * other[j]


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
