"""What the service answers is what the model says, in the service's shape."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import contradpp as cd
from contradpp.cli.main import main
from contradpp.errors import ContradppError
from contradpp.serve import schemas

BASKET = ["bananas", "spaghetti", "parmesan"]


@pytest.mark.parametrize(("name", "more"), [("recommend", {}), ("slate", {"diversity": 0.7, "exclude": ["limes"]})])
def test_suggestions_are_what_the_model_says(live, shop_model, name, more):
    answer = live.post(f"/v1/{name}", {"basket": BASKET, "n": 5, **more}).json()
    items, shares = getattr(shop_model, name)(BASKET, N=5, **more)
    (result,) = answer["results"]
    assert [one["item"] for one in result["suggestions"]] == items.tolist()
    assert np.allclose([one["probability"] for one in result["suggestions"]], shares)
    assert (result["unknown"], result["problem"]) == ([], None)
    schemas.RecommendAnswer.model_validate(answer)


@pytest.mark.parametrize("name", ["recommend", "slate"])
def test_many_baskets_have_an_answer_each_and_a_full_one_does_not_spoil_the_others(live, shop_model, name):
    full = list(shop_model.items_)[:12]
    baskets = [BASKET, [], full, ["bananas", "no such thing", 17]]
    results = live.post(f"/v1/{name}", {"baskets": baskets, "n": 4}).json()["results"]
    assert [one["unknown"] for one in results] == [[], [], [], ["no such thing", 17]]
    assert [len(one["suggestions"]) for one in results] == [4, 4, 0, 4]
    assert [bool(one["problem"]) for one in results] == [False, False, True, False]
    alone, _ = getattr(shop_model, name)(["bananas"], N=4)
    assert [one["item"] for one in results[3]["suggestions"]] == alone.tolist()


@pytest.mark.parametrize(
    ("candidates", "found"), [(["bin bags", "limes", "unheard of"], ["bin bags"]), (["unheard of"], [])]
)
def test_candidates_and_exclude(live, candidates, found):
    body = {"basket": BASKET, "candidates": candidates, "exclude": ["limes"]}
    (result,) = live.post("/v1/recommend", body).json()["results"]
    assert [one["item"] for one in result["suggestions"]] == found


def test_score_is_log_p_and_null_when_impossible(live, shop_model):
    everything = list(shop_model.items_)[:20]
    answer = live.post("/v1/score", {"baskets": [BASKET, everything, ["zzz"]]}).json()
    logs = [one["log_probability"] for one in answer["results"]]
    assert logs[0] == pytest.approx(float(shop_model.score_samples(BASKET)))
    assert logs[1] is None
    assert logs[2] == pytest.approx(float(shop_model.score_samples([])))
    schemas.ScoreAnswer.model_validate(answer)


def test_sample_contains_the_given_and_has_the_size_and_repeats_with_its_seed(live):
    body = {"given": ["limes", "who?"], "size": 5, "n_samples": 3, "seed": 4}
    answer = live.post("/v1/sample", body).json()
    assert answer["unknown"] == ["who?"]
    assert [len(one) for one in answer["results"]] == [5, 5, 5]
    assert all(one[0]["item"] == "limes" for one in answer["results"])
    assert live.post("/v1/sample", body).json()["results"] == answer["results"]
    schemas.SampleAnswer.model_validate(answer)


def test_sample_beyond_the_rank_says_so(live):
    answer = live.post("/v1/sample", {"size": 13}).json()
    assert answer["results"] == []
    assert "13" in answer["problem"]


# -- Completion ----------------------------------------------------------------------------------


BASKETS = [["tea", "milk"], ["tea", "milk", "sugar"], ["pasta", "sauce"], ["pasta", "sauce", "cheese"]] * 20
MODELS = {
    "lowrank": cd.LowRankDPP(5, max_iter=3, random_state=0),
    "nonsymmetric": cd.NonsymmetricDPP(4, 4, max_iter=3, random_state=0),
    "conditional": cd.ConditionalDPP(random_state=0, n_jobs=1),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("basket", [[], ["pasta"], ["milk", "cheese"]])
def test_completion_is_the_models_own(start, kind, basket):
    model = MODELS[kind].fit(BASKETS)
    server = start(model)
    answer = server.post("/v1/complete", {"basket": basket, "size": 4}).json()
    whole = model.complete(basket, 4)
    added = [one["item"] for one in answer["suggestions"]]
    assert basket + added == whole
    assert answer["problem"] is None
    assert answer["log_probability"] == pytest.approx(float(model.score_samples(whole)))
    chances = model.predict_next(basket)[model.items_.codes(added)]
    assert np.allclose([one["probability"] for one in answer["suggestions"]], chances)
    schemas.CompleteAnswer.model_validate(answer)
    among = {"candidates": ["tea", "sauce", "sugar"], "exclude": ["sugar"]}
    answer = server.post("/v1/complete", {"basket": basket, "n": 1, **among}).json()
    assert [one["item"] for one in answer["suggestions"]] == model.complete(basket, len(basket) + 1, **among)[-1:]


def test_a_twin_of_an_item_is_never_added(start):
    factors = np.array([[1.0, 0.0], [1.0, 0.0], [0.2, 0.5]])
    server = start(cd.LowRankDPP.from_factors(factors, items=["a", "a again", "b"]))
    answer = server.post("/v1/complete", {"basket": ["a"], "n": 2}).json()
    assert [one["item"] for one in answer["suggestions"]] == ["b"]
    assert answer["problem"]


def test_completion_ends_where_candidates_or_the_rank_do_and_says_so(live, shop_model):
    among = {"candidates": ["bin bags", "limes", "unheard of"], "exclude": ["limes", "nothing"]}
    answer = live.post("/v1/complete", {"basket": BASKET, "n": 5, **among}).json()
    assert [one["item"] for one in answer["suggestions"]] == ["bin bags"]
    assert answer["problem"] == "only 1 items can be added to this basket"
    answer = live.post("/v1/complete", {"basket": BASKET, "n": 40, "exclude": ["bananas", "limes"]}).json()
    assert len(answer["suggestions"]) == 12 - len(BASKET)
    assert "limes" not in {one["item"] for one in answer["suggestions"]}
    assert answer["problem"] == "only 9 items can be added to this basket"
    answer = live.post("/v1/complete", {"basket": list(shop_model.items_)[:30]}).json()
    assert (answer["suggestions"], answer["log_probability"]) == ([], None)
    assert "at most 12 items" in answer["problem"]


def test_a_size_below_the_basket_is_refused(live):
    response = live.post("/v1/complete", {"basket": BASKET, "size": 2})
    assert response.status_code == 422
    assert "size=2" in response.json()["error"]["message"]


# -- Ids -----------------------------------------------------------------------------------------


def test_integer_ids_are_found_by_number_and_by_text(start):
    server = start(cd.LowRankDPP.from_factors(np.eye(4), items=[10, 20, 30, 40]))
    for basket in ([10], ["10"], [10, "10"]):
        (result,) = server.post("/v1/recommend", {"basket": basket}).json()["results"]
        assert {one["item"] for one in result["suggestions"]} == {20, 30, 40}
        assert result["unknown"] == []
    (result,) = server.post("/v1/recommend", {"basket": ["1O", "010", -10, 10**30]}).json()["results"]
    assert result["unknown"] == ["1O", -10, 10**30]


def test_text_ids_that_look_like_numbers_are_found_by_number_unless_the_number_is_an_id_too(start):
    server = start(cd.LowRankDPP.from_factors(np.eye(3), items=["10", "20", 20]))
    found = server.post("/v1/score", {"baskets": [[10], ["20", 20]]}).json()["results"]
    assert [one["unknown"] for one in found] == [[], []]
    (left,) = server.post("/v1/recommend", {"basket": [20]}).json()["results"]
    assert [one["item"] for one in left["suggestions"]] == ["10", "20"]


def test_ids_that_json_cannot_name_go_by_their_text(start):
    server = start(cd.LowRankDPP.from_factors(np.eye(3), items=[("red", 1), 2.5, "plain"]))
    (result,) = server.post("/v1/recommend", {"basket": ["2.5"]}).json()["results"]
    assert {one["item"] for one in result["suggestions"]} == {"('red', 1)", "plain"}


def test_names_travel_with_ids(start):
    model = cd.LowRankDPP.from_factors(np.eye(3), items=[1, 2, 3])
    model.items_ = model.items_.with_names({2: "Milk", 3: "Half a \ud800 pair"})
    server = start(model)
    assert server.get("/v1/items", query="milk").json()["items"][0]["item"] == 2
    (result,) = server.post("/v1/recommend", {"basket": [1]}).json()["results"]
    assert {one["name"] for one in result["suggestions"]} == {"Milk", "Half a \ud800 pair"}


def test_names_are_found_as_ids_are_the_most_sold_first(start):
    train = cd.Baskets.from_lists([[1, 4], [2, 4], [2, 3]] * 20).with_names({1: "Tea", 2: "tea", 3: "Milk"})
    server = start(cd.LowRankDPP(3, random_state=0, max_iter=2).fit(train))
    (result,) = server.post("/v1/recommend", {"basket": ["TEA", "milk", "jam"]}).json()["results"]
    assert result["unknown"] == ["jam"]
    assert {one["item"] for one in result["suggestions"]} == {1, 4}  # the basket is 2 and 3


# -- Properties ----------------------------------------------------------------------------------

ITEMS = st.sampled_from(
    ["bananas", "spaghetti", "parmesan", "limes", "bin bags", "tissues", "nothing", "", "\ud83d", 5]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(baskets=st.lists(st.lists(ITEMS, max_size=8), max_size=4), n=st.integers(1, 20), exclude=st.lists(ITEMS))
def test_suggestions_are_new_known_ordered_and_as_many_as_asked(live, baskets, n, exclude):
    results = live.post("/v1/recommend", {"baskets": baskets, "n": n, "exclude": exclude}).json()["results"]
    assert len(results) == len(baskets)
    for basket, result in zip(baskets, results, strict=True):
        found = [one["item"] for one in result["suggestions"]]
        shares = [one["probability"] for one in result["suggestions"]]
        assert not {*found} & {*basket, *exclude}
        assert len({*found}) == n
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 1 + 1e-9
        assert [*dict.fromkeys(result["unknown"])] == [
            one for one in dict.fromkeys(basket) if one in ("nothing", "", "\ud83d", 5)
        ]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(basket=st.lists(ITEMS, max_size=6), n=st.integers(0, 14))
def test_a_completed_set_is_possible(live, basket, n):
    answer = live.post("/v1/complete", {"basket": basket, "n": n}).json()
    added = [one["item"] for one in answer["suggestions"]]
    assert len(added) == len({*added} - {*basket})
    assert answer["log_probability"] is not None
    assert (len(added) == n) == (answer["problem"] is None)


# -- Slates ------------------------------------------------------------------------------------------


def test_a_slate_that_is_short_says_so(live):
    (result,) = live.post("/v1/slate", {"basket": BASKET, "candidates": ["limes", "bin bags"]}).json()["results"]
    assert "only 2 items" in result["problem"]


def test_caps_need_categories(live, start, shop_model):
    assert live.post("/v1/slate", {"basket": BASKET, "at_most": 1}).status_code == 422
    shelves = {item: "long" if len(item) > 8 else "short" for item in shop_model.items_}
    items = cd.Vocabulary(list(shop_model.items_), categories=shelves)
    server = start(cd.LowRankDPP.from_factors(shop_model.item_factors_, items=items))
    (result,) = server.post("/v1/slate", {"basket": BASKET, "at_most": {"long": 1}, "n": 5}).json()["results"]
    assert sum(len(one["item"]) > 8 for one in result["suggestions"]) <= 1


def test_rerank_with_vectors_and_with_the_model(live, shop_model):
    body = {"candidates": ["a", "b", 3], "scores": [3, 2, 1], "vectors": [[1, 0], [1, 0.01], [0, 1]], "k": 2}
    answer = live.post("/v1/rerank", body).json()
    assert answer["slate"] == [
        {"item": "a", "position": 0, "score": 3.0}, {"item": 3, "position": 2, "score": 1.0},
    ]  # fmt: skip
    assert (answer["unknown"], answer["problem"]) == ([], None)
    schemas.RerankAnswer.model_validate(answer)
    items = ["bananas", "limes", "spaghetti", "bin bags", "parmesan"]
    body = {"candidates": [*items, "who?"], "scores": [6, 5, 4, 3, 2, 1], "k": 4, "unknown": "ignore"}
    answer = live.post("/v1/rerank", body).json()
    expected = cd.rerank([*items, "who?"], [6, 5, 4, 3, 2, 1], 4, kernel=shop_model, unknown="ignore")[0]
    assert [one["item"] for one in answer["slate"]] == expected.tolist()
    assert answer["unknown"] == ["who?"]


def test_rerank_keeps_rules_and_tells_why_it_is_short(live):
    body = {"candidates": ["bananas", "limes", "salt"], "scores": [3, 2, 1], "categories": ["f", "f", None]}
    body["unknown"] = "ignore"
    answer = live.post("/v1/rerank", body | {"at_most": 1, "given": ["salt"]}).json()
    assert [one["item"] for one in answer["slate"]] == ["bananas"]
    assert answer["problem"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"scores": [1]}, {"candidates": ["secret", "secret"]}, {"at_least": {"secret": 3}, "categories": ["x", "y"]},
        {"at_most": 1}, {"vectors": [[1.0], [1.0, 2.0]]}, {"vectors": [[1e300], [1.0]]}, {"k": 501}, {"diversity": 1.5},
        {"scores": [-1, 2], "scale": "log"}, {"categories": ["secret"]},
    ],
)  # fmt: skip
def test_a_rerank_that_cannot_be_is_refused_without_repeating_it(live, wrong):
    response = live.post("/v1/rerank", {"candidates": ["secret", "other"], "scores": [2, 1]} | wrong)
    assert response.status_code == 422
    assert "secret" not in response.text


LISTED = {"candidates": ["bananas", "limes", "spaghetti", "bin bags", "parmesan"], "scores": [0.9, 0.8, 0.7, 0.6, 0.5]}
KINDS = {"bananas": "fruit", "limes": "fruit", "spaghetti": "pasta", "who?": "fruit"}
POINTS = {"bananas": [1, 0], "limes": [1, 0.01], "spaghetti": [0, 1], "bin bags": [0.1, 1], "parmesan": [1, 1]}


@pytest.mark.parametrize(
    "more",
    [
        {}, {"k": 2}, {"diversity": 0.95}, {"scale": "log"}, {"method": "mmr"}, {"given": ["tissues", "limes"]},
        {"method": "window", "window_size": 1, "diversity": 0.9}, {"categories": KINDS, "at_most": 1},
        {"categories": ["fruit", "fruit", "pasta", None, None], "at_least": {"pasta": 1}, "k": 1},
        {"categories": KINDS, "at_most": {"fruit": 1}, "at_least": {"pasta": 1}}, {"categories": KINDS, "window": 2},
        {"fixed": {"parmesan": 0}}, {"vectors": list(POINTS.values())}, {"vectors": POINTS, "given": ["who?"]},
        {"vectors": POINTS, "given": ["who?"], "unknown": "ignore"}, {"given": ["who?"]},
        {"given": ["who?"], "unknown": "ignore"}, {"at_most": 1}, {"categories": KINDS, "at_least": {"drinks": 1}},
        {"candidates": ["bananas", "who?"], "scores": [2, 1]}, {"candidates": ["limes"] * 2, "scores": [2, 1]},
        {"candidates": ["bananas", "who?"], "scores": [2, 1], "unknown": "ignore"},
    ],
    ids=repr,
)  # fmt: skip
def test_rerank_means_the_same_in_python_on_the_command_line_and_over_http(live, shop_model, tmp_path, capsys, more):
    question = {**LISTED, **more}
    response = live.post("/v1/rerank", question)
    over_http = (
        [one["item"] for one in response.json()["slate"]] if response.status_code == 200 else response.status_code
    )

    given = dict(question)
    window_size = given.pop("window_size", 5)
    if given.get("method") == "window":
        given["method"] = cd.SlidingWindow(window_size)
    names = ("categories", "at_most", "at_least", "window", "fixed")
    rules = cd.SlateRules(**{name: given.pop(name) for name in names if name in given})
    kernel = None if "vectors" in given else shop_model
    try:
        in_python = cd.rerank(**given, kernel=kernel, rules=rules)[0].tolist()
    except ContradppError:
        in_python = 422

    parts = ("candidates", "scores", "vectors", "categories", "given", "fixed")
    (tmp_path / "lists.jsonl").write_text(json.dumps({name: question.pop(name) for name in parts if name in question}))
    words = [] if kernel is None else ["--model", str(live.model_path)]
    for name, value in question.items():
        values = [f"{key}={n}" for key, n in value.items()] if isinstance(value, dict) else [value]
        option = "-k" if name == "k" else f"--{name.replace('_', '-')}"
        words += [word for one in values for word in (option, str(one))]
    with pytest.raises(SystemExit):
        main(["rerank", str(tmp_path / "lists.jsonl"), *words])
    on_the_command_line = json.loads(capsys.readouterr().out).get("items", 422)
    assert over_http == in_python == on_the_command_line


# -- A model that says why -----------------------------------------------------------------------------------


def test_suggestions_come_with_reasons_and_by_lift(start, live):
    lists = [["tea", "milk"], ["tea", "milk", "sugar"], ["pasta", "sauce"], ["pasta", "sauce", "cheese"]] * 20
    server = start(cd.ConditionalDPP(random_state=0, n_jobs=1).fit(lists))
    for path in ("/v1/recommend", "/v1/slate"):
        (found,) = server.post(path, {"basket": ["pasta", "cheese"], "n": 2, "why": True}).json()["results"]
        first = found["suggestions"][0]
        assert first["item"] == "sauce"
        assert {reason["item"] for reason in first["because"]} == {"pasta", "cheese"}
        assert first["popular"] in (True, False)
        assert first["lift"] == pytest.approx(first["probability"] / (40 / 200))
    (plain,) = server.post("/v1/recommend", {"basket": ["pasta"], "n": 2}).json()["results"]
    assert plain["suggestions"][0].get("because") is None
    for rank_by in ("lift", 0.5):
        (found,) = server.post("/v1/recommend", {"basket": ["pasta"], "rank_by": rank_by}).json()["results"]
        assert {one["item"] for one in found["suggestions"]} == {"tea", "milk", "sugar", "sauce", "cheese"}
    assert server.post("/v1/recommend", {"basket": ["pasta"], "rank_by": 2}).status_code == 422
    (found,) = live.post("/v1/recommend", {"basket": [], "why": True}).json()[
        "results"
    ]  # a kernel alone has no experts
    assert found["suggestions"][0].get("because") is None
