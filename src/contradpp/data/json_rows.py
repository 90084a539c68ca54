"""JSON values as baskets: arrays of items, objects, and orders that hold their lines."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from contradpp.data.builder import BadRow, BasketBuilder
from contradpp.data.columns import (
    GAP,
    LABELS,
    ORDERS,
    ColumnKind,
    ColumnNames,
    Layout,
    check_column,
    find_layout,
)
from contradpp.data.orders import as_time, is_missing
from contradpp.data.tables import parse_flag
from contradpp.errors import DataError

EACH = "each object"  # the basket of orders whose id nobody named
_LINES = re.compile("(line|order)?_?(items?|lines?|products?|articles?)", re.IGNORECASE)


def parse_json(text: str) -> Any:
    """Read one JSON value; `ValueError` for a constant or a double key, too."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build the object; a key that occurs twice would silently lose a value."""
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return value


def values_of_document(value: Any) -> list[Any]:
    """Return the baskets of a document: an array, or an object such as {"orders": [...]}.

    Orders without lines at the start of it, which show no fields of items, are left out.
    """
    if isinstance(value, dict):
        fields = [name for name, part in value.items() if _holds_objects(part)]
        is_order = len(fields) != 1 or _LINES.fullmatch(fields[0])
        value = [value] if is_order else value[fields[0]]
    first = next((n for n, one in enumerate(value) if not _lacks_lines(one)), 0)
    return list(value[first:])


def _lacks_lines(value: Any) -> bool:
    return isinstance(value, dict) and any(
        part == [] and _LINES.fullmatch(name) for name, part in value.items()
    )


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], (dict, list))


class JsonRows:
    """The values of a file: arrays, objects, or orders with nested lines; the first one decides.

    An order becomes a row for each of its lines. Fields of inner objects have dotted names, such as
    `line_items.sku` and `customer.id`.
    """

    def __init__(self, builder: BasketBuilder, named: ColumnNames) -> None:
        self.builder = builder
        self.named = {role: column for role, column in named.items() if column is not None}
        self.layout: Layout | None = None
        self._kind: type | None = None
        self._lines: str | None = None  # the field with the lines of an order
        self._n = 0

    def add(self, value: Any, where: str) -> None:
        """Add a value; `BadRow` says why it cannot be."""
        if not isinstance(value, (list, dict)):
            text = json.dumps(value)[:40]
            raise BadRow(f"a basket must be a JSON array or object, got {text}")
        if self._kind is None:
            self._kind = type(value)
            self._find_layout(value, where)
        if type(value) is not self._kind:
            expected = "array" if self._kind is list else "object"
            text = json.dumps(value)[:40]
            raise BadRow(f"an {expected} was expected, as in the lines before, got {text!r}")
        self._n += 1
        if isinstance(value, list) or self.layout is None:
            self.builder.add_basket(_check_ids(list(value)))
            return
        for row in self._rows(value):
            _add_object(row, self.layout, self.builder)

    def _rows(self, value: dict[str, Any]) -> Iterator[dict[str, Any]]:
        order = dict(_flat(value))
        if self._lines is None:
            yield order
            return
        lines = order.pop(self._lines, None)
        if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
            raise BadRow(f"the field {self._lines!r} must hold an array of objects")
        for line in lines:
            yield order | {EACH: self._n} | {f"{self._lines}.{k}": v for k, v in _flat(line)}

    def _find_layout(self, value: Any, where: str) -> None:
        """Find the fields of baskets and items in the first value; none if values are arrays."""
        if isinstance(value, list):
            if self.named:
                raise DataError(
                    f"{where}: the lines are arrays without fields, "
                    f"so {', '.join(f'{role}=' for role in self.named)} cannot apply"
                )
            return
        order = dict(_flat(value))
        kinds = {name: _kind(field) for name, field in order.items()}
        self._lines = _field_of_lines(order, self.named)
        if self._lines is None:
            self.layout = find_layout(list(order), self.named, kinds=kinds, where=where)
        else:
            self.layout = self._nested_layout(order, self._lines, where)

    def _nested_layout(self, order: dict[str, Any], field: str, where: str) -> Layout:
        """Find item, name and quantity among the fields of a line, the rest among the order's."""
        prefix = f"{field}."
        line = dict(_flat(order[field][0]))
        kinds = {name: _kind(value) for name, value in line.items()}
        columns = [name for name in order if name != field] + [prefix + name for name in line]
        inner = {}
        for role, column in self.named.items():
            if column.startswith(prefix):
                check_column(columns, column, role, where)
                inner[role] = column.removeprefix(prefix)
        fallback = None
        if "item" not in inner and "sku" in line:  # which many products lack
            inner["item"] = "sku"
            fallback = next((prefix + name for name in ("title", "name") if name in line), None)
        found = find_layout([*line, EACH], inner | {"basket": EACH}, kinds=kinds, where=where)
        roles = {role: prefix + column for role, column in found.roles.items() if column != EACH}
        returns = roles.pop("returns", None)
        own = {"basket": EACH} if GAP not in self.named else {}
        named = own | self.named | {role: roles[role] for role in roles.keys() - set(ORDERS)}
        layout = find_layout([*columns, EACH], named, kinds={}, where=where)
        return replace(layout, returns=returns, fallback=fallback)


def _flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of an object, those of inner objects by dotted names."""
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield prefix + key, inner


def _field_of_lines(order: dict[str, Any], named: ColumnNames) -> str | None:
    """Return the field that holds the lines of an order, if they are objects."""
    fields = [
        name
        for name, value in order.items()
        if _holds_objects(value) and isinstance(value[0], dict)
    ]
    wanted = [name for name in fields if str(named.get("item")).startswith(f"{name}.")]
    likely = [name for name in fields if _LINES.fullmatch(name.rpartition(".")[2])]
    for found in (wanted, likely, fields):
        if len(found) == 1 and (found is wanted or named.get("item") is None):
            return found[0]
    return None


def _kind(field: Any) -> ColumnKind:
    if isinstance(field, list):
        return "lists"
    if isinstance(field, str):
        return "text"
    return "number" if isinstance(field, (int, float)) else "other"


def _add_object(value: dict[str, Any], layout: Layout, builder: BasketBuilder) -> None:
    ids = layout.parts or (() if layout.basket is None else (layout.basket,))
    needed = (*ids, None if layout.fallback else layout.item, layout.quantity, layout.chosen)
    for column in needed:
        if column is not None and column not in value:
            raise BadRow(f"the field {column!r} is missing")
    if layout.quantity is not None:
        quantity = value[layout.quantity]
        if type(quantity) not in (int, float):
            raise BadRow(f"the quantity must be a number, got {json.dumps(quantity)[:40]}")
        if quantity <= 0:
            builder.n_dropped += 1
            return
    returned = value.get(layout.returns or "")
    if builder.returns == "drop" and isinstance(returned, (int, float)) and returned < 0:
        builder.n_returned += 1
        return
    found: Any = value.get(layout.item)
    if layout.fallback is not None and is_missing(found):
        found = value.get(layout.fallback)
    if layout.lists and not isinstance(found, list):
        raise BadRow(f"the field {layout.item!r} must hold an array, got {found!r}")
    items = _check_ids(found if layout.lists else [found])
    if layout.basket is None:
        number = builder.new_baskets(1)
    else:
        parts = _check_ids([value[column] for column in ids])
        number = builder.baskets.encode([tuple(parts) if layout.parts else parts[0]])[0]
    _add_order(value, layout, builder, number)
    if layout.chosen is None:
        builder.add_basket(items, number=number)
    else:
        chosen = _chosen_items(items, value[layout.chosen], layout)
        builder.add_basket(chosen, number=number, offered=items)
    for label, column in zip(LABELS, (layout.name, layout.category), strict=True):
        if column is not None and value.get(column):
            code = builder.items.encode(items)[0]
            builder.labels[label][code][str(value[column])] += 1


def _add_order(value: dict[str, Any], layout: Layout, builder: BasketBuilder, number: int) -> None:
    """Add the customer and the time of a basket."""
    for role, values in (("customer", builder.customers), ("time", builder.times)):
        found = value.get(getattr(layout, role) or "")
        if is_missing(found):
            continue
        values.guessed = role in layout.guessed
        problem = ""
        if role == "time" and as_time(found) is None:
            problem = f"{found!r} is not a time"
        elif type(found) not in (str, int, float):
            problem = f"the id of a customer must be a string or a number, got {found!r}"
        elif not values.add(np.array([number]), np.array(values.encode([found])))[0]:
            problem = f"the basket has another customer, {found!r}" if role == "customer" else ""
        if problem and not values.guessed:
            raise BadRow(problem)
        values.refused = values.refused or problem


def _chosen_items(items: list[Hashable], chosen: Any, layout: Layout) -> list[Hashable]:
    """Return the items that were chosen: those of a list, or all of them if a flag says yes."""
    if not layout.lists:
        flag = parse_flag(chosen)
        if flag is None:
            raise BadRow(f"{chosen!r} in the field {layout.chosen!r} says neither yes nor no")
        return items if flag else []
    if not isinstance(chosen, list):
        raise BadRow(f"the field {layout.chosen!r} must hold an array, got {chosen!r}")
    if extra := [item for item in _check_ids(chosen) if item not in items]:
        raise BadRow(f"{extra[0]!r} was chosen but is not among what was offered")
    return chosen


def _check_ids(values: list[Any]) -> list[Hashable]:
    for value in values:
        if type(value) not in (str, int, float):
            raise BadRow(f"an id must be a string or a number, got {json.dumps(value)[:40]}")
    return values
