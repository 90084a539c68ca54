"""`contradpp card`: a model card, as model hubs show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

import contradpp as cd
from contradpp._types import Values
from contradpp.cli.evaluate import baskets_for
from contradpp.cli.info import describe
from contradpp.cli.inputs import FILE, layout_options, model_argument, option
from contradpp.cli.output import (
    busy,
    check_replaceable,
    is_marked,
    json_option,
    say,
    show_json,
    visible,
)
from contradpp.dpp.files import write_atomically
from contradpp.metrics.report import Report
from contradpp.models.base import DPPRecommender

MARK = "Written by `contradpp card`"
KINDS = {
    "ConditionalDPP": "a conditional determinantal point process. It combines several experts "
    "(popularity, items bought together, similar baskets, a learned kernel) to predict the next "
    "item of a basket",
    "MixtureDPP": "a mixture of determinantal point processes: clusters of baskets, with a kernel "
    "that they share",
    "NonsymmetricDPP": "a determinantal point process with a kernel `D + V Vᵀ + S`: items "
    "attract as well as repel",
    "LowRankDPP": "a determinantal point process with a kernel `V Vᵀ`: similar items repel",
}
# By name on the card: the key in a report, and an explanation.
METRICS = {
    "MPR": (
        "mpr",
        "mean percentile rank of an item left out of its basket: 100 is always first, 50 is chance",
    ),
    "p@10": (
        "precision@10",
        "how often an item left out is among the first ten suggestions, in percent",
    ),
    "nDCG@10": ("ndcg", "the same, but higher ranks count more; 0 to 1"),
    "log-likelihood": ("log_likelihood", "mean log P of a basket"),
}
CARD = """# {title}

This is {kind}. It suggests what goes with a basket of items.

| | |
|---|---|
{facts}

## Use

```
pip install contradpp
```

```python
import contradpp as cd

model = cd.load({file})
items, probabilities = model.recommend({example}, N=10)
```

## Quality

{quality}

## Limits

It knows only the items that it was learned from, and describes what people bought, not why. \
Baskets can reveal something about people: check what the list of items tells before you share the \
model.

{mark} (contradpp {version})."""


@click.command()
@model_argument
@option(
    "-o", "--output", type=FILE, help="File to write, such as README.md, instead of printing it."
)
@option("--test", "data", metavar="DATA", help="New baskets, on which the card reports metrics.")
@option("--license", "license_", metavar="ID", help="License of the model, such as mit.")
@option("--force", is_flag=True, help="Replace a file that `card` did not write.")
@layout_options
@json_option
def card(
    model: str,
    output: Path | None,
    data: str | None,
    license_: str | None,
    force: bool,
    as_json: bool,
    **layout: Any,
) -> None:
    """Write a model card for MODEL: Markdown with a YAML header for model hubs.

    \b
    contradpp card shop.safetensors -o README.md --test next-week.csv
    """
    if output is not None:
        check_replaceable(output, "card", lambda path: is_marked(path, MARK), force=force)
    report = None
    metrics: dict[str, float] = {}
    with busy("Measuring the model ..."):
        loaded = cd.load(model)
        facts = describe(loaded, Path(model)) | {"file": Path(model).name}
        if data is not None:
            report = cd.evaluate(loaded, baskets_for(loaded, model, data, **layout))
            found = {name: float(report.metrics[key]) for name, (key, _) in METRICS.items()}
            metrics = {name: value for name, value in found.items() if np.isfinite(value)}
    if as_json:
        show_json(facts | {"metrics": None if report is None else metrics})
        return
    header = yaml_header(facts["file"], metrics, license_)
    text = f"{header}\n\n{markdown(facts, loaded, quality(report, metrics, data))}\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())
        say(f"Wrote {output}.")


def yaml_header(file: str, metrics: dict[str, float], license_: str | None) -> str:
    """Return the part that programs read; a JSON string is a YAML string as well."""
    lines = ["---", "library_name: contradpp"]
    if license_ is not None:
        lines.append(f"license: {json.dumps(license_)}")
    lines += ["tags:", "- recommender", "- determinantal-point-process", "- basket-completion"]
    if metrics:
        lines += [
            "model-index:",
            f"- name: {json.dumps(file)}",
            "  results:",
            "  - task: {type: basket-completion}",
            "    dataset: {type: baskets, name: held-out baskets}",
            "    metrics:",
        ]
    for name, value in metrics.items():
        lines += [f"    - type: {json.dumps(name)}", f"      value: {value:.6g}"]
    return "\n".join([*lines, "---"])


def markdown(facts: Values, model: DPPRecommender, quality: str) -> str:
    """Return the part that people read."""
    popular = [entry["item"] for entry in facts["most_likely_items"]]
    n_baskets = facts["learned_from_baskets"]
    rows = {
        "model": facts["model"],
        "items": f"{facts['items']:,}",
        "learned from": "given factors" if n_baskets is None else f"{n_baskets:,} baskets",
        "objective": facts["objective"],
        "expected basket size": f"{facts['expected_basket_size']:.2f}",
        "experts": facts.get("experts"),
        "most likely items": ", ".join(escaped(model.items_.name(item)) for item in popular),
    }
    return CARD.format(
        title=escaped(facts["file"]),
        kind=KINDS.get(facts["model"], facts["model"]),
        facts="\n".join(f"| {name} | {v} |" for name, v in rows.items() if v is not None),
        file=json.dumps(facts["file"]),
        example=json.dumps(popular[:1], default=str),
        quality=quality,
        mark=MARK,
        version=cd.__version__,
    )


def quality(report: Report | None, metrics: dict[str, float], data: str | None) -> str:
    """Return the metrics as a table with their intervals."""
    if report is None:
        return "Not measured. `contradpp card --test DATA` measures it on new baskets."
    file = escaped(Path(str(data)).name)
    lines = [
        f"On {report.n_baskets:,} baskets of `{file}`; 95 % intervals over baskets.",
        "",
        "| metric | value | interval | meaning |",
        "|---|---|---|---|",
    ]
    for name, value in metrics.items():
        key, meaning = METRICS[name]
        low, high = report.interval(key)
        lines.append(f"| {name} | {value:.3f} | {low:.3f} to {high:.3f} | {meaning} |")
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Return a text that cannot break out of its line, table cell or code."""
    escapes: dict[str, str | int | None] = {"<": "&lt;", ">": "&gt;"}
    escapes |= {character: f"\\{character}" for character in "\\`*_[]|"}
    return visible(" ".join(text.split())).translate(str.maketrans(escapes))
