"""The studies beside the benchmark: they run on small data, and settings are chosen apart from the test."""

from __future__ import annotations

import json

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.features import as_feature_table
from contradpp.data.sets import Sets
from contradpp.metrics.intervals import plain
from experiments import protocol, run
from experiments.benchmark import coldstart, defaults, measure, negatives, slates
from experiments.pages import Results
from experiments.paper import training
from experiments.protocol import CHOICE_LABELS, Protocol, Task, tasks_of

SLATES = Task("slates", "groceries", "conditional", 0)
COLD = Task("cold-start", "groceries", "conditional", 0)
M = 12


# -- Slates ----------------------------------------------------------------------------------------------


@pytest.fixture
def slates_result(monkeypatch) -> dict:
    shop = cd.datasets.load("grocer", n_baskets=1200, random_state=0)
    kernel = cd.NonsymmetricDPP(4, 4, max_iter=2)
    monkeypatch.setattr(training, "split", lambda task: shop.split(0.2, random_state=task.trial))
    monkeypatch.setattr(slates, "ConditionalDPP", lambda **options: cd.ConditionalDPP(kernel, **options))
    monkeypatch.setattr(slates, "SETTINGS", (0.1, 0.5))
    monkeypatch.setattr(slates, "OURS", (0.3, 0.6))
    return plain(slates.measure(SLATES, 1))


def test_every_way_runs_and_the_section_is_written(slates_result, tmp_path, monkeypatch):
    ways = slates_result["ways"]
    assert {"Top 10", "ours, default", "ours", "MMR, our similarity", "MSD, co-occurrence"} <= ways.keys()
    assert all(0 < way["metrics"]["recall"] < 1 for way in ways.values())
    assert ways["Top 10"]["gains"]["recall"] == [0, 0, 0]
    gains = ways["ours"]["gains"]["categories_hit"]
    assert gains[1] <= gains[0] <= gains[2]
    assert len(slates_result["curves"]["ours"]) == 2
    monkeypatch.setattr(run, "carry_out", lambda task, n_jobs=None: {**slates_result, "total_seconds": 1.0})
    (section,) = run.reproduce(["slates"], tmp_path, Protocol(quick=True))
    text = (tmp_path / "slates.md").read_text(encoding="utf-8")
    assert "nan" not in text.lower()
    assert "categories hit" in text
    assert (tmp_path / "figures" / "slates-pareto.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "slates.json").read_text(encoding="utf-8"))["results"]["uk"]["ways"] == ways
    assert section.findings[0].startswith("groceries, by default:")


# -- New items -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cold_result() -> dict:
    shop = cd.datasets.load("grocer", n_baskets=1500, random_state=0)
    table = {item: {"name": shop.items.name(item), "shelf": shelf} for item, shelf in shop.items.categories.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "load", lambda _: shop)
        patch.setattr(coldstart.datasets, "item_features", lambda _: as_feature_table(table))
        kernel = cd.NonsymmetricDPP(4, 4, max_iter=2)
        patch.setattr(coldstart, "ConditionalDPP", lambda **options: cd.ConditionalDPP(kernel, **options))
        return plain(coldstart.measure(COLD, 1))


def test_new_items_are_measured_in_every_way(cold_result, tmp_path, monkeypatch):
    cold = cold_result["cold"]
    assert cold["ways"].keys() == {"ours", "aisle", "cosine", "random"}
    assert cold["ways"]["random"]["MPR"] == pytest.approx(50)
    assert all(low <= gain <= high for gains in cold["gains"].values() for gain, low, high in gains.values())
    assert cold_result["warm"].keys() == {"fewer than ten times", "all"}
    assert cold_result["add_seconds"] > 0
    json.dumps(cold_result)
    protocol = Protocol("default", 1, quick=True)
    assert tasks_of("cold-start", protocol) == [COLD]
    section = coldstart.section(Results(protocol, {COLD: cold_result}))
    assert any("new products: ours beside cosine" in finding for finding in section.findings)
    monkeypatch.setattr(run, "carry_out", lambda task, n_jobs=None: cold_result | {"total_seconds": 1.0})
    run.reproduce(["cold-start"], tmp_path, protocol)
    assert "New items" in (tmp_path / "cold-start.md").read_text()


def test_ranks_count_rivals_outside_of_the_basket():
    scores = np.array([[5.0, 4.0, 4.0, 1.0, 9.0]])
    questions = coldstart.Queries(Sets.one([4]), np.array([2]))
    ahead, others = coldstart.ranks(questions, lambda _: scores.copy(), np.arange(5), 1)
    assert ahead.tolist() == [1.5]  # one ahead, and one tie
    assert others.tolist() == [3]


def test_questions_leave_out_one_wanted_item_of_a_basket():
    baskets = cd.Baskets.from_lists([[0, 1, 2], [1, 2], [0], [3, 4]])
    queries = coldstart.leave_one_out(baskets, np.array([True, False, False, True, True]), 10, seed=0)
    assert len(queries.items) == 2
    assert {*queries.items.tolist()} <= {0, 3, 4}
    assert sorted(queries.sets.sizes.tolist()) == [1, 2]


# -- Real negatives --------------------------------------------------------------------------------------


def choices(n: int = 900) -> cd.Baskets:
    """Items are taken by rates that have nothing to do with how often they are shown; one of two alike is enough."""
    rng = np.random.default_rng(0)
    rates, weights = rng.uniform(0.1, 0.9, M), rng.dirichlet(np.ones(M))
    offered = [rng.choice(M, size=rng.integers(2, 5), replace=False, p=weights).tolist() for _ in range(n)]
    chosen = []
    for items in offered:
        taken = [i for i in items if rng.random() < rates[i]]
        chosen.append([i for k, i in enumerate(taken) if not any(j // 2 == i // 2 for j in taken[:k])])
    nonempty = [number for number, items in enumerate(chosen) if items]
    return cd.Baskets.from_lists([chosen[k] for k in nonempty], offered=[offered[k] for k in nonempty], items=range(M))


@pytest.fixture
def small(monkeypatch) -> None:
    data = choices()
    monkeypatch.setattr(training, "load", lambda name: data)
    negatives.asked_ids.cache_clear()
    for key, settings in negatives.SETTINGS.items():
        n = {"n_components": 4} if key[0] == "lowrank" else {"n_components": 2, "n_skew": 2}
        monkeypatch.setitem(negatives.SETTINGS, key, {**settings, **n, "max_iter": 15})


def test_every_method_runs_and_the_section_is_written(small, tmp_path, monkeypatch):
    (section,) = run.reproduce(["negatives"], tmp_path, Protocol(quick=True), n_jobs=1)
    assert len(section.tables[0].rows) == len(CHOICE_LABELS)
    means = section.data["means"]
    assert means["lowrank-choice"]["log_likelihood"] > means["lowrank-mle"]["log_likelihood"]
    assert means["lowrank-real"]["mpr"] > means["lowrank-generated"]["mpr"]
    assert means["lift"]["mpr"] > means["frequency"]["mpr"]
    assert "lowrank-choice over lowrank-real" in section.data["gains"]
    text = (tmp_path / "negatives.md").read_text(encoding="utf-8")
    assert "nan" not in text.lower()
    assert "low rank, real negatives, over low rank, generated negatives: log-likelihood " in text
    assert json.loads((tmp_path / "negatives.json").read_text(encoding="utf-8"))["results"]["means"] == plain(means)


def test_ids_are_those_of_the_choices_that_are_asked(small, monkeypatch):
    monkeypatch.setattr(negatives, "MOST_ASKED", 50)
    for trial in range(2):
        task = Task("negatives", "yoochoose", "lift", trial)
        _, test = training.split(task, choices=True)
        assert choices().subset(negatives.asked_ids(task)) == test.subset(negatives.ranked_choices(test, trial))
    negatives.asked_ids.cache_clear()


def test_items_on_their_own_are_a_distribution(small):
    """Over all subsets of what was offered the probabilities add up to one."""
    data = choices()
    assert data.offered is not None
    offered = [int(i) for i in data.offered.indices[: data.offered.indptr[1]]]
    subsets = [[i for b, i in enumerate(offered) if code >> b & 1] for code in range(2 ** len(offered))]
    queries = cd.Baskets.from_lists(subsets, offered=[offered] * len(subsets), items=range(M))
    for kind in negatives.OTHERS:
        assert np.exp(negatives.ByItem(kind).fit(data).score_choices(queries)).sum() == pytest.approx(1.0)


# -- Defaults --------------------------------------------------------------------------------------------


def variant(validation: float, test: float) -> dict:
    return {"validation": validation, "test": [test] * 20}


def test_defaults_are_chosen_on_validation_baskets_of_other_data_sets(monkeypatch):
    """UK alone likes a large alpha, the others a small one: UK is left with what the others choose."""
    monkeypatch.setattr(measure, "asked_baskets", lambda task: (np.arange(20), np.full(20, 4)))
    results = {}
    for data, small, large in (("uk", 0.1, 0.5), ("groceries", 0.25, 0.1), ("belgian", 0.25, 0.1)):
        options = {"defaults": variant(0.2, 0.3), "alpha=0.1": variant(small, 0.4), "alpha=10": variant(large, 0.9)}
        results[Task("defaults", data, "nonsymmetric", 0, "quick")] = {"variants": options}
    section = defaults.section(Results(Protocol(quick=True), results))
    uk = next(sentence for sentence in section.findings if "UK" in sentence)
    assert uk == (
        "nonsymmetric, UK left out: the others choose alpha=0.1, which on its test baskets gains "
        "+0.1000 [+0.1000, +0.1000]."
    )
    assert section.tables[0].rows[0] == ("defaults", "+0.00", "+0.00", "+0.00")


@pytest.mark.parametrize("method", protocol.TUNED)
def test_every_variant_is_fitted_and_asked(method, monkeypatch, two_kinds):
    monkeypatch.setattr(training, "split", two_kinds)
    found = defaults.measure(Task("defaults", "uk", method, 0, "quick"), 1)["variants"]
    assert defaults.AS_IT_IS in found
    assert len(found) >= 5
    assert all(len(one["test"]) == 60 and 0 <= one["validation"] <= 1 for one in found.values())
