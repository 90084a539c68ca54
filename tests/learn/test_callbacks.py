"""Callbacks: the log, the checkpoint, the progress bar, and that all are told how it ended."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest

import contradpp as cd
from contradpp.errors import ConvergenceError
from contradpp.learn import callbacks
from contradpp.learn.callbacks import Callback, Checkpoint, JsonLog, ProgressBar
from contradpp.learn.params import params_from_flat
from contradpp.models.conditional import new_kernel_model

SHOP = [["tea", "milk"], ["coffee", "milk", "sugar"], ["coffee"], ["tea", "honey"]] * 20


class Spy(Callback):
    """Writes down what it is told."""

    def __init__(self, *, fail=None) -> None:
        self.calls: list[str] = []
        self.fail = fail

    def on_start(self, n_sets, max_iter, model_of):
        self.calls.append("start")
        self.start = (n_sets, max_iter)

    def on_step(self, step, n_sets):
        self.calls.append(f"step {step} {n_sets}")

    def on_iteration(self, record, best):
        self.calls.append(f"iteration {record['iteration']}")
        self.best = best.copy()
        if self.fail and record["iteration"] == 3:
            raise self.fail

    def on_end(self):
        self.calls.append("end")


def model(**parameters) -> cd.LowRankDPP:
    given = {"max_iter": 5, "tol": 0.0, "calibrate": None, "random_state": 0, "anneal": False} | parameters
    return cd.LowRankDPP(3, **params_from_flat(cd.LowRankDPP, given))


def test_order_of_calls():
    spy = Spy()
    model(max_iter=2, batch_size=50).fit(SHOP, validation=SHOP[:8], callbacks=[spy])
    first, second = ("step 1 50", "step 2 30", "iteration 1"), ("step 3 50", "step 4 30", "iteration 2")
    assert spy.calls == ["start", *first, *second, "end"]
    assert spy.start == (80, 2)


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), RuntimeError("a callback's own")])
def test_on_end_is_always_called(failure):
    spy, other = Spy(fail=failure), Spy()
    with pytest.raises(type(failure)):
        model().fit(SHOP, callbacks=[spy, other])
    assert spy.calls[-1] == other.calls[-1] == "end"


def test_on_end_of_all_even_if_one_of_them_fails():
    class Bad(Callback):
        def on_end(self):
            raise OSError("disk full")

    spy, last = Spy(), Spy()
    estimator = model()
    with pytest.raises(OSError, match="disk full"):
        estimator.fit(SHOP, callbacks=[spy, Bad(), last])
    assert spy.calls[-1] == last.calls[-1] == "end"
    assert estimator.n_iter_ == 5  # and the result is kept


def test_on_end_after_divergence():
    spy = Spy()
    with pytest.raises(ConvergenceError):
        model(optimizer="nesterov", learning_rate=1e200, objective="mle").fit(SHOP, callbacks=[spy])
    assert spy.calls[-1] == "end"


def test_json_log(tmp_path):
    path = tmp_path / "log.jsonl"
    estimator = model().fit(SHOP, callbacks=[JsonLog(path)])
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records == estimator.history_
    assert [r["iteration"] for r in records] == list(range(1, estimator.n_iter_ + 1))
    for record in records:
        assert {"step", "objective", "validation", "seconds", "sets_per_second", "rate"} <= record.keys()
    estimator.fit(SHOP, callbacks=[JsonLog(path)])
    assert len(path.read_text().splitlines()) == len(records) + estimator.n_iter_  # appended


def test_checkpoint_is_a_model(tmp_path):
    path = tmp_path / "best.safetensors"
    spy = Spy()
    estimator = model().fit(SHOP, callbacks=[Checkpoint(path), spy])
    saved = cd.load(path)
    np.testing.assert_array_equal(saved.item_factors_, spy.best)
    np.testing.assert_array_equal(saved.item_factors_, estimator.item_factors_)  # calibrate=None: nothing comes after
    assert saved.get_params() == estimator.get_params()
    assert saved.predict_next(["tea"]).sum() == pytest.approx(1.0)
    saved.partial_fit([["tea", "scones"]])
    assert "scones" in saved.items_


def test_checkpoint_every_so_often(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(cd.LowRankDPP, "save", lambda self, path: saved.append(path))
    model(max_iter=5).fit(SHOP, callbacks=[Checkpoint(tmp_path / "m", every=2)])
    assert len(saved) == 2


def test_progress_without_a_terminal_is_a_line_a_minute(capfd, monkeypatch):
    """A fit of half an hour under `nohup` was silent."""
    model().fit(SHOP)
    assert capfd.readouterr() == ("", "")  # it took less than a minute
    clock = iter(range(0, 10_000, 25))
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: float(next(clock)))
    model(max_iter=5).fit(SHOP)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert 2 <= len(lines) <= 6  # of ten steps and rounds, 25 seconds apart
    assert "round 2 of about" in lines[0]
    assert "sets/s" in lines[0]
    assert "\r" not in err
    model(verbose=0).fit(SHOP)
    assert capfd.readouterr().err == ""


def test_progress_of_a_process_that_works_for_another_is_silent(capfd, monkeypatch):
    monkeypatch.setattr(callbacks.multiprocessing, "parent_process", lambda: object())
    model(max_iter=2).fit(SHOP, callbacks=[ProgressBar(force=True)])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("outer", "inner", "shown"), [(1, 1, True), (0, 1, False), (1, 0, False)])
def test_both_parts_of_a_conditional_model_must_be_verbose(outer, inner, shown):
    given = cd.ConditionalDPP(cd.LowRankDPP(verbose=inner), verbose=outer)
    assert bool(new_kernel_model(given).verbose) == shown


def test_progress_bar_shows_what_there_is_to_know(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    model(max_iter=4).fit(SHOP, callbacks=[ProgressBar(force=True)])
    out, err = capfd.readouterr()
    assert out == ""
    for text in ("round 4 of about 4", "objective", "validation", "sets/s"):
        assert text in err


def test_progress_in_a_notebook_is_a_line_that_changes(monkeypatch):
    """`verbose=1` showed nothing there: standard error is no terminal."""
    shown = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(callbacks, "SECONDS_BEFORE", 0.0)
    monkeypatch.setattr(callbacks, "SECONDS_A_CHANGE", 0.0)
    cd.LowRankDPP(2, max_iter=3, random_state=0, verbose=1).fit([["a", "b"], ["b", "c"]] * 30)
    *_, last = shown.getvalue().split("\r")
    assert "round 3 of about" in last
    assert last.endswith("\n")
    assert "\x1b" not in shown.getvalue()


def test_progress_bar_of_an_interrupted_run_gives_the_terminal_back(capfd):
    bar = ProgressBar(force=True)
    with pytest.raises(KeyboardInterrupt):
        model().fit(SHOP, callbacks=[bar, Spy(fail=KeyboardInterrupt())])
    assert capfd.readouterr().err.rstrip("\n").endswith(("\x1b[?25h", "\x1b[2K", "\x1b[1A")) or bar._bar is None
    model().fit(SHOP, callbacks=[bar])  # it can be used again
