"""log P of a slate, by enumeration of all slates of its length."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import contradpp as cd
from contract import BASKETS, fitted, rows_that
from contradpp.data.sets import Sets
from contradpp.errors import DataError, ParameterError
from contradpp.slates.greedy import Vectors
from contradpp.slates.likelihood import slate_log_likelihoods
from slates.cases import RIDGE


def enumerated(worth: np.ndarray, phi: np.ndarray, k: int) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """All sets of k items, and log P of each."""
    q = np.exp(worth / 2)
    L = q[:, None] * phi * q
    sets = list(itertools.combinations(range(len(q)), k))
    dets = np.array([np.linalg.det(L[np.ix_(one, one)]) for one in sets])
    return sets, np.log(dets / dets.sum())


@pytest.mark.parametrize(
    ("M", "K", "k"), [(8, 3, 3), (9, 0, 2), (7, 3, 7), (9, 2, 5), (10, 4, 1), (8, 1, 6), (6, 9, 3)]
)
@pytest.mark.parametrize("spread", [0.1, 3.0, 12.0])
def test_it_is_the_k_dpp(M, K, k, spread):
    rng = np.random.default_rng(M + K + k)
    vectors = Vectors.of_table(rng.normal(size=(M, K))) if K else Vectors.none()
    vectors = vectors._replace(scales=vectors.scales * rng.uniform(0.2, 1.0, len(vectors.scales)))
    R = vectors.of_rows(np.arange(M))
    phi = R @ R.T
    np.fill_diagonal(phi, 1 + RIDGE)
    worth = spread * rng.normal(size=M)
    sets, expected = enumerated(worth, phi, k)
    queries = Sets(np.arange(len(sets) + 1) * k, np.array(sets, dtype=np.int32).ravel())
    found = slate_log_likelihoods(vectors, np.tile(worth, (len(sets), 1)), queries, n_jobs=2)
    assert np.allclose(found, expected, atol=1e-6)


def test_a_large_catalogue_sums_to_one():
    """Most items are so improbable that they enter by moments."""
    rng = np.random.default_rng(0)
    M = 60
    vectors = Vectors.of_table(rng.normal(size=(M, 4)))
    worth = np.concatenate([rng.normal(size=10), rng.normal(-8, 1, M - 10)])
    sets = list(itertools.combinations(range(M), 2))
    queries = Sets(np.arange(len(sets) + 1) * 2, np.array(sets, dtype=np.int32).ravel())
    assert np.exp(slate_log_likelihoods(vectors, np.tile(worth, (len(sets), 1)), queries)).sum() == pytest.approx(1)


def test_what_cannot_be():
    worth = np.array([[0.0, 1.0, -np.inf]] * 3)
    queries = Sets(np.array([0, 1, 2, 4]), np.array([0, 2, 0, 2], dtype=np.int32))
    logs = slate_log_likelihoods(Vectors.none(), worth, queries)
    assert logs[0] == pytest.approx(-np.log(1 + np.e))
    assert (logs[1:] == -np.inf).all()


@pytest.mark.parametrize("name", rows_that("slate"))
def test_of_a_model(name):
    model = fitted(name)
    items = list(model.items_)
    phi = np.eye(len(items)) * (1 + RIDGE)
    basket = BASKETS[0]
    left = [item for item in items if item not in basket]
    for alike in (True, False):
        R = model.similarity_.of_rows(np.arange(len(items)))
        phi = R @ R.T if alike else np.zeros((len(items), len(items)))
        np.fill_diagonal(phi, 1 + RIDGE)
        open_to = [items.index(item) for item in left]
        shares = model.predict_next(basket)[open_to]
        worth = 1.5 * np.log(np.maximum(shares / shares.max(), 1e-12))
        sets, expected = enumerated(worth, phi[np.ix_(open_to, open_to)], 2)
        slates = [[left[i] for i in one] for one in sets]
        found = model.score_slates([basket] * len(slates), slates, diversity=0.4, alike=alike)
        assert np.allclose(found, expected, atol=1e-6)
        assert model.score_slates(basket, slates[3], diversity=0.4, alike=alike) == pytest.approx(expected[3], abs=1e-6)


def test_bad_questions():
    model = cd.LowRankDPP.from_factors(np.eye(4))
    with pytest.raises(ParameterError, match="above 0"):
        model.score_slates([0], [1], diversity=0)
    with pytest.raises(DataError, match="2 baskets but 1 slates"):
        model.score_slates([[0], [1]], [[2]])
    assert model.score_slates([0], [0]) == -np.inf
