"""Completion with a choice between relevance and variety: greedy, one item at a time."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import NamedTuple

import numpy as np

from contradpp.errors import RankError
from contradpp.models.base import BaseDPP


class Completion(NamedTuple):
    """The items that were added, P(next = i | basket) of each, and why there are fewer than asked, if so."""

    added: list[Hashable]
    relevance: list[float]
    problem: str | None


def complete_with_variety(
    model: BaseDPP, basket: Iterable[Hashable], n: int, *, variety: float = 0.5, exclude: Collection[Hashable] = ()
) -> Completion:
    """Add n items to a basket A, each the i that maximises (1 − t) log P(i | A) + t log [P(i | A ∪ S) / P(i | A)].

    t is the variety and S the items added so far: the first term is how well i goes with the basket, the second how
    little of that the earlier additions have taken. t = 0 ranks by the basket alone, however alike the additions are;
    t = ½ is the greedy most likely set, as `model.complete` finds it; t = 1 looks for what is new, and at relevance
    only between equals. An item that would make the set impossible is never added.

    Parameters
    ----------
    n : int
        How many items to add.
    variety : float
        t, from 0 to 1.
    exclude : collection of items
        Never add these.
    """
    variety = min(variety, 1.0 - 1e-9)  # so that relevance decides between equals
    items = model.items_
    added: list[Hashable] = []
    relevance: list[float] = []
    try:
        growing = model.grow(basket)
        given_basket = growing.probabilities()
        allowed = given_basket > 0
        allowed[items.codes(exclude)] = False
        with np.errstate(divide="ignore"):
            log_relevance = np.log(given_basket)
        now = given_basket
        while len(added) < n:
            allowed &= now > 0
            choices = np.flatnonzero(allowed)
            if not len(choices):
                return Completion(added, relevance, f"only {len(added)} items can be added to this basket")
            worth = (1.0 - 2.0 * variety) * log_relevance[choices] + variety * np.log(now[choices])
            best = int(choices[np.argmax(worth)])
            allowed[best] = False
            try:
                growing.add(items[best])
            except RankError:  # the chosen ones span it: its probability was only rounding
                continue
            added.append(items[best])
            relevance.append(float(given_basket[best]))
            if len(added) < n:
                now = growing.probabilities()
    except RankError as error:
        return Completion(added, relevance, str(error))
    return Completion(added, relevance, None)
