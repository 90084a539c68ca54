"""`contradpp doctor`: is everything here that the library needs, and does it work?"""

from __future__ import annotations

import itertools
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.filesize import decimal

import contradpp as cd
from contradpp._threads import resolve_n_jobs
from contradpp.cli.inputs import free_memory
from contradpp.cli.output import Column, busy, json_option, show_json, show_table
from contradpp.data import datasets
from contradpp.dpp import compiled

SIGNS = {"ok": "✓", "note": "·", "failed": "✗"}
LEAST_MEMORY = 500e6
LIBRARIES = ("numpy", "scipy", "numba", "pyarrow", "safetensors", "scikit-learn", "threadpoolctl", "click", "rich")
EXTRAS = {
    "report": ("jinja2",),
    "serve": ("fastapi", "prometheus_client", "prometheus_fastapi_instrumentator", "uvicorn"),
    "plot": ("matplotlib",),
    "ray": ("ray", "fsspec"),
    "download": ("pooch", "python_calamine"),
    "tune": ("optuna",),
}


class Note(Exception):
    """Something that works, what was found, and what would make it better."""


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check the installation: versions, threads, BLAS, compile cache, memory, extras, and a short self-test.

    Exits with 1 if a check failed.
    """
    found = []
    for name, examine in CHECKS.items():
        with busy(f"{name} ..."):
            found.append({"name": name, **examined(examine)})
    failed = [check for check in found if check["verdict"] == "failed"]
    if as_json:
        show_json({"ok": not failed, "checks": found})
    else:
        rows = [[SIGNS[check["verdict"]], check["name"], check["found"]] for check in found]
        show_table([Column(""), Column("check"), Column("found")], rows)
        for check in found:
            if check["advice"]:
                click.echo(f"{SIGNS[check['verdict']]} {check['name']}: {check['advice']}")
        click.echo(f"{len(failed)} of {len(found)} checks failed." if failed else "Everything works.")
    sys.exit(1 if failed else 0)


def examined(examine: Callable[[], str]) -> dict[str, str]:
    """Return what a check found: "ok", a "note" or that it "failed", and what to do about it."""
    try:
        return {"verdict": "ok", "found": examine(), "advice": ""}
    except Note as note:
        return {"verdict": "note", "found": note.args[0], "advice": note.args[1]}
    except Exception as error:
        advice = "reinstall contradpp; if that does not help, report this with the output of `contradpp doctor --json`"
        return {"verdict": "failed", "found": f"{type(error).__name__}: {error}", "advice": advice}


def blas() -> str:
    """Find the libraries that multiply matrices."""
    import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS, so that it is found too)
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not pools:
        raise Note("none found", "matrix products may be slow")
    return ", ".join(f"{p['internal_api']} {p['version'] or '?'} ({p['num_threads']} threads)" for p in pools)


def compile_cache() -> str:
    """Find where Numba keeps compiled kernels, whether it can, and whether they are there already."""
    kernel: Any = compiled.kernels.bases_of_sets
    folder = Path(kernel.stats.cache_path)
    files = len(list(folder.glob("*.nbc")))
    found = f"{folder}, {files} kernels compiled" if files else f"{folder}, empty: the first use compiles"
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        advice = "what is not there is compiled by every start: set NUMBA_CACHE_DIR to a folder where you may write"
        raise Note(f"{found}; it cannot be written to", advice)
    return found


def memory() -> str:
    """Find how much memory is free."""
    free = free_memory()
    if free is None:
        return "unknown"
    found = f"{decimal(int(free))} free"
    if free < LEAST_MEMORY:
        raise Note(found, "large catalogues may not fit")
    return found


def data_folder() -> str:
    """Find where data sets are kept."""
    given = os.environ.get("CONTRADPP_DATA")
    return (f"CONTRADPP_DATA={given}, " if given else "") + f"cache {datasets.cache_folder()}"


def extras() -> str:
    """Find which optional parts are installed."""
    missing = [extra for extra, modules in EXTRAS.items() if not all(map(find_spec, modules))]
    found = ", ".join(f"{extra} {'no' if extra in missing else 'yes'}" for extra in EXTRAS)
    if missing:
        raise Note(found, f"pip install 'contradpp[{','.join(missing)}]' adds what is missing")
    return found


def self_test() -> str:
    """Check that a small model learns, has the probabilities of its definition, and survives being saved and read."""
    shop = [["tea", "milk"], ["coffee", "milk"], ["coffee", "sugar"], ["tea", "sugar"]] * 100
    model = cd.LowRankDPP(n_components=3, objective="exact", batch_size=20, random_state=0).fit(shop)
    V: Any = model.item_factors_
    subsets = [list(part) for size in range(5) for part in itertools.combinations(range(4), size)]
    expected = [np.linalg.det(V[part] @ V[part].T) for part in subsets] / np.linalg.det(np.eye(4) + V @ V.T)
    found = np.exp(model.score_samples([[model.items_[code] for code in part] for part in subsets]))
    if not np.allclose(found, expected, atol=1e-6):
        raise ArithmeticError(f"the probabilities of all sets are not as defined, and sum to {found.sum()}")
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.safetensors")
        again: Any = cd.load(Path(folder) / "model.safetensors")
    if not np.array_equal(again.item_factors_, V):
        raise ArithmeticError("a model that was saved and read has other factors")
    together, apart = np.exp(again.score_samples([["tea", "milk"], ["tea", "coffee"]]))
    pairs = f"pairs that meet have probability {together:.3f}, others {apart:.3f}"
    if together <= 2 * apart:
        raise ArithmeticError(pairs)
    return f"{len(subsets)} probabilities agree with their definition; saved and read back; {pairs}"


CHECKS: dict[str, Callable[[], str]] = {
    "contradpp": lambda: f"{cd.__version__} in {Path(cd.__file__).parent}",
    "Python": lambda: f"{platform.python_version()} on {platform.system()} {platform.machine()}",
    "libraries": lambda: ", ".join(f"{library} {version(library)}" for library in LIBRARIES),
    "threads": lambda: f"{resolve_n_jobs(None)} usable of {os.cpu_count() or 1} cores",
    "BLAS": blas,
    "compile cache": compile_cache,
    "memory": memory,
    "data folder": data_folder,
    "extras": extras,
    "self-test": self_test,
}
