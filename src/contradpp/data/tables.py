"""Arrow tables and data frames as baskets: long (a row per item) or with a column of lists."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.assemble import Assembler, BadRow
from contradpp.data.baskets import Baskets
from contradpp.data.columns import Layout, find_layout
from contradpp.errors import DataError, ParameterError

logger = logging.getLogger("contradpp")

BATCH_ROWS = 1 << 20


def layout_of(schema: Any, *, where: str, **told: str | None) -> Layout:
    """Find the columns in an Arrow schema: see `find_layout`."""
    lists = [field.name for field in schema if _is_list(field.type)]
    return find_layout(schema.names, lists=lists, where=where, **told)


def add_batch(assembler: Assembler, batch: Any, layout: Layout, *, first_row: int) -> None:
    """Add the rows of an Arrow RecordBatch; `BadRow` tells which row (from `first_row` on) is unusable."""
    rows = np.arange(first_row, first_row + batch.num_rows)
    columns = {column: _plain(batch.column(column)) for column in layout.columns}
    if layout.quantity is not None:
        positive = _positive(columns[layout.quantity], layout.quantity, rows)
        assembler.n_dropped += int(np.count_nonzero(~positive))
        columns = {column: values.filter(_mask(positive)) for column, values in columns.items()}
        rows = rows[positive]
    if layout.lists:
        _add_lists(assembler, columns, layout, rows)
        return
    owners = assembler.baskets.encode_arrow(_ids(columns, str(layout.basket), "basket", rows))
    codes = assembler.items.encode_arrow(_ids(columns, layout.item, "item", rows))
    assembler.add(owners, codes)
    if layout.name is not None:
        assembler.add_names(codes, columns[layout.name])


def report_dropped(assembler: Assembler, quantity: str | None, where: str) -> None:
    """Log how many rows were left out because their quantity is not positive."""
    if assembler.n_dropped:
        logger.warning("%s: dropped %d rows whose %s is not positive", where, assembler.n_dropped, quantity)


def baskets_from_table(
    table: Any,
    *,
    basket: str | None = None,
    item: str | None = None,
    quantity: str | None = None,
    name: str | None = None,
) -> Baskets:
    """Baskets from an Arrow Table, RecordBatch or RecordBatchReader, or whatever exports an Arrow stream.

    Parameters are those of `Baskets.from_arrow`; `name` is a column of readable item names.
    """
    schema, batches = _batches(table)
    layout = layout_of(schema, basket=basket, item=item, quantity=quantity, name=name, where="the table")
    assembler = Assembler()
    add_batches(assembler, batches, layout, where="the table")
    report_dropped(assembler, quantity, "the table")
    return assembler.finish()


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


def frame_to_arrow(
    frame: Any, *, basket: str | None = None, item: str | None = None, quantity: str | None = None
) -> Any:
    """A pandas or polars data frame as an Arrow table, through the Arrow stream interface if it has one.

    The columns matter only if some other column cannot be converted: then only those needed are.
    """
    import pyarrow as pa

    if not (hasattr(frame, "columns") or hasattr(frame, "__arrow_c_stream__")):
        raise ParameterError(f"from_frame needs a pandas or polars data frame, got {type(frame).__name__}")
    unconvertible = (pa.ArrowException, TypeError, ValueError)
    try:
        return _exported(frame)
    except unconvertible as error:
        names = list(map(str, frame.columns))
        layout = find_layout(names, basket=basket, item=item, quantity=quantity, where="the frame")
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


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    tests = ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
    return any(getattr(types, test)(kind) for test in tests if hasattr(types, test))


def _mask(keep: NDArray[np.bool_]) -> Any:
    import pyarrow as pa

    return pa.array(keep)


def _first(flags: Any) -> int | None:
    """The position of the first true flag of an Arrow boolean array."""
    found = np.flatnonzero(flags.to_numpy(zero_copy_only=False))
    return int(found[0]) if len(found) else None


def _ids(columns: dict[str, Any], column: str, role: str, rows: NDArray[np.int64]) -> Any:
    """A column of ids; a missing one is a `BadRow`."""
    values = columns[column]
    missing = _first(values.is_null(nan_is_null=True))
    if missing is not None:
        raise BadRow(int(rows[missing]), f"the {role} is missing (column {column!r})")
    return values


def _plain(values: Any) -> Any:
    """The values in an encoding for which Arrow has all the functions needed here."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if getattr(pa.types, "is_string_view", lambda _: False)(values.type):
        values = values.cast(pa.large_string())
    return values


def _add_lists(assembler: Assembler, columns: dict[str, Any], layout: Layout, rows: NDArray[np.int64]) -> None:
    import pyarrow.compute as pc

    lists = columns[layout.item]
    absent = _first(lists.is_null())
    if absent is not None:
        raise BadRow(int(rows[absent]), f"there is no list in column {layout.item!r}")
    parents = pc.list_parent_indices(lists).to_numpy()
    values = _plain(pc.list_flatten(lists))
    missing = _first(values.is_null(nan_is_null=True))
    if missing is not None:
        raise BadRow(int(rows[parents[missing]]), f"an item in the list is missing (column {layout.item!r})")
    if layout.basket is None:
        owners = assembler.new_baskets(len(lists)) + parents
    else:
        owners = assembler.baskets.encode_arrow(_ids(columns, layout.basket, "basket", rows))[parents]
    assembler.add(owners, assembler.items.encode_arrow(values))


def _positive(values: Any, column: str, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a column of quantities, numbers or texts of numbers, is above zero."""
    numbers = _numbers(values, column, rows)
    if np.isnan(numbers).any():
        row = int(np.flatnonzero(np.isnan(numbers))[0])
        raise BadRow(int(rows[row]), f"the quantity is missing (column {column!r})")
    return numbers > 0


def _numbers(values: Any, column: str, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type))
    try:
        if texts:
            values = pc.utf8_trim_whitespace(values.cast(pa.string()))
        return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    except pa.ArrowException:
        for row, text in enumerate(values.to_pylist()):
            try:
                float(text or "nan")
            except ValueError:
                raise BadRow(int(rows[row]), f"{text!r} in column {column!r} is not a quantity") from None
        raise
