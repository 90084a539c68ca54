"""`contradpp demo`: a small shop, models that learn it, how they compare, and what they suggest, within a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
    write_text,
)
from contradpp.cli.serve import serve
from contradpp.dpp.ahead import DEMO, compile_ahead
from contradpp.errors import MissingExtraError
from contradpp.report.measured import Measured, examples, measure
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


class Demo(NamedTuple):
    """The models by name, how long each took, how they compare, and what was written."""

    models: dict[str, Any]
    seconds: dict[str, float]
    measured: Measured
    path: Path
    page: Path | None


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
        measured = measure(models, train, test)
    if measured is None:
        raise click.ClickException("there is no held-out basket of two items: generate more --baskets")
    save_model(models[BEST], path)
    shown = examples(models[BEST], test, seed=random_state)
    subject = Subject(models[BEST], BEST, "grocer", train, measured, shown, seconds[BEST])
    with busy("Drawing the report ..."):
        drawn = write_page(page, subject)
    found = Demo(models, seconds, measured, path, page if drawn else None)
    total = time.perf_counter() - started
    if as_json:
        show_json(findings(found, total))
    else:
        show(found, total)
    if serving:
        ctx.invoke(serve, model=str(path))


def learn(train: cd.Baskets, seed: int) -> tuple[dict[str, Any], dict[str, float]]:
    """The models, and how long each took."""
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
        write_text(path, render(subject))
    except MissingExtraError as error:
        say(f"No report: {error}")
        return False
    return True


def findings(found: Demo, total: float) -> dict[str, Any]:
    """Everything for machines."""
    return {
        "held_out": {name: report.as_dict() for name, report in found.measured.reports.items()},
        "seconds": {**found.seconds, "total": total},
        "suggestions": [
            {"basket": basket, "suggests": {name: suggested(model, basket) for name, model in found.models.items()}}
            for basket in BASKETS
        ],
        "model": str(found.path),
        "report": None if found.page is None else str(found.page),
    }


def show(found: Demo, total: float) -> None:
    """Everything for people."""
    show_metrics(found.measured, seconds=found.seconds)
    click.echo()
    paragraph(found.measured.verdict(BEST), label=f"{BEST}: ", bold=True)
    for basket in BASKETS:
        heading(f"What goes with {', '.join(basket)}?")
        rows = [[name, listed(suggested(model, basket), model.items_)] for name, model in found.models.items()]
        show_table([Column("model"), Column("suggests")], rows)
    click.echo()
    paragraph(WHY)
    best = found.models[BEST]
    show_reasons(best)
    heading("What does a product call for?")
    rows = [[product, listed(best.complements(product, N=4)[0].tolist(), best.items_)] for product in PRODUCTS]
    show_table([Column("product"), Column("complements")], rows)
    heading(f"All of it took {total:.0f} s")
    show_files(found.path, None, found.page)
    click.echo(f"Web page  contradpp serve {found.path}")
    click.echo(f"Try       contradpp recommend {found.path} spaghetti 'tomato sauce'")


def show_reasons(model: cd.ConditionalDPP) -> None:
    """The suggestions for the first basket with reasons, and a slate for it."""
    basket = BASKETS[0]
    heading(f"Why does it suggest these with {', '.join(basket)}?")
    told = model.explain_each(basket, suggested(model, basket))
    rows = [[str(one.item), in_words(one, model.items_)] for one in told]
    show_table([Column("suggestion"), Column("because of")], rows)
    click.echo()
    paragraph(listed(model.slate(basket, N=6, diversity=0.5)[0].tolist(), model.items_), label="A varied slate: ")


def suggested(model: Any, basket: list[str]) -> list[Any]:
    """The four items that a model would add next."""
    return list(model.recommend(basket, N=4)[0].tolist())
