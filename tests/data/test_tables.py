"""Arrow tables and data frames as baskets."""

import logging
import sys
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import contradpp as cd
from contradpp.data import tables
from contradpp.data.baskets import Baskets
from contradpp.data.tables import frame_to_arrow
from contradpp.errors import DataError, ParameterError

LISTS = [["tea", "milk"], ["milk", "jam"]]
LONG = {"order_id": [7, 9, 7, 9], "product_id": ["tea", "milk", "milk", "jam"]}
MAKERS = [pd.DataFrame, pl.DataFrame, pa.table]


@pytest.mark.parametrize("make", MAKERS)
def test_long_frames_and_frames_of_lists(make):
    assert list(Baskets.from_frame(make(LONG))) == LISTS
    frame = make({"id": [1, 2, 3], "items": [["tea", "milk", "tea"], ["milk", "jam"], []]})
    assert list(Baskets.from_frame(frame)) == [*LISTS, []]


@pytest.mark.parametrize("make", MAKERS)
def test_named_columns_and_quantities(make, caplog):
    frame = make({"k": [1, 1, 2], "w": ["a", "b", "a"], "n": [1, -2, 3]})
    with caplog.at_level(logging.INFO, logger="contradpp"):
        assert list(Baskets.from_frame(frame, basket="k", item="w", quantity="n")) == [["a"], ["a"]]
    assert "dropped 1 rows" in caplog.text


def test_tables_batches_and_readers():
    table = pa.table(LONG)
    batches = table.to_batches(max_chunksize=1)
    reader = pa.RecordBatchReader.from_batches(table.schema, batches)
    for source in (table, pa.Table.from_batches(batches), table.to_batches()[0], reader, pl.DataFrame(LONG)):
        assert list(Baskets.from_arrow(source)) == LISTS


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1), st.integers(1, 5))
def test_batches_of_any_size_give_the_same_baskets(rows, size):
    owners, items = zip(*rows, strict=True)
    expected = Baskets.from_lists([item for b, item in rows if b == basket] for basket in dict.fromkeys(owners))
    table = pa.table({"basket": owners, "item": items})
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))
    assert list(Baskets.from_arrow(reader)) == list(expected)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_every_kind_of_string(kind):
    table = pa.table({"order": pa.array(["x", "x", "y"]).cast(kind), "item": pa.array(["a", "b", "a"]).cast(kind)})
    assert list(Baskets.from_arrow(table)) == [["a", "b"], ["a"]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int16()),
        pa.large_list(pa.int64()),
        pa.list_(pa.int64(), 2),
        pa.list_(pa.dictionary(pa.int8(), pa.int64())),
    ],
)
def test_every_kind_of_list(kind):
    lists = pa.array([[9, 9], [1, 2], [2, 3]], kind)
    assert list(Baskets.from_arrow(pa.table({"items": lists}).slice(1))) == [[1, 2], [2, 3]]


def test_categories_and_nullable_integers():
    frame = pd.DataFrame(LONG).astype({"product_id": "category", "order_id": "Int64"})
    assert list(Baskets.from_frame(frame)) == LISTS


def test_lists_may_share_a_basket():
    table = pa.table({"cart": ["x", "y", "x"], "items": [[1], [], [2, 1]]})
    assert list(Baskets.from_arrow(table, basket="cart")) == [[1, 2], []]
    assert list(Baskets.from_arrow(table)) == [[1], [], [2, 1]]


def test_a_long_table_is_long_even_with_a_column_of_lists():
    table = pa.table({"order": [1, 1], "item": ["a", "b"], "tags": [["x"], ["y"]]})
    assert list(Baskets.from_arrow(table)) == [["a", "b"]]
    assert list(Baskets.from_arrow(table, item="tags")) == [["x"], ["y"]]


def test_an_empty_table_is_an_empty_collection():
    table = pa.table({"order": pa.array([], pa.int64()), "item": pa.array([], pa.string())})
    assert Baskets.from_arrow(table).n_baskets == 0
    assert Baskets.from_arrow(pa.table({"items": pa.array([], pa.list_(pa.int64()))})).n_baskets == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"order": [1, None], "item": ["a", "b"]}, "row 2: the basket is missing .*'order'"),
        ({"order": [1, 1], "item": ["a", None]}, "row 2: the item is missing"),
        ({"order": [1, 1], "item": [1.0, float("nan")]}, "row 2: the item is missing"),
        ({"items": [["a"], None]}, "row 2: there is no list"),
        ({"items": [["a"], [], ["b", None]]}, "row 3: an item in the list is missing"),
        ({"items": [[["a"]]]}, "cannot be used for ids"),
        ({"order": [1], "item": [{"a": 1}]}, "cannot be used for ids"),
        ({"foo": [1], "bar": [2]}, "'foo', 'bar'"),
        ({"tags": [["a"]], "more": [["b"]]}, "'tags', 'more'"),
        ({}, "no columns"),
    ],
)
def test_refused_tables(columns, message):
    with pytest.raises(DataError, match=message):
        Baskets.from_arrow(pa.table(columns))


def test_rows_are_counted_over_batches_and_before_dropping():
    table = pa.table({"order": [1, 1, 1, 1], "item": ["a", None, "c", None], "n": [1, 0, 2, 1]})
    for size in (2, 4):
        reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))
        with pytest.raises(DataError, match="row 4: the item"):
            Baskets.from_arrow(reader, quantity="n")


@pytest.mark.parametrize("values", [["1", " 2 ", "-3"], [1, 2, -3], [0.5, 2.0, -1.0]])
def test_quantities_may_be_numbers_or_texts(values):
    table = pa.table({"order": [1, 1, 1], "item": ["a", "b", "c"], "n": values})
    assert list(Baskets.from_arrow(table, quantity="n")) == [["a", "b"]]


@pytest.mark.parametrize(
    ("values", "row"), [(["1", "x"], 2), ([1, None], 2), ([1.0, float("nan")], 2), ([True, False], 1)]
)
def test_quantities_must_be_there(values, row):
    with pytest.raises(DataError, match=rf"row {row}: .*quantity"):
        Baskets.from_arrow(pa.table({"order": [1, 1], "item": ["a", "b"], "n": values}), quantity="n")


def test_names_come_from_the_first_row_that_has_one():
    table = pa.table({"order": [1, 1, 2], "item": [5, 6, 5], "title": [None, "Lamp", "Desk"]})
    assert Baskets.from_arrow(table, name="title").items.names == {5: "Desk", 6: "Lamp"}
    twice = pa.concat_tables([table, pa.table({"order": [3], "item": [6], "title": ["Other"]})])
    assert Baskets.from_arrow(twice, name="title").items.names == {5: "Desk", 6: "Lamp"}
    with pytest.raises(DataError, match="holds lists"):
        Baskets.from_arrow(pa.table({"items": [[1]], "title": ["x"]}), name="title")


def test_wrong_things_are_refused():
    with pytest.raises(ParameterError, match="list"):
        Baskets.from_arrow([["a"]])
    with pytest.raises(ParameterError, match="list"):
        Baskets.from_frame([["a"]])
    with pytest.raises(DataError, match=r"'nope' for item=.*'order_id', 'product_id'"):
        Baskets.from_frame(pd.DataFrame(LONG), item="nope")


def test_a_column_of_mixed_types_is_refused_only_if_it_is_needed():
    mixed = pd.Series([1, "b", 2.5, "d"], dtype=object)
    assert list(Baskets.from_frame(pd.DataFrame({**LONG, "note": mixed}))) == LISTS
    with pytest.raises(DataError, match="astype"):
        Baskets.from_frame(pd.DataFrame({**LONG, "product_id": mixed}))


def test_frames_without_the_stream_interface_go_through_from_pandas():
    class OldFrame(pd.DataFrame):
        __arrow_c_stream__ = property()  # as before pandas 2.2

    frame = OldFrame(LONG)
    assert not hasattr(frame, "__arrow_c_stream__")
    assert frame_to_arrow(frame, {}).column_names == list(LONG)
    assert list(Baskets.from_frame(frame)) == LISTS


def test_arrow_needs_neither_pandas_nor_polars(monkeypatch):
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)  # to import it is an ImportError
    assert list(Baskets.from_arrow(pa.table(LONG))) == LISTS


def test_codes_come_in_order_of_first_appearance_over_batches(monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 2)
    baskets = Baskets.from_arrow(pa.table({"order": [2, 2, 1, 2, 1], "item": ["c", "a", "b", "a", "c"]}))
    assert list(baskets.items) == ["c", "a", "b"]
    assert baskets.indptr.tolist() == [0, 2, 4]
    assert np.array_equal(baskets.indices, [0, 1, 2, 0])


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["tea", "milk", "jam"]), pl.String])
def test_polars_categories_and_lazy_frames(kind):
    frame = pl.DataFrame(LONG).with_columns(pl.col("product_id").cast(kind))
    assert list(Baskets.from_frame(frame)) == LISTS
    assert list(Baskets.from_frame(frame.lazy(), basket="order_id", item="product_id")) == LISTS
    lists = frame.group_by("order_id", maintain_order=True).agg(pl.col("product_id").alias("items"))
    assert list(Baskets.from_frame(lists)) == LISTS


@pytest.mark.parametrize("value", [Decimal("1.5"), date(2024, 1, 1), datetime(2024, 1, 1), b"tea"])
def test_ids_that_cannot_be_saved_are_refused(value):
    with pytest.raises(DataError, match="cannot be an item id"):
        Baskets.from_arrow(pa.table({"order": [1], "item": [value]}))
    assert Baskets.from_arrow(pa.table({"order": [value], "item": ["a"]})).n_baskets == 1


def test_names_categories_and_returns_of_frames(caplog):
    frame = pd.DataFrame({"order": [1, 1, 2], "item": [5, 6, 5], "title": ["Lamp", "Desk", "Lamp"],
                          "room": ["hall", None, "hall"], "qty": [1, -1, 2]})  # fmt: skip
    baskets = Baskets.from_frame(frame, category="room")
    assert list(baskets) == [[5], [5]]
    assert (baskets.items.names, baskets.items.categories) == ({5: "Lamp"}, {5: "hall"})
    assert "dropped 1 rows that are returns" in caplog.text
    assert list(Baskets.from_frame(frame, returns="keep")) == [[5, 6], [5]]
    frame.loc[2, "room"] = None
    assert Baskets.from_frame(frame.astype({"item": "Int64"}).assign(item=[5, None, 5]), on_bad_row="skip").n_items == 1


FRAME = pd.DataFrame({"order_id": [1, 1, 2, 2, 3], "item": list("abacb")})
OF_LISTS = [["a", "b"], ["a", "c"], ["b"]]


@pytest.mark.parametrize(
    "given",
    [FRAME, pl.from_pandas(FRAME), pl.from_pandas(FRAME).lazy(), pa.Table.from_pandas(FRAME),
     pa.Table.from_pandas(FRAME).to_reader(), FRAME.groupby("order_id")["item"].apply(list),
     pl.Series(OF_LISTS), np.array(OF_LISTS, dtype=object)],
    ids=["pandas", "polars", "lazy", "arrow", "reader", "pandas series", "polars series", "objects"],
)  # fmt: skip
def test_models_take_frames_as_they_are(given):
    """The columns of a polars frame passed for baskets, and trained a model of nothing."""
    model = cd.LowRankDPP(2, max_iter=1, random_state=0).fit(given)
    assert list(model.items_) == ["a", "b", "c"]
    assert model.item_counts_.tolist() == [2, 2, 1]


def test_matrices_passed_for_baskets():
    model = cd.LowRankDPP(2, max_iter=1, random_state=0).fit(scipy.sparse.csr_array([[1, 0, 2], [0, 1, 0]]))
    assert model.item_counts_.tolist() == [1, 1, 1]
    with pytest.raises(DataError, match="zeros and ones"):
        cd.LowRankDPP(2).fit(np.array([[1, 0, 1], [0, 1, 0]]))
    with pytest.raises(DataError, match=r"to Baskets\.from_frame"):
        cd.LowRankDPP(2).fit(pd.DataFrame({"x": [1], "y": [2]}))


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 4)), min_size=1, max_size=40), st.booleans(), st.data())
def test_integers_are_numbered_as_any_other_ids(rows, rising, data):
    """Those that only rise take another way than the rest, until one of them does not."""
    if rising:
        cut = data.draw(st.integers(0, len(rows)))
        rows = [*sorted(rows[:cut]), *rows[cut:]]
    size = data.draw(st.integers(1, len(rows)))
    ids, items = zip(*rows, strict=True)
    kinds = [(pa.int64(), int), (pa.int16(), int), (pa.string(), str)]
    made = []
    for kind, plain in kinds:
        table = pa.table({"basket": pa.array(map(plain, ids), kind), "item": pa.array(map(plain, items), kind)})
        made.append(Baskets.from_arrow(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(size))))
    assert [list(map(str, basket)) for basket in made[0]] == list(made[2])
    assert list(made[0]) == list(made[1])
    assert all(type(item) is int for item in made[0].items)
