"""One task of the protocol: split, fit, and what is measured of the model.

Figure 1 shows the next-item probabilities of {1, 2} and {3, 4}. For a kernel L = V Vᵀ let a_ij = det L_ij, the squared
area spanned by v_i and v_j; then P(j | i) = a_ij / Σ_k a_ik. Areas obey Ptolemy's inequality,
√(a_12 a_34) ≤ √(a_13 a_24) + √(a_14 a_23), and by Cauchy–Schwarz the product of (a_13 + a_14)(a_24 + a_23) and
(a_13 + a_23)(a_24 + a_14) is at least the fourth power of the right side. So with
r_i = P(not i's partner | i) / P(i's partner | i) the product of the four r_i is at least 1, and the geometric mean of
P(2|1), P(1|2), P(4|3), P(3|4), each 1/(1 + r_i), is at most 1/2.
"""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp.baselines import Popularity
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, take_sets
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ConvergenceError
from contradpp.learn.calibration import auc, discrimination_scale, likelihood_scale, uniform_sets
from contradpp.learn.callbacks import Callback, Record
from contradpp.learn.params import params_from_flat
from contradpp.metrics.report import Report, evaluate
from contradpp.models.lowrank import LowRankDPP
from experiments.protocol import TEST_SHARE, Task

Array = NDArray[np.float64]
Result = dict[str, Any]

KS = (1, 5, 10, 20)
VALIDATION = {"default": 0.05, "paper": 0.01}  # of the training baskets: those that `LowRankDPP` would set aside
MOST_VALIDATION = 5000
POINTS = 200  # of a convergence curve
LOG10_SCALES = np.round(np.linspace(-2.0, 3.0, 51), 3)  # relative to the scale of best likelihood

PAIRS = 2  # a basket of one item gives a model nothing to go by but popularity
TOY_PAIRS = ((1, 2), (2, 1), (3, 4), (4, 3))  # (given, next)
MOST_PROBABILITY = 0.5  # the largest geometric mean of the four that a symmetric kernel can reach
LEAST_DIVERGENCE = math.log(2.0)  # and the smallest net divergence: see `divergence`


@lru_cache(maxsize=8)
def load(name: str) -> Baskets:
    """Load a data set; it is kept, because every trial splits it anew."""
    return datasets.load(name)


def split(task: Task, *, choices: bool = False) -> tuple[Baskets, Baskets]:
    """Split the baskets, 80 % for training and the rest for the test, by the trial's seed.

    What they were chosen from is left out, unless `choices` are what is asked about: all models learn from sets alone.
    """
    known = load(task.data)
    baskets = known if choices else Baskets.trusted(known.indptr, known.indices, known.items)
    return baskets.split(TEST_SHARE, random_state=task.trial)


def test_ids(task: Task) -> NDArray[np.int64]:
    """Return the positions in the data set of the test baskets of `split`, in their order."""
    n = load(task.data).n_baskets
    numbered = Baskets.trusted(
        np.arange(n + 1), np.arange(n, dtype=np.int32), load(task.data).items
    )  # a basket is its own number
    return numbered.split(TEST_SHARE, random_state=task.trial)[1].indices.astype(np.int64)


def some(wanted: NDArray[np.bool_], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the positions of what is wanted; of many, so many at random."""
    places = np.flatnonzero(wanted)
    return places if len(places) <= most else places[np.sort(rng.choice(len(places), most, replace=False))]


def set_aside(task: Task, train: Baskets) -> tuple[Baskets, Baskets]:
    """Split training baskets from the validation baskets of early stopping and scale."""
    count = min(max(round(VALIDATION[task.settings] * train.n_baskets), 2), MOST_VALIDATION)
    return train.split(count, random_state=task.trial)


# -- The kinds of task ---------------------------------------------------------------------------------


def fit_and_evaluate(task: Task, n_jobs: int | None) -> Result:
    """Return all metrics of a method on the test part of a data set; the AUC at three scales of the same kernel."""
    train, test = split(task)
    if task.method == "popularity":
        started = time.perf_counter()
        report = evaluate(Popularity().fit(train), test, KS, task.trial, train=train, n_jobs=n_jobs)
        return {**metrics_of(report), "seconds": time.perf_counter() - started}
    part, validation = set_aside(task, train)
    model, outcome = fit(task, part, validation, n_jobs)
    report = evaluate(model, test, KS, task.trial, train=train, n_jobs=n_jobs)
    return {**metrics_of(report), **outcome, "scaled": scaled_results(model, validation, test, report, task.trial)}


def figure1(task: Task, n_jobs: int | None) -> Result:
    """Return the pair probabilities and divergences of one run on the toy set."""
    model, outcome = fit(task, *set_aside(task, split(task)[0]), n_jobs)
    return {**toy_results(model), **outcome}


def runtime(task: Task, n_jobs: int | None) -> Result:
    """Measure seconds to convergence on one thread, after everything has been compiled."""
    del n_jobs  # the comparison is between methods, not between machines
    _warm_up(task.method, task.settings, task.data)
    return fit(task, *set_aside(task, split(task)[0]), 1)[1]


# -- Training ------------------------------------------------------------------------------------------


def fit(task: Task, part: Baskets, validation: Baskets, n_jobs: int | None) -> tuple[LowRankDPP, Result]:
    """Return a trained model, and how its training went."""
    model = LowRankDPP(**params_from_flat(LowRankDPP, task.estimator), n_jobs=n_jobs)
    ended = "converged"
    limit = _Limit(task.plan.paper_rounds)
    started = time.perf_counter()
    try:
        model.fit(part, validation=validation, callbacks=[limit] if task.settings == "paper" else [])
    except _LimitReached:
        ended = "cut off"
    except ConvergenceError as error:  # the model keeps its best parameters: they are what the method reached
        ended = str(error)
    seconds = time.perf_counter() - started
    if ended == "converged" and model.n_iter_ >= (model.max_iter if task.settings == "default" else np.inf):
        ended = "cut off"
    return model, {
        "seconds": seconds,
        "rounds": model.n_iter_,
        "steps": model.history_[-1]["step"] if model.history_ else 0,
        "ended": ended,
        "history": thinned(model.history_),
    }


def thinned(history: list[Record]) -> dict[str, list[float]]:
    """Return the curve of the validation score, at no more than `POINTS` rounds, the first and last among them."""
    chosen = sorted(set(np.linspace(0, len(history) - 1, POINTS).round().astype(int).tolist())) if history else []
    return {name: [history[i][name] for i in chosen] for name in ("iteration", "seconds", "validation")}


@lru_cache(maxsize=32)
def _warm_up(method: str, settings: str, data: str) -> None:
    """Compile what the method needs, on a few baskets."""
    few = load(data).subset(np.arange(min(200, load(data).n_baskets)))
    fit(Task("runtime", data, method, 0, settings, overrides=(("max_iter", 2),)), few, few, 1)


class _LimitReached(Exception):
    """Training was cut off."""


class _Limit(Callback):
    """Ends a training that would go on for hours; the model keeps the best parameters so far."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_iteration(self, record: Record, best: Array) -> None:  # noqa: ARG002
        """See `Callback`."""
        if record["iteration"] >= self.rounds:
            raise _LimitReached


# -- What is measured ----------------------------------------------------------------------------------


def metrics_of(report: Report) -> Result:
    """Return the metrics of an evaluation, those of larger baskets beside them."""
    sizes = [{"group": row.group, "n": row.n, "mpr_paper": row.mpr_paper} for row in report.by_size.rows]
    larger = [row for row in report.by_size.rows if row.group not in ("1", "all")]
    n = sum(row.n for row in larger)
    pairs = sum(row.n * row.mpr_paper for row in larger) / n if n else None  # of baskets of two or more items
    return {
        "metrics": {**report.metrics, "mpr_paper": report.mpr_paper, "mpr_pairs": pairs},
        "by_size": sizes,
        "single_share": 1.0 - n / max(report.by_size.rows[-1].n, 1),
        "n_test": report.n_baskets,
        "n_items": report.n_items,
    }


def choose_scales(kernel: Kernel, validation: Sets, seed: int) -> dict[str, float]:
    """Return the c of V → cV that each way of calibrating chooses on these sets."""
    sizes = validation.sizes.astype(np.float64)
    others = Sets(validation.indptr, uniform_sets(validation.sizes, kernel.n_items, stream(seed, 0)))
    return {
        "none": 1.0,
        "likelihood": likelihood_scale(kernel.eigen[0], float(sizes.mean())),
        "discrimination": discrimination_scale(kernel.log_det(validation), sizes, kernel.log_det(others), sizes),
    }


def scaled_results(model: Any, validation: Baskets, test: Baskets, report: Report, seed: int) -> Result:
    """Return pooled AUC and log-likelihood of test baskets at the scales of `choose_scales`, and AUC against scale.

    A set's score moves by 2|A| log c, so that one evaluation gives the AUC at every scale. The names that end in
    `_pairs` are of baskets of two or more items, at the scales that are best for those.
    """
    kernel = Kernel(model.item_factors_)
    held_out = _known_sets(validation, model)
    scales = choose_scales(kernel, held_out, seed)
    larger = take_sets(held_out, np.flatnonzero(held_out.sizes >= PAIRS))
    scales_of_pairs = choose_scales(kernel, larger, seed) if larger.count else scales
    sizes = _known_sets(test, model).sizes.astype(np.float64)
    score = report.samples["score"]
    random = report.samples["random_score"]
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
    """Return the baskets in the model's codes, without unknown items and the baskets they leave empty."""
    known = baskets.recode(model.items_, unknown="ignore")
    return take_sets(Sets(known.indptr, known.indices), np.flatnonzero(known.sizes > 0))


def pair_probabilities(model: Any) -> Array:
    """Return P(2|1), P(1|2), P(4|3), P(3|4) of a model of the toy set, (4,)."""
    items = {item: code for code, item in enumerate(model.items_)}
    predicted = model.predict_next([[given] for given, _ in TOY_PAIRS])
    return np.array([row[items[following]] for row, (_, following) in zip(predicted, TOY_PAIRS, strict=True)])


def divergence(probability: Array) -> Array:
    """Return the symmetric KL divergence of predicted and empirical next items, over their shared support.

    The data say that 2 follows 1 with certainty, so that only 2 is in both supports: with p = P(2|1),
    KL(data‖model) + KL(model‖data) = −log p + p log p = −(1 − p) log p. As a function of log p it lies above its
    tangent at p = ½, which falls: where the geometric mean is at most ½, the mean is at least ½ log 2.
    """
    p = np.maximum(probability, 1e-300)
    result: Array = -(1.0 - p) * np.log(p)
    return result


def toy_results(model: Any) -> Result:
    """Run figure 1 once; a basket's divergence is the mean over its given item."""
    probability = pair_probabilities(model)
    each = divergence(probability)
    baskets = [float(each[:2].mean()), float(each[2:].mean())]
    return {
        "probabilities": probability.tolist(),
        "geometric_mean": float(np.exp(np.log(np.maximum(probability, 1e-300)).mean())),
        "divergences": baskets,
        "net_divergence": sum(baskets),
    }
