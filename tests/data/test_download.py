"""The downloader against a real HTTP server on this machine, with the faults that real ones have."""

from __future__ import annotations

import hashlib
import http.server
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from contradpp.data.download import fetch, file_sha256
from contradpp.errors import DownloadError, ParameterError

BODY = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves BODY at every path; the faults are set by the test."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = BODY
        self.ranges = True  # whether Range requests are honoured
        self.announce = True  # whether there is a Content-Length
        self.break_after: list[int | None] = []  # for each request in turn: cut the body after so many bytes
        self.statuses: list[int] = []  # for each request in turn: answer with this error instead
        self.shift = 0  # answer a range that begins so much later than asked
        self.asked: list[str | None] = []  # the Range header of each request
        self.url = f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.asked.append(asked)
        if server.statuses:
            self.send_error(server.statuses.pop(0))
            return
        start, body = 0, server.body
        if asked and server.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start += server.shift
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        if server.announce:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        cut = server.break_after.pop(0) if server.break_after else None
        self.wfile.write(body[start:][:cut])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "file.bin"


def part_of(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def only_file(target: Path) -> bool:
    return [path.name for path in target.parent.iterdir()] == [target.name]


def test_a_file_comes_whole_and_leaves_no_part(server: Server, target: Path) -> None:
    assert fetch(server.url, target, sha256=SHA256.upper()) == target
    assert target.read_bytes() == BODY
    assert only_file(target)
    assert server.asked == [None]


def test_a_broken_transfer_goes_on_where_it_broke(server: Server, target: Path) -> None:
    server.break_after = [100_000, 50_000]
    fetch(server.url, target, sha256=SHA256, pause=0)
    assert target.read_bytes() == BODY
    assert only_file(target)
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_call_goes_on_with_the_part(server: Server, target: Path) -> None:
    server.break_after = [100_000]
    with pytest.raises(DownloadError, match="100,000 of 300,000 bytes"):
        fetch(server.url, target, sha256=SHA256, attempts=1)
    assert not target.exists()
    assert part_of(target).stat().st_size == 100_000
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == BODY
    assert server.asked[-1] == "bytes=100000-"


def test_a_transfer_that_always_breaks_gives_up(server: Server, target: Path) -> None:
    server.break_after = [10, 10, 10, 10]
    with pytest.raises(DownloadError, match="3 attempts"):
        fetch(server.url, target, sha256=SHA256, attempts=3, pause=0)
    assert not target.exists()
    assert part_of(target).read_bytes() == BODY[:30]


def test_a_server_that_ignores_ranges_sends_it_all_again(server: Server, target: Path) -> None:
    server.ranges, server.break_after = False, [100_000]
    fetch(server.url, target, sha256=SHA256, pause=0)
    assert target.read_bytes() == BODY
    assert server.asked == [None, "bytes=100000-"]


def test_a_range_that_was_not_asked_for_is_not_appended(server: Server, target: Path) -> None:
    server.shift, server.break_after = 7, [100_000]
    fetch(server.url, target, sha256=SHA256, pause=0)
    assert target.read_bytes() == BODY
    assert server.asked == [None, "bytes=100000-", None]


def test_a_wrong_checksum_leaves_nothing(server: Server, target: Path) -> None:
    with pytest.raises(DownloadError, match=f"{SHA256}.*nothing was kept"):
        fetch(server.url, target, sha256="0" * 64, pause=0)
    assert list(target.parent.iterdir()) == []
    assert len(server.asked) == 1, "a whole file of another content does not get better by trying again"


def test_a_wrong_checksum_keeps_the_file_that_was_there(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.write_text("yesterday's")
    with pytest.raises(DownloadError):
        fetch(server.url, target, sha256="0" * 64)
    assert target.read_text() == "yesterday's"


def test_a_stale_part_is_thrown_away_and_fetched_anew(server: Server, target: Path) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(b"x" * 1000)
    fetch(server.url, target, sha256=SHA256, pause=0)
    assert target.read_bytes() == BODY
    assert server.asked == ["bytes=1000-", None]


def test_a_part_that_is_already_whole_needs_no_transfer(server: Server, target: Path) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(BODY)
    fetch(server.url, target, sha256=SHA256, pause=0)
    assert target.read_bytes() == BODY
    assert server.asked == [f"bytes={len(BODY)}-"]


def test_a_part_longer_than_the_file_is_thrown_away(server: Server, target: Path) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(BODY + b"more")
    fetch(server.url, target, sha256=SHA256, pause=0)
    assert target.read_bytes() == BODY


def test_without_a_length_the_checksum_finds_a_cut(server: Server, target: Path) -> None:
    server.announce, server.break_after = False, [100_000]
    fetch(server.url, target, sha256=SHA256, pause=0)
    assert target.read_bytes() == BODY


def test_without_a_length_progress_has_no_total(server: Server, target: Path) -> None:
    server.announce = False
    seen: list[tuple[int, int | None]] = []
    fetch(server.url, target, sha256=SHA256, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(BODY), None)


def test_progress_counts_from_what_there_was(server: Server, target: Path) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(BODY[:1000])
    seen: list[tuple[int, int | None]] = []
    fetch(server.url, target, sha256=SHA256, progress=lambda done, total: seen.append((done, total)))
    done = [number for number, _ in seen]
    assert done[0] == 1000
    assert done == sorted(done)
    assert seen[-1] == (len(BODY), len(BODY))


def test_a_missing_file_is_not_asked_for_twice(server: Server, target: Path) -> None:
    server.statuses = [404]
    with pytest.raises(DownloadError, match="404 Not Found"):
        fetch(server.url, target, pause=0)
    assert len(server.asked) == 1
    assert list(target.parent.iterdir()) == []


def test_a_busy_server_is_asked_again(server: Server, target: Path) -> None:
    server.statuses = [503, 429]
    fetch(server.url, target, sha256=SHA256, pause=0)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("announce", [True, False])
def test_a_file_beyond_the_limit_is_refused(server: Server, target: Path, announce: bool) -> None:
    server.announce = announce
    with pytest.raises(DownloadError, match="larger than expected"):
        fetch(server.url, target, max_bytes=100_000, pause=0)
    assert not target.exists()


def test_no_server_at_all(target: Path) -> None:
    with Server() as closed:
        url = closed.url
    with pytest.raises(DownloadError, match="refused"):
        fetch(url, target, attempts=2, pause=0, timeout=5)


def test_a_silent_server_times_out(target: Path) -> None:
    with Server() as silent, pytest.raises(DownloadError, match="timed out"):  # it listens, nobody answers
        fetch(silent.url, target, attempts=1, timeout=0.1)


def test_a_folder_that_cannot_be_made_is_a_download_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match="could not store"):
        fetch(server.url, tmp_path / "file" / "file.bin")


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "retail.dat"])
def test_only_http_addresses(url: str, target: Path) -> None:
    with pytest.raises(ParameterError, match="http"):
        fetch(url, target)


def test_attempts_must_be_positive(target: Path) -> None:
    with pytest.raises(ParameterError, match="attempts"):
        fetch("http://127.0.0.1/", target, attempts=0)


def test_the_bar_goes_to_stderr_and_only_when_wanted(
    server: Server, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(server.url, target, sha256=SHA256)  # captured, so no terminal
    assert capsys.readouterr() == ("", "")
    fetch(server.url, target, sha256=SHA256, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    fetch(server.url, target, sha256=SHA256, progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_program_without_stderr_downloads_too(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    fetch(server.url, target, sha256=SHA256)
    assert file_sha256(target) == SHA256
