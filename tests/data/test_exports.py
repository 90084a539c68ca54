"""Exports that people have: workbooks, JSON documents, Shopify, WooCommerce, event logs, one-hot tables."""

from __future__ import annotations

import csv
import json
import sys
import zipfile
from datetime import datetime

import numpy as np
import pyarrow
import pytest

import contradpp as cd
from contradpp.data.readers import read
from contradpp.errors import DataError, MissingExtraError, ParameterError
from data.workbook import workbook

ORDERS = [["tea", "milk"], ["milk", "jam", "bread"], ["tea"]]
LINES = [(1000 + order, item, 1) for order, basket in enumerate(ORDERS) for item in basket]
# The first columns of each export, in their order; the last ones do not matter.
SHOPIFY = [
    "Name",
    "Email",
    "Financial Status",
    "Paid at",
    "Fulfillment Status",
    "Fulfilled at",
    "Accepts Marketing",
    "Currency",
    "Subtotal",
    "Shipping",
    "Taxes",
    "Total",
    "Discount Code",
    "Discount Amount",
    "Shipping Method",
    "Created at",
    "Lineitem quantity",
    "Lineitem name",
    "Lineitem price",
    "Lineitem compare at price",
    "Lineitem sku",
    "Lineitem requires shipping",
    "Lineitem taxable",
    "Lineitem fulfillment status",
    "Billing Name",
    "Shipping Name",
    "Notes",
    "Cancelled at",
    "Payment Method",
    "Refunded Amount",
    "Vendor",
    "Id",
    "Tags",
    "Source",
    "Lineitem discount",
    "Tax 1 Name",
    "Phone",
    "Receipt Number",
]
WOOCOMMERCE = [
    "Order Number",
    "Order Status",
    "Order Date",
    "Customer Note",
    "First Name (Billing)",
    "Last Name (Billing)",
    "Email (Billing)",
    "Payment Method Title",
    "Cart Discount Amount",
    "Order Subtotal Amount",
    "Order Refund Amount",
    "Order Total Amount",
    "SKU",
    "Item #",
    "Item Name",
    "Quantity (- Refund)",
    "Item Cost",
    "Coupon Code",
]


def write_csv(path, header, rows):
    """Write rows that are mappings of some of the columns."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_json(path, value, **options):
    path.write_text(json.dumps(value, **options), encoding="utf-8")
    return path


# -- Workbooks -------------------------------------------------------------------------------------


@pytest.fixture
def sheet(tmp_path):
    pytest.importorskip("python_calamine")

    def write(name="orders.xlsx", **sheets):
        path = tmp_path / name
        path.write_bytes(workbook(sheets))
        return path

    return write


def test_a_workbook_is_read_as_the_same_csv(sheet):
    header = ["InvoiceNo", "StockCode", "Quantity"]
    baskets = cd.read_baskets(sheet(first=[header, *LINES]))
    assert list(baskets) == ORDERS
    numbered = [(order, {"tea": 7, "milk": 8, "jam": 9, "bread": 10}[item], n) for order, item, n in LINES]
    assert list(cd.read_baskets(sheet(first=[header, *numbered]))) == [[7, 8], [8, 9, 10], [7]]
    returned = [(order, item, -1 if item == "milk" else 1) for order, item, _ in LINES]
    assert list(cd.read_baskets(sheet(first=[header, *returned]))) == [["tea"], ["jam", "bread"], ["tea"]]


def test_a_title_above_the_header_dates_and_further_sheets(sheet, caplog):
    header = ["order", "item", "InvoiceDate"]
    rows = [(order, item, datetime(2024, 5, order - 999, 8, 30)) for order, item, _ in LINES]
    path = sheet(a=[["Orders of May"], [], header, *rows[:2]], b=[header, *rows[2:]], c=[["note", "by"], [1, 2]])
    baskets = cd.read_baskets(path)
    assert list(baskets) == ORDERS
    assert baskets.times.tolist() == [datetime(2024, 5, day, 8, 30) for day in (1, 2, 3)]
    assert "the sheet 'c' has another header" in caplog.text


def test_workbooks_that_cannot_be_read(sheet, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no sheet with two columns"):
        cd.read_baskets(sheet(a=[["alone"], [1]]))
    with pytest.raises(DataError, match="cannot tell which column holds the basket"):
        cd.read_baskets(sheet(a=[["x", "y"], [1, 2]]))
    with pytest.raises(DataError, match=r"row 2: the item is missing"):
        cd.read_baskets(sheet(a=[["order", "item"], [1, "tea"], [1, None]]))
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("orders.csv", "order,item\n1,2\n")
    with pytest.raises(DataError, match="a ZIP archive that is no Excel workbook"):
        cd.read_baskets(tmp_path / "other.zip")
    monkeypatch.setattr("contradpp.data.workbooks.MAX_UNPACKED", 10)
    monkeypatch.setattr("contradpp.data.workbooks.MAX_RATIO", 0)
    with pytest.raises(DataError, match=r"unpacks to .* bytes, which is refused"):
        cd.read_baskets(sheet(a=[["order", "item"], [1, "tea"]]))
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'contradpp\[excel\]'"):
        cd.read_baskets(sheet(a=[["order", "item"], [1, "tea"]]))


# -- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize(
    "value",
    [
        ORDERS,
        [{"order_id": n, "items": basket} for n, basket in enumerate(ORDERS)],
        [{"order_id": order, "product_id": item} for order, item, _ in LINES],
        {"orders": [{"order_id": n, "items": basket} for n, basket in enumerate(ORDERS)]},
        [{"id": n, "line_items": [{"sku": item} for item in basket]} for n, basket in enumerate(ORDERS)],
        [{"id": n, "cart": {"lines": [{"product": item} for item in basket]}} for n, basket in enumerate(ORDERS)],
    ],
    ids=["arrays", "lists", "rows", "under a key", "nested", "nested deeper"],
)
@pytest.mark.parametrize("name", ["orders.json", "orders.txt"])
def test_arrays_of_orders(tmp_path, value, indent, name):
    assert list(cd.read_baskets(write_json(tmp_path / name, value, indent=indent))) == ORDERS


def test_an_array_with_an_order_per_line(tmp_path):
    path = tmp_path / "orders.json"
    path.write_text("[" + ",\n".join(json.dumps({"order": n, "items": b}) for n, b in enumerate(ORDERS)) + "]")
    assert list(cd.read_baskets(path)) == ORDERS


SHOP = [
    {
        "id": 820982911946154508 + n,
        "name": f"#{1001 + n}",
        "created_at": f"2024-05-0{n + 1}T10:00:00-05:00",
        "customer": {"id": 70 + n % 2, "email": "ann@example.com"},
        "tags": [],
        "line_items": [
            {
                "id": 5 + k,
                "product_id": 632910392,
                "sku": None if item == "jam" else f"S-{item}",
                "title": f"Good {item}",
                "quantity": -1 if item == "bread" else 2,
            }
            for k, item in enumerate(basket)
        ],
        "shipping_lines": [{"title": "Standard", "price": "5.00"}],
    }
    for n, basket in enumerate(ORDERS)
]


@pytest.mark.parametrize("lines", [False, True], ids=["document", "json lines"])
def test_nested_lines_of_orders_are_recognized(tmp_path, lines):
    path = write_json(tmp_path / "orders.json", {"orders": SHOP}, indent=1)
    if lines:
        path = tmp_path / "orders.jsonl"
        path.write_text("".join(json.dumps(order) + "\n" for order in SHOP))
    baskets, _, columns = read(path, "auto", {})
    # What lacks a SKU goes by its title; a negative quantity is a return.
    assert list(baskets) == [["S-tea", "S-milk"], ["S-milk", "Good jam"], ["S-tea"]]
    assert baskets.items.name("S-tea") == "Good tea"
    assert baskets.customers.tolist() == [70, 71, 70]
    assert baskets.times[0] == np.datetime64("2024-05-01T15:00:00")
    assert columns["item"] == "line_items.sku"
    assert columns["customer"] == "customer.id"


def test_lines_that_are_missing(tmp_path):
    """Orders may have no line, also the first; a line may have no SKU, also no such field."""
    without = [{k: v for k, v in line.items() if k != "sku"} for line in SHOP[0]["line_items"]]
    shop = [{**SHOP[0], "line_items": []}, *SHOP, {**SHOP[0], "line_items": []}, {**SHOP[0], "line_items": without}]
    baskets = cd.read_baskets(write_json(tmp_path / "orders.json", shop))
    assert list(baskets) == [["S-tea", "S-milk"], ["S-milk", "Good jam"], ["S-tea"], ["Good tea", "Good milk"]]


def test_dotted_paths_name_inner_fields(tmp_path):
    path = write_json(tmp_path / "orders.json", SHOP)
    named = {"item": "line_items.title", "quantity": "line_items.quantity", "basket": "customer.id"}
    assert list(cd.read_baskets(path, **named)) == [["Good tea", "Good milk"], ["Good milk", "Good jam"]]
    with pytest.raises(DataError, match=r"no column 'line_items\.titel' for item=\. Did you mean 'line_items\.title'"):
        cd.read_baskets(path, item="line_items.titel")


def test_documents_that_are_no_baskets(tmp_path):
    (tmp_path / "a.json").write_text('[\n{"order": 1,\n "items": [1,}\n]')
    with pytest.raises(DataError, match="line 3: not valid JSON"):
        cd.read_baskets(tmp_path / "a.json")
    bad = [SHOP[0], {**SHOP[1], "line_items": "none"}, SHOP[2]]
    with pytest.raises(DataError, match="basket 2: the field 'line_items' must hold an array of objects"):
        cd.read_baskets(write_json(tmp_path / "b.json", bad))
    assert len(cd.read_baskets(write_json(tmp_path / "b.json", bad), on_bad_row="skip")) == 2
    (tmp_path / "c.json").write_text('[\n{"cat": 1, "cat": 2}\n]')
    with pytest.raises(DataError, match="'cat' is there twice"):
        cd.read_baskets(tmp_path / "c.json")


# -- Shops -----------------------------------------------------------------------------------------


def test_an_export_of_shopify(tmp_path):
    rows = []
    for order, basket in enumerate(ORDERS):
        for n, item in enumerate(basket):
            row = {"Name": f"#{1001 + order}", "Email": "ann@example.com", "Lineitem quantity": 1}
            row |= {"Lineitem name": f"Good {item}", "Lineitem sku": "" if item == "jam" else f"S-{item}"}
            if n == 0:  # further lines of an order leave the rest out
                row |= {"Created at": f"2024-05-0{order + 1} 10:00:00 -0500", "Id": 5000 + order}
                row |= {"Notes": "two\nlines, one comma", "Billing Name": "Ann"}
            rows.append(row)
    baskets, _, columns = read(write_csv(tmp_path / "orders_export.csv", SHOPIFY, rows), "auto", {})
    assert list(baskets) == [["S-tea", "S-milk"], ["S-milk", "Good jam", "S-bread"], ["S-tea"]]
    assert baskets.items.name("S-milk") == "Good milk"
    assert baskets.times[0] == np.datetime64("2024-05-01T15:00:00")
    assert columns["basket"] == "Name"
    assert columns["returns"] == "Lineitem quantity"
    assert baskets.customers is None  # an address is read only if it is named
    named = cd.read_baskets(tmp_path / "orders_export.csv", customer="Email")
    assert named.customers.tolist() == ["ann@example.com"] * 3


def test_an_export_of_woocommerce(tmp_path):
    left = {("jam", 1): 0, ("bread", 1): -1}  # refunded in whole, and returned
    rows = [
        {
            "Order Number": 200 + order,
            "Order Status": "Completed",
            "Order Date": f"2024-05-0{order + 1} 09:00",
            "SKU": "" if item == "tea" else f"S-{item}",
            "Item #": n + 1,
            "Item Name": f"Good {item}",
            "Quantity (- Refund)": left.get((item, order), 2),
        }
        for order, basket in enumerate(ORDERS)
        for n, item in enumerate(basket)
    ]
    path = write_csv(tmp_path / "orders.csv", WOOCOMMERCE, rows)
    baskets, _, columns = read(path, "auto", {})
    assert list(baskets) == [["Good tea", "S-milk"], ["S-milk"], ["Good tea"]]
    assert columns["returns"] == "Quantity (- Refund)"
    assert columns["time"] == "Order Date"
    assert list(cd.read_baskets(path, returns="keep"))[1] == ["S-milk", "S-jam", "S-bread"]
    assert list(cd.read_baskets(path, item="Item Name"))[1] == ["Good milk"]


# -- Events ----------------------------------------------------------------------------------------

EVENTS = [
    ("ann", "2024-05-01 10:00", "tea"),
    ("bob", "2024-05-01 10:05", "jam"),
    ("ann", "2024-05-01 10:20", "milk"),
    ("ann", "2024-05-01 10:20", "bread"),
    ("ann", "2024-05-01 10:50", "tea"),
    ("ann", "2024-05-01 11:21", "jam"),
    ("bob", "2024-05-02 10:00", "tea"),
]


@pytest.fixture
def events(tmp_path):
    lines = "".join(f"{customer},{time},{item}\n" for customer, time, item in EVENTS)
    path = tmp_path / "events.csv"
    path.write_text("customer,timestamp,item\n" + lines)
    return path


def test_baskets_by_several_columns(events):
    baskets = cd.read_baskets(events, basket="customer,timestamp")
    assert list(baskets) == [["tea"], ["jam"], ["milk", "bread"], ["tea"], ["jam"], ["tea"]]
    assert baskets.customers.tolist() == ["ann", "bob", "ann", "ann", "ann", "bob"]
    with pytest.raises(DataError, match=r"no column 'timestmp' for basket=\. Did you mean 'timestamp'"):
        cd.read_baskets(events, basket="customer,timestmp")


@pytest.mark.parametrize("named", [{}, {"basket": "customer,timestamp"}, {"customer": "customer", "time": "timestamp"}])
def test_sessions_end_with_a_gap(events, named):
    """Thirty minutes sharp still belong together; 31 do not."""
    sessions = cd.read_baskets(events, gap="30min", **named)
    assert list(sessions) == [["tea", "milk", "bread"], ["jam"], ["jam"], ["tea"]]
    assert sessions.customers.tolist() == ["ann", "bob", "ann", "bob"]
    assert sessions.times[0] == np.datetime64("2024-05-01T10:00")
    assert list(cd.read_baskets(events, gap="2h")) == [["tea", "milk", "bread", "jam"], ["jam"], ["tea"]]
    assert len(cd.read_baskets(events, gap="1d")) == 2


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "jsonl"])
def test_sessions_of_other_tables(kind, tmp_path):
    columns = dict(zip(("user_id", "event_time", "product_id"), map(list, zip(*EVENTS, strict=True)), strict=True))
    expected = [["tea", "milk", "bread"], ["jam"], ["jam"], ["tea"]]
    if kind == "jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert list(cd.read_baskets(tmp_path / "events.jsonl", gap="30min")) == expected
        both = cd.read_baskets(tmp_path / "events.jsonl", basket="user_id,event_time")
        assert len(both) == 6
        return
    if kind == "arrow":
        table = pyarrow.table(columns)
    else:
        table = pytest.importorskip(kind).DataFrame(columns)
    make = cd.Baskets.from_arrow if kind == "arrow" else cd.Baskets.from_frame
    assert list(make(table, gap="30min")) == expected
    assert len(make(table, basket="user_id,event_time")) == 6


def test_sessions_against_their_definition():
    """Walk the events of each customer by time; numbers count seconds."""
    rng = np.random.default_rng(0)
    n = 300
    customers, times = rng.integers(0, 6, n), rng.integers(0, 40_000, n).astype(float)
    customers = [None if rng.random() < 0.05 else int(c) for c in customers]
    times[rng.random(n) < 0.05] = np.nan
    baskets = cd.Baskets.from_lists([[item] for item in range(n)], customers=customers, times=times)
    expected = {frozenset([i]) for i in range(n) if customers[i] is None or np.isnan(times[i])}
    for customer in range(6):
        own = [i for i in range(n) if customers[i] == customer and not np.isnan(times[i])]
        sets = []
        for i in sorted(own, key=lambda i: times[i]):
            if not sets or times[i] - times[sets[-1][-1]] > 600:
                sets.append([])
            sets[-1].append(i)
        expected |= set(map(frozenset, sets))
    found = baskets.sessions("10 minutes")
    assert set(map(frozenset, found)) == expected
    assert len(found) == len(expected)
    assert [min(basket) for basket in found] == sorted(min(basket) for basket in found)


def test_sessions_keep_what_was_offered():
    offered = [["tea", "jam"], ["milk", "bread"], ["jam"]]
    shown = cd.Baskets.from_lists(
        [["tea"], ["milk"], []], offered=offered, customers=[1, 1, 2], times=[0, 60, 0]
    ).sessions("5min")
    assert list(shown) == [["tea", "milk"], []]
    assert shown.offered.sizes.tolist() == [4, 1]


def test_gaps_that_cannot_be_used(events, tmp_path):
    for gap in ("half an hour", "30", "-5min", ""):
        with pytest.raises(ParameterError, match="gap must be a time such as '30min'"):
            cd.read_baskets(events, gap=gap)
    with pytest.raises(DataError, match="sessions need the customer and the time"):
        cd.Baskets.from_lists(ORDERS).sessions("1h")
    (tmp_path / "orders.csv").write_text("order,item\n1,2\n")
    with pytest.raises(DataError, match="a gap needs a column for customer and time"):
        cd.read_baskets(tmp_path / "orders.csv", gap="1h")
    (tmp_path / "bad.csv").write_text("customer,timestamp,item\nann,soon,tea\n")
    with pytest.raises(DataError, match="line 2: 'soon' in column 'timestamp' is not a time"):
        cd.read_baskets(tmp_path / "bad.csv", gap="1h")


# -- One-hot tables --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float64, np.uint8])
def test_a_frame_with_a_column_for_each_item(dtype):
    pandas = pytest.importorskip("pandas")
    items = ["tea", "milk", "jam", "bread", "book"]
    table = np.array([[item in basket for item in items] for basket in [*ORDERS, []]]).astype(dtype)
    baskets = cd.Baskets.from_frame(pandas.DataFrame(table, columns=items))
    assert [set(basket) for basket in baskets] == [set(basket) for basket in [*ORDERS, []]]
    assert list(baskets.items) == items
    frame = pandas.DataFrame(table, columns=items, index=pandas.Index([7, 8, 9, 11], name="order_id"))
    frame.insert(0, "customer_id", [1, 1, 2, 2])
    kept = cd.Baskets.from_frame(frame)
    assert [set(basket) for basket in kept] == [set(basket) for basket in baskets]
    assert kept.customers.tolist() == [1, 1, 2, 2]
    model = cd.baselines.ItemKNN().fit(frame)
    assert list(model.items_) == items


def test_other_tables_are_not_taken_for_one_hot():
    pandas = pytest.importorskip("pandas")
    for columns in ({"x": [0, 1], "y": [1, 2]}, {"x": [0, 1]}, {"x": [0.0, None], "y": [1.0, 0.0]}):
        with pytest.raises(DataError, match="cannot tell which column"):
            cd.Baskets.from_frame(pandas.DataFrame(columns))
    batches = [{"x": [0, 1], "y": [1, 1]}, {"x": [0, 2], "y": [1, 1]}]
    table = pyarrow.concat_tables(map(pyarrow.table, batches))
    with pytest.raises(DataError, match="0 and 1 for each item also holds something else"):
        cd.Baskets.from_arrow(table.to_reader())
    long = pandas.DataFrame({"order": [0, 0, 1], "item": [0, 1, 1]})
    assert list(cd.Baskets.from_frame(long)) == [[0, 1], [1]]
