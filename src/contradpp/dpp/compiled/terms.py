"""Numba helpers for one set A of L = D + V Vᵀ + S: L_A, its inverse and log-determinant, and (L²)_A.

With W = L_A⁻¹ and T = (L²)_A everything that is learned rests on

    T = V_A C V_Aᵀ + Y_A V_Aᵀ − V_A Y_Aᵀ − S_A S_Aᵀ + D L_A + L_A D − D²,   C = Vᵀ V, Y = S V,

S_A the (sparse) rows of the set. Without S everything is symmetric, and without D the last three terms are zero: both
are recognised by empty arrays. Where a product is taken several times it stands in a loop over its operands, because
every call of a helper is compiled anew, and these are the largest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.blocks import PANEL, WORK, invert, invert_scaled, multiply, padded, products
from contradpp.dpp.compiled.decorators import helper
from contradpp.dpp.factor import SINGULAR

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]


class Parameters(NamedTuple):
    """What is learned, as kernels take it. The partners of item i are at starts[i]..starts[i + 1]."""

    V: Array  # (M, K)
    d: Array  # (M,), or empty where there is no diagonal
    starts: Pointers  # (M + 1,)
    partners: Codes  # empty where there is no S
    skew: Array  # the entries of S, s_ij and s_ji = −s_ij both


class Terms(NamedTuple):
    """What the conditional likelihood needs beside the parameters, of the items that occur (found by slot)."""

    VC: Array  # rows of V C
    VS: Array  # rows of S V, empty where there is no S
    trace: float  # tr L


class Room(NamedTuple):
    """Memory for one set after the other: rows of V, V C and S V, and k × k matrices."""

    X: Array
    XC: Array
    Y: Array
    L: Array  # L_A, kept where there is a diagonal
    W: Array
    T: Array
    WT: Array
    P: Array
    Z: Array
    R: Array
    H: Array
    more: Array
    work: Array
    S: Array
    q: Array
    x: Array
    place: Codes  # (M,): where an item is in the set, −1 for the others
    dense: Array  # (M,): zeros


@helper
def room_for(largest: int, p: Parameters, conditional: bool) -> Room:
    """Memory for sets of up to `largest` items; k × k matrices have rows for whole panels of `blocks.invert`."""
    M, K = p.V.shape
    k, wide = -(-largest // PANEL) * PANEL, padded(K)
    c = k if conditional else 0
    paired = len(p.partners) > 0
    s = c if paired else 0
    items = M if paired else 0
    kept = k if len(p.d) else 0
    return Room(
        np.zeros((largest, wide)), np.zeros((min(c, largest), wide)), np.zeros((min(s, largest), wide)),
        np.empty((kept, kept)), np.empty((k, k)), np.empty((c, c)), np.empty((c, c)), np.empty((c, c)),
        np.empty((c, c)), np.empty((c, c)), np.empty((s, s)), np.empty((s, wide)),
        np.empty((WORK, k)), np.empty(k), np.empty(k), np.empty(k), np.full(items, -1, dtype=np.int32), np.zeros(items),
    )  # fmt: skip


@helper
def load_rows(V: Array, rows: Codes, start: int, k: int, X: Array) -> None:
    """X[a] = V[rows[start + a]] for a < k."""
    for a in range(k):
        i = rows[start + a]
        for c in range(V.shape[1]):
            X[a, c] = V[i, c]


# -- L_A and its inverse -------------------------------------------------------------------------------


@helper
def add_rest(p: Parameters, indices: Codes, start: int, k: int, room: Room) -> None:
    """W, the lower triangle of V_A V_Aᵀ, becomes L_A; where there is a diagonal, `room.L` has all of it, too."""
    W, L, place = room.W, room.L, room.place
    if len(p.d):
        for a in range(k):
            W[a, a] += p.d[indices[start + a]]
    if len(p.partners):
        for a in range(k):
            for b in range(a):
                W[b, a] = W[a, b]
            place[indices[start + a]] = a
        for a in range(k):
            i = indices[start + a]
            for e in range(p.starts[i], p.starts[i + 1]):
                b = place[p.partners[e]]
                if b >= 0:
                    W[a, b] += p.skew[e]
        for a in range(k):
            place[indices[start + a]] = -1
    if len(p.d):
        for a in range(k):
            for b in range(a):
                L[a, b] = W[a, b]
                L[b, a] = W[b, a] if len(p.partners) else W[a, b]
            L[a, a] = W[a, a]


@helper
def invert_set(p: Parameters, k: int, room: Room, whole: bool) -> float:
    """L_A in W becomes its inverse; returns log det L_A, −inf if it is singular (see `dpp.factor`).

    So is a set of more items than the rank where there is neither D nor S. A symmetric L_A is given by its lower
    triangle. If not `whole`, only the determinant counts.
    """
    if len(p.partners) > 0:
        return invert_scaled(room.W, k, 0.0)[0]
    if len(p.d) == 0 and k > p.V.shape[1]:
        return -np.inf
    return invert(room.W, k, SINGULAR, room.work, whole)


# -- (L²)_A and the conditional likelihood -------------------------------------------------------------


@helper
def partner_products(p: Parameters, indices: Codes, start: int, k: int, dense: Array, out: Array) -> None:
    """out[a, b] = Σ_j s_aj s_bj for b ≤ a; `dense` (M,) holds zeros before and after."""
    for a in range(k):
        i = indices[start + a]
        for e in range(p.starts[i], p.starts[i + 1]):
            dense[p.partners[e]] = p.skew[e]
        for b in range(a + 1):
            j = indices[start + b]
            total = 0.0
            for e in range(p.starts[j], p.starts[j + 1]):
                total += dense[p.partners[e]] * p.skew[e]
            out[a, b] = total
        for e in range(p.starts[i], p.starts[i + 1]):
            dense[p.partners[e]] = 0.0


@helper
def add_rest_of_square(p: Parameters, indices: Codes, start: int, k: int, room: Room) -> None:
    """T becomes (L²)_A, all of it where there is an S, from the lower triangles of V_A C V_Aᵀ in T,

    Y_A V_Aᵀ in WT and V_A Y_Aᵀ in P, which are overwritten.
    """
    T, WT, P, L = room.T, room.WT, room.P, room.L
    if len(p.partners):
        for a in range(k):
            for b in range(a):
                WT[a, b] -= P[a, b]  # the skew part of T, below the diagonal
        partner_products(p, indices, start, k, room.dense, P)
        for a in range(k):
            T[a, a] -= P[a, a]
            for b in range(a):
                even, odd = T[a, b] - P[a, b], WT[a, b]
                T[a, b], T[b, a] = even + odd, even - odd
    if len(p.d):
        for a in range(k):
            da = p.d[indices[start + a]]
            for b in range(k if len(p.partners) else a + 1):
                T[a, b] += (da + p.d[indices[start + b]]) * L[a, b]
            T[a, a] -= da * da


@helper
def conditional_terms(
    p: Parameters, terms: Terms, slots: Codes, indices: Codes, start: int, k: int, room: Room
) -> bool:
    """W = L_A⁻¹, WT, P = W T W and the conditional normalisers S_i of one set; False where one is not positive.

    S_i = tr L − tr(W T) + P_ii / W_ii = Σ_j det L_{A∖i∪j} / det L_{A∖i}.
    """
    X, XC, Y, W, T, WT, P, S = room.X, room.XC, room.Y, room.W, room.T, room.WT, room.P, room.S
    symmetric = len(p.partners) == 0
    load_rows(p.V, indices, start, k, X)
    load_rows(terms.VC, slots, start, k, XC)
    if not symmetric:
        load_rows(terms.VS, slots, start, k, Y)
    for n in range(2 if symmetric else 4):
        products((X, X, Y, X)[n], (X, XC, X, Y)[n], k, (W, T, WT, P)[n])
    add_rest(p, indices, start, k, room)
    add_rest_of_square(p, indices, start, k, room)
    if invert_set(p, k, room, True) == -np.inf:
        return False
    if symmetric:
        for a in range(k):
            for b in range(a):
                T[b, a] = T[a, b]
    for n in range(2):
        multiply((W, WT)[n], k, (T, W)[n], k, (WT, P)[n], 0)
    total = terms.trace
    for a in range(k):
        total -= WT[a, a]
    for a in range(k):
        S[a] = total + P[a, a] / W[a, a]
        if not (W[a, a] > 0.0 and S[a] > 0.0):
            return False
    return True
