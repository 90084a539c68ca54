"""Run what is missing, then write Markdown, JSON and figures: the whole of `contradpp reproduce`."""

from __future__ import annotations

import io
import json
import os
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
from contradpp.dpp.persist import write_atomically
from contradpp.errors import ParameterError
from contradpp.metrics.intervals import plain
from contradpp.research import (
    benchmark,
    coldstart,
    defaults,
    experiments,
    figures,
    negatives,
    pages,
    paper,
    slates,
    standings,
    studies,
)
from contradpp.research.experiments import Result
from contradpp.research.paper import Protocol, Task
from contradpp.research.results import results_chapter
from contradpp.research.tables import Chapter, Collected

DPI = 150
Watcher = Callable[[Task, float], None]  # a finished task, and the seconds it took

INTRODUCTION = """# The paper, run again

*Learning Determinantal Point Processes by Corrective Negative Sampling* (Mariet, Gartrell, Sra), its tables and figures
as `contradpp reproduce` finds them. LowRank is objective `mle`, Exp `explicit`, Dyn `dynamic`, NCE `nce`; `exact`
(dynamic negatives in closed form) and Popularity are ours. Published numbers stand beside ours; where one is not
reached, or is exceeded by a better-trained baseline, a sentence says so.
"""


@dataclass(frozen=True)
class Store:
    """Finished results under a folder, a file each: a reproduction that was stopped goes on where it stopped.

    What was computed with other parameters counts as missing.
    """

    folder: Path

    def path(self, task: Task) -> Path:
        """The file of a task."""
        return self.folder / "results" / f"{task.name}.json"

    def get(self, task: Task) -> Result | None:
        """The result, or None if there is none, it is damaged or its parameters were others."""
        return self._entry(task).get("result")

    def version(self, task: Task) -> str | None:
        """The version of contradpp that computed the result."""
        return self._entry(task).get("version")

    def put(self, task: Task, result: Result) -> None:
        """Store a result; its file appears whole or not at all."""
        entry = {"version": __version__, "parameters": task.parameters, "result": result}
        write_text(self.path(task), json.dumps(entry, allow_nan=False))

    def _entry(self, task: Task) -> dict[str, Any]:
        try:
            entry = json.loads(self.path(task).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        fits = isinstance(entry, dict) and entry.get("parameters") == plain(task.parameters)
        return entry if fits else {}


def write_text(path: Path, text: str) -> None:
    """Write a file, and the folders above it if need be; it appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows to a Parquet file, which appears whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), content)
    write_atomically(path, content.getvalue())


def missing(targets: Sequence[str], protocol: Protocol, store: Store) -> list[Task]:
    """The tasks of the targets that have no result yet."""
    return [task for task in paper.tasks_of_all(targets, protocol) if store.get(task) is None]


KINDS: dict[str, Callable[[Task, int | None], Result]] = {
    "fit": experiments.fit_and_evaluate,
    "toy": experiments.figure1,
    "runtime": experiments.runtime,
    paper.BENCHMARK: benchmark.measure,
    paper.SLATES: slates.measure,
    paper.COLD_START: coldstart.measure,
    paper.NEGATIVES: negatives.measure,
    paper.DEFAULTS: defaults.measure,
}


def carry_out(task: Task, *, n_jobs: int | None = None) -> Result:
    """The result of a task, as plain values for JSON."""
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
    """In a new process: Ctrl-C is for the one that waits for it, and libraries take no more threads than we do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = str(resolve_n_jobs(n_jobs))  # of those that are loaded later
    threadpool_limits(resolve_n_jobs(n_jobs))


def gather(target: str, protocol: Protocol, store: Store) -> Collected:
    """The results of a target that are there."""
    results = {task: result for task in paper.tasks_of(target, protocol) if (result := store.get(task)) is not None}
    return Collected(protocol, results)


def build(target: str, protocol: Protocol, store: Store) -> Chapter:
    """The chapter of a target whose results are all there."""
    collected = gather(target, protocol, store)
    own = {"figure1": studies.figure1, "table-runtimes": studies.runtimes, "scale": studies.scale,
           paper.SLATES: slates.chapter, paper.NEGATIVES: negatives.chapter,
           paper.COLD_START: coldstart.chapter, paper.BENCHMARK: pages.chapter,
           paper.BEYOND: pages.beyond, paper.LADDER: pages.ladder, paper.DEFAULTS: defaults.chapter}  # fmt: skip
    if target in own:
        return own[target](collected)
    return studies.ablation(target, collected) if "ablation" in target else results_chapter(target, collected)


def write(chapter: Chapter, protocol: Protocol, store: Store) -> None:
    """The chapter's Markdown, JSON and figures."""
    paths = {plot.name: f"figures/{chapter.slug}-{plot.name}.png" for plot in chapter.plots}
    for plot in chapter.plots:
        image = io.BytesIO()
        plot.draw().savefig(image, dpi=DPI, format="png")
        (store.folder / "figures").mkdir(parents=True, exist_ok=True)
        write_atomically(store.folder / paths[plot.name], image.getvalue())
    versions = sorted({v for task in paper.tasks_of(chapter.target, protocol) if (v := store.version(task))})
    text = f"{chapter.markdown(paths)}\nComputed by contradpp {', '.join(versions)}.\n"
    write_text(store.folder / f"{chapter.slug}.md", text)
    content = {
        "target": chapter.target,
        "title": chapter.title,
        "versions": versions,
        "settings": protocol.settings,
        "trials": protocol.n_trials,
        "figures": list(paths.values()),
        "findings": chapter.findings,
        "claims": chapter.claims,
        "results": chapter.data,
    }
    write_text(store.folder / f"{chapter.slug}.json", json.dumps(plain(content), indent=1, ensure_ascii=False))
    if chapter.target == paper.BENCHMARK:
        rows = standings.rows_of(gather(chapter.target, protocol, store))
        write_table(store.folder / f"{chapter.slug}.parquet", rows)


def write_index(folder: Path) -> None:
    """All chapters of the folder in one file, the claims first."""
    parts, claims = [], dict[str, str]()
    for target in paper.TARGETS:
        slug = target.replace("/", "-")
        text, content = folder / f"{slug}.md", folder / f"{slug}.json"
        if text.is_file() and content.is_file():
            parts.append(text.read_text(encoding="utf-8"))
            claims |= json.loads(content.read_text(encoding="utf-8"))["claims"]
    lines = [f"- {claims[key]}" for key in sorted(claims)]
    checked = ["## Three claims, checked", "\n".join(lines)] if lines else []
    whole = "\n\n".join([INTRODUCTION.strip(), *checked, *(part.strip() for part in parts)])
    write_text(folder / "index.md", whole + "\n")


def expand(targets: Sequence[str]) -> list[str]:
    """The targets with `all` spelled out, each once, and in the order of the paper."""
    wanted = {one for target in targets for one in (paper.SINGLE if target == "all" else (target,))}
    for target in wanted - set(paper.TARGETS):
        paper.tasks_of(target, Protocol())  # raises the error that lists the targets
    return [target for target in paper.TARGETS if target in wanted]


def _check_there(targets: Sequence[str], protocol: Protocol, store: Store) -> None:
    """Raise `ParameterError` where there is nothing to write a chapter from; the paper's need all of their results."""
    for target in targets:
        left, whole = len(missing([target], protocol, store)), len(paper.tasks_of(target, protocol))
        if left == whole or (left and target not in (*paper.VIEWS, paper.DEFAULTS)):
            raise ParameterError(
                f"{left} of {whole} results of {target!r} are missing in {store.folder}: run them first"
            )


def reproduce(
    targets: Sequence[str],
    folder: Path,
    protocol: Protocol,
    *,
    n_jobs: int | None = None,
    processes: int = 1,
    watch: Watcher | None = None,
    run: bool = True,
) -> list[Chapter]:
    """Everything: run what is missing (unless told not to), write the chapters and the index."""
    figures.require()
    chosen, store = expand(targets), Store(folder)
    if not run:
        _check_there(chosen, protocol, store)
    if run:
        compute(missing(chosen, protocol, store), store, n_jobs=n_jobs, processes=processes, watch=watch)
    chapters = [build(target, protocol, store) for target in chosen]
    for chapter in chapters:
        write(chapter, protocol, store)
    write_index(folder)
    return chapters
