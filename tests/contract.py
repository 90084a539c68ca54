"""What every model of ours promises: the table of models, and data whose right answer is known.

The data are a checkerboard: red items are substitutes for each other, black ones too, and who buys a red item buys a
black one with it. So whatever is red makes every black item a better next one than every other red item.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import contradpp as cd

RED, BLACK = ["r0", "r1", "r2", "r3"], ["b0", "b1", "b2", "b3"]
FAST = {"alpha": 0.1, "optimizer": cd.optimizers.Adam(batch_size=50), "max_iter": 20, "n_jobs": 1, "random_state": 0}

NEXT = frozenset({"next"})  # fit, predict_next, recommend: what every model has
BOARD = frozenset({"board"})  # tells what goes together from what is popular
SETS = frozenset({"sets"})  # a law of sets: score_samples
DPP = frozenset(
    {
        "marginals",
        "condition",
        "complete",
        "slate",
        "sample",
        "similar",
        "partial_fit",
        "save",
        "params",
        "seed",
    }
)
ALL = NEXT | BOARD | SETS | DPP
# Besides, "complements"; "listens": next items are judged by more than the kernel; "iterates": stops near the best.


@cache
def checkerboard() -> cd.Baskets:
    """400 baskets of a red and a black item, and 20 triples of any, so that no set is impossible."""
    rng = np.random.default_rng(0)
    items, share = RED + BLACK, np.array([0.3, 0.26, 0.23, 0.21])
    pairs = [[RED[rng.choice(4, p=share)], BLACK[rng.choice(4, p=share)]] for _ in range(400)]
    triples = [[items[i] for i in rng.choice(8, 3, replace=False)] for _ in range(20)]
    lists = pairs + triples
    return cd.Baskets.from_lists([lists[i] for i in rng.permutation(len(lists))], items=items)


@dataclass
class Neighbors:
    """A model such as the `implicit` package has: it learns an item-item similarity."""

    def fit(self, matrix: Any, show_progress: bool = True) -> None:
        """Count what is together."""
        together = matrix.T @ matrix
        together.setdiag(0)
        self.similarity = together.tocsr()

    def recommend(self, *given: Any) -> None:
        """There because a model of `implicit` has it."""


@dataclass(frozen=True)
class Row:
    """A model of the table: how to make it, and what it can do."""

    make: Callable[[], Any]
    can: frozenset[str]


def _lowrank(objective: str) -> Row:
    return Row(lambda: cd.LowRankDPP(5, objective=objective, **FAST), ALL)


def _nonsymmetric(objective: str) -> Row:
    return Row(lambda: cd.NonsymmetricDPP(5, 4, objective=objective, **FAST), ALL | {"complements"})


ROWS: dict[str, Row] = {
    **{f"lowrank-{name}": _lowrank(name) for name in ("dynamic", "mle", "explicit", "product", "nce", "exact")},
    **{f"nonsymmetric-{name}": _nonsymmetric(name) for name in ("exact", "dynamic", "mle")},
    "mixture": Row(
        lambda: cd.MixtureDPP(
            cd.NonsymmetricDPP(5, 4, **FAST | {"random_state": None}), 3, smoothing=5.0, n_jobs=1, random_state=0
        ),
        ALL - {"params"} | {"complements"},
    ),
    "conditional": Row(
        lambda: cd.ConditionalDPP(cd.NonsymmetricDPP(5, 4, **FAST), n_jobs=1, random_state=0),
        ALL - {"params"} | {"complements", "listens"},
    ),
    "popularity": Row(cd.baselines.Popularity, NEXT | SETS),
    "personal-frequency": Row(cd.baselines.PersonalFrequency, NEXT),
    "item-knn": Row(cd.baselines.ItemKNN, NEXT | BOARD),
    "ridge-neighbors": Row(lambda: cd.baselines.RidgeNeighbors(n_jobs=1), NEXT | BOARD),
    "basket-neighbors": Row(lambda: cd.baselines.BasketKNN(n_jobs=1), NEXT | BOARD),
    "ease": Row(cd.baselines.EASE, NEXT | BOARD),
    "loglinear": Row(lambda: cd.baselines.LogLinear(n_jobs=1), NEXT | BOARD | {"iterates"}),
    "implicit": Row(lambda: cd.baselines.Implicit(Neighbors()), NEXT | BOARD),
}


def rows_that(*can: str) -> list[str]:
    """The names of the rows with these capabilities."""
    return [name for name, row in ROWS.items() if set(can) <= row.can]


@cache
def fitted(name: str) -> Any:
    """The model of a row, fitted to the checkerboard once; a test that changes it takes a copy."""
    return ROWS[name].make().fit(checkerboard())


BASKETS = [[], ["r0"], ["b3"], ["r1", "b2"], ["r0", "r2", "b1"]]


def answers(model: Any) -> bytes:
    """What a model says, as bytes: two models that say the same have learned the same."""
    said = [repr(list(model.items_)).encode(), model.predict_next(BASKETS).tobytes()]
    if hasattr(model, "score_samples"):
        said.append(model.score_samples(BASKETS).tobytes())
    if hasattr(model, "sample"):
        said += [model.sample(20, random_state=1).indices.tobytes(), model.marginals(["r1"]).tobytes()]
    params = " ".join(repr(model.get_params()).split())
    said.append(re.sub(r"'?\w*n_jobs'?(=|: )\w+,? ?", "", params).encode())  # a file does not hold it
    return b"|".join(said)
