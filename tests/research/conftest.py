"""Small data under the names of the paper's, and results that need no training."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.research import experiments, paper, reproduce
from research.made_up import fake_result

PROBABILITIES = np.arange(8, 0, -1) / 36


@pytest.fixture
def tiny(monkeypatch):
    """Every data set is 120 baskets of 8 items (the toy set stays what it is); two registries; few rounds."""
    rng = np.random.default_rng(0)
    lists = [rng.choice(8, size=rng.integers(2, 4), replace=False, p=PROBABILITIES).tolist() for _ in range(120)]
    baskets = cd.Baskets.from_lists(lists)
    toy = cd.Baskets.from_lists([[1, 2]] * 50 + [[3, 4]] * 50)
    monkeypatch.setattr(reproduce, "DPI", 30)
    monkeypatch.setattr(experiments, "load", lambda name: toy if name == "toy" else baskets)
    for name in paper.DATA:
        monkeypatch.setitem(paper.DATA, name, paper.DataPlan(2 if name == "toy" else 4, paper_rounds=1))
    monkeypatch.setattr(paper, "AMAZON", ("amazon/apparel", "amazon/feeding"))


@pytest.fixture
def faked(monkeypatch):
    """No training: `carry_out` gives made-up results, and notes what it was asked for."""
    asked: list[paper.Task] = []

    def fake(task, *, n_jobs=None):
        asked.append(task)
        return fake_result(task)

    monkeypatch.setattr(reproduce, "carry_out", fake)
    monkeypatch.setattr(reproduce, "DPI", 30)
    return asked
