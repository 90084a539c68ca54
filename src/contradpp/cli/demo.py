"""`contradpp demo`: a small shop, models that learn it, how they compare, and what they suggest, within a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import contradpp as cd
from contradpp.cli.ask import in_words
from contradpp.cli.fit import show_files, show_metrics
from contradpp.cli.inputs import FOLDER, option, random_state_option
from contradpp.cli.output import (
    Column,
    busy,
    check_writable,
    heading,
    json_option,
    listed,
    paragraph,
    save_model,
    say,
    show_json,
    show_table,
)
from contradpp.cli.serve import serve
from contradpp.dpp.ahead import DEMO, compile_ahead
from contradpp.dpp.persist import write_atomically
from contradpp.errors import MissingExtraError
from contradpp.report.measured import examples, measure, verdict
from contradpp.report.page import Subject, render

BASKETS = (["spaghetti", "tomato sauce"], ["taco shells", "minced beef"], ["wet cat food (Felix & Co)"])
PRODUCTS = ("whole milk (Dairy Farm)", "spaghetti", "white sliced bread")
RANK = 40
WHY = (
    "A symmetric kernel learns popularity and what stays apart; the nonsymmetric one also learns what goes together; "
    "the conditional one listens to what neighbouring items and baskets say as well."
)
# What is compared; the last one is the best that we have: it is saved, reported and served. Its kernel comes before it.
MODELS: dict[str, Callable[[int], Any]] = {
    "LowRank (likelihood)": lambda seed: cd.LowRankDPP(RANK, objective="mle", random_state=seed),
    "contrastive (dynamic)": lambda seed: cd.LowRankDPP(RANK, objective="dynamic", random_state=seed),
    "conditional": lambda seed: cd.ConditionalDPP(random_state=seed),
}
BEST, KERNEL = list(MODELS)[-1], "nonsymmetric (exact)"


@click.command()
@option("--baskets", "n_baskets", default=20_000, type=click.IntRange(100), help="How many.")
@random_state_option("Seed of the shop and the models.")
@option("-o", "--output", "folder", default="demo-output", type=FOLDER, help="Folder for model and report.")
@option("--serve", "serving", is_flag=True, help="Then open the model as a web page on this machine.")
@json_option
@click.pass_context
def demo(ctx: click.Context, /, n_baskets: int, random_state: int, folder: Path, serving: bool, as_json: bool) -> None:
    """Generate a small supermarket, learn it, compare models, and show what goes with a basket."""
    started = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    path, page = folder / "model.safetensors", folder / "report.html"
    for file in (path, page):
        check_writable(file)
    shop = cd.datasets.load("grocer", n_baskets=n_baskets, random_state=random_state)
    train, test = shop.split(0.1, random_state=random_state)
    if not as_json:
        click.echo(f"A made-up supermarket: {len(shop):,} baskets of {shop.n_items} products.")
    compile_ahead(DEMO)
    models, seconds = learn(train, random_state)
    with busy("Measuring on held-out baskets ..."):
        found = measure(models, train, test)
    if found is None:
        raise click.ClickException("there is no held-out basket of two items: generate more --baskets")
    best = models[BEST]
    save_model(best, path)
    shown = examples(best, test, seed=random_state)
    with busy("Drawing the report ..."):
        drawn = write_page(page, Subject(best, BEST, "grocer", train, found, shown, seconds[BEST]))
    total = time.perf_counter() - started
    suggested = [{name: suggestions(model, basket) for name, model in models.items()} for basket in BASKETS]
    if as_json:
        asked = zip(BASKETS, suggested, strict=True)
        show_json(
            {
                "held_out": {name: report.as_dict() for name, report in found.reports.items()},
                "seconds": {**seconds, "total": total},
                "suggestions": [{"basket": basket, "suggests": items} for basket, items in asked],
                "model": str(path),
                "report": str(page) if drawn else None,
            }
        )
    else:
        show_metrics(found, seconds=seconds)
        click.echo()
        paragraph(verdict(found, BEST), label=f"{BEST}: ", bold=True)
        show_suggestions(best, suggested)
        heading(f"All of it took {total:.0f} s")
        show_files(path, None, page if drawn else None)
        click.echo(f"Web page  contradpp serve {path}")
        click.echo(f"Try       contradpp recommend {path} spaghetti 'tomato sauce'")
    if serving:
        ctx.invoke(serve, model=str(path))


def learn(train: cd.Baskets, seed: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Fit the models, and measure how long each takes."""
    models: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for name, make in MODELS.items():
        started = time.perf_counter()
        with busy(f"Learning {name} (the first run ever also compiles the kernels) ..."):
            model = make(seed).fit(train)
        if name == BEST:
            models[KERNEL] = model.estimator_
        models[name], seconds[name] = model, time.perf_counter() - started
    return models, seconds


def write_page(path: Path, subject: Subject) -> bool:
    """Write the report; without the extra that it needs, say so and return False."""
    try:
        write_atomically(path, render(subject).encode())
    except MissingExtraError as error:
        say(f"No report: {error}")
        return False
    return True


def suggestions(model: Any, basket: list[str]) -> list[Any]:
    """Return the four items that a model would add next."""
    return list(model.recommend(basket, N=4)[0].tolist())


def show_suggestions(best: cd.ConditionalDPP, suggested: list[dict[str, list[Any]]]) -> None:
    """Print the suggestions of all models by basket; and by the best one, reasons, a slate and complements."""
    items = best.items_
    for basket, by_model in zip(BASKETS, suggested, strict=True):
        heading(f"What goes with {', '.join(basket)}?")
        rows = [[name, listed(found, items)] for name, found in by_model.items()]
        show_table([Column("model"), Column("suggests")], rows)
    click.echo()
    paragraph(WHY)
    basket = BASKETS[0]
    heading(f"Why does it suggest these with {', '.join(basket)}?")
    told = best.explain_each(basket, suggested[0][BEST])
    show_table([Column("suggestion"), Column("because of")], [[str(one.item), in_words(one, items)] for one in told])
    click.echo()
    paragraph(listed(best.slate(basket, N=6, diversity=0.5)[0].tolist(), items), label="A varied slate: ")
    heading("What does a product call for?")
    rows = [[product, listed(best.complements(product, N=4)[0].tolist(), items)] for product in PRODUCTS]
    show_table([Column("product"), Column("complements")], rows)
