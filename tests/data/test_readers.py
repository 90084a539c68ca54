"""read_baskets: every format, by content and by name, and what it says when a file is wrong."""

import builtins
import codecs
import contextlib
import csv
import gzip
import json
import logging
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import contradpp as cd
import contradpp.data.columns
import contradpp.data.files
import contradpp.data.readers
from contradpp.cli.inputs import reading_from
from contradpp.cli.main import main
from contradpp.data.baskets import Baskets
from contradpp.data.files import Source
from contradpp.data.readers import read, read_baskets, read_items
from contradpp.errors import DataError, ParameterError

LISTS = [["tea", "milk"], ["milk", "bread", "jam"], ["tea"]]


@pytest.fixture
def write(tmp_path):
    """Write text or bytes to a file and return its path; a .gz suffix compresses."""

    def write(content, name="baskets.txt"):
        path = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def long_csv(lists, separator=",", header="order_id,product_id"):
    rows = [f"{number}{separator}{item}" for number, basket in enumerate(lists) for item in basket]
    return "\n".join([header.replace(",", separator), *rows, ""])


def fimi(lists):
    return "".join(" ".join(map(str, basket)) + "\n" for basket in lists)


def ragged(lists, separator=","):
    return "".join(separator.join(map(str, basket)) + "\n" for basket in lists)


def jsonl(values):
    return "".join(json.dumps(value) + "\n" for value in values)


TEXTS = {
    "fimi": fimi(LISTS),
    "ragged": ragged(LISTS),
    "long": long_csv(LISTS),
    "jsonl": jsonl(LISTS),
}


# -- One pass ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kind", [*TEXTS, "parquet"])
def test_a_file_is_opened_once_and_its_bytes_are_read_once(write, tmp_path, monkeypatch, kind, suffix):
    if kind == "parquet":
        pq.write_table(pa.table({"order": [1, 1, 2], "item": ["a", "b", "a"]}), tmp_path / "x")
        path = write((tmp_path / "x").read_bytes(), f"y{suffix}")
    else:
        path = write(TEXTS[kind] * 20_000, f"y{suffix}") if kind != "long" else write(long_csv(LISTS * 20_000))
    opened, n_read = [], 0
    real_open, real_chunks = builtins.open, Source.chunks

    def counting_open(file, *args, **kwargs):
        opened.append(file)
        return real_open(file, *args, **kwargs)

    def counting_chunks(source):
        nonlocal n_read
        for chunk in real_chunks(source):
            n_read += len(chunk)
            yield chunk

    monkeypatch.setattr(builtins, "open", counting_open)
    monkeypatch.setattr(Source, "chunks", counting_chunks)
    found = reading_from(str(path))  # as `contradpp fit` does
    assert opened.count(path) == 1
    whole = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert n_read == (0 if kind == "parquet" and not suffix else len(whole))
    assert found.format == kind


def test_what_was_guessed_comes_with_the_baskets(write):
    found = read(write('order_id,sku,Description,qty\n1,a,"Tea, green",2\n1,b,Milk,1\n'), "auto", {})
    assert found.format == "long"
    assert found.columns == {"basket": "order_id", "item": "sku", "name": "Description", "returns": "qty"}
    assert found.baskets.items.names == {"a": "Tea, green", "b": "Milk"}


# -- Formats by content and by name ----------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("chosen", ["auto", "name"])
@pytest.mark.parametrize("kind", TEXTS)
def test_every_text_format(write, kind, chosen, suffix):
    path = write(TEXTS[kind], f"baskets.bin{suffix}")
    assert read_baskets(path, kind if chosen == "name" else "auto") == Baskets.from_lists(LISTS)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("variant", ["crlf", "cr", "bom", "bom+crlf", "blank lines", "spaces", "no final newline"])
def test_the_same_file_from_other_editors(write, kind, variant):
    text = TEXTS[kind]
    data = {
        "crlf": text.replace("\n", "\r\n").encode(),
        "cr": text.replace("\n", "\r").encode(),
        "bom": b"\xef\xbb\xbf" + text.encode(),
        "bom+crlf": b"\xef\xbb\xbf\r\n" + text.replace("\n", "\r\n").encode(),
        "blank lines": ("\n\n" + text.replace("\n", "\n\n")).encode(),
        "spaces": ("   \n" + text.replace("\n", "\n  \t \n")).encode(),
        "no final newline": text.rstrip("\n").encode(),
    }[variant]
    assert read_baskets(write(data)) == Baskets.from_lists(LISTS)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(write, separator):
    assert list(read_baskets(write(ragged(LISTS, separator)))) == LISTS
    assert list(read_baskets(write(long_csv(LISTS, separator)))) == LISTS


WAYS = [  # what it shows, the name and the text of a file, options, and what it holds
    ("dat is another word for fimi", "x", "1 2\n", {"format": "dat"}, [[1, 2]]),
    ("the suffix breaks a tie: dat", "x.dat", "a,1 b,2\nc\n", {}, [["a,1", "b,2"], ["c"]]),
    ("the suffix breaks a tie: csv", "x.csv", "a,1 b,2\nc\n", {}, [["a", "1 b", "2"], ["c"]]),
    ("the suffix breaks only a tie: csv", "x.csv", "1 2\n3\n", {}, [[1, 2], [3]]),
    ("the suffix breaks only a tie: dat", "x.dat", "a,b\nc\n", {}, [["a", "b"], ["c"]]),
    ("repeated spaces", "x", "  1  2 \t3 \n4 \n", {"format": "fimi"}, [[1, 2, 3], [4]]),
    ("trailing separators", "x", "a, b,,\n,,,\nc d ,\n", {"format": "ragged"}, [["a", "b"], ["c d"]]),
    ("a basket may be scattered", "x", "order_id,item\nb,1\na,2\nb,3\na,2\nb,1\n", {}, [[1, 3], [2]]),
    ("an id before a bare noun", "x", "order,order_id,product,product_id\nx,1,Tea,7\ny,1,Milk,8\n", {}, [[7, 8]]),
    ("numbers of equal size are no table", "x", "1,2\n3,4\n", {}, [[1, 2], [3, 4]]),
    ("texts of equal size are no table", "x", "tea,milk\njam,tea\n", {}, [["tea", "milk"], ["jam", "tea"]]),
    ("named columns find their separator", "x", "who,what;when;where\na;1;x\na;2;y\n",
     {"basket": "who,what", "item": "where"}, [["x", "y"]]),
    ("pairs are no choices", "x.csv", "tea;milk\nmilk;bread\n", {}, [["tea", "milk"], ["milk", "bread"]]),
    ("a stray quote is a character", "x", 'order,item\n1,5" pipe\n1,b\n', {}, [['5" pipe', "b"]]),
    ("UTF-8 cut off at the end is Latin-1", "x", "a é".encode()[:-1], {}, [["a", "Ã"]]),
    ("a no-break space is part of an id", "x", "a\u00a0b c\n", {}, [["a\u00a0b", "c"]]),
    ("quoted fields", "x", '"ham, smoked", eggs\n"a ""b"""\n', {}, [["ham, smoked", "eggs"], ['a "b"']]),
    ("empty baskets of JSON stay", "x", "[1]\n[]\n[1,2]\n", {}, [[1], [], [1, 2]]),
    ("JSON may be long", "x", jsonl({"order_id": b, "sku": i} for b, i in [("b", 1), ("a", 2), ("b", 3)]), {},
     [[1, 3], [2]]),
    ("JSON may share baskets", "x", jsonl({"cart": c, "items": i} for c, i in [(1, [1]), (2, []), (1, [2, 1])]),
     {"basket": "cart"}, [[1, 2], []]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "options", "lists"), [row[1:] for row in WAYS], ids=[row[0] for row in WAYS])
def test_the_ways_of_writing_baskets(write, name, text, options, lists):
    assert list(read_baskets(str(write(text, name)), **options)) == lists


def test_an_unknown_format_lists_the_known_ones(write):
    with pytest.raises(ParameterError, match=r"'ragged'.*'feather'"):
        read_baskets(write("1 2\n"), "feather")


@pytest.mark.parametrize("kind", ["fimi", "ragged"])
def test_columns_make_no_sense_without_a_header(write, kind):
    with pytest.raises(ParameterError, match="item"):
        read_baskets(write(TEXTS[kind]), kind, item="product")


# -- Ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "ids"),
    [
        (["1", "22", "0", "-5"], [1, 22, 0, -5]),
        (["1", "007"], ["1", "007"]),
        (["1", "+2"], ["1", "+2"]),
        (["1", "2.0"], ["1", "2.0"]),
        (["10002", "85123A"], ["10002", "85123A"]),
        (["1", "-0"], ["1", "-0"]),
        (["1", "1" * 30], ["1", "1" * 30]),
        (["1", "٣"], ["1", "٣"]),
        (["NA", "null", "nan"], ["NA", "null", "nan"]),
    ],
)
def test_ids_are_integers_only_if_all_are(write, tokens, ids):
    for text in (fimi([tokens]), ragged([tokens, tokens[:1]]), long_csv([tokens])):
        assert read_baskets(write(text))[0] == ids


def test_json_and_parquet_ids_keep_their_types(write, tmp_path):
    assert list(read_baskets(write(jsonl([["1", 2, 2.5]])))) == [["1", 2, 2.5]]
    pq.write_table(pa.table({"order": [1, 1], "item": ["1", "2"]}), tmp_path / "x.parquet")
    assert list(read_baskets(tmp_path / "x.parquet")) == [["1", "2"]]


# -- Round trips -----------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters=",;|\t\"'[]{}"), min_size=1, max_size=5)
quotable = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=5).filter(
    lambda text: text == text.strip(" ")  # blanks around an id do not count in CSV
)
ids = st.one_of(
    st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=8),
    st.lists(texts, min_size=1, max_size=8),
)
SETTINGS = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def baskets_of(items):
    return items.flatmap(
        lambda known: st.lists(st.lists(st.sampled_from(known), min_size=1, max_size=5), min_size=1, max_size=8)
    )


def same_up_to_type(read, lists):
    expected = Baskets.from_lists([[str(item) for item in basket] for basket in lists])
    assert [[str(item) for item in basket] for basket in read] == list(expected)


@SETTINGS
@given(lists=baskets_of(ids))
def test_round_trip_of_fimi_and_ragged(write, lists):
    same_up_to_type(read_baskets(write(fimi(lists)), "fimi"), lists)
    same_up_to_type(read_baskets(write(ragged(lists)), "ragged"), lists)


@SETTINGS
@given(lists=baskets_of(st.lists(quotable, min_size=1, max_size=6)))
@pytest.mark.parametrize("separator", [",", ";"])
def test_round_trip_of_long_csv_with_quotes(tmp_path, separator, lists):
    path = tmp_path / "long.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=separator)
        writer.writerow(["note", "basket_id", "item_id"])
        for number, basket in enumerate(lists):
            writer.writerows(['"a", b;\n c', number, item] for item in basket)
    same_up_to_type(read_baskets(path), lists)


@SETTINGS
@given(lists=st.lists(st.lists(st.one_of(st.integers(), quotable)), min_size=1))
def test_round_trip_of_jsonl(write, lists):
    expected = Baskets.from_lists(lists)
    assert read_baskets(write(jsonl(lists)), "jsonl") == expected
    assert read_baskets(write(jsonl({"n": 1, "items": basket} for basket in lists))) == expected


@SETTINGS
@given(lists=baskets_of(ids))
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_round_trip_of_parquet(tmp_path, suffix, lists):
    path = tmp_path / f"x.parquet{suffix}"
    long = {
        "basket": [number for number, basket in enumerate(lists) for _ in basket],
        "item": [item for basket in lists for item in basket],
    }
    for table in (pa.table(long), pa.table({"id": range(len(lists)), "items": lists})):
        pq.write_table(table, path)
        if suffix:
            path.write_bytes(gzip.compress(path.read_bytes()))
        assert read_baskets(path) == Baskets.from_lists(lists)


# -- Long CSV --------------------------------------------------------------------------------------


def test_scattered_over_many_blocks(write, monkeypatch):
    monkeypatch.setattr(contradpp.data.readers, "_BLOCK", 64)
    rows = [(f"t{n % 7}", f"i{n % 11}") for n in range(500)]
    expected = Baskets.from_lists([[i for t, i in rows if t == f"t{k}"] for k in range(7)])
    path = write("\n".join(["tid,sku", *(f"{t},{i}" for t, i in rows)]))
    assert [sorted(basket) for basket in read_baskets(path)] == [sorted(basket) for basket in expected]
    assert [basket[0] for basket in read_baskets(path)] == [basket[0] for basket in expected]


def test_a_quoted_line_end_may_fall_between_blocks(write, monkeypatch):
    monkeypatch.setattr(contradpp.data.readers, "_BLOCK", 50)
    path = write("order,item,note\n" + "".join(f'{n},i{n},"first\n{"x" * (n % 9)},second\n"\n' for n in range(40)))
    assert list(read_baskets(path)) == [[f"i{n}"] for n in range(40)]


@pytest.mark.parametrize(
    "header",
    ["InvoiceNo,StockCode", "order_id,product_id", "Order ID,SKU", "Transaction,Item", "TID,asin",
     "session-id,track_id", "basket,article", "PLAYLIST_ID,TrackId", "receipt no,EAN",
     '"cart_id","itemDescription"'],
)  # fmt: skip
def test_columns_are_guessed_from_common_names(write, header):
    assert list(read_baskets(write(f"{header}\n1,a\n1,b\n"))) == [["a", "b"]]


@pytest.mark.parametrize("header", ["order_id,invoice_no,item", "order_id,sku,product_id", "foo,bar", "customer,item"])
def test_an_uncertain_guess_lists_the_columns(write, header):
    n_columns = header.count(",") + 1
    path = write(f"{header}\n" + "".join(",".join("12345"[:n_columns]) + "\n" for _ in range(2)))
    with pytest.raises(DataError) as caught:
        read_baskets(path)
    for part in (*header.split(","), str(path), "basket=", "item="):
        assert part in str(caught.value)


def test_unknown_names_over_texts_are_uncertain_too(write):
    path = write("kassa,ware\nk1,tea\nk1,milk\nk2,tea\n")
    with pytest.raises(DataError, match=r"'kassa', 'ware'.*format='ragged'"):
        read_baskets(path)
    assert list(read_baskets(path, basket="kassa", item="ware")) == [["tea", "milk"], ["tea"]]
    assert read_baskets(path, "ragged").n_baskets == 4


@pytest.mark.parametrize("role", ["basket", "item", "quantity", "name"])
def test_a_wrong_column_lists_the_columns(write, role):
    with pytest.raises(DataError, match=rf"'nope' for {role}=.*'order_id', 'product_id'"):
        read_baskets(write(TEXTS["long"]), **{role: "nope"})


def test_a_column_cannot_be_both_or_twice(write):
    with pytest.raises(DataError, match="same column"):
        read_baskets(write("a,b\n1,2\n"), basket="a", item="a")
    with pytest.raises(DataError, match="more than once"):
        read_baskets(write("a,b,b\n1,2,3\n"), basket="a", item="b")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("order,item\n1,a\n\n1\n", 4, "2 fields but this row has 1 field"),
        ("order,item\n1,a,9\n1,b\n", 2, "this row has 3 fields"),
        ("\n\norder,item\n1,a\n1,\n", 5, "the item is missing"),
        ('order,item\n1,a\n"",b\n', 3, "the basket is missing"),
        ('order,item,note\n1,a,"x\ny"\n\n1,,z\n', 5, "the item is missing"),
        ('order,item\n1,a\n1,"b\n2,c\n', 3, "quote"),
        ('order,item\n1,a\n"1,b\n2,c\n', 3, "quote"),
    ],
)
def test_malformed_rows_are_reported_by_line(write, text, line, reason):
    path = write(text)
    with pytest.raises(DataError, match=f"{path.name}, line {line}: .*{reason}"):
        read_baskets(path, "long")


def test_a_row_longer_than_a_block_is_refused(write, monkeypatch):
    monkeypatch.setattr(contradpp.data.readers, "_BLOCK", 1000)
    path = write("order,item\n1,a\n2," + "x" * 5000 + "\n")
    with pytest.raises(DataError, match="line 3: the row is longer"):
        read_baskets(path)


# -- Quantities and names --------------------------------------------------------------------------


def test_rows_without_a_positive_quantity_are_dropped_and_counted(write, caplog):
    path = write("order,item,qty\n1,a,2\n1,b,-1\n2,c,0\n3,a, 0.5\n")
    with caplog.at_level(logging.INFO, logger="contradpp"):
        baskets = read_baskets(path, quantity="qty")
    assert list(baskets) == [["a"], ["a"]]
    assert list(baskets.items) == ["a"]
    assert "dropped 2 rows" in caplog.text
    assert path.name in caplog.text


@pytest.mark.parametrize(("value", "reason"), [("many", "'many'.*not a quantity"), ("", "quantity is missing")])
def test_a_quantity_must_be_a_number(write, value, reason):
    with pytest.raises(DataError, match=f"line 3: .*{reason}"):
        read_baskets(write(f"order,item,qty\n1,a,2\n1,b,{value}\n"), quantity="qty")


@pytest.mark.parametrize("rows", ["", "1,a,0\n"])
def test_nothing_left_is_an_error(write, rows):
    with pytest.raises(DataError, match="no baskets"):
        read_baskets(write(f"order,item,qty\n{rows}"), quantity="qty")


def test_names_belong_to_ids_and_the_first_one_stays(write):
    path = write('order,item,title\n1,7,\n1,8,"Lamp, red"\n2,7,Desk\n3,7,Table\n')
    baskets = read_baskets(path, name="title")
    assert baskets.items.names == {7: "Desk", 8: "Lamp, red"}


def test_names_and_quantities_in_jsonl_and_parquet(write, tmp_path):
    rows = [
        {"order": 1, "item": "a", "n": 1, "title": "Apple"},
        {"order": 1, "item": "b", "n": -1, "title": "Bread"},
        {"order": 2, "item": "a", "n": 3, "title": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    for path in (write(jsonl(rows)), tmp_path / "x.parquet"):
        baskets = read_baskets(path, quantity="n", name="title")
        assert list(baskets) == [["a"], ["a"]]
        assert baskets.items.names == {"a": "Apple"}


# -- Encodings and damage --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fimi", "ragged", "long"])
def test_latin_1_even_if_it_shows_late(write, monkeypatch, kind):
    monkeypatch.setattr(contradpp.data.files, "_CHUNK", 100)
    lists = [["tea", "milk"]] * 200 + [["tea", "café"]]
    text = {"fimi": fimi, "ragged": ragged, "long": long_csv}[kind](lists)
    for encoding in ("latin-1", "utf-8"):
        assert read_baskets(write(text.encode(encoding)))[-1] == ["tea", "café"]


def test_a_very_long_basket_is_read(write):
    items = list(range(40_000))
    assert list(read_baskets(write(fimi([items])))) == [items]
    assert list(read_baskets(write(ragged([items, [1]])))) == [items, [1]]


@pytest.mark.parametrize("name", ["x", "x.csv", "x.gz", "x.parquet"])
@pytest.mark.parametrize("content", [b"", b"\n \r\n\t\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_an_empty_file_is_refused(write, name, content):
    with pytest.raises(DataError, match="empty"):
        read_baskets(write(content, name))


def test_a_missing_file_is_named(tmp_path):
    for kind in ("auto", "fimi", "parquet"):
        with pytest.raises(DataError, match=r"nothing\.csv: there is no such file"):
            read_baskets(tmp_path / "nothing.csv", kind)


@pytest.mark.parametrize("kind", ["auto", *TEXTS])
def test_binary_garbage_is_refused_with_its_line(write, kind):
    for byte in (b"\0", b"\x01", b"\x1b"):
        with pytest.raises(DataError, match=rf"baskets\.txt, line 3: not a text file.*0x{byte.hex()}"):
            read_baskets(write(b"1 2\n3\n4 " + byte + b"\n"), kind)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04rest", "ZIP"),
        (b"\xfd7zXZ\0", "xz"),
        ("1 2\n".encode("utf-16"), "UTF-16"),
        ("1 2\n".encode("utf-32"), "UTF-32"),
        (codecs.BOM_UTF32_BE + "1 2\n".encode("utf-32-be"), "UTF-32"),
        (b"BZh9", "bzip2"),
        (b"%PDF-1.4\n1 0 obj\n", "PDF"),
        (b"<!DOCTYPE html>\n<html>\n", "web page"),
    ],
)
def test_foreign_files_are_called_by_name(write, content, what):
    with pytest.raises(DataError, match=what):
        read_baskets(write(content))


@pytest.mark.parametrize("kind", ["auto", "fimi", "parquet"])
def test_damaged_gzip_is_refused(tmp_path, kind):
    whole = gzip.compress(b"".join(b"%d %d\n" % (n, n * n) for n in range(5000)))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for data in (whole[: len(whole) // 2], bytes(flipped), whole[:6]):
        path = tmp_path / "x.dat.gz"
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"x\.dat\.gz: the gzip data are damaged"):
            read_baskets(path, kind)


@pytest.mark.parametrize("kind", ["auto", "fimi", "ragged", "long", "jsonl"])
def test_an_endless_line_is_refused(write, monkeypatch, kind):
    monkeypatch.setattr(contradpp.data.files, "_CHUNK", 100)
    monkeypatch.setattr(contradpp.data.files, "MAX_LINE", 1 << 10)
    with pytest.raises(DataError, match="line 2: the line is longer"):
        read_baskets(write(("[1]\n" if kind == "jsonl" else "order_id,item\n") + "1," * 1000), kind)


def test_an_open_quote_in_a_ragged_file_is_reported(write):
    with pytest.raises(DataError, match=r"line 2: .*quote"):
        read_baskets(write('a,b\nc,"d\ne,f\n'), "ragged")


@SETTINGS
@given(
    content=st.binary(max_size=200),
    kind=st.sampled_from(["auto", "fimi", "ragged", "long", "jsonl", "parquet"]),
)
def test_whatever_the_bytes_the_answer_is_baskets_or_a_data_error(write, content, kind):
    with contextlib.suppress(DataError):
        assert read_baskets(write(content), kind).n_baskets > 0


def test_arrow_is_imported_only_when_it_is_needed(write):
    code = (
        "import sys; from contradpp.data.readers import read_baskets; "
        "read_baskets(sys.argv[1]); sys.exit('pyarrow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(write("1 2\n"))], check=True)


# -- What people's files are like ------------------------------------------------------------------


def test_one_bad_byte_is_reported_and_the_rest_stays_utf_8(write, caplog):
    path = write("tea café\n".encode() + b"milk \xff\n" + "café\n".encode())
    assert list(read_baskets(path)) == [["tea", "café"], ["milk", "ÿ"], ["café"]]
    assert "1 lines are not UTF-8 and were read as Latin-1, the first of them is line 2" in caplog.text


@pytest.mark.parametrize(
    "rows",
    [
        ["1001,7", "1001,8", "1002,7", "1003,9"],
        ["k1;tea", "k1;milk", "k2;tea", "k3;jam"],
        ["1,tea", "2,milk", "1,jam", "2,tea", "3,jam"],  # not in runs, but numbers beside texts
    ],
)
@pytest.mark.parametrize("kind", ["auto", "long"])
def test_two_columns_without_a_header_are_baskets_and_items(write, caplog, rows, kind):
    pairs = [re.split("[,;]", row) for row in rows]
    expected = [[item for b, item in pairs if b == basket] for basket in dict.fromkeys(b for b, _ in pairs)]
    assert [[str(i) for i in basket] for basket in read_baskets(write("\n".join(rows)), kind)] == expected
    assert "no header" in caplog.text
    assert "format='ragged'" in caplog.text
    assert read_baskets(write("\n".join(rows)), "ragged").n_baskets == len(rows)


@pytest.mark.parametrize("rows", [["1,2", "3,4"], ["1,2", "3,1", "1,3"], ["a,b", "a,c"], ["1,2", "1,2,3", "2,3"]])
def test_baskets_of_two_items_stay_baskets(write, rows):
    assert read_baskets(write("\n".join(rows))).n_baskets == len(rows)


def test_rows_in_no_order_are_read_as_baskets_with_a_note(write, caplog):
    path = write("1001,5\n1002,5\n1001,6\n1003,7\n1002,6\n", "pairs.csv")
    assert read_baskets(path)[0] == [1001, 5]
    assert "taken for a basket of two items" in caplog.text
    caplog.clear()
    read_baskets(write("tea,milk\nmilk,jam\ntea,jam\njam,bread\n", "pairs.csv"))
    assert not caplog.text


def test_blanks_around_ids_do_not_count_in_long_csv(write):
    path = write('order_id, item\n1, a\n 1,"b "\n2,a\n2\t,a\n')
    assert list(read_baskets(path)) == [["a", "b"], ["a"]]
    assert read_baskets(path, item="item", basket="order_id").n_items == 2
    with pytest.raises(DataError, match="line 2: the item is missing"):
        read_baskets(write("order,item\n1,  \n"))


BAD_ROWS = {
    "x.csv": "order,item,n\n1,a,1\n,b,1\n1,,1\n1\n2,a,many\n2,c,1\n",
    "x.jsonl": jsonl([{"order": 1, "item": "a", "n": 1}, {"order": None, "item": "b", "n": 1}, {"order": 1, "n": 1}, 7,
                      {"order": 2, "item": "a", "n": "many"}, {"order": 2, "item": "c", "n": 1}]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_may_be_skipped(write, caplog, name):
    path = write(BAD_ROWS[name], name)
    with pytest.raises(DataError, match="line"):
        read_baskets(path, quantity="n")
    assert read_baskets(path, quantity="n", on_bad_row="skip") == Baskets.from_lists([["a"], ["c"]])
    assert "dropped 4 rows that could not be read" in caplog.text
    with pytest.raises(ParameterError, match=r"on_bad_row.*'ignore'"):
        read_baskets(path, on_bad_row="ignore")


def test_bad_rows_of_parquet_may_be_skipped(tmp_path, caplog):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"order": [1, 1, None, 2], "item": ["a", None, "z", "b"]}), path)
    assert read_baskets(path, on_bad_row="skip") == Baskets.from_lists([["a"], ["b"]])
    assert "dropped 2 rows" in caplog.text
    pq.write_table(pa.table({"items": [["a"], None, ["z", None], ["b"]]}), path)
    assert read_baskets(path, on_bad_row="skip") == Baskets.from_lists([["a"], ["b"]])


RETURNS = [("536365", "a", 6), ("536366", "b", 1), ("C536367", "a", -6), ("536368", "z", -2), ("536369", "a", 0)]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("columns", [["InvoiceNo", "StockCode", "Quantity"], ["InvoiceNo", "StockCode"]])
def test_returns_are_dropped_and_counted(write, tmp_path, caplog, suffix, columns):
    rows = [dict(zip(columns, row, strict=False)) for row in RETURNS]
    lines = [",".join(columns), *(",".join(map(str, row.values())) for row in rows)]
    path = write({".csv": "\n".join(lines), ".jsonl": jsonl(rows)}.get(suffix, ""), f"x{suffix}")
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    by_quantity = "Quantity" in columns
    kept = [["a"], ["b"], ["a"]] if by_quantity else [["a"], ["b"], ["z"], ["a"]]
    assert read_baskets(path) == Baskets.from_lists(kept)
    assert f"dropped {2 if by_quantity else 1} rows that are returns (returns='keep'" in caplog.text
    assert list(read_baskets(path, returns="keep")) == [[item] for _, item, _ in RETURNS]
    with pytest.raises(ParameterError, match="returns"):
        read_baskets(path, returns="no")


def test_baskets_that_all_begin_with_c_are_no_returns(write, caplog):
    path = write("cart_id,item\n" + "".join(f"C{n},{n}\n" for n in range(5)))
    assert read_baskets(path).n_baskets == 5
    assert not caplog.text


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe: not a file"):
        read_baskets(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["x.dat.gz", "x.parquet.gz"])
def test_gzip_that_unpacks_to_too_much_is_refused(write, monkeypatch, name):
    monkeypatch.setattr(contradpp.data.files, "MAX_UNPACKED", 1 << 21)
    path = write(b"1 2\n" * (1 << 20), name)
    with pytest.raises(DataError, match=r"bytes of gzip unpack to more than 2,097,152.*200 times.*2 MB"):
        read_baskets(path, "fimi" if "dat" in name else "parquet")
    assert read_baskets(write(b"1 2\n" * (1 << 18), name), "fimi").n_baskets == 1 << 18


def test_gzip_is_refused_before_it_is_read_to_its_end(tmp_path, monkeypatch):
    """The bound was that of the whole file, which would have allowed its random end."""
    monkeypatch.setattr(contradpp.data.files, "MAX_UNPACKED", 1 << 21)
    path = tmp_path / "x.dat.gz"
    path.write_bytes(gzip.compress(b"1 2\n" * (1 << 21)) + gzip.compress(os.urandom(1 << 20)))
    with pytest.raises(DataError, match="bytes of gzip unpack to more than"):
        read_baskets(path, "fimi")


@pytest.mark.parametrize("text", ["order,item\n1,2\n3,4\n", "a,b\n", "1 2\n", '["a"]\n'])
@pytest.mark.parametrize("name", ["0.parquet", "2.parquet"])
def test_a_folder_is_read_as_parquet_only(tmp_path, text, name):
    pq.write_table(pa.table({"order": [1, 1], "item": ["a", "b"]}), tmp_path / "1.parquet")
    assert list(read_baskets(tmp_path)) == [["a", "b"]]
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=f"{name}: not a readable Parquet file"):
        read_baskets(tmp_path)


def test_endless_blank_lines_are_refused(write, monkeypatch):
    monkeypatch.setattr(contradpp.data.files, "MAX_BLANK", 2 << 20)
    for before in (b"", b"order,item\n"):
        with pytest.raises(DataError, match="2 MB are blank"):
            read_baskets(write(before + b"\n" * (4 << 20) + b"1,2\n"))
        assert read_baskets(write(before + b"\n" * (1 << 20) + b"1,2\n")).n_baskets == 1


def test_categories_come_from_a_column(write, tmp_path):
    rows = [{"order": 1, "item": "a", "aisle": "tea"}, {"order": 1, "item": "b", "aisle": None},
            {"order": 2, "item": "a", "aisle": "tea"}]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    csv_file = write("order,item,aisle\n1,a,tea\n1,b,\n2,a,tea\n", "x.csv")
    for path in (write(jsonl(rows)), tmp_path / "x.parquet", csv_file):
        assert read_baskets(path, category="aisle").items.categories == {"a": "tea"}
        assert read_baskets(path).items.categories == {}


def test_a_table_of_items(write):
    path = write('id;name;aisle\n7;"Tea; green";drinks\n8;Jam;\n', "items.csv")
    items = read_items(path, item="id", name="name", category="aisle")
    assert (list(items), items.names, items.categories) == ([7, 8], {7: "Tea; green", 8: "Jam"}, {7: "drinks"})
    with pytest.raises(DataError, match=r"'shelf' for category=.*'id', 'name', 'aisle'"):
        read_items(path, item="id", category="shelf")
    with pytest.raises(DataError, match=r"line 2: .*2 fields"):
        read_items(write("id,name,aisle\n7,Tea\n"), item="id", name="name")


# -- JSON lines ------------------------------------------------------------------------------------


def test_json_objects_with_a_list(write):
    for field in ("items", "basket", "products", "whatever"):
        path = write(jsonl({"id": n, field: basket} for n, basket in enumerate(LISTS)))
        assert read_baskets(path) == Baskets.from_lists(LISTS)


def test_json_objects_choose_among_lists(write):
    path = write(jsonl([{"tags": ["x"], "items": [1, 2], "more": [3]}]))
    assert list(read_baskets(path)) == [[1, 2]]
    assert list(read_baskets(path, item="more")) == [[3]]
    with pytest.raises(DataError, match="'tags', 'more'"):
        read_baskets(write(jsonl([{"tags": ["x"], "more": [3]}])))


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("[1]\n\n[2\n", 3, "not valid JSON"),
        ("[1]\n[null]\n", 2, "null"),
        ("[1]\n[[2]]\n", 2, "string or a number"),
        ("[1]\n[true]\n", 2, "string or a number"),
        ("[1]\n[NaN]\n", 2, "NaN"),
        ("[1]\n7\n", 2, "array or object"),
        ('[1]\n{"items": [1]}\n', 2, "an array was expected"),
        ('{"items": [1]}\n{"item": [1]}\n', 2, "'items' is missing"),
        ('{"items": [1]}\n{"items": 1}\n', 2, "must hold an array"),
        ('{"order": 1, "item": 1}\n{"order": null, "item": 1}\n', 2, "null"),
        ("[1]\n[\n", 2, "each line must be a whole JSON value"),
        ("[" * 100_000 + "\n", 1, "not valid JSON"),
        ("[1]\n[" + "1" * 5000 + "]\n", 2, "not valid JSON"),
    ],
)
def test_malformed_json_is_reported_by_line(write, text, line, reason):
    with pytest.raises(DataError, match=f"baskets.jsonl, line {line}: .*{reason}"):
        read_baskets(write(text, "baskets.jsonl"))


def test_json_without_known_fields_lists_them(write):
    with pytest.raises(DataError, match="'foo', 'bar'"):
        read_baskets(write(jsonl([{"foo": 1, "bar": 2}])))
    with pytest.raises(DataError, match=r"item=.*cannot apply"):
        read_baskets(write("[1]\n"), "jsonl", item="x")
    with pytest.raises(DataError, match="quantity must be a number"):
        read_baskets(write(jsonl([{"order": 1, "item": 2, "n": "3"}])), quantity="n")
    with pytest.raises(DataError, match="holds lists"):
        read_baskets(write(jsonl([{"items": [1], "n": 3}])), quantity="n")


# -- Parquet ---------------------------------------------------------------------------------------


def test_parquet_is_recognized_whatever_its_name(tmp_path):
    path = tmp_path / "data.csv"
    pq.write_table(pa.table({"InvoiceNo": [5, 5, 6], "StockCode": ["a", "b", "a"]}), path)
    assert list(read_baskets(path)) == [["a", "b"], ["a"]]
    with pytest.raises(DataError, match="Parquet"):
        read_baskets(path, "long")


def test_a_folder_of_parts_is_one_table(tmp_path):
    with pytest.raises(DataError, match=r"without \.parquet"):
        read_baskets(tmp_path)
    pq.write_table(pa.table({"order": [1, 2], "item": ["a", "b"]}), tmp_path / "part-0.parquet")
    pq.write_table(pa.table({"order": [2, 3], "item": ["c", "a"]}), tmp_path / "part-1.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert list(read_baskets(tmp_path)) == [["a"], ["b", "c"], ["a"]]
    with pytest.raises(ParameterError, match="folder"):
        read_baskets(tmp_path, "long")


def test_damaged_parquet_is_refused(tmp_path, write):
    pq.write_table(pa.table({"order": range(1000), "item": range(1000)}), tmp_path / "x.parquet")
    whole = (tmp_path / "x.parquet").read_bytes()
    for data in (whole[:200], whole[:-20], b"PAR1", whole[:4] + b"\xff" * 2000 + whole[2004:]):
        for name in ("y.parquet", "y.parquet.gz"):
            with pytest.raises(DataError, match=r"y\.parquet"):
                read_baskets(write(data, name))
    with pytest.raises(DataError, match="not a readable Parquet"):
        read_baskets(write("1 2\n"), "parquet")


def test_a_null_in_parquet_is_reported_by_row(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"order": [1, 1, None], "item": ["a", None, "b"]}), path)
    with pytest.raises(DataError, match=r"x\.parquet, row 3: the basket is missing"):
        read_baskets(path)


@pytest.mark.parametrize("below_zero", ["-2", "-2,0", "- 2", "\u22122", "2-", "(2)", "-1e3", "-inf"])
def test_returns_are_seen_however_the_minus_is_written(tmp_path, below_zero):
    path = tmp_path / "till.csv"
    path.write_text(f"order_id;product_id;quantity\n1;a;1,5\n1;b;{below_zero}\n2;c;x-y\n", encoding="utf-8")
    assert [list(one) for one in read_baskets(path)] == [["a"], ["c"]]


@pytest.mark.parametrize("path", [None, 5, "a\0b", "a" * 5000, b"/no such file", "~nobody-of-that-name/x"])
def test_what_is_no_path_is_a_typed_error(path):
    with pytest.raises((DataError, ParameterError)):
        read_baskets(path)


def test_what_are_no_baskets_is_a_typed_error():
    for wrong in (None, 5):
        with pytest.raises(DataError, match="lists of items"):
            Baskets.from_lists(wrong)
    with pytest.raises(DataError, match="NaN"):
        Baskets.from_csr(csr_array([[np.nan, 1.0]]))
    with pytest.raises(ParameterError, match="Series"):
        Baskets.from_frame(pd.Series([["a"], ["b"]]))


# -- Files that are not what they seem ---------------------------------------------------------------


def test_a_million_fields_are_not_looked_at_as_names(tmp_path, monkeypatch):
    looked: list[str] = []
    original = contradpp.data.columns._normal
    monkeypatch.setattr(contradpp.data.columns, "_normal", lambda name: (looked.append(name), original(name))[1])
    path = tmp_path / "wide.txt"
    path.write_text(" ".join(map(str, range(12_000))) + "\n1 2\n")
    assert read_baskets(path).sizes.tolist() == [12_000, 2]
    assert len(looked) < 10_000
    assert max(map(len, looked), default=0) <= 1_000  # under other separators the line is one field


@pytest.mark.parametrize("value", ["a", None, 7, True])
def test_json_lines_that_are_no_baskets(tmp_path, value):
    path = tmp_path / "values.jsonl"
    path.write_text(f"{json.dumps(value)}\n" * 5)
    with pytest.raises(DataError, match="a basket must be a JSON array or object"):
        read_baskets(path)


def test_of_a_folder_it_is_said_what_is_not_read(tmp_path, caplog):
    pq.write_table(pa.table({"order": [1, 1, 2], "item": ["a", "b", "a"]}), tmp_path / "part.parquet")
    (tmp_path / "_SUCCESS").touch()
    with caplog.at_level(logging.WARNING, "contradpp"):
        assert read_baskets(tmp_path).n_baskets == 2
        assert not caplog.messages
        (tmp_path / "more.csv").write_text("order,item\n3,c\n")
        assert read_baskets(tmp_path).n_baskets == 2
    assert re.search(r"only .parquet files are read, not more.csv \(1 in all\)", caplog.text)


def test_half_a_character_is_written_out(tmp_path, capfd):
    path, model = tmp_path / "half.jsonl", tmp_path / "model.safetensors"
    path.write_text("\n".join(json.dumps(["\ud800", "b", "c", "d"][k % 3 :]) for k in range(60)))
    cd.NonsymmetricDPP(n_components=2, max_iter=1).fit(read_baskets(path)).save(model)
    for more in ([], ["--json"], ["--input", str(path)]):
        with pytest.raises(SystemExit) as ended:
            main(["recommend", str(model), *([] if "--input" in more else ["b"]), *more])
        out, err = capfd.readouterr()
        assert ended.value.code == 0, err
        assert "\\ud800" in out


def test_a_key_that_is_there_twice_is_no_basket(tmp_path):
    path = tmp_path / "twins.jsonl"
    path.write_text('{"items": ["a", "b"]}\n{"items": ["a", "b"], "items": ["c"]}\n')
    with pytest.raises(DataError, match="line 2: not valid JSON: the key 'items' is there twice"):
        read_baskets(path)
