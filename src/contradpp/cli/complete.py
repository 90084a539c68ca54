"""`contradpp complete`: fill a basket up to a size with what fits best together."""

from __future__ import annotations

import click

import contradpp as cd
from contradpp.cli.inputs import input_option, model_argument, queries, unknown_option
from contradpp.cli.output import called, json_option, show_json_line
from contradpp.cli.words import Words


@click.command()
@model_argument
@click.argument("items", nargs=-1, metavar="[ITEM]...")
@click.option("--size", default=6, show_default=True, type=click.IntRange(1), help="Items in the end, given ones too.")
@click.option("--exclude", multiple=True, metavar="ITEM", help="Never add this item; may be repeated.")
@input_option
@unknown_option
@json_option
def complete(
    model: str, items: tuple[str, ...], size: int, exclude: tuple[str, ...], source: str | None, unknown: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Complete the basket of ITEMs to the most likely set of --size, item by item.

    \b
    contradpp complete shop.safetensors spaghetti "tomato sauce" --size 6
    """
    if source is not None and items:
        raise click.UsageError("name items or --input, not both")
    loaded = cd.load(model)
    words = Words(loaded.items_, unknown=unknown, counts=getattr(loaded, "item_counts_", None))
    banned = words.basket(exclude)
    for given in [list(items)] if source is None else queries(source, words):
        basket = words.basket(given)
        whole = loaded.complete(basket, max(size, len(basket)), exclude=banned)
        if as_json or source is not None:
            show_json_line({"basket": basket, "completed": whole, "added": whole[len(basket) :]})
            continue
        for position, item in enumerate(whole):
            click.echo(f"{' ' if position < len(basket) else '+'} {called(item, loaded.items_)}")
