"""Beside the published nonsymmetric DPPs, by their protocol: 2,000 test and 300 validation baskets, the rest to learn.

    CONTRADPP_DATA=... python benchmarks/published.py [--only apparel] [--seeds 3]

Their numbers are those of table 2 of Gartrell, Han, Dohmatob, Gillenwater and Brunel, *Scalable Learning and MAP
Inference for Nonsymmetric Determinantal Point Processes* (ICLR 2021): MPR of one item left out of each basket at
random, AUC of log P of baskets beside uniform sets of the same sizes, and log P of the test baskets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

import contradpp as cd

N_TEST, N_VALIDATION = 2000, 300
METRICS = ("mpr_paper", "auc", "log_likelihood")
PUBLISHED = {
    "apparel": {
        "low rank": (62.63, 0.68, -10.02),
        "nonsymmetric, 2019": (72.20, 0.77, -9.64),
        "scalable, 2021": (69.02, 0.74, -9.63),
    },
    "three categories": {
        "low rank": (61.0, 0.76, -18.11),
        "nonsymmetric, 2019": (74.10, 0.82, -16.96),
        "scalable, 2021": (73.04, 0.82, -17.14),
    },
    "uk": {
        "low rank": (69.95, 0.58, -116.23),
        "nonsymmetric, 2019": (74.17, 0.66, -104.38),
        "scalable, 2021": (76.79, 0.73, -100.65),
    },
}


def apparel() -> cd.Baskets:
    """All 14,970 registries, those of one item among them."""
    return cd.read_baskets(cd.datasets.download("amazon/apparel")[0], "ragged")


def three_categories() -> cd.Baskets:
    """The 31,218 registries of two or more items of apparel, diaper and feeding: 300 items, and no basket mixes."""
    parts = []
    for name in ("apparel", "diaper", "feeding"):
        baskets = cd.datasets.load(f"amazon/{name}")
        items = cd.Vocabulary([f"{name}-{item}" for item in baskets.items])
        parts.append(cd.Baskets(baskets.indptr, baskets.indices, items))
    whole = parts[0].items.merge(parts[1].items).merge(parts[2].items)
    return cd.Baskets.concat([part.recode(whole) for part in parts])


DATA: dict[str, Callable[[], cd.Baskets]] = {
    "apparel": apparel,
    "three categories": three_categories,
    "uk": lambda: cd.datasets.load("uk"),
}
MODELS: dict[str, Callable[[int, int], object]] = {
    "LowRankDPP, mle": lambda largest, seed: cd.LowRankDPP(max(largest, 30), objective="mle", random_state=seed),
    "NonsymmetricDPP": lambda _, seed: cd.NonsymmetricDPP(random_state=seed),
    "ConditionalDPP": lambda _, seed: cd.ConditionalDPP(random_state=seed),
}


def measured(baskets: cd.Baskets, model: str, seed: int) -> list[float]:
    """The three metrics of a model on one split."""
    order = np.random.default_rng(seed).permutation(baskets.n_baskets)
    test, held, train = (baskets.subset(np.sort(part)) for part in np.split(order, [N_TEST, N_TEST + N_VALIDATION]))
    fitted = MODELS[model](int(baskets.sizes.max()), seed).fit(train, validation=held)  # type: ignore[attr-defined]
    report = cd.evaluate(fitted, test, random_state=seed)
    return [getattr(report, name) for name in METRICS]


def main() -> None:
    """Print a table for every data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="one of: " + ", ".join(DATA))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for name, load in DATA.items():
        if given.only in (None, name):
            baskets = load()
            print(f"\n{name}: {baskets.n_baskets:,} baskets, {baskets.n_items:,} items\n")
            print("| model | MPR | AUC | log-likelihood |\n|---|---|---|---|")
            for label, (mpr, auc, likelihood) in PUBLISHED[name].items():
                print(f"| published: {label} | {mpr:.2f} | {auc:.2f} | {likelihood:.2f} |")
            for model in MODELS:
                runs = np.array([measured(baskets, model, seed) for seed in range(given.seeds)])
                mean, spread = runs.mean(axis=0), runs.std(axis=0)
                cells = [f"{m:.{d}f} ± {s:.{d}f}" for m, s, d in zip(mean, spread, (2, 3, 2), strict=True)]
                print(f"| {model} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
