"""The cost of a basket in a training step against catalogue size, rank and basket size; draws docs/figures/cost.png.

    python benchmarks/cost.py [FOLDER]

One thread, batches of 1,000 baskets, the shortest of several steps. Everything else is held at M = 10,000, K = 64
and ten items a basket.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from contradpp._random import stream
from contradpp._threads import blas_threads
from contradpp.data.sets import EMPTY, Sets
from contradpp.learn.negatives import Dynamic, Negatives
from contradpp.learn.objectives import Batch, ConditionalLikelihood, Contrastive, Objective
from contradpp.learn.optimizers import Adam
from contradpp.learn.state import State, popularity, start_factors

BATCH = 1000
AXES = {
    "catalogue size M": ("M", [1_000, 10_000, 100_000, 1_000_000]),
    "rank K": ("K", [16, 32, 64, 96, 128]),
    "items in a basket": ("size", [2, 4, 8, 16, 32, 48]),
}


def microseconds(objective: str, *, M: int = 10_000, K: int = 64, size: int = 10, rounds: int = 8) -> float:
    """Time of a step per basket: negatives, gradient and update."""
    rng = np.random.default_rng(0)
    codes = np.concatenate([rng.choice(min(M, 10_000), size=size, replace=False) for _ in range(BATCH)])
    positives = Sets(np.arange(BATCH + 1, dtype=np.int64) * size, codes.astype(np.int32))
    counts = np.bincount(codes, minlength=M)
    share = popularity(counts, BATCH)
    state = State(start_factors("popularity", counts, BATCH, K, stream(0)))
    # As training chooses it: all rows up to 4,096 items, else rows on their turn.
    optimizer = Adam(1.0 / np.maximum(counts, 1.0), K, dense=M <= 4096)
    source = Dynamic(share)
    goal: Objective = ConditionalLikelihood(share) if objective == "exact" else Contrastive(1.0)
    times = []
    with blas_threads(1):
        for turn in range(rounds):
            started = time.perf_counter()
            drawn = EMPTY
            if objective == "dynamic":
                drawn = source.draw(state, positives, BATCH // 2, stream(1, turn), np.ones(BATCH))
            negatives = Negatives(drawn, np.full(drawn.count, 1 / max(drawn.count, 1)), drawn.count / BATCH)
            batch = Batch(positives, np.full(BATCH, 1 / BATCH), negatives)
            optimizer.step(state, goal.gradient(state, batch), 1.0)
            times.append(time.perf_counter() - started)
    return 1e6 * min(times[1:]) / BATCH


def main() -> None:
    """Measure along each axis, print, and draw."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/figures")
    figure, panels = plt.subplots(1, len(AXES), figsize=(11, 3.4), sharey=True, layout="constrained")
    for panel, (label, (name, values)) in zip(panels, AXES.items(), strict=True):
        for objective in ("mle", "dynamic", "exact"):
            costs = [microseconds(objective, **{name: value}) for value in values]
            print(
                f"{objective:<8} {label}: "
                + ", ".join(f"{v:,}: {c:.1f} µs" for v, c in zip(values, costs, strict=True))
            )
            panel.plot(values, costs, marker="o", markersize=4, label=objective)
        panel.set(xlabel=label, xscale="log", yscale="log")
        panel.set_xticks(values, [f"{value:,}" for value in values])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("µs a basket, one thread")
    panels[0].legend(frameon=False)
    figure.savefig(folder / "cost.png", dpi=140)


if __name__ == "__main__":
    main()
