"""`contradpp evaluate` on a small model and a file of baskets."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import contradpp as cd
from contradpp.cli.evaluate import evaluate


@pytest.fixture
def files(tmp_path):
    model = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(6, 4)), items=range(1, 7))
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "test.dat").write_text("1 2 3\n4 5\n6 1\n2\n")
    return [str(tmp_path / "model.safetensors"), str(tmp_path / "test.dat")]


def test_table(files):
    shown = CliRunner().invoke(evaluate, files, catch_exceptions=False)
    assert shown.exit_code == 0
    assert "4 baskets, 6 items" in shown.output
    assert "p@20" in shown.output


def test_json_is_the_report(files):
    shown = CliRunner().invoke(
        evaluate, [*files, "--json", "--random-state", "3", "--ks", "1,4"], catch_exceptions=False
    )
    report = cd.evaluate(cd.load(files[0]), cd.read_baskets(files[1]), ks=(1, 4), random_state=3)
    assert json.loads(shown.output) == json.loads(json.dumps(report.as_dict()))


@pytest.mark.parametrize("ks", ["", "1,x", "0"])
def test_wrong_ks(files, ks):
    shown = CliRunner().invoke(evaluate, [*files, "--ks", ks])
    assert shown.exit_code == 2
    assert "--ks" in shown.output
