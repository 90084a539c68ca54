"""The map: neighbours stay neighbours, and groups that are apart get colours of their own."""

from __future__ import annotations

import numpy as np
import pytest

from contradpp.report.projection import affinities, clusters, layout


@pytest.fixture
def groups():
    """Squared distances of three tight groups of ten."""
    group = np.repeat(np.arange(3), 10)
    noise = np.random.default_rng(0).uniform(0, 0.05, size=(30, 30))
    distances = np.where(group[:, None] == group, 0.2, 1.0) + noise + noise.T
    np.fill_diagonal(distances, 0.0)
    return group, distances


def test_groups_are_kept_together_and_coloured_alike(groups):
    group, distances = groups
    places = layout(distances)
    assert places.shape == (30, 2)
    assert np.abs(places).max() == pytest.approx(1.0)
    labels = clusters(places, 3)
    assert all(len(set(labels[group == g])) == 1 for g in range(3))
    assert len(set(labels)) == 3


def test_the_map_of_a_model_is_always_the_same(groups):
    np.testing.assert_array_equal(layout(groups[1]), layout(groups[1]))


def test_affinities_have_the_perplexity_that_was_asked_for():
    points = np.random.default_rng(1).normal(size=(40, 3))
    squares = ((points[:, None] - points) ** 2).sum(axis=2)
    P = affinities(squares, 8.0)
    assert P.sum() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(P, P.T)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_few_items_have_a_map_too(n):
    places = layout(1.0 - np.eye(n))
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()
    assert len(clusters(places, 8)) == n


def test_points_that_coincide_do_not_break_the_clusters():
    assert set(clusters(np.zeros((6, 2)), 3)) <= {0, 1, 2}


def test_the_largest_cluster_comes_first():
    points = np.concatenate([np.zeros((3, 2)), np.full((9, 2), 5.0)])
    assert np.bincount(clusters(points, 2)).tolist() == [9, 3]
