"""Several models on the same test baskets: one table, and intervals of their differences."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from contradpp._display import data_frame, html_table, new_figure
from contradpp._random import RandomState, root_seed
from contradpp._types import Values
from contradpp.errors import ParameterError
from contradpp.experts.popularity import Popularity
from contradpp.metrics.intervals import Difference, Resampled, paired_difference, plain
from contradpp.metrics.metrics import digits_of, number
from contradpp.metrics.report import evaluate


def compare(
    models: Mapping[str, Any],
    test: Any,
    *,
    train: Any = None,
    history: Any = None,
    baseline: str | None = None,
    ks: Sequence[int] = (1, 5, 10, 20),
    random_state: RandomState = 0,
    min_size: int = 1,
    n_jobs: int | None = None,
) -> Comparison:
    """Evaluate fitted models on the same held-out items, and compare each with one of them.

    Parameters
    ----------
    models : mapping of str to model
        Fitted models by the names that the table gives them.
    test, history, ks, random_state, min_size, n_jobs
        As for `evaluate`.
    train : Baskets or list of lists, optional
        The training baskets. With them, `Popularity` stands first, unless one of the models is it.
    baseline : str, optional
        The model that the others are compared with; the first if left out.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import contradpp as cd
    >>> shop = cd.Baskets.from_lists([["tea", "milk"], ["pasta", "sauce"]] * 50)
    >>> table = cd.compare({"neighbors": cd.baselines.ItemKNN().fit(shop)}, shop, train=shop)
    >>> list(table.reports)
    ['Popularity', 'neighbors']
    >>> round(table.difference("neighbors", "mpr").value)
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
    options: Values = {"train": train, "history": history, "min_size": min_size, "n_jobs": n_jobs}
    options["check"] = False
    reports = {name: evaluate(model, test, ks, seed, **options) for name, model in chosen.items()}
    return Comparison(reports, base)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Reports of several models on the same test baskets with the same seed.

    Parameters
    ----------
    reports : dict of str to report
        Those of `evaluate`, or those of `evaluate_slates`, by name.
    baseline : str
        The model that the others are compared with.
    """

    reports: Values
    baseline: str

    def difference(
        self,
        name: str,
        metric: str,
        *,
        over: str | None = None,
        level: float = 0.95,
        n_resamples: int = 1000,
    ) -> Difference:
        """Return a model's difference from another, with a paired bootstrap interval.

        The same baskets are drawn again for both models: what makes a basket hard for all cancels.

        Parameters
        ----------
        name : str
        metric : str
            Any that has an interval, see `Report.interval`. All values are NaN where one of the
            models has no such metric.
        over : str, optional
            The other model; the baseline if left out.
        level, n_resamples
            As for `Report.interval`.

        Returns
        -------
        Difference
        """
        ours, theirs = (self.reports[one] for one in (name, over or self.baseline))
        return paired_difference(ours, theirs, metric, level=level, n_resamples=n_resamples)

    @cached_property
    def differences(self) -> dict[str, dict[str, Difference]]:
        """The differences of every other model from the baseline, by model and metric."""
        metrics = self.reports[self.baseline].resampled
        others = [name for name in self.reports if name != self.baseline]
        return {
            name: {metric: self.difference(name, metric) for metric in metrics} for name in others
        }

    def as_dict(self) -> Values:
        """Return the reports as plain values for JSON, with differences from the baseline."""
        content = {name: report.as_dict() for name, report in self.reports.items()}
        for name, by_metric in self.differences.items():
            content[name]["differences"] = plain(
                {metric: difference._asdict() for metric, difference in by_metric.items()}
            )
        return content

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row per model and a column per metric."""
        metrics = self.reports[self.baseline].metrics
        columns = {
            metric: [report.metrics[metric] for report in self.reports.values()]
            for metric in metrics
        }
        return data_frame(columns, list(self.reports), "model")

    def plot(
        self, metrics: Sequence[str] = ("ndcg", "mpr"), path: str | os.PathLike[str] | None = None
    ) -> Any:
        """Draw every model's metrics as a matplotlib figure, a panel per metric.

        Bars are the 95 % intervals of the paired difference from the baseline, which is the dashed
        line: a bar that crosses it is no difference. With `path`, the figure is written to it.
        """
        names = list(self.reports)
        figure = new_figure(4.5 * len(metrics), 1.2 + 0.35 * len(names))
        panels = figure.subplots(1, len(metrics), squeeze=False, sharey=True)[0]
        for panel, metric in zip(panels, metrics, strict=True):
            base = self.reports[self.baseline].metrics[metric]
            panel.axvline(base, color="0.6", linewidth=1, linestyle="--")
            for row, name in enumerate(names):
                value = self.reports[name].metrics[metric]
                if name != self.baseline:
                    change = self.differences[name][metric]
                    panel.plot([base + change.low, base + change.high], [row, row], color="#4477aa")
                    value = base + change.value
                panel.plot([value], [row], "o", color="0.4" if name == self.baseline else "#4477aa")
            panel.set_yticks(range(len(names)), names)
            panel.set_xlabel(self.reports[self.baseline].label(metric))
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].invert_yaxis()
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _tables(self) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        """Yield the title, the head and the rows of the table of values, and of differences."""
        base = self.reports[self.baseline]
        values = [
            (base.label(metric), *(_value(report, metric) for report in self.reports.values()))
            for metric in base.metrics
        ]
        yield "", ("", *self.reports), values
        if self.differences:
            by_metric = [
                (
                    base.label(metric),
                    *(_difference(one[metric], metric) for one in self.differences.values()),
                )
                for metric in base.resampled
            ]
            title = (
                f"Difference from {self.baseline}, 95 % interval "
                "(the same baskets resampled for both)"
            )
            yield title, ("", *self.differences), by_metric

    def __str__(self) -> str:
        parts = [
            [title] * bool(title) + _columns(head, rows) for title, head, rows in self._tables()
        ]
        return "\n\n".join("\n".join(lines) for lines in parts)

    def __repr__(self) -> str:
        n_baskets = self.reports[self.baseline].n_baskets
        return f"Comparison({', '.join(self.reports)}; {n_baskets:,} baskets)"

    def _repr_html_(self) -> str:
        return "".join(html_table(head, rows, title) for title, head, rows in self._tables())


def _value(report: Resampled, metric: str) -> str:
    return number(report.metrics[metric], digits_of(metric)) + report.plus_minus(metric)


def _difference(difference: Difference, metric: str) -> str:
    digits = digits_of(metric)
    value = number(difference.value, digits, sign=True)
    if not np.isfinite([difference.low, difference.high]).all():
        return value
    return f"{value} [{difference.low:+.{digits}f}, {difference.high:+.{digits}f}]"


def _columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return lines of text: a left column of 16, the others of one width, aligned right."""
    width = max(12, *(len(cell) + 2 for row in (head, *rows) for cell in row[1:]))
    return [
        f"{first:<16}" + "".join(f"{cell:>{width}}" for cell in others)
        for first, *others in (head, *rows)
    ]
