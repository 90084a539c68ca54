"""`contradpp doctor`: is everything here that the library needs, and does it work?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

import contradpp as cd
from contradpp._threads import resolve_n_jobs
from contradpp.cli.output import Column, busy, in_bytes, json_option, show_json, show_table
from contradpp.data import datasets
from contradpp.dpp import compiled

SIGNS = {"ok": "✓", "note": "·", "failed": "✗"}
LEAST_MEMORY = 500e6
LIBRARIES = ("numpy", "scipy", "numba", "pyarrow", "safetensors", "threadpoolctl", "click", "rich")
EXTRAS = {
    "serve": ("fastapi", "prometheus_client", "uvicorn"), "plot": ("matplotlib",), "ray": ("ray",), "tune": ("optuna",),
}  # fmt: skip


class Check(NamedTuple):
    """What was looked at, "ok", "note" or "failed", what was found, and what to do about it."""

    name: str
    verdict: str
    found: str
    advice: str = ""


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check the installation: versions, threads, BLAS, compile cache, memory, extras, and a short self-test.

    Exits with 1 if a check failed.
    """
    found: list[Check] = []
    for title, examine in ALL.items():
        with busy(f"{title} ..."):
            found += examined(title, examine)
    failed = [check for check in found if check.verdict == "failed"]
    if as_json:
        show_json({"ok": not failed, "checks": [check._asdict() for check in found]})
    else:
        _show(found, failed)
    sys.exit(1 if failed else 0)


def examined(title: str, examine: Callable[[], list[Check] | str]) -> list[Check]:
    """The findings, what a self-test says and how long it took, or the failure of either."""
    started = time.perf_counter()
    try:
        found = examine()
    except Exception as error:
        advice = "reinstall contradpp; if that does not help, report this with the output of `contradpp doctor --json`"
        return [Check(title, "failed", f"{type(error).__name__}: {error}", advice)]
    seconds = time.perf_counter() - started
    return [Check(title, "ok", f"{found} ({seconds:.1f} s)")] if isinstance(found, str) else found


def _show(found: list[Check], failed: list[Check]) -> None:
    rows: list[list[Any]] = [[SIGNS[check.verdict], check.name, check.found] for check in found]
    show_table([Column(""), Column("check"), Column("found")], rows)
    for check in found:
        if check.advice:
            click.echo(f"{SIGNS[check.verdict]} {check.name}: {check.advice}")
    click.echo(f"{len(failed)} of {len(found)} checks failed." if failed else "Everything works.")


# -- What is looked at -----------------------------------------------------------------------------------


def versions() -> list[Check]:
    """Our version, Python's, and those of the libraries."""
    known = [f"{library} {importlib.metadata.version(library)}" for library in LIBRARIES]
    where = str(Path(cd.__file__).parent)
    return [
        Check("contradpp", "ok", f"{cd.__version__} in {where}"),
        Check("Python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        Check("libraries", "ok", ", ".join(known)),
    ]


def threads() -> list[Check]:
    """How many threads there are, and which BLAS multiplies matrices."""
    import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS, so that it is found too)
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    blas = ", ".join(f"{p['internal_api']} {p['version'] or '?'} ({p['num_threads']} threads)" for p in pools)
    usable, cores = resolve_n_jobs(None), os.cpu_count() or 1
    found = f"{usable} usable of {cores} cores"
    return [
        Check("threads", "ok", found),
        Check("BLAS", "ok" if pools else "note", blas or "none found", "" if pools else "matrix products may be slow"),
    ]


def compile_cache() -> list[Check]:
    """Where Numba keeps compiled kernels, whether it can, and whether they are there already."""
    kernel: Any = compiled.kernels.bases_of_sets
    folder = Path(kernel.stats.cache_path)
    writable = folder.is_dir() and os.access(folder, os.W_OK)
    files = len(list(folder.glob("*.nbc"))) if folder.is_dir() else 0
    found = f"{folder}, {files} kernels compiled" if files else f"{folder}, empty: the first use compiles"
    if not writable:
        advice = "what is not there is compiled by every start: set NUMBA_CACHE_DIR to a folder where you may write"
        return [Check("compile cache", "note", f"{found}; it cannot be written to", advice)]
    return [Check("compile cache", "ok", found)]


def memory() -> list[Check]:
    """How much memory is free, and where data are kept."""
    free = free_memory()
    short = free is not None and free < LEAST_MEMORY
    shown = "unknown" if free is None else f"{in_bytes(free)} free"
    cache, given = datasets.cache_folder(), os.environ.get("CONTRADPP_DATA")
    return [
        Check("memory", "note" if short else "ok", shown, "large catalogues may not fit" if short else ""),
        Check("data folder", "ok", f"CONTRADPP_DATA={given}, cache {cache}" if given else f"cache {cache}"),
    ]


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> float | None:
    """Bytes of memory that a program can still have, None if the system does not say."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
        return float(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def extras() -> list[Check]:
    """Which optional parts are installed."""
    there = {extra: all(map(importlib.util.find_spec, modules)) for extra, modules in EXTRAS.items()}
    missing = [extra for extra, present in there.items() if not present]
    found = ", ".join(f"{extra} {'yes' if present else 'no'}" for extra, present in there.items())
    advice = f"pip install 'contradpp[{','.join(missing)}]' adds what is missing" if missing else ""
    return [Check("extras", "note" if missing else "ok", found, advice)]


# -- Three small experiments -----------------------------------------------------------------------------


def enumeration() -> str:
    """All subsets of five items have probabilities that sum to one and are those of the definition."""
    V = np.random.default_rng(0).normal(size=(5, 3))
    L = V @ V.T
    subsets = [list(part) for size in range(6) for part in itertools.combinations(range(5), size)]
    found = np.exp(cd.LowRankDPP.from_factors(V).score_samples(subsets))
    expected = [np.linalg.det(L[np.ix_(part, part)]) for part in subsets] / np.linalg.det(np.eye(5) + L)
    _require(abs(found.sum() - 1) < 1e-9, f"the probabilities of all subsets sum to {found.sum()}")
    _require(np.allclose(found, expected, atol=1e-9), "the probabilities are not those of the definition")
    return f"{len(subsets)} probabilities agree with their definition"


def training() -> str:
    """A model of a small shop learns which two never meet."""
    model = _small_model()
    together, apart = (np.exp(model.score(pair)) for pair in ([["tea", "milk"]], [["tea", "coffee"]]))
    _require(together > 2 * apart, f"pairs that meet have probability {together:.3f}, others {apart:.3f}")
    return f"{model.n_iter_} rounds; pairs that meet have probability {together:.3f}, others {apart:.3f}"


def round_trip() -> str:
    """A model that is saved and read has the same factors, to the last bit."""
    model = _small_model()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        again: Any = cd.load(path)
    _require(np.array_equal(again.item_factors_, model.item_factors_), "the factors differ")
    return "saved and read back, equal to the last bit"


def _small_model() -> cd.LowRankDPP:
    shop = [["tea", "milk"], ["coffee", "milk"], ["coffee", "sugar"], ["tea", "sugar"]] * 100
    return cd.LowRankDPP(n_components=3, objective="exact", batch_size=20, random_state=0).fit(shop)


def _require(good: Any, otherwise: str) -> None:
    if not good:
        raise ArithmeticError(otherwise)


ALL: dict[str, Callable[[], list[Check] | str]] = {
    "versions": versions, "threads": threads, "compile cache": compile_cache, "memory": memory, "extras": extras,
    "exact probabilities": enumeration, "training": training, "model file": round_trip,
}  # fmt: skip
