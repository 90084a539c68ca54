"""Means and standard deviations over the trials of a protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from contradpp.research.paper import ALPHA, RATIO, Protocol, Task
from contradpp.research.published import Number
from contradpp.research.store import Result

CALIBRATIONS = ("none", "likelihood", "discrimination")


@dataclass(frozen=True)
class Selection:
    """Which results a number is taken over: a method on some data sets, in all trials."""

    data: tuple[str, ...]
    method: str
    settings: str = "default"
    kind: str = "fit"
    alpha: float = ALPHA
    ratio: float = RATIO


@dataclass(frozen=True)
class Collected:
    """The results of a protocol by task."""

    protocol: Protocol
    results: Mapping[Task, Result]

    def select(self, chosen: Selection) -> list[Result]:
        """The results of a selection, trial by trial, and in each trial in the order of the data sets."""
        place = {name: position for position, name in enumerate(chosen.data)}
        found = [
            task
            for task in self.results
            if (task.kind, task.method, task.settings) == (chosen.kind, chosen.method, chosen.settings)
            and (task.alpha, task.ratio) == (chosen.alpha, chosen.ratio)
            and task.data in place
        ]
        return [self.results[task] for task in sorted(found, key=lambda task: (task.trial, place[task.data]))]

    def values(self, chosen: Selection, metric: str) -> list[float]:
        """A metric of every result of a selection; those that have no such metric are left out."""
        found = (value_of(result, metric) for result in self.select(chosen))
        return [value for value in found if value is not None]

    def mean(self, chosen: Selection, metric: str) -> Number | None:
        """The mean of a metric, with its standard deviation; None if there is no such value.

        Over several data sets it is the mean over them, and the deviation that of the trials' means.
        """
        values = self.values(chosen, metric)
        by_trial = len(values) % len(chosen.data) == 0 and len(chosen.data) > 1
        return statistic(np.reshape(values, (-1, len(chosen.data))).mean(axis=1) if by_trial else values)

    def improvement(self, chosen: Selection, over: Selection, metric: str) -> Number | None:
        """The mean difference of two selections, in the same trial and data set, and its standard deviation."""
        first, second = self.values(chosen, metric), self.values(over, metric)
        if not first or len(first) != len(second):
            return None
        return statistic(np.subtract(first, second))


def value_of(result: Result, metric: str) -> float | None:
    """A metric of a result. "auc:likelihood" is the AUC at that scale; "seconds" and the like stand at the top."""
    name, _, scale = metric.partition(":")
    if scale and "scaled" in result:
        value = result["scaled"][name][scale]
    elif scale not in ("", "none"):
        return None  # a baseline has no scale
    else:
        value = result.get("metrics", {}).get(name, result.get(name))
    return None if value is None else float(value)


def statistic(values: Any) -> Number | None:
    """Mean and standard deviation (of a sample); the latter needs two values."""
    numbers = np.asarray(values, dtype=np.float64)
    if not numbers.size:
        return None
    return Number(float(numbers.mean()), float(numbers.std(ddof=1)) if numbers.size > 1 else None)


def curves(results: Sequence[Result]) -> list[dict[str, list[float]]]:
    """The convergence curve of every result that has one."""
    return [result["history"] for result in results if result.get("history", {}).get("validation")]


def by_size(results: Sequence[Result]) -> dict[str, tuple[float, int]]:
    """MPR by basket size and how many baskets it is of, over all results."""
    totals: dict[str, list[float]] = {}
    for result in results:
        for row in result["by_size"]:
            if row["group"] != "all" and row["mpr"] is not None:
                total = totals.setdefault(row["group"], [0.0, 0.0])
                total[0] += row["n"] * row["mpr"]
                total[1] += row["n"]
    ordered = sorted(totals, key=lambda group: int(group.rstrip("+").split("-")[0]))
    return {group: (totals[group][0] / totals[group][1], int(totals[group][1])) for group in ordered}
