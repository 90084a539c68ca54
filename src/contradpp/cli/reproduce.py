"""`contradpp reproduce`: the paper's tables and figures, run again beside the published numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from contradpp.cli.inputs import FOLDER, n_jobs_option, option
from contradpp.cli.output import Column, heading, json_option, paragraph, show_json, show_table
from contradpp.research import paper
from contradpp.research.paper import Protocol, Task
from contradpp.research.reproduce import Store, Watcher, expand, missing
from contradpp.research.reproduce import reproduce as reproduce_all


@click.command(epilog=f"Targets: {', '.join(paper.TARGETS)}.")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@option("-o", "--output", "folder", default="reproduction", type=FOLDER, help="For results, chapters and figures.")
@option("--settings", type=("default", "paper"), default="default",
        help="How models are trained: by default, or with the paper's start, optimiser and stopping rule.")  # fmt: skip
@option("--trials", type=click.IntRange(1), default=3, help="Trials with different seeds (the paper: 5).")
@option("--quick", is_flag=True, help="One trial, three runs of Figure 1, ablations on two registries.")
@n_jobs_option
@json_option
def reproduce(
    targets: tuple[str, ...], folder: Path, settings: str, trials: int, quick: bool, n_jobs: int | None, as_json: bool
) -> None:  # fmt: skip
    """Run the paper's experiments again: TARGET is a table or a figure, or `all`.

    Finished results are kept in the folder: a run that was stopped goes on where it stopped, and one that is
    finished only writes its chapters again.
    """
    for target in targets:
        if target not in paper.TARGETS:
            known = ", ".join(paper.TARGETS)
            raise click.BadParameter(f"there is no {target!r}; there are: {known}", param_hint="TARGET")
    protocol = Protocol(settings, trials, quick)
    tasks = missing(expand(targets), protocol, Store(folder))
    with _progress(tasks) as watch:
        chapters = reproduce_all(targets, folder, protocol, n_jobs=n_jobs, watch=watch)
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
