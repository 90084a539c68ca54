"""Run what is missing, then write Markdown, JSON and figures: all of `python -m experiments reproduce`."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from contradpp import __version__
from contradpp._threads import resolve_n_jobs
from contradpp.dpp.files import write_atomically
from contradpp.errors import ParameterError
from contradpp.metrics.intervals import plain
from experiments.benchmark import coldstart, defaults, leaderboard, measure, negatives, page, slates
from experiments.benchmark.models import GROUPS
from experiments.pages import Plot, Result, Results, Section, render, replaced
from experiments.paper import training
from experiments.paper.sections import paper_section
from experiments.protocol import SINGLE, TARGETS, VIEWS, Protocol, Task, tasks_of, tasks_of_all

DPI = 150
ROOT = Path(__file__).parents[1]
Watcher = Callable[[Task, float], None]  # a finished task, and the seconds it took

KINDS: dict[str, Callable[[Task, int | None], Result]] = {
    "fit": training.fit_and_evaluate,
    "toy": training.figure1,
    "runtime": training.runtime,
    "benchmark": measure.measure,
    "slates": slates.measure,
    "cold-start": coldstart.measure,
    "negatives": negatives.measure,
    "defaults": defaults.measure,
}
SECTIONS: dict[str, Callable[[Results], Section]] = {
    "slates": slates.section,
    "cold-start": coldstart.section,
    "negatives": negatives.section,
    "defaults": defaults.section,
}


# -- Results -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Store:
    """Finished results under a folder, a file each: a reproduction that was stopped goes on where it stopped.

    A result that was computed with other parameters counts as missing.
    """

    folder: Path

    def path(self, task: Task) -> Path:
        """Return the file of a task."""
        return self.folder / "results" / f"{task.name}.json"

    def get(self, task: Task) -> Result | None:
        """Return the result, or None if there is none, it is damaged or its parameters were others."""
        return self._entry(task).get("result")

    def version(self, task: Task) -> str | None:
        """Return the version of contradpp that computed the result."""
        return self._entry(task).get("version")

    def put(self, task: Task, result: Result) -> None:
        """Store a result; its file appears whole or not at all."""
        entry = {"version": __version__, "parameters": task.parameters, "result": result}
        write_file(self.path(task), json.dumps(entry, allow_nan=False))

    def missing(self, targets: Sequence[str], protocol: Protocol) -> list[Task]:
        """Return the tasks of the targets that have no result yet."""
        return [task for task in tasks_of_all(targets, protocol) if self.get(task) is None]

    def results(self, target: str, protocol: Protocol) -> Results:
        """Return the results of a target that are there."""
        found = {task: result for task in tasks_of(target, protocol) if (result := self.get(task)) is not None}
        return Results(protocol, found)

    def _entry(self, task: Task) -> dict[str, Any]:
        try:
            entry = json.loads(self.path(task).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        fits = isinstance(entry, dict) and entry.get("parameters") == plain(task.parameters)
        return entry if fits else {}


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, and the folders above it if need be; it appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.encode() if isinstance(content, str) else content)


def carry_out(task: Task, *, n_jobs: int | None = None) -> Result:
    """Return the result of a task, as plain values for JSON."""
    started = time.perf_counter()
    result = KINDS[task.kind](task, n_jobs)
    return {**plain(result), "total_seconds": time.perf_counter() - started}


def compute(
    tasks: Sequence[Task], store: Store, *, n_jobs: int | None = None, processes: int = 1, watch: Watcher | None = None
) -> None:
    """Run tasks, and store each result as soon as it is there; what is timed runs alone, and first."""

    def keep(task: Task, result: Result) -> None:
        store.put(task, result)
        if watch is not None:
            watch(task, result["total_seconds"])

    together = [task for task in tasks if processes > 1 and task.kind != "runtime"]
    for task in tasks if not together else [task for task in tasks if task.kind == "runtime"]:
        keep(task, carry_out(task, n_jobs=n_jobs))
    if together:
        _several_at_a_time(together, n_jobs, processes, keep)


def _several_at_a_time(
    tasks: Sequence[Task], n_jobs: int | None, processes: int, keep: Callable[[Task, Result], None]
) -> None:
    """Run tasks in processes of their own; the dearest are begun first, so that all end at about the same time."""
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (n_jobs,)) as pool:
        dearest_first = sorted(tasks, key=lambda task: -task.cost)
        running = {pool.submit(carry_out, task, n_jobs=n_jobs): task for task in dearest_first}
        try:
            for done in as_completed(running):
                keep(running[done], done.result())
        except BaseException:  # what the others are at is lost
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            raise


def _begin(n_jobs: int | None) -> None:
    """Prepare a process: its parent handles Ctrl-C, and libraries take no more threads than the fit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = str(resolve_n_jobs(n_jobs))  # of those that are loaded later
    threadpool_limits(resolve_n_jobs(n_jobs))


# -- Files ---------------------------------------------------------------------------------------------


def reproduce(
    targets: Sequence[str],
    folder: Path,
    protocol: Protocol,
    *,
    n_jobs: int | None = None,
    processes: int = 1,
    watch: Watcher | None = None,
    run: bool = True,
) -> list[Section]:
    """Run what is missing (unless `run` is false), and write the sections and the index."""
    chosen = expand(targets)
    store = Store(folder)
    if run:
        compute(store.missing(chosen, protocol), store, n_jobs=n_jobs, processes=processes, watch=watch)
    else:
        _check_there(chosen, protocol, store)
    sections = [build(target, protocol, store) for target in chosen]
    for section in sections:
        write(section, protocol, store)
    write_index(folder)
    return sections


def expand(targets: Sequence[str]) -> list[str]:
    """Return the targets with `all` spelled out, each once, and in the order of the paper."""
    wanted = {one for target in targets for one in (SINGLE if target == "all" else (target,))}
    for target in wanted - set(TARGETS):
        tasks_of(target, Protocol())  # raises the error that lists the targets
    return [target for target in TARGETS if target in wanted]


def _check_there(targets: Sequence[str], protocol: Protocol, store: Store) -> None:
    """Raise `ParameterError` where there is nothing to write a section from; the paper's need all of their results."""
    for target in targets:
        left = len(store.missing([target], protocol))
        whole = len(tasks_of(target, protocol))
        if left == whole or (left and target not in (*VIEWS, "defaults")):
            raise ParameterError(
                f"{left} of {whole} results of {target!r} are missing in {store.folder}: run them first"
            )


def build(target: str, protocol: Protocol, store: Store) -> Section:
    """Return the section of a target whose results are there."""
    results = store.results(target, protocol)
    if target in SECTIONS:
        return SECTIONS[target](results)
    return page.section(target, results) if target in VIEWS else paper_section(target, results)


def write(section: Section, protocol: Protocol, store: Store) -> None:
    """Write the section's Markdown, JSON and figures."""
    for plot in section.plots:
        write_file(store.folder / section.figures[plot.name], drawn(plot))
    versions = sorted({v for task in tasks_of(section.target, protocol) if (v := store.version(task))})
    text = f"{section.markdown}\nComputed by contradpp {', '.join(versions)}.\n"
    write_file(store.folder / f"{section.slug}.md", text)
    content = {
        "target": section.target,
        "title": section.title,
        "versions": versions,
        "settings": protocol.settings,
        "trials": protocol.n_trials,
        "figures": list(section.figures.values()),
        "findings": section.findings,
        "claims": section.claims,
        "results": section.data,
    }
    write_file(store.folder / f"{section.slug}.json", json.dumps(plain(content), indent=1, ensure_ascii=False))
    if section.target == "benchmark":
        frame = leaderboard.frame_of(store.results("benchmark", protocol))
        write_file(store.folder / "benchmark.parquet", frame.to_parquet(index=False))


def drawn(plot: Plot) -> bytes:
    """Return the picture of a plot."""
    image = io.BytesIO()
    plot.draw().savefig(image, dpi=DPI, format="png")
    return image.getvalue()


def write_index(folder: Path) -> None:
    """Write all sections of the folder into one file, the claims first."""
    parts = []
    claims = dict[str, str]()
    for target in TARGETS:
        slug = target.replace("/", "-")
        text = folder / f"{slug}.md"
        content = folder / f"{slug}.json"
        if text.is_file() and content.is_file():
            parts.append(text.read_text(encoding="utf-8").strip())
            claims |= json.loads(content.read_text(encoding="utf-8"))["claims"]
    write_file(folder / "index.md", render("index.md", claims=sorted(claims.items()), parts=parts) + "\n")


# -- Published pages -----------------------------------------------------------------------------------


def publish(folder: Path) -> None:
    """Put what was found into docs/ and README.md: the sections of the folder that are there.

    A data set of the benchmark is a column of its own, all of it from one run: columns that are not in the folder stay
    as they were published, so that pieces can be run on several machines.
    """
    found = {name: json.loads(path.read_text(encoding="utf-8"))["results"]
             for name in VIEWS if (path := folder / f"{name}.json").is_file()}  # fmt: skip
    for name, summary in found.items():
        path = ROOT / "docs" / f"{name}.json"
        if name == "ingredients":
            text = json.dumps(summary, indent=1, ensure_ascii=False) + "\n"
        else:
            columns = json.loads(path.read_text(encoding="utf-8")) | leaderboard.rounded(summary)
            found[name] = {group.label: columns[group.label] for group in GROUPS if group.label in columns}
            text = leaderboard.dump(found[name])
        path.write_text(text, encoding="utf-8")
    blocks = page.blocks(found)
    if "benchmark" in found:
        section = page.benchmark_of(found["benchmark"])
        for plot in section.plots:  # of all columns, whichever run they are from
            write_file(ROOT / "docs" / section.figures[plot.name], drawn(plot))
    if all((folder / f"{name}.md").is_file() for name in SINGLE):
        _, heading, sections = (folder / "index.md").read_text(encoding="utf-8").partition("## Three claims")
        blocks[f"{page.APPENDIX}/reproduction.md"] = {"paper": page.appendix(heading + sections)}
        for figure in (figure for name in SINGLE for figure in (folder / "figures").glob(f"{name}-*.png")):
            shutil.copy(figure, ROOT / "docs" / "figures" / figure.name)
    for name, contents in blocks.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        for block, content in contents.items():
            text = replaced(text, block, content)
        (ROOT / name).write_text(text, encoding="utf-8")
