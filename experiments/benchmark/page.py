"""Pages of the benchmark, made from the published numbers (`leaderboard.py`) alone.

docs/benchmark.md has an overview; experiments/results/ has all tables, intervals and findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.benchmark.leaderboard import Summary, gains, rounded, summarize
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
    "sets": Shown("Sets against random sets", "matched", ("lift_matched", "uniform", "logp_matched", "logp_uniform")),
    "likelihood": Shown("Log-likelihood of held-out baskets", "log_likelihood"),
}
ALL_TASKS = (*TASKS, "cost")
HEADLINE = ("popularity", "itemknn-cosine", "itemknn", "ease", "als", "nonsymmetric", OURS)
OVERVIEW = (
    "popularity", "itemknn-cosine", "ease", "ridge", "baskets", "loglinear", "als", "item2vec", "lowrank-mle",
    "nonsymmetric", OURS,
)  # fmt: skip
LADDER_METRICS = ("ndcg", "mpr", "matched", "log_likelihood")
PAGE = "docs/benchmark.md"
APPENDIX = "experiments/results"


# -- Sections ----------------------------------------------------------------------------------------------


def section(target: str, results: Results) -> Section:
    """Return the section of the benchmark, or of the gain by each ingredient."""
    summary = summarize(results)
    if target == "benchmark":
        return benchmark_of(summary, results.protocol.tasks or ALL_TASKS)
    return ingredients_of(rounded({"run": sentences(summary)["run"][0], "gains": gains(results)}))


def benchmark_of(summary: Summary, tasks: Sequence[str] = ALL_TASKS) -> Section:
    """Return all tables, sentences and figures of these numbers."""
    ranked = [task for task in tasks if task in TASKS]
    text = sentences(summary, ranked)
    tables = [table for task in tasks for table in tables_of(task, summary)]
    return Section(
        target="benchmark",
        title="Results",
        setup="\n\n".join([*text["run"], *text["leads"], *text["data"]]),
        tables=(*tables, losses(summary, ranked)),
        findings=text["findings"],
        plots=plots_of(summary),
        data=summary,
    )


def overview_of(summary: Summary) -> Section:
    """Return the page of docs/: one table a task, the figures, and where baselines are ahead."""
    text = sentences(summary)
    note = "Bold: no other model of the column is ahead by an interval clear of zero (paired)."
    tables = [data_table(summary)]
    for title, metric in (
        ("Next item", "ndcg"),
        ("Next item", "mpr"),
        *((task.title, task.main) for task in TASKS.values() if task.main != "ndcg"),
    ):
        cell = partial(mean_of, metric=metric)
        tables.append(table_of(f"{title}: {METRICS[metric].label}", summary, cell, models=OVERVIEW))
    tables[-1] = Table(tables[-1].title, tables[-1].frame, note)
    setup = "\n\n".join([*text["run"], *text["leads"]])
    return Section("benchmark", "Results", setup, (*tables, losses_by_metric(summary)), plots=plots_of(summary))


def plots_of(summary: Summary) -> tuple[Plot, ...]:
    """Return the figures of quality against cost."""
    fit = (
        "nDCG@10 of the next item against the CPU seconds of a fit. "
        "The line joins the models that no other beats in both."
    )
    return (
        Plot("fit", fit, lambda: quality_and_cost(points(summary, "cpu_seconds"), "CPU seconds to fit")),
        Plot("query", "The same against the milliseconds of one query.",
             lambda: quality_and_cost(points(summary, "query_ms"), "milliseconds a query")),
    )  # fmt: skip


def ingredients_of(found: Summary) -> Section:
    """Return the tables and sentences of the gain by each ingredient."""
    answers = {
        label: [(METRICS[metric].label, sides(column, metric)) for metric in LADDER_METRICS]
        for label, column in found["gains"].items()
    }
    text = words("benchmark/ingredients.md", run=found["run"], answers=answers)
    tables = tuple(ladder(found["gains"], metric, with_gain) for metric in LADDER_METRICS)
    return Section(
        "ingredients", "What each ingredient brings", " ".join(text["setup"]), tables, text["findings"], data=found
    )


def ingredients_overview(found: Summary) -> str:
    """Return the gains in nDCG without their intervals."""
    return ladder(
        found["gains"], "ndcg", lambda gain, digits: in_bold(fixed(gain[0], digits, sign=True), gain)
    ).markdown


def ladder(gains: Summary, metric: str, cell: Callable[[Sequence[float], int], str]) -> Table:
    """Return a table of the gain by each ingredient, a column for every data set."""
    digits = METRICS[metric].digits
    rows = [
        (one.label, *(cell(column[one.pair][metric], digits) if metric in column[one.pair] else MISSING
                      for column in gains.values()))
        for one in INGREDIENTS
    ]  # fmt: skip
    return Table.of(METRICS[metric].label, ("ingredient", *gains), rows)


def with_gain(gain: Sequence[float], digits: int) -> str:
    """Return a gain with its interval, in bold if that is clear of zero."""
    return in_bold(gained(gain, digits), gain)


def in_bold(text: str, gain: Sequence[float]) -> str:
    """Return the text in bold if the interval of the gain is clear of zero."""
    return f"**{text}**" if gain[1] > 0 or gain[2] < 0 else text


def sides(column: Summary, metric: str) -> dict[str, list[str]]:
    """Group the kinds of negatives by their gain over maximum likelihood."""
    found: dict[str, list[str]] = {"better": [], "worse": [], "no different": []}
    for name in GENERATED:
        gain = column[f"lowrank-{name} over lowrank-mle"].get(metric)
        if gain is not None:
            found["better" if gain[1] > 0 else "worse" if gain[2] < 0 else "no different"].append(name)
    return {side: names for side, names in found.items() if names}


# -- Tables ------------------------------------------------------------------------------------------------


def tables_of(task: str, summary: Summary) -> list[Table]:
    """Return the table of a task with intervals and ranks, and the metrics beside it."""
    if task == "cost":
        return [table_of("CPU seconds to fit / MB / ms a query", summary, cost)]
    title, main, beside = TASKS[task]
    note = "Bold: no other model of the column is ahead by an interval clear of zero (paired)."
    heading = f"{title}: {METRICS[main].label}, 95 % interval, rank"
    tables = [table_of(heading, summary, lambda row: with_interval(row, main), note)]
    if beside:
        heading = f"{title}: {' / '.join(METRICS[metric].label for metric in beside)}"
        tables.append(table_of(heading, summary, lambda row: side_by_side(row, beside)))
    if task == "likelihood":
        tables += size_and_composition(summary)
    return tables


def size_and_composition(summary: Summary) -> list[Table]:
    """Return a table of the gains over popularity, as the sum of log P(|A|) and log P(A given |A|)."""
    names = ("log_likelihood", "log_size", "composition")
    found: dict[str, dict[str, str]] = {}
    for label, column in summary.items():
        usual = column["models"].get("popularity", {})
        for model, row in column["models"].items():
            if model != "popularity" and all(name in row and name in usual for name in names):
                gains = [row[name]["mean"] - usual[name]["mean"] for name in names]
                found.setdefault(MODELS[model].label, {})[label] = " / ".join(
                    fixed(gain, METRICS["log_likelihood"].digits, sign=True) for gain in gains
                )
    if not found:
        return []
    rows = [(model, *(cells.get(label, MISSING) for label in summary)) for model, cells in found.items()]
    title = "Log-likelihood less Popularity's / of it by size / by composition"
    return [Table.of(title, ("model", *summary), rows)]


def table_of(
    title: str, summary: Summary, cell: Callable[[Summary], str], note: str = "", models: Sequence[str] = tuple(MODELS)
) -> Table:
    """Return a row for every model that has a result, a column for every column of the summary."""
    frame = pd.DataFrame(
        {
            label: {
                model: "refused" if model in column["refused"] else cell(column["models"].get(model, {}))
                for model in models
            }
            for label, column in summary.items()
        },
        index=list(models),
    )
    frame = frame[~frame.isin([MISSING, "refused"]).all(axis=1)]
    frame.insert(0, "model", [MODELS[model].label for model in frame.index])
    return Table(title, frame, note)


def with_interval(row: Summary, metric: str) -> str:
    """Return a mean, half its interval, and its rank."""
    if metric not in row:
        return MISSING
    one = row[metric]
    digits = METRICS[metric].digits
    value = fixed(one["mean"], digits)
    impossible = f", {row['impossible']} impossible" if metric == "log_likelihood" and row["impossible"] else ""
    half = fixed((one["high"] - one["low"]) / 2, digits)
    return f"{f'**{value}**' if one['first'] else value} ± {half} ({one['rank']}{impossible})"


def side_by_side(row: Summary, names: Sequence[str]) -> str:
    """Return the means of several metrics."""
    cells = [fixed(row[name]["mean"], METRICS[name].digits) if name in row else MISSING for name in names]
    return " / ".join(cells) if any(cell != MISSING for cell in cells) else MISSING


def cost(row: Summary) -> str:
    """Return the cost of a fit and of a query."""
    return f"{row['cpu_seconds']:.1f} / {row['memory_mb'] or 0:.0f} / {row['query_ms']:.2g}" if row else MISSING


def mean_of(row: Summary, metric: str) -> str:
    """Return a mean, in bold if no other model is ahead of it."""
    if metric not in row:
        return MISSING
    value = fixed(row[metric]["mean"], METRICS[metric].digits)
    return f"**{value}**" if row[metric]["first"] else value


def data_table(summary: Summary) -> Table:
    """Return a table of the sizes of the data sets."""
    head = ("data", "training baskets", "items", "items a basket", "baskets of one item")
    rows = [
        (
            label,
            f"{p['n_baskets']:,.0f}",
            f"{p['n_items']:,.0f}",
            f"{p['mean_size']:.1f}",
            f"{100 * p['singles']:.0f} %",
        )
        for label, column in summary.items()
        if (p := column["profile"])
    ]
    return Table.of("Data", head, rows)


def behind(summary: Summary, metric: str) -> Iterator[tuple[str, str, Sequence[float]]]:
    """Yield the column, the baseline and the lead of our model where that is below zero for certain."""
    for label, column in summary.items():
        for name, row in column["models"].items():
            lead = row[metric]["lead"] if metric in row and not MODELS[name].ours else None
            if lead and lead[2] < 0:
                yield label, MODELS[name].label, lead


def losses_by_metric(summary: Summary) -> Table:
    """Return the data sets and the number of baselines ahead of our model, by metric, and the largest lead."""
    rows = []
    for task in TASKS.values():
        for metric in (task.main, *task.beside):
            found: dict[str, list[tuple[float, str]]] = {}
            for label, name, lead in behind(summary, metric):
                found.setdefault(label, []).append((lead[0], name))
            cells = [
                f"{label}: {min(ahead)[1]} {fixed(min(ahead)[0], METRICS[metric].digits)}"
                + (f" and {len(ahead) - 1} more" if len(ahead) > 1 else "")
                for label, ahead in found.items()
            ]
            if cells:
                rows.append((f"{task.title}: {METRICS[metric].label}", "; ".join(cells)))
    title = "Where a baseline is ahead of ConditionalDPP, by an interval clear of zero (ConditionalDPP less the best)"
    return Table.of(title, ("metric", "baselines"), rows, "" if rows else "There is none.")


def losses(summary: Summary, tasks: Sequence[str]) -> Table:
    """Return every baseline that is ahead of our model by an interval clear of zero."""
    rows = [
        (label, TASKS[task].title, METRICS[metric].label, name, gained(lead, METRICS[metric].digits))
        for task in tasks
        for metric in (TASKS[task].main, *TASKS[task].beside)
        for label, name, lead in behind(summary, metric)
    ]
    head = ("data", "task", "metric", "baseline", "ConditionalDPP less it")
    title = "Where a baseline is ahead of ConditionalDPP, by an interval clear of zero"
    return Table.of(title, head, rows, "" if rows else "There is none.")


# -- Sentences ---------------------------------------------------------------------------------------------


def sentences(summary: Summary, tasks: Sequence[str] = tuple(TASKS)) -> dict[str, list[str]]:
    """Return the paragraphs on the run, the data, and the lead of our model over all others."""
    runs: dict[tuple[int, int], list[str]] = {}
    for label, column in summary.items():
        runs.setdefault((column["trials"], column["asked"]), []).append(label)
    return words(
        "benchmark/results.md",
        summary=summary,
        labels={name: model.label for name, model in MODELS.items()},
        metrics=METRICS,
        runs=runs,
        sizes={limit: name for name, limit in ASKED.items()},
        simple={label: best_baseline(column["models"]) for label, column in summary.items() if column["profile"]},
        counts={TASKS[task]: counts for task in tasks if (counts := outcomes(summary, TASKS[task].main))},
        tasks=[TASKS[task] for task in tasks],
        standing=standing,
    )


def best_baseline(models: Summary) -> str:
    """Return the model that is no DPP with the best nDCG."""
    return max((name for name in models if not MODELS[name].ours), key=lambda name: float(models[name]["ndcg"]["mean"]))


def outcomes(summary: Summary, metric: str) -> dict[str, int]:
    """Count the columns in which our model is ahead of the best of the others, level with it, or behind."""
    found = [standing(column["models"], metric) for column in summary.values()]
    outcomes = [one["word"] for one in found if one and one["best"]]
    return {word: outcomes.count(word) for word in ("ahead", "level", "behind") if word in outcomes}


def standing(rows: Summary, metric: str) -> dict[str, Any] | None:
    """Return the best of the others and the lead of our model over it, and over itself without its kernel."""
    rows = {name: row[metric] for name, row in rows.items() if metric in row}
    if OURS not in rows or len(rows) < 2:
        return None
    others = {name: row for name, row in rows.items() if name not in (OURS, WITHOUT_KERNEL)}
    best = max(others, key=lambda name: float(others[name]["mean"]), default=None)
    lead = others[best]["lead"] if best else None
    word = "" if lead is None else "ahead" if lead[1] > 0 else "behind" if lead[2] < 0 else "level"
    kernel = rows[WITHOUT_KERNEL]["lead"] if WITHOUT_KERNEL in rows else None
    return {"best": best, "lead": lead, "word": word, "kernel": kernel}


# -- Published pages ---------------------------------------------------------------------------------------


def headline(summary: Summary) -> str:
    """Return README's table: p@10 and MPR of some rows, and the lead of our model over the best of all others.

    Our numbers are in bold where no other model is ahead for certain.
    """
    columns = {label: column["models"] for label, column in summary.items() if label not in ("grocer", "Yoochoose")}
    metrics = ("p10", "mpr")
    rows = {model: [side_by_side(models.get(model, {}), metrics) for models in columns.values()] for model in HEADLINE}
    found = [[standing(models, metric) for metric in metrics] for models in columns.values()]
    labels = {name: model.label for name, model in MODELS.items()}
    leads = [[(labels[one["best"]], one["lead"]) for one in ours if one and one["lead"]] for ours in found]
    if OURS in rows:
        rows[OURS] = [
            " / ".join(
                f"**{number}**" if one and one["word"] != "behind" else number
                for number, one in zip(cell.split(" / "), ours, strict=False)
            )
            for cell, ours in zip(rows[OURS], found, strict=True)
        ]
    text = sentences(summary)
    return render("benchmark/readme.md", columns=columns, rows=rows, leads=leads, labels=labels, ours=OURS, text=text)


def blocks(published: Mapping[str, Summary]) -> dict[str, dict[str, str]]:
    """Return the contents of blocks by page and name, from numbers by the name of their file in docs/."""
    found: dict[str, dict[str, str]] = {PAGE: {}}
    if "benchmark" in published:
        summary = published["benchmark"]
        found[PAGE]["benchmark"] = overview_of(summary).markdown
        found[f"{APPENDIX}/benchmark.md"] = {"benchmark": appendix(benchmark_of(summary).markdown)}
        found["README.md"] = {"headline": headline(summary)}
    if "ingredients" in published:
        found[PAGE]["ingredients"] = ingredients_overview(published["ingredients"])
        found[f"{APPENDIX}/ingredients.md"] = {"ingredients": ingredients_of(published["ingredients"]).markdown}
    return found


def appendix(markdown: str) -> str:
    """Point the figures of a section to docs/figures/, for a page of experiments/results/."""
    return markdown.replace("](figures/", "](../../docs/figures/")


def points(summary: Summary, cost: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Return a cost and the nDCG by column and label."""
    return {
        label: {
            MODELS[model].label: (row[cost], row["ndcg"]["mean"])
            for model, row in column["models"].items()
            if row[cost] is not None
        }
        for label, column in summary.items()
    }


def quality_and_cost(groups: Mapping[str, Mapping[str, tuple[float, float]]], cost: str) -> Figure:
    """Draw quality against cost, a panel for each data set, with DPPs as diamonds and the Pareto front."""
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
            place = names.index(name)
            x = max(x, 1e-3)
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
