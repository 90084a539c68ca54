"""Formats with a basket per line: FIMI .dat, ragged CSV and JSON lines."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Hashable, Mapping
from typing import Any

from contradpp.data.assemble import Assembler
from contradpp.data.columns import Layout, find_layout
from contradpp.data.detect import first_lines, ragged_separator
from contradpp.data.source import Text
from contradpp.errors import DataError

# Only ASCII white space separates: str.split would also cut at a no-break space inside an id.
_tokens = re.compile(r"[^ \t\r\n\f\v]+").findall


def read_fimi(text: Text, assembler: Assembler) -> None:
    """Add the baskets of a FIMI file: a basket per line, its items separated by spaces."""
    for line in text.lines():
        tokens = _tokens(line)
        if tokens:
            assembler.add_list(tokens)


def read_ragged(text: Text, assembler: Assembler) -> None:
    """Add the baskets of a ragged CSV file: a basket per line, as many fields as it has items."""
    separator = ragged_separator(first_lines(text))
    line = text.first_line
    reader = csv.reader(text.lines(), delimiter=separator, skipinitialspace=True, strict=True)
    try:
        for fields in reader:
            items = [item for field in fields if (item := field.strip())]
            if items:
                assembler.add_list(items)
            line = text.first_line + reader.line_num
    except csv.Error as error:
        raise text.error(line, f"{error} (is a quote left open?)") from error


def read_jsonl(
    text: Text,
    assembler: Assembler,
    *,
    basket: str | None = None,
    item: str | None = None,
    quantity: str | None = None,
    name: str | None = None,
) -> None:
    """Add the baskets of a JSON lines file: an array per line, an object with an array, or long objects."""
    told = {"basket": basket, "item": item, "quantity": quantity, "name": name}
    layout: Layout | None = None
    kind: type | None = None
    for number, line in enumerate(text.lines(), start=text.first_line):
        if not line.strip():
            continue
        value = _parsed(text, number, line)
        if kind is None:
            kind = type(value)
            layout = _layout(value, told, f"{text}, line {number}")
        elif type(value) is not kind:
            raise text.error(number, f"an {_called(kind)} was expected, as in the lines before, got {line[:40]!r}")
        if layout is None:
            assembler.add_list(_scalars(text, number, value))
        else:
            _add_object(text, number, value, layout, assembler)


def _parsed(text: Text, number: int, line: str) -> Any:
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        hint = " (each line must be a whole JSON value)" if len(line.strip()) < 3 else ""
        raise text.error(number, f"not valid JSON: {error}{hint}") from None
    if not isinstance(value, (list, dict)):
        raise text.error(number, f"a basket must be a JSON array or object, got {line.strip()[:40]}")
    return value


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _called(kind: type) -> str:
    return "array" if kind is list else "object"


def _layout(value: Any, told: Mapping[str, str | None], where: str) -> Layout | None:
    """How the objects keep baskets and items, judged by the first of them; None if lines are arrays."""
    if isinstance(value, list):
        named = [f"{role}=" for role, column in told.items() if column is not None]
        if named:
            raise DataError(f"{where}: the lines are arrays without fields, so {', '.join(named)} cannot apply")
        return None
    lists = [field for field in value if isinstance(value[field], list)]
    return find_layout(list(value), lists=lists, where=where, **told)


def _add_object(text: Text, number: int, value: dict[str, Any], layout: Layout, assembler: Assembler) -> None:
    missing = [column for column in layout.columns if column not in value and column != layout.name]
    if missing:
        raise text.error(number, f"the field {missing[0]!r} is missing")
    if layout.quantity is not None and _quantity(text, number, value[layout.quantity]) <= 0:
        assembler.n_dropped += 1
        return
    if layout.lists:
        found = value[layout.item]
        if not isinstance(found, list):
            raise text.error(number, f"the field {layout.item!r} must hold an array, got {found!r}")
        items = _scalars(text, number, found)
    else:
        items = _scalars(text, number, [value[layout.item]])
    owner = None
    if layout.basket is not None:
        owner = assembler.baskets.code(*_scalars(text, number, [value[layout.basket]]))
    assembler.add_list(items, owner=owner)
    if layout.name is not None and value.get(layout.name):
        assembler.add_name(assembler.items.code(items[0]), str(value[layout.name]))


def _scalars(text: Text, number: int, values: list[Any]) -> list[Hashable]:
    for value in values:
        if type(value) not in (str, int, float):
            raise text.error(number, f"an id must be a string or a number, got {json.dumps(value)[:40]}")
    return values


def _quantity(text: Text, number: int, value: Any) -> float:
    if type(value) not in (int, float):
        raise text.error(number, f"the quantity must be a number, got {json.dumps(value)[:40]}")
    return float(value)
