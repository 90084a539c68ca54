"""Greedy completion: the most likely set that contains a basket, one item at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.algebra.linalg import DEPENDENT
from contradpp.errors import RankError
from contradpp.model.conditioning import too_large
from contradpp.model.kernel import Array, LowRankKernel, Sets


def greedy_completion(
    kernel: LowRankKernel, given: NDArray[np.int32], size: int, *, allowed: NDArray[np.bool_] | None = None
) -> NDArray[np.int32]:
    """The given items, then again and again the item that raises det L the most, until there are `size`.

    A step costs one product with V: the score of j falls by (v_j · q)², q the new direction. Finding the true
    maximum is NP-hard; greedy is what can be done (Chen, Zhang and Zhou 2018 for the same recursion).

    Parameters
    ----------
    allowed : bool array (M,), optional
        Which items may be added.
    """
    if size > kernel.n_components:
        raise RankError(too_large(size, kernel.n_components))
    V = kernel.factors
    bases = kernel.bases(Sets.one(given))
    if len(given) and not bases.pivots.all():
        raise RankError("the basket has probability zero: the factors of its items are linearly dependent")
    directions = np.empty((size, kernel.n_components))
    directions[: len(given)] = bases.rows
    scores = kernel.squared_norms - np.square(V @ bases.rows.T).sum(axis=1, dtype=np.float64)
    open_to = np.ones(kernel.n_items, dtype=bool) if allowed is None else allowed.copy()
    open_to[given] = False
    tiny = max(4.0 * float(np.finfo(V.dtype).eps) * kernel.n_components, DEPENDENT) ** 2
    chosen = np.empty(size, dtype=np.int32)
    chosen[: len(given)] = given
    for t in range(len(given), size):
        best = _best(scores, open_to)
        residual = _residual(V[best], directions[:t])
        if residual @ residual <= tiny * kernel.squared_norms[best]:
            # Rounding made up the score of an item that the chosen ones span: take all scores afresh.
            scores = np.square(_residual(V, directions[:t])).sum(axis=1)
            open_to &= scores > tiny * kernel.squared_norms
            if not open_to.any():
                raise RankError(
                    f"no set of {size} items that contains the basket has positive probability; try size={t}"
                )
            best = _best(scores, open_to)
            residual = _residual(V[best], directions[:t])
        directions[t] = residual / np.linalg.norm(residual)
        scores -= np.square(V @ directions[t].astype(V.dtype), dtype=np.float64)
        open_to[best] = False
        chosen[t] = best
    return chosen


def _best(scores: Array, open_to: NDArray[np.bool_]) -> int:
    return int(np.argmax(np.where(open_to, scores, -np.inf)))


def _residual(rows: NDArray[np.floating], directions: Array) -> Array:
    """What is left of the rows off the orthonormal directions; a second pass removes what rounding left."""
    left = rows.astype(np.float64)
    for _ in range(2):
        left = left - (left @ directions.T) @ directions
    return left
