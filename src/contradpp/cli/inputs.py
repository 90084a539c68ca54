"""What commands are given: baskets from a file or by the name of a data set, and how the file is laid out."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from contradpp.cli.words import Words
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.readers import FORMATS, Reading, read, read_baskets
from contradpp.errors import DataError

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
at_most_option: Callable[[Any], Any] = click.option(
    "--at-most",
    multiple=True,
    metavar="[CATEGORY=]N",
    help="The most items of every category, or of one; may be repeated.",
)
COLUMNS = ("basket", "item", "quantity", "name", "category")
LAYOUT = ("format", *COLUMNS, "on_bad_row", "returns")

_LAYOUT_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--format", type=click.Choice(FORMATS), default="auto", show_default=True, help="File format."),
    click.option("--basket", help="Column with the basket's id; guessed if left out."),
    click.option("--item", help="Column with the item's id; guessed if left out."),
    click.option("--quantity", help="Column of quantities: rows that are not positive are dropped."),
    click.option("--name", help="Column with readable item names; guessed if left out."),
    click.option("--category", help="Column with item categories."),
    click.option("--on-bad-row", type=click.Choice(["error", "skip"]), default="error", show_default=True,
                 help="What to do with a row that cannot be read."),
    click.option("--returns", type=click.Choice(["drop", "keep"]), default="drop", show_default=True,
                 help="What to do with rows that look like returns."),
)  # fmt: skip


def counts_of(words: tuple[str, ...], option: str) -> int | dict[str, int] | None:
    """What `at_most` or `at_least` takes: from "2" the number, from "dairy=2" and the like a mapping."""
    if not words:
        return None
    if len(words) == 1 and words[0].isdecimal():
        return int(words[0])
    counts: dict[str, int] = {}
    for word in words:
        category, _, number = word.rpartition("=")
        if not category or not number.isdecimal():
            raise click.UsageError(f"{option} takes a number, or CATEGORY=NUMBER once or more, not {word!r}")
        counts[category] = int(number)
    return counts


def layout_options(command: Any) -> Any:
    """Give a command the options that say how a file of baskets is laid out."""
    for option in reversed(_LAYOUT_OPTIONS):
        command = option(command)
    return command


def baskets_from(data: str, **layout: Any) -> Baskets:
    """The baskets of a file, or of a data set if there is no such file and a data set of that name."""
    return reading_from(data, **layout).baskets


def reading_from(data: str, *, format: str = "auto", **layout: Any) -> Reading:
    """What `baskets_from` gives, with what was found out about the file."""
    if Path(data).exists():
        told = {role: layout.pop(role, None) for role in COLUMNS}
        return read(data, format, told, **layout)
    if data in datasets.names():
        return Reading(datasets.load(data, progress=True), "data set", None)
    close = difflib.get_close_matches(data, datasets.names(), n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`contradpp data list` shows the data sets there are"
    raise DataError(f"there is no file {data!r}, and no data set of that name: {hint}")


def queries(source: str, words: Words) -> Iterator[list[Any]]:
    """The baskets of a file in any format, or of the lines of standard input for "-"."""
    if source != "-":
        yield from read_baskets(source)
        return
    yield from words.lines(sys.stdin)
