"""Baskets put together piece by piece: ids become integer codes at once, so that memory holds codes only."""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets
from contradpp.data.vocabulary import Vocabulary

Codes = NDArray[np.int32]

# At most 18 digits: whatever matches fits into 64 bits.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


class BadRow(Exception):
    """A row that cannot be used; whoever knows the file turns it into a `DataError` with the place.

    Parameters
    ----------
    row : int
        The position of the row in its file or table, counted from 0.
    reason : str
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason


class Codebook:
    """Ids numbered in the order in which they first occur."""

    def __init__(self) -> None:
        self.codes: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.codes)

    def code(self, id_: Hashable) -> int:
        """The code of one id, a new one if it has none yet."""
        return self.codes.setdefault(id_, len(self.codes))

    def encode(self, ids: Iterable[Hashable]) -> list[int]:
        """The codes of several ids."""
        codes = self.codes
        return [codes.setdefault(id_, len(codes)) for id_ in ids]

    def encode_arrow(self, column: Any) -> Codes:
        """The codes of an Arrow array without nulls; Python sees only the distinct values."""
        encoded = column.dictionary_encode()
        recode = np.array(self.encode(encoded.dictionary.to_pylist()), dtype=np.int32)
        indices: Codes = encoded.indices.to_numpy()
        return recode[indices]


class Assembler:
    """Grows baskets from (basket, item) pairs, which may come in any order.

    Pairs go into flat arrays of 32-bit codes: eight bytes a pair, whatever the ids look like.
    """

    def __init__(self) -> None:
        self.baskets = Codebook()
        self.items = Codebook()
        self.n_dropped = 0
        self._n_anonymous = 0
        self._owners = array("i")
        self._codes = array("i")
        self._names: dict[int, dict[str, int]] = {}  # how often each name of an item was seen

    @property
    def n_baskets(self) -> int:
        """How many baskets there are so far, empty ones included."""
        return len(self.baskets) + self._n_anonymous

    def new_baskets(self, n: int) -> int:
        """Open `n` baskets that have no id; the number of the first one."""
        first = self._n_anonymous
        self._n_anonymous += n
        return first

    def add(self, owners: Codes, codes: Codes) -> None:
        """Put the item `codes[i]` into the basket `owners[i]`, for every i."""
        self._owners.frombytes(np.ascontiguousarray(owners, dtype=np.int32).data.cast("B"))
        self._codes.frombytes(np.ascontiguousarray(codes, dtype=np.int32).data.cast("B"))

    def add_list(self, ids: Iterable[Hashable], *, owner: int | None = None) -> None:
        """Put items into a basket: the one numbered `owner`, or else a new one."""
        number = self.new_baskets(1) if owner is None else owner
        codes = self.items.encode(ids)
        self._codes.extend(codes)
        self._owners.extend([number] * len(codes))

    def add_name(self, code: int, name: str, times: int = 1) -> None:
        """Name an item once more."""
        seen = self._names.setdefault(code, {})
        seen[name] = seen.get(name, 0) + times

    def add_names(self, codes: Codes, column: Any) -> None:
        """Name items from an Arrow array of strings, row by row."""
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        encoded = column.take(rows).dictionary_encode()
        texts = [str(text) for text in encoded.dictionary.to_pylist()]
        keys = codes[rows].astype(np.int64) * max(len(texts), 1) + encoded.indices.to_numpy(zero_copy_only=False)
        found, first, times = np.unique(keys, return_index=True, return_counts=True)
        for place in np.argsort(first, kind="stable").tolist():
            code, text = divmod(int(found[place]), max(len(texts), 1))
            self.add_name(code, texts[text], int(times[place]))

    def finish(self, *, as_text: bool = False) -> Baskets:
        """The baskets, in the order of their numbers, items as they came; to be called once.

        Parameters
        ----------
        as_text : bool
            The ids were read from text: if every one of them is a plain integer, they become integers.
        """
        n_baskets = self.n_baskets
        self.baskets = Codebook()  # often the largest thing here, and no longer needed
        owners = np.frombuffer(self._owners, dtype=np.int32)
        codes = np.frombuffer(self._codes, dtype=np.int32)
        if np.any(owners[1:] < owners[:-1]):
            order = np.argsort(owners, kind="stable")
            owners, codes = owners[order], codes[order]
        indptr = np.searchsorted(owners, np.arange(n_baskets + 1, dtype=np.int32))
        ids = integers_if_all(self.items.codes) if as_text else list(self.items.codes)
        # The name that an item has most often; orders are full of remarks such as "damaged" in a name's place.
        names = {ids[code]: max(seen, key=seen.__getitem__) for code, seen in self._names.items()}
        return Baskets(indptr, codes, Vocabulary(ids, names=names))


def integers_if_all(ids: Iterable[Hashable]) -> list[Hashable]:
    """Texts as integers if all are in their usual spelling ('7', not '007' or '+7'), else as they are."""
    texts = list(ids)
    if all(_INTEGER.fullmatch(str(text)) for text in texts):
        return [int(str(text)) for text in texts]
    return texts
