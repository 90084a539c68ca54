"""Numba kernels for what several voices say of the next item: their sum, and products of two of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled._numba import entry

Array = NDArray[np.float64]

FARTHEST = 10.0  # spreads from its centre that a feature may be in a product: beyond, nothing was ever learned
TILE = 512


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
