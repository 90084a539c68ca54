"""Data, clocks and tables that the measurements share."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.errors import ContradppError, DownloadError

Array = NDArray[np.float64]
Work = Callable[[], object]


# -- Data ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def shop(name: str) -> Baskets:
    """Load the real data if it can be had, else make baskets of the same shape: sizes, catalogue, popularity."""
    try:
        return datasets.load(name, progress=False)
    except DownloadError:
        n, M, mean = {"belgian": (88_162, 16_470, 9.3), "uk": (20_097, 3_802, 22.0)}[name]
        return made_up(n, M, mean)


def made_up(
    n_baskets: int, n_items: int, mean_size: float, *, catalogue: int | None = None, largest: int = 60
) -> Baskets:
    """Make baskets with a Zipf-like popularity and geometric sizes, in a catalogue that may be larger."""
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.geometric(1 / mean_size, size=n_baskets), largest)
    share = 1.0 / np.arange(10, n_items + 10)
    codes = rng.choice(n_items, size=int(sizes.sum()), p=share / share.sum()).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return Baskets.from_csr(indptr, codes, items=range(catalogue or n_items))


def random_factors(n_items: int, n_components: int, expected_size: float = 10.0) -> Array:
    """Draw factors of a random kernel with about this expected size."""
    V: Array = np.random.default_rng(0).standard_normal((n_items, n_components))
    share = expected_size / n_components
    V *= np.sqrt(share / (1 - share) / n_items)
    return V


# -- Clocks --------------------------------------------------------------------------------------------


def seconds(work: Work) -> float:
    """Time one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def best_times(works: Iterable[Work], rounds: int, calls: int = 1) -> list[float]:
    """Return the shortest time of each in seconds, taken in turn, so that other load hits all alike.

    The first call, which may compile, does not count.
    """
    works = list(works)
    for work in works:
        work()
    times = np.empty((rounds, len(works)))
    for turn in range(rounds):
        for number, work in enumerate(works):
            times[turn, number] = seconds(lambda work=work: [work() for _ in range(calls)]) / calls  # type: ignore[misc]
    return [float(best) for best in times.min(axis=0)]


def best_rounds(fits: Sequence[tuple[Baskets, Any]], times: int = 2) -> list[float]:
    """Return the shortest round of each (baskets, model), with `times` fits of each in turn."""
    return [min(turns) for turns in zip(*([_round(*one) for one in fits] for _ in range(times)), strict=True)]


def _round(baskets: Baskets, model: Any) -> float:
    """Return the shortest round of a fit, the first one left out."""
    model.set_params(max_iter=3, tol=0, random_state=0, calibrate=None, oversize="drop")
    model.fit(baskets, validation=0.001)
    return float(np.diff([0.0, *(entry["seconds"] for entry in model.history_)])[1:].min())


def in_new_process(program: str, *words: str, python: str = sys.executable, **environment: str) -> float:
    """Run a Python program and return the number that it prints last."""
    command = [python, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        raise ContradppError(f"a program of the benchmark failed: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout.strip().splitlines()[-1])


# -- Tables --------------------------------------------------------------------------------------------


def head(*cells: str) -> None:
    """Print the head of a Markdown table."""
    row(*cells)
    click.echo("|" + "---|" * len(cells))


def row(*cells: object) -> None:
    """Print a row of a Markdown table at once, so that a long run shows how far it is."""
    click.echo(f"| {' | '.join(map(str, cells))} |")
