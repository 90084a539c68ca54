"""Numba kernels for learning L = D + V Vᵀ + S: log-determinants, the conditional likelihood, and their gradients.

Sets come as a CSR; results are aligned with its entries, so that threads work on blocks of sets and write to places
of their own, which `sums` then adds up. A kernel gives the likelihood alone where there is no room for a gradient:
two kernels would be compiled for twice the time. Definitions in `tests/reference_gradients.py`, derivations in
docs/theory.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.blocks import multiply, products
from contradpp.dpp.compiled.decorators import entry, helper
from contradpp.dpp.compiled.terms import (
    BASE,
    INNER,
    MEETING,
    Links,
    Parameters,
    Room,
    Terms,
    add_rest,
    add_rest_of_square,
    conditional_terms,
    invert_set,
    load_rows,
    room_for,
)

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]


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
