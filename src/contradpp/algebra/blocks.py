"""The inner loops of small dense algebra, four rows at a time so that they run in vector registers.

A basket has a handful of rows of K numbers. Taken row by row, every product reads and writes memory; four rows
at a time, each number that is loaded serves four products. All matrices are the first k rows of their arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.algebra.compiled import compiled

Array = NDArray[np.float64]


@compiled
def products(X: Array, Y: Array, k: int, out: Array) -> None:
    """out[a, b] = x_a · y_b for b ≤ a < k (some entries above the diagonal are written, too)."""
    K = X.shape[1]
    whole = k - k % 4
    for a in range(0, whole, 4):
        for b in range(0, a + 4, 2):
            s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = 0.0
            for c in range(K):
                y0, y1 = Y[b, c], Y[b + 1, c]
                x0, x1, x2, x3 = X[a, c], X[a + 1, c], X[a + 2, c], X[a + 3, c]
                s00 += x0 * y0
                s01 += x0 * y1
                s10 += x1 * y0
                s11 += x1 * y1
                s20 += x2 * y0
                s21 += x2 * y1
                s30 += x3 * y0
                s31 += x3 * y1
            out[a, b], out[a, b + 1] = s00, s01
            out[a + 1, b], out[a + 1, b + 1] = s10, s11
            out[a + 2, b], out[a + 2, b + 1] = s20, s21
            out[a + 3, b], out[a + 3, b + 1] = s30, s31
    for a in range(whole, k):
        for b in range(0, whole, 4):
            s0 = s1 = s2 = s3 = 0.0
            for c in range(K):
                x = X[a, c]
                s0 += x * Y[b, c]
                s1 += x * Y[b + 1, c]
                s2 += x * Y[b + 2, c]
                s3 += x * Y[b + 3, c]
            out[a, b], out[a, b + 1], out[a, b + 2], out[a, b + 3] = s0, s1, s2, s3
        for b in range(whole, a + 1):
            s = 0.0
            for c in range(K):
                s += X[a, c] * Y[b, c]
            out[a, b] = s


@compiled
def cholesky(R: Array, k: int, tolerance: float) -> float:
    """The lower triangle of R becomes its Cholesky factor; returns log det, −inf if it is singular.

    A pivot counts as zero if it is at most `tolerance` times the diagonal entry that it came from.
    """
    log_det = 0.0
    product = 1.0
    for a in range(k):
        diagonal = R[a, a]
        left = diagonal
        whole = a - a % 4
        for b in range(0, whole, 4):
            s0 = s1 = s2 = s3 = 0.0
            for c in range(b):
                x = R[a, c]
                s0 += x * R[b, c]
                s1 += x * R[b + 1, c]
                s2 += x * R[b + 2, c]
                s3 += x * R[b + 3, c]
            # The diagonal holds reciprocals.
            v0 = (R[a, b] - s0) * R[b, b]
            v1 = (R[a, b + 1] - s1 - v0 * R[b + 1, b]) * R[b + 1, b + 1]
            v2 = (R[a, b + 2] - s2 - v0 * R[b + 2, b] - v1 * R[b + 2, b + 1]) * R[b + 2, b + 2]
            v3 = R[a, b + 3] - s3 - v0 * R[b + 3, b] - v1 * R[b + 3, b + 1] - v2 * R[b + 3, b + 2]
            v3 *= R[b + 3, b + 3]
            R[a, b], R[a, b + 1], R[a, b + 2], R[a, b + 3] = v0, v1, v2, v3
            left -= v0 * v0 + v1 * v1 + v2 * v2 + v3 * v3
        for b in range(whole, a):
            value = R[a, b]
            for c in range(b):
                value -= R[a, c] * R[b, c]
            value *= R[b, b]
            R[a, b] = value
            left -= value * value
        if not left > tolerance * diagonal:
            return -np.inf
        R[a, a] = 1.0 / np.sqrt(left)
        product *= left
        if product < 1e-200 or product > 1e200:  # few logarithms: they cost more than the rest of a small basket
            log_det += np.log(product)
            product = 1.0
    return float(log_det + np.log(product))


@compiled
def combine(R: Array, transposed: bool, a: int, b: int, n: int, scale: float, G: Array) -> None:
    """g_a ← scale (g_a − Σ_{b ≤ j < b+n} r_{aj} g_j), up to eight rows at a time; R is read as Rᵀ if asked.

    One row is written, so that the compiler can tell it from the rows that are read: with more, it would give
    up vectorising. The last rows go alone, in twos, fours or eights; places beyond them get the coefficient 0.
    """
    K = G.shape[1]
    end = b + n
    last = end - 1
    if n == 0:
        for c in range(K):
            G[a, c] *= scale
    while b < end:
        left = end - b
        if left <= 2:
            r0 = R[b, a] if transposed else R[a, b]
            r1 = R[last, a] if transposed else R[a, last]
            if left == 1:
                for c in range(K):
                    G[a, c] = scale * (G[a, c] - r0 * G[b, c])
            else:
                for c in range(K):
                    G[a, c] = scale * (G[a, c] - r0 * G[b, c] - r1 * G[last, c])
            return
        j0, j1, j2, j3 = b, min(b + 1, last), min(b + 2, last), min(b + 3, last)
        if transposed:
            r0, r1, r2, r3 = R[j0, a], R[j1, a], R[j2, a], R[j3, a]
        else:
            r0, r1, r2, r3 = R[a, j0], R[a, j1], R[a, j2], R[a, j3]
        r3 = r3 if left > 3 else 0.0
        if left <= 4:
            for c in range(K):
                G[a, c] = scale * (G[a, c] - r0 * G[j0, c] - r1 * G[j1, c] - r2 * G[j2, c] - r3 * G[j3, c])
            return
        j4, j5, j6, j7 = b + 4, min(b + 5, last), min(b + 6, last), min(b + 7, last)
        if transposed:
            r4, r5, r6, r7 = R[j4, a], R[j5, a], R[j6, a], R[j7, a]
        else:
            r4, r5, r6, r7 = R[a, j4], R[a, j5], R[a, j6], R[a, j7]
        r5 = r5 if left > 5 else 0.0
        r6 = r6 if left > 6 else 0.0
        r7 = r7 if left > 7 else 0.0
        factor = scale if left <= 8 else 1.0
        for c in range(K):
            low = r0 * G[j0, c] + r1 * G[j1, c] + r2 * G[j2, c] + r3 * G[j3, c]
            high = r4 * G[j4, c] + r5 * G[j5, c] + r6 * G[j6, c] + r7 * G[j7, c]
            G[a, c] = factor * (G[a, c] - low - high)
        b += 8


@compiled
def solve(R: Array, k: int, G: Array) -> None:
    """G ← (R Rᵀ)⁻¹ G for the first k rows of G, R as `cholesky` leaves it (reciprocals on the diagonal)."""
    for a in range(k):
        combine(R, False, a, 0, a, R[a, a], G)
    for a in range(k - 1, -1, -1):
        combine(R, True, a, a + 1, k - a - 1, R[a, a], G)


@compiled
def multiply(C: Array, k: int, Y: Array, out: Array, fresh: bool) -> None:
    """out[a] = Σ_b C[a, b] Y[b] (or += if not `fresh`) for the first k rows, up to eight rows of Y at a time."""
    n = Y.shape[1]
    last = k - 1
    for a in range(k):
        if fresh:
            for c in range(n):
                out[a, c] = 0.0
        for b in range(0, k, 8):
            left = k - b
            j0, j1, j2, j3 = b, min(b + 1, last), min(b + 2, last), min(b + 3, last)
            r0 = C[a, j0]
            r1 = C[a, j1] if left > 1 else 0.0
            r2 = C[a, j2] if left > 2 else 0.0
            r3 = C[a, j3] if left > 3 else 0.0
            if left <= 4:
                for c in range(n):
                    out[a, c] += r0 * Y[j0, c] + r1 * Y[j1, c] + r2 * Y[j2, c] + r3 * Y[j3, c]
                break
            j4, j5, j6, j7 = b + 4, min(b + 5, last), min(b + 6, last), min(b + 7, last)
            r4 = C[a, j4]
            r5 = C[a, j5] if left > 5 else 0.0
            r6 = C[a, j6] if left > 6 else 0.0
            r7 = C[a, j7] if left > 7 else 0.0
            for c in range(n):
                low = r0 * Y[j0, c] + r1 * Y[j1, c] + r2 * Y[j2, c] + r3 * Y[j3, c]
                high = r4 * Y[j4, c] + r5 * Y[j5, c] + r6 * Y[j6, c] + r7 * Y[j7, c]
                out[a, c] += low + high
