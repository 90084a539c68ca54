"""Baskets cut in two, and hits of slates in the hidden half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import HALVES, RandomState, root_seed, stream
from contradpp._types import Array, Flags, Ints
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import Sets, places_by, pointers
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError
from contradpp.experts.queries import check_count


class Halves(NamedTuple):
    """Test baskets cut in two, basket by basket over one catalogue."""

    given: Baskets
    hidden: Baskets


def hide(
    test: Any, given: float = 0.5, *, min_size: int = 4, random_state: RandomState = 0
) -> Halves:
    """Cut every test basket in two: a share of it is shown, the rest hidden.

    The hidden items depend on the seed and the baskets alone, so all methods get the same queries.
    At least one item is shown and one hidden.

    Parameters
    ----------
    test : Baskets or list of lists
    given : float
        The share of a basket that is shown, rounded down to whole items.
    min_size : int
        Smaller baskets are left out.
    random_state : int, Generator or None

    Returns
    -------
    Halves
        `given` and `hidden`, both `Baskets`.
    """
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < 1:
        raise ParameterError(
            f"given must be a share between 0 and 1, got {given!r}", parameters=("given",)
        )
    check_count(min_size, "min_size", least=2)
    baskets = as_baskets(test)
    baskets = baskets.subset(baskets.sizes >= min_size)
    if not baskets.n_baskets:
        raise DataError(
            f"slates need at least one test basket of {min_size} or more items: lower min_size"
        )
    sizes = baskets.sizes
    draws = stream(root_seed(random_state), HALVES).random(len(baskets.indices))
    n_shown = np.clip(np.floor(given * sizes + 1e-9).astype(np.int64), 1, sizes - 1)
    shown = places_by(draws, baskets.sets) < np.repeat(n_shown, sizes)
    return Halves(
        Baskets(pointers(n_shown), baskets.indices[shown], baskets.items),
        Baskets(pointers(sizes - n_shown), baskets.indices[~shown], baskets.items),
    )


def group_numbers(categories: Mapping[Any, Any], items: Vocabulary) -> Ints:
    """Return a number for the category of every item; an item without is one of its own."""
    numbers: dict[Any, int] = {}
    labels = ((item, categories.get(item)) for item in items)
    names = [("item", item) if label is None else ("category", label) for item, label in labels]
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def hit_samples(slates: Ints, hidden: Sets, groups: Ints | None) -> dict[str, Array]:
    """Return recall, any hit and the number of categories hit, slate by slate.

    A category is hit if the slate and the hidden half both have an item of it.
    """
    hits = are_in(slates, hidden)
    samples = {
        "recall": hits.sum(axis=1) / hidden.sizes,
        "hit": hits.any(axis=1).astype(np.float64),
        "categories_hit": np.full(len(slates), np.nan),
    }
    if groups is not None:
        slate_groups = np.where(slates >= 0, groups[slates], -1)
        is_hit = _match(slate_groups, hidden.owners, groups[hidden.indices])
        samples["categories_hit"] = count_distinct(slate_groups, is_hit)
    return samples


def are_in(slates: Ints, sets: Sets) -> Flags:
    """Tell which items of the slates are in the set of the same row."""
    return _match(slates, sets.owners, sets.indices)


def _match(table: Ints, owners: Ints, values: NDArray[np.integer[Any]]) -> Flags:
    """Tell which entries are among the values that belong to their row; −1 never is."""
    width = int(max(table.max(initial=0), values.max(initial=0))) + 1
    keys = np.arange(len(table))[:, None] * width + table
    return np.isin(keys, owners * width + values) & (table >= 0)


def count_distinct(groups: Ints, counted: Flags) -> Array:
    """Return the number of different categories at the counted places of each row."""
    width = int(groups.max(initial=0)) + 1
    rows, places = np.nonzero(counted)
    keys = np.unique(rows * width + groups[rows, places])
    return np.bincount(keys // width, minlength=len(groups)).astype(np.float64)
