"""The charts of the page as SVG: curves, bars, the map of the items and the heat map of the kernel.

By hand and not by matplotlib: they take their colours from the page's light or dark theme, answer to the pointer, are
a few kilobytes each, and the report stays a single file that needs no plotting library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.metrics.report import Breakdown, Row

Array = NDArray[np.float64]
WIDTH, HEIGHT = 500, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 18, 38
ROOM_FOR_A_DIGIT = 36  # the width of a bar whose value may have one after the point, in the letters of a phone
MAP_WIDTH, MAP_HEIGHT = 760, 600
ALWAYS_NAMED = 15
CELL = 24.0
LONGEST = 30  # characters of a name in the heat map
FULL = float(np.log(4.0))  # the ratio at which a cell has its full colour: a quarter as often, or four times

# -- Elements ------------------------------------------------------------------------------------


def tag(name: str, *children: str, **attributes: Any) -> str:
    """An element. Children are markup; attribute values are escaped; `class_` is written class, `_` becomes `-`."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{shown}>{''.join(children)}</{name}>"


def text(content: str, x: float, y: float, **attributes: Any) -> str:
    """A text at a place; the content is escaped."""
    return tag("text", escape(content), x=x, y=y, **attributes)


def hint(content: str) -> str:
    """What is shown where the pointer rests; the content is escaped."""
    return tag("title", escape(content))


def svg(width: float, height: float, *children: str, label: str, class_: str = "chart") -> str:
    """A drawing that scales with the page; the label is what a screen reader says."""
    return tag(
        "svg", *children, viewBox=f"0 0 {_plain(width)} {_plain(height)}", role="img", aria_label=label, class_=class_
    )


@dataclass(frozen=True)
class Scale:
    """A linear map from values to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def ticks(low: float, high: float, n: int = 5) -> list[float]:
    """About n round numbers between two values."""
    span = high - low
    if not span > 0:
        return [low]
    rough = span / n
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def short(content: str, longest: int) -> str:
    """A text cut to a length."""
    return content if len(content) <= longest else content[: longest - 1].rstrip() + "…"


def width_of(content: str, size: float = 11.5) -> float:
    """About how wide a text is; capitals are wider."""
    return size * sum(0.72 if letter.isupper() else 0.3 if letter in "il.,' ()" else 0.57 for letter in content)


class Box(NamedTuple):
    """A rectangle that a label covers."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two overlap."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


# -- Curves and bars ------------------------------------------------------------------------------


def curve(history: Sequence[dict[str, Any]], key: str, *, label: str, class_: str, mark_best: bool = False) -> str:
    """One figure of the training history, round by round; the best round is marked if asked."""
    rounds = [(record["iteration"], float(record[key])) for record in history if math.isfinite(record[key])]
    if not rounds:
        return ""
    values = [value for _, value in rounds]
    margin = 0.06 * (max(values) - min(values) or 1.0)
    x = Scale(1, max(rounds[-1][0], 2), LEFT, WIDTH - RIGHT)
    y = Scale(min(values) - margin, max(values) + margin, HEIGHT - BOTTOM, TOP)
    places = [(x(number), y(value)) for number, value in rounds]
    path = "M" + " L".join(f"{a:.1f},{b:.1f}" for a, b in places)
    area = f"{path} L{places[-1][0]:.1f},{HEIGHT - BOTTOM} L{places[0][0]:.1f},{HEIGHT - BOTTOM} Z"
    dots = [
        tag("circle", hint(f"round {number}: {value:.4f}"), cx=a, cy=b, r=8.0, class_="hit")
        + tag("circle", cx=a, cy=b, r=2.5, class_=f"dot {class_}")
        for (number, value), (a, b) in zip(rounds, places, strict=True)
    ]
    best = ""
    if mark_best:
        top = max(range(len(values)), key=values.__getitem__)
        a, b = places[top]
        side = "end" if a > WIDTH * 0.6 else "start"
        words = text(f"best: round {rounds[top][0]}", a, b + 22, class_="mark", text_anchor=side)
        best = tag("circle", cx=a, cy=b, r=6.0, class_=f"ring {class_}") + words
    steps = [float(t) for t in ticks(1, max(rounds[-1][0], 2), 6) if t == int(t)]
    return svg(
        WIDTH,
        HEIGHT,
        _axes(x, y, steps, ticks(y.low, y.high, 5), "round"),
        tag("path", d=area, class_=f"area {class_}"),
        tag("path", d=path, class_=f"line {class_}"),
        *dots,
        best,
        label=label,
    )


def bars(breakdowns: dict[str, Breakdown], figure: Callable[[Row], float], *, unit: str, label: str) -> str:
    """A figure by group, a bar for each model, in the order given; values stand on the bars."""
    names = list(breakdowns)
    tables = {name: {row.group: row for row in table.rows[:-1]} for name, table in breakdowns.items()}
    groups = list(tables[names[0]].values())
    most = max((figure(row) for table in tables.values() for row in table.values()), default=1.0)
    y = Scale(0, most * 1.15 or 1.0, HEIGHT - BOTTOM - 14, TOP)
    slot = (WIDTH - LEFT - RIGHT) / max(len(groups), 1)
    width = min(slot * 0.8 / len(names), 44)
    drawn = []
    for position, group in enumerate(groups):
        middle = LEFT + slot * (position + 0.5)
        drawn.append(text(group.group, middle, HEIGHT - BOTTOM + 3, class_="tick", text_anchor="middle"))
        drawn.append(text(f"{group.n:,}", middle, HEIGHT - BOTTOM + 18, class_="faint", text_anchor="middle"))
        for place, name in enumerate(names):
            row = tables[name].get(group.group)
            if row is not None:
                left = middle + (place - len(names) / 2) * (width + 2)
                drawn.append(_bar(left, width, y, figure(row), place, f"{name}, {group.group}"))
    title = f"{breakdowns[names[0]].title} (and number of {breakdowns[names[0]].counted})"
    return svg(
        WIDTH,
        HEIGHT,
        _grid(y, ticks(0, y.high, 4), unit=unit),
        *drawn,
        text(title, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, class_="faint", text_anchor="middle"),
        label=label,
    )


def _bar(left: float, width: float, y: Scale, value: float, place: int, what: str) -> str:
    top, foot = y(value), y(0)
    radius = min(4.0, width / 2, max(foot - top, 0.0))
    shape = (
        f"M{left:.1f},{foot:.1f} V{top + radius:.1f} q0,{-radius:.1f} {radius:.1f},{-radius:.1f} "
        f"H{left + width - radius:.1f} q{radius:.1f},0 {radius:.1f},{radius:.1f} V{foot:.1f} Z"
    )
    digits = 1 if width >= ROOM_FOR_A_DIGIT else 0
    words = text(f"{value:.{digits}f}", left + width / 2, top - 5, class_="value", text_anchor="middle")
    return tag("path", hint(f"{what}: {value:.2f}"), d=shape, class_=f"bar s{place}") + words


def _axes(x: Scale, y: Scale, x_ticks: list[float], y_ticks: list[float], x_label: str) -> str:
    marks = [text(f"{t:g}", x(t), HEIGHT - BOTTOM + 16, class_="tick", text_anchor="middle") for t in x_ticks]
    name = text(x_label, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, class_="faint", text_anchor="middle")
    return _grid(y, y_ticks) + "".join(marks) + name


def _grid(y: Scale, values: list[float], *, unit: str = "") -> str:
    parts = []
    for value in values:
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(value), y2=y(value), class_="grid"))
        parts.append(text(f"{value:g}{unit}", LEFT - 8, y(value) + 4, class_="tick", text_anchor="end"))
    return "".join(parts)


# -- Maps ----------------------------------------------------------------------------------------


def item_map(places: Array, names: Sequence[str], shares: Array, groups: Sequence[int], *, n_labels: int = 120) -> str:
    """Every item as a dot, its area by popularity, its colour by group; the popular are named where room is left."""
    x, y = Scale(-1, 1, 30, MAP_WIDTH - 30), Scale(-1, 1, 24, MAP_HEIGHT - 24)
    radius = (1.5 + 11 * np.sqrt(shares / shares.max())).tolist()
    centres = [(x(a), y(b)) for a, b in places.tolist()]
    order = np.argsort(-shares, kind="stable").tolist()
    dots = [
        tag("circle", hint(f"{names[i]}: in {shares[i]:.1%} of baskets"), cx=centres[i][0], cy=centres[i][1],
            r=radius[i], class_=f"item c{groups[i]}", data_item=i, tabindex=0)
        for i in order
    ]  # fmt: skip
    labels = _labels(order[:n_labels], centres, radius, names)
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
    """Names beside their dots, the most popular first, each at the first of four places that is free, else nowhere.

    The first few may cover other dots, so that what everyone looks for is there. Widths are estimates: the page's
    script takes away the names that touch in the reader's font.
    """
    dots = [Box(x - 0.6 * r, y - 0.6 * r, x + 0.6 * r, y + 0.6 * r) for (x, y), r in zip(centres, radius, strict=True)]
    taken: list[Box] = []
    shown = []
    for rank, i in enumerate(order):
        words = short(names[i], 26)
        wide, (x, y), off = width_of(words, 11), centres[i], radius[i] + 3
        others = taken if rank < ALWAYS_NAMED else [*taken, *dots[:i], *dots[i + 1 :]]
        beside = (x + off, y + 4, "start", 0.0), (x - off, y + 4, "end", wide)
        for at, foot, anchor, back in (*beside, *((x, y + d, "middle", wide / 2) for d in (-off - 2, off + 10))):
            box = Box(at - back - 2, foot - 11, at - back + wide + 2, foot + 4)
            if box.left > 2 and box.right < MAP_WIDTH - 2 and not any(box.meets(other) for other in others):
                taken.append(box)
                shown.append(text(words, at, foot, text_anchor=anchor, class_="name"))
                break
    return shown
