"""Training on several workers beside threads of one process: seconds a round, and bytes a step beside the cost model.

    python benchmarks/cluster.py                     # ten Belgian shops: about twenty minutes
    python benchmarks/cluster.py --baskets 100000 --rounds 2

All workers run on this machine, with one thread each. docs/scale.md has the model in words.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import contradpp as cd
from contradpp.distributed import ray as engine
from contradpp.distributed.drawing import TRIES

M, K, BATCH, HELD = 16_470, 30, 1000, 5000  # the Belgian shop's catalogue
LOCAL_STEPS = 50
RATIO = 0.5  # negatives a basket


def baskets_like_the_belgian(n: int, seed: int = 0) -> list[list[int]]:
    """Items by popularity, sizes about geometric with a mean of ten, none that fills the rank (docs/scale.md)."""
    rng = np.random.default_rng(seed)
    popularity = 1 / np.arange(1, M + 1) ** 0.8
    sizes = np.clip(rng.geometric(1 / 10.3, size=n), 2, K - 4)
    drawn = rng.choice(M, size=int(sizes.sum()), p=popularity / popularity.sum())
    return [np.unique(part).tolist() for part in np.split(drawn, np.cumsum(sizes)[:-1])]


def distinct(baskets: cd.Baskets, n: int, seed: int = 1) -> float:
    """How many different items n baskets have, on average."""
    rng = np.random.default_rng(seed)
    samples = [rng.choice(baskets.n_baskets, size=n, replace=False) for _ in range(20)]
    return float(np.mean([len(np.unique(baskets.subset(np.sort(chosen)).indices)) for chosen in samples]))


def predicted(mode: str, objective: str, workers: int, baskets: cd.Baskets) -> float:
    """Bytes that a worker sends in a step, by the model of docs/scale.md."""
    n, s = workers, float(baskets.sizes.mean())
    if n == 1:
        return 0.0
    dynamic = objective == "dynamic"
    sets = BATCH * (1 + RATIO) if dynamic else BATCH
    if mode == "replicated":
        entries = sets * s
        results = 8 * (entries * K + sets) + 4 * RATIO * BATCH * s if dynamic else 8 * (2 * entries * K + 2 * sets)
        return (results + 4 * BATCH * s) * (n - 1) / n
    if mode == "local":
        steps = -(-(baskets.n_baskets - HELD) // (BATCH * n))
        between = (steps - 1) // LOCAL_STEPS  # meetings within a round; at its end all rows are settled
        moved = distinct(baskets, min(int(sets * LOCAL_STEPS), baskets.n_baskets)) if between else 0.0
        return (between * moved + baskets.n_items) * 8 * (K + 1) * (n - 1) / steps
    fresh = new_items(baskets, RATIO * BATCH / n) if dynamic else 0.0  # negatives share all but one item with a basket
    rows = distinct(baskets, BATCH // n) + fresh
    small = 8 * (n - 1) * (K * K + 2) + (0 if dynamic else 8 * (n - 1) * K * K)
    gradient = rows * (16 * K + 4) * (n - 1) / n + small
    if not dynamic:
        return gradient
    parents = distinct(baskets, int(RATIO * BATCH / n))
    norms = 12 * (distinct(baskets, BATCH) + new_items(baskets, RATIO * BATCH)) / n * (n - 1)
    proposed = sum(proposals(baskets, RATIO * BATCH / n))
    return gradient + (parents + proposed) * (8 * K + 4) * (n - 1) / n + norms


def new_items(baskets: cd.Baskets, draws: float) -> float:
    """How many items that twice as many baskets lack are among so many drawn by popularity."""
    share = np.bincount(baskets.indices, minlength=baskets.n_items) / len(baskets.indices)
    seen = draws / RATIO * float(baskets.sizes.mean())
    return float(((1 - share) ** seen * (1 - (1 - share) ** draws)).sum())


def proposals(baskets: cd.Baskets, n: float) -> list[float]:
    """How many different items are proposed for n negatives, round after round.

    A candidate is an item by its popularity; a set of k items rejects it with a probability of about (k − 1)/K.
    """
    rejection = np.minimum((baskets.sizes - 1) / K, 1 - 1 / K)
    tried = np.cumsum(TRIES) - TRIES
    counts = [n * tries * float(np.mean(rejection**before)) for tries, before in zip(TRIES, tried, strict=True)]
    share = np.bincount(baskets.indices, minlength=baskets.n_items) / len(baskets.indices)
    return [float((1 - (1 - share) ** count).sum()) for count in counts]


def measured(model: cd.LowRankDPP) -> tuple[float, float]:
    """Seconds a round and bytes a step, of the rounds after the first, which also loads the kernels."""
    first, last = model.history_[0], model.history_[-1]
    seconds = (last["seconds"] - first["seconds"]) / (len(model.history_) - 1)
    sent = last.get("bytes_sent", 0) - first.get("bytes_sent", 0)
    return seconds, sent / (last["step"] - first["step"])


def main() -> None:
    """Fit in every way, one after the other, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baskets", type=int, default=881_620)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--objectives", nargs="*", default=["dynamic", "exact"])
    given = parser.parse_args()
    lists = baskets_like_the_belgian(given.baskets)
    with tempfile.TemporaryDirectory() as folder, engine.session(None, max(given.workers)):
        for part in range(4):
            pq.write_table(pa.table({"items": pa.array(lists[part::4])}), Path(folder) / f"{part}.parquet")
        del lists
        baskets = cd.read_baskets(folder)
        for objective in given.objectives:
            knobs = {"objective": objective, "batch_size": BATCH, "max_iter": given.rounds, "tol": 0, "random_state": 0}
            times = []
            for threads in (1, 2):
                model = cd.LowRankDPP(K, n_jobs=threads, **knobs).fit(baskets)
                times.append(measured(model)[0])
                print(f"{objective:8s} {threads} threads: {times[-1]:6.2f} s a round", flush=True)
            for workers in given.workers:
                for mode in ("replicated", "sharded", "local"):
                    model = cd.LowRankDPP(K, n_jobs=1, **knobs).fit(
                        folder, engine="ray", workers=workers, mode=mode, local_steps=LOCAL_STEPS
                    )
                    seconds, sent = measured(model)
                    model_says = predicted(mode, objective, workers, baskets)
                    share = f", {sent / model_says:.2f} of the model" if model_says else ""
                    print(
                        f"{objective:8s} {workers} workers, {mode:10s}: {seconds:6.2f} s a round, "
                        f"{seconds / times[1]:.2f} x 2 threads, {sent / 1e6:6.3f} MB a step{share}, "
                        f"validation {max(r['validation'] for r in model.history_):.4f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
