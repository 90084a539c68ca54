"""How the service says no: one exception, one shape of answer, no traceback and nothing of the request in it."""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from contradpp.errors import ContradppError

log = logging.getLogger("contradpp.serve")

CODES = {
    400: "bad_request", 401: "unauthorized", 404: "not_found", 405: "method_not_allowed", 408: "too_slow",
    413: "too_large", 415: "not_json", 422: "invalid", 500: "internal", 503: "unavailable", 504: "timeout",
    507: "storage",
}  # fmt: skip


class Refused(ContradppError):
    """A request that is not answered, with the status that says why."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII: an id with half a surrogate pair, which UTF-8 cannot hold, goes through too."""
    body = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(body, status, headers, media_type="application/json")


def refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that is refused."""
    return as_json({"error": {"code": CODES.get(status, "error"), "message": message}}, status, headers)


def install(app: FastAPI) -> None:
    """Let every error of the app be answered in our shape."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ContradppError, _ours)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal(error.status, str(error), error.headers)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = [f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}"[:300] for entry in error.errors()[:5]]
    return refusal(422, "; ".join(wrong))


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, str(error.detail), dict(error.headers or {}))


async def _ours(_: Request, error: Exception) -> Response:
    """What the model itself refuses (a size beyond its rank, ...) is the request's fault."""
    return refusal(422, str(error))
