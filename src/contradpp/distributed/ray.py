"""The engine "ray": learns on workers of a Ray cluster, and replaces those that die.

A checkpoint is kept along the way: when a worker is lost, a new one reads its files, and all go on from the checkpoint.
For the other voices of a `ConditionalDPP` workers count and solve regressions; the rest is done here.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, pointers, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.distributed.crew import Crew, News, Task
from contradpp.distributed.learning import Held, Keeping, Model, adopt, parameters_for_all, refuse_unsupported
from contradpp.distributed.shards import NO_COLUMNS, Columns, Positions, import_extra, list_files
from contradpp.errors import ClusterError, ParameterError
from contradpp.experts.statistics import Labour
from contradpp.learn.callbacks import ProgressBar
from contradpp.learn.params import Parameter
from contradpp.models.conditional import ConditionalDPP, not_in

log = logging.getLogger("contradpp")


@contextmanager
def session(address: str | None, workers: int) -> Iterator[Any]:
    """Ray, connected to a cluster or with a small one of its own, which ends with the block."""
    ray = import_extra("ray")
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
    model: Any,
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
    local_steps: int | None = None,
) -> None:
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
    mode : {"replicated"}
        The others are gone, and `local_steps` with them.
    """
    del local_steps
    refuse_gone(mode)
    kernel, held = parts_of(model, validation)
    refuse_unsupported(kernel)
    Parameter("workers", "", low=1, whole=True).check(workers)
    Parameter("timeout", "", low=0, above=True).check(timeout)
    if not isinstance(source, (str, os.PathLike)):
        raise ParameterError(f"engine='ray' reads Parquet files by itself: pass a path, not {type(source).__name__}")
    if not (validation is None or isinstance(validation, float)):
        raise ParameterError("with engine='ray', validation is a share of the baskets")
    parameters = parameters_for_all(kernel, checkpoint, resume, checkpoint_every)
    files = list_files(os.fspath(source))
    follower = Follower(shown=bool(model.verbose))
    with tempfile.TemporaryDirectory() as folder, session(address, workers) as ray:
        place = place_of(ray, checkpoint, folder)
        keeping = None if place is None else Keeping(place, checkpoint_every, resume)
        task = Task(type(kernel), parameters, tuple(file.path for file in files), held, keeping)
        crew = Crew(ray, files, columns or NO_COLUMNS, float(timeout), follower.follow)

        def work(task: Task) -> None:
            adopt(kernel, crew.train(task))
            if callable(held):
                learn_voices(model, kernel, crew, held)

        try:
            run(crew, task, work, workers, restarts)
        finally:
            crew.dismiss()
            follower.bar.on_end()


def refuse_gone(mode: str) -> None:
    """Say of modes that there once were what to use instead."""
    if mode in ("sharded", "local"):
        raise ParameterError(
            f"mode={mode!r} is gone: every worker has all parameters and a share of every batch. Leave it out, or use "
            "mode='replicated'; docs/scale.md says what that costs"
        )
    Parameter("mode", "", choices=("replicated",)).check(mode)


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

    def __init__(self, *, shown: bool) -> None:
        self.bar = ProgressBar()
        self._shown, self._started, self._seen, self._rounds = shown, False, 0, 0

    def follow(self, news: News) -> None:
        """Take over what the worker said."""
        if not self._shown or not news.max_iter:
            return
        if not self._started:
            self._started = True
            self.bar.on_start(news.n_sets, news.max_iter, lambda _: None)  # type: ignore[arg-type, return-value]
        self.bar.on_step(0, news.seen - self._seen)
        for record in news.records[self._rounds :]:
            self.bar.on_iteration(record, np.empty(0))
        self._seen, self._rounds = news.seen, len(news.records)


def run(crew: Crew, task: Task, work: Callable[[Task], None], workers: int, restarts: int) -> None:
    """Work until it is done, again from the checkpoint each time that a worker is lost."""
    for attempt in range(restarts + 1):
        try:
            crew.fill(workers)
            work(task)
            return
        except ClusterError as error:
            if attempt == restarts:
                raise ClusterError(f"gave up after {restarts} restarts; the last failure: {error}") from error
            log.warning("%s. Going on from the last checkpoint", error)
            task = replace(task, keeping=task.keeping and replace(task.keeping, resume=True))
    raise ClusterError("no attempt was allowed")


# -- The other voices of a conditional model -----------------------------------------------------------


def parts_of(model: Any, validation: float | None) -> tuple[Model, Held]:
    """The kernel that is to be learned for a model, which may be one itself, and what is held out."""
    if isinstance(model, ConditionalDPP):
        return model.new_kernel(), model.held_out(validation)
    return model, validation


def learn_voices(model: ConditionalDPP, kernel: Model, crew: Crew, held_out: Callable[[int], Positions]) -> None:
    """All that comes after the kernel, with the crew that has just learned it."""
    baskets = gathered(crew, kernel.items_)
    held = held_out(baskets.n_baskets)
    rest = not_in(held, baskets.n_baskets)
    seen, everything = (SharedLabour(baskets, numbers, crew) for numbers in (rest, np.arange(baskets.n_baskets)))
    model.learn_voices(kernel, baskets.subset(held), seen, everything)


def gathered(crew: Crew, items: Vocabulary) -> Baskets:
    """The baskets of all workers, by their numbers."""
    numbers, parts = zip(*crew.ask("baskets"), strict=True)
    sizes = np.concatenate([part.sizes for part in parts])
    together = Sets(pointers(sizes), np.concatenate([part.indices for part in parts]))
    ordered = take_sets(together, np.argsort(np.concatenate(numbers)))
    return Baskets(ordered.indptr, ordered.indices, items)


class SharedLabour(Labour):
    """Counts and regressions over the baskets of these numbers, shared out among the workers."""

    def __init__(self, baskets: Baskets, numbers: Positions, crew: Crew) -> None:
        super().__init__(baskets.subset(numbers))
        self._numbers, self._crew = numbers, crew

    def _count(self) -> Any:
        numbers = self._crew.send(self._numbers)
        return reduce(add, self._crew.ask("count_together", [numbers] * self._crew.size))

    def _regress(
        self, counts: NDArray[np.float64], diagonal: NDArray[np.float64], n_neighbours: int, n_jobs: int
    ) -> Any:
        del n_jobs
        from scipy.sparse import hstack

        size = self._crew.size
        system = self._crew.send((*self.together, counts, diagonal))
        ends = np.linspace(0, len(counts), size + 1).astype(int).tolist()
        shares = [range(ends[k], ends[k + 1]) for k in range(size)]
        return hstack(self._crew.ask("regress", [system] * size, [n_neighbours] * size, shares), format="csc")
