"""Held-out baskets with one item hidden, and what a model suggests in its place: drawn at random, not picked."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from contradpp._random import stream
from contradpp.data.baskets import Baskets

_KEY = 77  # of the random stream
_SIZES = (3, 7)  # items of a basket that are easy to take in at a glance


class Example(NamedTuple):
    """A basket without one of its items, that item, and suggestions with P(next = i | basket), best first."""

    basket: list[Hashable]
    hidden: Hashable
    suggestions: list[Hashable]
    probabilities: list[float]

    @property
    def found(self) -> bool:
        """Whether the hidden item is among the suggestions."""
        return self.hidden in self.suggestions


def examples(model: Any, test: Baskets, *, n: int = 5, n_suggestions: int = 5, seed: int = 0) -> list[Example]:
    """Up to `n` examples from test baskets of three to seven items, or of two and more if there are no such."""
    rng = stream(seed, _KEY)
    room = test.sizes <= model.n_components
    fitting = np.flatnonzero((test.sizes >= _SIZES[0]) & (test.sizes <= _SIZES[1]) & room)
    if not len(fitting):
        fitting = np.flatnonzero((test.sizes >= 2) & room)
    shown = []
    for position in np.sort(rng.permutation(fitting)[:n]).tolist():
        basket = test[position]
        hidden = basket.pop(int(rng.integers(len(basket))))
        items, probabilities = model.recommend(basket, N=n_suggestions)
        shown.append(Example(basket, hidden, items.tolist(), probabilities.tolist()))
    return shown
