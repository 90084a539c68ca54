"""Inputs of the commands: shared options, baskets, and items as people write them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import click
from numpy.typing import ArrayLike

from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.formats import FORMATS
from contradpp.data.readers import Reading, read, read_baskets
from contradpp.data.vocabulary import LONG_WORD, Lookup, Vocabulary
from contradpp.errors import DataError, UnknownItemError, did_you_mean

Decorator = Callable[[Any], Any]
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
OLD_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SHARE = click.FloatRange(0, 1, max_open=True)
COUNT = click.IntRange(1)
MIN_BASKETS_TO_SPLIT = 20
MAX_TEST_BASKETS = 5_000
SEPARATORS = re.compile("[,;\t]")
COLUMNS = ("basket", "item", "quantity", "name", "category", "chosen", "customer", "time", "gap")
LAYOUT = ("format", *COLUMNS, "on_bad_row", "returns")


# -- Options ---------------------------------------------------------------------------------------


def option(*words: str, **more: Any) -> Decorator:
    """Make a `click.option` that shows its default; a type that is a tuple means a choice."""
    kind = more.pop("type", None)
    kind = click.Choice(kind) if isinstance(kind, tuple) else kind
    more.setdefault("show_default", more.get("default") is not None)
    more.setdefault("cls", Once)
    return click.option(*words, type=kind, **more)


def together(*decorators: Decorator) -> Decorator:
    """Make one decorator of several, in the order of the help."""
    return lambda command: reduce(lambda inner, one: one(inner), reversed(decorators), command)


def random_state_option(help: str, *, default: int | None = 0) -> Decorator:
    """Make the option for a seed."""
    return option("--random-state", type=int, default=default, help=help)


class Once(click.Option):
    """An option that may be given once: click alone would take the last value."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        if self.is_flag or self.multiple or self.count:
            super().add_to_parser(parser, ctx)
        else:
            parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append", nargs=1)

    def consume_value(self, ctx: click.Context, opts: Any) -> Any:
        given = opts.get(self.name)
        if isinstance(given, list) and not self.multiple:
            if len(given) > 1:
                raise click.BadParameter(f"given {len(given)} times; give it once", ctx, self)
            opts = {**opts, self.name: given[0]}
        return super().consume_value(ctx, opts)


class Parsed(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An option type whose values a function reads; `wrong` ends the message about a bad value."""

    name = "text"

    def __init__(self, read: Callable[[str], object], wrong: str) -> None:
        self.read = read
        self.wrong = wrong

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        try:
            return self.read(str(value))
        except (ValueError, click.BadParameter):
            self.fail(f"{value!r} is {self.wrong}", param, ctx)


def word_or_number(words: tuple[str, ...], number: Any, wrong: str) -> Parsed:
    """Make the type of an option that takes one of the words, or a number."""

    def read(text: str) -> object:
        return text if text in words else number.convert(text, None, None)

    return Parsed(read, wrong)


def names(known: Collection[str]) -> Callable[..., Any]:
    """Make the callback of an option that takes some of these names, separated by commas."""

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(filter(None, (value or "").split(","))))
        for name in chosen:
            if name not in known:
                hint = did_you_mean(name, known)
                message = f"there is no {name!r}; there are: {', '.join(known)}{hint}"
                raise click.BadParameter(message, ctx, param)
        return chosen

    return check


def counts_of(words: tuple[str, ...], option: str) -> int | dict[str, int] | None:
    """Read the values of `--at-most` or `--at-least`: a number, or a number for each category."""
    if not words:
        return None
    if len(words) == 1 and words[0].isdecimal():
        return int(words[0])
    counts: dict[str, int] = {}
    for word in words:
        category, _, number = word.rpartition("=")
        if not category or not number.isdecimal():
            raise click.UsageError(
                f"{option} takes a number, or CATEGORY=NUMBER once or more, not {word!r}"
            )
        counts[category] = int(number)
    return counts


model_argument: Decorator = click.argument("model", type=click.Path(exists=True, dir_okay=False))
n_jobs_option = option(
    "--n-jobs", type=COUNT, help="Threads; default: all cores. Results do not depend on it."
)
unknown_option = option(
    "--unknown",
    type=("error", "ignore"),
    default="error",
    help="How to treat items that the model does not know.",
)
input_option = option(
    "-i",
    "--input",
    "source",
    metavar="FILE",
    help="Answer every basket of a file, or of standard input (-), with a line of JSON.",
)
at_most_option = option(
    "--at-most",
    multiple=True,
    metavar="[CATEGORY=]N",
    help="Maximum number of items of every category, or of one; can be repeated.",
)
layout_options = together(
    option("--format", type=tuple(FORMATS), default="auto", help="File format."),
    option("--basket", help="Column with the id of the basket, or several: customer,timestamp."),
    option("--item", help="Column with the id of the item; default: guessed."),
    option("--quantity", help="Column with quantities; rows that are not positive are dropped."),
    option("--name", help="Column with readable item names; default: guessed."),
    option("--category", help="Column with item categories."),
    option("--chosen", help="Column that marks which of the offered items were taken."),
    option("--customer", help="Column with the id of the customer; default: guessed."),
    option("--time", help="Column with the time of the basket; default: guessed."),
    option("--gap", help="Make baskets of a customer's events that are no more than 30min apart."),
    option(
        "--on-bad-row",
        type=("error", "skip"),
        default="error",
        help="How to treat a row that cannot be read.",
    ),
    option(
        "--returns",
        type=("drop", "keep"),
        default="drop",
        help="How to treat rows that look like returned goods.",
    ),
)


# -- Baskets ---------------------------------------------------------------------------------------


def baskets_from(data: str, **layout: Any) -> Baskets:
    """Read the baskets of a file, or of a data set if there is no such file."""
    return reading_from(data, **layout).baskets


def reading_from(data: str, *, format: str = "auto", **layout: Any) -> Reading:
    """Read baskets as `baskets_from` does, with the format and columns that were found."""
    if Path(data).exists():
        columns = {role: layout.pop(role, None) for role in COLUMNS}
        return read(data, format, columns, **layout)
    known = datasets.names()
    if data in known:
        return Reading(datasets.load(data, progress=True), "data set", {})
    hint = did_you_mean(data, known) or ": `contradpp data list` lists the data sets"
    raise DataError(f"there is no file {data!r}, and no data set of that name{hint}")


def hold_out(baskets: Baskets, share: float, seed: int) -> tuple[Baskets, Baskets | None]:
    """Split into training and test baskets; there is no test set if there are too few baskets."""
    n_test = min(round(share * baskets.n_baskets), MAX_TEST_BASKETS)
    if n_test < 1 or baskets.n_baskets < MIN_BASKETS_TO_SPLIT:
        return baskets, None
    return baskets.split(n_test, random_state=seed)


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> float | None:
    """Return the bytes of available memory, or None if the system does not report it."""
    try:
        text = meminfo.read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s*(\d+)", text, re.MULTILINE)
    return None if found is None else float(found[1]) * 1024


def queries(source: str, parser: ItemParser) -> Iterator[list[Hashable]]:
    """Read the baskets of a file in any format, or of the lines of standard input for "-"."""
    yield from parser.lines(sys.stdin) if source == "-" else read_baskets(source)


# -- Items as people write them --------------------------------------------------------------------


class ItemParser:
    """A parser that finds the items of a model by id or name.

    An unknown item raises `UnknownItemError`, or is left out if `unknown="ignore"`. A name that
    several items share means the one with the largest count.
    """

    def __init__(
        self, items: Vocabulary, *, unknown: str = "error", counts: ArrayLike | None = None
    ) -> None:
        self.items = items
        self.unknown = unknown
        self._lookup = Lookup(items, counts)
        self.find = self._lookup.find

    def basket(self, words: Iterable[Hashable], *, unknown: str | None = None) -> list[Hashable]:
        """Return the items of these words; an unknown word may be several items with commas."""
        found: list[Hashable] = []
        for word in words:
            item = self.find(word)
            if item is None:
                found += self._split(str(word), unknown or self.unknown)
            else:
                found.append(item)
        return found

    def lines(self, stream: Iterable[str]) -> Iterator[list[Hashable]]:
        """Read a basket per line.

        A line is a JSON array, a JSON object with `basket` or `items`, or words between commas or
        spaces.
        """
        for number, line in enumerate(stream, start=1):
            text = line.strip()
            if text.startswith(("[", "{")):
                yield _from_json(text, number)
            elif self.find(text) is not None:
                yield [text]
            else:
                words = SEPARATORS.split(text) if SEPARATORS.search(text) else text.split()
                yield [word.strip() for word in words]

    def _split(self, word: str, unknown: str) -> list[Hashable]:
        parts = [part.strip() for part in SEPARATORS.split(word) if part.strip()]
        found = [self.find(part) for part in parts]
        if unknown == "error" and None in found:
            missing = parts[found.index(None)]
            raise UnknownItemError(
                f"the model does not know {shortened(missing)!r}. {self._hint(missing)}"
            )
        return [item for item in found if item is not None]

    def _hint(self, word: str) -> str:
        close = self._lookup.close(word)
        if not close:
            return "`contradpp info MODEL --items` lists its items; --unknown ignore skips this one"
        found = " or ".join(repr(self.items.name(item)) for item in close)
        return f"Did you mean {found}? (--unknown ignore skips it)"


def shortened(word: str) -> str:
    """Return a word cut to a length that suits a message."""
    return word if len(word) < LONG_WORD else f"{word[: LONG_WORD // 2]}…"


def _from_json(text: str, number: int) -> list[Hashable]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"line {number} is not JSON: {error}") from None
    if isinstance(value, dict):
        value = value.get("basket", value.get("items"))
    if not isinstance(value, list) or not all(isinstance(item, (str, int)) for item in value):
        example = '{"basket": ["tea", "milk"]}'
        raise DataError(f"line {number} must be a list of items, or an object such as {example}")
    return value
