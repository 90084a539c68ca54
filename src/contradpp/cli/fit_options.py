"""The options of `contradpp fit`, most from the table of parameters, and TOML files of them."""

from __future__ import annotations

import json
import math
import tomllib
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from contradpp import __version__
from contradpp._types import Values
from contradpp.cli.inputs import (
    COUNT,
    FILE,
    LAYOUT,
    OLD_FILE,
    SHARE,
    Decorator,
    Parsed,
    n_jobs_option,
    option,
    random_state_option,
    together,
)
from contradpp.cli.output import flag
from contradpp.errors import did_you_mean
from contradpp.learn.checkpoints import DEFAULT_EVERY, parse_every
from contradpp.learn.params import TABLE, Parameter, flat_params
from contradpp.metrics.tuning import MODELS

CONDITIONAL = "conditional"
MIXTURE = "mixture"
# The kernel that is learned: mixtures and the conditional model have the nonsymmetric one.
KERNELS = {CONDITIONAL: MODELS["nonsymmetric"], MIXTURE: MODELS["nonsymmetric"], **MODELS}
DEFAULTS: dict[str, Values] = {model: flat_params(kernel()) for model, kernel in KERNELS.items()}
MODEL_PARAMETERS = (*TABLE, "random_state", "n_jobs")  # passed on to the model's constructor
OWN_DEFAULTS = {"oversize": "drop"}  # where the command line differs from the models
CHOSEN_BY = {
    "n_components": "basket sizes",
    "objective": "the catalog size",
    "batch_size": "the amount of data",
}
SETTINGS_MARK = "# Written by contradpp"
# Not in a file of settings: the file itself, and what concerns one call only.
NOT_IN_FILES = ("config", "as_json", "force", "help")
CHECKPOINT_OPTIONS = ["checkpoint", "resume", "checkpoint_every"]
CLUSTER_OPTIONS = ["engine", "address", "workers"]


# -- Options: None unless given, so that the model's default applies or the data decide ------------


def share_or_file(text: str) -> float | str:
    """Read a share of the baskets between 0 and 1, or the name of a file."""
    try:
        share = float(text)
    except ValueError:
        return str(click.Path(exists=True).convert(text, None, None))
    return float(click.FloatRange(0, 1, min_open=True, max_open=True).convert(share, None, None))


def clusters_or_auto(text: str) -> int | str:
    """Read a number of clusters, or "auto"."""
    return text if text == "auto" else click.IntRange(min=1)(text)


def steps_or_seconds(text: str) -> int | str:
    """Read a number of steps, or seconds such as 30s."""
    every = int(text) if text.isdecimal() else text
    parse_every(every)
    return every


def parameter_option(row: Parameter) -> Decorator:
    """Make the option of a training parameter, from its row of the table."""
    words = f"{flag(row.name)}/{flag('no_' + row.name)}" if row.flag else flag(row.name)
    more: Values = {"default": OWN_DEFAULTS.get(row.name)}
    kind: Any = row.choices or None
    if row.low is not None:
        bounds: Values = {"min": row.low, "min_open": row.above}
        if row.high != math.inf:
            bounds |= {"max": row.high, "max_open": True}
        kind = click.IntRange(**bounds) if row.whole else click.FloatRange(**bounds)
    if row.low is not None and row.choices:
        more["metavar"] = "|".join(["NUMBER", *row.choices])
        wrong = f"neither a number nor {' or '.join(map(repr, row.choices))}"
        kind = Parsed(partial(_word_or_number, row.choices, kind), wrong)
    return option(words, type=kind, help=_help(row), **more)


def _word_or_number(words: tuple[str, ...], number: Any, text: str) -> Any:
    return text if text in words else number.convert(text, None, None)


def _help(row: Parameter) -> str:
    """Return the meaning of a parameter, its models if not all have it, and its defaults."""
    defaults = {model: DEFAULTS[model][row.name] for model in MODELS if row.name in DEFAULTS[model]}
    text = row.help if len(defaults) == len(MODELS) else f"{row.help} ({', '.join(defaults)})"
    values = set(defaults.values())
    if row.name in OWN_DEFAULTS or values == {None}:
        return f"{text}."
    if row.name in CHOSEN_BY:
        shown = f"by {CHOSEN_BY[row.name]}"
    elif len(values) == 1:
        shown = str(*values)
    else:
        shown = ", ".join(f"{default} ({model})" for model, default in defaults.items())
    return f"{text}.  [default: {shown}]"


fit_options = together(
    option(
        "--model",
        type=(CONDITIONAL, MIXTURE, *MODELS),
        help=f"{CONDITIONAL}: a mixture combined with other next-item models; {MIXTURE}: a "
        "nonsymmetric kernel with clusters of baskets; the others: a kernel alone. "
        f"Default: {CONDITIONAL}, unless an option needs lowrank.",
    ),
    option(
        "--n-clusters",
        type=Parsed(clusters_or_auto, "neither a positive number nor 'auto'"),
        metavar="NUMBER|auto",
        help=f"Kinds of baskets ({CONDITIONAL}, {MIXTURE}).  [default: by validation baskets]",
    ),
    option(
        "--validation",
        type=Parsed(share_or_file, "neither a share between 0 and 1 nor a file"),
        metavar="SHARE|FILE",
        help="Baskets that decide when to stop: a share, or a file. Default: 0.05; 0.1 for "
        f"{CONDITIONAL}, which also learns the weights of its experts from them.",
    ),
    option(
        "--test-size",
        type=SHARE,
        default=0.1,
        help="Share held out to measure the model; 0 for none.",
    ),
    option(
        "--min-item-count", type=COUNT, default=1, help="Leave out items that are in fewer baskets."
    ),
    option(
        "--feedback", type=OLD_FILE, help="Log of accepted and rejected suggestions by `serve`."
    ),
    option(
        "--features",
        type=OLD_FILE,
        help="CSV or Parquet file with a row per item: names, categories, numbers, vectors. They "
        "improve the scores of rare items and allow new ones. --name and --category may be columns "
        "of it.",
    ),
    option("--new-items", is_flag=True, help="Add the items of --features that never sold."),
    random_state_option("Seed of split, start and training."),
    n_jobs_option,
    option(
        "--no-baskets",
        is_flag=True,
        help="Leave the training baskets out of the model file, and the experts that need them out "
        f"of the model ({CONDITIONAL}).",
    ),
    option("--checkpoint", type=FILE, help="Save the state of training to this file as it goes."),
    option("--resume", is_flag=True, help="Continue from the checkpoint, to the same result."),
    option(
        "--checkpoint-every",
        type=Parsed(steps_or_seconds, "neither a number of steps nor a time such as 30s"),
        default=DEFAULT_EVERY,
        metavar="STEPS|SECONDSs",
        help="How often to save: 100 for steps, 30s for seconds.",
    ),
    option("--engine", type=("ray",), help="Train on a Ray cluster, from Parquet files."),
    option("--address", help="Cluster, such as auto or HOST:6379; default: this machine."),
    option("--workers", type=COUNT, default=2, help="Number of processes."),
    *map(parameter_option, TABLE.values()),
)
_SECTIONS = {
    "File": " ".join(LAYOUT),
    "Model": "model n_clusters n_components n_skew objective contrast alpha oversize calibrate",
    "Run": "max_iter validation test_size min_item_count feedback features new_items "
    "random_state n_jobs no_baskets",
    "Long runs": " ".join(CHECKPOINT_OPTIONS),
    "Cluster": " ".join(CLUSTER_OPTIONS),
}
SECTIONS = {title: names.split() for title, names in _SECTIONS.items()}
SECTIONS["Other model parameters"] = [
    name for name in TABLE if name not in chain(*SECTIONS.values())
]


class FitCommand(click.Command):
    """A command that shows its options in the sections above."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {str(param.name): param.get_help_record(ctx) for param in options}
        in_sections = set(chain(*SECTIONS.values()))
        others = [name for name in records if name not in in_sections]
        for title, names in {"Options": others, **SECTIONS}.items():
            with formatter.section(title):
                shown = [records.get(name) for name in names]
                formatter.write_dl([record for record in shown if record])


def kernel_model(model: Any) -> Any:
    """Return the unfitted model of the kernel that a model learns, with the kernel's parameters."""
    while getattr(model, "kernel", None) is not None:
        model = model.kernel
    return model


# -- A TOML file of options ------------------------------------------------------------------------


def load_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:  # noqa: ARG001
    """Use the values of a file for options that are not on the command line."""
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read_config(path, ctx.command)}
        ctx.meta["config"] = path


def is_settings(path: Path) -> bool:
    """Return whether `fit` wrote a file of settings."""
    return path.is_file() and path.read_bytes().startswith(SETTINGS_MARK.encode())


def read_config(path: Path, command: click.Command) -> Values:
    """Read a file's options by the names of the command's parameters."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} is not TOML: {error}", param_hint="--config") from error
    known = {key: name for name, key in _keys(command).items()}
    values = {}
    for key, value in content.items():
        word = key.replace("_", "-")
        problem = None
        if word not in known:
            hint = did_you_mean(word, known) or f". There are: {', '.join(known)}."
            problem = f"there is no option {key!r}{hint}"
        elif not isinstance(value, (str, int, float)):
            problem = f"{key!r} is a {type(value).__name__}, not a plain value"
        if problem:
            raise click.BadParameter(f"{path}: {problem}", param_hint="--config")
        values[known[word]] = value
    return values


def write_config(settings: Values, command: click.Command, file: str) -> str:
    """Return the settings as TOML, with absolute paths and without what is None."""
    lines = [f"{SETTINGS_MARK} {__version__}. To repeat this run: contradpp fit --config {file}"]
    for name, key in _keys(command).items():
        value = settings.get(name)
        if isinstance(value, (bool, int, float)):
            lines.append(f"{key} = {str(value).lower()}")
        elif value is not None:  # a JSON string is a TOML string, except for one character
            text = str(value.absolute() if isinstance(value, Path) else value)
            quoted = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
            lines.append(f"{key} = {quoted}")
    return "\n".join(lines) + "\n"


def _keys(command: click.Command) -> dict[str, str]:
    """Return the key of each parameter in a file: its long option without the dashes."""
    return {
        str(param.name): max(param.opts, key=len).lstrip("-").replace("_", "-").lower()
        for param in command.params
        if param.name not in NOT_IN_FILES
    }
