"""The recipe that turns features into numbers, and the matrix with a row per item that comes of it.

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

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.features import CATEGORY, NUMBER, TEXT, VECTOR, Column, Given, as_vectors
from contradpp.errors import DataError, ParameterError

N_HASHED = 2**18
RUN = 4  # letters
MOST_SIGMA = 3.0

Array = NDArray[np.float32]
_WORD = re.compile(r"\w+")
_AN_ID = re.compile(r".*(_|\b)id|.*[a-z]I[dD]")


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
        """Some of the rows."""
        return Matrix(self.sparse[rows], self.dense[rows])

    def append(self, other: Matrix) -> Matrix:
        """These rows, then those."""
        from scipy.sparse import vstack

        sparse = vstack([self.sparse, other.sparse], format="csr", dtype=np.float32)
        return Matrix(sparse, np.vstack([self.dense, other.dense]))

    def times(self, weights: NDArray[np.floating]) -> NDArray[np.float64]:
        """The product with a vector of weights."""
        cut, weights = self.sparse.shape[1], weights.astype(np.float64)
        product: NDArray[np.float64] = self.sparse @ weights[:cut] + self.dense @ weights[cut:]
        return product

    def transposed_times(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """The product of the transposed matrix with a vector."""
        return np.concatenate([self.sparse.T @ values, self.dense.T @ values])

    def mixed(self, mix: Any) -> Matrix:
        """Sums of rows: the product of a CSR matrix with this one."""
        return Matrix((mix @ self.sparse).tocsr(), np.asarray(mix @ self.dense, dtype=np.float32))

    def turned(self) -> Turned:
        """The transposed matrix, for products with it."""
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
        """The products of all rows with all items, dense."""
        found: NDArray[np.float32] = (rows.sparse @ self.sparse).toarray()
        return found + rows.dense @ self.dense if len(self.dense) else found


# -- One column ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """What becomes of one column: its kind and what was learned of it."""

    name: str
    kind: str
    values: tuple[Any, ...] = ()  # of a category
    mean: float = 0.0
    scale: float = 0.0  # of a number; 0 if it is constant
    width: int = 0
    rarity: Array = field(default_factory=lambda: np.zeros(0, dtype=np.float32), repr=False)  # of hashed terms

    def rows(self, values: Sequence[Any]) -> Any:
        """The rows of these values: CSR, or dense for vectors."""
        return _MAKERS[self.kind](self, values)

    def described(self) -> dict[str, Any]:
        """All but the rarities, as JSON can hold it."""
        told: dict[str, Any] = {"name": self.name, "kind": self.kind, "width": self.width}
        if self.kind == CATEGORY:
            told["values"] = list(self.values)
        if self.kind == NUMBER:
            told |= {"mean": self.mean, "scale": self.scale}
        return told


def learn_block(name: str, column: Column) -> Block:
    """The recipe for a column; one without values is a category that has none."""
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
            raise DataError(f"the vectors of column {name!r} have different lengths: {sorted(widths)}")
        return Block(name, kind, width=widths.pop())
    counts = np.zeros(N_HASHED)
    for value in there:
        counts[_hashed(str(value))[1]] += 1
    return Block(name, TEXT, width=N_HASHED, rarity=np.log((1 + len(there)) / (1 + counts)).astype(np.float32))


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


def _hashed(text: str) -> tuple[int, NDArray[np.int64]]:
    """The columns of a text's terms, distinct; the first so many are words and pairs of them, the rest runs."""
    words = _WORD.findall(text.casefold())
    terms = [f"w {word}" for word in words] + [f"p {a} {b}" for a, b in pairwise(words)]
    ends = [f"<{word}>" for word in words]
    runs = [f"r {word[k : k + RUN]}" for word in ends for k in range(max(len(word) - RUN + 1, 1))]
    first = dict.fromkeys(zlib.crc32(term.encode()) % N_HASHED for term in terms)
    second = dict.fromkeys(zlib.crc32(term.encode()) % N_HASHED for term in runs)
    return len(first), np.array([*first, *(code for code in second if code not in first)], dtype=np.int64)


def _text_rows(block: Block, values: Sequence[Any]) -> Any:
    sizes, columns, weights = [], [], []
    for value in values:
        n_words, codes = (0, np.zeros(0, dtype=np.int64)) if _is_missing(value) else _hashed(str(value))
        rarity = block.rarity[codes]
        parts = [part / (np.linalg.norm(part) or 1.0) for part in (rarity[:n_words], rarity[n_words:])]
        sizes.append(len(codes))
        columns.append(codes)
        weights.append(np.concatenate(parts))
    return _csr(sizes, columns, weights, block.width)


def _category_rows(block: Block, values: Sequence[Any]) -> Any:
    codes = {value: code for code, value in enumerate(block.values)}
    found = [[] if _is_missing(value) or _label(value) not in codes else [codes[_label(value)]] for value in values]
    return _csr([len(row) for row in found], found, [np.ones(len(row)) for row in found], block.width)


def _number_rows(block: Block, values: Sequence[Any]) -> Any:
    told = [block.mean if _is_missing(value) else _number(value, block.name) for value in values]
    steps = (np.array(told) - block.mean) / (MOST_SIGMA * block.scale) if block.scale else np.zeros(len(told))
    clipped = np.clip(steps, -1.0, 1.0)
    found = [[0] if value else [] for value in clipped.tolist()]
    return _csr([len(row) for row in found], found, [clipped[clipped != 0]], block.width)


def _vector_rows(block: Block, values: Any) -> Any:
    """Vectors of length 1; a row of nothing but NaN, or None, is a missing one."""
    if hasattr(values, "tocsr"):
        from scipy.sparse import csr_matrix

        rows = csr_matrix(values, dtype=np.float64)
        _check_width(rows.shape[1], block)
        if not np.isfinite(rows.data).all():
            raise DataError("item_features has values that are not finite")
        return _of_length_one(rows, np.zeros((rows.shape[0], 0)))[0]
    nothing = [np.nan] * block.width
    listed = values if isinstance(values, np.ndarray) else [nothing if _is_missing(one) else one for one in values]
    dense = as_vectors(listed) if len(listed) else np.zeros((0, block.width))
    _check_width(dense.shape[1], block)
    dense = np.where(np.isnan(dense).all(axis=1, keepdims=True), 0.0, dense)
    if not np.isfinite(dense).all():
        row = int(np.argmin(np.isfinite(dense).all(axis=1)))
        raise DataError(f"item_features, row {row + 1}: the vector has values that are not finite")
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    return np.divide(dense, lengths, out=np.zeros_like(dense), where=lengths > 0)


def _check_width(width: int, block: Block) -> None:
    if width != block.width:
        raise ParameterError(f"item_features has vectors of {width} numbers, but those of the model have {block.width}")


_MAKERS: dict[str, Callable[[Block, Any], Any]] = {
    TEXT: _text_rows, CATEGORY: _category_rows, NUMBER: _number_rows, VECTOR: _vector_rows,
}  # fmt: skip


def _csr(sizes: list[int], columns: Iterable[Any], weights: Iterable[Any], width: int) -> Any:
    from scipy.sparse import csr_matrix

    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    flat = [np.concatenate([np.zeros(0), *map(np.asarray, parts)]) for parts in (weights, columns)]
    return csr_matrix((flat[0], flat[1].astype(np.int64), indptr), shape=(len(sizes), width))


def _of_length_one(sparse: Any, dense: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
    """Both parts of the rows, CSR and dense, over the length of the whole row."""
    squares = np.asarray(sparse.multiply(sparse).sum(axis=1)).ravel() + np.square(dense).sum(axis=1)
    lengths = np.where(squares > 0, np.sqrt(squares), 1.0)
    scaled = sparse.copy()
    scaled.data = scaled.data / np.repeat(lengths, np.diff(sparse.indptr))
    scaled.eliminate_zeros()
    return scaled, dense / lengths[:, None]


@dataclass(frozen=True)
class Recipe:
    """How features become rows of numbers; learned once, then the same for items that come later."""

    blocks: tuple[Block, ...]
    sparse_vectors: bool = False

    @property
    def takes_vectors(self) -> bool:
        """Whether items are told by bare vectors."""
        return len(self.blocks) == 1 and self.blocks[0].name == ""

    def matrix(self, given: Given, n_rows: int) -> Matrix:
        """The rows of what was given, in its order."""
        from scipy.sparse import csr_matrix, hstack

        told = given.vectors is not None or bool(given.columns)
        if told and (given.vectors is not None) != self.takes_vectors:
            kind = "vectors" if self.takes_vectors else f"columns {', '.join(repr(b.name) for b in self.blocks)}"
            raise ParameterError(f"the model's items are told by {kind}: features must be given in the same way")
        known = {block.name for block in self.blocks}
        strange = [name for name in given.columns if name not in known]
        if strange:
            raise DataError(f"the model has no feature {strange[0]!r}: it knows {', '.join(map(repr, sorted(known)))}")
        missing = Column([None] * n_rows)
        parts = [
            block.rows(given.vectors if given.vectors is not None else given.columns.get(block.name, missing).values)
            for block in self.blocks
        ]
        sparse = [csr_matrix((n_rows, 0)), *(part for part in parts if hasattr(part, "tocsr"))]
        dense = [np.zeros((n_rows, 0)), *(part for part in parts if not hasattr(part, "tocsr"))]
        scaled, vectors = _of_length_one(hstack(sparse, format="csr"), np.hstack(dense))
        scaled.sort_indices()
        return Matrix(scaled.astype(np.float32), vectors.astype(np.float32))


def learn_recipe(given: Given) -> Recipe:
    """The recipe for the columns, or the vectors, that were given."""
    if given.ids == []:
        raise DataError("item_features has no rows")
    if given.vectors is not None:
        return Recipe((Block("", VECTOR, width=int(given.vectors.shape[1])),), hasattr(given.vectors, "tocsr"))
    blocks = tuple(learn_block(name, column) for name, column in given.columns.items())
    if not any(block.width for block in blocks):
        raise DataError("item_features has no column with values")
    return Recipe(blocks)
