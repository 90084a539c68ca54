"""Everything the page shows about items: where they lie, what they are kept apart from, what they go with."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.atlas import N_LANDMARKS, Atlas, clusters
from contradpp.data.baskets import Baskets
from contradpp.report.charts import short

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Named = list[tuple[str, float]]
N_RELATED = 6
FEWEST_TOGETHER = 5  # baskets that must hold two items before one is said to make the other more likely
N_COLOURS = 8


@dataclass(frozen=True)
class Survey:
    """The most popular items, most popular first."""

    names: list[str]
    ratios: Array  # (n, n): see `contradpp.atlas.pair_ratios`
    substitutes: list[Named]  # names with |cos|
    complements: list[list[tuple[str, float, int]]]  # how many times likelier next, and in how many baskets together
    places: Array  # (n, 2): where each is on the map
    shares: Array  # of baskets that hold each
    groups: list[int]  # the colour of each

    @cached_property
    def attracts(self) -> bool:
        """Whether any two items are together more often than unrelated ones."""
        return bool((self.ratios > 1e-6).any())

    def as_json(self) -> str:
        """What the page's script needs, safe inside a script element."""
        rows = {name: number for number, name in enumerate(self.names)}
        entries = [
            {
                "name": name,
                "share": f"{share:.1%}",
                "substitutes": [(short(other, 36), f"{strength:.2f}") for other, strength in near],
                "complements": [(short(other, 36), f"×{times:.2f}, in {n:,}") for other, times, n in along],
                "near": [rows[other] for other, *_ in (*near, *along) if other in rows],
            }
            for name, share, near, along in zip(
                self.names, self.shares, self.substitutes, self.complements, strict=True
            )
        ]
        return json.dumps(entries, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def survey(model: Any, train: Baskets, *, n: int = N_LANDMARKS) -> Survey:
    """Look at the items that are in most of the baskets."""
    own = train.recode(model.items_)
    codes = popular(own, n)
    ids = [model.items_[code] for code in codes.tolist()]
    names = [" ".join(model.items_.name(item).split()) for item in ids]
    atlas = Atlas(model, codes)
    usual = model.predict_next([])
    near = [[(names[other], x) for other, x in substitutes(atlas.ratios, row, N_RELATED)] for row in range(len(ids))]
    seen = together(own, codes)
    along = []
    for item, counts in zip(ids, seen, strict=True):
        found = complements(model, item, 4 * N_RELATED, usual=usual)
        supported = [(model.items_.name(other), x, int(counts[model.items_.code(other)])) for other, x in found]
        along.append([entry for entry in supported if entry[2] >= FEWEST_TOGETHER][:N_RELATED])
    shares = train.item_counts[train.items.codes(ids)] / max(train.n_baskets, 1)
    groups = clusters(atlas.places, N_COLOURS).tolist()
    return Survey(names, atlas.ratios, near, along, atlas.places, shares, groups)


def popular(baskets: Baskets, n: int) -> Codes:
    """The codes of the n items in most baskets, most popular first; those that never occur are left out."""
    counts = baskets.item_counts
    order = np.argsort(-counts, kind="stable")[:n]
    return order[counts[order] > 0]


def together(baskets: Baskets, codes: Codes) -> NDArray[np.int64]:
    """In how many baskets each of these items was with every other one (len(codes), M)."""
    from scipy.sparse import csr_array

    ones = np.ones(len(baskets.indices), dtype=np.int64)
    X = csr_array((ones, baskets.indices, baskets.indptr), shape=(baskets.n_baskets, baskets.n_items))
    found: NDArray[np.int64] = (X[:, codes].T @ X).toarray()
    return found


def substitutes(ratios: Array, row: int, n: int) -> list[tuple[int, float]]:
    """The items that one is kept apart from most, by their rows, with |cos| of the angle between their factors.

    As `similar_items` of the model, but only among these items: rare ones lie where chance has put them.
    """
    order = np.argsort(ratios[row], kind="stable")[:n]
    return [(int(other), float(np.sqrt(-np.expm1(ratios[row, other])))) for other in order if ratios[row, other] < 0]


def complements(model: Any, item: Hashable, n: int, *, usual: Array) -> list[tuple[Hashable, float]]:
    """Items that an item in the basket makes more likely to come next, and how many times.

    Parameters
    ----------
    usual : array (M,)
        P(next = j | ∅), what an empty basket is offered. Ordered by P(next = j | item) − usual, so that rare items,
        whose ratio means little, do not come first; a model that has `complements` of its own is asked instead.
    """
    given = model.predict_next([item])
    if hasattr(model, "complements"):
        codes = model.items_.codes(model.complements(item, n)[0].tolist())
    else:
        codes = np.argsort(usual - given, kind="stable")[:n]
    times = given[codes] / np.maximum(usual[codes], 1e-300)
    return [(model.items_[code], float(value)) for code, value in zip(codes.tolist(), times, strict=True)]
