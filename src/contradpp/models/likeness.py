"""What is alike in a slate, and how that is learned from baskets of which half is hidden.

Φ is a mix of four sources, each of vectors no longer than 1: the factors of the kernel; rivals, items that share fewer
baskets than their sales let expect; company, items that are bought with the same others; and categories, where they are
known. Φ_ij = Σ_s w_s ⟨r_i, r_j⟩_s, Σ w_s ≤ 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads, run_blocks
from contradpp.data.halves import Halves, group_numbers, relevance_samples
from contradpp.data.sets import Sets, pointers, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import greedy, persist
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.scoring import top_n
from contradpp.errors import ParameterError
from contradpp.experts.statistics import indicator
from contradpp.learn.state import co_occurrences

Array = NDArray[np.float64]
Shares = Callable[[Sets], Iterator[tuple[int, int, Array]]]  # P(next = i | A), as `scoring.next_shares` gives it

DIVERSITIES = (0.4, 0.5, 0.6, 0.7)  # that are tried: around relevance and variety as they are, τ = 1 at a half
PLAIN = 0.5  # that of the law of slates, and where nothing was learned
CRITERIA = ("hits", "likelihood")
FEWEST = 50  # half-hidden baskets from which something can be learned
MOST = {"hits": 4000, "likelihood": 200}
N_CANDIDATES = 100
AT_ONCE = 64  # baskets that a thread is asked about
CLEAR = 1.96  # standard errors that a gain is above zero
LOSS = 0.005  # of recall, relative to that of the most probable items, that variety may cost at the worst
N_POPULAR, N_RIVAL_VECTORS = 2000, 64
N_COMPANY = 64  # dimensions
N_BANDS = 4  # of rows of a matrix, multiplied by one thread each
LEAST_SALES, SURE = 20, 3.0  # of an item that has rivals; standard deviations below what is expected
N_DIRECTIONS = 256  # categories beyond so many share directions

_QUESTIONS, _DIRECTIONS = 74, 75  # keys of random streams

# Weights of (factors, rivals, company, categories) that are tried.
_WITHOUT = [(a, r, 0.0, 0.0) for a in (0.0, 0.1, 0.25, 0.5) for r in (0.0, 0.5, 0.75, 1.0) if a + r <= 1.0]
_WITHOUT += [(0.0, r, w, 0.0) for w in (0.2, 0.35, 0.5) for r in (0.0, 0.5)]
_WITH = [(0.0, r, 0.0, c) for c in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4) for r in (0.0, 0.5)]
_WITH += [(0.0, 0.0, w, c) for w in (0.2, 0.35, 0.5) for c in (0.05, 0.1, 0.15, 0.2)]

_SOURCES = ("factors", "rivals", "company", "categories")
STORED = {
    "codes": persist.Stored(("n",), np.int64, low=0),
    "vectors": persist.Stored(("n", "r"), np.float32),
    "company": persist.Stored(("company", "c"), np.float32),
}


def _nothing() -> NDArray[np.float32]:
    return np.zeros((0, 0), dtype=np.float32)


@dataclass(frozen=True)
class Likeness:
    """Weights of the sources, a diversity that suits them, and vectors: of rivals a row for each of `codes`."""

    factors: float = 0.0
    rivals: float = 0.0
    company: float = 0.0
    categories: float = 0.0
    diversity: float = PLAIN
    codes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64), repr=False)
    table: NDArray[np.float32] = field(default_factory=_nothing, repr=False)
    places: NDArray[np.float32] = field(default_factory=_nothing, repr=False)  # of all items in the space of company

    def vectors(self, kernel: Kernel, items: Vocabulary) -> greedy.Vectors:
        """Vectors whose products are Φ, in float32."""
        parts: list[NDArray[np.float32]] = []
        if self.factors:
            parts.append(_units(kernel.vectors) * np.float32(np.sqrt(self.factors)))
        if self.rivals:
            parts.append(np.zeros((kernel.n_items, self.table.shape[1]), dtype=np.float32))
            parts[-1][self.codes] = self.table * np.float32(np.sqrt(self.rivals))
        if self.company:
            parts.append(self.places * np.float32(np.sqrt(self.company)))
        if self.categories:
            parts.append(_directions(items) * np.float32(np.sqrt(self.categories)))
        if not parts:
            return greedy.Vectors(np.zeros((kernel.n_items, 1), dtype=np.float32), np.ones(kernel.n_items))
        return greedy.Vectors(np.ascontiguousarray(np.hstack(parts)), np.ones(kernel.n_items))

    def enlarged(self, n_items: int, mix: Any = None) -> Likeness:
        """With places for items behind those there are: sums of others by a matrix (new, known), or none of their own.

        Without a place an item is alike to none by its company.
        """
        if not self.company or n_items == len(self.places):
            return self
        fresh = np.zeros((n_items - len(self.places), self.places.shape[1]), dtype=np.float32)
        return replace(self, places=np.vstack([self.places, fresh if mix is None else _units(mix @ self.places)]))

    @property
    def settings(self) -> dict[str, float]:
        """The weights by source, and the diversity."""
        return {name: getattr(self, name) for name in (*_SOURCES, "diversity")}

    def contents(self) -> tuple[persist.Tensors, dict[str, Any]]:
        """What a model file holds of it."""
        places = self.places if self.company else _nothing()
        arrays = {"codes": self.codes, "vectors": self.table, "company": places}
        return persist.stored_arrays(arrays, STORED, "slates."), {"slates": self.settings}

    @staticmethod
    def restored(tensors: persist.Tensors, settings: Any, n_items: int) -> Likeness:
        """From a model file, or ValueError if it is damaged."""
        weights = {name: float(settings[name]) for name in _SOURCES}
        diversity = float(settings["diversity"])
        fair = all(0 <= value <= 1 for value in (*weights.values(), diversity))
        if not fair or sum(weights.values()) > 1 + 1e-9:
            raise ValueError("the weights of its slates are damaged")
        sizes = {"company": n_items if weights["company"] else 0}
        found = persist.read_arrays(tensors, STORED, "vectors of slates", "slates.", **sizes)
        codes = found["codes"]
        if len(codes) and codes.max() >= n_items:
            raise ValueError("the vectors of its slates are damaged")
        return Likeness(**weights, diversity=diversity, codes=codes, table=found["vectors"], places=found["company"])


def learn_likeness(
    kernel: Kernel, items: Vocabulary, train: Sets | None, halves: Halves, shares: Shares, *, k: int = 10,
    criterion: str = "hits",
) -> Likeness | None:  # fmt: skip
    """The weights that half-hidden baskets favour; None if there are too few of them.

    By "hits", the slate of k that reaches the most categories of the hidden half (where there are none: that has any
    item of it most often), among the settings that cost no more than 0.5 % of the recall of the k most probable items,
    one standard error on the safe side: of many settings, some are lucky. Where settings have any item of the hidden
    half more often than the most probable items, clear of zero, it is one of them.
    By "likelihood", the weights of factors, rivals and company under which the hidden half is most likely.
    """
    if criterion not in CRITERIA:
        raise ParameterError(f"criterion must be one of {', '.join(CRITERIA)}, got {criterion!r}")
    usable = stream(0, _QUESTIONS).permutation(np.flatnonzero(halves.hidden.sizes > 0))
    usable = np.sort(usable[: MOST[criterion]])
    if len(usable) < FEWEST:
        return None
    given, hidden = (take_sets(half.sets, usable) for half in halves)
    known = Likeness() if train is None else find_rivals(train, kernel.n_items)
    if train is not None:
        known = replace(known, places=find_company(train, kernel.n_items, kernel.n_jobs))
    tried = [
        replace(known, factors=a, rivals=r, company=w, categories=c)
        for a, r, w, c in _WITHOUT + (_WITH if items.categories and criterion == "hits" else [])
        if (not r or len(known.codes)) and (not w or len(known.places))
    ]
    if criterion == "likelihood":
        trade = greedy.Trade(k=1, diversity=PLAIN)
        told = list(shares(given))
        logs = [
            greedy.next_log_likelihoods(
                one.vectors(kernel, items), given, _copies(told), hidden, trade, n_jobs=kernel.n_jobs
            ).mean()
            for one in tried
        ]
        return tried[int(np.argmax(logs))]
    codes, lists = _candidates(given, shares, kernel.n_jobs)
    groups = group_numbers(items.categories, items) if items.categories else None
    found = []
    for one in tried:
        vectors = one.vectors(kernel, items)
        for diversity in DIVERSITIES:
            trade = greedy.Trade(k=k, diversity=diversity, scale="log")
            chosen = greedy.choose(vectors, lists, trade, greedy.Rules.of(None, len(codes), k), n_jobs=kernel.n_jobs)
            places = np.where(chosen.positions >= 0, chosen.positions + lists.indptr[:-1, None], 0)
            samples = relevance_samples(np.where(chosen.positions >= 0, codes[places], -1), hidden, groups)
            found.append((replace(one, diversity=diversity), samples))
    return best_for_hits(found)


def best_for_hits(found: Sequence[tuple[Likeness, dict[str, Array]]]) -> Likeness:
    """The setting to take by its samples, basket by basket; the first has no likeness."""
    top = found[0][1]

    def gain(samples: dict[str, Array], metric: str, errors: float) -> float:
        """Over the most probable items, so many standard errors on the safe side."""
        difference = samples[metric] - top[metric]
        return float(difference.mean() - errors * difference.std() / np.sqrt(len(difference)))

    free = [one for one in found if gain(one[1], "recall", 1.0) >= -LOSS * float(top["recall"].mean())]
    usable = [one for one in free if gain(one[1], "hit", CLEAR) > 0] or free
    goal = "categories_hit" if np.isfinite(top["categories_hit"]).all() else "hit"
    return max(usable, key=lambda one: float(one[1][goal].mean()))[0]


def _copies(told: Iterable[tuple[int, int, Array]]) -> Iterator[tuple[int, int, Array]]:
    return ((first, last, shares.copy()) for first, last, shares in told)


def _candidates(given: Sets, shares: Shares, n_jobs: int) -> tuple[NDArray[np.int64], greedy.Lists]:
    """The most probable next items of every set: their codes, and the lists to choose from."""
    found: list[list[tuple[NDArray[np.int64], Array, NDArray[np.int64]]]] = [[] for _ in range(0, given.count, AT_ONCE)]

    def work(block: int) -> None:
        rows = np.arange(block * AT_ONCE, min((block + 1) * AT_ONCE, given.count))
        for _, _, part in shares(take_sets(given, rows)):
            best = top_n(part, N_CANDIDATES)
            values = np.take_along_axis(part, best, axis=1)
            there = values > 0
            found[block].append((best[there], values[there], there.sum(axis=1)))

    run_blocks(work, len(found), n_jobs)
    codes, scores, sizes = (np.concatenate(part) for part in zip(*chain.from_iterable(found), strict=True))
    return codes, greedy.Lists.plain(pointers(sizes), scores, codes)


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


def find_company(train: Sets, n_items: int, n_jobs: int = 1) -> NDArray[np.float32]:
    """Places of all items, near each other for two that are bought with the same others: of length 1, or zeros."""
    return _units(company_vectors(train, n_items, N_COMPANY, n_jobs))


def company_vectors(train: Sets, n_items: int, n: int, n_jobs: int = 1) -> Array:
    """The leading factors of the positive pointwise mutual information of items."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import LinearOperator, eigsh

    together = co_occurrences(train, np.ones(train.count), n_items, n_jobs).tocoo()
    apart = together.row != together.col
    row, column, counts = together.row[apart], together.col[apart], together.data[apart]
    sums = np.bincount(row, weights=counts, minlength=n_items)
    information = np.log(counts * counts.sum() / (sums[row] * sums[column]))
    kept = information > 0
    matrix = csr_array((information[kept], (row[kept], column[kept])), shape=(n_items, n_items))
    if n_items < 3 or not kept.any():
        return np.zeros((n_items, 1))
    ends = np.searchsorted(matrix.indptr, np.linspace(0, matrix.nnz, N_BANDS + 1)[1:-1])
    bands = list(pairwise([0, *ends.tolist(), n_items]))
    rows = [matrix[first:last] for first, last in bands]

    def times(x: Array) -> Array:
        product = np.empty(n_items)

        def work(band: int) -> None:
            product[slice(*bands[band])] = rows[band] @ x.ravel()

        run_blocks(work, N_BANDS, n_jobs)
        return product

    operator = LinearOperator((n_items, n_items), matvec=times, dtype=np.float64)
    with blas_threads(1):  # the same on any machine with any number of cores
        values, vectors = eigsh(operator, k=min(n, n_items - 2), which="LA", v0=np.ones(n_items))
    values[values < 1e-9 * values.max()] = 0.0  # rounding, as is what items without company have
    vectors[np.bincount(row[kept], minlength=n_items) == 0] = 0.0
    return np.asarray(vectors * np.sqrt(values), dtype=np.float64)


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
