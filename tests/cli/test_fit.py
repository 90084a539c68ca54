"""`fit` and `recommend`: from a file of orders to suggestions."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import contradpp as cd
from contradpp.cli.main import cli, main


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "orders.dat"
    path.write_text("1 2\n1 3 4\n2 3\n" * 60)
    return path


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_a_model_from_a_file_and_what_it_suggests(orders, tmp_path):
    model = tmp_path / "model.safetensors"
    shown = run("fit", orders, "-o", model, "--max-iter", 5)
    assert shown.exit_code == 0, shown.output
    assert "popularity" in shown.output
    assert "dynamic DPP" in shown.output
    assert cd.load(model).n_components == 3
    suggested = run("recommend", model, "1", "--json", "-n", 2)
    assert suggested.exit_code == 0, suggested.output
    found = json.loads(suggested.output)
    assert len(found) == 2
    assert {entry["item"] for entry in found} <= {2, 3, 4}
    assert run("recommend", model).output.count("%") == 4


def test_machines_get_json(orders, tmp_path):
    shown = run("fit", orders, "-o", tmp_path / "m", "--objective", "mle", "--max-iter", 2, "--rank", 4, "--json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.output)
    assert found["n_components"] == 4
    assert {"popularity", "mle DPP"} <= found.keys()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["fit", "no-such-file", "-o", "m"], 1, "no-such-file"),
        (["fit", "toy"], 2, "--output"),
        (["fit", "toy", "-o", "m", "--contrast", "much"], 2, "counted"),
        (["recommend", "no-such-model", "1"], 2, "no-such-model"),
    ],
)
def test_errors_are_short_and_have_their_code(arguments, code, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == code
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_an_unknown_item_and_a_foreign_file(orders, tmp_path, capsys):
    model = tmp_path / "model.safetensors"
    run("fit", orders, "-o", model, "--max-iter", 2)
    for arguments, words in ((["recommend", str(model), "77"], "77"), (["recommend", str(orders), "1"], "orders.dat")):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 1
        assert words in capsys.readouterr().err
