"""Finished results on disk, a file each, so that a reproduction that was stopped goes on where it stopped."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contradpp import __version__
from contradpp.research.paper import Task

Result = dict[str, Any]


@dataclass(frozen=True)
class Store:
    """The results under a folder. What was computed with other parameters counts as missing."""

    folder: Path

    def path(self, task: Task) -> Path:
        """The file of a task."""
        return self.folder / "results" / f"{task.name}.json"

    def get(self, task: Task) -> Result | None:
        """The result, or None if there is none, it is damaged or its parameters were others."""
        entry = self._entry(task)
        return None if entry is None else entry["result"]

    def version(self, task: Task) -> str | None:
        """The version of contradpp that computed the result."""
        entry = self._entry(task)
        return None if entry is None else str(entry.get("version"))

    def put(self, task: Task, result: Result) -> None:
        """Store a result; its file appears whole or not at all."""
        entry = {"version": __version__, "parameters": task.parameters, "result": result}
        write_whole(self.path(task), json.dumps(entry, allow_nan=False))

    def _entry(self, task: Task) -> Result | None:
        try:
            entry = json.loads(self.path(task).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        fits = isinstance(entry, dict) and entry.get("parameters") == plain(task.parameters) and "result" in entry
        return entry if fits else None


def plain(value: Any) -> Any:
    """The value as it comes back from JSON; NaN and infinities are None."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and value not in (float("inf"), float("-inf")):
        return None if value != value else value
    return None if isinstance(value, float) else value


def write_whole(path: Path, text: str) -> None:
    """Write a file by way of a temporary one beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
