"""The benchmark: every model is asked the same, the tables say who is ahead, and the page is what was found."""

from __future__ import annotations

import json

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.sets import Sets
from experiments import protocol
from experiments.benchmark import leaderboard, measure, page
from experiments.benchmark.models import DATA, MODELS, WithoutKernel, groups_of
from experiments.pages import Results, replaced
from experiments.paper import training
from experiments.protocol import Protocol, Task, tasks_of
from experiments.run import ROOT


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", list(MODELS))
def test_every_model_is_asked_everything(method: str, monkeypatch, two_kinds):
    if not MODELS[method].available:
        pytest.skip(f"{MODELS[method].package} is not installed")
    monkeypatch.setattr(training, "split", two_kinds)
    found = measure.measure(Task("benchmark", "uk", method, 0, "quick"), 1)
    has_distribution = method in ("popularity", "flid", "ndpp") or MODELS[method].ours
    expected = set(measure.METRICS) - (
        set() if has_distribution else {"logp_matched", "logp_uniform", "log_likelihood", "log_size", "composition"}
    )
    assert set(found["metrics"]) == expected
    assert all(len(found["by_basket"][name]) == 60 for name in ("ndcg", "p10", "matched"))
    assert 0 <= found["metrics"]["matched"] <= 1
    assert found["cpu_seconds"] >= 0
    assert found["query_ms"] > 0
    assert ("chosen" in found) == (found["tried"] > 1)
    if not has_distribution and method not in ("bpr", "lmf"):  # those have no way to take a new basket in
        assert found["metrics"]["mpr"] > 70  # what goes together is plain to see
        assert found["metrics"]["matched"] > 0.8


def test_log_sizes_by_samples_are_near_the_exact_ones(monkeypatch, two_kinds):
    train, test = two_kinds(Task("benchmark", "uk", "x", 0))
    for model in (
        cd.MixtureDPP(cd.NonsymmetricDPP(0, 0), 2, smoothing=5.0, random_state=0).fit(train),
        cd.baselines.Popularity().fit(train),
    ):
        evaluation = measure.Evaluation(model, train, test, 0, 1)
        found = measure.sets_and_likelihood(evaluation)
        np.testing.assert_allclose(found["log_size"] + found["composition"], found["log_likelihood"])
        exact = np.exp(measure.log_sizes(evaluation))
        assert 0.5 < exact.sum() <= 1 + 1e-9
        if model.__class__.__name__ == "MixtureDPP":
            np.testing.assert_allclose(exact, model.size_distribution()[: len(exact)])
            monkeypatch.setattr(measure, "SIZES_EXACTLY", 0)
            np.testing.assert_allclose(np.exp(measure.log_sizes(evaluation)), exact, atol=0.03)


def test_lift_prefers_what_goes_together(two_kinds):
    train, test = two_kinds(Task("benchmark", "uk", "x", 0))
    for model in (cd.baselines.EASE().fit(train), cd.NonsymmetricDPP(3, 3, max_iter=20, random_state=0).fit(train)):
        found = measure.sets_and_likelihood(measure.Evaluation(model, train, test, 0, 1))
        assert found["lift_matched"].mean() > 0.8
    alone = cd.baselines.Popularity().fit(train)
    found = measure.sets_and_likelihood(measure.Evaluation(alone, train, test, 0, 1))
    assert 0.3 < found["lift_matched"].mean() < 0.7


def test_popular_sets_are_drawn_as_often_as_items_were_sold():
    train = cd.Baskets.from_lists([["a", "b"], ["a"], ["a", "c"]] * 10)
    sets = Sets(np.arange(0, 4001, 2), np.zeros(4000, dtype=np.int32))
    drawn = measure.popular_sets(sets, train, np.random.default_rng(0)).indices.reshape(-1, 2)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    first = np.bincount(drawn[:, 0], minlength=3) / len(drawn)
    np.testing.assert_allclose(first, [0.6, 0.2, 0.2], atol=0.03)


def test_what_cannot_be_answered_counts_as_a_coin_would(two_kinds):
    train, test = two_kinds(Task("benchmark", "uk", "x", 0))
    model = cd.LowRankDPP(3, objective="mle", max_iter=2, oversize="drop", random_state=0).fit(train)
    evaluation = measure.Evaluation(model, train, test, 0, 1)
    large = np.setdiff1d(np.arange(test.n_baskets), evaluation.answered)
    assert len(large)
    found = measure.next_item(evaluation) | measure.sets_and_likelihood(evaluation)
    for name, expected in (("ndcg", 0), ("mpr", 50), ("matched", 0.5), ("uniform", 0.5)):
        np.testing.assert_array_equal(found[name][large], expected)
    assert np.isnan(found["log_likelihood"][large]).all()


def test_a_basket_that_a_kernel_holds_impossible_is_not_timed():
    """Items 0 and 1 are alike to this kernel, so that nothing follows a basket with both of them."""
    V = np.eye(3)[[0, 0, 1, 2]]
    model = cd.LowRankDPP.from_factors(V, items=range(4))
    baskets = cd.Baskets.from_lists([[0, 1, 2], [0, 2, 3], [1, 2, 3]], items=range(4))
    assert measure.query_milliseconds(measure.Evaluation(model, baskets, baskets, 0, 1)) > 0


def test_settings_are_chosen_apart_from_the_test(monkeypatch, two_kinds):
    """What is chosen does not change with the test baskets, and is the best of the validation scores."""
    monkeypatch.setattr(training, "split", lambda task: (two_kinds(task)[0], two_kinds(task)[1][:20]))
    few = measure.measure(Task("benchmark", "uk", "itemknn", 0, "quick"), 1)
    monkeypatch.setattr(training, "split", two_kinds)
    all_of_them = measure.measure(Task("benchmark", "uk", "itemknn", 0, "quick"), 1)
    assert few["validation_ndcg"] == all_of_them["validation_ndcg"]
    assert few["chosen"] == all_of_them["chosen"]


def test_the_model_without_its_kernel_does_not_hear_it(two_kinds):
    train, _ = two_kinds(Task("benchmark", "uk", "x", 0))
    model = WithoutKernel(n_jobs=1, random_state=0).fit(train)
    assert "kernel" not in model.weights_
    np.testing.assert_allclose(model.predict_next([[1], [2, 3]]).sum(axis=1), 1)


def test_a_model_that_refuses_is_a_result(monkeypatch, two_kinds):
    monkeypatch.setattr(training, "split", two_kinds)
    monkeypatch.setattr("contradpp.experts.ease.DENSE_UP_TO", 10)
    found = measure.measure(Task("benchmark", "uk", "ease", 0, "quick"), 1)
    assert "EASE is dense" in found["refused"]


def made_up(value: float, shift: float = 0.0, noise: float = 0.1) -> dict:
    rng = np.random.default_rng(0)
    by_basket = {name: (value + shift + rng.normal(size=50) * noise).tolist() for name in measure.METRICS}
    costs = {"seconds": 1.0, "cpu_seconds": 1.5, "memory_mb": 3.0, "query_ms": 0.2, "tried": 1}
    profile = dict.fromkeys(("n_baskets", "n_items", "mean_size", "singles", "top_percent", "met_before"), 0.5)
    return {"metrics": {n: float(np.mean(v)) for n, v in by_basket.items()}, "by_basket": by_basket, **costs,
            "profile": profile}  # fmt: skip


@pytest.fixture
def same_baskets(monkeypatch) -> None:
    """Every split asks the same fifty baskets."""
    monkeypatch.setattr(measure, "asked_baskets", lambda task: (np.arange(50), np.full(50, 4)))


def collected(values: dict[str, float], **options) -> Results:
    quick = Protocol(quick=True, **options)
    return Results(quick, {t: made_up(values.get(t.method, 0.5)) for t in tasks_of("benchmark", quick)})


def test_the_section_says_who_is_ahead_and_how_surely(same_baskets):
    data = collected({"conditional": 0.9, "conditional-no-kernel": 0.8, "ease": 0.7}, data=("uk", "groceries"))
    section = page.section("benchmark", data)
    text = " ".join(section.findings)
    assert "Next item, UK: ConditionalDPP ahead of EASE, the best of the others: +0.2000 [+0.2000, +0.2000]" in text
    assert "the kernel brings +0.1000 [+0.1000, +0.1000]" in text
    table = section.tables[0]
    assert list(table.frame) == ["model", "Groceries", "UK"]
    cells = {row[0]: row[2] for row in table.rows}
    assert cells["ConditionalDPP"].startswith("**")
    assert cells["ConditionalDPP"].endswith("(1)")
    assert cells["EASE"].endswith("(3)")
    assert section.tables[-1].rows == []  # no baseline is ahead
    behind = page.section("benchmark", collected({"conditional": 0.6, "ease": 0.7}, data=("uk",)))
    assert "ConditionalDPP behind EASE" in behind.findings[0]
    assert ("UK", "Next item", "nDCG@10", "EASE", "−0.1000 [−0.1000, −0.1000]") in behind.tables[-1].rows


def test_intervals_are_those_of_the_mean_over_data_sets(monkeypatch):
    monkeypatch.setattr(measure, "asked_baskets", lambda task: (np.arange(400), np.full(400, 4)))
    rng = np.random.default_rng(0)
    results = {}
    for data, shift in (("amazon/bath", 1.0), ("amazon/gear", 3.0)):
        base = rng.normal(size=400)
        for method, values in (("conditional", base + shift + rng.normal(size=400)), ("ease", base)):
            results[Task("benchmark", data, method, 0, "quick")] = made_up(0) | {"by_basket": {"ndcg": values.tolist()}}
    (column,) = leaderboard.summarize(Results(Protocol(), results)).values()
    value, low, high = column["models"]["ease"]["ndcg"]["lead"]
    assert value == pytest.approx(2, abs=0.15)
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(1 / 400 / 2), rel=0.2)


def test_a_basket_of_several_seeds_is_drawn_alike_in_each(monkeypatch):
    """Values that a seed does not change: the interval has the width of the mean's own sampling deviation.

    The definition draws a data set, splits it by three seeds and takes the mean of the three test means. Test sets
    resampled apart from each other give sqrt(1 + 2 · 0.2) times too little.
    """
    n, n_test, n_seeds = 2000, 400, 3
    ids = [np.sort(np.random.default_rng(seed).permutation(n)[:n_test]) for seed in range(n_seeds)]
    monkeypatch.setattr(measure, "asked_baskets", lambda task: (ids[task.trial], np.full(n_test, 4)))
    rng = np.random.default_rng(9)
    true = np.std([np.mean([values[own].mean() for own in ids]) for values in rng.normal(size=(4000, n))])
    widths = []
    for _ in range(10):
        values = rng.normal(size=n)
        results = {
            Task("benchmark", "uk", method, seed, "quick"): made_up(0)
            | {"by_basket": {"ndcg": (sign * values[ids[seed]]).tolist()}}
            for method, sign in (("conditional", 1), ("ease", 0))
            for seed in range(n_seeds)
        }
        (column,) = leaderboard.summarize(Results(Protocol(), results)).values()
        _, low, high = column["models"]["ease"]["ndcg"]["lead"]
        widths.append(high - low)
    assert np.mean(widths) / (2 * 1.96) == pytest.approx(true, rel=0.05)
    apart = np.sqrt(1 / (n_test * n_seeds))
    assert apart / true == pytest.approx(1 / np.sqrt(1 + 2 * 0.2), rel=0.05)


def test_ids_are_those_of_the_baskets_that_are_asked(monkeypatch):
    """The baskets at these positions are those that `measure` asks, whether all are asked or some."""
    rng = np.random.default_rng(0)
    lists = [rng.choice(40, size=rng.integers(1, 6), replace=False).tolist() for _ in range(500)]
    everything = cd.Baskets.from_lists(lists, items=range(40))
    monkeypatch.setattr(training, "load", lambda name: everything)
    for most in (30, 1000):
        monkeypatch.setitem(protocol.ASKED, "quick", most)
        for trial in range(3):
            task = Task("benchmark", "uk", "x", trial, "quick")
            ids, sizes = measure.asked_baskets(task)
            queries = measure.some_of(training.split(task)[1], task.asked, trial)
            assert everything.subset(ids) == queries
            assert sizes.tolist() == queries.sizes.tolist()
    ids = [set(measure.asked_baskets(Task("benchmark", "uk", "x", trial, "quick"))[0]) for trial in range(2)]
    assert ids[0] & ids[1]


def test_a_model_that_is_not_there_for_all_is_left_out_of_the_mean(same_baskets):
    data = collected({}, data=("amazon/bath", "amazon/gear"), models=("popularity", "ease"))
    del data.by_task[Task("benchmark", "amazon/gear", "ease", 0, "quick")]
    (column,) = leaderboard.summarize(data).values()
    assert list(column["models"]) == ["popularity"]


def test_models_learn_from_what_was_bought_alone(monkeypatch):
    """A conditional DPP weighs its experts by choices where it knows them: it is still asked about all items."""
    bought = cd.Baskets.from_lists(
        [["a"], ["b"], ["a", "b"]] * 5, offered=[["a", "b"], ["b", "c"], ["a", "b", "c"]] * 5
    )
    monkeypatch.setattr(training, "load", lambda name: bought)
    task = Task("benchmark", "yoochoose", "popularity", 0, "quick")
    assert [part.offered for part in training.split(task)] == [None, None]
    assert all(part.offered is not None for part in training.split(task, choices=True))


def test_the_ladder_says_what_each_ingredient_brings(same_baskets):
    quick = Protocol(quick=True, data=("uk",))
    values = {"lowrank-mle": 0.6, "lowrank-product": 0.4, "lowrank-nce": 0.7, "conditional": 0.9, "nonsymmetric": 0.8}
    results = {t: made_up(values.get(t.method, 0.6)) for t in tasks_of("ingredients", quick)}
    section = page.section("ingredients", Results(quick, results))
    cells = dict(row[:2] for row in section.tables[0].rows)
    assert cells["the other experts"] == "**+0.1000 [+0.1000, +0.1000]**"
    assert cells["annealing"] == "+0.0000 [+0.0000, +0.0000]"
    (answer,) = section.findings
    assert "Do negatives help on UK?" in answer
    assert "nDCG@10 better with nce; worse with product; no different with explicit, dynamic, exact" in answer


def test_all_data_sets_are_known():
    assert set(DATA) <= set(cd.datasets.names())
    groups = {group.label: group.data for group in groups_of(("amazon/bath", "uk"))}
    assert groups == {"Amazon": ("amazon/bath",), "UK": ("uk",)}


def test_our_model_alone_has_a_page_too():
    """The command with `--models conditional` ended in an error when everything had been computed."""
    found = json.loads((ROOT / "docs" / "benchmark.json").read_text(encoding="utf-8"))
    for names in (("conditional",), ("conditional-no-kernel", "conditional")):
        alone = {
            label: {**column, "models": {name: column["models"][name] for name in names}, "profile": {}}
            for label, column in found.items()
        }
        section = page.benchmark_of(alone)
        assert "no others were run" in section.setup
        findings = [one for one in section.findings if "refused" not in one]
        assert all("the kernel brings" in one for one in findings)
        assert bool(findings) == (len(names) > 1)


def test_the_published_pages_are_what_was_found():
    """Pages in docs/ and README's table are made from numbers beside them, by `python -m experiments publish`."""
    names = ("benchmark", "ingredients")
    texts = {name: (ROOT / "docs" / f"{name}.json").read_text(encoding="utf-8") for name in names}
    published = {name: json.loads(text) for name, text in texts.items()}
    assert leaderboard.dump(published["benchmark"]) == texts["benchmark"]
    for path, blocks in page.blocks(published).items():
        written = (ROOT / path).read_text(encoding="utf-8")
        for name, content in blocks.items():
            assert replaced(written, name, content) == written, f"{path}: {name} is not what was found"
