"""How commands speak: results on standard output, the rest on standard error, and nothing decorated in a pipe."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from contradpp.data.vocabulary import Vocabulary

LONGEST_NAME = 42
WIDEST = 120  # columns of running text

json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for machines instead of text for people."
)


class Column(NamedTuple):
    """A column of a table; numbers stand on the right."""

    name: str
    right: bool = False


def show_json(value: Any) -> None:
    """Print a value as one JSON document."""
    click.echo(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def show_json_line(value: Any) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, default=str))


def show_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print a table: drawn on a terminal, with the title above it, else plain lines in columns."""
    if not on_terminal():
        _show_plain(columns, [[column.name for column in columns], *rows])
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    if title:
        heading(title)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.name, justify="right" if column.right else "left", overflow="fold")
    for cells in rows:
        table.add_row(*(_escaped(cell) for cell in cells))
    Console().print(table)


def on_terminal() -> bool:
    """Whether a person reads the results as they come."""
    return sys.stdout.isatty()


def _show_plain(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for cells in lines:
        aligned = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(cells, widths, columns, strict=True)
        ]
        click.echo("  ".join(aligned).rstrip())


def heading(text: str) -> None:
    """Print a line that stands above what follows."""
    click.echo("\n" + click.style(text, bold=True))


def paragraph(text: str, *, label: str = "", bold: bool = False) -> None:
    """Print a text after its label, wrapped at the edge of a terminal; elsewhere it is one line."""
    whole = label + text
    if on_terminal():
        width = min(shutil.get_terminal_size().columns, WIDEST)
        whole = textwrap.fill(whole, width, subsequent_indent=" " * len(label))
    click.echo(click.style(whole, bold=True) if bold else whole)


def say(text: str) -> None:
    """Tell people something on standard error, which is not part of the result."""
    click.echo(text, err=True)


@contextmanager
def busy(text: str) -> Iterator[None]:
    """Show on standard error, if that is a terminal, that something is being done."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def called(item: Hashable, items: Vocabulary, *, longest: int = LONGEST_NAME) -> str:
    """What a person calls an item, cut to a length that fits into a table."""
    name = " ".join(items.name(item).split())
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"


def listed(basket: Iterable[Hashable], items: Vocabulary) -> str:
    """The names of several items in one line."""
    return ", ".join(called(item, items) for item in basket)


def in_bytes(size: float) -> str:
    """A size of memory or of a file for people."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _escaped(cell: str) -> str:
    from rich.markup import escape

    return escape(cell)
