"""The options of `fit`, those of training from the table of parameters, and a run's options as a TOML file.

An option stays None unless it is given, so that the model's own default applies or the data decide.
"""

from __future__ import annotations

import difflib
import inspect
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from contradpp.cli.inputs import FILE, LAYOUT, OLD_FILE, current_word, layout_options, option
from contradpp.cli.output import flag, json_option, written
from contradpp.errors import ParameterError
from contradpp.learn.checkpoint import DEFAULT_EVERY, parse_every
from contradpp.learn.params import LOWRANK, TABLE, Parameter
from contradpp.metrics.tuning import MODELS
from contradpp.models.conditional import ConditionalDPP

CONDITIONAL = "conditional"
DEFAULT_MODEL = CONDITIONAL
KNOBS = (*TABLE, "random_state", "n_jobs")  # what is passed on to the model's constructor
_OF_THE_RUN = ("random_state", "n_jobs", "verbose")


def kernel_of(model: str) -> Any:
    """The class of the kernel that is learned: the conditional model has the nonsymmetric one."""
    return MODELS["nonsymmetric" if model == CONDITIONAL else model]


def has(model: str, knob: str) -> bool:
    """Whether a model has this parameter."""
    return knob not in TABLE or kernel_of(model).__name__ in TABLE[knob].models


def is_symmetric(knob: str) -> bool:
    """Whether only the symmetric kernel has this parameter."""
    return knob in TABLE and TABLE[knob].models == (LOWRANK,)


def default_of(knob: str, model: str) -> Any:
    """The model's own default."""
    return inspect.signature(kernel_of(model)).parameters[knob].default


def build(model: str, options: Mapping[str, Any]) -> Any:
    """The model with the options that were given; one that it does not have is a usage error."""
    given = {knob: value for knob, value in options.items() if value is not None}
    for knob, value in given.items():
        if not has(model, knob):
            raise click.UsageError(f"{written(knob, value)} is not for --model {model}")
    kernel = kernel_of(model)(**given)
    if model != CONDITIONAL:
        return kernel
    return ConditionalDPP(kernel, **{knob: given[knob] for knob in _OF_THE_RUN if knob in given})


# -- What the options accept --------------------------------------------------------------------------


def number_or(words: tuple[str, ...], number: Any) -> Any:
    """A callback that takes one of these words, or what the type takes."""

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if value is None or value in words:
            return value
        try:
            return number.convert(float(value), param, ctx)
        except ValueError:
            known = " or ".join(map(repr, words))
            raise click.BadParameter(f"{value!r} is neither a number nor {known}", ctx, param) from None

    return read


def share_or_file(ctx: click.Context, param: click.Parameter, value: Any) -> float | str | None:
    """A share of the baskets between 0 and 1, or a file of others."""
    if value is None:
        return None
    try:
        share = float(value)
    except ValueError:
        if not Path(value).exists():
            raise click.BadParameter(f"{value!r} is neither a share such as 0.05 nor a file", ctx, param) from None
        return str(value)
    if not 0 < share < 1:
        raise click.BadParameter(f"a share lies between 0 and 1, got {value}", ctx, param)
    return share


def steps_or_seconds(ctx: click.Context, param: click.Parameter, value: Any) -> int | str:
    """A number of steps, or seconds such as 30s."""
    every = int(value) if str(value).isdecimal() else str(value)
    try:
        parse_every(every)
    except ParameterError:
        raise click.BadParameter(f"{value!r} is neither a number of steps nor a time such as 30s", ctx, param) from None
    return every


# -- The options --------------------------------------------------------------------------------------

_COUNT = click.IntRange(min=1)
Spec = dict[str, Any]  # arguments of `option`
# Where the command line does not take the model's default: it has one of its own, or looks at the data (`run.choose`).
OWN_DEFAULTS = {"oversize": "drop"}
CHOSEN = {"n_components": "basket sizes", "objective": "the catalogue's size", "batch_size": "the amount of data"}


def _option(kind: Any, help: str, **more: Any) -> Spec:
    return {"type": kind, "help": help, **more}


def _from_table(*names: str) -> dict[str, Spec]:
    """The options of these parameters of training, from their rows of the table."""
    return {name: _of_row(TABLE[name]) for name in names}


def _of_row(row: Parameter) -> Spec:
    own = {"default": OWN_DEFAULTS.get(row.name)} if row.flag or row.name in OWN_DEFAULTS else {}
    if row.low is None:
        return _option(row.choices or None, _help_of(row), **own)
    most = {} if row.high == float("inf") else {"max": row.high, "max_open": True}
    number: Any = click.IntRange if row.whole else click.FloatRange
    number = number(row.low, min_open=row.above, **most)
    if not row.choices:
        return _option(number, _help_of(row), **own)
    return _option(None, _help_of(row), metavar="|".join(["NUMBER", *row.choices]),
                   callback=number_or(row.choices, number), **own)  # fmt: skip


def _help_of(row: Parameter) -> str:
    """What it is, for which model if not for all, and the models' own defaults."""
    defaults = {model: default_of(row.name, model) for model in MODELS if has(model, row.name)}
    only = "" if len(defaults) == len(MODELS) else f" ({', '.join(defaults)})"
    if row.name in OWN_DEFAULTS or set(defaults.values()) == {None}:
        return f"{row.help}{only}."
    if row.name in CHOSEN:
        shown = f"by {CHOSEN[row.name]}"
    elif len(set(defaults.values())) == 1:
        shown = str(*set(defaults.values()))
    else:
        shown = ", ".join(f"{default} ({model})" for model, default in defaults.items())
    return f"{row.help}{only}.  [default: {shown}]"


# What most people need first; every parameter that is not named here comes last.
OPTIONS: dict[str, dict[str, Spec]] = {
    "The model": {
        "model": _option((CONDITIONAL, *MODELS),
                         "conditional: a nonsymmetric kernel, and next items judged by neighbours as well; "
                         f"the others: a kernel alone. {DEFAULT_MODEL}, unless an option asks for lowrank."),
        **_from_table("n_components", "n_skew", "objective", "contrast", "alpha", "oversize", "calibrate"),
    },
    "The run": {
        **_from_table("max_iter"),
        "validation": _option(None, "Baskets that decide when to stop: a share, or a file; 0.05 if left out, 0.1 for "
                              "conditional, which learns the weights of its voices from them.",
                              metavar="SHARE|FILE", callback=share_or_file),
        "test_size": _option(click.FloatRange(0, 1, max_open=True), "Share held out to measure the model; 0 for none.",
                             default=0.1),
        "min_item_count": _option(_COUNT, "Leave out items that are in fewer baskets than this.", default=1),
        "feedback": _option(OLD_FILE,
                            "Log of accepted and rejected suggestions, as `serve` writes it, to learn from too."),
        "features": _option(OLD_FILE, "CSV or Parquet file with a row per item: names, categories, numbers, vectors. "
                            "New items can then be added, and those that seldom sell are judged better. --name and "
                            "--category may be columns of it."),
        "new_items": _option(None, "Also take in the items of --features that never sold.", is_flag=True),
        "random_state": _option(int, "Seed of split, start and training.", default=0),
        "n_jobs": _option(_COUNT, "Threads; all cores if left out. Results do not depend on it."),
    },
    "Long runs": {
        "checkpoint": _option(FILE, "Keep all of the training's state in this file as it goes."),
        "resume": _option(None, "Go on from the checkpoint, if there is one, to the same result.", is_flag=True),
        "checkpoint_every": _option(None, "How often: 100 for steps, 30s for seconds.", default=DEFAULT_EVERY,
                                    metavar="STEPS|SECONDSs", callback=steps_or_seconds),
    },
    "A cluster": {
        "engine": _option(("ray",), "Train on a Ray cluster, from Parquet files."),
        "address": _option(None, "The cluster, such as auto or HOST:6379; one on this machine if left out."),
        "workers": _option(_COUNT, "Processes to train with.", default=2),
    },
}  # fmt: skip
_named = {name for group in OPTIONS.values() for name in group}
OPTIONS["Every other knob of the model"] = _from_table(*(name for name in TABLE if name not in _named))


class FitCommand(click.Command):
    """Shows its options in the groups above."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Command`."""
        left = {str(p.name): p.get_help_record(ctx) for p in self.get_params(ctx) if isinstance(p, click.Option)}
        sections = {"The file": LAYOUT} | {title: tuple(group) for title, group in OPTIONS.items()}
        grouped = {name for group in sections.values() for name in group}
        sections = {"Options": tuple(name for name in left if name not in grouped)} | sections
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names if (record := left.get(name))])


def fit_options(command: Any) -> Any:
    """All options of `fit`, in the order of the help."""
    options = {name: spec for group in OPTIONS.values() for name, spec in group.items()}
    for name, spec in reversed(options.items()):
        words = f"{written(name, True)}/{written(name, False)}" if name in TABLE and TABLE[name].flag else flag(name)
        command = option(words, **spec)(command)
    for decorator in (
        json_option,
        option("--config", type=OLD_FILE, is_eager=True, expose_value=False, callback=_take_config,
               help="A TOML file with any of these options; those on the command line come first."),
        option("--force", is_flag=True, help="Replace files that `fit` did not write."),
        option("--report", type=FILE, help="Also write an HTML page about the model."),
        option("-o", "--output", required=True, type=FILE, help="The model file to write."),
    ):  # fmt: skip
        command = decorator(command)
    return layout_options(command)


# -- A run in a TOML file: read with `--config`, and written beside the model so that it can be repeated ----------

_NOT_IN_FILES = ("config", "as_json", "force", "help")  # the file itself, and what concerns one call only


def _take_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:  # noqa: ARG001
    """Let the file's values stand in for options that are not on the command line."""
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read_config(path, ctx.command)}
        ctx.meta["config"] = path


def read_config(path: Path, command: click.Command) -> dict[str, Any]:
    """The options of a file by the names of the command's parameters; what it does not know is a usage error."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} is not TOML: {error}", param_hint="--config") from error
    known = {word: name for name, word in _words(command).items()}
    values = {}
    for key, value in content.items():
        word = current_word(key.replace("_", "-"))
        if word not in known:
            close = difflib.get_close_matches(word, known, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(known)}."
            raise click.BadParameter(f"{path}: there is no option {key!r}. {hint}", param_hint="--config")
        if not isinstance(value, (str, int, float)):
            kind = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a date"
            raise click.BadParameter(f"{path}: {key!r} is {kind}, not a plain value", param_hint="--config")
        values[known[word]] = value
    return values


def as_toml(values: Mapping[str, Any], command: click.Command, *, comment: str) -> str:
    """The values, by the names of the command's parameters, as a TOML file below a comment; None is left out."""
    lines = [
        f"{word} = {_plain(values[name])}" for name, word in _words(command).items() if values.get(name) is not None
    ]
    return "\n".join([comment, *lines]) + "\n"


def _words(command: click.Command) -> dict[str, str]:
    """What each parameter is called in a file: its long option without the dashes."""
    return {
        str(param.name): max(param.opts, key=len).lstrip("-").replace("_", "-").lower()
        for param in command.params
        if param.name not in _NOT_IN_FILES
    }


def _plain(value: Any) -> str:
    if isinstance(value, (bool, int, float)):
        return json.dumps(value) if isinstance(value, bool) else repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
