"""The experiment with real negatives: every method runs on choices of a known law, and the chapter says what came."""

from __future__ import annotations

import json

import numpy as np
import pytest

import contradpp as cd
from contradpp.metrics.intervals import plain
from contradpp.research import experiments, negatives, reproduce
from contradpp.research.paper import CHOICE_LABELS, NEGATIVES, Protocol, Task, tasks_of

M = 12


def choices(n: int = 900) -> cd.Baskets:
    """Items are taken by rates that have nothing to do with how often they are shown; one of two alike is enough."""
    rng = np.random.default_rng(0)
    rates, weights = rng.uniform(0.1, 0.9, M), rng.dirichlet(np.ones(M))
    offered = [rng.choice(M, size=rng.integers(2, 5), replace=False, p=weights).tolist() for _ in range(n)]
    chosen = []
    for items in offered:
        taken = [i for i in items if rng.random() < rates[i]]
        chosen.append([i for k, i in enumerate(taken) if not any(j // 2 == i // 2 for j in taken[:k])])
    kept = [number for number, items in enumerate(chosen) if items]
    return cd.Baskets.from_lists([chosen[k] for k in kept], offered=[offered[k] for k in kept], items=range(M))


@pytest.fixture
def small(monkeypatch) -> None:
    data = choices()
    monkeypatch.setattr(experiments, "load", lambda name: data)
    negatives.asked_ids.cache_clear()
    for key, settings in negatives.SETTINGS.items():
        n = {"n_components": 4} if key[0] == "lowrank" else {"n_components": 2, "n_skew": 2}
        monkeypatch.setitem(negatives.SETTINGS, key, {**settings, **n, "max_iter": 15})


def test_every_method_runs_and_the_chapter_is_written(small, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "DPI", 30)
    (chapter,) = reproduce.reproduce([NEGATIVES], tmp_path, Protocol(quick=True), n_jobs=1)
    assert len(chapter.tables[0].rows) == len(CHOICE_LABELS)
    means = chapter.data["means"]
    assert means["lowrank-choice"]["log_likelihood"] > means["lowrank-mle"]["log_likelihood"]
    assert means["lowrank-real"]["mpr"] > means["lowrank-generated"]["mpr"]
    assert means["lift"]["mpr"] > means["frequency"]["mpr"]
    assert "lowrank-choice over lowrank-real" in chapter.data["gains"]
    text = (tmp_path / "negatives.md").read_text(encoding="utf-8")
    assert "nan" not in text.lower()
    assert "low rank, real negatives, over low rank, generated negatives: log-likelihood " in text
    assert json.loads((tmp_path / "negatives.json").read_text(encoding="utf-8"))["results"]["means"] == plain(means)


def test_ids_are_those_of_the_choices_that_are_asked(small, monkeypatch):
    monkeypatch.setattr(negatives, "MOST_ASKED", 50)
    for trial in range(2):
        task = Task(NEGATIVES, "yoochoose", "lift", trial)
        _, test = experiments.split(task, choices=True)
        assert choices().subset(negatives.asked_ids(task)) == test.subset(negatives.asked(test, trial))
    negatives.asked_ids.cache_clear()


def test_items_on_their_own_are_a_law(small):
    """Over all subsets of what was offered the probabilities add up to one."""
    data = choices()
    assert data.offered is not None
    offered = [int(i) for i in data.offered.indices[: data.offered.indptr[1]]]
    subsets = [[i for b, i in enumerate(offered) if code >> b & 1] for code in range(2 ** len(offered))]
    asked = cd.Baskets.from_lists(subsets, offered=[offered] * len(subsets), items=range(M))
    for kind in negatives.OTHERS:
        assert np.exp(negatives.ByItem(kind).fit(data).score_choices(asked)).sum() == pytest.approx(1.0)


def test_tasks():
    tasks = tasks_of(NEGATIVES, Protocol())
    assert len(tasks) == 3 * len(CHOICE_LABELS)
    assert Task(NEGATIVES, "yoochoose", "lift", 2) in tasks
