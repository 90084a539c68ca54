"""Where training starts: the first factors, from the items' popularity or from the paper's uniform law."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.errors import ParameterError

Array = NDArray[np.float64]
Counts = NDArray[np.float64] | NDArray[np.int64]  # labels other than one make them fractions


def popularity(counts: Counts, n_baskets: float) -> Array:
    """p̂_i, the share of baskets with item i, kept strictly between 0 and 1.

    An item that never occurs counts as half a basket, and one that always does as all but half.
    """
    n = max(n_baskets, 1)
    share: Array = np.clip(counts.astype(np.float64), 0.5, max(n - 0.5, 0.5)) / n
    return share


def start_factors(init: str, counts: Counts, n_baskets: float, n_components: int, rng: np.random.Generator) -> Array:
    """The first V (M, K).

    Parameters
    ----------
    init : {"popularity", "uniform"}
        "popularity": row i has norm sqrt(p̂_i / (1 − p̂_i)), which starts at the popularity ranking, and a
        random direction. "uniform": entries from U(1, 2), as LowRankDPP.jl and the paper.
    """
    shape = (len(counts), n_components)
    if init == "uniform":
        return rng.uniform(1.0, 2.0, size=shape)
    if init != "popularity":
        raise ParameterError(f"init must be 'popularity' or 'uniform', got {init!r}")
    directions = rng.standard_normal(shape)
    lengths = np.sqrt(np.einsum("ik,ik->i", directions, directions))
    p = popularity(counts, n_baskets)
    directions *= (np.sqrt(p / (1 - p)) / lengths)[:, None]  # in place: V may be most of the memory
    return directions
