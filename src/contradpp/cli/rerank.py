"""`contradpp rerank`: varied lists from any recommender's candidates, a line of JSON in and one out for each."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any

import click

import contradpp as cd
from contradpp.cli.inputs import at_most_option, counts_of
from contradpp.cli.output import show_answers
from contradpp.dpp.greedy import METHODS, SCALES
from contradpp.errors import ContradppError, DataError

OPTIONAL = ("vectors", "categories", "given", "fixed")
FIELDS = ("candidates", "scores", *OPTIONAL)


@click.command()
@click.argument("source", default="-", metavar="[FILE]")
@click.option("-k", default=10, show_default=True, type=click.IntRange(1), help="How many items of each list.")
@click.option("--diversity", default=0.5, show_default=True, type=click.FloatRange(0, 1),
              help="0: relevance only; 1: variety only.")  # fmt: skip
@click.option("--model", type=click.Path(exists=True, dir_okay=False),
              help="A model that says what is alike; else each line has vectors.")  # fmt: skip
@at_most_option
@click.option("--at-least", multiple=True, metavar="CATEGORY=N", help="The fewest of a category; may be repeated.")
@click.option("--window", type=click.IntRange(1), help="Of so many places in a row, a category has at most one.")
@click.option("--method", type=click.Choice(METHODS), default="dpp", show_default=True, help="How to choose.")
@click.option("--scale", type=click.Choice(SCALES), default="rank", show_default=True, help="What scores mean.")
@click.option("--unknown", type=click.Choice(["error", "ignore"]), default="error", show_default=True,
              help="What to do with items without a vector: ignore lets them be unlike everything.")  # fmt: skip
def rerank(
    source: str, k: int, diversity: float, model: str | None, at_most: tuple[str, ...], at_least: tuple[str, ...],
    window: int | None, method: str, scale: str, unknown: str,
) -> None:  # fmt: skip
    """Choose K varied items of every list of candidates in FILE, or on standard input, which holds a line of JSON each.

    A line has "candidates" and "scores"; where they are needed also "vectors" and "categories" (arrays in the
    order of the candidates, or objects by item), "given" (items on screen already) and "fixed" (item to place).

    \b
    contradpp rerank lists.jsonl -k 5 --diversity 0.6 --at-most 2 > slates.jsonl
    """
    told: dict[str, Any] = {
        "k": k, "diversity": diversity, "kernel": None if model is None else cd.load(model), "window": window,
        "at_most": counts_of(at_most, "--at-most"), "at_least": counts_of(at_least, "--at-least"), "method": method,
        "scale": scale, "unknown": unknown,
    }  # fmt: skip
    # A byte that is no UTF-8 spoils its own line only, which is then no JSON that anyone meant.
    with nullcontext(sys.stdin) if source == "-" else open(source, encoding="utf-8", errors="replace") as stream:
        show_answers((answered(line, told) for line in stream if line.strip()), "lists")


def answered(line: str, told: dict[str, Any]) -> dict[str, Any]:
    """Answer one line, or say why there is no answer."""
    try:
        items, scores, info = cd.rerank(**read(line), **told, return_info=True)
    except ContradppError as error:
        return {"error": str(error)}
    answer = {"items": items.tolist(), "scores": scores.tolist(), "positions": info.positions.tolist()}
    return answer | ({} if info.reason is None else {"reason": info.reason})


def read(line: str) -> dict[str, Any]:
    """Read what one line asks; keys of JSON objects, which are strings, become the items they stand for."""
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}") from None
    if not isinstance(asked, dict) or not {"candidates", "scores"} <= asked.keys() <= set(FIELDS):
        raise DataError(f"a line must be an object with candidates and scores, and may have {', '.join(OPTIONAL)}")
    lists = [asked.get(name) for name in ("candidates", "given")]
    keys = [key for one in lists if isinstance(one, list) for key in one]
    if any(isinstance(key, list) for key in keys):
        raise DataError("a line holds one list of candidates")
    items = {str(key): key for key in keys}
    for name in ("vectors", "categories", "fixed"):
        if isinstance(asked.get(name), dict):
            asked[name] = {items.get(key, key): value for key, value in asked[name].items()}
    return {name: value for name, value in asked.items() if value is not None}
