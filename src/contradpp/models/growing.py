"""A basket that someone fills item by item, with suggestions after each: the interactive use of a DPP."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp.kernel import Array, Kernel
from contradpp.dpp.scoring import top_n
from contradpp.errors import RankError
from contradpp.models.queries import Suggests, allowed_codes, as_codes, check_count


class GrowingBasket:
    """What `model.grow(basket)` returns: add items, ask for suggestions; each item costs one pass over V.

    Examples
    --------
    >>> import numpy as np
    >>> import contradpp as cd
    >>> model = cd.LowRankDPP.from_factors(np.eye(3) * [1, 2, 3], items=["tea", "milk", "bread"])
    >>> basket = model.grow(["tea"])
    >>> basket.add("bread").recommend(N=1)[0].tolist()
    ['milk']
    """

    def __init__(self, kernel: Kernel, items: Vocabulary, basket: Iterable[Any]) -> None:
        self._items = items
        self._set = kernel.grow(as_codes(basket, items))
        self._codes = self._set.codes

    @property
    def items(self) -> list[Hashable]:
        """The items of the basket, in the order in which they came."""
        return [self._items[code] for code in self._codes]

    def add(self, item: Any) -> Self:
        """Put an item into the basket; one that is there already changes nothing."""
        code = self._items.code(item)
        if code not in self._codes:
            self._put(code)
        return self

    def _put(self, code: int) -> None:
        self._set.add(code)

    def probabilities(self) -> Array:
        """P(next = i | basket) for every item, 0 for those in it: they sum to 1, or are all 0 if nothing is left."""
        scores = np.where(self._set.open_to, np.maximum(self._set.scores, 0.0), 0.0)
        total = scores.sum()
        if not total > 0 and self._set.open_to.any():
            raise RankError(f"no item can be added to this basket of {len(self._set)}: every larger set is impossible")
        shares: Array = scores / (total or 1.0)
        return shares

    def recommend(
        self, N: int = 10, *, candidates: Iterable[Any] | None = None, exclude: Iterable[Any] | None = None
    ) -> tuple[NDArray[Any], Array]:
        """The N most probable next items, only candidates and nothing excluded, and P(next = i | A), best first."""
        check_count(N)
        shares = self.probabilities()
        free = self._set.open_to & allowed_codes(self._items, candidates, exclude)
        best = top_n(np.where(free, shares, -np.inf)[None], min(int(N), int(free.sum())))[0]
        return self._items.take(best.tolist()), shares[best]


class ListeningBasket(GrowingBasket):
    """What `ConditionalDPP.grow` returns: add items, ask for suggestions; each is a new question to the model."""

    def __init__(self, model: Suggests, basket: Iterable[Any]) -> None:
        self._model, self._items = model, model.known_items
        self._codes = as_codes(basket, self._items).tolist()

    def _put(self, code: int) -> None:
        self._codes.append(code)

    def probabilities(self) -> Array:
        """P(next = i | basket) for every item, 0 for those in it."""
        return self._model.predict_next(self.items)

    def recommend(
        self, N: int = 10, *, candidates: Iterable[Any] | None = None, exclude: Iterable[Any] | None = None
    ) -> tuple[NDArray[Any], Array]:
        """The N most probable next items, only candidates and nothing excluded, and P(next = i | A), best first."""
        return self._model.recommend(self.items, N, candidates=candidates, exclude=exclude)
