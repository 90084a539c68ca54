"""The experiment with new items: products that training never saw, judged by their features alone.

A tenth of the products is left out of all training baskets, then added with their names, aisles and departments. Each
is left out of a test basket that holds it, and ranked among all of them. Beside it: what features do for the products
that did sell, seldom or often, on the same questions with and without them. Test baskets are looked at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import resolve_n_jobs, run_blocks
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.features import Given, Matrix
from contradpp.data.sets import Sets, pointers, take_sets
from contradpp.metrics.intervals import mean_interval
from contradpp.models.cold_start import basket_means
from contradpp.models.conditional import ConditionalDPP
from experiments.pages import Result, Results, Section, Table, gained, words
from experiments.paper import training
from experiments.protocol import Task

Array = NDArray[np.float64]
Scores = Callable[[Sets], Array]

COLD, RARE, K = 0.1, 10, 10
METRICS = ("MPR", "hit@10")
N_COLD, N_RARE, N_WARM = 6000, 8000, 5000  # questions at most, at most one of a kind for every basket
N_AT_ONCE, PER_BLOCK, N_RESAMPLES = 1000, 64, 1000
_ITEMS, _QUESTIONS = 91, 92  # keys of random streams


class Questions(NamedTuple):
    """Items left out of baskets: what is left, and the item."""

    sets: Sets
    items: NDArray[np.int64]


def ask(baskets: Baskets, wanted: NDArray[np.bool_], n: int, seed: int) -> Questions:
    """One of the wanted items of every basket that has one and any other, at random, for at most n baskets."""
    rng = stream(seed, _QUESTIONS)
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
    return Questions(Sets(pointers([len(codes) for codes in rest]), flat), np.array(items, dtype=np.int64))


def ranks(questions: Questions, scores: Scores, among: NDArray[np.int64], n_jobs: int) -> tuple[Array, Array]:
    """How many of those it competes with are ahead of every item, ties by half, and how many there are."""
    ahead, rivals = np.zeros(len(questions.items)), np.zeros(len(questions.items))

    def work(block: int) -> None:
        which = np.arange(block * PER_BLOCK, min((block + 1) * PER_BLOCK, len(ahead)))
        part = take_sets(questions.sets, which)
        told = scores(part)
        told[np.repeat(np.arange(part.count), part.sizes), part.indices] = np.nan  # what is in the basket is no rival
        own = told[np.arange(part.count), questions.items[which], None]
        others = told[:, among]
        ahead[which] = (others > own).sum(axis=1) + 0.5 * ((others == own).sum(axis=1) - 1)
        rivals[which] = np.isfinite(others).sum(axis=1) - 1

    run_blocks(work, -(-len(ahead) // PER_BLOCK), n_jobs)
    return ahead, rivals


def measure(task: Task, n_jobs: int | None) -> Result:
    """New products by every way, products that sold with and without features, and the time to add some."""
    everything, features, jobs = training.load(task.data), datasets.item_features(task.data), resolve_n_jobs(n_jobs)
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


def _add(model: ConditionalDPP, features: Given, new: list[Any]) -> float:
    """Add the new items; the seconds for the first thousand."""
    first, rest = new[:N_AT_ONCE], new[N_AT_ONCE:]
    started = time.perf_counter()
    model.add_items(first, features.take(first))
    seconds = time.perf_counter() - started
    model.add_items(rest, features.take(rest))
    return seconds


def _with_and_without(model: ConditionalDPP, test: Baskets, n_jobs: int) -> Result:
    """MPR and hits of items that sold, by the model and by the same without what features say."""
    without = copy(model)
    without.newcomers_ = None
    asked, counts = test.recode(model.items_, unknown="ignore"), model.item_counts_
    everyone = np.arange(len(counts))
    found: Result = {}
    for name, wanted, n in (("fewer than ten times", counts < RARE, N_RARE), ("all", counts > 0, N_WARM)):
        questions = ask(asked, wanted, n, seed=len(found))
        measured = {
            way: ranks(questions, one.scores, everyone, n_jobs) for way, one in (("with", model), ("without", without))
        }
        found[name] = _compared(measured, "with")
    return found


def _cold(model: ConditionalDPP, test: Baskets, new: list[Any], n_jobs: int) -> Result:
    """New products among new products: by the model, by the aisle, and by the cosine with the basket."""
    items, counts = model.items_, model.item_counts_
    codes = np.array([items.code(item) for item in new])
    wanted = np.zeros(len(items), dtype=bool)
    wanted[codes] = True
    questions = ask(test.recode(items, unknown="ignore"), wanted, N_COLD, seed=2)
    shelves, matrix = test.items.categories, model.estimator_.kin_.matrix  # type: ignore[union-attr]
    totals: dict[Any, list[float]] = {}
    for item, count in zip(items, counts.tolist(), strict=True):
        if count > 0:
            totals.setdefault(shelves.get(item), []).append(count)
    usual = np.array([np.mean(totals.get(shelves.get(item), [0.0])) for item in items])
    ways: dict[str, Scores] = {
        "ours": model.scores,
        "aisle": lambda sets: np.tile(usual, (sets.count, 1)),
        "cosine": lambda sets: _cosines(matrix, sets),
    }
    measured = {name: ranks(questions, scores, codes, n_jobs) for name, scores in ways.items()}
    measured["random"] = (measured["ours"][1] / 2, measured["ours"][1])
    return _compared(measured, "ours")


def _cosines(matrix: Matrix, sets: Sets) -> Array:
    return matrix.turned().products(basket_means(matrix, sets)).astype(np.float64)


def _compared(measured: dict[str, tuple[Array, Array]], ours: str) -> Result:
    """MPR and hits of every way, and the paired difference of ours from each."""
    samples = {}
    for name, (ahead, rivals) in measured.items():
        hits = np.minimum(K / (rivals + 1), 1.0) if name == "random" else ahead < K
        samples[name] = {"MPR": 100 * (1 - ahead / np.maximum(rivals, 1)), "hit@10": 100.0 * hits}
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
    """New products, rare ones and all."""
    found = {task.data: result for task, result in results.by_task.items()}
    tables = []
    for data, result in found.items():
        parts = {f"{result['cold']['n']:,} test baskets, a new product among {result['n_new']:,}": result["cold"]}
        for name, part in result["warm"].items():
            parts[f"products that sold, {name}, {part['n']:,} test baskets"] = part
        tables += [_table(f"{data}: {title}", part) for title, part in parts.items()]
    told = words("benchmark/coldstart.md", found=found, n_at_once=N_AT_ONCE)
    return Section("cold-start", "New items", told["setup"][0], tuple(tables), told["findings"], data=found)


def _table(title: str, part: Result) -> Table:
    ours = next(name for name in part["ways"] if name not in part["gains"])
    rows = []
    for name, metrics in part["ways"].items():
        gains = part["gains"].get(name, {})
        differences = [gained(gains[metric], 2) if gains else "" for metric in METRICS]
        rows.append((name, *(f"{metrics[metric]:.2f}" for metric in METRICS), *differences))
    return Table.of(title, ("way", *METRICS, f"{ours} less it: MPR", "hit@10"), rows)
