"""What all routes of one worker share: the model, the counters, the feedback log, a few threads, and batches."""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from contradpp._threads import resolve_n_jobs
from contradpp.serve.counters import Counters
from contradpp.serve.gate import Refused
from contradpp.serve.options import ServiceSettings
from contradpp.serve.reloader import Reloader
from contradpp.serve.served import Ranked, Served

log = logging.getLogger("contradpp.serve")
T = TypeVar("T")

# Multiply-adds that the event loop may do itself, a few milliseconds: a thread costs more than it saves below that.
INLINE = 3e7
# Baskets of one product. More bring little: 80 rows keep the processor busy, and the first basket waits for the last.
MOST_TOGETHER = 8


class Lane:
    """A few threads, and at most so many works that wait or run; the next one is refused with 503.

    Work whose request is given up before its turn is dropped.
    """

    def __init__(self, threads: int, name: str, most: int) -> None:
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = most
        self._pending = 0
        self._counting = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Do some work in one of the threads."""
        with self._counting:
            if self._pending >= self._most:
                raise Refused(503, "too many requests are waiting", retry_after="1")
            self._pending += 1
        future = self.pool.submit(work)
        future.add_done_callback(self._done)  # also when nobody waits for it any more
        return await asyncio.wrap_future(future)

    def _done(self, _: Future[T]) -> None:
        with self._counting:
            self._pending -= 1


class Service:
    """The parts of a worker, and how work is done on them."""

    def __init__(self, settings: ServiceSettings, counters: Counters, served: Served | None = None) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.counters = counters
        spare = settings.shared_dir and os.path.join(settings.shared_dir, "last-good.safetensors")
        self.reloader = Reloader(
            settings.model, n_jobs=settings.n_jobs, tell=counters.event, spare=spare, served=served
        )
        # Three lanes, so that a slow sample holds up neither suggestions nor feedback.
        self.quick = Lane(max(2, resolve_n_jobs(None)), "contradpp-serve", self.limits.pending)
        self.slow = Lane(1, "contradpp-slow", self.limits.pending)
        self._writer = Lane(1, "contradpp-feedback", self.limits.pending)
        self.batches = Batches(self)

    @property
    def served(self) -> Served:
        """The present model; `Refused` with 503 while there is none."""
        served = self.reloader.served
        if served is None:
            raise Refused(503, "there is no model yet", retry_after="1")
        return served

    def afford(self, cost: float) -> None:
        """Refuse a request that would take too many multiply-adds."""
        if cost > self.limits.work:
            raise Refused(422, "this would take too much work: ask for fewer or smaller sets")

    async def run(self, work: Callable[[], T], cost: float) -> T:
        """Do some work that takes so many multiply-adds, unless they are too many."""
        self.afford(cost)
        return await self.place(work, cost)

    async def place(self, work: Callable[[], T], cost: float) -> T:
        """Do some work that takes so many multiply-adds: here if it is small, else in a thread."""
        return work() if cost <= INLINE else await self.quick.run(work)

    def check_token(self, given: str | None) -> None:
        """Refuse a request whose token is not ours, in a time that does not depend on how wrong it is."""
        token = self.settings.token
        if token is None:
            return
        if given is None or not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
            raise Refused(401, "this needs the server's token: Authorization: Bearer ...", www_authenticate="Bearer")

    async def store(self, outcome: str, write: Callable[..., None]) -> None:
        """Append an event to the feedback log, durably, by a function of the log's path and of facts to note."""
        path = self.settings.feedback
        if path is None:
            raise Refused(503, "this server keeps no feedback: start it with --feedback PATH")
        facts: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        facts |= {"model": self.served.version, "rotate": self.settings.feedback_bytes}
        try:
            await self._writer.run(lambda: write(path, **facts))
        except OSError as error:
            self.counters.event("feedback_failed")
            log.error("feedback could not be stored: %s", error)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise Refused(507 if full else 503, "the feedback could not be stored; nothing was kept") from error
        self.counters.event(f"feedback_{outcome}")

    def close(self) -> None:
        """End the threads; what they have begun, such as a write to the log, they finish."""
        self._writer.pool.shutdown(wait=True, cancel_futures=False)
        for lane in (self.quick, self.slow):
            lane.pool.shutdown(wait=False, cancel_futures=True)


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
        """The n best next items of one basket."""
        self._service.afford(served.ranking_cost([basket]))
        if len(self._waiting) >= self._service.limits.pending:
            raise Refused(503, "too many requests are waiting", retry_after="1")
        answer: asyncio.Future[Ranked] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(served, basket, n, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        try:
            await asyncio.sleep(0)  # lets the requests that arrived with this one join it
            while self._waiting:
                await self._answer(self._next())
        finally:
            self._task = None

    def _next(self) -> list[_Waiting]:
        """The next few questions to one model, without those whose request has been given up."""
        batch: list[_Waiting] = []
        while self._waiting and len(batch) < MOST_TOGETHER:
            if batch and self._waiting[0].served is not batch[0].served:
                break
            one = self._waiting.popleft()
            if not one.answer.done():
                batch.append(one)
        return batch

    async def _answer(self, batch: list[_Waiting]) -> None:
        if not batch:
            return
        served, most, baskets = batch[0].served, max(one.n for one in batch), [one.basket for one in batch]
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
