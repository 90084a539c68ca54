"""What large catalogues cost: time and peak memory of fitting, of the normaliser and of recommendations. Linux only.

    python benchmarks/large.py million                     1,000,000 items, 200,000 of them with partners, one round
    CONTRADPP_DATA=... python benchmarks/large.py instacart    fit and evaluate by default, two threads

Peaks are those of the whole process, libraries and data included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import contradpp as cd

SOLD, CATALOGUE, BASKETS = 200_000, 1_000_000, 400_000
ASKED = 5000  # test baskets, as in docs/beyond.md


def status(name: str) -> float:
    """A line of the process's status, in GB."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 2**20


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Do the work, and print how long it took and the most memory that the process had meanwhile."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # start the peak anew
    began, cpu = time.perf_counter(), time.process_time()
    result = work()
    seconds, busy = time.perf_counter() - began, time.process_time() - cpu
    print(f"| {what} | {seconds:.1f} s ({busy:.1f} of all threads) | {status('VmHWM'):.2f} GB |", flush=True)
    return result


def planted(seed: int = 0) -> cd.Baskets:
    """Baskets of two to ten of the items that are sold, popular by a power law, with planted pairs 2i and 2i + 1."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(1, 6, size=BASKETS)
    share = np.arange(1000, SOLD // 2 + 1000) ** -0.5
    kinds = rng.choice(SOLD // 2, size=int(pairs.sum()), p=share / share.sum())
    both = rng.random(len(kinds)) < 0.8  # else a half of the pair, and any other item
    first = 2 * kinds + np.where(both, 0, rng.integers(0, 2, size=len(kinds)))
    second = np.where(both, first + 1, rng.integers(0, SOLD, size=len(kinds)))
    codes = np.stack([first, second], axis=1).ravel()
    return cd.Baskets.from_csr(np.concatenate([[0], np.cumsum(2 * pairs)]), codes, items=range(CATALOGUE))


def million() -> None:
    """One round of the default kernel over a million items."""
    baskets = timed("make the baskets", planted)
    model = cd.NonsymmetricDPP(max_iter=1, calibrate=None, random_state=0)
    timed("fit, one round", lambda: model.fit(baskets))
    degrees = np.diff(model.skew_.indptr)
    print(f"\n{int((degrees > 0).sum()):,} items have {degrees.sum() / 2:,.0f} pairs of partners\n")
    log = timed("normaliser", lambda: model.log_normalizer_)
    print(f"\nlog det(I + L) = {log:.4f} ± {model.log_normalizer_error_:.4f}\n")
    asked = baskets.subset(np.arange(1000))
    ids, _ = timed("1,000 recommendations", lambda: model.recommend(asked, N=10))
    timed("1,000 one at a time", lambda: [model.recommend(basket) for basket in asked])
    full = next(model.predict_next(basket) for basket in asked)  # by a pass over all items
    best = np.argsort(-full, kind="stable")[:10]
    codes, shares = model.recommend(next(iter(asked)))
    print(f"\nthe first as by a full pass: {codes.tolist() == best.tolist()}, {np.allclose(shares, full[best])}\n")
    partner = [bool(({code ^ 1 for code in basket} - set(basket)) & set(row)) for basket, row in zip(
        (asked.indices[a:b].tolist() for a, b in zip(asked.indptr[:-1], asked.indptr[1:], strict=True)), ids.tolist(),
        strict=True)]  # fmt: skip
    print(f"\n{np.mean(partner):.0%} of them have the other half of a pair among ten suggestions\n")
    timed("calibration", lambda: cd.NonsymmetricDPP(max_iter=1, random_state=0).fit(baskets))


def instacart() -> None:
    """Fit and evaluate by default."""
    baskets = timed("read", lambda: cd.datasets.load("instacart", progress=False))
    train, test = baskets.split(0.2, random_state=0)
    asked = test.subset(np.flatnonzero(test.sizes >= 2))
    asked = asked.subset(np.sort(np.random.default_rng(0).choice(asked.n_baskets, ASKED, replace=False)))
    model = cd.NonsymmetricDPP(n_jobs=2, random_state=0)
    timed("fit", lambda: model.fit(train))
    report = timed("evaluate", lambda: cd.evaluate(model, asked, n_jobs=2))
    print(f"\n{asked.n_baskets:,} test baskets\n{report}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("million", "instacart"))
    args = parser.parse_args()
    print("| what | time | peak memory |\n|---|---|---|")
    {"million": million, "instacart": instacart}[args.what]()


if __name__ == "__main__":
    main()
