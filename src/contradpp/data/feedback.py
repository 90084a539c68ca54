"""The feedback log: a JSON line for every set that was shown, accepted or rejected."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from contradpp.data.baskets import Baskets
from contradpp.errors import DataError, ParameterError

fcntl: Any = None
if os.name == "posix":
    import fcntl

log = logging.getLogger("contradpp")

Outcome = Literal["accepted", "rejected"]
VERSION = 2  # of the newest kind of event; 1 has accepted and rejected sets only
PathLike = str | os.PathLike[str]
Fact = str | int | float | None
Event = dict[str, Any]  # the fields of a JSON line
_IMPRESSION = ("basket", "shown", "taken", "positions")


class Feedback(NamedTuple):
    """Accepted and rejected sets: `positives` for `fit`, `negatives` for its argument.

    Attributes
    ----------
    positives, negatives : list of lists
        Accepted and rejected sets, in the order of the log.
    damaged : int
        The number of lines that could not be read.
    """

    positives: list[list[Hashable]]
    negatives: list[list[Hashable]]
    damaged: int


def append_feedback(
    path: PathLike,
    outcome: Outcome,
    items: Iterable[Hashable],
    *,
    rotate: int | None = None,
    **facts: Fact,
) -> None:
    """Append an event to the log, and return when it is on the disk.

    An `OSError` leaves the log as it was. Several processes may write: the file is locked.

    Parameters
    ----------
    path : str or path
    outcome : {"accepted", "rejected"}
    items : iterable of str or int
        The set: the basket and the items suggested for it.
    rotate : int, optional
        The size in bytes from which the log is renamed to `path.1`, `path.2`, ... and begun anew.
    **facts
        Further fields. Of several events with one `id`, readers count the first. `judged` is the
        number of items, at the end of the set, that were suggested.

    Raises
    ------
    DataError
        If the event could not be read back.
    """
    _append(path, {"v": 1, "outcome": outcome, "set": list(items)} | facts, rotate)


def append_impression(
    path: PathLike,
    basket: Iterable[Hashable],
    shown: Iterable[Hashable],
    taken: Iterable[Hashable] = (),
    *,
    positions: Iterable[int] | None = None,
    rotate: int | None = None,
    **facts: Fact,
) -> None:
    """Append to the log the items shown for a basket, and those taken of them.

    Parameters
    ----------
    path : str or path
    basket, shown, taken : iterables of str or int
        Taken items must be among the shown ones, and shown items must not be in the basket.
    positions : iterable of int, optional
        The position of every shown item; 0, 1, 2, ... if left out.
    rotate, **facts
        As in `append_feedback`.
    """
    shown = list(shown)
    event = {
        "v": 2,
        "outcome": "shown",
        "basket": list(basket),
        "shown": shown,
        "positions": list(range(len(shown)) if positions is None else map(int, positions)),
        "taken": list(taken),
    }
    if problem := _find_problem(event):
        raise ParameterError(problem)
    _append(path, event | facts, rotate)


def check_log(path: PathLike) -> None:
    """Raise `ParameterError` unless the log can be written; it is created if it is missing."""
    _check_locks()
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    except OSError as error:
        reason = error.strerror or error
        raise ParameterError(f"cannot write the feedback log {path}: {reason}") from error


def read_feedback(path: PathLike) -> Feedback:
    """Read the accepted and rejected sets of a feedback log; damaged lines are skipped.

    Of an impression, the basket with the taken items is accepted, and the basket with each refused
    item is rejected.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    Feedback

    Examples
    --------
    >>> import tempfile
    >>> log = tempfile.mktemp()
    >>> append_feedback(log, "accepted", ["tea", "milk"])
    >>> read_feedback(log).positives
    [['tea', 'milk']]
    """
    sets: dict[str, list[list[Hashable]]] = {"accepted": [], "rejected": []}
    events, damaged = _events(path)
    for event in events:
        if event["outcome"] != "shown":
            sets[event["outcome"]].append(event["set"])
            continue
        basket = event["basket"]
        if event["taken"]:
            sets["accepted"].append([*basket, *event["taken"]])
        refused = [item for item in event["shown"] if item not in event["taken"]]
        sets["rejected"] += [[*basket, item] for item in refused]
    return Feedback(sets["accepted"], sets["rejected"], damaged)


def read_choices(path: PathLike, *, taken: bool = False) -> Baskets:
    """Read the choices of a feedback log, for `fit` and `partial_fit`.

    The basket counts as chosen with the taken items. Nothing else is known to have been offered
    with an accepted set. Of a rejected set, the items before the `judged` ones were chosen.

    Parameters
    ----------
    path : str or path
    taken : bool
        True to read only impressions of which something was taken.

    Returns
    -------
    Baskets
        The chosen items, with the shown ones as `offered`.

    Examples
    --------
    >>> import tempfile
    >>> log = tempfile.mktemp()
    >>> append_impression(log, ["pasta"], ["sauce", "soap"], ["sauce"])
    >>> choices = read_choices(log)
    >>> list(choices), choices.offered.sizes.tolist()
    ([['pasta', 'sauce']], [3])
    """
    chosen: list[list[Hashable]] = []
    offered: list[list[Hashable]] = []
    for event in _events(path)[0]:
        if taken and not event.get("taken", event["outcome"] == "accepted"):
            continue
        if event["outcome"] == "shown":
            chosen.append([*event["basket"], *event["taken"]])
            offered.append([*event["basket"], *event["shown"]])
        elif event["outcome"] == "accepted":
            chosen.append(event["set"])
            offered.append([])
        elif event.get("judged"):
            chosen.append(event["set"][: -event["judged"]])
            offered.append(event["set"])
    return Baskets.from_lists(chosen, offered=offered)


def log_files(path: PathLike) -> list[Path]:
    """List the parts of a log, the oldest first: `path.1`, `path.2`, ..., and `path` itself."""
    current = Path(path)
    parts = [part for _, part in sorted(_rotated_parts(current).items())]
    return [*parts, current] if current.exists() or not parts else parts


def _rotated_parts(path: Path) -> dict[int, Path]:
    """Find the renamed parts of a log, by their numbers."""
    found = {part.name.rpartition(".")[2]: part for part in path.parent.glob(f"{path.name}.*")}
    return {int(number): part for number, part in found.items() if number.isdecimal()}


def _find_problem(event: Event) -> str | None:
    """Find what is wrong with an impression, None if nothing is."""
    basket, shown, taken, positions = (event[key] for key in _IMPRESSION)
    if not all(type(item) in (str, int) for item in (*basket, *shown, *taken)):
        return "items of the feedback log are strings or integers"
    if not shown or len(set(shown)) < len(shown) or set(shown) & set(basket):
        return "what was shown must be one or more items, each once, and none of the basket"
    if not set(taken) <= set(shown) or len(set(taken)) < len(taken):
        return "what was taken must be among what was shown, each item once"
    are_distinct = len(set(positions)) == len(positions) == len(shown)
    if not are_distinct or any(type(p) is not int or p < 0 for p in positions):
        return "positions must be as many different numbers from 0 as items were shown"
    return None


def _events(path: PathLike) -> tuple[list[Event], int]:
    """Read the events of all parts of a log, each id once, and count damaged lines."""
    found: list[Event] = []
    seen: set[Hashable] = set()
    n_damaged = 0
    for part in log_files(path):
        damaged: list[int] = []
        for number, line in _lines(part):
            event = _parse(line)
            if event is None:
                damaged.append(number)
            elif event.get("v", 1) > VERSION:
                raise DataError(
                    f"{part}, line {number}: written by a newer contradpp; upgrade to read it"
                )
            elif (key := event.get("id")) is None or key not in seen:
                seen.add(key)
                found.append(event)
        if damaged:
            shown = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")
            log.warning("%s: skipped %s damaged lines of feedback (%s)", part, len(damaged), shown)
        n_damaged += len(damaged)
    return found, n_damaged


def _check_locks() -> None:
    if fcntl is None:
        raise ParameterError("feedback logs can be written on Linux and macOS only")


def _append(path: PathLike, event: Event, rotate: int | None) -> None:
    _check_locks()
    known = {name: value for name, value in event.items() if value is not None}
    try:
        line = (json.dumps(known, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"this event cannot be stored in a feedback log: {error}") from None
    if _parse(line) is None:
        raise DataError(
            "an event is 'accepted' or 'rejected', has at least one item, "
            "and only items that are strings or integers"
        )
    while True:
        is_new = not os.path.exists(path)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_same_file(handle, path):  # another writer renamed it in the meantime
                continue
            _append_line(handle, line)
            if rotate is not None and os.fstat(handle).st_size >= rotate:
                _rotate(Path(path))
        finally:
            os.close(handle)  # also unlocks
        if is_new:
            _sync_folder(Path(path).parent)
        return


def _is_same_file(handle: int, path: PathLike) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _rotate(path: Path) -> None:
    """Rename the log to the next free number; the caller holds its lock."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        path.rename(path.with_name(f"{path.name}.{max(_rotated_parts(path), default=0) + 1}"))
        path.touch(0o600)
        path.chmod(mode)
    except OSError as error:  # the event is safe: the log merely grows on
        log.warning("%s could not be set aside: %s", path, error)
    _sync_folder(path.parent)


def _append_line(handle: int, line: bytes) -> None:
    """Append a line and flush it to the disk; a failure leaves the file as long as before."""
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


def _sync_folder(folder: Path) -> None:
    """Make a new file's name durable, if the system can open folders."""
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
        raise DataError(
            f"cannot read the feedback log {os.fspath(path)}: {error.strerror or error}"
        ) from error


def _parse(line: bytes) -> Event | None:
    """Parse a line; None if it is not an event."""
    try:
        event: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or type(event.get("v", 1)) is not int:
        return None
    if not isinstance(event.get("id"), (str, int, type(None))):
        return None
    if event.get("v", 1) > VERSION:
        return event  # the reader refuses its version
    if event.get("outcome") == "shown":
        is_complete = all(isinstance(event.get(key), list) for key in _IMPRESSION)
        return event if is_complete and _find_problem(event) is None else None
    items = event.get("set")
    judged = event.get("judged")
    if event.get("outcome") not in ("accepted", "rejected"):
        return None
    if not isinstance(items, list) or not items:
        return None
    if judged is not None and (type(judged) is not int or not 0 < judged <= len(items)):
        return None
    return event if all(type(item) in (str, int) for item in items) else None
