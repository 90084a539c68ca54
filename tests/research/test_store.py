"""Results survive a kill, and are redone when what they depend on has changed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import contradpp as cd
from contradpp.errors import ContradppError
from contradpp.metrics.intervals import plain
from contradpp.research import paper, reproduce
from contradpp.research.paper import Protocol, Task
from contradpp.research.reproduce import Store, write_text

TASK = Task("fit", "uk", "mle", 0)


def test_what_is_put_can_be_got(tmp_path):
    store = Store(tmp_path)
    assert store.get(TASK) is None
    store.put(TASK, {"seconds": 1.0})
    assert store.get(TASK) == {"seconds": 1.0}
    assert store.version(TASK) == cd.__version__
    entry = json.loads(store.path(TASK).read_text())
    assert entry["parameters"]["estimator"]["n_components"] == 100


def test_other_parameters_mean_no_result(tmp_path):
    store = Store(tmp_path)
    store.put(TASK, {"seconds": 1.0})
    changed = replace(TASK, overrides=(("max_iter", 7),))
    assert store.path(changed) == store.path(TASK)
    assert store.get(changed) is None
    store.put(changed, {"seconds": 2.0})
    assert store.get(TASK) is None


@pytest.mark.parametrize("text", ["", '{"version": "0', "[]", "{}"])
def test_a_damaged_file_means_no_result(tmp_path, text):
    store = Store(tmp_path)
    write_text(store.path(TASK), text)
    assert store.get(TASK) is None


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(ContradppError, match="disk full"):
        Store(tmp_path).put(TASK, {})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_plain_has_no_nan():
    assert plain({"a": (1, float("nan"), float("-inf")), 2: None}) == {"a": [1, None, None], "2": None}


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, faked, monkeypatch):
    protocol, done = Protocol(quick=True), []

    def kill(task, seconds):
        done.append(task)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce(["table-uk"], tmp_path, protocol, watch=kill)
    assert len(faked) == 1
    everything = paper.tasks_of("table-uk", protocol)
    assert len(reproduce.missing(["table-uk"], protocol, Store(tmp_path))) == len(everything) - 1
    reproduce.reproduce(["table-uk"], tmp_path, protocol)
    assert sorted(map(str, faked)) == sorted(map(str, everything))  # each once
    faked.clear()
    reproduce.reproduce(["table-uk"], tmp_path, protocol)
    assert faked == []
    reproduce.reproduce(["table-uk"], tmp_path, Protocol(trials=2))
    assert {task.trial for task in faked} == {1}


def test_several_processes_find_what_one_does(tmp_path):
    tasks = [Task("toy", "toy", method, trial) for method in ("mle", "explicit") for trial in (0, 1)]
    told = []
    reproduce.compute(tasks, Store(tmp_path / "one"), n_jobs=1)
    several = Store(tmp_path / "several")
    reproduce.compute(tasks, several, n_jobs=1, processes=2, watch=lambda task, _: told.append(task))
    assert sorted(map(str, told)) == sorted(map(str, tasks))
    for task in tasks:
        one, other = Store(tmp_path / "one").get(task), several.get(task)
        assert one["probabilities"] == other["probabilities"]
        assert one["history"]["validation"] == other["history"]["validation"]


def test_what_fails_in_another_process_is_told(tmp_path):
    good, bad = Task("toy", "toy", "mle", 0), Task("toy", "toy", "no-such-objective", 0)
    store = Store(tmp_path)
    with pytest.raises(ContradppError, match="no-such-objective"):
        reproduce.compute([good, bad], store, n_jobs=1, processes=2)
    assert store.get(bad) is None
