"""The sections of the paper: tables of results, Figure 1, the runtimes, the ablations and the scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments import protocol
from experiments.pages import CALIBRATIONS, Plot, Results, Section, Table, gain, mean, name_of, number, statistic, words
from experiments.paper import figures
from experiments.paper.published import PRINTED, RUNTIMES, Number, PrintedTable, printed_for
from experiments.paper.training import LEAST_DIVERGENCE, MOST_PROBABILITY, TOY_PAIRS
from experiments.protocol import ABLATED, COMPARED, LABELS, SCALED, TRIO

RANKING = ("mpr_paper", "mpr", "mpr_pairs", "precision@1", "precision@5", "precision@10", "precision@20", "ndcg")
LIKELIHOOD = (*(f"auc:{scale}" for scale in CALIBRATIONS), "auc_pairs:discrimination", "auc_paired",
              "log_likelihood:likelihood", "coverage", "seconds", "rounds")  # fmt: skip
TITLES = {
    "table-uk": "UK retail (K = 100)",
    "table-belgian": "Belgian retail (K = 76)",
    "table-amazon": "Amazon registries (K = 30), mean of seven",
}
PROTOTYPES = {"uk": 83.4, "belgian": 90.0}  # the MPR of popularity in this project's prototypes
PAIR_NAMES = tuple(f"P({following}|{given})" for given, following in TOY_PAIRS)

Rows = Mapping[str, pd.DataFrame]


def paper_section(target: str, results: Results) -> Section:
    """Return the section of a target of the paper."""
    own = {"figure1": figure1, "table-runtimes": runtimes, "scale": scale}
    if target in own:
        return own[target](results)
    return ablation(target, results) if target.startswith("ablation") else results_section(target, results)


# -- Tables of results -----------------------------------------------------------------------------------


def results_section(target: str, results: Results) -> Section:
    """Return improvements over LowRank and the values themselves, on UK, Belgian or Amazon."""
    data = protocol.data_of(target)
    printed = PRINTED.get(target)
    name = target.removeprefix("table-")
    rows = rows_of(results, data)
    tables = [values_table("Ranking", rows, RANKING), values_table("Sets", rows, LIKELIHOOD)]
    if printed is not None:
        tables.insert(0, improvement_table(results, data, printed))
    if len(data) > 1:
        tables += [registry_table(results, data, metric) for metric in ("mpr_paper", "auc:discrimination")]
    text = findings(results, data, name, printed)
    main = {label: own for label, own in rows.items() if "start" not in label}
    of = f" ({data[-1]})" if len(data) > 1 else ""
    return Section(
        target=target,
        title=TITLES.get(target, f"Amazon registry: {name.removeprefix('amazon/')} (K = 30)"),
        setup=" ".join(text["setup"]),
        tables=tuple(tables),
        findings=text["findings"],
        plots=(
            Plot("convergence", f"Validation score while training on {name}{of}; the first trial is drawn strong.",
                 lambda: figures.convergence(histories(main, data[-1]), results.protocol.settings)),
            Plot("mpr-by-size", f"MPR by basket size on {name}; sizes of which there are fewer than {figures.FEWEST} "
                 "baskets are left out.", lambda: figures.by_size({k: by_size(own) for k, own in main.items()})),
        ),
        claims=claims_of(text),
        data={label: statistics(own) for label, own in rows.items()},
    )  # fmt: skip


def rows_of(results: Results, data: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the results of every method by label, then those of the paper's methods from the paper's start."""
    settings = results.protocol.settings
    rows = {
        LABELS[method]: results.rows(data, method, "default" if method == "popularity" else settings)
        for method in results.protocol.methods
    }
    if settings == "default":
        rows |= {f"{LABELS[method]}, paper's start": results.rows(data, method, "paper") for method in TRIO}
    return rows


def improvement_table(results: Results, data: Sequence[str], printed: PrintedTable) -> Table:
    """Return the paper's own table, with ours beside it."""
    base, *others = (results.rows(data, method, results.protocol.settings) for method in COMPARED)
    head = ["metric", "LowRank, published", "ours"]
    head += [name for method in COMPARED[1:] for name in (f"{LABELS[method]}, published", "ours")]
    rows = []
    for metric in printed.metrics:
        theirs = [printed.improvement.get(method, {}).get(metric) for method in COMPARED[1:]]
        for shown in [f"auc:{scale}" for scale in CALIBRATIONS] if metric == "auc" else [metric]:
            row = [name_of(shown), number(printed.lowrank[metric], metric), number(mean(base, shown), metric)]
            for published, own in zip(theirs, others, strict=True):
                row += [number(published, metric, sign=True), number(gain(own, base, shown), metric, sign=True)]
            rows.append(row)
    note = "Exp, Dyn and NCE: improvement over LowRank, as the paper prints it."
    if len(data) > 1:
        note += " The ± of improvements is over registries and trials, that of values over trials."
    return Table.of("Improvement over LowRank", head, rows, note)


def values_table(title: str, rows: Rows, metrics: Sequence[str]) -> Table:
    """Return a row per method with the values themselves."""
    body = [(label, *(number(mean(own, metric), metric) for metric in metrics)) for label, own in rows.items()]
    return Table.of(title, ("method", *map(name_of, metrics)), body)


def registry_table(results: Results, data: Sequence[str], metric: str) -> Table:
    """Return a row per registry, a column per method."""
    by_name = {name.removeprefix("amazon/"): rows_of(results, (name,)) for name in data}
    head = ("registry", *next(iter(by_name.values())))
    body = [(name, *(number(mean(own, metric), metric) for own in rows.values())) for name, rows in by_name.items()]
    return Table.of(f"By registry: {name_of(metric)}", head, body)


def statistics(rows: pd.DataFrame) -> dict[str, Any]:
    """Return every metric of a method, for JSON."""
    found: dict[str, Any] = {"settings": rows.settings.iloc[0], "method": rows.method.iloc[0]}
    for metric in (*RANKING, *LIKELIHOOD):
        value = mean(rows, metric)
        if value is not None:
            found[metric] = {"mean": value.value, "std": value.std, "values": rows[metric].dropna().tolist()}
    return found


def findings(results: Results, data: Sequence[str], name: str, printed: PrintedTable | None) -> dict[str, list[str]]:
    """Return the sentences about a table of results."""
    settings = results.protocol.settings

    def rows(method: str) -> pd.DataFrame:
        return results.rows(data, method, settings)

    popularity = results.rows(data, "popularity")
    reached = mean(popularity, "mpr_paper")
    means = {method: mean(rows(method), "mpr_paper") for method in LABELS if method != "popularity"}
    return words(
        "paper/results.md",
        protocol=results.protocol, name=name, printed=printed, compared=COMPARED, labels=LABELS,
        popularity=reached, pairs=mean(popularity, "mpr_pairs") or reached, prototype=PROTOTYPES.get(name),
        below=[LABELS[m] for m, value in means.items() if value and reached and value.value < reached.value],
        start=two_starts(results, data),
        mean=lambda method, metric: mean(rows(method), metric),
        gain=lambda method, metric: gain(rows(method), rows("mle"), metric),
    )  # fmt: skip


def two_starts(results: Results, data: Sequence[str]) -> dict[str, Any] | None:
    """Compare LowRank from the popularity start and from the paper's, if both have been run."""
    ours, theirs = (results.rows(data, "mle", start) for start in ("default", "paper"))
    if not len(ours) or not len(theirs):
        return None
    names = {"": "mpr_paper", "_log": "log_likelihood:likelihood"}
    found = {f"{who}{end}": mean(rows, metric)
             for who, rows in (("ours", ours), ("theirs", theirs)) for end, metric in names.items()}  # fmt: skip
    return {**found, "gap": gain(ours, theirs, "mpr_paper")}


def claims_of(text: dict[str, list[str]]) -> dict[str, str]:
    """Return the claims of a template by their key."""
    return dict(claim.split(": ", 1) for claim in text["claims"])


def histories(rows: Rows, data: str) -> dict[str, tuple[str, list[dict[str, list[float]]]]]:
    """Return the method and the curves of its trials on a data set, by label."""
    found = {}
    for label, own in rows.items():
        part = own[own["data"] == data]
        curves = [result["history"] for result in part.result if result.get("history", {}).get("validation")]
        if curves:
            found[label] = part.method.iloc[0], curves
    return found


def by_size(rows: pd.DataFrame) -> pd.DataFrame:
    """Return MPR by basket size (mpr_paper) and the number of baskets (n), over all results."""
    sizes = pd.DataFrame([row for result in rows.result for row in result["by_size"]])
    sizes = sizes[sizes.group != "all"].dropna()
    sizes["total"] = sizes.n * sizes.mpr_paper
    sums = sizes.groupby("group")[["n", "total"]].sum()
    sums["mpr_paper"] = sums.total / sums.n
    order = sorted(sums.index, key=lambda group: int(group.rstrip("+").split("-")[0]))
    return sums.loc[order, ["mpr_paper", "n"]]


# -- Figure 1 ------------------------------------------------------------------------------------------


def figure1(results: Results) -> Section:
    """Return the paper's Figure 1 from both starts."""
    head = (*PAIR_NAMES, "geometric mean", "KL {1,2}", "KL {3,4}", "net KL")
    rows: list[tuple[str, ...]] = []
    shown: dict[str, dict[str, dict[str, Any]]] = {"default": {}, "paper": {}}
    for settings, entries in shown.items():
        for method in TRIO:
            runs = results.rows(("toy",), method, settings, kind="toy").result
            values = [
                (*r["probabilities"], r["geometric_mean"], *r["divergences"], sum(r["divergences"])) for r in runs
            ]
            columns = [statistic(column) for column in zip(*values, strict=True)]
            entries[LABELS[method]] = {
                "probabilities": columns[:4], "geometric_mean": columns[4], "divergences": columns[5:],
                "runs": [run["probabilities"] for run in runs],
            }  # fmt: skip
            rows.append((f"{LABELS[method]}, {settings}", *(number(value, "auc") for value in columns)))
    bounds = (f"≤ {MOST_PROBABILITY}", "", "", f"≥ {LEAST_DIVERGENCE:.4f}")
    rows.append(("bound for a symmetric kernel", "", "", "", "", *bounds))
    text = words(
        "paper/figure1.md", shown=shown, protocol=results.protocol, bound=LEAST_DIVERGENCE, deviation=deviation
    )
    return Section(
        target="figure1",
        title="Figure 1: the toy set",
        setup=" ".join(text["setup"]),
        tables=(Table.of("Next-item probabilities and divergences", ("model, settings", *head), rows),),
        findings=text["findings"],
        plots=(
            Plot("bars", "Probability of the right next item (left) and symmetric KL divergence (right), mean and "
                 "standard deviation over runs; the dashed lines are the bounds for symmetric kernels.",
                 lambda: figures.toy(shown, PAIR_NAMES)),
        ),
        data={f"{label}, {settings}": plain_numbers(entry)
              for settings, entries in shown.items() for label, entry in entries.items()},
    )  # fmt: skip


def deviation(runs: Any) -> float:
    """Return the mean over pairs of the deviation of a probability over runs."""
    return float(np.std(runs, axis=0).mean())


def plain_numbers(value: Any) -> Any:
    """Convert numbers to plain values for JSON, at any depth."""
    if isinstance(value, Number):
        return {"mean": value.value, "std": value.std}
    if isinstance(value, dict):
        return {key: plain_numbers(entry) for key, entry in value.items()}
    return [plain_numbers(entry) for entry in value] if isinstance(value, list) else value


# -- Runtimes, ablations and scale -----------------------------------------------------------------------


def runtimes(results: Results) -> Section:
    """Return the section on seconds to convergence, and their ratios to LowRank."""
    timed = results.protocol.timed
    runs = {m: results.rows(("amazon/feeding",), m, results.protocol.settings, kind="runtime") for m in timed}
    base = runs["mle"].seconds.to_numpy()
    ratios = {m: statistic(own.seconds / base) or Number(float("nan")) for m, own in runs.items()}
    pace = {m: own.seconds.sum() / own.rounds.sum() for m, own in runs.items()}
    rows = []
    for m, own in runs.items():
        theirs = RUNTIMES.get(m)
        ratio = theirs.value / RUNTIMES["mle"].value if theirs else None
        cells = (number(theirs), number(statistic(own.seconds)), number(ratio), number(ratios[m]))
        rows.append((LABELS[m], *cells, number(statistic(own.rounds), "rounds")))
    head = ("method", "seconds, published", "ours", "ratio to LowRank, published", "ours", "rounds")
    text = words("paper/runtimes.md", protocol=results.protocol,
                 order=[ratios[m].value for m in COMPARED], pace=[pace[m] / pace["mle"] for m in COMPARED])  # fmt: skip
    return Section(
        target="table-runtimes",
        title="Runtime to convergence (feeding registry, K = 30)",
        setup=" ".join(text["setup"]),
        tables=(Table.of("Time to convergence", head, rows),),
        findings=text["findings"],
        plots=(
            Plot("bars", "Time to convergence as a ratio to LowRank, published and ours.",
                 lambda: figures.runtimes({LABELS[m]: ratio for m, ratio in ratios.items()})),
        ),
        data={LABELS[m]: {"seconds": own.seconds.tolist(), "rounds": own.rounds.tolist(), "ratio": ratios[m].value}
              for m, own in runs.items()},
    )  # fmt: skip


def ablation(target: str, results: Results) -> Section:
    """Return the section on MPR and AUC of Exp and Dyn against α or the ratio of negatives."""
    which, levels, symbol = {
        "ablation-alpha": ("alpha", protocol.ALPHAS, "α"),
        "ablation-ratio": ("ratio", protocol.RATIOS, "|A⁻|/|A⁺|"),
    }[target]
    data = results.protocol.ablation_data
    settings = results.protocol.settings
    found = {}
    for method in ABLATED:
        at = [results.rows(data, method, settings, **{which: level}) for level in levels]  # type: ignore[arg-type]
        for metric in ("mpr_paper", "auc:likelihood", "auc:discrimination"):
            found[method, metric] = [mean(own, metric) for own in at]
    frame = pd.DataFrame(
        {f"{LABELS[method]}: {name_of(metric)}": [number(value, metric) for value in values]
         for (method, metric), values in found.items()},
    )  # fmt: skip
    frame.insert(0, symbol, [f"{level:g}" for level in levels])
    ranges = {
        LABELS[method]: [[value.value for value in found[method, metric] if value]
                         for metric in ("mpr_paper", "auc:discrimination")] for method in ABLATED
    }  # fmt: skip
    text = words("paper/ablation.md", protocol=results.protocol, symbol=symbol, levels=levels, data=data, ranges=ranges)
    return Section(
        target=target,
        title=f"Ablation: {symbol}",
        setup=" ".join(text["setup"]),
        tables=(Table(f"Exp and Dyn against {symbol}", frame),),
        findings=text["findings"],
        plots=(
            Plot("lines", f"MPR and AUC against {symbol}; bars are standard deviations over trials.",
                 lambda: figures.ablation(found, levels, symbol)),
        ),
        data={f"{LABELS[method]} {metric}": dict(zip(map(str, levels), plain_numbers(values), strict=True))
              for (method, metric), values in found.items()},
    )  # fmt: skip


def scale(results: Results) -> Section:
    """Return the pooled AUC against the scale c of V → cV."""
    settings = results.protocol.settings
    curves: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in SCALED}
    rows: list[tuple[str, ...]] = []
    for name, models in curves.items():
        for start in dict.fromkeys((settings, "paper")):
            for method in TRIO:
                label = LABELS[method] + ("" if start == settings else ", paper's start")
                entry = scale_entry([one["scaled"] for one in results.rows((name,), method, start).result])
                models[label] = entry
                areas = (number(statistic(values), "auc") for values in entry["auc"].values())
                means = (f"{np.mean(entry['scales'][at]):.3g}" for at in ("likelihood", "discrimination"))
                rows.append((f"{name}: {label}", *areas, f"{entry['low']:.4f} to {entry['high']:.4f}", *means))
    head = ("data: model", "AUC, as trained", "likelihood", "discrimination", "range over c",
            "c, likelihood", "c, discrimination")  # fmt: skip
    lowrank = {name: (models["LowRank"], printed_for(name)) for name, models in curves.items()}
    text = words("paper/scale.md", protocol=results.protocol, lowrank=lowrank)
    claims = claims_of(text)
    return Section(
        target="scale",
        title="The kernel's scale and the pooled AUC",
        setup=" ".join(text["setup"]),
        tables=(Table.of("Pooled AUC at three scales of the same kernel", head, rows),),
        findings=tuple(claims.values()),
        plots=(
            Plot("auc", "Pooled AUC against c relative to the scale of best held-out likelihood: LowRank (solid), Exp "
                 "and Dyn. Dotted: the paper's LowRank and CE. Marks: as trained (o), best discrimination (x).",
                 lambda: figures.scale(curves)),
        ),
        claims=claims,
        data=curves,
    )  # fmt: skip


def scale_entry(scaled: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the curve of the AUC over scales, its range, and the values of every trial at chosen scales."""

    def curve(name: str) -> Any:  # (points,)
        return np.mean([one["sweep"][name] for one in scaled], axis=0)

    def each(key: str) -> dict[str, list[float]]:
        return {name: [one[key][name] for one in scaled] for name in scaled[0][key]}

    return {
        "log10_c": scaled[0]["sweep"]["log10_c"],
        "sweep": curve("auc").tolist(),
        "low": float(curve("auc").min()),
        "high": float(curve("auc").max()),
        "high_pairs": float(curve("auc_pairs").max()),
        "auc": each("auc"),
        "scales": each("scales"),
    }
