"""The safe Cholesky and the symmetric polynomials in logarithms."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contradpp.dpp.linalg import log_elementary_symmetric, safe_cholesky
from contradpp.errors import ContradppError, NumericalError, NumericalWarning


def test_plain_cholesky_says_nothing():
    X = np.random.default_rng(0).normal(size=(5, 9))
    matrix = X @ X.T
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        R = safe_cholesky(matrix)
    np.testing.assert_allclose(R @ R.T, matrix)
    np.testing.assert_array_equal(R, np.tril(R))


def test_a_singular_matrix_gets_jitter_and_a_warning():
    x = np.array([[1.0, 2.0, 3.0]])
    matrix = x.T @ x - 1e-15 * np.eye(3)  # rank one, less a rounding error
    with pytest.warns(NumericalWarning, match=r"the Gram matrix is singular to rounding: .* was added"):
        R = safe_cholesky(matrix, what="the Gram matrix")
    np.testing.assert_allclose(R @ R.T, matrix, atol=1e-4)


def test_jitter_is_relative_to_the_scale():
    x = np.array([[1.0, 2.0, 3.0]]) * 1e6
    with pytest.warns(NumericalWarning):
        R = safe_cholesky(x.T @ x - 1e-3 * np.eye(3))
    np.testing.assert_allclose(R @ R.T, x.T @ x, rtol=1e-4)


def test_an_indefinite_matrix_is_a_typed_error():
    with pytest.raises(NumericalError, match="I \\+ C is not positive definite") as caught:
        safe_cholesky(np.diag([1.0, -1.0]), what="I + C")
    assert isinstance(caught.value, ContradppError)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_entries_that_are_not_finite_are_a_typed_error(bad):
    matrix = np.eye(2)
    matrix[0, 0] = bad
    with pytest.raises(NumericalError, match="not finite"):
        safe_cholesky(matrix)


def test_an_empty_matrix_has_an_empty_factor():
    assert safe_cholesky(np.empty((0, 0))).shape == (0, 0)


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
