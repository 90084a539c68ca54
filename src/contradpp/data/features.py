"""Features of items as the user gives them: tables, arrays, mappings and files, read into columns or vectors."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contradpp.data.assemble import integers_if_all
from contradpp.data.columns import check_column, long_separator, matches
from contradpp.data.files import PARQUET, Text, opened
from contradpp.data.formats import records
from contradpp.data.vocabulary import plain
from contradpp.errors import DataError, ParameterError

KINDS = TEXT, CATEGORY, NUMBER, VECTOR = ("text", "category", "number", "vector")


class Column(NamedTuple):
    """The values of one column, None where one is missing; the kind only where the type says it."""

    values: list[Any]
    kind: str | None = None


class Given(NamedTuple):
    """Features as the user gave them: ids (None for an array, whose rows are in order) and columns, or vectors."""

    ids: list[Hashable] | None
    columns: dict[str, Column]
    vectors: Any = None  # a dense or sparse array

    def take(self, items: Iterable[Hashable]) -> Given:
        """The rows of these items, of those that have one, in this order."""
        places = {one: row for row, one in enumerate(self.ids or ())}
        rows = [places[item] for item in items if item in places]
        columns = {name: Column([c.values[row] for row in rows], c.kind) for name, c in self.columns.items()}
        vectors = None if self.vectors is None else self.vectors[rows]
        return Given([self.ids[row] for row in rows] if self.ids else None, columns, vectors)


def given_features(features: Any) -> Given:
    """Read a data frame, Arrow table, array, sparse array, or mapping of item to a vector or to named values.

    None tells of no item.
    """
    if features is None:
        return Given([], {})
    if isinstance(features, Given):
        return features
    if isinstance(features, Mapping):
        return _of_mapping(features)
    if hasattr(features, "tocsr"):
        return Given(None, {}, features.tocsr())
    if hasattr(features, "collect_schema") and hasattr(features, "collect"):  # polars: yet to be computed
        features = features.collect()
    if hasattr(features, "column_names") or hasattr(features, "columns"):
        return _of_frame(features, None)
    if isinstance(features, (np.ndarray, list, tuple)):
        return Given(None, {}, as_vectors(features))
    raise ParameterError(
        "item_features must be a data frame, an Arrow table, an array, a sparse array or a mapping of item to vector, "
        f"got {type(features).__name__}"
    )


def read_features(path: str | os.PathLike[str], *, item: str | None = None) -> Given:
    """The features in a CSV or Parquet file with a row per item; its item column is guessed unless it is named."""
    with opened(Path(path).expanduser()) as source:
        if source.head(len(PARQUET)) == PARQUET:
            import pyarrow.parquet as parquet

            return _of_frame(parquet.read_table(Path(path).expanduser()), item, where=str(path))
        text = Text(source)
        first = text.first_lines()
        if not first:
            raise DataError(f"{path}: the file is empty")
        separator = long_separator(first[0], columns=[item] if item else ())
        (_, header), *rows = [(line, row) for line, row in records(text, separator, strict=True) if row]
    for line, row in rows:
        if len(row) != len(header):
            raise text.error(line, f"the header has {len(header)} fields but this row has {len(row)} fields")
    told = _item_column(header, item, str(path))
    columns = {name: _of_texts([row[k].strip() for _, row in rows]) for k, name in enumerate(header) if name != told}
    place = header.index(told)
    return _checked(Given(integers_if_all(row[place].strip() for _, row in rows), columns), str(path))


def _item_column(columns: Sequence[str], item: str | None, where: str) -> str:
    if item is not None:
        check_column(columns, item, "item", where)
        return item
    found = _fitting(columns)
    if not found:
        listed = ", ".join(map(repr, columns))
        raise DataError(f"{where}: cannot tell which column holds the items: call it 'item'; the columns are {listed}")
    return found[0]


def _fitting(columns: Sequence[str]) -> list[str]:
    """The column that holds the items, by its name; none if in doubt."""
    found = matches(columns, "item")
    return found if len(found) == 1 else [column for column in columns if column.casefold() in ("item", "id")][:1]


def _of_texts(texts: list[str]) -> Column:
    """Texts, or numbers if all that are there can be read as such."""
    try:
        return Column([float(text) if text else None for text in texts])
    except ValueError:
        return Column([text or None for text in texts])


def _of_mapping(features: Mapping[Any, Any]) -> Given:
    ids, rows = [plain(item) for item in features], list(features.values())
    if any(isinstance(row, Mapping) for row in rows):
        named = [row if isinstance(row, Mapping) else {} for row in rows]
        if any(row is not None and not isinstance(row, Mapping) for row in rows):
            raise DataError("item_features mixes vectors and named values: give every item the same")
        names = dict.fromkeys(str(name) for row in named for name in row)
        return Given(ids, {name: Column([row.get(name) for row in named]) for name in names})
    there = [row for row in rows if row is not None]
    widths = {np.size(row) for row in there}
    if len(widths) > 1:
        raise DataError(f"the vectors of item_features have different lengths: {sorted(widths)}")
    if not there:
        return _checked(Given(ids, {}), "item_features")
    nothing = [np.nan] * widths.pop()
    return _checked(Given(ids, {}, as_vectors([nothing if row is None else row for row in rows])), "item_features")


def _of_frame(frame: Any, item: str | None, where: str = "item_features") -> Given:
    """A frame of pandas or polars, or an Arrow table; the index of a pandas frame may hold the ids."""
    names = [str(name) for name in getattr(frame, "column_names", None) or frame.columns]
    index = getattr(frame, "index", None)
    named = getattr(index, "name", None) is not None or type(index).__name__ != "RangeIndex"
    if item is None and index is not None and named and not callable(index) and not _fitting(names):
        told, ids = None, list(index)
    else:
        told = _item_column(names, item, where)
        ids = _values(frame[told])
    columns = {name: Column(_values(frame[name]), _kind_of_type(frame[name])) for name in names if name != told}
    return _checked(Given([plain(one) for one in ids], columns), where)


def _values(column: Any) -> list[Any]:
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def _kind_of_type(column: Any) -> str | None:
    """Category types of pandas, polars and Arrow say what they are."""
    name = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
    return CATEGORY if name.startswith(("category", "categorical", "enum", "dictionary")) else None


def as_vectors(rows: Any) -> Any:
    """Rows of numbers as an array, or DataError."""
    try:
        vectors = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("item_features must hold numbers only, in rows of the same length") from None
    if vectors.ndim != 2:
        raise DataError(f"item_features must have a row per item, got an array of {vectors.ndim} dimensions")
    return vectors


def _checked(given: Given, where: str) -> Given:
    ids = given.ids or []
    if any(one is None or one != one or one == "" for one in ids):
        row = next(k for k, one in enumerate(ids) if one is None or one != one or one == "")
        raise DataError(f"{where}, row {row + 1}: the item is missing")
    if len(set(ids)) < len(ids):
        seen: set[Hashable] = set()
        twice = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
        raise DataError(f"{where}: there are two rows for the item {twice!r}")
    return given
