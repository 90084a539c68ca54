"""Checkpoints: the whole state of a training run, from which it continues to the same bits.

A checkpoint is a safetensors file like a model's: tensors are numbers, the rest is JSON, nothing in
it is executed. It is written beside its place and renamed into it, so that there is always a whole
one. Random streams are keyed by (seed, round, batch): only the position needs to be kept.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from contradpp._random import RandomState, root_seed
from contradpp._types import StrPath, Values
from contradpp.dpp import files as persist
from contradpp.errors import CheckpointError, ModelFileError, ParameterError

log = logging.getLogger("contradpp")
KIND = "training checkpoint"
VERSION = 4
DEFAULT_EVERY = "60s"
Snapshot = Values  # arrays, and values that JSON can hold


@dataclass(frozen=True)
class Checkpointing:
    """The checkpoint file of a training run, for the argument `checkpoint` of `fit`.

    Parameters
    ----------
    path : path
        The file. It must not exist, unless `resume`.
    every : int or str
        Steps from one checkpoint to the next, or the time, such as "30s".
    resume : bool
        Continue from the file if there is one. The result is the same, to the last bit, as that of
        a run that was never interrupted.

    Examples
    --------
    >>> import tempfile
    >>> import contradpp as cd
    >>> baskets = [["tea", "milk"], ["coffee", "milk"], ["coffee", "sugar"]] * 20
    >>> model = cd.LowRankDPP(n_components=2, max_iter=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = cd.Checkpointing(f"{folder}/run.ckpt", every=10, resume=True)
    ...     model = model.fit(baskets, checkpoint=kept)
    >>> model.n_iter_
    2
    """

    path: str | os.PathLike[str]
    every: int | str = DEFAULT_EVERY
    resume: bool = False


def checkpointed(*, shape: Callable[[Any], tuple[int, ...]] | None = None, **options: Any) -> Any:
    """Declare a dataclass field that checkpoints keep.

    It holds an array, a value that JSON can hold, or None. Given the object, `shape` returns the
    shape that an array must have, where the present value does not show it.
    """
    return field(metadata={"checkpointed": True, "shape": shape}, **options)


def snapshot(part: Any) -> Snapshot:
    """Return the checkpointed fields of a dataclass object; arrays are not copied."""
    values = {item.name: getattr(part, item.name) for item in _checkpointed(part)}
    return {name: value for name, value in values.items() if value is not None}


def restore(part: Any, found: Snapshot) -> None:
    """Set the fields of a snapshot; raise ValueError or KeyError if they cannot be right."""
    for item in _checkpointed(part):
        present = getattr(part, item.name)
        value: Any = None
        if isinstance(present, np.ndarray):
            present[:] = array_of(found, item.name, present.shape, present.dtype)
            continue
        if item.name in found:
            if item.metadata["shape"] is not None:
                value = array_of(found, item.name, item.metadata["shape"](part)).copy()
            else:
                value = found[item.name] if present is None else type(present)(found[item.name])
        setattr(part, item.name, value)


def _checkpointed(part: Any) -> list[Field[Any]]:
    return [item for item in fields(part) if item.metadata.get("checkpointed")]


def array_of(
    found: Snapshot, name: str, shape: tuple[int, ...], dtype: DTypeLike = np.float64
) -> NDArray[Any]:
    """Return an array of a snapshot, checked for shape and type: compiled kernels do not check."""
    array = found[name]
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
        raise ValueError(f"{name} is not an array of shape {shape}")
    return array


class Checkpointer:
    """A writer of checkpoints, which can also set a run back to the last one."""

    def __init__(self, settings: Checkpointing) -> None:
        self.path = Path(settings.path)
        self._steps, self._seconds = parse_every(settings.every)
        self._identity: Values = {}
        self._written_at = time.monotonic()
        self._written_step = 0
        self._content: tuple[persist.Tensors, Values] | None = None
        self._parts: Mapping[str, object] = {}
        if self.path.exists():
            if not settings.resume:
                raise CheckpointError(
                    f"{self.path} exists already: resume (Checkpointing(..., resume=True), "
                    "--resume) to go on from it, or remove it first"
                )
            self._content = read(self.path)
        elif settings.resume:
            log.warning(
                f"there is no checkpoint {self.path} yet: training starts from the beginning"
            )

    @classmethod
    def of(cls, checkpoint: StrPath | Checkpointing) -> Self:
        """Make the checkpointer for the argument `checkpoint` of `fit`."""
        given = checkpoint if isinstance(checkpoint, Checkpointing) else Checkpointing(checkpoint)
        return cls(given)

    def seed(self, random_state: RandomState) -> int:
        """Return the root of the random streams, by default that of the checkpoint."""
        if random_state is None and self._content is not None:
            return int(self._content[1]["identity"]["seed"])
        return root_seed(random_state)

    def identify(
        self, seed: int, settings: Mapping[str, object], data: Iterable[NDArray[Any] | str]
    ) -> None:
        """Set the settings and data of the run; a checkpoint of another run is refused."""
        plain = json.loads(json.dumps(dict(settings), default=repr))
        self._identity = {"seed": seed, "settings": plain, "data": fingerprint(data)}
        if self._content is not None:
            check_same(self.path, self._content[1]["identity"], self._identity)

    def begin(self, parts: Mapping[str, object]) -> bool:
        """Restore the parts from the checkpoint and return True, or write the first checkpoint."""
        for leftover in self.path.parent.glob(f".{glob.escape(self.path.name)}.*.tmp"):
            leftover.unlink(missing_ok=True)  # of a process that died while writing
        self._parts = parts
        if self._content is None:
            try:
                self._write()
            except ModelFileError as error:
                raise CheckpointError(
                    f"{error}. Choose a checkpoint file that can be written"
                ) from error
            return False
        tensors, body = self._content
        self._content = None
        try:
            for name, part in parts.items():
                own = [key for key in tensors if key.startswith(f"{name}.")]
                arrays = {key.removeprefix(f"{name}."): tensors[key] for key in own}
                restore(part, body["parts"][name] | arrays)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise damaged(self.path, f"{type(error).__name__}: {error}") from error
        return True

    def step(self, n_steps: int) -> None:
        """Write a checkpoint if it is time for one."""
        due = self._steps is not None and n_steps - self._written_step >= self._steps
        if self._seconds is not None:
            due = time.monotonic() - self._written_at >= self._seconds
        if due:
            self.write(n_steps)

    def write(self, n_steps: int) -> None:
        """Write a checkpoint; if that fails, the last one stays and training goes on."""
        try:
            self._write()
        except ModelFileError as error:
            log.warning(
                f"no checkpoint at step {n_steps}: {error}. The previous one stays; "
                "training goes on"
            )
        self._written_at = time.monotonic()
        self._written_step = n_steps

    def _write(self) -> None:
        tensors: persist.Tensors = {}
        values: dict[str, Values] = {}
        for name, part in self._parts.items():
            found = snapshot(part)
            arrays = {key for key, value in found.items() if isinstance(value, np.ndarray)}
            tensors |= {f"{name}.{key}": found[key] for key in arrays}
            values[name] = {key: value for key, value in found.items() if key not in arrays}
        info = {
            "model": KIND,
            "checkpoint_version": VERSION,
            "identity": self._identity,
            "parts": values,
        }
        persist.write_model(self.path, tensors, info)


def read(path: StrPath) -> tuple[persist.Tensors, Values]:
    """Return the tensors and the description of a checkpoint, or raise `CheckpointError`."""
    try:
        tensors, body = persist.read_model(path)
    except ModelFileError as error:
        raise damaged(path, str(error)) from error
    if body.get("model") != KIND:
        raise damaged(path, f"it holds a {body.get('model')!r}")
    if body.get("checkpoint_version") != VERSION:
        raise damaged(path, "another version of contradpp wrote it")
    identity = body.get("identity")
    parts = body.get("parts")
    seed = identity.get("seed") if isinstance(identity, dict) else None
    found = list(parts.values()) if isinstance(parts, dict) else [None]
    good = isinstance(seed, int) and seed >= 0
    if not good or not all(isinstance(part, dict) for part in found):
        raise damaged(path, "its description is not that of a training run")
    return tensors, body


def damaged(path: StrPath, why: str) -> CheckpointError:
    """Return the error for a file that training cannot continue from."""
    return CheckpointError(
        f"cannot go on from the checkpoint {os.fspath(path)} ({why}): "
        "remove it and start again without resume"
    )


def check_same(path: Path, written: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of other settings or data, and name the difference."""
    before = written.get("settings")
    after = present["settings"]
    before = before if isinstance(before, dict) else {}
    names = sorted(before.keys() | after.keys())
    other = [name for name in names if name not in before or before[name] != after.get(name, ...)]
    changed = [f"{name} was {before.get(name)!r} and is {after.get(name)!r}" for name in other]
    if written.get("seed") != present["seed"]:
        changed.append(f"the seed was {written.get('seed')} and is {present['seed']}")
    if not changed and written.get("data") != present["data"]:
        changed.append("the baskets, weights, negatives, validation sets or first factors differ")
    if changed:
        raise CheckpointError(
            f"the checkpoint {path} belongs to another run: {'; '.join(changed)}. Use the same "
            "data and settings (only the numbers of rounds and of threads may differ), or start "
            "again with another checkpoint file"
        )


def fingerprint(parts: Iterable[NDArray[Any] | str]) -> str:
    """Return one digest of arrays and texts, in their order."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(f"text:{len(part)}:{part}".encode("utf-8", "surrogatepass"))
            continue
        digest.update(f"{part.dtype.str}:{part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data if part.size else b"")
    return digest.hexdigest()


def parse_every(every: int | str) -> tuple[int | None, float | None]:
    """Return steps, or seconds: 100 → (100, None), "30s" → (None, 30.0)."""
    if isinstance(every, int) and not isinstance(every, bool) and every >= 1:
        return every, None
    if isinstance(every, str):
        try:
            seconds = float(every.removesuffix("s")) if every.endswith("s") else np.nan
        except ValueError:
            seconds = np.nan
        if 0 <= seconds < np.inf:
            return None, seconds
    raise ParameterError(
        f"every (checkpoint_every) must be a number of steps, or seconds such as '30s', "
        f"got {every!r}"
    )
