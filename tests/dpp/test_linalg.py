"""The triangle of a tall matrix and the symmetric polynomials in logarithms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contradpp.dpp.linalg import inverse_and_log_det, log_elementary_symmetric, triangle


@pytest.mark.parametrize("shape", [(0, 3), (2, 3), (50, 1), (7000, 5), (10_000, 0)])
def test_the_triangle_of_a_tall_matrix(shape):
    A = np.random.default_rng(0).normal(size=shape)
    R = triangle(A, 1)
    np.testing.assert_allclose(R.T @ R, A.T @ A, atol=1e-9)
    np.testing.assert_array_equal(R, np.triu(R))
    np.testing.assert_array_equal(triangle(A, 2), R)


def test_the_triangle_keeps_small_singular_values():
    """Eigenvalues of AᵀA would drown: 1e-20 beside 1."""
    A = np.linalg.qr(np.random.default_rng(0).normal(size=(5000, 3)))[0] * [1, 1e-5, 1e-10]
    A = A @ np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    np.testing.assert_allclose(np.linalg.svd(triangle(A, 1), compute_uv=False), [1, 1e-5, 1e-10], rtol=1e-4)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 1e3), max_size=7), st.integers(0, 8))
def test_symmetric_polynomials_by_their_definition(values, degree):
    table = log_elementary_symmetric(np.array(values), degree)
    assert table.shape == (len(values) + 1, degree + 1)
    for n in range(len(values) + 1):
        for k in range(degree + 1):
            direct = sum(np.prod(c) for c in itertools.combinations(values[:n], k))
            assert np.exp(table[n, k]) == pytest.approx(direct, rel=1e-9, abs=1e-300)


def test_huge_and_many_values_do_not_overflow():
    """e_k of 200 equal values c is C(200, k) c^k: 1e60000 here."""
    from scipy.special import gammaln

    table = log_elementary_symmetric(np.full(200, 1e300), 200)
    k = np.arange(201)
    direct = gammaln(201) - gammaln(k + 1) - gammaln(201 - k) + k * np.log(1e300)
    np.testing.assert_allclose(table[-1], direct, rtol=1e-12)


def test_tiny_values_do_not_underflow():
    table = log_elementary_symmetric(np.full(200, 1e-300), 200)
    assert table[-1, 200] == pytest.approx(200 * np.log(1e-300))


@pytest.mark.parametrize("n", [0, 1, 7])
def test_inverse_and_log_det(n):
    X = np.random.default_rng(0).normal(size=(n, n + 2))
    inverse, log = inverse_and_log_det(X @ X.T)
    np.testing.assert_allclose(inverse @ X @ X.T, np.eye(n), atol=1e-9)
    np.testing.assert_array_equal(inverse, inverse.T)
    assert log == pytest.approx(np.linalg.slogdet(X @ X.T)[1])


def test_what_is_not_positive_definite_has_no_inverse():
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        inverse_and_log_det(-np.eye(3))
