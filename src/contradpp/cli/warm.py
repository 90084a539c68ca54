"""`contradpp warm`: compile the kernels, so that the first call does not wait for it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import click
import numpy as np

import contradpp as cd
from contradpp.cli.output import busy, json_option, show_json
from contradpp.dpp.ahead import DEMO, FIT, NEGATIVES, command, environment
from contradpp.experts.base import Recommender
from contradpp.experts.statistics import BasketStatistics
from contradpp.learn.state import State
from contradpp.models.base import DPPRecommender
from contradpp.models.conditional import fit_combination

# -- What the jobs compile, most urgent first: someone may be waiting for it -----------------------


def _shop() -> cd.Baskets:
    return cd.datasets.load("grocer", n_baskets=1500, random_state=0)  # enough to learn slates from


def _query(model: DPPRecommender, shop: cd.Baskets) -> None:
    """Compile what a model needs after training."""
    basket = [shop.items[0], shop.items[1]]
    model.recommend(basket, N=3)
    _evaluate(model, shop)
    model.slate(basket, N=3)
    model.complete(basket, size=4)
    model.sample(2, random_state=0)


def _evaluate(model: Recommender, shop: cd.Baskets) -> None:
    cd.evaluate(model, shop.subset(range(50)))


def _default_model() -> None:
    """Compile what `fit` and its model need."""
    shop = _shop()
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(4, 4, max_iter=2), random_state=0).fit(shop)
    model.explain([shop.items[0]], shop.items[1])
    _query(model, shop)


def _lowrank_model(objective: str) -> None:
    model = cd.LowRankDPP(32, objective=objective, max_iter=2, oversize="drop", random_state=0)
    _query(model.fit(_shop()), _shop())


def _baselines() -> None:
    """Compile the baselines that `fit` compares its model with."""
    shop = _shop()
    for model in (cd.baselines.ItemKNN(), cd.baselines.RidgeNeighbors(), cd.baselines.BasketKNN()):
        _evaluate(model.fit(shop), shop)


def _after_training() -> None:
    """Compile what `fit` needs after training; another process compiles the training itself."""
    cd.rerank([0, 1], [1.0, 0.5], vectors=np.eye(2, dtype=np.float32))
    _baselines()
    shop = _shop()
    model = cd.ConditionalDPP(random_state=0)
    statistics = BasketStatistics(shop)
    fit_combination(
        model,
        _nonsymmetric_model(shop),
        shop.subset(range(200)),
        statistics,
        BasketStatistics(shop),
    )
    _query(model, shop)


def _nonsymmetric_model(shop: cd.Baskets) -> cd.NonsymmetricDPP:
    """Return a kernel with all of its parts, without training."""
    n = shop.n_items
    skew = np.zeros((n, n))
    skew[0, 1] = 0.1
    return cd.NonsymmetricDPP.from_factors(
        np.eye(n, 2), S=skew - skew.T, items=shop.items, diagonal=np.ones(n)
    )


def _after_negatives() -> None:
    """Compile what a symmetric kernel needs apart from negatives: half of the time of `fit`."""
    State(np.eye(2)).conditional_log_likelihood(cd.Baskets.from_lists([[0, 1]]).sets)
    shop = _shop()
    model = cd.LowRankDPP.from_factors(np.eye(shop.n_items), items=shop.items)
    model.sample(2, random_state=0)  # the process that waits compiles `recommend` itself
    _query(model, shop)


def _demo() -> None:
    """Compile what `demo` needs after the two models that it learns first."""
    _default_model()
    _baselines()
    shop = _shop()
    V = np.random.default_rng(0).normal(size=(shop.n_items, 40))
    for model in (cd.LowRankDPP.from_factors(V, items=shop.items), _nonsymmetric_model(shop)):
        _evaluate(model, shop)


JOBS: dict[str, Callable[[], None]] = {
    "the default model": _default_model,
    "other models": _baselines,
    "dynamic negatives": lambda: _lowrank_model("dynamic"),
    "the exact objective": lambda: _lowrank_model("exact"),
}
# Jobs of a second process, which compiles while a command is at work (see `contradpp.dpp.ahead`).
ALL_JOBS = JOBS | {FIT: _after_training, DEMO: _demo, NEGATIVES: _after_negatives}


@click.command()
@click.option("--only", type=click.Choice(list(ALL_JOBS)), hidden=True)
@click.option("--n-jobs", type=click.IntRange(1), help="Processes at a time; default: all cores.")
@json_option
def warm(only: str | None, n_jobs: int | None, as_json: bool) -> None:
    """Compile the kernels that fitting and using a model need, unless they are compiled already.

    Run it after installation, or when you build an image. The environment variable NUMBA_CACHE_DIR
    sets the folder for compiled kernels. The default is beside the package, or your own cache
    folder if that is not writable.
    """
    if only is not None:
        ALL_JOBS[only]()
        return
    started = time.perf_counter()
    with busy("Compiling ..."), ThreadPoolExecutor(n_jobs or os.cpu_count() or 1) as pool:
        codes = dict(zip(JOBS, pool.map(_run_in_process, JOBS), strict=True))
    if failed := [name for name, code in codes.items() if code]:
        raise click.ClickException(
            f"could not compile {', '.join(failed)}: `contradpp doctor` may tell the reason"
        )
    seconds = time.perf_counter() - started
    if as_json:
        show_json({"seconds": seconds})
    else:
        click.echo(f"The kernels are compiled ({seconds:.1f} s).")


def _run_in_process(name: str) -> int:
    done = subprocess.run(command(name), env=environment(), capture_output=True, check=False)
    return done.returncode
