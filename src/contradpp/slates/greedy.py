"""Greedy choice of slates: short lists of scored candidates, relevant, varied and within rules.

For the DPP a slate Y is the greedy maximizer of log det (diag(q) Φ diag(q))_Y, q_j² = exp(τ ℓ_j).
Each next item j has the largest

    (1 − δ) ℓ_j + δ log c_j,    c_j = det Φ_{Y∪j} / det Φ_Y,    τ = (1 − δ)/δ.

δ is the diversity: relevance alone counts at 0, variety alone at 1. ℓ is the log of relevance by
one of the rules in `SCALES`. Φ has the cosines of the items' vectors off its diagonal and 1 + 10⁻³
on it. So no slate is impossible, and an item without a vector is unlike all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp import slates
from contradpp._threads import run_blocks
from contradpp._types import Array, Flags, Ints
from contradpp.data.sets import Sets, frozen, pointers, take_sets
from contradpp.dpp import scoring
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ParameterError
from contradpp.experts.queries import check_count
from contradpp.slates.rules import MOST, NO_INTEGERS, CategoryLimits

if TYPE_CHECKING:
    from contradpp.slates.compiled import ObjectiveNumbers

METHODS = ("dpp", "mmr", "msd")  # in the order of the numbers in `compiled`
SCALES = ("rank", "linear", "log", "raw")
LISTS_PER_BLOCK = 64
N_CANDIDATES = 100  # most relevant items among which a slate is chosen
DEFAULT_DIVERSITY = 0.5
SPARED = 0.022  # the share of relevance that a slate of diversity ½ may give up
# Values of δ that are tried, with odds of 1/20 to 100.
BALANCES = (0.05, 0.08, 0.12, 0.18, 0.26, 0.36, 0.48, 0.6, 0.71, 0.8, 0.86, 0.91, 0.94, 0.97, 0.99)
ROWS_PER_BLOCK = 8192
# Gains that differ by no more are equal.
TIES = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4}
# Products of longer vectors overflow.
LONGEST = {np.dtype(np.float64): 1e100, np.dtype(np.float32): 1e15}


@dataclass(frozen=True)
class SlidingWindow:
    """The DPP in which only the latest `size` places repel, for long lists.

    Parameters
    ----------
    size : int
        The number of places.

    Examples
    --------
    >>> import contradpp as cd
    >>> cd.rerank([7, 8], [2, 1], vectors=[[1], [1]], method=cd.SlidingWindow(3))[0].tolist()
    [7, 8]
    """

    size: int = 5

    def __post_init__(self) -> None:
        check_count(self.size, "size")


METHOD_WORDS = (*METHODS, "window")  # of command lines, requests and pipelines


def as_method(word: str | SlidingWindow, window_size: int = 5) -> str | SlidingWindow:
    """Return the method that one of `METHOD_WORDS` means."""
    return SlidingWindow(window_size) if word == "window" else word


@dataclass(frozen=True, kw_only=True)
class SlateObjective:
    """The length of a slate and its balance of relevance and variety, as `rerank` takes them."""

    k: int
    diversity: float
    method: str | SlidingWindow = "dpp"
    scale: str = "rank"

    def __post_init__(self) -> None:
        check_count(self.k, "k")
        check_diversity(self.diversity)
        if not isinstance(self.method, SlidingWindow) and self.method not in METHODS:
            raise ParameterError(
                f"method must be one of {', '.join(METHODS)} or SlidingWindow(size=5), "
                f"got {self.method!r}"
            )
        if self.scale not in SCALES:
            raise ParameterError(f"scale must be one of {', '.join(SCALES)}, got {self.scale!r}")

    def numbers(self, dtype: np.dtype[Any]) -> ObjectiveNumbers:
        """Return the objective for the kernels, with vectors of this type."""
        if isinstance(self.method, SlidingWindow):
            method = slates.compiled.WINDOW
            window_size = min(int(self.method.size), MOST)
        else:
            method = METHODS.index(self.method)
            window_size = 0
        return slates.compiled.ObjectiveNumbers(
            k=min(int(self.k), MOST),
            diversity=float(self.diversity),
            method=method,
            scale=SCALES.index(self.scale),
            window_size=window_size,
            tie=TIES[dtype],
        )


def check_diversity(value: Any) -> None:
    """Raise `ParameterError` unless the value is a number from 0 to 1."""
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise ParameterError(
            "diversity must be a number from 0 (relevance only) to 1 (variety only), "
            f"got {value!r}",
            parameters=("diversity",),
        )


class Vectors(NamedTuple):
    """Vectors of items, whose products are the similarities Φ, with a scale for each."""

    table: NDArray[np.floating]  # (N, K)
    scales: Array  # (N,), at most the inverse lengths of the rows

    @staticmethod
    def none() -> Vectors:
        """Return no vectors at all."""
        return Vectors(np.zeros((0, 1)), np.zeros(0))

    @staticmethod
    def of_kernel(kernel: Kernel) -> Vectors:
        """Return vectors whose products are the correlations of the symmetric part of L."""
        return Vectors(kernel.vectors, kernel.inverse_lengths)

    @staticmethod
    def of_table(table: NDArray[Any], *, n_jobs: int = 1) -> Vectors:
        """Return these vectors scaled to length 1; zeros stay zeros."""
        if table.dtype not in LONGEST:
            table = table.astype(np.float32 if table.dtype == np.float16 else np.float64)
        table = np.ascontiguousarray(table)
        scales = np.empty(len(table))

        def work(block: int) -> None:
            first = block * ROWS_PER_BLOCK
            last = min(first + ROWS_PER_BLOCK, len(table))
            slates.compiled.inverse_lengths(table, first, last, scales)

        run_blocks(work, -(-len(table) // ROWS_PER_BLOCK), n_jobs)
        limit = LONGEST[table.dtype]
        bad = np.flatnonzero(np.isnan(scales) | ((scales > 0) & (scales < 1 / limit)))
        if len(bad):
            raise ParameterError(
                f"vectors must be finite and no longer than {limit:.0e}, but row {bad[0]} is not "
                f"({len(bad)} such rows): leave those candidates out, or give them a vector of "
                "zeros",
                parameters=("vectors",),
            )
        return Vectors(table, scales)

    def of_rows(self, rows: Ints) -> NDArray[np.floating]:
        """Return the scaled vectors of some rows, zeros for −1."""
        if not len(self.table):
            return np.zeros((len(rows), 1))
        picked = self.table[np.maximum(rows, 0)]
        scales = np.where(rows < 0, 0.0, self.scales[rows])
        return picked * scales[:, None].astype(picked.dtype)


class Lists(NamedTuple):
    """Candidates, list after list."""

    indptr: Ints
    scores: Array
    rows: Ints  # of the candidates' vectors, −1 for none
    given_ptr: Ints
    given: Ints  # rows of vectors that repel already
    fixed_ptr: Ints
    fixed: Ints  # positions within a list
    places: Ints  # of the fixed positions, ascending

    @staticmethod
    def plain(indptr: Ints, scores: Array, rows: Ints) -> Lists:
        """Return lists with nothing given and nothing fixed."""
        empty = np.zeros(len(indptr), dtype=np.int64)
        return Lists(indptr, scores, rows, empty, NO_INTEGERS, empty, NO_INTEGERS, NO_INTEGERS)


class Slates(NamedTuple):
    """Chosen positions within each list, in the order of the slate."""

    positions: Ints  # (lists, k, or the longest list if that is less), −1 beyond the end
    gains: Array  # likewise, NaN for a fixed item
    counts: Ints  # lengths of the slates
    ends: Ints  # reasons of their ends, see `compiled.COMPLETE`

    def of_entries(self, entries: Ints, indptr: Ints) -> Ints:
        """Return the entry of every chosen candidate, −1 beyond the end of a slate."""
        if not len(entries):
            return np.full(self.positions.shape, -1)
        is_chosen = self.positions >= 0
        where = np.where(is_chosen, self.positions + indptr[:-1, None], 0)
        return np.where(is_chosen, entries[where], -1)

    def reason(self, number: int, n_candidates: int) -> str | None:
        """Return why a slate is short, None if it is not."""
        end = self.ends[number]
        count = self.counts[number]
        if end == slates.compiled.COMPLETE:
            return None
        if end == slates.compiled.TOO_FEW:
            if n_candidates == 1:
                return "there is only one candidate"
            return f"there are only {n_candidates} candidates"
        return (
            f"the rules leave no candidate for place {count}: {n_candidates - count} are left, but "
            "at_most or window forbids each of them there"
        )


def choose(
    vectors: Vectors,
    lists: Lists,
    objective: SlateObjective,
    limits: CategoryLimits,
    *,
    n_jobs: int = 1,
) -> Slates:
    """Choose a slate of every list; the same to the last bit for any number of threads.

    A list that cannot keep `limits.needs` ends with −1 − the number of a category.
    """
    n = len(lists.indptr) - 1
    width = min(objective.k, int(np.diff(lists.indptr).max(initial=0)))
    counts, ends = np.zeros((2, n), dtype=np.int64)
    out = Slates(np.empty((n, width), dtype=np.int64), np.empty((n, width)), counts, ends)
    numbers = objective.numbers(vectors.table.dtype)
    vectors = Vectors(*map(_uniform, vectors))
    lists = Lists(*map(_uniform, lists))
    limits = limits._replace(
        groups=_uniform(limits.groups),
        caps=_uniform(limits.caps),
        needs=_uniform(limits.needs),
        needed=_uniform(limits.needed),
    )

    def work(block: int) -> None:
        first = block * LISTS_PER_BLOCK
        last = min(first + LISTS_PER_BLOCK, n)
        slates.compiled.choose(vectors, lists, limits, numbers, first, last, out)

    run_blocks(work, -(-n // LISTS_PER_BLOCK), n_jobs)
    return out


def _uniform(array: NDArray[Any]) -> NDArray[Any]:
    """Return a contiguous, read-only array: the kernel is compiled anew for any other kind."""
    return frozen(np.ascontiguousarray(array))


def next_slates(
    vectors: Vectors,
    sets: Sets,
    probabilities_of_sets: Iterable[tuple[int, int, Array]],
    k: int,
    diversity: float,
    allowed: Flags,
    limits: CategoryLimits,
    *,
    relevance: Callable[[Array], Array] | None = None,
    n_jobs: int = 1,
) -> tuple[Ints, Array]:
    """Return codes of a slate of next items for every set, and P(next = i | A).

    A slate is the greedy one of the largest δ with which it keeps the share 1 − `spared` of the
    relevance of the k most relevant items.

    Parameters
    ----------
    vectors : Vectors
        A row per item.
    probabilities_of_sets : iterable
        The blocks of `next_probabilities`.
    allowed : bool array (M,)
        Items that may be chosen.
    limits : CategoryLimits
        Limits of all M items.
    relevance : function of (sets, M), optional
        From probabilities to relevance; they are relevance themselves if left out.

    Returns
    -------
    codes, probabilities : arrays (sets, k)
        −1 and 0 where a slate is shorter.
    """
    check_diversity(diversity)
    objective = SlateObjective(k=k, diversity=0.0, scale="log")
    width = min(k, len(allowed))
    codes = np.full((sets.count, width), -1, dtype=np.int64)
    probabilities = np.zeros((sets.count, width))
    for first, last, block in probabilities_of_sets:
        part = take_sets(sets, np.arange(first, last))
        free = np.tile(allowed, (last - first, 1))
        free[part.owners, part.indices] = False
        scores = block if relevance is None else relevance(block)
        if not len(limits.caps):
            free &= _among_best(np.where(free, scores, -1.0), max(N_CANDIDATES, 10 * width))
        items = np.nonzero(free)[1]
        lists = Lists.plain(pointers(free.sum(axis=1)), scores[free], items)
        limits_of_lists = limits._replace(groups=limits.groups[items])
        chosen = np.zeros((last - first, 0), dtype=np.int64)
        for delta in (0.0, *BALANCES) if diversity < 1 else (1.0,):
            one = replace(objective, diversity=delta)
            found = choose(vectors, lists, one, limits_of_lists, n_jobs=n_jobs)
            entries = found.of_entries(np.arange(len(items)), lists.indptr)
            kept = np.where(entries >= 0, lists.scores[entries], 0.0).sum(axis=1)
            if not chosen.size:
                chosen, counts, least = entries, found.counts, (1.0 - spared(diversity)) * kept
            if not spared(diversity):
                break
            is_near = (kept >= least) & (found.counts == counts)
            chosen[is_near] = entries[is_near]
        chosen = np.where(chosen >= 0, items[chosen], -1)
        codes[first:last, : chosen.shape[1]] = chosen
        rows = np.arange(last - first)[:, None]
        probabilities[first:last, : chosen.shape[1]] = np.where(
            chosen >= 0, block[rows, chosen], 0.0
        )
    return scoring.without_blanks(codes, probabilities)


def spared(diversity: float) -> float:
    """Return the share of relevance that a slate may give up: 2.2 % at ½, all at 1."""
    odds = diversity / max(1.0 - diversity, 1e-9)
    return float(min(SPARED * odds**1.5, 1.0))


def _among_best(scores: Array, n: int) -> Flags:
    """Tell which scores are among the n largest of their row."""
    if scores.shape[1] <= n:
        return np.ones(scores.shape, dtype=bool)
    best = scoring.top_n(scores, n)
    found = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(found, best, True, axis=1)
    return found
