"""A worker of a run: the training of one machine, over baskets and gradients of which it has only a share.

Every worker has all parameters and sees every batch. All draw the same negatives. Each computes the gradient of its
share of the sets. The shares are summed in order of rank, so that all workers make the same step. Ray makes an actor of
a `Worker`; tests run several in threads.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from contradpp._random import root_seed
from contradpp.data.sets import EMPTY, Sets, drawn_entries, first_entries, pointers, take_sets
from contradpp.distributed.shards import Columns, Exchange, FileOf, Positions, Read, Shard, read_file, refuse_divided
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
Model = LearnedDPP
HeldOut = float | Callable[[int], Positions] | None  # a share to hold out, or which of n baskets
T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """The settings of a run, the same for all workers."""

    kind: type[Model]
    parameters: dict[str, Any]
    paths: tuple[str, ...]  # of all files
    validation: HeldOut
    checkpoint: str | None
    every: int | str
    resume: bool


class Progress(Callback):
    """The progress of a worker: positives a round and seen so far, rounds at most and done, and its warnings."""

    def __init__(self) -> None:
        self.n_sets, self.max_iter, self.seen = 0, 0, 0
        self.records: list[dict[str, Any]] = []
        self.warnings: list[str] = []

    def on_start(self, n_sets: int, max_iter: int, model_of: Callable[[Any], Any]) -> None:  # noqa: ARG002
        self.n_sets, self.max_iter = n_sets, max_iter

    def on_step(self, step: int, n_sets: int) -> None:  # noqa: ARG002
        self.seen += n_sets

    on_resume = on_step

    def on_iteration(self, record: dict[str, Any], best: Any) -> None:  # noqa: ARG002
        self.records.append(record)


class Warnings(logging.Handler):
    """A collector of the warnings of one thread: a worker's own log is far from the process that called `fit`."""

    def __init__(self, collected: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._collected = collected
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._collected.append(record.getMessage())


class Worker:
    """One of the workers of a run, with some of the files."""

    def __init__(self) -> None:
        self._read: dict[int, Read] = {}
        self._progress = Progress()
        self._baskets: tuple[Positions, Sets] = (np.empty(0, np.int64), EMPTY)

    def load(self, files: Sequence[FileOf], columns: Columns) -> None:
        """Read these files."""
        self._read = {file.number: read_file(file.path, columns) for file in files}

    def progress(self) -> Progress:
        """Return the progress of training so far."""
        return self._progress

    def train(self, exchange: Exchange, task: Task) -> Model | None:
        """Learn together with the others. The first worker returns the model."""
        model = task.kind(**task.parameters)
        self._progress = Progress()
        handler = Warnings(self._progress.warnings)
        log.addHandler(handler)
        try:
            refuse_divided(self._read, task.paths, exchange)
            shard = Shard.build({number: read.baskets for number, read in self._read.items()}, exchange)
            learn(model, shard, task, [self._progress])
            shard = shard.cut(MOST_LEARNED, drawn_entries)
            self._baskets = shard.numbers, shard.own
        except BaseException as error:
            exchange.leave(f"failed: {error}")
            raise
        finally:
            log.removeHandler(handler)
        return model if exchange.rank == 0 else None

    def baskets(self) -> tuple[Positions, Sets]:
        """Return the numbers of the worker's baskets and the baskets, after training."""
        return self._baskets

    def execute(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a function."""
        return function(*arguments)


def refuse_unsupported(model: Model) -> None:
    """Refuse kernels that cannot be learned from shards, and wrong arguments."""
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


def parameters_for_all(
    model: Model, checkpoint: str | os.PathLike[str] | None, resume: bool, every: int | str
) -> dict[str, Any]:
    """Return the parameters of the workers' models, all with one seed. Refuse a checkpoint that cannot be used."""
    keeper = Keeper.of(checkpoint, resume=resume, every=every)
    seed = root_seed(model.random_state) if keeper is None else keeper.seed(model.random_state)
    return model.get_params() | {"verbose": 0, "random_state": seed}


def learn(model: Model, shard: Shard, task: Task, callbacks: list[Callback]) -> None:
    """Fit the model, with the same result on all workers."""
    if model.random_state is None:
        raise ParameterError("a run on several workers needs random_state")
    params, exchange, seed = model.training_params(), shard.exchange, root_seed(model.random_state)
    if not len(shard.sizes):
        raise DataError("there is no basket in any of the files")
    if refuse_or_note_oversize(shard.sizes, params, quiet=exchange.rank > 0) and params.oversize == "clip":
        shard = shard.cut(params.n_components, first_entries)
    usable = np.flatnonzero(usable_sizes(shard.sizes, params))
    if note_excess(shard.sizes[usable], quiet=exchange.rank > 0):
        shard = shard.cut(MOST_LEARNED, drawn_entries)
    if not len(usable):
        raise DataError("there is no basket to learn from")
    aside: Positions | None
    if callable(task.validation):
        held = np.isin(usable, task.validation(len(shard.sizes)))
        aside, training = np.flatnonzero(held), np.flatnonzero(~held if len(usable) > 1 else held)
    else:
        aside, training = set_aside(task.validation, np.arange(len(usable)), len(usable), params, seed)
        if aside is None:
            raise ParameterError(
                f"validation must be a share between 0 and 1 with engine='ray', got {task.validation!r}"
            )
    held_out = shard.take(usable[aside if len(aside) else training])
    training = usable[training]
    own, n_items = shard.own_among(training), len(shard.items)
    problem = Problem(
        items=shard.items,
        data=ShardedData.of(shard, training, params.batch_size),
        validation=Validation(held_out, np.ones(held_out.count)),
        counts=exchange.sum(np.bincount(own.indices, minlength=n_items).astype(np.float64)),
        n_baskets=float(len(training)),
        seed=seed,
        together=counted_together(own, n_items, exchange) if params.n_skew else None,
        digests=(*shard.digests(), shard.sizes),
    )
    keeper = keeper_of(task, exchange)
    watchers = [SameEverywhere(exchange), *callbacks]
    sharing = Sharing(partial(own_share, exchange), partial(summed, exchange), alone=False)
    model.n_updates_ = 0
    solve(problem, params, model.take, callbacks=watchers, keeper=keeper, sharing=sharing)


# -- The data ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardedData(TrainingData):
    """Training data of which every worker has a part. `positives` is a stand-in: only their number is used."""

    shard: Shard
    numbers: Positions  # of the training baskets

    @staticmethod
    def of(shard: Shard, numbers: Positions, batch_size: int) -> ShardedData:
        """Make training data of the baskets of these numbers."""
        size = min(len(numbers), batch_size)
        stand_in = Sets(np.zeros(size + 1, dtype=np.int64), EMPTY.indices)
        return ShardedData(stand_in, np.ones(size), EMPTY, np.empty(0), shard, numbers)

    @property
    def count(self) -> int:
        """The number of positives."""
        return len(self.numbers)

    def take(self, chosen: Positions) -> tuple[Sets, Array]:
        return self.shard.take(self.numbers[chosen]), np.ones(len(chosen))


def counted_together(own: Sets, n_items: int, exchange: Exchange) -> Any:
    """Count how often any two items are in a basket together, over all workers (sparse, M × M)."""
    from scipy.sparse import coo_array

    part = count_pairs(own, n_items).tocoo()
    gathered = exchange.gather((part.row, part.col, part.data))
    rows, columns, counts = (np.concatenate(parts) for parts in zip(*gathered, strict=True))
    return coo_array((counts, (rows, columns)), shape=(n_items, n_items)).tocsr()


def count_pairs(sets: Sets, n_items: int) -> Any:
    """Count how often any two items are in a set together (sparse, M × M)."""
    return co_occurrences(sets, np.ones(sets.count), n_items)


def regress_items(items: range, n_neighbours: int, system: Any) -> Any:
    """Return the columns of these items of the ridge regression on neighbours."""
    indptr, columns, together, counts, diagonal = system
    return regress_on_neighbours(indptr, columns, together, counts, diagonal, n_neighbours, 1, items)


# -- The gradient ------------------------------------------------------------------------------------


def share_of(sets: Sets, exchange: Exchange) -> Positions:
    """Return the positions of this worker's sets: a run with about as many entries as any other's."""
    inner = sets.indptr[-1] * np.arange(1, exchange.size) // exchange.size
    return np.split(np.arange(sets.count), np.searchsorted(sets.indptr, inner))[exchange.rank]


def own_share(exchange: Exchange, batch: Batch) -> Batch:
    """Return the part of a batch whose gradient this worker computes."""
    liked, others = share_of(batch.positives, exchange), share_of(batch.negatives.sets, exchange)
    sets, weights = take_sets(batch.negatives.sets, others), batch.negatives.weights[others]
    negatives = replace(batch.negatives, sets=sets, weights=weights)
    return Batch(take_sets(batch.positives, liked), batch.weights[liked], negatives)


def summed(exchange: Exchange, own: Gradient) -> Gradient:
    """Sum the gradients of all shares of a batch, in order of rank."""
    gathered = exchange.gather((own.rows, own.values, own.right, own.objective, own.total, own.pairs, own.log_d))
    all_rows, all_values, rights, objectives, totals, pairs, log_d = zip(*gathered, strict=True)
    rows, places = np.unique(np.concatenate(all_rows), return_inverse=True)
    values = np.zeros((len(rows), own.values.shape[1]))
    for part, at in zip(all_values, np.split(places, pointers(list(map(len, all_rows)))[1:-1]), strict=True):
        values[at] += part
    total = float(sum(totals))
    total = 0.0 if abs(total) <= 1e-12 * sum(map(abs, totals)) else total
    rest = (float(sum(objectives)), total, sum_of_some(pairs), sum_of_some(log_d))
    return Gradient(rows, values, sum_of_some(rights), *rest)


def sum_of_some(parts: tuple[Array | None, ...]) -> Array | None:
    """Sum the arrays that are not None."""
    found = [part for part in parts if part is not None]
    total: Array | None = np.sum(found, axis=0) if found else None
    return total


class SameEverywhere(Callback):
    """A check after each round that all workers have the same parameters: machines may differ in their rounding."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def on_iteration(self, record: dict[str, Any], best: Array) -> None:
        record["bytes_sent"] = self._exchange.sent
        if len(set(self._exchange.gather(fingerprint([best])))) > 1:
            raise ClusterError(
                "the workers' factors are no longer the same: their processors or libraries round differently. "
                "Use workers of one kind"
            )


# -- The checkpoint ----------------------------------------------------------------------------------


class Reader(Keeper):
    """A keeper that goes on from a checkpoint, and leaves the writing to the first worker."""

    def _write(self) -> None:
        pass


def keeper_of(task: Task, exchange: Exchange) -> Keeper | None:
    """Return the keeper of the checkpoint. The first worker reads and writes it; the others get its content."""
    if task.checkpoint is None:
        return None
    path, content = Path(task.checkpoint), b""
    try:
        if exchange.rank == 0 and task.resume and path.exists():
            content = path.read_bytes()
    except OSError as error:
        raise damaged(path, str(error)) from error
    content = exchange.gather(content)[0]
    if exchange.rank == 0:
        return Keeper(path, resume=task.resume, every=task.every)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        try:
            if content:
                copy.write_bytes(content)
        except OSError as error:
            raise CheckpointError(f"worker {exchange.rank} has no room for a copy of {path}: {error}") from error
        return Reader(copy, resume=bool(content), every=task.every)
