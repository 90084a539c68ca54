"""The workers of a run: what each does, and how they are started on Ray, watched while they train, and dismissed.

A worker is a plain class; Ray makes an actor of it, and tests run several in threads.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from contradpp.data.sets import Sets
from contradpp.distributed.exchange import Alone, Exchange, Meeting, RemoteMeeting
from contradpp.distributed.learning import (
    Held,
    Keeping,
    Model,
    Progress,
    learn,
    own_together,
    some_regressions,
    without_excess,
)
from contradpp.distributed.shards import Columns, FileOf, Positions, Read, Shard, assign, read_file, refuse_divided
from contradpp.errors import ClusterError, ContradppError

log = logging.getLogger("contradpp")
SECONDS_TO_START = 60.0  # that a worker gets at least, if the cluster is large enough for it
SECONDS_TO_LOAD = 10.0  # times the time limit


@dataclass(frozen=True)
class Task:
    """What all workers of a run are told."""

    kind: type[Model]
    parameters: dict[str, Any]
    paths: tuple[str, ...]  # of all files
    validation: Held
    keeping: Keeping | None


class News(NamedTuple):
    """How far a worker is: positives a round and seen so far, rounds at most and done, and its warnings."""

    n_sets: int
    max_iter: int
    seen: int
    records: list[dict[str, Any]]
    warnings: list[str]


class Warnings(logging.Handler):
    """Collects the warnings of the thread that made it: a worker's own log is far from whoever started the run."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.collected: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        if record.thread == self._thread:
            self.collected.append(record.getMessage())


class Worker:
    """Some of the files, and what came of the last training."""

    def __init__(self) -> None:
        self._read: dict[FileOf, Read] = {}
        self._columns: Columns = {}
        self._shard: Shard | None = None
        self._progress = Progress()
        self._warnings: list[str] = []

    def pid(self) -> int:
        """The number of the worker's process."""
        return os.getpid()

    def load(self, files: Sequence[FileOf], columns: Columns) -> None:
        """Read these files, unless they are read already."""
        known = self._read if columns == self._columns else {}
        self._read = {file: known[file] if file in known else read_file(file.path, columns) for file in files}
        self._columns = dict(columns)

    def news(self) -> News:
        """How far training is; asked while it goes on."""
        told = self._progress
        return News(told.n_sets, told.max_iter, told.seen, list(told.records), list(self._warnings))

    def train(self, exchange: Exchange, task: Task) -> tuple[Model | None, News]:
        """Learn together with the others; the first one gives back the model, and all their last news."""
        model, watcher = task.kind(**task.parameters), Warnings()
        self._progress, self._warnings = Progress(), watcher.collected
        log.addHandler(watcher)
        try:
            refuse_divided({file.number: read for file, read in self._read.items()}, task.paths, exchange)
            shard = Shard.build({file.number: read.baskets for file, read in self._read.items()}, exchange)
            learn(model, shard, task.validation, task.keeping, [self._progress])
            self._shard = without_excess(shard)  # for the voices
        except BaseException as error:
            exchange.leave(f"failed: {error}")
            raise
        finally:
            log.removeHandler(watcher)
        return (model if exchange.rank == 0 else None), self.news()

    def baskets(self) -> tuple[Positions, Sets]:
        """After training: the numbers of the worker's baskets, and what is in them."""
        return self._trained.numbers, self._trained.own

    def count_together(self, numbers: Positions) -> Any:
        """After training: how often any two items are together in those of its baskets that have these numbers."""
        return own_together(self._trained, numbers)

    def regress(self, system: Any, n_neighbours: int, items: range) -> Any:
        """The columns of these items of the ridge regression on neighbours."""
        return some_regressions(system, n_neighbours, items)

    @property
    def _trained(self) -> Shard:
        if self._shard is None:
            raise ClusterError("a worker is asked for its baskets before it was trained")
        return self._shard


class Crew:
    """The workers of a run, the files of each, and what to do when one is lost: silent for `timeout` seconds.

    `follow` gets the first worker's news now and then.
    """

    def __init__(
        self, ray: Any, files: Sequence[FileOf], columns: Columns, timeout: float, follow: Callable[[News], None]
    ) -> None:
        self._ray, self._files, self._columns = ray, list(files), columns
        self._timeout, self._follow = timeout, follow
        self._workers: list[Any] = []
        self._told: dict[int, int] = {}  # how many warnings of each worker were passed on

    def fill(self, wanted: int) -> None:
        """Start workers until there are so many, or as many as the cluster has room for, and give them their files."""
        actor = self._ray.remote(num_cpus=1, max_restarts=0, max_concurrency=2)(Worker)
        started = self._workers + [actor.remote() for _ in range(wanted - len(self._workers))]
        asked = [worker.pid.remote() for worker in started]
        room = min(int(self._ray.cluster_resources().get("CPU", 0)), wanted)
        seconds = max(self._timeout, SECONDS_TO_START)  # those there is room for: a lost one's may yet have to be freed
        self._ray.wait(asked, num_returns=max(room, 1), timeout=seconds)
        pids = self._answers(asked, self._timeout)
        self._workers = [worker for worker, pid in zip(started, pids, strict=True) if isinstance(pid, int)]
        for worker in started:
            if worker not in self._workers:
                self._ray.kill(worker)
        if not self._workers:
            failure = next((f"{pid}" for pid in pids if not isinstance(pid, TimeoutError)), None)
            why = failure or f"none within {seconds:g} s: has the cluster a free CPU?"
            raise ClusterError(f"no worker could be started: {why}")
        if len(self._workers) < wanted:
            log.warning("only %s of %s workers could be started: training with those", len(self._workers), wanted)
        log.info("workers: %s", " ".join(str(pid) for pid in pids if isinstance(pid, int)))
        shards = assign(self._files, len(self._workers))
        loading = [w.load.remote(shard, self._columns) for w, shard in zip(self._workers, shards, strict=True)]
        self._all(self._answers(loading, SECONDS_TO_LOAD * self._timeout))

    def train(self, task: Task) -> Model:
        """All workers together; an error of the data or settings is raised as it is, any other as `ClusterError`."""
        size, self._told = len(self._workers), {}
        meeting = self._ray.remote(num_cpus=0, max_concurrency=size + 2)(Meeting).remote(size, self._timeout)
        place = RemoteMeeting(meeting, self._timeout)
        try:
            exchanges = [Exchange(rank, size, place) for rank in range(size)] if size > 1 else [Alone()]
            runs = [w.train.remote(e, task) for w, e in zip(self._workers, exchanges, strict=True)]
            answers = self._all(self._watched(runs, place))
        finally:
            self._ray.kill(meeting)
        for rank, (_, news) in enumerate(answers):
            self._tell(rank, news)
        model: Model = answers[0][0]
        return model

    def ask(self, question: str, *arguments: Sequence[Any]) -> list[Any]:
        """What each worker answers to a question, a method of `Worker`: it gets its own of all arguments."""
        asked = [getattr(w, question).remote(*own) for w, *own in zip(self._workers, *arguments, strict=True)]
        return self._all(self._answers(asked, SECONDS_TO_LOAD * self._timeout))

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    def send(self, thing: Any) -> Any:
        """A reference to something large, which workers get once."""
        return self._ray.put(thing)

    def dismiss(self) -> None:
        """End all workers."""
        for worker in self._workers:
            self._ray.kill(worker)
        self._workers = []

    def _all(self, answers: list[Any]) -> list[Any]:
        """The answers, if there is no error among them; lost workers leave the crew."""
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if not errors:
            return answers
        ours = [error for error in errors if isinstance(error, ContradppError) and not isinstance(error, ClusterError)]
        if ours:
            raise ours[0]
        gone = [isinstance(answer, (self._ray.exceptions.RayError, TimeoutError)) for answer in answers]
        lost = [worker for worker, is_gone in zip(self._workers, gone, strict=True) if is_gone]
        for worker in lost:
            self._ray.kill(worker)
        self._workers = [worker for worker in self._workers if worker not in lost]
        if lost:
            numbers = " and ".join(str(rank) for rank, is_gone in enumerate(gone) if is_gone)
            raise ClusterError(f"lost worker {numbers}") from errors[0]
        cause = next((error for error in errors if not isinstance(error, ClusterError)), None)
        if cause is not None:
            raise ClusterError(f"a worker failed: {type(cause).__name__}: {cause}") from cause
        raise ClusterError(str(errors[0])) from errors[0]

    def _answers(self, references: list[Any], seconds: float) -> list[Any]:
        """What every worker answers within so many seconds, or its error."""
        done, _ = self._ray.wait(references, num_returns=len(references), timeout=seconds)
        late = TimeoutError(f"no answer within {seconds:g} s")
        return [self._answer(reference) if reference in done else late for reference in references]

    def _watched(self, runs: list[Any], place: RemoteMeeting) -> list[Any]:
        """What every worker answers, however long it takes, as long as it says that it is alive.

        When one fails, the others are told, and get a while to end.
        """
        answers: dict[int, Any] = {}
        heard = dict.fromkeys(range(len(runs)), time.monotonic())
        pulses: dict[int, Any] = {}
        deadline = float("inf")
        while len(answers) < len(runs):
            waiting = {run: rank for rank, run in enumerate(runs) if rank not in answers}
            done, _ = self._ray.wait(list(waiting), num_returns=1, timeout=min(1.0, self._timeout / 4))
            found = {waiting[run]: self._answer(run) for run in done}
            for rank in waiting.values():
                self._feel(rank, pulses, heard)
                if rank not in found and time.monotonic() > min(heard[rank] + self._timeout, deadline):
                    found[rank] = TimeoutError(f"worker {rank} has been silent for {self._timeout:g} s")
            answers |= found
            for rank, answer in found.items():
                if isinstance(answer, BaseException):
                    place.leave(f"worker {rank} was lost: {answer}")
                    deadline = min(deadline, time.monotonic() + 2 * self._timeout)
        return [answers[rank] for rank in range(len(runs))]

    def _feel(self, rank: int, pulses: dict[int, Any], heard: dict[int, float]) -> None:
        """Ask a worker for its news, or look for the answer."""
        if rank not in pulses:
            pulses[rank] = self._workers[rank].news.remote()
        elif self._ray.wait([pulses[rank]], timeout=0)[0]:
            self._tell(rank, self._answer(pulses.pop(rank)))
            heard[rank] = time.monotonic()

    def _tell(self, rank: int, news: Any) -> None:
        """Pass on what a worker said."""
        if not isinstance(news, News):
            return
        for warning in news.warnings[self._told.get(rank, 0) :]:
            log.warning("worker %s: %s", rank, warning)
        self._told[rank] = len(news.warnings)
        if rank == 0:
            self._follow(news)

    def _answer(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return error.cause if isinstance(error.cause, BaseException) else error
        except self._ray.exceptions.RayError as error:
            return error
