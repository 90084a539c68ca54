"""`partial_fit`: learning from what comes in later: baskets, new items, rejected suggestions."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

import contradpp as cd
from contradpp.dpp import files as persist
from contradpp.errors import DataError, ModelFileError, NotFittedError, ParameterError, RankError
from contradpp.learn import calibration
from contradpp.learn.callbacks import Callback
from contradpp.learn.params import params_from_flat

OBJECTIVES = ["mle", "dynamic", "explicit", "product", "nce", "exact"]
RNG = np.random.default_rng(0)
BASKETS = [RNG.choice(list("abcdefghij"), size=RNG.integers(1, 4), replace=False).tolist() for _ in range(300)]


def fitted(objective="dynamic", **parameters) -> cd.LowRankDPP:
    parameters = {"objective": objective, "max_iter": 10, "random_state": 0, "alpha": 0.3} | parameters
    return cd.LowRankDPP(5, **params_from_flat(cd.LowRankDPP, parameters)).fit(BASKETS)


def probability(model, basket, item) -> float:
    return float(model.predict_next(list(basket))[list(model.items_).index(item)])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_rejected_suggestion_becomes_less_likely(objective):
    """The basket was {a}, the suggestion was refused: told so once, and then with other baskets around."""
    model = fitted(objective)
    suggestion = model.recommend(["a"], N=1)[0][0]
    before = probability(model, ["a"], suggestion)
    model.partial_fit(negatives=[["a", suggestion]])
    once = probability(model, ["a"], suggestion)
    assert once < before
    model.partial_fit(BASKETS[:50], negatives=[["a", suggestion]] * 10, n_iter=5)
    assert probability(model, ["a"], suggestion) < once


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("optimizer", "rate"), [("adam", None), ("nesterov", None), ("robbins-monro", 0.02)])
def test_more_rounds_of_rejection_push_further(objective, optimizer, rate):
    """Only negatives, no baskets: the last round counts, and each goes further than the one before."""
    after = []
    for n_iter in (1, 4):
        model = fitted(objective, optimizer=optimizer, learning_rate=rate, max_iter=3)
        before = probability(model, ["a", "b"], "c")
        model.partial_fit(negatives=[["a", "b", "c"]], n_iter=n_iter)
        after.append(probability(model, ["a", "b"], "c"))
        assert model.n_iter_ == n_iter
    assert after[1] < after[0] < before


def test_new_items_enlarge_the_vocabulary():
    model = fitted()
    items, old = list(model.items_), np.array(model.item_factors_)
    model.partial_fit([["a", "new"], ["new", "newer"], ["b", "c"]] * 5, n_iter=3)
    assert list(model.items_) == [*items, "new", "newer"]
    assert model.item_factors_.shape == (12, 5)
    assert np.isfinite(model.item_factors_).all()
    assert model.predict_next(["a"]).shape == (12,)
    assert probability(model, ["a"], "newer") > 0
    # a new item is as long as its popularity asks: between the shortest and the longest of the old ones
    lengths = np.linalg.norm(model.item_factors_, axis=1)
    assert lengths[10:].max() < 1.5 * np.linalg.norm(old, axis=1).max()
    assert lengths[10] > lengths[11]  # new came twice as often as newer
    assert model.item_counts_[10:].tolist() == [10, 5]
    assert model.n_baskets_ == 315 - 15  # 5 % of the first 300 were set aside


def test_a_new_item_of_the_same_popularity_has_the_same_length():
    """The kernel's scale, whatever calibration made of it, is that of the new rows too."""
    model = fitted(max_iter=1, alpha=0)
    counts = model.item_counts_
    model.partial_fit([["new"]] * int(counts.mean()), n_iter=1)
    lengths = np.linalg.norm(model.item_factors_, axis=1)
    assert lengths[-1] == pytest.approx(np.exp(np.log(lengths[:-1]).mean()), rel=0.25)


def test_items_only_in_negatives():
    model = fitted().partial_fit(negatives=[["a", "petrol"]])
    assert "petrol" in model.items_
    assert probability(model, ["a"], "petrol") < 0.05


def test_new_baskets_become_likelier():
    model = fitted("mle")
    before = model.score([["a", "b"]])
    model.partial_fit([["a", "b"]] * 30, n_iter=5)
    assert model.score([["a", "b"]]) > before


def test_it_moves_little_and_keeps_the_rest():
    """One round is one small step; items outside the batch stay (contrast 1, alpha 0), but for the common scale."""
    model = fitted(alpha=0.0, negative_ratio=0.0)
    old = np.array(model.item_factors_)
    model.partial_fit([["a", "b"]], negatives=[["c", "d"]])
    scale = np.linalg.norm(model.item_factors_[list(model.items_).index("e")]) / np.linalg.norm(
        old[list(model.items_).index("e")]
    )
    assert scale == pytest.approx(1.0, abs=0.1)
    off = np.abs(model.item_factors_ - scale * old).max(axis=1)
    moved = [item for item, distance in zip(model.items_, off, strict=True) if distance > 1e-12]
    assert sorted(moved) == ["a", "b", "c", "d"]
    assert off.max() < 0.2 * np.abs(old).max()


@pytest.mark.parametrize(
    "model",
    [
        cd.LowRankDPP(40, objective="mle", oversize="drop", random_state=0),
        cd.LowRankDPP(40, objective="exact", oversize="drop", random_state=0),
        cd.LowRankDPP(40, objective="dynamic", oversize="drop", random_state=0),
        cd.NonsymmetricDPP(8, 10, random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.objective}",
)
def test_many_small_updates_keep_size_and_likelihood(model):
    """Each of them is a step by chance; the scale must not drift, and what much data have said must stay.

    `exact` lost 5 nats on held-out baskets: steps were as long for small gradients as for large ones.
    """
    shop = cd.datasets.load("grocer", n_baskets=2500, random_state=0)
    train, held_out = shop.subset(np.arange(2000)), shop.subset(np.arange(2000, 2500))
    model.fit(train)
    before, rng = model.score(held_out, unknown="ignore"), np.random.default_rng(0)
    for _ in range(200):
        model.partial_fit(train.subset(rng.choice(train.n_baskets, 20, replace=False)))
    assert model.kernel_.expected_size == pytest.approx(train.sizes.mean(), rel=0.05)
    assert model.score(held_out, unknown="ignore") > before - 0.2


@pytest.mark.parametrize("most", [0, 10**6])
def test_the_size_is_held_in_catalogues_of_any_size(monkeypatch, most):
    """Of more than 500 items the expected size drifted by a tenth in 400 updates: nobody looked at it."""
    monkeypatch.setattr(calibration, "MOST_TO_RESCALE", most)
    shop = cd.datasets.load("grocer", n_baskets=1000, random_state=0)
    model, rng = cd.NonsymmetricDPP(4, 5, random_state=0, max_iter=5).fit(shop), np.random.default_rng(0)
    for _ in range(40):
        model.partial_fit(shop.subset(rng.choice(shop.n_baskets, 20, replace=False)))
    assert model.kernel_.expected_size == pytest.approx(shop.sizes.mean(), rel=0.02)


def test_a_scale_that_is_not_that_of_sizes_is_kept():
    """Calibrated for discrimination, the kernel came back at the scale of the baskets' sizes."""
    model = fitted(calibrate="discrimination", max_iter=2)
    before = model.kernel_.expected_size
    model.partial_fit(BASKETS[:20])
    assert model.kernel_.expected_size == pytest.approx(before, rel=0.05)


def test_labels_and_weights():
    a = fitted().partial_fit([["a", "b"], ["c"]], sample_weight=[1, 0])
    b = fitted().partial_fit([["a", "b"]])
    np.testing.assert_array_equal(a.item_factors_, b.item_factors_)
    disliked = fitted("mle").partial_fit([["a", "b"]] * 5, sample_weight=[-1] * 5, n_iter=3)
    assert disliked.score([["a", "b"]]) < fitted("mle").score([["a", "b"]])
    with pytest.raises(ParameterError, match="sample_weight"):
        fitted().partial_fit([["a"]], sample_weight=[1, 2])
    fitted().partial_fit([["a", "c"]], negatives=cd.negatives.WeightedSets([["a", "b"]], [3.0]))


def test_forms_of_nothing():
    model = fitted()
    for nothing in ((), [], None, iter([]), cd.Baskets.from_lists([])):
        with pytest.raises(DataError, match="baskets or negatives"):
            model.partial_fit(nothing)
    with pytest.raises(DataError, match="baskets or negatives"):
        model.partial_fit([], negatives=[])
    model.partial_fit(iter([["a", "b"]]), negatives=[])  # a day without rejections
    model.partial_fit(None, negatives=iter([["a", "b"]]))


def test_it_needs_a_model():
    with pytest.raises(NotFittedError, match="fit"):
        cd.LowRankDPP(3).partial_fit([["a"]])


def test_baskets_beyond_the_rank():
    with pytest.raises(RankError, match="1 of 1 baskets"):
        fitted().partial_fit([list("abcdef")])
    fitted(oversize="clip").partial_fit([list("abcdef")])


def test_after_from_factors():
    """A kernel from elsewhere, with no counts at all, can be continued from."""
    model = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32), items="abcd")
    before = probability(model, ["a"], "b")
    model.partial_fit(negatives=[["a", "b"]])
    assert probability(model, ["a"], "b") < before
    model.partial_fit([["a", "e"]])
    assert "e" in model.items_
    assert np.isfinite(model.item_factors_).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_is_reproducible(objective):
    """Same seed, same calls, same bytes; and every call draws its own chance, or it would always remove one item."""
    a, b = fitted(objective), fitted(objective)
    for model in (a, b):
        model.partial_fit(BASKETS[:5], negatives=[["a", "b"]])
        model.partial_fit(BASKETS[5:10], n_iter=2)
    assert a.item_factors_.tobytes() == b.item_factors_.tobytes()


def test_every_call_has_its_own_chance():
    """The same basket again and again: dynamic negatives must not always replace the same item of it."""
    model = fitted(alpha=0.0, negative_ratio=1.0)
    moved = set()
    for _ in range(8):
        old, items = np.array(model.item_factors_), list(model.items_)
        model.partial_fit([["a", "b", "c"]])
        moved |= {
            item for item, row, before in zip(items, model.item_factors_, old, strict=True) if (row != before).any()
        }
    assert len(moved) > 4  # a, b, c and several that took a place


def test_save_load_and_go_on(tmp_path):
    """What goes on after loading is what would have gone on without."""
    path = tmp_path / "model.safetensors"
    model = fitted()
    model.partial_fit(BASKETS[:5])
    model.save(path)
    loaded = cd.load(path)
    np.testing.assert_array_equal(loaded.item_counts_, model.item_counts_)
    assert loaded.n_baskets_ == model.n_baskets_
    for m in (model, loaded):
        m.partial_fit([["a", "new"]] * 3, negatives=[["b", "c"]], n_iter=2)
    assert loaded.item_factors_.tobytes() == model.item_factors_.tobytes()
    assert list(loaded.items_) == list(model.items_)


def test_files_without_counts(tmp_path):
    path = tmp_path / "model.safetensors"
    cd.LowRankDPP.from_factors(0.7 * np.eye(3), items="abc").save(path)
    loaded = cd.load(path)
    assert loaded.item_counts_ is None
    loaded.partial_fit([["a", "d"]])


@pytest.mark.parametrize(
    ("counts", "training"),
    [
        (np.ones(3), {"n_baskets": 3.0, "n_updates": 0}),
        (np.full(10, -1.0), {"n_baskets": 3.0, "n_updates": 0}),
        (np.full(10, np.nan), {"n_baskets": 3.0, "n_updates": 0}),
        (np.ones(10), {"n_baskets": "many", "n_updates": 0}),
        (np.ones(10), {"n_baskets": 3.0}),
        (np.ones(10), None),
    ],
)
def test_counts_that_do_not_fit_are_a_damaged_file(tmp_path, counts, training):
    path = tmp_path / "model.safetensors"
    fitted().save(path)
    tensors, info = persist.read_model(path)
    info = {key: value for key, value in info.items() if key not in ("format", "version")}
    persist.write_model(path, tensors | {"item_counts": counts}, info | {"training": training})
    with pytest.raises(ModelFileError):
        cd.load(path)


def test_the_file_holds_counts_under_their_name(tmp_path):
    path = tmp_path / "model.safetensors"
    model = fitted()
    model.save(path)
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    assert header["item_counts"]["shape"] == [10]
    body = json.loads(header["__metadata__"]["contradpp"])
    assert body["training"]["n_baskets"] == model.n_baskets_


def test_callbacks_and_history():
    class Rounds(Callback):
        n = 0

        def on_iteration(self, record, best):
            self.n += 1

    rounds, model = Rounds(), fitted()
    model.partial_fit(BASKETS[:20], callbacks=[rounds], n_iter=4)
    assert rounds.n == model.n_iter_ == len(model.history_) == 4


def test_after_the_papers_settings():
    model = cd.LowRankDPP(5, objective="mle", settings="paper", random_state=0).fit(BASKETS)
    before = probability(model, ["a"], "b")
    model.partial_fit(negatives=[["a", "b"]], n_iter=3)
    assert model.n_iter_ == 3
    assert probability(model, ["a"], "b") < before


@pytest.mark.parametrize(
    "model",
    [
        cd.LowRankDPP(5, objective="mle", max_iter=5, random_state=0),
        cd.LowRankDPP(5, objective="dynamic", max_iter=5, random_state=0),
        cd.NonsymmetricDPP(3, 3, max_iter=5, random_state=0),
        cd.NonsymmetricDPP(3, 0, max_iter=5, random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.objective}-{getattr(model, 'n_skew', '')}",
)
def test_the_expected_size_becomes_the_mean_size_of_all_baskets(model):
    """`fit` takes that of the validation baskets, which are larger here."""
    model.fit([basket for basket in BASKETS if len(basket) < 3], validation=[list("abc"), list("def")])
    assert model.kernel_.expected_size == pytest.approx(3, rel=0.03)
    model.partial_fit(BASKETS[:60])
    mean = model.item_counts_.sum() / model.n_baskets_
    assert 1 < mean < 2
    assert model.kernel_.expected_size == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize("calibrate", [None, "discrimination"])
def test_without_likelihood_known_items_weigh_what_they_did(calibrate):
    model = fitted(calibrate=calibrate)
    before = model.kernel_.squared_norms
    model.partial_fit(BASKETS[:60])
    change = np.log(model.kernel_.squared_norms / before)
    assert np.abs(change).max() > 1e-3
    assert np.average(change, weights=before) == pytest.approx(0, abs=1e-9)
