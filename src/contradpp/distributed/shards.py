"""Baskets in Parquet files, spread over workers: who reads which file, and how all find a basket by its number."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, take_sets
from contradpp.data.tables import Assembler, add_batches, layout_of
from contradpp.data.vocabulary import Vocabulary
from contradpp.distributed.collective import Collective, bytes_of, gather, gather_arrays, total
from contradpp.dpp import persist
from contradpp.errors import DataError, ModelFileError
from contradpp.learn.trainer import TrainingData

_BATCH_ROWS = 1 << 18
Codes = NDArray[np.int32]
Positions = NDArray[np.int64]


class FileOf(NamedTuple):
    """A file of baskets: its place in the order of all files, where it is, and how many rows it has."""

    number: int
    path: str
    n_rows: int


def list_files(source: str) -> list[FileOf]:
    """The Parquet files of a folder, by name, or the one file that is named; a path of any fsspec file system."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    try:
        system, place = url_to_fs(source)
        names = sorted(system.glob(f"{glob.escape(place)}/*.parquet")) if system.isdir(place) else [place]
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
    """A list of files for each worker, the largest first to whoever has the fewest rows; some may get none."""
    shards: list[list[FileOf]] = [[] for _ in range(n_workers)]
    rows = [0] * n_workers
    for file in sorted(files, key=lambda file: (-file.n_rows, file.number)):
        least = rows.index(min(rows))
        shards[least].append(file)
        rows[least] += file.n_rows
    return [sorted(shard) for shard in shards]


class Read(NamedTuple):
    """What a file holds: baskets, and for each a hash of its id, if it has one (n, 2)."""

    baskets: Baskets
    keys: NDArray[np.uint64]


def read_file(path: str, columns: dict[str, str | None]) -> Read:
    """The baskets of one file, which may have none; a basket must not go on in another file."""
    import fsspec  # type: ignore[import-untyped]
    import pyarrow as pa
    import pyarrow.parquet as pq

    assembler = Assembler()
    try:
        with fsspec.open(path, "rb") as stream, pq.ParquetFile(stream) as file:
            layout = layout_of(file.schema_arrow, columns, where=path)
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=layout.columns)
            add_batches(assembler, batches, layout, where=path)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}). It was there when the files were listed") from error
    assembler.drop_cancelled()
    digests = b"".join(blake2b(repr(id_).encode(), digest_size=16).digest() for id_ in assembler.baskets.codes)
    return Read(Baskets(*assembler.finish()), np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2))


def refuse_divided(read: Sequence[tuple[int, Read]], paths: Sequence[str], collective: Collective) -> None:
    """An error for all workers if a basket is in two files: whoever a hash belongs to sees both."""
    keys = np.concatenate([np.empty((0, 2), np.uint64), *[part.keys for _, part in read]])
    files = np.repeat([number for number, _ in read], [len(part.keys) for _, part in read]).astype(np.int32)
    target = keys[:, 0] % np.uint64(collective.size)
    chosen = [np.flatnonzero(target == to) for to in range(collective.size)]
    all_keys, all_files = (
        np.concatenate(
            [
                np.frombuffer(part, dtype=array.dtype)
                for part in collective.exchange([[bytes_of(array[some])] for some in chosen])
            ]
        )
        for array in (keys, files)
    )
    all_keys = all_keys.reshape(-1, 2)
    order = np.lexsort((all_keys[:, 1], all_keys[:, 0]))
    twice = np.flatnonzero((all_keys[order][1:] == all_keys[order][:-1]).all(axis=1))
    pair = all_files[order[[twice[0], twice[0] + 1]]] if len(twice) else np.empty(0, np.int32)
    found = [told for told in gather_arrays(collective, pair) if len(told)]
    if found:
        first, second = (paths[number] for number in sorted(found[0].tolist()))
        raise DataError(
            f"a basket of {first} goes on in {second}: workers read whole files, so write each basket into one file"
        )


@dataclass(frozen=True)
class Shard:
    """What one worker knows: its own baskets, and of all baskets the size and the owner.

    Attributes
    ----------
    own : Sets
        The worker's baskets, codes of the common vocabulary.
    items : Vocabulary
    sizes : array of int32 (n_baskets,)
        Of all baskets, in the order of files and rows.
    starts : array (n_files + 1,)
        The number of the first basket of every file.
    owners, own_starts : arrays (n_files,)
        The worker that has a file, and where the file's baskets start among those of that worker.
    """

    own: Sets
    items: Vocabulary
    sizes: Codes
    starts: Positions
    owners: Positions
    own_starts: Positions
    collective: Collective

    @staticmethod
    def build(read: Sequence[tuple[int, Baskets]], n_files: int, collective: Collective) -> Shard:
        """From what every worker has read, (number of the file, baskets), to a common numbering."""
        owners, counts = np.full(n_files, -1, dtype=np.int64), np.zeros(n_files, dtype=np.int64)
        mine = np.array([[number, baskets.n_baskets] for number, baskets in read], dtype=np.int64).reshape(-1)
        for rank, told in enumerate(gather_arrays(collective, mine)):
            numbers, n_baskets = told.reshape(-1, 2).T
            owners[numbers], counts[numbers] = rank, n_baskets
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        own_starts = np.zeros(n_files, dtype=np.int64)
        sizes = np.zeros(starts[-1], dtype=np.int32)
        flat = np.concatenate([np.empty(0, np.int32), *[baskets.sizes.astype(np.int32) for _, baskets in read]])
        for rank, told in enumerate(gather_arrays(collective, flat)):
            at = 0
            for number in np.flatnonzero(owners == rank):
                own_starts[number] = at
                sizes[starts[number] : starts[number + 1]] = told[at : at + counts[number]]
                at += int(counts[number])
        items = common_vocabulary(read, n_files, collective)
        recoded = [baskets.recode(items) for _, baskets in read]
        indices = np.concatenate([np.empty(0, np.int32), *[baskets.indices for baskets in recoded]])
        indptr = np.concatenate([[0], np.cumsum(flat, dtype=np.int64)]).astype(np.int64)
        return Shard(Sets(indptr, indices), items, sizes, starts, owners, own_starts, collective)

    def take(self, numbers: Positions) -> Sets:
        """The baskets of these numbers, wherever they are: everyone asks for the same."""
        owners, own, sets = self._found(numbers)
        owner_of_entry = np.repeat(owners, sets.sizes)
        for rank, part in enumerate(gather_arrays(self.collective, own.indices)):
            sets.indices[owner_of_entry == rank] = part
        return sets

    def take_own(self, numbers: Positions) -> Sets:
        """The baskets of these numbers, but with entries of −1 where they are another's."""
        owners, own, sets = self._found(numbers)
        sets.indices[:] = -1
        sets.indices[np.repeat(owners == self.collective.rank, sets.sizes)] = own.indices
        return sets

    def deal(self, numbers: Positions) -> Sets:
        """Of these baskets every size-th, counted from our rank: each worker gets as many as any other, or one less."""
        rank, size = self.collective.rank, self.collective.size
        messages = [[bytes_of(self._found(numbers[to::size])[1].indices)] for to in range(size)]
        owners, _, sets = self._found(numbers[rank::size])
        owner_of_entry = np.repeat(owners, sets.sizes)
        for other, part in enumerate(self.collective.exchange(messages)):
            sets.indices[owner_of_entry == other] = np.frombuffer(part, dtype=np.int32)
        return sets

    def _found(self, numbers: Positions) -> tuple[Positions, Sets, Sets]:
        """The owners of these baskets, those that are ours, and room for all."""
        files = np.searchsorted(self.starts, numbers, side="right") - 1
        owners = self.owners[files]
        mine = owners == self.collective.rank
        own = take_sets(self.own, self.own_starts[files[mine]] + numbers[mine] - self.starts[files[mine]])
        indptr = np.concatenate([[0], np.cumsum(self.sizes[numbers])]).astype(np.int64)
        return owners, own, Sets(indptr, np.empty(indptr[-1], dtype=np.int32))

    def clipped(self, size: int) -> Shard:
        """The same baskets, each cut to its first `size` items."""
        kept = np.arange(len(self.own.indices)) - np.repeat(self.own.indptr[:-1], self.own.sizes) < size
        indptr = np.concatenate([[0], np.cumsum(np.minimum(self.own.sizes, size))]).astype(np.int64)
        return replace(self, own=Sets(indptr, self.own.indices[kept]), sizes=np.minimum(self.sizes, np.int32(size)))

    def own_numbers(self) -> Positions:
        """The numbers of the worker's own baskets, in their order."""
        files = np.flatnonzero(self.owners == self.collective.rank)
        parts = [np.arange(self.starts[file], self.starts[file + 1]) for file in files]
        return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)

    def digests(self) -> NDArray[np.int64]:
        """The number and a digest of every file's baskets, by number: the same whoever has read them."""
        mine = []
        for file in np.flatnonzero(self.owners == self.collective.rank):
            first = self.own_starts[file]
            ends = self.own.indptr[[first, first + self.starts[file + 1] - self.starts[file]]]
            word = blake2b(bytes_of(self.own.indices[ends[0] : ends[1]]), digest_size=8).digest()
            mine += [int(file), int.from_bytes(word, "little", signed=True)]
        told = np.concatenate(gather_arrays(self.collective, np.array(mine, dtype=np.int64))).reshape(-1, 2)
        by_number: NDArray[np.int64] = told[np.argsort(told[:, 0])]
        return by_number

    def own_used(self, used: NDArray[np.bool_]) -> Sets:
        """The worker's own baskets, if used (a flag for each of all baskets)."""
        return take_sets(self.own, np.flatnonzero(used[self.own_numbers()]))

    def item_counts(self, used: NDArray[np.bool_]) -> NDArray[np.float64]:
        """In how many of the used baskets (a flag for each) every item is."""
        counts = np.bincount(self.own_used(used).indices, minlength=len(self.items)).astype(np.float64)
        return total(self.collective, counts)


def common_vocabulary(read: Sequence[tuple[int, Baskets]], n_files: int, collective: Collective) -> Vocabulary:
    """All items in order of first appearance, as one machine would number them."""
    from safetensors import SafetensorError
    from safetensors.numpy import load, save

    tensors = {f"{number}/{key}": t for number, b in read for key, t in persist.encode_items(b.items).items()}
    merged: dict[int, Vocabulary] = {}
    for part in gather(collective, save(tensors)):
        try:
            told = load(bytes(part))
        except SafetensorError as error:
            raise ModelFileError(f"a worker's item ids cannot be read ({error})") from error
        for number in {int(key.split("/")[0]) for key in told}:
            own = {key.split("/", 1)[1]: t for key, t in told.items() if key.startswith(f"{number}/")}
            merged[number] = persist.decode_items(own, f"file {number}")
    ids: dict[Any, None] = {}
    names: dict[Any, str] = {}
    for number in range(n_files):
        ids |= dict.fromkeys(merged[number])
        names = merged[number].names | names
    return Vocabulary(ids, names=names)


@dataclass(frozen=True)
class ShardedData(TrainingData):
    """Training data of which every worker has a part; `positives` is a stand-in for what only their number tells."""

    shard: Shard
    numbers: Positions  # of the training baskets
    own_only: bool = False  # leave out the entries of baskets that other workers have

    @property
    def count(self) -> int:
        """How many positives there are."""
        return len(self.numbers)

    def take(self, chosen: Positions) -> tuple[Sets, NDArray[np.float64]]:
        """See `TrainingData`; a collective operation."""
        take = self.shard.take_own if self.own_only else self.shard.take
        return take(self.numbers[chosen]), np.ones(len(chosen))
