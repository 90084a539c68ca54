"""Search finds by start, then by part; the map has a place for everything it is asked for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contradpp.serve import schemas
from contradpp.serve.served import Search


def names_of(live, **query) -> list[str]:
    return [one["name"] for one in live.get("/v1/items", **query).json()["items"]]


def test_those_that_start_with_the_words_come_before_those_that_contain_them(live):
    found = names_of(live, query="MILK", limit=20)
    starts = [name.startswith("milk") for name in found]
    assert starts == sorted(starts, reverse=True)
    assert any(starts)
    assert not all(starts)
    assert all("milk" in name for name in found)


def test_an_empty_search_shows_the_most_common(live, shop_model):
    common = np.argsort(-shop_model.marginals())[:5]
    assert names_of(live, limit=5) == [shop_model.items_[int(code)] for code in common]


def test_a_search_without_hits_is_an_empty_list(live):
    assert live.get("/v1/items", query="xyzzy").json() == {"items": [], "more": False}


def test_the_limit_is_kept_and_more_is_told(live):
    answer = live.get("/v1/items", query="a", limit=3).json()
    assert len(answer["items"]) == 3
    assert answer["more"] is True


WORDS = st.text(alphabet="abAB \nß", max_size=6)


@given(labels=st.lists(WORDS, min_size=1, max_size=12), query=WORDS, limit=st.integers(1, 5))
def test_search_agrees_with_looking_at_every_name(labels, query, limit):
    weights = np.arange(len(labels), dtype=float)[::-1]  # the first is the weightiest
    found = Search([[label] for label in labels], weights).find(query, limit)

    def fold(text: str) -> str:
        return " ".join(text.casefold().split())

    starting = [code for code, label in enumerate(labels) if fold(label).startswith(fold(query))]
    containing = [code for code, label in enumerate(labels) if fold(query) in fold(label)]
    expected = list(dict.fromkeys(starting + containing))
    assert found.codes == expected[:limit]
    assert found.more == (len(expected) > limit)


def test_the_map_holds_the_asked_items_too(live, shop_model):
    rare = shop_model.items_[len(shop_model.items_) - 1]
    answer = live.get("/v1/map", items=[rare, "who?"], limit=20).json()
    assert len(answer["points"]) == 20
    assert answer["points"][0]["item"] == rare
    assert answer["unknown"] == ["who?"]
    assert all(-1 <= point[axis] <= 1 for point in answer["points"] for axis in "xy")
    schemas.MapAnswer.model_validate(answer)
    assert live.get("/v1/map", items=[rare], limit=20).json()["points"] == answer["points"]
