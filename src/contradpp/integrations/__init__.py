"""Adapters of `rerank` for other frameworks, each of which is imported with its own module only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from contradpp._types import Array
from contradpp.errors import DataError, ParameterError
from contradpp.slates.greedy import SlidingWindow, as_method
from contradpp.slates.rerank import rerank
from contradpp.slates.rules import SlateRules

Thing = TypeVar("Thing")


def rerank_things(
    things: Sequence[Thing],
    scores: ArrayLike,
    vectors: ArrayLike,
    metadata: Sequence[Mapping[str, Any]] = (),
    *,
    top_k: int = 10,
    diversity: float = 0.5,
    category: str | None = None,
    at_most: int | Mapping[Any, int] | None = None,
    method: str | SlidingWindow = "dpp",
) -> list[Thing]:
    """Return the chosen things in the order of the slate; see `contradpp.rerank`.

    `at_most` counts the values of the key `category` in the metadata. A thing without it is not
    limited, but if no thing has it, that is a `DataError`.
    """
    if (category is None) != (at_most is None):
        raise ParameterError(
            "at_most limits the things of each category: pass both or neither, got "
            f"category={category!r} and at_most={at_most!r}",
            parameters=("category", "at_most"),
        )
    if not things:
        return []
    categories: Any = None
    if category is not None:
        categories = [one.get(category) for one in metadata]
        if all(value is None for value in categories):
            known = ", ".join(sorted({repr(key) for one in metadata for key in one})) or "no keys"
            raise DataError(f"category={category!r} is in no metadata, which has {known}")
    numbers, _ = rerank(
        range(len(things)),
        np.asarray(scores, dtype=np.float64),
        top_k,
        vectors=np.asarray(vectors),
        diversity=diversity,
        rules=SlateRules(categories=categories, at_most=at_most),
        method=as_method(method),
    )
    return [things[number] for number in numbers.tolist()]


def cosines(query: ArrayLike, vectors: ArrayLike) -> Array:
    """Return the cosine of each vector with the query, 0 for a vector of zeros."""
    table = np.asarray(vectors, dtype=np.float64)
    target = np.asarray(query, dtype=np.float64)
    lengths = np.linalg.norm(table, axis=1) * np.linalg.norm(target)
    out: Array = np.divide(table @ target, lengths, out=np.zeros(len(table)), where=lengths > 0)
    return out


def require_all(values: Sequence[Any], name: str, remedy: str) -> list[Any]:
    """Return the values, or raise `DataError` if one is missing."""
    n_missing = sum(value is None for value in values)
    if n_missing:
        raise DataError(f"{n_missing} of {len(values)} have no {name}: {remedy}")
    return list(values)
