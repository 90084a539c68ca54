"""The data sets that `load` knows by name: found on disk, downloaded from their origin, or generated.

A fixed data set is looked for in the folder that the environment variable `CONTRADPP_DATA` names, then in
the cache folder (`CONTRADPP_CACHE`, else `$XDG_CACHE_HOME/contradpp`, else `~/.cache/contradpp`), and then
downloaded into the cache.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contradpp._random import RandomState
from contradpp.data import grocer
from contradpp.data.baskets import Baskets
from contradpp.data.features import Given, read_features
from contradpp.data.readers import read_baskets, read_items
from contradpp.errors import DataError, DownloadError, MissingExtraError, ParameterError

__all__ = ["Dataset", "cache_folder", "download", "info", "item_features", "load", "location", "names"]

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes there are and the number there will be, if that is known."""

_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 16
_MAX_BYTES = 1 << 30  # of a download
_ATTEMPTS = 3  # with a pause of a second more each time
_TIMEOUT = 30.0  # seconds without an answer
_LARGEST_WORKBOOK = 1 << 30  # unpacked; the real one has some 200 MB of XML
_COLUMNS = ("InvoiceNo", "StockCode", "Description", "Quantity")


@dataclass(frozen=True)
class Origin:
    """A file of a data set: where it may lie in a data folder, where it comes from, and its checksum.

    A download gets the last of the paths. Without a checksum, what is made of the file is checked; of a file
    that may be gzip the checksum is that of the content, since the bytes depend on who packed it.
    """

    paths: tuple[str, ...]
    url: str | None
    sha256: str | None


@dataclass(frozen=True)
class Dataset:
    """A data set as it is described before loading; the counts are those after preparation.

    `n_baskets` is None where the caller chooses. A data set without files is built in.
    """

    name: str
    description: str
    source: str
    n_baskets: int | None
    n_items: int
    files: tuple[Origin, ...] = ()


# The checksums are those of the files in their original form; see each origin's page for terms of use.
_AMAZON_URL = "https://raw.githubusercontent.com/cgartrel/LowRankDPP.jl/master/data/Amazon-baby-registry/"
_AMAZON = {  # registry: baskets, items
    "apparel": (8_102, 100), "bath": (6_887, 100), "bedding": (8_899, 100), "diaper": (10_504, 100),
    "feeding": (12_612, 100), "gear": (8_861, 100), "health": (6_598, 62),
}  # fmt: skip
_AMAZON_FILES = """
87dd11f92ea12ce50b4f7bbbbeb55652cbaa395e446c4f308f94a7c5fdf34cc0 apparel_regs.csv
6135869dcc12bb4ad92a5430ba91969bd04783c653675d419ee775e734a8c08a apparel_item_names.txt
b6cf9a854099158c044dcf1d0a98066776921c7887398e25817ec13d944b6fd7 bath_regs.csv
72b610c8a6f1864f108d0b2e10f2ffd973f26d572ac521ffaa778b130db9cdd4 bath_item_names.txt
dde74acfadf1d151b7533cb1fdc7ca4e28a4615f0ebc6093a8035c2c20196062 bedding_regs.csv
e5b0001f216355d6f296de20c09e9c0c6bf4cf7767f21c76a96933743ccd17a7 bedding_item_names.txt
9f80c039f87f2fe83568b7775cb8c2b9f0055079c3e9866f1ccb5731cbef288f diaper_regs.csv
6d8ac0f9f1de904bd1c4f1dc4d06f8c4c57f4c1994052eac24a20b71925249fe diaper_item_names.txt
5af0dd067d4e6b3646afbcb72838fb90dc50a99b1e14f48632f7cd01b1d5d663 feeding_regs.csv
10d7708f43bd4f8a312f1b359b9333e6b8e49eb22d6e789e5391b1d8640dd1e1 feeding_item_names.txt
d26729a9597b6e3f025cefa8fce27baaba2a78027890fbd7b95c3d63e5ccc3aa gear_regs.csv
682d27a80793c8bb351e00c7522b6a7a65fdee119c65f640fae2d3ce8ef83703 gear_item_names.txt
6c16e6996bfad739e36f284a17d1224594a886429d405da7f8130e76fd6241f1 health_regs.csv
51b6e10e02a243de183942ac397e079ec959c9b2ed2a3beb47f8e2294b6f6553 health_item_names.txt
"""


def _amazon(registry: str) -> Dataset:
    n_baskets, n_items = _AMAZON[registry]
    sums = (line.split() for line in _AMAZON_FILES.split("\n") if f" {registry}_" in line)
    files = ((f"1_100_100_100_{name}", checksum) for checksum, name in sums)
    return Dataset(
        f"amazon/{registry}",
        f"Amazon baby registries, {registry}: registries of two or more items",
        "Gillenwater et al. 2014, by way of the LowRankDPP.jl repository",
        n_baskets,
        n_items,
        tuple(Origin((f"amazon/{file}",), _AMAZON_URL + file, checksum) for file, checksum in files),
    )


_BELGIAN = Dataset(
    "belgian",
    "Belgian retail supermarket: anonymous items, long tail",
    "Brijs et al. 1999, FIMI repository",
    88_162,
    16_470,
    (Origin(("belgian/retail.dat.gz", "belgian/retail.dat"), "http://fimi.uantwerpen.be/data/retail.dat",
            "d967431ba522e32f0fbb243f2ee113ecd4cb374cb0234c1b0858dae1d499a055"),),
)  # fmt: skip
_UK = Dataset(
    "uk",
    "UK online gift shop: invoices of at most 100 distinct items",
    "Chen 2015, Online Retail, UCI Machine Learning Repository (CC BY 4.0)",
    20_097,
    3_802,
    (Origin(("uk/online_retail.parquet",),
            "https://archive.ics.uci.edu/static/public/352/online+retail.zip", None),),
)  # fmt: skip
_LOCAL = [  # without a public download
    Dataset(
        "instacart", "Instacart 2017: the train orders, products in the order they were put into the cart",
        "Instacart Market Basket Analysis 2017", 131_209, 39_123,
        (Origin(("instacart/baskets.txt.gz", "instacart/baskets.txt"), None,
                "58d03b0f20d3db1e1b7ae0ef24ad8bbb7a3fe6729ef9cee54239a516c8d506e3"),
         Origin(("instacart/items.csv",), None, "679fa8494e821d16b331ce084bf3dbfdabedcb9bc61ee78db01d9a6219e082e5")),
    ),
    Dataset(
        "tafeng", "Ta-Feng supermarket: a visit per basket, anonymous items", "Ta-Feng grocery data set",
        91_227, 11_997,
        (Origin(("tafeng/baskets.txt.gz", "tafeng/baskets.txt"), None,
                "54be918aafe1a5bb32b92987ad738351528ddd43a438084ddd599c45f9157fbd"),),
    ),
    Dataset(
        "groceries", "a month of a German supermarket, items by their kind", "Hahsler et al., R package arules",
        9_835, 169,
        (Origin(("groceries/baskets.txt",), None, "423bb0434e496ce6a14747e5fbdc4ea2a1c73716571e70c41cca0dddd556aa2f"),
         Origin(("groceries/items.csv",), None, "2184689d0adb6790372550bbc5f6d55e1053ca4eb27b94a1bdfaf20c719ce1e1")),
    ),
    Dataset(
        "yoochoose", "sessions of an online shop: what was bought, and what it was chosen from",
        "Benson, Kumar, Tomkins 2018, from the RecSys Challenge 2015", 156_039, 2_975,
        (Origin(("yoochoose/choices.txt.gz", "yoochoose/choices.txt"), None,
                "b26623995d959fa99d6155cf73fcade17de23002ab7686fd0b9310213afffbf4"),),
    ),
]  # fmt: skip
_ITEMS = {  # the columns of the tables of items
    "instacart": {"item": "product_id", "name": "product_name", "category": "aisle"},
    "groceries": {"item": "id", "name": "name", "category": "level2"},
}
_FEATURES = {"instacart": ("product_name", "aisle", "department"), "groceries": ("name", "level2", "level1")}
_GROCER = Dataset("grocer", "made-up supermarket: substitutes rarely meet, complements often do",
                  "generated by contradpp", None, len(grocer.categories()))  # fmt: skip
_TOY = Dataset("toy", "the paper's toy set: {1, 2} and {3, 4}, each 1000 times", "built in", 2_000, 4)

_CATALOGUE: dict[str, Dataset] = {
    dataset.name: dataset for dataset in (_TOY, _GROCER, _BELGIAN, _UK, *map(_amazon, _AMAZON), *_LOCAL)
}


def names() -> list[str]:
    """List the names that `load` accepts."""
    return list(_CATALOGUE)


def info(name: str) -> Dataset:
    """Describe a data set; `ParameterError` if there is none of this name."""
    if name in _CATALOGUE:
        return _CATALOGUE[name]
    close = difflib.get_close_matches(str(name).lower(), _CATALOGUE, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ParameterError(f"there is no data set {name!r}.{hint} There are: {', '.join(_CATALOGUE)}")


def load(
    name: str,
    *,
    n_baskets: int | None = None,
    random_state: RandomState = None,
    progress: bool | Progress | None = None,
) -> Baskets:
    """Load a data set by name, prepared as in the paper, with item names and categories where they exist.

    Parameters
    ----------
    name : str
        One of `names()`: "toy", "grocer", "belgian", "uk", "amazon/feeding", "instacart", ...
    n_baskets, random_state
        Of generated data ("grocer"): how many baskets (20,000), and the seed; without one it is 0, so that
        a name always means the same data.
    progress : bool or callable, optional
        Of a download: see `fetch`.

    Examples
    --------
    >>> load("toy")
    Baskets(2,000 baskets, 4 items)
    """
    dataset = info(name)
    if name == "grocer":
        size = 20_000 if n_baskets is None else n_baskets
        return grocer.generate(size, random_state=0 if random_state is None else random_state)
    if n_baskets is not None or random_state is not None:
        raise ParameterError(f"{name!r} is fixed: n_baskets and random_state are for generated data ('grocer')")
    if name == "toy":
        return Baskets.from_lists([[1, 2]] * 1000 + [[3, 4]] * 1000)
    return _prepare(dataset, download(name, progress=progress))


def item_features(name: str) -> Given:
    """Read the features of a data set's items, names and categories; `ParameterError` if it has none."""
    if name not in _FEATURES:
        raise ParameterError(f"the items of {info(name).name!r} have no features; those of {', '.join(_FEATURES)} have")
    given = read_features(download(name)[1], item=_ITEMS[name]["item"])
    return given._replace(columns={column: given.columns[column] for column in _FEATURES[name]})


def cache_folder() -> Path:
    """Return the folder for downloads."""
    if folder := os.environ.get("CONTRADPP_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "contradpp"


def location(name: str) -> Path | None:
    """Find the folder that holds the data set; None if it is built in or not on disk yet."""
    found = [_find(origin) for origin in info(name).files]
    return found[0].parent if found and found[0] and all(found) else None


def download(name: str, *, progress: bool | Progress | None = None) -> list[Path]:
    """Return the files of a data set, downloaded into the cache folder if they are not on disk."""
    dataset = info(name)
    return [_find(origin) or _download(dataset, origin, progress) for origin in dataset.files]


def _find(origin: Origin) -> Path | None:
    folders = [cache_folder()]
    if given := os.environ.get("CONTRADPP_DATA"):
        folders.insert(0, Path(given).expanduser())
    candidates = (folder / path for folder in folders for path in origin.paths)
    return next((path for path in candidates if path.is_file()), None)


def _download(dataset: Dataset, origin: Origin, progress: bool | Progress | None) -> Path:
    target = cache_folder() / origin.paths[-1]
    way_out = f"put {origin.paths[0]} into a folder and name the folder in the environment variable CONTRADPP_DATA"
    if origin.url is None:
        raise DownloadError(
            f"{dataset.name!r} has no public download: set CONTRADPP_DATA. If you have the data, {way_out}"
        )
    _LOG.info("%s is neither in CONTRADPP_DATA nor in the cache: downloading %s", origin.paths[0], origin.url)
    try:
        if dataset.name == "uk":
            return _download_uk(dataset, origin.url, target, progress)
        return fetch(origin.url, target, sha256=origin.sha256, progress=progress)
    except DownloadError as error:
        raise DownloadError(f"{error}. If you have the data, {way_out}") from error


def _download_uk(dataset: Dataset, url: str, target: Path, progress: bool | Progress | None) -> Path:
    """Download and convert the workbook, of which no checksum but the number of baskets is known."""
    archive = fetch(url, target.with_name("online_retail.zip"), progress=progress)
    candidate = target.with_name("unchecked.parquet")
    try:
        convert_online_retail(archive, candidate)
        baskets = _prepare(dataset, [candidate])
        found, expected = (baskets.n_baskets, baskets.n_items), (dataset.n_baskets, dataset.n_items)
        if found != expected:
            raise DataError(f"it gives {found} baskets and items, expected {expected}")
        return candidate.replace(target)
    except DataError as error:
        raise DownloadError(f"{url} is not the file it was: {error}") from error
    finally:
        archive.unlink(missing_ok=True)
        candidate.unlink(missing_ok=True)


# -- Preparation: what the paper does to each data set, and what makes the others readable -------------------


def _prepare(dataset: Dataset, files: list[Path]) -> Baskets:
    if dataset.name == "uk":
        baskets = read_baskets(files[0], "parquet", "InvoiceNo", "StockCode")
        return baskets.filter(max_size=100).with_names(_uk_names(files[0]))
    if dataset.name == "yoochoose":
        return read_baskets(files[0], "choices")
    if dataset.name.startswith("amazon/"):
        return read_baskets(files[0], "ragged").filter(min_size=2).with_names(_amazon_names(files[1]))
    baskets = read_baskets(files[0], "fimi")
    if dataset.name in _ITEMS:
        items = read_items(files[1], **_ITEMS[dataset.name])
        return baskets.with_names(items.names).with_categories(items.categories)
    return baskets


def _amazon_names(path: Path) -> dict[Hashable, str]:
    """Read names by id from lines `id category: title`; a few titles have the quotation marks of Windows."""
    found: dict[Hashable, str] = {}
    for line in path.read_text(encoding="cp1252", errors="replace").splitlines():
        number, _, rest = line.partition(" ")
        _, _, title = rest.partition(":")
        if not (number.isdigit() and title.strip()):
            raise DataError(f"{path}: expected 'id category: title', found {line!r}")
        found[int(number)] = title.strip()
    return found


def _uk_names(path: Path) -> dict[Hashable, str]:
    """Find the most frequent description of each article: others are notes of the stock-takers."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["StockCode", "Description"])
    counts = table.group_by(["StockCode", "Description"]).aggregate([([], "count_all")])
    best: dict[Hashable, tuple[int, str]] = {}
    for row in counts.to_pylist():
        name = (row["Description"] or "").strip()
        if name and name != "Missing_Description":
            best[row["StockCode"]] = max(best.get(row["StockCode"], (0, "")), (row["count_all"], name))
    return {item: name for item, (_, name) in best.items()}


# -- Downloads -------------------------------------------------------------------------------------


def fetch(url: str, destination: Path, *, sha256: str | None = None, progress: bool | Progress | None = None) -> Path:
    """Download a file; nothing appears at `destination` unless the whole file came and is right.

    Parameters
    ----------
    sha256 : str, optional
        The checksum in hexadecimal. Without it only the announced length is checked.
    progress : bool or callable, optional
        True shows a progress bar on stderr, None only if that is a terminal. A callable receives
        (bytes so far, bytes in all or None).
    """
    if not url.startswith(("http://", "https://")):
        raise ParameterError(f"can only download from http and https addresses, got {url!r}")
    pooch = _extra("pooch")
    pooch.get_logger().setLevel("WARNING")
    checksum = None if sha256 is None else f"sha256:{sha256.lower()}"
    name, folder = destination.name, destination.parent
    keeper = pooch.create(folder, "", registry={name: checksum}, urls={name: url}, retry_if_failed=_ATTEMPTS - 1)
    try:
        with _reporter(progress, name) as report:
            return Path(keeper.fetch(name, downloader=lambda url, path, _: _transfer(url, path, report)))
    except DownloadError:
        raise
    except _extra("requests").RequestException as error:
        raise DownloadError(f"could not download {url}: {error}") from error
    except ValueError as error:  # of pooch: the checksum is another
        raise DownloadError(f"{url} was changed at its origin or on the way, nothing was kept: {error}") from error
    except OSError as error:
        raise DownloadError(f"could not store {url} in {destination}: {error}") from error


def _transfer(url: str, path: str, report: Progress) -> None:
    """Write what is at an address to a file, or raise `DownloadError` if it is too large."""
    # "identity": the length must count the bytes of the file, not of a compressed transfer.
    headers = {"User-Agent": "contradpp", "Accept-Encoding": "identity"}
    with (
        _extra("requests").get(url, stream=True, timeout=_TIMEOUT, headers=headers) as response,
        open(path, "wb") as file,
    ):
        response.raise_for_status()
        total = int(response.headers.get("content-length", 0)) or None
        done = 0
        report(done, total)
        for chunk in response.iter_content(_CHUNK):
            done += len(chunk)
            if max(total or 0, done) > _MAX_BYTES:
                raise DownloadError(f"{url} is larger than expected: more than {_MAX_BYTES:,} bytes")
            file.write(chunk)
            report(done, total)


def convert_online_retail(archive: Path, destination: Path) -> None:
    """Write the sales in the Online Retail zip of the UCI repository to the Parquet file that `uk` is read from.

    Kept are the rows of a positive quantity whose invoice number is a number: cancellations begin with C,
    accounting adjustments with A, and stock corrections have a negative quantity.
    """
    calamine = _extra("python_calamine")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            workbook = calamine.CalamineWorkbook.from_path(_unpack(archive, Path(folder)))
            sales = list(_sales(workbook.get_sheet_by_index(0).iter_rows()))
    except (zipfile.BadZipFile, calamine.CalamineError, EOFError, ValueError, LookupError) as error:
        raise DataError(f"{archive} is not the Online Retail workbook: {error}") from error
    kinds = (pa.int64(), pa.string(), pa.string(), pa.int64())
    columns = [pa.array([row[n] for row in sales], kind) for n, kind in enumerate(kinds)]
    pq.write_table(pa.table(columns, names=list(_COLUMNS)), destination, compression="zstd")


def _extra(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"downloads need {module}: pip install 'contradpp[download]', or put the data into a folder that the "
            "environment variable CONTRADPP_DATA names"
        ) from error


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack the workbook, itself a zip of XML files, from the zip around it; neither may be too large."""
    with zipfile.ZipFile(archive) as outer:
        inside = [entry for entry in outer.namelist() if entry.lower().endswith(".xlsx")]
        if len(inside) != 1:
            raise DataError(f"{archive} should hold one .xlsx file, it holds {len(inside)}")
        _refuse_large(outer)
        workbook = Path(outer.extract(inside[0], folder))
    with zipfile.ZipFile(workbook) as inner:
        _refuse_large(inner)
    return workbook


def _refuse_large(package: zipfile.ZipFile) -> None:
    size = sum(entry.file_size for entry in package.infolist())
    if size > _LARGEST_WORKBOOK:
        raise DataError(f"it would take {size:,} bytes unpacked, at most {_LARGEST_WORKBOOK:,} are expected")


def _sales(rows: Iterator[list[Any]]) -> Iterator[tuple[int, str, str | None, int]]:
    """Read the rows that are sales: invoice, article, its name and how many."""
    header = next(rows, [])
    places = [header.index(column) for column in _COLUMNS]
    for row in rows:
        invoice, code, name = (_as_text(row[place]) for place in places[:3])
        quantity = float(row[places[3]] or 0)
        if invoice.isdigit() and code and quantity > 0:
            yield int(invoice), code, name or None, int(quantity)


def _as_text(cell: Any) -> str:
    """Write a cell as people see it: a workbook keeps whole numbers as fractions."""
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()


@contextmanager
def _reporter(progress: bool | Progress | None, label: str) -> Iterator[Progress]:
    """Make a callback that draws a bar, does nothing, or is the caller's own."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    if callable(progress):
        yield progress
        return
    shown = progress or (progress is None and sys.stderr is not None and sys.stderr.isatty())
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
