"""Why an item is suggested: what every voice says because of each item of the basket."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets, pointers
from contradpp.dpp import compiled
from contradpp.models.baselines import Implicit, Popularity
from contradpp.models.newcomers import Newcomers
from contradpp.models.relevance import Relevance
from contradpp.models.scores import Baseline
from contradpp.models.voices import PLAIN, Feature, Voice

Array = NDArray[np.float64]
FEATURES = "features"  # the name of what features say, among the voices
LEAST_REASON = 0.1  # nats


class Explanation(NamedTuple):
    """Why an item is suggested, in nats: log P(next = item | basket) is the sum of all parts less `log_normalizer`."""

    item: Hashable
    basket: list[Hashable]
    voices: list[str]
    alone: Array  # (voices,): what each voice says whatever is in the basket
    parts: Array  # (voices, basket): what it says because of each item
    log_normalizer: float
    popular: bool  # whether the item is among those that sell most

    @property
    def log_probability(self) -> float:
        """log P(next = item | basket)."""
        return float(self.alone.sum() + self.parts.sum() - self.log_normalizer)

    @property
    def by_item(self) -> dict[Hashable, float]:
        """What speaks for the item because of each item of the basket, over all voices, the most first."""
        totals = self.parts.sum(axis=0)
        return {self.basket[k]: float(totals[k]) for k in np.argsort(-totals, kind="stable").tolist()}

    def reasons(self, most: int = 2) -> list[Hashable]:
        """The items of the basket that speak for it, by at least a tenth of a nat, the strongest first."""
        return [item for item, nats in self.by_item.items() if nats >= LEAST_REASON][:most]

    @property
    def by_voice(self) -> dict[str, float]:
        """What each voice says because of the basket."""
        return dict(zip(self.voices, self.parts.sum(axis=1).tolist(), strict=True))


def divide(
    relevance: Relevance, newcomers: Newcomers | None, codes: NDArray[np.int32], code: int, n_items: int
) -> tuple[list[str], Array, Array]:
    """The names of the voices, what each says for an item whatever is in the basket, and what because of each item.

    Shapes are (voices,) and (voices, basket); zeros for an empty basket. The voices know the first n items.
    """
    names = [*relevance.features, *([] if newcomers is None else [FEATURES])]
    alone, parts = np.zeros(len(names)), np.zeros((len(names), len(codes)))
    share, heard = float(len(codes) > 0), codes
    if len(codes) and newcomers is not None:
        share, alone[-1], parts[-1] = newcomers.explain(relevance, codes, code)
        heard = newcomers.stand_ins(codes)
    if not share:
        return names, alone, parts
    there = heard >= 0
    theta, f = share * relevance.theta(np.array([there.sum()]))[0], 0
    for row, (name, features) in enumerate(relevance.features.items()):
        for feature in features:
            nothing, told = _told(relevance.voices[name], feature, heard[there], code, n_items)
            alone[row] += theta[f] * nothing
            parts[row, there] += theta[f] * told
            f += 1
    return names, alone, parts


def _told(voice: Voice, feature: Feature, codes: NDArray[np.int32], code: int, n_items: int) -> tuple[float, Array]:
    """A feature without the basket, and how each item of the basket changes it."""
    n = len(codes)
    rate = 1.0 / n if feature.mean else 1.0
    if isinstance(voice, Popularity):
        return _shape(np.array(voice.probabilities_[code]), feature), np.zeros(n)
    if isinstance(voice, Baseline) and not isinstance(voice, Implicit):
        terms = rate * voice.contributions(codes, code)
        if feature.shape == PLAIN:
            return 0.0, terms
        nothing, whole = _shape(np.array(0.0), feature), _shape(terms.sum(), feature)
        total, size = float(terms.sum()), float(np.abs(terms).sum())
        cancelled = abs(total) <= 0.1 * size  # then a term's part of the total says little
        shares = np.abs(terms) / (size or 1.0) if cancelled else terms / total
        return nothing, (whole - nothing) * shares
    changes, nothing = np.zeros(n), 0.0
    for order in (1, -1):
        scores = np.empty((n + 1, n_items))
        voice.write_scores(Sets(pointers(np.arange(n + 1)), _prefixes(codes[::order])), scores)
        told = _shape(rate * scores[:, code], feature)
        nothing = float(told[0])
        changes += np.diff(told)[::order] / 2
    return nothing, changes


def _shape(x: Any, feature: Feature) -> Any:
    """A feature of scores, as `compiled.relevance` has it."""
    out = np.empty((1, np.size(x)))
    compiled.relevance.write_feature(
        np.atleast_2d(np.asarray(x, dtype=np.float64)), feature.shape, feature.floor, np.ones(1), out
    )
    return float(out[0, 0]) if np.ndim(x) == 0 else out[0]


def _prefixes(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """The first 0, 1, ..., n of the codes, one after the other."""
    return np.concatenate([codes[:k] for k in range(len(codes) + 1)]).astype(np.int32)
