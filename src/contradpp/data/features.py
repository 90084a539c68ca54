"""Features of items: tables, arrays, mappings and files, encoded as a matrix with a row per item.

Every column is encoded by its kind:

- Text, if more than half of its values are different. Its words, pairs of words and runs of four
  letters are hashed to 2¹⁸ columns. A term in n_t of the n texts has the weight
  log((1 + n)/(1 + n_t)). Words and runs are scaled to length 1 each.
- Category: other strings, category types, true or false, and whole numbers in a column whose name
  ends in id. There is a column of ones and zeros for every value.
- Number: less its mean, in units of three standard deviations, clipped to [−1, 1].
- Vector: a column of lists, or an array or a mapping instead of a table. It is scaled to length 1.

Missing values, unknown categories, constant numbers and items without a row are zero. In the end
every row is scaled to length 1, so that products of rows are cosines. Nothing is drawn at random.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._types import Array, Flags, Ints
from contradpp.data.builder import integers_if_all
from contradpp.data.columns import check_column, matches
from contradpp.data.files import PARQUET, Text, opened
from contradpp.data.readers import read_columns
from contradpp.data.tables import collected
from contradpp.data.vocabulary import Vocabulary, plain
from contradpp.errors import DataError, ParameterError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

TEXT = "text"
CATEGORY = "category"
NUMBER = "number"
VECTOR = "vector"
KINDS = (TEXT, CATEGORY, NUMBER, VECTOR)
N_HASHED = 2**18
RUN_LENGTH = 4  # letters
MAX_SIGMA = 3.0

Singles = NDArray[np.float32]

_MAX_VALUE = 1e15  # of a feature in a file: larger squares overflow in single precision
_WORD = re.compile(r"\w+")
_ID_NAME = re.compile(r".*(_|\b)id|.*[a-z]I[dD]")


@dataclass(frozen=True)
class ItemFeatures:
    """Features of all items of a vocabulary, with the encoder that makes them.

    `matrix` has a row per item, zeros for items without features. `n_unknown` counts rows that
    were left out because their items are not in the vocabulary.
    """

    encoder: FeatureEncoder
    matrix: FeatureMatrix
    n_unknown: int = 0

    @staticmethod
    def learn(features: Any, items: Vocabulary) -> ItemFeatures:
        """Fit an encoder to all rows, and encode the features of these items."""
        table = as_feature_table(features)
        if table.ids == []:
            raise DataError("item_features has no rows")
        encoder = FeatureEncoder.fit(table)
        if table.ids is None:
            if table.n_rows != len(items):
                raise ParameterError(
                    f"item_features has {table.n_rows:,} rows, but there are {len(items):,} items; "
                    "an array must have a row per item, in the order of the baskets' items. "
                    "A mapping of item to vector may leave some out"
                )
            return ItemFeatures(encoder, encoder.transform(table))
        codes = items.find(table.ids)
        if not (codes >= 0).any():
            shown = ", ".join(map(repr, table.ids[:3]))
            raise DataError(
                "no row of item_features belongs to an item of the baskets: "
                f"its items are {shown}, ..., "
                f"those of the baskets {', '.join(map(repr, items[:3]))}, ..."
            )
        matrix = encoder.transform(table).place(codes, len(items))
        return ItemFeatures(encoder, matrix, int((codes < 0).sum()))

    def rows_for(self, ids: Sequence[Hashable], features: Any) -> FeatureMatrix:
        """Encode the features of new items, in the order of the ids; zeros where there are none."""
        table = as_feature_table(features)
        matrix = self.encoder.transform(table)
        if table.ids is None:
            if len(matrix) != len(ids):
                raise ParameterError(
                    f"there are {len(ids):,} new items, but {len(matrix):,} rows of features"
                )
            return matrix
        codes = Vocabulary(ids).find(table.ids)
        if (codes < 0).any():
            unknown = table.ids[int(np.argmin(codes))]
            raise DataError(f"there are features for {unknown!r}, which is not among the new items")
        return matrix.place(codes, len(ids))

    def append(self, rows: FeatureMatrix) -> ItemFeatures:
        """Append the rows of new items."""
        return replace(self, matrix=self.matrix.append(rows))

    def recode(self, old: Vocabulary, new: Vocabulary) -> ItemFeatures:
        """Reorder the rows for another vocabulary, with zeros for items that `old` lacks."""
        if old == new:
            return self
        return replace(self, matrix=self.matrix.place(new.find(old), len(new)))


@dataclass(frozen=True)
class FeatureMatrix:
    """A row of features per item: a sparse and a dense part, either of which may be empty."""

    sparse: csr_matrix  # (n, a)
    dense: Singles  # (n, b)

    def __len__(self) -> int:
        return len(self.dense)

    @property
    def width(self) -> int:
        """The number of columns of both parts."""
        return int(self.sparse.shape[1] + self.dense.shape[1])

    @property
    def has_row(self) -> Flags:
        """True for items with any features."""
        has: Flags = (np.diff(self.sparse.indptr) > 0) | self.dense.any(axis=1)
        return has

    def take(self, rows: Ints | Flags | slice) -> FeatureMatrix:
        """Select rows."""
        return FeatureMatrix(self.sparse[rows], self.dense[rows])

    def append(self, other: FeatureMatrix) -> FeatureMatrix:
        """Append the rows of another matrix."""
        from scipy.sparse import vstack

        sparse = vstack([self.sparse, other.sparse], format="csr", dtype=np.float32)
        return FeatureMatrix(sparse, np.vstack([self.dense, other.dense]))

    def place(self, codes: Ints, n_items: int) -> FeatureMatrix:
        """Put row i at position codes[i] of `n_items` rows; leave it out if that is negative."""
        from scipy.sparse import csr_matrix

        rows = np.flatnonzero(codes >= 0)
        ones = np.ones(len(rows), dtype=np.float32)
        return self.combine(csr_matrix((ones, (codes[rows], rows)), shape=(n_items, len(self))))

    def combine(self, weights: csr_matrix) -> FeatureMatrix:
        """Add rows up: the product of `weights` with this matrix."""
        sparse = (weights @ self.sparse).tocsr()
        return FeatureMatrix(sparse, np.asarray(weights @ self.dense, dtype=np.float32))

    def times(self, weights: NDArray[np.floating]) -> Array:
        """Multiply by a vector of weights."""
        width = self.sparse.shape[1]
        weights = weights.astype(np.float64)
        product: Array = self.sparse @ weights[:width] + self.dense @ weights[width:]
        return product

    def transposed_times(self, values: NDArray[np.floating]) -> Array:
        """Multiply the transposed matrix by a vector."""
        return np.concatenate([self.sparse.T @ values, self.dense.T @ values])

    def transposed(self) -> TransposedFeatures:
        """Transpose, for products with all rows."""
        return TransposedFeatures(self.sparse.T.tocsr(), np.ascontiguousarray(self.dense.T))


class TransposedFeatures(NamedTuple):
    """A matrix of features with a column per item."""

    sparse: csr_matrix  # (a, n)
    dense: Singles  # (b, n)

    def products(self, rows: FeatureMatrix) -> Singles:
        """Multiply all rows with all items; the result is dense."""
        products: Singles = (rows.sparse @ self.sparse).toarray()
        return products + rows.dense @ self.dense if len(self.dense) else products


# -- Input -----------------------------------------------------------------------------------------


class FeatureColumn(NamedTuple):
    """The values of one column, None where one is missing; `kind` if the type decides it."""

    values: Any  # a list, or an array of vectors, dense or sparse
    kind: str | None = None


class FeatureTable(NamedTuple):
    """Features as a user passes them: columns by name, and the ids of the rows.

    The ids are None for an array, whose rows are in the order of the items. Bare vectors are a
    single column without a name.
    """

    ids: list[Hashable] | None
    columns: dict[str, FeatureColumn]

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.columns[""].values.shape[0]) if self.ids is None else len(self.ids)

    def take(self, items: Iterable[Hashable]) -> FeatureTable:
        """Select the rows of these items in this order, without items that have none."""
        positions = {item: row for row, item in enumerate(self.ids or ())}
        found = [item for item in items if item in positions]
        columns = {
            name: FeatureColumn([column.values[positions[item]] for item in found], column.kind)
            for name, column in self.columns.items()
        }
        return FeatureTable(found, columns)


def as_feature_table(features: Any) -> FeatureTable:
    """Read features of items as a user passes them.

    Parameters
    ----------
    features : data frame, Arrow table, array, sparse array, mapping or None
        A mapping is one of item to a vector or to named values. None has no rows.
    """
    if features is None:
        return FeatureTable([], {})
    if isinstance(features, FeatureTable):
        return features
    if isinstance(features, Mapping):
        return _from_mapping(features)
    if hasattr(features, "tocsr"):
        return FeatureTable(None, {"": FeatureColumn(features.tocsr(), VECTOR)})
    features = collected(features)
    if hasattr(features, "column_names") or hasattr(features, "columns"):
        return _from_frame(features, None)
    if isinstance(features, (np.ndarray, list, tuple)):
        return FeatureTable(None, {"": FeatureColumn(_as_vectors(features), VECTOR)})
    raise ParameterError(
        "item_features must be a data frame, an Arrow table, an array, a sparse array or a mapping "
        f"of item to vector, got {type(features).__name__}"
    )


def read_features(path: str | os.PathLike[str], *, item: str | None = None) -> FeatureTable:
    """Read features of items from a CSV or Parquet file with a row per item.

    Parameters
    ----------
    path : str or path
    item : str, optional
        The column with the ids of the items. Without it, common names are recognized.

    Returns
    -------
    FeatureTable
        An argument `item_features` of `fit`.
    """
    with opened(Path(path).expanduser()) as source:
        if source.head(len(PARQUET)) == PARQUET:
            import pyarrow.parquet as parquet

            return _from_frame(parquet.read_table(source.path), item, where=str(path))
        header, texts = read_columns(Text(source), [item] if item else [])
    item_column = _find_item_column(header, item, str(path))
    texts = {name: [text.strip() for text in column] for name, column in texts.items()}
    ids = integers_if_all(texts.pop(item_column))
    columns = {name: FeatureColumn(_floats_if_all(column)) for name, column in texts.items()}
    return _check_ids(FeatureTable(ids, columns), str(path))


def _find_item_column(columns: Sequence[str], item: str | None, where: str) -> str:
    if item is not None:
        check_column(columns, item, "item", where)
        return item
    guess = _guess_item_column(columns)
    if guess is None:
        listed = ", ".join(map(repr, columns))
        raise DataError(
            f"{where}: cannot tell which column holds the items: call it 'item'; "
            f"the columns are {listed}"
        )
    return guess


def _guess_item_column(columns: Sequence[str]) -> str | None:
    found = matches(columns, "item")
    if len(found) == 1:
        return found[0]
    return next((column for column in columns if column.casefold() in ("item", "id")), None)


def _floats_if_all(texts: list[str]) -> list[float | None] | list[str | None]:
    try:
        return [float(text) if text else None for text in texts]
    except ValueError:
        return [text or None for text in texts]


def _from_mapping(features: Mapping[Any, Any]) -> FeatureTable:
    ids = [plain(item) for item in features]
    rows = list(features.values())
    are_named = {isinstance(row, Mapping) for row in rows if row is not None}
    if len(are_named) > 1:
        raise DataError("item_features mixes vectors and named values: give every item the same")
    if True in are_named:
        named = [row or {} for row in rows]
        names = dict.fromkeys(str(name) for row in named for name in row)
        columns = {name: FeatureColumn([row.get(name) for row in named]) for name in names}
        return FeatureTable(ids, columns)
    columns = {"": FeatureColumn(rows, VECTOR)} if are_named else {}
    return _check_ids(FeatureTable(ids, columns), "item_features")


def _from_frame(frame: Any, item: str | None, where: str = "item_features") -> FeatureTable:
    """Read a frame of pandas or polars, or an Arrow table; a pandas index may hold the ids."""
    names = [str(name) for name in getattr(frame, "column_names", None) or frame.columns]
    index: Any = getattr(frame, "index", None)
    has_ids = getattr(index, "name", None) is not None or type(index).__name__ != "RangeIndex"
    is_index = index is not None and not callable(index) and has_ids
    item_column: str | None = None
    if item is None and is_index and _guess_item_column(names) is None:
        ids = list(index)
    else:
        item_column = _find_item_column(names, item, where)
        ids = _read_column(frame[item_column]).values
    columns = {name: _read_column(frame[name]) for name in names if name != item_column}
    return _check_ids(FeatureTable([plain(id_) for id_ in ids], columns), where)


def _read_column(series: Any) -> FeatureColumn:
    """Read a column of pandas, polars or Arrow."""
    kind = str(getattr(series, "dtype", getattr(series, "type", ""))).lower()
    is_category = kind.startswith(("category", "categorical", "enum", "dictionary"))
    values = series.to_pylist() if hasattr(series, "to_pylist") else series.to_list()
    return FeatureColumn(values, CATEGORY if is_category else None)


def _as_vectors(rows: Any) -> Array:
    try:
        vectors = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "item_features must hold numbers only, in rows of the same length"
        ) from None
    if vectors.ndim != 2:
        raise DataError(
            f"item_features must have a row per item, got an array of {vectors.ndim} dimensions"
        )
    return vectors


def _check_ids(table: FeatureTable, where: str) -> FeatureTable:
    seen: set[Hashable] = set()
    for row, id_ in enumerate(table.ids or (), start=1):
        if id_ is None or id_ != id_ or id_ == "":
            raise DataError(f"{where}, row {row}: the item is missing")
        if id_ in seen:
            raise DataError(f"{where}: there are two rows for the item {id_!r}")
        seen.add(id_)
    return table


# -- Encoding --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FeatureEncoder:
    """A fitted encoder of features, the same for items that come later."""

    columns: tuple[ColumnEncoder, ...]
    sparse_vectors: bool = False

    @staticmethod
    def fit(table: FeatureTable) -> FeatureEncoder:
        """Fit an encoder to every column."""
        encoders = tuple(ColumnEncoder.fit(name, column) for name, column in table.columns.items())
        if not any(encoder.width for encoder in encoders):
            raise DataError("item_features has no column with values")
        is_sparse = any(hasattr(column.values, "tocsr") for column in table.columns.values())
        return FeatureEncoder(encoders, is_sparse)

    @property
    def widths(self) -> tuple[int, int]:
        """The numbers of columns of the sparse and of the dense part."""
        dense = sum(c.width for c in self.columns if c.kind == VECTOR and not self.sparse_vectors)
        return sum(column.width for column in self.columns) - dense, dense

    def transform(self, table: FeatureTable) -> FeatureMatrix:
        """Encode the rows of a table."""
        from scipy.sparse import csr_matrix, hstack

        n_rows = table.n_rows
        if not (n_rows and table.columns):
            sparse_width, dense_width = self.widths
            empty = csr_matrix((n_rows, sparse_width), dtype=np.float32)
            return FeatureMatrix(empty, np.zeros((n_rows, dense_width), dtype=np.float32))
        self._check_columns(table)
        missing = FeatureColumn([None] * n_rows)
        parts = [
            column.transform(table.columns.get(column.name, missing).values)
            for column in self.columns
            if column.width
        ]
        sparse = [csr_matrix((n_rows, 0)), *(part for part in parts if hasattr(part, "tocsr"))]
        dense = [np.zeros((n_rows, 0)), *(part for part in parts if not hasattr(part, "tocsr"))]
        return _normalize_rows(csr_matrix(hstack(sparse)), np.hstack(dense))

    def _check_columns(self, table: FeatureTable) -> None:
        vectors = [("", VECTOR)]
        takes_vectors = [(column.name, column.kind) for column in self.columns] == vectors
        has_vectors = [(name, column.kind) for name, column in table.columns.items()] == vectors
        names = [column.name for column in self.columns]
        if has_vectors != takes_vectors:
            expected = "vectors" if takes_vectors else f"columns {', '.join(map(repr, names))}"
            raise ParameterError(
                f"the model's items have features in {expected}: "
                "features must be given in the same way"
            )
        for name in table.columns:
            if name not in names:
                known = ", ".join(map(repr, sorted(names)))
                raise DataError(f"the model has no feature {name!r}: it knows {known}")


@dataclass(frozen=True)
class ColumnEncoder:
    """A fitted encoder of one column."""

    name: str
    kind: str
    values: tuple[str, ...] = ()  # of a category
    mean: float = 0.0  # of a number
    scale: float = 0.0  # standard deviation of a number
    width: int = 0  # columns of the encoded values
    idf: Singles = field(default_factory=lambda: np.zeros(0, dtype=np.float32), repr=False)

    @staticmethod
    def fit(name: str, column: FeatureColumn) -> ColumnEncoder:
        """Fit an encoder to a column; one without values is a category that has none."""
        if hasattr(column.values, "shape"):
            return ColumnEncoder(name, VECTOR, width=int(column.values.shape[1]))
        present = [value for value in column.values if not _is_missing(value)]
        if not present:
            return ColumnEncoder(name, CATEGORY)
        kind = column.kind or _guess_kind(name, present)
        if kind == CATEGORY:
            values = tuple(sorted({_category(value) for value in present}))
            return ColumnEncoder(name, kind, values=values, width=len(values))
        if kind == NUMBER:
            numbers = np.array([_finite(value, name) for value in present])
            mean = float(numbers.mean())
            return ColumnEncoder(name, kind, mean=mean, scale=float(numbers.std()), width=1)
        if kind == VECTOR:
            widths = {np.size(value) for value in present}
            if len(widths) > 1:
                where = f"column {name!r}" if name else "item_features"
                raise DataError(f"the vectors of {where} have different lengths: {sorted(widths)}")
            return ColumnEncoder(name, kind, width=widths.pop())
        words, runs = _hash_terms([str(value) for value in present])
        counts = (words + runs).getnnz(axis=0)
        idf = np.log((1 + len(present)) / (1 + counts)).astype(np.float32)
        return ColumnEncoder(name, TEXT, width=N_HASHED, idf=idf)

    def transform(self, values: Any) -> csr_matrix | Array:
        """Encode the values of a column as rows: CSR, or dense for dense vectors."""
        from scipy.sparse import csr_matrix, diags_array
        from sklearn.preprocessing import OneHotEncoder, normalize

        if self.kind == VECTOR:
            return self._transform_vectors(values)
        if self.kind == TEXT:
            words, runs = _hash_terms(
                ["" if _is_missing(value) else str(value) for value in values]
            )
            idf = diags_array(self.idf.astype(np.float64))
            return normalize(words @ idf) + normalize(runs @ idf)
        if self.kind == CATEGORY:
            labels = [None if _is_missing(value) else _category(value) for value in values]
            encoder = OneHotEncoder(categories=[list(self.values)], handle_unknown="ignore")
            return encoder.fit_transform(np.array(labels, dtype=object)[:, None])
        numbers = [self.mean if _is_missing(v) else _finite(v, self.name) for v in values]
        scaled = (np.array(numbers) - self.mean) / (MAX_SIGMA * (self.scale or np.inf))
        return csr_matrix(np.clip(scaled, -1.0, 1.0)[:, None])

    def _transform_vectors(self, values: Any) -> csr_matrix | Array:
        """Scale vectors to length 1; None, or nothing but NaN, is missing."""
        from sklearn.preprocessing import normalize

        if hasattr(values, "tocsr"):
            rows = values.tocsr().astype(np.float64)
            self._check_width(rows.shape[1])
            if not np.isfinite(rows.data).all():
                raise DataError("item_features has values that are not finite")
            return normalize(rows)
        if not isinstance(values, np.ndarray):
            nothing = [np.nan] * self.width
            values = [nothing if _is_missing(value) else value for value in values]
        dense = _as_vectors(values)
        self._check_width(dense.shape[1])
        dense = np.where(np.isnan(dense).all(axis=1, keepdims=True), 0.0, dense)
        finite = np.isfinite(dense).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite)) + 1
            raise DataError(f"item_features, row {row}: the vector has values that are not finite")
        return normalize(dense)

    def _check_width(self, width: int) -> None:
        if width != self.width:
            raise ParameterError(
                f"item_features has vectors of {width} numbers, "
                f"but those of the model have {self.width}"
            )


def _guess_kind(name: str, values: Sequence[Any]) -> str:
    def all_are(*types: type) -> bool:
        return all(isinstance(value, types) for value in values)

    if all_are(list, tuple, np.ndarray):
        return VECTOR
    if all_are(bool, np.bool_):
        return CATEGORY
    if all_are(int, float, np.number):
        are_whole = all(isinstance(value, int) or float(value).is_integer() for value in values)
        return CATEGORY if are_whole and _ID_NAME.fullmatch(name) else NUMBER
    if not all_are(str):
        odd = next(value for value in values if not isinstance(value, str))
        raise DataError(
            f"column {name!r} of item_features mixes types, or holds what is no feature: {odd!r}"
        )
    return TEXT if 2 * len(set(values)) > len(values) else CATEGORY


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and value != value


def _category(value: Any) -> str:
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value)


def _finite(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"column {name!r} of item_features holds numbers, but {value!r} is none"
        ) from None
    except OverflowError:
        number = np.inf
    if not np.isfinite(number):
        raise DataError(f"column {name!r} of item_features has a value that is not finite")
    return number


def _words(text: str) -> list[str]:
    """List the words of a text, and pairs of words that follow each other."""
    words = _WORD.findall(text.casefold())
    return [f"w {word}" for word in words] + [f"p {a} {b}" for a, b in pairwise(words)]


def _runs(text: str) -> list[str]:
    """List the runs of letters within the words of a text."""
    padded = [f"<{word}>" for word in _WORD.findall(text.casefold())]
    return [
        f"r {word[start : start + RUN_LENGTH]}"
        for word in padded
        for start in range(max(len(word) - RUN_LENGTH + 1, 1))
    ]


def _hash_terms(texts: Sequence[str]) -> list[csr_matrix]:
    """Hash the words and the runs of every text to columns: two CSR of ones."""
    from sklearn.feature_extraction.text import HashingVectorizer

    options = {"n_features": N_HASHED, "binary": True, "norm": None, "alternate_sign": False}
    return [
        HashingVectorizer(analyzer=terms, **options).transform(texts) for terms in (_words, _runs)
    ]


def _normalize_rows(sparse: csr_matrix, dense: Array) -> FeatureMatrix:
    """Divide both parts of the rows by the length of the whole row."""
    squares = np.asarray(sparse.multiply(sparse).sum(axis=1)).ravel() + np.square(dense).sum(axis=1)
    lengths = np.where(squares > 0, np.sqrt(squares), 1.0)
    sparse.data = sparse.data / np.repeat(lengths, np.diff(sparse.indptr))
    sparse.eliminate_zeros()
    sparse.sort_indices()
    return FeatureMatrix(sparse.astype(np.float32), (dense / lengths[:, None]).astype(np.float32))


# -- Model files -----------------------------------------------------------------------------------


def features_contents(features: ItemFeatures) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return what a model file holds of features: tensors, and a description for JSON."""
    matrix = features.matrix
    tensors = {
        "features.indptr": matrix.sparse.indptr.astype(np.int64),
        "features.columns": matrix.sparse.indices.astype(np.int32),
        "features.values": matrix.sparse.data.astype(np.float32),
        "features.dense": matrix.dense,
    }
    blocks = []
    for k, column in enumerate(features.encoder.columns):
        block: dict[str, Any] = {"name": column.name, "kind": column.kind, "width": column.width}
        if column.kind == TEXT:
            tensors[f"features.idf.{k}"] = column.idf
        elif column.kind == CATEGORY:
            block["values"] = list(column.values)
        elif column.kind == NUMBER:
            block |= {"mean": column.mean, "scale": column.scale}
        blocks.append(block)
    return tensors, {"blocks": blocks, "sparse": features.encoder.sparse_vectors}


def restored_features(
    tensors: Mapping[str, NDArray[Any]], description: Mapping[str, Any], n_items: int
) -> ItemFeatures:
    """Restore features from a model file, or raise ValueError if they are damaged."""
    from scipy.sparse import csr_matrix

    columns = []
    for k, block in enumerate(description["blocks"]):
        idf = np.asarray(tensors.get(f"features.idf.{k}", np.zeros(0)), dtype=np.float32)
        column = ColumnEncoder(
            name=str(block["name"]),
            kind=str(block["kind"]),
            values=tuple(map(str, block.get("values", ()))),
            mean=float(block.get("mean", 0.0)),
            scale=float(block.get("scale", 0.0)),
            width=int(block["width"]),
            idf=idf,
        )
        is_hashed = column.width == N_HASHED and idf.shape == (N_HASHED,)
        if column.kind not in KINDS or (column.kind == TEXT and not is_hashed):
            raise ValueError(
                "its encoder of features is damaged, or of an earlier version: fit the model again"
            )
        columns.append(column)
    encoder = FeatureEncoder(tuple(columns), bool(description["sparse"]))
    width, dense_width = encoder.widths
    indptr = tensors["features.indptr"]
    indices = tensors["features.columns"]
    values = tensors["features.values"]
    dense = tensors["features.dense"]
    fits = (
        len(indptr) == n_items + 1
        and indptr[0] == 0
        and indptr[-1] == len(indices) == len(values)
        and not (np.diff(indptr) < 0).any()
        and dense.shape == (n_items, dense_width)
    )
    if not fits:
        raise ValueError("its features do not fit its items")
    is_inside = not len(indices) or (indices.min() >= 0 and indices.max() < width)
    sizes = [float(np.abs(part).max(initial=0.0)) for part in (values, dense)]
    if not is_inside or not all(size <= _MAX_VALUE for size in sizes):
        raise ValueError("its features are damaged")
    sparse = csr_matrix((values.astype(np.float32), indices, indptr), shape=(n_items, width))
    return ItemFeatures(encoder, FeatureMatrix(sparse, dense.astype(np.float32)))
