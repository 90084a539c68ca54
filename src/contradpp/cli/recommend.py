"""`contradpp recommend`, `slate`, `complete` and `sample`: answers of a saved model."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

import contradpp as cd
from contradpp._types import Array, Values
from contradpp.cli.inputs import (
    COUNT,
    SEPARATORS,
    ItemParser,
    at_most_option,
    baskets_from,
    counts_of,
    input_option,
    model_argument,
    option,
    queries,
    random_state_option,
    shortened,
    together,
    unknown_option,
    word_or_number,
)
from contradpp.cli.output import (
    display_name,
    display_names,
    json_option,
    say,
    show_answers,
    show_json,
    show_table,
)
from contradpp.distributed.ray import recommend_folder
from contradpp.errors import ContradppError, DataError
from contradpp.models.base import DPPRecommender
from contradpp.models.conditional import POPULAR
from contradpp.models.explain import Explanation

BLOCK = 512  # baskets answered at a time
FEW = 4  # suggestions of which nothing is said
N_NAMED = 3  # typical items that --why prints

# From one basket or many to items and probabilities.
Suggest = Callable[[list[Any]], tuple[NDArray[Any], Array]]


# -- Commands --------------------------------------------------------------------------------------


class Query(NamedTuple):
    """A model, the items of one basket or a file of many, and which items may be suggested."""

    model: Any
    parser: ItemParser
    items: tuple[str, ...]
    source: str | None
    as_json: bool
    candidates: list[Hashable] | None
    exclude: list[Hashable]
    earlier: Values  # keyword arguments about the history, if there is one

    @property
    def allowed(self) -> Values:
        """Keyword arguments about the history, and that restrict the suggestions."""
        return {"candidates": self.candidates, "exclude": self.exclude, **self.earlier}


query_options = together(
    model_argument,
    click.argument("items", nargs=-1, metavar="[ITEM]..."),
    option(
        "--candidates",
        multiple=True,
        metavar="ITEM",
        help="Suggest only these items; can be repeated.",
    ),
    option(
        "--exclude", multiple=True, metavar="ITEM", help="Never suggest this item; can be repeated."
    ),
    option(
        "--history",
        "past",
        multiple=True,
        metavar="FILE|ITEMS",
        help="Earlier basket of the customer, items between commas; repeat it, oldest first. Or a "
        "file of these baskets.",
    ),
    option("--customer", metavar="ID", help="With --orders: the customer."),
    option("--orders", metavar="FILE", help="File of orders with the customer's earlier baskets."),
    option("--new-only", is_flag=True, help="Never suggest items that the customer bought before."),
    input_option,
    unknown_option,
)


def read_query(
    model: str,
    unknown: str,
    candidates: tuple[str, ...],
    exclude: tuple[str, ...],
    past: tuple[str, ...],
    customer: str | None,
    orders: str | None,
    new_only: bool,
    **options: Any,
) -> Query:
    """Open the model and find the items; those of `exclude` need not be known."""
    if options["source"] is not None and options["items"]:
        raise click.UsageError("name items or --input, not both")
    if (customer is None) != (orders is None) or (past and orders is not None):
        raise click.UsageError("give either --history, or --customer and --orders")
    has_history = bool(past) or orders is not None
    if has_history and options["source"] is not None:
        raise click.UsageError("a history goes with the items of one basket, not with --input")
    if new_only and not has_history:
        raise click.UsageError("--new-only needs a history")
    loaded, parser = open_model(model, unknown)
    earlier: Values = {}
    if has_history:
        if orders is not None or (len(past) == 1 and Path(past[0]).is_file()):
            history = read_history(orders or past[0], customer=customer)
        else:
            history = [SEPARATORS.split(line) for line in past]
        known = [parser.basket(basket, unknown="ignore") for basket in history]
        if n_unknown := sum(map(len, history)) - sum(map(len, known)):
            say(f"Note: the model does not know {n_unknown:,} items of the history.")
        earlier = {"history": known, "new_only": new_only}
    excluded = {word: parser.basket([word], unknown="ignore") for word in exclude}
    if missing := [shortened(word) for word, found in excluded.items() if not found]:
        say(f"Note: the model does not know {', '.join(missing)}, and would not suggest it anyway.")
    return Query(
        loaded,
        parser,
        candidates=parser.basket(candidates) if candidates else None,
        exclude=[item for found in excluded.values() for item in found],
        earlier=earlier,
        **options,
    )


def read_history(path: str, *, customer: str | None = None) -> list[list[Hashable]]:
    """Read the baskets of a file, oldest first, or those of one customer in a file of orders."""
    baskets = baskets_from(path)
    order, of, _ = baskets.ordering
    if customer is None:
        by_time = order if baskets.customers is not None else range(baskets.n_baskets)
        return [baskets[int(number)] for number in by_time]
    if baskets.customers is None:
        raise DataError(f"{path}: no column is known to hold the customer, such as customer_id")
    codes = [code for id_, code in zip(baskets.customers, of, strict=True) if str(id_) == customer]
    if not codes:
        raise DataError(f"{path}: there is no customer {customer!r}")
    return [baskets[int(number)] for number in order[np.isin(of[order], codes)]]


def open_model(model: str, unknown: str) -> tuple[DPPRecommender, ItemParser]:
    """Load a model, and make a parser for its items."""
    loaded = cd.load(model)
    return loaded, ItemParser(loaded.items_, unknown=unknown, counts=loaded.item_probabilities())


rank_by_option = option(
    "--rank-by",
    default="probability",
    metavar="NUMBER|probability|lift",
    type=word_or_number(
        ("probability", "lift"),
        click.FloatRange(0, 1),
        "neither probability nor lift nor a number from 0 to 1",
    ),
    help="From 0 (probability: most likely, best sellers first) to 1 (lift: most specific to the "
    "basket).",
)


@click.command()
@option("-n", "n_items", default=10, type=COUNT, help="Number of suggestions.")
@option("--why", is_flag=True, help="Name the items of the basket that explain each suggestion.")
@rank_by_option
@query_options
@option("--engine", type=("ray",), help="Answer a folder of Parquet files on a Ray cluster.")
@option("-o", "--output", metavar="FOLDER", help="With --engine: folder for the answers.")
@option("--address", help="With --engine: address of the cluster; default: this machine.")
@option("--workers", type=COUNT, default=2, help="With --engine: processes.")
@json_option
def recommend(
    n_items: int,
    why: bool,
    rank_by: str | float,
    engine: str | None,
    output: str | None,
    **options: Any,
) -> None:
    """Suggest what comes next, given the ITEMs of a basket or an empty one.

    Each suggestion is rated by itself, so a list may hold several of a kind: `slate` avoids that,
    and `complete` fills a basket. Items are ids or names. With --input, the answers are lines of
    JSON, one for each basket.

    \b
    contradpp recommend shop.safetensors spaghetti "tomato sauce"
    contradpp recommend shop.safetensors --input baskets.jsonl > suggestions.jsonl
    echo '["spaghetti", "tomato sauce"]' | contradpp recommend shop.safetensors --input -
    contradpp recommend shop.safetensors --engine ray --input baskets/ --output suggestions/
    """
    if engine is None and output is not None:
        raise click.UsageError("--output needs --engine ray")
    cluster = {name: options.pop(name) for name in ("workers", "address")}
    query = read_query(**options)
    if why and (engine is not None or not isinstance(query.model, cd.ConditionalDPP)):
        raise click.UsageError("--why needs a conditional model, and does not go with --engine")
    if engine is None:
        keywords = {"N": n_items, "rank_by": rank_by, **query.allowed}
        found = respond(query, lambda baskets: query.model.recommend(baskets, **keywords), why=why)
        if rank_by == "probability":
            note_best_sellers(query.model, found)
        return
    if query.source is None or output is None:
        raise click.UsageError(
            "--engine needs --input and --output, two folders, and takes no items"
        )
    if query.candidates or rank_by != "probability":
        raise click.UsageError("--candidates and --rank-by do not go with --engine")
    n_files, n_rows = recommend_folder(
        options["model"],
        query.source,
        output,
        n=n_items,
        exclude=query.exclude,
        unknown=options["unknown"],
        **cluster,
    )
    say(f"Answered {n_rows:,} baskets of {n_files:,} files; skipped files with answers.")


@click.command()
@option("-n", "n_items", default=10, type=COUNT, help="Number of items.")
@option(
    "--diversity",
    type=click.FloatRange(0, 1),
    help="0: relevance only; 0.5, the default: variety for 2 % of it at most; 1: variety only.",
)
@rank_by_option
@at_most_option
@query_options
@json_option
def slate(
    n_items: int,
    diversity: float | None,
    rank_by: str | float,
    at_most: tuple[str, ...],
    **options: Any,
) -> None:
    """Choose a list of what comes next, given the ITEMs of a basket, without more of the same.

    It gives up a little of the probability of what `recommend` suggests for items that are unlike
    each other.

    \b
    contradpp slate shop.safetensors spaghetti "tomato sauce" --diversity 0.5
    contradpp slate shop.safetensors spaghetti --at-most 2
    """
    query = read_query(**options)
    keywords = {
        "N": n_items,
        "diversity": diversity,
        "rank_by": rank_by,
        "at_most": counts_of(at_most, "--at-most"),
        **query.allowed,
    }
    found = respond(query, lambda baskets: query.model.slate(baskets, **keywords))
    if found and diversity != 0:
        plain = keywords | {"diversity": 0.0}
        basket = query.parser.basket(query.items)
        if set(query.model.slate(basket, **plain)[0].tolist()) == set(found):
            say(
                "Note: these are the items of `recommend`: no others are as likely and less alike. "
                "A larger --diversity gives up more."
            )


@click.command()
@option("--size", default=6, type=COUNT, help="Size of the full basket.")
@query_options
@json_option
def complete(size: int, **options: Any) -> None:
    """Fill the basket of ITEMs up to --size with items that go together.

    Each time the most probable next item is added, and the next one goes with it, too.

    \b
    contradpp complete shop.safetensors spaghetti "tomato sauce" --size 6
    """
    query = read_query(**options)
    given = [list(query.items)] if query.source is None else queries(query.source, query.parser)
    for words in given:
        basket = query.parser.basket(words)
        completed = query.model.complete(basket, max(size, len(basket)), **query.allowed)
        if query.as_json or query.source is not None:
            added = completed[len(basket) :]
            answer = {"basket": basket, "completed": completed, "added": added}
            show_json(answer | names_of(query.model, completed), indent=None)
            continue
        for position, item in enumerate(completed):
            mark = " " if position < len(basket) else "+"
            click.echo(f"{mark} {display_name(item, query.model.items_)}")


@click.command()
@model_argument
@option("-n", "n_samples", default=5, type=click.IntRange(0), help="Number of baskets.")
@option("--size", type=click.IntRange(0), help="Size of the baskets; default: any size.")
@option(
    "--given", multiple=True, metavar="ITEM", help="Every basket has this item; can be repeated."
)
@random_state_option("Seed of the samples; default: different each time.", default=None)
@option(
    "--method",
    type=("exact", "chain"),
    default="exact",
    help="chain: a Markov chain, for a model too large for exact samples.",
)
@unknown_option
@json_option
def sample(model: str, given: tuple[str, ...], unknown: str, as_json: bool, **options: Any) -> None:
    """Draw baskets from the distribution of MODEL: a line each, with --json an array each.

    \b
    contradpp sample shop.safetensors -n 3 --size 5 --given spaghetti
    """
    loaded, parser = open_model(model, unknown)
    for basket in loaded.sample(given=parser.basket(given), **options):
        if as_json:
            show_json(basket, indent=None)
        else:
            click.echo(display_names(basket, loaded.items_))


# -- Answers --------------------------------------------------------------------------------------


def respond(query: Query, suggest: Suggest, *, why: bool = False) -> list[Hashable]:
    """Print lines of JSON for the baskets of a file, or a table or JSON for one basket.

    Return the items of the table, for notes below it.
    """
    if query.source is not None:
        show_answers(answers(query, suggest, why=why))
        return []
    items = query.model.items_
    basket = query.parser.basket(query.items)
    found, probabilities = suggest(basket)
    lines: list[Values] = []
    rows = []
    for item, p in zip(found.tolist(), probabilities.tolist(), strict=True):
        lines.append({"item": item, "probability": p})
        rows.append([f"{p:.2%}", str(item)])
        if item in items.names:
            lines[-1]["name"] = items.names[item]
    columns = [">chance", "item"]
    if items.names:
        columns.append("name")
        for line, row in zip(lines, rows, strict=True):
            row.append(line.get("name", ""))
    if why:
        columns.append("because of")
        usual = query.model.item_probabilities()
        history = query.earlier.get("history")
        reasons = query.model.explain_each(basket, found.tolist(), history=history)
        for line, row, one in zip(lines, rows, reasons, strict=True):
            line.update(reasons_as_dict(one))
            row.append(reasons_in_words(one, items, usual[items.code(one.item)]))
    if query.as_json:
        show_json(lines)
        return []
    show_table(columns, rows, title=f"With {display_names(basket, items) or 'an empty basket'}")
    return list(found.tolist())


def note_best_sellers(model: DPPRecommender, found: list[Hashable]) -> None:
    """Say how to see more specific items if half of the suggestions or more are best sellers."""
    shares = model.item_probabilities()
    n_best = int(POPULAR * len(shares))
    if not n_best or len(found) < FEW:
        return
    least = np.partition(shares, -n_best)[-n_best]
    n_sellers = sum(shares[model.items_.code(item)] >= least for item in found)
    if 2 * n_sellers >= len(found):
        say(
            f"Note: {n_sellers} of these are best sellers; --rank-by 0.5 puts first what is more "
            "specific to this basket."
        )


def answers(query: Query, suggest: Suggest, *, why: bool) -> Iterator[Values]:
    """Answer every basket, a block at a time; one that cannot be answered gets the reason."""
    baskets = queries(str(query.source), query.parser)
    while block := list(islice(baskets, BLOCK)):
        try:
            yield from answer_block(query, suggest, block, why=why)
        except ContradppError:
            for basket in block:
                try:
                    yield from answer_block(query, suggest, [basket], why=why)
                except ContradppError as error:
                    yield {"basket": basket, "error": str(error)}


def answer_block(
    query: Query, suggest: Suggest, block: list[list[Hashable]], *, why: bool
) -> list[Values]:
    """Answer baskets at once, without the places that the catalog cannot fill."""
    baskets = [query.parser.basket(words) for words in block]
    found, probabilities = suggest(baskets)
    lines = []
    for basket, row, chances in zip(baskets, found.tolist(), probabilities.tolist(), strict=True):
        filled = {item: p for item, p in zip(row, chances, strict=True) if item is not None}
        items = list(filled)
        answer = {"basket": basket, "items": items, "probabilities": list(filled.values())}
        if why:
            answer["why"] = list(map(reasons_as_dict, query.model.explain_each(basket, items)))
        lines.append(answer | names_of(query.model, items))
    return lines


def names_of(model: DPPRecommender, items: Iterable[Hashable]) -> Values:
    """Return the part of an answer with readable names, empty for a model without names."""
    return {"names": [model.items_.name(item) for item in items]} if model.items_.names else {}


def reasons_as_dict(explanation: Explanation) -> Values:
    """Return the reasons for a suggestion as plain values: nats by basket item and by expert."""
    items = [{"item": item, "nats": nats} for item, nats in explanation.by_item.items()]
    found = {"because": items, "experts": explanation.by_expert, "popular": explanation.popular}
    if explanation.n_orders:
        found |= {"bought": explanation.n_bought, "orders": explanation.n_orders}
    return found | ({"like": list(explanation.like)} if explanation.like else {})


def reasons_in_words(explanation: Explanation, items: cd.Vocabulary, usual: float = 0.0) -> str:
    """Return the reasons for a suggestion in words.

    The only item of a basket is the reason for every suggestion. How many times it makes one
    likelier than its `usual` share says more.
    """
    reasons = [" and ".join(display_name(item, items) for item in explanation.reasons())]
    if len(explanation.basket) == 1 and usual > 0:
        times = math.exp(explanation.log_probability) / usual
        reasons = [f"{times:.1f} times its usual share"]
    reasons.append(explanation.bought)
    if explanation.popular:
        reasons.append("popular")
    known = {*explanation.basket, explanation.item}
    typical = [display_name(item, items) for item in explanation.like if item not in known]
    if typical:
        reasons.append(f"as in baskets of {', '.join(typical[:N_NAMED])}")
    return "; ".join(filter(None, reasons))
