"""Next items, leave-one-out and conditional marginals against definitions and enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from contradpp.data.sets import Sets
from contradpp.dpp import conditioning
from contradpp.dpp.kernel import LowRankKernel
from contradpp.errors import RankError
from exact import ExactDPP


def codes(*items: int) -> np.ndarray:
    return np.array(items, dtype=np.int32)


def as_sets(lists) -> Sets:
    lists = [list(s) for s in lists]
    indptr = np.concatenate([[0], np.cumsum([len(s) for s in lists])]).astype(np.int64)
    return Sets(indptr, np.array([i for s in lists for i in s], dtype=np.int32))


def all_scores(kernel, sets, **options) -> np.ndarray:
    return np.concatenate([block.scores for block in conditioning.next_scores(kernel, sets, **options)])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_next_scores_are_ratios_of_determinants(seed, n_components):
    V = np.random.default_rng(seed).normal(size=(7, n_components))
    lists = [s for k in range(n_components) for s in itertools.combinations(range(7), k)]
    scores = all_scores(LowRankKernel(V), as_sets(lists))
    for row, A in zip(scores, lists, strict=True):
        assert (row[list(A)] == -np.inf).all()
        expected = np.diag(reference.conditional_kernel(V, list(A)))
        np.testing.assert_allclose(np.maximum(row, 0), np.maximum(expected, 0), rtol=1e-6, atol=1e-6)


def test_next_scores_of_candidates_are_columns_of_all(factors):
    kernel = LowRankKernel(factors)
    sets = as_sets([[0], [5, 2], [], [6, 0, 1]])
    chosen = np.array([0, 2, 6])
    np.testing.assert_allclose(all_scores(kernel, sets, candidates=chosen), all_scores(kernel, sets)[:, chosen])
    assert all_scores(kernel, sets, candidates=np.array([], dtype=np.int64)).shape == (4, 0)


def test_blocks_do_not_change_the_scores(monkeypatch):
    rng = np.random.default_rng(0)
    kernel = LowRankKernel(rng.normal(size=(15, 6)))
    sets = as_sets([rng.choice(15, size=rng.integers(0, 6), replace=False) for _ in range(40)])
    whole = all_scores(kernel, sets)
    monkeypatch.setattr(conditioning, "ROWS_PER_BLOCK", 4)
    blocks = list(conditioning.next_scores(kernel, sets))
    assert len(blocks) > 10
    assert [b.first for b in blocks] == [0, *(b.last for b in blocks[:-1])]
    np.testing.assert_allclose(np.concatenate([b.scores for b in blocks]), whole, rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_totals_without_a_loop_over_items(seed):
    rng = np.random.default_rng(seed)
    kernel = LowRankKernel(rng.normal(size=(9, 5)))
    sets = as_sets([rng.choice(9, size=k, replace=False) for k in (0, 1, 2, 3, 4)])
    sums = np.maximum(all_scores(kernel, sets), 0).sum(axis=1)
    np.testing.assert_allclose(conditioning.next_totals(kernel, sets), sums, rtol=1e-8)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_leave_one_out_equals_the_definition(seed, size):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(8, 5))
    A = rng.choice(8, size=size, replace=False).astype(np.int32)
    expected = np.maximum(reference.leave_one_out(V, A), 0)
    np.testing.assert_allclose(conditioning.leave_one_out(LowRankKernel(V), A), expected, rtol=1e-5, atol=1e-7)


def test_leave_one_out_is_exactly_zero_on_the_rest_of_the_basket(factors):
    """Not a rounding error, which a ranking of small scores would mistake for a recommendation."""
    A = codes(5, 0, 3, 6)
    inside = conditioning.leave_one_out(LowRankKernel(factors), A)[:, A]
    np.testing.assert_array_equal(inside[~np.eye(4, dtype=bool)], 0.0)
    assert (np.diag(inside) > 0).all()


def test_leave_one_out_of_twins_has_no_jitter():
    """0 and 1 are the same item twice: with both in the basket W does not exist, the answer does."""
    V = np.random.default_rng(0).normal(size=(7, 4))
    V[1] = V[0]
    scores = conditioning.leave_one_out(LowRankKernel(V), codes(0, 2, 1))
    given_rest = np.maximum(np.diag(reference.conditional_kernel(V, [1, 2])), 0)
    np.testing.assert_allclose(scores[0], given_rest, atol=1e-12)
    np.testing.assert_allclose(scores[2], np.maximum(np.diag(reference.conditional_kernel(V, [0, 2])), 0), atol=1e-12)
    assert np.isfinite(scores).all()


def test_leave_one_out_of_nearly_dependent_items_is_accurate():
    """L_A has condition 1e14 here; a factorisation of V_A itself has 1e7."""
    rng = np.random.default_rng(0)
    V = rng.normal(size=(6, 4))
    V[1] = V[0] + 1e-7 * rng.normal(size=4)
    scores = conditioning.leave_one_out(LowRankKernel(V), codes(0, 1, 2))
    for row, rest in enumerate(([1, 2], [0, 2])):
        expected = np.diag(reference.conditional_kernel(V, rest))
        np.testing.assert_allclose(scores[row, 3:], expected[3:], rtol=1e-6)


def test_leave_one_out_of_nothing_and_too_much(factors):
    kernel = LowRankKernel(factors)
    assert conditioning.leave_one_out(kernel, codes()).shape == (0, 7)
    with pytest.raises(RankError, match="5 items"):
        conditioning.leave_one_out(kernel, codes(0, 1, 2, 3, 4))


@pytest.mark.parametrize("given_items", [(), (3,), (6, 0), (1, 2, 5), (0, 1, 2, 3)])
def test_marginals_by_enumeration(factors, exact, given_items):
    ours = conditioning.marginals(LowRankKernel(factors), codes(*given_items))
    np.testing.assert_allclose(ours, exact.marginals(given_items), atol=1e-9)
    np.testing.assert_allclose(ours, reference.marginals(factors, list(given_items)), atol=1e-9)
    assert (ours[list(given_items)] == 1).all()


@pytest.mark.parametrize("given_items", [(), (3,), (6, 0), (1, 2, 5), (0, 1, 2, 3)])
def test_condition_by_enumeration(factors, exact, given_items):
    kernel, rest = conditioning.condition(LowRankKernel(factors), codes(*given_items))
    assert rest.tolist() == [i for i in range(7) if i not in given_items]
    small = ExactDPP(kernel.factors @ kernel.factors.T)
    law = exact.given(given_items)
    for s in small.sets:
        whole = tuple(sorted([*given_items, *rest[list(s)].tolist()]))
        assert small.probability(s) == pytest.approx(law[whole], abs=1e-9)


@pytest.mark.parametrize("function", [conditioning.marginals, conditioning.condition, conditioning.complement])
def test_impossible_given_items(factors, function):
    with pytest.raises(RankError, match="5 items"):
        function(LowRankKernel(factors), codes(0, 1, 2, 3, 4))
    twins = factors.copy()
    twins[1] = -twins[0]
    with pytest.raises(RankError, match="dependent"):
        function(LowRankKernel(twins), codes(0, 1))
    with pytest.raises(RankError, match="dependent"):
        function(LowRankKernel(twins), codes(0, 1, 2, 3))  # as many as there are components


def test_a_basket_that_fills_the_rank_is_refused(factors):
    with pytest.raises(RankError, match=r"basket 1 has 4 items.*fewer than 4"):
        all_scores(LowRankKernel(factors), as_sets([[0], [0, 1, 2, 3]]))
    repeated = LowRankKernel(np.hstack([factors[:, :2], factors[:, :2]]))  # 4 components, rank 2
    with pytest.raises(RankError, match="rank 2"):
        all_scores(repeated, as_sets([[0, 1]]))


def test_float32_agrees_with_float64(factors):
    V = factors.astype(np.float32)
    single, double = LowRankKernel(V), LowRankKernel(V.astype(float))
    sets = as_sets([[0], [1, 2], [6, 5, 4]])
    ours, theirs = (np.maximum(all_scores(kernel, sets), 0) for kernel in (single, double))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    for function in (conditioning.marginals, conditioning.leave_one_out):
        np.testing.assert_allclose(function(single, codes(1, 2)), function(double, codes(1, 2)), atol=1e-5)
    np.testing.assert_allclose(conditioning.next_totals(single, sets), conditioning.next_totals(double, sets))
