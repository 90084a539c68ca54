"""Leave-one-out by its definition: how every item of a basket ranks among all others when it is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks
from contradpp.data.sets import Sets, runs, take_sets, without_each
from contradpp.dpp import compiled
from contradpp.dpp.rank import top_n
from contradpp.models.scores import SCORES_PER_BLOCK

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

# Scores that differ by less than this share of the terms they are made of differ by rounding: they tie.
TIE = 1e-12


class Outcome(NamedTuple):
    """How the items of several baskets rank when each is left out in turn, entry by entry of the sets."""

    better: Counts  # (nnz,): items outside A∖i that the model prefers to i
    equal: Counts  # (nnz,): other items outside A∖i that tie with i
    top: NDArray[np.int32]  # (n_sets, n_top): best items given A without the held-out one, −1 where fewer are left

    @staticmethod
    def blank(sets: Sets, n_top: int) -> Outcome:
        """Zero counts and empty lists."""
        nothing = np.zeros(len(sets.indices), dtype=np.int64)
        return Outcome(nothing, nothing.copy(), np.full((sets.count, n_top), -1, dtype=np.int32))


def rank_one_by_one(
    scores: Callable[[Sets], Array], sets: Sets, held: Counts, n_top: int, n_items: int, *, n_jobs: int = 1,
    rounding: Array | None = None,
) -> Outcome:  # fmt: skip
    """Leave-one-out by its definition: all items scored given A∖i, for every i.

    `scores` takes sets and gives a new array (n_sets, n_items); `rounding` is that of `count_rows`.
    """
    return rank_entries(
        lambda part: scores(without_each(part)), sets, held, n_top, n_items, n_jobs=n_jobs, rounding=rounding
    )


def rank_entries(
    scores: Callable[[Sets], Array], sets: Sets, held: Counts, n_top: int, n_items: int, *, n_jobs: int = 1,
    rounding: Array | None = None,
) -> Outcome:  # fmt: skip
    """Leave-one-out from scores of all items for every entry of the sets, given its set without it (nnz, n_items)."""
    out = Outcome.blank(sets, n_top)
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // n_items, 1)))

    def work(block: int) -> None:
        first, last = blocks[block]
        part = take_sets(sets, np.arange(first, last))
        entries = slice(int(sets.indptr[first]), int(sets.indptr[last]))
        rest, x = without_each(part), scores(part)
        x[np.repeat(np.arange(rest.count), rest.sizes), rest.indices] = -np.inf
        out.better[entries], out.equal[entries] = count_rows(x, part.indices, rounding)
        lists = x[held[first:last] - entries.start]
        best = top_n(lists, n_top)
        found = np.take_along_axis(lists, best, axis=1) > -np.inf
        out.top[first:last, : best.shape[1]] = np.where(found, best, -1)

    run_blocks(work, len(blocks), n_jobs)
    return out


def start_lists(n_sets: int, n_top: int) -> Array:
    """Scores and rounding of lists that are still empty, for the kernels that fill them (2, n_sets, n_top)."""
    lists = np.zeros((2, n_sets, n_top))
    lists[0] = -np.inf
    return lists


def count_rows(scores: Array, codes: NDArray[np.int32], rounding: Array | None = None) -> tuple[Counts, Counts]:
    """Per row, how many scores beat that of the item `codes[row]`, and how many others tie with it.

    `rounding` bounds the error of each column; by default it is `TIE` of the scores themselves.
    """
    counts = np.empty((len(scores), 2), dtype=np.int64)
    none = np.zeros(scores.shape[1]) if rounding is None else rounding
    compiled.ranks.count_rows(scores, codes, TIE if rounding is None else 0.0, none, counts)
    return counts[:, 0], np.maximum(counts[:, 1] - counts[:, 0] - 1, 0)  # of −inf not even itself ties
