"""LensKit: a component that turns a scored list into a varied one, in the place of its top-N ranker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from lenskit.data import ItemList
from lenskit.pipeline import Component

from contradpp.slates.rerank import rerank


@dataclass
class VariedConfig:
    """How the list is chosen; as for `contradpp.rerank`."""

    n: int = 10
    diversity: float = 0.5
    kernel: Any = None
    vectors: Mapping[Any, Any] | None = None
    categories: Mapping[Any, Any] | None = None
    at_most: int | None = None


class VariedRanker(Component[ItemList]):
    """The n items that score high and are unlike each other, by a learned kernel or by vectors."""

    config: VariedConfig

    def __call__(self, *, items: ItemList, n: int | None = None) -> ItemList:
        """Choose from scored items; those without a score are left out."""
        scores = items.scores()
        scored = items if scores is None else items[np.isfinite(scores)]
        if scores is None or not len(scored):
            return ItemList(ordered=True)
        how = self.config
        told: dict[str, Any] = {"categories": how.categories, "at_most": how.at_most} if how.at_most is not None else {}
        *_, info = rerank(
            scored.ids(), scored.scores(), k=n or how.n, kernel=how.kernel, vectors=how.vectors,
            diversity=how.diversity, unknown="ignore", return_info=True, **told,
        )  # fmt: skip
        return ItemList(scored[info.positions], ordered=True)
