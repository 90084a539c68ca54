"""The time of answers: a whole evaluation, exact samples and slates, beside what else computes them."""

from __future__ import annotations

import contextlib
import io
import sys
from functools import partial
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

import contradpp as cd
from contradpp._random import stream
from contradpp._threads import blas_threads
from contradpp.learn.state import start_factors
from experiments.speed.bench import fast_greedy
from experiments.speed.timing import Work, best_times, head, random_factors, row

ROWS = 2048  # of the bare product at a time: 270 MB of results


def compare(lines: dict[str, Work], rounds: int, calls: int = 1) -> dict[str, float]:
    """Time the lines in turn, by name."""
    return dict(zip(lines, best_times(lines.values(), rounds, calls), strict=True))


@click.command()
@click.option("--data", default="belgian", show_default=True, help="A data set, of which the test fifth is evaluated.")
@click.option("--rank", default=76, show_default=True)
@click.option("--n-jobs", type=int, help="Threads of the evaluation.")
def evaluation(data: str, rank: int, n_jobs: int | None) -> None:
    """Measure a whole evaluation as a multiple of the one matrix product that it cannot do without (goal: 2.5).

    Leave-one-out ranks of every item of every basket need the products of each basket's orthonormal rows with all
    items: (entries × K) times (K × M). The first line is that product alone, with all threads, its result thrown away
    block by block; the others are `evaluate` with every metric. The kernel has the popularity start.
    """
    train, test = cd.datasets.load(data).split(0.2, random_state=0)
    V = start_factors("popularity", train.item_counts, train.n_baskets, rank, stream(0))
    entries = int(test.sizes[test.sizes <= rank].sum())
    rows = np.random.default_rng(0).normal(size=(entries, rank))
    out = np.empty((ROWS, len(V)))

    def product() -> None:
        for first in range(0, entries, ROWS):
            block = rows[first : first + ROWS]
            np.matmul(block, V.T, out=out[: len(block)])

    models = {
        "DPP": cd.LowRankDPP.from_factors(V, items=train.items),
        "Popularity": cd.baselines.Popularity().fit(train),
        "ItemKNN": cd.baselines.ItemKNN().fit(train),
    }
    lines: dict[str, Work] = {"matrix product": product}
    for name, model in models.items():
        lines[f"evaluate, {name}"] = partial(cd.evaluate, model, test, n_jobs=n_jobs)
    times = compare(lines, 3)
    click.echo(f"{test.n_baskets:,} baskets, {entries:,} entries, {test.n_items:,} items, rank {rank}\n")
    head("", "seconds", "ratio")
    for name, took in times.items():
        row(name, f"{took:.2f}", f"{took / times['matrix product']:.2f}")


@click.command()
@click.option("--samples", default=20_000, show_default=True, help="Of ours; DPPy draws a thousandth.")
def sampling(samples: int) -> None:
    """Measure the time per exact sample beside DPPy's dual sampler, on the same random kernel (goal: a tenth).

    16,470 items, rank 76, about ten items a sample.

    DPPy is no dependency of ours; an environment that has both:

    \b
    python -m venv BOTH && BOTH/bin/pip install -e '.[experiments]' dppy==0.3.3
    BOTH/bin/python -m experiments speed sampling
    """
    V = random_factors(16_470, 76)
    model = cd.LowRankDPP.from_factors(V).set_params(n_jobs=1)
    few = max(samples // 1000, 20)
    several = samples // 20
    lines: dict[str, tuple[int, Work]] = {
        "ours, in one call": (samples, lambda: model.sample(samples, random_state=1)),
        "ours, one a call": (several, lambda: [model.sample(random_state=seed) for seed in range(several)]),
    }
    with contextlib.suppress(ImportError), contextlib.redirect_stdout(io.StringIO()):  # it prints when it is made
        from dppy.finite_dpps import FiniteDPP

        theirs = FiniteDPP("likelihood", L_gram_factor=V.T)
        lines["DPPy, dual"] = few, lambda: [theirs.sample_exact(random_state=1 + seed) for seed in range(few)]
    times = compare({name: draw for name, (_, draw) in lines.items()}, 3)
    head("sampler", "samples", "µs a sample", "over ours in one call")
    each = {name: 1e6 * times[name] / n for name, (n, _) in lines.items()}
    for name, took in each.items():
        row(name, f"{lines[name][0]:,}", f"{took:.1f}", f"{took / each['ours, in one call']:.1f}")
    if "DPPy, dual" not in lines:
        sys.exit("DPPy is not installed here: pip install dppy==0.3.3 (best in an environment of its own)")


@click.command()
@click.option("--diversity", default=0.5, show_default=True, help="1: variety only; every candidate is looked at.")
@click.option("--repeats", default=15, show_default=True, help="The best of each line counts.")
def slates(diversity: float, repeats: int) -> None:
    """Measure how fast slates are chosen, beside other ways to choose them (goals: a fifth; 50,000 lists a second).

    One list: `contradpp.rerank` beside pyversity's DPP (if it is installed; `pip install --target DIR pyversity`, then
    PYTHONPATH) and the published fast greedy algorithm (Chen, Zhang and Zhou 2018) with its kernel matrix built, in
    plain NumPy. Every line gets the vectors as they come and has to scale them. The vectors are random, or in groups,
    where items are alike, which keeps more candidates in the race.

    Many lists: 10,000 lists of 200 candidates of one catalogue, whose vectors a model holds.
    """
    click.echo(f"One list: 1,000 candidates, k = 20, 256 dimensions, diversity {diversity}, one thread\n")
    head("vectors", "method", "ms", "ratio")
    for dtype in ("float32", "float64"):
        for groups in (0, 30):
            rng = np.random.default_rng(0)
            vectors = rng.normal(size=(1000, 256))
            if groups:
                vectors = rng.normal(size=(groups, 256))[rng.integers(0, groups, 1000)] + 0.3 * vectors
            one_list(rng.random(1000), vectors.astype(dtype), f"{dtype}, {groups} groups", diversity, repeats)
    many_lists(diversity, max(repeats // 3, 1))


def one_list(
    scores: NDArray[Any], vectors: NDArray[Any], name: str, diversity: float, repeats: int, k: int = 20
) -> None:
    """Time every method on one list, and check that the two greedy selections are the same."""
    items = np.arange(len(scores))
    ours = partial(cd.rerank, items, scores, k, vectors=vectors, diversity=diversity, n_jobs=1)
    greedy = partial(fast_greedy, scores, vectors, k, diversity)
    lines: dict[str, Work] = {"rerank": ours, "fast greedy, kernel built": greedy}
    with contextlib.suppress(ImportError):
        from pyversity import Strategy, diversify

        method = {"strategy": Strategy.DPP, "diversity": diversity}
        lines["pyversity DPP"] = partial(diversify, embeddings=vectors, scores=scores, k=k, **method)
    with blas_threads(1):
        times = compare(lines, repeats, calls=30)
        same = ours()[0].tolist() == greedy()
    for method_name, took in times.items():
        row(name, method_name, f"{1000 * took:.3f}", f"{took / times['rerank']:.1f}")
    if not same:
        row(name, "the two greedy selections differ", "", "")


def many_lists(diversity: float, repeats: int, lists: int = 10_000, n: int = 200, k: int = 10) -> None:
    """Count lists a second of 20,000 items in 64 dimensions, float32, all in one call and one at a time."""
    rng = np.random.default_rng(1)
    M = 20_000
    items = np.argsort(rng.random((lists, M // 10)), axis=1)[:, :n] * 10 + rng.integers(0, 10, (lists, n))
    falling = np.sort(rng.random(items.shape))[:, ::-1].copy()
    shuffled = rng.permuted(falling, axis=1)
    centers = rng.normal(size=(200, 64))
    V = (centers[rng.integers(0, 200, M)] + 0.3 * rng.normal(size=(M, 64))).astype(np.float32)
    rerank = partial(cd.rerank, k=k, kernel=cd.LowRankDPP.from_factors(V), diversity=diversity)
    few = lists // 10
    lines: dict[str, tuple[int, Work]] = {
        "candidates by falling score": (lists, lambda: rerank(items, falling, n_jobs=2)),
        "candidates in any order": (lists, lambda: rerank(items, shuffled, n_jobs=2)),
        "one list at a time": (few, lambda: [rerank(items[i], falling[i], n_jobs=1) for i in range(few)]),
    }
    times = compare({name: work for name, (_, work) in lines.items()}, repeats)
    click.echo()
    head(f"{n} candidates of {M:,} items, k = {k}, two threads", "lists a second")
    for name, (count, _) in lines.items():
        row(name, f"{count / times[name]:,.0f}")
