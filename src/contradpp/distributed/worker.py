"""A worker: reads its files once, and trains with the others as often as it is asked to.

It is a plain class; Ray makes an actor of it, and tests run several in threads.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.distributed.collective import Address, Alone, Collective, Mesh, gather, listen
from contradpp.distributed.learning import Found, Problem, learn_local, learn_replicated, learn_sharded
from contradpp.distributed.local import LocalKeeper
from contradpp.distributed.parts import PartKeeper
from contradpp.distributed.shards import FileOf, Read, Shard, read_file, refuse_divided
from contradpp.distributed.warm import warm_up
from contradpp.errors import ClusterError
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import Keeper, damaged
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP

Columns = dict[str, str | None]


@dataclass(frozen=True)
class Task:
    """What all workers of a run are told."""

    parameters: dict[str, Any]
    paths: tuple[str, ...]  # of all files
    validation: float | None
    checkpoint: str | None
    every: int | str
    resume: bool
    timeout: float
    model: str = "LowRankDPP"
    mode: str = "replicated"
    local_steps: int = 50


@dataclass(frozen=True)
class Learned:
    """What a worker gives back: all factors, or its own rows of them."""

    factors: NDArray[np.floating]
    rows: NDArray[np.int64] | None
    ids: list[Any]
    names: dict[Any, str]
    item_counts: NDArray[np.float64]
    n_baskets: float
    history: list[dict[str, Any]]
    n_iter: int
    bytes_sent: int
    skew: Any = None


class Progress(Callback):
    """Remembers how far training is, for whoever asks."""

    def __init__(self, collective: Collective | None = None) -> None:
        self.n_sets, self.max_iter, self.seen = 0, 0, 0
        self.records: list[dict[str, Any]] = []
        self._collective = collective

    def on_start(self, n_sets: int, max_iter: int, model_of: Callable[[Any], Any]) -> None:  # noqa: ARG002
        """See `Callback`."""
        self.n_sets, self.max_iter, self.seen, self.records = n_sets, max_iter, 0, []

    def on_resume(self, step: int, n_sets: int) -> None:  # noqa: ARG002
        """See `Callback`."""
        self.seen = n_sets

    def on_step(self, step: int, n_sets: int) -> None:  # noqa: ARG002
        """See `Callback`."""
        self.seen += n_sets

    def on_iteration(self, record: dict[str, Any], best: Any) -> None:  # noqa: ARG002
        """See `Callback`; the round's record says how many bytes were sent up to then."""
        record["bytes_sent"] = 0 if self._collective is None else self._collective.sent
        self.records.append(record)


class Worker:
    """Some of the files, and a place in the collective."""

    def __init__(self) -> None:
        self._read: list[tuple[FileOf, Read]] = []
        self._columns: Columns = {}
        self._listener: socket.socket | None = None
        self._prepared = False
        self._progress = Progress()

    def prepare(self, task: Task) -> int:
        """Have the kernels compiled, once; the number of the worker's process."""
        if not self._prepared:
            warm_up(task.parameters, task.model, task.mode)
            self._prepared = True
        return os.getpid()

    def load(self, files: Sequence[FileOf], columns: Columns) -> int:
        """Read these files, unless they are read already; the number of the process."""
        known = {file: read for file, read in self._read if columns == self._columns}
        self._read = [(file, known[file] if file in known else read_file(file.path, columns)) for file in files]
        self._columns = dict(columns)
        return os.getpid()

    def progress(self) -> tuple[int, int, int, list[dict[str, Any]]]:
        """Positives a round, rounds at most, positives seen, and the rounds so far; asked while training goes on."""
        told = self._progress
        return told.n_sets, told.max_iter, told.seen, list(told.records)

    def open(self, host: str | None) -> Address:
        """Listen for the others, at a new port each time; without a host, at the address Ray knows this machine by."""
        if host is None:
            from ray.util import get_node_ip_address

            host = str(get_node_ip_address())  # type: ignore[no-untyped-call]
        if self._listener is not None:
            self._listener.close()
        self._listener = listen(host)
        name, port = self._listener.getsockname()
        return str(name), int(port)

    def train(self, rank: int, addresses: Sequence[Address], token: bytes, task: Task) -> Learned | None:
        """Learn together with the workers at these addresses; only those with something to say give it back."""
        if self._listener is None:
            raise ClusterError("a worker was to train before it listened")
        with self._listener as listener:
            if len(addresses) == 1:
                return self._train(Alone(), task)
            with Mesh(rank, addresses, listener, token, timeout=task.timeout) as mesh:
                return self._train(mesh, task)

    def _train(self, collective: Collective, task: Task) -> Learned | None:
        refuse_divided([(file.number, read) for file, read in self._read], task.paths, collective)
        baskets = [(file.number, read.baskets) for file, read in self._read]
        shard = Shard.build(baskets, len(task.paths), collective)
        self._progress = Progress(collective)
        kind = NonsymmetricDPP if task.model == "NonsymmetricDPP" else LowRankDPP
        problem = Problem.of(kind(**task.parameters), shard, task.validation, self._progress)
        with tempfile.TemporaryDirectory() as folder:
            found = learn(problem, task, Path(folder))
        first = collective.rank == 0
        if not first and found.rows is None:
            return None
        return Learned(
            factors=found.factors, rows=found.rows, ids=list(shard.items) if first else [],
            names=shard.items.names if first else {}, item_counts=problem.counts if first else np.empty(0),
            n_baskets=problem.n_baskets, history=found.history, n_iter=found.n_iter, bytes_sent=collective.sent,
            skew=found.skew,
        )  # fmt: skip


def learn(problem: Problem, task: Task, folder: Path) -> Found:
    """Train in the way that the task names."""
    if task.mode == "sharded":
        place = task.checkpoint
        keeper = None if place is None else PartKeeper(place, resume=task.resume, every=task.every)
        return learn_sharded(problem, keeper)
    if task.mode == "local":
        return learn_local(problem, keeper_of(task, problem.collective, folder, LocalKeeper), task.local_steps)
    return learn_replicated(problem, keeper_of(task, problem.collective, folder, Keeper))


def keeper_of(task: Task, collective: Collective, folder: Path, kind: type[Keeper]) -> Keeper | None:
    """The first worker keeps the checkpoint and tells the others what is in it."""
    if task.checkpoint is None:
        return None
    path = Path(task.checkpoint)
    try:
        own = path.read_bytes() if collective.rank == 0 and task.resume and path.exists() else b""
    except OSError as error:
        raise damaged(path, str(error)) from error
    content = gather(collective, own)[0]
    if collective.rank == 0:
        return kind(path, resume=task.resume, every=task.every)
    copy = folder / "checkpoint"
    if content:
        copy.write_bytes(content)
    return Reader(copy, resume=copy.exists(), every=task.every)


class Reader(Keeper):
    """Goes on from a checkpoint, but leaves the writing to another."""

    def _write(self, parts: Any) -> None:
        """Nothing: see `Keeper`."""
