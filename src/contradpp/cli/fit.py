"""`contradpp fit`: baskets in, a model file out, and an honest word on how good it is."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from contradpp import __version__
from contradpp.cli.fit_options import KNOBS, OPTIONS, FitCommand, as_toml, fit_options
from contradpp.cli.output import (
    Column,
    busy,
    called,
    check_writable,
    heading,
    in_bytes,
    is_model,
    is_nothing,
    listed,
    paragraph,
    save_model,
    say,
    show_json,
    show_table,
    visible,
    write_text,
)
from contradpp.cli.run import Run, judge, prepare, train
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import ConvergenceError
from contradpp.report.measured import KS, Example, Measured, explained
from contradpp.report.page import Subject, render

SETTINGS_MARK = "# Written by contradpp"
LEGEND = (
    "MPR: how far up the missing item ranks, 100 = always first, 50 = by chance. top 1, top 10: how often it is among "
    "the first suggestions. log-likelihood: of whole baskets, per basket, higher is better."
)


class Files(NamedTuple):
    """What a run writes; no settings where the user's own file of them stands in that place."""

    model: Path
    settings: Path | None
    report: Path | None


@click.command(cls=FitCommand)
@click.argument("data")
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
        introduce(run, data)
    comment = f"{SETTINGS_MARK} {__version__}. The same run again: contradpp fit --config {output.stem}.toml"
    settings = as_toml(repeatable(run, data, files), ctx.command, comment=comment)
    try:
        train(run)
    except (KeyboardInterrupt, ConvergenceError) as stop:
        keep_unfinished(run, files, settings, stop)
        ctx.exit(1)
    save_model(run.model, output)
    if files.settings is not None:
        write_text(files.settings, settings)
    try:
        judge(run)
        if files.report is not None:
            write_report(run, files.report)
    except KeyboardInterrupt:
        say(f"Stopped while measuring. The model is finished: {output}{missing(files)}")
        ctx.exit(1)
    if as_json:
        show_json(summary(run, files))
    else:
        show(run, files)


def places(ctx: click.Context, output: Path, report: Path | None, *, force: bool) -> Files:
    """The files to write, none of which replaces something that `fit` did not write, unless forced."""
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
    for path, ours in ((output, is_model), (settings, is_settings), (report, is_report)):
        if path is not None:
            check_writable(path)
            if not (force or ours(path) or is_nothing(path)):
                raise click.ClickException(
                    f"{path} is there, and `fit` did not write it: name another file, or add --force to replace it"
                )
    return Files(output, settings, report)


def is_settings(path: Path) -> bool:
    """Whether a file of settings is one that `fit` wrote."""
    return path.is_file() and path.read_bytes().startswith(SETTINGS_MARK.encode())


def is_report(path: Path) -> bool:
    """Whether a page is one that we wrote."""
    return path.is_file() and b"Made by contradpp" in path.read_bytes()


def introduce(run: Run, data: str) -> None:
    """Say what there is to learn from, what was chosen, and why."""
    summary = run.baskets.summary()
    where = data if run.cluster is None else f"{run.label}, the largest file of {data}"
    click.echo(
        f"{where}: {summary.n_baskets:,} baskets of {summary.n_items:,} items; "
        f"half have {summary.median:g} or fewer, the largest {summary.largest}."
    )
    if run.cluster is not None:
        heading(f"Learning from all files of {run.cluster}, with settings chosen by the largest")
    else:
        held = f"{run.test.n_baskets:,} are held out to measure it" if run.test else "none are held out to measure it"
        heading(f"Learning from {run.learned.n_baskets:,} baskets; {held}")
    rows = [[choice.option.replace("_", "-"), str(choice.value), choice.why] for choice in run.choices]
    show_table([Column("setting"), Column("chosen"), Column("because")], rows)
    if run.features is not None:
        n_known = sum(item in run.baskets.items for item in run.features.ids or ())
        click.echo(
            f"Features: {n_known:,} of the {summary.n_items:,} items have some ({', '.join(run.features.columns)})."
        )
    if run.feedback is not None:
        liked, rejected = len(run.feedback.positives), len(run.feedback.negatives)
        how = "told from" if run.by_choice else "learned as baskets,"
        what = "what was refused" if run.by_choice else f"{rejected:,} rejected ones pushed away"
        click.echo(f"Feedback: {liked:,} accepted sets are {how} {what}.")


def keep_unfinished(run: Run, files: Files, settings: str, stop: BaseException) -> None:
    """Save the best state of a training that did not end well, beside a finished model if there is one."""
    if not getattr(run.model, "history_", None):
        say("Stopped too early: there is no model yet, and nothing was written.")
        return
    place, beside = files.model, files.settings
    if place.exists():
        place = place.with_name(f"{place.stem}.unfinished{place.suffix}")
        beside = place.with_suffix(".toml")
    save_model(run.model, place)
    if beside is not None:
        write_text(beside, settings)
    why = f"Training failed ({stop})" if isinstance(stop, ConvergenceError) else "Stopped"
    best = max(run.model.history_, key=lambda record: record["validation"])["iteration"]
    say(
        f"{why} after {run.model.n_iter_} rounds. The best model so far, of round {best}, is {place} and can be used"
        f"{missing(files._replace(settings=beside))}"
    )


def missing(files: Files) -> str:
    """The end of a sentence: where the settings are, and what a run that was stopped has not written."""
    there = "" if files.settings is None else f"; its settings are {files.settings}"
    report = "" if files.report is None else f", and the report {files.report} was not written"
    return f"{there}. It was not measured{report}."


def repeatable(run: Run, data: str, files: Files) -> dict[str, Any]:
    """The options of the run, with absolute paths and nothing left open."""
    kernel = getattr(run.model, "kernel", run.model)
    used = {knob: getattr(kernel, knob, None) for knob in KNOBS}
    chosen = {choice.option: choice.value for choice in run.choices}
    settings = run.given | chosen | used | dict.fromkeys(OPTIONS["Long runs"])  # of this run only
    settings |= {"data": Path(data) if Path(data).exists() else data, "output": files.model, "report": files.report}
    if isinstance(settings["validation"], str):
        settings["validation"] = Path(settings["validation"])
    return {name: value.absolute() if isinstance(value, Path) else value for name, value in settings.items()}


def write_report(run: Run, path: Path) -> None:
    """The HTML page about the model."""
    with busy("Drawing the report ..."):
        subject = Subject(run.model, run.name, run.label, run.learned, run.measured, run.examples, run.seconds)
        write_text(path, render(subject))


def summary(run: Run, files: Files) -> dict[str, Any]:
    """What came of the run, for machines."""
    measured = run.measured
    return {
        "model": str(files.model),
        "config": str(files.settings or files.model.with_suffix(".toml")),
        "report": None if files.report is None else str(files.report),
        "bytes": files.model.stat().st_size,
        "baskets": {"all": run.baskets.n_baskets, "learned": run.learned.n_baskets, "left_out": run.n_left_out},
        "n_items": run.baskets.n_items,
        "chosen": [choice._asdict() for choice in run.choices],
        "parameters": getattr(run.model, "kernel", run.model).get_params(),
        "rounds": run.model.n_iter_,
        "seconds": run.seconds,
        "features": run.model.explained_,
        "name": run.name,
        "held_out": None if measured is None else {name: r.as_dict() for name, r in measured.reports.items()},
        "verdict": None if measured is None else measured.verdict(run.name),
        "examples": [example._asdict() for example in run.examples],
    }


def show(run: Run, files: Files) -> None:
    """What came of the run, for people."""
    click.echo(f"\nLearned in {run.seconds:.1f} s, {run.model.n_iter_} rounds{best_round(run.model.history_)}.")
    if run.model.explained_ is not None:
        paragraph(explained(run.model.explained_))
    if run.measured is None:
        click.echo("Nothing was held out, so there is no measurement: `contradpp evaluate` makes one on other baskets.")
    else:
        show_metrics(run.measured)
        click.echo()
        paragraph(run.measured.verdict(run.name), bold=True)
        show_examples(run.examples, run.model.items_)
    show_files(*files)
    popular: Any = run.learned.items[int(run.learned.item_counts.argmax())]
    click.echo(f"Try       contradpp recommend {shlex.quote(str(files.model))} {shlex.quote(visible(str(popular)))}")


def best_round(history: Sequence[dict[str, Any]]) -> str:
    """Which round the model is of, if that is known: validation baskets choose it."""
    scores = [record["validation"] for record in history]
    if not scores or not all(map(math.isfinite, scores)):
        return ""
    return f", the best by validation round {history[scores.index(max(scores))]['iteration']}"


# -- Parts of what is shown, for `demo` too ---------------------------------------------------------------


def show_metrics(measured: Measured, *, seconds: dict[str, float] | None = None) -> None:
    """The table of models on held-out baskets, and how to read it."""
    heading(f"{measured.n_baskets:,} held-out baskets, every item left out in turn")
    names = ["MPR", *(f"top {k}" for k in KS), "nDCG", "log-likelihood", *(["seconds"] if seconds else [])]
    rows = []
    for name, report in measured.reports.items():
        cells = [f"{report.mpr:.1f}", *(f"{report.precision[k]:.1f} %" for k in KS), f"{report.ndcg:.3f}"]
        likely = f"{report.log_likelihood:.1f}{report.plus_minus()}"
        cells.append(likely if math.isfinite(report.log_likelihood) else "–")
        if seconds:
            cells.append(f"{seconds[name]:.1f}" if name in seconds else "")
        rows.append([name, *cells])
    show_table([Column("model"), *(Column(name, right=True) for name in names)], rows)
    paragraph(LEGEND)


def show_examples(shown: Sequence[Example], items: Vocabulary) -> None:
    """Baskets of the test part with suggestions; the item that was hidden is marked where it was found."""
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
    """What was written, and how large the model is."""
    click.echo(f"Model     {model} ({in_bytes(model.stat().st_size)})")
    if config is not None:
        click.echo(f"Settings  {config} (the same run again: contradpp fit --config {shlex.quote(str(config))})")
    if report is not None:
        click.echo(f"Report    {report} (open it in a browser)")
