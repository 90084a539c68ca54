"""One run of `fit`: what was left open is decided by looking at the baskets, then the model is learned and measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from contradpp.cli.fit_options import CONDITIONAL, DEFAULT_MODEL, KNOBS, OPTIONS, build, default_of, is_symmetric
from contradpp.cli.inputs import COLUMNS, LAYOUT, baskets_from
from contradpp.cli.output import busy, written
from contradpp.data.baskets import Baskets
from contradpp.data.features import Given, read_features
from contradpp.data.feedback import Feedback, read_choices, read_feedback
from contradpp.data.tables import matches
from contradpp.distributed.shards import list_files
from contradpp.errors import DataError
from contradpp.learn.objectives import MOST_TO_INVERT
from contradpp.report.measured import Example, Measured, examples, measure

LEAST_RANK, MOST_RANK = 30, 100
DENSE_CATALOGUE = 20_000  # items up to which a pass over the whole catalogue at every step is cheap
STEPS_A_ROUND = 20
FEWEST_TO_TEST, MOST_TO_TEST = 20, 5_000


class Choice(NamedTuple):
    """An option, the value it has been given, and why."""

    option: str
    value: Any
    why: str


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
    features: Given | None = None

    @property
    def by_choice(self) -> bool:
        """Whether the objective tells what was taken from what was shown and refused, by itself."""
        return getattr(self.model, "objective", None) in ("explicit", "choice")


def prepare(data: str, given: dict[str, Any]) -> Run:
    """Read the baskets, settle what was left open, and set some baskets aside.

    On a cluster the workers read: here one file is looked at, and nothing is set aside.
    """
    layout = {name: given[name] for name in LAYOUT}
    cluster = None
    if given["engine"] is not None:
        cluster, (data, given) = data, for_cluster(data, given)
    features = None if given["features"] is None else features_from(given)
    if features is not None:  # what it tells of items need not be in the file of baskets
        layout |= {role: None for role in ("name", "category") if given[role] in features.columns}
    with busy(f"Reading {data} ..."):
        baskets = baskets_from(data, **layout)
        if given["min_item_count"] > 1:
            baskets = baskets.filter(min_size=1, min_item_count=given["min_item_count"])
    feedback = None if given["feedback"] is None else read_feedback(given["feedback"])
    if features is not None:
        baskets = with_labels(baskets, features, given)
    choices = choose(baskets, given)
    settings = given | {choice.option: choice.value for choice in choices}
    usable = (
        baskets if any_size(settings) else without_oversize(baskets, settings["n_components"], settings["oversize"])
    )
    learned, test = hold_out(usable, given["test_size"], given["random_state"])
    validation = given["validation"]
    if isinstance(validation, str):
        validation = baskets_from(validation, **layout)
    model = build(settings["model"], {knob: settings[knob] for knob in KNOBS} | {"verbose": 1})
    name = CONDITIONAL if settings["model"] == CONDITIONAL else f"{settings['model']} ({settings['objective']})"
    left_out = baskets.n_baskets - usable.n_baskets
    return Run(
        given, choices, baskets, learned, test, feedback, validation, model, name, Path(data).name, left_out,
        cluster=cluster, features=features,
    )  # fmt: skip


def any_size(settings: dict[str, Any]) -> bool:
    """Whether the model takes baskets of any size: one with a diagonal does."""
    return settings["model"] in ("nonsymmetric", CONDITIONAL) and settings["diagonal"] is not False


def without_oversize(baskets: Baskets, rank: int, oversize: str) -> Baskets:
    """The baskets that a model of this rank can learn from."""
    larger = baskets.sizes > rank
    if larger.all() and oversize == "drop":
        raise DataError(f"every basket has more than {rank} items: choose a larger --n-components, or --oversize clip")
    return baskets.subset(~larger) if oversize == "drop" else baskets


def hold_out(baskets: Baskets, share: float, seed: int) -> tuple[Baskets, Baskets | None]:
    """Baskets to learn from, and some to measure with unless there are too few."""
    n_test = min(round(share * baskets.n_baskets), MOST_TO_TEST)
    if n_test < 1 or baskets.n_baskets < FEWEST_TO_TEST:
        return baskets, None
    return baskets.split(n_test, random_state=seed)


def train(run: Run) -> None:
    """Fit the model."""
    started = time.perf_counter()
    baskets, negatives = run.learned, None
    if run.feedback is not None:
        log = run.given["feedback"]
        baskets = Baskets.concat([baskets, read_choices(log, taken=not run.by_choice)])
        negatives = None if run.by_choice else run.feedback.negatives or None
    try:
        if run.cluster is not None:
            run.model.fit(run.cluster, engine=run.given["engine"], validation=run.validation, **on_cluster(run.given))
        else:
            more = {} if run.features is None else {"item_features": run.features}
            run.model.fit(baskets, negatives=negatives, validation=run.validation, **more, **long_run(run.given))
            if run.features is not None and run.given["new_items"]:
                add_unsold(run, run.features)
    finally:
        run.seconds = time.perf_counter() - started


def features_from(given: dict[str, Any]) -> Given:
    """The features of a file."""
    with busy(f"Reading {given['features']} ..."):
        return read_features(given["features"])


def with_labels(baskets: Baskets, features: Given, given: dict[str, Any]) -> Baskets:
    """The baskets with names and categories of the table of features, where they have none."""
    names, categories = labels_of(features, given)
    items = baskets.items
    return baskets.with_names(names | items.names).with_categories(categories | items.categories)


def labels_of(features: Given, given: dict[str, Any]) -> tuple[dict[Any, str], dict[Any, str]]:
    """Names and categories by item: of the columns that are named, names also of one that is called so."""
    guessed = matches(list(features.columns), "name")
    columns = (given["name"] or (guessed[0] if len(guessed) == 1 else None), given["category"])
    names, categories = (
        {item: str(value) for item, value in zip(features.ids or (), features.columns[column].values, strict=True)
         if value is not None}
        if column in features.columns else {}
        for column in columns
    )  # fmt: skip
    return names, categories


def add_unsold(run: Run, features: Given) -> None:
    """Add the items of the table that the model does not know."""
    fresh = [item for item in features.ids or () if item not in run.model.items_]
    names, categories = labels_of(features, run.given)
    run.model.add_items(fresh, features.take(fresh), names=names, categories=categories)


def for_cluster(data: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The file to choose settings by, and the options with what a cluster asks for."""
    if given["feedback"] is not None or given["features"] is not None or isinstance(given["validation"], str):
        raise click.UsageError("--engine ray takes neither --feedback nor --features nor a file for --validation")
    largest = max(list_files(data), key=lambda file: file.n_rows)
    return largest.path.removeprefix("file://"), given | {"test_size": 0.0}


def on_cluster(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `fit` that only a cluster needs."""
    columns = {name: given[name] for name in COLUMNS}
    own = {name: given[name] for name in OPTIONS["A cluster"] if name != "engine"}
    return long_run(given) | own | {"columns": columns}


def long_run(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `fit` that keep a long run from being lost, if a checkpoint is asked for."""
    return {} if given["checkpoint"] is None else {name: given[name] for name in OPTIONS["Long runs"]}


def judge(run: Run) -> None:
    """Measure the model on the baskets that were held out, and draw the examples."""
    if run.test is None:
        return
    with busy("Measuring on held-out baskets ..."):
        run.measured = measure({run.name: run.model}, run.learned, run.test)
        run.examples = examples(run.model, run.test, seed=run.given["random_state"])


# -- What the data decide -----------------------------------------------------------------------------


def choose(baskets: Baskets, given: dict[str, Any]) -> list[Choice]:
    """What is left open in the options, each with its reason; later ones may depend on earlier ones."""
    choices: list[Choice] = []
    for option, maker in MAKERS.items():
        if given[option] is None:
            settled = given | {choice.option: choice.value for choice in choices}
            choices.append(Choice(option, *maker(baskets, settled)))
    return choices


def _model(baskets: Baskets, given: dict[str, Any]) -> tuple[str, str]:
    for option in KNOBS:
        value = given[option]
        if value is not None and is_symmetric(option):
            return "lowrank", f"{written(option, value)} is for symmetric kernels"
    if given["objective"] == "mle" and baskets.n_items > MOST_TO_INVERT:
        return "lowrank", f"with more than {MOST_TO_INVERT:,} items only its likelihood can be maximised"
    return DEFAULT_MODEL, "what was bought together, and a kernel whose items attract and repel: the best next items"


def _rank(baskets: Baskets, given: dict[str, Any]) -> tuple[int, str]:
    if any_size(given):
        rank = min(int(default_of("n_components", given["model"])), baskets.n_items)
        return rank, "a matter of taste: baskets may have any size"
    sizes = baskets.sizes
    most = int(np.quantile(sizes, 0.95, method="higher"))
    rank = min(max(-(-most // 10) * 10, LEAST_RANK), MOST_RANK, baskets.n_items)
    larger = int((sizes > rank).sum())
    if not larger:
        return rank, f"no basket has more than {int(sizes.max())} items"
    what = {"drop": "left out", "clip": "cut to that size", "error": "refused"}[given["oversize"]]
    return rank, f"{1 - larger / len(sizes):.0%} of the baskets fit; {larger:,} larger ones are {what}"


def _objective(baskets: Baskets, given: dict[str, Any]) -> tuple[str, str]:
    if baskets.n_items > DENSE_CATALOGUE and given["model"] == "lowrank":
        return "dynamic", f"its cost does not grow with the {baskets.n_items:,} items"
    return "exact", "predicts each item from the rest of its basket, without sampling noise"


def _batch_size(baskets: Baskets, given: dict[str, Any]) -> tuple[int, str]:
    size = min(max(baskets.n_baskets // STEPS_A_ROUND, 50), int(default_of("batch_size", given["model"])))
    return size, f"some {max(baskets.n_baskets // size, 1):,} steps a round"


def _calibrate(baskets: Baskets, given: dict[str, Any]) -> tuple[Any, str]:  # noqa: ARG001
    return default_of("calibrate", given["model"]), "the model's baskets become as large as the real ones"


def _max_iter(baskets: Baskets, given: dict[str, Any]) -> tuple[Any, str]:  # noqa: ARG001
    return default_of("max_iter", given["model"]), "at most; training ends when validation baskets gain no more"


MAKERS: dict[str, Callable[[Baskets, dict[str, Any]], tuple[Any, str]]] = {
    "model": _model, "n_components": _rank, "objective": _objective, "batch_size": _batch_size,
    "calibrate": _calibrate, "max_iter": _max_iter,
}  # fmt: skip
