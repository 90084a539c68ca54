"""Every metric by its definition, in plain Python, for small models. A model is a function from a set to scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

Scores = Callable[[tuple[int, ...]], Sequence[float | Fraction]]


def determinant(matrix: list[list[Fraction]]) -> Fraction:
    """By elimination, exactly."""
    rows = [list(row) for row in matrix]
    value = Fraction(1)
    for c in range(len(rows)):
        pivot = next((r for r in range(c, len(rows)) if rows[r][c] != 0), None)
        if pivot is None:
            return Fraction(0)
        if pivot != c:
            rows[c], rows[pivot] = rows[pivot], rows[c]
            value = -value
        value *= rows[c][c]
        for r in range(c + 1, len(rows)):
            factor = rows[r][c] / rows[c][c]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[c], strict=True)]
    return value


def dpp(V: np.ndarray) -> Scores:
    """det L_{A∪j} / det L_A in rational arithmetic. Dependent items of A are first thrown out: they span nothing."""
    exact = [[Fraction(float(x)) for x in row] for row in V]
    L = [[sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0)) for b in exact] for a in exact]

    def volume(codes: Sequence[int]) -> Fraction:
        return determinant([[L[a][b] for b in codes] for a in codes])

    def scores(given: tuple[int, ...]) -> list[Fraction]:
        basis: list[int] = []
        for code in given:
            if volume([*basis, code]) != 0:
                basis.append(code)
        return [volume([*basis, j]) / volume(basis) for j in range(len(L))]

    return scores


def leave_one_out(scores: Scores, basket: Sequence[int]) -> list[tuple[int, int, int]]:
    """For each item: how many beat it, how many others tie, and how many there are with it, all outside A∖i."""
    out = []
    for i in basket:
        rest = tuple(code for code in basket if code != i)
        x = scores(rest)
        outside = [j for j in range(len(x)) if j not in rest]
        out.append((sum(x[j] > x[i] for j in outside), sum(x[j] == x[i] for j in outside) - 1, len(outside)))
    return out


def percentile_rank_paper(better: int, equal: int, others: int) -> float:
    """The paper's, counted one by one: the items with p_i ≥ p_i', i itself among them."""
    return 100 * (others - better) / others


def over_orders(value: Callable[[int], float], better: int, equal: int) -> float:
    """The mean of value(rank) over the places that i can take among the items that tie with it."""
    return float(np.mean([value(better + place) for place in range(1, equal + 2)]))


def hit(better: int, equal: int, k: int) -> float:
    return over_orders(lambda rank: float(rank <= k), better, equal)


def ndcg(better: int, equal: int, k: int = 10) -> float:
    return over_orders(lambda rank: 1 / math.log2(1 + rank) if rank <= k else 0.0, better, equal)


def percentile_rank(better: int, equal: int, others: int) -> float:
    return over_orders(lambda rank: 100 * (others - rank + 1) / others, better, equal)


def top(scores: Scores, given: tuple[int, ...], n: int) -> list[int]:
    x = scores(given)
    return sorted((j for j in range(len(x)) if j not in given), key=lambda j: (-x[j], j))[:n]


def auc(positive: Sequence[float], negative: Sequence[float]) -> float:
    wins = [(p > q) + 0.5 * (p == q) for p, q in itertools.product(positive, negative)]
    return float(np.mean(wins))


def intra_list(items: Sequence[int], baskets: Sequence[set[int]]) -> float:
    where = {i: {b for b, basket in enumerate(baskets) if i in basket} for i in items}
    similarity = [
        len(where[i] & where[j]) / len(where[i] | where[j]) if where[i] | where[j] else 0.0
        for i, j in itertools.combinations(items, 2)
    ]
    return 1 - float(np.mean(similarity)) if similarity else math.nan


def personalization(lists: Sequence[Sequence[int]]) -> float:
    shared = [len(set(a) & set(b)) for a, b in itertools.permutations(lists, 2)]
    return 1 - float(np.mean(shared)) / float(np.mean([len(items) for items in lists]))
