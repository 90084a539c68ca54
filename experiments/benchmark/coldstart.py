"""The experiment with new items: products that training never saw, judged by their features alone.

A tenth of the products is left out of all training baskets, then added with their names, aisles and departments. Each
is left out of a test basket that holds it, and ranked among all of them. Beside it: what features do for the products
that did sell, seldom or often, on the same queries with and without them. Test baskets are looked at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import resolve_n_jobs, run_blocks
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.features import FeatureMatrix, FeatureTable
from contradpp.data.sets import Sets, pointers, take_sets
from contradpp.metrics.intervals import mean_interval
from contradpp.models.cold_start import basket_means
from contradpp.models.conditional import ConditionalDPP, next_logits
from experiments.pages import Result, Results, Section, Table, gained, words
from experiments.paper import training
from experiments.protocol import Task

Array = NDArray[np.float64]
Scores = Callable[[Sets], Array]

COLD = 0.1
RARE = 10
K = 10
METRICS = ("MPR", "hit@10")
# queries at most, at most one of a kind for every basket
N_COLD = 6000
N_RARE = 8000
N_WARM = 5000
N_AT_ONCE = 1000
PER_BLOCK = 64
N_RESAMPLES = 1000
# keys of random streams
_ITEMS = 91
_QUERIES = 92


class Queries(NamedTuple):
    """Items left out of baskets: what is left, and the item."""

    sets: Sets
    items: NDArray[np.int64]


def leave_one_out(baskets: Baskets, wanted: NDArray[np.bool_], n: int, seed: int) -> Queries:
    """Return one of the wanted items of every basket that has one and any other, at random, for at most n baskets."""
    rng = stream(seed, _QUERIES)
    rest: list[NDArray[np.int32]] = []
    items: list[int] = []
    for basket in rng.permutation(baskets.n_baskets).tolist():
        codes = baskets.codes(basket)
        places = np.flatnonzero(wanted[codes])
        if len(codes) > 1 and len(places) and len(items) < n:
            place = int(rng.choice(places))
            rest.append(np.delete(codes, place))
            items.append(int(codes[place]))
    flat = np.concatenate([*rest, np.zeros(0, dtype=np.int32)]).astype(np.int32)
    return Queries(Sets(pointers([len(codes) for codes in rest]), flat), np.array(items, dtype=np.int64))


def ranks(queries: Queries, scores: Scores, among: NDArray[np.int64], n_jobs: int) -> tuple[Array, Array]:
    """Count the competitors ahead of every item, ties by half, and all competitors."""
    ahead = np.zeros(len(queries.items))
    n_others = np.zeros(len(queries.items))

    def work(block: int) -> None:
        which = np.arange(block * PER_BLOCK, min((block + 1) * PER_BLOCK, len(ahead)))
        part = take_sets(queries.sets, which)
        predicted = scores(part)
        # Items of the basket do not compete.
        predicted[np.repeat(np.arange(part.count), part.sizes), part.indices] = np.nan
        own = predicted[np.arange(part.count), queries.items[which], None]
        others = predicted[:, among]
        ahead[which] = (others > own).sum(axis=1) + 0.5 * ((others == own).sum(axis=1) - 1)
        n_others[which] = np.isfinite(others).sum(axis=1) - 1

    run_blocks(work, -(-len(ahead) // PER_BLOCK), n_jobs)
    return ahead, n_others


def measure(task: Task, n_jobs: int | None) -> Result:
    """Measure new products by every way, sold products with and without features, and the time of additions."""
    everything = training.load(task.data)
    features = datasets.item_features(task.data)
    jobs = resolve_n_jobs(n_jobs)
    train, test = training.split(task)
    cold = np.zeros(everything.n_items, dtype=bool)
    cold[stream(task.trial, _ITEMS).permutation(everything.n_items)[: round(COLD * everything.n_items)]] = True
    known = train.items.subset(np.flatnonzero((train.item_counts > 0) & ~cold).tolist())
    warm = train.recode(known, unknown="ignore").filter(min_size=1).recode(known)
    new = [item for item, is_cold in zip(everything.items, cold.tolist(), strict=True) if is_cold]
    model = ConditionalDPP(n_jobs=n_jobs, random_state=task.trial)
    started = time.perf_counter()
    model.fit(warm, item_features=features.take(known))
    seconds = time.perf_counter() - started
    found: Result = {
        "fit_seconds": seconds,
        "explained": model.explained_,
        "warm": _with_and_without(model, test, jobs),
    }
    found["add_seconds"] = _add(model, features, new)
    found |= {"cold": _cold(model, test, new, jobs), "n_new": len(new), "n_known": len(known)}
    return found


def _add(model: ConditionalDPP, features: FeatureTable, new: list[Any]) -> float:
    """Add the new items; the seconds for the first thousand."""
    first = new[:N_AT_ONCE]
    rest = new[N_AT_ONCE:]
    started = time.perf_counter()
    model.add_items(first, features.take(first))
    seconds = time.perf_counter() - started
    model.add_items(rest, features.take(rest))
    return seconds


def _with_and_without(model: ConditionalDPP, test: Baskets, n_jobs: int) -> Result:
    """Return MPR and hits of items that sold, by the model with and without its features."""
    without = copy(model)
    without.cold_start_ = None
    baskets = test.recode(model.items_, unknown="ignore")
    counts = model.item_counts_
    everyone = np.arange(len(counts))
    found: Result = {}
    for name, wanted, n in (("fewer than ten times", counts < RARE, N_RARE), ("all", counts > 0, N_WARM)):
        queries = leave_one_out(baskets, wanted, n, seed=len(found))
        measured = {
            way: ranks(queries, partial(next_logits, one), everyone, n_jobs)
            for way, one in (("with", model), ("without", without))
        }
        found[name] = _compared(measured, "with")
    return found


def _cold(model: ConditionalDPP, test: Baskets, new: list[Any], n_jobs: int) -> Result:
    """Rank new products among new products: by the model, by the aisle, and by the cosine with the basket."""
    items = model.items_
    counts = model.item_counts_
    codes = np.array([items.code(item) for item in new])
    wanted = np.zeros(len(items), dtype=bool)
    wanted[codes] = True
    queries = leave_one_out(test.recode(items, unknown="ignore"), wanted, N_COLD, seed=2)
    categories = test.items.categories
    matrix = model.kernel_.feature_model_.matrix  # type: ignore[union-attr]
    totals: dict[Any, list[float]] = {}
    for item, count in zip(items, counts.tolist(), strict=True):
        if count > 0:
            totals.setdefault(categories.get(item), []).append(count)
    usual = np.array([np.mean(totals.get(categories.get(item), [0.0])) for item in items])
    ways: dict[str, Scores] = {
        "ours": partial(next_logits, model),
        "aisle": lambda sets: np.tile(usual, (sets.count, 1)),
        "cosine": lambda sets: _cosines(matrix, sets),
    }
    measured = {name: ranks(queries, scores, codes, n_jobs) for name, scores in ways.items()}
    measured["random"] = (measured["ours"][1] / 2, measured["ours"][1])
    return _compared(measured, "ours")


def _cosines(matrix: FeatureMatrix, sets: Sets) -> Array:
    return matrix.transposed().products(basket_means(matrix, sets)).astype(np.float64)


def _compared(measured: dict[str, tuple[Array, Array]], ours: str) -> Result:
    """Return MPR and hits of every way, and the paired difference of ours from each."""
    samples = {}
    for name, (ahead, n_others) in measured.items():
        hits = np.minimum(K / (n_others + 1), 1.0) if name == "random" else ahead < K
        samples[name] = {"MPR": 100 * (1 - ahead / np.maximum(n_others, 1)), "hit@10": 100.0 * hits}
    found: Result = {"n": len(measured[ours][0]), "ways": {}, "gains": {}}
    for name, own in samples.items():
        found["ways"][name] = {metric: float(values.mean()) for metric, values in own.items()}
        if name != ours:
            gains = {metric: samples[ours][metric] - values for metric, values in own.items()}
            found["gains"][name] = {
                metric: [float(gain.mean()), *mean_interval(gain, level=0.95, n_resamples=N_RESAMPLES, seed=0)]
                for metric, gain in gains.items()
            }
    return found


# -- The section -------------------------------------------------------------------------------------


def section(results: Results) -> Section:
    """Return the section on new products."""
    found = {task.data: result for task, result in results.by_task.items()}
    tables = []
    for data, result in found.items():
        parts = {f"{result['cold']['n']:,} test baskets, a new product among {result['n_new']:,}": result["cold"]}
        for name, part in result["warm"].items():
            parts[f"products that sold, {name}, {part['n']:,} test baskets"] = part
        tables += [_table(f"{data}: {title}", part) for title, part in parts.items()]
    text = words("benchmark/coldstart.md", found=found, n_at_once=N_AT_ONCE)
    return Section("cold-start", "New items", text["setup"][0], tuple(tables), text["findings"], data=found)


def _table(title: str, part: Result) -> Table:
    ours = next(name for name in part["ways"] if name not in part["gains"])
    rows = []
    for name, metrics in part["ways"].items():
        gains = part["gains"].get(name, {})
        differences = [gained(gains[metric], 2) if gains else "" for metric in METRICS]
        rows.append((name, *(f"{metrics[metric]:.2f}" for metric in METRICS), *differences))
    return Table.of(title, ("way", *METRICS, f"{ours} less it: MPR", "hit@10"), rows)
