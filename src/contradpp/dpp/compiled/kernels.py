"""Numba kernels over many sets at once: their bases, inverses and next-item scores.

Sets come as the CSR of `Baskets`: set s holds `indices[indptr[s]:indptr[s + 1]]`. L = D + X G Xᵀ + S comes as
`left` = X G, X, the diagonal d of D and the CSR of S with sorted columns; where L is symmetric also as V with
L = D + V Vᵀ. Of a set A, W is L_A⁻¹; the inverses of several sets lie one after the other in a flat array, that of
set s from `offsets[s]` on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled._numba import entry, helper
from contradpp.dpp.compiled.blocks import WORK, first_at_least, invert_scaled, largest_set, whole_panels
from contradpp.dpp.factor import SINGULAR, SINGULAR_SINGLE

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]

# -- Symmetric kernels: orthonormal rows ---------------------------------------------------------------


@helper
def project_off(residual: Array, basis: Array, t: int) -> None:
    """residual −= its projection onto the first t rows of `basis`."""
    k = residual.shape[0]
    for b in range(t):
        dot = 0.0
        for e in range(k):
            dot += basis[b, e] * residual[e]
        for e in range(k):
            residual[e] -= dot * basis[b, e]


@helper
def orthonormalise(V: NDArray[np.floating], d: Array, codes: Codes, Q: Array, more: Array, R: Array) -> None:
    """Orthonormal rows with [V_A √D_A] = R [Q more], R lower triangular, by Gram and Schmidt.

    The columns of √D_A are left out where d is empty. A second pass, where the first took much away, makes the rows
    orthogonal to rounding whatever the condition of L_A. A row of which the earlier ones leave nothing but rounding
    is left zero, and so is R_aa: the other rows still span them all.
    """
    k, K = len(codes), V.shape[1]
    extra = k if len(d) > 0 else 0
    least = SINGULAR if V.itemsize == 8 else SINGULAR_SINGLE
    for a in range(k):
        for c in range(K):
            Q[a, c] = V[codes[a], c]  # float64 from here on, whatever V is
        norm = 0.0
        for c in range(K):
            norm += Q[a, c] * Q[a, c]
        for c in range(extra):
            more[a, c] = 0.0
        if extra > 0:
            more[a, a] = np.sqrt(d[codes[a]])
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
                for c in range(extra):
                    dot += more[b, c] * more[a, c]
                R[a, b] += dot
                for c in range(K):
                    Q[a, c] -= dot * Q[b, c]
                for c in range(extra):
                    more[a, c] -= dot * more[b, c]
            left = 0.0
            for c in range(K):
                left += Q[a, c] * Q[a, c]
            for c in range(extra):
                left += more[a, c] * more[a, c]
            if left > 0.25 * before:
                break
        if left <= least**2 * norm:
            left = 0.0
        R[a, a] = np.sqrt(left)
        scale = 1.0 / R[a, a] if left > 0 else 0.0
        for c in range(K):
            Q[a, c] *= scale
        for c in range(extra):
            more[a, c] *= scale


@helper
def left_out_directions(R: Array, k: int, weights: Array, scores: Array) -> None:
    """For each item i of a set: the direction of its span that is orthogonal to all the others, and 1/W_ii.

    Column i of R⁻¹ is that direction in the coordinates of Q; it is written, normalised, to weights[i, :k], and its
    squared length is W_ii. Where the items are dependent 1/W_ii is 0.
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
    V: NDArray[np.floating], d: Array, indptr: Pointers, indices: Codes, first: int, last: int,
    Q: Array, weights: Array, scores: Array, logs: Array, worst: Array,
) -> None:  # fmt: skip
    """Of sets first..last−1 of a symmetric kernel: orthonormal rows Q, 1/W_ii, log det L_A and max W_ii L_ii.

    Written to the entries of the sets in Q (entries, K) and `scores`, and to `logs` (−inf where singular) and `worst`.
    `weights` gets the directions of `left_out_directions`, unless it has no rows.
    """
    largest = largest_set(indptr, first, last)
    least = SINGULAR if V.itemsize == 8 else SINGULAR_SINGLE
    R, more, own = np.empty((largest, largest)), np.empty((largest, largest)), np.empty((largest, largest))
    for s in range(first, last):
        start, stop = indptr[s], indptr[s + 1]
        k = stop - start
        orthonormalise(V, d, indices[start:stop], Q[start:stop], more, R)
        left_out_directions(R, k, weights[start:stop] if len(weights) > 0 else own, scores[start:stop])
        log, largest_share = 0.0, 1.0
        for a in range(k):
            norm = 0.0
            for b in range(a + 1):
                norm += R[a, b] * R[a, b]
            log += 2.0 * np.log(R[a, a])
            largest_share = max(largest_share, norm / scores[start + a]) if scores[start + a] > 0 else np.inf
            if largest_share == np.inf:
                break
        worst[s] = largest_share
        logs[s] = log if largest_share < least**-2 else -np.inf


# -- Any kernel: inverses ------------------------------------------------------------------------------


@helper
def fill_kernel(
    left: Array, X: Array, d: Array, S_indptr: Pointers, S_indices: Codes, S_values: Array, codes: Codes, L: Array
) -> None:
    """L_A = D_A + left_A X_Aᵀ + S_A (k, k) for one set, left = X G."""
    k, r = len(codes), X.shape[1]
    for a in range(k):
        start, stop = S_indptr[codes[a]], S_indptr[codes[a] + 1]
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
    left: Array, X: Array, d: Array, S_indptr: Pointers, S_indices: Codes, S_values: Array, indptr: Pointers,
    indices: Codes, first: int, last: int, offsets: Pointers, ridge: float, W: Array, logs: Array, worst: Array,
) -> None:  # fmt: skip
    """W = L_A⁻¹ of sets first..last−1, log det L_A (−inf where singular) and the largest entry of the scaled inverse.

    The inverse of a singular L_A is that of L_A with `ridge` added to the scaled diagonal, or zero where ridge is zero.
    """
    room = whole_panels(largest_set(indptr, first, last))
    A, work = np.empty((room, room)), np.empty((WORK, room))
    for s in range(first, last):
        codes = indices[indptr[s] : indptr[s + 1]]
        k, possible = len(codes), False
        for added in (0.0, ridge):
            fill_kernel(left, X, d, S_indptr, S_indices, S_values, codes, A)
            log_det, largest = invert_scaled(A, k, added, work)
            possible = log_det > -np.inf
            if added == 0.0:
                logs[s], worst[s] = log_det, largest
            if possible or ridge == 0.0:
                break
        for a in range(k):
            for b in range(k):
                W[offsets[s] + a * k + b] = A[a, b] if possible else 0.0


# -- Scores of all items given a set -------------------------------------------------------------------


@helper
def combine_chosen(weights: Array, source: Array, codes: Codes, target: Array) -> None:
    """target = Σ_b weights[b] source[codes[b]]."""
    for c in range(len(target)):
        target[c] = 0.0
    for b in range(len(codes)):
        weight, row = weights[b], source[codes[b]]
        for c in range(len(target)):
            target[c] += weight * row[c]


@entry
def rows_of_sets(left: Array, right: Array, indptr: Pointers, indices: Codes, offsets: Pointers, W: Array,
                 rows: Array) -> None:  # fmt: skip
    """What a product with Xᵀ turns into L_:Aᵀ, W L_A: and (with three parts of rows) Wᵀ L_:Aᵀ, but for S.

    rows[:n] = right_A, rows[n : 2n] = W left_A, rows[2n : 3n] = Wᵀ right_A, n the number of entries.
    """
    n, r = len(indices), right.shape[1]
    both = len(rows) == 3 * n
    for s in range(len(indptr) - 1):
        codes, start = indices[indptr[s] : indptr[s + 1]], indptr[s]
        k = len(codes)
        inverse = W[offsets[s] : offsets[s] + k * k].reshape(k, k)
        for a in range(k):
            for c in range(r):
                rows[start + a, c] = right[codes[a], c]
            combine_chosen(inverse[a], left, codes, rows[n + start + a])
            if both:
                combine_chosen(inverse[:, a], right, codes, rows[2 * n + start + a])


@entry
def add_partners(
    Y: Array, offset: int, S_indptr: Pointers, S_indices: Codes, S_values: Array,
    indptr: Pointers, indices: Codes, offsets: Pointers, W: Array,
) -> None:  # fmt: skip
    """Add S's share to the product Y (2n or 3n, tile) of `rows_of_sets` with the items offset, offset + 1, ... .

    L_:Aᵀ loses S_A:, W L_A: gains W S_A:, and Wᵀ L_:Aᵀ loses Wᵀ S_A:.
    """
    n, width = len(indices), Y.shape[1]
    both = len(Y) == 3 * n
    for s in range(len(indptr) - 1):
        start = indptr[s]
        k = indptr[s + 1] - start
        inverse = W[offsets[s] : offsets[s] + k * k].reshape(k, k)
        for a in range(k):
            stop = S_indptr[indices[start + a] + 1]
            place = first_at_least(S_indices, S_indptr[indices[start + a]], stop, offset)
            while place < stop and S_indices[place] < offset + width:
                j, value = S_indices[place] - offset, S_values[place]
                Y[start + a, j] -= value
                for b in range(k):
                    Y[n + start + b, j] += inverse[b, a] * value
                if both:
                    for b in range(k):
                        Y[2 * n + start + b, j] -= inverse[a, b] * value
                place += 1


@entry
def scores_without_each(
    norms: Array, E: Array, U: Array, P: Array, Q: Array, factors: Array, indptr: Pointers, out: Array
) -> None:
    """out[i, j] = c_j + f_i P_ij Q_ij, c_j = L_jj − Σ_a E_aj U_aj: the score of j given entry i's set without i."""
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
def subtract_products(
    scores: Array, E: NDArray[np.floating], U: NDArray[np.floating], indptr: Pointers, clear: Array
) -> int:
    """scores[s] −= Σ_a E[a] U[a] over the entries a of set s; returns how many scores are unclear, and are NaN now.

    With t > 0 the sum of the sizes of all terms of a score, one of at most clear[s] t is unclear. A score that is −inf
    stays so. Where E is U, and its terms are squares, the first term bounds the others.
    """
    width, squares = scores.shape[1], E is U
    sizes = np.empty(width)
    unclear = 0
    for s in range(scores.shape[0]):
        row = scores[s]
        for j in range(width):
            sizes[j] = row[j]
        for a in range(indptr[s], indptr[s + 1]):
            e, u = E[a], U[a]
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


# -- Rows of scores ------------------------------------------------------------------------------------


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
def best_of_rows(scores: Array, rounding: Array, codes: NDArray[np.int64]) -> None:
    """codes[r] = the columns of the largest scores of row r, as many as fit, best first; of equal ones the first.

    Scores are equal that differ by no more than the rounding of their columns.
    """
    n = codes.shape[1]
    best, slacks = np.empty(n), np.zeros(n)
    for r in range(len(scores)):
        row, columns = scores[r], codes[r]
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
def insert(best: Array, slacks: Array, columns: NDArray[np.int64], score: float, slack: float, column: int) -> None:
    """Insert a score into the best, which come best first, if it beats one of them; what came first wins a tie."""
    place = len(best)
    while place > 0 and score - slack > best[place - 1] + slacks[place - 1]:
        place -= 1
    for later in range(len(best) - 1, place, -1):
        best[later], slacks[later], columns[later] = best[later - 1], slacks[later - 1], columns[later - 1]
    if place < len(best):
        best[place], slacks[place], columns[place] = score, slack, column


@entry
def square_row_lengths(indptr: Pointers, indices: Codes, values: Array, first: int, last: int, out: Array) -> None:
    """Σ_j (S²)_ij² for rows first..last−1 of a CSR matrix S, written to their places in `out`."""
    n = len(indptr) - 1
    row, owner, touched = np.zeros(n), np.full(n, -1), np.empty(n, dtype=np.int32)
    for i in range(first, last):
        count = 0
        for a in range(indptr[i], indptr[i + 1]):
            k = indices[a]
            for b in range(indptr[k], indptr[k + 1]):
                j = indices[b]
                if owner[j] != i:
                    owner[j], row[j], touched[count] = i, 0.0, j
                    count += 1
                row[j] += values[a] * values[b]
        total = 0.0
        for t in range(count):
            total += row[touched[t]] * row[touched[t]]
        out[i] = total
