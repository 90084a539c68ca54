"""`contradpp warm`: every job runs, and what failed is named; another process does one while we learn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import contradpp as cd
from contradpp.cli import warm
from contradpp.dpp import ahead
from contradpp.dpp.compiled import _numba


@pytest.mark.parametrize("name", warm.ALL_JOBS)
def test_every_job_runs(name):
    done = CliRunner().invoke(warm.warm, ["--only", name])
    assert done.exit_code == 0, done.output


def test_the_jobs_run_in_processes_and_a_failure_is_named(monkeypatch):
    asked = []
    monkeypatch.setattr(warm, "_run_in_process", lambda name: asked.append(name) or 0)
    done = CliRunner().invoke(warm.warm, ["--n-jobs", "2"])
    assert done.exit_code == 0
    assert "compiled" in done.output
    assert sorted(asked) == sorted(warm.JOBS)
    monkeypatch.setattr(warm, "_run_in_process", lambda name: int(name == "other models"))
    done = CliRunner().invoke(warm.warm)
    assert done.exit_code == 1
    assert "could not compile other models" in done.output


class Process:
    """What stands for another process: it notes what was asked of it, and works until it is told to end."""

    asked: list[str] = []

    def __init__(self, command, **told):
        self.asked.append(command[-1])
        self.ended = False
        assert told.keys() == {"stdin", "stdout", "stderr", "env"}
        assert told["env"]["CONTRADPP_COMPILE_AHEAD"] == "0"  # it starts none itself

    def poll(self):
        return 0 if self.ended else None

    def terminate(self):
        self.asked.append("ended")
        self.ended = True

    def wait(self, timeout=None):
        """It has ended."""


class Stubborn(Process):
    """One that does not end when it is told to."""

    def wait(self, timeout=None):
        if timeout is not None:
            raise subprocess.TimeoutExpired("warm", timeout)

    def kill(self):
        self.asked.append("killed")


@pytest.fixture
def asked(monkeypatch):
    """What other processes are asked to do on a machine of two cores."""
    monkeypatch.setenv("CONTRADPP_COMPILE_AHEAD", "1")
    monkeypatch.setattr(Process, "asked", [])
    monkeypatch.setattr(ahead.subprocess, "Popen", Process)
    monkeypatch.setattr(ahead, "_started", {})
    stack = ExitStack()  # stands for the end of this process
    monkeypatch.setattr(ahead, "atexit", SimpleNamespace(register=stack.callback, end=stack.close))
    monkeypatch.setattr(ahead, "resolve_n_jobs", lambda n_jobs: n_jobs or 2)
    return Process.asked


@pytest.fixture
def started(asked, monkeypatch):
    """The same where nothing is compiled."""
    monkeypatch.setattr(ahead, "is_compiled", lambda _: False)
    return asked


def test_another_process_compiles_ahead_and_is_ended_with_ours(started):
    ahead.compile_ahead(ahead.DEMO)
    ahead.compile_ahead(ahead.FIT)  # the other one is at work
    assert started == ["demo"]
    ahead.atexit.end()
    assert started == ["demo", "ended"]
    ahead.compile_ahead(ahead.FIT)
    assert started == ["demo", "ended", "fit"]


def test_one_that_does_not_end_is_killed(started, monkeypatch):
    monkeypatch.setattr(ahead.subprocess, "Popen", Stubborn)
    ahead.compile_ahead(ahead.DEMO)
    ahead.atexit.end()
    assert started == ["demo", "ended", "killed"]


def test_a_fork_does_not_end_what_it_has_not_started(started, monkeypatch):
    ahead.compile_ahead(ahead.DEMO)
    monkeypatch.setattr(ahead.os, "getpid", lambda: -1)
    ahead.atexit.end()
    assert started == ["demo"]


def test_it_does_not_where_one_core_is_to_be_used_or_there_is_one(started, monkeypatch):
    ahead.compile_ahead(ahead.FIT, n_jobs=1)
    monkeypatch.setattr(ahead, "resolve_n_jobs", lambda n_jobs: n_jobs or 1)
    ahead.compile_ahead(ahead.FIT, n_jobs=2)
    assert started == []


def test_nor_where_the_environment_forbids_it(started, monkeypatch):
    monkeypatch.setenv("CONTRADPP_COMPILE_AHEAD", "0")
    ahead.compile_ahead(ahead.FIT)
    assert started == []


def test_a_job_is_started_once_where_nothing_can_be_kept(asked, monkeypatch):
    """Each of many fits in a container of read-only files started a compiler."""
    monkeypatch.setattr(_numba.SharedCache, "is_compiled", False)
    for _ in range(3):
        ahead.compile_ahead(ahead.FIT)
        ahead._started[ahead.FIT].ended = True
    assert asked == ["fit"]


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (ahead, "is_compiled", lambda _: True),
        (ahead.multiprocessing, "parent_process", object),
        (ahead.sys, "executable", ""),
        (ahead.sys, "executable", None),
        (ahead.sys, "executable", "/opt/shop/shop-server"),
    ],
)
def test_it_does_not_where_nothing_is_left_nor_in_a_pool_nor_in_an_application(
    started, monkeypatch, where, name, value
):
    monkeypatch.setattr(where, name, value)
    ahead.compile_ahead(ahead.FIT)
    assert started == []


def test_the_other_process_imports_nothing_from_the_present_folder(tmp_path):
    """A `click.py` in a folder of downloads ran when `fit` was called there."""
    (tmp_path / "click.py").write_text("open('evil', 'w')")
    done = subprocess.run(ahead.command("no such job"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "no such job" in done.stderr
    assert not (tmp_path / "evil").exists()


def test_a_system_without_processes_is_no_reason_to_fail(started, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError

    monkeypatch.setattr(ahead.subprocess, "Popen", refuse)
    for _ in range(2):
        ahead.compile_ahead(ahead.FIT)
    assert not ahead._started


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        ([], ["fit"]),
        (["--model", "lowrank", "--objective", "dynamic"], ["negatives"]),
        (["--model", "lowrank", "--objective", "exact"], []),
        (["--n-jobs", "1"], []),
        (["--n-jobs", "2"], ["fit"]),
    ],
)
def test_fit_lets_another_process_compile_where_there_is_enough_to_compile(call, started, tmp_path, words, jobs):
    """But not where one core is to be used."""
    (tmp_path / "shop.csv").write_text("tea,milk\npasta,sauce\n" * 30)
    call("fit", tmp_path / "shop.csv", "-o", tmp_path / "model", "--max-iter", 1, *words, code=0)
    assert started == jobs


@pytest.mark.parametrize(
    ("model", "jobs"),
    [
        (cd.ConditionalDPP(cd.NonsymmetricDPP(2, 2, max_iter=1)), ["fit"]),
        (cd.LowRankDPP(2, max_iter=1), ["negatives"]),
        (cd.LowRankDPP(2, objective="mle", max_iter=1), []),
        (cd.LowRankDPP(2, max_iter=1, dtype="float32"), []),
        (cd.NonsymmetricDPP(2, 2, objective="dynamic", max_iter=1), []),
        (cd.LowRankDPP(2, max_iter=1, n_jobs=1), []),
    ],
)
def test_a_model_that_is_fitted_in_python_does_so_too(started, model, jobs):
    model.fit([["tea", "milk"], ["pasta", "sauce"]] * 30)
    assert started == jobs


ENDING = """
import sys, time
from contradpp.dpp import ahead
ahead.is_compiled, ahead.resolve_n_jobs = lambda _: False, lambda _: 2
ahead.compile_ahead("fit")
print(ahead._started["fit"].pid)
"""


def test_nothing_is_left_behind(tmp_path):
    """The real thing: a process is started, and is not there any more when the one that started it has ended."""
    told = os.environ | {"CONTRADPP_COMPILE_AHEAD": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ENDING], env=told, capture_output=True, text=True, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_what_was_compiled_is_is_compiled_until_a_kernel_is_edited(monkeypatch):
    for name in ("the default model", "dynamic negatives"):
        assert CliRunner().invoke(warm.warm, ["--only", name]).exit_code == 0
    jobs = (ahead.FIT, ahead.DEMO, ahead.NEGATIVES)
    assert all(map(ahead.is_compiled, jobs))
    monkeypatch.setattr(_numba, "STAMP", ("edited",))
    assert not any(map(ahead.is_compiled, jobs))


# The kernels of a process and the types that each was called with, after some lines.
FORMS = """
import json, sys
from contradpp.cli import warm
from contradpp import experts
from contradpp.dpp import compiled
{}
modules = [(name, getattr(compiled, name)) for name in compiled.__all__] + [("experts", experts.compiled)]
kernels = {{f"{{name}}.{{kernel}}": code for name, module in modules
           for kernel, code in vars(module).items() if hasattr(code, "is_compiled")}}
print(json.dumps([f"{{name}}{{form}}" for name, code in kernels.items() for form in code.signatures]))
"""
FIT = """
import contradpp as cd
shop = cd.datasets.load("grocer", n_baskets=1500, random_state=0)
train, test = shop.split(0.1, random_state=0)
model = cd.ConditionalDPP(cd.NonsymmetricDPP(max_iter=2), random_state=0).fit(train)
cd.evaluate(model, test, train=train)
model.recommend([shop.items[0]])
"""
LOWRANK = """
import contradpp as cd
shop = cd.datasets.load("grocer", n_baskets=1500, random_state=0)
model = cd.LowRankDPP(32, objective="dynamic", max_iter=2, oversize="drop", random_state=0).fit(shop)
model.recommend([shop.items[0]])
"""


@pytest.mark.parametrize(("lines", "job"), [(FIT, ahead.FIT), (LOWRANK, ahead.NEGATIVES)])
def test_all_that_is_needed_later_is_compiled_ahead(lines, job):
    def forms(lines: str) -> set[str]:
        done = subprocess.run([sys.executable, "-c", FORMS.format(lines)], capture_output=True, text=True, check=True)
        return set(json.loads(done.stdout))

    left = {form.partition("(")[0] for form in forms(lines) - forms(f"warm.ALL_JOBS[{job!r}]()")}
    assert {name.partition(".")[0] for name in left} <= {"gradients", "sums", "steps", "draws"}, left
    assert ("gradients.conditional_gradients" in left) == (job == ahead.FIT)
