"""Hyper-parameters: wrong values are refused by name, and the paper's preset is what the paper used."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import contradpp as cd
import reference_gradients as ref
from contradpp.errors import DataError, ParameterError
from contradpp.learn.callbacks import Callback
from contradpp.learn.negatives import DynamicNegatives, DynamicSource, ExplicitNegatives, ProductNegatives
from contradpp.learn.optimizers import CONTRASTIVE_STEPS, Adam, RobbinsMonro
from contradpp.learn.params import flat_params, params_from_flat
from learn.test_optimizers import nesterov_transcript

SHOP = [[0, 1], [2, 3], [1, 2], [0]] * 5


WRONG = {
    "objective": ["mse", None],
    "contrast": [-0.1, "count", np.nan, True],
    "negatives": ["sampled", 3, "explicit", ExplicitNegatives()],  # the objective is "dynamic"
    "negatives.ratio": [-1, np.inf, "half"],
    "negatives.removal": ["norm"],
    "alpha": [-1e-9, None],
    "optimizer": ["sgd", Adam],
    "optimizer.batch_size": [0, 2.5],
    "optimizer.learning_rate": [0.0, -1.0],
    "init": ["zeros"],
    "calibrate": ["yes"],
    "oversize": ["trim"],
    "settings": ["papers"],
    "max_iter": [0, True],
    "tol": [-1e-3, "small"],
    "monitor": ["auc"],
    "n_components": [0, 2.0],
    "n_jobs": [0, "all"],
    "random_state": [-1, "seed"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_values_are_refused_by_name(name, value):
    part, _, key = name.partition(".")
    if key:
        value = {"negatives": DynamicNegatives, "optimizer": Adam}[part](**{key: value})
    model = cd.LowRankDPP(**({"n_components": 3} | {part: value}))  # the constructor only stores
    with pytest.raises(ParameterError, match=name):
        model.fit(SHOP)
    assert not hasattr(model, "items_")


@pytest.mark.parametrize(
    "wrong",
    [
        {"objective": "product", "negatives": ProductNegatives(frequency_power=-0.5)},
        {"objective": "mle", "negatives": DynamicNegatives()},
        {"optimizer": RobbinsMonro(radius=0.0)},
    ],
)
def test_fields_and_negatives_of_other_objectives_are_refused(wrong):
    with pytest.raises(ParameterError, match=r"frequency_power|takes no negatives|radius"):
        cd.LowRankDPP(3, **wrong).fit(SHOP)
    if "optimizer" in wrong:
        with pytest.raises(ParameterError, match="optimizer must be 'adam'"):
            cd.NonsymmetricDPP(3, **wrong).fit(SHOP)


def test_noise_contrastive_needs_noise_of_a_known_law():
    with pytest.raises(ParameterError, match="negative_ratio"):
        cd.LowRankDPP(3, objective="nce", negatives=ProductNegatives(ratio=0)).fit(SHOP)


# -- Parameter objects -------------------------------------------------------------------------------


def test_a_word_is_the_object_with_its_defaults():
    word = cd.LowRankDPP(3, negatives="dynamic", optimizer="adam", max_iter=2, random_state=0).fit(SHOP)
    own = {"negatives": DynamicNegatives(0.5, "popularity"), "optimizer": Adam(0.1, 1000)}
    other = cd.LowRankDPP(3, **own, max_iter=2, random_state=0).fit(SHOP)
    assert word.item_factors_.tobytes() == other.item_factors_.tobytes()


def test_parameter_objects_are_those_of_scikit_learn(tmp_path):
    """Cloned apart, set and searched by nested names, and kept in files."""
    model = cd.LowRankDPP(3, negatives=DynamicNegatives(1.0), optimizer=Adam(0.2), max_iter=2, random_state=0)
    copy = clone(model).set_params(optimizer__learning_rate=0.05, negatives__ratio=3.0)
    assert (model.optimizer, model.negatives) == (Adam(0.2), DynamicNegatives(1.0))
    assert copy.get_params()["optimizer__learning_rate"] == 0.05
    with pytest.raises(ParameterError, match="no parameter 'rate'"):
        copy.set_params(optimizer__rate=1.0)
    grid = {"optimizer__batch_size": [5, 10], "negatives__ratio": [0.5, 2.0]}
    search = GridSearchCV(model, grid, cv=2).fit(SHOP)
    assert search.best_params_.keys() == grid.keys()
    copy.fit(SHOP).save(tmp_path / "m")
    assert cd.load(tmp_path / "m").get_params() == copy.get_params()


@pytest.mark.parametrize("kind", [cd.LowRankDPP, cd.NonsymmetricDPP])
def test_flat_names_and_objects_say_the_same(kind):
    model = kind(3, negatives=DynamicNegatives(2.0, "uniform"), optimizer=Adam(0.3, 7), objective="dynamic")
    flat = flat_params(model)
    assert (flat["negative_ratio"], flat["batch_size"], flat["learning_rate"]) == (2.0, 7, 0.3)
    assert flat_params(kind(**params_from_flat(kind, flat))) == flat
    explicit = params_from_flat(cd.LowRankDPP, {"objective": "explicit", "negative_ratio": 2.0, "removal": "uniform"})
    assert explicit == {"objective": "explicit", "negatives": ExplicitNegatives(ratio=2.0)}
    monro = params_from_flat(cd.LowRankDPP, {"optimizer": "robbins-monro", "radius": 2.0})
    assert monro == {"optimizer": RobbinsMonro(radius=2.0)}
    default = flat_params(cd.LowRankDPP())
    assert (default["negative_ratio"], default["removal"], default["optimizer"]) == (0.5, "popularity", "adam")


def test_batches_grow_with_the_baskets_unless_their_size_is_given():
    params = cd.NonsymmetricDPP()._training_params()
    assert [params.batch_for(n) for n in (10, 30_000, 1_000_000)] == [300, 300, 10_000]
    given = cd.NonsymmetricDPP(optimizer=Adam(batch_size=50))._training_params()
    assert given.batch_for(1_000_000) == 50


class Steps(Callback):
    def __init__(self):
        self.sizes = []

    def on_step(self, step, n_sets):
        self.sizes.append(n_sets)


def test_the_papers_preset():
    """Start U(1, 2), batches of 1000 with summed gradients, its momentum and steps, its stopping rule."""
    rng = np.random.default_rng(0)
    baskets = [rng.choice(6, size=rng.integers(1, 4), replace=False).tolist() for _ in range(30)]
    validation = baskets[:6]
    whatever = {"optimizer": Adam(3.0, batch_size=7), "init": "popularity", "tol": 0.5}
    given = {"objective": "mle", "settings": "paper", "alpha": 0.8, "calibrate": None, "random_state": 5} | whatever
    start, model = (cd.LowRankDPP(3, **given) for _ in range(2))
    model.fit(cd.Baskets.from_lists(baskets), validation=validation)
    items = list(model.items_)
    coded = [[items.index(i) for i in A] for A in baskets]
    counts = np.bincount([i for A in coded for i in A], minlength=6).astype(float)

    class Stop(Callback):
        def on_start(self, n_sets, max_iter, model_of):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start.fit(cd.Baskets.from_lists(baskets), validation=validation, callbacks=[Stop()])
    V = np.array(start.item_factors_)
    assert V.min() >= 1.0
    assert V.max() <= 2.0
    # The history's validation score is the log-likelihood, and the rule ended it at a relative change of 1e-5.
    scores = np.array([h["validation"] for h in model.history_])
    change = np.abs(np.diff(scores)) / np.abs(scores[1:])
    assert (change[:-1] > 1e-5).all()
    assert change[-1] <= 1e-5
    best = int(np.argmax(scores)) + 1

    def ascent(W):  # the full-batch gradient of Σ log P(A) − R(V), as LowRankDPP.jl
        by_sets = sum(ref.log_det_gradient(W, A) for A in coded) - len(coded) * ref.log_normalizer_gradient(W)
        return by_sets - ref.penalty_gradient(W, 0.8, counts)

    expected = nesterov_transcript(V, best, ascent)
    np.testing.assert_allclose(model.item_factors_, expected, rtol=1e-7)


@pytest.mark.parametrize("objective", ["mle", "dynamic", "explicit", "product"])
def test_the_papers_methods_are_trained_in_batches_of_a_thousand(objective):
    """The likelihood of contrastive ones may stand still at once: their rule waits for the end of the fixed phase."""
    rng = np.random.default_rng(0)
    baskets = [rng.choice(6, size=2, replace=False).tolist() for _ in range(2500)]
    steps = Steps()
    model = cd.LowRankDPP(3, objective=objective, settings="paper", random_state=0)
    model.fit(baskets, validation=baskets[:9], callbacks=[steps])
    assert steps.sizes[:3] == [1000, 1000, 500][: len(steps.sizes)]
    assert objective == "mle" or len(steps.sizes) > CONTRASTIVE_STEPS
    assert np.isfinite([entry["validation"] for entry in model.history_]).all()


def test_monitor_is_what_it_says():
    """The score in the history is the mean log P(A), or the mean log P(i | A∖i), of the validation sets."""
    held = [[0, 1], [2, 3]]
    common = {"calibrate": None, "max_iter": 1, "random_state": 0, "alpha": 0.0}
    for how in ({"objective": "dynamic", "monitor": "likelihood"}, {"objective": "mle"}):
        model = cd.LowRankDPP(3, **how, **common).fit(SHOP, validation=held)
        assert model.history_[-1]["validation"] == pytest.approx(model.score(held))
    model = cd.LowRankDPP(3, objective="exact", negatives=DynamicNegatives(removal="uniform"), **common).fit(
        SHOP, validation=held
    )
    logs = [np.log(model.predict_next([A[1 - a]])[list(model.items_).index(A[a])]) for A in held for a in range(2)]
    assert model.history_[-1]["validation"] == pytest.approx(np.mean(logs))


def test_n_iter_of_partial_fit_is_checked():
    model = cd.LowRankDPP(3, max_iter=1, alpha=0.3).fit(SHOP)
    with pytest.raises(ParameterError, match="n_iter"):
        model.partial_fit(SHOP, n_iter=0)
    with pytest.raises(DataError):
        model.partial_fit([])


def test_a_source_of_ones_own_draws_the_negatives():
    """An object with `draw` takes the place of the sampler, where the objective draws and knows no noise."""

    class Copies:
        asked = 0

        def draw(self, state, positives, n, rng, weights=None):
            self.asked += n
            return DynamicSource(np.ones(state.n_items)).draw(state, positives, n, rng, weights)

    source = Copies()
    own = cd.LowRankDPP(3, negatives=source, max_iter=2, random_state=0).fit(SHOP)
    word = cd.LowRankDPP(3, negatives=DynamicNegatives(removal="uniform"), max_iter=2, random_state=0)
    assert source.asked > 0
    assert own.history_[0]["objective"] == word.fit(SHOP).history_[0]["objective"]
    assert flat_params(own)["negative_ratio"] == 0.5
    for objective in ("nce", "exact", "mle"):
        with pytest.raises(ParameterError, match="negatives"):
            cd.LowRankDPP(3, objective=objective, negatives=source).fit(SHOP)
