"""Features of items: tables, arrays, mappings and files, encoded as a matrix with a row per item.

Column by column:

- text (more than half of its values are different): words, pairs of words and runs of four letters, each hashed to one
  of 2¹⁸ columns, weighted by log((1 + n)/(1 + n_t)) for one that is in n_t of the n texts; words and runs are scaled to
  length 1 each;
- category (other strings, category types, true or false, and whole numbers in a column whose name ends in id): a column
  of ones and zeros for every value;
- number: less its mean, in units of three standard deviations, at most 1 in size;
- vector (a column of lists, or an array or a mapping instead of a table): as it is, scaled to length 1.

What is missing is zero everywhere, and so is a category that was never seen, a constant number or an item without a
row. At last every row is scaled to length 1, so that products of rows are cosines. Nothing is drawn at random.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.files import PARQUET, Text, opened
from contradpp.data.readers import read_columns
from contradpp.data.tables import check_column, integers_if_all, matches
from contradpp.data.vocabulary import Vocabulary, plain
from contradpp.errors import DataError, ParameterError

KINDS = TEXT, CATEGORY, NUMBER, VECTOR = ("text", "category", "number", "vector")
N_HASHED = 2**18
RUN = 4  # letters
MOST_SIGMA = 3.0

Array = NDArray[np.float32]
_LARGEST = 1e15  # of a feature in a file: squares of more overflow in single precision
_WORD = re.compile(r"\w+")
_AN_ID = re.compile(r".*(_|\b)id|.*[a-z]I[dD]")


@dataclass(frozen=True)
class ItemFeatures:
    """The recipe, and the rows of all items of a vocabulary, zeros for those without features."""

    recipe: Recipe
    matrix: Matrix
    n_unknown: int = 0  # rows that were left out: their items are not in the vocabulary

    @staticmethod
    def learn(features: Any, items: Vocabulary) -> ItemFeatures:
        """Learn from what the user gave for these items; rows of others count for the recipe only."""
        given = given_features(features)
        if given.ids == []:
            raise DataError("item_features has no rows")
        blocks = tuple(_learn_block(name, column) for name, column in given.columns.items())
        if not any(block.width for block in blocks):
            raise DataError("item_features has no column with values")
        recipe = Recipe(blocks, any(hasattr(column.values, "tocsr") for column in given.columns.values()))
        if given.ids is None:
            if given.n_rows != len(items):
                raise ParameterError(
                    f"item_features has {given.n_rows:,} rows, but there are {len(items):,} items; "
                    "an array must have a row per item, in the order of the baskets' items. "
                    "A mapping of item to vector may leave some out"
                )
            return ItemFeatures(recipe, recipe.matrix(given))
        codes = _codes(given.ids, items)
        if not (codes >= 0).any():
            shown = ", ".join(map(repr, given.ids[:3]))
            raise DataError(
                f"no row of item_features belongs to an item of the baskets: its items are {shown}, ..., those of the "
                f"baskets {', '.join(map(repr, items[:3]))}, ..."
            )
        placed = _placed(recipe.matrix(given), codes, len(items))
        return ItemFeatures(recipe, placed, int((codes < 0).sum()))

    def rows_for(self, ids: Sequence[Hashable], features: Any) -> Matrix:
        """Encode items that come later, in the order of the ids; those without features are zeros."""
        given = given_features(features)
        matrix = self.recipe.matrix(given)
        if given.ids is None:
            if len(matrix) != len(ids):
                raise ParameterError(f"there are {len(ids):,} new items, but {len(matrix):,} rows of features")
            return matrix
        codes = _codes(given.ids, Vocabulary(ids))
        if (codes < 0).any():
            strange = given.ids[int(np.argmin(codes))]
            raise DataError(f"there are features for {strange!r}, which is not among the new items")
        return _placed(matrix, codes, len(ids))

    def append(self, rows: Matrix) -> ItemFeatures:
        """Append the rows of items that came later."""
        return replace(self, matrix=self.matrix.append(rows))

    def recode(self, old: Vocabulary, new: Vocabulary) -> ItemFeatures:
        """Reorder the rows for another vocabulary, with zeros for items that are not in the old one."""
        if old == new:
            return self
        return replace(self, matrix=_placed(self.matrix, _codes(old, new), len(new)))


def _codes(ids: Iterable[Hashable], items: Vocabulary) -> NDArray[np.int64]:
    """Find the codes of ids, −1 for those that are not in the vocabulary."""
    return np.array([items.code(one) if one in items else -1 for one in ids], dtype=np.int64)


def _placed(matrix: Matrix, codes: NDArray[np.int64], n_items: int) -> Matrix:
    """Put the rows at the places of their codes, without those below zero."""
    from scipy.sparse import csr_matrix

    kept = np.flatnonzero(codes >= 0)
    mix = csr_matrix((np.ones(len(kept), dtype=np.float32), (codes[kept], kept)), shape=(n_items, len(matrix)))
    return matrix.mixed(mix)


@dataclass(frozen=True)
class Matrix:
    """A row of features per item: a sparse part and a dense one, either of which may have no columns."""

    sparse: Any  # CSR (n, a)
    dense: Array  # (n, b)

    def __len__(self) -> int:
        return len(self.dense)

    @property
    def width(self) -> int:
        """The columns of both parts."""
        return int(self.sparse.shape[1] + self.dense.shape[1])

    def take(self, rows: Any) -> Matrix:
        """Select rows."""
        return Matrix(self.sparse[rows], self.dense[rows])

    def append(self, other: Matrix) -> Matrix:
        """Append the rows of another matrix."""
        from scipy.sparse import vstack

        sparse = vstack([self.sparse, other.sparse], format="csr", dtype=np.float32)
        return Matrix(sparse, np.vstack([self.dense, other.dense]))

    def times(self, weights: NDArray[np.floating]) -> NDArray[np.float64]:
        """Multiply by a vector of weights."""
        cut, weights = self.sparse.shape[1], weights.astype(np.float64)
        product: NDArray[np.float64] = self.sparse @ weights[:cut] + self.dense @ weights[cut:]
        return product

    def transposed_times(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Multiply the transposed matrix by a vector."""
        return np.concatenate([self.sparse.T @ values, self.dense.T @ values])

    def mixed(self, mix: Any) -> Matrix:
        """Add rows up: the product of a CSR matrix with this one."""
        return Matrix((mix @ self.sparse).tocsr(), np.asarray(mix @ self.dense, dtype=np.float32))

    def turned(self) -> Turned:
        """Transpose, for products with all rows."""
        return Turned(self.sparse.T.tocsr(), np.ascontiguousarray(self.dense.T))

    @property
    def has_row(self) -> NDArray[np.bool_]:
        """Which items have any features."""
        has: NDArray[np.bool_] = (np.diff(self.sparse.indptr) > 0) | self.dense.any(axis=1)
        return has


class Turned(NamedTuple):
    """A matrix of features with a column per item."""

    sparse: Any  # CSR (a, n)
    dense: Array  # (b, n)

    def products(self, rows: Matrix) -> NDArray[np.float32]:
        """Multiply all rows with all items; the result is dense."""
        found: NDArray[np.float32] = (rows.sparse @ self.sparse).toarray()
        return found + rows.dense @ self.dense if len(self.dense) else found


# -- What the user gives ---------------------------------------------------------------------------


class Column(NamedTuple):
    """The values of one column, None where one is missing; the kind only where the type says it."""

    values: Any  # a list, or an array of vectors
    kind: str | None = None


class Given(NamedTuple):
    """Features as the user gave them: ids (None for an array, whose rows are in order) and columns.

    Bare vectors are a column without a name.
    """

    ids: list[Hashable] | None
    columns: dict[str, Column]

    @property
    def n_rows(self) -> int:
        """The number of rows, one per item."""
        return int(self.columns[""].values.shape[0]) if self.ids is None else len(self.ids)

    def take(self, items: Iterable[Hashable]) -> Given:
        """Select the rows of these items, without items that have none, in this order."""
        places = {one: row for row, one in enumerate(self.ids or ())}
        found = [item for item in items if item in places]
        rows = [places[item] for item in found]
        columns = {name: Column([c.values[row] for row in rows], c.kind) for name, c in self.columns.items()}
        return Given(found, columns)


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
        return Given(None, {"": Column(features.tocsr(), VECTOR)})
    if hasattr(features, "collect_schema") and hasattr(features, "collect"):  # polars: yet to be computed
        features = features.collect()
    if hasattr(features, "column_names") or hasattr(features, "columns"):
        return _of_frame(features, None)
    if isinstance(features, (np.ndarray, list, tuple)):
        return Given(None, {"": Column(as_vectors(features), VECTOR)})
    raise ParameterError(
        "item_features must be a data frame, an Arrow table, an array, a sparse array or a mapping of item to vector, "
        f"got {type(features).__name__}"
    )


def read_features(path: str | os.PathLike[str], *, item: str | None = None) -> Given:
    """Read features from a CSV or Parquet file with a row per item; the item column is guessed unless named."""
    with opened(Path(path).expanduser()) as source:
        if source.head(len(PARQUET)) == PARQUET:
            import pyarrow.parquet as parquet

            return _of_frame(parquet.read_table(Path(path).expanduser()), item, where=str(path))
        header, texts = read_columns(Text(source), [item] if item else [])
    told = _item_column(header, item, str(path))
    texts = {name: [text.strip() for text in column] for name, column in texts.items()}
    columns = {name: Column(_numbers_if_all(column)) for name, column in texts.items() if name != told}
    return _checked(Given(integers_if_all(texts[told]), columns), str(path))


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
    """Find the column that holds the items by its name; none if in doubt."""
    found = matches(columns, "item")
    return found if len(found) == 1 else [column for column in columns if column.casefold() in ("item", "id")][:1]


def _numbers_if_all(texts: list[str]) -> list[Any]:
    try:
        return [float(text) if text else None for text in texts]
    except ValueError:
        return [text or None for text in texts]


def _of_mapping(features: Mapping[Any, Any]) -> Given:
    ids, rows = [plain(item) for item in features], list(features.values())
    are_named = {isinstance(row, Mapping) for row in rows if row is not None}
    if len(are_named) > 1:
        raise DataError("item_features mixes vectors and named values: give every item the same")
    if True in are_named:
        named = [row or {} for row in rows]
        names = dict.fromkeys(str(name) for row in named for name in row)
        return Given(ids, {name: Column([row.get(name) for row in named]) for name in names})
    return _checked(Given(ids, {"": Column(rows, VECTOR)} if are_named else {}), "item_features")


def _of_frame(frame: Any, item: str | None, where: str = "item_features") -> Given:
    """Read a frame of pandas or polars, or an Arrow table; the index of a pandas frame may hold the ids."""
    names = [str(name) for name in getattr(frame, "column_names", None) or frame.columns]
    index = getattr(frame, "index", None)
    named = getattr(index, "name", None) is not None or type(index).__name__ != "RangeIndex"
    if item is None and index is not None and named and not callable(index) and not _fitting(names):
        told, ids = None, list(index)
    else:
        told = _item_column(names, item, where)
        ids = _column(frame[told]).values
    columns = {name: _column(frame[name]) for name in names if name != told}
    return _checked(Given([plain(one) for one in ids], columns), where)


def _column(series: Any) -> Column:
    """Read a column of pandas, polars or Arrow, of a category type or another."""
    kind = str(getattr(series, "dtype", getattr(series, "type", ""))).lower()
    is_category = kind.startswith(("category", "categorical", "enum", "dictionary"))
    values = series.to_pylist() if hasattr(series, "to_pylist") else series.to_list()
    return Column(values, CATEGORY if is_category else None)


def as_vectors(rows: Any) -> Any:
    """Convert rows of numbers to an array, or raise `DataError`."""
    try:
        vectors = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("item_features must hold numbers only, in rows of the same length") from None
    if vectors.ndim != 2:
        raise DataError(f"item_features must have a row per item, got an array of {vectors.ndim} dimensions")
    return vectors


def _checked(given: Given, where: str) -> Given:
    seen: set[Hashable] = set()
    for row, one in enumerate(given.ids or (), start=1):
        if one is None or one != one or one == "":
            raise DataError(f"{where}, row {row}: the item is missing")
        if one in seen:
            raise DataError(f"{where}: there are two rows for the item {one!r}")
        seen.add(one)
    return given


# -- From columns to numbers -----------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """How features become rows of numbers; learned once, then the same for items that come later."""

    blocks: tuple[Block, ...]
    sparse_vectors: bool = False

    @property
    def widths(self) -> tuple[int, int]:
        """The columns of the sparse and of the dense part."""
        dense = sum(b.width for b in self.blocks if b.kind == VECTOR and not self.sparse_vectors)
        return sum(block.width for block in self.blocks) - dense, dense

    def matrix(self, given: Given) -> Matrix:
        """Encode what was given, in its order."""
        from scipy.sparse import csr_matrix, hstack

        n_rows, known = given.n_rows, {block.name for block in self.blocks}
        if not (n_rows and given.columns):
            sparse_width, dense_width = self.widths
            nothing = csr_matrix((n_rows, sparse_width), dtype=np.float32)
            return Matrix(nothing, np.zeros((n_rows, dense_width), dtype=np.float32))
        takes_vectors = [(block.name, block.kind) for block in self.blocks] == [("", VECTOR)]
        has_vectors = [(name, column.kind) for name, column in given.columns.items()] == [("", VECTOR)]
        if has_vectors != takes_vectors:
            kind = "vectors" if takes_vectors else f"columns {', '.join(repr(b.name) for b in self.blocks)}"
            raise ParameterError(f"the model's items are told by {kind}: features must be given in the same way")
        strange = [name for name in given.columns if name not in known]
        if strange:
            raise DataError(f"the model has no feature {strange[0]!r}: it knows {', '.join(map(repr, sorted(known)))}")
        missing = Column([None] * n_rows)
        parts = [_rows(block, given.columns.get(block.name, missing).values) for block in self.blocks if block.width]
        sparse = [csr_matrix((n_rows, 0)), *(part for part in parts if hasattr(part, "tocsr"))]
        dense = [np.zeros((n_rows, 0)), *(part for part in parts if not hasattr(part, "tocsr"))]
        return _of_length_one(csr_matrix(hstack(sparse)), np.hstack(dense))


@dataclass(frozen=True)
class Block:
    """What becomes of one column: its kind and what was learned of it."""

    name: str
    kind: str
    values: tuple[Any, ...] = ()  # of a category
    mean: float = 0.0
    scale: float = 0.0  # of a number; 0 if it is constant
    width: int = 0
    idf: Array = field(default_factory=lambda: np.zeros(0, dtype=np.float32), repr=False)  # of hashed terms

    def described(self) -> dict[str, Any]:
        """Describe the block for JSON, without the idf."""
        told: dict[str, Any] = {"name": self.name, "kind": self.kind, "width": self.width}
        if self.kind == CATEGORY:
            told["values"] = list(self.values)
        if self.kind == NUMBER:
            told |= {"mean": self.mean, "scale": self.scale}
        return told


def _learn_block(name: str, column: Column) -> Block:
    """Learn the recipe for a column; one without values is a category that has none."""
    if hasattr(column.values, "shape"):
        return Block(name, VECTOR, width=int(column.values.shape[1]))
    there = [value for value in column.values if not _is_missing(value)]
    if not there:
        return Block(name, CATEGORY)
    kind = column.kind or _guess_kind(name, there)
    if kind == CATEGORY:
        values = tuple(sorted({_label(value) for value in there}))
        return Block(name, kind, values=values, width=len(values))
    if kind == NUMBER:
        numbers = np.array([_number(value, name) for value in there])
        return Block(name, kind, mean=float(numbers.mean()), scale=float(numbers.std()), width=1)
    if kind == VECTOR:
        widths = {np.size(value) for value in there}
        if len(widths) > 1:
            where = f"column {name!r}" if name else "item_features"
            raise DataError(f"the vectors of {where} have different lengths: {sorted(widths)}")
        return Block(name, kind, width=widths.pop())
    words, runs = _hashed([str(value) for value in there])
    counts = (words + runs).getnnz(axis=0)
    idf = np.log((1 + len(there)) / (1 + counts)).astype(np.float32)
    return Block(name, TEXT, width=N_HASHED, idf=idf)


def _guess_kind(name: str, there: Sequence[Any]) -> str:
    if all(isinstance(value, (list, tuple, np.ndarray)) for value in there):
        return VECTOR
    if all(isinstance(value, (bool, np.bool_)) for value in there):
        return CATEGORY
    if all(isinstance(value, (int, float, np.number)) for value in there):
        whole = all(isinstance(value, int) or float(value).is_integer() for value in there)
        return CATEGORY if whole and _AN_ID.fullmatch(name) else NUMBER
    if not all(isinstance(value, str) for value in there):
        odd = next(value for value in there if not isinstance(value, str))
        raise DataError(f"column {name!r} of item_features mixes types, or holds what is no feature: {odd!r}")
    return TEXT if 2 * len(set(there)) > len(there) else CATEGORY


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and value != value


def _label(value: Any) -> str:
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DataError(f"column {name!r} of item_features holds numbers, but {value!r} is none") from None
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
    return [f"r {word[k : k + RUN]}" for word in padded for k in range(max(len(word) - RUN + 1, 1))]


def _hashed(texts: Sequence[str]) -> list[Any]:
    """Hash the words and the runs of every text to columns: two CSR of ones."""
    from sklearn.feature_extraction.text import HashingVectorizer

    options = {"n_features": N_HASHED, "binary": True, "norm": None, "alternate_sign": False}
    return [HashingVectorizer(analyzer=terms, **options).transform(texts) for terms in (_words, _runs)]


def _rows(block: Block, values: Any) -> Any:
    """Encode the values of a column as rows: CSR, or dense for vectors."""
    from scipy.sparse import csr_matrix, diags_array
    from sklearn.preprocessing import OneHotEncoder, normalize

    if block.kind == VECTOR:
        return _vector_rows(block, values)
    if block.kind == TEXT:
        words, runs = _hashed(["" if _is_missing(value) else str(value) for value in values])
        idf = diags_array(block.idf.astype(np.float64))
        return normalize(words @ idf) + normalize(runs @ idf)
    if block.kind == CATEGORY:
        labels = np.array([None if _is_missing(value) else _label(value) for value in values], dtype=object)
        encoder = OneHotEncoder(categories=[list(block.values)], handle_unknown="ignore")
        return encoder.fit_transform(labels[:, None])
    numbers = [block.mean if _is_missing(value) else _number(value, block.name) for value in values]
    steps = (np.array(numbers) - block.mean) / (MOST_SIGMA * (block.scale or np.inf))
    return csr_matrix(np.clip(steps, -1.0, 1.0)[:, None])


def _vector_rows(block: Block, values: Any) -> Any:
    """Scale vectors to length 1; a row of nothing but NaN, or None, is missing."""
    from sklearn.preprocessing import normalize

    if hasattr(values, "tocsr"):
        rows = values.tocsr().astype(np.float64)
        _check_width(rows.shape[1], block)
        if not np.isfinite(rows.data).all():
            raise DataError("item_features has values that are not finite")
        return normalize(rows)
    nothing = [np.nan] * block.width
    listed = values if isinstance(values, np.ndarray) else [nothing if _is_missing(one) else one for one in values]
    dense = as_vectors(listed)
    _check_width(dense.shape[1], block)
    dense = np.where(np.isnan(dense).all(axis=1, keepdims=True), 0.0, dense)
    if not np.isfinite(dense).all():
        row = int(np.argmin(np.isfinite(dense).all(axis=1)))
        raise DataError(f"item_features, row {row + 1}: the vector has values that are not finite")
    return normalize(dense)


def _check_width(width: int, block: Block) -> None:
    if width != block.width:
        raise ParameterError(f"item_features has vectors of {width} numbers, but those of the model have {block.width}")


def _of_length_one(sparse: Any, dense: NDArray[np.float64]) -> Matrix:
    """Divide both parts of the rows, CSR and dense, by the length of the whole row."""
    squares = np.asarray(sparse.multiply(sparse).sum(axis=1)).ravel() + np.square(dense).sum(axis=1)
    lengths = np.where(squares > 0, np.sqrt(squares), 1.0)
    sparse.data = sparse.data / np.repeat(lengths, np.diff(sparse.indptr))
    sparse.eliminate_zeros()
    sparse.sort_indices()
    return Matrix(sparse.astype(np.float32), (dense / lengths[:, None]).astype(np.float32))


# -- Files -----------------------------------------------------------------------------------------


def features_contents(features: ItemFeatures) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return what a model file holds of features: tensors, and a description for JSON."""
    matrix, recipe = features.matrix, features.recipe
    tensors = {
        "features.indptr": matrix.sparse.indptr.astype(np.int64),
        "features.columns": matrix.sparse.indices.astype(np.int32),
        "features.values": matrix.sparse.data.astype(np.float32),
        "features.dense": matrix.dense,
    }
    tensors |= {f"features.idf.{k}": block.idf for k, block in enumerate(recipe.blocks) if block.kind == TEXT}
    return tensors, {"blocks": [block.described() for block in recipe.blocks], "sparse": recipe.sparse_vectors}


def restored_features(tensors: Mapping[str, NDArray[Any]], told: Mapping[str, Any], n_items: int) -> ItemFeatures:
    """Restore features from a model file, or raise ValueError if they are damaged."""
    from scipy.sparse import csr_matrix

    blocks = []
    for k, one in enumerate(told["blocks"]):
        kind, width = str(one["kind"]), int(one["width"])
        idf = np.asarray(tensors.get(f"features.idf.{k}", np.zeros(0)), dtype=np.float32)
        if kind not in KINDS or (kind == TEXT and (width != N_HASHED or idf.shape != (N_HASHED,))):
            raise ValueError("its recipe of features is damaged, or of an earlier version: fit the model again")
        values = tuple(map(str, one.get("values", ())))
        mean, scale = float(one.get("mean", 0.0)), float(one.get("scale", 0.0))
        blocks.append(Block(str(one["name"]), kind, values, mean, scale, width, idf))
    recipe = Recipe(tuple(blocks), bool(told["sparse"]))
    width, dense_width = recipe.widths
    indptr, columns = tensors["features.indptr"], tensors["features.columns"]
    data, dense = tensors["features.values"], tensors["features.dense"]
    whole = len(indptr) == n_items + 1 and indptr[0] == 0 and indptr[-1] == len(columns) == len(data)
    if not whole or (np.diff(indptr) < 0).any() or dense.shape != (n_items, dense_width):
        raise ValueError("its features do not fit its items")
    inside = not len(columns) or (columns.min() >= 0 and columns.max() < width)
    if not inside or not all(float(np.abs(values).max(initial=0.0)) <= _LARGEST for values in (data, dense)):
        raise ValueError("its features are damaged")
    sparse = csr_matrix((data.astype(np.float32), columns, indptr), shape=(n_items, width))
    return ItemFeatures(recipe, Matrix(sparse, dense.astype(np.float32)))
