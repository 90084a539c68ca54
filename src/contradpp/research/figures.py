"""The figures of a reproduction. Matplotlib is the extra `plot`, imported when a figure is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from contradpp.errors import MissingExtraError
from contradpp.research import published
from contradpp.research import toy as toy_set
from contradpp.research.paper import LABELS
from contradpp.research.published import Number
from contradpp.research.render import name_of

COLORS = {
    "LowRank": "#4477aa", "Exp": "#ee6677", "Dyn": "#228833", "NCE": "#ccbb44", "exact": "#aa3377",
    "Exp, counted": "#f4b0b8", "Dyn, counted": "#88cc99", "Prod": "#66ccee", "Popularity": "#888888",
}  # fmt: skip
# What the validation score of a method is with the default settings; with the paper's it is log P(A) for all.
WATCHED = {
    "mean log P(A)": ("mle", "nce"),
    "mean log P(i | A∖i),\ni by popularity": ("dynamic", "exact"),
    "mean log P(i | A∖i),\ni uniform": ("explicit",),
}
FEWEST = 20  # baskets of a size that are worth a point


def require() -> None:
    """Raise `MissingExtraError` now rather than after hours of training."""
    _figure(1, 1)


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("reproduce draws figures with matplotlib: pip install 'contradpp[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def _tidy(*panels: Any) -> None:
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)


def _mean(value: Number | None) -> float:
    return float("nan") if value is None else value.value


def _deviations(values: Sequence[Number | None]) -> list[float] | None:
    """Error bars, or None where a single trial leaves nothing to show."""
    if not any(value is not None and value.std for value in values):
        return None
    return [0.0 if value is None or value.std is None else value.std for value in values]


def _bars(panel: Any, groups: Sequence[str], series: Mapping[str, Sequence[Number | None]]) -> None:
    """Bars side by side with error bars: a group on the axis, a color per series."""
    width = 0.8 / len(series)
    for place, (label, values) in enumerate(series.items()):
        x = np.arange(len(groups)) + (place - (len(series) - 1) / 2) * width
        panel.bar(
            x, [_mean(v) for v in values], width, yerr=_deviations(values), capsize=2,
            label=label, color=COLORS[label],
        )  # fmt: skip
    panel.set_xticks(np.arange(len(groups)), groups)
    _tidy(panel)


def toy(shown: Mapping[tuple[str, str], Mapping[str, Any]], pairs: Sequence[str]) -> Any:
    """Figure 1: probabilities and divergences, a row of panels per settings."""
    figure = _figure(9.5, 6.0)
    panels = figure.subplots(2, 2, width_ratios=(4, 3))
    for (left, right), settings in zip(panels, ("default", "paper"), strict=True):
        entries = {label: entry for (which, label), entry in shown.items() if which == settings}
        probabilities = {k: [*e["probabilities"], e["geometric_mean"]] for k, e in entries.items()}
        _bars(left, [*pairs, "geom. mean"], probabilities)
        left.axhline(toy_set.MOST_PROBABILITY, color="0.3", linewidth=1, linestyle="--")
        left.set_ylim(0, 1)
        left.set_ylabel(f"settings: {settings}\nprobability")
        _bars(right, ["{1, 2}", "{3, 4}", "net"], {label: entry["divergences"] for label, entry in entries.items()})
        right.hlines(toy_set.LEAST_DIVERGENCE, 1.55, 2.45, color="0.3", linewidth=1, linestyle="--")
        right.set_ylabel("symmetric KL")
        right.set_ylim(bottom=0)
    panels[0, 0].set_title("Probabilities of the right prediction")
    panels[0, 1].set_title("KL divergences")
    panels[0, 0].legend(frameon=False, ncols=3)
    return figure


def convergence(runs: Mapping[str, tuple[str, list[dict[str, list[float]]]]], settings: str) -> Any:
    """Validation score against seconds and rounds; a row of panels for each score that was watched."""
    watched = {"mean log P(A)": tuple(LABELS)} if settings == "paper" else WATCHED
    rows = {score: {k: v for k, v in runs.items() if v[0] in methods} for score, methods in watched.items()}
    rows = {score: chosen for score, chosen in rows.items() if chosen}
    figure = _figure(9.0, 2.6 * max(len(rows), 1))
    panels = figure.subplots(len(rows), 2, squeeze=False, sharey="row")
    for line, (score, chosen) in zip(panels, rows.items(), strict=True):
        for panel, (axis, words) in zip(line, {"seconds": "seconds", "iteration": "rounds"}.items(), strict=True):
            lowest = []
            for label, (_, trials) in chosen.items():
                for number, trial in enumerate(trials):
                    panel.plot(
                        trial[axis], trial["validation"], color=COLORS[label], alpha=1.0 if number == 0 else 0.3,
                        label=label if number == 0 else None, marker="." if len(trial[axis]) < 40 else None,
                    )  # fmt: skip
                    lowest.append(np.quantile(trial["validation"], 0.1 if len(trial[axis]) > 12 else 0.0))
            panel.set_xlabel(words)
            top = panel.get_ylim()[1]
            panel.set_ylim(min(lowest) - 0.05 * (top - min(lowest)), top)
        line[0].set_ylabel(score)
        line[1].legend(frameon=False)
        _tidy(*line)
    return figure


def by_size(series: Mapping[str, Mapping[str, tuple[float, int]]]) -> Any:
    """MPR by basket size, a line per method; under each size, how many baskets there were."""
    figure = _figure(6.5, 4.0)
    panel = figure.subplots()
    everything = max((dict(values) for values in series.values()), key=len, default={})
    groups = [group for group, (_, n) in everything.items() if n >= FEWEST] or list(everything)
    for label, values in series.items():
        style = "--" if label == "Popularity" else "-"
        y = [values[group][0] if group in values else np.nan for group in groups]
        panel.plot(groups, y, style, marker="o", color=COLORS[label], label=label)
    counts = {group: max(values[group][1] for values in series.values() if group in values) for group in groups}
    panel.set_xticks(range(len(groups)), [f"{group}\n{counts[group]:,}" for group in groups])
    panel.set_xlabel("basket size, the held-out item included (and number of test baskets)")
    panel.set_ylabel("MPR (%)")
    panel.legend(frameon=False, ncols=2)
    _tidy(panel)
    return figure


def runtimes(ratios: Mapping[str, Number]) -> Any:
    """Time to convergence relative to LowRank, published beside ours."""
    figure = _figure(6.5, 3.8)
    panel = figure.subplots()
    base = published.RUNTIMES["mle"].value
    theirs = {LABELS[method]: value.value / base for method, value in published.RUNTIMES.items()}
    x = np.arange(len(ratios))
    bars = (
        panel.bar(x - 0.2, [theirs.get(label, np.nan) for label in ratios], 0.4, color="#bbbbbb", label="published"),
        panel.bar(
            x + 0.2, [r.value for r in ratios.values()], 0.4, yerr=_deviations(list(ratios.values())),
            capsize=2, color="#4477aa", label="ours",
        ),
    )  # fmt: skip
    for one in bars:
        panel.bar_label(one, ["" if np.isnan(bar.get_height()) else f"{bar.get_height():.1f}" for bar in one])
    panel.set_yscale("log")
    panel.set_xticks(x, list(ratios))
    panel.set_ylabel("time relative to LowRank")
    panel.legend(frameon=False)
    _tidy(panel)
    return figure


def ablation(found: Mapping[tuple[str, str], Sequence[Number | None]], levels: Sequence[float], symbol: str) -> Any:
    """A panel per metric, a line per method."""
    metrics = list(dict.fromkeys(metric for _, metric in found))
    figure = _figure(3.6 * len(metrics), 3.4)
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    x = np.arange(len(levels))
    for (method, metric), values in found.items():
        panel = panels[metrics.index(metric)]
        label = LABELS[method]
        panel.errorbar(
            x, [_mean(v) for v in values], _deviations(values), color=COLORS[label], label=label,
            marker="o", capsize=3,
        )  # fmt: skip
    for panel, metric in zip(panels, metrics, strict=True):
        low, high = panel.get_ylim()
        room = (2.0 if metric == "mpr" else 0.02) - (high - low)  # so that noise does not look like a trend
        if room > 0:
            panel.set_ylim(low - room / 2, high + room / 2)
        panel.set_xticks(x, [f"{level:g}" for level in levels])
        panel.set_xlabel(symbol)
        panel.set_title(name_of(metric), fontsize=9)
        _tidy(panel)
    panels[0].legend(frameon=False)
    return figure


def scale(curves: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Any:
    """Pooled AUC against c / c(likelihood), a panel per data set."""
    figure = _figure(4.2 * len(curves), 4.0)
    panels = figure.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    printed = {"uk": published.UK, "belgian": published.BELGIAN}
    for panel, (data, models) in zip(panels, curves.items(), strict=True):
        for label, entry in models.items():
            name, _, start = label.partition(",")
            offset = float(np.mean(np.log10(entry["scales"]["likelihood"])))
            color, style = COLORS[name], "--" if start else "-"
            panel.plot(entry["log10_c"], entry["sweep"], style, color=color, label=label)
            for mark, which in (("o", "none"), ("x", "discrimination")):
                x = float(np.mean(np.log10(entry["scales"][which]))) - offset
                panel.plot(x, np.mean(entry["auc"][which]), mark, color=color)
        table = printed.get(data, published.AMAZON)
        for value in (table.lowrank["auc"], table.absolute("dynamic", "auc")):
            panel.axhline(value, color="0.5", linewidth=1, linestyle=":")
        panel.set_title(data)
        panel.set_xlabel("log₁₀ of c relative to the likelihood scale")
        _tidy(panel)
    panels[0].set_ylabel("pooled AUC")
    panels[0].legend(frameon=False, fontsize=7)
    return figure


def beyond(groups: Mapping[str, Mapping[str, Mapping[str, float]]], labels: Mapping[str, str]) -> Any:
    """MPR and p@10 of every model, a panel each, a group of bars per data."""
    figure = _figure(10.0, 3.6)
    panels = figure.subplots(1, 2)
    colors = ("#bbbbbb", "#e5dc9a", "#ccbb44", "#66ccee", "#4477aa", "#88aacc", "#ee6677")
    width = 0.85 / len(labels)
    for panel, (metric, name) in zip(panels, (("mpr", "MPR, ties half"), ("p10", "p@10, percent")), strict=True):
        for place, (method, label) in enumerate(labels.items()):
            x = np.arange(len(groups)) + (place - (len(labels) - 1) / 2) * width
            values = [found[method][metric] for found in groups.values()]
            panel.bar(x, values, width, label=label, color=colors[place])
        panel.set_xticks(np.arange(len(groups)), list(groups))
        panel.set_title(name, fontsize=10)
        _tidy(panel)
    panels[0].set_ylim(65, 100)
    panels[1].legend(frameon=False, fontsize=7)
    return figure
