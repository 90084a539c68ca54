"""Which settings should be the defaults? Chosen on validation baskets of other data sets, reported on test baskets.

Every variant of a model is fitted once to nine tenths of the training baskets. What data set d would choose is never
asked: its variant is the one with the best mean gain over the defaults, relative in nDCG, on the validation baskets of
all *other* data sets. What that variant gains on d's own test baskets, with a paired interval, says what the choice is
worth where it was not made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from contradpp._threads import resolve_n_jobs
from contradpp.baselines import ItemKNN
from contradpp.models.conditional import ConditionalDPP
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP
from contradpp.models.relevance import DEFAULT
from contradpp.research import benchmark, experiments
from contradpp.research.contestants import Settings, groups_of
from contradpp.research.experiments import Result
from contradpp.research.paper import DEFAULTS, Task
from contradpp.research.standings import mean_lead
from contradpp.research.tables import Chapter, Collected, Table

AS_IT_IS = "defaults"


def variants(method: str, told: Settings) -> dict[str, Any]:
    """The models that are tried, by what is different of them."""
    if method == "lowrank-mle":
        rank = min(100, int(told.train.sizes.max()))
        tried: tuple[dict[str, Any], ...]
        tried = ({}, {"alpha": 0.1}, {"alpha": 10.0}, {"learning_rate": 0.05}, {"learning_rate": 0.2})
        return {_words(one): LowRankDPP(rank, objective="mle", oversize="drop", **one, **told.own) for one in tried}
    kernels: tuple[dict[str, Any], ...] = (
        {}, {"n_components": 8}, {"n_components": 32}, {"n_skew": 15}, {"n_skew": 60}, {"dropout": 0.2},
        {"dropout": 0.4}, {"alpha": 0.1}, {"alpha": 10.0},
    )  # fmt: skip
    if method == "nonsymmetric":
        return {_words(one): NonsymmetricDPP(**one, **told.own) for one in kernels}
    models = {f"kernel: {_words(one)}": ConditionalDPP(NonsymmetricDPP(**one, **told.own), **told.own)
              for one in kernels[3:7]}  # fmt: skip
    bm25 = ConditionalDPP(relevance=(*DEFAULT, ItemKNN(weights="bm25")), **told.own)
    few = ConditionalDPP(relevance=[voice for voice in DEFAULT if voice != "baskets"], **told.own)
    return {AS_IT_IS: ConditionalDPP(**told.own), **models, "with BM25": bm25, "without baskets": few}


def _words(different: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in different.items()) or AS_IT_IS


def measure(task: Task, n_jobs: int | None) -> Result:
    """The nDCG of every variant on validation and on test baskets; both from one fit."""
    train, test = experiments.split(task)
    part, held = train.split(0.1, random_state=task.trial)
    found = {}
    for name, model in variants(task.method, Settings(part, task.trial, n_jobs)).items():
        model.fit(part)
        values = {}
        for kind, baskets in (("validation", held), ("test", test)):
            asked = benchmark.some_of(baskets, task.asked, task.trial)
            question = benchmark.Question(model, part, asked, task.trial, resolve_n_jobs(n_jobs))
            values[kind] = benchmark.next_item(question)["ndcg"]
        found[name] = {
            "validation": float(values["validation"].mean()),
            "test": np.round(values["test"], 5).tolist(),
        }
    return {"variants": found}


def chapter(collected: Collected) -> Chapter:
    """A table a model: gains on validation, and what leaving each data set out would have chosen."""
    tables, findings, data = [], [], {}
    for method in dict.fromkeys(task.method for task in collected.results):
        results = {task: result for task, result in collected.results.items() if task.method == method}
        gains = _validation_gains(results)  # by column and variant
        names = list(next(iter(gains.values())))
        rows = [(name, *(f"{100 * gains[label][name]:+.2f}".replace("-", "−") for label in gains)) for name in names]
        mean = {name: float(np.mean([gains[label][name] for label in gains])) for name in names}
        title = f"{method}: gain in validation nDCG over the defaults, percent"
        tables.append(Table(title, ("variant", *gains), tuple(rows)))
        for label in gains if len(gains) > 1 else ():
            others = {name: float(np.mean([gains[one][name] for one in gains if one != label])) for name in names}
            best = max(others, key=lambda name: others[name])
            findings.append(f"{method}, {label} left out: the others choose {best}{_test_gain(results, label, best)}.")
        data[method] = {"validation": gains, "mean": mean}
    return Chapter(
        target=DEFAULTS,
        title="Defaults, chosen on validation baskets of other data sets",
        setup=f"{collected.protocol.n_trials} trial(s); every variant is fitted to nine tenths of the training "
        "baskets; nDCG@10 of the next item, every item left out in turn. Intervals are of 95 %, paired.",
        tables=tuple(tables),
        findings=tuple(findings),
        data=data,
    )


def _validation_gains(results: dict[Task, Result]) -> dict[str, dict[str, float]]:
    """By column and variant, the relative gain over the defaults, the mean over its data sets and trials."""
    gains = {}
    for group in groups_of(list(dict.fromkeys(task.data for task in results))):
        own = [result["variants"] for task, result in results.items() if task.data in group.data]
        gains[group.label] = {
            name: float(np.mean([one[name]["validation"] / one[AS_IT_IS]["validation"] - 1 for one in own]))
            for name in own[0]
        }
    return gains


def _test_gain(results: dict[Task, Result], label: str, best: str) -> str:
    """What the choice is worth on the test baskets of a column, in words."""
    if best == AS_IT_IS:
        return ""
    (group,) = [one for one in groups_of(list(dict.fromkeys(task.data for task in results))) if one.label == label]
    own = {task: result["variants"] for task, result in results.items() if task.data in group.data}
    differences = [np.subtract(one[best]["test"], one[AS_IT_IS]["test"]) for one in own.values()]
    ids = [benchmark.asked_baskets(task)[0] for task in own]
    value, low, high = mean_lead([task.data for task in own], ids, differences)
    sure = "" if low > 0 or high < 0 else ", not clear of zero"
    return f", which on its test baskets gains {value:+.4f} [{low:+.4f}, {high:+.4f}]{sure}".replace("-", "−")
