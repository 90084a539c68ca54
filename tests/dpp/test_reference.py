"""The plain definitions against enumeration of all subsets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from exact import ExactDPP, subsets

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))


def random_factors(shape) -> np.ndarray:
    n_items, n_components, seed = shape
    return np.random.default_rng(seed).normal(size=(n_items, n_components))


@settings(deadline=None, max_examples=40)
@given(SHAPES)
def test_probabilities_of_all_subsets(shape):
    V = random_factors(shape)
    exact = ExactDPP(V @ V.T)
    for A in exact.sets:
        p = np.exp(reference.log_probability(V, list(A)))
        assert p == pytest.approx(exact.probability(A), abs=1e-9)
    assert sum(np.exp(reference.log_probability(V, list(A))) for A in exact.sets) == pytest.approx(1)


@settings(deadline=None, max_examples=40)
@given(SHAPES)
def test_size_distribution(shape):
    V = random_factors(shape)
    exact = ExactDPP(V @ V.T).sizes()
    ours = np.zeros(max(V.shape) + 1)
    ours[: V.shape[1] + 1] = reference.size_distribution(V)
    np.testing.assert_allclose(ours[: len(exact)], exact, atol=1e-9)
    np.testing.assert_allclose(ours[len(exact) :], 0, atol=1e-9)


@pytest.mark.parametrize("A", [[], [2], [4, 1], [0, 3, 6]])
def test_next_items_and_marginals(factors, exact, A):
    np.testing.assert_allclose(reference.next_item(factors, A), exact.next_item(A), atol=1e-9)
    np.testing.assert_allclose(reference.marginals(factors, A), exact.marginals(A), atol=1e-9)


def test_conditional_kernel_is_the_distribution_of_the_rest(factors, exact):
    A = [1, 5]
    L = reference.conditional_kernel(factors, A)
    rest = [i for i in range(7) if i not in A]
    small = ExactDPP(L[np.ix_(rest, rest)])
    distribution = exact.given(A)
    for s in small.sets:
        whole = tuple(sorted([*A, *(rest[i] for i in s)]))
        assert small.probability(s) == pytest.approx(distribution[whole], abs=1e-9)


def test_leave_one_out_is_a_ratio_of_determinants(factors):
    A = [5, 0, 3]
    scores = reference.leave_one_out(factors, A)
    for row, left_out in enumerate(A):
        B = [i for i in A if i != left_out]
        for j in range(7):
            ratio = np.exp(reference.log_det(factors, [*B, j]) - reference.log_det(factors, B))
            assert scores[row, j] == pytest.approx(0 if j in B else ratio, abs=1e-9)


def test_greedy_takes_the_best_at_every_step(factors):
    chosen = reference.greedy_completion(factors, [3], 4)
    assert chosen[0] == 3
    for t in range(1, 4):
        values = {j: reference.log_det(factors, [*chosen[:t], j]) for j in range(7) if j not in chosen[:t]}
        assert chosen[t] == max(values, key=values.get)


def test_sets_beyond_the_rank_and_dependent_sets_are_impossible():
    V = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    assert reference.log_det(V, [0, 1, 2]) == -np.inf
    assert reference.log_det(V, [0, 2]) == -np.inf
    assert reference.log_det(V, []) == 0.0


def test_subsets_lists_each_once():
    """The helper that all of this rests on."""
    listed = subsets(5)
    assert len(listed) == 32
    assert len(set(listed)) == 32
    assert set(listed) == {s for k in range(6) for s in itertools.combinations(range(5), k)}
