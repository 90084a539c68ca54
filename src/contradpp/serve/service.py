"""The state that the routes of a worker share: model, threads, batches, metrics, feedback."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from fastapi import HTTPException

from contradpp._threads import resolve_n_jobs
from contradpp.errors import ContradppError, ModelFileError
from contradpp.models.base import DPPRecommender, load
from contradpp.serve.middleware import Metrics
from contradpp.serve.options import ServiceSettings
from contradpp.serve.schemas import ReloadState
from contradpp.serve.snapshot import ModelSnapshot, Ranked, digest, open_model

log = logging.getLogger("contradpp.serve")
T = TypeVar("T")

# Multiply-adds that the event loop does itself: a few milliseconds, less than a thread would cost.
INLINE = 3e7
# Baskets of one matrix product. 80 rows keep the processor busy; more delay the first basket.
MAX_BATCH = 8


class Service:
    """A model with the queues and threads that answer its requests."""

    def __init__(self, settings: ServiceSettings, snapshot: ModelSnapshot | None = None) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.metrics = Metrics()
        self.reloader = Reloader(settings, self.metrics, snapshot)
        # A slow sample must delay neither suggestions nor feedback, so there are three pools.
        pending = self.limits.pending
        n_threads = max(2, resolve_n_jobs(None))
        self.quick = BoundedThreadPool(n_threads, "contradpp-serve", pending)
        self.slow = BoundedThreadPool(1, "contradpp-slow", pending)
        self._writer = BoundedThreadPool(1, "contradpp-feedback", pending)
        # Long requests wait unparsed, in a tenth of the memory, and for memory of their answers.
        self.large = asyncio.Semaphore(n_threads)
        self.parsing = asyncio.Lock()  # the event loop would wait for all that hold the interpreter
        self.batches = Batches(self)

    @property
    def snapshot(self) -> ModelSnapshot:
        """The present model; answers 503 while there is none."""
        snapshot = self.reloader.snapshot
        if snapshot is None:
            raise HTTPException(503, "there is no model yet", {"retry-after": "1"})
        return snapshot

    def check_cost(self, cost: float) -> None:
        """Refuse a request that would take too many multiply-adds."""
        if cost > self.limits.work:
            raise HTTPException(422, "this would take too much work: ask for fewer or smaller sets")

    async def run(self, work: Callable[[], T], cost: float, overhead: float = 0.0) -> T:
        """Do work of at most `limits.work` multiply-adds beside that of Python."""
        self.check_cost(cost)
        return await self.place(work, cost + overhead)

    async def place(self, work: Callable[[], T], cost: float) -> T:
        """Do work of any cost: inline if it is small, else in a thread."""
        return work() if self.is_small(cost) else await self.quick.run(work)

    @staticmethod
    def is_small(cost: float) -> bool:
        """Return whether the event loop does work of this cost itself."""
        return cost <= INLINE

    async def store(self, outcome: str, write: Callable[..., None]) -> None:
        """Append an event to the feedback log by `write(path, time=, model=, rotate=)`."""
        path = self.settings.feedback
        if path is None:
            raise HTTPException(
                503, "this server stores no feedback: start it with --feedback PATH"
            )
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        version = self.snapshot.version
        rotate = self.settings.feedback_bytes
        try:
            await self._writer.run(lambda: write(path, time=now, model=version, rotate=rotate))
        except OSError as error:
            self.metrics.events["feedback_failed"].inc()
            log.error("feedback could not be stored: %s", error)
            status = 507 if error.errno in (errno.ENOSPC, errno.EDQUOT) else 503
            message = "the feedback could not be stored"
            raise HTTPException(status, message) from error
        self.metrics.events[f"feedback_{outcome}"].inc()

    def close(self) -> None:
        """Stop the threads, after writes to the log that have begun."""
        self._writer.pool.shutdown(wait=True)
        for threads in (self.quick, self.slow):
            threads.pool.shutdown(wait=False, cancel_futures=True)


# -- Threads and batches -------------------------------------------------------------------------


class BoundedThreadPool:
    """A thread pool with a bounded queue; beyond it, work is refused with 503.

    Work whose request times out before its turn is dropped.
    """

    def __init__(self, n_threads: int, name: str, pending: int) -> None:
        self.pool = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
        self._slots = threading.Semaphore(pending)

    async def run(self, work: Callable[[], T]) -> T:
        """Do some work in one of the threads."""
        if not self._slots.acquire(blocking=False):
            raise HTTPException(503, "too many requests are waiting", {"retry-after": "1"})
        future = self.pool.submit(work)
        # A request that times out frees its slot, too.
        future.add_done_callback(lambda _: self._slots.release())
        return await asyncio.wrap_future(future)


class _Waiting(NamedTuple):
    snapshot: ModelSnapshot
    basket: list[Hashable]
    n: int
    answer: asyncio.Future[Ranked]


class Batches:
    """A queue that answers simultaneous requests together, by one matrix product for all.

    Requests for single baskets collect while earlier ones are being answered. A request that
    is alone is answered at once. docs/serving.md has the measurement.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._queue: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def recommend(self, snapshot: ModelSnapshot, basket: list[Hashable], n: int) -> Ranked:
        """Return the n best next items of one basket."""
        self._service.check_cost(snapshot.ranking_cost([basket]))
        if len(self._queue) >= self._service.limits.pending:
            raise HTTPException(503, "too many requests are waiting", {"retry-after": "1"})
        answer: asyncio.Future[Ranked] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(snapshot, basket, n, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        return await answer

    async def _drain(self) -> None:
        """Answer batch after batch, each for one model, until the queue is empty."""
        try:
            await asyncio.sleep(0)  # lets requests that arrived with this one join it
            while self._queue:
                snapshot = self._queue[0].snapshot
                batch: list[_Waiting] = []
                while self._queue and len(batch) < MAX_BATCH:
                    if self._queue[0].snapshot is not snapshot:
                        break
                    batch.append(self._queue.popleft())
                # An answer is done before its time if its request was given up.
                await self._answer([waiting for waiting in batch if not waiting.answer.done()])
        finally:
            self._task = None

    async def _answer(self, batch: list[_Waiting]) -> None:
        """Answer requests for one model."""
        if not batch:
            return
        snapshot = batch[0].snapshot
        baskets = [waiting.basket for waiting in batch]
        n = max(waiting.n for waiting in batch)
        try:
            if len(batch) == 1 and snapshot.ranking_cost(baskets) <= INLINE:
                results = snapshot.recommend(baskets, n)
            else:  # meanwhile the event loop reads the next requests
                results = await self._service.quick.run(lambda: snapshot.recommend(baskets, n))
        except Exception as error:
            for waiting in batch:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
            return
        for waiting, ranked in zip(batch, results, strict=True):
            if not waiting.answer.done():
                items = ranked.items[: waiting.n]
                probabilities = ranked.probabilities[: waiting.n]
                waiting.answer.set_result(Ranked(items, probabilities, ranked.problem))


# -- The model file ------------------------------------------------------------------------------


class Reloader:
    """The present model snapshot, replaced when the model file changes, without a lost request.

    One assignment replaces `snapshot`: a request finishes with the model it started with.
    In a server of several workers, a spare file has the last good model. A worker that starts
    when the model file is bad reads it.
    """

    def __init__(
        self, settings: ServiceSettings, metrics: Metrics, snapshot: ModelSnapshot | None = None
    ) -> None:
        self._path = settings.model
        self._spare = settings.shared_dir and os.path.join(
            settings.shared_dir, "last-good.safetensors"
        )
        self._n_jobs = settings.n_jobs
        self._metrics = metrics
        self._last_stamp: tuple[int, int, int] | None = None
        self._lock = threading.Lock()
        self.snapshot = snapshot
        self.state = ReloadState()

    def reload(self) -> bool:
        """Load the file, and return whether it holds another model than before.

        A file that cannot be used raises `ModelFileError`, and the present model stays.
        """
        with self._lock:
            self._last_stamp = self._stamp()
            try:
                changed = self._open(self._path)
                self._write_spare()
                self.state.error = None
            except (ContradppError, OSError, MemoryError) as error:
                raise self._failure(error) from error
            finally:
                present = self.snapshot
                gauges = self._metrics.state
                gauges["model_ready"].set(present is not None)
                gauges["model_items"].set(0 if present is None else len(present.items))
                gauges["model_file_bad"].set(self.state.error is not None)
            return changed

    def _failure(self, error: Exception) -> ModelFileError:
        """Record a failure to load the file, fall back to the spare, and return the error."""
        self.state.failures += 1
        # The log names the path; `state.error` is public at /v1/model and does not.
        self.state.error = str(error).replace(self._path, os.path.basename(self._path))
        if self.snapshot is None and self._spare:
            with suppress(ContradppError, OSError):
                self._open(self._spare)
        self._metrics.events["model_reload_failures"].inc()
        present = self.snapshot
        state = "no model is served" if present is None else f"model {present.version} stays"
        log.error("cannot load the model: %s; %s", error, state)
        return ModelFileError(self.state.error)

    def _open(self, path: str) -> bool:
        """Open the model of a file; return whether it is another one than before."""
        version = digest(path)
        before = self.snapshot
        if before is not None and before.version == version:
            return False
        self.snapshot = open_model(path, self._n_jobs, version)
        if before is not None:
            self.state.reloads += 1
            self._metrics.events["model_reloads"].inc()
        return True

    def _write_spare(self) -> None:
        """Write the present model for other workers, unless one of them has."""
        if not self._spare or self.snapshot is None:
            return
        try:
            if not os.path.exists(self._spare) or digest(self._spare) != self.snapshot.version:
                self.snapshot.model.save(self._spare)
        except (ContradppError, OSError) as error:
            log.warning("the last good model could not be saved for new workers: %s", error)

    def edit(self, change: Callable[[DPPRecommender], None]) -> None:
        """Change the model in its file, then reload it; the present snapshot stays as it is.

        If the file was written meanwhile, this raises `ModelFileError` and changes nothing.
        """
        with self._lock:
            before = digest(self._path)
            model = load(self._path)
            change(model)
            if digest(self._path) != before:
                message = "the model file was written by someone else just now: try again"
                raise ModelFileError(message)
            model.save(self._path)
        self.reload()

    def reload_if_changed(self) -> None:
        """Load the file if it is not the one last tried; a failure is recorded, not raised."""
        if self._stamp() not in (self._last_stamp, None):
            with suppress(ModelFileError):
                self.reload()

    async def watch(self, seconds: float) -> None:
        """Check the file again and again until canceled."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await asyncio.to_thread(self.reload_if_changed)
            except Exception:
                log.exception("watching the model file failed; the present model stays")

    def _stamp(self) -> tuple[int, int, int] | None:
        """Return inode, time and size of the file, which change when it is replaced or written."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size
