"""The benchmark's own rules: groups, names, what counts as worse, and a file to compare with."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from contradpp.errors import DataError, ParameterError
from experiments.__main__ import SPEED, main
from experiments.speed import bench, timing
from experiments.speed.bench import SpeedFigure
from experiments.speed.bench import bench as command

FAST = SpeedFigure("fast", 2.0, 3.0, True, detail="2 / 1 s")
SHARE = SpeedFigure("share", 40.0, 30.0, False, "%")


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """Two groups that measure nothing."""
    groups = {
        "one": lambda quick: iter([FAST]),
        "two": lambda quick: iter([replace(SHARE, value=20.0 if quick else 40)]),
    }
    for name in list(bench.GROUPS):
        monkeypatch.delitem(bench.GROUPS, name)
    for name, measured in groups.items():
        monkeypatch.setitem(bench.GROUPS, name, measured)


@pytest.mark.parametrize("name", SPEED)
def test_other_measurements_are_found_by_name(name):
    done = CliRunner().invoke(main, ["speed", name, "--help"])
    assert done.exit_code == 0, done.output
    assert f"speed {name} " in done.output


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(command, list(words))
    assert done.exit_code == code, done.output
    return done.output


def test_groups_are_measured_as_asked():
    assert [figure.name for figure in bench.measure()] == ["fast", "share"]
    assert [figure.name for figure in bench.measure(["two"])] == ["share"]
    with pytest.raises(ParameterError, match="one, two"):
        list(bench.measure(["three"]))
    assert "fast" not in call("--only", "two")
    assert "there are: one, two" in call("--only", "one,three", code=2)


def test_worse_is_a_larger_cost_or_a_smaller_share():
    assert FAST.worse_by(1.6) == pytest.approx(0.25)
    assert FAST.worse_by(2.5) == pytest.approx(-0.2)
    assert SHARE.worse_by(50.0) == pytest.approx(0.25)
    assert SHARE.worse_by(32.0) == pytest.approx(-0.2)
    assert FAST.reached
    assert not replace(SHARE, value=29.0).reached


def test_a_run_is_written_and_compared_with(tmp_path):
    file = tmp_path / "before.json"
    assert "reached" in call("--json", str(file))
    content = json.loads(file.read_text(encoding="utf-8"))
    assert [figure["value"] for figure in content["figures"]] == [2.0, 40.0]
    assert "processors, load" in content["machine"]
    assert json.loads(CliRunner().invoke(command, ["--json"]).stdout)["figures"][0]["name"] == "fast"
    lines = call("--quick", "--compare", str(file)).splitlines()
    fast, share = (next(line for line in lines if line.startswith(name)) for name in ("fast", "share"))
    assert "+0.0%" in fast
    assert "WORSE" not in fast
    assert "-50.0% WORSE" in share
    assert any("processors, load" in line for line in lines)


def test_a_figure_that_is_new_has_nothing_to_be_compared_with(tmp_path):
    file = tmp_path / "before.json"
    file.write_text(json.dumps({"figures": [{"name": "fast", "value": 1.0}]}), encoding="utf-8")
    shown = call("--compare", str(file))
    assert "+100.0% WORSE" in shown
    assert "not in the file" in shown


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"figures": [{"name": "fast"}]}'])
def test_a_file_without_figures_is_refused(tmp_path, text):
    file = tmp_path / "damaged.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="no figures"):
        bench.read_figures(file)


def test_the_work_of_others_is_what_is_not_ours():
    assert bench._others(None, (1.0, 1.0, 1.0)) is None
    cores = bench.os.cpu_count() or 1
    assert bench._others((0.0, 10.0, 3.0), (10.0, 10.0 + 4 + 5 * cores, 7.0)) == pytest.approx(0.5)
    assert bench._others((0.0, 10.0, 3.0), (10.0, 11.0, 7.0)) == 0


def test_the_programs_of_the_benchmark_fail_with_their_last_line():
    with pytest.raises(Exception, match="ValueError: no"):
        timing.in_new_process("raise ValueError('no')")
    assert timing.in_new_process("import os; print('x'); print(os.environ['A'])", A="3") == 3
