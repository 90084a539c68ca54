"""Baskets in Parquet files, shared out to workers that exchange what they have read.

Workers exchange arrays by one operation, `gather`, and wait for each other at a `Barrier`, which is
an actor or shared by threads.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from functools import reduce
from hashlib import blake2b
from importlib import import_module
from operator import or_
from threading import Condition
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets
from contradpp.data.builder import BasketBuilder
from contradpp.data.sets import Sets
from contradpp.data.tables import add_batches, layout_of
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import ClusterError, DataError, MissingExtraError

LARGE = 100_000  # bytes from which on Ray's object store is faster than a message
T = TypeVar("T")
_BATCH_ROWS = 1 << 18
Columns = dict[str, str | None]
NO_COLUMNS: Columns = {"basket": None, "item": None, "quantity": None, "name": None}


class Barrier:
    """A place where workers wait for each other, for `timeout` seconds or until one fails."""

    def __init__(self, size: int, timeout: float) -> None:
        self._size = size
        self._timeout = timeout
        self._values: dict[int, dict[int, Any]] = {}  # by the number of the gathering, and by rank
        self._failure = ""
        self._changed = Condition()

    def wait(self, number: int, rank: int, value: T) -> list[T] | str:
        """Return the values of all workers, by rank, or the reason why there are none."""
        with self._changed:
            values = self._values.setdefault(number, {})
            values[rank] = value
            if len(values) == self._size:
                self._values.pop(number - 1, None)  # all workers have left that gathering
                self._changed.notify_all()
            self._changed.wait_for(
                lambda: len(values) == self._size or self._failure, self._timeout
            )
            if len(values) == self._size:
                return [values[other] for other in range(self._size)]
            missing = " and ".join(str(other) for other in range(self._size) if other not in values)
            return self._failure or f"worker {missing} has not answered for {self._timeout:g} s"

    def leave(self, why: str) -> None:
        """Let nobody wait for a worker that fails."""
        with self._changed:
            self._failure = self._failure or why
            self._changed.notify_all()


class RemoteBarrier:
    """A barrier that is an actor of Ray's; large arrays stay in the object store."""

    def __init__(self, actor: Any, timeout: float) -> None:
        self._actor = actor
        self._timeout = 2 * timeout  # the barrier knows who is missing: let it say so first

    def wait(self, number: int, rank: int, value: T) -> list[T] | str:
        import ray

        try:
            # In a list, a reference is not followed.
            sent = [ray.put(value) if n_bytes(value) >= LARGE else value]
            found = ray.get(self._actor.wait.remote(number, rank, sent), timeout=self._timeout)
            if isinstance(found, str):
                return found
            values = [value for (value,) in found]
            references = [value for value in values if isinstance(value, ray.ObjectRef)]
            fetched = iter(ray.get(references, timeout=self._timeout))
            return [
                next(fetched) if isinstance(value, ray.ObjectRef) else value for value in values
            ]
        except (ray.exceptions.RayError, TimeoutError) as error:
            return f"the workers can no longer reach each other: {error}"

    def leave(self, why: str) -> None:
        self._actor.leave.remote(why)


class Exchange:
    """One of `size` workers, which all call the same operations in the same order."""

    def __init__(
        self, rank: int = 0, size: int = 1, barrier: Barrier | RemoteBarrier | None = None
    ) -> None:
        self.rank = rank
        self.size = size
        self.sent = 0  # bytes of arrays from this worker so far; each of the others fetches them
        self._barrier = barrier
        self._number = 0

    def gather(self, value: T) -> list[T]:
        """Return the values of all workers, by rank.

        A value is an array, or a tuple or dictionary of arrays and small things. Arrays of others
        may be read-only.
        """
        if self._barrier is None:
            return [value]
        self.sent += n_bytes(value)
        found = self._barrier.wait(self._number, self.rank, value)
        self._number += 1
        if isinstance(found, str):
            raise ClusterError(found)
        return found

    def leave(self, why: str) -> None:
        """Tell the others not to wait for this worker any more."""
        if self._barrier is not None:
            self._barrier.leave(f"worker {self.rank} {why}")


def n_bytes(value: object) -> int:
    """Return the size of the arrays in a value."""
    if isinstance(value, (tuple, list)):
        return sum(map(n_bytes, value))
    if isinstance(value, dict):
        return sum(map(n_bytes, value.values()))
    return len(value) if isinstance(value, bytes) else getattr(value, "nbytes", 0)


# -- Files -----------------------------------------------------------------------------------------


def import_extra(name: str) -> Any:
    """Import a package of the extra `ray`, or raise an error that names the extra."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            'engine="ray" needs the extra `ray`: pip install "contradpp[ray]"'
        ) from error


class FileOf(NamedTuple):
    """A file of baskets: its number in the order of all files, its path and its number of rows."""

    number: int
    path: str
    n_rows: int


def list_files(source: str) -> list[FileOf]:
    """List the Parquet files of a folder, by name, or one file, on any fsspec file system."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fsspec = import_extra("fsspec")
    try:
        system, place = fsspec.core.url_to_fs(source)
        names = (
            sorted(system.glob(f"{glob.escape(place)}/*.parquet"))
            if system.isdir(place)
            else [place]
        )
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{source}: cannot be listed ({error})") from error
    if not names:
        raise DataError(f"{source}: a folder without .parquet files")
    found = []
    for number, name in enumerate(names):
        path = system.unstrip_protocol(name)
        try:
            with system.open(name, "rb") as file:
                found.append(FileOf(number, path, pq.ParquetFile(file).metadata.num_rows))
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: not a readable Parquet file ({error})") from error
    return found


def assign(files: Sequence[FileOf], n_workers: int) -> list[list[FileOf]]:
    """Share out files: the largest first, to the worker with the fewest rows. Some may get none."""
    shards: list[list[FileOf]] = [[] for _ in range(n_workers)]
    rows = [0] * n_workers
    for file in sorted(files, key=lambda file: (-file.n_rows, file.number)):
        least = rows.index(min(rows))
        shards[least].append(file)
        rows[least] += file.n_rows
    return [sorted(shard) for shard in shards]


class FileBaskets(NamedTuple):
    """The baskets of a file, and a hash of the id of each, if it has one (n, 2)."""

    sets: Sets
    items: Vocabulary
    keys: NDArray[np.uint64]


def read_file(path: str, columns: Columns) -> FileBaskets:
    """Read the baskets of one file; none of them may continue in another file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    builder = BasketBuilder()
    try:
        with import_extra("fsspec").open(path, "rb") as stream, pq.ParquetFile(stream) as file:
            layout = layout_of(file.schema_arrow, columns, where=path)
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=layout.columns)
            add_batches(builder, batches, layout, where=path)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}). It was there when the files were listed"
        ) from error
    builder.drop_canceled()
    digests = b"".join(
        blake2b(repr(id_).encode(), digest_size=16).digest() for id_ in builder.baskets.codes
    )
    baskets = Baskets(*builder.build())
    keys = np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)
    return FileBaskets(baskets.sets, baskets.items, keys)


def gather_baskets(
    read: dict[int, FileBaskets], paths: Sequence[str], exchange: Exchange
) -> Baskets:
    """Return the baskets that all workers have read, as one machine would read the files."""
    parts = reduce(or_, exchange.gather(read))
    files = [parts[number] for number in sorted(parts)]
    refuse_divided([file.keys for file in files], paths)
    return Baskets.concat([Baskets.trusted(*file.sets, file.items) for file in files])


def refuse_divided(keys: Sequence[NDArray[np.uint64]], paths: Sequence[str]) -> None:
    """Raise an error if a basket is in two files; there is an array of keys for every file."""
    files = np.repeat(np.arange(len(keys)), list(map(len, keys)))
    all_keys = np.concatenate(keys)
    order = np.lexsort(all_keys.T)
    same = (all_keys[order][1:] == all_keys[order][:-1]).all(axis=1)
    if same.any():
        at = int(same.argmax())
        first, second = sorted(files[order[at : at + 2]].tolist())
        raise DataError(
            f"a basket of {paths[first]} goes on in {paths[second]}: workers read whole files, "
            "so write each basket into one file"
        )
