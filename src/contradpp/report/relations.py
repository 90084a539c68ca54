"""How items relate in a model: which push each other out, which go together, whatever kind of kernel it has."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
NEVER = -20.0  # log of the ratio at which two items count as never together


class Related(NamedTuple):
    """Another item, and how strongly it is related."""

    item: Hashable
    strength: float


@runtime_checkable
class KnowsComplements(Protocol):
    """A model that says itself what goes with an item."""

    def complements(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """The N best complements and their strengths."""
        ...


def pair_ratios(model: Any, codes: Codes) -> Array:
    """log P({i,j}) P(∅) / (P({i}) P({j})) for all pairs of these items; 0 on the diagonal.

    It is log det L_{ij} − log L_ii − log L_jj: 0 for items that ignore each other, below it for those that push each
    other out, above it for those that attract, which only a nonsymmetric kernel can express.
    """
    n = len(codes)
    first, second = np.triu_indices(n, 1)
    pairs = np.stack([codes[first], codes[second]], axis=1).ravel()
    singles = model.score_samples(_sets(codes, 1, model))
    doubles = model.score_samples(_sets(pairs, 2, model))
    nothing = float(model.score_samples([]))
    with np.errstate(invalid="ignore"):
        logs = doubles + nothing - singles[first] - singles[second]
    ratios = np.zeros((n, n))
    ratios[first, second] = ratios[second, first] = np.maximum(np.nan_to_num(logs, nan=0.0, neginf=NEVER), NEVER)
    return ratios


def substitutes(ratios: Array, row: int, n: int) -> list[tuple[int, float]]:
    """The items that one is kept apart from most, by their rows, with |cos| of the angle between their factors.

    As `similar_items` of the model, but only among these items: rare ones lie where chance has put them.
    """
    order = np.argsort(ratios[row], kind="stable")[:n]
    return [(int(other), float(np.sqrt(-np.expm1(ratios[row, other])))) for other in order if ratios[row, other] < 0]


def complements(model: Any, item: Hashable, n: int, *, usual: Array) -> list[Related]:
    """Items that an item in the basket makes more likely to come next, and how many times.

    Parameters
    ----------
    usual : array (M,)
        P(next = j | ∅), what an empty basket is offered. Ordered by P(next = j | item) − usual, so that rare items,
        whose ratio means little, do not come first.
    """
    given = model.predict_next([item])
    if isinstance(model, KnowsComplements):
        codes = model.items_.codes(model.complements(item, n)[0].tolist())  # type: ignore[attr-defined]
    else:
        codes = np.argsort(usual - given, kind="stable")[:n]
    times = given[codes] / np.maximum(usual[codes], 1e-300)
    return [Related(model.items_[code], float(value)) for code, value in zip(codes.tolist(), times, strict=True)]


def popular(baskets: Baskets, n: int) -> Codes:
    """The codes of the n items in most baskets, most popular first; those that never occur are left out."""
    counts = baskets.item_counts
    order = np.argsort(-counts, kind="stable")[:n]
    return order[counts[order] > 0]


def _sets(codes: Codes, size: int, model: Any) -> Baskets:
    indptr = np.arange(0, len(codes) + 1, size)
    return Baskets(indptr, codes.astype(np.int32), model.items_)
