"""Checkpoints: a run that was broken off goes on to the same bytes, and nothing foreign or damaged is gone on from."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import contradpp as cd
from contradpp.dpp import files as persist
from contradpp.errors import CheckpointError, ModelFileError, ParameterError
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoints import Checkpointer, Checkpointing, parse_every
from contradpp.learn.params import params_from_flat

rng = np.random.default_rng(0)
BASKETS = [rng.choice(30, size=rng.integers(2, 5), replace=False).tolist() for _ in range(200)]


class Break(Exception):
    """What stops a run here, as a kill would, but sooner."""


class BreakAt(Callback):
    """Stops training right after a step; the checkpoint of that step is not written any more."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.resumed: tuple[int, int] | None = None

    def on_resume(self, step: int, n_sets: int) -> None:
        self.resumed = (step, n_sets)

    def on_step(self, step: int, n_sets: int) -> None:
        if step == self.step:
            raise Break


def model_of(**parameters) -> cd.LowRankDPP:
    standard = {"batch_size": 32, "max_iter": 4, "tol": 0.0, "n_jobs": 1, "random_state": 3}
    return cd.LowRankDPP(5, **params_from_flat(cd.LowRankDPP, standard | parameters))


def break_off(path, step, parameters, baskets=BASKETS, **given) -> None:
    with pytest.raises(Break):
        model_of(**parameters).fit(
            baskets, checkpoint=Checkpointing(path, 1, path.exists()), callbacks=[BreakAt(step)], **given
        )


PATHS = {
    "dynamic": {"objective": "dynamic"},
    "exact": {"objective": "exact"},
    "mle-nesterov": {"objective": "mle", "optimizer": "nesterov"},
    "nce-robbins": {"objective": "nce", "optimizer": "robbins-monro"},
    "explicit": {"objective": "explicit", "negative_ratio": 1.5},
    "paper": {"settings": "paper", "objective": "mle"},
    "plateau": {"objective": "dynamic", "tol": 10.0, "max_iter": 12, "batch_size": 200},
}


@pytest.mark.parametrize("parameters", PATHS.values(), ids=PATHS)
def test_a_broken_run_goes_on_to_the_same_bytes(parameters, tmp_path):
    """Twice broken: within a round, and in a later one. The whole run has no checkpoints at all."""
    whole = model_of(**parameters).fit(BASKETS, negatives=[[0, 1], [2, 3]])
    path = tmp_path / "run.checkpoint"
    for step in (2, 10) if parameters != PATHS["plateau"] else (2, 5):
        break_off(path, step, parameters, negatives=[[0, 1], [2, 3]])
    model = model_of(**parameters).fit(BASKETS, negatives=[[0, 1], [2, 3]], checkpoint=Checkpointing(path, resume=True))
    assert model.item_factors_.tobytes() == whole.item_factors_.tobytes()
    assert model.n_iter_ == whole.n_iter_
    for key in ("iteration", "step", "objective", "validation", "rate"):
        assert [h[key] for h in model.history_] == [h[key] for h in whole.history_]


@pytest.mark.parametrize("objective", ["dynamic", "exact", "mle"])
def test_every_step_can_be_the_last_of_a_process(objective, tmp_path, monkeypatch):
    """One step a process, rows put off and sums kept in step included, as with a catalogue too large to be dense."""
    monkeypatch.setattr("contradpp.learn.optimizers.DENSE_ITEMS", 10)
    parameters = {"objective": objective, "max_iter": 3}
    baskets = cd.Baskets.from_lists(BASKETS)
    if objective != "exact":  # most items are never touched, so that VᵀV is known from the last round's
        baskets = cd.Baskets.from_csr(baskets.indptr, baskets.indices, items=range(300))
    whole = model_of(**parameters).fit(baskets)
    path, steps = tmp_path / "c", whole.history_[-1]["step"]
    for step in range(2, steps + 1):
        break_off(path, step, parameters, baskets=baskets)
    model = model_of(**parameters).fit(baskets, checkpoint=Checkpointing(path, resume=True))
    assert model.item_factors_.tobytes() == whole.item_factors_.tobytes()


def test_a_kernel_with_pairs_goes_on_to_the_same_bytes(tmp_path):
    def fit(**given):
        model = cd.NonsymmetricDPP(
            5, optimizer=cd.optimizers.Adam(batch_size=32), max_iter=3, tol=0.0, n_jobs=1, random_state=3
        )
        return model.fit(BASKETS, **given)

    path = tmp_path / "c"
    for step in (2, 9):
        with pytest.raises(Break):
            fit(checkpoint=Checkpointing(path, 1, path.exists()), callbacks=[BreakAt(step)])
    fit(checkpoint=Checkpointing(path, resume=True)).save(tmp_path / "broken")
    fit().save(tmp_path / "whole")
    assert (tmp_path / "broken").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_finished_run_is_given_back_and_can_be_made_longer(tmp_path):
    path = tmp_path / "c"
    first = model_of(max_iter=2).fit(BASKETS, checkpoint=path)
    watcher = BreakAt(1)
    again = model_of(max_iter=2).fit(BASKETS, checkpoint=Checkpointing(path, resume=True), callbacks=[watcher])
    assert watcher.resumed == (first.history_[-1]["step"], 2 * 190)
    assert again.item_factors_.tobytes() == first.item_factors_.tobytes()
    longer = model_of(max_iter=4, n_jobs=2).fit(BASKETS, checkpoint=Checkpointing(path, resume=True))
    assert longer.item_factors_.tobytes() == model_of(max_iter=4).fit(BASKETS).item_factors_.tobytes()


def test_without_a_random_state_the_seed_is_that_of_the_checkpoint(tmp_path):
    path = tmp_path / "c"
    break_off(path, 5, {"random_state": None})
    seed = persist.read_model(path)[1]["identity"]["seed"]
    model = model_of(random_state=None).fit(BASKETS, checkpoint=Checkpointing(path, resume=True))
    assert model.item_factors_.tobytes() == model_of(random_state=seed).fit(BASKETS).item_factors_.tobytes()


def test_no_file_is_overwritten_unasked(tmp_path):
    path = tmp_path / "thesis.txt"
    path.write_text("a year of work")
    with pytest.raises(CheckpointError, match="exists already"):
        model_of().fit(BASKETS, checkpoint=path)
    with pytest.raises(CheckpointError, match="remove it"):
        model_of().fit(BASKETS, checkpoint=Checkpointing(path, resume=True))
    assert path.read_text() == "a year of work"


def test_without_a_checkpoint_there_is_a_beginning(tmp_path, caplog):
    model = model_of().fit(BASKETS, checkpoint=Checkpointing(tmp_path / "c", resume=True))
    assert "from the beginning" in caplog.text
    assert model.item_factors_.tobytes() == model_of().fit(BASKETS).item_factors_.tobytes()


@pytest.mark.parametrize(
    ("parameters", "baskets", "words"),
    [
        ({"alpha": 2.0}, BASKETS, r"alpha was 1.0 and is 2.0"),
        ({"objective": "exact"}, BASKETS, "objective was 'dynamic'"),
        ({"random_state": 4}, BASKETS, "the seed was 3 and is 4"),
        ({}, BASKETS[1:], "baskets, weights"),
        ({}, [[f"item {i}" for i in basket] for basket in BASKETS], "baskets, weights"),
    ],
)
def test_another_run_is_refused(parameters, baskets, words, tmp_path):
    path = tmp_path / "c"
    break_off(path, 5, {})
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=words):
        model_of(**parameters).fit(baskets, checkpoint=Checkpointing(path, resume=True))
    assert path.read_bytes() == before


def test_damage_is_found_wherever_it_is(tmp_path):
    path = tmp_path / "c"
    break_off(path, 5, {})
    good = path.read_bytes()
    random = np.random.default_rng(1)
    for trial in range(60):
        data = bytearray(good)
        if trial % 3:
            data[random.integers(len(data))] ^= 1 << random.integers(8)
        else:
            data = data[: random.integers(len(data))]
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match="remove it and start again"):
            Checkpointer(Checkpointing(path, resume=True))


def test_a_whole_file_with_wrong_contents_is_refused(tmp_path):
    """As someone would write it who can compute a checksum: compiled kernels must never see such arrays."""
    path = tmp_path / "c"
    break_off(path, 5, {})
    tensors, body = persist.read_model(path)
    changes = {
        "state.V": np.zeros((1, 5)),
        "state._norm_blocks": np.zeros(0),
        "optimizer.rows": np.zeros((30, 4)),
        "optimizer.momentum": np.zeros((30, 5), dtype=np.float32),
        "best.V": np.zeros(3),
    }
    for name, array in changes.items():
        persist.write_model(path, tensors | {name: array}, body)
        with pytest.raises(CheckpointError, match="remove it"):
            model_of().fit(BASKETS, checkpoint=Checkpointing(path, resume=True))
    for body_change in ({"parts": {}}, {"parts": 3}, {"identity": None}, {"checkpoint_version": 99}, {"model": "x"}):
        persist.write_model(path, tensors, body | body_change)
        with pytest.raises(CheckpointError, match="remove it"):
            model_of().fit(BASKETS, checkpoint=Checkpointing(path, resume=True))


def test_a_model_is_no_checkpoint_and_the_other_way_round(tmp_path):
    model = model_of().fit(BASKETS, checkpoint=tmp_path / "c")
    model.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="checkpoint"):
        cd.load(tmp_path / "c")
    with pytest.raises(CheckpointError, match="LowRankDPP"):
        model_of().fit(BASKETS, checkpoint=Checkpointing(tmp_path / "m", resume=True))


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_keeps_the_last_checkpoint_and_says_so(reason, tmp_path, monkeypatch, caplog):
    path, whole = tmp_path / "c", model_of().fit(BASKETS)
    fsync, calls = os.fsync, []

    def full_after_three(handle):
        calls.append(handle)
        if len(calls) > 3:
            raise OSError(reason, os.strerror(reason))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full_after_three)
    with caplog.at_level(logging.WARNING, logger="contradpp"):
        model = model_of().fit(BASKETS, checkpoint=Checkpointing(path, every=1))
    assert model.item_factors_.tobytes() == whole.item_factors_.tobytes()
    assert "The previous one stays; training goes on" in caplog.text
    assert [p.name for p in tmp_path.iterdir()] == ["c"]  # no half-written file is left
    monkeypatch.undo()
    assert persist.read_model(path)[1]["parts"]["position"]["n_steps"] == 2
    again = model_of().fit(BASKETS, checkpoint=Checkpointing(path, resume=True))
    assert again.item_factors_.tobytes() == whole.item_factors_.tobytes()


def test_a_place_that_cannot_be_written_is_an_error_before_training(tmp_path):
    with pytest.raises(CheckpointError, match="cannot write"):
        model_of().fit(BASKETS, checkpoint=tmp_path / "no such folder" / "c")


def test_what_a_killed_writer_left_is_removed(tmp_path):
    leftover, other = tmp_path / ".c.0123456789abcdef.tmp", tmp_path / ".d.0123456789abcdef.tmp"
    leftover.write_text("half")
    other.write_text("of another file")
    model_of(max_iter=1).fit(BASKETS, checkpoint=tmp_path / "c")
    assert not leftover.exists()
    assert other.exists()


@pytest.mark.parametrize(("every", "expected"), [(7, (7, None)), ("30s", (None, 30.0)), ("0.5s", (None, 0.5))])
def test_how_often(every, expected):
    assert parse_every(every) == expected


@pytest.mark.parametrize("every", [0, -1, True, 1.5, "30", "s", "-1s", "nans", "infs", None])
def test_how_often_not(every):
    with pytest.raises(ParameterError, match="checkpoint_every"):
        parse_every(every)


# -- Real kills --------------------------------------------------------------------------------------

SHOP = (
    "fit", "grocer", "--model", "lowrank", "--n-components", "24", "--objective", "dynamic", "--batch-size", "100",
    "--max-iter", "3", "--n-jobs", "1", "--test-size", "0",
)  # fmt: skip


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "contradpp", *map(str, words)]


def test_two_kills_at_random_moments_leave_no_trace(tmp_path):
    """The command itself, killed with SIGKILL; `make soak` does it twenty times."""
    whole, broken, path = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors", tmp_path / "c"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    for _ in range(2):  # the first may compile kernels, which can round differently from those in the cache
        assert subprocess.run(command(*SHOP, "-o", whole), **quiet, timeout=250).returncode == 0
    again = command(*SHOP, "-o", broken, "--checkpoint", path, "--resume", "--checkpoint-every", 5)
    moments = np.random.default_rng(time.time_ns())
    for _ in range(2):
        written = path.stat().st_mtime_ns if path.exists() else 0
        process = subprocess.Popen(again, **quiet)
        deadline = time.monotonic() + 100
        while not path.exists() or path.stat().st_mtime_ns == written:  # until this process trains
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    assert not broken.exists()
    done = subprocess.run(again, **quiet, timeout=250)
    assert done.returncode == 0, done.stderr
    assert broken.read_bytes() == whole.read_bytes()


def test_the_command_line_says_what_is_wrong_and_forgets_the_checkpoint(tmp_path):
    def run(*words: object, fails: bool = True) -> subprocess.CompletedProcess:
        done = subprocess.run(command("fit", "toy", "-o", out, *words), capture_output=True, text=True, timeout=100)
        assert (done.returncode != 0) == fails, done.stderr
        return done

    out, path = tmp_path / "m.safetensors", tmp_path / "c"
    assert "--resume needs --checkpoint" in run("--resume").stderr
    assert "30s" in run("--checkpoint", path, "--checkpoint-every", "soon").stderr
    path.write_text("something else")
    assert "--resume" in run("--checkpoint", path).stderr
    assert path.read_text() == "something else"
    path.unlink()
    done = run("--max-iter", 1, "--checkpoint", path, "--json", fails=False)
    assert json.loads(done.stdout)["rounds"] == 1
    settings = Path(tmp_path / "m.toml").read_text()
    assert "checkpoint" not in settings
    assert "resume" not in settings
