"""The most probable next items, the best few of many scores, without sorting all of them; and slates of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets, pointers, take_sets
from contradpp.dpp import compiled, condition, factor, slates

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

BOUNDED_FROM = 20_000  # candidates from which on bounds are worth their trouble
FIRST_LOOK, MOST_AT_ONCE = 1024, 2**16  # how many are scored at first, then twice as many, up to these
FEW = 100  # up to which the best of a row are kept in order while it is read
_ROUNDING = 1e-14  # of a score by way of an inverse, over its bound and the square of |A| and of the worst entry


def best_next(
    kernel: Kernel, sets: Sets, n: int, *, candidates: Codes | None, banned: NDArray[np.int32]
) -> tuple[Codes, Array]:
    """The codes of the n best next items of every set, −1 where fewer are left, and P(next = i | A).

    With `candidates` (ascending codes) only those are scored; the probabilities still refer to the whole
    catalogue, because the sum over it has a closed form. The result is as wide as its longest row.
    """
    many = (kernel.n_items if candidates is None else len(candidates)) >= BOUNDED_FROM
    if many and (kernel.plain or kernel.symmetric):
        return _best_by_bounds(kernel, sets, n, candidates, banned)
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


def _best_by_bounds(
    kernel: Kernel, sets: Sets, n: int, candidates: Codes | None, banned: NDArray[np.int32]
) -> tuple[Codes, Array]:
    """As `best_next`, but only items that may be among the best are scored."""
    allowed = None
    if candidates is not None or len(banned):
        allowed = np.full(kernel.n_items, candidates is None)
        allowed[() if candidates is None else candidates] = True
        allowed[banned] = False
    n = min(n, kernel.n_items if candidates is None else len(candidates))
    codes, scores = np.full((sets.count, n), -1, dtype=np.int64), np.zeros((sets.count, n))
    totals, large = np.empty((sets.count, 1)), sets.sizes > factor.LARGE
    for s in range(sets.count if n else 0):
        A = take_sets(sets, np.array([s]))
        if large[s]:
            found, values, totals[s] = _best_of_all(kernel, A, s, n, allowed)
        else:
            found, values = _best_of_order(kernel, A, s, n, allowed)
        codes[s, : len(found)], scores[s, : len(found)] = found, values
    totals[~large, 0] = kernel.next_totals(take_sets(sets, np.flatnonzero(~large)))
    return without_blanks(codes, np.divide(scores, totals, out=np.zeros_like(scores), where=totals > 0))


def _best_of_all(
    kernel: Kernel, A: Sets, number: int, n: int, allowed: NDArray[np.bool_] | None
) -> tuple[Codes, Array, float]:
    """The n best next items of one large basket, their scores, and the sum of all, by one factorisation."""
    scores = condition.score_block(kernel, A, np.array([number]), None)
    total = float(np.maximum(scores, 0.0).sum())
    if allowed is not None:
        scores[:, ~allowed] = -np.inf
    best = top_n(scores, n)[0]
    best = best[scores[0, best] >= 0]
    return best, scores[0, best], total


def _best_of_order(
    kernel: Kernel, A: Sets, number: int, n: int, allowed: NDArray[np.bool_] | None
) -> tuple[Codes, Array]:
    """The n best next items of one basket, and their scores: items by descending L_jj, until no other can be better.

    The score of an item that is no partner of the basket is L_jj − (V_A v_j)ᵀ W (V_A v_j) ≤ L_jj: the symmetric part of
    W = L_A⁻¹ is positive semi-definite, as that of L_A is. Partners may have more, so that all of them are scored.
    """
    order, most = kernel.by_weight, 1.0
    if not kernel.symmetric and len(A.indices):
        most += _ROUNDING * (len(A.indices) * float(factor.inverses(kernel, A).worst[0])) ** 2
    partners = np.unique(kernel.skew.entries(A.indices)[1])
    codes, scores = np.empty(0, dtype=np.int64), np.empty(0)
    first, step = 0, max(FIRST_LOOK, 2 * n)
    while first < len(order):
        block = order[first : first + step]
        new = np.union1d(block, partners) if not first else np.setdiff1d(block, partners)  # ascending
        new = new if allowed is None else new[allowed[new]]
        told = condition.score_block(kernel, A, np.array([number]), new)[0]
        codes, scores = np.append(codes, new[told >= 0]), np.append(scores, told[told >= 0])
        best = np.lexsort((codes, -scores))[:n]  # of equal scores the lower code
        codes, scores = codes[best], scores[best]
        first, step = first + step, min(2 * step, MOST_AT_ONCE)
        if len(codes) == n and first < len(order) and scores[-1] > most * kernel.squared_norms[order[first]]:
            break
    return codes, scores


def next_shares(kernel: Kernel, sets: Sets) -> Iterator[tuple[int, int, Array]]:
    """P(next = i | A) of every set and item, block by block: first set, last set (excluded), shares (sets, M).

    The shares of a set sum to 1, or are all zero if it is the whole catalogue.
    """
    for first, last, scores in kernel.next_scores(sets):
        shares = np.maximum(scores, 0.0)
        totals = shares.sum(axis=1, keepdims=True)
        totals[totals == 0] = 1.0  # only a set of the whole catalogue: `next_scores` refuses any other without scores
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
) -> tuple[Codes, Array]:
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


def without_blanks(codes: NDArray[np.int64], values: Array) -> tuple[Codes, Array]:
    """Both only as wide as the longest row, which ends where codes are −1."""
    width = int((codes >= 0).sum(axis=1).max(initial=0))
    return codes[:, :width], values[:, :width]


def best_columns(scores: Array, values: Array, n: int) -> tuple[Codes, Array]:
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
    if n <= FEW:
        best = np.empty((len(scores), n), dtype=np.int64)
        compiled.kernels.best_of_rows(np.ascontiguousarray(scores, dtype=np.float64), best)
        return best
    columns = np.argpartition(scores, scores.shape[1] - n, axis=1)[:, -n:]
    lowest = np.take_along_axis(scores, columns, axis=1).min(axis=1)
    for row in np.flatnonzero((scores >= lowest[:, None]).sum(axis=1) > n):  # a tie at the cut
        columns[row] = np.argsort(-scores[row], kind="stable")[:n]
    columns.sort(axis=1)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)
