"""Kernels over many sets at once: bases, inverses and next-item scores.

Sets come as a CSR: set s holds `indices[indptr[s]:indptr[s + 1]]`. L = D + X G Xᵀ + S comes as
`left` = X G, X, the diagonal d of D and the CSR of S with sorted columns; a symmetric L = D + V Vᵀ
as V and d. W is L_A⁻¹. The inverses of several sets lie one after the other in a flat array, that
of set s from `offsets[s]` on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contradpp._types import Array, Codes, Floats, Ints
from contradpp.dpp.compiled._numba import entry, helper
from contradpp.dpp.compiled.blocks import (
    WORK,
    first_at_least,
    invert_scaled,
    largest_set,
    whole_panels,
)
from contradpp.dpp.factor import SINGULAR, SINGULAR_SINGLE

# -- Symmetric kernels: orthonormal rows -----------------------------------------------------------


@helper
def orthonormalize(V: Floats, d: Array, codes: Codes, Q: Array, extra: Array, R: Array) -> None:
    """Compute orthonormal rows with [V_A √D_A] = R [Q extra], R lower triangular.

    The columns of √D_A are left out where d is empty. By Gram and Schmidt: a second pass, where the
    first took much away, makes rows orthogonal to rounding whatever the condition of L_A. A row of
    which the earlier ones leave nothing but rounding becomes zero, and so does R_aa: the other rows
    still span them all.
    """
    k = len(codes)
    K = V.shape[1]
    n_extra = k if len(d) > 0 else 0
    least = SINGULAR if V.itemsize == 8 else SINGULAR_SINGLE
    for a in range(k):
        for c in range(K):
            Q[a, c] = V[codes[a], c]  # float64 from here on, whatever V is
        norm = 0.0
        for c in range(K):
            norm += Q[a, c] * Q[a, c]
        for c in range(n_extra):
            extra[a, c] = 0.0
        if n_extra > 0:
            extra[a, a] = np.sqrt(d[codes[a]])
            norm += d[codes[a]]
        for b in range(k):
            R[a, b] = 0.0
        left = norm
        for _ in range(2):
            before = left
            for b in range(a):
                dot = 0.0
                for c in range(K):
                    dot += Q[b, c] * Q[a, c]
                for c in range(n_extra):
                    dot += extra[b, c] * extra[a, c]
                R[a, b] += dot
                for c in range(K):
                    Q[a, c] -= dot * Q[b, c]
                for c in range(n_extra):
                    extra[a, c] -= dot * extra[b, c]
            left = 0.0
            for c in range(K):
                left += Q[a, c] * Q[a, c]
            for c in range(n_extra):
                left += extra[a, c] * extra[a, c]
            if left > 0.25 * before:
                break
        if left <= least**2 * norm:
            left = 0.0
        R[a, a] = np.sqrt(left)
        scale = 1.0 / R[a, a] if left > 0 else 0.0
        for c in range(K):
            Q[a, c] *= scale
        for c in range(n_extra):
            extra[a, c] *= scale


@helper
def left_out_directions(R: Array, k: int, weights: Array, scores: Array) -> None:
    """Write, for each item i of a set, its direction orthogonal to the others, and 1/W_ii.

    Column i of R⁻¹ is that direction in the coordinates of Q. It is written, normalized, to
    weights[i, :k]; its squared length is W_ii. Where the items are dependent 1/W_ii is 0.
    """
    for i in range(k):
        row = weights[i]
        length = 0.0
        for a in range(i):
            row[a] = 0.0
        for a in range(i, k):
            value = 1.0 if a == i else 0.0
            for b in range(i, a):
                value -= R[a, b] * row[b]
            row[a] = value / R[a, a]
            length += row[a] * row[a]
        scores[i] = 1.0 / length if length < np.inf else 0.0
        scale = np.sqrt(scores[i])
        for a in range(i, k):
            row[a] *= scale


@entry
def bases_of_sets(
    V: Floats,
    d: Array,
    indptr: Ints,
    indices: Codes,
    first: int,
    last: int,
    Q: Array,
    weights: Array,
    scores: Array,
    logs: Array,
    worst: Array,
) -> None:
    """Write orthonormal rows Q, 1/W_ii, log det L_A and max W_ii L_ii of sets first..last−1.

    They go to the entries of the sets in Q (entries, K) and `scores`, and to `logs` (−inf where
    singular) and `worst`. `weights` gets the directions of `left_out_directions`, unless it has no
    rows.
    """
    largest = largest_set(indptr, first, last)
    least = SINGULAR if V.itemsize == 8 else SINGULAR_SINGLE
    R = np.empty((largest, largest))
    extra = np.empty((largest, largest))
    own = np.empty((largest, largest))
    for s in range(first, last):
        start = indptr[s]
        stop = indptr[s + 1]
        k = stop - start
        orthonormalize(V, d, indices[start:stop], Q[start:stop], extra, R)
        left_out_directions(
            R, k, weights[start:stop] if len(weights) > 0 else own, scores[start:stop]
        )
        log = 0.0
        largest_share = 1.0
        for a in range(k):
            norm = 0.0
            for b in range(a + 1):
                norm += R[a, b] * R[a, b]
            log += 2.0 * np.log(R[a, a])
            largest_share = (
                max(largest_share, norm / scores[start + a]) if scores[start + a] > 0 else np.inf
            )
            if largest_share == np.inf:
                break
        worst[s] = largest_share
        logs[s] = log if largest_share < least**-2 else -np.inf


# -- Any kernel: inverses --------------------------------------------------------------------------


class KernelParts(NamedTuple):
    """The matrix L = D + left Xᵀ + S, S as a CSR with sorted columns."""

    left: Array
    X: Array
    d: Array
    indptr: Ints
    indices: Codes
    values: Array


@helper
def fill_kernel(parts: KernelParts, codes: Codes, L: Array) -> None:
    """Write L_A (k, k) of one set."""
    left, X, d, S_indptr, S_indices, S_values = parts
    k = len(codes)
    r = X.shape[1]
    for a in range(k):
        start = S_indptr[codes[a]]
        stop = S_indptr[codes[a] + 1]
        for b in range(k):
            dot = 0.0
            for c in range(r):
                dot += left[codes[a], c] * X[codes[b], c]
            if stop > start:
                place = first_at_least(S_indices, start, stop, codes[b])
                if place < stop and S_indices[place] == codes[b]:
                    dot += S_values[place]
            L[a, b] = dot
        L[a, a] += d[codes[a]]


@entry
def invert_sets(
    parts: KernelParts,
    indptr: Ints,
    indices: Codes,
    first: int,
    last: int,
    offsets: Ints,
    ridge: float,
    W: Array,
    logs: Array,
    worst: Array,
) -> None:
    """Write W = L_A⁻¹, log det L_A and `worst` of sets first..last−1.

    `worst` is the largest entry of the scaled inverse. log det is −inf where L_A is singular. W is
    then the inverse with `ridge` added to the scaled diagonal, or zero if `ridge` is zero.
    """
    room = whole_panels(largest_set(indptr, first, last))
    A = np.empty((room, room))
    work = np.empty((WORK, room))
    for s in range(first, last):
        codes = indices[indptr[s] : indptr[s + 1]]
        k = len(codes)
        possible = False
        for added in (0.0, ridge):
            fill_kernel(parts, codes, A)
            log_det, largest = invert_scaled(A, k, added, work)
            possible = log_det > -np.inf
            if added == 0.0:
                logs[s] = log_det
                worst[s] = largest
            if possible or ridge == 0.0:
                break
        for a in range(k):
            for b in range(k):
                W[offsets[s] + a * k + b] = A[a, b] if possible else 0.0


# -- Scores of all items given a set ---------------------------------------------------------------


@helper
def combine_chosen(weights: Array, source: Array, codes: Codes, target: Array) -> None:
    """Write target = Σ_b weights[b] source[codes[b]]."""
    for c in range(len(target)):
        target[c] = 0.0
    for b in range(len(codes)):
        weight = weights[b]
        row = source[codes[b]]
        for c in range(len(target)):
            target[c] += weight * row[c]


@entry
def rows_of_sets(
    left: Array, right: Array, indptr: Ints, indices: Codes, offsets: Ints, W: Array, rows: Array
) -> None:
    """Write rows whose product with Xᵀ is L_:Aᵀ, W L_A: and (with three parts) Wᵀ L_:Aᵀ, without S.

    rows[:n] = right_A, rows[n : 2n] = W left_A, rows[2n : 3n] = Wᵀ right_A, n the number of
    entries.
    """
    n = len(indices)
    r = right.shape[1]
    both = len(rows) == 3 * n
    for s in range(len(indptr) - 1):
        codes = indices[indptr[s] : indptr[s + 1]]
        start = indptr[s]
        k = len(codes)
        inverse = W[offsets[s] : offsets[s] + k * k].reshape(k, k)
        for a in range(k):
            for c in range(r):
                rows[start + a, c] = right[codes[a], c]
            combine_chosen(inverse[a], left, codes, rows[n + start + a])
            if both:
                combine_chosen(inverse[:, a], right, codes, rows[2 * n + start + a])


@entry
def add_skew(
    Y: Array,
    first_item: int,
    S_indptr: Ints,
    S_indices: Codes,
    S_values: Array,
    indptr: Ints,
    indices: Codes,
    offsets: Ints,
    W: Array,
) -> None:
    """Add the terms of S to Y (2n or 3n, tile), the product of `rows_of_sets` with a tile of items.

    The tile begins at item `first_item`. L_:Aᵀ loses S_A:, W L_A: gains W S_A:, and Wᵀ L_:Aᵀ loses
    Wᵀ S_A:.
    """
    n = len(indices)
    width = Y.shape[1]
    both = len(Y) == 3 * n
    for s in range(len(indptr) - 1):
        start = indptr[s]
        k = indptr[s + 1] - start
        inverse = W[offsets[s] : offsets[s] + k * k].reshape(k, k)
        for a in range(k):
            stop = S_indptr[indices[start + a] + 1]
            place = first_at_least(S_indices, S_indptr[indices[start + a]], stop, first_item)
            while place < stop and S_indices[place] < first_item + width:
                j = S_indices[place] - first_item
                value = S_values[place]
                Y[start + a, j] -= value
                for b in range(k):
                    Y[n + start + b, j] += inverse[b, a] * value
                if both:
                    for b in range(k):
                        Y[2 * n + start + b, j] -= inverse[a, b] * value
                place += 1


@entry
def scores_without_each(
    norms: Array, E: Array, U: Array, P: Array, Q: Array, factors: Array, indptr: Ints, out: Array
) -> None:
    """Write the score of every item j given entry i's set without i:

    out[i, j] = c_j + f_i P_ij Q_ij,   c_j = L_jj − Σ_a E_aj U_aj.
    """
    width = E.shape[1]
    given = np.empty(width)
    for s in range(len(indptr) - 1):
        for j in range(width):
            given[j] = norms[j]
        for a in range(indptr[s], indptr[s + 1]):
            for j in range(width):
                given[j] -= E[a, j] * U[a, j]
        for i in range(indptr[s], indptr[s + 1]):
            for j in range(width):
                out[i, j] = given[j] + P[i, j] * Q[i, j] * factors[i]


@entry
def subtract_products(scores: Array, E: Floats, U: Floats, indptr: Ints, clear: Array) -> int:
    """Subtract Σ_a E[a] U[a] over the entries a of every set s from scores[s].

    Return the number of unclear scores.

    A score of at most clear[s] t, with t > 0 the sum of the sizes of its terms, is unclear and
    becomes NaN. A score of −inf stays. Where E is U the terms are squares, and the first term
    bounds the others.
    """
    width = scores.shape[1]
    squares = E is U
    sizes = np.empty(width)
    unclear = 0
    for s in range(scores.shape[0]):
        row = scores[s]
        for j in range(width):
            sizes[j] = row[j]
        for a in range(indptr[s], indptr[s + 1]):
            e = E[a]
            u = U[a]
            if squares:
                for j in range(width):
                    row[j] -= e[j] * e[j]
            else:
                for j in range(width):
                    term = e[j] * u[j]
                    row[j] -= term
                    sizes[j] += abs(term)
        low = 0
        for j in range(width):
            low += 1 if (row[j] <= clear[s] * sizes[j]) & (row[j] > -np.inf) else 0
        if low == 0:
            continue
        for j in range(width):
            if row[j] > -np.inf and row[j] <= clear[s] * sizes[j] and sizes[j] > 0.0:
                row[j] = np.nan
                unclear += 1
    return unclear


# -- Rows of scores --------------------------------------------------------------------------------


@entry
def count_rows(scores: Array, codes: Codes, tie: float, rounding: Array, counts: Ints) -> None:
    """Count, per row, the scores that beat that of item codes[row], and those that beat or tie.

    The item itself ties. The rounding of a score is that of its column plus, if the score is
    finite, `tie` of its size.
    """
    for r in range(len(scores)):
        row = scores[r]
        own = row[codes[r]]
        slack = rounding[codes[r]] + (tie * abs(own) if abs(own) < np.inf else 0.0)
        better = 0
        at_least = 0
        for j in range(len(row)):
            gap = row[j] - own
            width = slack + rounding[j] + (tie * abs(row[j]) if abs(row[j]) < np.inf else 0.0)
            better += 1 if gap > width else 0
            at_least += 1 if gap >= -width else 0
        counts[r, 0] = better
        counts[r, 1] = at_least


@entry
def best_of_rows(scores: Array, rounding: Array, codes: Ints) -> None:
    """Write the columns of the largest scores of each row, best first, ties by column.

    Scores tie that differ by no more than the rounding of their columns.
    """
    n = codes.shape[1]
    best = np.empty(n)
    slacks = np.zeros(n)
    for r in range(len(scores)):
        row = scores[r]
        columns = codes[r]
        for place in range(n):
            best[place] = -np.inf
        found = 0
        for j in range(len(row)):
            if row[j] > best[n - 1]:
                insert(best, slacks, columns, row[j], rounding[j], j)
                found += 1
        for j in range(len(row)):  # columns of −inf fill what is left
            if found >= n:
                break
            if row[j] == -np.inf:
                columns[found] = j
                found += 1


@helper
def insert(
    best: Array, slacks: Array, columns: Ints, score: float, slack: float, column: int
) -> None:
    """Insert a score into the best ones, which descend; an earlier one wins a tie."""
    place = len(best)
    while place > 0 and score - slack > best[place - 1] + slacks[place - 1]:
        place -= 1
    for later in range(len(best) - 1, place, -1):
        best[later] = best[later - 1]
        slacks[later] = slacks[later - 1]
        columns[later] = columns[later - 1]
    if place < len(best):
        best[place] = score
        slacks[place] = slack
        columns[place] = column


@entry
def square_row_lengths(
    indptr: Ints, indices: Codes, values: Array, first: int, last: int, out: Array
) -> None:
    """Write Σ_j (S²)_ij² for rows i = first..last−1 of a CSR matrix S."""
    n = len(indptr) - 1
    row = np.zeros(n)
    owner = np.full(n, -1)
    touched = np.empty(n, dtype=np.int32)
    for i in range(first, last):
        count = 0
        for a in range(indptr[i], indptr[i + 1]):
            k = indices[a]
            for b in range(indptr[k], indptr[k + 1]):
                j = indices[b]
                if owner[j] != i:
                    owner[j] = i
                    row[j] = 0.0
                    touched[count] = j
                    count += 1
                row[j] += values[a] * values[b]
        total = 0.0
        for t in range(count):
            total += row[touched[t]] * row[touched[t]]
        out[i] = total
