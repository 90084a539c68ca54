"""Who has which row: V spread over workers by a hash of the rows' numbers, and how rows and their gradients travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contradpp.distributed.collective import Collective, bytes_of

Array = NDArray[np.float64]
Codes = NDArray[np.int32]
Positions = NDArray[np.int64]


def scrambled(numbers: NDArray[np.integer]) -> NDArray[np.uint64]:
    """A hash of whole numbers (the finaliser of SplitMix64): neighbours have nothing in common."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return hashed


class Owners:
    """Which worker has row i of a matrix of `n_rows`, and where among its own.

    Attributes
    ----------
    own : array
        The numbers of our own rows, in order.
    owner, place : arrays (n_rows,)
    """

    def __init__(self, n_rows: int, collective: Collective) -> None:
        self.collective = collective
        self.owner = (scrambled(np.arange(n_rows)) % np.uint64(collective.size)).astype(np.int16)
        order = np.argsort(self.owner, kind="stable")
        counts = np.bincount(self.owner, minlength=collective.size)
        starts = np.concatenate([[0], np.cumsum(counts)])
        self.place = np.empty(n_rows, dtype=np.int32)
        self.place[order] = np.arange(n_rows) - np.repeat(starts[:-1], counts)
        self.own: Positions = order[starts[collective.rank] : starts[collective.rank + 1]]
        self._marks = np.full(n_rows, -1, dtype=np.int32)

    def number(self, items: Codes) -> tuple[Codes, Codes]:
        """The distinct items, sorted by owner, and for each entry the place of its item among them."""
        from contradpp.dpp.compiled import gradients

        slots = np.empty(len(items), dtype=np.int32)
        rows = np.empty(min(len(items), len(self.owner)), dtype=np.int32)
        rows = rows[: gradients.number_rows(items, self._marks, slots, rows)]
        order = np.argsort(self.owner[rows], kind="stable")
        place = np.empty(len(rows), dtype=np.int32)
        place[order] = np.arange(len(rows), dtype=np.int32)
        return rows[order], place[slots]

    def route(self, rows: Codes) -> Route:
        """A way to these distinct rows, sorted by owner; every worker asks for some at the same time."""
        counts = np.bincount(self.owner[rows], minlength=self.collective.size)
        ends = np.concatenate([[0], np.cumsum(counts)]).tolist()
        places = self.place[rows]
        asked = [[bytes_of(places[ends[to] : ends[to + 1]])] for to in range(self.collective.size)]
        wanted = [np.frombuffer(part, dtype=np.int32) for part in self.collective.exchange(asked)]
        return Route(self.collective, rows, ends, wanted, self._marks)


@dataclass(frozen=True)
class Route:
    """The way from a worker to rows of others and back.

    Attributes
    ----------
    rows : array of int32
        The numbers of the rows, sorted by owner.
    ends : list
        Those of worker r are ends[r]..ends[r + 1].
    wanted : list of arrays
        What every worker wants of our own rows.
    """

    collective: Collective
    rows: Codes
    ends: Sequence[int]
    wanted: Sequence[Codes]
    marks: Codes

    def fetch(self, own: Array) -> Array:
        """The rows of the whole matrix, of which every worker has its own."""
        rank = self.collective.rank
        found = np.empty((len(self.rows), own.shape[1]))
        parts = self._parts(found)
        parts[rank][:] = own[self.wanted[rank]]
        messages = [own[wanted] if to != rank else parts[rank] for to, wanted in enumerate(self.wanted)]
        self.collective.exchange([[bytes_of(m)] for m in messages], [[bytes_of(part)] for part in parts])
        return found

    def deliver(self, values: Array, header: Array) -> tuple[Codes, Array, Array]:
        """Give a value for each row to its owner: the places of own rows that got some, their sums, and of the headers.

        Sums are made in order of rank, so that they do not depend on who is first.
        """
        from contradpp.dpp.compiled import gradients

        rank, size = self.collective.rank, self.collective.size
        counts = [len(wanted) for wanted in self.wanted]
        bounds = np.concatenate([[0], np.cumsum(counts)]).tolist()
        heard, headers = np.empty((bounds[-1], values.shape[1])), np.empty((size, len(header)))
        parts = self._parts(values)
        heard[bounds[rank] : bounds[rank + 1]], headers[rank] = parts[rank], header
        places = [[bytes_of(headers[r]), bytes_of(heard[bounds[r] : bounds[r + 1]])] for r in range(size)]
        self.collective.exchange([[bytes_of(header), bytes_of(part)] for part in parts], places)
        told = np.concatenate(self.wanted)
        slots = np.empty(len(told), dtype=np.int32)
        places_of = np.empty(min(len(told), len(self.marks)), dtype=np.int32)
        count = gradients.number_rows(told, self.marks, slots, places_of)
        sums = np.empty((count, values.shape[1]))
        gradients.gather_rows(heard, np.array([0, len(told)]), slots, np.ones(1), sums)
        return places_of[:count], sums, headers.sum(axis=0)

    def _parts(self, values: Array) -> list[Array]:
        return [values[self.ends[r] : self.ends[r + 1]] for r in range(self.collective.size)]
