"""`contradpp evaluate`: how well a saved model predicts held-out baskets."""

from __future__ import annotations

import json

import click

import contradpp as cd
from contradpp.cli.inputs import baskets_from


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.argument("data")
@click.option("--ks", default="1,5,10,20", show_default=True, help="The k of p@k, separated by commas.")
@click.option("--seed", default=0, show_default=True, help="Seed of the held-out items and of the random sets.")
@click.option("--min-size", default=1, show_default=True, help="Leave out test baskets with fewer items.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def evaluate(model: str, data: str, ks: str, seed: int, min_size: int, as_json: bool) -> None:
    """Evaluate MODEL on the baskets of DATA, a file or the name of a data set."""
    try:
        levels = [int(k) for k in ks.split(",")]
    except ValueError:
        raise click.BadParameter(f"{ks!r} is no list of whole numbers", param_hint="--ks") from None
    if min(levels) < 1:
        raise click.BadParameter("every k must be at least 1", param_hint="--ks")
    report = cd.evaluate(cd.load(model), baskets_from(data), ks=levels, random_state=seed, min_size=min_size)
    click.echo(json.dumps(report.as_dict(), indent=2) if as_json else str(report))
