"""What the fuzzers call: any bytes as a file of baskets, a model or a checkpoint; only our own errors may come out."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import contradpp as cd
from contradpp.errors import ContradppError
from contradpp.learn.checkpoints import Checkpointer, Checkpointing

SUFFIXES = (".dat", ".csv", ".jsonl", ".parquet", "", ".dat.gz")


def _file(data: bytes, suffix: str) -> Path:
    handle, name = tempfile.mkstemp(suffix=suffix)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return Path(name)


def read(data: bytes) -> str:
    """The first byte chooses the file's name, the rest is the file."""
    path = _file(data[1:], SUFFIXES[(data[0] if data else 0) % len(SUFFIXES)])
    try:
        baskets = cd.read_baskets(path)
        assert int(baskets.indptr[-1]) == len(baskets.indices)
        assert not len(baskets.indices) or int(baskets.indices.max()) < baskets.n_items
        return "read"
    except ContradppError as error:
        return type(error).__name__
    finally:
        path.unlink()


def load(data: bytes) -> str:
    """A model file, and a checkpoint."""
    path = _file(data, ".safetensors")
    try:
        with suppress(ContradppError):
            Checkpointer(Checkpointing(path, resume=True))
        model = cd.load(path)
        model.recommend([], N=1)
        return "read"
    except ContradppError as error:
        return type(error).__name__
    finally:
        path.unlink()
