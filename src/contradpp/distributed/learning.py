"""`fit` on a worker: the same steps as on one machine, over baskets of which it has only a part.

Three ways to share the work: "replicated" (everyone has all of V and computes some blocks of every batch), "sharded"
(everyone has some rows of V), and "local" (everyone makes steps of its own, and all meet now and then).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from contradpp._random import root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp.data.sets import EMPTY, Sets
from contradpp.distributed.collective import Collective, gather
from contradpp.distributed.drawing import OwnedDynamic
from contradpp.distributed.local import LocalKeeper, LocalState, Meetings
from contradpp.distributed.owners import Owners
from contradpp.distributed.parts import PartKeeper
from contradpp.distributed.sharded import Dealt, OwnedObjective, OwnedState, log_dets, owned_monitor
from contradpp.distributed.shards import Shard, ShardedData
from contradpp.distributed.shared import SharedState
from contradpp.distributed.summed import SummedObjective, counted_together
from contradpp.errors import ClusterError, DataError, ParameterError, RankError
from contradpp.learn.calibrate import discrimination_scale, likelihood_scale, uniform_sets
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import Keeper, fingerprint
from contradpp.learn.negatives import Dynamic, NegativeSource
from contradpp.learn.objectives import Divisible
from contradpp.learn.optimizers import RowAdam
from contradpp.learn.settings import DENSE_ITEMS, Settings, Watched, one_of, whole
from contradpp.learn.skew import SkewState
from contradpp.learn.start import popularity, start_factors
from contradpp.learn.state import State
from contradpp.learn.trainer import Outcome, Plan, TrainingData, train
from contradpp.models import learning
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP

Array = NDArray[np.float64]
Positions = NDArray[np.int64]
Model = LowRankDPP | NonsymmetricDPP
MODES = ("replicated", "sharded", "local")
_DEAL = 6  # key of a random stream, after those of the estimators


def refuse_unsupported(model: Model, mode: str) -> None:
    """Say what cannot be learned from shards."""
    if isinstance(model, NonsymmetricDPP):
        if mode != "replicated":
            raise ParameterError(f"NonsymmetricDPP learns with mode='replicated' only, not mode={mode!r}")
        return
    if type(model) is not LowRankDPP:
        raise ParameterError(f"engine='ray' learns LowRankDPP and NonsymmetricDPP, not {type(model).__name__}")
    if model.objective == "explicit" or model.false_negatives == "reject":
        raise ParameterError(
            "engine='ray' cannot compare negatives with all training baskets: objective='explicit' and "
            "false_negatives='reject' need one machine"
        )
    if model.warm_start:
        raise ParameterError("engine='ray' starts anew: warm_start must be False")
    if mode == "local" and (model.optimizer != "adam" or model.settings == "paper"):
        raise ParameterError("mode='local' needs optimizer='adam' and no settings='paper'")
    if mode == "sharded" and model.refresh != 1:
        raise ParameterError("mode='sharded' draws negatives at every step: refresh must be 1")


@dataclass(frozen=True)
class Problem:
    """What is to be learned, the same on all workers but for the shard."""

    model: Model
    settings: Settings
    seed: int
    shard: Shard
    watched: Watched
    training: Positions  # the numbers of the training baskets
    counts: Array
    n_baskets: float
    progress: Callback = field(default_factory=Callback)  # told of every step

    @staticmethod
    def of(model: Model, shard: Shard, validation: float | None, progress: Callback | None = None) -> Problem:
        """The problem that a model's settings and the files pose."""
        settings = model._settings()
        if model.random_state is None:
            raise ParameterError("a run on several workers needs random_state")
        seed = root_seed(model.random_state)
        shard, usable = usable_baskets(model, shard, settings)
        watched, training = set_aside(validation, shard, usable, settings, seed)
        used = np.zeros(len(shard.sizes), dtype=bool)
        used[training] = True
        counts, n_baskets = shard.item_counts(used), float(len(training))
        if not watched.sets.count:
            everything = TrainingData(shard.take(training), np.ones(len(training)), EMPTY, np.empty(0))
            watched = learning.what_to_watch(everything)
        told = progress or Callback()
        return Problem(model, settings, seed, shard, watched, training, counts, n_baskets, told)

    @property
    def collective(self) -> Collective:
        """The workers."""
        return self.shard.collective

    def start(self, rows: Positions | None = None) -> Array:
        """The first factors, or some rows of them."""
        model, rng = self.model, stream(self.seed, learning._START)
        return start_factors(model._init(), self.counts, self.n_baskets, model.n_components, rng, rows)

    def data(self, *, own_only: bool) -> ShardedData:
        """The training baskets."""
        size = min(len(self.training), self.settings.batch_size)
        stand_in = Sets(np.zeros(size + 1, dtype=np.int64), EMPTY.indices)
        nothing = np.empty(0)
        return ShardedData(stand_in, np.ones(size), EMPTY, nothing, self.shard, self.training, own_only)

    def identify(self, keeper: Keeper | None, mode: str, *arrays: NDArray[Any]) -> None:
        """Tell the keeper, if there is one, what is trained on what."""
        if keeper is None:
            return
        given = {name: getattr(self.model, name) for name in ("n_components", "init", "calibrate", "oversize")}
        settings = asdict(self.settings) | given | {"max_iter": None, "mode": mode, "model": type(self.model).__name__}
        keeper.identify(self.seed, settings, (self.shard.digests(), self.shard.sizes, *self.watched.sets, *arrays))


@dataclass(frozen=True)
class Found:
    """What training found: factors, or those of the rows `rows`."""

    factors: NDArray[np.floating]
    rows: Positions | None
    history: list[dict[str, Any]]
    n_iter: int
    skew: Any = None  # S, where there is one


def learn_replicated(problem: Problem, keeper: Keeper | None) -> Found:
    """Everyone has all of V. Without pairs of items, the result is that of one machine to the last bit."""
    model, shard = problem.model, problem.shard
    state = first_state(problem)
    data, seed = problem.data(own_only=False), root_seed(stream(problem.seed, learning._TRAIN))
    plan = problem.settings.build_plan(state, data, problem.watched, problem.counts, problem.n_baskets, seed)
    if isinstance(state, SkewState):
        plan = replace(plan, objective=SummedObjective(cast(Divisible, plan.objective), shard.collective))
    problem.identify(keeper, "replicated", state.pairs)
    watchers = [SameEverywhere(state.V, shard.collective), problem.progress]
    model._run(state, data, plan, shard.items, problem.counts, problem.n_baskets, watchers, keeper)
    model._calibrate(problem.watched, problem.seed)
    skew = model.skew_ if isinstance(model, NonsymmetricDPP) else None
    return Found(model.item_factors_, None, model.history_, model.n_iter_, skew)


def first_state(problem: Problem) -> State:
    """All of V, and the pairs of a kernel that has such."""
    model, collective = problem.model, problem.collective
    if not isinstance(model, NonsymmetricDPP):
        return SharedState(problem.start(), n_jobs=resolve_n_jobs(model.n_jobs), collective=collective)
    used = np.zeros(len(problem.shard.sizes), dtype=bool)
    used[problem.training] = True
    together = counted_together(problem.shard.own_used(used), len(problem.counts), collective)
    n = problem.n_baskets
    return model._state_of(problem.start(), together, n, problem.counts, n, problem.seed)


def learn_sharded(problem: Problem, keeper: PartKeeper | None) -> Found:
    """Everyone has some rows of V."""
    model, settings, watched = problem.model, problem.settings, problem.watched
    owners = Owners(len(problem.counts), problem.collective)
    if keeper is not None:
        keeper.owners = owners
    state = OwnedState(problem.start(owners.own), owners, n_jobs=resolve_n_jobs(model.n_jobs))
    data, seed = problem.data(own_only=True), root_seed(stream(problem.seed, learning._TRAIN))
    share = popularity(problem.counts, problem.n_baskets)
    penalty = settings.alpha / np.maximum(problem.counts[owners.own], 1)
    optimizer = settings.optimizer_of(
        penalty, model.n_components, data.positives.count, dense=len(problem.counts) <= DENSE_ITEMS
    )
    plan = settings.build_plan(state, data, watched, problem.counts, problem.n_baskets, seed, optimizer)
    plan = replace(
        plan,
        objective=OwnedObjective(cast(Divisible, plan.objective), owners),
        monitor=owned_monitor(settings, watched, share, owners, state),
        source=_owned_source(plan, owners),
    )
    problem.identify(keeper, "sharded")
    outcome = Outcome.start(state)
    problem.progress.on_start(data.count, plan.max_iter, lambda _: model)
    train(state, data, plan, (problem.progress,), outcome, keeper)
    outcome.give_back(state)
    return Found(state.V * _scale(problem, owners, state), owners.own, outcome.history, outcome.n_iter)


def _owned_source(plan: Plan, owners: Owners) -> NegativeSource | None:
    if isinstance(plan.source, Dynamic):
        return OwnedDynamic(plan.source.popularity, owners)
    return None if plan.source is None else Dealt(plan.source, owners)


def _scale(problem: Problem, owners: Owners, state: OwnedState) -> float:
    """The factor that `calibrate` asks for; see `LearningMixin._calibrate`."""
    (sets, weights), calibrate = problem.watched, problem.model.calibrate
    if calibrate is None or not (weights > 0).any():
        return 1.0
    if calibrate == "likelihood":
        eigenvalues = np.linalg.eigvalsh(state.dual).astype(np.float64)
        return likelihood_scale(eigenvalues, float(np.average(sets.sizes, weights=weights)))
    drawn = uniform_sets(sets.sizes, len(problem.counts), stream(problem.seed, learning._UNIFORM))
    sizes = sets.sizes.astype(np.float64)
    real, others = (log_dets(owners, state, some) for some in (sets, Sets(sets.indptr, drawn)))
    return discrimination_scale(real, sizes, others, sizes)


def learn_local(problem: Problem, keeper: Keeper | None, every: int) -> Found:
    """Everyone makes steps of its own over an equal part of the baskets, chosen at random."""
    model, shard, collective = problem.model, problem.shard, problem.collective
    order = stream(problem.seed, _DEAL).permutation(problem.training)
    short = -len(order) % collective.size  # so that all make as many steps
    own = shard.deal(np.concatenate([order, order[:short]]))
    data = TrainingData(own, np.ones(own.count), EMPTY, np.empty(0))
    state = LocalState(problem.start(), n_jobs=resolve_n_jobs(model.n_jobs))
    seed = root_seed(stream(problem.seed, learning._TRAIN, collective.rank))
    plan = problem.settings.build_plan(state, data, problem.watched, problem.counts, problem.n_baskets, seed)
    problem.identify(keeper, f"local, {every} steps")
    steps = max(-(-own.count // plan.batch_size), 1)
    meetings = Meetings(state, cast(RowAdam, plan.optimizer), collective, every=every, steps_a_round=steps)
    watchers: list[Callback] = [meetings, SameEverywhere(state.V, collective), problem.progress]
    if isinstance(keeper, LocalKeeper):
        watchers.append(keeper.at_round_ends())
    model._run(state, data, plan, shard.items, problem.counts, problem.n_baskets, watchers, keeper)
    model._calibrate(problem.watched, problem.seed)
    return Found(model.item_factors_, None, model.history_, model.n_iter_)


class SameEverywhere(Callback):
    """After each round, makes sure that all workers have the same factors: machines may differ in their rounding."""

    def __init__(self, V: Array, collective: Collective) -> None:
        self._V, self._collective = V, collective

    def on_iteration(self, record: dict[str, Any], best: Array) -> None:  # noqa: ARG002
        """See `Callback`."""
        digests = set(map(bytes, gather(self._collective, fingerprint([self._V]).encode())))
        if len(digests) > 1:
            raise ClusterError(
                "the workers' factors are no longer the same: their processors or libraries round differently. "
                "Use workers of one kind"
            )


def usable_baskets(model: Model, shard: Shard, settings: Settings) -> tuple[Shard, NDArray[np.int64]]:
    """The shard, cut if `oversize` asks for it, and the numbers of the baskets that can be learned from."""
    K, sizes = model.n_components, shard.sizes
    one_of("oversize", model.oversize, ("error", "drop", "clip"))
    whole("n_components", K)
    if not len(sizes):
        raise DataError("there is no basket in any of the files")
    too_large = sizes > K
    if too_large.any() and model.oversize == "error":
        raise RankError(
            f"{int(too_large.sum()):,} of {len(sizes):,} baskets have more than n_components={K} items "
            f"(the largest has {int(sizes.max())}): set n_components={int(sizes.max())}, or oversize='drop' or 'clip'"
        )
    if too_large.any() and model.oversize == "clip":
        shard, sizes = shard.clipped(K), np.minimum(sizes, K)
    usable = sizes <= K
    if settings.needs_items:
        usable &= sizes > 0
    if not usable.any():
        raise DataError("there is no basket to learn from")
    return shard, np.flatnonzero(usable)


def set_aside(
    validation: float | None, shard: Shard, usable: NDArray[np.int64], settings: Settings, seed: int
) -> tuple[Watched, NDArray[np.int64]]:
    """The validation sets, the same that one machine would choose, and the numbers of the others."""
    n = len(usable)
    if validation is None and n < learning.FEWEST_TO_SPLIT:
        return Watched(EMPTY, np.empty(0)), usable
    share = validation
    if share is None:
        share = min(0.01 if settings.paper else learning.VALIDATION_SHARE, learning.MOST_VALIDATION / n)
    if not 0 < share < 1:
        raise ParameterError(f"validation must be a share between 0 and 1 with engine='ray', got {validation!r}")
    count = min(max(round(share * n), 1), max(n - 1, 0))
    aside = np.sort(stream(seed, learning._SPLIT).permutation(np.arange(n))[:count])
    return Watched(shard.take(usable[aside]), np.ones(count)), np.delete(usable, aside)
