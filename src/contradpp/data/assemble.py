"""Baskets put together from rows: ids become integer codes at once, so that memory holds codes only."""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import Hashable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.columns import Layout
from contradpp.data.files import BLANK
from contradpp.data.vocabulary import Vocabulary

logger = logging.getLogger("contradpp")

Codes = NDArray[np.int32]
OnBadRow = Literal["error", "skip"]
Returns = Literal["drop", "keep"]
LABELS = ("name", "category")

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # at most 18 digits: whatever matches fits into 64 bits
_CANCELLED = re.compile(r"[Cc][0-9]+")


class BadRow(Exception):
    """A row that cannot be used; whoever knows the file turns it into a `DataError` with the place."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row  # its position in the file or table
        self.reason = reason


class Assembled(NamedTuple):
    """What `Baskets` are made of: a CSR of item codes, the vocabulary, and a CSR of what was offered, if known."""

    indptr: NDArray[np.int64]
    indices: Codes
    items: Vocabulary
    offered: tuple[NDArray[np.int64], Codes] | None = None


class Codebook:
    """Ids numbered in the order in which they first occur.

    Integers that only rise, as the numbers of orders do in most files, take no lookup: arrays hold them, in a tenth of
    the memory, until something else comes.
    """

    def __init__(self, ids: Iterable[Hashable] = ()) -> None:
        self._codes: dict[Hashable, int] = {id_: code for code, id_ in enumerate(ids)}
        self._rising: list[NDArray[np.int64]] = []

    @property
    def codes(self) -> dict[Hashable, int]:
        """The code of every id."""
        if self._rising:
            every = np.concatenate(self._rising).tolist()
            self._codes, self._rising = {id_: code for code, id_ in enumerate(every)}, []
        return self._codes

    @property
    def only_rises(self) -> bool:
        """Whether all ids so far are integers that rise."""
        return not self._codes

    def __len__(self) -> int:
        return len(self._codes) + sum(map(len, self._rising))

    def code(self, id_: Hashable) -> int:
        """The code of one id, a new one if it has none yet."""
        return self.codes.setdefault(id_, len(self.codes))

    def encode(self, ids: Iterable[Hashable]) -> list[int]:
        """The codes of several ids."""
        codes = self.codes
        return [codes.setdefault(id_, len(codes)) for id_ in ids]

    def encode_rising(self, ids: NDArray[np.int64]) -> Codes | None:
        """The codes of integers that nowhere fall, from the last one known on; None if they do, or others are known."""
        before = self._rising[-1][-1] if self._rising else None
        if not self.only_rises or not len(ids) or (before is not None and ids[0] < before):
            return None
        if np.any(ids[1:] < ids[:-1]):
            return None
        new = np.concatenate([[before is None or ids[0] > before], ids[1:] != ids[:-1]])
        codes: Codes = np.cumsum(new, dtype=np.int32) + np.int32(len(self) - 1)
        if new.any():
            self._rising.append(ids[new])
        return codes


class Pairs:
    """Items and the baskets they belong to, in any order: eight bytes a pair, whatever the ids look like."""

    def __init__(self) -> None:
        self._owners = array("i")
        self._codes = array("i")

    @property
    def owners(self) -> Codes:
        """The basket of every pair."""
        return np.frombuffer(self._owners, dtype=np.int32)

    @property
    def codes(self) -> Codes:
        """The item of every pair."""
        return np.frombuffer(self._codes, dtype=np.int32)

    def add(self, owners: NDArray[np.integer[Any]], codes: NDArray[np.integer[Any]]) -> None:
        """Put the item `codes[i]` into the basket `owners[i]`, for every i."""
        self._owners.frombytes(np.ascontiguousarray(owners, dtype=np.int32).data.cast("B"))
        self._codes.frombytes(np.ascontiguousarray(codes, dtype=np.int32).data.cast("B"))

    def add_list(self, owner: int, codes: list[int]) -> None:
        """Put items into one basket."""
        self._codes.extend(codes)
        self._owners.extend([owner] * len(codes))

    def taken(self, kept: NDArray[np.bool_], used: Codes) -> Pairs:
        """Those of the baskets that are kept, numbered anew, and by position among the codes `used`."""
        rows, pairs = kept[self.owners], Pairs()
        pairs.add((np.cumsum(kept) - 1)[self.owners[rows]], np.searchsorted(used, self.codes[rows]))
        return pairs

    def csr(self, n_baskets: int) -> tuple[NDArray[np.int64], Codes]:
        """The baskets in the order of their numbers, items as they came."""
        owners, codes = self.owners, self.codes
        if np.any(owners[1:] < owners[:-1]):
            order = np.argsort(owners, kind="stable")
            owners, codes = owners[order], codes[order]
        return np.searchsorted(owners, np.arange(n_baskets + 1, dtype=np.int32)), codes


class Assembler:
    """Grows baskets from (basket, item) pairs, which may come in any order.

    Parameters
    ----------
    on_bad_row : {"error", "skip"}
        What to do with a row that cannot be used: raise `BadRow`, or count it in `n_bad`.
    returns : {"drop", "keep"}
        What to do with rows that look like returns.

    Attributes
    ----------
    as_text : bool
        The ids are read from text: blanks around them do not count, and if every item is a plain integer,
        they become integers.
    """

    def __init__(self, *, on_bad_row: OnBadRow = "error", returns: Returns = "drop") -> None:
        self.on_bad_row, self.returns = on_bad_row, returns
        self.as_text = False
        self.baskets = Codebook()
        self.items = Codebook()
        self.n_dropped, self.n_returned, self.n_bad = 0, 0, 0
        self._n_anonymous = 0
        self._pairs = Pairs()
        self._offered: Pairs | None = None  # what baskets were chosen from
        # How often an item was seen with each name, and with each category.
        self._labels: dict[str, dict[int, dict[str, int]]] = {kind: {} for kind in LABELS}

    @property
    def n_baskets(self) -> int:
        """How many baskets there are so far, empty ones included."""
        return len(self.baskets) + self._n_anonymous

    def new_baskets(self, n: int) -> int:
        """Open `n` baskets that have no id; the number of the first one."""
        first = self._n_anonymous
        self._n_anonymous += n
        return first

    def bad_row(self, row: int, reason: str, *, times: int = 1) -> None:
        """Count a row, and more like it, that cannot be used, or raise `BadRow`."""
        if self.on_bad_row == "error":
            raise BadRow(row, reason)
        self.n_bad += times

    def add(self, owners: NDArray[np.integer[Any]], codes: Codes) -> None:
        """Put the item `codes[i]` into the basket `owners[i]`, for every i."""
        self._pairs.add(owners, codes)

    @property
    def offered(self) -> Pairs:
        """What baskets were chosen from; whoever asks is about to say."""
        self._offered = Pairs() if self._offered is None else self._offered
        return self._offered

    def add_list(
        self, ids: Iterable[Hashable], *, owner: int | None = None, offered: Iterable[Hashable] | None = None
    ) -> None:
        """Put items into a basket, the one numbered `owner` or else a new one; `offered` holds them and the refused."""
        number = self.new_baskets(1) if owner is None else owner
        if offered is not None:
            self.offered.add_list(number, self.items.encode(offered))
        self._pairs.add_list(number, self.items.encode(ids))

    def add_label(self, kind: str, code: int, label: str, times: int = 1) -> None:
        """Note once more the name, or the category, of an item."""
        seen = self._labels[kind].setdefault(code, {})
        seen[label] = seen.get(label, 0) + times

    def add_labels(self, kind: str, codes: Codes, column: Any) -> None:
        """Note the names, or the categories, of items from an Arrow array, row by row."""
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        encoded = column.take(rows).dictionary_encode()
        texts = [str(text).strip(BLANK) for text in encoded.dictionary.to_pylist()]
        keys = codes[rows].astype(np.int64) * max(len(texts), 1) + encoded.indices.to_numpy(zero_copy_only=False)
        found, first, times = np.unique(keys, return_index=True, return_counts=True)
        for place in np.argsort(first, kind="stable").tolist():
            code, text = divmod(int(found[place]), max(len(texts), 1))
            if texts[text]:
                self.add_label(kind, code, texts[text], int(times[place]))

    def drop_cancelled(self) -> None:
        """Leave out invoices numbered like C536379, if most of the others have plain numbers: they are returns."""
        if self.baskets.only_rises:
            return
        ids = list(self.baskets.codes)
        marked = [n for n, id_ in enumerate(ids) if type(id_) is str and id_.startswith(("C", "c"))]
        found = [n for n in marked if _CANCELLED.fullmatch(str(ids[n]))]
        plain = sum(type(id_) is str and id_.isdigit() for id_ in ids) if found else 0
        if self.returns == "keep" or 2 * plain <= len(ids):
            return
        kept = np.ones(len(ids), dtype=bool)
        kept[found] = False
        both = [self._pairs] if self._offered is None else [self._pairs, self._offered]
        used = np.unique(np.concatenate([pairs.codes[kept[pairs.owners]] for pairs in both]))
        items, labels = list(self.items.codes), self._labels
        self.n_returned += int(np.count_nonzero(~kept[both[-1].owners]))
        self.baskets = Codebook(id_ for id_, keep in zip(ids, kept.tolist(), strict=True) if keep)
        self.items = Codebook(items[code] for code in used.tolist())
        self._labels = {
            kind: {new: labels[kind][old] for new, old in enumerate(used.tolist()) if old in labels[kind]}
            for kind in LABELS
        }
        self._pairs = self._pairs.taken(kept, used)
        self._offered = None if self._offered is None else self._offered.taken(kept, used)

    def finish(self) -> Assembled:
        """The baskets, in the order of their numbers, items as they came; to be called once."""
        self.drop_cancelled()
        n_baskets = self.n_baskets
        self.baskets = Codebook()  # often the largest thing here, and no longer needed
        ids = integers_if_all(self.items.codes) if self.as_text else list(self.items.codes)
        # The name that an item has most often; orders are full of remarks such as "damaged" in a name's place.
        names, categories = (
            {ids[code]: max(seen, key=seen.__getitem__) for code, seen in self._labels[kind].items()} for kind in LABELS
        )
        items = Vocabulary(ids, names=names, categories=categories)
        offered = None if self._offered is None else self._offered.csr(n_baskets)
        indptr, indices = self._pairs.csr(n_baskets)
        self._pairs, self._offered = Pairs(), None  # half of them are owners, which are no longer needed
        return Assembled(indptr, indices, items, offered)

    def report(self, where: str, layout: Layout | None) -> None:
        """Log how many rows were left out, and why."""
        quantity = layout and layout.quantity
        for n_rows, why in (
            (self.n_dropped, f"rows whose {quantity} is not positive"),
            (self.n_returned, "rows that are returns (returns='keep' keeps them)"),
            (self.n_bad, "rows that could not be read"),
        ):
            if n_rows:
                logger.warning("%s: dropped %d %s", where, n_rows, why)


def integers_if_all(ids: Iterable[Hashable]) -> list[Hashable]:
    """Texts as integers if all are in their usual spelling ('7', not '007' or '+7'), else as they are."""
    texts = list(ids)
    if all(_INTEGER.fullmatch(str(text)) for text in texts):
        return [int(str(text)) for text in texts]
    return texts
