"""`contradpp rerank`: varied lists from any recommender's candidates, a line of JSON for each."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any

import click

import contradpp as cd
from contradpp._types import Values
from contradpp.cli.inputs import at_most_option, counts_of, option
from contradpp.cli.output import show_answers
from contradpp.errors import ContradppError, DataError
from contradpp.slates.greedy import METHOD_WORDS, SCALES, as_method

OPTIONAL = ("vectors", "categories", "given", "fixed")
FIELDS = ("candidates", "scores", *OPTIONAL)


@click.command()
@click.argument("source", default="-", metavar="[FILE]")
@option("-k", default=10, type=click.IntRange(1), help="The number of items of each list.")
@option(
    "--diversity",
    default=0.5,
    type=click.FloatRange(0, 1),
    help="0: relevance only; 1: variety only.",
)
@option(
    "--model",
    type=click.Path(exists=True, dir_okay=False),
    help="A model that knows which items are similar; else each line has vectors.",
)
@at_most_option
@option(
    "--at-least",
    multiple=True,
    metavar="CATEGORY=N",
    help="The fewest of a category; may be repeated.",
)
@option(
    "--window",
    type=click.IntRange(1),
    help="Among this many places in a row, a category stands at most once.",
)
@option("--method", type=METHOD_WORDS, default="dpp", help="The way to choose.")
@option(
    "--window-size",
    type=click.IntRange(1),
    default=5,
    help="With --method window: the latest places that repel.",
)
@option("--scale", type=SCALES, default="rank", help="The meaning of scores.")
@option(
    "--unknown",
    type=("error", "ignore"),
    default="error",
    help="For items without a vector: ignore lets them be unlike everything.",
)
def rerank(
    source: str,
    model: str | None,
    at_most: tuple[str, ...],
    at_least: tuple[str, ...],
    window: int | None,
    method: str,
    window_size: int,
    **options: Any,
) -> None:
    """Choose K varied items of every list in FILE, or standard input, a line of JSON each.

    A line has "candidates" and "scores"; where they are needed also "vectors" and "categories"
    (arrays in the order of the candidates, or objects by item), "given" (items on screen already)
    and "fixed" (item to place).

    \b
    contradpp rerank lists.jsonl -k 5 --diversity 0.6 --at-most 2 > slates.jsonl
    """
    options["kernel"] = None if model is None else cd.load(model)
    options["method"] = as_method(method, window_size)
    limits = {
        "at_most": counts_of(at_most, "--at-most"),
        "at_least": counts_of(at_least, "--at-least"),
        "window": window,
    }
    # A byte that is no UTF-8 spoils its own line only.
    with (
        nullcontext(sys.stdin)
        if source == "-"
        else open(source, encoding="utf-8", errors="replace") as stream
    ):
        answers = (answer_line(line, limits, options) for line in stream if line.strip())
        show_answers(answers, "lists")


def answer_line(line: str, limits: Values, options: Values) -> Values:
    """Return the answer to one line, or the reason why there is none."""
    try:
        query = read_line(line)
        fields = {name: query.pop(name) for name in ("categories", "fixed") if name in query}
        rules = cd.SlateRules(**fields, **limits)
        items, scores, info = cd.rerank(**query, rules=rules, **options, return_info=True)
    except ContradppError as error:
        return {"error": str(error)}
    answer = {
        "items": items.tolist(),
        "scores": scores.tolist(),
        "positions": info.positions.tolist(),
    }
    return answer | ({} if info.reason is None else {"reason": info.reason})


def read_line(line: str) -> Values:
    """Return the fields of a line; keys of its objects, which are strings, become items."""
    try:
        query = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}") from None
    if not isinstance(query, dict) or not {"candidates", "scores"} <= query.keys() <= set(FIELDS):
        raise DataError(
            "a line must be an object with candidates and scores, and may have "
            f"{', '.join(OPTIONAL)}"
        )
    lists = [query.get(name) for name in ("candidates", "given")]
    keys = [key for one in lists if isinstance(one, list) for key in one]
    if any(isinstance(key, list) for key in keys):
        raise DataError("a line holds one list of candidates")
    items = {str(key): key for key in keys}
    for name in ("vectors", "categories", "fixed"):
        if isinstance(query.get(name), dict):
            query[name] = {items.get(key, key): value for key, value in query[name].items()}
    return {name: value for name, value in query.items() if value is not None}
