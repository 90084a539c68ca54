"""The benchmark's pages; all of them are made from the published numbers alone (`leaderboard.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.benchmark.leaderboard import Summary, gains, rounded, summarise
from experiments.benchmark.measure import METRICS
from experiments.benchmark.models import GENERATED, INGREDIENTS, MODELS, OURS, WITHOUT_KERNEL
from experiments.pages import MISSING, Plot, Results, Section, Table, fixed, gained, render, words
from experiments.paper.figures import panels_of
from experiments.protocol import ASKED


class Shown(NamedTuple):
    """A task on the page: its title, the metric of its table, and those beside it without intervals."""

    title: str
    main: str
    beside: tuple[str, ...] = ()


TASKS = {
    "next": Shown("Next item", "ndcg", ("p1", "p10", "mpr")),
    "halves": Shown("Half-hidden baskets", "recall", ("hit", "ndcg_half")),
    "sets": Shown("Sets against random sets", "matched", ("uniform", "law_matched", "law_uniform")),
    "likelihood": Shown("Log-likelihood of held-out baskets", "log_likelihood"),
}
ALL_TASKS = (*TASKS, "cost")
BY_ALL_METRICS = [(f"Next item, {METRICS[metric].label}", metric) for metric in ("mpr", "p1", "p10", "ndcg")]
HEADLINE = ("popularity", "itemknn-cosine", "itemknn", "ease", "als", "nonsymmetric", OURS)
LADDER_METRICS = ("ndcg", "mpr", "matched", "log_likelihood")


# -- Sections ----------------------------------------------------------------------------------------------


def section(target: str, results: Results) -> Section:
    """The benchmark, the part of it that docs/beyond.md is about, or the gain by each ingredient."""
    summary = summarise(results)
    if target == "benchmark":
        return benchmark_of(summary, results.protocol.tasks or ALL_TASKS)
    if target == "beyond":
        return beyond_of(summary)
    return ingredients_of(rounded({"run": sentences(summary)["run"][0], "gains": gains(results)}))


def benchmark_of(summary: Summary, tasks: Sequence[str] = ALL_TASKS, target: str = "benchmark") -> Section:
    """The tables, sentences and figures of these numbers."""
    asked = [task for task in tasks if task in TASKS]
    told = sentences(summary, asked, [(TASKS[task].title, TASKS[task].main) for task in asked])
    return Section(
        target=target,
        title="Results",
        setup="\n\n".join([*told["run"], *told["verdict"], *told["portraits"]]),
        tables=(*(table for task in tasks for table in tables_of(task, summary)), losses(summary, asked)),
        findings=told["findings"],
        plots=(
            Plot("fit", "Quality (nDCG@10 of the next item) against the CPU seconds of a fit: up and to the left is "
                 "better; the line joins what nothing else beats in both.",
                 lambda: quality_and_cost(points(summary, "cpu_seconds"), "CPU seconds to fit")),
            Plot("query", "The same against the milliseconds of one query.",
                 lambda: quality_and_cost(points(summary, "query_ms"), "milliseconds a query")),
        ),
        data=summary,
    )  # fmt: skip


def beyond_of(summary: Summary) -> Section:
    """Tables of next items, likelihood and cost; in words, the lead of our model by every metric."""
    tasks = ("next", "likelihood")
    told = sentences(summary, tasks, [*BY_ALL_METRICS, ("Log-likelihood", "log_likelihood")])
    whole = benchmark_of(summary, (*tasks, "cost"), "beyond")
    return replace(whole, setup=" ".join([*told["run"], *told["verdict"]]), plots=(), findings=told["findings"])


def ingredients_of(found: Summary) -> Section:
    """The tables and sentences of these numbers."""
    tables = [
        Table.of(
            METRICS[metric].label,
            ("ingredient", *found["gains"]),
            [(one.label, *(in_bold(column[one.pair], metric) for column in found["gains"].values()))
             for one in INGREDIENTS],
        )
        for metric in LADDER_METRICS
    ]  # fmt: skip
    answers = {label: [(METRICS[metric].label, sides(column, metric)) for metric in LADDER_METRICS]
               for label, column in found["gains"].items()}  # fmt: skip
    told = words("benchmark/ingredients.md", run=found["run"], answers=answers)
    title = "What each ingredient brings"
    return Section("ingredients", title, " ".join(told["setup"]), tuple(tables), told["findings"], data=found)


def in_bold(by_metric: Summary, metric: str) -> str:
    """A gain with its interval, in bold where that is clear of zero."""
    if metric not in by_metric:
        return MISSING
    text = gained(by_metric[metric], METRICS[metric].digits)
    return f"**{text}**" if by_metric[metric][1] > 0 or by_metric[metric][2] < 0 else text


def sides(column: Summary, metric: str) -> dict[str, list[str]]:
    """The kinds of negatives by what they do beside maximum likelihood."""
    found: dict[str, list[str]] = {"better": [], "worse": [], "no different": []}
    for name in GENERATED:
        one = column[f"lowrank-{name} over lowrank-mle"].get(metric)
        if one is not None:
            found["better" if one[1] > 0 else "worse" if one[2] < 0 else "no different"].append(name)
    return {side: names for side, names in found.items() if names}


# -- Tables ------------------------------------------------------------------------------------------------


def tables_of(task: str, summary: Summary) -> list[Table]:
    """The table of a task with intervals and ranks, and the metrics beside it."""
    if task == "cost":
        return [table_of("CPU seconds to fit / MB / ms a query", summary, cost)]
    title, main, beside = TASKS[task]
    note = "Bold: no other model of the column is ahead by an interval clear of zero (paired)."
    heading = f"{title}: {METRICS[main].label}, 95 % interval, rank"
    tables = [table_of(heading, summary, lambda row: with_interval(row, main), note)]
    if beside:
        heading = f"{title}: {' / '.join(METRICS[metric].label for metric in beside)}"
        tables.append(table_of(heading, summary, lambda row: side_by_side(row, beside)))
    return tables


def table_of(title: str, summary: Summary, cell: Callable[[Summary], str], note: str = "") -> Table:
    """A row for every model that has anything to show, a column for every column of the summary."""
    frame = pd.DataFrame(
        {
            label: {
                model: "refused" if model in column["refused"] else cell(column["models"].get(model, {}))
                for model in MODELS
            }
            for label, column in summary.items()
        },
        index=list(MODELS),
    )
    frame = frame[~frame.isin([MISSING, "refused"]).all(axis=1)]
    frame.insert(0, "model", [MODELS[model].label for model in frame.index])
    return Table(title, frame, note)


def with_interval(row: Summary, metric: str) -> str:
    """A mean, half its interval, and its rank."""
    if metric not in row:
        return MISSING
    one, digits = row[metric], METRICS[metric].digits
    value = fixed(one["mean"], digits)
    impossible = f", {row['impossible']} impossible" if metric == "log_likelihood" and row["impossible"] else ""
    half = fixed((one["high"] - one["low"]) / 2, digits)
    return f"{f'**{value}**' if one['first'] else value} ± {half} ({one['rank']}{impossible})"


def side_by_side(row: Summary, names: Sequence[str]) -> str:
    """The means of several metrics."""
    cells = [fixed(row[name]["mean"], METRICS[name].digits) if name in row else MISSING for name in names]
    return " / ".join(cells) if any(cell != MISSING for cell in cells) else MISSING


def cost(row: Summary) -> str:
    """The cost of a fit and of a query."""
    return f"{row['cpu_seconds']:.1f} / {row['memory_mb'] or 0:.0f} / {row['query_ms']:.2g}" if row else MISSING


def losses(summary: Summary, tasks: Sequence[str]) -> Table:
    """The baselines that are ahead of our model by an interval clear of zero."""
    rows = [
        (label, TASKS[task].title, METRICS[metric].label, MODELS[name].label,
         gained(row[metric]["lead"], METRICS[metric].digits))
        for task in tasks
        for metric in (TASKS[task].main, *TASKS[task].beside)
        for label, column in summary.items()
        for name, row in column["models"].items()
        if not MODELS[name].ours and metric in row and row[metric]["lead"] and row[metric]["lead"][2] < 0
    ]  # fmt: skip
    head = ("data", "task", "metric", "baseline", "ConditionalDPP less it")
    title = "Where a baseline is ahead of ConditionalDPP, by an interval clear of zero"
    return Table.of(title, head, rows, "" if rows else "There is none.")


# -- Sentences ---------------------------------------------------------------------------------------------


def sentences(
    summary: Summary, tasks: Sequence[str] = tuple(TASKS), asked: Sequence[tuple[str, str]] = ()
) -> dict[str, list[str]]:
    """How the benchmark was run, what the data are like, and where our model is ahead of all others."""
    runs: dict[tuple[int, int], list[str]] = {}
    for label, column in summary.items():
        runs.setdefault((column["trials"], column["asked"]), []).append(label)
    return words(
        "benchmark/results.md",
        summary=summary, labels={name: model.label for name, model in MODELS.items()}, metrics=METRICS, runs=runs,
        sizes={most: name for name, most in ASKED.items()},
        simple={label: best_baseline(column["models"]) for label, column in summary.items() if column["profile"]},
        counts={TASKS[task]: found for task in tasks if (found := verdicts(summary, TASKS[task].main))},
        asked=asked, standing=standing,
    )  # fmt: skip


def best_baseline(models: Summary) -> str:
    """The model that is no DPP with the best nDCG."""
    return max((name for name in models if not MODELS[name].ours), key=lambda name: float(models[name]["ndcg"]["mean"]))


def verdicts(summary: Summary, metric: str) -> dict[str, int]:
    """In how many columns our model is ahead of the best of the others, level with it, or behind."""
    standings = [standing(column["models"], metric) for column in summary.values()]
    said = [one["word"] for one in standings if one and one["best"]]
    return {word: said.count(word) for word in ("ahead", "level", "behind") if word in said}


def standing(rows: Summary, metric: str) -> dict[str, Any] | None:
    """The best of the others and the lead of our model over it, and over itself without its kernel."""
    rows = {name: row[metric] for name, row in rows.items() if metric in row}
    if OURS not in rows or len(rows) < 2:
        return None
    rivals = {name: row for name, row in rows.items() if name not in (OURS, WITHOUT_KERNEL)}
    best = max(rivals, key=lambda name: float(rivals[name]["mean"]), default=None)
    lead = rivals[best]["lead"] if best else None
    word = "" if lead is None else "ahead" if lead[1] > 0 else "behind" if lead[2] < 0 else "level"
    kernel = rows[WITHOUT_KERNEL]["lead"] if WITHOUT_KERNEL in rows else None
    return {"best": best, "lead": lead, "word": word, "kernel": kernel}


# -- Published pages ---------------------------------------------------------------------------------------


def headline(summary: Summary) -> str:
    """README's table: p@10 and MPR of some rows, and the lead of our model over the best of all others."""
    columns = {label: column["models"] for label, column in summary.items() if label not in ("grocer", "Yoochoose")}
    metrics = ("p10", "mpr")
    rows = {model: [side_by_side(models.get(model, {}), metrics) for models in columns.values()] for model in HEADLINE}
    found = [[standing(models, metric) for metric in metrics] for models in columns.values()]
    leads = [[one["lead"] for one in ours if one] for ours in found]
    labels = {name: model.label for name, model in MODELS.items()}
    told = sentences(summary)
    return render("benchmark/readme.md", columns=columns, rows=rows, leads=leads, labels=labels, ours=OURS, told=told)


def blocks(published: Mapping[str, Summary]) -> dict[str, dict[str, str]]:
    """By page and name of a block, what stands there; of numbers by the name of their file in docs/."""
    found: dict[str, dict[str, str]] = {"docs/benchmark.md": {}}
    if "benchmark" in published:
        found["docs/benchmark.md"]["benchmark"] = benchmark_of(published["benchmark"]).markdown
        found["README.md"] = {"headline": headline(published["benchmark"])}
    if "ingredients" in published:
        found["docs/benchmark.md"]["ingredients"] = ingredients_of(published["ingredients"]).markdown
    if "beyond" in published:
        found["docs/beyond.md"] = {"beyond": beyond_of(published["beyond"]).markdown}
    return found


def points(summary: Summary, cost: str) -> dict[str, dict[str, tuple[float, float]]]:
    """By column and label, a cost and the nDCG."""
    return {
        label: {
            MODELS[model].label: (row[cost], row["ndcg"]["mean"])
            for model, row in column["models"].items()
            if row[cost] is not None
        }
        for label, column in summary.items()
    }


def quality_and_cost(groups: Mapping[str, Mapping[str, tuple[float, float]]], cost: str) -> Figure:
    """A panel per data set: quality against cost, DPPs as diamonds, and a line through what nothing beats in both."""
    names = list(dict.fromkeys(name for found in groups.values() for name in found))
    columns = min(len(groups), 4)
    rows = -(-len(groups) // columns)
    figure, panels = panels_of(3.2 * columns, 2.8 * rows + 0.9, rows, columns)
    for panel in panels.flat[len(groups) :]:
        panel.set_visible(False)
    drawn: dict[str, Any] = {}
    for panel, (data, found) in zip(panels.flat, groups.items(), strict=False):
        front: list[tuple[float, float]] = []
        for name, (x, y) in sorted(found.items(), key=lambda entry: (entry[1][0], -entry[1][1])):
            place, x = names.index(name), max(x, 1e-3)
            (drawn[name],) = panel.plot(x, y, "D" if "DPP" in name else "o", markersize=5, label=name,
                                        color=f"C{place % 10}", fillstyle="full" if place < 10 else "none")  # fmt: skip
            if not front or y > front[-1][1]:
                front.append((x, y))
        panel.plot(*np.transpose(front), color="0.7", linewidth=1, zorder=0)
        panel.tick_params(axis="x", which="minor", labelbottom=False)
        panel.set(xscale="log", xlabel=cost)
        panel.set_title(data, fontsize=10)
    for panel in panels[:, 0]:
        panel.set_ylabel("nDCG@10")
    figure.legend(handles=[drawn[name] for name in names], loc="outside lower center", ncols=2 * columns, fontsize=7)
    return figure
