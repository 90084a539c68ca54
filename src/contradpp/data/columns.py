"""What a file's first lines and a table's column names say: the format, and which column holds what."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from contradpp.errors import DataError

Told = Mapping[str, str | None]
SEPARATORS = (",", ";", "\t", "|")

_BASKET = "(basket|order|invoice|transaction|trans|txn|cart|session|receipt|ticket|bill|purchase|playlist)"
_ITEM = "(item|product|article|track|song|book|good|material)"
_NUMBER = "(id|ids|no|nr|num|number|code|key)"

MOST_COLUMNS = 10_000  # a line of more fields is no header: it is a basket, and its items are not looked at as names
LONGEST_NAME = 1_000  # characters: the same of a field

# Best first: an explicit identifier before a bare noun before a name.
_TIERS = {
    "basket": [f"{_BASKET}{_NUMBER}|tid", f"{_BASKET}s?"],
    "item": [
        f"({_ITEM}|stock){_NUMBER}|sku|asin|upc|ean|gtin|isbn|barcode",
        f"{_ITEM}s?",
        f"{_ITEM}(name|title|description)",
    ],
    "quantity": [f"({_ITEM}|{_BASKET})?(quantity|qty|units|pieces|pcs)(sold|ordered)?"],
    "name": ["(item|product|article|stock)?(name|title|description|desc)"],
}
_LISTS = f"({_ITEM}|{_BASKET})s?{_NUMBER}?|skus?|asins?"


@dataclass(frozen=True)
class Layout:
    """Where a table keeps what: the columns by role, and whether `item` holds lists.

    A table of lists may do without `basket`: then every row is a basket of its own. `returns` is a column that
    nobody named but whose name says quantities: rows below zero are returns.
    """

    basket: str | None
    item: str
    quantity: str | None = None
    name: str | None = None
    category: str | None = None
    returns: str | None = None
    lists: bool = False
    chosen: str | None = None  # then `item` holds what was offered, and this says what of it was taken

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        wanted = (self.basket, self.item, self.quantity, self.name, self.category, self.returns, self.chosen)
        return list(dict.fromkeys(column for column in wanted if column is not None))


def find_layout(
    columns: Sequence[str],
    told: Told,
    *,
    where: str,
    lists: Sequence[str] = (),
    texts: Sequence[str] | None = None,
    numbers: Sequence[str] | None = None,
) -> Layout:
    """The columns by role, as told or by guess; the `DataError` for a doubtful guess lists them.

    Parameters
    ----------
    columns : sequence of str
        All the columns there are.
    told : mapping
        What the user said of basket, item, quantity, name, category and chosen; the last two are never guessed.
    where : str
        The file or table, for the message of an error.
    lists, texts, numbers : sequence of str, optional
        Those of the columns that hold lists of items, that may hold names, and that may hold quantities.
    """
    for role, column in told.items():
        if column is not None:
            check_column(columns, column, role, where)
    basket, item, chosen = told.get("basket"), told.get("item"), told.get("chosen")
    columns = [column for column in columns if column != chosen]
    whole = item if item is not None else _list_column(columns, [column for column in lists if column != chosen])
    if whole is not None and whole in lists:
        of_rows = [role for role in ("quantity", "name", "category") if told.get(role) is not None]
        if of_rows:
            raise DataError(f"{where}: {of_rows[0]}= needs a row per item, but {whole!r} holds lists")
        if chosen is not None and (chosen not in lists or chosen == whole):
            raise DataError(
                f"{where}: chosen= must name a column of lists, other than {whole!r}", parameters=("chosen",)
            )
        return Layout(basket, whole, lists=True, chosen=chosen)
    if basket is None:
        basket = _guess([c for c in columns if c != item], "basket", columns, where)
    if item is None:
        item = _guess([c for c in columns if c != basket], "item", columns, where)
    if chosen is not None and chosen in (basket, item, *lists):
        raise DataError(f"{where}: {chosen!r} cannot say what was chosen of {item!r}: a column of 0 and 1 can",
                        parameters=("chosen",))  # fmt: skip
    if basket == item:
        raise DataError(f"{where}: basket= and item= name the same column {item!r}; {_listed(columns)}")
    name, quantity, category = told.get("name"), told.get("quantity"), told.get("category")
    taken = {basket, item, name, quantity, category}
    returns = None if quantity is not None else _only(columns if numbers is None else numbers, "quantity", taken)
    name = name if name is not None else _only(columns if texts is None else texts, "name", taken)
    return Layout(basket, item, quantity, name, category, returns, chosen=chosen)


def matches(columns: Sequence[str], role: str) -> list[str]:
    """The columns whose names fit a role best; several if they fit equally well."""
    if len(columns) > MOST_COLUMNS:
        return []
    for tier in _TIERS[role]:
        found = [name for name in columns if len(name) <= LONGEST_NAME and re.fullmatch(tier, _normal(name))]
        if found:
            return found
    return []


def _normal(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def _only(columns: Sequence[str], role: str, taken: set[str | None]) -> str | None:
    """The only column that fits a role and has no other, None if in doubt."""
    found = [column for column in matches(columns, role) if column not in taken]
    return found[0] if len(found) == 1 else None


def _list_column(columns: Sequence[str], lists: Sequence[str]) -> str | None:
    """The column of lists to take: the only one, or the only one with a fitting name; None if long."""
    scalars = [column for column in columns if column not in lists]
    if matches(scalars, "basket") and matches(scalars, "item"):
        return None
    fitting = lists if len(lists) == 1 else [c for c in lists if re.fullmatch(_LISTS, _normal(c))]
    return fitting[0] if len(fitting) == 1 else None


def check_column(columns: Sequence[str], column: str, role: str, where: str) -> None:
    """`DataError` unless there is one column of this name."""
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


# -- Text formats: the first lines decide, the suffix only what they leave open ----------------------------


def detect_format(lines: Sequence[str], suffix: str, *, has_columns: bool = False) -> str:
    """The format of a text file: "jsonl", "choices", "long", "ragged" or "fimi".

    Parameters
    ----------
    lines : sequence of str
        The first lines that are not blank.
    suffix : str
        The file's suffix, consulted where the lines fit two formats.
    has_columns : bool
        The user named columns: only a file with a header has any.
    """
    if _is_json(lines[0], suffix):
        return "jsonl"
    if not has_columns and is_choices(lines):
        return "choices"
    if has_columns or _has_known_header(lines[0]) or is_pairs(lines) or _has_unknown_header(lines):
        return "long"
    separated = any(separator in line for line in lines for separator in SEPARATORS)
    spaced = suffix in (".dat", ".fimi") and any(len(line.split()) > 1 for line in lines)
    return "ragged" if separated and not spaced else "fimi"


def is_choices(lines: Sequence[str]) -> bool:
    """Whether every line is `offered;chosen`, with all that was chosen among several that were offered."""
    halves = [tuple(map(choice_items, line.split(";"))) for line in lines]
    return all(len(half) == 2 and len(half[0]) > 1 and set(half[1]) <= set(half[0]) for half in halves)


def choice_items(half: str) -> list[str]:
    """The items of one half of a line `offered;chosen`: spaces, tabs or commas separate them."""
    return [item for item in re.split(r"[ \t\r\n\f\v,]+", half) if item]


def is_pairs(lines: Sequence[str]) -> bool:
    """Whether lines without a header are rows (basket, item): two fields each, and first ones that repeat.

    They repeat in runs, as baskets of two items would only if they were sorted, or are numbers beside texts.
    """
    separator = ragged_separator(lines)
    rows = [[field.strip() for field in fields(line, separator)] for line in lines]
    if any(len(row) != 2 or not row[0] for row in rows) or _has_known_header(lines[0]) or _has_unknown_header(lines):
        return False
    owners, items = zip(*rows, strict=True)
    distinct = len(set(owners))
    if not 1 < distinct < len(owners):
        return False
    in_runs = len(list(groupby(owners))) == distinct
    return in_runs or (all(map(_is_number, owners)) and not any(map(_is_number, items)))


def may_be_pairs(lines: Sequence[str]) -> bool:
    """Whether lines that are taken for baskets of two items could be rows (basket, item) in no order."""
    separator = ragged_separator(lines)
    rows = [fields(line, separator) for line in lines]
    if len(rows) < 4 or any(len(row) != 2 for row in rows):
        return False
    owners, items = ({row[column].strip() for row in rows} for column in (0, 1))
    return owners.isdisjoint(items) and len(owners) < len(rows)


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
    return max(SEPARATORS, key=lambda s: (sum(s in line for line in lines), sum(line.count(s) for line in lines)))


def fields(line: str, separator: str) -> list[str]:
    """The fields of one line of CSV."""
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a field longer than the csv module takes, hence no header
        return line.split(separator)


def _is_json(line: str, suffix: str) -> bool:
    named, opened = suffix in (".json", ".jsonl", ".ndjson"), line.lstrip().startswith(("[", "{"))
    if not (named or opened):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return named and opened  # the reader will say what is wrong with it
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
