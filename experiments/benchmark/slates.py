"""The experiment with slates: half of every test basket is hidden, and ways to choose ten suggestions are compared.

All ways choose among what the same model holds relevant. Settings of each are chosen on validation baskets: the most
variety at 99 % of the recall of the ten most probable items. Test baskets are looked at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets
from contradpp.dpp.greedy import Lists, Rules, Trade, Vectors, choose
from contradpp.metrics.slates import SlateReport, evaluate_slates
from contradpp.models.conditional import ConditionalDPP
from contradpp.models.likeness import company_vectors
from experiments.pages import Plot, Result, Results, Section, Table, gained, name_of, number, words
from experiments.paper import training
from experiments.paper.figures import panels_of
from experiments.protocol import Task

Array = NDArray[np.float64]

K, N_CANDIDATES, N_DIMENSIONS = 10, 100, 64
VALIDATION = 0.1  # of the training baskets, for the settings of all ways but ours, which has its own
N_QUESTIONS, N_LIKELIHOODS = 4000, 1000
KEPT = 0.99  # of the recall
REFERENCE = "co-occurrence"  # ways without anything that we learned
LEAST = {"groceries": 4}  # items of a basket; 8 elsewhere
OURS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)  # diversities that are tried
SETTINGS = (0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5)  # and those of the others, which are stronger at the same number
SHOWN = ("recall", "hit", "ndcg", "alpha_ndcg", "categories_hit", "categories_found", "categories",
         "distance_categories", "distance_baskets", "coverage")  # fmt: skip
COMPARED = ("recall", "hit", "ndcg", "alpha_ndcg", "categories_hit", "categories_found")


class Questions(NamedTuple):
    """Baskets, and how slates for them are measured."""

    baskets: Baskets
    train: Baskets
    least: int

    def ask(self, way: Any, diversity: float | None = None) -> SlateReport:
        """What the slates of a way are worth."""
        return evaluate_slates(way, self.baskets, K, train=self.train, min_size=self.least, diversity=diversity)


def measure(task: Task, n_jobs: int | None) -> Result:
    """Every way on one data set: its chosen setting, its metrics, and what it gains over the most probable items."""
    train, test = training.split(task)
    least, seed = LEAST.get(task.data, 8), task.trial
    part, rest = train.split(VALIDATION, random_state=seed)
    model = ConditionalDPP(n_jobs=n_jobs, random_state=seed).fit(part)
    validation, final = (Questions(_some(baskets, least, seed), part, least) for baskets in (rest, test))
    goal = "categories_hit" if train.items.categories else "distance_baskets"
    tops = [asked.ask(model, diversity=0) for asked in (validation, final)]
    found: Result = {"Top 10": _measured(tops[1], tops[1], None)}
    found["ours, as learned"] = _measured(final.ask(model), tops[1], model.default_diversity)
    curves: Result = {}
    for name, (make, settings) in _ways(model, part).items():
        tried = [(setting, validation.ask(make(setting))) for setting in settings]
        fit = [one for one in tried if one[1].recall >= KEPT * tops[0].recall]
        best = max(fit or tried[:1], key=lambda one: one[1].metrics[goal])[0]
        reports = {setting: final.ask(make(setting)) for setting in settings}
        found[name] = _measured(reports[best], tops[1], best) | {"kept": bool(fit)}
        curves[name] = [[report.recall, report.metrics[goal]] for report in reports.values()]
    curves["Top 10"] = [[tops[1].recall, tops[1].metrics[goal]]]
    return {
        "ways": found, "curves": curves, "goal": goal, "n_baskets": tops[1].n_baskets, "n_items": len(train.items),
        "least": least, "settings": model.slate_settings_, "likelihood": _likelihood(model, rest, final, part),
    }  # fmt: skip


def _some(baskets: Baskets, least: int, seed: int) -> Baskets:
    """Those of enough items, at random, if they are too many."""
    large = baskets.subset(baskets.sizes >= least)
    if large.n_baskets <= N_QUESTIONS:
        return large
    return large.split(N_QUESTIONS, random_state=seed)[1]


def _measured(report: SlateReport, top: SlateReport, setting: float | None) -> Result:
    gains = {metric: report.difference(top, metric)[:3] for metric in COMPARED}
    return {"metrics": {name: report.metrics[name] for name in SHOWN}, "gains": gains, "setting": setting}


def _likelihood(model: ConditionalDPP, validation: Baskets, final: Questions, train: Baskets) -> Result:
    """What likeness adds to the log-likelihood of hidden halves, learned for that on the validation baskets."""
    model.learn_slates(validation, train=train, criterion="likelihood")
    few = final.baskets.subset(np.arange(min(N_LIKELIHOODS, final.baskets.n_baskets)))
    report = evaluate_slates(model, few, K, min_size=final.least, likelihood=True)
    low, high = report.interval("log_likelihood_gain")
    return {"gain": report.log_likelihood_gain, "low": low, "high": high, "log_likelihood": report.log_likelihood,
            "settings": model.slate_settings_, "n_baskets": report.n_baskets}  # fmt: skip


# -- The ways --------------------------------------------------------------------------------------------


Make = Callable[[float], Any]


def _ways(model: ConditionalDPP, train: Baskets) -> dict[str, tuple[Make, tuple[float, ...]]]:
    """By name, what makes slates at a setting, and the settings that are tried."""
    pool = _Pool(model)
    table = company_vectors(train.sets, train.n_items, N_DIMENSIONS)
    vectors, diversify = Vectors.of_table(table), _pyversity()
    ways: dict[str, tuple[Make, tuple[float, ...]]] = {
        "ours": (lambda setting: lambda baskets, k: model.slate(baskets, k, diversity=setting), OURS),
        "MMR, our likeness": (pool.chosen("mmr", model.likeness_), SETTINGS),
    }
    for method in ("mmr", "msd", "dpp"):
        ways[f"{method.upper()}, {REFERENCE}"] = pool.chosen(method, vectors), SETTINGS
        if diversify is not None:
            ways[f"pyversity {method.upper()}, {REFERENCE}"] = pool.diversified(diversify, method, table), SETTINGS
    return ways


class _Pool:
    """The most probable items of a model, asked for once for the same baskets."""

    def __init__(self, model: ConditionalDPP) -> None:
        self.model = model
        self.kept: dict[bytes, tuple[NDArray[np.int64], Array]] = {}

    def candidates(self, baskets: Baskets) -> tuple[NDArray[np.int64], Array]:
        """Codes and scores; every basket has as many."""
        key = baskets.indices.tobytes()
        if key not in self.kept:
            most = len(baskets.items) - int(baskets.sizes.max())
            items, scores = self.model.recommend(baskets, min(N_CANDIDATES, most))
            self.kept[key] = baskets.items.find(items.ravel()).reshape(items.shape), scores
        return self.kept[key]

    def chosen(self, method: str, vectors: Vectors) -> Make:
        """A method of `rerank`, on these vectors."""

        def way(baskets: Baskets, k: int, setting: float) -> list[list[Any]]:
            codes, scores = self.candidates(baskets)
            n, width = codes.shape
            lists = Lists.plain(np.arange(n + 1) * width, scores.ravel(), codes.ravel())
            trade = Trade(k=k, diversity=setting, method=method, scale="log")
            found = choose(vectors, lists, trade, Rules.of(None, codes.size, k))
            return _named(np.take_along_axis(codes, found.positions, axis=1), baskets)

        return lambda setting: lambda baskets, k: way(baskets, k, setting)

    def diversified(self, diversify: Any, method: str, table: Array) -> Make:
        """A method of another package, list by list, with scores from 0 to 1."""

        def way(baskets: Baskets, k: int, setting: float) -> list[list[Any]]:
            rows = []
            for codes, scores in zip(*self.candidates(baskets), strict=True):
                told = diversify(table[codes], scores / scores[0], k=k, strategy=method, diversity=setting)
                rows.append(codes[np.asarray(told.indices)])
            return _named(np.array(rows), baskets)

        return lambda setting: lambda baskets, k: way(baskets, k, setting)


def _named(codes: NDArray[np.int64], baskets: Baskets) -> list[list[Any]]:
    return [[baskets.items[code] for code in row] for row in codes.tolist()]


def _pyversity() -> Any:
    """The other package's function, None where it is not installed."""
    try:
        return importlib.import_module("pyversity").diversify
    except ImportError:
        return None


# -- The section -----------------------------------------------------------------------------------------


def section(results: Results) -> Section:
    """Ways to choose ten suggestions: what they have of the hidden half, and how varied they are."""
    found = {task.data: result for task, result in results.by_task.items()}
    tables: list[Table] = []
    for data, result in found.items():
        ways, top = result["ways"], result["ways"]["Top 10"]
        shown = [name for name in SHOWN if top["metrics"][name] is not None]
        beside = [name for name in shown if name in top["gains"]]
        rows = [
            (name, "" if way["setting"] is None else f"{way['setting']:g}",
             *(number(way["metrics"][metric], metric) for metric in shown))
            for name, way in ways.items()
        ]  # fmt: skip
        gains = [(name, *(gained(way["gains"][m]) for m in beside)) for name, way in ways.items() if way is not top]
        title = f"{result['n_baskets']:,} baskets of {result['least']} or more items, {result['n_items']:,} items"
        tables.append(Table.of(f"{data}: {title}", ("way", "diversity", *map(name_of, shown)), rows))
        tables.append(Table.of(f"{data}: difference from the top 10", ("way", *map(name_of, beside)), gains))
    told = words("benchmark/slates.md", found=found, best={data: _best(result) for data, result in found.items()})
    plot = Plot(
        "pareto",
        "Relevance against variety on the test baskets, a line for every way over its settings.",
        lambda: pareto({data: (one["curves"], name_of(one["goal"])) for data, one in found.items()}),
    )
    title = "Slates: variety without loss"
    return Section("slates", title, told["setup"][0], tuple(tables), told["findings"], (plot,), data=found)


def _best(result: Result) -> tuple[str, float] | None:
    """The reference with the most variety at 99 % of the recall, and how much that is."""
    kept = {name: way for name, way in result["ways"].items() if way.get("kept") and REFERENCE in name}
    values = {name: way["metrics"][result["goal"]] for name, way in kept.items()}
    return max(values.items(), key=lambda entry: float(entry[1]), default=None)


def pareto(found: Mapping[str, tuple[Mapping[str, Sequence[tuple[float, float]]], str]]) -> Figure:
    """Recall against variety, a panel per data set and a line per way; upwards and to the right is better."""
    figure, (panels,) = panels_of(4.4 * len(found), 4.2, 1, len(found))
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
        panel.set(ylim=(0.9 * top, 1.02 * top), title=data, xlabel=goal)
    panels[0].set_ylabel("recall of the hidden half")
    lines = {line.get_label(): line for panel in panels for line in panel.lines if not line.get_label().startswith("_")}
    figure.legend(handles=[lines[name] for name in places], loc="outside lower center", ncols=5, fontsize=8)
    return figure
