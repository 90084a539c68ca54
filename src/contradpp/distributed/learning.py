"""Learning on a worker: the steps of one machine, over baskets and gradients of which it has only a share.

Every worker has all parameters and sees every batch. Negatives are drawn alike everywhere; each computes the gradient
of its share of the sets, and the shares are summed in order of rank, so that all make the same step. This is the only
file of the package that knows how kernels are learned; `ray.py` knows what comes after.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import root_seed
from contradpp.data.sets import EMPTY, Sets, drawn_entries, first_entries, take_sets
from contradpp.distributed.exchange import Exchange
from contradpp.distributed.shards import Shard
from contradpp.errors import CheckpointError, ClusterError, DataError, ParameterError
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import Keeper, damaged, fingerprint
from contradpp.learn.objectives import Batch, Gradient, Validation
from contradpp.learn.params import (
    MOST_LEARNED,
    Problem,
    TrainingData,
    note_excess,
    refuse_or_note_oversize,
    set_aside,
    usable_sizes,
)
from contradpp.learn.state import co_occurrences, regress_on_neighbours
from contradpp.learn.training import Sharing
from contradpp.learn.training import learn as solve
from contradpp.models.learned import LearnedDPP
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP

log = logging.getLogger("contradpp")
Array = NDArray[np.float64]
Positions = NDArray[np.int64]
Model = LearnedDPP
Held = float | Callable[[int], Positions] | None  # a share to hold out, or which of n baskets


def refuse_unsupported(model: Model) -> None:
    """Say which kernels cannot be learned from shards, and which arguments are wrong."""
    if type(model) not in (LowRankDPP, NonsymmetricDPP):
        raise ParameterError(f"engine='ray' learns LowRankDPP and NonsymmetricDPP, not {type(model).__name__}")
    params = model.training_params()
    if params.objective == "choice":
        raise ParameterError("engine='ray' does not learn from choices yet: objective='choice'")
    if params.objective == "explicit" or params.false_negatives == "reject":
        raise ParameterError(
            "engine='ray' cannot compare negatives with all training baskets: objective='explicit' and "
            "false_negatives='reject' need one machine"
        )
    if getattr(model, "warm_start", False):
        raise ParameterError("engine='ray' starts anew: warm_start must be False")


@dataclass(frozen=True)
class Keeping:
    """Where the checkpoint goes, and how often."""

    path: str
    every: int | str
    resume: bool


def learn(
    model: Model, shard: Shard, validation: Held, keeping: Keeping | None, callbacks: list[Callback]
) -> None:  # fmt: skip
    """Fit the model, the same on all workers but for the shard."""
    params, seed, exchange = model.training_params(), seed_of(model), shard.exchange
    if not len(shard.sizes):
        raise DataError("there is no basket in any of the files")
    if refuse_or_note_oversize(shard.sizes, params, quiet=exchange.rank > 0) and params.oversize == "clip":
        shard = shard.cut(params.n_components, first_entries)
    usable = np.flatnonzero(usable_sizes(shard.sizes, params))
    if note_excess(shard.sizes[usable], quiet=exchange.rank > 0):
        shard = without_excess(shard)
    if not len(usable):
        raise DataError("there is no basket to learn from")
    aside: Positions | None
    if callable(validation):
        held = np.isin(usable, validation(len(shard.sizes)))
        aside, training = np.flatnonzero(held), np.flatnonzero(~held if len(usable) > 1 else held)
    else:
        aside, training = set_aside(validation, np.arange(len(usable)), len(usable), params, seed)
        if aside is None:
            raise ParameterError(f"validation must be a share between 0 and 1 with engine='ray', got {validation!r}")
    held_out = shard.take(usable[aside if len(aside) else training])
    training = usable[training]
    own, n_items = shard.own_among(training), len(shard.items)
    problem = Problem(
        items=shard.items, data=ShardedData.of(shard, training, params.batch_size),
        validation=Validation(held_out, np.ones(held_out.count)),
        counts=exchange.sum(np.bincount(own.indices, minlength=n_items).astype(np.float64)),
        n_baskets=float(len(training)), seed=seed,
        together=counted_together(own, n_items, exchange) if params.n_skew else None,
        digests=(*shard.digests(), shard.sizes),
    )  # fmt: skip
    keeper = None if keeping is None else keeper_of(keeping, exchange)
    watchers = [SameEverywhere(exchange), *callbacks]
    sharing = Sharing(partial(own_share, exchange), partial(summed, exchange), alone=False)
    model.n_updates_ = 0
    solve(problem, params, model.take, callbacks=watchers, keeper=keeper, sharing=sharing)


def parameters_for_all(
    model: Model, checkpoint: str | os.PathLike[str] | None, resume: bool, every: int | str
) -> dict[str, Any]:
    """What workers build the model with, all with one seed; a checkpoint that cannot be used is an error."""
    keeper = Keeper.of(checkpoint, resume=resume, every=every)
    seed = root_seed(model.random_state) if keeper is None else keeper.seed(model.random_state)
    return model.get_params() | {"verbose": 0, "random_state": seed}


def adopt(model: Model, fitted: Model) -> None:
    """Make what another model has learned this one's own."""
    model.take(fitted.learned())
    model.n_updates_ = 0


def seed_of(model: Model) -> int:
    """The root of all random streams, which must be the same for all workers."""
    if model.random_state is None:
        raise ParameterError("a run on several workers needs random_state")
    return root_seed(model.random_state)


# -- The data ----------------------------------------------------------------------------------------


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


def without_excess(shard: Shard) -> Shard:
    """The baskets, of which none has more items than can be learned from at once."""
    return shard.cut(MOST_LEARNED, drawn_entries)


def counted_together(own: Sets, n_items: int, exchange: Exchange) -> Any:
    """How often any two items are in a basket together, over the baskets of all workers (sparse, M × M)."""
    from scipy.sparse import coo_array

    part = co_occurrences(own, np.ones(own.count), n_items).tocoo()
    told = exchange.gather((part.row, part.col, part.data))
    rows, columns, counts = (np.concatenate(parts) for parts in zip(*told, strict=True))
    return coo_array((counts, (rows, columns)), shape=(n_items, n_items)).tocsr()


def own_together(shard: Shard, numbers: Positions) -> Any:
    """How often any two items are together in the worker's own baskets among those of these numbers."""
    own = shard.own_among(numbers)
    return co_occurrences(own, np.ones(own.count), len(shard.items))


def some_regressions(system: Any, n_neighbours: int, items: range) -> Any:
    """The columns of these items of the ridge regression on neighbours."""
    indptr, columns, together, counts, diagonal = system
    return regress_on_neighbours(indptr, columns, together, counts, diagonal, n_neighbours, 1, items)


# -- The gradient ------------------------------------------------------------------------------------


def share_of(sets: Sets, exchange: Exchange) -> Positions:
    """The sets that are ours: a run of them with about as many entries as any other's."""
    marks = sets.indptr[-1] * np.arange(exchange.size + 1) // exchange.size
    ends = np.searchsorted(sets.indptr, marks, side="left")
    ends[0], ends[-1] = 0, sets.count
    return np.arange(ends[exchange.rank], ends[exchange.rank + 1])


def own_share(exchange: Exchange, batch: Batch) -> Batch:
    """The part of a batch whose gradient is ours to compute."""
    liked, others = share_of(batch.positives, exchange), share_of(batch.negatives.sets, exchange)
    sets, weights = take_sets(batch.negatives.sets, others), batch.negatives.weights[others]
    return Batch(
        take_sets(batch.positives, liked), batch.weights[liked], replace(batch.negatives, sets=sets, weights=weights)
    )


def summed(exchange: Exchange, own: Gradient) -> Gradient:
    """The gradient of the whole batch: those of all shares, summed in order of rank."""
    told = exchange.gather((own.rows, own.values, own.right, own.objective, own.total, own.pairs, own.log_d))
    all_rows, all_values, rights, objectives, totals, pairs, log_d = zip(*told, strict=True)
    rows, values = sum_rows(all_rows, all_values)
    total, size = float(sum(totals)), float(sum(map(abs, totals)))
    total = 0.0 if abs(total) <= 1e-12 * size else total
    return Gradient(
        rows, values, sum_of_some(rights), float(sum(objectives)), total, sum_of_some(pairs), sum_of_some(log_d)
    )


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

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def on_iteration(self, record: dict[str, Any], best: Array) -> None:
        """See `Callback`."""
        record["bytes_sent"] = self._exchange.sent
        if len(set(self._exchange.gather(fingerprint([best])))) > 1:
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
