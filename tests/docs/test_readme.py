"""The commands of README, pasted one after the other into a fresh shell, work."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """The lines of all shell blocks, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def output(words: list[str], **more) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600, **more)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """A new environment with this package as a wheel, whose dependencies are those of the tests."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("fresh")
    output([sys.executable, "-m", "venv", str(folder / "venv")])
    python = folder / "venv" / "bin" / "python"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    output(build, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    output([str(python), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)])
    own = Path(output([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    (own / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    places = os.pathsep.join([str(python.parent), "/usr/bin", "/bin"])
    return {"PATH": places, "HOME": str(folder), "TERM": "dumb", "LANG": "C.UTF-8"}


def test_the_commands_are_those_that_are_run():
    install, *rest, serve = commands()
    assert install == "pip install 'contradpp[report,serve]'"
    assert [line.split()[1] for line in (*rest, serve)] == ["data", "fit", "recommend", "serve"]
    assert rest[0].endswith(" orders.csv")


@pytest.mark.timeout(900)  # it compiles all kernels, and fits with the defaults
def test_they_work_one_after_the_other(environment, tmp_path):
    _, *rest, serve = commands()
    shown = output(["sh", "-e", "-c", "\n".join(rest)], cwd=tmp_path, env=environment)
    assert {"orders.csv", "shop.safetensors", "shop.html"} <= {path.name for path in tmp_path.iterdir()}
    assert "because of" in shown
    printed = re.findall(r"^Try +(.*)$", shown, flags=re.MULTILINE)
    assert printed
    for command in printed:  # what is printed can be pasted, too
        assert output(["sh", "-c", command], cwd=tmp_path, env=environment).strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["sh", "-c", f"exec {serve.partition('#')[0]} --port {port}"]
    page = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                    assert b"<html" in answer.read()
                    break
            except OSError:
                assert page.poll() is None, page.stdout.read().decode()
                time.sleep(0.1)
        else:
            pytest.fail("the page does not answer")
    finally:
        page.send_signal(signal.SIGTERM)
        page.communicate(timeout=30)
