"""`contradpp sample`: baskets drawn from a model."""

from __future__ import annotations

import click

import contradpp as cd
from contradpp.cli.inputs import model_argument, unknown_option
from contradpp.cli.output import json_option, listed, show_json_line
from contradpp.cli.words import Words


@click.command()
@model_argument
@click.option("-n", "n_samples", default=5, show_default=True, type=click.IntRange(0), help="How many baskets.")
@click.option("--size", type=click.IntRange(0), help="Only baskets of this size; any size if left out.")
@click.option("--given", multiple=True, metavar="ITEM", help="Every basket holds this item; may be repeated.")
@click.option("--seed", type=int, help="Seed of the draw; another one each time if left out.")
@unknown_option
@json_option
def sample(
    model: str, n_samples: int, size: int | None, given: tuple[str, ...], seed: int | None, unknown: str, as_json: bool
) -> None:
    """Draw baskets from MODEL, exactly as it says they occur: a line each, with --json an array each.

    \b
    contradpp sample shop.safetensors -n 3 --size 5 --given spaghetti
    """
    loaded = cd.load(model)
    fixed = Words(loaded.items_, unknown=unknown, counts=getattr(loaded, "item_counts_", None)).basket(given)
    for basket in loaded.sample(n_samples, size, fixed, random_state=seed):
        if as_json:
            show_json_line(basket)
        else:
            click.echo(listed(basket, loaded.items_))
