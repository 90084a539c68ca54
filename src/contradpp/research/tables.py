"""From results to tables: means over trials, numbers as text, and a chapter of a target in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from contradpp.metrics import metrics
from contradpp.research.experiments import Result
from contradpp.research.paper import ALPHA, RATIO, Number, Protocol, Task

MISSING = "–"
CALIBRATIONS = ("none", "likelihood", "discrimination")
NAMES = {
    "mpr_pairs": "MPR, the paper's, 2+ items", "auc:none": "AUC, as trained",
    "auc:likelihood": "AUC, calibrate='likelihood'", "auc:discrimination": "AUC, calibrate='discrimination'",
    "auc_paired": "paired AUC", "auc_pairs:discrimination": "AUC, discrimination, 2+ items",
    "log_likelihood:likelihood": "log-likelihood", "p1": "p@1", "p10": "p@10", "seconds": "seconds", "rounds": "rounds",
}  # fmt: skip


# -- Means over trials ---------------------------------------------------------------------------------


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
        wanted = (chosen.kind, chosen.method, chosen.settings, chosen.alpha, chosen.ratio)
        found = [
            task
            for task in self.results
            if (task.kind, task.method, task.settings, task.alpha, task.ratio) == wanted and task.data in chosen.data
        ]
        return [self.results[task] for task in sorted(found, key=lambda t: (t.trial, chosen.data.index(t.data)))]

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


def by_size(results: Sequence[Result]) -> dict[str, tuple[float, int]]:
    """MPR by basket size and how many baskets it is of, over all results."""
    totals: dict[str, list[float]] = {}
    for result in results:
        for row in result["by_size"]:
            if row["group"] != "all" and row["mpr_paper"] is not None:
                total = totals.setdefault(row["group"], [0.0, 0.0])
                total[0] += row["n"] * row["mpr_paper"]
                total[1] += row["n"]
    ordered = sorted(totals, key=lambda group: int(group.rstrip("+").split("-")[0]))
    return {group: (totals[group][0] / totals[group][1], int(totals[group][1])) for group in ordered}


# -- Text ----------------------------------------------------------------------------------------------


def name_of(metric: str) -> str:
    """The metric in words."""
    return NAMES.get(metric) or metrics.label(metric)


def number(value: Number | float | None, metric: str = "mpr", *, sign: bool = False) -> str:
    """A number with its deviation, or a dash."""
    if value is None:
        return MISSING
    given = value if isinstance(value, Number) else Number(float(value))
    digits = {"rounds": 0, "seconds": 2, "p1": 2, "p10": 2}.get(metric, metrics.digits_of(metric))
    shown = round(given.value, digits) + 0.0  # no minus before a zero
    text = f"{shown:{'+' if sign else ''}.{digits}f}".replace("-", "−")
    if given.std is None:
        return text
    small = 0 < given.std < 0.5 * 10**-digits
    return f"{text} ± {given.std:.1e}" if small else f"{text} ± {given.std:.{digits}f}"


def gained(gain: Sequence[float], digits: int = 4) -> str:
    """A difference and the bounds of its interval."""
    value, low, high = (f"{bound:+.{digits}f}".replace("-", "−") for bound in gain)
    return f"{value} [{low}, {high}]"


def side_of_zero(gain: Sequence[float], neither: str = "no difference") -> str:
    """On which side of zero a difference is, if its interval is clear of it."""
    return "above" if gain[1] > 0 else "below" if gain[2] < 0 else neither


@dataclass(frozen=True)
class Table:
    """A table of text."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    @property
    def markdown(self) -> str:
        """The table as Markdown, its columns padded so that it can be read as it is."""
        rows = [tuple(cell.replace("|", "\\|") for cell in row) for row in (self.head, *self.rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.head))]

        def line(cells: tuple[str, ...]) -> str:
            first, *others = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            return "| " + " | ".join([first, *(other.strip().rjust(len(other)) for other in others)]) + " |"

        rule = "|" + "|".join([f":{'-' * (widths[0] + 1)}", *(f"{'-' * (width + 1)}:" for width in widths[1:])]) + "|"
        note = f"\n\n{self.note}" if self.note else ""
        return f"**{self.title}**\n\n" + "\n".join([line(rows[0]), rule, *map(line, rows[1:])]) + note


@dataclass(frozen=True)
class Plot:
    """A figure that is yet to be drawn: the end of its file name, what it shows, and who draws it."""

    name: str
    caption: str
    draw: Callable[[], Any]


@dataclass(frozen=True)
class Chapter:
    """What a target found."""

    target: str
    title: str
    setup: str
    tables: tuple[Table, ...]
    findings: tuple[str, ...] = ()  # sentences on what is reached, what is not, and why
    plots: tuple[Plot, ...] = ()
    claims: dict[str, str] = field(default_factory=dict)  # sentences that the index gathers, by claim
    data: dict[str, Any] = field(default_factory=dict)  # the numbers behind tables and plots, for JSON

    @property
    def slug(self) -> str:
        """The name of its files."""
        return self.target.replace("/", "-")

    def markdown(self, figures: Mapping[str, str]) -> str:
        """The whole chapter; `figures` gives the path of each plot, relative to the file."""
        parts = [f"## {self.title}", self.setup, *(table.markdown for table in self.tables)]
        if self.findings:
            parts.append("\n".join(f"- {sentence}" for sentence in self.findings))
        parts += [f"![{plot.caption}]({figures[plot.name]})\n\n*{plot.caption}*" for plot in self.plots]
        return "\n\n".join(parts) + "\n"
