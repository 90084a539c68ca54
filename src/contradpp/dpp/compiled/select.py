"""Numba helpers that find the n-th largest of many numbers without sorting them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import helper

Array = NDArray[np.float64]


@helper
def nth_largest(values: Array, n: int) -> float:
    """The n-th largest of at least n values, whose order is changed: quickselect, equal values set apart."""
    low, high, rank = 0, len(values), n - 1  # the value wanted is at `rank` when the largest come first
    while True:
        middle = (low + high) // 2
        a, b, c = values[low], values[middle], values[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        first, last, k = low, high, low  # larger: low..first−1, equal: first..k−1, smaller: last..high−1
        while k < last:
            x = values[k]
            if x > pivot:
                values[k], values[first] = values[first], x
                first += 1
                k += 1
            elif x < pivot:
                last -= 1
                values[k], values[last] = values[last], x
            else:
                k += 1
        if rank < first:
            high = first
        elif rank >= last:
            low = last
        else:
            return float(pivot)
