"""The figures of a reproduction. Matplotlib is the extra `plot`, imported when a figure is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from contradpp.errors import MissingExtraError
from contradpp.research.experiments import LEAST_DIVERGENCE, MOST_PROBABILITY
from contradpp.research.paper import LABELS, RUNTIMES, Number, printed_for
from contradpp.research.tables import name_of

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
    _panels(1, 1)


def _panels(width: float, height: float, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Any, Any]:
    """A figure, and its panels as an array (rows, columns)."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("reproduce draws figures with matplotlib: pip install 'contradpp[plot]'") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **more)
    for panel in panels.flat:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _means(values: Sequence[Number | None]) -> list[float]:
    return [float("nan") if value is None else value.value for value in values]


def _deviations(values: Sequence[Number | None]) -> list[float] | None:
    """Error bars, or None where a single trial leaves nothing to show."""
    if not any(value is not None and value.std for value in values):
        return None
    return [0.0 if value is None or value.std is None else value.std for value in values]


def _bars(
    panel: Any, groups: Sequence[str], series: Mapping[str, Sequence[Number | None]], colors: Mapping[str, str]
) -> list[Any]:
    """Bars side by side with error bars: a group on the axis, a color per series."""
    width, drawn = 0.8 / len(series), []
    for place, (label, values) in enumerate(series.items()):
        x = np.arange(len(groups)) + (place - (len(series) - 1) / 2) * width
        drawn.append(panel.bar(x, _means(values), width, yerr=_deviations(values), capsize=2, label=label,
                               color=colors[label]))  # fmt: skip
    panel.set_xticks(np.arange(len(groups)), groups)
    return drawn


def toy(shown: Mapping[str, Mapping[str, Mapping[str, Any]]], pairs: Sequence[str]) -> Any:
    """Figure 1: probabilities and divergences, a row of panels per settings."""
    figure, panels = _panels(9.5, 6.0, 2, 2, width_ratios=(4, 3))
    for (left, right), (settings, entries) in zip(panels, shown.items(), strict=True):
        probabilities = {label: [*entry["probabilities"], entry["geometric_mean"]] for label, entry in entries.items()}
        _bars(left, [*pairs, "geom. mean"], probabilities, COLORS)
        left.axhline(MOST_PROBABILITY, color="0.3", linewidth=1, linestyle="--")
        left.set_ylim(0, 1)
        left.set_ylabel(f"settings: {settings}\nprobability")
        divergences = {label: entry["divergences"] for label, entry in entries.items()}
        _bars(right, ["{1, 2}", "{3, 4}", "net"], divergences, COLORS)
        right.hlines(LEAST_DIVERGENCE, 1.55, 2.45, color="0.3", linewidth=1, linestyle="--")
        right.set_ylabel("symmetric KL")
        right.set_ylim(bottom=0)
    panels[0, 0].set_title("Probabilities of the right prediction")
    panels[0, 1].set_title("KL divergences")
    panels[0, 0].legend(frameon=False, ncols=3)
    return figure


def convergence(curves: Mapping[str, tuple[str, list[dict[str, list[float]]]]], settings: str) -> Any:
    """Validation score against seconds and rounds; a row of panels for each score that was watched."""
    watched = {"mean log P(A)": tuple(LABELS)} if settings == "paper" else WATCHED
    rows = {score: {k: v for k, v in curves.items() if v[0] in methods} for score, methods in watched.items()}
    rows = {score: chosen for score, chosen in rows.items() if chosen}
    figure, panels = _panels(9.0, 2.6 * max(len(rows), 1), len(rows), 2, sharey="row")
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
    return figure


def by_size(series: Mapping[str, Mapping[str, tuple[float, int]]]) -> Any:
    """MPR by basket size, a line per method; under each size, how many baskets there were."""
    figure, ((panel,),) = _panels(6.5, 4.0)
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
    return figure


def runtimes(ratios: Mapping[str, Number]) -> Any:
    """Time to convergence relative to LowRank, published beside ours."""
    figure, ((panel,),) = _panels(6.5, 3.8)
    theirs = {LABELS[method]: Number(value.value / RUNTIMES["mle"].value) for method, value in RUNTIMES.items()}
    series: dict[str, list[Number | None]] = {
        "published": [theirs.get(label) for label in ratios],
        "ours": list(ratios.values()),
    }
    for bars in _bars(panel, list(ratios), series, {"published": "#bbbbbb", "ours": "#4477aa"}):
        panel.bar_label(bars, ["" if np.isnan(bar.get_height()) else f"{bar.get_height():.1f}" for bar in bars])
    panel.set_yscale("log")
    panel.set_ylabel("time relative to LowRank")
    panel.legend(frameon=False)
    return figure


def ablation(found: Mapping[tuple[str, str], Sequence[Number | None]], levels: Sequence[float], symbol: str) -> Any:
    """A panel per metric, a line per method."""
    metrics = list(dict.fromkeys(metric for _, metric in found))
    figure, (panels,) = _panels(3.6 * len(metrics), 3.4, 1, len(metrics))
    x = np.arange(len(levels))
    for (method, metric), values in found.items():
        panels[metrics.index(metric)].errorbar(
            x, _means(values), _deviations(values), color=COLORS[LABELS[method]], label=LABELS[method],
            marker="o", capsize=3,
        )  # fmt: skip
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


def scale(curves: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Any:
    """Pooled AUC against c / c(likelihood), a panel per data set."""
    figure, (panels,) = _panels(4.2 * len(curves), 4.0, 1, len(curves), sharey=True)
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
        panel.set_title(data)
        panel.set_xlabel("log₁₀ of c relative to the likelihood scale")
    panels[0].set_ylabel("pooled AUC")
    panels[0].legend(frameon=False, fontsize=7)
    return figure


def quality_and_cost(groups: Mapping[str, Mapping[str, tuple[float, float]]], cost: str) -> Any:
    """A panel per data set: quality against cost, DPPs as diamonds, and a line through what nothing beats in both."""
    names = list(dict.fromkeys(name for found in groups.values() for name in found))
    columns = min(len(groups), 4)
    rows = -(-len(groups) // columns)
    figure, panels = _panels(3.2 * columns, 2.8 * rows + 0.9, rows, columns)
    for panel in panels.flat[len(groups) :]:
        panel.set_visible(False)
    drawn: dict[str, Any] = {}
    for panel, (data, found) in zip(panels.flat, groups.items(), strict=False):
        panel.set_xscale("log")
        front: list[tuple[float, float]] = []
        for name, (x, y) in sorted(found.items(), key=lambda entry: (entry[1][0], -entry[1][1])):
            place, x = names.index(name), max(x, 1e-3)
            (drawn[name],) = panel.plot(x, y, "D" if "DPP" in name else "o", markersize=5, label=name,
                                        color=f"C{place % 10}", fillstyle="full" if place < 10 else "none")  # fmt: skip
            if not front or y > front[-1][1]:
                front.append((x, y))
        panel.plot(*np.transpose(front), color="0.7", linewidth=1, zorder=0)
        panel.tick_params(axis="x", which="minor", labelbottom=False)
        panel.set_title(data, fontsize=10)
        panel.set_xlabel(cost)
    for panel in panels[:, 0]:
        panel.set_ylabel("nDCG@10")
    figure.legend(handles=[drawn[name] for name in names], loc="outside lower center", ncols=2 * columns, fontsize=7)
    return figure


def pareto(found: Mapping[str, tuple[Mapping[str, Sequence[tuple[float, float]]], str]]) -> Any:
    """Recall against variety, a panel per data set and a line per way; upwards and to the right is better."""
    figure, (panels,) = _panels(4.4 * len(found), 4.2, 1, len(found))
    names = dict.fromkeys(name for curves, _ in found.values() for name in curves)  # not all are everywhere
    places = {name: place for place, name in enumerate(sorted(names, key=lambda name: name != "ours"))}
    for panel, (data, (curves, goal)) in zip(panels, found.items(), strict=True):
        for name, points in curves.items():
            recall, variety = np.transpose(points)
            style = "--" if name.startswith("pyversity") else "-"
            color = "black" if name == "Top 10" else f"C{places[name]}"
            panel.plot(variety, recall, style, marker="o", markersize=3, color=color, label=name,
                       linewidth=2.2 if name == "ours" else 1.0)  # fmt: skip
        top = curves["Top 10"][0][0]
        panel.axhline(0.99 * top, color="0.6", linewidth=1, linestyle=":")
        panel.set_ylim(0.9 * top, 1.02 * top)
        panel.set_title(data)
        panel.set_xlabel(goal)
    panels[0].set_ylabel("recall of the hidden half")
    lines = {line.get_label(): line for panel in panels for line in panel.lines if not line.get_label().startswith("_")}
    figure.legend(handles=[lines[name] for name in places], loc="outside lower center", ncols=5, fontsize=8)
    return figure
