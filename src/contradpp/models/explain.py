"""Explanations: the log-probability of a next item as a sum over experts and basket items."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from contradpp._display import data_frame, html_table
from contradpp._types import Array, Codes, Ints
from contradpp.data.sets import Sets, prefixes
from contradpp.dpp.mixture import Mixture
from contradpp.experts.base import Baseline
from contradpp.experts.history import HISTORY
from contradpp.experts.table import IDENTITY, MIXTURE, Expert, Feature, KernelExpert
from contradpp.models.cold_start import ColdStart
from contradpp.models.combination import Combination

FEATURES = "features"  # the name of item features among the experts
MIN_REASON = 0.1  # nats
N_TYPICAL = 5  # items that name a cluster


class Explanation(NamedTuple):
    """Why an item is suggested, in nats.

    log P(next = item | basket) is the sum of `alone` and `parts` less `log_normalizer`.
    """

    item: Hashable
    basket: list[Hashable]
    experts: list[str]
    alone: Array  # (experts,): each expert's logit of the item without the basket
    parts: Array  # (experts, basket): the change of that logit by each basket item
    log_normalizer: float
    popular: bool  # whether the item is among those that sell most
    n_bought: int = 0  # the customer's earlier baskets that hold the item
    n_orders: int = 0  # all of them
    like: tuple[Hashable, ...] = ()  # items typical of such baskets, where their cluster matters

    @property
    def log_probability(self) -> float:
        """log P(next = item | basket)."""
        return float(self.alone.sum() + self.parts.sum() - self.log_normalizer)

    @property
    def by_item(self) -> dict[Hashable, float]:
        """The sum over all experts of each basket item's parts, largest first."""
        totals = self.parts.sum(axis=0)
        order = np.argsort(-totals, kind="stable").tolist()
        return {self.basket[k]: float(totals[k]) for k in order}

    @property
    def by_expert(self) -> dict[str, float]:
        """The sum over all basket items of each expert's parts, and the history's part."""
        is_history = np.array([name == HISTORY for name in self.experts])
        totals = self.parts.sum(axis=1) + np.where(is_history, self.alone, 0.0)
        return dict(zip(self.experts, totals.tolist(), strict=True))

    @property
    def bought(self) -> str:
        """The part of the history that holds the item, in words; empty if it was never bought."""
        if not self.n_bought:
            return ""
        if self.n_orders == 1:
            return "bought in your last order"
        return f"bought in {self.n_bought} of your last {self.n_orders} orders"

    def to_frame(self) -> Any:
        """Return a pandas data frame in nats: a row per expert, a column per basket item."""
        columns = {"alone": self.alone, **dict(zip(self.basket, self.parts.T, strict=True))}
        return data_frame(columns, self.experts, "expert")

    def __repr__(self) -> str:
        shown = {item: round(nats, 3) for item, nats in self.by_item.items()}
        return f"Explanation({self.item!r}, log P = {self.log_probability:.3f}, by_item={shown})"

    def _repr_html_(self) -> str:
        parts = np.column_stack([self.alone, self.parts])
        names = [*self.experts, "all"]
        rows = [
            (name, *(f"{nats:+.2f}" for nats in row))
            for name, row in zip(names, np.vstack([parts, parts.sum(axis=0)]).tolist(), strict=True)
        ]
        title = f"{self.item}: {np.exp(self.log_probability):.2%}, in nats"
        return html_table(("expert", "alone", *self.basket), rows, title)

    def reasons(self, most: int = 2) -> list[Hashable]:
        """Return the basket items that add at least a tenth of a nat, strongest first."""
        return [item for item, nats in self.by_item.items() if nats >= MIN_REASON][:most]


class Parts(NamedTuple):
    """The logits of m items, divided among experts and basket items."""

    names: list[str]
    alone: Array  # (m, experts)
    by_item: Array  # (m, experts, basket)

    @property
    def totals(self) -> Array:
        """The logits (m,)."""
        totals: Array = self.alone.sum(axis=1) + self.by_item.sum(axis=(1, 2))
        return totals

    def with_expert(self, name: str, alone: Array) -> Parts:
        """Add an expert that does not look at the basket, by its logits (m,)."""
        nothing = np.zeros((len(alone), 1, self.by_item.shape[2]))
        by_item = np.append(self.by_item, nothing, axis=1)
        return Parts([*self.names, name], np.append(self.alone, alone[:, None], axis=1), by_item)


def clusters_that_matter(mixture: Mixture, parts: Parts, codes: Codes, items: Ints) -> list[int]:
    """Return the cluster that a basket with each item most probably is of, or −1.

    It is −1 where the expert "mixture" adds less than a tenth of a nat.
    """
    if MIXTURE not in parts.names:
        return [-1] * len(items)
    added = parts.by_item[:, parts.names.index(MIXTURE)].sum(axis=1)
    joint = mixture.log_joint(Sets.one(codes))[0] + mixture.tilts[:, items].T
    return [int(c) for c in np.where(added >= MIN_REASON, joint.argmax(axis=1), -1)]


def divide(
    combination: Combination,
    cold_start: ColdStart | None,
    codes: Codes,
    items: Ints,
    n_known: int,
) -> Parts:
    """Divide the logits of items given a basket; zeros if the basket is empty.

    An expert whose score is a sum over basket items is divided in proportion to its terms. Others
    are divided by adding the items one after the other, averaged over this order and its reverse.
    The experts know the first `n_known` items.
    """
    names = [*combination.features, *([] if cold_start is None else [FEATURES])]
    m = len(items)
    parts = Parts(names, np.zeros((m, len(names))), np.zeros((m, len(names), len(codes))))
    if not len(codes):
        return parts
    weights_of_experts = np.ones(m)
    substituted = codes
    if cold_start is not None:
        weights_of_experts, parts.alone[:, -1], parts.by_item[:, -1] = cold_start.explain(
            combination, codes, items
        )
        substituted = cold_start.substitutes(codes)
    present = np.flatnonzero(substituted >= 0)
    known = np.flatnonzero(weights_of_experts > 0)
    if not len(known):
        return parts
    scale = weights_of_experts[known]
    basket = substituted[present].astype(np.int32)
    divided = _divide_features(combination, basket, items[known], n_known)
    for row, alone, by_item in divided:
        parts.alone[known, row] += scale * alone
        parts.by_item[known[:, None], row, present] += scale[:, None] * by_item
    return parts


def _divide_features(
    combination: Combination, basket: Codes, items: Ints, n_known: int
) -> list[tuple[int, Array, Array]]:
    """Return the expert's number, the logits alone (m,) and by basket item (m, n) of each feature.

    Half of a product of two features belongs to each.
    """
    rows, alone_values, changes = [], [], []
    for row, (name, features) in enumerate(combination.features.items()):
        for feature in features:
            expert = combination.experts[name]
            alone, by_item = _divide_feature(expert, feature, basket, items, n_known)
            rows.append(row)
            alone_values.append(alone)
            changes.append(by_item)
    sets = Sets(np.array([0, len(basket)], dtype=np.int64), basket)
    theta = combination.theta(combination.context(sets))[0]
    products = combination.weights.products
    without = np.array([alone_values[c] for c in products.columns]).T
    values = np.array([alone_values[c] + changes[c].sum(axis=1) for c in products.columns]).T
    slopes = products.slopes(values, theta[combination.n_features :])
    before = products.standardize(without)
    after = products.standardize(values)
    divided = []
    for f, row in enumerate(rows):
        alone = theta[f] * alone_values[f]
        slope = np.full(len(items), theta[f])
        for v in np.flatnonzero(products.columns == f):
            alone += slopes[:, v] * before[:, v]
            moved = values[:, v] != without[:, v]
            change = slopes[:, v] * (after - before)[:, v]
            slope[moved] += change[moved] / (values - without)[moved, v]
        divided.append((row, alone, slope[:, None] * changes[f]))
    return divided


def _divide_feature(
    expert: Expert, feature: Feature, codes: Codes, items: Ints, n_known: int
) -> tuple[Array, Array]:
    """Return a feature of items without the basket (m,), and its change by basket item (m, n)."""
    rate = 1.0 / max(len(codes), 1) if feature.mean else 1.0
    if isinstance(expert, Baseline) and expert.has_contributions:
        terms = rate * np.array([expert.contributions(codes, code) for code in items.tolist()])
        own = expert.alone(items)
        if feature.transform == IDENTITY:
            return own, terms
        totals = terms.sum(axis=1, keepdims=True)
        sizes = np.abs(terms).sum(axis=1, keepdims=True)
        alone = feature.of_means(own)
        change = feature.of_means(own + totals[:, 0]) - alone
        canceled = np.abs(totals) <= 0.1 * sizes  # a term's part of the total is then unstable
        parts = np.abs(terms) / np.where(sizes > 0, sizes, 1.0)
        np.divide(terms, totals, out=parts, where=~canceled)
        return alone, change[:, None] * parts
    changes = np.zeros((len(items), len(codes)))
    for order in (1, -1):
        scores = rate * _scores_of_prefixes(expert, codes[::order], items, n_known)
        values = np.stack([feature.of_means(row) for row in scores])
        changes += np.diff(values, axis=0)[::order].T / 2
    return values[0], changes


def _scores_of_prefixes(expert: Expert, codes: Codes, items: Ints, n_known: int) -> Array:
    """Return the scores of items given the first 0, 1, ..., n of the codes (n + 1, m)."""
    if isinstance(expert, KernelExpert):
        return expert.scores_given_prefixes(codes, items)
    scores = np.empty((len(codes) + 1, n_known))
    expert.write_scores(prefixes(codes), scores)
    return scores[:, items]
