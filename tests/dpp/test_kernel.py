"""Answers of a kernel: determinants, normalizer, sizes, and which factors it refuses."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from contradpp.data.sets import runs, take_sets
from contradpp.dpp import factor
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ParameterError
from exact import ExactDPP
from reference import as_sets


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_every_probability_by_enumeration(n_items, n_components, seed):
    V = np.random.default_rng(seed).normal(size=(n_items, n_components))
    kernel, exact = Kernel(V), ExactDPP(V @ V.T)
    probabilities = np.exp(kernel.log_probability(as_sets(exact.sets)))
    np.testing.assert_allclose(probabilities, exact.probabilities, atol=1e-9)
    assert probabilities.sum() == pytest.approx(1)
    sizes = kernel.size_distribution()
    assert sizes.shape == (n_components + 1,)
    assert sizes.sum() == pytest.approx(1)
    common = min(n_items, n_components) + 1
    np.testing.assert_allclose(sizes[:common], exact.sizes()[:common], atol=1e-9)
    assert (sizes[common:] == 0).all()


def test_a_kernel_answers_for_its_distribution():
    V = np.random.default_rng(0).normal(size=(6, 3))
    kernel, L = Kernel(V), V @ V.T
    assert kernel.is_exact
    assert kernel.log_normalizer == pytest.approx(np.linalg.slogdet(np.eye(6) + L)[1])
    assert (kernel.log_normalizer_error, kernel.refine_normalizer(1e-9)) == (0.0, 0.0)
    np.testing.assert_allclose(kernel.eigenvalues, np.linalg.eigvalsh(L)[:2:-1])
    K = kernel.marginal_kernel()
    np.testing.assert_allclose(K, L @ np.linalg.inv(np.eye(6) + L))
    np.testing.assert_allclose(kernel.marginals(), np.diagonal(K))
    marginals, errors = kernel.marginals_with_errors(np.array([1], dtype=np.int32))
    np.testing.assert_allclose(marginals, ExactDPP(L).marginals([1]))
    assert not errors.any()


def test_sets_beyond_the_rank_are_impossible_not_unlikely():
    V = np.random.default_rng(0).normal(size=(9, 3))
    kernel = Kernel(V)
    assert (kernel.log_det(as_sets(itertools.combinations(range(9), 4))) == -np.inf).all()
    assert np.isfinite(kernel.log_det(as_sets(itertools.combinations(range(9), 3)))).all()


def test_linearly_dependent_sets_are_impossible():
    V = np.random.default_rng(0).normal(size=(5, 4))
    V[3] = V[0] + V[1]
    V[4] = 0
    logs = Kernel(V).log_probability(as_sets([[0, 1, 3], [3, 1, 0], [0, 3], [4], [2, 4]]))
    assert np.isfinite(logs).tolist() == [False, False, True, False, False]
    assert (logs[~np.isfinite(logs)] == -np.inf).all()


def test_components_that_repeat_others_do_not_raise_the_rank():
    V = np.random.default_rng(0).normal(size=(6, 2))
    kernel = Kernel(np.hstack([V, V]))
    assert kernel.rank == 2
    assert kernel.n_components == 4
    assert (kernel.log_det(as_sets(itertools.combinations(range(6), 3))) == -np.inf).all()
    assert (kernel.log_size_distribution[3:] == -np.inf).all()
    assert kernel.log_normalizer == pytest.approx(reference.log_normalizer(np.sqrt(2) * V))


def test_a_kernel_of_zeros_knows_only_the_empty_set():
    kernel = Kernel(np.zeros((3, 2)))
    assert kernel.rank == 0
    assert kernel.log_normalizer == 0
    np.testing.assert_array_equal(kernel.log_probability(as_sets([[], [0], [1, 2]])), [0, -np.inf, -np.inf])


@pytest.mark.parametrize("lists", [[], [[]], [[], [0], []], [[1, 2], [], [], [0]], [[0], [], [2, 1]], [[], []]])
def test_empty_sets_anywhere(lists):
    V = np.random.default_rng(0).normal(size=(3, 3))
    expected = [reference.log_det(V, s) for s in lists]
    np.testing.assert_allclose(Kernel(V).log_det(as_sets(lists)), expected)


def test_chunks_of_work_do_not_change_the_result(monkeypatch):
    rng = np.random.default_rng(0)
    kernel = Kernel(rng.normal(size=(20, 6)))
    sets = as_sets([rng.choice(20, size=rng.integers(0, 9), replace=False) for _ in range(700)])
    whole = kernel.log_det(sets)
    monkeypatch.setattr(factor, "ENTRIES_PER_CHUNK", 5)
    np.testing.assert_array_equal(kernel.log_det(sets), whole)
    kernel.n_jobs = 2
    np.testing.assert_array_equal(kernel.log_det(sets), whole)
    expected = [reference.log_det(kernel.factors, sets.indices[a:b]) for a, b in itertools.pairwise(sets.indptr)]
    np.testing.assert_allclose(whole, expected, atol=1e-8)


def test_runs_cover_every_set_once():
    indptr = np.array([0, 3, 3, 10, 11, 12, 12])
    assert list(runs(indptr, 3)) == [(0, 2), (2, 3), (3, 6)]
    assert list(runs(indptr, 3, most=1)) == [(n, n + 1) for n in range(6)]
    assert list(runs(np.array([0]), 3)) == []


def test_take_sets():
    sets = as_sets([[1, 2], [], [3], [4, 5, 6]])
    taken = take_sets(sets, np.array([3, 1, 0]))
    assert taken.indptr.tolist() == [0, 3, 3, 5]
    assert taken.indices.tolist() == [4, 5, 6, 1, 2]
    assert take_sets(sets, np.arange(4)) is sets
    assert take_sets(sets, np.array([], dtype=np.int64)).count == 0


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_rotating_the_components_changes_nothing(seed):
    """V → VQ leaves L as it is."""
    rng = np.random.default_rng(seed)
    V, Q = rng.normal(size=(6, 4)), np.linalg.qr(rng.normal(size=(4, 4)))[0]
    sets = as_sets(itertools.combinations(range(6), 3))
    before, after = Kernel(V), Kernel(V @ Q)
    np.testing.assert_allclose(after.log_probability(sets), before.log_probability(sets), atol=1e-6)
    np.testing.assert_allclose(after.log_size_distribution, before.log_size_distribution, atol=1e-6)


def test_float32_factors_stay_float32_and_agree_with_float64():
    rng = np.random.default_rng(0)
    V = rng.normal(size=(30, 8)).astype(np.float32)
    single, double = Kernel(V), Kernel(V.astype(np.float64))
    assert single.factors.dtype == np.float32
    assert single.rank == 8
    sets = as_sets([rng.choice(30, size=5, replace=False) for _ in range(50)])
    np.testing.assert_allclose(single.log_probability(sets), double.log_probability(sets), rtol=1e-6)
    np.testing.assert_allclose(single.log_size_distribution, double.log_size_distribution, rtol=1e-6)


def test_float32_does_not_lose_small_eigenvalues():
    """λ = 1e-3 next to 1e4 matters for sets of all sizes, and float32 factors hold it well."""
    V = np.zeros((4, 3), dtype=np.float32)
    V[0, 0], V[1, 1], V[2, 2] = 100.0, 1.0, np.sqrt(1e-3)
    kernel = Kernel(V)
    assert kernel.rank == 3
    assert kernel.log_normalizer == pytest.approx(np.log1p([1e4, 1.0, 1e-3]).sum(), rel=1e-7)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e20])
def test_large_kernels_do_not_overflow(scale):
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(250, 200)))[0] * np.sqrt(scale)
    kernel = Kernel(V)
    sizes = kernel.size_distribution()
    assert np.isfinite(kernel.log_normalizer)
    assert sizes.sum() == pytest.approx(1, rel=1e-6)
    assert sizes @ np.arange(201) == pytest.approx(200 * scale / (1 + scale), rel=1e-6)
    full = kernel.log_probability(as_sets([range(200)]))
    assert np.isfinite(full).all()


def test_factors_are_copied_and_frozen():
    V = np.eye(3)
    kernel = Kernel(V)
    V[0, 0] = 5
    assert kernel.factors[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        kernel.factors[0, 0] = 2


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([1.0, 2.0], "shape"),
        (np.ones((2, 2, 2)), "shape"),
        (np.ones((0, 3)), "shape"),
        (np.ones((3, 0)), "shape"),
        (3.0, "shape"),
        ([[1.0], [1.0, 2.0]], "lengths that differ"),
        ([["a", "b"]], "real numbers"),
        (np.ones((2, 2), dtype=complex), "real numbers"),
        (np.ones((2, 2), dtype=object), "real numbers"),
        (np.ones((2, 2), dtype=bool), "real numbers"),
        ([[1.0, 0.0], [np.nan, 1.0]], "row 1"),
        ([[np.inf, 0.0], [0.0, 1.0]], "row 0"),
        (np.full((2, 2), 1e200), "overflow"),
        (np.full((2, 2), 1e30, dtype=np.float32), "overflow"),
    ],
)
def test_factors_that_cannot_be_used(factors, message):
    with pytest.raises(ParameterError, match=message):
        Kernel(factors)


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.uint8, ">f8"])
def test_other_real_numbers_become_float64(dtype):
    kernel = Kernel(np.eye(2).astype(dtype))
    assert kernel.factors.dtype == np.dtype(np.float64)
    assert kernel.factors.dtype.isnative


def test_factors_by_column_are_not_handed_to_other_processes():
    kernel = Kernel(np.random.default_rng(0).normal(size=(1000, 8)))
    np.testing.assert_array_equal(kernel.by_column, kernel.factors)
    assert kernel.by_column.flags.f_contiguous
    copy = pickle.loads(pickle.dumps(kernel))
    assert "by_column" in vars(kernel)
    assert "by_column" not in vars(copy)
    np.testing.assert_array_equal(copy.by_column, kernel.by_column)
