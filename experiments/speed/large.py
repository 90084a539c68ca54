"""The cost of large catalogues and of many workers: time, memory and bytes. docs/scale.md has the model of cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import contradpp as cd
from contradpp.distributed import ray as engine
from contradpp.distributed.shards import Barrier, Exchange, RemoteBarrier
from experiments.speed.timing import head, made_up, row, seconds

# -- Large catalogues ----------------------------------------------------------------------------------

SOLD = 200_000
CATALOGUE = 1_000_000
BASKETS = 400_000
ASKED = 5000  # test baskets, as in docs/benchmark.md


@click.command()
@click.argument("what", type=click.Choice(["million", "instacart"]))
def large(what: str) -> None:
    """Measure time and peak memory of fitting, of the normalizer and of recommendations; Linux only.

    `million`: 1,000,000 items, 200,000 of them with partners, one round. `instacart`: fit and evaluate by default, two
    threads. Peaks are those of the whole process, libraries and data included.
    """
    head("step", "seconds", "of all threads", "peak memory", "result")
    if what == "million":
        million()
    else:
        instacart()


def timed(name: str, work: Callable[[], Any], describe: Callable[[Any], str] = lambda _: "") -> Any:
    """Do the work, and print its time and the most memory that the process had meanwhile."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # start the peak anew
    began = time.perf_counter()
    cpu = time.process_time()
    result = work()
    took = time.perf_counter() - began
    busy = time.process_time() - cpu
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20
    row(name, f"{took:.1f}", f"{busy:.1f}", f"{peak:.2f} GB", describe(result))
    return result


def planted() -> cd.Baskets:
    """Make baskets of two to ten of the items that are sold, popular by a power law, with pairs 2i and 2i + 1."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(1, 6, size=BASKETS)
    share = np.arange(1000, SOLD // 2 + 1000) ** -0.5
    kinds = rng.choice(SOLD // 2, size=int(pairs.sum()), p=share / share.sum())
    both = rng.random(len(kinds)) < 0.8  # else a half of the pair, and any other item
    first = 2 * kinds + np.where(both, 0, rng.integers(0, 2, size=len(kinds)))
    second = np.where(both, first + 1, rng.integers(0, SOLD, size=len(kinds)))
    codes = np.stack([first, second], axis=1).ravel()
    return cd.Baskets.from_csr(np.concatenate([[0], np.cumsum(2 * pairs)]), codes, items=range(CATALOGUE))


def million() -> None:
    """Measure one round of the default kernel over a million items."""
    baskets = timed("make the baskets", planted)
    model = cd.NonsymmetricDPP(max_iter=1, calibrate=None, random_state=0)
    timed("fit, one round", lambda: model.fit(baskets), lambda _: f"{model.skew_.nnz / 2:,.0f} pairs of partners")
    kernel = model.kernel_
    timed("normalizer", lambda: kernel.log_normalizer, lambda log: f"{log:.4f} ± {kernel.log_normalizer_error:.4f}")
    queries = baskets.subset(np.arange(1000))

    def partners_found(answers: Any) -> str:
        both = [
            bool(({item ^ 1 for item in basket} - set(basket)) & set(suggested))
            for basket, suggested in zip(queries, answers[0].tolist(), strict=True)
        ]
        return f"{np.mean(both):.0%} have the other half of a pair among ten"

    def as_a_full_pass(answers: list[Any]) -> str:
        basket = next(iter(queries))
        full = model.predict_next(basket)
        best = np.argsort(-full, kind="stable")[:10]
        same = answers[0][0].tolist() == best.tolist() and np.allclose(answers[0][1], full[best])
        return f"the first as by a full pass: {same}"

    timed("1,000 recommendations", lambda: model.recommend(queries, N=10), partners_found)
    timed("1,000 one at a time", lambda: [model.recommend(basket) for basket in queries], as_a_full_pass)
    timed("fit with calibration", lambda: cd.NonsymmetricDPP(max_iter=1, random_state=0).fit(baskets))


def instacart() -> None:
    """Measure fit and evaluation by default."""
    baskets = timed("read", lambda: cd.datasets.load("instacart", progress=False))
    train, test = baskets.split(0.2, random_state=0)
    queries = test.subset(np.flatnonzero(test.sizes >= 2))
    queries = queries.subset(np.sort(np.random.default_rng(0).choice(queries.n_baskets, ASKED, replace=False)))
    model = cd.NonsymmetricDPP(n_jobs=2, random_state=0)
    timed("fit", lambda: model.fit(train))
    report = timed("evaluate", lambda: cd.evaluate(model, queries, n_jobs=2))
    click.echo(f"\n{queries.n_baskets:,} test baskets\n{report}")


# -- Workers -------------------------------------------------------------------------------------------

# the Belgian shop's catalogue
M = 16_470
K = 30
BATCH = 1000


@click.command()
@click.option("--baskets", "n_baskets", default=881_620, show_default=True, help="Ten Belgian shops: twenty minutes.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--workers", "numbers", type=int, multiple=True, default=(1, 2, 4), show_default=True)
@click.option("--objective", "objectives", multiple=True, default=("dynamic", "exact"), show_default=True)
def cluster(n_baskets: int, rounds: int, numbers: tuple[int, ...], objectives: tuple[str, ...]) -> None:
    """Measure training on workers beside threads of one process: seconds a round, bytes a step, gatherings.

    All workers run on this machine, with one thread each.
    """
    baskets = made_up(n_baskets, M, 10.3, largest=K - 4)  # none fills the rank
    with tempfile.TemporaryDirectory() as folder, engine.session(None, max(numbers)) as ray:
        head("workers", "bytes each", "ms a gathering")
        for workers in numbers:
            if workers > 1:
                gatherings(ray, workers)
        lists = [list(basket) for basket in baskets]
        for part in range(4):
            pq.write_table(pa.table({"items": pa.array(lists[part::4])}), Path(folder) / f"{part}.parquet")
        del lists
        click.echo()
        head("objective", "on", "seconds a round", "over 2 threads", "MB a step", "over the model", "validation")
        for objective in objectives:
            make = partial(
                cd.LowRankDPP,
                K,
                objective=objective,
                optimizer=cd.optimizers.Adam(batch_size=BATCH),
                max_iter=rounds,
                tol=0,
            )
            two_threads = per_round(make(n_jobs=2, random_state=0).fit(baskets))[0]
            one_thread = per_round(make(n_jobs=1, random_state=0).fit(baskets))[0]
            for name, took in {"1 thread": one_thread, "2 threads": two_threads}.items():
                row(objective, name, f"{took:.2f}", f"{took / two_threads:.2f}", "–", "–", "–")
            for workers in numbers:
                model = make(n_jobs=1, random_state=0).fit(folder, engine=cd.RayEngine(workers=workers))
                took, sent = per_round(model)
                share = f"{sent / predicted(objective, workers, baskets):.2f}" if workers > 1 else "–"
                best = max(entry["validation"] for entry in model.history_)
                cells = f"{took:.2f}", f"{took / two_threads:.2f}", f"{sent / 1e6:.3f}", share, f"{best:.4f}"
                row(objective, f"{workers} workers", *cells)


def per_round(model: cd.LowRankDPP) -> tuple[float, float]:
    """Return seconds a round and bytes a step, of the rounds after the first, which also loads the kernels."""
    first = model.history_[0]
    last = model.history_[-1]
    took = (last["seconds"] - first["seconds"]) / (len(model.history_) - 1)
    sent = last.get("bytes_sent", 0) - first.get("bytes_sent", 0)
    return took, sent / (last["step"] - first["step"])


def predicted(objective: str, workers: int, baskets: cd.Baskets) -> float:
    """Return the bytes that a worker brings in a step, by docs/scale.md; negatives add few items of their own."""
    codes = 4 * BATCH * float(baskets.sizes.mean()) / workers
    rng = np.random.default_rng(1)
    samples = [rng.choice(baskets.n_baskets, size=BATCH // workers, replace=False) for _ in range(20)]
    distinct = np.mean([len(np.unique(baskets.subset(np.sort(chosen)).indices)) for chosen in samples])
    return codes + float(distinct) * (8 * K + 4) + (8 * K * K if objective == "exact" else 0)


class Talker:
    """A worker that only gathers."""

    def talk(self, exchange: Exchange, n_numbers: int, times: int) -> float:
        """Return the milliseconds of a gathering of `n_numbers` of each."""
        value = np.zeros(n_numbers)
        return 1e3 * seconds(lambda: [exchange.gather(value) for _ in range(times)]) / times


def gatherings(ray: Any, workers: int) -> None:
    """Measure a gathering, by size."""
    talkers = [ray.remote(num_cpus=1)(Talker).remote() for _ in range(workers)]
    for n_numbers in (10, 10_000, 100_000, 1_000_000):
        barrier = ray.remote(num_cpus=0, max_concurrency=workers + 2)(Barrier).remote(workers, 60.0)
        exchanges = [Exchange(rank, workers, RemoteBarrier(barrier, 60.0)) for rank in range(workers)]
        runs = [t.talk.remote(e, n_numbers, 100) for t, e in zip(talkers, exchanges, strict=True)]
        row(workers, f"{8 * n_numbers:,d}", f"{max(ray.get(runs)):.2f}")
        ray.kill(barrier)
    for talker in talkers:
        ray.kill(talker)
