"""`contradpp fit`: baskets in, a model file out, and an honest word on how good it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from contradpp import __version__
from contradpp.cli.config import as_toml
from contradpp.cli.destination import check_writable, save_model, write_text
from contradpp.cli.fit_options import GROUPS, KNOBS, FitCommand, fit_options
from contradpp.cli.models import ARGUMENTS
from contradpp.cli.output import Column, busy, heading, paragraph, say, show_json, show_table
from contradpp.cli.run import Run, judge, prepare, train
from contradpp.cli.summary import next_command, show_examples, show_files, show_metrics
from contradpp.errors import ConvergenceError


@click.command(cls=FitCommand)
@click.argument("data")
@fit_options
@click.pass_context
def fit(ctx: click.Context, /, data: str, output: Path, report: Path | None, as_json: bool, **given: Any) -> None:
    """Learn a model from DATA, a file of baskets or the name of a data set.

    What is not given is chosen by looking at the data. A part of the baskets is held out to measure the model beside
    popularity. Ctrl-C keeps the best model so far.

    \b
    contradpp fit orders.csv -o shop.safetensors
    contradpp fit orders.parquet -o shop.safetensors --basket order_id --item sku --report shop.html
    contradpp fit --config shop.toml
    """
    config = output.with_suffix(".toml")
    if config == output:
        raise click.BadParameter(
            "the settings are written beside the model as .toml: name it otherwise", param_hint="-o"
        )
    for path in (output, config, report):
        if path is not None:
            check_writable(path)
    if given["resume"] and given["checkpoint"] is None:
        raise click.UsageError("--resume needs --checkpoint, the file to go on from")
    run = prepare(data, given)
    if not as_json:
        introduce(run, data)
    try:
        train(run)
    except (KeyboardInterrupt, ConvergenceError) as stop:
        keep_unfinished(run, output, stop)
        ctx.exit(1)
    save_model(run.model, output)
    write_text(config, repeatable(ctx, run, data, output, report))
    try:
        judge(run)
        if report is not None:
            write_report(run, report)
    except KeyboardInterrupt:
        say(f"Stopped while measuring. The model is finished: {output}")
        ctx.exit(1)
    if as_json:
        show_json(summary(run, output, config, report))
    else:
        show(run, output, config, report)


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
    if run.feedback is not None:
        liked, rejected = len(run.feedback.positives), len(run.feedback.negatives)
        click.echo(f"Feedback: {liked:,} accepted sets are learned as baskets, {rejected:,} rejected ones pushed away.")


def keep_unfinished(run: Run, output: Path, stop: BaseException) -> None:
    """Save the best state of a training that did not end well, beside a finished model if there is one."""
    if not getattr(run.model, "history_", None):
        say("Stopped before the first round was finished: there is no model yet.")
        return
    place = output.with_name(f"{output.stem}.unfinished{output.suffix}") if output.exists() else output
    save_model(run.model, place)
    why = f"Training failed ({stop})" if isinstance(stop, ConvergenceError) else "Stopped"
    best = max(run.model.history_, key=lambda record: record["validation"])["iteration"]
    say(f"{why} after {run.model.n_iter_} rounds. The best model so far, of round {best}, is {place} and can be used.")


def repeatable(ctx: click.Context, run: Run, data: str, output: Path, report: Path | None) -> str:
    """The run as a TOML file, with absolute paths and nothing left open."""
    paths: dict[str, Any] = {
        "data": Path(data).absolute() if Path(data).exists() else data,
        "output": output.absolute(),
    }
    paths["report"] = None if report is None else report.absolute()
    used = {knob: getattr(run.model, ARGUMENTS.get(knob, knob), None) for knob in KNOBS}
    chosen = {choice.option: choice.value for choice in run.choices}
    settings = run.given | chosen | used | dict.fromkeys(GROUPS["Long runs"])  # of this run only
    for name in ("feedback", "validation"):
        value = settings[name]
        paths[name] = value if value is None or isinstance(value, float) else Path(value).absolute()
    comment = f"Written by contradpp {__version__}. The same run again: contradpp fit --config {output.stem}.toml"
    return as_toml(settings | paths, ctx.command, comment=comment)


def write_report(run: Run, path: Path) -> None:
    """The HTML page about the model."""
    from contradpp.report.page import Subject, render

    with busy("Drawing the report ..."):
        subject = Subject(run.model, run.name, run.label, run.learned, run.measured, run.examples, run.seconds)
        write_text(path, render(subject))


def summary(run: Run, output: Path, config: Path, report: Path | None) -> dict[str, Any]:
    """What came of the run, for machines."""
    measured = run.measured
    return {
        "model": str(output),
        "config": str(config),
        "report": None if report is None else str(report),
        "bytes": output.stat().st_size,
        "baskets": {"all": run.baskets.n_baskets, "learned": run.learned.n_baskets, "left_out": run.n_left_out},
        "n_items": run.baskets.n_items,
        "chosen": [choice._asdict() for choice in run.choices],
        "parameters": run.model.get_params(),
        "rounds": run.model.n_iter_,
        "seconds": run.seconds,
        "name": run.name,
        "held_out": None if measured is None else {name: r.as_dict() for name, r in measured.reports.items()},
        "verdict": None if measured is None else measured.verdict(run.name),
        "examples": [example._asdict() for example in run.examples],
    }


def show(run: Run, output: Path, config: Path, report: Path | None) -> None:
    """What came of the run, for people."""
    click.echo(f"\nLearned in {run.seconds:.1f} s, {run.model.n_iter_} rounds.")
    if run.measured is None:
        click.echo("Nothing was held out, so there is no measurement: `contradpp evaluate` makes one on other baskets.")
    else:
        show_metrics(run.measured)
        click.echo()
        paragraph(run.measured.verdict(run.name), bold=True)
        show_examples(run.examples, run.model.items_)
    show_files(output, config, report)
    click.echo(f"Try       {next_command(output, run.learned)}")
