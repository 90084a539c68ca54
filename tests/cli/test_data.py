"""`contradpp data`: data sets by name, one screen about a file, and conversion that loses nothing."""

from __future__ import annotations

import errno
import json
import os

import pytest

import contradpp as cd
from contradpp.cli.inputs import reading_from
from contradpp.data import datasets


def test_list(call, monkeypatch, tmp_path):
    monkeypatch.setenv("CONTRADPP_DATA", str(tmp_path))
    monkeypatch.setenv("CONTRADPP_CACHE", str(tmp_path))
    found = {entry["name"]: entry for entry in json.loads(call("data", "list", "--json").out)}
    assert found.keys() == set(datasets.names())
    assert found["toy"]["where"] == "built in"
    assert "contradpp data fetch uk" in found["uk"]["where"]
    assert call("data", "list").out.count("\n") == 1 + len(found)


def test_describe(call, orders):
    assert "240 baskets, 4 items" in call("data", "describe", orders).out
    assert "read as: long, basket: order_id, item: sku, name: product_name" in call("data", "describe", orders).out
    shown = json.loads(call("data", "describe", orders, "--json").out)
    assert shown["n_baskets"] == 240
    assert shown["columns"] == {"basket": "order_id", "item": "sku", "name": "product_name"}
    assert "--basket" in call("data", "describe", orders, "--basket", "nothing", code=1).err


def test_event_logs(call, tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text("user,time,item\n1,2024-05-01 10:00,tea\n1,2024-05-01 10:20,milk\n1,2024-05-01 12:00,jam\n")
    assert "3 baskets, 3 items" in call("data", "describe", path, "--basket", "user,time").out
    shown = call("data", "describe", path, "--gap", "30min").out
    assert "2 baskets, 3 items" in shown
    assert "basket: user,time" in shown
    assert "gap must be a time such as" in call("data", "describe", path, "--gap", "soon", code=1).err


def test_an_option_that_is_given_twice_is_an_error(call, orders):
    """The last one was taken in silence."""
    twice = call("data", "describe", orders, "--basket", "order_id", "--basket=sku", code=2).err
    assert "Invalid value for '--basket': given 2 times; give it once" in twice
    assert call("data", "describe", orders, "--json", "--json").code == 0  # a flag has no value to lose


def test_fetch(call):
    assert "nothing to fetch" in call("data", "fetch", "toy").out
    assert json.loads(call("data", "fetch", "toy", "grocer", "--json").out) == {"toy": [], "grocer": []}
    assert call("data", "fetch").code == 2
    assert "Did you mean 'uk'?" in call("data", "fetch", "yuk", code=1).err


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet", ".dat"])
def test_conversion_keeps_the_baskets(call, orders, tmp_path, suffix):
    target = tmp_path / f"shop{suffix}"
    assert "240 baskets of 4 items" in call("data", "convert", orders, target, code=0).out
    assert list(cd.read_baskets(target)) == list(cd.read_baskets(orders))
    assert json.loads(call("data", "convert", target, tmp_path / "again.jsonl", "--json").out)["n_baskets"] == 240
    if suffix in (".csv", ".parquet"):
        assert reading_from(str(target)).columns["name"] == "name"
        assert cd.read_baskets(target).items.name("S1") == "Sugar, white"


def test_conversion_of_what_does_not_fit(call, tmp_path):
    spaces = tmp_path / "x.jsonl"
    spaces.write_text('["green tea"]\n')
    assert ".jsonl" in call("data", "convert", spaces, tmp_path / "x.dat", code=1).err
    assert call("data", "convert", "toy", tmp_path / "x.xls").code == 2
    assert call("data", "convert", "toy", tmp_path / "x").code == 2
    assert call("data", "convert", "toy", tmp_path / "x.parquet.gz").code == 2
    assert call("data", "convert", "toy", tmp_path / "none" / "x.csv").code == 1
    assert {path.name for path in tmp_path.iterdir()} == {"x.jsonl"}


def test_a_full_disk_leaves_the_old_file(call, tmp_path, monkeypatch):
    target = tmp_path / "toy.jsonl"
    target.write_text("old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(os, "replace", full)
    assert "free some space" in call("data", "convert", "toy", target, code=1).err
    assert [path.name for path in tmp_path.iterdir()] == ["toy.jsonl"]
    assert target.read_text() == "old"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("order_id,sku,Description\n1,a,b\n", "Description"),
        ("order_id,sku,product_name,title\n1,a,b,c\n", None),
        ("order_id,sku\n1,a\n", None),
        ("1 2 3\n4 5\n", None),
    ],
)
def test_the_column_of_names_is_guessed_only_if_there_is_one(tmp_path, content, expected):
    (tmp_path / "orders.csv").write_text(content)
    found = reading_from(str(tmp_path / "orders.csv"))
    assert found.columns.get("name") == expected
    assert found.format == ("long" if "order_id" in content else "fimi")
