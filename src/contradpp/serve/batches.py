"""Requests that come together are answered together: one matrix product for all instead of one for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

from contradpp.serve.errors import Refused
from contradpp.serve.served import Ranked, Served

if TYPE_CHECKING:
    from contradpp.serve.service import Service

# Baskets of one product. More bring little: 80 rows keep the processor busy, and the first basket waits for the last.
MOST = 8


class _Waiting(NamedTuple):
    served: Served
    basket: list[Hashable]
    n: int
    answer: asyncio.Future[Ranked]


class Batches:
    """Collects questions about single baskets while the one before them is being answered.

    A question that is alone is answered at once, as if there were no batches. docs/serving.md has the measurement.

    Parameters
    ----------
    service : Service
        Does the work.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def recommend(self, served: Served, basket: list[Hashable], n: int) -> Ranked:
        """The n best next items of one basket."""
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
        while self._waiting and len(batch) < MOST and (not batch or self._waiting[0].served is batch[0].served):
            one = self._waiting.popleft()
            if not one.answer.done():
                batch.append(one)
        return batch

    async def _answer(self, batch: list[_Waiting]) -> None:
        if not batch:
            return
        try:
            found = await self._service.run(_product(batch), entries=_entries(batch))
        except Exception as error:
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        for one, ranked in zip(batch, found, strict=True):
            if not one.answer.done():
                one.answer.set_result(Ranked(ranked.items[: one.n], ranked.probabilities[: one.n], ranked.problem))


def _product(batch: list[_Waiting]) -> Callable[[], list[Ranked]]:
    served, most = batch[0].served, max(one.n for one in batch)
    return lambda: served.recommend([one.basket for one in batch], most)


def _entries(batch: list[_Waiting]) -> float:
    """Several go to a thread, so that the event loop can read the next requests meanwhile."""
    return len(batch[0].basket) + 1 if len(batch) == 1 else float("inf")
