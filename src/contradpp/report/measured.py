"""How good models are on held-out baskets: beside popularity and neighbours, with the role of chance, by example."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from contradpp._random import stream
from contradpp.baselines import ItemKNN, Popularity
from contradpp.data.baskets import Baskets
from contradpp.experts.baselines import SHRINKAGES
from contradpp.metrics.intervals import mean_interval
from contradpp.metrics.report import Report, evaluate
from contradpp.metrics.tuning import SMALLEST, validated

K = 10
KS = (1, K)
BASELINE, NEIGHBOURS = "popularity", "item neighbours"
_FEWEST = 100  # baskets from which a setting of the item neighbours can be chosen
_KEY = 77  # of the random stream of examples
_SIZES = (3, 7)  # items of a basket that are easy to take in at a glance


@dataclass(frozen=True)
class Measured:
    """The reports by name, popularity and item neighbours first."""

    reports: dict[str, Report]

    @property
    def n_baskets(self) -> int:
        """How many held-out baskets were asked about."""
        return self.reports[BASELINE].n_baskets

    def gain(self, name: str, metric: str = f"precision@{K}", over: str = BASELINE) -> tuple[float, float]:
        """The 95 % interval of what a model gains over a baseline, the same baskets resampled for both."""
        ours, theirs = (self.reports[one].samples[metric] for one in (name, over))
        return mean_interval(ours - theirs, level=0.95, n_resamples=1000, seed=self.reports[name].seed)

    def verdict(self, name: str) -> str:
        """A few sentences about a model and the baselines that claim no more than the baskets show.

        It is better, or worse, than one if the intervals of both metrics say so.
        """
        baselines = [one for one in (BASELINE, NEIGHBOURS) if one in self.reports and one != name]
        gains = {one: (self.gain(name, over=one), self.gain(name, "mpr", over=one)) for one in baselines}
        words: dict[str, list[str]] = {}
        for one, both in gains.items():
            clear = "Better than" if min(both)[0] > 0 else "Worse than" if max(high for _, high in both) < 0 else ""
            words.setdefault(clear or "Not clearly better than", []).append(one)
        opening = "; ".join(f"{word} {' and '.join(those)}" for word, those in words.items())
        hits = {one: self.reports[one].precision[K] for one in (name, *baselines)}
        found = "; ".join(f"{one} {hits[one]:.1f} %, a gain of {_span(gains[one][0])} points" for one in baselines)
        ranks = " and ".join(f"{_span(gains[one][1])} over {one}" for one in baselines)
        return (
            f"{opening}. The missing item is among the first {K} suggestions in {hits[name]:.1f} % of cases ({found}). "
            f"The gain in mean percentile rank is {ranks}."
        )


def _span(interval: tuple[float, float]) -> str:
    low, high = (round(value, 1) + 0.0 for value in interval)
    return f"{low:.1f} to {high:.1f}"


def measure(models: Mapping[str, Any], train: Baskets, test: Baskets) -> Measured | None:
    """Evaluate fitted models and baselines on the test baskets that every model can hold; None if there are none.

    Baskets beyond a model's rank are impossible for it and would not compare; those of one item leave nothing to
    predict from.
    """
    most = min(map(_most_items, models.values()), default=train.n_items)
    asked = test.subset((test.sizes >= SMALLEST) & (test.sizes <= most))
    if not asked.n_baskets:
        return None
    everyone = {BASELINE: Popularity().fit(train), NEIGHBOURS: neighbours(train).fit(train), **models}
    return Measured({name: evaluate(model, asked, KS, 0, train=train) for name, model in everyone.items()})


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
    """What a model's `explained_` says, in sentences."""
    words = [
        f"Features explain {told['popularity']:.0%} of the variance of log popularity among items not seen before."
    ]
    rank = told.get("rank")
    if rank is not None and rank == rank:
        words.append(
            f"Held-out items that were judged by their features alone had a mean percentile rank of {rank:.1f}."
        )
    if "fade" in told:
        helped = "They count, too, for items that sell, the less the more these sell." if told["fade"] else ""
        words.append(helped or "They did not help items that sell, which are judged by their sales alone.")
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
    room = test.sizes <= _most_items(model)
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
