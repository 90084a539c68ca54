"""Basket builder: groups (basket, item) entries, which may come in any order, into baskets."""

from __future__ import annotations

import itertools
import logging
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from contradpp._types import Codes, Flags, Ints
from contradpp.data.columns import LABELS, Layout
from contradpp.data.files import BLANK
from contradpp.data.orders import Times, is_missing, read_times
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("contradpp")

CSR = tuple[Ints, Codes]
# The arguments of `Baskets`.
BasketsArgs = tuple[Ints, Codes, Vocabulary, CSR | None, list[Any] | None, Times | None]
OnBadRow = Literal["error", "skip"]
Returns = Literal["drop", "keep"]

# At most 18 digits: every match fits into 64 bits.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_CANCELED = re.compile(r"[Cc][0-9]+")


class BadRow(Exception):
    """A row that cannot be used; its reader makes a `DataError` with the place of it."""

    def __init__(self, reason: str, row: int = 0) -> None:
        super().__init__(reason, row)
        self.reason = reason
        self.row = row  # its position in the table


class BasketBuilder:
    """Baskets under construction, from rows of any format.

    If `as_text`, white space around ids does not count, and ids become integers if every item is a
    plain integer.
    """

    def __init__(self, *, on_bad_row: OnBadRow = "error", returns: Returns = "drop") -> None:
        self.on_bad_row = on_bad_row
        self.returns = returns
        self.as_text = False
        self.baskets = Codebook()
        self.items = Codebook()
        self.chosen = BasketEntries()
        self.customers = BasketValues()
        self.times = BasketValues()
        self.offered = BasketEntries()  # candidates of the baskets, where they are known
        self.n_dropped = 0  # rows whose quantity is not positive
        self.n_returned = 0
        self.n_bad = 0
        self._n_anonymous = 0
        # The number of times that an item was seen with each name, and with each category.
        self.labels: dict[str, dict[int, Counter[str]]] = {
            kind: defaultdict(Counter) for kind in LABELS
        }

    def new_baskets(self, n: int) -> int:
        """Open `n` baskets that have no id, and return the number of the first one."""
        first = self._n_anonymous
        self._n_anonymous += n
        return first

    def add_basket(
        self,
        ids: Iterable[Hashable],
        *,
        number: int | None = None,
        offered: Iterable[Hashable] | None = None,
    ) -> None:
        """Add items to the basket of this number, or to a new one; `offered` includes them."""
        if number is None:
            number = self.new_baskets(1)
        if offered is not None:
            self.offered.add_basket(number, self.items.encode(offered))
        self.chosen.add_basket(number, self.items.encode(ids))

    def add_labels(self, kind: str, codes: Codes, column: pa.Array) -> None:
        """Count the names, or the categories, of items, row by row."""
        import pyarrow as pa

        table = pa.table({"code": codes, "text": column}).drop_null()
        counts = table.group_by(["code", "text"], use_threads=False).aggregate([([], "count_all")])
        for row in counts.to_pylist():
            if text := str(row["text"]).strip(BLANK):
                self.labels[kind][row["code"]][text] += row["count_all"]

    def drop_canceled(self) -> None:
        """Drop invoices numbered like C536379 as returns, if most others have plain numbers."""
        if self.returns == "keep" or self.baskets.only_rises:
            return
        ids = list(self.baskets.codes)
        keep = np.array([not (type(i) is str and _CANCELED.fullmatch(i)) for i in ids], dtype=bool)
        if keep.all() or 2 * sum(type(i) is str and i.isdigit() for i in ids) <= len(ids):
            return
        rows = self.offered or self.chosen
        self.n_returned += int(np.count_nonzero(~keep[rows.owners]))
        self.baskets = Codebook(itertools.compress(ids, keep.tolist()))
        both = (self.chosen, self.offered)
        used = np.unique(np.concatenate([part.codes[keep[part.owners]] for part in both]))
        items = list(self.items.codes)
        self.items = Codebook(items[code] for code in used.tolist())
        for kind, counts in self.labels.items():
            self.labels[kind] = {
                new: counts[old] for new, old in enumerate(used.tolist()) if old in counts
            }
        self.chosen, self.offered = (part.subset(keep, used) for part in both)
        for values in (self.customers, self.times):
            values.select(keep)

    def build(self) -> BasketsArgs:
        """Return the arguments of `Baskets`, in the order of the baskets' numbers; call it once."""
        self.drop_canceled()
        n_baskets = len(self.baskets) + self._n_anonymous
        self.baskets = Codebook()  # often the largest object, and not needed from here on
        ids = integers_if_all(self.items.codes) if self.as_text else list(self.items.codes)
        # The most frequent name: orders are full of remarks such as "damaged" in a name's place.
        names, categories = (
            {ids[code]: counts.most_common(1)[0][0] for code, counts in self.labels[kind].items()}
            for kind in LABELS
        )
        items = Vocabulary(ids, names=names, categories=categories)
        customers = self.customers.of_baskets(n_baskets)
        if customers is not None and self.as_text:
            known = [customer for customer in customers if customer is not None]
            numbers = dict(zip(known, integers_if_all(known), strict=True))
            customers = [numbers.get(customer) for customer in customers]
        times = self._read_times(n_baskets)
        offered = self.offered.to_csr(n_baskets) if self.offered else None
        indptr, indices = self.chosen.to_csr(n_baskets)
        del self.chosen, self.offered  # half of them are owners, which are not needed either
        return indptr, indices, items, offered, customers, times

    def _read_times(self, n_baskets: int) -> Times | None:
        times = self.times.of_baskets(n_baskets)
        try:
            return None if times is None else read_times(times)
        except DataError as error:
            if not self.times.guessed:
                raise
            self.times.refused = f"times are not read: {error}"
            return None

    def log_dropped(self, where: str, layout: Layout | None) -> None:
        """Log how many rows were left out, and why."""
        quantity = layout and layout.quantity
        for n_rows, why in (
            (self.n_dropped, f"rows whose {quantity} is not positive"),
            (self.n_returned, "rows that are returns (returns='keep' keeps them)"),
            (self.n_bad, "rows that could not be read"),
        ):
            if n_rows:
                logger.warning("%s: dropped %d %s", where, n_rows, why)
        for values in (self.customers, self.times):
            if values.refused:
                logger.warning("%s: %s", where, values.refused)


class Codebook:
    """Ids numbered in order of first appearance.

    Integers that only rise, as order numbers do in most files, need no lookup: they are held in
    arrays, in a tenth of the memory, until any other id comes.
    """

    def __init__(self, ids: Iterable[Hashable] = ()) -> None:
        self._codes: dict[Hashable, int] = {id_: code for code, id_ in enumerate(ids)}
        self._rising: list[Ints] = []

    @property
    def codes(self) -> dict[Hashable, int]:
        """The code of every id."""
        if self._rising:
            ids = np.concatenate(self._rising).tolist()
            self._codes = {id_: code for code, id_ in enumerate(ids)}
            self._rising = []
        return self._codes

    @property
    def only_rises(self) -> bool:
        """True if all ids so far are rising integers."""
        return not self._codes

    def __len__(self) -> int:
        return len(self._codes) + sum(map(len, self._rising))

    def encode(self, ids: Iterable[Hashable]) -> list[int]:
        """Encode ids, with new codes for new ids."""
        codes = self.codes
        return [codes.setdefault(id_, len(codes)) for id_ in ids]

    def encode_rising(self, ids: Ints) -> Codes | None:
        """Encode integers that never fall; None if they do, or if other ids are known."""
        last = self._rising[-1][-1] if self._rising else None
        falls = np.any(ids[1:] < ids[:-1]) or (last is not None and np.any(ids[:1] < last))
        if falls or not len(ids) or not self.only_rises:
            return None
        new = np.concatenate([[last is None or ids[0] > last], ids[1:] != ids[:-1]])
        codes: Codes = np.cumsum(new, dtype=np.int32) + np.int32(len(self) - 1)
        if new.any():
            self._rising.append(ids[new])
        return codes


class BasketValues:
    """A value for each basket, such as its customer: that of its first row with one."""

    def __init__(self) -> None:
        self._ids: dict[Hashable, int] = {}
        self._codes = np.full(0, -1, dtype=np.int32)  # by basket; −1 for none
        self.guessed = False
        self.refused = ""  # why a column that was guessed is not used

    def encode(self, values: Iterable[Any]) -> list[int]:
        """Number values; −1 for those that are missing."""
        ids = self._ids
        return [-1 if is_missing(v) else ids.setdefault(v, len(ids)) for v in values]

    def add(self, owners: NDArray[np.integer], codes: NDArray[np.integer]) -> Flags:
        """Add the value `codes[i]` to the basket `owners[i]`; flag rows that agree with it."""
        n = int(owners.max(initial=-1)) + 1
        if n > len(self._codes):
            more = np.full(max(n, 2 * len(self._codes)) - len(self._codes), -1, dtype=np.int32)
            self._codes = np.concatenate([self._codes, more])
        new = np.flatnonzero((codes >= 0) & (self._codes[owners] < 0))
        first, rows = np.unique(owners[new], return_index=True)
        self._codes[first] = codes[new[rows]]
        agree: Flags = (codes < 0) | (self._codes[owners] == codes)
        return agree

    def select(self, keep: Flags) -> None:
        """Select baskets."""
        self._codes = np.array(self._of(len(keep)))[keep]

    def of_baskets(self, n_baskets: int) -> list[Any] | None:
        """Return the value of each basket, None where there is none; None if there is no value."""
        if not self._ids or self.refused:
            return None
        values = [*self._ids, None]
        return [values[code] for code in self._of(n_baskets).tolist()]

    def _of(self, n_baskets: int) -> Codes:
        n_missing = max(n_baskets - len(self._codes), 0)
        return np.pad(self._codes[:n_baskets], (0, n_missing), constant_values=-1)


class BasketEntries:
    """Items and the baskets they belong to, in any order, in eight bytes an entry."""

    def __init__(self) -> None:
        self._owners = array("i")
        self._codes = array("i")

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def owners(self) -> Codes:
        """The basket of every entry."""
        return np.frombuffer(self._owners, dtype=np.int32)

    @property
    def codes(self) -> Codes:
        """The item of every entry."""
        return np.frombuffer(self._codes, dtype=np.int32)

    def add(self, owners: NDArray[np.integer], codes: NDArray[np.integer]) -> None:
        """Add the item `codes[i]` to the basket `owners[i]`, for every i."""
        self._owners.frombytes(np.ascontiguousarray(owners, dtype=np.int32).data.cast("B"))
        self._codes.frombytes(np.ascontiguousarray(codes, dtype=np.int32).data.cast("B"))

    def add_basket(self, owner: int, codes: list[int]) -> None:
        """Add items to one basket."""
        self._codes.extend(codes)
        self._owners.extend([owner] * len(codes))

    def subset(self, keep: Flags, used: Codes) -> BasketEntries:
        """Select baskets, renumbered, with items by their position in the sorted codes `used`."""
        rows = keep[self.owners]
        entries = BasketEntries()
        owners = (np.cumsum(keep) - 1)[self.owners[rows]]
        entries.add(owners, np.searchsorted(used, self.codes[rows]))
        return entries

    def to_csr(self, n_baskets: int) -> CSR:
        """Sort the entries into baskets by their numbers, items as they came."""
        owners = self.owners
        codes = self.codes
        if np.any(owners[1:] < owners[:-1]):
            order = np.argsort(owners, kind="stable")
            owners = owners[order]
            codes = codes[order]
        return np.searchsorted(owners, np.arange(n_baskets + 1, dtype=np.int32)), codes


def integers_if_all(ids: Iterable[Hashable]) -> list[Hashable]:
    """Convert texts to integers if all are in their usual spelling ('7', not '007' or '+7')."""
    texts = list(ids)
    if all(_INTEGER.fullmatch(str(text)) for text in texts):
        return [int(str(text)) for text in texts]
    return texts
