"""What kind of text file it is, judged by its first lines; the suffix decides only what they leave open."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise

from contradpp.data.columns import matches
from contradpp.data.source import Text
from contradpp.errors import DataError

SEPARATORS = (",", ";", "\t", "|")
_SAMPLE_LINES = 1000
_SAMPLE_CHARS = 1 << 18


def first_lines(text: Text) -> list[str]:
    """The first lines that are not blank, without their ends: enough to judge the file by."""
    sample: list[str] = []
    n_chars = 0
    for line in text.lines():
        if line.strip():
            sample.append(line.rstrip("\r\n"))
            n_chars += len(line)
        if len(sample) >= _SAMPLE_LINES or n_chars >= _SAMPLE_CHARS:
            break
    return sample


def detect_format(lines: Sequence[str], suffix: str, *, columns: Iterable[str] = ()) -> str:
    """The format of a text file: "jsonl", "long", "ragged" or "fimi".

    Parameters
    ----------
    lines : sequence of str
        The first lines that are not blank.
    suffix : str
        The file's suffix, consulted where the lines fit two formats.
    columns : iterable of str
        Columns that the user named; only a file with a header has any.
    """
    if not lines:
        raise DataError("there are no baskets: every line is blank")
    if _is_json(lines[0], suffix):
        return "jsonl"
    if any(columns) or _has_known_header(lines[0]) or _has_unknown_header(lines):
        return "long"
    separated = any(separator in line for line in lines for separator in SEPARATORS)
    spaced = suffix in (".dat", ".fimi") and any(len(line.split()) > 1 for line in lines)
    return "ragged" if separated and not spaced else "fimi"


def long_separator(header: str, *, columns: Iterable[str] = ()) -> str:
    """The separator under which a header has the columns asked for, or known names, or most names."""
    wanted = {column for column in columns if column}

    def fitness(separator: str) -> tuple[int, int, int]:
        names = fields(header, separator)
        known = sum(bool(matches(names, role)) for role in ("basket", "item"))
        return len(wanted & set(names)), known, len(names) if separator != " " else 0

    return max((*SEPARATORS, " "), key=fitness)


def ragged_separator(lines: Sequence[str]) -> str:
    """The separator that occurs in most lines, and most often."""
    return max(
        SEPARATORS,
        key=lambda separator: (
            sum(separator in line for line in lines),
            sum(line.count(separator) for line in lines),
        ),
    )


def fields(line: str, separator: str) -> list[str]:
    """The fields of one line of CSV."""
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a field longer than the csv module takes, hence no header
        return line.split(separator)


def _is_json(line: str, suffix: str) -> bool:
    if not line.lstrip().startswith(("[", "{")):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return suffix in (".json", ".jsonl", ".ndjson")  # the reader will say what is wrong with it
    return True


def _has_known_header(line: str) -> bool:
    candidates = [fields(line, separator) for separator in (*SEPARATORS, " ")]
    return any(matches(names, "basket") and matches(names, "item") for names in candidates)


def _has_unknown_header(lines: Sequence[str]) -> bool:
    """Whether the first line looks like the names of columns rather than like a basket.

    Every line has as many fields as the first, whose fields never occur again; and below it there is a
    column of numbers, a column that repeats a value in successive lines, or a name that is known.
    """
    separator = ragged_separator(lines)
    rows = [fields(line, separator) for line in lines]
    header, *body = rows
    if len(header) < 2 or not body or any(len(row) != len(header) for row in body):
        return False
    names = {name.strip() for name in header}
    if "" in names or len(names) < len(header) or any(map(_is_number, names)):
        return False
    if any(field.strip() in names for row in body for field in row):
        return False
    return (
        any(matches(header, role) for role in ("basket", "item"))
        or any(all(map(_is_number, column)) for column in zip(*body, strict=True))
        or any(a == b for above, below in pairwise(body) for a, b in zip(above, below, strict=True))
    )


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
