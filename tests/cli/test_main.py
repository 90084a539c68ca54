"""The command line as a person calls it: through `main`, with its exit codes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from contradpp.cli.main import COMMANDS, cli, main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "contradpp", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "COLUMNS": "140"},
    )


def test_overview_lists_every_command_and_each_exists():
    shown = run("--help")
    assert shown.returncode == 0
    for name in COMMANDS:
        assert name in shown.stdout
        assert cli.get_command(None, name).name == name


def test_wrong_usage_exits_with_two(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["no-such-command"])
    assert stop.value.code == 2
    assert "no-such-command" in capsys.readouterr().err


def test_demo_suggests_something_for_pasta():
    shown = run("demo", "--baskets", "3000")
    assert shown.returncode == 0, shown.stderr
    assert "spaghetti, tomato sauce" in shown.stdout
    for part in ("popularity", "contrastive (dynamic)", "What goes with a basket", "rarely bought together"):
        assert part in shown.stdout
