"""`contradpp tune`: a search for the settings of one model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from contradpp._types import Values
from contradpp.cli.inputs import (
    COUNT,
    FILE,
    baskets_from,
    layout_options,
    n_jobs_option,
    option,
    random_state_option,
)
from contradpp.cli.output import (
    busy,
    flag_with_value,
    heading,
    json_option,
    program,
    say,
    show_json,
    show_table,
)
from contradpp.learn.objectives import OBJECTIVES
from contradpp.metrics.tuning import METRICS, MODELS, Trial
from contradpp.metrics.tuning import tune as search

N_SHOWN = 10


@click.command()
@click.argument("data")
@option("--model", type=tuple(MODELS), default="nonsymmetric")
@option("--objective", type=tuple(OBJECTIVES), default="exact")
@option("--metric", type=METRICS, default="mpr", help="Metric to maximize.")
@option("--trials", type=COUNT, default=20, help="Number of settings to try.")
@option("--study", type=FILE, help="File from which a stopped search is resumed.")
@option("--max-iter", type=COUNT, default=100, help="Maximum rounds of a trial.")
@random_state_option("Seed of the split, the search and training.")
@n_jobs_option
@layout_options
@json_option
def tune(
    data: str,
    study: Path | None,
    metric: str,
    trials: int,
    random_state: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Search for good settings on DATA: rank, penalty, step size and more.

    A fifth of the baskets measures each setting. Ctrl-C stops the search; --study resumes it.

    \b
    contradpp tune orders.csv --trials 30 --study orders.study
    """
    search_options = {name: options.pop(name) for name in ("n_jobs", "max_iter")}
    kind = {name: options.pop(name) for name in ("model", "objective")}
    layout = options
    with busy(f"Reading {data} ..."):
        baskets = baskets_from(data, **layout)
    finished: list[Trial] = []

    def report(trial: Trial) -> None:
        finished.append(trial)
        value = "cut short" if trial.value is None else f"{metric} {trial.value:.3f}"
        position = f"[{trial.number + 1}/{trials}]"
        say(f"{position} {value:<16} {trial.seconds:6.1f} s  {settings_of(trial)}")

    try:
        found = search(
            baskets,
            metric=metric,
            trials=trials,
            storage=study,
            seed=random_state,
            watch=report,
            **kind,
            **search_options,
        )
    except KeyboardInterrupt:
        hint = "with --study, it could be resumed"
        if study is not None:
            hint = f"the same command resumes it from {study}"
        say(f"Stopped after {len(finished)} settings; {hint}.")
        raise click.exceptions.Exit(1) from None
    best = next((trial for trial in found if trial.value is not None), None)
    command = None if best is None else f"{fit_command(data, layout | kind)} {settings_of(best)}"
    if as_json:
        all_trials = [trial._asdict() for trial in found]
        show_json({"metric": metric, "command": command, "trials": all_trials})
        return
    heading(f"The best of {len(found)} settings by {metric} on validation baskets")
    rows = []
    for trial in found[:N_SHOWN]:
        value = trial.state if trial.value is None else f"{trial.value:.3f}"
        rows.append([value, f"{trial.seconds:.1f}", settings_of(trial)])
    columns = [f">{metric}", ">seconds", "settings"]
    show_table(columns, rows)
    if command:
        click.echo(f"\nTry       {command}")


def fit_command(data: str, given: Values) -> str:
    """Return the call of `fit` with these options."""
    usual = {"format": "auto", "on_bad_row": "error", "returns": "drop"}
    changed = {name: v for name, v in given.items() if v not in (None, usual.get(name))}
    options = [flag_with_value(name, value) for name, value in changed.items()]
    return " ".join([program(), "fit", shlex.quote(data), "-o model.safetensors", *options])


def settings_of(trial: Trial) -> str:
    """Return the settings of a trial as options of `fit`."""
    settings = trial.parameters.items()
    texts = {name: f"{v:.3g}" if isinstance(v, float) else v for name, v in settings}
    return " ".join(flag_with_value(name, value) for name, value in texts.items())
