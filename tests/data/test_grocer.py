"""The made-up supermarket: its catalog, and what its baskets have in common with a real shop's."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from contradpp.data import grocer
from contradpp.data.baskets import Baskets
from contradpp.data.grocer import catalog
from contradpp.errors import ParameterError


@pytest.fixture(scope="module")
def baskets() -> Baskets:
    return grocer.generate(40_000, random_state=0)


@pytest.fixture(scope="module")
def together(baskets: Baskets) -> np.ndarray:
    """In how many baskets two products meet; the diagonal is how often each occurs."""
    matrix = baskets.to_csr()
    return (matrix.T @ matrix).toarray()


def lift(baskets: Baskets, together: np.ndarray, a: str, b: str) -> float:
    """How much more often two products meet than they would if they were independent."""
    i, j = baskets.items.codes([a, b])
    return float(together[i, j] * baskets.n_baskets / (together[i, i] * together[j, j]))


def test_about_300_distinct_products_in_categories() -> None:
    products = catalog().products
    assert 280 <= len(products) <= 320
    assert len(set(products)) == len(products)
    assert {"spaghetti", "tomato sauce", "parmesan"} <= set(products)
    assert all(product == product.strip() and product for product in products)
    categories = grocer.categories()
    assert set(categories) == set(products)
    assert 15 <= len(set(categories.values())) <= 25
    assert categories["spaghetti"] == "pasta and rice"
    assert min(Counter(categories.values()).values()) >= 3


def test_missions_are_made_of_products_on_the_shelves() -> None:
    products = set(catalog().products)
    named = {mission.name: mission.favorites for mission in catalog().missions}
    assert "spaghetti" in named["spaghetti dinner"]
    for mission in catalog().missions:
        assert set(mission.favorites) <= products, mission.name
        assert all(0 < chance < 1 for chance in mission.chances.values()), mission.name


def test_sizes_are_1_to_20_and_like_a_shops(baskets: Baskets) -> None:
    sizes = baskets.sizes
    assert sizes.min() == 1
    assert sizes.max() == 20
    assert 6 < sizes.mean() < 8
    assert np.all(np.bincount(sizes, minlength=21)[1:] > 0)
    assert np.mean(sizes == 20) < 0.02, "the cut at 20 must not show"


def test_every_product_is_sold(baskets: Baskets) -> None:
    assert tuple(baskets.items) == catalog().products
    assert baskets.item_counts.min() > 0


def test_popularity_has_a_head_and_a_tail(baskets: Baskets) -> None:
    counts = np.sort(baskets.item_counts)[::-1]
    rank = np.arange(1, len(counts) + 1)
    slope = np.polyfit(np.log(rank), np.log(counts), 1)[0]
    assert -1.3 < slope < -0.6  # Zipf's law has -1
    assert counts[0] > 8 * np.median(counts)
    assert counts[: len(counts) // 5].sum() > 0.5 * counts.sum()


def test_substitutes_rarely_meet(baskets: Baskets, together: np.ndarray) -> None:
    share = together.diagonal() / baskets.n_baskets
    expected = met = 0.0
    for need in catalog().needs:
        codes = baskets.items.codes(need.products)
        first, second = np.triu_indices(len(codes), 1)
        expected += baskets.n_baskets * (share[codes[first]] * share[codes[second]]).sum()
        met += together[codes[first], codes[second]].sum()
    assert met < 0.3 * expected
    assert lift(baskets, together, "whole milk (Dairy Farm)", "whole milk (Green Valley)") < 0.3


@pytest.mark.parametrize(
    ("a", "b"),
    [("spaghetti", "tomato sauce"), ("spaghetti", "parmesan"), ("tomato sauce", "parmesan"),
     ("burger buns", "charcoal"), ("gin", "tonic water"), ("pancake mix", "maple syrup")],
)  # fmt: skip
def test_complements_often_meet(baskets: Baskets, together: np.ndarray, a: str, b: str) -> None:
    assert lift(baskets, together, a, b) > 3


def test_parmesan_goes_with_spaghetti_and_tomato_sauce(baskets: Baskets) -> None:
    """What the demo asks: of the baskets with both, no product is in more than parmesan is."""
    matrix = baskets.to_csr().toarray()
    spaghetti, sauce, parmesan = baskets.items.codes(["spaghetti", "tomato sauce", "parmesan"])
    meal = matrix[(matrix[:, spaghetti] > 0) & (matrix[:, sauce] > 0)].sum(axis=0)
    meal[[spaghetti, sauce]] = 0
    assert meal.argmax() == parmesan


def test_customers_have_a_style(baskets: Baskets, together: np.ndarray) -> None:
    crossed = lift(baskets, together, "organic bananas", "bread (Basics)")
    assert lift(baskets, together, "organic bananas", "organic eggs") > 1.5 * crossed
    assert lift(baskets, together, "milk (Basics)", "bread (Basics)") > 1.5 * crossed


def test_same_seed_same_baskets_and_a_longer_draw_begins_with_the_shorter() -> None:
    short, long = grocer.generate(500, random_state=7), grocer.generate(10_000, random_state=7)
    assert short == grocer.generate(500, random_state=7)
    assert long[:500] == short
    assert long[:4096].sizes.tolist() != long[4096:8192].sizes.tolist()  # blocks differ
    assert grocer.generate(500, random_state=8) != short
    assert grocer.generate(500, random_state=np.random.default_rng(1)).n_baskets == 500


def test_baskets_hold_an_item_once_and_in_no_order(baskets: Baskets) -> None:
    assert all(len(set(basket)) == len(basket) for basket in baskets[:2000])
    same_basket = np.ones(len(baskets.indices) - 1, dtype=bool)
    same_basket[baskets.indptr[1:-1] - 1] = False
    rises = np.diff(baskets.indices)[same_basket]
    assert 0.48 < np.mean(rises > 0) < 0.52


def test_no_baskets_is_allowed_and_nonsense_is_not() -> None:
    assert grocer.generate(0, random_state=0).n_baskets == 0
    for wrong in (-1, 2.5, True, "many"):
        with pytest.raises(ParameterError, match="n_baskets"):
            grocer.generate(wrong)  # type: ignore[arg-type]
