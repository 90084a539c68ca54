"""The faults of `make test`, many times over: kills, damaged files of every kind, slates with all kinds of rules."""

from __future__ import annotations

import importlib
import json
import logging
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from experiments.speed.timing import head, row, seconds

TESTS = Path(__file__).parents[2] / "tests"
PARTS = {"kills": 20, "workers": 10, "readers": 100_000, "models": 10_000, "slates": 100_000}


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
@click.option("-n", "n", type=int, help=f"How many of each; by default {PARTS}.")
@click.option("--seed", default=0, show_default=True)
def soak(parts: tuple[str, ...], n: int | None, seed: int) -> None:
    """Repeat the faults of the tests: kills of fits and of Ray workers, damaged files, slates with rules."""
    logging.getLogger("contradpp").setLevel(logging.ERROR)  # notes on 100,000 damaged files help nobody
    sys.path.insert(0, str(TESTS))
    runs = {"kills": kills, "workers": worker_kills, "readers": readers, "models": models, "slates": slates}
    failed = []
    for part in parts or PARTS:
        click.echo(f"== {part}")
        if not runs[part](n or PARTS[part], seed):
            failed.append(part)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def kills(n: int, seed: int) -> bool:
    """Kill a fit with SIGKILL at random moments and resume it: the same bytes as an undisturbed one, n times."""
    moments = random.Random(seed)
    fit = [
        sys.executable, "-m", "contradpp", "fit", "grocer", "--model", "lowrank", "--n-components", "24",
        "--objective", "dynamic", "--batch-size", "100", "--max-iter", "3", "--n-jobs", "1", "--test-size", "0",
    ]  # fmt: skip
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.safetensors"
        for _ in range(2):  # the first may compile kernels
            took = seconds(lambda: subprocess.run([*fit, "-o", str(whole)], check=True, **quiet))
        head("killed after", "checkpoint", "bytes")
        equal = 0
        killed = 0
        while killed < n:
            out = Path(folder) / "resumed.safetensors"
            checkpoint = Path(folder) / "checkpoint"
            out.unlink(missing_ok=True)
            checkpoint.unlink(missing_ok=True)
            words = [*fit, "-o", str(out), "--checkpoint", str(checkpoint), "--resume", "--checkpoint-every", "3"]
            moment = moments.uniform(0, took)
            try:
                subprocess.run(words, timeout=moment, check=True, **quiet)
                continue  # it finished before the kill, so this does not count
            except subprocess.TimeoutExpired:
                killed += 1
            had = checkpoint.exists()
            subprocess.run(words, check=True, **quiet)
            same = out.read_bytes() == whole.read_bytes()
            equal += same
            row(f"{moment:.2f} s", "with" if had else "without", "equal" if same else "DIFFERENT")
    click.echo(f"{equal} of {n} results are byte-equal")
    return equal == n


def worker_kills(n: int, seed: int) -> bool:
    """Hold up and then kill Ray workers, n runs: all finish with the bytes of an undisturbed run."""
    rng = np.random.default_rng(seed)
    lists = [[f"item {i}" for i in rng.choice(40, size=rng.integers(1, 6), replace=False)] for _ in range(1500)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "baskets"
        place.mkdir()
        for part in range(4):
            column = pa.array(lists[part::4], type=pa.list_(pa.string()))
            pq.write_table(pa.table({"items": column}), place / f"part-{part}.parquet")
        words = [sys.executable, str(TESTS / "distributed" / "on_ray.py"), str(place), folder, str(n)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        click.echo(done.stderr[-2000:])
        return False
    found = json.loads(done.stdout.splitlines()[-1])["after a kill"]
    good: int = sum(same and early == 0 and losses >= 1 for same, early, losses in found)
    click.echo(f"{good} of {n} runs with a killed worker finished with the undisturbed run's bytes")
    return good == n


def readers(n: int, seed: int) -> bool:
    """Read n damaged files of baskets: an answer or a typed error, within 5 s."""
    return damaged("readers", importlib.import_module("fuzz.targets").read, n, seed)


def models(n: int, seed: int) -> bool:
    """Load n damaged models and checkpoints: an answer or a typed error, within 5 s."""
    return damaged("models", importlib.import_module("fuzz.targets").load, n, seed)


def slates(n: int, seed: int) -> bool:
    """Ask for n slates with made-up rules: no answer breaks one, and none is refused or short without need."""
    cases = importlib.import_module("slates.cases")
    return many(n, seed, cases.questions(), cases.check)


def damaged(what: str, read: Callable[[bytes], str], n: int, seed: int) -> bool:
    """Change or cut off files of the corpus of the tests."""
    fuzz = importlib.import_module("fuzz.test_fuzz")
    originals = [path.read_bytes() for path in sorted((fuzz.CORPUS / what).iterdir())]
    for data in originals:
        read(data)  # compiles
    cut = st.builds(lambda data, end: data[:end], st.sampled_from(originals), st.integers(0, 2000))
    return many(n, seed, fuzz.damaged(originals) | cut, read)


def many(n: int, seed: int, strategy: st.SearchStrategy[Any], check: Callable[[Any], str]) -> bool:
    """Check n made-up cases; print the outcomes, or the smallest case that fails."""
    outcomes: Counter[str] = Counter()
    how: dict[str, Any] = {"suppress_health_check": list(HealthCheck), "phases": [Phase.generate, Phase.shrink]}
    slowest = 0.0

    @seeded(seed)
    @settings(max_examples=n, deadline=None, database=None, **how)
    @given(strategy)
    def one(case: Any) -> None:
        nonlocal slowest
        started = time.monotonic()
        outcomes[check(case)] += 1
        slowest = max(slowest, time.monotonic() - started)
        assert slowest < 5, "slower than 5 s"

    try:
        one()
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        click.echo(f"after {outcomes.total():,}: {type(error).__name__}: {error}\n{notes}")
        return False
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    click.echo(f"{outcomes.total():,}: {dict(outcomes)}; slowest {slowest:.2f} s, at most {memory:.2f} GB")
    return memory < 1.0
