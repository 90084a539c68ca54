"""The scale of a kernel: V → cV leaves every next-item ranking as it is and sets the modelled basket size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp.data.sets import Sets, take_sets
from contradpp.dpp import normalizer
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.normalizer import ROUGH
from contradpp.errors import ParameterError
from contradpp.learn.objectives import Validation
from contradpp.learn.params import Params, Problem
from contradpp.learn.state import (
    NEARLY_ALL,
    NO_PARTNERS,
    START,
    UNIFORM,
    kernel_of,
    popularity,
    split_off_diagonal,
    start_factors,
)

Array = NDArray[np.float64]
MOST_TO_RESCALE = 500  # items up to which the scale is set anew after every update
TOWARDS, MOST_AT_ONCE = 0.5, 1.2  # of the way to the right size, in logarithms, that one update goes; and its most
MOST_TO_FACTORISE = 4000  # items whose determinant, a dense factorisation, sets the scale where there is an S
NEAR = 0.2  # of log c: values that far apart tell where the best is
MOST_FOR_GUESS = 1000  # items whose determinant, a fiftieth of the work, says where to look for it


def calibrated_by(problem: Problem, params: Params, kernel: Kernel) -> Kernel:
    """Set the scale of a kernel that was learned with these parameters."""
    how = None if params.by_choice else params.calibrate  # choices say what the scale is
    known = problem.known
    if known is not None and problem.rate is not None:
        # Where all is rejected, no news says how large sets are.
        if params.by_choice or not problem.data.count:
            return kernel
        by_size = known.counts is not None and how == "likelihood"
        mean_size = float(problem.counts.sum() / problem.n_baskets) if by_size else None
        return at_old_scale(kernel, known.kernel, mean_size)
    only_baskets = problem.set_aside and known is None and not problem.data.negatives.count
    plain = params.diagonal and not params.n_skew and only_baskets
    if plain and how == "likelihood" and params.by_likelihood:
        return weighed_by_all(better_than_popularity(kernel, problem), problem)
    return calibrated(kernel, how, problem.validation, stream(problem.seed, UNIFORM))


def calibrated(kernel: Kernel, how: str | None, validation: Validation, rng: np.random.Generator) -> Kernel:
    """The kernel at the scale that `how` asks for, set on these sets."""
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
    """A kernel D + V Vᵀ, or one with next to no V if the validation sets are more likely by popularity alone.

    A kernel that only repels has little to say of baskets whose items go together, and steps by chance cost likelihood.
    """
    sets, weights, _ = problem.validation
    V = start_factors("popularity", problem.counts, problem.n_baskets, kernel.n_components, stream(problem.seed, START))
    log_d, V = split_off_diagonal(V, problem.counts, problem.n_baskets, NEARLY_ALL)
    plain = kernel_of(V, log_d, np.empty(0), NO_PARTNERS, n_jobs=kernel.n_jobs)
    learned, start = (float(weights @ one.log_probability(sets)) for one in (kernel, plain))
    return plain if start > learned else kernel


def weighed_by_all(kernel: Kernel, problem: Problem) -> Kernel:
    """The kernel whose items weigh what popularity among all baskets says, those of the validation sets included."""
    sets, weights, _ = problem.validation
    news = np.bincount(sets.indices, weights=np.repeat(weights, sets.sizes), minlength=len(problem.counts))
    counts, n_baskets = problem.counts + news, problem.n_baskets + float(weights.sum())
    before, after = popularity(problem.counts, problem.n_baskets), popularity(counts, n_baskets)
    ratio = after / (1 - after) * (1 - before) / before
    factors = kernel.factors * np.sqrt(ratio)[:, None]  # what is alike stays alike
    weighed = Kernel.trusted(factors, diagonal=kernel.diagonal * ratio, n_jobs=kernel.n_jobs)
    return at_mean_size(weighed, float(counts.sum()) / n_baskets)


def at_mean_size(kernel: Kernel, mean: float) -> Kernel:
    """The kernel at the scale at which sets of this mean size are most likely."""
    if not kernel.skew.n_entries and not kernel.has_diagonal:
        return kernel.scaled(likelihood_scale(kernel.eigen[0], mean) ** 2)
    alone = likelihood_scale(kernel.squared_norms, mean) ** 2  # as if items did not know each other
    if not kernel.skew.n_entries:
        return kernel.scaled(best_scale(lambda c: kernel.scaled(c).log_normalizer, mean, around=alone, within=1e-3))
    order = np.argsort(-kernel.squared_norms, kind="stable")

    def of_heaviest(n: int) -> Callable[[float], float]:
        """log det(I + cL) as a function of c; beyond the n heaviest items as if each were bought on its own."""
        heaviest = np.sort(order[:n])
        rest, part = np.delete(kernel.squared_norms, heaviest), kernel.take(heaviest)
        return lambda c: float(part.scaled(c).log_normalizer + np.log1p(c * rest).sum())

    guess = best_scale(of_heaviest(MOST_FOR_GUESS), mean, around=alone)
    if kernel.n_items <= MOST_FOR_GUESS:
        return kernel.scaled(guess)
    return kernel.scaled(better_scale(of_heaviest(MOST_TO_FACTORISE), mean, guess))


def _for_choices(kernel: Kernel, validation: Validation) -> Kernel:
    """The kernel at the scale at which what was taken of what was offered is most likely."""
    sets, weights, offered = validation
    known = np.flatnonzero((weights > 0) & (offered.sizes > 0)) if offered is not None else np.empty(0, dtype=np.int64)
    if offered is None or not len(known):
        return kernel
    chosen, offered, weights = take_sets(sets, known), take_sets(offered, known), weights[known]
    logs = kernel.log_det(chosen)
    possible = np.isfinite(logs)
    mean = float(np.average(chosen.sizes[possible], weights=weights[possible])) if possible.any() else 0.0
    if mean <= 0:
        return kernel

    def log_normalizer(c: float) -> float:
        return float(np.average(kernel.scaled(c).plus_identity.log_det(offered), weights=weights))

    start = 1.0 / float(np.exp(np.mean(np.log(np.maximum(kernel.squared_norms, 1e-300)))))
    return kernel.scaled(best_scale(log_normalizer, mean, around=start, above=20.0))


def at_old_scale(kernel: Kernel, before: Kernel, mean_size: float | None) -> Kernel:
    """A kernel that went on learning, at the scale it should have: steps that do not know of it let it drift.

    Sets become as large as those learned from are on average, by an exact search where that is cheap, else step by step
    from one update to the next. Without such an average, the items that were there before weigh what they did on the
    whole.
    """
    if mean_size and before.n_items == kernel.n_items:
        if kernel.n_items <= MOST_TO_RESCALE or (kernel.symmetric and not kernel.has_diagonal):
            return at_mean_size(kernel, mean_size)
        away = mean_size / max(normalizer.expected_size(kernel, ROUGH), 1e-300)
        return kernel.scaled(float(np.clip(away**TOWARDS, 1 / MOST_AT_ONCE, MOST_AT_ONCE)))
    old, new = before.squared_norms, kernel.squared_norms[: before.n_items]
    used = (old > 0) & (new > 0)
    if not used.any():
        return kernel
    return kernel.scaled(float(np.exp(np.average(np.log(old[used] / new[used]), weights=old[used]))))


def likelihood_scale(eigenvalues: Array, mean_size: float) -> float:
    """The c with the highest log-likelihood of sets of this mean size.

    The derivative of mean log P with respect to log c is 2 mean|A| − 2 Σ c²λ/(1 + c²λ): at the best c the
    expected size of the model is that of the data.
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
    low, high = center - 30.0, center + 30.0
    if excess(low) > 0 or excess(high) < 0:
        return 1.0
    return float(np.exp(brentq(excess, low, high, xtol=1e-12)))


def best_scale(
    log_normalizer: Callable[[float], float], mean_size: float, *, around: float = 1.0, above: float = 2.0,
    within: float = 0.05,
) -> float:  # fmt: skip
    """The c for which sets of this mean size are most likely under c · L, from log det(I + c L) alone.

    mean log P = mean|A| log c − log det(I + c L) + constant; every value of the determinant may be dear. Where items
    attract, sets are larger than `around`, the scale of independent items, says: the search goes far below it.
    """
    from scipy.optimize import minimize_scalar

    start = float(np.log(around))
    found = minimize_scalar(
        lambda t: log_normalizer(float(np.exp(t))) - mean_size * t, bounds=(start - 40.0, start + above),
        method="bounded", options={"xatol": within},
    )  # fmt: skip
    return float(np.exp(found.x))


def better_scale(log_normalizer: Callable[[float], float], mean_size: float, guess: float) -> float:
    """As `best_scale`, from a guess that is not far off, by four values where that takes twelve.

    The lowest point of a parabola through three of them, then that of one through the best and its two neighbours.
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
    """Where the parabola through the lowest of these points and the two next to it is lowest; inf if nowhere."""
    best = min(points, key=lambda t: points[t])
    near = sorted(points, key=lambda t: abs(t - best))[:3]
    a, b, _ = np.polyfit(np.subtract(near, best), [points[t] for t in near], 2)
    return float(best - b / (2.0 * a)) if a > 0 else np.inf


def discrimination_scale(log_dets: Array, sizes: Array, other_log_dets: Array, other_sizes: Array) -> float:
    """The c with the highest pooled AUC of real sets against others (the paper's: uniform, of the same sizes).

    A set scores log det L_A + 2|A| log c; the normaliser is the same for all. The AUC is a step function of
    log c: a wide grid, then a finer one around its best point.
    """
    if not np.isfinite([*log_dets, *other_log_dets]).any():
        raise ParameterError("calibrate='discrimination' needs validation sets of positive probability")
    center, width = 0.0, 12.0
    for _ in range(3):
        grid = center + np.linspace(-width, width, 49)
        areas = [auc(log_dets + 2 * c * sizes, other_log_dets + 2 * c * other_sizes) for c in grid]
        best = np.flatnonzero(np.array(areas) >= max(areas) - 1e-12)
        center = float(grid[best[np.argmin(np.abs(grid[best]))]])
        width /= 12
    return float(np.exp(center))


def auc(positive: Array, negative: Array) -> float:
    """The probability that a positive score is above a negative one, ties counted half."""
    lower = np.sort(negative)
    twice = sum(np.searchsorted(lower, positive, side).sum() for side in ("left", "right"))
    return float(twice / 2 / (len(positive) * len(negative)))


def uniform_sets(sizes: NDArray[np.int64], n_items: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """For each size, that many distinct items drawn uniformly; all of them one after the other."""
    drawn = [rng.choice(n_items, size=min(int(size), n_items), replace=False) for size in sizes]
    return np.concatenate([np.empty(0, dtype=np.int32), *drawn]).astype(np.int32)
