"""The scale of the kernel: likelihood and discrimination, against grids."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ParameterError
from contradpp.learn import calibration
from contradpp.learn.calibration import (
    auc,
    best_scale,
    better_scale,
    discrimination_scale,
    likelihood_scale,
    uniform_sets,
)

GRID = np.exp(np.linspace(-4, 4, 801))


@pytest.fixture
def V() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(20, 5)) * 0.3


@pytest.fixture
def held_out() -> list[list[int]]:
    rng = np.random.default_rng(1)
    return [rng.choice(20, size=rng.integers(1, 5), replace=False).tolist() for _ in range(60)]


def test_likelihood_scale_is_the_best_of_a_grid(V, held_out):
    mean_size = np.mean([len(s) for s in held_out])
    c = likelihood_scale(np.linalg.eigvalsh(V.T @ V), mean_size)
    best = cd.LowRankDPP.from_factors(c * V)
    on_grid = [cd.LowRankDPP.from_factors(g * V).score(held_out) for g in GRID]
    assert best.score(held_out) >= max(on_grid)
    assert best.score(held_out) == pytest.approx(max(on_grid), abs=1e-3)
    assert GRID[np.argmax(on_grid)] == pytest.approx(c, rel=0.01)
    assert best.marginals().sum() == pytest.approx(mean_size)


@pytest.mark.parametrize("mean_size", [5.0, 5.5, 4.999])
def test_likelihood_scale_of_sets_as_large_as_the_rank(V, mean_size):
    """Then every c is better than the last; it stays finite."""
    c = likelihood_scale(np.linalg.eigvalsh(V.T @ V), mean_size)
    assert np.isfinite(c)
    assert cd.LowRankDPP.from_factors(c * V).marginals().sum() == pytest.approx(5.0, abs=2e-3)


def test_likelihood_scale_with_nothing_to_go_by():
    assert likelihood_scale(np.array([1.0, 2.0]), 0.0) == 1.0
    assert likelihood_scale(np.zeros(3), 2.0) == 1.0


def test_likelihood_scale_over_wide_spectra():
    c = likelihood_scale(np.array([1e-20, 1e-3, 1e12]), 2.0)
    scaled = c**2 * np.array([1e-20, 1e-3, 1e12])
    assert (scaled / (1 + scaled)).sum() == pytest.approx(2.0)


@pytest.mark.parametrize(("away", "most"), [(0.0, 4), (0.3, 4), (-0.4, 4), (3.0, 20), (-6.0, 20)])
def test_a_guess_becomes_the_best_scale_by_four_values_unless_it_is_far_off(away, most):
    weights = np.random.default_rng(0).gamma(0.3, size=2000)
    asked = []

    def log_normalizer(c: float) -> float:
        asked.append(c)
        return float(np.log1p(c * weights).sum())

    best = likelihood_scale(weights, 10.0) ** 2
    found = better_scale(log_normalizer, 10.0, best * np.exp(away))
    assert len(asked) <= most
    assert abs(np.log(found / best)) < (0.02 if most == 4 else 0.05)


def test_the_scale_of_a_kernel_with_attraction_is_the_best_of_a_fine_search(monkeypatch):
    rng = np.random.default_rng(0)
    M = 60
    S = np.triu(rng.normal(size=(M, M)) * (rng.random((M, M)) < 0.1), 1)
    kernel = Kernel(rng.normal(size=(M, 4)), skew=S - S.T, diagonal=rng.gamma(1.0, size=M))
    found = []
    for most in (1000, 20):
        monkeypatch.setattr(calibration, "MOST_FOR_GUESS", most)
        scaled = calibration.at_mean_size(kernel, 7.0)
        found.append(float(np.log(scaled.squared_norms[0] / kernel.squared_norms[0])))
    best = np.log(best_scale(lambda c: kernel.scaled(c).log_normalizer, 7.0, within=1e-6))
    assert found == pytest.approx([best, best], abs=0.05)
    assert abs(found[1] - best) < 0.02  # by a guess from twenty items


def test_auc_is_the_share_of_pairs():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 30).astype(float), rng.integers(0, 4, 20).astype(float)
    pairs = (a[:, None] > b) + 0.5 * (a[:, None] == b)
    assert auc(a, b) == pytest.approx(pairs.mean())
    assert auc(np.array([1.0, -np.inf]), np.array([-np.inf])) == pytest.approx(0.75)


def test_discrimination_scale_is_as_good_as_a_grid():
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 8, 200).astype(float)
    real = -2.0 * sizes + rng.normal(size=200)
    other = -4.0 * sizes + rng.normal(size=200)
    c = discrimination_scale(real, sizes, other, sizes)

    def area(g):
        return auc(real + 2 * np.log(g) * sizes, other + 2 * np.log(g) * sizes)

    assert area(c) >= max(area(g) for g in GRID) - 2e-3
    assert area(c) > area(1.0) + 0.05


def test_discrimination_needs_possible_sets():
    impossible = np.full(3, -np.inf)
    with pytest.raises(ParameterError, match="positive probability"):
        discrimination_scale(impossible, np.ones(3), impossible, np.ones(3))


def test_uniform_sets_are_distinct_and_of_the_sizes():
    sizes = np.array([0, 3, 1, 10, 12])
    codes = uniform_sets(sizes, 10, np.random.default_rng(0))
    parts = np.split(codes, np.cumsum(np.minimum(sizes, 10))[:-1])
    assert [len(set(p.tolist())) for p in parts] == [0, 3, 1, 10, 10]
    assert set(codes.tolist()) == set(range(10))
    assert uniform_sets(np.array([], dtype=np.int64), 10, np.random.default_rng(0)).dtype == np.int32


# -- In fit ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop() -> cd.Baskets:
    return cd.datasets.load("grocer", n_baskets=1500)


def fitted(shop, calibrate):
    train, held = shop[:1000], shop[1000:]
    model = cd.LowRankDPP(
        int(shop.sizes.max()), objective="dynamic", calibrate=calibrate, max_iter=3, random_state=0
    ).fit(train, validation=held)
    return model, held


def pooled_auc(model, baskets) -> float:
    drawn = uniform_sets(baskets.sizes, baskets.n_items, np.random.default_rng(9))
    others = cd.Baskets(baskets.indptr, drawn, baskets.items)
    return auc(model.score_samples(baskets), model.score_samples(others))


def test_calibration_in_fit(shop):
    plain, held = fitted(shop, None)
    likely, _ = fitted(shop, "likelihood")
    sharp, _ = fitted(shop, "discrimination")
    for model in (likely, sharp):
        ratio = model.item_factors_ / plain.item_factors_
        assert ratio.std() < 1e-9 * ratio.mean()  # one number for the whole kernel: rankings stay
        np.testing.assert_allclose(model.predict_next(held[:5]), plain.predict_next(held[:5]), rtol=1e-6)
    assert likely.score(held) > plain.score(held)
    assert likely.marginals().sum() == pytest.approx(held.sizes.mean())
    for factor in (0.98, 1.02):
        other = cd.LowRankDPP.from_factors(factor * likely.item_factors_, items=likely.items_)
        assert other.score(held) < likely.score(held)
    assert pooled_auc(sharp, held) >= max(pooled_auc(likely, held), pooled_auc(plain, held))
    assert pooled_auc(sharp, held) > pooled_auc(plain, held) + 0.005
