"""The distribution of sizes by power series and Fourier transform, against enumeration and eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest

from contradpp.dpp import sizes
from contradpp.dpp.kernel import Kernel
from exact import ExactDPP


def made(scale: float, d: float, *, low: bool = True, n: int = 8) -> Kernel:
    rng = np.random.default_rng(3)
    S = np.triu(scale * rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.4), 1)
    S[:, :2] = S[:2] = 0  # the first two have no partners
    V = 0.7 * rng.normal(size=(n, 2)) if low else np.empty((n, 0))
    gain = [[1.0, 0.4], [-0.4, 1.0]] if low else None
    return Kernel(V, gain, S - S.T, d * rng.random(n))


@pytest.mark.parametrize(
    ("scale", "d", "low"),
    [(0.1, 0.0, True), (0.1, 0.3, True), (0.0, 2.0, True), (0.15, 0.2, False), (0.0, 0.0, True)],
)
def test_series(scale, d, low, monkeypatch):
    kernel = made(scale, d, low=low)
    L = np.diag(kernel.diagonal) + kernel.left @ kernel.wide.T + kernel.skew.matrix().toarray()
    monkeypatch.setattr(sizes, "_FEW", 0)
    monkeypatch.setattr(sizes, "_eigenvalues", lambda _: 1 / 0)
    found, expected = np.exp(kernel.log_size_distribution), ExactDPP(L).sizes()
    np.testing.assert_allclose(found, expected[: len(found)], atol=1e-9)
    np.testing.assert_allclose(expected[len(found) :], 0, atol=1e-9)


def test_a_part_too_large_for_a_series_takes_eigenvalues(monkeypatch):
    kernel = made(3.0, 0.1)
    exact = np.exp(kernel.log_size_distribution)
    monkeypatch.setattr(sizes, "_FEW", 0)
    np.testing.assert_allclose(np.exp(made(3.0, 0.1).log_size_distribution), exact, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 0.02])
def test_many_items(scale):
    """More than are enumerated, and fewer roots of unity than sizes; large sets too."""
    for d in (0.1, 3.0):
        kernel = made(scale, d, n=700)
        law = np.exp(kernel.log_size_distribution)
        assert law.sum() == pytest.approx(1)
        assert law @ np.arange(len(law)) == pytest.approx(kernel.expected_size, rel=1e-8)


def test_traces_and_moments():
    kernel = made(0.5, 0.5)
    A = np.diag(kernel.diagonal) + kernel.skew.matrix().toarray()
    sparse = sizes._with_diagonal(kernel.skew.matrix(), kernel.diagonal)
    powers = [np.linalg.matrix_power(A, k) for k in range(9)]
    np.testing.assert_allclose(sizes._traces(sparse, 4, False, 2), [np.trace(one) for one in powers[1:]], atol=1e-12)
    skew = sizes._traces(kernel.skew.matrix(), 3, True, 1)
    S = kernel.skew.matrix().toarray()
    np.testing.assert_allclose(skew, [np.trace(np.linalg.matrix_power(S, k)) for k in range(1, 7)], atol=1e-12)
    X = kernel.wide
    np.testing.assert_allclose(sizes._moments(sparse, X, 8), [X.T @ one @ X for one in powers], atol=1e-12)
