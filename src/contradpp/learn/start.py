"""Where training starts: the first factors, from the items' popularity or from the paper's uniform law."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.errors import ParameterError

Array = NDArray[np.float64]
PIECE = 1 << 16  # rows drawn at a time
Counts = NDArray[np.float64] | NDArray[np.int64]  # labels other than one make them fractions


def popularity(counts: Counts, n_baskets: float) -> Array:
    """p̂_i, the share of baskets with item i, kept strictly between 0 and 1.

    An item that never occurs counts as half a basket, and one that always does as all but half.
    """
    n = max(n_baskets, 1)
    share: Array = np.clip(counts.astype(np.float64), 0.5, max(n - 0.5, 0.5)) / n
    return share


def start_factors(
    init: str,
    counts: Counts,
    n_baskets: float,
    n_components: int,
    rng: np.random.Generator,
    rows: NDArray[np.int64] | None = None,
) -> Array:
    """The first V (M, K).

    Parameters
    ----------
    init : {"popularity", "uniform"}
        "popularity": row i has norm sqrt(p̂_i / (1 − p̂_i)), which starts at the popularity ranking, and a
        random direction. "uniform": entries from U(1, 2), as LowRankDPP.jl and the paper.
    rows : array, optional
        Only these, sorted: where V as a whole would not fit.
    """
    if init not in ("popularity", "uniform"):
        raise ParameterError(f"init must be 'popularity' or 'uniform', got {init!r}")
    V = _drawn(init, rng, (len(counts), n_components), rows)
    if init == "uniform":
        return V
    lengths = np.sqrt(np.einsum("ik,ik->i", V, V))
    p = popularity(counts if rows is None else counts[rows], n_baskets)
    V *= (np.sqrt(p / (1 - p)) / lengths)[:, None]  # in place: V may be most of the memory
    return V


def _drawn(init: str, rng: np.random.Generator, shape: tuple[int, int], rows: NDArray[np.int64] | None) -> Array:
    """Entries at random; with `rows`, those rows of the same matrix, drawn piece by piece."""

    def draw(n: int) -> Array:
        size = (n, shape[1])
        return rng.uniform(1.0, 2.0, size=size) if init == "uniform" else rng.standard_normal(size)

    if rows is None:
        return draw(shape[0])
    found = np.empty((len(rows), shape[1]))
    for first in range(0, shape[0], PIECE):
        piece = draw(min(PIECE, shape[0] - first))
        low, high = np.searchsorted(rows, (first, first + PIECE))
        found[low:high] = piece[rows[low:high] - first]
    return found
