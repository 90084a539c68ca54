"""From parameters to a plan: which objective, negatives, optimiser, schedule and validation score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets, difference, sums_over_sets, swaps, take_sets
from contradpp.learn.negatives import NegativeSource, NotInTraining, Refused
from contradpp.learn.objectives import Normalizer, Objective
from contradpp.learn.optimizers import Adam, Nesterov, Optimizer, RobbinsMonro
from contradpp.learn.params import Params
from contradpp.learn.recipes import Recipe, recipe_of
from contradpp.learn.schedule import Plateau, RelativeChange, Schedule
from contradpp.learn.state import State, popularity

Array = NDArray[np.float64]
DENSE_ITEMS = 4096  # up to this catalogue size a step over all rows costs no more than picking some
IMPOSSIBLE = -1e3  # what a set of probability zero counts for in the validation score
WALLS = 0.002  # share of baskets that fill the rank from which the diagonal is lowered in stages
STAGES, STEPS_A_STAGE = 12, 50
FEWEST_ROUNDS = 50  # with fewer there is no time for stages
PAIR_STEP = 0.02  # of log |s_ij|; docs/beyond.md says how it was chosen


class Validation(NamedTuple):
    """The sets whose score decides when training ends, with a weight each; below zero where less is better."""

    sets: Sets
    weights: Array
    offered: Sets | None = None  # what each was chosen from


@dataclass(frozen=True)
class TrainingData:
    """Positives with a label each, and negatives that the user supplied, with a weight each."""

    positives: Sets
    weights: Array
    negatives: Sets
    negative_weights: Array
    offered: Sets | None = field(default=None, kw_only=True)  # what each positive was chosen from

    @property
    def count(self) -> int:
        """How many positives there are."""
        return self.positives.count

    @property
    def liked(self) -> Sets:
        """The positives whose label is above zero."""
        return take_sets(self.positives, np.flatnonzero(self.weights > 0))

    def take(self, chosen: NDArray[np.int64]) -> tuple[Sets, Array]:
        """The positives at these positions, and their labels."""
        return take_sets(self.positives, chosen), self.weights[chosen]

    def offered_at(self, chosen: NDArray[np.int64]) -> Sets | None:
        """What the positives at these positions were chosen from, if that is known."""
        return None if self.offered is None else take_sets(self.offered, chosen)


@dataclass
class Plan:
    """Everything the loop needs besides the data and the state."""

    objective: Objective
    optimizer: Optimizer
    schedule: Schedule
    monitor: Callable[[State], float]
    source: NegativeSource | None
    negative_ratio: float
    batch_size: int
    max_iter: int
    seed: int
    dropout: float = 0.0
    refresh: int = 1  # steps for which drawn negatives are used
    check_every_step: bool = False
    unchecked_steps: int = 0  # at the start, in which no score ends the training
    keep_best: bool = True  # rather than the last
    penalty: Array = field(default_factory=lambda: np.empty(0))  # α/μ_i
    closed: Objective | None = None  # the same aim without chance, where there is one
    stages: tuple[float, ...] = ()  # what is added to the diagonal in the first rounds, one after the other
    shakes: bool = False  # whether small problems look for a better optimum before the end


def make_plan(
    params: Params, state: State, data: TrainingData, validation: Validation, counts: Array, n_baskets: float, seed: int
) -> Plan:
    """The plan for these parameters and data."""
    recipe, share = recipe_of(params.objective), popularity(counts, n_baskets)
    removal = share if params.removal == "popularity" else np.ones_like(share)
    source = None if recipe.source is None else recipe.source(params, share, removal, data.liked)
    if source is not None and params.false_negatives == "reject":
        source = NotInTraining(source, data.liked)
    if params.objective == "explicit" and data.offered is not None:
        source = Refused(cast("NegativeSource", source))
    # Of choices the odds of an item are about one, whatever its popularity: a prior of as many choices as alpha says.
    penalty = params.alpha / (np.full_like(counts, max(n_baskets, 1)) if recipe.by_choice else np.maximum(counts, 1))
    closed = None if recipe.closed is None or params.paper else recipe.closed(params, share, removal)
    if params.objective == "dynamic" and params.contrast != 1.0:
        closed = None  # only then is its mean the gradient of the conditional likelihood
    return Plan(
        objective=recipe.objective(params, share, removal),
        optimizer=make_optimizer(params, state, penalty, data),
        schedule=RelativeChange(params.tol) if params.paper else Plateau(params.tol),
        monitor=make_monitor(params, recipe, validation, removal),
        source=source, negative_ratio=params.negative_ratio, batch_size=params.batch_size, max_iter=params.max_iter,
        seed=seed, dropout=params.dropout if recipe.thins else 0.0, refresh=params.refresh,
        check_every_step=params.paper, unchecked_steps=params.unchecked_steps, penalty=penalty, closed=closed,
        stages=make_stages(params, data),
        shakes=params.anneal and params.max_iter >= FEWEST_ROUNDS,
    )  # fmt: skip


def make_stages(params: Params, data: TrainingData) -> tuple[float, ...]:
    """What is added to the diagonal round by round, where there are walls between the start and the optimum.

    det V_A may have to change its sign on the way, and log det forbids it, if V_A is square: where a share of the
    baskets has as many items as V has columns.
    """
    full = float(np.mean(data.positives.sizes >= params.n_components)) if data.count else 0.0
    if not params.anneal or full < WALLS or params.max_iter < FEWEST_ROUNDS:
        return ()
    rounds = -(-STEPS_A_STAGE // max(data.count // params.batch_size, 1))
    return tuple(np.repeat(np.geomspace(1.0, 1e-3, STAGES), rounds).tolist())


def make_optimizer(params: Params, state: State, penalty: Array, data: TrainingData) -> Optimizer:
    """The optimiser that the parameters ask for; `penalty` is α/μ_i."""
    rate = params.learning_rate
    given: dict[str, Any] = {} if rate is None else {"step_size": rate}
    if params.optimizer == "nesterov":
        batch = min(params.batch_size, max(data.positives.count, data.negatives.count, 1))
        return Nesterov(penalty, batch_scale=batch, fixed_steps=params.fixed_steps, **given)
    if params.optimizer == "robbins-monro":
        return RobbinsMonro(penalty, radius=params.radius, **given)
    steps: dict[str, float] = {} if rate is None else {"norm_step": rate / 20, "direction_step": rate}
    if not state.symmetric:
        rate = PAIR_STEP if rate is None else rate
        steps = {"pair_step": rate, "norm_step": rate / 10, "direction_step": 2 * rate}
    return Adam.for_state(state, penalty, dense=state.n_items <= DENSE_ITEMS, **steps)


def make_monitor(params: Params, recipe: Recipe, validation: Validation, removal: Array) -> Callable[[State], float]:
    """The validation score of a state."""
    by_likelihood = recipe.by_likelihood if params.monitor == "auto" else params.monitor == "likelihood"
    if recipe.by_choice:
        return choice_monitor(validation)
    if by_likelihood:
        return likelihood_monitor(validation)
    if params.objective == "explicit" and validation.offered is not None:
        return mixed_monitor(validation, validation.offered, np.ones_like(removal))
    return conditional_monitor(validation, removal if recipe.removes else np.ones_like(removal))


def likelihood_monitor(validation: Validation) -> Callable[[State], float]:
    """The weighted mean of log P(A) over the sets."""
    sets = validation.sets
    weight = validation.weights / np.abs(validation.weights).sum()

    def score(state: State) -> float:
        logs = state.log_det(sets)
        return float(weight @ (np.where(np.isfinite(logs), logs, IMPOSSIBLE) - Normalizer.of(state).log))

    return score


def conditional_monitor(validation: Validation, removal: Array) -> Callable[[State], float]:
    """The weighted mean over sets of the mean over their items, weighted by `removal`, of log P(i | A∖i)."""
    sets = validation.sets
    owner = np.repeat(np.arange(sets.count), sets.sizes)
    share = removal[sets.indices]
    total = np.abs(validation.weights[sets.sizes > 0]).sum()
    weight = validation.weights[owner] * share / sums_over_sets(share, sets)[owner] / max(total, 1e-300)

    def score(state: State) -> float:
        logs = state.conditional_log_likelihood(sets)
        return float(weight @ np.where(np.isfinite(logs), logs, IMPOSSIBLE))

    return score


def choice_monitor(validation: Validation) -> Callable[[State], float]:
    """The weighted mean of log P(A | offered)."""
    sets, weights, offered = validation
    weight = weights / np.abs(weights).sum()

    def score(state: State) -> float:
        logs = state.log_choice(sets, offered if offered is not None else sets)
        return float(weight @ np.where(np.isfinite(logs), logs, IMPOSSIBLE))

    return score


def mixed_monitor(validation: Validation, offered: Sets, removal: Array) -> Callable[[State], float]:
    """`swap_monitor` over the sets of which it is known what they were chosen from, `conditional_monitor` elsewhere."""
    sets, weights, _ = validation
    known, others = np.flatnonzero(offered.sizes > 0), np.flatnonzero(offered.sizes == 0)
    parts = [Validation(take_sets(sets, some), weights[some]) for some in (known, others)]
    share = np.abs(parts[0].weights).sum() / max(np.abs(weights).sum(), 1e-300)
    by_swaps = swap_monitor(parts[0], take_sets(offered, known), len(removal))
    by_rest = conditional_monitor(parts[1], removal)
    return lambda state: float(share * by_swaps(state) + (1 - share) * by_rest(state))


def swap_monitor(validation: Validation, offered: Sets, n_items: int) -> Callable[[State], float]:
    """The weighted mean of log P(i | A∖i and one of i and what was refused), over the taken items i of each set."""
    sets, weights, _ = validation
    others, entry = swaps(sets, difference(offered, sets, n_items))
    owner = np.repeat(np.arange(sets.count), sets.sizes)
    weight = np.where(np.bincount(entry, minlength=len(owner)) > 0, (weights / np.maximum(sets.sizes, 1))[owner], 0.0)
    weight /= max(np.abs(weight).sum(), 1e-300)

    def score(state: State) -> float:
        own = state.log_det(sets)[owner]
        with np.errstate(invalid="ignore"):
            ratios = np.exp(np.clip(state.log_det(others) - own[entry], -500.0, 500.0))
        logs = -np.log1p(np.bincount(entry, weights=ratios, minlength=len(owner)))
        return float(weight @ np.where(np.isfinite(own), logs, IMPOSSIBLE))

    return score
