"""`fit`: what it learns, what it takes, what it refuses, and that it says the same thing twice."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contradpp as cd
import reference
from contradpp.errors import ConvergenceError, DataError, ParameterError, RankError
from contradpp.learn.callbacks import Callback
from contradpp.learn.params import params_from_flat

OBJECTIVES = ["mle", "dynamic", "explicit", "product", "nce", "exact"]
SHOP = [["tea", "milk"], ["coffee", "milk", "sugar"], ["coffee"], ["tea", "honey"], ["milk", "honey"]] * 20


def dpp(n_components=3, **parameters) -> cd.LowRankDPP:
    given = {"max_iter": 5, "random_state": 0, "alpha": 0.3, "anneal": False} | parameters
    return cd.LowRankDPP(n_components, **params_from_flat(cd.LowRankDPP, given))


def probability(model, basket, item) -> float:
    return float(model.predict_next(list(basket))[list(model.items_).index(item)])


# -- What is learned ---------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["popularity", "uniform"])
def test_recovery(init):
    """20,000 baskets of a known kernel: the held-out likelihood of what is learned is the truth's.

    The best of three starts by the likelihood of the training data. The kernel rarely fills its rank: a set of K
    items has the volume (det V_A)², and where it vanishes are walls that cut the parameters into cells.
    """
    truth = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(12, 4)) * 0.25)
    baskets, held_out = truth.sample(20_000, random_state=1), truth.sample(20_000, random_state=2)
    models = [
        dpp(4, objective="mle", init=init, alpha=0, learning_rate=0.3, batch_size=200, max_iter=100, random_state=seed)
        for seed in range(3)
    ]
    best = max((model.fit(baskets) for model in models), key=lambda model: model.score(baskets))
    assert best.score(held_out) > truth.score(held_out) - 0.01
    # and it is no accident: the start is far from it
    start = dpp(4, objective="mle", init=init, alpha=0, max_iter=1).fit(baskets)
    assert start.score(held_out) < truth.score(held_out) - 0.02


def four_predictions(model) -> np.ndarray:
    """P(2|1), P(1|2), P(4|3), P(3|4)."""
    return np.array([probability(model, [a], b) for a, b in ((1, 2), (2, 1), (3, 4), (4, 3))])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.floats(-3, 3))
def test_no_symmetric_dpp_predicts_both_pairs_both_ways(seed, K, spread):
    """The geometric mean of the four is at most ½ for every kernel: √(a12 a34) ≤ √(a13 a24) + √(a14 a23)."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(4, K)) * np.exp(spread * rng.normal(size=(4, 1)))
    if rng.random() < 0.3:  # close to the best there is: 1 ∥ 3 and 2 ∥ 4 make two pairs of the same volume
        V[2], V[3] = V[0] + 1e-3 * V[2], V[1] + 1e-3 * V[3]
    assert np.exp(np.log(four_predictions(cd.LowRankDPP.from_factors(V, items=[1, 2, 3, 4]))).mean()) <= 0.5 + 1e-9


def test_the_toy_of_the_papers_first_figure():
    """{1,2} and {3,4} a thousand times each: CE gets as close as any DPP can, where the paper's start spreads."""
    toy = cd.datasets.load("toy")

    def runs(**parameters):
        fitted = [cd.LowRankDPP(2, random_state=seed, **parameters).fit(toy) for seed in range(10)]
        return np.array([four_predictions(model) for model in fitted])

    lowrank = runs(objective="mle", settings="paper")
    for objective in ("dynamic", "exact"):
        ours = runs(objective=objective, alpha=0)
        assert np.exp(np.log(ours).mean(axis=1)).min() > 0.45  # every run is near the bound of ½
        assert ours.mean() == pytest.approx(0.5, abs=0.05)
        assert ours.std() < 0.5 * lowrank.std()
        assert ours.mean() > lowrank.mean()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_learns_what_replaces_what(objective):
    """A basket has one drink and one dish: the next item after a drink becomes a dish, as the start does not know."""
    rng = np.random.default_rng(0)
    baskets = [[int(rng.integers(4)), 4 + int(rng.integers(4))] for _ in range(600)]

    def dishes(model) -> float:
        return sum(probability(model, [0], dish) for dish in range(4, 8))

    model = dpp(3, objective=objective, alpha=0, max_iter=40, negative_ratio=1.0).fit(baskets)
    assert dishes(model) > (0.6 if objective == "product" else 0.8)  # its negatives know nothing of the basket
    assert dishes(dpp(3, objective=objective, alpha=0, max_iter=1, learning_rate=1e-9).fit(baskets)) < 0.6


@pytest.mark.skipif("CONTRADPP_DATA" not in os.environ, reason="real data are not at hand")
def test_the_papers_gain_from_the_papers_start():
    """Amazon apparel: Dyn is ahead of LowRank in MPR, and both contrasts are far ahead in AUC."""
    train, test = cd.datasets.load("amazon/apparel").split(0.2, random_state=0)
    reports = {
        objective: cd.evaluate(
            cd.LowRankDPP(30, objective=objective, settings="paper", calibrate=None, random_state=0).fit(train), test
        )
        for objective in ("mle", "dynamic", "explicit")
    }
    assert reports["dynamic"].mpr > reports["mle"].mpr + 0.5
    for objective in ("dynamic", "explicit"):
        assert reports[objective].auc > reports["mle"].auc + 0.05


@pytest.mark.skipif("CONTRADPP_DATA" not in os.environ, reason="real data are not at hand")
@pytest.mark.parametrize("objective", ["mle", "dynamic"])
def test_quality_on_a_real_registry(objective):
    """Amazon apparel, 80/20: clearly above popularity in the mean percentile rank of a held-out item."""
    train, test = cd.datasets.load("amazon/apparel").split(0.2, random_state=0)
    test = test.subset(test.sizes > 1)
    model = cd.LowRankDPP(30, objective=objective, random_state=0).fit(train)
    counts = train.item_counts.astype(float)
    rng = np.random.default_rng(0)
    ours, popular = [], []
    for basket in range(test.n_baskets):
        codes = rng.permutation(test.codes(basket))
        rest, left_out = codes[1:], codes[0]
        scores = model.predict_next([[test.items[c] for c in rest.tolist()]])[0]
        others = np.isin(np.arange(test.n_items), rest, invert=True)
        for scores_, ranks in ((scores, ours), (counts, popular)):
            ranks.append(100 * np.mean(scores_[left_out] >= scores_[others]))
    assert np.mean(ours) > 70
    assert np.mean(ours) > np.mean(popular) + 0.5


# -- Early stopping, history, interruption -----------------------------------------------------------


@pytest.mark.parametrize("objective", ["mle", "dynamic", "exact"])
def test_early_stopping_returns_the_best(objective):
    rng = np.random.default_rng(1)
    noise = [rng.choice(30, size=3, replace=False).tolist() for _ in range(120)]  # nothing to learn: it overfits
    train, held = noise[:100], noise[100:]
    held = [[i for i in basket if any(i in b for b in train)] for basket in held]
    model = dpp(4, objective=objective, monitor="likelihood", calibrate=None, max_iter=40, alpha=0, learning_rate=0.3)
    model.fit(train, validation=held)
    scores = [record["validation"] for record in model.history_]
    assert model.score(held) == pytest.approx(max(scores), rel=1e-9)
    assert min(scores) < max(scores)
    assert len(scores) == model.n_iter_
    assert [record["iteration"] for record in model.history_] == list(range(1, model.n_iter_ + 1))


def test_max_iter_and_tol():
    assert dpp(max_iter=3, tol=0).fit(SHOP).n_iter_ == 3
    assert dpp(max_iter=100, tol=10.0).fit(SHOP).n_iter_ < 20


class Interrupt(Callback):
    def on_iteration(self, record, best):
        if record["iteration"] == 4:
            self.best = best.copy()
            raise KeyboardInterrupt


def test_an_interrupt_keeps_the_best_and_goes_on_its_way():
    interrupt, model = Interrupt(), dpp(max_iter=50, calibrate=None)
    with pytest.raises(KeyboardInterrupt):
        model.fit(SHOP, callbacks=[interrupt])
    np.testing.assert_array_equal(model.item_factors_, interrupt.best)
    assert model.n_iter_ == 4
    assert len(model.history_) == 4
    assert model.recommend(["tea"], N=1)[0].shape == (1,)


def test_an_interrupted_model_is_calibrated_too():
    model = dpp(max_iter=50)
    with pytest.raises(KeyboardInterrupt):
        model.fit(SHOP, validation=SHOP[:10], callbacks=[Interrupt()])
    assert model.marginals().sum() == pytest.approx(np.mean([len(b) for b in SHOP[:10]]))


# -- Reproducible ------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "nesterov", "robbins-monro"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_same_bytes_for_any_number_of_threads(objective, optimizer):
    rng = np.random.default_rng(0)
    baskets = [rng.choice(300, size=rng.integers(1, 7), replace=False).tolist() for _ in range(1500)]
    negatives = [rng.choice(300, size=2, replace=False).tolist() for _ in range(20)]

    def factors(**parameters):
        model = dpp(8, objective=objective, optimizer=optimizer, max_iter=2, batch_size=400, **parameters)
        return model.fit(baskets, negatives=negatives).item_factors_

    one = factors(n_jobs=1)
    assert factors(n_jobs=2).tobytes() == one.tobytes()
    assert factors(n_jobs=1).tobytes() == one.tobytes()
    assert factors(n_jobs=1, random_state=1).tobytes() != one.tobytes()


@pytest.mark.parametrize("objective", ["mle", "dynamic", "exact"])
def test_the_same_bytes_in_a_large_catalogue(objective):
    """Products large enough for BLAS to divide them among threads, which alone can change their last bits."""
    rng = np.random.default_rng(0)
    baskets = [rng.choice(6000, size=rng.integers(1, 9), replace=False).tolist() for _ in range(1500)]
    one, two = (dpp(30, objective=objective, max_iter=2, n_jobs=n).fit(baskets).item_factors_ for n in (1, 2))
    assert one.tobytes() == two.tobytes()


def test_generators_as_random_state():
    a = dpp(random_state=np.random.default_rng(3)).fit(SHOP)
    b = dpp(random_state=np.random.default_rng(3)).fit(SHOP)
    assert a.item_factors_.tobytes() == b.item_factors_.tobytes()
    assert dpp(random_state=None).fit(SHOP).item_factors_.tobytes() != a.item_factors_.tobytes()


# -- Data --------------------------------------------------------------------------------------------


def test_forms_of_baskets():
    """`Baskets`, lists, tuples, sets in order, a generator and an array of objects are all the same data."""
    expected = dpp().fit(cd.Baskets.from_lists(SHOP))
    array = np.empty(len(SHOP), dtype=object)
    array[:] = SHOP
    for form in (SHOP, [tuple(b) for b in SHOP], (b for b in SHOP), array, [dict.fromkeys(b) for b in SHOP]):
        model = dpp().fit(form)
        assert model.item_factors_.tobytes() == expected.item_factors_.tobytes()
        assert list(model.items_) == list(expected.items_)


@pytest.mark.parametrize("data", [[], iter([]), cd.Baskets.from_lists([])])
def test_no_data(data):
    with pytest.raises(DataError, match="empty"):
        dpp().fit(data)


@pytest.mark.parametrize("data", [5, None, 1.5])
def test_what_are_no_baskets(data):
    with pytest.raises(DataError, match="baskets"):
        dpp().fit(data)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    "data",
    [[["a", "b"]], [["a"]], [["a", "b", "c"]] * 60, [["a"]] * 60, [["a", "b"]] * 3 + [[]] * 3],
    ids=["one basket", "one item", "all alike", "all alike of one item", "with empty baskets"],
)
def test_small_data(objective, data):
    model = dpp(objective=objective).fit(data)
    assert np.isfinite(model.item_factors_).all()
    assert np.isfinite(model.score(data))


def test_empty_baskets():
    """They count for likelihood, and say nothing to a conditional one."""
    half_empty = [["a", "b"], []] * 50
    model = dpp(objective="mle", max_iter=30).fit(half_empty, validation=half_empty)
    assert model.marginals().sum() == pytest.approx(1.0)
    assert np.exp(model.score([[]])) > 0.2
    with pytest.raises(DataError, match="no basket to learn from"):
        dpp(objective="dynamic").fit([[], []])
    np.testing.assert_array_equal(
        dpp(objective="exact").fit(half_empty[:20]).item_factors_,
        dpp(objective="exact").fit([["a", "b"]] * 10).item_factors_,
    )


def test_a_catalogue_larger_than_the_data():
    baskets = cd.Baskets.from_lists([["a", "b"], ["b", "c"]] * 10, items=["z", "a", "b", "c", "y"])
    model = dpp().fit(baskets)
    assert list(model.items_) == ["z", "a", "b", "c", "y"]
    p = model.predict_next(["b"])
    assert 0 < p[0] < p[1]


# -- Sets beyond the rank ----------------------------------------------------------------------------

LARGE = [["a", "b"]] * 30 + [["a", "b", "c", "d"]] * 3 + [["b", "c", "d", "e", "f"]]


def test_oversize_error_says_how_many():
    with pytest.raises(
        RankError, match=r"4 of 34 baskets have more than n_components=3.*largest has 5.*n_components=5"
    ):
        dpp(oversize="error").fit(LARGE)


def test_oversize_drop(caplog):
    with caplog.at_level(logging.WARNING, logger="contradpp"):
        model = dpp(oversize="drop").fit(LARGE)
    assert "4" in caplog.text
    assert "drop" in caplog.text
    same = dpp().fit(cd.Baskets.from_lists(LARGE).subset(np.arange(30)))
    np.testing.assert_array_equal(model.item_factors_, same.item_factors_)


def test_oversize_clip(caplog):
    model = dpp(oversize="clip").fit(LARGE)
    assert "clip" in caplog.text
    clipped = cd.Baskets.from_lists([b[:3] for b in LARGE], items=cd.Baskets.from_lists(LARGE).items)
    np.testing.assert_array_equal(model.item_factors_, dpp().fit(clipped).item_factors_)


def test_all_oversize():
    with pytest.raises(DataError, match="no basket to learn from"):
        dpp(1, oversize="drop").fit([["a", "b"]] * 3)


# -- Labels ------------------------------------------------------------------------------------------

FEW = [["a", "b"], ["b", "c"], ["a"], ["c", "d", "a"]]


def likelihood(**parameters) -> cd.LowRankDPP:
    """Full-batch maximum likelihood from the same start, deterministic but for the order of the sum."""
    return dpp(objective="mle", alpha=0, max_iter=12, tol=0, calibrate=None, **parameters)


@pytest.mark.parametrize("optimizer", ["adam", "robbins-monro"])
def test_weight_two_is_a_basket_twice(optimizer):
    twice = likelihood(optimizer=optimizer).fit([*FEW, FEW[1], FEW[3], FEW[3]])
    weighted = likelihood(optimizer=optimizer).fit(FEW, sample_weight=[1, 2, 1, 3])
    np.testing.assert_allclose(weighted.item_factors_, twice.item_factors_, rtol=1e-6)
    plain = likelihood(optimizer=optimizer).fit(FEW)
    assert np.abs(plain.item_factors_ - twice.item_factors_).max() > 1e-3


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_only_the_ratios_of_labels_count(objective):
    weights = np.random.default_rng(0).uniform(0.5, 2, len(SHOP))
    a = dpp(objective=objective).fit(SHOP, sample_weight=weights)
    b = dpp(objective=objective).fit(SHOP, sample_weight=weights / weights.sum())
    np.testing.assert_allclose(a.item_factors_, b.item_factors_, rtol=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_weight_zero_is_absence(objective):
    weights = np.ones(len(SHOP))
    weights[::3] = 0
    chosen = cd.Baskets.from_lists(SHOP)
    weighted = dpp(objective=objective).fit(chosen, sample_weight=weights)
    absent = dpp(objective=objective).fit(chosen.subset(weights > 0))
    assert weighted.item_factors_.tobytes() == absent.item_factors_.tobytes()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_labels_below_zero_push_a_set_away(objective):
    """The pair a, c is as frequent as the others in the data; a label of −1 makes c unlikely next to a."""
    baskets = [["a", "b"], ["a", "c"], ["b", "d"], ["c", "d"]] * 15
    labels = np.where(np.arange(60) % 4 == 1, -1.0, 1.0)
    common = {"objective": objective, "max_iter": 10, "alpha": 0, "random_state": 1}
    liked = dpp(4, **common).fit(baskets)
    disliked = dpp(4, **common).fit(baskets, sample_weight=labels)
    assert probability(disliked, ["a"], "c") < 0.7 * probability(liked, ["a"], "c")
    assert disliked.score([["a", "c"]]) < liked.score([["a", "c"]]) - 0.3


def test_disliked_baskets_are_never_validation():
    """Early stopping must not reward the likelihood of what should become unlikely."""
    baskets = [["a", "b"]] * 50 + [["c", "d"]] * 50
    labels = np.repeat([1.0, -1.0], 50)
    model = dpp(objective="mle", calibrate=None, alpha=0).fit(baskets, sample_weight=labels)
    assert model.history_[-1]["validation"] > model.history_[0]["validation"]
    best = max(record["validation"] for record in model.history_)
    assert model.score([["a", "b"]]) == pytest.approx(best)


@pytest.mark.parametrize("weights", [[1.0], [1.0] * 99, np.ones((100, 1)), [np.nan] * 100, [np.inf] * 100])
def test_labels_that_do_not_fit(weights):
    with pytest.raises(ParameterError, match="sample_weight must hold 100"):
        dpp().fit(SHOP, sample_weight=weights)


def test_labels_that_are_all_zero():
    with pytest.raises(DataError, match="zero"):
        dpp().fit(SHOP, sample_weight=np.zeros(100))


# -- The user's own negatives ------------------------------------------------------------------------

MIXED = [["a", "b"], ["b", "c"], ["c", "d"], ["a", "d"], ["a", "c"], ["b", "d"]] * 10


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_negatives_become_unlikely(objective):
    """Every objective heeds them, together with the negatives that it draws itself."""
    common = {"objective": objective, "max_iter": 8, "alpha": 0, "negative_ratio": 0.2}
    plain = dpp(4, **common).fit(MIXED)
    told = dpp(4, **common).fit(MIXED, negatives=[["a", "c"]] * 30)
    assert probability(told, ["a"], "c") < 0.8 * probability(plain, ["a"], "c")


@pytest.mark.parametrize("contrast", [1.0, 0.5, "counted"])
def test_negatives_alone(contrast):
    """With negative_ratio=0 the user's are the only ones, whatever form of contrast."""
    common = {"objective": "explicit", "negative_ratio": 0, "contrast": contrast, "alpha": 0, "max_iter": 8}
    told = dpp(4, **common).fit(MIXED, negatives=[["a", "c"]] * 30)
    assert probability(told, ["a"], "c") < 0.8 * probability(dpp(4, **common).fit(MIXED), ["a"], "c")


@pytest.mark.parametrize("objective", ["explicit", "nce", "exact", "mle"])
def test_weights_of_negatives(objective):
    """What weighs more becomes less likely."""

    def fitted(weights):
        model = dpp(4, objective=objective, max_iter=6, alpha=0, negative_ratio=0.1, init="popularity")
        return model.fit(MIXED, negatives=cd.negatives.WeightedSets([["a", "c"], ["b", "d"]], weights))

    ac, bd = fitted([9.0, 1.0]), fitted([1.0, 9.0])
    assert ac.score([["a", "c"]]) < bd.score([["a", "c"]])
    assert bd.score([["b", "d"]]) < ac.score([["b", "d"]])


def test_negatives_may_name_new_items_and_be_empty():
    model = dpp().fit(SHOP, negatives=[["tea", "petrol"]])
    assert "petrol" in model.items_
    assert probability(model, ["tea"], "petrol") < 0.05
    same = dpp().fit(SHOP)
    for nothing in ([], iter([]), [[]], [list("abcdefgh")]):  # the last is beyond the rank: impossible already
        other = dpp().fit(SHOP, negatives=nothing)
        rows = [list(other.items_).index(item) for item in same.items_]
        if len(other.items_) == len(same.items_):
            np.testing.assert_array_equal(other.item_factors_[rows], same.item_factors_)


def test_negatives_that_do_not_fit():
    with pytest.raises(ParameterError, match="weights of negatives must hold 1"):
        dpp().fit(SHOP, negatives=cd.negatives.WeightedSets([["tea", "milk"]], [1.0, 2.0]))
    with pytest.raises(DataError, match="negatives"):
        dpp().fit(SHOP, negatives=7)


@pytest.mark.parametrize("ratio", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("objective", ["dynamic", "explicit", "product", "nce"])
def test_any_ratio_of_negatives(objective, ratio):
    assert np.isfinite(dpp(objective=objective, negative_ratio=ratio).fit(SHOP).item_factors_).all()


# -- Validation --------------------------------------------------------------------------------------


def test_forms_of_validation():
    held = SHOP[:10]
    a = dpp().fit(SHOP, validation=held)
    b = dpp().fit(SHOP, validation=cd.Baskets.from_lists(held))
    assert a.item_factors_.tobytes() == b.item_factors_.tobytes()
    for form in (None, 0.3):
        assert np.isfinite(dpp().fit(SHOP, validation=form).history_[-1]["validation"])


def test_a_share_is_set_aside():
    class Count(Callback):
        def on_start(self, n_sets, max_iter, model_of):
            self.n_sets = n_sets

    for share, left in ((0.3, 70), (0.001, 99), (0.999, 1), (None, 95)):
        count = Count()
        dpp(max_iter=1).fit(SHOP, validation=share, callbacks=[count])
        assert count.n_sets == left


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_share_that_cannot_be(share):
    with pytest.raises(ParameterError, match="validation must be"):
        dpp().fit(SHOP, validation=share)


@pytest.mark.parametrize("bad", [[], 3, True, [["unheard", "of"]], [["tea", "milk", "coffee", "sugar"]]])
def test_validation_that_cannot_be_used(bad):
    with pytest.raises(DataError, match="validation"):
        dpp().fit(SHOP, validation=bad)


def test_unknown_items_in_validation_are_left_out():
    a = dpp().fit(SHOP, validation=[["tea", "milk"], ["coffee", "petrol"], ["petrol"]])
    b = dpp().fit(SHOP, validation=[["tea", "milk"], ["coffee"]])
    assert a.item_factors_.tobytes() == b.item_factors_.tobytes()
    assert "petrol" not in a.items_


def test_the_scores_of_validation_are_those_of_the_model():
    held = SHOP[:7]
    model = dpp(objective="mle", calibrate=None, max_iter=1).fit(SHOP, validation=held)
    V, codes = np.array(model.item_factors_), list(model.items_)
    logs = [reference.log_probability(V, [codes.index(i) for i in basket]) for basket in held]
    assert model.history_[-1]["validation"] == pytest.approx(np.mean(logs))


# -- Starting again ----------------------------------------------------------------------------------


def test_fit_forgets_and_warm_start_does_not():
    model = dpp(objective="mle", calibrate=None)
    first = np.array(model.fit(SHOP).item_factors_)
    assert model.fit(SHOP).item_factors_.tobytes() == first.tobytes()
    model.set_params(warm_start=True)
    before = model.score(SHOP)
    model.fit(SHOP)
    assert model.score(SHOP) > before
    assert model.item_factors_.tobytes() != first.tobytes()


def test_warm_start_keeps_the_rows_of_known_items():
    model = dpp(objective="mle", warm_start=True, calibrate=None, alpha=0).fit(SHOP)
    old, items = np.array(model.item_factors_), list(model.items_)
    model.set_params(optimizer=cd.optimizers.Adam(learning_rate=1e-9), max_iter=1)
    model.fit([["scones", "tea"], ["milk"]] * 10)
    assert list(model.items_) == [*items, "scones"]
    np.testing.assert_allclose(model.item_factors_[: len(items)], old, rtol=1e-6)
    model.set_params(n_components=4)
    with pytest.raises(ParameterError, match="warm_start"):
        model.fit(SHOP)


def test_warm_start_of_a_new_model_is_a_fit():
    assert dpp(warm_start=True).fit(SHOP).item_factors_.tobytes() == dpp().fit(SHOP).item_factors_.tobytes()


def test_a_refused_fit_leaves_the_model_as_it_was():
    model = dpp().fit(SHOP)
    before = model.item_factors_.tobytes()
    for bad in ({"baskets": []}, {"baskets": SHOP, "validation": 2.0}, {"baskets": SHOP, "sample_weight": [1]}):
        with pytest.raises((DataError, ParameterError)):
            model.fit(**bad)
    assert model.item_factors_.tobytes() == before


@pytest.mark.parametrize("rate", [1.0, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("objective", ["exact", "mle", "dynamic"])
@pytest.mark.parametrize("kind", [cd.LowRankDPP, cd.NonsymmetricDPP])
def test_steps_far_too_long_leave_a_law_or_say_so(kind, objective, rate):
    """P(A) was 1.19 after steps of 30; after longer ones there was an error about a skew part that nobody had given."""
    baskets = [["a", "b"], ["a", "c"], ["b", "c"], ["c", "d"], ["a"]] * 20
    adam = cd.optimizers.Adam(learning_rate=rate)
    model = kind(4, objective=objective, optimizer=adam, max_iter=10, random_state=0)
    with contextlib.suppress(ConvergenceError):
        model.fit(baskets)
    sets = [list(s) for n in range(5) for s in itertools.combinations("abcd", n)]
    assert np.exp(model.score_samples(sets)).sum() == pytest.approx(1, abs=1e-6)


class OfOurOwn:
    """`exact`, as someone outside the library would write it."""

    def gradient(self, state, batch):
        exact = cd.objectives.ConditionalLikelihood(removal=np.ones(state.n_items))
        return exact.gradient(state, batch)


def test_an_objective_may_be_an_object(tmp_path):
    own = dpp(objective=OfOurOwn()).fit(SHOP)
    word = dpp(objective="exact", removal="uniform", max_iter=5).fit(SHOP)
    assert own.score(SHOP) == pytest.approx(word.score(SHOP), abs=0.3)
    own.save(tmp_path / "model")
    assert cd.load(tmp_path / "model").score(SHOP) == own.score(SHOP)
    with pytest.raises(ParameterError, match="objective"):
        dpp(objective=object()).fit(SHOP)


def test_an_objective_of_ones_own_may_have_negatives_drawn():
    class Contrast:
        spec = cd.objectives.OBJECTIVES["dynamic"]
        seen = 0

        def gradient(self, state, batch):
            Contrast.seen += batch.negatives.sets.count
            return cd.objectives.Contrastive(1.0).gradient(state, batch)

    Contrast.spec = replace(Contrast.spec, make=lambda _: Contrast(), closed=None)
    dpp(objective=Contrast(), negatives=cd.negatives.DynamicNegatives(ratio=1.0)).fit(SHOP)
    assert Contrast.seen > 0


def test_a_kernel_that_cannot_be_calibrated_is_kept():
    """Steps of an absurd length make a kernel whose normalizer is lost to rounding: the model is still there."""
    failed = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        baskets = [rng.choice(6, size=rng.integers(1, 4), replace=False).tolist() for _ in range(60)]
        model = cd.NonsymmetricDPP(3, optimizer=cd.optimizers.Adam(learning_rate=30.0), max_iter=20, random_state=seed)
        try:
            model.fit(baskets)
        except ConvergenceError:
            failed += 1
        assert len(model.recommend([0], N=1)[0]) == 1
    assert failed
