"""Checkpoints where no worker has all of V: a file of its own rows from each, and one that says which belong together.

The file that was named lists the parts and is written last, so that there is always a whole checkpoint. Rows carry
their numbers: another number of workers can go on from the same parts.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.distributed.collective import gather, total
from contradpp.distributed.owners import Owners
from contradpp.dpp import persist
from contradpp.errors import ClusterError, ModelFileError
from contradpp.learn.checkpoint import KIND, VERSION, Keeper, Resumable, remove_leftovers

# What has a row for each of a worker's rows; everything else is the same on all workers, or made anew.
OF_ROWS = (
    "state.V", "state.moved", "state.squared_norms", "outcome.best", "optimizer._momentum", "optimizer._rows",
    "optimizer._seen", "optimizer._touched", "optimizer.velocity",
)  # fmt: skip
NOT_KEPT = ("supply.indptr", "supply.indices")  # negatives are drawn anew at every step


class PartKeeper(Keeper):
    """Writes our rows, and as the first worker the list of parts."""

    owners: Owners

    def step(self, n_steps: int, parts: Mapping[str, Resumable]) -> None:
        """Write a checkpoint if the first worker finds that it is time for one."""
        if self._steps is None and not self._agreed(self._due(n_steps)):
            return
        if self._steps is not None and not self._due(n_steps):
            return
        self.write(n_steps, parts)

    def _tidy(self) -> None:
        """The first worker does it, before anyone writes."""
        collective = self.owners.collective
        if collective.rank == 0:
            super()._tidy()
        if total(collective, np.array([float(self._kept is not None)]))[0] not in (0.0, collective.size):
            raise ClusterError(f"not all workers see the checkpoint {self.path}: it must be on storage that all reach")

    def _complete(self, tensors: persist.Tensors, body: Mapping[str, Any]) -> persist.Tensors:
        """Everyone reads all parts and takes the rows that are now its own."""
        found: dict[str, NDArray[Any]] = {}
        filled = np.zeros(len(self.owners.own), dtype=bool)
        for file in body["files"]:
            part, _ = persist.read_model(self.path.with_name(Path(file).name))
            numbers = part.pop("rows")
            if not len(numbers):
                continue
            ours = np.flatnonzero(self.owners.owner[numbers] == self.owners.collective.rank)
            places = self.owners.place[numbers[ours]]
            filled[places] = True
            for name, array in part.items():
                if not len(array):  # not in use
                    found[name] = array
                    continue
                if name not in found:
                    found[name] = np.zeros((len(filled), *array.shape[1:]), dtype=array.dtype)
                found[name][places] = array[ours]
        if not filled.all() or not found:
            raise ValueError("rows are missing")
        return tensors | found

    def _write(self, parts: Mapping[str, Resumable]) -> None:
        collective = self.owners.collective
        n_steps = parts["position"].snapshot()["n_steps"]
        word = bytes(gather(collective, secrets.token_bytes(4))[0]).hex()  # no name is ever used twice
        names = [f"{self.path.name}.step-{n_steps}-{word}.{rank}" for rank in range(collective.size)]
        kept = {name: part.snapshot() for name, part in parts.items()}
        arrays = {
            f"{name}.{key}": value
            for name, snapshot in kept.items()
            for key, value in snapshot.items()
            if isinstance(value, np.ndarray)
        }
        rows = {name: array for name, array in arrays.items() if name in OF_ROWS} | {"rows": self.owners.own}
        self._together(
            lambda: persist.write_model(self.path.with_name(names[collective.rank]), rows, {"model": "part"})
        )
        common = {name: array for name, array in arrays.items() if name not in (*OF_ROWS, *NOT_KEPT)}
        common |= {"supply.indptr": np.zeros(1, dtype=np.int64), "supply.indices": np.empty(0, dtype=np.int32)}
        values = {
            name: {key: value for key, value in snapshot.items() if not isinstance(value, np.ndarray)}
            for name, snapshot in kept.items()
        }
        info = {
            "model": KIND, "checkpoint_version": VERSION, "identity": self._identity, "parts": values, "files": names,
        }  # fmt: skip
        self._together(lambda: persist.write_model(self.path, common, info) if collective.rank == 0 else None)
        if collective.rank == 0:
            remove_others(self.path, names)

    def _together(self, write: Any) -> None:
        """Do it, and fail if it fails on any worker."""
        failure = None
        try:
            write()
        except ModelFileError as error:
            failure = error
        if total(self.owners.collective, np.array([float(failure is not None)]))[0]:
            raise failure or ModelFileError("another worker could not write its part")

    def _agreed(self, mine: bool) -> bool:
        """What the first worker says."""
        first = float(mine) if self.owners.collective.rank == 0 else 0.0
        return bool(total(self.owners.collective, np.array([first]))[0])


def remove_others(path: Path, names: list[str]) -> None:
    """Delete the parts of earlier checkpoints."""
    remove_leftovers(path)
    ours = re.compile(re.escape(path.name) + r"\.step-\d+-[0-9a-f]{8}\.\d+")
    for name in os.listdir(path.parent):
        if ours.fullmatch(name) and name not in names:
            (path.parent / name).unlink(missing_ok=True)
