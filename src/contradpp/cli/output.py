"""Output of the commands: results on standard output, everything else on standard error.

Nothing is decorated in a pipe. Files to write are checked before the work begins, and replaced only
after it has succeeded.
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
from typing import Any

import click

from contradpp._types import Values
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import ContradppError, ModelFileError
from contradpp.learn.checkpoints import KIND

MAX_NAME = 42
MAX_TEXT_WIDTH = 120
_PLACE = "choose another place, or change the permissions of this one."
_HINTS = {
    errno.ENOSPC: "The disk is full: free some space, or write to another folder.",
    errno.EDQUOT: "Your disk quota is used up: free some space, or write to another folder.",
    errno.EACCES: f"You lack the permission: {_PLACE}",
    errno.EPERM: f"You lack the permission: {_PLACE}",
    errno.EROFS: "That file system is read-only: choose another place.",
}
# Control characters as JSON writes them: in an item's id they could move the cursor of a terminal.
# Surrogates (from 0xD800) cannot be written as UTF-8, and `json` escapes only what is below 0x7F.
_CODES = (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))
_CONTROL = {code: f"\\u{code:04x}" for code in _CODES}
_SURROGATES = {code: text for code, text in _CONTROL.items() if code >= 0xD800}
_NOT_ESCAPED_BY_JSON = {code: text for code, text in _CONTROL.items() if code >= 0x7F}
_NOT_NEW_LINES = {code: text for code, text in _CONTROL.items() if chr(code) != "\n"}

json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of text."
)


# -- Results ---------------------------------------------------------------------------------------


def show_json(value: object, *, indent: int | None = 1) -> None:
    """Print a value as one JSON document, on one line where `indent` is None."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    click.echo(text.translate(_NOT_ESCAPED_BY_JSON))


def show_answers(lines: Iterable[Values], what: str = "baskets") -> None:
    """Print a line of JSON for every query; fail at the end if any could not be answered."""
    failed = 0
    for answer in lines:
        failed += "error" in answer
        show_json(answer, indent=None)
    if failed:
        raise click.ClickException(
            f"{failed:,} {what} could not be answered; their lines give the reason"
        )


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print a table: with rules and a title on a terminal, as aligned plain text elsewhere.

    A column whose name begins with ">" is aligned on the right.
    """
    names = [column.removeprefix(">") for column in columns]
    if not on_terminal():
        lines = [names, *rows]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        sides = [
            "<" if name == column else ">" for name, column in zip(names, columns, strict=True)
        ]
        forms = [f"{side}{width}" for side, width in zip(sides, widths, strict=True)]
        for cells in lines:
            aligned = [format(cell, form) for cell, form in zip(cells, forms, strict=True)]
            click.echo("  ".join(aligned).rstrip().translate(_SURROGATES))
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if title:
        heading(title)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, column in zip(names, columns, strict=True):
        table.add_column(name, justify="left" if name == column else "right", overflow="fold")
    for cells in rows:
        table.add_row(*(escape(visible(cell)) for cell in cells))
    Console().print(table)


def on_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def heading(text: str) -> None:
    """Print a heading."""
    click.echo("\n" + click.style(text, bold=True))


def paragraph(text: str, *, label: str = "", bold: bool = False) -> None:
    """Print a text after its label, wrapped on a terminal and on one line elsewhere."""
    content = label + text
    if on_terminal():
        width = min(shutil.get_terminal_size().columns, MAX_TEXT_WIDTH)
        content = textwrap.fill(content, width, subsequent_indent=" " * len(label))
    click.echo(click.style(content, bold=True) if bold else content)


def visible(text: str) -> str:
    """Return the text with its control characters escaped."""
    return text.translate(_CONTROL)


def display_name(item: Hashable, items: Vocabulary) -> str:
    """Return an item's readable name, cut to a length that fits into a table."""
    name = visible(" ".join(items.name(item).split()))
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1].rstrip() + "…"


def display_names(basket: Iterable[Hashable], items: Vocabulary) -> str:
    """Return the readable names of several items, separated by commas."""
    return ", ".join(display_name(item, items) for item in basket)


def flag(name: str) -> str:
    """Return the command-line option of a parameter."""
    return f"--{name.replace('_', '-')}"


def flag_with_value(name: str, value: object) -> str:
    """Return the command-line option of a parameter with its value, as a person would type it."""
    if isinstance(value, bool):
        return flag(name if value else f"no_{name}")
    return f"{flag(name)} {shlex.quote(str(value))}"


# -- Messages --------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print a message on standard error."""
    click.echo(text.translate(_NOT_NEW_LINES), err=True)


@contextmanager
def busy(text: str) -> Iterator[None]:
    """Show what is being done, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(visible(text))):
        yield


def program() -> str:
    """Return the words that call this program from here: its path where its name is not enough."""
    own = Path(sys.executable).with_name("contradpp")
    found = shutil.which("contradpp")
    if not own.exists():
        return "contradpp" if found else f"{shlex.quote(sys.executable)} -m contradpp"
    if found is not None and Path(found).samefile(own):
        return "contradpp"
    here = Path.cwd()
    return shlex.quote(str(own.relative_to(here) if own.is_relative_to(here) else own))


def verbosity() -> int:
    """Return `verbose` for models that learn within `busy`, whose spinner a bar would disturb."""
    return int(not sys.stderr.isatty())


class NoteHandler(logging.Handler):
    """A log handler that prints records as notes on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"Note: {record.getMessage()}")


@contextmanager
def notes() -> Iterator[None]:
    """Print the warnings and log records of the library as notes."""
    log = logging.getLogger("contradpp")
    handler = NoteHandler(logging.WARNING)
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(f"Note: {message}")
            yield
    finally:
        log.removeHandler(handler)


def error_message(error: BaseException) -> str:
    """Return a message that says what was wrong and what to do about it."""
    if isinstance(error, MemoryError):
        return (
            f"there is not enough memory ({error}): use fewer --n-components, fewer items "
            "(--min-item-count) or less data"
        )
    if not isinstance(error, (ContradppError, OSError)):
        return (
            f"{type(error).__name__}: {error}\n"
            "This should not happen: run the command again with --debug, and report the output."
        )
    message = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        message = f"{error.filename}: {error.strerror}"
    return "\n".join([message, *_hints(error)])


def _hints(error: BaseException) -> Iterator[str]:
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    codes = {cause.errno for cause in causes if isinstance(cause, OSError)}
    yield from dict.fromkeys(_HINTS[code] for code in codes if code in _HINTS)
    if isinstance(error, ModelFileError) and not codes and "upgrade" not in str(error):
        yield "`contradpp fit DATA -o MODEL` writes a model file."
    if parameters := getattr(error, "parameters", ()):
        yield f"On the command line: {' and '.join(map(flag, parameters))}."


# -- Files -----------------------------------------------------------------------------------------


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, with the reason and what to do."""
    folder = path.parent
    if path.is_dir():
        raise click.ClickException(
            f"{path} is a folder: name a file in it, such as {path / 'model.safetensors'}"
        )
    if not folder.is_dir():
        raise click.ClickException(
            f"there is no folder {folder}: create it (mkdir -p {folder}) or name another"
        )
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        place = folder.absolute()
        raise click.ClickException(
            f"cannot write into {place}: {error.strerror}. Choose a folder where you may write"
        ) from error


def check_replaceable(
    path: Path, command: str, is_ours: Callable[[Path], bool], *, force: bool
) -> None:
    """Refuse a file that cannot be written, or that the command did not write."""
    check_writable(path)
    empty = not path.exists() or path.stat().st_size == 0
    if not (force or empty or is_ours(path)):
        raise click.ClickException(
            f"{path} exists, and `{command}` did not write it: name another file, or add --force "
            "to replace it"
        )


def is_marked(path: Path, mark: str) -> bool:
    """Return whether a file holds the words with which a command marks its files."""
    return path.is_file() and mark.encode() in path.read_bytes()


def is_model(path: Path) -> bool:
    """Return whether a file is a model of ours, and not a checkpoint."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            return bool(json.loads((file.metadata() or {})["contradpp"])["model"] != KIND)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return False


def save_model(model: Any, path: Path, **options: Any) -> None:
    """Save a model; if that fails, save it in the folder for temporary files and name the file."""
    try:
        model.save(path, **options)
    except ModelFileError as error:
        rescue = Path(tempfile.gettempdir()) / f"rescued-{secrets.token_hex(4)}-{path.name}"
        try:
            model.save(rescue, **options)
        except ModelFileError:
            raise error from error.__cause__
        raise ModelFileError(f"{error}. The model was saved as {rescue}") from error.__cause__
