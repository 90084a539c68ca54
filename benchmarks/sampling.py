"""Time per exact sample: ours against DPPy's dual sampler, on the same kernel in one run.

A random kernel of rank 76 over 16,470 items (the size of the paper's Belgian data), scaled so that a sample
has about 10 items. DPPy is no dependency of ours; make an environment that has both:

    python -m venv /tmp/dppyenv && /tmp/dppyenv/bin/pip install -e . dppy==0.3.3
    /tmp/dppyenv/bin/python benchmarks/sampling.py
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np

from contradpp import LowRankDPP

GOAL = 10.0


def random_factors(n_items: int, rank: int, expected_size: float, seed: int) -> np.ndarray:
    """Gaussian factors, scaled by bisection until Σ λ/(1 + λ), the mean size of a sample, is as asked."""
    V = np.random.default_rng(seed).normal(size=(n_items, rank))
    values = np.linalg.eigvalsh(V.T @ V)
    low, high = 1e-12, 1e12
    for _ in range(200):
        scale = np.sqrt(low * high)
        too_large = (scale * values / (1 + scale * values)).sum() > expected_size
        low, high = (low, scale) if too_large else (scale, high)
    return V * np.sqrt(scale)


def per_sample(draw: Callable[[int], list[int]], n: int) -> tuple[float, float]:
    """Microseconds a sample, and the mean size, of `draw(n)`, which returns the sizes of n samples."""
    start = perf_counter()
    sizes = draw(n)
    return (perf_counter() - start) / n * 1e6, float(np.mean(sizes))


def our_sampler(V: np.ndarray, *, one_by_one: bool) -> Callable[[int], list[int]]:
    model = LowRankDPP.from_factors(V)
    model.n_jobs = 1
    model.sample(10, random_state=0)  # compiles, and prepares the kernel
    if one_by_one:
        return lambda n: [len(model.sample(random_state=s).indices) for s in range(n)]
    return lambda n: model.sample(n, random_state=1).sizes.tolist()


def dppy_sampler(V: np.ndarray) -> Callable[[int], list[int]]:
    from dppy.finite_dpps import FiniteDPP

    with contextlib.redirect_stdout(io.StringIO()):  # it prints from its constructor
        dpp = FiniteDPP("likelihood", L_gram_factor=V.T)
        dpp.sample_exact(random_state=0)  # its eigendecomposition is kept from here on

    def draw(n: int) -> list[int]:
        return [len(dpp.sample_exact(random_state=1 + s)) for s in range(n)]

    return draw


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=16_470)
    parser.add_argument("--rank", type=int, default=76)
    parser.add_argument("--size", type=float, default=10.0, help="mean items in a sample")
    parser.add_argument("--samples", type=int, default=20_000, help="of ours; DPPy draws a thousandth, at least 20")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many rounds counts")
    arguments = parser.parse_args()

    V = random_factors(arguments.items, arguments.rank, arguments.size, seed=0)
    few = max(arguments.samples // 1000, 20)
    samplers = {
        "ours, in one call": (our_sampler(V, one_by_one=False), arguments.samples),
        "ours, one a call": (our_sampler(V, one_by_one=True), arguments.samples // 20),
    }
    try:
        samplers["DPPy, dual"] = (dppy_sampler(V), few)
    except ImportError:
        print(
            "DPPy is not installed here: pip install dppy==0.3.3 (best in an environment of its own)",
            file=sys.stderr,
        )
    print(f"{arguments.items:,} items, rank {arguments.rank}, best of {arguments.repeats} rounds\n")
    print(f"{'sampler':<20}{'samples':>9}{'mean size':>11}{'µs/sample':>12}")
    times = {}
    for name, (draw, n) in samplers.items():
        times[name], size = min(per_sample(draw, n) for _ in range(arguments.repeats))
        print(f"{name:<20}{n:>9,}{size:>11.1f}{times[name]:>12.1f}")
    theirs = times.pop("DPPy, dual", None)
    if theirs is None:
        return 1
    print()
    for name, ours in times.items():
        print(f"ratio of DPPy to {name}: {theirs / ours:,.0f} (goal: at least {GOAL:.0f})")
    return 0 if theirs / max(times.values()) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
