"""Several models on the same test baskets: one table, and how sure their differences are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from contradpp._random import RandomState, root_seed
from contradpp.baselines import Popularity
from contradpp.errors import ParameterError
from contradpp.metrics.intervals import Difference, Resampled, paired_difference, plain
from contradpp.metrics.metrics import digits_of, number
from contradpp.metrics.report import evaluate


def compare(
    models: Mapping[str, Any],
    test: Any,
    *,
    train: Any = None,
    baseline: str | None = None,
    ks: Sequence[int] = (1, 5, 10, 20),
    random_state: RandomState = 0,
    min_size: int = 1,
    n_jobs: int | None = None,
) -> Comparison:
    """Evaluate fitted models on the same held-out items, and set each beside one of them, basket by basket.

    Parameters
    ----------
    models : mapping of str to model
        Fitted models by the names that the table gives them.
    test, ks, random_state, min_size, n_jobs
        As for `evaluate`.
    train : Baskets or list of lists, optional
        The training baskets. With them, what popularity alone achieves stands first, unless one of the models is it.
    baseline : str, optional
        The model that the others are compared with; the first if left out.

    Examples
    --------
    >>> import contradpp as cd
    >>> shop = cd.Baskets.from_lists([["tea", "milk"], ["pasta", "sauce"]] * 50)
    >>> table = cd.compare({"neighbours": cd.baselines.ItemKNN().fit(shop)}, shop, train=shop)
    >>> list(table.reports)
    ['Popularity', 'neighbours']
    >>> round(table.difference("neighbours", "mpr").value)
    33
    """
    chosen = dict(models)
    if train is not None and not any(isinstance(model, Popularity) for model in chosen.values()):
        chosen = {"Popularity": Popularity().fit(train), **chosen}
    if not chosen:
        raise ParameterError("compare needs at least one model")
    base = next(iter(chosen)) if baseline is None else baseline
    if base not in chosen:
        raise ParameterError(f"baseline must be one of {', '.join(chosen)}, got {baseline!r}")
    seed = root_seed(random_state)
    reports = {
        name: evaluate(model, test, ks, seed, train=train, min_size=min_size, n_jobs=n_jobs)
        for name, model in chosen.items()
    }
    return Comparison(reports, base)


@dataclass(frozen=True)
class Comparison:
    """The reports of several models by name, and which of them the others are compared with.

    Those of `evaluate`, or those of `evaluate_slates`, on the same test baskets and with the same seed.
    """

    reports: dict[str, Any]
    baseline: str

    def difference(
        self, name: str, metric: str, *, over: str | None = None, level: float = 0.95, n_resamples: int = 1000
    ) -> Difference:
        """What a model gains over another (the baseline if left out), with a paired bootstrap interval.

        The same baskets are drawn again for both, so that what makes a basket hard for every model cancels. `metric` is
        any of which `Report.interval` knows; all values are NaN where one of the models has no such metric.
        """
        ours, theirs = (self.reports[one] for one in (name, over or self.baseline))
        return paired_difference(ours, theirs, metric, level=level, n_resamples=n_resamples)

    @cached_property
    def differences(self) -> dict[str, dict[str, Difference]]:
        """By model and metric, what every other model gains over the baseline, with 95 % intervals."""
        metrics = self.reports[self.baseline].resampled
        others = [name for name in self.reports if name != self.baseline]
        return {name: {metric: self.difference(name, metric) for metric in metrics} for name in others}

    def as_dict(self) -> dict[str, Any]:
        """The reports as plain values for JSON, each with its differences from the baseline."""
        content = {name: report.as_dict() for name, report in self.reports.items()}
        for name, gains in self.differences.items():
            content[name]["differences"] = plain({metric: gain._asdict() for metric, gain in gains.items()})
        return content

    def __str__(self) -> str:
        base = self.reports[self.baseline]
        values = [
            (base.label(metric), *(_value(report, metric) for report in self.reports.values()))
            for metric in base.metrics
        ]
        lines = _columns(("", *self.reports), values)
        if self.differences:
            gains = [
                (base.label(metric), *(_gain(one[metric], digits_of(metric)) for one in self.differences.values()))
                for metric in next(iter(self.differences.values()))
            ]
            title = f"Difference from {self.baseline}, 95 % interval (the same baskets resampled for both)"
            lines += ["", title, *_columns(("", *self.differences), gains)]
        return "\n".join(lines)


def _value(report: Resampled, metric: str) -> str:
    return number(report.metrics[metric], digits_of(metric)) + report.plus_minus(metric)


def _gain(gain: Difference, digits: int) -> str:
    value = number(gain.value, digits, sign=True)
    bounds = f" [{gain.low:+.{digits}f}, {gain.high:+.{digits}f}]"
    return value + (bounds if np.isfinite([gain.low, gain.high]).all() else "")


def _columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of text, the first column of 16 on the left, the others alike in width and on the right."""
    width = max(12, *(len(cell) + 2 for row in (head, *rows) for cell in row[1:]))
    return [f"{first:<16}" + "".join(f"{cell:>{width}}" for cell in others) for first, *others in (head, *rows)]
