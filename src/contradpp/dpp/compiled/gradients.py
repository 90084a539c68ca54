"""Numba kernels for learning L = D + V Vᵀ + S: log-determinants, the conditional likelihood, and their gradients.

Sets come as a CSR; results are aligned with its entries, so that threads work on blocks of sets and write to places
of their own. `gather_rows` and `gather_pairs` then add up the entries of the same item, or pair, in a fixed order: the
same bytes for any number of threads. With W = L_A⁻¹ and T = (L²)_A everything rests on

    T = V_A C V_Aᵀ + Y_A V_Aᵀ − V_A Y_Aᵀ − S_A S_Aᵀ + D L_A + L_A D − D²,   C = Vᵀ V, Y = S V,

S_A the (sparse) rows of the set. Without S everything is symmetric, and without D the last three terms are zero: both
are recognised by empty arrays. Definitions in `tests/reference_gradients.py`, derivations in docs/theory.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.blocks import (
    PANEL,
    WORK,
    invert,
    invert_scaled,
    largest_set,
    multiply,
    padded,
    products,
)
from contradpp.dpp.compiled.decorators import entry, helper
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
    return Room(
        np.zeros((largest, wide)), np.zeros((min(c, largest), wide)), np.zeros((min(s, largest), wide)),
        np.empty((k, k) if len(p.d) else (0, 0)), np.empty((k, k)), np.empty((c, c)), np.empty((c, c)),
        np.empty((c, c)), np.empty((c, c)), np.empty((k, k) if paired else (0, 0)), np.empty((s, wide)),
        np.empty((WORK, k)), np.empty(k), np.empty(k), np.empty(k), np.full(items, -1, dtype=np.int32), np.zeros(items),
    )  # fmt: skip


@helper
def load_rows(V: Array, rows: Codes, start: int, k: int, X: Array) -> None:
    """X[a] = V[rows[start + a]] for a < k."""
    for a in range(k):
        i = rows[start + a]
        for c in range(V.shape[1]):
            X[a, c] = V[i, c]


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
def invert_set(W: Array, k: int, most: int, symmetric: bool, work: Array, whole: bool) -> float:
    """L_A in W becomes its inverse; returns log det L_A, −inf if it is singular (see `dpp.factor`) or k > `most`.

    A symmetric L_A is given by its lower triangle. If not `whole`, only the determinant counts.
    """
    if k > most:
        return -np.inf
    if not symmetric:
        return invert_scaled(W, k, 0.0)[0]
    return invert(W, k, SINGULAR, work, whole)


@entry
def set_log_dets(p: Parameters, indptr: Pointers, indices: Codes, first: int, last: int, out: Array) -> None:
    """log det L_A of sets first..last−1, −inf where singular, as any that is larger than the rank."""
    largest = largest_set(indptr, first, last)
    room = room_for(largest, p, False)
    V, X, W, work = p.V, room.X, room.W, room.work
    symmetric, plain = len(p.partners) == 0, len(p.partners) == 0 and len(p.d) == 0
    most = V.shape[1] if plain else largest
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        products(X, X, k, W)
        if not plain:
            add_rest(p, indices, start, k, room)
        out[s] = invert_set(W, k, most, symmetric, work, False)


@entry
def log_det_gradients(
    p: Parameters, links: Pointers, indptr: Pointers, indices: Codes, first: int, last: int,
    G: Array, diagonal: Array, pairs: Array, log_dets: Array,
) -> None:  # fmt: skip
    """log det L_A and its gradient for sets first..last−1: entry rows ½ (W + Wᵀ) V_A, W_ii, and s_ij W_ji.

    The rows are half of the gradient by V. `pairs` has a place for every partner of every entry, from links[e] on: the
    gradient by log |s|. A singular set gets log det = −inf and zeros.
    """
    largest = largest_set(indptr, first, last)
    room = room_for(largest, p, False)
    V, X, W, work = p.V, room.X, room.W, room.work
    symmetric, plain = len(p.partners) == 0, len(p.partners) == 0 and len(p.d) == 0
    K = V.shape[1]
    most = K if plain else largest
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        products(X, X, k, W)
        if not plain:
            add_rest(p, indices, start, k, room)
        log_dets[s] = invert_set(W, k, most, symmetric, work, True)
        if log_dets[s] == -np.inf:
            clear(start, k, links, G, diagonal, pairs)
            continue
        if not plain:
            log_det_shares(p, indices, start, k, room, links, diagonal, pairs)
        multiply(W, k, X, K, G, start)


@helper
def log_det_shares(
    p: Parameters, indices: Codes, start: int, k: int, room: Room, links: Pointers, diagonal: Array, pairs: Array
) -> None:
    """The gradient of log det L_A by d and log |s|; then W becomes ½ (W + Wᵀ)."""
    W, place = room.W, room.place
    if len(p.d):
        for a in range(k):
            diagonal[start + a] = W[a, a]
    if len(p.partners) == 0:
        return
    for a in range(k):
        place[indices[start + a]] = a
    for a in range(k):
        i, at = indices[start + a], links[start + a]
        for e in range(p.starts[i], p.starts[i + 1]):
            b = place[p.partners[e]]
            pairs[at] = p.skew[e] * W[b, a] if b >= 0 else 0.0
            at += 1
    for a in range(k):
        place[indices[start + a]] = -1
        for b in range(a):
            half = 0.5 * (W[a, b] + W[b, a])
            W[a, b], W[b, a] = half, half


@helper
def clear(start: int, k: int, links: Pointers, G: Array, diagonal: Array, pairs: Array) -> None:
    """Zeros in all places of a set."""
    G[start : start + k] = 0.0
    if len(diagonal):
        diagonal[start : start + k] = 0.0
    if len(pairs):
        pairs[links[start] : links[start + k]] = 0.0


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
def add_rest_of_square(p: Parameters, VS: Array, slots: Codes, indices: Codes, start: int, k: int, room: Room) -> None:
    """T, the lower triangle of V_A C V_Aᵀ, becomes (L²)_A, all of it where there is an S; WT and P are overwritten."""
    T, WT, P, L = room.T, room.WT, room.P, room.L
    if len(p.partners):
        load_rows(VS, slots, start, k, room.Y)
        products(room.Y, room.X, k, WT)
        products(room.X, room.Y, k, P)
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
def conditional_terms(trace: float, k: int, symmetric: bool, W: Array, T: Array, WT: Array, P: Array, S: Array) -> bool:
    """From W = L_A⁻¹ and T: WT, P = W T W and the conditional normalisers S_i of one set; False if one is not positive.

    S_i = tr L − tr(W T) + P_ii / W_ii = Σ_j det L_{A∖i∪j} / det L_{A∖i}.
    """
    if symmetric:
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
        if not (W[a, a] > 0.0 and S[a] > 0.0):
            return False
    return True


@entry
def conditional_log_likelihoods(
    p: Parameters, terms: Terms, slots: Codes, indptr: Pointers, indices: Codes, first: int, last: int, out: Array
) -> None:
    """log P(i | A∖i) for every entry of sets first..last−1 (NaN where the set is singular)."""
    largest = largest_set(indptr, first, last)
    room = room_for(largest, p, True)
    V, VC, VS, trace = p.V, terms.VC, terms.VS, terms.trace
    X, XC, W, T, WT, P, S, work = room.X, room.XC, room.W, room.T, room.WT, room.P, room.S, room.work
    symmetric, plain = len(p.partners) == 0, len(p.partners) == 0 and len(p.d) == 0
    most = V.shape[1] if plain else largest
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(V, indices, start, k, X)
        load_rows(VC, slots, start, k, XC)
        products(X, X, k, W)
        products(X, XC, k, T)
        if not plain:
            add_rest(p, indices, start, k, room)
            add_rest_of_square(p, VS, slots, indices, start, k, room)
        usable = invert_set(W, k, most, symmetric, work, True) > -np.inf
        usable = usable and conditional_terms(trace, k, symmetric, W, T, WT, P, S)
        for a in range(k):
            out[start + a] = -np.log(W[a, a]) - np.log(S[a]) if usable else np.nan


@entry
def conditional_gradients(
    p: Parameters, terms: Terms, slots: Codes, links: Pointers, indptr: Pointers, indices: Codes, first: int, last: int,
    g: Array, G: Array, F: Array, B: Array, diagonal: Array, pairs: Array, sigmas: Array, values: Array,
) -> None:  # fmt: skip
    """The gradient of Σ_i g_i log P(i | A∖i), for sets first..last−1, in parts; the sum itself in `values`.

    With T̄ = (σW − W D(q) W)ᵀ the adjoint of T, H = T̄ + T̄ᵀ, E = T̄ᵀ − T̄ and L̄ that of L_A, the entry rows are
    half of (L̄ + L̄ᵀ) V_A + E Y_A in G;  of H V_A in F, from which come (H V_A) C and the sum in C̄;  and of −E V_A, the
    adjoint of Y_A, in B. The trace gives every item −σ by its d and −2σ v. `pairs` gets ∂/∂ log |s| but for the part of
    Y. Singular sets contribute nothing.
    """
    largest = largest_set(indptr, first, last)
    room = room_for(largest, p, True)
    V, VC, VS, trace = p.V, terms.VC, terms.VS, terms.trace
    X, XC, W, T, WT, P, R, H, S, q, x, work = (
        room.X, room.XC, room.W, room.T, room.WT, room.P, room.R, room.H, room.S, room.q, room.x, room.work
    )  # fmt: skip
    symmetric, plain = len(p.partners) == 0, len(p.partners) == 0 and len(p.d) == 0
    K = V.shape[1]
    most = K if plain else largest
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        sigmas[s] = 0.0
        values[s] = 0.0
        load_rows(V, indices, start, k, X)
        load_rows(VC, slots, start, k, XC)
        products(X, X, k, W)
        products(X, XC, k, T)
        if not plain:
            add_rest(p, indices, start, k, room)
            add_rest_of_square(p, VS, slots, indices, start, k, room)
        usable = invert_set(W, k, most, symmetric, work, True) > -np.inf
        if not (usable and conditional_terms(trace, k, symmetric, W, T, WT, P, S)):
            clear(start, k, links, G, diagonal, pairs)
            F[start : start + k] = 0.0
            if not symmetric:
                B[start : start + k] = 0.0
            continue
        sigma = 0.0
        for a in range(k):
            weight = g[start + a]
            sigma += weight / S[a]
            q[a] = weight / (S[a] * W[a, a])
            x[a] = (q[a] * P[a, a] - weight) / W[a, a]
            if symmetric:
                x[a] *= 0.5  # W D(q) P is the transpose of P D(q) W then: half of W D(x) W goes with each
            values[s] -= weight * np.log(W[a, a] * S[a])
        sigmas[s] = sigma
        for a in range(k):
            for b in range(k):
                WT[a, b] = W[a, b] * q[b]
        multiply(WT, k, W, k, T, 0)  # W D(q) W
        if not symmetric:
            multiply(WT, k, P, k, H, 0)  # W D(q) P
        for a in range(k):
            for b in range(k):
                T[a, b] = sigma * W[a, b] - T[a, b]  # T̄ᵀ
                WT[a, b] = P[a, b] * q[b] - W[a, b] * x[b]
        multiply(WT, k, W, k, R, 0)
        if symmetric:
            for a in range(k):
                for b in range(a + 1):
                    value = R[a, b] + R[b, a] - sigma * P[a, b]  # L̄
                    R[a, b], R[b, a] = value, value
        if not plain:
            conditional_shares(p, indices, start, k, room, sigma, links, diagonal, pairs)
        multiply(R, k, X, K, G, start)
        multiply(T, k, X, K, F, start)
        if not symmetric:
            rows_of_partners(start, k, K, room, G, B)


@helper
def conditional_shares(
    p: Parameters, indices: Codes, start: int, k: int, room: Room, sigma: float, links: Pointers, diagonal: Array,
    pairs: Array,
) -> None:  # fmt: skip
    """The gradient by d and log |s|; then R and T become ½ (L̄ + L̄ᵀ) and ½ H, and WT becomes ½ E."""
    T, WT, P, R, H = room.T, room.WT, room.P, room.R, room.H
    paired = len(p.partners) > 0
    if paired:
        for a in range(k):
            for b in range(k):
                R[a, b] += H[a, b] - sigma * P[a, b]  # L̄ᵀ
    if len(p.d):
        diagonal_shares(p, indices, start, k, room, diagonal)
    if paired:
        for a in range(k):
            for b in range(k):
                H[a, b] = T[a, b] + T[b, a]
        pair_shares(p, indices, start, k, room, links, pairs)
        for a in range(k):
            for b in range(k):
                WT[a, b] = 0.5 * (T[a, b] - T[b, a])
                P[a, b] = 0.5 * (R[a, b] + R[b, a])
        for a in range(k):
            for b in range(k):
                T[a, b], R[a, b] = 0.5 * H[a, b], P[a, b]


@helper
def rows_of_partners(start: int, k: int, K: int, room: Room, G: Array, B: Array) -> None:
    """With ½ E in WT: ½ E Y_A is added to G, and −½ E V_A is in B."""
    more = room.more
    multiply(room.WT, k, room.Y, K, more, 0)
    multiply(room.WT, k, room.X, K, B, start)
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
            R[a, b] += (da + p.d[indices[start + b]]) * T[a, b]
        diagonal[start + a] = own + R[a, a]


@helper
def pair_shares(p: Parameters, indices: Codes, start: int, k: int, room: Room, links: Pointers, pairs: Array) -> None:
    """pairs = s_aj ∂/∂s_aj for the partners j of every entry a: L̄_aj where j is in the set, less (H S_A)_aj."""
    place, dense = room.place, room.dense
    for a in range(k):
        place[indices[start + a]] = a
    for a in range(k):
        i, at = indices[start + a], links[start + a]
        for b in range(k):
            j = indices[start + b]
            h = room.H[a, b]
            for e in range(p.starts[j], p.starts[j + 1]):
                dense[p.partners[e]] += h * p.skew[e]
        for e in range(p.starts[i], p.starts[i + 1]):
            share = -dense[p.partners[e]]
            b = place[p.partners[e]]
            if b >= 0:
                share += room.R[b, a]
            pairs[at] = p.skew[e] * share
            at += 1
        for b in range(k):
            j = indices[start + b]
            for e in range(p.starts[j], p.starts[j + 1]):
                dense[p.partners[e]] = 0.0
    for a in range(k):
        place[indices[start + a]] = -1


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
def spread_to_partners(
    p: Parameters, pair: Codes, items: Codes, adjoint: Array, slots: Codes, out: Array, pairs: Array
) -> None:
    """What the adjoint of the rows of Y = S V says of V and of S: v_j gains s_ij Ȳ_i, and log |s_ij| s_ij Ȳ_i · v_j.

    `slots` holds, partner by partner of one item after the other, the row of `out` that belongs to it.
    """
    K = p.V.shape[1]
    at = 0
    for r in range(len(items)):
        i = items[r]
        for e in range(p.starts[i], p.starts[i + 1]):
            j, value, row = p.partners[e], p.skew[e], slots[at]
            at += 1
            dot = 0.0
            for c in range(K):
                dot += adjoint[r, c] * p.V[j, c]
                out[row, c] += value * adjoint[r, c]
            pairs[pair[e]] += value * dot


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
