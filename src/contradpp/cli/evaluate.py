"""`contradpp evaluate`, `compare` and `tune`: how good models are on held-out baskets."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

import contradpp as cd
from contradpp._threads import blas_threads
from contradpp.cli.inputs import (
    FILE,
    Parsed,
    baskets_from,
    free_memory,
    hold_out,
    layout_options,
    model_argument,
    n_jobs_option,
    names,
    option,
    random_state_option,
)
from contradpp.cli.output import Column, busy, heading, json_option, paragraph, say, show_json, show_table, written
from contradpp.errors import ContradppError, DataError
from contradpp.experts.baselines import DENSE_UP_TO, SHRINKAGES
from contradpp.learn.params import OBJECTIVES
from contradpp.metrics.compare import Comparison
from contradpp.metrics.tuning import METRICS, MODELS, SMALLEST, Trial, validated
from contradpp.metrics.tuning import tune as search
from contradpp.models.base import BaseDPP
from contradpp.report.measured import rounded

SHOWN = 10  # settings that `tune` prints


# -- One model ---------------------------------------------------------------------------------------------


def levels(text: str) -> tuple[int, ...]:
    """Read whole numbers from 1, separated by commas."""
    found = tuple(map(int, text.split(",")))
    if min(found) < 1:
        raise ValueError
    return found


@click.command()
@model_argument
@click.argument("data")
@option(
    "--ks",
    type=Parsed(levels, "no list of whole numbers from 1"),
    default="1,5,10,20",
    help="The k of p@k, between commas.",
)
@random_state_option("Seed of the held-out items and of the random sets.")
@option("--min-size", type=int, default=1, help="Leave out test baskets with fewer items.")
@option("--choices", is_flag=True, help="Measure what is taken of what is offered, where the file says so.")
@n_jobs_option
@layout_options
@json_option
def evaluate(
    model: str, data: str, ks: tuple[int, ...], random_state: int, min_size: int, choices: bool, n_jobs: int | None,
    as_json: bool, **layout: Any,
) -> None:  # fmt: skip
    """Evaluate MODEL on the baskets of DATA, a file or the name of a data set.

    DATA should not have been used for learning. Each item is left out of its basket and predicted from the rest.

    \b
    contradpp evaluate shop.safetensors next-week.csv --min-size 2
    contradpp evaluate shop.safetensors views.csv --chosen bought --choices
    """
    with busy("Measuring ..."):
        loaded = cd.load(model)
        baskets = baskets_for(loaded, model, data, **layout)
        report: Any = None
        if choices:
            loaded.n_jobs = n_jobs
            report = cd.evaluate_choices(loaded, baskets, random_state=random_state)
        else:
            report = cd.evaluate(loaded, baskets, ks=ks, random_state=random_state, min_size=min_size, n_jobs=n_jobs)
        text = str(report)
    if as_json:
        show_json(report.as_dict())
    else:
        click.echo(text)


def baskets_for(loaded: BaseDPP, model: str, data: str, **layout: Any) -> cd.Baskets:
    """The baskets of a file or data set, of which the model must know something."""
    baskets = baskets_from(data, **layout)
    if not set(baskets.items) & set(loaded.items_):
        raise DataError(f"{model} knows none of the {baskets.n_items:,} items of {data}: it learned from other data")
    return baskets


# -- Several models side by side -----------------------------------------------------------------------------

COMPARED = ("popularity", "itemknn", "regression", "als", "kernel", "conditional")  # the simplest first
OF_KERNEL = {"NonsymmetricDPP": {"model": "nonsymmetric"}, "ConditionalDPP": {}}  # options of `fit`
FEWEST_BASKETS, FEWEST_HELD_OUT = 50, 10  # of two or more items
FEWEST_TO_CHOOSE, MOST_TO_CHOOSE = 100, 30_000  # training baskets that settings are chosen by


class Contender(NamedTuple):
    """A model by its name in tables, what it goes by, and the settings of which validation baskets choose one."""

    label: str
    goes_by: str
    make: Callable[..., Any]
    grid: Sequence[dict[str, Any]] = ()


class Learned(NamedTuple):
    """A fitted model, the settings that were chosen for it, and how long all of it took."""

    model: Any
    settings: dict[str, Any]
    seconds: float


@click.command()
@click.argument("data")
@option("--models", callback=names(COMPARED), metavar="NAMES", help=f"Some, between commas: {', '.join(COMPARED)}.")
@option(
    "--test-size",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.2,
    help="Share held out to measure the models.",
)
@random_state_option("Seed of split and training.")
@n_jobs_option
@layout_options
@json_option
def compare(
    data: str,
    models: tuple[str, ...],
    test_size: float,
    random_state: int,
    n_jobs: int | None,
    as_json: bool,
    **layout: Any,
) -> None:
    """Compare models on DATA, a file of baskets or the name of a data set: which one suggests best?

    All learn from the same baskets and are measured on the same others. Settings of the baselines are chosen on a part
    of the baskets that they learn from.

    \b
    contradpp compare orders.csv
    contradpp compare orders.csv --models itemknn,conditional --json > comparison.json
    """
    with busy(f"Reading {data} ..."):
        train, test = divided(baskets_from(data, **layout), test_size, random_state)
    known = contenders(train.n_items, random_state, n_jobs)
    left_out = {name: "`pip install implicit` adds it" for name in COMPARED if name not in known}
    chosen = {name: one for name, one in known.items() if name in ("popularity", *(models or COMPARED))}
    if not as_json:
        click.echo(
            f"{data}: {train.n_baskets + test.n_baskets:,} baskets of {train.n_items:,} items. The models learn from "
            f"{train.n_baskets:,} of them and are measured on {test.n_baskets:,} others."
        )
    learned: dict[str, Learned] = {}
    for name, one in chosen.items():
        with busy(f"Learning {one.label} ({len(learned) + 1} of {len(chosen)}) ..."):
            try:
                learned[one.label] = learn(one, train, random_state, n_jobs)
            except (ContradppError, MemoryError) as error:
                left_out[name] = str(error)
    top = min(10, max(train.n_items // 5, 1))
    fitted = {label: one.model for label, one in learned.items()}
    with busy("Measuring on held-out baskets ..."):
        found = cd.compare(
            fitted, test, train=train, ks=(1, top), random_state=random_state, min_size=SMALLEST, n_jobs=n_jobs
        )
    said, leaders = verdict(found, top)
    seconds = {label: one.seconds for label, one in learned.items()}
    if as_json:
        show_json(
            {
                "baskets": {"learned": train.n_baskets, "held_out": found.reports[found.baseline].n_baskets},
                "n_items": train.n_items,
                "models": found.as_dict(),
                "leaders": leaders,
                "verdict": said,
                "settings": {label: one.settings for label, one in learned.items()},
                "seconds": seconds,
                "left_out": left_out,
            }
        )
        return
    show_comparison(found, top, seconds, {one.label: one.goes_by for one in chosen.values()})
    for name, reason in left_out.items():
        paragraph(f"Left out: {name} ({reason}).")
    click.echo()
    paragraph(said, bold=True)
    click.echo()
    if leaders[-1] in OF_KERNEL:
        click.echo(f"Try       {fit_command(data, layout | OF_KERNEL[leaders[-1]])}")
    if leaders[0] not in OF_KERNEL:  # of equals the simplest
        click.echo(f"In Python contradpp.baselines.{in_python(learned[leaders[0]])}")


def divided(baskets: cd.Baskets, share: float, seed: int) -> tuple[cd.Baskets, cd.Baskets]:
    """Split into baskets to learn from and baskets to measure with, or raise `DataError` if there are too few."""
    n_usable = int((baskets.sizes >= SMALLEST).sum())
    if n_usable < FEWEST_BASKETS:
        raise DataError(
            f"compare needs at least {FEWEST_BASKETS} baskets of two or more items, got {n_usable}: with fewer, chance "
            "would decide"
        )
    train, test = hold_out(baskets, share, seed)
    n_asked = 0 if test is None else int((test.sizes >= SMALLEST).sum())
    if test is None or n_asked < FEWEST_HELD_OUT:
        raise DataError(
            f"{n_asked} of the held-out baskets have two or more items, too few to compare by: hold out more of them",
            parameters=("test_size",),
        )
    return train, test


def contenders(n_items: int, seed: int, n_jobs: int | None) -> dict[str, Contender]:
    """Return the models that can learn from a catalogue of this size here, the simplest first."""
    own: dict[str, Any] = {"random_state": seed, "n_jobs": n_jobs}
    nearest: list[dict[str, Any]] = [{"shrinkage": value} for value in SHRINKAGES]
    nearest += [{"weights": "bm25", "B": value} for value in (0.1, 0.25, 0.75)]
    tried = ((64, 10.0, 1.0), (64, 100.0, 10.0), (128, 30.0, 10.0), (64, 300.0, 30.0))
    factors = [{"factors": k, "regularization": r, "alpha": a} for k, r, a in tried]
    weighed = "neighbours, regressions and a kernel, weighed: what `fit` learns"

    def als(**settings: Any) -> Any:
        from implicit.als import AlternatingLeastSquares

        return cd.baselines.Implicit(AlternatingLeastSquares(random_state=seed, **settings))

    found = {
        "popularity": Contender("Popularity", "what sells most", cd.baselines.Popularity),
        "itemknn": Contender("ItemKNN", "what was bought together", cd.baselines.ItemKNN, nearest),
        "regression": regression(n_items, n_jobs),
        "als": Contender("implicit ALS", "factors of items, and of baskets that hold them", als, factors),
        "kernel": Contender(
            "NonsymmetricDPP", "a kernel: items that attract and repel", partial(cd.NonsymmetricDPP, **own)
        ),
        "conditional": Contender("ConditionalDPP", weighed, partial(cd.ConditionalDPP, **own)),
    }
    if find_spec("implicit") is None:
        del found["als"]
    return found


def regression(n_items: int, n_jobs: int | None) -> Contender:
    """Return the strongest regression that fits in memory: of every item on all others, or on the nearest."""
    needed = 3 * 8 * n_items**2  # bytes of the matrix, its inverse, and room to work
    free = free_memory()
    if n_items <= DENSE_UP_TO and (free is None or needed < free):
        penalties = [{"regularization": value} for value in (50.0, 200.0, 500.0)]
        return Contender("EASE", "a regression of each item on all others", cd.baselines.EASE, penalties)
    near = partial(cd.baselines.RidgeNeighbours, n_jobs=n_jobs)
    ridges = [{"ridge": value} for value in (20.0, 50.0, 200.0)]
    return Contender("RidgeNeighbours", "a regression of each item on the nearest", near, ridges)


def learn(one: Contender, train: cd.Baskets, seed: int, n_jobs: int | None) -> Learned:
    """Fit a model, with the settings that are best in nDCG on a part of the training baskets if they are enough."""
    started = time.perf_counter()
    settings: dict[str, Any] = {}
    asked = train.subset(train.sizes >= SMALLEST)
    # The threads of implicit are its own: those of the matrix library would fight with them.
    with blas_threads(1) if one.label == "implicit ALS" else nullcontext():
        if one.grid and asked.n_baskets >= FEWEST_TO_CHOOSE:
            tried = [one.make(**settings) for settings in one.grid]
            scores = validated(tried, asked, seed, most=MOST_TO_CHOOSE, n_jobs=n_jobs)
            settings = one.grid[int(np.argmax(scores))]
        model = one.make(**settings).fit(train)
    return Learned(model, settings, time.perf_counter() - started)


def verdict(found: Comparison, top: int) -> tuple[str, list[str]]:
    """Say which models suggest best, and return those that the baskets cannot tell from the best, in order."""
    hits = {label: report.precision[top] for label, report in found.reports.items()}
    best, *others = sorted(hits, key=lambda label: -hits[label])
    gains = {label: found.difference(best, f"precision@{top}", over=label) for label in others}
    leaders = [label for label in hits if label == best or not gains[label].low > 0]
    place = "the first suggestion" if top == 1 else f"among the first {top} suggestions"
    cases = f"the missing item is {place} of {best} in {hits[best]:.1f} % of cases"
    if not others:
        return f"Nothing else was measured: {cases}.", leaders
    second = others[0]
    for label in dict.fromkeys([second, found.baseline]):
        if label != best:
            cases += f", of {label} in {hits[label]:.1f} %"
    points = f"{rounded(gains[second].low):.1f} to {rounded(gains[second].high):.1f} points"
    if leaders == [best]:
        lead = f"Its lead of {points} over {second} is more than chance explains."
        return f"{best} suggests best: {cases}. {lead}", leaders
    if found.baseline in leaders:
        opening = f"Nothing is clearly better here than {found.baseline}, which suggests what sells most"
    else:
        opening = f"{', '.join(leaders[:-1])} and {leaders[-1]} suggest best, and these baskets cannot tell them apart"
    doubt = f"The lead of {best} over {second}, {points}, may be chance: more baskets would tell more."
    return f"{opening}: {cases}. {doubt}", leaders


def show_comparison(found: Comparison, top: int, seconds: dict[str, float], goes_by: dict[str, str]) -> None:
    """Print the table of models on held-out baskets, and how to read it."""
    base = found.baseline
    heading(f"{found.reports[base].n_baskets:,} held-out baskets of two or more items, every item left out in turn")
    tops = [f"top {k}" for k in found.reports[base].precision]
    rows = []
    for label, report in found.reports.items():
        gain, low, high = map(rounded, found.difference(label, f"precision@{top}")[:3])
        hits = [f"{share:.1f} %" for share in report.precision.values()]
        over = "" if label == base else f"{gain:+.1f} [{low:+.1f}, {high:+.1f}]"
        others = [f"{report.ndcg:.3f}", f"{report.mpr:.1f}", f"{seconds[label]:.1f}"]
        rows.append([label, *hits, over, *others, goes_by[label]])
    heads = [*tops, f"{tops[-1]} over {base}", "nDCG", "MPR", "seconds"]
    show_table([Column("model"), *(Column(head, right=True) for head in heads), Column("goes by")], rows)
    paragraph(
        f"{', '.join(tops)}: how often the missing item is among the first suggestions. over {base}: the gain in "
        f"points, with its interval of 95 % (the same baskets resampled for both). nDCG: as {tops[-1]}, but worth more "
        "the further up, 0 to 1. MPR: how far up the missing item ranks, 100 = always first, 50 = by chance. seconds: "
        "to learn and to choose settings."
    )


def in_python(one: Learned) -> str:
    """Write the call that makes a baseline with its settings."""
    settings = ", ".join(f"{name}={value!r}" for name, value in one.settings.items())
    inner = getattr(one.model, "model", None)
    return f"{type(one.model).__name__}({settings if inner is None else f'{type(inner).__name__}({settings})'})"


# -- Settings of one model -----------------------------------------------------------------------------------


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
    options = layout | {"model": model, "objective": objective}
    command = None if best is None else f"{fit_command(data, options)} {_settings(best)}"
    if as_json:
        show_json({"metric": metric, "command": command, "trials": [trial._asdict() for trial in found]})
        return
    heading(f"The best of {len(found)} settings by {metric} on validation baskets")
    rows = []
    for trial in found[:SHOWN]:
        value = trial.state if trial.value is None else f"{trial.value:.3f}"
        rows.append([value, f"{trial.seconds:.1f}", _settings(trial)])
    show_table([Column(metric, right=True), Column("seconds", right=True), Column("settings")], rows)
    if command:
        click.echo(f"\nTry       {command}")


def fit_command(data: str, given: dict[str, Any]) -> str:
    """Write the call of `fit` that learns with these options, and reads the file as it was read here."""
    usual = {"format": "auto", "on_bad_row": "error", "returns": "drop"}
    options = [written(name, value) for name, value in given.items() if value not in (None, usual.get(name))]
    return " ".join(["contradpp fit", shlex.quote(data), "-o model.safetensors", *options])


def _settings(trial: Trial) -> str:
    """The setting as options of `fit`."""
    rounded = {name: f"{v:.3g}" if isinstance(v, float) else v for name, v in trial.parameters.items()}
    return " ".join(written(name, value) for name, value in rounded.items())
