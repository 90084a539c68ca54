"""The options of `contradpp fit`, in groups: what most people need first, every knob of the model last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from contradpp.cli.config import config_option
from contradpp.cli.inputs import LAYOUT, layout_options
from contradpp.cli.models import DEFAULT_MODEL, MODELS, default_of
from contradpp.cli.output import json_option
from contradpp.errors import ParameterError
from contradpp.learn.checkpoint import DEFAULT_EVERY, parse_every
from contradpp.learn.settings import OBJECTIVES

_FILE = click.Path(dir_okay=False, path_type=Path)
_NUMBER = click.FloatRange(min=0.0)
_COUNT = click.IntRange(min=1)

GROUPS = {
    "The file": LAYOUT,
    "The model": ("model", "rank", "skew", "objective", "contrast", "alpha", "oversize", "calibrate"),
    "The run": ("max_iter", "validation", "test_size", "feedback", "seed", "jobs"),
    "Long runs": ("checkpoint", "resume", "checkpoint_every"),
    "A cluster": ("engine", "address", "workers", "mode", "local_steps"),
    "Every other knob of the model": (
        "negative_ratio", "batch_size", "dropout", "tol", "optimizer", "learning_rate", "init", "refresh",
        "false_negatives", "frequency_power", "removal", "monitor", "radius", "settings",
    ),
}  # fmt: skip
# What is passed on to the model's constructor.
KNOBS = (*GROUPS["The model"][1:], "max_iter", "seed", "jobs", *GROUPS["Every other knob of the model"])


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


class FitCommand(click.Command):
    """Shows its options in the groups above."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Command`."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        left = {param.name: param.get_help_record(ctx) for param in options}
        grouped = {name for group in GROUPS.values() for name in group}
        sections = {"Options": tuple(name for name in left if name not in grouped)} | GROUPS
        for title, names in sections.items():
            records = [record for name in names if (record := left.get(name))]
            with formatter.section(title):
                formatter.write_dl(records)


def fit_options(command: Any) -> Any:
    """All options of `fit`, in the order of the help."""
    for option in reversed([*_main(), *_model(), *_run(), *_long(), *_cluster(), *_knobs()]):
        command = option(command)
    return layout_options(command)


def _main() -> list[Callable[[Any], Any]]:
    return [
        click.option("-o", "--output", required=True, type=_FILE, help="The model file to write."),
        click.option("--report", type=_FILE, help="Also write an HTML page about the model."),
        config_option(),
        json_option,
    ]


def _model() -> list[Callable[[Any], Any]]:
    return [
        click.option("--model", type=click.Choice(list(MODELS)),
                     help=f"The kind of kernel; {DEFAULT_MODEL}, unless another option asks for the other."),
        click.option("--rank", type=_COUNT, help="Columns of V, the most items a basket can have; by basket sizes."),
        click.option("--skew", type=_COUNT, help="Partners of an item in the part that attracts (nonsymmetric)."),
        click.option("--objective", type=click.Choice(OBJECTIVES), help="What is maximised; by the catalogue's size."),
        _knob("contrast", str, "Weight of the negatives: a number, or 'counted'", callback=number_or_counted),
        _knob("alpha", _NUMBER, "Strength of the popularity penalty"),
        click.option("--oversize", type=click.Choice(["drop", "clip", "error"]), default="drop", show_default=True,
                     help="Baskets larger than the rank: leave out, cut, or refuse."),
        _knob("calibrate", click.Choice(["likelihood", "discrimination"]), "How the kernel's scale is set"),
    ]  # fmt: skip


def _run() -> list[Callable[[Any], Any]]:
    return [
        _knob("max_iter", _COUNT, "The most rounds over the data"),
        click.option("--validation", metavar="SHARE|FILE", callback=share_or_file,
                     help="Baskets that decide when to stop: a share, or a file; 0.05 if left out."),
        click.option("--test-size", type=click.FloatRange(0, 1, max_open=True), default=0.1, show_default=True,
                     help="Share held out to measure the model; 0 for none."),
        click.option("--feedback", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="Log of accepted and rejected suggestions, as `serve` writes it, to learn from too."),
        click.option("--seed", type=int, default=0, show_default=True, help="Seed of split, start and training."),
        click.option("--jobs", type=_COUNT, help="Threads; all cores if left out. Results do not depend on it."),
    ]  # fmt: skip


def _long() -> list[Callable[[Any], Any]]:
    return [
        click.option("--checkpoint", type=_FILE, help="Keep all of the training's state in this file as it goes."),
        click.option("--resume", is_flag=True, help="Go on from the checkpoint, if there is one, to the same result."),
        click.option("--checkpoint-every", metavar="STEPS|SECONDSs", default=DEFAULT_EVERY, show_default=True,
                     callback=steps_or_seconds, help="How often: 100 for steps, 30s for seconds."),
    ]  # fmt: skip


def _cluster() -> list[Callable[[Any], Any]]:
    return [
        click.option("--engine", type=click.Choice(["ray"]), help="Train on a Ray cluster, from Parquet files."),
        click.option("--address", help="The cluster, such as auto or HOST:6379; one on this machine if left out."),
        click.option("--workers", type=_COUNT, default=2, show_default=True, help="Processes to train with."),
        # Gone, but known, so that old files of settings can be read and other modes are told what to use instead.
        click.option("--mode", default="replicated", hidden=True),
        click.option("--local-steps", type=_COUNT, hidden=True),
    ]  # fmt: skip


def _knobs() -> list[Callable[[Any], Any]]:
    choices = {
        "optimizer": ("adam", "nesterov", "robbins-monro"),
        "init": ("popularity", "uniform"),
        "false_negatives": ("keep", "reject"),
        "removal": ("popularity", "uniform"),
        "monitor": ("auto", "likelihood", "conditional"),
    }
    texts = {
        "optimizer": "How steps are made", "init": "Where training starts",
        "false_negatives": "Whether a negative may be a training basket",
        "removal": "How the item to leave out is chosen", "monitor": "What the validation score measures",
    }  # fmt: skip
    return [
        _knob("negative_ratio", _NUMBER, "Negatives drawn per basket"),
        click.option("--batch-size", type=_COUNT, help="Baskets a step; by the amount of data."),
        _knob("dropout", _NUMBER, "Share of a basket's items that a step leaves out (nonsymmetric)"),
        _knob("tol", _NUMBER, "The relative rise of the validation score that counts"),
        click.option("--learning-rate", type=_NUMBER, help="Step size, instead of the optimiser's own."),
        *[_knob(name, click.Choice(words), texts[name]) for name, words in choices.items()],
        _knob("refresh", _COUNT, "Draw negatives anew every so many steps"),
        _knob("frequency_power", _NUMBER, "Exponent of item frequencies in 'product' and 'nce'"),
        _knob("radius", _NUMBER, "Longest row that 'robbins-monro' allows"),
        click.option("--settings", type=click.Choice(["paper"]), help="Train as in the paper."),
    ]  # fmt: skip


def _knob(name: str, kind: Any, text: str, **more: Any) -> Callable[[Any], Any]:
    """An option that stays None unless it is given, so that the model's own default, shown in the help, applies."""
    help = f"{text}.  [default: {default_of(name)}]"
    return click.option(f"--{name.replace('_', '-')}", type=kind, help=help, **more)
