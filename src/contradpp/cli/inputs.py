"""What commands are given: baskets from a file or by the name of a data set, and how the file is laid out."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from contradpp.cli.words import Words
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.detect import detect_format, fields, first_lines, long_separator
from contradpp.data.parquet import MAGIC
from contradpp.data.readers import FORMATS, read_baskets
from contradpp.data.source import Source, inspect_text
from contradpp.errors import DataError

_NAME = re.compile(r"(item|product|article|stock)?_?(name|title|description|desc)", re.IGNORECASE)

model_argument: Callable[[Any], Any] = click.argument("model", type=click.Path(exists=True, dir_okay=False))
unknown_option: Callable[[Any], Any] = click.option(
    "--unknown",
    type=click.Choice(["error", "ignore"]),
    default="error",
    show_default=True,
    help="What to do with items that the model does not know.",
)
input_option: Callable[[Any], Any] = click.option(
    "-i",
    "--input",
    "source",
    metavar="FILE",
    help="Answer for every basket of a file, or of standard input (-), a line of JSON each.",
)
LAYOUT = ("format", "basket", "item", "quantity", "name")


_LAYOUT_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--format", type=click.Choice(FORMATS), default="auto", show_default=True, help="File format."),
    click.option("--basket", help="Column with the basket's id; guessed if left out."),
    click.option("--item", help="Column with the item's id; guessed if left out."),
    click.option("--quantity", help="Column of quantities: rows that are not positive are dropped."),
    click.option("--name", help="Column with readable item names; guessed if left out."),
)


def layout_options(command: Any) -> Any:
    """Give a command the options that say how a file of baskets is laid out."""
    for option in reversed(_LAYOUT_OPTIONS):
        command = option(command)
    return command


def baskets_from(
    data: str,
    *,
    format: str = "auto",
    basket: str | None = None,
    item: str | None = None,
    quantity: str | None = None,
    name: str | None = None,
) -> Baskets:
    """The baskets of a file, or of a data set if there is no such file and a data set of that name."""
    if not Path(data).exists():
        if data in datasets.names():
            return datasets.load(data, progress=True)
        close = difflib.get_close_matches(data, datasets.names(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "`contradpp data list` shows the data sets there are"
        raise DataError(f"there is no file {data!r}, and no data set of that name: {hint}")
    told = name or guessed_name_column(Path(data), format, taken=(basket, item))
    return read_baskets(data, format, basket, item, quantity=quantity, name=told)


def guessed_name_column(path: Path, format: str = "auto", *, taken: Iterable[str | None] = ()) -> str | None:
    """The only column whose name says that it holds what items are called, such as Description; None if in doubt."""
    fitting = [column for column in _columns(path, format) if _NAME.fullmatch(column) and column not in set(taken)]
    return fitting[0] if len(fitting) == 1 else None


def _columns(path: Path, format: str) -> list[str]:
    """The names of a file's columns, none if it has no header, or is no file at all."""
    if path.is_dir():
        return []
    source = Source.of(path)
    if format in ("auto", "parquet") and source.head(len(MAGIC)) == MAGIC:
        import pyarrow.parquet as pq

        schema = pq.read_schema(path)
        return [field.name for field in schema if str(field.type) in ("string", "large_string")]
    if format not in ("auto", "long"):
        return []
    lines = first_lines(inspect_text(source))
    kind = detect_format(lines, source.suffix) if format == "auto" else format
    return fields(lines[0], long_separator(lines[0])) if kind == "long" else []


def queries(source: str, words: Words) -> Iterator[list[Any]]:
    """The baskets of a file in any format, or of the lines of standard input for "-"."""
    if source != "-":
        yield from read_baskets(source)
        return
    yield from words.lines(sys.stdin)
