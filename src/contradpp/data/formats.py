"""The formats of files with baskets, each read in one pass into an assembler."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import tempfile
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from contradpp.data.assemble import LABELS, Assembler, BadRow
from contradpp.data.columns import (
    Layout,
    Told,
    choice_items,
    fields,
    find_layout,
    is_pairs,
    long_separator,
    ragged_separator,
)
from contradpp.data.files import Source, Text, opened
from contradpp.data.tables import add_batch, add_batches, flag, layout_of
from contradpp.errors import DataError

logger = logging.getLogger("contradpp")

_BLOCK = 8 << 20  # bytes of long CSV parsed at a time, hence also the longest row
_BATCH_ROWS = 1 << 18  # lists and long texts can be wide; a quarter of a million rows amortises the overhead
_NARROW_ROWS = 1 << 20  # where all columns are integers

# Only ASCII white space separates: str.split would also cut at a no-break space inside an id.
_tokens = re.compile(r"[^ \t\r\n\f\v]+").findall


# -- A basket per line -------------------------------------------------------------------------------------


def read_fimi(text: Text, assembler: Assembler) -> None:
    """Add the baskets of a FIMI file: a basket per line, its items separated by spaces."""
    for line in text.lines():
        if tokens := _tokens(line):
            assembler.add_list(tokens)


def read_ragged(text: Text, assembler: Assembler) -> None:
    """Add the baskets of a ragged CSV file: a basket per line, as many fields as it has items."""
    separator = ragged_separator(text.first_lines())
    for _, record in records(text, separator, skipinitialspace=True, strict=True):
        if items := [item for field in record if (item := field.strip())]:
            assembler.add_list(items)


def read_choices(text: Text, assembler: Assembler) -> None:
    """Add the baskets of lines `offered;chosen`, items separated by spaces or commas."""
    for number, line in enumerate(text.lines(), start=text.first_line):
        if not line.strip():
            continue
        offered, *rest = (choice_items(half) for half in line.split(";"))
        try:
            if len(rest) != 1:
                raise BadRow(number, f"expected 'offered;chosen', found {len(rest)} semicolons")
            if extra := set(rest[0]) - set(offered):
                raise BadRow(number, f"{min(extra)!r} was chosen but is not among what was offered")
            assembler.add_list(rest[0], offered=offered)
        except BadRow as bad:
            if assembler.on_bad_row == "error":
                raise text.error(bad.row, bad.reason) from None
            assembler.n_bad += 1


def records(text: Text, separator: str, **how: Any) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file with the line where each begins, by Python's own reader: slow but exact."""
    line = text.first_line
    reader = csv.reader(text.lines(), delimiter=separator, **how)
    try:
        for record in reader:
            yield line, record
            line = text.first_line + reader.line_num
    except csv.Error as error:
        raise text.error(line, f"{error} (is a quote left open?)") from error


# -- JSON lines --------------------------------------------------------------------------------------------


def read_jsonl(text: Text, assembler: Assembler, told: Told) -> Layout | None:
    """Add the baskets of a JSON lines file: an array per line, an object with an array, or long objects."""
    layout: Layout | None = None
    kind: type | None = None
    for number, line in enumerate(text.lines(), start=text.first_line):
        if not line.strip():
            continue
        try:
            value = _parsed(number, line)
            if kind is None:
                kind, layout = type(value), _json_layout(value, told, f"{text}, line {number}")
            if not isinstance(value, kind):
                called = "array" if kind is list else "object"
                raise BadRow(number, f"an {called} was expected, as in the lines before, got {line[:40]!r}")
            _add_value(number, value, layout, assembler)
        except BadRow as bad:
            if assembler.on_bad_row == "error":
                raise text.error(bad.row, bad.reason) from None
            assembler.n_bad += 1
    return layout


def _parsed(number: int, line: str) -> Any:
    try:
        value = json.loads(line, parse_constant=_refuse_constant, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        hint = " (each line must be a whole JSON value)" if len(line.strip()) < 3 else ""
        raise BadRow(number, f"not valid JSON: {error}{hint}") from None
    if not isinstance(value, (list, dict)):
        raise BadRow(number, f"a basket must be a JSON array or object, got {line.strip()[:40]}")
    return value


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object, unless a key is there twice, of which JSON readers keep the last without a word."""
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return value


def _json_layout(value: Any, told: Told, where: str) -> Layout | None:
    """How the objects keep baskets and items, judged by the first of them; None if lines are arrays."""
    if isinstance(value, list):
        named = [f"{role}=" for role, column in told.items() if column is not None]
        if named:
            raise DataError(f"{where}: the lines are arrays without fields, so {', '.join(named)} cannot apply")
        return None
    lists, texts, numbers = (
        [field for field in value if isinstance(value[field], kind)] for kind in (list, str, (int, float))
    )
    return find_layout(list(value), told, lists=lists, texts=texts, numbers=numbers, where=where)


def _add_value(number: int, value: Any, layout: Layout | None, assembler: Assembler) -> None:
    if layout is None:
        assembler.add_list(_scalars(number, value))
        return
    for column in (layout.basket, layout.item, layout.quantity, layout.chosen):
        if column is not None and column not in value:
            raise BadRow(number, f"the field {column!r} is missing")
    if layout.quantity is not None and _quantity(number, value[layout.quantity]) <= 0:
        assembler.n_dropped += 1
        return
    sold = value.get(layout.returns or "")
    if assembler.returns == "drop" and isinstance(sold, (int, float)) and sold < 0:
        assembler.n_returned += 1
        return
    found = value[layout.item]
    if layout.lists and not isinstance(found, list):
        raise BadRow(number, f"the field {layout.item!r} must hold an array, got {found!r}")
    items = _scalars(number, found if layout.lists else [found])
    owner = None
    if layout.basket is not None:
        owner = assembler.baskets.code(*_scalars(number, [value[layout.basket]]))
    if layout.chosen is None:
        assembler.add_list(items, owner=owner)
    else:
        assembler.add_list(_taken(number, items, value[layout.chosen], layout), owner=owner, offered=items)
    for kind, column in zip(LABELS, (layout.name, layout.category), strict=True):
        if column is not None and value.get(column):
            assembler.add_label(kind, assembler.items.code(items[0]), str(value[column]))


def _taken(number: int, items: list[Hashable], told: Any, layout: Layout) -> list[Hashable]:
    """What of the items was taken: those of a list, or all of them if a flag is up."""
    if not layout.lists:
        taken = flag(told)
        if taken is None:
            raise BadRow(number, f"{told!r} in the field {layout.chosen!r} says neither yes nor no")
        return items if taken else []
    if not isinstance(told, list):
        raise BadRow(number, f"the field {layout.chosen!r} must hold an array, got {told!r}")
    if extra := [item for item in _scalars(number, told) if item not in items]:
        raise BadRow(number, f"{extra[0]!r} was chosen but is not among what was offered")
    return told


def _scalars(number: int, values: list[Any]) -> list[Hashable]:
    for value in values:
        if type(value) not in (str, int, float):
            raise BadRow(number, f"an id must be a string or a number, got {json.dumps(value)[:40]}")
    return values


def _quantity(number: int, value: Any) -> float:
    if type(value) not in (int, float):
        raise BadRow(number, f"the quantity must be a number, got {json.dumps(value)[:40]}")
    return float(value)


# -- Long CSV and TSV --------------------------------------------------------------------------------------


def read_long(text: Text, assembler: Assembler, told: Told) -> Layout:
    """Add the rows of a long CSV file; the separator and, unless named, the columns come from its header."""
    import pyarrow as pa

    separator, columns, more = _header(text, told)
    layout = _long_layout(columns, told, where=str(text))
    first_row = 0
    try:
        for batch in _csv_batches(text, separator, columns, layout, assembler) if more else ():
            add_batch(assembler, batch, layout, first_row=first_row)
            first_row += batch.num_rows
    except BadRow as bad:
        raise text.error(_line_of_row(text, separator, bad.row), bad.reason) from None
    except pa.ArrowException as error:
        _check_quotes(text, separator)
        raise _explained(text, separator, len(columns), error) from error
    _check_quotes(text, separator)
    return layout


def _header(text: Text, told: Told) -> tuple[str, list[str], bool]:
    """The separator, the names of the columns, whose line is left out, and whether there are more lines."""
    lines = text.first_lines()
    named = [column for column in told.values() if column]
    if not named and is_pairs(lines):
        logger.warning(
            "%s: there is no header; the first column is taken for the basket and the second for the item "
            "(format='ragged' takes every line for a basket)", text,
        )  # fmt: skip
        return ragged_separator(lines), ["basket", "item"], True
    separator = long_separator(lines[0], columns=named)
    return separator, [field.strip() for field in fields(lines[0], separator)], text.skip_line()


def _long_layout(columns: list[str], told: Told, *, where: str) -> Layout:
    try:
        return find_layout(columns, told, where=where)
    except DataError as error:
        if told.get("basket") or told.get("item"):
            raise
        hint = f"{error}. If there is no header and every line is a basket, pass format='ragged'"
        raise DataError(hint, parameters=(*error.parameters, "format")) from None


def _csv_batches(text: Text, separator: str, columns: list[str], layout: Layout, assembler: Assembler) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    def invalid(row: Any) -> str:
        if not row.text.strip():
            return "skip"
        if assembler.on_bad_row == "skip":
            assembler.n_bad += 1
        return assembler.on_bad_row

    # Ids are read as text, whatever they look like: '007' and '22.0' are not numbers.
    reader = arrow_csv.open_csv(
        io.BufferedReader(text, 1 << 20),
        read_options=arrow_csv.ReadOptions(block_size=_BLOCK, column_names=columns),
        parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=invalid),
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


def _again(text: Text, separator: str, **how: Any) -> Iterator[tuple[int, list[str]]]:
    """The records that are not blank, from the start of the file: read once more to say what is wrong, and where."""
    with opened(text.path) as source:
        for line, record in records(Text(source), separator, **how):
            if len(record) > 1 or "".join(record).strip():
                yield line, record


def _check_quotes(text: Text, separator: str) -> None:
    """With an odd number of quotes one may be left open, and Arrow takes the rest for one field."""
    if text.n_quotes % 2:
        for _ in _again(text, separator, strict=True):
            pass


def _line_of_row(text: Text, separator: str, row: int) -> int:
    rows = enumerate(_again(text, separator))
    return next((line for number, (line, _) in rows if number == row + 1), text.first_line)


def _explained(text: Text, separator: str, n_columns: int, error: Exception) -> DataError:
    """The error for a row that Arrow refused, with the line that its message lacks."""
    for line, record in _again(text, separator):
        if len(record) != n_columns:
            found = f"{len(record)} field{'s' if len(record) != 1 else ''}"
            return text.error(line, f"the header has {n_columns} fields but this row has {found}")
        if sum(map(len, record)) + len(record) > _BLOCK // 4:
            return text.error(line, f"the row is longer than {_BLOCK >> 20} MB")
    return DataError(f"{text}: cannot be read as long CSV ({error})")


# -- Parquet -----------------------------------------------------------------------------------------------


def read_parquet(source: Source, assembler: Assembler, told: Told) -> Layout:
    """Add the rows of a Parquet file, long or with a column of lists."""
    import pyarrow as pa

    where = str(source.path)
    with _parquet_file(source) as file:
        layout = layout_of(file.schema_arrow, told, where=where)
        narrow = all(pa.types.is_integer(file.schema_arrow.field(column).type) for column in layout.columns)
        rows = _NARROW_ROWS if narrow else _BATCH_ROWS
        batches = file.iter_batches(batch_size=rows, columns=layout.columns)
        add_batches(assembler, batches, layout, where=where)
    return layout


@contextmanager
def _parquet_file(source: Source) -> Iterator[Any]:
    """The Parquet file; a gzipped one is unpacked to disk first, since Parquet is read from its end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as unpacked:
        if source.packed is not None:
            for chunk in source.chunks():
                unpacked.write(chunk)
            unpacked.seek(0)
        try:
            with pq.ParquetFile(source.stream if source.packed is None else unpacked) as file:
                yield file
        except (pa.ArrowException, UnicodeDecodeError) as error:  # a column name may be damaged too
            raise DataError(f"{source.path}: not a readable Parquet file ({error})") from error
