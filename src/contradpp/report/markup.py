"""The pieces of HTML that the page is put together from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from contradpp.report.svg import short, tag


def section(title: str, words: str, *content: str) -> str:
    """A part of the page with a heading and a few sentences."""
    return tag("section", tag("h2", escape(title)), tag("p", escape(words)), *content)


def panel(title: str, content: str) -> str:
    """A chart with its title."""
    return tag("div", tag("h3", escape(title)), content)


def side_by_side(*content: str) -> str:
    """Charts in two columns, where there is room for two."""
    return tag("div", *content, class_="two")


def tile(figure: str, what: str, more: str) -> str:
    """A figure to catch the eye."""
    return tag("div", tag("b", escape(figure)), tag("span", escape(what)), tag("em", escape(more)), class_="tile")


def legend(kinds: dict[str, str]) -> str:
    """What the colours mean, by the class that has each."""
    keys = [tag("span", tag("i", class_=kind), escape(name), class_="key") for name, kind in kinds.items()]
    return tag("div", *keys, class_="legend")


def chip(name: str, note: str = "", kind: str = "chip") -> str:
    """An item, with a figure about it."""
    return tag("span", escape(short(name, 34)), tag("small", escape(note)) if note else "", class_=kind)


def chips(content: Iterable[str]) -> str:
    """Several items in a row."""
    return tag("div", *content, class_="chips")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are markup."""
    head = tag("tr", *(tag("th", escape(name)) for name in heads))
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("div", tag("table", head, *body), class_="scroll")


def numbers(heads: Sequence[str], rows: Iterable[Sequence[str]], *, ours: str) -> str:
    """A table of a name and figures a row; the row of the model that the page is about stands out."""
    head = tag("tr", tag("th", escape(heads[0])), *(tag("th", escape(name), class_="number") for name in heads[1:]))
    body = []
    for name, *figures in rows:
        cells = [tag("td", escape(figure), class_="number") for figure in figures]
        body.append(tag("tr", tag("td", escape(name)), *cells, class_="ours" if name == ours else None))
    return tag("div", tag("table", head, *body), class_="scroll")
