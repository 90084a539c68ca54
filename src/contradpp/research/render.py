"""Tables and reports as Markdown, and tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contradpp.research.published import Number

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MISSING = "–"
NAMES = {
    "mpr": "MPR", "mpr_pairs": "MPR, 2+ items", "mpr_fair": "MPR, ties half", "ndcg": "nDCG@10", "auc": "AUC",
    "auc:none": "AUC, as trained", "auc:likelihood": "AUC, calibrate='likelihood'",
    "auc:discrimination": "AUC, calibrate='discrimination'",
    "auc_pairs:discrimination": "AUC, discrimination, 2+ items",
    "auc_paired": "paired AUC", "log_likelihood:likelihood": "log-likelihood", "coverage": "coverage@10",
    "seconds": "seconds", "rounds": "rounds",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table of text."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Plot:
    """A figure that is yet to be drawn: the end of its file name, what it shows, and who draws it."""

    name: str
    caption: str
    draw: Callable[[], Any]


@dataclass(frozen=True)
class Report:
    """What a target found.

    Attributes
    ----------
    findings : tuple of str
        Sentences on what is reached, what is not, and why.
    claims : dict of str to str
        Sentences on the claims that the index gathers, by claim.
    data : dict
        The numbers behind tables and plots, for JSON.
    """

    target: str
    title: str
    setup: str
    tables: tuple[Table, ...]
    findings: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    claims: dict[str, str] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The name of its files."""
        return self.target.replace("/", "-")


def digits_of(metric: str) -> int:
    """Decimals to show: four for what lies between 0 and 1, else two."""
    if metric == "rounds":
        return 0
    return 4 if metric.startswith(("auc", "ndcg", "coverage")) else 2


def name_of(metric: str) -> str:
    """The metric in words."""
    return NAMES.get(metric, metric.replace("precision@", "p@"))


def number(value: Number | float | None, metric: str = "mpr", *, sign: bool = False) -> str:
    """A number with its deviation, or a dash."""
    if value is None:
        return MISSING
    given = value if isinstance(value, Number) else Number(float(value))
    digits = digits_of(metric)
    shown = round(given.value, digits) + 0.0  # no minus before a zero
    text = f"{shown:{'+' if sign else ''}.{digits}f}".replace("-", "−")
    if given.std is None:
        return text
    small = 0 < given.std < 0.5 * 10**-digits
    return f"{text} ± {given.std:.1e}" if small else f"{text} ± {given.std:.{digits}f}"


def markdown_table(table: Table) -> str:
    """The table as Markdown, its columns padded so that it can be read as it is."""
    rows = [tuple(cell.replace("|", "\\|") for cell in row) for row in (table.head, *table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.head))]

    def line(cells: tuple[str, ...]) -> str:
        first, *others = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return "| " + " | ".join([first, *(other.strip().rjust(len(other)) for other in others)]) + " |"

    rule = "|" + "|".join([f":{'-' * (widths[0] + 1)}", *(f"{'-' * (width + 1)}:" for width in widths[1:])]) + "|"
    note = f"\n\n{table.note}" if table.note else ""
    return f"**{table.title}**\n\n" + "\n".join([line(rows[0]), rule, *map(line, rows[1:])]) + note


def markdown(report: Report, figures: dict[str, str]) -> str:
    """The whole report; `figures` gives the path of each plot, relative to the file."""
    parts = [f"## {report.title}", report.setup]
    parts += [markdown_table(table) for table in report.tables]
    if report.findings:
        parts.append("\n".join(f"- {sentence}" for sentence in report.findings))
    parts += [f"![{plot.caption}]({figures[plot.name]})\n\n*{plot.caption}*" for plot in report.plots]
    return "\n\n".join(parts) + "\n"


def terminal_table(table: Table) -> RichTable:
    """The table for a terminal."""
    from rich.table import Table as RichTable

    shown = RichTable(title=table.title, title_justify="left", caption=table.note or None, caption_justify="left")
    for column, name in enumerate(table.head):
        shown.add_column(name, justify="left" if column == 0 else "right")
    for row in table.rows:
        shown.add_row(*row)
    return shown
