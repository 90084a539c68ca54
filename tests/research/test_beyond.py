"""The comparison beyond the paper: every method runs, and the chapter says what is reached, by how much, how surely."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.research import beyond, experiments
from contradpp.research.paper import BEYOND_LABELS, Protocol, Task, tasks_of
from contradpp.research.tables import Collected


def small_split(task: Task) -> tuple[cd.Baskets, cd.Baskets]:
    rng = np.random.default_rng(task.trial)
    lists = [rng.choice(12, size=int(size), replace=False).tolist() for size in rng.integers(1, 5, size=200)]
    return cd.Baskets.from_lists(lists, items=range(12)).split(0.2, random_state=0)


@pytest.mark.parametrize("method", list(BEYOND_LABELS))
def test_every_method_runs(method: str, monkeypatch):
    monkeypatch.setattr(experiments, "split", small_split)
    monkeypatch.setattr(beyond, "MOST_ASKED", 20)
    found = beyond.measure(Task("beyond", "amazon/feeding", method, 0), 1)
    assert all(len(values) == 20 for values in found["by_basket"].values())
    assert 0 <= found["metrics"]["mpr"] <= 100
    assert found["metrics"]["p10"] == pytest.approx(np.mean(found["by_basket"]["p10"]))
    no_law = ("itemknn-cosine", "itemknn", "ease", "ridge", "baskets")
    assert (found["metrics"]["log_likelihood"] is None) == (method in no_law)
    assert (found["chosen"] is None) == (method not in beyond.TUNED)


def test_the_model_without_its_kernel_does_not_hear_it():
    train, _ = small_split(Task("beyond", "uk", "x", 0))
    model = beyond.WithoutKernel(n_jobs=1, random_state=0).fit(train)
    assert "kernel" not in model.weights_
    np.testing.assert_allclose(model.predict_next([[1], [2, 3]]).sum(axis=1), 1)


def made_up(mpr: float, shift: float = 0.0) -> dict:
    rng = np.random.default_rng(0)
    by_basket = {name: (mpr + shift + rng.normal(size=50) * 0.1).tolist() for name in beyond.METRICS}
    metrics = {name: float(np.mean(values)) for name, values in by_basket.items()}
    return {"metrics": {**metrics, "log_likelihood": -10.0}, "by_basket": by_basket, "seconds": 1.0, "rounds": 3}


def test_the_chapter_says_what_is_reached_and_how_surely():
    tasks = tasks_of("beyond", Protocol(trials=2))
    assert not [task for task in tasks if task.method == "ease" and task.data == "instacart"]
    values = {"conditional": 90.5, "conditional-no-kernel": 90.5, "baskets": 90.0}
    results = {task: made_up(values.get(task.method, 80.0)) for task in tasks if task.data != "tafeng"}
    chapter = beyond.chapter(Collected(Protocol(trials=2), results))
    assert [table.title for table in chapter.tables] == [group for group in beyond.GROUPS if group != "Ta-Feng"]
    text = " ".join(chapter.findings)
    assert "Amazon, mean of 7: MPR of the conditional DPP 90.5" in text
    assert "(goal 78.9: reached); over BasketNeighbours, the best single model: +0.50 [+0.50, +0.50]" in text
    assert "UK: MPR of the conditional DPP" in text
    assert "(goal 93.9: missed)" in text
    assert "the kernel among the voices brings +0.00 [+0.00, +0.00], not clear of zero" in text
    assert "Groceries: MPR" in text


def test_intervals_are_those_of_the_mean_over_data_sets():
    rng = np.random.default_rng(0)
    results = {}
    for data, shift in (("uk", 1.0), ("belgian", 3.0)):
        base = rng.normal(size=400)
        for method, values in (("a", base + shift + rng.normal(size=400)), ("b", base)):
            results[Task("beyond", data, method, 0)] = {"by_basket": {"mpr": values.tolist()}}
    found = beyond.gain(Collected(Protocol(), results), ("uk", "belgian"), "a", "b", "mpr")
    assert found.value == pytest.approx(2, abs=0.15)
    assert found.low < found.value < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.sqrt(1 / 400 / 2), rel=0.2)
    assert beyond.gain(Collected(Protocol(), results), ("uk",), "a", "c", "mpr") is None
