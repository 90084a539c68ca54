"""Starts the server: one process, or several that share a socket and are replaced when they die."""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace

from contradpp.errors import MissingExtraError, ParameterError
from contradpp.models.base import load
from contradpp.serve.logs import set_up_logs
from contradpp.serve.settings import ServeSettings, beyond_loopback

log = logging.getLogger("contradpp.serve")


def run_server(settings: ServeSettings, *, host: str = "127.0.0.1", port: int = 8000, workers: int = 1) -> None:
    """Serve until interrupted.

    Parameters
    ----------
    settings : ServeSettings
    host, port : str, int
        Where to listen.
    workers : int
        Processes. Each holds a model of its own; one that dies is replaced while the others go on.
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("the service needs FastAPI and uvicorn: pip install 'contradpp[serve]'") from error
    load(settings.model)  # a bad file is better refused here than by every worker
    _check_feedback(settings.feedback)
    set_up_logs(access=settings.access_log)
    if beyond_loopback(host) and settings.token is None:
        log.warning("%s can be reached from other machines: anyone may send feedback and reloads. Set a token.", host)
    with ExitStack() as stack:
        if workers > 1:
            settings = replace(settings, shared_dir=stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ.update(settings.to_environment())
        uvicorn.run(
            "contradpp.serve.app:app_from_environment", factory=True, host=host, port=port, workers=workers,
            log_config=None, access_log=False, server_header=False, timeout_keep_alive=30,
            timeout_graceful_shutdown=max(1, round(settings.limits.timeout)), limit_concurrency=None, ws="none",
        )  # fmt: skip


def _check_feedback(path: str | None) -> None:
    """Refuse a log that cannot be written to before the first event is lost to it."""
    if path is None:
        return
    try:
        with open(path, "ab"):
            pass
    except OSError as error:
        raise ParameterError(f"cannot write the feedback log {path}: {error.strerror or error}") from error
