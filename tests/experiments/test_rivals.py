"""The published models of the benchmark: known answers on tiny data, and definitions in plain NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.sets import Sets
from contradpp.errors import ParameterError
from contradpp.experts.base import Baseline
from experiments.benchmark import rivals

LISTS = [["a", "b"], ["a", "b", "c"], ["b", "c"], ["c", "d"], ["d"], ["a", "d", "e"], ["b", "e"]]


@pytest.fixture
def checkerboard() -> cd.Baskets:
    """Even items meet even items, odd ones odd ones."""
    rng = np.random.default_rng(0)
    lists = [(2 * rng.choice(6, size=3, replace=False) + kind % 2).tolist() for kind in range(600)]
    return cd.Baskets.from_lists(lists, items=range(12))


def assert_learned(model: Baseline, board: cd.Baskets) -> None:
    """Given items of one kind, the other items of the kind come first."""
    ids, _ = model.fit(board).recommend([[0, 2], [1, 3], [4], [5]], N=3)
    np.testing.assert_array_equal(ids % 2, [[0] * 3, [1] * 3, [0] * 3, [1] * 3])


def scores_without_each(model: Baseline, sets: Sets) -> np.ndarray:
    found = np.empty((len(sets.indices), len(model.known_items)))
    model.write_scores_without_each(sets, found)
    return found


def defined_without_each(model: Baseline, sets: Sets) -> np.ndarray:
    found = np.empty((len(sets.indices), len(model.known_items)))
    Baseline.write_scores_without_each(model, sets, found)
    return found


@pytest.mark.parametrize("model", [rivals.SLIM(), rivals.RP3Beta(), rivals.GFCF(4)], ids=lambda m: type(m).__name__)
def test_linear_models_learn_a_checkerboard(model, checkerboard):
    assert_learned(model, checkerboard)
    sets = checkerboard[:20].sets
    if model.item_weights_ is None:
        np.testing.assert_allclose(scores_without_each(model, sets), defined_without_each(model, sets), atol=1e-10)


# -- Linear models ---------------------------------------------------------------------------------------


def test_sparse_ease_is_ease_when_nothing_is_dropped():
    pytest.importorskip("sansa", reason="sansa is not installed: pip install sansa")
    rng = np.random.default_rng(0)
    train = cd.Baskets.from_lists([rng.choice(20, size=4, replace=False).tolist() for _ in range(200)], items=range(20))
    dense = cd.baselines.EASE(20.0).fit(train)
    sparse = rivals.SparseEASE(20.0, density=1.0, exact=True).fit(train)
    sets = train[:30].sets
    expected, found = np.empty((2, sets.count, 20))
    dense.write_scores(sets, expected)
    sparse.write_scores(sets, found)
    outside = np.ones(found.shape, dtype=bool)
    outside[sets.owners, sets.indices] = False
    np.testing.assert_allclose(found[outside], expected[outside], atol=2e-3)
    rows = np.arange(len(sets.indices))
    one, other = scores_without_each(sparse, sets), scores_without_each(dense, sets)
    np.testing.assert_allclose(one[rows, sets.indices], other[rows, sets.indices], atol=2e-3)


def test_slim_is_the_elastic_net_of_scikit_learn():
    from sklearn.linear_model import ElasticNet

    train = cd.Baskets.from_lists(LISTS * 5)
    X = train.to_csr().toarray().astype(float)
    l1, l2 = 1.5, 3.0
    model = rivals.SLIM(l1, l2, max_sweeps=1000).fit(train)
    W = model.item_weights_.matrix(train.n_items).toarray()
    alpha = (l1 + l2) / len(X)
    for j in range(train.n_items):
        rest = np.delete(np.arange(train.n_items), j)
        net = ElasticNet(alpha=alpha, l1_ratio=l1 / (l1 + l2), positive=True, fit_intercept=False, tol=1e-10)
        net.fit(X[:, rest], X[:, j])
        np.testing.assert_allclose(W[rest, j], net.coef_, atol=1e-3)
        assert W[j, j] == 0
    assert (W > 0).any()


def test_rp3beta_is_a_product_of_transition_matrices():
    train = cd.Baskets.from_lists(LISTS)
    X = train.to_csr().toarray().astype(float)
    alpha, beta = 0.8, 0.4
    to_baskets = (X.T / X.sum(axis=0)[:, None]) ** alpha
    to_items = (X / X.sum(axis=1)[:, None]) ** alpha
    expected = to_baskets @ to_items / X.sum(axis=0) ** beta
    np.fill_diagonal(expected, 0.0)
    found = rivals.RP3Beta(alpha, beta).fit(train).item_weights_.matrix(train.n_items).toarray()
    np.testing.assert_allclose(found, expected)


def test_gfcf_is_a_linear_and_an_ideal_filter():
    train = cd.Baskets.from_lists(LISTS)
    X = train.to_csr().toarray().astype(float)
    R = X / np.sqrt(X.sum(axis=1))[:, None] / np.sqrt(X.sum(axis=0))
    V = np.linalg.svd(R)[2][:2].T
    roots = np.sqrt(X.sum(axis=0))
    query = np.array([1.0, 0, 1, 0, 0])
    expected = query @ (R.T @ R) + 0.3 * ((query / roots) @ V @ V.T) * roots
    model = rivals.GFCF(2, 0.3).fit(train)
    found = np.empty((1, 5))
    model.write_scores(Sets.one([0, 2]), found)
    np.testing.assert_allclose(found[0, [1, 3, 4]], expected[[1, 3, 4]], atol=1e-6)


# -- Boosted trees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_logit", [False, True])
def test_boosted_trees_rank_the_first_candidates_anew(checkerboard, own_logit):
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install -e '.[experiments]'")
    model = rivals.BoostedTrees(n_candidates=6, own_logit=own_logit, n_jobs=1)
    assert_learned(model, checkerboard)
    assert not hasattr(model.model_, "unseen_")
    scores = np.empty((2, 12))
    sets = Sets(np.array([0, 2, 3]), np.array([0, 2, 5], dtype=np.int32))
    model.write_scores(sets, scores)
    logits = rivals.next_logits(model.model_, sets)
    top = rivals.best_outside(logits, sets, 6)
    for row, first in enumerate(top):
        others = np.setdiff1d(np.arange(12), first)
        assert scores[row, first].min() > scores[row, others].max()  # the others stay behind, in their order
        outside = np.setdiff1d(others, sets.indices[sets.owners == row])
        np.testing.assert_array_equal(np.argsort(scores[row, outside]), np.argsort(logits[row, outside]))


# -- Customers -------------------------------------------------------------------------------------------


def test_pernir_by_hand():
    orders = cd.Baskets.from_lists(
        [["a", "b"], ["a", "c"], ["a", "d"], ["b", "d"], ["a", "b", "e"]],
        customers=["ann", "ann", "bob", "bob", "cy"], times=[1, 2, 1, 2, 1],
    )  # fmt: skip
    history = [["b", "c"], ["a", "b"]]
    frequency = {"ann": [2, 1, 1, 0, 0], "bob": [1, 1, 0, 2, 0], "cy": [1, 1, 0, 0, 1]}
    own = np.array([1, 2, 1, 0, 0.0])
    cosine = {who: own @ np.array(v) / np.linalg.norm(own) / np.linalg.norm(v) for who, v in frequency.items()}
    baskets = {
        "ann": [(0.5, "ab"), (1, "ac")], "bob": [(0.5, "ad"), (1, "bd")], "cy": [(1, "abe")],
        "self": [(0.5, "bc"), (1, "ab")],
    }  # fmt: skip
    given = "ac"

    def score(who: str, item: str) -> float:
        return sum(w * (1 + np.log(2) * len(set(b) & set(given))) for w, b in baskets[who] if item in b)

    model = rivals.PerNIR(own=0.3).fit(orders)
    found = model.predict_next(list(given), history=history)
    expected = []
    for item in "bde":
        buyers = [who for who in cosine if any(item in b for _, b in baskets[who])]
        near = np.mean([cosine[who] * score(who, item) for who in buyers])
        expected.append(0.3 * score("self", item) + 0.7 * near)
    found = found[[model.items_.code(item) for item in "bde"]]
    np.testing.assert_allclose(found / found.sum(), np.array(expected) / np.sum(expected), rtol=1e-6)


def test_pernir_answers_alike_one_by_one_and_together():
    rng = np.random.default_rng(0)
    lists = [rng.choice(9, size=3, replace=False).tolist() for _ in range(60)]
    orders = cd.Baskets.from_lists(lists, items=range(9), customers=np.repeat(np.arange(15), 4), times=range(60))
    train, test = orders.split_by_time(min_baskets=3)
    model = rivals.PerNIR(n_neighbors=4).fit(train)
    report = cd.evaluate(model, test, history=train, likelihood=False)
    assert np.isfinite(report.mpr)
    histories = test.histories(train)
    together = model.predict_next([test[0][:2], test[1][:2]], history=[histories[0], histories[1]])
    for row in range(2):
        np.testing.assert_allclose(model.predict_next(test[row][:2], history=histories[row]), together[row])
    np.testing.assert_allclose(model.predict_next([0])[1:], model.bias_[1:] / model.bias_[1:].sum())


# -- Networks --------------------------------------------------------------------------------------------


@pytest.fixture
def networks():
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[torch]'")
    from experiments.benchmark import networks

    return networks


@pytest.mark.parametrize("name", ["MultVAE", "SetTransformer"])
def test_networks_learn_a_checkerboard_and_repeat_themselves(networks, name, checkerboard):
    make = getattr(networks, name)
    options = {"hidden": 32, "latent": 8} if name == "MultVAE" else {"size": 16, "layers": 1}
    model = make(**options, n_jobs=1)
    model.learning_rate = 5e-3
    assert_learned(model, checkerboard)
    again = make(**options, n_jobs=1)
    again.learning_rate = 5e-3
    np.testing.assert_array_equal(again.fit(checkerboard).predict_next([[0, 2]]), model.predict_next([[0, 2]]))


def test_a_set_transformer_does_not_know_the_order(networks, checkerboard):
    model = networks.SetTransformer(size=16, layers=1, n_jobs=1).fit(checkerboard[:50])
    scores = np.empty((2, 12))
    model.write_scores(Sets(np.array([0, 3, 6]), np.array([0, 2, 5, 5, 0, 2], dtype=np.int32)), scores)
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)


def test_a_catalog_that_takes_too_long_is_refused(networks, checkerboard, monkeypatch):
    monkeypatch.setattr(networks, "BUDGET", 1e6)
    with pytest.raises(ParameterError, match="five minutes"):
        networks.MultVAE().fit(checkerboard)


def test_flid_is_a_distribution(networks):
    rng = np.random.default_rng(0)
    lists = [[int(i) for i in np.flatnonzero(rng.random(6) < 0.3)] + [6 + k % 2] for k in range(800)]
    train = cd.Baskets.from_lists(lists, items=range(8))
    model = networks.FLID(3, n_jobs=1, learning_rate=0.05).fit(train)
    sets = [list(one) for size in range(9) for one in itertools.combinations(range(8), size)]
    every = Sets(np.cumsum([0, *map(len, sets)]), np.array([i for one in sets for i in one], dtype=np.int32))
    p = np.exp(model.log_probability(every))
    assert p.sum() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(
        np.exp(model.log_size_distribution),
        np.bincount(every.sizes, p, 9),
        atol=0.02,
    )
    both = sum(v for v, one in zip(p, sets, strict=True) if 6 in one and 7 in one)
    assert both < 0.15  # independent items would have 0.25: FLID learns that 6 and 7 do not meet
    scores = np.empty((1, 8))
    model.write_scores(Sets.one([1, 6]), scores)
    number = {tuple(one): k for k, one in enumerate(sets)}
    logs = np.log(p)
    expected = [logs[number[tuple(sorted((1, 6, j)))]] - logs[number[1, 6]] for j in (0, 2, 7)]
    np.testing.assert_allclose(scores[0, [0, 2, 7]], expected, atol=1e-9)


def test_independent_sets_have_the_marginals(networks):
    p = np.array([0.5, 0.1, 0.0, 1.0])
    sets = networks.independent_sets(p, 20_000, np.random.default_rng(0))
    assert sets.count == 20_000
    np.testing.assert_allclose(np.bincount(sets.indices, minlength=4) / 20_000, p, atol=0.015)
    together = np.bincount(sets.owners[np.isin(sets.indices, (0, 1))], minlength=sets.count) == 2
    assert together.mean() == pytest.approx(0.05, abs=0.01)


def test_the_published_ndpp_has_its_likelihood(networks, checkerboard):
    import torch

    rng = np.random.default_rng(0)
    V, B = rng.random((2, 5, 3))
    D = rng.normal(size=(3, 3))
    L = V @ V.T + B @ (D - D.T) @ B.T
    sets = Sets(np.array([0, 2, 5]), np.array([0, 3, 1, 2, 4], dtype=np.int32))
    found = networks.log_likelihood(*map(torch.from_numpy, (V, B, D)), sets).numpy()
    every = np.linalg.slogdet(np.eye(5) + L)[1]
    expected = [np.linalg.slogdet(L[np.ix_(A, A)] + 1e-5 * np.eye(len(A)))[1] - every for A in ([0, 3], [1, 2, 4])]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    pairs = cd.Baskets.from_lists([[0, 1], [2, 3], [0, 1, 4], [2, 3, 4], [4]] * 60, items=range(5))
    model = networks.PublishedNDPP(4, (0.01,), 0.05, n_jobs=1).fit(pairs)
    p = model.predict_next([[0], [3]])
    assert p[0, 1] > 0.8  # it attracts what meets
    assert p[1, 2] > 0.8
    alone = cd.baselines.Popularity().fit(pairs)
    assert model.score_samples(pairs).mean() > alone.score_samples(pairs).mean()
