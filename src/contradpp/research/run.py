"""Run one task of the protocol: split, fit, evaluate."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.errors import ConvergenceError
from contradpp.learn.callbacks import Array, Callback, Record
from contradpp.metrics.report import evaluate
from contradpp.models.baselines import Popularity
from contradpp.models.lowrank import LowRankDPP
from contradpp.research import beyond, scaling, toy
from contradpp.research.paper import TEST_SHARE, Task
from contradpp.research.store import Result, plain

KS = (1, 5, 10, 20)
VALIDATION = {"default": 0.05, "paper": 0.01}  # of the training baskets: those that `LowRankDPP` would set aside
MOST_VALIDATION = 5000
POINTS = 200  # of a convergence curve


def run(task: Task, *, n_jobs: int | None = None) -> Result:
    """The result of a task, as plain values for JSON."""
    started = time.perf_counter()
    result = RUNNERS[task.kind](task, n_jobs)
    return {**plain(result), "total_seconds": time.perf_counter() - started}


def fit_and_evaluate(task: Task, n_jobs: int | None) -> Result:
    """All metrics of a method on the test part of a data set; the AUC at three scales of the same kernel."""
    train, test = split(task)
    if task.method == "popularity":
        started = time.perf_counter()
        report = evaluate(Popularity().fit(train), test, KS, task.trial, train=train, n_jobs=n_jobs)
        return {**_metrics(report), "seconds": time.perf_counter() - started}
    part, validation = _set_aside(task, train)
    model, outcome = fit(task, part, validation, n_jobs)
    report = evaluate(model, test, KS, task.trial, train=train, n_jobs=n_jobs)
    scaled = scaling.scaled_results(model, validation, test, report, task.trial)
    return {**_metrics(report), **outcome, "scaled": scaled}


def figure1(task: Task, n_jobs: int | None) -> Result:
    """The pair probabilities and divergences of one run on the toy set."""
    train, _ = split(task)
    part, validation = _set_aside(task, train)
    model, outcome = fit(task, part, validation, n_jobs)
    return {**toy.measure(model), **outcome}


def runtime(task: Task, n_jobs: int | None) -> Result:
    """Seconds to convergence on one thread, after everything has been compiled."""
    del n_jobs  # the comparison is between methods, not between machines
    train, _ = split(task)
    part, validation = _set_aside(task, train)
    _warm_up(task.method, task.settings, task.data)
    return fit(task, part, validation, 1)[1]


RUNNERS: dict[str, Callable[[Task, int | None], Result]] = {
    "fit": fit_and_evaluate,
    "toy": figure1,
    "runtime": runtime,
    "beyond": lambda task, n_jobs: beyond.run(task, n_jobs, split),
}


def fit(task: Task, part: Baskets, validation: Baskets, n_jobs: int | None) -> tuple[LowRankDPP, Result]:
    """A trained model, and how its training went."""
    model = LowRankDPP(**task.estimator, n_jobs=n_jobs)
    ended, limit = "converged", _Limit(task.plan.paper_rounds)
    started = time.perf_counter()
    try:
        model.fit(part, validation=validation, callbacks=[limit] if task.settings == "paper" else [])
    except _LimitReached:
        ended = "cut off"
    except ConvergenceError as error:  # the model keeps its best parameters: they are what the method reached
        ended = str(error)
    seconds = time.perf_counter() - started
    if ended == "converged" and model.n_iter_ >= (model.max_iter if task.settings == "default" else np.inf):
        ended = "cut off"
    return model, {
        "seconds": seconds,
        "rounds": model.n_iter_,
        "steps": model.history_[-1]["step"] if model.history_ else 0,
        "ended": ended,
        "history": _thinned(model.history_),
    }


@lru_cache(maxsize=8)
def load(name: str) -> Baskets:
    """A data set; kept, because every trial splits it anew."""
    return datasets.load(name)


def split(task: Task) -> tuple[Baskets, Baskets]:
    """80 % of the baskets for training and the rest for the test, by the trial's seed."""
    return load(task.data).split(TEST_SHARE, random_state=task.trial)


def _set_aside(task: Task, train: Baskets) -> tuple[Baskets, Baskets]:
    """What is trained on, and what decides when to stop and at which scale."""
    count = min(max(round(VALIDATION[task.settings] * train.n_baskets), 2), MOST_VALIDATION)
    return train.split(count, random_state=task.trial)


def _metrics(report: Any) -> Result:
    sizes = [{"group": row.group, "n": row.n, "mpr": row.mpr} for row in report.by_size.rows]
    larger = [row for row in sizes if row["group"] not in ("1", "all")]
    n = sum(row["n"] for row in larger)
    pairs = sum(row["n"] * row["mpr"] for row in larger) / n if n else None  # of baskets of two or more items
    return {
        "metrics": {**report.metrics, "mpr_pairs": pairs},
        "by_size": sizes,
        "single_share": 1.0 - n / max(sizes[-1]["n"], 1),
        "n_test": report.n_baskets,
        "n_items": report.n_items,
    }


def _thinned(history: list[Record]) -> dict[str, list[float]]:
    """The curve of the validation score, at no more than `POINTS` rounds, the first and last among them."""
    chosen = sorted(set(np.linspace(0, len(history) - 1, POINTS).round().astype(int).tolist())) if history else []
    return {name: [history[i][name] for i in chosen] for name in ("iteration", "seconds", "validation")}


@lru_cache(maxsize=32)
def _warm_up(method: str, settings: str, data: str) -> None:
    """Compile what the method needs, on a few baskets."""
    few = load(data).subset(np.arange(min(200, load(data).n_baskets)))
    task = Task("runtime", data, method, 0, settings, overrides=(("max_iter", 2),))
    fit(task, few, few, 1)


class _LimitReached(Exception):
    """Training was cut off."""


class _Limit(Callback):
    """Ends a training that would go on for hours; the model keeps the best parameters so far."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_iteration(self, record: Record, best: Array) -> None:  # noqa: ARG002
        """See `Callback`."""
        if record["iteration"] >= self.rounds:
            raise _LimitReached
