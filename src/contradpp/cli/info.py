"""`contradpp info` and `contradpp card`: what a model file holds, for people and programs, and as hubs show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.filesize import decimal

import contradpp as cd
from contradpp.cli.evaluate import baskets_for
from contradpp.cli.inputs import FILE, layout_options, model_argument, option
from contradpp.cli.output import (
    Column,
    busy,
    called,
    check_replaceable,
    is_marked,
    json_option,
    say,
    show_json,
    show_table,
    visible,
)
from contradpp.dpp.persist import format_version, write_atomically
from contradpp.metrics.report import Report
from contradpp.models.base import BaseDPP

N_POPULAR = 5


@click.command()
@model_argument
@option("--items", "with_items", is_flag=True, help="List every item it knows, the most likely first.")
@json_option
def info(model: str, with_items: bool, as_json: bool) -> None:
    """Say what MODEL is, what it was learned from, and what it knows."""
    loaded = cd.load(model)
    if with_items:
        show_items(loaded, as_json=as_json)
        return
    facts = facts_of(loaded, Path(model))
    if as_json:
        show_json(facts)
        return
    parameters = facts.pop("parameters")
    popular = facts.pop("most_likely_items")
    facts["bytes"] = decimal(facts["bytes"])
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" if isinstance(value, float) else str(value)
        click.echo(f"{name.replace('_', ' '):<22}{shown}")
    click.echo(f"{'most likely items':<22}{', '.join(called(entry['item'], loaded.items_) for entry in popular)}")
    kernel: Any = getattr(loaded, "kernel", loaded)
    usual = type(kernel)().get_params()
    changed = {k: v for k, v in parameters.items() if v != usual[k] and k != "verbose"}
    click.echo(f"{'settings':<22}{', '.join(f'{k}={v}' for k, v in changed.items()) or 'all default'}")


def facts_of(model: BaseDPP, path: Path) -> dict[str, Any]:
    """Return what there is to know about a model, as plain values."""
    marginals = model.marginals()
    likely = np.argsort(-marginals, kind="stable")[:N_POPULAR].tolist()
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
        "most_likely_items": [{"item": model.items_[code], "probability": float(marginals[code])} for code in likely],
        "parameters": parameters,
        **({} if not isinstance(model, cd.ConditionalDPP) else {"voices": ", ".join([*model.voices_, "kernel"])}),
        **({} if told is None else {"features_explain": f"{told['popularity']:.0%} of the variance of log popularity"}),
    }


def show_items(model: BaseDPP, *, as_json: bool) -> None:
    """Print every item with its name and the chance that a basket of the model holds it."""
    items, marginals = model.items_, model.marginals()
    order = np.argsort(-marginals, kind="stable").tolist()
    rows = [(items[code], items.name(items[code]), float(marginals[code])) for code in order]
    if as_json:
        show_json([{"item": item, "name": name, "probability": p} for item, name, p in rows])
        return
    columns = [Column("item"), Column("name"), Column("in a basket", right=True)]
    show_table(columns, [[str(item), name, f"{p:.3%}"] for item, name, p in rows])


# -- The card ----------------------------------------------------------------------------------------

MARK = "Written by `contradpp card`"
KINDS = {
    "ConditionalDPP": "a conditional determinantal point process: several voices (what is popular, what was bought "
    "together, similar baskets, a learned kernel) say what comes next in a basket",
    "NonsymmetricDPP": "a determinantal point process with a kernel `D + V Vᵀ + S`: items attract as well as repel",
    "LowRankDPP": "a determinantal point process with a kernel `V Vᵀ`: items that are alike repel each other",
}  # fmt: skip
METRICS = {
    "MPR": ("mpr", "mean percentile rank of an item left out of its basket: 100 is always first, 50 is chance"),
    "p@10": ("precision@10", "how often an item left out is among the first ten suggestions, in percent"),
    "nDCG@10": ("ndcg", "the same, worth more the further up it is; 0 to 1"),
    "log-likelihood": ("log_likelihood", "mean log P of a basket"),
}


@click.command()
@model_argument
@option("-o", "--output", type=FILE, help="Write it to this file, such as README.md, instead of printing it.")
@option("--test", "data", metavar="DATA", help="Baskets that it has not seen: the card says how it does on them.")
@option("--license", "license_", metavar="ID", help="Licence of the model, such as mit.")
@option("--force", is_flag=True, help="Replace a file that `card` did not write.")
@layout_options
@json_option
def card(
    model: str, output: Path | None, data: str | None, license_: str | None, force: bool, as_json: bool, **layout: Any
) -> None:
    """Write a model card for MODEL: Markdown with a head that model hubs read.

    \b
    contradpp card shop.safetensors -o README.md --test next-week.csv
    """
    if output is not None:
        check_replaceable(output, "card", lambda path: is_marked(path, MARK), force=force)
    with busy("Looking at the model ..."):
        loaded = cd.load(model)
        facts = facts_of(loaded, Path(model)) | {"file": Path(model).name}
        report = None if data is None else cd.evaluate(loaded, baskets_for(loaded, model, data, **layout))
    if as_json:
        show_json(facts | {"metrics": None if report is None else measured(report)})
        return
    text = f"{head(facts, report, license_)}\n\n{body(facts, loaded, report, data)}\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())
        say(f"Wrote {output}.")


def measured(report: Report) -> dict[str, float]:
    """Return the metrics of a card by their names, without those that the model does not have."""
    found = {name: float(report.metrics[key]) for name, (key, _) in METRICS.items()}
    return {name: value for name, value in found.items() if np.isfinite(value)}


def head(facts: dict[str, Any], report: Report | None, license_: str | None) -> str:
    """Write what programs read: YAML, in which every JSON text is a text."""
    lines = ["---", "library_name: contradpp"]
    lines += [] if license_ is None else [f"license: {json.dumps(license_)}"]
    lines += ["tags:", "- recommender", "- determinantal-point-process", "- basket-completion"]
    if report is not None:
        lines += ["model-index:", f"- name: {json.dumps(facts['file'])}", "  results:"]
        lines += ["  - task: {type: basket-completion}", "    dataset: {type: baskets, name: held-out baskets}"]
        lines += ["    metrics:"]
        for name, value in measured(report).items():
            lines += [f"    - type: {json.dumps(name)}", f"      value: {value:.6g}"]
    return "\n".join([*lines, "---"])


def body(facts: dict[str, Any], model: Any, report: Report | None, data: str | None) -> str:
    """Write what people read."""
    name, popular = facts["file"], [entry["item"] for entry in facts["most_likely_items"]]
    learned = facts["learned_from_baskets"]
    rows = {
        "model": facts["model"],
        "items": f"{facts['items']:,}",
        "learned from": "given factors" if learned is None else f"{learned:,} baskets",
        "objective": facts["objective"],
        "expected basket size": f"{facts['expected_basket_size']:.2f}",
        "voices": facts.get("voices"),
        "most likely items": ", ".join(plain(model.items_.name(item)) for item in popular),
    }
    table = "\n".join(f"| {label} | {value} |" for label, value in rows.items() if value is not None)
    return f"""# {plain(name)}

This is {KINDS.get(facts["model"], facts["model"])}. It says what goes with a basket of items.

| | |
|---|---|
{table}

## Use

```
pip install contradpp
```

```python
import contradpp as cd

model = cd.load({json.dumps(name)})
items, chances = model.recommend({json.dumps(popular[:1], default=str)}, N=10)
```

## How good it is

{quality(report, data)}

## Limits

It knows only the items that it was learned from, and says what people bought, not why. \
Baskets can tell about people: look at what the list of items reveals before the model is shared.

{MARK} (contradpp {cd.__version__})."""


def quality(report: Report | None, data: str | None) -> str:
    """Write the metrics as a table, with their intervals."""
    if report is None:
        return "Not measured. `contradpp card --test DATA` measures it on baskets that it has not seen."
    lines = []
    for name, value in measured(report).items():
        key, meaning = METRICS[name]
        low, high = report.interval(key)
        lines.append(f"| {name} | {value:.3f} | {low:.3f} to {high:.3f} | {meaning} |")
    table = "\n".join(lines)
    return f"""On {report.n_baskets:,} baskets of `{plain(Path(str(data)).name)}`; intervals of 95 % over baskets.

| metric | value | interval | what it is |
|---|---|---|---|
{table}"""


def plain(text: str) -> str:
    """Return a text that cannot break out of its line, its cell or its code."""
    escapes: dict[str, Any] = {"<": "&lt;", ">": "&gt;"}
    escapes |= {character: f"\\{character}" for character in "\\`*_[]|"}
    return visible(" ".join(text.split())).translate(str.maketrans(escapes))
