"""The options of `fit` are the parameters of the table, by the same words as in Python."""

from __future__ import annotations

import inspect
import json

import click
import pytest

import contradpp as cd
from contradpp.cli.fit import fit
from contradpp.cli.fit_options import KNOBS, MODELS
from contradpp.cli.inputs import OLD_WORDS
from contradpp.errors import ParameterError
from contradpp.learn.params import BOTH, TABLE

OPTIONS = {option.name: option for option in fit.params if isinstance(option, click.Option)}
# What a constructor takes besides the parameters of training.
NO_TRAINING = {"n_jobs", "random_state", "verbose", "warm_start"}
ESTIMATORS = {"LowRankDPP": cd.LowRankDPP, "NonsymmetricDPP": cd.NonsymmetricDPP}


@pytest.mark.parametrize("name", BOTH)
def test_the_table_holds_what_the_constructor_takes(name):
    arguments = set(inspect.signature(ESTIMATORS[name]).parameters) - NO_TRAINING
    assert arguments == {row.name for row in TABLE.values() if name in row.models}
    for row in TABLE.values():
        assert set(row.models) <= set(BOTH)
        if name in row.models:
            row.check(inspect.signature(ESTIMATORS[name]).parameters[row.name].default)


@pytest.mark.parametrize("name", KNOBS)
def test_every_parameter_is_an_option(name):
    option = OPTIONS[name]
    assert option.opts == [f"--{name.replace('_', '-')}"]
    assert option.help
    if name in TABLE and TABLE[name].flag:
        assert option.secondary_opts == [f"--no-{name.replace('_', '-')}"]


def can_be_read(option: click.Option, value: object) -> bool:
    """Whether the option takes a value as it is written on the command line."""
    context = click.Context(fit)
    try:
        read = option.type_cast_value(context, str(value))
        if option.callback is not None:
            option.callback(context, option, read)
    except click.BadParameter:
        return False
    return True


@pytest.mark.parametrize("name", [row.name for row in TABLE.values() if not row.flag])
def test_an_option_takes_what_python_takes(name):
    row = TABLE[name]
    for value in [*row.choices, "nothing", -1, 0, 0.5, 1, 7, 1e9]:
        try:
            row.check(int(value) if row.whole and isinstance(value, float) and value > 1 else value)
            good = True
        except ParameterError:
            good = False
        written = int(value) if isinstance(value, float) and value > 1 else value
        assert can_be_read(OPTIONS[name], written) == good, value


def test_defaults_are_those_of_the_models():
    unless_given = fit.make_context("fit", ["toy", "-o", "m"]).params
    for name, row in TABLE.items():
        defaults = {inspect.signature(MODELS[m]).parameters[name].default for m in MODELS if name in arguments(m)}
        if name not in ("n_components", "objective", "batch_size", "oversize") and defaults != {None}:
            assert all(str(default) in OPTIONS[name].help.partition("default: ")[2] for default in defaults)
        assert unless_given[name] == ("drop" if name == "oversize" else None)
        assert row.help in OPTIONS[name].help


def arguments(model: str) -> set[str]:
    return set(inspect.signature(MODELS[model]).parameters)


def test_old_words_still_work_and_are_not_shown(call, orders, tmp_path):
    words = ("--rank=3", "--skew", 2, "--seed", 7, "--jobs", 1, "--max-iter", 1)
    shown = call("fit", orders, "-o", tmp_path / "m", *words, "--json")
    found = json.loads(shown.out)["parameters"]
    expected = {"n_components": 3, "n_skew": 2, "random_state": 7, "n_jobs": 1}
    assert {name: found[name] for name in expected} == expected
    helped = call("fit", "--help").out
    assert not any(f"--{word}" in helped for word in OLD_WORDS)
    old = f'data = "{orders}"\noutput = "{tmp_path / "o"}"\nrank = 3\nskew = 2\nseed = 7\njobs = 1\nmax-iter = 1\n'
    (tmp_path / "old.toml").write_text(old)
    assert call("fit", "--config", tmp_path / "old.toml").code == 0
    assert (tmp_path / "o").read_bytes() == (tmp_path / "m").read_bytes()


@pytest.mark.parametrize(
    "words",
    [["evaluate", "--seed", "--jobs"], ["tune", "--seed", "--jobs"], ["sample", "--seed"], ["serve", "--threads"],
     ["demo", "--seed"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_old_words_of_other_commands(call, words):
    command, *old = words
    shown = call(command, *(part for word in old for part in (word, "x")))
    assert shown.code == 2
    assert f"--{OLD_WORDS[old[0].strip('-')]}" in shown.err
    assert "No such option" not in shown.err
