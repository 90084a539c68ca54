"""One kernel however it is written: every part of L = D + X G Xᵀ + S on and off, against enumeration of all subsets."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contradpp as cd
import reference
from contradpp.data.sets import Sets, without_each
from contradpp.dpp.factor import SINGULAR
from contradpp.dpp.greedy import greedy_completion
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.sampling import Sampler
from contradpp.errors import NumericalError, ParameterError, RankError
from contradpp.metrics.ranks import KernelScorer, rank_entries
from exact import ExactDPP, chi_square_p_value, subsets
from reference import all_scores, as_sets, codes

NOTHING = np.array([], dtype=np.int32)
PARTS = [
    f"{d} {g} {s} {t}"
    for d, g, s, t in itertools.product(
        ("D", "D on some", "0"), ("I", "G symmetric", "G"), ("S", "0"), ("float64", "float32")
    )
]


def made(name: str, n: int = 6, seed: int = 0) -> tuple[Kernel, np.ndarray]:
    """A kernel with these parts, and the dense L."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32 if "float32" in name else np.float64)
    d = rng.random(n)
    if "some" in name:
        d[::2] = 0.0
    H, K, S = rng.normal(size=(2, 3)), rng.normal(size=(3, 3)), rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.4)
    G = H.T @ H + np.eye(3)
    G = np.eye(3) if " I " in name else G if "symmetric" in name else G + K - K.T
    S = S - S.T if " S " in name else np.zeros((n, n))
    S[1], S[:, 1] = 0.0, 0.0  # an item without neighbors
    kernel = Kernel(X, None if " I " in name else G, S, d if name.startswith("D") else None)
    wide = X.astype(np.float64)
    return kernel, (np.diag(d) if name.startswith("D") else 0) + wide @ G @ wide.T + S


def given_kernel(L: np.ndarray, A) -> np.ndarray:
    """L − L_:A L_A⁻¹ L_A:, the definition."""
    A = list(A)
    return L - L[:, A] @ np.linalg.solve(L[np.ix_(A, A)], L[A]) if A else L


def dense(kernel: Kernel) -> np.ndarray:
    return np.diag(kernel.diagonal) + kernel.left @ kernel.X.T + kernel.skew.matrix().toarray()


@pytest.fixture(params=PARTS)
def pair(request):
    return made(request.param)


# -- Every question, by enumeration ----------------------------------------------------------------------


def test_the_distribution(pair):
    kernel, L = pair
    exact = ExactDPP(L)
    probabilities = np.exp(kernel.log_probability(as_sets(exact.sets)))
    np.testing.assert_allclose(probabilities, exact.probabilities, atol=1e-9)
    assert probabilities.sum() == pytest.approx(1, abs=1e-9)
    assert kernel.log_normalizer == pytest.approx(np.linalg.slogdet(np.eye(6) + L)[1], rel=1e-9)
    sizes = kernel.size_distribution()
    np.testing.assert_allclose(sizes, exact.sizes()[: len(sizes)], atol=1e-9)
    np.testing.assert_allclose(exact.sizes()[len(sizes) :], 0, atol=1e-9)
    assert kernel.expected_size == pytest.approx(exact.marginals().sum(), rel=1e-6)
    np.testing.assert_allclose(kernel.squared_norms, np.diag(L), rtol=1e-6)
    possible = [s for s in exact.sets if exact.probability(s) > 0]
    assert max(map(len, possible)) <= kernel.rank <= kernel.largest_set


@pytest.mark.parametrize("items", [(), (3,), (5, 0), (1, 2, 4)])
def test_given_a_basket(pair, items):
    kernel, L = pair
    exact = ExactDPP(L)
    if exact.probability(items) < 1e-9:
        return
    single = kernel.factors.dtype == np.float32
    close = {"rtol": 1e-4, "atol": 2e-5} if single else {"rtol": 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(kernel.marginals(codes(*items)), exact.marginals(items), **close)
    rest_kernel, rest = kernel.condition(codes(*items))
    assert rest.tolist() == [i for i in range(6) if i not in items]
    np.testing.assert_allclose(dense(rest_kernel), given_kernel(L, items)[np.ix_(rest, rest)], **close)
    others = [s for s in exact.sets if set(items) <= set(s) and len(s) == len(items) + 1]
    if not any(exact.probability(s) > 1e-9 for s in others):
        with pytest.raises(RankError):
            all_scores(kernel, Sets.one(items))
        return
    scores = all_scores(kernel, Sets.one(items))[0]
    expected = np.diag(given_kernel(L, items)).copy()
    expected[list(items)] = -np.inf
    np.testing.assert_allclose(scores, np.where(np.abs(expected) < 1e-9, 0, expected), **close)
    assert kernel.next_totals(Sets.one(items))[0] == pytest.approx(np.maximum(expected, 0).sum(), rel=close["rtol"])
    some = np.array([0, 2, 3])
    np.testing.assert_allclose(all_scores(kernel, Sets.one(items), candidates=some)[0], scores[some], **close)
    assert all_scores(kernel, Sets.one(items), candidates=some[:0]).shape == (1, 0)
    grown = kernel.grow()
    for code in items:
        grown.add(code)
    for requested in (grown, kernel.grow(items)):
        np.testing.assert_allclose(requested.scores, scores, **close)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([name for name in PARTS if "64" in name]))
def test_scores_are_ratios_and_zero_exactly_where_the_set_is_impossible(seed, name):
    kernel, _ = made(name, 5, seed)
    sets = [s for s in subsets(5) if len(s) < 5]
    logs = dict(zip(subsets(5), kernel.log_det(as_sets(subsets(5))), strict=True))
    for A in sets:
        if np.isneginf(logs[A]):
            continue
        expected = np.array(
            [np.exp(logs[tuple(sorted({*A, j}))] - logs[A]) if j not in A else -np.inf for j in range(5)]
        )
        try:
            ours = all_scores(kernel, Sets.one(A))[0]
        except RankError:
            ours = np.where(np.isin(np.arange(5), A), -np.inf, 0.0)
        np.testing.assert_array_equal(ours == 0, expected == 0)
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(kernel.grow(A).scores == 0, expected == 0)


def test_leave_one_out(pair):
    kernel, L = pair
    scorer, items = KernelScorer(kernel, cd.Vocabulary(range(6))), [s for s in subsets(6) if 1 <= len(s) <= 3]
    sets = as_sets(items)
    out = scorer.leave_one_out(sets, sets.indptr[:-1].copy(), 3, 1)

    def by_definition(rest: Sets) -> np.ndarray:
        parts = [rest.indices[a:b] for a, b in itertools.pairwise(rest.indptr)]
        return np.array([np.diag(given_kernel(L, A)) for A in parts])

    held, rounding = sets.indptr[:-1].copy(), np.full(6, 1e-9)
    wanted = rank_entries(lambda part: by_definition(without_each(part)), sets, held, 3, 6, rounding=rounding)
    np.testing.assert_array_equal(out.better, wanted.better)
    np.testing.assert_array_equal(out.equal, wanted.equal)


def test_completion_is_greedy(pair):
    kernel, L = pair
    chosen = [5]
    while len(chosen) < 3:
        scores = np.diag(given_kernel(L, chosen)).copy()
        scores[chosen] = -1
        chosen.append(int(np.argmax(scores)))
    assert greedy_completion(kernel, codes(5), 3).tolist() == chosen


def p_value(sets: Sets, distribution: dict[tuple[int, ...], float]) -> float:
    counts = Counter(tuple(sorted(sets.indices[a:b].tolist())) for a, b in itertools.pairwise(sets.indptr))
    observed = np.array([counts.pop(cell, 0) for cell in distribution])
    return 0.0 if counts else chi_square_p_value(observed, np.array(list(distribution.values())))


@pytest.mark.parametrize("size", [None, 2, 4])
def test_samples(pair, size):
    kernel, L = pair
    distribution = {s: p for s, p in ExactDPP(L).table.items() if size is None or len(s) == size}
    total = sum(distribution.values())
    if total == 0:
        with pytest.raises((RankError, ParameterError)):
            Sampler(kernel).sample(1, seed=0, size=size)
        return
    distribution = {s: p / total for s, p in distribution.items()}
    sampler = Sampler(kernel)
    drawn = sampler.sample(6000, seed=0, size=size)
    assert p_value(drawn, distribution) > 1e-3
    sampler.n_jobs = 2
    np.testing.assert_array_equal(sampler.sample(6000, seed=0, size=size).indices, drawn.indices)


@pytest.mark.parametrize("name", ["D I 0 float64", "D G S float64"])
def test_a_sampler_that_forgets_the_diagonal_is_rejected(name):
    kernel, L = made(name)
    wrong = Kernel(kernel.factors, kernel.inner, kernel.skew, 0.8 * kernel.diagonal)
    assert p_value(Sampler(wrong).sample(20_000, seed=0), ExactDPP(L).table) < 1e-6


def test_one_and_two_threads_give_the_same_bytes(pair):
    kernel, _ = pair
    sets = as_sets([s for s in subsets(6) if len(s) < 3] * 30)
    answers = []
    for n_jobs in (1, 2):
        same = Kernel(kernel.factors, kernel.inner, kernel.skew, kernel.diagonal, n_jobs=n_jobs)
        out = KernelScorer(same, cd.Vocabulary(range(6)))
        some = as_sets([(0, 1), (2, 3, 4)] * 300)
        distribution = [same.log_probability(sets), same.marginals(codes(0)), same.log_size_distribution]
        ranks = out.leave_one_out(some, some.indptr[:-1].copy(), 2, n_jobs)
        answers.append([*distribution, all_scores(same, sets), *ranks])
    for one, two in zip(*answers, strict=True):
        np.testing.assert_array_equal(one, two)


# -- The same L, the same answers ------------------------------------------------------------------------


def forms_of(V: np.ndarray, rng: np.random.Generator) -> dict[str, Kernel]:
    """V Vᵀ in ways that a person might write it."""
    n, K = V.shape
    T = rng.normal(size=(K, K)) + 3 * np.eye(K)
    G = np.linalg.inv(T) @ np.linalg.inv(T).T
    asymmetric = np.eye(2 * K)  # half of L from each copy of V, and a skew inner matrix that has no effect on V alone
    asymmetric[:K, :K] = asymmetric[K:, K:] = 0.5 * np.eye(K)
    asymmetric[:K, K:], asymmetric[K:, :K] = np.eye(K), -np.eye(K)
    return {
        "V Vᵀ": Kernel(V),
        "rotated": Kernel(V @ np.linalg.qr(rng.normal(size=(K, K)))[0]),
        "X G Xᵀ": Kernel(V @ T, G),
        "S = 0": Kernel(V, skew=np.zeros((n, n))),
        "D = 0": Kernel(V, diagonal=np.zeros(n)),
        "columns of zeros": Kernel(np.hstack([V, np.zeros((n, 2))])),
        "an inner matrix that is not symmetric": Kernel(np.hstack([V, V]), asymmetric),
    }


def check_same(kernels: dict[str, Kernel], n: int, *, atol: float = 1e-7) -> None:
    first, *others = kernels.values()
    sets = as_sets(subsets(n))
    logs, sizes = first.log_probability(sets), first.log_size_distribution
    for name, other in zip(list(kernels)[1:], others, strict=True):
        theirs = other.log_probability(sets)
        np.testing.assert_array_equal(np.isneginf(theirs), np.isneginf(logs), err_msg=name)
        finite = np.isfinite(logs)
        np.testing.assert_allclose(np.exp(theirs[finite]), np.exp(logs[finite]), atol=atol, err_msg=name)
        common = min(len(sizes), len(other.log_size_distribution))
        np.testing.assert_allclose(
            np.exp(other.log_size_distribution[:common]), np.exp(sizes[:common]), atol=atol, err_msg=name
        )
        for A in itertools.chain(itertools.combinations(range(n), 1), itertools.combinations(range(n), 2)):
            answers = [answer_given(kernel, A) for kernel in (first, other)]
            if answers[0] is None or answers[1] is None:
                assert answers[0] is answers[1] is None, (name, A)
                continue
            np.testing.assert_allclose(answers[1], answers[0], rtol=1e-4, atol=atol, err_msg=f"{name} {A}")
        np.testing.assert_allclose(other.marginals(NOTHING), first.marginals(NOTHING), atol=atol, err_msg=name)


def answer_given(kernel: Kernel, A) -> np.ndarray | None:
    """P(next | A), or None if it is refused."""
    try:
        scores = np.maximum(all_scores(kernel, Sets.one(A))[0], 0)
    except RankError:
        return None
    return scores / scores.sum()


def test_the_same_kernel_in_many_forms():
    rng = np.random.default_rng(3)
    check_same(forms_of(rng.normal(size=(6, 4)), rng), 6)


def test_singular_sets_are_singular_in_every_form():
    """Twins, sums of others, an item of no weight and one that is a twin but for rounding."""
    rng = np.random.default_rng(4)
    V = rng.normal(size=(7, 4))
    V[1] = -2 * V[0]
    V[3] = V[0] + V[2]
    V[4] = 0.0
    V[6] = V[5] * (1 + 1e-9) + 1e-8 * V[0]
    check_same(forms_of(V, rng), 7)


@pytest.mark.parametrize("tilt", [1e-1, 1e-5, 1e-8, 1e-11, 1e-15])
def test_nearly_dependent_items(tilt):
    """The second row is off the first by tilt: both sides of the rule, far enough that rounding does not decide."""
    V = np.array([[1, 0], [1, tilt], [0.3, 0.7]])
    kernels = forms_of(V, np.random.default_rng(0))
    check_same(kernels, 3, atol=1e-3)
    for name, kernel in kernels.items():
        log = kernel.log_det(Sets.one([0, 1]))[0]
        if tilt > SINGULAR:
            assert log == pytest.approx(2 * np.log(tilt), abs=1e-3), name
        else:
            assert log == -np.inf, name


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(-15, -3))
def test_the_rule_is_its_definition(seed, tilt):
    """Use items that nearly depend on others, in different units; leave out those too near to the rule."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(5, 5))
    V[3] = V[:3].T @ rng.normal(size=3) + 10**tilt * V[3]
    V *= 10.0 ** rng.uniform(-5, 5, size=(5, 1))
    S = np.zeros((5, 5))
    S[0, 4], S[4, 0] = 1e-150, -1e-150  # nothing, but enough to make L one that is not symmetric
    for A in map(np.array, itertools.permutations(range(5), 4)):
        if reference.is_singular(V, A, 1e-12) == reference.is_singular(V, A, 3e-15):
            for kernel in (Kernel(V), Kernel(V, diagonal=np.zeros(5)), Kernel(V, skew=S)):
                assert np.isneginf(kernel.log_det(Sets.one(A))[0]) == reference.is_singular(V, A)


def test_the_rule_knows_no_order():
    """Each pair is independent; what each adds to those before it is 1, 1, 1e-17 in one order, 1, 1e-6, 1e-11 else."""
    V = np.array([[1, 0, 0], [1, 1e-6, 0], [0, 1, 1e-11]])
    for kernel in forms_of(V, np.random.default_rng(0)).values():
        assert np.isneginf(kernel.log_det(as_sets(itertools.permutations(range(3))))).all()
        assert np.isfinite(kernel.log_det(as_sets(itertools.permutations(range(3), 2)))).all()


def test_the_diagonal_split_off_or_not():
    rng = np.random.default_rng(5)
    V, d = rng.normal(size=(6, 2)), rng.random(6)
    d[2] = 0.0
    S = rng.normal(size=(6, 6)) * 0.5
    S -= S.T
    check_same({"D": Kernel(V, diagonal=d), "columns": Kernel(np.hstack([np.diag(np.sqrt(d)), V]))}, 6)
    whole = {"D": Kernel(V, skew=S, diagonal=d), "columns": Kernel(np.hstack([np.diag(np.sqrt(d)), V]), skew=S)}
    check_same(whole, 6)
    G = np.eye(8)
    low_rank = Kernel(
        np.hstack([np.eye(6), V]), np.block([[np.diag(d) + S, np.zeros((6, 2))], [np.zeros((2, 6)), G[:2, :2]]])
    )
    check_same(whole | {"inner": low_rank}, 6)


def test_a_diagonal_alone_is_independent_items():
    d = np.array([0.5, 2.0, 0.0, 1.0])
    kernel = Kernel(np.empty((4, 0)), diagonal=d)
    np.testing.assert_allclose(kernel.marginals(NOTHING), d / (1 + d))
    np.testing.assert_allclose(np.exp(kernel.log_probability(as_sets([(), (0, 1, 3)]))), [1 / 9, 1 / 9])
    assert kernel.log_det(Sets.one([0, 2]))[0] == -np.inf
    assert (kernel.rank, kernel.largest_set) == (3, 3)
    np.testing.assert_allclose(all_scores(kernel, Sets.one([1]))[0], [0.5, -np.inf, 0.0, 1.0])
    assert greedy_completion(kernel, NOTHING, 3).tolist() == [1, 3, 0]
    assert p_value(Sampler(kernel).sample(5000, seed=0), ExactDPP(np.diag(d)).table) > 1e-3
    with pytest.raises(ParameterError, match="shape"):
        Kernel(np.empty((4, 0)))


def test_sets_larger_than_the_components_need_a_diagonal():
    V = np.random.default_rng(0).normal(size=(6, 2))
    assert Kernel(V).log_det(Sets.one(range(3)))[0] == -np.inf
    assert np.isfinite(Kernel(V, diagonal=np.full(6, 0.1)).log_det(as_sets(subsets(6)))).all()


@pytest.mark.parametrize("d", [[1.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf], [[1.0, 1.0]]])
def test_bad_diagonals(d):
    with pytest.raises(ParameterError, match="diagonal"):
        Kernel(np.eye(2), diagonal=d)
    with pytest.raises(ParameterError, match="diagonal"):
        cd.NonsymmetricDPP.from_factors(np.eye(2), diagonal=d)


def test_a_dense_skew_part_with_a_diagonal_is_kept_sparse_and_has_the_distribution_of_its_matrix():
    rng = np.random.default_rng(0)
    A, d, V = rng.normal(size=(5, 5)), rng.random(5), rng.normal(size=(5, 2))
    S = A - A.T  # no entry off the diagonal is zero
    model = cd.NonsymmetricDPP.from_factors(V, S=S, diagonal=d)
    assert model.skew_.nnz == 20
    sets = subsets(5)
    logs = model.score_samples([list(one) for one in sets])
    np.testing.assert_allclose(np.exp(logs), [ExactDPP(np.diag(d) + V @ V.T + S).table[tuple(one)] for one in sets])
    for bad in (A, np.where(np.eye(5) > 0, 1.0, S), np.where(S > 1, np.nan, S)):
        with pytest.raises(ParameterError):
            cd.NonsymmetricDPP.from_factors(V, S=bad, diagonal=d)


# -- Faults of before ------------------------------------------------------------------------------------


def rotation(n: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(n).normal(size=(n, n)))[0]


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("lengths", [(1e8, 1.0), (1e6, 1.0, 0.01), (1e4, 1e-3)])
@pytest.mark.parametrize("kind", [cd.LowRankDPP, cd.NonsymmetricDPP])
def test_small_eigenvalues_count_in_the_normalizer(kind, lengths, turn):
    """Sums were 2 and 0.5: eigenvalues far below the largest were left out."""
    V = np.diag(lengths) @ (rotation(len(lengths)) if turn else np.eye(len(lengths)))
    model = kind.from_factors(V)
    logs = model.score_samples([list(s) for s in subsets(len(lengths))])
    assert np.exp(logs).sum() == pytest.approx(1, rel=1e-6)
    assert model.sample(50, size=len(lengths), random_state=0).sizes.tolist() == [len(lengths)] * 50
    assert model.complete([], len(lengths)) == list(range(len(lengths)))


@pytest.mark.parametrize("seed", range(12))
def test_wide_scales_beside_a_skew_part(seed):
    """Beside a weight of 1e15 sums were off by up to a hundredth: light items were lost among squares of heavy ones."""
    rng = np.random.default_rng(seed)
    M, K = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    scale = 10.0 ** rng.permutation(np.linspace(-7.8, 7.8, M))
    S = np.triu(rng.normal(size=(M, M)) * np.sqrt(np.outer(scale, scale)) * 10.0 ** rng.uniform(-2, 2), 1)
    model = cd.NonsymmetricDPP.from_factors(scale[:, None] * rng.normal(size=(M, K)), S=S - S.T)
    chances = np.exp(model.score_samples([list(s) for s in subsets(M)]))
    assert chances.sum() == pytest.approx(1, abs=1e-7)
    inside = [sum(p for p, s in zip(chances, subsets(M), strict=True) if i in s) for i in range(M)]
    np.testing.assert_allclose(model.marginals(), inside, atol=1e-6)


def test_weights_beyond_all_digits_are_a_typed_error():
    S = np.zeros((3, 3))
    S[0, 1], S[1, 0] = 1.0, -1.0
    with pytest.raises(NumericalError, match="singular to rounding"):
        cd.NonsymmetricDPP.from_factors(np.full((3, 2), 1e30), S=S).marginals()


def test_small_eigenvalues_count_in_float32():
    model = cd.LowRankDPP.from_factors(np.diag([1e6, 1.0, 0.01]).astype(np.float32))
    assert np.exp(model.score_samples([list(s) for s in subsets(3)])).sum() == pytest.approx(1, rel=1e-6)
    np.testing.assert_allclose(model.marginals(), [1, 0.5, 1e-4 / (1 + 1e-4)], rtol=1e-5)
    assert np.mean([1 in basket for basket in model.sample(2000, random_state=0)]) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", [cd.LowRankDPP, cd.NonsymmetricDPP])
def test_no_answer_is_made_of_rounding(kind, dtype):
    """All items lie in the span of the basket: what came was the rounding of zeros, made to sum to one."""
    rng = np.random.default_rng(0)
    V = (rng.normal(size=(5, 2)) @ rng.normal(size=(2, 6))).astype(dtype)
    V[2:] = V[:2].sum(axis=0) * np.array([[1], [2], [4]], dtype=dtype)
    model = kind.from_factors(V)
    with pytest.raises(RankError):
        model.predict_next([0, 1])
    with pytest.raises(RankError):
        model.recommend([0, 1])
    with pytest.raises(RankError):
        model.recommend([0, 1], candidates=[2, 3])
    assert model.predict_next([2])[[3, 4]].tolist() == [0, 0]


def test_nothing_linked_to_the_basket_is_no_answer_either():
    """The bound of the rank counts items with neighbors: the basket seemed to leave room, and rounding filled it."""
    rng = np.random.default_rng(0)
    S = np.zeros((5, 5))
    S[0, 1], S[1, 0] = 0.5, -0.5
    model = cd.NonsymmetricDPP.from_factors(rng.normal(size=(5, 1)) * rng.normal(size=3), S=S)
    for ask in (model.predict_next, model.recommend):
        with pytest.raises(RankError):
            ask([2])
    assert (model.predict_next([0]) > 0).tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("kind", [cd.LowRankDPP, cd.NonsymmetricDPP])
@pytest.mark.parametrize(("long", "short"), [(1e5, 0.1), (1e7, 0.2)])
def test_a_possible_set_can_be_completed(kind, long, short):
    """Growing had a rule of its own, and the rank another, which found sets impossible that are not."""
    apart, together = kind.from_factors(np.diag([long, short])), kind.from_factors([[long, 0], [long, 0.1 * long]])
    nearly = kind.from_factors([[1e5, 0], [1e5, 0.1]])
    for model in (apart, together, nearly):
        assert model.score_samples([0, 1]) > -15
        assert sorted(model.complete([0], 2)) == [0, 1]
        assert model.predict_next([0]).tolist() == [0, 1]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_conditioning_never_refuses_a_possible_set(seed, k):
    """Rounding in G − a W b made an inner matrix that was refused as less than positive semi-definite."""
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(7, 7)) * (rng.random((7, 7)) < 0.2)
    kernel = Kernel(rng.normal(size=(7, 4)) * 10.0 ** rng.uniform(-3, 3, size=(7, 1)), skew=S - S.T)
    A = rng.choice(7, size=k, replace=False).astype(np.int32)
    if np.isneginf(kernel.log_det(Sets.one(A))[0]):
        return
    rest_kernel, rest = kernel.condition(A)
    again = Kernel(rest_kernel.factors, rest_kernel.inner, rest_kernel.skew)  # which checks it, as that of a file
    L = given_kernel(dense(kernel), A)[np.ix_(rest, rest)]
    scale = np.sqrt(np.outer(kernel.squared_norms[rest], kernel.squared_norms[rest])) + np.abs(L)
    np.testing.assert_allclose(dense(again) / scale, L / scale, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_conditioning_on_as_many_items_as_components(seed):
    """The inner matrix that remains is rounding, half of the time with a negative eigenvalue."""
    S = np.zeros((6, 6))
    S[4, 5], S[5, 4] = 1.0, -1.0
    rest_kernel, _ = Kernel(np.random.default_rng(seed).normal(size=(6, 3)), skew=S).condition(codes(0, 1, 2))
    expected = np.zeros((3, 3))
    expected[1, 2], expected[2, 1] = 1.0, -1.0
    np.testing.assert_allclose(dense(rest_kernel), expected, atol=1e-9)
    Kernel(rest_kernel.factors, rest_kernel.inner, rest_kernel.skew)  # passes the check, as that of a file must


def test_a_full_basket_leaves_nothing_to_condition_on():
    V = np.random.default_rng(0).normal(size=(6, 3))
    for kernel in forms_of(V, np.random.default_rng(1)).values():
        rest_kernel, _ = kernel.condition(codes(0, 1, 2))
        assert rest_kernel.expected_size < 1e-12
        if kernel.symmetric:
            with pytest.raises(RankError):
                all_scores(rest_kernel, Sets.one([]))


def test_large_factorisations_use_one_thread(monkeypatch):
    """OpenBLAS's threaded Cholesky crashes from some 15,600 rows on."""
    from contradpp.dpp import linalg

    requested = []
    monkeypatch.setattr(linalg, "MAX_ROWS_FOR_THREADS", 4)
    monkeypatch.setattr(linalg, "blas_threads", lambda n: requested.append(n) or linalg.nullcontext())
    kernel, _ = made("0 I S float64", 8)
    _ = kernel.log_normalizer
    _ = kernel.marginals(NOTHING)
    assert requested == [1, 1]
    cd.baselines.EASE().fit([[0, 1, 2], [3, 4, 5]])
    assert requested == [1, 1, 1]


def badly_conditioned(seed: int) -> Kernel:
    """Items that nearly depend on others, of very different weight, in float32 or not, with any of the parts."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(6, rng.integers(2, 5)))
    for _ in range(rng.integers(0, 3)):
        i, j = rng.choice(6, 2, replace=False)
        V[i] = rng.normal() * V[j] + 10 ** rng.uniform(-9, -2) * V[i]
    weight = 10.0 ** rng.uniform(-4, 4, size=6) if rng.random() < 0.5 else np.ones(6)
    S = rng.normal(size=(6, 6)) * (rng.random((6, 6)) < 0.3) * np.outer(weight, weight) * 10 ** rng.uniform(-8, 1)
    d = rng.random(6) * 10 ** rng.uniform(-10, 0) * weight**2 * (rng.random(6) < 0.5)
    V = (V * weight[:, None]).astype(np.float32 if rng.random() < 0.2 else np.float64)
    return Kernel(V, None, S - S.T if rng.random() < 0.6 else None, d if rng.random() < 0.4 else None)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32 - 1), st.permutations(range(6)), st.integers(1, 3))
def test_scores_and_growing_sets_are_of_one_mind_with_log_det(seed, order, size):
    kernel, A, others = badly_conditioned(seed), order[:size], order[size:]
    logs = kernel.log_det(as_sets([A[: n + 1] for n in range(size)]))
    if np.isneginf(logs).any():
        return
    expected = np.exp(kernel.log_det(as_sets([[*A, j] for j in others])) - logs[-1])
    grown = kernel.grow()
    for code in A:
        grown.add(code)
    answers = [grown.scores[others], kernel.grow(A).scores[others]]
    if expected.any():
        answers.append(all_scores(kernel, Sets.one(A))[0, others])
    else:
        with pytest.raises(RankError):
            all_scores(kernel, Sets.one(A))
    for scores in answers:
        np.testing.assert_array_equal(scores == 0, expected == 0)
        np.testing.assert_allclose(scores, expected, rtol=0.05)
