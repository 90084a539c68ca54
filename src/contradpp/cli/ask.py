"""`contradpp recommend`, `slate`, `complete` and `sample`: what a saved model says of a basket, or of many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import click

import contradpp as cd
from contradpp.cli.inputs import (
    Parsed,
    Words,
    at_most_option,
    counts_of,
    input_option,
    model_argument,
    option,
    queries,
    random_state_option,
    shortened,
    together,
    unknown_option,
)
from contradpp.cli.output import Column, called, json_option, listed, say, show_answers, show_json, show_table
from contradpp.distributed.ray import recommend_folder
from contradpp.errors import ContradppError
from contradpp.models.base import BaseDPP
from contradpp.models.conditional import Explanation

BLOCK = 512  # baskets answered at a time

Answer = dict[str, Any]
Ask = Callable[[list[Any]], tuple[Any, Any]]  # items and probabilities for a basket, or for many


# -- The commands ------------------------------------------------------------------------------------------


class Query(NamedTuple):
    """A model, the items of a basket or a file of many, and which items may be suggested."""

    model: Any
    words: Words
    items: tuple[str, ...]
    source: str | None
    as_json: bool
    among: dict[str, Any]


query_options = together(
    model_argument,
    click.argument("items", nargs=-1, metavar="[ITEM]..."),
    option("--candidates", multiple=True, metavar="ITEM", help="Suggest only from these; may be repeated."),
    option("--exclude", multiple=True, metavar="ITEM", help="Never suggest this item; may be repeated."),
    input_option,
    unknown_option,
)


def queried(model: str, unknown: str, candidates: tuple[str, ...], exclude: tuple[str, ...], **asked: Any) -> Query:
    """Open the model and find the items; what is to be left out anyway need not be known."""
    if asked["source"] is not None and asked["items"]:
        raise click.UsageError("name items or --input, not both")
    loaded, words = opened(model, unknown)
    banned = {word: words.basket([word], unknown="ignore") for word in exclude}
    if missing := [shortened(word) for word, found in banned.items() if not found]:
        say(f"Note: the model does not know {', '.join(missing)}, and would not suggest it anyway.")
    only = words.basket(candidates) if candidates else None
    among = {"candidates": only, "exclude": [item for found in banned.values() for item in found]}
    return Query(loaded, words, among=among, **asked)


def opened(model: str, unknown: str) -> tuple[BaseDPP, Words]:
    """Open the model of a file, and what finds the items that words mean."""
    loaded = cd.load(model)
    return loaded, Words(loaded.items_, unknown=unknown, counts=loaded.item_shares())


def ranking(text: str) -> str | float:
    """Read a word, or a number from 0 to 1."""
    number: Any = click.FloatRange(0, 1)
    return text if text in ("probability", "lift") else float(number.convert(text, None, None))


@click.command()
@option("-n", "n_items", default=10, type=click.IntRange(1), help="How many suggestions.")
@option("--why", is_flag=True, help="Say which items of the basket speak for each suggestion.")
@option(
    "--rank-by",
    default="probability",
    metavar="probability|lift|NUMBER",
    type=Parsed(ranking, "neither probability nor lift nor a number from 0 to 1"),
    help="lift: what the basket makes likelier than it is anyway; 0 to 1: between the two.",
)
@query_options
@option("--engine", type=("ray",), help="Answer a folder of Parquet files on a Ray cluster.")
@option("-o", "--output", metavar="FOLDER", help="With --engine: where the answers go, a file for each.")
@option("--address", help="With --engine: the cluster; one on this machine if left out.")
@option("--workers", type=click.IntRange(1), default=2, help="With --engine: processes.")
@json_option
def recommend(
    n_items: int, why: bool, rank_by: str | float, engine: str | None, output: str | None, **asked: Any
) -> None:
    """Suggest what goes with the ITEMs of a basket (none: an empty one).

    Items are ids or names. With --input there is a line of JSON for every basket.

    \b
    contradpp recommend shop.safetensors spaghetti "tomato sauce"
    contradpp recommend shop.safetensors --input baskets.jsonl > suggestions.jsonl
    echo '["spaghetti", "tomato sauce"]' | contradpp recommend shop.safetensors --input -
    contradpp recommend shop.safetensors --engine ray --input baskets/ --output suggestions/
    """
    if engine is None and output is not None:
        raise click.UsageError("--output goes with --engine ray")
    cluster = {name: asked.pop(name) for name in ("workers", "address")}
    query = queried(**asked)
    if why and (engine is not None or not isinstance(query.model, cd.ConditionalDPP)):
        raise click.UsageError("--why is for a conditional model, and not for --engine")
    if engine is None:
        how = {"N": n_items, "rank_by": rank_by, **query.among}
        respond(query, lambda baskets: query.model.recommend(baskets, **how), why=why)
        return
    if query.source is None or output is None:
        raise click.UsageError("--engine needs --input and --output, two folders, and takes no items")
    if query.among["candidates"] or rank_by != "probability":
        raise click.UsageError("--candidates and --rank-by are not for --engine")
    told = {"n": n_items, "exclude": query.among["exclude"], "unknown": asked["unknown"], **cluster}
    n_files, n_rows = recommend_folder(asked["model"], query.source, output, **told)
    say(f"Answered {n_rows:,} baskets of {n_files:,} files; files that had an answer already were left alone.")


@click.command()
@option("-n", "n_items", default=10, type=click.IntRange(1), help="How many items.")
@click.option(
    "--diversity", type=click.FloatRange(0, 1), help="0: relevance only; 1: variety only; the model's own if left out."
)
@at_most_option
@query_options
@json_option
def slate(n_items: int, diversity: float | None, at_most: tuple[str, ...], **asked: Any) -> None:
    """Suggest items that go with the ITEMs of a basket and are unlike each other, in the order of choice.

    \b
    contradpp slate shop.safetensors spaghetti "tomato sauce" --diversity 0.5
    contradpp slate shop.safetensors spaghetti --at-most 2
    """
    query = queried(**asked)
    told = {"N": n_items, "diversity": diversity, "at_most": counts_of(at_most, "--at-most"), **query.among}
    respond(query, lambda baskets: query.model.slate(baskets, **told))


@click.command()
@option("--size", default=6, type=click.IntRange(1), help="Items in the end, given ones too.")
@query_options
@json_option
def complete(size: int, **asked: Any) -> None:
    """Fill the basket of ITEMs up to --size, each time with the most probable next item.

    \b
    contradpp complete shop.safetensors spaghetti "tomato sauce" --size 6
    """
    query = queried(**asked)
    for given in [list(query.items)] if query.source is None else queries(query.source, query.words):
        basket = query.words.basket(given)
        whole = query.model.complete(basket, max(size, len(basket)), **query.among)
        if query.as_json or query.source is not None:
            answer = {"basket": basket, "completed": whole, "added": whole[len(basket) :]}
            show_json(answer | names_of(query.model, whole), indent=None)
            continue
        for position, item in enumerate(whole):
            click.echo(f"{' ' if position < len(basket) else '+'} {called(item, query.model.items_)}")


@click.command()
@model_argument
@option("-n", "n_samples", default=5, type=click.IntRange(0), help="How many baskets.")
@option("--size", type=click.IntRange(0), help="Only baskets of this size; any size if left out.")
@option("--given", multiple=True, metavar="ITEM", help="Every basket holds this item; may be repeated.")
@random_state_option("Seed of the draw; another one each time if left out.", default=None)
@option(
    "--method",
    type=("exact", "chain"),
    default="exact",
    help="chain: a Markov chain, for a model too large for exact samples.",
)
@unknown_option
@json_option
def sample(model: str, n_samples: int, given: tuple[str, ...], unknown: str, as_json: bool, **how: Any) -> None:
    """Draw baskets from MODEL, as it says they occur: a line each, with --json an array each.

    \b
    contradpp sample shop.safetensors -n 3 --size 5 --given spaghetti
    """
    loaded, words = opened(model, unknown)
    for basket in loaded.sample(n_samples, given=words.basket(given), **how):
        if as_json:
            show_json(basket, indent=None)
        else:
            click.echo(listed(basket, loaded.items_))


# -- Answers -----------------------------------------------------------------------------------------------


def respond(query: Query, ask: Ask, *, why: bool = False) -> None:
    """Print a line of JSON for every basket of a file, or the suggestions for one, as a table or as JSON."""
    if query.source is not None:
        show_answers(answers(query, ask, why=why))
        return
    items = query.model.items_
    basket = query.words.basket(query.items)
    found, probabilities = ask(basket)
    pairs = list(zip(found.tolist(), probabilities.tolist(), strict=True))
    names = items.names
    told = query.model.explain_each(basket, [item for item, _ in pairs]) if why else []
    if query.as_json:
        lines = [{"item": i, "probability": p} | ({"name": names[i]} if i in names else {}) for i, p in pairs]
        show_json([line | because(one) for line, one in zip(lines, told, strict=True)] if why else lines)
        return
    columns = [Column("chance", right=True), Column("item"), *([Column("name")] if names else [])]
    rows = [[f"{p:.2%}", str(i), *([names.get(i, "")] if names else [])] for i, p in pairs]
    if why:
        columns.append(Column("because of"))
        rows = [[*row, in_words(one, items)] for row, one in zip(rows, told, strict=True)]
    show_table(columns, rows, title=f"With {listed(basket, items) or 'an empty basket'}")


def answers(query: Query, ask: Ask, *, why: bool) -> Iterator[Answer]:
    """Answer every basket, a block at a time; one that cannot be answered gets its reason."""
    baskets = queries(str(query.source), query.words)
    while block := list(islice(baskets, BLOCK)):
        try:
            yield from answered(query, ask, block, why=why)
        except ContradppError:
            for basket in block:
                try:
                    yield from answered(query, ask, [basket], why=why)
                except ContradppError as error:
                    yield {"basket": basket, "error": str(error)}


def answered(query: Query, ask: Ask, given: list[list[Any]], *, why: bool) -> list[Answer]:
    """Return a line of the answer for each basket, without places that the catalogue could not fill."""
    baskets = [query.words.basket(basket) for basket in given]
    found, probabilities = ask(baskets)
    lines = []
    for basket, items, chances in zip(baskets, found.tolist(), probabilities.tolist(), strict=True):
        filled = [(item, chance) for item, chance in zip(items, chances, strict=True) if item is not None]
        best = [item for item, _ in filled]
        answer = {"basket": basket, "items": best, "probabilities": [chance for _, chance in filled]}
        if why:
            answer["why"] = list(map(because, query.model.explain_each(basket, best)))
        lines.append(answer | names_of(query.model, best))
    return lines


def names_of(model: BaseDPP, items: list[Any]) -> Answer:
    """Return what people call the items, for an answer of a model that knows names."""
    return {"names": [model.items_.name(item) for item in items]} if model.items_.names else {}


def because(told: Explanation) -> Answer:
    """Say why an item is suggested, for machines: nats by basket item and by voice."""
    items = [{"item": item, "nats": nats} for item, nats in told.by_item.items()]
    return {"because": items, "voices": told.by_voice, "popular": told.popular}


def in_words(told: Explanation, items: cd.Vocabulary) -> str:
    """Say why an item is suggested, for people."""
    reasons = " and ".join(called(item, items) for item in told.reasons())
    return "; ".join(word for word in (reasons, "popular" if told.popular else "") if word)
