"""Numba kernels over sparse rows: the nearest items and regressions on them.

A sparse matrix M × M is a CSR (indptr, columns, values) with ascending columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled._numba import entry, helper
from contradpp.dpp.compiled.blocks import first_at_least

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]

SEARCH = 2.0  # a step of a binary search takes as long as so many steps along a row


# -- The largest of a row ------------------------------------------------------------------------------


@helper
def nth_largest(values: Array, n: int) -> float:
    """The n-th largest of at least n values, whose order is changed: quickselect, equal values set apart."""
    low, high, rank = 0, len(values), n - 1  # the value wanted is at `rank` when the largest come first
    while True:
        middle = (low + high) // 2
        a, b, c = values[low], values[middle], values[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        first, last, k = low, high, low  # larger: low..first−1, equal: first..k−1, smaller: last..high−1
        while k < last:
            x = values[k]
            if x > pivot:
                values[k], values[first] = values[first], x
                first += 1
                k += 1
            elif x < pivot:
                last -= 1
                values[k], values[last] = values[last], x
            else:
                k += 1
        if rank < first:
            high = first
        elif rank >= last:
            low = last
        else:
            return float(pivot)


@helper
def mark_largest(values: Array, n: int, kept: Flags) -> None:
    """Mark the n largest values; of equal ones those that come first."""
    if len(values) <= n:
        for k in range(len(values)):
            kept[k] = True
        return
    least = nth_largest(values.copy(), n)
    left = n
    for k in range(len(values)):
        kept[k] = values[k] > least
        left -= 1 if kept[k] else 0
    for k in range(len(values)):
        if left > 0 and values[k] == least:
            kept[k] = True
            left -= 1


# -- Ridge regression on the nearest items -------------------------------------------------------------


@helper
def value_at(columns: Codes, values: Array, code: int) -> float:
    """The value of a row at a column, 0 if it has none."""
    place = first_at_least(columns, 0, len(columns), code)
    return values[place] if place < len(columns) and columns[place] == code else 0.0


@helper
def shortest_first(indptr: Pointers, codes: Codes, values: Array) -> None:
    """Put codes, and values with them, in the order of the lengths of their rows."""
    for k in range(1, len(codes)):
        code, value = codes[k], values[k]
        length = indptr[code + 1] - indptr[code]
        place = k
        while place > 0 and indptr[codes[place - 1] + 1] - indptr[codes[place - 1]] > length:
            codes[place], values[place] = codes[place - 1], values[place - 1]
            place -= 1
        codes[place], values[place] = code, value


@helper
def gather(indptr: Pointers, columns: Codes, values: Array, codes: Codes, place: Codes, G: Array) -> None:
    """The triangle G[l, k], k ≤ l, of the rows and columns `codes`, which are in the order of their rows' lengths.

    Every pair is looked up in the shorter of its two rows, by walking along it or by binary search. `place` is −1
    everywhere, before and after.
    """
    n = len(codes)
    for k in range(n):
        place[codes[k]] = k
    for k in range(n):
        start, stop = indptr[codes[k]], indptr[codes[k] + 1]
        length = stop - start
        if length < SEARCH * (n - k) * np.log2(length + 1.0):
            for later in range(k + 1, n):
                G[later, k] = 0.0
            for e in range(start, stop):
                if place[columns[e]] > k:
                    G[place[columns[e]], k] = values[e]
        else:
            for later in range(k + 1, n):
                G[later, k] = value_at(columns[start:stop], values[start:stop], codes[later])
    for k in range(n):
        place[codes[k]] = -1


@helper
def solve(G: Array, y: Array) -> None:
    """Overwrite y by G⁻¹ y for a positive definite G, of which the lower triangle is overwritten by its factor."""
    n = len(y)
    for i in range(n):
        row = G[i]
        for k in range(i):
            other = G[k]
            total = row[k]
            for c in range(k):
                total -= row[c] * other[c]
            row[k] = total / other[k]
        square, rest = row[i], y[i]
        for c in range(i):
            square -= row[c] * row[c]
            rest -= row[c] * y[c]
        row[i] = np.sqrt(square)
        y[i] = rest / row[i]
    for i in range(n - 1, -1, -1):
        row = G[i]
        y[i] /= row[i]
        for c in range(i):
            y[c] -= y[i] * row[c]


@entry
def ridge_columns(
    indptr: Pointers, columns: Codes, together: Array, counts: Array, diagonal: Array, first: int, last: int,
    codes: Codes, weights: Array, sizes: Pointers,
) -> None:  # fmt: skip
    """(C_NN + diag(d_N))⁻¹ C_Nj for the items j = first..last−1, N the nearest items of j by cosine.

    Row j − first of `codes` and `weights` holds N and the solution, `sizes` how many there are; C has the counts of
    the items on its diagonal, `diagonal` is d.
    """
    n_most = codes.shape[1]
    place = np.full(len(counts), -1, dtype=np.int32)
    G = np.empty((n_most, n_most))
    for j in range(first, last):
        row, values = columns[indptr[j] : indptr[j + 1]], together[indptr[j] : indptr[j + 1]]
        cosines, kept = np.empty(len(row)), np.empty(len(row), dtype=np.bool_)
        for k in range(len(row)):
            cosines[k] = values[k] / np.sqrt(counts[row[k]])
        mark_largest(cosines, n_most, kept)
        near, y = codes[j - first], weights[j - first]
        n = 0
        for k in range(len(row)):
            if kept[k]:
                near[n], y[n] = row[k], values[k]
                n += 1
        near, y = near[:n], y[:n]
        shortest_first(indptr, near, y)
        gather(indptr, columns, together, near, place, G)
        for k in range(n):
            G[k, k] = counts[near[k]] + diagonal[near[k]]
        solve(G, y)
        sizes[j - first] = n


# -- Squares -----------------------------------------------------------------------------------------------
