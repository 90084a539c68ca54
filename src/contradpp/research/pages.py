"""The benchmark's page: every table, sentence and figure is made from the published numbers alone (`standings.py`).

So that a test can say whether a page is what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from contradpp.research import figures
from contradpp.research.benchmark import METRICS
from contradpp.research.contestants import GENERATED, INGREDIENTS, MODELS, OURS, WITHOUT_KERNEL
from contradpp.research.paper import ASKED, BENCHMARK, BEYOND, LADDER
from contradpp.research.standings import Summary, gains, rounded, summarise
from contradpp.research.tables import MISSING, Chapter, Collected, Plot, Table, gained


class Section(NamedTuple):
    """A task on the page: its title, the metric of its table, and those that are shown beside it without intervals."""

    title: str
    main: str
    beside: tuple[str, ...] = ()


TASKS = {
    "next": Section("Next item", "ndcg", ("p1", "p10", "mpr")),
    "halves": Section("Half-hidden baskets", "recall", ("hit", "ndcg_half")),
    "sets": Section("Sets against random sets", "matched", ("uniform", "law_matched", "law_uniform")),
    "likelihood": Section("Log-likelihood of held-out baskets", "log_likelihood"),
}
ALL_TASKS = (*TASKS, "cost")
BY_ALL_METRICS = [(f"Next item, {METRICS[metric].label}", metric) for metric in ("mpr", "p1", "p10", "ndcg")]
HEADLINE = ("popularity", "itemknn-cosine", "itemknn", "ease", "als", "nonsymmetric", OURS)


# -- Tables ------------------------------------------------------------------------------------------------


def chapter(collected: Collected) -> Chapter:
    """The benchmark as a chapter."""
    return chapter_of(summarise(collected), collected.protocol.tasks or ALL_TASKS)


def beyond(collected: Collected) -> Chapter:
    """The columns and rows of the benchmark that docs/beyond.md is about."""
    return beyond_of(summarise(collected))


def beyond_of(summary: Summary) -> Chapter:
    """Tables of these numbers; in words, what ours gains by every metric of next items, and by likelihood."""
    whole = chapter_of(summary, ("next", "likelihood", "cost"), BEYOND)
    return replace(
        whole, setup=f"{how_it_was_run(summary)} {verdict(summary, ('next', 'likelihood'))}", plots=(),
        findings=tuple(findings(summary, [*BY_ALL_METRICS, ("Log-likelihood", "log_likelihood")])),
    )  # fmt: skip


LADDER_METRICS = ("ndcg", "mpr", "matched", "log_likelihood")
LADDER_SETUP = (
    "What a model gains by one ingredient over a model that is alike but for it, on the same test baskets; 95 % paired "
    "intervals, in bold where clear of zero. The first rows are of LowRankDPP (up to 100 columns): mle from a random "
    "start, from one by popularity, with annealing, then with each kind of negatives in the place of mle. A diagonal "
    "is D + V Vᵀ with 16 columns beside the low-rank kernel, both by `exact`; then S is added, then the other voices "
    "of ConditionalDPP. The scale changes no ranking. Real negatives have a study of their own (`negatives`)."
)


def ladder(collected: Collected) -> Chapter:
    """What each ingredient brings, on every data set; and whether negatives help."""
    found = gains(collected)
    return ladder_of(rounded({"run": how_it_was_run(summarise(collected)), "gains": found}))


def ladder_of(told: Summary) -> Chapter:
    """The tables and sentences of these numbers."""
    found = told["gains"]
    tables = tuple(
        Table(
            METRICS[metric].label,
            ("ingredient", *found),
            tuple((one.label, *(_gain(column[one.pair], metric) for column in found.values())) for one in INGREDIENTS),
        )
        for metric in LADDER_METRICS
    )
    answers = tuple(_do_negatives_help(label, column) for label, column in found.items())
    return Chapter(LADDER, "What each ingredient brings", f"{LADDER_SETUP} {told['run']}", tables, answers, data=told)


def _gain(by_metric: Summary, metric: str) -> str:
    if metric not in by_metric:
        return MISSING
    text = _in_words(by_metric[metric], metric)
    _, low, high = by_metric[metric]
    return f"**{text}**" if low > 0 or high < 0 else text


def _do_negatives_help(label: str, column: Summary) -> str:
    """The paper's question, answered for a column and by kind of negatives."""
    words = []
    for metric in LADDER_METRICS:
        told: dict[str, list[str]] = {"better": [], "worse": [], "no different": []}
        for name in GENERATED:
            one = column[f"lowrank-{name} over lowrank-mle"].get(metric)
            if one is not None:
                told["better" if one[1] > 0 else "worse" if one[2] < 0 else "no different"].append(name)
        parts = [f"{word} with {', '.join(names)}" for word, names in told.items() if names]
        if parts:
            words.append(f"{METRICS[metric].label} {'; '.join(parts)}")
    return f"Do negatives help on {label}? Beside maximum likelihood: {'. '.join(words) or 'not run'}."


def chapter_of(summary: Summary, tasks: Sequence[str] = ALL_TASKS, target: str = BENCHMARK) -> Chapter:
    """All tables, sentences and figures of these numbers."""
    asked = [task for task in tasks if task in TASKS]
    return Chapter(
        target=target,
        title="Results",
        setup="\n\n".join([how_it_was_run(summary), verdict(summary, asked), *portraits(summary)]),
        tables=(*(table for task in tasks for table in tables_of(task, summary)), losses(summary, asked)),
        findings=tuple(findings(summary, [(TASKS[task].title, TASKS[task].main) for task in asked])),
        plots=(
            Plot("fit", "Quality (nDCG@10 of the next item) against the CPU seconds of a fit: up and to the left is "
                 "better; the line joins what nothing else beats in both.",
                 lambda: figures.quality_and_cost(points(summary, "cpu_seconds"), "CPU seconds to fit")),
            Plot("query", "The same against the milliseconds of one query.",
                 lambda: figures.quality_and_cost(points(summary, "query_ms"), "milliseconds a query")),
        ),
        data=summary,
    )  # fmt: skip


def how_it_was_run(summary: Summary) -> str:
    """Trials, and how many test baskets at most, by column."""
    ways: dict[tuple[int, int], list[str]] = {}
    for label, column in summary.items():
        ways.setdefault((column["trials"], column["asked"]), []).append(label)
    quick = {most: name for name, most in ASKED.items()}
    parts = [
        f"{', '.join(labels)}: {'one seed' if trials == 1 else f'{trials} seeds'}, at most {asked:,} test baskets "
        f"({quick.get(asked, 'other')})"
        for (trials, asked), labels in ways.items()
    ]
    return "What was run: " + "; ".join(parts) + "."


def portraits(summary: Summary) -> Iterator[str]:
    """A paragraph for every column: what the data are like, and how much there is to be learned from co-occurrence."""
    for label, column in summary.items():
        p, models = column["profile"], column["models"]
        if not p:
            continue
        text = (
            f"**{label}**: {column['words'] or 'a file'}. {p['n_baskets']:,.0f} training baskets, {p['n_items']:,.0f} "
            f"items, {p['mean_size']:.1f} items a basket, {_percent(p['singles'])} of one item; the best-selling "
            f"hundredth of the items makes {_percent(p['top_percent'])} of what is sold, and "
            f"{_percent(p['met_before'])} of the pairs in test baskets had met in training."
        )
        simple = {name: models[name]["ndcg"]["mean"] for name in models if not MODELS[name].ours}
        best = max(simple, key=lambda name: simple[name])
        times = simple[best] / simple["popularity"]
        text += f" Signal: {MODELS[best].label} has {times:.1f} times the nDCG of popularity"
        if "nonsymmetric" in models:
            gain = models["nonsymmetric"]["log_likelihood"]["mean"] - models["popularity"]["log_likelihood"]["mean"]
            text += f", and the law of attracting items gains {gain:.2f} nats a basket over independent items"
        yield text + "."


def tables_of(task: str, summary: Summary) -> list[Table]:
    """The table of a task with intervals and ranks, and one of what stands beside it."""
    if task == "cost":
        return [_table("CPU seconds to fit / MB / ms a query", summary, _cost)]
    section = TASKS[task]
    title = f"{section.title}: {METRICS[section.main].label}, 95 % interval, rank"
    note = "Bold: no other model of the column is ahead by an interval clear of zero (paired)."
    tables = [_table(title, summary, lambda row: _with_interval(row, section.main), note)]
    if section.beside:
        title = f"{section.title}: {' / '.join(METRICS[metric].label for metric in section.beside)}"
        tables.append(_table(title, summary, lambda row: _beside(row, section.beside)))
    return tables


def _table(title: str, summary: Summary, cell: Callable[[Summary], str], note: str = "") -> Table:
    rows = []
    for model, entry in MODELS.items():
        cells = [
            "refused" if model in column["refused"] else cell(column["models"].get(model, {}))
            for column in summary.values()
        ]
        if any(text not in (MISSING, "refused") for text in cells):
            rows.append((entry.label, *cells))
    return Table(title, ("model", *summary), tuple(rows), note)


def _with_interval(row: Summary, metric: str) -> str:
    if metric not in row:
        return MISSING
    one, digits = row[metric], METRICS[metric].digits
    value = _number(one["mean"], digits)
    half = _number((one["high"] - one["low"]) / 2, digits)
    impossible = f", {row['impossible']} impossible" if metric == "log_likelihood" and row["impossible"] else ""
    return f"{f'**{value}**' if one['first'] else value} ± {half} ({one['rank']}{impossible})"


def _beside(row: Summary, names: Sequence[str]) -> str:
    cells = [_number(row[name]["mean"], METRICS[name].digits) if name in row else MISSING for name in names]
    return " / ".join(cells) if any(cell != MISSING for cell in cells) else MISSING


def _cost(row: Summary) -> str:
    if not row:
        return MISSING
    return f"{row['cpu_seconds']:.1f} / {row['memory_mb'] or 0:.0f} / {row['query_ms']:.2g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _number(value: float, digits: int, *, sign: bool = False) -> str:
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


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


# -- Sentences -----------------------------------------------------------------------------------------------


def findings(summary: Summary, asked: Sequence[tuple[str, str]]) -> Iterator[str]:
    """By title and metric, and column, whether ours is ahead of all others, and by how much; then what was refused."""
    for title, metric in asked:
        for label, column in summary.items():
            rows = {name: row for name, row in column["models"].items() if metric in row}
            if OURS in rows and len(rows) > 1:
                yield f"{title}, {label}: {_standing(rows, metric)}."
    for label, column in summary.items():
        for model, why in column["refused"].items():
            yield f"{MODELS[model].label} on {label}: refused ({why})."


def _rivals(rows: Summary, metric: str) -> Summary:
    """What the others have; a variant of ours is no rival."""
    return {name: row[metric] for name, row in rows.items() if name not in (OURS, WITHOUT_KERNEL) and metric in row}


def _best_of(rivals: Summary) -> tuple[str, Sequence[float], str]:
    """The best of the others, what ours has more, and a word for it."""
    best = max(rivals, key=lambda name: float(rivals[name]["mean"]))
    lead = rivals[best]["lead"]
    return best, lead, "ahead" if lead[1] > 0 else "behind" if lead[2] < 0 else "level"


def verdict(summary: Summary, tasks: Sequence[str] = tuple(TASKS)) -> str:
    """On how many columns ours is ahead of all others, by task."""
    parts = []
    for task in tasks:
        metric = TASKS[task].main
        columns = [column["models"] for column in summary.values() if metric in column["models"].get(OURS, {})]
        words = [_best_of(rivals)[2] for rows in columns if (rivals := _rivals(rows, metric))]
        counts = [f"{words.count(word)} {word}" for word in ("ahead", "level", "behind") if word in words]
        if counts:
            title, label = TASKS[task].title.lower(), METRICS[metric].label
            parts.append(f"{title}{'' if label in title else f' by {label}'}: {', '.join(counts)}")
    against = "ConditionalDPP against the best of the others that were run, in columns and by paired intervals"
    return f"{against}: {'; '.join(parts) or 'no others were run'}."


def _standing(rows: Summary, metric: str) -> str:
    """Where ours stands among these rows, of which there is one of another model or variant at least."""
    said = []
    if rivals := _rivals(rows, metric):
        best, lead, word = _best_of(rivals)
        words = {"ahead": "ahead of", "behind": "behind", "level": "not told from"}[word]
        said.append(f"ConditionalDPP {words} {MODELS[best].label}, the best of the others: {_in_words(lead, metric)}")
    if WITHOUT_KERNEL in rows:
        said.append(f"the kernel brings {_in_words(rows[WITHOUT_KERNEL][metric]['lead'], metric)}")
    return "; ".join(said)


def _in_words(lead: Sequence[float], metric: str) -> str:
    return gained(lead, METRICS[metric].digits)


def losses(summary: Summary, tasks: Sequence[str]) -> Table:
    """Wherever a baseline is ahead of ours by an interval clear of zero."""
    shown = [(TASKS[task].title, metric) for task in tasks for metric in (TASKS[task].main, *TASKS[task].beside)]
    rows = tuple(
        (label, title, METRICS[metric].label, MODELS[name].label, _in_words(row[metric]["lead"], metric))
        for title, metric in shown
        for label, column in summary.items()
        for name, row in column["models"].items()
        if not MODELS[name].ours and metric in row and row[metric]["lead"] and row[metric]["lead"][2] < 0
    )
    head = ("data", "task", "metric", "baseline", "ConditionalDPP less it")
    note = "" if rows else "There is none."
    return Table("Where a baseline is ahead of ConditionalDPP, by an interval clear of zero", head, rows, note)


def headline(summary: Summary) -> str:
    """README's table: p@10 and MPR of some rows, and what ours gains over the best of all others."""
    columns = [label for label in summary if label not in ("grocer", "Yoochoose")]
    lines = [f"| p@10 / MPR | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for model in HEADLINE:
        cells = [_beside(summary[label]["models"].get(model, {}), ("p10", "mpr")) for label in columns]
        mark = "**" if model == OURS else ""
        lines.append(f"| {mark}{MODELS[model].label}{mark} | {' | '.join(f'{mark}{cell}{mark}' for cell in cells)} |")
    gains = []
    for label in columns:
        leads = [_best_of(_rivals(summary[label]["models"], metric))[1] for metric in ("p10", "mpr")]
        bounds = [f"{_number(low, 1, sign=True)} to {_number(high, 1, sign=True)}" for _, low, high in leads]
        gains.append(" / ".join(bounds))
    lines.append(f"| its lead over the best of the others that were run, 95 % | {' | '.join(gains)} |")
    return "\n".join(lines)


def blocks(summary: Summary) -> dict[str, dict[str, str]]:
    """By file of the repository and name of a block, what stands there."""
    whole = chapter_of(summary)
    paths = {plot.name: f"figures/{whole.slug}-{plot.name}.png" for plot in whole.plots}
    return {
        "docs/benchmark.md": {"benchmark": whole.markdown(paths)},
        "README.md": {"headline": "\n\n".join([headline(summary), how_it_was_run(summary), verdict(summary)])},
    }


def beyond_blocks(summary: Summary) -> dict[str, dict[str, str]]:
    """As `blocks`, for the page on what goes beyond the paper."""
    return {"docs/beyond.md": {BEYOND: beyond_of(summary).markdown({})}}


def ladder_blocks(told: Summary) -> dict[str, dict[str, str]]:
    """As `blocks`, for what each ingredient brings."""
    return {"docs/benchmark.md": {"ingredients": ladder_of(told).markdown({})}}


def replaced(text: str, name: str, content: str) -> str:
    """A page whose block `name`, between two comments, is this content."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    if not after:
        raise ValueError(f"the page has no block {name!r}")
    return f"{before}{begin}\n{content.strip()}\n{end}{after}"
