"""`evaluate_slates` against its definitions, item by item."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

import contradpp as cd
from contract import fitted
from contradpp.errors import DataError, ParameterError
from contradpp.metrics.compare import Comparison
from contradpp.slates.halves import hide

RNG = np.random.default_rng(0)
ITEMS = [f"i{number}" for number in range(14)]
CATEGORIES = {item: "abcd"[number % 4] for number, item in enumerate(ITEMS[:12])}  # two items have none
TEST = [RNG.permutation(ITEMS)[: RNG.integers(2, 11)].tolist() for _ in range(60)]
VECTORS = {item: RNG.normal(size=3) for item in ITEMS[:13]}


def some_slates(baskets: cd.Baskets, k: int) -> list[list[str]]:
    """Items outside of each basket, in an order of their own; every fifth slate is short."""
    rng = np.random.default_rng(1)
    lists = [[item for item in rng.permutation(ITEMS).tolist() if item not in basket] for basket in baskets]
    return [row[: 1 if number % 5 == 0 else k] for number, row in enumerate(lists)]


def define(slate: list[str], hidden: list[str], k: int) -> dict[str, float]:
    """All metrics of one slate, in plain loops."""
    category_of = {item: CATEGORIES.get(item, item) for item in ITEMS}
    gain, alpha_gain, counts = 0.0, 0.0, dict.fromkeys(category_of.values(), 0)
    for place, item in enumerate(slate):
        if item in hidden:
            gain += 1 / math.log2(place + 2)
            alpha_gain += 0.5 ** counts[category_of[item]] / math.log2(place + 2)
            counts[category_of[item]] += 1
    orders = itertools.permutations(hidden, min(k, len(hidden)))
    best = max(
        sum(0.5 ** sum(category_of[o] == category_of[item] for o in order[:place]) / math.log2(place + 2)
            for place, item in enumerate(order))
        for order in orders
    )  # fmt: skip
    found = [item for item in slate if item in hidden]
    pairs = list(itertools.combinations(slate, 2))
    units = {item: VECTORS[item] / np.linalg.norm(VECTORS[item]) if item in VECTORS else np.zeros(3) for item in ITEMS}
    mean = (lambda values: float(np.mean(values))) if pairs else (lambda values: math.nan)
    return {
        "recall": len(found) / len(hidden),
        "hit": float(bool(found)),
        "ndcg": gain / sum(1 / math.log2(place + 2) for place in range(min(k, len(hidden)))),
        "alpha_ndcg": alpha_gain / best,
        "categories_hit": len({category_of[item] for item in slate} & {category_of[item] for item in hidden}),
        "categories_found": len({category_of[item] for item in found}),
        "categories": len({category_of[item] for item in slate}),
        "distance_categories": mean([category_of[a] != category_of[b] for a, b in pairs]),
        "distance_vectors": mean([1 - units[a] @ units[b] for a, b in pairs]),
    }


def test_every_metric_is_its_definition():
    report = cd.evaluate_slates(some_slates, TEST, 4, categories=CATEGORIES, vectors=VECTORS)
    halves = hide(TEST)
    slates = some_slates(halves.given, 4)
    expected = [define(slate, hidden, 4) for slate, hidden in zip(slates, halves.hidden, strict=True)]
    for metric in expected[0]:
        assert np.allclose(report.by_basket[metric], [one[metric] for one in expected], equal_nan=True), metric
        assert report.metrics[metric] == pytest.approx(np.nanmean([one[metric] for one in expected]))
        assert getattr(report, metric) == report.metrics[metric]
    assert report.coverage == len({item for slate in slates for item in slate}) / 14
    assert report.n_baskets == len(slates) == sum(len(basket) >= 4 for basket in TEST)


def test_distance_by_baskets_counts_in_the_training_baskets():
    train = [["a", "b"], ["a", "b"], ["a", "c"], ["d", "e", "f", "g"]]
    report = cd.evaluate_slates([["a", "b", "c"]], [["d", "e", "f", "g"]], 3, train=train)
    jaccard = [2 / 3, 1 / 3, 0.0]
    assert report.distance_baskets == pytest.approx(1 - np.mean(jaccard))
    assert math.isnan(report.alpha_ndcg)
    assert math.isnan(report.distance_vectors)


@pytest.mark.parametrize("given", [0.25, 0.5, 0.9])
def test_hidden_halves(given):
    halves = hide(TEST, given, min_size=3, random_state=3)
    whole = [set(basket) for basket in TEST if len(basket) >= 3]
    assert halves.given.n_baskets == halves.hidden.n_baskets == len(whole)
    for shown, hidden, basket in zip(halves.given, halves.hidden, whole, strict=True):
        assert set(shown) | set(hidden) == basket
        assert not set(shown) & set(hidden)
        assert len(shown) == min(max(math.floor(given * len(basket)), 1), len(basket) - 1)
    again, other = (hide(TEST, given, min_size=3, random_state=seed) for seed in (3, 4))
    assert again.hidden == halves.hidden
    assert other.hidden != halves.hidden
    shares = np.zeros(len(ITEMS))
    for seed in range(200):
        shares += hide([ITEMS], given, random_state=seed).given.item_counts / 200
    assert np.abs(shares - math.floor(given * 14) / 14).max() < 0.15


@pytest.mark.parametrize("name", ["lowrank-mle", "nonsymmetric-exact", "popularity"])
def test_models_are_asked_for_their_slates(name):
    model = fitted(name)
    test = [list(model.items_)[:6], list(model.items_)[2:]] * 3
    report = cd.evaluate_slates(model, test, 3)
    halves = hide(test)
    ask = model.slate if hasattr(model, "slate") else model.recommend
    expected = [ask(basket, 3)[0].tolist() for basket in halves.given]
    assert [[halves.given.items[code] for code in row if code >= 0] for row in report.slates.tolist()] == expected
    if hasattr(model, "slate"):
        plain = cd.evaluate_slates(model, test, 3, diversity=0)
        best = cd.evaluate_slates(lambda baskets, k: model.recommend(baskets, k), test, 3)
        assert (plain.slates == best.slates).all()


def test_baskets_that_are_impossible_under_the_model_are_skipped():
    """Two items with the same factors are never in one set; others can be answered all the same."""
    V = np.random.default_rng(0).normal(size=(8, 6))
    V[1] = V[0]
    model = cd.LowRankDPP.from_factors(V, items=list("abcdefgh"))
    halves = hide([["a", "b", "c"], ["c", "d", "e"]] * 20, 0.67, min_size=2, random_state=0)
    both = [{"a", "b"} <= set(basket) for basket in halves.given]
    assert any(both)
    report = cd.evaluate_slates(model, [["a", "b", "c"], ["c", "d", "e"]] * 20, k=2, given=0.67, min_size=2)
    np.testing.assert_array_equal(np.isnan(report.by_basket["recall"]), both)
    assert report.n_skipped == sum(both)


def test_baskets_as_large_as_the_rank_are_skipped_and_unknown_items_are_missed():
    model = cd.LowRankDPP.from_factors(np.eye(6)[:, :4], items=list("abcdef"))
    report = cd.evaluate_slates(model, [list("abcd"), [*"abcdef", "x", "y"]], 2)
    assert report.n_skipped == int(np.isnan(report.by_basket["recall"]).sum())
    assert report.n_items == 8
    assert "could not be answered" in str(report) or not report.n_skipped
    full = cd.evaluate_slates([["x", "y", "a", "b"]], [["x", "y", "a", "b"]], 4)  # what is shown is no suggestion
    assert full.recall == 1
    assert (full.slates >= 0).sum() == 2


def test_differences_are_paired():
    ours = cd.evaluate_slates(some_slates, TEST, 4, categories=CATEGORIES)
    theirs = cd.evaluate_slates(lambda baskets, k: [row[::-1] for row in some_slates(baskets, k)], TEST, 4)
    gain = ours.difference(theirs, "recall")
    assert gain[:3] == (0, 0, 0)  # the same items in another order
    moved = ours.difference(theirs, "ndcg")
    assert moved.value == pytest.approx(ours.ndcg - theirs.ndcg)
    assert moved.low < moved.value < moved.high
    table = Comparison({"ours": ours, "theirs": theirs}, "theirs")
    assert table.difference("ours", "ndcg") == moved
    assert "α-nDCG" in str(table)
    with pytest.raises(ParameterError, match="other baskets"):
        ours.difference(cd.evaluate_slates(some_slates, TEST[:40], 4), "recall")
    with pytest.raises(ParameterError, match="no interval"):
        ours.difference(theirs, "coverage")


def test_report_as_text_and_json():
    report = cd.evaluate_slates(some_slates, TEST, 4, categories=CATEGORIES)
    content = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert content["recall"] == report.recall
    assert content["intervals"]["hit"] == list(report.interval("hit"))
    assert "any hit" in str(report)
    assert "nDCG@4" in str(report)
    with pytest.raises(AttributeError, match="has no 'precision'"):
        _ = report.precision


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"k": 0}, ParameterError, "k must"),
        ({"given": 1.0}, ParameterError, "share between"),
        ({"min_size": 1}, ParameterError, "min_size"),
        ({"min_size": 20}, DataError, "lower min_size"),
        ({"diversity": 0.5}, ParameterError, "models with `slate`"),
    ],
)
def test_bad_questions(options, error, match):
    with pytest.raises(error, match=match):
        cd.evaluate_slates(some_slates, TEST, **options)


def test_bad_slates():
    for slates, match in (([["i0"]], "2 baskets to complete, but 1"), ([["i0"], ["z"]], "'z', which is not"),
                          ([["i0"], ["i1", "i1"]], "slate 1 has 'i1' twice")):  # fmt: skip
        with pytest.raises(DataError, match=match):
            cd.evaluate_slates(slates, [ITEMS, ITEMS], 4)
