"""Numba kernels of slates: greedy selection under rules, one list of candidates after the other.

Candidate a has the row `rows[a]` of a table of vectors (−1: none). That row times its scale is r_a,
‖r_a‖ ≤ 1, and

    Φ_ab = r_a · r_b for a ≠ b,    Φ_aa = 1 + RIDGE.

The chosen items have an orthogonal basis b_1, ..., b_m, so no n × n array is needed: given them,
candidate j keeps

    c_j = 1 + RIDGE − Σ_t (b_t · r_j)².

Candidates are visited by falling score. An earlier gain bounds the present one, because c_j only
falls. So most candidates of a long list are never visited, and the choice is still that of the
definition.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._types import Array, Codes, Flags, Ints
from contradpp.dpp.compiled import entry, helper

if TYPE_CHECKING:
    from contradpp.slates.greedy import Lists, Slates, Vectors
    from contradpp.slates.rules import CategoryLimits

LOWEST = 1e-12  # with scale "log", scores below this share of the largest count as this share
TINY = 1e-290  # smaller numbers have no inverse
RIDGE = 1e-3  # on the diagonal of Φ: an exact copy keeps about twice this
NEVER = -(2**40)  # the place of the latest item of a category without one
DPP, MMR, MSD, WINDOW = 0, 1, 2, 3
RANK, LINEAR, LOG, RAW = 0, 1, 2, 3
COMPLETE, TOO_FEW, RULED_OUT = 0, 1, 2  # end of a list; −1 − g if category g has too few items


class ObjectiveNumbers(NamedTuple):
    """A `SlateObjective` with numbers in place of words."""

    k: int
    diversity: float
    method: int
    scale: int
    window_size: int
    tie: float  # gains that differ by no more are equal


class OneList(NamedTuple):
    """One list of candidates with its objective and its rules."""

    vectors: Vectors
    objective: ObjectiveNumbers
    limits: CategoryLimits
    scores: Array  # (n,)
    rows: Ints  # (n,)
    groups: Codes  # (n,): categories, −1 for none
    given: Ints  # rows of the given items
    fixed: Ints  # positions in the list
    places: Ints  # of the fixed items, ascending


class SearchState(NamedTuple):
    """The state of the search: candidates by falling score, shown items, counts by category."""

    positions: Ints  # in the list, by falling score
    ready: Ints  # number of positions known so far; 1 if the list itself is in order
    heap: Ints
    line: Array  # origin and factor that turn a score into relevance
    relevance: Array  # times 1 − diversity
    variety: Array  # result of `variety_of` at the last visit
    gain: Array  # at the last visit: a bound of the present gain
    seen: Ints  # number of shown items at the last visit
    close: Ints  # candidates whose gain is within the tie of the largest
    taken: Flags  # by position in the list
    shown: Ints  # rows of the items that repel
    basis: NDArray[np.floating]
    used: Ints  # by category: number of items chosen or fixed
    latest: Ints  # by category: place of the latest item
    supply: Ints  # by category: number of candidates left
    urgent: Flags  # by category: this place must have one


@entry
def choose(
    vectors: Vectors,
    lists: Lists,
    limits: CategoryLimits,
    objective: ObjectiveNumbers,
    first_list: int,
    last_list: int,
    out: Slates,
) -> None:
    """Choose the slates of some lists.

    Among gains within `tie` of the largest, the highest score wins, then the first position.
    """
    longest, most_given = 1, 1
    for number in range(first_list, last_list):
        longest = max(longest, lists.indptr[number + 1] - lists.indptr[number])
        most_given = max(most_given, lists.given_ptr[number + 1] - lists.given_ptr[number])
    most_shown = most_given + 2 * min(objective.k, longest)
    state = new_state(longest, most_shown, vectors, len(limits.caps))
    attempts = 2 if limits.window > 1 and len(limits.needed) > 0 else 1
    for number in range(first_list, last_list):
        first, last = lists.indptr[number], lists.indptr[number + 1]
        first_given, last_given = lists.given_ptr[number], lists.given_ptr[number + 1]
        first_fixed, last_fixed = lists.fixed_ptr[number], lists.fixed_ptr[number + 1]
        one = OneList(
            vectors,
            objective,
            limits,
            lists.scores[first:last],
            lists.rows[first:last],
            limits.groups[first:last],
            lists.given[first_given:last_given],
            lists.fixed[first_fixed:last_fixed],
            lists.places[first_fixed:last_fixed],
        )
        start_order(one, state)
        start_relevance(one, state)
        for attempt in range(attempts):  # the second attempt meets minimum counts first
            count, end = fill_slate(
                one, state, attempt == 1, out.positions[number], out.gains[number]
            )
            out.counts[number] = count
            out.ends[number] = end
            if end >= 0:
                break
        for place in range(out.counts[number], out.positions.shape[1]):
            out.positions[number, place] = -1
            out.gains[number, place] = np.nan


@entry
def inverse_lengths(table: NDArray[np.floating], first: int, last: int, scales: Array) -> None:
    """Write 1/‖v‖ of some rows: 0 for a vector of zeros, NaN if a number is not finite."""
    for j in range(first, last):
        squares = table.dtype.type(0)
        for c in range(table.shape[1]):
            squares += table[j, c] * table[j, c]
        if 1e-30 < squares < 1e30:
            scales[j] = 1.0 / np.sqrt(squares)
            continue
        largest, total = 0.0, 0.0  # very long, very short, or not finite
        for c in range(table.shape[1]):
            largest = max(largest, abs(float(table[j, c])))
            total += 0.0 * float(table[j, c])
        scales[j] = np.nan if total != 0.0 else 0.0  # 0 times NaN or infinity is NaN
        if total == 0.0 and largest > 1e-100:
            for c in range(table.shape[1]):
                total += (float(table[j, c]) / largest) ** 2
            scales[j] = 1.0 / (largest * np.sqrt(total))


# -- Greedy selection ------------------------------------------------------------------------------


@helper
def new_state(longest: int, most_shown: int, vectors: Vectors, n_groups: int) -> SearchState:
    """Allocate the state for lists of at most this length."""
    return SearchState(
        np.empty(longest, np.int64),
        np.empty(2, np.int64),
        np.empty(longest, np.int64),
        np.empty(2),
        np.empty(longest),
        np.empty(longest),
        np.empty(longest),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.bool_),
        np.empty(most_shown, np.int64),
        np.empty((most_shown, vectors.table.shape[1]), vectors.table.dtype),
        np.zeros(n_groups, np.int64),
        np.full(n_groups, NEVER),
        np.zeros(n_groups, np.int64),
        np.zeros(n_groups, np.bool_),
    )


@helper
def fill_slate(
    one: OneList, state: SearchState, early: bool, positions: Ints, gains: Array
) -> tuple[int, int]:
    """Fill a slate with fixed items and best candidates; return its length and end."""
    k, method, limits = one.objective.k, one.objective.method, one.limits
    n, n_fixed = len(one.scores), len(one.fixed)
    start_counts(one, state)
    forget_visits(one, state)
    n_shown, n_built = start_shown(one, state), 0
    place, f, closing, left_out = 0, 0, False, False
    while place < k:
        depth = n_shown
        if method == WINDOW:  # the basis starts again at every place
            depth, n_built = min(n_shown, one.objective.window_size), 0
            forget_visits(one, state)
        while n_built < depth:
            show(one, state.shown[n_shown - depth + n_built], state.basis, n_built)
            n_built += 1
        pick = -1
        if not closing and not (f < n_fixed and one.places[f] <= place):
            n_open = k - place - (n_fixed - f)
            urgent = len(limits.needed) > 0 and find_urgent(one, state, place, n_open, early)
            while not closing:
                pick = best_candidate(one, state, place, depth, f, urgent)
                if pick >= 0:
                    break
                closing = not urgent
                urgent = False  # fixed items ahead may forbid every urgent category here
        if pick < 0 and f == n_fixed:
            break
        if pick < 0:  # a fixed item at its place, or further up if nothing may stand before it
            position, gain = one.fixed[f], np.nan
            f += 1
        else:
            position, gain = state.positions[pick], state.gain[pick]
            state.taken[position] = True
        group = one.groups[position]
        if pick < 0 and group >= 0 and place - state.latest[group] < limits.window:
            state.used[group] -= 1  # further up, the fixed item would break the window
            left_out = True
            continue
        if group >= 0:
            state.latest[group] = place
            if pick >= 0:
                state.used[group] += 1
                state.supply[group] -= 1
        positions[place] = position
        gains[place] = gain
        place += 1
        if pick >= 0 or method == WINDOW:
            state.shown[n_shown] = one.rows[position]
            n_shown += 1
    for number in range(len(limits.needed)):
        if state.used[limits.needed[number]] < limits.needs[limits.needed[number]]:
            return place, -1 - limits.needed[number]
    if place == k:
        return place, COMPLETE
    return place, RULED_OUT if left_out or place < n else TOO_FEW


@helper
def start_shown(one: OneList, state: SearchState) -> int:
    """Show the given items, and fixed ones except with a window; return how many are shown."""
    for a in range(len(one.scores)):
        state.taken[a] = False
    n_shown = len(one.given)
    for a in range(n_shown):
        state.shown[a] = one.given[a]
    for f in range(len(one.fixed)):
        state.taken[one.fixed[f]] = True
        if one.objective.method != WINDOW:  # fixed items repel before their place is reached
            state.shown[n_shown] = one.rows[one.fixed[f]]
            n_shown += 1
    return n_shown


@helper
def forget_visits(one: OneList, state: SearchState) -> None:
    """Mark every candidate as never visited."""
    for a in range(len(one.scores)):
        state.variety[a] = -1.0 if one.objective.method == MMR else 1.0 + RIDGE
        state.seen[a] = 0
        state.gain[a] = np.inf


@helper
def best_candidate(
    one: OneList, state: SearchState, place: int, depth: int, f: int, urgent: bool
) -> int:
    """Return the allowed candidate of the largest gain at this place, −1 if none is allowed."""
    objective = one.objective
    best, found = -np.inf, 0
    ceiling = most_variety(one, state.basis, depth)
    for a in range(len(one.scores)):
        if a == state.ready[0]:
            next_in_order(one, state)
        if state.relevance[a] + ceiling < best - objective.tie:
            break  # no later candidate can be the best either
        position = state.positions[a]
        if state.taken[position] or (
            objective.method != MSD and state.gain[a] < best - objective.tie
        ):
            continue
        group = one.groups[position]
        if urgent and (group < 0 or not state.urgent[group]):
            continue
        if not (is_allowed(one, state, group, place) and is_free_ahead(one, group, place, f)):
            continue
        before = state.variety[a]
        state.variety[a] = variety_of(one, one.rows[position], state, state.seen[a], depth, before)
        state.seen[a] = depth
        if not is_additive(objective):  # a tangent bounds the logarithm, and often suffices
            ratio = max(state.variety[a], RIDGE) / max(before, RIDGE)
            state.gain[a] += objective.diversity * (ratio - 1.0)
            if state.gain[a] < best - objective.tie:
                continue
        state.gain[a] = gain_of(one, state.relevance[a], state.variety[a], depth)
        best = max(best, state.gain[a])
        if state.gain[a] >= best - objective.tie:
            state.close[found] = a
            found += 1
    for c in range(found):
        if state.gain[state.close[c]] >= best - objective.tie:
            return int(state.close[c])
    return -1


# -- Variety ---------------------------------------------------------------------------------------


@helper
def show(one: OneList, row: int, basis: NDArray[np.floating], m: int) -> None:
    """Add an item to the shown ones.

    Row m of the basis becomes b_m for the DPP and r for MMR; for MSD row 0 is the sum of all r.
    """
    table, K, method = one.vectors.table, one.vectors.table.shape[1], one.objective.method
    b = basis[0] if method == MSD else basis[m]
    if method != MSD or m == 0:
        for c in range(K):
            b[c] = 0.0
    if row < 0:
        return
    r, scale = table[row], one.vectors.scales[row]
    if method in (MMR, MSD):
        for c in range(K):
            b[c] += scale * r[c]
        return
    for c in range(K):
        b[c] = scale * r[c]
    left = 1.0 + RIDGE
    for t in range(m):
        dot = table.dtype.type(0)
        for c in range(K):
            dot += basis[t, c] * r[c]
        along = scale * dot
        left -= along * along
        for c in range(K):
            b[c] -= along * basis[t, c]
    inverse = 1.0 / np.sqrt(max(left, RIDGE))
    for c in range(K):
        b[c] *= inverse


@helper
def variety_of(
    one: OneList, row: int, state: SearchState, seen: int, m: int, before: float
) -> float:
    """Return the variety of an item given m shown ones, from its variety given the first `seen`.

    This is c_j for the DPP, the largest cosine for MMR, the sum of distances for MSD.
    """
    table, K, method = one.vectors.table, one.vectors.table.shape[1], one.objective.method
    if row < 0 and method != MMR:
        return m if method == MSD else before
    scale = 0.0 if row < 0 else one.vectors.scales[row]
    first, last = seen, m
    if method == MSD:
        first, last = 0, min(m, 1)
    value = before
    for t in range(first, last):
        dot = table.dtype.type(0)
        if row >= 0:
            for c in range(K):
                dot += state.basis[t, c] * table[row, c]
        along = float(scale * dot)
        if method == MMR:
            value = max(value, along)
        elif method == MSD:
            value = m - along
        else:
            value -= along * along
    return value


@helper
def most_variety(one: OneList, basis: NDArray[np.floating], m: int) -> float:
    """Return the most that variety can add to a gain."""
    if one.objective.method == MMR:
        return one.objective.diversity
    if one.objective.method != MSD:
        return one.objective.diversity * math.log(1.0 + RIDGE)
    squares = 0.0
    for c in range(basis.shape[1] if m > 0 else 0):
        squares += float(basis[0, c]) * float(basis[0, c])
    return pair_weight(one) * (m + math.sqrt(squares) * (1.0 + 1e-5))


@helper
def gain_of(one: OneList, relevance: float, variety: float, m: int) -> float:
    """Return the gain of a candidate from its relevance and its variety given m shown items."""
    if one.objective.method == MMR:
        return relevance - one.objective.diversity * variety
    if one.objective.method == MSD:
        return relevance + pair_weight(one) * variety if m > 0 else relevance
    return relevance + one.objective.diversity * math.log(max(variety, RIDGE))


@helper
def pair_weight(one: OneList) -> float:
    """Return the weight of a distance in MSD: all distances add up to k times their mean."""
    return 2.0 * one.objective.diversity / max(len(one.given) + one.objective.k - 1, 1)


@helper
def is_additive(objective: ObjectiveNumbers) -> bool:
    """Tell if variety is added to relevance itself, not to its logarithm."""
    return objective.method in (MMR, MSD)


# -- Candidates by falling score -------------------------------------------------------------------


@helper
def start_order(one: OneList, state: SearchState) -> None:
    """Put the positions into a heap, from which `next_in_order` takes only those needed."""
    scores = one.scores
    n = len(scores)
    state.ready[0] = 0
    falling = True
    for a in range(1, n):
        falling = falling and scores[a - 1] >= scores[a]
    state.ready[1] = falling
    if falling:  # recommenders return sorted lists
        return
    for a in range(n):
        at = a
        while at > 0:
            parent = (at - 1) // 2
            if scores[state.heap[parent]] >= scores[a]:
                break
            state.heap[at] = state.heap[parent]
            at = parent
        state.heap[at] = a


@helper
def start_relevance(one: OneList, state: SearchState) -> None:
    """Set the origin and the factor that turn a score of this list into relevance."""
    scores, scale, n = one.scores, one.objective.scale, len(one.scores)
    origin, factor = 0.0, 1.0
    if scale in (LINEAR, LOG):
        top, low = -np.inf, np.inf
        for a in range(n):
            top, low = max(top, scores[a]), min(low, scores[a])
        unit = max(abs(top), abs(low))
        factor = 1.0 / top if top > TINY else 0.0
        if scale == LINEAR:
            origin, factor = low, 0.0
            mean, squares = 0.0, 0.0
            for a in range(n):
                mean += scores[a] / n
            spread = top - low
            if not is_additive(one.objective):
                origin = mean
                for a in range(n):
                    squares += ((scores[a] - mean) / unit) ** 2 / n if unit > TINY else 0.0
                spread = math.sqrt(squares) * unit
            if spread > 1e-12 * unit and spread > TINY:
                factor = 1.0 / spread
    state.line[0] = origin
    state.line[1] = factor


@helper
def next_in_order(one: OneList, state: SearchState) -> None:
    """Take the next candidate of the order, and set (1 − diversity) times its relevance."""
    scores, scale = one.scores, one.objective.scale
    a, n = state.ready[0], len(scores)
    position = a
    if not state.ready[1]:
        position = state.heap[0]
        state.heap[0] = state.heap[n - 1 - a]
        sift(state.heap, n - 1 - a, scores)
    state.positions[a] = position
    state.ready[0] = a + 1
    score = scores[position]
    if a > 0 and scores[state.positions[a - 1]] == score:
        state.relevance[a] = state.relevance[a - 1]
        return
    if scale == RANK:
        relevance = 1.0 / (a + 1)
    elif scale == LOG:
        relevance = max(score * state.line[1], LOWEST) if state.line[1] > 0 else 1.0
    else:
        relevance = (score - state.line[0]) * state.line[1]
    if scale in (RANK, LOG) and not is_additive(one.objective):
        relevance = math.log(relevance)
    state.relevance[a] = (1.0 - one.objective.diversity) * relevance


@helper
def sift(heap: Ints, size: int, scores: Array) -> None:
    """Let the first entry of a heap sink to its place; equal scores go by position."""
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


# -- Rules -----------------------------------------------------------------------------------------


@helper
def start_counts(one: OneList, state: SearchState) -> None:
    """Count by category the candidates of the list and its fixed items."""
    needed = one.limits.needed
    for number in range(len(needed)):
        state.used[needed[number]] = 0
        state.supply[needed[number]] = 0
    for a in range(len(one.groups)):
        group = one.groups[a]
        if group >= 0:
            state.used[group] = 0
            state.latest[group] = NEVER
            state.supply[group] = 0
    for a in range(len(one.groups)):
        if one.groups[a] >= 0:
            state.supply[one.groups[a]] += 1
    for f in range(len(one.fixed)):
        group = one.groups[one.fixed[f]]
        if group >= 0:
            state.used[group] += 1
            state.supply[group] -= 1


@helper
def is_allowed(one: OneList, state: SearchState, group: int, place: int) -> bool:
    """Tell if a category may stand at this place after all that stands before it."""
    return group < 0 or (
        state.used[group] < one.limits.caps[group]
        and place - state.latest[group] >= one.limits.window
    )


@helper
def is_free_ahead(one: OneList, group: int, place: int, f: int) -> bool:
    """Tell if no fixed item from number f on has this category within the window."""
    if group >= 0 and one.limits.window > 1:
        for later in range(f, len(one.fixed)):
            near = one.places[later] - place < one.limits.window
            if near and one.groups[one.fixed[later]] == group:
                return False
    return True


@helper
def find_urgent(one: OneList, state: SearchState, place: int, n_open: int, early: bool) -> bool:
    """Mark the categories of which this place must have one, and tell if there are any.

    A category is urgent when too few of its items would fit in later. If `early`, those that lack
    the most items are urgent as long as any is missing.
    """
    limits = one.limits
    missing, most = 0, 0
    for number in range(len(limits.needed)):
        group = limits.needed[number]
        lacks = max(limits.needs[group] - state.used[group], 0)
        missing += lacks
        if lacks > most and state.supply[group] > 0 and is_allowed(one, state, group, place):
            most = lacks
    any_urgent = False
    for number in range(len(limits.needed)):
        group = limits.needed[number]
        lacks = max(limits.needs[group] - state.used[group], 0)
        fits = lacks > 0 and state.supply[group] > 0 and is_allowed(one, state, group, place)
        last_chance = place + 1 + (lacks - 1) * limits.window >= one.objective.k
        urgent = lacks == most if early else missing >= n_open or last_chance
        state.urgent[group] = fits and urgent
        any_urgent = any_urgent or state.urgent[group]
    return any_urgent
