"""What is alike in a slate: interchangeable items, similar names, equal categories."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.sets import EMPTY
from contradpp.errors import ModelFileError
from contradpp.slates import similarity
from contradpp.slates.similarity import WEIGHTS, Company, Similarity, word_vectors, words_of


@cache
def shop() -> tuple[cd.Baskets, cd.Baskets]:
    return cd.datasets.load("grocer", n_baskets=6000, random_state=0).split(0.3, random_state=0)


@cache
def conditional() -> cd.ConditionalDPP:
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(8, 10, max_iter=5), n_jobs=1, random_state=0)
    return model.fit(shop()[0])


def phi(model: cd.LowRankDPP) -> np.ndarray:
    R = model.similarity_.of_rows(np.arange(len(model.items_)))
    return R @ R.T


def breakfasts(n: int = 1500) -> cd.Baskets:
    """One of two teas with a cake or a jam, of which there are two each; and evenings of beer with crisps or nuts."""
    rng = np.random.default_rng(0)
    kinds = [("tea bags", "loose tea"), ("plum cake", "apple pie"), ("jam", "honey")]
    mornings = [[pair[rng.integers(2)] for pair in kinds if rng.random() < 0.8] for _ in range(n)]
    evenings = [["beer", *(one for one in ("crisps", "nuts", "olives") if rng.random() < 0.6)] for _ in range(n)]
    return cd.Baskets.from_lists([basket for basket in mornings + evenings if basket])


def test_substitutes_avoid_each_other_and_keep_the_same_company():
    baskets = breakfasts()
    items = baskets.items
    found = Company.of(baskets.sets, len(items)).substitutes(items)
    named = {items[code]: [items[one.code] for one in several] for code, several in found.items()}
    pairs = {"tea bags": "loose tea", "plum cake": "apple pie", "jam": "honey"}
    assert named == {one: [other] for pair in pairs.items() for one, other in (pair, pair[::-1])}
    assert all(one.ratio == 0 and 0 < one.upper < 0.5 for several in found.values() for one in several)


def test_unrelated_items_have_no_substitutes():
    rng = np.random.default_rng(0)
    baskets = cd.Baskets.from_lists([rng.permutation(30)[:4].tolist() for _ in range(3000)])
    assert Company.of(baskets.sets, 30).substitutes(baskets.items) == {}
    assert Company.of(EMPTY, 3).substitutes(cd.Vocabulary("abc")) == {}


def test_what_never_meets_needs_a_common_kind_to_be_a_substitute():
    """Morning and evening items never meet, and are no substitutes unless their names or categories say so."""
    baskets = breakfasts()
    jam, beer = baskets.items.code("jam"), baskets.items.code("beer")

    def replaces(**labels: dict[str, str]) -> bool:
        items = cd.Vocabulary(list(baskets.items), **labels)
        found = Company.of(baskets.sets, len(items)).substitutes(items)
        return beer in {one.code for one in found.get(jam, [])}

    assert not replaces()
    assert replaces(categories={"jam": "jars", "beer": "jars"})
    assert replaces(names={"jam": "Hops, red", "beer": "Hops, green", "tea bags": "red and green tea"})


def test_expected_counts_give_every_item_its_own_number_of_meetings():
    baskets = shop()[0]
    company = Company.of(baskets.sets, baskets.n_items)
    assert (company.together.sum(axis=1) > 0).all()
    expected = company.expected - np.diag(np.diag(company.expected))
    assert expected.sum(axis=1) == pytest.approx(company.together.sum(axis=1), rel=1e-3)
    assert (np.abs(company.correlation) <= 1 + 1e-9).all()
    assert (company.correlation == company.correlation.T).all()


def test_interchangeable_items_have_near_vectors():
    baskets = breakfasts()
    company = Company.of(baskets.sets, baskets.n_items)
    R = company.vectors()
    place = {baskets.items[code]: row for row, code in enumerate(company.codes.tolist())}
    same, other = R[place["jam"]] @ R[place["honey"]], R[place["jam"]] @ R[place["tea bags"]]
    assert same > 0.3
    assert abs(other) < 0.3
    lengths = np.linalg.norm(R, axis=1)
    assert (np.isclose(lengths, 1) | (lengths == 0)).all()


def test_names_are_near_if_they_share_rare_words():
    assert words_of("Alarm CLOCK, bakelike; 2 clocks") == ["alarm", "bakelike", "clock"]
    names = {0: "ALARM CLOCK RED", 1: "alarm clock green", 2: "lamp red", 3: "lamp green", 4: "red bag", 5: "green bag"}
    R = word_vectors(cd.Vocabulary(range(7), names=names))
    assert R[0] @ R[1] > 0.6
    assert R[0] @ R[1] > R[0] @ R[2] + 0.3
    assert not R[6].any()


def test_phi_is_a_mix_of_its_sources():
    items = cd.Vocabulary("abcd", names={"a": "pear", "c": "pear"}, categories={"a": "x", "b": "x", "c": "y"})
    table = np.zeros((2, 128), dtype=np.float32)
    table[:, 0] = 1.0
    R = Similarity(np.array([1, 3]), table).vectors(items).table
    found = R @ R.T
    assert found[1, 3] == pytest.approx(WEIGHTS["interchange"], rel=1e-5)
    assert found[0, 1] == pytest.approx(WEIGHTS["categories"], rel=1e-5)
    assert found[0, 2] == pytest.approx(WEIGHTS["words"], abs=0.03)
    assert (np.diag(found) <= 1 + 1e-6).all()
    assert sum(WEIGHTS.values()) <= 1


def test_variety_costs_little_recall_and_most_slates_change():
    model, (train, test) = conditional(), shop()
    varied = cd.evaluate_slates(model, test, train=train)
    top = cd.evaluate_slates(model, test, train=train, diversity=0)
    assert varied.difference(top, "recall").low > -0.04 * top.recall
    changed = [set(ours) != set(theirs) for ours, theirs in zip(varied.slates, top.slates, strict=True)]
    assert np.mean(changed) > 0.6


def test_a_learned_similarity_is_saved(tmp_path):
    model, test = conditional(), shop()[1]
    model.save(tmp_path / "model")
    again = cd.load(tmp_path / "model")
    for diversity in (None, 1.0):
        ours, theirs = (one.slate(test[:20], diversity=diversity) for one in (model, again))
        assert ours[0].tolist() == theirs[0].tolist()
        assert ours[1].tobytes() == theirs[1].tobytes()
    plain = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(len(test.items), 12)), items=test.items)
    before = phi(plain)
    plain.learn_slates(shop()[0]).save(tmp_path / "plain")
    assert (phi(cd.load(tmp_path / "plain")) == phi(plain)).all()
    assert not np.allclose(phi(plain), before)


def test_a_damaged_similarity_is_refused(tmp_path, monkeypatch):
    model = conditional()
    damaged = Similarity(np.array([len(model.items_)]), np.zeros((1, 128), dtype=np.float32))
    monkeypatch.setattr(model, "_similarity", damaged)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="cannot be used"):
        cd.load(tmp_path / "model")


def test_updates_keep_it_and_a_new_fit_forgets_it():
    train, test = shop()
    model = cd.LowRankDPP(12, max_iter=2, random_state=0, n_jobs=1, oversize="drop").fit(train)
    model.learn_slates(train)
    learned = phi(model)
    model.partial_fit(test[:100])
    assert (phi(model) == learned).all()
    assert phi(model.fit(train)).shape == learned.shape
    assert not np.allclose(phi(model), learned)


def test_few_baskets_teach_nothing(monkeypatch):
    baskets = cd.Baskets.from_lists([["a", "b"], ["b", "c"]] * 3)
    model = cd.LowRankDPP.from_factors(np.eye(3), items=baskets.items).learn_slates(baskets)
    assert not phi(model).any()
    monkeypatch.setattr(similarity, "LEAST_SALES", 1)
    assert np.isfinite(phi(model.learn_slates(baskets))).all()


def test_threads_change_nothing():
    train = shop()[0]
    found = []
    for jobs in (1, 2):
        model = cd.LowRankDPP.from_factors(np.eye(len(train.items)), items=train.items)
        model.n_jobs = jobs
        found.append(phi(model.learn_slates(train)).tobytes())
    assert found[0] == found[1]
    assert similarity.WEIGHTS["interchange"] > 0
