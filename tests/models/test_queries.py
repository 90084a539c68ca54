"""What may be passed as a basket, or as many."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from contradpp import Baskets, Vocabulary
from contradpp.errors import DataError, ParameterError, UnknownItemError
from contradpp.experts.queries import as_codes, as_queries

ITEMS = Vocabulary(["tea", "milk", "bread", "jam"])
NUMBERS = Vocabulary(range(10))
PAIRS = Vocabulary([("a", 1), ("b", 2), ("c", 3)])


def read(baskets, items=ITEMS, **options) -> tuple[list[list[int]], bool]:
    queries = as_queries(baskets, items, **options)
    pointers = queries.sets.indptr.tolist()
    assert queries.sets.indices.dtype == np.int32
    assert queries.sets.indptr.dtype == np.int64
    parts = itertools.pairwise(pointers)
    return [queries.sets.indices[a:b].tolist() for a, b in parts], queries.single


@pytest.mark.parametrize(
    "basket",
    [
        ["milk", "tea"],
        ("milk", "tea"),
        iter(["milk", "tea"]),
        (x for x in ["milk", "tea", "milk"]),
        np.array(["milk", "tea"]),
        np.array(["milk", "tea"], dtype=object),
        {"milk": 1, "tea": 2},
        ["milk", "tea", "tea", "milk"],
    ],
)
def test_one_basket(basket):
    assert read(basket) == ([[1, 0]], True)


def test_one_basket_as_a_set():
    (codes,), single = read({"milk", "tea"})
    assert sorted(codes) == [0, 1]
    assert single


def test_an_empty_basket_is_one_basket():
    assert read([]) == ([[]], True)
    assert read(()) == ([[]], True)
    assert read([[]]) == ([[]], False)
    assert read([[], []]) == ([[], []], False)


@pytest.mark.parametrize(
    "baskets",
    [
        [["milk"], ["tea", "jam"]],
        (["milk"], ["tea", "jam"]),
        [("milk",), ("tea", "jam")],
        (b for b in (["milk"], ["tea", "jam", "tea"])),
        [np.array(["milk"]), np.array(["tea", "jam"])],
        Baskets.from_lists([["milk"], ["tea", "jam"]]),
        Baskets.from_lists([["milk"], ["tea", "jam"]], items=ITEMS),
    ],
)
def test_many_baskets(baskets):
    assert read(baskets) == ([[1], [0, 3]], False)


def test_sets_and_matrices_are_many_baskets():
    assert read([{"milk"}, frozenset(["tea"])]) == ([[1], [0]], False)
    assert read(np.array([[1, 2], [3, 3]]), NUMBERS) == ([[1, 2], [3]], False)


def test_numpy_integers_are_integers():
    assert read(np.array([3, 1], dtype=np.uint8), NUMBERS) == ([[3, 1]], True)
    assert read([np.int64(3), 1], NUMBERS) == ([[3, 1]], True)


def test_tuples_that_are_items():
    assert read([("b", 2), ("a", 1)], PAIRS) == ([[1, 0]], True)
    assert read([[("b", 2)], [("a", 1)]], PAIRS) == ([[1], [0]], False)
    assert read([(("b", 2), ("a", 1)), (("c", 3),)], PAIRS) == ([[1, 0], [2]], False)


def test_an_unknown_tuple_is_an_unknown_item_not_a_basket():
    assert read([("b", 2), ("z", 9)], PAIRS, unknown="ignore") == ([[1]], True)
    assert read([("z", 9)], PAIRS, unknown="ignore") == ([[]], True)
    with pytest.raises(UnknownItemError, match=r"\('z', 9\)"):
        read([("b", 2), ("z", 9)], PAIRS)


def test_frozensets_that_are_items():
    items = Vocabulary([frozenset("ab"), frozenset("c")])
    assert read([frozenset("c")], items) == ([[1]], True)


def test_tuples_of_unknown_items_are_baskets_where_ids_are_not_tuples():
    assert read([("x",), ("milk", "y")], unknown="ignore") == ([[], [1]], False)
    with pytest.raises(UnknownItemError, match=r"basket 0: .*'x'"):
        read([("x",), ("milk",)])


def test_unknown_items():
    with pytest.raises(UnknownItemError, match=r"'wine'.*unknown='ignore'"):
        read(["milk", "wine"])
    with pytest.raises(UnknownItemError, match=r"basket 1: .*'wine'"):
        read([["milk"], ["wine"]])
    with pytest.raises(UnknownItemError, match="'wine'"):
        read(Baskets.from_lists([["milk"], ["wine"]]))
    assert read(["milk", "wine"], unknown="ignore") == ([[1]], True)
    assert read([["milk"], ["wine"]], unknown="ignore") == ([[1], []], False)
    assert read(Baskets.from_lists([["milk"], ["wine"]]), unknown="ignore") == ([[1], []], False)


@pytest.mark.parametrize(
    "baskets",
    [["milk"], [["milk"]], Baskets.from_lists([["milk"]]), Baskets.from_lists([["milk"]], items=ITEMS)],
)
def test_a_wrong_word_for_unknown(baskets):
    with pytest.raises(ParameterError, match="'error', 'ignore', got 'skip'"):
        as_queries(baskets, ITEMS, unknown="skip")


@pytest.mark.parametrize("baskets", ["milk", b"milk", 3, None, np.array(3), 2.5])
def test_things_that_are_no_basket(baskets):
    with pytest.raises(DataError, match="list of items"):
        as_queries(baskets, ITEMS)
    with pytest.raises(DataError, match="list of items"):
        as_codes(baskets, ITEMS)


def test_a_text_among_baskets_says_which():
    with pytest.raises(DataError, match=r"basket 1: .*'milk'"):
        as_queries([["tea"], "milk"], ITEMS)
    with pytest.raises(DataError, match=r"basket 0: .*hashable"):
        as_queries([[["tea"]], ["milk"]], ITEMS)


def test_codes_of_one_basket():
    assert as_codes(["jam", "tea", "jam"], ITEMS).tolist() == [3, 0]
    assert as_codes([], ITEMS).dtype == np.int32
    with pytest.raises(DataError, match="hashable"):
        as_codes([["jam"], ["tea"]], ITEMS)
