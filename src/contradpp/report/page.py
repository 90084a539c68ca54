"""The report as one HTML page that needs nothing else: no network, no plotting library, light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import contradpp as cd
from contradpp.metrics.report import Row
from contradpp.report import charts
from contradpp.report.charts import short, tag
from contradpp.report.measured import BASELINE, KS, Example, K, Measured, explained
from contradpp.report.survey import Survey, survey

N_HEAT = 24
N_TABLE = 12


@dataclass(frozen=True)
class Subject:
    """What the page is about: a trained model, the baskets it learned from, and how it did on others."""

    model: Any
    name: str
    data: str
    train: cd.Baskets
    measured: Measured | None
    examples: Sequence[Example]
    seconds: float


def render(subject: Subject) -> str:
    """The page as HTML."""
    items = survey(subject.model, subject.train)
    content = [
        _header(subject), _tiles(subject), _metrics(subject), _training(subject), _examples(subject), _map(items),
        _relations(items), _heat(items), _features(subject), _settings(subject),
        tag("footer", f"Made by contradpp {cd.__version__}. This page is one file and loads nothing else."),
    ]  # fmt: skip
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{tag('title', escape(f'What was learned from {subject.data}'))}{tag('style', _asset('page.css'))}"
    )
    scripts = tag("script", items.as_json(), type="application/json", id="items") + tag("script", _asset("page.js"))
    body = tag("main", *content)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}{scripts}</body></html>\n'


def _asset(name: str) -> str:
    return (files("contradpp.report") / name).read_text(encoding="utf-8")


def _header(subject: Subject) -> str:
    words = f"{subject.name}: a determinantal point process over {len(subject.model.items_):,} items."
    titles = tag("h1", escape(f"What was learned from {subject.data}")) + tag("p", escape(words))
    return tag("header", tag("div", titles), tag("button", "light / dark", class_="theme", type="button"))


def _tiles(subject: Subject) -> str:
    train, measured = subject.train, subject.measured
    tiles = [
        (f"{train.n_baskets:,}", "baskets learned from", f"of {train.sizes.mean():.1f} items on average"),
        (f"{train.n_items:,}", "items", f"rank {subject.model.n_components}"),
        (f"{subject.seconds:.1f} s", "to learn", f"{subject.model.n_iter_} rounds over the data"),
    ]
    if measured is not None:
        ours, theirs = measured.reports[subject.name], measured.reports[BASELINE]
        top = (f"{ours.precision[K]:.1f} %", f"found in the first {K}", f"popularity: {theirs.precision[K]:.1f} %")
        rank = (f"{ours.mpr:.1f}", "mean percentile rank", f"popularity: {theirs.mpr:.1f}")
        tiles = [top, rank, *tiles]
    return tag("div", *(_tile(*one) for one in tiles), class_="tiles")


def _metrics(subject: Subject) -> str:
    measured = subject.measured
    if measured is None:
        return _section("How good is it?", "Nothing was held out, so there is no measurement.")
    verdict = tag("div", escape(measured.verdict(subject.name)), class_="verdict")
    heads = ["model", "MPR", *(f"top {k}" for k in KS), "nDCG", "AUC", "log-likelihood", "coverage"]
    rows = [
        [name, f"{r.mpr:.2f}", *(f"{r.precision[k]:.2f} %" for k in KS), f"{r.ndcg:.3f}",
         _figure(r.auc, 3), _figure(r.log_likelihood, 2) + r.plus_minus(), f"{r.coverage:.0%}"]
        for name, r in measured.reports.items()
    ]  # fmt: skip
    words = (
        f"One item was left out of each of {measured.n_baskets:,} held-out baskets and predicted from the rest. MPR is "
        "how far up it was ranked: 100 is always first, 50 is chance. Top 10 is how often it was among the first ten "
        "suggestions."
    )
    table = _figures(heads, rows, ours=subject.name)
    return _section("How good is it?", words, verdict, table, _breakdowns(measured, subject.name))


def _breakdowns(measured: Measured, name: str) -> str:
    """The model beside popularity, by the size of the basket and by how popular the item is."""
    shown = {one: measured.reports[one] for one in (BASELINE, name)}
    figures: dict[str, tuple[Callable[[Row], float], str]] = {
        f"Top {K}": (lambda row: row.precision[K], " %"),
        "MPR": (lambda row: row.mpr, ""),
    }
    panels = []
    for figure, (value, unit) in figures.items():
        for what, part in (("the size of the basket", "by_size"), ("how popular the item is", "by_popularity")):
            tables = {one: getattr(report, part) for one, report in shown.items()}
            title = f"{figure} by {what}"
            panels.append(_panel(title, charts.bars(tables, value, unit=unit, label=title)))
    colours = {one: f"s{place}" for place, one in enumerate(shown)}
    return tag("div", _legend(colours), tag("div", *panels, class_="two"), class_="apart-from-above")


def _training(subject: Subject) -> str:
    history = subject.model.history_
    if not history:
        return ""
    watched = charts.curve(history, "validation", label="validation score by round", class_="s1", mark_best=True)
    learned = charts.curve(history, "objective", label="objective by round", class_="s0")
    words = (
        "Each round goes once over all baskets. Training slows down when the score of the validation baskets stops "
        "rising, and ends when that no longer helps; the best round is kept."
    )
    panels = (
        _panel("Validation score (higher is better)", watched),
        _panel("Objective on the training baskets", learned),
    )
    return _section("How it learned", words, tag("div", *panels, class_="two"))


def _examples(subject: Subject) -> str:
    if not subject.examples:
        return ""
    items = subject.model.items_
    rows = []
    for example in subject.examples:
        suggested = [
            _chip(items.name(item), f"{chance:.1%}", "chip found" if item == example.hidden else "chip")
            for item, chance in zip(example.suggestions, example.probabilities, strict=True)
        ]
        hidden = _chip(items.name(example.hidden), "", "chip found" if example.found else "chip hidden")
        given = _chips(_chip(items.name(item)) for item in example.basket)
        rows.append([given, _chips([hidden]), _chips(suggested)])
    words = "Held-out baskets, drawn at random, with one item hidden. Green: the hidden item was found."
    heads = ["basket", "hidden", "suggestions, and their chance to come next"]
    return _section("What it suggests", words, _table(heads, rows))


def _map(items: Survey) -> str:
    panel = tag(
        "div", tag("div", class_="title"), tag("div", class_="sub"),
        tag("h3", "Kept apart from"), tag("ul", class_="substitutes"),
        tag("h3", "Makes more likely"), tag("ul", class_="complements"), class_="panel",
    )  # fmt: skip
    words = (
        f"The {len(items.names)} most popular items. Neighbours act on each other in the model; mostly they are "
        "substitutes, which seldom share a basket. Larger dots are in more baskets, colours are clusters. Point at a "
        "dot to see what it relates to."
    )
    drawing = charts.item_map(items.places, items.names, items.shares, items.groups)
    return _section("A map of the items", words, tag("div", drawing, panel, class_="atlas"))


def _relations(items: Survey) -> str:
    rows = []
    for number in range(min(N_TABLE, len(items.names))):
        near = [_chip(name, f"{strength:.2f}") for name, strength in items.substitutes[number][:4]]
        along = [_chip(name, f"×{times:.2f}, {n:,}") for name, times, n in items.complements[number][:4]]
        rows.append([escape(short(items.names[number], 40)), _chips(near), _chips(along)])
    words = (
        "Kept apart: how alike two items are to the model, from 0 to 1 (never in the same basket). More likely: by how "
        "much an item in the basket raises the chance of another to come next, and in how many baskets the two were."
    )
    if not items.attracts:
        words += " This kernel is symmetric: it pushes items apart but cannot pull them together, so little is raised."
    heads = ["item", "kept apart from", "makes more likely"]
    return _section("Substitutes and complements", words, _table(heads, rows))


def _heat(items: Survey) -> str:
    n = min(N_HEAT, len(items.names))
    words = f"Every pair of the {n} most popular items: how often the two are together, against unrelated items."
    drawing = tag("div", charts.heat_map(items.ratios[:n, :n], items.names[:n]), class_="scroll")
    return _section("The kernel", words, charts.heat_legend(attracts=items.attracts), drawing)


def _features(subject: Subject) -> str:
    told = getattr(subject.model, "explained_", None)
    return "" if told is None else _section("What features explain", explained(told))


def _settings(subject: Subject) -> str:
    known = {**subject.model.get_params(), "rounds": subject.model.n_iter_}
    pairs = [tag("div", tag("dt", escape(key)), tag("dd", escape(str(value)))) for key, value in known.items()]
    return tag("section", tag("details", tag("summary", "All settings of this model"), tag("dl", *pairs)))


# -- Pieces of HTML ------------------------------------------------------------------------------


def _section(title: str, words: str, *content: str) -> str:
    return tag("section", tag("h2", escape(title)), tag("p", escape(words)), *content)


def _panel(title: str, content: str) -> str:
    return tag("div", tag("h3", escape(title)), content)


def _tile(figure: str, what: str, more: str) -> str:
    return tag("div", tag("b", escape(figure)), tag("span", escape(what)), tag("em", escape(more)), class_="tile")


def _legend(kinds: dict[str, str]) -> str:
    """What the colours mean, by the class that has each."""
    keys = [tag("span", tag("i", class_=kind), escape(name), class_="key") for name, kind in kinds.items()]
    return tag("div", *keys, class_="legend")


def _chip(name: str, note: str = "", kind: str = "chip") -> str:
    return tag("span", escape(short(name, 34)), tag("small", escape(note)) if note else "", class_=kind)


def _chips(content: Iterable[str]) -> str:
    return tag("div", *content, class_="chips")


def _figure(value: float, digits: int) -> str:
    """A number, or a dash for one that was not measured."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are markup; on a phone each row is a card, its cells below each other with their heads."""
    head = tag("tr", *(tag("th", escape(name)) for name in heads))
    body = [
        tag("tr", *(tag("td", cell, data_head=name) for name, cell in zip(heads, row, strict=True))) for row in rows
    ]
    return tag("table", head, *body, class_="cards")


def _figures(heads: Sequence[str], rows: Iterable[Sequence[str]], *, ours: str) -> str:
    """A table of a name and figures a row; the row of the model that the page is about stands out."""
    head = tag("tr", *(tag("th", escape(name), class_="number" if at else None) for at, name in enumerate(heads)))
    body = [
        tag("tr", *(tag("td", escape(cell), class_="number" if at else None) for at, cell in enumerate(row)),
            class_="ours" if row[0] == ours else None)
        for row in rows
    ]  # fmt: skip
    return tag("div", tag("table", head, *body), class_="scroll")
