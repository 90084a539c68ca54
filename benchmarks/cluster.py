"""Training on several workers beside threads of one process: seconds a round, bytes a step, and what a gathering takes.

    python benchmarks/cluster.py                     # ten Belgian shops: about twenty minutes
    python benchmarks/cluster.py --baskets 100000 --rounds 2

All workers run on this machine, with one thread each. docs/scale.md has the cost model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import contradpp as cd
from contradpp.distributed import ray as engine
from contradpp.distributed.shards import Barrier, Exchange, RemoteBarrier

M, K, BATCH = 16_470, 30, 1000  # the Belgian shop's catalogue


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


def predicted(objective: str, workers: int, baskets: cd.Baskets) -> float:
    """Bytes that a worker brings in a step, by the model of docs/scale.md; negatives add few items of their own."""
    codes = 4 * BATCH * float(baskets.sizes.mean()) / workers
    rows = distinct(baskets, BATCH // workers) * (8 * K + 4)
    return codes + rows + (8 * K * K if objective == "exact" else 0)


def measured(model: cd.LowRankDPP) -> tuple[float, float]:
    """Seconds a round and bytes a step, of the rounds after the first, which also loads the kernels."""
    first, last = model.history_[0], model.history_[-1]
    seconds = (last["seconds"] - first["seconds"]) / (len(model.history_) - 1)
    sent = last.get("bytes_sent", 0) - first.get("bytes_sent", 0)
    return seconds, sent / (last["step"] - first["step"])


class Talker:
    """A worker that only gathers."""

    def talk(self, exchange: Exchange, n_numbers: int, times: int) -> float:
        """Milliseconds a gathering of so many numbers of each."""
        value = np.zeros(n_numbers)
        started = time.perf_counter()
        for _ in range(times):
            exchange.gather(value)
        return 1e3 * (time.perf_counter() - started) / times


def gatherings(ray: object, workers: int) -> None:
    """What a gathering takes, by size."""
    talkers = [ray.remote(num_cpus=1)(Talker).remote() for _ in range(workers)]
    for n_numbers in (10, 10_000, 100_000, 1_000_000):
        barrier = ray.remote(num_cpus=0, max_concurrency=workers + 2)(Barrier).remote(workers, 60.0)
        exchanges = [Exchange(rank, workers, RemoteBarrier(barrier, 60.0)) for rank in range(workers)]
        runs = [t.talk.remote(e, n_numbers, 100) for t, e in zip(talkers, exchanges, strict=True)]
        print(f"{workers} workers, {8 * n_numbers:9,d} bytes each: {max(ray.get(runs)):6.2f} ms", flush=True)
        ray.kill(barrier)
    for talker in talkers:
        ray.kill(talker)


def main() -> None:
    """Fit in every way, one after the other, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baskets", type=int, default=881_620)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--objectives", nargs="*", default=["dynamic", "exact"])
    given = parser.parse_args()
    lists = baskets_like_the_belgian(given.baskets)
    with tempfile.TemporaryDirectory() as folder, engine.session(None, max(given.workers)) as ray:
        for workers in given.workers:
            if workers > 1:
                gatherings(ray, workers)
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
                model = cd.LowRankDPP(K, n_jobs=1, **knobs).fit(folder, engine="ray", workers=workers)
                seconds, sent = measured(model)
                share = f", {sent / predicted(objective, workers, baskets):.2f} of the model" if workers > 1 else ""
                print(
                    f"{objective:8s} {workers} workers: {seconds:6.2f} s a round, {seconds / times[1]:.2f} x 2 threads"
                    f", {sent / 1e6:6.3f} MB a step{share}, "
                    f"validation {max(r['validation'] for r in model.history_):.4f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
