"""Numba kernels of the experts: sums of sparse rows, votes of similar baskets, and sums of weighted scores.

A sparse matrix M × M is a CSR (indptr, columns, values) with ascending columns. `which` names the row that belongs to
each entry of the sets: the code of its item, or its own number where every entry has a row of its own.

The baskets that vote are a CSR (indptr, indices), and their inverted index is a CSR (pointers, postings) of the baskets
that hold each item. The similarity of a set A and a basket b is Σ_{i∈A∩b} w_i / W_b^γ, W_b the sum of the weights w of
a basket; `scale` is W_b^{−γ}. The vote of each of the n most similar baskets is its similarity to a power, as a share
of all votes and of some blank ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled import entry, helper
from contradpp.dpp.compiled.neighbours import mark_largest, nth_largest

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]

NOTHING = 1e-12  # of what was subtracted: a smaller rest is rounding
TIE = 1e-9  # of the similarity: overlaps are sums in varying order, so that equal ones differ by rounding
BINS = 512
FARTHEST = 10.0  # spreads from its centre that a feature may be in a product: beyond, nothing was ever learned
TILE = 512


# -- Rows ------------------------------------------------------------------------------------------


@entry
def mark_largest_of_rows(indptr: Pointers, values: Array, n: int, kept: Flags) -> None:
    """Mark the n largest values of every row."""
    for a in range(len(indptr) - 1):
        mark_largest(values[indptr[a] : indptr[a + 1]], n, kept[indptr[a] : indptr[a + 1]])


@entry
def sum_rows(indptr: Pointers, columns: Codes, values: Array, which: Codes, sets: Pointers, out: Array) -> None:
    """out[s] = the sum of the rows of the entries of set s."""
    for s in range(len(sets) - 1):
        for j in range(out.shape[1]):
            out[s, j] = 0.0
        for e in range(sets[s], sets[s + 1]):
            for k in range(indptr[which[e]], indptr[which[e] + 1]):
                out[s, columns[k]] += values[k]


@entry
def sum_other_rows(indptr: Pointers, columns: Codes, values: Array, which: Codes, sets: Pointers, out: Array) -> None:
    """out[e] = the sum of the rows of the entries of e's set but e: that of all less its own."""
    for s in range(len(sets) - 1):
        total = np.zeros(out.shape[1])
        for e in range(sets[s], sets[s + 1]):
            for k in range(indptr[which[e]], indptr[which[e] + 1]):
                total[columns[k]] += values[k]
        for e in range(sets[s], sets[s + 1]):
            for j in range(len(total)):
                out[e, j] = total[j]
            for k in range(indptr[which[e]], indptr[which[e] + 1]):
                rest = total[columns[k]] - values[k]
                out[e, columns[k]] = rest if abs(rest) > NOTHING * abs(values[k]) else 0.0


# -- Votes of baskets ------------------------------------------------------------------------------


@helper
def least_of_best(values: Array, n: int) -> float:
    """The n-th largest of at least n values ≥ 0: a histogram finds the few among which it is."""
    top = 0.0
    for k in range(len(values)):
        top = max(top, values[k])
    if top <= 0.0:
        return 0.0
    scale = (BINS - 1) / top
    bins = np.zeros(BINS, dtype=np.int64)
    for k in range(len(values)):
        bins[int(values[k] * scale)] += 1
    last, above = BINS - 1, 0
    while above + bins[last] < n:
        above += bins[last]
        last -= 1
    among, found = np.empty(bins[last]), 0
    for k in range(len(values)):
        if int(values[k] * scale) == last:
            among[found] = values[k]
            found += 1
    return nth_largest(among, n - above)


@helper
def sum_of(weights: Array, codes: Codes) -> float:
    """The sum of the weights of the codes."""
    total = 0.0
    for a in codes:
        total += weights[a]
    return total


@helper
def meet(pointers: Pointers, postings: Codes, weights: Array, codes: Codes, overlap: Array, touched: Codes) -> int:
    """Add the weights of the codes to the overlaps, all 0 before, of the baskets that hold them; count the baskets."""
    n = 0
    for a in codes:
        for p in range(pointers[a], pointers[a + 1]):
            b = postings[p]
            if overlap[b] == 0.0:
                touched[n] = b
                n += 1
            overlap[b] += weights[a]
    return n


@helper
def weigh(
    overlap: Array, scale: Array, touched: Codes, least_overlap: float, n: int, power: float, shrinkage: float,
    votes: Array,
) -> None:  # fmt: skip
    """The votes of the baskets touched, 0 but for the n most similar: shares of all and of `shrinkage` blank ones.

    A blank vote is as strong as the strongest, so that few voters say little.

    Baskets that tie for the last places share them, so that the order of items and baskets does not count.
    """
    for k in range(len(touched)):
        x = overlap[touched[k]]
        votes[k] = x * scale[touched[k]] if x > least_overlap else 0.0
    low, high, share, total, strongest = 0.0, 0.0, 1.0, 0.0, 0.0
    if len(touched) > n:
        least = least_of_best(votes, n)
        low, high = least * (1 - TIE), least * (1 + TIE)
        above, tied = 0, 0
        for k in range(len(touched)):
            above += 1 if votes[k] > high else 0
            tied += 1 if low <= votes[k] <= high else 0
        share = (n - above) / tied
    for k in range(len(touched)):
        if votes[k] < low or votes[k] == 0.0:
            votes[k] = 0.0
        else:
            votes[k] = votes[k] ** power * (1.0 if votes[k] > high else share)
    for k in range(len(touched)):
        total += votes[k]
        strongest = max(strongest, votes[k])
    total += shrinkage * strongest
    for k in range(len(touched)):
        votes[k] /= total if total > 0.0 else 1.0


@helper
def hand_out(touched: Codes, votes: Array, indptr: Pointers, indices: Codes, out: Array) -> None:
    """out = the sum of the votes of the baskets that hold an item."""
    for j in range(len(out)):
        out[j] = 0.0
    for k in range(len(touched)):
        if votes[k] > 0.0:
            for e in range(indptr[touched[k]], indptr[touched[k] + 1]):
                out[indices[e]] += votes[k]


@entry
def count_votes(
    pointers: Pointers, postings: Codes, indptr: Pointers, indices: Codes, weights: Array, scale: Array, n: int,
    power: float, shrinkage: float, sets: Pointers, codes: Codes, each: bool, out: Array,
) -> None:  # fmt: skip
    """The votes for every item given every set, or, with `each`, given its set without every entry in turn."""
    overlap = np.zeros(len(indptr) - 1)
    touched, votes = np.empty(len(overlap), dtype=np.int32), np.empty(len(overlap))
    for s in range(len(sets) - 1):
        members = codes[sets[s] : sets[s + 1]]
        met = touched[: meet(pointers, postings, weights, members, overlap, touched)]
        least = TIE * sum_of(weights, members)
        for e in range(sets[s] if each else s, sets[s + 1] if each else s + 1):
            if each:
                for p in range(pointers[codes[e]], pointers[codes[e] + 1]):
                    overlap[postings[p]] -= weights[codes[e]]
            weigh(overlap, scale, met, least, n, power, shrinkage, votes[: len(met)])
            hand_out(met, votes, indptr, indices, out[e])
            if each:
                for p in range(pointers[codes[e]], pointers[codes[e] + 1]):
                    overlap[postings[p]] += weights[codes[e]]
        for b in met:
            overlap[b] = 0.0


@entry
def share_votes(
    pointers: Pointers, postings: Codes, indptr: Pointers, indices: Codes, weights: Array, scale: Array, n: int,
    power: float, shrinkage: float, codes: Codes, item: int, out: Array,
) -> None:  # fmt: skip
    """out[a] = the share that the item codes[a] has in the votes for `item`: that of its weight in each overlap."""
    overlap = np.zeros(len(indptr) - 1)
    touched, votes = np.empty(len(overlap), dtype=np.int32), np.empty(len(overlap))
    met = touched[: meet(pointers, postings, weights, codes, overlap, touched)]
    weigh(overlap, scale, met, TIE * sum_of(weights, codes), n, power, shrinkage, votes[: len(met)])
    rates = np.zeros(len(overlap))
    for k in range(len(met)):
        for e in range(indptr[met[k]], indptr[met[k] + 1]):
            if votes[k] > 0.0 and indices[e] == item:
                rates[met[k]] = votes[k] / overlap[met[k]]
    for a in range(len(codes)):
        total = 0.0
        for p in range(pointers[codes[a]], pointers[codes[a] + 1]):
            total += rates[postings[p]]
        out[a] = weights[codes[a]] * total


# -- Sums of weighted scores -----------------------------------------------------------------------


@entry
def add_pairs(told: Array, centre: Array, spread: Array, alone: Array, both: Array, out: Array) -> None:
    """out[r, j] += Σ_v alone[r, v] f_v + Σ_{u≤v} both[r, uv] z_u z_v, with f_v = told[v, r, j] and z its distance.

    The products of u are those with u, u + 1, ...
    """
    V, n, M = told.shape
    z = np.empty((V, TILE))
    for r in range(n):
        for first in range(0, M, TILE):
            width = min(TILE, M - first)
            target = out[r, first : first + width]
            for v in range(V):
                row, step, c, rate, weight = (
                    told[v, r, first : first + width],
                    z[v],
                    centre[v],
                    1.0 / spread[v],
                    alone[r, v],
                )
                for j in range(width):
                    target[j] += weight * row[j]
                    step[j] = min(max(rate * (row[j] - c), -FARTHEST), FARTHEST)
            pair = 0
            for u in range(V):
                for v in range(u, V):
                    weight, one, other = both[r, pair], z[u], z[v]
                    pair += 1
                    for j in range(width):
                        target[j] += weight * one[j] * other[j]
