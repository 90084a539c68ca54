"""A model as it is served: one immutable snapshot with everything that is derived from it, asked by the routes."""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import RankError
from contradpp.models.base import BaseDPP
from contradpp.serve.atlas import Atlas
from contradpp.serve.catalogue import Hits, Search
from contradpp.serve.completion import Completion, complete_with_variety

Ask = str | int  # an item as JSON names it
LANDMARKS = 300


class Known(NamedTuple):
    """The items of a request that the model knows, as it holds them, without duplicates, and the others."""

    items: list[Hashable]
    unknown: list[Ask]


class Ranked(NamedTuple):
    """Items with probabilities, best first, or why there are none."""

    items: list[Hashable]
    probabilities: list[float]
    problem: str | None = None


class Served:
    """A model with what people and programs ask of it.

    Parameters
    ----------
    model : BaseDPP
    version : str
        Tells this model from others.
    """

    def __init__(self, model: BaseDPP, version: str) -> None:
        self.model = model
        self.version = version
        self.loaded = datetime.now(UTC).isoformat(timespec="seconds")
        self.items: Vocabulary = model.items_
        self.weights: NDArray[np.float64] = np.clip(model.marginals(), 0.0, 1.0)
        self.search = Search([self._labels(item) for item in self.items], self.weights)
        # Ids that JSON cannot name (tuples, fractions, ...) go by their text.
        self._texts = {str(item): item for item in self.items if type(item) not in (str, int)}
        self.cost = float(model.item_factors_.size)  # multiply-adds of one row times Vᵀ
        self._drawing = threading.Lock()

    def _labels(self, item: Hashable) -> list[str]:
        return list(dict.fromkeys([self.items.name(item), str(item)]))

    # -- Ids ---------------------------------------------------------------------------------------

    def resolve(self, asked: Iterable[Ask]) -> Known:
        """Find items as the vocabulary holds them; "17" finds 17 where there is no "17", and the other way round."""
        found: dict[Hashable, None] = {}
        unknown: dict[Ask, None] = {}
        for name in asked:
            item = self._find(name)
            if item is None:
                unknown[name] = None
            else:
                found[item] = None
        return Known(list(found), list(unknown))

    def _find(self, name: Ask) -> Hashable | None:
        if name in self.items:
            return self.items[self.items.code(name)]
        if isinstance(name, int):
            text = _digits(name)
            return text if text in self.items else None
        if name in self._texts:
            return self._texts[name]
        number = _whole(name)
        return number if number is not None and number in self.items else None

    def public(self, item: Hashable) -> Ask:
        """The id that JSON shows for an item."""
        return item if type(item) is str or type(item) is int else str(item)

    def name(self, item: Hashable) -> str:
        """What people call the item."""
        return self.items.name(item)

    def weight(self, item: Hashable) -> float:
        """P(item in Y)."""
        return float(self.weights[self.items.code(item)])

    # -- Questions ---------------------------------------------------------------------------------

    def recommend(
        self,
        baskets: Sequence[list[Hashable]],
        n: int,
        *,
        candidates: list[Hashable] | None = None,
        exclude: Sequence[Hashable] = (),
    ) -> list[Ranked]:
        """The n best next items of every basket; a basket that nothing can join has a problem instead."""
        if not baskets:
            return []
        try:
            if len(baskets) == 1:
                items, shares = self.model.recommend(baskets[0], N=n, candidates=candidates, exclude=exclude)
                rows = [(items, shares)]
            else:
                items, shares = self.model.recommend(list(baskets), N=n, candidates=candidates, exclude=exclude)
                rows = list(zip(items, shares, strict=True))
        except RankError as error:
            if len(baskets) == 1:
                return [Ranked([], [], str(error))]
            return [self.recommend([one], n, candidates=candidates, exclude=exclude)[0] for one in baskets]
        return [_ranked(items.tolist(), shares.tolist()) for items, shares in rows]

    def complete(self, basket: list[Hashable], n: int, *, variety: float, exclude: list[Hashable]) -> Completion:
        """Add n items to the basket, with as much variety as asked."""
        return complete_with_variety(self.model, basket, n, variety=variety, exclude=exclude)

    def scores(self, baskets: Sequence[list[Hashable]]) -> list[float | None]:
        """log P of every basket, None where it is −inf."""
        if not baskets:
            return []
        logs = self.model.score_samples(list(baskets)).tolist()
        return [value if math.isfinite(value) else None for value in logs]

    def sample(self, n: int, *, size: int | None, given: list[Hashable], seed: int | None) -> list[list[Hashable]]:
        """Sets drawn from the model."""
        return list(self.model.sample(n, size=size, given=given, random_state=seed))

    def find(self, query: str, limit: int) -> Hits:
        """The codes of items that match a search."""
        return self.search.find(query, limit)

    # -- The map -----------------------------------------------------------------------------------

    def places(self, asked: Iterable[int], limit: int) -> tuple[list[int], NDArray[np.float64]]:
        """The weightiest items and the asked ones, at most `limit` in all, with their places on the map."""
        codes = list(dict.fromkeys([*asked, *self._heaviest[:limit].tolist()]))[:limit]
        with self._drawing:  # the first to ask draws the map
            atlas = self._atlas
        return codes, atlas.places(codes)

    @cached_property
    def _heaviest(self) -> NDArray[np.int64]:
        return np.argsort(-self.weights, kind="stable")[:LANDMARKS]

    @cached_property
    def _atlas(self) -> Atlas:
        return Atlas(self.model.item_factors_, self._heaviest)


def _ranked(items: list[Hashable], shares: list[float]) -> Ranked:
    last = len(items)
    while last and items[last - 1] is None:  # a batch pads its short rows
        last -= 1
    return Ranked(items[:last], [min(share, 1.0) for share in shares[:last]])


def _digits(number: int) -> str | None:
    """The number's text, None for one longer than Python writes."""
    return str(number) if abs(number) < 10**18 else None


def _whole(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None
