"""ASGI middleware: metrics, limits, checks of host and origin, headers and the access log."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_fastapi_instrumentator import Instrumentator
from prometheus_fastapi_instrumentator.metrics import Info
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contradpp.serve.options import ServiceSettings
from contradpp.serve.schemas import refusal

log = logging.getLogger("contradpp.serve")
access = logging.getLogger("contradpp.access")

# The page loads nothing from elsewhere, runs nothing inline and may not be framed.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
# The liveness check is open to everyone, under any host name, and does not queue.
LIVENESS = "/healthz"
_LOGGED_BODY = 4000
# Excess bytes that are read and discarded. A client whose connection closes while it sends
# never sees the answer.
_DISCARDED = 8_000_000


class HostMiddleware(TrustedHostMiddleware):
    """A check of the Host header against DNS rebinding.

    IP addresses, requests without a Host header and the liveness check pass.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = dict(scope.get("headers", ())).get(b"host", b"").decode("latin-1")
        is_http = scope["type"] == "http"
        if is_http and host and scope["path"] != LIVENESS and not _is_address(host):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def _is_address(host: str) -> bool:
    """Return whether a Host header is an IP address, with or without a port."""
    try:
        ipaddress.ip_address(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return True


class RequestMiddleware:
    """ASGI middleware that bounds the body and the time of a request, and logs it."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self._app = app
        self._limits = settings.limits
        self._log_bodies = settings.log_bodies
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        responder = _Responder(scope, receive, send)
        state = scope.setdefault("state", {})
        try:
            _check_origin(scope)
            async with asyncio.timeout(self._limits.timeout):
                # Small work runs in the event loop. One request starts per round of the loop,
                # so that a liveness check does not wait for all requests that came with it.
                if scope["path"] != LIVENESS:
                    async with self._turn:
                        await asyncio.sleep(0)
                await self._app(scope, receive, responder)
        except HTTPException as error:
            await responder.refuse(error.status_code, error.detail, error.headers)
        except TimeoutError:
            waits = "body" in state and state["body"] is None
            status = 408 if waits else 504
            problem = "the body did not arrive" if waits else "there was no answer"
            message = f"{problem} within {self._limits.timeout:g} seconds"
            await responder.refuse(status, message, {"connection": "close"})
        except ClientDisconnect:  # no one reads this answer; the log and the metrics count it
            await responder.refuse(499, "the client left before there was an answer")
        except asyncio.CancelledError:  # the grace period of a shutdown is over
            await responder.refuse(503, "the server is being shut down", {"connection": "close"})
        except Exception:
            log.exception("a request failed")
            await responder.refuse(500, "something went wrong here; the server's log says what")
        finally:
            self._log_request(scope, state.get("body") or b"", responder)

    def _log_request(self, scope: Scope, body: bytes, responder: _Responder) -> None:
        """Write a line of the access log."""
        if not access.isEnabledFor(logging.INFO):
            return
        client = scope.get("client")
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": responder.status,
            "ms": round(responder.milliseconds(), 3),
            "bytes_in": len(body),
            "bytes_out": responder.sent,
            "client": client[0] if client else None,
        }
        if self._log_bodies:
            entry["query"] = scope.get("query_string", b"").decode("latin-1")[:_LOGGED_BODY]
            entry["body"] = body[:_LOGGED_BODY].decode("utf-8", "replace")
        access.info("%s", json.dumps(entry))


class _Responder:
    """The `send` of a request: adds headers, and records the status and the length."""

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
            timing = (b"server-timing", b"app;dur=%.3f" % self.milliseconds())
            message = {**message, "headers": [*message["headers"], *SECURITY_HEADERS, timing]}
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)

    async def refuse(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with an error, unless an answer has begun."""
        if not self.status:
            await refusal(status, message, headers)(self._scope, self._receive, self)


def _check_origin(scope: Scope) -> None:
    """Refuse a request that a form or script of another site sent (cross-site request forgery)."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    if origin is None or scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return
    if origin.lower().partition(b"://")[2] != headers.get(b"host", b"").lower():
        raise HTTPException(403, "this was sent by a page of another site")


async def read_body(request: Request, limit: int) -> bytes:
    """Read the whole body; refuse one that is, or announces itself as, too long, or is not JSON."""
    message = f"the body is longer than {limit:,} bytes"
    too_long = HTTPException(413, message, {"connection": "close"})
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced[:20]) > limit + _DISCARDED:
        raise too_long
    request.state.body = None  # a time-out says that the body did not arrive
    body = bytearray()
    length = 0
    async for chunk in request.stream():
        length += len(chunk)
        if length <= limit:
            body += chunk
        elif length > limit + _DISCARDED:
            break
    request.state.body = bytes(body)
    if length > limit:
        raise too_long
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if body and media_type != "application/json":
        message = "the body must be JSON: send it with Content-Type: application/json"
        raise HTTPException(415, message)
    return bytes(body)


# -- Metrics -------------------------------------------------------------------------------------

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
EVENTS = {
    "feedback_accepted": "Accepted sets that were stored.",
    "feedback_rejected": "Rejected sets that were stored.",
    "feedback_shown": "Impressions that were stored.",
    "feedback_failed": "Events that could not be stored.",
    "model_reloads": "New models that took over.",
    "model_reload_failures": "Failures to load the model file.",
}
STATE = {
    "model_ready": "1 if there is a model.",
    "model_items": "Items of the model.",
    "model_file_bad": "1 if the model file cannot be used.",
}


class Metrics:
    """Prometheus counters and latencies over all workers; gauges come from the last to write."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "contradpp_requests",
            "Requests by path and status.",
            ["path", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "contradpp_request_seconds",
            "Time from a request's arrival to the start of its answer.",
            ["path"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.events = {
            name: Counter(f"contradpp_{name}", description, registry=self.registry)
            for name, description in EVENTS.items()
        }
        self.state = {
            name: Gauge(
                f"contradpp_{name}",
                description,
                registry=self.registry,
                multiprocess_mode="mostrecent",
            )
            for name, description in STATE.items()
        }

    def instrument(self, app: FastAPI) -> None:
        """Count the requests of an application, and show all counts at /metrics."""
        instrumentator = Instrumentator(should_group_status_codes=False, registry=self.registry)
        instrumentator.add(self._count).instrument(app)
        responses: dict[int | str, object] = {200: {"content": {"text/plain": {}}}}
        instrumentator.expose(app, tags=["operation"], response_class=Response, responses=responses)

    def _count(self, info: Info) -> None:
        path = "other" if info.modified_handler == "none" else info.modified_handler
        self._requests.labels(path, info.modified_status).inc()
        self._seconds.labels(path).observe(info.modified_duration_without_streaming)
