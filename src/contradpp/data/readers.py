"""Read baskets from a file: the format is told by the content, or named."""

from __future__ import annotations

import os
from pathlib import Path

from contradpp.data.assemble import Assembler
from contradpp.data.baskets import Baskets
from contradpp.data.detect import detect_format, first_lines
from contradpp.data.longcsv import read_long
from contradpp.data.parquet import MAGIC, parquet_parts, read_parquet
from contradpp.data.source import Source, Text, inspect_text
from contradpp.data.tables import report_dropped
from contradpp.data.text import read_fimi, read_jsonl, read_ragged
from contradpp.errors import DataError, ParameterError

FORMATS = ("auto", "fimi", "ragged", "long", "parquet", "jsonl")
_ALIASES = {"dat": "fimi"}


def read_baskets(
    path: str | os.PathLike[str],
    format: str = "auto",
    basket: str | None = None,
    item: str | None = None,
    *,
    quantity: str | None = None,
    name: str | None = None,
) -> Baskets:
    """Read baskets from a file, which may be gzipped, in bounded memory.

    Parameters
    ----------
    path : str or path
        The file, or a folder of Parquet files.
    format : {"auto", "fimi", "ragged", "long", "parquet", "jsonl"}
        "fimi" (or "dat") has a basket per line, items separated by spaces; "ragged" the same with commas,
        semicolons, tabs or bars; "long" is CSV or TSV with a header and a row per basket and item;
        "parquet" is long or has a column of lists; "jsonl" has an array per line, an object with an array,
        or an object per basket and item. "auto" looks at the content.
    basket, item : str, optional
        The columns (or JSON fields) with the ids of basket and item, guessed from common names such as
        InvoiceNo and StockCode or order_id and product_id.
    quantity : str, optional
        A column of quantities: rows whose quantity is not positive are dropped, and the log says how many.
    name : str, optional
        A column of readable item names, kept as the names of the vocabulary.

    Returns
    -------
    Baskets
        In order of first appearance. Ids read from text are integers if all of them are, else strings.

    Raises
    ------
    DataError
        If the file is missing, empty or malformed (with its line or row), or the columns are uncertain.
    """
    chosen = _ALIASES.get(format, format)
    if chosen not in FORMATS:
        raise ParameterError(f"format must be one of {', '.join(map(repr, FORMATS))}, got {format!r}")
    where = Path(path).expanduser()
    columns = {"basket": basket, "item": item, "quantity": quantity, "name": name}
    assembler = Assembler()
    as_text = False
    if where.is_dir():
        _read_folder(where, chosen, assembler, columns)
    else:
        source = Source.of(where)
        if chosen == "parquet" or (chosen == "auto" and source.head(len(MAGIC)) == MAGIC):
            read_parquet([source], assembler, **columns)
        else:
            as_text = _read_text(inspect_text(source), chosen, assembler, columns) != "jsonl"
    report_dropped(assembler, quantity, str(where))
    if not assembler.n_baskets:
        raise DataError(f"{where}: there are no baskets in it")
    return assembler.finish(as_text=as_text)


def _read_folder(folder: Path, format: str, assembler: Assembler, columns: dict[str, str | None]) -> None:
    if format not in ("auto", "parquet"):
        raise ParameterError(f"{folder} is a folder, which can only be read as Parquet, not as {format!r}")
    read_parquet([Source.of(part) for part in parquet_parts(folder)], assembler, **columns)


def _read_text(text: Text, format: str, assembler: Assembler, columns: dict[str, str | None]) -> str:
    """Read a text file into the assembler; the format that it turned out to have."""
    named = {role: column for role, column in columns.items() if column is not None}
    if format == "auto":
        format = detect_format(first_lines(text), text.source.suffix, columns=named.values())
    if format == "jsonl":
        read_jsonl(text, assembler, **columns)
    elif format == "long":
        read_long(text, assembler, **columns)
    elif named:
        raise ParameterError(f"format {format!r} has no columns, so {', '.join(named)} cannot be given")
    elif format == "ragged":
        read_ragged(text, assembler)
    else:
        read_fimi(text, assembler)
    return format
