"""The charts of curves and bars: training, and metrics by group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from contradpp.metrics.breakdown import Breakdown, Row
from contradpp.report.svg import Scale, hint, svg, tag, text, ticks

WIDTH, HEIGHT = 500, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 18, 38


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
    words = text(f"{value:.1f}", left + width / 2, top - 5, class_="value", text_anchor="middle")
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
