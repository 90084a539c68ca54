"""Categories, windows, fixed places: never broken, whatever the query; and what happens when fewer items are left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from contradpp import SlidingWindow
from contradpp.errors import ParameterError
from slates.cases import check, questions, rerank

ITEMS = ["tea", "mint tea", "milk", "oat milk", "bread", "rolls", "soap"]
CATEGORY = dict(zip(ITEMS, ["tea", "tea", "milk", "milk", "bread", "bread"], strict=False))  # soap has none
SCORES = [7, 6, 5, 4, 3, 2, 1]
EQUAL = np.eye(7)  # nothing is like anything: the order is that of the scores


def ask(k: int = 4, **rules) -> tuple[list[str], str | None]:
    items, _, info = rerank(ITEMS, SCORES, k, vectors=EQUAL, categories=CATEGORY, return_info=True, **rules)
    return items.tolist(), info.reason


@settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(query=questions())
def test_no_rule_is_ever_broken(query):
    """`python -m experiments speed soak slates` asks 100,000 such questions."""
    check(query)


def test_at_most_for_all_and_for_some():
    assert ask(at_most=1) == (["tea", "milk", "bread", "soap"], None)
    assert ask(at_most={"tea": 1}) == (["tea", "milk", "oat milk", "bread"], None)
    assert ask(at_most={"tea": 0, "unheard of": 3})[0] == ["milk", "oat milk", "bread", "rolls"]


def test_fewer_than_asked_are_exactly_those_and_the_reason_is_told():
    items, reason = ask(7, at_most=1)
    assert items == ["tea", "milk", "bread", "soap"]
    assert "at_most" in reason
    items, reason = ask(9)
    assert items == ITEMS
    assert reason == "there are only 7 candidates"


def test_at_least_takes_the_last_places():
    assert ask(at_least={"bread": 1}) == (["tea", "mint tea", "milk", "bread"], None)
    assert ask(at_least={"bread": 2, "milk": 1}) == (["tea", "milk", "bread", "rolls"], None)


def test_at_least_with_a_window_comes_in_time():
    assert ask(4, at_least={"bread": 2}, window=3) == (["bread", "tea", "milk", "rolls"], None)


def test_a_window_keeps_a_category_apart():
    assert ask(6, window=2)[0] == ["tea", "milk", "mint tea", "oat milk", "bread", "soap"]
    items, _ = ask(7, window=3)
    assert items[:3] == ["tea", "milk", "bread"]


def test_fixed_places_hold():
    assert ask(fixed={"soap": 0, "rolls": 2})[0] == ["soap", "tea", "rolls", "mint tea"]
    assert ask(fixed={"soap": 2}, window=2)[0] == ["tea", "milk", "soap", "mint tea"]


def test_what_is_fixed_counts_and_repels_before_it_comes():
    assert ask(at_most=1, fixed={"mint tea": 3})[0] == ["milk", "bread", "soap", "mint tea"]
    assert ask(window=2, fixed={"mint tea": 1})[0] == ["milk", "mint tea", "oat milk", "tea"]
    vectors = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    assert rerank(list("abc"), [3, 2, 1], 2, vectors=vectors, fixed={"b": 1})[0].tolist() == ["c", "b"]


def test_a_list_that_runs_short_closes_up():
    found = rerank(list("ab"), [2, 1], 6, vectors=np.eye(2), fixed={"a": 4}, return_info=True)
    assert found[0].tolist() == ["b", "a"]
    assert found[2].reason == "there are only 2 candidates"


def test_what_a_window_forbids_when_the_list_closes_up_is_left_out():
    items, _, info = rerank(
        list("ab"), [2, 1], 6, vectors=np.eye(2), categories=["x", "x"], window=3, fixed={"b": 5}, return_info=True
    )
    assert items.tolist() == ["a"]
    assert "window" in info.reason


def test_given_items_are_not_chosen_and_do_not_count():
    assert ask(given=["tea"], at_most=1)[0] == ["mint tea", "milk", "bread", "soap"]
    assert ask(7, given=["tea", "soap"])[1] == "there are only 5 candidates"


def test_rules_need_no_vectors_where_only_relevance_counts():
    items, _ = rerank(ITEMS, SCORES, 3, diversity=0, categories=[CATEGORY.get(item) for item in ITEMS], at_most=1)
    assert items.tolist() == ["tea", "milk", "bread"]


def test_categories_of_a_batch():
    lists, scores = [ITEMS[:4], ITEMS[2:]], [SCORES[:4], SCORES[2:]]
    by_mapping = rerank(lists, scores, 2, diversity=0, categories=CATEGORY, at_most=1)[0]
    each = [[CATEGORY.get(item) for item in one] for one in lists]
    by_lists = rerank(lists, scores, 2, diversity=0, categories=each, at_most=1)[0]
    assert by_mapping.tolist() == by_lists.tolist() == [["tea", "milk"], ["milk", "bread"]]
    numbers = np.array([[0, 0, 1, 1], [0, 0, 1, 1]])
    square = rerank(np.array([ITEMS[:4], ITEMS[:4]]), [SCORES[:4]] * 2, 2, diversity=0, categories=numbers, at_most=1)
    assert square[0].tolist() == [["tea", "milk"]] * 2


def test_fixed_places_of_a_batch():
    lists = [list("abc"), list("bcd")]
    found = rerank(lists, [[3, 2, 1]] * 2, 2, diversity=0, fixed=[{"c": 0}, {}])[0]
    assert found.tolist() == [["c", "a"], ["b", "c"]]
    assert rerank(lists, [[3, 2, 1]] * 2, 2, diversity=0, fixed={"c": 1})[0].tolist() == [["a", "c"], ["b", "c"]]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"at_least": {"bread": 3}}, "at_least asks for 3 of 'bread', but"),
        ({"at_least": {"cheese": 1}}, "'cheese'"),
        ({"at_least": {"bread": 2}, "at_most": 1}, "at_most"),
        ({"at_least": {"bread": 2, "tea": 2, "milk": 1}}, "more than k=4"),
        ({"at_least": {"bread": 5}}, "allows 4"),
        ({"at_least": {"bread": 2}, "window": 4}, "window"),
        ({"at_least": 2}, "mapping"),
        ({"at_most": -1}, "at_most must be an integer"),
        ({"at_most": {"tea": 1.5}}, "at_most must be an integer"),
        ({"window": 0}, "window must be an integer"),
        ({"fixed": {"tea": 4}}, "from 0 to k − 1 = 3"),
        ({"fixed": {"tea": -1}}, "from 0 to"),
        ({"fixed": {"tea": 1, "milk": 1}}, "same place"),
        ({"fixed": {"cheese": 1}}, "not among the candidates"),
        ({"fixed": {"tea": 1}, "given": ["tea"]}, "given already"),
        ({"fixed": {"tea": 0, "mint tea": 3}, "at_most": 1}, "at_most is 1"),
        ({"fixed": {"tea": 0, "mint tea": 1}, "window": 2}, "within a window of 2"),
        ({"fixed": {"tea": 0, "mint tea": 1, "soap": 2}, "at_least": {"bread": 2}}, "leave 1 places"),
        ({"fixed": [{"tea": 0}, {}]}, "one for every list"),
    ],
)
def test_contradictions_are_refused(rules, message):
    with pytest.raises(ParameterError, match=message):
        ask(**rules)


def test_the_list_that_cannot_keep_a_rule_is_named():
    lists = [["tea", "milk"], ["soap", "bread"]]
    with pytest.raises(ParameterError, match="list 1: at_least asks for 1 of 'tea'"):
        rerank(lists, [[2, 1]] * 2, 2, diversity=0, categories=CATEGORY, at_least={"tea": 1})


@pytest.mark.parametrize("rule", [{"at_most": 1}, {"at_least": {"tea": 1}}, {"window": 2}])
def test_rules_without_categories_are_refused(rule):
    with pytest.raises(ParameterError, match="categories"):
        rerank(ITEMS, SCORES, vectors=EQUAL, **rule)


def test_very_large_numbers_mean_no_limit():
    big = 10**30
    assert ask(big, at_most=big, window=1, method=SlidingWindow(big))[0] == ITEMS
    assert ask(3, at_most={"tea": big}, window=big)[0] == ["tea", "milk", "bread"]
