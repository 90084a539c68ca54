"""The benchmark: models × data sets, on four tasks and by what they cost, with nothing chosen on test baskets.

A result is one model on one split of one data set: it is fitted once and asked everything. Test baskets of two or more
items, of many of them so many at random. What a model cannot answer counts as a coin would.

- *next item*: every item left out in turn, and ranked among all others; ties count half.
- *half-hidden baskets*: ten suggestions given half of a basket of four or more items.
- *sets*: the basket against a random set of its size; once uniform, once drawn by popularity. A set is scored by
  the mean logarithm of the ranks of its items, each given the others, which every model has; and by log P(A).
- *likelihood*: log P(A), where a model has one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import resolve_n_jobs
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, take_sets
from contradpp.errors import ContradppError, RankError
from contradpp.learn.calibrate import uniform_sets
from contradpp.metrics import metrics
from contradpp.metrics.ranks import Outcome, Scorer, as_scorer
from contradpp.metrics.slates import evaluate_slates
from contradpp.metrics.tuning import validated
from experiments.benchmark.models import MODELS, Settings
from experiments.paper import training
from experiments.paper.training import PAIRS, Result
from experiments.protocol import Task

Array = NDArray[np.float64]
TUNED_ON = {"full": 10**9, "quick": 30_000}  # baskets that settings are learned from before one is chosen
N_TIMED, N_WARM = 40, 300  # single queries that are timed, and baskets of the first fit, which compiles
SUGGESTIONS, HALVED_FROM = 10, 4


class Metric(NamedTuple):
    """A number of a basket: what tables call it, its decimals, and what counts where a model has no answer."""

    label: str
    digits: int = 4
    unanswered: float = 0.0


METRICS = {
    "ndcg": Metric("nDCG@10"), "p10": Metric("p@10", 2), "p1": Metric("p@1", 2), "mpr": Metric("MPR", 2, 50.0),
    "recall": Metric("recall@10"), "hit": Metric("any hit"), "ndcg_half": Metric("nDCG@10"),
    "matched": Metric("AUC, popular sets", 4, 0.5), "uniform": Metric("AUC, uniform sets", 4, 0.5),
    "law_matched": Metric("AUC by log P, popular sets", 4, 0.5),
    "law_uniform": Metric("AUC by log P, uniform sets", 4, 0.5),
    "log_likelihood": Metric("log-likelihood", 2, float("nan")),
}  # fmt: skip


# -- One result ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A fitted model and what it is asked."""

    model: Any
    train: Baskets
    asked: Baskets
    seed: int
    n_jobs: int

    @cached_property
    def scorer(self) -> Scorer:
        """The model as evaluation sees it."""
        return as_scorer(self.model)

    @cached_property
    def sets(self) -> Sets:
        """The test baskets in the codes of the model."""
        return self.asked.recode(self.scorer.items, unknown="ignore").sets

    @cached_property
    def answered(self) -> NDArray[np.int64]:
        """The baskets that the model can answer; it depends on their size alone."""
        return np.flatnonzero(self.scorer.rankable(self.sets.sizes))

    @cached_property
    def ranks(self) -> Outcome:
        """How the items of the test baskets rank."""
        return self.rank(self.sets)

    def rank(self, sets: Sets) -> Outcome:
        """How every item of sets of the same sizes ranks given the others, of those that can be answered."""
        part = take_sets(sets, self.answered)
        return self.scorer.leave_one_out(part, part.indptr[:-1], 1, self.n_jobs)

    def spread(self, metric: str, values: Array) -> Array:
        """The means over the baskets that were answered, and for the others what a coin gets."""
        out = np.full(self.sets.count, METRICS[metric].unanswered)
        out[self.answered] = metrics.basket_means(values, take_sets(self.sets, self.answered).indptr)
        return out


def measure(task: Task, n_jobs: int | None) -> Result:
    """Everything about one model on one split: metrics of every test basket, and what it costs."""
    train, test = training.split(task)
    asked = some_of(test, task.asked, task.trial)
    profile = {"profile": profile_of(train, asked)} if task.method == "popularity" else {}
    try:
        most = min(TUNED_ON[task.settings], MODELS[task.method].tuned_on)
        model, tuning = chosen(task.method, Settings(train, task.trial, n_jobs), most)
        _warm_up(task.method)
        cost, model = fitted(model, train)
        question = Question(model, train, asked, task.trial, resolve_n_jobs(n_jobs))
        by_basket = {name: values for ask in TASKS.values() for name, values in ask(question).items()}
        query = query_milliseconds(question)
    except (ContradppError, MemoryError) as error:
        return {"refused": str(error)}
    means = {name: metrics.mean(np.asarray(values)) for name, values in by_basket.items()}
    return {
        "metrics": means,
        "by_basket": {name: np.round(values, 5).tolist() for name, values in by_basket.items()},
        **cost,
        "query_ms": query,
        **tuning,
        **profile,
    }


def some_of(test: Baskets, most: int, seed: int) -> Baskets:
    """Test baskets of two or more items; of many, so many at random."""
    return test.subset(training.some(test.sizes >= PAIRS, most, stream(seed, 91)))


def asked_baskets(task: Task) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions in the data set of the baskets that are asked, and their sizes."""
    ids, sizes = training.test_ids(task), training.load(task.data).sizes
    ids = ids[training.some(sizes[ids] >= PAIRS, task.asked, stream(task.trial, 91))]
    return ids, sizes[ids]


def chosen(method: str, told: Settings, most: int) -> tuple[Any, Result]:
    """The model of a row, not fitted; of several, the best in nDCG on a tenth of the baskets that it has not seen.

    Of the other nine tenths, no more than `most` baskets are learned from.
    """
    models = MODELS[method].tried(told)
    if len(models) == 1:
        return models[0], {"tried": 1}
    scores = validated(models, told.train, told.seed, most=most, n_jobs=told.n_jobs)
    best = int(np.argmax(scores))
    fresh = MODELS[method].tried(told)[best]  # some packages go on from where a fitted model was
    return fresh, {"tried": len(models), "chosen": _settings(fresh), "validation_ndcg": scores}


def _settings(model: Any) -> str:
    """How a chosen model differs from the others of its row; a model of implicit does not print its settings."""
    inner = getattr(model, "model", None)
    if inner is None:
        return repr(model)
    names = ("factors", "regularization", "alpha", "learning_rate")
    told = ", ".join(f"{name}={getattr(inner, name):g}" for name in names if hasattr(inner, name))
    return f"{type(inner).__name__}({told})"


@lru_cache(maxsize=64)
def _warm_up(method: str) -> None:
    """Compile what the row needs, so that no fit is charged for it."""
    few = datasets.load("grocer", n_baskets=N_WARM)
    MODELS[method].tried(Settings(few, 0, None))[0].fit(few)


def fitted(model: Any, train: Baskets) -> tuple[Result, Any]:
    """Seconds by the clock and of all threads, peak memory beyond what was there (Linux), and the fitted model."""
    before = _peak_from_here()
    clock, cpu = time.perf_counter(), time.process_time()
    model.fit(train)
    seconds = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
    used = None if before is None else max(_memory("VmHWM") - before, 0.0)
    return {**seconds, "memory_mb": used, "rounds": getattr(model, "n_iter_", 0)}, model


def _peak_from_here() -> float | None:
    """Start the process's peak of memory anew; the megabytes in use, None where the system does not tell."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return None
    return _memory("VmRSS")


def _memory(name: str) -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024


def query_milliseconds(question: Question) -> float:
    """The median time for ten suggestions for one basket without its last item, the first query not counted."""
    taken = []
    for number in question.answered[: N_TIMED + 1].tolist():
        first, last = question.sets.indptr[number : number + 2].tolist()
        rest = Sets(np.array([0, last - first - 1]), question.sets.indices[first : last - 1])
        basket = Baskets(rest.indptr, rest.indices, question.scorer.items)
        started = time.perf_counter()
        try:
            question.model.recommend(basket, SUGGESTIONS)
        except RankError:  # a symmetric kernel may hold a basket impossible
            continue
        taken.append(1000 * (time.perf_counter() - started))
    return float(np.median(taken[1:])) if len(taken) > 1 else float("nan")


def profile_of(train: Baskets, asked: Baskets) -> Result:
    """What the data are like: sizes, what few items sell, and how many pairs of test baskets had met before."""
    counts = np.sort(train.item_counts)[::-1]
    X, Y = (baskets.to_csr().astype(np.float32) for baskets in (train, asked))
    met = (X.T @ X).tocsr()
    met.setdiag(0.0)
    met = (met > 0).astype(np.float32)
    pairs = float((asked.sizes * (asked.sizes - 1)).sum())
    return {
        "n_baskets": train.n_baskets,
        "n_items": train.n_items,
        "mean_size": float(train.sizes.mean()),
        "singles": float((train.sizes == 1).mean()),
        "top_percent": float(counts[: max(len(counts) // 100, 1)].sum() / counts.sum()),
        "met_before": float((Y @ met).multiply(Y).sum()) / pairs,
        "n_asked": asked.n_baskets,
    }


# -- The tasks -------------------------------------------------------------------------------------------


def next_item(question: Question) -> dict[str, Array]:
    """Every item ranked given the others of its basket, and the means over each basket."""
    better, equal, _ = question.ranks
    sizes = question.sets.sizes[question.answered]
    others = len(question.scorer.items) + 1 - np.repeat(sizes, sizes)
    found = {
        "ndcg": metrics.ndcg(better, equal),
        "p10": 100.0 * metrics.hits(better, equal, 10),
        "p1": 100.0 * metrics.hits(better, equal, 1),
        "mpr": metrics.percentile_rank(better, equal, others),
    }
    return {name: question.spread(name, values) for name, values in found.items()}


def half_hidden(question: Question) -> dict[str, Array]:
    """Ten suggestions, the most probable ones, for half of a basket."""
    diversity = 0 if hasattr(question.model, "slate") else None
    report = evaluate_slates(
        question.model, question.asked, SUGGESTIONS, min_size=HALVED_FROM, diversity=diversity,
        random_state=question.seed,
    )  # fmt: skip
    return {
        name: np.nan_to_num(report.by_basket[theirs], nan=METRICS[name].unanswered)
        for name, theirs in (("recall", "recall"), ("hit", "hit"), ("ndcg_half", "ndcg"))
    }


def sets_and_likelihood(question: Question) -> dict[str, Array]:
    """Which of two sets is the basket, by ranks and by the law; and log P(A), NaN where it is 0."""
    real, scorer = question.sets, question.scorer
    random = {
        "uniform": Sets(real.indptr, uniform_sets(real.sizes, len(scorer.items), stream(question.seed, 92))),
        "matched": popular_sets(real, question.train, stream(question.seed, 93)),
    }
    ours, logs = _plausibility(question, question.ranks), scorer.log_probability(real)
    found = {}
    for name, sets in random.items():
        found[name] = metrics.paired_wins(ours, _plausibility(question, question.rank(sets)))
        if logs is not None:
            found[f"law_{name}"] = metrics.paired_wins(logs, np.asarray(scorer.log_probability(sets)))
    if logs is not None:
        found["log_likelihood"] = np.where(np.isfinite(logs), logs, np.nan)
    return found


TASKS: dict[str, Callable[[Question], dict[str, Array]]] = {
    "next": next_item, "halves": half_hidden, "sets": sets_and_likelihood,
}  # fmt: skip


def popular_sets(sets: Sets, train: Baskets, rng: np.random.Generator) -> Sets:
    """For each set one of its size, of items drawn as often as they were sold, none twice."""
    drawn = np.empty(len(sets.indices), dtype=np.int32)
    for first, last in zip(sets.indptr[:-1].tolist(), sets.indptr[1:].tolist(), strict=True):
        found: dict[int, None] = {}
        while len(found) < last - first:  # a further draw is in proportion to what was sold of the items that are left
            found.update(dict.fromkeys(train.indices[rng.integers(0, len(train.indices), 2 * (last - first))].tolist()))
        drawn[first:last] = list(found)[: last - first]
    return Sets(sets.indptr, drawn)


def _plausibility(question: Question, ranks: Outcome) -> Array:
    """−mean log(1 + rank) over the items of every set, each given the others; alike where there is no answer."""
    return question.spread("matched", -np.log1p(ranks.better + 0.5 * ranks.equal))
