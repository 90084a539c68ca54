"""Numba kernels for learning L = D + V Vᵀ + S: log-determinants, the conditional likelihood, and their gradients.

Sets come as a CSR; results are aligned with its entries, so that threads work on blocks of sets and write to places
of their own. Other kernels then add these up in a fixed order: the same bytes for any number of threads. A kernel gives
the likelihood alone where there is no room for a gradient: two kernels would be compiled for twice the time.
Definitions in `tests/reference_gradients.py`, derivations in docs/theory.md.

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

from contradpp.dpp.compiled._numba import entry, helper
from contradpp.dpp.compiled.blocks import (
    WORK,
    invert,
    invert_scaled,
    largest_set,
    multiply,
    padded,
    products,
    whole_panels,
)
from contradpp.dpp.factor import SINGULAR

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]
Marks = NDArray[np.bool_]

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


@helper
def clear(rows: Array, start: int, k: int) -> None:
    """Zeros in the rows of a set, if there are rows at all."""
    if len(rows):
        for a in range(start, start + k):
            for c in range(rows.shape[1]):
                rows[a, c] = 0.0


@helper
def clear_shares(start: int, k: int, links: Links, diagonal: Array, pairs: Array) -> None:
    """Zeros in all places of a set, if there are any."""
    if len(diagonal):
        for a in range(start, start + k):
            diagonal[a] = 0.0
    if links is not None:
        for at in range(links[start], links[start + k]):
            pairs[at] = 0.0


# -- Log-determinants ----------------------------------------------------------------------------------


@entry
def log_det_gradients(
    p: Parameters, links: Links, indptr: Pointers, indices: Codes, first: int, last: int,
    log_dets: Array, G: Array, diagonal: Array, pairs: Array,
) -> None:  # fmt: skip
    """log det L_A and its gradient for sets first..last−1: entry rows ½ (W + Wᵀ) V_A, W_ii, and s_ij W_ji.

    The rows are half of the gradient by V. `pairs` has a place for every partner of every entry, from links[e] on: the
    gradient by log |s|. A singular set, as any that is larger than the rank, gets log det = −inf and zeros. If G has
    no rows, there is no gradient.
    """
    room = room_for(p, indptr, indices, first, last, False)
    V, X, W, work = p.V, room.X, room.W, room.work
    plain = len(p.partners) == 0 and len(p.d) == 0
    K, wanted = V.shape[1], len(G) > 0
    most = K if plain else len(X)
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        products(X, X, k, W)
        if not plain:
            add_rest(p, links, indices, start, k, room)
        log_dets[s] = invert_set(W, k, most, links, work, wanted)
        if not wanted:
            continue
        if log_dets[s] == -np.inf:
            clear(G, start, k)
            clear_shares(start, k, links, diagonal, pairs)
            continue
        if not plain:
            log_det_shares(p, indices, start, k, room, links, diagonal, pairs)
        multiply(W, k, X, K, G, start)


@helper
def log_det_shares(
    p: Parameters, indices: Codes, start: int, k: int, room: Room, links: Links, diagonal: Array, pairs: Array
) -> None:
    """The gradient of log det L_A by d and log |s|; then W becomes ½ (W + Wᵀ)."""
    W = room.W
    if len(p.d):
        for a in range(k):
            diagonal[start + a] = W[a, a]
    if links is None:
        return
    for at in range(links[start], links[start + k]):
        pairs[at] = 0.0
    for n in range(room.counts[INNER]):
        at, a, b = links[start] + room.inner[n, 0], room.inner[n, 1], room.inner[n, 2]
        pairs[at] = p.skew[p.starts[indices[start + a]] + at - links[start + a]] * W[b, a]
    for a in range(k):
        for b in range(a):
            half = 0.5 * (W[a, b] + W[b, a])
            W[a, b], W[b, a] = half, half


# -- The conditional likelihood ------------------------------------------------------------------------


@entry
def conditional_gradients(
    p: Parameters, terms: Terms, slots: Codes, links: Links, indptr: Pointers, indices: Codes, first: int, last: int,
    logs: Array, g: Array, G: Array, F: Array, B: Array, diagonal: Array, pairs: Array, sigmas: Array,
) -> None:  # fmt: skip
    """log P(i | A∖i) for every entry of sets first..last−1, and the gradient of Σ_i g_i log P(i | A∖i), in parts.

    With T̄ = (σW − W D(q) W)ᵀ the adjoint of T, H = T̄ + T̄ᵀ, E = T̄ᵀ − T̄ and L̄ that of L_A, the entry rows are
    half of (L̄ + L̄ᵀ) V_A + E Y_A in G;  of H V_A in F, from which come (H V_A) C and the sum in C̄;  and of −E V_A, the
    adjoint of Y_A, in B. The trace gives every item −σ by its d and −2σ v. `pairs` gets ∂/∂ log |s| but for the part of
    Y. Singular sets have NaN, and contribute nothing. If G has no rows, there is no gradient.
    """
    room = room_for(p, indptr, indices, first, last, True)
    V, VC, VS, trace = p.V, terms.VC, terms.VS, terms.trace
    X, XC, Y, W, T, WT, P, S = room.X, room.XC, room.Y, room.W, room.T, room.WT, room.P, room.S
    Z, R, H, more, q, x, work = room.Z, room.R, room.H, room.more, room.q, room.x, room.work
    plain = len(p.partners) == 0 and len(p.d) == 0
    K = V.shape[1]
    most = K if plain else len(X)
    lefts, rights, grams = (X, X, Y, X), (X, XC, X, Y), (W, T, WT, P)
    adjoint, factors, rows = (R, T, WT, WT), (X, X, X, Y), (G, F, B, more)
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        load_rows(VC, slots, start, k, XC)
        if links is not None:
            load_rows(VS, slots, start, k, Y)
        for n in range(2 if links is None else 4):
            products(lefts[n], rights[n], k, grams[n])
        if not plain:
            add_rest(p, links, indices, start, k, room)
            add_rest_of_square(p, links, indices, start, k, room)
        usable = invert_set(W, k, most, links, work, True) > -np.inf
        usable = usable and conditional_terms(trace, k, links, W, T, WT, P, S)
        for a in range(k):
            logs[start + a] = -np.log(W[a, a] * S[a]) if usable else np.nan
        if len(G) == 0:
            continue
        sigmas[s] = 0.0
        if not usable:
            clear(G, start, k)
            clear(F, start, k)
            clear(B, start, k)
            clear_shares(start, k, links, diagonal, pairs)
            continue
        sigmas[s] = adjoints(start, k, links, g, W, T, WT, P, Z, R, H, S, q, x)
        if not plain:
            conditional_shares(p, indices, start, k, room, links, diagonal, pairs)
        for n in range(2 if links is None else 4):
            multiply(adjoint[n], k, factors[n], K, rows[n], start if n < 3 else 0)
        if links is not None:
            add_partners(start, k, K, more, G, B)


@helper
def adjoints(
    start: int, k: int, links: Links, g: Array, W: Array, T: Array, WT: Array, P: Array, Z: Array, R: Array,
    H: Array, S: Array, q: Array, x: Array,
) -> float:  # fmt: skip
    """σ; then T holds T̄ᵀ, and R holds L̄, or where there is an S, L̄ᵀ."""
    sigma = 0.0
    for a in range(k):
        sigma += g[start + a] / S[a]
    for a in range(k):
        weight = g[start + a]
        q[a] = weight / (S[a] * W[a, a])
        x[a] = (q[a] * P[a, a] - weight) / W[a, a]
        if links is None:
            x[a] *= 0.5  # W D(q) P is the transpose of P D(q) W then: half of W D(x) W goes with each
    for a in range(k):
        for b in range(k):
            WT[a, b] = W[a, b] * q[b]
            Z[a, b] = P[a, b] * q[b] - W[a, b] * x[b]
    for n in range(2 if links is None else 3):  # W D(q) W, (P D(q) − W D(x)) W, W D(q) P
        multiply(Z if n == 1 else WT, k, P if n == 2 else W, k, T if n == 0 else R if n == 1 else H, 0)
    for a in range(k):
        for b in range(k):
            T[a, b] = sigma * W[a, b] - T[a, b]
    for a in range(k):
        if links is None:
            for b in range(a + 1):
                value = R[a, b] + R[b, a] - sigma * P[a, b]
                R[a, b], R[b, a] = value, value
        else:
            for b in range(k):
                R[a, b] += H[a, b] - sigma * P[a, b]
    return sigma


@helper
def conditional_shares(
    p: Parameters, indices: Codes, start: int, k: int, room: Room, links: Links, diagonal: Array, pairs: Array
) -> None:
    """The gradient by d and log |s|; then R and T become ½ (L̄ + L̄ᵀ) and ½ H, and WT becomes ½ E."""
    T, WT, P, R, H = room.T, room.WT, room.P, room.R, room.H
    if len(p.d):
        diagonal_shares(p, indices, start, k, room, diagonal)
    if links is None:
        return
    for a in range(k):
        for b in range(k):
            H[a, b] = T[a, b] + T[b, a]
    pair_shares(start, k, room, links, pairs)
    for a in range(k):
        for b in range(k):
            WT[a, b] = 0.5 * (T[a, b] - T[b, a])
            P[a, b] = 0.5 * (R[a, b] + R[b, a])
    for a in range(k):
        for b in range(k):
            T[a, b], R[a, b] = 0.5 * H[a, b], P[a, b]


@helper
def add_partners(start: int, k: int, K: int, more: Array, G: Array, B: Array) -> None:
    """½ E Y_A is added to G, and B changes its sign."""
    for a in range(k):
        for c in range(K):
            G[start + a, c] += more[a, c]
            B[start + a, c] = -B[start + a, c]


@helper
def diagonal_shares(p: Parameters, indices: Codes, start: int, k: int, room: Room, diagonal: Array) -> None:
    """What T̄ says of L_A and of d through D L + L D − D²; then d_a has L̄_aa besides."""
    T, R, L = room.T, room.R, room.L
    for a in range(k):
        da = p.d[indices[start + a]]
        own = -2.0 * da * T[a, a]
        for b in range(k):
            own += T[b, a] * L[a, b] + T[a, b] * L[b, a]
        for b in range(k):
            R[a, b] += (da + p.d[indices[start + b]]) * T[a, b]
        diagonal[start + a] = own + R[a, a]


@helper
def pair_shares(start: int, k: int, room: Room, links: Pointers, pairs: Array) -> None:
    """pairs = s_aj ∂/∂s_aj for the partners j of every entry a: L̄_aj where j is in the set, less (H S_A)_aj.

    Of the items with the same partner each adds to those before it in the list, and they to it.
    """
    before, owner, value, total, H = room.before, room.owner, room.value, room.total, room.H
    first, n, base = links[start], links[start + k] - links[start], room.counts[BASE]
    for e in range(n):
        total[e] = H[owner[e], owner[e]] * value[e]
    for m in range(room.counts[MEETING]):
        e, added = room.meeting[m], 0.0
        other = before[e] - base
        while other >= 0:
            total[other] += H[owner[e], owner[other]] * value[e]
            other = before[other] - base
        other = before[e] - base
        while other >= 0:
            added += H[owner[e], owner[other]] * value[other]
            other = before[other] - base
        total[e] += added
    for e in range(n):
        pairs[first + e] = -value[e] * total[e]
    for m in range(room.counts[INNER]):
        e, a, b = room.inner[m, 0], room.inner[m, 1], room.inner[m, 2]
        pairs[first + e] += value[e] * room.R[b, a]


@entry
def number_rows(rows: Codes, indices: Codes, marked: Marks, places: Codes, slots: Codes) -> None:
    """The place in `rows` of the item of every entry; its marks are taken away, and `places` (M,) is but room."""
    for r in range(len(rows)):
        places[rows[r]] = r
        marked[rows[r]] = False
    for e in range(len(indices)):
        slots[e] = places[indices[e]]


@entry
def gather_rows(G: Array, indptr: Pointers, slots: Codes, y: Array, out: Array) -> None:
    """out[slot] = Σ y_A G_e over the entries e of that slot, in the order of the entries.

    One thread does it: handing half of it to another takes as long as it would save.
    """
    for r in range(len(out)):
        for c in range(out.shape[1]):
            out[r, c] = 0.0
    for s in range(len(indptr) - 1):
        weight = y[s]
        if weight == 0.0:
            continue
        for e in range(indptr[s], indptr[s + 1]):
            row = slots[e]
            for c in range(G.shape[1]):
                out[row, c] += weight * G[e, c]


@entry
def gather_pairs(
    shares: Array, links: Pointers, starts: Pointers, pair: Codes, indptr: Pointers, indices: Codes, y: Array,
    out: Array,
) -> None:  # fmt: skip
    """out[pair] += y_A × the share of every partner of every entry, in the order of the entries."""
    for s in range(len(indptr) - 1):
        weight = y[s]
        if weight == 0.0:
            continue
        for e in range(indptr[s], indptr[s + 1]):
            first = starts[indices[e]]
            for at in range(links[e], links[e + 1]):
                out[pair[first + at - links[e]]] += weight * shares[at]


@entry
def partner_sums(p: Parameters, items: Codes, out: Array) -> None:
    """out[r] = Σ_j s_ij v_j for the r-th of the items: rows of S V."""
    K = p.V.shape[1]
    for r in range(len(items)):
        i = items[r]
        for c in range(K):
            out[r, c] = 0.0
        for e in range(p.starts[i], p.starts[i + 1]):
            j, value = p.partners[e], p.skew[e]
            for c in range(K):
                out[r, c] += value * p.V[j, c]


@entry
def spread_to_partners(p: Parameters, items: Codes, adjoint: Array, slots: Codes, out: Array) -> None:
    """What the adjoint of the rows of Y = S V says of V: v_j gains s_ij Ȳ_i.

    `slots` holds, partner by partner of one item after the other, the row of `out` that belongs to it.
    """
    at = 0
    for r in range(len(items)):
        i = items[r]
        for e in range(p.starts[i], p.starts[i + 1]):
            value, row = p.skew[e], slots[at]
            at += 1
            for c in range(adjoint.shape[1]):
                out[row, c] += value * adjoint[r, c]


@entry
def spread_to_pairs(p: Parameters, pair: Codes, items: Codes, adjoint: Array, out: Array) -> None:
    """What it says of S: log |s_ij| gains s_ij Ȳ_i · v_j."""
    for r in range(len(items)):
        i = items[r]
        for e in range(p.starts[i], p.starts[i + 1]):
            j = p.partners[e]
            dot = 0.0
            for c in range(adjoint.shape[1]):
                dot += adjoint[r, c] * p.V[j, c]
            out[pair[e]] += p.skew[e] * dot
