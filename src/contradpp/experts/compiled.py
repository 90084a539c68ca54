"""Numba kernels of the experts: sums of sparse rows, votes of similar baskets, weighted scores.

A sparse matrix M × M is a CSR (indptr, columns, values) with ascending columns. Sets are a CSR
(sets, codes).

The similarity of a set A and a training basket b is Σ_{i∈A∩b} w_i / W_b^γ, with W_b the sum of the
weights w of the items of b; `index.scale` is W_b^{−γ}. The vote of each of the n most similar
baskets is its similarity to a power, as a share of all votes and of some blank ones.
"""

from __future__ import annotations

import numpy as np

from contradpp._types import Array, Codes, Flags, Ints
from contradpp.dpp.compiled import entry, helper
from contradpp.dpp.compiled.neighbors import mark_largest, nth_largest
from contradpp.experts.basket_knn import BasketIndex

NOTHING = 1e-12  # of what was subtracted: a smaller rest is rounding
TIE = 1e-9  # of the similarity: overlaps are sums in varying order, so that equal ones differ
BINS = 512
FARTHEST = 10.0  # spreads from its center: farther features were not seen in training, are clipped
TILE = 512


# -- Rows ------------------------------------------------------------------------------------------


@entry
def mark_largest_of_rows(indptr: Ints, values: Array, n: int, marked: Flags) -> None:
    """Mark the n largest values of every row."""
    for a in range(len(indptr) - 1):
        mark_largest(values[indptr[a] : indptr[a + 1]], n, marked[indptr[a] : indptr[a + 1]])


@entry
def sum_rows(
    indptr: Ints, columns: Codes, values: Array, codes: Codes, sets: Ints, out: Array
) -> None:
    """Write the sum of the rows of the items of every set to out[s]."""
    for s in range(len(sets) - 1):
        for j in range(out.shape[1]):
            out[s, j] = 0.0
        for e in range(sets[s], sets[s + 1]):
            for k in range(indptr[codes[e]], indptr[codes[e] + 1]):
                out[s, columns[k]] += values[k]


@entry
def sum_weighted_rows(
    indptr: Ints, columns: Codes, values: Array, codes: Ints, weights: Array, out: Array
) -> None:
    """Add the rows of these items, times a weight each, to out."""
    for e in range(len(codes)):
        for k in range(indptr[codes[e]], indptr[codes[e] + 1]):
            out[columns[k]] += weights[e] * values[k]


@entry
def sum_other_rows(
    indptr: Ints, columns: Codes, values: Array, codes: Codes, sets: Ints, out: Array
) -> None:
    """Write the sum of the rows of e's set but e to out[e], for every entry e of the sets."""
    for s in range(len(sets) - 1):
        total = np.zeros(out.shape[1])
        for e in range(sets[s], sets[s + 1]):
            for k in range(indptr[codes[e]], indptr[codes[e] + 1]):
                total[columns[k]] += values[k]
        for e in range(sets[s], sets[s + 1]):
            for j in range(len(total)):
                out[e, j] = total[j]
            for k in range(indptr[codes[e]], indptr[codes[e] + 1]):
                rest = total[columns[k]] - values[k]
                out[e, columns[k]] = rest if abs(rest) > NOTHING * abs(values[k]) else 0.0


# -- Votes of baskets ------------------------------------------------------------------------------


@entry
def count_votes(
    index: BasketIndex,
    n: int,
    power: float,
    shrinkage: float,
    sets: Ints,
    codes: Codes,
    leave_one_out: bool,
    out: Array,
) -> None:
    """Write the votes for every item given every set, or its set without each entry in turn."""
    overlap = np.zeros(len(index.indptr) - 1)
    touched = np.empty(len(overlap), dtype=np.int32)
    votes = np.empty(len(overlap))
    for s in range(len(sets) - 1):
        members = codes[sets[s] : sets[s + 1]]
        found = touched[: find_overlaps(index, members, overlap, touched)]
        least = TIE * sum_of(index.weights, members)
        for e in range(sets[s] if leave_one_out else s, sets[s + 1] if leave_one_out else s + 1):
            if leave_one_out:
                add_overlap(index, codes[e], -index.weights[codes[e]], overlap)
            weigh(index, found, overlap, least, n, power, shrinkage, votes)
            for j in range(out.shape[1]):
                out[e, j] = 0.0
            for k in range(len(found)):
                if votes[k] > 0.0:
                    for p in range(index.indptr[found[k]], index.indptr[found[k] + 1]):
                        out[e, index.indices[p]] += votes[k]
            if leave_one_out:
                add_overlap(index, codes[e], index.weights[codes[e]], overlap)
        for b in found:
            overlap[b] = 0.0


@entry
def share_votes(
    index: BasketIndex,
    n: int,
    power: float,
    shrinkage: float,
    codes: Codes,
    item: int,
    out: Array,
) -> None:
    """Write the share of every basket item codes[a] in the votes for `item` to out[a].

    Within a vote it is the share of the weight of codes[a] in the overlap.
    """
    overlap = np.zeros(len(index.indptr) - 1)
    touched = np.empty(len(overlap), dtype=np.int32)
    votes = np.empty(len(overlap))
    found = touched[: find_overlaps(index, codes, overlap, touched)]
    weigh(index, found, overlap, TIE * sum_of(index.weights, codes), n, power, shrinkage, votes)
    rates = np.zeros(len(overlap))
    for k in range(len(found)):
        for e in range(index.indptr[found[k]], index.indptr[found[k] + 1]):
            if votes[k] > 0.0 and index.indices[e] == item:
                rates[found[k]] = votes[k] / overlap[found[k]]
    for a in range(len(codes)):
        total = 0.0
        for p in range(index.pointers[codes[a]], index.pointers[codes[a] + 1]):
            total += rates[index.postings[p]]
        out[a] = index.weights[codes[a]] * total


@helper
def find_overlaps(index: BasketIndex, codes: Codes, overlap: Array, touched: Codes) -> int:
    """Add the weights of the codes to the overlaps, zero before, and count the baskets touched."""
    n = 0
    for a in codes:
        for p in range(index.pointers[a], index.pointers[a + 1]):
            b = index.postings[p]
            if overlap[b] == 0.0:
                touched[n] = b
                n += 1
            overlap[b] += index.weights[a]
    return n


@helper
def add_overlap(index: BasketIndex, code: int, weight: float, overlap: Array) -> None:
    """Add a weight to the overlaps of the baskets that an item finds."""
    for p in range(index.pointers[code], index.pointers[code + 1]):
        overlap[index.postings[p]] += weight


@helper
def sum_of(weights: Array, codes: Codes) -> float:
    """Return the sum of the weights of the codes."""
    total = 0.0
    for a in codes:
        total += weights[a]
    return total


@helper
def weigh(
    index: BasketIndex,
    found: Codes,
    overlap: Array,
    least_overlap: float,
    n: int,
    power: float,
    shrinkage: float,
    votes: Array,
) -> None:
    """Write the votes of the baskets found: zero except for the n most similar.

    Votes are shares of all of them and of `shrinkage` blank ones, each as strong as the strongest.
    Baskets that tie for the last places share them: the order of items and baskets does not count.
    """
    for k in range(len(found)):
        x = overlap[found[k]]
        votes[k] = x * index.scale[found[k]] if x > least_overlap else 0.0
    low = 0.0
    high = 0.0
    share = 1.0
    if len(found) > n:
        least = least_of_best(votes[: len(found)], n)
        low = least * (1 - TIE)
        high = least * (1 + TIE)
        above = 0
        tied = 0
        for k in range(len(found)):
            above += 1 if votes[k] > high else 0
            tied += 1 if low <= votes[k] <= high else 0
        share = (n - above) / tied
    for k in range(len(found)):
        if votes[k] < low or votes[k] == 0.0:
            votes[k] = 0.0
        else:
            votes[k] = votes[k] ** power * (1.0 if votes[k] > high else share)
    total = 0.0
    strongest = 0.0
    for k in range(len(found)):
        total += votes[k]
        strongest = max(strongest, votes[k])
    total += shrinkage * strongest
    for k in range(len(found)):
        votes[k] /= total if total > 0.0 else 1.0


@helper
def least_of_best(values: Array, n: int) -> float:
    """Return the n-th largest of at least n values ≥ 0.

    A histogram finds the few values among which it is.
    """
    top = 0.0
    for k in range(len(values)):
        top = max(top, values[k])
    if top <= 0.0:
        return 0.0
    scale = (BINS - 1) / top
    bins = np.zeros(BINS, dtype=np.int64)
    for k in range(len(values)):
        bins[int(values[k] * scale)] += 1
    last = BINS - 1
    above = 0
    while above + bins[last] < n:
        above += bins[last]
        last -= 1
    among = np.empty(bins[last])
    n_among = 0
    for k in range(len(values)):
        if int(values[k] * scale) == last:
            among[n_among] = values[k]
            n_among += 1
    return nth_largest(among, n - above)


# -- Sums of weighted scores -----------------------------------------------------------------------


@entry
def write_weighted_sums(
    features: Array, columns: Ints, center: Array, spread: Array, theta: Array, out: Array
) -> None:
    """Write the logits of every basket r and item j: weighted features and products of them.

    out[r, j] = Σ_f theta[r, f] f + Σ_{u≤v} theta[r, F + uv] z_u z_v

    with f = features[f, r, j] and z_v = (f − center_v)/spread_v, clipped, for f = columns[v]. The
    products of u are those with u, u + 1, ...
    """
    F, n, M = features.shape
    V = len(columns)
    z = np.empty((V, TILE))
    for r in range(n):
        for first in range(0, M, TILE):
            width = min(TILE, M - first)
            target = out[r, first : first + width]
            for j in range(width):
                target[j] = 0.0
            for f in range(F):
                row = features[f, r, first : first + width]
                weight = theta[r, f]
                for j in range(width):
                    target[j] += weight * row[j]
            for v in range(V):
                row = features[columns[v], r, first : first + width]
                z_v = z[v]
                c = center[v]
                rate = 1.0 / spread[v]
                for j in range(width):
                    z_v[j] = min(max(rate * (row[j] - c), -FARTHEST), FARTHEST)
            pair = F
            for u in range(V):
                for v in range(u, V):
                    weight = theta[r, pair]
                    z_u = z[u]
                    z_v = z[v]
                    pair += 1
                    for j in range(width):
                        target[j] += weight * z_u[j] * z_v[j]
