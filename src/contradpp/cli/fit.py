"""`contradpp fit`: baskets in, a model file out, and an honest word on how good it is.

From top to bottom: the options, most of them made of the table of parameters; the command; what it does, step by step;
what it shows; its settings as a TOML file.
"""

from __future__ import annotations

import difflib
import json
import math
import shlex
import time
import tomllib
from collections.abc import Mapping, Sequence
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
from contradpp.cli.inputs import (
    COLUMNS,
    FILE,
    LAYOUT,
    OLD_FILE,
    SHARE,
    Decorator,
    Parsed,
    baskets_from,
    hold_out,
    layout_options,
    option,
    random_state_option,
    together,
)
from contradpp.cli.output import (
    Column,
    busy,
    called,
    check_replaceable,
    flag,
    heading,
    is_marked,
    is_model,
    json_option,
    listed,
    paragraph,
    save_model,
    say,
    show_json,
    show_table,
    visible,
    written,
)
from contradpp.data.baskets import Baskets
from contradpp.data.features import Given, read_features
from contradpp.data.feedback import Feedback, read_choices, read_feedback
from contradpp.data.tables import matches
from contradpp.data.vocabulary import Vocabulary
from contradpp.distributed.shards import list_files
from contradpp.dpp.persist import write_atomically
from contradpp.errors import ConvergenceError, DataError
from contradpp.learn.checkpoint import DEFAULT_EVERY, parse_every
from contradpp.learn.objectives import MOST_TO_INVERT
from contradpp.learn.params import LOWRANK, TABLE, Parameter
from contradpp.metrics.compare import Comparison
from contradpp.metrics.tuning import MODELS
from contradpp.models.conditional import ConditionalDPP
from contradpp.report.measured import KS, Example, examples, explained, measure, verdict
from contradpp.report.page import Subject, load_template, render

CONDITIONAL = "conditional"
# The kernel that is learned: the conditional model has the nonsymmetric one.
KERNELS = {CONDITIONAL: MODELS["nonsymmetric"], **MODELS}
DEFAULTS: dict[str, dict[str, Any]] = {model: kernel().get_params() for model, kernel in KERNELS.items()}
KNOBS = (*TABLE, "random_state", "n_jobs")  # what is passed on to the model's constructor
SETTINGS_MARK = "# Written by contradpp"
REPORT_MARK = "Made by contradpp"
LEAST_RANK, MOST_RANK = 30, 100
DENSE_CATALOGUE = 20_000  # items up to which a pass over the whole catalogue at every step is cheap
STEPS_A_ROUND = 20
LEGEND = (
    "MPR: how far up the missing item ranks, 100 = always first, 50 = by chance. top 1, top 10: how often it is among "
    "the first suggestions. log-likelihood: of whole baskets, per basket, higher is better."
)


# -- The options: None unless given, so that the model's own default applies or the data decide --------------


def share_or_file(text: str) -> float | str:
    """Read a share of the baskets between 0 and 1, or a file of others."""
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


def knob_option(row: Parameter) -> Decorator:
    """Make the option of a parameter of training, from its row of the table."""
    words = f"{written(row.name, True)}/{written(row.name, False)}" if row.flag else flag(row.name)
    kind: Any = row.choices or None
    more: dict[str, Any] = {}
    if row.flag or row.name in OWN_DEFAULTS:
        more["default"] = OWN_DEFAULTS.get(row.name)
    if row.low is not None:
        most: dict[str, Any] = {} if row.high == math.inf else {"max": row.high, "max_open": True}
        number: Any = click.IntRange if row.whole else click.FloatRange
        kind = number(row.low, min_open=row.above, **most)
    if row.low is not None and row.choices:
        more["metavar"] = "|".join(["NUMBER", *row.choices])
        wrong = f"neither a number nor {' or '.join(map(repr, row.choices))}"
        kind = Parsed(partial(_word_or_number, row.choices, kind), wrong)
    return option(words, type=kind, help=_help_of(row), **more)


def _word_or_number(words: tuple[str, ...], number: Any, text: str) -> Any:
    return text if text in words else number.convert(text, None, None)


# Where the command line does not take the model's default: it has one of its own, or looks at the data (`choose`).
OWN_DEFAULTS = {"oversize": "drop"}
CHOSEN = {"n_components": "basket sizes", "objective": "the catalogue's size", "batch_size": "the amount of data"}


def _help_of(row: Parameter) -> str:
    """Say what it is, for which model if not for all, and the models' own defaults."""
    defaults = {model: DEFAULTS[model][row.name] for model in MODELS if row.name in DEFAULTS[model]}
    only = "" if len(defaults) == len(MODELS) else f" ({', '.join(defaults)})"
    values = set(defaults.values())
    if row.name in OWN_DEFAULTS or values == {None}:
        return f"{row.help}{only}."
    shown = ", ".join(f"{default} ({model})" for model, default in defaults.items())
    if row.name in CHOSEN:
        shown = f"by {CHOSEN[row.name]}"
    elif len(values) == 1:
        shown = str(*values)
    return f"{row.help}{only}.  [default: {shown}]"


fit_options = together(
    option(
        "--model",
        type=(CONDITIONAL, *MODELS),
        help="conditional: a nonsymmetric kernel, and next items judged by neighbours as well; the others: a kernel "
        f"alone. {CONDITIONAL}, unless an option asks for lowrank.",
    ),
    option(
        "--validation",
        type=Parsed(share_or_file, "neither a share between 0 and 1 nor a file"),
        metavar="SHARE|FILE",
        help="Baskets that decide when to stop: a share, or a file; 0.05 if left out, 0.1 for conditional, which "
        "learns the weights of its voices from them.",
    ),
    option("--test-size", type=SHARE, default=0.1, help="Share held out to measure the model; 0 for none."),
    option(
        "--min-item-count",
        type=click.IntRange(1),
        default=1,
        help="Leave out items that are in fewer baskets than this.",
    ),
    option(
        "--feedback",
        type=OLD_FILE,
        help="Log of accepted and rejected suggestions, as `serve` writes it, to learn from too.",
    ),
    option(
        "--features",
        type=OLD_FILE,
        help="CSV or Parquet file with a row per item: names, categories, numbers, vectors. New items can then be "
        "added, and those that seldom sell are judged better. --name and --category may be columns of it.",
    ),
    option("--new-items", is_flag=True, help="Also take in the items of --features that never sold."),
    random_state_option("Seed of split, start and training."),
    option("--n-jobs", type=click.IntRange(1), help="Threads; all cores if left out. Results do not depend on it."),
    option("--checkpoint", type=FILE, help="Keep all of the training's state in this file as it goes."),
    option("--resume", is_flag=True, help="Go on from the checkpoint, if there is one, to the same result."),
    option(
        "--checkpoint-every",
        type=Parsed(steps_or_seconds, "neither a number of steps nor a time such as 30s"),
        default=DEFAULT_EVERY,
        metavar="STEPS|SECONDSs",
        help="How often: 100 for steps, 30s for seconds.",
    ),
    option("--engine", type=("ray",), help="Train on a Ray cluster, from Parquet files."),
    option("--address", help="The cluster, such as auto or HOST:6379; one on this machine if left out."),
    option("--workers", type=click.IntRange(1), default=2, help="Processes to train with."),
    *map(knob_option, TABLE.values()),
)
_GROUPS = {
    "The file": " ".join(LAYOUT),
    "The model": "model n_components n_skew objective contrast alpha oversize calibrate",
    "The run": "max_iter validation test_size min_item_count feedback features new_items random_state n_jobs",
    "Long runs": "checkpoint resume checkpoint_every",
    "A cluster": "engine address workers",
}
GROUPS = {title: names.split() for title, names in _GROUPS.items()}
GROUPS["Every other knob of the model"] = [name for name in TABLE if name not in chain(*GROUPS.values())]


class FitCommand(click.Command):
    """A command that shows its options in the groups above."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Command`."""
        left = {str(p.name): p.get_help_record(ctx) for p in self.get_params(ctx) if isinstance(p, click.Option)}
        others = [name for name in left if name not in chain(*GROUPS.values())]
        for title, names in {"Options": others, **GROUPS}.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names if (record := left.get(name))])


def _take_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:  # noqa: ARG001
    """Let the file's values stand in for options that are not on the command line."""
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read_config(path, ctx.command)}
        ctx.meta["config"] = path


# -- The command -------------------------------------------------------------------------------------------


@click.command(cls=FitCommand)
@click.argument("data")
@layout_options
@option("-o", "--output", required=True, type=FILE, help="The model file to write.")
@option("--report", type=FILE, help="Also write an HTML page about the model.")
@option("--force", is_flag=True, help="Replace files that `fit` did not write.")
@option(
    "--config",
    type=OLD_FILE,
    is_eager=True,
    expose_value=False,
    callback=_take_config,
    help="A TOML file with any of these options; those on the command line come first.",
)
@json_option
@fit_options
@click.pass_context
def fit(
    ctx: click.Context, /, data: str, output: Path, report: Path | None, force: bool, as_json: bool, **given: Any
) -> None:
    """Learn a model from DATA, a file of baskets or the name of a data set.

    What is not given is chosen by looking at the data. A part of the baskets is held out to measure the model beside
    popularity and item neighbours. Ctrl-C keeps the best model so far.

    \b
    contradpp fit orders.csv -o shop.safetensors
    contradpp fit orders.parquet -o shop.safetensors --basket order_id --item sku --report shop.html
    contradpp fit --config shop.toml
    """
    files = places(ctx, output, report, force=force)
    if given["resume"] and given["checkpoint"] is None:
        raise click.UsageError("--resume needs --checkpoint, the file to go on from")
    if given["new_items"] and given["features"] is None:
        raise click.UsageError("--new-items needs --features, the file that tells of them")
    run = prepare(data, given)
    if not as_json:
        introduce(run)
    settings = repeatable(run, files, ctx.command)
    started = time.perf_counter()
    try:
        train(run)
    except (KeyboardInterrupt, ConvergenceError) as stop:
        keep_unfinished(run, files, settings, stop)
        ctx.exit(1)
    seconds = time.perf_counter() - started
    save(run, files, settings)
    try:
        learned = judge(run, seconds)
        if files.report is not None:
            with busy("Drawing the report ..."):
                write_atomically(files.report, render(learned).encode())
    except KeyboardInterrupt:
        say(f"Stopped while measuring. The model is finished: {output}{missing(files)}")
        ctx.exit(1)
    if as_json:
        show_json(summary(run, learned, files))
    else:
        show(run, learned, files)


class Files(NamedTuple):
    """The files that a run writes; no settings where the user's own file of them stands in that place."""

    model: Path
    settings: Path | None
    report: Path | None


def places(ctx: click.Context, output: Path, report: Path | None, *, force: bool) -> Files:
    """Find the files to write, none of which replaces something that `fit` did not write, unless forced."""
    beside = output.with_suffix(".toml")
    if output == beside or report in (output, beside):
        what = "the settings are written beside the model as .toml: name it otherwise"
        raise click.BadParameter(what, param_hint="-o" if output == beside else "--report")
    in_file = [ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP for name in ("output", "report")]
    if report is not None and in_file == [False, True]:
        report = output.with_suffix(report.suffix)  # the one in the file is about the model in the file
    config = ctx.meta.get("config")
    theirs = config is not None and config.resolve() == beside.resolve() and not is_settings(config)
    settings = beside if force or not theirs else None
    signed = ((output, is_model), (settings, is_settings), (report, partial(is_marked, mark=REPORT_MARK)))
    for path, ours in signed:
        if path is not None:
            check_replaceable(path, "fit", ours, force=force)
    if report is not None:
        load_template()  # or an error that names the extra, before any work
    return Files(output, settings, report)


def is_settings(path: Path) -> bool:
    """Return whether a file of settings is one that `fit` wrote."""
    return path.is_file() and path.read_bytes().startswith(SETTINGS_MARK.encode())


# -- Read the baskets, and settle what was left open ---------------------------------------------------------


class Choice(NamedTuple):
    """An option, the value it has been given, and why."""

    option: str
    value: Any
    why: str


@dataclass
class Run:
    """One run of `fit`: its options, its data, and a model that has still to learn."""

    data: str
    given: dict[str, Any]
    choices: list[Choice]
    baskets: Baskets
    learned: Baskets
    test: Baskets | None
    feedback: Feedback | None
    features: Given | None
    validation: Any
    model: Any
    name: str
    label: str

    @property
    def by_choice(self) -> bool:
        """Whether the objective tells what was taken from what was shown and refused, by itself."""
        return getattr(self.model, "objective", None) in ("explicit", "choice")


def prepare(data: str, given: dict[str, Any]) -> Run:
    """Read the baskets, settle what was left open, and set some baskets aside.

    On a cluster the workers read: here one file is looked at, and nothing is set aside.
    """
    layout = {name: given[name] for name in LAYOUT}
    source = data
    features = None
    if given["engine"] is not None:
        if given["feedback"] is not None or given["features"] is not None or isinstance(given["validation"], str):
            raise click.UsageError("--engine ray takes neither --feedback nor --features nor a file for --validation")
        source = max(list_files(data), key=lambda file: file.n_rows).path.removeprefix("file://")
        given = given | {"test_size": 0.0}
    with busy(f"Reading {source} ..."):
        if given["features"] is not None:
            features = read_features(given["features"])
            # What it tells of items need not be in the file of baskets.
            layout |= {role: None for role in ("name", "category") if given[role] in features.columns}
        baskets = baskets_from(source, **layout)
        if given["min_item_count"] > 1:
            baskets = baskets.filter(min_size=1, min_item_count=given["min_item_count"])
    feedback = None if given["feedback"] is None else read_feedback(given["feedback"])
    if features is not None:
        names, categories = labels_of(features, given)
        items = baskets.items
        baskets = baskets.with_names(names | items.names).with_categories(categories | items.categories)
    choices = choose(baskets, given)
    settings = given | {choice.option: choice.value for choice in choices}
    learned, test = hold_out(usable(baskets, settings), given["test_size"], given["random_state"])
    validation = given["validation"]
    if isinstance(validation, str):
        validation = baskets_from(validation, **layout)
    kind = settings["model"]
    model = build(kind, {knob: settings[knob] for knob in KNOBS} | {"verbose": 1})
    name = kind if kind == CONDITIONAL else f"{kind} ({settings['objective']})"
    label = Path(source).name
    return Run(data, given, choices, baskets, learned, test, feedback, features, validation, model, name, label)


def labels_of(features: Given, given: dict[str, Any]) -> tuple[dict[Any, str], dict[Any, str]]:
    """Find names and categories by item: of the columns that are named, names also of one that is called so."""
    guessed = matches(list(features.columns), "name")
    name = given["name"] or (guessed[0] if len(guessed) == 1 else None)

    def texts(column: str | None) -> dict[Any, str]:
        if column not in features.columns:
            return {}
        pairs = zip(features.ids or (), features.columns[column].values, strict=True)
        return {item: str(value) for item, value in pairs if value is not None}

    return texts(name), texts(given["category"])


def any_size(settings: dict[str, Any]) -> bool:
    """Return whether the model takes baskets of any size: one with a diagonal does."""
    return settings["model"] in ("nonsymmetric", CONDITIONAL) and settings["diagonal"] is not False


def usable(baskets: Baskets, settings: dict[str, Any]) -> Baskets:
    """Take the baskets that the model can learn from."""
    if any_size(settings) or settings["oversize"] != "drop":
        return baskets
    rank = settings["n_components"]
    fits = baskets.sizes <= rank
    if not fits.any():
        raise DataError(f"every basket has more than {rank} items: choose a larger --n-components, or --oversize clip")
    return baskets.subset(fits)


def build(model: str, options: Mapping[str, Any]) -> Any:
    """Make the model with the options that were given; one that it does not have is a usage error."""
    given = {knob: value for knob, value in options.items() if value is not None}
    for knob, value in given.items():
        if knob not in DEFAULTS[model]:
            raise click.UsageError(f"{written(knob, value)} is not for --model {model}")
    kernel = KERNELS[model](**given)
    if model != CONDITIONAL:
        return kernel
    of_the_run = ("random_state", "n_jobs", "verbose")
    return ConditionalDPP(kernel, **{knob: given[knob] for knob in of_the_run if knob in given})


def choose(baskets: Baskets, given: dict[str, Any]) -> list[Choice]:
    """Choose what is left open in the options, each with its reason; later ones depend on earlier ones."""
    choices: list[Choice] = []
    settled = dict(given)

    def settle(name: str, value: Any, why: str) -> None:
        if given[name] is None:
            settled[name] = value
            choices.append(Choice(name, value, why))

    settle("model", *_model(baskets, given))
    default = DEFAULTS[settled["model"]]
    settle("n_components", *_rank(baskets, settled))
    if baskets.n_items > DENSE_CATALOGUE and settled["model"] == "lowrank":
        settle("objective", "dynamic", f"its cost does not grow with the {baskets.n_items:,} items")
    else:
        settle("objective", "exact", "predicts each item from the rest of its basket, without sampling noise")
    size = min(max(baskets.n_baskets // STEPS_A_ROUND, 50), default["batch_size"])
    settle("batch_size", size, f"some {max(baskets.n_baskets // size, 1):,} steps a round")
    settle("calibrate", default["calibrate"], "the model's baskets become as large as the real ones")
    settle("max_iter", default["max_iter"], "at most; training ends when validation baskets gain no more")
    return choices


def _model(baskets: Baskets, given: dict[str, Any]) -> tuple[str, str]:
    for knob in TABLE:
        if given[knob] is not None and TABLE[knob].models == (LOWRANK,):
            return "lowrank", f"{written(knob, given[knob])} is for symmetric kernels"
    if given["objective"] == "mle" and baskets.n_items > MOST_TO_INVERT:
        return "lowrank", f"with more than {MOST_TO_INVERT:,} items only its likelihood can be maximised"
    return CONDITIONAL, "what was bought together, and a kernel whose items attract and repel: the best next items"


def _rank(baskets: Baskets, given: dict[str, Any]) -> tuple[int, str]:
    if any_size(given):
        rank = min(DEFAULTS[given["model"]]["n_components"], baskets.n_items)
        return rank, "a matter of taste: baskets may have any size"
    sizes = baskets.sizes
    most = int(np.quantile(sizes, 0.95, method="higher"))
    rank = min(max(-(-most // 10) * 10, LEAST_RANK), MOST_RANK, baskets.n_items)
    larger = int((sizes > rank).sum())
    if not larger:
        return rank, f"no basket has more than {int(sizes.max())} items"
    what = {"drop": "left out", "clip": "cut to that size", "error": "refused"}[given["oversize"]]
    return rank, f"{1 - larger / len(sizes):.0%} of the baskets fit; {larger:,} larger ones are {what}"


# -- Learn, write and measure --------------------------------------------------------------------------------


def introduce(run: Run) -> None:
    """Say what there is to learn from, what was chosen, and why."""
    found = run.baskets.summary()
    where = f"{run.label}, the largest file of {run.data}" if run.given["engine"] else run.data
    click.echo(
        f"{where}: {found.n_baskets:,} baskets of {found.n_items:,} items; "
        f"half have {found.median:g} or fewer, the largest {found.largest}."
    )
    if run.given["engine"]:
        heading(f"Learning from all files of {run.data}, with settings chosen by the largest")
    else:
        held = f"{run.test.n_baskets:,} are held out to measure it" if run.test else "none are held out to measure it"
        heading(f"Learning from {run.learned.n_baskets:,} baskets; {held}")
    rows = [[choice.option.replace("_", "-"), str(choice.value), choice.why] for choice in run.choices]
    show_table([Column("setting"), Column("chosen"), Column("because")], rows)
    if run.features is not None:
        n_known = sum(item in run.baskets.items for item in run.features.ids or ())
        click.echo(
            f"Features: {n_known:,} of the {found.n_items:,} items have some ({', '.join(run.features.columns)})."
        )
    if run.feedback is not None:
        liked, rejected = len(run.feedback.positives), len(run.feedback.negatives)
        how = "told from" if run.by_choice else "learned as baskets,"
        what = "what was refused" if run.by_choice else f"{rejected:,} rejected ones pushed away"
        click.echo(f"Feedback: {liked:,} accepted sets are {how} {what}.")


def train(run: Run) -> None:
    """Fit the model."""
    given = run.given
    how: dict[str, Any] = {"validation": run.validation}
    if given["checkpoint"] is not None:
        how |= {name: given[name] for name in GROUPS["Long runs"]}
    if given["engine"]:
        how |= {name: given[name] for name in GROUPS["A cluster"]}
        run.model.fit(run.data, columns={name: given[name] for name in COLUMNS}, **how)
        return
    baskets = run.learned
    if run.feedback is not None:
        baskets = Baskets.concat([baskets, read_choices(given["feedback"], taken=not run.by_choice)])
        how["negatives"] = None if run.by_choice else run.feedback.negatives or None
    if run.features is not None:
        how["item_features"] = run.features
    run.model.fit(baskets, **how)
    if run.features is not None and given["new_items"]:
        fresh = [item for item in run.features.ids or () if item not in run.model.items_]
        names, categories = labels_of(run.features, given)
        run.model.add_items(fresh, run.features.take(fresh), names=names, categories=categories)


def save(run: Run, files: Files, settings: str) -> None:
    """Write the model and its settings."""
    save_model(run.model, files.model)
    if files.settings is not None:
        write_atomically(files.settings, settings.encode())


def keep_unfinished(run: Run, files: Files, settings: str, stop: BaseException) -> None:
    """Save the best state of a training that did not end well, beside a finished model if there is one."""
    if not getattr(run.model, "history_", None):
        say("Stopped too early: there is no model yet, and nothing was written.")
        return
    if files.model.exists():
        model = files.model.with_name(f"{files.model.stem}.unfinished{files.model.suffix}")
        files = Files(model, model.with_suffix(".toml"), files.report)
    save(run, files, settings)
    why = f"Training failed ({stop})" if isinstance(stop, ConvergenceError) else "Stopped"
    best = max(run.model.history_, key=lambda record: record["validation"])["iteration"]
    say(
        f"{why} after {run.model.n_iter_} rounds. The best model so far, of round {best}, is {files.model} and can be "
        f"used{missing(files)}"
    )


def missing(files: Files) -> str:
    """End a sentence with where the settings are, and what a run that was stopped has not written."""
    there = "" if files.settings is None else f"; its settings are {files.settings}"
    report = "" if files.report is None else f", and the report {files.report} was not written"
    return f"{there}. It was not measured{report}."


def judge(run: Run, seconds: float) -> Subject:
    """Measure the model on the baskets that were held out, and draw the examples."""
    found, drawn = None, []
    if run.test is not None:
        with busy("Measuring on held-out baskets ..."):
            found = measure({run.name: run.model}, run.learned, run.test)
            drawn = examples(run.model, run.test, seed=run.given["random_state"])
    return Subject(run.model, run.name, run.label, run.learned, found, drawn, seconds)


# -- Show what came of it ------------------------------------------------------------------------------------


def summary(run: Run, learned: Subject, files: Files) -> dict[str, Any]:
    """Say what came of the run, for machines."""
    found = learned.measured
    n_held = 0 if run.test is None else run.test.n_baskets
    n_left_out = run.baskets.n_baskets - run.learned.n_baskets - n_held
    return {
        "model": str(files.model),
        "config": str(files.settings or files.model.with_suffix(".toml")),
        "report": None if files.report is None else str(files.report),
        "bytes": files.model.stat().st_size,
        "baskets": {"all": run.baskets.n_baskets, "learned": run.learned.n_baskets, "left_out": n_left_out},
        "n_items": run.baskets.n_items,
        "chosen": [choice._asdict() for choice in run.choices],
        "parameters": getattr(run.model, "kernel", run.model).get_params(),
        "rounds": run.model.n_iter_,
        "seconds": learned.seconds,
        "features": run.model.explained_,
        "name": run.name,
        "held_out": None if found is None else {name: report.as_dict() for name, report in found.reports.items()},
        "verdict": None if found is None else verdict(found, run.name),
        "examples": [example._asdict() for example in learned.examples],
    }


def show(run: Run, learned: Subject, files: Files) -> None:
    """Say what came of the run, for people."""
    click.echo(f"\nLearned in {learned.seconds:.1f} s, {run.model.n_iter_} rounds{best_round(run.model.history_)}.")
    if run.model.explained_ is not None:
        paragraph(explained(run.model.explained_))
    if learned.measured is None:
        click.echo("Nothing was held out, so there is no measurement: `contradpp evaluate` makes one on other baskets.")
    else:
        show_metrics(learned.measured)
        click.echo()
        paragraph(verdict(learned.measured, run.name), bold=True)
        show_examples(learned.examples, run.model.items_)
    show_files(*files)
    popular: Any = run.learned.items[int(run.learned.item_counts.argmax())]
    click.echo(f"Try       contradpp recommend {shlex.quote(str(files.model))} {shlex.quote(visible(str(popular)))}")


def best_round(history: Sequence[dict[str, Any]]) -> str:
    """Say which round the model is of, if that is known: validation baskets choose it."""
    scores = [record["validation"] for record in history]
    if not scores or not all(map(math.isfinite, scores)):
        return ""
    return f", the best by validation round {history[scores.index(max(scores))]['iteration']}"


def show_metrics(found: Comparison, *, seconds: dict[str, float] | None = None) -> None:
    """Print the table of models on held-out baskets, and how to read it."""
    n_baskets = found.reports[found.baseline].n_baskets
    heading(f"{n_baskets:,} held-out baskets, every item left out in turn")
    names = ["MPR", *(f"top {k}" for k in KS), "nDCG", "log-likelihood", *(["seconds"] if seconds else [])]
    rows = []
    for name, report in found.reports.items():
        cells = [f"{report.mpr:.1f}", *(f"{report.precision[k]:.1f} %" for k in KS), f"{report.ndcg:.3f}"]
        likely = f"{report.log_likelihood:.1f}{report.plus_minus()}"
        cells.append(likely if math.isfinite(report.log_likelihood) else "–")
        if seconds:
            cells.append(f"{seconds[name]:.1f}" if name in seconds else "")
        rows.append([name, *cells])
    show_table([Column("model"), *(Column(name, right=True) for name in names)], rows)
    paragraph(LEGEND)


def show_examples(shown: Sequence[Example], items: Vocabulary) -> None:
    """Print test baskets with suggestions; the item that was hidden is marked where it was found."""
    if not shown:
        return
    heading(f"{len(shown)} held-out baskets, drawn at random, with one item hidden")
    for example in shown:
        suggestions = [("✓ " if item == example.hidden else "") + called(item, items) for item in example.suggestions]
        hidden = called(example.hidden, items) + (" (found)" if example.found else "")
        paragraph(listed(example.basket, items), label="  basket    ")
        paragraph(hidden, label="  hidden    ")
        paragraph(", ".join(suggestions), label="  suggests  ")
        click.echo()


def show_files(model: Path, config: Path | None, report: Path | None) -> None:
    """Say what was written, and how large the model is."""
    click.echo(f"Model     {model} ({decimal(model.stat().st_size)})")
    if config is not None:
        click.echo(f"Settings  {config} (the same run again: contradpp fit --config {shlex.quote(str(config))})")
    if report is not None:
        click.echo(f"Report    {report} (open it in a browser)")


# -- A run in a TOML file: read with `--config`, and written beside the model so that it can be repeated ----------

_NOT_IN_FILES = ("config", "as_json", "force", "help")  # the file itself, and what concerns one call only


def repeatable(run: Run, files: Files, command: click.Command) -> str:
    """Write the options of the run as TOML, with absolute paths and nothing left open; None is left out."""
    kernel = getattr(run.model, "kernel", run.model)
    used = {knob: getattr(kernel, knob, None) for knob in KNOBS}
    chosen = {choice.option: choice.value for choice in run.choices}
    settings = run.given | chosen | used | dict.fromkeys(GROUPS["Long runs"])  # of this run only
    settings |= {"data": run.data, "output": files.model, "report": files.report}
    for name in ("data", "validation"):
        if isinstance(settings[name], str) and Path(settings[name]).exists():
            settings[name] = Path(settings[name])
    lines = [f"{SETTINGS_MARK} {__version__}. The same run again: contradpp fit --config {files.model.stem}.toml"]
    for parameter, word in _words(command).items():
        value = settings.get(parameter)
        if isinstance(value, (bool, int, float)):
            lines.append(f"{word} = {str(value).lower()}")
        elif value is not None:  # a text of JSON is one of TOML, but for one character
            text = str(value.absolute() if isinstance(value, Path) else value)
            quoted = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
            lines.append(f"{word} = {quoted}")
    return "\n".join(lines) + "\n"


def read_config(path: Path, command: click.Command) -> dict[str, Any]:
    """Read a file's options by the names of the command's parameters; what it does not know is a usage error."""
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
            kind = type(value).__name__
            raise click.BadParameter(f"{path}: {key!r} is a {kind}, not a plain value", param_hint="--config")
        values[known[word]] = value
    return values


def _words(command: click.Command) -> dict[str, str]:
    """Return what each parameter is called in a file: its long option without the dashes."""
    return {
        str(param.name): max(param.opts, key=len).lstrip("-").replace("_", "-").lower()
        for param in command.params
        if param.name not in _NOT_IN_FILES
    }
