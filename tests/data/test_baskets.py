"""Baskets: what they hold, what they refuse, and how they are cut and joined."""

import copy
import operator
import pickle
import tracemalloc
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from contradpp.data import sets as csr
from contradpp.data.baskets import Baskets
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError, UnknownItemError

items = st.one_of(st.integers(0, 9), st.sampled_from("abcde"))
lists = st.lists(st.lists(items, max_size=6), max_size=12)


def distinct(basket):
    return list(dict.fromkeys(basket))


@settings(deadline=None)
@given(lists)
def test_from_lists_removes_duplicates_and_keeps_the_order(given_lists):
    baskets = Baskets.from_lists(given_lists)
    assert list(baskets) == [distinct(basket) for basket in given_lists]
    assert baskets.sizes.tolist() == [len(set(basket)) for basket in given_lists]
    assert list(baskets.items) == distinct(item for basket in given_lists for item in basket)
    assert baskets.item_counts.tolist() == [sum(item in basket for basket in given_lists) for item in baskets.items]
    assert baskets.indptr.dtype == np.int64
    assert baskets.indices.dtype == np.int32


@settings(deadline=None)
@given(lists)
def test_duplicates_are_found_in_small_blocks_too(given_lists):
    whole = Baskets.from_lists(given_lists)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csr, "_BLOCK", 3)
        assert Baskets.from_lists(given_lists) == whole


@settings(deadline=None)
@given(lists)
def test_pickle_copy_and_csr_give_the_same_baskets(given_lists):
    baskets = Baskets.from_lists(given_lists)
    assert pickle.loads(pickle.dumps(baskets)) == baskets
    assert copy.deepcopy(baskets) == baskets
    assert Baskets.from_csr(baskets.indptr, baskets.indices, items=baskets.items) == baskets
    back = Baskets.from_csr(baskets.to_csr(), items=baskets.items)
    assert [set(basket) for basket in back] == [set(basket) for basket in baskets]


def test_from_csr_ids_default_to_codes_and_zeros_are_absent():
    matrix = csr_array(np.array([[1, 0, 2], [0, 0, 0]]))
    matrix.data[0] = 0
    assert list(Baskets.from_csr(matrix)) == [[2], []]
    assert Baskets.from_csr(matrix).n_items == 3
    assert list(Baskets.from_csr([0, 2, 3], [1, 0, 4])) == [[1, 0], [4]]


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 2], [0], "indptr must rise"),
        ([1, 2], [0, 1], "indptr must rise"),
        ([0, 2, 1, 2], [0, 1], "indptr must rise"),
        ([], [], "indptr must rise"),
        ([0, 1], [-1], "indices must lie"),
        ([0, 1], [3], "indices must lie"),
        ([0, 1], [0.5], "integers"),
        ([0, 1], [[0]], "one-dimensional"),
    ],
)
def test_from_csr_refuses(indptr, indices, message):
    with pytest.raises(DataError, match=message):
        Baskets.from_csr(indptr, indices, items="abc")


def test_from_csr_refuses_codes_beyond_32_bits_and_wrong_shapes():
    with pytest.raises(DataError, match="at most"):
        Baskets.from_csr([0, 1], [2**40])
    with pytest.raises(DataError, match="3 columns but 2 items"):
        Baskets.from_csr(csr_array(np.eye(3)), items="ab")
    with pytest.raises(ParameterError, match="sparse matrix"):
        Baskets.from_csr([0, 1])


def test_from_lists_with_a_given_vocabulary():
    baskets = Baskets.from_lists([["b"], []], items=["a", "b"])
    assert baskets.n_items == 2
    assert baskets.indices.tolist() == [1]
    with pytest.raises(DataError, match="basket 1 holds 'z'"):
        Baskets.from_lists([["a"], ["z"]], items=["a", "b"])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [*((one, "basket 1 must be a list") for one in ("milk", b"milk", 3, None)), ([["a"]], "hashable")],
)
def test_from_lists_refuses_what_is_no_basket(bad, reason):
    with pytest.raises(DataError, match=reason):
        Baskets.from_lists([["a"], bad])


def test_immutability():
    codes = np.array([0, 1], dtype=np.int32)
    baskets = Baskets.from_csr([0, 2], codes)
    codes[0] = 1
    assert list(baskets) == [[0, 1]]  # the caller's array is another
    with pytest.raises(ValueError, match="read-only"):
        baskets.indices[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        baskets.indptr[0] = 1
    with pytest.raises(AttributeError, match="immutable"):
        baskets.items = Vocabulary("xy")
    with pytest.raises(TypeError, match="unhashable"):
        hash(baskets)


def test_sequence_access():
    baskets = Baskets.from_lists([["a"], ["b", "a"], ["c"]])
    assert baskets[1] == ["b", "a"]
    assert baskets[-1] == ["c"]
    assert isinstance(baskets[:2], Baskets)
    assert list(baskets[::-1]) == [["c"], ["b", "a"], ["a"]]
    assert len(baskets) == baskets.n_baskets == 3
    assert repr(baskets) == "Baskets(3 baskets, 3 items)"
    with pytest.raises(IndexError):
        baskets[3]


@settings(deadline=None)
@given(lists, st.data())
def test_subset_by_positions_and_by_mask(given_lists, data):
    baskets = Baskets.from_lists(given_lists)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(baskets), max_size=len(baskets))), dtype=bool)
    expected = [basket for basket, keep in zip(baskets, mask, strict=True) if keep]
    assert list(baskets.subset(mask)) == expected
    assert list(baskets.subset(np.flatnonzero(mask))) == expected
    assert list(baskets.subset(np.flatnonzero(mask)[::-1])) == expected[::-1]
    assert baskets.subset(mask).items is baskets.items


def test_subset_refuses():
    baskets = Baskets.from_lists([["a"], ["b"]])
    assert list(baskets.subset([-1, -1])) == [["b"], ["b"]]
    for wrong in ([2], [-3], [[0]], ["a"], [0.5], [True]):
        with pytest.raises(ParameterError):
            baskets.subset(wrong)


@settings(deadline=None)
@given(st.integers(2, 60), st.integers(0, 2**32 - 1))
def test_split_is_seeded_disjoint_and_complete(n, seed):
    baskets = Baskets.from_lists([[number] for number in range(n)])
    train, test = baskets.split(test_size=1, random_state=seed)
    again_train, again_test = baskets.split(test_size=1, random_state=seed)
    assert (train, test) == (again_train, again_test)
    assert test.n_baskets == 1
    assert sorted([*train, *test]) == list(baskets)
    assert list(train) == sorted(train)
    assert train.items == test.items == baskets.items


def test_split_shares_counts_and_seeds():
    baskets = Baskets.from_lists([[number] for number in range(100)])
    train, test = baskets.split(test_size=0.2, random_state=0)
    assert (train.n_baskets, test.n_baskets) == (80, 20)
    assert list(baskets.split(0.2, random_state=1)[1]) != list(test)
    for wrong in (0.0, 1.0, -0.1, "half", True, None):
        with pytest.raises(ParameterError):
            baskets.split(wrong)
    for wrong in (0, 100, 0.001):
        with pytest.raises((DataError, ParameterError)):
            baskets.split(wrong)


@settings(deadline=None)
@given(lists, st.integers(0, 3), st.integers(0, 4), st.integers(0, 4))
def test_filter_takes_rare_items_first(given_lists, min_item_count, min_size, extra):
    baskets = Baskets.from_lists(given_lists)
    count = dict(zip(baskets.items, baskets.item_counts.tolist(), strict=True))
    frequent = [[item for item in basket if count[item] >= min_item_count] for basket in baskets]
    expected = [basket for basket in frequent if min_size <= len(basket) <= min_size + extra]
    kept = baskets.filter(min_size=min_size, max_size=min_size + extra, min_item_count=min_item_count)
    assert list(kept) == expected
    assert set(kept.items) == {item for basket in expected for item in basket}


def test_filter_refuses_an_empty_range_and_keeps_names():
    baskets = Baskets.from_lists([["a"], ["a", "b"]]).with_names({"a": "apple", "b": "bread"})
    with pytest.raises(ParameterError, match="max_size"):
        baskets.filter(min_size=3, max_size=2)
    assert baskets.filter(min_item_count=2).items.names == {"a": "apple"}


@settings(deadline=None)
@given(lists, lists)
def test_concat_merges_vocabularies(first, second):
    one, two = Baskets.from_lists(first), Baskets.from_lists(second)
    both = Baskets.concat([one, two])
    assert list(both) == [*one, *two]
    assert both.items == one.items.merge(two.items)
    assert one + two == both


def test_concat_needs_baskets():
    with pytest.raises(ParameterError, match="at least one"):
        Baskets.concat([])
    with pytest.raises(TypeError):
        operator.add(Baskets.from_lists([["a"]]), [["b"]])


@settings(deadline=None)
@given(lists, st.permutations(list("abcde") + list(range(10))))
def test_recode_changes_codes_and_nothing_else(given_lists, order):
    baskets = Baskets.from_lists(given_lists)
    vocabulary = Vocabulary(order)
    recoded = baskets.recode(vocabulary)
    assert list(recoded) == list(baskets)
    assert recoded.items is vocabulary


def test_recode_with_unknown_items():
    baskets = Baskets.from_lists([["a", "b"], ["b"]])
    with pytest.raises(UnknownItemError, match="'b'"):
        baskets.recode(Vocabulary(["a", "c"]))
    assert list(baskets.recode(Vocabulary(["c", "a"]), unknown="ignore")) == [["a"], []]
    unused = Baskets.from_lists([["a"]], items=["a", "b"])
    assert list(unused.recode(Vocabulary(["a"]))) == [["a"]]


def test_equality_looks_at_baskets_and_items():
    baskets = Baskets.from_lists([["a", "b"]])
    assert baskets == Baskets.from_lists([("a", "b", "a")])
    assert baskets != Baskets.from_lists([["b", "a"]])
    assert baskets != [["a", "b"]]


def test_describe_says_how_many_and_how_large():
    baskets = Baskets.from_lists([["a", "b", "c"], ["a"], []], items="abcd").with_names({"a": "apple"})
    figures = baskets.summary()
    assert (figures.n_baskets, figures.n_items, figures.n_unused_items) == (3, 4, 1)
    assert (figures.smallest, figures.median, figures.largest, figures.n_entries) == (0, 1.0, 3, 4)
    assert sum(figures.sizes.values()) == 3
    assert figures.popular["apple"] == 2
    assert figures.as_dict()["mean"] == pytest.approx(4 / 3)
    for part in ("3 baskets", "4 items", "1 never occur", "apple", "66.7%"):
        assert part in baskets.describe()
    assert "0 baskets" in Baskets.from_lists([]).describe()


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (None, "missing"),
        (float("nan"), "missing"),
        (np.float64("nan"), "missing"),
        (Decimal("1.5"), "Decimal"),
        (date(2024, 1, 1), "date"),
        (datetime(2024, 1, 1), "datetime"),
        (np.datetime64("2024-01-01", "ns"), "datetime64"),
        (b"tea", "bytes"),
    ],
)
def test_what_a_model_file_cannot_hold_is_no_id(item, reason):
    with pytest.raises(DataError, match=f"basket 1: .*{reason}"):
        Baskets.from_lists([["tea"], ["milk", item], ["jam"]])
    with pytest.raises(DataError, match=reason):
        Baskets.from_csr([0, 1], [0], items=["tea", item])


def test_strings_numbers_and_tuples_are_ids():
    items = ["tea", 7, 2.5, True, ("a", 1), (("b", None), 2)]
    assert Baskets.from_lists([items])[0] == items


def test_categories_go_with_their_items():
    baskets = Baskets.from_lists([["tea", "jam"], ["milk"]]).with_categories(
        {"tea": "drinks", "milk": "dairy", "x": "y"}
    )
    assert baskets.items.categories == {"tea": "drinks", "milk": "dairy"}
    assert baskets.subset([1]).compact().items.categories == {"milk": "dairy"}
    assert baskets.with_names({"tea": "Tea"}).items.categories == baskets.items.categories
    assert baskets[:1].recode(baskets.items).items.categories == baskets.items.categories
    both = Baskets.from_lists([["jam"]]).with_categories({"jam": "spreads"}) + baskets
    assert both.items.categories == {"jam": "spreads", "tea": "drinks", "milk": "dairy"}
    assert pickle.loads(pickle.dumps(both)).items.categories == both.items.categories


def test_sets_are_read_only_wherever_they_come_from():
    """Numba tells arrays that can be written to from those that cannot, and would compile every kernel twice."""
    made = csr.Sets(np.array([0, 2, 3]), np.array([1, 0, 1], dtype=np.int32))
    baskets = Baskets.from_lists([["a", "b"], ["a"]])
    others = [baskets.sets, csr.EMPTY, csr.take_sets(made, np.array([1])), csr.concatenate(made, baskets.sets)]
    for found in [made, *others, pickle.loads(pickle.dumps(made)), copy.deepcopy(made)]:
        assert isinstance(found, csr.Sets)
        assert not found.indptr.flags.writeable
        assert not found.indices.flags.writeable


def test_a_subset_of_most_baskets_takes_little_memory():
    """Where a fit sets some baskets aside, numbering all entries took six times the memory of the codes."""
    rng = np.random.default_rng(0)
    baskets = Baskets.from_csr(np.arange(0, 1_000_001, 10), rng.integers(0, 10_000, 1_000_000), items=range(10_000))
    most = np.flatnonzero(rng.random(baskets.n_baskets) < 0.95)
    tracemalloc.start()
    part = baskets.subset(most)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * baskets.indices.nbytes
    for place in (0, 5, len(most) - 1):
        assert part[place] == baskets[int(most[place])]
    assert list(baskets.subset(most[::-1]))[::-1] == list(part)
