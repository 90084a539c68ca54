"""`contradpp doctor`: verdicts, and an exit code that a script can rely on."""

from __future__ import annotations

import json

import pytest

from contradpp.cli import doctor as checks
from contradpp.cli.doctor import Check


def test_everything_works_here(call):
    shown = call("doctor")
    assert shown.code == 0, shown.out
    assert "Everything works." in shown.out
    for words in ("contradpp", "numba", "BLAS", "compile cache", "memory", "extras", "32 probabilities", "training"):
        assert words in shown.out


def test_json_and_a_failed_check(call, monkeypatch):
    monkeypatch.setitem(checks.ALL, "exact probabilities", lambda: 1 / 0)
    shown = call("doctor", "--json")
    found = json.loads(shown.out)
    assert shown.code == 1
    assert found["ok"] is False
    assert [check["name"] for check in found["checks"] if check["verdict"] == "failed"] == ["exact probabilities"]


def test_a_check_that_breaks_is_a_failed_check(call, monkeypatch):
    def broken():
        raise RuntimeError("no threads")

    monkeypatch.setattr(checks, "ALL", {"threads": broken})
    shown = call("doctor")
    assert shown.code == 1
    assert "RuntimeError: no threads" in shown.out
    assert "1 of 1 checks failed" in shown.out


def test_wrong_probabilities_are_noticed(monkeypatch):
    right = checks.cd.LowRankDPP.score_samples
    monkeypatch.setattr(checks.cd.LowRankDPP, "score_samples", lambda self, sets: right(self, sets) + 0.1)
    (first,) = checks.examined("exact probabilities", checks.enumeration)
    assert first.verdict == "failed"
    assert "sum to" in first.found


def test_missing_extras_and_little_memory_are_notes(monkeypatch, tmp_path):
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: None)
    (extras,) = checks.extras()
    assert extras.verdict == "note"
    assert "contradpp[serve,plot,ray,tune]" in extras.advice
    monkeypatch.setattr(checks, "free_memory", lambda: 1e6)
    assert checks.memory()[0].verdict == "note"
    assert checks.memory()[0].found == "1.0 MB free"


def test_a_cache_that_cannot_be_written_is_a_note(monkeypatch):
    monkeypatch.setattr(checks.os, "access", lambda *_: False)
    (check,) = checks.compile_cache()
    assert check.verdict == "note"
    assert "NUMBA_CACHE_DIR" in check.advice


@pytest.mark.parametrize(("content", "expected"), [("MemAvailable:  2 kB\n", 2048.0), ("nothing", None), (None, None)])
def test_free_memory(tmp_path, content, expected):
    if content is not None:
        (tmp_path / "meminfo").write_text(content)
    assert checks.free_memory(tmp_path / "meminfo") == expected


def test_checks_are_plain():
    assert Check("a", "ok", "b").advice == ""
