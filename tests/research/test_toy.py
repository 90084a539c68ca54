"""Figure 1's quantities, and the bound that every symmetric kernel obeys."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.research import experiments


def model_of(V) -> cd.LowRankDPP:
    return cd.LowRankDPP.from_factors(V, items=[1, 2, 3, 4])


def test_probabilities_are_those_of_the_determinants():
    V = np.random.default_rng(0).normal(size=(4, 3))
    L = V @ V.T
    a = np.outer(L.diagonal(), L.diagonal()) - L**2
    expected = [a[0, 1] / a[0].sum(), a[1, 0] / a[1].sum(), a[2, 3] / a[2].sum(), a[3, 2] / a[3].sum()]
    np.testing.assert_allclose(experiments.pair_probabilities(model_of(V)), expected)


def test_divergence_is_the_symmetric_kl_over_the_shared_support():
    p = np.array([0.2, 0.5, 1.0])
    np.testing.assert_allclose(experiments.divergence(p), np.log(1 / p) + p * np.log(p))


@pytest.mark.parametrize("K", [2, 3, 4])
def test_no_symmetric_kernel_beats_the_bound(K):
    rng = np.random.default_rng(K)
    for _ in range(300):
        scale = np.exp(rng.normal(size=(4, 1)) * rng.choice([0.0, 0.3, 2.0]))
        found = experiments.toy_results(model_of(rng.normal(size=(4, K)) * scale))
        assert found["geometric_mean"] <= experiments.MOST_PROBABILITY + 1e-9
        assert found["net_divergence"] >= experiments.LEAST_DIVERGENCE - 1e-9


def test_the_bound_is_reached_by_a_square():
    angles = np.radians([0, 90, 45, 135])
    found = experiments.toy_results(model_of(np.column_stack([np.cos(angles), np.sin(angles)])))
    np.testing.assert_allclose(found["probabilities"], 0.5)
    assert found["net_divergence"] == pytest.approx(experiments.LEAST_DIVERGENCE)
