"""`evaluate_slates`: hits of slates in the hidden half of test baskets, and variety of the slates.

An item without a category is one of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._random import RandomState, root_seed
from contradpp._types import Array, Flags, Ints
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import Sets
from contradpp.data.vocabulary import Vocabulary, as_vocabulary
from contradpp.errors import DataError, ParameterError
from contradpp.experts.queries import check_count
from contradpp.metrics.intervals import Means
from contradpp.metrics.metrics import Samples, coverage, intra_list
from contradpp.models.base import DPPRecommender, can_extend
from contradpp.slates.halves import are_in, count_distinct, group_numbers, hide, hit_samples

ALPHA = 0.5  # of α-nDCG: the worth of a further item of a category
ROWS_PER_BLOCK = 4096


def evaluate_slates(
    model: Any,
    test: Any,
    k: int = 10,
    given: float = 0.5,
    categories: Mapping[Hashable, Hashable] | None = None,
    *,
    vectors: Mapping[Hashable, ArrayLike] | None = None,
    train: Any = None,
    diversity: float | None = None,
    min_size: int = 4,
    random_state: RandomState = 0,
) -> SlateReport:
    """Hide a part of every test basket and measure how slates for the rest hit it.

    Parameters
    ----------
    model : a fitted model, a function, or slates
        Anything with `slate` or `recommend`; a function of (Baskets, k) that returns a row of items
        for every basket; or such rows themselves, in the order of `hide(test, given, ...).given`
        from `contradpp.slates.halves`.
    test : Baskets or list of lists
    k : int
        The length of a slate.
    given : float
        The share of a basket that is shown.
    categories : mapping of item to category, optional
        Those of the test baskets' vocabulary if left out.
    vectors : mapping of item to vector, optional
        For `distance_vectors`, by cosine; an item without a vector has zeros.
    train : Baskets or list of lists, optional
        The baskets of `distance_baskets`; the test baskets if left out.
    diversity : float, optional
        That of `slate`.
    min_size : int
        Test baskets with fewer items are left out.
    random_state : int, Generator or None
        Chooses the hidden items and the bootstrap samples: the same for every model.

    Returns
    -------
    SlateReport

    Examples
    --------
    >>> import contradpp as cd
    >>> lists = [["tea", "milk", "pasta", "sauce"], ["tea", "milk", "jam", "bread"]] * 20
    >>> shop = cd.Baskets.from_lists(lists)
    >>> best = cd.evaluate_slates(cd.baselines.ItemKNN().fit(shop), shop, k=2)
    >>> sellers = cd.evaluate_slates(lambda baskets, k: [["tea", "milk"]] * len(baskets), shop, k=2)
    >>> best.recall > sellers.recall
    True
    """
    check_count(k, "k")
    seed = root_seed(random_state)
    halves = hide(test, given, min_size=min_size, random_state=seed)
    items = _catalogue(model, halves.hidden.items, train)
    shown = halves.given.recode(items)
    hidden = halves.hidden.recode(items)
    answerable = _answerable(model, halves.given)
    rows = _slates(model, halves.given.subset(answerable), k, diversity)
    if len(rows) != len(answerable):
        raise DataError(
            f"there are {len(answerable):,} baskets to complete, but {len(rows):,} slates"
        )
    slates = np.full((hidden.n_baskets, k), -1, dtype=np.int64)
    slates[answerable, : rows.shape[1]] = _codes(rows, items)
    slates[are_in(slates, shown.sets)] = -1  # an item of the basket is no suggestion
    categories = items.categories if categories is None else categories
    groups = group_numbers(categories, items) if categories else None
    samples = hit_samples(slates, hidden.sets, groups)
    samples |= _gain_samples(slates, hidden.sets, groups)
    samples |= _variety_samples(slates, groups)
    samples["distance_vectors"] = np.full(len(slates), np.nan)
    if vectors is not None:
        samples["distance_vectors"] = _vector_distance(slates, _unit_table(vectors, items))
    counted = shown if train is None else as_baskets(train).recode(items)
    samples["distance_baskets"] = intra_list(slates.astype(np.int32), counted)
    unanswered = np.setdiff1d(np.arange(len(slates)), answerable)
    for values in samples.values():
        values[unanswered] = np.nan
    return SlateReport(
        k=k,
        coverage=coverage(slates, len(items)),
        n_baskets=len(slates),
        n_items=len(items),
        n_skipped=len(unanswered),
        slates=slates,
        by_basket=samples,
        seed=seed,
    )


@dataclass(frozen=True)
class SlateReport(Means):
    """The result of `evaluate_slates`: means over the test baskets, NaN for a missing metric.

    | metric | of a slate |
    |---|---|
    | `recall` | the share of the hidden items that are on it |
    | `hit` | 1 if any is on it |
    | `ndcg` | hits further up count more; 1 if the hidden items stand first |
    | `alpha_ndcg` | likewise, and the n-th hit of a category counts 2¹⁻ⁿ |
    | `categories_hit` | categories of the hidden half of which it has an item |
    | `categories_found` | categories of which it has a hidden item |
    | `categories` | categories of its items |
    | `distance_categories` | the share of its pairs with different categories |
    | `distance_vectors` | 1 − cosine, the mean over its pairs |
    | `distance_baskets` | 1 − Jaccard index of the baskets of two items, the mean over its pairs |

    `coverage` is the share of the catalogue that is on any slate.
    """

    k: int
    coverage: float
    n_baskets: int
    n_items: int
    n_skipped: int
    slates: Ints = field(repr=False, compare=False)  # (n_baskets, k): codes, −1 for none
    by_basket: Samples = field(repr=False, compare=False)
    seed: int = field(repr=False)
    of = "baskets or hidden halves"
    counts = ("k", "n_baskets", "n_items", "n_skipped")

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric by name."""
        return super().metrics | {"coverage": self.coverage}

    def label(self, metric: str) -> str:
        """Return the name of a metric in a table."""
        return f"nDCG@{self.k}" if metric == "ndcg" else super().label(metric)

    def __str__(self) -> str:
        lines = [f"slates of {self.k} for {self.n_baskets:,} baskets, {self.n_items:,} items"]
        if self.n_skipped:
            lines.append(
                f"{self.n_skipped:,} baskets could not be answered: they are as large as the "
                "model's rank"
            )
        return "\n".join([*lines, "", *self.table()])


# -- Slates of the model ---------------------------------------------------------------------------


def _catalogue(model: Any, items: Vocabulary, train: Any) -> Vocabulary:
    """Return all items of the test baskets, the model and the training baskets."""
    known = getattr(model, "items_", None)
    if known is not None:
        items = items.merge(as_vocabulary(known))
    return items if train is None else items.merge(as_baskets(train).items)


def _answerable(model: Any, given: Baskets) -> Ints:
    """Return the baskets to which the model can add an item."""
    if not isinstance(model, DPPRecommender):
        return np.arange(given.n_baskets)
    return np.flatnonzero(can_extend(model, given.recode(model.known_items, unknown="ignore").sets))


def _slates(model: Any, given: Baskets, k: int, diversity: float | None) -> NDArray[Any]:
    """Return a row of items for every basket, None where there are fewer than k."""
    if diversity is not None and not hasattr(model, "slate"):
        raise ParameterError("diversity is for models with `slate`", parameters=("diversity",))
    if hasattr(model, "slate") or hasattr(model, "recommend"):
        if not given.n_baskets:
            return np.empty((0, 0), dtype=object)
        if hasattr(model, "slate"):
            rows = model.slate(given, k, diversity=diversity, unknown="ignore")
        else:
            rows = model.recommend(given, k, unknown="ignore")
    else:
        rows = model(given, k) if callable(model) else model
    if isinstance(rows, tuple) and len(rows) == 2:
        rows = rows[0]
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return rows[:, :k]
    lists = [list(row)[:k] for row in rows]
    out = np.full((len(lists), max(map(len, lists), default=0)), None, dtype=object)
    for number, row in enumerate(lists):
        for place, item in enumerate(row):
            out[number, place] = item
    return out


def _codes(slates: NDArray[Any], items: Vocabulary) -> Ints:
    """Return the codes of slates, −1 for None; refuse items that are unknown or come twice."""
    codes = items.find(slates.ravel()).reshape(slates.shape)
    is_item = np.array([item is not None for item in slates.ravel().tolist()], dtype=bool)
    is_unknown = (codes < 0) & is_item.reshape(slates.shape)
    if is_unknown.any():
        raise DataError(
            f"a slate has {slates[is_unknown][0]!r}, which is not in the catalogue: "
            "pass train=, too"
        )
    ordered = np.sort(codes, axis=1)
    doubled = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if doubled.any():
        row = int(np.flatnonzero(doubled.any(axis=1))[0])
        raise DataError(f"slate {row} has {items[int(ordered[row, 1:][doubled[row]][0])]!r} twice")
    return codes


def _unit_table(vectors: Mapping[Hashable, ArrayLike], items: Vocabulary) -> Array:
    """Return vectors of length 1, a row per item, zeros where there is none."""
    rows = {
        code: np.asarray(vectors[item], dtype=np.float64)
        for code, item in enumerate(items)
        if item in vectors
    }
    table = np.zeros((len(items), max(map(len, rows.values()), default=1)))
    for code, row in rows.items():
        length = float(np.linalg.norm(row))
        table[code] = row / length if length > 0 else 0.0
    return table


# -- Metrics, slate by slate -----------------------------------------------------------------------


def _gain_samples(slates: Ints, hidden: Sets, groups: Ints | None) -> Samples:
    """Return nDCG and, with categories, α-nDCG and the number of categories found."""
    n, k = slates.shape
    hits = are_in(slates, hidden)
    discounts = 1.0 / np.log2(np.arange(2, k + 2))
    ideal = np.concatenate([[0.0], np.cumsum(discounts)])[np.minimum(hidden.sizes, k)]
    samples = {
        "ndcg": hits @ discounts / ideal,
        "alpha_ndcg": np.full(n, np.nan),
        "categories_found": np.full(n, np.nan),
    }
    if groups is not None:
        slate_groups = np.where(slates >= 0, groups[slates], -1)
        gains = (hits * ALPHA ** _earlier_in_group(slate_groups, hits)) @ discounts
        ideal = _ideal_alpha_dcg(hidden.owners, groups[hidden.indices], n, discounts)
        samples["alpha_ndcg"] = gains / ideal
        samples["categories_found"] = count_distinct(slate_groups, hits)
    return samples


def _earlier_in_group(groups: Ints, counted: Flags) -> Ints:
    """Return for every place the number of earlier counted places with the same category."""
    counts = np.zeros(groups.shape, dtype=np.int64)
    for place in range(1, groups.shape[1]):
        is_same = groups[:, :place] == groups[:, [place]]
        counts[:, place] = (is_same & counted[:, :place]).sum(axis=1)
    return counts


def _ideal_alpha_dcg(owners: Ints, groups: Ints, n: int, discounts: Array) -> Array:
    """Return the α-DCG of the best order: first an item of every category, then a second, ..."""
    gains = np.power(ALPHA, _rank_within(owners, groups))
    order = np.lexsort((-gains, owners))
    place = np.arange(len(order)) - np.searchsorted(owners, owners)
    counts = place < len(discounts)
    values = gains[order][counts] * discounts[place[counts]]
    return np.bincount(owners[counts], weights=values, minlength=n).astype(np.float64)


def _rank_within(owners: Ints, groups: Ints) -> Ints:
    """Return for every entry the number of earlier entries with its owner and category."""
    order = np.lexsort((groups, owners))
    keys = owners[order] * (int(groups.max(initial=0)) + 1) + groups[order]
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.arange(len(order)) - np.searchsorted(keys, keys)
    return out


def _variety_samples(slates: Ints, groups: Ints | None) -> Samples:
    """Return the number of categories, and the share of pairs with different categories."""
    n = len(slates)
    if groups is None:
        return {"categories": np.full(n, np.nan), "distance_categories": np.full(n, np.nan)}
    is_item = slates >= 0
    slate_groups = np.where(is_item, groups[slates], -1)
    n_same = np.where(is_item, _earlier_in_group(slate_groups, is_item), 0).sum(axis=1)
    m = is_item.sum(axis=1)
    pairs = m * (m - 1) / 2
    distance = np.divide(pairs - n_same, pairs, out=np.full(n, np.nan), where=pairs > 0)
    return {"categories": count_distinct(slate_groups, is_item), "distance_categories": distance}


def _vector_distance(slates: Ints, table: Array) -> Array:
    """Return the mean of 1 − cosine over the pairs of every slate.

    The sum of all cosines follows from the length of the sum of the unit vectors.
    """
    out = np.full(len(slates), np.nan)
    for first in range(0, len(slates), ROWS_PER_BLOCK):
        part = slates[first : first + ROWS_PER_BLOCK]
        is_item = part >= 0
        units = np.where(is_item[:, :, None], table[part], 0.0)
        m = is_item.sum(axis=1)
        square_of_sum = np.square(units.sum(axis=1)).sum(axis=1)
        cosines = (square_of_sum - np.square(units).sum(axis=(1, 2))) / 2
        pairs = m * (m - 1) / 2
        np.divide(pairs - cosines, pairs, out=out[first : first + ROWS_PER_BLOCK], where=pairs > 0)
    return out
