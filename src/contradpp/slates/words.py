"""Vectors of item names: near if they share rare words, such as two colors of one product."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from contradpp._random import stream
from contradpp._types import Array
from contradpp.data.sets import pointers
from contradpp.data.vocabulary import Vocabulary

N_DIMENSIONS = 128  # of random directions: their products are 0 ± 0.09

_WORD = re.compile(r"[^\W\d_]{2,}")
_WORDS = 77  # key of a random stream


def words_of(name: str) -> list[str]:
    """Return the different words of a name in lower case, in the singular of English."""
    words = _WORD.findall(name.lower())
    return sorted({word[:-1] if _is_plural(word) else word for word in words})


def _is_plural(word: str) -> bool:
    return len(word) > 3 and word.endswith("s") and not word.endswith("ss")


def word_matrix(items: Vocabulary) -> Any:
    """Return the words of every name (M, words), sparse, in rows of length 1 or 0.

    A word counts by the log of all items over the items with that word.
    """
    from scipy.sparse import csr_array

    numbers: dict[str, int] = {}
    rows = [
        [numbers.setdefault(word, len(numbers)) for word in words_of(items.names.get(item, ""))]
        for item in items
    ]
    indptr = pointers([len(row) for row in rows])
    columns = np.array([number for row in rows for number in row], dtype=np.int64)
    rarity = np.log(len(items) / np.maximum(np.bincount(columns, minlength=len(numbers)), 1))
    owner = np.repeat(np.arange(len(items)), np.diff(indptr))
    values = rarity[columns]
    lengths = np.sqrt(np.bincount(owner, values**2, minlength=len(items)))
    values /= np.maximum(lengths[owner], 1e-9)
    return csr_array((values, columns, indptr), shape=(len(items), len(numbers)))


def word_vectors(items: Vocabulary) -> Array:
    """Return unit vectors of names (M, d), about as near as their words; zeros without a name."""
    words = word_matrix(items)
    return unit_rows(words @ random_directions(words.shape[1], _WORDS))


def random_directions(n: int, key: int) -> Array:
    """Return n vectors of random signs (n, d) of length 1, the first of them for any n the same."""
    signs = np.sign(stream(0, key).random((n, N_DIMENSIONS)) - 0.5)
    directions: Array = signs / np.sqrt(N_DIMENSIONS)
    return directions


def unit_rows(vectors: Array) -> Array:
    """Return the vectors scaled to length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Array = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 1e-9)
    return units
