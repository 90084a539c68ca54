"""The server: one process, or several workers that share a socket."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

from contradpp.data.feedback import check_log
from contradpp.errors import MissingExtraError
from contradpp.models.base import load
from contradpp.serve.options import METRICS_DIR, Limits, ServiceSettings, beyond_loopback
from contradpp.serve.snapshot import open_model

try:
    import uvicorn
    from uvicorn.importer import import_from_string
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    message = f"the service needs {error.name}: pip install 'contradpp[serve]'"
    raise MissingExtraError(message) from error

log = logging.getLogger("contradpp.serve")
GRACE = 1.0  # seconds in which a connection can still be told that its time is over
APP = "contradpp.serve.app:app_from_environment"


def run_server(
    settings: ServiceSettings, *, host: str = "127.0.0.1", port: int = 8000, workers: int = 1
) -> None:
    """Serve until interrupted.

    Parameters
    ----------
    settings : ServiceSettings
    host, port : str, int
        Where to listen.
    workers : int
        Processes. Each holds a model of its own; one that dies is replaced while the others go on.
    """
    if settings.feedback is not None:
        check_log(settings.feedback)  # better refused here than at the first event
    set_up_logs(access=settings.access_log)
    if beyond_loopback(host) and settings.token is None:
        warning = (
            "%s can be reached from other machines: anyone may send feedback and reloads. "
            "Set a token."
        )
        log.warning(warning, host)
    settings = replace(settings, hosts=(*settings.hosts, host))
    with ExitStack() as stack:
        if workers > 1:
            shared_dir = stack.enter_context(tempfile.TemporaryDirectory())
            settings = replace(settings, shared_dir=shared_dir)
            os.environ[METRICS_DIR] = stack.enter_context(tempfile.TemporaryDirectory())
            load(settings.model)  # a bad file is better refused here than by every worker
        os.environ.update(settings.to_environment())
        app: Any = APP
        if workers == 1:  # the model opens while FastAPI is imported; both take long
            with ThreadPoolExecutor(1) as pool:
                opening = pool.submit(open_model, settings.model, settings.n_jobs)
                app = partial(import_from_string(APP), opening.result())
        options = uvicorn_options(settings.limits)
        if "timeout_worker_healthcheck" in signature(uvicorn.run).parameters:
            options["timeout_worker_healthcheck"] = 60  # a busy machine imports for more than 5 s
        uvicorn.run(app, factory=True, host=host, port=port, workers=workers, **options)


def uvicorn_options(limits: Limits) -> dict[str, Any]:
    """Return options of uvicorn that bound connections and answer open requests at shutdown.

    asyncio accepts a whole backlog of connections before one can be closed. If it runs out of
    files, it writes as many tracebacks. So the backlog is short beside the number of files.
    """
    return {
        "http": GuardedProtocol,
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": round(limits.timeout) + 2,
        "backlog": min(512, max(8, _max_files() // 16)),
    }


class GuardedProtocol(H11Protocol):
    """A uvicorn connection that is closed when its client keeps the server waiting.

    uvicorn bounds neither the time of a head or of an answer that no one reads, nor the number of
    connections and the memory of their answers. Its `limit_concurrency` refuses everyone beyond
    the limit.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits: Limits = self.app_state.get("limits") or Limits()
        self._max_connections = min(self._limits.connections, _max_files() // 2)
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_since = self.loop.time()
        self._has_begun = True  # a connection, or a head after an answer

    @property
    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _can_be_closed(self) -> bool:
        """True for a client that has to send or read something, or that did not await answers."""
        if self._is_answered or self.cycle.more_body or self.flow.write_paused:
            return True
        return bool(self.conn.trailing_data[0])

    @property
    def _n_unsent(self) -> int:
        return self.transport.get_write_buffer_size()

    @property
    def _is_open(self) -> bool:
        """False for a connection that is closed and leaves the list a little later."""
        return not self.transport.is_closing() or self._n_unsent > 0

    def _all_open(self) -> list[GuardedProtocol]:
        """Return the open connections; those that wait for something longest come first."""
        found = [one for one in self.connections if isinstance(one, GuardedProtocol)]
        return sorted((one for one in found if one._is_open), key=lambda one: one._waiting_since)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Open a connection; if there are too many, close the one that waits longest."""
        super().connection_made(transport)
        self._start_timer()
        if len(self.connections) > self._max_connections:
            connections = self._all_open()
            if len(connections) > self._max_connections:
                others = (one for one in connections if one is not self and one._can_be_closed)
                next(others, self).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read data; parts of an unfinished head or body do not extend its time."""
        super().data_received(data)
        self._has_begun = True
        if self._timer is None:
            self._start_timer()

    def handle_events(self) -> None:
        """Begin the next request, unless answers before it are still to be read."""
        if self.flow.write_paused:
            self.flow.pause_reading()
            return
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:
            self._start_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request; the client has some time to read the answer."""
        self._stop_timer()
        self._has_begun = False
        super().on_response_complete()
        if self._n_unsent and self._timer is None:
            self._start_timer()

    def pause_writing(self) -> None:
        """Note that a client does not read; close those that read slowest if too much waits."""
        super().pause_writing()
        connections = [one for one in self._all_open() if one.flow.write_paused]
        unsent = sum(one._n_unsent for one in connections)
        for one in connections:
            if unsent <= self._limits.unsent_bytes:
                break
            if one is not self:
                unsent -= one._n_unsent
                one.transport.abort()

    def resume_writing(self) -> None:
        """Continue with what had to wait for the client."""
        super().resume_writing()
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self.handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close a connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        """Give the next head, or the present request with its answer, its time."""
        self._stop_timer()
        self._waiting_since = self.loop.time()
        # Within the limit the middleware answers that it is exceeded.
        seconds = self._limits.timeout + (0 if self._is_answered else GRACE)
        self._timer = self.loop.call_later(seconds, self._end_time)

    def _end_time(self) -> None:
        self._timer = None
        if self._n_unsent or not self._is_answered or self._has_begun:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _max_files() -> int:
    """Return how many files, connections among them, this process may open."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 2**16
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**16 if limit == resource.RLIM_INFINITY else limit


# -- Logs ----------------------------------------------------------------------------------------


class JsonLines(logging.Formatter):
    """A log format of one JSON object per message."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        entry = {"time": moment, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_logs(*, access: bool = True) -> None:
    """Log JSON lines to standard error; messages of the access log are JSON already."""
    for name in ("contradpp", "uvicorn", "asyncio", "contradpp.access"):
        is_access = name == "contradpp.access"
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s") if is_access else JsonLines())
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = logger.propagate and not is_access
        logger.setLevel(logging.INFO if access or not is_access else logging.WARNING)
