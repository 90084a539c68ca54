"""The numbers of the benchmark: means, intervals, ranks, and the lead of our model over each other one.

`summarize` makes a small dictionary, which is published as JSON; `page.py` makes everything else from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contradpp.metrics.intervals import percentiles, resamples
from experiments.benchmark import measure
from experiments.benchmark.measure import METRICS
from experiments.benchmark.models import INGREDIENTS, MODELS, OURS, Group, groups_of
from experiments.pages import Result, Results
from experiments.protocol import Task

Array = NDArray[np.float64]
Summary = dict[str, Any]
RESAMPLES = 1000
COSTS = ("cpu_seconds", "memory_mb", "query_ms")


def summarize(results: Results) -> Summary:
    """Return by column the run, the profile of the data, and every model's means, intervals, ranks and costs."""
    n_baskets = {task.data: task.asked for task in results.by_task}
    columns = {
        group.label: {
            "data": list(group.data),
            "trials": 1 + max(task.trial for task in results.by_task if task.data in group.data),
            "asked": n_baskets[group.data[0]],
            **_column(group, tasks, complete),
        }
        for group, tasks, complete in _complete(results)
    }
    summary: Summary = rounded(columns)
    return summary


def gains(results: Results) -> Summary:
    """Return the gain by every ingredient with its interval, by column, ingredient and metric."""
    found = {}
    for group, tasks, complete in _complete(results):
        draws = _draws(_answered(complete), tasks)
        found[group.label] = {
            one.pair: {
                metric: lead(by_model[one.with_it] - by_model[one.without])
                for metric, by_model in draws.items()
                if {one.with_it, one.without} <= by_model.keys()
            }
            for one in INGREDIENTS
        }
    return found


def _complete(results: Results) -> Iterator[tuple[Group, list[Task], dict[str, list[Result]]]]:
    """Yield every column, its tasks, and the results of the models that have one for each task."""
    tasks = {(task.data, task.trial): task for task in results.by_task}
    found = {(task.data, task.method, task.trial): result for task, result in results.by_task.items()}
    for group in groups_of(list(dict.fromkeys(data for data, _, _ in found))):
        keys = sorted({(data, trial) for data, _, trial in found if data in group.data})
        yield (
            group,
            [tasks[key] for key in keys],
            {
                model: [found[data, model, trial] for data, trial in keys]
                for model in MODELS
                if all((data, model, trial) in found for data, trial in keys)
            },
        )


def _answered(complete: Mapping[str, list[Result]]) -> dict[str, list[Result]]:
    """Return the models that refused no data set."""
    return {model: results for model, results in complete.items() if not any("refused" in result for result in results)}


def _column(group: Group, tasks: list[Task], complete: Mapping[str, list[Result]]) -> Summary:
    refused = {
        model: result["refused"] for model, results in complete.items() for result in results if "refused" in result
    }
    there = _answered(complete)
    draws = _draws(there, tasks)
    profiles = [result["profile"] for result in there.get("popularity", [])]
    profile = {name: float(np.mean([one[name] for one in profiles])) for name in profiles[0]} if profiles else {}
    return {
        "profile": profile,
        "refused": refused,
        "models": {model: _row(model, results, draws) for model, results in there.items()},
        "words": group.words,
    }


def _draws(there: Mapping[str, list[Result]], tasks: Sequence[Task]) -> dict[str, dict[str, Array]]:
    """Return the mean (first) and those of resampled baskets, by metric and model; all models share the baskets."""
    draws: dict[str, dict[str, Array]] = {metric: {} for metric in METRICS}
    ids, sizes = zip(*map(measure.asked_baskets, tasks), strict=True)
    for place, W in enumerate(weights([task.data for task in tasks], ids)):
        for model, results in there.items():
            for metric, values in results[place]["by_basket"].items():
                sample = np.full(W.shape[1], np.nan)
                halved = slice(None) if len(values) == len(sample) else sizes[place] >= measure.HALVED_FROM
                sample[halved] = np.array(values, dtype=np.float64)  # None is NaN
                present = ~np.isnan(sample)
                means = (W @ np.nan_to_num(sample)) / (W @ present.astype(np.float64))
                draws[metric][model] = draws[metric].get(model, 0.0) + means / len(results)
    return draws


def weights(data: Sequence[str], ids: Sequence[NDArray[np.int64]]) -> Iterator[Array]:
    """Yield for each split ones, and the counts of each test basket in every resample, (1 + RESAMPLES, n).

    Test sets of two seeds overlap: a basket, known by its position in the data set, is drawn alike in both.
    """
    for name, own in zip(data, ids, strict=True):
        union = np.unique(np.concatenate([other for one, other in zip(data, ids, strict=True) if one == name]))
        draws = resamples(len(union), RESAMPLES, seed=data.index(name))
        places = np.searchsorted(union, own)
        yield np.vstack([np.ones(len(own)), *(one[places] for one in draws)])


def _row(model: str, results: list[Result], draws: dict[str, dict[str, Array]]) -> Summary:
    """Return a model's numbers: `lead` is the lead of ours, `first` is true if no other is ahead for certain."""
    cells = {}
    for metric, by_model in draws.items():
        if model not in by_model:
            continue
        own = by_model[model]
        ahead = [other for name, other in by_model.items() if name != model and other[0] > own[0]]
        best = max(by_model.values(), key=lambda one: float(one[0]))
        low, high = interval(own)
        cells[metric] = {
            "mean": own[0], "low": low, "high": high, "rank": 1 + len(ahead),
            "first": not ahead or interval(best - own)[0] <= 0,
            "lead": lead(by_model[OURS] - own) if OURS in by_model else None,
        }  # fmt: skip
    costs = {name: [result.get(name) for result in results] for name in (*COSTS, "seconds", "tried")}
    impossible = sum(value is None for result in results for value in result["by_basket"].get("log_likelihood", ()))
    return {
        **cells,
        **{name: float(np.mean([value for value in values if value is not None] or [np.nan]))
           for name, values in costs.items()},
        "impossible": impossible,
        "chosen": sorted({result["chosen"] for result in results if result.get("chosen")}),
    }  # fmt: skip


def interval(draws: Array) -> tuple[float, float]:
    """Return the 95 % interval of draws, whose first is the value itself."""
    return percentiles(draws[1:].tolist(), 0.95)


def lead(draws: Array) -> list[float]:
    """Return a difference and its interval."""
    return [float(draws[0]), *interval(draws)]


def mean_lead(data: Sequence[str], ids: Sequence[NDArray[np.int64]], differences: Sequence[Array]) -> list[float]:
    """Return the mean over splits of differences of their test baskets, and its interval."""
    draws = [W @ d / W.sum(axis=1) for W, d in zip(weights(data, ids), differences, strict=True)]
    return lead(np.mean(draws, axis=0))


def rounded(value: Any) -> Any:
    """Return the same with six significant digits: what JSON and pages are made from."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(entry) for entry in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return bool(value) if isinstance(value, np.bool_) else value


def dump(summary: Summary) -> str:
    """Return the summary as JSON, a line for every model of a column."""
    columns = []
    for label, column in summary.items():
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in column["models"].items())
        rest = json.dumps({name: entry for name, entry in column.items() if name != "models"}, ensure_ascii=False)
        columns.append(f'{json.dumps(label)}: {rest[:-1]}, "models": {{\n{rows}\n}}}}')
    return "{\n" + ",\n".join(columns) + "\n}\n"


def frame_of(results: Results) -> pd.DataFrame:
    """Return a row for every result and number, for Parquet."""
    return pd.DataFrame(
        {"data": task.data, "model": task.method, "trial": task.trial, "asked": task.asked, "metric": metric,
         "value": value}
        for task, result in results.by_task.items() if "refused" not in result
        for metric, value in (*result["metrics"].items(), *((name, result[name]) for name in (*COSTS, "seconds")))
    )  # fmt: skip
