"""`contradpp tune`: which rank, penalty and step size suit the data, on a validation split."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from contradpp.cli.inputs import FILE, baskets_from, layout_options, n_jobs_option, option, random_state_option
from contradpp.cli.output import Column, busy, heading, json_option, say, show_json, show_table, written
from contradpp.learn.params import OBJECTIVES
from contradpp.metrics.tuning import METRICS, MODELS, Trial
from contradpp.metrics.tuning import tune as search

SHOWN = 10


@click.command()
@click.argument("data")
@option("--model", type=tuple(MODELS), default="nonsymmetric")
@option("--objective", type=OBJECTIVES, default="exact")
@option("--metric", type=METRICS, default="mpr", help="What to be best in.")
@option("--trials", type=click.IntRange(1), default=20, help="Settings to try, in all.")
@option("--study", type=FILE, help="A file from which a stopped study goes on.")
@option("--max-iter", type=click.IntRange(1), default=100, help="The most rounds of a trial.")
@random_state_option("Seed of the split, the search and training.")
@n_jobs_option
@layout_options
@json_option
def tune(
    data: str, model: str, objective: str, metric: str, trials: int, study: Path | None, max_iter: int,
    random_state: int, n_jobs: int | None, as_json: bool, **layout: Any,
) -> None:  # fmt: skip
    """Search for the settings that suit DATA: rank, penalty, step size and more.

    A fifth of the baskets judges each setting. Ctrl-C stops the search; with --study it can be taken up again.

    \b
    contradpp tune orders.csv --trials 30 --study orders.study
    """
    with busy(f"Reading {data} ..."):
        baskets = baskets_from(data, **layout)
    count = 0

    def tell(trial: Trial) -> None:
        nonlocal count
        count += 1
        value = "cut short" if trial.value is None else f"{metric} {trial.value:.3f}"
        say(f"[{trial.number + 1}/{trials}] {value:<16} {trial.seconds:6.1f} s  {_settings(trial)}")

    try:
        found = search(
            baskets, model=model, objective=objective, metric=metric, trials=trials, storage=study, seed=random_state,
            n_jobs=n_jobs, max_iter=max_iter, watch=tell,
        )  # fmt: skip
    except KeyboardInterrupt:
        again = f"the same command goes on from {study}" if study else "with --study it could go on where it stopped"
        say(f"Stopped after {count} settings; {again}.")
        raise click.exceptions.Exit(1) from None
    best = next((trial for trial in found if trial.value is not None), None)
    command = None if best is None else _command(data, best, layout | {"model": model, "objective": objective})
    if as_json:
        show_json({"metric": metric, "command": command, "trials": [trial._asdict() for trial in found]})
        return
    heading(f"The best of {len(found)} settings by {metric} on validation baskets")
    rows = [
        [f"{trial.value:.3f}" if trial.value is not None else trial.state, f"{trial.seconds:.1f}", _settings(trial)]
        for trial in found[:SHOWN]
    ]
    show_table([Column(metric, right=True), Column("seconds", right=True), Column("settings")], rows)
    if command:
        click.echo(f"\nTry       {command}")


def _command(data: str, trial: Trial, given: dict[str, Any]) -> str:
    """The call of `fit` that learns with the setting, and reads the file as it was read here."""
    asked = {name: value for name, value in given.items() if value is not None and (name, value) != ("format", "auto")}
    options = " ".join(written(name, value) for name, value in asked.items())
    return f"contradpp fit {shlex.quote(data)} -o model.safetensors {options} {_settings(trial)}"


def _settings(trial: Trial) -> str:
    """The setting as options of `fit`."""
    rounded = {name: f"{v:.3g}" if isinstance(v, float) else v for name, v in trial.parameters.items()}
    return " ".join(written(name, value) for name, value in rounded.items())
