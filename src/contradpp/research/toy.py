"""Figure 1: the next-item probabilities of {1, 2} and {3, 4}, their divergence from the data, and what bounds them.

For a kernel L = V Vᵀ let a_ij = det L_ij, the squared area spanned by v_i and v_j; then P(j | i) = a_ij / Σ_k a_ik.
Areas obey Ptolemy's inequality, √(a_12 a_34) ≤ √(a_13 a_24) + √(a_14 a_23), and by Cauchy–Schwarz the product of
(a_13 + a_14)(a_24 + a_23) and (a_13 + a_23)(a_24 + a_14) is at least the fourth power of the right side. So with
r_i = P(not i's partner | i) / P(i's partner | i) the product of the four r_i is at least 1, and the geometric mean of
P(2|1), P(1|2), P(4|3), P(3|4), each 1/(1 + r_i), is at most 1/2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PAIRS = ((1, 2), (2, 1), (3, 4), (4, 3))  # (given, next)
MOST_PROBABILITY = 0.5  # the largest geometric mean of the four that a symmetric kernel can reach
LEAST_DIVERGENCE = math.log(2.0)  # and the smallest net divergence: see `divergence`


def pair_probabilities(model: Any) -> Array:
    """P(2|1), P(1|2), P(4|3), P(3|4) of a model of the toy set (4,)."""
    items = {item: code for code, item in enumerate(model.items_)}
    predicted = model.predict_next([[given] for given, _ in PAIRS])
    return np.array([row[items[following]] for row, (_, following) in zip(predicted, PAIRS, strict=True)])


def divergence(probability: Array) -> Array:
    """Symmetric KL between the predicted and the empirical next item, over the support they share.

    The data say that 2 follows 1 with certainty, so that only 2 is in both supports: with p = P(2|1),
    KL(data‖model) + KL(model‖data) = −log p + p log p = −(1 − p) log p. As a function of log p it lies above its
    tangent at p = ½, which falls: where the geometric mean is at most ½, the mean is at least ½ log 2.
    """
    p = np.maximum(probability, 1e-300)
    result: Array = -(1.0 - p) * np.log(p)
    return result


def measure(model: Any) -> dict[str, Any]:
    """What Figure 1 shows of one run; a basket's divergence is the mean over which of its items is given."""
    probability = pair_probabilities(model)
    each = divergence(probability)
    baskets = [float(each[:2].mean()), float(each[2:].mean())]
    return {
        "probabilities": probability.tolist(),
        "geometric_mean": float(np.exp(np.log(np.maximum(probability, 1e-300)).mean())),
        "divergences": baskets,
        "net_divergence": sum(baskets),
    }
