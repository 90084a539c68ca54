"""Bootstrap intervals of metrics that are means over test baskets, and of their differences.

An interval holds the middle percentiles over resampled baskets. The draws depend on the seed and
the number of baskets alone. Two models on the same baskets are resampled alike, so that the
interval of a difference is paired.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from contradpp._display import data_frame, html_table
from contradpp._random import RESAMPLING, stream
from contradpp._types import Array, Values
from contradpp.errors import ParameterError
from contradpp.learn.calibration import auc
from contradpp.metrics.metrics import Samples, digits_of, label, mean, number, present

Interval = tuple[float, float]


class Resampled(ABC):
    """A report of metrics that are means over test baskets, with bootstrap intervals."""

    by_basket: Samples
    seed: int

    @property
    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Every metric by name."""

    def interval(self, metric: str, *, level: float = 0.95, n_resamples: int = 1000) -> Interval:
        """Return a bootstrap interval of a metric.

        The test baskets are drawn again, with replacement. Metrics that are no means over baskets
        have no interval; `resampled` lists those that have one.

        Parameters
        ----------
        metric : str
        level : float
            The probability that the interval holds.
        n_resamples : int

        Returns
        -------
        low, high : float
        """
        self.check_resampled(metric)
        if metric == "auc":
            scores = (self.samples["score"], self.samples["random_score"])
            return percentiles(resampled_aucs(*scores, n_resamples, self.seed), level)
        values = self.samples[metric]
        return mean_interval(values, level=level, n_resamples=n_resamples, seed=self.seed)

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """The 95 % interval of every metric that has one."""
        return {name: self.interval(name) for name in self.resampled}

    @cached_property
    def samples(self) -> Samples:
        """The values of `by_basket` that are not NaN, in the order of the baskets."""
        return {name: present(values)[0] for name, values in self.by_basket.items()}

    @property
    def resampled(self) -> tuple[str, ...]:
        """The metrics that can be computed again on resampled baskets."""
        return tuple(name for name in self.metrics if name == "auc" or name in self.by_basket)

    def check_resampled(self, metric: str) -> None:
        """Raise `ParameterError` if the metric cannot be computed on resampled baskets."""
        if metric not in self.resampled:
            raise ParameterError(
                f"no interval for {metric!r}; there is one for {', '.join(self.resampled)}"
            )

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row per metric: its value and 95 % interval."""
        bounds = [self.intervals.get(name, (np.nan, np.nan)) for name in self.metrics]
        low, high = zip(*bounds, strict=True)
        columns = {"value": list(self.metrics.values()), "low": low, "high": high}
        return data_frame(columns, list(self.metrics), "metric")

    def _repr_html_(self) -> str:
        """Show the metrics as a table in a notebook."""
        title = str(self).partition("\n\n")[0]
        return html_table(("metric", "value", "95 % interval"), self._rows(), title)

    def label(self, metric: str) -> str:
        """Return the name of a metric in tables."""
        return label(metric)

    def plus_minus(self, metric: str) -> str:  # noqa: ARG002
        """Return the text behind a value that is an estimate, such as " ± 0.1"."""
        return ""

    def table(self) -> list[str]:
        """Return lines of text with every metric, its value and its interval."""
        head = f"{'metric':<18}{'value':>10}   95 % interval"
        rows = [
            f"{name:<18}{value:>10}   {bounds}".rstrip() for name, value, bounds in self._rows()
        ]
        return [head, *rows]

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield the name, the value and the interval of every metric."""
        for name, value in self.metrics.items():
            low, high = self.intervals.get(name, (float("nan"),) * 2)
            digits = digits_of(name)
            shown = np.isfinite([low, high]).all()
            bounds = f"[{low:.{digits}f}, {high:.{digits}f}]" if shown else ""
            yield self.label(name), number(value, digits), bounds + self.plus_minus(name)


class Means(Resampled):
    """A report whose metrics are all means over the test baskets, each an attribute of its name."""

    n_baskets: int
    of: ClassVar[str]  # what two reports must share to be compared
    counts: ClassVar[tuple[str, ...]]  # the numbers that are no metrics

    @property
    def metrics(self) -> dict[str, float]:
        return {name: mean(values) for name, values in self.by_basket.items()}

    def __getattr__(self, name: str) -> float:
        if name.startswith("_") or name not in self.by_basket:
            raise AttributeError(
                f"a {type(self).__name__} has no {name!r}; it has {', '.join(self.by_basket)}"
            )
        return mean(self.by_basket[name])

    def difference(self, other: Self, metric: str, *, level: float = 0.95) -> Difference:
        """Return the difference from another report of the same test, with a paired interval."""
        if (self.n_baskets, self.seed) != (other.n_baskets, other.seed):
            raise ParameterError(f"the reports are of other {self.of}: use the same test and seed")
        return paired_difference(self, other, metric, level=level)

    def as_dict(self) -> Values:
        """Return everything as plain values for JSON."""
        counts = {name: getattr(self, name) for name in self.counts}
        content: Values = plain({**self.metrics, **counts, "intervals": self.intervals})
        return content


class Difference(NamedTuple):
    """The difference of two models in a metric, with the bounds of its interval.

    Only baskets count of which both models have a value.
    """

    value: float
    low: float
    high: float
    n_baskets: int


def paired_difference(
    ours: Resampled, theirs: Resampled, metric: str, *, level: float = 0.95, n_resamples: int = 1000
) -> Difference:
    """Return the difference of two reports of the same baskets; NaN without the metric."""
    ours.check_resampled(metric)
    theirs.check_resampled(metric)
    if metric == "auc":
        keys = ("score", "random_score")
        score, random, other, other_random = present(
            *(report.by_basket[key] for report in (ours, theirs) for key in keys)
        )
        our_areas = resampled_aucs(score, random, n_resamples, ours.seed)
        their_areas = resampled_aucs(other, other_random, n_resamples, ours.seed)
        resampled = [a - b for a, b in zip(our_areas, their_areas, strict=True)]
        value = auc(score, random) - auc(other, other_random) if len(score) else float("nan")
        return Difference(value, *percentiles(resampled, level), len(score))
    (differences,) = present(ours.by_basket[metric] - theirs.by_basket[metric])
    interval = mean_interval(differences, level=level, n_resamples=n_resamples, seed=ours.seed)
    return Difference(mean(differences), *interval, len(differences))


def plain(value: object) -> Any:
    """Return the value as it comes back from JSON.

    Keys become strings, sequences lists, NaN and infinities None.
    """
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


# -- Resampled baskets -----------------------------------------------------------------------------


def mean_interval(values: Array, *, level: float, n_resamples: int, seed: int) -> Interval:
    """Return the interval of a mean over baskets; NaN entries are left out."""
    values = values[~np.isnan(values)]
    n = len(values)
    means = [float(np.dot(draws, values)) / n for draws in resamples(n, n_resamples, seed)]
    return percentiles(means, level)


def resampled_aucs(scores: Array, random_scores: Array, n_resamples: int, seed: int) -> list[float]:
    """Return the pooled AUC of every resample; a basket is drawn together with its random set."""
    n = len(scores)
    distinct, position = np.unique(np.concatenate([scores, random_scores]), return_inverse=True)
    areas = []
    for draws in resamples(n, n_resamples, seed):
        real = np.bincount(position[:n], draws, minlength=len(distinct))
        random = np.bincount(position[n:], draws, minlength=len(distinct))
        below = np.cumsum(random) - 0.5 * random  # ties count half
        areas.append(float(np.dot(real, below)) / n**2)
    return areas


def resamples(n: int, n_resamples: int, seed: int) -> Iterator[Array]:
    """Yield the number of times that each of n baskets is drawn in n draws with replacement."""
    if n_resamples < 1:
        raise ParameterError(f"n_resamples must be at least 1, got {n_resamples}")
    rng = stream(seed, RESAMPLING)
    for _ in range(n_resamples if n else 0):
        yield np.bincount(rng.integers(0, n, size=n), minlength=n).astype(np.float64)


def percentiles(values: list[float], level: float) -> Interval:
    """Return the bounds between which the middle `level` of the values lies."""
    if not 0 < level < 1:
        raise ParameterError(f"level must lie between 0 and 1, got {level}")
    if not values:
        return float("nan"), float("nan")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
