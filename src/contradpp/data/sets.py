"""Sets of item codes as a CSR, and every operation on them: taking, joining, sums, runs, checks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._random import stream
from contradpp.errors import DataError

_BLOCK = 1 << 22  # entries searched for duplicates at a time


class _CSR(NamedTuple):
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]


class Sets(_CSR):
    """Several sets of item codes as a CSR: set s holds `indices[indptr[s]:indptr[s + 1]]`.

    Its arrays are read-only, whatever they were: Numba compiles a kernel anew for those that are not.
    """

    __slots__ = ()

    def __new__(cls, indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> Self:
        return super().__new__(cls, frozen(indptr), frozen(indices))

    @property
    def count(self) -> int:  # type: ignore[override]
        """How many sets there are."""
        return len(self.indptr) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many items each set has."""
        return np.diff(self.indptr)

    @property
    def owners(self) -> NDArray[np.int64]:
        """The set of every entry."""
        return np.repeat(np.arange(self.count), self.sizes)

    @staticmethod
    def empty(n: int) -> Sets:
        """`n` sets without items."""
        return Sets(np.zeros(n + 1, dtype=np.int64), np.empty(0, dtype=np.int32))

    @staticmethod
    def one(codes: ArrayLike) -> Sets:
        """A single set."""
        indices = np.asarray(codes, dtype=np.int32).reshape(-1)
        return Sets(np.array([0, len(indices)], dtype=np.int64), indices)


def pointers(sizes: ArrayLike) -> NDArray[np.int64]:
    """The indptr of sets of these sizes."""
    indptr = np.zeros(np.size(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, dtype=np.int64, out=indptr[1:])
    return indptr


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to."""
    array = array.view()
    array.flags.writeable = False
    return array


EMPTY = Sets.empty(0)


def checked_csr(indptr: ArrayLike, indices: ArrayLike, n_items: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The arrays of a CSR of item codes, or `DataError` with what is wrong with them."""
    pointers, codes = np.asarray(indptr), np.asarray(indices)
    for name, array in (("indptr", pointers), ("indices", codes)):
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            raise DataError(f"{name} must be a one-dimensional array of integers, got {array.dtype} {array.shape}")
    if not pointers.size or pointers[0] != 0 or pointers[-1] != len(codes) or np.any(np.diff(pointers) < 0):
        raise DataError(f"indptr must rise from 0 to the number of indices ({len(codes)})")
    if n_items > np.iinfo(np.int32).max:
        raise DataError(f"at most {np.iinfo(np.int32).max:,} items can be told apart, got {n_items:,}")
    if codes.size and (codes.min() < 0 or codes.max() >= n_items):
        raise DataError(f"indices must lie in 0..{n_items - 1}, got {codes.min()}..{codes.max()}")
    return pointers.astype(np.int64, copy=False), codes.astype(np.int32, copy=False)


def without_duplicates(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], n_items: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Drop the second and later occurrences of an item in a basket, keeping the order of the rest."""
    left = np.diff(indptr)
    again = np.zeros(len(indices), dtype=bool)
    for first, last in runs(indptr, _BLOCK):  # sorting takes many times the memory of the codes
        block = slice(indptr[first], indptr[last])
        owner = np.repeat(np.arange(last - first), left[first:last])
        key = owner * max(n_items, 1) + indices[block]
        order = np.argsort(key, kind="stable")
        key = key[order]
        again[block][order[1:]] = key[1:] == key[:-1]
        left[first:last] -= np.bincount(owner[again[block]], minlength=last - first)
    if not again.any():
        return indptr, indices
    return pointers(left), indices[np.logical_not(again, out=again)]


def take_sets(sets: Sets, which: NDArray[np.int64]) -> Sets:
    """The sets at these positions."""
    if len(which) == sets.count and (which == np.arange(sets.count)).all():
        return sets
    sizes = sets.indptr[which + 1] - sets.indptr[which]
    indptr = pointers(sizes)
    if len(which) > sets.count // 2 and (which[1:] > which[:-1]).all():  # positions of all entries would take far more
        kept = np.zeros(sets.count, dtype=bool)
        kept[which] = True
        return Sets(indptr, sets.indices[np.repeat(kept, sets.sizes)])
    source = np.repeat(sets.indptr[which] - indptr[:-1], sizes) + np.arange(indptr[-1])
    return Sets(indptr, sets.indices[source])


def kept_entries(sets: Sets, kept: NDArray[np.bool_]) -> Sets:
    """The sets with only the entries that are marked."""
    if kept.all():
        return sets
    return Sets(pointers(np.bincount(sets.owners[kept], minlength=sets.count)), sets.indices[kept])


def first_entries(sets: Sets, size: int) -> NDArray[np.bool_]:
    """Which entries are among the first `size` of their set."""
    first: NDArray[np.bool_] = np.arange(len(sets.indices)) - np.repeat(sets.indptr[:-1], sets.sizes) < size
    return first


def places_by(values: NDArray[np.floating], sets: Sets) -> NDArray[np.int64]:
    """The place of every entry among those of its set in the order of these values, from 0 on."""
    owner = sets.owners
    places = np.empty(len(owner), dtype=np.int64)
    places[np.lexsort((values, owner))] = np.arange(len(owner)) - np.repeat(sets.indptr[:-1], sets.sizes)
    return places


def drawn_entries(sets: Sets, size: int) -> NDArray[np.bool_]:
    """Which entries are among `size` of their set that are drawn at random, or all of a set that has no more.

    Which places are drawn depends on the two sizes alone, so that all that learn from a set learn from the same items,
    on one machine or many.
    """
    drawn = np.ones(len(sets.indices), dtype=bool)
    for large in np.flatnonzero(sets.sizes > size).tolist():
        first, last = sets.indptr[large : large + 2].tolist()
        drawn[first + stream(size, last - first).permutation(last - first)[size:]] = False
    return drawn


def difference(sets: Sets, others: Sets, n_items: int) -> Sets:
    """Every set without the items of the other one at its place."""
    keys, other_keys = (part.owners * max(n_items, 1) + part.indices for part in (sets, others))
    return kept_entries(sets, ~np.isin(keys, other_keys))


def without_each(sets: Sets) -> Sets:
    """For every entry of every set, the set without it."""
    owner = sets.owners  # (nnz,)
    copies = take_sets(sets, owner)
    place = np.arange(len(owner)) - sets.indptr[owner]
    kept = np.ones(len(copies.indices), dtype=bool)
    kept[copies.indptr[:-1] + place] = False
    return Sets(copies.indptr - np.arange(len(owner) + 1), copies.indices[kept])


def swaps(sets: Sets, others: Sets) -> tuple[Sets, NDArray[np.int64]]:
    """For every entry of every set, the set with each item of the other one in its place, and which entry that was."""
    owner = sets.owners
    times = others.sizes[owner]
    entry = np.repeat(np.arange(len(owner)), times)
    swapped, place = take_sets(sets, owner[entry]), entry - sets.indptr[owner[entry]]
    source = others.indptr[owner[entry]] + np.arange(len(entry)) - np.repeat(np.cumsum(times) - times, times)
    indices = swapped.indices.copy()
    indices[swapped.indptr[:-1] + place] = others.indices[source]
    return Sets(swapped.indptr, indices), entry


def runs(indptr: NDArray[np.int64], entries: int, *, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Runs of consecutive sets with at most so many entries (a larger set is one of its own), and `most` sets."""
    first, n = 0, len(indptr) - 1
    while first < n:
        last = int(np.searchsorted(indptr, indptr[first] + entries, side="right")) - 1
        last = min(max(last, first + 1), n if most is None else first + most, n)
        yield first, last
        first = last


def sums_over_sets(values: NDArray[np.float64], sets: Sets) -> NDArray[np.float64]:
    """The sum over each set of a value per entry."""
    return np.bincount(sets.owners, weights=values, minlength=sets.count).astype(np.float64)


def concatenate(first: Sets, second: Sets) -> Sets:
    """The sets of both, one after the other."""
    return first if second.count == 0 else joined([first, second])


def joined(parts: Sequence[Sets]) -> Sets:
    """The sets of all parts, one after the other."""
    sizes = np.concatenate([part.sizes for part in parts])
    return Sets(pointers(sizes), np.concatenate([part.indices for part in parts]))


def distinct_sets(sets: Sets, weights: NDArray[np.float64]) -> tuple[Sets, NDArray[np.float64]]:
    """Every set once, whatever the order of its items, with the sum of the weights; in order of first appearance."""
    ordered = sets.indices[np.lexsort((sets.indices, sets.owners))]
    numbers: dict[bytes, int] = {}
    which = np.empty(sets.count, dtype=np.int64)
    for s, (first, last) in enumerate(itertools.pairwise(sets.indptr.tolist())):
        which[s] = numbers.setdefault(ordered[first:last].tobytes(), len(numbers))
    first_seen = np.unique(which, return_index=True)[1]
    sums = np.bincount(which, weights=weights, minlength=len(numbers)).astype(np.float64)
    return take_sets(sets, first_seen), sums


def prefixes(codes: NDArray[np.int32]) -> Sets:
    """The first 0, 1, ..., n of the codes, a set each."""
    sizes = np.arange(len(codes) + 1)
    return Sets(pointers(sizes), np.concatenate([codes[:size] for size in sizes]).astype(np.int32))
