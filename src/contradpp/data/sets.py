"""Sets of item codes as a CSR, and the operations on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._random import stream
from contradpp._types import Array, Codes, Flags, Ints
from contradpp.errors import DataError

_BLOCK = 1 << 22  # entries searched for duplicates at a time


class _CSR(NamedTuple):
    indptr: Ints
    indices: Codes


class Sets(_CSR):
    """Several sets of item codes as a CSR: set s holds `indices[indptr[s]:indptr[s + 1]]`.

    The arrays are read-only: Numba would compile a kernel again for arrays that are not.
    """

    __slots__ = ()

    def __new__(cls, indptr: Ints, indices: Codes) -> Self:
        return super().__new__(cls, frozen(indptr), frozen(indices))

    @property
    def count(self) -> int:  # type: ignore[override]
        """The number of sets."""
        return len(self.indptr) - 1

    @property
    def sizes(self) -> Ints:
        """The number of items in each set."""
        return np.diff(self.indptr)

    @property
    def owners(self) -> Ints:
        """The set of each entry."""
        return np.repeat(np.arange(self.count), self.sizes)

    def carry(self, others: Sets, which: Ints) -> Sets:  # noqa: ARG002
        """Return others, made of the sets at these positions, with all that belongs to these."""
        return others

    @staticmethod
    def empty(n: int) -> Sets:
        """Make `n` empty sets."""
        return Sets(np.zeros(n + 1, dtype=np.int64), np.empty(0, dtype=np.int32))

    @staticmethod
    def one(codes: ArrayLike) -> Sets:
        """Make a single set."""
        indices = np.asarray(codes, dtype=np.int32).reshape(-1)
        return Sets(np.array([0, len(indices)], dtype=np.int64), indices)


def pointers(sizes: ArrayLike) -> Ints:
    """Return the indptr of sets of these sizes."""
    indptr = np.zeros(np.size(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, dtype=np.int64, out=indptr[1:])
    return indptr


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view."""
    array = array.view()
    array.flags.writeable = False
    return array


EMPTY = Sets.empty(0)


def checked_csr(indptr: ArrayLike, indices: ArrayLike, n_items: int) -> tuple[Ints, Codes]:
    """Check and convert the arrays of a CSR of item codes."""
    pointers = np.asarray(indptr)
    codes = np.asarray(indices)
    for name, array in (("indptr", pointers), ("indices", codes)):
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            raise DataError(
                f"{name} must be a one-dimensional array of integers, "
                f"got {array.dtype} {array.shape}"
            )
    ends = (pointers[0], pointers[-1]) if pointers.size else ()
    if ends != (0, len(codes)) or np.any(np.diff(pointers) < 0):
        raise DataError(f"indptr must rise from 0 to the number of indices ({len(codes)})")
    if n_items > np.iinfo(np.int32).max:
        raise DataError(f"at most {np.iinfo(np.int32).max:,} items are supported, got {n_items:,}")
    if codes.size and (codes.min() < 0 or codes.max() >= n_items):
        raise DataError(f"indices must lie in 0..{n_items - 1}, got {codes.min()}..{codes.max()}")
    return pointers.astype(np.int64, copy=False), codes.astype(np.int32, copy=False)


def without_duplicates(indptr: Ints, indices: Codes, n_items: int) -> tuple[Ints, Codes]:
    """Drop the second and later occurrences of an item in a set; the others stay in order."""
    sizes = np.diff(indptr)
    repeated = np.zeros(len(indices), dtype=bool)
    for first, last in runs(indptr, _BLOCK):  # sorting takes many times the memory of the codes
        block = slice(indptr[first], indptr[last])
        owner = np.repeat(np.arange(last - first), sizes[first:last])
        key = owner * max(n_items, 1) + indices[block]
        order = np.argsort(key, kind="stable")
        key = key[order]
        repeated[block][order[1:]] = key[1:] == key[:-1]
        sizes[first:last] -= np.bincount(owner[repeated[block]], minlength=last - first)
    if not repeated.any():
        return indptr, indices
    return pointers(sizes), indices[np.logical_not(repeated, out=repeated)]


def take_sets(sets: Sets, which: Ints) -> Sets:
    """Select the sets at these positions."""
    return sets.carry(_taken(sets, which), which)


def _taken(sets: Sets, which: Ints) -> Sets:
    if len(which) == sets.count and (which == np.arange(sets.count)).all():
        return sets
    sizes = sets.indptr[which + 1] - sets.indptr[which]
    indptr = pointers(sizes)
    if len(which) > sets.count // 2 and (which[1:] > which[:-1]).all():
        # A mask of the entries takes far less memory than their positions.
        wanted = np.zeros(sets.count, dtype=bool)
        wanted[which] = True
        return Sets(indptr, sets.indices[np.repeat(wanted, sets.sizes)])
    source = np.repeat(sets.indptr[which] - indptr[:-1], sizes) + np.arange(indptr[-1])
    return Sets(indptr, sets.indices[source])


def kept_entries(sets: Sets, keep: Flags) -> Sets:
    """Select entries, marked by a flag each; a set may become empty."""
    if keep.all():
        return sets
    return Sets(pointers(np.bincount(sets.owners[keep], minlength=sets.count)), sets.indices[keep])


def first_entries(sets: Sets, size: int) -> Flags:
    """Flag the first `size` entries of each set."""
    first: Flags = np.arange(len(sets.indices)) - np.repeat(sets.indptr[:-1], sets.sizes) < size
    return first


def places_by(values: NDArray[np.floating], sets: Sets) -> Ints:
    """Rank every entry within its set by these values, from 0 on."""
    owner = sets.owners
    places = np.empty(len(owner), dtype=np.int64)
    places[np.lexsort((values, owner))] = np.arange(len(owner)) - np.repeat(
        sets.indptr[:-1], sets.sizes
    )
    return places


def drawn_entries(sets: Sets, size: int) -> Flags:
    """Flag `size` random entries of each set, or all of a smaller set.

    The positions that are drawn depend on the two sizes alone, so that every worker draws the same.
    """
    drawn = np.ones(len(sets.indices), dtype=bool)
    for large in np.flatnonzero(sets.sizes > size).tolist():
        first, last = sets.indptr[large : large + 2].tolist()
        drawn[first + stream(size, last - first).permutation(last - first)[size:]] = False
    return drawn


def difference(sets: Sets, others: Sets, n_items: int) -> Sets:
    """Remove from each set the items of the other set at the same position."""
    keys, other_keys = (part.owners * max(n_items, 1) + part.indices for part in (sets, others))
    return kept_entries(sets, ~np.isin(keys, other_keys))


def without_each(sets: Sets) -> Sets:
    """Make, for every entry of every set, the set without it."""
    owner = sets.owners  # (nnz,)
    copies = take_sets(sets, owner)
    place = np.arange(len(owner)) - sets.indptr[owner]
    keep = np.ones(len(copies.indices), dtype=bool)
    keep[copies.indptr[:-1] + place] = False
    return Sets(copies.indptr - np.arange(len(owner) + 1), copies.indices[keep])


def swaps(sets: Sets, others: Sets) -> tuple[Sets, Ints]:
    """Replace every entry of every set by each item of the other set at the same position.

    Returns the new sets, and the entry that each replaces.
    """
    owner = sets.owners
    times = others.sizes[owner]
    entry = np.repeat(np.arange(len(owner)), times)
    owner = owner[entry]
    swapped = take_sets(sets, owner)
    place = entry - sets.indptr[owner]
    rank = np.arange(len(entry)) - np.repeat(np.cumsum(times) - times, times)
    source = others.indptr[owner] + rank
    indices = swapped.indices.copy()
    indices[swapped.indptr[:-1] + place] = others.indices[source]
    return Sets(swapped.indptr, indices), entry


def runs(indptr: Ints, entries: int, *, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield runs (first, last) of consecutive sets with at most `entries` entries and `most` sets.

    A larger set is a run of its own.
    """
    first = 0
    n = len(indptr) - 1
    while first < n:
        last = int(np.searchsorted(indptr, indptr[first] + entries, side="right")) - 1
        last = min(max(last, first + 1), n if most is None else first + most, n)
        yield first, last
        first = last


def sums_over_sets(values: Array, sets: Sets) -> Array:
    """Sum a value per entry over each set."""
    return np.bincount(sets.owners, weights=values, minlength=sets.count).astype(np.float64)


def concatenate(first: Sets, second: Sets) -> Sets:
    """Concatenate two collections of sets."""
    return first if second.count == 0 else joined([first, second])


def joined(parts: Sequence[Sets]) -> Sets:
    """Concatenate several collections of sets."""
    sizes = np.concatenate([part.sizes for part in parts])
    return Sets(pointers(sizes), np.concatenate([part.indices for part in parts]))


def distinct_sets(sets: Sets, weights: Array) -> tuple[Sets, Array]:
    """Merge sets with the same items, in order of first appearance; their weights are summed."""
    ordered = sets.indices[np.lexsort((sets.indices, sets.owners))]
    numbers: dict[bytes, int] = {}
    which = np.empty(sets.count, dtype=np.int64)
    for s, (first, last) in enumerate(itertools.pairwise(sets.indptr.tolist())):
        which[s] = numbers.setdefault(ordered[first:last].tobytes(), len(numbers))
    first_seen = np.unique(which, return_index=True)[1]
    sums = np.bincount(which, weights=weights, minlength=len(numbers)).astype(np.float64)
    return take_sets(sets, first_seen), sums


def prefixes(codes: Codes) -> Sets:
    """Make a set of the first 0, 1, ..., n of n codes each."""
    sizes = np.arange(len(codes) + 1)
    return Sets(pointers(sizes), np.concatenate([codes[:size] for size in sizes]).astype(np.int32))
