"""Small dense algebra for compiled kernels, several rows at a time.

A basket has a handful of rows of K numbers. Row by row, every product reads and writes memory.
Several rows at a time, each number that is loaded serves several products. All matrices are the
first k rows of their arrays.

Sums that end in one number are plain loops; what is written to several rows goes by `tile`. A plain
loop that writes more than one row is not vectorized, because the compiler cannot tell rows that are
written from rows that are read. Neither is a loop with an index that might be negative, which Numba
would count from the end: inner loops begin at 0, even if what comes first is not needed. Tiles load
and store whole vectors: rows are padded to `padded(K)` numbers, and k × k matrices to multiples of
four rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from contradpp._types import Array, Codes, Ints
from contradpp.dpp.compiled._numba import helper, tile
from contradpp.dpp.factor import SINGULAR

Block = tuple[float, float, float, float, float, float, float, float, float, float]
PANEL = 4  # pivots that `invert` takes at a time; matrices have room for a multiple of it
# Rows of the workspace of `invert`, after four rows U of R.
SWEPT = 4  # −B⁻¹ U
BLOCK = 8  # −B⁻¹
REST = 12  # the smallest pivots
WORK = 13


@helper
def padded(K: int) -> int:
    """Return K rounded up to whole vector registers."""
    return -(-K // 8) * 8


@helper
def whole_panels(k: int) -> int:
    """Return k rounded up to whole panels: the rows and columns that a k × k matrix needs."""
    return -(-k // PANEL) * PANEL


@helper
def first_at_least(indices: Codes, start: int, stop: int, column: int) -> int:
    """Return the first place in start..stop, of sorted indices, that holds `column` or more."""
    while start < stop:
        middle = (start + stop) // 2
        if indices[middle] < column:
            start = middle + 1
        else:
            stop = middle
    return start


@helper
def place_of(ascending: Array, first: int, last: int, u: float) -> int:
    """Return the first place in first..last−1 whose value exceeds u, at most the last.

    The comparison `<= u` compiles to a jump, which a processor predicts, and so reads ahead. `> u`
    would be a conditional move, which waits for every number.
    """
    start = first
    stop = last - 1
    while start < stop:
        middle = (start + stop) // 2
        if ascending[middle] <= u:
            start = middle + 1
        else:
            stop = middle
    return start


@helper
def largest_set(indptr: Ints, first: int, last: int) -> int:
    """Return the size of the largest of the sets first..last−1, at least 1."""
    largest = 1
    for s in range(first, last):
        largest = max(largest, indptr[s + 1] - indptr[s])
    return largest


@helper
def project_off(row: Array, basis: Array, t: int, v: Array) -> None:
    """Subtract Σ_b (v · B_b) B_b over the first t rows of the basis; v may be the row itself."""
    for b in range(t):
        dot = 0.0
        for c in range(len(row)):
            dot += basis[b, c] * v[c]
        for c in range(len(row)):
            row[c] -= dot * basis[b, c]


@helper
def products(X: Array, Y: Array, k: int, out: Array) -> None:
    """Write out[a, b] = x_a · y_b for b ≤ a < k, and some entries above the diagonal."""
    K = X.shape[1]
    whole = k - k % 4
    for a in range(0, whole, 4):
        for b in range(0, a + 4, 2):
            s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = 0.0
            for c in range(K):
                y0 = Y[b, c]
                y1 = Y[b + 1, c]
                x0 = X[a, c]
                x1 = X[a + 1, c]
                x2 = X[a + 2, c]
                x3 = X[a + 3, c]
                s00 += x0 * y0
                s01 += x0 * y1
                s10 += x1 * y0
                s11 += x1 * y1
                s20 += x2 * y0
                s21 += x2 * y1
                s30 += x3 * y0
                s31 += x3 * y1
            out[a, b] = s00
            out[a, b + 1] = s01
            out[a + 1, b] = s10
            out[a + 1, b + 1] = s11
            out[a + 2, b] = s20
            out[a + 2, b + 1] = s21
            out[a + 3, b] = s30
            out[a + 3, b + 1] = s31
    for a in range(whole, k):
        for b in range(0, whole, 4):
            s0 = s1 = s2 = s3 = 0.0
            for c in range(K):
                x = X[a, c]
                s0 += x * Y[b, c]
                s1 += x * Y[b + 1, c]
                s2 += x * Y[b + 2, c]
                s3 += x * Y[b + 3, c]
            out[a, b] = s0
            out[a, b + 1] = s1
            out[a, b + 2] = s2
            out[a, b + 3] = s3
        for b in range(whole, a + 1):
            s = 0.0
            for c in range(K):
                s += X[a, c] * Y[b, c]
            out[a, b] = s


def rows_of_product(rows: int) -> Callable[..., None]:
    """Make a helper for some rows of a product; see `multiply`."""
    whole = tile(rows, 2)
    edge = tile(rows, 1, "edge")

    @helper
    def multiply_rows(
        C: Array, a: int, k: int, Y: Array, y: int, n: int, out: Array, row: int
    ) -> None:
        for c in range(0, n - 7, 8):
            whole(C, a, k, Y, y, c, n, out, row)
        for c in range(n - n % 8, n, 4):
            edge(C, a, k, Y, y, c, n, out, row)

    return multiply_rows


one_row, two_rows, three_rows, four_rows = map(rows_of_product, (1, 2, 3, 4))
add_narrow, add_wide = (tile(4, vectors, "add") for vectors in (1, 2))


@helper
def invert_block(R: Array, p: int, least: Array) -> tuple[float, Block]:
    """Return det and inverse (b00, b10, b11, b20, ...) of the 4×4 block of R at p, by L D Lᵀ.

    A pivot d_j counts as zero if it is at most least[REST, p + j]; det is 0 then.
    """
    r10 = R[p + 1, p]
    r20 = R[p + 2, p]
    r30 = R[p + 3, p]
    r21 = R[p + 2, p + 1]
    r31 = R[p + 3, p + 1]
    r32 = R[p + 3, p + 2]
    d0 = R[p, p]
    i0 = 1.0 / d0
    l10 = r10 * i0
    l20 = r20 * i0
    l30 = r30 * i0
    d1 = R[p + 1, p + 1] - l10 * r10
    i1 = 1.0 / d1
    r21 = r21 - l20 * r10
    r31 = r31 - l30 * r10
    l21 = r21 * i1
    l31 = r31 * i1
    d2 = R[p + 2, p + 2] - l20 * r20 - l21 * r21
    i2 = 1.0 / d2
    l32 = (r32 - l30 * r20 - l31 * r21) * i2
    d3 = R[p + 3, p + 3] - l30 * r30 - l31 * r31 - l32 * l32 * d2
    i3 = 1.0 / d3
    good = (
        d0 > least[REST, p]
        and d1 > least[REST, p + 1]
        and d2 > least[REST, p + 2]
        and d3 > least[REST, p + 3]
    )
    # N = L⁻¹, and the inverse is Nᵀ D⁻¹ N.
    n20 = l21 * l10 - l20
    n31 = l32 * l21 - l31
    n30 = l31 * l10 - l30 - l32 * n20
    m30 = n30 * i3
    m31 = n31 * i3
    m32 = -l32 * i3
    m20 = n20 * i2
    m21 = -l21 * i2
    m10 = -l10 * i1
    b11 = i1 - l21 * m21 + n31 * m31
    b10 = m10 - l21 * m20 + n31 * m30
    b22 = i2 - l32 * m32
    b21 = m21 - l32 * m31
    b20 = m20 - l32 * m30
    b00 = i0 - l10 * m10 + n20 * m20 + n30 * m30
    det = (d0 * d1) * (d2 * d3) if good else 0.0
    return det, (b00, b10, b11, b20, b21, b22, m30, m31, m32, i3)


@helper
def set_row(row: Array, x0: float, x1: float, x2: float, x3: float) -> None:
    """Write the first four numbers of a row."""
    row[0] = x0
    row[1] = x1
    row[2] = x2
    row[3] = x3


@helper
def invert(R: Array, k: int, tolerance: float, work: Array, complete: bool) -> float:
    """Replace R by R⁻¹ (both triangles) and return log det R.

    R is positive definite, given by its lower triangle. The result is −inf if R is singular: if a
    pivot, or the reciprocal of a diagonal entry of R⁻¹, is at most `tolerance` times the diagonal
    entry of R.

    Pivot blocks B of four are swept. With U the rows of R at them, R becomes R − Uᵀ B⁻¹ U
    elsewhere, B⁻¹ U in their place, and −B⁻¹ in the block. R has room for a multiple of four rows,
    `work` for WORK rows as long. Without `complete`, only the rows that the determinant needs are
    swept, and only pivots checked.
    """
    room = whole_panels(k)
    for a in range(k, room):
        for b in range(a):
            R[a, b] = 0.0
        R[a, a] = 1.0
    for a in range(room):
        work[REST, a] = tolerance * R[a, a]
    log_det = 0.0
    product = 1.0
    for p in range(0, room, PANEL):
        det, block = invert_block(R, p, work)
        if det == 0.0:
            return -np.inf
        log_det, product = times_det(log_det, product, det)
        b00, b10, b11, b20, b21, b22, b30, b31, b32, b33 = block
        set_row(work[BLOCK], -b00, -b10, -b20, -b30)
        set_row(work[BLOCK + 1], -b10, -b11, -b21, -b31)
        set_row(work[BLOCK + 2], -b20, -b21, -b22, -b32)
        set_row(work[BLOCK + 3], -b30, -b31, -b32, -b33)
        for b in range(p):
            work[0, b] = R[p, b]
            work[1, b] = R[p + 1, b]
            work[2, b] = R[p + 2, b]
            work[3, b] = R[p + 3, b]
        for i in range(PANEL):
            for b in range(p, p + PANEL):
                work[i, b] = 0.0
        for b in range(p + 4, room):
            work[0, b] = R[b, p]
            work[1, b] = R[b, p + 1]
            work[2, b] = R[b, p + 2]
            work[3, b] = R[b, p + 3]
        four_rows(work, BLOCK, PANEL, work, 0, room, work, SWEPT)  # −B⁻¹ U
        for a in range(0 if complete else p + 4, room, 4):
            for c in range(0, a, 8):
                add_wide(work, a, PANEL, work, 0, c, SWEPT, R, a)
            if a % 8 == 0:
                add_narrow(work, a, PANEL, work, 0, a, SWEPT, R, a)
        for i in range(PANEL):
            for b in range(p):
                R[p + i, b] = -work[SWEPT + i, b]
            for b in range(i + 1):
                R[p + i, p + b] = work[BLOCK + i, b]
            for a in range(p + 4, room):
                R[a, p + i] = -work[SWEPT + i, a]
    if not complete:
        return float(log_det + np.log(product))
    regular = True
    for a in range(k):
        for b in range(a + 1):
            value = -R[a, b]
            R[a, b] = value
            R[b, a] = value
        regular = regular and R[a, a] * work[REST, a] < 1.0
    return float(log_det + np.log(product)) if regular else -np.inf


@helper
def scale_to_one(A: Array, k: int, scales: Array) -> None:
    """Divide rows and columns of A by `scales`, so that the largest entry of each is about 1.

    After √A_aa, a few divisions by the square root of a row's largest entry (Ruiz 2001): a diagonal
    that is zero, or rounding, is no scale, and neither are entries between items of very different
    popularity. For a symmetric A, √A_aa remains, because no entry exceeds those of the diagonal
    then.
    """
    factors = np.empty(k)
    for a in range(k):
        factors[a] = 1.0 / np.sqrt(A[a, a]) if A[a, a] > 1e-200 else 1.0
        scales[a] = 1.0
    for turn in range(4):
        for a in range(k):
            for b in range(k):
                A[a, b] *= factors[a] * factors[b]
            scales[a] /= factors[a]
        even = True
        for a in range(k):
            largest = 0.0
            for b in range(k):
                largest = max(largest, abs(A[a, b]))
            even = even and abs(largest - 1.0) < 1e-9
            factors[a] = 1.0 / np.sqrt(largest) if largest > 0.0 else 1.0
        if even or turn == 3:
            break


@helper
def invert_by_pivots(A: Array, k: int, work: Array) -> tuple[float, float]:
    """Replace A by A⁻¹ by Gauss and Jordan; return log det A and the largest entry of A⁻¹.

    Where A is singular by the rule of `dpp.factor`, or its determinant negative, these are −inf and
    ∞, and the content of A is meaningless. Rows are exchanged. A has room for k rounded up to four
    rows and columns, the first row of `work` as much. Pivots are taken one at a time: the inverse
    of a block of four may be all rounding where A is nearly singular.
    """
    room = whole_panels(k)
    for a in range(k, room):
        for b in range(room):
            A[a, b] = 0.0
            A[b, a] = 0.0
    swaps = np.empty(k, dtype=np.int64)
    log_det = 0.0
    product = 1.0
    for c in range(k):
        best = c
        for a in range(c + 1, k):
            if abs(A[a, c]) > abs(A[best, c]):
                best = a
        swaps[c] = best
        pivot = A[best, c]
        if not abs(pivot) > 1e-300:  # the reciprocal of less may overflow
            return -np.inf, np.inf
        log_det, product = times_det(log_det, product, pivot if best == c else -pivot)
        if best != c:
            for b in range(k):
                A[c, b], A[best, b] = A[best, b], A[c, b]
        sweep(A, room, c, work)
    largest = 0.0
    for a in range(k):
        for b in range(k):
            largest = max(largest, abs(A[a, b]))
    if not (product > 0.0 and largest < 1.0 / SINGULAR):
        return -np.inf, np.inf
    for c in range(k - 1, -1, -1):
        if swaps[c] != c:
            for a in range(k):
                A[a, c], A[a, swaps[c]] = A[a, swaps[c]], A[a, c]
    return float(log_det + np.log(product)), largest


@helper
def sweep(A: Array, room: int, c: int, work: Array) -> None:
    """Take the pivot A[c, c] by Gauss and Jordan; after all pivots A holds A⁻¹."""
    inverse = 1.0 / A[c, c]
    A[c, c] = 1.0
    for b in range(room):
        A[c, b] *= inverse
    for a in range(room):
        work[0, a] = -A[a, c]
        A[a, c] = 0.0
    A[c, c] = inverse
    work[0, c] = 0.0
    for a in range(0, room, 4):
        for b in range(0, room - 7, 8):
            add_wide(work, a, 1, A, c, b, 0, A, a)
        if room % 8:
            add_narrow(work, a, 1, A, c, room - 4, 0, A, a)


@helper
def invert_scaled(A: Array, k: int, ridge: float, work: Array) -> tuple[float, float]:
    """Replace A by A⁻¹ by way of the scaled A plus `ridge` I; see `invert_by_pivots`."""
    scales = np.empty(k)
    scale_to_one(A, k, scales)
    for a in range(k):
        A[a, a] += ridge
    log_det, largest = invert_by_pivots(A, k, work)
    for a in range(k):
        log_det += 2.0 * np.log(scales[a])
        for b in range(k):
            A[a, b] /= scales[a] * scales[b]
    return log_det, max(largest, 1.0)


@helper
def times_det(log_det: float, product: float, det: float) -> tuple[float, float]:
    """Multiply a determinant exp(log_det) × product by another.

    Few logarithms are taken: one costs more than a small basket.
    """
    product *= det
    if 1e-200 < abs(product) < 1e200:
        return log_det, product
    return log_det + np.log(abs(product)), np.copysign(1.0, product)


@helper
def multiply(C: Array, k: int, Y: Array, n: int, out: Array, start: int) -> None:
    """Write out[start + a] = Σ_b C[a, b] Y[b] for a, b < k, over the first n columns.

    Y has columns for whole vectors.
    """
    whole = k - k % 4
    for a in range(0, whole, 4):
        four_rows(C, a, k, Y, 0, n, out, start + a)
    if k == whole + 1:
        one_row(C, whole, k, Y, 0, n, out, start + whole)
    elif k == whole + 2:
        two_rows(C, whole, k, Y, 0, n, out, start + whole)
    elif k == whole + 3:
        three_rows(C, whole, k, Y, 0, n, out, start + whole)
