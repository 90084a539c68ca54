"""A basket that grows gives the same answers as one that is asked about as a whole."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.errors import RankError, UnknownItemError


@pytest.fixture
def model():
    V = np.random.default_rng(0).normal(size=(40, 6))
    return cd.LowRankDPP.from_factors(V, items=[f"item {i}" for i in range(40)])


def test_each_step_equals_conditioning_on_the_whole_basket(model):
    basket = model.grow(["item 3"])
    for item in ("item 7", "item 0", "item 21"):
        basket.add(item)
        np.testing.assert_allclose(basket.probabilities(), model.predict_next(basket.items), rtol=1e-9, atol=1e-12)
    assert basket.items == ["item 3", "item 7", "item 0", "item 21"]
    items, shares = basket.recommend(N=5)
    expected_items, expected_shares = model.recommend(basket.items, N=5)
    assert items.tolist() == expected_items.tolist()
    np.testing.assert_allclose(shares, expected_shares)


def test_an_item_twice_changes_nothing(model):
    basket = model.grow(["item 3"])
    before = basket.probabilities()
    np.testing.assert_array_equal(basket.add("item 3").probabilities(), before)


def test_what_cannot_join(model):
    with pytest.raises(UnknownItemError):
        model.grow().add("no such item")
    full = model.grow([f"item {i}" for i in range(6)])
    with pytest.raises(RankError):
        full.add("item 9")
    with pytest.raises(RankError, match="no item can be added"):
        full.probabilities()
    with pytest.raises(RankError):
        model.grow([f"item {i}" for i in range(7)])
