"""`evaluate_slates`: half of every test basket is hidden, and a slate is judged by what it has of that half.

Beside relevance (what of the hidden half is on the slate) stands variety (how unlike its items are). An item without a
category is one of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._random import RandomState, root_seed
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.halves import (
    Array,
    Codes,
    Halves,
    count_distinct,
    earlier_alike,
    group_numbers,
    held,
    hide,
    relevance_samples,
)
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError
from contradpp.experts.base import check_count
from contradpp.metrics.intervals import Means
from contradpp.metrics.metrics import Samples, coverage, intra_list
from contradpp.models.base import BaseDPP

ROWS_PER_BLOCK = 4096


def evaluate_slates(
    model: Any,
    test: Any,
    k: int = 10,
    given: float = 0.5,
    categories: Mapping[Any, Any] | None = None,
    *,
    vectors: Mapping[Any, ArrayLike] | None = None,
    train: Any = None,
    diversity: float | None = None,
    min_size: int = 4,
    likelihood: bool = False,
    random_state: RandomState = 0,
) -> SlateReport:
    """Hide a part of every test basket, ask for a slate given the rest, and measure what it has of the hidden part.

    Parameters
    ----------
    model : a fitted model, a function, or slates
        Anything with `slate` or `recommend`; a function of (Baskets, k) that gives a row of items for every basket; or
        such rows themselves, in the order of `hide(test, given, ...).given`, which `contradpp.data.halves` has.
    test : Baskets or list of lists
    k : int
        The length of a slate.
    given : float
        The share of a basket that is shown.
    categories : mapping of item to category, optional
        Those of the test baskets' vocabulary if left out.
    vectors : mapping of item to vector, optional
        How alike items are, by cosine, for one of the distances; zeros for items without one.
    train : Baskets or list of lists, optional
        Where it is counted how often items meet, for another of them; the test baskets if left out.
    diversity : float, optional
        That of `slate`.
    min_size : int
        Test baskets with fewer items are left out.
    likelihood : bool
        Whether to compute how likely the hidden half is among all sets of its size, under the k-DPP that the model's
        slates come from; it takes some 10 ms a basket for 40,000 items.
    random_state : int, Generator or None
        Chooses what is hidden, and the bootstrap samples: the same for every model.

    Examples
    --------
    >>> import contradpp as cd
    >>> shop = cd.Baskets.from_lists([["tea", "milk", "pasta", "sauce"], ["tea", "milk", "jam", "bread"]] * 20)
    >>> best = cd.evaluate_slates(cd.baselines.ItemKNN().fit(shop), shop, k=2)
    >>> sellers = cd.evaluate_slates(lambda baskets, k: [["tea", "milk"]] * len(baskets), shop, k=2)
    >>> best.recall > sellers.recall
    True
    """
    check_count(k, "k")
    seed = root_seed(random_state)
    halves = hide(test, given, min_size=min_size, random_state=seed)
    known = _catalogue(model, halves.hidden.items, train)
    hidden, asked = halves.hidden.recode(known), _answerable(model, halves.given)
    slates = np.full((hidden.n_baskets, k), -1, dtype=np.int64)
    told = _slates(model, halves.given.subset(asked), k, diversity)
    if len(told) != len(asked):
        raise DataError(f"there are {len(asked):,} baskets to complete, but {len(told):,} slates")
    slates[asked, : told.shape[1]] = _codes(told, known)
    slates[held(slates, halves.given.recode(known).sets)] = -1  # what is in the basket already is no suggestion
    shelves = known.categories if categories is None else categories
    groups = group_numbers(shelves, known) if shelves else None
    samples = relevance_samples(slates, hidden.sets, groups) | variety_samples(slates, groups)
    samples["distance_vectors"] = (
        np.full(len(slates), np.nan) if vectors is None else vector_distance(slates, _table(vectors, known))
    )
    counted = halves.given.recode(known) if train is None else as_baskets(train).recode(known)
    samples["distance_baskets"] = intra_list(slates.astype(np.int32), counted)
    samples |= _likelihoods(model, halves, asked, diversity) if likelihood else {}
    unanswered = np.setdiff1d(np.arange(len(slates)), asked)
    for values in samples.values():
        values[unanswered] = np.nan
    return SlateReport(
        k=k, coverage=coverage(slates, len(known)), n_baskets=len(slates), n_items=len(known),
        n_skipped=len(unanswered), slates=slates, by_basket=samples, seed=seed,
    )  # fmt: skip


@dataclass(frozen=True)
class SlateReport(Means):
    """What `evaluate_slates` found: means over the test baskets, by name in `metrics`; NaN where there is none.

    | metric | of a slate |
    |---|---|
    | `recall` | the share of the hidden items that are on it |
    | `hit` | whether any is |
    | `ndcg` | hits further up count more; 1 if the hidden items stand first |
    | `alpha_ndcg` | likewise, and the n-th hit of a category counts 2¹⁻ⁿ |
    | `categories_hit` | of how many categories of the hidden half it has an item |
    | `categories_found` | of how many categories it has a hidden item |
    | `categories` | how many it has items of |
    | `distance_categories` | the share of its pairs that are of different categories |
    | `distance_vectors` | 1 − cosine, the mean over its pairs |
    | `distance_baskets` | 1 − Jaccard index of the baskets of two of its items, the mean over its pairs |
    | `log_likelihood` | log P(hidden half) among sets of its size, under the k-DPP of the model's slates |
    | `log_likelihood_gain` | that less the same with Φ = I: what the likeness of items adds |

    `coverage` is the share of the catalogue that is on any slate.
    """

    k: int
    coverage: float
    n_baskets: int
    n_items: int
    n_skipped: int
    slates: Codes = field(repr=False, compare=False)  # (n_baskets, k): codes, −1 for none
    by_basket: Samples = field(repr=False, compare=False)
    seed: int = field(repr=False)
    of = "baskets or hidden halves"
    counts = ("k", "n_baskets", "n_items", "n_skipped")

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric by name."""
        return super().metrics | {"coverage": self.coverage}

    def label(self, metric: str) -> str:
        """What a table calls a metric."""
        return f"nDCG@{self.k}" if metric == "ndcg" else super().label(metric)

    def __str__(self) -> str:
        notes = [f"slates of {self.k} for {self.n_baskets:,} baskets, {self.n_items:,} items"]
        if self.n_skipped:
            notes.append(f"{self.n_skipped:,} baskets could not be answered: they are as large as the model's rank")
        return "\n".join([*notes, "", *self.table()])


# -- What the model says -------------------------------------------------------------------------------


def _catalogue(model: Any, items: Vocabulary, train: Any) -> Vocabulary:
    """All items that may come up: those of the test baskets, the model and the training baskets."""
    known = getattr(model, "items_", None)
    items = items if known is None else items.merge(known if isinstance(known, Vocabulary) else Vocabulary(known))
    return items if train is None else items.merge(as_baskets(train).items)


def _answerable(model: Any, given: Baskets) -> Codes:
    """The baskets that the model can add to: fewer items than a low-rank kernel has rank."""
    if not isinstance(model, BaseDPP):
        return np.arange(given.n_baskets)
    return np.flatnonzero(model.can_grow(given.recode(model.known_items, unknown="ignore").sets))


def _slates(model: Any, given: Baskets, k: int, diversity: float | None) -> NDArray[Any]:
    """A row of items for every basket, None where there are fewer than k."""
    if hasattr(model, "slate"):
        told = model.slate(given, k, diversity=diversity, unknown="ignore") if given.n_baskets else []
    elif diversity is not None:
        raise ParameterError("diversity is for models with `slate`", parameters=("diversity",))
    elif hasattr(model, "recommend"):
        told = model.recommend(given, k, unknown="ignore") if given.n_baskets else []
    else:
        told = model(given, k) if callable(model) else model
    rows = told[0] if isinstance(told, tuple) and len(told) == 2 else told
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return rows[:, :k]
    lists = [list(row)[:k] for row in rows]
    out = np.full((len(lists), max(map(len, lists), default=0)), None, dtype=object)
    for number, row in enumerate(lists):
        for place, item in enumerate(row):
            out[number, place] = item
    return out


def _codes(items: NDArray[Any], known: Vocabulary) -> Codes:
    """The codes of slates, −1 for None; an item that nobody knows or that comes twice is an error."""
    codes = known.find(items.ravel()).reshape(items.shape)
    lost = codes < 0
    if items.dtype == object:
        lost &= np.array([item is not None for item in items.ravel().tolist()], dtype=bool).reshape(items.shape)
    if lost.any():
        raise DataError(f"a slate has {items[lost][0]!r}, which is not in the catalogue: pass train=, too")
    ordered = np.sort(codes, axis=1)
    doubled = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if doubled.any():
        row = int(np.flatnonzero(doubled.any(axis=1))[0])
        raise DataError(f"slate {row} has {known[int(ordered[row, 1:][doubled[row]][0])]!r} twice")
    return codes


def _table(vectors: Mapping[Any, ArrayLike], known: Vocabulary) -> Array:
    """Vectors of length 1, a row per item, zeros where there is none."""
    rows = {code: np.asarray(vectors[item], dtype=np.float64) for code, item in enumerate(known) if item in vectors}
    table = np.zeros((len(known), max((len(row) for row in rows.values()), default=1)))
    for code, row in rows.items():
        length = float(np.linalg.norm(row))
        table[code] = row / length if length > 0 else 0.0
    return table


def _likelihoods(model: Any, halves: Halves, asked: Codes, diversity: float | None) -> Samples:
    logs, gains = np.full((2, halves.given.n_baskets), np.nan)
    if isinstance(model, BaseDPP):
        given, hidden = halves.given.subset(asked), halves.hidden.subset(asked)
        logs[asked] = model.score_slates(given, hidden, diversity=diversity, unknown="ignore")
        gains[asked] = logs[asked] - model.score_slates(
            given, hidden, diversity=diversity, unknown="ignore", alike=False
        )
    return {"log_likelihood": logs, "log_likelihood_gain": gains}


# -- The metrics, slate by slate -------------------------------------------------------------------------


def variety_samples(slates: Codes, groups: Codes | None) -> Samples:
    """How many categories a slate has, and how many of its pairs are of two."""
    n = len(slates)
    if groups is None:
        return {"categories": np.full(n, np.nan), "distance_categories": np.full(n, np.nan)}
    there = slates >= 0
    shelves = np.where(there, groups[slates], -1)
    same, m = earlier_alike(shelves, there)[there], there.sum(axis=1)
    owner = np.nonzero(there)[0]
    alike = np.bincount(owner, weights=same, minlength=n)
    pairs = m * (m - 1) / 2
    distance = np.divide(pairs - alike, pairs, out=np.full(n, np.nan), where=pairs > 0)
    return {"categories": count_distinct(shelves, there), "distance_categories": distance}


def vector_distance(slates: Codes, table: Array) -> Array:
    """The mean of 1 − cosine over the pairs of every slate, from the length of the sum of its unit vectors."""
    out = np.full(len(slates), np.nan)
    for first in range(0, len(slates), ROWS_PER_BLOCK):
        part = slates[first : first + ROWS_PER_BLOCK]
        units = np.where((part >= 0)[:, :, None], table[part], 0.0)
        m = (part >= 0).sum(axis=1)
        products = (np.square(units.sum(axis=1)).sum(axis=1) - np.square(units).sum(axis=(1, 2))) / 2
        pairs = m * (m - 1) / 2
        np.divide(pairs - products, pairs, out=out[first : first + ROWS_PER_BLOCK], where=pairs > 0)
    return out
