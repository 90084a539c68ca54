"""The feedback log: what was shown, accepted and rejected, a JSON line each, written durably and read for learning."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from contradpp.data.baskets import Baskets
from contradpp.errors import DataError, ParameterError

log = logging.getLogger("contradpp")

Outcome = Literal["accepted", "rejected"]
VERSION = 2  # of the newest kind of event; 1 has accepted and rejected sets only
PathLike = str | os.PathLike[str]
Fact = str | int | float | None


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
    path: PathLike, outcome: Outcome, items: Iterable[Hashable], *, rotate: int | None = None, **facts: Fact
) -> None:
    """Add one event to the log and return when it is on the disk, or raise `OSError` and leave the log as it was.

    What `read_feedback` would call damaged is refused with `DataError`. Writers of several processes take turns by a
    lock on the file.

    Parameters
    ----------
    outcome : {"accepted", "rejected"}
    items : iterable of str or int
        The whole set: the basket and what was suggested for it.
    rotate : int, optional
        The bytes from which the log is set aside as `path.1`, `path.2`, ... and a new one is begun.
    **facts
        More to note, such as `id`: of several events with one id, readers count the first; and `judged`, how many of
        the items, the last ones, were suggested.
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
    """Add to the log what was shown for a basket, in which places, and what of it was taken; see `append_feedback`.

    Parameters
    ----------
    basket, shown, taken : iterables of str or int
        What was taken must be among what was shown, and what was shown must not be in the basket.
    positions : iterable of int, optional
        The place of every shown item; 0, 1, 2, ... if left out.
    """
    basket, shown, taken = list(basket), list(shown), list(taken)
    places = list(range(len(shown))) if positions is None else [int(place) for place in positions]
    if problem := _problem(basket, shown, taken, places):
        raise ParameterError(problem)
    event = {"v": 2, "outcome": "shown", "basket": basket, "shown": shown, "positions": places, "taken": taken}
    _append(path, event | facts, rotate)


def read_feedback(path: PathLike) -> Feedback:
    """The sets of a feedback log; a line that an interrupted writer left unfinished is skipped with a warning.

    Of an impression the basket with what was taken is accepted, and the basket with each refused item rejected.

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
        basket, taken = event["basket"], event["taken"]
        if taken:
            sets["accepted"].append([*basket, *taken])
        sets["rejected"] += [[*basket, item] for item in event["shown"] if item not in taken]
    return Feedback(sets["accepted"], sets["rejected"], damaged)


def read_choices(path: PathLike, *, taken: bool = False) -> Baskets:
    """What was taken of what was shown, as `Baskets` with `offered` sets, for `fit` and `partial_fit`.

    The basket counts as chosen with what was taken. Of an accepted set it is not known what else was shown; a rejected
    one says that only the rest of it was chosen, if the log has how many items were `judged`.

    Parameters
    ----------
    taken : bool
        Only those of which something was taken.

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
    """The parts of a log, the oldest first: `path.1`, `path.2`, ..., and the one that is being written."""
    whole = Path(path)
    parts = [part for _, part in sorted(_parts(whole).items())]
    return [*parts, whole] if whole.exists() or not parts else parts


def _parts(path: Path) -> dict[int, Path]:
    """The parts of a log that were set aside, by their numbers."""
    found = {part.name.rpartition(".")[2]: part for part in path.parent.glob(f"{path.name}.*")}
    return {int(number): part for number, part in found.items() if number.isdecimal()}


def _problem(basket: list[Any], shown: list[Any], taken: list[Any], places: list[Any]) -> str | None:
    """What is wrong with an impression, None if nothing is."""
    if not all(type(item) in (str, int) for item in (*basket, *shown, *taken)):
        return "items of the feedback log are strings or integers"
    if not shown or len(set(shown)) < len(shown) or set(shown) & set(basket):
        return "what was shown must be one or more items, each once, and none of the basket"
    if not set(taken) <= set(shown) or len(set(taken)) < len(taken):
        return "what was taken must be among what was shown, each item once"
    if len(places) != len(shown) or len(set(places)) < len(places) or any(type(p) is not int or p < 0 for p in places):
        return "positions must be as many different numbers from 0 as items were shown"
    return None


def _events(path: PathLike) -> tuple[list[dict[str, Any]], int]:
    """The events of all parts of a log, each id once, and how many lines were damaged."""
    found: list[dict[str, Any]] = []
    seen: set[Hashable] = set()
    n_damaged = 0
    for part in log_files(path):
        damaged: list[int] = []
        for number, line in _lines(part):
            event = _event(line)
            if event is None:
                damaged.append(number)
            elif event.get("v", 1) > VERSION:
                raise DataError(f"{part}, line {number}: written by a newer contradpp; upgrade to read it")
            elif (key := event.get("id")) is None or key not in seen:
                seen.add(key)
                found.append(event)
        if damaged:
            shown = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")
            log.warning("%s: skipped %s damaged lines of feedback (%s)", part, len(damaged), shown)
        n_damaged += len(damaged)
    return found, n_damaged


def _append(path: PathLike, event: dict[str, Any], rotate: int | None) -> None:
    import fcntl  # not on Windows, where logs can be read but not written

    known = {name: value for name, value in event.items() if value is not None}
    try:
        line = (json.dumps(known, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"this event cannot be kept in a feedback log: {error}") from None
    if _event(line) is None:  # what could not be read back is not written
        raise DataError(
            "an event is 'accepted' or 'rejected', has at least one item, and only items that are strings or integers"
        )
    while True:
        is_new = not os.path.exists(path)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_at(handle, path):  # another writer has set it aside while we waited
                continue
            _append_line(handle, line)
            if rotate is not None and os.fstat(handle).st_size >= rotate:
                _set_aside(Path(path))
        finally:
            os.close(handle)  # which gives up the lock
        if is_new:
            _sync_folder(Path(path).parent)
        return


def _is_at(handle: int, path: PathLike) -> bool:
    """Whether an open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _set_aside(path: Path) -> None:
    """Give the log the next free number; whoever holds its lock does so."""
    try:
        path.rename(path.with_name(f"{path.name}.{max(_parts(path), default=0) + 1}"))
        path.touch(0o600)
    except OSError as error:  # the event is safe: the log merely grows on
        log.warning("%s could not be set aside: %s", path, error)
    _sync_folder(path.parent)


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
    if not isinstance(event, dict) or type(event.get("v", 1)) is not int:
        return None
    if not isinstance(event.get("id"), (str, int, type(None))):
        return None
    if event.get("v", 1) > VERSION:
        return dict(event)  # the reader says that it cannot read it
    if event.get("outcome") == "shown":
        parts = [event.get(name) for name in ("basket", "shown", "taken", "positions")]
        return dict(event) if all(isinstance(part, list) for part in parts) and not _problem(*parts) else None  # type: ignore[arg-type]
    items, judged = event.get("set"), event.get("judged")
    if event.get("outcome") not in ("accepted", "rejected") or not isinstance(items, list) or not items:
        return None
    if judged is not None and (type(judged) is not int or not 0 < judged <= len(items)):
        return None
    return dict(event) if all(type(item) in (str, int) for item in items) else None
