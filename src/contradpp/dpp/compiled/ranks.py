"""Numba kernels for evaluation: how many items beat, or tie with, each item that is left out of its basket.

Every kernel sees a tile of columns (items) at a time, for a block of baskets: the tile stays in the cache
between the matrix product that made it and the comparison. A score x and the score s of the item that was left
out tie where |x − s| ≤ δ_x + δ_s, the δ being bounds of rounding that the caller chooses; x beats s where it is
larger by more than that. Items of the basket have the score −inf, which neither beats nor ties.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import entry, helper

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]


@helper
def offer(scores: Array, slacks: Array, codes: Codes, score: float, slack: float, code: int) -> None:
    """Insert an item into a list of the best, best first, if it beats one of them; what came first wins a tie."""
    place = len(scores)
    while place > 0 and score - slack > scores[place - 1] + slacks[place - 1]:
        place -= 1
    for later in range(len(scores) - 1, place, -1):
        scores[later] = scores[later - 1]
        slacks[later] = slacks[later - 1]
        codes[later] = codes[later - 1]
    if place < len(scores):
        scores[place] = score
        slacks[place] = slack
        codes[place] = code


@helper
def combine(Y: Array, weights: Array, first: int, last: int, x: Array) -> None:
    """x = Σ_b weights_b Y_b over the rows first..last−1, four at a time to spare the cache."""
    width = len(x)
    b = first + (last - first) % 4
    for j in range(width):
        x[j] = 0.0
    for c in range(first, b):
        w, y = weights[c - first], Y[c]
        for j in range(width):
            x[j] += w * y[j]
    while b < last:
        c = b - first
        w0, w1, w2, w3 = weights[c], weights[c + 1], weights[c + 2], weights[c + 3]
        y0, y1, y2, y3 = Y[b], Y[b + 1], Y[b + 2], Y[b + 3]
        for j in range(width):
            x[j] += (w0 * y0[j] + w1 * y1[j]) + (w2 * y2[j] + w3 * y3[j])
        b += 4


@helper
def start_tile(delta: Array, offset: int, codes: Codes, given: Array, above: Array, below: Array) -> None:
    """From the scores given a whole set: −inf for its items, and the scores less and plus their rounding."""
    width = len(given)
    for a in range(len(codes)):
        if offset <= codes[a] < offset + width:
            given[codes[a] - offset] = -np.inf
    for j in range(width):
        above[j] = given[j] - delta[j]
        below[j] = given[j] + delta[j]


@helper
def tally(
    given: Array, above: Array, below: Array, delta: Array, x: Array, offset: int, code: int, own: float, slack: float,
    counts: Pointers, kept: bool, best: Array, slacks: Array, codes: Codes,
) -> None:  # fmt: skip
    """Compare the scores given + x of a tile with `own`, that of the item `code` that was left out.

    `counts` gains the items that beat it, and those that tie with it or beat it. If `kept`, the lists of the best
    (codes, scores, and δ, which start at −inf and 0) take the items of the tile, the one left out with its own score.
    """
    upper, lower = own + slack, own - slack
    better, at_least = 0, 0
    for j in range(len(x)):
        better += 1 if above[j] + x[j] > upper else 0
        at_least += 1 if below[j] + x[j] >= lower else 0
    counts[0] += better
    counts[1] += at_least
    if kept:
        for j in range(len(x)):
            score = own if offset + j == code else given[j] + x[j]
            if score > best[-1]:
                offer(best, slacks, codes, score, delta[j], offset + j)


@helper
def take_away(norms: Array, Y: Array, shift: int, start: int, stop: int, given: Array) -> None:
    """given_j = norms_j − Σ_a Y[a, j] Y[shift + a, j] over the rows of a set."""
    for j in range(len(given)):
        given[j] = norms[j]
    for a in range(start, stop):
        E, U = Y[a], Y[shift + a]
        for j in range(len(given)):
            given[j] -= E[j] * U[j]


@entry
def compare_directions(
    Y: Array, weights: Array, norms: Array, delta: Array, offset: int, indptr: Pointers, indices: Codes,
    scores: Array, slack: Array, held: Pointers, counts: Pointers, top: Array, top_codes: Codes,
) -> None:  # fmt: skip
    """Compare the scores L_jj − Σ_b Y_bj² + (Σ_b weights_ib Y_bj)² of a tile of items with that of the item left out.

    Y (entries, tile) is the product of the orthonormal rows with the factors of items offset, offset + 1, ... .
    Row i of `counts` is that of the item i left out; set s keeps its best items given its set without entry held[s].
    """
    width = Y.shape[1]
    given, above, below, x = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    for s in range(len(indptr) - 1):
        start, stop = indptr[s], indptr[s + 1]
        take_away(norms, Y, 0, start, stop, given)
        start_tile(delta, offset, indices[start:stop], given, above, below)
        for i in range(start, stop):
            combine(Y, weights[i, i - start :], i, stop, x)
            for j in range(width):
                x[j] *= x[j]
            tally(given, above, below, delta, x, offset, indices[i], scores[i], slack[i], counts[i], i == held[s],
                  top[0, s], top[1, s], top_codes[s])  # fmt: skip


@entry
def compare_products(
    Y: Array, norms: Array, delta: Array, offset: int, indptr: Pointers, indices: Codes,
    scores: Array, slack: Array, held: Pointers, counts: Pointers, top: Array, top_codes: Codes,
) -> None:  # fmt: skip
    """As `compare_directions` for the scores c_j + Q_ij U_ij / W_ii, c_j = L_jj − Σ_a E_aj U_aj, of any kernel.

    Y holds E = L_:Aᵀ, U = W L_A: and Q = Wᵀ L_:Aᵀ, each with a row per entry; `scores` holds 1/W_ii.
    """
    n, width = len(indices), Y.shape[1]
    given, above, below, x = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    for s in range(len(indptr) - 1):
        start, stop = indptr[s], indptr[s + 1]
        take_away(norms, Y, n, start, stop, given)
        start_tile(delta, offset, indices[start:stop], given, above, below)
        for i in range(start, stop):
            U, Q, factor = Y[n + i], Y[2 * n + i], scores[i]
            for j in range(width):
                x[j] = Q[j] * U[j] * factor
            tally(given, above, below, delta, x, offset, indices[i], scores[i], slack[i], counts[i], i == held[s],
                  top[0, s], top[1, s], top_codes[s])  # fmt: skip


@entry
def compare_sums(
    rows: Array, bias: Array, tie: float, indptr: Pointers, indices: Codes, held: Pointers,
    counts: Pointers, top: Array, top_codes: Codes,
) -> None:  # fmt: skip
    """As `compare_directions` for the scores bias_j + Σ_b rows_bj over the entries b of the set but i.

    Row i is the sum over the whole set less its own row; δ_j is `tie` times the sum of the absolute values.
    """
    n_items, width = rows.shape[1], 512
    room = np.empty((5, width))
    for s in range(len(indptr) - 1):
        start, stop = indptr[s], indptr[s + 1]
        scores, slack = np.empty(stop - start), np.empty(stop - start)
        for i in range(start, stop):
            own = indices[i]
            value, absolute = bias[own], abs(bias[own])
            for a in range(start, stop):
                if a != i:
                    value += rows[a, own]
                    absolute += abs(rows[a, own])
            scores[i - start], slack[i - start] = value, tie * absolute
        for offset in range(0, n_items, width):
            n = min(width, n_items - offset)
            total, delta, above, below, x = room[0, :n], room[1, :n], room[2, :n], room[3, :n], room[4, :n]
            for j in range(n):
                total[j] = bias[offset + j]
                delta[j] = tie * abs(bias[offset + j])
            for a in range(start, stop):
                for j in range(n):
                    total[j] += rows[a, offset + j]
                    delta[j] += tie * abs(rows[a, offset + j])
            start_tile(delta, offset, indices[start:stop], total, above, below)
            for i in range(start, stop):
                for j in range(n):
                    x[j] = -rows[i, offset + j]
                tally(total, above, below, delta, x, offset, indices[i], scores[i - start], slack[i - start],
                      counts[i], i == held[s], top[0, s], top[1, s], top_codes[s])  # fmt: skip


@entry
def compare_rows(
    row_pointers: Pointers, columns: Codes, values: Array, bias: Array, tie: float, indptr: Pointers, indices: Codes,
    held: Pointers, counts: Pointers, top: Array, top_codes: Codes,
) -> None:  # fmt: skip
    """As `compare_sums` for sparse rows, by item, of all columns at once; the diagonal must be empty.

    All items are compared with the scores given the whole set; then those of the row of i are put right.
    """
    n_items = len(bias)
    total, delta, above, below = np.empty(n_items), np.empty(n_items), np.empty(n_items), np.empty(n_items)
    for s in range(len(indptr) - 1):
        start, stop = indptr[s], indptr[s + 1]
        for j in range(n_items):
            total[j] = bias[j]
            delta[j] = tie * abs(bias[j])
        for a in range(start, stop):
            for k in range(row_pointers[indices[a]], row_pointers[indices[a] + 1]):
                total[columns[k]] += values[k]
                delta[columns[k]] += tie * abs(values[k])
        scores = np.empty(stop - start)
        for a in range(start, stop):
            scores[a - start] = total[indices[a]]
        start_tile(delta, 0, indices[start:stop], total, above, below)
        for i in range(start, stop):
            own, slack = scores[i - start], delta[indices[i]]
            upper, lower = own + slack, own - slack
            better, at_least = 0, 0
            for j in range(n_items):
                better += 1 if above[j] > upper else 0
                at_least += 1 if below[j] >= lower else 0
            for k in range(row_pointers[indices[i]], row_pointers[indices[i] + 1]):
                j = columns[k]
                better += (1 if above[j] - values[k] > upper else 0) - (1 if above[j] > upper else 0)
                at_least += (1 if below[j] - values[k] >= lower else 0) - (1 if below[j] >= lower else 0)
            counts[i, 0] += better
            counts[i, 1] += at_least
        code = indices[held[s]]
        for k in range(row_pointers[code], row_pointers[code + 1]):
            total[columns[k]] -= values[k]
        total[code] = scores[held[s] - start]
        for j in range(n_items):
            if total[j] > top[0, s, -1]:
                offer(top[0, s], top[1, s], top_codes[s], total[j], delta[j], j)


@entry
def count_rows(scores: Array, codes: Codes, tie: float, rounding: Array, counts: Pointers) -> None:
    """Per row, how many scores beat that of the item codes[row], and how many tie with it (itself too) or beat it.

    The rounding of a score is `tie` of itself, if it is finite, and that of its column.
    """
    for r in range(len(scores)):
        row = scores[r]
        own = row[codes[r]]
        slack = rounding[codes[r]] + (tie * abs(own) if abs(own) < np.inf else 0.0)
        better, at_least = 0, 0
        for j in range(len(row)):
            gap = row[j] - own
            width = slack + rounding[j] + (tie * abs(row[j]) if abs(row[j]) < np.inf else 0.0)
            better += 1 if gap > width else 0
            at_least += 1 if gap >= -width else 0
        counts[r, 0], counts[r, 1] = better, at_least


@entry
def best_of_rows(scores: Array, codes: NDArray[np.int64]) -> None:
    """codes[r] = the columns of the largest scores of row r, as many as fit, best first; of equal ones the first."""
    n = codes.shape[1]
    best, slacks = np.empty(n), np.zeros(n)
    for r in range(len(scores)):
        for place in range(n):
            best[place] = -np.inf
        found = 0
        for j in range(scores.shape[1]):
            if scores[r, j] > best[n - 1]:
                offer(best, slacks, codes[r], scores[r, j], 0.0, j)
                found += 1
        for j in range(scores.shape[1]):  # columns of −inf fill what is left
            if found >= n:
                break
            if scores[r, j] == -np.inf:
                codes[r, found] = j
                found += 1
