"""Formats of text files, recognized by their first lines, and by the suffix if two fit."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

from contradpp.data.columns import is_header, matches

FORMATS = ("auto", "fimi", "ragged", "long", "parquet", "xlsx", "json", "jsonl", "choices")
SEPARATORS = (",", ";", "\t", "|")


def detect_format(lines: Sequence[str], suffix: str, *, has_columns: bool = False) -> str:
    """Detect the format of a text file: "json", "jsonl", "choices", "long", "ragged" or "fimi".

    `has_columns` says that the caller named columns, which only a file with a header has.
    """
    if kind := _kind_of_json(lines, suffix):
        return kind
    if not has_columns and is_choices(lines):
        return "choices"
    if has_columns or _has_known_header(lines[0]) or is_pairs(lines) or _has_unknown_header(lines):
        return "long"
    separated = any(separator in line for line in lines for separator in SEPARATORS)
    spaced = suffix in (".dat", ".fimi") and any(len(line.split()) > 1 for line in lines)
    return "ragged" if separated and not spaced else "fimi"


def is_choices(lines: Sequence[str]) -> bool:
    """Return True if every line is `offered;chosen`, with `chosen` among several offered items."""
    halves = [tuple(map(choice_items, line.split(";"))) for line in lines]
    return all(
        len(half) == 2 and len(half[0]) > 1 and set(half[1]) <= set(half[0]) for half in halves
    )


def choice_items(half: str) -> list[str]:
    """Split one half of a line `offered;chosen` into items at spaces, tabs or commas."""
    return [item for item in re.split(r"[ \t\r\n\f\v,]+", half) if item]


def is_pairs(lines: Sequence[str]) -> bool:
    """Return True if lines without a header are rows (basket, item).

    Such rows have two fields each, and first fields that repeat: in runs, as in baskets of two
    items only if they are sorted, or as numbers beside texts.
    """
    rows = _rows(lines)
    if (
        any(len(row) != 2 or not row[0] for row in rows)
        or _has_known_header(lines[0])
        or _has_unknown_header(lines)
    ):
        return False
    owners, items = zip(*rows, strict=True)
    n_distinct = len(set(owners))
    if not 1 < n_distinct < len(owners):
        return False
    in_runs = len(list(groupby(owners))) == n_distinct
    return in_runs or (all(map(_is_number, owners)) and not any(map(_is_number, items)))


def may_be_pairs(lines: Sequence[str]) -> bool:
    """Return True if lines taken for baskets of two items could be rows (basket, item)."""
    rows = _rows(lines)
    if len(rows) < 4 or any(len(row) != 2 for row in rows):
        return False
    owners, items = map(set, zip(*rows, strict=True))
    return owners.isdisjoint(items) and len(owners) < len(rows)


def long_separator(header: str, *, columns: Iterable[str] = ()) -> str:
    """Find the separator that gives a header the wanted columns, known names, or most names."""
    wanted = set(columns)

    def fitness(separator: str) -> tuple[int, int, int]:
        names = split_fields(header, separator)
        n_known = sum(bool(matches(names, role)) for role in ("basket", "item"))
        n_known = 2 if is_header(names) else n_known
        return len(wanted & set(names)), n_known, len(names) if separator != " " else 0

    return max((*SEPARATORS, " "), key=fitness)


def ragged_separator(lines: Sequence[str]) -> str:
    """Find the separator that occurs in most lines, and most often."""
    return max(
        SEPARATORS,
        key=lambda s: (sum(s in line for line in lines), sum(line.count(s) for line in lines)),
    )


def split_fields(line: str, separator: str) -> list[str]:
    """Split one line of CSV into fields."""
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a field longer than the csv module takes, hence no header
        return line.split(separator)


def _rows(lines: Sequence[str]) -> list[list[str]]:
    separator = ragged_separator(lines)
    return [[field.strip() for field in split_fields(line, separator)] for line in lines]


def _kind_of_json(lines: Sequence[str], suffix: str) -> str | None:
    """Return "jsonl" if the first line is a whole basket, "json" if all lines are one value."""
    has_suffix = suffix in (".json", ".jsonl", ".ndjson")
    has_bracket = lines[0].lstrip().startswith(("[", "{"))
    if not (has_suffix or has_bracket):
        return None
    try:
        first = json.loads(lines[0])
    except (ValueError, RecursionError):
        opens = re.match(r"\s*(\[\s*([\[{].*)?|\{\s*)$", lines[0])
        if has_bracket and len(lines) > 1 and (opens or suffix == ".json"):
            return "json"
        return "jsonl" if has_suffix and has_bracket else None  # the reader says what is wrong
    if isinstance(first, dict):
        first = next(iter(first.values()), None)
    holds_baskets = isinstance(first, list) and first and isinstance(first[0], (list, dict))
    return "json" if holds_baskets and len(lines) == 1 else "jsonl"


def _has_known_header(line: str) -> bool:
    headers = [split_fields(line, separator) for separator in (*SEPARATORS, " ")]
    return any(map(is_header, headers))


def _has_unknown_header(lines: Sequence[str]) -> bool:
    """Return True if the first line looks like column names rather than like a basket.

    Every line has as many fields as the first, whose fields never occur again. Below it there is
    a column of numbers, a column that repeats a value in successive lines, or a known name.
    """
    header, *body = _rows(lines)
    names = set(header)
    if len(header) < 2 or not body or any(len(row) != len(header) for row in body):
        return False
    if "" in names or len(names) < len(header) or any(map(_is_number, names)):
        return False
    if any(field in names for row in body for field in row):
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
