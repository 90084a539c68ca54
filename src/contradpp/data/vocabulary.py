"""The vocabulary: which item of the user's belongs to which integer code, and back."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp.errors import DataError, ParameterError, UnknownItemError

logger = logging.getLogger("contradpp")

IntArray = NDArray[np.int32]
Labels = Mapping[Hashable, str]
LONGEST_NUMBER = 4000  # digits; Python neither reads nor writes much longer ones
_NUMBER = re.compile(f"-?[0-9]{{1,{LONGEST_NUMBER}}}")


def plain(item: Any) -> Hashable:
    """The item as a plain Python value: NumPy scalars become int, float or str."""
    if isinstance(item, np.generic) and not isinstance(item, (np.datetime64, np.timedelta64)):
        item = item.item()
    try:
        hash(item)
    except TypeError:
        raise DataError(f"an item must be hashable (a string, an integer, ...), got {item!r}") from None
    return item  # type: ignore[no-any-return]


def unusable_ids(ids: Collection[Hashable]) -> list[Hashable]:
    """Those that are missing (None, NaN), or that a model file could not hold.

    An id is a string or a number, or a tuple of those.
    """
    if set(map(type, ids)) <= {int, str}:
        return []
    return [item for item in ids if item is None or not _can_be_saved(item)]


def _can_be_saved(item: Hashable) -> bool:
    if isinstance(item, tuple):
        return all(map(_can_be_saved, item))
    return item is None or isinstance(item, (str, int)) or (isinstance(item, float) and item == item)


class Vocabulary(Sequence[Hashable]):
    """An immutable sequence of distinct item ids; the position of an id is its code.

    Parameters
    ----------
    ids : iterable of hashable
        The user's ids in the order of their codes. A `range` is kept as it is, which costs no memory.
    names : mapping of id to str, optional
        What a person calls the items, where it differs from the id.
    categories : mapping of id to str, optional
        The shelf, aisle or kind that the items belong to.

    Examples
    --------
    >>> items = Vocabulary(["tea", "milk"])
    >>> items[1], items.code("tea"), "bread" in items
    ('milk', 0, False)
    """

    def __init__(self, ids: Iterable[Any], *, names: Labels | None = None, categories: Labels | None = None) -> None:
        self._ids: Sequence[Hashable] = ids if isinstance(ids, range) else tuple(map(plain, ids))
        self._names = self._of_ours(names)
        self._categories = self._of_ours(categories)
        if not isinstance(self._ids, range) and len(self._codes) != len(self._ids):
            seen: set[Hashable] = set()
            twice = next(item for item in self._ids if item in seen or seen.add(item))  # type: ignore[func-returns-value]
            raise DataError(f"item ids must be distinct, but {twice!r} occurs twice")

    def _of_ours(self, labels: Labels | None) -> dict[Hashable, str]:
        return {item: labels[item] for item in self._ids if item in labels} if labels else {}

    @cached_property
    def _codes(self) -> dict[Hashable, int]:
        return {item: code for code, item in enumerate(self._ids)}

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, code: int) -> Hashable: ...
    @overload
    def __getitem__(self, code: slice) -> Sequence[Hashable]: ...
    def __getitem__(self, code: int | slice) -> Hashable | Sequence[Hashable]:
        return self._ids[code]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._ids)

    def __contains__(self, item: object) -> bool:
        try:
            return item in (self._ids if isinstance(self._ids, range) else self._codes)
        except TypeError:  # an unhashable thing is no item
            return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        if len(self) != len(other):
            return False
        return self._ids == other._ids or tuple(self._ids) == tuple(other._ids)

    def __hash__(self) -> int:
        return hash((len(self), *self._ids[:8]))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self._ids[:4]))
        return f"Vocabulary({len(self):,} items: {shown}{', ...' if len(self) > 4 else ''})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.take(range(len(self))), dtype=dtype)

    @property
    def names(self) -> dict[Hashable, str]:
        """The readable names, by id, of the items that have one."""
        return dict(self._names)

    def name(self, item: Hashable) -> str:
        """What a person calls the item: its name if it has one, else the id itself."""
        return self._names.get(item) or str(item)

    def with_names(self, names: Labels) -> Vocabulary:
        """The same items with these readable names."""
        return Vocabulary(self._ids, names=names, categories=self._categories)

    @property
    def categories(self) -> dict[Hashable, str]:
        """The categories, by id, of the items that have one."""
        return dict(self._categories)

    def with_categories(self, categories: Labels) -> Vocabulary:
        """The same items with these categories."""
        return Vocabulary(self._ids, names=self._names, categories=categories)

    def subset(self, codes: Iterable[int]) -> Vocabulary:
        """The items of these codes, with their names and categories."""
        return Vocabulary([self._ids[c] for c in codes], names=self._names, categories=self._categories)

    def by_name(self, counts: ArrayLike | None = None) -> dict[str, list[Hashable]]:
        """Items by what a person calls them, in lower case; of several with one name the most sold comes first.

        Parameters
        ----------
        counts : array of length n_items, optional
            How often each item was sold; without it they stay in the order of their codes.
        """
        order = np.arange(len(self)) if counts is None else np.argsort(-np.asarray(counts), kind="stable")
        found: dict[str, list[Hashable]] = {}
        for code in order.tolist():
            found.setdefault(self.name(self._ids[code]).casefold(), []).append(self._ids[code])
        return found

    def code(self, item: Any) -> int:
        """The code of one item; `UnknownItemError` if it is not in the vocabulary."""
        known = plain(item)
        code = self._find(known)
        if code is None:
            raise unknown_items([known], len(self))
        return code

    def _find(self, item: Hashable) -> int | None:
        """The code of a plain item, None if there is no such item."""
        if isinstance(self._ids, range):  # by arithmetic; `range.index` searches unless it is given an int
            return self._ids.index(int(item)) if item in self._ids else None  # type: ignore[call-overload]
        return self._codes.get(item)

    def codes(self, items: Iterable[Any], *, unknown: str = "error") -> IntArray:
        """The codes of several items, duplicates removed, in the order given.

        Parameters
        ----------
        items : iterable of hashable
        unknown : {"error", "ignore"}
            What to do with items that are not in the vocabulary: raise `UnknownItemError`, or leave them out.
        """
        check_unknown(unknown)
        found = [(item, self._find(item)) for item in map(plain, items)]
        missing = [item for item, code in found if code is None]
        if missing and unknown == "error":
            raise unknown_items(missing, len(self))
        return np.array(list(dict.fromkeys(code for _, code in found if code is not None)), dtype=np.int32)

    def find(self, items: ArrayLike) -> NDArray[np.int64]:
        """The codes of an array of ids, one for each, −1 for those that are not in the vocabulary."""
        ids = np.asarray(items)
        if isinstance(self._ids, range) and self._ids.step == 1 and ids.dtype.kind in "iu":
            codes = ids.astype(np.int64) - self._ids.start
            codes[(codes < 0) | (codes >= len(self._ids))] = -1
            return codes
        find = self._find if isinstance(self._ids, range) else self._codes.get
        return np.array([-1 if code is None else code for code in map(find, ids.tolist())], dtype=np.int64)

    def take(self, codes: Iterable[int]) -> NDArray[Any]:
        """The ids of these codes as an array: of integers or strings if all are, else of objects."""
        return id_array([self._ids[code] for code in codes])

    def merge(self, other: Vocabulary) -> Vocabulary:
        """These items, then those of `other` that are new, with the names and categories of both."""
        known = other._names.keys() <= self._names.keys() and other._categories.keys() <= self._categories.keys()
        if len(other) == 0 or (known and self == other):
            return self
        return Vocabulary(
            dict.fromkeys([*self._ids, *other._ids]),
            names={**other._names, **self._names},
            categories={**other._categories, **self._categories},
        )


def id_array(ids: Sequence[Any]) -> NDArray[Any]:
    """Plain ids as an array: of integers or strings if all are, else of objects."""
    kinds = {type(item) for item in ids}
    if kinds == {int}:
        try:
            return np.array(ids, dtype=np.int64)
        except OverflowError:
            pass
    if kinds == {str} and not any(item.endswith("\0") for item in ids):
        return np.array(ids, dtype=np.str_)
    return np.fromiter(ids, dtype=object, count=len(ids))  # np.array would unpack tuples


def as_vocabulary(items: Iterable[Any]) -> Vocabulary:
    """`items` itself if it is a vocabulary, else a vocabulary of these ids."""
    return items if isinstance(items, Vocabulary) else Vocabulary(items)


class Lookup:
    """Finds the items that words mean, the same way in Python, on the command line and over HTTP.

    A word is an id; or its text where the id is a number (or the number where it is a text), or neither; or what people
    call the item, in any case. Of several items with one name it means the most sold by `counts`, and the log says so
    once.
    """

    def __init__(self, items: Vocabulary, counts: ArrayLike | None = None) -> None:
        self.items = items
        self._counts = counts
        self._told: set[str] = set()

    @cached_property
    def named(self) -> dict[str, list[Hashable]]:
        """Items by what they are called, in lower case, the most sold first."""
        return self.items.by_name(self._counts)

    @cached_property
    def _texts(self) -> dict[str, Hashable]:
        """Ids that are neither texts nor integers, by their text: JSON and the command line cannot name them else."""
        return {str(item): item for item in self.items if type(item) not in (str, int)}

    def find(self, word: Any) -> Hashable | None:
        """The item that a word means, None if there is none."""
        if word in self.items:
            return self.items[self.items.code(word)]
        if isinstance(word, int) and abs(word) >= 10**LONGEST_NUMBER:
            return None
        text = str(word).strip()
        if text in self.items:
            return text
        if _NUMBER.fullmatch(text) and int(text) in self.items:
            return int(text)
        if text in self._texts:
            return self._texts[text]
        found = self.named.get(text.casefold(), [])
        if len(found) > 1 and text not in self._told:
            self._told.add(text)
            logger.warning("%d items are called %r: the most sold of them, %r, is taken", len(found), text, found[0])
        return found[0] if found else None


def check_unknown(unknown: str) -> None:
    """Raise `ParameterError` unless this is a word for what to do with unknown items."""
    if unknown not in ("error", "ignore"):
        raise ParameterError(f"unknown must be 'error' or 'ignore', got {unknown!r}")


def unknown_items(items: Sequence[Any], n_known: int) -> UnknownItemError:
    """The error for items that are not in the vocabulary: it names a few and says what to do."""
    shown = ", ".join(f"{item!r:.200}" for item in items[:5]) + (", ..." if len(items) > 5 else "")
    many = f"{len(items)} items are" if len(items) > 1 else "an item is"
    return UnknownItemError(
        f"{many} not among the {n_known:,} known items: {shown} (pass unknown='ignore' to leave them out)"
    )
