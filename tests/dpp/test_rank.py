"""The best few of many scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import reference
from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.rank import best_next, top_n

NOTHING = np.array([], dtype=np.int32)
SCORES = hnp.arrays(
    np.float64,
    st.tuples(st.integers(0, 4), st.integers(1, 9)),
    elements=st.sampled_from([-np.inf, 0.0, 0.25, 0.5, 1.0, 2.0]),
)


@settings(deadline=None, max_examples=150)
@given(SCORES, st.integers(0, 12))
def test_top_n_is_a_stable_sort_cut_short(scores, n):
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(top_n(scores, n), expected)


def test_best_next_by_definition(factors):
    kernel, sets = Kernel(factors), [[2], [0, 5], []]
    packed = Sets(np.array([0, 1, 3, 3]), np.array([2, 0, 5], dtype=np.int32))
    codes, probabilities = best_next(kernel, packed, 3, candidates=None, banned=NOTHING)
    for row, A in enumerate(sets):
        law = reference.next_item(factors, A)
        np.testing.assert_array_equal(codes[row], np.argsort(-law)[:3])
        np.testing.assert_allclose(probabilities[row], np.sort(law)[::-1][:3])


def test_short_rows_end_in_minus_one(factors):
    packed = Sets(np.array([0, 1, 3]), np.array([2, 0, 5], dtype=np.int32))
    codes, probabilities = best_next(Kernel(factors), packed, 9, candidates=np.array([0, 2, 5]), banned=NOTHING)
    assert codes.shape == probabilities.shape == (2, 2)
    assert set(codes[0].tolist()) == {0, 5}
    assert codes[1].tolist() == [2, -1]
    assert probabilities[1, 1] == 0


@pytest.mark.parametrize("candidates", [None, np.arange(7), np.array([1, 3, 4])])
def test_banned_items_keep_their_share_of_the_probability(factors, candidates):
    packed = Sets(np.array([0, 1]), np.array([2], dtype=np.int32))
    law = reference.next_item(factors, [2])
    codes, probabilities = best_next(
        Kernel(factors), packed, 7, candidates=candidates, banned=np.array([3, 0], dtype=np.int32)
    )
    allowed = set(range(7) if candidates is None else candidates.tolist()) - {0, 2, 3}
    assert set(codes[0].tolist()) == allowed
    np.testing.assert_allclose(probabilities[0], law[codes[0]])


def test_nothing_to_choose_from(factors):
    packed = Sets(np.array([0, 1]), np.array([2], dtype=np.int32))
    codes, probabilities = best_next(
        Kernel(factors), packed, 3, candidates=np.array([], dtype=np.int64), banned=NOTHING
    )
    assert codes.shape == probabilities.shape == (1, 0)
