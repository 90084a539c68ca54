"""`contradpp demo`: models of a made-up shop, how they compare, and what they suggest."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

import contradpp as cd
from contradpp._types import Values
from contradpp.cli.fit import show_files, show_metrics
from contradpp.cli.inputs import FOLDER, option, random_state_option
from contradpp.cli.output import (
    busy,
    check_writable,
    display_names,
    heading,
    json_option,
    paragraph,
    program,
    save_model,
    say,
    show_json,
    show_table,
    verbosity,
)
from contradpp.cli.recommend import reasons_in_words
from contradpp.cli.serve import serve
from contradpp.dpp.ahead import DEMO, compile_ahead
from contradpp.dpp.files import write_atomically
from contradpp.errors import MissingExtraError
from contradpp.report.evaluation import assessment, compare_with_baselines, draw_examples
from contradpp.report.page import Subject, render

BASKETS = (
    ["spaghetti", "tomato sauce"],
    ["taco shells", "minced beef"],
    ["wet cat food (Felix & Co)"],
)
PRODUCTS = ("whole milk (Dairy Farm)", "spaghetti", "white sliced bread")
RANK = 40
WHY = (
    "The symmetric kernels learn popularity and which items repel each other. The mixture also "
    "learns which items attract, and kinds of baskets. The conditional model adds neighboring "
    "items and baskets."
)
# The last one is the best: it is saved, reported and served. Its kernel is shown before it.
MODELS: dict[str, Callable[..., Any]] = {
    "LowRank (likelihood)": partial(cd.LowRankDPP, RANK, objective="mle"),
    "contrastive (dynamic)": partial(cd.LowRankDPP, RANK, objective="dynamic"),
    "conditional": cd.ConditionalDPP,
}
BEST = list(MODELS)[-1]
KERNEL = "mixture"


@click.command()
@option("--baskets", "n_baskets", default=20_000, type=click.IntRange(100), help="Number of them.")
@random_state_option("Seed of the shop and the models.")
@option(
    "-o",
    "--output",
    "folder",
    default="demo-output",
    type=FOLDER,
    help="Folder for model and report.",
)
@option("--serve", "serving", is_flag=True, help="Then serve the model as a local web page.")
@json_option
@click.pass_context
def demo(
    ctx: click.Context,
    /,
    n_baskets: int,
    random_state: int,
    folder: Path,
    serving: bool,
    as_json: bool,
) -> None:
    """Make up a small supermarket, learn models of it, compare them, and show suggestions."""
    started = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.safetensors"
    page = folder / "report.html"
    check_writable(path)
    check_writable(page)
    shop = cd.datasets.load("grocer", n_baskets=n_baskets, random_state=random_state)
    train, test = shop.split(0.1, random_state=random_state)
    if not as_json:
        click.echo(f"A made-up supermarket: {len(shop):,} baskets of {shop.n_items} products.")
    compile_ahead(DEMO)
    models, seconds = learn(train, random_state)
    with busy("Measuring on held-out baskets ..."):
        comparison = compare_with_baselines(models, train, test)
    if comparison is None:
        raise click.ClickException("no held-out basket has two items: use more --baskets")
    best = models[BEST]
    save_model(best, path)
    examples = draw_examples(best, test, seed=random_state)
    subject = Subject(best, BEST, "grocer", train, comparison, examples, seconds[BEST])
    with busy("Writing the report ..."):
        report = page if write_page(page, subject) else None
    total = time.perf_counter() - started
    suggested = [
        {name: model.recommend(basket, N=4)[0].tolist() for name, model in models.items()}
        for basket in BASKETS
    ]
    if as_json:
        pairs = zip(BASKETS, suggested, strict=True)
        show_json(
            {
                "held_out": {name: one.as_dict() for name, one in comparison.reports.items()},
                "seconds": {**seconds, "total": total},
                "suggestions": [{"basket": basket, "suggests": items} for basket, items in pairs],
                "model": str(path),
                "report": None if report is None else str(report),
            }
        )
    else:
        show_metrics(comparison, seconds=seconds)
        click.echo()
        paragraph(assessment(comparison, BEST), label=f"{BEST}: ", bold=True)
        show_suggestions(best, suggested)
        heading(f"All of it took {total:.0f} s")
        show_files(path, None, report)
        model = shlex.quote(str(path))
        if find_spec("fastapi") is None:
            page_needs = f"{shlex.quote(sys.executable)} -m pip install 'contradpp[serve]'"
            click.echo(f"Before    {page_needs}")
        click.echo(f"Web page  {program()} serve {model}")
        click.echo(f"Try       {program()} recommend {model} spaghetti 'tomato sauce'")
    if serving:
        ctx.invoke(serve, model=str(path))


def learn(train: cd.Baskets, seed: int) -> tuple[Values, dict[str, float]]:
    """Fit the models, and measure how long each takes."""
    models: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for name, make in MODELS.items():
        started = time.perf_counter()
        with busy(f"Learning {name} (the very first run also compiles the kernels) ..."):
            model = make(random_state=seed, verbose=verbosity()).fit(train)
        if name == BEST:
            models[KERNEL] = model.kernel_
        models[name] = model
        seconds[name] = time.perf_counter() - started
    return models, seconds


def write_page(path: Path, subject: Subject) -> bool:
    """Write the report; without the extra that it needs, say so and return False."""
    try:
        write_atomically(path, render(subject).encode())
    except MissingExtraError as error:
        say(f"No report: {error}")
        return False
    return True


def show_suggestions(best: cd.ConditionalDPP, suggested: list[dict[str, list[Any]]]) -> None:
    """Print the suggestions of all models; and reasons, a slate and complements of the best one."""
    items = best.items_
    for basket, by_model in zip(BASKETS, suggested, strict=True):
        heading(f"What goes with {', '.join(basket)}?")
        show_table(
            ["model", "suggests"],
            [[name, display_names(found, items)] for name, found in by_model.items()],
        )
    click.echo()
    paragraph(WHY)
    basket = BASKETS[0]
    heading(f"Why does it suggest these with {', '.join(basket)}?")
    explanations = best.explain_each(basket, suggested[0][BEST])
    rows = [[str(one.item), reasons_in_words(one, items)] for one in explanations]
    show_table(["suggestion", "because of"], rows)
    click.echo()
    slate = best.slate(basket, N=6, diversity=0.5)[0].tolist()
    paragraph(display_names(slate, items), label="A varied slate: ")
    heading("What does a product call for?")
    rows = [
        [product, display_names(best.complements(product, N=4)[0].tolist(), items)]
        for product in PRODUCTS
    ]
    show_table(["product", "complements"], rows)
