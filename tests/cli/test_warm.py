"""`contradpp warm`: every job runs, and what failed is named."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from contradpp.cli import warm


@pytest.mark.parametrize("name", warm.JOBS)
def test_every_job_runs(name):
    done = CliRunner().invoke(warm.warm, ["--only", name])
    assert done.exit_code == 0, done.output


def test_the_jobs_run_in_processes_and_a_failure_is_named(monkeypatch):
    asked = []
    monkeypatch.setattr(warm, "_in_a_process", lambda name: asked.append(name) or 0)
    done = CliRunner().invoke(warm.warm, ["--n-jobs", "2"])
    assert done.exit_code == 0
    assert "compiled" in done.output
    assert sorted(asked) == sorted(warm.JOBS)
    monkeypatch.setattr(warm, "_in_a_process", lambda name: int(name == "other models"))
    done = CliRunner().invoke(warm.warm)
    assert done.exit_code == 1
    assert "could not compile other models" in done.output


def test_another_process_compiles_ahead_where_nothing_is_compiled(monkeypatch, tmp_path):
    started = []

    class Process:
        def __init__(self, command, **told):
            started.append(command[-1])

        def terminate(self):
            started.append("ended")

        def wait(self):
            """It has ended."""

    monkeypatch.setattr(warm.subprocess, "Popen", Process)
    monkeypatch.setattr(warm, "_at_hand", lambda: False)
    with warm.compiling_ahead():
        assert started == ["the default model"]
    assert started[-1] == "ended"
    monkeypatch.undo()
    CliRunner().invoke(warm.warm, ["--only", "the default model"])
    assert warm._at_hand()
