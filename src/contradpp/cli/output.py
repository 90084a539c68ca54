"""How commands speak: results on standard output, the rest on standard error, and nothing decorated in a pipe.

Files to write are checked before the work begins, and replaced only when it has succeeded.
"""

from __future__ import annotations

import errno
import json
import logging
import secrets
import shlex
import shutil
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import ContradppError, ModelFileError
from contradpp.learn.checkpoint import KIND

LONGEST_NAME = 42
WIDEST = 120  # columns of running text
_PLACE = "choose another place, or change the permissions of this one."
_HINTS = {
    errno.ENOSPC: "The disk is full: free some space, or write to another folder.",
    errno.EDQUOT: "Your disk quota is used up: free some space, or write to another folder.",
    errno.EACCES: f"You lack the permission: {_PLACE}",
    errno.EPERM: f"You lack the permission: {_PLACE}",
    errno.EROFS: "That file system is read-only: choose another place.",
}
# Control characters as JSON writes them: in an item's id they could move the cursor or recolour a terminal.
_CONTROL = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))}
_HALVES = {code: text for code, text in _CONTROL.items() if code >= 0xD800}  # of pairs, which UTF-8 cannot hold
_LATE_CONTROL = {code: text for code, text in _CONTROL.items() if code >= 0x7F}  # what `json` lets through
_BUT_NEW_LINES = {code: text for code, text in _CONTROL.items() if chr(code) != "\n"}

json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for machines instead of text for people."
)


# -- Results -----------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column of a table; numbers stand on the right."""

    name: str
    right: bool = False


def show_json(value: Any, *, indent: int | None = 1) -> None:
    """Print a value as one JSON document, on one line where `indent` is None."""
    click.echo(json.dumps(value, indent=indent, ensure_ascii=False, default=str).translate(_LATE_CONTROL))


def show_answers(lines: Iterable[dict[str, Any]], what: str = "baskets") -> None:
    """A line of JSON for every question; fails at the end if one of them could not be answered."""
    failed = 0
    for answer in lines:
        failed += "error" in answer
        show_json(answer, indent=None)
    if failed:
        raise click.ClickException(f"{failed:,} {what} could not be answered; their lines hold the reason")


def show_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print a table: drawn on a terminal, with the title above it, else plain lines in columns."""
    if not on_terminal():
        _show_plain(columns, [[column.name for column in columns], *rows])
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if title:
        heading(title)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.name, justify="right" if column.right else "left", overflow="fold")
    for cells in rows:
        table.add_row(*(escape(visible(cell)) for cell in cells))
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
        click.echo("  ".join(aligned).rstrip().translate(_HALVES))


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


def visible(text: str) -> str:
    """The text with its control characters written out, so that none acts on a terminal."""
    return text.translate(_CONTROL)


def called(item: Hashable, items: Vocabulary, *, longest: int = LONGEST_NAME) -> str:
    """What a person calls an item, cut to a length that fits into a table."""
    name = visible(" ".join(items.name(item).split()))
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"


def listed(basket: Iterable[Hashable], items: Vocabulary) -> str:
    """The names of several items in one line."""
    return ", ".join(called(item, items) for item in basket)


def flag(option: str) -> str:
    """An option, or the argument of that name, as it is written on the command line."""
    return f"--{option.replace('_', '-')}"


def written(option: str, value: Any) -> str:
    """An option with its value, as a person would type it."""
    if isinstance(value, bool):
        return flag(option if value else f"no_{option}")
    return f"{flag(option)} {shlex.quote(str(value))}"


# -- The rest ----------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Tell people something on standard error, which is not part of the result."""
    click.echo(text.translate(_BUT_NEW_LINES), err=True)


@contextmanager
def busy(text: str) -> Iterator[None]:
    """Show on standard error, if that is a terminal, that something is being done."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(visible(text))):
        yield


class NoteHandler(logging.Handler):
    """Sends the library's warnings to standard error, wherever that goes at the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        say(f"Note: {record.getMessage()}")


@contextmanager
def notes() -> Iterator[None]:
    """Inside the block, what the library logs or warns of appears as notes."""
    log, handler = logging.getLogger("contradpp"), NoteHandler(logging.WARNING)
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(f"Note: {message}")
            yield
    finally:
        log.removeHandler(handler)


def explain(error: BaseException) -> str:
    """The message for people: what was wrong, and what to do about it."""
    if isinstance(error, MemoryError):
        return (
            f"there is not enough memory ({error}): fewer --n-components, fewer items (--min-item-count) or less data"
        )
    if not isinstance(error, (ContradppError, OSError)):
        kind = type(error).__name__
        return f"{kind}: {error}\nThis should not happen: run it again with --debug, and report what it shows."
    named = isinstance(error, OSError) and error.filename and error.strerror
    said = f"{error.filename}: {error.strerror}" if named else str(error)  # type: ignore[union-attr]
    return "\n".join([said, *_hints(error)])


def _hints(error: BaseException) -> Iterator[str]:
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    codes = {cause.errno for cause in causes if isinstance(cause, OSError)}
    yield from dict.fromkeys(_HINTS[code] for code in codes if code in _HINTS)
    if isinstance(error, ModelFileError) and not codes and "upgrade" not in str(error):
        yield "A model file is what `contradpp fit DATA -o MODEL` writes."
    if parameters := getattr(error, "parameters", ()):
        yield f"On the command line: {' and '.join(map(flag, parameters))}."


# -- Files -------------------------------------------------------------------------------------------


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, with the reason and the way out."""
    folder = path.parent
    if path.is_dir():
        raise click.ClickException(f"{path} is a folder: name a file in it, such as {path / 'model.safetensors'}")
    if not folder.is_dir():
        raise click.ClickException(f"there is no folder {folder}: create it (mkdir -p {folder}) or name another")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.ClickException(
            f"cannot write into {folder.absolute()}: {error.strerror}. Choose a folder where you may write"
        ) from error


def check_replaceable(path: Path, command: str, ours: Callable[[Path], bool], *, force: bool) -> None:
    """Refuse a file that could not be written, or that holds something that the command did not write."""
    check_writable(path)
    empty = not path.exists() or path.stat().st_size == 0
    if not (force or empty or ours(path)):
        raise click.ClickException(
            f"{path} is there, and `{command}` did not write it: name another file, or add --force to replace it"
        )


def is_marked(path: Path, mark: str) -> bool:
    """Whether a file has the words by which one of our commands signs."""
    return path.is_file() and mark.encode() in path.read_bytes()


def is_model(path: Path) -> bool:
    """Whether the header of a file says that it is a model of ours, and not a checkpoint."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            return bool(json.loads((file.metadata() or {})["contradpp"])["model"] != KIND)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return False


def save_model(model: Any, path: Path) -> None:
    """Save a model; if its place fails it, keep it in the folder for temporary files and say so in the error."""
    try:
        model.save(path)
    except ModelFileError as error:
        rescue = Path(tempfile.gettempdir()) / f"rescued-{secrets.token_hex(4)}-{path.name}"
        try:
            model.save(rescue)
        except ModelFileError:
            raise error from error.__cause__
        raise ModelFileError(f"{error}. The model was kept as {rescue}") from error.__cause__
