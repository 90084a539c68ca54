"""Metrics by the size of the basket and by the popularity of the held-out item.

Here every item of a basket is held out in turn and weighs 1/|A|, which is the mean over the random choice that
`Report.mpr` makes once per basket.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.errors import MissingExtraError
from contradpp.metrics import metrics

Counts = NDArray[np.int64]
SIZES = {"1": 1, "2-3": 2, "4-7": 4, "8-15": 8, "16-31": 16, "32-63": 32, "64+": 64}
POPULARITY = ("head", "middle", "tail")


@dataclass(frozen=True)
class Row:
    """One group: how many baskets (or held-out items) it has, and how the model does on them."""

    group: str
    n: int
    mpr: float
    mpr_paper: float
    precision: dict[int, float]
    ndcg: float


@dataclass(frozen=True)
class Breakdown:
    """A table of the metrics by group; the last row is all groups together."""

    title: str
    counted: str
    rows: tuple[Row, ...]

    def as_dict(self) -> list[dict[str, Any]]:
        """The rows as plain values, for JSON."""
        return [asdict(row) for row in self.rows]

    def __str__(self) -> str:
        ks = list(self.rows[0].precision)
        head = ["", self.counted, "MPR", *[f"p@{k}" for k in ks], "nDCG"]
        lines = [f"{self.title:<12}" + "".join(f"{name:>10}" for name in head[1:])]
        for row in self.rows:
            values = [row.mpr, *row.precision.values()]
            shown = "".join(f"{value:>10.2f}" for value in values)
            lines.append(f"  {row.group:<10}{row.n:>10,}{shown}{row.ndcg:>10.4f}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Entries:
    """How every item ranked when it was left out of its basket; aligned with the entries of the ranked baskets."""

    indptr: Counts
    better: Counts
    equal: Counts
    others: Counts  # M − |A∖i|

    @property
    def sizes(self) -> Counts:
        """The size of the basket of each entry."""
        sizes = np.diff(self.indptr)
        return np.repeat(sizes, sizes)


def by_size(entries: Entries, ks: Sequence[int]) -> Breakdown:
    """By the size of the basket, the held-out item included."""
    group = np.searchsorted(list(SIZES.values()), entries.sizes, side="right") - 1
    baskets = np.bincount(group[entries.indptr[:-1]], minlength=len(SIZES)) if len(group) else np.zeros(len(SIZES), int)
    return _breakdown("basket size", "baskets", tuple(SIZES), group, baskets, entries, ks)


def by_popularity(entries: Entries, codes: NDArray[np.int32], item_counts: Counts, ks: Sequence[int]) -> Breakdown:
    """By how popular the held-out item is.

    With items sorted by how often they occur, those that make up the first third of all occurrences are the head,
    the second third the middle, the others the tail.
    """
    group = popularity_groups(item_counts)[codes]
    held_out = np.bincount(group, minlength=len(POPULARITY))
    return _breakdown("popularity", "items", POPULARITY, group, held_out, entries, ks)


def popularity_groups(item_counts: Counts) -> NDArray[np.int64]:
    """0, 1 or 2 for the items of the head, the middle and the tail."""
    order = np.argsort(-item_counts, kind="stable")
    ahead = np.cumsum(item_counts[order]) - item_counts[order]
    groups = np.full(len(item_counts), 2)
    groups[order] = np.minimum(3 * ahead // max(int(item_counts.sum()), 1), 2)
    groups[item_counts == 0] = 2
    return groups


def _breakdown(
    title: str,
    counted: str,
    names: tuple[str, ...],
    group: NDArray[np.int64],
    counts: Counts,
    entries: Entries,
    ks: Sequence[int],
) -> Breakdown:
    e, weights = entries, 1.0 / entries.sizes
    columns = {
        "mpr": metrics.percentile_rank(e.better, e.equal, e.others),
        "mpr_paper": metrics.percentile_rank(e.better, e.equal, e.others, lost=0.0),
        "ndcg": metrics.ndcg(e.better, e.equal),
        **{f"p{k}": 100.0 * metrics.hits(e.better, e.equal, k) for k in ks},
    }
    n = len(names)
    totals = np.bincount(group, weights, minlength=n)
    sums = {name: np.bincount(group, weights * values, minlength=n) for name, values in columns.items()}

    def row(name: str, which: NDArray[np.bool_]) -> Row:
        weight = totals[which].sum()
        mean = {column: float(s[which].sum() / weight) if weight else float("nan") for column, s in sums.items()}
        precision = {k: mean[f"p{k}"] for k in ks}
        return Row(name, int(counts[which].sum()), mean["mpr"], mean["mpr_paper"], precision, mean["ndcg"])

    rows = [row(name, np.arange(n) == g) for g, name in enumerate(names) if counts[g]]
    return Breakdown(title, counted, (*rows, row("all", np.ones(n, dtype=bool))))


def plot_breakdowns(breakdowns: tuple[Breakdown, ...], path: str | os.PathLike[str] | None = None) -> Any:
    """Bars of MPR and of the last p@k, group by group, a panel per breakdown; written to `path` if given.

    The dashed line is the mean over all groups.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib: pip install 'contradpp[plot]'") from error
    figure = Figure(figsize=(4.5 * len(breakdowns), 5.5), layout="constrained")
    axes = figure.subplots(2, len(breakdowns), squeeze=False, sharey="row")
    for column, table in enumerate(breakdowns):
        *groups, everything = table.rows
        k = list(everything.precision)[-1]
        for line, (name, color) in enumerate({"MPR": "#4477aa", f"p@{k}": "#ee6677"}.items()):
            values = [row.mpr if line == 0 else row.precision[k] for row in (*groups, everything)]
            panel = axes[line, column]
            panel.bar([f"{row.group}\n{row.n:,}" for row in groups], values[:-1], color=color)
            panel.axhline(values[-1], color="0.3", linewidth=1, linestyle="--")
            panel.spines[["top", "right"]].set_visible(False)
            if column == 0:
                panel.set_ylabel(f"{name} (%)")
        axes[1, column].set_xlabel(f"{table.title} (and number of {table.counted})")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
