"""Random splits of positions into a training and a test part."""

from __future__ import annotations

import numbers

import numpy as np
from numpy.typing import NDArray

from contradpp._random import RandomState, as_generator
from contradpp.errors import DataError, ParameterError


def split_positions(
    n: int, test_size: float | int, random_state: RandomState
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions 0..n-1 split at random into (train, test), each in ascending order.

    A `test_size` between 0 and 1 is a share, rounded to the nearest whole number; an integer is a count.
    """
    n_test = _test_count(n, test_size)
    shuffled = as_generator(random_state).permutation(n)
    return np.sort(shuffled[n_test:]), np.sort(shuffled[:n_test])


def _test_count(n: int, test_size: float | int) -> int:
    if isinstance(test_size, numbers.Integral) and not isinstance(test_size, bool):
        n_test = int(test_size)
    elif isinstance(test_size, numbers.Real) and 0 < test_size < 1:
        n_test = round(float(test_size) * n)
    else:
        raise ParameterError(f"test_size must be a share between 0 and 1 or a number of baskets, got {test_size!r}")
    if not 0 < n_test < n:
        raise DataError(f"cannot split {n} baskets into {n - n_test} for training and {n_test} for testing")
    return n_test
