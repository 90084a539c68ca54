"""Numba kernels for L = X G Xᵀ + S, S sparse and skew-symmetric: inverses, scores, ranks and samples of many sets.

Sets come as the CSR of `Baskets`. S comes as a CSR with sorted columns. Of a set A, W is L_A⁻¹; the inverses of
several sets lie one after the other in a flat array, that of set s from `offsets[s]` on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import entry, helper
from contradpp.dpp.compiled.ranks import offer

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]

# A pivot below this share of the largest entry of the scaled matrix is rounding: the matrix is singular.
SINGULAR = 1e-13


@helper
def first_at_least(indices: Codes, start: int, stop: int, column: int) -> int:
    """The first place in start..stop, of sorted indices, that holds `column` or more."""
    while start < stop:
        middle = (start + stop) // 2
        if indices[middle] < column:
            start = middle + 1
        else:
            stop = middle
    return start


@helper
def fill_kernel(
    left: Array, X: Array, S_indptr: Pointers, S_indices: Codes, S_values: Array, codes: Codes, L: Array
) -> None:
    """L_A = left_A X_Aᵀ + S_A (k, k) for one set, left = X G."""
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


@helper
def set_scales(L: Array, scales: Array) -> None:
    """What to divide rows and columns by, so that the largest entry of each is about 1.

    From √L_aa, a few divisions by the square root of a row's largest entry (Ruiz 2001): a diagonal that is
    zero, or only rounding, is no scale, and neither are the entries between items of very different popularity.
    """
    k = len(L)
    largest = np.empty(k)
    for a in range(k):
        scales[a] = np.sqrt(L[a, a]) if L[a, a] > 1e-200 else 1.0
    for _ in range(3):
        for a in range(k):
            largest[a] = 0.0
            for b in range(k):
                largest[a] = max(largest[a], abs(L[a, b]) / (scales[a] * scales[b]))
        for a in range(k):
            if largest[a] > 0:
                scales[a] *= np.sqrt(largest[a])


@helper
def invert(A: Array) -> float:
    """Put A⁻¹ in the place of A, by elimination with row pivots; returns log det A, or −inf if it is not positive.

    Where it returns −inf the content of A is meaningless.
    """
    k = len(A)
    swaps = np.empty(k, dtype=np.int64)
    largest = 0.0
    for a in range(k):
        for b in range(k):
            largest = max(largest, abs(A[a, b]))
    tiny = max(SINGULAR, 2e-15 * k) * largest
    log, positive = 0.0, True
    for c in range(k):
        best = c
        for a in range(c + 1, k):
            if abs(A[a, c]) > abs(A[best, c]):
                best = a
        pivot = A[best, c]
        if not abs(pivot) > tiny:
            return -np.inf
        swaps[c] = best
        if best != c:
            positive = not positive
            for b in range(k):
                A[c, b], A[best, b] = A[best, b], A[c, b]
        if pivot < 0:
            positive = not positive
        log += np.log(abs(pivot))
        A[c, c] = 1.0
        for b in range(k):
            A[c, b] /= pivot
        for a in range(k):
            if a != c:
                factor = A[a, c]
                A[a, c] = 0.0
                for b in range(k):
                    A[a, b] -= factor * A[c, b]
    for c in range(k - 1, -1, -1):
        if swaps[c] != c:
            for a in range(k):
                A[a, c], A[a, swaps[c]] = A[a, swaps[c]], A[a, c]
    return log if positive else -np.inf


@entry
def invert_sets(
    left: Array, X: Array, S_indptr: Pointers, S_indices: Codes, S_values: Array,
    indptr: Pointers, indices: Codes, first: int, last: int, offsets: Pointers, ridge: float, W: Array, logs: Array,
) -> None:  # fmt: skip
    """W = L_A⁻¹ and log det L_A of sets first..last−1; −inf where L_A is singular.

    L_A is scaled first (`set_scales`), so that items of very different popularity do no harm. The inverse of a
    singular L_A is that of L_A with `ridge` added to the scaled diagonal, or zero where ridge is zero.
    """
    largest = 0
    for s in range(first, last):
        largest = max(largest, indptr[s + 1] - indptr[s])
    scales = np.empty(largest)
    for s in range(first, last):
        codes = indices[indptr[s] : indptr[s + 1]]
        k = len(codes)
        A = W[offsets[s] : offsets[s] + k * k].reshape(k, k)
        logs[s] = -np.inf
        for attempt in range(2):
            fill_kernel(left, X, S_indptr, S_indices, S_values, codes, A)
            set_scales(A, scales)
            for a in range(k):
                for b in range(k):
                    A[a, b] /= scales[a] * scales[b]
                if attempt == 1:
                    A[a, a] += ridge
            log = invert(A)
            if log > -np.inf:
                for a in range(k):
                    for b in range(k):
                        A[a, b] /= scales[a] * scales[b]
                    log += 2.0 * np.log(scales[a])
                if attempt == 0:
                    logs[s] = log
                break
            if ridge == 0.0 or attempt == 1:
                A[:] = 0.0
                break


@entry
def log_dets(
    left: Array, X: Array, S_indptr: Pointers, S_indices: Codes, S_values: Array,
    indptr: Pointers, indices: Codes, first: int, last: int, logs: Array,
) -> None:  # fmt: skip
    """log det L_A of sets first..last−1, as `invert_sets` has it, by elimination without the inverse."""
    largest = 1
    for s in range(first, last):
        largest = max(largest, indptr[s + 1] - indptr[s])
    work, scales = np.empty(largest * largest), np.empty(largest)
    for s in range(first, last):
        codes = indices[indptr[s] : indptr[s + 1]]
        k = len(codes)
        A = work[: k * k].reshape(k, k)
        fill_kernel(left, X, S_indptr, S_indices, S_values, codes, A)
        set_scales(A, scales)
        top = 0.0
        for a in range(k):
            for b in range(k):
                A[a, b] /= scales[a] * scales[b]
                top = max(top, abs(A[a, b]))
        tiny = max(SINGULAR, 2e-15 * k) * top
        log, positive = 0.0, True
        for c in range(k):
            best = c
            for a in range(c + 1, k):
                if abs(A[a, c]) > abs(A[best, c]):
                    best = a
            pivot = A[best, c]
            if not abs(pivot) > tiny:
                positive = False
                break
            if best != c:
                positive = not positive
                for b in range(c, k):
                    A[c, b], A[best, b] = A[best, b], A[c, b]
            if pivot < 0:
                positive = not positive
            log += np.log(abs(pivot)) + 2.0 * np.log(scales[c])
            for a in range(c + 1, k):
                factor = A[a, c] / pivot
                for b in range(c + 1, k):
                    A[a, b] -= factor * A[c, b]
        logs[s] = log if positive else -np.inf


@entry
def rows_of_sets(left: Array, right: Array, indptr: Pointers, indices: Codes, offsets: Pointers, W: Array,
                 rows: Array) -> None:  # fmt: skip
    """What a product with Xᵀ turns into L_:Aᵀ, W L_A: and (with three parts of rows) Wᵀ L_:Aᵀ, but for S.

    rows[:n] = right_A, rows[n : 2n] = W left_A, rows[2n : 3n] = Wᵀ right_A, n the number of entries.
    """
    n, r = len(indices), left.shape[1]
    both = len(rows) == 3 * n
    for s in range(len(indptr) - 1):
        start = indptr[s]
        k = indptr[s + 1] - start
        inverse = W[offsets[s] : offsets[s] + k * k].reshape(k, k)
        for a in range(k):
            rows[start + a] = right[indices[start + a]]
            target = rows[n + start + a]
            target[:] = 0.0
            for b in range(k):
                weight, source = inverse[a, b], left[indices[start + b]]
                for c in range(r):
                    target[c] += weight * source[c]
            if both:
                target = rows[2 * n + start + a]
                target[:] = 0.0
                for b in range(k):
                    weight, source = inverse[b, a], right[indices[start + b]]
                    for c in range(r):
                        target[c] += weight * source[c]


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
def subtract_products(scores: Array, Y: Array, indptr: Pointers) -> None:
    """scores[s] −= Σ_a Y[a] Y[n + a] over the entries a of set s: L_jA W L_Aj for every item j."""
    n = indptr[-1]
    for s in range(scores.shape[0]):
        for a in range(indptr[s], indptr[s + 1]):
            for j in range(scores.shape[1]):
                scores[s, j] -= Y[a, j] * Y[n + a, j]


@entry
def compare_products(
    Y: Array, norms: Array, delta: Array, offset: int, indptr: Pointers, indices: Codes,
    scores: Array, slack: Array, held: Pointers, counts: Pointers, top: Array, top_codes: Codes,
) -> None:  # fmt: skip
    """As `ranks.compare_directions`, for the scores c_j + Q_ij U_ij / W_ii, c_j = L_jj − Σ_a E_aj U_aj.

    Y holds E = L_:Aᵀ, U = W L_A: and Q = Wᵀ L_:Aᵀ, each with a row per entry; `scores` holds 1/W_ii.
    """
    n, width = len(indices), Y.shape[1]
    given, above, below, x = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    for s in range(len(indptr) - 1):
        start, stop = indptr[s], indptr[s + 1]
        given[:] = norms
        for a in range(start, stop):
            E, U = Y[a], Y[n + a]
            for j in range(width):
                given[j] -= E[j] * U[j]
        for a in range(start, stop):
            if offset <= indices[a] < offset + width:
                given[indices[a] - offset] = -np.inf
        for j in range(width):
            above[j] = given[j] - delta[j]
            below[j] = given[j] + delta[j]
        for i in range(start, stop):
            U, Q, factor = Y[n + i], Y[2 * n + i], scores[i]
            upper, lower = scores[i] + slack[i], scores[i] - slack[i]
            better, at_least = 0, 0
            for j in range(width):
                x[j] = Q[j] * U[j] * factor
                better += 1 if above[j] + x[j] > upper else 0
                at_least += 1 if below[j] + x[j] >= lower else 0
            counts[i, 0] += better
            counts[i, 1] += at_least
            if i == held[s]:
                best, slacks, codes = top[0, s], top[1, s], top_codes[s]
                for j in range(width):
                    score = scores[i] if offset + j == indices[i] else given[j] + x[j]
                    if score > best[-1]:
                        offer(best, slacks, codes, score, delta[j], offset + j)
