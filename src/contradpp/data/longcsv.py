"""Long CSV and TSV: a header, then a row per basket and item, read by Arrow in blocks."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from contradpp.data.assemble import Assembler, BadRow
from contradpp.data.columns import Layout, find_layout
from contradpp.data.detect import fields, long_separator
from contradpp.data.source import Text, reading
from contradpp.data.tables import add_batch
from contradpp.errors import DataError

_BLOCK = 8 << 20  # bytes parsed at a time, hence also the longest row


def read_long(
    text: Text,
    assembler: Assembler,
    *,
    basket: str | None = None,
    item: str | None = None,
    quantity: str | None = None,
    name: str | None = None,
) -> None:
    """Add the rows of a long CSV file; the separator and, unless named, the columns come from its header."""
    import pyarrow as pa

    header = next(text.lines()).rstrip("\r\n")
    separator = long_separator(header, columns=[c for c in (basket, item, quantity, name) if c])
    columns = fields(header, separator)
    layout = _layout(columns, basket=basket, item=item, quantity=quantity, name=name, where=str(text))
    if text.n_quotes % 2:
        _check_quotes(text, separator)
    first_row = 0
    try:
        with reading(text.source.path), text.open() as stream:
            for batch in _batches(stream, text, separator, layout):
                add_batch(assembler, batch, layout, first_row=first_row)
                first_row += batch.num_rows
    except BadRow as bad:
        raise text.error(_line_of_row(text, separator, bad.row), bad.reason) from None
    except pa.ArrowException as error:
        raise _explained(text, separator, len(columns), error) from error


def _layout(columns: list[str], *, where: str, **told: str | None) -> Layout:
    try:
        return find_layout(columns, lists=(), where=where, **told)
    except DataError as error:
        if told["basket"] or told["item"]:
            raise
        raise DataError(
            f"{error}. If there is no header and every line is a basket, pass format='ragged'",
            parameters=(*error.parameters, "format"),
        ) from None


def _batches(stream: Any, text: Text, separator: str, layout: Layout) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    # Ids are read as text, whatever they look like: '007' and '22.0' are not numbers.
    reader = arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(block_size=_BLOCK, encoding=text.encoding),
        parse_options=arrow_csv.ParseOptions(
            delimiter=separator,
            newlines_in_values=text.n_quotes > 0,
            invalid_row_handler=lambda row: "error" if row.text.strip() else "skip",
        ),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=layout.columns,
            column_types=dict.fromkeys(layout.columns, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    with reader:
        yield from reader


def _records(text: Text, separator: str, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank with the line where each begins, by Python's own reader: slow but exact."""
    line = text.first_line
    reader = csv.reader(text.lines(), delimiter=separator, strict=strict)
    try:
        for record in reader:
            if len(record) > 1 or "".join(record).strip():
                yield line, record
            line = text.first_line + reader.line_num
    except csv.Error as error:
        raise text.error(line, f"{error} (is a quote left open?)") from error


def _check_quotes(text: Text, separator: str) -> None:
    """With an odd number of quotes one may be left open, and Arrow would take the rest for one field."""
    for _ in _records(text, separator, strict=True):
        pass


def _line_of_row(text: Text, separator: str, row: int) -> int:
    records = enumerate(_records(text, separator))
    return next((line for number, (line, _) in records if number == row + 1), text.first_line)


def _explained(text: Text, separator: str, n_columns: int, error: Exception) -> DataError:
    """The error for a row that Arrow refused, with the line that its message lacks."""
    for line, record in _records(text, separator):
        if len(record) != n_columns:
            found = f"{len(record)} field{'s' if len(record) != 1 else ''}"
            return text.error(line, f"the header has {n_columns} fields but this row has {found}")
        if sum(map(len, record)) + len(record) > _BLOCK // 4:
            return text.error(line, f"the row is longer than {_BLOCK >> 20} MB")
    return DataError(f"{text}: cannot be read as long CSV ({error})")
