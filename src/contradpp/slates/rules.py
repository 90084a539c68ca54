"""Rules of a slate: limits by category, and fixed places."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._types import Codes, Ints
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import ParameterError
from contradpp.experts.queries import check_count

MOST = 2**40  # larger counts mean the same
NO_INTEGERS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class SlateRules:
    """Rules that a slate of `rerank` keeps.

    Parameters
    ----------
    categories : mapping of item to category, or array in the order of the candidates, optional
        The categories that the next three rules count. No rule counts an item without a category
        (None, or not in the mapping).
    at_most : int or mapping of category to int, optional
        The most items of each category, or of those in the mapping.
    at_least : mapping of category to int, optional
        The fewest items of these categories.
    window : int, optional
        Among any `window` places in a row a category stands at most once: 2 keeps neighbors apart.
        Selection is greedy. So a list may end early, or an `at_least` may be refused, although
        another order would do.
    fixed : mapping of item to place, or one for every list, optional
        Candidates with a settled place, counted from 0. They repel from the start. If nothing may
        stand before a fixed item, the list ends with the fixed items, moved up. The window may
        forbid that; the item is left out then.

    Examples
    --------
    >>> import contradpp as cd
    >>> rules = cd.SlateRules(categories={"tea": "drink", "milk": "drink"}, at_most=1)
    >>> cd.rerank(["tea", "milk", "bread"], [3, 2, 1], diversity=0, rules=rules)[0].tolist()
    ['tea', 'bread']
    """

    categories: Mapping[Any, Any] | ArrayLike | None = None
    at_most: int | Mapping[Any, int] | None = None
    at_least: Mapping[Any, int] | None = None
    window: int | None = None
    fixed: Mapping[Any, int] | Sequence[Mapping[Any, int]] | None = None


class CategoryLimits(NamedTuple):
    """Categories of candidates as numbers, and the limits of each."""

    groups: Codes  # (candidates,), −1 for none
    caps: Ints  # by category: the most items
    needs: Ints  # by category: the fewest items
    needed: Ints  # categories with needs above 0
    window: int

    @staticmethod
    def none(n_candidates: int) -> CategoryLimits:
        """Return limits that forbid nothing."""
        groups = np.full(n_candidates, -1, dtype=np.int32)
        return CategoryLimits(groups, NO_INTEGERS, NO_INTEGERS, NO_INTEGERS, 1)


def category_limits(
    labels: Sequence[Hashable | None] | NDArray[Any] | None,
    n_candidates: int,
    k: int,
    rules: SlateRules,
) -> tuple[CategoryLimits, list[Hashable]]:
    """Return the limits of candidates with these categories, and the names of the categories.

    Raises
    ------
    ParameterError
        If rules contradict each other, or count categories that are not given.
    """
    if labels is None:
        for name in ("at_most", "at_least", "window"):
            if getattr(rules, name) is not None:
                raise ParameterError(
                    f"{name} counts categories: pass categories=, a mapping or an array, too",
                    parameters=("categories",),
                )
        return CategoryLimits.none(n_candidates), []
    groups, names = numbered(labels)
    caps = _counts("at_most", rules.at_most, names)
    needs = _counts("at_least", rules.at_least, None)
    names = list(dict.fromkeys([*names, *caps, *needs]))
    for category, need in needs.items():
        most = caps.get(category, k)
        if need > most:
            raise ParameterError(
                f"at_least asks for {need} of {category!r}, at_most (or k={k}) allows {most}: "
                "change one of them",
                parameters=("at_most", "at_least"),
            )
    if sum(needs.values()) > k:
        raise ParameterError(
            f"at_least asks for {sum(needs.values())} items in all, more than k={k}",
            parameters=("at_least", "k"),
        )
    window = 1 if rules.window is None else rules.window
    check_count(window, "window")
    need_counts = np.array([needs.get(name, 0) for name in names], dtype=np.int64)
    limits = CategoryLimits(
        groups,
        np.array([min(caps.get(name, k), k, MOST) for name in names], dtype=np.int64),
        need_counts,
        np.flatnonzero(need_counts),
        min(int(window), MOST),
    )
    return limits, names


def limits_of_items(
    items: Vocabulary,
    k: int,
    categories: Mapping[Any, Any] | None,
    at_most: int | Mapping[Any, int] | None,
) -> CategoryLimits:
    """Return the limits of all items of a catalogue, whose own categories are the default."""
    if at_most is None:
        return CategoryLimits.none(len(items))
    categories = items.categories if categories is None else categories
    if not categories:
        raise ParameterError(
            "at_most needs categories, and the model's items have none", parameters=("categories",)
        )
    if isinstance(at_most, Mapping):
        names = set(categories.values())
        unknown = set(at_most) - names
        if unknown:
            some = ", ".join(repr(name) for name in sorted(names, key=str)[:8])
            raise ParameterError(
                f"at_most: no item is of the category {unknown.pop()!r}; there are such as {some}",
                parameters=("at_most",),
            )
    labels = [categories.get(item) for item in items]
    return category_limits(labels, len(items), k, SlateRules(at_most=at_most))[0]


def check_places(
    places: list[tuple[int, int]], limits: CategoryLimits, names: list[Hashable], k: int
) -> None:
    """Refuse fixed places with their categories if they contradict each other or the rules."""
    if len({place for place, _ in places}) < len(places):
        raise ParameterError("two items are fixed at the same place")
    places_of: dict[int, list[int]] = {}
    for place, group in places:
        if group >= 0:
            places_of.setdefault(group, []).append(place)
    for group, taken in places_of.items():
        if len(taken) > limits.caps[group]:
            raise ParameterError(
                f"{len(taken)} items of {names[group]!r} are fixed, "
                f"but at_most is {limits.caps[group]}"
            )
        if any(later - earlier < limits.window for earlier, later in itertools.pairwise(taken)):
            raise ParameterError(
                f"two items of {names[group]!r} are fixed within a window of {limits.window} places"
            )
    missing = sum(
        max(need - len(places_of.get(group, ())), 0)
        for group, need in enumerate(limits.needs.tolist())
    )
    n_open = k - len(places)
    if missing > n_open:
        raise ParameterError(
            f"the fixed items leave {n_open} places, but at_least asks for {missing} more items"
        )


def numbered(labels: Sequence[Hashable | None] | NDArray[Any]) -> tuple[Codes, list[Hashable]]:
    """Return a number for every label, −1 for None, and the labels by number."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iuU":
        names, codes = np.unique(labels, return_inverse=True)
        return codes.astype(np.int32), names.tolist()
    numbers: dict[Hashable, int] = {}
    groups = [-1 if label is None else numbers.setdefault(label, len(numbers)) for label in labels]
    return np.array(groups, dtype=np.int32), list(numbers)


def _counts(name: str, value: Any, categories: list[Hashable] | None) -> dict[Hashable, int]:
    """Return a count by category: of a mapping, or one number for all of these categories."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        if categories is None:
            raise ParameterError(
                f"{name} must be a mapping of category to number, got {value!r}", parameters=(name,)
            )
        check_count(value, name, least=0)
        value = dict.fromkeys(categories, value)
    for count in value.values():
        check_count(count, name, least=0)
    return {category: int(count) for category, count in value.items()}
