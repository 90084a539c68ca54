"""The features of all items of a vocabulary: learned from what the user gave, extended, recoded, and kept in files."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.features import KINDS, TEXT, VECTOR, Given, given_features
from contradpp.data.recipe import N_HASHED, Block, Matrix, Recipe, learn_recipe
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError

_LARGEST = 1e15  # of a feature in a file: squares of more overflow in single precision


@dataclass(frozen=True)
class ItemFeatures:
    """The recipe, and the rows of all items of a vocabulary, zeros for those without features."""

    recipe: Recipe
    matrix: Matrix
    n_unknown: int = 0  # rows that were left out: their items are not in the vocabulary

    @staticmethod
    def learn(features: Any, items: Vocabulary) -> ItemFeatures:
        """From what the user gave for these items; rows of others teach the recipe, and are left out otherwise."""
        given = given_features(features)
        recipe = learn_recipe(given)
        n_rows = _count_rows(given)
        if given.ids is None:
            if n_rows != len(items):
                raise ParameterError(
                    f"item_features has {n_rows:,} rows, but there are {len(items):,} items; an array must have a row "
                    "per item, in the order of the baskets' items. A mapping of item to vector may leave some out"
                )
            return ItemFeatures(recipe, recipe.matrix(given, n_rows))
        codes = np.array([items.code(one) if one in items else -1 for one in given.ids], dtype=np.int64)
        if not (codes >= 0).any():
            shown = ", ".join(map(repr, given.ids[:3]))
            raise DataError(
                f"no row of item_features belongs to an item of the baskets: its items are {shown}, ..., those of the "
                f"baskets {', '.join(map(repr, items[:3]))}, ..."
            )
        matrix = recipe.matrix(given, n_rows)
        return ItemFeatures(recipe, _placed(matrix, codes, len(items)), int((codes < 0).sum()))

    def rows_for(self, ids: Sequence[Hashable], features: Any) -> Matrix:
        """The rows of items that come later, in the order of the ids; those that were not given are zeros."""
        given = given_features(features)
        n_rows = _count_rows(given)
        matrix = self.recipe.matrix(given, n_rows)
        if given.ids is None:
            if n_rows != len(ids):
                raise ParameterError(f"there are {len(ids):,} new items, but {n_rows:,} rows of features")
            return matrix
        places = {one: place for place, one in enumerate(ids)}
        strange = next((one for one in given.ids if one not in places), None)
        if strange is not None:
            raise DataError(f"there are features for {strange!r}, which is not among the new items")
        return _placed(matrix, np.array([places[one] for one in given.ids], dtype=np.int64), len(ids))

    def append(self, rows: Matrix) -> ItemFeatures:
        """With the rows of items that came later."""
        return ItemFeatures(self.recipe, self.matrix.append(rows), self.n_unknown)

    def recode(self, old: Vocabulary, new: Vocabulary) -> ItemFeatures:
        """The rows of the items of another vocabulary, zeros for those that are not in the old one."""
        if old == new:
            return self
        codes = np.array([new.code(item) if item in new else -1 for item in old], dtype=np.int64)
        return ItemFeatures(self.recipe, _placed(self.matrix, codes, len(new)), self.n_unknown)


def _count_rows(given: Given) -> int:
    if given.ids is not None:
        return len(given.ids)
    return int(given.vectors.shape[0])


def _placed(matrix: Matrix, codes: NDArray[np.int64], n_items: int) -> Matrix:
    """The rows at the places of their codes, those below zero left out."""
    from scipy.sparse import csr_matrix

    kept = np.flatnonzero(codes >= 0)
    mix = csr_matrix((np.ones(len(kept), dtype=np.float32), (codes[kept], kept)), shape=(n_items, len(matrix)))
    return matrix.mixed(mix)


def features_contents(features: ItemFeatures) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """What a model file holds of features: tensors, and a description that JSON can hold."""
    matrix, recipe = features.matrix, features.recipe
    tensors = {
        "features.indptr": matrix.sparse.indptr.astype(np.int64),
        "features.columns": matrix.sparse.indices.astype(np.int32),
        "features.values": matrix.sparse.data.astype(np.float32),
        "features.dense": matrix.dense,
    }
    tensors |= {f"features.rarity.{k}": block.rarity for k, block in enumerate(recipe.blocks) if block.kind == TEXT}
    return tensors, {"blocks": [block.described() for block in recipe.blocks], "sparse": recipe.sparse_vectors}


def restored_features(tensors: Mapping[str, NDArray[Any]], told: Mapping[str, Any], n_items: int) -> ItemFeatures:
    """The features that a model file holds, or ValueError if they are none."""
    from scipy.sparse import csr_matrix

    blocks = []
    for k, one in enumerate(told["blocks"]):
        kind, width = str(one["kind"]), int(one["width"])
        rarity = np.asarray(tensors.get(f"features.rarity.{k}", np.zeros(0)), dtype=np.float32)
        if kind not in KINDS or (kind == TEXT and (width != N_HASHED or rarity.shape != (N_HASHED,))):
            raise ValueError("its recipe of features is damaged")
        values = tuple(map(str, one.get("values", ())))
        mean, scale = float(one.get("mean", 0.0)), float(one.get("scale", 0.0))
        blocks.append(Block(str(one["name"]), kind, values, mean, scale, width, rarity))
    recipe = Recipe(tuple(blocks), bool(told["sparse"]))
    dense_width = sum(b.width for b in blocks if b.kind == VECTOR and not recipe.sparse_vectors)
    width = sum(block.width for block in blocks) - dense_width
    indptr, columns = tensors["features.indptr"], tensors["features.columns"]
    data, dense = tensors["features.values"], tensors["features.dense"]
    whole = len(indptr) == n_items + 1 and indptr[0] == 0 and indptr[-1] == len(columns) == len(data)
    if not whole or (np.diff(indptr) < 0).any() or dense.shape != (n_items, dense_width):
        raise ValueError("its features do not fit its items")
    inside = not len(columns) or (columns.min() >= 0 and columns.max() < width)
    if not inside or not all(np.abs(values).max(initial=0.0) <= _LARGEST for values in (data, dense)):
        raise ValueError("its features are damaged")
    sparse = csr_matrix((data.astype(np.float32), columns, indptr), shape=(n_items, width))
    return ItemFeatures(recipe, Matrix(sparse, dense.astype(np.float32)))
