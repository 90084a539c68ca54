"""The experiment with new items: it runs on a small shop, and its ranks are what they should be."""

from __future__ import annotations

import json

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.features import given_features
from contradpp.data.sets import Sets
from contradpp.metrics.intervals import plain
from contradpp.research import coldstart, experiments, reproduce
from contradpp.research.paper import Protocol, Task, tasks_of
from contradpp.research.tables import Collected

TASK = Task("cold-start", "groceries", "conditional", 0)


@pytest.fixture(scope="module")
def result() -> dict:
    shop = cd.datasets.load("grocer", n_baskets=1500, random_state=0)
    table = {item: {"name": shop.items.name(item), "shelf": shelf} for item, shelf in shop.items.categories.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "load", lambda _: shop)
        patch.setattr(coldstart.datasets, "item_features", lambda _: given_features(table))
        kernel = cd.NonsymmetricDPP(4, 4, max_iter=2)
        patch.setattr(coldstart, "ConditionalDPP", lambda **told: cd.ConditionalDPP(kernel, **told))
        return plain(coldstart.measure(TASK, 1))


def test_every_way_is_measured_and_the_chapter_is_written(result, tmp_path, monkeypatch):
    cold = result["cold"]
    assert cold["ways"].keys() == {"ours", "aisle", "cosine", "random"}
    assert cold["ways"]["random"]["MPR"] == pytest.approx(50)
    assert all(low <= gain <= high for gains in cold["gains"].values() for gain, low, high in gains.values())
    assert result["warm"].keys() == {"fewer than ten times", "all"}
    assert result["add_seconds"] > 0
    json.dumps(result)
    protocol = Protocol("default", 1, quick=True)
    assert tasks_of("cold-start", protocol) == [TASK]
    chapter = reproduce.coldstart.chapter(Collected(protocol, {TASK: result}))
    assert any("new products: ours beside cosine" in finding for finding in chapter.findings)
    monkeypatch.setattr(reproduce, "carry_out", lambda task, n_jobs=None: result | {"total_seconds": 1.0})
    reproduce.reproduce(["cold-start"], tmp_path, protocol)
    assert "New items" in (tmp_path / "cold-start.md").read_text()


def test_ranks_count_rivals_outside_of_the_basket():
    scores = np.array([[5.0, 4.0, 4.0, 1.0, 9.0]])
    questions = coldstart.Questions(Sets.one([4]), np.array([2]))
    ahead, rivals = coldstart.ranks(questions, lambda _: scores.copy(), np.arange(5), 1)
    assert ahead.tolist() == [1.5]  # one ahead, and one tie
    assert rivals.tolist() == [3]


def test_questions_leave_out_one_wanted_item_of_a_basket():
    baskets = cd.Baskets.from_lists([[0, 1, 2], [1, 2], [0], [3, 4]])
    asked = coldstart.ask(baskets, np.array([True, False, False, True, True]), 10, seed=0)
    assert len(asked.items) == 2
    assert {*asked.items.tolist()} <= {0, 3, 4}
    assert sorted(asked.sets.sizes.tolist()) == [1, 2]
