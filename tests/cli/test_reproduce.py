"""`contradpp reproduce` as a person calls it; the results are made up, so that it is quick."""

from __future__ import annotations

import json

import pytest

from contradpp.cli.main import main
from contradpp.research import paper, reproduce
from research.made_up import fake_result


@pytest.fixture
def asked(monkeypatch):
    tasks: list[paper.Task] = []

    def fake(task, *, n_jobs=None):
        tasks.append(task)
        return fake_result(task)

    monkeypatch.setattr(reproduce, "carry_out", fake)
    monkeypatch.setattr(reproduce, "DPI", 30)
    return tasks


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *arguments])
    return int(stop.value.code or 0)


def test_tables_are_printed_and_written(asked, tmp_path, capsys):
    assert call("table-uk", "figure1", "--quick", "-o", str(tmp_path / "out")) == 0
    shown = capsys.readouterr()
    assert "UK retail" in shown.out
    assert "80.07" in shown.out
    assert "index.md" in shown.out
    assert f"[{len(asked)}/{len(asked)}]" in shown.err
    assert (tmp_path / "out" / "index.md").is_file()
    assert (tmp_path / "out" / "figures" / "figure1-bars.png").is_file()
    asked.clear()
    assert call("table-uk", "figure1", "--quick", "-o", str(tmp_path / "out")) == 0
    assert asked == []
    assert capsys.readouterr().err == ""


def test_json_is_json(asked, tmp_path, capsys):
    assert call("table-amazon/feeding", "--quick", "--json", "-o", str(tmp_path)) == 0
    (content,) = json.loads(capsys.readouterr().out)
    assert content["target"] == "table-amazon/feeding"
    assert content["results"]["LowRank"]["mpr"]["mean"] > 0
    assert (tmp_path / "table-amazon-feeding.md").is_file()


def test_trials_and_settings_are_passed_on(asked, tmp_path):
    assert call("table-runtimes", "--trials", "2", "--settings", "paper", "-o", str(tmp_path)) == 0
    assert {task.trial for task in asked} == {0, 1}
    assert {task.settings for task in asked} == {"paper"}


def test_the_default_folder_is_here(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("figure1", "--quick") == 0
    assert (tmp_path / "reproduction" / "figure1.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table-mars"], "table-amazon/feeding"),
        ([], "TARGET"),
        (["figure1", "--trials", "0"], "--trials"),
        (["figure1", "--settings", "best"], "--settings"),
    ],
)
def test_wrong_usage_exits_with_two(asked, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert call(*arguments) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_bar_counts_every_task(asked, tmp_path, monkeypatch):
    """On a terminal the bar takes the place of the lines."""
    from contradpp.cli import reproduce as command

    monkeypatch.setattr(command.Console, "is_terminal", property(lambda self: True))
    assert call("table-runtimes", "--quick", "-o", str(tmp_path)) == 0
    assert len(asked) == 5
