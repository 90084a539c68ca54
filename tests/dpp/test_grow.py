"""Greedy completion against the plain definition, and at the edge of the rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from contradpp.dpp.greedy import greedy_completion
from contradpp.dpp.kernel import Kernel
from contradpp.errors import RankError
from reference import codes


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(0, 6))
def test_equals_the_plain_greedy(seed, n_given, size):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(9, 6))
    start = rng.choice(9, size=min(n_given, size), replace=False).astype(np.int32)
    chosen = greedy_completion(Kernel(V), start, size)
    assert chosen.tolist() == reference.greedy_completion(V, start, size)


def test_float32_gives_the_same_set():
    V = np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32)
    single = greedy_completion(Kernel(V), codes(3), 8)
    assert single.tolist() == greedy_completion(Kernel(V.astype(float)), codes(3), 8).tolist()


def test_only_allowed_items_are_added():
    V = np.random.default_rng(1).normal(size=(8, 4))
    allowed = np.array([True, False, True, False, True, False, True, False])
    before = allowed.copy()
    chosen = greedy_completion(Kernel(V), codes(1), 4, allowed=allowed)
    assert chosen[0] == 1
    assert set(chosen[1:].tolist()) <= {0, 2, 4, 6}
    np.testing.assert_array_equal(allowed, before)
    with pytest.raises(RankError, match="try size=2"):
        greedy_completion(Kernel(V), codes(1), 3, allowed=np.arange(8) == 0)


def test_more_than_the_rank():
    V = np.random.default_rng(1).normal(size=(8, 3))
    with pytest.raises(RankError, match="n_components of 4 or more"):
        greedy_completion(Kernel(V), codes(), 4)
    with pytest.raises(RankError, match="try size=3"):
        greedy_completion(Kernel(np.hstack([V, V])), codes(0), 4)


def test_a_dependent_basket():
    V = np.ones((3, 3))
    with pytest.raises(RankError, match="dependent"):
        greedy_completion(Kernel(V), codes(0, 1), 3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_large_twin_does_not_hide_a_small_item(dtype):
    """The rounding error of the twin's score exceeds the small items' scores; they must be found still."""
    rng = np.random.default_rng(2)
    V = rng.normal(size=(6, 4)).astype(dtype)
    V[:3] *= 1e6 if dtype is np.float32 else 1e12
    V[1] = V[0] / 3
    V[2] = V[0]
    kernel = Kernel(V)
    chosen = greedy_completion(kernel, codes(), 4)
    assert len({0, 1, 2} & set(chosen.tolist())) == 1
    assert len(set(chosen.tolist())) == 4


def test_whole_sets_and_nothing():
    kernel = Kernel(np.eye(3))
    assert greedy_completion(kernel, codes(2), 3).tolist() == [2, 0, 1]  # ties in the order of the items
    assert greedy_completion(kernel, codes(), 0).tolist() == []
    assert greedy_completion(kernel, codes(1, 0), 2).tolist() == [1, 0]


def test_two_items_that_only_come_together_are_added_together():
    """No third item may join alone, but a pair may: `complete` said that there is no set of three."""
    S = np.zeros((4, 4))
    S[2, 3], S[3, 2] = 0.9, -0.9
    kernel = Kernel(np.array([[1.0], [0.5], [0.0], [0.0]]), skew=S)
    assert greedy_completion(kernel, codes(), 3).tolist() == [0, 2, 3]
    with pytest.raises(RankError, match="try size=1"):
        greedy_completion(kernel, codes(), 2)
    only = np.array([True, True, True, False])
    with pytest.raises(RankError, match="try size=1"):
        greedy_completion(kernel, codes(), 3, allowed=only)
