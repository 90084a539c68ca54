"""Readers of baskets: a file is opened, decoded, recognized and grouped into baskets in one pass.

The steps, each with a module of its own:

1. `files` opens the file, unpacks gzip and decodes text.
2. `formats` recognizes the format of a text by its first lines.
3. `columns` finds the columns of a table by role.
4. The readers here, in `json_rows` and in `workbooks` parse rows; `tables` encodes batches of them.
5. `builder` groups items into baskets.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from contradpp.data.baskets import Baskets
from contradpp.data.builder import BadRow, BasketBuilder, OnBadRow, Returns, integers_if_all
from contradpp.data.columns import (
    ColumnNames,
    Layout,
    check_column,
    find_layout,
)
from contradpp.data.files import PARQUET, Source, Text, opened, reading
from contradpp.data.formats import (
    FORMATS,
    choice_items,
    detect_format,
    is_pairs,
    long_separator,
    may_be_pairs,
    ragged_separator,
    split_fields,
)
from contradpp.data.json_rows import JsonRows, parse_json, values_of_document
from contradpp.data.tables import add_batch, add_batches, layout_of
from contradpp.data.vocabulary import Vocabulary
from contradpp.data.workbooks import WORKBOOKS, read_workbook
from contradpp.errors import DataError, ParameterError, check_choice

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("contradpp")

_BLOCK = 8 << 20  # bytes of long CSV parsed at a time, hence also the longest row
_BATCH_ROWS = 1 << 18  # of Parquet, whose lists and long texts can be wide
_NARROW_ROWS = 1 << 20  # of Parquet, if all columns are integers

# Only ASCII white space separates: str.split would also cut at a no-break space inside an id.
_split_at_blanks = re.compile(r"[^ \t\r\n\f\v]+").findall


class Reading(NamedTuple):
    """Baskets, and the format and columns that were found in their file."""

    baskets: Baskets
    format: str
    columns: dict[str, str]  # by role


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
    customer: str | None = None,
    time: str | None = None,
    gap: str | None = None,
    on_bad_row: OnBadRow = "error",
    returns: Returns = "drop",
) -> Baskets:
    """Read baskets from a file, which may be gzipped, in one pass and in bounded memory.

    Parameters
    ----------
    path : str or path
        The file, or a folder of Parquet files.
    format : {"auto", "fimi", "ragged", "long", "parquet", "xlsx", "json", "jsonl", "choices"}
        "auto" looks at the content. The formats are:

        - "fimi" (or "dat"): a basket per line, items separated by spaces.
        - "ragged": a basket per line, items separated by commas, semicolons, tabs or bars.
        - "long": CSV or TSV with a row per basket and item, and a header unless there are just
          these two columns.
        - "parquet": long, or with a column of lists.
        - "xlsx": an Excel workbook like "long"; with the extra `excel`.
        - "jsonl": an array per line, an object with an array, an object per basket and item, or an
          order with an array of objects.
        - "json": an array of these.
        - "choices": lines `offered;chosen`, items separated by spaces or commas.
    basket, item : str, optional
        The columns (or JSON fields) with the ids of basket and item. Without them, common names
        such as InvoiceNo and StockCode or order_id and product_id are recognized, and so are the
        exports of Shopify and WooCommerce. Several columns that make the id of a basket together
        stand between commas, such as "customer,timestamp". Inner fields of JSON are named by dots,
        such as "line_items.sku".
    quantity : str, optional
        A column of quantities. Rows whose quantity is not positive are dropped; the log says how
        many.
    name : str, optional
        A column of readable item names for the vocabulary. Without it, common names are recognized.
    category : str, optional
        A column of item categories for the vocabulary.
    chosen : str, optional
        A column that says which of the items were chosen; all of them are then the items that were
        offered (`Baskets.offered`). It holds a list beside a list of items, or yes and no
        (1 and 0, true and false) in a row per item.
    customer, time : str, optional
        Columns with the customer and the time of each basket (`Baskets.customers` and `.times`).
        Without them, common names such as CustomerID, user_id, InvoiceDate and ordered_at are
        recognized. Times are ISO 8601 texts, dates such as 31/12/2024 8:26, or numbers. Rows
        without a customer make ordinary baskets. A basket has the time of its first row.
    gap : str, optional
        Every row is an event of a customer at a time. Events that are no more than this apart, such
        as "30min", make a basket; see `Baskets.sessions`.
    on_bad_row : {"error", "skip"}
        A row that lacks an id or cannot be parsed is a `DataError` with its place, or is left out;
        the log says how many.
    returns : {"drop", "keep"}
        Rows look like returns if a column such as Quantity is below zero, or if the invoice is C
        and a number while most invoices have plain numbers. The log says how many are dropped.

    Returns
    -------
    Baskets
        In order of first appearance. Ids read from text are integers if all of them are, else
        strings.

    Raises
    ------
    DataError
        If the file is missing, empty or malformed (with its line or row), or the columns are
        uncertain.
    """
    columns = {
        "basket": basket,
        "item": item,
        "quantity": quantity,
        "name": name,
        "category": category,
        "chosen": chosen,
        "customer": customer,
        "time": time,
        "gap": gap,
    }
    return read(path, format, columns, on_bad_row=on_bad_row, returns=returns).baskets


def read(
    path: str | os.PathLike[str],
    format: str,
    columns: ColumnNames,
    *,
    on_bad_row: OnBadRow = "error",
    returns: Returns = "drop",
) -> Reading:
    """Read as `read_baskets` does, and return the format and the columns too."""
    format = "fimi" if format == "dat" else format
    check_choice("format", format, FORMATS)
    check_choice("on_bad_row", on_bad_row, get_args(OnBadRow))
    check_choice("returns", returns, get_args(Returns))
    try:
        where = Path(os.fsdecode(path)).expanduser()
    except (TypeError, RuntimeError) as error:
        kind = type(path).__name__
        raise ParameterError(
            f"path must be the path of a file, got {kind}: use Baskets.from_frame for a data "
            "frame, Baskets.from_lists for lists"
        ) from error
    builder = BasketBuilder(on_bad_row=on_bad_row, returns=returns)
    found = format
    layout = None
    files = _list_files(where, format)
    if files != [where]:
        format = "parquet"  # whatever the files hold
    for file in files:
        with opened(file) as source:
            found, layout = _read_file(source, format, builder, columns)
    baskets = Baskets(*builder.build())
    if (gap := columns.get("gap")) is not None:
        baskets = baskets.sessions(gap)
    builder.log_dropped(str(where), layout)
    if not baskets.n_baskets:
        raise DataError(f"{where}: there are no baskets in it")
    return Reading(baskets, found, layout.roles if layout else {})


def read_items(
    path: str | os.PathLike[str], *, item: str, name: str | None = None, category: str | None = None
) -> Vocabulary:
    """Read the items of a CSV file with a row per item.

    Parameters
    ----------
    path : str or path
    item, name, category : str
        The columns with the ids, the readable names and the categories.

    Returns
    -------
    Vocabulary
        Baskets take its names and categories by `Baskets.with_names` and `with_categories`.
    """
    named = {"item": item, "name": name, "category": category}
    with opened(Path(path).expanduser()) as source:
        header, columns = read_columns(
            Text(source), [column for column in named.values() if column]
        )
    for role, column in named.items():
        if column is not None:
            check_column(header, column, role, str(path))
    ids = integers_if_all(columns[item])
    names, categories = (
        {id_: text for id_, text in zip(ids, columns.get(column or "", ()), strict=False) if text}
        for column in (name, category)
    )
    return Vocabulary(ids, names=names, categories=categories)


def read_columns(text: Text, wanted: Sequence[str] = ()) -> tuple[list[str], dict[str, list[str]]]:
    """Read a CSV file in memory: its header, and its columns without blank rows.

    `wanted` are column names by which the separator is recognized.
    """
    separator = long_separator(text.first_lines()[0], columns=wanted)
    (_, header), *rows = [
        (line, row) for line, row in _records(text, separator, strict=True) if row
    ]
    for line, row in rows:
        if len(row) != len(header):
            reason = f"the header has {len(header)} fields but this row has {len(row)} fields"
            raise text.error(line, reason)
    return header, {name: [row[place] for _, row in rows] for place, name in enumerate(header)}


def _list_files(path: Path, format: str) -> list[Path]:
    """List the file itself, or the Parquet files in a folder, over which a basket may be spread."""
    with reading(path):
        if not path.is_dir():
            return [path]
        if format not in ("auto", "parquet"):
            raise ParameterError(
                f"{path} is a folder, which can only be read as Parquet, not as {format!r}"
            )
        files = sorted(path.iterdir())
    parts = [file for file in files if file.name.lower().endswith((".parquet", ".parquet.gz"))]
    others = [
        file.name for file in files if file not in parts and not file.name.startswith((".", "_"))
    ]
    if not parts:
        raise DataError(f"{path}: a folder without .parquet files")
    if others:
        logger.warning(
            "%s: only .parquet files are read, not %s (%s in all)",
            path,
            others[0],
            f"{len(others):,}",
        )
    return parts


def _read_file(
    source: Source, format: str, builder: BasketBuilder, named: ColumnNames
) -> tuple[str, Layout | None]:
    """Add one file to the builder; return its format, and its columns if it has any."""
    if format == "parquet" or (format == "auto" and source.head(len(PARQUET)) == PARQUET):
        return "parquet", _read_parquet(source, builder, named)
    if format == "xlsx" or (format == "auto" and source.head(8).startswith(WORKBOOKS)):
        builder.as_text = True
        return "xlsx", read_workbook(source, builder, named)
    text = Text(source)
    roles = [role for role, column in named.items() if column is not None]
    if format == "auto":
        format = detect_format(text.first_lines(), text.suffix, has_columns=bool(roles))
        if format == "ragged" and may_be_pairs(text.first_lines()):
            logger.warning(
                "%s: every line is taken for a basket of two items; if a line is a basket's number "
                "and an item, put a header such as order,item above them",
                text,
            )
    builder.as_text = format not in ("json", "jsonl")
    layout = None
    if format == "long":
        layout = _read_long(text, builder, named)
    elif format in ("json", "jsonl"):
        layout = (_read_json if format == "json" else _read_jsonl)(text, builder, named)
    elif roles:
        raise ParameterError(
            f"format {format!r} has no columns, so {', '.join(roles)} cannot be given"
        )
    elif format == "fimi":
        _read_fimi(text, builder)
    elif format == "ragged":
        _read_ragged(text, builder)
    else:
        _read_choices(text, builder)
    text.log_latin()
    return format, layout


# -- A basket per line -----------------------------------------------------------------------------


def _read_fimi(text: Text, builder: BasketBuilder) -> None:
    for line in text.lines():
        if items := _split_at_blanks(line):
            builder.add_basket(items)


def _read_ragged(text: Text, builder: BasketBuilder) -> None:
    separator = ragged_separator(text.first_lines())
    for _, record in _records(text, separator, skipinitialspace=True, strict=True):
        if items := [item for field in record if (item := field.strip())]:
            builder.add_basket(items)


def _read_choices(text: Text, builder: BasketBuilder) -> None:
    def add(_: int, line: str) -> None:
        offered, *rest = (choice_items(half) for half in line.split(";"))
        if len(rest) != 1:
            raise BadRow(f"expected 'offered;chosen', found {len(rest)} semicolons")
        if extra := set(rest[0]) - set(offered):
            raise BadRow(f"{min(extra)!r} was chosen but is not among what was offered")
        builder.add_basket(rest[0], offered=offered)

    _add_lines(text, builder, add)


def _add_lines(text: Text, builder: BasketBuilder, add: Callable[[int, str], None]) -> None:
    """Add every line that is not blank by its number and text; skip or report bad ones."""
    for number, line in enumerate(text.lines(), start=text.first_line):
        if not line.strip():
            continue
        try:
            add(number, line)
        except BadRow as bad:
            if builder.on_bad_row == "error":
                raise text.error(number, bad.reason) from None
            builder.n_bad += 1


def _records(
    text: Text, separator: str, *, strict: bool = False, skipinitialspace: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Read the records of a CSV file and the line where each begins, slowly but exactly."""
    line = text.first_line
    reader = csv.reader(
        text.lines(), delimiter=separator, strict=strict, skipinitialspace=skipinitialspace
    )
    try:
        for record in reader:
            yield line, record
            line = text.first_line + reader.line_num
    except csv.Error as error:
        raise text.error(line, f"{error} (is a quote left open?)") from error


# -- JSON ------------------------------------------------------------------------------------------


def _read_jsonl(text: Text, builder: BasketBuilder, named: ColumnNames) -> Layout | None:
    rows = JsonRows(builder, named)

    def add(number: int, line: str) -> None:
        try:
            value = parse_json(line)
        except (ValueError, RecursionError) as error:
            hint = " (each line must be a whole JSON value)" if len(line.strip()) < 3 else ""
            raise BadRow(f"not valid JSON: {error}{hint}") from None
        rows.add(value, f"{text}, line {number}")

    _add_lines(text, builder, add)
    return rows.layout


def _read_json(text: Text, builder: BasketBuilder, named: ColumnNames) -> Layout | None:
    """Add the baskets of one JSON document, which is held in memory."""
    try:
        document = parse_json("".join(text.lines()))
    except json.JSONDecodeError as error:
        raise text.error(text.first_line + error.lineno - 1, f"not valid JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{text}: not valid JSON: {error}") from None
    rows = JsonRows(builder, named)
    for number, value in enumerate(values_of_document(document), start=1):
        try:
            rows.add(value, f"{text}, basket {number}")
        except BadRow as bad:
            if builder.on_bad_row == "error":
                raise DataError(f"{text}, basket {number}: {bad.reason}") from None
            builder.n_bad += 1
    return rows.layout


# -- Long CSV and TSV ------------------------------------------------------------------------------


def _read_long(text: Text, builder: BasketBuilder, named: ColumnNames) -> Layout:
    import pyarrow as pa

    separator, columns, has_rows = _read_header(text, named)
    try:
        layout = find_layout(columns, named, where=str(text))
    except DataError as error:
        if named.get("basket") or named.get("item"):
            raise
        hint = f"{error}. If there is no header and every line is a basket, pass format='ragged'"
        raise DataError(hint, parameters=(*error.parameters, "format")) from None
    first_row = 0
    try:
        for batch in _csv_batches(text, separator, columns, layout, builder) if has_rows else ():
            add_batch(builder, batch, layout, first_row=first_row)
            first_row += batch.num_rows
    except BadRow as bad:
        after_header = islice(_read_again(text, separator), bad.row + 1, None)
        line, _ = next(after_header, (text.first_line, []))
        raise text.error(line, bad.reason) from None
    except pa.ArrowException as error:
        _check_quotes(text, separator)
        raise _explain(text, separator, len(columns), error) from error
    _check_quotes(text, separator)
    return layout


def _read_header(text: Text, named: ColumnNames) -> tuple[str, list[str], bool]:
    """Find the separator and the columns, skip the header, and tell if more lines follow."""
    lines = text.first_lines()
    wanted = [part for column in named.values() if column for part in (column, *column.split(","))]
    if not wanted and is_pairs(lines):
        logger.warning(
            "%s: there is no header; the first column is taken for the basket and the second "
            "for the item (format='ragged' takes every line for a basket)",
            text,
        )
        return ragged_separator(lines), ["basket", "item"], True
    separator = long_separator(lines[0], columns=wanted)
    columns = [field.strip() for field in split_fields(lines[0], separator)]
    return separator, columns, text.skip_line()


def _csv_batches(
    text: Text, separator: str, columns: list[str], layout: Layout, builder: BasketBuilder
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    def handle_invalid(row: arrow_csv.InvalidRow) -> str:
        if not row.text.strip():
            return "skip"
        if builder.on_bad_row == "skip":
            builder.n_bad += 1
        return builder.on_bad_row

    # Ids are read as text, whatever they look like: '007' and '22.0' are not numbers.
    reader = arrow_csv.open_csv(
        io.BufferedReader(text, 1 << 20),
        read_options=arrow_csv.ReadOptions(block_size=_BLOCK, column_names=columns),
        parse_options=arrow_csv.ParseOptions(
            delimiter=separator, newlines_in_values=True, invalid_row_handler=handle_invalid
        ),
        convert_options=arrow_csv.ConvertOptions(
            check_utf8=False,
            include_columns=layout.columns,
            column_types=dict.fromkeys(layout.columns, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    with reader:
        yield from reader


def _read_again(
    text: Text, separator: str, *, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Read the records that are not blank from the start of the file, to find a mistake."""
    with opened(text.path) as source:
        for line, record in _records(Text(source), separator, strict=strict):
            if len(record) > 1 or "".join(record).strip():
                yield line, record


def _check_quotes(text: Text, separator: str) -> None:
    """Refuse an open quote, which Arrow takes for a field up to the end of the file."""
    if text.n_quotes % 2:
        for _ in _read_again(text, separator, strict=True):
            pass


def _explain(text: Text, separator: str, n_columns: int, error: Exception) -> DataError:
    """Make the error for a row that Arrow refused, with the line that its message lacks."""
    for line, record in _read_again(text, separator):
        if len(record) != n_columns:
            found = f"{len(record)} field{'s' if len(record) != 1 else ''}"
            return text.error(line, f"the header has {n_columns} fields but this row has {found}")
        if sum(map(len, record)) + len(record) > _BLOCK // 4:
            return text.error(line, f"the row is longer than {_BLOCK >> 20} MB")
    return DataError(f"{text}: cannot be read as long CSV ({error})")


# -- Parquet ---------------------------------------------------------------------------------------


def _read_parquet(source: Source, builder: BasketBuilder, named: ColumnNames) -> Layout:
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = str(source.path)
    with tempfile.TemporaryFile() as unpacked:
        if source.packed is not None:  # Parquet is read from its end
            unpacked.writelines(source.chunks())
            unpacked.seek(0)
        try:
            with pq.ParquetFile(source.stream if source.packed is None else unpacked) as file:
                schema = file.schema_arrow
                layout = layout_of(schema, named, where=where)
                types = [schema.field(column).type for column in layout.columns]
                n_rows = _NARROW_ROWS if all(map(pa.types.is_integer, types)) else _BATCH_ROWS
                batches = file.iter_batches(n_rows, columns=layout.columns)
                add_batches(builder, batches, layout, where=where)
        except (pa.ArrowException, UnicodeDecodeError) as error:  # also of a damaged column name
            raise DataError(f"{where}: not a readable Parquet file ({error})") from error
    return layout
