"""Data sets by name: the counts of the real ones, where they are looked for, and how they are downloaded."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contradpp.data import datasets, grocer
from contradpp.data.datasets import Origin
from contradpp.errors import DataError, DownloadError, MissingExtraError, ParameterError

FIXED = [name for name in datasets.names() if datasets.info(name).files]

needs_data = pytest.mark.skipif(
    not os.environ.get("CONTRADPP_DATA"), reason="CONTRADPP_DATA does not name a folder with the real data"
)


# -- The catalogue -----------------------------------------------------------------------------------


def test_names_and_descriptions() -> None:
    assert datasets.names()[:4] == ["toy", "grocer", "belgian", "uk"]
    assert sum(name.startswith("amazon/") for name in datasets.names()) == 7
    for name in datasets.names():
        dataset = datasets.info(name)
        assert dataset.name == name
        assert dataset.description
        assert dataset.source
        assert dataset.n_items > 0


def test_an_unknown_name_is_answered_with_the_names_and_a_suggestion() -> None:
    with pytest.raises(ParameterError, match=r"Did you mean 'amazon/feeding'.*toy, grocer, belgian"):
        datasets.load("amazon/feedng")
    with pytest.raises(ParameterError, match=r"'Belgian'.*Did you mean 'belgian'"):
        datasets.load("Belgian")
    with pytest.raises(ParameterError, match="there is no data set 7"):
        datasets.load(7)  # type: ignore[arg-type]


def test_toy_is_the_papers() -> None:
    toy = datasets.load("toy")
    assert list(toy[:1000]) == [[1, 2]] * 1000
    assert list(toy[1000:]) == [[3, 4]] * 1000


def test_grocer_has_parameters_and_a_fixed_default_seed() -> None:
    assert datasets.load("grocer") == grocer.generate(20_000, random_state=0)
    assert datasets.load("grocer", n_baskets=50, random_state=3) == grocer.generate(50, random_state=3)
    assert datasets.info("grocer").n_items == datasets.load("grocer", n_baskets=5).n_items
    assert datasets.location("grocer") is None


@pytest.mark.parametrize("name", ["toy", "belgian", "uk", "amazon/gear"])
def test_fixed_data_refuse_parameters(name: str) -> None:
    with pytest.raises(ParameterError, match="fixed"):
        datasets.load(name, n_baskets=10)
    with pytest.raises(ParameterError, match="fixed"):
        datasets.load(name, random_state=0)


# -- The real data -----------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("name", FIXED)
def test_real_data_have_the_known_counts(name: str) -> None:
    baskets, known = datasets.load(name), datasets.info(name)
    assert (baskets.n_baskets, baskets.n_items) == (known.n_baskets, known.n_items)
    assert baskets.item_counts.min() > 0
    assert datasets.location(name) is not None


@needs_data
def test_uk_items_are_codes_with_names() -> None:
    baskets = datasets.load("uk")
    assert set(map(type, baskets.items)) == {str}
    assert baskets.items.name("85123A") == "WHITE HANGING HEART T-LIGHT HOLDER"
    names = baskets.items.names
    assert len(names) > 3700
    assert not any(name != name.strip() or name == "Missing_Description" for name in names.values())


@needs_data
@pytest.mark.parametrize("name", [name for name in FIXED if name.startswith("amazon/")])
def test_amazon_registries_are_pairs_or_more_of_named_items(name: str) -> None:
    baskets = datasets.load(name)
    assert baskets.sizes.min() == 2
    assert set(baskets.items) == set(range(1, baskets.n_items + 1))
    assert set(baskets.items.names) == set(baskets.items)


@needs_data
@pytest.mark.parametrize(
    ("name", "second", "mean", "largest"),
    [
        ("belgian", [30, 31, 32], 10.31, 76),
        ("uk", ["22633", "22632"], 18.93, 100),
        ("instacart", [39612, 19660, 49235, 43086, 46620, 34497, 48679, 46979], 10.55, 80),
        ("tafeng", [3, 4, 5, 6, 7], 6.27, 102),
        ("groceries", [14, 29, 98], 4.41, 32),
    ],
)
def test_the_shops_are_whole(name: str, second: list[int | str], mean: float, largest: int) -> None:
    baskets = datasets.load(name)
    assert baskets[1] == second
    assert round(float(baskets.sizes.mean()), 2) == mean
    assert baskets.sizes.max() == largest


@needs_data
@pytest.mark.parametrize(("name", "n_categories"), [("instacart", 134), ("groceries", 55)])
def test_items_of_the_shops_have_names_and_categories(name: str, n_categories: int) -> None:
    items = datasets.load(name).items
    assert set(items.names) == set(items.categories) == set(items)
    assert len(set(items.categories.values())) == n_categories


@needs_data
def test_yoochoose_is_what_was_bought_of_what_was_looked_at() -> None:
    baskets = datasets.load("yoochoose")
    assert (baskets.sizes.min(), baskets.sizes.max()) == (1, 5)
    assert list(baskets[:3]) == [[1, 4], [5], [8]]
    assert baskets.offered is not None
    assert [baskets.items[c] for c in baskets.offered.indices[:4]] == [1, 2, 3, 4]
    assert (baskets.offered.sizes.min(), baskets.offered.sizes.max()) == (2, 10)
    assert (baskets.refused.sizes == baskets.offered.sizes - baskets.sizes).all()


@needs_data
@pytest.mark.parametrize("name", FIXED)
def test_the_checksums_are_those_of_the_files(name: str) -> None:
    for origin, path in zip(datasets.info(name).files, datasets.download(name), strict=True):
        if origin.sha256:
            content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            assert hashlib.sha256(content).hexdigest() == origin.sha256


# -- Where files are looked for ----------------------------------------------------------------------


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data folder, and an empty cache."""
    monkeypatch.delenv("CONTRADPP_DATA", raising=False)
    monkeypatch.setenv("CONTRADPP_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONTRADPP_CACHE", str(tmp_path / "ours"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert datasets.cache_folder() == tmp_path / "ours"
    monkeypatch.delenv("CONTRADPP_CACHE")
    assert datasets.cache_folder() == tmp_path / "xdg" / "contradpp"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert datasets.cache_folder() == tmp_path / "home" / ".cache" / "contradpp"


def test_the_data_folder_comes_before_the_cache(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert datasets.location("belgian") is None
    (empty / "cache" / "belgian").mkdir(parents=True)
    (empty / "cache" / "belgian" / "retail.dat").write_text("1 2\n")
    assert list(datasets.load("belgian")) == [[1, 2]]

    (empty / "data" / "belgian").mkdir(parents=True)
    (empty / "data" / "belgian" / "retail.dat.gz").write_bytes(gzip.compress(b"3 4 5\n6\n"))
    monkeypatch.setenv("CONTRADPP_DATA", str(empty / "data"))
    assert list(datasets.load("belgian")) == [[3, 4, 5], [6]]
    assert datasets.location("belgian") == empty / "data" / "belgian"


def test_amazon_is_prepared_from_its_two_files(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = empty / "data" / "amazon"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CONTRADPP_DATA", str(empty / "data"))
    (folder / "1_100_100_100_bath_regs.csv").write_bytes(b"2,3\r\n4\r\n1,2,3\r\n")
    names = folder / "1_100_100_100_bath_item_names.txt"
    names.write_bytes(b"1 bath: Tub: Baby\r\n2 bath: Women\x92s Towel\r\n3 bath: Soap\r\n4 bath: Duck\r\n")
    baskets = datasets.load("amazon/bath")
    assert list(baskets) == [[2, 3], [1, 2, 3]]
    assert baskets.items.names == {1: "Tub: Baby", 2: "Women’s Towel", 3: "Soap"}
    names.write_text("1 bath\n")
    with pytest.raises(DataError, match=r"item_names\.txt: expected"):
        datasets.load("amazon/bath")


# -- Downloads ---------------------------------------------------------------------------------------

Serve = Callable[[str, dict[str, bytes]], None]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def serve(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Make these files, by the ending of their address, the origin of a data set."""
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)  # the pause between attempts
    folder = empty / "origin"
    folder.mkdir()
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def put(name: str, files: dict[str, bytes]) -> None:
            origins = []
            for origin in datasets.info(name).files:
                ending, content = next(item for item in files.items() if str(origin.url).endswith(item[0]))
                (folder / ending).write_bytes(content)
                checksum = hashlib.sha256(content).hexdigest() if origin.sha256 else None
                url = f"http://127.0.0.1:{server.server_address[1]}/{ending}"
                origins.append(Origin(origin.paths, url, checksum))
            changed = dataclasses.replace(datasets.info(name), files=tuple(origins), n_baskets=3, n_items=3)
            monkeypatch.setitem(datasets._CATALOG, name, changed)

        yield put
        server.shutdown()
        thread.join()


def cached(root: Path) -> set[str]:
    cache = root / "cache"
    return {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}


def test_a_data_set_that_is_nowhere_is_downloaded_once(serve: Serve, empty: Path) -> None:
    serve("belgian", {"retail.dat": b"1 2 \n2 3 \n"})
    assert list(datasets.load("belgian")) == [[1, 2], [2, 3]]
    assert cached(empty) == {"belgian/retail.dat"}
    (empty / "origin" / "retail.dat").unlink()
    assert datasets.load("belgian").n_baskets == 2


def test_a_download_of_two_files(serve: Serve, empty: Path) -> None:
    serve("amazon/gear", {"regs.csv": b"1,2\r\n", "item_names.txt": b"1 gear: A\r\n2 gear: B\r\n"})
    assert datasets.location("amazon/gear") is None
    assert datasets.load("amazon/gear").items.names == {1: "A", 2: "B"}
    assert datasets.location("amazon/gear") == empty / "cache" / "amazon"


def test_a_changed_origin_is_refused_and_the_message_helps(serve: Serve, empty: Path) -> None:
    serve("belgian", {"retail.dat": b"1 2 \n2 3 \n"})
    (empty / "origin" / "retail.dat").write_bytes(b"9 9 9\n")
    with pytest.raises(DownloadError, match=r"(?s)SHA256.*CONTRADPP_DATA"):
        datasets.load("belgian")
    assert cached(empty) == set()


@pytest.mark.parametrize("name", ["instacart", "tafeng", "groceries", "yoochoose"])
def test_without_a_public_download_the_message_says_so(empty: Path, name: str) -> None:
    with pytest.raises(DownloadError, match=f"{name}.*no public download: set CONTRADPP_DATA.*{name}/"):
        datasets.load(name)


def test_what_is_on_disk_needs_no_extra(serve: Serve, empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve("belgian", {"retail.dat": b"1 2 \n2 3 \n"})
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"contradpp\[download\]"):
        datasets.load("belgian")
    (empty / "cache" / "belgian").mkdir(parents=True)
    (empty / "cache" / "belgian" / "retail.dat").write_text("1 2\n")
    assert list(datasets.load("belgian")) == [[1, 2]]


# -- The workbook of the UK data ---------------------------------------------------------------------

HEADER = ["InvoiceNo", "StockCode", "Description", "Quantity", "UnitPrice", "InvoiceDate", "CustomerID"]
ROWS: list[list[str | float | None]] = [
    [536365, "85123A", " HOLDER ", 6, 2.55, "2010-12-01T08:26:00", 17850],
    [536365, 71053, "LANTERN & CO", 6, 3.39, "2010-12-01T08:26:00", 17850],
    [536366, 71053, None, 2, 3.39],
    [536366, "POST", "POSTAGE", 1, 18],
    ["C536379", "D", "Discount", -1, 27.5],
    ["A563185", "B", "Adjust bad debt", 1, 11062.06],
    [536589, 21777, None, -10, 0],
    [536590, "85123A", "wrongly coded", 1, 1],
    [536590, "85123A", "HOLDER", 1, 1],
]


def workbook(rows: list[list[str | float | None]]) -> bytes:
    """The repository's zip, in small: a workbook with these rows below the header."""

    def cell(row: int, column: int, value: str | float | None) -> str:
        place = f'r="{"ABCDEFGH"[column]}{row}"'
        if value is None:
            return f'<c {place} s="1"/>'
        if not isinstance(value, str):
            return f"<c {place}><v>{value!r}</v></c>"
        return f'<c {place} t="inlineStr"><is><t>{escape(value)}</t></is></c>'

    lines = []
    for number, row in enumerate([HEADER, *rows], start=1):
        cells = "".join(cell(number, column, value) for column, value in enumerate(row))
        lines.append(f'<row r="{number}">{cells}</row>')
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    start = '<?xml version="1.0" encoding="UTF-8"?>'
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as package:
        sheet = f"{start}<worksheet {space}><sheetData>{''.join(lines)}</sheetData></worksheet>"
        package.writestr("xl/worksheets/sheet1.xml", sheet)
        sheets = '<sheets><sheet name="Sales" sheetId="1" r:id="rId1"/></sheets>'
        package.writestr("xl/workbook.xml", f'{start}<workbook {space} xmlns:r="{relation}">{sheets}</workbook>')
        for part, kind, target in (
            ("_rels/.rels", "officeDocument", "xl/workbook.xml"),
            ("xl/_rels/workbook.xml.rels", "worksheet", "worksheets/sheet1.xml"),
        ):
            told = f'<Relationship Id="rId1" Type="{relation}/{kind}" Target="{target}"/>'
            package.writestr(part, f'{start}<Relationships xmlns="{relations}">{told}</Relationships>')
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("Online Retail.xlsx", inner.getvalue())
    return outer.getvalue()


def test_the_workbook_is_converted_to_sales(tmp_path: Path) -> None:
    archive, target = tmp_path / "a.zip", tmp_path / "a.parquet"
    archive.write_bytes(workbook(ROWS))
    datasets.convert_online_retail(archive, target)
    table = pq.read_table(target)
    names = ["InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "CustomerID"]
    assert table.column_names == names
    assert table["InvoiceNo"].type == pa.int64()
    assert table["InvoiceNo"].to_pylist() == [536365, 536365, 536366, 536366, 536590, 536590]
    assert table["StockCode"].to_pylist() == ["85123A", "71053", "71053", "POST", "85123A", "85123A"]
    assert table["Description"].to_pylist()[:4] == ["HOLDER", "LANTERN & CO", None, "POSTAGE"]
    assert {path.name for path in tmp_path.iterdir()} == {"a.zip", "a.parquet"}


def test_uk_is_downloaded_converted_and_checked(serve: Serve, empty: Path) -> None:
    serve("uk", {"online+retail.zip": workbook(ROWS)})
    baskets = datasets.load("uk")
    assert list(baskets) == [["85123A", "71053"], ["71053", "POST"], ["85123A"]]
    assert baskets.items.names == {"85123A": "HOLDER", "71053": "LANTERN & CO", "POST": "POSTAGE"}
    assert baskets.customers.tolist() == [17850, None, None]
    assert str(baskets.times[0]) == "2010-12-01T08:26:00.000000"
    assert cached(empty) == {"uk/online_retail.parquet"}


@pytest.mark.parametrize(
    "content",
    [workbook(ROWS[:2]), workbook(ROWS)[:-500], b"<html>moved</html>", workbook([["536365", "A", "B", "x", 1]])],
    ids=["other counts", "cut off", "no zip", "no number"],
)
def test_a_workbook_that_is_not_the_known_one_leaves_nothing(serve: Serve, empty: Path, content: bytes) -> None:
    serve("uk", {"online+retail.zip": content})
    with pytest.raises(DownloadError, match="not the file it was"):
        datasets.load("uk")
    assert cached(empty) == set()


def test_a_workbook_that_would_unpack_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(workbook(ROWS))
    monkeypatch.setattr(datasets, "_LARGEST_WORKBOOK", 100)
    with pytest.raises(DataError, match=r"would take .* bytes unpacked"):
        datasets.convert_online_retail(archive, tmp_path / "a.parquet")


def test_a_zip_without_a_workbook_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as package:
        package.writestr("readme.txt", "nothing here")
    with pytest.raises(DataError, match=r"one \.xlsx file"):
        datasets.convert_online_retail(archive, tmp_path / "a.parquet")
