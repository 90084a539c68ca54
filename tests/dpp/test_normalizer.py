"""The whole distribution: I + S for any number of items by probes, and sizes by power series, against dense algebra."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse

from contradpp.data.sets import Sets
from contradpp.dpp import normalizer
from contradpp.dpp.compiled import kernels
from contradpp.dpp.kernel import Kernel, Skew
from contradpp.dpp.normalizer import ByProbes, Precision
from contradpp.errors import NumericalError, ParameterError
from exact import ExactDPP

N = 300
NOTHING = np.empty(0, dtype=np.int32)


def random_skew(n: int, neighbors: int, scale: float, seed: int = 0) -> scipy.sparse.csr_array:
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(n), -(-neighbors // 2))
    values = scale * rng.normal(size=len(rows)) * np.exp(0.5 * rng.normal(size=n))[rows]  # some items more than others
    S = scipy.sparse.csr_array((values, (rows, rng.integers(0, n, len(rows)))), shape=(n, n))
    return Skew.from_matrix(S - S.T, n).matrix()


@pytest.fixture(params=[0.01, 0.1, 0.4], ids=["small", "medium", "large"])
def S(request):
    return random_skew(N, 8, request.param)


@pytest.fixture
def dense(S):
    return np.eye(N) + S.toarray()


# -- The determinant -------------------------------------------------------------------------------------


def test_twenty_of_twenty_seeds_are_within_three_standard_errors(S, dense):
    exact = np.linalg.slogdet(dense)[1]
    found = [ByProbes(S, precision=Precision(max_probes=64), seed=seed).log_det() for seed in range(20)]
    z = np.array([(one.value - exact) / one.error for one in found])
    assert np.abs(z).max() < 3
    assert 0.5 < np.sqrt(np.square(z).mean()) < 1.6  # nor are the errors larger than they need be


def test_a_wrong_trace_is_noticed(S, dense):
    solver = ByProbes(S)
    solver.B_diagonal = 1.5 * solver.B_diagonal
    found = solver.log_det()
    assert abs(found.value - np.linalg.slogdet(dense)[1]) > 5 * found.error


def test_the_quadrature_encloses_every_probe(S):
    """Even and odd numbers of steps give rules above and below zᵀ ½ log(I + B) z."""
    values, vectors = np.linalg.eigh((S.T @ S).toarray())
    solver = ByProbes(S)
    Z = solver._signs(3)
    exact = (np.square(vectors.T @ Z) * (0.5 * np.log1p(np.maximum(values, 0)))[:, None]).sum(axis=0) / N
    rule = solver._quadrature(Z, share=0.01)
    above = (rule.weights * 0.5 * np.log1p(rule.nodes)).sum(axis=1)
    assert (above - rule.width - 1e-12 <= exact).all()
    assert (exact <= above + 1e-12).all()


def test_a_smaller_error_for_the_asking(S, dense):
    rough, fine = (ByProbes(S, precision=Precision(error=0.003, max_probes=most)).log_det() for most in (64, 2000))
    assert fine.error <= max(0.0035, 0.25 * rough.error)
    assert abs(fine.value - np.linalg.slogdet(dense)[1]) < 4 * fine.error + 1e-9


def test_control_makes_the_error_of_a_small_part_tiny():
    S = random_skew(N, 8, 0.01)
    found = ByProbes(S).log_det()
    plain = np.sqrt(2 * (np.square((S.T @ S).toarray()).sum() - np.square((S.T @ S).diagonal()).sum()) / 64) / 2
    assert found.error < 0.01 * plain


@pytest.mark.parametrize("n", [2, 3, 40])
def test_rows_of_the_square(n):
    S = random_skew(n, 6, 1.0, seed=n)
    out = np.full(n, np.nan)
    parts = S.indptr.astype(np.int64), S.indices.astype(np.int32), S.data
    for first in range(0, n, 7):
        kernels.square_row_lengths(*parts, first, min(first + 7, n), out)
    np.testing.assert_allclose(out, np.square(S.toarray() @ S.toarray()).sum(axis=1))


# -- Solutions, and the diagonal -------------------------------------------------------------------------


def test_solutions(S, dense):
    X = np.random.default_rng(0).normal(size=(N, 11))
    X[:, 4] = 0.0
    plain, transposed = ByProbes(S).solve_both(X)
    np.testing.assert_allclose(plain, np.linalg.solve(dense, X), atol=1e-7)
    np.testing.assert_allclose(transposed, np.linalg.solve(dense.T, X), atol=1e-7)
    assert not plain[:, 4].any()


def test_a_part_beside_which_the_identity_drowns_is_refused():
    S = random_skew(N + 1, 8, 1e9)  # of an odd number: there is a null space
    with pytest.raises(NumericalError, match="too large beside the identity"):
        ByProbes(S).solve_both(np.ones((N + 1, 1)))


def test_the_diagonal_and_its_errors(S, dense):
    exact = 1 - np.diag(np.linalg.inv(dense))
    found, error = ByProbes(S, precision=Precision(diagonal_probes=64)).complement_diagonal()
    z = (found - exact) / error
    assert np.sqrt(np.square(z).mean()) < 1.5
    assert np.abs(z).max() < 6


def test_rare_items_have_small_errors():
    """The error is a share of 1 − h_ii, not of 1: what a rare item adds is not lost in noise."""
    S = random_skew(N, 8, 0.1)
    scale = np.ones(N)
    scale[:20] = 1e-4
    S = Skew.from_matrix(S.multiply(scale[:, None]).multiply(scale[None, :]), N).matrix()
    exact = 1 - np.diag(np.linalg.inv(np.eye(N) + S.toarray()))
    found, error = ByProbes(S).complement_diagonal()
    np.testing.assert_allclose(found[:20], exact[:20], rtol=0.2, atol=1e-15)
    assert (error[:20] < 1e-8).all()


# -- Kernels ---------------------------------------------------------------------------------------------


def kernels_of(n: int = 40) -> dict[str, Kernel]:
    rng = np.random.default_rng(5)
    V, S, d = 0.3 * rng.normal(size=(n, 3)), random_skew(n, 4, 0.2, seed=1), 0.3 * rng.random(n)
    G = np.eye(3) + np.array([[0, 0.5, 0], [-0.5, 0, 0.2], [0, -0.2, 0]])
    alone = S.copy()
    alone.data *= np.isin(alone.indices, np.arange(10, n)) * np.repeat(np.arange(n) >= 10, np.diff(alone.indptr))
    holes = d * (np.arange(n) % 3 > 0)
    return {
        "S": Kernel(V, skew=S),
        "D + S": Kernel(V, skew=S, diagonal=d),
        "G, D + S": Kernel(V, G, S, d),
        "no columns": Kernel(np.empty((n, 0)), skew=S, diagonal=d),
        "columns of zeros": Kernel(0 * V, skew=S, diagonal=d),
        "some without neighbors": Kernel(V, skew=alone, diagonal=holes),
        "D": Kernel(V, diagonal=d),
        "V": Kernel(V),
    }


@pytest.mark.parametrize("name", kernels_of())
def test_every_kernel_without_a_dense_matrix(name, monkeypatch):
    kernel = kernels_of()[name]
    L = np.diag(kernel.diagonal) + kernel.left @ kernel.X.T + kernel.skew.matrix().toarray()
    monkeypatch.setattr(normalizer, "MAX_DENSE_ITEMS", 0)
    for way in ("ByCholesky", "ByLU"):
        monkeypatch.setattr(normalizer, way, lambda _: 1 / 0)
    error = kernel.log_normalizer_error
    assert (error > 0) == (kernel.skew.n_entries > 0)
    assert kernel.log_normalizer == pytest.approx(np.linalg.slogdet(np.eye(40) + L)[1], abs=4 * error + 1e-9)
    K = np.eye(40) - np.linalg.inv(np.eye(40) + L)
    for given in ([], [3, 11]):
        L_given = L - L[:, given] @ np.linalg.solve(L[np.ix_(given, given)], L[given]) if given else L
        rest = np.setdiff1d(np.arange(40), given)
        inside = np.ones(40)
        inside[rest] = 1 - np.diag(np.linalg.inv(np.eye(len(rest)) + L_given[np.ix_(rest, rest)]))
        found, errors = kernel.marginals_with_errors(np.array(given, dtype=np.int32))
        assert (np.abs(found - inside) <= 6 * errors + 1e-7).all()
        assert (errors[given] == 0).all()
    assert kernel.expected_size == pytest.approx(np.trace(K), rel=0.02)
    sets = Sets.one([1, 4])
    assert kernel.log_probability(sets)[0] == kernel.log_det(sets)[0] - kernel.log_normalizer


def test_the_threads_do_not_matter(monkeypatch):
    monkeypatch.setattr(normalizer, "MAX_DENSE_ITEMS", 0)
    parts = 0.1 * np.random.default_rng(0).normal(size=(N, 20)), None, random_skew(N, 8, 0.1)
    one, two = Kernel(*parts), Kernel(*parts, n_jobs=2)
    assert (one.log_normalizer, one.log_normalizer_error) == (two.log_normalizer, two.log_normalizer_error)
    for mine, theirs in zip(one.marginals_with_errors(NOTHING), two.marginals_with_errors(NOTHING), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_normalizer_is_refined_by_asking(monkeypatch):
    monkeypatch.setattr(normalizer, "MAX_DENSE_ITEMS", 0)
    kernel = Kernel(np.ones((N, 1)) * 0.1, skew=random_skew(N, 8, 0.4))
    before = kernel.log_normalizer_error
    kernel.refine_normalizer(before / 2)
    assert kernel.log_normalizer_error <= 0.6 * before
    after = kernel.log_normalizer
    kernel.refine_normalizer(before)  # it is good enough
    assert kernel.log_normalizer == after
    with pytest.raises(ParameterError, match="positive"):
        kernel.refine_normalizer(0.0)


def test_memory_does_not_grow_with_the_square():
    n = 20_000
    kernel = Kernel(0.01 * np.ones((n, 2)), skew=random_skew(n, 4, 0.01), diagonal=np.full(n, 1e-3))
    tracemalloc.start()
    assert kernel.log_normalizer > 0
    assert kernel.marginals(NOTHING).max() < 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6  # a dense matrix would have 3.2 GB


def made(scale: float, d: float, *, low: bool = True, n: int = 8) -> Kernel:
    rng = np.random.default_rng(3)
    S = np.triu(scale * rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.4), 1)
    S[:, :2] = S[:2] = 0  # the first two have no neighbors
    V = 0.7 * rng.normal(size=(n, 2)) if low else np.empty((n, 0))
    inner = [[1.0, 0.4], [-0.4, 1.0]] if low else None
    return Kernel(V, inner, S - S.T, d * rng.random(n))


@pytest.mark.parametrize(
    ("scale", "d", "low"),
    [(0.1, 0.0, True), (0.1, 0.3, True), (0.0, 2.0, True), (0.15, 0.2, False), (0.0, 0.0, True)],
)
def test_series(scale, d, low, monkeypatch):
    kernel = made(scale, d, low=low)
    L = np.diag(kernel.diagonal) + kernel.left @ kernel.X.T + kernel.skew.matrix().toarray()
    monkeypatch.setattr(normalizer, "MAX_ITEMS_FOR_EIGENVALUES", 0)
    monkeypatch.setattr(normalizer, "eigenvalues", lambda _: 1 / 0)
    found, expected = kernel.size_distribution(), ExactDPP(L).sizes()
    np.testing.assert_allclose(found, expected[: len(found)], atol=1e-9)
    np.testing.assert_allclose(expected[len(found) :], 0, atol=1e-9)


def test_a_part_too_large_for_a_series_takes_eigenvalues(monkeypatch):
    kernel = made(3.0, 0.1)
    exact = kernel.size_distribution()
    monkeypatch.setattr(normalizer, "MAX_ITEMS_FOR_EIGENVALUES", 0)
    np.testing.assert_allclose(made(3.0, 0.1).size_distribution(), exact, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 0.02])
def test_many_items(scale):
    """More than are enumerated, and fewer roots of unity than sizes; large sets too."""
    for d in (0.1, 3.0):
        kernel = made(scale, d, n=700)
        distribution = kernel.size_distribution()
        assert distribution.sum() == pytest.approx(1)
        assert distribution @ np.arange(len(distribution)) == pytest.approx(kernel.expected_size, rel=1e-8)


def test_traces_and_moments():
    kernel = made(0.5, 0.5)
    A = np.diag(kernel.diagonal) + kernel.skew.matrix().toarray()
    sparse = normalizer._plus_diagonal(kernel.skew.matrix(), kernel.diagonal)
    powers = [np.linalg.matrix_power(A, k) for k in range(9)]
    traces = [np.trace(one) for one in powers[1:]]
    np.testing.assert_allclose(normalizer._traces(sparse, 4, False, 2), traces, atol=1e-12)
    skew = normalizer._traces(kernel.skew.matrix(), 3, True, 1)
    S = kernel.skew.matrix().toarray()
    np.testing.assert_allclose(skew, [np.trace(np.linalg.matrix_power(S, k)) for k in range(1, 7)], atol=1e-12)
    X = kernel.X
    np.testing.assert_allclose(normalizer._moments(sparse, X, 8), [X.T @ one @ X for one in powers], atol=1e-12)
