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
from scipy.sparse import csr_array
from scipy.sparse.linalg import eigsh

from contradpp.data.baskets import Baskets
from contradpp.dpp.cooccurrence import co_occurrences
from contradpp.metrics.slates import SlateReport, evaluate_slates
from contradpp.models.conditional import ConditionalDPP
from contradpp.slates.greedy import DEFAULT_DIVERSITY, Lists, SlateObjective, Vectors, choose
from contradpp.slates.rules import CategoryLimits
from experiments.pages import Plot, Result, Results, Section, Table, gained, name_of, number, words
from experiments.paper import training
from experiments.paper.figures import panels_of
from experiments.protocol import Task

Array = NDArray[np.float64]

K = 10
N_CANDIDATES = 100
N_DIMENSIONS = 64
VALIDATION = 0.1  # of the training baskets, for the settings of all ways but ours by default
N_QUESTIONS = 4000
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
        """Return the metrics of the slates of a way."""
        return evaluate_slates(way, self.baskets, K, train=self.train, min_size=self.least, diversity=diversity)


def measure(task: Task, n_jobs: int | None) -> Result:
    """Return the chosen setting, the metrics, and the gain over the most probable items, of every way."""
    train, test = training.split(task)
    least = LEAST.get(task.data, 8)
    seed = task.trial
    part, rest = train.split(VALIDATION, random_state=seed)
    model = ConditionalDPP(n_jobs=n_jobs, random_state=seed).fit(part)
    validation, final = (Questions(_some(baskets, least, seed), part, least) for baskets in (rest, test))
    goal = "categories_hit" if train.items.categories else "distance_baskets"
    tops = [queries.ask(model, diversity=0) for queries in (validation, final)]
    found: Result = {"Top 10": _measured(tops[1], tops[1], None)}
    found["ours, default"] = _measured(final.ask(model), tops[1], DEFAULT_DIVERSITY)
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
        "least": least,
    }  # fmt: skip


def _some(baskets: Baskets, least: int, seed: int) -> Baskets:
    """Return the baskets of enough items, or a random part of them."""
    large = baskets.subset(baskets.sizes >= least)
    if large.n_baskets <= N_QUESTIONS:
        return large
    return large.split(N_QUESTIONS, random_state=seed)[1]


def _measured(report: SlateReport, top: SlateReport, setting: float | None) -> Result:
    gains = {metric: report.difference(top, metric)[:3] for metric in COMPARED}
    return {"metrics": {name: report.metrics[name] for name in SHOWN}, "gains": gains, "setting": setting}


# -- The ways --------------------------------------------------------------------------------------------


Make = Callable[[float], Any]


def _ways(model: ConditionalDPP, train: Baskets) -> dict[str, tuple[Make, tuple[float, ...]]]:
    """Return the function that makes slates, and the settings to try, by name."""
    pool = _Pool(model)
    table = _embedding(train)
    vectors = Vectors.of_table(table)
    diversify = _pyversity()
    ways: dict[str, tuple[Make, tuple[float, ...]]] = {
        "ours": (lambda setting: lambda baskets, k: model.slate(baskets, k, diversity=setting), OURS),
        "MMR, our similarity": (pool.chosen("mmr", model.similarity_), SETTINGS),
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
        self.cache: dict[bytes, tuple[NDArray[np.int64], Array]] = {}

    def candidates(self, baskets: Baskets) -> tuple[NDArray[np.int64], Array]:
        """Return codes and scores; every basket has as many."""
        key = baskets.indices.tobytes()
        if key not in self.cache:
            most = len(baskets.items) - int(baskets.sizes.max())
            items, scores = self.model.recommend(baskets, min(N_CANDIDATES, most))
            self.cache[key] = baskets.items.find(items.ravel()).reshape(items.shape), scores
        return self.cache[key]

    def chosen(self, method: str, vectors: Vectors) -> Make:
        """Return a method of `rerank`, on these vectors."""

        def way(baskets: Baskets, k: int, setting: float) -> list[list[Any]]:
            codes, scores = self.candidates(baskets)
            n, width = codes.shape
            lists = Lists.plain(np.arange(n + 1) * width, scores.ravel(), codes.ravel())
            objective = SlateObjective(k=k, diversity=setting, method=method, scale="log")
            found = choose(vectors, lists, objective, CategoryLimits.none(codes.size))
            return _named(np.take_along_axis(codes, found.positions, axis=1), baskets)

        return lambda setting: lambda baskets, k: way(baskets, k, setting)

    def diversified(self, diversify: Any, method: str, table: Array) -> Make:
        """Return a method of another package, list by list, with scores from 0 to 1."""

        def way(baskets: Baskets, k: int, setting: float) -> list[list[Any]]:
            rows = []
            for codes, scores in zip(*self.candidates(baskets), strict=True):
                slate = diversify(table[codes], scores / scores[0], k=k, strategy=method, diversity=setting)
                rows.append(codes[np.asarray(slate.indices)])
            return _named(np.array(rows), baskets)

        return lambda setting: lambda baskets, k: way(baskets, k, setting)


def _embedding(train: Baskets) -> Array:
    """Return the leading factors of the positive pointwise mutual information of items (M, 64)."""
    together = co_occurrences(train.sets, np.ones(train.n_baskets), train.n_items).tocoo()
    differ = together.row != together.col
    row, column, counts = (values[differ] for values in (together.row, together.col, together.data))
    sums = np.bincount(row, weights=counts, minlength=train.n_items)
    information = np.log(counts * counts.sum() / (sums[row] * sums[column]))
    positive = information > 0
    entries = (information[positive], (row[positive], column[positive]))
    matrix = csr_array(entries, shape=(train.n_items, train.n_items))
    values, vectors = eigsh(matrix, k=N_DIMENSIONS, which="LA", v0=np.ones(train.n_items))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)


def _named(codes: NDArray[np.int64], baskets: Baskets) -> list[list[Any]]:
    return [[baskets.items[code] for code in row] for row in codes.tolist()]


def _pyversity() -> Any:
    """Return the other package's function, None where it is not installed."""
    try:
        return importlib.import_module("pyversity").diversify
    except ImportError:
        return None


# -- The section -----------------------------------------------------------------------------------------


def section(results: Results) -> Section:
    """Return the section on ways to choose ten suggestions: recall of the hidden half, and variety."""
    found = {task.data: result for task, result in results.by_task.items()}
    tables: list[Table] = []
    for data, result in found.items():
        ways = result["ways"]
        top = result["ways"]["Top 10"]
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
    text = words("benchmark/slates.md", found=found, best={data: _best(result) for data, result in found.items()})
    plot = Plot(
        "pareto",
        "Relevance against variety on the test baskets, a line for every way over its settings.",
        lambda: pareto({data: (one["curves"], name_of(one["goal"])) for data, one in found.items()}),
    )
    title = "Slates: variety without loss"
    return Section("slates", title, text["setup"][0], tuple(tables), text["findings"], (plot,), data=found)


def _best(result: Result) -> tuple[str, float] | None:
    """Return the reference with the most variety at 99 % of the recall, and how much that is."""
    feasible = {name: way for name, way in result["ways"].items() if way.get("kept") and REFERENCE in name}
    values = {name: way["metrics"][result["goal"]] for name, way in feasible.items()}
    return max(values.items(), key=lambda entry: float(entry[1]), default=None)


def pareto(found: Mapping[str, tuple[Mapping[str, Sequence[tuple[float, float]]], str]]) -> Figure:
    """Draw recall against variety, a panel per data set and a line per way."""
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
