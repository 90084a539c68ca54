"""What steps of one's own cost in quality and save in time: a model of a data set by one machine, and by local steps.

    python benchmarks/local_steps.py belgian --workers 2 --steps 10 50 200

All train until they converge, or for as many rounds as are given; 20 % of the baskets are held out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import contradpp as cd
from contradpp.distributed import ray as engine

FILES = 4


def line(name: str, model: cd.LowRankDPP, seconds: float, train: cd.Baskets, test: cd.Baskets) -> str:
    """Quality on held-out baskets, and what it took."""
    report = cd.evaluate(model, test, train=train, random_state=0)
    last = model.history_[-1]
    sent = last.get("bytes_sent", 0) / last["step"]
    best = max(record["validation"] for record in model.history_)
    return (
        f"{name:28s} MPR {report.mpr:.2f}, p@10 {report.precision[10]:.2f} %, validation {best:.4f}, "
        f"{model.n_iter_} rounds, {last['seconds']:.1f} s of training ({seconds:.0f} s in all), "
        f"{sent / 1e3:.0f} kB a step"
    )


def main() -> None:
    """Fit in every way, one after the other, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a name of `contradpp data list`, or a file")
    parser.add_argument("--rank", type=int, default=76)
    parser.add_argument("--objectives", nargs="*", default=["exact", "dynamic"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, nargs="*", default=[10, 50, 200])
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()
    known = given.data in cd.datasets.names()
    baskets = cd.datasets.load(given.data) if known else cd.read_baskets(given.data)
    train, test = baskets.split(0.2, random_state=0)
    with tempfile.TemporaryDirectory() as folder, engine.session(None, given.workers):
        lists = [list(basket) for basket in train]
        for part in range(FILES):
            pq.write_table(pa.table({"items": pa.array(lists[part::FILES])}), Path(folder) / f"{part}.parquet")
        for objective in given.objectives:
            knobs = {"objective": objective, "oversize": "drop", "max_iter": given.rounds, "random_state": 0}
            started = time.perf_counter()
            model = cd.LowRankDPP(given.rank, **knobs).fit(train)
            print(line(f"{objective}, one machine", model, time.perf_counter() - started, train, test), flush=True)
            for steps in given.steps:
                started = time.perf_counter()
                model = cd.LowRankDPP(given.rank, n_jobs=1, **knobs).fit(
                    folder, engine="ray", workers=given.workers, mode="local", local_steps=steps
                )
                name = f"{objective}, local, {steps} steps"
                print(line(name, model, time.perf_counter() - started, train, test), flush=True)


if __name__ == "__main__":
    main()
