"""The kernel's scale and the pooled AUC: what V → cV does to a trained kernel, without training it again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, take_sets
from contradpp.dpp.kernel import Kernel
from contradpp.learn.calibrate import auc, discrimination_scale, likelihood_scale, uniform_sets
from contradpp.metrics.report import Report

Array = NDArray[np.float64]
LOG10_SCALES = np.round(np.linspace(-2.0, 3.0, 51), 3)  # relative to the scale of best likelihood
PAIRS = 2  # a basket of one item gives a model nothing to go by but popularity


def choose_scales(kernel: Kernel, validation: Sets, seed: int) -> dict[str, float]:
    """The c that each way of calibrating chooses on these sets."""
    sizes = validation.sizes.astype(np.float64)
    others = Sets(validation.indptr, uniform_sets(validation.sizes, kernel.n_items, stream(seed, 0)))
    return {
        "none": 1.0,
        "likelihood": likelihood_scale(kernel.eigen[0], float(sizes.mean())),
        "discrimination": discrimination_scale(kernel.log_det(validation), sizes, kernel.log_det(others), sizes),
    }


def scaled_results(model: Any, validation: Baskets, test: Baskets, report: Report, seed: int) -> dict[str, Any]:
    """Pooled AUC and log-likelihood on the test baskets at the scales of `choose_scales`, and AUC against scale.

    A set's score moves by 2|A| log c, so that one evaluation gives the AUC at every scale. The names that end in
    `_pairs` are of baskets of two or more items, at the scales that are best for those.
    """
    kernel = Kernel(model.item_factors_)
    held_out = _known_sets(validation, model)
    scales = choose_scales(kernel, held_out, seed)
    larger = take_sets(held_out, np.flatnonzero(held_out.sizes >= PAIRS))
    scales_of_pairs = choose_scales(kernel, larger, seed) if larger.count else scales
    sizes = _known_sets(test, model).sizes.astype(np.float64)
    score, random = report.samples["score"], report.samples["random_score"]
    pairs = sizes >= PAIRS

    def area(c: float, which: NDArray[np.bool_] | slice = slice(None)) -> float:
        move = 2.0 * np.log(c) * sizes[which]
        return auc(score[which] + move, random[which] + move) if len(move) else float("nan")

    def likelihood(c: float) -> float:
        change = float(np.log1p(c * c * kernel.eigen[0]).sum()) - kernel.log_normalizer
        logs = score + 2.0 * np.log(c) * sizes - change
        return float(logs[np.isfinite(logs)].mean())

    points = scales["likelihood"] * 10.0**LOG10_SCALES
    return {
        "scales": scales,
        "auc": {name: area(c) for name, c in scales.items()},
        "auc_pairs": {name: area(c, pairs) for name, c in scales_of_pairs.items()},
        "log_likelihood": {name: likelihood(c) for name, c in scales.items()},
        "sweep": {
            "log10_c": LOG10_SCALES.tolist(),
            "auc": [area(c) for c in points],
            "auc_pairs": [area(c, pairs) for c in points],
        },
    }


def _known_sets(baskets: Baskets, model: Any) -> Sets:
    """The baskets in the model's codes, without items that it does not know and baskets that this leaves empty."""
    known = baskets.recode(model.items_, unknown="ignore")
    return take_sets(Sets(known.indptr, known.indices), np.flatnonzero(known.sizes > 0))
