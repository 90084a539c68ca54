"""`contradpp demo`: a small shop, a trained model, and what it suggests, within a minute."""

from __future__ import annotations

import time

import click
from rich.console import Console
from rich.table import Table

import contradpp as cd

BASKETS = (["spaghetti", "tomato sauce"], ["tortillas"], ["cat food"], ["flour", "eggs"])


@click.command()
@click.option("--baskets", "n_baskets", default=20_000, show_default=True, help="How many baskets to generate.")
@click.option("--seed", default=0, show_default=True, help="Seed of the shop and the model.")
def demo(n_baskets: int, seed: int) -> None:
    """Generate a small supermarket, learn it, and show what goes with a basket."""
    console = Console()
    console.rule("[bold]contradpp demo")
    shop = cd.datasets.load("grocer", n_baskets=n_baskets, random_state=seed)
    train, test = shop.split(0.2, random_state=seed)
    console.print(shop.describe(), highlight=False)
    started = time.perf_counter()
    with console.status("Learning (the first run also compiles the kernels) ..."):
        model = cd.LowRankDPP(n_components=40, random_state=seed, verbose=1).fit(train)
    seconds = time.perf_counter() - started
    console.print(
        f"\nLearned in {seconds:.1f} s: {model.n_iter_} rounds over {train.n_baskets:,} baskets; "
        f"held-out log-likelihood {model.score(test):.2f} per basket.\n",
        highlight=False,
    )
    table = Table(title="What goes with a basket", title_justify="left")
    table.add_column("basket")
    table.add_column("suggestions (probability to come next)")
    table.add_column("completed to six")
    for basket in BASKETS:
        known = [item for item in basket if item in model.items_]
        if not known:
            continue
        items, probabilities = model.recommend(known, N=4)
        suggestions = ", ".join(f"{item} ({p:.1%})" for item, p in zip(items, probabilities, strict=True))
        table.add_row(", ".join(known), suggestions, ", ".join(map(str, model.complete(known, 6)[len(known) :])))
    console.print(table)
    drawn = model.sample(3, size=5, random_state=seed)
    console.print("\nThree baskets of five, drawn from the model:")
    for items_drawn in drawn:
        console.print("  " + ", ".join(map(str, items_drawn)), highlight=False)
