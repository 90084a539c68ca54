"""Small products in vector registers against NumPy's: every shape, nothing written beside it."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.errors import TypingError

from contradpp.dpp.compiled._numba import WIDTH, entry, tile
from contradpp.dpp.compiled.blocks import WORK, invert, invert_by_pivots, multiply
from contradpp.dpp.factor import SINGULAR
from reference import as_entry


@pytest.mark.parametrize("n", [1, 3, 4, 5, 7, 8, 12, 13, 16, 76])
def test_a_product_of_any_size(n):
    rng = np.random.default_rng(n)
    for k in range(20):
        C, Y = rng.normal(size=(k + 2, k + 1)), rng.normal(size=(k + 1, -(-n // 8) * 8))
        out = np.full((k + 5, n), np.pi)
        as_entry(multiply)(C, k, Y, n, out, 2)
        np.testing.assert_allclose(out[2 : k + 2], C[:k, :k] @ Y[:k, :n], rtol=1e-12, atol=1e-13)
        assert (out[:2] == np.pi).all()
        assert (out[k + 2 :] == np.pi).all()


def test_garbage_beyond_the_columns_asked_for_stays_there():
    """Columns that fill up a vector may hold anything."""
    C, Y = np.eye(3), np.full((3, 8), np.nan)
    Y[:, :5] = np.arange(15).reshape(3, 5)
    out = np.zeros((3, 5))
    as_entry(multiply)(C, 3, Y, 5, out, 0)
    np.testing.assert_array_equal(out, Y[:, :5])


@pytest.mark.parametrize("whole", [True, False])
def test_an_inverse_of_any_size(whole):
    rng = np.random.default_rng(0)
    for k in range(1, 30):
        X = rng.normal(size=(k, k + 3))
        L, room = X @ X.T, k + (-k) % 4
        R = np.full((room, room), np.nan)  # what is above the diagonal is not looked at
        R[:k, :k][np.tril_indices(k)] = L[np.tril_indices(k)]
        log_det = as_entry(invert)(R, k, SINGULAR, np.full((WORK, room), np.nan), whole)
        assert log_det == pytest.approx(np.linalg.slogdet(L)[1], abs=1e-9)
        if whole:
            np.testing.assert_allclose(R[:k, :k] @ L, np.eye(k), atol=1e-7)
            np.testing.assert_array_equal(R[:k, :k], R[:k, :k].T)


def test_a_singular_matrix_has_none():
    for k in range(2, 14):
        X = np.random.default_rng(k).normal(size=(k, k - 1))
        R = np.zeros((k + (-k) % 4,) * 2)
        R[:k, :k] = X @ X.T
        assert as_entry(invert)(R, k, SINGULAR, np.empty((WORK, len(R))), True) == -np.inf


def test_rounding_is_that_of_sums_in_order():
    """Whatever stands around it: the first rows of a product are those of a smaller one, to the last bit."""
    rng = np.random.default_rng(1)
    C, Y = rng.normal(size=(16, 16)), rng.normal(size=(16, 80))
    C[:, 10:] = 0.0
    small, large = np.zeros((10, 76)), np.zeros((16, 76))
    as_entry(multiply)(C, 10, Y, 76, small, 0)
    as_entry(multiply)(C, 16, Y, 76, large, 0)
    np.testing.assert_array_equal(small, large[:10])


def test_only_arrays_are_taken_whose_rows_follow_one_another():
    whole = tile(4, 1)

    @entry
    def take(C, Y, out):  # type: ignore[no-untyped-def]
        whole(C, 0, 4, Y, 0, 0, WIDTH, out, 0)

    square = np.zeros((4, 4))
    take(square, square, np.empty((4, 4)))
    for other in (square.T, square[::-1], np.zeros((4, 4), dtype=np.float32)):
        with pytest.raises(TypingError):
            take(other, square, square)


def test_an_inverse_with_exchanges_of_rows():
    """Zeros on the diagonal, rows in any order, a determinant below zero, and what fills up the last four rows."""
    rng = np.random.default_rng(3)
    for k in [*range(1, 14), 18, 31]:
        for skew in (rng.normal(size=(k, k)), np.eye(k)[rng.permutation(k)] * rng.uniform(0.5, 2.0, size=k)):
            sign, log_det = np.linalg.slogdet(skew)
            room = k + (-k) % 4
            A = np.full((room, room), np.nan)
            A[:k, :k] = skew
            found, largest = as_entry(invert_by_pivots)(A, k, np.full((WORK, room), np.nan))
            if sign < 0:
                assert found == -np.inf
                assert largest == np.inf
                continue
            assert found == pytest.approx(log_det, abs=1e-9)
            np.testing.assert_allclose(A[:k, :k], np.linalg.inv(skew), atol=1e-8 * largest)
            assert largest == pytest.approx(np.abs(np.linalg.inv(skew)).max(), rel=1e-6)


def test_no_inverse_without_a_pivot():
    for k, value in ((1, 0.0), (1, 1e-310), (1, np.nan), (4, 1.0), (6, 1.0)):
        A = np.zeros((8, 8))
        A[:k, :k] = value
        assert as_entry(invert_by_pivots)(A, k, np.empty((WORK, 8)))[0] == -np.inf
