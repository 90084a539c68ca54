"""Numba kernels for learning: gradients of log-determinants and of the conditional likelihood, set by set.

Sets come as a CSR; results are aligned with its entries, so that threads work on blocks of sets and write to
places of their own. `gather_rows` then adds up the entries of the same item in a fixed order: the same bytes
for any number of threads. Definitions in `reference_gradients.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.algebra.blocks import cholesky, multiply, products, solve
from contradpp.algebra.compiled import compiled

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]


SINGULAR = 1e-14  # a pivot this small, relative to its diagonal entry, is rounding


@compiled
def load_rows(V: Array, rows: Codes, start: int, k: int, X: Array) -> None:
    """X[a] = V[rows[start + a]] for a < k."""
    for a in range(k):
        i = rows[start + a]
        for c in range(V.shape[1]):
            X[a, c] = V[i, c]


@compiled
def largest_set(indptr: Pointers, first: int, last: int) -> int:
    """The most items that one of the sets first..last−1 has, at least 1."""
    largest = 1
    for s in range(first, last):
        largest = max(largest, indptr[s + 1] - indptr[s])
    return largest


@compiled
def factorise(X: Array, k: int, R: Array) -> float:
    """R = the Cholesky factor of X Xᵀ for the first k rows of X, as `blocks.solve` takes it; returns log det."""
    if k > X.shape[1]:
        return -np.inf
    products(X, X, k, R)
    return cholesky(R, k, SINGULAR)


@compiled
def log_det_gradients(
    V: Array, indptr: Pointers, indices: Codes, first: int, last: int, G: Array, log_dets: Array
) -> None:
    """log det L_A and the entry rows L_A⁻¹ V_A (half the gradient) of sets first..last−1.

    A singular set, as any that is larger than the rank, gets log det = −inf and zero rows.
    """
    largest = largest_set(indptr, first, last)
    R = np.empty((largest, largest))
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        X = G[start : start + k]
        load_rows(V, indices, start, k, X)
        log_dets[s] = factorise(X, k, R)
        if log_dets[s] == -np.inf:
            X[:] = 0.0
        else:
            solve(R, k, X)


@compiled
def set_log_dets(V: Array, indptr: Pointers, indices: Codes, first: int, last: int, out: Array) -> None:
    """log det L_A of sets first..last−1, −inf where singular."""
    largest = largest_set(indptr, first, last)
    R = np.empty((largest, largest))
    X = np.empty((largest, V.shape[1]))
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        out[s] = factorise(X, k, R)


@compiled
def inverse_from_cholesky(R: Array, k: int, W: Array) -> None:
    """W[:k, :k] = (R Rᵀ)⁻¹."""
    for a in range(k):
        for b in range(k):
            W[a, b] = 1.0 if a == b else 0.0
    solve(R, k, W[:k, :k])


@compiled
def conditional_terms(
    X: Array, XC: Array, k: int, trace: float, R: Array, W: Array, T: Array, WT: Array, S: Array
) -> bool:
    """W = L_A⁻¹, T = X C Xᵀ, WT = W T and the conditional normalisers S_i of one set; False if it is singular.

    S_i = tr C − tr(W T) + (W T W)_ii / W_ii = Σ_j det L_{A∖i∪j} / det L_{A∖i}.
    """
    if factorise(X, k, R) == -np.inf:
        return False
    inverse_from_cholesky(R, k, W)
    products(X, XC, k, T)
    for a in range(k):
        for b in range(a):
            T[b, a] = T[a, b]
    multiply(W, k, T[:k, :k], WT[:k, :k], True)
    total = trace
    for a in range(k):
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
    largest = largest_set(indptr, first, last)
    X, XC = np.empty((largest, K)), np.empty((largest, K))
    R, W = np.empty((largest, largest)), np.empty((largest, largest))
    T, WT, S = np.empty((largest, largest)), np.empty((largest, largest)), np.empty(largest)
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        load_rows(VC, slots, start, k, XC)
        usable = conditional_terms(X, XC, k, trace, R, W, T, WT, S)
        for a in range(k):
            out[start + a] = -np.log(W[a, a]) - np.log(S[a]) if usable else np.nan


@compiled
def conditional_gradients(
    V: Array, VC: Array, slots: Codes, trace: float, indptr: Pointers, indices: Codes,
    first: int, last: int, g: Array, G: Array, F: Array, sigmas: Array, values: Array,
) -> None:  # fmt: skip
    """The gradient of Σ_i g_i log P(i | A∖i), for sets first..last−1, in three parts.

    Entry rows −2 W W̄ W V_A in G; entry rows T̄ V_A in F, from which come the rest of the rows, 2 (T̄ V_A) C, and
    the sum in C̄; and the σ of each set. The value of the set's sum is in `values`. Singular sets contribute nothing.
    """
    K = V.shape[1]
    largest = largest_set(indptr, first, last)
    X, XC = np.empty((largest, K)), np.empty((largest, K))
    R, W = np.empty((largest, largest)), np.empty((largest, largest))
    T, WT, S = np.empty((largest, largest)), np.empty((largest, largest)), np.empty(largest)
    W_bar, T_bar, left = np.empty((largest, largest)), np.empty((largest, largest)), np.empty((largest, largest))
    q = np.empty(largest)
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        sigmas[s] = 0.0
        values[s] = 0.0
        load_rows(V, indices, start, k, X)
        load_rows(VC, slots, start, k, XC)
        if not conditional_terms(X, XC, k, trace, R, W, T, WT, S):
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
        for a in range(k):
            for b in range(k):
                # T W D(q) + D(q) W T, with (T W)_ab = (W T)_ba
                W_bar[a, b] = sigma * T[a, b] - WT[b, a] * q[b] - q[a] * WT[a, b]
                T_bar[a, b] = sigma * W[a, b]
            h = 0.0
            for c in range(k):
                h += WT[a, c] * W[c, a]
            W_bar[a, a] += (q[a] * h - g[start + a]) / W[a, a]
        # T̄ −= W D(q) W; then left = −2 W W̄ W, and the rows of A are left X + 2 (T̄ X) C.
        for a in range(k):
            for b in range(k):
                R[a, b] = -W[a, b] * q[b]
        multiply(R, k, W[:k, :k], T_bar[:k, :k], False)
        multiply(W, k, W_bar[:k, :k], R[:k, :k], True)
        multiply(R, k, W[:k, :k], left[:k, :k], True)
        multiply(T_bar, k, X, F[start : start + k], True)
        for a in range(k):
            for b in range(k):
                left[a, b] *= -2.0
        multiply(left, k, X, G[start : start + k], True)


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
