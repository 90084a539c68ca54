"""Loads the model that is served, watches its file, and swaps in a new one without dropping a request."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from contradpp._threads import blas_threads
from contradpp.errors import ContradppError, ModelFileError
from contradpp.models.base import BaseDPP, load
from contradpp.serve.served import Served

log = logging.getLogger("contradpp.serve")


class Stamp(NamedTuple):
    """What changes when a file is replaced or written to."""

    inode: int
    modified: int
    size: int


class Reloader:
    """The present model and the story of its reloads.

    `served` is replaced by one assignment: a request that has taken it goes on with the model it took. `tell` is told
    of "model_reloads" and "model_reload_failures"; `spare` is a file for the last good model, for a worker that starts
    when the model file is bad.
    """

    def __init__(
        self, path: str, *, n_jobs: int, tell: Callable[[str], None], spare: str | None = None,
        served: Served | None = None,
    ) -> None:  # fmt: skip
        self._path = path
        self._spare = spare
        self._tell = tell
        self._n_jobs = n_jobs
        self._seen: Stamp | None = None
        self._one_at_a_time = threading.Lock()
        self.served = served
        self.reloads = 0
        self.failures = 0
        self.error: str | None = None

    def reload(self) -> bool:
        """Load the file as it is now; whether another model is served afterwards.

        A file that cannot be used raises `ModelFileError`, and the model before it stays.
        """
        with self._one_at_a_time:
            self._seen = self._stamp()
            try:
                changed = self._take(self._path)
                self._keep_spare()
            except (ContradppError, OSError, MemoryError) as error:
                self.failures += 1
                self._tell("model_reload_failures")
                # The path is for the log; `error` is shown to whoever asks for /v1/model.
                self.error = str(error).replace(self._path, os.path.basename(self._path))
                if self.served is None and self._spare is not None:
                    with suppress(ContradppError, OSError):
                        self._take(self._spare)
                kept = "no model is served" if self.served is None else f"model {self.served.version} stays"
                log.error("cannot load the model: %s; %s", error, kept)
                raise ModelFileError(self.error) from error
            self.error = None
            return changed

    def _take(self, path: str) -> bool:
        version = _digest(path)
        if self.served is not None and self.served.version == version:
            return False
        served = open_model(path, self._n_jobs, version)
        if self.served is not None:
            self.reloads += 1
            self._tell("model_reloads")
        self.served = served
        return True

    def _keep_spare(self) -> None:
        """Write the present model where another worker finds it, unless one has done so."""
        if self._spare is None or self.served is None:
            return
        try:
            if not os.path.exists(self._spare) or _digest(self._spare) != self.served.version:
                self.served.model.save(self._spare)
        except (ContradppError, OSError) as error:
            log.warning("the last good model could not be kept for new workers: %s", error)

    def change(self, work: Callable[[BaseDPP], None]) -> None:
        """Do something to the model in its file, and serve what comes of it; the model that is served stays as it is.

        If someone else has written the file meanwhile, `ModelFileError` says so, and nothing was changed.
        """
        with self._one_at_a_time:
            before, model = _digest(self._path), load(self._path)
            work(model)
            if _digest(self._path) != before:
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

    def _stamp(self) -> Stamp | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return Stamp(found.st_ino, found.st_mtime_ns, found.st_size)


def open_model(path: str, n_jobs: int, version: str | None = None) -> Served:
    """The model of a file, ready to answer on so many threads."""
    version, started = version or _digest(path), time.perf_counter()
    log.info("loading model %s, %s bytes", version, f"{os.path.getsize(path):,}")
    with blas_threads(n_jobs):
        model = load(path)
        model.n_jobs = n_jobs  # whatever the file says: its author does not know this machine
        served = Served(model, version)
        served.recommend([[served.items[0]]], 1)  # compiles or loads the kernels before the first request needs them
    seconds = time.perf_counter() - started
    log.info("serving model %s: %s items, ready in %.1f s", version, f"{len(served.items):,}", seconds)
    return served


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise ModelFileError(f"cannot read the model file {path}: {error.strerror or error}") from error
