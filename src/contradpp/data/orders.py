"""Customers and times of baskets: reading them, and the history of each basket."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._types import Codes, Flags, Ints
from contradpp.data.sets import Sets, kept_entries, take_sets
from contradpp.data.vocabulary import Vocabulary, plain
from contradpp.errors import DataError, ParameterError

Times = NDArray[Any]  # (n,): datetime64[us] or float64; NaT or NaN where unknown

_GAP = re.compile(r"(\d+(?:\.\d+)?) ?(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)")
_SLASHED = re.compile(r"(\d{1,2})[/.](\d{1,2})[/.](\d{4})(?:[ ,T]+(\d{1,2}):(\d{2})(?::(\d{2}))?)?")


# -- Reading ---------------------------------------------------------------------------------------


def as_time(value: Any, *, day_first: bool | None = None) -> datetime | float | None:
    """Read a time: a number, an ISO 8601 date, or 31/12/2024 8:26; None if it is none of them.

    Times with a zone become UTC. `day_first` says how 1/2/2024 is meant; None takes either.
    """
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, (int, float, np.number)):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        text = re.sub(r" (?=[+-]\d{2}:?\d{2}$)| ?UTC$", "", value.strip())
        try:
            number = float(text)
            return number if np.isfinite(number) else None
        except ValueError:
            pass
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            return _slashed_time(text, day_first)
    if not isinstance(value, datetime) or value != value:
        return None
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def _slashed_time(text: str, day_first: bool | None) -> datetime | None:
    found = _SLASHED.fullmatch(text)
    if found is None:
        return None
    one, other, year, hour, minute, second = (int(part or 0) for part in found.groups())
    orders = (True, False) if day_first is None else (day_first,)
    for is_day_first in orders:
        day, month = (one, other) if is_day_first else (other, one)
        try:
            return datetime(year, month, day, hour, minute, second)
        except ValueError:
            continue
    return None


def read_times(values: Iterable[Any]) -> Times:
    """Return the times of values, None among them for unknown ones.

    A day is told from a month by the value whose day is above 12; `DataError` if there is none, or
    if dates and numbers are mixed.
    """
    values = list(values)
    times = [as_time(value) for value in values]
    wrong = [v for v, t in zip(values, times, strict=True) if t is None and not is_missing(v)]
    if wrong:
        raise DataError(f"{wrong[0]!r} is not a time")
    if any(isinstance(value, str) and _SLASHED.fullmatch(value.strip()) for value in values):
        readings = [[as_time(v, day_first=first) for v in values] for first in (True, False)]
        n_read = [sum(time is not None for time in reading) for reading in readings]
        if n_read[0] == n_read[1]:
            raise DataError(
                "it is not clear if 1/2/2024 is the first of February or January the second: "
                "write dates as 2024-02-01"
            )
        times = readings[int(np.argmax(n_read))]
    kinds = {type(time) for time in times if time is not None}
    if len(kinds) > 1:
        raise DataError("times are numbers in some places and dates in others")
    if kinds == {float}:
        return np.array([np.nan if time is None else time for time in times], dtype=np.float64)
    return np.array(times, dtype="datetime64[us]")


def is_missing(value: Any) -> bool:
    """Return True for None, NaN, NaT and blank text."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def as_customers(values: Iterable[Any], n: int) -> NDArray[np.object_]:
    """Return an id, or None, for each of n baskets."""
    ids = np.empty(n, dtype=object)
    values = list(values)
    if len(values) != n:
        raise DataError(f"there are {n:,} baskets but {len(values):,} customers")
    for number, value in enumerate(values):
        if is_missing(value):
            continue
        id_ = plain(value) if isinstance(value, Hashable) else None
        if isinstance(id_, float) and id_.is_integer():  # a column of integers with gaps
            id_ = int(id_)
        if not isinstance(id_, (str, int, float, tuple)):
            raise DataError(f"basket {number}: {value!r} cannot be the id of a customer")
        ids[number] = id_
    return ids


def as_times(values: Iterable[Any], n: int) -> Times:
    """Return the time of each of n baskets."""
    values = np.asarray(values)
    if values.shape != (n,):
        raise DataError(f"there are {n:,} baskets but {len(values):,} times")
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]")
    return read_times(values.tolist())


def joined(parts: Sequence[tuple[NDArray[Any] | None, int]]) -> NDArray[Any] | None:
    """Concatenate customers or times, or None and a number of baskets without."""
    kinds = {values.dtype.kind for values, _ in parts if values is not None}
    if len(kinds) > 1:
        raise DataError("the times of some baskets are numbers, of others dates")
    if not kinds:
        return None
    blank = {"O": None, "M": np.datetime64("NaT", "us")}.get(kinds.pop(), np.nan)
    return np.concatenate([np.full(n, blank) if values is None else values for values, n in parts])


# -- Histories -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Histories:
    """The earlier baskets of each of n queries, oldest first, without copies of them.

    The history of query q are the baskets `order[first[q]:last[q]]` of `sets`. As a sequence it
    returns lists of baskets in item ids.
    """

    sets: Sets
    items: Vocabulary
    order: Ints
    first: Ints  # (n,)
    last: Ints  # (n,)
    new_only: bool = False  # items of a history may not be recommended

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lengths(self) -> Ints:
        """The number of earlier baskets of each query."""
        return self.last - self.first

    def __getitem__(self, query: int) -> list[list[Hashable]]:
        baskets = self.baskets(range(len(self))[query])
        codes = np.split(baskets.indices, baskets.indptr[1:-1])
        return [[self.items[code] for code in part.tolist()] for part in codes][: baskets.count]

    def baskets(self, query: int) -> Sets:
        """Return the earlier baskets of one query, oldest first."""
        return take_sets(self.sets, self.order[self.first[query] : self.last[query]])

    @property
    def items_of(self) -> tuple[Ints, Codes]:
        """The query and the code of every item of every history."""
        parts = [
            self.sets.indices[:0],
            *(self.baskets(query).indices for query in range(len(self))),
        ]
        owners = np.repeat(np.arange(-1, len(self)), [len(part) for part in parts])
        return owners, np.concatenate(parts)

    @property
    def banned(self) -> tuple[Ints, Codes]:
        """The same of items that may not be recommended."""
        return self.items_of if self.new_only else self.take(np.empty(0, dtype=np.int64)).items_of

    def recode(self, items: Vocabulary) -> Histories:
        """Convert to the codes of another vocabulary, without the items that it lacks."""
        if self.items == items:
            return self
        codes = items.find(self.items).astype(np.int32)
        found = np.append(codes, np.int32(-1))[self.sets.indices]
        known = kept_entries(Sets(self.sets.indptr, found), found >= 0)
        return replace(self, sets=known, items=items)

    def take(self, which: Ints) -> Histories:
        """Select queries."""
        return replace(self, first=self.first[which], last=self.last[which])


class SetsWithHistory(Sets):
    """Sets that come with the history of each; whatever selects sets keeps them."""

    histories: Histories

    def __new__(cls, sets: Sets, histories: Histories) -> Self:
        self = super().__new__(cls, sets.indptr, sets.indices)
        self.histories = histories
        return self

    def carry(self, others: Sets, which: Ints) -> Sets:
        return SetsWithHistory(others, self.histories.take(which))


def order_by_customer(
    customers: NDArray[np.object_] | None, times: Times | None, n: int
) -> tuple[Ints, Ints, Ints]:
    """Return the baskets in the order of customers and times, and customer and place of each.

    Baskets of an unknown customer or time have the customer −1 and come first. Equal times keep
    their order.
    """
    codes: dict[Hashable, int] = {}
    ids = [] if customers is None else customers.tolist()
    of = np.full(n, -1)
    of[: len(ids)] = [-1 if id_ is None else codes.setdefault(id_, len(codes)) for id_ in ids]
    if times is not None:
        of[np.isnat(times) if times.dtype.kind == "M" else np.isnan(times)] = -1
    order = np.lexsort((np.arange(n) if times is None else times, of))
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    return order, of, place


def histories_of(
    sets: Sets, items: Vocabulary, ordering: tuple[Ints, Ints, Ints], which: Ints
) -> Histories:
    """Return the histories of these baskets, empty where customer or time are unknown."""
    order, of, place = ordering
    sorted_customers = of[order]
    starts = np.searchsorted(sorted_customers, of[which])
    last = place[which]
    return Histories(sets, items, order, np.where(of[which] < 0, last, starts), last)


def starts_of_sessions(times: Times, ordering: tuple[Ints, Ints, Ints], gap: str) -> Flags:
    """Flag, in that order, baskets that come more than a gap after the customer's last one."""
    order, of, _ = ordering
    seconds = times[order]
    if times.dtype.kind == "M":
        seconds = seconds.astype(np.int64) / 1e6
    owners = of[order]
    flags = np.ones(len(order), dtype=bool)
    flags[1:] = (owners[1:] != owners[:-1]) | (owners[1:] < 0)
    flags[1:] |= np.diff(seconds) > seconds_of(gap)
    return flags


def seconds_of(gap: str) -> float:
    """Read a length of time such as 30min, 2h, 1.5 d or 90s."""
    found = _GAP.fullmatch(str(gap).strip())
    if found is None:
        raise ParameterError(f"gap must be a time such as '30min', '2h' or '1d', got {gap!r}")
    return float(found[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}[found[2][0]]


def is_last(ordering: tuple[Ints, Ints, Ints], least: int) -> Flags:
    """Flag the last basket of each customer of at least `least` baskets."""
    order, of, place = ordering
    counts = np.bincount(of[of >= 0], minlength=1)
    in_order = of[order]
    ends = np.append(in_order[1:] != in_order[:-1], True)[: len(order)]
    flags: Flags = ends[place] & (of >= 0)
    flags[flags] = counts[of[flags]] >= least
    return flags
