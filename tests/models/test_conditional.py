"""The conditional DPP from the outside: what it learns from, what it says and why, and what it refuses."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import contradpp as cd
from contract import BASKETS, BLACK, FAST, RED, answers, checkerboard, fitted
from contradpp.errors import DataError, ModelFileError, NotFittedError, ParameterError, RankError, UnknownItemError
from contradpp.experts.table import DEFAULT_EXPERTS, EXPERTS, KERNEL
from contradpp.learn.callbacks import Callback
from contradpp.models import conditional
from contradpp.models.combination import NEUTRAL_TEMPERATURE

ITEMS = RED + BLACK


def small(*experts: object, **params: object) -> cd.ConditionalDPP:
    """A model that learns in a moment."""
    kernel = cd.NonsymmetricDPP(5, 4, **FAST)
    return cd.ConditionalDPP(kernel, experts or DEFAULT_EXPERTS, n_jobs=1, random_state=0, **params)


class Favorite:
    """A model of the user's: one item, whatever the basket holds, over a catalogue of its own."""

    def __init__(self, item: str, items: list[str]) -> None:
        self.item, self.items_ = item, items

    def predict_next(self, baskets: cd.Baskets) -> np.ndarray:
        """Nearly all for one item."""
        shares = np.full((len(baskets), len(self.items_)), 1e-3)
        shares[:, self.items_.index(self.item)] = 1.0
        return shares


class Counts:
    """A model of the user's that is not fitted yet: it counts."""

    def fit(self, baskets: cd.Baskets) -> Counts:
        """Count items."""
        self.items_ = baskets.items
        self.shares = baskets.item_counts / baskets.item_counts.sum()
        return self

    def predict_next(self, baskets: cd.Baskets) -> np.ndarray:
        """The same for all."""
        return np.tile(self.shares, (len(baskets), 1))


# -- Learning --------------------------------------------------------------------------------------------


class Interrupt(Callback):
    """Ctrl-C before the first round, or after a later one."""

    def __init__(self, when: int) -> None:
        self.when = when

    def on_start(self, n_sets, max_iter, model):
        self.on_iteration({"iteration": 0}, None)

    def on_iteration(self, record, best):
        if record["iteration"] == self.when:
            raise KeyboardInterrupt


def test_an_interrupt_before_the_first_round_is_an_end(monkeypatch):
    """All experts were learned, and half a minute of kernels compiled, for a model that was then thrown away."""
    model = copy.deepcopy(fitted("conditional"))
    before = answers(model)
    monkeypatch.setattr(conditional, "fit_combination", lambda *_: 1 / 0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(checkerboard(), callbacks=[Interrupt(0)])
    assert answers(model) == before


def test_an_interrupt_while_voices_are_learned_loses_nothing(monkeypatch):
    """The trained kernel was lost, and the command said that no round had been finished."""
    fit, interrupts = conditional.fit_combination, [KeyboardInterrupt()]

    def interrupted(*args):
        if interrupts:
            raise interrupts.pop()
        fit(*args)

    monkeypatch.setattr(conditional, "fit_combination", interrupted)
    model = small()
    with pytest.raises(KeyboardInterrupt):
        model.fit(checkerboard())
    assert answers(model) == answers(small().fit(checkerboard()))


def test_voices_learn_from_all_baskets_and_the_kernel_from_nine_tenths():
    model = fitted("conditional")
    assert set(model.experts_) == set(EXPERTS)
    assert model.baskets_.n_baskets == model.n_baskets_ == 420
    np.testing.assert_array_equal(model.experts_["popularity"].item_counts_, checkerboard().item_counts)
    np.testing.assert_array_equal(model.item_counts_, checkerboard().item_counts)
    assert model.kernel_.n_baskets_ == 378
    assert set(model.weights_) == {
        "popularity",
        "ridge:0",
        "ridge:1",
        "item_knn_share",
        "item_knn_cosine",
        "basket_knn",
        "loglinear",
        KERNEL,
    }
    assert model.n_iter_ == model.kernel_.n_iter_ > 0


def test_it_is_better_than_each_of_its_voices():
    train, test = cd.datasets.load("grocer").split(0.3, random_state=0)
    train, test = train[:1500], test[:600]
    model = cd.ConditionalDPP(random_state=0).fit(train)
    own = cd.evaluate(model, test, min_size=2)
    assert own.log_likelihood == pytest.approx(cd.evaluate(model.kernel_, test, min_size=2).log_likelihood)
    for expert in (*model.experts_.values(), model.kernel_):
        assert own.ndcg > cd.evaluate(expert, test, min_size=2).ndcg - 0.002, expert


def test_evaluation_is_that_of_predict_next():
    model, test = fitted("conditional"), checkerboard()[:60]
    fast = cd.evaluate(model, test, min_size=1)

    class Asked:
        items_ = model.items_

        def predict_next(self, baskets: cd.Baskets) -> np.ndarray:
            return model.predict_next(baskets)

    slow = cd.evaluate(Asked(), test, min_size=1)
    assert fast.mpr == pytest.approx(slow.mpr, abs=1e-9)
    assert fast.ndcg == pytest.approx(slow.ndcg, abs=1e-9)


def test_a_basket_is_completed_by_the_next_items_of_the_model():
    model = fitted("conditional")
    basket = [RED[0]]
    while len(basket) < 4:
        basket.append(model.recommend(basket, N=1)[0][0])
    assert model.complete(basket[:1], 4) == basket
    assert model.complete(RED[:1], 2, candidates=BLACK)[1] in BLACK
    with pytest.raises(RankError, match="no other item may join these 2"):
        model.complete(RED[:1], 3, candidates=BLACK[:1])


def test_an_empty_basket_is_a_matter_of_the_kernel():
    model = fitted("conditional")
    np.testing.assert_allclose(model.predict_next([]), model.kernel_.predict_next([]), rtol=1e-12)


def test_baskets_of_one_item_leave_the_kernel_alone():
    model = small().fit([["a"], ["b"], ["a"], ["c"]] * 10)
    assert model.weights_[KERNEL] == (1.0, 0.0)
    np.testing.assert_allclose(model.predict_next(["a"]), model.kernel_.predict_next(["a"]), rtol=1e-6)
    assert small().fit([["a", "b"]]).predict_next(["a"]).tolist() == [0, 1]


def test_validation_baskets_of_the_user():
    train, held = checkerboard()[:300], checkerboard()[300:]
    model = small().fit(train, validation=held)
    assert model.baskets_.n_baskets == 420
    assert model.kernel_.n_baskets_ == 300
    assert small().fit(train, validation=0.5).kernel_.n_baskets_ == 150


def test_labels_are_for_the_kernel_and_voices_learn_from_those_above_zero():
    weights = np.ones(420)
    weights[:200] = -0.1
    weights[200:210] = 0
    model = small().fit(checkerboard(), sample_weight=weights)
    assert model.baskets_.n_baskets == 210


def test_updates_go_on():
    model = copy.deepcopy(fitted("conditional"))
    before = model.weights_
    news = [["r0", "new"], ["b0", "new", "r1"], ["r2", "b1"], ["r3", "b2"]] * 5
    model.partial_fit(news)
    assert model.n_updates_ == 1
    assert "new" in model.items_
    assert model.n_baskets_ == 440
    assert model.experts_["popularity"].item_counts_[model.items_.code("new")] == 10
    assert model.predict_next(["r0"]).shape == (9,)
    assert model.predict_next(["b0", "r1"])[model.items_.code("new")] > 0
    moved = max(abs(model.weights_[name][0] - before[name][0]) for name in before)
    assert 0 < moved < 1  # little news moves θ a little
    model.partial_fit(negatives=[["r0", "r1"]])
    assert model.n_baskets_ == 440


def test_a_refused_update_changes_nothing():
    model = copy.deepcopy(fitted("conditional"))
    with pytest.raises(ParameterError):
        model.partial_fit([["r0", "b0"]], sample_weight=[np.nan])
    assert answers(model) == answers(fitted("conditional"))


# -- Experts of the user's ------------------------------------------------------------------------------------


def test_a_voice_of_the_users_with_another_catalogue():
    model = small("popularity", Favorite("b3", ["b3", "x", "r0"])).fit(checkerboard())
    assert "Favorite" in model.weights_
    model._combination.weights.theta[:] = 0
    model._combination.weights.theta[0, 1] = 5.0
    assert model.recommend(["r0"], N=1)[0].tolist() == ["b3"]
    probabilities = model.predict_next(BASKETS)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_voices_that_are_not_fitted_are_fitted_and_names_do_not_collide():
    own, knn = Counts(), cd.baselines.ItemKNN(weights="bm25")
    model = small(own, Counts(), knn).fit(checkerboard())
    assert list(model.experts_) == ["Counts", "Counts2", "ItemKNN"]
    assert not hasattr(own, "items_")  # what was given stays as it was
    assert not hasattr(knn, "items_")
    explained = model.explain(["r0", "b1"], "b0")
    assert explained.log_probability == pytest.approx(np.log(model.predict_next(["r0", "b1"])[ITEMS.index("b0")]))


def test_baselines_among_the_voices_are_saved_and_others_are_refused(tmp_path):
    model = small("ridge", cd.baselines.EASE(regularization=5.0)).fit(checkerboard())
    model.save(tmp_path / "m")
    again = cd.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_next(BASKETS), model.predict_next(BASKETS))
    assert again.experts_["EASE"].regularization == 5.0
    assert again.experts[0] == "ridge"
    again.fit(checkerboard())
    other = small(Counts()).fit(checkerboard())
    with pytest.raises(ModelFileError, match="'Counts'"):
        other.save(tmp_path / "n")
    assert not (tmp_path / "n").exists()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(other)).predict_next(["r0"]), other.predict_next(["r0"]))


def test_a_loaded_model_goes_on(tmp_path):
    model = fitted("conditional")
    model.save(tmp_path / "m")
    again = cd.load(tmp_path / "m")
    assert again.weights_ == model.weights_
    assert again.baskets_ == model.baskets_
    copied = copy.deepcopy(model)
    for one in (again, copied):
        one.kernel.random_state = one.kernel_.random_state = 0
        one.partial_fit([["r0", "b0"]] * 3)
    np.testing.assert_allclose(again.predict_next(BASKETS), copied.predict_next(BASKETS), rtol=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        {"theta": np.zeros((3, 3))},
        {"theta": np.zeros((2, 7))},
        {"theta": np.ones((3, 7), dtype=bool)},
        {"expert.ridge.columns": None},
        {"expert.ridge.values": None},
        {"expert.ridge.columns": np.full(1, 99, dtype=np.int32)},
        {"baskets.indices": np.array([99], dtype=np.int32)},
    ],
)
def test_files_that_do_not_fit_together_are_refused(tmp_path, change):
    from contradpp.dpp import files as persist

    fitted("conditional").save(tmp_path / "m")
    tensors, info = persist.read_model(tmp_path / "m")
    for name, value in change.items():
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
    persist.write_model(tmp_path / "m", tensors, info)
    with pytest.raises(ModelFileError):
        cd.load(tmp_path / "m")


def test_an_item_that_was_only_ever_refused_is_known():
    """It was in the kernel and in no other expert: fit ended in an error about shapes."""
    refused = [["r0", "never bought"]]
    model = small().fit(checkerboard(), negatives=refused)
    assert list(model.items_)[-1] == "never bought"
    assert model.predict_next(["r0"]).sum() == pytest.approx(1)
    later = small().fit(checkerboard()).partial_fit(negatives=refused)
    assert later.predict_next(["never bought"]).shape == (len(model.items_),)


# -- Explanations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("basket", [["r0"], ["r1", "b2"], ["r0", "r2", "b1"], []])
def test_explanations_add_up(basket):
    model = fitted("conditional")
    shares = model.predict_next(basket)
    normalizers = set()
    for item in set(ITEMS) - set(basket):
        explained = model.explain(basket, item)
        assert explained.log_probability == pytest.approx(np.log(shares[ITEMS.index(item)]), abs=1e-9)
        assert explained.basket == basket
        assert sum(explained.by_item.values()) == pytest.approx(sum(explained.by_expert.values()), abs=1e-9)
        normalizers.add(round(explained.log_normalizer, 8))
    assert len(normalizers) == 1  # the same for all items: the parts are those of the logits


def test_several_items_are_explained_as_each_alone():
    model = fitted("conditional")
    for explained, item in zip(model.explain_each(["r0", "b1"], ["b0", "r2"]), ["b0", "r2"], strict=True):
        alone = model.explain(["r0", "b1"], item)
        assert explained.item == item
        np.testing.assert_allclose(explained.parts, alone.parts, atol=1e-12)
        assert explained.log_normalizer == pytest.approx(alone.log_normalizer, rel=1e-12)
    assert model.explain_each(["r0"], []) == []
    with pytest.raises(DataError, match="in the basket"):
        model.explain_each(["r0"], ["b0", "r0"])


def test_the_item_that_goes_with_it_is_the_reason():
    explained = fitted("conditional").explain(["r0", "b1"], "b0")
    assert next(iter(explained.by_item)) == "r0"
    with pytest.raises(DataError, match="in the basket"):
        fitted("conditional").explain(["r0"], "r0")
    with pytest.raises(UnknownItemError):
        fitted("conditional").explain(["r0"], "z")


# -- Bad input and parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: small("magic"), "'magic'"),
        (lambda: cd.ConditionalDPP(experts="ridge"), "sequence"),
        (lambda: small(3), "predict_next"),
        (lambda: cd.ConditionalDPP(kernel="x"), "kernel must be"),
    ],
)
def test_parameters_that_cannot_be_used(make, match):
    with pytest.raises(ParameterError, match=match):
        make().fit(checkerboard())


def test_what_fit_refuses():
    for wrong in ({"validation": 1.5}, {"validation": "x"}, {"engine": "ray"}):
        with pytest.raises((ParameterError, DataError)):
            small().fit(checkerboard(), **wrong)
    with pytest.raises(DataError):
        small().fit([])
    with pytest.raises(NotFittedError):
        small().explain(["a"], "b")


def test_parameters_of_the_kernel():
    model = small()
    assert model.get_params()["kernel__alpha"] == FAST["alpha"]
    assert "kernel__alpha" not in model.get_params(deep=False)
    model.set_params(kernel__alpha=0.7, n_jobs=2)
    assert model.kernel.alpha == 0.7
    assert cd.ConditionalDPP().set_params(kernel__n_clusters=3).kernel.n_clusters == 3
    nested = cd.ConditionalDPP().set_params(kernel__kernel__n_components=3)
    assert nested.kernel.kernel.n_components == 3
    base = pytest.importorskip("sklearn.base")
    clone = base.clone(model)
    assert clone.kernel is not model.kernel
    assert clone.get_params()["kernel__alpha"] == 0.7


def test_weights_are_learned_from_what_was_refused_where_that_is_known():
    """Popular items are offered and refused all the time: among what was offered, popularity speaks against an item."""
    rng = np.random.default_rng(0)
    chosen = [[f"rare{rng.integers(6)}", f"odd{rng.integers(6)}"] for _ in range(300)]
    offered = [[*basket, "star", "hit"] for basket in chosen]
    orders = [["star", "hit"]] * 200
    plain = cd.Baskets.from_lists(chosen + orders)
    seen = cd.Baskets.from_lists(chosen + orders, offered=offered + [[]] * 200)
    kernel = cd.NonsymmetricDPP(2, 2, max_iter=3)
    without, explained = (cd.ConditionalDPP(kernel, random_state=0).fit(data) for data in (plain, seen))
    among = ["star", "hit", "rare0"]
    ranks = [list(model.recommend(["odd0"], 3, candidates=among)[0]).index("rare0") for model in (without, explained)]
    assert ranks[1] <= ranks[0]
    scores = [model.predict_next(["odd0"])[model.items_.code("star")] for model in (without, explained)]
    assert scores[1] < scores[0]
    before = explained.weights_
    explained.partial_fit(seen.subset(np.arange(50)))
    assert explained.weights_ != before


def test_few_baskets_say_little_of_how_loud_voices_are_and_more_say_more():
    shop = cd.datasets.load("grocer", n_baskets=1500, random_state=0)
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(8, 10, max_iter=2), n_jobs=1, random_state=0)
    model.fit(shop.subset(range(40)))
    sets = shop.subset(range(1400, 1500)).recode(model.items_, unknown="ignore").sets
    before = model._combination.temperature(model._combination.context(sets))
    model.partial_fit(shop.subset(range(40, 1400)))
    after = model._combination.temperature(model._combination.context(sets))
    assert np.abs(before - 1).max() < 0.4
    assert np.abs(after - 1).max() < 0.6  # baskets of one seed: 0.48
    assert np.abs(after - before).max() > 0.001


def test_products_are_measured_by_the_first_questions_that_there_are():
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(2, 2, max_iter=2), n_jobs=1, random_state=0)
    model.fit([["a"], ["b"], ["c"], ["d"]] * 5)
    assert not model._combination.weights.products.is_measured
    model.partial_fit([["a", "b"], ["c", "d"], ["a", "b", "c"]] * 20)
    products = model._combination.weights.products
    assert products.is_measured
    again = model.partial_fit([["a", "b"], ["c", "d"]] * 20)._combination.weights.products
    np.testing.assert_array_equal(again.center, products.center)


def test_one_basket_with_refused_items_does_not_silence_what_parts_of_the_others_say():
    shop = cd.datasets.load("grocer", n_baskets=400, random_state=0)
    lists = [list(basket) for basket in shop]
    offered = [[] for _ in lists]
    other = next(item for item in shop.items if item not in lists[0])
    offered[0] = [*lists[0], other]
    validation = cd.Baskets.from_lists(lists[:200], items=shop.items, offered=offered[:200])
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(4, 4, max_iter=2), n_jobs=1, random_state=0)
    model.fit(shop.subset(range(200, 400)), validation=validation)
    assert (model._combination.weights.temperature != NEUTRAL_TEMPERATURE).any()


def test_items_that_never_sold_are_seldom_rather_than_impossible_to_a_popularity_of_the_users():
    baskets = cd.Baskets.from_lists([*checkerboard()], items=[*ITEMS, "never sold"])
    model = small("ridge", cd.baselines.Popularity(smoothing=0)).fit(baskets)
    shares = model.predict_next([ITEMS[0]])
    never = shares[model.items_.code("never sold")]
    assert 0 < never < shares.max() <= 1
    assert model.explain([ITEMS[0]], "never sold").log_probability == pytest.approx(np.log(never))


def test_substitutes_avoid_each_other_beyond_chance():
    rng = np.random.default_rng(0)
    baskets = [["tea", ["rolls", "buns"][rng.integers(2)], ["jam", "honey"][rng.integers(2)]] for _ in range(400)]
    baskets += [["beer", "nuts"]] * 200
    model = cd.ConditionalDPP(cd.LowRankDPP(4, max_iter=2), random_state=0, n_jobs=1).fit(baskets)
    found, ratios = model.substitutes("rolls")
    assert found.tolist() == ["buns"]
    assert ratios.tolist() == [0]
    assert model.substitutes("nuts")[0].tolist() == []
    assert len(model.substitutes("jam", N=1)[0]) == 1
    with pytest.raises(ParameterError):
        model.substitutes("jam", N=0)
