"""Callbacks: what watches a training run without being part of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Record = dict[str, Any]
Array = NDArray[np.float64]

FIRST_GUESS = 15  # rounds until training stops, before anything is known of it


class Callback:
    """The base of all callbacks; every method may be left as it is.

    An object of a subclass can be passed to `fit(callbacks=[...])`.
    """

    def on_start(self, n_sets: int, max_iter: int, model_of: Callable[[Array], Any]) -> None:
        """Training begins: sets per iteration, the most iterations, and how to make a model of factors."""

    def on_resume(self, step: int, n_sets: int) -> None:
        """Training goes on from a checkpoint: so many steps and positives are done already."""

    def on_step(self, step: int, n_sets: int) -> None:
        """A step over `n_sets` positives is done."""

    def on_iteration(self, record: Record, best: Array) -> None:
        """A round over the data is done: its entry in `history_`, and the best factors so far."""

    def on_end(self) -> None:
        """Training is over, however it ended."""


class JsonLog(Callback):
    """Appends a line of JSON to a file for every iteration."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def on_iteration(self, record: Record, best: Array) -> None:  # noqa: ARG002
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


class Checkpoint(Callback):
    """Saves the best model so far every `every` iterations; the file is always whole."""

    def __init__(self, path: str | os.PathLike[str], *, every: int = 1) -> None:
        self.path = Path(path)
        self.every = every

    def on_start(self, n_sets: int, max_iter: int, model_of: Callable[[Array], Any]) -> None:  # noqa: ARG002
        self._model_of = model_of

    def on_iteration(self, record: Record, best: Array) -> None:
        if record["iteration"] % self.every == 0:
            self._model_of(best).save(self.path)


class ProgressBar(Callback):
    """A progress bar with objective, validation score, sets per second and time left; quiet where no one looks.

    In a notebook it is a line of text that changes with every round.

    The time left is that until training is likely to stop, by how the validation score has risen so far.

    Parameters
    ----------
    force : bool, optional
        Show it even if standard error is not a terminal.
    """

    def __init__(self, *, force: bool = False) -> None:
        self.force = force
        self._bar: Any = None
        self._in_notebook = False

    def on_start(self, n_sets: int, max_iter: int, model_of: Callable[[Array], Any]) -> None:  # noqa: ARG002
        self._in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
        if self._in_notebook or not (self.force or sys.stderr.isatty()):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        text = "{task.fields[objective]}  {task.fields[validation]}  {task.fields[speed]}"
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(text), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True, force_terminal=self.force or None), transient=True)
        empty = {"objective": "", "validation": "", "speed": ""}
        self._task = self._bar.add_task("round 1", total=n_sets * min(max_iter, FIRST_GUESS), **empty)
        self._n_sets = n_sets
        self._bar.start()

    def on_step(self, step: int, n_sets: int) -> None:  # noqa: ARG002
        if self._bar:
            self._bar.advance(self._task, n_sets)

    on_resume = on_step

    def on_iteration(self, record: Record, best: Array) -> None:  # noqa: ARG002
        end = max(record["likely_end"], record["iteration"])
        told = {
            "objective": f"objective {record['objective']:.4f}",
            "validation": f"validation {record['validation']:.4f}",
            "speed": f"{record['sets_per_second']:,.0f} sets/s",
        }
        if self._bar:
            title = f"round {min(record['iteration'] + 1, end)} of about {end}"
            self._bar.update(self._task, total=self._n_sets * end, description=title, **told)
        elif self._in_notebook:
            line = "  ".join([f"round {record['iteration']} of about {end}", *told.values()])
            sys.stderr.write(f"\r{line:<100}")  # a notebook shows what follows the last return
            sys.stderr.flush()

    def on_end(self) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None
        elif self._in_notebook:
            sys.stderr.write("\n")
