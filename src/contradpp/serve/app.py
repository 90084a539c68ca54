"""The application: the service's parts put together, for `contradpp serve` or any ASGI server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from contradpp import __version__
from contradpp._threads import blas_threads
from contradpp.errors import MissingExtraError, ModelFileError
from contradpp.serve.settings import ServeSettings

try:
    from fastapi import FastAPI
except ImportError as error:
    raise MissingExtraError("the service needs FastAPI and uvicorn: pip install 'contradpp[serve]'") from error

from contradpp.serve import errors, pages, routes
from contradpp.serve.document import describe_limits
from contradpp.serve.gate import Gate
from contradpp.serve.logs import set_up_logs
from contradpp.serve.metrics import Metrics
from contradpp.serve.service import Service

log = logging.getLogger("contradpp.serve")


def create_app(settings: ServeSettings) -> FastAPI:
    """The ASGI application that serves one model file.

    Parameters
    ----------
    settings : ServeSettings

    Examples
    --------
    >>> app = create_app(ServeSettings(model="model.safetensors"))  # the file is read when the server starts
    >>> "/v1/recommend" in app.openapi()["paths"]
    True
    """
    paths = [route.path for route in (*routes.router.routes, *pages.page_router().routes)]  # type: ignore[attr-defined]
    metrics = Metrics([*paths, "/openapi.json"], settings.shared_dir)
    service = Service(settings, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with blas_threads(settings.n_jobs):
            try:
                await asyncio.to_thread(service.keeper.reload)
            except ModelFileError:
                log.error("started without a model; waiting for a good file")
            watcher = asyncio.create_task(service.keeper.watch(settings.watch_seconds or 1e9))
            try:
                yield
            finally:
                watcher.cancel()
                service.close()

    app = FastAPI(
        title="contradpp", version=__version__, summary="A determinantal point process that answers over HTTP.",
        docs_url=None, redoc_url=None, lifespan=lifespan, redirect_slashes=False,
    )  # fmt: skip
    app.state.service = service
    app.include_router(routes.router)
    app.include_router(pages.page_router())
    errors.install(app)
    describe_limits(app, settings.limits)
    app.add_middleware(Gate, limits=settings.limits, metrics=metrics, log_bodies=settings.log_bodies)
    return app


def app_from_environment() -> FastAPI:
    """The application of a worker process, told by its parent through the environment."""
    settings = ServeSettings.from_environment()
    set_up_logs(access=settings.access_log)
    return create_app(settings)
