"""`contradpp doctor`: a check of the installation."""

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
from contradpp.cli.output import busy, json_option, show_json, show_table
from contradpp.data import datasets
from contradpp.dpp import compiled

SIGNS = {"ok": "✓", "note": "·", "failed": "✗"}
MIN_MEMORY = 500e6
LIBRARIES = ("numpy", "scipy", "numba", "pyarrow", "safetensors", "scikit-learn", "click", "rich")
EXTRAS = {
    "report": ("jinja2",),
    "serve": ("fastapi", "prometheus_client", "prometheus_fastapi_instrumentator", "uvicorn"),
    "plot": ("matplotlib",),
    "ray": ("ray", "fsspec"),
    "download": ("pooch", "python_calamine"),
    "tune": ("optuna",),
    "excel": ("python_calamine",),
}


Found = str | tuple[str, str]  # what a check found, and advice for what could be better


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check the installation: versions, threads, BLAS, compile cache, memory, extras, a self-test.

    Exits with 1 if a check failed.
    """
    results = []
    for name, check in CHECKS.items():
        with busy(f"{name} ..."):
            results.append({"name": name, **run_check(check)})
    failed = [result for result in results if result["status"] == "failed"]
    if as_json:
        show_json({"ok": not failed, "checks": results})
    else:
        rows = [[SIGNS[one["status"]], one["name"], one["found"]] for one in results]
        show_table(["", "check", "found"], rows)
        for one in results:
            if one["advice"]:
                click.echo(f"{SIGNS[one['status']]} {one['name']}: {one['advice']}")
        summary = f"{len(failed)} of {len(results)} checks failed."
        click.echo(summary if failed else "Everything works.")
    sys.exit(bool(failed))


def run_check(check: Callable[[], Found]) -> dict[str, str]:
    """Return the status of a check ("ok", "note" or "failed"), what it found, and advice."""
    try:
        found = check()
    except Exception as error:
        advice = (
            "reinstall contradpp; if that does not help, report it with the output of "
            "`contradpp doctor --json`"
        )
        return {"status": "failed", "found": f"{type(error).__name__}: {error}", "advice": advice}
    if isinstance(found, str):
        return {"status": "ok", "found": found, "advice": ""}
    return {"status": "note", "found": found[0], "advice": found[1]}


def blas() -> Found:
    """Find the BLAS libraries."""
    import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS, so that it is found too)
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not pools:
        return "none found", "matrix products may be slow"
    return ", ".join(
        f"{p['internal_api']} {p['version'] or '?'} ({p['num_threads']} threads)" for p in pools
    )


def compile_cache() -> Found:
    """Find where Numba caches compiled kernels, how many there are, and whether it can write."""
    kernel: Any = compiled.kernels.bases_of_sets
    folder = Path(kernel.stats.cache_path)
    files = len(list(folder.glob("*.nbc")))
    state = f"{files} kernels compiled" if files else "empty: the first use compiles"
    found = f"{folder}, {state}"
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        advice = "every start compiles again: set NUMBA_CACHE_DIR to a folder where you may write"
        return f"{found}; not writable", advice
    return found


def memory() -> Found:
    """Find how much memory is available."""
    free = free_memory()
    if free is None:
        return "unknown"
    found = f"{decimal(int(free))} free"
    return (found, "large catalogues may not fit") if free < MIN_MEMORY else found


def data_folder() -> str:
    """Find where data sets are stored."""
    given = os.environ.get("CONTRADPP_DATA")
    return (f"CONTRADPP_DATA={given}, " if given else "") + f"cache {datasets.cache_folder()}"


def extras() -> Found:
    """Find which extras are installed."""
    missing = [extra for extra, modules in EXTRAS.items() if not all(map(find_spec, modules))]
    found = ", ".join(f"{extra} {'no' if extra in missing else 'yes'}" for extra in EXTRAS)
    advice = f"pip install 'contradpp[{','.join(missing)}]' adds what is missing"
    return (found, advice) if missing else found


def self_test() -> str:
    """Check that a small model learns, has the right probabilities, and can be saved and loaded."""
    shop = [["tea", "milk"], ["coffee", "milk"], ["coffee", "sugar"], ["tea", "sugar"]] * 100
    model = cd.LowRankDPP(n_components=3, objective="exact", max_iter=20, random_state=0).fit(shop)
    V: Any = model.item_factors_
    subsets = [list(part) for size in range(5) for part in itertools.combinations(range(4), size)]
    normalizer = np.linalg.det(np.eye(4) + V @ V.T)
    expected = [np.linalg.det(V[part] @ V[part].T) / normalizer for part in subsets]
    found = np.exp(model.score_samples([[model.items_[code] for code in part] for part in subsets]))
    if not np.allclose(found, expected, atol=1e-6):
        raise ArithmeticError(
            f"the probabilities of all sets differ from their definition, and sum to {found.sum()}"
        )
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.safetensors")
        again: Any = cd.load(Path(folder) / "model.safetensors")
    if not np.array_equal(again.item_factors_, V):
        raise ArithmeticError("a saved and loaded model has other factors")
    return f"{len(subsets)} probabilities agree with their definition; saved and loaded"


CHECKS: dict[str, Callable[[], Found]] = {
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
