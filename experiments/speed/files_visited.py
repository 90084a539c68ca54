"""A count of the files of the package that a call walks through, and of its changes of file.

A reader who follows a call walks the same way. Python functions of the package only, in every thread; compiled
kernels, the standard library and other packages are passed over. A change of file is a call from a function of one
file to a function of another, counted once for each such pair of functions: it does not grow with the data. Imports and
compilation are over before the count: everything runs once beforehand.
"""

from __future__ import annotations

import io
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click

import contradpp as cd
from contradpp import _threads
from experiments.speed.timing import Work, head, row

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
        there = self.file_of(frame) if event == "call" else None
        if there is None or frame.f_back is None:  # Numba shows a compiled kernel without a caller
            return
        self.files.add(there)
        caller: FrameType | None = frame.f_back
        while caller is not None and self.file_of(caller) is None:
            caller = caller.f_back
        if caller is not None and (here := self.file_of(caller)) not in (None, there):
            self.changes.add((str(here), caller.f_code.co_qualname, there, frame.f_code.co_qualname))

    def file_of(self, frame: FrameType) -> str | None:
        """Return the file of a frame below the package, None if it is not one of ours."""
        name = frame.f_code.co_filename
        if name not in self._ours:
            path = Path(name)
            self._ours[name] = str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else None
        return self._ours[name]


def traced(work: Work) -> Trace:
    """Return the trace of a piece of work, in all threads that it starts."""
    trace = Trace()
    _threads._pool.cache_clear()  # threads that run already are not traced
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        _threads._pool.cache_clear()  # those of the trace end here
    return trace


def quietly(work: Work) -> Trace:
    """Trace the second run, after everything is imported and compiled; output of commands is not shown."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        work()
        return traced(work)


def in_python(make: Callable[[], Any], train: cd.Baskets, test: cd.Baskets) -> dict[str, Work]:
    """Return the calls of a model."""
    model = make().fit(train)
    basket = list(train[0])[:2]
    return {
        "fit": lambda: make().fit(train),
        "recommend": lambda: model.recommend(basket),
        "slate": lambda: model.slate(basket, N=5),
        "evaluate": lambda: cd.evaluate(model, test),
    }


def on_command_line(train: cd.Baskets, test: cd.Baskets, folder: Path) -> dict[str, Work]:
    """Return the commands of the same names, which read and write files."""
    from contradpp.cli.main import run

    for name, baskets in {"train": train, "test": test}.items():
        lines = ["order,product", *(f"{n},{item}" for n, basket in enumerate(baskets) for item in basket)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = str(folder / "model.safetensors")
    basket = str(next(iter(train[0])))
    words = {
        "fit": ["fit", str(folder / "train.csv"), "-o", model, "--max-iter", "2"],
        "recommend": ["recommend", model, basket],
        "slate": ["slate", model, basket, "-n", "5"],
        "evaluate": ["evaluate", model, str(folder / "test.csv")],
    }
    return {name: partial(run, called, debug=True) for name, called in words.items()}


@contextmanager
def over_http(model: Any, basket: list[Any], folder: Path) -> Iterator[dict[str, Work]]:
    """Yield requests to a service that has started."""
    from fastapi.testclient import TestClient

    from contradpp.serve.app import create_app
    from contradpp.serve.options import ServiceSettings

    file = str(folder / "served.safetensors")
    model.save(file)
    app = create_app(ServiceSettings(model=file, watch_seconds=0))
    with TestClient(app, base_url="http://localhost") as client:

        def ask(name: str) -> None:
            in_loop = client.portal.call  # type: ignore[union-attr]
            in_loop(sys.setprofile, sys.getprofile())  # the thread of the event loop runs already
            try:
                client.post(f"/v1/{name}", json={"basket": basket, "n": 5}).raise_for_status()
            finally:
                in_loop(sys.setprofile, None)

        yield {name: partial(ask, name) for name in ("recommend", "slate")}


@click.command()
@click.option("--baskets", default=600, show_default=True)
@click.option("--list", "show_files", is_flag=True, help="Also name the files.")
def files_visited(baskets: int, show_files: bool) -> None:
    """Count the files of the package that a call walks through, and its changes of file.

    PYTHONPATH=../older/src counts those of another version.
    """
    warnings.simplefilter("ignore")
    train, test = cd.datasets.load("grocer", n_baskets=baskets, random_state=0).split(0.2, random_state=0)
    rank = int(train.sizes.max())
    models: dict[str, Callable[[], Any]] = {
        "LowRankDPP": lambda: cd.LowRankDPP(rank, max_iter=2, random_state=0),
        "NonsymmetricDPP": lambda: cd.NonsymmetricDPP(rank, max_iter=2, random_state=0),
        "ConditionalDPP": lambda: cd.ConditionalDPP(cd.NonsymmetricDPP(max_iter=2), random_state=0),
    }
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ways = {name: in_python(make, train, test) for name, make in models.items()}
        ways["command line"] = on_command_line(train, test, folder)
        traces = {way: {name: quietly(work) for name, work in works.items()} for way, works in ways.items()}
        served = models["ConditionalDPP"]().fit(train)
        with over_http(served, list(train[0])[:2], folder) as requests:  # last: its watcher runs beside all others
            traces["HTTP request"] = {name: quietly(work) for name, work in requests.items()}
    click.echo(f"{PACKAGE}: {len(list(PACKAGE.rglob('*.py')))} files\n")
    columns = ("fit", "recommend", "slate", "evaluate")
    head("files, changes of file", *columns)
    for way, by_name in traces.items():
        counts = (by_name.get(name) for name in columns)
        row(way, *("–" if one is None else f"{len(one.files)}, {len(one.changes)}" for one in counts))
    if show_files:
        for way, by_name in traces.items():
            for name, trace in by_name.items():
                click.echo(f"\n{way}, {name}:\n" + "\n".join(f"    {file}" for file in sorted(trace.files)))
