"""Numba kernels for learning: gradients of log-determinants and of the conditional likelihood, set by set.

Sets come as a CSR; results are aligned with its entries, so that threads work on blocks of sets and write to
places of their own. `gather_rows` then adds up the entries of the same item in a fixed order: the same bytes
for any number of threads. Definitions in `reference_gradients.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.algebra.compiled import compiled

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]


@compiled
def gram_cholesky(X: Array, k: int, R: Array) -> float:
    """R = the lower Cholesky factor of X Xᵀ for the first k rows of X; returns log det, −inf if it is singular."""
    K = X.shape[1]
    log_det = 0.0
    for a in range(k):
        for b in range(a + 1):
            dot = 0.0
            for c in range(K):
                dot += X[a, c] * X[b, c]
            R[a, b] = dot
    for a in range(k):
        diagonal = R[a, a]
        for b in range(a):
            value = R[a, b]
            for c in range(b):
                value -= R[a, c] * R[b, c]
            R[a, b] = value / R[b, b]
        left = diagonal
        for c in range(a):
            left -= R[a, c] * R[a, c]
        if not left > 1e-14 * diagonal:
            return -np.inf
        R[a, a] = np.sqrt(left)
        log_det += np.log(left)
    return log_det


@compiled
def solve_rows(R: Array, k: int, G: Array) -> None:
    """G ← (R Rᵀ)⁻¹ G for the first k rows of G, by row operations along its columns."""
    n = G.shape[1]
    for a in range(k):
        for b in range(a):
            factor = R[a, b]
            for c in range(n):
                G[a, c] -= factor * G[b, c]
        scale = 1.0 / R[a, a]
        for c in range(n):
            G[a, c] *= scale
    for a in range(k - 1, -1, -1):
        for b in range(a + 1, k):
            factor = R[b, a]
            for c in range(n):
                G[a, c] -= factor * G[b, c]
        scale = 1.0 / R[a, a]
        for c in range(n):
            G[a, c] *= scale


@compiled
def log_det_gradients(
    V: Array, indptr: Pointers, indices: Codes, first: int, last: int, G: Array, log_dets: Array
) -> None:
    """log det L_A and the entry rows L_A⁻¹ V_A (half the gradient) of sets first..last−1.

    A singular set, as any that is larger than the rank, gets log det = −inf and zero rows.
    """
    K = V.shape[1]
    largest = 0
    for s in range(first, last):
        largest = max(largest, indptr[s + 1] - indptr[s])
    R = np.empty((largest, largest))
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        X = G[start : start + k]
        for a in range(k):
            for c in range(K):
                X[a, c] = V[indices[start + a], c]
        log_dets[s] = gram_cholesky(X, k, R) if k <= K else -np.inf
        if log_dets[s] == -np.inf:
            X[:] = 0.0
        else:
            solve_rows(R, k, X)


@compiled
def set_log_dets(V: Array, indptr: Pointers, indices: Codes, first: int, last: int, out: Array) -> None:
    """log det L_A of sets first..last−1, −inf where singular."""
    K = V.shape[1]
    largest = 0
    for s in range(first, last):
        largest = max(largest, indptr[s + 1] - indptr[s])
    R = np.empty((largest, largest))
    X = np.empty((largest, K))
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        if k > K:
            out[s] = -np.inf
            continue
        for a in range(k):
            for c in range(K):
                X[a, c] = V[indices[start + a], c]
        out[s] = gram_cholesky(X, k, R)


@compiled
def inverse_from_cholesky(R: Array, k: int, W: Array) -> None:
    """W[:k, :k] = (R Rᵀ)⁻¹."""
    for a in range(k):
        for b in range(k):
            W[a, b] = 1.0 if a == b else 0.0
    solve_rows(R, k, W[:k, :k])


@compiled
def conditional_terms(
    X: Array, XC: Array, k: int, trace: float, R: Array, W: Array, T: Array, WT: Array, S: Array
) -> bool:
    """W = L_A⁻¹, T = X C Xᵀ, WT = W T and the conditional normalisers S_i of one set; False if it is singular.

    S_i = tr C − tr(W T) + (W T W)_ii / W_ii = Σ_j det L_{A∖i∪j} / det L_{A∖i}.
    """
    K = X.shape[1]
    if k > K or gram_cholesky(X, k, R) == -np.inf:
        return False
    inverse_from_cholesky(R, k, W)
    for a in range(k):
        for b in range(a + 1):
            dot = 0.0
            for c in range(K):
                dot += X[a, c] * XC[b, c]
            T[a, b] = dot
            T[b, a] = dot
    total = trace
    for a in range(k):
        for b in range(k):
            WT[a, b] = 0.0
        for c in range(k):
            factor = W[a, c]
            for b in range(k):
                WT[a, b] += factor * T[c, b]
        total -= WT[a, a]
    for a in range(k):
        h = 0.0
        for c in range(k):
            h += WT[a, c] * W[c, a]
        S[a] = total + h / W[a, a]
        if not S[a] > 0:
            return False
    return True


@compiled
def conditional_log_likelihoods(
    V: Array, VC: Array, slots: Codes, trace: float, indptr: Pointers, indices: Codes, first: int, last: int, out: Array
) -> None:
    """log P(i | A∖i) for every entry of sets first..last−1 (NaN where the set is singular).

    VC holds the rows of V C of the items that occur; entry e finds its own at VC[slots[e]].
    """
    K = V.shape[1]
    largest = 1
    for s in range(first, last):
        largest = max(largest, indptr[s + 1] - indptr[s])
    X, XC = np.empty((largest, K)), np.empty((largest, K))
    R, W = np.empty((largest, largest)), np.empty((largest, largest))
    T, WT, S = np.empty((largest, largest)), np.empty((largest, largest)), np.empty(largest)
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        for a in range(k):
            for c in range(K):
                X[a, c] = V[indices[start + a], c]
                XC[a, c] = VC[slots[start + a], c]
        usable = conditional_terms(X, XC, k, trace, R, W, T, WT, S)
        for a in range(k):
            out[start + a] = -np.log(W[a, a]) - np.log(S[a]) if usable else np.nan


@compiled
def conditional_gradients(
    V: Array, VC: Array, slots: Codes, trace: float, indptr: Pointers, indices: Codes,
    first: int, last: int, g: Array, G: Array, F: Array, sigmas: Array, values: Array,
) -> None:  # fmt: skip
    """The gradient of Σ_i g_i log P(i | A∖i), for sets first..last−1, in three parts.

    Entry rows of the gradient in G; entry rows T̄ V_A in F, whose product with V makes the sum in C̄; and the
    σ of each set. The value of the set's sum is in `values`. Singular sets contribute nothing.
    """
    K = V.shape[1]
    largest = 1
    for s in range(first, last):
        largest = max(largest, indptr[s + 1] - indptr[s])
    X, XC = np.empty((largest, K)), np.empty((largest, K))
    R, W = np.empty((largest, largest)), np.empty((largest, largest))
    T, WT, S = np.empty((largest, largest)), np.empty((largest, largest)), np.empty(largest)
    W_bar, T_bar, left = np.empty((largest, largest)), np.empty((largest, largest)), np.empty((largest, largest))
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        sigmas[s] = 0.0
        values[s] = 0.0
        for a in range(k):
            for c in range(K):
                X[a, c] = V[indices[start + a], c]
                XC[a, c] = VC[slots[start + a], c]
        if not conditional_terms(X, XC, k, trace, R, W, T, WT, S):
            G[start : start + k] = 0.0
            F[start : start + k] = 0.0
            continue
        sigma = 0.0
        for a in range(k):
            weight = g[start + a]
            sigma += weight / S[a]
            values[s] += weight * (-np.log(W[a, a]) - np.log(S[a]))
        sigmas[s] = sigma
        for a in range(k):
            q_a = g[start + a] / S[a] / W[a, a]
            for b in range(k):
                q_b = g[start + b] / S[b] / W[b, b]
                # T W D(q) + D(q) W T, with (T W)_ab = (W T)_ba
                W_bar[a, b] = sigma * T[a, b] - WT[b, a] * q_b - q_a * WT[a, b]
                T_bar[a, b] = sigma * W[a, b]
            h = 0.0
            for c in range(k):
                h += WT[a, c] * W[c, a]
            W_bar[a, a] += -g[start + a] / W[a, a] + q_a * h / W[a, a]
        for c in range(k):
            q_c = g[start + c] / S[c] / W[c, c]
            for a in range(k):
                factor = W[a, c] * q_c
                for b in range(k):
                    T_bar[a, b] -= factor * W[c, b]
        # rows of A: −2 W W̄ W X + 2 T̄ X C; with left = W W̄ W
        for a in range(k):
            for b in range(k):
                R[a, b] = 0.0
                left[a, b] = 0.0
        for a in range(k):
            for c in range(k):
                factor = W[a, c]
                for b in range(k):
                    R[a, b] += factor * W_bar[c, b]
        for a in range(k):
            for c in range(k):
                factor = R[a, c]
                for b in range(k):
                    left[a, b] += factor * W[c, b]
        for a in range(k):
            for c in range(K):
                G[start + a, c] = 0.0
                F[start + a, c] = 0.0
            for b in range(k):
                x, t = -2.0 * left[a, b], T_bar[a, b]
                for c in range(K):
                    G[start + a, c] += x * X[b, c] + 2.0 * t * XC[b, c]
                    F[start + a, c] += t * X[b, c]


@compiled
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


@compiled
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
