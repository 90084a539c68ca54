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
def scores_without_each(Y: Array, norms: Array, reciprocals: Array, indptr: Pointers, out: Array) -> None:
    """out[i, j] = c_j + Q_ij U_ij / W_ii, c_j = L_jj − Σ_a E_aj U_aj: the score of j given entry i's set without i.

    Y holds E = L_:Aᵀ, U = W L_A: and Q = Wᵀ L_:Aᵀ, each with a row per entry; `reciprocals` holds 1/W_ii.
    """
    n, width = len(out), Y.shape[1]
    given = np.empty(width)
    for s in range(len(indptr) - 1):
        for j in range(width):
            given[j] = norms[j]
        for a in range(indptr[s], indptr[s + 1]):
            for j in range(width):
                given[j] -= Y[a, j] * Y[n + a, j]
        for i in range(indptr[s], indptr[s + 1]):
            for j in range(width):
                out[i, j] = given[j] + Y[2 * n + i, j] * Y[n + i, j] * reciprocals[i]


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
