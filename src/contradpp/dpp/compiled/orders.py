"""Numba helpers that bring the candidates of a slate in by falling score, and say what each is worth."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import helper

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]

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
