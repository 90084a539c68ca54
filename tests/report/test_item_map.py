"""The map of report and service: neighbors stay neighbors."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.report.item_map import NEVER, ItemMap, layout, pair_ratios


@pytest.fixture
def groups():
    """Squared distances of three tight groups of ten."""
    group = np.repeat(np.arange(3), 10)
    noise = np.random.default_rng(0).uniform(0, 0.05, size=(30, 30))
    distances = np.where(group[:, None] == group, 0.2, 1.0) + noise + noise.T
    np.fill_diagonal(distances, 0.0)
    return group, distances


def test_groups_are_kept_together(groups):
    group, distances = groups
    places = layout(distances)
    assert places.shape == (30, 2)
    assert np.abs(places).max() == pytest.approx(1.0)
    centers = np.array([places[group == g].mean(axis=0) for g in range(3)])
    nearest = np.linalg.norm(places[:, None] - centers, axis=2).argmin(axis=1)
    assert (nearest == group).all()


def test_the_map_of_a_model_is_always_the_same(groups):
    np.testing.assert_array_equal(layout(groups[1]), layout(groups[1]))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_few_items_have_a_map_too(n):
    places = layout(1.0 - np.eye(n))
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()


def test_ratios_are_those_of_the_determinants(model, factors):
    L = factors @ factors.T
    ratios = pair_ratios(model, np.arange(7), np.arange(7))
    lengths = np.diag(L)
    expected = np.log(np.outer(lengths, lengths) - L**2, where=~np.eye(7, dtype=bool), out=np.zeros((7, 7)))
    expected -= np.log(np.outer(lengths, lengths)) * ~np.eye(7, dtype=bool)
    np.testing.assert_allclose(ratios, expected, atol=1e-9)
    assert (ratios <= 0).all()


def test_items_that_never_meet_have_a_finite_ratio():
    same = cd.LowRankDPP.from_factors([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    assert pair_ratios(same, np.arange(3), np.arange(3))[0].tolist() == [0.0, NEVER, 0.0]


def test_the_map_does_not_need_the_normalizer(monkeypatch):
    skew = np.zeros((6, 6))
    skew[0, 1], skew[1, 0] = 0.9, -0.9
    model = cd.NonsymmetricDPP.from_factors(np.eye(6), S=skew)
    monkeypatch.setattr("contradpp.dpp.normalizer.resolvent", lambda *_, **__: 1 / 0)
    assert pair_ratios(model, np.array([0]), np.array([1, 2]))[0] == pytest.approx([np.log(1.81), 0.0])
    assert np.isfinite(ItemMap(model, np.arange(4)).positions_of([0, 5])).all()


def test_twins_lie_together_whatever_their_sign_and_strangers_apart():
    rng = np.random.default_rng(0)
    strangers = np.eye(20)
    factors = np.concatenate([strangers, -strangers + 0.01 * rng.normal(size=(20, 20))])
    places = ItemMap(cd.LowRankDPP.from_factors(factors), np.arange(40)).positions
    between_twins = np.linalg.norm(places[:20] - places[20:], axis=1)
    between_strangers = np.linalg.norm(places[:20, None] - places[None, :20], axis=2)[~np.eye(20, dtype=bool)]
    assert np.median(between_twins) < 0.3 * np.median(between_strangers)


def test_an_item_that_is_not_laid_out_is_put_beside_its_like():
    factors = np.concatenate([np.eye(10), [[0.0] * 3 + [2.0] + [0.0] * 6]])
    places = ItemMap(cd.LowRankDPP.from_factors(factors), np.arange(10)).positions_of([3, 10])
    assert np.allclose(places[0], places[1], atol=0.02)


def test_maps_of_tiny_catalogues():
    for m in (1, 2, 3):
        assert ItemMap(cd.LowRankDPP.from_factors(np.eye(m)), np.arange(m)).positions_of(list(range(m))).shape == (m, 2)
    impossible = cd.LowRankDPP.from_factors(np.zeros((4, 2)))
    assert np.isfinite(ItemMap(impossible, np.arange(4)).positions).all()
