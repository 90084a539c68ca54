"""The experiment with slates: every way runs, settings are chosen apart from the test, the chapter says what came."""

from __future__ import annotations

import json
import math

import pytest

import contradpp as cd
from contradpp.metrics.intervals import plain
from contradpp.research import experiments, reproduce, slates
from contradpp.research.paper import Protocol, Task, tasks_of
from contradpp.research.tables import Collected

TASK = Task("slates", "groceries", "conditional", 0)


@pytest.fixture
def result(monkeypatch) -> dict:
    shop = cd.datasets.load("grocer", n_baskets=1200, random_state=0)
    kernel = cd.NonsymmetricDPP(4, 4, max_iter=2)
    monkeypatch.setattr(experiments, "split", lambda task: shop.split(0.2, random_state=task.trial))
    monkeypatch.setattr(slates, "ConditionalDPP", lambda **told: cd.ConditionalDPP(kernel, **told))
    monkeypatch.setattr(slates, "SETTINGS", (0.1, 0.5))
    monkeypatch.setattr(slates, "OURS", (0.3, 0.6))
    monkeypatch.setattr(slates, "N_LIKELIHOODS", 40)
    return plain(slates.measure(TASK, 1))


def test_every_way_runs_and_the_chapter_is_written(result, tmp_path, monkeypatch):
    ways = result["ways"]
    assert {"Top 10", "ours, as learned", "ours", "MMR, our likeness", "MSD, co-occurrence"} <= ways.keys()
    assert all(0 < way["metrics"]["recall"] < 1 for way in ways.values())
    assert ways["Top 10"]["gains"]["recall"] == [0, 0, 0]
    gains = ways["ours"]["gains"]["categories_hit"]
    assert gains[1] <= gains[0] <= gains[2]
    assert len(result["curves"]["ours"]) == 2
    assert math.isfinite(result["likelihood"]["gain"])
    monkeypatch.setattr(reproduce, "carry_out", lambda task, n_jobs=None: {**result, "total_seconds": 1.0})
    monkeypatch.setattr(reproduce, "DPI", 30)
    (chapter,) = reproduce.reproduce(["slates"], tmp_path, Protocol(quick=True))
    text = (tmp_path / "slates.md").read_text(encoding="utf-8")
    assert "nan" not in text.lower()
    assert "categories hit" in text
    assert (tmp_path / "figures" / "slates-pareto.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "slates.json").read_text(encoding="utf-8"))["results"]["uk"]["ways"] == ways
    assert chapter.findings[0].startswith("groceries, as learned (")


def test_sentences_tell_gain_from_loss(result):
    told = json.loads(json.dumps(result))
    told["ways"]["ours, as learned"]["gains"] |= {"recall": [-0.02, -0.03, -0.01], "hit": [0.01, 0.005, 0.015]}
    told["ways"]["ours"]["metrics"]["categories_hit"] = 9.0
    told["ways"]["MMR, co-occurrence"]["kept"] = True
    told["likelihood"] |= {"gain": 0.1, "low": 0.05, "high": 0.15}
    text = " ".join(slates.chapter(Collected(Protocol(), {TASK: told})).findings)
    assert "recall −0.0200 [−0.0300, −0.0100], below the top 10" in text
    assert "any hit +0.0100 [+0.0050, +0.0150]: above" in text
    assert "9.0000, more than the best of the references" in text
    assert "[+0.0500, +0.1500] beside Φ = I (40 baskets): above 0" in text
    for way in told["ways"].values():
        way["kept"] = False
    text = " ".join(slates.chapter(Collected(Protocol(), {TASK: told})).findings)
    assert "9.0000, where no reference keeps that." in text


def test_quick_leaves_the_large_data_out():
    assert [task.data for task in tasks_of("slates", Protocol(quick=True))] == ["groceries", "uk"]
    assert len(tasks_of("slates", Protocol())) == 4
