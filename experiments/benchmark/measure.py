"""The benchmark: models × data sets, on four tasks and by what they cost, with nothing chosen on test baskets.

A result is one model on one split of one data set: it is fitted once and answers all questions. Test
baskets have two or more items. An answer that a model cannot give counts as a coin toss.

- *next item*: every item left out in turn, and ranked among all others; ties count half.
- *half-hidden baskets*: ten suggestions given half of a basket of four or more items.
- *sets*: the basket against a random set of its size; once uniform, once drawn by popularity. A set is scored by
  the mean logarithm of the ranks of its items, each given the others, which every model has; by log P(A); and by
  lift, the mean of log P(i | A∖i) − log P(i), with P(i) the item's part of all sales in training.
- *likelihood*: log P(A), where a model has one, and of it log P(|A|); the difference is the composition.
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
from scipy.ndimage import gaussian_filter1d

from contradpp._random import stream
from contradpp._threads import blas_threads, resolve_n_jobs, run_blocks
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, runs, take_sets, without_each
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ContradppError, RankError
from contradpp.experts.base import SCORES_PER_BLOCK, Baseline, softmax_outside
from contradpp.experts.popularity import Popularity
from contradpp.learn.calibration import uniform_sets
from contradpp.metrics import metrics
from contradpp.metrics.ranks import ConditionalScorer, LeaveOneOut, Scorer, as_scorer
from contradpp.metrics.slates import evaluate_slates
from contradpp.metrics.tuning import validated
from experiments.benchmark.models import MODELS, Settings
from experiments.paper import training
from experiments.paper.training import PAIRS, Result
from experiments.protocol import Task

Array = NDArray[np.float64]
TUNED_ON = {"full": 10**9, "quick": 30_000}  # baskets that settings are learned from before one is chosen
# single queries that are timed, and baskets of the first fit, which compiles
N_TIMED = 40
N_WARM = 300
SUGGESTIONS = 10
HALVED_FROM = 4
LEAST_LIFT = 1e-3  # added to every lift: some scores are zero
SIZES_EXACTLY = 10**7  # items² times clusters: with more, sizes are those of samples
N_SAMPLES = 10_000


class Metric(NamedTuple):
    """A number of a basket: what tables call it, its decimals, and what counts where a model has no answer."""

    label: str
    digits: int = 4
    unanswered: float = 0.0


METRICS = {
    "ndcg": Metric("nDCG@10"), "p10": Metric("p@10", 2), "p1": Metric("p@1", 2), "mpr": Metric("MPR", 2, 50.0),
    "recall": Metric("recall@10"), "hit": Metric("any hit"), "ndcg_half": Metric("nDCG@10"),
    "matched": Metric("AUC, popular sets", 4, 0.5), "uniform": Metric("AUC, uniform sets", 4, 0.5),
    "logp_matched": Metric("AUC by log P, popular sets", 4, 0.5),
    "logp_uniform": Metric("AUC by log P, uniform sets", 4, 0.5),
    "lift_matched": Metric("AUC by lift, popular sets", 4, 0.5),
    "log_likelihood": Metric("log-likelihood", 2, float("nan")),
    "log_size": Metric("log P(size)", 2, float("nan")),
    "composition": Metric("log P(basket given its size)", 2, float("nan")),
}  # fmt: skip


# -- One result ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """A fitted model and its queries."""

    model: Any
    train: Baskets
    queries: Baskets
    seed: int
    n_jobs: int

    @cached_property
    def scorer(self) -> Scorer:
        """The model as evaluation sees it."""
        return as_scorer(self.model)

    @cached_property
    def sets(self) -> Sets:
        """The test baskets in the codes of the model."""
        return self.queries.recode(self.scorer.items, unknown="ignore").sets

    @cached_property
    def answered(self) -> NDArray[np.int64]:
        """The baskets that the model can answer; it depends on their size alone."""
        return np.flatnonzero(self.scorer.rankable(self.sets.sizes))

    @cached_property
    def ranks(self) -> LeaveOneOut:
        """Ranks of the items of the test baskets."""
        return self.rank(self.sets)

    def rank(self, sets: Sets) -> LeaveOneOut:
        """Rank every item of sets given the others, if the model can answer."""
        part = take_sets(sets, self.answered)
        return self.scorer.leave_one_out(part, part.indptr[:-1], 1, self.n_jobs)

    def spread(self, metric: str, values: Array) -> Array:
        """Return the means over the baskets that were answered, and for the others what a coin gets."""
        out = np.full(self.sets.count, METRICS[metric].unanswered)
        out[self.answered] = metrics.basket_means(values, take_sets(self.sets, self.answered).indptr)
        return out


def measure(task: Task, n_jobs: int | None) -> Result:
    """Measure one model on one split: metrics of every test basket, and costs."""
    train, test = training.split(task)
    queries = some_of(test, task.asked, task.trial)
    profile = {"profile": profile_of(train, queries)} if task.method == "popularity" else {}
    try:
        most = min(TUNED_ON[task.settings], MODELS[task.method].tuned_on)
        model, tuning = chosen(task.method, Settings(train, task.trial, n_jobs), most)
        _warm_up(task.method)
        cost, model = fitted(model, train)
        evaluation = Evaluation(model, train, queries, task.trial, resolve_n_jobs(n_jobs))
        by_basket = {name: values for ask in TASKS.values() for name, values in ask(evaluation).items()}
        query = query_milliseconds(evaluation)
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
    """Return the test baskets of two or more items, or a random part of them."""
    return test.subset(training.some(test.sizes >= PAIRS, most, stream(seed, 91)))


def asked_baskets(task: Task) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions in the data set of the test baskets, and their sizes."""
    ids = training.test_ids(task)
    sizes = training.load(task.data).sizes
    ids = ids[training.some(sizes[ids] >= PAIRS, task.asked, stream(task.trial, 91))]
    return ids, sizes[ids]


def chosen(method: str, settings: Settings, most: int) -> tuple[Any, Result]:
    """Return the unfitted model of a row; of several, the best in nDCG on a held-out tenth of the baskets.

    Of the other nine tenths, no more than `most` baskets are learned from.
    """
    models = MODELS[method].tried(settings)
    if len(models) == 1:
        return models[0], {"tried": 1}
    scores = validated(models, settings.train, settings.seed, most=most, n_jobs=settings.n_jobs)
    best = int(np.argmax(scores))
    fresh = MODELS[method].tried(settings)[best]  # some packages go on from where a fitted model was
    return fresh, {"tried": len(models), "chosen": _settings(fresh), "validation_ndcg": scores}


def _settings(model: Any) -> str:
    """Return the settings by which a chosen model differs from the others of its row."""
    inner = getattr(model, "model", None)
    if inner is None:
        return repr(model)
    names = ("factors", "regularization", "alpha", "learning_rate")
    settings = ", ".join(f"{name}={getattr(inner, name):g}" for name in names if hasattr(inner, name))
    return f"{type(inner).__name__}({settings})"


@lru_cache(maxsize=64)
def _warm_up(method: str) -> None:
    """Compile what the row needs, so that no fit is charged for it."""
    few = datasets.load("grocer", n_baskets=N_WARM)
    MODELS[method].tried(Settings(few, 0, None))[0].fit(few)


def fitted(model: Any, train: Baskets) -> tuple[Result, Any]:
    """Return wall-clock and CPU seconds, additional peak memory (Linux), and the fitted model."""
    before = _peak_from_here()
    clock = time.perf_counter()
    cpu = time.process_time()
    model.fit(train)
    seconds = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
    used = None if before is None else max(_memory("VmHWM") - before, 0.0)
    return {**seconds, "memory_mb": used, "rounds": getattr(model, "n_iter_", 0)}, model


def _peak_from_here() -> float | None:
    """Reset the process's peak of memory; return the megabytes in use, None if the system does not tell."""
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


def query_milliseconds(evaluation: Evaluation) -> float:
    """Return the median time for ten suggestions for one basket without its last item, the first query not counted."""
    taken = []
    for number in evaluation.answered[: N_TIMED + 1].tolist():
        first, last = evaluation.sets.indptr[number : number + 2].tolist()
        rest = Sets(np.array([0, last - first - 1]), evaluation.sets.indices[first : last - 1])
        basket = Baskets(rest.indptr, rest.indices, evaluation.scorer.items)
        started = time.perf_counter()
        try:
            evaluation.model.recommend(basket, SUGGESTIONS)
        except RankError:  # a symmetric kernel may hold a basket impossible
            continue
        taken.append(1000 * (time.perf_counter() - started))
    return float(np.median(taken[1:])) if len(taken) > 1 else float("nan")


def profile_of(train: Baskets, queries: Baskets) -> Result:
    """Return sizes, the concentration of sales, and the share of test pairs that met in training."""
    counts = np.sort(train.item_counts)[::-1]
    X, Y = (baskets.to_csr().astype(np.float32) for baskets in (train, queries))
    met = (X.T @ X).tocsr()
    met.setdiag(0.0)
    met = (met > 0).astype(np.float32)
    pairs = float((queries.sizes * (queries.sizes - 1)).sum())
    return {
        "n_baskets": train.n_baskets,
        "n_items": train.n_items,
        "mean_size": float(train.sizes.mean()),
        "singles": float((train.sizes == 1).mean()),
        "top_percent": float(counts[: max(len(counts) // 100, 1)].sum() / counts.sum()),
        "met_before": float((Y @ met).multiply(Y).sum()) / pairs,
        "n_asked": queries.n_baskets,
    }


# -- The tasks -------------------------------------------------------------------------------------------


def next_item(evaluation: Evaluation) -> dict[str, Array]:
    """Return every item ranked given the others of its basket, and the means over each basket."""
    better, equal, *_ = evaluation.ranks
    sizes = evaluation.sets.sizes[evaluation.answered]
    others = len(evaluation.scorer.items) + 1 - np.repeat(sizes, sizes)
    found = {
        "ndcg": metrics.ndcg(better, equal),
        "p10": 100.0 * metrics.hits(better, equal, 10),
        "p1": 100.0 * metrics.hits(better, equal, 1),
        "mpr": metrics.percentile_rank(better, equal, others),
    }
    return {name: evaluation.spread(name, values) for name, values in found.items()}


def half_hidden(evaluation: Evaluation) -> dict[str, Array]:
    """Return the ten most probable suggestions for half of a basket."""
    diversity = 0 if hasattr(evaluation.model, "slate") else None
    report = evaluate_slates(
        evaluation.model, evaluation.queries, SUGGESTIONS, min_size=HALVED_FROM, diversity=diversity,
        random_state=evaluation.seed,
    )  # fmt: skip
    return {
        name: np.nan_to_num(report.by_basket[theirs], nan=METRICS[name].unanswered)
        for name, theirs in (("recall", "recall"), ("hit", "hit"), ("ndcg_half", "ndcg"))
    }


def sets_and_likelihood(evaluation: Evaluation) -> dict[str, Array]:
    """Compare baskets with random sets by ranks and by log P(A); return also log P(A), NaN for −inf."""
    real = evaluation.sets
    scorer = evaluation.scorer
    random = {
        "uniform": Sets(real.indptr, uniform_sets(real.sizes, len(scorer.items), stream(evaluation.seed, 92))),
        "matched": popular_sets(real, evaluation.train, stream(evaluation.seed, 93)),
    }
    ours = _plausibility(evaluation, evaluation.ranks)
    logs = scorer.log_probability(real)
    lifts = (_lift(evaluation, sets) for sets in (real, random["matched"]))
    found = {"lift_matched": metrics.paired_wins(*lifts)}
    for name, sets in random.items():
        found[name] = metrics.paired_wins(ours, _plausibility(evaluation, evaluation.rank(sets)))
        if logs is not None:
            found[f"logp_{name}"] = metrics.paired_wins(logs, np.asarray(scorer.log_probability(sets)))
    if logs is not None:
        found["log_likelihood"] = np.where(np.isfinite(logs), logs, np.nan)
        of_sizes = log_sizes(evaluation)
        found["log_size"] = np.where(np.isfinite(logs), of_sizes[real.sizes], np.nan)
        found["composition"] = found["log_likelihood"] - found["log_size"]
    return found


def log_sizes(evaluation: Evaluation) -> Array:
    """Return log P(|Y| = k) for the sizes of the test baskets; of samples where the exact ones would take long.

    A sampled distribution is smoothed by a Gaussian of half a size, and by one sample of every size.
    """
    model = evaluation.model
    most = int(evaluation.sets.sizes.max(initial=0)) + 1
    logs = np.full(most, -np.inf)
    if isinstance(model, Popularity):
        probabilities = np.minimum(model.probabilities_, 1 - 1e-12)
        found = Kernel(np.zeros((len(probabilities), 0)), diagonal=probabilities / (1 - probabilities))
        exact = found.log_size_distribution
    elif hasattr(model, "log_size_distribution"):
        exact = model.log_size_distribution
    elif model.dpp.n_items**2 * getattr(model.dpp, "n_clusters", 1) <= SIZES_EXACTLY:
        exact = model.dpp.log_size_distribution
    else:
        method = "exact" if model.dpp.is_exact else "chain"
        sizes = model.sample(N_SAMPLES, random_state=evaluation.seed, method=method).sizes
        counts = np.bincount(sizes, minlength=most + 1).astype(np.float64)
        smooth = gaussian_filter1d(counts, 0.5, mode="constant") + 1.0
        exact = np.log(smooth / smooth.sum())
    logs[: len(exact)] = exact[:most]
    return logs


TASKS: dict[str, Callable[[Evaluation], dict[str, Array]]] = {
    "next": next_item, "halves": half_hidden, "sets": sets_and_likelihood,
}  # fmt: skip


def popular_sets(sets: Sets, train: Baskets, rng: np.random.Generator) -> Sets:
    """Draw a set of the same size for each, its distinct items in proportion to their sales."""
    drawn = np.empty(len(sets.indices), dtype=np.int32)
    for first, last in zip(sets.indptr[:-1].tolist(), sets.indptr[1:].tolist(), strict=True):
        found: dict[int, None] = {}
        while len(found) < last - first:  # a further draw is in proportion to what was sold of the items that are left
            found.update(dict.fromkeys(train.indices[rng.integers(0, len(train.indices), 2 * (last - first))].tolist()))
        drawn[first:last] = list(found)[: last - first]
    return Sets(sets.indptr, drawn)


def _lift(evaluation: Evaluation, sets: Sets) -> Array:
    """Return the mean over the items i of every set A of log(P(i | A∖i) / P(i) + 0.001)."""
    scorer = evaluation.scorer
    part = take_sets(sets, evaluation.answered)
    counts = evaluation.train.recode(scorer.items, unknown="ignore").item_counts + 1.0
    usual = counts / counts.sum()
    values = np.zeros(len(part.indices))
    blocks = list(runs(part.indptr, max(SCORES_PER_BLOCK // len(scorer.items), 1)))

    def work(block: int) -> None:
        some = take_sets(part, np.arange(*blocks[block]))
        rest = without_each(some)
        scores = scorer.scores_without_each(some)
        if isinstance(scorer, ConditionalScorer):
            p = softmax_outside(scores, rest)
        elif isinstance(evaluation.model, Baseline):
            p = evaluation.model._to_probabilities(scores, rest)
        else:
            p = np.maximum(scores, 0.0)
            p[rest.owners, rest.indices] = 0.0
            p /= np.maximum(p.sum(axis=1, keepdims=True), 1e-300)
        own = p[np.arange(len(p)), some.indices]
        first = int(part.indptr[blocks[block][0]])
        values[first : first + len(own)] = np.log(own / usual[some.indices] + LEAST_LIFT)

    with blas_threads(1):
        run_blocks(work, len(blocks), evaluation.n_jobs)
    return evaluation.spread("lift_matched", values)


def _plausibility(evaluation: Evaluation, ranks: LeaveOneOut) -> Array:
    """Return −mean log(1 + rank) over the items of every set, each given the others."""
    return evaluation.spread("matched", -np.log1p(ranks.better + 0.5 * ranks.equal))
