"""The engine "ray" on a small cluster of its own: the same result as one machine, also after a worker was killed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import contradpp as cd
from contradpp.errors import ParameterError

pytestmark = pytest.mark.timeout(900)  # a busy machine takes minutes
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


@pytest.fixture(scope="module")
def found(folder, tmp_path_factory) -> dict:
    """What came of runs on one cluster, in a process of its own since Ray leaves threads and files behind."""
    script = Path(__file__).with_name("on_ray.py")
    words = [sys.executable, str(script), str(folder), str(tmp_path_factory.mktemp("ray")), "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=850)
    if "cannot start a Ray cluster" in done.stderr:
        pytest.skip(f"Ray cannot start here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@needs_ray
def test_a_killed_worker_changes_nothing(found):
    """One of two stands still for a second, which is no loss, and is killed: the bytes are those of two threads."""
    assert found["after a kill"] == [[True, 0, 1]]


@needs_ray
def test_a_worker_that_stands_still_for_good_is_replaced(found):
    same, losses = found["silent"]
    assert same is True
    assert losses >= 1


@needs_ray
def test_a_worker_for_whom_there_is_no_room_is_done_without(found):
    """Two of three learn what one machine learns."""
    assert found["no room"] is True


@needs_ray
def test_a_conditional_model_is_that_of_one_machine(found):
    """Counts and regressions of two workers are those of one to the bit; the kernel is to rounding."""
    gap, experts, *same = found["experts"]
    assert gap < 1e-9
    assert len(experts) == 9
    assert all(experts)
    assert same == [True, True]


@needs_ray
def test_a_file_that_vanished_is_an_error_that_names_it(found):
    kind, message = found["vanished"]
    assert kind == "DataError"
    assert "part-0.parquet" in message


@needs_ray
def test_every_row_is_answered_exactly_once_and_only_what_is_left_is_done_again(found):
    answered = found["answered"]
    assert answered["first"] == [4, 1500]
    assert answered["second"] == [1, 800]
    assert answered["rows"] == 1500
    assert answered["right"] is True
    assert answered["again"] == [True, True]
    assert "other settings" in answered["refused"]
    assert answered["rows of pairs"][0] == "DataError"
    assert "a column with the list" in answered["rows of pairs"][1]


@needs_ray
def test_the_commands(found):
    said = found["commands"]
    assert said["fit"][0] == 0, said["fit"][1]
    assert said["same"] is True
    assert any("worker 0: no checkpoint at step" in warning for warning in said["warnings"])
    assert said["recommend"][0] == 0, said["recommend"][1]
    assert "1,500 baskets of 4 files" in said["recommend"][1]
    assert said["rows"] == 1500


def test_what_cannot_be_is_said_before_anything_starts(folder, tmp_path):
    model = cd.LowRankDPP(5)
    with pytest.raises(ParameterError, match="engine must be one of"):
        model.fit(folder, engine="spark")
    with pytest.raises(ParameterError, match="does not take sample_weight"):
        model.fit(folder, engine="ray", sample_weight=[1.0])
    with pytest.raises(ParameterError, match="pass a path"):
        model.fit([[1, 2]], engine="ray")
    with pytest.raises(ParameterError, match="workers"):
        model.fit(folder, engine=cd.RayEngine(workers=0))
    with pytest.raises(ParameterError, match="oversize must be one of"):
        cd.LowRankDPP(5, oversize="clipp").fit(folder, engine="ray")
    (tmp_path / "there").write_bytes(b"of another run")
    with pytest.raises(cd.errors.CheckpointError, match="exists already"):
        model.fit(folder, engine="ray", checkpoint=tmp_path / "there")
    with pytest.raises(ParameterError, match="engine must be one of"):
        model.fit(folder, engine=cd.Checkpointing("no engine"))
    with pytest.raises(ParameterError, match="does not take item_features"):
        cd.ConditionalDPP().fit(folder, engine="ray", item_features={})
    with pytest.raises(ParameterError, match="experts knows"):
        cd.ConditionalDPP(experts=["nobody"]).fit(folder, engine="ray")
    with pytest.raises(ParameterError, match="does not learn from choices"):
        cd.ConditionalDPP(cd.LowRankDPP(5, objective="choice")).fit(folder, engine="ray")
