"""Settings that `fit` picks by looking at the baskets, each with its reason."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from contradpp.cli.models import DEFAULT_MODEL, default_of
from contradpp.data.baskets import Baskets

LEAST_RANK, MOST_RANK = 30, 100
DENSE_CATALOGUE = 20_000  # items up to which a pass over the whole catalogue at every step is cheap
STEPS_A_ROUND = 20
# Options that only a symmetric kernel has.
SYMMETRIC_ONLY = ("objective", "contrast", "negative_ratio", "optimizer", "refresh", "false_negatives",
                  "frequency_power", "monitor", "radius", "settings")  # fmt: skip
FEWEST_TO_TEST = 20
MOST_TO_TEST = 5_000


class Choice(NamedTuple):
    """An option, the value it has been given, and why."""

    option: str
    value: Any
    why: str


def choose(baskets: Baskets, given: dict[str, Any]) -> list[Choice]:
    """What is left open in the options, decided by the data."""
    makers = {
        "model": _model,
        "rank": _rank,
        "objective": _objective,
        "batch_size": _batch_size,
        "calibrate": _calibrate,
        "max_iter": _max_iter,
    }
    choices: list[Choice] = []
    for option, maker in makers.items():
        if given[option] is None:
            settled = given | {choice.option: choice.value for choice in choices}
            choices.append(maker(baskets, settled))
    return choices


def hold_out(baskets: Baskets, share: float, seed: int) -> tuple[Baskets, Baskets | None]:
    """Baskets to learn from, and some to measure with unless there are too few."""
    n_test = min(round(share * baskets.n_baskets), MOST_TO_TEST)
    if n_test < 1 or baskets.n_baskets < FEWEST_TO_TEST:
        return baskets, None
    return baskets.split(n_test, random_state=seed)


def _model(baskets: Baskets, given: dict[str, Any]) -> Choice:  # noqa: ARG001
    for option in SYMMETRIC_ONLY:
        value = given[option]
        if value is not None and (option, value) != ("objective", "exact"):
            return Choice("model", "lowrank", f"--{option.replace('_', '-')} {value} is for symmetric kernels")
    return Choice("model", DEFAULT_MODEL, "its items attract as well as repel, as in most shops")


def _rank(baskets: Baskets, given: dict[str, Any]) -> Choice:
    sizes = baskets.sizes
    most = int(np.quantile(sizes, 0.95, method="higher"))
    rank = min(max(-(-most // 10) * 10, LEAST_RANK), MOST_RANK, baskets.n_items)
    larger = int((sizes > rank).sum())
    if not larger:
        return Choice("rank", rank, f"no basket has more than {int(sizes.max())} items")
    what = {"drop": "left out", "clip": "cut to that size", "error": "refused"}[given["oversize"]]
    return Choice("rank", rank, f"{1 - larger / len(sizes):.0%} of the baskets fit; {larger:,} larger ones are {what}")


def _objective(baskets: Baskets, given: dict[str, Any]) -> Choice:
    if baskets.n_items > DENSE_CATALOGUE and given["model"] == "lowrank":
        return Choice("objective", "dynamic", f"its cost does not grow with the {baskets.n_items:,} items")
    return Choice("objective", "exact", "predicts each item from the rest of its basket, without sampling noise")


def _batch_size(baskets: Baskets, given: dict[str, Any]) -> Choice:
    most = int(default_of("batch_size", given["model"]))
    size = min(max(baskets.n_baskets // STEPS_A_ROUND, 50), most)
    return Choice("batch_size", size, f"some {max(baskets.n_baskets // size, 1):,} steps a round")


def _calibrate(baskets: Baskets, given: dict[str, Any]) -> Choice:  # noqa: ARG001
    return Choice("calibrate", default_of("calibrate"), "the model's baskets become as large as the real ones")


def _max_iter(baskets: Baskets, given: dict[str, Any]) -> Choice:  # noqa: ARG001
    return Choice("max_iter", default_of("max_iter"), "at most; training ends when validation baskets gain no more")
