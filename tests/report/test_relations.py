"""How items relate in a model: against the kernel itself, and for a model that knows attraction."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.report.relations import NEVER, complements, pair_ratios, popular, substitutes


def test_ratios_are_those_of_the_determinants(model, factors):
    L = factors @ factors.T
    ratios = pair_ratios(model, np.arange(7))
    lengths = np.diag(L)
    expected = np.log(np.outer(lengths, lengths) - L**2, where=~np.eye(7, dtype=bool), out=np.zeros((7, 7)))
    expected -= np.log(np.outer(lengths, lengths)) * ~np.eye(7, dtype=bool)
    np.testing.assert_allclose(ratios, expected, atol=1e-9)
    assert (ratios <= 0).all()


def test_items_that_never_meet_have_a_finite_ratio():
    same = cd.LowRankDPP.from_factors([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    assert pair_ratios(same, np.arange(3))[0].tolist() == [0.0, NEVER, 0.0]


def test_substitutes_are_the_similar_items(model):
    ratios = pair_ratios(model, np.arange(7))
    items, likeness = model.similar_items(2, N=3)
    found = substitutes(ratios, 2, 3)
    assert [item for item, _ in found] == items.tolist()
    np.testing.assert_allclose([strength for _, strength in found], likeness)


def test_complements_are_ordered_by_what_they_gain(model):
    usual = model.predict_next([])
    found = complements(model, 1, 3, usual=usual)
    gains = model.predict_next([1]) - usual
    assert [related.item for related in found] == np.argsort(-gains)[:3].tolist()
    assert found[0].strength == pytest.approx(model.predict_next([1])[found[0].item] / usual[found[0].item])


def test_a_model_that_knows_complements_is_asked(model, monkeypatch):
    monkeypatch.setattr(
        type(model), "complements", lambda self, item, N=10: (np.array([5, 3]), np.ones(2)), raising=False
    )
    found = complements(model, 1, 2, usual=model.predict_next([]))
    assert [related.item for related in found] == [5, 3]


def test_popular_items_occur():
    shop = cd.Baskets.from_lists([["b"], ["a", "b"]], items=["a", "b", "never"])
    assert popular(shop, 5).tolist() == [1, 0]
