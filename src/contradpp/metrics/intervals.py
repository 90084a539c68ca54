"""Metrics that are means over test baskets: their intervals, and what one report gains over another.

Intervals are percentiles over resampled baskets. The draws depend on the seed and the number of baskets alone: two
models on the same baskets are resampled alike, so that the interval of a difference is paired.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp.errors import ParameterError
from contradpp.learn.calibrate import auc
from contradpp.metrics.metrics import Samples, digits_of, label, mean, number, present

Array = NDArray[np.float64]
Interval = tuple[float, float]
STREAM = 2  # the key of the resampling stream; evaluation uses 0 and 1


class Resampled(ABC):
    """Metrics that are means over test baskets, and how far they would move with others: what reports share."""

    by_basket: Samples
    seed: int

    @property
    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Every metric by name."""

    def interval(self, metric: str, *, level: float = 0.95, n_resamples: int = 1000) -> Interval:
        """A bootstrap interval of a metric: the test baskets are drawn again, with replacement.

        Metrics that are no means over baskets have none; `resampled` lists those that have one.
        """
        self.check_resampled(metric)
        settings: dict[str, Any] = {"level": level, "n_resamples": n_resamples, "seed": self.seed}
        if metric == "auc":
            return auc_interval(self.samples["score"], self.samples["random_score"], **settings)
        return mean_interval(self.samples[metric], **settings)

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """The 95 % interval of every metric that has one."""
        return {name: self.interval(name) for name in self.resampled}

    @cached_property
    def samples(self) -> Samples:
        """The values of `by_basket` that are there, in the order of the baskets."""
        return {name: present(values)[0] for name, values in self.by_basket.items()}

    @property
    def resampled(self) -> tuple[str, ...]:
        """The metrics that can be computed again on resampled baskets."""
        return tuple(name for name in self.metrics if name == "auc" or name in self.by_basket)

    def check_resampled(self, metric: str) -> None:
        """Raise `ParameterError` if the metric cannot be computed on resampled baskets."""
        if metric not in self.resampled:
            raise ParameterError(f"no interval for {metric!r}; there is one for {', '.join(self.resampled)}")

    def label(self, metric: str) -> str:
        """What a table calls a metric."""
        return label(metric)

    def plus_minus(self, metric: str) -> str:  # noqa: ARG002
        """What a table adds to a value that is an estimate."""
        return ""

    def table(self) -> list[str]:
        """Lines of text with every metric, its value and its interval."""
        lines = [f"{'metric':<18}{'value':>10}   95 % interval"]
        for name, value in self.metrics.items():
            low, high = self.intervals.get(name, (float("nan"),) * 2)
            digits = digits_of(name)
            bounds = f"   [{low:.{digits}f}, {high:.{digits}f}]" if np.isfinite([low, high]).all() else ""
            lines.append(f"{self.label(name):<18}{number(value, digits):>10}{bounds}{self.plus_minus(name)}")
        return lines


class Means(Resampled):
    """A report with no metrics but means over the test baskets, each of which is an attribute of its name."""

    n_baskets: int
    of: ClassVar[str]  # what two reports must share to be compared
    counts: ClassVar[tuple[str, ...]]  # the numbers that are no metrics

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric by name."""
        return {name: mean(values) for name, values in self.by_basket.items()}

    def __getattr__(self, name: str) -> float:
        if name.startswith("_") or name not in self.by_basket:
            raise AttributeError(f"a {type(self).__name__} has no {name!r}; it has {', '.join(self.by_basket)}")
        return mean(self.by_basket[name])

    def difference(self, other: Self, metric: str, *, level: float = 0.95) -> Difference:
        """What is gained over another report of the same test, with a paired bootstrap interval."""
        if (self.n_baskets, self.seed) != (other.n_baskets, other.seed):
            raise ParameterError(f"the reports are of other {self.of}: use the same test and seed")
        return paired_difference(self, other, metric, level=level)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON."""
        counts = {name: getattr(self, name) for name in self.counts}
        content: dict[str, Any] = plain({**self.metrics, **counts, "intervals": self.intervals})
        return content


class Difference(NamedTuple):
    """What a model gains in a metric, with the bounds of its interval, over the baskets that both models could do."""

    value: float
    low: float
    high: float
    n_baskets: int


def paired_difference(
    ours: Resampled, theirs: Resampled, metric: str, *, level: float = 0.95, n_resamples: int = 1000
) -> Difference:
    """What one report of the same baskets gains over another; all values are NaN where one has no such metric."""
    ours.check_resampled(metric)
    theirs.check_resampled(metric)
    if metric == "auc":
        keys = ("score", "random_score")
        score, random, other, other_random = present(*(one.by_basket[key] for one in (ours, theirs) for key in keys))
        one = resampled_aucs(score, random, n_resamples, ours.seed)
        two = resampled_aucs(other, other_random, n_resamples, ours.seed)
        interval = percentiles([a - b for a, b in zip(one, two, strict=True)], level)
        value = auc(score, random) - auc(other, other_random) if len(score) else float("nan")
        return Difference(value, *interval, len(score))
    (gain,) = present(ours.by_basket[metric] - theirs.by_basket[metric])
    interval = mean_interval(gain, level=level, n_resamples=n_resamples, seed=ours.seed)
    return Difference(mean(gain), *interval, len(gain))


def plain(value: Any) -> Any:
    """The value as it comes back from JSON: keys are strings, sequences lists, NaN and infinities None."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


# -- Resampled baskets ---------------------------------------------------------------------------------


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
