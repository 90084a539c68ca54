"""A map of the catalogue: items that the model keeps apart, which in a shop are substitutes, lie side by side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ROUNDS, _EARLY = 300, 80  # gradient steps, and how many of them pull neighbours together harder
_PULL, _STEP = 4.0, 50.0
_GOLDEN_ANGLE = np.pi * (3.0 - np.sqrt(5.0))


class Atlas:
    """Places in −1..1 × −1..1 for the given items, by t-SNE (van der Maaten and Hinton 2008) on cos⁴ of their angles.

    The angle is what decides how two items of a DPP meet, and its sign does not matter to L = V Vᵀ; a linear
    projection would tear v and −v apart. The start is a fixed spiral, so that a model has one map.

    Parameters
    ----------
    factors : array (M, K)
        V of all items.
    landmarks : int array (m,)
        The items to lay out, a few hundred; others are placed among their neighbours when asked for.
    """

    def __init__(self, factors: NDArray[np.floating], landmarks: NDArray[np.int64]) -> None:
        self._factors = factors
        self._landmarks = landmarks
        self._directions = _directions(factors[landmarks])  # (m, K)
        self._places = _spread(_layout(_likeness(self._directions, self._directions)))
        self._row = {code: row for row, code in enumerate(landmarks.tolist())}

    def places(self, codes: list[int]) -> Array:
        """Where these items are (n, 2)."""
        out = np.zeros((len(codes), 2))
        known = [n for n, code in enumerate(codes) if code in self._row]
        out[known] = self._places[[self._row[codes[n]] for n in known]]
        others = [n for n, code in enumerate(codes) if code not in self._row]
        if others:
            rows = _directions(self._factors[[codes[n] for n in others]])
            near = np.square(_likeness(rows, self._directions)) + 1e-12  # (others, m)
            out[others] = (near / near.sum(axis=1, keepdims=True)) @ self._places
        return out


def _directions(rows: NDArray[np.floating]) -> Array:
    wide: Array = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    units: Array = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)
    return units


def _likeness(a: Array, b: Array) -> Array:
    likeness: Array = np.square(np.square(a @ b.T))
    return likeness


def _layout(likeness: Array) -> Array:
    m = len(likeness)
    angles = _GOLDEN_ANGLE * np.arange(m)
    Y: Array = 1e-2 * np.sqrt(np.arange(m) / max(m, 1))[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if m < 3:
        return Y
    near = likeness + 1e-12
    np.fill_diagonal(near, 0.0)
    near /= near.sum(axis=1, keepdims=True)
    P = (near + near.T) / (2 * m)
    speed = np.zeros_like(Y)
    for number in range(_ROUNDS):
        early = number < _EARLY
        squares = np.square(Y).sum(axis=1)
        closeness = 1.0 / (1.0 + np.maximum(squares[:, None] + squares - 2.0 * Y @ Y.T, 0.0))
        np.fill_diagonal(closeness, 0.0)
        force = ((_PULL if early else 1.0) * P - closeness / closeness.sum()) * closeness
        gradient = 4.0 * (force.sum(axis=1)[:, None] * Y - force @ Y)
        speed = (0.5 if early else 0.8) * speed - _STEP * gradient
        Y = Y + speed
        Y -= Y.mean(axis=0)
    return Y


def _spread(Y: Array) -> Array:
    """Fit the places into −1..1, half by rank: a far-off group must not squeeze the rest together."""
    if len(Y) < 2:
        return np.zeros_like(Y)
    low, high = Y.min(axis=0), Y.max(axis=0)
    linear = 2.0 * (Y - low) / np.maximum(high - low, 1e-12) - 1.0
    ranks = np.argsort(np.argsort(Y, axis=0, kind="stable"), axis=0) / (len(Y) - 1) * 2.0 - 1.0
    spread: Array = 0.7 * linear + 0.3 * ranks
    return spread
