"""How good models are on held-out baskets: beside popularity, with the role of chance, and by example."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from contradpp._random import stream
from contradpp.data.baskets import Baskets
from contradpp.metrics.bootstrap import mean_interval
from contradpp.metrics.report import Report, evaluate
from contradpp.models.baselines import Popularity

K = 10
KS = (1, K)
BASELINE = "popularity"
SMALLEST = 2  # items of a basket from which one is left out: there must be a rest to predict from
_KEY = 77  # of the random stream of examples
_SIZES = (3, 7)  # items of a basket that are easy to take in at a glance


@dataclass(frozen=True)
class Measured:
    """The reports by name, popularity first."""

    reports: dict[str, Report]

    @property
    def n_baskets(self) -> int:
        """How many held-out baskets were asked about."""
        return self.reports[BASELINE].n_baskets

    def gain(self, name: str, metric: str = f"precision@{K}") -> tuple[float, float]:
        """The 95 % interval of what a model gains over popularity, the same baskets resampled for both."""
        ours, theirs = (self.reports[one].samples[metric] for one in (name, BASELINE))
        return mean_interval(ours - theirs, level=0.95, n_resamples=1000, seed=self.reports[name].seed)

    def verdict(self, name: str) -> str:
        """Two sentences about a model and popularity that claim no more than the baskets show."""
        ours, theirs = self.reports[name], self.reports[BASELINE]
        gain, rank_gain = self.gain(name), self.gain(name, "mpr_fair")
        better = "Better than" if gain[0] > 0 else "Worse than" if gain[1] < 0 else "No better than"
        order = "higher" if rank_gain[0] > 0 else "lower" if rank_gain[1] < 0 else "not different"
        return (
            f"{better} popularity: the missing item is among the first {K} suggestions in {ours.precision[K]:.1f} % of "
            f"cases, by popularity in {theirs.precision[K]:.1f} % (a gain of {_span(gain)} points). "
            f"Its mean percentile rank is {order} (a gain of {_span(rank_gain)})."
        )


def _span(interval: tuple[float, float]) -> str:
    low, high = (round(value, 1) + 0.0 for value in interval)
    return f"{low:.1f} to {high:.1f}"


def measure(models: Mapping[str, Any], train: Baskets, test: Baskets) -> Measured | None:
    """Evaluate fitted models and popularity on the test baskets that every model can hold; None if there are none.

    Baskets beyond a model's rank are impossible for it and would not compare; those of one item leave nothing to
    predict from.
    """
    most = min((model.n_components for model in models.values()), default=train.n_items)
    asked = test.subset((test.sizes >= SMALLEST) & (test.sizes <= most))
    if not asked.n_baskets:
        return None
    everyone = {BASELINE: Popularity().fit(train), **models}
    return Measured({name: evaluate(model, asked, KS, 0, train=train) for name, model in everyone.items()})


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
