"""`contradpp recommend`: what goes with a basket, or with every basket of a file or of standard input."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

import contradpp as cd
from contradpp.cli.inputs import input_option, model_argument, queries, unknown_option
from contradpp.cli.output import Column, json_option, listed, say, show_json, show_json_line, show_table
from contradpp.cli.words import Words
from contradpp.errors import ContradppError
from contradpp.models.base import BaseDPP

BLOCK = 512  # baskets answered at a time

Answer = dict[str, Any]


@click.command()
@model_argument
@click.argument("items", nargs=-1, metavar="[ITEM]...")
@click.option("-n", "n_items", default=10, show_default=True, type=click.IntRange(1), help="How many suggestions.")
@click.option("--exclude", multiple=True, metavar="ITEM", help="Never suggest this item; may be repeated.")
@input_option
@unknown_option
@click.option("--engine", type=click.Choice(["ray"]), help="Answer a folder of Parquet files on a Ray cluster.")
@click.option("-o", "--output", metavar="FOLDER", help="With --engine: where the answers go, a file for each.")
@click.option("--address", help="With --engine: the cluster; one on this machine if left out.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="With --engine: processes.")
@json_option
def recommend(
    model: str, items: tuple[str, ...], n_items: int, exclude: tuple[str, ...], source: str | None, unknown: str,
    as_json: bool, engine: str | None, output: str | None, address: str | None, workers: int,
) -> None:  # fmt: skip
    """Suggest what goes with the ITEMs of a basket (none: an empty one).

    Items are ids or names. With --input there is a line of JSON for every basket.

    \b
    contradpp recommend shop.safetensors spaghetti "tomato sauce"
    contradpp recommend shop.safetensors --input baskets.jsonl > suggestions.jsonl
    echo '["spaghetti", "tomato sauce"]' | contradpp recommend shop.safetensors --input -
    contradpp recommend shop.safetensors --engine ray --input baskets/ --output suggestions/
    """
    loaded = cd.load(model)
    words = Words(loaded.items_, unknown=unknown, counts=getattr(loaded, "item_counts_", None))
    banned = words.basket(exclude)
    if engine is not None:
        if items or source is None or output is None:
            raise click.UsageError("--engine needs --input and --output, two folders, and takes no items")
        from contradpp.distributed.scoring import recommend_folder

        n_files, n_rows = recommend_folder(
            model, source, output, n=n_items, exclude=banned, unknown=unknown, workers=workers, address=address
        )
        say(f"Answered {n_rows:,} baskets of {n_files:,} files; files that had an answer already were left alone.")
        return
    if output is not None:
        raise click.UsageError("--output goes with --engine ray")
    if source is not None:
        if items:
            raise click.UsageError("name items or --input, not both")
        failed = 0
        for answer in answers(loaded, words, queries(source, words), n_items, banned):
            failed += "error" in answer
            show_json_line(answer)
        if failed:
            raise click.ClickException(f"{failed:,} baskets could not be answered; their lines hold the reason")
        return
    basket = words.basket(items)
    found, probabilities = loaded.recommend(basket, N=n_items, exclude=banned)
    pairs = list(zip(found.tolist(), probabilities.tolist(), strict=True))
    names = loaded.items_.names
    if as_json:
        show_json([{"item": i, "probability": p} | ({"name": names[i]} if i in names else {}) for i, p in pairs])
        return
    columns = [Column("chance", right=True), Column("item"), *([Column("name")] if names else [])]
    rows = [[f"{p:.2%}", str(i), *([names.get(i, "")] if names else [])] for i, p in pairs]
    show_table(columns, rows, title=f"With {listed(basket, loaded.items_) or 'an empty basket'}")


def answers(model: BaseDPP, words: Words, baskets: Iterator[list[Any]], n: int, banned: list[Any]) -> Iterator[Answer]:
    """Suggestions for every basket, a block at a time; a basket that cannot be answered gets its reason."""
    while block := list(islice(baskets, BLOCK)):
        try:
            known = [words.basket(basket) for basket in block]
            found, probabilities = model.recommend(known, N=n, exclude=banned)
        except ContradppError:
            yield from (one_answer(model, words, basket, n, banned) for basket in block)
            continue
        for basket, items, chances in zip(known, found.tolist(), probabilities.tolist(), strict=True):
            yield answer_of(basket, items, chances)


def one_answer(model: BaseDPP, words: Words, basket: list[Any], n: int, banned: list[Any]) -> Answer:
    """Suggestions for one basket, or why there are none."""
    try:
        known = words.basket(basket)
        items, chances = model.recommend(known, N=n, exclude=banned)
    except ContradppError as error:
        return {"basket": basket, "error": str(error)}
    return answer_of(known, items.tolist(), chances.tolist())


def answer_of(basket: list[Any], items: list[Any], chances: list[float]) -> Answer:
    """A line of the answer; places that the catalogue could not fill are left out."""
    filled = [(item, chance) for item, chance in zip(items, chances, strict=True) if item is not None]
    return {"basket": basket, "items": [i for i, _ in filled], "probabilities": [p for _, p in filled]}
