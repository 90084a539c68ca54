"""`rerank` where people already are: a few lines for each framework, which is imported with its module only.

Here is what the adapters share: what to ask of `rerank`, and the framework's own things back in the order of the slate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from contradpp.errors import DataError
from contradpp.slates.rerank import rerank

Thing = TypeVar("Thing")


class Choice(NamedTuple):
    """How many things to choose, how varied, and of which category at most how many; see `contradpp.rerank`."""

    k: int = 10
    diversity: float = 0.5
    at_most: int | Mapping[Any, int] | None = None
    method: str = "dpp"

    def of(
        self, things: Sequence[Thing], scores: ArrayLike, vectors: ArrayLike, categories: Sequence[Any] | None = None
    ) -> list[Thing]:
        """Return the chosen things, in the order of the slate."""
        if not things:
            return []
        told: dict[str, Any] = {"categories": categories, "at_most": self.at_most} if self.at_most is not None else {}
        numbers, _ = rerank(
            range(len(things)), np.asarray(scores, dtype=np.float64), k=self.k, vectors=np.asarray(vectors),
            diversity=self.diversity, method=self.method, **told,
        )  # fmt: skip
        return [things[number] for number in numbers.tolist()]


def cosines(query: ArrayLike, vectors: ArrayLike) -> Any:
    """Return how near each vector is to that of the query; 0 for one of zeros."""
    table, one = np.asarray(vectors, dtype=np.float64), np.asarray(query, dtype=np.float64)
    lengths = np.linalg.norm(table, axis=1) * np.linalg.norm(one)
    return np.divide(table @ one, lengths, out=np.zeros(len(table)), where=lengths > 0)


def all_there(values: Sequence[Any], what: str, remedy: str) -> list[Any]:
    """Return the values, or raise `DataError` if one is missing."""
    if any(value is None for value in values):
        raise DataError(f"{sum(value is None for value in values)} of {len(values)} have no {what}: {remedy}")
    return list(values)
