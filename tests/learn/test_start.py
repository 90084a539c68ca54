"""The starting points."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.sets import Sets, pointers
from contradpp.learn.state import co_occurrences, popularity, start_factors


def test_popularity_is_kept_inside_zero_and_one():
    share = popularity(np.array([0.0, 3.0, 10.0]), 10)
    np.testing.assert_allclose(share, [0.05, 0.3, 0.95])
    assert popularity(np.array([0.0, 1.0]), 1).tolist() == [0.5, 0.5]
    assert popularity(np.array([0.0]), 0).tolist() == [0.5]


def test_popularity_start_is_the_popularity_ranking():
    counts = np.array([5.0, 40.0, 1.0, 20.0])
    V = start_factors("popularity", counts, 100, 3, np.random.default_rng(0))
    p = counts / 100
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), np.sqrt(p / (1 - p)))
    order = np.argsort(-cd.LowRankDPP.from_factors(V).predict_next([]))
    assert order.tolist() == [1, 3, 0, 2]


def test_uniform_start_is_the_papers():
    V = start_factors("uniform", np.ones(200), 10, 20, np.random.default_rng(0))
    assert V.shape == (200, 20)
    assert 1.0 <= V.min() < 1.01
    assert 1.99 < V.max() <= 2.0
    assert V.mean() == pytest.approx(1.5, abs=0.02)
    assert V.var() == pytest.approx(1 / 12, abs=0.005)


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_pairs_are_counted_the_same_on_any_number_of_threads(n_jobs):
    rng = np.random.default_rng(0)
    there = rng.random((200, 40)) < rng.random(40) ** 2
    there[:, 7] = False  # never sold
    weights = rng.random(200)
    sets = Sets(pointers(there.sum(axis=1)), np.nonzero(there)[1].astype(np.int32))
    found = co_occurrences(sets, weights, 40, n_jobs)
    np.testing.assert_allclose(found.toarray(), there.T @ (there * weights[:, None]))
    assert found.has_sorted_indices
    assert found.data.tobytes() == co_occurrences(sets, weights, 40).data.tobytes()
