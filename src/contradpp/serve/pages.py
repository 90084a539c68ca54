"""The page, the description of the interface and their assets: read once, so that no request opens a file."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Request, Response

KINDS = {
    ".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}  # fmt: skip
PATHS = {
    "/": "index.html", "/app.js": "app.js", "/api.js": "api.js", "/search.js": "search.js", "/map.js": "map.js",
    "/theme.js": "theme.js", "/style.css": "style.css",
    "/favicon.svg": "favicon.svg", "/docs": "docs.html", "/docs.js": "docs.js",
}  # fmt: skip


class Asset:
    """A file of ours, as it is sent."""

    def __init__(self, name: str) -> None:
        self._body = (files("contradpp.serve") / "static" / name).read_bytes()
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
    router = APIRouter()
    for path, name in PATHS.items():
        router.add_route(path, Asset(name).__call__, methods=["GET"], include_in_schema=False)
    return router
