"""How items relate in a model: against the kernel itself, and for a model that knows attraction."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.atlas import pair_ratios
from contradpp.report.survey import complements, popular, substitutes, survey


def test_substitutes_are_the_similar_items(model):
    ratios = pair_ratios(model, np.arange(7), np.arange(7))
    items, likeness = model.similar_items(2, N=3)
    found = substitutes(ratios, 2, 3)
    assert [item for item, _ in found] == items.tolist()
    np.testing.assert_allclose([strength for _, strength in found], likeness)


def test_complements_are_ordered_by_what_they_gain(model):
    usual = model.predict_next([])
    found = complements(model, 1, 3, usual=usual)
    gains = model.predict_next([1]) - usual
    assert [item for item, _ in found] == np.argsort(-gains)[:3].tolist()
    assert found[0][1] == pytest.approx(model.predict_next([1])[found[0][0]] / usual[found[0][0]])


def test_a_model_that_knows_complements_is_asked(model, monkeypatch):
    monkeypatch.setattr(
        type(model), "complements", lambda self, item, N=10: (np.array([5, 3]), np.ones(2)), raising=False
    )
    found = complements(model, 1, 2, usual=model.predict_next([]))
    assert [item for item, _ in found] == [5, 3]


def test_popular_items_occur():
    shop = cd.Baskets.from_lists([["b"], ["a", "b"]], items=["a", "b", "never"])
    assert popular(shop, 5).tolist() == [1, 0]


def test_what_was_rarely_together_is_no_complement():
    """Lemons and hair colour, sold together twice, stood first."""
    rng = np.random.default_rng(0)
    lists = [["tea", "milk"]] * 40 + [["lemons", "hair colour"]] * 2
    lists += [[str(item)] for item in rng.choice(["tea", "milk", "lemons", "bread"], size=60)]
    train = cd.Baskets.from_lists(lists)
    found = survey(cd.NonsymmetricDPP(2, 3, random_state=0).fit(train), train)
    by_name = dict(zip(found.names, found.complements, strict=True))
    assert by_name["lemons"] == []
    assert [(name, n) for name, _, n in by_name["tea"]][:1] == [("milk", 40)]
    assert ", in 40" in found.as_json()


def test_what_is_kept_apart_is_sold_often():
    """The directions of rare items are chance: they stood among the first."""
    rng = np.random.default_rng(0)
    lists = [[f"often {i}" for i in rng.choice(8, 3, replace=False)] for _ in range(200)]
    lists += [[f"seldom {i}"] for i in range(40)]
    train = cd.Baskets.from_lists(lists)
    model = cd.LowRankDPP.from_factors(rng.normal(size=(train.n_items, 4)), items=train.items)
    found = survey(model, train, n=8)
    assert all(near for near in found.substitutes)
    assert {name for near in found.substitutes for name, _ in near} <= {f"often {i}" for i in range(8)}
