"""Slates: from scored candidates a short list that is relevant, varied and within rules, chosen greedily from factors.

For the DPP a slate Y is the greedy maximiser of log det(diag(q) Φ diag(q))_Y, q_j² = exp(τ ℓ_j): each next item j has
the largest (1 − δ) ℓ_j + δ log c_j, with c_j = det Φ_{Y∪j} / det Φ_Y and τ = (1 − δ)/δ. δ is the `diversity`: at 0
relevance alone counts, at 1 variety alone, at ½ the two as they are, τ = 1. Φ has the cosines of the items' vectors off
its diagonal and 1 + 10⁻³ on it, so that no slate is impossible, however many items it has; an item without a vector is
unlike all others. ℓ is the log of relevance, by one of the rules in `SCALES`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks
from contradpp.data.sets import frozen
from contradpp.dpp import compiled
from contradpp.errors import ParameterError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

METHODS = ("dpp", "mmr", "msd", "window")  # in the order of the numbers in `compiled.orders`
SCALES = ("rank", "linear", "log", "raw")
LISTS_PER_BLOCK = 64
ROWS_PER_BLOCK = 8192
TIES = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4}  # gains that differ by no more are equal
LONGEST = {np.dtype(np.float64): 1e100, np.dtype(np.float32): 1e15}  # beyond, products of vectors overflow
MOST = 2**40  # of anything that is counted: more means the same
NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Trade:
    """How long a slate is, and how relevance is set against variety; the docstring of `rerank` has the meanings."""

    k: int
    diversity: float
    method: str = "dpp"
    scale: str = "rank"
    reach: int = 5

    def __post_init__(self) -> None:
        for name in ("k", "reach"):
            check_whole(name, getattr(self, name), least=1)
        d = self.diversity
        if isinstance(d, bool) or not isinstance(d, (int, float, np.number)) or not 0 <= d <= 1:
            raise ParameterError(
                f"diversity must be a number from 0 (relevance only) to 1 (variety only), got {d!r}",
                parameters=("diversity",),
            )
        for name, words in (("method", METHODS), ("scale", SCALES)):
            if getattr(self, name) not in words:
                raise ParameterError(f"{name} must be one of {', '.join(words)}, got {getattr(self, name)!r}")


class Vectors(NamedTuple):
    """Vectors of items, a row each, and what each is multiplied by: at most the inverse of its length."""

    table: NDArray[np.floating]  # (N, K)
    scales: Array  # (N,)

    @staticmethod
    def none() -> Vectors:
        """No vectors at all."""
        return Vectors(np.zeros((0, 1)), np.zeros(0))

    @staticmethod
    def of_kernel(kernel: Kernel) -> Vectors:
        """Those of the symmetric part of L, so that their products are its correlations: attraction stays out of it."""
        return Vectors(kernel.vectors, kernel.inverse_lengths)

    @staticmethod
    def of_table(table: NDArray[Any], *, n_jobs: int = 1) -> Vectors:
        """The user's own, scaled to length 1; one of zeros stays as it is."""
        if table.dtype not in LONGEST:
            table = table.astype(np.float32 if table.dtype == np.float16 else np.float64)
        table, scales = np.ascontiguousarray(table), np.empty(len(table))

        def work(block: int) -> None:
            first = block * ROWS_PER_BLOCK
            compiled.slates.inverse_lengths(table, first, min(first + ROWS_PER_BLOCK, len(table)), scales)

        run_blocks(work, -(-len(table) // ROWS_PER_BLOCK), n_jobs)
        limit = LONGEST[table.dtype]
        bad = np.flatnonzero(np.isnan(scales) | ((scales > 0) & (scales < 1 / limit)))
        if len(bad):
            raise ParameterError(
                f"vectors must be finite and no longer than {limit:.0e}, but row {bad[0]} is not "
                f"({len(bad)} such rows): leave those candidates out, or give them a vector of zeros",
                parameters=("vectors",),
            )
        return Vectors(table, scales)

    def of_rows(self, rows: Ints) -> NDArray[np.floating]:
        """The scaled vectors of some rows, zeros for −1."""
        scales = np.where(rows < 0, 0.0, self.scales[rows] if len(self.scales) else 0.0)
        picked = self.table[np.maximum(rows, 0)] if len(self.table) else np.zeros((len(rows), 1))
        return picked * scales[:, None].astype(picked.dtype)


class Lists(NamedTuple):
    """Candidates, list after list: their scores and the rows of their vectors (−1: none).

    `given` are rows of vectors that are on screen already; `fixed` are positions within a list, ascending by `places`.
    """

    indptr: Ints
    scores: Array
    rows: Ints
    given_ptr: Ints
    given: Ints
    fixed_ptr: Ints
    fixed: Ints
    places: Ints

    @staticmethod
    def plain(indptr: Ints, scores: Array, rows: Ints) -> Lists:
        """Lists with nothing given and nothing fixed."""
        none = np.zeros(len(indptr), dtype=np.int64)
        return Lists(indptr, scores, rows, none, NOTHING, none, NOTHING, NOTHING)


class Rules(NamedTuple):
    """What a slate may and must hold of each category."""

    groups: NDArray[np.int32]  # (candidates,), −1 for none
    names: list[Hashable]
    caps: Ints
    needs: Ints
    window: int

    @staticmethod
    def of(
        labels: Sequence[Hashable | None] | NDArray[Any] | None,
        n_candidates: int,
        k: int,
        *,
        at_most: int | Mapping[Any, int] | None = None,
        at_least: Mapping[Any, int] | None = None,
        window: int | None = None,
    ) -> Rules:
        """Rules over candidates with these categories, None for one that has none; or `ParameterError`."""
        asked = {"at_most": at_most, "at_least": at_least, "window": window}
        if labels is None:
            for name, value in asked.items():
                if value is not None:
                    message = f"{name} counts categories: pass categories=, a mapping or an array, too"
                    raise ParameterError(message, parameters=("categories",))
            return Rules(np.full(n_candidates, -1, dtype=np.int32), [], NOTHING, NOTHING, 1)
        groups, names = _coded(labels)
        caps = {} if at_most is None else _counts("at_most", at_most, names)
        needs = {} if at_least is None else _counts("at_least", at_least, None)
        names = list(dict.fromkeys([*names, *caps, *needs]))
        for category, need in needs.items():
            if need > (most := caps.get(category, k)):
                raise ParameterError(
                    f"at_least asks for {need} of {category!r}, at_most (or k={k}) allows {most}: change one of them",
                    parameters=("at_most", "at_least"),
                )
        if sum(needs.values()) > k:
            message = f"at_least asks for {sum(needs.values())} items in all, more than k={k}"
            raise ParameterError(message, parameters=("at_least", "k"))
        if window is not None:
            check_whole("window", window, least=1)
        return Rules(
            groups, names,
            np.array([min(caps.get(name, k), k, MOST) for name in names], dtype=np.int64),
            np.array([needs.get(name, 0) for name in names], dtype=np.int64), min(window or 1, MOST),
        )  # fmt: skip


class Slates(NamedTuple):
    """Positions within each list in the order of the slate, what each gained, how many there are, how it ended."""

    positions: Ints  # (lists, k, or the longest list if that is less), −1 beyond the end
    gains: Array  # likewise, NaN for a fixed item
    counts: Ints
    ends: Ints


def choose(vectors: Vectors, lists: Lists, trade: Trade, rules: Rules, *, n_jobs: int = 1) -> Slates:
    """A slate of every list; the same to the last bit for any number of threads.

    Raises
    ------
    ParameterError
        If a list cannot give what `at_least` asks for.
    """
    n = len(lists.indptr) - 1
    width = min(trade.k, int((lists.indptr[1:] - lists.indptr[:-1]).max(initial=0)))
    counts, ends = np.zeros((2, n), dtype=np.int64)
    out = Slates(np.empty((n, width), dtype=np.int64), np.empty((n, width)), counts, ends)
    likeness = compiled.slates.Likeness(*_steady(vectors.table, vectors.scales, lists.rows))
    told = compiled.slates.Lists(*_steady(lists.indptr, lists.scores, *lists[3:]))
    groups, caps, needs, needed = _steady(rules.groups, rules.caps, rules.needs, np.flatnonzero(rules.needs))
    limits = compiled.slates.Rules(groups, caps, needs, needed, int(rules.window))
    words = METHODS.index(trade.method), SCALES.index(trade.scale)
    mix = compiled.slates.Trade(
        min(int(trade.k), MOST), float(trade.diversity), *words, min(int(trade.reach), MOST), TIES[vectors.table.dtype]
    )
    result = compiled.slates.Chosen(*out)

    def work(block: int) -> None:
        first = block * LISTS_PER_BLOCK
        compiled.slates.choose(likeness, told, limits, mix, first, min(first + LISTS_PER_BLOCK, n), result)

    run_blocks(work, -(-n // LISTS_PER_BLOCK), n_jobs)
    if len(needed) and ends.min(initial=0) < 0:
        failed = int(np.flatnonzero(ends < 0)[0])
        raise _too_few(failed, n, rules, rules.names[-1 - int(ends[failed])])
    return out


def _steady(*arrays: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Contiguous and read-only: a kernel is compiled anew for arrays of another kind."""
    return (frozen(np.ascontiguousarray(array)) for array in arrays)


def reason_of(end: int, count: int, n_candidates: int) -> str | None:
    """Why a slate is shorter than was asked for; None if it is not."""
    if end == 0:
        return None
    if end == 1:
        return f"there are only {n_candidates} candidates" if n_candidates != 1 else "there is only one candidate"
    return (
        f"the rules leave no candidate for place {count}: {n_candidates - count} are left, but at_most or window "
        "forbids each of them there"
    )


def check_whole(name: str, value: Any, *, least: int) -> None:
    """Raise `ParameterError` unless the value is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ParameterError(f"{name} must be an integer of at least {least}, got {value!r}", parameters=(name,))


def _coded(labels: Sequence[Hashable | None] | NDArray[Any]) -> tuple[NDArray[np.int32], list[Hashable]]:
    """A number for every label, −1 for None, and the labels in the order of their numbers."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iuU":
        names, codes = np.unique(labels, return_inverse=True)
        return codes.astype(np.int32), names.tolist()
    numbers: dict[Hashable, int] = {}
    groups = [-1 if label is None else numbers.setdefault(label, len(numbers)) for label in labels]
    return np.array(groups, dtype=np.int32), list(numbers)


def _counts(name: str, value: Any, all_names: list[Hashable] | None) -> dict[Hashable, int]:
    """How many of each category: of all of them where one number is allowed and given, else of those in a mapping."""
    if isinstance(value, Mapping):
        for number in value.values():
            check_whole(name, number, least=0)
        return {category: int(number) for category, number in value.items()}
    if all_names is None:
        raise ParameterError(f"{name} must be a mapping of category to number, got {value!r}", parameters=(name,))
    check_whole(name, value, least=0)
    return dict.fromkeys(all_names, int(value))


def _too_few(number: int, n_lists: int, rules: Rules, category: Hashable) -> ParameterError:
    need = rules.needs[rules.names.index(category)]
    where = f"list {number}: " if n_lists > 1 else ""
    return ParameterError(
        f"{where}at_least asks for {need} of {category!r}, but the candidates and the other rules do not allow as "
        "many: ask for fewer, bring more candidates of it, or relax window and fixed",
        parameters=("at_least",),
    )
