"""A study of default settings. Chosen on validation baskets of other data sets, reported on test baskets.

Every variant of a model is fitted once to nine tenths of the training baskets. What data set d would choose is never
asked: its variant is the one with the best mean gain over the defaults, relative in nDCG, on the validation baskets of
all *other* data sets. What that variant gains on d's own test baskets, with a paired interval, says what the choice is
worth where it was not made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from contradpp._threads import resolve_n_jobs
from contradpp.baselines import ItemKNN
from contradpp.experts.table import DEFAULT_EXPERTS
from contradpp.learn.params import params_from_flat
from contradpp.models.conditional import ConditionalDPP
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP
from experiments.benchmark import measure as benchmark
from experiments.benchmark.leaderboard import mean_lead
from experiments.benchmark.models import Settings, groups_of
from experiments.pages import Result, Results, Section, Table, fixed, words
from experiments.paper import training
from experiments.protocol import Task

AS_IT_IS = "defaults"


def variants(method: str, settings: Settings) -> dict[str, Any]:
    """Return the models that are tried, by what is different of them."""
    if method == "lowrank-mle":
        rank = min(100, int(settings.train.sizes.max()))
        tried: tuple[dict[str, Any], ...]
        tried = ({}, {"alpha": 0.1}, {"alpha": 10.0}, {"learning_rate": 0.05}, {"learning_rate": 0.2})
        return {
            _words(one): LowRankDPP(
                rank, oversize="drop", **params_from_flat(LowRankDPP, {"objective": "mle", **one}), **settings.own
            )
            for one in tried
        }
    kernels: tuple[dict[str, Any], ...] = (
        {}, {"n_components": 8}, {"n_components": 32}, {"n_skew": 15}, {"n_skew": 60}, {"dropout": 0.2},
        {"dropout": 0.4}, {"alpha": 0.1}, {"alpha": 10.0},
    )  # fmt: skip
    if method == "nonsymmetric":
        return {_words(one): NonsymmetricDPP(**one, **settings.own) for one in kernels}
    models = {f"kernel: {_words(one)}": ConditionalDPP(NonsymmetricDPP(**one, **settings.own), **settings.own)
              for one in kernels[3:7]}  # fmt: skip
    bm25 = ConditionalDPP(experts=(*DEFAULT_EXPERTS, ItemKNN(weights="bm25")), **settings.own)
    few = ConditionalDPP(experts=[expert for expert in DEFAULT_EXPERTS if expert != "basket_knn"], **settings.own)
    return {AS_IT_IS: ConditionalDPP(**settings.own), **models, "with BM25": bm25, "without baskets": few}


def _words(different: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in different.items()) or AS_IT_IS


def measure(task: Task, n_jobs: int | None) -> Result:
    """Return the nDCG of every variant on validation and on test baskets; both from one fit."""
    train, test = training.split(task)
    part, held = train.split(0.1, random_state=task.trial)
    found = {}
    for name, model in variants(task.method, Settings(part, task.trial, n_jobs)).items():
        model.fit(part)
        values = {}
        for kind, baskets in (("validation", held), ("test", test)):
            queries = benchmark.some_of(baskets, task.asked, task.trial)
            evaluation = benchmark.Evaluation(model, part, queries, task.trial, resolve_n_jobs(n_jobs))
            values[kind] = benchmark.next_item(evaluation)["ndcg"]
        found[name] = {
            "validation": float(values["validation"].mean()),
            "test": np.round(values["test"], 5).tolist(),
        }
    return {"variants": found}


def section(results: Results) -> Section:
    """Return a table a model: gains on validation, and what leaving each data set out would have chosen."""
    tables = []
    choices = []
    data = {}
    for method in dict.fromkeys(task.method for task in results.by_task):
        found = {task: result for task, result in results.by_task.items() if task.method == method}
        frame = pd.DataFrame(_validation_gains(found))  # (variants, columns)
        shown = frame.map(lambda gain: fixed(100 * gain, sign=True))
        shown.insert(0, "variant", frame.index)
        tables.append(Table(f"{method}: gain in validation nDCG over the defaults, percent", shown))
        for label in frame if frame.shape[1] > 1 else ():
            best = str(frame.drop(columns=label).mean(axis=1).idxmax())
            choices.append((method, label, best, _test_gain(found, label, best)))
        data[method] = {"validation": frame.to_dict(), "mean": frame.mean(axis=1).to_dict()}
    text = words("benchmark/defaults.md", protocol=results.protocol, choices=choices)
    title = "Defaults, chosen on validation baskets of other data sets"
    return Section("defaults", title, text["setup"][0], tuple(tables), text["findings"], data=data)


def _validation_gains(results: dict[Task, Result]) -> dict[str, dict[str, float]]:
    """Return the mean relative gain over the defaults, by column and variant."""
    gains = {}
    for group in groups_of(list(dict.fromkeys(task.data for task in results))):
        own = [result["variants"] for task, result in results.items() if task.data in group.data]
        gains[group.label] = {
            name: float(np.mean([one[name]["validation"] / one[AS_IT_IS]["validation"] - 1 for one in own]))
            for name in own[0]
        }
    return gains


def _test_gain(results: dict[Task, Result], label: str, best: str) -> list[float] | None:
    """Return the gain of the choice on the test baskets of a column, with its interval, if there is one."""
    if best == AS_IT_IS:
        return None
    (group,) = [one for one in groups_of(list(dict.fromkeys(task.data for task in results))) if one.label == label]
    own = {task: result["variants"] for task, result in results.items() if task.data in group.data}
    differences = [np.subtract(one[best]["test"], one[AS_IT_IS]["test"]) for one in own.values()]
    ids = [benchmark.asked_baskets(task)[0] for task in own]
    return mean_lead([task.data for task in own], ids, differences)
