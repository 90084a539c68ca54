"""Several models on the same test baskets, in one table that always shows what popularity alone achieves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contradpp._random import RandomState, root_seed
from contradpp.metrics.labels import digits_of, label, number
from contradpp.metrics.report import Report, evaluate
from contradpp.models.baselines import Popularity


def compare(
    models: Mapping[str, Any],
    test: Any,
    *,
    train: Any,
    ks: Sequence[int] = (1, 5, 10, 20),
    random_state: RandomState = 0,
    n_jobs: int | None = None,
) -> Comparison:
    """Evaluate fitted models, and Popularity fitted to `train` unless one of them is it.

    Parameters are those of `evaluate`; all models are asked about the same held-out items.

    Examples
    --------
    >>> import contradpp as cd
    >>> shop = cd.Baskets.from_lists([["tea", "milk"], ["pasta", "sauce"]] * 50)
    >>> table = compare({"neighbours": cd.baselines.ItemKNN().fit(shop)}, shop, train=shop)
    >>> list(table.reports)
    ['Popularity', 'neighbours']
    """
    seed = root_seed(random_state)
    chosen = dict(models)
    if not any(isinstance(model, Popularity) for model in chosen.values()):
        chosen = {"Popularity": Popularity().fit(train), **chosen}
    return Comparison(
        {name: evaluate(model, test, ks, seed, train=train, n_jobs=n_jobs) for name, model in chosen.items()}
    )


@dataclass(frozen=True)
class Comparison:
    """The reports of several models by name."""

    reports: dict[str, Report]

    def as_dict(self) -> dict[str, Any]:
        """The reports as plain values, for JSON."""
        return {name: report.as_dict() for name, report in self.reports.items()}

    def __str__(self) -> str:
        names = list(self.reports)
        width = max(12, *(len(name) + 2 for name in names))
        lines = [" " * 16 + "".join(f"{name:>{width}}" for name in names)]
        for metric in next(iter(self.reports.values())).metrics:
            values = [number(report.metrics[metric], digits_of(metric)) for report in self.reports.values()]
            lines.append(f"{label(metric):<16}" + "".join(f"{value:>{width}}" for value in values))
        return "\n".join(lines)
