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
from contradpp.dpp.slates import Lists, Rules, Trade, Vectors, choose
from contradpp.metrics.slates import SlateReport, evaluate_slates
from contradpp.models.conditional import ConditionalDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP

Array = NDArray[np.float64]
Result = dict[str, Any]

K, N_CANDIDATES, N_DIMENSIONS = 10, 100, 32
VALIDATION = 0.1  # of the training baskets, for the settings of all ways but ours, which has its own
N_QUESTIONS, N_LIKELIHOODS = 4000, 150
KEPT = 0.99  # of the recall
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


def compare_slates(data: str, train: Baskets, test: Baskets, *, max_iter: int, seed: int, n_jobs: int | None) -> Result:
    """Every way on one data set: its chosen setting, its metrics, and what it gains over the most probable items."""
    least = LEAST.get(data, 8)
    part, rest = train.split(VALIDATION, random_state=seed)
    kernel = NonsymmetricDPP(max_iter=max_iter)
    model = ConditionalDPP(kernel, n_jobs=n_jobs, random_state=seed).fit(part)
    validation, final = (Questions(_some(baskets, least, seed), part, least) for baskets in (rest, test))
    goal = "categories_hit" if train.items.categories else "distance_baskets"
    tops = [asked.ask(model, diversity=0) for asked in (validation, final)]
    found: Result = {"Top 10": _measured(tops[1], tops[1], None)}
    found["ours, as learned"] = _measured(final.ask(model), tops[1], model.default_diversity)
    curves: Result = {}
    for name, (make, settings) in _ways(model, part).items():
        tried = [(setting, validation.ask(make(setting))) for setting in settings]
        fit = [one for one in tried if one[1].recall >= KEPT * tops[0].recall] or tried[:1]
        best = max(fit, key=lambda one: one[1].metrics[goal])[0]
        reports = {setting: final.ask(make(setting)) for setting in settings}
        found[name] = _measured(reports[best], tops[1], best)
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
    table = co_occurrence_vectors(train, N_DIMENSIONS)
    vectors, diversify = Vectors.of_table(table), _pyversity()
    ways: dict[str, tuple[Make, tuple[float, ...]]] = {
        "ours": (lambda setting: lambda baskets, k: model.slate(baskets, k, diversity=setting), OURS),
        "MMR, our likeness": (pool.chosen("mmr", model.likeness_), SETTINGS),
    }
    for method in ("mmr", "msd", "dpp"):
        ways[f"{method.upper()}, co-occurrence"] = pool.chosen(method, vectors), SETTINGS
        if diversify is not None:
            ways[f"pyversity {method.upper()}, co-occurrence"] = pool.diversified(diversify, method, table), SETTINGS
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


def co_occurrence_vectors(train: Baskets, n: int) -> Array:
    """The leading factors of the positive pointwise mutual information of items: what others would use for vectors."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import eigsh

    X = csr_array(train.to_csr())
    together = (X.T @ X).tocoo()
    apart = together.row != together.col
    row, column, counts = together.row[apart], together.col[apart], together.data[apart]
    sums = np.bincount(row, weights=counts, minlength=train.n_items)
    information = np.maximum(np.log(counts * counts.sum() / (sums[row] * sums[column])), 0.0)
    matrix = csr_array((information, (row, column)), shape=together.shape)
    n = min(n, train.n_items - 2)
    values, vectors = eigsh(matrix, k=n, which="LA", v0=np.ones(train.n_items))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)
