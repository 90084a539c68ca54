"""The report as one HTML page that needs nothing else: no network, no plotting library, light and dark.

`page.html` is its Jinja2 template, with all words of the page. Here is what the template is given: figures, and the
places of what is drawn. Charts are drawn by hand and not by matplotlib: they take their colors from the page's light or
dark theme, answer to the pointer, and are a few kilobytes each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import contradpp as cd
from contradpp.atlas import N_LANDMARKS, Atlas, clusters
from contradpp.data.baskets import Baskets
from contradpp.errors import MissingExtraError, ParameterError
from contradpp.metrics.compare import Comparison
from contradpp.metrics.report import Breakdown, Row
from contradpp.report.measured import BASELINE, KS, Example, K, explained, verdict

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

N_RELATED = 6
FEWEST_TOGETHER = 5  # baskets that must hold two items before one is said to make the other more likely
N_COLORS = 8
N_TABLE, N_HEAT, N_NAMED = 12, 24, 120  # items in the table, in the heat map, and named on the map

WIDTH, HEIGHT = 500, 260  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 58, WIDTH - 16, 18, HEIGHT - 38  # the edges of what is drawn in it
MAP_WIDTH, MAP_HEIGHT = 760, 600
CELL = 24  # of the heat map
LETTER = 6.6  # about the width of a letter beside it
FULL = math.log(4.0)  # the log ratio at which a cell has its full color: a quarter as often, or four times


@dataclass(frozen=True)
class Subject:
    """A trained model, the baskets it learned from, and how it did on others: what the page is about."""

    model: Any
    name: str
    data: str
    train: cd.Baskets
    measured: Comparison | None
    examples: Sequence[Example]
    seconds: float


def render(subject: Subject) -> str:
    """Return the page as HTML; `MissingExtraError` without Jinja2."""
    template = load_template()
    items = survey(subject.model, subject.train)
    n_heat = min(N_HEAT, len(items.names))
    history = subject.model.history_
    page: str = template.render(
        subject=subject, model=subject.model, train=subject.train, measured=subject.measured, items=items,
        verdict=None if subject.measured is None else verdict(subject.measured, subject.name),
        panels=_panels(subject), map=item_map(items), heat=heat_map(items.ratios[:n_heat, :n_heat], items.names),
        legend=heat_legend(attracts=items.attracts),
        history={key: curve(history, key) for key in ("validation", "objective")} if history else {},
        settings={**subject.model.get_params(), "rounds": subject.model.n_iter_},
        features=None if (told := getattr(subject.model, "explained_", None)) is None else explained(told),
        baseline=BASELINE, K=K, KS=KS, n_heat=n_heat, n_table=N_TABLE, version=cd.__version__,
        chart={"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "bottom": BOTTOM},
    )  # fmt: skip
    return page


def load_template() -> Any:
    """Return the template of the page; `MissingExtraError` without Jinja2."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("the report is made with Jinja2: pip install 'contradpp[report]'") from error
    environment = Environment(
        loader=PackageLoader("contradpp.report", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"short": short, "figure": figure}
    return environment.get_template("page.html")


def short(content: str, longest: int) -> str:
    """Cut a text to a length."""
    return content if len(content) <= longest else content[: longest - 1].rstrip() + "…"


def figure(value: float, digits: int) -> str:
    """Write a number, or a dash for one that was not measured."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"


# -- Items: where they lie, what they are kept apart from, what they go with -----------------------------


@dataclass(frozen=True)
class Survey:
    """The most popular items, most popular first."""

    names: list[str]
    ratios: Array  # (n, n): see `contradpp.atlas.pair_ratios`
    substitutes: list[list[tuple[str, float]]]  # names with |cos|
    complements: list[list[tuple[str, float, int]]]  # how many times likelier next, and in how many baskets together
    places: Array  # (n, 2): where each is on the map
    shares: Array  # of baskets that hold each
    groups: list[int]  # the color of each

    @property
    def attracts(self) -> bool:
        """Whether any two items are together more often than unrelated ones."""
        return bool((self.ratios > 1e-6).any())

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The items as the page's script needs them."""
        rows = {name: number for number, name in enumerate(self.names)}
        return [
            {
                "name": name,
                "share": f"{share:.1%}",
                "substitutes": [(short(other, 36), f"{strength:.2f}") for other, strength in near],
                "complements": [(short(other, 36), f"×{times:.2f}, in {n:,}") for other, times, n in along],
                "near": [rows[other] for other, *_ in (*near, *along) if other in rows],
            }
            for name, share, near, along in zip(
                self.names, self.shares, self.substitutes, self.complements, strict=True
            )
        ]


def survey(model: Any, train: Baskets, *, n: int = N_LANDMARKS) -> Survey:
    """Look at the items that are in most of the baskets."""
    own = train.recode(model.items_)
    codes = popular(own, n)
    ids = [model.items_[code] for code in codes.tolist()]
    names = [" ".join(model.items_.name(item).split()) for item in ids]
    atlas = Atlas(model, codes)
    near = [[(names[other], x) for other, x in substitutes(atlas.ratios, row, N_RELATED)] for row in range(len(ids))]
    usual = model.predict_next([])
    along = []
    for item, counts in zip(ids, together(own, codes), strict=True):
        found = complements(model, item, 4 * N_RELATED, usual=usual)
        supported = [(model.items_.name(other), x, int(counts[model.items_.code(other)])) for other, x in found]
        along.append([entry for entry in supported if entry[2] >= FEWEST_TOGETHER][:N_RELATED])
    shares = train.item_counts[train.items.codes(ids)] / max(train.n_baskets, 1)
    return Survey(names, atlas.ratios, near, along, atlas.places, shares, clusters(atlas.places, N_COLORS).tolist())


def popular(baskets: Baskets, n: int) -> Codes:
    """Return the codes of the n items in most baskets, most popular first, without those that never occur."""
    counts = baskets.item_counts
    order = np.argsort(-counts, kind="stable")[:n]
    return order[counts[order] > 0]


def together(baskets: Baskets, codes: Codes) -> Codes:
    """Count the baskets that hold each of these items with every other one (len(codes), M)."""
    ones = np.ones(len(baskets.indices), dtype=np.int64)
    X = csr_array((ones, baskets.indices, baskets.indptr), shape=(baskets.n_baskets, baskets.n_items))
    found: Codes = (X[:, codes].T @ X).toarray()
    return found


def substitutes(ratios: Array, row: int, n: int) -> list[tuple[int, float]]:
    """Return the items that one is kept apart from most, by their rows, with |cos| of the angle between their factors.

    As `similar_items` of the model, but only among these items: rare ones lie where chance has put them.
    """
    order = np.argsort(ratios[row], kind="stable")[:n]
    return [(int(other), float(np.sqrt(-np.expm1(ratios[row, other])))) for other in order if ratios[row, other] < 0]


def complements(model: Any, item: Hashable, n: int, *, usual: Array) -> list[tuple[Hashable, float]]:
    """Return items that an item in the basket makes more likely to come next, and how many times.

    Parameters
    ----------
    usual : array (M,)
        P(next = j | ∅), what an empty basket is offered. Where the model has no complements of its own, items are
        ordered by P(next = j | item) − usual, so that rare items, whose ratio means little, do not come first.
    """
    given = model.predict_next([item])
    try:
        codes = model.items_.codes(model.complements(item, n)[0].tolist())
    except (AttributeError, ParameterError):  # its kernel is symmetric
        codes = np.argsort(usual - given, kind="stable")[:n]
    times = given[codes] / np.maximum(usual[codes], 1e-300)
    return [(model.items_[code], float(value)) for code, value in zip(codes.tolist(), times, strict=True)]


# -- Charts: the places of what is drawn -------------------------------------------------------------------


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return the linear map of low to start and high to end."""
    span = high - low or 1.0
    return lambda value: round(start + (value - low) / span * (end - start), 1)


def ticks(low: float, high: float, n: int = 5) -> list[float]:
    """Return about n round numbers between two values."""
    span = high - low
    if not span > 0:
        return [low]
    rough = span / n
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def curve(history: Sequence[dict[str, Any]], key: str) -> dict[str, Any] | None:
    """Place a figure of the training history, round by round; None if it was never finite."""
    rounds = [(record["iteration"], float(record[key])) for record in history if math.isfinite(record[key])]
    if not rounds:
        return None
    values = [value for _, value in rounds]
    margin = 0.06 * (max(values) - min(values) or 1.0)
    low, high, last = min(values) - margin, max(values) + margin, max(rounds[-1][0], 2)
    x = scale(1, last, LEFT, RIGHT)
    y = scale(low, high, BOTTOM, TOP)
    return {
        "points": [(x(number), y(value), number, value) for number, value in rounds],
        "best": int(np.argmax(values)),
        "columns": [(x(tick), f"{tick:g}") for tick in ticks(1, last, 6) if tick == int(tick)],
        "lines": [(y(tick), f"{tick:g}") for tick in ticks(low, high)],
    }


def _panels(subject: Subject) -> list[tuple[str, dict[str, Any]]]:
    """The model beside popularity, by the size of the basket and by how popular the item is."""
    if subject.measured is None:
        return []
    reports = {name: subject.measured.reports[name] for name in (BASELINE, subject.name)}
    figures: list[tuple[str, str, Callable[[Row], float]]] = [
        (f"Top {K}", " %", lambda row: row.precision[K]),
        ("MPR", "", lambda row: row.mpr),
    ]
    parts = {"by_size": "the size of the basket", "by_popularity": "how popular the item is"}
    return [
        (f"{what} by {words}", bars({name: getattr(one, part) for name, one in reports.items()}, value, unit))
        for what, unit, value in figures
        for part, words in parts.items()
    ]


def bars(breakdowns: dict[str, Breakdown], value: Callable[[Row], float], unit: str) -> dict[str, Any]:
    """Place a figure by group, a bar for each model, in the order given; values stand on the bars."""
    tables = {name: {row.group: value(row) for row in table.rows[:-1]} for name, table in breakdowns.items()}
    first = next(iter(breakdowns.values()))
    groups = first.rows[:-1]
    high = 1.15 * max((one for table in tables.values() for one in table.values()), default=0.0) or 1.0
    y = scale(0, high, BOTTOM - 14, TOP)
    slot = (RIGHT - LEFT) / max(len(groups), 1)
    width = round(min(slot * 0.8 / len(tables), 44), 1)
    middles = [round(LEFT + slot * (position + 0.5), 1) for position in range(len(groups))]
    drawn = [
        {"left": round(middle + (place - len(tables) / 2) * (width + 2), 1), "top": y(table[group.group]),
         "place": place, "value": table[group.group], "words": f"{name}, {group.group}"}
        for group, middle in zip(groups, middles, strict=True)
        for place, (name, table) in enumerate(tables.items())
        if group.group in table
    ]  # fmt: skip
    return {
        "title": f"{first.title} (and number of {first.counted})",
        "groups": [(middle, group.group, f"{group.n:,}") for group, middle in zip(groups, middles, strict=True)],
        "bars": drawn,
        "width": width,
        "digits": 1 if width >= 36 else 0,  # room on a phone, where letters are large
        "lines": [(y(tick), f"{tick:g}{unit}") for tick in ticks(0, high, 4)],
        "foot": y(0),
    }


def item_map(items: Survey) -> dict[str, Any]:
    """Place every item as a dot, its area by popularity; the page's script names the popular where room is left."""
    x, y = scale(-1, 1, 30, MAP_WIDTH - 30), scale(-1, 1, 24, MAP_HEIGHT - 24)
    largest = max(items.shares, default=1.0)
    dots = [
        {"x": x(left), "y": y(top), "r": round(1.5 + 11 * math.sqrt(share / largest), 2), "group": group,
         "share": f"{share:.1%}"}
        for (left, top), share, group in zip(items.places.tolist(), items.shares.tolist(), items.groups, strict=True)
    ]  # fmt: skip
    return {"width": MAP_WIDTH, "height": MAP_HEIGHT, "dots": dots, "n_named": N_NAMED}


def heat_map(ratios: Array, names: Sequence[str]) -> dict[str, Any]:
    """Place all pairs in a triangle, colored by how much less or more often they are together than unrelated items."""
    n = len(ratios)
    labels = [short(name, 30) for name in names[:n]]
    wide = round(LETTER * max(map(len, labels), default=0))
    side = wide + 12
    head = max(0, *(round(0.64 * LETTER * len(label) - row * CELL) for row, label in enumerate([*labels, ""])))
    cells = [
        {"x": side + column * CELL, "y": head + row * CELL, "color": color(ratios[row, column]),
         "words": f"{names[row]} + {names[column]}: {math.exp(ratios[row, column]):.2f}"}
        for row in range(n)
        for column in range(row)
    ]  # fmt: skip
    return {
        "width": side + n * CELL + 0.77 * wide, "height": head + n * CELL + 8, "cells": cells, "size": CELL - 2,
        "labels": [(label, side, side + (row + 0.4) * CELL, head + (row + 0.75) * CELL)
                   for row, label in enumerate(labels)],
    }  # fmt: skip


def heat_legend(*, attracts: bool) -> list[tuple[tuple[str, str], str]]:
    """Return the colors of the heat map and their meaning."""
    steps = {0.0: "never together", 0.5: "half as often", 1.0: "as often as unrelated items"}
    steps |= {2.0: "twice as often", 4.0: "4 times or more"} if attracts else {}
    return [(color(math.log(max(times, 1e-9))), words) for times, words in steps.items()]


def color(ratio: float) -> tuple[str, str]:
    """Return the side of a ratio's color, and how much of it: by the square root, so that weak ones can be seen."""
    strength = math.sqrt(min(abs(ratio) / FULL, 1.0))
    return ("apart" if ratio < 0 else "together"), f"{strength:.0%}"
