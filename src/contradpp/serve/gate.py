"""The gate before the app: limits on body and time, headers, access log and counters, for every request."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from contradpp.serve.errors import Refused, refusal
from contradpp.serve.metrics import Metrics
from contradpp.serve.settings import Limits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

access = logging.getLogger("contradpp.access")
log = logging.getLogger("contradpp.serve")

# The page is ours alone: nothing is loaded from elsewhere, nothing inline runs, nobody frames it.
SECURITY = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
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
_BAD_TEXT = "the body must be JSON: send it with Content-Type: application/json"


class Gate:
    """ASGI middleware: reads the body within limits, gives the app its time, and notes what came of it.

    Parameters
    ----------
    app : ASGI application
    limits : Limits
    metrics : Metrics
    log_bodies : bool
        Whether the access log shows what was asked.
    """

    def __init__(self, app: App, limits: Limits, metrics: Metrics, *, log_bodies: bool = False) -> None:
        self._app = app
        self._limits = limits
        self._metrics = metrics
        self._log_bodies = log_bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; websockets and the like go past."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        outgoing = _Outgoing(send, started)
        body: bytes | None = None
        try:
            async with asyncio.timeout(self._limits.timeout):
                body = await self._body(scope, receive)
                await self._app(scope, _replay(body, receive), outgoing)
        except Refused as error:
            await outgoing.refuse(scope, error.status, str(error), error.headers)
        except TimeoutError:
            status, what = (408, "the body did not arrive") if body is None else (504, "there was no answer")
            late = f"{what} within {self._limits.timeout:g} seconds"
            await outgoing.refuse(scope, status, late, {"connection": "close"})
        except ConnectionError:
            pass  # the client has gone
        except Exception:
            log.exception("a request failed")
            await outgoing.refuse(scope, 500, "something went wrong here; the server's log says what")
        finally:
            self._note(scope, body or b"", outgoing, time.perf_counter() - started)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body; `Refused` if it is, or says it will be, too long."""
        most = self._limits.body_bytes
        headers = dict(scope["headers"])
        told = headers.get(b"content-length", b"")
        if told.isdigit() and int(told[:20]) > most + _DISCARDED:
            raise _too_long(most)
        if scope["method"] in ("GET", "HEAD") and not told and b"transfer-encoding" not in headers:
            return b""
        body = bytearray()
        length, more = 0, True
        while more and length <= most + _DISCARDED:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            piece = message.get("body", b"")
            length += len(piece)
            if length <= most:
                body += piece
            more = message.get("more_body", False)
        if length > most:
            raise _too_long(most)
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if body and kind != b"application/json":
            raise Refused(415, _BAD_TEXT)
        return bytes(body)

    def _note(self, scope: Scope, body: bytes, outgoing: _Outgoing, seconds: float) -> None:
        status = outgoing.status or 499  # the client left before there was an answer
        self._metrics.request(scope["path"], status, outgoing.seconds or seconds)
        if not access.isEnabledFor(logging.INFO):
            return
        client = scope.get("client")
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "method": scope["method"],
            "path": scope["path"][:200], "status": status, "ms": round(1000 * seconds, 3), "bytes_in": len(body),
            "bytes_out": outgoing.sent, "client": client[0] if client else None,
        }  # fmt: skip
        if self._log_bodies:
            entry["query"] = scope.get("query_string", b"").decode("latin-1")[:_LOGGED_BODY]
            entry["body"] = body[:_LOGGED_BODY].decode("utf-8", "replace")
        access.info("%s", json.dumps(entry))


class _Outgoing:
    """The way out: adds headers to the answer and remembers its status, its length and when it began."""

    def __init__(self, send: Send, started: float) -> None:
        self._send = send
        self._started = started
        self.status = 0
        self.seconds = 0.0
        self.sent = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.seconds = time.perf_counter() - self._started
            timing = b"app;dur=%.3f" % (1000 * self.seconds)
            message = {**message, "headers": [*message["headers"], *SECURITY, (b"server-timing", timing)]}
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, scope: Scope, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """Answer with an error, unless an answer has begun."""
        if not self.status:
            await refusal(status, message, headers)(scope, _nothing, self)


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body in one message, then whatever comes on the line."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _too_long(most: int) -> Refused:
    return Refused(413, f"the body is longer than {most:,} bytes", connection="close")
