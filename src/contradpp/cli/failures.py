"""What the command line says when something fails: one or two lines in its own words, with the way out."""

from __future__ import annotations

import errno
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import click

from contradpp.errors import ContradppError, ModelFileError

_HINTS = {
    errno.ENOSPC: "The disk is full: free some space, or write to another folder.",
    errno.EDQUOT: "Your disk quota is used up: free some space, or write to another folder.",
    errno.EACCES: "You lack the permission: choose another place, or change the permissions of this one.",
    errno.EPERM: "You lack the permission: choose another place, or change the permissions of this one.",
    errno.EROFS: "That file system is read-only: choose another place.",
}
# Arguments of the Python interface, which messages name, and the options that stand for them.
_OPTIONS = {"n_components": "rank", "n_jobs": "jobs", "random_state": "seed", "N": "n"}
_ARGUMENT = re.compile(
    r"\b(basket|item|quantity|name|category|format|on_bad_row|returns|oversize|unknown|size|n_components)=('[^']*'|[\w.]+)?"
)


def explain(error: BaseException) -> str:
    """The message for people: what was wrong, and what to do about it."""
    if not isinstance(error, (ContradppError, OSError)):
        kind = type(error).__name__
        return f"{kind}: {error}\nThis should not happen: run it again with --debug, and report what it shows."
    named = isinstance(error, OSError) and error.filename and error.strerror
    said = f"{error.filename}: {error.strerror}" if named else str(error)  # type: ignore[union-attr]
    return "\n".join([in_options(said), *_hints(error)])


def in_options(message: str) -> str:
    """A message of the library in the words of the command line: `item='sku'` becomes `--item 'sku'`."""

    def option(found: re.Match[str]) -> str:
        name = _OPTIONS.get(found[1], found[1])
        return f"--{name.replace('_', '-')}" + (f" {found[2]}" if found[2] else "")

    return _ARGUMENT.sub(option, message).replace("n_components", "--rank")


def see_also(error: click.ClickException) -> str:
    """After wrong usage, a line that says where the right one is written."""
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return ""
    return f"\n`{error.ctx.command_path} --help` shows how it is used."


class EchoHandler(logging.Handler):
    """Sends the library's warnings to standard error, wherever that goes at the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        click.echo(f"Note: {in_options(record.getMessage())}", err=True)


@contextmanager
def notes() -> Iterator[None]:
    """Inside the block, what the library logs or warns of appears as notes."""
    log, handler = logging.getLogger("contradpp"), EchoHandler(logging.WARNING)
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: click.echo(f"Note: {message}", err=True)
            yield
    finally:
        log.removeHandler(handler)


def _hints(error: BaseException) -> Iterator[str]:
    codes = {cause.errno for cause in _causes(error) if isinstance(cause, OSError)}
    yield from dict.fromkeys(_HINTS[code] for code in codes if code in _HINTS)
    if isinstance(error, ModelFileError) and not codes and "upgrade" not in str(error):
        yield "A model file is what `contradpp fit DATA -o MODEL` writes."


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
