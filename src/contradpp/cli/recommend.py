"""`contradpp recommend`: what goes with a basket."""

from __future__ import annotations

import json
from collections.abc import Hashable

import click

import contradpp as cd


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.argument("items", nargs=-1)
@click.option("-n", "n_items", default=10, show_default=True, type=click.IntRange(1), help="How many suggestions.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recommend(model: str, items: tuple[str, ...], n_items: int, as_json: bool) -> None:
    """Suggest what goes with the ITEMS of a basket (none: an empty one)."""
    loaded = cd.load(model)
    basket = [as_known(item, loaded.items_) for item in items]
    found, probabilities = loaded.recommend(basket, N=n_items)
    if as_json:
        pairs = zip(found.tolist(), probabilities.tolist(), strict=True)
        click.echo(json.dumps([{"item": item, "probability": p} for item, p in pairs]))
        return
    for item, probability in zip(found.tolist(), probabilities, strict=True):
        name = loaded.items_.name(item)
        click.echo(f"{probability:8.3%}  {item}" + ("" if name == str(item) else f"  {name}"))


def as_known(text: str, items: cd.Vocabulary) -> Hashable:
    """The item that a word on the command line means: itself, or the integer that it spells."""
    if text not in items and text.lstrip("-").isdigit() and int(text) in items:
        return int(text)
    return text
