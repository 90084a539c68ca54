"""k-DPP samples and their accuracy beside DPPy, by enumeration of all sets.

    pip install dppy==0.3.3
    python -m experiments.speed.beside_dppy

Accuracy: 20,000 samples of 3 of 8 items against the probabilities of all 56 sets, as total
variation distance. A perfect sampler has about the distance that is printed last. Speed: processor
milliseconds for one sample of 10 items, in the first call and in later calls, on one thread.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import click
import numpy as np
from dppy.finite_dpps import FiniteDPP
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import contradpp as cd

Floats = NDArray[np.float64]
Draw = Callable[[int], list[list[int]]]


def distance(drawn: list[list[int]], sets: list[tuple[int, ...]], probabilities: Floats) -> float:
    """Return the total variation distance of the frequencies from the probabilities."""
    number = {one: place for place, one in enumerate(sets)}
    places = [number[tuple(sorted(one))] for one in drawn]
    frequencies = np.bincount(places, minlength=len(sets)) / len(drawn)
    return float(np.abs(frequencies - probabilities).sum() / 2)


def theirs(V: Floats, *, dual: bool) -> Callable[[int, int], list[list[int]]]:
    """Return DPPy's sampler of k items, from L or from its factors."""
    dpp = FiniteDPP("likelihood", **({"L_gram_factor": V.T} if dual else {"L": V @ V.T}))
    rng = np.random.RandomState(0)

    def draw(k: int, n: int) -> list[list[int]]:
        dpp.flush_samples()
        for _ in range(n):
            dpp.sample_exact_k_dpp(size=k, random_state=rng)
        drawn: list[list[int]] = dpp.list_of_samples
        return drawn

    return draw


def ours(V: Floats) -> Callable[[int, int], list[list[int]]]:
    """Return our sampler of k items."""
    dpp = cd.DPP(V=V, n_jobs=1)
    return lambda k, n: dpp.sample(n, size=k, random_state=0).sets.indices.reshape(n, k).tolist()


def accuracy(n: int) -> None:
    """Print the distances of both samplers from the probabilities by enumeration."""
    rng = np.random.default_rng(0)
    V = rng.normal(size=(8, 5))
    L = V @ V.T
    sets: list[tuple[int, ...]] = list(itertools.combinations(range(8), 3))
    minors = np.array([np.linalg.det(L[np.ix_(one, one)]) for one in sets])
    exact = minors / minors.sum()
    scores = np.exp(cd.DPP(V=V).score_samples([list(one) for one in sets], size=3))
    click.echo(f"largest error of our log-probabilities: {np.abs(np.log(scores / exact)).max():.0e}")
    samplers = {"contradpp": ours(V), "DPPy, L": theirs(V, dual=False), "DPPy, factors": theirs(V, dual=True)}
    for name, draw in samplers.items():
        click.echo(f"{name:16}{distance(draw(3, n), sets, exact):.4f}")
    perfect = [np.abs(rng.multinomial(n, exact) / n - exact).sum() / 2 for _ in range(1000)]
    low, high = np.quantile(perfect, [0.025, 0.975])
    click.echo(f"perfect sampler {np.mean(perfect):.4f}, 95 % of {low:.4f} to {high:.4f}")


def speed() -> None:
    """Print milliseconds of samples of 10 items."""
    click.echo(f"\n{'items':>8}{'rank':>6}  {'sampler':16}{'first ms':>12}{'later ms':>12}")
    for M, K in (1_000, 50), (3_000, 100), (20_000, 100):
        V = np.random.default_rng(0).normal(size=(M, K)) / M**0.5
        for name in ("contradpp", "DPPy, L", "DPPy, factors"):
            if name == "DPPy, L" and M > 3_000:
                continue  # its matrix and eigenvectors alone are 6.4 GB
            start = time.process_time()
            draw = ours(V) if name == "contradpp" else theirs(V, dual=name == "DPPy, factors")
            draw(10, 1)
            first = time.process_time() - start
            n = 1000 if name == "contradpp" else 20
            start = time.process_time()
            draw(10, n)
            later = (time.process_time() - start) / n
            click.echo(f"{M:8,}{K:6}  {name:16}{1e3 * first:12.1f}{1e3 * later:12.3f}")


@click.command(help=__doc__)
@click.option("--samples", default=20_000)
def beside_dppy(samples: int) -> None:
    """Print accuracies and times."""
    with threadpool_limits(1):
        ours(np.eye(3))(1, 1)  # compiles
        accuracy(samples)
        speed()


if __name__ == "__main__":
    beside_dppy()
