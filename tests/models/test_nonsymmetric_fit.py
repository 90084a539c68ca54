"""Learning a kernel whose items attract: what it must find, and the habits that all estimators share."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import contradpp as cd
from contradpp.errors import DataError, ParameterError


def pairs_shop(seed: int = 0, n: int = 1500) -> cd.Baskets:
    """Tea goes with milk and pasta with sauce; tea and coffee are never bought together; salt is bought with all."""
    rng = np.random.default_rng(seed)
    kinds = (["tea", "milk"], ["coffee", "milk"], ["pasta", "sauce"], ["salt"])
    baskets = []
    for _ in range(n):
        basket = list(kinds[rng.choice(4, p=[0.3, 0.3, 0.3, 0.1])])
        if rng.random() < 0.2 and "salt" not in basket:
            basket.append("salt")
        baskets.append(basket)
    return cd.Baskets.from_lists(baskets)


@pytest.fixture(scope="module")
def fitted() -> cd.NonsymmetricDPP:
    return cd.NonsymmetricDPP(4, 4, random_state=0).fit(pairs_shop())


def test_learns_attraction_that_a_symmetric_kernel_cannot(fitted: cd.NonsymmetricDPP):
    assert fitted.recommend(["pasta"], N=1)[0].tolist() == ["sauce"]
    assert fitted.recommend(["tea"], N=1)[0].tolist() == ["milk"]
    assert fitted.complements("sauce", N=1)[0].tolist() == ["pasta"]
    test = pairs_shop(1)
    symmetric = cd.LowRankDPP(4, objective="exact", random_state=0).fit(pairs_shop())
    ours, theirs = (cd.evaluate(model, test, ks=(1,), min_size=2) for model in (fitted, symmetric))
    assert ours.precision[1] > theirs.precision[1] + 10
    assert ours.mpr > theirs.mpr + 5


def test_training_raises_the_validation_score(fitted: cd.NonsymmetricDPP):
    scores = [entry["validation"] for entry in fitted.history_]
    assert max(scores) > scores[0]


def test_calibration_sets_the_expected_size(fitted: cd.NonsymmetricDPP):
    assert fitted.marginals().sum() == pytest.approx(pairs_shop().sizes.mean(), rel=0.1)


def test_same_bytes_for_any_number_of_threads():
    shop = pairs_shop(n=300)
    one, two = (cd.NonsymmetricDPP(4, 4, max_iter=3, n_jobs=n, random_state=3).fit(shop) for n in (1, 2))
    assert one.item_factors_.tobytes() == two.item_factors_.tobytes()
    assert one.skew_.data.tobytes() == two.skew_.data.tobytes()


def test_saved_and_loaded_is_the_same(fitted: cd.NonsymmetricDPP, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    again = cd.load(tmp_path / "model.safetensors")
    assert isinstance(again, cd.NonsymmetricDPP)
    np.testing.assert_array_equal(again.predict_next(["tea"]), fitted.predict_next(["tea"]))


def test_partial_fit_learns_on_with_new_items(fitted: cd.NonsymmetricDPP, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    model = cd.load(tmp_path / "model.safetensors")
    before = model.score_samples([["tea", "milk"]])[0]
    model.partial_fit([["cocoa", "milk"]] * 50, negatives=[["tea", "milk"]] * 50, n_iter=2)
    assert "cocoa" in model.items_
    assert model.score_samples([["tea", "milk"]])[0] < before


@pytest.mark.parametrize("objective", ["dynamic", "mle"])
def test_other_objectives_learn_attraction_too(objective: str):
    model = cd.NonsymmetricDPP(4, 4, objective=objective, max_iter=30, random_state=0).fit(pairs_shop())
    assert model.recommend(["pasta"], N=1)[0].tolist() == ["sauce"]
    assert max(entry["validation"] for entry in model.history_) > model.history_[0]["validation"]


def test_likelihood_of_a_large_catalogue_is_refused():
    shop = cd.Baskets.from_lists([[i, i + 1] for i in range(2500)] * 3)
    with pytest.raises(ParameterError, match="2,000 items"):
        cd.NonsymmetricDPP(4, 4, objective="mle").fit(shop)


@pytest.mark.parametrize("wrong", [{"objective": "softmax"}, {"dropout": 1.0}, {"dropout": -0.1}, {"n_skew": -1}])
def test_wrong_parameters_are_named(wrong: dict):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        cd.NonsymmetricDPP(4, **{"n_skew": 4, **wrong}).fit(pairs_shop(n=60))


@pytest.mark.parametrize("size", [1, 2])
def test_pairs_that_never_sold_twice_give_no_partners_in_large_catalogues_either(monkeypatch, size):
    monkeypatch.setattr("contradpp.learn.state.INVERTIBLE", 5)
    baskets = [list(range(n, n + size)) for n in range(0, 20, size)]
    model = cd.NonsymmetricDPP(2, 2, max_iter=1, n_jobs=1, random_state=0).fit(baskets)
    assert not model.skew_.nnz


def test_a_kernel_that_only_repels_is_no_worse_than_popularity():
    """Items that go together leave it nothing to say: steps by chance must not cost it what popularity knows."""
    rng = np.random.default_rng(1)
    share, rate = 1.0 / np.arange(4, 304), rng.gamma(1.0, size=(8000, 1))  # some buy much of everything, some little
    rows = rng.random((8000, 300)) < np.minimum(rate * share, 0.9)
    shop = cd.Baskets.from_lists([np.flatnonzero(row).tolist() for row in rows if row.any()])
    train, test = shop.split(0.5, random_state=1)
    model, popularity = cd.NonsymmetricDPP(4, 0, objective="mle", random_state=1), cd.baselines.Popularity()
    ours, theirs = (one.fit(train).score_samples(test, unknown="ignore") for one in (model, popularity))
    assert (ours - theirs).mean() > -0.005
    assert model.marginals().sum() == pytest.approx(train.sizes.mean(), rel=1e-3)  # of all baskets, not some


def test_where_items_avoid_each_other_it_is_better_than_popularity():
    rng = np.random.default_rng(0)
    pairs = [
        [int(rng.choice([2 * kind, 2 * kind + 1])) for kind in range(5) if rng.random() < 0.6] for _ in range(3000)
    ]
    train, test = cd.Baskets.from_lists(pairs).split(0.5, random_state=0)
    model = cd.NonsymmetricDPP(6, 0, objective="mle", random_state=0).fit(train)
    popularity = cd.baselines.Popularity().fit(train)
    assert model.score_samples(test).mean() > popularity.score_samples(test).mean() + 0.3


@pytest.mark.parametrize("objective", ["exact", "mle", "dynamic"])
@pytest.mark.parametrize("n_skew", [0, 3])
@pytest.mark.parametrize(
    ("baskets", "items"),
    [([[1]] * 60, [1]), ([[1, 2], [2, 3]] * 30, range(6)), ([[1, 2, 3, 4]] * 60, range(1, 5))],
    ids=["one item", "items without a sale", "every basket is the catalogue"],
)
def test_edges_of_a_catalogue(objective, n_skew, baskets, items):
    """A law over the whole catalogue, finite everywhere, since there is a diagonal."""
    given = cd.Baskets.from_lists(baskets, items=items)
    model = cd.NonsymmetricDPP(2, n_skew, objective=objective, max_iter=3, random_state=0).fit(given)
    assert (model.kernel_.diagonal > 0).all()
    logs = model.score_samples([[], list(items)])
    assert np.isfinite(logs).all()
    assert model.score_samples(baskets[:1])[0] > logs[0]
    whole = model.recommend(list(items), N=3)[0]
    assert len(whole) == 0


# -- Baskets of very many items --------------------------------------------------------------------------


def with_excess() -> cd.Baskets:
    """The shop, and a basket of 700 items that no other basket has."""
    return cd.Baskets.from_lists([*pairs_shop(n=60), [*range(700)]])


@pytest.mark.parametrize("kind", [cd.NonsymmetricDPP, cd.ConditionalDPP])
def test_of_an_enormous_basket_500_items_are_learned_from(kind: type, caplog: pytest.LogCaptureFixture):
    baskets = with_excess()
    kernel = cd.NonsymmetricDPP(2, max_iter=1, random_state=0)
    model = kernel if kind is cd.NonsymmetricDPP else cd.ConditionalDPP(kernel, random_state=0)
    whole, cut = (copy.deepcopy(model).fit(data) for data in (baskets, baskets.draw(500)))
    assert caplog.text.count("1 of 61 baskets have more than 500 items (the largest has 700)") == 1
    assert whole.dpp.kernel.factors.tobytes() == cut.dpp.kernel.factors.tobytes()
    assert whole.item_counts_.sum() == cut.item_counts_.sum() <= 120 * 2 + 500
    caplog.clear()
    whole.partial_fit([[*range(600)]])
    assert caplog.text.count("have more than 500 items (the largest has 600)") == 1


def test_enormous_sets_that_should_become_unlikely_are_left_out(caplog: pytest.LogCaptureFixture):
    """A part of one may well be liked."""
    shop, large, quick = pairs_shop(n=60), [*range(600)], {"max_iter": 1, "random_state": 0}
    plain = cd.NonsymmetricDPP(2, **quick).fit(shop.recode(with_excess().items))
    told = cd.NonsymmetricDPP(2, **quick).fit(shop.recode(with_excess().items), negatives=[large])
    assert caplog.text.count("1 sets that should become unlikely have more than 500 items") == 1
    np.testing.assert_array_equal(told.item_factors_, plain.item_factors_)
    label = np.append(np.ones(60), -1.0)
    caplog.clear()
    cd.NonsymmetricDPP(2, **quick).fit(with_excess(), sample_weight=label)
    assert caplog.text.count("1 sets that should become unlikely have more than 500 items") == 1


def test_the_users_own_validation_may_have_an_enormous_basket():
    shop = pairs_shop(n=60).recode(with_excess().items)
    large, cut = (
        cd.NonsymmetricDPP(2, max_iter=1, random_state=0).fit(shop, validation=held)
        for held in (with_excess(), with_excess().draw(500))
    )
    assert large.history_[-1]["validation"] == cut.history_[-1]["validation"]


# -- Data that say next to nothing -----------------------------------------------------------------------


def test_labels_may_be_as_far_apart_as_numbers_can_be():
    """Pairs of items that weigh next to nothing: the product of their weights is zero to rounding."""
    shop = pairs_shop(n=20)
    label = np.where([("tea" in basket) for basket in shop], 1.0, 1e-280)
    model = cd.NonsymmetricDPP(2, max_iter=1, random_state=0).fit(shop, sample_weight=label)
    assert np.isfinite(model.item_factors_).all()
    assert np.isfinite(model.skew_.data).all()


@pytest.mark.parametrize("objective", ["mle", "nce", "product", "exact"])
def test_baskets_without_any_item(objective: str):
    with pytest.raises(DataError, match="learn from"):
        cd.NonsymmetricDPP(2, objective=objective).fit([[], [], []])


def test_a_conditional_model_says_before_any_work_that_all_baskets_are_disliked():
    class Watching(cd.callbacks.Callback):
        def on_start(self, *_: object) -> None:
            raise AssertionError("training has begun")

    with pytest.raises(DataError, match="above zero"):
        cd.ConditionalDPP().fit([["a", "b"]] * 9, sample_weight=-np.ones(9), callbacks=[Watching()])
