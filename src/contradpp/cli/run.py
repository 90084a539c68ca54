"""One run of `fit`: from a file and options to a model that has been learned and measured."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from contradpp.cli.choose import Choice, choose, hold_out
from contradpp.cli.fit_options import GROUPS, KNOBS
from contradpp.cli.inputs import COLUMNS, LAYOUT, baskets_from
from contradpp.cli.models import build
from contradpp.cli.output import busy
from contradpp.data.baskets import Baskets
from contradpp.data.feedback import Feedback, read_feedback
from contradpp.errors import DataError
from contradpp.report.examples import Example, examples
from contradpp.report.measured import Measured, measure


@dataclass
class Run:
    """One run of `fit`, from its options to what came of them."""

    given: dict[str, Any]
    choices: list[Choice]
    baskets: Baskets
    learned: Baskets
    test: Baskets | None
    feedback: Feedback | None
    validation: Any
    model: Any
    name: str
    label: str
    n_left_out: int
    seconds: float = 0.0
    measured: Measured | None = None
    examples: list[Example] = field(default_factory=list)
    cluster: str | None = None  # the files that workers read


def prepare(data: str, given: dict[str, Any]) -> Run:
    """Read the baskets, settle what was left open, and set some baskets aside.

    On a cluster the workers read: here one file is looked at, and nothing is set aside.
    """
    layout = {name: given[name] for name in LAYOUT}
    cluster = None
    if given["engine"] is not None:
        cluster, (data, given) = data, for_cluster(data, given)
    with busy(f"Reading {data} ..."):
        baskets = baskets_from(data, **layout)
    feedback = None if given["feedback"] is None else read_feedback(given["feedback"])
    choices = choose(baskets, given)
    settings = given | {choice.option: choice.value for choice in choices}
    usable = baskets if settings["oversize"] != "drop" else baskets.subset(baskets.sizes <= settings["rank"])
    if not usable.n_baskets:
        raise DataError(
            f"every basket has more than {settings['rank']} items: choose a larger --rank, or --oversize clip"
        )
    learned, test = hold_out(usable, given["test_size"], given["seed"])
    validation = given["validation"]
    if isinstance(validation, str):
        validation = baskets_from(validation, **layout)
    model = build(settings["model"], {knob: settings[knob] for knob in KNOBS} | {"verbose": 1})
    name = f"{settings['model']} ({settings['objective']})"
    left_out = baskets.n_baskets - usable.n_baskets
    return Run(
        given, choices, baskets, learned, test, feedback, validation, model, name, Path(data).name, left_out,
        cluster=cluster,
    )  # fmt: skip


def train(run: Run) -> None:
    """Fit the model."""
    started = time.perf_counter()
    baskets, negatives = run.learned, None
    if run.feedback is not None:
        liked = Baskets.from_lists(run.feedback.positives)
        baskets, negatives = Baskets.concat([baskets, liked]), run.feedback.negatives or None
    try:
        if run.cluster is not None:
            run.model.fit(run.cluster, engine=run.given["engine"], validation=run.validation, **on_cluster(run.given))
        else:
            run.model.fit(baskets, negatives=negatives, validation=run.validation, **long_run(run.given))
    finally:
        run.seconds = time.perf_counter() - started


def for_cluster(data: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The file to choose settings by, and the options with what a cluster asks for."""
    from contradpp.distributed.shards import list_files

    if given["feedback"] is not None or isinstance(given["validation"], str):
        raise click.UsageError("--engine ray takes neither --feedback nor a file for --validation")
    largest = max(list_files(data), key=lambda file: file.n_rows)
    return largest.path.removeprefix("file://"), given | {"model": given["model"] or "lowrank", "test_size": 0.0}


def on_cluster(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `fit` that only a cluster needs."""
    columns = {name: given[name] for name in COLUMNS}
    own = {name: given[name] for name in GROUPS["A cluster"] if name != "engine"}
    return long_run(given) | own | {"columns": columns}


def long_run(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `fit` that keep a long run from being lost, if a checkpoint is asked for."""
    if given.get("checkpoint") is None:
        return {}
    return {name: given[name] for name in GROUPS["Long runs"]}


def judge(run: Run) -> None:
    """Measure the model on the baskets that were held out, and draw the examples."""
    if run.test is None:
        return
    with busy("Measuring on held-out baskets ..."):
        run.measured = measure({run.name: run.model}, run.learned, run.test)
        run.examples = examples(run.model, run.test, seed=run.given["seed"])
