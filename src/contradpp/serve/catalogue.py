"""The catalogue as requests see it: ids as JSON names them, and search by what items are called."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.vocabulary import Lookup, Vocabulary

Array = NDArray[np.float64]
Ask = str | int  # an item as JSON names it
_END = "\U0010ffff"  # sorts after every text that goes on


class Known(NamedTuple):
    """The items of a request that the model knows, as it holds them, without duplicates, and the others."""

    items: list[Hashable]
    unknown: list[Ask]


class Ids:
    """Finds items by their ids or names, of several with one name the most sold, and names them as JSON can."""

    def __init__(self, items: Vocabulary, counts: Array | None = None) -> None:
        lookup = Lookup(items, counts)
        _ = lookup.named  # made now, before someone waits for it
        self.find = lookup.find

    def resolve(self, asked: Iterable[Ask]) -> Known:
        """Find items as the vocabulary holds them; "17" finds 17 where there is no "17", and the other way round."""
        found: dict[Hashable, None] = {}
        unknown: dict[Ask, None] = {}
        for name in asked:
            item = self.find(name)
            if item is None:
                unknown[name] = None
            else:
                found[item] = None
        return Known(list(found), list(unknown))

    def public(self, item: Hashable) -> Ask:
        """The id that JSON shows for an item."""
        return item if type(item) is str or type(item) is int else str(item)


class Hits(NamedTuple):
    """The codes of the items found, and whether there were more."""

    codes: list[int]
    more: bool


class Search:
    """Finds items by the start of what they are called, then by any part of it; the weightier ones first."""

    def __init__(self, labels: Sequence[Sequence[str]], weights: Array) -> None:
        self._rank = np.empty(len(weights), dtype=np.int64)
        self._by_weight = np.argsort(-weights, kind="stable")
        self._rank[self._by_weight] = np.arange(len(weights))
        folded = [[_fold(label) for label in called] for called in labels]
        flat = [label for called in folded for label in called]
        codes = [code for code, called in enumerate(folded) for _ in called]
        order = sorted(range(len(flat)), key=flat.__getitem__)
        self._labels = [flat[place] for place in order]
        self._codes = np.array([codes[place] for place in order], dtype=np.int64)
        # All names in one text, the weightiest first: a search is one scan that stops when it has enough.
        ordered = ["\n".join(folded[code]) for code in self._by_weight.tolist()]
        self._text = "\n".join(["", *ordered, ""])
        self._starts = np.cumsum([1, *(len(label) + 1 for label in ordered)])[:-1]

    def find(self, query: str, limit: int) -> Hits:
        """At most `limit` items that match; an empty query matches all."""
        wanted = _fold(query)
        if not wanted:
            return Hits(self._by_weight[:limit].tolist(), len(self._by_weight) > limit)
        first, last = bisect_left(self._labels, wanted), bisect_right(self._labels, wanted + _END)
        starting = np.unique(self._rank[self._codes[first:last]])[: limit + 1]
        found = dict.fromkeys(self._by_weight[starting].tolist())
        for code in self._containing(wanted) if len(found) <= limit else ():
            found.setdefault(code)
            if len(found) > limit:
                break
        codes = list(found)
        return Hits(codes[:limit], len(codes) > limit)

    def _containing(self, wanted: str) -> Iterator[int]:
        """The items whose names contain the text, weightiest first."""
        position = self._text.find(wanted)
        while position >= 0:
            place = bisect_right(self._starts, position) - 1
            yield int(self._by_weight[place])
            after = int(self._starts[place + 1]) if place + 1 < len(self._starts) else len(self._text)
            position = self._text.find(wanted, after)


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())
