"""The quality of a model on held-out baskets, compared with popularity and item neighbors."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from contradpp._random import REPORTED, stream
from contradpp.baselines import ItemKNN, Popularity
from contradpp.data.baskets import Baskets
from contradpp.experts.item_knn import SHRINKAGES
from contradpp.metrics.compare import Comparison, compare
from contradpp.metrics.intervals import Difference
from contradpp.metrics.tuning import SMALLEST, validated
from contradpp.models.base import DPPRecommender

K = 10
KS = (1, K)
BASELINE = "popularity"
NEIGHBORS = "item neighbors"
MIN_BASKETS_TO_CHOOSE = 100  # from which the shrinkage of item neighbors can be chosen
EXAMPLE_SIZES = (3, 7)  # items of a basket that are easy to take in at a glance


def compare_with_baselines(
    models: Mapping[str, Any], train: Baskets, test: Baskets
) -> Comparison | None:
    """Evaluate popularity, item neighbors and fitted models on the same test baskets.

    Baskets beyond a model's rank are impossible for it, and baskets of one item leave nothing to
    predict from: both are left out. Return None if no basket remains.
    """
    largest = min(map(largest_basket, models.values()), default=train.n_items)
    queries = test.subset((test.sizes >= SMALLEST) & (test.sizes <= largest))
    if not queries.n_baskets:
        return None
    baselines = {BASELINE: Popularity().fit(train), NEIGHBORS: tuned_item_knn(train).fit(train)}
    return compare({**baselines, **models}, queries, train=train, ks=KS)


def tuned_item_knn(train: Baskets) -> ItemKNN:
    """Return item neighbors, not fitted, with the best shrinkage on a part of the training baskets.

    The best value differs from shop to shop, and a poor one would flatter the other models.
    """
    usable = train.subset(train.sizes >= SMALLEST)
    if usable.n_baskets < MIN_BASKETS_TO_CHOOSE:
        return ItemKNN()
    models = [ItemKNN(shrinkage=value) for value in SHRINKAGES]
    return models[int(np.argmax(validated(models, usable)))]


def largest_basket(model: Any) -> float:
    """Return the size of the largest basket that is possible under a model."""
    kernel = getattr(model, "dpp", None)
    return float("inf") if kernel is None else float(kernel.rank)


def assessment(comparison: Comparison, name: str) -> str:
    """Compare a model with the baselines in a few sentences.

    It is better, or worse, than a baseline if the 95 % intervals of both metrics say so.
    """
    others = [one for one in (BASELINE, NEIGHBORS) if one in comparison.reports and one != name]
    outcomes: dict[str, list[str]] = {}
    hits = []
    ranks = []
    for other in others:
        hit, rank = (
            comparison.difference(name, metric, over=other) for metric in (f"precision@{K}", "mpr")
        )
        if hit.low > 0 and rank.low > 0:
            outcome = "better than"
        elif hit.high < 0 and rank.high < 0:
            outcome = "worse than"
        else:
            outcome = "not clearly better than"
        outcomes.setdefault(outcome, []).append(other)
        share = comparison.reports[other].precision[K]
        hits.append(f"{other}: {share:.1f} %, a difference of {interval(hit)} points")
        ranks.append(f"{interval(rank)} over {other}")
    opening = "; ".join(f"{outcome} {' and '.join(of)}" for outcome, of in outcomes.items())
    return (
        f"{opening[:1].upper()}{opening[1:]}. The missing item is among the first {K} "
        f"suggestions in {comparison.reports[name].precision[K]:.1f} % of cases "
        f"({'; '.join(hits)}). "
        f"The gain in mean percentile rank is {' and '.join(ranks)}."
    )


def interval(difference: Difference) -> str:
    """Return the bounds of a difference, rounded to a tenth."""
    return f"{rounded(difference.low):.1f} to {rounded(difference.high):.1f}"


def rounded(value: float) -> float:
    """Round to a tenth, without a negative zero."""
    return round(value, 1) + 0.0


def describe_features(explained: Mapping[str, float]) -> str:
    """Describe in sentences what item features explain, by a model's `explained_`."""
    share = explained["popularity"]
    sentences = [
        f"On items not seen before, features explain {share:.0%} of the variance of log popularity."
    ]
    rank = explained.get("rank", np.nan)
    if not np.isnan(rank):
        sentences.append(
            f"Items scored by their features alone reach a mean percentile rank of {rank:.1f}."
        )
    if explained.get("decay"):
        sentences.append("Features also count for items that sell, less so the more they sell.")
    elif "decay" in explained:
        sentences.append("Features did not help items that sell, which are scored by sales alone.")
    return " ".join(sentences)


class Example(NamedTuple):
    """A basket without one of its items, that item, and suggestions with P(next = i | basket)."""

    basket: list[Hashable]
    hidden: Hashable
    suggestions: list[Hashable]  # best first
    probabilities: list[float]

    @property
    def found(self) -> bool:
        """True if the hidden item is among the suggestions."""
        return self.hidden in self.suggestions


def draw_examples(
    model: DPPRecommender, test: Baskets, *, n: int = 5, n_suggestions: int = 5, seed: int = 0
) -> list[Example]:
    """Draw up to `n` test baskets of three to seven items, or of two or more if there are none."""
    rng = stream(seed, REPORTED)
    low, high = EXAMPLE_SIZES
    possible = (test.sizes >= 2) & (test.sizes <= largest_basket(model))
    positions = np.flatnonzero(possible & (test.sizes >= low) & (test.sizes <= high))
    if not len(positions):
        positions = np.flatnonzero(possible)
    examples = []
    for position in np.sort(rng.permutation(positions)[:n]).tolist():
        basket = test[position]
        hidden = basket.pop(int(rng.integers(len(basket))))
        items, probabilities = model.recommend(basket, N=n_suggestions)
        examples.append(Example(basket, hidden, items.tolist(), probabilities.tolist()))
    return examples
