"""Speed, as ratios measured in one run: each figure against its limit or a reference beside it.

docs/performance.md says how each is computed. Absolute times mean little on a shared machine; a ratio of two
times taken in turn, the best of several rounds each, means the same everywhere.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.sets import take_sets
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.sample import Sampler
from contradpp.errors import ContradppError, DownloadError
from contradpp.learn.start import start_factors
from contradpp.learn.state import SETS_PER_BLOCK
from contradpp.models.learning import as_sets
from contradpp.models.lowrank import LowRankDPP

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """One measured ratio with its goal: `at_most` says which side of the goal is good."""

    name: str
    value: float
    goal: float
    at_most: bool
    unit: str = "×"
    detail: str = ""

    @property
    def reached(self) -> bool:
        """Whether the goal is met."""
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "reached": self.reached}


def run(*, quick: bool = False) -> Iterator[Figure]:
    """All figures, one after the other."""
    rounds = 3 if quick else 7
    belgian, uk = shop("belgian"), shop("uk")
    yield gradient_share("belgian", belgian, 76, 0.30, rounds)
    yield gradient_share("uk", uk, 100, 0.40, rounds)
    yield from epochs(belgian)
    yield from threads(belgian)
    yield from catalogue_size()
    yield one_basket(belgian, rounds)
    yield top_ten(belgian, 2_000 if quick else 10_000)
    yield sampling(rounds)
    yield from memory()
    yield from first_call()


def shop(name: str) -> Baskets:
    """The real data if it can be had, else baskets of the same shape: sizes, catalogue, popularity."""
    try:
        return datasets.load(name, progress=False)
    except DownloadError:
        n, M, mean = {"belgian": (88_162, 16_470, 9.3), "uk": (20_097, 3_802, 22.0)}[name]
        return made_up(n, M, mean)


def made_up(n_baskets: int, n_items: int, mean_size: float, *, catalogue: int | None = None) -> Baskets:
    """Baskets with a Zipf-like popularity and geometric sizes of at most 60, in a catalogue that may be larger."""
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.geometric(1 / mean_size, size=n_baskets), 60)
    share = 1.0 / np.arange(10, n_items + 10)
    codes = rng.choice(n_items, size=int(sizes.sum()), p=share / share.sum()).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return Baskets.from_csr(indptr, codes, items=range(catalogue or n_items))


def best_time(work: Callable[[], object], rounds: int) -> float:
    """The shortest of several times, in seconds; the first call, which may compile, does not count."""
    return best_times([work], rounds)[0]


def best_times(works: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The shortest time of each, taken in turn, so that what else the machine does hits all alike."""
    for work in works:
        work()
    times = np.empty((rounds, len(works)))
    for turn in range(rounds):
        for number, work in enumerate(works):
            started = time.perf_counter()
            work()
            times[turn, number] = time.perf_counter() - started
    return [float(best) for best in times.min(axis=0)]


def random_model(n_items: int, n_components: int, expected_size: float = 10.0) -> Array:
    """Factors of a random kernel with about this expected size."""
    rng = np.random.default_rng(0)
    V: Array = rng.standard_normal((n_items, n_components))
    share = expected_size / n_components
    V *= np.sqrt(share / (1 - share) / n_items)
    return V


def gradient_share(name: str, baskets: Baskets, K: int, goal: float, rounds: int) -> Figure:
    """GFLOP/s of the gradient kernel over those of dgemm: k(k+1)K + 2k²K + k³/3 operations a basket of k items."""
    from contradpp.dpp.compiled import gradients

    n = min(baskets.n_baskets, 20_000)
    part = baskets.subset(np.arange(n))
    V = start_factors("popularity", part.item_counts, n, K, stream(0))
    batches = [take_sets(as_sets(part), np.arange(first, min(first + 1000, n))) for first in range(0, n, 1000)]
    rows, logs = np.empty((max(len(batch.indices) for batch in batches), K)), np.empty(1000)

    def kernel() -> None:
        for batch in batches:  # as a training step does it
            for first in range(0, batch.count, SETS_PER_BLOCK):
                last = min(first + SETS_PER_BLOCK, batch.count)
                gradients.log_det_gradients(V, batch.indptr, batch.indices, first, last, rows, logs)

    k = part.sizes.astype(np.float64)
    operations = float((k * (k + 1) * K + 2 * k * k * K + k**3 / 3).sum())
    square = np.random.default_rng(0).standard_normal((1000, 1000))
    with blas_threads(1):
        product, ours = best_times([lambda: square @ square, kernel], 3 * rounds)
    dgemm, speed = 2e9 / product, operations / ours
    detail = f"{speed / 1e9:.1f} of {dgemm / 1e9:.1f} GFLOP/s"
    return Figure(f"gradient kernel, {name}: share of dgemm", 100 * speed / dgemm, 100 * goal, False, "%", detail)


def epoch_seconds(baskets: Baskets, K: int, objective: str, n_jobs: int) -> float:
    """The shortest round over the data, the first one left out."""
    model = LowRankDPP(K, objective=objective, n_jobs=n_jobs, max_iter=3, tol=0, random_state=0)
    model.set_params(calibrate=None, oversize="drop").fit(baskets, validation=0.001)
    times = np.diff([0.0, *(entry["seconds"] for entry in model.history_)])
    return float(times[1:].min())


def best_epochs(runs: Sequence[tuple[Baskets, int, str, int]]) -> list[float]:
    """The shortest round of each (baskets, K, objective, threads), two fits of each in turn."""
    return [min(pair) for pair in zip(*([epoch_seconds(*run) for run in runs] for _ in range(2)), strict=True)]


def epochs(baskets: Baskets) -> Iterator[Figure]:
    """An epoch of each objective over one of `mle`, batch 1000, one thread."""
    goals = {"dynamic": 1.3, "explicit": 1.3, "exact": 2.0, "nce": 1.8}
    base, *others = best_epochs([(baskets, 76, objective, 1) for objective in ("mle", *goals)])
    for (objective, goal), seconds in zip(goals.items(), others, strict=True):
        yield Figure(f"epoch of {objective} over mle", seconds / base, goal, True, "×", f"{seconds:.2f} / {base:.2f} s")


def threads(baskets: Baskets) -> Iterator[Figure]:
    """Two threads over one, and beside it what two threads of BLAS gain here: cores may share their units."""
    square = np.random.default_rng(0).standard_normal((1500, 1500))
    times = []
    for number in (1, 2):
        with blas_threads(number):
            times.append(best_time(lambda: square @ square, 5))
    for objective in ("mle", "dynamic"):
        one, two = best_epochs([(baskets, 76, objective, jobs) for jobs in (1, 2)])
        name = f"two threads over one, epoch of {objective}"
        yield Figure(name, one / two, 1.7, False, "×", f"dgemm itself: {times[0] / times[1]:.2f}×")


def catalogue_size() -> Iterator[Figure]:
    """Time per basket with a million items over ten thousand, the same baskets otherwise."""
    shops = [made_up(20_000, 10_000, 9.3, catalogue=M) for M in (10_000, 1_000_000)]
    for objective, goal in (("dynamic", 1.5), ("mle", 3.0), ("exact", 3.0)):
        small, large = best_epochs([(baskets, 64, objective, 1) for baskets in shops])
        yield Figure(f"epoch of {objective}, M = 10⁶ over 10⁴", large / small, goal, True)


def one_basket(baskets: Baskets, rounds: int) -> Figure:
    """P(next | basket of ten) over the bare product V (M×K) times (K×10)."""
    V = random_model(baskets.n_items, 76)
    model = LowRankDPP.from_factors(V, items=baskets.items).set_params(n_jobs=1)
    ten = [baskets.items[code] for code in range(10)]
    other = np.ascontiguousarray(V[:10].T)
    with blas_threads(1):
        product, ours = best_times([lambda: V @ other, lambda: model.predict_next(ten)], 20 * rounds)
    return Figure("next item, one basket of 10, over the bare product", ours / product, 1.5, True, "×",
                  f"{1e3 * ours:.2f} / {1e3 * product:.2f} ms")  # fmt: skip


def top_ten(baskets: Baskets, n: int) -> Figure:
    """The best ten for many baskets in one call over the same matrix product."""
    V = random_model(baskets.n_items, 76)
    model = LowRankDPP.from_factors(V, items=baskets.items).set_params(n_jobs=1)
    sizes = baskets.sizes
    queries = baskets.subset(np.flatnonzero((sizes >= 1) & (sizes < 70))[:n])
    rows = np.ascontiguousarray(V[queries.indices])

    def product() -> None:
        for first in range(0, len(rows), 512):
            rows[first : first + 512] @ V.T

    with blas_threads(1):
        bare, ours = best_times([product, lambda: model.recommend(queries, N=10)], 2)
    return Figure(
        f"top 10 of {n:,} baskets over the product", ours / bare, 2.0, True, "×", f"{ours:.1f} / {bare:.1f} s"
    )


def sampling(rounds: int) -> Figure:
    """One sample after preparation, a million items over ten thousand, K = 64."""
    times = []
    for M in (10_000, 1_000_000):
        sampler = Sampler(Kernel(random_model(M, 64)))
        times.append(best_time(partial(sampler.sample, 1000, seed=0), rounds) / 1000)
    return Figure("one sample, M = 10⁶ over 10⁴", times[1] / times[0], 3.0, True, "×",
                  f"{1e6 * times[1]:.0f} / {1e6 * times[0]:.0f} µs")  # fmt: skip


_MEMORY = """
import contradpp as cd
from contradpp.research import bench
from contradpp.dpp.compiled import draws, gradients, kernels, steps
cd.LowRankDPP(4, max_iter=1, oversize="drop").fit(bench.made_up(100, 50, 3.0), validation=0.1)
data = {data}
def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # start the peak anew: reading the data had one of its own
before = status("VmRSS")
cd.LowRankDPP({K}, max_iter=2, tol=0, oversize="drop", random_state=0).fit(data)
print(status("VmHWM") - before)
"""


def memory() -> Iterator[Figure]:
    """Peak memory of `fit` beyond what was there before it, in a process of its own; Linux only."""
    if not sys.platform.startswith("linux"):
        return
    used = float(in_new_process(_MEMORY.format(data="bench.shop('belgian')", K=76)))
    yield Figure("peak memory of fit, belgian", used, 250.0, True, " MB")
    million = "bench.made_up(20_000, 10_000, 9.3, catalogue=1_000_000)"
    used = float(in_new_process(_MEMORY.format(data=million, K=64)))
    size = 1_000_000 * 64 * 8 / 2**20
    yield Figure("peak memory of fit, M = 10⁶, K = 64, over V", used / size, 6.0, True)


_FIRST = """
import time
import contradpp as cd
import numpy as np
data = cd.Baskets.from_lists([[1, 2, 3], [2, 3, 4], [1, 4]] * 50)
started = time.perf_counter()
model = cd.LowRankDPP(3, max_iter=2, random_state=0).fit(data)
model.recommend([1])
model.sample(2, random_state=0)
print(time.perf_counter() - started)
"""


def first_call() -> Iterator[Figure]:
    """Seconds for the first fit, recommendation and sample of a new process, compile cache warm and cold."""
    import os
    import tempfile

    in_new_process(_FIRST)
    warm = min(float(in_new_process(_FIRST)) for _ in range(3))
    yield Figure("first calls in a new process, cache warm", warm, 1.5, True, " s")
    with tempfile.TemporaryDirectory() as empty:
        cold = float(in_new_process(_FIRST, {**os.environ, "NUMBA_CACHE_DIR": empty}))
    yield Figure("first calls in a new process, cache cold", cold, 25.0, True, " s")


def in_new_process(program: str, environment: dict[str, str] | None = None) -> str:
    """The last line that a Python program prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise ContradppError(f"a program of the benchmark failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip().splitlines()[-1]
