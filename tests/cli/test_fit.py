"""`fit`: from a file of orders to a model that can be used, explained and learned again."""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import click
import pytest

import contradpp as cd
from contradpp.cli import fit as command
from contradpp.cli.fit import MODEL_PARAMETERS, MODELS
from contradpp.data.feedback import append_feedback, append_impression
from contradpp.errors import ConvergenceError, ParameterError
from contradpp.learn.callbacks import Callback
from contradpp.learn.params import BOTH, TABLE, flat_params

QUICK = ("--max-iter", 3)


def test_it_says_what_it_chose_and_why_and_how_good_it_is(call, orders, tmp_path):
    shown = call("fit", orders, "-o", tmp_path / "m.safetensors", *QUICK, code=0)
    assert shown.err == ""
    for words in ("240 baskets of 4 items", "baskets may have any size", "objective", "without sampling noise"):
        assert words in shown.out
    for words in ("popularity", "item neighbors", "conditional", "top 10", "5 held-out baskets", "hidden", "suggests"):
        assert words in shown.out
    assert "The gain in mean percentile rank is" in shown.out
    assert f"contradpp recommend {tmp_path / 'm.safetensors'}" in shown.out
    assert "\x1b" not in shown.out


def test_settings_are_written_and_repeat_the_run_to_the_last_bit(call, orders, tmp_path):
    first = tmp_path / "first.safetensors"
    words = ("--objective", "dynamic", "--random-state", 3, "--contrast", "counted", "--no-anneal")
    assert call("fit", orders, "-o", first, *QUICK, *words).code == 0
    settings = tomllib.loads((tmp_path / "first.toml").read_text())
    assert settings["data"] == str(orders)
    assert settings["objective"] == "dynamic"
    assert settings["contrast"] == "counted"
    assert settings["n-components"] == 4
    assert settings["anneal"] is False
    before = first.read_bytes()
    first.unlink()
    assert call("fit", "--config", tmp_path / "first.toml").code == 0
    assert first.read_bytes() == before


def test_the_command_line_comes_before_the_file(call, tmp_path):
    (tmp_path / "run.toml").write_text(
        'data = "toy"\noutput = "unused"\nmax_iter = 2\nn_components = 2\nobjective = "mle"\n'
    )
    shown = call("fit", "--config", tmp_path / "run.toml", "-o", tmp_path / "m", "--n-components", 3, "--json")
    found = json.loads(shown.out)
    assert found["parameters"]["n_components"] == 3
    assert found["parameters"]["objective"] == "mle"
    assert found["rounds"] <= 2
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("n-componets = 3", "Did you mean 'n-components'?"),
        ("zzz = 3", "There are: data"),
        ("n_components = [3]", "is a list"),
        ("[fit]\nn_components = 3", "fit"),
        ("n_components = ", "not TOML"),
        ('n_components = "many"', "--n-components"),
        ("json = true", "json"),
    ],
)
def test_a_wrong_file_of_settings_is_explained(call, tmp_path, content, words):
    (tmp_path / "run.toml").write_text(content)
    shown = call("fit", "toy", "-o", tmp_path / "m", "--config", tmp_path / "run.toml", code=2)
    assert words in shown.err
    assert len(shown.err.splitlines()) <= 2


def test_machines_get_json_and_nothing_else(call, orders, tmp_path):
    shown = call("fit", orders, "-o", tmp_path / "m", *QUICK, "--json", "--report", tmp_path / "m.html")
    found = json.loads(shown.out)
    assert shown.err == ""
    assert found["held_out"].keys() == {"popularity", "item neighbors", "conditional"}
    assert {choice["option"] for choice in found["chosen"]} >= {"n_components", "objective", "batch_size"}
    assert len(found["examples"]) == 5
    assert found["bytes"] == (tmp_path / "m").stat().st_size
    assert Path(found["report"]).read_text().startswith("<!doctype html>")


def test_few_baskets_are_not_held_out(call, tmp_path):
    (tmp_path / "few.dat").write_text("1 2\n2 3\n1 3\n")
    shown = call("fit", tmp_path / "few.dat", "-o", tmp_path / "m", *QUICK, "--report", tmp_path / "m.html")
    assert shown.code == 0, shown.err
    assert "no measurement" in shown.out
    assert "none are held out" in shown.out
    assert "no measurement" in (tmp_path / "m.html").read_text()


def test_large_baskets_are_left_out_and_counted(call, tmp_path):
    lines = ["1 2 3"] * 60 + [" ".join(map(str, range(1, 6)))] * 3
    (tmp_path / "orders.dat").write_text("\n".join(lines))
    plain = ("--no-diagonal", "--n-components", 3)
    shown = call("fit", tmp_path / "orders.dat", "-o", tmp_path / "m", *QUICK, *plain, "--json")
    assert json.loads(shown.out)["baskets"]["left_out"] == 3
    whole = call("fit", tmp_path / "orders.dat", "-o", tmp_path / "w", *QUICK, "--n-components", 3, "--json")
    assert json.loads(whole.out)["baskets"]["left_out"] == 0  # with a diagonal, baskets may have any size
    refused = call("fit", tmp_path / "orders.dat", "-o", tmp_path / "n", *plain, "--oversize", "error", code=1)
    assert "n_components=5, or oversize='drop'" in refused.err
    assert "On the command line: --n-components and --oversize." in refused.err
    assert not (tmp_path / "n").exists()
    everything = call("fit", tmp_path / "orders.dat", "-o", tmp_path / "n", "--no-diagonal", "--n-components", 2)
    assert everything.code == 1
    assert "--oversize clip" in everything.err


def test_validation_may_be_a_share_or_a_file(call, orders, tmp_path):
    for given in ("0.2", orders):
        call("fit", orders, "-o", tmp_path / "m", *QUICK, "--validation", given, code=0)
    assert tomllib.loads((tmp_path / "m.toml").read_text())["validation"] == str(orders)


@pytest.mark.parametrize("objective", ["explicit", "choice"])
def test_impressions_are_learned_as_choices(call, orders, tmp_path, objective):
    log = tmp_path / "feedback.jsonl"
    for _ in range(60):
        append_impression(log, ["T1"], ["C1", "M1"], ["C1"])
    model = ["--model", "lowrank", "--objective", objective]
    shown = call("fit", orders, "-o", tmp_path / "m", *QUICK, *model, "--feedback", log)
    assert "60 accepted sets are compared with what was refused" in shown.out
    learned = cd.load(tmp_path / "m")
    assert learned.score_samples(["T1", "C1"]) > learned.score_samples(["T1", "M1"])


def test_feedback_is_learned_from(call, orders, tmp_path):
    log = tmp_path / "feedback.jsonl"
    for _ in range(3):
        append_feedback(log, "accepted", ["T1", "C1"])
        append_feedback(log, "rejected", ["T1", "M1"])
    shown = call("fit", orders, "-o", tmp_path / "m", *QUICK, "--feedback", log, code=0)
    assert "3 accepted sets" in shown.out
    call("fit", orders, "-o", tmp_path / "n", *QUICK, code=0)
    assert (tmp_path / "m").read_bytes() != (tmp_path / "n").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["no-such-file"], 1, "contradpp data list"),
        (["grocr"], 1, "Did you mean 'grocer'?"),
        (["toy", "--contrast", "much"], 2, "counted"),
        (["toy", "--validation", "2"], 2, "between 0 and 1"),
        (["toy", "--validation", "no-file"], 2, "neither a share"),
        (["toy", "--n-skew", "3", "--model", "lowrank"], 2, "--n-skew 3 is not for --model lowrank"),
        (["toy", "--no-anneal", "--model", "nonsymmetric"], 2, "--no-anneal is not for --model nonsymmetric"),
        (["toy", "--contrast", "-1"], 2, "--contrast"),
        (["toy", "--dropout", "1"], 2, "--dropout"),
        (["toy", "--n-components", "-1"], 2, "--n-components"),
        (["toy", "--objective", "best"], 2, "--objective"),
        (["toy", "--feedback", "no-file"], 2, "--feedback"),
        (["toy", "--report", "no/such/folder/r.html"], 1, "mkdir -p no/such/folder"),
    ],
)
def test_errors_are_short_and_have_their_code(call, tmp_path, monkeypatch, words, code, said):
    monkeypatch.chdir(tmp_path)
    shown = call("fit", *words, "-o", "m")
    assert shown.code == code
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert len(shown.err.splitlines()) <= 2
    assert shown.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        ("", [], "empty"),
        ("order,thing\n1,a\n1,b\n2,a\n", [], "--item"),
        ("order,thing\n1,a\n1,b\n2,a\n", ["--basket", "order", "--item", "nothing"], "'order', 'thing'"),
        ("order,thing\n1,a\n1,b\n2,\n", ["--basket", "order", "--item", "thing"], "line 4"),
    ],
)
def test_a_file_that_cannot_be_used_is_explained(call, tmp_path, content, words, said):
    (tmp_path / "orders.csv").write_text(content)
    assert said in call("fit", tmp_path / "orders.csv", "-o", tmp_path / "m", *words, code=1).err
    assert not (tmp_path / "m").exists()


def test_the_output_is_missing_or_a_folder_or_the_settings(call, tmp_path):
    assert call("fit", "toy").code == 2
    assert call("fit", "toy", "-o", tmp_path).code == 2
    assert ".toml" in call("fit", "toy", "-o", tmp_path / "m.toml", code=2).err


def test_a_folder_without_permission_is_found_out_before_training(call, tmp_path, monkeypatch):
    def refuse(*_, dir, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(dir))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(command, "prepare", lambda *_: pytest.fail("the data were read"))
    shown = call("fit", "toy", "-o", tmp_path / "m", code=1)
    assert "Permission denied" in shown.err
    assert str(tmp_path) in shown.err


def test_a_full_disk_loses_nothing(call, orders, tmp_path, monkeypatch):
    target = tmp_path / "m.safetensors"
    target.write_bytes(b"the old model")
    rescue = tmp_path / "elsewhere"
    rescue.mkdir()
    fsync = os.fsync

    def full(handle):
        if Path(f"/proc/self/fd/{handle}").resolve().parent == tmp_path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(tempfile, "tempdir", str(rescue))
    shown = call("fit", orders, "-o", target, "--force", *QUICK, code=1)
    assert "No space left" in shown.err
    assert "The disk is full" in shown.err
    assert target.read_bytes() == b"the old model"
    (kept,) = rescue.iterdir()
    assert str(kept) in shown.err
    assert cd.load(kept).items_.name("T1") == "Green tea"
    assert {path.name for path in tmp_path.iterdir()} == {"m.safetensors", "elsewhere"}


class Interrupt(Callback):
    """Ctrl-C, or a failure, after two rounds."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_iteration(self, record, best):
        if record["iteration"] == 2:
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ConvergenceError("the objective is nan")])
def test_a_run_that_is_stopped_keeps_its_best_model(call, orders, tmp_path, monkeypatch, error):
    real = cd.ConditionalDPP.fit
    watched = {"callbacks": [Interrupt(error)]}
    monkeypatch.setattr(cd.ConditionalDPP, "fit", lambda self, *a, **k: real(self, *a, **k, **watched))
    target = tmp_path / "m.safetensors"
    shown = call("fit", orders, "-o", target, "--report", tmp_path / "m.html", code=1)
    assert "after 2 rounds" in shown.err
    assert str(target) in shown.err
    assert str(tmp_path / "m.toml") in shown.err
    assert f"the report {tmp_path / 'm.html'} was not written" in shown.err
    assert tomllib.loads((tmp_path / "m.toml").read_text())["data"] == str(orders)
    assert not (tmp_path / "m.html").exists()
    settings = (tmp_path / "m.toml").read_bytes()
    assert cd.load(target).recommend(["T1"])[0].size == 3
    finished = target.read_bytes()
    assert "m.unfinished.safetensors" in call("fit", orders, "-o", target, "--random-state", 5).err
    assert target.read_bytes() == finished
    assert cd.load(tmp_path / "m.unfinished.safetensors").kernel_.kernel_model_.n_components == 4
    assert (tmp_path / "m.toml").read_bytes() == settings
    assert tomllib.loads((tmp_path / "m.unfinished.toml").read_text())["random-state"] == 5


def test_stopping_while_measuring_says_that_the_model_is_there(call, orders, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "measure", stop)
    shown = call("fit", orders, "-o", tmp_path / "m", *QUICK, "--report", tmp_path / "m.html", code=1)
    assert f"finished: {tmp_path / 'm'}" in shown.err
    assert f"the report {tmp_path / 'm.html'} was not written" in shown.err
    assert cd.load(tmp_path / "m").kernel_.kernel_model_.n_components == 4


def test_a_run_that_is_stopped_at_once_has_no_model(call, orders, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cd.MixtureDPP, "fit", stop)
    assert "no model yet" in call("fit", orders, "-o", tmp_path / "m", code=1).err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_ctrl_c_in_a_real_process(orders, tmp_path):
    target = tmp_path / "m.safetensors"
    words = ["fit", str(orders), "-o", str(target), "--max-iter", "100000", "--tol", "0", "--json"]
    code = (  # a shell that runs the tests in the background lets everything it starts ignore the signal
        "import signal, sys, contradpp.learn.training as loop; real = loop.check\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def tell(*a):\n    print('round', file=sys.stderr, flush=True); return real(*a)\n"
        "loop.check = tell\n"
        f"from contradpp.cli.main import main; main({words!r})"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for _ in range(3):
            assert process.stderr.readline() == "round\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert str(target) in said
    assert cd.load(target).items_[0] is not None


# -- What is there already ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["thesis.txt", "m.toml", "m.html"])
def test_what_fit_did_not_write_is_not_replaced(call, orders, tmp_path, name):
    (tmp_path / name).write_text("a year of work")
    target = tmp_path / ("thesis.txt" if name == "thesis.txt" else "m")
    words = ["fit", orders, "-o", target, "--report", tmp_path / "m.html", *QUICK]
    shown = call(*words, code=1)
    assert name in shown.err
    assert "--force" in shown.err
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "a year of work"
    assert call(*words, "--force").code == 0
    assert call(*words).code == 0  # all of it is ours now
    assert "force" not in (target.with_suffix(".toml")).read_text()


def test_an_empty_file_may_be_replaced_and_a_checkpoint_not(call, orders, tmp_path):
    (tmp_path / "m").touch()
    assert call("fit", orders, "-o", tmp_path / "m", *QUICK, "--checkpoint", tmp_path / "c").code == 0
    assert call("fit", orders, "-o", tmp_path / "c", *QUICK).code == 1


@pytest.mark.parametrize("report", ["m", "m.toml"])
def test_two_files_cannot_have_one_name(call, tmp_path, report):
    assert call("fit", "toy", "-o", tmp_path / "m", "--report", tmp_path / report).code == 2


def test_a_report_without_its_extra_is_refused_before_any_work(call, orders, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    shown = call("fit", orders, "-o", tmp_path / "m", "--report", tmp_path / "m.html", code=1)
    assert "pip install 'contradpp[report]'" in shown.err
    assert not (tmp_path / "m").exists()


def test_another_model_by_the_same_settings_has_a_report_of_its_own(call, orders, tmp_path):
    assert call("fit", orders, "-o", tmp_path / "a", *QUICK, "--report", tmp_path / "a.html").code == 0
    before = (tmp_path / "a.html").read_bytes(), (tmp_path / "a.html").stat().st_mtime_ns
    assert call("fit", "--config", tmp_path / "a.toml", "-o", tmp_path / "b").code == 0
    assert ((tmp_path / "a.html").read_bytes(), (tmp_path / "a.html").stat().st_mtime_ns) == before
    assert (tmp_path / "b.html").exists()
    assert tomllib.loads((tmp_path / "b.toml").read_text())["report"] == str(tmp_path / "b.html")


def test_settings_written_by_hand_stay_as_they_are(call, orders, tmp_path):
    mine = f'# my notes\ndata = "{orders}"\noutput = "{tmp_path / "shop.safetensors"}"\nmax-iter = 2\n'
    (tmp_path / "shop.toml").write_text(mine)
    assert call("fit", "--config", tmp_path / "shop.toml").code == 0
    assert (tmp_path / "shop.toml").read_text() == mine
    assert call("fit", "--config", tmp_path / "shop.toml", "--force").code == 0
    assert (tmp_path / "shop.toml").read_text() != mine


# -- Which model ---------------------------------------------------------------------------------------------


@pytest.fixture
def chosen_model(call, orders, tmp_path, monkeypatch):
    """The model of a plan and the reason for it, by the options of `fit`; nothing is learned."""

    def stop(_):
        raise KeyboardInterrupt

    def choose(*words):
        shown = call("fit", orders, "-o", tmp_path / "m", *words, code=1)
        (line,) = (line for line in shown.out.splitlines() if line.startswith("model "))
        return re.split("  +", line)[1:]

    monkeypatch.setattr(command, "train", stop)
    return choose


@pytest.mark.parametrize("objective", ["exact", "dynamic", "mle", "nce", "explicit"])
def test_objectives_of_both_models_leave_the_model_alone(chosen_model, objective):
    assert chosen_model("--objective", objective)[0] == "conditional"


@pytest.mark.parametrize("words", ["--contrast 0.5", "--frequency-power 0.5", "--no-anneal"])
def test_what_only_the_symmetric_model_has_asks_for_it(chosen_model, words):
    assert chosen_model(*words.split()) == ["lowrank", f"{words} is for symmetric kernels"]


def test_the_likelihood_of_a_large_catalogue_needs_the_symmetric_model(chosen_model, monkeypatch):
    monkeypatch.setattr("contradpp.cli.fit.MOST_TO_INVERT", 3)
    name, why = chosen_model("--objective", "mle")
    assert name == "lowrank"
    assert "more than 3 items" in why


def test_features_tell_of_items_that_never_sold(tmp_path, call):
    baskets, items, model = (tmp_path / name for name in ("orders.txt", "items.csv", "shop.safetensors"))
    baskets.write_text("\n".join(["1 2 3", "1 2", "4 5 6", "4 5"] * 30))
    rows = [f"{k},thing {k},{'red' if k in (1, 2, 3, 7) else 'blue'}" for k in range(1, 9)]
    items.write_text("\n".join(["product_id,product_name,shelf", *rows]))
    words = ["--features", str(items), "--category", "shelf", "--max-iter", "2", "--test-size", "0"]
    told = call("fit", baskets, "-o", model, *words, "--new-items").out
    assert "Features: 6 of the 6 items have some (product_name, shelf)" in told
    assert "of the variance of log popularity" in told
    found = cd.load(model)
    assert list(found.items_) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found.items_.name(7) == "thing 7"
    assert found.items_.categories[8] == "blue"
    assert "of the variance of log popularity" in call("info", model).out
    assert "--new-items needs --features" in call("fit", baskets, "-o", model, "--new-items", code=2).err


# -- The options are the parameters of the table, by the same words as in Python ---------------------------

OPTIONS = {option.name: option for option in command.fit.params if isinstance(option, click.Option)}
# What a constructor takes besides the parameters of training.
NO_TRAINING = {"n_jobs", "random_state", "verbose", "warm_start"}
ESTIMATORS = {"LowRankDPP": cd.LowRankDPP, "NonsymmetricDPP": cd.NonsymmetricDPP}


@pytest.mark.parametrize("name", BOTH)
def test_the_table_holds_what_the_constructor_takes(name):
    arguments = set(inspect.signature(ESTIMATORS[name]).parameters) - NO_TRAINING
    rows = [row for row in TABLE.values() if name in row.models]
    assert arguments == {row.field.partition(".")[0] or row.name for row in rows}
    defaults = flat_params(ESTIMATORS[name]())
    for row in rows:
        assert set(row.models) <= set(BOTH)
        row.check(defaults[row.name])


@pytest.mark.parametrize("name", MODEL_PARAMETERS)
def test_every_parameter_is_an_option(name):
    option = OPTIONS[name]
    assert option.opts == [f"--{name.replace('_', '-')}"]
    assert option.help
    if name in TABLE and TABLE[name].flag:
        assert option.secondary_opts == [f"--no-{name.replace('_', '-')}"]


def can_be_read(option: click.Option, value: object) -> bool:
    """Whether the option takes a value as it is written on the command line."""
    try:
        option.type_cast_value(click.Context(command.fit), str(value))
    except click.BadParameter:
        return False
    return True


@pytest.mark.parametrize("name", [row.name for row in TABLE.values() if not row.flag])
def test_an_option_takes_what_python_takes(name):
    row = TABLE[name]
    for value in [*row.choices, "nothing", -1, 0, 0.5, 1, 7, 1e9]:
        written = int(value) if isinstance(value, float) and value > 1 else value
        try:
            row.check(written if row.whole else value)
            good = True
        except ParameterError:
            good = False
        assert can_be_read(OPTIONS[name], written) == good, value


def test_defaults_are_those_of_the_models():
    unless_given = command.fit.make_context("fit", ["toy", "-o", "m"]).params
    by_model = [flat_params(model()) for model in MODELS.values()]
    for name, row in TABLE.items():
        defaults = {flat[name] for flat in by_model if name in flat}
        if name not in ("n_components", "objective", "batch_size", "oversize") and defaults != {None}:
            assert all(str(default) in OPTIONS[name].help.partition("default: ")[2] for default in defaults)
        assert unless_given[name] == ("drop" if name == "oversize" else None)
        assert row.help in OPTIONS[name].help
