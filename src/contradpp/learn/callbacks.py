"""Callbacks: observers of a training run."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contradpp._types import Array

Record = dict[str, Any]
ModelOf = Callable[[Array], Any]

FIRST_GUESS = 15  # rounds until training stops, before there is a score
SECONDS_BEFORE = 1.0  # progress is shown
SECONDS_A_CHANGE = 0.2  # of the line in a notebook
SECONDS_A_LINE = 60.0  # in a file


class Callback:
    """The base of all callbacks; every method may be left as it is.

    An object of a subclass can be passed to `fit(callbacks=[...])`.
    """

    def on_start(self, n_sets: int, max_iter: int, model_of: ModelOf) -> None:
        """React to the start; `model_of` makes a model of factors V."""

    def on_resume(self, step: int, n_sets: int) -> None:
        """React to a restored checkpoint, after so many steps and positives."""

    def on_step(self, step: int, n_sets: int) -> None:
        """React to a step over `n_sets` positives."""

    def on_iteration(self, record: Record, best: Array) -> None:
        """React to the end of a round: its entry in `history_`, and the best V so far."""

    def on_end(self) -> None:
        """React to the end of training, with or without an error."""


class JsonLog(Callback):
    """A log with a line of JSON for every round, appended to a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def on_iteration(self, record: Record, best: Array) -> None:  # noqa: ARG002
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


class Checkpoint(Callback):
    """A file of the best model so far, saved every `every` rounds; it is always whole."""

    def __init__(self, path: str | os.PathLike[str], *, every: int = 1) -> None:
        self.path = Path(path)
        self.every = every

    def on_start(
        self,
        n_sets: int,  # noqa: ARG002
        max_iter: int,  # noqa: ARG002
        model_of: ModelOf,
    ) -> None:
        self._model_of = model_of

    def on_iteration(self, record: Record, best: Array) -> None:
        if record["iteration"] % self.every == 0:
            self._model_of(best).save(self.path)


class ProgressBar(Callback):
    """Progress on standard error: rounds, objective, validation score and speed.

    It is a bar in a terminal, a line that changes in a notebook, and a new line every minute where
    output goes to a file. Nothing is shown in the first second. The number of rounds is the one
    after which training is likely to stop, by the rise of the validation score.

    Parameters
    ----------
    force : bool, optional
        Show the bar at once, even if standard error is not a terminal.
    """

    def __init__(self, *, force: bool = False) -> None:
        self.force = force
        self._bar: Any = None
        self._wrote = False
        self._in_notebook = False

    def on_start(
        self,
        n_sets: int,
        max_iter: int,
        model_of: ModelOf,  # noqa: ARG002
    ) -> None:
        self._n_sets = n_sets
        self._n_seen = 0
        self._end = min(max_iter, FIRST_GUESS)
        self._title = "round 1"
        self._scores = ""
        self._wrote = False
        self._in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
        self._is_terminal = self.force or (sys.stderr.isatty() and not self._in_notebook)
        self._started = time.monotonic()
        # A worker of joblib, for one: several bars in one terminal would overwrite each other.
        self._is_worker = multiprocessing.parent_process() is not None
        every = SECONDS_BEFORE if self._is_terminal or self._in_notebook else SECONDS_A_LINE
        self._next = self._started + (0.0 if self.force else every)

    def on_step(self, step: int, n_sets: int) -> None:  # noqa: ARG002
        self._n_seen += n_sets
        self._show()

    on_resume = on_step

    def on_iteration(self, record: Record, best: Array) -> None:  # noqa: ARG002
        self._end = max(record["likely_end"], record["iteration"])
        self._title = f"round {min(record['iteration'] + 1, self._end)} of about {self._end}"
        self._scores = (
            f"objective {record['objective']:.4f}  validation {record['validation']:.4f}  "
            f"{record['sets_per_second']:,.0f} sets/s"
        )
        self._show()

    def on_end(self) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None
        elif self._wrote and self._in_notebook:
            sys.stderr.write("\n")

    def _show(self) -> None:
        now = time.monotonic()
        if self._is_worker or now < self._next:
            return
        if self._is_terminal:
            self._bar = self._bar or self._new_bar()
            done = {"completed": self._n_seen, "total": self._n_sets * self._end}
            self._bar.update(self._task, description=self._title, scores=self._scores, **done)
            return
        self._wrote = True
        seconds = now - self._started
        text = f"{self._title}  {self._scores}  {seconds // 60:.0f}:{seconds % 60:02.0f}"
        if self._in_notebook:
            self._next = now + SECONDS_A_CHANGE
            sys.stderr.write(f"\r{text:<100}")  # a notebook shows what follows the last return
        else:
            self._next = now + SECONDS_A_LINE
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def _new_bar(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[scores]}"),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True, force_terminal=self.force or None)
        bar = Progress(*columns, console=console, transient=True)
        self._task = bar.add_task(self._title, scores="")
        bar.start()
        return bar
