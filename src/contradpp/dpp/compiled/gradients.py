"""Numba kernels for learning: gradients of log-determinants and of the conditional likelihood, set by set.

Sets come as a CSR; results are aligned with its entries, so that threads work on blocks of sets and write to
places of their own. `gather_rows` then adds up the entries of the same item in a fixed order: the same bytes
for any number of threads. Definitions in `reference_gradients.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.blocks import PANEL, WORK, invert, multiply, padded, products
from contradpp.dpp.compiled.decorators import entry, helper

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]


SINGULAR = 1e-14  # a pivot this small, relative to its diagonal entry, is rounding


@helper
def load_rows(V: Array, rows: Codes, start: int, k: int, X: Array) -> None:
    """X[a] = V[rows[start + a]] for a < k."""
    for a in range(k):
        i = rows[start + a]
        for c in range(V.shape[1]):
            X[a, c] = V[i, c]


@helper
def largest_set(indptr: Pointers, first: int, last: int) -> int:
    """The most items that one of the sets first..last−1 has, at least 1."""
    largest = 1
    for s in range(first, last):
        largest = max(largest, indptr[s + 1] - indptr[s])
    return largest


@helper
def room_for(largest: int) -> int:
    """The rows of a k×k matrix that `blocks.invert` can take, for sets of up to `largest` items."""
    return -(-largest // PANEL) * PANEL


@helper
def inverse_gram(X: Array, k: int, K: int, W: Array, work: Array, whole: bool) -> float:
    """W = (X Xᵀ)⁻¹ for the first k rows of X, of which K columns are in use; returns log det X Xᵀ."""
    if k > K:
        return -np.inf
    products(X, X, k, W)
    return float(invert(W, k, SINGULAR, work, whole))


@entry
def log_det_gradients(
    V: Array, indptr: Pointers, indices: Codes, first: int, last: int, G: Array, log_dets: Array
) -> None:
    """log det L_A and the entry rows L_A⁻¹ V_A (half the gradient) of sets first..last−1.

    A singular set, as any that is larger than the rank, gets log det = −inf and zero rows.
    """
    K = V.shape[1]
    largest = largest_set(indptr, first, last)
    room = room_for(largest)
    X, W, work = np.zeros((largest, padded(K))), np.empty((room, room)), np.empty((WORK, room))
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        log_dets[s] = inverse_gram(X, k, K, W, work, True)
        if log_dets[s] == -np.inf:
            G[start : start + k] = 0.0
        else:
            multiply(W, k, X, K, G, start)


@entry
def set_log_dets(V: Array, indptr: Pointers, indices: Codes, first: int, last: int, out: Array) -> None:
    """log det L_A of sets first..last−1, −inf where singular."""
    K = V.shape[1]
    largest = largest_set(indptr, first, last)
    room = room_for(largest)
    X, W, work = np.zeros((largest, padded(K))), np.empty((room, room)), np.empty((WORK, room))
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        out[s] = inverse_gram(X, k, K, W, work, False)


@helper
def conditional_terms(
    X: Array, XC: Array, k: int, K: int, trace: float, W: Array, T: Array, WT: Array, P: Array, S: Array, work: Array
) -> bool:
    """W = L_A⁻¹, T = X C Xᵀ, WT, P = W T W and the conditional normalisers S_i of one set; False if it is singular.

    S_i = tr C − tr(W T) + P_ii / W_ii = Σ_j det L_{A∖i∪j} / det L_{A∖i}.
    """
    if inverse_gram(X, k, K, W, work, True) == -np.inf:
        return False
    products(X, XC, k, T)
    for a in range(k):
        for b in range(a):
            T[b, a] = T[a, b]
    multiply(W, k, T, k, WT, 0)
    multiply(WT, k, W, k, P, 0)
    total = trace
    for a in range(k):
        total -= WT[a, a]
    for a in range(k):
        S[a] = total + P[a, a] / W[a, a]
        if not S[a] > 0:
            return False
    return True


@entry
def conditional_log_likelihoods(
    V: Array, VC: Array, slots: Codes, trace: float, indptr: Pointers, indices: Codes, first: int, last: int, out: Array
) -> None:
    """log P(i | A∖i) for every entry of sets first..last−1 (NaN where the set is singular).

    VC holds the rows of V C of the items that occur; entry e finds its own at VC[slots[e]].
    """
    K = V.shape[1]
    largest = largest_set(indptr, first, last)
    room = room_for(largest)
    X, XC = np.zeros((largest, padded(K))), np.zeros((largest, padded(K)))
    W, T, WT, P = np.empty((room, room)), np.empty((room, room)), np.empty((room, room)), np.empty((room, room))
    S, work = np.empty(largest), np.empty((WORK, room))
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        load_rows(VC, slots, start, k, XC)
        usable = conditional_terms(X, XC, k, K, trace, W, T, WT, P, S, work)
        for a in range(k):
            out[start + a] = -np.log(W[a, a]) - np.log(S[a]) if usable else np.nan


@entry
def conditional_gradients(
    V: Array, VC: Array, slots: Codes, trace: float, indptr: Pointers, indices: Codes,
    first: int, last: int, g: Array, G: Array, F: Array, sigmas: Array, values: Array,
) -> None:  # fmt: skip
    """The gradient of Σ_i g_i log P(i | A∖i), for sets first..last−1, in three parts.

    Entry rows −2 W W̄ W V_A in G; entry rows T̄ V_A in F, from which come the rest of the rows, 2 (T̄ V_A) C, and
    the sum in C̄; and the σ of each set. The value of the set's sum is in `values`. Singular sets contribute nothing.
    With P = W T W, q = s/w and x = (q diag(P) − g)/w: W W̄ W = σP − Y − Yᵀ, Y = (P D(q) − W D(x)/2) W.
    """
    K = V.shape[1]
    largest = largest_set(indptr, first, last)
    room = room_for(largest)
    X, XC = np.zeros((largest, padded(K))), np.zeros((largest, padded(K)))
    W, T, WT, P = np.empty((room, room)), np.empty((room, room)), np.empty((room, room)), np.empty((room, room))
    S, q, work = np.empty(largest), np.empty(largest), np.empty((WORK, room))
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        sigmas[s] = 0.0
        values[s] = 0.0
        load_rows(V, indices, start, k, X)
        load_rows(VC, slots, start, k, XC)
        if not conditional_terms(X, XC, k, K, trace, W, T, WT, P, S, work):
            G[start : start + k] = 0.0
            F[start : start + k] = 0.0
            continue
        sigma = 0.0
        for a in range(k):
            weight = g[start + a]
            sigma += weight / S[a]
            q[a] = weight / (S[a] * W[a, a])
            values[s] -= weight * np.log(W[a, a] * S[a])
        sigmas[s] = sigma
        # T̄ = σW − W D(q) W, in the place of T: WT has served and lends its place to W D(q).
        for b in range(k):
            work[0, b] = 0.5 * (q[b] * P[b, b] - g[start + b]) / W[b, b]
        for a in range(k):
            for b in range(k):
                WT[a, b] = W[a, b] * q[b]
        multiply(WT, k, W, k, T, 0)
        for a in range(k):
            for b in range(k):
                T[a, b] = sigma * W[a, b] - T[a, b]
                WT[a, b] = P[a, b] * q[b] - W[a, b] * work[0, b]
        multiply(T, k, X, K, F, start)
        multiply(WT, k, W, k, T, 0)
        for a in range(k):
            for b in range(k):
                WT[a, b] = 2.0 * (T[a, b] + T[b, a] - sigma * P[a, b])
        multiply(WT, k, X, K, G, start)


@entry
def number_rows(indices: Codes, marks: Codes, slots: Codes, rows: Codes) -> int:
    """Number the distinct items of `indices` in order of appearance: slots per entry, items in `rows`.

    `marks` (M,) must hold −1 everywhere and does so again afterwards. Returns how many distinct items there are.
    """
    count = 0
    for e in range(len(indices)):
        item = indices[e]
        if marks[item] < 0:
            marks[item] = count
            rows[count] = item
            count += 1
        slots[e] = marks[item]
    for r in range(count):
        marks[rows[r]] = -1
    return count


@entry
def gather_rows(G: Array, indptr: Pointers, slots: Codes, y: Array, out: Array) -> None:
    """out[slot] = Σ y_A G_e over the entries e of that slot, in the order of the entries."""
    out[:] = 0.0
    for s in range(len(indptr) - 1):
        weight = y[s]
        if weight == 0.0:
            continue
        for e in range(indptr[s], indptr[s + 1]):
            row = slots[e]
            for c in range(G.shape[1]):
                out[row, c] += weight * G[e, c]
