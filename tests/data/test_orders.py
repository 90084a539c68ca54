"""Customers and times of baskets: readers, splits, and histories."""

import json
import pickle
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contradpp as cd
from contradpp.cli.main import main
from contradpp.data.baskets import Baskets
from contradpp.data.orders import as_time, read_times
from contradpp.errors import DataError, ParameterError

ROWS = [
    (1, "tea", "ann", "2024-01-01"),
    (1, "milk", "ann", "2024-01-01"),
    (2, "jam", "bob", "2024-01-02"),
    (3, "tea", "ann", "2024-02-01"),
    (4, "milk", "", "2024-02-02"),
]
LISTS = [["tea", "milk"], ["jam"], ["tea"], ["milk"]]
CUSTOMERS = ["ann", "bob", "ann", None]
TIMES = np.array(["2024-01-01", "2024-01-02", "2024-02-01", "2024-02-02"], dtype="datetime64[us]")
HEADER = ("order_id", "product", "customer_id", "ordered_at")


def columns(names=HEADER, rows=ROWS):
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def write(path, kind):
    table = columns()
    if kind == "csv":
        path.write_text("\n".join([",".join(HEADER), *(",".join(map(str, row)) for row in ROWS), ""]))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(dict(zip(HEADER, row, strict=True))) + "\n" for row in ROWS))
    elif kind == "lists":
        table = {"items": LISTS, "customer": CUSTOMERS, "time": TIMES.tolist()}
        pq.write_table(pa.table(table), path)
    elif kind == "parquet":
        pq.write_table(pa.table(table | {"ordered_at": [datetime.fromisoformat(row[3]) for row in ROWS]}), path)
    else:
        lines = zip(LISTS, CUSTOMERS, [str(time) for time in TIMES], strict=True)
        path.write_text("".join(json.dumps({"items": a, "user": b, "time": c}) + "\n" for a, b, c in lines))
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "lists", "json objects with arrays"])
def test_every_format_finds_customers_and_times(tmp_path, kind):
    baskets = cd.read_baskets(write(tmp_path / "orders.any", kind))
    assert list(baskets) == LISTS
    assert baskets.customers.tolist() == CUSTOMERS
    np.testing.assert_array_equal(baskets.times, TIMES)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_find_them_too(make):
    baskets = Baskets.from_frame(make(columns()))
    assert baskets.customers.tolist() == CUSTOMERS
    np.testing.assert_array_equal(baskets.times, TIMES)


def test_other_names_are_given_and_what_was_found_is_said(tmp_path, capsys):
    path = tmp_path / "orders.csv"
    rows = [",".join(map(str, row)) for row in ROWS]
    path.write_text("\n".join(["order_id,product,who,moment", *rows, ""]))
    assert cd.read_baskets(path).customers is None
    assert cd.read_baskets(path, customer="who", time="moment").customers.tolist() == CUSTOMERS
    with pytest.raises(SystemExit):
        main(["data", "describe", str(path), "--customer", "who", "--time", "moment"])
    assert "item: product, customer: who, time: moment" in capsys.readouterr().out


def test_common_names():
    for customer in ("CustomerID", "customer_id", "user", "User Id", "shopper", "household_key"):
        for time in ("InvoiceDate", "ordered_at", "order_date", "timestamp", "date", "created_at"):
            table = pa.table(columns(("InvoiceNo", "StockCode", customer, time)))
            baskets = Baskets.from_arrow(table)
            assert baskets.customers.tolist() == CUSTOMERS, (customer, time)
            np.testing.assert_array_equal(baskets.times, TIMES)


def test_ids_are_integers_if_all_are(tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text("order_id,product,customer\n1,tea,17\n2,tea,\n3,tea,18\n")
    assert cd.read_baskets(path).customers.tolist() == [17, None, 18]
    table = pa.table({"order": [1, 2], "item": ["a", "b"], "customer": [17850.0, None]})
    assert Baskets.from_arrow(table).customers.tolist() == [17850, None]


def test_a_bad_time_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text("order_id,product,who,moment\n1,tea,ann,2024-01-01\n2,jam,ann,soon\n")
    with pytest.raises(DataError, match=r"line 3: 'soon' in column 'moment' is not a time"):
        cd.read_baskets(path, time="moment")
    assert len(cd.read_baskets(path, time="moment", on_bad_row="skip")) == 1
    path = tmp_path / "orders.jsonl"
    path.write_text('{"items": ["tea"], "moment": 1}\n{"items": ["tea"], "moment": [2]}\n')
    with pytest.raises(DataError, match=r"line 2: \[2\] is not a time"):
        cd.read_baskets(path, time="moment")


def test_a_basket_of_two_customers_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text("order_id,product,who\n1,tea,ann\n1,jam,bob\n")
    with pytest.raises(DataError, match=r"line 3: the basket has another customer here"):
        cd.read_baskets(path, customer="who")


def test_columns_that_were_only_guessed_are_left_out_with_a_warning(tmp_path, caplog):
    path = tmp_path / "orders.csv"
    path.write_text("order_id,product,user,date\n1,tea,ann,2024-01-01\n1,jam,bob,soon\n")
    baskets = cd.read_baskets(path)
    assert baskets.customers is None
    assert baskets.times is None
    assert "customers are not read: the basket has another customer" in caplog.text
    assert "times are not read: 'soon' in 'date' is none" in caplog.text


def test_ways_of_writing_a_time():
    moment = datetime(2024, 12, 31, 8, 26)
    zone = timezone(timedelta(hours=1))
    for value in (
        moment,
        moment.replace(tzinfo=UTC),
        moment.replace(hour=9, tzinfo=zone),
        "2024-12-31 08:26:00",
        "2024-12-31T08:26Z",
        "2024-12-31 09:26:00 +0100",
        "2024-12-31 08:26:00 UTC",
        "31/12/2024 8:26",
        "12/31/2024 8:26",
        "31.12.2024 08:26",
    ):
        assert as_time(value) == moment, value
    assert as_time(date(2024, 12, 31)) == datetime(2024, 12, 31)
    assert [as_time(value) for value in (7, "7", "7.5", np.float64(2))] == [7, 7, 7.5, 2]
    assert all(as_time(value) is None for value in ("soon", "", None, True, float("nan"), [1], "13/13/2024"))


def test_days_are_told_from_months_by_the_column():
    british = read_times(["1/2/2024", "31/1/2024", None])
    assert british.astype(str).tolist() == ["2024-02-01T00:00:00.000000", "2024-01-31T00:00:00.000000", "NaT"]
    american = read_times(["1/2/2024", "1/31/2024"])
    assert american.astype(str).tolist() == ["2024-01-02T00:00:00.000000", "2024-01-31T00:00:00.000000"]
    with pytest.raises(DataError, match="not clear"):
        read_times(["1/2/2024"])
    with pytest.raises(DataError, match="numbers in some places"):
        read_times([1, "2024-01-01"])


def test_whatever_makes_baskets_of_baskets_keeps_them():
    baskets = Baskets.from_lists(LISTS, customers=CUSTOMERS, times=TIMES)
    reversed_ = baskets.subset([3, 2, 1, 0])
    for same in (
        baskets.recode(cd.Vocabulary(["jam", "milk", "tea"])),
        baskets.with_names({"tea": "Tea"}),
        baskets.with_offered([["tea", "milk"], ["jam", "tea"], ["tea"], ["milk"]]),
        baskets.filter(min_item_count=1),
        baskets.clip(1),
        baskets.draw(1),
        pickle.loads(pickle.dumps(baskets)),
        Baskets.concat([baskets[:1], baskets[1:]]),
        reversed_[::-1],
    ):
        assert same.customers.tolist() == CUSTOMERS
        np.testing.assert_array_equal(same.times, TIMES)
    train, test = baskets.split(0.5, random_state=0)
    assert sorted(map(str, [*train.customers, *test.customers])) == sorted(map(str, CUSTOMERS))
    mixed = baskets + Baskets.from_lists([["tea"]])
    assert mixed.customers.tolist() == [*CUSTOMERS, None]
    assert np.isnat(mixed.times[-1])
    assert baskets == pickle.loads(pickle.dumps(baskets))
    assert baskets != Baskets.from_lists(LISTS)
    with pytest.raises(DataError, match="numbers, of others dates"):
        _ = baskets + Baskets.from_lists([["tea"]], times=[3])


def test_wrong_customers_and_times():
    baskets = Baskets.from_lists(LISTS)
    with pytest.raises(DataError, match="4 baskets but 1 customers"):
        baskets.with_customers(["ann"])
    with pytest.raises(DataError, match="4 baskets but 1 times"):
        baskets.with_customers(None, [1])
    with pytest.raises(DataError, match=r"basket 1: .* cannot be the id of a customer"):
        baskets.with_customers(["ann", ["bob"], "c", "d"])
    with pytest.raises(DataError, match="'soon' is not a time"):
        baskets.with_customers(CUSTOMERS, ["soon"] * 4)


def test_splits_by_time():
    baskets = Baskets.from_lists(LISTS, customers=CUSTOMERS, times=TIMES)
    train, test = baskets.split_by_time("2024-02-01")
    assert [list(train), list(test)] == [LISTS[:2], LISTS[2:]]
    train, test = baskets.split_by_time()
    assert [list(train), list(test)] == [[LISTS[0], LISTS[1], LISTS[3]], [LISTS[2]]]
    assert test.customers.tolist() == ["ann"]
    with pytest.raises(DataError, match="0 test baskets"):
        baskets.split_by_time(min_baskets=3)
    with pytest.raises(ParameterError, match="must be a date"):
        baskets.split_by_time(7)
    with pytest.raises(DataError, match="without customers"):
        Baskets.from_lists(LISTS).split_by_time()
    with pytest.raises(DataError, match="not known"):
        Baskets.from_lists(LISTS).split_by_time(1)


def naive_histories(lists, customers, times):
    """The definition: earlier baskets of the same customer; equal times in the order of the file."""
    found = []
    for b, customer in enumerate(customers):
        known = customer is not None and times[b] is not None
        earlier = [
            k
            for k in range(len(lists))
            if known and customers[k] == customer and times[k] is not None and (times[k], k) < (times[b], b)
        ]
        found.append([lists[k] for k in sorted(earlier, key=lambda k: (times[k], k))])
    return found


ORDERS = st.tuples(
    st.lists(st.integers(0, 5), unique=True), st.sampled_from([None, "ann", "bob"]), st.integers(0, 3) | st.none()
)


@settings(deadline=None)
@given(st.lists(ORDERS, min_size=1, max_size=12), st.integers(0, 12))
def test_histories_are_those_of_the_definition(orders, n_before):
    lists, customers, times = map(list, zip(*orders, strict=True))
    times[0] = 0  # a column of times without any is unknown
    baskets = Baskets.from_lists(lists, customers=customers, times=times)
    expected = naive_histories(lists, customers, times)
    assert list(baskets.histories()) == expected
    part = baskets[n_before:]
    if len(part):
        assert list(part.histories(before=baskets[:n_before])) == expected[n_before:]


def test_histories_by_hand():
    baskets = Baskets.from_lists(
        [["c"], ["a"], ["b"], ["d"], ["e"]],
        customers=["ann", "ann", "ann", None, "bob"],
        times=[2, 1, 1, 1, 1],
    )
    assert list(baskets.histories()) == [[["a"], ["b"]], [], [["a"]], [], []]
    assert baskets.histories().lengths.tolist() == [2, 0, 1, 0, 0]
    in_order = Baskets.from_lists([["a"], ["b"], ["c"]], customers=["ann"] * 3)
    assert list(in_order.histories()) == [[], [["a"]], [["a"], ["b"]]]
    assert np.shares_memory(in_order.histories().sets.indices, in_order.indices)
