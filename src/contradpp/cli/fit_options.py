"""Everything `fit` knows of parameters: options with their groups, choices and help, the models, and files of options.

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

import contradpp as cd
from contradpp.cli.inputs import LAYOUT, layout_options
from contradpp.cli.output import json_option
from contradpp.errors import ParameterError
from contradpp.learn.checkpoint import DEFAULT_EVERY, parse_every
from contradpp.learn.params import OBJECTIVES

MODELS: dict[str, type[Any]] = {"lowrank": cd.LowRankDPP, "nonsymmetric": cd.NonsymmetricDPP}
DEFAULT_MODEL = "nonsymmetric"
# Options whose name differs from the constructor's argument.
ARGUMENTS = {"rank": "n_components", "skew": "n_skew", "seed": "random_state", "jobs": "n_jobs"}


def arguments_of(model: str) -> Mapping[str, inspect.Parameter]:
    """The arguments of a model's constructor."""
    return inspect.signature(MODELS[model]).parameters


def default_of(option: str, model: str | None = None) -> Any:
    """The default of an option's argument: the model's, or that of the first model that has it."""
    argument = ARGUMENTS.get(option, option)
    return next(
        known[argument].default
        for known in map(arguments_of, MODELS if model is None else [model])
        if argument in known
    )


def is_symmetric(option: str) -> bool:
    """Whether only the symmetric kernel has this option."""
    return ARGUMENTS.get(option, option) not in arguments_of("nonsymmetric")


def build(name: str, options: Mapping[str, Any]) -> Any:
    """The model with the options that were given; one that it does not have is a usage error."""
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if ARGUMENTS.get(option, option) not in arguments_of(name):
            raise click.UsageError(f"{flag(option)} is not an option of --model {name}")
    return MODELS[name](**{ARGUMENTS.get(option, option): value for option, value in given.items()})


def flag(option: str) -> str:
    """An option as it is written on the command line."""
    return f"--{option.replace('_', '-')}"


# -- What the options accept --------------------------------------------------------------------------


def number_or_counted(ctx: click.Context, param: click.Parameter, value: Any) -> float | str | None:
    """A weight of the negatives: a number, or the word for the appendix's form."""
    if value is None or value == "counted":
        return value  # type: ignore[no-any-return]
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a number nor 'counted'", ctx, param) from None


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

_FILE = click.Path(dir_okay=False, path_type=Path)
_OLD_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NUMBER = click.FloatRange(min=0.0)
_COUNT = click.IntRange(min=1)
Spec = dict[str, Any]  # arguments of `click.option`


def _option(kind: Any, help: str, **more: Any) -> Spec:
    kind = click.Choice(kind) if isinstance(kind, tuple) else kind
    return {"type": kind, "help": help, "show_default": "default" in more, **more}


def _knob(kind: Any, help: str, **more: Any) -> Spec:
    """An option whose help shows the model's own default."""
    return _option(kind, help, knob=True, **more)


# What most people need first, every knob of the model last.
OPTIONS: dict[str, dict[str, Spec]] = {
    "The model": {
        "model": _option(tuple(MODELS),
                         f"The kind of kernel; {DEFAULT_MODEL}, unless another option asks for the other."),
        "rank": _option(_COUNT, "Columns of V, the most items a basket can have; by basket sizes."),
        "skew": _option(_COUNT, "Partners of an item in the part that attracts (nonsymmetric)."),
        "objective": _option(OBJECTIVES, "What is maximised; by the catalogue's size."),
        "contrast": _knob(str, "Weight of the negatives: a number, or 'counted'.", callback=number_or_counted),
        "alpha": _knob(_NUMBER, "Strength of the popularity penalty."),
        "oversize": _option(("drop", "clip", "error"), "Baskets larger than the rank: leave out, cut, or refuse.",
                            default="drop"),
        "calibrate": _knob(("likelihood", "discrimination"), "How the kernel's scale is set."),
    },
    "The run": {
        "max_iter": _knob(_COUNT, "The most rounds over the data."),
        "validation": _option(None, "Baskets that decide when to stop: a share, or a file; 0.05 if left out.",
                              metavar="SHARE|FILE", callback=share_or_file),
        "test_size": _option(click.FloatRange(0, 1, max_open=True), "Share held out to measure the model; 0 for none.",
                             default=0.1),
        "feedback": _option(_OLD_FILE,
                            "Log of accepted and rejected suggestions, as `serve` writes it, to learn from too."),
        "seed": _option(int, "Seed of split, start and training.", default=0),
        "jobs": _option(_COUNT, "Threads; all cores if left out. Results do not depend on it."),
    },
    "Long runs": {
        "checkpoint": _option(_FILE, "Keep all of the training's state in this file as it goes."),
        "resume": _option(None, "Go on from the checkpoint, if there is one, to the same result.", is_flag=True),
        "checkpoint_every": _option(None, "How often: 100 for steps, 30s for seconds.", default=DEFAULT_EVERY,
                                    metavar="STEPS|SECONDSs", callback=steps_or_seconds),
    },
    "A cluster": {
        "engine": _option(("ray",), "Train on a Ray cluster, from Parquet files."),
        "address": _option(None, "The cluster, such as auto or HOST:6379; one on this machine if left out."),
        "workers": _option(_COUNT, "Processes to train with.", default=2),
        # Gone, but known, so that old files of settings can be read and other modes are told what to use instead.
        "mode": _option(None, "", default="replicated", hidden=True),
        "local_steps": _option(_COUNT, "", hidden=True),
    },
    "Every other knob of the model": {
        "negative_ratio": _knob(_NUMBER, "Negatives drawn per basket."),
        "batch_size": _option(_COUNT, "Baskets a step; by the amount of data."),
        "dropout": _knob(_NUMBER, "Share of a basket's items that a step leaves out (nonsymmetric)."),
        "tol": _knob(_NUMBER, "The relative rise of the validation score that counts."),
        "learning_rate": _option(_NUMBER, "Step size, instead of the optimiser's own."),
        "optimizer": _knob(("adam", "nesterov", "robbins-monro"), "How steps are made."),
        "init": _knob(("popularity", "uniform"), "Where training starts."),
        "false_negatives": _knob(("keep", "reject"), "Whether a negative may be a training basket."),
        "removal": _knob(("popularity", "uniform"), "How the item to leave out is chosen."),
        "monitor": _knob(("auto", "likelihood", "conditional"), "What the validation score measures."),
        "refresh": _knob(_COUNT, "Draw negatives anew every so many steps."),
        "frequency_power": _knob(_NUMBER, "Exponent of item frequencies in 'product' and 'nce'."),
        "radius": _knob(_NUMBER, "Longest row that 'robbins-monro' allows."),
        "settings": _option(("paper",), "Train as in the paper."),
    },
}  # fmt: skip
# What is passed on to the model's constructor.
KNOBS = (*list(OPTIONS["The model"])[1:], "max_iter", "seed", "jobs", *OPTIONS["Every other knob of the model"])


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
        shown = {key: value for key, value in spec.items() if key != "knob"}
        if "knob" in spec:
            shown["help"] += f"  [default: {default_of(name)}]"
        command = click.option(flag(name), **shown)(command)
    for option in (
        json_option,
        click.option("--config", type=_OLD_FILE, is_eager=True, expose_value=False, callback=_take_config,
                     help="A TOML file with any of these options; those on the command line come first."),
        click.option("--force", is_flag=True, help="Replace files that `fit` did not write."),
        click.option("--report", type=_FILE, help="Also write an HTML page about the model."),
        click.option("-o", "--output", required=True, type=_FILE, help="The model file to write."),
    ):  # fmt: skip
        command = option(command)
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
        word = key.replace("_", "-")
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
