"""Kernels that repel and attract: what is special about them; `test_forms.py` asks them all questions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse

from contradpp.data.sets import Sets
from contradpp.dpp import normalizer, scoring
from contradpp.dpp.kernel import Kernel, Skew
from contradpp.dpp.sampling import Sampler, Samplers
from contradpp.errors import ParameterError, RankError
from exact import ExactDPP
from reference import all_scores, as_sets, codes

GIVEN = [(), (3,), (6, 0), (1, 2, 5)]
FORMS = ["sparse", "low rank", "both", "symmetric", "mostly skew"]
J = np.array([[0.0, 1.0], [-1.0, 0.0]])


def random_skew(rng: np.random.Generator, n: int, share: float = 0.4) -> np.ndarray:
    """A random skew matrix in which item 2 has no neighbor."""
    S = rng.normal(size=(n, n)) * (rng.random((n, n)) < share)
    S -= S.T
    if n > 2:
        S[2] = S[:, 2] = 0
    return S


def made(form: str, seed: int = 0, n: int = 7) -> tuple[Kernel, np.ndarray]:
    """A kernel of this form, and the dense L."""
    rng = np.random.default_rng(seed)
    V, B, S = rng.normal(size=(n, 4)), rng.normal(size=(n, 2)), random_skew(rng, n)
    if form == "symmetric":
        return Kernel(V), V @ V.T
    if form == "sparse":
        return Kernel(V, skew=scipy.sparse.csr_array(S)), V @ V.T + S
    if form == "mostly skew":
        V = 0.3 * V[:, :3]
        return Kernel(V, skew=S), V @ V.T + S
    X, G = np.hstack([V, B]), np.eye(6)
    G[4:, 4:] = J
    S = S if form == "both" else 0 * S
    return Kernel(X, G, S), X @ G @ X.T + S


def given_kernel(L: np.ndarray, A) -> np.ndarray:
    """L − L_:A L_A⁻¹ L_A:, the definition."""
    A = list(A)
    return L - L[:, A] @ np.linalg.solve(L[np.ix_(A, A)], L[A]) if A else L


@pytest.fixture(params=FORMS)
def pair(request):
    return made(request.param)


def test_conditioning_twice_is_conditioning_on_both(pair):
    kernel, _ = pair
    both, _ = kernel.condition(codes(4, 1))
    first, rest = kernel.condition(codes(4))
    again, _ = first.condition(np.flatnonzero(rest == 1).astype(np.int32))
    empty = codes()
    np.testing.assert_allclose(both.marginals(empty), again.marginals(empty), atol=1e-10)


def test_attraction_and_repulsion_in_one_kernel():
    """No symmetric kernel does the first of these."""
    V = np.array([[0.5, 0.0], [0.45, 0.1], [0.0, 0.5]])
    S = np.zeros((3, 3))
    S[0, 2], S[2, 0] = 0.5, -0.5
    kernel = Kernel(V, skew=S)
    distribution = ExactDPP(V @ V.T + S)
    p = kernel.marginals(codes())
    together = {pair: sum(q for s, q in distribution.table.items() if set(pair) <= set(s)) for pair in ((0, 1), (0, 2))}
    assert together[0, 2] > 1.2 * p[0] * p[2]
    assert together[0, 1] < 0.8 * p[0] * p[1]
    assert kernel.marginals(codes(0))[2] > p[2]
    assert kernel.marginals(codes(0))[1] < p[1]


def test_scale(pair):
    kernel, L = pair
    larger = kernel.scaled(2.5)
    np.testing.assert_allclose(larger.left @ larger.factors.T + larger.skew.matrix().toarray(), 2.5 * L)
    assert larger.expected_size > kernel.expected_size


def test_blocks_and_threads_do_not_change_the_scores(monkeypatch):
    rng = np.random.default_rng(0)
    S = random_skew(rng, 30)
    sets = as_sets([rng.choice(30, size=rng.integers(0, 6), replace=False) for _ in range(600)])
    kernel = Kernel(rng.normal(size=(30, 6)), skew=S)
    whole, logs = all_scores(kernel, sets), kernel.log_det(sets)
    kernel.n_jobs = 2
    np.testing.assert_array_equal(kernel.log_det(sets), logs)
    np.testing.assert_array_equal(all_scores(kernel, sets), whole)
    monkeypatch.setattr(scoring, "ROWS_PER_BLOCK", 14)
    np.testing.assert_allclose(all_scores(kernel, sets), whole, rtol=1e-10, atol=1e-12)


def test_a_growing_set_is_asked_as_a_whole(pair):
    kernel, _ = pair
    grown = kernel.grow([3])
    for code in (0, 6):
        grown.add(code)
        expected = all_scores(kernel, Sets.one(grown.codes))[0]
        np.testing.assert_allclose(grown.scores[grown.open_to], expected[grown.open_to], rtol=1e-8, atol=1e-10)
    whole = kernel.grow([3, 0, 6])
    np.testing.assert_allclose(grown.scores[grown.open_to], whole.scores[grown.open_to], rtol=1e-8, atol=1e-10)
    assert len(grown) == 3
    with pytest.raises(RankError):
        grown.add(3)


# -- Sets of probability zero, and edges of floating point -------------------------------------------


def test_only_pairs_can_be_drawn_from_a_purely_skew_kernel():
    rng = np.random.default_rng(3)
    S = random_skew(rng, 6, share=1.0)
    kernel, exact = Kernel(np.zeros((6, 1)), skew=S), ExactDPP(S)
    logs = kernel.log_probability(as_sets(exact.sets))
    np.testing.assert_allclose(np.exp(logs), exact.probabilities, atol=1e-12)
    assert np.isneginf(logs[[len(s) % 2 == 1 for s in exact.sets]]).all()
    np.testing.assert_allclose(kernel.marginals(codes(0, 1)), exact.marginals((0, 1)), atol=1e-9)
    grown = kernel.grow([0, 1])
    with pytest.raises(RankError):
        grown.add(4)
    with pytest.raises(RankError, match="probability zero"):
        kernel.condition(codes(0))


def test_impossible_sets(factors):
    twins = factors.copy()
    twins[1] = -twins[0]
    kernel = Kernel(twins)
    assert kernel.log_det(as_sets([[0, 1], [0, 1, 2], [0, 1, 2, 3, 4]])).tolist() == [-np.inf] * 3
    with pytest.raises(RankError, match=r"basket 1 has probability zero"):
        all_scores(kernel, as_sets([[0], [0, 1]]))
    for ask in (kernel.condition, kernel.marginals, kernel.grow):
        with pytest.raises(RankError):
            ask(codes(0, 1))
    with pytest.raises(RankError, match="fewer than 4"):
        all_scores(Kernel(factors), as_sets([[0, 1, 2, 3]]))
    S = np.zeros((7, 7))
    S[0, 1], S[1, 0] = 0.5, -0.5
    linked = Kernel(twins, skew=S)
    assert linked.log_det(Sets.one([0, 1]))[0] == pytest.approx(np.log(0.25))
    assert linked.log_det(Sets.one([2, 3, 4, 5, 6]))[0] == -np.inf  # not linked, and more than the components


def test_items_of_very_different_popularity():
    """Scaling an item by t multiplies every determinant with it by t², however small t is."""
    kernel, _ = made("sparse")
    t = np.array([1.0, 1e-7, 1e5, 1.0, 1e-3, 1.0, 1e-9])
    other = Kernel(kernel.factors * t[:, None], skew=kernel.skew.matrix().toarray() * np.outer(t, t))
    sets = [s for k in (1, 2, 3, 4) for s in itertools.combinations(range(7), k)]
    shift = [2 * np.log(t[list(s)]).sum() for s in sets]
    np.testing.assert_allclose(other.log_det(as_sets(sets)) - shift, kernel.log_det(as_sets(sets)), atol=1e-8)


def test_inverses_and_their_ridge():
    kernel, L = made("both")
    sets = as_sets([[0, 3, 5], [], [6]])
    inverses = kernel.inverses(sets)
    np.testing.assert_allclose(inverses.W[:9].reshape(3, 3), np.linalg.inv(L[np.ix_([0, 3, 5], [0, 3, 5])]))
    expected = [*np.diag(np.linalg.inv(L[np.ix_([0, 3, 5], [0, 3, 5])])), 1 / L[6, 6]]
    np.testing.assert_allclose(inverses.diagonals(sets), expected)
    np.testing.assert_allclose(inverses.logs, kernel.log_det(sets), atol=1e-12)
    ones = Kernel(np.ones((3, 1)))
    assert not ones.inverses(as_sets([[0, 1]])).W.any()
    with_ridge = ones.inverses(as_sets([[0, 1]]), ridge=0.5)
    assert with_ridge.logs.tolist() == [-np.inf]
    np.testing.assert_allclose(with_ridge.W.reshape(2, 2), np.linalg.inv([[1.5, 1.0], [1.0, 1.5]]))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 100.0])
def test_both_ways_to_the_resolvent_agree(scale):
    rng = np.random.default_rng(0)
    X, S = rng.normal(size=(9, 3)), scale * random_skew(rng, 9, share=0.7)
    S = np.delete(np.delete(S, 2, 0), 2, 1)
    skew = Skew.from_matrix(S, 8)
    expected = np.linalg.inv(np.eye(8) + S)
    for way in (normalizer.ByCholesky, normalizer.ByLU):
        solver = way(skew.matrix())
        assert solver.log_det() == (pytest.approx(np.linalg.slogdet(np.eye(8) + S)[1], abs=1e-9), 0.0)
        NX, NtX = solver.solve_both(X[:8])
        np.testing.assert_allclose(NX, expected @ X[:8], atol=1e-8)
        np.testing.assert_allclose(NtX, expected.T @ X[:8], atol=1e-8)
        np.testing.assert_allclose(solver.complement_diagonal(), [1 - np.diag(expected), np.zeros(8)], atol=1e-8)


def test_a_huge_skew_part_keeps_the_identity():
    """With three items S has a null space, on which only the identity is left: squared it would drown."""
    S = 1e9 * np.array([[0, 1, 2], [-1, 0, 3], [-2, -3, 0]])
    kernel = Kernel(np.zeros((3, 1)), skew=S)
    assert kernel.log_normalizer == pytest.approx(np.log(1 + 14e18), abs=1e-6)


def test_too_many_items_for_exact_samples_and_sizes(monkeypatch):
    """It is said at once, with the limit and what to do instead; log P is there all the same."""
    kernel, L = made("sparse")
    monkeypatch.setattr(normalizer, "MAX_DENSE_ITEMS", 3)
    monkeypatch.setattr("contradpp.dpp.scoring.condition", lambda *_: 1 / 0)
    with pytest.raises(ParameterError, match=r"here 6; the most is 3\. Use method='chain'"):
        Sampler(kernel)
    with pytest.raises(ParameterError, match="here 6; the most is 3"):
        Samplers(kernel).given(np.array([0], dtype=np.int32), None)
    with pytest.raises(ParameterError, match=r"here 6; the most is 3\. Draw sets by sample"):
        _ = kernel.log_size_distribution
    error = kernel.log_normalizer_error
    assert kernel.log_normalizer == pytest.approx(np.linalg.slogdet(np.eye(7) + L)[1], abs=max(4 * error, 1e-9))
    assert np.isfinite(all_scores(kernel, as_sets([[0]]))[0, 1:]).all()


# -- What cannot be a kernel -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skew", "match"),
    [
        (np.eye(3), "skew-symmetric"),
        (np.zeros((2, 2)), "shape"),
        (np.full((3, 3), np.nan), "finite"),
        (np.zeros(3), "shape"),
        ("abc", "real numbers"),
        (np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]), "skew-symmetric"),
    ],
)
def test_bad_skew_parts(skew, match):
    with pytest.raises(ParameterError, match=match):
        Kernel(np.ones((3, 1)), skew=skew)


@pytest.mark.parametrize("inner", [[[1.0, 0.0]], [[-1.0, 0.0], [0.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]]])
def test_bad_inner_matrices(inner):
    with pytest.raises(ParameterError, match="inner matrix"):
        Kernel(np.ones((3, 2)), inner)


def test_a_skew_part_is_cleaned():
    S = scipy.sparse.coo_array(([1.0, 1.0, -2.0, 0.0], ([0, 0, 1, 2], [1, 1, 0, 0])), shape=(3, 3))
    skew = Skew.from_matrix(S, 3)
    assert (skew.indptr.tolist(), skew.indices.tolist(), skew.values.tolist()) == ([0, 1, 2, 2], [1, 0], [2.0, -2.0])
    assert skew.connected.tolist() == [0, 1]
    nearly = np.array([[0, 1, 0], [-1 - 1e-13, 0, 0], [0, 0, 0]])
    cleaned = Skew.from_matrix(nearly, 3).matrix().toarray()
    np.testing.assert_array_equal(cleaned, -cleaned.T)
    assert not Skew.from_matrix(None, 3).n_entries
