"""The group of commands: its overview, exit codes, completion, and what it does about errors."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import subprocess
import sys
import warnings

import pytest

from contradpp.cli import output
from contradpp.cli.main import COMMANDS, cli
from contradpp.errors import DataError, ModelFileError


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "contradpp", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "COLUMNS": "140", **environment},
    )


def test_overview_lists_every_command_and_each_exists():
    shown = run("--help")
    assert shown.returncode == 0
    for name in COMMANDS:
        assert name in shown.stdout
        assert cli.get_command(None, name).name == name


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_every_command_explains_itself_and_has_json(call, name):
    shown = call(name, "--help", code=0)
    if name not in ("data", "serve", "rerank"):
        assert "--json" in shown.out
    assert "Usage: contradpp" in shown.out


def test_no_words_show_the_overview(call):
    assert "Start here" in call().out
    assert "convert" in call("data").out
    assert call().code == call("data").code == 0


def test_warnings_become_notes(call, monkeypatch):
    def warn():
        logging.getLogger("contradpp").warning("set a rank of %s", 3)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a singular matrix", UserWarning, stacklevel=1)
        return []

    monkeypatch.setattr("contradpp.data.datasets.names", warn)
    assert call("data", "list").err == "Note: set a rank of 3\nNote: a singular matrix\n"


def test_wrong_usage_exits_with_two_and_two_lines(call):
    shown = call("no-such-command", code=2)
    assert "no-such-command" in shown.err
    assert "`contradpp --help`" in shown.err
    assert len(shown.err.splitlines()) == 2


def test_debug_shows_the_traceback_wherever_it_stands(call):
    for words in (["--debug", "data", "describe", "nothing"], ["data", "describe", "nothing", "--debug"]):
        with pytest.raises(DataError):
            call(*words)


def test_an_unexpected_error_asks_for_a_report(call, monkeypatch):
    monkeypatch.setattr("contradpp.data.datasets.names", lambda: 1 / 0)
    shown = call("data", "list", code=1)
    assert "--debug" in shown.err
    assert "Traceback" not in shown.err


def test_stopping_says_so(call, monkeypatch):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr("contradpp.data.datasets.names", stop)
    shown = call("data", "list")
    assert (shown.code, shown.err.strip()) == (1, "Stopped.")


def test_a_reader_that_leaves_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m contradpp data list | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("name")
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(call, shell):
    assert "_CONTRADPP_COMPLETE" in call("completion", shell, code=0).out


def test_completion_completes():
    code = "import sys; sys.argv = ['contradpp']; from contradpp.cli.main import main; main()"
    asked = {**os.environ, "_CONTRADPP_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    for words, expected in (("re", ["plain,recommend", "plain,rerank"]), ("--de", ["plain,--debug"])):
        asked["COMP_WORDS"] = f"contradpp {words}"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=asked)
        assert shown.stdout.split() == expected


def test_messages_name_the_options_that_help():
    error = DataError("pass basket='...' and on_bad_row='skip'", parameters=("basket", "on_bad_row"))
    assert output.error_message(error).splitlines() == [str(error), "On the command line: --basket and --on-bad-row."]
    assert pickle.loads(pickle.dumps(error)).parameters == error.parameters


@pytest.mark.parametrize(("code", "words"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "permission")])
def test_a_cause_in_the_system_brings_its_way_out(code, words):
    error = ModelFileError("cannot write m")
    error.__cause__ = OSError(code, os.strerror(code))
    assert words in output.error_message(error)
    assert output.error_message(OSError(code, "why", "file")).startswith("file: why\n")


def test_too_little_memory_is_explained():
    said = output.error_message(MemoryError("Unable to allocate 235. GiB"))
    assert "235. GiB" in said
    assert "should not happen" not in said


def test_piped_output_is_plain(model):
    environment = {"FORCE_COLOR": "", "NO_COLOR": ""}
    for words in (["recommend", str(model), "T1"], ["data", "list"]):
        plain = run(*words, **environment)
        assert plain.returncode == 0, plain.stderr
        assert "\x1b" not in plain.stdout + plain.stderr
        assert "━" not in plain.stdout
