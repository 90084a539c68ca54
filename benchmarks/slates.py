"""How fast slates are chosen, beside other ways to choose them, in one run.

One list: `contradpp.rerank` against pyversity's DPP (if it is installed; `pip install --target DIR pyversity`, then
PYTHONPATH) and against the published fast greedy algorithm (Chen, Zhang and Zhou 2018) with its kernel matrix built, in
plain NumPy. Every line gets the vectors as they come and has to scale them. The vectors are random, or in groups, where
items are alike, which keeps more candidates in the race.

Many lists: 10,000 lists of 200 candidates of one catalogue, whose vectors a model holds.

    python benchmarks/slates.py
    python benchmarks/slates.py --diversity 1          # variety only: every candidate must be looked at
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np

import contradpp as cd
from contradpp._threads import blas_threads
from contradpp.dpp.greedy import Lists, Rules, Trade, Vectors, choose
from experiments.speed.bench import fast_greedy

try:
    from pyversity import Strategy, diversify
except ImportError:
    diversify = None

GOAL, LISTS_GOAL = 5.0, 50_000


def made_up(n: int, d: int, *, groups: int, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and vectors: random (no groups), or around the centres of groups."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(n, d))
    if groups:
        vectors = rng.normal(size=(groups, d))[rng.integers(0, groups, n)] + 0.3 * vectors
    return rng.random(n), vectors.astype(dtype)


def best_of(run: dict[str, Callable[[], object]], repeats: int, *, calls: int = 1) -> dict[str, float]:
    """The shortest time of each, over some calls; in turn, so that a busy machine slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in run}
    for _ in range(repeats):
        for name, work in run.items():
            start = perf_counter()
            for _ in range(calls):
                work()
            times[name].append((perf_counter() - start) / calls)
    return {name: min(found) for name, found in times.items()}


def one_list(n: int, k: int, d: int, diversity: float, repeats: int) -> float:
    """The least ratio of another way to ours."""
    ratios = []
    print(f"one list: {n:,} candidates, k = {k}, {d} dimensions, diversity {diversity}, one thread\n")
    print(f"{'vectors':<22}{'method':<28}{'ms':>9}{'ratio':>8}")
    items = np.arange(n)
    for dtype in (np.float32, np.float64):
        for groups in (0, 30):
            scores, vectors = made_up(n, d, groups=groups, dtype=dtype)
            lines: dict[str, Callable[[], object]] = {
                "rerank": lambda s=scores, v=vectors: cd.rerank(items, s, k, vectors=v, diversity=diversity, n_jobs=1),
                "fast greedy, kernel built": lambda s=scores, v=vectors: fast_greedy(s, v, k, diversity),
            }
            if diversify is not None:
                lines["pyversity DPP"] = lambda s=scores, v=vectors: diversify(
                    embeddings=v, scores=s, k=k, strategy=Strategy.DPP, diversity=diversity
                )
            with blas_threads(1):
                same = lines["rerank"]()[0].tolist() == lines["fast greedy, kernel built"]()  # type: ignore[index]
                times = best_of(lines, repeats, calls=30)
            for name, time in times.items():
                kind = f"{np.dtype(dtype).name}, {'groups' if groups else 'random'}"
                print(f"{kind:<22}{name:<28}{1000 * time:>9.3f}{time / times['rerank']:>8.1f}")
            if not same:
                print("    the two greedy selections differ")
            ratios += [time / times["rerank"] for name, time in times.items() if name != "rerank"]
    return min(ratios)


def many_lists(lists: int, n: int, k: int, d: int, diversity: float, jobs: int, repeats: int) -> float:
    """Lists a second."""
    rng = np.random.default_rng(1)
    M = 20_000
    items = np.argsort(rng.random((lists, M // 10)), axis=1)[:, :n] * 10 + rng.integers(0, 10, (lists, n))
    scores = np.sort(rng.random(items.shape))[:, ::-1].copy()
    shuffled = rng.permuted(scores, axis=1)
    centres = rng.normal(size=(200, d))
    V = (centres[rng.integers(0, 200, M)] + 0.3 * rng.normal(size=(M, d))).astype(np.float32)
    model = cd.LowRankDPP.from_factors(V)
    print(f"\n{lists:,} lists of {n} candidates of {M:,} items, k = {k}, {d} dimensions, float32, {jobs} threads\n")
    lines = {
        "rerank, as a recommender gives them": lambda: cd.rerank(
            items, scores, k, kernel=model, diversity=diversity, n_jobs=jobs
        ),
        "rerank, scores in any order": lambda: cd.rerank(
            items, shuffled, k, kernel=model, diversity=diversity, n_jobs=jobs
        ),
        "the selection alone": selection(model, items, scores, k, diversity, jobs),
    }
    for work in lines.values():
        work()
    times = best_of(lines, repeats)
    tenth = items[: lists // 10], scores[: lists // 10]
    one_by_one = best_of(
        {
            "": lambda: [
                cd.rerank(a, b, k, kernel=model, diversity=diversity, n_jobs=1) for a, b in zip(*tenth, strict=True)
            ]
        },
        1,
    )[""]
    for name, time in times.items():
        print(f"{name:<40}{lists / time:>12,.0f} lists a second")
    print(f"{'rerank, one list at a time':<40}{len(tenth[0]) / one_by_one:>12,.0f} lists a second")
    return lists / times["rerank, as a recommender gives them"]


def selection(
    model: cd.LowRankDPP, items: np.ndarray, scores: np.ndarray, k: int, diversity: float, jobs: int
) -> Callable[[], object]:
    """Without the reading of the lists."""
    vectors, trade = Vectors.of_kernel(model.kernel_), Trade(k=k, diversity=diversity)
    told = Lists.plain(np.arange(len(items) + 1) * items.shape[1], scores.reshape(-1), items.reshape(-1))
    rules = Rules.of(None, items.size, k)
    return lambda: choose(vectors, told, trade, rules, n_jobs=jobs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--diversity", type=float, default=0.5)
    parser.add_argument("--dimensions", type=int, default=64, help="of the catalogue of many lists")
    parser.add_argument("--lists", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15, help="the best of each line counts")
    given = parser.parse_args()
    ratio = one_list(1000, 20, 256, given.diversity, given.repeats)
    speed = many_lists(given.lists, 200, 10, given.dimensions, given.diversity, given.jobs, max(given.repeats // 3, 1))
    print(f"\ngoals: {GOAL} times as fast as each (measured {ratio:.1f}); {LISTS_GOAL:,} lists a second ({speed:,.0f})")
    return 0 if ratio >= GOAL and speed >= LISTS_GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
