"""`contradpp evaluate`: how well a saved model predicts held-out baskets."""

from __future__ import annotations

from typing import Any

import click

import contradpp as cd
from contradpp.cli.inputs import (
    baskets_from,
    layout_options,
    model_argument,
    n_jobs_option,
    option,
    random_state_option,
)
from contradpp.cli.output import busy, json_option, show_json
from contradpp.errors import DataError
from contradpp.models.base import BaseDPP


def levels(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Whole numbers from 1, separated by commas."""
    try:
        found = tuple(int(k) for k in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of whole numbers", ctx, param) from None
    if min(found) < 1:
        raise click.BadParameter("every k must be at least 1", ctx, param)
    return found


@click.command()
@model_argument
@click.argument("data")
@option("--ks", callback=levels, default="1,5,10,20", help="The k of p@k, between commas.")
@random_state_option("Seed of the held-out items and of the random sets.")
@option("--min-size", type=int, default=1, help="Leave out test baskets with fewer items.")
@option("--choices", is_flag=True, help="Measure what is taken of what is offered, where the file says so.")
@n_jobs_option
@layout_options
@json_option
def evaluate(
    model: str, data: str, ks: tuple[int, ...], random_state: int, min_size: int, choices: bool, n_jobs: int | None,
    as_json: bool, **layout: Any,
) -> None:  # fmt: skip
    """Evaluate MODEL on the baskets of DATA, a file or the name of a data set.

    DATA should not have been used for learning. Each item is left out of its basket and predicted from the rest.

    \b
    contradpp evaluate shop.safetensors next-week.csv --min-size 2
    contradpp evaluate shop.safetensors views.csv --chosen bought --choices
    """
    with busy("Measuring ..."):
        loaded = cd.load(model)
        baskets = baskets_for(loaded, model, data, **layout)
        report: Any = None
        if choices:
            loaded.n_jobs = n_jobs
            report = cd.evaluate_choices(loaded, baskets, random_state=random_state)
        else:
            report = cd.evaluate(loaded, baskets, ks=ks, random_state=random_state, min_size=min_size, n_jobs=n_jobs)
        text = str(report)
    if as_json:
        show_json(report.as_dict())
    else:
        click.echo(text)


def baskets_for(loaded: BaseDPP, model: str, data: str, **layout: Any) -> cd.Baskets:
    """The baskets of a file or data set, of which the model must know something."""
    baskets = baskets_from(data, **layout)
    if not set(baskets.items) & set(loaded.items_):
        raise DataError(f"{model} knows none of the {baskets.n_items:,} items of {data}: it learned from other data")
    return baskets
