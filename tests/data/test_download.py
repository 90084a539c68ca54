"""The downloader against a real HTTP server on this machine, with the faults that real ones have."""

from __future__ import annotations

import hashlib
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from contradpp.data import datasets
from contradpp.data.datasets import fetch
from contradpp.errors import DownloadError, MissingExtraError, ParameterError

BODY = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves BODY at every path; the faults are set by the test."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.announce = True  # whether there is a Content-Length
        self.break_after: list[int | None] = []  # for each request in turn: cut the body after so many bytes
        self.statuses: list[int] = []  # for each request in turn: answer with this error instead
        self.n_asked = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.n_asked += 1
        if server.statuses:
            self.send_error(server.statuses.pop(0))
            return
        self.send_response(200)
        if server.announce:
            self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[: server.break_after.pop(0) if server.break_after else None])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)  # the pause between attempts
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "file.bin"


def only_file(target: Path) -> bool:
    return [path.name for path in target.parent.iterdir()] == [target.name]


def test_a_file_comes_whole_and_alone(server: Server, target: Path) -> None:
    assert fetch(server.url, target, sha256=SHA256.upper()) == target
    assert target.read_bytes() == BODY
    assert only_file(target)
    assert server.n_asked == 1


@pytest.mark.parametrize(("cuts", "statuses"), [([100_000, 50_000], []), ([], [503, 429])])
def test_a_broken_transfer_is_tried_again(
    server: Server, target: Path, cuts: list[int | None], statuses: list[int]
) -> None:
    server.break_after, server.statuses = cuts, statuses
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == BODY
    assert only_file(target)
    assert server.n_asked == 3


@pytest.mark.parametrize(("cuts", "statuses", "reason"), [([10] * 3, [], "could not download"), ([], [404] * 3, "404")])
def test_a_transfer_that_always_breaks_gives_up(
    server: Server, target: Path, cuts: list[int | None], statuses: list[int], reason: str
) -> None:
    server.break_after, server.statuses = cuts, statuses
    with pytest.raises(DownloadError, match=reason):
        fetch(server.url, target, sha256=SHA256)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("before", [None, "yesterday's"])
def test_a_wrong_checksum_leaves_what_was_there(server: Server, target: Path, before: str | None) -> None:
    target.parent.mkdir()
    if before is not None:
        target.write_text(before)
    with pytest.raises(DownloadError, match=f"(?s)nothing was kept: SHA256.*{SHA256}"):
        fetch(server.url, target, sha256="0" * 64)
    assert [path.read_text() for path in target.parent.iterdir()] == ([] if before is None else [before])


def test_without_a_length_the_checksum_finds_a_cut(server: Server, target: Path) -> None:
    server.announce, server.break_after = False, [100_000]
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("total", [len(BODY), None])
def test_progress_counts_to_the_length(server: Server, target: Path, total: int | None) -> None:
    server.announce, server.break_after = total is not None, [100_000]
    seen: list[tuple[int, int | None]] = []
    fetch(server.url, target, sha256=SHA256, progress=lambda done, total: seen.append((done, total)))
    assert {whole for _, whole in seen} == {total}
    if total is not None:
        assert seen[0] == (0, total)
        assert seen[-1] == (total, total)
        assert max(done for done, _ in seen) == total


@pytest.mark.parametrize("announce", [True, False])
def test_a_file_beyond_the_limit_is_refused(
    server: Server, target: Path, announce: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "_MAX_BYTES", 100_000)
    server.announce = announce
    with pytest.raises(DownloadError, match="larger than expected"):
        fetch(server.url, target)
    assert not target.exists()
    assert server.n_asked == 1


def test_no_server_at_all(server: Server, target: Path) -> None:
    with Server() as closed:
        url = closed.url
    with pytest.raises(DownloadError, match="refused"):
        fetch(url, target)


def test_a_silent_server_times_out(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_ATTEMPTS", 1)
    monkeypatch.setattr(datasets, "_TIMEOUT", 0.1)
    with Server() as silent, pytest.raises(DownloadError, match="timed out"):  # it listens, nobody answers
        fetch(silent.url, target)


def test_a_folder_that_cannot_be_made_is_a_download_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match="could not store"):
        fetch(server.url, tmp_path / "file" / "file.bin")


def test_a_missing_extra_is_named(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"contradpp\[download\].*CONTRADPP_DATA"):
        fetch("http://127.0.0.1/", target)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "retail.dat"])
def test_only_http_addresses(url: str, target: Path) -> None:
    with pytest.raises(ParameterError, match="http"):
        fetch(url, target)


def test_the_bar_goes_to_stderr_and_only_when_wanted(
    server: Server, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for progress in (None, True, False):
        fetch(server.url, target, sha256=SHA256, progress=progress)
        target.unlink()
        shown = capsys.readouterr()
        assert shown.out == ""
        assert progress or not shown.err  # captured, so no terminal


def test_a_program_without_stderr_downloads_too(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == BODY
