"""`contradpp info`: a description of a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.filesize import decimal

import contradpp as cd
from contradpp._types import Values
from contradpp.cli.fit import kernel_model
from contradpp.cli.inputs import model_argument, option
from contradpp.cli.output import display_names, json_option, show_json, show_table
from contradpp.dpp.files import format_version
from contradpp.learn.params import flat_params
from contradpp.models.base import DPPRecommender

N_POPULAR = 5


@click.command()
@model_argument
@option("--items", "with_items", is_flag=True, help="List all its items, the most likely first.")
@json_option
def info(model: str, with_items: bool, as_json: bool) -> None:
    """Describe MODEL: its kind, what it learned from, and what it knows."""
    loaded = cd.load(model)
    if with_items:
        items = loaded.items_
        marginals = loaded.dpp.rates
        order = np.argsort(-marginals, kind="stable").tolist()
        rows = [(items[code], items.name(items[code]), float(marginals[code])) for code in order]
        if as_json:
            show_json([{"item": item, "name": name, "probability": p} for item, name, p in rows])
            return
        shown = [[str(item), name, f"{p:.3%}"] for item, name, p in rows]
        show_table(["item", "name", ">in a basket"], shown)
        return
    facts = describe(loaded, Path(model))
    if as_json:
        show_json(facts)
        return
    parameters = facts.pop("parameters")
    facts["bytes"] = decimal(facts["bytes"])
    likely = [entry["item"] for entry in facts["most_likely_items"]]
    facts["most_likely_items"] = display_names(likely, loaded.items_)
    kernel: Any = kernel_model(loaded)
    defaults = flat_params(type(kernel)())
    changed = {k: v for k, v in parameters.items() if v != defaults[k] and k != "verbose"}
    facts["settings"] = ", ".join(f"{k}={v}" for k, v in changed.items()) or "all default"
    for name, value in facts.items():
        if isinstance(value, int):
            value = f"{value:,}"
        elif isinstance(value, float):
            value = f"{value:,.2f}"
        click.echo(f"{name.replace('_', ' '):<22}{value}")


def describe(model: DPPRecommender, path: Path) -> Values:
    """Return a description of a model as plain values."""
    marginals = model.dpp.rates
    likely = np.argsort(-marginals, kind="stable")[:N_POPULAR].tolist()
    n_baskets = getattr(model, "n_baskets_", None) or None
    parameters = flat_params(kernel_model(model))
    facts: Values = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "format_version": format_version(path),
        "model": type(model).__name__,
        "objective": None if n_baskets is None else parameters.get("objective"),
        "items": len(model.items_),
        "named_items": len(model.items_.names),
        "rank": int(model.dpp.kernel.n_components),
        "learned_from_baskets": None if n_baskets is None else int(n_baskets),
        "expected_basket_size": float(marginals.sum()),
        "most_likely_items": [
            {"item": model.items_[code], "probability": float(marginals[code])} for code in likely
        ],
        "parameters": parameters,
    }
    sets = getattr(model, "kernel_", model)
    if isinstance(sets, cd.MixtureDPP):
        facts["clusters"] = len(sets.weights_)
    if isinstance(model, cd.ConditionalDPP):
        facts["experts"] = ", ".join([*model.experts_, "kernel"])
    explained = getattr(model, "explained_", None)
    if explained is not None:
        share = explained["popularity"]
        facts["features_explain"] = f"{share:.0%} of the variance of log popularity"
    return facts
