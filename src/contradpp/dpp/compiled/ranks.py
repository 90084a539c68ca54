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


@entry
def left_out_directions(V: Array, indptr: Pointers, indices: Codes, Q: Array, weights: Array, scores: Array) -> None:
    """For each entry i of a set A: the unit vector of span V_A that is orthogonal to V_{A∖i}, and 1/W_ii.

    Q holds orthonormal rows with V_A = R Q, R lower triangular. Column i of R⁻¹ is that direction in the
    coordinates of Q; it is written, normalised, to weights[i, :|A|], and its squared length is W_ii. Where V_A is
    dependent the score is 0.
    """
    K = V.shape[1]
    largest = 1
    for s in range(len(indptr) - 1):
        largest = max(largest, indptr[s + 1] - indptr[s])
    R = np.empty((largest, largest))
    for s in range(len(indptr) - 1):
        start = indptr[s]
        k = indptr[s + 1] - start
        for a in range(k):
            for b in range(a + 1):
                dot = 0.0
                for c in range(K):
                    dot += V[indices[start + a], c] * Q[start + b, c]
                R[a, b] = dot
        for i in range(k):
            row = weights[start + i]
            length = 0.0
            for a in range(i):
                row[a] = 0.0
            for a in range(i, k):
                value = 1.0 if a == i else 0.0
                for b in range(i, a):
                    value -= R[a, b] * row[b]
                row[a] = value / R[a, a]
                length += row[a] * row[a]
            scores[start + i] = 1.0 / length if length < np.inf else 0.0
            scale = np.sqrt(scores[start + i])
            for a in range(i, k):
                row[a] *= scale


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


@entry
def compare_directions(
    Y: Array, norms: Array, delta: Array, offset: int, indptr: Pointers, indices: Codes, weights: Array,
    scores: Array, slack: Array, held: Pointers, counts: Pointers, top: Array, top_codes: Codes,
) -> None:  # fmt: skip
    """Compare the scores ‖v_j‖² − Σ_b Y_bj² + (Σ_b weights_ib Y_bj)² of a tile of items with that of the item left out.

    Y (entries, tile) is the product of the orthonormal rows with the factors of items offset, offset + 1, ... .
    Row i counts the items that beat it, and those that tie with it or beat it. Set s keeps its best items given
    its set without entry held[s], whose item may be among them:
    their codes, and in `top` (2, n_sets, n) their scores and δ, which start at −inf and 0.
    """
    width = Y.shape[1]
    given, above, below, x = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    for s in range(len(indptr) - 1):
        start, stop = indptr[s], indptr[s + 1]
        given[:] = norms
        for a in range(start, stop):
            y = Y[a]
            for j in range(width):
                given[j] -= y[j] * y[j]
        for a in range(start, stop):
            if offset <= indices[a] < offset + width:
                given[indices[a] - offset] = -np.inf
        for j in range(width):
            above[j] = given[j] - delta[j]
            below[j] = given[j] + delta[j]
        for i in range(start, stop):
            combine(Y, weights[i, i - start :], i, stop, x)
            upper, lower = scores[i] + slack[i], scores[i] - slack[i]
            better, at_least = 0, 0
            for j in range(width):
                square = x[j] * x[j]
                better += 1 if above[j] + square > upper else 0
                at_least += 1 if below[j] + square >= lower else 0
            counts[i, 0] += better
            counts[i, 1] += at_least
            if i == held[s]:
                best, slacks, codes = top[0, s], top[1, s], top_codes[s]
                for j in range(width):
                    score = scores[i] if offset + j == indices[i] else given[j] + x[j] * x[j]
                    if score > best[-1]:
                        offer(best, slacks, codes, score, delta[j], offset + j)


@entry
def compare_sums(
    rows: Array, bias: Array, tie: float, indptr: Pointers, indices: Codes, held: Pointers,
    counts: Pointers, top: Array, top_codes: Codes,
) -> None:  # fmt: skip
    """As `compare_directions` for the scores bias_j + Σ_b rows_bj over the entries b of the set but i.

    Row i is the sum over the whole set less its own row; δ_j is `tie` times the sum of the absolute values.
    """
    n_items, width = rows.shape[1], 512
    total, size, x = np.empty(width), np.empty(width), np.empty(width)
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
            for j in range(n):
                total[j] = bias[offset + j]
                size[j] = abs(bias[offset + j])
            for a in range(start, stop):
                for j in range(n):
                    total[j] += rows[a, offset + j]
                    size[j] += abs(rows[a, offset + j])
            for a in range(start, stop):
                if offset <= indices[a] < offset + n:
                    total[indices[a] - offset] = -np.inf
            for i in range(start, stop):
                upper, lower = scores[i - start] + slack[i - start], scores[i - start] - slack[i - start]
                better, at_least = 0, 0
                for j in range(n):
                    x[j] = total[j] - rows[i, offset + j]
                    better += 1 if x[j] - tie * size[j] > upper else 0
                    at_least += 1 if x[j] + tie * size[j] >= lower else 0
                counts[i, 0] += better
                counts[i, 1] += at_least
                if i == held[s]:
                    best, slacks, codes = top[0, s], top[1, s], top_codes[s]
                    for j in range(n):
                        score = scores[i - start] if offset + j == indices[i] else x[j]
                        if score > best[-1]:
                            offer(best, slacks, codes, score, tie * size[j], offset + j)
