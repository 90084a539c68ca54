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
    REST,
    WORK,
    invert,
    largest_set,
    multiply,
    padded,
    products,
    sweep,
    times_det,
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
def invert_general(W: Array, k: int, scale: Array) -> float:
    """W ← W⁻¹ by Gauss and Jordan, after scaling to a unit diagonal; returns log det, −inf if it is singular.

    No row needs to be exchanged: the symmetric part is positive semi-definite, and so is that of every Schur
    complement.
    """
    log_det, product = 0.0, 1.0
    for a in range(k):
        if not W[a, a] > 0.0:
            return -np.inf
        scale[a] = np.sqrt(W[a, a])
        log_det, product = times_det(log_det, product, W[a, a])
    for a in range(k):
        for b in range(k):
            W[a, b] /= scale[a] * scale[b]
    for p in range(k):
        pivot = W[p, p]
        if not pivot > SINGULAR:
            return -np.inf
        log_det, product = times_det(log_det, product, pivot)
        sweep(W, k, p)
    for a in range(k):
        for b in range(k):
            if not abs(W[a, b]) * SINGULAR < 1.0:
                return -np.inf
            W[a, b] /= scale[a] * scale[b]
    return float(log_det + np.log(product))


@helper
def invert_set(p: Parameters, indices: Codes, start: int, k: int, room: Room, whole: bool) -> float:
    """W = L_A⁻¹ of one set whose rows of V are in X; returns log det L_A, −inf if it is singular (see `dpp.factor`).

    With a diagonal, L_A itself stays in `room.L`. If not `whole`, only the determinant counts.
    """
    X, W, place = room.X, room.W, room.place
    if k > p.V.shape[1] and len(p.d) == 0 and len(p.partners) == 0:
        return -np.inf
    products(X, X, k, W)
    if len(p.d):
        for a in range(k):
            W[a, a] += p.d[indices[start + a]]
    if len(p.partners) == 0:
        if len(p.d):
            for a in range(k):
                for b in range(a + 1):
                    room.L[a, b] = W[a, b]
                    room.L[b, a] = W[a, b]
        log_det = invert(W, k, SINGULAR, room.work, whole)
        if whole:
            for a in range(k):
                if not W[a, a] * room.work[REST, a] < 1.0:  # the rule of `factor`: W_ii L_ii SINGULAR
                    return -np.inf
        return float(log_det)
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
            for b in range(k):
                room.L[a, b] = W[a, b]
    return invert_general(W, k, room.S)


@entry
def set_log_dets(p: Parameters, indptr: Pointers, indices: Codes, first: int, last: int, out: Array) -> None:
    """log det L_A of sets first..last−1, −inf where singular, as any that is larger than the rank."""
    room = room_for(largest_set(indptr, first, last), p, False)
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(p.V, indices, start, k, room.X)
        out[s] = invert_set(p, indices, start, k, room, False)


@helper
def multiply_by_two(C: Array, k: int, Y: Array, n: int, out: Array, start: int) -> None:
    """Rows start, start + 1, ... of out become 2 C Y; C is doubled."""
    for a in range(k):
        for b in range(k):
            C[a, b] *= 2.0
    multiply(C, k, Y, n, out, start)


@entry
def log_det_gradients(
    p: Parameters, links: Pointers, indptr: Pointers, indices: Codes, first: int, last: int,
    G: Array, diagonal: Array, pairs: Array, log_dets: Array,
) -> None:  # fmt: skip
    """log det L_A and its gradient for sets first..last−1: entry rows (W + Wᵀ) V_A, W_ii, and s_ij W_ji.

    `pairs` has a place for every partner of every entry, from links[e] on: the gradient by log |s|. A singular set gets
    log det = −inf and zeros.
    """
    K = p.V.shape[1]
    room = room_for(largest_set(indptr, first, last), p, False)
    X, W, both = room.X, room.W, room.H
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        load_rows(p.V, indices, start, k, X)
        log_dets[s] = invert_set(p, indices, start, k, room, True)
        if log_dets[s] == -np.inf:
            clear(start, k, links, G, diagonal, pairs)
            continue
        if len(p.d):
            for a in range(k):
                diagonal[start + a] = W[a, a]
        if len(p.partners) == 0:
            multiply_by_two(W, k, X, K, G, start)
            continue
        for a in range(k):
            room.place[indices[start + a]] = a
            for b in range(k):
                both[a, b] = W[a, b] + W[b, a]
        multiply(both, k, X, K, G, start)
        for a in range(k):
            i, at = indices[start + a], links[start + a]
            for e in range(p.starts[i], p.starts[i + 1]):
                b = room.place[p.partners[e]]
                pairs[at] = p.skew[e] * W[b, a] if b >= 0 else 0.0
                at += 1
        for a in range(k):
            room.place[indices[start + a]] = -1


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
def square_of_set(p: Parameters, indices: Codes, start: int, k: int, room: Room) -> None:
    """T = (L²)_A of one set; WT and P are overwritten."""
    T, WT, P = room.T, room.WT, room.P
    products(room.X, room.XC, k, T)
    if len(p.partners) == 0:
        for a in range(k):
            for b in range(a):
                T[b, a] = T[a, b]
    else:
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
            for b in range(k):
                T[a, b] += (da + p.d[indices[start + b]]) * room.L[a, b]
            T[a, a] -= da * da


@helper
def conditional_terms(
    p: Parameters, terms: Terms, slots: Codes, indices: Codes, start: int, k: int, room: Room
) -> bool:
    """W = L_A⁻¹, T, WT, P = W T W and the conditional normalisers S_i of one set; False if it is singular.

    S_i = tr L − tr(W T) + P_ii / W_ii = Σ_j det L_{A∖i∪j} / det L_{A∖i}.
    """
    W, WT, P, S = room.W, room.WT, room.P, room.S
    load_rows(p.V, indices, start, k, room.X)
    if invert_set(p, indices, start, k, room, True) == -np.inf:
        return False
    load_rows(terms.VC, slots, start, k, room.XC)
    if len(p.partners):
        load_rows(terms.VS, slots, start, k, room.Y)
    square_of_set(p, indices, start, k, room)
    multiply(W, k, room.T, k, WT, 0)
    multiply(WT, k, W, k, P, 0)
    total = terms.trace
    for a in range(k):
        total -= WT[a, a]
    for a in range(k):
        if not W[a, a] > 0.0:
            return False
        S[a] = total + P[a, a] / W[a, a]
        if not S[a] > 0:
            return False
    return True


@entry
def conditional_log_likelihoods(
    p: Parameters, terms: Terms, slots: Codes, indptr: Pointers, indices: Codes, first: int, last: int, out: Array
) -> None:
    """log P(i | A∖i) for every entry of sets first..last−1 (NaN where the set is singular)."""
    room = room_for(largest_set(indptr, first, last), p, True)
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        usable = conditional_terms(p, terms, slots, indices, start, k, room)
        for a in range(k):
            out[start + a] = -np.log(room.W[a, a]) - np.log(room.S[a]) if usable else np.nan


@entry
def conditional_gradients(
    p: Parameters, terms: Terms, slots: Codes, links: Pointers, indptr: Pointers, indices: Codes, first: int, last: int,
    g: Array, G: Array, F: Array, B: Array, diagonal: Array, pairs: Array, sigmas: Array, values: Array,
) -> None:  # fmt: skip
    """The gradient of Σ_i g_i log P(i | A∖i), for sets first..last−1, in parts; the sum itself in `values`.

    With T̄ = (σW − W D(q) W)ᵀ the adjoint of T, H = T̄ + T̄ᵀ, E = T̄ᵀ − T̄ and L̄ that of L_A, the entry rows are
    G = (L̄ + L̄ᵀ) V_A + E Y_A;  F = H V_A, from which come (H V_A) C and the sum in C̄;  and B = −E V_A, the adjoint
    of Y_A. The trace gives every item −σ by its d and −2σ v. `pairs` gets ∂/∂ log |s| but for the part of Y.
    Singular sets contribute nothing.
    """
    K, paired = p.V.shape[1], len(p.partners) > 0
    room = room_for(largest_set(indptr, first, last), p, True)
    X, W, T, WT, P, R, H, S, q, x = (
        room.X, room.W, room.T, room.WT, room.P, room.R, room.H, room.S, room.q, room.x
    )  # fmt: skip
    for s in range(first, last):
        start = indptr[s]
        k = indptr[s + 1] - start
        sigmas[s] = 0.0
        values[s] = 0.0
        if not conditional_terms(p, terms, slots, indices, start, k, room):
            clear(start, k, links, G, diagonal, pairs)
            F[start : start + k] = 0.0
            if paired:
                B[start : start + k] = 0.0
            continue
        sigma = 0.0
        for a in range(k):
            weight = g[start + a]
            sigma += weight / S[a]
            q[a] = weight / (S[a] * W[a, a])
            x[a] = (q[a] * P[a, a] - weight) / W[a, a]
            values[s] -= weight * np.log(W[a, a] * S[a])
        sigmas[s] = sigma
        for a in range(k):
            for b in range(k):
                WT[a, b] = W[a, b] * q[b]
        multiply(WT, k, W, k, T, 0)  # W D(q) W
        if paired:
            multiply(WT, k, P, k, H, 0)  # W D(q) P
        for a in range(k):
            for b in range(k):
                T[a, b] = sigma * W[a, b] - T[a, b]  # T̄ᵀ
                # Where all is symmetric W D(q) P is the transpose of P D(q) W: half of W D(x) W goes with each.
                WT[a, b] = P[a, b] * q[b] - W[a, b] * (x[b] if paired else 0.5 * x[b])
        multiply(WT, k, W, k, R, 0)
        if paired:
            for a in range(k):
                for b in range(k):
                    R[a, b] += H[a, b] - sigma * P[a, b]  # L̄ᵀ
        else:
            for a in range(k):
                for b in range(a + 1):
                    value = R[a, b] + R[b, a] - sigma * P[a, b]
                    R[a, b], R[b, a] = value, value
        if len(p.d):
            diagonal_shares(p, indices, start, k, room, diagonal)
        for a in range(k):
            for b in range(k):
                P[a, b] = R[a, b] + R[b, a]
        multiply(P, k, X, K, G, start)
        if not paired:
            multiply_by_two(T, k, X, K, F, start)
            continue
        for a in range(k):
            for b in range(k):
                H[a, b] = T[a, b] + T[b, a]
                WT[a, b] = T[a, b] - T[b, a]  # E
        multiply(WT, k, room.Y, K, room.more, 0)
        multiply(H, k, X, K, F, start)
        multiply(WT, k, X, K, B, start)
        for a in range(k):
            for c in range(K):
                G[start + a, c] += room.more[a, c]
                B[start + a, c] = -B[start + a, c]
        pair_shares(p, indices, start, k, room, links, pairs)


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
