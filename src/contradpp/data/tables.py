"""Tables as baskets: which column holds what, and rows that become integer codes batch by batch."""

from __future__ import annotations

import itertools
import logging
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from contradpp.data.files import BLANK
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError

logger = logging.getLogger("contradpp")

Codes = NDArray[np.int32]
CSR = tuple[NDArray[np.int64], Codes]
Assembled = tuple[NDArray[np.int64], Codes, Vocabulary, CSR | None]  # the arguments of `Baskets`
Told = Mapping[str, str | None]
OnBadRow = Literal["error", "skip"]
Returns = Literal["drop", "keep"]
LABELS = ("name", "category")
ROLES = ("basket", "item", "quantity", *LABELS, "chosen", "returns")
BATCH_ROWS = 1 << 20

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # at most 18 digits: whatever matches fits into 64 bits
_CANCELLED = re.compile(r"[Cc][0-9]+")
_NUMBER = re.compile(r"(?P<before>[-\u2212(]?) ?(?P<size>[0-9]+(?:[.,][0-9]+)?)(?:(?P<after>[-\u2212])|\))?")


# -- Data frames and Arrow tables ------------------------------------------------------------------


def assemble_table(table: Any, told: Told, *, on_bad_row: OnBadRow, returns: Returns) -> Assembled:
    """Assemble an Arrow Table, RecordBatch or RecordBatchReader, or whatever exports an Arrow stream."""
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        table = table.to_reader(max_chunksize=BATCH_ROWS)
    if not hasattr(table, "__arrow_c_stream__"):
        raise ParameterError(f"from_arrow needs a Table, RecordBatch or RecordBatchReader, got {type(table).__name__}")
    reader = pa.RecordBatchReader.from_stream(table)
    layout = layout_of(reader.schema, told, where="the table")
    assembler = Assembler(on_bad_row=on_bad_row, returns=returns)
    add_batches(assembler, reader, layout, where="the table")
    assembled = assembler.finish()
    assembler.report("the table", layout)
    return assembled


def frame_to_arrow(frame: Any, told: Told) -> Any:
    """Convert a pandas or polars data frame to an Arrow table.

    The columns matter only if some other column cannot be converted: then only those needed are.
    """
    import pyarrow as pa

    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # polars: a frame that is yet to be computed
        frame = frame.collect()
    if not (hasattr(frame, "columns") or hasattr(frame, "__arrow_c_stream__")):
        raise ParameterError(f"from_frame needs a pandas or polars data frame, got {type(frame).__name__}")
    unconvertible = (pa.ArrowException, TypeError, ValueError)
    try:
        return pa.table(frame)
    except unconvertible as error:
        if not hasattr(frame, "columns"):
            raise ParameterError(f"from_frame needs a data frame, got {type(frame).__name__} ({error})") from error
        layout = find_layout(list(map(str, frame.columns)), told, texts=(), numbers=(), where="the frame")
        try:
            return pa.table(frame[layout.columns])
        except unconvertible:
            raise DataError(
                f"the frame cannot be converted ({error}); a column that mixes types, such as numbers and "
                "strings, must be made one type first: frame[column].astype(str)"
            ) from error


# -- Which column holds what -----------------------------------------------------------------------


_BASKET = "(basket|order|invoice|transaction|trans|txn|cart|session|receipt|ticket|bill|purchase|playlist)"
_ITEM = "(item|product|article|track|song|book|good|material)"
_ID = "(id|ids|no|nr|num|number|code|key)"

MOST_COLUMNS = 10_000  # a line of more fields is no header: it is a basket, and its items are not looked at as names
LONGEST_NAME = 1_000  # characters: the same of a field

# Best first: an explicit identifier before a bare noun before a name.
_TIERS = {
    "basket": [f"{_BASKET}{_ID}|tid", f"{_BASKET}s?"],
    "item": [
        f"({_ITEM}|stock){_ID}|sku|asin|upc|ean|gtin|isbn|barcode",
        f"{_ITEM}s?",
        f"{_ITEM}(name|title|description)",
    ],
    "quantity": [f"({_ITEM}|{_BASKET})?(quantity|qty|units|pieces|pcs)(sold|ordered)?"],
    "name": ["(item|product|article|stock)?(name|title|description|desc)"],
}
_LISTS = f"({_ITEM}|{_BASKET})s?{_ID}?|skus?|asins?"


@dataclass(frozen=True)
class Layout:
    """Where a table keeps what: the columns by role, and whether `item` holds lists.

    A table of lists may do without `basket`: then every row is a basket of its own. `returns` is a column that
    nobody named but whose name says quantities: rows below zero are returns.
    """

    basket: str | None
    item: str
    quantity: str | None = None
    name: str | None = None
    category: str | None = None
    returns: str | None = None
    lists: bool = False
    chosen: str | None = None  # then `item` holds what was offered, and this says what of it was taken

    @property
    def roles(self) -> dict[str, str]:
        """The columns by role, without roles that no column has."""
        found = {role: getattr(self, role) for role in ROLES}
        return {role: column for role, column in found.items() if column is not None}

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        return list(dict.fromkeys(self.roles.values()))


def find_layout(
    columns: Sequence[str],
    told: Told,
    *,
    where: str,
    lists: Sequence[str] = (),
    texts: Sequence[str] | None = None,
    numbers: Sequence[str] | None = None,
) -> Layout:
    """Find the columns by role, as told or by guess; the `DataError` for a doubtful guess lists them.

    `lists`, `texts` and `numbers` are those of the columns that hold lists of items, that may hold names, and that may
    hold quantities. Category and chosen are never guessed.
    """
    for role, column in told.items():
        if column is not None:
            check_column(columns, column, role, where)
    basket, item, chosen = told.get("basket"), told.get("item"), told.get("chosen")
    columns = [column for column in columns if column != chosen]
    whole = item if item is not None else _list_column(columns, [column for column in lists if column != chosen])
    if whole is not None and whole in lists:
        of_rows = [role for role in ("quantity", "name", "category") if told.get(role) is not None]
        if of_rows:
            raise DataError(f"{where}: {of_rows[0]}= needs a row per item, but {whole!r} holds lists")
        if chosen is not None and (chosen not in lists or chosen == whole):
            reason = f"chosen= must name a column of lists, other than {whole!r}"
            raise DataError(f"{where}: {reason}", parameters=("chosen",))
        return Layout(basket, whole, lists=True, chosen=chosen)
    if basket is None:
        basket = _guess([c for c in columns if c != item], "basket", columns, where)
    if item is None:
        item = _guess([c for c in columns if c != basket], "item", columns, where)
    if chosen is not None and chosen in (basket, item, *lists):
        reason = f"{chosen!r} cannot say what was chosen of {item!r}: a column of 0 and 1 can"
        raise DataError(f"{where}: {reason}", parameters=("chosen",))
    if basket == item:
        raise DataError(f"{where}: basket= and item= name the same column {item!r}; {_listed(columns)}")
    name, quantity, category = told.get("name"), told.get("quantity"), told.get("category")
    taken = {basket, item, name, quantity, category}
    returns = None if quantity is not None else _only(columns if numbers is None else numbers, "quantity", taken)
    name = name if name is not None else _only(columns if texts is None else texts, "name", taken)
    return Layout(basket, item, quantity, name, category, returns, chosen=chosen)


def matches(columns: Sequence[str], role: str) -> list[str]:
    """Find the columns whose names fit a role best; several if they fit equally well."""
    if len(columns) > MOST_COLUMNS:
        return []
    for tier in _TIERS[role]:
        found = [name for name in columns if len(name) <= LONGEST_NAME and re.fullmatch(tier, _normal(name))]
        if found:
            return found
    return []


def _normal(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def _only(columns: Sequence[str], role: str, taken: set[str | None]) -> str | None:
    """Find the only column that fits a role and has no other, None if in doubt."""
    found = [column for column in matches(columns, role) if column not in taken]
    return found[0] if len(found) == 1 else None


def _list_column(columns: Sequence[str], lists: Sequence[str]) -> str | None:
    """Find the column of lists to take: the only one, or the only one with a fitting name; None if long."""
    scalars = [column for column in columns if column not in lists]
    if matches(scalars, "basket") and matches(scalars, "item"):
        return None
    fitting = lists if len(lists) == 1 else [c for c in lists if re.fullmatch(_LISTS, _normal(c))]
    return fitting[0] if len(fitting) == 1 else None


def check_column(columns: Sequence[str], column: str, role: str, where: str) -> None:
    """Raise `DataError` unless there is one column of this name."""
    count = list(columns).count(column)
    if count != 1:
        called = f"{column!r} for {role}="
        reason = f"the column {called} occurs more than once" if count else f"there is no column {called}"
        raise DataError(f"{where}: {reason}; {_listed(columns)}", parameters=(role,))


def _guess(candidates: Sequence[str], role: str, columns: Sequence[str], where: str) -> str:
    found = matches(candidates, role)
    if len(found) == 1:
        return found[0]
    why = f"{' and '.join(map(repr, found))} fit equally well" if found else "no name says so"
    raise DataError(
        f"{where}: cannot tell which column holds the {role}: {why}; {_listed(columns)}. "
        "Pass basket='...' and item='...' with the names of the two columns",
        parameters=("basket", "item"),
    )


def _listed(columns: Sequence[str]) -> str:
    return "the columns are " + ", ".join(map(repr, columns)) if columns else "there are no columns"


# -- Batches of rows -------------------------------------------------------------------------------


def layout_of(schema: Any, told: Told, *, where: str) -> Layout:
    """Find the columns in an Arrow schema: see `find_layout`."""
    import pyarrow.types as types

    kinds = {field.name: field.type.value_type if types.is_dictionary(field.type) else field.type for field in schema}
    lists = [name for name, kind in kinds.items() if re.match(r"(large_|fixed_size_)?list(_view)?<", str(kind))]
    texts = [name for name, kind in kinds.items() if str(kind) in ("string", "large_string", "string_view")]
    numbers = [name for name, kind in kinds.items() if types.is_integer(kind) or types.is_floating(kind)]
    return find_layout(schema.names, told, lists=lists, texts=texts, numbers=numbers, where=where)


def add_batches(assembler: Assembler, batches: Iterable[Any], layout: Layout, *, where: str) -> None:
    """Add batch after batch; what is wrong is reported by its row, counted from 1."""
    import pyarrow as pa

    first_row = 0
    try:
        for batch in batches:
            add_batch(assembler, batch.select(layout.columns), layout, first_row=first_row)
            first_row += batch.num_rows
    except BadRow as bad:
        raise DataError(f"{where}, row {bad.row + 1}: {bad.reason}") from None
    except pa.ArrowNotImplementedError as error:
        raise DataError(f"{where}: the column types cannot be used for ids ({error})") from error


def add_batch(assembler: Assembler, batch: Any, layout: Layout, *, first_row: int) -> None:
    """Add the rows of an Arrow RecordBatch; a row that is unusable is counted from `first_row` on."""
    rows = _Rows(assembler, {column: _plain(batch.column(column)) for column in layout.columns}, first_row)
    if layout.quantity is not None:
        rows.require_quantities(layout.quantity)
        assembler.n_dropped += rows.keep(rows.numbers(layout.quantity) > 0)
    if layout.returns is not None and assembler.returns == "drop":
        assembler.n_returned += rows.keep(~(rows.numbers(layout.returns) < 0))  # what is no number stays
    if layout.basket is not None:
        rows.require_ids(layout.basket, "basket")
    if layout.lists:
        _add_lists(rows, layout)
        return
    rows.require_ids(layout.item, "item")
    taken = None if layout.chosen is None else rows.flags(layout.chosen)
    owners = rows.encode(str(layout.basket), assembler.baskets)
    codes = rows.encode(layout.item, assembler.items)
    if taken is None:
        assembler.chosen.add(owners, codes)
    else:
        assembler.offered.add(owners, codes)
        assembler.chosen.add(owners[taken], codes[taken])
    for kind, column in zip(LABELS, (layout.name, layout.category), strict=True):
        if column is not None:
            assembler.add_labels(kind, codes, rows.columns[column])


def _add_lists(rows: _Rows, layout: Layout) -> None:
    assembler = rows.assembler
    columns = [column for column in (layout.item, layout.chosen) if column is not None]
    for column in columns:
        rows.require_lists(column)
    n_rows = len(rows.columns[layout.item])
    if layout.basket is None:
        numbers: NDArray[np.integer[Any]] = assembler.new_baskets(n_rows) + np.arange(n_rows)
    else:
        numbers = rows.encode(layout.basket, assembler.baskets)
    for column in columns:
        places, codes = rows.listed(column)
        pairs = assembler.chosen if column == columns[-1] else assembler.offered
        pairs.add(numbers[places], codes)


class _Rows:
    """Columns of Arrow arrays, from which rows are taken out before what is left becomes codes."""

    def __init__(self, assembler: Assembler, columns: dict[str, Any], first_row: int) -> None:
        self.assembler = assembler
        self.columns = columns
        self._places = np.arange(first_row, first_row + len(next(iter(columns.values()))))
        self._distinct: dict[str, tuple[Codes, list[Any]]] = {}

    def keep(self, wanted: NDArray[np.bool_]) -> int:
        """Leave out the other rows, and say how many they are."""
        if wanted.all():
            return 0
        self.columns = {column: values.filter(wanted) for column, values in self.columns.items()}
        self._places = self._places[wanted]
        self._distinct.clear()
        return int(np.count_nonzero(~wanted))

    def require(self, usable: NDArray[np.bool_], why: Callable[[int], str]) -> None:
        """Leave out rows that are unusable, or raise `BadRow` with the reason for the first."""
        if usable.all():
            return
        if self.assembler.on_bad_row == "error":
            first = int(np.argmin(usable))
            raise BadRow(why(first), int(self._places[first]))
        self.assembler.n_bad += self.keep(usable)

    def require_ids(self, column: str, role: str) -> None:
        """Leave out, or refuse, rows without an id."""
        if self._integers(column) is not None:
            return
        indices, values = self.distinct(column)
        as_text = self.assembler.as_text
        missing = [n for n, value in enumerate(values) if value is None or value != value or (as_text and not value)]
        self.require(~np.isin(indices, missing), lambda _: f"the {role} is missing (column {column!r})")

    def require_lists(self, column: str) -> None:
        """Leave out, or refuse, rows without a list or with a hole in it."""
        import pyarrow.compute as pc

        whole = self.columns[column].is_valid().to_numpy(zero_copy_only=False)
        self.require(whole, lambda _: f"there is no list in column {column!r}")
        lists = self.columns[column]
        missing = _plain(pc.list_flatten(lists)).is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        whole = np.ones(len(lists), dtype=bool)
        whole[pc.list_parent_indices(lists).to_numpy()[missing]] = False
        self.require(whole, lambda _: f"an item in the list is missing (column {column!r})")

    def listed(self, column: str) -> tuple[NDArray[np.int64], Codes]:
        """Find the row and the code of every item in a column of lists."""
        import pyarrow.compute as pc

        lists = self.columns[column]
        items = _Rows(self.assembler, {column: _plain(pc.list_flatten(lists))}, 0)
        return pc.list_parent_indices(lists).to_numpy(), items.encode(column, self.assembler.items)

    def flags(self, column: str) -> NDArray[np.bool_]:
        """Tell which rows say yes, after leaving out or refusing those that say neither yes nor no."""
        indices, values = self.distinct(column)
        told = np.array([{True: 1, False: 0, None: -1}[flag(value)] for value in values], dtype=np.int8)[indices]
        self.require(
            told >= 0,
            lambda row: f"{self.columns[column][row].as_py()!r} in column {column!r} says neither yes nor no",
        )
        return told[told >= 0] > 0

    def distinct(self, column: str) -> tuple[Codes, list[Any]]:
        """Number the values of a column in order of first appearance: each row's number, and the values."""
        if column not in self._distinct:
            encoded = self.columns[column].dictionary_encode(null_encoding="encode")
            values = encoded.dictionary.to_pylist()
            if self.assembler.as_text:
                values = [value and value.strip(BLANK) for value in values]
            self._distinct[column] = encoded.indices.to_numpy(), values
        return self._distinct[column]

    def encode(self, column: str, codebook: Codebook) -> Codes:
        """Encode the ids in a column; Python sees only the distinct values."""
        numbers = self._integers(column)
        codes = None if numbers is None else codebook.encode_rising(numbers)
        if codes is not None:
            return codes
        indices, values = self.distinct(column)
        return np.array(codebook.encode(values), dtype=np.int32)[indices]

    def _integers(self, column: str) -> NDArray[np.int64] | None:
        """Return a column of 64-bit integers without a gap; None if it is another."""
        import pyarrow as pa

        values = self.columns[column]
        if not pa.types.is_integer(values.type) or values.type == pa.uint64() or values.null_count:
            return None
        return values.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]

    def require_quantities(self, column: str) -> None:
        """Leave out, or refuse, rows whose quantity is no number."""

        def why(row: int) -> str:
            value = self.columns[column][row].as_py()
            if value is None or value != value or not str(value).strip():
                return f"the quantity is missing (column {column!r})"
            return f"{value!r} in column {column!r} is not a quantity"

        self.require(~np.isnan(self.numbers(column)), why)

    def numbers(self, column: str) -> NDArray[np.float64]:
        """Read a column of numbers, or of texts of numbers; other values are NaN."""
        import pyarrow as pa

        values = self.columns[column]
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
        indices, distinct = self.distinct(column)
        return np.array([_number(value) for value in distinct], dtype=np.float64)[indices]


def flag(value: Any) -> bool | None:
    """Read a value as yes or no: a number is yes above zero and no at zero; None if it is not clear."""
    word = str(value).strip().casefold()
    if word in ("true", "yes", "y", "t", "false", "no", "n", "f"):
        return word in ("true", "yes", "y", "t")
    number = _number(value)
    return number > 0 if number >= 0 else None


def _number(value: Any) -> float:
    """Read a number as tills and spreadsheets write it: −2, -2,5, 2- and (2) are below zero; NaN if it is none."""
    try:
        return float("nan" if value is None or isinstance(value, bool) else value)
    except (TypeError, ValueError):
        found = _NUMBER.fullmatch(str(value).strip())
        if found is None:
            return float("nan")
        size = float(found["size"].replace(",", "."))
        return -size if found["before"] or found["after"] else size


def _plain(values: Any) -> Any:
    """Convert values to an encoding for which Arrow has all the functions needed here."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = pa.DictionaryArray.from_arrays(values.indices, _plain(values.dictionary)).dictionary_decode()
    return values.cast(pa.large_string()) if str(values.type) == "string_view" else values


# -- Baskets put together from rows ----------------------------------------------------------------


class BadRow(Exception):
    """A row that cannot be used; whoever knows the file turns it into a `DataError` with the place."""

    def __init__(self, reason: str, row: int = 0) -> None:
        super().__init__(reason, row)
        self.reason = reason
        self.row = row  # its position in the table


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

    def encode(self, ids: Iterable[Hashable]) -> list[int]:
        """Encode ids, with new codes for those that have none yet."""
        codes = self.codes
        return [codes.setdefault(id_, len(codes)) for id_ in ids]

    def encode_rising(self, ids: NDArray[np.int64]) -> Codes | None:
        """Encode integers that nowhere fall, from the last one known on; None if they do, or others are known."""
        before = self._rising[-1][-1] if self._rising else None
        falls = np.any(ids[1:] < ids[:-1]) or (before is not None and np.any(ids[:1] < before))
        if falls or not len(ids) or not self.only_rises:
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

    def __len__(self) -> int:
        return len(self._codes)

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
        """Keep some baskets, numbered anew, with items by their position among the codes `used`."""
        rows, pairs = kept[self.owners], Pairs()
        pairs.add((np.cumsum(kept) - 1)[self.owners[rows]], np.searchsorted(used, self.codes[rows]))
        return pairs

    def csr(self, n_baskets: int) -> CSR:
        """Sort the pairs into baskets by their numbers, items as they came."""
        owners, codes = self.owners, self.codes
        if np.any(owners[1:] < owners[:-1]):
            order = np.argsort(owners, kind="stable")
            owners, codes = owners[order], codes[order]
        return np.searchsorted(owners, np.arange(n_baskets + 1, dtype=np.int32)), codes


class Assembler:
    """Grows baskets from (basket, item) pairs, which may come in any order.

    If `as_text`, blanks around ids do not count, and if every item is a plain integer, they become integers.
    """

    def __init__(self, *, on_bad_row: OnBadRow = "error", returns: Returns = "drop") -> None:
        self.on_bad_row, self.returns = on_bad_row, returns
        self.as_text = False
        self.baskets = Codebook()
        self.items = Codebook()
        self.n_dropped, self.n_returned, self.n_bad = 0, 0, 0
        self._n_anonymous = 0
        self.chosen = Pairs()
        self.offered = Pairs()  # what baskets were chosen from, if that is known
        # How often an item was seen with each name, and with each category.
        self.labels: dict[str, dict[int, Counter[str]]] = {kind: defaultdict(Counter) for kind in LABELS}

    def new_baskets(self, n: int) -> int:
        """Open `n` baskets that have no id; the number of the first one."""
        first = self._n_anonymous
        self._n_anonymous += n
        return first

    def add_list(
        self, ids: Iterable[Hashable], *, owner: int | None = None, offered: Iterable[Hashable] | None = None
    ) -> None:
        """Put items into a basket, the one numbered `owner` or else a new one; `offered` holds them and the refused."""
        number = self.new_baskets(1) if owner is None else owner
        if offered is not None:
            self.offered.add_list(number, self.items.encode(offered))
        self.chosen.add_list(number, self.items.encode(ids))

    def add_labels(self, kind: str, codes: Codes, column: Any) -> None:
        """Note the names, or the categories, of items from an Arrow array, row by row."""
        import pyarrow as pa

        table = pa.table({"code": codes, "text": column}).drop_null()
        counts = table.group_by(["code", "text"], use_threads=False).aggregate([([], "count_all")])
        for row in counts.to_pylist():
            if text := str(row["text"]).strip(BLANK):
                self.labels[kind][row["code"]][text] += row["count_all"]

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
        rows = self.offered or self.chosen
        self.n_returned += int(np.count_nonzero(~kept[rows.owners]))
        self.baskets = Codebook(itertools.compress(ids, kept.tolist()))
        used = np.unique(np.concatenate([pairs.codes[kept[pairs.owners]] for pairs in (self.chosen, self.offered)]))
        items = list(self.items.codes)
        self.items = Codebook(items[code] for code in used.tolist())
        for kind, seen in self.labels.items():
            self.labels[kind] = {new: seen[old] for new, old in enumerate(used.tolist()) if old in seen}
        self.chosen = self.chosen.taken(kept, used)
        self.offered = self.offered.taken(kept, used)

    def finish(self) -> Assembled:
        """Assemble the baskets in the order of their numbers, items as they came; to be called once."""
        self.drop_cancelled()
        n_baskets = len(self.baskets) + self._n_anonymous
        self.baskets = Codebook()  # often the largest thing here, and no longer needed
        ids = integers_if_all(self.items.codes) if self.as_text else list(self.items.codes)
        # The name that an item has most often; orders are full of remarks such as "damaged" in a name's place.
        names, categories = (
            {ids[code]: seen.most_common(1)[0][0] for code, seen in self.labels[kind].items()} for kind in LABELS
        )
        items = Vocabulary(ids, names=names, categories=categories)
        offered = self.offered.csr(n_baskets) if self.offered else None
        indptr, indices = self.chosen.csr(n_baskets)
        del self.chosen, self.offered  # half of them are owners, which are no longer needed
        return indptr, indices, items, offered

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
    """Convert texts to integers if all are in their usual spelling ('7', not '007' or '+7')."""
    texts = list(ids)
    if all(_INTEGER.fullmatch(str(text)) for text in texts):
        return [int(str(text)) for text in texts]
    return texts
