"""Greedy completion: the most likely set that contains a basket, one item at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.conditioning import too_large
from contradpp.dpp.interface import Growing, Kernel
from contradpp.errors import RankError


def greedy_completion(
    kernel: Kernel, given: NDArray[np.int32], size: int, *, allowed: NDArray[np.bool_] | None = None
) -> NDArray[np.int32]:
    """The given items, then again and again the item that raises det L the most, until there are `size`.

    A step costs one product with the factors. Finding the true maximum is NP-hard; greedy is what can be done (Chen,
    Zhang and Zhou 2018 for the same recursion).

    Parameters
    ----------
    allowed : bool array (M,), optional
        Which items may be added.
    """
    if size > kernel.largest_set:
        raise RankError(too_large(size, kernel.largest_set))
    chosen = kernel.grow(given)
    while len(chosen) < size:
        best = _best(chosen, allowed)
        if best is None or not chosen.can_join(best):
            # Rounding made up the score of an item that the chosen ones span: take all scores afresh.
            chosen.take_afresh()
            best = _best(chosen, allowed)
        if best is None or not chosen.scores[best] > 0:
            raise RankError(
                f"no set of {size} items that contains the basket has positive probability; try size={len(chosen)}"
            )
        chosen.add(best)
    return np.array(chosen.codes, dtype=np.int32)


def _best(chosen: Growing, allowed: NDArray[np.bool_] | None) -> int | None:
    """The item of the highest score that may be added, the first of equals; None if there is none."""
    free = chosen.open_to if allowed is None else chosen.open_to & allowed
    best = int(np.argmax(np.where(free, chosen.scores, -np.inf)))
    return best if free[best] else None
