"""Next items, leave-one-out and conditional marginals against definitions and enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from contradpp.data.sets import Sets
from contradpp.dpp import condition, scoring
from contradpp.dpp.kernel import Kernel
from contradpp.errors import RankError
from exact import ExactDPP


def codes(*items: int) -> np.ndarray:
    return np.array(items, dtype=np.int32)


def as_sets(lists) -> Sets:
    lists = [list(s) for s in lists]
    indptr = np.concatenate([[0], np.cumsum([len(s) for s in lists])]).astype(np.int64)
    return Sets(indptr, np.array([i for s in lists for i in s], dtype=np.int32))


def all_scores(kernel, sets, **options) -> np.ndarray:
    return np.concatenate([block.scores for block in condition.next_scores(kernel, sets, **options)])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_next_scores_are_ratios_of_determinants(seed, n_components):
    V = np.random.default_rng(seed).normal(size=(7, n_components))
    lists = [s for k in range(n_components) for s in itertools.combinations(range(7), k)]
    scores = all_scores(Kernel(V), as_sets(lists))
    for row, A in zip(scores, lists, strict=True):
        assert (row[list(A)] == -np.inf).all()
        expected = np.diag(reference.conditional_kernel(V, list(A)))
        np.testing.assert_allclose(np.maximum(row, 0), np.maximum(expected, 0), rtol=1e-6, atol=1e-6)


def test_next_scores_of_candidates_are_columns_of_all(factors):
    kernel = Kernel(factors)
    sets = as_sets([[0], [5, 2], [], [6, 0, 1]])
    chosen = np.array([0, 2, 6])
    np.testing.assert_allclose(all_scores(kernel, sets, candidates=chosen), all_scores(kernel, sets)[:, chosen])
    assert all_scores(kernel, sets, candidates=np.array([], dtype=np.int64)).shape == (4, 0)


def test_blocks_do_not_change_the_scores(monkeypatch):
    rng = np.random.default_rng(0)
    kernel = Kernel(rng.normal(size=(15, 6)))
    sets = as_sets([rng.choice(15, size=rng.integers(0, 6), replace=False) for _ in range(40)])
    whole = all_scores(kernel, sets)
    monkeypatch.setattr(condition, "ROWS_PER_BLOCK", 4)
    blocks = list(condition.next_scores(kernel, sets))
    assert len(blocks) > 10
    assert [b.first for b in blocks] == [0, *(b.last for b in blocks[:-1])]
    np.testing.assert_allclose(np.concatenate([b.scores for b in blocks]), whole, rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_totals_without_a_loop_over_items(seed):
    rng = np.random.default_rng(seed)
    kernel = Kernel(rng.normal(size=(9, 5)))
    sets = as_sets([rng.choice(9, size=k, replace=False) for k in (0, 1, 2, 3, 4)])
    sums = np.maximum(all_scores(kernel, sets), 0).sum(axis=1)
    np.testing.assert_allclose(condition.next_totals(kernel, sets), sums, rtol=1e-8)


@pytest.mark.parametrize("given_items", [(), (3,), (6, 0), (1, 2, 5), (0, 1, 2, 3)])
def test_marginals_by_enumeration(factors, exact, given_items):
    ours = Kernel(factors).marginals(codes(*given_items))
    np.testing.assert_allclose(ours, exact.marginals(given_items), atol=1e-9)
    np.testing.assert_allclose(ours, reference.marginals(factors, list(given_items)), atol=1e-9)
    assert (ours[list(given_items)] == 1).all()


@pytest.mark.parametrize("given_items", [(), (3,), (6, 0), (1, 2, 5), (0, 1, 2, 3)])
def test_condition_by_enumeration(factors, exact, given_items):
    kernel, rest = condition.condition(Kernel(factors), codes(*given_items))
    assert rest.tolist() == [i for i in range(7) if i not in given_items]
    small = ExactDPP(kernel.factors @ kernel.factors.T)
    law = exact.given(given_items)
    for s in small.sets:
        whole = tuple(sorted([*given_items, *rest[list(s)].tolist()]))
        assert small.probability(s) == pytest.approx(law[whole], abs=1e-9)


@pytest.mark.parametrize("function", [Kernel.marginals, Kernel.condition])
def test_impossible_given_items(factors, function):
    with pytest.raises(RankError, match="5 items"):
        function(Kernel(factors), codes(0, 1, 2, 3, 4))
    twins = factors.copy()
    twins[1] = -twins[0]
    with pytest.raises(RankError, match="dependent"):
        function(Kernel(twins), codes(0, 1))
    with pytest.raises(RankError, match="dependent"):
        function(Kernel(twins), codes(0, 1, 2, 3))  # as many as there are components


def test_a_basket_that_fills_the_rank_is_refused(factors):
    with pytest.raises(RankError, match=r"basket 1 has 4 items.*fewer than 4"):
        all_scores(Kernel(factors), as_sets([[0], [0, 1, 2, 3]]))
    repeated = Kernel(np.hstack([factors[:, :2], factors[:, :2]]))  # 4 components, rank 2
    with pytest.raises(RankError, match="rank 2"):
        all_scores(repeated, as_sets([[0, 1]]))


def test_float32_agrees_with_float64(factors):
    V = factors.astype(np.float32)
    single, double = Kernel(V), Kernel(V.astype(float))
    sets = as_sets([[0], [1, 2], [6, 5, 4]])
    ours, theirs = (np.maximum(all_scores(kernel, sets), 0) for kernel in (single, double))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(single.marginals(codes(1, 2)), double.marginals(codes(1, 2)), atol=1e-5)
    np.testing.assert_allclose(condition.next_totals(single, sets), condition.next_totals(double, sets))


@pytest.mark.parametrize(
    ("columns", "diagonal"), [(0, True), (1, True), (3, True), (3, False), (20, True), (20, False)]
)
@pytest.mark.parametrize("gain", [True, False])
def test_scores_given_are_their_definition_with_few_and_many_partners(columns, diagonal, gain):
    rng = np.random.default_rng(columns)
    V, A, d = rng.normal(size=(12, columns)), rng.normal(size=(12, 12)), rng.uniform(0.1, 1, 12)
    A[:, rng.random(12) < 0.4] = 0.0  # items that have partners, and items that have few or none
    A[:4, 4:] = A[4:, :4] = 0.0
    B = np.eye(columns) + 0.5 * rng.normal(size=(columns, columns)) if gain and columns else None
    G = np.eye(columns) if B is None else B - B.T + np.eye(columns)
    kernel = Kernel(V, gain=None if B is None else G, skew=A - A.T, diagonal=d if diagonal else None)
    L = V @ G @ V.T + A - A.T + (np.diag(d) if diagonal else 0.0)
    baskets = [[], [0], [1, 5], [2, 6, 3, 9], [0, 4, 6, 7, 8, 10], rng.permutation(12)[:10].tolist()]
    baskets = [one for one in baskets if not len(one) or np.linalg.cond(L[np.ix_(one, one)]) < 1e6]
    found = scoring.scores_given(kernel, as_sets(baskets))
    for one, scores in zip(baskets, found, strict=True):
        rest = np.setdiff1d(np.arange(12), one)
        whole = L[np.ix_(rest, rest)] - L[np.ix_(rest, one)] @ np.linalg.solve(
            L[np.ix_(one, one)], L[np.ix_(one, rest)]
        )
        np.testing.assert_allclose(scores[rest], np.diagonal(whole), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("columns", [2, 6])
def test_scores_given_of_items_of_very_different_sizes(columns, monkeypatch):
    rng = np.random.default_rng(0)
    V, A = rng.normal(size=(12, columns)), rng.normal(size=(12, 12))
    A[:, rng.random(12) < 0.5] = 0.0
    A[:4, 4:] = A[4:, :4] = 0.0
    scaled, sizes = V @ V.T + A - A.T + 0.1 * np.eye(12), 10.0 ** rng.uniform(-10, 0, 12)
    kernel = Kernel(V * sizes[:, None], skew=(A - A.T) * np.outer(sizes, sizes), diagonal=0.1 * sizes**2)
    baskets = [rng.permutation(12)[:k].tolist() for k in (1, 2, 3, 4, 5, 8)]
    sets = as_sets(baskets)
    found = scoring.scores_given(kernel, sets)
    for one, scores in zip(baskets, found / np.square(sizes), strict=True):
        rest = np.setdiff1d(np.arange(12), one)
        taken = scaled[np.ix_(rest, one)] @ np.linalg.solve(scaled[np.ix_(one, one)], scaled[np.ix_(one, rest)])
        np.testing.assert_allclose(scores[rest], np.diagonal(scaled)[rest] - np.diagonal(taken), rtol=1e-8, atol=1e-10)
    monkeypatch.setattr(scoring, "MOST_LINKED", -1)  # as of baskets with many partners
    monkeypatch.setattr(scoring, "_write_by_squares", None)
    other = scoring.scores_given(kernel, sets)
    np.testing.assert_allclose(found / np.square(sizes), other / np.square(sizes), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("form", ["symmetric", "diagonal", "skew", "dependent"])
def test_scores_given_prefixes_are_those_of_each_prefix(form, monkeypatch):
    rng = np.random.default_rng(1)
    V, A = rng.normal(size=(9, 5 if form != "dependent" else 2)), rng.normal(size=(9, 9))
    more = {"skew": {"skew": A - A.T}, "diagonal": {"diagonal": np.full(9, 0.1)}}.get(form, {})
    kernel, order, items = Kernel(V, **more), codes(7, 2, 4, 0), np.array([8, 1])
    expected = scoring.scores_given(kernel, as_sets([order[:k] for k in range(5)]))[:, items]
    if form != "dependent":  # one pass is enough
        monkeypatch.setattr(scoring, "scores_given", lambda *_: 1 / 0)
    found = scoring.scores_given_prefixes(kernel, order, items)
    np.testing.assert_allclose(found, expected, atol=1e-9)
