"""How many of our files a default `fit`, `recommend` and `evaluate` walk through, and how often they change file.

A reader who follows a call walks the same way. Python functions of the package only, in every thread; compiled
kernels, the standard library and other packages are passed over. A change of file is a call from a function of one
file to a function of another, counted once for each such pair of functions: it does not grow with the data. Imports and
compilation are over before the count: everything runs once beforehand.

    python benchmarks/files_visited.py              the installed package
    PYTHONPATH=../older/src python benchmarks/files_visited.py --list
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import contradpp as cd

PACKAGE = Path(cd.__file__).parent


class Trace:
    """The files that calls pass through, and the calls that leave a file for another."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.changes: set[tuple[str, str, str, str]] = set()
        self._ours: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """See `sys.setprofile`."""
        del argument
        if event != "call":
            return
        there = self.file_of(frame)
        if there is None:
            return
        self.files.add(there)
        caller = frame.f_back
        while caller is not None and self.file_of(caller) is None:
            caller = caller.f_back
        if caller is not None and (here := self.file_of(caller)) not in (None, there):
            self.changes.add((str(here), caller.f_code.co_qualname, there, frame.f_code.co_qualname))

    def file_of(self, frame: FrameType) -> str | None:
        """The file of a frame below the package, None if it is not one of ours."""
        name = frame.f_code.co_filename
        if name not in self._ours:
            path = Path(name)
            self._ours[name] = str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else None
        return self._ours[name]


def traced(work: Callable[[], object]) -> Trace:
    """The trace of a piece of work, in all threads that it starts."""
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return trace


def quietly(work: Callable[[], object]) -> Trace:
    """The trace of the second time, after everything is imported and compiled; what commands print is not shown."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        work()
        return traced(work)


def in_python(kind: type[Any], train: cd.Baskets, test: cd.Baskets) -> dict[str, Callable[[], object]]:
    """`fit`, `recommend` and `evaluate` of a model with its defaults, but for few rounds and a rank that holds all."""
    rank = int(train.sizes.max())
    model = kind(rank, max_iter=2, random_state=0).fit(train)
    asked = list(train[0])[:2]
    return {
        "fit": lambda: kind(rank, max_iter=2, random_state=0).fit(train),
        "recommend": lambda: model.recommend(asked),
        "evaluate": lambda: cd.evaluate(model, test),
    }


def on_command_line(train: cd.Baskets, test: cd.Baskets, folder: Path) -> dict[str, Callable[[], object]]:
    """The commands of the same names, reading and writing files."""
    from contradpp.cli.main import run

    for name, baskets in {"train": train, "test": test}.items():
        lines = ["order,product", *(f"{n},{item}" for n, basket in enumerate(baskets) for item in basket)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = str(folder / "model.safetensors")
    words = {
        "fit": ["fit", str(folder / "train.csv"), "-o", model, "--max-iter", "2"],
        "recommend": ["recommend", model, str(next(iter(train[0])))],
        "evaluate": ["evaluate", model, str(folder / "test.csv")],
    }
    return {name: partial(run, called, debug=True) for name, called in words.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baskets", type=int, default=600)
    parser.add_argument("--list", action="store_true", help="also name the files")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    train, test = cd.datasets.load("grocer", n_baskets=given.baskets, random_state=0).split(0.2, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            "LowRankDPP": in_python(cd.LowRankDPP, train, test),
            "NonsymmetricDPP": in_python(cd.NonsymmetricDPP, train, test),
            "command line": on_command_line(train, test, Path(folder)),
        }
        traces = {(way, name): quietly(work) for way, works in ways.items() for name, work in works.items()}
    print(f"{PACKAGE}: {len(list(PACKAGE.rglob('*.py')))} files\n")
    print(f"{'':<18}{'':<12}{'files':>6}{'changes of file':>18}")
    for (way, name), trace in traces.items():
        print(f"{way:<18}{name:<12}{len(trace.files):>6}{len(trace.changes):>18}")
        if given.list:
            print("".join(f"    {file}\n" for file in sorted(trace.files)), end="")


if __name__ == "__main__":
    main()
