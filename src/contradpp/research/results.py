"""The chapters of results on UK, Belgian and Amazon: improvements over LowRank, and the values themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from contradpp.research import figures, findings, paper
from contradpp.research.paper import LABELS, PrintedTable, Protocol
from contradpp.research.tables import (
    CALIBRATIONS,
    Chapter,
    Collected,
    Plot,
    Selection,
    Table,
    by_size,
    name_of,
    number,
)  # fmt: skip

RANKING = ("mpr_paper", "mpr", "mpr_pairs", "precision@1", "precision@5", "precision@10", "precision@20", "ndcg")
LIKELIHOOD = (*(f"auc:{scale}" for scale in CALIBRATIONS), "auc_pairs:discrimination", "auc_paired",
              "log_likelihood:likelihood", "coverage", "seconds", "rounds")  # fmt: skip
TITLES = {
    "table-uk": "UK retail (K = 100)",
    "table-belgian": "Belgian retail (K = 76)",
    "table-amazon": "Amazon registries (K = 30), mean of seven",
}


def results_chapter(target: str, collected: Collected) -> Chapter:
    """The chapter of a table of results."""
    data, name, printed = paper.data_of(target), target.removeprefix("table-"), paper.PRINTED.get(target)
    rows = row_selections(data, collected.protocol)
    tables = [values_table(collected, rows, RANKING, "Ranking"), values_table(collected, rows, LIKELIHOOD, "Sets")]
    if printed is not None:
        tables.insert(0, improvement_table(collected, data, printed))
    if len(data) > 1:
        tables += [registry_table(collected, data, metric) for metric in ("mpr_paper", "auc:discrimination")]
    claims = findings.claim_start(collected, data, name)
    if len(data) == 1:
        claims |= findings.claim_popularity(collected, data[0])
    return Chapter(
        target=target,
        title=TITLES.get(target, f"Amazon registry: {name.removeprefix('amazon/')} (K = 30)"),
        setup=setup(collected.protocol, printed),
        tables=tuple(tables),
        findings=tuple(findings.table_findings(collected, data, printed)),
        plots=plots(collected, data, rows, name),
        claims=claims,
        data={label: _numbers(collected, chosen) for label, chosen in rows.items()},
    )


def setup(protocol: Protocol, printed: PrintedTable | None = None) -> str:
    """How the numbers were made."""
    several = protocol.n_trials > 1
    trials = f"{protocol.n_trials} trials (seeds 0 to {protocol.n_trials - 1}" if several else "1 trial (seed 0"
    where = f" Published numbers: {printed.where}." if printed else ""
    return (
        f"80 % of the baskets for training, 20 % for the test; {trials}; the paper made "
        f"{paper.TRIALS}){'; mean ± standard deviation over trials' if several else ''}. α = 1, "
        f"|A⁻|/|A⁺| = 0.5, contrast = 1 (the paper's φ_CE). Settings: {protocol.settings}. In sentences and figures, "
        f"MPR is the paper's, in which ties count for the model.{where}"
    )


def row_selections(data: tuple[str, ...], protocol: Protocol) -> dict[str, Selection]:
    """The rows of a table: every method, and the paper's from the paper's start."""
    rows = {
        LABELS[method]: Selection(data, method, "default" if method == "popularity" else protocol.settings)
        for method in protocol.methods
    }
    if protocol.settings == "default":
        rows |= {f"{LABELS[method]}, paper's start": Selection(data, method, "paper") for method in paper.TRIO}
    return rows


def improvement_table(collected: Collected, data: tuple[str, ...], printed: PrintedTable) -> Table:
    """The paper's own table, with ours beside it."""
    settings, methods = collected.protocol.settings, ("explicit", "dynamic", "nce")
    head = ["metric", "LowRank, published", "ours"]
    for method in methods:
        head += [f"{LABELS[method]}, published", "ours"]
    base = Selection(data, "mle", settings)
    rows = []
    for metric in printed.metrics:
        for shown in [f"auc:{scale}" for scale in CALIBRATIONS] if metric == "auc" else [metric]:
            row = [name_of(shown), number(printed.lowrank[metric], metric), number(collected.mean(base, shown), metric)]
            for method in methods:
                gain = collected.improvement(Selection(data, method, settings), base, shown)
                theirs = printed.improvement.get(method, {}).get(metric)
                row += [number(theirs, metric, sign=True), number(gain, metric, sign=True)]
            rows.append(tuple(row))
    note = "Exp, Dyn and NCE: improvement over LowRank, as the paper prints it."
    if len(data) > 1:
        note += " The ± of improvements is over registries and trials, that of values over trials."
    return Table("Improvement over LowRank", tuple(head), tuple(rows), note)


def values_table(collected: Collected, rows: dict[str, Selection], metrics: Sequence[str], title: str) -> Table:
    """A row per method with the values themselves."""
    body = [
        (label, *(number(collected.mean(chosen, metric), metric) for metric in metrics))
        for label, chosen in rows.items()
    ]
    return Table(title, ("method", *map(name_of, metrics)), tuple(body))


def registry_table(collected: Collected, data: tuple[str, ...], metric: str) -> Table:
    """A row per registry, a column per method."""
    body = []
    for name in data:
        columns = row_selections((name,), collected.protocol)
        values = (number(collected.mean(chosen, metric), metric) for chosen in columns.values())
        body.append((name.removeprefix("amazon/"), *values))
    return Table(f"By registry: {name_of(metric)}", ("registry", *columns), tuple(body))


def plots(collected: Collected, data: tuple[str, ...], rows: dict[str, Selection], name: str) -> tuple[Plot, ...]:
    """Convergence (on one data set) and MPR by basket size."""
    of = f" ({data[-1]})" if len(data) > 1 else ""
    main = {label: chosen for label, chosen in rows.items() if "start" not in label}
    curves = {}
    for label, chosen in main.items():
        histories = [result.get("history", {}) for result in collected.select(replace(chosen, data=data[-1:]))]
        curves[label] = chosen.method, [history for history in histories if history.get("validation")]
    return (
        Plot(
            "convergence",
            f"Validation score while training on {name}{of}; the first trial is drawn strong.",
            lambda: figures.convergence({k: v for k, v in curves.items() if v[1]}, collected.protocol.settings),
        ),
        Plot(
            "mpr-by-size",
            f"MPR by basket size on {name}; sizes of which there are fewer than {figures.FEWEST} baskets are left out.",
            lambda: figures.by_size({label: by_size(collected.select(chosen)) for label, chosen in main.items()}),
        ),
    )


def _numbers(collected: Collected, chosen: Selection) -> dict[str, Any]:
    found: dict[str, Any] = {"settings": chosen.settings, "method": chosen.method}
    for metric in (*RANKING, *LIKELIHOOD):
        value = collected.mean(chosen, metric)
        if value is not None:
            found[metric] = {"mean": value.value, "std": value.std, "values": collected.values(chosen, metric)}
    return found
