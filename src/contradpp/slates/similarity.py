"""The similarity of items in slates.

Φ is a mix of three sources s with weights w_s, Σ_s w_s ≤ 1, and vectors r of length 0 or 1:

    Φ_ij = Σ_s w_s ⟨r_i, r_j⟩_s.

The sources are interchangeable items, the words of names, and categories.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._types import Ints
from contradpp.data.sets import Sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import files as persist
from contradpp.slates.greedy import Vectors
from contradpp.slates.interchange import Company
from contradpp.slates.words import N_DIMENSIONS, random_directions, unit_rows, word_vectors

Floats = NDArray[np.float32]

WEIGHTS = {"interchange": 0.5, "words": 0.35, "categories": 0.1}

_CATEGORIES = 75  # key of a random stream

STORED = {
    "codes": persist.Stored(("n",), np.int64, low=0),
    "vectors": persist.Stored(("n", "r"), np.float32),
}


@dataclass(frozen=True)
class Similarity:
    """The part of Φ that is learned from baskets.

    Attributes
    ----------
    codes : array (n,)
        The items that others can be interchanged with.
    table : array (n, r)
        A vector for each of them.
    """

    codes: Ints
    table: Floats

    @staticmethod
    def of(train: Sets, n_items: int) -> Similarity:
        """Find interchangeable items in training baskets."""
        company = Company.of(train, n_items)
        table = company.vectors()
        known = table.any(axis=1)
        return Similarity(company.codes[known], table[known].astype(np.float32))

    def vectors(self, items: Vocabulary) -> Vectors:
        """Return vectors whose products are Φ, in float32."""
        own = np.zeros((len(items), self.table.shape[1]), dtype=np.float32)
        own[self.codes] = self.table
        parts = {"interchange": own}
        if items.names:
            parts["words"] = word_vectors(items).astype(np.float32)
        if items.categories:
            parts["categories"] = _category_directions(items)
        scaled = [table * np.float32(np.sqrt(WEIGHTS[name])) for name, table in parts.items()]
        return Vectors(np.ascontiguousarray(np.hstack(scaled)), np.ones(len(items)))

    def enlarged(self, n_items: int, mix: Any) -> Similarity:
        """Return the similarity with new items, whose vectors are sums by a matrix (new, known)."""
        table = np.zeros((mix.shape[1], self.table.shape[1]), dtype=np.float32)
        table[self.codes] = self.table
        new = unit_rows(np.asarray(mix @ table, dtype=np.float64)).astype(np.float32)
        codes = np.append(self.codes, np.arange(n_items - len(new), n_items))
        return replace(self, codes=codes, table=np.vstack([self.table, new]))

    def contents(self) -> tuple[persist.Tensors, dict[str, Any]]:
        """Return tensors and description for a model file."""
        arrays = {"codes": self.codes, "vectors": self.table}
        return persist.stored_arrays(arrays, STORED, "slates."), {"slates": len(self.codes)}

    @staticmethod
    def restored(tensors: persist.Tensors, n_items: int) -> Similarity:
        """Return the similarity of a model file; raise ValueError if it is damaged."""
        arrays = persist.read_arrays(tensors, STORED, "vectors of slates", "slates.")
        if arrays["codes"].max(initial=-1) >= n_items:
            raise ValueError("the similarity of its slates is damaged")
        return Similarity(arrays["codes"], arrays["vectors"])


def _category_directions(items: Vocabulary) -> Floats:
    """Return a random direction for the category of every item, zeros for an item without."""
    numbers: dict[Any, int] = {}
    categories = items.categories
    labels = [categories.get(item) for item in items]
    rows = [-1 if one is None else numbers.setdefault(one, len(numbers)) for one in labels]
    directions = random_directions(len(numbers), _CATEGORIES)
    table = np.vstack([directions, np.zeros((1, N_DIMENSIONS))])[rows]  # the last row for −1
    return table.astype(np.float32)
