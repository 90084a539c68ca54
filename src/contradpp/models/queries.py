"""What a user may pass as a basket, or as many, turned into sets of item codes, and codes back into ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets
from contradpp.data.vocabulary import Lookup, Vocabulary, check_unknown, unknown_items
from contradpp.dpp.scoring import best_columns, without_blanks
from contradpp.errors import ContradppError, DataError, ParameterError, UnknownItemError


class Queries(NamedTuple):
    """Sets of codes, and whether the user asked about a single basket (not a list of them)."""

    sets: Sets
    single: bool


def as_queries(baskets: Any, items: Vocabulary, *, unknown: str = "error") -> Queries:
    """Read one basket (an iterable of item ids) or many (Baskets, or an iterable of iterables).

    Duplicates within a basket are removed: a basket is a set. An iterable of lists, sets or arrays is many
    baskets; of tuples or frozensets too, unless these are themselves items of the vocabulary.
    """
    check_unknown(unknown)
    if isinstance(baskets, Baskets):
        coded = baskets.recode(items, unknown=unknown)
        return Queries(Sets(coded.indptr, coded.indices), single=False)
    content = _content(baskets)
    if not any(_is_basket(entry, items) for entry in content):
        return Queries(Sets.one(items.codes(content, unknown=unknown)), single=True)
    codes = []
    for number, basket in enumerate(content):
        try:
            codes.append(items.codes(_content(basket), unknown=unknown))
        except ContradppError as error:
            kind = UnknownItemError if isinstance(error, UnknownItemError) else DataError
            raise kind(f"basket {number}: {error}") from None
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in codes])]).astype(np.int64)
    return Queries(Sets(indptr, np.concatenate(codes).astype(np.int32)), single=False)


def as_codes(basket: Iterable[Any], items: Vocabulary, *, unknown: str = "error") -> NDArray[np.int32]:
    """The codes of one basket."""
    return items.codes(_content(basket), unknown=unknown)


def allowed_codes(
    items: Vocabulary, candidates: Iterable[Any] | None, exclude: Iterable[Any] | None, *, unknown: str = "error"
) -> NDArray[np.bool_]:
    """Which items may be suggested: only candidates, if there are any given, and nothing excluded."""
    allowed = np.full(len(items), candidates is None)
    if candidates is not None:
        allowed[as_codes(candidates, items, unknown=unknown)] = True
    allowed[as_codes(() if exclude is None else exclude, items, unknown="ignore")] = False
    return allowed


def as_ids(codes: NDArray[np.int64], items: Vocabulary) -> NDArray[Any]:
    """The item ids of an array of codes, None for −1, in the same shape."""
    if not codes.size or codes.min() >= 0:
        return items.take(codes.ravel().tolist()).reshape(codes.shape)
    ids = np.full(codes.size, None, dtype=object)
    for position, code in enumerate(codes.ravel().tolist()):
        ids[position] = items[code] if code >= 0 else None
    return ids.reshape(codes.shape)


def check_count(value: Any, name: str = "N", *, least: int = 1, why: str = "") -> None:
    """Raise `ParameterError` unless the value is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ParameterError(f"{name} must be an integer of at least {least}{why}, got {value!r}")


def _is_basket(entry: Any, items: Vocabulary) -> bool:
    if isinstance(entry, (list, set, np.ndarray)):
        return True
    if not isinstance(entry, (tuple, frozenset)) or entry in items:
        return False
    # Neither is certain of an entry that holds nothing known: what the vocabulary's ids look like decides.
    return any(part in items for part in entry) or not any(isinstance(item, type(entry)) for item in items)


def _content(basket: Any) -> list[Any]:
    scalar = isinstance(basket, np.ndarray) and basket.ndim == 0
    if scalar or isinstance(basket, (str, bytes)) or not isinstance(basket, Iterable):
        raise DataError(f"a basket must be a list of items, got {basket!r}: write [{basket!r}] for a basket of one")
    return list(basket)


class Suggests(ABC):
    """A model with a catalogue that says what goes with a basket."""

    @property
    @abstractmethod
    def known_items(self) -> Vocabulary:
        """The catalogue, or `NotFittedError`."""

    @abstractmethod
    def _best(
        self, sets: Sets, n: int, pool: NDArray[np.int64] | None, banned: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The codes of the n best next items of every set, −1 where fewer are left, and their probabilities.

        Only items of `pool` (ascending; all if None) that are not banned; as wide as the longest row.
        """

    @abstractmethod
    def _next_shares(self, sets: Sets) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        """P(next = i | A) of every set and item, block by block: first set, last set (excluded), shares (sets, M)."""

    def find_items(self, words: Iterable[Any], *, unknown: str = "error") -> list[Hashable]:
        """The ids of the items that these words mean: ids, or names in any case; of several so called, the most sold.

        Command line and service find items in the same way; other methods take ids only.
        """
        check_unknown(unknown)
        lookup = Lookup(self.known_items, self.item_shares())
        asked = _content(words)
        found = [lookup.find(word) for word in asked]
        missing = [word for word, item in zip(asked, found, strict=True) if item is None]
        if missing and unknown == "error":
            raise unknown_items(missing, len(self.known_items))
        return [item for item in found if item is not None]

    def predict_next(self, baskets: Any, *, unknown: str = "error") -> NDArray[np.float64]:
        """P(next = i | A) for every basket A and item i: (n, M), 0 for i in A; (M,) for one basket.

        A row sums to 1, or is all zeros if the basket holds the whole catalogue: nothing is left. Any other basket with
        as many items as a DPP's kernel has rank raises `RankError`, because every larger set has probability zero.
        """
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        out = np.empty((queries.sets.count, len(self.known_items)))
        for first, last, shares in self._next_shares(queries.sets):
            out[first:last] = shares
        return out[0] if queries.single else out

    def recommend(
        self,
        baskets: Any,
        N: int = 10,
        *,
        candidates: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        rank_by: str | float = "probability",
        unknown: str = "error",
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The N most probable next items and P(next = i | A), best first.

        Parameters
        ----------
        baskets : a basket, or many
            For one basket both results are one-dimensional, for many they have a row per basket.
        N : int
            How many; if fewer items are left, exactly those. Where a batch has rows of different lengths, the
            short ones end in None with probability 0.
        candidates : iterable of items, optional
            Recommend only from these. Probabilities are still among the whole catalogue.
        exclude : iterable of items, optional
            Never recommend these; what the model does not know it would not anyway.
        rank_by : {"probability", "lift"} or float
            "lift" puts first what the basket makes likelier than it is anyway: (P(next = i | A) + κ)/(p_i + κ), p_i the
            share of i in all that was sold, and κ = 1/M, so that a rare item is not there by luck. A number between 0,
            probability, and 1, lift, is a compromise: popularity is damped by it.
        """
        check_count(N)
        damping = _damping(rank_by)
        items = self.known_items
        queries = as_queries(baskets, items, unknown=unknown)
        pool = None if candidates is None else np.sort(as_codes(candidates, items, unknown=unknown)).astype(np.int64)
        banned = as_codes(() if exclude is None else exclude, items, unknown="ignore")
        best = partial(self._best_lifts, damping=damping) if damping else self._best
        codes, shares = best(queries.sets, int(N), pool, banned)
        found = as_ids(codes, items)
        return (found[0], shares[0]) if queries.single else (found, shares)

    @abstractmethod
    def item_shares(self) -> NDArray[np.float64]:
        """The share of every item in all that was sold."""

    def _best_lifts(
        self, sets: Sets, n: int, pool: NDArray[np.int64] | None, banned: NDArray[np.int32], *, damping: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """As `_best`, ranked by lift."""
        M = len(self.known_items)
        ruled_out = np.full(M, pool is not None)
        ruled_out[() if pool is None else pool] = False
        ruled_out[banned] = True
        usual = damping * np.log(self.item_shares() + 1.0 / M)
        n = min(n, M)
        codes, probabilities = np.full((sets.count, n), -1), np.zeros((sets.count, n))
        for first, last, shares in self._next_shares(sets):
            values = np.log(shares + damping / M) - usual
            values[:, ruled_out] = -np.inf
            values[shares == 0] = -np.inf
            codes[first:last], probabilities[first:last] = best_columns(values, shares, n)
        return without_blanks(codes, probabilities)


def _damping(rank_by: str | float) -> float:
    """How much popularity is damped: 0 for probability, 1 for lift."""
    named = {"probability": 0.0, "lift": 1.0}
    if isinstance(rank_by, str) and rank_by in named:
        return named[rank_by]
    if isinstance(rank_by, (str, bool)) or not isinstance(rank_by, Real) or not 0 <= rank_by <= 1:
        raise ParameterError(f"rank_by must be 'probability', 'lift' or a number from 0 to 1, got {rank_by!r}")
    return float(rank_by)
