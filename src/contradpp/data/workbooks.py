"""Excel workbooks as tables: the rows of all sheets with the header of the first."""

from __future__ import annotations

import logging
import zipfile
from datetime import date, datetime, time
from typing import Any

from contradpp.data.builder import BasketBuilder
from contradpp.data.columns import ColumnNames, Layout, find_layout
from contradpp.data.files import MAX_RATIO, MAX_UNPACKED, Source
from contradpp.data.tables import add_batches
from contradpp.errors import DataError, MissingExtraError

logger = logging.getLogger("contradpp")

WORKBOOKS = (b"PK\x03\x04",)  # the first bytes


def read_workbook(source: Source, builder: BasketBuilder, named: ColumnNames) -> Layout:
    """Add the rows of a workbook, which is held in memory."""
    import pyarrow as pa

    header, rows = workbook_rows(source)
    where = str(source.path)
    layout = find_layout(header, named, where=where)
    columns = {
        name: pa.array([row[place] for row in rows], pa.string())
        for place, name in enumerate(header)
        if name in layout.columns
    }
    add_batches(builder, pa.table(columns).to_batches(), layout, where=where)
    return layout


def workbook_rows(source: Source) -> tuple[list[str], list[list[str | None]]]:
    """Return the header, and the rows below it."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError as error:
        raise MissingExtraError(
            "workbooks need the extra: pip install 'contradpp[excel]'"
        ) from error
    try:
        with zipfile.ZipFile(source.stream) as package:
            sizes = [(part.file_size, part.compress_size) for part in package.infolist()]
        source.stream.seek(0)
        n_bytes, n_packed = map(sum, zip(*sizes, strict=True))
        if n_bytes > max(MAX_UNPACKED, MAX_RATIO * n_packed):
            raise zipfile.BadZipFile(f"it unpacks to {n_bytes:,} bytes, which is refused")
        workbook = CalamineWorkbook.from_filelike(source.stream)
        sheets = {
            name: workbook.get_sheet_by_name(name).to_python() for name in workbook.sheet_names
        }
    except (zipfile.BadZipFile, CalamineError, ValueError, LookupError) as error:
        reason = f"a ZIP archive that is no Excel workbook, or a damaged one ({error})"
        raise DataError(f"{source.path}: not a file of baskets but {reason}") from error
    found: list[list[str | None]] = []
    for name, sheet in sheets.items():
        rows = [[_text(cell) for cell in row] for row in sheet if any(cell != "" for cell in row)]
        # Above the header there may be a title.
        while rows and sum(cell is not None for cell in rows[0]) < 2:
            del rows[0]
        if found and rows and rows[0] != found[0]:
            logger.warning("%s: the sheet %r has another header and is not read", source.path, name)
        elif rows:
            found += rows[1:] if found else rows
    if not found:
        raise DataError(f"{source.path}: there is no sheet with two columns")
    header = [cell or f"column {place}" for place, cell in enumerate(found[0], start=1)]
    width = len(header)
    return header, [(row + [None] * width)[:width] for row in found[1:]]


def _text(cell: Any) -> str | None:
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    if isinstance(cell, (date, time, datetime)):
        cell = cell.isoformat()
    return str(cell).strip() or None
