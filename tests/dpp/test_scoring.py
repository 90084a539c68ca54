"""Next items given a basket: scores, conditioning, the best of many, and large sets, against definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array

import reference
from contradpp.data.sets import Sets, joined, prefixes, without_each
from contradpp.dpp import compiled, factor, scoring
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.scoring import best_next, score_block, top_n
from contradpp.errors import RankError
from exact import ExactDPP
from reference import all_scores, as_sets, codes


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
    monkeypatch.setattr(scoring, "ROWS_PER_BLOCK", 4)
    blocks = list(scoring.next_scores(kernel, sets))
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
    np.testing.assert_allclose(scoring.next_totals(kernel, sets), sums, rtol=1e-8)


@pytest.mark.parametrize("given_items", [(), (3,), (6, 0), (1, 2, 5), (0, 1, 2, 3)])
def test_marginals_by_enumeration(factors, exact, given_items):
    ours = Kernel(factors).marginals(codes(*given_items))
    np.testing.assert_allclose(ours, exact.marginals(given_items), atol=1e-9)
    np.testing.assert_allclose(ours, reference.marginals(factors, list(given_items)), atol=1e-9)
    assert (ours[list(given_items)] == 1).all()


@pytest.mark.parametrize("given_items", [(), (3,), (6, 0), (1, 2, 5), (0, 1, 2, 3)])
def test_condition_by_enumeration(factors, exact, given_items):
    kernel, rest = scoring.condition(Kernel(factors), codes(*given_items))
    assert rest.tolist() == [i for i in range(7) if i not in given_items]
    small = ExactDPP(kernel.factors @ kernel.factors.T)
    distribution = exact.given(given_items)
    for s in small.sets:
        whole = tuple(sorted([*given_items, *rest[list(s)].tolist()]))
        assert small.probability(s) == pytest.approx(distribution[whole], abs=1e-9)


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
    np.testing.assert_allclose(scoring.next_totals(single, sets), scoring.next_totals(double, sets))


@pytest.mark.parametrize(
    ("columns", "diagonal"), [(0, True), (1, True), (3, True), (3, False), (20, True), (20, False)]
)
@pytest.mark.parametrize("inner", [True, False])
def test_scores_given_are_their_definition_with_few_and_many_neighbors(columns, diagonal, inner):
    rng = np.random.default_rng(columns)
    V, A, d = rng.normal(size=(12, columns)), rng.normal(size=(12, 12)), rng.uniform(0.1, 1, 12)
    A[:, rng.random(12) < 0.4] = 0.0  # items that have neighbors, and items that have few or none
    A[:4, 4:] = A[4:, :4] = 0.0
    B = np.eye(columns) + 0.5 * rng.normal(size=(columns, columns)) if inner and columns else None
    G = np.eye(columns) if B is None else B - B.T + np.eye(columns)
    kernel = Kernel(V, inner=None if B is None else G, skew=A - A.T, diagonal=d if diagonal else None)
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
    monkeypatch.setattr(scoring, "MAX_LINKED", -1)  # as of baskets with many neighbors
    monkeypatch.setattr(scoring, "_write_by_squares", None)
    other = scoring.scores_given(kernel, sets)
    np.testing.assert_allclose(found / np.square(sizes), other / np.square(sizes), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("form", ["symmetric", "diagonal", "skew", "dependent"])
def test_scores_given_prefixes_are_those_of_each_prefix(form):
    rng = np.random.default_rng(1)
    V, A = rng.normal(size=(9, 5 if form != "dependent" else 2)), rng.normal(size=(9, 9))
    more = {"skew": {"skew": A - A.T}, "diagonal": {"diagonal": np.full(9, 0.1)}}.get(form, {})
    kernel, order, items = Kernel(V, **more), codes(7, 2, 4, 0), np.array([8, 1])
    expected = scoring.scores_given(kernel, as_sets([order[:k] for k in range(5)]))[:, items]
    found = scoring.scores_given_prefixes(kernel, order, items)
    np.testing.assert_allclose(found, expected, atol=1e-9)


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


@pytest.mark.parametrize("n", [1, 10, scoring.MAX_INSERTED, scoring.MAX_INSERTED + 1, 999])
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
        distribution = reference.next_item(factors, A)
        np.testing.assert_array_equal(codes[row], np.argsort(-distribution)[:3])
        np.testing.assert_allclose(probabilities[row], np.sort(distribution)[::-1][:3])


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
    distribution = reference.next_item(factors, [2])
    codes, probabilities = best_next(
        Kernel(factors), packed, 7, candidates=candidates, banned=np.array([3, 0], dtype=np.int32)
    )
    allowed = set(range(7) if candidates is None else candidates.tolist()) - {0, 2, 3}
    assert set(codes[0].tolist()) == allowed
    np.testing.assert_allclose(probabilities[0], distribution[codes[0]])


def test_nothing_to_choose_from(factors):
    packed = Sets(np.array([0, 1]), np.array([2], dtype=np.int32))
    codes, probabilities = best_next(
        Kernel(factors), packed, 3, candidates=np.array([], dtype=np.int64), banned=NOTHING
    )
    assert codes.shape == probabilities.shape == (1, 0)


def random_kernel(form: str, rng: np.random.Generator, n: int) -> Kernel:
    """Popularity by a power distribution; every fifth item has a twin with the same row, so that scores tie."""
    V = rng.normal(size=(n, 5)) * np.arange(1, n + 1)[:, None] ** -0.4
    d = rng.random(n) / np.arange(1, n + 1)
    V[1::5], d[1::5] = V[0::5], d[0::5]
    order = rng.permutation(n)
    S = np.triu(np.where(rng.random((n, n)) < 0.05, rng.normal(size=(n, n)), 0.0), 1)
    return Kernel(
        V[order].astype(np.float32 if form == "single" else np.float64),
        inner=np.diag([1.0, 0.5, 2.0, 1.0, 3.0]) if form == "inner" else None,
        skew=S - S.T if form == "skew" else None,
        diagonal=d[order] if form in ("diagonal", "skew") else None,
    )


@pytest.mark.parametrize("form", ["symmetric", "single", "inner", "diagonal", "skew"])
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
            patch.setattr(scoring, "BOUNDED_FROM", 0)
            patch.setattr(scoring, "FIRST_SCORED", 4)
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

    monkeypatch.setattr(scoring, "score_block", counted)
    codes, _ = best_next(kernel, Sets.one(np.array([0, 7], dtype=np.int32)), 10, candidates=None, banned=NOTHING)
    assert codes.shape == (1, 10)
    assert sum(looked) < 5000
    with pytest.raises(RankError, match="basket 1 has probability zero"):
        best_next(Kernel(V), Sets(np.array([0, 1, 4]), np.array([0, 1, 2, 2], dtype=np.int32)), 3, candidates=None,
                  banned=NOTHING)  # fmt: skip


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


@pytest.mark.parametrize("kind", KINDS)
def test_large_sets_are_answered_as_small_ones_are(monkeypatch, kind):
    kernel, sets, some = kernel_of(kind), some_sets(), np.arange(1, M, 3)

    def answers() -> list[np.ndarray]:
        found = factor.factorize(kernel, sets)
        return [
            factor.log_det(kernel, sets), found.logs, found.worst, found[0], all_scores(kernel, sets),
            all_scores(kernel, sets, some), scoring.next_totals(kernel, sets), scoring.scores_given(kernel, sets),
            *scoring.best_next(kernel, sets, 5, candidates=some, banned=np.array([4], dtype=np.int32)),
        ]  # fmt: skip

    expected = answers()
    monkeypatch.setattr(factor, "LARGE", 12)
    monkeypatch.setattr(scoring, "ROWS_PER_BLOCK", 24)
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

    counting("invert_sets", 1)
    counting("bases_of_sets", 2)
    monkeypatch.setattr(factor, "LARGE", 12)
    kernel, sets = kernel_of(kind), some_sets()
    all_scores(kernel, sets)
    factor.log_det(kernel, sets)
    assert seen
    assert max(seen) <= 12


@pytest.mark.parametrize("kind", KINDS)
def test_the_small_ones_beside_a_large_one_keep_their_bits(monkeypatch, kind):
    monkeypatch.setattr(scoring, "ROWS_PER_BLOCK", 12)  # as 512 are the rows of a block and a large set
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
    """After an item like an earlier one, a later one that adds a direction counted as dependent, too."""
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
    expected = scoring.best_next(kernel, sets, 6, candidates=None, banned=nothing)
    monkeypatch.setattr(scoring, "BOUNDED_FROM", 10)
    monkeypatch.setattr(factor, "LARGE", 12)
    counted: list[int] = []
    invert = factor.inverses
    monkeypatch.setattr(
        factor, "inverses", lambda k, s, **more: (counted.extend(s.sizes.tolist()), invert(k, s, **more))[1]
    )
    found = scoring.best_next(kernel, sets, 6, candidates=None, banned=nothing)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-10)
    assert sorted(size for size in counted if size > 12) == [13, 20, 25]  # once each


@pytest.mark.parametrize("kind", KINDS)
def test_scores_given_the_first_codes_of_many(monkeypatch, kind):
    kernel, rng = kernel_of(kind), np.random.default_rng(4)
    order = rng.permutation(M)
    codes, items = order[:25].astype(np.int32), order[30:].astype(np.int64)
    expected = scoring.scores_given(kernel, prefixes(codes))[:, items]
    monkeypatch.setattr(scoring, "ROWS_PER_BLOCK", 4 * 7)
    found = scoring.scores_given_prefixes(kernel, codes, items)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_of_many_codes_those_that_add_nothing_are_passed_over(monkeypatch):
    rng = np.random.default_rng(3)
    V, d = rng.normal(size=(M, 3)), rng.uniform(0.2, 1.0, M)
    V[5], d[2], d[5] = V[2], 0.0, 0.0
    kernel = Kernel(V, skew=np.zeros((M, M)), diagonal=d, n_jobs=1)
    codes, items = np.arange(20, dtype=np.int32), np.arange(20, M)
    expected = scoring.scores_given(kernel, prefixes(codes))[:, items]
    monkeypatch.setattr(scoring, "ROWS_PER_BLOCK", 4 * 7)
    found = scoring.scores_given_prefixes(kernel, codes, items)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found[6], found[5], rtol=1e-12)  # the sixth is like the third


@pytest.mark.parametrize("kind", KINDS)
def test_entries_are_left_out_by_one_factorisation_of_their_set(monkeypatch, kind):
    kernel, sets = kernel_of(kind), some_sets()
    expected, found = scoring.scores_given(kernel, without_each(sets)), np.empty((len(sets.indices), M))
    monkeypatch.setattr(scoring, "scores_given", None)
    scoring.write_scores_without_each(kernel, sets, found)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_totals_of_many_baskets_take_the_memory_of_a_few(monkeypatch, kind):
    """Recommending from a large catalogue, 10,000 baskets of 300 items held all of their inverses: 7 GB."""
    kernel, sets = kernel_of(kind), some_sets()
    expected, held = scoring.next_totals(kernel, sets), []
    monkeypatch.setattr(factor, "ENTRIES_PER_CHUNK", 25)
    for name in ("bases", "inverses"):
        real = getattr(factor, name)
        monkeypatch.setattr(factor, name, lambda k, s, real=real: held.append(len(s.indices)) or real(k, s))
    np.testing.assert_array_equal(scoring.next_totals(kernel, sets), expected)
    assert max(held) <= 25
    assert sum(held) == len(sets.indices)
