"""The log-linear model of pairs: its definition, its derivatives, what it learns, and its place among the experts."""

from itertools import combinations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import contradpp as cd
from contradpp.errors import ParameterError
from contradpp.experts import loglinear
from contradpp.experts import table as experts
from contradpp.experts.loglinear import log_likelihood

M = 6


def baskets(n: int = 60, seed: int = 0, n_items: int = M) -> cd.Baskets:
    rng = np.random.default_rng(seed)
    lists = [sorted(rng.choice(n_items, rng.integers(1, 5), replace=False).tolist()) for _ in range(n)]
    return cd.Baskets.from_lists(lists, items=range(n_items))


def some_weights(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(M, M))
    np.fill_diagonal(W, 0.0)
    return W + W.T, rng.normal(size=M)


def next_distribution(given: list[int], W: np.ndarray, b: np.ndarray) -> np.ndarray:
    """P(next = j | A) by the definition."""
    logits = b + W[given].sum(axis=0) / max(len(given), 1) ** 0.5
    p = np.exp(logits)
    p[given] = 0.0
    return p / p.sum()


def defined(shop: cd.Baskets, W: np.ndarray, b: np.ndarray) -> float:
    """Σ log P(i | A∖i) by the definition."""
    total = 0.0
    for basket in range(shop.n_baskets):
        codes = shop.codes(basket).tolist()
        if len(codes) >= 2:
            total += sum(np.log(next_distribution([a for a in codes if a != i], W, b)[i]) for i in codes)
    return total


def two_and_more(shop: cd.Baskets):
    return shop.subset(np.flatnonzero(shop.sizes >= 2)).sets


def test_the_likelihood_is_that_of_the_definition():
    shop, (W, b) = baskets(), some_weights()
    assert log_likelihood(two_and_more(shop), W, b).value == pytest.approx(defined(shop, W, b), rel=1e-5)


def test_its_derivatives_are_central_differences():
    shop, (W, b) = baskets(), some_weights()
    found, h = log_likelihood(two_and_more(shop), W, b), 1e-5
    for i, j in combinations(range(M), 2):
        step = np.zeros((M, M))
        step[i, j] = step[j, i] = h
        slope = (defined(shop, W + step, b) - defined(shop, W - step, b)) / (2 * h)
        assert found.weights[i, j] + found.weights[j, i] == pytest.approx(slope, abs=1e-3)
    for j in range(M):
        step = h * (np.arange(M) == j)
        slope = (defined(shop, W, b + step) - defined(shop, W, b - step)) / (2 * h)
        assert found.bias[j] == pytest.approx(slope, abs=1e-3)


def test_what_it_learns_is_the_best_there_is():
    shop = baskets(400)
    model = cd.baselines.LogLinear(2.0).fit(shop)
    W, b, center = model.weights_, model.base_, np.log(shop.item_counts + 1.0)
    np.testing.assert_array_equal(W, W.T)
    assert (np.diag(W) == 0).all()

    def penalized(W, b):
        away = b - (center - center.max())
        return defined(shop, W, b) - 2.0 / 2 * (np.square(W).sum() / 2 + np.square(away).sum())

    best, rng = penalized(W, b), np.random.default_rng(0)
    for _ in range(20):
        step = rng.normal(size=(M, M)) * 0.02
        step = np.triu(step, 1) + np.triu(step, 1).T
        assert penalized(W + step, b + rng.normal(size=M) * 0.02) < best


def test_probabilities_are_those_of_the_learned_weights():
    shop = baskets(200)
    model = cd.baselines.LogLinear().fit(shop)
    for given in ([0], [1, 4], [0, 2, 5], list(range(M))):
        found = model.predict_next(given)
        if len(given) < M:
            np.testing.assert_allclose(found, next_distribution(given, model.weights_, model.base_), atol=1e-12)
        else:
            assert (found == 0).all()


def test_one_and_two_threads_learn_the_same():
    shop = baskets(300)
    one, two = (cd.baselines.LogLinear(n_jobs=n).fit(shop) for n in (1, 2))
    np.testing.assert_array_equal(one.weights_, two.weights_)
    np.testing.assert_array_equal(one.base_, two.base_)


def test_baskets_of_one_item_say_what_is_popular():
    model = cd.baselines.LogLinear().fit([["a"], ["b"], ["b"]])
    assert (model.weights_ == 0).all()
    assert model.recommend([], N=1)[0].tolist() == ["b"]


def test_of_many_baskets_a_sample_is_enough(monkeypatch):
    shop = cd.datasets.load("grocer", n_baskets=3000, random_state=0)
    train, test = shop.split(0.3, random_state=0)
    whole = cd.evaluate(cd.baselines.LogLinear().fit(train), test)
    monkeypatch.setattr(loglinear, "MOST_SCORES", len(train.indices) * train.n_items // 2)
    part = cd.evaluate(cd.baselines.LogLinear().fit(train), test)
    popular = cd.evaluate(cd.baselines.Popularity().fit(train), test)
    assert whole.mpr > part.mpr > popular.mpr + 1


def test_large_catalogues_are_refused_by_itself_and_done_without_by_a_conditional_dpp(monkeypatch, tmp_path):
    monkeypatch.setattr(loglinear, "DENSE_UP_TO", M - 1)
    with pytest.raises(ParameterError, match="5 at most: here are 6"):
        cd.baselines.LogLinear().fit(baskets())
    monkeypatch.setitem(experts.EXPERTS, "loglinear", experts.EXPERTS["loglinear"]._replace(max_items=M - 1))
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(2, 2, max_iter=2), random_state=0).fit(baskets())
    assert set(model.experts_) == {"popularity", "ridge", "item_knn_share", "item_knn_cosine", "basket_knn"}
    model.save(tmp_path / "large.safetensors")
    again = cd.load(tmp_path / "large.safetensors")
    assert again.experts == model.experts == experts.DEFAULT_EXPERTS
    np.testing.assert_array_equal(again.predict_next([1, 2]), model.predict_next([1, 2]))
    model.partial_fit(baskets(20, seed=1))
    assert "loglinear" not in model.experts_


def test_a_model_that_has_the_expert_keeps_it_when_the_catalogue_grows(monkeypatch):
    monkeypatch.setitem(experts.EXPERTS, "loglinear", experts.EXPERTS["loglinear"]._replace(max_items=M))
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(2, 2, max_iter=2), random_state=0).fit(baskets())
    model.partial_fit(baskets(40, seed=1, n_items=M + 3))
    assert model.experts_["loglinear"].weights_.shape == (M + 3, M + 3)
    assert model.predict_next([M + 1]).sum() == pytest.approx(1.0)


def test_a_model_that_has_the_expert_takes_no_more_items_than_it_can(monkeypatch):
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(2, 2, max_iter=2), random_state=0).fit(baskets())
    before = model.predict_next([1]).tobytes()
    monkeypatch.setattr(experts, "DENSE_UP_TO", M)
    with pytest.raises(ParameterError, match="9 items are too many for the expert LogLinear"):
        model.partial_fit(baskets(40, seed=1, n_items=M + 3))
    assert model.predict_next([1]).tobytes() == before


def test_other_experts_than_those_of_fit_cannot_go_on():
    kernel = cd.NonsymmetricDPP(2, 2, max_iter=2)
    model = cd.ConditionalDPP(kernel, ("popularity", "loglinear"), random_state=0).fit(baskets())
    for other in (("popularity",), ("popularity", "loglinear", "ridge")):
        with pytest.raises(ParameterError, match="fit it anew"):
            model.set_params(experts=other).partial_fit(baskets(20, seed=1))
    again = model.set_params(experts=("loglinear", "popularity")).partial_fit(baskets(20, seed=1))
    straight = cd.ConditionalDPP(kernel, ("popularity", "loglinear"), random_state=0).fit(baskets())
    straight.partial_fit(baskets(20, seed=1))
    np.testing.assert_array_equal(again.predict_next([0, 3]), straight.predict_next([0, 3]))


def test_the_expert_by_name_is_the_model_as_an_expert():
    kernel, shop = cd.NonsymmetricDPP(2, 2, max_iter=2), baskets(200)
    models = [
        cd.ConditionalDPP(kernel, ("popularity", expert), random_state=0, n_jobs=1).fit(shop)
        for expert in ("loglinear", cd.baselines.LogLinear())
    ]
    np.testing.assert_array_equal(models[0].predict_next([1, 2]), models[1].predict_next([1, 2]))
    assert models[0].experts_["loglinear"].n_jobs == 1


def test_an_empty_basket_is_offered_what_sells_most_even_alone():
    lists = [["alone"]] * 50 + [["a", "b"]] * 20 + [["a", "alone"]] * 2 + [["c", "d", "b"]] * 15
    assert cd.baselines.LogLinear().fit(lists).recommend([], N=2)[0].tolist() == ["alone", "b"]


def test_the_number_of_blas_threads_does_not_matter():
    shop = cd.datasets.load("grocer", n_baskets=400, random_state=0)
    found = []
    for n in (1, 2):
        with threadpool_limits(n):
            found.append(cd.baselines.LogLinear().fit(shop).weights_.tobytes())
    assert found[0] == found[1]
