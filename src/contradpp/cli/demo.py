"""`contradpp demo`: a small shop, a trained model, how it compares, and what it suggests, within a minute."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import contradpp as cd

BASKETS = (
    ["spaghetti", "tomato sauce"],
    ["taco shells", "minced beef"],
    ["plain flour", "free-range eggs"],
    ["wet cat food (Felix & Co)"],
)


PRODUCTS = ("whole milk (Dairy Farm)", "spaghetti", "ground coffee (Roma)", "white sliced bread")


@click.command()
@click.option("--baskets", "n_baskets", default=20_000, show_default=True, help="How many baskets to generate.")
@click.option("--seed", default=0, show_default=True, help="Seed of the shop and the models.")
def demo(n_baskets: int, seed: int) -> None:
    """Generate a small supermarket, learn it, and show what goes with a basket."""
    console = Console()
    console.rule("[bold]contradpp demo")
    shop = cd.datasets.load("grocer", n_baskets=n_baskets, random_state=seed)
    train, test = shop.split(0.2, random_state=seed)
    console.print(shop.describe(), highlight=False)
    models, seconds = learn(train, seed, console)
    console.print(comparison(models, seconds, test))
    model = models["contrastive (dynamic)"]
    console.print(suggestions(model))
    console.print(substitutes(model))
    console.print(
        "\nA symmetric kernel learns popularity and what does not go together; it cannot learn that items attract."
        "\nThree baskets of five, drawn from the model:"
    )
    for basket in model.sample(3, size=5, random_state=seed):
        console.print("  " + ", ".join(map(str, basket)), highlight=False)


def learn(train: cd.Baskets, seed: int, console: Console) -> tuple[dict[str, Any], dict[str, float]]:
    """A model by likelihood and one by contrast, beside popularity, and how long each took."""
    models: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    with console.status("Learning (the first run also compiles the kernels) ..."):
        for name, objective in (("likelihood (mle)", "mle"), ("contrastive (dynamic)", "dynamic")):
            started = time.perf_counter()
            models[name] = cd.LowRankDPP(n_components=40, objective=objective, random_state=seed).fit(train)
            seconds[name] = time.perf_counter() - started
        popularity = cd.baselines.Popularity().fit(train)
    return {"popularity": popularity, **models}, {"popularity": 0.0, **seconds}


def comparison(models: dict[str, Any], seconds: dict[str, float], test: cd.Baskets) -> Table:
    """The models beside each other on held-out baskets."""
    table = Table(title=f"\nPredicting an item left out of {test.n_baskets:,} held-out baskets", title_justify="left")
    table.add_column("model")
    for column in ("mean percentile rank", "in the top 10", "log-likelihood", "seconds"):
        table.add_column(column, justify="right")
    for name, model in models.items():
        found = cd.evaluate(model, test, ks=(10,), min_size=2)
        time_taken = f"{seconds[name]:.1f}" if seconds[name] else ""
        cells = (f"{found.mpr_fair:.1f}", f"{found.precision[10]:.1f} %", f"{found.log_likelihood:.2f}", time_taken)
        table.add_row(name, *cells)
    return table


def suggestions(model: cd.LowRankDPP) -> Table:
    """What goes with a few baskets."""
    table = Table(title="\nWhat goes with a basket", title_justify="left")
    for column in ("basket", "suggestions (probability to come next)", "completed to six"):
        table.add_column(column)
    for basket in BASKETS:
        items, probabilities = model.recommend(basket, N=4)
        best = ", ".join(f"{item} ({p:.1%})" for item, p in zip(items, probabilities, strict=True))
        table.add_row(", ".join(basket), best, ", ".join(map(str, model.complete(basket, 6)[len(basket) :])))
    return table


def substitutes(model: cd.LowRankDPP) -> Table:
    """What the model keeps apart, which in a shop are substitutes."""
    table = Table(title="\nWhat is rarely bought together: the nearest items of the kernel", title_justify="left")
    for column in ("product", "most alike (1 = never in the same basket)"):
        table.add_column(column)
    for product in PRODUCTS:
        items, likeness = model.similar_items(product, N=4)
        table.add_row(product, ", ".join(f"{item} ({x:.2f})" for item, x in zip(items, likeness, strict=True)))
    return table
