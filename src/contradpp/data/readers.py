"""Read baskets from a file in one pass: the format is told by the content, or named."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_args

from contradpp.data.baskets import Baskets
from contradpp.data.files import PARQUET, Source, Text, opened, reading
from contradpp.data.tables import (
    LABELS,
    Assembler,
    BadRow,
    Layout,
    OnBadRow,
    Returns,
    Told,
    add_batch,
    add_batches,
    check_column,
    find_layout,
    flag,
    integers_if_all,
    layout_of,
    matches,
)
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError

logger = logging.getLogger("contradpp")
FORMATS = ("auto", "fimi", "ragged", "long", "parquet", "jsonl", "choices")
_ALIASES = {"dat": "fimi"}
SEPARATORS = (",", ";", "\t", "|")

_BLOCK = 8 << 20  # bytes of long CSV parsed at a time, hence also the longest row
_BATCH_ROWS = 1 << 18  # lists and long texts can be wide; a quarter of a million rows amortises the overhead
_NARROW_ROWS = 1 << 20  # where all columns are integers

# Only ASCII white space separates: str.split would also cut at a no-break space inside an id.
_tokens = re.compile(r"[^ \t\r\n\f\v]+").findall


class Reading(NamedTuple):
    """Baskets, and what was found out about their file: its format, and the columns if it has any."""

    baskets: Baskets
    format: str
    columns: dict[str, str]  # by role, as they were named or guessed


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
    """Read as `read_baskets` does, and return the format and columns too; `told` are the columns that were named."""
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
    return Reading(baskets, found, layout.roles if layout else {})


def read_items(
    path: str | os.PathLike[str], *, item: str, name: str | None = None, category: str | None = None
) -> Vocabulary:
    """Read the items of a CSV file with a row per item, with names and categories from the named columns.

    `baskets.with_names(items.names).with_categories(items.categories)` tells baskets of them.
    """
    told = {"item": item, "name": name, "category": category}
    with opened(Path(path).expanduser()) as source:
        header, columns = read_columns(Text(source), [column for column in told.values() if column])
    for role, column in told.items():
        if column is not None:
            check_column(header, column, role, str(path))
    ids = integers_if_all(columns[item])
    names, categories = (
        {id_: text for id_, text in zip(ids, columns.get(column or "", ()), strict=False) if text}
        for column in (name, category)
    )
    return Vocabulary(ids, names=names, categories=categories)


def read_columns(text: Text, wanted: Sequence[str] = ()) -> tuple[list[str], dict[str, list[str]]]:
    """Read a CSV file whole: its header, and its columns without blank rows.

    Raises `DataError` for a row of another length than the header; `wanted` are names that tell the separator.
    """
    separator = long_separator(text.first_lines()[0], columns=wanted)
    (_, header), *rows = [(line, row) for line, row in records(text, separator, strict=True) if row]
    for line, row in rows:
        if len(row) != len(header):
            raise text.error(line, f"the header has {len(header)} fields but this row has {len(row)} fields")
    return header, {name: [row[place] for _, row in rows] for place, name in enumerate(header)}


def _check_choice(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ParameterError(f"{option} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _files(path: Path, format: str) -> Iterator[Path]:
    """List the file itself, or the Parquet files in a folder by name: a basket may be spread over all of them."""
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
    """Add one file to the assembler; return its format, and its columns if it has any."""
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
    if format in ("jsonl", "long"):
        read_rows = read_jsonl if format == "jsonl" else read_long
        layout = read_rows(text, assembler, told)
    elif named:
        raise ParameterError(f"format {format!r} has no columns, so {', '.join(named)} cannot be given")
    else:
        {"fimi": read_fimi, "ragged": read_ragged, "choices": read_choices}[format](text, assembler)
    text.report()
    return format, layout


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

    def add(_: int, line: str) -> None:
        offered, *rest = (choice_items(half) for half in line.split(";"))
        if len(rest) != 1:
            raise BadRow(f"expected 'offered;chosen', found {len(rest)} semicolons")
        if extra := set(rest[0]) - set(offered):
            raise BadRow(f"{min(extra)!r} was chosen but is not among what was offered")
        assembler.add_list(rest[0], offered=offered)

    _add_lines(text, assembler, add)


def _add_lines(text: Text, assembler: Assembler, add: Callable[[int, str], None]) -> None:
    """Add every line that is not blank by its number and text; a bad one is an error, or left out."""
    for number, line in enumerate(text.lines(), start=text.first_line):
        if not line.strip():
            continue
        try:
            add(number, line)
        except BadRow as bad:
            if assembler.on_bad_row == "error":
                raise text.error(number, bad.reason) from None
            assembler.n_bad += 1


def records(text: Text, separator: str, **how: Any) -> Iterator[tuple[int, list[str]]]:
    """Read the records of a CSV file and the line where each begins, by Python's own reader: slow but exact."""
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

    def add(number: int, line: str) -> None:
        nonlocal layout, kind
        try:
            value = json.loads(line, parse_constant=_refuse_constant, object_pairs_hook=_without_twins)
        except (ValueError, RecursionError) as error:
            hint = " (each line must be a whole JSON value)" if len(line.strip()) < 3 else ""
            raise BadRow(f"not valid JSON: {error}{hint}") from None
        if not isinstance(value, (list, dict)):
            raise BadRow(f"a basket must be a JSON array or object, got {line.strip()[:40]}")
        if kind is None:
            kind, layout = type(value), _json_layout(value, told, f"{text}, line {number}")
        if not isinstance(value, kind):
            called = "array" if kind is list else "object"
            raise BadRow(f"an {called} was expected, as in the lines before, got {line[:40]!r}")
        _add_value(value, layout, assembler)

    _add_lines(text, assembler, add)
    return layout


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build the object; raise if a key is there twice, of which JSON readers silently keep the last."""
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return value


def _json_layout(value: Any, told: Told, where: str) -> Layout | None:
    """Find the fields of baskets and items in the first object; None if lines are arrays."""
    if isinstance(value, list):
        named = [f"{role}=" for role, column in told.items() if column is not None]
        if named:
            raise DataError(f"{where}: the lines are arrays without fields, so {', '.join(named)} cannot apply")
        return None
    lists, texts, numbers = (
        [field for field in value if isinstance(value[field], kind)] for kind in (list, str, (int, float))
    )
    return find_layout(list(value), told, lists=lists, texts=texts, numbers=numbers, where=where)


def _add_value(value: Any, layout: Layout | None, assembler: Assembler) -> None:
    if layout is None:
        assembler.add_list(_scalars(value))
        return
    for column in (layout.basket, layout.item, layout.quantity, layout.chosen):
        if column is not None and column not in value:
            raise BadRow(f"the field {column!r} is missing")
    if layout.quantity is not None:
        quantity = value[layout.quantity]
        if type(quantity) not in (int, float):
            raise BadRow(f"the quantity must be a number, got {json.dumps(quantity)[:40]}")
        if quantity <= 0:
            assembler.n_dropped += 1
            return
    sold = value.get(layout.returns or "")
    if assembler.returns == "drop" and isinstance(sold, (int, float)) and sold < 0:
        assembler.n_returned += 1
        return
    found = value[layout.item]
    if layout.lists and not isinstance(found, list):
        raise BadRow(f"the field {layout.item!r} must hold an array, got {found!r}")
    items = _scalars(found if layout.lists else [found])
    owner = None
    if layout.basket is not None:
        owner = assembler.baskets.encode(_scalars([value[layout.basket]]))[0]
    if layout.chosen is None:
        assembler.add_list(items, owner=owner)
    else:
        assembler.add_list(_taken(items, value[layout.chosen], layout), owner=owner, offered=items)
    for kind, column in zip(LABELS, (layout.name, layout.category), strict=True):
        if column is not None and value.get(column):
            code = assembler.items.encode(items)[0]
            assembler.labels[kind][code][str(value[column])] += 1


def _taken(items: list[Hashable], told: Any, layout: Layout) -> list[Hashable]:
    """Return the items that were taken: those of a list, or all of them if a flag says yes."""
    if not layout.lists:
        taken = flag(told)
        if taken is None:
            raise BadRow(f"{told!r} in the field {layout.chosen!r} says neither yes nor no")
        return items if taken else []
    if not isinstance(told, list):
        raise BadRow(f"the field {layout.chosen!r} must hold an array, got {told!r}")
    if extra := [item for item in _scalars(told) if item not in items]:
        raise BadRow(f"{extra[0]!r} was chosen but is not among what was offered")
    return told


def _scalars(values: list[Any]) -> list[Hashable]:
    for value in values:
        if type(value) not in (str, int, float):
            raise BadRow(f"an id must be a string or a number, got {json.dumps(value)[:40]}")
    return values


# -- Long CSV and TSV --------------------------------------------------------------------------------------


def read_long(text: Text, assembler: Assembler, told: Told) -> Layout:
    """Add the rows of a long CSV file; the separator and, unless named, the columns come from its header."""
    import pyarrow as pa

    separator, columns, more = _header(text, told)
    try:
        layout = find_layout(columns, told, where=str(text))
    except DataError as error:
        if told.get("basket") or told.get("item"):
            raise
        hint = f"{error}. If there is no header and every line is a basket, pass format='ragged'"
        raise DataError(hint, parameters=(*error.parameters, "format")) from None
    first_row = 0
    try:
        for batch in _csv_batches(text, separator, columns, layout, assembler) if more else ():
            add_batch(assembler, batch, layout, first_row=first_row)
            first_row += batch.num_rows
    except BadRow as bad:
        after_header = islice(_again(text, separator), bad.row + 1, None)
        raise text.error(next(after_header, (text.first_line, []))[0], bad.reason) from None
    except pa.ArrowException as error:
        _check_quotes(text, separator)
        raise _explained(text, separator, len(columns), error) from error
    _check_quotes(text, separator)
    return layout


def _header(text: Text, told: Told) -> tuple[str, list[str], bool]:
    """Find the separator and the columns, skip the line of the header, and tell if more lines follow."""
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
    """Read the records that are not blank once more, from the start of the file, to say what is wrong and where."""
    with opened(text.path) as source:
        for line, record in records(Text(source), separator, **how):
            if len(record) > 1 or "".join(record).strip():
                yield line, record


def _check_quotes(text: Text, separator: str) -> None:
    """Refuse an open quote: Arrow takes the rest of the file for one field, and the count of quotes is odd."""
    if text.n_quotes % 2:
        for _ in _again(text, separator, strict=True):
            pass


def _explained(text: Text, separator: str, n_columns: int, error: Exception) -> DataError:
    """Build the error for a row that Arrow refused, with the line that its message lacks."""
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
    import pyarrow.parquet as pq

    where = str(source.path)
    with tempfile.TemporaryFile() as unpacked:
        if source.packed is not None:  # Parquet is read from its end
            unpacked.writelines(source.chunks())
            unpacked.seek(0)
        try:
            with pq.ParquetFile(source.stream if source.packed is None else unpacked) as file:
                layout = layout_of(file.schema_arrow, told, where=where)
                narrow = all(pa.types.is_integer(file.schema_arrow.field(column).type) for column in layout.columns)
                rows = _NARROW_ROWS if narrow else _BATCH_ROWS
                add_batches(assembler, file.iter_batches(rows, columns=layout.columns), layout, where=where)
        except (pa.ArrowException, UnicodeDecodeError) as error:  # a column name may be damaged too
            raise DataError(f"{where}: not a readable Parquet file ({error})") from error
    return layout


# -- Text formats: the first lines decide, the suffix only what they leave open --------------------


def detect_format(lines: Sequence[str], suffix: str, *, has_columns: bool = False) -> str:
    """Tell the format of a text file, "jsonl", "choices", "long", "ragged" or "fimi", from its first lines.

    The suffix decides where they fit two formats; only a file with a header has columns.
    """
    if _is_json(lines[0], suffix):
        return "jsonl"
    if not has_columns and is_choices(lines):
        return "choices"
    if has_columns or _has_known_header(lines[0]) or is_pairs(lines) or _has_unknown_header(lines):
        return "long"
    separated = any(separator in line for line in lines for separator in SEPARATORS)
    spaced = suffix in (".dat", ".fimi") and any(len(line.split()) > 1 for line in lines)
    return "ragged" if separated and not spaced else "fimi"


def is_choices(lines: Sequence[str]) -> bool:
    """Tell if every line is `offered;chosen`, with all that was chosen among several that were offered."""
    halves = [tuple(map(choice_items, line.split(";"))) for line in lines]
    return all(len(half) == 2 and len(half[0]) > 1 and set(half[1]) <= set(half[0]) for half in halves)


def choice_items(half: str) -> list[str]:
    """Split one half of a line `offered;chosen` into items: spaces, tabs or commas separate them."""
    return [item for item in re.split(r"[ \t\r\n\f\v,]+", half) if item]


def is_pairs(lines: Sequence[str]) -> bool:
    """Tell if lines without a header are rows (basket, item): two fields each, and first ones that repeat.

    They repeat in runs, as baskets of two items would only if they were sorted, or are numbers beside texts.
    """
    separator = ragged_separator(lines)
    rows = [[field.strip() for field in fields(line, separator)] for line in lines]
    if any(len(row) != 2 or not row[0] for row in rows) or _has_known_header(lines[0]) or _has_unknown_header(lines):
        return False
    owners, items = zip(*rows, strict=True)
    distinct = len(set(owners))
    if not 1 < distinct < len(owners):
        return False
    in_runs = len(list(groupby(owners))) == distinct
    return in_runs or (all(map(_is_number, owners)) and not any(map(_is_number, items)))


def may_be_pairs(lines: Sequence[str]) -> bool:
    """Tell if lines that are taken for baskets of two items could be rows (basket, item) in no order."""
    separator = ragged_separator(lines)
    rows = [fields(line, separator) for line in lines]
    if len(rows) < 4 or any(len(row) != 2 for row in rows):
        return False
    owners, items = ({row[column].strip() for row in rows} for column in (0, 1))
    return owners.isdisjoint(items) and len(owners) < len(rows)


def long_separator(header: str, *, columns: Iterable[str] = ()) -> str:
    """Find the separator under which a header has the columns asked for, or known names, or most names."""
    wanted = {column for column in columns if column}

    def fitness(separator: str) -> tuple[int, int, int]:
        names = fields(header, separator)
        known = sum(bool(matches(names, role)) for role in ("basket", "item"))
        return len(wanted & set(names)), known, len(names) if separator != " " else 0

    return max((*SEPARATORS, " "), key=fitness)


def ragged_separator(lines: Sequence[str]) -> str:
    """Find the separator that occurs in most lines, and most often."""
    return max(SEPARATORS, key=lambda s: (sum(s in line for line in lines), sum(line.count(s) for line in lines)))


def fields(line: str, separator: str) -> list[str]:
    """Split one line of CSV into fields."""
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a field longer than the csv module takes, hence no header
        return line.split(separator)


def _is_json(line: str, suffix: str) -> bool:
    named, opened = suffix in (".json", ".jsonl", ".ndjson"), line.lstrip().startswith(("[", "{"))
    if not (named or opened):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return named and opened  # the reader will say what is wrong with it
    return True


def _has_known_header(line: str) -> bool:
    candidates = [fields(line, separator) for separator in (*SEPARATORS, " ")]
    return any(matches(names, "basket") and matches(names, "item") for names in candidates)


def _has_unknown_header(lines: Sequence[str]) -> bool:
    """Tell if the first line looks like the names of columns rather than like a basket.

    Every line has as many fields as the first, whose fields never occur again; and below it there is a
    column of numbers, a column that repeats a value in successive lines, or a name that is known.
    """
    separator = ragged_separator(lines)
    rows = [fields(line, separator) for line in lines]
    header, *body = rows
    if len(header) < 2 or not body or any(len(row) != len(header) for row in body):
        return False
    names = {name.strip() for name in header}
    if "" in names or len(names) < len(header) or any(map(_is_number, names)):
        return False
    if any(field.strip() in names for row in body for field in row):
        return False
    return (
        any(matches(header, role) for role in ("basket", "item"))
        or any(all(map(_is_number, column)) for column in zip(*body, strict=True))
        or any(a == b for above, below in pairwise(body) for a, b in zip(above, below, strict=True))
    )


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
