"""Search, the map, and new items, which are served at once and stay in the file."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contradpp as cd
from contradpp.serve import schemas
from contradpp.serve.snapshot import Search


def names_of(live, **query) -> list[str]:
    return [one["name"] for one in live.get("/v1/items", **query).json()["items"]]


def test_those_that_start_with_the_words_come_before_those_that_contain_them(live):
    found = names_of(live, query="MILK", limit=20)
    starts = [name.startswith("milk") for name in found]
    assert starts == sorted(starts, reverse=True)
    assert any(starts)
    assert not all(starts)
    assert all("milk" in name for name in found)


def test_a_search_keeps_its_limit_and_tells_of_more(live, shop_model):
    common = np.argsort(-shop_model.marginals())[:5]
    assert names_of(live, limit=5) == [shop_model.items_[int(code)] for code in common]
    answer = live.get("/v1/items", query="a", limit=3).json()
    assert len(answer["items"]) == 3
    assert answer["more"] is True
    assert live.get("/v1/items", query="xyzzy").json() == {"items": [], "more": False}


WORDS = st.text(alphabet="abAB \nß", max_size=6)


@given(labels=st.lists(WORDS, min_size=1, max_size=12), query=WORDS, limit=st.integers(1, 5))
def test_search_agrees_with_looking_at_every_name(labels, query, limit):
    weights = np.arange(len(labels), dtype=float)[::-1]  # the first is the weightiest
    codes, more = Search([[label] for label in labels], weights).find(query, limit)

    def fold(text: str) -> str:
        return " ".join(text.casefold().split())

    starting = [code for code, label in enumerate(labels) if fold(label).startswith(fold(query))]
    containing = [code for code, label in enumerate(labels) if fold(query) in fold(label)]
    expected = list(dict.fromkeys(starting + containing))
    assert codes == expected[:limit]
    assert more == (len(expected) > limit)


def test_the_map_holds_the_asked_items_too(live, shop_model):
    rare = shop_model.items_[len(shop_model.items_) - 1]
    answer = live.get("/v1/map", items=[rare, "who?"], limit=20).json()
    assert len(answer["points"]) == 20
    assert answer["points"][0]["item"] == rare
    assert answer["unknown"] == ["who?"]
    assert all(-1 <= point[axis] <= 1 for point in answer["points"] for axis in "xy")
    schemas.MapAnswer.model_validate(answer)
    assert live.get("/v1/map", items=[rare], limit=20).json()["points"] == answer["points"]


# -- New items -----------------------------------------------------------------------------------

FEATURES = {f"{color}{k}": {"world": color, "rank": float(k)} for color in "rb" for k in range(8)}


@pytest.fixture(scope="module")
def model() -> cd.ConditionalDPP:
    rng = np.random.default_rng(0)
    baskets = [[f"{'rb'[n % 2]}{k}" for k in rng.choice(8, size=3, replace=False)] for n in range(200)]
    kernel = cd.NonsymmetricDPP(4, 4, max_iter=2)
    return cd.ConditionalDPP(kernel, n_jobs=1, random_state=0).fit(baskets, item_features=FEATURES)


def test_a_new_item_is_served_at_once_and_kept(start, model):
    server = start(model=model)
    before = server.get("/v1/model").json()
    new = {"item": "red", "features": {"world": "r", "rank": 1}, "name": "Red thing", "category": "things"}
    answer = server.post("/v1/items", {"items": [new, {"item": "plain"}]}).json()
    assert answer["added"] == 2
    assert answer["n_items"] == before["n_items"] + 2
    assert answer["model"] == server.get("/v1/model").json()["version"] != before["version"]
    (found,) = server.get("/v1/items", query="red th").json()["items"]
    assert (found["item"], found["name"]) == ("red", "Red thing")
    body = {"basket": ["red", "r1"], "n": 20, "why": True}
    suggested = [one["item"] for one in server.post("/v1/recommend", body).json()["results"][0]["suggestions"]]
    assert "plain" in suggested
    stored = cd.load(server.model_path)
    assert list(stored.items_)[-2:] == ["red", "plain"]
    assert stored.items_.categories["red"] == "things"


@pytest.mark.parametrize(
    "items",
    [
        [],
        [{"item": "r0", "features": {"world": "r"}}],
        [{"item": "x"}, {"item": "x"}],
        [{"item": "x", "features": {"color": "red"}}],
        [{"item": "x", "features": [1.0, 2.0]}],
        [{"item": "x", "weight": 3}],
        [{"item": None}],
    ],
)
def test_what_cannot_be_added_is_refused(start, model, items):
    server = start(model=model)
    response = server.post("/v1/items", {"items": items})
    assert response.status_code == 422
    assert response.json()["error"]["message"]
    assert len(cd.load(server.model_path).items_) == len(model.items_)


def test_adding_asks_for_the_token(start, model):
    server = start(model=model, token="secret")
    body = {"items": [{"item": "x"}]}
    assert server.post("/v1/items", body).status_code == 401
    assert server.post("/v1/items", body, headers={"authorization": "Bearer secret"}).status_code == 200


def test_a_model_without_features_takes_no_new_items(live):
    response = live.post("/v1/items", {"items": [{"item": "x", "features": {"a": 1}}]})
    assert response.status_code == 422
    assert "item_features" in response.json()["error"]["message"]
