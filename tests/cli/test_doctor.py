"""`contradpp doctor`: the status of each check, and an exit code that a script can rely on."""

from __future__ import annotations

import json

import pytest

from contradpp.cli import doctor as checks
from contradpp.cli.inputs import free_memory


def test_everything_works_here(call):
    shown = call("doctor", code=0)
    assert "Everything works." in shown.out
    for words in ("contradpp", "numba", "BLAS", "compile cache", "memory", "extras", "self-test", "16 probabilities"):
        assert words in shown.out


def test_a_check_that_breaks_is_a_failed_check(call, monkeypatch):
    monkeypatch.setitem(checks.CHECKS, "self-test", lambda: 1 / 0)
    shown = call("doctor", "--json")
    found = json.loads(shown.out)
    assert shown.code == 1
    assert found["ok"] is False
    assert [check["name"] for check in found["checks"] if check["status"] == "failed"] == ["self-test"]
    monkeypatch.setattr(checks, "CHECKS", {"threads": lambda: 1 / 0})
    shown = call("doctor", code=1)
    assert "ZeroDivisionError: division by zero" in shown.out
    assert "1 of 1 checks failed" in shown.out


def test_wrong_probabilities_and_files_are_noticed(monkeypatch):
    monkeypatch.setattr(checks.cd, "load", lambda _: checks.cd.LowRankDPP.from_factors([[1.0]]))
    assert "other factors" in checks.run_check(checks.self_test)["found"]
    right = checks.cd.LowRankDPP.score_samples
    monkeypatch.setattr(checks.cd.LowRankDPP, "score_samples", lambda self, sets: right(self, sets) + 0.1)
    found = checks.run_check(checks.self_test)
    assert found["status"] == "failed"
    assert "sum to" in found["found"]


def test_what_could_be_better_is_a_note_with_advice(monkeypatch):
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    monkeypatch.setattr(checks, "free_memory", lambda: 1e6)
    monkeypatch.setattr(checks.os, "access", lambda *_: False)
    extras, memory, cache = map(checks.run_check, (checks.extras, checks.memory, checks.compile_cache))
    assert {check["status"] for check in (extras, memory, cache)} == {"note"}
    assert "contradpp[report,serve,plot,ray,download,tune,excel]" in extras["advice"]
    assert memory["found"] == "1.0 MB free"
    assert "NUMBA_CACHE_DIR" in cache["advice"]


@pytest.mark.parametrize(("content", "expected"), [("MemAvailable:  2 kB\n", 2048.0), ("nothing", None), (None, None)])
def test_free_memory(tmp_path, content, expected):
    if content is not None:
        (tmp_path / "meminfo").write_text(content)
    assert free_memory(tmp_path / "meminfo") == expected
