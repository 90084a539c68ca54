"""Numba kernels that choose slates: greedy selection from factors under rules, one list after the other.

The lists come as a CSR of candidates. Candidate a has the row `rows[a]` of a table of vectors (−1: none), which times
`scales` of that row is r_a, ‖r_a‖ ≤ 1; Φ_ab = r_a · r_b off the diagonal and 1 + RIDGE on it. What the chosen items
take from candidate j is always a product with r_j: 1 + RIDGE − Σ_t (b_t · r_j)² is its share of the determinant given
the items behind the rows b_t, so that no n × n array is ever needed.

Candidates are looked at by falling score, and a gain that can only fall stays as it is until it could be the best: what
it was is a bound of what it is. So most candidates of a long list are never looked at, and the choice is still that of
the definition.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled._numba import entry, helper

if TYPE_CHECKING:
    from contradpp.dpp.greedy import Lists, Slates

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]
Vectors = NDArray[np.floating]

LOWEST = 1e-12  # with scale "log": scores below this share of the largest count as that
TINY = 1e-290  # below, a number has no inverse
DPP, MMR, MSD, WINDOW = 0, 1, 2, 3
RANK, LINEAR, LOG, RAW = 0, 1, 2, 3


class Trade(NamedTuple):
    """How long a slate is, and how relevance is set against variety."""

    k: int
    delta: float
    method: int
    scale: int
    reach: int
    tie: float


class Order(NamedTuple):
    """The candidates of one list by falling score."""

    positions: Pointers  # in the list
    ready: Pointers  # how many of those are known so far, and whether the list itself is in order
    heap: Pointers
    line: Array  # an origin and a factor, by which a score becomes its worth
    worth: Array  # times 1 − δ


@helper
def sift(heap: Pointers, size: int, scores: Array) -> None:
    """Let the first entry of a heap sink to its place: the highest score comes first, of equals what stands first."""
    sink, at = heap[0], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        left = scores[heap[child]]
        if child + 1 < size:
            right = scores[heap[child + 1]]
            if right > left or (right == left and heap[child + 1] < heap[child]):
                child, left = child + 1, right
        if scores[sink] > left or (scores[sink] == left and sink < heap[child]):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = sink


@helper
def start_order(scores: Array, by: Order) -> None:
    """Put the positions into a heap, from which `next_in_order` takes them: few are ever looked at."""
    n = len(scores)
    by.ready[0] = 0
    falling = True
    for a in range(1, n):
        falling = falling and scores[a - 1] >= scores[a]
    by.ready[1] = falling
    if falling:  # as a recommender gives them
        return
    for a in range(n):  # each in turn rises to its place
        at = a
        while at > 0:
            parent = (at - 1) // 2
            if scores[by.heap[parent]] >= scores[a]:
                break
            by.heap[at] = by.heap[parent]
            at = parent
        by.heap[at] = a


@helper
def start_worth(scores: Array, trade: Trade, by: Order) -> None:
    """What `next_in_order` needs to say what a score is worth: an origin and a factor."""
    n = len(scores)
    origin, factor = 0.0, 1.0
    if trade.scale in (LINEAR, LOG):
        top, low = -np.inf, np.inf
        for a in range(n):
            top, low = max(top, scores[a]), min(low, scores[a])
        unit = max(abs(top), abs(low))
        factor = 1.0 / top if top > TINY else 0.0
        if trade.scale == LINEAR:
            origin, factor = low, 0.0
            mean, squares = 0.0, 0.0
            for a in range(n):
                mean += scores[a] / n
            spread = top - low
            if not additive(trade):
                origin = mean
                for a in range(n):
                    squares += ((scores[a] - mean) / unit) ** 2 / n if unit > TINY else 0.0
                spread = math.sqrt(squares) * unit
            if spread > 1e-12 * unit and spread > TINY:
                factor = 1.0 / spread
    by.line[0], by.line[1] = origin, factor


@helper
def next_in_order(scores: Array, trade: Trade, by: Order) -> None:
    """Bring the next candidate of the order in, with (1 − δ) times its worth."""
    a, n = by.ready[0], len(scores)
    position = a
    if not by.ready[1]:
        position = by.heap[0]
        by.heap[0] = by.heap[n - 1 - a]
        sift(by.heap, n - 1 - a, scores)
    by.positions[a] = position
    by.ready[0] = a + 1
    score = scores[position]
    if a > 0 and scores[by.positions[a - 1]] == score:
        by.worth[a] = by.worth[a - 1]
        return
    if trade.scale == RANK:
        worth = 1.0 / (a + 1)
    elif trade.scale == LOG:
        worth = max(score * by.line[1], LOWEST) if by.line[1] > 0 else 1.0
    else:
        worth = (score - by.line[0]) * by.line[1]
    if trade.scale in (RANK, LOG) and not additive(trade):
        worth = math.log(worth)
    by.worth[a] = (1.0 - trade.delta) * worth


@helper
def additive(trade: Trade) -> bool:
    """Whether variety is added to relevance, and not to its logarithm."""
    return trade.method in (MMR, MSD)


NEVER = -(2**40)


class Rules(NamedTuple):
    """The category of each candidate (−1: none), how many a slate may and must have of each, and how far apart."""

    groups: Codes
    caps: Pointers
    needs: Pointers
    needed: Pointers  # the categories whose need is not 0
    window: int


class Tally(NamedTuple):
    """Of each category: how many are chosen or fixed, where the latest stands, how many are left, if it presses."""

    used: Pointers
    latest: Pointers
    supply: Pointers
    wanted: NDArray[np.bool_]


@helper
def free_here(group: int, place: int, rules: Rules, tally: Tally) -> bool:
    """Whether an item of this category may stand at this place, for all that stands before it."""
    return group < 0 or (tally.used[group] < rules.caps[group] and place - tally.latest[group] >= rules.window)


@helper
def free_ahead(group: int, place: int, rules: Rules, first: int, fixed: Pointers, places: Pointers, f: int) -> bool:
    """Whether none of the items fixed from number f on is of this category and within the window."""
    if group >= 0 and rules.window > 1:
        for later in range(f, len(fixed)):
            if rules.groups[first + fixed[later]] == group and places[later] - place < rules.window:
                return False
    return True


@helper
def press(place: int, n_open: int, k: int, rules: Rules, tally: Tally, early: bool) -> bool:
    """Whether this place must go to one of the `wanted` categories, because too few of them would fit in later.

    If `early`, that is so as long as something is missing, and what most is missing of comes first.
    """
    missing, most = 0, 0
    for number in range(len(rules.needed)):
        group = rules.needed[number]
        lacks = max(rules.needs[group] - tally.used[group], 0)
        missing += lacks
        if lacks > most and tally.supply[group] > 0 and free_here(group, place, rules, tally):
            most = lacks
    pressed = False
    for number in range(len(rules.needed)):
        group = rules.needed[number]
        lacks = max(rules.needs[group] - tally.used[group], 0)
        fits = lacks > 0 and tally.supply[group] > 0 and free_here(group, place, rules, tally)
        last_chance = place + 1 + (lacks - 1) * rules.window >= k
        urgent = lacks == most if early else missing >= n_open or last_chance
        tally.wanted[group] = fits and urgent
        pressed = pressed or tally.wanted[group]
    return pressed


@helper
def start_tally(rules: Rules, first: int, n: int, fixed: Pointers, tally: Tally) -> None:
    """Count what the list offers of each category, and what is fixed in it."""
    for number in range(len(rules.needed)):
        tally.used[rules.needed[number]] = 0
        tally.supply[rules.needed[number]] = 0
    for a in range(first, first + n):
        group = rules.groups[a]
        if group >= 0:
            tally.used[group], tally.latest[group], tally.supply[group] = 0, NEVER, 0
    for a in range(first, first + n):
        if rules.groups[a] >= 0:
            tally.supply[rules.groups[a]] += 1
    for f in range(len(fixed)):
        group = rules.groups[first + fixed[f]]
        if group >= 0:
            tally.used[group] += 1
            tally.supply[group] -= 1


RIDGE = 1e-3  # on the diagonal of Φ: what is left of an exact copy is about twice this
FULL, FEW, RULED_OUT = 0, 1, 2  # how a list ended; below zero: −1 − the category of which there are too few


class Likeness(NamedTuple):
    """What is alike: vectors, the inverse lengths to which they are scaled, and the row of each candidate (or −1)."""

    table: Vectors  # (N, K)
    scales: Array  # (N,)
    rows: Pointers  # (candidates,)


class Work(NamedTuple):
    """What is known of the candidates of one list, by falling score, and of what is shown."""

    order: Order
    value: Array  # what `variety_of` gave when they were last looked at
    gain: Array  # and the gain, which bounds the present one
    seen: Pointers  # how many of the shown had been looked at
    taken: NDArray[np.bool_]  # by position
    close: Pointers
    shown: Pointers  # rows of the table
    basis: Vectors


@entry
def inverse_lengths(table: Vectors, first: int, last: int, scales: Array) -> None:
    """1/‖v‖ of some rows, 0 for a vector of zeros, NaN where a number is not finite."""
    for j in range(first, last):
        squares = table.dtype.type(0)
        for c in range(table.shape[1]):
            squares += table[j, c] * table[j, c]
        if 1e-30 < squares < 1e30:
            scales[j] = 1.0 / np.sqrt(squares)
            continue
        largest, whole = 0.0, 0.0  # very long, very short, or not finite
        for c in range(table.shape[1]):
            largest = max(largest, abs(float(table[j, c])))
            whole += 0.0 * float(table[j, c])
        scales[j] = np.nan if whole != 0.0 else 0.0  # 0 times NaN or infinity is NaN
        if whole == 0.0 and largest > 1e-100:
            for c in range(table.shape[1]):
                whole += (float(table[j, c]) / largest) ** 2
            scales[j] = 1.0 / (largest * np.sqrt(whole))


# -- What the shown items leave ------------------------------------------------------------------------


@helper
def show(likeness: Likeness, row: int, method: int, basis: Vectors, m: int) -> None:
    """Let the item of a row count as shown: row m of the basis is b_m, or r for MMR; for MSD row 0 is their sum."""
    table, K = likeness.table, likeness.table.shape[1]
    b = basis[0] if method == MSD else basis[m]
    if method != MSD or m == 0:
        for c in range(K):
            b[c] = 0.0
    if row < 0:
        return
    r, s = table[row], likeness.scales[row]
    if method in (MMR, MSD):
        for c in range(K):
            b[c] += s * r[c]
        return
    for c in range(K):
        b[c] = s * r[c]
    left = 1.0 + RIDGE
    for t in range(m):
        dot = table.dtype.type(0)
        for c in range(K):
            dot += basis[t, c] * r[c]
        along = s * dot
        left -= along * along
        for c in range(K):
            b[c] -= along * basis[t, c]
    inverse = 1.0 / np.sqrt(max(left, RIDGE))
    for c in range(K):
        b[c] *= inverse


@helper
def variety_of(likeness: Likeness, row: int, method: int, basis: Vectors, seen: int, m: int, before: float) -> float:
    """What is left of an item given the rows `seen` to m−1, `before` being what was left given the earlier ones.

    The share of the determinant for the DPP, the largest cosine for MMR, the sum of the distances for MSD.
    """
    table, K = likeness.table, likeness.table.shape[1]
    if row < 0 and method != MMR:
        return m if method == MSD else before
    s, first, last = 0.0 if row < 0 else likeness.scales[row], seen, m
    if method == MSD:
        first, last = 0, min(m, 1)
    value = before
    for t in range(first, last):
        dot = table.dtype.type(0)
        if row >= 0:
            for c in range(K):
                dot += basis[t, c] * table[row, c]
        along = float(s * dot)
        if method == MMR:
            value = max(value, along)
        elif method == MSD:
            value = m - along
        else:
            value -= along * along
    return value


# -- Greedy selection --------------------------------------------------------------------------------


@helper
def most_variety(trade: Trade, basis: Vectors, m: int, n_given: int) -> float:
    """The most that variety can add to the worth of a candidate."""
    if trade.method == MMR:
        return trade.delta
    if trade.method != MSD:
        return trade.delta * math.log(1.0 + RIDGE)
    squares = 0.0
    for c in range(basis.shape[1] if m > 0 else 0):
        squares += float(basis[0, c]) * float(basis[0, c])
    return pair_share(trade, n_given) * (m + math.sqrt(squares) * (1.0 + 1e-5))


@helper
def pair_share(trade: Trade, n_given: int) -> float:
    """What a distance counts in MSD, so that all of them make k times the mean distance."""
    return 2.0 * trade.delta / max(n_given + trade.k - 1, 1)


@helper
def gain_of(trade: Trade, worth: float, value: float, m: int, n_given: int) -> float:
    """The worth of a candidate and what variety adds to it."""
    if trade.method == MMR:
        return worth - trade.delta * value
    if trade.method == MSD:
        return worth + pair_share(trade, n_given) * value if m > 0 else worth
    return worth + trade.delta * math.log(max(value, RIDGE))


@helper
def best_candidate(
    likeness: Likeness, rules: Rules, trade: Trade, work: Work, tally: Tally, first: int, scores: Array, place: int,
    depth: int, n_given: int, fixed: Pointers, places: Pointers, f: int, pressed: bool,
) -> int:  # fmt: skip
    """The candidate of the largest gain that may stand at this place, −1 if none may."""
    best, found = -np.inf, 0
    ceiling = most_variety(trade, work.basis, depth, n_given)
    for a in range(len(scores)):
        if a == work.order.ready[0]:
            next_in_order(scores, trade, work.order)
        if work.order.worth[a] + ceiling < best - trade.tie:
            break  # nor can any after it be the best
        if work.taken[work.order.positions[a]] or (trade.method != MSD and work.gain[a] < best - trade.tie):
            continue
        group = rules.groups[first + work.order.positions[a]]
        if pressed and (group < 0 or not tally.wanted[group]):
            continue
        if not (free_here(group, place, rules, tally) and free_ahead(group, place, rules, first, fixed, places, f)):
            continue
        row, before = likeness.rows[first + work.order.positions[a]], work.value[a]
        work.value[a] = variety_of(likeness, row, trade.method, work.basis, work.seen[a], depth, before)
        work.seen[a] = depth
        if not additive(trade):  # a logarithm is below its tangent: often that bound will do
            work.gain[a] += trade.delta * (max(work.value[a], RIDGE) / max(before, RIDGE) - 1.0)
            if work.gain[a] < best - trade.tie:
                continue
        work.gain[a] = gain_of(trade, work.order.worth[a], work.value[a], depth, n_given)
        best = max(best, work.gain[a])
        if work.gain[a] >= best - trade.tie:
            work.close[found] = a
            found += 1
    for c in range(found):
        if work.gain[work.close[c]] >= best - trade.tie:
            return int(work.close[c])
    return -1


@helper
def forget(work: Work, n: int, method: int) -> None:
    """Nothing has been looked at."""
    for a in range(n):
        work.value[a] = -1.0 if method == MMR else 1.0 + RIDGE
        work.seen[a], work.gain[a] = 0, np.inf


@helper
def fill(
    likeness: Likeness, rules: Rules, trade: Trade, work: Work, tally: Tally, first: int, scores: Array,
    given: Pointers, fixed: Pointers, places: Pointers, early: bool, positions: Pointers, gains: Array,
) -> tuple[int, int]:  # fmt: skip
    """One slate, place by place: an item fixed there, or the best candidate; how many, and how it ended."""
    k, method, n = trade.k, trade.method, len(scores)
    start_tally(rules, first, n, fixed, tally)
    forget(work, n, method)
    for a in range(n):
        work.taken[a] = False
    for f in range(len(fixed)):
        work.taken[fixed[f]] = True
    m, built = len(given), 0
    for a in range(m):
        work.shown[a] = given[a]
    for f in range(len(fixed) if method != WINDOW else 0):  # what will stand there repels from the start
        work.shown[m] = likeness.rows[first + fixed[f]]
        m += 1
    place, f, closing, left_out = 0, 0, False, False
    while place < k:
        depth = m
        if method == WINDOW:  # only the latest count, and all is counted anew
            depth, built = min(m, trade.reach), 0
            forget(work, n, method)
        while built < depth:
            show(likeness, work.shown[m - depth + built], method, work.basis, built)
            built += 1
        pick = -1
        if not closing and not (f < len(fixed) and places[f] <= place):
            n_open = k - place - (len(fixed) - f)
            pressed = len(rules.needed) > 0 and press(place, n_open, k, rules, tally, early)
            while not closing:
                pick = best_candidate(likeness, rules, trade, work, tally, first, scores, place, depth, len(given),
                                      fixed, places, f, pressed)  # fmt: skip
                if pick >= 0:
                    break
                closing, pressed = not pressed, False  # what presses may be forbidden by what is fixed ahead
        if pick < 0 and f == len(fixed):
            break
        if pick < 0:  # an item at its place, or further up once nothing may stand before it
            position, gain = fixed[f], np.nan
            f += 1
        else:
            position, gain = work.order.positions[pick], work.gain[pick]
            work.taken[position] = True
        group = rules.groups[first + position]
        if pick < 0 and group >= 0 and place - tally.latest[group] < rules.window:
            tally.used[group] -= 1  # moved up, it would come too near
            left_out = True
            continue
        if group >= 0:
            tally.latest[group] = place
            if pick >= 0:
                tally.used[group] += 1
                tally.supply[group] -= 1
        positions[place], gains[place] = position, gain
        place += 1
        if pick >= 0 or method == WINDOW:
            work.shown[m] = likeness.rows[first + position]
            m += 1
    for number in range(len(rules.needed)):
        if tally.used[rules.needed[number]] < rules.needs[rules.needed[number]]:
            return place, -1 - rules.needed[number]
    if place == k:
        return place, FULL
    return place, RULED_OUT if left_out or place < n else FEW


@entry
def choose(
    likeness: Likeness, lists: Lists, rules: Rules, trade: Trade, first_list: int, last_list: int, out: Slates
) -> None:
    """The slates of some lists.

    Of candidates whose gains are within `tie` of the largest, the one with the higher score is taken, then the first.
    """
    longest, most = 1, 1
    for number in range(first_list, last_list):
        longest = max(longest, lists.indptr[number + 1] - lists.indptr[number])
        most = max(most, lists.given_ptr[number + 1] - lists.given_ptr[number])
    most += 2 * min(trade.k, longest)
    order = Order(
        np.empty(longest, np.int64), np.empty(2, np.int64), np.empty(longest, np.int64), np.empty(2), np.empty(longest)
    )
    work = Work(
        order, np.empty(longest), np.empty(longest), np.empty(longest, np.int64), np.empty(longest, np.bool_),
        np.empty(longest, np.int64), np.empty(most, np.int64),
        np.empty((most, likeness.table.shape[1]), likeness.table.dtype),
    )  # fmt: skip
    n_groups = len(rules.caps)
    tally = Tally(
        np.zeros(n_groups, np.int64), np.full(n_groups, NEVER), np.zeros(n_groups, np.int64),
        np.zeros(n_groups, np.bool_),
    )  # fmt: skip
    attempts = 2 if rules.window > 1 and len(rules.needed) > 0 else 1
    for number in range(first_list, last_list):
        first, n = lists.indptr[number], lists.indptr[number + 1] - lists.indptr[number]
        given = lists.given[lists.given_ptr[number] : lists.given_ptr[number + 1]]
        fixed = lists.fixed[lists.fixed_ptr[number] : lists.fixed_ptr[number + 1]]
        places = lists.places[lists.fixed_ptr[number] : lists.fixed_ptr[number + 1]]
        scores = lists.scores[first : first + n]
        start_order(scores, work.order)
        start_worth(scores, trade, work.order)
        for attempt in range(attempts):  # the second looks first of all to what a slate must have
            count, end = fill(likeness, rules, trade, work, tally, first, scores, given, fixed, places, attempt == 1,
                              out.positions[number], out.gains[number])  # fmt: skip
            out.counts[number], out.ends[number] = count, end
            if end >= 0:
                break
        for place in range(out.counts[number], out.positions.shape[1]):
            out.positions[number, place], out.gains[number, place] = -1, np.nan
