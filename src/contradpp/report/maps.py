"""The two pictures of the kernel: items as a map, and the most popular ones as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contradpp.report.svg import Box, Scale, hint, short, svg, tag, text, width_of

Array = NDArray[np.float64]
MAP_WIDTH, MAP_HEIGHT = 760, 600
ALWAYS_NAMED = 15
CELL = 24.0
LONGEST = 30  # characters of a name in the heat map
FULL = float(np.log(4.0))  # the ratio at which a cell has its full colour: a quarter as often, or four times


@dataclass(frozen=True)
class Points:
    """Items on the map: places, what they are called, the share of baskets that hold them, and their cluster."""

    places: Array
    names: Sequence[str]
    shares: Array
    clusters: NDArray[np.int64]


def item_map(points: Points, *, n_labels: int = 120) -> str:
    """Every item as a dot, its area by popularity, its colour by cluster; the popular are named where room is left."""
    x = Scale(-1, 1, 30, MAP_WIDTH - 30)
    y = Scale(-1, 1, 24, MAP_HEIGHT - 24)
    radius = 1.5 + 11 * np.sqrt(points.shares / points.shares.max())
    centres = [(x(a), y(b)) for a, b in points.places.tolist()]
    order = np.argsort(-points.shares, kind="stable").tolist()
    dots = [
        tag("circle", hint(f"{points.names[i]}: in {points.shares[i]:.1%} of baskets"), cx=centres[i][0],
            cy=centres[i][1], r=float(radius[i]), class_=f"item c{points.clusters[i]}", data_item=i, tabindex=0)
        for i in order
    ]  # fmt: skip
    labels = _labels(order[:n_labels], centres, radius.tolist(), points.names)
    return svg(MAP_WIDTH, MAP_HEIGHT, *dots, *labels, label="map of the most popular items", class_="chart map")


def heat_map(ratios: Array, names: Sequence[str]) -> str:
    """How much less or more often two items are together than if they ignored each other: a triangle of all pairs."""
    n = len(names)
    labels = [short(name, LONGEST) for name in names]
    widths = [width_of(label) for label in labels]
    side, tilt = max(widths) + 12, float(np.sin(np.deg2rad(40)))
    head = max(max(tilt * width - row * CELL for row, width in enumerate(widths)), 0.0)
    drawn = []
    for row, label in enumerate(labels):
        x, y = side + (row + 0.4) * CELL, head + (row + 0.75) * CELL
        drawn.append(text(label, side - 8, y - 1, class_="tick", text_anchor="end"))
        drawn += [
            _cell(ratios[row, column], (names[row], names[column]), side + column * CELL, head + row * CELL)
            for column in range(row)
        ]
        if row < n - 1:
            drawn.append(text(label, x, y, class_="tick", transform=f"rotate(-40 {x:.1f} {y:.1f})"))
    size = (side + n * CELL + max(widths) * 0.77, head + n * CELL + 8)
    return svg(*size, *drawn, label="heat map of pairs of the most popular items", class_="chart heat")


def heat_legend(*, attracts: bool) -> str:
    """What the colours of the heat map mean."""
    steps = {0.0: "never together", 0.5: "half as often", 1.0: "as often as unrelated items"}
    steps |= {2.0: "twice as often", 4.0: "4 times or more"} if attracts else {}
    blocks = []
    for times, name in steps.items():
        side, style = _colour(float(np.log(max(times, 1e-9))))
        blocks.append(tag("span", tag("i", class_=side, style=style), name, class_="key"))
    return tag("div", *blocks, class_="legend")


def _cell(ratio: float, pair: tuple[str, str], x: float, y: float) -> str:
    side, style = _colour(ratio)
    words = f"{' + '.join(pair)}: {np.exp(ratio):.2f} times as often as unrelated items"
    size = CELL - 2
    return tag("rect", hint(words), x=x + 1, y=y + 1, width=size, height=size, rx=3, class_=side, style=style)


def _colour(ratio: float) -> tuple[str, str]:
    """The side that a ratio's colour is on, and how much of it: by the square root, so that weak ones can be seen."""
    strength = float(np.sqrt(min(abs(ratio) / FULL, 1.0)))
    return ("apart" if ratio < 0 else "together"), f"--t:{strength:.0%}"


def _labels(
    order: list[int], centres: list[tuple[float, float]], radius: list[float], names: Sequence[str]
) -> list[str]:
    """Names beside their dots, the most popular first, each at the first of four places that is free.

    The first few may cover other dots, so that what everyone looks for is there.
    """
    dots = [Box(x - 0.6 * r, y - 0.6 * r, x + 0.6 * r, y + 0.6 * r) for (x, y), r in zip(centres, radius, strict=True)]
    taken: list[Box] = []
    shown = []
    for rank, i in enumerate(order):
        words = short(names[i], 26)
        wide = width_of(words, 11)
        others = taken if rank < ALWAYS_NAMED else [*taken, *dots[:i], *dots[i + 1 :]]
        for x, y, anchor in _beside(*centres[i], radius[i] + 3):
            left = x - {"start": 0.0, "end": wide, "middle": wide / 2}[anchor]
            box = Box(left, y - 10, left + wide, y + 3)
            if left > 4 and left + wide < MAP_WIDTH - 4 and not any(box.meets(other) for other in others):
                taken.append(box)
                shown.append(text(words, x, y, text_anchor=anchor, class_="name"))
                break
    return shown


def _beside(x: float, y: float, r: float) -> tuple[tuple[float, float, str], ...]:
    """Where the name of a dot may stand."""
    return (x + r, y + 4, "start"), (x - r, y + 4, "end"), (x, y - r - 2, "middle"), (x, y + r + 10, "middle")
