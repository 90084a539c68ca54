"""Earlier baskets of a customer in requests."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.serve import schemas
from contradpp.serve.options import Limits

HISTORY = [["p1", "p2"], ["p2", "no such thing"], ["p2"]]


@pytest.fixture(scope="module")
def model() -> cd.ConditionalDPP:
    rng = np.random.default_rng(0)
    lists = [[f"p{code}" for code in {1 + n % 5, *rng.choice(20, 3).tolist()}] for n in range(300)]
    orders = cd.Baskets.from_lists(lists, customers=[n % 60 for n in range(300)])
    return cd.ConditionalDPP(cd.LowRankDPP(4, max_iter=3), random_state=0, n_jobs=1).fit(orders)


@pytest.mark.parametrize("name", ["recommend", "slate"])
@pytest.mark.parametrize("new_only", [False, True])
def test_suggestions_are_what_the_model_says(start, model, name, new_only):
    live = start(model)
    body = {"basket": ["p7"], "n": 5, "history": HISTORY, "new_only": new_only, "why": True}
    answer = live.post(f"/v1/{name}", body).json()
    schemas.RecommendAnswer.model_validate(answer)
    (result,) = answer["results"]
    items, shares = getattr(model, name)(["p7"], N=5, history=HISTORY, new_only=new_only)
    assert [one["item"] for one in result["suggestions"]] == items.tolist()
    assert np.allclose([one["probability"] for one in result["suggestions"]], shares)
    assert result["unknown"] == ["no such thing"]
    bought = {one["item"]: one["bought"] for one in result["suggestions"]}
    assert bought == {item: {"p1": 1, "p2": 3}.get(item, 0) for item in items.tolist()}


def test_completion_and_the_empty_basket(start, model):
    live = start(model)
    answer = live.post("/v1/complete", {"basket": ["p7"], "n": 3, "history": HISTORY, "new_only": True}).json()
    schemas.CompleteAnswer.model_validate(answer)
    expected = model.complete(["p7"], 4, history=HISTORY, new_only=True)[1:]
    assert [one["item"] for one in answer["suggestions"]] == expected
    assert answer["unknown"] == ["no such thing"]
    (result,) = live.post("/v1/recommend", {"basket": [], "n": 3, "history": HISTORY}).json()["results"]
    assert [one["item"] for one in result["suggestions"]] == model.next_basket(HISTORY, 3)[0].tolist()
    assert live.get("/v1/model").json()["history"] is True


def test_limits_and_contradictions(start, model):
    live = start(model, limits=Limits(history=2, basket_items=3))
    for path, body, message in (
        ("/v1/recommend", {"basket": [], "history": [["p1"]] * 3}, "the length of history is more than the 2"),
        ("/v1/slate", {"basket": [], "history": [["p1"] * 4]}, "the length of"),
        ("/v1/complete", {"basket": [], "n": 1, "history": [["p1"]] * 3}, "the length of history is more than"),
        ("/v1/recommend", {"baskets": [[]], "history": [["p1"]]}, "one `basket`"),
        ("/v1/recommend", {"basket": [], "new_only": True}, "needs a `history`"),
        ("/v1/recommend", {"basket": [], "history": ["p1"]}, "history"),
    ):
        response = live.post(path, body)
        assert response.status_code == 422, body
        assert message in response.json()["error"]["message"]


def test_a_model_without_customers_refuses_a_history(live):
    response = live.post("/v1/recommend", {"basket": [], "history": [["bananas"]]})
    assert response.status_code == 422
    assert "does not use a history" in response.json()["error"]["message"]
    assert live.get("/v1/model").json()["history"] is False
