"""Kernels over sparse rows: the nearest items, and ridge regressions on them.

A sparse matrix M × M is a CSR (indptr, columns, values) with ascending columns.
"""

from __future__ import annotations

import numpy as np

from contradpp._types import Array, Codes, Flags, Ints
from contradpp.dpp.compiled._numba import entry, helper
from contradpp.dpp.compiled.blocks import first_at_least

SEARCH = 2.0  # the time of a step of a binary search, in steps along a row


# -- The largest of a row --------------------------------------------------------------------------


@helper
def nth_largest(values: Array, n: int) -> float:
    """Return the n-th largest of at least n values, changing their order, by quickselect."""
    low = 0
    high = len(values)
    rank = n - 1  # the value wanted is at `rank` when the largest come first
    while True:
        middle = (low + high) // 2
        a = values[low]
        b = values[middle]
        c = values[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        first = low
        last = high
        k = low  # larger: low..first−1, equal: first..k−1, smaller: last..high−1
        while k < last:
            x = values[k]
            if x > pivot:
                values[k] = values[first]
                values[first] = x
                first += 1
                k += 1
            elif x < pivot:
                last -= 1
                values[k] = values[last]
                values[last] = x
            else:
                k += 1
        if rank < first:
            high = first
        elif rank >= last:
            low = last
        else:
            return float(pivot)


@helper
def mark_largest(values: Array, n: int, marked: Flags) -> None:
    """Mark the n largest values, of equal ones those that come first."""
    if len(values) <= n:
        for k in range(len(values)):
            marked[k] = True
        return
    least = nth_largest(values.copy(), n)
    left = n
    for k in range(len(values)):
        marked[k] = values[k] > least
        left -= 1 if marked[k] else 0
    for k in range(len(values)):
        if left > 0 and values[k] == least:
            marked[k] = True
            left -= 1


# -- Ridge regression on the nearest items ---------------------------------------------------------


@helper
def value_at(columns: Codes, values: Array, code: int) -> float:
    """Return the value of a row at a column, 0 if it has none."""
    place = first_at_least(columns, 0, len(columns), code)
    return values[place] if place < len(columns) and columns[place] == code else 0.0


@helper
def shortest_first(indptr: Ints, codes: Codes, values: Array) -> None:
    """Sort codes, and values with them, by the lengths of their rows."""
    for k in range(1, len(codes)):
        code = codes[k]
        value = values[k]
        length = indptr[code + 1] - indptr[code]
        place = k
        while place > 0 and indptr[codes[place - 1] + 1] - indptr[codes[place - 1]] > length:
            codes[place] = codes[place - 1]
            values[place] = values[place - 1]
            place -= 1
        codes[place] = code
        values[place] = value


@helper
def gather(
    indptr: Ints, columns: Codes, values: Array, codes: Codes, place: Codes, G: Array
) -> None:
    """Write the triangle G[l, k], k ≤ l, of rows and columns `codes`, sorted by row length.

    Every pair is looked up in the shorter of its two rows, by walking along it or by binary search.
    `place` is −1 everywhere, before and after.
    """
    n = len(codes)
    for k in range(n):
        place[codes[k]] = k
    for k in range(n):
        start = indptr[codes[k]]
        stop = indptr[codes[k] + 1]
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
    """Replace y by G⁻¹ y for a positive definite G, whose lower triangle becomes its factor."""
    n = len(y)
    for i in range(n):
        row = G[i]
        for k in range(i):
            other = G[k]
            total = row[k]
            for c in range(k):
                total -= row[c] * other[c]
            row[k] = total / other[k]
        square = row[i]
        rest = y[i]
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
    indptr: Ints,
    columns: Codes,
    together: Array,
    counts: Array,
    diagonal: Array,
    first: int,
    last: int,
    codes: Codes,
    weights: Array,
    sizes: Ints,
) -> None:
    """Solve (C_NN + diag(d_N)) w = C_Nj for items j = first..last−1.

    N are the nearest items of j by cosine. Row j − first of `codes` and `weights` gets N and w,
    `sizes` their number. C has the counts of the items on its diagonal; `diagonal` is d.
    """
    n_most = codes.shape[1]
    place = np.full(len(counts), -1, dtype=np.int32)
    G = np.empty((n_most, n_most))
    for j in range(first, last):
        row = columns[indptr[j] : indptr[j + 1]]
        values = together[indptr[j] : indptr[j + 1]]
        cosines = np.empty(len(row))
        marked = np.empty(len(row), dtype=np.bool_)
        for k in range(len(row)):
            cosines[k] = values[k] / np.sqrt(counts[row[k]])
        mark_largest(cosines, n_most, marked)
        near = codes[j - first]
        y = weights[j - first]
        n = 0
        for k in range(len(row)):
            if marked[k]:
                near[n] = row[k]
                y[n] = values[k]
                n += 1
        near = near[:n]
        y = y[:n]
        shortest_first(indptr, near, y)
        gather(indptr, columns, together, near, place, G)
        for k in range(n):
            G[k, k] = counts[near[k]] + diagonal[near[k]]
        solve(G, y)
        sizes[j - first] = n
