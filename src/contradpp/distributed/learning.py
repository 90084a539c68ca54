"""A worker of a run: training on one machine that has a share of the baskets and of the gradient.

Every worker has all parameters and sees every batch. All draw the same negatives. Each computes the
gradient of its share of the sets. The shares are summed in order of rank, so that all workers make
the same step. Ray makes an actor of a `Worker`; tests run several in threads.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from contradpp._random import root_seed
from contradpp._types import Array, Codes, Ints, Values
from contradpp.data.sets import EMPTY, Sets, drawn_entries, first_entries, pointers, take_sets
from contradpp.distributed.shards import (
    Columns,
    Exchange,
    FileOf,
    Read,
    Shard,
    read_file,
    refuse_divided,
)
from contradpp.dpp.cooccurrence import co_occurrences, regress_on_neighbors
from contradpp.errors import CheckpointError, ClusterError, DataError, ParameterError
from contradpp.learn.callbacks import Callback, ModelOf
from contradpp.learn.checkpoints import Checkpointer, Checkpointing, damaged, fingerprint
from contradpp.learn.negatives import ExplicitNegatives
from contradpp.learn.objectives import Batch, Gradient, Validation
from contradpp.learn.params import (
    MOST_LEARNED,
    Params,
    Problem,
    TrainingData,
    note_excess,
    refuse_or_note_oversize,
    set_aside,
    usable_sizes,
)
from contradpp.learn.training import Sharing, TrainingResult
from contradpp.learn.training import learn as solve
from contradpp.models.learned import LearnedDPP
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

log = logging.getLogger("contradpp")
Model = LearnedDPP
HeldOut = float | Callable[[int], Ints] | None  # a share to hold out, or which of n baskets
T = TypeVar("T")


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
    """One of the workers of a run, with some of the files."""

    def __init__(self) -> None:
        self._read: dict[int, Read] = {}
        self._progress = Progress()
        self._baskets: tuple[Ints, Sets] = (np.empty(0, np.int64), EMPTY)

    def load(self, files: Sequence[FileOf], columns: Columns) -> None:
        """Read these files."""
        self._read = {file.number: read_file(file.path, columns) for file in files}

    def progress(self) -> Progress:
        """Return the progress of training so far."""
        return self._progress

    def train(self, exchange: Exchange, task: Task) -> TrainingResult | None:
        """Learn together with the others. The first worker returns the result."""
        model = task.kind(**task.parameters)
        self._progress = Progress()
        handler = Warnings(self._progress.warnings)
        log.addHandler(handler)
        try:
            refuse_divided(self._read, task.paths, exchange)
            shard = Shard.build(
                {number: read.baskets for number, read in self._read.items()}, exchange
            )
            result = learn(model, shard, task, [self._progress])
            shard = shard.cut(MOST_LEARNED, drawn_entries)
            self._baskets = shard.numbers, shard.own
        except BaseException as error:
            exchange.leave(f"failed: {error}")
            raise
        finally:
            log.removeHandler(handler)
        return result if exchange.rank == 0 else None

    def baskets(self) -> tuple[Ints, Sets]:
        """Return the numbers of the worker's baskets and the baskets, after training."""
        return self._baskets

    def execute(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a function."""
        return function(*arguments)


def refuse_unsupported(model: Model) -> None:
    """Refuse kernels that cannot be learned from shards, and wrong arguments."""
    if type(model) not in (LowRankDPP, NonsymmetricDPP):
        raise ParameterError(
            f"engine='ray' learns LowRankDPP and NonsymmetricDPP, not {type(model).__name__}"
        )
    params = Params.of(model)
    if params.spec.offered == "required":
        raise ParameterError("engine='ray' does not learn from choices yet: objective='choice'")
    if isinstance(params.negatives, ExplicitNegatives):
        raise ParameterError(
            "engine='ray' cannot compare negatives with all training baskets: "
            "objective='explicit' needs one machine"
        )
    if getattr(model, "warm_start", False):
        raise ParameterError("engine='ray' starts anew: warm_start must be False")


def parameters_for_all(model: Model, checkpoint: Checkpointing | None) -> Values:
    """Return the parameters of all workers, with one seed; check the checkpoint."""
    seed = root_seed(model.random_state)
    if checkpoint is not None:
        seed = Checkpointer(checkpoint).seed(model.random_state)
    return model.get_params(deep=False) | {"verbose": 0, "random_state": seed}


def learn(model: Model, shard: Shard, task: Task, callbacks: list[Callback]) -> TrainingResult:
    """Learn, with the same result on all workers."""
    if model.random_state is None:
        raise ParameterError("a run on several workers needs random_state")
    params = Params.of(model)
    exchange = shard.exchange
    seed = root_seed(model.random_state)
    if not len(shard.sizes):
        raise DataError("there is no basket in any of the files")
    if (
        refuse_or_note_oversize(shard.sizes, params, quiet=exchange.rank > 0)
        and params.oversize == "clip"
    ):
        shard = shard.cut(params.n_components, first_entries)
    usable = np.flatnonzero(usable_sizes(shard.sizes, params))
    if note_excess(shard.sizes[usable], quiet=exchange.rank > 0):
        shard = shard.cut(MOST_LEARNED, drawn_entries)
    if not len(usable):
        raise DataError("there is no basket to learn from")
    aside: Ints | None
    if callable(task.validation):
        held = np.isin(usable, task.validation(len(shard.sizes)))
        aside = np.flatnonzero(held)
        training = np.flatnonzero(~held if len(usable) > 1 else held)
    else:
        aside, training = set_aside(
            task.validation, np.arange(len(usable)), len(usable), params, seed
        )
        if aside is None:
            raise ParameterError(
                "validation must be a share between 0 and 1 with engine='ray', "
                f"got {task.validation!r}"
            )
    held_out = shard.take(usable[aside if len(aside) else training])
    training = usable[training]
    own = shard.own_among(training)
    n_items = len(shard.items)
    problem = Problem(
        items=shard.items,
        data=ShardedData.of(shard, training, params.batch_for(len(training))),
        validation=Validation(held_out, np.ones(held_out.count)),
        counts=exchange.sum(np.bincount(own.indices, minlength=n_items).astype(np.float64)),
        n_baskets=float(len(training)),
        seed=seed,
        co_occurrences=counted_together(own, n_items, exchange) if params.n_skew else None,
        digests=(*shard.digests(), shard.sizes),
    )
    checkpointer = checkpointer_of(task, exchange)
    sharing = Sharing(partial(own_share, exchange), partial(summed, exchange), alone=False)
    watchers = [SameEverywhere(exchange), *callbacks]
    return solve(problem, params, callbacks=watchers, checkpointer=checkpointer, sharing=sharing)


# -- The data --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardedData(TrainingData):
    """Training data of which every worker has a part; `positives` only has the right number."""

    shard: Shard
    numbers: Ints  # of the training baskets

    @staticmethod
    def of(shard: Shard, numbers: Ints, batch_size: int) -> ShardedData:
        """Make training data of the baskets of these numbers."""
        size = min(len(numbers), batch_size)
        stand_in = Sets(np.zeros(size + 1, dtype=np.int64), EMPTY.indices)
        return ShardedData(stand_in, np.ones(size), EMPTY, np.empty(0), shard, numbers)

    @property
    def count(self) -> int:
        """The number of positives."""
        return len(self.numbers)

    def take(self, chosen: Ints) -> tuple[Sets, Array]:
        return self.shard.take(self.numbers[chosen]), np.ones(len(chosen))


def counted_together(own: Sets, n_items: int, exchange: Exchange) -> csr_array:
    """Count how often any two items are in a basket together, over all workers (sparse, M × M)."""
    from scipy.sparse import coo_array

    part = count_pairs(own, n_items).tocoo()
    gathered = exchange.gather((part.row, part.col, part.data))
    rows, columns, counts = (np.concatenate(parts) for parts in zip(*gathered, strict=True))
    return coo_array((counts, (rows, columns)), shape=(n_items, n_items)).tocsr()


def count_pairs(sets: Sets, n_items: int) -> csr_array:
    """Count how often any two items are in a set together (sparse, M × M)."""
    return co_occurrences(sets, np.ones(sets.count), n_items)


def regress_items(
    items: range, n_neighbors: int, system: tuple[Ints, Codes, Array, Array, Array]
) -> csc_array:
    """Return the columns of these items of the ridge regression on neighbors."""
    indptr, columns, together, counts, diagonal = system
    return regress_on_neighbors(indptr, columns, together, counts, diagonal, n_neighbors, 1, items)


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
    """A checkpointer that goes on from a checkpoint, and leaves the writing to the first worker."""

    def _write(self) -> None:
        pass


def checkpointer_of(task: Task, exchange: Exchange) -> Checkpointer | None:
    """Return the checkpointer: the first worker reads and writes, the others get the content."""
    if task.checkpoint is None:
        return None
    path = Path(task.checkpoint.path)
    content = b""
    try:
        if exchange.rank == 0 and task.checkpoint.resume and path.exists():
            content = path.read_bytes()
    except OSError as error:
        raise damaged(path, str(error)) from error
    content = exchange.gather(content)[0]
    if exchange.rank == 0:
        return Checkpointer(task.checkpoint)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        try:
            if content:
                copy.write_bytes(content)
        except OSError as error:
            raise CheckpointError(
                f"worker {exchange.rank} has no room for a copy of {path}: {error}"
            ) from error
        return Reader(replace(task.checkpoint, path=copy, resume=bool(content)))
