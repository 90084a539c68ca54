"""`contradpp demo`: a shop, models side by side, files that can be used afterwards."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

import contradpp as cd
from contradpp.cli import demo as command
from contradpp.cli.output import program


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "out"


def test_it_compares_suggests_and_writes(call, folder):
    shown = call("demo", "--baskets", 1000, "-o", folder, code=0)
    assert shown.err == ""
    assert "spaghetti, tomato sauce" in shown.out
    for name in (*command.MODELS, "popularity", "What does a product call for"):
        assert name in shown.out
    assert "Why does it suggest these with spaghetti, tomato sauce?" in shown.out
    assert "because of" in shown.out
    assert "A varied slate: " in shown.out
    assert f"{program()} serve {folder / 'model.safetensors'}" in shown.out
    assert cd.load(folder / "model.safetensors").recommend(["spaghetti"], N=1)[0].size == 1
    assert "grocer" in (folder / "report.html").read_text(encoding="utf-8")


def test_what_is_printed_can_be_pasted(call, folder, tmp_path, monkeypatch):
    """After `make demo`, `contradpp` alone was not found: the environment is not active."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    shown = call("demo", "--baskets", 500, "-o", folder, code=0).out
    (command,) = re.findall(r"^Try +(.*)$", shown, flags=re.MULTILINE)
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["sh", "-c", command], env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "parmesan" in done.stdout


def test_the_programs_name_is_enough_only_where_it_is_found(tmp_path, monkeypatch):
    own = tmp_path / "venv" / "bin" / "contradpp"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(own.with_name("python")))
    monkeypatch.setenv("PATH", str(own.parent))
    assert program() == "contradpp"
    monkeypatch.setenv("PATH", "/usr/bin")
    assert program() == str(own)
    monkeypatch.chdir(tmp_path)
    assert program() == "venv/bin/contradpp"
    own.unlink()
    assert program() == f"{sys.executable} -m contradpp"


def test_json(call, folder, monkeypatch):
    monkeypatch.setattr(command, "write_page", lambda *_: None)
    found = json.loads(call("demo", "--baskets", 500, "-o", folder, "--json").out)
    assert found["held_out"].keys() == {"popularity", "item neighbors", command.KERNEL, *command.MODELS}
    assert found["suggestions"][0]["suggests"].keys() == {command.KERNEL, *command.MODELS}


def test_serving_is_told_which_model(call, folder, monkeypatch):
    pytest.importorskip("uvicorn", reason="the service needs the extra serve")
    asked = []
    monkeypatch.setattr(command, "write_page", lambda *_: None)
    monkeypatch.setattr("contradpp.serve.server.run_server", lambda settings, **_: asked.append(settings.model))
    assert call("demo", "--baskets", 500, "-o", folder, "--serve").code == 0
    assert asked == [str(folder / "model.safetensors")]


def test_errors(call, tmp_path):
    (tmp_path / "file").write_text("")
    assert call("demo", "-o", tmp_path / "file").code == 2
    assert call("demo", "--baskets", 3).code == 2
