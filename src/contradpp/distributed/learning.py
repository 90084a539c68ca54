"""Learning on a worker: the steps of one machine, over baskets and gradients of which it has only a share.

Every worker has all parameters and sees every batch. Negatives are drawn alike everywhere; each computes the gradient
of its share of the sets, and the shares are summed in order of rank, so that all make the same step. This is the only
file of the package that knows how learning works.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from contradpp._random import root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp.data.sets import EMPTY, Sets, take_sets
from contradpp.distributed.exchange import Exchange
from contradpp.distributed.shards import Shard
from contradpp.errors import CheckpointError, ClusterError, DataError, ParameterError, RankError
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import Keeper, damaged, fingerprint
from contradpp.learn.objectives import Batch, Divisible, Gradient
from contradpp.learn.partners import co_occurrences
from contradpp.learn.settings import Settings, Watched, one_of, whole
from contradpp.learn.start import start_factors
from contradpp.learn.state import State
from contradpp.learn.trainer import TrainingData
from contradpp.models import learning as keys
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP

log = logging.getLogger("contradpp")
Array = NDArray[np.float64]
Positions = NDArray[np.int64]
Model = LowRankDPP | NonsymmetricDPP


def refuse_unsupported(model: Model) -> None:
    """Say what cannot be learned from shards, and which arguments are wrong."""
    if not isinstance(model, NonsymmetricDPP):
        if type(model) is not LowRankDPP:
            raise ParameterError(f"engine='ray' learns LowRankDPP and NonsymmetricDPP, not {type(model).__name__}")
        if model.objective == "explicit" or model.false_negatives == "reject":
            raise ParameterError(
                "engine='ray' cannot compare negatives with all training baskets: objective='explicit' and "
                "false_negatives='reject' need one machine"
            )
        if model.warm_start:
            raise ParameterError("engine='ray' starts anew: warm_start must be False")
    one_of("oversize", model.oversize, ("error", "drop", "clip"))
    whole("n_components", model.n_components)
    model._settings()


@dataclass(frozen=True)
class Keeping:
    """Where the checkpoint goes, and how often."""

    path: str
    every: int | str
    resume: bool


def learn(
    model: Model, shard: Shard, validation: float | None, keeping: Keeping | None, callbacks: list[Callback]
) -> None:
    """Fit the model, the same on all workers but for the shard."""
    settings, seed, exchange = model._settings(), seed_of(model), shard.exchange
    shard, usable = usable_baskets(model, shard, settings)
    watched, training = set_aside(validation, shard, usable, settings, seed)
    own, n_items, n_baskets = shard.own_among(training), len(shard.items), float(len(training))
    counts = exchange.sum(np.bincount(own.indices, minlength=n_items).astype(np.float64))
    V = start_factors(model._init(), counts, n_baskets, model.n_components, stream(seed, keys._START))
    if isinstance(model, NonsymmetricDPP):
        together = counted_together(own, n_items, exchange)
        state: State = model._state_of(V, together, n_baskets, counts, n_baskets, seed)
    else:
        state = State(V, n_jobs=resolve_n_jobs(model.n_jobs))
    data = ShardedData.of(shard, training, settings.batch_size)
    plan = settings.build_plan(state, data, watched, counts, n_baskets, root_seed(stream(seed, keys._TRAIN)))
    if exchange.size > 1:
        plan = replace(plan, objective=SummedObjective(cast(Divisible, plan.objective), exchange))
    keeper = None if keeping is None else keeper_of(keeping, exchange)
    if keeper is not None:
        given = {name: getattr(model, name) for name in ("n_components", "init", "calibrate", "oversize")}
        identity = asdict(settings) | given | {"max_iter": None, "model": type(model).__name__, "mode": "replicated"}
        keeper.identify(seed, identity, (*shard.digests(), shard.sizes, *watched.sets, state.pairs))
    watchers = [SameEverywhere(state, exchange), *callbacks]
    model._run(state, data, plan, shard.items, counts, n_baskets, watchers, keeper)
    model._calibrate(watched, seed)
    model.n_updates_ = 0


def parameters_for_all(
    model: Model, checkpoint: str | os.PathLike[str] | None, resume: bool, every: int | str
) -> dict[str, Any]:
    """What workers build the model with, all with one seed; a checkpoint that cannot be used is an error."""
    keeper = Keeper.of(checkpoint, resume=resume, every=every)
    seed = root_seed(model.random_state) if keeper is None else keeper.seed(model.random_state)
    return model.get_params() | {"verbose": 0, "random_state": seed}


def adopt(model: Model, fitted: Model) -> None:
    """Make what another model has learned this one's own."""
    model._adopt_kernel(fitted._kernel, fitted.items_)
    for name in ("item_counts_", "n_baskets_", "n_updates_", "history_", "n_iter_"):
        setattr(model, name, getattr(fitted, name))


def seed_of(model: Model) -> int:
    """The root of all random streams, which must be the same for all workers."""
    if model.random_state is None:
        raise ParameterError("a run on several workers needs random_state")
    return root_seed(model.random_state)


# -- The data ----------------------------------------------------------------------------------------


def usable_baskets(model: Model, shard: Shard, settings: Settings) -> tuple[Shard, Positions]:
    """The shard, cut if `oversize` asks for it, and the numbers of the baskets that can be learned from."""
    K, sizes = model.n_components, shard.sizes
    if not len(sizes):
        raise DataError("there is no basket in any of the files")
    if n_large := int((sizes > K).sum()):
        if model.oversize == "error":
            raise RankError(
                f"{n_large:,} of {len(sizes):,} baskets have more than n_components={K} items "
                f"(the largest has {sizes.max()}): set n_components={sizes.max()}, or oversize='drop' or 'clip'"
            )
        if shard.exchange.rank == 0:
            log.warning("%s baskets have more than %s items: %s", n_large, K, model.oversize)
        if model.oversize == "clip":
            shard = shard.clipped(K)
    usable = (shard.sizes <= K) & ((shard.sizes > 0) | (not settings.needs_items))
    if not usable.any():
        raise DataError("there is no basket to learn from")
    return shard, np.flatnonzero(usable)


def set_aside(
    validation: float | None, shard: Shard, usable: Positions, settings: Settings, seed: int
) -> tuple[Watched, Positions]:
    """The validation sets, the same that one machine would choose, and the numbers of the others."""
    n, share = len(usable), validation
    if validation is None and n < keys.FEWEST_TO_SPLIT:
        return Watched(shard.take(usable), np.ones(n)), usable
    if share is None:
        share = min(0.01 if settings.paper else keys.VALIDATION_SHARE, keys.MOST_VALIDATION / n)
    if not 0 < share < 1:
        raise ParameterError(f"validation must be a share between 0 and 1 with engine='ray', got {validation!r}")
    count = min(max(round(share * n), 1), max(n - 1, 0))
    if not count:
        return Watched(shard.take(usable), np.ones(n)), usable
    aside = np.sort(stream(seed, keys._SPLIT).permutation(np.arange(n))[:count])
    return Watched(shard.take(usable[aside]), np.ones(count)), np.delete(usable, aside)


@dataclass(frozen=True)
class ShardedData(TrainingData):
    """Training data of which every worker has a part; `positives` is a stand-in for what only their number tells."""

    shard: Shard
    numbers: Positions  # of the training baskets

    @staticmethod
    def of(shard: Shard, numbers: Positions, batch_size: int) -> ShardedData:
        """The baskets of these numbers."""
        size = min(len(numbers), batch_size)
        stand_in = Sets(np.zeros(size + 1, dtype=np.int64), EMPTY.indices)
        return ShardedData(stand_in, np.ones(size), EMPTY, np.empty(0), shard, numbers)

    @property
    def count(self) -> int:
        """How many positives there are."""
        return len(self.numbers)

    def take(self, chosen: Positions) -> tuple[Sets, Array]:
        """See `TrainingData`; a gathering."""
        return self.shard.take(self.numbers[chosen]), np.ones(len(chosen))


def counted_together(own: Sets, n_items: int, exchange: Exchange) -> Any:
    """How often any two items are in a basket together, over the baskets of all workers (sparse, M × M)."""
    from scipy.sparse import coo_array

    part = co_occurrences(own, np.ones(own.count), n_items).tocoo()
    told = exchange.gather((part.row, part.col, part.data))
    rows, columns, counts = (np.concatenate(parts) for parts in zip(*told, strict=True))
    return coo_array((counts, (rows, columns)), shape=(n_items, n_items)).tocsr()


# -- The gradient ------------------------------------------------------------------------------------


def share_of(sets: Sets, exchange: Exchange) -> Positions:
    """The sets that are ours: a run of them with about as many entries as any other's."""
    marks = sets.indptr[-1] * np.arange(exchange.size + 1) // exchange.size
    ends = np.searchsorted(sets.indptr, marks, side="left")
    ends[0], ends[-1] = 0, sets.count
    return np.arange(ends[exchange.rank], ends[exchange.rank + 1])


@dataclass(frozen=True)
class SummedObjective:
    """Another objective, each worker over its share of the sets."""

    inner: Divisible
    exchange: Exchange

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """See `Objective`."""
        inner, batch = self.inner.for_parts(batch, state.V.shape[1])
        liked, others = share_of(batch.positives, self.exchange), share_of(batch.negatives.sets, self.exchange)
        negatives = replace(
            batch.negatives, sets=take_sets(batch.negatives.sets, others), weights=batch.negatives.weights[others]
        )
        own = inner.gradient(state, Batch(take_sets(batch.positives, liked), batch.weights[liked], negatives))
        told = self.exchange.gather((own.rows, own.values, own.right, own.objective, own.pairs))
        all_rows, all_values, rights, objectives, pairs = zip(*told, strict=True)
        rows, values = sum_rows(all_rows, all_values)
        right = sum_of_some(rights)
        if right is not None:
            _ = state.dual  # whoever needed it has asked: C must be kept in step with V by all, or by none
        return Gradient(rows, values, right, float(sum(objectives)), sum_of_some(pairs))


def sum_of_some(parts: tuple[Array | None, ...]) -> Array | None:
    """The sum of those that are there."""
    found = [part for part in parts if part is not None]
    total: Array | None = np.sum(found, axis=0) if found else None
    return total


def sum_rows(all_rows: tuple[NDArray[np.int32], ...], all_values: tuple[Array, ...]) -> tuple[NDArray[np.int32], Array]:
    """The rows of all shares, each once, and the sums of their values."""
    rows, places = np.unique(np.concatenate(all_rows), return_inverse=True)
    sums = np.zeros((len(rows), all_values[0].shape[1]))
    first = 0
    for values in all_values:
        sums[places[first : first + len(values)]] += values
        first += len(values)
    return rows, sums


class SameEverywhere(Callback):
    """After each round, makes sure that all workers have the same parameters: machines may differ in their rounding."""

    def __init__(self, state: State, exchange: Exchange) -> None:
        self._state, self._exchange = state, exchange

    def on_iteration(self, record: dict[str, Any], best: Array) -> None:  # noqa: ARG002
        """See `Callback`."""
        record["bytes_sent"] = self._exchange.sent
        if len(set(self._exchange.gather(fingerprint([self._state.V, self._state.pairs])))) > 1:
            raise ClusterError(
                "the workers' factors are no longer the same: their processors or libraries round differently. "
                "Use workers of one kind"
            )


class Progress(Callback):
    """Remembers how far training is, for whoever asks."""

    def __init__(self) -> None:
        self.n_sets, self.max_iter, self.seen = 0, 0, 0
        self.records: list[dict[str, Any]] = []

    def on_start(self, n_sets: int, max_iter: int, model_of: Callable[[Any], Any]) -> None:  # noqa: ARG002
        """See `Callback`."""
        self.n_sets, self.max_iter = n_sets, max_iter

    def on_step(self, step: int, n_sets: int) -> None:  # noqa: ARG002
        """See `Callback`."""
        self.seen += n_sets

    on_resume = on_step

    def on_iteration(self, record: dict[str, Any], best: Any) -> None:  # noqa: ARG002
        """See `Callback`."""
        self.records.append(record)


# -- The checkpoint ----------------------------------------------------------------------------------


class Reader(Keeper):
    """Goes on from a checkpoint, but leaves the writing to another."""

    def _write(self, parts: Any) -> None:
        """Nothing: see `Keeper`."""


def keeper_of(keeping: Keeping, exchange: Exchange) -> Keeper:
    """The first worker keeps the checkpoint and tells the others what is in it."""
    path, content = Path(keeping.path), b""
    try:
        if exchange.rank == 0 and keeping.resume and path.exists():
            content = path.read_bytes()
    except OSError as error:
        raise damaged(path, str(error)) from error
    content = exchange.gather(content)[0]
    if exchange.rank == 0:
        return Keeper(path, resume=keeping.resume, every=keeping.every)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        try:
            if content:
                copy.write_bytes(content)
        except OSError as error:
            raise CheckpointError(f"worker {exchange.rank} has no room for a copy of {path}: {error}") from error
        return Reader(copy, resume=bool(content), every=keeping.every)
