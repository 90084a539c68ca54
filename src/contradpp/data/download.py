"""What data sets need the network for: a file fetched and checked by pooch, and a workbook turned into Parquet."""

from __future__ import annotations

import importlib
import logging
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contradpp.errors import DataError, DownloadError, MissingExtraError, ParameterError

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes there are and the number there will be, if that is known."""

_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 16
_LARGEST_WORKBOOK = 1 << 30  # unpacked; the real one has some 200 MB of XML
_COLUMNS = ("InvoiceNo", "StockCode", "Description", "Quantity")


def fetch(
    url: str,
    destination: Path,
    *,
    sha256: str | None = None,
    attempts: int = 3,
    timeout: float = 30.0,
    max_bytes: int = 1 << 30,
    progress: bool | Progress | None = None,
) -> Path:
    """Download `url` to `destination`; nothing appears there unless the whole file came and is right.

    Parameters
    ----------
    url : str
        An http or https address.
    destination : Path
        Where the file goes; missing folders are made.
    sha256 : str, optional
        The checksum in hexadecimal. Without it only the announced length is checked.
    attempts : int
        How many times to try before giving up, with a pause of a second more each time.
    timeout : float
        Seconds without an answer after which an attempt has failed.
    max_bytes : int
        A file larger than this is refused.
    progress : bool or callable, optional
        True shows a progress bar on stderr, None only if that is a terminal. A callable receives
        (bytes so far, bytes in all or None).

    Raises
    ------
    DownloadError
        If the file cannot be had, or its checksum is wrong.
    MissingExtraError
        If the extra `download` is not installed.
    """
    if not url.startswith(("http://", "https://")):
        raise ParameterError(f"can only download from http and https addresses, got {url!r}")
    if attempts < 1:
        raise ParameterError(f"attempts must be at least 1, got {attempts}")
    pooch = _extra("pooch")
    pooch.get_logger().setLevel("WARNING")
    checksum = None if sha256 is None else f"sha256:{sha256.lower()}"
    name, folder = destination.name, destination.parent
    keeper = pooch.create(folder, "", registry={name: checksum}, urls={name: url}, retry_if_failed=attempts - 1)
    try:
        with _reporter(progress, name) as report:
            # "identity": the length must count the bytes of the file, not of a compressed transfer.
            downloader = pooch.HTTPDownloader(
                progressbar=_Meter(url, report, max_bytes), chunk_size=_CHUNK, timeout=timeout,
                headers={"User-Agent": "contradpp", "Accept-Encoding": "identity"},
            )  # fmt: skip
            return Path(keeper.fetch(name, downloader=downloader))
    except DownloadError:
        raise
    except importlib.import_module("requests").RequestException as error:
        raise DownloadError(f"could not download {url}: {error}") from error
    except ValueError as error:  # of pooch: the checksum is another
        raise DownloadError(f"{url} was changed at its origin or on the way, nothing was kept: {error}") from error
    except OSError as error:
        raise DownloadError(f"could not store {url} in {destination}: {error}") from error


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
    """The workbook, which is a zip of XML files, out of the zip around it; neither may be larger than we expect."""
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
    """The rows that are sales: invoice, article, its name and how many."""
    header = next(rows, [])
    places = [header.index(column) for column in _COLUMNS]
    for row in rows:
        invoice, code, name = (_as_text(row[place]) for place in places[:3])
        quantity = float(row[places[3]] or 0)
        if invoice.isdigit() and code and quantity > 0:
            yield int(invoice), code, name or None, int(quantity)


def _as_text(cell: Any) -> str:
    """A cell as people see it: a workbook keeps whole numbers as fractions."""
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()


class _Meter:
    """What pooch tells of a transfer: passed on to the caller, and an end put to one that is too long."""

    def __init__(self, url: str, report: Progress, max_bytes: int) -> None:
        self._url, self._report, self._max_bytes = url, report, max_bytes
        self._done, self._total = 0, 0

    @property
    def total(self) -> int:
        """The announced length, 0 if there is none; set when a transfer begins."""
        return self._total

    @total.setter
    def total(self, n_bytes: int) -> None:
        self._done, self._total = 0, n_bytes
        self._check(n_bytes)
        self._report(0, n_bytes or None)

    def update(self, n_bytes: int) -> None:
        """So much more has come; the last piece may be shorter than pooch says."""
        self._done += n_bytes
        self._check(self._done - _CHUNK)
        self._report(min(self._done, self._total or self._done), self._total or None)

    def reset(self) -> None:
        """Count from zero again."""
        self._done = 0

    def close(self) -> None:
        """The transfer is over."""

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self._max_bytes:
            raise DownloadError(f"{self._url} is larger than expected: more than {self._max_bytes:,} bytes")


@contextmanager
def _reporter(progress: bool | Progress | None, label: str) -> Iterator[Progress]:
    """A callback that draws a bar, does nothing, or is the caller's own."""
    if callable(progress):
        yield progress
    elif progress or (progress is None and sys.stderr is not None and sys.stderr.isatty()):
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield lambda _done, _total: None
