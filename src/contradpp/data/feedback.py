"""The feedback log: accepted and rejected sets, one JSON line each, written durably and read back for learning."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from contradpp.errors import DataError

log = logging.getLogger("contradpp")

Outcome = Literal["accepted", "rejected"]
VERSION = 1


class Feedback(NamedTuple):
    """What people thought of sets: `positives` for `fit`, `negatives` for its argument of that name.

    Attributes
    ----------
    positives, negatives : list of lists
        Accepted and rejected sets, in the order in which they came.
    damaged : int
        Lines that could not be read: where a writer was interrupted, or others wrote to the file.
    """

    positives: list[list[Hashable]]
    negatives: list[list[Hashable]]
    damaged: int


def append_feedback(
    path: str | os.PathLike[str], outcome: Outcome, items: Iterable[Hashable], **facts: str | int | float | None
) -> None:
    """Add one event to the log and return when it is on the disk, or raise `OSError` and leave the log as it was.

    What `read_feedback` would call damaged is refused with `DataError`. Writers of several processes take turns by a
    lock on the file.

    Parameters
    ----------
    outcome : {"accepted", "rejected"}
    items : iterable of str or int
        The whole set: the basket and what was suggested for it.
    **facts
        More to note, such as `id`: of several events with one id, `read_feedback` counts the first.
    """
    event: dict[str, Any] = {"v": VERSION, "outcome": outcome, "set": list(items)}
    event |= {name: value for name, value in facts.items() if value is not None}
    try:
        line = (json.dumps(event, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"this event cannot be kept in a feedback log: {error}") from None
    if _event(line) is None:  # what could not be read back is not written
        raise DataError(
            "an event is 'accepted' or 'rejected', has at least one item, and only items that are strings or integers"
        )
    is_new = not os.path.exists(path)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with _locked(handle):
            _append_line(handle, line)
    finally:
        os.close(handle)
    if is_new:
        _sync_folder(Path(path).parent)


def read_feedback(path: str | os.PathLike[str]) -> Feedback:
    """The sets of a feedback log; a line that an interrupted writer left unfinished is skipped with a warning.

    Examples
    --------
    >>> import tempfile
    >>> log = tempfile.mktemp()
    >>> append_feedback(log, "accepted", ["tea", "milk"])
    >>> read_feedback(log).positives
    [['tea', 'milk']]
    """
    sets: dict[str, list[list[Hashable]]] = {"accepted": [], "rejected": []}
    seen: set[Hashable] = set()
    damaged: list[int] = []
    for number, line in _lines(path):
        event = _event(line)
        if event is None:
            damaged.append(number)
        elif event.get("v", VERSION) > VERSION:
            raise DataError(f"{os.fspath(path)}, line {number}: written by a newer contradpp; upgrade to read it")
        elif (key := event.get("id")) is None or key not in seen:
            seen.add(key)
            sets[event["outcome"]].append(event["set"])
    if damaged:
        shown = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")
        log.warning("%s: skipped %s damaged lines of feedback (%s)", os.fspath(path), len(damaged), shown)
    return Feedback(sets["accepted"], sets["rejected"], len(damaged))


def _append_line(handle: int, line: bytes) -> None:
    """Write the line after a whole one, to the disk; after a failure the file is as long as before."""
    before = os.fstat(handle).st_size
    torn = before > 0 and os.pread(handle, 1, before - 1) != b"\n"
    rest = memoryview(b"\n" + line if torn else line)
    try:
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    except OSError:
        if os.fstat(handle).st_size > before:
            os.ftruncate(handle, before)
        raise


@contextmanager
def _locked(handle: int) -> Iterator[None]:
    """An exclusive lock on an open file, where the system has such locks."""
    try:
        import fcntl
    except ImportError:  # Windows: one worker only
        yield
        return
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


def _sync_folder(folder: Path) -> None:
    """Make a new file's name as durable as its contents; not every system lets a folder be opened for that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    try:
        with open(path, "rb") as file:
            yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    except OSError as error:
        raise DataError(f"cannot read the feedback log {os.fspath(path)}: {error.strerror or error}") from error


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line, None if it is not one."""
    try:
        event: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(event, dict) and event.get("outcome") in ("accepted", "rejected")
    if not whole or type(event.get("v", VERSION)) is not int or not isinstance(event.get("id"), (str, int, type(None))):
        return None
    items = event.get("set")
    if not isinstance(items, list) or not items or not all(type(item) in (str, int) for item in items):
        return None
    return dict(event)
