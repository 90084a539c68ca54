"""What all routes of one worker share: the model, the counters, the feedback log and a few threads."""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from contradpp._threads import resolve_n_jobs
from contradpp.data.feedback import Outcome, append_feedback
from contradpp.serve.batches import Batches
from contradpp.serve.errors import Refused
from contradpp.serve.keeper import Keeper
from contradpp.serve.metrics import Metrics
from contradpp.serve.served import Served
from contradpp.serve.settings import ServeSettings

log = logging.getLogger("contradpp.serve")
T = TypeVar("T")

# Multiply-adds that the event loop may do itself, a few milliseconds: a thread costs more than it saves below that.
INLINE = 3e7


class Service:
    """The parts of a worker, and how work is done on them.

    Parameters
    ----------
    settings : ServeSettings
    metrics : Metrics
    """

    def __init__(self, settings: ServeSettings, metrics: Metrics) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.metrics = metrics
        spare = settings.shared_dir and os.path.join(settings.shared_dir, "last-good.safetensors")
        self.keeper = Keeper(settings.model, n_jobs=settings.n_jobs, tell=metrics.event, spare=spare)
        self._threads = ThreadPoolExecutor(max(2, resolve_n_jobs(None)), thread_name_prefix="contradpp-serve")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="contradpp-feedback")
        self._pending = 0
        self.batches = Batches(self)

    @property
    def served(self) -> Served:
        """The present model; `Refused` with 503 while there is none."""
        served = self.keeper.served
        if served is None:
            raise Refused(503, "there is no model yet", retry_after="1")
        return served

    async def run(self, work: Callable[[], T], *, entries: float = float("inf")) -> T:
        """Do some work on the model: here if it is small, else in a thread.

        Parameters
        ----------
        entries : float
            Rows of the product with V that the work amounts to.
        """
        served = self.served
        if entries * served.cost <= INLINE:
            return work()
        return await self.in_thread(work)

    async def in_thread(self, work: Callable[[], T], *, writer: bool = False) -> T:
        """Do some work in a thread, unless too much waits there already."""
        if self._pending >= self.limits.pending:
            raise Refused(503, "too many requests are waiting", retry_after="1")
        self._pending += 1
        future = asyncio.get_running_loop().run_in_executor(self._writer if writer else self._threads, work)
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def _done(self, future: asyncio.Future[T]) -> None:
        """Note the end of work, also when its request has timed out and nobody waits for it any more."""
        self._pending -= 1
        if not future.cancelled():
            future.exception()

    def check_token(self, given: str | None) -> None:
        """Refuse a request whose token is not ours, in a time that does not depend on how wrong it is."""
        token = self.settings.token
        if token is None:
            return
        if given is None or not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
            raise Refused(401, "this needs the server's token: Authorization: Bearer ...", www_authenticate="Bearer")

    async def store(self, outcome: Outcome, items: list[Hashable], *, judged: int, id: str | None) -> None:
        """Append an event to the feedback log, durably."""
        path = self.settings.feedback
        if path is None:
            raise Refused(503, "this server keeps no feedback: start it with --feedback PATH")
        facts = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "model": self.served.version}
        try:
            await self.in_thread(
                lambda: append_feedback(path, outcome, items, judged=judged, id=id, **facts), writer=True
            )
        except OSError as error:
            self.metrics.event("feedback_failed")
            log.error("feedback could not be stored: %s", error)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise Refused(507 if full else 503, "the feedback could not be stored; nothing was kept") from error
        self.metrics.event(f"feedback_{outcome}")

    def close(self) -> None:
        """End the threads; what they have begun, such as a write to the log, they finish."""
        self._writer.shutdown(wait=True, cancel_futures=False)
        self._threads.shutdown(wait=False, cancel_futures=True)
