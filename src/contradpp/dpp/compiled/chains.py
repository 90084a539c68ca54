"""Numba kernels of a Markov chain over sets: moves that add, remove or exchange one or two items.

A move takes items R out of Y, chosen uniformly from those that may go, and puts items Q in, drawn from a density
q(Q | Z) that depends on Z = Y∖R only. By Metropolis and Hastings it is accepted with probability

    det L_Y' / det L_Y · q(R | Z) / q(Q | Z) · C(m, |R|) / C(m', |Q|),    Y' = Z ∪ Q,

m and m' being how many items may go before and after: the chain's law is then P(Y) ∝ det L_Y. One item comes by its
weight or as a partner of one in Z, two come as a pair of partners: such a pair may be likely where each alone is not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.blocks import WORK, first_at_least, invert_scaled, place_of, whole_panels
from contradpp.dpp.compiled.decorators import entry, helper

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

PARTNER = 0.5  # the chance that one item comes as a partner of one in the set
PAIRS = 0.2  # the chance of a move with two items, where there are partners
MOST_TRIES = 10_000  # to find items that can join, for a set to start from


class Parts(NamedTuple):
    """L = D + left Xᵀ + S, S as a CSR with sorted columns."""

    left: Array
    X: Array
    d: Array
    indptr: NDArray[np.int64]
    indices: Codes
    values: Array


class Proposals(NamedTuple):
    """What items are drawn by."""

    weights: Array  # (M,): they add up to 1
    cumulative: Array  # (M,): their running sums
    squares: Array  # (M,): the sum of squares of every row of S
    shares: Array  # (entries of S,): the running shares of the squares within each row


# -- Proposals -------------------------------------------------------------------------------------------


@helper
def partner_share(parts: Parts, squares: Array, i: int, j: int) -> float:
    """The share of j in the squares of row i of S."""
    start, stop = parts.indptr[i], parts.indptr[i + 1]
    place = first_at_least(parts.indices, start, stop, j)
    linked = place < stop and parts.indices[place] == j
    return float(parts.values[place] * parts.values[place] / squares[i]) if linked else 0.0


@helper
def log_density(parts: Parts, by: Proposals, Z: Codes, items: Codes) -> float:
    """log q(items | Z), for none, one or two items in any order.

    One comes by weight, or with the chance PARTNER as a partner of an item of Z, each equally likely (by weight if
    that one has none). Of two, one comes by weight and the other as its partner.
    """
    density = 1.0
    if len(items) == 1:
        alone, linked = 0, 0.0
        for a in range(len(Z)):
            if by.squares[Z[a]] > 0:
                linked += partner_share(parts, by.squares, Z[a], items[0])
            else:
                alone += 1
        n = max(len(Z), 1)
        chance = PARTNER if len(Z) > 0 else 0.0
        density = by.weights[items[0]] * (1.0 - chance + chance * alone / n) + chance * linked / n
    elif len(items) == 2:
        density = 0.0
        for a in range(2):
            i, j = items[a], items[1 - a]
            if by.squares[i] > 0:
                density += by.weights[i] * partner_share(parts, by.squares, i, j)
    return float(np.log(density))


@helper
def draw_items(parts: Parts, by: Proposals, Z: Codes, n: int, rng: np.random.Generator, items: Codes) -> bool:
    """n = 0, 1 or 2 items by `log_density`; whether they can join Z, in which none of them is."""
    for a in range(n):
        partner_of = -1
        if n == 1 and len(Z) > 0 and rng.random() < PARTNER:
            partner_of = Z[min(int(rng.random() * len(Z)), len(Z) - 1)]
        elif a == 1:
            partner_of = items[0]
            if not by.squares[partner_of] > 0:
                return False
        u = rng.random()
        if partner_of >= 0 and by.squares[partner_of] > 0:
            row = parts.indptr[partner_of], parts.indptr[partner_of + 1]
            items[a] = parts.indices[place_of(by.shares, row[0], row[1], u)]
        else:
            items[a] = place_of(by.cumulative, 0, len(by.cumulative), u)
        for b in range(len(Z)):
            if Z[b] == items[a]:
                return False
    return True


@helper
def log_choices(m: int, n: int) -> float:
    """log C(m, n) for n = 0, 1 or 2."""
    return 0.0 if n == 0 else np.log(float(m)) if n == 1 else np.log(0.5 * m * (m - 1.0))


# -- Sets and their determinants -------------------------------------------------------------------------


@helper
def entry_of(parts: Parts, i: int, j: int) -> float:
    """L_ij."""
    total = parts.d[i] if i == j else 0.0
    for c in range(parts.X.shape[1]):
        total += parts.left[i, c] * parts.X[j, c]
    start, stop = parts.indptr[i], parts.indptr[i + 1]
    place = first_at_least(parts.indices, start, stop, j)
    return total + parts.values[place] if place < stop and parts.indices[place] == j else total


@helper
def put_in(parts: Parts, Z: Codes, L: Array, items: Codes) -> tuple[Codes, Array]:
    """Z with these items behind it, and L of the whole from L_Z."""
    k, n = len(Z), len(Z) + len(items)
    Y, larger = np.empty(n, dtype=np.int32), np.empty((n, n))
    for a in range(n):
        Y[a] = Z[a] if a < k else items[a - k]
    for a in range(n):
        for b in range(n):
            larger[a, b] = L[a, b] if a < k and b < k else entry_of(parts, Y[a], Y[b])
    return Y, larger


@helper
def take_out(Y: Codes, L: Array, gone: NDArray[np.int64]) -> tuple[Codes, Array]:
    """Y without these places, and L of what is left."""
    n, count = len(Y) - len(gone), 0
    Z, smaller, places = np.empty(n, dtype=np.int32), np.empty((n, n)), np.empty(n, dtype=np.int64)
    for a in range(len(Y)):
        stays = True
        for g in gone:
            stays = stays and g != a
        if stays:
            places[count] = a
            count += 1
    for a in range(n):
        Z[a] = Y[places[a]]
        for b in range(n):
            smaller[a, b] = L[places[a], places[b]]
    return Z, smaller


@helper
def determinant(A: Array) -> float:
    """That of a small matrix, whose content is used up."""
    n, product = len(A), 1.0
    for c in range(n):
        best = c
        for a in range(c + 1, n):
            if abs(A[a, c]) > abs(A[best, c]):
                best = a
        if A[best, c] == 0.0:
            return 0.0
        if best != c:
            product = -product
            for b in range(n):
                A[c, b], A[best, b] = A[best, b], A[c, b]
        product *= A[c, c]
        for a in range(c + 1, n):
            factor = A[a, c] / A[c, c]
            for b in range(c, n):
                A[a, b] -= factor * A[c, b]
    return product


@helper
def det_ratio(parts: Parts, Y: Codes, W: Array, gone: NDArray[np.int64], items: Codes) -> float:
    """det L_Y' / det L_Y for Y' = Y without the places R and with the items Q, from W = L_Y⁻¹:

    the determinant of [[W_RR, W_R: L_YQ], [−L_QY W_:R, L_QQ − L_QY W L_YQ]], of up to four rows.
    """
    k, n_out, n_in = len(Y), len(gone), len(items)
    rows, columns = np.empty((n_in, k)), np.empty((n_in, k))  # L_QY, and W L_YQ transposed
    small = np.empty((n_out + n_in, n_out + n_in))
    for q in range(n_in):
        column = np.empty(k)
        for a in range(k):
            rows[q, a], column[a] = entry_of(parts, items[q], Y[a]), entry_of(parts, Y[a], items[q])
        for a in range(k):
            total = 0.0
            for b in range(k):
                total += W[a, b] * column[b]
            columns[q, a] = total
    for i in range(n_out):
        for j in range(n_out):
            small[i, j] = W[gone[i], gone[j]]
        for q in range(n_in):
            small[i, n_out + q] = columns[q, gone[i]]
            total = 0.0
            for a in range(k):
                total += rows[q, a] * W[a, gone[i]]
            small[n_out + q, i] = -total
    for p in range(n_in):
        for q in range(n_in):
            total = entry_of(parts, items[p], items[q])
            for a in range(k):
                total -= rows[p, a] * columns[q, a]
            small[n_out + p, n_out + q] = total
    return determinant(small)


@helper
def inverse_of(L: Array) -> tuple[Array, bool]:
    """L⁻¹, and whether there is one by the rule of `factor`."""
    k = len(L)
    room = whole_panels(k)
    A = np.empty((room, room))
    A[:k, :k] = L
    regular = invert_scaled(A, k, 0.0, np.empty((WORK, room)))[0] > -np.inf
    return A[:k, :k].copy(), regular


# -- The chain -------------------------------------------------------------------------------------------


@helper
def choose_places(first: int, last: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """n = 0, 1 or 2 different places in first..last−1, all choices equally likely."""
    places, m = np.empty(n, dtype=np.int64), last - first
    for a in range(n):
        places[a] = first + min(int(rng.random() * (m - a)), m - a - 1)
    if n == 2 and places[1] >= places[0]:
        places[1] += 1
    return places


@helper
def choose_move(free: bool, pairs: float, rng: np.random.Generator) -> tuple[int, int]:
    """How many items leave and come; a move and its reverse are equally likely."""
    two, u = rng.random() < pairs, rng.random()
    if not free:
        return (2, 2) if two else (1, 1)
    if two:
        return (2, 0) if u < 0.5 else (0, 2)
    return (1, 0) if u < 0.375 else (0, 1) if u < 0.75 else (1, 1)


@entry
def run_chain(
    parts: Parts, by: Proposals, given: Codes, size: int, n_steps: int, rng: np.random.Generator
) -> tuple[Codes, bool]:
    """The set after n_steps, the given items first, of `size` items unless that is −1; and whether there is one."""
    pairs = PAIRS if len(parts.indices) > 0 else 0.0
    items = np.empty(2, dtype=np.int32)
    Y, L = put_in(parts, items[:0], np.empty((0, 0)), given)
    W, possible = inverse_of(L)
    tries = 0
    while len(Y) < size and possible:  # a set to start from: whatever can join
        n_in = 2 if rng.random() < pairs and size - len(Y) > 1 else 1
        tries += 1
        if tries > MOST_TRIES:
            possible = False
        elif draw_items(parts, by, Y, n_in, rng, items):
            new_Y, new_L = put_in(parts, Y, L, items[:n_in])
            new_W, joins = inverse_of(new_L)
            if joins:
                Y, L, W, tries = new_Y, new_L, new_W, 0
    for _ in range(n_steps if possible else 0):
        n_out, n_in = choose_move(size < 0, pairs, rng)
        m = len(Y) - len(given)
        if n_out > m:
            continue
        gone = choose_places(len(given), len(Y), n_out, rng)
        Z, L_Z = take_out(Y, L, gone)
        chance = log_density(parts, by, Z, Y[gone]) + log_choices(m, n_out)
        if chance == -np.inf or not draw_items(parts, by, Z, n_in, rng, items):
            continue
        chance -= log_density(parts, by, Z, items[:n_in]) + log_choices(m - n_out + n_in, n_in)
        ratio = det_ratio(parts, Y, W, gone, items[:n_in])
        if ratio > 0 and np.log(rng.random()) < np.log(ratio) + chance:
            new_Y, new_L = put_in(parts, Z, L_Z, items[:n_in])
            new_W, joins = inverse_of(new_L)  # anew, against rounding
            if joins:
                Y, L, W = new_Y, new_L, new_W
    return Y, possible
