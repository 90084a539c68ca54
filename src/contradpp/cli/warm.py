"""`contradpp warm`: compile the kernels now, so that the first call of a user or a service does not wait for them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import contradpp as cd
from contradpp.cli.output import busy, json_option, show_json
from contradpp.dpp import compiled


def _shop() -> cd.Baskets:
    return cd.datasets.load("grocer", n_baskets=600, random_state=0)


def _learn() -> None:
    """What `fit` does, and what is asked of its model."""
    shop = _shop()
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(4, 4, max_iter=2), random_state=0).fit(shop)
    model.explain([shop.items[0]], shop.items[1])
    _ask(model, shop)


def _learn_by(objective: str) -> None:
    shop = _shop()
    _ask(cd.LowRankDPP(32, objective=objective, max_iter=2, oversize="drop", random_state=0).fit(shop), shop)


def _ask(model: Any, shop: cd.Baskets) -> None:
    """What is asked first comes first: someone may be waiting for it."""
    basket = [shop.items[0], shop.items[1]]
    cd.evaluate(model, shop.subset(range(50)))
    for question in (model.recommend, model.slate):
        question(basket, N=3)
    model.complete(basket, size=4)
    model.sample(2, random_state=0)


def _compare() -> None:
    """The models that `fit` compares its own with."""
    shop = _shop()
    for model in (cd.baselines.ItemKNN(), cd.baselines.RidgeNeighbours(), cd.baselines.BasketNeighbours()):
        cd.evaluate(model.fit(shop), shop.subset(range(50)))


JOBS: dict[str, Callable[[], None]] = {
    "the default model": _learn, "other models": _compare,
    "dynamic negatives": lambda: _learn_by("dynamic"), "the exact objective": lambda: _learn_by("exact"),
}  # fmt: skip


@click.command()
@click.option("--only", type=click.Choice(list(JOBS)), hidden=True)
@click.option("--n-jobs", type=click.IntRange(1), help="Processes at a time; as many as cores if left out.")
@json_option
def warm(only: str | None, n_jobs: int | None, as_json: bool) -> None:
    """Compile the kernels, as the first fit and the first questions would; where they are at hand, only check that.

    Do it when you install, or when you build an image: NUMBA_CACHE_DIR says where compiled kernels are kept, else it is
    beside the package, or in your own cache folder where that cannot be written to.
    """
    if only is not None:
        JOBS[only]()
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
    return subprocess.run(_command(name), capture_output=True, check=False).returncode


def _command(name: str) -> list[str]:
    return [sys.executable, "-m", "contradpp", "warm", "--only", name]


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Compile the kernels of the default model in another process meanwhile, if no one has done that yet."""
    if _at_hand():
        yield
        return
    ahead = subprocess.Popen(_command(next(iter(JOBS))), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        ahead.terminate()
        ahead.wait()


def _at_hand() -> bool:
    """Whether the default model has been learned here before: no other compiles this kernel."""
    kernel: Any = compiled.relevance.add_feature
    return any(Path(kernel.stats.cache_path).glob("relevance.*.nbi"))
