"""Fetching a file over HTTP: resumed after a break, verified by SHA-256, put in place in one step."""

from __future__ import annotations

import hashlib
import http.client
import logging
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contradpp.errors import DownloadError, ParameterError

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes there are and the number there will be, if that is known."""

_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 16
_NETWORK_ERRORS = (
    urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError,
)  # fmt: skip
_WORTH_RETRYING = {408, 425, 429, 500, 502, 503, 504}


class _BrokenTransfer(Exception):
    """The transfer failed in a way that another attempt may mend."""


def fetch(
    url: str,
    destination: Path,
    *,
    sha256: str | None = None,
    attempts: int = 4,
    timeout: float = 30.0,
    pause: float = 1.0,
    max_bytes: int = 1 << 30,
    progress: bool | Progress | None = None,
) -> Path:
    """Download `url` to `destination`; nothing appears there unless the whole file came and is right.

    The bytes go to `<destination>.part`, which a later attempt, or a later call, continues with a Range
    request. After the checksum the part is renamed.

    Parameters
    ----------
    url : str
        An http or https address.
    destination : Path
        Where the file goes; missing folders are made.
    sha256 : str, optional
        The checksum in hexadecimal. Without it only the announced length is checked.
    attempts : int
        How many times to try before giving up; the pause between attempts doubles from `pause` seconds.
    timeout : float
        Seconds without an answer after which an attempt has failed.
    max_bytes : int
        A file larger than this is refused.
    progress : bool or callable, optional
        True shows a progress bar on stderr, None only if that is a terminal. A callable receives
        (bytes so far, bytes in all or None).

    Raises
    ------
    DownloadError
        If the file cannot be had, or its checksum is wrong.
    """
    if not url.startswith(("http://", "https://")):
        raise ParameterError(f"can only download from http and https addresses, got {url!r}")
    if attempts < 1:
        raise ParameterError(f"attempts must be at least 1, got {attempts}")
    part = destination.with_name(destination.name + ".part")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _reporter(progress, destination.name) as report:
            for attempt in range(attempts):
                try:
                    whole = _transfer(url, part, timeout=timeout, max_bytes=max_bytes, report=report)
                    _verify(url, part, sha256, certain=whole)
                    break
                except _BrokenTransfer as broken:
                    _LOG.info("attempt %d to download %s failed: %s", attempt + 1, url, broken)
                    if attempt + 1 == attempts:
                        message = f"could not download {url}: {broken} ({attempts} attempts)"
                        raise DownloadError(message) from broken
                    time.sleep(pause * 2**attempt)
        part.replace(destination)
    except OSError as error:
        if isinstance(error, DownloadError):
            raise
        raise DownloadError(f"could not store {url} in {destination}: {error}") from error
    return destination


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _transfer(url: str, part: Path, *, timeout: float, max_bytes: int, report: Progress) -> bool:
    """Bring `part` to its full length; true if one request brought the whole of an announced length."""
    have = part.stat().st_size if part.exists() else 0
    # "identity": a length and a range must count the bytes of the file, not of a compressed transfer.
    headers = {"User-Agent": "contradpp", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as answer:
            start = _start_of(answer, have, part)
            length = answer.headers.get("Content-Length")
            total = start + int(length) if length and length.isdigit() else None
            if (total or 0) > max_bytes:
                raise DownloadError(f"{url} is larger than expected: {total:,} bytes, at most {max_bytes:,}")
            have = _append(answer, part, start, max_bytes=max_bytes, report=lambda n: report(n, total))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the part is as long as the file, or longer than it: a checksum decides
            return _already_whole(error, part, have)
        reason = f"the server answered {error.code} {error.reason}"
        if error.code in _WORTH_RETRYING:
            raise _BrokenTransfer(reason) from error
        raise DownloadError(f"could not download {url}: {reason}") from error
    except _NETWORK_ERRORS as error:
        raise _BrokenTransfer(str(getattr(error, "reason", error)) or type(error).__name__) from error
    if total is not None and have < total:
        raise _BrokenTransfer(f"the transfer ended after {have:,} of {total:,} bytes")
    return total is not None and start == 0


def _start_of(answer: Any, have: int, part: Path) -> int:
    """The position in the file at which the answer's bytes begin."""
    if answer.status != 206:
        return 0  # the server does not do ranges and sends the whole file
    given = str(answer.headers.get("Content-Range", ""))
    if not given.startswith(f"bytes {have}-"):
        part.unlink(missing_ok=True)
        raise _BrokenTransfer(f"asked to go on at byte {have}, the server sent {given or 'no range'!r}")
    return have


def _append(answer: Any, part: Path, start: int, *, max_bytes: int, report: Callable[[int], None]) -> int:
    have = start
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        report(have)
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            have += len(chunk)
            if have > max_bytes:
                raise DownloadError(f"the file is larger than expected: more than {max_bytes:,} bytes")
            report(have)
    return have


def _already_whole(error: urllib.error.HTTPError, part: Path, have: int) -> bool:
    if str(error.headers.get("Content-Range", "")).endswith(f"/{have}"):
        return False
    part.unlink(missing_ok=True)
    raise _BrokenTransfer("the part on disk is longer than the file, starting again") from error


def _verify(url: str, part: Path, sha256: str | None, *, certain: bool) -> None:
    """Check the finished part, and remove it if it is wrong.

    A file that came in pieces, or without a length, may only have been put together or cut off wrongly:
    that deserves another attempt. A whole one is simply not the file we want.
    """
    if sha256 is None or (found := file_sha256(part)) == sha256.lower():
        return
    part.unlink()
    message = f"the SHA-256 of {url} is {found}, expected {sha256.lower()}"
    if certain:
        raise DownloadError(f"{message}: the file was changed at its origin or on the way; nothing was kept")
    raise _BrokenTransfer(message)


@contextmanager
def _reporter(progress: bool | Progress | None, label: str) -> Iterator[Progress]:
    """A callback that draws a bar, does nothing, or is the caller's own."""
    if callable(progress):
        yield progress
    elif progress or (progress is None and sys.stderr is not None and sys.stderr.isatty()):
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield lambda _done, _total: None
