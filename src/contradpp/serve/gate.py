"""The gate before the app: who may ask, limits on body and time, headers, access log and counters of every request.

What is refused, here or behind it, is answered in one shape, with no traceback and nothing of the request in it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from fastapi import Response

from contradpp.errors import ContradppError
from contradpp.serve.counters import Counters
from contradpp.serve.options import ServiceSettings, is_address

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
ALIVE = "/healthz"  # whether the process lives may be asked by anyone, under any name, and is answered at once
_BAD_TEXT = "the body must be JSON: send it with Content-Type: application/json"


CODES = {
    400: "bad_request", 401: "unauthorized", 403: "foreign_site", 404: "not_found", 405: "method_not_allowed",
    408: "too_slow", 413: "too_large", 415: "not_json", 421: "unknown_host", 422: "invalid", 500: "internal",
    503: "unavailable", 504: "timeout", 507: "storage",
}  # fmt: skip


class Refused(ContradppError):
    """A request that is not answered, with the status that says why."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII: an id with half a surrogate pair, which UTF-8 cannot hold, goes through too."""
    return Response(_dumped(content), status, headers, media_type="application/json")


def as_json_of_many(facts: dict[str, Any], name: str, entries: Iterable[Any]) -> Response:
    """As `as_json`, of facts and a long list: entry by entry, so that a thread that writes it lets others go on."""
    listed = ",".join(map(_dumped, entries))
    body = f'{_dumped(facts)[:-1]}{"," if facts else ""}"{name}":[{listed}]}}'
    return Response(body, media_type="application/json")


def _dumped(content: Any) -> str:
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that is refused."""
    return as_json({"error": {"code": CODES.get(status, "error"), "message": message}}, status, headers)


class Gate:
    """ASGI middleware: reads the body within limits, gives the app its time, and notes what came of it."""

    def __init__(self, app: App, settings: ServiceSettings, counters: Counters) -> None:
        self._app = app
        self._limits = settings.limits
        self._hosts = frozenset(host.lower() for host in ("localhost", *settings.hosts))
        self._counters = counters
        self._log_bodies = settings.log_bodies
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; websockets and the like go past."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        outgoing = _Outgoing(send, started)
        body: bytes | None = None
        try:
            self._check_origin(scope)
            async with asyncio.timeout(self._limits.timeout):
                body = await self._body(scope, receive)
                if scope["path"] != ALIVE:
                    await self._wait_for_turn()
                await self._app(scope, _replay(body, receive), outgoing)
        except Refused as error:
            await outgoing.refuse(scope, error.status, str(error), error.headers)
        except TimeoutError:
            status, what = (408, "the body did not arrive") if body is None else (504, "there was no answer")
            late = f"{what} within {self._limits.timeout:g} seconds"
            await outgoing.refuse(scope, status, late, {"connection": "close"})
        except ConnectionError:
            pass  # the client has gone
        except asyncio.CancelledError:  # the server has waited for this one as long as it may
            await outgoing.refuse(scope, 503, "the server is being shut down", {"connection": "close"})
        except Exception:
            log.exception("a request failed")
            await outgoing.refuse(scope, 500, "something went wrong here; the server's log says what")
        finally:
            self._note(scope, body or b"", outgoing, time.perf_counter() - started)

    async def _wait_for_turn(self) -> None:
        """Let one request begin in every round of the event loop.

        Small work is done in the loop itself: if all that have arrived began at once, who asks whether the process
        lives would wait for all of them.
        """
        async with self._turn:
            await asyncio.sleep(0)

    def _check_origin(self, scope: Scope) -> None:
        """Refuse what a page of another site has sent through its visitor's browser.

        A name that was made to point here (DNS rebinding) shows in Host, a form or script of another site in Origin.
        Whether the process lives may be asked under any name.
        """
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = _host_name(host)
        known = "*" in self._hosts or not host or name in self._hosts or is_address(name)
        if not known and scope["path"] != ALIVE:
            raise Refused(421, "this server does not go by that name: start it with --allow-host to let it")
        origin, harmless = headers.get(b"origin"), scope["method"] in ("GET", "HEAD", "OPTIONS")
        if origin is not None and not harmless and origin.decode("latin-1").lower().partition("://")[2] != host:
            raise Refused(403, "this was sent by a page of another site")

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
        self._counters.request(scope["path"], status, outgoing.seconds or seconds)
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


def _host_name(host: str) -> str:
    """The Host header without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


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
