"""The cost of large shops and of many workers: time, memory and bytes. docs/scale.md has the model of cost."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import contradpp as cd
from contradpp.distributed import ray as engine
from contradpp.distributed.shards import Barrier, Exchange, RemoteBarrier
from experiments.speed.timing import head, made_up, row, seconds

# -- Large shops ---------------------------------------------------------------------------------------

BASKETS_PER_FILE = 250_000
LINES = 10.0  # of a basket, on average
LARGEST = 60
CLUSTERS = 40
OF_A_CLUSTER = 0.5  # lines that are of the basket's own cluster
COMPLEMENTS = 0.15  # lines that bring the item's complement
PORT = 18_337


def write_shop(folder: Path, n_baskets: int, n_items: int) -> None:
    """Write a generated shop as Parquet files of order and item, a file at a time.

    The popularity of items is Zipf's. Half of the lines are of the basket's cluster, which holds one item in forty, and
    an item 2i brings its complement 2i + 1 now and then, or the other way about.
    """
    share = 1.0 / np.arange(30, n_items + 30)
    everywhere = np.cumsum(share / share.sum())
    n_own = n_items // CLUSTERS
    within = np.cumsum(share[:n_own] / share[:n_own].sum())
    schema = pa.schema([("order", pa.int64()), ("item", pa.int32())])
    for number, first in enumerate(range(0, n_baskets, BASKETS_PER_FILE)):
        rng = np.random.default_rng((0, number))  # a larger shop begins with the same baskets
        n = min(BASKETS_PER_FILE, n_baskets - first)
        sizes = np.minimum(rng.geometric(1 / LINES * (1 + COMPLEMENTS), size=n), LARGEST)
        order = np.repeat(np.arange(first, first + n), sizes)
        cluster = np.repeat(rng.integers(0, CLUSTERS, size=n), sizes)
        marks = rng.random(len(order))
        own = cluster + CLUSTERS * np.searchsorted(within, marks)
        items = np.where(rng.random(len(order)) < OF_A_CLUSTER, own, np.searchsorted(everywhere, marks))
        brings = rng.random(len(order)) < COMPLEMENTS
        order = np.concatenate([order, order[brings]])
        items = np.minimum(np.concatenate([items, items[brings] ^ 1]), n_items - 1)
        by_order = np.argsort(order, kind="stable")
        table = pa.table([order[by_order], items[by_order].astype(np.int32)], schema=schema)
        pq.write_table(table, folder / f"{number:03d}.parquet")


@click.command()
@click.option("--baskets", "n_baskets", default=1_000_000, show_default=True)
@click.option("--items", "n_items", default=100_000, show_default=True)
@click.option("--model", "kind", type=click.Choice(["conditional", "mixture", "kernel"]), default="conditional")
@click.option("--folder", type=click.Path(path_type=Path), help="Keep the shop and the model file there.")
@click.option("--n-jobs", default=2, show_default=True)
def large(n_baskets: int, n_items: int, kind: str, folder: Path | None, n_jobs: int) -> None:
    """Measure a generated shop from its files to recommendations: time, processor time and peak memory; Linux only.

    Peaks are those of the whole process, libraries and data included.
    """
    head("step", "seconds", "processor", "peak memory", "result")
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as name:
        home = Path(name)
        shop = home / f"{n_baskets}x{n_items}"
        if not shop.exists():
            shop.mkdir(parents=True)
            timed("write the shop", lambda: write_shop(shop, n_baskets, n_items))
        baskets = timed(
            "read",
            lambda: cd.read_baskets(shop, basket="order", item="item"),
            lambda found: f"{found.n_baskets:,} baskets, {found.n_items:,} items, {len(found.indices):,} lines",
        )
        train, test = baskets.split(min(0.02, 20_000 / n_baskets), random_state=0)
        del baskets
        model = made(kind, n_jobs)
        timed("fit", lambda: model.fit(train, callbacks=[Rounds()]))
        file = home / f"{kind}-{n_baskets}x{n_items}.safetensors"
        timed("save", lambda: model.save(file), lambda _: f"{file.stat().st_size / 1e6:.0f} MB")
        loaded = timed("load", lambda: cd.load(file))
        answers(loaded.set_params(n_jobs=1), test)
        timed("service ready", lambda: serve(file))


def made(kind: str, n_jobs: int) -> Any:
    """Make a model with its defaults."""
    classes = {"conditional": cd.ConditionalDPP, "mixture": cd.MixtureDPP, "kernel": cd.NonsymmetricDPP}
    return classes[kind](n_jobs=n_jobs, random_state=0, verbose=0)


class Rounds(cd.callbacks.Callback):
    """A row for every round of the kernel."""

    def on_iteration(self, record: Any, V: Any) -> None:
        """Print the validation score."""
        del V
        row(f"round {record['iteration']}", f"{record['seconds']:.1f}", "", "", f"{record['validation']:.4f}")


def answers(model: Any, test: cd.Baskets) -> None:
    """Measure recommendations one at a time and together, and their quality."""
    queries = test.subset(np.arange(min(1000, test.n_baskets)))
    lists = list(queries)
    model.recommend(lists[0])
    one = seconds(lambda: [model.recommend(basket) for basket in lists]) / len(lists)
    many = seconds(lambda: model.recommend(queries)) / len(lists)
    row("recommend, one thread", f"{1e3 * one:.2f} ms", f"{1e3 * many:.2f} ms in a batch of {len(lists)}", "", "")
    timed("evaluate", lambda: cd.evaluate(model, test.subset(np.arange(min(5000, test.n_baskets)))), quality)


def quality(report: Any) -> str:
    """Describe a report."""
    return f"nDCG {report.ndcg:.4f}, MPR {report.mpr:.2f}, log P {report.log_likelihood:.3f}"


def serve(file: Path) -> None:
    """Start the service, and wait until it answers."""
    command = [sys.executable, "-m", "contradpp", "serve", str(file), "--port", str(PORT)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        while server.poll() is None:
            try:
                with urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=1):
                    return
            except OSError:
                time.sleep(0.05)
        raise click.ClickException(f"the service ended with {server.returncode}")
    finally:
        server.terminate()
        server.wait()


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
