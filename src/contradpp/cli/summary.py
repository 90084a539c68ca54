"""The small report at the end of `fit` and `demo`: metrics beside popularity, examples, and what to try next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from contradpp.cli.output import Column, called, heading, in_bytes, listed, paragraph, show_table
from contradpp.data.baskets import Baskets
from contradpp.data.vocabulary import Vocabulary
from contradpp.report.measured import KS, Example, Measured

LEGEND = (
    "MPR: how far up the missing item ranks, 100 = always first, 50 = by chance. top 1, top 10: how often it is among "
    "the first suggestions. log-likelihood: of whole baskets, per basket, higher is better."
)


def show_metrics(measured: Measured, *, seconds: dict[str, float] | None = None) -> None:
    """The table of models on held-out baskets, and how to read it."""
    heading(f"An item left out of each of {measured.n_baskets:,} held-out baskets")
    names = ["MPR", *(f"top {k}" for k in KS), "nDCG", "log-likelihood", *(["seconds"] if seconds else [])]
    rows = []
    for name, report in measured.reports.items():
        cells = [f"{report.mpr_fair:.1f}", *(f"{report.precision[k]:.1f} %" for k in KS), f"{report.ndcg:.3f}"]
        cells.append(f"{report.log_likelihood:.1f}" if math.isfinite(report.log_likelihood) else "–")
        if seconds:
            cells.append(f"{seconds[name]:.1f}" if name in seconds else "")
        rows.append([name, *cells])
    show_table([Column("model"), *(Column(name, right=True) for name in names)], rows)
    paragraph(LEGEND)


def show_examples(shown: Sequence[Example], items: Vocabulary) -> None:
    """Baskets of the test part with suggestions; the item that was hidden is marked where it was found."""
    if not shown:
        return
    heading(f"{len(shown)} held-out baskets, drawn at random, with one item hidden")
    for example in shown:
        suggestions = [("✓ " if item == example.hidden else "") + called(item, items) for item in example.suggestions]
        hidden = called(example.hidden, items) + (" (found)" if example.found else "")
        paragraph(listed(example.basket, items), label="  basket    ")
        paragraph(hidden, label="  hidden    ")
        paragraph(", ".join(suggestions), label="  suggests  ")
        click.echo()


def show_files(model: Path, config: Path | None, report: Path | None) -> None:
    """What was written, and how large the model is."""
    click.echo(f"Model     {model} ({in_bytes(model.stat().st_size)})")
    if config is not None:
        click.echo(f"Settings  {config} (the same run again: contradpp fit --config {shlex.quote(str(config))})")
    if report is not None:
        click.echo(f"Report    {report} (open it in a browser)")


def next_command(model: Path, train: Baskets) -> str:
    """The command to try next: suggestions for the item that sells most."""
    popular: Any = train.items[int(train.item_counts.argmax())]
    return f"contradpp recommend {shlex.quote(str(model))} {shlex.quote(str(popular))}"
