"""`contradpp compare`: several models on the same held-out baskets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import click
import numpy as np

import contradpp as cd
from contradpp._threads import blas_threads
from contradpp._types import Values
from contradpp.cli.inputs import (
    baskets_from,
    free_memory,
    hold_out,
    layout_options,
    n_jobs_option,
    names,
    option,
    random_state_option,
)
from contradpp.cli.output import (
    busy,
    heading,
    json_option,
    paragraph,
    show_json,
    show_table,
    verbosity,
)
from contradpp.cli.tune import fit_command
from contradpp.errors import ContradppError, DataError
from contradpp.experts.ease import DENSE_UP_TO
from contradpp.experts.item_knn import SHRINKAGES
from contradpp.metrics.compare import Comparison
from contradpp.metrics.tuning import SMALLEST, validated
from contradpp.report.evaluation import rounded

MODELS = ("popularity", "itemknn", "regression", "als", "kernel", "conditional")  # simplest first
# Options of `fit` for the models that it can learn.
FIT_OPTIONS = {"NonsymmetricDPP": {"model": "nonsymmetric"}, "ConditionalDPP": {}}
MIN_BASKETS = 50  # of two or more items
MIN_TEST_BASKETS = 10
MIN_BASKETS_TO_CHOOSE = 100  # training baskets from which settings can be chosen
MAX_BASKETS_TO_CHOOSE = 30_000


class ModelSpec(NamedTuple):
    """A model of the comparison; validation baskets choose one of the settings in its grid."""

    label: str
    based_on: str
    make: Callable[..., Any]
    grid: Sequence[Values] = ()


class FittedModel(NamedTuple):
    """A fitted model, the settings chosen for it, and the seconds that all of it took."""

    model: Any
    settings: Values
    seconds: float


@dataclass(frozen=True)
class Result:
    """The result of a comparison; `top` is the number of suggestions by which models are ranked."""

    comparison: Comparison
    top: int
    fitted: dict[str, FittedModel]
    left_out: dict[str, str]  # the reason by name of the model


@click.command()
@click.argument("data")
@option(
    "--models",
    callback=names(MODELS),
    metavar="NAMES",
    help=f"Some of these, separated by commas: {', '.join(MODELS)}.",
)
@option(
    "--test-size",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.2,
    help="Share of the baskets held out to measure the models.",
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
    """Compare models on DATA, a file of baskets or the name of a data set: which suggests best?

    All models learn from the same baskets and are measured on the same others. A part of the
    training baskets chooses the settings of the baselines.

    \b
    contradpp compare orders.csv
    contradpp compare orders.csv --models itemknn,conditional --json > comparison.json
    """
    with busy(f"Reading {data} ..."):
        train, test = split(baskets_from(data, **layout), test_size, random_state)
    available = model_specs(train.n_items, random_state, n_jobs)
    wanted = {"popularity", *(models or MODELS)}
    specs = {name: spec for name, spec in available.items() if name in wanted}
    missing = dict.fromkeys(wanted - available.keys(), "`pip install implicit` adds it")
    if not as_json:
        click.echo(
            f"{data}: {train.n_baskets + test.n_baskets:,} baskets of {train.n_items:,} items. "
            f"The models learn from {train.n_baskets:,} of them and are measured on "
            f"{test.n_baskets:,} others."
        )
    result = run(specs, train, test, random_state, n_jobs, missing)
    text, leaders = assessment(result.comparison, result.top)
    if as_json:
        show_json(
            {
                "baskets": {
                    "learned": train.n_baskets,
                    "held_out": int((test.sizes >= SMALLEST).sum()),
                },
                "n_items": train.n_items,
                "models": result.comparison.as_dict(),
                "leaders": leaders,
                "assessment": text,
                "settings": {label: one.settings for label, one in result.fitted.items()},
                "seconds": {label: one.seconds for label, one in result.fitted.items()},
                "left_out": result.left_out,
            }
        )
        return
    show_leaderboard(result, {spec.label: spec.based_on for spec in specs.values()})
    for name, reason in result.left_out.items():
        paragraph(f"Left out: {name} ({reason}).")
    click.echo()
    paragraph(text, bold=True)
    click.echo()
    if leaders[-1] in FIT_OPTIONS:
        click.echo(f"Try       {fit_command(data, layout | FIT_OPTIONS[leaders[-1]])}")
    if leaders[0] not in FIT_OPTIONS:  # of equal models the simplest
        click.echo(f"In Python contradpp.baselines.{in_python(result.fitted[leaders[0]])}")


def split(baskets: cd.Baskets, share: float, seed: int) -> tuple[cd.Baskets, cd.Baskets]:
    """Split into training and test baskets; raise `DataError` if there are too few of either."""
    n_usable = int((baskets.sizes >= SMALLEST).sum())
    if n_usable < MIN_BASKETS:
        raise DataError(
            f"compare needs at least {MIN_BASKETS} baskets of two or more items, got {n_usable}: "
            "with fewer, chance would decide"
        )
    train, test = hold_out(baskets, share, seed)
    n_test = 0 if test is None else int((test.sizes >= SMALLEST).sum())
    if test is None or n_test < MIN_TEST_BASKETS:
        raise DataError(
            f"{n_test} of the held-out baskets have two or more items, which is too few: "
            "hold out more",
            parameters=("test_size",),
        )
    return train, test


def run(
    specs: dict[str, ModelSpec],
    train: cd.Baskets,
    test: cd.Baskets,
    seed: int,
    n_jobs: int | None,
    left_out: dict[str, str],
) -> Result:
    """Fit and measure the models; one that cannot learn is left out with its reason."""
    fitted: dict[str, FittedModel] = {}
    left_out = dict(left_out)
    for name, spec in specs.items():
        with busy(f"Learning {spec.label} ({len(fitted) + 1} of {len(specs)}) ..."):
            try:
                fitted[spec.label] = learn(spec, train, seed, n_jobs)
            except (ContradppError, MemoryError) as error:
                left_out[name] = str(error)
    top = min(10, max(train.n_items // 5, 1))
    with busy("Measuring on held-out baskets ..."):
        comparison = cd.compare(
            {label: one.model for label, one in fitted.items()},
            test,
            train=train,
            ks=(1, top),
            random_state=seed,
            min_size=SMALLEST,
            n_jobs=n_jobs,
        )
    return Result(comparison, top, fitted, left_out)


def learn(spec: ModelSpec, train: cd.Baskets, seed: int, n_jobs: int | None) -> FittedModel:
    """Fit a model, with the settings of best nDCG on a part of the training baskets."""
    started = time.perf_counter()
    settings: Values = {}
    usable = train.subset(train.sizes >= SMALLEST)
    # implicit has threads of its own, which those of the matrix library would slow down.
    with blas_threads(1) if spec.label == "implicit ALS" else nullcontext():
        if spec.grid and usable.n_baskets >= MIN_BASKETS_TO_CHOOSE:
            models = [spec.make(**settings) for settings in spec.grid]
            scores = validated(models, usable, seed, most=MAX_BASKETS_TO_CHOOSE, n_jobs=n_jobs)
            settings = spec.grid[int(np.argmax(scores))]
        model = spec.make(**settings).fit(train)
    return FittedModel(model, settings, time.perf_counter() - started)


# -- Models ----------------------------------------------------------------------------------------


def model_specs(n_items: int, seed: int, n_jobs: int | None) -> dict[str, ModelSpec]:
    """Return the models that can learn from a catalog of this size here, the simplest first."""
    common: Values = {"random_state": seed, "n_jobs": n_jobs, "verbose": verbosity()}
    knn_grid: list[Values] = [{"shrinkage": value} for value in SHRINKAGES]
    knn_grid += [{"weights": "bm25", "B": value} for value in (0.1, 0.25, 0.75)]
    specs = {
        "popularity": ModelSpec("Popularity", "what sells most", cd.baselines.Popularity),
        "itemknn": ModelSpec("ItemKNN", "what was bought together", cd.baselines.ItemKNN, knn_grid),
        "regression": regression(n_items, n_jobs),
        "als": als(seed),
        "kernel": ModelSpec(
            "NonsymmetricDPP",
            "a kernel: items that attract and repel",
            partial(cd.NonsymmetricDPP, **common),
        ),
        "conditional": ModelSpec(
            "ConditionalDPP",
            "a weighted mix of neighbors, regressions and a kernel: the default of `fit`",
            partial(cd.ConditionalDPP, **common),
        ),
    }
    if find_spec("implicit") is None:
        del specs["als"]
    return specs


def regression(n_items: int, n_jobs: int | None) -> ModelSpec:
    """Return the strongest regression that fits in memory."""
    needed = 3 * 8 * n_items**2  # bytes of the matrix, its inverse, and room to work
    free = free_memory()
    if n_items <= DENSE_UP_TO and (free is None or needed < free):
        penalties = [{"regularization": value} for value in (50.0, 200.0, 500.0)]
        based_on = "a regression of each item on all others"
        return ModelSpec("EASE", based_on, cd.baselines.EASE, penalties)
    neighbors = partial(cd.baselines.RidgeNeighbors, n_jobs=n_jobs)
    ridges = [{"ridge": value} for value in (20.0, 50.0, 200.0)]
    return ModelSpec(
        "RidgeNeighbors", "a regression of each item on the nearest", neighbors, ridges
    )


def als(seed: int) -> ModelSpec:
    """Return the alternating least squares of `implicit`, which is imported when it is made."""

    def make(**settings: Any) -> Any:
        from implicit.als import AlternatingLeastSquares

        return cd.baselines.Implicit(AlternatingLeastSquares(random_state=seed, **settings))

    values = ((64, 10.0, 1.0), (64, 100.0, 10.0), (128, 30.0, 10.0), (64, 300.0, 30.0))
    grid = [{"factors": k, "regularization": r, "alpha": alpha} for k, r, alpha in values]
    return ModelSpec("implicit ALS", "factors of items and of baskets", make, grid)


def in_python(fitted: FittedModel) -> str:
    """Return the call that makes a baseline with its settings."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in fitted.settings.items())
    inner = getattr(fitted.model, "model", None)
    if inner is not None:
        arguments = f"{type(inner).__name__}({arguments})"
    return f"{type(fitted.model).__name__}({arguments})"


# -- Results ---------------------------------------------------------------------------------------


def assessment(comparison: Comparison, top: int) -> tuple[str, list[str]]:
    """Say which models suggest best, and return those that may be the best."""
    hits = {label: report.precision[top] for label, report in comparison.reports.items()}
    best, *others = sorted(hits, key=lambda label: -hits[label])
    leads = {label: comparison.difference(best, f"precision@{top}", over=label) for label in others}
    leaders = [label for label in hits if label == best or not leads[label].low > 0]
    place = "the first suggestion" if top == 1 else f"among the first {top} suggestions"
    cases = f"the missing item is {place} of {best} in {hits[best]:.1f} % of cases"
    if not others:
        return f"Nothing else was measured: {cases}.", leaders
    second = others[0]
    for label in dict.fromkeys([second, comparison.baseline]):
        if label != best:
            cases += f", of {label} in {hits[label]:.1f} %"
    points = f"{rounded(leads[second].low):.1f} to {rounded(leads[second].high):.1f} points"
    if leaders == [best]:
        lead = f"Its lead of {points} over {second} is more than chance explains."
        return f"{best} suggests best: {cases}. {lead}", leaders
    if comparison.baseline in leaders:
        opening = f"Nothing is clearly better here than {comparison.baseline}"
    else:
        tied = f"{', '.join(leaders[:-1])} and {leaders[-1]}"
        opening = f"{tied} suggest best, and these baskets cannot tell them apart"
    lead = f"The lead of {best} over {second}, {points}, may be chance"
    return f"{opening}: {cases}. {lead}: more baskets would show.", leaders


def show_leaderboard(result: Result, based_on: dict[str, str]) -> None:
    """Print the table of models on held-out baskets, and how to read it."""
    comparison = result.comparison
    base = comparison.baseline
    n_baskets = comparison.reports[base].n_baskets
    heading(f"{n_baskets:,} held-out baskets of two or more items, every item left out in turn")
    tops = [f"top {k}" for k in comparison.reports[base].precision]
    rows = []
    for label, report in comparison.reports.items():
        difference = comparison.difference(label, f"precision@{result.top}")
        lead, low, high = map(rounded, difference[:3])
        rows.append(
            [
                label,
                *(f"{share:.1f} %" for share in report.precision.values()),
                "" if label == base else f"{lead:+.1f} [{low:+.1f}, {high:+.1f}]",
                f"{report.ndcg:.3f}",
                f"{report.mpr:.1f}",
                f"{result.fitted[label].seconds:.1f}",
                based_on[label],
            ]
        )
    numbers = [*tops, f"{tops[-1]} over {base}", "nDCG", "MPR", "seconds"]
    columns = ["model", *(f">{name}" for name in numbers)]
    show_table([*columns, "based on"], rows)
    paragraph(
        f"{', '.join(tops)}: how often the missing item is among the first suggestions. "
        f"over {base}: difference in points with its 95 % interval (paired bootstrap). "
        f"nDCG: like {tops[-1]}, but higher ranks count more, 0 to 1. "
        "MPR: mean percentile rank of the missing item, 100 = always first, 50 = chance. "
        "seconds: to choose settings and learn."
    )
