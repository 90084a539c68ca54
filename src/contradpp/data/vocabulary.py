"""Vocabularies: item ids and their integer codes, in both directions."""

from __future__ import annotations

import difflib
import itertools
import logging
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._types import Codes, Ints
from contradpp.errors import DataError, UnknownItemError, check_choice

logger = logging.getLogger("contradpp")

Labels = Mapping[Hashable, str]
MAX_DIGITS = 100  # a longer integer is no other item's text; to write one takes quadratic time
_MAX_INTEGER = 10**MAX_DIGITS
_NUMBER = re.compile(f"-?[0-9]{{1,{MAX_DIGITS}}}")


def plain(item: object) -> Hashable:
    """Convert an item to a plain Python value: NumPy scalars become int, float or str."""
    if isinstance(item, np.generic) and not isinstance(item, (np.datetime64, np.timedelta64)):
        item = item.item()
    try:
        hash(item)
    except TypeError:
        raise DataError(
            f"an item must be hashable (a string, an integer, ...), got {item!r}"
        ) from None
    return item


def unusable_ids(ids: Collection[Hashable]) -> list[Hashable]:
    """Select ids that are missing (None, NaN), or that a model file could not hold.

    An id is a string or a number, or a tuple of those.
    """
    if set(map(type, ids)) <= {int, str}:
        return []
    return [item for item in ids if item is None or not _is_storable(item)]


def _is_storable(item: Hashable) -> bool:
    if isinstance(item, tuple):
        return all(map(_is_storable, item))
    return item is None or (isinstance(item, (str, int, float)) and item == item)


class Vocabulary(Sequence[Hashable]):
    """An immutable sequence of distinct item ids; the position of an id is its code.

    Parameters
    ----------
    ids : iterable of hashable
        The ids in the order of their codes. A `range` takes no memory.
    names : mapping of id to str, optional
        Readable names, where they differ from the ids.
    categories : mapping of id to str, optional
        The aisles or kinds of the items.

    Examples
    --------
    >>> items = Vocabulary(["tea", "milk"])
    >>> items[1], items.code("tea"), "bread" in items
    ('milk', 0, False)
    """

    def __init__(
        self,
        ids: Iterable[Hashable],
        *,
        names: Labels | None = None,
        categories: Labels | None = None,
    ) -> None:
        self._ids: Sequence[Hashable] = ids if isinstance(ids, range) else tuple(map(plain, ids))
        self._names = self._select(names)
        self._categories = self._select(categories)
        if not isinstance(self._ids, range) and len(self._codes) != len(self._ids):
            twice = next(item for n, item in enumerate(self._ids) if self._codes[item] != n)
            raise DataError(f"item ids must be distinct, but {twice!r} occurs twice")

    def _select(self, labels: Labels | None) -> dict[Hashable, str]:
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
        except TypeError:  # an unhashable object is no item
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
        """The readable names, by id."""
        return dict(self._names)

    def name(self, item: Hashable) -> str:
        """Return the readable name of an item, or its id if it has none."""
        return self._names.get(item) or str(item)

    def with_names(self, names: Labels) -> Vocabulary:
        """Replace the readable names."""
        return Vocabulary(self._ids, names=names, categories=self._categories)

    @property
    def categories(self) -> dict[Hashable, str]:
        """The categories, by id."""
        return dict(self._categories)

    def with_categories(self, categories: Labels) -> Vocabulary:
        """Replace the categories."""
        return Vocabulary(self._ids, names=self._names, categories=categories)

    def subset(self, codes: Iterable[int]) -> Vocabulary:
        """Select the items of these codes, with their names and categories."""
        return Vocabulary(
            [self._ids[c] for c in codes], names=self._names, categories=self._categories
        )

    def by_name(self, counts: ArrayLike | None = None) -> dict[str, list[Hashable]]:
        """Map readable names, in lower case, to items.

        Parameters
        ----------
        counts : array of shape (n_items,), optional
            Of several items with one name, the one with the highest count comes first; without
            counts, the one with the lowest code.
        """
        order = np.arange(len(self))
        if counts is not None:
            order = np.argsort(-np.asarray(counts), kind="stable")
        found: dict[str, list[Hashable]] = {}
        for code in order.tolist():
            found.setdefault(self.name(self._ids[code]).casefold(), []).append(self._ids[code])
        return found

    def code(self, item: Any) -> int:
        """Return the code of an item; `UnknownItemError` if it is not in the vocabulary."""
        known = plain(item)
        code = self._find(known)
        if code is None:
            raise unknown_items([known], self)
        return code

    def _find(self, item: Hashable) -> int | None:
        if not isinstance(self._ids, range):
            return self._codes.get(item)
        if item not in self._ids:
            return None
        # `range.index` searches unless it is given an int.
        return self._ids.index(int(item))  # type: ignore[call-overload]

    def codes(self, items: Iterable[Hashable], *, unknown: str = "error") -> Codes:
        """Return the codes of several items in the order given, without duplicates.

        Parameters
        ----------
        items : iterable of hashable
        unknown : {"error", "ignore"}
            Items that are not in the vocabulary raise `UnknownItemError`, or are left out.

        Returns
        -------
        ndarray of int32
        """
        check_unknown(unknown)
        found = [(item, self._find(item)) for item in map(plain, items)]
        missing = [item for item, code in found if code is None]
        if missing and unknown == "error":
            raise unknown_items(missing, self)
        codes = dict.fromkeys(code for _, code in found if code is not None)
        return np.array(list(codes), dtype=np.int32)

    def find(self, items: Iterable[Hashable] | NDArray[Any]) -> Ints:
        """Return a code for each of several ids, −1 if it is not in the vocabulary."""
        if not isinstance(items, np.ndarray):
            ids: Iterable[Any] = items
        elif isinstance(self._ids, range) and self._ids.step == 1 and items.dtype.kind in "iu":
            codes = items.astype(np.int64) - self._ids.start
            codes[(codes < 0) | (codes >= len(self._ids))] = -1
            return codes
        else:
            ids = items.tolist()
        if isinstance(self._ids, range):
            found: Iterable[int] = (
                -1 if (code := self._find(id_)) is None else code for id_ in ids
            )
        else:
            found = map(self._codes.get, ids, itertools.repeat(-1))
        return np.fromiter(found, dtype=np.int64)

    def take(self, codes: Iterable[int]) -> NDArray[Any]:
        """Return the ids of these codes as an array: see `id_array`."""
        return id_array([self._ids[code] for code in codes])

    def merge(self, other: Vocabulary) -> Vocabulary:
        """Append the new items of `other`; names and categories are merged too."""
        known = (
            other._names.keys() <= self._names.keys()
            and other._categories.keys() <= self._categories.keys()
        )
        if len(other) == 0 or (known and self == other):
            return self
        return Vocabulary(
            dict.fromkeys([*self._ids, *other._ids]),
            names={**other._names, **self._names},
            categories={**other._categories, **self._categories},
        )


def id_array(ids: Sequence[Hashable]) -> NDArray[Any]:
    """Make an array of ids: of integers or strings if all ids are, else of objects."""
    kinds = {type(item) for item in ids}
    if kinds == {int}:
        try:
            return np.array(ids, dtype=np.int64)
        except OverflowError:
            pass
    if kinds == {str} and not any(str(item).endswith("\0") for item in ids):
        return np.array(ids, dtype=np.str_)
    return np.fromiter(ids, dtype=object, count=len(ids))  # np.array would unpack tuples


def as_vocabulary(items: Iterable[Hashable]) -> Vocabulary:
    """Convert ids to a vocabulary, unless they are one."""
    return items if isinstance(items, Vocabulary) else Vocabulary(items)


LONG_WORD = 120  # characters; longer words are not compared with others
MANY_WORDS = 5_000


class Lookup:
    """Items by the words of users, the same in Python, on the command line and over HTTP.

    A word is an id, the text of an id, or a readable name in any case. Of several items with one
    name it means the one with the highest count, and the log says so once.

    Parameters
    ----------
    items : Vocabulary
    counts : array of shape (n_items,), optional
    """

    def __init__(self, items: Vocabulary, counts: ArrayLike | None = None) -> None:
        self.items = items
        self._counts = counts
        self._logged: set[str] = set()

    @cached_property
    def named(self) -> dict[str, list[Hashable]]:
        """Items by their names in lower case, the most frequent first."""
        return self.items.by_name(self._counts)

    @cached_property
    def _texts(self) -> dict[str, Hashable]:
        """Other ids than texts and integers, by their text, which JSON and shells can write."""
        return {str(item): item for item in self.items if type(item) not in (str, int)}

    def find(self, word: Any) -> Hashable | None:
        """Return the item that a word means, None if there is none."""
        if word in self.items:
            return self.items[self.items.code(word)]
        if isinstance(word, int) and abs(word) >= _MAX_INTEGER:
            return None
        text = str(word).strip()
        if text in self.items:
            return text
        if _NUMBER.fullmatch(text) and int(text) in self.items:
            return int(text)
        if text in self._texts:
            return self._texts[text]
        found = self.named.get(text.casefold(), [])
        if len(found) > 1 and text not in self._logged:
            self._logged.add(text)
            logger.warning(
                "%d items are called %r: the most sold of them, %r, is taken",
                len(found),
                text,
                found[0],
            )
        return found[0] if found else None

    def close(self, word: Any) -> list[Hashable]:
        """Return up to three items whose ids or names are nearly this word."""
        text = word.strip().casefold() if isinstance(word, str) else ""
        if not 0 < len(text) <= LONG_WORD:
            return []
        texts: dict[str, Hashable] = {
            item.casefold(): item for item in self.items if isinstance(item, str)
        }
        texts |= {name: items[0] for name, items in self.named.items()}
        found = sorted((known for known in texts if text in known), key=len)[:3]
        if not found:  # in a large catalog, a word is compared with those of its first letter
            near = [k for k in texts if len(texts) <= MANY_WORDS or k.startswith(text[0])]
            found = difflib.get_close_matches(text, near, n=2)
        return list(dict.fromkeys(texts[known] for known in found))


def check_unknown(unknown: str) -> None:
    """Raise `ParameterError` unless this is a valid way to treat unknown items."""
    check_choice("unknown", unknown, ("error", "ignore"))


def unknown_items(items: Sequence[Hashable], known: Vocabulary) -> UnknownItemError:
    """Make the error for items that are not in the vocabulary, with a few of them."""
    shown = ", ".join(f"{item!r:.200}" for item in items[:5]) + (", ..." if len(items) > 5 else "")
    many = f"{len(items)} items are" if len(items) > 1 else "an item is"
    close = Lookup(known).close(items[0])
    hint = f". Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return UnknownItemError(
        f"{many} not among the {len(known):,} known items: {shown}{hint} "
        "(pass unknown='ignore' to leave them out)"
    )
