"""Counters and latency histograms in Prometheus' text format, summed over the workers of one server."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
STATUSES = (
    "200", "204", "304", "400", "401", "404", "405", "408", "413", "415", "422", "500", "503", "504", "507", "other",
)  # fmt: skip
EVENTS = ("feedback_accepted", "feedback_rejected", "feedback_failed", "model_reloads", "model_reload_failures")
OTHER = "other"


class Metrics:
    """What one worker has counted, in an array that the other workers can read.

    Parameters
    ----------
    routes : sequence of str
        The paths to tell apart; all others count as one.
    folder : str, optional
        Where the workers of a server keep their arrays; without it there is one worker. The files of workers that
        have ended stay, so that a sum never falls.
    """

    def __init__(self, routes: Sequence[str], folder: str | None = None) -> None:
        self._routes = (*routes, OTHER)
        self._row = {route: row for row, route in enumerate(self._routes)}
        self._column = {status: column for column, status in enumerate(STATUSES)}
        self._folder = None if folder is None else Path(folder)
        self._width = len(STATUSES) + len(BUCKETS) + 2  # counts by status; buckets, the last without bound; seconds
        self._cells = len(self._routes) * self._width + len(EVENTS)
        self._mine = np.zeros(self._cells) if self._folder is None else self._shared(self._folder)
        self._requests = self._mine[: len(self._routes) * self._width].reshape(len(self._routes), self._width)
        self._events = self._mine[len(self._routes) * self._width :]

    def _shared(self, folder: Path) -> Array:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{os.getpid()}.counts", "w+b") as file:
            file.truncate(8 * self._cells)
            return np.frombuffer(mmap.mmap(file.fileno(), 8 * self._cells), dtype=np.float64)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        row = self._requests[self._row.get(route, len(self._routes) - 1)]
        row[self._column.get(str(status), len(STATUSES) - 1)] += 1
        row[len(STATUSES) + bisect_left(BUCKETS, seconds)] += 1
        row[-1] += seconds

    def event(self, name: str) -> None:
        """Count one of EVENTS."""
        self._events[EVENTS.index(name)] += 1

    def text(self, **gauges: float) -> str:
        """Everything counted so far, and these gauges of this worker."""
        return "\n".join([*self._lines(self._total()), *_gauges(gauges), ""])

    def _total(self) -> Array:
        if self._folder is None:
            return self._mine
        total = np.zeros(self._cells)
        for file in sorted(self._folder.glob("*.counts")):
            counts = np.fromfile(file)
            if len(counts) == self._cells:
                total += counts
        return total

    def _lines(self, total: Array) -> Iterator[str]:
        rows = total[: len(self._routes) * self._width].reshape(len(self._routes), self._width)
        n = len(STATUSES)
        yield "# HELP contradpp_requests_total Requests by path and status."
        yield "# TYPE contradpp_requests_total counter"
        for route, row in zip(self._routes, rows, strict=True):
            for status, count in zip(STATUSES, row[:n], strict=True):
                if count:
                    yield f'contradpp_requests_total{{path="{route}",status="{status}"}} {count:.0f}'
        yield "# HELP contradpp_request_seconds Time from a request's first byte to the start of its answer."
        yield "# TYPE contradpp_request_seconds histogram"
        for route, row in zip(self._routes, rows, strict=True):
            counts = np.cumsum(row[n:-1])
            if not counts[-1]:
                continue
            for bound, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                yield f'contradpp_request_seconds_bucket{{path="{route}",le="{bound}"}} {count:.0f}'
            yield f'contradpp_request_seconds_sum{{path="{route}"}} {row[-1]:.6f}'
            yield f'contradpp_request_seconds_count{{path="{route}"}} {counts[-1]:.0f}'
        for name, count in zip(EVENTS, total[len(self._routes) * self._width :], strict=True):
            yield f"# TYPE contradpp_{name}_total counter"
            yield f"contradpp_{name}_total {count:.0f}"


def _gauges(gauges: dict[str, float]) -> Iterator[str]:
    for name, value in gauges.items():
        yield f"# TYPE contradpp_{name} gauge"
        yield f"contradpp_{name} {value:g}"
