"""The vocabulary: ids to codes and back, for ids of any hashable kind."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contradpp.data.vocabulary import Lookup, Vocabulary
from contradpp.errors import DataError, ParameterError, UnknownItemError

ids = st.one_of(st.integers(), st.text(max_size=4), st.tuples(st.integers(), st.text(max_size=2)))


@settings(deadline=None)
@given(st.lists(ids, unique=True))
def test_codes_are_positions(items):
    vocabulary = Vocabulary(items)
    assert list(vocabulary) == items
    assert [vocabulary.code(item) for item in items] == list(range(len(items)))
    assert vocabulary.codes(items).tolist() == list(range(len(items)))
    assert vocabulary.codes(items).dtype == np.int32


@settings(deadline=None)
@given(st.lists(ids, unique=True, max_size=8), st.lists(ids, unique=True, max_size=8))
def test_merge_keeps_codes_and_appends_what_is_new(ours, theirs):
    merged = Vocabulary(ours).merge(Vocabulary(theirs))
    assert list(merged)[: len(ours)] == ours
    assert list(merged)[len(ours) :] == [item for item in theirs if item not in set(ours)]


def test_merge_keeps_the_names_of_both_and_ours_win():
    ours = Vocabulary(["a", "b"], names={"a": "ours"})
    theirs = Vocabulary(["a", "c"], names={"a": "theirs", "c": "third"})
    assert ours.merge(theirs).names == {"a": "ours", "c": "third"}


@pytest.mark.parametrize("item", [3, np.int64(3), np.uint8(3)])
@pytest.mark.parametrize("items", [range(5), [9, 8, 7, 3]])
def test_numpy_integers_are_the_same_items(items, item):
    vocabulary = Vocabulary(items)
    assert vocabulary.code(item) == 3
    assert vocabulary.codes([item]).tolist() == [3]
    assert item in vocabulary


@pytest.mark.parametrize("item", [5, -1, "1", 1.5, None])
def test_a_range_knows_only_its_own(item):
    vocabulary = Vocabulary(range(5))
    assert item not in vocabulary
    with pytest.raises(UnknownItemError):
        vocabulary.code(item)


def test_codes_of_several_items_are_distinct_and_an_unknown_one_is_named():
    assert Vocabulary("abc").codes(["c", "a", "c"]).tolist() == [2, 0]
    vocabulary = Vocabulary(["tea"])
    with pytest.raises(UnknownItemError, match=r"'milk'.*unknown='ignore'"):
        vocabulary.codes(["tea", "milk"])
    assert vocabulary.codes(["milk", "tea"], unknown="ignore").tolist() == [0]
    with pytest.raises(ParameterError, match="'skip'"):
        vocabulary.codes(["tea"], unknown="skip")


def test_ids_must_be_distinct_and_hashable():
    with pytest.raises(DataError, match="'a' occurs twice"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(DataError, match="hashable"):
        Vocabulary([["a"]])
    assert ["a"] not in Vocabulary(["a"])


def test_names_fall_back_to_the_id_and_cannot_be_changed_from_outside():
    vocabulary = Vocabulary([7, 8], names={7: "lamp", 99: "nothing"})
    assert (vocabulary.name(7), vocabulary.name(8)) == ("lamp", "8")
    vocabulary.names[8] = "changed"
    assert vocabulary.names == {7: "lamp"}
    assert vocabulary.with_names({8: "desk"}).names == {8: "desk"}


def test_take_gives_arrays_of_the_natural_type():
    assert Vocabulary([4, 5]).take([1, 0]).tolist() == [5, 4]
    assert Vocabulary([4, 5]).take([1]).dtype == np.int64
    assert Vocabulary(["x", "yy"]).take([1, 1]).tolist() == ["yy", "yy"]
    mixed = Vocabulary([(1, 2), "a", 2**70]).take([0, 1, 2])
    assert mixed.dtype == object
    assert mixed.tolist() == [(1, 2), "a", 2**70]
    assert np.asarray(Vocabulary(range(3))).tolist() == [0, 1, 2]


def test_equality_hash_pickle_and_repr():
    assert repr(Vocabulary(range(10_000))) == "Vocabulary(10,000 items: 0, 1, 2, 3, ...)"
    vocabulary = Vocabulary(range(3), names={1: "one"})
    assert vocabulary == Vocabulary([0, 1, 2])
    assert hash(vocabulary) == hash(Vocabulary([0, 1, 2]))
    assert vocabulary != Vocabulary([0, 2, 1])
    again = pickle.loads(pickle.dumps(vocabulary))
    assert again == vocabulary
    assert again.names == {1: "one"}


def test_a_name_that_several_items_have_means_the_most_sold(caplog):
    items = Vocabulary([1, 2, 3], names={1: "Tea", 2: "tea", 3: "Milk"})
    assert items.by_name([5, 9, 1]) == {"tea": [2, 1], "milk": [3]}
    assert items.by_name() == {"tea": [1, 2], "milk": [3]}
    lookup = Lookup(items, [5, 9, 1])
    assert lookup.find("milk") == lookup.find("3") == 3
    assert lookup.find("jam") is None
    assert not caplog.text
    assert [lookup.find(word) for word in ("TEA", "Tea", "tea ")] == [2, 2, 2]
    assert "2 items are called 'Tea': the most sold of them, 2, is taken" in caplog.text


@pytest.mark.parametrize(
    ("word", "item"),
    [("17", 17), (17, 17), ("x1", "x1"), (18, "18"), ("0.5", 0.5), ("('a', 1)", ("a", 1)), ("²", None), ("٣", None),
     ("9" * 5000, None), (10**5000, None), (-(10**5000), None), ("", None), ("\ud800", None)],
    ids=range(13),
)  # fmt: skip
def test_words_that_mean_an_item_or_none(word, item):
    assert Lookup(Vocabulary([17, "x1", "18", 0.5, ("a", 1), 3])).find(word) == item
