"""Sets of more than `factor.LARGE` items go by LAPACK: the same answers as by the loops, which never see them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from contradpp.data.sets import Sets, joined
from contradpp.dpp import compiled, condition, factor, rank, scoring
from contradpp.dpp.kernel import Kernel
from contradpp.errors import RankError

M = 40


def kernel_of(kind: str, seed: int = 0) -> Kernel:
    rng = np.random.default_rng(seed)
    V, d = rng.normal(size=(M, 4)) * 0.3, rng.uniform(0.2, 1.0, M)
    S = np.where(rng.random((M, M)) < 0.1, rng.normal(size=(M, M)), 0.0)
    if kind == "symmetric":
        return Kernel(V, diagonal=d, n_jobs=1)
    if kind == "without a diagonal":
        return Kernel(rng.normal(size=(M, 30)), n_jobs=1)
    return Kernel(V, skew=csr_array(S - S.T), diagonal=d, n_jobs=1)


KINDS = ["skew", "symmetric", "without a diagonal"]


def some_sets(seed: int = 1) -> Sets:
    rng = np.random.default_rng(seed)
    return joined([Sets.one(rng.choice(M, size, replace=False)) for size in (3, 20, 1, 12, 13, 25)])


def all_scores(kernel: Kernel, sets: Sets, candidates=None) -> np.ndarray:
    return np.concatenate([block.scores for block in condition.next_scores(kernel, sets, candidates=candidates)])


@pytest.mark.parametrize("kind", KINDS)
def test_large_sets_are_answered_as_small_ones_are(monkeypatch, kind):
    kernel, sets, some = kernel_of(kind), some_sets(), np.arange(1, M, 3)

    def answers() -> list[np.ndarray]:
        found = factor.factorise(kernel, sets)
        return [
            factor.log_det(kernel, sets), found.logs, found.worst, found[0], all_scores(kernel, sets),
            all_scores(kernel, sets, some), condition.next_totals(kernel, sets), scoring.scores_given(kernel, sets),
            *rank.best_next(kernel, sets, 5, candidates=some, banned=np.array([4], dtype=np.int32)),
        ]  # fmt: skip

    expected = answers()
    monkeypatch.setattr(factor, "LARGE", 12)
    for module in (condition, scoring):
        monkeypatch.setattr(module, "ROWS_PER_BLOCK", 24)
    for mine, theirs in zip(answers(), expected, strict=True):
        np.testing.assert_allclose(np.abs(mine), np.abs(theirs), rtol=1e-9, atol=1e-11)  # of rows the sign is free


@pytest.mark.parametrize("kind", KINDS)
def test_no_large_set_comes_to_the_loops_over_rows(monkeypatch, kind):
    seen: list[int] = []

    def counting(name: str, first: int) -> None:
        original = getattr(compiled.kernels, name)

        def wrapped(*args):
            indptr, begin, end = args[first], args[first + 2], args[first + 3]
            seen.extend(np.diff(indptr)[begin:end].tolist())
            return original(*args)

        monkeypatch.setattr(compiled.kernels, name, wrapped)

    counting("invert_sets", 6)
    counting("bases_of_sets", 2)
    monkeypatch.setattr(factor, "LARGE", 12)
    kernel, sets = kernel_of(kind), some_sets()
    all_scores(kernel, sets)
    factor.log_det(kernel, sets)
    assert seen
    assert max(seen) <= 12


@pytest.mark.parametrize("kind", KINDS)
def test_the_small_ones_beside_a_large_one_keep_their_bits(monkeypatch, kind):
    monkeypatch.setattr(condition, "ROWS_PER_BLOCK", 12)  # as 512 are the rows of a block and a large set
    kernel, sets = kernel_of(kind), some_sets()
    small = np.flatnonzero(sets.sizes <= 12)
    expected = all_scores(kernel, sets)[small], factor.log_det(kernel, sets)[small]
    monkeypatch.setattr(factor, "LARGE", 12)
    np.testing.assert_array_equal(all_scores(kernel, sets)[small], expected[0])
    np.testing.assert_array_equal(factor.log_det(kernel, sets)[small], expected[1])


def test_large_sets_that_are_singular(monkeypatch):
    rng = np.random.default_rng(3)
    V, d = rng.normal(size=(M, 3)), rng.uniform(0.2, 1.0, M)
    V[5], d[2], d[5] = V[2], 0.0, 0.0  # the two are dependent
    S = np.zeros((M, M))
    S[30, 31], S[31, 30] = 0.1, -0.1
    sets = Sets.one(np.arange(15))
    for kernel in (Kernel(V, diagonal=d, n_jobs=1), Kernel(V, skew=S, diagonal=d, n_jobs=1)):
        monkeypatch.setattr(factor, "LARGE", 1000)
        expected = scoring.scores_given(kernel, sets)
        monkeypatch.setattr(factor, "LARGE", 12)
        assert factor.log_det(kernel, sets)[0] == -np.inf
        np.testing.assert_allclose(scoring.scores_given(kernel, sets), expected, rtol=1e-6, atol=1e-8)
        with pytest.raises(RankError, match="basket 0 has probability zero"):
            all_scores(kernel, sets)


@pytest.mark.parametrize(("rank", "size", "diagonal"), [(10, 20, False), (10, 9, False), (6, 25, False), (4, 20, True)])
def test_what_follows_dependent_items_of_a_large_set_still_counts(monkeypatch, rank, size, diagonal):
    """Where an item was like an earlier one, a later one that adds a direction was taken for dependent, too."""
    rng = np.random.default_rng(0)
    V, d = rng.normal(size=(M, rank)), rng.uniform(0.2, 1.0, M)
    V[1], V[3], d[:5] = V[0], -2 * V[2], 0.0
    kernel = Kernel(V, diagonal=d if diagonal else None, n_jobs=1)
    expected = scoring.scores_given(kernel, Sets.one(np.arange(size)))
    monkeypatch.setattr(factor, "LARGE", 5)
    found = scoring.scores_given(kernel, Sets.one(np.arange(size)))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_bounds_are_not_sought_for_a_large_set(monkeypatch):
    kernel, sets = kernel_of("skew"), some_sets()
    nothing = np.empty(0, dtype=np.int32)
    expected = rank.best_next(kernel, sets, 6, candidates=None, banned=nothing)
    monkeypatch.setattr(rank, "BOUNDED_FROM", 10)
    monkeypatch.setattr(factor, "LARGE", 12)
    counted: list[int] = []
    invert = factor.inverses
    monkeypatch.setattr(
        factor, "inverses", lambda k, s, **more: (counted.extend(s.sizes.tolist()), invert(k, s, **more))[1]
    )
    found = rank.best_next(kernel, sets, 6, candidates=None, banned=nothing)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-10)
    assert sorted(size for size in counted if size > 12) == [13, 20, 25]  # once each


@pytest.mark.parametrize("kind", KINDS)
def test_scores_given_the_first_codes_of_many(monkeypatch, kind):
    kernel, rng = kernel_of(kind), np.random.default_rng(4)
    order = rng.permutation(M)
    codes, items = order[:25].astype(np.int32), order[30:].astype(np.int64)
    expected = scoring.scores_given_prefixes(kernel, codes, items)
    monkeypatch.setattr(factor, "LARGE", 12)
    monkeypatch.setattr(scoring, "ROWS_PER_BLOCK", 4 * 7)
    monkeypatch.setattr(scoring, "scores_given", None)  # which would factorise every one of them
    found = scoring.scores_given_prefixes(kernel, codes, items)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_of_many_codes_those_that_add_nothing_are_passed_over(monkeypatch):
    rng = np.random.default_rng(3)
    V, d = rng.normal(size=(M, 3)), rng.uniform(0.2, 1.0, M)
    V[5], d[2], d[5] = V[2], 0.0, 0.0
    kernel = Kernel(V, skew=np.zeros((M, M)), diagonal=d, n_jobs=1)
    codes, items = np.arange(20, dtype=np.int32), np.arange(20, M)
    expected = scoring.scores_given_prefixes(kernel, codes, items)
    monkeypatch.setattr(factor, "LARGE", 12)
    monkeypatch.setattr(scoring, "ROWS_PER_BLOCK", 4 * 7)
    found = scoring.scores_given_prefixes(kernel, codes, items)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found[6], found[5], rtol=1e-12)  # the sixth is like the third


def test_many_entries_of_a_symmetric_kernel_are_left_out_by_one_factorisation(monkeypatch):
    kernel, sets = kernel_of("symmetric"), some_sets()
    expected, found = np.empty((len(sets.indices), M)), np.empty((len(sets.indices), M))
    scoring.write_scores_without_each(kernel, sets, expected)
    monkeypatch.setattr(scoring, "MOST_LEFT_OUT", 12)
    asked: list[int] = []
    original = scoring.scores_given
    monkeypatch.setattr(
        scoring, "scores_given", lambda k, s, **more: (asked.extend(s.sizes.tolist()), original(k, s, **more))[1]
    )
    scoring.write_scores_without_each(kernel, sets, found)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert max(asked) < 12


@pytest.mark.parametrize("kind", KINDS)
def test_totals_of_many_baskets_take_the_memory_of_a_few(monkeypatch, kind):
    """Recommending from a large catalogue, 10,000 baskets of 300 items held all of their inverses: 7 GB."""
    kernel, sets = kernel_of(kind), some_sets()
    expected, held = condition.next_totals(kernel, sets), []
    monkeypatch.setattr(factor, "ENTRIES_PER_CHUNK", 25)
    for name in ("bases", "inverses"):
        real = getattr(factor, name)
        monkeypatch.setattr(factor, name, lambda k, s, real=real: held.append(len(s.indices)) or real(k, s))
    np.testing.assert_array_equal(condition.next_totals(kernel, sets), expected)
    assert max(held) <= 25
    assert sum(held) == len(sets.indices)
