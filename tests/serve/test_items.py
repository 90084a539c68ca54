"""New items over HTTP: they are served at once, and stay in the file."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd

FEATURES = {f"{colour}{k}": {"world": colour, "rank": float(k)} for colour in "rb" for k in range(8)}


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
    asked = {"basket": ["red", "r1"], "n": 20, "why": True}
    suggested = [one["item"] for one in server.post("/v1/recommend", asked).json()["results"][0]["suggestions"]]
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
        [{"item": "x", "features": {"colour": "red"}}],
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
