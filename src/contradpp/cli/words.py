"""Items as people write them: by id, by number or by name, on the command line or in lines of text."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from typing import Any

from numpy.typing import ArrayLike

from contradpp.data.vocabulary import Vocabulary, first_of
from contradpp.errors import DataError, UnknownItemError

_SEPARATORS = re.compile("[,;\t]")
_NUMBER = re.compile("-?[0-9]{1,4000}")  # Python refuses to read longer ones


class Words:
    """Finds the items that words mean.

    Parameters
    ----------
    items : Vocabulary
    unknown : {"error", "ignore"}
        What to do with a word that means no item: raise `UnknownItemError`, or leave it out.
    counts : array of length n_items, optional
        How often each item was sold: of several items with one name, the word means the most sold.
    """

    def __init__(self, items: Vocabulary, *, unknown: str = "error", counts: ArrayLike | None = None) -> None:
        self.items = items
        self.unknown = unknown
        self._counts = counts

    def find(self, word: Any) -> Hashable | None:
        """The item with this id, number or name (in any case), None if there is none."""
        if word in self.items:
            return word  # type: ignore[no-any-return]
        text = str(word).strip()
        if text in self.items:
            return text
        if _NUMBER.fullmatch(text) and int(text) in self.items:
            return int(text)
        return first_of(self._named.get(text.casefold(), []), text)

    def basket(self, words: Iterable[Any]) -> list[Hashable]:
        """The items that these words mean; a word that means none may be several between commas."""
        found: list[Hashable] = []
        for word in words:
            whole = self.find(word)
            found += [whole] if whole is not None else self._parts(str(word))
        return found

    def lines(self, stream: Iterable[str]) -> Iterator[list[Any]]:
        """A basket per line: a JSON array, an object with `basket` or `items`, or words between commas or spaces."""
        for number, line in enumerate(stream, start=1):
            text = line.strip()
            if text.startswith(("[", "{")):
                yield _from_json(text, number)
            elif self.find(text) is not None:
                yield [text]
            else:
                yield [word.strip() for word in (_SEPARATORS.split(text) if _SEPARATORS.search(text) else text.split())]

    def _parts(self, word: str) -> list[Hashable]:
        parts = [part.strip() for part in _SEPARATORS.split(word) if part.strip()]
        found = [self.find(part) for part in parts]
        if self.unknown == "error" and None in found:
            missing = parts[found.index(None)]
            raise UnknownItemError(f"the model does not know {missing!r}. {self._hint(missing)}")
        return [item for item in found if item is not None]

    @cached_property
    def _named(self) -> dict[str, list[Hashable]]:
        """Items by what they are called, in lower case."""
        return self.items.by_name(self._counts)

    def _hint(self, word: str) -> str:
        key = word.casefold()
        holding = sorted((name for name in self._named if key in name), key=len)[:3]
        close = holding or difflib.get_close_matches(key, self._named, n=2)
        if not close:
            return "`contradpp info MODEL --items` lists what it knows; --unknown ignore leaves it out"
        meant = " or ".join(repr(self.items.name(self._named[name][0])) for name in close)
        return f"Did you mean {meant}? (--unknown ignore leaves it out)"


def _from_json(text: str, number: int) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"line {number} is not JSON: {error}") from None
    if isinstance(value, dict):
        value = value.get("basket", value.get("items"))
    if not isinstance(value, list) or not all(isinstance(item, (str, int)) for item in value):
        raise DataError(f'line {number} must be a list of items, or an object such as {{"basket": ["tea", "milk"]}}')
    return value
