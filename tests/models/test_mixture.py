"""MixtureDPP: what is learned, what may go wrong, and what a ConditionalDPP makes of it."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.errors import DataError, NotFittedError, ParameterError

FAST = {"optimizer": cd.optimizers.Adam(batch_size=50), "max_iter": 10}
BREAKFAST = ["tea", "milk", "bread", "jam", "butter", "eggs"]
PARTY = ["beer", "crisps", "nuts", "wine", "cups", "ice"]


def shop(n: int = 800, seed: int = 0) -> cd.Baskets:
    """Breakfasts of about two items, and parties of about four."""
    rng = np.random.default_rng(seed)
    lists = []
    for _ in range(n):
        kind, rate = (BREAKFAST, 0.35) if rng.random() < 0.6 else (PARTY, 0.65)
        chosen = [item for item in kind if rng.random() < rate]
        lists.append(chosen or [kind[0]])
    return cd.Baskets.from_lists(lists, items=[*BREAKFAST, *PARTY])


@pytest.fixture(scope="module")
def model() -> cd.MixtureDPP:
    return cd.MixtureDPP(cd.NonsymmetricDPP(3, 3, **FAST), random_state=0).fit(shop())


def test_the_kinds_of_baskets_are_found(model):
    tea, beer = model.cluster_probabilities([["tea", "milk"], ["beer", "nuts"]])
    assert tea @ beer < 0.01
    party = int(beer.argmax())
    items, lift = model.cluster_items(party, N=4)
    assert set(items) <= set(PARTY)
    assert (np.diff(lift) <= 0).all()
    np.testing.assert_allclose(model.weights_.sum(), 1.0)


def test_held_out_baskets_are_more_likely_than_under_one_kernel(model):
    held_out = shop(400, seed=1)
    one = cd.NonsymmetricDPP(3, 3, random_state=0, **FAST).fit(shop())
    popularity = cd.baselines.Popularity().fit(shop())
    assert model.score(held_out) > one.score(held_out) + 0.1
    assert model.score(held_out) > popularity.score_samples(held_out).mean()


def test_samples_have_the_sizes_of_the_data(model):
    sizes = np.bincount(shop().sizes, minlength=13) / shop().n_baskets
    drawn = model.sample(4000, random_state=0).sizes
    found = np.bincount(drawn, minlength=13)[:13] / 4000
    assert np.abs(found - sizes).sum() < 0.25  # with the empty sets that the data do not have
    np.testing.assert_allclose(drawn.mean(), shop().sizes.mean(), rtol=0.06)
    one = cd.NonsymmetricDPP(3, 3, random_state=0, **FAST).fit(shop())
    of_one = np.bincount(one.sample(4000, random_state=0).sizes, minlength=13)[:13] / 4000
    assert np.abs(found - sizes).sum() < np.abs(of_one - sizes).sum()


def test_one_cluster_is_the_kernel_model_to_the_bit():
    kernel = cd.NonsymmetricDPP(3, 3, random_state=0, **FAST)
    one = cd.MixtureDPP(kernel, 1, random_state=0).fit(shop(200))
    alone = cd.NonsymmetricDPP(3, 3, random_state=0, **FAST).fit(shop(200))
    held_out = shop(50, seed=1)
    assert one.score_samples(held_out).tobytes() == alone.score_samples(held_out).tobytes()
    assert one.predict_next(held_out).tobytes() == alone.predict_next(held_out).tobytes()
    assert one.marginals(["tea"]).tobytes() == alone.marginals(["tea"]).tobytes()
    drawn = one.sample(20, size=3, given=["tea"], random_state=1)
    assert list(drawn) == list(alone.sample(20, size=3, given=["tea"], random_state=1))


@pytest.mark.parametrize("kernel", [cd.LowRankDPP(8, max_iter=5), cd.NonsymmetricDPP(0, 0)])
def test_other_kernels(kernel):
    found = cd.MixtureDPP(kernel, 2, smoothing=5.0, random_state=0).fit(shop())
    assert found.score(shop(200, seed=1)) > -np.inf
    assert found.kernel_model_.history_ == [] or isinstance(kernel, cd.LowRankDPP)


def test_a_mixture_of_independent_items_is_its_definition():
    found = cd.MixtureDPP(cd.NonsymmetricDPP(0, 0), 2, smoothing=5.0, random_state=0).fit(shop())
    odds = found.kernel_.diagonal * np.exp(found.tilts_)
    q = odds / (1 + odds)
    basket = ["tea", "jam"]
    inside = np.isin(list(found.items_), basket)
    P = found.weights_ @ np.where(inside, q, 1 - q).prod(axis=1)
    np.testing.assert_allclose(np.exp(found.score_samples(basket)), P, rtol=1e-10)


def test_never_below_popularity_where_nothing_goes_together():
    rng = np.random.default_rng(0)
    lists = [rng.choice(60, size=1 + rng.poisson(1.0), replace=False).tolist() for _ in range(400)]
    train, test = cd.Baskets.from_lists(lists).split(test_size=0.5, random_state=0)
    found = cd.MixtureDPP(cd.NonsymmetricDPP(8, 8, **FAST), random_state=0).fit(train)
    popularity = cd.baselines.Popularity().fit(train)
    baseline = popularity.score_samples(test.recode(train.items, unknown="ignore")).mean()
    assert found.score(test) > baseline - 0.02


def test_updates_and_new_items(model, tmp_path):
    import copy

    updated = copy.deepcopy(model).partial_fit([["beer", "olives"]] * 40)
    assert "olives" in updated.items_
    assert updated.tilts_.shape[1] == 13
    party = int(model.cluster_probabilities(["beer"]).argmax())
    assert updated.weights_[party] > model.weights_[party]
    updated.save(tmp_path / "m.safetensors")
    loaded = cd.load(tmp_path / "m.safetensors")
    baskets = shop(30, seed=2)
    assert loaded.score_samples(baskets).tobytes() == updated.score_samples(baskets).tobytes()


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_clusters": 0}, {"n_clusters": 2.5}, {"n_clusters": "many"}, {"smoothing": -1},
        {"smoothing": np.nan}, {"kernel": "lowrank"}, {"kernel": cd.baselines.EASE()},
    ],
)  # fmt: skip
def test_wrong_parameters(wrong):
    with pytest.raises(ParameterError):
        cd.MixtureDPP(**wrong).fit(shop(50))


def test_wrong_data():
    for baskets in ([], [[]]):
        with pytest.raises(DataError):
            cd.MixtureDPP(random_state=0).fit(baskets)
    few = cd.MixtureDPP(cd.NonsymmetricDPP(1, 1, max_iter=2), 50, smoothing=1.0, random_state=0).fit(
        [["tea", "milk"], ["tea"]]
    )
    assert 1 <= len(few.weights_) <= 2
    single = cd.MixtureDPP(cd.NonsymmetricDPP(1, 1, max_iter=2), random_state=0).fit([["tea"]] * 3)
    assert len(single.weights_) == 1
    with pytest.raises(NotFittedError):
        cd.MixtureDPP().cluster_items(0)


def test_wrong_questions(model):
    for cluster in (-1, len(model.weights_), 0.5, True):
        with pytest.raises(ParameterError):
            model.cluster_items(cluster)
    kernel = model.kernel_model_
    for tilts, weights in [
        (np.zeros((2, 3)), None),
        (np.full((1, 12), np.nan), None),
        (None, [np.nan]),
        (None, [0.0]),
    ]:
        with pytest.raises(ParameterError):
            cd.MixtureDPP().set_kernel_model(kernel, tilts, weights)


def test_an_interrupted_fit_has_the_best_mixture_so_far():
    class Stop(cd.callbacks.Callback):
        def on_iteration(self, record, V):
            if record["iteration"] == 3:
                raise KeyboardInterrupt

    found = cd.MixtureDPP(cd.NonsymmetricDPP(3, 3, **FAST), 2, smoothing=5.0, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        found.fit(shop(), callbacks=[Stop()])
    assert found.n_iter_ == 3
    assert np.isfinite(found.score(shop(50, seed=1)))


def test_a_run_goes_on_from_its_checkpoint_to_the_same_bytes(tmp_path):
    def new(**more):
        kernel = cd.NonsymmetricDPP(3, 3, optimizer=FAST["optimizer"], tol=0.0, **more)
        return cd.MixtureDPP(kernel, 2, smoothing=5.0, random_state=0)

    path = tmp_path / "checkpoint"
    new(max_iter=2).fit(shop(), checkpoint=path)
    resumed = new(max_iter=5).fit(shop(), checkpoint=cd.Checkpointing(path, resume=True))
    whole = new(max_iter=5).fit(shop())
    assert resumed.score_samples(shop(50)).tobytes() == whole.score_samples(shop(50)).tobytes()


def test_the_clusters_are_an_expert_of_the_conditional_model():
    kernel = cd.MixtureDPP(cd.NonsymmetricDPP(3, 3, **FAST), 2, smoothing=5.0)
    found = cd.ConditionalDPP(kernel, random_state=0).fit(shop())
    assert "mixture" in found.weights_
    without = cd.ConditionalDPP(cd.NonsymmetricDPP(3, 3, **FAST), random_state=0).fit(shop())
    assert "mixture" not in without.weights_
    why = found.explain(["beer"], "nuts")
    np.testing.assert_allclose(why.log_probability, np.log(found.predict_next(["beer"])[found.items_.code("nuts")]))
    assert np.isclose(sum(why.by_expert.values()), why.parts.sum())
    matters = why.by_expert["mixture"] >= 0.1
    party = found.kernel_.cluster_items(int(found.kernel_.cluster_probabilities(["beer"]).argmax()), 5)[0]
    assert why.like == (tuple(party) if matters else ())
    likes = [one.like for one in found.explain_each(["beer", "wine"], ["nuts", "tea"])]
    assert set(likes) <= {(), tuple(party), tuple(found.kernel_.cluster_items(
        int(found.kernel_.cluster_probabilities(["tea"]).argmax()), 5)[0])}  # fmt: skip
    assert without.explain(["beer"], "nuts").like == ()
    held_out = shop(50, seed=1)
    np.testing.assert_array_equal(found.score_samples(held_out), found.kernel_.score_samples(held_out))
