"""Numba kernels for learning L = D + V Vᵀ + S: log-determinants, likelihoods and gradients.

Sets come as a CSR. Results are aligned with its entries, so that threads work on blocks of sets and
write to places of their own. Other kernels add these up in a fixed order: the same bytes for any
number of threads. A kernel computes no gradient if it has no memory for one: two kernels would
take twice the time to compile. Definitions are in `tests/reference_gradients.py`, derivations in
docs/theory.md.

With W = L_A⁻¹ and T = (L²)_A all gradients rest on

    T = V_A C V_Aᵀ + Y_A V_Aᵀ − V_A Y_Aᵀ − S_A S_Aᵀ + D L_A + L_A D − D²,   C = Vᵀ V, Y = S V,

S_A the (sparse) rows of the set. Without S everything is symmetric, and without D the last three
terms are zero. An empty array means that there is no D. Without S, `links` is None, so that Numba
skips the code under `links is not None`: that form compiles in two thirds of the time. A product
that is taken several times is in a loop over its operands, because every call of a helper is
compiled anew, and these are the largest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contradpp._types import Array, Codes, Flags, Ints
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

Links = Ints | None  # pointers to the neighbors in S of every entry; None without S


class Parameters(NamedTuple):
    """The parameters; the neighbors of item i in S are at starts[i]..starts[i + 1]."""

    V: Array  # (M, K)
    d: Array  # (M,), or empty where there is no diagonal
    starts: Ints  # (M + 1,)
    neighbors: Codes  # columns of S; empty where there is no S
    skew: Array  # the entries of S, s_ij and s_ji = −s_ij both


class Terms(NamedTuple):
    """The terms of the conditional likelihood for the items that occur, by slot."""

    VC: Array  # rows of V C
    VS: Array  # rows of S V, empty where there is no S
    trace: float  # tr L


# Positions in `Room.counts`
BASE = 0  # entries of S that sets before this one had
REACHED = 1  # these and its own
INNER = 2  # entries of `inner`
SHARED = 3  # entries of `shared`


class Room(NamedTuple):
    """Memory for one set after the other: rows of V, V C and S V, and k × k matrices."""

    X: Array
    XC: Array
    Y: Array
    L: Array  # L_A, if there is a diagonal
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
    head: Ints  # (M,), and for every entry of S_A, see `link_neighbors`:
    before: Ints
    owner: Codes
    value: Array
    total: Array
    shared: Codes
    counts: Ints  # see BASE and those that follow


@helper
def room_for(
    p: Parameters, indptr: Ints, indices: Codes, first: int, last: int, conditional: bool
) -> Room:
    """Allocate memory for any of the sets first..last−1; k × k matrices have whole tiles."""
    M, K = p.V.shape
    largest = largest_set(indptr, first, last)
    k = whole_panels(largest)
    wide = padded(K)
    c = k if conditional else 0
    paired = len(p.neighbors) > 0
    s = c if paired else 0
    items = M if paired else 0
    full = k if len(p.d) else 0
    entries = 0
    for of in range(first, last if paired else first):
        entries = max(entries, count_neighbors(p, indices, indptr[of], indptr[of + 1]))
    linked = entries if conditional else 0
    place = np.empty(items, dtype=np.int32)
    head = np.empty(items if conditional else 0, dtype=np.int64)
    counts = np.empty(4, dtype=np.int64)
    # Filled here: every other way to make an array is compiled, too.
    for i in range(items):
        place[i] = -1
    for i in range(len(head)):
        head[i] = -1
    for i in range(len(counts)):
        counts[i] = 0
    return Room(
        np.zeros((largest, wide)),
        np.zeros((min(c, largest), wide)),
        np.zeros((min(s, largest), wide)),
        np.empty((full, full)),
        np.empty((k, k)),
        np.empty((c, c)),
        np.empty((c, c)),
        np.empty((c, c)),
        np.empty((c, c)),
        np.empty((c, c)),
        np.empty((s, s)),
        np.empty((s, wide)),
        np.empty((WORK, k)),
        np.empty(k),
        np.empty(k),
        np.empty(k),
        place,
        np.empty((entries, 3), dtype=np.int32),
        head,
        np.empty(linked, dtype=np.int64),
        np.empty(linked, dtype=np.int32),
        np.empty(linked),
        np.empty(linked),
        np.empty(linked, dtype=np.int32),
        counts,
    )


@helper
def count_neighbors(p: Parameters, indices: Codes, start: int, stop: int) -> int:
    """Count the neighbors in S of the items at start..stop−1, shared ones repeatedly."""
    count = 0
    for e in range(start, stop):
        count += p.starts[indices[e] + 1] - p.starts[indices[e]]
    return count


@helper
def load_rows(V: Array, rows: Codes, start: int, k: int, X: Array) -> None:
    """Set X[a] = V[rows[start + a]] for a < k."""
    for a in range(k):
        i = rows[start + a]
        for c in range(V.shape[1]):
            X[a, c] = V[i, c]


# -- L_A and its inverse ---------------------------------------------------------------------------


@helper
def add_rest(p: Parameters, links: Links, indices: Codes, start: int, k: int, room: Room) -> None:
    """Turn W, the lower triangle of V_A V_Aᵀ, into L_A; with a diagonal, fill `room.L`, too."""
    W = room.W
    L = room.L
    place = room.place
    inner = room.inner
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
                b = place[p.neighbors[e]]
                if b >= 0:
                    W[a, b] += p.skew[e]
                    inner[found, 0] = entry
                    inner[found, 1] = a
                    inner[found, 2] = b
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
    """Turn L_A in W into its inverse, and return log det L_A.

    It is −inf if L_A is singular (see `dpp.factor`) or k > `most`. A symmetric L_A is given by its
    lower triangle. If not `whole`, only the determinant is computed.
    """
    if k > most:
        return -np.inf
    return (
        invert(W, k, SINGULAR, work, whole) if links is None else invert_scaled(W, k, 0.0, work)[0]
    )


# -- (L²)_A and the conditional likelihood ---------------------------------------------------------


@helper
def link_neighbors(
    p: Parameters, indices: Codes, start: int, k: int, room: Room, out: Array
) -> None:
    """Set out[a, b] = Σ_j s_aj s_bj for b ≤ a, and make lists of the entries of S_A, by column j.

    Entries are numbered on through all sets. head[j] is the last one in column j. For entry
    BASE + e, before[e] is the one before it in the list, owner[e] and value[e] are a and s_aj. A
    list ends below BASE, so that none has to be cleared. `shared` are the entries that have one
    before them: items of a set share few neighbors.
    """
    head = room.head
    before = room.before
    owner = room.owner
    value = room.value
    shared = room.shared
    base = room.counts[REACHED]
    n = 0
    met = 0
    for a in range(k):
        i = indices[start + a]
        square = 0.0
        for e in range(p.starts[i], p.starts[i + 1]):
            square += p.skew[e] * p.skew[e]
        for b in range(a):
            out[a, b] = 0.0
        out[a, a] = square
        for e in range(p.starts[i], p.starts[i + 1]):
            last = head[p.neighbors[e]]
            head[p.neighbors[e]] = base + n
            before[n] = last
            owner[n] = a
            value[n] = p.skew[e]
            shared[met] = n
            n += 1
            met += 1 if last >= base else 0
    for m in range(met):
        e = shared[m]
        other = before[e] - base
        while other >= 0:
            out[owner[e], owner[other]] += value[e] * value[other]
            other = before[other] - base
    room.counts[BASE] = base
    room.counts[REACHED] = base + n
    room.counts[SHARED] = met


@helper
def add_rest_of_square(
    p: Parameters, links: Links, indices: Codes, start: int, k: int, room: Room
) -> None:
    """Set T = (L²)_A, all of it with S, else the lower triangle.

    Lower triangles of V_A C V_Aᵀ are in T, of Y_A V_Aᵀ in WT, and of V_A Y_Aᵀ in P, which are
    overwritten.
    """
    T = room.T
    WT = room.WT
    P = room.P
    L = room.L
    if links is not None:
        for a in range(k):
            for b in range(a):
                WT[a, b] -= P[a, b]  # the skew part of T, below the diagonal
        link_neighbors(p, indices, start, k, room, P)
        for a in range(k):
            T[a, a] -= P[a, a]
            for b in range(a):
                even = T[a, b] - P[a, b]
                odd = WT[a, b]
                T[a, b] = even + odd
                T[b, a] = even - odd
    if len(p.d):
        for a in range(k):
            da = p.d[indices[start + a]]
            for b in range(a + 1 if links is None else k):
                T[a, b] += (da + p.d[indices[start + b]]) * L[a, b]
            T[a, a] -= da * da


@helper
def conditional_terms(
    trace: float, k: int, links: Links, W: Array, T: Array, WT: Array, P: Array, S: Array
) -> bool:
    """Compute WT, P = W T W and the conditional normalizers S_i; False if one is not positive.

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
    """Clear the rows of a set, if there are rows at all."""
    if len(rows):
        for a in range(start, start + k):
            for c in range(rows.shape[1]):
                rows[a, c] = 0.0


@helper
def clear_shares(start: int, k: int, links: Links, diagonal: Array, pairs: Array) -> None:
    """Clear all places of a set, if there are any."""
    if len(diagonal):
        for a in range(start, start + k):
            diagonal[a] = 0.0
    if links is not None:
        for at in range(links[start], links[start + k]):
            pairs[at] = 0.0


# -- Log-determinants ------------------------------------------------------------------------------


@entry
def log_det_gradients(
    p: Parameters,
    links: Links,
    indptr: Ints,
    indices: Codes,
    first: int,
    last: int,
    log_dets: Array,
    G: Array,
    diagonal: Array,
    pairs: Array,
) -> None:
    """Compute log det L_A and its gradient for sets first..last−1.

    The rows ½ (W + Wᵀ) V_A are half of the gradient by V, W_ii that by d_i, and s_ij W_ji that by
    log |s_ij|: `pairs` has a place for every neighbor of every entry, from links[e] on. A singular
    set, as any that is larger than the rank, gets log det = −inf and zeros. If G has no rows, no
    gradient is computed.
    """
    room = room_for(p, indptr, indices, first, last, False)
    V = p.V
    X = room.X
    W = room.W
    work = room.work
    plain = len(p.neighbors) == 0 and len(p.d) == 0
    K = V.shape[1]
    wanted = len(G) > 0
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
    p: Parameters,
    indices: Codes,
    start: int,
    k: int,
    room: Room,
    links: Links,
    diagonal: Array,
    pairs: Array,
) -> None:
    """Write the gradient of log det L_A by d and log |s|, and set W to ½ (W + Wᵀ)."""
    W = room.W
    if len(p.d):
        for a in range(k):
            diagonal[start + a] = W[a, a]
    if links is None:
        return
    for at in range(links[start], links[start + k]):
        pairs[at] = 0.0
    for n in range(room.counts[INNER]):
        at = links[start] + room.inner[n, 0]
        a = room.inner[n, 1]
        b = room.inner[n, 2]
        pairs[at] = p.skew[p.starts[indices[start + a]] + at - links[start + a]] * W[b, a]
    for a in range(k):
        for b in range(a):
            half = 0.5 * (W[a, b] + W[b, a])
            W[a, b] = half
            W[b, a] = half


# -- The conditional likelihood --------------------------------------------------------------------


@entry
def conditional_gradients(
    p: Parameters,
    terms: Terms,
    slots: Codes,
    links: Links,
    indptr: Ints,
    indices: Codes,
    first: int,
    last: int,
    logs: Array,
    g: Array,
    G: Array,
    F: Array,
    B: Array,
    diagonal: Array,
    pairs: Array,
    sigmas: Array,
) -> None:
    """Compute log P(i | A∖i) for sets first..last−1, and the gradient of Σ_i g_i log P(i | A∖i).

    T̄ = (σW − W D(q) W)ᵀ is the adjoint of T, L̄ that of L_A, H = T̄ + T̄ᵀ, E = T̄ᵀ − T̄. The entry
    rows are halves of

        (L̄ + L̄ᵀ) V_A + E Y_A in G,
        H V_A in F, from which come (H V_A) C and the sum in C̄,
        −E V_A, the adjoint of Y_A, in B.

    The trace gives every item −σ by its d and −2σ v. `pairs` gets ∂/∂ log |s| without the part
    of Y. Singular sets have NaN, and contribute nothing. If G has no rows, no gradient is computed.
    """
    room = room_for(p, indptr, indices, first, last, True)
    V = p.V
    VC = terms.VC
    VS = terms.VS
    trace = terms.trace
    X = room.X
    XC = room.XC
    Y = room.Y
    W = room.W
    T = room.T
    WT = room.WT
    P = room.P
    S = room.S
    Z = room.Z
    R = room.R
    H = room.H
    more = room.more
    q = room.q
    x = room.x
    work = room.work
    plain = len(p.neighbors) == 0 and len(p.d) == 0
    K = V.shape[1]
    most = K if plain else len(X)
    lefts = (X, X, Y, X)
    rights = (X, XC, X, Y)
    grams = (W, T, WT, P)
    adjoint = (R, T, WT, WT)
    factors = (X, X, X, Y)
    rows = (G, F, B, more)
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
            add_skew_part(start, k, K, more, G, B)


@helper
def adjoints(
    start: int,
    k: int,
    links: Links,
    g: Array,
    W: Array,
    T: Array,
    WT: Array,
    P: Array,
    Z: Array,
    R: Array,
    H: Array,
    S: Array,
    q: Array,
    x: Array,
) -> float:
    """Set T to T̄ᵀ and R to L̄, or with S to L̄ᵀ, and return σ."""
    sigma = 0.0
    for a in range(k):
        sigma += g[start + a] / S[a]
    for a in range(k):
        weight = g[start + a]
        q[a] = weight / (S[a] * W[a, a])
        x[a] = (q[a] * P[a, a] - weight) / W[a, a]
        if links is None:  # W D(q) P is the transpose of P D(q) W: each gets half of W D(x) W
            x[a] *= 0.5
    for a in range(k):
        for b in range(k):
            WT[a, b] = W[a, b] * q[b]
            Z[a, b] = P[a, b] * q[b] - W[a, b] * x[b]
    lefts = (WT, Z, WT)
    rights = (W, W, P)
    outs = (T, R, H)
    for n in range(2 if links is None else 3):  # W D(q) W, (P D(q) − W D(x)) W, W D(q) P
        multiply(lefts[n], k, rights[n], k, outs[n], 0)
    for a in range(k):
        for b in range(k):
            T[a, b] = sigma * W[a, b] - T[a, b]
    for a in range(k):
        if links is None:
            for b in range(a + 1):
                value = R[a, b] + R[b, a] - sigma * P[a, b]
                R[a, b] = value
                R[b, a] = value
        else:
            for b in range(k):
                R[a, b] += H[a, b] - sigma * P[a, b]
    return sigma


@helper
def conditional_shares(
    p: Parameters,
    indices: Codes,
    start: int,
    k: int,
    room: Room,
    links: Links,
    diagonal: Array,
    pairs: Array,
) -> None:
    """Write the gradient by d and log |s|; set R to ½ (L̄ + L̄ᵀ), T to ½ H and WT to ½ E."""
    T = room.T
    WT = room.WT
    P = room.P
    R = room.R
    H = room.H
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
            T[a, b] = 0.5 * H[a, b]
            R[a, b] = P[a, b]


@helper
def add_skew_part(start: int, k: int, K: int, more: Array, G: Array, B: Array) -> None:
    """Add ½ E Y_A to G, and change the sign of B."""
    for a in range(k):
        for c in range(K):
            G[start + a, c] += more[a, c]
            B[start + a, c] = -B[start + a, c]


@helper
def diagonal_shares(
    p: Parameters, indices: Codes, start: int, k: int, room: Room, diagonal: Array
) -> None:
    """Add the adjoints of L_A and d through D L + L D − D², and L̄_aa to that of d_a."""
    T = room.T
    R = room.R
    L = room.L
    for a in range(k):
        da = p.d[indices[start + a]]
        own = -2.0 * da * T[a, a]
        for b in range(k):
            own += T[b, a] * L[a, b] + T[a, b] * L[b, a]
        for b in range(k):
            R[a, b] += (da + p.d[indices[start + b]]) * T[a, b]
        diagonal[start + a] = own + R[a, a]


@helper
def pair_shares(start: int, k: int, room: Room, links: Ints, pairs: Array) -> None:
    """Set pairs = s_aj ∂/∂s_aj for the neighbors j of every entry a.

    It is L̄_aj where j is in the set, less (H S_A)_aj. Of the items that share a neighbor each
    adds to those before it in the list, and they to it.
    """
    before = room.before
    owner = room.owner
    value = room.value
    total = room.total
    H = room.H
    first = links[start]
    n = links[start + k] - links[start]
    base = room.counts[BASE]
    for e in range(n):
        total[e] = H[owner[e], owner[e]] * value[e]
    for m in range(room.counts[SHARED]):
        e = room.shared[m]
        added = 0.0
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
        e = room.inner[m, 0]
        a = room.inner[m, 1]
        b = room.inner[m, 2]
        pairs[first + e] += value[e] * room.R[b, a]


@entry
def number_rows(rows: Codes, indices: Codes, marked: Flags, places: Codes, slots: Codes) -> None:
    """Write the place in `rows` of each entry's item; clear the marks; `places` (M,) is scratch."""
    for r in range(len(rows)):
        places[rows[r]] = r
        marked[rows[r]] = False
    for e in range(len(indices)):
        slots[e] = places[indices[e]]


@entry
def gather_rows(G: Array, indptr: Ints, slots: Codes, y: Array, out: Array) -> None:
    """Set out[slot] = Σ y_A G_e over the entries e of that slot, in the order of the entries.

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
    shares: Array,
    links: Ints,
    starts: Ints,
    pair: Codes,
    indptr: Ints,
    indices: Codes,
    y: Array,
    out: Array,
) -> None:
    """Add y_A × share to out[pair] for every neighbor of every entry, in order of the entries."""
    for s in range(len(indptr) - 1):
        weight = y[s]
        if weight == 0.0:
            continue
        for e in range(indptr[s], indptr[s + 1]):
            first = starts[indices[e]]
            for at in range(links[e], links[e + 1]):
                out[pair[first + at - links[e]]] += weight * shares[at]


@entry
def skew_products(p: Parameters, items: Codes, out: Array) -> None:
    """Set out[r] = Σ_j s_ij v_j for the r-th of the items: rows of S V."""
    K = p.V.shape[1]
    for r in range(len(items)):
        i = items[r]
        for c in range(K):
            out[r, c] = 0.0
        for e in range(p.starts[i], p.starts[i + 1]):
            j = p.neighbors[e]
            value = p.skew[e]
            for c in range(K):
                out[r, c] += value * p.V[j, c]


@entry
def spread_to_neighbors(
    p: Parameters, items: Codes, adjoint: Array, slots: Codes, out: Array
) -> None:
    """Add s_ij Ȳ_i to the gradient of v_j, Ȳ the adjoint of the rows of Y = S V.

    `slots` holds the row of `out` of every neighbor, for one item after the other.
    """
    at = 0
    for r in range(len(items)):
        i = items[r]
        for e in range(p.starts[i], p.starts[i + 1]):
            value = p.skew[e]
            row = slots[at]
            at += 1
            for c in range(adjoint.shape[1]):
                out[row, c] += value * adjoint[r, c]


@entry
def spread_to_pairs(p: Parameters, pair: Codes, items: Codes, adjoint: Array, out: Array) -> None:
    """Add s_ij Ȳ_i · v_j to the gradient of log |s_ij|."""
    for r in range(len(items)):
        i = items[r]
        for e in range(p.starts[i], p.starts[i + 1]):
            j = p.neighbors[e]
            dot = 0.0
            for c in range(adjoint.shape[1]):
                dot += adjoint[r, c] * p.V[j, c]
            out[pair[e]] += p.skew[e] * dot
