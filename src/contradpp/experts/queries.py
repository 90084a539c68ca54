"""Baskets, items and counts as a user passes them, read as item codes."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._types import Codes, Flags, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.orders import Histories, SetsWithHistory
from contradpp.data.sets import EMPTY, Sets, joined, kept_entries, pointers, without_duplicates
from contradpp.data.vocabulary import Vocabulary, check_unknown
from contradpp.errors import ContradppError, DataError, ParameterError, UnknownItemError

logger = logging.getLogger("contradpp")


class Queries(NamedTuple):
    """Sets of codes, and a flag for a single basket (not a list of them)."""

    sets: Sets
    single: bool


def as_queries(baskets: Any, items: Vocabulary, *, unknown: str = "error") -> Queries:
    """Read one basket (an iterable of item ids) or many (Baskets, or an iterable of iterables).

    Duplicates within a basket are removed: a basket is a set. An iterable of lists, sets or arrays
    is many baskets. An iterable of tuples or frozensets is, too, unless these are themselves items
    of the vocabulary.
    """
    check_unknown(unknown)
    if isinstance(baskets, Baskets):
        coded = baskets.recode(items, unknown=unknown)
        return Queries(Sets(coded.indptr, coded.indices), single=False)
    content = as_items(baskets)
    if not any(_is_basket(entry, items) for entry in content):
        return Queries(Sets.one(items.codes(content, unknown=unknown)), single=True)
    codes = []
    for number, basket in enumerate(content):
        try:
            codes.append(items.codes(as_items(basket), unknown=unknown))
        except ContradppError as error:
            kind = UnknownItemError if isinstance(error, UnknownItemError) else DataError
            raise kind(f"basket {number}: {error}") from None
    indptr = pointers([len(row) for row in codes])
    return Queries(Sets(indptr, np.concatenate(codes).astype(np.int32)), single=False)


def with_history(queries: Queries, history: Any, model: Any, *, new_only: bool = False) -> Queries:
    """Add the history of one basket, or of each of many, unless none of them has any.

    The history of a basket is an iterable of baskets, oldest first, or `Baskets`. Those of many
    baskets are `Histories`, or one history for each. Unknown items are left out. A model that
    does not use histories is a `ParameterError`.
    """
    if history is None:
        if new_only:
            raise ParameterError("new_only needs a history", parameters=("new_only",))
        return queries
    if not model.uses_history:
        raise ParameterError(
            f"this {type(model).__name__} does not use a history: fit a ConditionalDPP to baskets "
            "whose customers are known (Baskets.with_customers)",
            parameters=("history",),
        )
    items = model.known_items
    n = queries.sets.count
    if isinstance(history, Histories):
        known = history.recode(items)
        n_unknown = len(history.sets.indices) - len(known.sets.indices)
    else:
        try:
            each = [history] if queries.single else as_items(history)
            found = [_sets_of(part, items) for part in each]
        except DataError as error:
            many = "" if queries.single else ", and several baskets take a list of histories"
            raise DataError(f"a history must be a list of earlier baskets{many}: {error}") from None
        parts = [part for part, _ in found]
        n_unknown = sum(n for _, n in found)
        ends = pointers([part.count for part in parts])
        both = joined([EMPTY, *parts])
        known = Histories(both, items, np.arange(both.count), ends[:-1], ends[1:])
    if len(known) != n:
        raise DataError(f"there are {n:,} baskets but {len(known):,} histories")
    if n_unknown:
        logger.warning(
            "the model does not know %s of the %s items of the %s, and ignores them",
            f"{n_unknown:,}",
            f"{n_unknown + len(known.sets.indices):,}",
            "history" if queries.single else "histories",
        )
    if not known.lengths.any():
        return queries
    return queries._replace(sets=SetsWithHistory(queries.sets, replace(known, new_only=new_only)))


def _sets_of(history: Any, items: Vocabulary) -> tuple[Sets, int]:
    """Read one history as sets of known items, and count the others."""
    if isinstance(history, Baskets):
        known = history.recode(items, unknown="ignore").sets
        return known, len(history.indices) - len(known.indices)
    baskets = [as_items(basket) for basket in as_items(history)]
    try:
        codes = items.find(itertools.chain.from_iterable(baskets))
    except TypeError as error:
        raise DataError(f"an item must be hashable (a string, an integer, ...): {error}") from None
    found = Sets(pointers([len(row) for row in baskets]), codes.astype(np.int32))
    found = kept_entries(found, codes >= 0)
    return Sets(*without_duplicates(*found, len(items))), len(codes) - len(found.indices)


def as_codes(basket: Iterable[Any], items: Vocabulary, *, unknown: str = "error") -> Codes:
    """Return the codes of one basket."""
    return items.codes(as_items(basket), unknown=unknown)


def as_items(basket: Any) -> list[Any]:
    """Return the items of one basket as a list, or raise `DataError` for anything that is none."""
    scalar = isinstance(basket, np.ndarray) and basket.ndim == 0
    if scalar or isinstance(basket, (str, bytes)) or not isinstance(basket, Iterable):
        raise DataError(
            f"a basket must be a list of items, got {basket!r}: "
            f"write [{basket!r}] for a basket of one"
        )
    return list(basket)


def allowed_codes(
    items: Vocabulary,
    candidates: Iterable[Any] | None,
    exclude: Iterable[Any] | None,
    *,
    unknown: str = "error",
) -> Flags:
    """Mark the items that may be recommended: the candidates (None for all) less the excluded."""
    allowed = np.full(len(items), candidates is None)
    if candidates is not None:
        allowed[as_codes(candidates, items, unknown=unknown)] = True
    if exclude is not None:
        allowed[as_codes(exclude, items, unknown="ignore")] = False
    return allowed


def as_ids(codes: Ints, items: Vocabulary) -> NDArray[Any]:
    """Return the item ids of an array of codes, None for −1, in the same shape."""
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
    # An entry of unknown items alone may be either: the type of the vocabulary's ids decides.
    return any(part in items for part in entry) or not any(
        isinstance(item, type(entry)) for item in items
    )
