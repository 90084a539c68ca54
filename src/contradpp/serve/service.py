"""What all routes of one worker share: the model, the metrics, the feedback log, a few threads, and batches."""

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
from typing import Any, NamedTuple, TypeVar

from fastapi import FastAPI, HTTPException, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_fastapi_instrumentator import Instrumentator
from prometheus_fastapi_instrumentator.metrics import Info

from contradpp._threads import resolve_n_jobs
from contradpp.errors import ContradppError, ModelFileError
from contradpp.models.base import BaseDPP, load
from contradpp.serve.options import ServiceSettings
from contradpp.serve.schemas import ReloadState
from contradpp.serve.served import Ranked, Served, digest, open_model

log = logging.getLogger("contradpp.serve")
T = TypeVar("T")

# Multiply-adds that the event loop may do itself, a few milliseconds: a thread costs more than it saves below that.
INLINE = 3e7
# Baskets of one product. More bring little: 80 rows keep the processor busy, and the first basket waits for the last.
MOST_TOGETHER = 8


class Service:
    """The parts of a worker, and how work is done on them."""

    def __init__(self, settings: ServiceSettings, served: Served | None = None) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.metrics = Metrics()
        spare = settings.shared_dir and os.path.join(settings.shared_dir, "last-good.safetensors")
        self.reloader = Reloader(
            settings.model, n_jobs=settings.n_jobs, metrics=self.metrics, spare=spare, served=served
        )
        # Three pools, so that a slow sample holds up neither suggestions nor feedback.
        self.quick = BoundedPool(max(2, resolve_n_jobs(None)), "contradpp-serve", self.limits.pending)
        self.slow = BoundedPool(1, "contradpp-slow", self.limits.pending)
        self._writer = BoundedPool(1, "contradpp-feedback", self.limits.pending)
        self.batches = Batches(self)

    @property
    def served(self) -> Served:
        """The present model; answer 503 while there is none."""
        served = self.reloader.served
        if served is None:
            raise HTTPException(503, "there is no model yet", {"retry-after": "1"})
        return served

    def afford(self, cost: float) -> None:
        """Refuse a request that would take too many multiply-adds."""
        if cost > self.limits.work:
            raise HTTPException(422, "this would take too much work: ask for fewer or smaller sets")

    async def run(self, work: Callable[[], T], cost: float) -> T:
        """Do some work that takes so many multiply-adds, unless they are too many."""
        self.afford(cost)
        return await self.place(work, cost)

    async def place(self, work: Callable[[], T], cost: float) -> T:
        """Do some work that takes so many multiply-adds: here if it is small, else in a thread."""
        return work() if cost <= INLINE else await self.quick.run(work)

    async def store(self, outcome: str, write: Callable[..., None]) -> None:
        """Append an event to the feedback log, durably, by a function of the log's path and of facts to note."""
        path = self.settings.feedback
        if path is None:
            raise HTTPException(503, "this server keeps no feedback: start it with --feedback PATH")
        facts: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        facts |= {"model": self.served.version, "rotate": self.settings.feedback_bytes}
        try:
            await self._writer.run(lambda: write(path, **facts))
        except OSError as error:
            self.metrics.events["feedback_failed"].inc()
            log.error("feedback could not be stored: %s", error)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise HTTPException(507 if full else 503, "the feedback could not be stored; nothing was kept") from error
        self.metrics.events[f"feedback_{outcome}"].inc()

    def close(self) -> None:
        """End the threads; what they have begun, such as a write to the log, they finish."""
        self._writer.pool.shutdown(wait=True)
        for pool in (self.quick, self.slow):
            pool.pool.shutdown(wait=False, cancel_futures=True)


# -- Metrics ---------------------------------------------------------------------------------------

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
EVENTS = {
    "feedback_accepted": "Accepted sets that were kept.",
    "feedback_rejected": "Rejected sets that were kept.",
    "feedback_shown": "Impressions that were kept.",
    "feedback_failed": "Sets that could not be kept.",
    "model_reloads": "How often a new model took over.",
    "model_reload_failures": "How often the model file could not be used.",
}
STATE = {
    "model_ready": "Whether there is a model.",
    "model_items": "How many items it has.",
    "model_file_bad": "Whether the model file cannot be used.",
}


class Metrics:
    """Counters and latencies for Prometheus, of all workers of one server; the state is that of the last to look."""

    def __init__(self) -> None:
        self.registry = mine = CollectorRegistry()
        words = "Requests by path and status."
        self._requests = Counter("contradpp_requests", words, ["path", "status"], registry=mine)
        words = "Time from a request's arrival to the start of its answer."
        self._seconds = Histogram("contradpp_request_seconds", words, ["path"], buckets=BUCKETS, registry=mine)
        self.events = {name: Counter(f"contradpp_{name}", what, registry=mine) for name, what in EVENTS.items()}
        self.state = {
            name: Gauge(f"contradpp_{name}", what, registry=mine, multiprocess_mode="mostrecent")
            for name, what in STATE.items()
        }

    def instrument(self, app: FastAPI) -> None:
        """Count the requests of an application, and show all counts at /metrics."""
        instrumentator = Instrumentator(should_group_status_codes=False, registry=self.registry)
        instrumentator.add(self._request).instrument(app)
        instrumentator.expose(
            app, tags=["operation"], response_class=Response, responses={200: {"content": {"text/plain": {}}}}
        )

    def _request(self, info: Info) -> None:
        path = "other" if info.modified_handler == "none" else info.modified_handler
        self._requests.labels(path, info.modified_status).inc()
        self._seconds.labels(path).observe(info.modified_duration_without_streaming)


# -- The model file --------------------------------------------------------------------------------


class Reloader:
    """The model that is served: loads it, watches its file, and swaps in a new one without dropping a request.

    `served` is replaced by one assignment: a request that has taken it goes on with the model it took. `spare` is a
    file for the last good model, for a worker that starts when the model file is bad.
    """

    def __init__(
        self, path: str, *, n_jobs: int, metrics: Metrics, spare: str | None = None, served: Served | None = None
    ) -> None:
        self._path = path
        self._spare = spare
        self._metrics = metrics
        self._n_jobs = n_jobs
        self._seen: tuple[int, int, int] | None = None
        self._one_at_a_time = threading.Lock()
        self.served = served
        self.state = ReloadState()

    def reload(self) -> bool:
        """Load the file as it is now, and return whether another model is served afterwards.

        A file that cannot be used raises `ModelFileError`, and the model before it stays.
        """
        with self._one_at_a_time:
            self._seen = self._stamp()
            try:
                changed = self._take(self._path)
                self._keep_spare()
                self.state.error = None
            except (ContradppError, OSError, MemoryError) as error:
                self.state.failures += 1
                # The path is for the log; `error` is shown to whoever asks for /v1/model.
                self.state.error = str(error).replace(self._path, os.path.basename(self._path))
                if self.served is None and self._spare is not None:
                    with suppress(ContradppError, OSError):
                        self._take(self._spare)
                self._metrics.events["model_reload_failures"].inc()
                kept = "no model is served" if self.served is None else f"model {self.served.version} stays"
                log.error("cannot load the model: %s; %s", error, kept)
                raise ModelFileError(self.state.error) from error
            finally:
                shown = self._metrics.state
                shown["model_ready"].set(self.served is not None)
                shown["model_items"].set(0 if self.served is None else len(self.served.items))
                shown["model_file_bad"].set(self.state.error is not None)
            return changed

    def _take(self, path: str) -> bool:
        """Serve the model of this file; return whether it is another one than before."""
        version = digest(path)
        before = self.served
        if before is not None and before.version == version:
            return False
        self.served = open_model(path, self._n_jobs, version)
        if before is not None:
            self.state.reloads += 1
            self._metrics.events["model_reloads"].inc()
        return True

    def _keep_spare(self) -> None:
        """Write the present model where another worker finds it, unless one has done so."""
        if self._spare is None or self.served is None:
            return
        try:
            if not os.path.exists(self._spare) or digest(self._spare) != self.served.version:
                self.served.model.save(self._spare)
        except (ContradppError, OSError) as error:
            log.warning("the last good model could not be kept for new workers: %s", error)

    def change(self, work: Callable[[BaseDPP], None]) -> None:
        """Do something to the model in its file, and serve what comes of it; the model that is served stays as it is.

        If someone else has written the file meanwhile, `ModelFileError` says so, and nothing was changed.
        """
        with self._one_at_a_time:
            before = digest(self._path)
            model = load(self._path)
            work(model)
            if digest(self._path) != before:
                raise ModelFileError("the model file was written by someone else just now: try again")
            model.save(self._path)
        self.reload()

    def reload_if_changed(self) -> None:
        """Load the file if it is not the one that was last tried; a failure is noted, not raised."""
        if self._stamp() not in (self._seen, None):
            with suppress(ModelFileError):
                self.reload()

    async def watch(self, seconds: float) -> None:
        """Look at the file again and again until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await asyncio.to_thread(self.reload_if_changed)
            except Exception:
                log.exception("watching the model file failed; the present model stays")

    def _stamp(self) -> tuple[int, int, int] | None:
        """Return what changes when the file is replaced or written to."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


# -- Threads and batches ---------------------------------------------------------------------------


class BoundedPool:
    """A few threads, and at most so many works that wait or run; the next one is refused with 503.

    Work whose request is given up before its turn is dropped.
    """

    def __init__(self, threads: int, name: str, most: int) -> None:
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._places = threading.Semaphore(most)

    async def run(self, work: Callable[[], T]) -> T:
        """Do some work in one of the threads."""
        if not self._places.acquire(blocking=False):
            raise HTTPException(503, "too many requests are waiting", {"retry-after": "1"})
        future = self.pool.submit(work)
        future.add_done_callback(lambda _: self._places.release())  # also when nobody waits for it any more
        return await asyncio.wrap_future(future)


class _Waiting(NamedTuple):
    served: Served
    basket: list[Hashable]
    n: int
    answer: asyncio.Future[Ranked]


class Batches:
    """Requests that come together are answered together: one matrix product for all instead of one for each.

    Questions about single baskets are collected while the ones before them are being answered; a question that is
    alone is answered at once, as if there were no batches. docs/serving.md has the measurement.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def recommend(self, served: Served, basket: list[Hashable], n: int) -> Ranked:
        """Return the n best next items of one basket."""
        self._service.afford(served.ranking_cost([basket]))
        if len(self._waiting) >= self._service.limits.pending:
            raise HTTPException(503, "too many requests are waiting", {"retry-after": "1"})
        answer: asyncio.Future[Ranked] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(served, basket, n, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        try:
            await asyncio.sleep(0)  # lets the requests that arrived with this one join it
            while self._waiting:
                batch = [self._waiting.popleft()]
                while self._waiting and self._waiting[0].served is batch[0].served and len(batch) < MOST_TOGETHER:
                    batch.append(self._waiting.popleft())
                await self._answer([one for one in batch if not one.answer.done()])  # a request may be given up
        finally:
            self._task = None

    async def _answer(self, batch: list[_Waiting]) -> None:
        """Answer a few questions to one model."""
        if not batch:
            return
        served = batch[0].served
        baskets = [one.basket for one in batch]
        most = max(one.n for one in batch)
        try:
            if len(batch) == 1 and served.ranking_cost(baskets) <= INLINE:
                found = served.recommend(baskets, most)
            else:  # several go to a thread, so that the event loop can read the next requests meanwhile
                found = await self._service.quick.run(lambda: served.recommend(baskets, most))
        except Exception as error:
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        for one, ranked in zip(batch, found, strict=True):
            if not one.answer.done():
                one.answer.set_result(Ranked(ranked.items[: one.n], ranked.probabilities[: one.n], ranked.problem))
