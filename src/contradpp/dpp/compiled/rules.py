"""Numba helpers for the rules of a slate: at most and at least so many of a category, and so far apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import helper

Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]

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
