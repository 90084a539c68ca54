"""The Numba kernels of evaluation against plain NumPy, and the closed form against one factorisation per item."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import contradpp as cd
import reference
from contradpp.data.sets import Sets, without_each
from contradpp.dpp.kernel import Kernel
from contradpp.experts.statistics import Rows
from contradpp.metrics.leave_one_out import KernelScorer, count_rows, rank_one_by_one
from contradpp.metrics.scoring import LinearScorer, StaticScorer


def random_sets(n_items: int, n_sets: int, largest: int, seed: int) -> Sets:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, size=n_sets)
    codes = [rng.choice(n_items, size=size, replace=False) for size in sizes]
    return Sets(np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(codes).astype(np.int32))


def first_entries(sets: Sets) -> np.ndarray:
    return sets.indptr[:-1].copy()


def counts_of(scores: np.ndarray, code: int, inside: np.ndarray, tie: float) -> tuple[int, int]:
    """The definition: who beats `code`, and who ties with it, among the items that are not inside."""
    others = np.setdiff1d(np.arange(len(scores)), [code, *inside])
    gap = scores[others] - scores[code]
    return int((gap > tie).sum()), int((np.abs(gap) <= tie).sum())


@pytest.mark.parametrize(("n_items", "rank"), [(9, 4), (300, 7), (700, 20)])
def test_closed_form_is_leave_one_out(n_items, rank):
    V = np.random.default_rng(0).normal(size=(n_items, rank))
    kernel, sets = Kernel(V), random_sets(n_items, 12, rank, seed=1)
    out = KernelScorer(kernel, cd.Vocabulary(range(n_items))).leave_one_out(sets, first_entries(sets), 10, 1)
    for s in range(sets.count):
        codes = sets.indices[sets.indptr[s] : sets.indptr[s + 1]]
        for a, row in enumerate(reference.leave_one_out(V, codes)):
            entry = sets.indptr[s] + a
            wanted = counts_of(row, codes[a], codes, 1e-9)
            assert (out.better[entry], out.equal[entry]) == wanted
            if a == 0:
                row[np.delete(codes, 0)] = -np.inf
                best = np.argsort(-row, kind="stable")[: min(10, n_items - len(codes) + 1)]
                assert out.top[s, : len(best)].tolist() == best.tolist()


def test_dependent_and_nearly_dependent_sets_are_done_one_by_one():
    """Twins in a basket have no closed form; near twins have one that rounding spoils."""
    rng = np.random.default_rng(1)
    V = rng.normal(size=(40, 6))
    V[1] = V[0]
    V[3] = V[2] + 1e-4 * rng.normal(size=6)
    V[4] = 0.0
    V[20:] = V[:20]  # everybody has a twin: ties everywhere
    sets = Sets(np.array([0, 3, 6, 8, 10]), np.array([0, 1, 7, 2, 3, 9, 4, 5, 6, 7], dtype=np.int32))
    out = KernelScorer(Kernel(V), cd.Vocabulary(range(40))).leave_one_out(sets, first_entries(sets), 5, 2)
    for s in range(sets.count):
        codes = sets.indices[sets.indptr[s] : sets.indptr[s + 1]]
        for a, code in enumerate(codes):
            rest = np.delete(codes, a)
            basis = np.linalg.svd(V[rest], full_matrices=False)
            Q = basis.Vh[1e-12 * basis.S[0] < basis.S]
            row = (V**2).sum(axis=1) - ((V @ Q.T) ** 2).sum(axis=1)
            assert (out.better[sets.indptr[s] + a], out.equal[sets.indptr[s] + a]) == counts_of(row, code, rest, 1e-11)


@pytest.mark.parametrize("rows", [1, 7, 64, 10_000])
def test_blocks_and_threads_change_nothing(rows):
    V = np.random.default_rng(0).integers(-1, 2, size=(600, 8)).astype(float)
    sets = random_sets(600, 100, 8, seed=3)
    scorer = KernelScorer(Kernel(V), cd.Vocabulary(range(600)))
    wanted = scorer.leave_one_out(sets, first_entries(sets), 10, 1)
    got = scorer.leave_one_out(sets, first_entries(sets), 10, 2, rows=rows)
    for a, b in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(a, b)
    assert wanted.equal.sum() > 0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("bias", [None, "random"])
def test_linear_scores_lose_the_row_of_the_item_left_out(bias, sparse):
    rng = np.random.default_rng(4)
    S = rng.integers(-2, 3, size=(700, 700)) / 10  # tenths: sums of them tie only to rounding
    if sparse:
        S *= rng.random(S.shape) < 0.3
    b = np.zeros(700) if bias is None else rng.integers(0, 2, size=700) / 10
    sets = random_sets(700, 30, 6, seed=5)
    matrix = Rows.of(csr_array(S)) if sparse else S
    scorer = LinearScorer(cd.Vocabulary(range(700)), matrix, None if bias is None else b)
    out = scorer.leave_one_out(sets, first_entries(sets), 10, 2)
    exact = np.round(10 * S), np.round(10 * b)
    for s in range(sets.count):
        codes = sets.indices[sets.indptr[s] : sets.indptr[s + 1]]
        for a, code in enumerate(codes):
            rest = np.delete(codes, a)
            row = exact[1] + exact[0][rest].sum(axis=0)
            entry = sets.indptr[s] + a
            assert (out.better[entry], out.equal[entry]) == counts_of(row, code, rest, 0)
            if a == 0:
                row[rest] = -np.inf
                assert out.top[s].tolist() == np.argsort(-row, kind="stable")[:10].tolist()


def test_static_scores_are_a_linear_model_without_weights():
    scores = np.random.default_rng(0).integers(0, 5, size=50).astype(float)
    sets, items = random_sets(50, 40, 6, seed=6), cd.Vocabulary(range(50))
    static = StaticScorer(items, scores, lambda _: np.zeros(0)).leave_one_out(sets, first_entries(sets), 10, 1)
    linear = LinearScorer(items, np.zeros((50, 50)), scores)
    for a, b in zip(static, linear.leave_one_out(sets, first_entries(sets), 10, 1), strict=True):
        np.testing.assert_array_equal(a, b)


def test_sets_without_each_item():
    rest = without_each(Sets(np.array([0, 3, 4]), np.array([5, 6, 7, 8], dtype=np.int32)))
    parts = [rest.indices[a:b].tolist() for a, b in zip(rest.indptr[:-1], rest.indptr[1:], strict=True)]
    assert parts == [[6, 7], [5, 7], [5, 6], []]


def test_lists_end_where_nothing_is_left():
    sets = Sets.one([0, 1, 2])
    out = rank_one_by_one(lambda rest: np.tile([3.0, 2.0, 1.0, 0.0], (rest.count, 1)), sets, np.array([1]), 10, 4)
    assert out.top.tolist() == [[1, 3, -1, -1, -1, -1, -1, -1, -1, -1]]


def test_counts_of_rows_know_rounding():
    better, equal = count_rows(np.array([[0.1 + 0.2, 0.3, 0.4, -np.inf]]), np.array([1], dtype=np.int32))
    assert (better.tolist(), equal.tolist()) == ([1], [1])


def test_counts_of_rows_with_scores_that_are_not_finite():
    rows = np.array([[np.inf, 1.0, -np.inf, 1.0], [np.inf, np.inf, 0.0, -np.inf], [-np.inf, 0.0, -np.inf, -np.inf]])
    better, equal = count_rows(rows, np.array([1, 2, 0], dtype=np.int32))
    assert (better.tolist(), equal.tolist()) == ([1, 2, 1], [1, 0, 0])
    better, equal = count_rows(rows[:1], np.array([1], dtype=np.int32), np.array([0.0, 0.5, 0.0, 0.0]))
    assert (better.tolist(), equal.tolist()) == ([1], [1])
