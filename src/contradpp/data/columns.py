"""Which columns of a table hold the baskets and the items: as told, or guessed from common names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from contradpp.errors import DataError

_BASKET = "(basket|order|invoice|transaction|trans|txn|cart|session|receipt|ticket|bill|purchase|playlist)"
_ITEM = "(item|product|article|track|song|book|good|material)"
_NUMBER = "(id|ids|no|nr|num|number|code|key)"

# Best first: an explicit identifier before a bare noun before a name.
_TIERS = {
    "basket": [f"{_BASKET}{_NUMBER}|tid", f"{_BASKET}s?"],
    "item": [
        f"({_ITEM}|stock){_NUMBER}|sku|asin|upc|ean|gtin|isbn|barcode",
        f"{_ITEM}s?",
        f"{_ITEM}(name|title|description)",
    ],
}
_LISTS = f"({_ITEM}|{_BASKET})s?{_NUMBER}?|skus?|asins?"


@dataclass(frozen=True)
class Layout:
    """Where a table keeps what: the columns by role, and whether `item` holds lists.

    A table of lists may do without `basket`: then every row is a basket of its own.
    """

    basket: str | None
    item: str
    quantity: str | None = None
    name: str | None = None
    lists: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        wanted = (self.basket, self.item, self.quantity, self.name)
        return list(dict.fromkeys(column for column in wanted if column is not None))


def find_layout(
    columns: Sequence[str],
    *,
    where: str,
    lists: Sequence[str] = (),
    basket: str | None = None,
    item: str | None = None,
    quantity: str | None = None,
    name: str | None = None,
) -> Layout:
    """The columns by role, as told or by guess; the `DataError` for a doubtful guess lists them.

    Parameters
    ----------
    columns : sequence of str
        All the columns there are.
    where : str
        The file or table, for the message of an error.
    lists : sequence of str
        Those of the columns that hold lists of items.
    basket, item, quantity, name : str, optional
        What the user said. None for basket and item asks for a guess.
    """
    told = {"basket": basket, "item": item, "quantity": quantity, "name": name}
    for role, column in told.items():
        if column is not None:
            _check(columns, column, role, where)
    chosen = item if item is not None else _list_column(columns, lists)
    if chosen is not None and chosen in lists:
        if quantity is not None or name is not None:
            raise DataError(f"{where}: quantity= and name= need a row per item, but {chosen!r} holds lists")
        return Layout(basket, chosen, lists=True)
    if basket is None:
        basket = _guess([c for c in columns if c != item], "basket", columns, where)
    if item is None:
        item = _guess([c for c in columns if c != basket], "item", columns, where)
    if basket == item:
        raise DataError(f"{where}: basket= and item= name the same column {item!r}; {_listed(columns)}")
    return Layout(basket, item, quantity, name)


def _normal(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def matches(columns: Sequence[str], role: str) -> list[str]:
    """The columns whose names fit a role ("basket" or "item") best; several if they fit equally well."""
    for tier in _TIERS[role]:
        found = [column for column in columns if re.fullmatch(tier, _normal(column))]
        if found:
            return found
    return []


def _list_column(columns: Sequence[str], lists: Sequence[str]) -> str | None:
    """The column of lists to take: the only one, or the only one with a fitting name; None if long."""
    scalars = [column for column in columns if column not in lists]
    if matches(scalars, "basket") and matches(scalars, "item"):
        return None
    fitting = lists if len(lists) == 1 else [c for c in lists if re.fullmatch(_LISTS, _normal(c))]
    return fitting[0] if len(fitting) == 1 else None


def _check(columns: Sequence[str], column: str, role: str, where: str) -> None:
    if column not in columns:
        raise DataError(f"{where}: there is no column {column!r} for {role}=; {_listed(columns)}", parameters=(role,))
    if list(columns).count(column) > 1:
        raise DataError(
            f"{where}: the column {column!r} for {role}= occurs more than once; {_listed(columns)}", parameters=(role,)
        )


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


def _listed(columns: Sequence[str]) -> str:
    return "the columns are " + ", ".join(map(repr, columns)) if columns else "there are no columns"
