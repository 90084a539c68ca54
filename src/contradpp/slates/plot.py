"""A picture of a slate beside the most probable items."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from contradpp._display import new_figure

LONGEST = 32  # characters of a name


def plot_slate(
    model: Any,
    basket: Iterable[Any],
    N: int = 10,
    *,
    path: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Draw the N most probable items and the slate for a basket side by side.

    Items that are on one side only are blue. The bars are P(next = i | basket).

    Parameters
    ----------
    model : a fitted DPP
    basket : iterable of items
    N : int
        The length of both lists.
    path : path, optional
        A file for the picture.
    **options
        Those of `slate`, such as `diversity`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    basket = list(basket)
    lists = {
        "most probable": model.recommend(basket, N),
        "slate": model.slate(basket, N, **options),
    }
    items = [set(found.tolist()) for found, _ in lists.values()]
    figure = new_figure(10, 1 + 0.3 * N)
    panels = figure.subplots(1, 2, sharex=True)
    for panel, (title, (found, probabilities)) in zip(panels, lists.items(), strict=True):
        names = [model.items_.name(item) for item in found.tolist()]
        colors = [
            "0.7" if all(item in one for one in items) else "#4477aa" for item in found.tolist()
        ]
        rows = range(len(names))
        panel.barh(rows, 100 * probabilities, color=colors)
        panel.set_yticks(rows, [name[:LONGEST].replace("$", r"\$") for name in names])
        panel.invert_yaxis()
        panel.set_title(title)
        panel.set_xlabel("chance (%)")
        panel.spines[["top", "right"]].set_visible(False)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
