"""The application: the service's parts put together with its pages, for `contradpp serve` or any ASGI server."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from contradpp import __version__
from contradpp._threads import blas_threads
from contradpp.errors import ContradppError, MissingExtraError, ModelFileError

try:
    from fastapi import APIRouter, FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from prometheus_client import REGISTRY as _  # noqa: F401
    from starlette.exceptions import HTTPException
except ImportError as error:
    raise MissingExtraError("the service needs FastAPI and uvicorn: pip install 'contradpp[serve]'") from error

from contradpp.serve.counters import Counters
from contradpp.serve.gate import Gate, Refused, refusal
from contradpp.serve.options import Limits, ServiceSettings
from contradpp.serve.routes import router
from contradpp.serve.served import Served
from contradpp.serve.server import set_up_logs
from contradpp.serve.service import Service

log = logging.getLogger("contradpp.serve")

# Seconds for which a thread may keep the interpreter while others wait: the event loop asks for it several times in a
# request, and with Python's own 5 ms it waits so long each time for every thread that is at work.
SWITCH = 5e-4

KINDS = {
    ".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}  # fmt: skip
ASSETS = ("app.js", "api.js", "search.js", "map.js", "theme.js", "docs.js", "style.css", "favicon.svg")
PAGES = {"/": "index.html", "/docs": "docs.html"} | {f"/{name}": name for name in ASSETS}


def create_app(settings: ServiceSettings, served: Served | None = None) -> FastAPI:
    """The ASGI application that serves one model file.

    Parameters
    ----------
    settings : ServiceSettings
    served : Served, optional
        The model of that file, if it is open already.

    Examples
    --------
    >>> app = create_app(ServiceSettings(model="model.safetensors"))  # the file is read when the server starts
    >>> "/v1/recommend" in app.openapi()["paths"]
    True
    """
    counters = Counters([*(route.path for route in router.routes), *PAGES, "/openapi.json"])  # type: ignore[attr-defined]
    service = Service(settings, counters, served)

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
        title="contradpp", version=__version__, summary="A determinantal point process that answers over HTTP.",
        docs_url=None, redoc_url=None, lifespan=lifespan, redirect_slashes=False,
    )  # fmt: skip
    app.state.service = service
    app.include_router(router)
    app.include_router(page_router())
    for kind in (ContradppError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer_error)
    describe_limits(app, settings.limits)
    app.add_middleware(Gate, settings=settings, counters=counters)
    return app


def app_from_environment(served: Served | None = None) -> FastAPI:
    """The application of a worker process, told by its parent through the environment."""
    settings = ServiceSettings.from_environment()
    set_up_logs(access=settings.access_log)
    sys.setswitchinterval(SWITCH)
    return create_app(settings, served)


async def answer_error(_: Request, error: Exception) -> Response:
    """Every error in our shape; what the model itself refuses (a size beyond its rank, ...) is the request's fault."""
    if isinstance(error, Refused):
        return refusal(error.status, str(error), error.headers)
    if isinstance(error, HTTPException):
        return refusal(error.status_code, str(error.detail), dict(error.headers or {}))
    if isinstance(error, RequestValidationError):
        wrong = [f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}"[:300] for entry in error.errors()[:5]]
        return refusal(422, "; ".join(wrong))
    return refusal(422, str(error))


# -- Pages ---------------------------------------------------------------------------------------


class Asset:
    """A file of the pages, read once, so that no request opens one; pages have one head in common."""

    def __init__(self, name: str) -> None:
        folder = files("contradpp.serve") / "static"
        self._body = (folder / name).read_bytes().replace(b"  <!-- head -->\n", (folder / "head.html").read_bytes())
        self._tag = f'"{hashlib.sha256(self._body).hexdigest()[:16]}"'
        self._kind = KINDS[name[name.rindex(".") :]]

    async def __call__(self, request: Request) -> Response:
        """The file, or the news that the browser's copy is still right."""
        headers = {"ETag": self._tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == self._tag:
            return Response(status_code=304, headers=headers)
        return Response(self._body, headers=headers, media_type=self._kind)


def page_router() -> APIRouter:
    """Routes to all assets; they are not part of the described interface."""
    pages = APIRouter()
    for path, name in PAGES.items():
        pages.add_route(path, Asset(name).__call__, methods=["GET"], include_in_schema=False)
    return pages


# -- The OpenAPI document ------------------------------------------------------------------------

# Where the document says what each limit is: the fields of requests, and parameters of paths.
FIELDS = {
    "RecommendRequest": {
        "n": "suggestions", "basket": "basket_items", "baskets": "batch", "exclude": "listed_items",
    },
    "SlateRequest": {"n": "suggestions", "basket": "basket_items", "baskets": "batch", "exclude": "listed_items"},
    "RerankRequest": {"k": "suggestions", "candidates": "listed_items", "given": "basket_items"},
    "CompleteRequest": {"n": "suggestions", "basket": "basket_items", "exclude": "listed_items"},
    "ScoreRequest": {"basket": "basket_items", "baskets": "batch"},
    "SampleRequest": {"n_samples": "samples", "given": "basket_items"},
    "FeedbackRequest": {"basket": "basket_items", "items": "basket_items", "taken": "basket_items"},
}  # fmt: skip
PARAMETERS = {"/v1/items": {"limit": "suggestions"}, "/v1/map": {"limit": "map_items", "items": "map_items"}}


def describe_limits(app: FastAPI, limits: Limits) -> None:
    """Let `app.openapi()` tell what the server allows, so that clients need not find out."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        document = plain()
        for schema, fields in FIELDS.items():
            for name, limit in fields.items():
                _bound(document["components"]["schemas"][schema]["properties"][name], getattr(limits, limit))
        for path, names in PARAMETERS.items():
            for parameter in document["paths"][path]["get"]["parameters"]:
                if parameter["name"] in names:
                    _bound(parameter["schema"], getattr(limits, names[parameter["name"]]))
        return document

    app.openapi = described  # type: ignore[method-assign]


def _bound(schema: dict[str, Any], most: int) -> None:
    for one in (schema, *schema.get("anyOf", ())):
        if one.get("type") == "integer":
            one["maximum"] = most
        elif one.get("type") == "array":
            one["maxItems"] = most
