"""The breakdowns as a figure. Matplotlib is the extra `plot`."""

from __future__ import annotations

import os
from typing import Any

from contradpp.errors import MissingExtraError
from contradpp.metrics.breakdown import Breakdown


def plot_breakdowns(breakdowns: tuple[Breakdown, ...], path: str | os.PathLike[str] | None = None) -> Any:
    """Bars of MPR (ties half) and of the last p@k, group by group, a panel per breakdown; written to `path` if given.

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
            values = [row.mpr_fair if line == 0 else row.precision[k] for row in (*groups, everything)]
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
