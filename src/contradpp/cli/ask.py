"""`contradpp recommend`, `slate`, `complete` and `sample`: what a saved model says of a basket, or of many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import click

import contradpp as cd
from contradpp.cli.inputs import (
    Decorator,
    Words,
    at_most_option,
    counts_of,
    input_option,
    model_argument,
    option,
    queries,
    random_state_option,
    shortened,
    unknown_option,
)
from contradpp.cli.output import Column, called, json_option, listed, say, show_answers, show_json, show_table
from contradpp.distributed.scoring import recommend_folder
from contradpp.errors import ContradppError
from contradpp.models.base import BaseDPP
from contradpp.models.conditional import Explanation

BLOCK = 512  # baskets answered at a time

Answer = dict[str, Any]
Ask = Callable[[list[Any]], tuple[Any, Any]]  # items and probabilities for a basket, or for many
items_argument: Decorator = click.argument("items", nargs=-1, metavar="[ITEM]...")
_candidates_option = option(
    "--candidates", multiple=True, metavar="ITEM", help="Suggest only from these; may be repeated."
)
_exclude_option = option("--exclude", multiple=True, metavar="ITEM", help="Never suggest this item; may be repeated.")


def among_options(command: Any) -> Any:
    """Give a command the options that say which items may be suggested."""
    return _candidates_option(_exclude_option(command))


def among(words: Words, candidates: tuple[str, ...], exclude: tuple[str, ...]) -> dict[str, Any]:
    """Which items may be suggested; what is to be left out anyway need not be known."""
    lenient = Words(words.items, unknown="ignore", counts=words.counts)
    banned = {word: lenient.basket([word]) for word in exclude}
    if missing := [shortened(word) for word, found in banned.items() if not found]:
        say(f"Note: the model does not know {', '.join(missing)}, and would not suggest it anyway.")
    only = words.basket(candidates) if candidates else None
    return {"candidates": only, "exclude": [item for found in banned.values() for item in found]}


def ranked_by(ctx: click.Context, param: click.Parameter, value: str) -> str | float:
    """A word, or a number from 0 to 1."""
    number: Any = click.FloatRange(0, 1)
    return value if value in ("probability", "lift") else float(number.convert(value, param, ctx))


def opened(model: str, unknown: str) -> tuple[BaseDPP, Words]:
    """The model of a file, and what finds the items that words mean."""
    loaded = cd.load(model)
    return loaded, Words(loaded.items_, unknown=unknown, counts=loaded.item_shares())


@click.command()
@model_argument
@items_argument
@option("-n", "n_items", default=10, type=click.IntRange(1), help="How many suggestions.")
@option("--why", is_flag=True, help="Say which items of the basket speak for each suggestion.")
@option(
    "--rank-by",
    default="probability",
    metavar="probability|lift|NUMBER",
    callback=ranked_by,
    help="lift: what the basket makes likelier than it is anyway; 0 to 1: between the two.",
)
@among_options
@input_option
@unknown_option
@option("--engine", type=("ray",), help="Answer a folder of Parquet files on a Ray cluster.")
@option("-o", "--output", metavar="FOLDER", help="With --engine: where the answers go, a file for each.")
@option("--address", help="With --engine: the cluster; one on this machine if left out.")
@option("--workers", type=click.IntRange(1), default=2, help="With --engine: processes.")
@json_option
def recommend(
    model: str, items: tuple[str, ...], n_items: int, why: bool, rank_by: str | float,
    candidates: tuple[str, ...], exclude: tuple[str, ...],
    source: str | None, unknown: str, as_json: bool, engine: str | None, output: str | None, address: str | None,
    workers: int,
) -> None:  # fmt: skip
    """Suggest what goes with the ITEMs of a basket (none: an empty one).

    Items are ids or names. With --input there is a line of JSON for every basket.

    \b
    contradpp recommend shop.safetensors spaghetti "tomato sauce"
    contradpp recommend shop.safetensors --input baskets.jsonl > suggestions.jsonl
    echo '["spaghetti", "tomato sauce"]' | contradpp recommend shop.safetensors --input -
    contradpp recommend shop.safetensors --engine ray --input baskets/ --output suggestions/
    """
    check_one(items, source)
    if engine is None and output is not None:
        raise click.UsageError("--output goes with --engine ray")
    loaded, words = opened(model, unknown)
    told = among(words, candidates, exclude)

    def ask(baskets: Any) -> Any:
        return loaded.recommend(baskets, N=n_items, rank_by=rank_by, **told)

    if why and (engine is not None or not isinstance(loaded, cd.ConditionalDPP)):
        raise click.UsageError("--why is for a conditional model, and not for --engine")
    if engine is not None:
        if source is None or output is None:
            raise click.UsageError("--engine needs --input and --output, two folders, and takes no items")
        if candidates or rank_by != "probability":
            raise click.UsageError("--candidates and --rank-by are not for --engine")
        n_files, n_rows = recommend_folder(
            model, source, output, n=n_items, exclude=told["exclude"], unknown=unknown, workers=workers, address=address
        )
        say(f"Answered {n_rows:,} baskets of {n_files:,} files; files that had an answer already were left alone.")
    elif source is not None:
        show_answers(answers(ask, loaded, words, queries(source, words), why=why))
    else:
        show_suggestions(ask, loaded, words.basket(items), as_json=as_json, why=why)


@click.command()
@model_argument
@items_argument
@click.option("-n", "n_items", default=10, show_default=True, type=click.IntRange(1), help="How many items.")
@click.option(
    "--diversity", type=click.FloatRange(0, 1), help="0: relevance only; 1: variety only; the model's own if left out."
)
@at_most_option
@among_options
@input_option
@unknown_option
@json_option
def slate(
    model: str, items: tuple[str, ...], n_items: int, diversity: float | None, at_most: tuple[str, ...],
    candidates: tuple[str, ...], exclude: tuple[str, ...], source: str | None, unknown: str, as_json: bool,
) -> None:  # fmt: skip
    """Suggest items that go with the ITEMs of a basket and are unlike each other, in the order of choice.

    \b
    contradpp slate shop.safetensors spaghetti "tomato sauce" --diversity 0.5
    contradpp slate shop.safetensors spaghetti --at-most 2
    """
    check_one(items, source)
    loaded, words = opened(model, unknown)
    told: dict[str, Any] = {"N": n_items, "diversity": diversity, "at_most": counts_of(at_most, "--at-most")}
    told |= among(words, candidates, exclude)

    def ask(baskets: Any) -> Any:
        return loaded.slate(baskets, **told)

    if source is not None:
        show_answers(answers(ask, loaded, words, queries(source, words)))
    else:
        show_suggestions(ask, loaded, words.basket(items), as_json=as_json)


@click.command()
@model_argument
@items_argument
@option("--size", default=6, type=click.IntRange(1), help="Items in the end, given ones too.")
@among_options
@input_option
@unknown_option
@json_option
def complete(
    model: str, items: tuple[str, ...], size: int, candidates: tuple[str, ...], exclude: tuple[str, ...],
    source: str | None, unknown: str, as_json: bool,
) -> None:  # fmt: skip
    """Complete the basket of ITEMs to the most likely set of --size, item by item.

    \b
    contradpp complete shop.safetensors spaghetti "tomato sauce" --size 6
    """
    check_one(items, source)
    loaded, words = opened(model, unknown)
    told = among(words, candidates, exclude)
    for given in [list(items)] if source is None else queries(source, words):
        basket = words.basket(given)
        whole = loaded.complete(basket, max(size, len(basket)), **told)
        if as_json or source is not None:
            answer = {"basket": basket, "completed": whole, "added": whole[len(basket) :]}
            show_json(answer | names_of(loaded, whole), indent=None)
            continue
        for position, item in enumerate(whole):
            click.echo(f"{' ' if position < len(basket) else '+'} {called(item, loaded.items_)}")


@click.command()
@model_argument
@option("-n", "n_samples", default=5, type=click.IntRange(0), help="How many baskets.")
@option("--size", type=click.IntRange(0), help="Only baskets of this size; any size if left out.")
@option("--given", multiple=True, metavar="ITEM", help="Every basket holds this item; may be repeated.")
@random_state_option("Seed of the draw; another one each time if left out.", default=None)
@option(
    "--method", type=click.Choice(["exact", "chain"]), default="exact",
    help="chain: a Markov chain, for a model too large for exact samples.",
)  # fmt: skip
@unknown_option
@json_option
def sample(
    model: str, n_samples: int, size: int | None, given: tuple[str, ...], random_state: int | None, method: str,
    unknown: str, as_json: bool,
) -> None:  # fmt: skip
    """Draw baskets from MODEL, as it says they occur: a line each, with --json an array each.

    \b
    contradpp sample shop.safetensors -n 3 --size 5 --given spaghetti
    """
    loaded, words = opened(model, unknown)
    for basket in loaded.sample(n_samples, size, words.basket(given), random_state=random_state, method=method):
        if as_json:
            show_json(basket, indent=None)
        else:
            click.echo(listed(basket, loaded.items_))


def check_one(items: tuple[str, ...], source: str | None) -> None:
    """Refuse items on the command line together with a file of baskets."""
    if source is not None and items:
        raise click.UsageError("name items or --input, not both")


def names_of(model: BaseDPP, items: list[Any]) -> Answer:
    """What people call the items, for an answer of a model that knows names."""
    return {"names": [model.items_.name(item) for item in items]} if model.items_.names else {}


def show_suggestions(ask: Ask, model: Any, basket: list[Any], *, as_json: bool, why: bool = False) -> None:
    """The suggestions for one basket, as a table or as one JSON document."""
    found, probabilities = ask(basket)
    pairs = list(zip(found.tolist(), probabilities.tolist(), strict=True))
    names = model.items_.names
    told = model.explain_each(basket, [item for item, _ in pairs]) if why else []
    if as_json:
        lines = [{"item": i, "probability": p} | ({"name": names[i]} if i in names else {}) for i, p in pairs]
        show_json([line | because(one) for line, one in zip(lines, told, strict=True)] if why else lines)
        return
    columns = [Column("chance", right=True), Column("item"), *([Column("name")] if names else [])]
    rows = [[f"{p:.2%}", str(i), *([names.get(i, "")] if names else [])] for i, p in pairs]
    if why:
        columns.append(Column("because of"))
        rows = [[*row, in_words(one, model.items_)] for row, one in zip(rows, told, strict=True)]
    show_table(columns, rows, title=f"With {listed(basket, model.items_) or 'an empty basket'}")


def because(told: Explanation) -> Answer:
    """Why an item is suggested, for machines: nats by basket item and by voice."""
    items = [{"item": item, "nats": nats} for item, nats in told.by_item.items()]
    return {"because": items, "voices": told.by_voice, "popular": told.popular}


def in_words(told: Explanation, items: cd.Vocabulary) -> str:
    """Why an item is suggested, for people."""
    reasons = " and ".join(called(item, items) for item in told.reasons())
    return "; ".join(word for word in (reasons, "popular" if told.popular else "") if word)


def answers(ask: Ask, model: Any, words: Words, baskets: Iterator[list[Any]], *, why: bool = False) -> Iterator[Answer]:
    """Suggestions for every basket, a block at a time; a basket that cannot be answered gets its reason."""
    while block := list(islice(baskets, BLOCK)):
        try:
            yield from answered(ask, model, [words.basket(basket) for basket in block], why=why)
        except ContradppError:
            for basket in block:
                try:
                    yield from answered(ask, model, [words.basket(basket)], why=why)
                except ContradppError as error:
                    yield {"basket": basket, "error": str(error)}


def answered(ask: Ask, model: Any, baskets: list[list[Any]], *, why: bool = False) -> list[Answer]:
    """A line of the answer for each basket; places that the catalogue could not fill are left out."""
    found, probabilities = ask(baskets)
    lines = []
    for basket, items, chances in zip(baskets, found.tolist(), probabilities.tolist(), strict=True):
        filled = [(item, chance) for item, chance in zip(items, chances, strict=True) if item is not None]
        best = [item for item, _ in filled]
        answer = {"basket": basket, "items": best, "probabilities": [chance for _, chance in filled]}
        if why:
            answer["why"] = list(map(because, model.explain_each(basket, best)))
        lines.append(answer | names_of(model, best))
    return lines
