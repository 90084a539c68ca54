"""The most probable next items, the best few of many scores, without sorting all of them; and slates of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets, pointers, take_sets
from contradpp.dpp import slates
from contradpp.errors import RankError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]


def best_next(
    kernel: Kernel, sets: Sets, n: int, *, candidates: NDArray[np.int64] | None, banned: NDArray[np.int32]
) -> tuple[NDArray[np.int64], Array]:
    """The codes of the n best next items of every set, −1 where fewer are left, and P(next = i | A).

    With `candidates` (ascending codes) only those are scored; the probabilities still refer to the whole
    catalogue, because the sum over it has a closed form. The result is as wide as its longest row.
    """
    columns = np.arange(kernel.n_items) if candidates is None else candidates
    n = min(n, len(columns))
    codes = np.full((sets.count, n), -1, dtype=np.int64)
    probabilities = np.zeros((sets.count, n))
    for first, last, scores in kernel.next_scores(sets, candidates=candidates) if n else ():
        if candidates is None:
            totals = np.maximum(scores, 0.0).sum(axis=1)
        else:
            totals = kernel.next_totals(take_sets(sets, np.arange(first, last)))
        scores[:, np.isin(columns, banned)] = -np.inf
        best = top_n(scores, n)
        values = np.take_along_axis(scores, best, axis=1)
        there = values >= 0
        codes[first:last] = np.where(there, columns[best], -1)
        np.divide(values, totals[:, None], out=probabilities[first:last], where=there & (totals[:, None] > 0))
    return without_blanks(codes, probabilities)


def next_shares(kernel: Kernel, sets: Sets) -> Iterator[tuple[int, int, Array]]:
    """P(next = i | A) of every set and item, block by block: first set, last set (excluded), shares (sets, M)."""
    for first, last, scores in kernel.next_scores(sets):
        shares = np.maximum(scores, 0.0)
        totals = shares.sum(axis=1, keepdims=True)
        if not totals.all():
            raise RankError(f"basket {first + int(np.argmin(totals))}: no item can be added to it")
        yield first, last, shares / totals


def next_slates(
    vectors: slates.Vectors,
    sets: Sets,
    shares_of_sets: Iterable[tuple[int, int, Array]],
    trade: slates.Trade,
    allowed: NDArray[np.bool_],
    labels: Sequence[Any] | None = None,
    at_most: int | Mapping[Any, int] | None = None,
    *,
    n_jobs: int = 1,
) -> tuple[NDArray[np.int64], Array]:
    """A slate of next items for every set: codes, −1 where fewer are left, and P(next = i | A).

    Parameters
    ----------
    vectors : Vectors
        What is alike, a row per item.
    shares_of_sets : iterable
        As `next_shares` gives them.
    allowed : bool array (M,)
        Which items may be chosen.
    labels : sequence of M categories, optional
        What `at_most` counts; None for an item that has none.
    """
    rules = slates.Rules.of(labels, len(allowed), trade.k, at_most=at_most)
    width = min(trade.k, len(allowed))
    codes = np.full((sets.count, width), -1, dtype=np.int64)
    probabilities = np.zeros((sets.count, width))
    for first, last, shares in shares_of_sets:
        free = np.tile(allowed, (last - first, 1))
        part = take_sets(sets, np.arange(first, last))
        free[np.repeat(np.arange(part.count), part.sizes), part.indices] = False
        rows = np.nonzero(free)[1]
        lists = slates.Lists.plain(pointers(free.sum(axis=1)), shares[free], rows)
        own = rules._replace(groups=rules.groups[rows])
        found = slates.choose(vectors, lists, trade, own, n_jobs=n_jobs)
        there = found.positions >= 0
        places = np.where(there, found.positions + lists.indptr[:-1, None], 0)
        if len(rows):
            codes[first:last, : there.shape[1]] = np.where(there, rows[places], -1)
            probabilities[first:last, : there.shape[1]] = np.where(there, lists.scores[places], 0.0)
    return without_blanks(codes, probabilities)


def without_blanks(codes: NDArray[np.int64], values: Array) -> tuple[NDArray[np.int64], Array]:
    """Both only as wide as the longest row, which ends where codes are −1."""
    width = int((codes >= 0).sum(axis=1).max(initial=0))
    return codes[:, :width], values[:, :width]


def best_columns(scores: Array, values: Array, n: int) -> tuple[NDArray[np.int64], Array]:
    """The columns of the n best scores of every row, −1 where fewer are above −inf, and the values there, else 0."""
    best = top_n(scores, n)
    there = np.take_along_axis(scores, best, axis=1) > -np.inf
    return np.where(there, best, -1), np.where(there, np.take_along_axis(values, best, axis=1), 0.0)


def top_n(scores: Array, n: int) -> NDArray[np.int64]:
    """The columns of the n largest scores of every row, best first, ties in the order of the columns.

    Entries of −inf are never chosen before others; the caller cuts them off.
    """
    n = min(n, scores.shape[1])
    if n == 0:
        return np.empty((len(scores), 0), dtype=np.int64)
    if n == scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    columns = np.argpartition(scores, scores.shape[1] - n, axis=1)[:, -n:]
    lowest = np.take_along_axis(scores, columns, axis=1).min(axis=1)
    for row in np.flatnonzero((scores >= lowest[:, None]).sum(axis=1) > n):  # a tie at the cut
        columns[row] = np.argsort(-scores[row], kind="stable")[:n]
    columns.sort(axis=1)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)
