"""The commands `reproduce`, `benchmark` and `publish` of `python -m experiments`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from contradpp.cli.output import heading, paragraph, show_table
from experiments.benchmark import models
from experiments.benchmark.page import ALL_TASKS
from experiments.protocol import TARGETS, Protocol, Task
from experiments.run import Store, Watcher, expand
from experiments.run import publish as publish_folder
from experiments.run import reproduce as reproduce_all


def names(known: Collection[str], groups: Mapping[str, tuple[str, ...]] = {}) -> Any:
    """Return the callback of an option that takes names between commas, of groups, too."""

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
        chosen = [name for word in (value or "").split(",") if word for name in groups.get(word, (word,))]
        for name in chosen:
            if name not in known:
                raise click.BadParameter(f"there is no {name!r}; there are: {', '.join(known)}", ctx, param)
        return tuple(dict.fromkeys(chosen))

    return check


def common(command: Any) -> Any:
    """Return the options of `reproduce` and `benchmark`."""
    decorators = (
        click.option("-o", "--output", "folder", default="reproduction", show_default=True,
                     type=click.Path(file_okay=False, path_type=Path), help="For results, sections and figures."),
        click.option("--trials", type=click.IntRange(1), default=3, show_default=True,
                     help="Trials with different seeds (the paper: 5)."),
        click.option("--quick", is_flag=True,
                     help="One trial and less of everything; the benchmark asks 2,000 baskets."),
        click.option("--data", callback=names(models.DATA, {"amazon": models.AMAZON}), metavar="NAMES",
                     help=f"Of the benchmark, between commas: amazon, {', '.join(models.DATA)}."),
        click.option("--models", callback=names(models.MODELS), metavar="NAMES",
                     help=f"Of the benchmark, between commas: {', '.join(models.MODELS)}."),
        click.option("--tasks", callback=names(ALL_TASKS), metavar="NAMES",
                     help=f"Tables of the benchmark, between commas: {', '.join(ALL_TASKS)}."),
        click.option("--no-run", is_flag=True, help="Only write the sections from the results that are there."),
        click.option("--processes", type=click.IntRange(1), default=1, show_default=True,
                     help="Results computed at a time, each with --n-jobs threads; what is timed runs alone."),
        click.option("--n-jobs", type=click.IntRange(1), help="Threads; all cores if left out."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
    )  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@click.command(epilog=f"Targets: {', '.join(TARGETS)}.")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...", type=click.Choice(TARGETS))
@click.option(
    "--settings",
    type=click.Choice(["default", "paper"]),
    default="default",
    show_default=True,
    help="How models are trained: by default, or with the paper's start, optimizer and stopping rule.",
)
@common
def reproduce(targets: tuple[str, ...], settings: str, **options: Any) -> None:
    """Run the paper's experiments again: TARGET is a table or a figure, or `all`.

    Finished results are stored in the folder: a run that was stopped continues, and one that is
    finished only writes its sections again.
    """
    run(targets, settings, **options)


@click.command()
@common
def benchmark(**options: Any) -> None:
    """Compare every model on every data set, with intervals (docs/benchmark.md); runs continue where they stopped.

    \b
    python -m experiments benchmark --quick --data uk,groceries --models ease,conditional
    """
    run(("benchmark",), "default", **options)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def publish(folder: Path) -> None:
    """Put the sections of FOLDER into docs/ and README.md."""
    publish_folder(folder)


def run(
    targets: tuple[str, ...],
    settings: str,
    *,
    folder: Path,
    n_jobs: int | None,
    processes: int,
    no_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run what is missing, write the sections, and show them; `options` are those of `Protocol`."""
    protocol = Protocol(settings, **options)
    tasks = [] if no_run else Store(folder).missing(expand(targets), protocol)
    with progress(tasks) as watch:
        sections = reproduce_all(
            targets, folder, protocol, n_jobs=n_jobs, processes=processes, watch=watch, run=not no_run
        )
    if as_json:
        files = [json.loads((folder / f"{section.slug}.json").read_text(encoding="utf-8")) for section in sections]
        click.echo(json.dumps(files, indent=1, ensure_ascii=False))
        return
    for section in sections:
        heading(section.title)
        for table in section.tables:
            first, *others = table.frame.columns
            click.echo(f"\n{table.title}")
            show_table([first, *(f">{name}" for name in others)], table.rows)
            if table.note:
                paragraph(table.note)
        click.echo()
        for sentence in section.findings:
            paragraph(sentence, label="• ")
    click.echo(f"\nSections and figures are in {folder}/, all of them together in {folder / 'index.md'}.")


@contextmanager
def progress(tasks: list[Task]) -> Iterator[Watcher]:
    """Yield a bar over everything on a terminal, else a line per finished result; both on standard error."""
    console = Console(stderr=True)
    left = list(tasks)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
               TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        total = sum(task.cost for task in tasks)
        shown = bar.add_task(str(tasks[0]) if tasks else "", total=total, count=f"0/{len(tasks)}")

        def advance(task: Task, seconds: float) -> None:
            left.remove(task)
            count = f"{len(tasks) - len(left)}/{len(tasks)}"
            if not console.is_terminal:
                click.echo(f"[{count}] {task}: {seconds:.1f} s", err=True)
            bar.update(shown, advance=task.cost, description=str(left[0]) if left else "writing sections", count=count)

        yield advance
