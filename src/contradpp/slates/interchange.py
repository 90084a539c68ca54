"""Interchangeable items: they share partners but avoid each other.

Of the items that sell most, n_ij baskets hold i and j. Chance lets e_ij = s_i s_j expect, with the
s for which every item meets as many others as it does: an item of small baskets then has no
substitutes just because it meets few others. The company of two items is the correlation r_ij of
their log lifts log (n_ik + 3)/(e_ik + 3) over the other items k. Items of the same company mostly
meet more often than by chance; how much, β₀ + β₁ r_ij, is fitted over all pairs.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from contradpp._threads import blas_threads
from contradpp._types import Array, Flags, Ints
from contradpp.data.sets import Sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.experts.statistics import indicator
from contradpp.slates.words import random_directions, unit_rows, word_matrix

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

_ITEMS = 76  # key of a random stream


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
            numbers: dict[Hashable, int] = {None: -1}
            labels = [items.categories.get(items[code]) for code in self.codes.tolist()]
            groups = np.array([numbers.setdefault(label, len(numbers)) for label in labels])
            same |= (groups[:, None] == groups) & (groups >= 0)
        return same
