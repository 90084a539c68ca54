"""`model.slate`: relevance from the whole kernel, repulsion from its symmetric part."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import contradpp as cd
from contract import BASKETS, RED, fitted, rows_that
from contradpp.errors import ParameterError, RankError, UnknownItemError
from contradpp.slates.greedy import BALANCES, spared
from slates.cases import RIDGE, define

every_dpp = pytest.mark.parametrize("name", rows_that("slate"))


@every_dpp
def test_without_variety_it_is_the_recommendation(name):
    model = fitted(name)
    for basket in BASKETS[:4]:
        items, shares = model.slate(basket, N=5, diversity=0)
        best, chances = model.recommend(basket, N=5)
        assert items.tolist() == best.tolist()
        assert np.allclose(shares, chances)


@every_dpp
def test_it_is_the_greedy_slate_of_its_kernel(name):
    model = fitted(name)
    items = list(model.items_)
    R = model.similarity_.of_rows(np.arange(len(items)))
    phi = R @ R.T
    np.fill_diagonal(phi, 1 + RIDGE)
    for basket in BASKETS[:4]:
        for diversity in (None, 0.5, 0.8, 1.0):
            open_to = [i for i, item in enumerate(items) if item not in basket]
            chances = model.predict_next(basket)[open_to]
            kept = 1 - spared(0.5 if diversity is None else diversity)
            best = np.sort(chances)[-4:].sum()
            for delta in (0.0, *BALANCES) if diversity != 1 else (1.0,):  # the last that keeps enough
                slate = define(chances, phi[np.ix_(open_to, open_to)], 4, delta, scale="log")
                if diversity == 1 or chances[slate].sum() >= kept * best - 1e-12:
                    expected = slate
            found, shares = model.slate(basket, N=4, diversity=diversity)
            assert found.tolist() == [items[open_to[position]] for position in expected]
            assert np.allclose(shares, chances[expected])


def test_the_determinant_is_the_documented_one():
    """Σ log q_j² + log det Φ_Y, Φ_ij = cos(v_i, v_j), Φ_jj = 1 + 10⁻³: without the 10⁻³, Φ of six items is singular."""
    V = np.random.default_rng(0).normal(size=(10, 4))
    model = cd.LowRankDPP.from_factors(V)
    p = model.predict_next([9])[:9]
    found, _, info = cd.rerank(range(9), p / p.max(), 6, kernel=model, diversity=0.3, scale="log", return_info=True)
    unit = V / np.linalg.norm(V, axis=1)[:, None]
    phi = unit @ unit.T + 1e-3 * np.eye(10)
    chosen = found.tolist()
    tau = (1 - 0.3) / 0.3
    expected = tau * np.log(p[chosen] / p.max()).sum() + np.linalg.slogdet(phi[np.ix_(chosen, chosen)])[1]
    assert info.gains.sum() / 0.3 == pytest.approx(expected, rel=1e-12)


def test_a_slate_gives_up_no_more_relevance_than_its_diversity_allows():
    """At ½ 2.2 percent; each tenth allows more, and one allows everything."""
    assert [spared(0), spared(0.5), spared(1)] == [0, pytest.approx(0.022), 1]
    rng = np.random.default_rng(0)
    model = cd.LowRankDPP.from_factors(rng.normal(size=(60, 12)) * rng.uniform(0.5, 2, (60, 1)))
    baskets = [rng.permutation(60)[:2].tolist() for _ in range(40)]
    top = model.recommend(baskets, 8)[1].sum(axis=1)
    slates = []
    for tenth in range(10):
        items, shares = model.slate(baskets, 8, diversity=tenth / 10)
        assert (shares.sum(axis=1) >= (1 - spared(tenth / 10)) * top - 1e-12).all()
        slates.append([set(row) for row in items.tolist()])
    assert all(a != b for a, b in pairwise(slates))


def test_relevance_may_be_what_is_specific_to_the_basket():
    model = fitted("conditional")
    items = model.slate(BASKETS[0], 4, diversity=0, rank_by="lift")[0]
    assert items.tolist() == model.recommend(BASKETS[0], 4, rank_by="lift")[0].tolist()
    with pytest.raises(ParameterError, match="rank_by"):
        model.slate(BASKETS[0], rank_by="best")


@every_dpp
def test_many_baskets_have_a_row_each(name):
    model = fitted(name)
    found, shares = model.slate(BASKETS[:4], N=8)
    for number, basket in enumerate(BASKETS[:4]):
        alone, own = model.slate(basket, N=8)
        assert [item for item in found[number] if item is not None] == alone.tolist()
        assert np.allclose(shares[number, : len(own)], own)
        assert not shares[number, len(own) :].any()
        assert not set(alone) & set(basket)


@every_dpp
def test_candidates_exclude_and_categories(name):
    model = fitted(name)
    assert set(model.slate(["b0"], candidates=["r1", "r2", "b0"], exclude=["r2"])[0]) == {"r1"}
    colors = {item: item[0] for item in model.items_}
    found = model.slate(["r0"], N=6, categories=colors, at_most=2)[0]
    assert sorted(item[0] for item in found) == ["b", "b", "r", "r"]
    found = model.slate(["r0"], N=6, categories=colors, at_most={"b": 1})[0]
    assert sorted(item[0] for item in found) == ["b", "r", "r", "r"]


def test_the_vocabulary_has_the_categories_if_it_has_them(tmp_path):
    items = cd.Vocabulary(["a", "b", "c"], categories={"a": "x", "b": "x"})
    model = cd.LowRankDPP.from_factors(np.eye(3), items=items)
    assert set(model.slate([], at_most=1)[0]) in ({"a", "c"}, {"b", "c"})
    model.save(tmp_path / "model")
    again = cd.load(tmp_path / "model")
    assert again.items_.categories == {"a": "x", "b": "x"}
    assert again.slate([], at_most=1)[0].tolist() == model.slate([], at_most=1)[0].tolist()
    assert again.condition(["c"]).items_.categories == {"a": "x", "b": "x"}
    plain = cd.LowRankDPP.from_factors(np.eye(3))
    with pytest.raises(ParameterError, match="at_most needs categories"):
        plain.slate([], at_most=1)


def test_attraction_belongs_to_relevance():
    """Two items that attract each other but are alike do not stand in one slate of two."""
    V = np.array([[1.0, 0.0], [1.0, 0.02], [0.0, 0.9]])
    S = np.zeros((3, 3))
    S[0, 1], S[1, 0] = 3.0, -3.0
    model = cd.NonsymmetricDPP.from_factors(V, S=S, items=["salt", "pepper", "tea"])
    assert "tea" in model.slate([], N=2, diversity=0.95)[0]
    assert set(model.complete([], 2)) == {"salt", "pepper"}


def test_bad_questions():
    model = fitted("lowrank-mle")
    with pytest.raises(UnknownItemError):
        model.slate(["r9"])
    assert len(model.slate(["r9"], unknown="ignore")[0]) == 8
    for options in ({"N": 0}, {"diversity": 2}, {"N": True}):
        with pytest.raises(ParameterError):
            model.slate([], **options)
    with pytest.raises(RankError):
        cd.LowRankDPP.from_factors(np.eye(4)[:, :2]).slate([0, 1])
    assert model.slate(RED, candidates=RED)[0].tolist() == []


def test_threads_change_nothing():
    rng = np.random.default_rng(0)
    V = rng.normal(size=(400, 10))
    baskets = [rng.permutation(400)[:4].tolist() for _ in range(150)]
    answers = []
    for jobs in (1, 2):
        model = cd.LowRankDPP.from_factors(V)
        model.n_jobs = jobs
        items, shares = model.slate(baskets)
        answers.append(items.tobytes() + shares.tobytes())
    assert answers[0] == answers[1]
