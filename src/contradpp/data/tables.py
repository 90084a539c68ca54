"""Arrow tables and data frames as baskets: rows become integer codes batch by batch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contradpp._types import Array, Codes, Flags, Ints
from contradpp.data.builder import (
    BadRow,
    BasketBuilder,
    BasketsArgs,
    Codebook,
    OnBadRow,
    Returns,
)
from contradpp.data.columns import (
    LABELS,
    ORDERS,
    ColumnKind,
    ColumnNames,
    Layout,
    find_layout,
    matches,
)
from contradpp.data.files import BLANK
from contradpp.data.orders import as_time, is_missing, read_times
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 20
SEPARATOR = "\x1f"  # between the parts of an id from several columns

_NUMBER = re.compile(
    r"(?P<before>[-\u2212(]?) ?(?P<size>[0-9]+(?:[.,][0-9]+)?)(?:(?P<after>[-\u2212])|\))?"
)


def baskets_from_table(
    table: Any, named: ColumnNames, *, on_bad_row: OnBadRow, returns: Returns
) -> BasketsArgs:
    """Read an Arrow Table, RecordBatch or RecordBatchReader, or any object with an Arrow stream."""
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        table = table.to_reader(max_chunksize=BATCH_ROWS)
    if not hasattr(table, "__arrow_c_stream__"):
        raise ParameterError(
            "from_arrow needs a Table, RecordBatch or RecordBatchReader, "
            f"got {type(table).__name__}"
        )
    reader = pa.RecordBatchReader.from_stream(table)
    first = list(itertools.islice(reader, 1))
    if _one_hot(pa.Table.from_batches(first, reader.schema), named) is not None:
        found = _one_hot(pa.Table.from_batches([*first, *reader], reader.schema), named)
        if found is None:
            raise DataError(
                "the table: a column of 0 and 1 for each item also holds something else"
            )
        return found
    layout = layout_of(reader.schema, named, where="the table")
    builder = BasketBuilder(on_bad_row=on_bad_row, returns=returns)
    add_batches(builder, itertools.chain(first, reader), layout, where="the table")
    baskets = builder.build()
    builder.log_dropped("the table", layout)
    return baskets


def _one_hot(table: pa.Table, named: ColumnNames) -> BasketsArgs | None:
    """Read a row per basket with a column of 0 and 1, or of flags, for each item; None for others.

    At least two of these columns have names that say nothing else.
    """
    names = table.column_names
    owners = {
        role: named.get(role) or next(iter(matches(names, role)), None)
        for role in ("basket", *ORDERS)
    }
    items = [n for n in names if n not in owners.values() and not n.startswith("__index_level_")]
    is_long = any(named.get(role) for role in ("item", "quantity", "chosen", "gap"))
    is_long = is_long or bool(matches(items, "quantity")) or not table.num_rows
    columns = [table.column(name) for name in items]
    if (
        is_long
        or len(items) - len(matches(items, "item")) < 2
        or any(
            c.null_count or not re.match("bool|u?int|float|double", str(c.type)) for c in columns
        )
        or not all(np.isin(column.to_numpy(), (0, 1)).all() for column in columns)
    ):
        return None
    flags = np.stack([column.to_numpy().astype(bool) for column in columns], axis=1)
    rows, codes = np.nonzero(flags)
    indptr = np.searchsorted(rows, np.arange(table.num_rows + 1))
    customers, times = (
        None if column is None else table.column(column).to_pylist()
        for column in (owners[role] for role in ORDERS)
    )
    known_times = None if times is None else read_times(times)
    return indptr, codes.astype(np.int32), Vocabulary(items), None, customers, known_times


def frame_to_arrow(frame: Any, named: ColumnNames) -> pa.Table:
    """Convert a pandas or polars data frame to an Arrow table.

    If a column cannot be converted, only the columns needed are.
    """
    import pyarrow as pa

    frame = collected(frame)
    if not (hasattr(frame, "columns") or hasattr(frame, "__arrow_c_stream__")):
        raise ParameterError(
            f"from_frame needs a pandas or polars data frame, got {type(frame).__name__}"
        )
    unconvertible = (pa.ArrowException, TypeError, ValueError)
    try:
        return pa.table(frame)
    except unconvertible as error:
        if not hasattr(frame, "columns"):
            raise ParameterError(
                f"from_frame needs a data frame, got {type(frame).__name__} ({error})"
            ) from error
        layout = find_layout(list(map(str, frame.columns)), named, kinds={}, where="the frame")
        try:
            return pa.table(frame[layout.columns])
        except unconvertible:
            raise DataError(
                f"the frame cannot be converted ({error}); a column that mixes types, such as "
                "numbers and strings, must be made one type first: frame[column].astype(str)"
            ) from error


def collected(frame: Any) -> Any:
    """Compute a lazy frame of polars; return any other object as it is."""
    is_lazy = hasattr(frame, "collect_schema") and hasattr(frame, "collect")
    return frame.collect() if is_lazy else frame


def layout_of(schema: pa.Schema, named: ColumnNames, *, where: str) -> Layout:
    """Find the columns by role in an Arrow schema: see `find_layout`."""
    kinds = {field.name: _kind(field.type) for field in schema}
    return find_layout(schema.names, named, kinds=kinds, where=where)


def add_batches(
    builder: BasketBuilder, batches: Iterable[pa.RecordBatch], layout: Layout, *, where: str
) -> None:
    """Add batch after batch; an error names its row, counted from 1."""
    import pyarrow as pa

    first_row = 0
    try:
        for batch in batches:
            add_batch(builder, batch.select(layout.columns), layout, first_row=first_row)
            first_row += batch.num_rows
    except BadRow as bad:
        raise DataError(f"{where}, row {bad.row + 1}: {bad.reason}") from None
    except pa.ArrowNotImplementedError as error:
        raise DataError(f"{where}: the column types cannot be used for ids ({error})") from error


def add_batch(
    builder: BasketBuilder, batch: pa.RecordBatch, layout: Layout, *, first_row: int
) -> None:
    """Add the rows of a batch; `BadRow` names an unusable row, counted from `first_row` on."""
    columns = {column: _plain(batch.column(column)) for column in layout.columns}
    if layout.parts:
        columns[str(layout.basket)] = _joined([columns[part] for part in layout.parts])
    if layout.fallback is not None:
        columns[layout.item] = _filled(columns[layout.item], columns[layout.fallback])
    rows = _Rows(builder, columns, first_row)
    if layout.quantity is not None:
        rows.require_quantities(layout.quantity)
        builder.n_dropped += rows.keep(rows.numbers(layout.quantity) > 0)
    if layout.returns is not None and builder.returns == "drop":
        # NaN is not below zero: a row without a number stays. Less refunds, nothing may be left.
        numbers = rows.numbers(layout.returns)
        is_returned = numbers <= 0 if "refund" in layout.returns.casefold() else numbers < 0
        builder.n_returned += rows.keep(~is_returned)
    if layout.basket is not None:
        rows.require_ids(layout.basket, "basket")
    if layout.time is not None:
        rows.require_times(layout)
    if layout.lists:
        _add_lists(rows, layout)
    else:
        _add_entries(rows, layout)


def _add_entries(rows: _Rows, layout: Layout) -> None:
    builder = rows.builder
    rows.require_ids(layout.item, "item")
    is_chosen = None if layout.chosen is None else rows.flags(layout.chosen)
    owners = rows.encode(str(layout.basket), builder.baskets)
    codes = rows.encode(layout.item, builder.items)
    rows.add_orders(layout, owners)
    if is_chosen is None:
        builder.chosen.add(owners, codes)
    else:
        builder.offered.add(owners, codes)
        builder.chosen.add(owners[is_chosen], codes[is_chosen])
    for kind, column in zip(LABELS, (layout.name, layout.category), strict=True):
        if column is not None:
            builder.add_labels(kind, codes, rows.columns[column])


def _add_lists(rows: _Rows, layout: Layout) -> None:
    builder = rows.builder
    columns = [column for column in (layout.item, layout.chosen) if column is not None]
    for column in columns:
        rows.require_lists(column)
    if layout.basket is None:
        n_rows = len(rows.columns[layout.item])
        first = builder.new_baskets(n_rows)
        numbers = np.arange(first, first + n_rows, dtype=np.int32)
    else:
        numbers = rows.encode(layout.basket, builder.baskets)
    rows.add_orders(layout, numbers)
    for column in columns:
        parents, codes = rows.flatten(column)
        entries = builder.chosen if column == columns[-1] else builder.offered
        entries.add(numbers[parents], codes)


class _Rows:
    """Columns of a batch: unusable rows are left out before the others are encoded."""

    def __init__(
        self, builder: BasketBuilder, columns: dict[str, pa.Array], first_row: int
    ) -> None:
        self.builder = builder
        self.columns = columns
        self._positions = np.arange(first_row, first_row + len(next(iter(columns.values()))))
        self._distinct: dict[str, tuple[Codes, list[Any]]] = {}

    def keep(self, wanted: Flags) -> int:
        """Leave out the other rows, and return their number."""
        if wanted.all():
            return 0
        self.columns = {column: values.filter(wanted) for column, values in self.columns.items()}
        self._positions = self._positions[wanted]
        self._distinct.clear()
        return int(np.count_nonzero(~wanted))

    def require(self, usable: Flags, reason: Callable[[int], str]) -> None:
        """Leave out rows that are unusable, or raise `BadRow` with the reason for the first."""
        if usable.all():
            return
        if self.builder.on_bad_row == "error":
            first = int(np.argmin(usable))
            raise BadRow(reason(first), int(self._positions[first]))
        self.builder.n_bad += self.keep(usable)

    def require_ids(self, column: str, role: str) -> None:
        """Require an id in every row."""
        if self._integers(column) is not None:
            return
        indices, values = self.distinct(column)
        missing = [
            n
            for n, value in enumerate(values)
            if value is None or value != value or (self.builder.as_text and not value)
        ]
        present = ~np.isin(indices, missing)
        self.require(present, lambda _: f"the {role} is missing (column {column!r})")

    def require_lists(self, column: str) -> None:
        """Require a list without missing items in every row."""
        import pyarrow.compute as pc

        valid = self.columns[column].is_valid().to_numpy(zero_copy_only=False)
        self.require(valid, lambda _: f"there is no list in column {column!r}")
        lists = self.columns[column]
        items = _plain(pc.list_flatten(lists))
        missing = items.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        complete = np.ones(len(lists), dtype=bool)
        complete[pc.list_parent_indices(lists).to_numpy()[missing]] = False
        self.require(complete, lambda _: f"an item in the list is missing (column {column!r})")

    def require_quantities(self, column: str) -> None:
        """Require a number in every row."""

        def reason(row: int) -> str:
            value = self.columns[column][row].as_py()
            if value is None or value != value or not str(value).strip():
                return f"the quantity is missing (column {column!r})"
            return f"{value!r} in column {column!r} is not a quantity"

        self.require(~np.isnan(self.numbers(column)), reason)

    def flags(self, column: str) -> Flags:
        """Read a column of yes and no, and require one of them in every row."""
        indices, values = self.distinct(column)
        as_number = {True: 1, False: 0, None: -1}
        flags = np.array([as_number[parse_flag(value)] for value in values], dtype=np.int8)[indices]

        def reason(row: int) -> str:
            value = self.columns[column][row].as_py()
            return f"{value!r} in column {column!r} says neither yes nor no"

        self.require(flags >= 0, reason)
        return flags[flags >= 0] > 0

    def require_times(self, layout: Layout) -> None:
        """Require a time, or nothing, in every row; a column that was guessed is then not used."""
        column = str(layout.time)
        indices, values = self.distinct(column)
        is_time = [as_time(value) is not None or is_missing(value) for value in values]
        if not all(is_time) and "time" in layout.guessed:
            wrong = values[is_time.index(False)]
            self.builder.times.refused = f"times are not read: {wrong!r} in {column!r} is none"
            return

        def reason(row: int) -> str:
            return f"{self.columns[column][row].as_py()!r} in column {column!r} is not a time"

        self.require(np.array(is_time, dtype=bool)[indices], reason)

    def add_orders(self, layout: Layout, owners: NDArray[np.integer]) -> None:
        """Add the customers and the times of these baskets, row by row."""
        builder = self.builder
        for role, values in (("customer", builder.customers), ("time", builder.times)):
            column = getattr(layout, role)
            if column is None:
                continue
            values.guessed = role in layout.guessed
            indices, distinct = self.distinct(column)
            codes = np.array(values.encode(distinct), dtype=np.int32)[indices]
            agree = values.add(owners, codes)
            if role == "customer" and not agree.all():
                reason = f"the basket has another customer here than before (column {column!r})"
                if not values.guessed:
                    raise BadRow(reason, int(self._positions[np.argmin(agree)]))
                values.refused = f"customers are not read: {reason}"

    def flatten(self, column: str) -> tuple[Ints, Codes]:
        """Return the row and the code of every item in a column of lists."""
        import pyarrow.compute as pc

        lists = self.columns[column]
        items = _Rows(self.builder, {column: _plain(pc.list_flatten(lists))}, 0)
        return pc.list_parent_indices(lists).to_numpy(), items.encode(column, self.builder.items)

    def distinct(self, column: str) -> tuple[Codes, list[Any]]:
        """Number the values of a column in order of first appearance.

        Returns the number of every row's value, and the distinct values.
        """
        if column not in self._distinct:
            encoded = self.columns[column].dictionary_encode(null_encoding="encode")
            values = encoded.dictionary.to_pylist()
            if self.builder.as_text:
                values = [value and value.strip(BLANK) for value in values]
            self._distinct[column] = encoded.indices.to_numpy(), values
        return self._distinct[column]

    def encode(self, column: str, codebook: Codebook) -> Codes:
        """Encode the ids in a column; only distinct values become Python objects."""
        integers = self._integers(column)
        codes = None if integers is None else codebook.encode_rising(integers)
        if codes is not None:
            return codes
        indices, values = self.distinct(column)
        return np.array(codebook.encode(values), dtype=np.int32)[indices]

    def numbers(self, column: str) -> Array:
        """Read a column of numbers, or of texts of numbers; other values are NaN."""
        import pyarrow as pa

        values = self.columns[column]
        if _kind(values.type) == "number":
            floats: Array = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            return floats
        indices, distinct = self.distinct(column)
        return np.array([_parse_number(value) for value in distinct], dtype=np.float64)[indices]

    def _integers(self, column: str) -> Ints | None:
        """Return a column of 64-bit integers without a gap; None if it is another."""
        import pyarrow as pa

        values = self.columns[column]
        if not pa.types.is_integer(values.type) or values.type == pa.uint64() or values.null_count:
            return None
        integers: Ints = values.cast(pa.int64()).to_numpy()
        return integers


def parse_flag(value: Any) -> bool | None:
    """Read a value as yes or no; a number is yes above zero and no at zero; None if unclear."""
    word = str(value).strip().casefold()
    if word in ("true", "yes", "y", "t"):
        return True
    if word in ("false", "no", "n", "f"):
        return False
    number = _parse_number(value)
    return number > 0 if number >= 0 else None


def _parse_number(value: Any) -> float:
    """Read a number as tills and spreadsheets write it; NaN if it is none.

    −2, -2,5, 2- and (2) are below zero.
    """
    try:
        return float("nan" if value is None or isinstance(value, bool) else value)
    except (TypeError, ValueError):
        found = _NUMBER.fullmatch(str(value).strip())
        if found is None:
            return float("nan")
        size = float(found["size"].replace(",", "."))
        return -size if found["before"] or found["after"] else size


def _kind(type_: pa.DataType) -> ColumnKind:
    import pyarrow.types as types

    if types.is_dictionary(type_):
        type_ = type_.value_type
    if re.match(r"(large_|fixed_size_)?list(_view)?<", str(type_)):
        return "lists"
    if str(type_) in ("string", "large_string", "string_view"):
        return "text"
    return "number" if types.is_integer(type_) or types.is_floating(type_) else "other"


def _joined(columns: list[pa.Array]) -> pa.Array:
    """Return the texts of several columns as one id, null where one of them is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [_filled(column.cast(pa.string())) for column in columns]
    return pc.binary_join_element_wise(*texts, SEPARATOR)


def _filled(column: pa.Array, other: pa.Array | None = None) -> pa.Array:
    """Return the column with blank texts as nulls, or with the other column in place of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if other is not None and other.type != column.type:
        column, other = column.cast(pa.string()), other.cast(pa.string())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        is_blank = pc.equal(pc.utf8_trim_whitespace(column), "")
        column = pc.if_else(is_blank, pa.scalar(None, column.type), column)
    return column if other is None else pc.coalesce(column, other)


def _plain(values: pa.Array) -> pa.Array:
    """Convert values to an encoding for which Arrow has all the functions needed here."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        decoded = _plain(values.dictionary)
        values = pa.DictionaryArray.from_arrays(values.indices, decoded).dictionary_decode()
    if pa.types.is_timestamp(values.type):  # Python's have microseconds
        values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
    return values.cast(pa.large_string()) if str(values.type) == "string_view" else values
