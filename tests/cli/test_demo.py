"""`contradpp demo`: a shop, models side by side, files that can be used afterwards."""

from __future__ import annotations

import json

import pytest

import contradpp as cd
from contradpp.cli import demo as command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "out"


def test_it_compares_suggests_and_writes(call, folder):
    shown = call("demo", "--baskets", 2000, "-o", folder, code=0)
    assert shown.err == ""
    assert "spaghetti, tomato sauce" in shown.out
    for name in (*command.MODELS, "popularity", "What does a product call for"):
        assert name in shown.out
    assert "Why does it suggest these with spaghetti, tomato sauce?" in shown.out
    assert "because of" in shown.out
    assert "A varied slate: " in shown.out
    assert f"contradpp serve {folder / 'model.safetensors'}" in shown.out
    assert cd.load(folder / "model.safetensors").recommend(["spaghetti"], N=1)[0].size == 1
    assert "grocer" in (folder / "report.html").read_text(encoding="utf-8")


def test_json(call, folder, monkeypatch):
    monkeypatch.setattr(command, "write_page", lambda *_: None)
    found = json.loads(call("demo", "--baskets", 500, "-o", folder, "--json").out)
    assert found["held_out"].keys() == {"popularity", "item neighbours", command.KERNEL, *command.MODELS}
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
