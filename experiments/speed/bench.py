"""Speed, as ratios measured in one run: each figure against its limit or a reference beside it.

docs/performance.md says how each is computed. Absolute times mean little on a shared machine; a ratio of two
times taken in turn, the best of several rounds each, means the same everywhere.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from contradpp import __version__
from contradpp._random import stream
from contradpp._threads import blas_threads
from contradpp.cli.inputs import OLD_FILE, names, option
from contradpp.cli.output import busy, check_writable, say, show_table
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, take_sets
from contradpp.dpp import compiled
from contradpp.dpp.files import write_atomically
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.sampling import Sampler
from contradpp.errors import DataError, ParameterError
from contradpp.learn.objectives import EntryGradients, set_gradients
from contradpp.learn.state import SkewPattern, State, start_factors
from contradpp.models.conditional import ConditionalDPP
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP
from contradpp.slates.rerank import rerank
from experiments.speed.timing import Array, best_rounds, best_times, in_new_process, made_up, random_factors, shop

WORSE = 0.05  # than an earlier run by more than this share: marked


@dataclass(frozen=True)
class SpeedFigure:
    """One measured ratio with its goal: `at_most` says which side of the goal is good."""

    name: str
    value: float
    goal: float
    at_most: bool
    unit: str = "×"
    detail: str = ""
    others: float | None = None  # the share of the machine that others used meanwhile

    @property
    def reached(self) -> bool:
        """True if the goal is met."""
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def worse_by(self, before: float) -> float:
        """Return the relative loss against an earlier value; a gain is negative."""
        return self.value / before - 1 if self.at_most else before / self.value - 1

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "reached": self.reached}


def measure(only: Sequence[str] = (), *, quick: bool = False) -> Iterator[SpeedFigure]:
    """Yield the figures of some groups, or of all, one after the other."""
    for name in only:
        if name not in GROUPS:
            raise ParameterError(f"there is no group {name!r}; there are: {', '.join(GROUPS)}")
    for name in only or GROUPS:
        before = _busy()
        for figure in GROUPS[name](quick):
            now = _busy()
            yield replace(figure, others=_others(before, now))
            before = now


def _busy() -> tuple[float, float, float] | None:
    """Return the clock, busy seconds of all processors, and ours; None if the system does not say."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        tick = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
    return time.monotonic(), (sum(ticks[:8]) - ticks[3] - ticks[4]) / tick, sum(os.times()[:4])  # less idle and waiting


def _others(before: tuple[float, ...] | None, now: tuple[float, ...] | None) -> float | None:
    if before is None or now is None:
        return None
    elapsed, all_work, ours = (b - a for a, b in zip(before, now, strict=True))
    return min(max((all_work - ours) / (elapsed * (os.cpu_count() or 1)), 0.0), 1.0)


def machine() -> str:
    """Return the number of processors and their load."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return f"{os.cpu_count()} processors, load {load:.2f}"


def read_figures(path: Path) -> dict[str, float]:
    """Return the values by name that an earlier run wrote as JSON."""
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
        return {figure["name"]: float(figure["value"]) for figure in figures}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} holds no figures of an earlier run: {error}") from error


# -- The figures ---------------------------------------------------------------------------------------


def gradients(quick: bool) -> Iterator[SpeedFigure]:
    """Return GFLOP/s of the gradient kernels over those of dgemm, each by its own count of operations."""
    for name, K, goal in (("belgian", 76, 35.0), ("uk", 100, 45.0)):
        part = shop(name).subset(np.arange(min(shop(name).n_baskets, 20_000)))
        state = State(start_factors("popularity", part.item_counts, part.n_baskets, K, stream(0)))
        work: list[Callable[[], object]] = [partial(set_gradients, state, batch) for batch in batches_of(part)]
        yield share_of_dgemm(f"gradient kernel, {name}", work, operations_of_sets(part.sizes, K), goal, quick)
    part = shop("uk").subset(shop("uk").sizes <= 100)
    kernel = NonsymmetricDPP(16, 30, max_iter=1, random_state=0).fit(part).kernel_
    partners = SkewPattern.of_matrix(kernel.skew.matrix(), part.n_items)
    state = State(np.array(kernel.factors), np.log(kernel.diagonal), partners)
    work = [conditional_work(state, batch) for batch in batches_of(part)]
    of_partners = np.add.reduceat(np.diff(partners.indptr)[part.sets.indices], part.sets.indptr[:-1])
    operations = operations_of_conditionals(part.sizes, of_partners, 16)
    yield share_of_dgemm("gradient kernel, uk, D + V(16) + S", work, operations, 25.0, quick)


def batches_of(part: Baskets) -> list[Sets]:
    """Return the baskets, a thousand at a time."""
    n = part.n_baskets
    return [take_sets(part.sets, np.arange(first, min(first + 1000, n))) for first in range(0, n, 1000)]


def operations_of_sets(sizes: NDArray[np.int64], K: int) -> float:
    """Count the operations of log det L_A and its gradient: V_A V_Aᵀ, its factors, and L_A⁻¹ V_A."""
    k = sizes.astype(np.float64)
    return float((k * (k + 1) * K + 2 * k * k * K + k**3 / 3).sum())


def operations_of_conditionals(sizes: NDArray[np.int64], partners: NDArray[np.int64], K: int) -> float:
    """Count the operations of the conditional likelihood with D and S, by the neighbors in a set.

    Four products of rows, four with k × k matrices, the inverse and five products of such matrices, S_A S_Aᵀ and H S_A.
    """
    k = sizes.astype(np.float64)
    return float((4 * k * (k + 1) * K + 8 * k * k * K + 12 * k**3 + 3 * k * partners).sum())


def conditional_work(state: State, batch: Sets) -> Callable[[], None]:
    """Return the kernel of `exact` on a batch; what it needs of the items is prepared."""
    rows, slots = state.number_rows(batch)
    terms = state.terms(rows)
    terms = terms._replace(VC=terms.VC.copy(), VS=terms.VS.copy())  # the next batch takes their place
    g = np.full(len(batch.indices), 0.1)

    def work() -> None:
        places = EntryGradients(state, batch)
        after = (
            np.empty(len(g)), g, places.G, places.rows("F"), places.rows("B"), places.diagonal, places.pairs,
            np.empty(batch.count),
        )  # fmt: skip
        state.over_sets(compiled.gradients.conditional_gradients, batch, (terms, slots, places.links), after)

    return work


def share_of_dgemm(
    name: str, work: Sequence[Callable[[], object]], operations: float, goal: float, quick: bool
) -> SpeedFigure:
    """Return the rate of all the work, one thread, over that of dgemm on 1000 × 1000."""
    square = np.random.default_rng(0).standard_normal((1000, 1000))

    def all_of_it() -> None:
        for part in work:
            part()

    with blas_threads(1):
        product, ours = best_times([partial(np.matmul, square, square), all_of_it], 9 if quick else 21)
    dgemm = 2.0 / product
    speed = 1e-9 * operations / ours
    detail = f"{speed:.1f} of {dgemm:.1f} GFLOP/s"
    return SpeedFigure(f"{name}: share of dgemm", 100 * speed / dgemm, goal, False, "%", detail)


def epochs(quick: bool) -> Iterator[SpeedFigure]:
    """Yield a round of each objective over one of `mle`, batch 1000, one thread."""
    del quick
    goals = {"dynamic": 1.3, "explicit": 1.3, "exact": 1.7, "nce": 1.8}
    base, *others = best_rounds(
        [(shop("belgian"), LowRankDPP(76, objective=objective, n_jobs=1)) for objective in ("mle", *goals)]
    )
    for (objective, goal), seconds in zip(goals.items(), others, strict=True):
        detail = f"{seconds:.2f} / {base:.2f} s"
        yield SpeedFigure(f"epoch of {objective} over mle", seconds / base, goal, True, detail=detail)


def diagonal(quick: bool) -> Iterator[SpeedFigure]:
    """Yield a round of `exact` with D, V(16) and S(30) over one without D, whose V is as wide as the largest basket."""
    for name, K in (("uk", 100), ("belgian", 76)):
        baskets = shop(name).subset(shop(name).sizes <= K)  # what both can learn from
        models = (NonsymmetricDPP(16, 30, n_jobs=1), NonsymmetricDPP(K, 30, diagonal=False, n_jobs=1))
        ours, wide = best_rounds([(baskets, model) for model in models], 1 if quick else 3)
        detail = f"{ours:.2f} / {wide:.2f} s"
        yield SpeedFigure(f"epoch of exact, {name}: D + V(16) over V({K})", ours / wide, 0.5, True, detail=detail)


def threads(quick: bool) -> Iterator[SpeedFigure]:
    """Yield two threads over one, and beside it what two threads of BLAS gain here: cores may share their units."""
    del quick
    square = np.random.default_rng(0).standard_normal((1500, 1500))
    times = []
    for number in (1, 2):
        with blas_threads(number):
            times += best_times([partial(np.matmul, square, square)], 5)
    detail = f"dgemm itself: {times[0] / times[1]:.2f}×"
    for objective in ("mle", "dynamic", "exact"):
        one, two = best_rounds([(shop("belgian"), LowRankDPP(76, objective=objective, n_jobs=jobs)) for jobs in (1, 2)])
        yield SpeedFigure(f"two threads over one, epoch of {objective}", one / two, 1.8, False, detail=detail)


def catalogue(quick: bool) -> Iterator[SpeedFigure]:
    """Return the time per basket with a million items over that with ten thousand."""
    del quick
    shops = [made_up(20_000, 10_000, 9.3, catalogue=M) for M in (10_000, 1_000_000)]
    for objective, goal in (("dynamic", 1.4), ("mle", 3.0), ("exact", 3.0)):
        small, large = best_rounds([(baskets, LowRankDPP(64, objective=objective, n_jobs=1)) for baskets in shops])
        yield SpeedFigure(f"epoch of {objective}, M = 10⁶ over 10⁴", large / small, goal, True)


def next_item(quick: bool) -> Iterator[SpeedFigure]:
    """Return the time of P(next | basket of ten) over that of the product V (M×K) times (K×10)."""
    items = shop("belgian").items
    V = random_factors(len(items), 76)
    model = LowRankDPP.from_factors(V, items=items).set_params(n_jobs=1)
    ten = [items[code] for code in range(10)]
    other = np.ascontiguousarray(V[:10].T)
    with blas_threads(1):
        product, ours = best_times([lambda: V @ other, lambda: model.predict_next(ten)], 60 if quick else 140)
    detail = f"{1e3 * ours:.2f} / {1e3 * product:.2f} ms"
    yield SpeedFigure("next item, one basket of 10, over the bare product", ours / product, 1.5, True, detail=detail)


def recommend(quick: bool) -> Iterator[SpeedFigure]:
    """Yield the best ten for many baskets in one call over the same matrix product."""
    baskets = shop("belgian")
    n = 2_000 if quick else 10_000
    V = random_factors(baskets.n_items, 76)
    model = LowRankDPP.from_factors(V, items=baskets.items).set_params(n_jobs=1)
    queries = baskets.subset(np.flatnonzero((baskets.sizes >= 1) & (baskets.sizes < 70))[:n])
    rows = np.ascontiguousarray(V[queries.indices])

    def product() -> None:
        for first in range(0, len(rows), 512):
            rows[first : first + 512] @ V.T

    with blas_threads(1):
        bare, ours = best_times([product, lambda: model.recommend(queries, N=10)], 2)
    detail = f"{ours:.1f} / {bare:.1f} s"
    yield SpeedFigure(f"top 10 of {n:,} baskets over the product", ours / bare, 2.0, True, detail=detail)


def sample(quick: bool) -> Iterator[SpeedFigure]:
    """Yield one sample after preparation, a million items over ten thousand, K = 64."""
    times = []
    for M in (10_000, 1_000_000):
        sampler = Sampler(Kernel(random_factors(M, 64)))
        times += best_times([partial(sampler.sample, 1000, seed=0)], 3 if quick else 7)
    detail = f"{1e3 * times[1]:.0f} / {1e3 * times[0]:.0f} µs"
    yield SpeedFigure("one sample, M = 10⁶ over 10⁴", times[1] / times[0], 3.0, True, detail=detail)


def rerank_lists(quick: bool) -> Iterator[SpeedFigure]:
    """Yield a list of 1,000 candidates against the published fast greedy algorithm, and many lists of 200 a second."""
    rng = np.random.default_rng(0)
    scores = rng.random(1000)
    vectors = rng.standard_normal((1000, 256)).astype(np.float32)
    items = np.arange(1000)
    rounds = 20 if quick else 60
    with blas_threads(1):
        theirs, ours = best_times(
            [lambda: fast_greedy(scores, vectors, 20), lambda: rerank(items, scores, 20, vectors=vectors, n_jobs=1)],
            rounds,
        )
    detail = f"{1e3 * theirs:.2f} / {1e3 * ours:.2f} ms; k = 20, 256 dimensions"
    yield SpeedFigure("rerank of 1,000 over fast greedy, its kernel built", theirs / ours, 5.0, False, detail=detail)
    model = LowRankDPP.from_factors(rng.standard_normal((20_000, 64)).astype(np.float32))
    lists = np.argsort(rng.random((10_000, 2000)), axis=1)[:, :200] * 10
    falling = np.sort(rng.random(lists.shape))[:, ::-1].copy()
    (many,) = best_times([lambda: rerank(lists, falling, 10, kernel=model, n_jobs=2)], 2 if quick else 5)
    yield SpeedFigure("rerank, 10,000 lists of 200, thousands a second", 10.0 / many, 50.0, False, "")


def fast_greedy(scores: Array, vectors: NDArray[np.float32], k: int, diversity: float = 0.5) -> list[int]:
    """Run the algorithm of Chen, Zhang and Zhou (2018) on L = diag(q) Φ diag(q), q² = rank^−τ, in NumPy."""
    order = np.argsort(-scores, kind="stable")
    q = np.arange(1, len(scores) + 1, dtype=vectors.dtype) ** (-(1 - diversity) / diversity / 2)
    unit = vectors[order]
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    L = q[:, None] * (unit @ unit.T) * q
    L[np.diag_indices_from(L)] = (1 + 1e-3) * q * q  # the ridge of `rerank`
    left = np.diag(L).copy()
    found = np.zeros((k, len(scores)), dtype=L.dtype)
    chosen = [int(np.argmax(left))]
    while len(chosen) < k:
        t = len(chosen) - 1
        last = chosen[-1]
        row = (L[last] - found[:t, last] @ found[:t]) / np.sqrt(left[last])
        found[t] = row
        left -= row * row
        left[chosen] = -np.inf
        chosen.append(int(np.argmax(left)))
    return [int(place) for place in order[chosen]]


def conditional(quick: bool) -> Iterator[SpeedFigure]:
    """Yield times of the conditional DPP on Belgian: over its kernel alone, many baskets, two threads over one."""
    baskets = shop("belgian").subset(np.arange(10_000 if quick else 20_000))
    kernel = NonsymmetricDPP(max_iter=2, random_state=0)
    by_one, model = (ConditionalDPP(kernel, n_jobs=jobs, random_state=0) for jobs in (1, 2))
    one, two = best_times([partial(model.fit, baskets) for model in (by_one, model)], 1 if quick else 2)
    detail = f"{one:.1f} / {two:.1f} s"
    yield SpeedFigure("two threads over one, fit of the conditional DPP", one / two, 1.8, False, detail=detail)
    ten = [baskets.items[code] for code in range(10)]
    alone, both = best_times([lambda: model.kernel_.recommend(ten), lambda: model.recommend(ten)], 40)
    detail = f"{1e3 * both:.2f} / {1e3 * alone:.2f} ms"
    yield SpeedFigure("conditional DPP, one basket of 10, over its kernel", both / alone, 6.0, True, detail=detail)
    many = baskets.subset(np.arange(2_000 if quick else 10_000))
    (seconds,) = best_times([lambda: model.recommend(many, N=10)], 1)
    yield SpeedFigure("conditional DPP, thousand baskets a second", 1e-3 * many.n_baskets / seconds, 1.0, False, "")


_MEMORY = """
import contradpp as cd
from experiments.speed import timing
from contradpp.dpp.compiled import draws, gradients, kernels, steps
few = timing.made_up(6_000, 100, 3.0, catalogue=6_000)  # too many parameters to refine
cd.LowRankDPP(4, max_iter=1, oversize="drop", dtype={dtype!r}).fit(few, validation=0.1)
data = {data}
def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # start the peak anew: reading the data had one of its own
before = status("VmRSS")
cd.LowRankDPP({K}, max_iter=2, tol=0, oversize="drop", dtype={dtype!r}, random_state=0).fit(data)
print(status("VmHWM") - before)
"""


def memory(quick: bool) -> Iterator[SpeedFigure]:
    """Return the additional peak memory of `fit` in a process of its own; Linux only."""
    del quick
    if not sys.platform.startswith("linux"):
        return
    used = in_new_process(_MEMORY.format(data="timing.shop('belgian')", K=76, dtype="float64"))
    yield SpeedFigure("peak memory of fit, belgian", used, 250.0, True, " MB")
    large = "timing.made_up(20_000, 10_000, 9.3, catalogue=1_000_000)"
    size = 1_000_000 * 64 * 8 / 2**20
    whole, half = (in_new_process(_MEMORY.format(data=large, K=64, dtype=of)) for of in ("float64", "float32"))
    yield SpeedFigure("peak memory of fit, M = 10⁶, K = 64, over V", whole / size, 6.0, True)
    yield SpeedFigure("the same with dtype='float32'", half / size, 3.0, True)


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


def start(quick: bool) -> Iterator[SpeedFigure]:
    """Return seconds of the first fit, recommendation and sample of a process, compile cache warm and cold."""
    del quick
    in_new_process(_FIRST)
    warm = min(in_new_process(_FIRST) for _ in range(3))
    yield SpeedFigure("first calls in a new process, cache warm", warm, 1.5, True, " s")
    with tempfile.TemporaryDirectory() as empty:
        cold = in_new_process(_FIRST, NUMBA_CACHE_DIR=empty)
    yield SpeedFigure("first calls in a new process, cache cold", cold, 10.0, True, " s")


GROUPS: dict[str, Callable[[bool], Iterator[SpeedFigure]]] = {
    "gradients": gradients, "epochs": epochs, "diagonal": diagonal, "threads": threads, "catalogue": catalogue,
    "next": next_item, "recommend": recommend, "sample": sample, "rerank": rerank_lists, "conditional": conditional,
    "memory": memory, "start": start,
}  # fmt: skip


# -- The command ---------------------------------------------------------------------------------------


@click.command()
@option("--quick", is_flag=True, help="Fewer rounds.")
@option("--only", callback=names(GROUPS), metavar="GROUPS", help=f"Some figures, between commas: {', '.join(GROUPS)}.")
@option("--json", "file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), is_flag=False,
        flag_value="-", help="Also write the figures to a file; without a name, print JSON, not a table.")  # fmt: skip
@option("--compare", "earlier", type=OLD_FILE, help="Show the change against a file that --json wrote.")
def bench(quick: bool, only: tuple[str, ...], file: Path | None, earlier: Path | None) -> None:
    """Measure the library's speed against the machine's limits (docs/performance.md explains each line).

    Other work on the machine disturbs the figures: its load is stated, and for each figure what others used meanwhile.

    \b
    python -m experiments bench --json before.json
    python -m experiments bench --only gradients,recommend --compare before.json
    """
    printed = file is not None and str(file) == "-"
    if file is not None and not printed:
        check_writable(file)
    before = None if earlier is None else read_figures(earlier)
    state = machine()
    say(f"Measuring on {state} ...")
    with busy("measuring ..."):
        figures = list(measure(only, quick=quick))
    state = f"{state} before, {machine().split(', ')[1]} after"
    content = {"version": __version__, "machine": state, "quick": quick, "figures": [f.as_dict() for f in figures]}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    if printed:
        click.echo(text)
        return
    if file is not None:
        write_atomically(file, f"{text}\n".encode())
    heads = ["what", "measured", "goal", "", "others", *(["before", "change"] if before is not None else []), "from"]
    columns = [f">{name}" if name in ("measured", "goal", "others", "before") else name for name in heads]
    show_table(columns, [_row(figure, before) for figure in figures], title="python -m experiments bench")
    click.echo(f"\n{state}; others: the share of the machine that other work used meanwhile.")


def _row(figure: SpeedFigure, earlier: dict[str, float] | None) -> list[str]:
    sign = "≤" if figure.at_most else "≥"
    cells = [
        figure.name, f"{figure.value:.2f}{figure.unit}", f"{sign} {figure.goal:g}{figure.unit}",
        "reached" if figure.reached else "missed", "–" if figure.others is None else f"{figure.others:.0%}",
    ]  # fmt: skip
    if earlier is not None:
        before = earlier.get(figure.name)
        cells += ["–", "not in the file"] if before is None else [f"{before:.2f}{figure.unit}", _change(figure, before)]
    return [*cells, figure.detail]


def _change(figure: SpeedFigure, before: float) -> str:
    worse = figure.worse_by(before)
    return f"{figure.value / before - 1:+.1%}" + (" WORSE" if worse > WORSE else "")
