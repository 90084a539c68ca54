"""`contradpp reproduce` and `contradpp benchmark`: the paper, run again, and every model on every data set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from contradpp.cli.inputs import FOLDER, n_jobs_option, names, option
from contradpp.cli.output import Column, heading, json_option, paragraph, show_json, show_table
from contradpp.research import contestants, paper
from contradpp.research.contestants import MODELS
from contradpp.research.pages import ALL_TASKS
from contradpp.research.paper import Protocol, Task
from contradpp.research.reproduce import Store, Watcher, expand, missing
from contradpp.research.reproduce import reproduce as reproduce_all

DATA_WORDS = tuple(dict.fromkeys(name.partition("/")[0] for name in contestants.DATA))


def _common(command: Any) -> Any:
    """The options of `reproduce` and `benchmark`."""
    decorators = (
        option("-o", "--output", "folder", default="reproduction", type=FOLDER,
               help="For results, chapters and figures."),
        option("--trials", type=click.IntRange(1), default=3, help="Trials with different seeds (the paper: 5)."),
        option("--quick", is_flag=True, help="One trial and less of everything; the benchmark asks 2,000 baskets."),
        option("--data", callback=names(contestants.DATA, files=True, groups={"amazon": contestants.AMAZON}),
               metavar="NAMES", help=f"Of the benchmark, between commas: {', '.join(DATA_WORDS)}, or files."),
        option("--models", callback=names(tuple(MODELS)), metavar="NAMES",
               help=f"Of the benchmark, between commas: {', '.join(MODELS)}."),
        option("--tasks", callback=names(ALL_TASKS), metavar="NAMES",
               help=f"Tables of the benchmark, between commas: {', '.join(ALL_TASKS)}."),
        option("--no-run", is_flag=True, help="Only write the chapters from the results that are there."),
        option("--processes", type=click.IntRange(1), default=1,
               help="Results computed at a time, each with --n-jobs threads; what is timed runs alone."),
        n_jobs_option,
        json_option,
    )  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@click.command(epilog=f"Targets: {', '.join(paper.TARGETS)}.")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@option("--settings", type=("default", "paper"), default="default",
        help="How models are trained: by default, or with the paper's start, optimiser and stopping rule.")  # fmt: skip
@_common
def reproduce(targets: tuple[str, ...], settings: str, **told: Any) -> None:
    """Run the paper's experiments again: TARGET is a table or a figure, or `all`.

    Finished results are kept in the folder: a run that was stopped goes on where it stopped, and one that is
    finished only writes its chapters again.
    """
    for target in targets:
        if target not in paper.TARGETS:
            known = ", ".join(paper.TARGETS)
            raise click.BadParameter(f"there is no {target!r}; there are: {known}", param_hint="TARGET")
    _run(targets, settings, **told)


@click.command()
@_common
def benchmark(**told: Any) -> None:
    """Compare every model on every data set, with intervals (docs/benchmark.md); results are kept and taken up again.

    \b
    contradpp benchmark --quick --data uk,groceries --models ease,conditional
    contradpp benchmark --data orders.csv          your own baskets
    """
    _run((paper.BENCHMARK,), "default", **told)


def _run(
    targets: tuple[str, ...], settings: str, folder: Path, trials: int, quick: bool, n_jobs: int | None,
    processes: int, no_run: bool, as_json: bool, **chosen: tuple[str, ...],
) -> None:  # fmt: skip
    protocol = Protocol(settings, trials, quick, **chosen)  # type: ignore[arg-type]
    tasks = [] if no_run else missing(expand(targets), protocol, Store(folder))
    with _progress(tasks) as watch:
        chapters = reproduce_all(
            targets, folder, protocol, n_jobs=n_jobs, processes=processes, watch=watch, run=not no_run
        )
    if as_json:
        files = [json.loads((folder / f"{chapter.slug}.json").read_text(encoding="utf-8")) for chapter in chapters]
        show_json(files)
        return
    for chapter in chapters:
        heading(chapter.title)
        for table in chapter.tables:
            first, *others = table.head
            click.echo(f"\n{table.title}")
            show_table([Column(first), *(Column(name, right=True) for name in others)], table.rows)
            if table.note:
                paragraph(table.note)
        click.echo()
        for sentence in chapter.findings:
            paragraph(sentence, label="• ")
    click.echo(f"\nChapters and figures are in {folder}/, all of them together in {folder / 'index.md'}.")


@contextmanager
def _progress(tasks: list[Task]) -> Iterator[Watcher]:
    """A bar over everything on a terminal, else a line per finished result; both on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        done = 0

        def tell(task: Task, seconds: float) -> None:
            nonlocal done
            done += 1
            click.echo(f"[{done}/{len(tasks)}] {task}: {seconds:.1f} s", err=True)

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
               TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        total, left = sum(task.cost for task in tasks), list(tasks)
        shown = bar.add_task(str(tasks[0]) if tasks else "", total=total, count=f"0/{len(tasks)}")

        def advance(task: Task, seconds: float) -> None:  # noqa: ARG001
            left.remove(task)
            following = str(left[0]) if left else "writing chapters"
            count = f"{len(tasks) - len(left)}/{len(tasks)}"
            bar.update(shown, advance=task.cost, description=following, count=count)

        yield advance
