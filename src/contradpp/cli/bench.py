"""`contradpp bench`: one table of speed ratios, each measured against its limit or reference in the same run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from contradpp import __version__
from contradpp.cli.inputs import OLD_FILE, names, option
from contradpp.cli.output import Column, busy, check_writable, say, show_table, write_text
from contradpp.research.bench import GROUPS, WORSE, SpeedFigure, machine, measure, read_figures


@click.command()
@option("--quick", is_flag=True, help="Fewer rounds.")
@option(
    "--only",
    callback=names(GROUPS),
    metavar="GROUPS",
    help=f"Some figures, between commas: {', '.join(GROUPS)}.",
)
@option("--json", "file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), is_flag=False,
        flag_value="-", help="Also write the figures to a file; without a name, print JSON, not a table.")  # fmt: skip
@option("--compare", "earlier", type=OLD_FILE, help="Show the change against a file that --json wrote.")
def bench(quick: bool, only: tuple[str, ...], file: Path | None, earlier: Path | None) -> None:
    """Measure the library's speed against the machine's limits (docs/performance.md explains each line).

    Other work on the machine disturbs the figures: its load is stated, and for each figure what others used meanwhile.

    \b
    contradpp bench --json before.json
    contradpp bench --only gradients,recommend --compare before.json
    """
    printed = file is not None and str(file) == "-"
    if file is not None and not printed:
        check_writable(file)
    before = None if earlier is None else read_figures(earlier)
    state = machine()
    say(f"Measuring on {state} ...")
    with busy("measuring ..."):
        figures = list(measure(only, quick=quick))
    state = f"{state} before, {machine().split(', ')[1]} after"
    content = {"version": __version__, "machine": state, "quick": quick, "figures": [f.as_dict() for f in figures]}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    if printed:
        click.echo(text)
        return
    if file is not None:
        write_text(file, text + "\n")
    heads = ["what", "measured", "goal", "", "others", *(["before", "change"] if before is not None else []), "from"]
    columns = [Column(name, right=name in ("measured", "goal", "others", "before")) for name in heads]
    show_table(columns, [_row(figure, before) for figure in figures], title="contradpp bench")
    click.echo(f"\n{state}; others: the share of the machine that other work used meanwhile.")


def _row(figure: SpeedFigure, earlier: dict[str, float] | None) -> list[str]:
    sign = "≤" if figure.at_most else "≥"
    cells = [
        figure.name, f"{figure.value:.2f}{figure.unit}", f"{sign} {figure.goal:g}{figure.unit}",
        "reached" if figure.reached else "missed", "–" if figure.others is None else f"{figure.others:.0%}",
    ]  # fmt: skip
    if earlier is not None:
        before = earlier.get(figure.name)
        cells += ["–", "not in the file"] if before is None else [f"{before:.2f}{figure.unit}", _change(figure, before)]
    return [*cells, figure.detail]


def _change(figure: SpeedFigure, before: float) -> str:
    worse = figure.worse_by(before)
    return f"{figure.value / before - 1:+.1%}" + (" WORSE" if worse > WORSE else "")
