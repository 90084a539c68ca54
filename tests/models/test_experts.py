"""Neighbors against plain definitions, and what every baseline promises as a expert (`experts/base.py`)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contradpp as cd
from contradpp.data.sets import Sets, without_each
from contradpp.errors import ParameterError
from contradpp.experts import ease
from contradpp.experts.statistics import Rows

N_ITEMS = 12


def shop(n_baskets: int = 60, seed: int = 0) -> cd.Baskets:
    """Small baskets of items whose popularity falls; the last item never occurs."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, N_ITEMS)
    lists = [
        rng.choice(N_ITEMS - 1, size=rng.integers(1, 6), replace=False, p=share / share.sum()).tolist()
        for _ in range(n_baskets)
    ]
    return cd.Baskets.from_lists(lists, items=range(N_ITEMS))


class FakeNeighbors:
    """As the item-item models of implicit: a similarity, with its diagonal."""

    def fit(self, user_items, show_progress=True):
        self.similarity = (user_items.T @ user_items).tocsr()

    def recommend(self, *given):
        raise AssertionError


class FakeFactors:
    """As a factor model of implicit with fold-in."""

    def fit(self, user_items, show_progress=True):
        self.item_factors = np.asarray(user_items[:3].todense()).T + 0.1

    def recommend(self, *given):
        raise AssertionError

    def recalculate_user(self, userid, user_items):
        return user_items @ self.item_factors


SUMS = {
    "cosine": cd.baselines.ItemKNN,
    "cosine-few": lambda: cd.baselines.ItemKNN(neighbors=3, shrinkage=0.0),
    "share": lambda: cd.baselines.ItemKNN(weights="share", shrinkage=2.0),
    "bm25": lambda: cd.baselines.ItemKNN(weights="bm25"),
    "ridge": lambda: cd.baselines.RidgeNeighbors(4, 2.0),
    "ease": lambda: cd.baselines.EASE(2.0),
    "implicit-knn": lambda: cd.baselines.Implicit(FakeNeighbors()),
}
BASKETS = {
    "baskets": cd.baselines.BasketKNN,
    "baskets-few": lambda: cd.baselines.BasketKNN(5, power=2.0),
    "baskets-cut": lambda: cd.baselines.BasketKNN(5, max_postings=4),
}
OTHERS = {
    "popularity": cd.baselines.Popularity,
    "loglinear": cd.baselines.LogLinear,
    "implicit-als": lambda: cd.baselines.Implicit(FakeFactors()),
}
EXPERTS = SUMS | BASKETS | OTHERS


def scores_of(model, sets: Sets) -> np.ndarray:
    out = np.full((sets.count, N_ITEMS), np.nan)
    model.write_scores(sets, out)
    return out


def scores_without_each(model, sets: Sets) -> np.ndarray:
    out = np.full((len(sets.indices), N_ITEMS), np.nan)
    model.write_scores_without_each(sets, out)
    return out


@pytest.fixture(scope="module", params=list(EXPERTS))
def expert(request):
    return EXPERTS[request.param]().fit(shop())


def test_scores_without_each_item_are_those_of_the_rest(expert):
    sets = shop(seed=1).sets
    wanted = scores_of(expert, without_each(sets))
    np.testing.assert_allclose(scores_without_each(expert, sets), wanted, atol=1e-13)
    unscored = wanted == 0  # not a rest of rounding, whose logarithm would be a number
    assert (scores_without_each(expert, sets)[unscored] == 0).all() or isinstance(expert, (cd.baselines.EASE,))


def test_the_order_of_a_basket_does_not_count(expert):
    sets = shop(seed=1).sets
    turned = Sets(sets.indptr, np.concatenate([part[::-1] for part in np.split(sets.indices, sets.indptr[1:-1])]))
    np.testing.assert_allclose(scores_of(expert, turned), scores_of(expert, sets), atol=1e-14)


def test_scores_are_those_of_predict_next_but_for_ties(expert):
    sets = shop(seed=1).sets
    np.testing.assert_allclose(expert._scores(sets), scores_of(expert, sets) + expert.bias_)


@pytest.mark.parametrize("name", [*SUMS, *BASKETS])
def test_contributions_add_up(name):
    model, sets = EXPERTS[name]().fit(shop()), shop(20, seed=1).sets
    for s, row in enumerate(scores_of(model, sets)):
        codes = sets.indices[sets.indptr[s] : sets.indptr[s + 1]]
        for item in np.setdiff1d(np.arange(N_ITEMS), codes):
            shares = model.contributions(codes, int(item))
            assert shares.shape == codes.shape
            assert shares.sum() == pytest.approx(row[item], abs=1e-14)


def test_one_without_contributions_says_so():
    model = EXPERTS["implicit-als"]().fit(shop())
    with pytest.raises(ParameterError, match="no sums"):
        model.contributions(np.array([0], dtype=np.int32), 1)


@pytest.mark.parametrize("name", list(EXPERTS))
def test_threads_change_nothing(name, monkeypatch):
    """Not a bit, with blocks so small that there are many."""
    monkeypatch.setattr("contradpp.experts.base.SCORES_PER_BLOCK", 50)
    monkeypatch.setattr("contradpp.dpp.cooccurrence.ITEMS_PER_BLOCK", 2)
    train, answers = shop(), []
    for n_jobs in (1, 2):
        model = EXPERTS[name]()
        model.n_jobs = n_jobs
        model.fit(train)
        answers.append((scores_of(model, train.sets).tobytes(), model.recommend(train, N=3)[1].tobytes()))
    assert answers[0] == answers[1]


# -- Ridge neighbors ----------------------------------------------------------------------------------


def ridge_by_definition(baskets: cd.Baskets, n: int, ridge: float, dropout: float = 0.0) -> np.ndarray:
    """B_Nj = (C_NN + D_N)⁻¹ C_Nj, item by item."""
    X = baskets.to_csr().toarray()
    C = X.T @ X
    counts, M = np.diag(C), len(C)
    B = np.zeros((M, M))
    for j in range(M):
        cosine = np.where(counts > 0, C[:, j] / np.sqrt(np.maximum(counts, 1)), 0)
        cosine[j] = 0
        N = np.argsort(-cosine, kind="stable")[:n]
        N = N[cosine[N] > 0]
        D = ridge + dropout / (1 - dropout) * counts[N]
        B[N, j] = np.linalg.solve(C[np.ix_(N, N)] + np.diag(D), C[N, j])
    return B


@pytest.mark.parametrize(("n", "dropout"), [(1, 0.0), (3, 0.0), (3, 0.4), (50, 0.0)])
def test_ridge_neighbors_are_their_definition(n, dropout):
    train = shop()
    model = cd.baselines.RidgeNeighbors(n, 1.5, dropout).fit(train)
    wanted = ridge_by_definition(train, n, 1.5, dropout)
    np.testing.assert_allclose(model.item_weights_.matrix(N_ITEMS).toarray(), wanted, atol=1e-12)


def test_long_rows_are_searched_and_give_the_same():
    """Enough items that pairs are looked up in both ways."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 301)
    lists = [rng.choice(300, size=12, replace=False, p=share / share.sum()).tolist() for _ in range(800)]
    train = cd.Baskets.from_lists(lists, items=range(300))
    model = cd.baselines.RidgeNeighbors(8, 5.0).fit(train)
    np.testing.assert_allclose(
        model.item_weights_.matrix(300).toarray(), ridge_by_definition(train, 8, 5.0), atol=1e-10
    )


def test_with_all_items_for_neighbors_it_is_ease():
    rng = np.random.default_rng(0)
    lists = [rng.choice(10, size=5, replace=False).tolist() for _ in range(200)]  # everything meets everything
    train = cd.Baskets.from_lists(lists, items=range(10))
    ridge, ease = cd.baselines.RidgeNeighbors(9, 3.0).fit(train), cd.baselines.EASE(3.0).fit(train)
    np.testing.assert_allclose(ridge.item_weights_.matrix(10).toarray(), ease.item_weights_, atol=1e-12)


def test_ease_refuses_what_would_be_too_large_and_names_the_way_out(monkeypatch):
    monkeypatch.setattr(ease, "DENSE_UP_TO", N_ITEMS - 1)
    with pytest.raises(ParameterError, match="RidgeNeighbors"):
        cd.baselines.EASE().fit(shop())
    monkeypatch.setattr(ease, "DENSE_UP_TO", N_ITEMS)
    cd.baselines.EASE().fit(shop())


def test_items_that_never_meet_have_no_neighbors():
    model = cd.baselines.RidgeNeighbors().fit([["a"], ["b"], ["b"]])
    assert model.item_weights_.values.size == 0
    assert model.recommend(["a"])[0].tolist() == ["b"]


# -- Basket neighbors ---------------------------------------------------------------------------------


def votes_by_definition(train: list[set], A: set, n: int, power: float, damping: float, weights) -> np.ndarray:
    """The definition, with every order of ties for the last places equally likely."""
    alike = np.array([sum(weights[i] for i in A & b) / sum(weights[i] for i in b) ** damping for b in train])
    alike = np.round(alike, 12)
    votes = np.zeros(len(train))
    order = np.argsort(-alike, kind="stable")
    least = alike[order[min(n, len(train)) - 1]]
    above, tied = alike > least, alike == least
    votes[above] = alike[above] ** power
    votes[tied] = alike[tied] ** power * (min(n, len(train)) - above.sum()) / tied.sum()
    if votes.sum() > 0:
        votes /= votes.sum()
    return np.array([sum(v for v, b in zip(votes, train, strict=True) if j in b) for j in range(N_ITEMS)])


def weights_of(train: cd.Baskets) -> np.ndarray:
    return np.log1p(train.n_baskets / np.maximum(train.item_counts, 1))


@pytest.mark.parametrize(("n", "power", "damping"), [(1, 1.0, 0.5), (5, 4.0, 0.4), (20, 2.0, 0.0), (1000, 4.0, 1.0)])
def test_votes_are_their_definition(n, power, damping):
    train, sets = shop(), shop(30, seed=1).sets
    model = cd.baselines.BasketKNN(n, power=power, size_damping=damping).fit(train)
    baskets = [set(basket) for basket in train]
    for s, row in enumerate(scores_of(model, sets)):
        A = set(sets.indices[sets.indptr[s] : sets.indptr[s + 1]].tolist())
        wanted = votes_by_definition(baskets, A, n, power, damping, weights_of(train))
        np.testing.assert_allclose(row, wanted, atol=1e-10)


def test_popular_items_find_the_same_few_baskets():
    """Each item finds at most so many baskets, and those that no item finds are not kept."""
    train = cd.Baskets.from_lists([["tea", "milk"]] * 50 + [["tea", "salt"]])
    model = cd.baselines.BasketKNN(max_postings=3).fit(train)
    index = model.index_
    assert np.diff(index.pointers).tolist() == [3, 3, 1]
    tea, milk, salt = np.split(index.postings, index.pointers[1:-1])
    assert len(set(tea) & set(milk)) >= 2
    assert len(index.indptr) - 1 == len(set(tea) | set(milk) | set(salt)) <= 7
    assert model.recommend(["salt"])[0].tolist() == ["tea", "milk"]


def test_the_seed_decides_what_is_cut():
    train = shop(400)
    answers = [
        scores_of(cd.baselines.BasketKNN(max_postings=5, random_state=seed).fit(train), train.sets).tobytes()
        for seed in (0, 0, 1)
    ]
    assert answers[0] == answers[1] != answers[2]


# -- Rows -------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=5), st.integers(1, 6))
def test_the_largest_of_every_row(rows, n):
    dense = np.zeros((len(rows), 9))
    for row, values in zip(dense, rows, strict=True):
        row[: len(values)] = values
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    columns = np.concatenate([np.arange(len(row)) for row in rows]).astype(np.int32)
    given_rows = Rows(indptr, columns, np.concatenate([np.array(row, dtype=float) for row in rows]))
    largest = given_rows.largest(n)
    for r, row in enumerate(rows):
        wanted = sorted(np.argsort(-np.array(row, dtype=float), kind="stable")[:n].tolist())
        assert largest.columns[largest.indptr[r] : largest.indptr[r + 1]].tolist() == wanted
    assert given_rows.largest(None) is given_rows


def test_rows_have_no_diagonal():
    from scipy.sparse import csr_array

    rows = Rows.of(csr_array(np.array([[5.0, 1.0], [0.0, 3.0]])))
    assert rows.matrix(2).toarray().tolist() == [[0, 1], [0, 0]]
    assert (rows.at(0, 1), rows.at(1, 0), rows.at(0, 0)) == (1.0, 0.0, 0.0)


def test_rows_of_a_file_must_be_numbered():
    for indptr, columns in (([0.0, np.nan], [0]), ([0, 1], [np.nan])):
        arrays = {"indptr": np.array(indptr), "columns": np.array(columns), "values": np.ones(1)}
        with pytest.raises(ValueError, match="rows of weights are damaged"):
            Rows.restored(1, arrays)
