"""`contradpp info`: what a model file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

import contradpp as cd
from contradpp.cli.inputs import model_argument, option
from contradpp.cli.output import Column, called, in_bytes, json_option, show_json, show_table
from contradpp.dpp.persist import format_version
from contradpp.models.base import BaseDPP

N_POPULAR = 5


@click.command()
@model_argument
@option("--items", "with_items", is_flag=True, help="List every item it knows, the most likely first.")
@option("--all", "everything", is_flag=True, hidden=True, help="Everything is always shown.")
@json_option
def info(model: str, with_items: bool, everything: bool, as_json: bool) -> None:
    """Say what MODEL is, what it was learned from, and what it knows."""
    del everything  # what it once asked for no longer takes minutes
    loaded = cd.load(model)
    marginals = loaded.marginals()
    order = np.argsort(-marginals, kind="stable").tolist()
    if with_items:
        show_items(loaded.items_, marginals, order, as_json=as_json)
        return
    facts = facts_of(loaded, Path(model), marginals, order)
    if as_json:
        show_json(facts)
        return
    parameters = facts.pop("parameters")
    popular = facts.pop("most_likely_items")
    facts["bytes"] = in_bytes(facts["bytes"])
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" if isinstance(value, float) else str(value)
        click.echo(f"{name.replace('_', ' '):<22}{shown}")
    click.echo(f"{'most likely items':<22}{', '.join(called(entry['item'], loaded.items_) for entry in popular)}")
    kernel: Any = getattr(loaded, "kernel", loaded)
    usual = type(kernel)().get_params()
    changed = {k: v for k, v in parameters.items() if v != usual[k] and k != "verbose"}
    click.echo(f"{'settings':<22}{', '.join(f'{k}={v}' for k, v in changed.items()) or 'all default'}")


def facts_of(model: BaseDPP, path: Path, marginals: Any, order: list[int]) -> dict[str, Any]:
    """What there is to know about a model, as plain values."""
    trained = getattr(model, "n_baskets_", None) or None
    parameters = getattr(model, "kernel", model).get_params()
    told = getattr(model, "explained_", None)
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "format_version": format_version(path),
        "model": type(model).__name__,
        "objective": parameters.get("objective") if trained is not None else None,
        "items": len(model.items_),
        "named_items": len(model.items_.names),
        "rank": int(model.n_components),
        "learned_from_baskets": None if trained is None else int(trained),
        "expected_basket_size": float(marginals.sum()),
        "most_likely_items": [
            {"item": model.items_[code], "probability": float(marginals[code])} for code in order[:N_POPULAR]
        ],
        "parameters": parameters,
        **({} if not isinstance(model, cd.ConditionalDPP) else {"voices": ", ".join([*model.voices_, "kernel"])}),
        **({} if told is None else {"features_explain": f"{told['popularity']:.0%} of the variance of log popularity"}),
    }


def show_items(items: cd.Vocabulary, marginals: Any, order: list[int], *, as_json: bool) -> None:
    """Every item with its name and the chance that a basket of the model holds it."""
    rows = [(items[code], items.name(items[code]), float(marginals[code])) for code in order]
    if as_json:
        show_json([{"item": item, "name": name, "probability": p} for item, name, p in rows])
        return
    columns = [Column("item"), Column("name"), Column("in a basket", right=True)]
    show_table(columns, [[str(item), name, f"{p:.3%}"] for item, name, p in rows])
