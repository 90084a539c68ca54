"""`contradpp fit`: learn a model from a file of baskets, and measure how good it is."""

from __future__ import annotations

import json
import math
import shlex
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from click.core import ParameterSource
from rich.filesize import decimal

from contradpp import __version__
from contradpp._types import Values
from contradpp.cli.inputs import (
    COLUMNS,
    COUNT,
    FILE,
    LAYOUT,
    OLD_FILE,
    SHARE,
    Decorator,
    Parsed,
    baskets_from,
    hold_out,
    layout_options,
    n_jobs_option,
    option,
    random_state_option,
    together,
    word_or_number,
)
from contradpp.cli.output import (
    busy,
    check_replaceable,
    display_name,
    display_names,
    flag,
    flag_with_value,
    heading,
    is_marked,
    is_model,
    json_option,
    paragraph,
    program,
    save_model,
    say,
    show_json,
    show_table,
    visible,
)
from contradpp.data.baskets import Baskets
from contradpp.data.columns import matches
from contradpp.data.features import FeatureTable, read_features
from contradpp.data.feedback import Feedback, read_choices, read_feedback
from contradpp.data.vocabulary import Vocabulary
from contradpp.distributed import RayEngine
from contradpp.distributed.shards import list_files
from contradpp.dpp.files import write_atomically
from contradpp.errors import ConvergenceError, DataError, did_you_mean
from contradpp.experts.history import in_order
from contradpp.experts.table import DEFAULT_EXPERTS, WITHOUT_BASKETS
from contradpp.learn.checkpoints import DEFAULT_EVERY, Checkpointing, parse_every
from contradpp.learn.objectives import MOST_TO_INVERT
from contradpp.learn.params import (
    LOWRANK,
    STEPS_A_ROUND,
    TABLE,
    Parameter,
    flat_params,
    params_from_flat,
)
from contradpp.metrics.compare import Comparison
from contradpp.metrics.report import evaluate
from contradpp.metrics.tuning import MODELS
from contradpp.models.conditional import ConditionalDPP
from contradpp.models.mixture import MixtureDPP
from contradpp.report.evaluation import (
    KS,
    Example,
    assessment,
    compare_with_baselines,
    describe_features,
    draw_examples,
)
from contradpp.report.page import Subject, load_template, render

REPORT_MARK = "Made by contradpp"
MIN_RANK = 30
MAX_RANK = 100
LARGE_CATALOG = 20_000  # items from which a pass over the whole catalog at every step is slow
STEPS_PER_ROUND = 20
MAX_CUSTOMERS = 1_000  # test baskets by which the use of histories is measured
LEGEND = (
    "MPR: mean percentile rank of the missing item, 100 = always first, 50 = chance. "
    "top 1, top 10: how often it is among the first suggestions. "
    "log-likelihood: per basket, of the whole basket; higher is better."
)


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
        if row.choices:
            more["metavar"] = "|".join(["NUMBER", *row.choices])
            wrong = f"neither a number nor {' or '.join(map(repr, row.choices))}"
            kind = word_or_number(row.choices, kind, wrong)
    return option(words, type=kind, help=parameter_help(row), **more)


def parameter_help(row: Parameter) -> str:
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
        type=word_or_number(("auto",), COUNT, "neither a positive number nor 'auto'"),
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
MODEL_OPTIONS = "model n_clusters n_components n_skew objective contrast alpha oversize calibrate"
RUN_OPTIONS = (
    "max_iter validation test_size min_item_count feedback features new_items random_state n_jobs "
    "no_baskets"
)
SECTIONS = {
    "File": LAYOUT,
    "Model": MODEL_OPTIONS.split(),
    "Run": RUN_OPTIONS.split(),
    "Long runs": CHECKPOINT_OPTIONS,
    "Cluster": CLUSTER_OPTIONS,
    "Other model parameters": [
        name for name in TABLE if name not in f"{MODEL_OPTIONS} {RUN_OPTIONS}".split()
    ],
}


class FitCommand(click.Command):
    """A command that shows its options in the sections above."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {str(param.name): param.get_help_record(ctx) for param in options}
        others = [name for name in records if name not in set(chain(*SECTIONS.values()))]
        for title, names in {"Options": others, **SECTIONS}.items():
            with formatter.section(title):
                shown = [records.get(name) for name in names]
                formatter.write_dl([record for record in shown if record])


# -- A TOML file of options ------------------------------------------------------------------------


def is_settings(path: Path) -> bool:
    """Return whether `fit` wrote a file of settings."""
    return path.is_file() and path.read_bytes().startswith(SETTINGS_MARK.encode())


def load_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:  # noqa: ARG001
    """Use the values of a file for options that are not on the command line."""
    if path is None:
        return
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} is not TOML: {error}", param_hint="--config") from error
    known = {key: name for name, key in _keys(ctx.command).items()}
    values = {}
    for key, value in content.items():
        word = key.replace("_", "-")
        if word not in known:
            hint = did_you_mean(word, known) or f". There are: {', '.join(known)}."
            problem = f"there is no option {key!r}{hint}"
        elif not isinstance(value, (str, int, float)):
            problem = f"{key!r} is a {type(value).__name__}, not a plain value"
        else:
            values[known[word]] = value
            continue
        raise click.BadParameter(f"{path}: {problem}", param_hint="--config")
    ctx.default_map = {**(ctx.default_map or {}), **values}
    ctx.meta["config"] = path


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


# -- The command ----------------------------------------------------------------------------------


@click.command(cls=FitCommand)
@click.argument("data")
@layout_options
@option("-o", "--output", required=True, type=FILE, help="Model file to write.")
@option("--report", type=FILE, help="Also write an HTML page about the model.")
@option("--force", is_flag=True, help="Replace files that `fit` did not write.")
@option(
    "--config",
    type=OLD_FILE,
    is_eager=True,
    expose_value=False,
    callback=load_config,
    help="TOML file with any of these options; the command line takes precedence.",
)
@json_option
@fit_options
@click.pass_context
def fit(
    ctx: click.Context,
    /,
    data: str,
    output: Path,
    report: Path | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Learn a model from DATA, a file of baskets or the name of a data set.

    Settings that are not given are chosen by looking at the data. Some baskets are held out, to
    compare the model with popularity and item neighbors. Ctrl-C keeps the best model so far.

    \b
    contradpp fit orders.csv -o shop.safetensors
    contradpp fit orders.parquet -o shop.safetensors --basket order_id --item sku --report shop.html
    contradpp fit --config shop.toml
    """
    files = output_files(ctx, output, report, force=force)
    if options["resume"] and options["checkpoint"] is None:
        raise click.UsageError("--resume needs --checkpoint, the file to continue from")
    if options["new_items"] and options["features"] is None:
        raise click.UsageError("--new-items needs --features, a file with these items")
    run = prepare(data, options)
    if not as_json:
        show_plan(run)
    settings = write_config(settings_of(run, files), ctx.command, f"{output.stem}.toml")
    started = time.perf_counter()
    try:
        train(run)
    except (KeyboardInterrupt, ConvergenceError) as stop:
        save_unfinished(run, files, settings, stop)
        ctx.exit(1)
    seconds = time.perf_counter() - started
    save(run, files, settings)
    try:
        subject = measure(run, seconds)
        if files.report is not None:
            with busy("Writing the report ..."):
                write_atomically(files.report, render(subject).encode())
    except KeyboardInterrupt:
        say(f"Stopped while measuring. The model is finished: {output}{not_written(files)}")
        ctx.exit(1)
    if as_json:
        show_json(results(run, subject, files))
    else:
        show_results(run, subject, files)


# -- The files to write ----------------------------------------------------------------------------


class Files(NamedTuple):
    """The files that a run writes; no settings if the user's own file is in that place."""

    model: Path
    settings: Path | None
    report: Path | None


def output_files(ctx: click.Context, output: Path, report: Path | None, *, force: bool) -> Files:
    """Find the files to write; refuse to replace what `fit` did not write, unless forced."""
    beside = output.with_suffix(".toml")
    if output == beside or report in (output, beside):
        message = "the settings are written beside the model as .toml: choose another name"
        raise click.BadParameter(message, param_hint="-o" if output == beside else "--report")
    output_source, report_source = map(ctx.get_parameter_source, ("output", "report"))
    from_file = ParameterSource.DEFAULT_MAP
    if report is not None and report_source is from_file and output_source is not from_file:
        report = output.with_suffix(report.suffix)  # the file's report is about another model
    config = ctx.meta.get("config")
    own_config = config is not None and config.resolve() == beside.resolve()
    handwritten = own_config and not is_settings(beside)
    settings = None if handwritten and not force else beside
    is_report = partial(is_marked, mark=REPORT_MARK)
    for path, is_ours in ((output, is_model), (settings, is_settings), (report, is_report)):
        if path is not None:
            check_replaceable(path, "fit", is_ours, force=force)
    if report is not None:
        load_template()  # fails early if the extra is missing
    return Files(output, settings, report)


def settings_of(run: Run, files: Files) -> Values:
    """Return the options with which the run can be repeated, with nothing left open."""
    kernel = kernel_model(run.model)
    settings = run.options | {choice.option: choice.value for choice in run.choices}
    flat = flat_params(kernel)
    settings |= {name: flat.get(name) for name in MODEL_PARAMETERS}
    settings |= dict.fromkeys(CHECKPOINT_OPTIONS)  # these belong to this run only
    settings |= {"data": run.data, "output": files.model, "report": files.report}
    for name in ("data", "validation"):
        if isinstance(settings[name], str) and Path(settings[name]).exists():
            settings[name] = Path(settings[name])
    return settings


def save(run: Run, files: Files, settings: str) -> None:
    """Write the model and its settings."""
    without = run.options["no_baskets"] and isinstance(run.model, ConditionalDPP)
    save_model(run.model, files.model, **({"baskets": False} if without else {}))
    if files.settings is not None:
        write_atomically(files.settings, settings.encode())


def save_unfinished(run: Run, files: Files, settings: str, stop: BaseException) -> None:
    """Save the best model of a stopped training, beside a finished model if there is one."""
    if not getattr(run.model, "history_", None):
        say("Stopped too early: there is no model yet, and nothing was written.")
        return
    if files.model.exists():
        model = files.model.with_name(f"{files.model.stem}.unfinished{files.model.suffix}")
        files = Files(model, model.with_suffix(".toml"), files.report)
    save(run, files, settings)
    reason = f"Training failed ({stop})" if isinstance(stop, ConvergenceError) else "Stopped"
    best = max(run.model.history_, key=lambda record: record["validation"])["iteration"]
    say(
        f"{reason} after {run.model.n_iter_} rounds. The best model so far, of round {best}, is "
        f"{files.model} and can be used{not_written(files)}"
    )


def not_written(files: Files) -> str:
    """End a sentence about a stopped run: where its settings are, and what is missing."""
    settings = "" if files.settings is None else f"; its settings are {files.settings}"
    report = "" if files.report is None else f", and the report {files.report} was not written"
    return f"{settings}. It was not measured{report}."


# -- Read the baskets and choose settings ----------------------------------------------------------


class Choice(NamedTuple):
    """A setting that the data decide, its value, and the reason."""

    option: str
    value: Any
    why: str


@dataclass
class Run:
    """A run of `fit`: its options, its data, and a model that has still to learn."""

    data: str
    label: str  # the file that was read
    options: Values
    choices: list[Choice]
    baskets: Baskets
    train: Baskets
    test: Baskets | None
    validation: Any
    feedback: Feedback | None
    features: FeatureTable | None
    model: Any
    name: str
    history: Values | None = None  # measured on customers who came before

    @property
    def learns_choices(self) -> bool:
        """True if the objective itself compares what was taken with what was refused."""
        return getattr(self.model, "objective", None) in ("explicit", "choice")


def prepare(data: str, options: Values) -> Run:
    """Read the baskets, choose settings, and hold some baskets out.

    On a cluster the workers read the data: here, only the largest file is read, to choose settings.
    """
    layout = {name: options[name] for name in LAYOUT}
    source = data
    scale = 1.0
    if options["engine"] is not None:
        other_files = (options["feedback"], options["features"])
        if any(other_files) or isinstance(options["validation"], str):
            raise click.UsageError(
                "--engine ray takes neither --feedback nor --features nor a file for --validation"
            )
        files = list_files(data)
        largest = max(files, key=lambda file: file.n_rows)
        source = largest.path.removeprefix("file://")
        scale = sum(file.n_rows for file in files) / max(largest.n_rows, 1)
        options = options | {"test_size": 0.0}
    features = None if options["features"] is None else read_features(options["features"])
    if features is not None:  # its columns need not be in the file of baskets
        for role in ("name", "category"):
            if options[role] in features.columns:
                layout[role] = None
    with busy(f"Reading {source} ..."):
        baskets = baskets_from(source, **layout)
        if options["min_item_count"] > 1:
            baskets = baskets.filter(min_size=1, min_item_count=options["min_item_count"])
    if features is not None:
        names, categories = labels_of(features, options)
        items = baskets.items
        baskets = baskets.with_names(names | items.names)
        baskets = baskets.with_categories(categories | items.categories)
    choices = choose(baskets, options, round(scale * baskets.n_baskets))
    settings = options | {choice.option: choice.value for choice in choices}
    if baskets.customers is not None and not isinstance(options["validation"], str):
        baskets = in_order(baskets)  # before they are divided
    usable = usable_baskets(baskets, settings)
    train_set, test = hold_out(usable, options["test_size"], options["random_state"])
    validation = options["validation"]
    if isinstance(validation, str):
        validation = baskets_from(validation, **layout)
    kind = settings["model"]
    return Run(
        data=data,
        label=Path(source).name,
        options=options,
        choices=choices,
        baskets=baskets,
        train=train_set,
        test=test,
        validation=validation,
        feedback=None if options["feedback"] is None else read_feedback(options["feedback"]),
        features=features,
        model=make_model(settings, WITHOUT_BASKETS if options["no_baskets"] else DEFAULT_EXPERTS),
        name=kind if kind == CONDITIONAL else f"{kind} ({settings['objective']})",
    )


def labels_of(features: FeatureTable, options: Values) -> tuple[dict[Any, str], dict[Any, str]]:
    """Return names and categories by item, from the columns of the features that hold them."""
    guessed = matches(list(features.columns), "name")
    name = options["name"] or (guessed[0] if len(guessed) == 1 else None)

    def texts(column: str | None) -> dict[Any, str]:
        if column not in features.columns:
            return {}
        pairs = zip(features.ids or (), features.columns[column].values, strict=True)
        return {item: str(value) for item, value in pairs if value is not None}

    return texts(name), texts(options["category"])


def takes_any_size(settings: Values) -> bool:
    """Return whether baskets may be larger than the rank: they may if the model has a diagonal."""
    return settings["model"] != "lowrank" and settings["diagonal"] is not False


def usable_baskets(baskets: Baskets, settings: Values) -> Baskets:
    """Return the baskets that the model can learn from."""
    if takes_any_size(settings) or settings["oversize"] != "drop":
        return baskets
    rank = settings["n_components"]
    fits = baskets.sizes <= rank
    if not fits.any():
        raise DataError(
            f"every basket has more than {rank} items: choose a larger --n-components, or "
            "--oversize clip"
        )
    return baskets.subset(fits)


def make_model(settings: Values, experts: Sequence[str] = DEFAULT_EXPERTS) -> Any:
    """Make the estimator; a parameter that it does not have is a usage error."""
    model = settings["model"]
    given = {name: settings[name] for name in MODEL_PARAMETERS if settings[name] is not None}
    wrong = [name for name in given if name not in DEFAULTS[model]]
    if model in MODELS and settings["n_clusters"] is not None:
        wrong.append("n_clusters")
    for name in wrong:
        words = flag_with_value(name, settings[name])
        raise click.UsageError(f"{words} is not for --model {model}")
    kind = KERNELS[model]
    kernel = kind(**params_from_flat(kind, given), verbose=1)
    # Nothing is left open: the file of settings then makes an equal model.
    kernel = kind(**params_from_flat(kind, flat_params(kernel)))
    if model in MODELS:
        return kernel
    shared = {name: given[name] for name in ("random_state", "n_jobs") if name in given}
    mixture = MixtureDPP(kernel, settings["n_clusters"] or "auto", **shared, verbose=1)
    return mixture if model == MIXTURE else ConditionalDPP(mixture, experts, **shared, verbose=1)


def choose(baskets: Baskets, options: Values, n_baskets: int) -> list[Choice]:
    """Choose the settings that are left open; later ones depend on earlier ones.

    `n_baskets` counts those of all files, `baskets` may be those of one.
    """
    choices: list[Choice] = []
    settings = dict(options)

    def settle(name: str, value: Any, why: str) -> None:
        if options[name] is None:
            settings[name] = value
            choices.append(Choice(name, value, why))

    settle("model", *choose_model(baskets, options))
    default = DEFAULTS[settings["model"]]
    settle("n_components", *choose_rank(baskets, settings))
    if baskets.n_items > LARGE_CATALOG and settings["model"] == "lowrank":
        settle("objective", "dynamic", f"its cost does not grow with the {baskets.n_items:,} items")
    else:
        why = "predicts each item from the rest of its basket, without sampling noise"
        settle("objective", "exact", why)
    size = min(max(n_baskets // STEPS_PER_ROUND, 50), default["batch_size"])
    size = max(size, n_baskets // STEPS_A_ROUND)
    settle("batch_size", size, f"about {max(n_baskets // size, 1):,} steps per round")
    settle("calibrate", default["calibrate"], "the model's baskets get the size of real ones")
    settle("max_iter", default["max_iter"], "at most; training stops when validation stalls")
    return choices


def choose_model(baskets: Baskets, options: Values) -> tuple[str, str]:
    """Return the conditional model, unless an option needs a symmetric kernel."""
    for name, row in TABLE.items():
        if options[name] is not None and row.models == (LOWRANK,):
            return "lowrank", f"{flag_with_value(name, options[name])} is for symmetric kernels"
    if options["objective"] == "mle" and baskets.n_items > MOST_TO_INVERT:
        why = f"the only model whose likelihood is feasible with more than {MOST_TO_INVERT:,} items"
        return "lowrank", why
    return (
        CONDITIONAL,
        "suggests best: a mixture of kernels combined with neighbors and regressions",
    )


def choose_rank(baskets: Baskets, settings: Values) -> tuple[int, str]:
    """Return the model's default rank, or one into which most baskets fit."""
    if takes_any_size(settings):
        rank = min(DEFAULTS[settings["model"]]["n_components"], baskets.n_items)
        return rank, "the default; baskets may have any size"
    sizes = baskets.sizes
    usual = int(np.quantile(sizes, 0.95, method="higher"))
    rank = min(max(-(-usual // 10) * 10, MIN_RANK), MAX_RANK, baskets.n_items)
    n_larger = int((sizes > rank).sum())
    if not n_larger:
        return rank, f"no basket has more than {int(sizes.max())} items"
    outcomes = {"drop": "left out", "clip": "cut to that size", "error": "refused"}
    share = 1 - n_larger / len(sizes)
    outcome = outcomes[settings["oversize"]]
    return rank, f"{share:.0%} of the baskets fit; {n_larger:,} larger ones are {outcome}"


def kernel_model(model: Any) -> Any:
    """Return the unfitted model of the kernel that a model learns, with the kernel's parameters."""
    while getattr(model, "kernel", None) is not None:
        model = model.kernel
    return model


# -- Train and measure -----------------------------------------------------------------------------


def train(run: Run) -> None:
    """Fit the model."""
    options = run.options
    keywords: Values = {"validation": run.validation}
    if options["checkpoint"] is not None:
        path, resume, every = (options[name] for name in CHECKPOINT_OPTIONS)
        keywords["checkpoint"] = Checkpointing(path, every, resume)
    if options["engine"]:
        columns = {name: options[name] for name in COLUMNS}
        engine = RayEngine(options["workers"], options["address"], columns=columns)
        run.model.fit(run.data, engine=engine, **keywords)
        return
    baskets = run.train
    if run.feedback is not None:
        accepted = read_choices(options["feedback"], taken=not run.learns_choices)
        baskets = Baskets.concat([baskets, accepted])
        if not run.learns_choices:
            keywords["negatives"] = run.feedback.negatives or None
    if run.features is not None:
        keywords["item_features"] = run.features
    run.model.fit(baskets, **keywords)
    if run.features is not None and options["new_items"]:
        new = [item for item in run.features.ids or () if item not in run.model.items_]
        names, categories = labels_of(run.features, options)
        run.model.add_items(new, run.features.take(new), names=names, categories=categories)


def measure(run: Run, seconds: float) -> Subject:
    """Measure the model on the held-out baskets, and draw examples."""
    comparison = None
    examples: list[Example] = []
    if run.test is not None:
        with busy("Measuring on held-out baskets ..."):
            comparison = compare_with_baselines({run.name: run.model}, run.train, run.test)
            run.history = measure_history(run)
            examples = draw_examples(run.model, run.test, seed=run.options["random_state"])
    return Subject(run.model, run.name, run.label, run.train, comparison, examples, seconds)


def measure_history(run: Run) -> Values | None:
    """Return p@10 with and without the earlier baskets of customers; None if none are known."""
    if run.test is None or not run.model.uses_history:
        return None
    came_before = np.flatnonzero(run.test.histories(before=run.train).lengths > 0)
    if not len(came_before):
        return None
    test = run.test.subset(came_before[:MAX_CUSTOMERS])
    before, after = (
        evaluate(run.model, test, (10,), history=history, likelihood=False, check=False)
        for history in (None, run.train)
    )
    hits = {"without": before.precision[10], "with": after.precision[10]}
    return {"n_baskets": test.n_baskets} | hits


# -- Show the plan and the results -----------------------------------------------------------------


def show_plan(run: Run) -> None:
    """Print what the data are, which settings were chosen, and why."""
    found = run.baskets.summary()
    on_cluster = run.options["engine"] is not None
    source = f"{run.label}, the largest file of {run.data}" if on_cluster else run.data
    click.echo(
        f"{source}: {found.n_baskets:,} baskets of {found.n_items:,} items; the median basket has "
        f"{found.median:g}, the largest {found.largest}."
    )
    if on_cluster:
        heading(f"Learning from all files of {run.data}; the largest one decides the settings")
    else:
        n_test = f"{run.test.n_baskets:,}" if run.test else "none"
        n_train = f"{run.train.n_baskets:,}"
        heading(f"Learning from {n_train} baskets; {n_test} are held out to measure the model")
    customers = [] if run.baskets.customers is None else run.baskets.customers.tolist()
    known = [customer for customer in customers if customer is not None]
    if known and isinstance(run.model, ConditionalDPP):
        mean = len(known) / len(set(known))
        click.echo(
            f"{len(set(known)):,} customers, {mean:.1f} orders each: learning what they come back "
            "for."
        )
    rows = [[one.option.replace("_", "-"), str(one.value), one.why] for one in run.choices]
    show_table(["setting", "chosen", "because"], rows)
    if run.features is not None:
        n_known = sum(item in run.baskets.items for item in run.features.ids or ())
        columns = ", ".join(run.features.columns)
        click.echo(f"Features: {n_known:,} of the {found.n_items:,} items have some ({columns}).")
    if run.feedback is not None:
        n_accepted = len(run.feedback.positives)
        n_rejected = len(run.feedback.negatives)
        use = f"learned as baskets, and {n_rejected:,} rejected ones as negatives"
        if run.learns_choices:
            use = "compared with what was refused"
        click.echo(f"Feedback: {n_accepted:,} accepted sets are {use}.")


def results(run: Run, subject: Subject, files: Files) -> Values:
    """Return the results as plain values."""
    comparison = subject.comparison
    n_test = 0 if run.test is None else run.test.n_baskets
    config = files.settings or files.model.with_suffix(".toml")
    held_out = None
    if comparison is not None:
        held_out = {name: report.as_dict() for name, report in comparison.reports.items()}
    return {
        "model": str(files.model),
        "config": str(config),
        "report": None if files.report is None else str(files.report),
        "bytes": files.model.stat().st_size,
        "baskets": {
            "all": run.baskets.n_baskets,
            "learned": run.train.n_baskets,
            "left_out": run.baskets.n_baskets - run.train.n_baskets - n_test,
        },
        "n_items": run.baskets.n_items,
        "chosen": [choice._asdict() for choice in run.choices],
        "parameters": flat_params(kernel_model(run.model)),
        "rounds": run.model.n_iter_,
        "seconds": subject.seconds,
        "features": run.model.explained_,
        "name": run.name,
        "held_out": held_out,
        "history": run.history,
        "assessment": None if comparison is None else assessment(comparison, run.name),
        "examples": [example._asdict() for example in subject.examples],
    }


def show_results(run: Run, subject: Subject, files: Files) -> None:
    """Print the results: metrics, an assessment, examples, and the files."""
    model = run.model
    rounds = f"{model.n_iter_} rounds{best_round(model.history_)}"
    click.echo(f"\nLearned in {subject.seconds:.1f} s, {rounds}.")
    if model.explained_ is not None:
        paragraph(describe_features(model.explained_))
    if subject.comparison is None:
        click.echo(
            "Nothing was held out, so there is no measurement: `contradpp evaluate` makes one on "
            "other baskets."
        )
    else:
        show_metrics(subject.comparison)
        click.echo()
        paragraph(assessment(subject.comparison, run.name), bold=True)
        if run.history is not None:
            paragraph(
                f"In {run.history['n_baskets']:,} held-out baskets of customers who came before, "
                f"the missing item is among the first ten {run.history['without']:.1f} % of the "
                f"time, with their earlier orders {run.history['with']:.1f} %."
            )
        show_examples(subject.examples, model.items_)
    show_files(*files, with_baskets=hasattr(model, "baskets_") and not run.options["no_baskets"])
    popular: Any = run.train.items[int(run.train.item_counts.argmax())]
    item = shlex.quote(visible(str(popular)))
    click.echo(f"Try       {program()} recommend {shlex.quote(str(files.model))} {item}")


def best_round(history: Sequence[Values]) -> str:
    """Return a phrase that names the round of the model, if validation scores decided it."""
    scores = [record["validation"] for record in history]
    if not scores or not all(map(math.isfinite, scores)):
        return ""
    best = history[scores.index(max(scores))]["iteration"]
    return f"; round {best} was best in validation"


def show_metrics(comparison: Comparison, *, seconds: dict[str, float] | None = None) -> None:
    """Print the table of models on held-out baskets, and how to read it."""
    n_baskets = comparison.reports[comparison.baseline].n_baskets
    heading(f"{n_baskets:,} held-out baskets, every item left out in turn")
    names = ["MPR", *(f"top {k}" for k in KS), "nDCG", "log-likelihood"]
    names += ["seconds"] if seconds else []
    rows = []
    for name, report in comparison.reports.items():
        likelihood = "–"
        if math.isfinite(report.log_likelihood):
            likelihood = f"{report.log_likelihood:.1f}{report.plus_minus()}"
        hits = [f"{report.precision[k]:.1f} %" for k in KS]
        cells = [name, f"{report.mpr:.1f}", *hits, f"{report.ndcg:.3f}", likelihood]
        if seconds:
            cells.append(f"{seconds[name]:.1f}" if name in seconds else "")
        rows.append(cells)
    show_table(["model", *(f">{name}" for name in names)], rows)
    paragraph(LEGEND)


def show_examples(examples: Sequence[Example], items: Vocabulary) -> None:
    """Print test baskets with suggestions; a mark shows where the hidden item was found."""
    if not examples:
        return
    heading(f"{len(examples)} held-out baskets, drawn at random, with one item hidden")
    for example in examples:
        hidden = display_name(example.hidden, items) + (" (found)" if example.found else "")
        suggestions = [
            ("✓ " if item == example.hidden else "") + display_name(item, items)
            for item in example.suggestions
        ]
        paragraph(display_names(example.basket, items), label="  basket    ")
        paragraph(hidden, label="  hidden    ")
        paragraph(", ".join(suggestions), label="  suggests  ")
        click.echo()


def show_files(
    model: Path, config: Path | None, report: Path | None, *, with_baskets: bool = False
) -> None:
    """Print which files were written."""
    click.echo(f"Model     {model} ({decimal(model.stat().st_size)})")
    if with_baskets:
        click.echo("          It holds the training baskets; --no-baskets leaves them out.")
    if config is not None:
        again = f"{program()} fit --config {shlex.quote(str(config))}"
        click.echo(f"Settings  {config} (to repeat this run: {again})")
    if report is not None:
        click.echo(f"Report    {report} (open it in a browser)")
