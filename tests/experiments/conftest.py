"""Small data under the names of the paper's, and results that need no training."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from experiments import protocol, run
from experiments.paper import training
from experiments.protocol import Task

PROBABILITIES = np.arange(8, 0, -1) / 36


@pytest.fixture(autouse=True)
def small_pictures(monkeypatch):
    """Draw figures at a low resolution."""
    monkeypatch.setattr(run, "DPI", 30)


@pytest.fixture
def tiny(monkeypatch):
    """Every data set is 120 baskets of 8 items (the toy set stays what it is); two registries; few rounds."""
    rng = np.random.default_rng(0)
    lists = [rng.choice(8, size=rng.integers(2, 4), replace=False, p=PROBABILITIES).tolist() for _ in range(120)]
    baskets = cd.Baskets.from_lists(lists)
    toy = cd.Baskets.from_lists([[1, 2]] * 50 + [[3, 4]] * 50)
    monkeypatch.setattr(training, "load", lambda name: toy if name == "toy" else baskets)
    for name in protocol.DATA:
        monkeypatch.setitem(protocol.DATA, name, protocol.DataPlan(2 if name == "toy" else 4, paper_rounds=1))
    monkeypatch.setattr(protocol, "AMAZON", ("amazon/apparel", "amazon/feeding"))


@pytest.fixture
def fake():
    """A function that makes up a result of the right form for a task."""
    return fake_result


@pytest.fixture
def faked(monkeypatch):
    """No training: `carry_out` gives made-up results, and notes what it was asked for."""
    tasks: list[Task] = []

    def carry_out(task, *, n_jobs=None):
        tasks.append(task)
        return fake_result(task)

    monkeypatch.setattr(run, "carry_out", carry_out)
    return tasks


@pytest.fixture
def two_kinds():
    """A function that splits 300 baskets of two kinds: items 0 to 5 meet, and 6 to 11 do."""
    return small_split


def small_split(task: Task) -> tuple[cd.Baskets, cd.Baskets]:
    """Split the baskets of two kinds."""
    rng = np.random.default_rng(task.trial)
    sizes, kinds = rng.integers(2, 6, size=300), rng.integers(0, 2, size=300)
    lists = [
        (rng.choice(6, size=int(n), replace=False) + 6 * kind).tolist() for n, kind in zip(sizes, kinds, strict=True)
    ]
    return cd.Baskets.from_lists(lists, items=range(12)).split(0.2, random_state=0)


def fake_result(task: Task) -> dict:
    """A result of the right form that depends on the task."""
    shift = 0.1 * task.trial + 0.01 * len(task.method) + (0.5 if task.settings == "default" else 0.0)
    history = {"iteration": [1, 2, 3], "seconds": [0.1, 0.2, 0.3], "validation": [-3.0, -2.0, -1.9]}
    training = {"seconds": 1.0 + shift, "rounds": 3, "steps": 6, "ended": "converged", "history": history}
    common = {"total_seconds": 1.5}
    if task.kind == "toy":
        pairs = {"probabilities": [0.5, 0.4, 0.6, 0.5], "geometric_mean": 0.49}
        return {**pairs, "divergences": [0.4, 0.3 + shift], "net_divergence": 0.7 + shift, **training, **common}
    if task.kind == "runtime":
        return {**training, **common}
    names = ("mpr", "mpr_paper", "mpr_pairs", "precision@1", "precision@5", "precision@10", "precision@20")
    metrics = dict.fromkeys(names, 80.0 + shift) | dict.fromkeys(("ndcg", "auc", "auc_paired", "coverage"), 0.6)
    sizes = [{"group": g, "n": 10, "mpr_paper": 80.0} for g in ("2-3", "4-7", "all")]
    result = {
        "metrics": metrics | {"log_likelihood": -10.0},
        "by_size": sizes,
        "single_share": 0.1,
        "n_test": 20,
        "n_items": 8,
        **common,
    }
    if task.method == "popularity":
        return {**result, "seconds": 0.1}
    at = {"none": 0.6, "likelihood": 0.62, "discrimination": 0.99}
    scaled = {
        "scales": {"none": 1.0, "likelihood": 0.9, "discrimination": 5.0},
        "auc": at,
        "auc_pairs": dict.fromkeys(at, 0.993),
        "log_likelihood": dict.fromkeys(at, -10.0 + shift),
        "sweep": {"log10_c": [-2.0, 0.0, 2.0], "auc": [0.5, 0.6, 0.975], "auc_pairs": [0.5, 0.6, 0.99]},
    }
    return {**result, **training, "scaled": scaled}
