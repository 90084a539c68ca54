"""`contradpp warm`: compile the kernels now, so that the first call of a user or a service does not wait for them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click
import numpy as np

import contradpp as cd
from contradpp.cli.output import busy, json_option, show_json
from contradpp.dpp.ahead import DEMO, FIT, NEGATIVES, command, environment
from contradpp.experts.statistics import Labour
from contradpp.learn.state import State


def _shop() -> cd.Baskets:
    return cd.datasets.load("grocer", n_baskets=1500, random_state=0)  # enough to learn slates from


def _learn() -> None:
    """What `fit` does, and what is asked of its model."""
    shop = _shop()
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(4, 4, max_iter=2), random_state=0).fit(shop)
    model.explain([shop.items[0]], shop.items[1])
    _ask(model, shop)


def _after_training() -> None:
    """What `fit` does after training, for which half of its time goes into one kernel: what takes longest first."""
    cd.rerank([0, 1], [1.0, 0.5], vectors=np.eye(2, dtype=np.float32))
    _compare()
    shop = _shop()
    model = cd.ConditionalDPP(random_state=0)
    model.learn_voices(_attracting(shop), shop.subset(range(200)), Labour(shop), Labour(shop))
    _ask(model, shop)


def _attracting(shop: cd.Baskets) -> cd.NonsymmetricDPP:
    """A kernel with all of its parts, without learning it."""
    skew = np.zeros((shop.n_items, shop.n_items))
    skew[0, 1], skew[1, 0] = 0.1, -0.1
    factors, diagonal = np.eye(shop.n_items, 2), np.ones(shop.n_items)
    return cd.NonsymmetricDPP.from_factors(factors, S=skew, items=shop.items, diagonal=diagonal)


def _learn_by(objective: str) -> None:
    shop = _shop()
    _ask(cd.LowRankDPP(32, objective=objective, max_iter=2, oversize="drop", random_state=0).fit(shop), shop)


def _next_items() -> None:
    """What a symmetric kernel needs whose negatives are drawn, but for the negatives: half of the time of `fit`."""
    State(np.eye(2)).conditional_log_likelihood(cd.Baskets.from_lists([[0, 1]]).sets)
    shop = _shop()
    model = cd.LowRankDPP.from_factors(np.eye(shop.n_items), items=shop.items)
    model.sample(2, random_state=0)  # what is asked first has begun to be compiled by whoever asks
    _ask(model, shop)


def _ask(model: Any, shop: cd.Baskets) -> None:
    """What is asked first comes first: someone may be waiting for it."""
    basket = [shop.items[0], shop.items[1]]
    model.recommend(basket, N=3)
    cd.evaluate(model, shop.subset(range(50)))
    model.slate(basket, N=3)
    model.complete(basket, size=4)
    model.sample(2, random_state=0)


def _compare() -> None:
    """The models that `fit` compares its own with."""
    shop = _shop()
    for model in (cd.baselines.ItemKNN(), cd.baselines.RidgeNeighbours(), cd.baselines.BasketNeighbours()):
        cd.evaluate(model.fit(shop), shop.subset(range(50)))


def _show() -> None:
    """What `demo` needs after two other models, which it learns first and compares at the end."""
    _learn()
    _compare()
    shop = _shop()
    rng = np.random.default_rng(0)
    symmetric = cd.LowRankDPP.from_factors(rng.normal(size=(shop.n_items, 40)), items=shop.items)
    for model in (symmetric, _attracting(shop)):
        cd.evaluate(model, shop.subset(range(50)))


JOBS: dict[str, Callable[[], None]] = {
    "the default model": _learn, "other models": _compare,
    "dynamic negatives": lambda: _learn_by("dynamic"), "the exact objective": lambda: _learn_by("exact"),
}  # fmt: skip
# What another process compiles while we are at work.
ALONE = JOBS | {FIT: _after_training, DEMO: _show, NEGATIVES: _next_items}


@click.command()
@click.option("--only", type=click.Choice(list(ALONE)), hidden=True)
@click.option("--n-jobs", type=click.IntRange(1), help="Processes at a time; as many as cores if left out.")
@json_option
def warm(only: str | None, n_jobs: int | None, as_json: bool) -> None:
    """Compile the kernels, as the first fit and the first questions would; where they are at hand, only check that.

    Do it when you install, or when you build an image: NUMBA_CACHE_DIR says where compiled kernels are kept, else it is
    beside the package, or in your own cache folder where that cannot be written to.
    """
    if only is not None:
        ALONE[only]()
        return
    started = time.perf_counter()
    with busy("Compiling ..."), ThreadPoolExecutor(n_jobs or os.cpu_count() or 1) as pool:
        failed = [name for name, code in zip(JOBS, pool.map(_in_a_process, JOBS), strict=True) if code]
    if failed:
        raise click.ClickException(f"could not compile {', '.join(failed)}: `contradpp doctor` may say why")
    seconds = time.perf_counter() - started
    if as_json:
        show_json({"seconds": seconds})
    else:
        click.echo(f"The kernels are compiled ({seconds:.1f} s).")


def _in_a_process(name: str) -> int:
    return subprocess.run(command(name), env=environment(), capture_output=True, check=False).returncode
