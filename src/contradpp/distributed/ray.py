"""The engine "ray": starts workers on a Ray cluster, watches them, and replaces those that die.

Ray starts processes and carries small messages; the training itself talks over connections between workers
(`collective.py`). A checkpoint is kept along the way: when a worker dies, the others notice at once, a new one reads
the dead one's files, and all go on from the checkpoint.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from contradpp._random import root_seed
from contradpp.data.vocabulary import Vocabulary
from contradpp.distributed.crew import Crew
from contradpp.distributed.learning import MODES, Model, refuse_unsupported
from contradpp.distributed.shards import list_files
from contradpp.distributed.worker import Columns, Learned, Task
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ClusterError, MissingExtraError, ParameterError
from contradpp.learn.callbacks import ProgressBar
from contradpp.learn.checkpoint import Keeper
from contradpp.learn.settings import number, one_of, whole
from contradpp.models.nonsymmetric import NonsymmetricDPP

log = logging.getLogger("contradpp")
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
        On storage that all machines reach. Without one, a temporary file, if there is only this machine.
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
    one_of("oversize", model.oversize, ("error", "drop", "clip"))
    whole("n_components", model.n_components)
    model._settings()  # so that a wrong value is an error here and now
    keeper = Keeper.of(checkpoint, resume=resume, every=checkpoint_every)
    seed = root_seed(model.random_state) if keeper is None else keeper.seed(model.random_state)
    parameters = model.get_params() | {"verbose": 0, "random_state": seed}
    files = list_files(os.fspath(source))
    bar = ProgressBar()
    with tempfile.TemporaryDirectory() as folder, session(address, workers) as ray:
        paths = tuple(file.path for file in files)
        task = Task(
            parameters, paths, validation, place_of(ray, checkpoint, folder), checkpoint_every, resume, float(timeout),
            model=type(model).__name__, mode=mode, local_steps=local_steps,
        )  # fmt: skip
        crew = Crew(ray, files, columns or NO_COLUMNS, task, Follower(bar).follow if model.verbose else None)
        try:
            learned = run(crew, task, workers, restarts)
        finally:
            crew.dismiss()
            bar.on_end()
    take_over(model, learned)
    log.info("worker 0 sent %s bytes", learned.bytes_sent)
    return model


def place_of(ray: Any, checkpoint: str | os.PathLike[str] | None, folder: str) -> str | None:
    """Where the checkpoint goes: on one machine a temporary file will do."""
    if checkpoint is not None:
        return str(Path(checkpoint).absolute())
    if sum(node["Alive"] for node in ray.nodes()) == 1:
        return str(Path(folder) / "checkpoint")
    log.warning("without a checkpoint on storage that all machines reach, a lost worker means to start anew")
    return None


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
            return put_together(crew.train(task))
        except ClusterError as error:
            if attempt == restarts:
                raise ClusterError(f"gave up after {restarts} restarts; the last failure: {error}") from error
            log.warning("%s. Going on from the last checkpoint", error)
            task = replace(task, resume=True)
    raise ClusterError("no attempt was allowed")


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
        model._adopt_kernel(Kernel(learned.factors, skew=learned.skew), items)
    else:
        model._adopt(learned.factors, items)
    model.item_counts_, model.n_baskets_, model.n_updates_ = learned.item_counts, learned.n_baskets, 0
    model.history_, model.n_iter_ = learned.history, learned.n_iter
