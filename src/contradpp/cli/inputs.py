"""What commands are given: options, baskets from a file or a data set, and items as people write them."""

from __future__ import annotations

import difflib
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
from contradpp.data.readers import FORMATS, Reading, read, read_baskets
from contradpp.data.vocabulary import Lookup, Vocabulary
from contradpp.errors import DataError, UnknownItemError

Decorator = Callable[[Any], Any]
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
OLD_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SHARE = click.FloatRange(0, 1, max_open=True)
FEWEST_TO_TEST, MOST_TO_TEST = 20, 5_000


def option(*words: str, **more: Any) -> Decorator:
    """`click.option`, whose help shows the default if there is one; a tuple of words is a choice."""
    kind = more.pop("type", None)
    kind = click.Choice(kind) if isinstance(kind, tuple) else kind
    return click.option(*words, type=kind, **{"show_default": more.get("default") is not None} | more)


def together(*decorators: Decorator) -> Decorator:
    """Make one decorator of several, in the order of the help."""
    return lambda command: reduce(lambda inner, decorate: decorate(inner), reversed(decorators), command)


model_argument: Decorator = click.argument("model", type=click.Path(exists=True, dir_okay=False))
unknown_option = option("--unknown", type=("error", "ignore"), default="error",
                        help="What to do with items that the model does not know.")  # fmt: skip
input_option = option("-i", "--input", "source", metavar="FILE",
                      help="Answer for every basket of a file, or of standard input (-), with JSON.")  # fmt: skip
at_most_option = option("--at-most", multiple=True, metavar="[CATEGORY=]N",
                        help="The most items of every category, or of one; may be repeated.")  # fmt: skip
n_jobs_option = option("--n-jobs", type=click.IntRange(1), help="Threads; all cores if left out.")
_SEPARATORS = re.compile("[,;\t]")
LONG_WORD = 120
COLUMNS = ("basket", "item", "quantity", "name", "category", "chosen")
LAYOUT = ("format", *COLUMNS, "on_bad_row", "returns")

layout_options = together(
    option("--format", type=tuple(FORMATS), default="auto", help="File format."),
    option("--basket", help="Column with the basket's id; guessed if left out."),
    option("--item", help="Column with the item's id; guessed if left out."),
    option("--quantity", help="Column of quantities: rows that are not positive are dropped."),
    option("--name", help="Column with readable item names; guessed if left out."),
    option("--category", help="Column with item categories."),
    option("--chosen", help="Column that says what was taken of the items, which are then what was offered."),
    option("--on-bad-row", type=("error", "skip"), default="error", help="What to do with a row that cannot be read."),
    option("--returns", type=("drop", "keep"), default="drop", help="What to do with rows that look like returns."),
)


class Parsed(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A type of option whose values a function reads; a `ValueError` of it is wrong usage.

    The message says what the value "is": `wrong`.
    """

    name = "text"

    def __init__(self, read: Callable[[str], Any], wrong: str) -> None:
        self.read = read
        self.wrong = wrong

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType`."""
        try:
            return self.read(str(value))
        except (ValueError, click.BadParameter):
            self.fail(f"{value!r} is {self.wrong}", param, ctx)


def names(known: Collection[str]) -> Callable[..., Any]:
    """The callback of an option that takes some of these names between commas."""

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(filter(None, (value or "").split(","))))
        for name in chosen:
            if name not in known:
                raise click.BadParameter(f"there is no {name!r}; there are: {', '.join(known)}", ctx, param)
        return chosen

    return check


def random_state_option(help: str, *, default: int | None = 0) -> Decorator:
    """The option for a seed."""
    return option("--random-state", type=int, default=default, help=help)


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


def baskets_from(data: str, **layout: Any) -> Baskets:
    """The baskets of a file, or of a data set if there is no such file and a data set of that name."""
    return reading_from(data, **layout).baskets


def reading_from(data: str, *, format: str = "auto", **layout: Any) -> Reading:
    """What `baskets_from` gives, with what was found out about the file."""
    if Path(data).exists():
        told = {role: layout.pop(role, None) for role in COLUMNS}
        return read(data, format, told, **layout)
    if data in datasets.names():
        return Reading(datasets.load(data, progress=True), "data set", {})
    close = difflib.get_close_matches(data, datasets.names(), n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`contradpp data list` shows the data sets there are"
    raise DataError(f"there is no file {data!r}, and no data set of that name: {hint}")


def hold_out(baskets: Baskets, share: float, seed: int) -> tuple[Baskets, Baskets | None]:
    """Split into baskets to learn from, and some to measure with unless there are too few."""
    n_test = min(round(share * baskets.n_baskets), MOST_TO_TEST)
    if n_test < 1 or baskets.n_baskets < FEWEST_TO_TEST:
        return baskets, None
    return baskets.split(n_test, random_state=seed)


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> float | None:
    """Return the bytes of memory that a program can still have, None if the system does not say."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+)", meminfo.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else float(found[1]) * 1024


def queries(source: str, words: Words) -> Iterator[list[Any]]:
    """The baskets of a file in any format, or of the lines of standard input for "-"."""
    yield from words.lines(sys.stdin) if source == "-" else read_baskets(source)


# -- Items as people write them --------------------------------------------------------------------------


class Words:
    """Finds the items that words mean; one that means none raises `UnknownItemError`, or is left out ("ignore").

    Of several items with one name, a word means the one that sold most, by their counts.
    """

    def __init__(self, items: Vocabulary, *, unknown: str = "error", counts: ArrayLike | None = None) -> None:
        self.items = items
        self.unknown = unknown
        self._lookup = Lookup(items, counts)
        self.find = self._lookup.find

    def basket(self, words: Iterable[Any], *, unknown: str | None = None) -> list[Hashable]:
        """The items that these words mean; a word that means none may be several between commas."""
        found: list[Hashable] = []
        for word in words:
            whole = self.find(word)
            found += [whole] if whole is not None else self._parts(str(word), unknown or self.unknown)
        return found

    def lines(self, stream: Iterable[str]) -> Iterator[list[Any]]:
        """A basket per line: a JSON array, an object with `basket` or `items`, or words between commas or spaces."""
        for number, line in enumerate(stream, start=1):
            text = line.strip()
            if text.startswith(("[", "{")):
                yield _from_json(text, number)
            elif self.find(text) is not None:
                yield [text]
            else:
                words = _SEPARATORS.split(text) if _SEPARATORS.search(text) else text.split()
                yield [word.strip() for word in words]

    def _parts(self, word: str, unknown: str) -> list[Hashable]:
        parts = [part.strip() for part in _SEPARATORS.split(word) if part.strip()]
        found = [self.find(part) for part in parts]
        if unknown == "error" and None in found:
            missing = parts[found.index(None)]
            raise UnknownItemError(f"the model does not know {shortened(missing)!r}. {self._hint(missing)}")
        return [item for item in found if item is not None]

    def _hint(self, word: str) -> str:
        key, named = word.casefold(), self._lookup.named
        holding = sorted((name for name in named if key in name), key=len)[:3]
        close = holding or (difflib.get_close_matches(key, named, n=2) if len(key) < LONG_WORD else [])
        if not close:
            return "`contradpp info MODEL --items` lists what it knows; --unknown ignore leaves it out"
        meant = " or ".join(repr(self.items.name(named[name][0])) for name in close)
        return f"Did you mean {meant}? (--unknown ignore leaves it out)"


def shortened(word: str) -> str:
    """A word of bearable length, for a message."""
    return word if len(word) < LONG_WORD else f"{word[: LONG_WORD // 2]}…"


def _from_json(text: str, number: int) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"line {number} is not JSON: {error}") from None
    if isinstance(value, dict):
        value = value.get("basket", value.get("items"))
    if not isinstance(value, list) or not all(isinstance(item, (str, int)) for item in value):
        raise DataError(f'line {number} must be a list of items, or an object such as {{"basket": ["tea", "milk"]}}')
    return value
