"""The compiled kernels against their plain definitions, and their draws against exact distributions."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from contradpp.dpp.compiled import blocks, kernels, samples
from contradpp.dpp.linalg import log_elementary_symmetric
from exact import chi_square_p_value
from reference import as_entry

NO_DIAGONAL = np.empty(0)


def bases(V, sets, d=NO_DIAGONAL, first=0, last=None):
    """The arrays that `bases_of_sets` fills: NaN where it wrote nothing."""
    indptr = np.concatenate([[0], np.cumsum([len(s) for s in sets])]).astype(np.int64)
    indices = np.array([i for s in sets for i in s], dtype=np.int32)
    largest = max(map(len, sets), default=0)
    shapes = [(len(indices), V.shape[1]), (len(indices), largest), len(indices), len(sets), len(sets)]
    Q, weights, scores, logs, worst = (np.full(shape, np.nan) for shape in shapes)
    last = len(sets) if last is None else last
    kernels.bases_of_sets(V, d, indptr, indices, first, last, Q, weights, scores, logs, worst)
    return indptr, Q, weights, scores, logs, worst


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_orthonormal_rows_span_the_set_and_give_its_determinant(seed, n_components):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(9, n_components))
    sets = [rng.choice(9, size=rng.integers(0, n_components + 1), replace=False) for _ in range(6)]
    indptr, Q, _, scores, logs, worst = bases(V, sets)
    for number, A in enumerate(sets):
        q = Q[indptr[number] : indptr[number + 1]]
        np.testing.assert_allclose(q @ q.T, np.eye(len(A)), atol=1e-10)
        np.testing.assert_allclose(V[A] @ q.T @ q, V[A], atol=1e-10)
        assert logs[number] == pytest.approx(reference.log_det(V, A), abs=1e-6)
        W = np.diag(np.linalg.inv(V[A] @ V[A].T))
        np.testing.assert_allclose(scores[indptr[number] : indptr[number + 1]], 1 / W, rtol=1e-5)
        assert worst[number] == pytest.approx((W * np.square(V[A]).sum(axis=1)).max(initial=1.0), rel=1e-5)


def test_directions_are_orthogonal_to_the_other_items():
    rng = np.random.default_rng(0)
    V = rng.normal(size=(30, 8))
    sets = [rng.choice(30, size=rng.integers(1, 9), replace=False) for _ in range(10)]
    indptr, Q, weights, scores, _, _ = bases(V, sets)
    for number, A in enumerate(sets):
        rows = slice(indptr[number], indptr[number + 1])
        products = V[A] @ (weights[rows, : len(A)] @ Q[rows]).T  # column i: the others are orthogonal to direction i
        np.testing.assert_allclose(products, np.diag(np.sqrt(scores[rows])), atol=1e-8)


def test_a_diagonal_is_coordinates_of_its_own():
    rng = np.random.default_rng(1)
    V, d, A = rng.normal(size=(6, 2)), rng.random(6), [4, 0, 3, 1]
    L = np.diag(d) + V @ V.T
    W = np.linalg.inv(L[np.ix_(A, A)])
    _, Q, weights, scores, logs, _ = bases(V, [A], d)
    assert logs[0] == pytest.approx(np.linalg.slogdet(L[np.ix_(A, A)])[1])
    np.testing.assert_allclose(scores, 1 / np.diag(W))
    np.testing.assert_allclose(V[[2, 5]] @ Q.T @ Q @ V[[2, 5]].T, L[[2, 5]][:, A] @ W @ L[A][:, [2, 5]], atol=1e-12)
    left_out = np.linalg.inv(L[np.ix_(A[1:], A[1:])])  # without the first
    taken = L[[2, 5]][:, A[1:]] @ left_out @ L[A[1:]][:, [2, 5]]
    direction = V[[2, 5]] @ (weights[0] @ Q)
    np.testing.assert_allclose(V[[2, 5]] @ Q.T @ Q @ V[[2, 5]].T - np.outer(direction, direction), taken, atol=1e-12)


def test_rows_stay_orthogonal_when_the_set_is_nearly_dependent():
    rng = np.random.default_rng(3)
    V = np.ones((6, 8)) + 1e-5 * rng.normal(size=(6, 8))
    _, Q, _, scores, logs, worst = bases(V, [range(6)])
    np.testing.assert_allclose(Q @ Q.T, np.eye(6), atol=1e-12)
    assert (scores > 0).all()
    assert np.isfinite(logs[0])
    assert worst[0] > 1e9


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_dependent_row_gets_pivot_zero_and_the_others_still_span(dtype):
    rng = np.random.default_rng(1)
    V = rng.normal(size=(4, 5)).astype(dtype)
    V[1] = -2 * V[0]  # exact in binary
    V[3] = 0
    _, Q, _, _, logs, worst = bases(V, [[0, 1, 2, 3]])
    assert (logs[0], worst[0]) == (-np.inf, np.inf)
    np.testing.assert_array_equal(Q[[1, 3]], 0)
    np.testing.assert_allclose(V @ Q.T @ Q, V, atol=1e-5)


@pytest.mark.parametrize("n_components", [3, 20, 80])
def test_a_sum_of_other_rows_is_found_dependent(n_components):
    rng = np.random.default_rng(n_components)
    rows = rng.normal(size=(n_components - 1, n_components))
    V = np.vstack([rows, rows.sum(axis=0)])
    _, Q, _, _, logs, _ = bases(V, [range(n_components), range(n_components - 1)])
    assert np.isfinite(logs).tolist() == [False, True]
    assert np.square(Q[:n_components]).sum(axis=1) == pytest.approx([1.0] * (n_components - 1) + [0.0])


def test_only_the_asked_sets_are_written():
    V = np.random.default_rng(0).normal(size=(5, 3))
    _, Q, _, scores, logs, worst = bases(V, [[0], [1, 2], [3]], first=1, last=2)
    assert np.isnan(scores).tolist() == [True, False, False, True]
    assert np.isnan(Q).all(axis=1).tolist() == [True, False, False, True]
    assert np.isnan(logs).tolist() == np.isnan(worst).tolist() == [True, False, True]


def test_products_are_subtracted_and_small_scores_sorted_out():
    rng = np.random.default_rng(0)
    indptr, E, U = np.array([0, 2, 2, 5]), rng.random(size=(5, 4)), rng.random(size=(5, 4))
    scores = 10 + rng.random(size=(3, 4))
    scores[0, 1] = -np.inf  # an item of the set
    scores[0, 2] = (E[:2] * U[:2]).sum(axis=0)[2]  # which leaves nothing
    scores[2, 3] = (E[2:] * U[2:]).sum(axis=0)[3] + 1e-9
    scores[1, 0] = 0.0
    expected = scores - np.array([(E[a:b] * U[a:b]).sum(axis=0) for a, b in itertools.pairwise(indptr)])
    assert kernels.subtract_products(scores, E, U, indptr, np.full(3, 1e-8)) == 2
    assert scores[0, 1] == -np.inf
    assert scores[1, 0] == 0
    expected[0, 2], expected[2, 3] = np.nan, np.nan
    np.testing.assert_allclose(scores, expected)


def test_project_off():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    residual = rng.normal(size=5)
    expected = residual - basis[:3].T @ (basis[:3] @ residual)
    as_entry(blocks.project_off)(residual, basis, 3, residual)
    np.testing.assert_allclose(residual, expected)


def test_each_eigenvector_enters_on_its_own():
    inclusion = np.array([0.0, 0.2, 0.7, 1.0])
    rng, chosen, counts = np.random.default_rng(0), np.empty(4, dtype=np.int64), Counter()
    for _ in range(4000):
        count = as_entry(samples.choose_eigenvectors)(inclusion, rng.random(4), 0, chosen)
        counts[tuple(chosen[:count])] += 1
    distribution = {(3,): 0.8 * 0.3, (1, 3): 0.2 * 0.3, (2, 3): 0.8 * 0.7, (1, 2, 3): 0.2 * 0.7}
    assert set(counts) <= set(distribution)
    assert chi_square_p_value(np.array([counts[s] for s in distribution]), np.array(list(distribution.values()))) > 1e-4


@pytest.mark.parametrize("scale", [1.0, 1e120])
@pytest.mark.parametrize("k", [1, 3, 4])
def test_k_eigenvectors_in_proportion_to_their_product(k, scale):
    values = np.array([0.1, 3.0, 0.7, 1.5, 0.4])
    table = log_elementary_symmetric(values * scale, k)
    rng, chosen, counts = np.random.default_rng(k), np.empty(k, dtype=np.int64), Counter()
    for _ in range(4000):
        assert as_entry(samples.choose_k_eigenvectors)(np.log(values * scale), table, k, rng.random(5), 0, chosen) <= 5
        counts[tuple(sorted(chosen))] += 1
    sets = list(itertools.combinations(range(5), k))
    weights = np.array([np.prod(values[list(s)]) for s in sets])
    assert sum(counts[s] for s in sets) == 4000
    assert chi_square_p_value(np.array([counts[s] for s in sets]), weights / weights.sum()) > 1e-4


def test_as_many_eigenvectors_as_there_are_must_all_enter():
    """Even where rounding puts their log-probability a little below zero."""
    values = np.logspace(-200, 200, 50)
    table = log_elementary_symmetric(values, 50)
    table += 0.1 * np.arange(51)[:, None]  # far more than rounding: each would enter with probability 0.9
    chosen = np.full(50, -1, dtype=np.int64)
    for seed in range(20):
        as_entry(samples.choose_k_eigenvectors)(
            np.log(values), table, 50, np.random.default_rng(seed).random(50), 0, chosen
        )
        assert chosen.tolist() == list(range(50))


def test_items_of_a_projection_dpp():
    """P(A) = det(Y_A Y_Aᵀ) for |A| = k: every subset of that size, counted."""
    Y = np.linalg.qr(np.random.default_rng(5).normal(size=(6, 4)))[0]
    chosen = np.array([0, 2, 3])
    cumulative = np.cumsum(np.ascontiguousarray(Y.T) ** 2, axis=1)
    rng, out, counts = np.random.default_rng(0), np.empty(3, dtype=np.int32), Counter()
    for _ in range(6000):
        assert as_entry(samples.sample_projection)(Y, cumulative, chosen, 3, rng.random(300), 0, out) > 0
        counts[tuple(sorted(out))] += 1
    sets = list(itertools.combinations(range(6), 3))
    distribution = np.array([np.linalg.det(Y[np.ix_(s, chosen)]) ** 2 for s in sets])
    assert distribution.sum() == pytest.approx(1)
    assert sum(counts[s] for s in sets) == 6000
    assert chi_square_p_value(np.array([counts[s] for s in sets]), distribution) > 1e-4


def test_items_of_weight_zero_are_never_drawn():
    Y = np.zeros((5, 1))
    Y[[1, 3], 0] = np.sqrt(0.5)
    cumulative = np.cumsum(np.ascontiguousarray(Y.T) ** 2, axis=1)
    out, chosen, rng = np.empty(1, dtype=np.int32), np.array([0]), np.random.default_rng(0)
    drawn = set()
    for _ in range(200):
        assert as_entry(samples.sample_projection)(Y, cumulative, chosen, 1, rng.random(30), 0, out) > 0
        drawn.add(int(out[0]))
    assert drawn == {1, 3}
