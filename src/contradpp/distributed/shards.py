"""Baskets in Parquet files, spread over workers.

Workers exchange arrays by one operation, `gather`. Each reads its own files and finds any basket by
its number. Workers wait for each other at a `Barrier`, which is an actor or shared by threads.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib import import_module
from threading import Condition
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from contradpp._types import Codes, Flags, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.builder import BasketBuilder
from contradpp.data.sets import Sets, kept_entries, pointers, take_sets
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

    def sum(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of arrays of one shape, added in order of rank: the same bits for all."""
        parts = self.gather(array)
        if any(part.shape != array.shape for part in parts):
            raise ClusterError(
                f"the workers disagree: sums of shapes {sorted({part.shape for part in parts})}"
            )
        total: NDArray[Any] = np.sum(parts, axis=0)
        return total

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


class Read(NamedTuple):
    """The baskets of a file, and a hash of the id of each, if it has one (n, 2)."""

    baskets: Baskets
    keys: NDArray[np.uint64]


def read_file(path: str, columns: Columns) -> Read:
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
    return Read(Baskets(*builder.build()), np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2))


def refuse_divided(read: Mapping[int, Read], paths: Sequence[str], exchange: Exchange) -> None:
    """Raise an error on all workers if a basket is in two files; each checks a part of all."""
    keys = np.concatenate([np.empty((0, 2), np.uint64), *[part.keys for part in read.values()]])
    files = np.repeat(list(read), [len(part.keys) for part in read.values()]).astype(np.int32)
    target = keys[:, 0] % np.uint64(exchange.size)
    own: list[tuple[Any, Any]] = []
    for rank in range(exchange.size):
        parts = exchange.gather((keys[target == rank], files[target == rank]))
        own = parts if rank == exchange.rank else own
    all_keys, all_files = (np.concatenate(parts) for parts in zip(*own, strict=True))
    order = np.lexsort((all_keys[:, 1], all_keys[:, 0]))
    twice = np.flatnonzero((all_keys[order][1:] == all_keys[order][:-1]).all(axis=1))
    pair = sorted(all_files[order[[twice[0], twice[0] + 1]]].tolist()) if len(twice) else []
    for found in exchange.gather(pair):
        if found:
            first, second = (paths[number] for number in found)
            raise DataError(
                f"a basket of {first} goes on in {second}: workers read whole files, "
                "so write each basket into one file"
            )


@dataclass(frozen=True)
class Shard:
    """The baskets of one worker, and the size and the owner of all baskets."""

    own: Sets  # codes of the common vocabulary
    numbers: Ints  # theirs among all baskets, which are in the order of files and rows
    items: Vocabulary
    sizes: Codes  # of all baskets
    starts: Ints  # (n_files + 1,): the number of the first basket of every file
    owners: Ints  # (n_files,): the worker that has a file
    exchange: Exchange

    @staticmethod
    def build(read: Mapping[int, Baskets], exchange: Exchange) -> Shard:
        """Number the baskets that all workers have read, in the order of files and rows."""
        parts = exchange.gather(
            {number: baskets.sizes.astype(np.int32) for number, baskets in read.items()}
        )
        rank_and_sizes = {
            number: (rank, sizes)
            for rank, part in enumerate(parts)
            for number, sizes in part.items()
        }
        owners, sizes = zip(
            *[rank_and_sizes[number] for number in sorted(rank_and_sizes)], strict=True
        )
        starts = pointers([len(part) for part in sizes])
        all_sizes = np.concatenate(sizes)
        items = common_vocabulary(read, exchange)
        ours = sorted(read)
        numbers = np.concatenate(
            [np.empty(0, np.int64), *[np.arange(*starts[file : file + 2]) for file in ours]]
        )
        indices = np.concatenate(
            [np.empty(0, np.int32), *[read[file].recode(items).indices for file in ours]]
        )
        own = Sets(pointers(all_sizes[numbers]), indices)
        return Shard(own, numbers, items, all_sizes, starts, np.array(owners), exchange)

    def take(self, numbers: Ints) -> Sets:
        """Return the baskets of these numbers, of any worker. All workers ask for the same."""
        owners = self.owners[np.searchsorted(self.starts, numbers, side="right") - 1]
        mine = numbers[owners == self.exchange.rank]
        own = take_sets(self.own, np.searchsorted(self.numbers, mine))
        sizes = self.sizes[numbers]
        indices = np.empty(sizes.sum(), dtype=np.int32)
        owner_of_entry = np.repeat(owners, sizes)
        for rank, part in enumerate(self.exchange.gather(own.indices)):
            indices[owner_of_entry == rank] = part
        return Sets(pointers(sizes), indices)

    def own_among(self, numbers: Ints) -> Sets:
        """Return the worker's own baskets among those of these numbers, which rise."""
        return take_sets(
            self.own, np.flatnonzero(np.isin(self.numbers, numbers, assume_unique=True))
        )

    def cut(self, size: int, entries: Callable[[Sets, int], Flags]) -> Shard:
        """Cut each basket to `size` items, by `first_entries` or `drawn_entries` of `data.sets`."""
        own = kept_entries(self.own, entries(self.own, size))
        return replace(self, own=own, sizes=np.minimum(self.sizes, np.int32(size)))

    def digests(self) -> list[str]:
        """Return a digest of the baskets of every file, by number."""
        mine = {}
        for file in np.flatnonzero(self.owners == self.exchange.rank).tolist():
            first, last = self.own.indptr[
                np.searchsorted(self.numbers, self.starts[file : file + 2])
            ]
            mine[file] = blake2b(self.own.indices[first:last].tobytes(), digest_size=8).hexdigest()
        by_number = {
            file: word for part in self.exchange.gather(mine) for file, word in part.items()
        }
        return [by_number[file] for file in sorted(by_number)]


def common_vocabulary(read: Mapping[int, Baskets], exchange: Exchange) -> Vocabulary:
    """Return all items in order of first appearance, as one machine would number them."""
    parts = exchange.gather(
        {file: (list(baskets.items), baskets.items.names) for file, baskets in read.items()}
    )
    by_file = {file: items for part in parts for file, items in part.items()}
    ids: dict[Hashable, None] = {}
    names: dict[Hashable, str] = {}
    for file in sorted(by_file):
        ids |= dict.fromkeys(by_file[file][0])
        names = by_file[file][1] | names
    return Vocabulary(ids, names=names)
