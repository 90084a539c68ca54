"""Numba helpers for one set A of L = D + V Vᵀ + S: L_A, its inverse and log-determinant, and (L²)_A.

With W = L_A⁻¹ and T = (L²)_A everything that is learned rests on

    T = V_A C V_Aᵀ + Y_A V_Aᵀ − V_A Y_Aᵀ − S_A S_Aᵀ + D L_A + L_A D − D²,   C = Vᵀ V, Y = S V,

S_A the (sparse) rows of the set. Without S everything is symmetric, and without D the last three terms are zero. That
there is no D is recognised by an empty array. Without S, `links` is None, so that Numba never looks at what is under
`links is not None`: that form is compiled in two thirds of the time of one for both. Where a product is taken several
times it stands in a loop over its operands, because every call of a helper is compiled anew, and these are the largest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.blocks import WORK, invert, invert_scaled, largest_set, multiply, padded, whole_panels
from contradpp.dpp.compiled.decorators import helper
from contradpp.dpp.factor import SINGULAR

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]
Links = Pointers | None  # where the partners of every entry begin; None where there is no S


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


# What is counted in `Room.counts`
BASE = 0  # entries of S that sets before this one had
REACHED = 1  # these and its own
INNER = 2  # entries of `inner`
MEETING = 3  # entries of `meeting`


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
    inner: Codes  # the entries of S_A in columns of the set: which it is, its row, and its column
    head: Pointers  # (M,), and for every entry of S_A, see `link_partners`:
    before: Pointers
    owner: Codes
    value: Array
    total: Array
    meeting: Codes
    counts: Pointers  # see BASE and those that follow


@helper
def room_for(p: Parameters, indptr: Pointers, indices: Codes, first: int, last: int, conditional: bool) -> Room:
    """Memory for any of the sets first..last−1; k × k matrices have rows and columns for whole tiles."""
    M, K = p.V.shape
    largest = largest_set(indptr, first, last)
    k, wide = whole_panels(largest), padded(K)
    c = k if conditional else 0
    paired = len(p.partners) > 0
    s = c if paired else 0
    items = M if paired else 0
    kept = k if len(p.d) else 0
    entries = 0
    for of in range(first, last if paired else first):
        entries = max(entries, count_partners(p, indices, indptr[of], indptr[of + 1]))
    linked = entries if conditional else 0
    place, head = np.empty(items, dtype=np.int32), np.empty(items if conditional else 0, dtype=np.int64)
    counts = np.empty(4, dtype=np.int64)  # filled here: every other way to make an array is compiled, too
    for i in range(items):
        place[i] = -1
    for i in range(len(head)):
        head[i] = -1
    for i in range(len(counts)):
        counts[i] = 0
    return Room(
        np.zeros((largest, wide)), np.zeros((min(c, largest), wide)), np.zeros((min(s, largest), wide)),
        np.empty((kept, kept)), np.empty((k, k)), np.empty((c, c)), np.empty((c, c)), np.empty((c, c)),
        np.empty((c, c)), np.empty((c, c)), np.empty((s, s)), np.empty((s, wide)),
        np.empty((WORK, k)), np.empty(k), np.empty(k), np.empty(k), place, np.empty((entries, 3), dtype=np.int32), head,
        np.empty(linked, dtype=np.int64), np.empty(linked, dtype=np.int32), np.empty(linked), np.empty(linked),
        np.empty(linked, dtype=np.int32), counts,
    )  # fmt: skip


@helper
def count_partners(p: Parameters, indices: Codes, start: int, stop: int) -> int:
    """How many partners the items at start..stop−1 have, one that several share counted as often."""
    count = 0
    for e in range(start, stop):
        count += p.starts[indices[e] + 1] - p.starts[indices[e]]
    return count


@helper
def load_rows(V: Array, rows: Codes, start: int, k: int, X: Array) -> None:
    """X[a] = V[rows[start + a]] for a < k."""
    for a in range(k):
        i = rows[start + a]
        for c in range(V.shape[1]):
            X[a, c] = V[i, c]


# -- L_A and its inverse -------------------------------------------------------------------------------


@helper
def add_rest(p: Parameters, links: Links, indices: Codes, start: int, k: int, room: Room) -> None:
    """W, the lower triangle of V_A V_Aᵀ, becomes L_A; where there is a diagonal, `room.L` has all of it, too."""
    W, L, place, inner = room.W, room.L, room.place, room.inner
    if len(p.d):
        for a in range(k):
            W[a, a] += p.d[indices[start + a]]
    if links is not None:
        for a in range(k):
            for b in range(a):
                W[b, a] = W[a, b]
            place[indices[start + a]] = a
        entry = found = 0
        for a in range(k):
            i = indices[start + a]
            for e in range(p.starts[i], p.starts[i + 1]):
                b = place[p.partners[e]]
                if b >= 0:
                    W[a, b] += p.skew[e]
                    inner[found, 0], inner[found, 1], inner[found, 2] = entry, a, b
                    found += 1
                entry += 1
        room.counts[INNER] = found
        for a in range(k):
            place[indices[start + a]] = -1
    if len(p.d):
        for a in range(k):
            for b in range(a):
                L[a, b] = W[a, b]
                L[b, a] = W[a, b] if links is None else W[b, a]
            L[a, a] = W[a, a]


@helper
def invert_set(W: Array, k: int, most: int, links: Links, work: Array, whole: bool) -> float:
    """L_A in W becomes its inverse; returns log det L_A, −inf if it is singular (see `dpp.factor`) or k > `most`.

    A symmetric L_A is given by its lower triangle. If not `whole`, only the determinant counts.
    """
    if k > most:
        return -np.inf
    return invert(W, k, SINGULAR, work, whole) if links is None else invert_scaled(W, k, 0.0, work)[0]


# -- (L²)_A and the conditional likelihood -------------------------------------------------------------


@helper
def link_partners(p: Parameters, indices: Codes, start: int, k: int, room: Room, out: Array) -> None:
    """out[a, b] = Σ_j s_aj s_bj for b ≤ a, and the entries of S_A as lists, one for every partner j.

    Entries are numbered on through all sets. head[j] is the last one with the partner j, and for entry BASE + e it is
    before[e] that comes before it in the list, owner[e] and value[e] are a and s_aj. A list ends below BASE, so that
    none has to be cleared. `meeting` are the entries before which there is one: few partners are shared.
    """
    head, before, owner, value, meeting = room.head, room.before, room.owner, room.value, room.meeting
    base, n, met = room.counts[REACHED], 0, 0
    for a in range(k):
        i, square = indices[start + a], 0.0
        for e in range(p.starts[i], p.starts[i + 1]):
            square += p.skew[e] * p.skew[e]
        for b in range(a):
            out[a, b] = 0.0
        out[a, a] = square
        for e in range(p.starts[i], p.starts[i + 1]):
            last = head[p.partners[e]]
            head[p.partners[e]] = base + n
            before[n], owner[n], value[n], meeting[met] = last, a, p.skew[e], n
            n += 1
            met += 1 if last >= base else 0
    for m in range(met):
        e = meeting[m]
        other = before[e] - base
        while other >= 0:
            out[owner[e], owner[other]] += value[e] * value[other]
            other = before[other] - base
    room.counts[BASE], room.counts[REACHED], room.counts[MEETING] = base, base + n, met


@helper
def add_rest_of_square(p: Parameters, links: Links, indices: Codes, start: int, k: int, room: Room) -> None:
    """T becomes (L²)_A, all of it where there is an S, from the lower triangles of V_A C V_Aᵀ in T,

    Y_A V_Aᵀ in WT and V_A Y_Aᵀ in P, which are overwritten.
    """
    T, WT, P, L = room.T, room.WT, room.P, room.L
    if links is not None:
        for a in range(k):
            for b in range(a):
                WT[a, b] -= P[a, b]  # the skew part of T, below the diagonal
        link_partners(p, indices, start, k, room, P)
        for a in range(k):
            T[a, a] -= P[a, a]
            for b in range(a):
                even, odd = T[a, b] - P[a, b], WT[a, b]
                T[a, b], T[b, a] = even + odd, even - odd
    if len(p.d):
        for a in range(k):
            da = p.d[indices[start + a]]
            for b in range(a + 1 if links is None else k):
                T[a, b] += (da + p.d[indices[start + b]]) * L[a, b]
            T[a, a] -= da * da


@helper
def conditional_terms(trace: float, k: int, links: Links, W: Array, T: Array, WT: Array, P: Array, S: Array) -> bool:
    """From W = L_A⁻¹ and T: WT, P = W T W and the conditional normalisers S_i of one set; False if one is not positive.

    S_i = tr L − tr(W T) + P_ii / W_ii = Σ_j det L_{A∖i∪j} / det L_{A∖i}.
    """
    if links is None:
        for a in range(k):
            for b in range(a):
                T[b, a] = T[a, b]
    for n in range(2):
        multiply(WT if n else W, k, W if n else T, k, P if n else WT, 0)
    total = trace
    for a in range(k):
        total -= WT[a, a]
    for a in range(k):
        S[a] = total + P[a, a] / W[a, a]
        if not (W[a, a] > 0.0 and S[a] > 0.0):
            return False
    return True
