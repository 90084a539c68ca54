"""Everything the page shows about items: where they lie, what they are kept apart from, what they go with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets
from contradpp.report.maps import Points
from contradpp.report.projection import clusters, layout
from contradpp.report.relations import complements, pair_ratios, popular, substitutes
from contradpp.report.svg import short

Array = NDArray[np.float64]
Named = list[tuple[str, float]]
N_ITEMS = 300
N_RELATED = 6
N_COLOURS = 8


@dataclass(frozen=True)
class Atlas:
    """The most popular items, most popular first.

    Attributes
    ----------
    names : list of str
    ratios : array (n, n)
        See `pair_ratios`.
    substitutes, complements : list of lists
        Of each item: names with |cos|, and names with how many times more likely they come next.
    points : Points
        Their places on the map.
    """

    names: list[str]
    ratios: Array
    substitutes: list[Named]
    complements: list[Named]
    points: Points

    @cached_property
    def attracts(self) -> bool:
        """Whether any two items are together more often than unrelated ones."""
        return bool((self.ratios > 1e-6).any())

    def as_json(self) -> str:
        """What the page's script needs, safe inside a script element."""
        places = {name: number for number, name in enumerate(self.names)}
        entries = []
        for number, name in enumerate(self.names):
            near, along = self.substitutes[number], self.complements[number]
            entries.append(
                {
                    "name": name,
                    "share": f"{self.points.shares[number]:.1%}",
                    "substitutes": [(short(other, 36), f"{strength:.2f}") for other, strength in near],
                    "complements": [(short(other, 36), f"×{times:.2f}") for other, times in along],
                    "near": [places[other] for other, _ in (*near, *along) if other in places],
                }
            )
        return json.dumps(entries, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def survey(model: Any, train: Baskets, *, n: int = N_ITEMS) -> Atlas:
    """Look at the items that are in most of the baskets."""
    codes = popular(train.recode(model.items_), n)
    ids = [model.items_[code] for code in codes.tolist()]
    names = [" ".join(model.items_.name(item).split()) for item in ids]
    ratios = pair_ratios(model, codes)
    usual = model.predict_next([])
    near = [[(names[other], x) for other, x in substitutes(ratios, row, N_RELATED)] for row in range(len(ids))]
    along = [
        [(model.items_.name(other), x) for other, x in complements(model, item, N_RELATED, usual=usual)] for item in ids
    ]
    places = layout(np.exp(-np.abs(ratios)) * (1 - np.eye(len(ids))))
    shares = train.item_counts[train.items.codes(ids)] / max(train.n_baskets, 1)
    return Atlas(names, ratios, near, along, Points(places, names, shares, clusters(places, N_COLOURS)))
