"""Counters and latency histograms for Prometheus, summed over the workers of one server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

# Set before a worker starts, it makes prometheus-client keep its counts in files that every worker can read. Those of
# workers that have ended stay, so that a sum never falls.
SHARED = "PROMETHEUS_MULTIPROC_DIR"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
EVENTS = {
    "feedback_accepted": "Accepted sets that were kept.",
    "feedback_rejected": "Rejected sets that were kept.",
    "feedback_shown": "Impressions that were kept.",
    "feedback_failed": "Sets that could not be kept.",
    "model_reloads": "How often a new model took over.",
    "model_reload_failures": "How often the model file could not be used.",
}


class Counters:
    """What one worker counts, by path; paths that are no routes count as one."""

    def __init__(self, routes: Iterable[str]) -> None:
        self._routes = frozenset(routes)
        self._mine = mine = CollectorRegistry()
        self._requests = Counter(
            "contradpp_requests", "Requests by path and status.", ["path", "status"], registry=mine
        )
        words = "Time from a request's first byte to the start of its answer."
        self._seconds = Histogram("contradpp_request_seconds", words, ["path"], buckets=BUCKETS, registry=mine)
        self._events = {name: Counter(f"contradpp_{name}", what, registry=mine) for name, what in EVENTS.items()}

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        path = route if route in self._routes else "other"
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def event(self, name: str) -> None:
        """Count one of EVENTS."""
        self._events[name].inc()

    def text(self, **gauges: float) -> bytes:
        """Everything that all workers have counted so far, and these gauges of this worker."""
        counted, state = self._mine, CollectorRegistry()
        if SHARED in os.environ:
            counted = CollectorRegistry()
            MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        state.register(_Gauges(gauges))
        return generate_latest(counted) + generate_latest(state)


class _Gauges:
    """Values as Prometheus collects them."""

    def __init__(self, values: dict[str, float]) -> None:
        self._values = values

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, value in self._values.items():
            yield GaugeMetricFamily(f"contradpp_{name}", f"{name.replace('_', ' ')}, of this worker", value=value)
