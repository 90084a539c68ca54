"""The experiment with real negatives: what is taken of what is offered, by models that know what was refused or do not.

All models learn from the same choices, and none sees the test. The scale of a kernel that was not learned from choices
is set on the validation part, so that it is judged by what it knows of items and not by the size of its sets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit

from contradpp._random import stream
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, sums_over_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError
from contradpp.learn.calibration import calibrated
from contradpp.learn.objectives import Validation
from contradpp.learn.params import TrainingData
from contradpp.learn.state import rates
from contradpp.metrics.choices import evaluate_choices
from contradpp.models.learned import LearnedDPP
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP
from experiments.benchmark.leaderboard import mean_lead
from experiments.pages import Results, Section, Table, mean, name_of, number, words
from experiments.paper import training
from experiments.protocol import CHOICE_LABELS, Task

Array = NDArray[np.float64]
VALIDATION = 0.1  # of the training choices: when to stop, and the scale of kernels that do not learn it
MOST_ASKED = 10_000  # test choices of a trial, at random
METRICS = ("log_likelihood", "log_likelihood_given_size", "exact", "exact_given_size", "mpr")
KERNELS = ("lowrank", "nonsymmetric")
SOURCES = ("real", "generated", "mle", "exact")
OTHERS = ("frequency", "lift", "logistic")
PRIOR = 1.0  # the precision of an item's own log-odds in the logistic regression


def measure(task: Task, n_jobs: int | None) -> dict[str, Any]:
    """Return the metrics of a method, and those of every test choice, so that methods can be compared in pairs."""
    train, test = training.split(task, choices=True)
    part, held = train.split(VALIDATION, random_state=task.trial)
    test = test.subset(ranked_choices(test, task.trial))
    started = time.perf_counter()
    model = fitted(task.method, part, held, task.trial, n_jobs)
    seconds = time.perf_counter() - started
    report = evaluate_choices(model, test, random_state=task.trial)
    by_basket = {name: np.round(report.by_basket[name], 5).tolist() for name in METRICS}
    return {
        "metrics": {name: float(np.mean(values)) for name, values in by_basket.items()}, "by_basket": by_basket,
        "seconds": seconds, "rounds": getattr(model, "n_iter_", 0), "n_choices": train.n_baskets + test.n_baskets,
    }  # fmt: skip


def ranked_choices(test: Baskets, seed: int) -> NDArray[np.int64]:
    """Return the positions of the test choices with a refusal: without one there is nothing to rank."""
    return training.some((test.refused.sizes > 0) & (test.sizes > 0), MOST_ASKED, stream(seed, 92))


@lru_cache(maxsize=8)
def asked_ids(task: Task) -> NDArray[np.int64]:
    """Return the positions of the same choices in the data set."""
    return training.test_ids(task)[ranked_choices(training.split(task, choices=True)[1], task.trial)]


def fitted(method: str, part: Baskets, held: Baskets, seed: int, n_jobs: int | None) -> Any:
    """Return the model of a method, fitted."""
    if method in OTHERS:
        return ByItem(method).fit(part)
    kernel, _, source = method.partition("-")
    model = estimator(kernel, source, seed, n_jobs)
    if source in ("real", "choice"):
        return model.fit(part, validation=held)
    model.fit(without_offers(part), validation=without_offers(held))
    choices = Validation(held.recode(model.items_).sets, np.ones(held.n_baskets), held.recode(model.items_).offered)
    kernel_ = calibrated(model.kernel_, "choices", choices, stream(seed))
    model._set_kernel(kernel_, model.items_)
    return model


def estimator(kernel: str, source: str, seed: int, n_jobs: int | None) -> LearnedDPP:
    """Return the model that learns from a source of negatives."""
    objective = {"real": "explicit", "generated": "explicit", "choice": "choice"}.get(source, source)
    how: dict[str, Any] = {"objective": objective, "n_jobs": n_jobs, "random_state": seed, **SETTINGS[kernel, source]}
    how["calibrate"] = "choices" if source == "real" else None
    return LowRankDPP(**how) if kernel == "lowrank" else NonsymmetricDPP(**how)


# Of LowRankDPP chosen on the validation part of trial 0 by log P(taken given offered); the other's are its defaults.
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("lowrank", "mle"): {"n_components": 30, "alpha": 0.0},
    ("lowrank", "generated"): {"n_components": 10, "alpha": 0.0},
    ("lowrank", "real"): {"n_components": 30, "alpha": 1.0},
    ("lowrank", "choice"): {"n_components": 10, "alpha": 0.0},
    ("nonsymmetric", "exact"): {},
    ("nonsymmetric", "generated"): {},
    ("nonsymmetric", "real"): {},
    ("nonsymmetric", "choice"): {},
}


def without_offers(baskets: Baskets) -> Baskets:
    """Return the baskets, as if nobody had noted what they were chosen from."""
    return Baskets(baskets.indptr, baskets.indices, baskets.items)


# -- Items on their own ------------------------------------------------------------------------------------


@dataclass
class ByItem:
    """Every offered item is taken on its own, with log-odds that are linear in a few features.

    Parameters
    ----------
    kind : {"frequency", "lift", "logistic"}
        The feature is how often the item was bought; how often it was when it was offered; and for "logistic" that, how
        many items are offered, the mean of the feature over the others, and a number of the item's own.
    """

    kind: str
    items_: Vocabulary = field(init=False)

    def fit(self, train: Baskets) -> ByItem:
        """Learn the weights by maximum likelihood."""
        self.items_ = train.items
        counts = train.item_counts
        data = TrainingData(train.sets, np.ones(train.n_baskets), train.sets, np.ones(0), offered=train.offered)
        self.feature_ = np.log(counts + 1.0) if self.kind == "frequency" else logit(rates(data, train.n_items))
        X, codes, taken = self._entries(train)
        n_own = train.n_items if self.kind == "logistic" else 0

        def loss(w: Array) -> tuple[float, Array]:
            own = w[X.shape[1] :]
            z = X @ w[: X.shape[1]] + (own[codes] if n_own else 0.0)
            away = taken - expit(z)
            slope = np.bincount(codes, weights=away, minlength=n_own) - PRIOR * own if n_own else np.empty(0)
            value = log_expit(np.where(taken, z, -z)).sum() - 0.5 * PRIOR * own @ own
            return -float(value), -np.concatenate([X.T @ away, slope])

        w = minimize(loss, np.zeros(X.shape[1] + n_own), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
        self.weights_ = w[: X.shape[1]]
        self.own_ = w[X.shape[1] :]
        return self

    def score_choices(self, baskets: Baskets) -> Array:
        """Return log P(taken | offered)."""
        X, codes, taken = self._entries(baskets)
        z = X @ self.weights_ + (self.own_[codes] if len(self.own_) else 0.0)
        return sums_over_sets(log_expit(np.where(taken, z, -z)), _offers(baskets))

    def _entries(self, baskets: Baskets) -> tuple[Array, NDArray[np.int32], NDArray[np.bool_]]:
        """Return the features of every offered item, its code, and whether it was taken."""
        offered = _offers(baskets)
        feature = self.feature_
        owner = np.repeat(np.arange(offered.count), offered.sizes)
        sizes = np.repeat(offered.sizes, offered.sizes)
        own = feature[offered.indices]
        columns = [np.ones(len(own)), own]
        if self.kind == "logistic":
            others = sums_over_sets(own, offered)[owner] - own
            columns += [np.log(sizes), others / np.maximum(sizes - 1, 1)]
        key = np.repeat(np.arange(baskets.n_baskets), baskets.sizes) * baskets.n_items + baskets.indices
        taken = np.isin(owner * baskets.n_items + offered.indices, key)
        return np.stack(columns, axis=1), offered.indices, taken


def _offers(baskets: Baskets) -> Sets:
    if baskets.offered is None:
        raise DataError("it is not known what was offered")
    return baskets.offered


# -- The section -----------------------------------------------------------------------------------------


def section(results: Results) -> Section:
    """Return all ways side by side, and what each source of negatives gains."""
    methods = [method for method in CHOICE_LABELS if any(task.method == method for task in results.by_task)]
    rows = {method: results.rows(("yoochoose",), method, kind="negatives") for method in methods}
    means = {method: {metric: mean(own, metric) for metric in METRICS} for method, own in rows.items()}
    gains = {f"{ours} over {theirs}": {metric: _gain(rows[ours], rows[theirs], metric) for metric in METRICS}
             for ours, theirs in _pairs() if ours in rows and theirs in rows}  # fmt: skip
    text = words(
        "benchmark/negatives.md", protocol=results.protocol, labels=CHOICE_LABELS, gains=gains,
        asked=len(next(iter(results.by_task.values()))["by_basket"]["mpr"]),
    )  # fmt: skip
    cells = [
        (CHOICE_LABELS[method], *(number(one[metric], metric) for metric in METRICS), f"{own.seconds.mean():.0f}")
        for (method, one), own in zip(means.items(), rows.values(), strict=True)
    ]
    head = ("model", *map(name_of, METRICS), "seconds")
    return Section(
        target="negatives",
        title="Real negatives: what was offered and refused",
        setup=text["setup"][0],
        tables=(Table.of("What is taken of what is offered", head, cells),),
        findings=text["findings"],
        data={
            "means": {method: {metric: value.value for metric, value in one.items() if value}
                      for method, one in means.items()},
            "gains": gains,
        },
    )  # fmt: skip


def _pairs() -> Iterator[tuple[str, str]]:
    """Yield the methods that are compared: real negatives over generated ones and none, and choices over all."""
    for kernel in KERNELS:
        for source, others in (("real", SOURCES[1:]), ("choice", (*SOURCES, *OTHERS))):
            for other in others:
                yield f"{kernel}-{source}", other if other in OTHERS else f"{kernel}-{other}"


def _gain(ours: pd.DataFrame, theirs: pd.DataFrame, metric: str) -> list[float]:
    """Return the gain of one method over another, with the choices of all trials resampled."""
    both = ours.merge(theirs, on=["data", "trial"])
    differences = [
        np.subtract(a["by_basket"][metric], b["by_basket"][metric])
        for a, b in zip(both.result_x, both.result_y, strict=True)
    ]
    tasks = [Task("negatives", data, "", trial) for data, trial in zip(both["data"], both.trial, strict=True)]
    return mean_lead(both["data"].tolist(), [asked_ids(task) for task in tasks], differences)
