"""The figures of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.pages import name_of
from experiments.paper.published import RUNTIMES, Number, printed_for
from experiments.paper.training import LEAST_DIVERGENCE, MOST_PROBABILITY
from experiments.protocol import LABELS

COLORS = {
    "LowRank": "#4477aa", "Exp": "#ee6677", "Dyn": "#228833", "NCE": "#ccbb44", "exact": "#aa3377",
    "Exp, counted": "#f4b0b8", "Dyn, counted": "#88cc99", "Prod": "#66ccee", "Popularity": "#888888",
    "published": "#bbbbbb", "ours": "#4477aa",
}  # fmt: skip
# The validation score of a method with the default settings; with the paper's it is log P(A) for all.
WATCHED = {
    "mean log P(A)": ("mle", "nce"),
    "mean log P(i | A∖i),\ni by popularity": ("dynamic", "exact"),
    "mean log P(i | A∖i),\ni uniform": ("explicit",),
}
FEWEST = 20  # baskets of a size that are worth a point


def panels_of(width: float, height: float, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Figure, Any]:
    """Return a figure, and its panels as an array (rows, columns)."""
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **more)
    for panel in panels.flat:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def split_up(values: Sequence[Number | None]) -> tuple[list[float], list[float] | None]:
    """Return means, and error bars or None for a single trial."""
    numbers = [value or Number(float("nan")) for value in values]
    bars = [number.std or 0.0 for number in numbers]
    return [number.value for number in numbers], bars if any(bars) else None


def bars(panel: Any, groups: Sequence[str], series: Mapping[str, Sequence[Number | None]]) -> list[Any]:
    """Draw bars side by side with error bars, a color per series."""
    width = 0.8 / len(series)
    drawn = []
    for place, (label, values) in enumerate(series.items()):
        x = np.arange(len(groups)) + (place - (len(series) - 1) / 2) * width
        y, error = split_up(values)
        drawn.append(panel.bar(x, y, width, yerr=error, capsize=2, label=label, color=COLORS[label]))
    panel.set_xticks(np.arange(len(groups)), groups)
    return drawn


def toy(shown: Mapping[str, Mapping[str, Mapping[str, Any]]], pairs: Sequence[str]) -> Figure:
    """Draw figure 1: probabilities and divergences, a row of panels per settings."""
    figure, panels = panels_of(9.5, 6.0, 2, 2, width_ratios=(4, 3))
    for (left, right), (settings, entries) in zip(panels, shown.items(), strict=True):
        probabilities = {label: [*entry["probabilities"], entry["geometric_mean"]] for label, entry in entries.items()}
        bars(left, [*pairs, "geom. mean"], probabilities)
        left.axhline(MOST_PROBABILITY, color="0.3", linewidth=1, linestyle="--")
        left.set(ylim=(0, 1), ylabel=f"settings: {settings}\nprobability")
        bars(right, ["{1, 2}", "{3, 4}", "net"], {label: entry["divergences"] for label, entry in entries.items()})
        right.hlines(LEAST_DIVERGENCE, 1.55, 2.45, color="0.3", linewidth=1, linestyle="--")
        right.set(ylabel="symmetric KL")
        right.set_ylim(bottom=0)
    panels[0, 0].set_title("Probabilities of the right prediction")
    panels[0, 1].set_title("KL divergences")
    panels[0, 0].legend(frameon=False, ncols=3)
    return figure


def convergence(curves: Mapping[str, tuple[str, list[dict[str, list[float]]]]], settings: str) -> Figure:
    """Draw the validation scores against seconds and rounds, a row of panels for each score."""
    watched = {"mean log P(A)": tuple(LABELS)} if settings == "paper" else WATCHED
    rows = {score: {k: v for k, v in curves.items() if v[0] in methods} for score, methods in watched.items()}
    rows = {score: chosen for score, chosen in rows.items() if chosen}
    figure, panels = panels_of(9.0, 2.6 * max(len(rows), 1), len(rows), 2, sharey="row")
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
            top = panel.get_ylim()[1]
            panel.set(xlabel=words, ylim=(min(lowest) - 0.05 * (top - min(lowest)), top))
        line[0].set_ylabel(score)
        line[1].legend(frameon=False)
    return figure


def by_size(series: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw MPR by basket size, a line per method, with the number of baskets."""
    figure, ((panel,),) = panels_of(6.5, 4.0)
    everything = max(series.values(), key=len)
    often = everything.index[everything.n >= FEWEST]
    groups = often if len(often) else everything.index
    for label, sizes in series.items():
        style = "--" if label == "Popularity" else "-"
        panel.plot(groups, sizes.mpr_paper.reindex(groups), style, marker="o", color=COLORS[label], label=label)
    counts = pd.concat([sizes.n for sizes in series.values()]).groupby(level=0).max()
    panel.set_xticks(range(len(groups)), [f"{group}\n{counts[group]:,}" for group in groups])
    panel.set(xlabel="basket size, the held-out item included (and number of test baskets)", ylabel="MPR (%)")
    panel.legend(frameon=False, ncols=2)
    return figure


def runtimes(ratios: Mapping[str, Number]) -> Figure:
    """Draw the time to convergence relative to LowRank, published beside ours."""
    figure, ((panel,),) = panels_of(6.5, 3.8)
    theirs = {LABELS[method]: Number(value.value / RUNTIMES["mle"].value) for method, value in RUNTIMES.items()}
    series: dict[str, list[Number | None]] = {
        "published": [theirs.get(label) for label in ratios],
        "ours": list(ratios.values()),
    }
    for drawn in bars(panel, list(ratios), series):
        panel.bar_label(drawn, ["" if np.isnan(bar.get_height()) else f"{bar.get_height():.1f}" for bar in drawn])
    panel.set(yscale="log", ylabel="time relative to LowRank")
    panel.legend(frameon=False)
    return figure


def ablation(found: Mapping[tuple[str, str], Sequence[Number | None]], levels: Sequence[float], symbol: str) -> Figure:
    """Return a panel per metric, a line per method."""
    metrics = list(dict.fromkeys(metric for _, metric in found))
    figure, (panels,) = panels_of(3.6 * len(metrics), 3.4, 1, len(metrics))
    x = np.arange(len(levels))
    for (method, metric), values in found.items():
        label = LABELS[method]
        y, error = split_up(values)
        panels[metrics.index(metric)].errorbar(x, y, error, color=COLORS[label], label=label, marker="o", capsize=3)
    for panel, metric in zip(panels, metrics, strict=True):
        low, high = panel.get_ylim()
        room = (2.0 if metric == "mpr_paper" else 0.02) - (high - low)  # so that noise does not look like a trend
        if room > 0:
            panel.set_ylim(low - room / 2, high + room / 2)
        panel.set_xticks(x, [f"{level:g}" for level in levels])
        panel.set_xlabel(symbol)
        panel.set_title(name_of(metric), fontsize=9)
    panels[0].legend(frameon=False)
    return figure


def scale(curves: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Figure:
    """Draw the pooled AUC against c / c(likelihood), a panel per data set."""
    figure, (panels,) = panels_of(4.2 * len(curves), 4.0, 1, len(curves), sharey=True)
    for panel, (data, models) in zip(panels, curves.items(), strict=True):
        for label, entry in models.items():
            name, _, start = label.partition(",")
            logs = {which: float(np.mean(np.log10(values))) for which, values in entry["scales"].items()}
            panel.plot(entry["log10_c"], entry["sweep"], "--" if start else "-", color=COLORS[name], label=label)
            for mark, which in (("o", "none"), ("x", "discrimination")):
                panel.plot(logs[which] - logs["likelihood"], np.mean(entry["auc"][which]), mark, color=COLORS[name])
        printed = printed_for(data)
        for value in (printed.lowrank["auc"], printed.absolute("dynamic", "auc")):
            panel.axhline(value, color="0.5", linewidth=1, linestyle=":")
        panel.set(title=data, xlabel="log₁₀ of c relative to the likelihood scale")
    panels[0].set_ylabel("pooled AUC")
    panels[0].legend(frameon=False, fontsize=7)
    return figure
