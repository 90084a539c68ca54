"""`contradpp serve` as a process: workers that die are replaced, signals end it, bad files are refused."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from contradpp.cli.serve import serve
from contradpp.data.feedback import read_feedback
from contradpp.models.base import load
from serve.live import launch, wait_until

RUN = "from contradpp.cli.serve import serve; serve()"


@pytest.fixture
def launched(tmp_path, shop_model):
    """Start the command with these arguments; ended after the test."""
    path = tmp_path / "model.safetensors"
    shop_model.save(path)
    processes = []

    def launch_one(*arguments: str) -> tuple[subprocess.Popen, str]:
        process, url = launch(lambda port: ["-c", RUN, str(path), "--port", str(port), *arguments], tmp_path / "log")
        processes.append(process)
        return process, url

    yield launch_one
    for process in processes:
        process.terminate()
        process.wait(60)


def children(pid: int) -> list[int]:
    """The workers of a server: its children, without multiprocessing's own helper."""
    found = []
    for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            if b"spawn_main" in Path(f"/proc/{number}/cmdline").read_bytes():
                found.append(int(number))
    return found


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="finds the workers in /proc")
def test_a_killed_worker_is_replaced_while_the_other_goes_on(launched, tmp_path):
    process, url = launched("--workers", "2", "--feedback", str(tmp_path / "feedback.jsonl"))
    wait_until(lambda: len(children(process.pid)) == 2)
    workers = children(process.pid)
    (tmp_path / "model.safetensors").write_bytes(b"garbage")  # the new worker must do with the last good one
    os.kill(workers[0], signal.SIGKILL)
    statuses = []

    def replaced() -> bool:
        try:
            answer = httpx.post(f"{url}/v1/recommend", json={"basket": ["bananas"]}, trust_env=False, timeout=60)
            statuses.append(answer.status_code)
        except httpx.TransportError:  # a connection that the dying worker had taken is lost with it
            statuses.append(0)
        now = children(process.pid)
        return len(now) == 2 and workers[0] not in now

    wait_until(replaced, 120)
    assert statuses.count(0) <= 1
    assert {*statuses} - {0} == {200}  # a new connection finds the living
    known = {httpx.get(f"{url}/v1/model", trust_env=False, timeout=20).json()["version"] for _ in range(30)}
    assert len(known) == 1
    for _ in range(20):
        event = {"outcome": "accepted", "items": ["limes"]}
        assert httpx.post(f"{url}/v1/feedback", json=event, trust_env=False, timeout=20).status_code == 200
    assert len(read_feedback(tmp_path / "feedback.jsonl").positives) == 20
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    counted = re.search(r'requests_total\{path="/v1/feedback",status="200"\} (\d+)', text)
    assert counted is not None
    assert int(counted[1]) == 20  # whichever worker answers, it knows of all


def test_an_interrupt_ends_it_in_order(launched, tmp_path):
    process, url = launched("--no-access-log")
    httpx.get(f"{url}/v1/model", trust_env=False)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) in (0, 1, 130, -signal.SIGINT)
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "/v1/model" not in log


@pytest.mark.parametrize(
    ("content", "arguments", "named"),
    [(b"nonsense", [], "model.safetensors"), (None, ["--feedback", "no/such/folder/log"], "feedback log")],
)
def test_a_bad_file_is_refused_before_anything_starts(tmp_path, shop_model, content, arguments, named):
    path = tmp_path / "model.safetensors"
    if content is None:
        shop_model.save(path)
    else:
        path.write_bytes(content)
    result = CliRunner().invoke(serve, [str(path), "--port", "1", *arguments])
    assert result.exit_code != 0
    assert named in str(result.exception)


def test_one_process_opens_the_model_once_and_before_it_listens(tmp_path, shop_model, monkeypatch):
    shop_model.save(tmp_path / "model")
    opened, ready = [], []

    def noted(path):
        opened.append(path)
        return load(path)

    def start(make, **_):
        async def first_moments():
            app = make()
            async with app.router.lifespan_context(app):
                ready.append(app.state.service.snapshot.model.items_ == shop_model.items_)

        asyncio.run(first_moments())

    for place in ("server", "service", "snapshot"):
        monkeypatch.setattr(f"contradpp.serve.{place}.load", noted)
    monkeypatch.setattr("uvicorn.run", start)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    switch = sys.getswitchinterval()
    try:
        result = CliRunner().invoke(serve, [str(tmp_path / "model")])
    finally:
        sys.setswitchinterval(switch)
    assert result.exit_code == 0, result.exception
    assert opened == [str(tmp_path / "model")]
    assert ready == [True]


@pytest.mark.parametrize(("arguments", "warned"), [([], True), (["--token", "sesame"], False)])
def test_beyond_loopback_without_a_token_there_is_a_warning(
    tmp_path, shop_model, monkeypatch, arguments, warned, capfd
):
    shop_model.save(tmp_path / "model")
    passed = {}
    monkeypatch.setattr("uvicorn.run", lambda *_, **options: passed.update(options))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    result = CliRunner().invoke(serve, [str(tmp_path / "model"), "--host", "0.0.0.0", *arguments])
    assert result.exit_code == 0
    assert passed["host"] == "0.0.0.0"
    assert ("Set a token" in result.stderr) is warned


def test_without_the_extra_the_message_names_it(tmp_path, shop_model, monkeypatch):
    shop_model.save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "contradpp.serve.server", raising=False)
    result = CliRunner().invoke(serve, [str(tmp_path / "model")])
    assert "contradpp[serve]" in str(result.exception)


def test_the_package_does_not_import_the_service():
    code = "import sys, contradpp; sys.exit(any(name.split('.')[0] in ('fastapi', 'uvicorn') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
