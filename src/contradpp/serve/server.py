"""Starts the server: one process, or several that share a socket and are replaced when they die."""

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
from typing import Any

from contradpp.errors import MissingExtraError, ParameterError
from contradpp.models.base import load
from contradpp.serve.options import SHARED, Limits, ServiceSettings, beyond_loopback
from contradpp.serve.served import open_model

try:
    import uvicorn
    from uvicorn.importer import import_from_string
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingExtraError(f"the service needs {error.name}: pip install 'contradpp[serve]'") from error

log = logging.getLogger("contradpp.serve")
APP = "contradpp.serve.app:app_from_environment"


def run_server(settings: ServiceSettings, *, host: str = "127.0.0.1", port: int = 8000, workers: int = 1) -> None:
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
        try:  # A log that cannot be written to is refused before the first event is lost to it.
            open(settings.feedback, "ab").close()
        except OSError as error:
            words = f"cannot write the feedback log {settings.feedback}: {error.strerror or error}"
            raise ParameterError(words) from error
    set_up_logs(access=settings.access_log)
    if beyond_loopback(host) and settings.token is None:
        log.warning("%s can be reached from other machines: anyone may send feedback and reloads. Set a token.", host)
    with ExitStack() as stack:
        settings = replace(settings, hosts=(*settings.hosts, host))
        if workers > 1:
            settings = replace(settings, shared_dir=stack.enter_context(tempfile.TemporaryDirectory()))
            os.environ[SHARED] = stack.enter_context(tempfile.TemporaryDirectory())
            load(settings.model)  # a bad file is better refused here than by every worker
        os.environ.update(settings.to_environment())
        app: Any = APP
        if workers == 1:  # the model is opened while FastAPI is imported, which takes long, too
            with ThreadPoolExecutor(1) as pool:
                opening = pool.submit(open_model, settings.model, settings.n_jobs)
                app = partial(import_from_string(APP), opening.result())
        uvicorn.run(app, factory=True, host=host, port=port, workers=workers, **uvicorn_options(settings.limits))


def uvicorn_options(limits: Limits) -> dict[str, Any]:
    """Return how uvicorn is to treat connections: what is in flight when it is told to end is answered.

    asyncio accepts as many connections at a time as the backlog is long before we can close one, and when it runs out
    of files writes as many tracebacks: the backlog has to be short beside the number of files.
    """
    return {
        "http": GuardedProtocol, "ws": "none", "log_config": None, "access_log": False, "server_header": False,
        "timeout_keep_alive": 30, "timeout_graceful_shutdown": round(limits.timeout) + 2,
        "backlog": min(128, max(8, _most_files() // 16)),
    }  # fmt: skip


class GuardedProtocol(H11Protocol):
    """uvicorn's connection with a time for the head of a request, and a bound on how many there are.

    uvicorn bounds neither the time of a head nor idle connections (`limit_concurrency` refuses everyone once there
    are so many): a few hundred half-open connections made the server unreachable.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits: Limits = self.app_state.get("limits") or Limits()
        self._most = min(self._limits.connections, _most_files() // 2)
        self._head_due: asyncio.TimerHandle | None = None
        self._since = 0.0

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection, at the cost of the one that has been idle longest if there are too many."""
        super().connection_made(transport)
        self._wait_for_head()
        if len(self.connections) > self._most:
            ours = [one for one in self.connections if isinstance(one, GuardedProtocol)]
            idle = [one for one in ours if one._idle and not one.transport.is_closing()]  # a closed one is gone later
            min(idle, key=lambda one: one._since).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on; bytes of an unfinished head do not buy it more time."""
        super().data_received(data)
        if not self._idle:
            self._stop_waiting()
        elif self._head_due is None:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._since = self.loop.time()
        self._head_due = self.loop.call_later(self._limits.timeout, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None


def _most_files() -> int:
    """Return how many files, connections among them, this process may open."""
    try:
        import resource
    except ImportError:  # on Windows there is no such limit
        return 2**16
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**16 if most == resource.RLIM_INFINITY else most


# -- Logs ----------------------------------------------------------------------------------------


class JsonLines(logging.Formatter):
    """A JSON object per message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        entry = {"time": moment, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_logs(*, access: bool = True) -> None:
    """Log JSON lines to standard error, as the access log's are already."""
    for name in ("contradpp", "uvicorn", "asyncio", "contradpp.access"):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s") if name == "contradpp.access" else JsonLines())
        logging.getLogger(name).handlers = [handler]
        logging.getLogger(name).setLevel(logging.INFO)
    logging.getLogger("contradpp.access").propagate = False
    logging.getLogger("contradpp.access").setLevel(logging.INFO if access else logging.WARNING)
