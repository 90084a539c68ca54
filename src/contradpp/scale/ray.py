"""The engine "ray": starts workers on a Ray cluster, watches them, and replaces those that die.

Ray starts processes and carries small messages; the training itself talks over connections between workers
(`collective.py`). All workers have all of the state, and the first one keeps a checkpoint: when a worker dies, the
others notice at once, a new one reads the dead one's files, and all go on from the checkpoint, to the same result.
"""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from contradpp._random import root_seed
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import ClusterError, ContradppError, MissingExtraError, ParameterError
from contradpp.estimators.nonsymmetric import NonsymmetricDPP
from contradpp.learn.callbacks import ProgressBar
from contradpp.learn.settings import number, one_of, whole
from contradpp.model.nonsymmetric import NonsymmetricKernel
from contradpp.scale.learning import MODES, Model, refuse_unsupported
from contradpp.scale.shards import FileOf, assign, list_files
from contradpp.scale.worker import Columns, Learned, Task, Worker

log = logging.getLogger("contradpp")
SECONDS_TO_START = 60.0  # that a worker gets at least, if there is room for it: it loads its kernels first
NO_COLUMNS: Columns = {"basket": None, "item": None, "quantity": None, "name": None}


def import_ray() -> Any:
    """The package ray, or an error that names the extra."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError('engine="ray" needs the extra `ray`: pip install "contradpp[ray]"') from error
    return ray


@contextmanager
def session(address: str | None, workers: int) -> Iterator[Any]:
    """Ray, connected to a cluster or with a small one of its own, which ends with the block."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    own = {"num_cpus": workers, "object_store_memory": 100_000_000, "include_dashboard": False}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **({} if address else own))
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster at {address!r}" if address else "a Ray cluster of our own"
        raise ClusterError(f"cannot start {where}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def fit(
    model: Model,
    source: Any,
    *,
    workers: int = 2,
    address: str | None = None,
    validation: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    checkpoint_every: int | str = "30s",
    columns: Columns | None = None,
    timeout: float = 120.0,
    restarts: int = 3,
    mode: str = "replicated",
    local_steps: int = 50,
) -> Model:
    """Learn from Parquet files on a Ray cluster; `LowRankDPP.fit(engine="ray")` documents the arguments.

    Parameters
    ----------
    source : path
        A Parquet file, or a folder of them, on any file system that fsspec knows and all machines reach. A basket must
        not go on in another file.
    checkpoint : path, optional
        On storage that all machines reach. Without one, a temporary file on this machine.
    timeout : float
        Seconds that a worker is waited for before it counts as lost.
    restarts : int
        How many times lost workers are replaced.
    mode : {"replicated", "sharded", "local"}
        Whether every worker has all of V, or some of its rows, or makes steps of its own.
    local_steps : int
        With "local": the steps from one meeting to the next.
    """
    one_of("mode", mode, MODES)
    refuse_unsupported(model, mode)
    whole("workers", workers)
    whole("local_steps", local_steps)
    number("timeout", timeout, low=0.0, strict=True)
    if not isinstance(source, (str, os.PathLike)):
        raise ParameterError(f"engine='ray' reads Parquet files by itself: pass a path, not {type(source).__name__}")
    if not (validation is None or isinstance(validation, float)):
        raise ParameterError("with engine='ray', validation is a share of the baskets")
    parameters = model.get_params() | {"verbose": 0, "random_state": root_seed(model.random_state)}
    model._settings()  # so that a wrong value is an error here and now
    files = list_files(os.fspath(source))
    with tempfile.TemporaryDirectory() as folder, session(address, workers) as ray:
        place = Path(folder) / "checkpoint" if checkpoint is None else Path(checkpoint).absolute()
        paths = tuple(file.path for file in files)
        task = Task(
            parameters, paths, validation, str(place), checkpoint_every, resume, float(timeout),
            model=type(model).__name__, mode=mode, local_steps=local_steps,
        )  # fmt: skip
        crew = Crew(ray, files, columns or NO_COLUMNS, task)
        try:
            with shown(crew, model.verbose):
                learned = run(crew, task, workers, restarts)
        finally:
            crew.dismiss()
    take_over(model, learned)
    log.info("worker 0 sent %s bytes", learned.bytes_sent)
    return model


@contextmanager
def shown(crew: Crew, verbose: int) -> Iterator[None]:
    """A progress bar for as long as the block lasts, if one is asked for."""
    if not verbose:
        yield
        return
    bar = ProgressBar()
    crew.bar = Follower(bar)
    try:
        yield
    finally:
        bar.on_end()


class Follower:
    """Moves a progress bar to where the first worker says that training is."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self._started, self._seen, self._rounds = False, 0, 0

    def follow(self, n_sets: int, max_iter: int, seen: int, records: list[dict[str, Any]]) -> None:
        """Take over what the worker said."""
        if not max_iter:
            return
        if not self._started:
            self._started = True
            self._bar.on_start(n_sets, max_iter, lambda _: None)  # type: ignore[arg-type, return-value]
        self._bar.on_step(0, seen - self._seen)
        for record in records[self._rounds :]:
            self._bar.on_iteration(record, np.empty(0))
        self._seen, self._rounds = seen, len(records)


def run(crew: Crew, task: Task, workers: int, restarts: int) -> Learned:
    """Train until it is done, again from the checkpoint each time that a worker is lost."""
    for attempt in range(restarts + 1):
        try:
            crew.fill(workers)
            return crew.train(task)
        except ClusterError as error:
            if attempt == restarts:
                raise ClusterError(f"gave up after {restarts} restarts; the last failure: {error}") from error
            log.warning("%s. Going on from the last checkpoint", error)
            task = replace(task, resume=True)
    raise ClusterError("no attempt was allowed")


class Crew:
    """The workers of a run, the files of each, and what to do when one is lost."""

    def __init__(self, ray: Any, files: Sequence[FileOf], columns: Columns, task: Task) -> None:
        self._ray, self._files, self._columns = ray, list(files), columns
        self._task, self._timeout = task, task.timeout
        self._workers: list[Any] = []
        self.bar: Follower | None = None

    def fill(self, wanted: int) -> None:
        """Start workers until there are so many, or as many as the cluster has room for, and give them their files."""
        missing = wanted - len(self._workers)
        has_room = self._ray.available_resources().get("CPU", 0) >= missing
        actor = self._ray.remote(num_cpus=1, max_restarts=0, max_concurrency=2)(Worker)
        self._workers += [actor.remote() for _ in range(missing)]
        patience = max(1.0, SECONDS_TO_START / self._timeout) if has_room else 1.0
        ready = self._answers([worker.prepare.remote(self._task) for worker in self._workers], patience=patience)
        for worker, answer in zip(self._workers, ready, strict=True):
            if isinstance(answer, BaseException):
                self._ray.kill(worker)
        self._workers = [w for w, answer in zip(self._workers, ready, strict=True) if isinstance(answer, int)]
        if not self._workers:
            raise ClusterError(f"no worker could be started within {self._timeout:g} s: has the cluster a free CPU?")
        if len(self._workers) < wanted:
            log.warning("only %s of %s workers could be started: training with those", len(self._workers), wanted)
        shards = assign(self._files, len(self._workers))
        loading = [w.load.remote(shard, self._columns) for w, shard in zip(self._workers, shards, strict=True)]
        pids = self._all(self._answers(loading, patience=10.0))
        log.info("workers: %s", " ".join(map(str, pids)))

    def train(self, task: Task) -> Learned:
        """All workers together; an error of the data or settings is raised as it is, any other as `ClusterError`."""
        host = self._ray.util.get_node_ip_address()
        local = all(node["NodeManagerAddress"] == host for node in self._ray.nodes() if node["Alive"])
        addresses = self._all(self._answers([w.open.remote("127.0.0.1" if local else None) for w in self._workers]))
        token = secrets.token_bytes(32)
        runs = [w.train.remote(rank, addresses, token, task) for rank, w in enumerate(self._workers)]
        return put_together([answer for answer in self._all(self._answers(runs, patience=None)) if answer is not None])

    def dismiss(self) -> None:
        """End all workers."""
        for worker in self._workers:
            self._ray.kill(worker)
        self._workers = []

    def _all(self, answers: list[Any]) -> list[Any]:
        """The answers, if there is no error among them; lost workers leave the crew."""
        lost = self._ray.exceptions.RayActorError
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if not errors:
            return answers
        own = [error for error in errors if isinstance(error, ContradppError) and not isinstance(error, ClusterError)]
        if own:
            raise own[0]
        gone = [isinstance(answer, (lost, TimeoutError)) for answer in answers]
        for worker, is_gone in zip(self._workers, gone, strict=True):
            if is_gone:
                self._ray.kill(worker)
        numbers = [str(rank) for rank, is_gone in enumerate(gone) if is_gone]
        self._workers = [w for w, is_gone in zip(self._workers, gone, strict=True) if not is_gone]
        what = f"lost worker {' and '.join(numbers)}" if numbers else str(errors[0])
        if not numbers and not isinstance(errors[0], ClusterError):
            raise errors[0]
        raise ClusterError(what) from errors[0]

    def _answers(self, references: list[Any], *, patience: float | None = 1.0) -> list[Any]:
        """What every worker answers, or its error. Without patience, one that fails gives the others a while to end."""
        waiting, answers = list(references), dict.fromkeys(references)
        deadline = None if patience is None else time.monotonic() + patience * self._timeout
        while waiting:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            done, waiting = self._ray.wait(waiting, num_returns=1, timeout=1.0 if left is None else min(left, 1.0))
            self._follow()
            if not done and (left is None or left > 0):
                continue
            if not done:
                answers |= {ref: TimeoutError(f"no answer within {self._timeout:g} s") for ref in waiting}
                break
            answers[done[0]] = self._answer(done[0])
            if deadline is None and isinstance(answers[done[0]], BaseException):
                deadline = time.monotonic() + 2 * self._timeout
        return [answers[reference] for reference in references]

    def _follow(self) -> None:
        """Move the progress bar, if there is one."""
        if self.bar is None or not self._workers:
            return
        told = self._workers[0].progress.remote()
        if self._ray.wait([told], timeout=1.0)[0]:
            answer = self._answer(told)
            if isinstance(answer, tuple):
                self.bar.follow(*answer)

    def _answer(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return error.cause if isinstance(error.cause, BaseException) else error
        except self._ray.exceptions.RayError as error:
            return error


def put_together(answers: Sequence[Learned]) -> Learned:
    """One result from what every worker gives back."""
    first = answers[0]
    if first.rows is None:
        return first
    factors = np.empty((len(first.ids), first.factors.shape[1]))
    for answer in answers:
        factors[answer.rows] = answer.factors
    return replace(first, factors=factors, rows=None)


def take_over(model: Model, learned: Learned) -> None:
    """Make what the workers learned the model's own."""
    items = Vocabulary(learned.ids, names=learned.names)
    if isinstance(model, NonsymmetricDPP):
        model._adopt_kernel(NonsymmetricKernel(learned.factors, skew=learned.skew), items)
    else:
        model._adopt(learned.factors, items)
    model.item_counts_, model.n_baskets_, model.n_updates_ = learned.item_counts, learned.n_baskets, 0
    model.history_, model.n_iter_ = learned.history, learned.n_iter
