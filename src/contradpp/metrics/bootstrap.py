"""How far a metric would move with another draw of test baskets: percentile intervals from resampled baskets.

The draws depend on the seed and the number of baskets alone: two models on the same baskets are resampled alike,
so that the interval of a difference is paired.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp.errors import ParameterError

Array = NDArray[np.float64]
Interval = tuple[float, float]
STREAM = 2  # the key of the resampling stream; evaluation uses 0 and 1


def mean_interval(values: Array, *, level: float, n_resamples: int, seed: int) -> Interval:
    """The interval of a mean over baskets; NaN entries are no baskets."""
    values = values[~np.isnan(values)]
    means = [float(np.dot(weights, values)) / len(values) for weights in resamples(len(values), n_resamples, seed)]
    return percentiles(means, level)


def auc_interval(scores: Array, random_scores: Array, *, level: float, n_resamples: int, seed: int) -> Interval:
    """The interval of the pooled AUC."""
    return percentiles(resampled_aucs(scores, random_scores, n_resamples, seed), level)


def resampled_aucs(scores: Array, random_scores: Array, n_resamples: int, seed: int) -> list[float]:
    """The pooled AUC of every resample; a basket is drawn together with its random set."""
    n = len(scores)
    distinct, position = np.unique(np.concatenate([scores, random_scores]), return_inverse=True)
    areas = []
    for weights in resamples(n, n_resamples, seed):
        real = np.bincount(position[:n], weights, minlength=len(distinct))
        random = np.bincount(position[n:], weights, minlength=len(distinct))
        below = np.cumsum(random) - 0.5 * random  # ties count half
        areas.append(float(np.dot(real, below)) / n**2)
    return areas


def resamples(n: int, n_resamples: int, seed: int) -> Iterator[Array]:
    """How often each of n baskets is drawn, in n draws with replacement, again and again."""
    if n_resamples < 1:
        raise ParameterError(f"n_resamples must be at least 1, got {n_resamples}")
    rng = stream(seed, STREAM)
    for _ in range(n_resamples if n else 0):
        yield np.bincount(rng.integers(0, n, size=n), minlength=n).astype(np.float64)


def percentiles(values: list[float], level: float) -> Interval:
    """The bounds between which the middle `level` of the values lies."""
    if not 0 < level < 1:
        raise ParameterError(f"level must lie between 0 and 1, got {level}")
    if not values:
        return float("nan"), float("nan")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
