"""The time of training: a step's cost by size, the parts of a fit, and the same steps by PyTorch."""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np

import contradpp as cd
from contradpp._random import stream
from contradpp._threads import blas_threads
from contradpp.data.sets import EMPTY, concatenate, take_sets
from contradpp.learn import objectives, optimizers, state, training
from contradpp.learn.negatives import DynamicSource, Negatives
from contradpp.learn.objectives import Batch, Contrastive
from contradpp.learn.optimizers import RowwiseAdam
from contradpp.learn.state import State, popularity, start_factors
from contradpp.models import combination, conditional
from contradpp.slates.similarity import Similarity
from experiments.speed.timing import Work, best_rounds, best_times, head, in_new_process, row, seconds, shop

BATCH = 1000

# -- The cost of a step --------------------------------------------------------------------------------

AXES = {
    "catalogue size M": ("M", [1_000, 10_000, 100_000, 1_000_000]),
    "rank K": ("K", [16, 32, 64, 96, 128]),
    "items in a basket": ("size", [2, 4, 8, 16, 32, 48]),
}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("docs/figures"))
def cost(folder: Path) -> None:
    """Measure the cost of a basket in a step against catalogue size, rank and basket size; draw FOLDER/cost.png.

    One thread, 10,000 baskets, batches of 1,000; else M = 10,000, K = 64 and ten items a basket.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    panels = figure.subplots(1, len(AXES), sharey=True)
    head("objective", "against", "µs a basket")
    for panel, (label, (name, values)) in zip(panels, AXES.items(), strict=True):
        for objective in ("mle", "dynamic", "exact"):
            costs = [microseconds(objective, **{name: value}) for value in values]
            listed = ", ".join(f"{v:,}: {c:.1f}" for v, c in zip(values, costs, strict=True))
            row(objective, label, listed)
            panel.plot(values, costs, marker="o", markersize=4, label=objective)
        panel.set(xlabel=label, xscale="log", yscale="log")
        panel.set_xticks(values, [f"{value:,}" for value in values])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("µs a basket, one thread")
    panels[0].legend(frameon=False)
    figure.savefig(folder / "cost.png", dpi=140)


def microseconds(objective: str, *, M: int = 10_000, K: int = 64, size: int = 10) -> float:
    """Return the time of training per basket: negatives, gradient and update."""
    rng = np.random.default_rng(0)
    sold = rng.random((10 * BATCH, min(M, 10_000))).argpartition(size, axis=1)[:, :size]
    indptr = np.arange(len(sold) + 1) * size
    baskets = cd.Baskets.from_csr(indptr, sold.ravel(), items=range(M))
    model = cd.LowRankDPP(K, objective=objective, optimizer=cd.optimizers.Adam(batch_size=BATCH), n_jobs=1)
    return 1e6 * best_rounds([(baskets, model)])[0] / len(sold)


# -- The parts of a fit --------------------------------------------------------------------------------

SETS = "gradient of sets"
GATHER = "gathering of rows"
STEP = "optimizer"
LEARNING = [
    (State, "over_sets", SETS), (objectives.EntryGradients, "gather", GATHER), (RowwiseAdam, "step", STEP),
    (training, "draw_negatives", "drawing of negatives"), (training, "with_normalizer", "normalizer"),
    (training, "check", "validation"), (training, "assemble", "batches"),
    (training, "one_step", "rest of the gradient"),
]  # fmt: skip
EXPERTS = [
    (state, "find_skew_pattern", "pattern of S"), (state, "co_occurrences", "counting of pairs"),
    (conditional, "fit_experts", "experts"), (combination, "make_examples", "training examples of the experts"),
    (combination, "maximize_likelihood", "weights of the experts"),
    (Similarity, "of", "similarity of slates"),
]  # fmt: skip


@click.command()
@click.option("--data", default="belgian", show_default=True)
@click.option("--threads", default=1, show_default=True)
def profiles(data: str, threads: int) -> None:
    """Measure where the time of training goes, and how far each part is from what the machine can do.

    A part's time is without that of the parts inside it. Beside it stand its operations over dgemm's rate and the bytes
    that it must move over the rate of copying, both of one thread in the same run: the larger of the two is how
    near the part is to the roof. Operations and bytes are counted as docs/performance.md says.
    """
    baskets = cd.datasets.load(data, progress=False)
    square = np.random.default_rng(0).standard_normal((1000, 1000))
    long = np.ones(2**24)
    other = np.ones(2**24)
    with blas_threads(1):
        product, copying = best_times([lambda: square @ square, lambda: np.copyto(other, long)], 5)
    roof = 2e9 / product, 2 * long.nbytes / copying
    click.echo(f"dgemm {roof[0] / 1e9:.1f} GFLOP/s, copying {roof[1] / 1e9:.1f} GB/s, {threads} threads")
    how: dict[str, Any] = {"max_iter": 3, "tol": 0, "random_state": 0, "calibrate": None, "oversize": "drop"}
    for objective in ("mle", "dynamic", "explicit", "exact"):
        model = cd.LowRankDPP(76, objective=objective, n_jobs=threads, **how)
        profile(objective, model, baskets, LEARNING, roof)
    kernel = cd.NonsymmetricDPP(max_iter=8, random_state=0)
    whole = cd.ConditionalDPP(kernel, n_jobs=threads, random_state=0)
    profile("ConditionalDPP", whole, baskets, [*LEARNING, *EXPERTS], roof)


def profile(name: str, model: Any, baskets: cd.Baskets, parts: Any, roof: tuple[float, float]) -> None:
    """Fit, and print a table."""
    model.fit(baskets.subset(np.arange(2000)))  # compiles
    clock = Clock()
    with ExitStack() as stack:
        for owner, function, part in parts:
            stack.enter_context(mock.patch.object(owner, function, clock.watched(getattr(owner, function), part)))
        total = seconds(lambda: model.fit(baskets))
    clock.seconds["everything else"] = total - sum(clock.seconds.values())
    click.echo()
    head(f"{name}: {total:.1f} s", "share", "of dgemm", "of copying")
    for part, took in sorted(clock.seconds.items(), key=lambda one: -one[1]):
        if took >= 0.005 * total:
            rates = zip((clock.operations, clock.bytes), roof, strict=True)
            near = [f"{100 * work[part] / took / most:.0f} %" if part in work else "–" for work, most in rates]
            row(part, f"{100 * took / total:.0f} %", *near)


class Clock:
    """Seconds, operations and bytes by part."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.operations: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._inside = [0.0]  # seconds of the parts inside those that are running

    @contextmanager
    def running(self, part: str) -> Iterator[None]:
        """Count the time of a part, less that of the parts inside it."""
        started = time.perf_counter()
        self._inside.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - started
            self.seconds[part] += took - self._inside.pop()
            self._inside[-1] += took

    def watched(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """Return the function, with its time and its known work counted."""

        @wraps(function)
        def work(*args: Any, **options: Any) -> Any:
            with self.running(part):
                result = function(*args, **options)
            self._count(part, args)
            return result

        return work

    def _count(self, part: str, args: Any) -> None:
        if part == SETS:
            own = args[0]
            sets = args[2]
            k = sets.sizes.astype(np.float64)
            K = own.V.shape[1]
            self.operations[part] += int((k * (k + 1) * K + 2 * k**2 * K + k**3 / 3).sum())
            self.bytes[part] += int(2 * 8 * K * k.sum())
        elif part == GATHER:
            entries = len(args[0].sets.indices)
            K = args[0].state.V.shape[1]
            self.operations[part] += 2 * entries * K
            self.bytes[part] += 3 * 8 * entries * K
        elif part == STEP:
            own = args[1]
            gradient = args[2]
            everything = gradient.right is not None and args[0].dense
            rows = own.n_items if everything else len(gradient.rows)
            K = own.V.shape[1]
            self.operations[part] += 20 * rows * K
            self.bytes[part] += 6 * 8 * rows * K


# -- Beside PyTorch ------------------------------------------------------------------------------------

TORCH_SIDE = """
import sys, time
import numpy as np, torch

torch.set_num_threads(1)
data = np.load(sys.argv[1])
start, indptr, indices, y, batch_of = (data[name] for name in ("V", "indptr", "indices", "y", "batch_of"))
groups = int(sys.argv[2])
V = torch.nn.Parameter(torch.tensor(start))
adam = torch.optim.Adam([V], lr=1e-3)

def padded(sets):
    sizes = indptr[sets + 1] - indptr[sets]
    codes = np.zeros((len(sets), sizes.max()), dtype=np.int64)
    for row, s in enumerate(sets):
        codes[row, : sizes[row]] = indices[indptr[s] : indptr[s + 1]]
    here = np.arange(sizes.max()) < sizes[:, None]
    return torch.tensor(codes), torch.tensor(here), torch.tensor(y[sets])

batches = []
for number in range(batch_of.max() + 1):
    sets = np.flatnonzero(batch_of == number)
    order = sets[np.argsort(indptr[sets + 1] - indptr[sets], kind="stable")] if groups > 1 else sets
    batches.append([padded(part) for part in np.array_split(order, groups)])

def step(parts):
    adam.zero_grad()
    loss = 0.0
    for codes, here, weights in parts:
        rows = V[codes] * here[..., None]
        L = rows @ rows.mT + torch.diag_embed((~here).double())
        loss = loss - (weights * torch.linalg.slogdet(L).logabsdet).sum()
    loss.backward()
    adam.step()

step(batches[0])
started = time.perf_counter()
for parts in batches:
    step(parts)
print(time.perf_counter() - started)
"""


@click.command()
@click.argument("python")
def pytorch(python: str) -> None:
    """Measure training sets per second beside plain PyTorch autograd doing the same steps: dynamic CE, Belgian size.

    PYTHON is an interpreter with PyTorch, which is no dependency of ours:

    \b
    python -m venv TORCH && TORCH/bin/pip install torch==2.13.0 numpy
    python -m experiments speed pytorch TORCH/bin/python

    Both sides take the same batches of positives and negatives (drawn by us beforehand), one thread each, float64,
    and make whole steps: log-determinants, gradient, Adam. PyTorch pads every basket of a batch to the largest with
    an identity block; a second version first sorts the sets into eight groups by size, which wastes less.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        count, steps = write_problem(path, n_batches=4)
        torch = partial(in_new_process, TORCH_SIDE, str(path), python=python)
        sides: dict[str, Callable[[], float]] = {
            "contradpp": lambda: best_times([steps], 1)[0],
            "PyTorch": partial(torch, "1"),
            "PyTorch, 8 groups by size": partial(torch, "8"),
        }
        turns = [[side() for side in sides.values()] for _ in range(3)]
    head("", "sets a second", "times our time")
    best = np.min(turns, axis=0)
    for name, took in zip(sides, best, strict=True):
        row(name, f"{count / took:,.0f}", f"{took / best[0]:.1f}")


def write_problem(path: Path, n_batches: int, K: int = 76) -> tuple[int, Work]:
    """Draw batches of 1,000 positives and 500 dynamic negatives; return the number of sets, and our steps."""
    baskets = shop("belgian")
    baskets = baskets.subset(baskets.sizes <= K)
    V = start_factors("popularity", baskets.item_counts, baskets.n_baskets, K, stream(0))
    learned = State(V.copy())
    source = DynamicSource(popularity(baskets.item_counts, baskets.n_baskets))
    everything = EMPTY
    y = []
    batch_of = []
    batches = []
    order = stream(1).permutation(baskets.n_baskets)
    for number in range(n_batches):
        positives = take_sets(baskets.sets, order[BATCH * number : BATCH * (number + 1)])
        drawn = source.draw(learned, positives, BATCH // 2, stream(2, number), np.ones(positives.count))
        weights = np.full(positives.count, 1 / BATCH)
        negatives = Negatives(drawn, np.full(drawn.count, 2 / BATCH), drawn.count / positives.count)
        batches.append(Batch(positives, weights, negatives))
        everything = concatenate(everything, concatenate(positives, drawn))
        y += [*weights, *-negatives.weights]
        batch_of += [number] * (positives.count + drawn.count)
    np.savez(path, V=V, indptr=everything.indptr, indices=everything.indices, y=y, batch_of=batch_of)
    objective = Contrastive(1.0)
    optimizer = optimizers.RowwiseAdam(np.zeros(len(V)), K)

    def steps() -> None:
        with blas_threads(1):
            for batch in batches:
                optimizer.step(learned, objective.gradient(learned, batch), 1.0)

    return everything.count, steps
