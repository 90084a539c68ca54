"""The report: one HTML page that loads nothing, in light and dark.

`page.html` is its Jinja2 template, with all words of the page. This module computes the numbers and
positions that the template draws. Charts are SVG and not matplotlib pictures: they take their
colors from the page's theme, respond to the pointer, and are a few kilobytes each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

import contradpp as cd
from contradpp._types import Array, Ints, Values
from contradpp.data.baskets import Baskets
from contradpp.errors import MissingExtraError, ParameterError
from contradpp.metrics.compare import Comparison
from contradpp.metrics.report import Breakdown, Row
from contradpp.models.base import DPPRecommender
from contradpp.models.mixture import MixtureDPP
from contradpp.report.evaluation import BASELINE, KS, Example, K, assessment, describe_features
from contradpp.report.item_map import N_LANDMARKS, ItemMap
from contradpp.slates.similarity import Company

if TYPE_CHECKING:
    from jinja2 import Template

N_RELATED = 6
MIN_TOGETHER = 5  # baskets with two items, before one counts as a complement of the other
N_COLORS = 8
N_TYPICAL = 5  # items that describe a kind of basket
N_TABLE = 12  # items in the table
N_NAMED = 120  # items named on the map

WIDTH = 500  # of a chart
HEIGHT = 270
LEFT = 58  # the edges of what is drawn in it
RIGHT = WIDTH - 16
TOP = 18
BOTTOM = HEIGHT - 48
MAP_WIDTH = 760
MAP_HEIGHT = 600


@dataclass(frozen=True)
class Subject:
    """A trained model, its training baskets, and its results on others: what a page shows."""

    model: Any
    name: str
    data: str
    train: cd.Baskets
    comparison: Comparison | None
    examples: Sequence[Example]
    seconds: float


def render(subject: Subject) -> str:
    """Return the page as HTML; raise `MissingExtraError` without Jinja2."""
    template = load_template()
    model = subject.model
    items = survey(model, subject.train)
    curves = ("validation", "objective") if model.history_ else ()
    explained = getattr(model, "explained_", None)
    comparison = subject.comparison
    return template.render(
        subject=subject,
        model=model,
        train=subject.train,
        comparison=comparison,
        items=items,
        assessment=None if comparison is None else assessment(comparison, subject.name),
        panels=breakdown_charts(subject),
        map=map_chart(items),
        history={key: curve(model.history_, key) for key in curves},
        settings={**model.get_params(), "rounds": model.n_iter_},
        features=None if explained is None else describe_features(explained),
        baseline=BASELINE,
        K=K,
        KS=KS,
        n_table=N_TABLE,
        version=cd.__version__,
        chart={"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "bottom": BOTTOM},
    )


def load_template() -> Template:
    """Return the template of the page; raise `MissingExtraError` without Jinja2."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError(
            "the report needs Jinja2: pip install 'contradpp[report]'"
        ) from error
    environment = Environment(
        loader=PackageLoader("contradpp.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"short": short, "figure": figure}
    return environment.get_template("page.html")


def short(text: str, longest: int) -> str:
    """Cut a text to a length."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def figure(value: float, digits: int) -> str:
    """Format a number, or a dash for one that was not measured."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"


# -- Items: positions, substitutes and complements -------------------------------------------------


@dataclass(frozen=True)
class Survey:
    """The most popular items and their relations, the most popular item first."""

    names: list[str]
    attracts: bool  # if any two items occur together more often than unrelated ones
    substitutes: list[list[tuple[str, float, float]]]  # names, times as often as by chance, bound
    complements: list[list[tuple[str, float, int]]]  # names, times likelier next, baskets with both
    positions: Array  # (n, 2) on the map
    shares: Array  # of the baskets that contain each item
    clusters: list[int]  # the color of each item; N_COLORS is gray
    kinds: list[tuple[float, list[str]]]  # of baskets, one a color: share, typical items
    n_kinds: int

    @property
    def entries(self) -> list[Values]:
        """The items as the page's script needs them."""
        rows = {name: row for row, name in enumerate(self.names)}
        entries = []
        for row, name in enumerate(self.names):
            near = self.substitutes[row]
            along = self.complements[row]
            entries.append(
                {
                    "name": name,
                    "share": f"{self.shares[row]:.1%}",
                    "substitutes": [
                        (short(other, 36), f"×{ratio:.2f}, at most {upper:.2f}")
                        for other, ratio, upper in near
                    ],
                    "complements": [
                        (short(other, 36), f"×{times:.2f}, in {n:,}") for other, times, n in along
                    ],
                    "near": [rows[other] for other, *_ in (*near, *along) if other in rows],
                }
            )
        return entries


def survey(model: DPPRecommender, train: Baskets, *, n: int = N_LANDMARKS) -> Survey:
    """Collect the relations of the items that occur in most baskets."""
    baskets = train.recode(model.items_)
    codes = popular(baskets, n)
    ids = [model.items_[code] for code in codes.tolist()]
    names = [" ".join(model.items_.name(item).split()) for item in ids]
    item_map = ItemMap(model, codes)
    replaced = Company.of(baskets.sets, len(model.items_)).substitutes(model.items_)
    near = [
        [
            (" ".join(model.items_.name(model.items_[one.code]).split()), one.ratio, one.upper)
            for one in replaced.get(code, [])[:N_RELATED]
        ]
        for code in codes.tolist()
    ]
    usual = model.predict_next([])
    along = []
    for item, counts in zip(ids, cooccurrences(baskets, codes), strict=True):
        found = complements(model, item, 4 * N_RELATED, usual=usual)
        entries = [
            (model.items_.name(other), times, int(counts[model.items_.code(other)]))
            for other, times in found
        ]
        along.append([entry for entry in entries if entry[2] >= MIN_TOGETHER][:N_RELATED])
    shares = train.item_counts[train.items.codes(ids)] / max(train.n_baskets, 1)
    colors, kinds, n_kinds = kinds_of_baskets(model, codes, shares)
    return Survey(
        names,
        bool((item_map.ratios > 1e-6).any()),
        substitutes=near,
        complements=along,
        positions=item_map.positions,
        shares=shares,
        clusters=colors.tolist(),
        kinds=kinds,
        n_kinds=n_kinds,
    )


def kinds_of_baskets(
    model: Any, codes: Ints, shares: Array
) -> tuple[Ints, list[tuple[float, list[str]]], int]:
    """Return the color of every item, the clusters of the colors, and the number of all clusters.

    An item has the color of the cluster that it prefers. The clusters whose items are sold most
    have one. Without a mixture all items have the same.
    """
    mixture = model if isinstance(model, MixtureDPP) else getattr(model, "kernel_", None)
    if not isinstance(mixture, MixtureDPP) or mixture.dpp.n_clusters == 1:
        return np.zeros(len(codes), dtype=np.int64), [], 0
    preferred = mixture.tilts_[:, codes].argmax(axis=0)
    counts = np.bincount(preferred, weights=shares, minlength=mixture.dpp.n_clusters)
    shown = np.argsort(-counts, kind="stable")[:N_COLORS]
    colors = np.full(len(counts), N_COLORS)
    colors[shown] = np.arange(len(shown))
    kinds = []
    for c in shown.tolist():
        items = mixture.cluster_items(c, N_TYPICAL)[0].tolist()
        kinds.append((float(mixture.weights_[c]), [mixture.items_.name(item) for item in items]))
    return colors[preferred], kinds, len(counts)


def popular(baskets: Baskets, n: int) -> Ints:
    """Return the codes of the n items in most baskets, without those that never occur."""
    counts = baskets.item_counts
    order = np.argsort(-counts, kind="stable")[:n]
    return order[counts[order] > 0]


def cooccurrences(baskets: Baskets, codes: Ints) -> Ints:
    """Count the baskets that contain each of these items and every other item (len(codes), M)."""
    ones = np.ones(len(baskets.indices), dtype=np.int64)
    shape = (baskets.n_baskets, baskets.n_items)
    X = csr_array((ones, baskets.indices, baskets.indptr), shape=shape)
    counts: Ints = (X[:, codes].T @ X).toarray()
    return counts


def complements(
    model: Any, item: Hashable, n: int, *, usual: Array
) -> list[tuple[Hashable, float]]:
    """Return items that an item in the basket makes likelier to come next, and how many times.

    Parameters
    ----------
    usual : array (M,)
        P(next = j | ∅). A model without complements of its own returns the largest differences
        P(next = j | item) − usual, because the ratio of rare items is noise.
    """
    given = model.predict_next([item])
    try:
        codes = model.items_.codes(model.complements(item, n)[0].tolist())
    except (AttributeError, ParameterError):  # its kernel is symmetric
        codes = np.argsort(usual - given, kind="stable")[:n]
    times = given[codes] / np.maximum(usual[codes], 1e-300)
    ids = [model.items_[code] for code in codes.tolist()]
    return list(zip(ids, times.tolist(), strict=True))


# -- Charts: the positions of what is drawn --------------------------------------------------------


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


def curve(history: Sequence[Values], key: str) -> Values | None:
    """Place a number of the training history by round; return None if it was never finite."""
    points = [(record["iteration"], float(record[key])) for record in history]
    points = [(number, value) for number, value in points if math.isfinite(value)]
    if not points:
        return None
    values = [value for _, value in points]
    margin = 0.06 * (max(values) - min(values) or 1.0)
    low = min(values) - margin
    high = max(values) + margin
    last = max(points[-1][0], 2)
    x = scale(1, last, LEFT, RIGHT)
    y = scale(low, high, BOTTOM, TOP)
    return {
        "points": [(x(number), y(value), number, value) for number, value in points],
        "best": int(np.argmax(values)),
        "columns": [(x(tick), f"{tick:g}") for tick in ticks(1, last, 6) if tick == int(tick)],
        "lines": [(y(tick), f"{tick:g}") for tick in ticks(low, high)],
    }


def breakdown_charts(subject: Subject) -> list[tuple[str, Values]]:
    """Place the bars of model and popularity, by basket size and by item popularity."""
    if subject.comparison is None:
        return []
    reports = {name: subject.comparison.reports[name] for name in (BASELINE, subject.name)}
    metrics: list[tuple[str, str, Callable[[Row], float]]] = [
        (f"Top {K}", " %", lambda row: row.precision[K]),
        ("MPR", "", lambda row: row.mpr),
    ]
    parts = {"by_size": "the size of the basket", "by_popularity": "how popular the item is"}
    charts = []
    for metric, unit, value in metrics:
        for part, words in parts.items():
            breakdowns = {name: getattr(report, part) for name, report in reports.items()}
            charts.append((f"{metric} by {words}", bars(breakdowns, value, unit)))
    return charts


def bars(breakdowns: dict[str, Breakdown], value: Callable[[Row], float], unit: str) -> Values:
    """Place a bar for each group and model, in the order given."""
    tables = {
        name: {row.group: value(row) for row in table.rows[:-1]}
        for name, table in breakdowns.items()
    }
    first = next(iter(breakdowns.values()))
    groups = first.rows[:-1]
    values = [one for table in tables.values() for one in table.values()]
    high = 1.15 * max(values, default=0.0) or 1.0
    y = scale(0, high, BOTTOM - 14, TOP)
    slot = (RIGHT - LEFT) / max(len(groups), 1)
    width = round(min(slot * 0.8 / len(tables), 44), 1)
    labels = []
    drawn = []
    for position, row in enumerate(groups):
        middle = round(LEFT + slot * (position + 0.5), 1)
        labels.append((middle, row.group, f"{row.n:,}"))
        for place, (name, table) in enumerate(tables.items()):
            if row.group in table:
                drawn.append(
                    {
                        "left": round(middle + (place - len(tables) / 2) * (width + 2), 1),
                        "top": y(table[row.group]),
                        "place": place,
                        "value": table[row.group],
                        "words": f"{name}, {row.group}",
                    }
                )
    return {
        "title": f"{first.title} (and number of {first.counted})",
        "groups": labels,
        "bars": drawn,
        "width": width,
        "digits": 1 if width >= 36 else 0,  # wide bars only: letters are large on a phone
        "lines": [(y(tick), f"{tick:g}{unit}") for tick in ticks(0, high, 4)],
        "foot": y(0),
    }


def map_chart(items: Survey) -> Values:
    """Place every item as a dot whose area shows popularity; the page's script places the names."""
    x = scale(-1, 1, 30, MAP_WIDTH - 30)
    y = scale(-1, 1, 24, MAP_HEIGHT - 24)
    largest = max(items.shares, default=1.0)
    dots = [
        {
            "x": x(left),
            "y": y(top),
            "r": round(1.5 + 11 * math.sqrt(share / largest), 2),
            "cluster": cluster,
            "share": f"{share:.1%}",
        }
        for (left, top), share, cluster in zip(
            items.positions.tolist(), items.shares.tolist(), items.clusters, strict=True
        )
    ]
    return {"width": MAP_WIDTH, "height": MAP_HEIGHT, "dots": dots, "n_named": N_NAMED}
