"""The ASGI application: routes, middleware and static pages, for `contradpp serve` or any server.

A request passes the metrics, then the limit of its time, then the check of the host name. Its route
asks for the token, reads the body, and checks lengths before contents.
Every refusal has one JSON shape, without a traceback and without contents of the request.
Only a wrong host name gets Starlette's plain text.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from contradpp import __version__
from contradpp._threads import blas_threads
from contradpp.errors import ContradppError, MissingExtraError, ModelFileError, RankError

try:
    import prometheus_fastapi_instrumentator as _  # noqa: F401
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
except ImportError as error:
    message = f"the service needs {error.name}: pip install 'contradpp[serve]'"
    raise MissingExtraError(message) from error

from contradpp.serve.middleware import HostMiddleware, RequestMiddleware
from contradpp.serve.options import Limits, ServiceSettings
from contradpp.serve.routes import router
from contradpp.serve.schemas import describe, refusal
from contradpp.serve.server import set_up_logs
from contradpp.serve.service import Service
from contradpp.serve.snapshot import ModelSnapshot

log = logging.getLogger("contradpp.serve")

# Seconds for which a thread may hold the interpreter. The event loop needs the interpreter several
# times per request, and Python's default of 5 ms adds up for every busy thread.
SWITCH_INTERVAL = 5e-4
# Garbage collections hold the interpreter. One that walks over all modules and the model takes up
# to a second, and a request of empty lists brought about several. Reference counts free almost
# everything.
GC_THRESHOLDS = (100_000, 10, 10)
# Errors of the library may name items and categories. Answers do not repeat contents of a request.
REFUSED = (
    "the model cannot do this: at_most names a category that no item has, a size is less than the "
    "items given or more than those there are, or a number is out of its range"
)
MEDIA_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
SCRIPTS = ("app.js", "api.js", "search.js", "map.js", "theme.js", "docs.js")
PAGES = {"/": "index.html", "/docs": "docs.html"}
PAGES |= {f"/{name}": name for name in (*SCRIPTS, "style.css", "favicon.svg")}


def create_app(settings: ServiceSettings, snapshot: ModelSnapshot | None = None) -> FastAPI:
    """Make the ASGI application that serves one model file.

    Parameters
    ----------
    settings : ServiceSettings
    snapshot : ModelSnapshot, optional
        The model of that file, if it is open already.

    Returns
    -------
    FastAPI

    Examples
    --------
    >>> app = create_app(ServiceSettings(model="model.safetensors"))  # read when the server starts
    >>> "/v1/recommend" in app.openapi()["paths"]
    True
    """
    service = Service(settings, snapshot)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Limits]]:
        with blas_threads(settings.n_jobs):
            try:
                await asyncio.to_thread(service.reloader.reload)
            except ModelFileError:
                log.error("started without a model; waiting for a good file")
            watcher = asyncio.create_task(service.reloader.watch(settings.watch_seconds or 1e9))
            try:
                yield {"limits": settings.limits}
            finally:
                watcher.cancel()
                service.close()

    app = FastAPI(
        title="contradpp",
        version=__version__,
        summary="A determinantal point process that answers over HTTP.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service = service
    app.include_router(router)
    for path, name in PAGES.items():
        app.add_route(path, static_file(name), methods=["GET"], include_in_schema=False)
    for kind in (ContradppError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle_error)
    openapi = app.openapi
    app.openapi = lambda: add_limits(openapi(), settings.limits)  # type: ignore[method-assign]
    # The middleware that is added last runs first.
    hosts = ["localhost", *map(str.lower, settings.hosts)]
    app.add_middleware(HostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.add_middleware(RequestMiddleware, settings=settings)
    service.metrics.instrument(app)
    return app


def app_from_environment(snapshot: ModelSnapshot | None = None) -> FastAPI:
    """Make the application of a worker process from its environment variables."""
    settings = ServiceSettings.from_environment()
    set_up_logs(access=settings.access_log)
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    return create_app(settings, snapshot)


async def handle_error(_: Request, error: Exception) -> Response:
    """Answer an error as JSON; an error of the model, such as a size beyond its rank, is a 422."""
    if isinstance(error, HTTPException):
        return refusal(error.status_code, error.detail, error.headers)
    if isinstance(error, RequestValidationError):
        return refusal(422, describe(error.errors()))
    return refusal(422, str(error) if isinstance(error, RankError) else REFUSED)


def add_limits(node: Any, limits: Limits) -> Any:
    """Replace the names of limits in an OpenAPI document by their values."""
    if isinstance(node, dict) and isinstance(node.get("limit"), str):
        limit = getattr(limits, node.pop("limit"))
        for schema in (node, *node.get("anyOf", ())):
            if schema.get("type") == "integer":
                schema["maximum"] = limit
            elif schema.get("type") == "array":
                schema["maxItems"] = limit
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            add_limits(child, limits)
    return node


def static_file(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Read a static file once, and return the endpoint that sends it."""
    folder = files("contradpp.serve") / "static"
    head = (folder / "head.html").read_bytes()
    body = (folder / name).read_bytes().replace(b"  <!-- head -->\n", head)
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:16]}"', "Cache-Control": "no-cache"}
    media_type = MEDIA_TYPES[name.split(".")[-1]]

    async def send(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=media_type)

    return send
