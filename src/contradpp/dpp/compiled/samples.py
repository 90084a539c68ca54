"""Kernels that draw sets: by eigenvectors, by elimination from I + L, or by a Markov chain.

Eliminating items from I + L one after the other gives, at the turn of item t, the kernel of the
items not yet eliminated, with nothing known about the others: its column c, row e and pivot d at t.
A sample goes the other way. With J the items drawn so far and F = L_J of that kernel, t stays out
with probability

    (1 + e_J F⁻¹ c_J / d) / d,

and F grows by c_J e_J / d. If t enters, F gets its row and column, too. A sample costs O(|J|²) per
item.

The chain adds, removes or exchanges one or two items. A move takes items R out of Y, uniformly from
those that may go, and puts items Q in, drawn from a density q(Q | Z) that depends on Z = Y∖R only.
By Metropolis and Hastings it is accepted with probability

    det L_Y' / det L_Y · q(R | Z) / q(Q | Z) · C(m, |R|) / C(m', |Q|),    Y' = Z ∪ Q,

with m and m' the numbers of items that may go before and after. The chain's distribution is then
P(Y) ∝ det L_Y. A single item comes by its weight or as a neighbor in S of one in Z. Two come as a
pair with an entry of S: such a pair may be likely where each alone is not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contradpp._types import Array, Codes, Ints, Rng
from contradpp.dpp.compiled._numba import entry, helper
from contradpp.dpp.compiled.blocks import (
    PANEL,
    WORK,
    first_at_least,
    invert_scaled,
    place_of,
    project_off,
    whole_panels,
)
from contradpp.dpp.compiled.kernels import KernelParts
from contradpp.dpp.factor import SINGULAR

RENEWED = 2 * PANEL  # items after which an inverse is computed anew
PROPOSED = 8  # items that are searched at a time


# -- By eigenvectors -------------------------------------------------------------------------------


# Random numbers come as an array of uniform ones: passing a generator takes Numba longer than a
# sample does. A kernel returns the place of the first number that it has not used.


@helper
def choose_eigenvectors(inclusion: Array, uniforms: Array, place: int, chosen: Ints) -> int:
    """Choose each eigenvector with its probability λ/(1 + λ), by a number each; return how many."""
    count = 0
    for n in range(len(inclusion)):
        if uniforms[place + n] < inclusion[n]:
            chosen[count] = n
            count += 1
    return count


@helper
def choose_k_eigenvectors(
    log_values: Array, table: Array, k: int, uniforms: Array, place: int, chosen: Ints
) -> int:
    """Choose k eigenvectors with probability ∝ the product of their values; return the next place.

    `table` holds the symmetric polynomials. At most one number per value is used.
    """
    left = k
    for n in range(len(log_values), 0, -1):
        if left == 0:
            break
        if left < n:  # the last ones must enter, whatever rounding says
            place += 1
            if (
                not np.log(uniforms[place - 1])
                < log_values[n - 1] + table[n - 1, left - 1] - table[n, left]
            ):
                continue
        left -= 1
        chosen[left] = n - 1
    return place


@helper
def propose(
    Y: Array,
    cumulative: Array,
    chosen: Ints,
    k: int,
    uniforms: Array,
    place: int,
    n: int,
    columns: Ints,
    targets: Array,
    items: Ints,
    rows: Array,
) -> None:
    """Propose n items, each by the squares of a chosen column, and copy their rows.

    Each takes two numbers. They are searched side by side: memory answers all in the time of one.
    """
    M = Y.shape[0]
    for j in range(n):
        columns[j] = chosen[min(int(uniforms[place + 3 * j] * k), k - 1)]
        targets[j] = uniforms[place + 3 * j + 1] * cumulative[columns[j], M - 1]
        items[j] = 0
    left = M  # places of which one is the first whose running sum exceeds the target
    while left > 1:
        half = left // 2
        for j in range(n):
            items[j] += half if cumulative[columns[j], items[j] + half - 1] <= targets[j] else 0
        left -= half
    for j in range(n):
        for e in range(k):
            rows[j, e] = Y[items[j], chosen[e]]


@helper
def sample_projection(
    Y: Array, cumulative: Array, chosen: Ints, k: int, uniforms: Array, place: int, out: Codes
) -> int:
    """Draw k items from the DPP that the k chosen orthonormal columns of Y span, exactly.

    Item i should come next with probability ∝ ‖Z y_i‖², Z the projection off what was drawn before.
    Propose i ∝ ‖y_i‖²: a chosen column uniformly, then an item by that column's squares, one binary
    search. Accept with probability ‖Z y_i‖²/‖y_i‖². Step t takes k/(k − t) proposals on average,
    each with three numbers. A proposal does not depend on those before it: several are made at a
    time, and those beyond the last item are dropped. Return the next place, −1 if the numbers were
    too few.
    """
    columns = np.empty(PROPOSED, dtype=np.int64)
    targets = np.empty(PROPOSED)
    items = np.empty(PROPOSED, dtype=np.int64)
    rows = np.empty((PROPOSED, k))
    basis = np.empty((k, k))
    t = n = j = 0
    while t < k:
        if j == n:
            n = min(PROPOSED, (len(uniforms) - place) // 3)
            j = 0
            if n == 0:
                return -1
            propose(Y, cumulative, chosen, k, uniforms, place, n, columns, targets, items, rows)
        residual = rows[j]
        u = uniforms[place + 2]
        i = items[j]
        j += 1
        place += 3
        norm = 0.0
        for e in range(k):
            norm += residual[e] * residual[e]
        project_off(residual, basis, t, residual)
        left = 0.0
        for e in range(k):
            left += residual[e] * residual[e]
        if left <= SINGULAR * norm or u * norm >= left:
            continue
        # Again, so that rounding does not grow over the steps.
        project_off(residual, basis, t, residual)
        left = 0.0
        for e in range(k):
            left += residual[e] * residual[e]
        for e in range(k):
            basis[t, e] = residual[e] / np.sqrt(left)
        out[t] = i
        t += 1
    return place


@entry
def sample_dpp(
    Y: Array, cumulative: Array, inclusion: Array, uniforms: Array, sizes: Ints
) -> tuple[Codes, int, int]:
    """Draw samples one after the other, as many as `sizes` has, or as the numbers suffice for.

    Return their items in one array, how many samples there are, and how many numbers were used.
    """
    K = len(inclusion)
    n = len(sizes)
    items = np.empty(n * K, dtype=np.int32)
    chosen = np.empty(K, dtype=np.int64)
    position = 0
    used = 0
    for s in range(n):
        if used + K > len(uniforms):
            return items[:position].copy(), s, used
        k = choose_eigenvectors(inclusion, uniforms, used, chosen)
        end = sample_projection(
            Y, cumulative, chosen, k, uniforms, used + K, items[position : position + k]
        )
        if end < 0:
            return items[:position].copy(), s, used
        sizes[s] = k
        position = position + k
        used = end
    return items[:position].copy(), n, used


@entry
def sample_k_dpp(
    Y: Array,
    cumulative: Array,
    log_values: Array,
    table: Array,
    k: int,
    uniforms: Array,
    sizes: Ints,
) -> tuple[Codes, int, int]:
    """Draw samples of size k; otherwise as `sample_dpp`."""
    K = len(log_values)
    n = len(sizes)
    items = np.empty(n * k, dtype=np.int32)
    chosen = np.empty(max(k, 1), dtype=np.int64)
    used = 0
    for s in range(n):
        if used + K > len(uniforms):
            return items[: s * k].copy(), s, used
        place = choose_k_eigenvectors(log_values, table, k, uniforms, used, chosen)
        end = sample_projection(
            Y, cumulative, chosen, k, uniforms, place, items[s * k : (s + 1) * k]
        )
        if end < 0:
            return items[: s * k].copy(), s, used
        sizes[s] = k
        used = end
    return items, n, used


# -- By elimination --------------------------------------------------------------------------------


class Elimination(NamedTuple):
    """The LU factors of I + L: dense for the first c items, then low-rank for the others."""

    X: Array  # (M, r)
    lu: Array  # (c, c)
    columns: Array  # (M − c, r)
    rows: Array  # (M − c, r)
    pivots: Array  # (M − c,)


@entry
def eliminate_rows(
    X: Array, shift: Array, G: Array, columns: Array, rows: Array, pivots: Array
) -> None:
    """Eliminate all items of diag(shift) + X G Xᵀ in order: G becomes that of what remains.

    For item t, columns[t] = G x_t / d and rows[t] = Gᵀ x_t, so that X columns[t] is c/d and X
    rows[t] is e.
    """
    n, r = X.shape
    for t in range(n):
        pivot = shift[t]
        for a in range(r):
            up = 0.0
            down = 0.0
            for b in range(r):
                up += G[a, b] * X[t, b]
                down += G[b, a] * X[t, b]
            columns[t, a] = up
            rows[t, a] = down
            pivot += X[t, a] * up
        pivots[t] = pivot
        for a in range(r):
            columns[t, a] /= pivot
            for b in range(r):
                G[a, b] -= columns[t, a] * rows[t, b]


@entry
def eliminate(A: Array) -> None:
    """Replace a square matrix by its LU factors without pivoting, L with a unit diagonal."""
    n = len(A)
    for c in range(n):
        for a in range(c + 1, n):
            A[a, c] /= A[c, c]
            factor = A[a, c]
            for b in range(c + 1, n):
                A[a, b] -= factor * A[c, b]


@helper
def solve_item(p: Array, q: Array, k: int, inverse: Array, g: Array, h: Array) -> float:
    """Write g = F⁻¹ p and h = qᵀ F⁻¹ for p = c_J/d and q = e_J; return w = qᵀ F⁻¹ p.

    The item stays out with probability (1 + w)/d.
    """
    w = 0.0
    for a in range(k):
        up = 0.0
        down = 0.0
        for b in range(k):
            up += inverse[a, b] * p[b]
            down += q[b] * inverse[b, a]
        g[a] = up
        h[a] = down
        w += q[a] * up
    return w


@helper
def leave_out(
    p: Array, q: Array, k: int, w: float, g: Array, h: Array, F: Array, inverse: Array
) -> None:
    """Update F to F + p qᵀ, and its inverse, for an item that stays out."""
    for a in range(k):
        factor = g[a] / (1.0 + w)
        for b in range(k):
            F[a, b] += p[a] * q[b]
            inverse[a, b] -= factor * h[b]


@helper
def copy_square(A: Array, k: int, out: Array) -> None:
    """Copy the first k rows and columns."""
    for a in range(k):
        for b in range(k):
            out[a, b] = A[a, b]


@helper
def take_in(
    p: Array,
    q: Array,
    pivot: float,
    k: int,
    w: float,
    g: Array,
    h: Array,
    F: Array,
    inverse: Array,
    fresh: Array,
) -> None:
    """Update F to [[F + p qᵀ, p d], [qᵀ, d − 1]], and its inverse, for an item that enters.

    The matrix is [[I, p], [0, 1]] [[F, p], [qᵀ, d − 1]], and d − 1 − w, by which the inverse
    divides, is d times the probability that the item enters. Every few items the inverse is
    computed anew, against rounding.
    """
    rest = pivot - 1.0 - w
    for a in range(k):
        factor = g[a] / rest
        for b in range(k):
            F[a, b] += p[a] * q[b]
            inverse[a, b] += factor * h[b]
        F[a, k] = p[a] * pivot
        F[k, a] = q[a]
        inverse[a, k] = -g[a] * (1.0 + (1.0 + w) / rest)
        inverse[k, a] = -h[a] / rest
    F[k, k] = pivot - 1.0
    inverse[k, k] = (1.0 + w) / rest
    if (k + 1) % RENEWED == 0:
        copy_square(F, k + 1, fresh)
        if invert_scaled(fresh, k + 1, 0.0, np.empty((WORK, k + 1)))[0] > -np.inf:
            copy_square(fresh, k + 1, inverse)


@helper
def draw_set(
    factors: Elimination, rng: Rng, most: int, squares: Array, work: Array, out: Codes
) -> int:
    """Draw one set, as positions in X: those of `lu` last to first, then the others.

    Return its size, −1 once it exceeds `most` items.
    """
    X, lu, columns, rows, pivots = factors
    F = squares[0]
    inverse = squares[1]
    fresh = squares[2]
    p = work[0]
    q = work[1]
    g = work[2]
    h = work[3]
    n_dense = len(lu)
    r = X.shape[1]
    k = 0
    for step in range(len(X)):
        t = n_dense - 1 - step if step < n_dense else n_dense + len(X) - 1 - step
        if step < n_dense:
            pivot = lu[t, t]
            for a in range(k):
                p[a] = lu[out[a], t]
                q[a] = lu[t, out[a]]
        else:
            pivot = pivots[t - n_dense]
            column = columns[t - n_dense]
            row = rows[t - n_dense]
            for a in range(k):
                up = 0.0
                down = 0.0
                x = X[out[a]]
                for b in range(r):
                    up += x[b] * column[b]
                    down += x[b] * row[b]
                p[a] = up
                q[a] = down
        u = rng.random()
        if k == 0 and u < 1.0 / pivot:
            continue
        w = solve_item(p, q, k, inverse, g, h)
        if u < (1.0 + w) / pivot or not pivot - 1.0 - w > SINGULAR * pivot:
            leave_out(p, q, k, w, g, h, F, inverse)
        elif k == most:
            return -1
        else:
            take_in(p, q, pivot, k, w, g, h, F, inverse, fresh)
            out[k] = t
            k += 1
    return k


@entry
def draw_sets(
    factors: Elimination, rng: Rng, n: int, most: int, size: int, tries: int, sizes: Ints
) -> Codes:
    """Draw n sets; with size ≥ 0 only of that size, with at most `tries` for each.

    Return the positions in one array and write the sizes: −1 if no try gave the size, which ends
    the drawing.
    """
    items = np.empty(max(16 * n, most), dtype=np.int32)
    out = np.empty(most + 1, dtype=np.int32)
    squares = np.empty((3, most + 1, most + 1))
    work = np.empty((4, most + 1))
    position = 0
    for s in range(n):
        sizes[s] = -1
        for _ in range(tries):
            k = draw_set(factors, rng, most, squares, work, out)
            if k >= 0 and (size < 0 or k == size):
                sizes[s] = k
                break
        if sizes[s] < 0:
            break
        if position + k > len(items):
            larger = np.empty(2 * len(items) + k, dtype=np.int32)
            for a in range(position):
                larger[a] = items[a]
            items = larger
        for a in range(k):
            items[position + a] = out[a]
        position += k
    return items[:position].copy()


NEIGHBOR = 0.5  # the chance that an item comes as a neighbor in S of one in the set
PAIRS = 0.2  # the chance of a move with two items, if S is not zero
MAX_TRIES = 10_000  # to find items that can join, for a set to start from


class Proposals(NamedTuple):
    """The weights by which items are proposed."""

    weights: Array  # (M,), of sum 1
    cumulative: Array  # (M,): their running sums
    squares: Array  # (M,): the sum of squares of every row of S
    row_cumulative: Array  # (entries of S,): running sums of the squares of a row over their total


# -- Proposals -------------------------------------------------------------------------------------


@helper
def neighbor_probability(parts: KernelParts, squares: Array, i: int, j: int) -> float:
    """Return S_ij² / Σ_k S_ik²."""
    start = parts.indptr[i]
    stop = parts.indptr[i + 1]
    place = first_at_least(parts.indices, start, stop, j)
    linked = place < stop and parts.indices[place] == j
    return float(parts.values[place] * parts.values[place] / squares[i]) if linked else 0.0


@helper
def log_density(parts: KernelParts, by: Proposals, Z: Codes, items: Codes) -> float:
    """Return log q(items | Z), for none, one or two items in any order.

    One item comes by weight, or with the chance NEIGHBOR as a neighbor in S of an item of Z, each
    equally likely (by weight if that one has none). Of two, one comes by weight and the other as
    its neighbor.
    """
    density = 1.0
    if len(items) == 1:
        alone = 0
        linked = 0.0
        for a in range(len(Z)):
            if by.squares[Z[a]] > 0:
                linked += neighbor_probability(parts, by.squares, Z[a], items[0])
            else:
                alone += 1
        n = max(len(Z), 1)
        chance = NEIGHBOR if len(Z) > 0 else 0.0
        density = by.weights[items[0]] * (1.0 - chance + chance * alone / n) + chance * linked / n
    elif len(items) == 2:
        density = 0.0
        for a in range(2):
            i = items[a]
            j = items[1 - a]
            if by.squares[i] > 0:
                density += by.weights[i] * neighbor_probability(parts, by.squares, i, j)
    return float(np.log(density))


@helper
def draw_items(parts: KernelParts, by: Proposals, Z: Codes, n: int, rng: Rng, items: Codes) -> bool:
    """Draw n = 0, 1 or 2 items by `log_density`; return whether none of them is in Z."""
    for a in range(n):
        neighbor_of = -1
        if n == 1 and len(Z) > 0 and rng.random() < NEIGHBOR:
            neighbor_of = Z[min(int(rng.random() * len(Z)), len(Z) - 1)]
        elif a == 1:
            neighbor_of = items[0]
            if not by.squares[neighbor_of] > 0:
                return False
        u = rng.random()
        if neighbor_of >= 0 and by.squares[neighbor_of] > 0:
            row = parts.indptr[neighbor_of], parts.indptr[neighbor_of + 1]
            items[a] = parts.indices[place_of(by.row_cumulative, row[0], row[1], u)]
        else:
            items[a] = place_of(by.cumulative, 0, len(by.cumulative), u)
        for b in range(len(Z)):
            if Z[b] == items[a]:
                return False
    return True


@helper
def log_choices(m: int, n: int) -> float:
    """Return log C(m, n) for n = 0, 1 or 2."""
    return 0.0 if n == 0 else np.log(float(m)) if n == 1 else np.log(0.5 * m * (m - 1.0))


# -- Sets and their determinants -------------------------------------------------------------------


@helper
def entry_of(parts: KernelParts, i: int, j: int) -> float:
    """Return L_ij."""
    total = parts.d[i] if i == j else 0.0
    for c in range(parts.X.shape[1]):
        total += parts.left[i, c] * parts.X[j, c]
    start = parts.indptr[i]
    stop = parts.indptr[i + 1]
    place = first_at_least(parts.indices, start, stop, j)
    return total + parts.values[place] if place < stop and parts.indices[place] == j else total


@helper
def put_in(parts: KernelParts, Z: Codes, L: Array, items: Codes) -> tuple[Codes, Array]:
    """Return Z followed by these items, and L of that set from L_Z."""
    k = len(Z)
    n = len(Z) + len(items)
    Y = np.empty(n, dtype=np.int32)
    larger = np.empty((n, n))
    for a in range(n):
        Y[a] = Z[a] if a < k else items[a - k]
    for a in range(n):
        for b in range(n):
            larger[a, b] = L[a, b] if a < k and b < k else entry_of(parts, Y[a], Y[b])
    return Y, larger


@helper
def take_out(Y: Codes, L: Array, gone: Ints) -> tuple[Codes, Array]:
    """Return Y without these places, and L of what remains."""
    n = len(Y) - len(gone)
    count = 0
    Z = np.empty(n, dtype=np.int32)
    smaller = np.empty((n, n))
    places = np.empty(n, dtype=np.int64)
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
    """Return the determinant of a small matrix, whose content is used up."""
    n = len(A)
    product = 1.0
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
def det_ratio(parts: KernelParts, Y: Codes, W: Array, gone: Ints, items: Codes) -> float:
    """Return det L_Y' / det L_Y for Y' = Y without places R and with items Q; W = L_Y⁻¹.

    It is the determinant, of up to four rows, of

        [[W_RR, W_R: L_YQ], [−L_QY W_:R, L_QQ − L_QY W L_YQ]].
    """
    k = len(Y)
    n_out = len(gone)
    n_in = len(items)
    rows = np.empty((n_in, k))
    columns = np.empty((n_in, k))  # L_QY, and W L_YQ transposed
    small = np.empty((n_out + n_in, n_out + n_in))
    for q in range(n_in):
        column = np.empty(k)
        for a in range(k):
            rows[q, a] = entry_of(parts, items[q], Y[a])
            column[a] = entry_of(parts, Y[a], items[q])
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
    """Return L⁻¹, and whether L is regular by the rule of `dpp.factor`."""
    k = len(L)
    room = whole_panels(k)
    A = np.empty((room, room))
    A[:k, :k] = L
    regular = invert_scaled(A, k, 0.0, np.empty((WORK, room)))[0] > -np.inf
    return A[:k, :k].copy(), regular


# -- The chain -------------------------------------------------------------------------------------


@helper
def choose_places(first: int, last: int, n: int, rng: Rng) -> Ints:
    """Choose n = 0, 1 or 2 different places in first..last−1 uniformly."""
    places = np.empty(n, dtype=np.int64)
    m = last - first
    for a in range(n):
        places[a] = first + min(int(rng.random() * (m - a)), m - a - 1)
    if n == 2 and places[1] >= places[0]:
        places[1] += 1
    return places


@helper
def choose_move(free: bool, pairs: float, rng: Rng) -> tuple[int, int]:
    """Choose how many items leave and come; a move and its reverse are equally likely."""
    two = rng.random() < pairs
    u = rng.random()
    if not free:
        return (2, 2) if two else (1, 1)
    if two:
        return (2, 0) if u < 0.5 else (0, 2)
    return (1, 0) if u < 0.375 else (0, 1) if u < 0.75 else (1, 1)


@entry
def run_chain(
    parts: KernelParts, by: Proposals, given: Codes, size: int, n_steps: int, rng: Rng
) -> tuple[Codes, bool]:
    """Return the set after n_steps, given items first, and whether a start was found.

    The set has `size` items unless that is −1.
    """
    pairs = PAIRS if len(parts.indices) > 0 else 0.0
    items = np.empty(2, dtype=np.int32)
    Y, L = put_in(parts, items[:0], np.empty((0, 0)), given)
    W, possible = inverse_of(L)
    tries = 0
    while len(Y) < size and possible:  # a set to start from: any items that can join
        n_in = 2 if rng.random() < pairs and size - len(Y) > 1 else 1
        tries += 1
        if tries > MAX_TRIES:
            possible = False
        elif draw_items(parts, by, Y, n_in, rng, items):
            new_Y, new_L = put_in(parts, Y, L, items[:n_in])
            new_W, joins = inverse_of(new_L)
            if joins:
                Y = new_Y
                L = new_L
                W = new_W
                tries = 0
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
                Y = new_Y
                L = new_L
                W = new_W
    return Y, possible
