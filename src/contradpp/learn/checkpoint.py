"""Checkpoints: all that training needs to go on after its process died, to the last bit.

A checkpoint is a safetensors file like a model's: tensors are numbers, the rest is JSON, nothing in it is executed. It
is written beside its place and renamed into it, so that there is always a whole one. Random streams are keyed by (seed,
round, batch): the position is all there is to keep of them.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._random import RandomState, root_seed
from contradpp.data.sets import Sets
from contradpp.dpp import persist
from contradpp.errors import CheckpointError, ModelFileError, ParameterError

log = logging.getLogger("contradpp")
KIND = "training checkpoint"
VERSION = 3
DEFAULT_EVERY = "60s"
Snapshot = dict[str, Any]  # arrays, and values that JSON can hold


def kept(*, shape: Callable[[Any], tuple[int, ...]] | None = None, **options: Any) -> Any:
    """A dataclass field that checkpoints keep: an array, a value that JSON can hold, `Sets`, or None.

    `shape` says, given the whole object, what shape an array must have where the present value does not.
    """
    return field(metadata={"kept": True, "shape": shape}, **options)


def snapshot(part: Any) -> Snapshot:
    """The kept fields of a dataclass object, arrays not copied."""
    found: Snapshot = {}
    for name, value in ((item.name, getattr(part, item.name)) for item in _kept_fields(part)):
        if isinstance(value, Sets):
            found |= {f"{name}.indptr": value.indptr, f"{name}.indices": value.indices}
        elif value is not None:
            found[name] = value
    return found


def restore(part: Any, found: Snapshot) -> None:
    """Set the kept fields as `snapshot` found them; ValueError or KeyError if they cannot have been so."""
    for item in _kept_fields(part):
        present = getattr(part, item.name)
        if isinstance(present, Sets):
            value: Any = _sets_of(found, item.name, part.n_items)
        elif isinstance(present, np.ndarray):
            present[:] = array_of(found, item.name, present.shape, present.dtype)
            continue
        elif item.name not in found:
            value = None
        elif item.metadata["shape"] is not None:
            value = array_of(found, item.name, item.metadata["shape"](part)).copy()
        else:
            value = found[item.name] if present is None else type(present)(found[item.name])
        setattr(part, item.name, value)


def _kept_fields(part: Any) -> list[Any]:
    return [item for item in fields(part) if item.metadata.get("kept")]


def array_of(found: Snapshot, name: str, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """An array of a snapshot, which must have this shape and type: compiled kernels do not look again."""
    array = found[name]
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
        raise ValueError(f"{name} is not an array of shape {shape}")
    return array


def _sets_of(found: Snapshot, name: str, n_items: int) -> Sets:
    indptr, indices = (np.array(found[f"{name}.{part}"]) for part in Sets._fields)
    good = indptr.dtype == np.int64 and indices.dtype == np.int32 and indptr.ndim == indices.ndim == 1
    good = good and len(indptr) > 0 and indptr[0] == 0 and indptr[-1] == len(indices)
    good = good and bool((np.diff(indptr) >= 0).all())
    if not good or (len(indices) and not 0 <= indices.min() <= indices.max() < n_items):
        raise ValueError(f"{name} holds no sets of items")
    return Sets(indptr, indices)


class Keeper:
    """Writes checkpoints of a training run as it goes, and sets the run back to the last one.

    Parameters
    ----------
    path : path
        The checkpoint file. It must not exist, unless `resume`.
    resume : bool
        Go on from the file if there is one.
    every : int or str
        After how many steps, or seconds ("30s"), the next checkpoint is written.
    """

    def __init__(self, path: str | os.PathLike[str], *, resume: bool = False, every: int | str = DEFAULT_EVERY) -> None:
        self.path = Path(path)
        self._steps, self._seconds = parse_every(every)
        self._identity: dict[str, Any] = {}
        self._written_at, self._written_step = time.monotonic(), 0
        self._kept: tuple[persist.Tensors, dict[str, Any]] | None = None
        self._parts: Mapping[str, Any] = {}
        if self.path.exists():
            if not resume:
                raise CheckpointError(
                    f"{self.path} exists already: resume (resume=True, --resume) to go on from it, or remove it first"
                )
            self._kept = read(self.path)
        elif resume:
            log.warning("there is no checkpoint %s yet: training starts from the beginning", self.path)

    @classmethod
    def of(cls, path: str | os.PathLike[str] | None, *, resume: bool, every: int | str) -> Self | None:
        """The keeper that arguments of `fit` ask for."""
        if path is not None:
            return cls(path, resume=resume, every=every)
        if resume:
            raise ParameterError("resume=True needs checkpoint, the file to go on from")
        return None

    def seed(self, random_state: RandomState) -> int:
        """The root of the run's random streams; without a `random_state`, that of the run to go on with."""
        if random_state is None and self._kept is not None:
            return int(self._kept[1]["identity"]["seed"])
        return root_seed(random_state)

    def identify(self, seed: int, settings: Mapping[str, Any], data: Iterable[NDArray[Any] | str]) -> None:
        """Say what is trained on what; a checkpoint of anything else is refused."""
        plain = json.loads(json.dumps(dict(settings), default=repr))
        self._identity = {"seed": seed, "settings": plain, "data": fingerprint(data)}
        if self._kept is not None:
            check_same(self.path, self._kept[1]["identity"], self._identity)

    def begin(self, parts: Mapping[str, Any]) -> bool:
        """Set the parts as the checkpoint has them, if there is one to go on from; else write the first of them."""
        for leftover in self.path.parent.glob(f".{glob.escape(self.path.name)}.*.tmp"):
            leftover.unlink(missing_ok=True)  # of a process that died while writing
        self._parts = parts
        if self._kept is None:
            try:
                self._write()
            except ModelFileError as error:
                raise CheckpointError(f"{error}. Choose a checkpoint file that can be written") from error
            return False
        tensors, body = self._kept
        self._kept = None
        try:
            for name, part in parts.items():
                arrays = {key.removeprefix(f"{name}."): tensors[key] for key in tensors if key.startswith(f"{name}.")}
                restore(part, body["parts"][name] | arrays)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise damaged(self.path, f"{type(error).__name__}: {error}") from error
        return True

    def step(self, n_steps: int) -> None:
        """Write a checkpoint if it is time for one."""
        by_steps = self._steps is not None and n_steps - self._written_step >= self._steps
        if by_steps or (self._seconds is not None and time.monotonic() - self._written_at >= self._seconds):
            self.write(n_steps)

    def write(self, n_steps: int) -> None:
        """Write a checkpoint; where that fails, the last one stays and training goes on."""
        try:
            self._write()
        except ModelFileError as error:
            log.warning("no checkpoint at step %s: %s. The previous one stays; training goes on", n_steps, error)
        self._written_at, self._written_step = time.monotonic(), n_steps

    def _write(self) -> None:
        tensors: persist.Tensors = {}
        values: dict[str, dict[str, Any]] = {}
        for name, part in self._parts.items():
            found = snapshot(part)
            tensors |= {f"{name}.{key}": value for key, value in found.items() if isinstance(value, np.ndarray)}
            values[name] = {key: value for key, value in found.items() if not isinstance(value, np.ndarray)}
        info = {"model": KIND, "checkpoint_version": VERSION, "identity": self._identity, "parts": values}
        persist.write_model(self.path, tensors, info)


def read(path: str | os.PathLike[str]) -> tuple[persist.Tensors, dict[str, Any]]:
    """The tensors and the description of a checkpoint, or `CheckpointError` with what to do."""
    try:
        tensors, body = persist.read_model(path)
    except ModelFileError as error:
        raise damaged(path, str(error)) from error
    if body.get("model") != KIND:
        raise damaged(path, f"it holds a {body.get('model')!r}")
    if body.get("checkpoint_version") != VERSION:
        raise damaged(path, "another version of contradpp wrote it")
    identity, parts = body.get("identity"), body.get("parts")
    good = isinstance(identity, dict) and isinstance(identity.get("seed"), int) and identity["seed"] >= 0
    if not good or not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
        raise damaged(path, "its description is not that of a training run")
    return tensors, body


def damaged(path: str | os.PathLike[str], why: str) -> CheckpointError:
    """The error for a file that cannot be gone on from."""
    return CheckpointError(
        f"cannot go on from the checkpoint {os.fspath(path)} ({why}): remove it and start again without resume"
    )


def check_same(path: Path, kept: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of other settings or data, and name the difference."""
    before, now = kept.get("settings"), present["settings"]
    before = before if isinstance(before, dict) else {}
    names = sorted(before.keys() | now.keys())
    other = [name for name in names if name not in before or before[name] != now.get(name, ...)]
    changed = [f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in other]
    if kept.get("seed") != present["seed"]:
        changed.append(f"the seed was {kept.get('seed')} and is {present['seed']}")
    if not changed and kept.get("data") != present["data"]:
        changed.append("the baskets, weights, negatives, validation sets or first factors differ")
    if changed:
        raise CheckpointError(
            f"the checkpoint {path} belongs to another run: {'; '.join(changed)}. Use the same data and settings "
            "(only the numbers of rounds and of threads may differ), or start again with another checkpoint file"
        )


def fingerprint(parts: Iterable[NDArray[Any] | str]) -> str:
    """One digest of arrays and texts, in their order."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(f"text:{len(part)}:{part}".encode("utf-8", "surrogatepass"))
            continue
        digest.update(f"{part.dtype.str}:{part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data if part.size else b"")
    return digest.hexdigest()


def parse_every(every: int | str) -> tuple[int | None, float | None]:
    """Steps, or seconds: 100 → (100, None), "30s" → (None, 30.0)."""
    if isinstance(every, int) and not isinstance(every, bool) and every >= 1:
        return every, None
    if isinstance(every, str):
        try:
            seconds = float(every.removesuffix("s")) if every.endswith("s") else np.nan
        except ValueError:
            seconds = np.nan
        if 0 <= seconds < np.inf:
            return None, seconds
    raise ParameterError(f"checkpoint_every must be a number of steps, or seconds such as '30s', got {every!r}")
