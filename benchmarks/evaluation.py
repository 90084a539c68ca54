"""The time of a whole evaluation, as a multiple of the one matrix product that it cannot do without.

Leave-one-out ranks of every item of every basket need the products of each basket's orthonormal rows with all
items: (entries × K) times (K × M). The first line is that product alone, with all threads, its result thrown away
block by block; the second is `evaluate` with every metric, leave-one-out p@k included. The model has the
popularity start, as a trained one has norms that follow popularity.

    CONTRADPP_DATA=... python benchmarks/evaluation.py                      the Belgian test set, rank 76
    python benchmarks/evaluation.py --items 5000 --baskets 5000 --rank 50   random baskets of another size
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np

import contradpp as cd

GOAL = 2.5
ROWS = 2048  # of the bare product at a time: 270 MB of results


def random_baskets(n_baskets: int, n_items: int, seed: int) -> cd.Baskets:
    """Baskets of about ten items, their popularity falling like 1/rank."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(10, n_items + 10)
    sizes = 1 + rng.poisson(9, size=n_baskets)
    drawn = rng.choice(n_items, size=int(sizes.sum()), p=weights / weights.sum())
    return cd.Baskets.from_csr(np.concatenate([[0], np.cumsum(sizes)]), drawn, items=range(n_items))


def popularity_factors(train: cd.Baskets, rank: int, seed: int) -> np.ndarray:
    """Random directions, ‖v_i‖² the odds of item i."""
    p = (train.item_counts + 0.5) / (train.n_baskets + 1)
    directions = np.random.default_rng(seed).normal(size=(train.n_items, rank))
    return directions * (np.sqrt(p / (1 - p)) / np.linalg.norm(directions, axis=1))[:, None]


def product(V: np.ndarray, n_rows: int) -> Callable[[], None]:
    """(n_rows × K) times (K × M), in blocks that reuse their memory."""
    rows = np.random.default_rng(0).normal(size=(n_rows, V.shape[1]))
    out = np.empty((ROWS, len(V)))

    def run() -> None:
        for first in range(0, n_rows, ROWS):
            block = rows[first : first + ROWS]
            np.matmul(block, V.T, out=out[: len(block)])

    return run


def seconds(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="belgian", help="a data set, of which the test fifth is evaluated")
    parser.add_argument("--items", type=int, help="random baskets over so many items instead")
    parser.add_argument("--baskets", type=int, default=17_632, help="how many random baskets")
    parser.add_argument("--rank", type=int, default=76)
    parser.add_argument("--jobs", type=int, default=None, help="threads of the evaluation")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the best of each line counts")
    parser.add_argument("--baselines", action="store_true", help="time Popularity and ItemKNN too")
    arguments = parser.parse_args()

    if arguments.items:
        train = test = random_baskets(arguments.baskets, arguments.items, seed=0)
    else:
        train, test = cd.datasets.load(arguments.data).split(0.2, random_state=0)
    V = popularity_factors(train, arguments.rank, seed=0)
    model = cd.LowRankDPP.from_factors(V, items=train.items)
    used = test.subset(test.sizes <= arguments.rank)
    cd.evaluate(model, test.subset(np.arange(50)))  # compiles
    lines: dict[str, Callable[[], object]] = {
        "matrix product": product(V, len(used.indices)),
        "evaluate, DPP": lambda: cd.evaluate(model, test, n_jobs=arguments.jobs),
    }
    if arguments.baselines:
        popularity, neighbours = cd.baselines.Popularity().fit(train), cd.baselines.ItemKNN().fit(train)
        cd.evaluate(neighbours, test.subset(np.arange(50)))
        lines["evaluate, Popularity"] = lambda: cd.evaluate(popularity, test, n_jobs=arguments.jobs)
        lines["evaluate, ItemKNN"] = lambda: cd.evaluate(neighbours, test, n_jobs=arguments.jobs)
    times: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(arguments.repeats):  # in turn, so that a busy machine slows all of them
        for name, run in lines.items():
            times[name].append(seconds(run))
    best = {name: min(rounds) for name, rounds in times.items()}
    print(
        f"{test.n_baskets:,} baskets, {len(used.indices):,} entries, {test.n_items:,} items, rank {arguments.rank}, "
        f"best of {arguments.repeats}\n\n{'':<24}{'seconds':>9}{'ratio':>8}"
    )
    for name, time in best.items():
        print(f"{name:<24}{time:>9.2f}{time / best['matrix product']:>8.2f}")
    ratio = best["evaluate, DPP"] / best["matrix product"]
    print(f"\ngoal: at most {GOAL} times the product; measured {ratio:.2f}")
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
