"""Columns of a table by role: named by the caller, or recognized by common names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from contradpp.errors import DataError, did_you_mean

ColumnNames = Mapping[str, str | None]  # by role, as named by the caller
ColumnKind = Literal["lists", "text", "number", "other"]

LABELS = ("name", "category")
ORDERS = ("customer", "time")
ROLES = ("basket", "item", "quantity", *LABELS, "chosen", *ORDERS, "returns")
GAP = "gap"  # the key in `ColumnNames` of the pause that ends a session
NAMED = (*ROLES[:-1], GAP)  # the keys in `ColumnNames`

MAX_COLUMNS = 10_000  # a longer line is a basket, not a header
MAX_NAME = 1_000  # characters of a column's name

_BASKET = (
    "(basket|order|invoice|transaction|trans|txn|cart|session|receipt|ticket|bill|purchase"
    "|playlist)"
)
_ITEM = "(item|product|article|track|song|book|good|material)"
_ID = "(id|ids|no|nr|num|number|code|key)"
_LISTS = f"({_ITEM}|{_BASKET})s?{_ID}?|skus?|asins?"
_PATTERNS = {  # best first: an explicit identifier, a bare noun, a name
    "basket": [f"{_BASKET}{_ID}|tid", f"{_BASKET}s?"],
    "item": [
        f"({_ITEM}|stock){_ID}|sku|asin|upc|ean|gtin|isbn|barcode",
        f"{_ITEM}s?",
        f"{_ITEM}(name|title|description)",
    ],
    "quantity": [
        "quantityrefund|lineitemquantity",
        f"({_ITEM}|{_BASKET})?(quantity|qty|units|pieces|pcs)(sold|ordered)?",
    ],
    "customer": [
        "(customer|user|client|shopper|member|buyer|visitor|household)"
        "(id|ids|no|nr|num|number|code|key|name)?"
    ],
    "time": [
        f"{_BASKET}(date)?(date|time|datetime|timestamp)|(ordered|created|purchased|placed|sold)(at|on)",
        "timestamp|datetime|eventtime",
        "date",
        "time",
    ],
    "name": ["(item|product|article|stock)?(name|title|description|desc)"],
}


@dataclass(frozen=True)
class Layout:
    """Columns of a table by role; `lists` tells if the column `item` holds lists.

    A table of lists needs no `basket`: then every row is a basket. With `chosen`, the column `item`
    holds the items that were offered. `guessed` are the roles among customer and time that nobody
    named: their columns may turn out to hold something else. `returns` is a column that nobody
    named but whose name says quantities: its rows below zero are returns. With `parts`, the values
    of several columns make the id of a basket. A row without an item has its `fallback` as one.
    """

    basket: str | None
    item: str
    quantity: str | None = None
    name: str | None = None
    category: str | None = None
    chosen: str | None = None
    returns: str | None = None
    customer: str | None = None
    time: str | None = None
    guessed: frozenset[str] = frozenset()
    lists: bool = False
    parts: tuple[str, ...] = ()
    fallback: str | None = None

    @property
    def roles(self) -> dict[str, str]:
        """The columns by role, without roles that no column has."""
        return {role: column for role in ROLES if (column := getattr(self, role)) is not None}

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        roles = self.roles
        if self.parts:
            del roles["basket"]
        more = () if self.fallback is None else (self.fallback,)
        return list(dict.fromkeys([*self.parts, *roles.values(), *more]))


def find_layout(
    columns: Sequence[str],
    named: ColumnNames,
    *,
    where: str,
    kinds: Mapping[str, ColumnKind] | None = None,
) -> Layout:
    """Find the columns by role; an uncertain guess is a `DataError` that lists the columns.

    Parameters
    ----------
    columns : sequence of str
    named : mapping of role to column or None
        The columns that the caller named. Category and chosen are never guessed. Several columns
        of the basket stand between commas. With the role "gap", they are customer and time.
    where : str
        The file or table, for messages.
    kinds : mapping of column to kind, optional
        What the columns hold; a column without a kind is not guessed to be a name or a quantity.
        None if every column holds text that may be anything.
    """
    named = _known_export(columns, named) | {
        role: column for role, column in named.items() if column is not None
    }
    fallback = named.pop("fallback", None)
    parts = _basket_parts(columns, named, where)
    basket = named.get("basket")
    for role, column in named.items():
        if not (role == GAP or (role == "basket" and parts)):
            check_column(columns, column, role, where)
    item = named.get("item")
    chosen = named.get("chosen")
    all_lists = [column for column in columns if (kinds or {}).get(column) == "lists"]
    columns = [column for column in columns if column != chosen]
    lists = [column for column in all_lists if column != chosen]
    list_column = _guess_list_column(columns, lists) if item is None else item
    if list_column is not None and list_column in all_lists:
        for role in ("quantity", *LABELS):
            if named.get(role) is not None:
                raise DataError(
                    f"{where}: {role}= needs a row per item, but {list_column!r} holds lists"
                )
        if chosen is not None and (chosen not in all_lists or chosen == list_column):
            reason = f"chosen= must name a column of lists, other than {list_column!r}"
            raise DataError(f"{where}: {reason}", parameters=("chosen",))
        rest = [c for c in columns if c not in (basket, list_column, *all_lists)]
        layout = Layout(basket, list_column, lists=True, chosen=chosen, parts=parts)
        return replace(layout, **_guess_orders(rest, named))
    if basket is None:
        basket = _guess([c for c in columns if c != item], "basket", columns, where)
    if item is None:
        item = _guess([c for c in columns if c not in (basket, *parts)], "item", columns, where)
    if chosen is not None and chosen in (basket, item, *all_lists):
        reason = f"{chosen!r} cannot say what was chosen of {item!r}: a column of 0 and 1 can"
        raise DataError(f"{where}: {reason}", parameters=("chosen",))
    if basket == item:
        raise DataError(
            f"{where}: basket= and item= name the same column {item!r}; {_listed(columns)}"
        )
    name = named.get("name")
    quantity = named.get("quantity")
    category = named.get("category")
    used = {basket, item, name, quantity, category}

    def guess(role: str, kind: ColumnKind) -> str | None:
        fitting = [column for column in columns if kinds is None or kinds.get(column) == kind]
        found = [column for column in matches(fitting, role) if column not in used]
        return found[0] if len(found) == 1 else None

    layout = Layout(
        basket,
        item,
        quantity,
        name=guess("name", "text") if name is None else name,
        category=category,
        chosen=chosen,
        returns=guess("quantity", "number") if quantity is None else None,
        parts=parts,
        fallback=fallback,
    )
    rest = [c for c in columns if c in parts or c not in layout.columns]
    return replace(layout, **_guess_orders(rest, named))


def _known_export(columns: Sequence[str], named: ColumnNames) -> dict[str, str]:
    """Return the columns of an export by Shopify or WooCommerce, unless some are named.

    Many of their products have no SKU: then the name is the id, as `fallback`.
    """
    is_named = any(named.get(role) is not None for role in ("basket", "item", GAP))
    if is_named or len(columns) > MAX_COLUMNS:
        return {}
    of = {_normal(column): column for column in columns if len(column) <= MAX_NAME}
    if {"name", "lineitemname"} <= of.keys():
        basket, name, sku = of["name"], of["lineitemname"], of.get("lineitemsku")
    elif {"ordernumber", "quantityrefund"} <= of.keys() and matches(columns, "name"):
        basket, name, sku = of["ordernumber"], matches(columns, "name")[0], of.get("sku")
    else:
        return {}
    if sku is None:
        return {"basket": basket, "item": name}
    return {"basket": basket, "item": sku, "name": name, "fallback": name}


def is_header(columns: Sequence[str]) -> bool:
    """Return whether the names say which column holds the basket, and which the item."""
    known = bool(matches(columns, "basket") and matches(columns, "item"))
    return known or bool(_known_export(columns, {}))


def _basket_parts(columns: Sequence[str], named: dict[str, str], where: str) -> tuple[str, ...]:
    """Return the columns that make the id of a basket together, and name what a gap needs."""
    basket = named.get("basket", "")
    parts = tuple(part.strip() for part in basket.split(",")) if basket not in columns else ()
    if GAP in named:
        if len(parts) == 2:
            named |= dict(zip(ORDERS, parts, strict=True)) | named
        found = _guess_orders(columns, named)
        missing = [role for role in ORDERS if found[role] is None]
        if missing or len(parts) > 2:
            reason = f"a gap needs a column for {' and '.join(missing) or 'customer and time'}"
            raise DataError(f"{where}: {reason}; {_listed(columns)}", parameters=ORDERS)
        named |= {role: found[role] for role in ORDERS}
        parts = (named["customer"], named["time"])
        named["basket"] = ",".join(parts)
    if len(parts) < 2:
        return ()
    for part in parts:
        check_column(columns, part, "basket", where)
    return parts


def _guess_orders(columns: Sequence[str], named: ColumnNames) -> dict[str, Any]:
    """Return the columns of customers and times, and which of the two are guesses."""
    found = {role: named.get(role) for role in ORDERS}
    guesses = {role: matches(columns, role) for role in ORDERS if found[role] is None}
    clear = {role: names[0] for role, names in guesses.items() if len(names) == 1}
    return found | clear | {"guessed": frozenset(clear)}


def matches(columns: Sequence[str], role: str) -> list[str]:
    """Find the columns whose names fit a role best; several if they fit equally well."""
    if len(columns) > MAX_COLUMNS:
        return []
    for pattern in _PATTERNS[role]:
        found = [
            name
            for name in columns
            if len(name) <= MAX_NAME and re.fullmatch(pattern, _normal(name))
        ]
        if found:
            return found
    return []


def check_column(columns: Sequence[str], column: str, role: str, where: str) -> None:
    """Raise `DataError` unless there is exactly one column of this name."""
    count = columns.count(column)
    if count == 1:
        return
    if count:
        reason = f"the column {column!r} for {role}= occurs more than once"
    else:
        reason = f"there is no column {column!r} for {role}={did_you_mean(column, columns)}"
    raise DataError(f"{where}: {reason}; {_listed(columns)}", parameters=(role,))


def _guess_list_column(columns: Sequence[str], lists: Sequence[str]) -> str | None:
    """Guess the column of lists: the only one, or the only one whose name fits; None if long."""
    scalars = [column for column in columns if column not in lists]
    if matches(scalars, "basket") and matches(scalars, "item"):
        return None
    fitting = lists if len(lists) == 1 else [c for c in lists if re.fullmatch(_LISTS, _normal(c))]
    return fitting[0] if len(fitting) == 1 else None


def _guess(candidates: Sequence[str], role: str, columns: Sequence[str], where: str) -> str:
    found = matches(candidates, role)
    if len(found) == 1:
        return found[0]
    why = f"{' and '.join(map(repr, found))} fit equally well" if found else "no name says so"
    raise DataError(
        f"{where}: cannot tell which column holds the {role}: {why}; {_listed(columns)}. "
        "Pass basket='...' and item='...' with the names of the two columns",
        parameters=("basket", "item"),
    )


def _normal(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def _listed(columns: Sequence[str]) -> str:
    return "the columns are " + ", ".join(map(repr, columns)) if columns else "there are no columns"
