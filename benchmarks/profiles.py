"""Where the time of training goes, part by part, and how far each part is from what the machine can do.

    CONTRADPP_DATA=... python benchmarks/profiles.py [--data belgian] [--threads 1]

A part's time is without that of the parts inside it. Beside it stand its operations over dgemm's rate and the bytes
that it must move over the rate of copying, both of one thread and taken in the same run: the larger of the two is how
near the part is to the roof. Operations and bytes are counted as docs/performance.md says.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import numpy as np

import contradpp as cd
from contradpp._threads import blas_threads
from contradpp.learn import objectives, optimizers, state, training
from contradpp.models import conditional, lowrank, nonsymmetric

SETS, GATHER, STEP = "gradient of sets", "gathering of rows", "optimiser"
LEARNING = [
    (state.State, "over_sets", SETS), (objectives.Places, "gather", GATHER), (optimizers.Adam, "step", STEP),
    (training.Supply, "next", "drawing of negatives"), (training, "with_normalizer", "normaliser"),
    (training, "check", "validation"), (training, "assemble", "batches"),
    (training, "one_step", "rest of the gradient"),
]  # fmt: skip
VOICES = [
    (state, "find_partners", "partners"), (state, "co_occurrences", "counting of pairs"),
    (conditional, "fit_voices", "voices"), (conditional, "ask_questions", "questions to the voices"),
    (conditional, "learn_weights", "weights of the voices"),
    (conditional.ConditionalDPP, "_learn_likeness", "likeness of slates"),
]  # fmt: skip


class Clock:
    """Seconds, operations and bytes by part."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
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
            seconds = time.perf_counter() - started
            self.seconds[part] += seconds - self._inside.pop()
            self._inside[-1] += seconds

    def watched(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """The function, with its time and what can be told of its work counted."""

        @wraps(function)
        def work(*args: Any, **options: Any) -> Any:
            with self.running(part):
                result = function(*args, **options)
            self._count(part, args)
            return result

        return work

    def _count(self, part: str, args: Any) -> None:
        if part == SETS:
            own, sets = args[0], args[2]
            k, K = sets.sizes.astype(np.float64), own.V.shape[1]
            self.operations[part] += int((k * (k + 1) * K + 2 * k**2 * K + k**3 / 3).sum())
            self.bytes[part] += int(2 * 8 * K * k.sum())
        elif part == GATHER:
            entries, K = len(args[0].sets.indices), args[0].state.V.shape[1]
            self.operations[part] += 2 * entries * K
            self.bytes[part] += 3 * 8 * entries * K
        elif part == STEP:
            own, gradient = args[1], args[2]
            everything = gradient.right is not None and args[0].dense
            rows, K = own.n_items if everything else len(gradient.rows), own.V.shape[1]
            self.operations[part] += 20 * rows * K
            self.bytes[part] += 6 * 8 * rows * K


def roofs() -> tuple[float, float]:
    """Operations a second of dgemm, and bytes a second of a copy (read and written), one thread."""
    A = np.random.default_rng(0).standard_normal((1000, 1000))
    long, other = np.ones(2**24), np.ones(2**24)
    with blas_threads(1):
        product = min(_seconds(lambda: A @ A) for _ in range(5))
        copying = min(_seconds(lambda: np.copyto(other, long)) for _ in range(5))
    return 2e9 / product, 2 * long.nbytes / copying


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def profile(name: str, model: Any, baskets: cd.Baskets, parts: Any, roof: tuple[float, float]) -> None:
    """Fit, and print a table."""
    model.fit(baskets.subset(np.arange(2000)))  # compiles
    clock = Clock()
    with ExitStack() as stack:
        for owner, function, part in parts:
            stack.enter_context(mock.patch.object(owner, function, clock.watched(getattr(owner, function), part)))
        total = _seconds(lambda: model.fit(baskets))
    clock.seconds["everything else"] = total - sum(clock.seconds.values())
    print(f"\n| {name}: {total:.1f} s | share | of dgemm | of copying |\n|---|---|---|---|")
    for part, seconds in clock.seconds.most_common():
        near = [f"{100 * work[part] / seconds / most:.0f} %" if part in work else "–" for work, most in zip(
            (clock.operations, clock.bytes), roof, strict=True)]  # fmt: skip
        if seconds >= 0.005 * total:
            print(f"| {part} | {100 * seconds / total:.0f} % | {near[0]} | {near[1]} |", flush=True)


def main() -> None:
    """Print a table for every objective, and for the conditional model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="belgian")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    baskets = cd.datasets.load(args.data, progress=False)
    roof = roofs()
    print(f"dgemm {roof[0] / 1e9:.1f} GFLOP/s, copying {roof[1] / 1e9:.1f} GB/s, {args.threads} threads")
    how: dict[str, Any] = {
        "max_iter": 3, "tol": 0, "random_state": 0, "calibrate": None, "oversize": "drop", "n_jobs": args.threads,
    }  # fmt: skip
    for objective in ("mle", "dynamic", "explicit", "exact"):
        profile(objective, lowrank.LowRankDPP(76, objective=objective, **how), baskets, LEARNING, roof)
    kernel = nonsymmetric.NonsymmetricDPP(max_iter=8, random_state=0)
    model = conditional.ConditionalDPP(kernel, n_jobs=args.threads, random_state=0)
    profile("ConditionalDPP", model, baskets, [*LEARNING, *VOICES], roof)


if __name__ == "__main__":
    main()
