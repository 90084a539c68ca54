"""Numba kernels for learning L = V Vᵀ + S, S sparse and skew: the conditional likelihood and its gradient.

Every formula of `gradients.py` carries over with a general inverse W = L_A⁻¹ and T = (L²)_A. With C = Vᵀ V and
Y = S V,  T = V_A C V_Aᵀ + Y_A V_Aᵀ − V_A Y_Aᵀ − S_A S_Aᵀ, where S_A are the (sparse) rows of the set. The rows of S
come as a CSR that holds both s_ij and s_ji = −s_ij. Definition in `reference_gradients.skew_conditional`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.blocks import multiply, padded, products, times_det
from contradpp.dpp.compiled.decorators import entry, helper
from contradpp.dpp.compiled.gradients import SINGULAR, largest_set, load_rows

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]


@helper
def invert_general(W: Array, k: int) -> float:
    """W ← W⁻¹ by Gauss and Jordan; returns log det, −inf if a pivot is only rounding.

    No row needs to be exchanged: the symmetric part is positive semidefinite, and so is that of every Schur
    complement.
    """
    log_det, product = 0.0, 1.0
    for p in range(k):
        pivot = W[p, p]
        if not pivot > SINGULAR:
            return -np.inf
        log_det, product = times_det(log_det, product, pivot)
        scale = 1.0 / pivot
        W[p, p] = 1.0
        for b in range(k):
            W[p, b] *= scale
        for a in range(k):
            if a != p:
                factor = W[a, p]
                W[a, p] = 0.0
                for b in range(k):
                    W[a, b] -= factor * W[p, b]
    return float(log_det + np.log(product))


@helper
def partner_products(
    rows: Pointers, columns: Codes, values: Array, indices: Codes, start: int, k: int, dense: Array, out: Array
) -> None:
    """out[a, b] = Σ_j s_aj s_bj for b ≤ a; `dense` (M,) holds zeros before and after."""
    for a in range(k):
        i = indices[start + a]
        for e in range(rows[i], rows[i + 1]):
            dense[columns[e]] = values[e]
        for b in range(a + 1):
            j = indices[start + b]
            total = 0.0
            for e in range(rows[j], rows[j + 1]):
                total += dense[columns[e]] * values[e]
            out[a, b] = total
        for e in range(rows[i], rows[i + 1]):
            dense[columns[e]] = 0.0


@helper
def skew_inverse(
    X: Array, k: int, rows: Pointers, columns: Codes, values: Array, indices: Codes, start: int, place: Codes,
    W: Array, scale: Array,
) -> float:  # fmt: skip
    """W = L_A⁻¹ of one set; returns log det L_A, −inf if it is singular.

    L_A is scaled to a unit diagonal of V_A V_Aᵀ before the inverse, which the pivots are measured against.
    """
    products(X, X, k, W)
    logs = 0.0
    for a in range(k):
        if not W[a, a] > 0.0:
            return -np.inf
        scale[a] = np.sqrt(W[a, a])
        logs += np.log(W[a, a])
    for a in range(k):
        for b in range(a):
            W[b, a] = W[a, b]
        place[indices[start + a]] = a
    for a in range(k):
        i = indices[start + a]
        for e in range(rows[i], rows[i + 1]):
            b = place[columns[e]]
            if b >= 0:
                W[a, b] += values[e]
    for a in range(k):
        place[indices[start + a]] = -1
        for b in range(k):
            W[a, b] /= scale[a] * scale[b]
    log_det = invert_general(W, k)
    for a in range(k):
        for b in range(k):
            W[a, b] /= scale[a] * scale[b]
    return float(log_det + logs)


@helper
def skew_terms(
    X: Array, XC: Array, Y: Array, k: int, trace: float, rows: Pointers, columns: Codes, values: Array,
    indices: Codes, start: int, place: Codes, dense: Array, W: Array, T: Array, WT: Array, P: Array, S: Array,
) -> bool:  # fmt: skip
    """W = L_A⁻¹, T = (L²)_A, WT, P = W T W and the normalisers S_i of one set; False if it is singular."""
    if skew_inverse(X, k, rows, columns, values, indices, start, place, W, S) == -np.inf:
        return False
    products(X, XC, k, T)
    products(Y, X, k, WT)
    products(X, Y, k, P)
    for a in range(k):
        for b in range(a):
            WT[a, b] -= P[a, b]  # the skew part of T, below the diagonal
    partner_products(rows, columns, values, indices, start, k, dense, P)
    for a in range(k):
        T[a, a] -= P[a, a]
        for b in range(a):
            even, odd = T[a, b] - P[a, b], WT[a, b]
            T[a, b], T[b, a] = even + odd, even - odd
    multiply(W, k, T, k, WT, 0)
    multiply(WT, k, W, k, P, 0)
    total = trace
    for a in range(k):
        total -= WT[a, a]
    for a in range(k):
        if not W[a, a] > 0.0:
            return False
        S[a] = total + P[a, a] / W[a, a]
        if not S[a] > 0.0:
            return False
    return True


@entry
def skew_log_likelihoods(
    V: Array, VC: Array, VS: Array, slots: Codes, trace: float, rows: Pointers, columns: Codes, values: Array,
    indptr: Pointers, indices: Codes, first: int, last: int, out: Array,
) -> None:  # fmt: skip
    """log P(i | A∖i) for every entry of sets first..last−1 (NaN where the set is singular).

    VC and VS hold the rows of V C and S V of the items that occur; entry e finds its own at slots[e].
    """
    M, K = V.shape
    largest = largest_set(indptr, first, last)
    X, XC, Y = np.zeros((largest, padded(K))), np.zeros((largest, padded(K))), np.zeros((largest, padded(K)))
    W, T, WT, P = (np.empty((largest, largest)), np.empty((largest, largest)),
                   np.empty((largest, largest)), np.empty((largest, largest)))  # fmt: skip
    S, place, dense = np.empty(largest), np.full(M, -1, dtype=np.int32), np.zeros(M)
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        load_rows(VC, slots, start, k, XC)
        load_rows(VS, slots, start, k, Y)
        usable = skew_terms(
            X, XC, Y, k, trace, rows, columns, values, indices, start, place, dense, W, T, WT, P, S
        )  # fmt: skip
        for a in range(k):
            out[start + a] = -np.log(W[a, a]) - np.log(S[a]) if usable else np.nan


@entry
def skew_conditional_gradients(
    V: Array, VC: Array, VS: Array, slots: Codes, trace: float, rows: Pointers, columns: Codes, values: Array,
    pair: Codes, indptr: Pointers, indices: Codes, first: int, last: int, g: Array,
    G: Array, F: Array, B: Array, sigmas: Array, logs: Array, pairs: Array,
) -> None:  # fmt: skip
    """The gradient of Σ_i g_i log P(i | A∖i), for sets first..last−1, in parts.

    With T̄ = (σW − W D(q) W)ᵀ, H = T̄ + T̄ᵀ, E = T̄ᵀ − T̄ and L̄ the adjoint of L_A, the entry rows are
    G = (L̄ + L̄ᵀ) V_A + E Y_A;  F = H V_A, from which come (H V_A) C and the sum in C̄;  and B = −E V_A, the adjoint
    of Y_A. `pairs` gains, for every pair of items with one in the set, its share of ∂/∂ log |s|, but for that of Y.
    """
    M, K = V.shape
    largest = largest_set(indptr, first, last)
    X, XC, Y = np.zeros((largest, padded(K))), np.zeros((largest, padded(K))), np.zeros((largest, padded(K)))
    W, T, WT, P = (np.empty((largest, largest)), np.empty((largest, largest)),
                   np.empty((largest, largest)), np.empty((largest, largest)))  # fmt: skip
    R, even, more = np.empty((largest, largest)), np.empty((largest, largest)), np.empty((largest, padded(K)))
    S, q, x, place, dense = (np.empty(largest), np.empty(largest), np.empty(largest),
                             np.full(M, -1, dtype=np.int32), np.zeros(M))  # fmt: skip
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        sigmas[s] = 0.0
        logs[s] = 0.0
        load_rows(V, indices, start, k, X)
        load_rows(VC, slots, start, k, XC)
        load_rows(VS, slots, start, k, Y)
        if not skew_terms(X, XC, Y, k, trace, rows, columns, values, indices, start, place, dense, W, T, WT, P, S):
            G[start : start + k] = 0.0
            F[start : start + k] = 0.0
            B[start : start + k] = 0.0
            continue
        sigma = 0.0
        for a in range(k):
            weight = g[start + a]
            sigma += weight / S[a]
            q[a] = weight / (S[a] * W[a, a])
            x[a] = (q[a] * P[a, a] - weight) / W[a, a]
            logs[s] -= weight * np.log(W[a, a] * S[a])
        sigmas[s] = sigma
        for a in range(k):
            for b in range(k):
                WT[a, b] = W[a, b] * q[b]
        multiply(WT, k, W, k, T, 0)  # W D(q) W
        multiply(WT, k, P, k, R, 0)  # W D(q) P
        for a in range(k):
            for b in range(k):
                T[a, b] = sigma * W[a, b] - T[a, b]  # T̄ᵀ
                WT[a, b] = P[a, b] * q[b] - W[a, b] * x[b]
        multiply(WT, k, W, k, even, 0)
        for a in range(k):
            for b in range(k):
                R[a, b] += even[a, b] - sigma * P[a, b]  # L̄ᵀ
        for a in range(k):
            for b in range(k):
                even[a, b] = T[a, b] + T[b, a]  # H
                WT[a, b] = T[a, b] - T[b, a]  # E
                P[a, b] = R[a, b] + R[b, a]
        multiply(P, k, X, K, G, start)
        multiply(WT, k, Y, K, more, 0)
        for a in range(k):
            for c in range(K):
                G[start + a, c] += more[a, c]
        multiply(even, k, X, K, F, start)
        multiply(WT, k, X, K, B, start)
        for a in range(k):
            for c in range(K):
                B[start + a, c] = -B[start + a, c]
        pair_shares(rows, columns, values, pair, indices, start, k, even, R, place, dense, pairs)


@entry
def skew_log_det_gradients(
    V: Array, rows: Pointers, columns: Codes, values: Array, pair: Codes, indptr: Pointers, indices: Codes,
    first: int, last: int, y: Array, G: Array, log_dets: Array, pairs: Array,
) -> None:  # fmt: skip
    """log det L_A and the entry rows (W + Wᵀ) V_A, W = L_A⁻¹, of sets first..last−1.

    `pairs` gains y_A ∂/∂ log |s| of every pair within the set. A singular set gets −inf and zero rows.
    """
    M, K = V.shape
    largest = largest_set(indptr, first, last)
    X, W, both = np.zeros((largest, padded(K))), np.empty((largest, largest)), np.empty((largest, largest))
    scale, place = np.empty(largest), np.full(M, -1, dtype=np.int32)
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        log_dets[s] = skew_inverse(X, k, rows, columns, values, indices, start, place, W, scale)
        if log_dets[s] == -np.inf:
            G[start : start + k] = 0.0
            continue
        for a in range(k):
            place[indices[start + a]] = a
            for b in range(k):
                both[a, b] = W[a, b] + W[b, a]
        multiply(both, k, X, K, G, start)
        for a in range(k):
            i = indices[start + a]
            for e in range(rows[i], rows[i + 1]):
                b = place[columns[e]]
                if b >= 0:
                    pairs[pair[e]] += y[s] * values[e] * W[b, a]
        for a in range(k):
            place[indices[start + a]] = -1


@helper
def pair_shares(
    rows: Pointers, columns: Codes, values: Array, pair: Codes, indices: Codes, start: int, k: int,
    H: Array, R: Array, place: Codes, dense: Array, pairs: Array,
) -> None:  # fmt: skip
    """pairs[p] += s_aj ∂/∂s_aj over the rows a of one set: L̄_aj where j is in it, less (H S_A)_aj; R holds L̄ᵀ."""
    for a in range(k):
        place[indices[start + a]] = a
    for a in range(k):
        i = indices[start + a]
        for b in range(k):
            j = indices[start + b]
            h = H[a, b]
            for e in range(rows[j], rows[j + 1]):
                dense[columns[e]] += h * values[e]
        for e in range(rows[i], rows[i + 1]):
            share = -dense[columns[e]]
            b = place[columns[e]]
            if b >= 0:
                share += R[b, a]
            pairs[pair[e]] += values[e] * share
        for b in range(k):
            j = indices[start + b]
            for e in range(rows[j], rows[j + 1]):
                dense[columns[e]] = 0.0
    for a in range(k):
        place[indices[start + a]] = -1


@entry
def partner_sums(V: Array, rows: Pointers, columns: Codes, values: Array, items: Codes, out: Array) -> None:
    """out[r] = Σ_j s_ij v_j for the r-th of the items: rows of S V."""
    K = V.shape[1]
    for r in range(len(items)):
        i = items[r]
        for c in range(K):
            out[r, c] = 0.0
        for e in range(rows[i], rows[i + 1]):
            j, value = columns[e], values[e]
            for c in range(K):
                out[r, c] += value * V[j, c]


@entry
def spread_to_partners(
    V: Array, rows: Pointers, columns: Codes, values: Array, pair: Codes, items: Codes, adjoint: Array,
    slots: Codes, out: Array, pairs: Array,
) -> None:  # fmt: skip
    """What the adjoint of the rows of Y = S V says of V and of S: v_j gains s_ij Ȳ_i, and log |s_ij| s_ij Ȳ_i · v_j.

    `slots` holds, partner by partner of one item after the other, the row of `out` that belongs to it.
    """
    K = V.shape[1]
    at = 0
    for r in range(len(items)):
        i = items[r]
        for e in range(rows[i], rows[i + 1]):
            j, value, row = columns[e], values[e], slots[at]
            at += 1
            dot = 0.0
            for c in range(K):
                dot += adjoint[r, c] * V[j, c]
                out[row, c] += value * adjoint[r, c]
            pairs[pair[e]] += value * dot
