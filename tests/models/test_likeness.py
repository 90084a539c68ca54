"""What is alike in a slate, learned from half-hidden baskets."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.halves import hide
from contradpp.data.sets import EMPTY
from contradpp.errors import ModelFileError, ParameterError
from contradpp.models import likeness
from contradpp.models.likeness import Likeness, find_company, find_rivals


@cache
def shop() -> tuple[cd.Baskets, cd.Baskets]:
    return cd.datasets.load("grocer", n_baskets=6000, random_state=0).split(0.3, random_state=0)


@cache
def conditional() -> cd.ConditionalDPP:
    """With so many held-out baskets that what slates learn from them is not luck."""
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(8, 10, max_iter=5), n_jobs=1, random_state=0)
    return model.fit(shop()[0], validation=0.3)


def phi(model: cd.LowRankDPP) -> np.ndarray:
    R = model.likeness_.of_rows(np.arange(len(model.items_)))
    return R @ R.T


def test_rivals_are_items_that_meet_less_than_their_sales_let_expect():
    rng = np.random.default_rng(0)
    baskets = [[int(rng.integers(2)), *rng.choice(np.arange(2, 8), 2, replace=False).tolist()] for _ in range(1000)]
    sets = cd.Baskets.from_lists(baskets, items=range(8)).sets  # 0 and 1 never meet, the others do by chance
    found = find_rivals(sets, 8)
    assert found.codes.tolist() == [0, 1]
    n = [sum(item in basket for basket in baskets) for item in (0, 1)]
    expected = n[0] * n[1] * 6 * 1000 / 3000**2
    assert found.table[0] @ found.table[1] == pytest.approx(np.sqrt(1 - 1 / (expected + 1)), rel=1e-5)
    assert len(find_rivals(sets, 8).codes) == 2
    assert not len(find_rivals(cd.Baskets.from_lists([[0, 1]] * 50).sets, 2).codes)


def test_phi_is_a_mix_of_its_sources(monkeypatch):
    items = cd.Vocabulary("abcd", categories={"a": "x", "b": "x", "c": "y"})
    V = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [0.0, 0.0]])
    model = cd.LowRankDPP.from_factors(V, items=items)
    table = np.array([[0.6, 0.8], [1.0, 0.0]], dtype=np.float32)
    mixed = Likeness(0.2, 0.5, 0.0, 0.3, codes=np.array([1, 3]), table=table)
    R = mixed.vectors(model.kernel_, items).table
    found = R @ R.T
    assert found[0, 1] == pytest.approx(0.3)  # one shelf
    assert found[0, 2] == pytest.approx(0.2 * np.sqrt(0.5))
    assert found[1, 3] == pytest.approx(0.5 * 0.6)
    assert (np.diag(found) <= 1 + 1e-6).all()
    assert not Likeness().vectors(model.kernel_, items).table.any()
    company = Likeness(company=0.4, places=np.eye(4, 3, dtype=np.float32)[[0, 0, 1, 3]]).vectors(model.kernel_, items)
    assert (company.table @ company.table.T)[0, 1:].tolist() == pytest.approx([0.4, 0, 0])
    monkeypatch.setattr(likeness, "N_DIRECTIONS", 64)
    many = cd.Vocabulary(range(200), categories={item: str(item // 2) for item in range(199)})
    D = likeness._directions(many)
    assert D.shape == (200, 64)
    assert np.allclose(D[0] @ D[1], 1, atol=1e-5)
    assert abs(D[0] @ D[2]) < 0.6
    assert not D[199].any()


def test_company_is_being_bought_with_the_same_others():
    baskets = [[a, b] for a in "pq" for b in "xyz"] + [[a, b] for a in "rs" for b in "uvw"]  # p and q never meet
    data = cd.Baskets.from_lists(baskets * 5, items="pqrsxyzuvwn")
    places = find_company(data.sets, 11)
    alike = places @ places.T
    assert alike[0, 1] == pytest.approx(1, abs=1e-4)
    assert alike[2, 3] == pytest.approx(1, abs=1e-4)
    assert abs(alike[0, 2]) < 1e-3
    assert not places[10].any()  # was never bought
    assert not find_company(EMPTY, 11).any()


def samples(recall: float, hit: float, reached: float = np.nan) -> dict[str, np.ndarray]:
    """A hundred baskets: 0 and 1 in turn around a half, with this much more on average."""
    swing = np.tile([0.4, 0.6], 50)
    told = {"recall": (swing, recall), "hit": (swing, hit), "categories_hit": (0 * swing, reached)}
    return {name: base + gain for name, (base, gain) in told.items()}


def test_recall_is_not_for_sale_and_a_clear_gain_of_hits_goes_before_categories():
    top, dear = (Likeness(), samples(0, 0, 0)), (Likeness(rivals=1.0), samples(-0.1, 0.3, 5))
    varied, hits = (Likeness(categories=0.2), samples(0, 0, 2)), (Likeness(company=0.5), samples(0, 0.2, 1))
    assert likeness.best_for_hits([top, dear]) is top[0]
    assert likeness.best_for_hits([top, dear, varied]) is varied[0]
    assert likeness.best_for_hits([top, dear, varied, hits]) is hits[0]
    both = Likeness(company=0.2, categories=0.2), samples(0, 0.1, 1.5)
    assert likeness.best_for_hits([top, dear, varied, hits, both]) is both[0]
    unknown = [(one, {**told, "categories_hit": np.full(100, np.nan)}) for one, told in (top, both, hits, varied)]
    assert likeness.best_for_hits(unknown) is hits[0]


def test_variety_costs_little_recall_and_reaches_more_categories():
    model, (train, test) = conditional(), shop()
    settings = model.slate_settings_
    assert settings is not None
    assert settings["categories"] > 0
    assert model.default_diversity == settings["diversity"] >= 0.4
    varied = cd.evaluate_slates(model, test, train=train)
    top = cd.evaluate_slates(model, test, train=train, diversity=0)
    assert varied.difference(top, "categories_hit").low > 0
    assert varied.difference(top, "recall").low > -0.03 * top.recall


def test_a_learned_likeness_is_saved(tmp_path):
    model, test = conditional(), shop()[1]
    model.save(tmp_path / "model")
    again = cd.load(tmp_path / "model")
    assert again.slate_settings_ == model.slate_settings_
    for diversity in (None, 1.0):
        ours, theirs = (one.slate(test[:20], diversity=diversity) for one in (model, again))
        assert ours[0].tolist() == theirs[0].tolist()
        assert ours[1].tobytes() == theirs[1].tobytes()
    plain = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(len(test.items), 12)), items=test.items)
    assert plain.slate_settings_ is None
    assert plain.default_diversity == 0.3
    large = cd.Baskets.concat([test, cd.Baskets.from_lists([list(test.items)[:40]])])  # half of it is beyond the rank
    plain.learn_slates(large, train=shop()[0])
    plain.save(tmp_path / "plain")
    assert cd.load(tmp_path / "plain").slate_settings_ == plain.slate_settings_ is not None
    assert (phi(cd.load(tmp_path / "plain")) == phi(plain)).all()


@pytest.mark.parametrize("damage", [{"factors": 0.9, "rivals": 0.9}, {"rivals": None}, {"diversity": 7}])
def test_a_damaged_likeness_is_refused(tmp_path, monkeypatch, damage):
    model = conditional()
    monkeypatch.setattr(Likeness, "settings", model.slate_settings_ | damage)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="cannot be used"):
        cd.load(tmp_path / "model")


def test_updates_keep_it_and_a_new_fit_forgets_it():
    train, test = shop()
    model = cd.LowRankDPP(12, max_iter=2, random_state=0, n_jobs=1, oversize="drop").fit(train)
    model.learn_slates(test, train=train)
    learned = model.slate_settings_
    assert learned is not None
    model.partial_fit(test[:100])
    assert model.slate_settings_ == learned
    assert model.fit(train).slate_settings_ is None


def test_the_likeliest_setting_is_chosen():
    train, test = shop()
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(8, 10, max_iter=3), n_jobs=1, random_state=0).fit(train)
    model.learn_slates(test, train=train, criterion="likelihood")
    assert model.slate_settings_["categories"] == 0
    assert model.default_diversity == 0.5
    halves = hide(test, random_state=0)
    few = np.arange(100)
    given, hidden = (half.subset(few) for half in halves)
    alone = model.score_slates(given, hidden, alike=False).mean()
    assert model.score_slates(given, hidden).mean() >= alone - 0.05


def test_too_few_baskets_change_nothing_and_bad_words_are_refused():
    train, test = shop()
    model = cd.LowRankDPP.from_factors(np.eye(len(train.items))[:, :30], items=train.items)
    assert model.learn_slates(test[:20]).slate_settings_ is None
    with pytest.raises(ParameterError, match="criterion"):
        model.learn_slates(test, criterion="best")
    with pytest.raises(ParameterError, match="k must"):
        model.learn_slates(test, k=0)
    small = cd.ConditionalDPP(cd.NonsymmetricDPP(2, 2, max_iter=1), n_jobs=1).fit([["a", "b"], ["b", "c"]] * 10)
    assert small.slate_settings_ is None


def test_threads_change_nothing():
    train, test = shop()
    found = []
    for jobs in (1, 2):
        model = cd.LowRankDPP.from_factors(
            np.random.default_rng(0).normal(size=(len(train.items), 30)), items=train.items
        )
        model.n_jobs = jobs
        found.append((model.learn_slates(test, train=train).slate_settings_, phi(model).tobytes()))
    assert found[0] == found[1]
