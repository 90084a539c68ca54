"""The experiment with slates: half of every test basket is hidden, and ways to choose ten suggestions are compared.

All ways choose among what the same model holds relevant. Settings of each are chosen on validation baskets: the most
variety at 99 % of the recall of the ten most probable items. Test baskets are looked at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets
from contradpp.dpp.greedy import Lists, Rules, Trade, Vectors, choose
from contradpp.metrics.slates import SlateReport, evaluate_slates
from contradpp.models.conditional import ConditionalDPP
from contradpp.models.likeness import company_vectors
from contradpp.research import experiments, figures
from contradpp.research.paper import Task
from contradpp.research.tables import Chapter, Collected, Plot, Table, gained, name_of, number, side_of_zero

Array = NDArray[np.float64]
Result = dict[str, Any]

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


SETUP = (
    "80 % of the baskets for training, a tenth of them for choosing settings, 20 % for the test, seed 0. Half of every "
    "test basket is hidden, and ten items are suggested given the rest. All ways choose from what one ConditionalDPP "
    "holds relevant: ours from all items, the others from its 100 best. 'As learned' is what the model chose by itself "
    "when it was fitted; the settings of all other rows have the most variety (categories hit, else distance by "
    "baskets) on the validation baskets at 99 % of the recall of the top 10, or are the mildest if none has that. "
    "Co-occurrence: 64 dimensions of the positive mutual information of items. Intervals are 95 %, paired."
)


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
    train, test = experiments.split(task)
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


# -- The chapter -----------------------------------------------------------------------------------------


def chapter(collected: Collected) -> Chapter:
    """Ways to choose ten suggestions: what they have of the hidden half, and how varied they are."""
    found = {task.data: result for task, result in collected.results.items()}
    tables: list[Table] = []
    findings: list[str] = []
    for data, result in found.items():
        ways, n = result["ways"], result["n_baskets"]
        shown = [name for name in SHOWN if ways["Top 10"]["metrics"][name] is not None]
        rows = tuple(
            (name, _setting(way), *(number(way["metrics"][m], m) for m in shown)) for name, way in ways.items()
        )
        title = f"{data}: {n:,} baskets of {result['least']} or more items, {result['n_items']:,} items"
        tables.append(Table(title, ("way", "diversity", *map(name_of, shown)), rows))
        beside = [name for name in shown if name in ways["Top 10"]["gains"]]
        differences = tuple(
            (name, *(gained(way["gains"][m]) for m in beside)) for name, way in ways.items() if name != "Top 10"
        )
        tables.append(Table(f"{data}: difference from the top 10", ("way", *map(name_of, beside)), differences))
        findings += _slate_findings(data, result)
    return Chapter(
        target="slates",
        title="Slates: variety without loss",
        setup=SETUP,
        tables=tuple(tables),
        findings=tuple(findings),
        plots=(
            Plot("pareto", "Relevance against variety on the test baskets, a line for every way over its settings.",
                 lambda: figures.pareto({data: (one["curves"], name_of(one["goal"])) for data, one in found.items()})),
        ),
        data=found,
    )  # fmt: skip


def _setting(way: dict[str, Any]) -> str:
    return "" if way["setting"] is None else f"{way['setting']:g}"


def _slate_findings(data: str, result: dict[str, Any]) -> list[str]:
    """Against the goals: nothing lost, more reached; more than others at 99 % of the recall; a likelier hidden half."""
    ways, goal, law = result["ways"], result["goal"], result["likelihood"]
    learned, named = ways["ours, as learned"]["gains"], name_of(goal)
    parts = [
        f"{name_of(metric)} {gained(learned[metric])}: {side_of_zero(learned[metric])}"
        for metric in ("hit", "categories_hit")
        if learned[metric][0] is not None
    ]
    lost = "below" if learned["recall"][2] < 0 else "not below"
    others = {name: way["metrics"][goal] for name, way in ways.items() if way.get("kept") and REFERENCE in name}
    ours, beside = ways["ours"]["metrics"][goal], "where no reference keeps that"
    if others:
        best = max(others, key=lambda name: others[name])
        more = "more than" if ours > others[best] else "less than"
        beside = f"{more} the best of the references, {best}, {others[best]:.4f}"
    gain = (law["gain"], law["low"], law["high"])
    return [
        f"{data}, as learned ({_mix(result['settings'])}): recall {gained(learned['recall'])}, {lost} the top 10; "
        + "; ".join(parts) + ".",
        f"{data}, at 99 % of the recall on validation: {named} {ours:.4f}, {beside}.",
        f"{data}: the hidden half's log-likelihood, learned for it ({_mix(law['settings'])}), is "
        f"{gained(gain)} beside Φ = I ({law['n_baskets']} baskets): {side_of_zero(gain, 'not told from')} 0.",
    ]  # fmt: skip


def _mix(settings: dict[str, float] | None) -> str:
    if settings is None:
        return "too few baskets: the kernel"
    weights = [f"{name} {value:g}" for name, value in settings.items() if value and name != "diversity"]
    return f"{', '.join(weights) or 'nothing alike'}, diversity {settings['diversity']:g}"
