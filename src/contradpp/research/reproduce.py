"""Run what is missing, then write Markdown, JSON and figures: the whole of `contradpp reproduce`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from contradpp.research import beyond, figures, other_reports, paper
from contradpp.research.paper import Protocol, Task
from contradpp.research.render import Report, markdown
from contradpp.research.result_tables import result_report
from contradpp.research.run import run
from contradpp.research.store import Store, plain, write_whole
from contradpp.research.summary import Collected

DPI = 150
Watcher = Callable[[Task, float], None]  # a finished task, and the seconds it took

INTRODUCTION = """# The paper, run again

*Learning Determinantal Point Processes by Corrective Negative Sampling* (Mariet, Gartrell, Sra), its tables and figures
as `contradpp reproduce` finds them. LowRank is objective `mle`, Exp `explicit`, Dyn `dynamic`, NCE `nce`; `exact`
(dynamic negatives in closed form) and Popularity are ours. Published numbers stand beside ours; where one is not
reached, or is exceeded by a better-trained baseline, a sentence says so.
"""


def missing(targets: Sequence[str], protocol: Protocol, store: Store) -> list[Task]:
    """The tasks of the targets that have no result yet."""
    return [task for task in paper.tasks_of_all(targets, protocol) if store.get(task) is None]


def compute(tasks: Sequence[Task], store: Store, *, n_jobs: int | None = None, watch: Watcher | None = None) -> None:
    """Run tasks one after the other, and store each result as soon as it is there."""
    for task in tasks:
        result = run(task, n_jobs=n_jobs)
        store.put(task, result)
        if watch is not None:
            watch(task, result["total_seconds"])


def build(target: str, protocol: Protocol, store: Store) -> Report:
    """The report of a target whose results are all there."""
    results = {task: result for task in paper.tasks_of(target, protocol) if (result := store.get(task)) is not None}
    collected = Collected(protocol, results)
    if target == "figure1":
        return other_reports.figure1(collected)
    if target == "table-runtimes":
        return other_reports.runtimes(collected)
    if target.startswith("ablation-"):
        return other_reports.ablation(target, collected)
    if target == "scale":
        return other_reports.scale(collected)
    if target == paper.BEYOND:
        return beyond.report(collected)
    return result_report(target, collected)


def write(report: Report, protocol: Protocol, store: Store) -> None:
    """The report's Markdown, JSON and figures."""
    paths = {}
    for plot in report.plots:
        paths[plot.name] = f"figures/{report.slug}-{plot.name}.png"
        file = store.folder / paths[plot.name]
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial.png")
        plot.draw().savefig(partial, dpi=DPI)
        partial.replace(file)
    versions = sorted({version for task in paper.tasks_of(report.target, protocol) if (version := store.version(task))})
    text = f"{markdown(report, paths)}\nComputed by contradpp {', '.join(versions)}.\n"
    write_whole(store.folder / f"{report.slug}.md", text)
    content = {
        "target": report.target,
        "title": report.title,
        "versions": versions,
        "settings": protocol.settings,
        "trials": protocol.n_trials,
        "figures": list(paths.values()),
        "findings": report.findings,
        "claims": report.claims,
        "results": report.data,
    }
    write_whole(store.folder / f"{report.slug}.json", json.dumps(plain(content), indent=1, ensure_ascii=False))


def write_index(folder: Path) -> Path:
    """All reports of the folder in one file, the claims first."""
    parts, claims = [], dict[str, str]()
    for target in (*paper.SINGLE, *paper.PER_REGISTRY, paper.BEYOND):
        slug = target.replace("/", "-")
        text, content = folder / f"{slug}.md", folder / f"{slug}.json"
        if text.is_file() and content.is_file():
            parts.append(text.read_text(encoding="utf-8"))
            claims |= json.loads(content.read_text(encoding="utf-8"))["claims"]
    lines = [f"- {claims[key]}" for key in sorted(claims)]
    checked = ["## Three claims, checked", "\n".join(lines)] if lines else []
    index = folder / "index.md"
    write_whole(index, "\n\n".join([INTRODUCTION.strip(), *checked, *(part.strip() for part in parts)]) + "\n")
    return index


def expand(targets: Sequence[str]) -> list[str]:
    """The targets with `all` spelled out, each once, and in the order of the paper."""
    wanted = {one for target in targets for one in (paper.SINGLE if target == "all" else (target,))}
    unknown = sorted(wanted - set(paper.TARGETS))
    if unknown:
        paper.tasks_of(unknown[0], Protocol())  # raises the error that lists the targets
    return [target for target in paper.TARGETS if target in wanted]


def reproduce(
    targets: Sequence[str],
    folder: Path,
    protocol: Protocol,
    *,
    n_jobs: int | None = None,
    watch: Watcher | None = None,
) -> list[Report]:
    """Everything: run what is missing, write the reports and the index."""
    figures.require()
    chosen, store = expand(targets), Store(folder)
    compute(missing(chosen, protocol, store), store, n_jobs=n_jobs, watch=watch)
    reports = [build(target, protocol, store) for target in chosen]
    for report in reports:
        write(report, protocol, store)
    write_index(folder)
    return reports
