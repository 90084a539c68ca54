"""The application: the service's parts put together with its pages, for `contradpp serve` or any ASGI server.

A request passes the metrics, then limits on body and time, then the checks of the names that it was sent to and from.
What is refused, there or behind it, is answered in one shape, with no traceback and nothing of the request in it;
only a name that the server does not go by gets Starlette's plain text.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from contradpp import __version__
from contradpp._threads import blas_threads
from contradpp.errors import ContradppError, MissingExtraError, ModelFileError

try:
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from prometheus_fastapi_instrumentator import Instrumentator as _  # noqa: F401
    from starlette.exceptions import HTTPException
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import ClientDisconnect
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise MissingExtraError(f"the service needs {error.name}: pip install 'contradpp[serve]'") from error

from contradpp.serve.options import Limits, ServiceSettings, is_address
from contradpp.serve.routes import router
from contradpp.serve.schemas import refusal
from contradpp.serve.served import Served
from contradpp.serve.server import set_up_logs
from contradpp.serve.service import Service

log = logging.getLogger("contradpp.serve")
access = logging.getLogger("contradpp.access")

# Seconds for which a thread may keep the interpreter while others wait: the event loop asks for it several times in a
# request, and with Python's own 5 ms it waits so long each time for every thread that is at work.
SWITCH = 5e-4


def create_app(settings: ServiceSettings, served: Served | None = None) -> FastAPI:
    """Make the ASGI application that serves one model file.

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
    service = Service(settings, served)

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
    for path, name in PAGES.items():
        app.add_route(path, asset(name), methods=["GET"], include_in_schema=False)
    for kind in (ContradppError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer_error)
    plain = app.openapi
    app.openapi = lambda: bound(plain(), settings.limits)  # type: ignore[method-assign]
    # The last one that is added comes first.
    app.add_middleware(HostMiddleware, allowed_hosts=["localhost", *map(str.lower, settings.hosts)], www_redirect=False)
    app.add_middleware(RequestMiddleware, settings=settings)
    service.metrics.instrument(app)
    return app


def app_from_environment(served: Served | None = None) -> FastAPI:
    """Make the application of a worker process, told by its parent through the environment."""
    settings = ServiceSettings.from_environment()
    set_up_logs(access=settings.access_log)
    sys.setswitchinterval(SWITCH)
    return create_app(settings, served)


async def answer_error(_: Request, error: Exception) -> Response:
    """Answer any error in our shape; what the model refuses (a size beyond its rank, ...) is the request's fault."""
    if isinstance(error, HTTPException):
        return refusal(error.status_code, error.detail, error.headers)
    if isinstance(error, RequestValidationError):
        wrong = [f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}"[:300] for entry in error.errors()[:5]]
        return refusal(422, "; ".join(wrong))
    return refusal(422, str(error))


def bound(node: Any, limits: Limits) -> Any:
    """Write the limits that the schemas of a document name into them, so that clients need not find out."""
    if isinstance(node, dict) and isinstance(node.get("limit"), str):
        most = getattr(limits, node.pop("limit"))
        for one in (node, *node.get("anyOf", ())):
            if one.get("type") == "integer":
                one["maximum"] = most
            elif one.get("type") == "array":
                one["maxItems"] = most
    if isinstance(node, dict | list):
        for entry in node.values() if isinstance(node, dict) else node:
            bound(entry, limits)
    return node


# -- Middleware ------------------------------------------------------------------------------------

# The page is ours alone: nothing is loaded from elsewhere, nothing inline runs, nobody frames it.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY = [
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
_LOGGED_BODY = 4000
# Read and thrown away of a body that is too long: a connection closed on a sender loses it the answer that says why.
_DISCARDED = 8_000_000
ALIVE = "/healthz"  # whether the process lives may be asked by anyone, under any name, and is answered at once


class HostMiddleware(TrustedHostMiddleware):
    """Starlette's check of the Host header against names that were made to point here (DNS rebinding).

    IP addresses and requests without a name pass, and so does the question whether the process lives.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        host = dict(scope.get("headers", ())).get(b"host", b"").decode("latin-1")
        if scope["type"] != "http" or scope["path"] == ALIVE or not host or is_address(_host_name(host)):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _host_name(host: str) -> str:
    """Return a Host header without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


class RequestMiddleware:
    """ASGI middleware that reads the body within limits, gives the app its time, and logs the request."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self._app = app
        self._limits = settings.limits
        self._log_bodies = settings.log_bodies
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; websockets and the like go past."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        outgoing = _Outgoing(scope, receive, send)
        body: bytes | None = None
        try:
            _check_origin(scope)
            async with asyncio.timeout(self._limits.timeout):
                body = await self._body(scope, receive)
                # One request begins in every round of the event loop. Small work is done in the loop itself: if all
                # that have arrived began at once, who asks whether the process lives would wait for all of them.
                if scope["path"] != ALIVE:
                    async with self._turn:
                        await asyncio.sleep(0)
                await self._app(scope, _replay(body, receive), outgoing)
        except HTTPException as error:
            await outgoing.refuse(error.status_code, error.detail, error.headers)
        except TimeoutError:
            status, what = (408, "the body did not arrive") if body is None else (504, "there was no answer")
            what += f" within {self._limits.timeout:g} seconds"
            await outgoing.refuse(status, what, {"connection": "close"})
        except ClientDisconnect:
            await outgoing.refuse(499, "the client left before there was an answer")  # for log and metrics
        except asyncio.CancelledError:  # the server has waited for this one as long as it may
            await outgoing.refuse(503, "the server is being shut down", {"connection": "close"})
        except Exception:
            log.exception("a request failed")
            await outgoing.refuse(500, "something went wrong here; the server's log says what")
        finally:
            self._note(scope, body or b"", outgoing)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Read the whole body; refuse one that is, or says it will be, too long."""
        most = self._limits.body_bytes
        too_long = HTTPException(413, f"the body is longer than {most:,} bytes", {"connection": "close"})
        headers = dict(scope["headers"])
        told = headers.get(b"content-length", b"")
        if told.isdigit() and int(told[:20]) > most + _DISCARDED:
            raise too_long
        if scope["method"] in ("GET", "HEAD") and not told and b"transfer-encoding" not in headers:
            return b""
        body = bytearray()
        length = 0
        async for piece in Request(scope, receive).stream():
            length += len(piece)
            if length <= most:
                body += piece
            elif length > most + _DISCARDED:
                break
        if length > most:
            raise too_long
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if body and kind != b"application/json":
            raise HTTPException(415, "the body must be JSON: send it with Content-Type: application/json")
        return bytes(body)

    def _note(self, scope: Scope, body: bytes, outgoing: _Outgoing) -> None:
        """Write a line of the access log."""
        if not access.isEnabledFor(logging.INFO):
            return
        client = scope.get("client")
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "method": scope["method"],
            "path": scope["path"][:200], "status": outgoing.status, "ms": round(outgoing.milliseconds(), 3),
            "bytes_in": len(body), "bytes_out": outgoing.sent, "client": client[0] if client else None,
        }  # fmt: skip
        if self._log_bodies:
            entry["query"] = scope.get("query_string", b"").decode("latin-1")[:_LOGGED_BODY]
            entry["body"] = body[:_LOGGED_BODY].decode("utf-8", "replace")
        access.info("%s", json.dumps(entry))


class _Outgoing:
    """The way out of a request: adds headers to its answer and remembers the status and the length of that."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._started = time.perf_counter()
        self.status = 0
        self.sent = 0

    def milliseconds(self) -> float:
        """Return the time since the request arrived."""
        return 1000 * (time.perf_counter() - self._started)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            timing = b"app;dur=%.3f" % self.milliseconds()
            message = {**message, "headers": [*message["headers"], *SECURITY, (b"server-timing", timing)]}
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        """Answer with an error, unless an answer has begun."""
        if not self.status:
            await refusal(status, message, headers)(self._scope, self._receive, self)


def _check_origin(scope: Scope) -> None:
    """Refuse what a form or script of another site has sent through its visitor's browser."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    if origin is None or scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return
    if origin.lower().partition(b"://")[2] != headers.get(b"host", b"").lower():
        raise HTTPException(403, "this was sent by a page of another site")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return the body in one message, then whatever comes on the line."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


# -- Pages ---------------------------------------------------------------------------------------

KINDS = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}
ASSETS = ("app.js", "api.js", "search.js", "map.js", "theme.js", "docs.js", "style.css", "favicon.svg")
PAGES = {"/": "index.html", "/docs": "docs.html"} | {f"/{name}": name for name in ASSETS}


def asset(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Read a file of the pages, so that no request opens one, and return its endpoint."""
    folder = files("contradpp.serve") / "static"
    body = (folder / name).read_bytes().replace(b"  <!-- head -->\n", (folder / "head.html").read_bytes())
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:16]}"', "Cache-Control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=KINDS[name.split(".")[-1]])

    return answer
