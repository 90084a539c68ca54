"""Where training starts: the first factors, from the items' popularity or from the paper's uniform law."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
ON_DIAGONAL = 0.9  # the share of an item's weight that the diagonal has at the start
NEARLY_ALL = 0.99  # the same where the start is to be as likely as popularity: directions by chance cost likelihood
LITTLE = 0.1  # the same for choices: one is taken of many that are alike, and only V keeps items apart
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
    V = rng.standard_normal(shape)
    lengths = np.sqrt(np.einsum("ik,ik->i", V, V))
    p = popularity(counts, n_baskets)
    if n_components:
        V *= (np.sqrt(p / (1 - p)) / lengths)[:, None]  # in place: V may be most of the memory
    return V


def split_off_diagonal(
    V: Array, counts: Counts, n_baskets: float, on_diagonal: float = ON_DIAGONAL
) -> tuple[Array, Array]:
    """log d and V with d_i + ‖v_i‖² the odds of item i: most of it on the diagonal, the directions those of V."""
    p = popularity(counts, n_baskets)
    odds = p / (1 - p)
    lengths = np.sqrt(np.einsum("ik,ik->i", V, V))
    scale = np.divide(np.sqrt((1 - on_diagonal) * odds), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return np.log(on_diagonal * odds), V * scale[:, None]


def enlarged_start(kernel: Kernel, counts: Counts, n_baskets: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """V and log d of a kernel with rows for new items: as heavy as their popularity and the kernel's scale ask."""
    old = kernel.factors.astype(np.float64)
    fresh = start_factors("popularity", counts, n_baskets, old.shape[1], rng)
    share = popularity(counts, n_baskets)
    odds, weights = share / (1 - share), kernel.squared_norms
    seen = weights > 0
    stretch = np.exp(np.mean(np.log(weights[seen] / odds[: len(old)][seen]))) if seen.any() else 1.0
    log_d = np.empty(0)
    if kernel.has_diagonal:
        log_d, fresh = split_off_diagonal(fresh, counts, n_baskets)
        log_d += np.log(stretch)
        log_d[: len(old)] = np.log(np.maximum(kernel.diagonal, 1e-300))
    fresh *= np.sqrt(stretch)
    fresh[: len(old)] = old
    return fresh, log_d
