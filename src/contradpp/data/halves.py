"""Baskets cut in two, and what a slate has of the hidden half: relevance, slate by slate.

A category counts as hit if the slate and the hidden half both have an item of it, as found if an item of it is on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import RandomState, root_seed, stream
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import Sets, places_by, pointers
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Found = NDArray[np.bool_]

ALPHA = 0.5  # of α-nDCG: what a further item of a category is worth
_HIDE = 73  # the key of a random stream


class Halves(NamedTuple):
    """Test baskets cut in two, basket by basket over one catalogue."""

    given: Baskets
    hidden: Baskets


def hide(test: Any, given: float = 0.5, *, min_size: int = 4, random_state: RandomState = 0) -> Halves:
    """Cut every test basket of at least `min_size` items in two: a share `given` of it is shown, the rest hidden.

    Which items are hidden depends on the seed and the baskets alone, so that all methods are asked the same. At least
    one item is shown and one hidden; a share that is no whole number is rounded down.
    """
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < 1:
        raise ParameterError(f"given must be a share between 0 and 1, got {given!r}", parameters=("given",))
    if isinstance(min_size, bool) or not isinstance(min_size, (int, np.integer)) or min_size < 2:
        raise ParameterError(f"min_size must be an integer of at least 2, got {min_size!r}", parameters=("min_size",))
    baskets = as_baskets(test)
    baskets = baskets.subset(baskets.sizes >= min_size)
    if not baskets.n_baskets:
        raise DataError(f"slates need at least one test basket of {min_size} or more items: lower min_size")
    sizes, luck = baskets.sizes, stream(root_seed(random_state), _HIDE).random(len(baskets.indices))
    n_shown = np.clip(np.floor(given * sizes + 1e-9).astype(np.int64), 1, sizes - 1)
    shown = places_by(luck, baskets.sets) < np.repeat(n_shown, sizes)
    return Halves(
        Baskets(pointers(n_shown), baskets.indices[shown], baskets.items),
        Baskets(pointers(sizes - n_shown), baskets.indices[~shown], baskets.items),
    )


def group_numbers(shelves: Mapping[Any, Any], known: Vocabulary) -> Codes:
    """A number for the category of every item; one of its own for an item without."""
    numbers: dict[Any, int] = {}
    labels = ((item, shelves.get(item)) for item in known)
    named = [("item", item) if label is None else ("category", label) for item, label in labels]
    return np.array([numbers.setdefault(name, len(numbers)) for name in named], dtype=np.int64)


def relevance_samples(slates: Codes, hidden: Sets, groups: Codes | None) -> dict[str, Array]:
    """Recall, any hit, nDCG and, with categories, α-nDCG and the categories hit and found."""
    n, k = slates.shape
    found, sizes = held(slates, hidden), hidden.sizes
    discounts = 1.0 / np.log2(np.arange(2, k + 2))
    ideal = np.concatenate([[0.0], np.cumsum(discounts)])[np.minimum(sizes, k)]
    samples = {
        "recall": found.sum(axis=1) / sizes,
        "hit": found.any(axis=1).astype(np.float64),
        "ndcg": found @ discounts / ideal,
    }
    if groups is None:
        return samples | dict.fromkeys(("alpha_ndcg", "categories_hit", "categories_found"), np.full(n, np.nan))
    shelves = np.where(slates >= 0, groups[slates], -1)
    owner, wanted = hidden.owners, groups[hidden.indices]
    gained = (found * ALPHA ** earlier_alike(shelves, found)) @ discounts
    return samples | {
        "alpha_ndcg": gained / _ideal_alpha(owner, wanted, n, discounts),
        "categories_hit": count_distinct(shelves, among(shelves, owner, wanted)),
        "categories_found": count_distinct(shelves, found),
    }


def held(slates: Codes, sets: Sets) -> Found:
    """Which items of the slates are in the set of the same row."""
    return among(slates, sets.owners, sets.indices)


def among(table: Codes, owner: Codes, values: NDArray[np.integer[Any]]) -> Found:
    """Which entries of the rows are among the values that belong to their row; −1 never is."""
    width = int(max(table.max(initial=0), values.max(initial=0))) + 1
    keys = np.arange(len(table))[:, None] * width + table
    return np.isin(keys, owner * width + values) & (table >= 0)


def earlier_alike(shelves: Codes, counted: Found) -> Codes:
    """For every place, how many earlier places that count have the same category."""
    counts = np.zeros(shelves.shape, dtype=np.int64)
    for place in range(1, shelves.shape[1]):
        counts[:, place] = ((shelves[:, :place] == shelves[:, [place]]) & counted[:, :place]).sum(axis=1)
    return counts


def count_distinct(shelves: Codes, counted: Found) -> Array:
    """How many different categories each row has at the places that count."""
    width = int(shelves.max(initial=0)) + 1
    rows, places = np.nonzero(counted)
    keys = np.unique(rows * width + shelves[rows, places])
    return np.bincount(keys // width, minlength=len(shelves)).astype(np.float64)


def _ideal_alpha(owner: Codes, wanted: Codes, n: int, discounts: Array) -> Array:
    """The α-DCG of the best order: first an item of every category, then a second of those that have one, ..."""
    gains = np.power(ALPHA, _rank_within(owner, wanted))
    order = np.lexsort((-gains, owner))
    place = np.arange(len(order)) - np.searchsorted(owner, owner)
    kept = place < len(discounts)
    values = gains[order][kept] * discounts[place[kept]]
    return np.bincount(owner[kept], weights=values, minlength=n).astype(np.float64)


def _rank_within(owner: Codes, wanted: Codes) -> Codes:
    """Of every entry, how many entries before it have its owner and category."""
    order = np.lexsort((wanted, owner))
    keys = owner[order] * (int(wanted.max(initial=0)) + 1) + wanted[order]
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.arange(len(order)) - np.searchsorted(keys, keys)
    return out
