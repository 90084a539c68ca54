"""The knobs of training, checked, and the plan that follows from them."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets, sums_over_sets, take_sets
from contradpp.errors import ParameterError
from contradpp.learn.negatives import Dynamic, Explicit, NegativeSource, NotInTraining, Product
from contradpp.learn.objectives import ConditionalLikelihood, Contrastive, NoiseContrastive, Objective
from contradpp.learn.optimizers import Nesterov, Optimizer, RobbinsMonro, RowAdam
from contradpp.learn.schedule import Plateau, RelativeChange, Schedule
from contradpp.learn.start import popularity
from contradpp.learn.state import State
from contradpp.learn.trainer import Plan, TrainingData

OBJECTIVES = ("mle", "dynamic", "explicit", "product", "nce", "exact")
DENSE_ITEMS = 4096  # up to this catalogue size a step over all rows costs no more than picking some
IMPOSSIBLE = -1e3  # what a set of probability zero counts for in the validation score
Array = NDArray[np.float64]


class Watched(NamedTuple):
    """The sets whose score decides when training ends, with a weight each; below zero where less is better."""

    sets: Sets
    weights: Array


@dataclass(frozen=True)
class Settings:
    """Hyper-parameters of training; `LowRankDPP` documents them."""

    objective: str
    contrast: float | str
    negative_ratio: float
    alpha: float
    optimizer: str
    batch_size: int
    max_iter: int
    tol: float
    learning_rate: float | None
    refresh: int
    false_negatives: str
    frequency_power: float
    removal: str
    monitor: str
    radius: float
    paper: bool

    def __post_init__(self) -> None:
        one_of("objective", self.objective, OBJECTIVES)
        one_of("optimizer", self.optimizer, ("adam", "nesterov", "robbins-monro"))
        one_of("false_negatives", self.false_negatives, ("keep", "reject"))
        one_of("removal", self.removal, ("popularity", "uniform"))
        one_of("monitor", self.monitor, ("auto", "likelihood", "conditional"))
        if self.contrast != "counted":
            number("contrast", self.contrast, low=0.0)
        number("negative_ratio", self.negative_ratio, low=0.0)
        number("alpha", self.alpha, low=0.0)
        number("tol", self.tol, low=0.0)
        number("frequency_power", self.frequency_power, low=0.0)
        number("radius", self.radius, low=0.0, strict=True)
        if self.learning_rate is not None:
            number("learning_rate", self.learning_rate, low=0.0, strict=True)
        for name in ("batch_size", "max_iter", "refresh"):
            whole(name, getattr(self, name))
        if self.objective == "nce" and self.negative_ratio == 0:
            raise ParameterError("objective='nce' compares with noise: negative_ratio must be above 0")
        if self.objective == "nce" and self.false_negatives == "reject":
            raise ParameterError("objective='nce' needs noise of a known law: false_negatives must be 'keep'")

    @property
    def contrast_value(self) -> float | None:
        """The weight of the negatives; None for the counted form of the paper's appendix, |A⁻|/|A⁺|."""
        return None if self.contrast == "counted" else float(self.contrast)

    @property
    def needs_items(self) -> bool:
        """Whether an empty basket says nothing to this objective."""
        return self.objective in ("dynamic", "explicit", "exact")

    def build_plan(
        self,
        state: State,
        data: TrainingData,
        watched: Watched,
        counts: Array,
        n_baskets: float,
        seed: int,
        optimizer: Optimizer | None = None,
    ) -> Plan:
        """The objective, negatives, optimiser (unless one is given) and schedule for these data."""
        share = popularity(counts, n_baskets)
        penalty = self.alpha / np.maximum(counts, 1)
        liked = take_sets(data.positives, np.flatnonzero(data.weights > 0))
        source = self._source(liked, share)
        batch = min(self.batch_size, max(data.positives.count, data.negatives.count, 1))
        return Plan(
            objective=self._objective(share),
            optimizer=optimizer or self.optimizer_of(penalty, state.V.shape[1], batch),
            schedule=self._schedule(),
            monitor=self.monitor_of(watched, share),
            source=source,
            negative_ratio=self.negative_ratio,
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            seed=seed,
            refresh=self.refresh,
            check_every_step=self.paper,
        )

    def _source(self, positives: Sets, share: Array) -> NegativeSource | None:
        source: NegativeSource
        if self.objective == "dynamic":
            source = Dynamic(self._removal(share))
        elif self.objective == "explicit":
            source = Explicit(share, positives)
        elif self.objective in ("product", "nce"):
            source = Product.from_popularity(share, self.frequency_power)
        else:
            return None
        return NotInTraining(source, positives) if self.false_negatives == "reject" else source

    def _objective(self, share: Array) -> Objective:
        if self.objective == "exact":
            return ConditionalLikelihood(self._removal(share), self.contrast_value)
        if self.objective == "nce":
            noise = Product.from_popularity(share, self.frequency_power)
            return NoiseContrastive(noise.log_odds(), noise.log_empty())
        return Contrastive(self.contrast_value)

    def _removal(self, share: Array) -> Array:
        return share if self.removal == "popularity" else np.ones_like(share)

    def optimizer_of(self, penalty: Array, n_components: int, batch: int, *, dense: bool | None = None) -> Optimizer:
        """The optimiser for rows with these penalties; `dense` as for `RowAdam`, by their number if left out."""
        given: dict[str, Any] = {} if self.learning_rate is None else {"step_size": self.learning_rate}
        if self.optimizer == "nesterov":
            return Nesterov(penalty, batch_scale=batch, **given)
        if self.optimizer == "robbins-monro":
            return RobbinsMonro(penalty, radius=self.radius, **given)
        if self.learning_rate is not None:
            given = {"norm_step": self.learning_rate / 20, "direction_step": self.learning_rate}
        dense = len(penalty) <= DENSE_ITEMS if dense is None else dense
        return RowAdam(penalty, n_components, dense=dense, **given)

    def _schedule(self) -> Schedule:
        return RelativeChange(self.tol) if self.paper else Plateau(self.tol)

    @property
    def by_likelihood(self) -> bool:
        """Whether the validation score is log P(A) rather than log P(i | A∖i)."""
        return self.objective in ("mle", "nce") if self.monitor == "auto" else self.monitor == "likelihood"

    def monitor_of(self, watched: Watched, share: Array) -> Callable[[State], float]:
        """The validation score of a state; `share` is the popularity of every item."""
        if self.by_likelihood:
            return likelihood_monitor(watched)
        removal = self._removal(share) if self.objective in ("dynamic", "exact") else np.ones_like(share)
        return conditional_monitor(watched, removal)


def likelihood_monitor(watched: Watched) -> Callable[[State], float]:
    """The weighted mean of log P(A) over the sets."""
    sets = watched.sets
    weight = watched.weights / np.abs(watched.weights).sum()

    def score(state: State) -> float:
        logs = state.log_det(sets)
        return float(weight @ (np.where(np.isfinite(logs), logs, IMPOSSIBLE) - state.log_normalizer))

    return score


def conditional_monitor(watched: Watched, removal: Array) -> Callable[[State], float]:
    """The weighted mean over sets of the mean over their items, weighted by `removal`, of log P(i | A∖i)."""
    sets = watched.sets
    owner = np.repeat(np.arange(sets.count), sets.sizes)
    share = removal[sets.indices]
    total = np.abs(watched.weights[sets.sizes > 0]).sum()
    weight = watched.weights[owner] * share / sums_over_sets(share, sets)[owner] / max(total, 1e-300)

    def score(state: State) -> float:
        logs = state.conditional_log_likelihood(sets)
        return float(weight @ np.where(np.isfinite(logs), logs, IMPOSSIBLE))

    return score


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def number(name: str, value: Any, *, low: float, strict: bool = False) -> None:
    """Refuse anything but a finite number of at least `low` (above it, if strict)."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool) and np.isfinite(float(value))
    if not good or value < low or (strict and value == low):
        raise ParameterError(f"{name} must be a number {'above' if strict else 'of at least'} {low:g}, got {value!r}")


def whole(name: str, value: Any) -> None:
    """Refuse anything but a positive integer."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ParameterError(f"{name} must be a positive integer, got {value!r}")
