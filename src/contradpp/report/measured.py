"""How good models are on held-out baskets: beside popularity and neighbours, with the role of chance, by example."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from contradpp._random import stream
from contradpp.baselines import ItemKNN, Popularity
from contradpp.data.baskets import Baskets
from contradpp.experts.baselines import SHRINKAGES
from contradpp.metrics.compare import Comparison, compare
from contradpp.metrics.tuning import SMALLEST, validated

K = 10
KS = (1, K)
BASELINE, NEIGHBOURS = "popularity", "item neighbours"
_FEWEST = 100  # baskets from which a setting of the item neighbours can be chosen
_KEY = 77  # of the random stream of examples
_SIZES = (3, 7)  # items of a basket that are easy to take in at a glance


def measure(models: Mapping[str, Any], train: Baskets, test: Baskets) -> Comparison | None:
    """Evaluate popularity, item neighbours and fitted models on the test baskets that every model can hold.

    Return None if there are no such baskets. Those beyond a model's rank are impossible for it and would not compare;
    those of one item leave nothing to predict from.
    """
    most = min(map(_most_items, models.values()), default=train.n_items)
    asked = test.subset((test.sizes >= SMALLEST) & (test.sizes <= most))
    if not asked.n_baskets:
        return None
    everyone = {BASELINE: Popularity().fit(train), NEIGHBOURS: neighbours(train).fit(train), **models}
    return compare(everyone, asked, train=train, ks=KS)


def verdict(found: Comparison, name: str) -> str:
    """Compare a model with the baselines in a few sentences that claim no more than the baskets show.

    It is better, or worse, than one if the 95 % intervals of both metrics say so.
    """
    baselines = [one for one in (BASELINE, NEIGHBOURS) if one in found.reports and one != name]
    words: dict[str, list[str]] = {}
    hits, ranks = [], []
    for one in baselines:
        both = [found.difference(name, metric, over=one) for metric in (f"precision@{K}", "mpr")]
        better, worse = all(gain.low > 0 for gain in both), all(gain.high < 0 for gain in both)
        word = "Better than" if better else "Worse than" if worse else "Not clearly better than"
        words.setdefault(word, []).append(one)
        spans = [f"{rounded(gain.low):.1f} to {rounded(gain.high):.1f}" for gain in both]
        hits.append(f"{one} {found.reports[one].precision[K]:.1f} %, a gain of {spans[0]} points")
        ranks.append(f"{spans[1]} over {one}")
    opening = "; ".join(f"{word} {' and '.join(those)}" for word, those in words.items())
    return (
        f"{opening}. The missing item is among the first {K} suggestions in "
        f"{found.reports[name].precision[K]:.1f} % of cases ({'; '.join(hits)}). "
        f"The gain in mean percentile rank is {' and '.join(ranks)}."
    )


def rounded(value: float) -> float:
    """Round to a tenth, without a negative zero."""
    return round(value, 1) + 0.0


def neighbours(train: Baskets) -> ItemKNN:
    """Item neighbours, not fitted, with the shrinkage that is best on a part of the training baskets.

    Which is best differs from shop to shop, and beside a poor one a model would look better than it is.
    """
    asked = train.subset(train.sizes >= SMALLEST)
    if asked.n_baskets < _FEWEST:
        return ItemKNN()
    models = [ItemKNN(shrinkage=one) for one in SHRINKAGES]
    return models[int(np.argmax(validated(models, asked)))]


def _most_items(model: Any) -> float:
    """The largest basket that a model can hold."""
    kernel = getattr(model, "kernel_", None)
    return float("inf") if kernel is None else float(kernel.rank)


def explained(told: Mapping[str, float]) -> str:
    """Say in sentences what features explain, by a model's `explained_`."""
    words = [
        f"Features explain {told['popularity']:.0%} of the variance of log popularity among items not seen before."
    ]
    rank = told.get("rank", np.nan)
    if not np.isnan(rank):
        words.append(
            f"Held-out items that were judged by their features alone had a mean percentile rank of {rank:.1f}."
        )
    if told.get("fade"):
        words.append("They count, too, for items that sell, the less the more these sell.")
    elif "fade" in told:
        words.append("They did not help items that sell, which are judged by their sales alone.")
    return " ".join(words)


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
    """Up to `n` random examples from test baskets of three to seven items, or of two and more if there are no such."""
    rng = stream(seed, _KEY)
    room = (test.sizes >= 2) & (test.sizes <= _most_items(model))
    fitting = np.flatnonzero(room & (test.sizes >= _SIZES[0]) & (test.sizes <= _SIZES[1]))
    if not len(fitting):
        fitting = np.flatnonzero(room)
    shown = []
    for position in np.sort(rng.permutation(fitting)[:n]).tolist():
        basket = test[position]
        hidden = basket.pop(int(rng.integers(len(basket))))
        items, probabilities = model.recommend(basket, N=n_suggestions)
        shown.append(Example(basket, hidden, items.tolist(), probabilities.tolist()))
    return shown
