"""Pages: data frames of results, numbers as text, and the templates that make Markdown of them.

A template of `templates/` holds the words of a section in parts: its setup, and findings as a list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from contradpp.metrics import metrics
from experiments.paper.published import Number
from experiments.protocol import ALPHA, RATIO, Protocol, Task

Result = dict[str, Any]

MISSING = "–"
CALIBRATIONS = ("none", "likelihood", "discrimination")
NAMES = {
    "mpr_pairs": "MPR, the paper's, 2+ items", "auc:none": "AUC, as trained",
    "auc:likelihood": "AUC, calibrate='likelihood'", "auc:discrimination": "AUC, calibrate='discrimination'",
    "auc_paired": "paired AUC", "auc_pairs:discrimination": "AUC, discrimination, 2+ items",
    "log_likelihood:likelihood": "log-likelihood", "p1": "p@1", "p10": "p@10", "seconds": "seconds", "rounds": "rounds",
}  # fmt: skip
DIGITS = {"rounds": 0, "seconds": 2, "p1": 2, "p10": 2}


# -- Results as a data frame ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Results:
    """The results of a protocol, by task and as a data frame with a row for each."""

    protocol: Protocol
    by_task: Mapping[Task, Result]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A task's parameters, the numbers of its result, and the result itself."""
        keys = ("kind", "data", "method", "settings", "alpha", "ratio", "trial")
        return pd.DataFrame(
            {**{key: getattr(task, key) for key in keys}, **numbers_of(result), "result": result}
            for task, result in self.by_task.items()
        )

    def rows(
        self, data: Sequence[str], method: str, settings: str = "default", *, kind: str = "fit",
        alpha: float = ALPHA, ratio: float = RATIO,
    ) -> pd.DataFrame:  # fmt: skip
        """Return the results of a method, trial by trial and in each in the order of the data sets."""
        wanted = {"kind": kind, "method": method, "settings": settings, "alpha": alpha, "ratio": ratio}
        frame = self.frame[self.frame["data"].isin(data)]
        for key, value in wanted.items():
            frame = frame[frame[key] == value]
        places = {name: place for place, name in enumerate(data)}
        return frame.sort_values(["trial", "data"], key=lambda column: column.map(lambda key: places.get(key, key)))


def numbers_of(result: Result) -> dict[str, Any]:
    """Return the numbers of a result by metric; "auc:likelihood" is the AUC at that scale of the kernel."""
    top = ("seconds", "rounds", "single_share")
    numbers: dict[str, Any] = {name: result[name] for name in top if name in result} | result.get("metrics", {})
    if "scaled" not in result:
        return numbers | ({"auc:none": numbers["auc"]} if "auc" in numbers else {})  # a baseline has no scale
    scaled = result["scaled"]
    named = {f"{name}:{at}": scaled[name][at] for name in ("auc", "auc_pairs", "log_likelihood") for at in CALIBRATIONS}
    return numbers | named


def statistic(values: Any) -> Number | None:
    """Return mean and standard deviation (of a sample); the latter needs two values."""
    numbers = pd.Series(values, dtype=float).dropna()
    if not len(numbers):
        return None
    return Number(float(numbers.mean()), float(numbers.std()) if len(numbers) > 1 else None)


def mean(rows: pd.DataFrame, metric: str) -> Number | None:
    """Return the mean of a metric over data sets, and its standard deviation over trials."""
    if metric not in rows:
        return None
    return statistic(rows[metric].astype(float).groupby(rows["trial"]).mean())


def gain(rows: pd.DataFrame, base: pd.DataFrame, metric: str) -> Number | None:
    """Return the mean difference in a metric in the same trial and data set, and its standard deviation."""
    if metric not in rows:
        return None
    ours, theirs = (one.set_index(["trial", "data"])[metric].astype(float) for one in (rows, base))
    return statistic(ours - theirs)


# -- Text ----------------------------------------------------------------------------------------------


def name_of(metric: str) -> str:
    """Return the metric in words."""
    return NAMES.get(metric) or metrics.label(metric)


def fixed(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """Return a number with so many decimals and a real minus sign."""
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def number(value: Number | float | None, metric: str = "mpr", *, sign: bool = False) -> str:
    """Return a number with its deviation and the decimals of a metric, or a dash."""
    if value is None:
        return MISSING
    given = value if isinstance(value, Number) else Number(float(value))
    digits = DIGITS.get(metric, metrics.digits_of(metric))
    text = fixed(round(given.value, digits) + 0.0, digits, sign=sign)  # no minus before a zero
    if given.std is None:
        return text
    small = 0 < given.std < 0.5 * 10**-digits
    return f"{text} ± {given.std:.1e}" if small else f"{text} ± {given.std:.{digits}f}"


def gained(difference: Sequence[float], digits: int = 4) -> str:
    """Return a difference and the bounds of its interval."""
    value, low, high = (fixed(bound, digits, sign=True) for bound in difference)
    return f"{value} [{low}, {high}]"


def side_of_zero(difference: Sequence[float], neither: str = "no difference") -> str:
    """Return the side of zero of a difference, if its interval is clear of it."""
    return "above" if difference[1] > 0 else "below" if difference[2] < 0 else neither


# -- Sections ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table of text."""

    title: str
    frame: pd.DataFrame
    note: str = ""

    @classmethod
    def of(cls, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> Table:
        """Return the table of these rows."""
        return cls(title, pd.DataFrame(list(map(list, rows)), columns=list(head)), note)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells row by row."""
        return list(self.frame.itertuples(index=False, name=None))

    @property
    def markdown(self) -> str:
        """The rows as Markdown, their columns padded so that they can be read as they are."""
        cells = [[text.replace("|", "\\|") for text in row] for row in (self.frame.columns, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        padded = [
            [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
            for row in cells
        ]
        rule = [f":{'-' * (widths[0] + 1)}", *(f"{'-' * (width + 1)}:" for width in widths[1:])]
        lines = [f"| {' | '.join(row)} |" for row in padded]
        return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


@dataclass(frozen=True)
class Plot:
    """A figure that is yet to be drawn: the end of its file name, what it shows, and who draws it."""

    name: str
    caption: str
    draw: Callable[[], Any]


@dataclass(frozen=True)
class Section:
    """The result of a target."""

    target: str
    title: str
    setup: str
    tables: tuple[Table, ...]
    findings: Sequence[str] = ()  # sentences on what is reached, what is not, and why
    plots: tuple[Plot, ...] = ()
    claims: Mapping[str, str] = field(default_factory=dict)  # sentences that the index gathers, by claim
    data: Mapping[str, Any] = field(default_factory=dict)  # the numbers behind tables and plots, for JSON

    @property
    def slug(self) -> str:
        """The name of its files."""
        return self.target.replace("/", "-")

    @property
    def figures(self) -> dict[str, str]:
        """The path of every plot, relative to the page."""
        return {plot.name: f"figures/{self.slug}-{plot.name}.png" for plot in self.plots}

    @property
    def markdown(self) -> str:
        """The whole section."""
        return render("section.md", section=self) + "\n"


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"number": number, "fixed": fixed, "gained": gained, "name": name_of}
TEMPLATES.globals |= {"side_of_zero": side_of_zero}


def render(template: str, **values: Any) -> str:
    """Return the text of a template."""
    return TEMPLATES.get_template(template).render(values).strip()


def words(template: str, **values: Any) -> dict[str, list[str]]:
    """Return the paragraphs of every part of a template as lines; a part begins with a line such as "# setup"."""
    _, *parts = re.split(r"^# (\w+)$", render(template, **values), flags=re.MULTILINE)
    return {name: _paragraphs(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


_PARAGRAPHS = re.compile(r"\n\s*\n|^- ", re.MULTILINE)


def _paragraphs(text: str) -> list[str]:
    lines = (re.sub(r" ([.,;)])(?!\.)", r"\1", " ".join(part.split())) for part in _PARAGRAPHS.split(text))
    return [line for line in lines if line]


def replaced(text: str, name: str, content: str) -> str:
    """Return a page whose block `name`, between two comments, is this content."""
    begin = f"<!-- {name}: begin -->"
    end = f"<!-- {name}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    if not after:
        raise ValueError(f"the page has no block {name!r}")
    return f"{before}{begin}\n{content.strip()}\n{end}{after}"
