"""The comparison beyond the paper: every method runs, and the report says what is reached and what is not."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.research import experiments, studies
from contradpp.research.paper import BEYOND_LABELS, Protocol, Task, tasks_of
from contradpp.research.tables import Collected


def small_split(task: Task) -> tuple[cd.Baskets, cd.Baskets]:
    rng = np.random.default_rng(task.trial)
    lists = [rng.choice(12, size=int(size), replace=False).tolist() for size in rng.integers(2, 5, size=200)]
    return cd.Baskets.from_lists(lists, items=range(12)).split(0.2, random_state=0)


@pytest.mark.parametrize("method", list(BEYOND_LABELS))
def test_every_method_runs(method: str, monkeypatch):
    monkeypatch.setattr(experiments, "split", small_split)
    found = experiments.beyond(Task("beyond", "amazon/feeding", method, 0), 1)
    assert 0 <= found["metrics"]["mpr"] <= 100
    assert 0 <= found["metrics"]["p10"] <= 100
    assert (found["metrics"]["log_likelihood"] is None) == (method in ("itemknn-cosine", "itemknn", "ease"))


def made_up(mpr: float) -> dict:
    metrics = {"mpr": mpr, "p10": 50.0, "p1": 10.0, "ndcg": 0.3, "log_likelihood": -10.0}
    return {"metrics": metrics, "seconds": 1.0, "rounds": 3}


def test_report_says_what_is_reached_and_what_is_missed():
    tasks = tasks_of("beyond", Protocol())
    results = {task: made_up(90.5 if task.method == "nonsymmetric" else 80.0) for task in tasks}
    chapter = studies.beyond(Collected(Protocol(), results))
    assert [len(table.rows) for table in chapter.tables] == [len(BEYOND_LABELS)] * 3
    text = " ".join(chapter.findings)
    assert "Amazon, mean of 7: MPR 90.50 (goal 77.8): reached; above the best of the others, 80.00." in text
    assert "UK: MPR 90.50 (goal 91.0): missed; above" in text
    assert "UK: log-likelihood -10.00 (goal -98.0, symmetric -10.00): reached." in text
