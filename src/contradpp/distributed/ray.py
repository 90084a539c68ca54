"""Training and scoring on a Ray cluster.

`fit` is the engine "ray": a group of workers learns from Parquet files. A lost worker ends its
group, and a new group goes on from the last checkpoint. `recommend_folder` scores a folder of
Parquet files with Ray Data.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

import contradpp as cd
from contradpp._types import StrPath, Values
from contradpp.data.baskets import Baskets
from contradpp.data.tables import layout_of
from contradpp.distributed import RayEngine
from contradpp.distributed.learning import (
    Progress,
    Task,
    Worker,
    parameters_for_all,
    refuse_unsupported,
)
from contradpp.distributed.shards import (
    NO_COLUMNS,
    Barrier,
    Columns,
    Exchange,
    FileOf,
    RemoteBarrier,
    assign,
    import_extra,
    list_files,
)
from contradpp.dpp import files as persist
from contradpp.errors import ClusterError, ContradppError, DataError, ParameterError
from contradpp.experts.statistics import BasketStatistics
from contradpp.learn.callbacks import ProgressBar
from contradpp.learn.checkpoints import Checkpointing
from contradpp.learn.params import MOST_LEARNED, Parameter
from contradpp.learn.training import TrainingResult
from contradpp.models.conditional import (
    ConditionalDPP,
    fit_combination,
    held_out_rows,
    new_kernel_model,
    other_rows,
)
from contradpp.models.learned import set_result
from contradpp.models.mixture import MixtureDPP

log = logging.getLogger("contradpp")
SECONDS_TO_START = 60.0  # at least, for a worker that the cluster has room for
SECONDS_TO_END = 5.0  # for a worker after a loss: its own error may say more
LONG = 10.0  # times the time limit: for work during which a worker reports no progress
BLOCK = 512  # baskets scored at a time


@contextmanager
def session(address: str | None, workers: int) -> Iterator[Any]:
    """Connect Ray to a cluster, or to a small one of its own, for the time of a block."""
    ray = import_extra("ray")
    if ray.is_initialized():
        yield ray
        return
    own = {"num_cpus": workers, "object_store_memory": 100_000_000, "include_dashboard": False}
    try:
        ray.init(
            address=address, log_to_driver=False, logging_level="ERROR", **({} if address else own)
        )
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster at {address!r}" if address else "a Ray cluster of our own"
        raise ClusterError(f"cannot start {where}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


# -- Training --------------------------------------------------------------------------------------


def fit(
    model: Any,
    source: object,
    engine: RayEngine | None = None,
    *,
    validation: float | None = None,
    checkpoint: StrPath | Checkpointing | None = None,
) -> None:
    """Learn from Parquet files on a Ray cluster; `LowRankDPP.fit` documents the arguments."""
    engine = engine or RayEngine()
    kernel_model = new_kernel_model(model) if isinstance(model, ConditionalDPP) else model
    kernel: Any = kernel_model
    if isinstance(kernel_model, MixtureDPP):
        if kernel_model.n_clusters not in (1, "auto"):
            raise ParameterError("engine='ray' learns one cluster: n_clusters must be 1 or 'auto'")
        kernel = kernel_model.new_kernel_model()
    held_out = held_out_rows(model, validation) if isinstance(model, ConditionalDPP) else validation
    refuse_unsupported(kernel)
    Parameter("workers", "", low=1, whole=True).check(engine.workers)
    Parameter("timeout", "", low=0, above=True).check(engine.timeout)
    Parameter("restarts", "", low=0, whole=True).check(engine.restarts)
    if not isinstance(source, (str, os.PathLike)):
        raise ParameterError(
            f"engine='ray' reads Parquet files by itself: pass a path, not {type(source).__name__}"
        )
    if not (validation is None or isinstance(validation, float)):
        raise ParameterError("with engine='ray', validation is a share of the baskets")
    if checkpoint is not None and not isinstance(checkpoint, Checkpointing):
        checkpoint = Checkpointing(checkpoint, every="30s")
    parameters = parameters_for_all(kernel, checkpoint)
    files = list_files(os.fspath(source))
    bar = RemoteProgressBar() if model.verbose else None
    with (
        tempfile.TemporaryDirectory() as folder,
        session(engine.address, engine.workers) as ray,
        ExitStack() as ends,
    ):
        if bar is not None:
            ends.callback(bar.on_end)
        paths = tuple(file.path for file in files)
        shared = shared_checkpoint(ray, checkpoint, folder)
        task = Task(type(kernel), parameters, paths, held_out, shared)
        for attempt in range(engine.restarts + 1):
            try:
                with WorkerGroup(ray, engine.workers, float(engine.timeout)) as group:
                    group.load(files, NO_COLUMNS | dict(engine.columns or {}))
                    result = group.train(task, bar)
                    baskets = group.baskets() if callable(held_out) else None
                break
            except ClusterError as error:
                if attempt == engine.restarts:
                    message = f"gave up after {attempt} restarts; the last failure: {error}"
                    raise ClusterError(message) from error
                log.warning(f"{error}. Going on from the last checkpoint")
                if task.checkpoint is not None:
                    task = replace(task, checkpoint=replace(task.checkpoint, resume=True))
    set_result(kernel, result)
    if isinstance(kernel_model, MixtureDPP):
        kernel_model.set_kernel_model(kernel)
    if callable(held_out) and baskets is not None:
        baskets = baskets.draw(MOST_LEARNED).recode(kernel.items_)
        held = held_out(baskets.n_baskets)
        part = BasketStatistics(baskets.subset(other_rows(held, baskets.n_baskets)))
        everything = BasketStatistics(baskets)
        fit_combination(model, kernel_model, baskets.subset(held), part, everything)


def shared_checkpoint(ray: Any, given: Checkpointing | None, folder: str) -> Checkpointing | None:
    """Return the checkpoint of all workers: on one machine a temporary file will do."""
    if given is not None:
        return replace(given, path=Path(given.path).absolute())
    if sum(node["Alive"] for node in ray.nodes()) == 1:
        return Checkpointing(Path(folder) / "checkpoint", every="30s")
    log.warning(
        "without a checkpoint on storage that all machines reach, a lost worker means to start anew"
    )
    return None


class RemoteProgressBar(ProgressBar):
    """A progress bar of the first worker."""

    _before = Progress()

    def show(self, now: Progress) -> None:
        """Move the bar to the progress of a worker."""
        if not now.max_iter:
            return
        if not self._before.max_iter:
            self.on_start(now.n_sets, now.max_iter, lambda _: None)
        self.on_step(0, now.seen - self._before.seen)
        for record in now.records[len(self._before.records) :]:
            self.on_iteration(record, np.empty(0))
        self._before = now


class WorkerGroup:
    """The workers of a run: actors of Ray, lost if silent for `timeout` seconds."""

    def __init__(self, ray: Any, size: int, timeout: float) -> None:
        self._ray = ray
        self._timeout = timeout
        actor = ray.remote(num_cpus=1, max_restarts=0, max_concurrency=2)(Worker)
        self._workers = [actor.remote() for _ in range(size)]
        self._actors = list(self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for actor in self._actors:
            self._ray.kill(actor)

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self._workers)

    def load(self, files: Sequence[FileOf], columns: Columns) -> None:
        """Wait for the workers that the cluster has room for, and let each read its files."""
        calls = [worker.pid.remote() for worker in self._workers]
        room = min(int(self._ray.cluster_resources().get("CPU", 0)), self.size)
        seconds = max(self._timeout, SECONDS_TO_START)
        self._ray.wait(calls, num_returns=max(room, 1), timeout=seconds)
        outcomes = self._outcomes(calls, self._timeout)
        started = [number for number, pid in enumerate(outcomes) if isinstance(pid, int)]
        for number in set(range(self.size)) - set(started):
            self._ray.kill(self._workers[number])
        if not started:
            failures = [str(error) for error in outcomes if not isinstance(error, TimeoutError)]
            failures.append(f"none within {seconds:g} s: has the cluster a free CPU?")
            raise ClusterError(f"no worker could be started: {failures[0]}")
        if len(started) < self.size:
            log.warning(
                f"only {len(started)} of {self.size} workers could be started: training with those"
            )
        log.info("workers: %s", " ".join(str(outcomes[number]) for number in started))
        self._workers = [self._workers[number] for number in started]
        self.call("load", assign(files, self.size), [columns] * self.size)

    def train(self, task: Task, bar: RemoteProgressBar | None = None) -> TrainingResult:
        """Train on all workers together, and return the result of the first."""
        barrier = self._ray.remote(num_cpus=0, max_concurrency=self.size + 2)(Barrier).remote(
            self.size, self._timeout
        )
        self._actors.append(barrier)
        place = RemoteBarrier(barrier, self._timeout) if self.size > 1 else None
        exchanges = [Exchange(rank, self.size, place) for rank in range(self.size)]
        runs = [
            worker.train.remote(e, task) for worker, e in zip(self._workers, exchanges, strict=True)
        ]
        said: set[str] = set()
        waiting = runs
        while waiting:
            ended, waiting = self._ray.wait(
                runs, num_returns=self.size, timeout=min(1.0, self._timeout / 4)
            )
            if any(
                isinstance(outcome, Exception) for outcome in self._outcomes(ended, self._timeout)
            ):
                barrier.leave.remote("a worker was lost")  # so that the others end soon
                self._results(runs, SECONDS_TO_END)
            for rank, progress in enumerate(self.call("progress")):
                for warning in dict.fromkeys(progress.warnings):
                    if warning not in said:  # all workers see the same data
                        log.warning("worker %s: %s", rank, warning)
                said.update(progress.warnings)
                if rank == 0 and bar is not None:
                    bar.show(progress)
        result: TrainingResult = self._results(runs[:1], self._timeout)[0]
        return result

    def baskets(self) -> Baskets:
        """Return the baskets of all files, after training."""
        found: Baskets = self._results([self._workers[0].baskets.remote()], LONG * self._timeout)[0]
        return found

    def call(self, method: str, *arguments: Sequence[Any]) -> list[Any]:
        """Call a method of every worker, each with its own of all arguments."""
        calls = [
            getattr(worker, method).remote(*own)
            for worker, *own in zip(self._workers, *arguments, strict=True)
        ]
        return self._results(calls, self._timeout if method == "progress" else LONG * self._timeout)

    def _results(self, calls: list[Any], seconds: float) -> list[Any]:
        """Return the results of one call per worker, or raise its error."""
        outcomes = self._outcomes(calls, seconds)
        errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if not errors:
            return outcomes
        for error in errors:
            if isinstance(error, ContradppError) and not isinstance(error, ClusterError):
                raise error
        gone = self._ray.exceptions.RayError
        lost = [str(rank) for rank, outcome in enumerate(outcomes) if isinstance(outcome, gone)]
        first = min(errors, key=lambda error: isinstance(error, ClusterError))
        if lost:
            raise ClusterError(f"lost worker {' and '.join(lost)}") from first
        if isinstance(first, ClusterError):
            raise first
        raise ClusterError(f"a worker failed: {type(first).__name__}: {first}") from first

    def _outcomes(self, calls: list[Any], seconds: float) -> list[Any]:
        """Return the result or the error of every call after so many seconds."""
        end = time.monotonic() + seconds
        outcomes = []
        for call in calls:
            try:
                outcomes.append(self._ray.get(call, timeout=max(end - time.monotonic(), 0.0)))
            except self._ray.exceptions.RayTaskError as error:
                outcomes.append(error.cause)
            except self._ray.exceptions.RayError as error:
                outcomes.append(error)
        return outcomes


# -- Scoring ---------------------------------------------------------------------------------------


class ScoringRun(NamedTuple):
    """The model file, the folder for answers, and the settings of a run of `recommend_folder`."""

    model: str
    folder: Path
    n: int
    exclude: tuple[Hashable, ...]
    unknown: str


def recommend_folder(
    model: StrPath,
    source: str,
    target: StrPath,
    *,
    n: int = 10,
    exclude: Sequence[Hashable] = (),
    unknown: str = "error",
    workers: int = 2,
    address: str | None = None,
) -> tuple[int, int]:
    """Score the files of `source` that have no answers in the folder `target`; count (files, rows).

    Every file has its answers in a file of its name, which is renamed into place when it is whole.
    A run that was interrupted and starts again scores the files that are left.
    """
    files = list_files(source)
    folder = Path(target).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot create the folder {folder}: {error.strerror}") from error
    cd.load(model)  # a damaged one is an error here and now
    query = ScoringRun(os.path.abspath(model), folder, n, tuple(exclude), unknown)
    check_same_run(query)
    left = [{"path": file.path} for file in files if not (folder / Path(file.path).name).exists()]
    if not left:
        return 0, 0
    with session(address, workers) as ray:
        data = import_extra("ray.data")
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        data.DataContext.get_current().enable_progress_bars = False
        left_data = data.from_items(left, override_num_blocks=len(left))
        pool = data.TaskPoolStrategy(size=min(workers, len(left)))
        try:
            with warnings.catch_warnings():
                # Ray drops `max_retries` in 2.64.
                warnings.simplefilter("ignore", DeprecationWarning)
                # Without it, Ray Data repeats a file that ends its process for ever.
                rows = left_data.map(
                    score_row, fn_args=(query,), num_cpus=1, max_retries=3, compute=pool
                ).take_all()
        except ray.exceptions.RayError as error:
            raise ClusterError(f"scoring failed: {error}") from error
    for row in rows:
        if row["error"] is not None:
            raise row["error"]
    return len(left), sum(row["n_rows"] for row in rows)


def check_same_run(query: ScoringRun) -> None:
    """Write model and settings into the folder, and refuse a folder of another run."""
    folder = query.folder
    digest = hashlib.sha256(Path(query.model).read_bytes()).hexdigest()
    now = {"model": digest, "settings": [query.n, list(map(str, query.exclude)), query.unknown]}
    note = folder / "_run.json"
    if not note.exists():
        if any(folder.glob("*.parquet")):
            raise DataError(
                f"{folder} holds Parquet files that are no answers: name another folder"
            )
        persist.write_atomically(note, json.dumps(now).encode())
        return
    try:
        before = json.loads(note.read_bytes())
    except (OSError, ValueError):
        before = None
    if before != now:
        raise DataError(
            f"{folder} holds answers of another model or with other settings: name another folder"
        )


def score_row(row: Values, query: ScoringRun) -> Values:
    """Score one file. An error is a value, since Ray Data turns one that is raised into text."""
    try:
        return {"n_rows": score_file(row["path"], query), "error": None}
    except ContradppError as error:
        return {"n_rows": 0, "error": error}


@lru_cache(maxsize=1)
def load_model(query: ScoringRun) -> tuple[Any, bool]:
    """Load the model once a process; return it, and True if item ids are written as text."""
    model = cd.load(query.model)
    return model, not all(type(item) is int for item in model.items_)


def score_file(path: str, query: ScoringRun) -> int:
    """Write the answers to one file, in its order, and return the number of its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        {
            "row": pa.int64(),
            "items": pa.list_(pa.string() if load_model(query)[1] else pa.int64()),
            "probabilities": pa.list_(pa.float64()),
            "error": pa.string(),
        }
    )
    written = pa.BufferOutputStream()
    n_rows = 0
    try:
        with import_extra("fsspec").open(path, "rb") as stream, pq.ParquetFile(stream) as table:
            layout = layout_of(table.schema_arrow, NO_COLUMNS, where=path)
            if not layout.lists:
                raise DataError(f"{path}: a column with the list of a basket's items is needed")
            with pq.ParquetWriter(written, schema) as out:
                for batch in table.iter_batches(batch_size=BLOCK, columns=[layout.item]):
                    baskets = [basket or [] for basket in batch.column(0).to_pylist()]
                    numbered = enumerate(score(baskets, query), start=n_rows)
                    lines = [{"row": row} | answer for row, answer in numbered]
                    out.write_table(pa.Table.from_pylist(lines, schema=schema))
                    n_rows += len(lines)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be answered ({error})") from error
    persist.write_atomically(query.folder / Path(path).name, written.getvalue().to_pybytes())
    return n_rows


def score(baskets: list[list[Hashable]], query: ScoringRun) -> list[Values]:
    """Recommend for a block of baskets; if that fails, one by one, with the reason."""
    model, as_text = load_model(query)
    if query.unknown == "ignore":
        baskets = [[item for item in basket if item in model.items_] for basket in baskets]
    try:
        found, probabilities = model.recommend(baskets, N=query.n, exclude=query.exclude)
    except ContradppError as error:
        if len(baskets) == 1:
            return [{"items": None, "probabilities": None, "error": str(error)}]
        return [answer for basket in baskets for answer in score([basket], query)]
    answers = []
    for items, chances in zip(found.tolist(), probabilities.tolist(), strict=True):
        filled = [(item, p) for item, p in zip(items, chances, strict=True) if item is not None]
        ids = [str(item) if as_text else item for item, _ in filled]
        answers.append({"items": ids, "probabilities": [p for _, p in filled]})
    return answers
