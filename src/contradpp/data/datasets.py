"""Data sets by name: found on disk, downloaded from their origin, or generated.

A fixed data set is looked for in the folder that the environment variable `CONTRADPP_DATA` names,
then in the cache folder, and then downloaded into the cache. The cache folder is `CONTRADPP_CACHE`,
else `$XDG_CACHE_HOME/contradpp`, else `~/.cache/contradpp`.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from contradpp._random import RandomState
from contradpp.data import grocer
from contradpp.data.baskets import Baskets
from contradpp.data.features import FeatureTable, read_features
from contradpp.data.files import opened
from contradpp.data.readers import read_baskets, read_items
from contradpp.data.workbooks import workbook_rows
from contradpp.errors import (
    DataError,
    DownloadError,
    MissingExtraError,
    ParameterError,
    did_you_mean,
)

__all__ = [
    "Dataset",
    "cache_folder",
    "download",
    "info",
    "item_features",
    "load",
    "location",
    "names",
]

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes there are and the number there will be, if that is known."""

_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 16
_MAX_BYTES = 1 << 30  # of a download
_ATTEMPTS = 3  # with a pause of a second more each time
_TIMEOUT = 30.0  # seconds without an answer
_LARGEST_WORKBOOK = 1 << 28  # of the workbook in its archive; the real one has some 24 MB
_AMAZON_URL = (
    "https://raw.githubusercontent.com/cgartrel/LowRankDPP.jl/master/data/Amazon-baby-registry/"
)
_COLUMNS = ("InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "CustomerID")


@dataclass(frozen=True)
class Origin:
    """A file of a data set: its paths in a data folder, its address and its checksum.

    A download gets the last of the paths. The checksum of a file that may be gzip is that of its
    content. Without a checksum, the number of baskets and items is checked.
    """

    paths: tuple[str, ...]
    url: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A data set as described before loading; the counts are those after preparation.

    `n_baskets` is None for generated data. `columns` and `features` are columns of its table of
    items: by role, and those that describe an item.
    """

    name: str
    description: str
    source: str
    n_baskets: int | None
    n_items: int
    files: tuple[Origin, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()


def _read_catalog() -> Iterator[Dataset]:
    text = resources.files("contradpp.data").joinpath("datasets.toml").read_text(encoding="utf-8")
    for name, entry in tomllib.loads(text).items():
        if name == "amazon":
            yield from (_amazon(registry, **counts) for registry, counts in entry.items())
            continue
        files = tuple(
            Origin(**file | {"paths": tuple(file["paths"])}) for file in entry.get("files", ())
        )
        yield Dataset(**{"name": name, "n_baskets": None} | entry | {"files": files})


def _amazon(registry: str, n_baskets: int, n_items: int, sha256: Sequence[str]) -> Dataset:
    files = (f"1_100_100_100_{registry}_{part}" for part in ("regs.csv", "item_names.txt"))
    return Dataset(
        f"amazon/{registry}",
        f"Amazon baby registries, {registry}: registries of two or more items",
        "Gillenwater et al. 2014, by way of the LowRankDPP.jl repository",
        n_baskets,
        n_items,
        tuple(
            Origin((f"amazon/{file}",), _AMAZON_URL + file, checksum)
            for file, checksum in zip(files, sha256, strict=True)
        ),
    )


_CATALOG = {dataset.name: dataset for dataset in _read_catalog()}


def names() -> list[str]:
    """List the names that `load` accepts."""
    return list(_CATALOG)


def info(name: str) -> Dataset:
    """Describe a data set; `ParameterError` if there is none of this name."""
    if name in _CATALOG:
        return _CATALOG[name]
    hint = did_you_mean(str(name).lower(), _CATALOG)
    raise ParameterError(
        f"there is no data set {name!r}{hint or '.'} There are: {', '.join(_CATALOG)}"
    )


def load(
    name: str,
    *,
    n_baskets: int | None = None,
    random_state: RandomState = None,
    progress: bool | Progress | None = None,
) -> Baskets:
    """Load a data set, prepared as in the paper, with item names and categories if it has any.

    Parameters
    ----------
    name : str
        One of `names()`: "toy", "grocer", "belgian", "uk", "amazon/feeding", "instacart", ...
    n_baskets : int, optional
        The number of generated baskets ("grocer"), 20,000 if left out.
    random_state : int, Generator or None
        The seed of generated baskets; None is 0, so that a name always means the same data.
    progress : bool or callable, optional
        The progress of a download: see `fetch`.

    Returns
    -------
    Baskets

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
        raise ParameterError(
            f"{name!r} is fixed: n_baskets and random_state are for generated data ('grocer')"
        )
    if name == "toy":
        return Baskets.from_lists([[1, 2]] * 1000 + [[3, 4]] * 1000)
    return _prepare(dataset, download(name, progress=progress))


def item_features(name: str) -> FeatureTable:
    """Read the features of a data set's items, names and categories.

    `ParameterError` if it has none.
    """
    dataset = info(name)
    if not dataset.features:
        having = ", ".join(known for known, other in _CATALOG.items() if other.features)
        raise ParameterError(f"the items of {name!r} have no features; those of {having} have")
    table = read_features(download(name)[1], item=dataset.columns["item"])
    return table._replace(columns={column: table.columns[column] for column in dataset.features})


def cache_folder() -> Path:
    """Return the folder for downloads."""
    if folder := os.environ.get("CONTRADPP_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "contradpp"


def location(name: str) -> Path | None:
    """Return the folder that holds the data set; None if it is built in or not on disk yet."""
    found = [_find(origin) for origin in info(name).files]
    return found[0].parent if found and found[0] and all(found) else None


def download(name: str, *, progress: bool | Progress | None = None) -> list[Path]:
    """Return the files of a data set, downloaded into the cache folder if they are not on disk."""
    dataset = info(name)
    return [_find(origin) or _download(dataset, origin, progress) for origin in dataset.files]


def _find(origin: Origin) -> Path | None:
    folders = [cache_folder()]
    if folder := os.environ.get("CONTRADPP_DATA"):
        folders.insert(0, Path(folder).expanduser())
    candidates = (folder / path for folder in folders for path in origin.paths)
    return next((path for path in candidates if path.is_file()), None)


def _download(dataset: Dataset, origin: Origin, progress: bool | Progress | None) -> Path:
    target = cache_folder() / origin.paths[-1]
    hint = (
        f"If you have the data, put {origin.paths[0]} into a folder "
        "and name the folder in the environment variable CONTRADPP_DATA"
    )
    if origin.url is None:
        raise DownloadError(f"{dataset.name!r} has no public download: set CONTRADPP_DATA. {hint}")
    _LOG.info(
        "%s is neither in CONTRADPP_DATA nor in the cache: downloading %s",
        origin.paths[0],
        origin.url,
    )
    try:
        if dataset.name == "uk":
            return _download_uk(dataset, origin.url, target, progress)
        return fetch(origin.url, target, sha256=origin.sha256, progress=progress)
    except DownloadError as error:
        raise DownloadError(f"{error}. {hint}") from error


def _download_uk(
    dataset: Dataset, url: str, target: Path, progress: bool | Progress | None
) -> Path:
    """Download and convert the workbook, which has no checksum but its number of baskets."""
    archive = fetch(url, target.with_name("online_retail.zip"), progress=progress)
    candidate = target.with_name("unchecked.parquet")
    try:
        convert_online_retail(archive, candidate)
        baskets = _prepare(dataset, [candidate])
        found = (baskets.n_baskets, baskets.n_items)
        expected = (dataset.n_baskets, dataset.n_items)
        if found != expected:
            raise DataError(f"it gives {found} baskets and items, expected {expected}")
        return candidate.replace(target)
    except DataError as error:
        raise DownloadError(f"{url} is not the file it was: {error}") from error
    finally:
        archive.unlink(missing_ok=True)
        candidate.unlink(missing_ok=True)


# -- Preparation -----------------------------------------------------------------------------------


def _prepare(dataset: Dataset, files: list[Path]) -> Baskets:
    if dataset.name == "uk":
        baskets = read_baskets(files[0], "parquet", "InvoiceNo", "StockCode")
        if baskets.customers is not None:  # the number 0 stands for none
            known = [customer or None for customer in baskets.customers]
            baskets = baskets.with_customers(known, baskets.times)
        return baskets.filter(max_size=100).with_names(_uk_names(files[0]))
    if dataset.name == "yoochoose":
        return read_baskets(files[0], "choices")
    if dataset.name.startswith("amazon/"):
        baskets = read_baskets(files[0], "ragged").filter(min_size=2)
        return baskets.with_names(_amazon_names(files[1]))
    baskets = read_baskets(files[0], "fimi")
    if dataset.columns:
        items = read_items(files[1], **dataset.columns)
        return baskets.with_names(items.names).with_categories(items.categories)
    return baskets


def _amazon_names(path: Path) -> dict[Hashable, str]:
    """Read names by id from lines `id category: title`; some have the quotes of Windows."""
    found: dict[Hashable, str] = {}
    for line in path.read_text(encoding="cp1252", errors="replace").splitlines():
        number, _, rest = line.partition(" ")
        _, _, title = rest.partition(":")
        if not (number.isdigit() and title.strip()):
            raise DataError(f"{path}: expected 'id category: title', found {line!r}")
        found[int(number)] = title.strip()
    return found


def _uk_names(path: Path) -> dict[Hashable, str]:
    """Find the most frequent description of each article; others are remarks on the stock."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["StockCode", "Description"])
    counts = table.group_by(["StockCode", "Description"]).aggregate([([], "count_all")])
    best: dict[Hashable, tuple[int, str]] = {}
    for row in counts.to_pylist():
        name = (row["Description"] or "").strip()
        if name and name != "Missing_Description":
            item = row["StockCode"]
            best[item] = max(best.get(item, (0, "")), (row["count_all"], name))
    return {item: name for item, (_, name) in best.items()}


# -- Downloads -------------------------------------------------------------------------------------


def fetch(
    url: str,
    destination: Path,
    *,
    sha256: str | None = None,
    progress: bool | Progress | None = None,
) -> Path:
    """Download a file; nothing appears at `destination` unless the whole file came and is valid.

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
    name = destination.name
    downloads = pooch.create(
        destination.parent,
        "",
        registry={name: checksum},
        urls={name: url},
        retry_if_failed=_ATTEMPTS - 1,
    )
    try:
        with _reporter(progress, name) as report:
            path = downloads.fetch(
                name, downloader=lambda url, path, _: _transfer(url, path, report)
            )
            return Path(path)
    except DownloadError:
        raise
    except _extra("requests").RequestException as error:
        raise DownloadError(f"could not download {url}: {error}") from error
    except ValueError as error:  # of pooch: the checksum is another
        raise DownloadError(
            f"{url} was changed at its origin or on the way, nothing was kept: {error}"
        ) from error
    except OSError as error:
        raise DownloadError(f"could not store {url} in {destination}: {error}") from error


def _transfer(url: str, path: str, report: Progress) -> None:
    """Write the content of an address to a file; `DownloadError` if it is too large."""
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
                raise DownloadError(
                    f"{url} is larger than expected: more than {_MAX_BYTES:,} bytes"
                )
            file.write(chunk)
            report(done, total)


def convert_online_retail(archive: Path, destination: Path) -> None:
    """Convert the Online Retail zip of the UCI repository to the Parquet file of `uk`.

    Only sales remain, rows of a positive quantity whose invoice number is a number. Cancellations
    begin with C, accounting adjustments with A, and stock corrections have a negative quantity.
    """
    _extra("python_calamine")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with (
            tempfile.TemporaryDirectory(dir=archive.parent) as folder,
            opened(_unpack(archive, Path(folder))) as source,
        ):
            header, rows = workbook_rows(source)
        places = [header.index(column) for column in _COLUMNS]
        cells = [[row[place] for place in places] for row in rows]
        sales = [
            (int(invoice), code, name, number, date, int(float(customer or 0)))
            for invoice, code, name, quantity, date, customer in cells
            if invoice and invoice.isdigit() and code and (number := int(float(quantity or 0))) > 0
        ]
        table = pa.table(dict(zip(_COLUMNS, zip(*sales, strict=True), strict=True)))
    except (zipfile.BadZipFile, EOFError, ValueError, DataError) as error:
        raise DataError(f"{archive} is not the Online Retail workbook: {error}") from error
    pq.write_table(table, destination, compression="zstd")


def _extra(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"downloads need {module}: pip install 'contradpp[download]', "
            "or put the data into a folder that the environment variable CONTRADPP_DATA names"
        ) from error


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack the workbook from its archive; it may not be too large."""
    with zipfile.ZipFile(archive) as package:
        inside = [entry for entry in package.infolist() if entry.filename.lower().endswith(".xlsx")]
        if len(inside) != 1:
            raise DataError(f"{archive} should hold one .xlsx file, it holds {len(inside)}")
        if inside[0].file_size > _LARGEST_WORKBOOK:
            raise DataError(
                f"it would take {inside[0].file_size:,} bytes unpacked, "
                f"at most {_LARGEST_WORKBOOK:,} are expected"
            )
        return Path(package.extract(inside[0], folder))


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
