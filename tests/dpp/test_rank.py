"""The best few of many scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import reference
from contradpp.data.sets import Sets
from contradpp.dpp import rank
from contradpp.dpp.condition import score_block
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.rank import best_next, top_n
from contradpp.errors import RankError

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


@pytest.mark.parametrize("n", [1, 10, rank.FEW, rank.FEW + 1, 999])
def test_top_n_of_long_rows(n):
    scores = np.random.default_rng(2).integers(0, 400, size=(30, 1000)).astype(np.float64)  # with ties
    scores[::3, ::2] = -np.inf
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(top_n(scores, n), expected)
    np.testing.assert_array_equal(
        top_n(scores.astype(np.float32)[:, ::-1], n), np.argsort(-scores[:, ::-1], axis=1, kind="stable")[:, :n]
    )


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


def random_kernel(form: str, rng: np.random.Generator, n: int) -> Kernel:
    """Popularity by a power law; every fifth item has a twin with the same row, so that scores tie."""
    V = rng.normal(size=(n, 5)) * np.arange(1, n + 1)[:, None] ** -0.4
    d = rng.random(n) / np.arange(1, n + 1)
    V[1::5], d[1::5] = V[0::5], d[0::5]
    order = rng.permutation(n)
    S = np.triu(np.where(rng.random((n, n)) < 0.05, rng.normal(size=(n, n)), 0.0), 1)
    return Kernel(
        V[order].astype(np.float32 if form == "single" else np.float64),
        gain=np.diag([1.0, 0.5, 2.0, 1.0, 3.0]) if form == "gain" else None,
        skew=S - S.T if form == "skew" else None,
        diagonal=d[order] if form in ("diagonal", "skew") else None,
    )


@pytest.mark.parametrize("form", ["symmetric", "single", "gain", "diagonal", "skew"])
@pytest.mark.parametrize("pool", ["all", "some", "few"])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_do_not_change_the_answer(form, pool, seed, monkeypatch):
    rng = np.random.default_rng(seed)
    kernel = random_kernel(form, rng, 120)
    baskets = [rng.choice(120, size=k, replace=False) for k in (0, 1, 2, 3, 4)]
    sets = Sets(np.cumsum([0, 0, 1, 2, 3, 4]), np.concatenate(baskets).astype(np.int32))
    candidates = {"all": None, "some": np.flatnonzero(rng.random(120) < 0.5), "few": np.array([3, 50, 90, 91])}[pool]
    how = {"candidates": candidates, "banned": rng.choice(120, 10, replace=False).astype(np.int32)}
    for n in (1, 7, 120):
        expected = best_next(kernel, sets, n, **how)
        with monkeypatch.context() as patch:
            patch.setattr(rank, "BOUNDED_FROM", 0)
            patch.setattr(rank, "FIRST_LOOK", 4)
            codes, probabilities = best_next(kernel, sets, n, **how)
        np.testing.assert_array_equal(codes, expected[0])
        np.testing.assert_allclose(probabilities, expected[1], rtol=1e-5 if form == "single" else 1e-9, atol=1e-12)


def test_most_items_are_never_scored(monkeypatch):
    looked: list[int] = []
    rng = np.random.default_rng(0)
    V = 0.1 * rng.normal(size=(60_000, 4))
    kernel = Kernel(V, diagonal=5.0 / np.arange(1, 60_001))

    def counted(kernel, part, numbers, candidates):
        looked.append(len(candidates))
        return score_block(kernel, part, numbers, candidates)

    monkeypatch.setattr(rank.condition, "score_block", counted)
    codes, _ = best_next(kernel, Sets.one(np.array([0, 7], dtype=np.int32)), 10, candidates=None, banned=NOTHING)
    assert codes.shape == (1, 10)
    assert sum(looked) < 5000
    with pytest.raises(RankError, match="basket 1 has probability zero"):
        best_next(Kernel(V), Sets(np.array([0, 1, 4]), np.array([0, 1, 2, 2], dtype=np.int32)), 3, candidates=None,
                  banned=NOTHING)  # fmt: skip
