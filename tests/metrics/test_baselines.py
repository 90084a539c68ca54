"""Baselines against their formulas; `tests/test_contract.py` has what they share with every model."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import contradpp as cd
from contradpp.errors import ParameterError
from contradpp.experts.base import Baseline

ITEMS = list("abcdefgh")


@pytest.fixture(scope="module")
def train() -> cd.Baskets:
    rng = np.random.default_rng(0)
    lists = [rng.choice(ITEMS[:7], size=rng.integers(1, 5), replace=False).tolist() for _ in range(30)]
    return cd.Baskets.from_lists(lists, items=ITEMS)  # h never occurs


class FakeFactors:
    """What `implicit` offers for BPR: factors with a column of ones for the item biases, and no fold-in."""

    def fit(self, user_items, show_progress=True):
        assert show_progress is False
        n, m = user_items.shape
        rng = np.random.default_rng(0)
        self.user_factors = np.hstack([rng.normal(size=(n, 3)), np.ones((n, 1))]).astype(np.float32)
        self.item_factors = rng.normal(size=(m, 4)).astype(np.float32)

    def recommend(self, userid, user_items, N=10):
        raise AssertionError("lists of one model cannot be compared: the adapter scores all items")

    def recalculate_user(self, userid, user_items):
        raise NotImplementedError("recalculate_user is not supported with this model")


class FakeFoldIn(FakeFactors):
    """As ALS: factors of new users from their items."""

    def recalculate_user(self, userid, user_items):
        assert len(userid) == user_items.shape[0]
        return user_items @ self.item_factors * 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: cd.baselines.Popularity(smoothing=-1),
        lambda: cd.baselines.ItemKNN(neighbors=0),
        lambda: cd.baselines.ItemKNN(shrinkage=math.nan),
        lambda: cd.baselines.ItemKNN(weights="tf"),
        lambda: cd.baselines.RidgeNeighbors(0),
        lambda: cd.baselines.RidgeNeighbors(ridge=0),
        lambda: cd.baselines.RidgeNeighbors(dropout=1),
        lambda: cd.baselines.BasketKNN(n_neighbors=0),
        lambda: cd.baselines.BasketKNN(max_postings=0),
        lambda: cd.baselines.BasketKNN(power=-1),
        lambda: cd.baselines.BasketKNN(size_damping=math.nan),
        lambda: cd.baselines.EASE(0),
        lambda: cd.baselines.LogLinear(0),
        lambda: cd.baselines.LogLinear(math.nan),
        lambda: cd.baselines.Implicit(object()),
    ],
)
def test_bad_parameters(make, train):
    with pytest.raises(ParameterError):
        make().fit(train)


def test_an_empty_basket_is_offered_the_most_popular(train):
    order = np.argsort(-train.item_counts, kind="stable")
    for model in (
        cd.baselines.Popularity(),
        *(cd.baselines.ItemKNN(weights=weights) for weights in ("cosine", "bm25", "share")),
        cd.baselines.RidgeNeighbors(4, 1.0),
        cd.baselines.BasketKNN(5),
        cd.baselines.EASE(1.0),
        cd.baselines.LogLinear(),
    ):
        items, _ = model.fit(train).recommend([], N=8)
        assert items.tolist() == [ITEMS[code] for code in order], model


class Smallest(Baseline):
    """All that an expert has to write."""

    def _fit(self, statistics) -> None:
        self.together_ = statistics.together.matrix(statistics.train.n_items).toarray()

    def write_scores(self, sets, out) -> None:
        out[:] = [self.together_[codes].max(axis=0, initial=0.0) for codes in np.split(sets.indices, sets.indptr[1:-1])]


def test_an_expert_needs_two_methods(train):
    model = Smallest().fit(train)
    best = ITEMS[model.together_[0].argmax()]
    assert model.recommend(["a"], N=1)[0].tolist() == [best]
    assert cd.evaluate(model, train).mpr > 50
    combined = cd.ConditionalDPP(cd.NonsymmetricDPP(2, 2, max_iter=1), [model], random_state=0).fit(train)
    reasons = combined.explain(["a", "b"], "c")
    assert reasons.log_probability == pytest.approx(np.log(combined.predict_next(["a", "b"])[2]))
    assert "Smallest" in reasons.by_expert


# -- Each by its formula -------------------------------------------------------------------------------


def test_popularity_is_a_product_of_independent_items(train):
    model = cd.baselines.Popularity(smoothing=0.5).fit(train)
    p = (train.item_counts + 0.5) / 31
    basket = ["b", "h", "e"]
    wanted = sum(math.log(q) if item in basket else math.log(1 - q) for item, q in zip(ITEMS, p, strict=True))
    assert model.score_samples(basket) == pytest.approx(wanted)
    every = [list(s) for n in range(9) for s in itertools.combinations(ITEMS, n)]
    assert np.exp(model.score_samples(every)).sum() == pytest.approx(1)
    np.testing.assert_allclose(model.predict_next([]), p / p.sum())


def test_popularity_without_smoothing_knows_the_impossible():
    model = cd.baselines.Popularity(smoothing=0).fit(cd.Baskets.from_lists([["a", "b"], ["a"]], items="abc"))
    logs = model.score_samples([["a"], ["a", "b"], ["b"], ["a", "c"], []])
    np.testing.assert_allclose(logs, [math.log(0.5), math.log(0.5), -np.inf, -np.inf, -np.inf])
    report = cd.evaluate(model, [["a", "b"], ["a", "c"]])
    assert report.n_impossible == 1
    assert report.log_likelihood == pytest.approx(math.log(0.5))


def scores_by_rule(S: np.ndarray, train: cd.Baskets, basket: list[str]) -> np.ndarray:
    """Σ S[a] with the popularity term, made a distribution as the interface says."""
    codes = [ITEMS.index(item) for item in basket]
    x = S[codes].sum(axis=0) + 1e-6 * np.abs(S).max() * train.item_counts / train.n_baskets
    left = np.setdiff1d(np.arange(len(ITEMS)), codes)
    x = x - min(x[left].min(), 0)
    x[codes] = 0
    return x / x.sum()


@pytest.mark.parametrize("neighbors", [None, 2])
@pytest.mark.parametrize("shrinkage", [0.0, 3.0])
def test_item_knn_is_cosine_with_shrinkage(train, neighbors, shrinkage):
    X = train.to_csr().toarray()
    S = np.zeros((8, 8))
    for i, j in itertools.permutations(range(8), 2):
        together = X[:, i] @ X[:, j]
        S[i, j] = together / (math.sqrt(X[:, i].sum() * X[:, j].sum()) + shrinkage) if together else 0.0
    if neighbors:
        for row in S:
            row[np.argsort(-row, kind="stable")[neighbors:]] = 0.0
    model = cd.baselines.ItemKNN(neighbors=neighbors, shrinkage=shrinkage).fit(train)
    np.testing.assert_allclose(model.similarity_.toarray(), S)
    # the popularity term refers to the largest weight, which is among the neighbors
    np.testing.assert_allclose(model.predict_next(["a", "c"]), scores_by_rule(S, train, ["a", "c"]), atol=1e-15)


def test_item_knn_with_bm25_weights(train):
    X = train.to_csr().toarray()
    counts = X.sum(axis=0)
    idf = math.log(8) - np.log1p(X.sum(axis=1))
    W = X * idf[:, None] * (1.2 + 1) / (1.2 * (1 - 0.75 + 0.75 * counts / counts.mean()) + 1)
    S = W.T @ W
    np.fill_diagonal(S, 0)
    model = cd.baselines.ItemKNN(weights="bm25").fit(train)
    np.testing.assert_allclose(model.similarity_.toarray(), S, atol=1e-12)


def test_item_knn_with_shares(train):
    X = train.to_csr().toarray()
    together = X.T @ X
    S = together / (np.diag(together)[:, None] + 3.0)
    np.fill_diagonal(S, 0)
    model = cd.baselines.ItemKNN(weights="share", shrinkage=3.0).fit(train)
    np.testing.assert_allclose(model.similarity_.toarray(), S)


def test_ease_is_its_closed_form(train):
    X = train.to_csr().toarray()
    P = np.linalg.inv(X.T @ X + 2.0 * np.eye(8))
    B = -P / np.diag(P)
    np.fill_diagonal(B, 0)
    model = cd.baselines.EASE(2.0).fit(train)
    np.testing.assert_allclose(model.item_weights_, B, atol=1e-12)
    assert B.min() < 0
    np.testing.assert_allclose(model.predict_next(["a", "c"]), scores_by_rule(B, train, ["a", "c"]), atol=1e-12)


def test_ease_mirrors_every_strip_of_a_larger_matrix():
    rng = np.random.default_rng(0)
    shop = cd.Baskets.from_lists(
        [rng.choice(1100, size=8, replace=False).tolist() for _ in range(300)], items=range(1100)
    )
    X = shop.to_csr().toarray()
    P = np.linalg.inv(X.T @ X + 5.0 * np.eye(1100))
    B = np.eye(1100) - P / np.diag(P)
    np.testing.assert_allclose(cd.baselines.EASE(5.0).fit(shop).item_weights_, B, atol=1e-10)


def test_implicit_models_are_scored_by_what_they_offer(train):
    factors = cd.baselines.Implicit(FakeFactors()).fit(train)
    Y = factors.model.item_factors.astype(float)
    user = Y[[0, 2]].mean(axis=0)
    user[3] = 1.0  # the column that goes with the item biases
    raw = Y @ user
    assert np.argsort(-factors.predict_next([])[:]).tolist() == np.argsort(-Y[:, 3]).tolist()
    order = [ITEMS[code] for code in np.argsort(-raw) if code not in (0, 2)]
    assert factors.recommend(["a", "c"])[0].tolist() == order
    folded = cd.baselines.Implicit(FakeFoldIn()).fit(train)
    raw = Y @ (2 * (Y[0] + Y[2]))
    assert folded.recommend(["a", "c"])[0].tolist() == [ITEMS[c] for c in np.argsort(-raw) if c not in (0, 2)]


@pytest.mark.filterwarnings("default")  # it warns of its own threads, and of its own matrices
def test_the_implicit_package_itself(train):
    """ALS, BPR and neighbors of the real package, where it is installed."""
    als = pytest.importorskip("implicit.als")
    bpr = pytest.importorskip("implicit.bpr")
    neighbors = pytest.importorskip("implicit.nearest_neighbors")
    for model in (
        als.AlternatingLeastSquares(factors=3, random_state=0),
        bpr.BayesianPersonalizedRanking(factors=3, random_state=0),
        neighbors.BM25Recommender(K=8),
    ):
        report = cd.evaluate(cd.baselines.Implicit(model).fit(train), train)
        assert 30 < report.mpr <= 100
