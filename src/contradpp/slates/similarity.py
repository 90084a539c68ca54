"""The similarity of items in slates.

Φ is a mix of three sources s with weights w_s, Σ_s w_s ≤ 1, and vectors r of length 0 or 1:

    Φ_ij = Σ_s w_s ⟨r_i, r_j⟩_s.

The sources are interchangeable items, the words of names, and categories.

Interchangeable items share partners but avoid each other. Of the items that sell most, n_ij baskets
hold i and j. Chance lets e_ij = s_i s_j expect, with the s for which every item meets as many
others as it does: an item of small baskets then has no substitutes just because it meets few
others. The company of two items is the correlation r_ij of their log lifts
log (n_ik + 3)/(e_ik + 3) over the other items k. Items of the same company mostly meet more often
than by chance; how much, β₀ + β₁ r_ij, is fitted over all pairs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads
from contradpp._types import Array, Codes, Flags, Ints
from contradpp.data.sets import Sets, pointers
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import files as persist
from contradpp.experts.statistics import indicator
from contradpp.slates.greedy import Vectors
from contradpp.slates.rules import numbered

Floats = NDArray[np.float32]

WEIGHTS = {"interchange": 0.5, "words": 0.35, "categories": 0.1}
N_DIMENSIONS = 128  # of random directions: their products are 0 ± 0.09
N_POPULAR = 2000  # items that are compared
LEAST_SALES = 10  # of such an item
PRIOR = 3.0  # baskets added to both sides of a lift
N_SCALING = 50  # rounds in which e_ij is fitted
MEASURABLE = 2.0  # expected baskets of a pair from which company is fitted
N_NEAREST = 30  # interchangeable items of an item
LEAST = 0.02  # how interchangeable they are
ERROR_RATE = 0.05  # how often an item has a substitute by chance
HALF = 0.5  # substitutes meet at most half as often as by chance
SAME_COMPANY = 0.15  # the correlation of items of the same company
SAME_WORDS = 0.4  # the cosine of similar names

_CATEGORIES, _ITEMS, _WORDS = 75, 76, 77  # keys of random streams
_WORD = re.compile(r"[^\W\d_]{2,}")

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


# -- Interchangeable items -------------------------------------------------------------------------


class Substitute(NamedTuple):
    """An item that replaces another."""

    code: int
    ratio: float  # n_ij/e_ij: 1 for chance
    upper: float  # its upper bound


class Company(NamedTuple):
    """Co-occurrences of the popular items."""

    codes: Ints  # (n,), ascending
    together: Array  # n_ij (n, n), zero on the diagonal
    expected: Array  # e_ij
    correlation: Array  # r_ij, zero on the diagonal

    @staticmethod
    def of(train: Sets, n_items: int) -> Company:
        """Count the co-occurrences of the items that sell most."""
        counts = np.bincount(train.indices, minlength=n_items)
        codes = np.sort(np.argsort(-counts, kind="stable")[:N_POPULAR]).astype(np.int64)
        codes = codes[counts[codes] >= LEAST_SALES]
        if not len(codes):
            return Company(codes, *np.zeros((3, 0, 0)))
        X = indicator(train, n_items)[:, codes]
        together = (X.T @ X).toarray().astype(np.float64)
        np.fill_diagonal(together, 0.0)
        totals = together.sum(axis=1)
        s = counts[codes].astype(np.float64)
        for _ in range(N_SCALING):
            s = np.sqrt(s * totals / np.maximum(s.sum() - s, 1e-9))
        expected = np.outer(s, s)
        lifts = np.log((together + PRIOR) / (expected + PRIOR))
        np.fill_diagonal(lifts, 0.0)
        squares = np.square(lifts)
        own = squares.sum(axis=1)
        with blas_threads(1):  # the same result for any number of cores
            products = lifts @ lifts.T
        lengths = np.sqrt((own[:, None] - squares) * (own - squares))
        correlation = np.divide(products, lengths, out=np.zeros_like(lifts), where=lengths > 1e-9)
        np.fill_diagonal(correlation, 0.0)
        return Company(codes, together, expected, correlation)

    def interchangeable(self) -> Array:
        """Return how interchangeable two items are (n, n), from 0 to 1.

        The measure is min(1, 2 r_ij) (1 − n_ij/m_ij) where both are positive, with the m_ij baskets
        that company lets expect, and 2 added to both counts.
        """
        known = (self.expected > MEASURABLE) & ~np.eye(len(self.codes), dtype=bool)
        if known.sum() < 3:
            return np.zeros_like(self.together)
        r = self.correlation[known]
        weight = np.sqrt(self.expected[known])
        lift = np.log((self.together[known] + PRIOR) / (self.expected[known] + PRIOR))
        slope, start = np.polyfit(r, lift, 1, w=weight) if np.ptp(r) > 0 else (0.0, 0.0)
        usual = self.expected * np.exp(start + slope * self.correlation)
        avoidance = np.clip(1.0 - (self.together + 2.0) / (usual + 2.0), 0.0, 1.0)
        found: Array = avoidance * np.clip(2.0 * self.correlation, 0.0, 1.0)
        return found

    def vectors(self) -> Array:
        """Return unit vectors (n, d) whose products are large for interchangeable items.

        With a random direction g_i for every item, that of item i is g_i + ½ Σ_j a_ij g_j over its
        nearest items j.
        """
        near = self.interchangeable()
        n = len(near)
        if n > N_NEAREST:
            least = np.partition(near, n - N_NEAREST, axis=1)[:, n - N_NEAREST, None]
            near[near < least] = 0.0
        near[near < LEAST] = 0.0
        near = np.maximum(near, near.T)
        g = random_directions(n, _ITEMS)
        with blas_threads(1):
            rows: Array = g + 0.5 * near @ g
        rows[~near.any(axis=1)] = 0.0
        return unit_rows(rows)

    def substitutes(self, items: Vocabulary) -> dict[int, list[Substitute]]:
        """Return the substitutes of the items that have any, those that meet least first.

        Two items are substitutes if they meet at most half as often as by chance, as a bound at the
        level of 95 % for all pairs of an item, and are of a kind: they have similar names, the same
        category or the same company.
        """
        from scipy.stats import chi2

        n = len(self.codes)
        if n < 2:
            return {}
        level = 1.0 - ERROR_RATE / n
        upper = chi2.ppf(level, 2 * (self.together + 1)) / 2 / np.maximum(self.expected, 1e-9)
        found = (upper < HALF) & self._of_a_kind(items)
        np.fill_diagonal(found, False)
        pairs: dict[int, list[Substitute]] = {}
        rows, columns = np.nonzero(found)
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
            ratio = float(self.together[i, j] / self.expected[i, j])
            one = Substitute(int(self.codes[j]), ratio, float(upper[i, j]))
            pairs.setdefault(int(self.codes[i]), []).append(one)
        for several in pairs.values():
            several.sort(key=lambda one: one.upper)
        return pairs

    def _of_a_kind(self, items: Vocabulary) -> Flags:
        """Tell which pairs have similar names, the same category or the same company."""
        same = self.correlation >= SAME_COMPANY
        if items.names:
            words = word_matrix(items)[self.codes]
            same |= (words @ words.T).toarray() >= SAME_WORDS
        if items.categories:
            groups = _category_numbers(items)[self.codes]
            same |= (groups[:, None] == groups) & (groups >= 0)
        return same


# -- Names and categories --------------------------------------------------------------------------


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


def _category_directions(items: Vocabulary) -> Floats:
    """Return a random direction for the category of every item, zeros for an item without."""
    numbers = _category_numbers(items)
    directions = random_directions(int(numbers.max(initial=-1)) + 1, _CATEGORIES)
    return np.vstack([directions, np.zeros((1, N_DIMENSIONS))])[numbers].astype(np.float32)


def _category_numbers(items: Vocabulary) -> Codes:
    """Return a number for the category of every item, −1 for an item without."""
    return numbered([items.categories.get(item) for item in items])[0]
