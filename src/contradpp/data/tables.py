"""Tables as baskets: Arrow batches and data frames, long (a row per basket and item) or with a column of lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.assemble import LABELS, Assembled, Assembler, BadRow, Codebook, Codes, OnBadRow, Returns
from contradpp.data.columns import Layout, Told, find_layout
from contradpp.data.files import BLANK
from contradpp.errors import DataError, ParameterError

BATCH_ROWS = 1 << 20
_MINUS = "[-\u2212(]"  # whatever makes a number one below zero
_NUMBER = re.compile(r"(?P<before>[-\u2212(]?) ?(?P<size>[0-9]+(?:[.,][0-9]+)?)(?:(?P<after>[-\u2212])|\))?")


def layout_of(schema: Any, told: Told, *, where: str) -> Layout:
    """Find the columns in an Arrow schema: see `find_layout`."""
    import pyarrow.types as types

    kinds = {field.name: field.type.value_type if types.is_dictionary(field.type) else field.type for field in schema}
    lists = [name for name, kind in kinds.items() if _is_list(kind)]
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
    if layout.returns is not None and assembler.returns == "drop" and rows.has_minus(layout.returns):
        assembler.n_returned += rows.keep(~(rows.numbers(layout.returns) < 0))  # what is no number stays
    if layout.basket is not None:
        rows.require_ids(layout.basket, "basket")
    if layout.lists:
        _add_lists(rows, layout)
        return
    rows.require_ids(layout.item, "item")
    if layout.chosen is not None:
        rows.require_flags(layout.chosen)
    owners = rows.encode(str(layout.basket), assembler.baskets)
    codes = rows.encode(layout.item, assembler.items)
    if layout.chosen is None:
        assembler.add(owners, codes)
    else:
        taken = rows.flags(layout.chosen)
        assembler.offered.add(owners, codes)
        assembler.add(owners[taken], codes[taken])
    for kind, column in zip(LABELS, (layout.name, layout.category), strict=True):
        if column is not None:
            assembler.add_labels(kind, codes, rows.columns[column])


def _add_lists(rows: _Rows, layout: Layout) -> None:
    assembler = rows.assembler
    columns = [layout.item] if layout.chosen is None else [layout.item, layout.chosen]
    for column in columns:
        rows.require_lists(column)
    n_rows = len(rows.columns[layout.item])
    if layout.basket is None:
        numbers: NDArray[np.integer[Any]] = assembler.new_baskets(n_rows) + np.arange(n_rows)
    else:
        numbers = rows.encode(layout.basket, assembler.baskets)
    pairs = [rows.listed(column) for column in columns]
    assembler.add(numbers[pairs[-1][0]], pairs[-1][1])
    if layout.chosen is not None:
        assembler.offered.add(numbers[pairs[0][0]], pairs[0][1])


class _Rows:
    """Columns of Arrow arrays, from which rows are taken out before what is left becomes codes."""

    def __init__(self, assembler: Assembler, columns: dict[str, Any], first_row: int) -> None:
        self.assembler = assembler
        self.columns = columns
        self._places = np.arange(first_row, first_row + len(next(iter(columns.values()))))
        self._distinct: dict[str, tuple[Codes, list[Any]]] = {}

    def keep(self, wanted: NDArray[np.bool_]) -> int:
        """Leave out the other rows, and say how many they are."""
        import pyarrow as pa

        n_others = int(np.count_nonzero(~wanted))
        if n_others:
            mask = pa.array(wanted)
            self.columns = {column: values.filter(mask) for column, values in self.columns.items()}
            self._places = self._places[wanted]
            self._distinct.clear()
        return n_others

    def require(self, usable: NDArray[np.bool_], why: Callable[[int], str]) -> None:
        """Leave out rows that are unusable, or raise `BadRow` with the reason for the first."""
        if not usable.all():
            first = int(np.argmin(usable))
            place, reason = int(self._places[first]), why(first)
            self.assembler.bad_row(place, reason, times=self.keep(usable))

    def require_ids(self, column: str, role: str) -> None:
        """A row without an id is unusable."""
        if self._integers(column) is not None:
            return
        indices, values = self.distinct(column)
        if self.assembler.as_text:
            missing = [] if all(values) else [n for n, value in enumerate(values) if not value]
        else:
            missing = [n for n, value in enumerate(values) if value is None or value != value]
        if missing:
            self.require(~np.isin(indices, missing), lambda _: f"the {role} is missing (column {column!r})")

    def require_lists(self, column: str) -> None:
        """A row without a list, or with a hole in it, is unusable."""
        import pyarrow.compute as pc

        whole = self.columns[column].is_valid().to_numpy(zero_copy_only=False)
        self.require(whole, lambda _: f"there is no list in column {column!r}")
        lists = self.columns[column]
        holes = pc.list_parent_indices(lists).to_numpy()[_missing(_plain(pc.list_flatten(lists)))]
        if len(holes):
            whole = np.ones(len(lists), dtype=bool)
            whole[holes] = False
            self.require(whole, lambda _: f"an item in the list is missing (column {column!r})")

    def listed(self, column: str) -> tuple[NDArray[np.int64], Codes]:
        """The row and the code of every item in a column of lists."""
        import pyarrow.compute as pc

        lists = self.columns[column]
        items = _Rows(self.assembler, {column: _plain(pc.list_flatten(lists))}, 0)
        return pc.list_parent_indices(lists).to_numpy(), items.encode(column, self.assembler.items)

    def require_flags(self, column: str) -> None:
        """A row that says neither yes nor no is unusable."""
        indices, values = self.distinct(column)
        unclear = [n for n, value in enumerate(values) if flag(value) is None]
        if unclear:
            self.require(
                ~np.isin(indices, unclear),
                lambda row: f"{self.columns[column][row].as_py()!r} in column {column!r} says neither yes nor no",
            )

    def flags(self, column: str) -> NDArray[np.bool_]:
        """Which rows say yes."""
        indices, values = self.distinct(column)
        return np.array([bool(flag(value)) for value in values], dtype=bool)[indices]

    def distinct(self, column: str) -> tuple[Codes, list[Any]]:
        """For each row a number, and the value that stands for each number, in order of first appearance."""
        if column not in self._distinct:
            encoded = self.columns[column].dictionary_encode(null_encoding="encode")
            values = encoded.dictionary.to_pylist()
            if self.assembler.as_text:
                values = [value and value.strip(BLANK) for value in values]
            self._distinct[column] = encoded.indices.to_numpy(), values
        return self._distinct[column]

    def encode(self, column: str, codebook: Codebook) -> Codes:
        """The codes of the ids in a column; Python sees only the distinct values."""
        numbers = self._integers(column)
        codes = None if numbers is None else codebook.encode_rising(numbers)
        if codes is not None:
            return codes
        indices, values = self.distinct(column)
        return np.array(codebook.encode(values), dtype=np.int32)[indices]

    def _integers(self, column: str) -> NDArray[np.int64] | None:
        """A column of integers without a gap, that 64 bits hold; None if it is another."""
        import pyarrow as pa

        values = self.columns[column]
        if not pa.types.is_integer(values.type) or values.type == pa.uint64() or values.null_count:
            return None
        return values.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]

    def require_quantities(self, column: str) -> None:
        """A row whose quantity is no number is unusable."""

        def why(row: int) -> str:
            value = self.columns[column][row].as_py()
            if value is None or value != value or not str(value).strip():
                return f"the quantity is missing (column {column!r})"
            return f"{value!r} in column {column!r} is not a quantity"

        self.require(~np.isnan(self.numbers(column)), why)

    def has_minus(self, column: str) -> bool:
        """Whether some number of a column may be below zero: quick to tell, also of texts."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = self.columns[column]
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            return bool(pc.any(pc.match_substring_regex(values, _MINUS)).as_py())
        return True

    def numbers(self, column: str) -> NDArray[np.float64]:
        """A column of numbers, or of texts of numbers; what is none is NaN."""
        import pyarrow as pa

        values = self.columns[column]
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
        indices, distinct = self.distinct(column)
        return np.array([_number(value) for value in distinct], dtype=np.float64)[indices]


def flag(value: Any) -> bool | None:
    """What a value says: a number yes above zero and no at zero, words as usual; None if that is not clear."""
    word = str(value).strip().casefold()
    if word in ("true", "yes", "y", "t", "false", "no", "n", "f"):
        return word in ("true", "yes", "y", "t")
    number = _number(value)
    return number > 0 if number >= 0 else None


def _number(value: Any) -> float:
    """A number as tills and spreadsheets write it: −2, -2,5, 2- and (2) are below zero; NaN if it is none."""
    try:
        return float("nan" if value is None or isinstance(value, bool) else value)
    except (TypeError, ValueError):
        found = _NUMBER.fullmatch(str(value).strip())
        if found is None:
            return float("nan")
        size = float(found["size"].replace(",", "."))
        return -size if found["before"] or found["after"] else size


def _missing(values: Any) -> NDArray[np.bool_]:
    return values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _plain(values: Any) -> Any:
    """The values in an encoding for which Arrow has all the functions needed here."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = pa.DictionaryArray.from_arrays(values.indices, _plain(values.dictionary)).dictionary_decode()
    if getattr(pa.types, "is_string_view", lambda _: False)(values.type):
        values = values.cast(pa.large_string())
    return values


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    tests = ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
    return any(getattr(types, test)(kind) for test in tests if hasattr(types, test))


# -- Data frames -------------------------------------------------------------------------------------------


def assemble_table(table: Any, told: Told, *, on_bad_row: OnBadRow, returns: Returns) -> Assembled:
    """An Arrow Table, RecordBatch or RecordBatchReader, or whatever exports an Arrow stream, as baskets."""
    schema, batches = _batches(table)
    layout = layout_of(schema, told, where="the table")
    assembler = Assembler(on_bad_row=on_bad_row, returns=returns)
    add_batches(assembler, batches, layout, where="the table")
    assembled = assembler.finish()
    assembler.report("the table", layout)
    return assembled


def frame_to_arrow(frame: Any, told: Told) -> Any:
    """A pandas or polars data frame as an Arrow table, through the Arrow stream interface if it has one.

    The columns matter only if some other column cannot be converted: then only those needed are.
    """
    import pyarrow as pa

    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # polars: a frame that is yet to be computed
        frame = frame.collect()
    if not (hasattr(frame, "columns") or hasattr(frame, "__arrow_c_stream__")):
        raise ParameterError(f"from_frame needs a pandas or polars data frame, got {type(frame).__name__}")
    unconvertible = (pa.ArrowException, TypeError, ValueError)
    try:
        return _exported(frame)
    except unconvertible as error:
        if not hasattr(frame, "columns"):
            raise ParameterError(f"from_frame needs a data frame, got {type(frame).__name__} ({error})") from error
        layout = find_layout(list(map(str, frame.columns)), told, texts=(), numbers=(), where="the frame")
        try:
            return _exported(frame[layout.columns])
        except unconvertible:
            raise DataError(
                f"the frame cannot be converted ({error}); a column that mixes types, such as numbers and "
                "strings, must be made one type first: frame[column].astype(str)"
            ) from error


def _exported(frame: Any) -> Any:
    import pyarrow as pa

    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    return pa.Table.from_pandas(frame, preserve_index=False)


def _batches(table: Any) -> tuple[Any, Iterator[Any]]:
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return table.schema, iter(table.to_batches(max_chunksize=BATCH_ROWS))
    if isinstance(table, pa.RecordBatch):
        return table.schema, iter([table])
    if not isinstance(table, pa.RecordBatchReader):
        if not hasattr(table, "__arrow_c_stream__"):
            raise ParameterError(
                f"from_arrow needs a Table, RecordBatch or RecordBatchReader, got {type(table).__name__}"
            )
        table = pa.RecordBatchReader.from_stream(table)
    return table.schema, iter(table)
