"""Does learning end at the optimum? Kernels that are known, samples of them, five seeds each.

    python benchmarks/known_kernels.py [--seeds 5] [--baskets 18000] [--figure docs/figures/known-kernels.png]

Every kernel is drawn at random, and learned again from samples by objective="mle" and the defaults. What is printed is
how far, in nats a basket, held-out baskets are below the best that is known of the same model: a long climb by L-BFGS
with full batches that starts at the truth. `--figure` draws how one kernel is learned with and without annealing.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import contradpp as cd
from contradpp.data.sets import EMPTY, distinct_sets
from contradpp.learn.objectives import Contrastive
from contradpp.learn.optimizers import FullBatch, climb
from contradpp.learn.state import NO_PARTNERS, Partners, State, kernel_of
from contradpp.learn.training import assemble


@dataclass(frozen=True)
class Known:
    """M items, K columns of a normal law, and a diagonal and a skew part where they are not zero."""

    M: int
    K: int
    scale: float
    seed: int
    diagonal: float = 0.0
    skew: float = 0.0
    truth: Any = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        V, d, S = rng.normal(size=(self.M, self.K)) * self.scale, None, None
        if self.diagonal:
            d = self.diagonal * np.exp(0.5 * rng.normal(size=self.M))
            S = np.triu(self.skew * rng.normal(size=(self.M, self.M)) * (rng.random((self.M, self.M)) < 4 / self.M), 1)
            S = S - S.T
        object.__setattr__(self, "truth", cd.NonsymmetricDPP.from_factors(V, S=S, diagonal=d))

    @property
    def name(self) -> str:
        """For the table."""
        return f"M={self.M}, K={self.K}" + (", D and S" if self.diagonal else "")

    def learner(self, seed: int, **parameters: Any) -> Any:
        """A model of the same kind."""
        given = {"objective": "mle", "random_state": seed} | parameters
        return cd.NonsymmetricDPP(self.K, self.M, **given) if self.diagonal else cd.LowRankDPP(self.K, **given)


KERNELS = (
    Known(8, 3, 0.8, 1),
    Known(12, 4, 0.8, 21),
    Known(12, 12, 0.3, 2),
    Known(20, 5, 0.5, 5),
    Known(20, 6, 0.3, 3, diagonal=0.3, skew=0.5),
    Known(40, 8, 0.3, 3),
    Known(40, 40, 0.08, 4),
)


def best_known(known: Known, data: cd.Baskets) -> Any:
    """The model where a long climb from the truth ends."""
    kernel = known.truth.kernel_
    partners = Partners.of_matrix(kernel.skew.matrix(), known.M) if kernel.skew.n_entries else NO_PARTNERS
    state = State(kernel.factors.copy(), np.log(kernel.diagonal) if kernel.has_diagonal else np.empty(0), partners)
    sets, weights = distinct_sets(data.sets, np.ones(data.n_baskets))
    batch = assemble(sets, weights * sets.count / data.n_baskets, EMPTY, np.empty(0))
    climb(FullBatch(state, Contrastive(1.0), batch, np.zeros(known.M), 10_000), 3000)
    found = kernel_of(state.V, state.log_d, state.pairs, partners)
    S = found.skew.matrix() if partners is not NO_PARTNERS else None
    return cd.NonsymmetricDPP.from_factors(state.V, S=S, diagonal=found.diagonal if kernel.has_diagonal else None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--baskets", type=int, default=18_000)
    parser.add_argument("--only", help="parts of names, such as 'M=12'")
    parser.add_argument("--figure")
    args = parser.parse_args()
    if args.figure:
        draw(args.figure, args.seeds)
        return
    print("| kernel | truth | best known | nats below the best known, seed by seed | seconds |\n|---|---|---|---|---|")
    for known in KERNELS:
        if args.only and args.only not in known.name:
            continue
        data, held_out = (known.truth.sample(args.baskets, random_state=seed) for seed in (0, 1))
        truth, best, began = known.truth.score(held_out), best_known(known, data).score(held_out), time.perf_counter()
        gaps = [best - known.learner(seed).fit(data).score(held_out) for seed in range(args.seeds)]
        seconds = (time.perf_counter() - began) / args.seeds
        listed = " ".join(f"{gap:.4f}" for gap in gaps)
        print(f"| {known.name} | {truth:.4f} | {best:.4f} | {listed} | {seconds:.1f} |", flush=True)


def draw(path: str, n_seeds: int) -> None:
    """The nats below the truth after training on 5,000 baskets, without annealing and with it."""
    import matplotlib.pyplot as plt

    known = Known(12, 4, 1.0, 1)
    data = known.truth.sample(5000, random_state=1)
    figure, axes = plt.subplots(figsize=(6, 2.2), layout="constrained")
    for row, anneal in enumerate((False, True)):
        for seed in range(n_seeds):
            model = known.learner(seed, alpha=0, anneal=anneal, calibrate=None).fit(data, validation=data)
            gap = known.truth.score(data) - model.score(data)
            axes.plot(gap, row, "o", color=f"C{row}", alpha=0.6)
            print(f"anneal={anneal} seed={seed}: {gap:.4f}", flush=True)
    axes.axvline(0, color="0.6", lw=1)
    axes.set(yticks=(0, 1), yticklabels=("steps along the gradient", "a diagonal lowered to zero"), ylim=(-0.6, 1.6))
    axes.set_xlabel("nats a basket below the kernel that the baskets come from")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
