"""The Online Retail workbook of the UCI repository, turned into the Parquet file that `uk` is read from.

A workbook is a zip of XML files. This reads the little of the format that the data set uses, row by row,
with the standard library. It comes from the network, so it is read with limits on every size.
"""

from __future__ import annotations

import logging
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from contradpp.errors import DataError

_LOG = logging.getLogger(__name__)
_LARGEST_WORKBOOK = 200 << 20  # the real one is 23 MB,
_LARGEST_SHEET = 1 << 30  # its sheet some 200 MB of XML
_LARGEST_STRINGS = 64 << 20
_COLUMNS = ("InvoiceNo", "StockCode", "Description", "Quantity")


def convert(archive: Path, destination: Path) -> None:
    """Write the sales in the repository's zip to a Parquet file.

    Kept are the rows of a positive quantity whose invoice number is a number: cancellations begin with C,
    accounting adjustments with A, and stock corrections have a negative quantity.
    """
    _LOG.info("converting %s, which takes half a minute", archive)
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            workbook = _unpack(archive, Path(folder))
            invoices, codes, names, quantities = _sales(workbook)
    except (zipfile.BadZipFile, ElementTree.ParseError, EOFError, ValueError, IndexError, KeyError) as error:
        raise DataError(f"{archive} is not the Online Retail workbook: {error}") from error
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [pa.array(invoices, pa.int64()), pa.array(codes, pa.string()), pa.array(names, pa.string()),
               pa.array(quantities, pa.int64())]  # fmt: skip
    pq.write_table(pa.table(columns, names=list(_COLUMNS)), destination, compression="zstd")


def read_rows(workbook: Path) -> Iterator[dict[str, str]]:
    """The rows of a workbook's first sheet below the header, each by column name, empty cells left out."""
    with zipfile.ZipFile(workbook) as package:
        strings = _shared_strings(package)
        header: dict[str, str] = {}
        with _member(package, "xl/worksheets/sheet1.xml", _LARGEST_SHEET) as sheet:
            for row in _elements(sheet, "row"):
                cells = _cells(row, strings)
                if not header:
                    header = cells
                else:
                    yield {header[column]: text for column, text in cells.items() if column in header}


def _sales(workbook: Path) -> tuple[list[int], list[str], list[str | None], list[int]]:
    invoices: list[int] = []
    codes: list[str] = []
    names: list[str | None] = []
    quantities: list[int] = []
    for row in read_rows(workbook):
        invoice, code, quantity = row.get("InvoiceNo", ""), row.get("StockCode", ""), row.get("Quantity", 0)
        if not (invoice.isdigit() and code) or float(quantity) <= 0:
            continue
        invoices.append(int(invoice))
        codes.append(code)
        names.append(row.get("Description", "").strip() or None)
        quantities.append(int(float(quantity)))
    return invoices, codes, names, quantities


def _unpack(archive: Path, folder: Path) -> Path:
    """The workbook itself, out of the zip around it: seeking inside a compressed member is slow."""
    with zipfile.ZipFile(archive) as outer:
        inside = [entry for entry in outer.namelist() if entry.lower().endswith(".xlsx")]
        if len(inside) != 1:
            raise DataError(f"{archive} should hold one .xlsx file, it holds {len(inside)}")
        workbook = folder / "workbook.xlsx"
        with _member(outer, inside[0], _LARGEST_WORKBOOK) as source, workbook.open("wb") as target:
            while chunk := source.read(1 << 20):
                target.write(chunk)
    return workbook


def _member(package: zipfile.ZipFile, name: str, largest: int) -> IO[bytes]:
    """Open a file in a zip, unless it is too large; zipfile reads no more than the size it states."""
    size = package.getinfo(name).file_size
    if size > largest:
        raise DataError(f"{name} would take {size:,} bytes unpacked, at most {largest:,} are expected")
    return package.open(name)


def _elements(file: IO[bytes], name: str) -> Iterator[ElementTree.Element]:
    """The elements of this name, each complete, and emptied after use.

    A document type, which could define entities that expand without end, is refused: workbooks have none.
    """
    if b"<!DOCTYPE" in file.read(1024):
        raise DataError("an XML file in the workbook has a document type, which workbooks do not have")
    file.seek(0)
    closing = "}" + name  # the tag carries its namespace in braces
    for _, element in ElementTree.iterparse(file):
        if element.tag.endswith(closing):
            yield element
            element.clear()


def _shared_strings(package: zipfile.ZipFile) -> list[str]:
    """The table of texts that cells refer to by number."""
    if "xl/sharedStrings.xml" not in package.namelist():
        return []
    with _member(package, "xl/sharedStrings.xml", _LARGEST_STRINGS) as file:
        return [_text(element) for element in _elements(file, "si")]


def _text(element: ElementTree.Element) -> str:
    return "".join(part.text or "" for part in element.iter() if part.tag.endswith("}t"))


def _cells(row: ElementTree.Element, strings: list[str]) -> dict[str, str]:
    """The cells of a row as text, by column letter; a cell's only child holds its value."""
    cells = {}
    for cell in row:
        if not len(cell):
            continue
        column, kind = cell.get("r", "").rstrip("0123456789"), cell.get("t", "n")
        if kind == "inlineStr":
            cells[column] = _text(cell)
        elif value := cell[-1].text:
            cells[column] = strings[int(value)] if kind == "s" else value
    return cells
