"""`contradpp evaluate`: the quality of one model on held-out baskets."""

from __future__ import annotations

from typing import Any

import click

import contradpp as cd
from contradpp.cli.inputs import (
    Parsed,
    baskets_from,
    layout_options,
    model_argument,
    n_jobs_option,
    option,
    random_state_option,
)
from contradpp.cli.output import busy, json_option, show_json
from contradpp.errors import DataError
from contradpp.models.base import DPPRecommender


def cutoffs(text: str) -> tuple[int, ...]:
    """Read whole numbers from 1, separated by commas."""
    found = tuple(map(int, text.split(",")))
    if min(found) < 1:
        raise ValueError
    return found


@click.command()
@model_argument
@click.argument("data")
@option(
    "--ks",
    type=Parsed(cutoffs, "no list of whole numbers from 1"),
    default="1,5,10,20",
    help="Values of k for p@k, separated by commas.",
)
@random_state_option("Seed of the held-out items and of the random sets.")
@option("--min-size", type=int, default=1, help="Leave out test baskets with fewer items.")
@option("--history", help="Earlier baskets with their customers, such as the training data.")
@option("--choices", is_flag=True, help="Predict what is taken of what is offered.")
@n_jobs_option
@layout_options
@json_option
def evaluate(
    model: str,
    data: str,
    history: str | None,
    choices: bool,
    n_jobs: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Evaluate MODEL on the baskets of DATA, a file or the name of a data set.

    DATA should not be what the model learned from. Each item is left out of its basket and
    predicted from the rest. With --choices, DATA must say what was offered.

    \b
    contradpp evaluate shop.safetensors next-week.csv --min-size 2
    contradpp evaluate shop.safetensors next-week.csv --history orders.csv
    contradpp evaluate shop.safetensors views.csv --chosen bought --choices
    """
    settings = {name: options.pop(name) for name in ("ks", "random_state", "min_size")}
    report: Any
    with busy("Measuring ..."):
        loaded = cd.load(model)
        baskets = baskets_for(loaded, model, data, **options)
        if choices:
            loaded.n_jobs = n_jobs
            report = cd.evaluate_choices(loaded, baskets, random_state=settings["random_state"])
        else:
            earlier = None if history is None else baskets_from(history, **options)
            report = cd.evaluate(loaded, baskets, history=earlier, n_jobs=n_jobs, **settings)
        text = str(report)  # computes what it shows
    if as_json:
        show_json(report.as_dict())
    else:
        click.echo(text)


def baskets_for(loaded: DPPRecommender, model: str, data: str, **layout: Any) -> cd.Baskets:
    """Read the baskets of a file or data set; the model must know at least one of the items."""
    baskets = baskets_from(data, **layout)
    if set(baskets.items).isdisjoint(loaded.items_):
        raise DataError(
            f"{model} knows none of the {baskets.n_items:,} items of {data}: it learned from other "
            "data"
        )
    return baskets
