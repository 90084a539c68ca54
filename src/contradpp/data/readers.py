"""Read baskets from a file in one pass: the format is told by the content, or named."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from contradpp.data.assemble import Assembler, OnBadRow, Returns, integers_if_all
from contradpp.data.baskets import Baskets
from contradpp.data.columns import Layout, Told, check_column, detect_format, long_separator, may_be_pairs
from contradpp.data.files import PARQUET, Source, Text, opened, reading
from contradpp.data.formats import read_choices, read_fimi, read_jsonl, read_long, read_parquet, read_ragged, records
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError

logger = logging.getLogger("contradpp")
FORMATS = ("auto", "fimi", "ragged", "long", "parquet", "jsonl", "choices")
_ALIASES = {"dat": "fimi"}


class Reading(NamedTuple):
    """Baskets, and what was found out about their file: its format, and the columns if it has any."""

    baskets: Baskets
    format: str
    layout: Layout | None

    @property
    def columns(self) -> dict[str, str]:
        """The columns by role, as they were named or guessed."""
        roles = ("basket", "item", "quantity", "name", "category", "chosen", "returns")
        return {role: column for role in roles if (column := getattr(self.layout, role, None)) is not None}


def read_baskets(
    path: str | os.PathLike[str],
    format: str = "auto",
    basket: str | None = None,
    item: str | None = None,
    *,
    quantity: str | None = None,
    name: str | None = None,
    category: str | None = None,
    chosen: str | None = None,
    on_bad_row: OnBadRow = "error",
    returns: Returns = "drop",
) -> Baskets:
    """Read baskets from a file, which may be gzipped, in one pass and in bounded memory.

    Parameters
    ----------
    path : str or path
        The file, or a folder of Parquet files.
    format : {"auto", "fimi", "ragged", "long", "parquet", "jsonl", "choices"}
        "fimi" (or "dat") has a basket per line, items separated by spaces; "ragged" the same with commas,
        semicolons, tabs or bars; "long" is CSV or TSV with a row per basket and item, and a header unless
        there are just these two columns; "parquet" is long or has a column of lists; "jsonl" has an array
        per line, an object with an array, or an object per basket and item; "choices" has lines
        `offered;chosen`, items separated by spaces or commas. "auto" looks at the content.
    basket, item : str, optional
        The columns (or JSON fields) with the ids of basket and item, guessed from common names such as
        InvoiceNo and StockCode or order_id and product_id.
    quantity : str, optional
        A column of quantities: rows whose quantity is not positive are dropped, and the log says how many.
    name : str, optional
        A column of readable item names, kept as the names of the vocabulary; guessed from common names.
    category : str, optional
        A column of item categories, kept as the categories of the vocabulary.
    chosen : str, optional
        A column that says what was taken of the items, which are then what was offered (`Baskets.offered`): a
        list beside a list of items, or yes and no (1 and 0, true and false) in a row per item.
    on_bad_row : {"error", "skip"}
        What to do with a row that lacks an id or cannot be parsed: raise `DataError` with its place, or
        leave it out; the log says how many.
    returns : {"drop", "keep"}
        What to do with rows that look like returns: a column such as Quantity is below zero, or most
        invoices have plain numbers and this one is C and a number. The log says how many are dropped.

    Returns
    -------
    Baskets
        In order of first appearance. Ids read from text are integers if all of them are, else strings.

    Raises
    ------
    DataError
        If the file is missing, empty or malformed (with its line or row), or the columns are uncertain.
    """
    told = {"basket": basket, "item": item, "quantity": quantity, "name": name, "category": category}
    told["chosen"] = chosen
    return read(path, format, told, on_bad_row=on_bad_row, returns=returns).baskets


def read(
    path: str | os.PathLike[str], format: str, told: Told, *, on_bad_row: OnBadRow = "error", returns: Returns = "drop"
) -> Reading:
    """What `read_baskets` reads, with what was found out on the way; `told` are the columns that were named."""
    wanted = _ALIASES.get(format, format)
    _check_choice("format", wanted, FORMATS)
    _check_choice("on_bad_row", on_bad_row, get_args(OnBadRow))
    _check_choice("returns", returns, get_args(Returns))
    try:
        where = Path(os.fsdecode(path)).expanduser()
    except (TypeError, RuntimeError) as error:
        raise ParameterError(f"path must be the path of a file, got {path!r}") from error
    assembler = Assembler(on_bad_row=on_bad_row, returns=returns)
    found, layout = wanted, None
    for file in _files(where, wanted):
        with opened(file) as source:
            found, layout = _read_file(source, wanted, assembler, told)
    baskets = Baskets(*assembler.finish())
    assembler.report(str(where), layout)
    if not baskets.n_baskets:
        raise DataError(f"{where}: there are no baskets in it")
    return Reading(baskets, found, layout)


def read_items(
    path: str | os.PathLike[str], *, item: str, name: str | None = None, category: str | None = None
) -> Vocabulary:
    """The items of a CSV file with a row per item, with names and categories from the columns that are named.

    `baskets.with_names(items.names).with_categories(items.categories)` tells baskets of them.
    """
    told = {"item": item, "name": name, "category": category}
    with opened(Path(path).expanduser()) as source:
        header, rows = read_rows(Text(source), [column for column in told.values() if column])
    for role, column in told.items():
        if column is not None:
            check_column(header, column, role, str(path))
    ids = integers_if_all(row[header.index(item)] for row in rows)

    def labels(column: str | None) -> dict[Hashable, str]:
        if column is None:
            return {}
        place = header.index(column)
        return {id_: row[place] for id_, row in zip(ids, rows, strict=True) if row[place]}

    return Vocabulary(ids, names=labels(name), categories=labels(category))


def read_rows(text: Text, columns: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """Read a CSV file whole: its header, and its rows that are not blank.

    Raises `DataError` for a row of another length than the header; `columns` are names that tell the separator.
    """
    separator = long_separator(text.first_lines()[0], columns=columns)
    (_, header), *rows = [(line, row) for line, row in records(text, separator, strict=True) if row]
    for line, row in rows:
        if len(row) != len(header):
            raise text.error(line, f"the header has {len(header)} fields but this row has {len(row)} fields")
    return header, [row for _, row in rows]


def _check_choice(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ParameterError(f"{option} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _files(path: Path, format: str) -> Iterator[Path]:
    """The file itself, or the Parquet files in a folder by name: a basket may be spread over all of them."""
    with reading(path):
        folder = path.is_dir()
    if not folder:
        yield path
        return
    if format not in ("auto", "parquet"):
        raise ParameterError(f"{path} is a folder, which can only be read as Parquet, not as {format!r}")
    with reading(path):
        parts = sorted(part for part in path.iterdir() if part.name.lower().endswith((".parquet", ".parquet.gz")))
        others = [part.name for part in path.iterdir() if part not in parts and not part.name.startswith((".", "_"))]
    if not parts:
        raise DataError(f"{path}: a folder without .parquet files")
    if others:
        logger.warning("%s: only .parquet files are read, not %s (%s in all)", path, min(others), f"{len(others):,}")
    yield from parts


def _read_file(source: Source, format: str, assembler: Assembler, told: Told) -> tuple[str, Layout | None]:
    """Add one file to the assembler; its format, and its columns if it has any."""
    if format == "parquet" or (format == "auto" and source.head(len(PARQUET)) == PARQUET):
        return "parquet", read_parquet(source, assembler, told)
    text = Text(source)
    named = [role for role, column in told.items() if column is not None]
    if format == "auto":
        format = detect_format(text.first_lines(), text.suffix, has_columns=bool(named))
        if format == "ragged" and may_be_pairs(text.first_lines()):
            logger.warning(
                "%s: every line is taken for a basket of two items; if a line is a basket's number and an item, "
                "put a header such as order,item above them", text,
            )  # fmt: skip
    assembler.as_text = format != "jsonl"
    layout = None
    if format == "jsonl":
        layout = read_jsonl(text, assembler, told)
    elif format == "long":
        layout = read_long(text, assembler, told)
    elif named:
        raise ParameterError(f"format {format!r} has no columns, so {', '.join(named)} cannot be given")
    elif format == "choices":
        read_choices(text, assembler)
    elif format == "ragged":
        read_ragged(text, assembler)
    else:
        read_fimi(text, assembler)
    text.report()
    return format, layout
