"""Customers who come again: next items and next baskets with and without their earlier baskets.

    python -m experiments.customers uk tafeng --seeds 0 1 2

Each customer's last basket of three or more is for testing, the others are for training. Settings of the
baselines are those of the best nDCG of the next basket on the last training baskets, given the earlier ones.
Next items are those of test baskets of two and more items. Intervals of 95 % are bootstraps over test baskets,
one a customer.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from typing import Any

import click
import numpy as np

import contradpp as cd
from contradpp import baselines
from contradpp.metrics.intervals import paired_difference
from contradpp.metrics.metrics import next_basket_samples

METRICS = ("precision@10", "ndcg", "mpr", "repeat@10", "new@10", "new_only@10", "next_recall", "next_ndcg")
GRIDS: dict[type, dict[str, tuple[Any, ...]]] = {
    baselines.PersonalFrequency: {"decay": (0.5, 0.7, 0.8, 0.9, 0.95, 1.0)},
    baselines.TIFUKNN: {"alpha": (0.3, 0.5, 0.7, 0.9), "n_neighbors": (100, 300), "group_decay": (0.6, 0.8)},
    baselines.UPCF: {"recency": (5, 25, 100), "locality": (1, 5, 10, 50), "asymmetry": (0.25, 0.5)},
}
N_TUNED = 500  # baskets for settings


def load(name: str) -> cd.Baskets:
    """Return baskets with customers."""
    if name != "tafeng":
        return cd.datasets.load(name)
    import pyarrow.parquet as pq

    table = pq.read_table(cd.datasets.location(name) / "visits.parquet")  # type: ignore[operator]
    customer, visit, item = (table[column].to_numpy().astype(np.int64) for column in ("customer", "visit", "item"))
    starts = np.flatnonzero(np.diff(customer * 10**6 + visit, prepend=-1))
    indptr = np.append(starts, len(item))
    items, codes = np.unique(item, return_inverse=True)
    return cd.Baskets.from_csr(indptr, codes, items=items.tolist()).with_customers(customer[starts], visit[starts])


def grid(options: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of settings."""
    for values in itertools.product(*options.values()):
        yield dict(zip(options, values, strict=True))


def tuned(kind: type, train: cd.Baskets) -> Any:
    """Return a baseline fitted to all training baskets, with settings from the last ones of them."""
    earlier, last = train.split_by_time(min_baskets=3)
    last = last.split(min(N_TUNED, last.n_baskets // 2), random_state=0)[1]
    histories = last.histories(earlier)

    def value(settings: dict[str, Any]) -> float:
        model = kind(**settings).fit(earlier)
        ids, _ = model.recommend([[]] * len(last), 10, history=histories)
        lists = np.array([model.items_.codes(row) for row in ids.tolist()])
        return float(np.nanmean(next_basket_samples(lists, last.sets)["next_ndcg"]))

    best = max(grid(GRIDS[kind]), key=value)
    click.echo(f"  {kind.__name__}: {best}")
    return kind(**best).fit(train)


def evaluate(model: Any, test: cd.Baskets, train: cd.Baskets) -> Any:
    """Return the report of a model, its next items in baskets of two and more only."""
    report = cd.evaluate(model, test, history=train, likelihood=False)
    for metric in METRICS[:-2]:
        report.by_basket[metric] = np.where(test.sizes >= 2, report.by_basket[metric], np.nan)
    return report


def differences(ours: Any, theirs: Any, metrics: tuple[str, ...]) -> str:
    """Return the differences of two reports in words."""
    found = {metric: paired_difference(ours, theirs, metric) for metric in metrics}
    return "; ".join(f"{metric} {d.value:+.4g} [{d.low:.4g}, {d.high:.4g}]" for metric, d in found.items())


def measure(name: str, seeds: list[int], n_test: int | None) -> None:
    """Print the table of one data set."""
    train, test = load(name).split_by_time(min_baskets=3)
    if n_test is not None and n_test < test.n_baskets:
        test = test.split(n_test, random_state=0)[1]
    click.echo(f"\n## {name}: {train.n_baskets:,} training baskets, {test.n_baskets:,} test baskets")
    reports: dict[str, Any] = {}
    for kind in GRIDS:
        reports[kind.__name__] = evaluate(tuned(kind, train), test, train)
    for seed in seeds:
        started = time.perf_counter()
        model = cd.ConditionalDPP(random_state=seed).fit(train)
        seconds = time.perf_counter() - started
        with_history = evaluate(model, test, train)
        model._history = None  # the model answers as if it had been fitted without
        without = evaluate(model, test, train)
        reports[f"ConditionalDPP, seed {seed}"] = without
        reports[f"with history, seed {seed}"] = with_history
        click.echo(f"  seed {seed}: fitted in {seconds:.0f} s")
        click.echo(f"  gain by history: {differences(with_history, without, METRICS)}")
        for kind in GRIDS:
            ahead = differences(with_history, reports[kind.__name__], METRICS[-2:])
            click.echo(f"  ahead of {kind.__name__}: {ahead}")
    click.echo("\n| model | " + " | ".join(METRICS) + " |\n|---" + "|---" * len(METRICS) + "|")
    for label, report in reports.items():
        click.echo(
            f"| {label} | " + " | ".join(f"{np.nanmean(report.by_basket[metric]):.4g}" for metric in METRICS) + " |"
        )


def main() -> None:
    """Measure the data sets of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=("uk", "tafeng"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--n-test", type=int, help="random test baskets; all if left out")
    arguments = parser.parse_args()
    for name in arguments.names:
        measure(name, arguments.seeds, arguments.n_test)


if __name__ == "__main__":
    main()
