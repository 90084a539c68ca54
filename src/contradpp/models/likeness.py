"""What is alike in a slate, and how that is learned from baskets of which half is hidden.

Φ is a mix of three sources, each of vectors no longer than 1: the factors of the kernel; rivals, items that share fewer
baskets than their sales let expect; and categories, where they are known. Φ_ij = Σ_s w_s ⟨r_i, r_j⟩_s, Σ w_s ≤ 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads
from contradpp.data.halves import Halves, group_numbers, relevance_samples
from contradpp.data.sets import Sets, pointers, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import slate_law, slates
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.rank import top_n
from contradpp.errors import ParameterError
from contradpp.models.rows import indicator

Array = NDArray[np.float64]
Shares = Callable[[Sets], Iterator[tuple[int, int, Array]]]  # P(next = i | A), as `rank.next_shares` gives it

DIVERSITIES = (0.5, 0.6, 0.7)  # that are tried: from relevance and variety as they are, τ = 1, to more variety
CRITERIA = ("hits", "likelihood")
FEWEST = 50  # half-hidden baskets from which something can be learned
MOST = {"hits": 4000, "likelihood": 200}
N_CANDIDATES = 100
LOSS = 0.005  # of recall, relative to that of the most probable items, that variety may cost at the worst
N_POPULAR, N_RIVAL_VECTORS = 2000, 64
LEAST_SALES, SURE = 20, 3.0  # of an item that has rivals; standard deviations below what is expected
N_DIRECTIONS = 256  # categories beyond so many share directions

_QUESTIONS, _DIRECTIONS = 74, 75  # keys of random streams

# Weights of (factors, rivals, categories) that are tried.
_WITHOUT = [(a, r, 0.0) for a in (0.0, 0.1, 0.25, 0.5) for r in (0.0, 0.5, 0.75, 1.0) if a + r <= 1.0]
_WITH = [(0.0, r, c) for c in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4) for r in (0.0, 0.5)]


_SETTINGS = ("factors", "rivals", "categories", "diversity")


@dataclass(frozen=True)
class Likeness:
    """Weights of the sources, a diversity that suits them, and vectors of rivals: a row for each of `codes`."""

    factors: float = 0.0
    rivals: float = 0.0
    categories: float = 0.0
    diversity: float = DIVERSITIES[0]
    codes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64), repr=False)
    table: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32), repr=False)

    def vectors(self, kernel: Kernel, items: Vocabulary) -> slates.Vectors:
        """Vectors whose products are Φ, in float32."""
        parts: list[NDArray[np.float32]] = []
        if self.factors:
            parts.append(_units(kernel.vectors) * np.float32(np.sqrt(self.factors)))
        if self.rivals:
            parts.append(np.zeros((kernel.n_items, self.table.shape[1]), dtype=np.float32))
            parts[-1][self.codes] = self.table * np.float32(np.sqrt(self.rivals))
        if self.categories:
            parts.append(_directions(items) * np.float32(np.sqrt(self.categories)))
        if not parts:
            return slates.Vectors.none()._replace(table=np.zeros((kernel.n_items, 1)), scales=np.ones(kernel.n_items))
        return slates.Vectors(np.ascontiguousarray(np.hstack(parts)), np.ones(kernel.n_items))

    @property
    def settings(self) -> dict[str, float]:
        """The weights by source, and the diversity."""
        return {name: getattr(self, name) for name in _SETTINGS}

    @staticmethod
    def checked(settings: Any, codes: NDArray[Any], table: NDArray[Any], n_items: int) -> Likeness:
        """From a file, or ValueError if it is none."""
        named = {name: float(settings[name]) for name in _SETTINGS}
        if not all(0 <= value <= 1 for value in named.values()) or sum(named.values()) > 1 + named["diversity"] + 1e-9:
            raise ValueError("the weights of its slates are damaged")
        whole = table.ndim == 2 and len(table) == len(codes) and np.isfinite(table).all()
        if not whole or (len(codes) and not 0 <= codes.min() <= codes.max() < n_items):
            raise ValueError("the vectors of its slates are damaged")
        return Likeness(**named, codes=codes.astype(np.int64), table=table.astype(np.float32))


def learn_likeness(
    kernel: Kernel, items: Vocabulary, train: Sets | None, halves: Halves, shares: Shares, *, k: int = 10,
    criterion: str = "hits",
) -> Likeness | None:  # fmt: skip
    """The weights that half-hidden baskets favour; None if there are too few of them.

    By "hits", the slate of k that reaches the most categories of the hidden half (where there are none: that has any
    item of it most often), among the settings that cost no more than 0.5 % of the recall of the k most probable items,
    one standard error on the safe side: of many settings, some are lucky.
    By "likelihood", the weights of factors and rivals under which the hidden half is most likely.
    """
    if criterion not in CRITERIA:
        raise ParameterError(f"criterion must be one of {', '.join(CRITERIA)}, got {criterion!r}")
    usable = stream(0, _QUESTIONS).permutation(np.flatnonzero(halves.hidden.sizes > 0))
    usable = np.sort(usable[: MOST[criterion]])
    if len(usable) < FEWEST:
        return None
    given, hidden = (take_sets(half.sets, usable) for half in halves)
    rivals = Likeness() if train is None else find_rivals(train, kernel.n_items)
    tried = [
        replace(rivals, factors=a, rivals=r, categories=c)
        for a, r, c in _WITHOUT + (_WITH if items.categories and criterion == "hits" else [])
        if not r or len(rivals.codes)
    ]
    if criterion == "likelihood":
        trade = slates.Trade(k=1, diversity=DIVERSITIES[0])
        told = list(shares(given))
        logs = [
            slate_law.next_log_likelihoods(
                one.vectors(kernel, items), given, _copies(told), hidden, trade, n_jobs=kernel.n_jobs
            ).mean()
            for one in tried
        ]
        return tried[int(np.argmax(logs))]
    codes, lists = _candidates(given, shares)
    groups = group_numbers(items.categories, items) if items.categories else None
    goal = "hit" if groups is None else "categories_hit"
    found = []
    for one in tried:
        vectors = one.vectors(kernel, items)
        for diversity in DIVERSITIES:
            trade = slates.Trade(k=k, diversity=diversity, scale="log")
            chosen = slates.choose(vectors, lists, trade, slates.Rules.of(None, len(codes), k), n_jobs=kernel.n_jobs)
            places = np.where(chosen.positions >= 0, chosen.positions + lists.indptr[:-1, None], 0)
            samples = relevance_samples(np.where(chosen.positions >= 0, codes[places], -1), hidden, groups)
            found.append((replace(one, diversity=diversity), samples["recall"], float(samples[goal].mean())))
    top = found[0][1]  # without any likeness

    def free(recall: Array) -> bool:
        loss = top - recall
        return bool(loss.mean() + loss.std() / np.sqrt(len(loss)) <= LOSS * top.mean())

    return max(found, key=lambda entry: (free(entry[1]), entry[2]))[0]


def _copies(told: Iterable[tuple[int, int, Array]]) -> Iterator[tuple[int, int, Array]]:
    return ((first, last, shares.copy()) for first, last, shares in told)


def _candidates(given: Sets, shares: Shares) -> tuple[NDArray[np.int64], slates.Lists]:
    """The most probable next items of every set: their codes, and the lists to choose from."""
    codes, scores, sizes = [], [], []
    for _, _, part in shares(given):
        best = top_n(part, N_CANDIDATES)
        values = np.take_along_axis(part, best, axis=1)
        there = values > 0
        codes.append(best[there])
        scores.append(values[there])
        sizes.append(there.sum(axis=1))
    flat = np.concatenate(codes)
    return flat, slates.Lists.plain(pointers(np.concatenate(sizes)), np.concatenate(scores), flat)


# -- The sources -----------------------------------------------------------------------------------------


def find_rivals(train: Sets, n_items: int) -> Likeness:
    """Vectors of popular items whose products are √(1 − n_ij/e_ij), where two items share far fewer baskets than usual.

    n_ij baskets hold both; e_ij = n_i n_j Σ_b |b|(|b| − 1)/(Σ_b |b|)² would if baskets of these sizes were filled by
    popularity. The vectors are the leading factors of that matrix, each item's own entry being its largest.
    """
    counts = np.bincount(train.indices, minlength=n_items)
    codes = np.sort(np.argsort(-counts, kind="stable")[:N_POPULAR])
    codes = codes[counts[codes] >= LEAST_SALES].astype(np.int64)
    sizes = train.sizes.astype(np.float64)
    if len(codes) < 2:
        return Likeness()
    X = indicator(train, n_items)[:, codes]
    together = (X.T @ X).toarray()
    n = counts[codes].astype(np.float64)
    expected = np.outer(n, n) * (sizes * (sizes - 1)).sum() / sizes.sum() ** 2
    rare = together < expected - SURE * np.sqrt(expected)
    np.fill_diagonal(rare, False)
    own = rare.any(axis=1)
    codes, rare = codes[own], rare[np.ix_(own, own)]
    if not len(codes):
        return Likeness()
    ratio = (together[np.ix_(own, own)] + 1.0) / (expected[np.ix_(own, own)] + 1.0)
    alike = np.where(rare, np.sqrt(np.clip(1.0 - ratio, 0.0, 1.0)), 0.0)
    np.fill_diagonal(alike, alike.max(axis=1))
    return Likeness(codes=codes, table=_leading(alike, N_RIVAL_VECTORS))


def _leading(matrix: Array, n: int) -> NDArray[np.float32]:
    """The n leading factors of a symmetric matrix, no row longer than 1."""
    from scipy.linalg import eigh

    size = len(matrix)
    with blas_threads(1):  # the same on any machine with any number of cores
        values, vectors = eigh(matrix, subset_by_index=(max(size - n, 0), size - 1))
    factors = vectors * np.sqrt(np.maximum(values, 0.0))
    factors /= np.maximum(np.linalg.norm(factors, axis=1, keepdims=True), 1.0)
    return np.asarray(factors, dtype=np.float32)


def _units(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """The vectors scaled to length 1; one of zeros stays as it is."""
    lengths = np.linalg.norm(vectors.astype(np.float64, copy=False), axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros(vectors.shape), where=lengths > 0), dtype=np.float32)


def _directions(items: Vocabulary) -> NDArray[np.float32]:
    """A direction for every category: an axis each, or random ones if there are many; zeros for items without."""
    shelves = items.categories
    names = list(dict.fromkeys(shelves.values()))
    numbers = {name: number for number, name in enumerate(names)}
    if len(names) <= N_DIRECTIONS:
        table = np.eye(len(names) + 1, len(names), dtype=np.float32)
    else:
        signs = np.sign(stream(0, _DIRECTIONS).random((len(names) + 1, N_DIRECTIONS)) - 0.5)
        table = np.asarray(signs / np.sqrt(N_DIRECTIONS), dtype=np.float32)
        table[-1] = 0.0
    return table[[numbers[shelves[item]] if item in shelves else len(names) for item in items]]
