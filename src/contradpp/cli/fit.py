"""`contradpp fit`: learn a model from a file of baskets, and measure how good it is."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from click.core import ParameterSource
from rich.filesize import decimal

from contradpp._types import Values
from contradpp.cli.fit_options import (
    CHECKPOINT_OPTIONS,
    CONDITIONAL,
    DEFAULTS,
    KERNELS,
    MIXTURE,
    MODEL_PARAMETERS,
    FitCommand,
    fit_options,
    is_settings,
    kernel_model,
    load_config,
    write_config,
)
from contradpp.cli.inputs import (
    COLUMNS,
    FILE,
    LAYOUT,
    OLD_FILE,
    baskets_from,
    hold_out,
    layout_options,
    option,
)
from contradpp.cli.output import (
    Column,
    busy,
    check_replaceable,
    display_name,
    display_names,
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
from contradpp.errors import ConvergenceError, DataError
from contradpp.experts.history import in_order
from contradpp.learn.checkpoints import Checkpointing
from contradpp.learn.objectives import MOST_TO_INVERT
from contradpp.learn.params import (
    LOWRANK,
    STEPS_A_ROUND,
    TABLE,
    flat_params,
    params_from_flat,
)
from contradpp.metrics.compare import Comparison
from contradpp.metrics.report import measure as measure_model
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
    save_model(run.model, files.model)
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
    if options["engine"] is not None:
        other_files = (options["feedback"], options["features"])
        if any(other_files) or isinstance(options["validation"], str):
            raise click.UsageError(
                "--engine ray takes neither --feedback nor --features nor a file for --validation"
            )
        source = max(list_files(data), key=lambda file: file.n_rows).path.removeprefix("file://")
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
    choices = choose(baskets, options)
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
        model=make_model(
            kind,
            {name: settings[name] for name in MODEL_PARAMETERS},
            options["n_clusters"],
        ),
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


def make_model(
    model: str, parameters: Mapping[str, Any], n_clusters: int | str | None = None
) -> Any:
    """Make the estimator; a parameter that it does not have is a usage error."""
    given = {name: value for name, value in parameters.items() if value is not None}
    for name, value in given.items():
        if name not in DEFAULTS[model]:
            raise click.UsageError(f"{flag_with_value(name, value)} is not for --model {model}")
    kind = KERNELS[model]
    kernel = kind(**params_from_flat(kind, given), verbose=1)
    # Nothing is left open: the file of settings then makes an equal model.
    kernel = kind(**params_from_flat(kind, flat_params(kernel)))
    if model in MODELS:
        if n_clusters is not None:
            raise click.UsageError(f"--n-clusters {n_clusters} is not for --model {model}")
        return kernel
    shared = {name: given[name] for name in ("random_state", "n_jobs") if name in given}
    mixture = MixtureDPP(kernel, n_clusters or "auto", **shared, verbose=1)
    return mixture if model == MIXTURE else ConditionalDPP(mixture, **shared, verbose=1)


def choose(baskets: Baskets, options: Values) -> list[Choice]:
    """Choose the settings that are left open; later ones depend on earlier ones."""
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
    size = min(max(baskets.n_baskets // STEPS_PER_ROUND, 50), default["batch_size"])
    size = max(size, baskets.n_baskets // STEPS_A_ROUND)
    settle("batch_size", size, f"about {max(baskets.n_baskets // size, 1):,} steps per round")
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
    keywords: Values = {"ks": (10,), "likelihood": False}
    reports = [
        measure_model(run.model, test, **keywords),
        measure_model(run.model, test, history=run.train, **keywords),
    ]
    before, after = (report.precision[10] for report in reports)
    return {"n_baskets": test.n_baskets, "without": before, "with": after}


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
    show_table([Column("setting"), Column("chosen"), Column("because")], rows)
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
    show_files(*files)
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
    show_table([Column("model"), *(Column(name, right=True) for name in names)], rows)
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


def show_files(model: Path, config: Path | None, report: Path | None) -> None:
    """Print which files were written."""
    click.echo(f"Model     {model} ({decimal(model.stat().st_size)})")
    if config is not None:
        again = f"{program()} fit --config {shlex.quote(str(config))}"
        click.echo(f"Settings  {config} (to repeat this run: {again})")
    if report is not None:
        click.echo(f"Report    {report} (open it in a browser)")
