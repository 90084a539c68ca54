"""The scale of a kernel: V → cV keeps every next-item ranking and sets the modeled basket size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from contradpp._random import START, UNIFORM, stream
from contradpp._types import Array, Codes, Ints, Rng
from contradpp.data.sets import Sets, take_sets
from contradpp.dpp import normalizer
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.normalizer import ROUGH
from contradpp.errors import ParameterError
from contradpp.learn.objectives import Validation
from contradpp.learn.params import Params, Problem
from contradpp.learn.state import (
    NEARLY_ALL,
    NO_SKEW,
    kernel_of,
    popularity,
    split_off_diagonal,
    start_factors,
)

MOST_TO_RESCALE = 500  # items up to which the scale is set anew after every update
UPDATE_SHARE = 0.5  # of the way to the right size, in logarithms, that one update goes
MOST_AT_ONCE = 1.2  # the largest factor of an update
MOST_TO_FACTORIZE = 4000  # items whose determinant sets the scale where there is an S
NEAR = 0.2  # distance of log c between values that locate the best
MOST_FOR_GUESS = 1000  # items whose determinant, a fiftieth of the work, gives a first guess


def calibrate_result(problem: Problem, params: Params, kernel: Kernel) -> Kernel:
    """Set the scale of a kernel that was learned with these parameters."""
    by_choice = params.spec.score == "choice"
    how = None if by_choice else params.calibrate  # choices determine the scale
    if problem.clusters is not None:  # the mixture has a scale for every cluster
        return kernel
    start = problem.start
    if start is not None and problem.rate is not None:
        # Rejected sets alone do not tell how large sets are.
        if by_choice or not problem.data.count:
            return kernel
        by_size = start.counts is not None and how == "likelihood"
        mean_size = float(problem.counts.sum() / problem.n_baskets) if by_size else None
        return at_old_scale(kernel, start.kernel, mean_size)
    only_baskets = problem.set_aside and start is None and not problem.data.negatives.count
    plain = params.diagonal and not params.n_skew and only_baskets
    if plain and how == "likelihood" and params.spec.score == "likelihood":
        return weighed_by_all(better_than_popularity(kernel, problem), problem)
    return calibrated(kernel, how, problem.validation, stream(problem.seed, UNIFORM))


def calibrated(kernel: Kernel, how: str | None, validation: Validation, rng: Rng) -> Kernel:
    """Return the kernel at the scale of the rule `how`, given these sets."""
    sets, weights, offered = validation
    if how is None or not (weights > 0).any():
        return kernel
    if how == "choices":
        return _for_choices(kernel, validation) if offered is not None else kernel
    if how == "discrimination":
        sizes = sets.sizes.astype(np.float64)
        others = Sets(sets.indptr, uniform_sets(sets.sizes, kernel.n_items, rng))
        c = discrimination_scale(kernel.log_det(sets), sizes, kernel.log_det(others), sizes)
        return kernel.scaled(c * c)
    return at_mean_size(kernel, float(np.average(sets.sizes, weights=weights)))


def better_than_popularity(kernel: Kernel, problem: Problem) -> Kernel:
    """Return a kernel D + V Vᵀ, or one with next to no V if that makes validation sets more likely.

    A kernel that only repels fits baskets poorly whose items go together, and stochastic
    steps cost likelihood.
    """
    sets, weights, _ = problem.validation
    counts = problem.counts
    n_baskets = problem.n_baskets
    rng = stream(problem.seed, START)
    V = start_factors("popularity", counts, n_baskets, kernel.n_components, rng)
    log_d, V = split_off_diagonal(V, counts, n_baskets, NEARLY_ALL)
    plain = kernel_of(V, log_d, np.empty(0), NO_SKEW, n_jobs=kernel.n_jobs)
    learned, start = (float(weights @ one.log_probability(sets)) for one in (kernel, plain))
    return plain if start > learned else kernel


def weighed_by_all(kernel: Kernel, problem: Problem) -> Kernel:
    """Weigh items by their popularity among all baskets, those of the validation sets included."""
    sets, weights, _ = problem.validation
    per_entry = np.repeat(weights, sets.sizes)
    held_out = np.bincount(sets.indices, weights=per_entry, minlength=len(problem.counts))
    counts = problem.counts + held_out
    n_baskets = problem.n_baskets + float(weights.sum())
    before = popularity(problem.counts, problem.n_baskets)
    after = popularity(counts, n_baskets)
    ratio = after / (1 - after) * (1 - before) / before
    factors = kernel.factors * np.sqrt(ratio)[:, None]
    weighed = Kernel.trusted(factors, diagonal=kernel.diagonal * ratio, n_jobs=kernel.n_jobs)
    return at_mean_size(weighed, float(counts.sum()) / n_baskets)


def at_mean_size(kernel: Kernel, mean: float) -> Kernel:
    """Return the kernel at the scale at which sets of this mean size are most likely."""
    return kernel.scaled(scale_of_mean_size(kernel, mean))


def scale_of_mean_size(kernel: Kernel, mean: float, *, rough: bool = False) -> float:
    """Return the c for which sets of this mean size are most likely under c · L.

    In large catalogs it is found by the heaviest items, with the others independent; with `rough`,
    by fewer.
    """
    if not kernel.skew.n_entries and not kernel.has_diagonal:
        return likelihood_scale(kernel.eigen[0], mean) ** 2
    alone = likelihood_scale(kernel.squared_norms, mean) ** 2  # as for independent items
    if not kernel.skew.n_entries:
        return best_scale(
            lambda c: kernel.scaled(c).log_normalizer, mean, around=alone, within=1e-3
        )
    order = np.argsort(-kernel.squared_norms, kind="stable")

    def of_heaviest(n: int) -> Callable[[float], float]:
        """Return log det(I + cL) as a function of c, items beyond the n heaviest independent."""
        heaviest = np.sort(order[:n])
        rest = np.delete(kernel.squared_norms, heaviest)
        part = kernel.restrict(heaviest)
        return lambda c: float(part.scaled(c).log_normalizer + np.log1p(c * rest).sum())

    guess = best_scale(of_heaviest(MOST_FOR_GUESS), mean, around=alone)
    if rough or kernel.n_items <= MOST_FOR_GUESS:
        return guess
    return better_scale(of_heaviest(MOST_TO_FACTORIZE), mean, guess)


def _for_choices(kernel: Kernel, validation: Validation) -> Kernel:
    """Return the kernel at the scale at which choices are most likely."""
    sets, weights, offered = validation
    if offered is None:
        return kernel
    known = np.flatnonzero((weights > 0) & (offered.sizes > 0))
    chosen = take_sets(sets, known)
    offered = take_sets(offered, known)
    weights = weights[known]
    logs = kernel.log_det(chosen)
    possible = np.isfinite(logs)
    if not chosen.sizes[possible].any():
        return kernel
    mean = float(np.average(chosen.sizes[possible], weights=weights[possible]))

    def log_normalizer(c: float) -> float:
        return float(np.average(kernel.scaled(c).plus_identity.log_det(offered), weights=weights))

    start = 1.0 / float(np.exp(np.mean(np.log(np.maximum(kernel.squared_norms, 1e-300)))))
    return kernel.scaled(best_scale(log_normalizer, mean, around=start, above=20.0))


def at_old_scale(kernel: Kernel, before: Kernel, mean_size: float | None) -> Kernel:
    """Return an updated kernel at its scale from before: steps let it drift.

    Sets get the mean size of the baskets learned from, by an exact search where that is cheap, else
    step by step from one update to the next. Without a mean size, the known items keep the mean of
    their weights.
    """
    if mean_size and before.n_items == kernel.n_items:
        if kernel.n_items <= MOST_TO_RESCALE or (kernel.symmetric and not kernel.has_diagonal):
            return at_mean_size(kernel, mean_size)
        away = mean_size / max(normalizer.expected_size(kernel, ROUGH), 1e-300)
        factor = np.clip(away**UPDATE_SHARE, 1 / MOST_AT_ONCE, MOST_AT_ONCE)
        return kernel.scaled(float(factor))
    old = before.squared_norms
    new = kernel.squared_norms[: before.n_items]
    used = (old > 0) & (new > 0)
    if not used.any():
        return kernel
    mean_log = np.average(np.log(old[used] / new[used]), weights=old[used])
    return kernel.scaled(float(np.exp(mean_log)))


def likelihood_scale(eigenvalues: Array, mean_size: float) -> float:
    """Return the c with the highest log-likelihood of sets of this mean size.

    The derivative of mean log P with respect to log c is 2 mean|A| − 2 Σ c²λ/(1 + c²λ): at the best
    c the expected size of the model is that of the data.
    """
    from scipy.optimize import brentq

    values = eigenvalues[eigenvalues > 0]
    if mean_size <= 0 or not len(values):
        return 1.0
    wanted = min(mean_size, len(values) - 1e-6)

    def excess(log_c: float) -> float:
        scaled = np.exp(2 * log_c) * values
        return float((scaled / (1 + scaled)).sum() - wanted)

    center = -0.5 * float(np.log(values).mean())
    low = center - 30.0
    high = center + 30.0
    if excess(low) > 0 or excess(high) < 0:
        return 1.0
    return float(np.exp(brentq(excess, low, high, xtol=1e-12)))


def best_scale(
    log_normalizer: Callable[[float], float],
    mean_size: float,
    *,
    around: float = 1.0,
    above: float = 2.0,
    within: float = 0.05,
) -> float:
    """Return the c for which sets of this mean size are most likely under c · L.

    mean log P = mean|A| log c − log det(I + c L) + constant, and the determinant may be expensive.
    Where items attract, sets are larger than for independent items, whose scale is `around`: the
    search goes far below it.
    """
    from scipy.optimize import minimize_scalar

    start = float(np.log(around))
    found = minimize_scalar(
        lambda t: log_normalizer(float(np.exp(t))) - mean_size * t,
        bounds=(start - 40.0, start + above),
        method="bounded",
        options={"xatol": within},
    )
    return float(np.exp(found.x))


def better_scale(log_normalizer: Callable[[float], float], mean_size: float, guess: float) -> float:
    """Find `best_scale` from a good guess, by four values instead of twelve.

    The fourth is the lowest point of a parabola through three. The result is the lowest point of
    one through the best and its two neighbors.
    """

    def loss(t: float) -> float:
        return log_normalizer(float(np.exp(t))) - mean_size * t

    start = float(np.log(guess))
    points = {t: loss(t) for t in (start - NEAR, start, start + NEAR)}
    lowest = _bottom(points)
    if abs(lowest - start) <= 3.0 * NEAR and min(abs(lowest - t) for t in points) > 1e-3:
        points[lowest] = loss(lowest)
        lowest = _bottom(points)
    if abs(lowest - start) <= 3.0 * NEAR:
        return float(np.exp(lowest))
    return best_scale(log_normalizer, mean_size, around=guess, above=40.0)


def _bottom(points: dict[float, float]) -> float:
    """Return the lowest place of the parabola through the best point and its neighbors, or inf."""
    best = min(points, key=lambda t: points[t])
    near = sorted(points, key=lambda t: abs(t - best))[:3]
    a, b, _ = np.polyfit(np.subtract(near, best), [points[t] for t in near], 2)
    return float(best - b / (2.0 * a)) if a > 0 else np.inf


def discrimination_scale(
    log_dets: Array, sizes: Array, other_log_dets: Array, other_sizes: Array
) -> float:
    """Return the c with the highest pooled AUC of real sets against others.

    In the paper the others are uniform sets of the same sizes. The normalizer is the same for all:
    a set scores log det L_A + 2|A| log c. The AUC is a step function of log c: a wide grid comes
    first, then finer ones around the best point.
    """
    if not np.isfinite([*log_dets, *other_log_dets]).any():
        raise ParameterError(
            "calibrate='discrimination' needs validation sets of positive probability"
        )
    center = 0.0
    width = 12.0
    for _ in range(3):
        grid = center + np.linspace(-width, width, 49)
        areas = [auc(log_dets + 2 * c * sizes, other_log_dets + 2 * c * other_sizes) for c in grid]
        best = np.flatnonzero(np.array(areas) >= max(areas) - 1e-12)
        center = float(grid[best[np.argmin(np.abs(grid[best]))]])
        width /= 12
    return float(np.exp(center))


def auc(positive: Array, negative: Array) -> float:
    """Return the probability that a positive score is above a negative one; ties count half."""
    lower = np.sort(negative)
    twice = sum(np.searchsorted(lower, positive, side).sum() for side in ("left", "right"))
    return float(twice / 2 / (len(positive) * len(negative)))


def uniform_sets(sizes: Ints, n_items: int, rng: Rng) -> Codes:
    """Draw distinct items uniformly, as many as each size says, one set after the other."""
    drawn = [rng.choice(n_items, size=min(int(size), n_items), replace=False) for size in sizes]
    return np.concatenate([np.empty(0, dtype=np.int32), *drawn]).astype(np.int32)
