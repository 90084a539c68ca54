"""A worker of a run, which computes a share of every gradient.

Workers read some of the files each and exchange them, so that all have the same baskets. They draw
the same batches and negatives, and each computes the gradient of its share of the sets. The shares
are summed in order of rank, so that all workers make the same step. Ray makes an actor of a
`Worker`; tests run several in threads.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from contradpp._random import root_seed
from contradpp._types import Array, Ints, Values
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, pointers, take_sets
from contradpp.distributed.shards import (
    Columns,
    Exchange,
    FileBaskets,
    FileOf,
    gather_baskets,
    read_file,
)
from contradpp.errors import ClusterError, ParameterError
from contradpp.learn.callbacks import Callback, ModelOf
from contradpp.learn.checkpoints import Checkpointer, Checkpointing, fingerprint
from contradpp.learn.objectives import Batch, Gradient
from contradpp.learn.params import FitData, Params, problem_of, without_excess
from contradpp.learn.training import Sharing, TrainingResult
from contradpp.learn.training import learn as solve
from contradpp.models.conditional import other_rows
from contradpp.models.learned import LearnedDPP
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP

log = logging.getLogger("contradpp")
Model = LearnedDPP
HeldOut = float | Callable[[int], Ints] | None  # a share to hold out, or which of n baskets


@dataclass(frozen=True)
class Task:
    """The settings of a run, the same for all workers."""

    kind: type[Model]
    parameters: Values
    paths: tuple[str, ...]  # of all files
    validation: HeldOut
    checkpoint: Checkpointing | None


class Progress(Callback):
    """The progress of a worker: positives a round and so far, rounds, and warnings."""

    def __init__(self) -> None:
        self.n_sets = 0
        self.max_iter = 0
        self.seen = 0
        self.records: list[Values] = []
        self.warnings: list[str] = []

    def on_start(
        self,
        n_sets: int,
        max_iter: int,
        model_of: ModelOf,  # noqa: ARG002
    ) -> None:
        self.n_sets = n_sets
        self.max_iter = max_iter

    def on_step(self, step: int, n_sets: int) -> None:  # noqa: ARG002
        self.seen += n_sets

    on_resume = on_step

    def on_iteration(self, record: Values, best: Array) -> None:  # noqa: ARG002
        self.records.append(record)


class Warnings(logging.Handler):
    """A collector of the warnings of one thread, for the process that called `fit`."""

    def __init__(self, collected: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._collected = collected
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._collected.append(record.getMessage())


class Worker:
    """One of the workers of a run, which reads some of the files."""

    def __init__(self) -> None:
        self._read: dict[int, FileBaskets] = {}
        self._baskets = Baskets.from_lists([])
        self._progress = Progress()

    def load(self, files: Sequence[FileOf], columns: Columns) -> None:
        """Read these files."""
        self._read = {file.number: read_file(file.path, columns) for file in files}

    def progress(self) -> Progress:
        """Return the progress of training so far."""
        return self._progress

    def train(self, exchange: Exchange, task: Task) -> TrainingResult | None:
        """Learn together with the others. The first worker returns the result."""
        self._progress = Progress()
        handler = Warnings(self._progress.warnings)
        log.addHandler(handler)
        try:
            self._baskets = gather_baskets(self._read, task.paths, exchange)
            self._read = {}
            result = learn(self._baskets, task, exchange, [self._progress])
        except BaseException as error:
            exchange.leave(f"failed: {error}")
            raise
        finally:
            log.removeHandler(handler)
        return result if exchange.rank == 0 else None

    def baskets(self) -> Baskets:
        """Return the baskets of all files, after training."""
        return self._baskets

    def pid(self) -> int:
        """Return the number of the worker's process."""
        return os.getpid()


def refuse_unsupported(model: Model) -> None:
    """Refuse kernels that cannot be learned from shards, and wrong arguments."""
    if type(model) not in (LowRankDPP, NonsymmetricDPP):
        raise ParameterError(
            f"engine='ray' learns LowRankDPP and NonsymmetricDPP, not {type(model).__name__}"
        )
    params = Params.of(model)
    if params.spec.offered == "required":
        raise ParameterError("engine='ray' does not learn from choices yet: objective='choice'")
    if getattr(model, "warm_start", False):
        raise ParameterError("engine='ray' starts anew: warm_start must be False")


def parameters_for_all(model: Model, checkpoint: Checkpointing | None) -> Values:
    """Return the parameters of all workers, with one seed; check the checkpoint."""
    seed = root_seed(model.random_state)
    if checkpoint is not None:
        seed = Checkpointer(checkpoint).seed(model.random_state)
    return model.get_params(deep=False) | {"verbose": 0, "random_state": seed}


def learn(
    baskets: Baskets, task: Task, exchange: Exchange, callbacks: list[Callback]
) -> TrainingResult:
    """Learn as one machine does, except that each worker computes a share of every gradient."""
    if task.parameters["random_state"] is None:
        raise ParameterError("a run on several workers needs random_state")
    params = Params.of(task.kind(**task.parameters))
    given = FitData(baskets, validation=task.validation)
    if callable(task.validation):
        baskets = without_excess(baskets)
        held_out = task.validation(baskets.n_baskets)
        training = other_rows(held_out, baskets.n_baskets)
        given = FitData(baskets.subset(training), validation=baskets.subset(held_out))
    return solve(
        problem_of(given, params, root_seed(task.parameters["random_state"])),
        params,
        callbacks=[SameEverywhere(exchange), *callbacks],
        checkpointer=checkpointer_of(task, exchange),
        sharing=Sharing(partial(own_share, exchange), partial(summed, exchange), alone=False),
    )


# -- The gradient ----------------------------------------------------------------------------------


def share_of(sets: Sets, exchange: Exchange) -> Ints:
    """Return the positions of this worker's sets: a range with its share of all entries."""
    inner = sets.indptr[-1] * np.arange(1, exchange.size) // exchange.size
    return np.split(np.arange(sets.count), np.searchsorted(sets.indptr, inner))[exchange.rank]


def own_share(exchange: Exchange, batch: Batch) -> Batch:
    """Return the part of a batch whose gradient this worker computes."""
    liked = share_of(batch.positives, exchange)
    others = share_of(batch.negatives.sets, exchange)
    sets = take_sets(batch.negatives.sets, others)
    weights = batch.negatives.weights[others]
    negatives = replace(batch.negatives, sets=sets, weights=weights)
    return Batch(take_sets(batch.positives, liked), batch.weights[liked], negatives)


def summed(exchange: Exchange, own: Gradient) -> Gradient:
    """Sum the gradients of all shares of a batch, in order of rank."""
    gathered = exchange.gather(
        (own.rows, own.values, own.right, own.objective, own.total, own.pairs, own.log_d)
    )
    all_rows, all_values, rights, objectives, totals, pairs, log_d = zip(*gathered, strict=True)
    rows, places = np.unique(np.concatenate(all_rows), return_inverse=True)
    values = np.zeros((len(rows), own.values.shape[1]))
    for part, at in zip(
        all_values, np.split(places, pointers(list(map(len, all_rows)))[1:-1]), strict=True
    ):
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
    """A check after each round that all workers have the same parameters to the last bit."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def on_iteration(self, record: Values, best: Array) -> None:
        record["bytes_sent"] = self._exchange.sent
        if len(set(self._exchange.gather(fingerprint([best])))) > 1:
            raise ClusterError(
                "the workers' factors are no longer the same: their processors or libraries round "
                "differently. Use workers of one kind"
            )


# -- The checkpoint --------------------------------------------------------------------------------


class Reader(Checkpointer):
    """A copy of the first worker's checkpointer, which restores and does not write."""

    def __init__(self, attributes: Values, restores: bool) -> None:
        vars(self).update(attributes)
        self.restores = restores

    def begin(self, parts: Mapping[str, object]) -> bool:
        return self.restores and super().begin(parts)

    def write(self, n_steps: int) -> None:
        pass


def checkpointer_of(task: Task, exchange: Exchange) -> Checkpointer | None:
    """Return the checkpointer: the first worker reads and writes, the others get the content."""
    if task.checkpoint is None:
        return None
    first = None
    shared: tuple[Values, bool] = {}, False
    if exchange.rank == 0:
        restores = Path(task.checkpoint.path).exists()
        first = Checkpointer(task.checkpoint)
        shared = dict(vars(first)), restores
    shared = exchange.gather(shared)[0]
    return first or Reader(*shared)
