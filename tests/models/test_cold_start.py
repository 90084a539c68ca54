"""New items: judged by features at once, by sales as they come, the same from a file, and refused where they must."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.features import ItemFeatures
from contradpp.dpp import files
from contradpp.errors import DataError, ModelFileError, NotFittedError, ParameterError
from contradpp.models.cold_start import fit_popularity, nearest_neighbors
from contradpp.models.conditional import next_logits
from contradpp.slates.similarity import WEIGHTS, Similarity

# Two worlds that never meet, of ten items each: "r0" to "r9" and "b0" to "b9"; the first ones of each sell most.
WORLDS = {f"{color}{k}": color for color in "rb" for k in range(10)}
FEATURES = {item: {"world": color, "rank": float(item[1])} for item, color in WORLDS.items()}


def worlds(n: int = 600, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    chances = 1.0 / (1.0 + np.arange(10))
    picks = [rng.choice(10, size=4, replace=False, p=chances / chances.sum()) for _ in range(n)]
    return [[f"{'rb'[k % 2]}{pick}" for pick in picked] for k, picked in enumerate(picks)]


def kernel(**params: object) -> cd.NonsymmetricDPP:
    return cd.NonsymmetricDPP(4, 6, max_iter=4, n_jobs=1, random_state=0, **params)


@pytest.fixture(scope="module")
def conditional() -> cd.ConditionalDPP:
    return cd.ConditionalDPP(kernel(), n_jobs=1, random_state=0).fit(worlds(), item_features=FEATURES)


MODELS = {
    "conditional": lambda: cd.ConditionalDPP(kernel(), n_jobs=1, random_state=0),
    "nonsymmetric": kernel,
    "no diagonal": lambda: kernel(diagonal=False, oversize="drop"),
    "lowrank": lambda: cd.LowRankDPP(8, max_iter=3, n_jobs=1, random_state=0),
}


def with_two_more(model: object) -> object:
    new = {"red": {"world": "r", "rank": 0.0}, "blue": {"world": "b", "rank": 0.0}}
    return model.fit(worlds(), item_features=FEATURES).add_items(["red", "blue"], new, names={"red": "Red thing"})


@pytest.fixture(scope="module")
def with_new_items() -> cd.ConditionalDPP:
    """The model of several experts, with two new items."""
    return with_two_more(MODELS["conditional"]())


@pytest.mark.parametrize("kind", MODELS)
def test_new_items_can_be_asked_like_all_others(kind, tmp_path):
    enlarged = with_two_more(MODELS[kind]())
    assert list(enlarged.items_)[-2:] == ["red", "blue"]
    assert enlarged.items_.name("red") == "Red thing"
    shares = enlarged.predict_next([["r0", "r1"], ["b0", "b1"], ["red"]])
    assert shares.shape == (3, 22)
    assert np.allclose(shares.sum(axis=1), 1)
    assert len(enlarged.similar_items("red", 3)[0]) == 3
    assert len(enlarged.slate(["r0", "red"], 5)[0]) == 5
    assert enlarged.recommend(["red", "blue"], 3)[0].shape == (3,)
    assert np.isfinite(enlarged.score_samples([["red", "r1"]])).all()
    assert enlarged.item_counts_[-2:].tolist() == [0, 0]
    enlarged.save(tmp_path / "model.safetensors")
    again = cd.load(tmp_path / "model.safetensors")
    queries = [["r0", "r1"], ["b0", "red"], ["blue"]]
    assert (again.predict_next(queries) == enlarged.predict_next(queries)).all()
    assert again.explained_ == pytest.approx(enlarged.explained_, nan_ok=True)
    again.add_items(["late"], {"late": {"world": "r"}})
    assert len(again.items_) == 23


def test_a_new_item_belongs_where_its_features_say(conditional):
    model = cd.ConditionalDPP(kernel(), n_jobs=1, random_state=0).fit(worlds(), item_features=FEATURES)
    model.add_items(["red", "blue"], {"red": {"world": "r", "rank": 1.0}, "blue": {"world": "b", "rank": 1.0}})
    red, blue = model.predict_next([["r0", "r1"], ["b0", "b1"]])[:, -2:].T
    assert red[0] > 5 * red[1]
    assert blue[1] > 5 * blue[0]
    world = [WORLDS[item] for item in model.recommend(["red"], 3)[0]]
    assert world == ["r", "r", "r"]
    assert all(item.startswith("r") for item in model.complements("red", 3)[0])
    before = conditional.predict_next([["r0", "r1"]])[0]
    after = model.predict_next([["r0", "r1"]])[0, :-2]
    assert np.allclose(before / before.sum(), after / after.sum())  # the others keep their proportions


def test_features_that_predict_sales_set_the_popularity(conditional):
    assert conditional.explained_["popularity"] > 0.5
    assert conditional.explained_["rank"] > 60
    model = kernel().fit(worlds(), item_features=FEATURES)
    model.add_items(["hit", "flop"], {"hit": {"world": "r", "rank": 0.0}, "flop": {"world": "r", "rank": 9.0}})
    hit, flop = model.dpp.squared_norms[-2:]
    assert hit > 2 * flop


def test_explanations_add_up_for_new_items_too(with_new_items):
    for basket, item in ((["r0", "r2"], "red"), (["red", "r2"], "r1"), (["red"], "blue"), ([], "red")):
        explained = with_new_items.explain(basket, item)
        expected = np.log(with_new_items.predict_next([basket])[0, with_new_items.items_.code(item)])
        assert explained.log_probability == pytest.approx(expected)


def test_several_items_are_explained_as_each_alone(with_new_items):
    queries = ["r1", "red", "b0"]
    for explained, item in zip(with_new_items.explain_each(["r0", "r2"], queries), queries, strict=True):
        np.testing.assert_allclose(explained.parts, with_new_items.explain(["r0", "r2"], item).parts, atol=1e-12)


def test_leaving_out_one_by_one_agrees_with_asking(with_new_items):
    sets = cd.Baskets.from_lists([["red", "r0", "r1"], ["b0", "b1"]], items=with_new_items.items_).sets
    each = next_logits(with_new_items, sets, leave_one_out=True)
    rests = [["r0", "r1"], ["red", "r1"], ["red", "r0"], ["b1"], ["b0"]]
    plain = next_logits(with_new_items, cd.Baskets.from_lists(rests, items=with_new_items.items_).sets)
    assert np.allclose(each - each.mean(axis=1, keepdims=True), plain - plain.mean(axis=1, keepdims=True))


def test_what_features_say_fades_as_sales_arrive():
    model = cd.ConditionalDPP(kernel(), n_jobs=1, random_state=0).fit(worlds(), item_features=FEATURES)
    model.add_items(["odd"], {"odd": {"world": "r", "rank": 5.0}})  # it says red, but sells with blue ones
    places = [model.recommend(["b0", "b1"], 25)[0].tolist().index("odd")]
    shares = [model.cold_start_.cold_share[-1]]
    for k in range(2):
        model.partial_fit([["odd", f"b{j}", "b1"] for j in (0, 2, 3, 4, 5)] * (1 + 3 * k))
        places.append(model.recommend(["b0", "b1"], 25)[0].tolist().index("odd"))
        shares.append(
            dict(zip(model.cold_start_.codes.tolist(), model.cold_start_.cold_share.tolist(), strict=True)).get(20, 0)
        )
    assert places[0] >= places[1] > places[2]
    assert shares[0] == 1.0
    assert shares[0] > shares[1] > shares[2]


def test_items_that_came_with_sales_only_go_on_without_features(conditional, tmp_path):
    model = cd.ConditionalDPP(kernel(), n_jobs=1, random_state=0).fit(worlds(200), item_features=FEATURES)
    model.partial_fit([["new", "r0", "r1"]] * 5)
    assert np.isfinite(model.predict_next([["new"], ["r0"]])).all()
    model.save(tmp_path / "model.safetensors")
    assert (cd.load(tmp_path / "model.safetensors").predict_next(["new"]) == model.predict_next(["new"])).all()


def test_slates_know_where_new_items_stand():
    model = cd.ConditionalDPP(kernel(), n_jobs=1, random_state=0).fit(worlds(), item_features=FEATURES)
    table = np.eye(len(model.items_), 4, dtype=np.float32)
    model._set_similarity(Similarity(np.arange(len(model.items_)), table))
    model.add_items(["red"], {"red": {"world": "r", "rank": 0.0}})
    model.partial_fit([["r0", "unheard of"]])
    vectors = model.similarity_.table
    assert len(vectors) == 22
    assert np.linalg.norm(vectors[20]) == pytest.approx(np.sqrt(WEIGHTS["interchange"]), rel=1e-5)
    assert not vectors[21].any()  # nowhere
    assert len(model.slate(["r0"], 5)[0]) == 5


def test_an_item_without_features_is_a_usual_one(conditional):
    model = cd.ConditionalDPP(kernel(), n_jobs=1, random_state=0).fit(worlds(200), item_features=FEATURES)
    model.add_items(["mystery"], {"mystery": None}).add_items(["riddle"], None)
    share = model.predict_next(["r0"])[-1]
    assert 0 < share < 0.5
    assert np.isfinite(model.predict_next(["mystery"])).all()


def test_features_alone_change_no_item_that_sells_unless_they_help(conditional):
    plain = cd.ConditionalDPP(kernel(), n_jobs=1, random_state=0).fit(worlds())
    if conditional.explained_["decay"] == 0:
        assert np.allclose(plain.predict_next(worlds(5)), conditional.predict_next(worlds(5)))
    assert plain.weights_ == conditional.weights_


def test_the_same_on_one_thread_and_two():
    one, two = (
        cd.ConditionalDPP(kernel(), n_jobs=jobs, random_state=0).fit(worlds(200), item_features=FEATURES)
        .add_items(["red"], {"red": {"world": "r"}}).predict_next(worlds(3)) for jobs in (1, 2)
    )  # fmt: skip
    assert (one == two).all()


def test_neighbors_are_the_nearest_that_sell():
    features = ItemFeatures.learn(
        {k: [np.cos(k / 10), np.sin(k / 10)] for k in range(20)}, cd.Baskets.from_lists([range(20)]).items
    )
    counts = np.full(20, 100.0)
    counts[11] = 0.0
    alike = nearest_neighbors(features.matrix.take([10]), features.matrix, counts, np.array([10]))
    assert alike.codes[0, 0] == 9
    assert {*alike.codes[0, 1:3].tolist()} == {8, 12}
    assert alike.weights.sum() == pytest.approx(1)
    assert 10 not in alike.codes[0][alike.weights[0] > 0]


def test_features_that_say_nothing_of_sales_predict_the_mean():
    rng = np.random.default_rng(0)
    items = cd.Baskets.from_lists([range(60)]).items
    sales = fit_popularity(
        ItemFeatures.learn(rng.normal(size=(60, 3)), items).matrix, rng.integers(1, 100, 60).astype(float)
    )
    assert sales.explained < 0.05
    assert np.ptp(sales.log_popularity) < 1


@pytest.mark.parametrize(
    ("ids", "features", "error", "words"),
    [
        (["r0"], {"r0": {"world": "r"}}, DataError, "in the model already"),
        (["x", "x"], None, DataError, "distinct"),
        ("x", {}, DataError, "list of ids"),
        ([None], {}, DataError, "cannot be the id"),
        (["x"], {"x": {"color": "red"}}, DataError, "no feature 'color'"),
        (["x"], [[1.0]], ParameterError, "in the same way"),
    ],
)
def test_what_cannot_be_added_changes_nothing(conditional, ids, features, error, words):
    before = conditional.predict_next(["r0"])
    with pytest.raises(error, match=words):
        conditional.add_items(ids, features)
    assert (conditional.predict_next(["r0"]) == before).all()


def test_models_without_features_say_what_they_need():
    with pytest.raises(NotFittedError):
        cd.ConditionalDPP().add_items(["x"], {})
    with pytest.raises(ParameterError, match="fitted with item_features"):
        cd.LowRankDPP.from_factors(np.eye(3)).add_items(["x"], {})
    with pytest.raises(ParameterError, match="rows, but there are"):
        kernel().fit(worlds(), item_features=np.zeros((3, 2)))
    with pytest.raises(ParameterError, match="item_features"):
        kernel().fit(worlds(), item_features=FEATURES, engine="ray")


def test_a_damaged_file_of_newcomers_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    model = cd.ConditionalDPP(kernel(), n_jobs=1, random_state=0).fit(worlds(200), item_features=FEATURES)
    model.add_items(["x", "y"], dict.fromkeys("xy", FEATURES["r0"])).save(path)
    tensors, info = files.read_model(path)
    assert info["version"] == files.VERSION
    for name in ("cold_start.neighbors", "cold_start.cold_weights", "features.log_popularity"):
        files.write_model(path, tensors | {name: tensors[name][:1]}, info)
        with pytest.raises(ModelFileError):
            cd.load(path)
    files.write_model(path, tensors | {"cold_start.neighbor_weights": -tensors["cold_start.neighbor_weights"]}, info)
    with pytest.raises(ModelFileError, match="new items"):
        cd.load(path)
    files.write_model(path, {name: part for name, part in tensors.items() if name != "item_counts"}, info)
    with pytest.raises(ModelFileError, match="counts"):
        cd.load(path)


@pytest.mark.parametrize("name", MODELS)
def test_before_fit_there_is_nothing_to_add_to(name):
    with pytest.raises(NotFittedError):
        MODELS[name]().add_items(["red"], {"red": {"world": "r"}})


def test_a_basket_of_one_newcomer_that_is_like_nothing_is_explained():
    shop = cd.Baskets.from_lists([[k % 20, (k + 2) % 20, (3 * k) % 20] for k in range(200)], items=range(20))
    model = cd.ConditionalDPP(kernel(), n_jobs=1, random_state=0).fit(shop, item_features=np.eye(3)[np.arange(20) % 2])
    model.add_items(["new"], np.zeros((1, 3)))
    why = model.explain(["new"], 3)
    assert why.log_probability == pytest.approx(np.log(model.predict_next(["new"])[3]))
