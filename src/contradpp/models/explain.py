"""Why an item is suggested: what every voice says because of each item of the basket."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets, prefixes
from contradpp.dpp import scoring
from contradpp.models.baselines import Implicit
from contradpp.models.newcomers import Newcomers
from contradpp.models.relevance import Relevance
from contradpp.models.scores import Baseline
from contradpp.models.voices import PLAIN, Feature, KernelVoice, Voice

Array = NDArray[np.float64]
FEATURES = "features"  # the name of what features say, among the voices
LEAST_REASON = 0.1  # nats


class Explanation(NamedTuple):
    """Why an item is suggested, in nats: log P(next = item | basket) is the sum of all parts less `log_normalizer`."""

    item: Hashable
    basket: list[Hashable]
    voices: list[str]
    alone: Array  # (voices,): what each voice says of the item itself; the basket says how much that counts
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


class Parts(NamedTuple):
    """What the voices of these names say of m items: of themselves, and because of each item of the basket."""

    names: list[str]
    alone: Array  # (m, voices)
    by_item: Array  # (m, voices, basket)

    @property
    def totals(self) -> Array:
        """The sums of all parts (m,)."""
        totals: Array = self.alone.sum(axis=1) + self.by_item.sum(axis=(1, 2))
        return totals


def divide(
    relevance: Relevance, newcomers: Newcomers | None, codes: NDArray[np.int32], asked: NDArray[np.int64], n_items: int
) -> Parts:
    """What speaks for each of the items asked about, given a basket; zeros if it is empty.

    The voices know the first n items.
    """
    names, m = [*relevance.features, *([] if newcomers is None else [FEATURES])], len(asked)
    parts = Parts(names, np.zeros((m, len(names))), np.zeros((m, len(names), len(codes))))
    if not len(codes):
        return parts
    shares, heard = np.ones(m), codes
    if newcomers is not None:
        shares, parts.alone[:, -1], parts.by_item[:, -1] = newcomers.explain(relevance, codes, asked)
        heard = newcomers.stand_ins(codes)
    there = np.flatnonzero(heard >= 0)
    basket = Sets(np.array([0, len(there)], dtype=np.int64), heard[there].astype(np.int32))
    theta = relevance.theta(relevance.circumstances(basket))[0]
    known = np.flatnonzero(shares > 0)  # of others the voices do not know
    if not len(known):
        return parts
    told = [
        (row, *_told(relevance.voices[name], feature, heard[there], asked[known], n_items))
        for row, (name, features) in enumerate(relevance.features.items())
        for feature in features
    ]
    pairs = relevance.weights.pairs
    without = np.array([told[c][1] for c in pairs.columns]).T
    values = np.array([told[c][1] + told[c][2].sum(axis=1) for c in pairs.columns]).T
    pulls = pairs.pulls(values, theta[relevance.n_features :])
    before, after = pairs.steps(without), pairs.steps(values)
    for f, (row, nothing, by_item) in enumerate(told):
        alone, slope = theta[f] * nothing, np.full(len(known), theta[f])
        for v in np.flatnonzero(pairs.columns == f):
            alone += pulls[:, v] * before[:, v]
            moved = values[:, v] != without[:, v]
            slope[moved] += (pulls[:, v] * (after - before)[:, v])[moved] / (values - without)[moved, v]
        parts.alone[known, row] += shares[known] * alone
        parts.by_item[known[:, None], row, there] += (shares[known] * slope)[:, None] * by_item
    return parts


def _told(
    voice: Voice, feature: Feature, codes: NDArray[np.int32], asked: NDArray[np.int64], n_items: int
) -> tuple[Array, Array]:
    """A feature of items without the basket (m,), and how each item of the basket changes it (m, n)."""
    m, n = len(asked), len(codes)
    rate = 1.0 / max(n, 1) if feature.mean else 1.0
    if isinstance(voice, Baseline) and not isinstance(voice, Implicit):
        terms = rate * np.array([voice.contributions(codes, code) for code in asked.tolist()])
        own = voice.alone(asked)
        if feature.shape == PLAIN:
            return own, terms
        totals, sizes = terms.sum(axis=1, keepdims=True), np.abs(terms).sum(axis=1, keepdims=True)
        nothing, whole = _shape(own, feature), _shape(own + totals[:, 0], feature)
        cancelled = np.abs(totals) <= 0.1 * sizes  # then a term's part of the total says little
        parts = np.abs(terms) / np.where(sizes > 0, sizes, 1.0)
        np.divide(terms, totals, out=parts, where=~cancelled)
        return nothing, (whole - nothing)[:, None] * parts
    changes, nothing = np.zeros((m, n)), np.zeros(m)
    for order in (1, -1):
        told = np.stack([_shape(row, feature) for row in rate * _given_prefixes(voice, codes[::order], asked, n_items)])
        nothing = told[0]
        changes += np.diff(told, axis=0)[::order].T / 2
    return nothing, changes


def _given_prefixes(voice: Voice, codes: NDArray[np.int32], asked: NDArray[np.int64], n_items: int) -> Array:
    """The scores of items given the first 0, 1, ..., n of the codes (n + 1, m)."""
    if isinstance(voice, KernelVoice):
        return scoring.scores_given_prefixes(voice.kernel, codes, asked)
    scores = np.empty((len(codes) + 1, n_items))
    voice.write_scores(prefixes(codes), scores)
    return scores[:, asked]


def _shape(x: Array, feature: Feature) -> Array:
    """A feature of scores that are means already, where means are asked for."""
    out = np.empty((1, len(x)))
    feature.write(x[None], np.ones(1, dtype=np.int64), out)
    return out.ravel()
