"""`contradpp bench`: one table of speed ratios, each measured against its limit or reference in the same run."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table


@click.command()
@click.option("--quick", is_flag=True, help="Fewer rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def bench(quick: bool, as_json: bool) -> None:
    """Measure the library's speed against the machine's limits (docs/performance.md explains each line)."""
    from contradpp.research.bench import run

    if as_json:
        click.echo(json.dumps([figure.as_dict() for figure in run(quick=quick)], indent=1))
        return
    console = Console()
    table = Table(title="contradpp bench", title_justify="left")
    for column, justify in (("what", "left"), ("measured", "right"), ("goal", "right"), ("", "left"), ("from", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    with console.status("measuring ..."):
        for figure in run(quick=quick):
            sign = "≤" if figure.at_most else "≥"
            verdict = "[green]reached" if figure.reached else "[red]missed"
            measured = f"{figure.value:.2f}{figure.unit}"
            table.add_row(figure.name, measured, f"{sign} {figure.goal:g}{figure.unit}", verdict, figure.detail)
    console.print(table)
