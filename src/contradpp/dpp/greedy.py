"""Greedy choice: slates of scored candidates, baskets that grow by the best item, and how likely a slate is.

From scored candidates `choose` makes a short list that is relevant, varied and within rules. For the DPP a slate Y is
the greedy maximiser of log det(diag(q) Φ diag(q))_Y, q_j² = exp(τ ℓ_j): each next item j has the largest
(1 − δ) ℓ_j + δ log c_j, with c_j = det Φ_{Y∪j} / det Φ_Y and τ = (1 − δ)/δ. δ is the `diversity`: at 0 relevance alone
counts, at 1 variety alone, at ½ the two as they are, τ = 1. Φ has the cosines of the items' vectors off its diagonal
and 1 + 10⁻³ on it, so that no slate is impossible, however many items it has; an item without a vector is unlike all
others. ℓ is the log of relevance, by one of the rules in `SCALES`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._threads import blas_threads, run_blocks
from contradpp.data.sets import Sets, frozen, pointers, take_sets
from contradpp.dpp import compiled, factor, scoring
from contradpp.errors import ParameterError, RankError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Complex = NDArray[np.complex128]

METHODS = ("dpp", "mmr", "msd", "window")  # in the order of the numbers in `compiled.slates`
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
    told = Lists(*_steady(*lists))
    likeness = compiled.slates.Likeness(*_steady(*vectors, lists.rows))
    groups, caps, needs, needed = _steady(rules.groups, rules.caps, rules.needs, np.flatnonzero(rules.needs))
    limits = compiled.slates.Rules(groups, caps, needs, needed, int(rules.window))
    words = METHODS.index(trade.method), SCALES.index(trade.scale)
    mix = compiled.slates.Trade(
        min(int(trade.k), MOST), float(trade.diversity), *words, min(int(trade.reach), MOST), TIES[vectors.table.dtype]
    )

    def work(block: int) -> None:
        first = block * LISTS_PER_BLOCK
        compiled.slates.choose(likeness, told, limits, mix, first, min(first + LISTS_PER_BLOCK, n), out)

    run_blocks(work, -(-n // LISTS_PER_BLOCK), n_jobs)
    if len(needed) and ends.min(initial=0) < 0:
        failed = int(np.flatnonzero(ends < 0)[0])
        raise _too_few(failed, n, rules, rules.names[-1 - int(ends[failed])])
    return out


def _steady(*arrays: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Contiguous and read-only: a kernel is compiled anew for arrays of another kind."""
    return (frozen(np.ascontiguousarray(array)) for array in arrays)


def next_slates(
    vectors: Vectors,
    sets: Sets,
    shares_of_sets: Iterable[tuple[int, int, Array]],
    trade: Trade,
    allowed: NDArray[np.bool_],
    labels: Sequence[Any] | None = None,
    at_most: int | Mapping[Any, int] | None = None,
    *,
    n_jobs: int = 1,
) -> tuple[Ints, Array]:
    """A slate of next items for every set: codes, −1 where fewer are left, and P(next = i | A).

    Parameters
    ----------
    vectors : Vectors
        What is alike, a row per item.
    shares_of_sets : iterable
        As `next_shares` gives them.
    allowed : bool array (M,)
        Which items may be chosen.
    labels : sequence of M categories, optional
        What `at_most` counts; None for an item that has none.
    """
    rules = Rules.of(labels, len(allowed), trade.k, at_most=at_most)
    width = min(trade.k, len(allowed))
    codes = np.full((sets.count, width), -1, dtype=np.int64)
    probabilities = np.zeros((sets.count, width))
    for first, last, shares in shares_of_sets:
        free = np.tile(allowed, (last - first, 1))
        part = take_sets(sets, np.arange(first, last))
        free[np.repeat(np.arange(part.count), part.sizes), part.indices] = False
        rows = np.nonzero(free)[1]
        lists = Lists.plain(pointers(free.sum(axis=1)), shares[free], rows)
        own = rules._replace(groups=rules.groups[rows])
        found = choose(vectors, lists, trade, own, n_jobs=n_jobs)
        there = found.positions >= 0
        places = np.where(there, found.positions + lists.indptr[:-1, None], 0)
        if len(rows):
            codes[first:last, : there.shape[1]] = np.where(there, rows[places], -1)
            probabilities[first:last, : there.shape[1]] = np.where(there, lists.scores[places], 0.0)
    return scoring.without_blanks(codes, probabilities)


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


MOST_PAIRED = 2000  # items up to which all pairs are looked at where no single item may join


class GrowingSet:
    """The items of a set, what it takes to condition on them, and det L_{A∪j} / det L_A for every j.

    The kernel given A is L − Eᵀ U, with a row of E and of U for every item of A. When item i joins, its column and
    its row of that kernel, divided by its score, become the new rows: one product with X, and O(|A| M) besides. Where L
    is symmetric both are V q, q the direction that the item adds to those of the set.

    Attributes
    ----------
    codes : list of int
        The items, in the order in which they came.
    scores : ndarray (M,)
        The next-item scores, 0 exactly where a set would have probability zero; −inf for the items of the set.
    """

    def __init__(self, kernel: Kernel, given: ArrayLike = ()) -> None:
        self.kernel = kernel
        codes = np.asarray(given, dtype=np.int32).reshape(-1)
        self.codes: list[int] = codes.tolist()
        self._E: NDArray[np.floating] = np.empty((0, kernel.n_items))
        self._U: NDArray[np.floating] = self._E
        self.scores: Array = kernel.squared_norms.copy()
        self._sizes: Array = kernel.squared_norms.copy()  # the sum of the sizes of the terms of each score
        if len(codes):
            factors = self._factors(codes.tolist())
            self._E, self._U = scoring.products(kernel, Sets.one(codes), factors)
            terms = self._E * self._U.astype(np.float64)
            self.scores -= terms.sum(axis=0)
            self._sizes += np.abs(terms).sum(axis=0)
            self._settle(factors)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def open_to(self) -> NDArray[np.bool_]:
        """Which items are not in the set."""
        free = np.ones(self.kernel.n_items, dtype=bool)
        free[self.codes] = False
        return free

    def add(self, code: int) -> None:
        """Put an item into the set; `RankError` if the set would have probability zero then."""
        kernel, score = self.kernel, self.scores[code]
        if not score > 0:
            raise RankError(f"item {code} cannot join: the set would have probability zero")
        factors = self._factors([*self.codes, int(code)])
        if isinstance(factors, factor.Bases):
            V = kernel.vectors
            e = u = (V @ factors.rows[-1].astype(V.dtype, copy=False)).astype(np.float64, copy=False)
        else:
            e = self._line(kernel.right[code], code, -1.0) - self._U[:, code] @ self._E
            u = (self._line(kernel.left[code], code, 1.0) - self._E[:, code] @ self._U) / score
            self._E, self._U = np.vstack([self._E, e]), np.vstack([self._U, u])
        self.scores -= e * u
        self._sizes += np.abs(e * u)
        self.codes.append(int(code))
        self._settle(factors)

    def _factors(self, codes: list[int]) -> factor.Bases | factor.Inverses:
        """Those of a set, or `RankError` if it has probability zero."""
        if len(codes) <= self.kernel.largest_set:
            found = factor.factorise(self.kernel, Sets.one(codes))
            if np.isfinite(found.logs[0]):
                return found
        raise RankError(
            "the basket has probability zero: it has more items than the kernel's components and links allow, or its "
            "items are linearly dependent"
        )

    def _line(self, row: Array, code: int, sign: float) -> Array:
        """X row, with the item's entries of S: its column or its row of L, but for its own entry."""
        skew = self.kernel.skew
        line: Array = self.kernel.wide @ row
        partners = slice(int(skew.indptr[code]), int(skew.indptr[code + 1]))
        line[skew.indices[partners]] += sign * skew.values[partners]
        return line

    def _settle(self, factors: factor.Bases | factor.Inverses) -> None:
        """Make scores zero that are, and compute those anew that rounding may have spoiled."""
        self.scores[self.codes] = -np.inf
        clear = factor.clear_share(self.kernel, factors.worst)[0] * self._sizes
        unclear = np.flatnonzero((self.scores <= clear) & (self.scores > -np.inf) & (self._sizes > 0))
        if len(unclear):
            copies = take_sets(Sets.one(self.codes), np.zeros(len(unclear), dtype=np.int64))
            logs = np.repeat(factors.logs, len(unclear))
            self.scores[unclear] = factor.scores_by_definition(self.kernel, copies, logs, unclear)


def greedy_completion(
    kernel: Kernel, given: NDArray[np.int32], size: int, *, allowed: NDArray[np.bool_] | None = None
) -> NDArray[np.int32]:
    """The given items, then again and again the item (or two that need each other) that raises det L the most.

    A step costs one product with the factors. Finding the true maximum is NP-hard; greedy is what can be done (Chen,
    Zhang and Zhou 2018 for the same recursion).

    Parameters
    ----------
    allowed : bool array (M,), optional
        Which items may be added.
    """
    if size > kernel.largest_set:
        raise RankError(scoring.too_large(size, kernel.largest_set))
    chosen = kernel.grow(given)
    allowed = np.ones(kernel.n_items, dtype=bool) if allowed is None else allowed
    while len(chosen) < size:
        scores = np.where(allowed, chosen.scores, -np.inf)
        best = int(np.argmax(scores))  # the first of equals
        if scores[best] > 0:
            chosen.add(best)
            continue
        pair = _best_pair(kernel, chosen, allowed) if size - len(chosen) >= 2 else None
        if pair is None:
            raise RankError(
                f"no other item can join the {len(chosen)} that were chosen greedily, so there is no set of {size}; "
                f"try size={len(chosen)}"
            )
        chosen = kernel.grow([*chosen.codes, *pair])
    return np.array(chosen.codes, dtype=np.int32)


def _best_pair(kernel: Kernel, chosen: GrowingSet, allowed: NDArray[np.bool_]) -> tuple[int, int] | None:
    """The two items that raise det L the most where neither may join alone, as two that only attract each other."""
    if kernel.symmetric or kernel.n_items > MOST_PAIRED:
        return None
    given, rest = kernel.condition(np.array(chosen.codes, dtype=np.int32))
    L, free = given.matrix(), allowed[rest]
    weights = np.diagonal(L)
    gains = np.outer(weights, weights) - L * L.T
    gains[~free], gains[:, ~free] = -np.inf, -np.inf
    np.fill_diagonal(gains, -np.inf)
    first, second = np.unravel_index(int(np.argmax(gains)), gains.shape)
    pair = int(rest[first]), int(rest[second])
    possible = gains[first, second] > 0 and np.isfinite(kernel.log_det(Sets.one([*chosen.codes, *pair]))[0])
    return pair if possible else None


_SMALL = 1e-3  # |z w d| below which a series replaces an item
_TERMS = 4  # of that series: what is left out is 10⁻¹² of a term
_LEAST = 1e-6  # of the sum on the circle: below, the circle is too small


def next_log_likelihoods(
    vectors: Vectors, sets: Sets, shares_of_sets: Iterable[tuple[int, int, Array]], slates: Sets, trade: Trade,
    *, n_jobs: int = 1,
) -> Array:  # fmt: skip
    """log P(slate) given every set, with relevance as `scoring.next_shares` gives it, by the rule of scale "log"."""
    out = np.empty(sets.count)
    power = (1.0 - trade.diversity) / trade.diversity
    for first, last, shares in shares_of_sets:
        numbers = np.arange(first, last)
        part = take_sets(sets, numbers)
        best = np.maximum(shares.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        worth = power * np.log(np.maximum(shares / best, compiled.slates.LOWEST))
        worth[np.repeat(np.arange(part.count), part.sizes), part.indices] = -np.inf
        out[first:last] = slate_log_likelihoods(vectors, worth, take_sets(slates, numbers), n_jobs=n_jobs)
    return out


def slate_log_likelihoods(vectors: Vectors, worth: Array, sets: Sets, *, n_jobs: int = 1) -> Array:
    """log P(set) among all sets of its size, for every set; −inf for one that cannot be.

    Parameters
    ----------
    vectors : Vectors
        R, a row per item; without rows Φ is the identity (but for its ridge).
    worth : array (n_sets, M)
        log q_j², −inf for items that cannot be chosen.
    sets : Sets
    """
    out = np.empty(sets.count)
    R = np.asarray(vectors.of_rows(np.arange(worth.shape[1])), dtype=np.float64)
    R = R[:, :0] if not R.any() else R
    one = 1.0 + compiled.slates.RIDGE  # what Φ has on its diagonal
    diagonal = one - np.square(R).sum(axis=1)

    def work(number: int) -> None:
        codes = sets.indices[sets.indptr[number] : sets.indptr[number + 1]]
        row = worth[number]
        free = np.flatnonzero(row > -np.inf)
        if len(codes) > len(free) or not np.isfinite(row[codes]).all():
            out[number] = -np.inf
            return
        within = R[codes] @ R[codes].T
        np.fill_diagonal(within, one)
        top = float(row.max(initial=0.0, where=row > -np.inf)) if len(free) else 0.0
        sums = log_sum_of_sets(np.exp(row[free] - top), R[free], diagonal[free], len(codes))
        out[number] = float((row[codes] - top).sum() + np.linalg.slogdet(within)[1] - sums)

    with blas_threads(1):
        run_blocks(work, sets.count, n_jobs)
    return out


def log_sum_of_sets(w: Array, R: Array, d: Array, k: int) -> float:
    """log Σ_{|Y| = k} Π_{j∈Y} w_j · det(D + R Rᵀ)_Y."""
    if k == 0:
        return 0.0
    n = 2 * k + 32  # points: sizes that far beyond k have no weight on the circle
    radius = _saddle(w, k)
    while True:
        turns = 2j * np.pi * np.arange(n // 2 + 1) / n
        logs = _log_dets(radius * np.exp(turns), w, R, d)
        at = float(logs[0].real)
        share = float(np.fft.irfft(np.exp(np.conj(logs) - at), n)[k])
        if share > _LEAST or radius > 1e200:
            return at + float(np.log(max(share, 1e-300))) - k * float(np.log(radius))
        radius *= 2.0  # items repel each other: sets of k are rarer than they would be by chance


def _saddle(w: Array, k: int) -> float:
    """The z at which independent items with odds z w are k on average (or nearly all there are)."""
    aim = min(float(k), len(w) - 0.5)
    t = np.log(aim / w.sum())
    for _ in range(60):
        share = 1.0 / (1.0 + np.exp(-t) / w)
        off = aim - share.sum()
        if abs(off) < 1e-6:
            break
        t += np.clip(off / max(float((share * (1 - share)).sum()), 1e-12), -2.0, 2.0)
    return float(np.exp(t))


def _log_dets(z: Complex, w: Array, R: Array, d: Array) -> Complex:
    """log det(I + zL) for every z, all of one modulus."""
    odds = w * d
    small = abs(z[0]) * odds < _SMALL
    head, tail = np.flatnonzero(~small), np.flatnonzero(small)
    logs = np.log1p(z[:, None] * odds[head]).sum(axis=1)
    inner = np.zeros((len(z), R.shape[1], R.shape[1]), dtype=np.complex128)
    powers, most = odds[tail], R[tail]
    weights = w[tail].copy()
    for p in range(_TERMS):
        sign = (-1.0) ** p
        logs = logs + sign * z ** (p + 1) / (p + 1) * np.sum(powers ** (p + 1))
        if R.shape[1]:
            inner += (sign * z**p)[:, None, None] * (most.T @ (most * weights[:, None]))
            weights *= powers
    if not R.shape[1]:
        return np.asarray(logs, dtype=np.complex128)
    X = R[head]
    rates = w[head] / (1.0 + z[:, None] * odds[head])  # (points, head)
    for point in range(len(z)):
        inner[point] += X.T @ (X * rates[point][:, None])
    sign, size = np.linalg.slogdet(np.eye(R.shape[1]) + z[:, None, None] * inner)
    return np.asarray(logs + size + np.log(sign), dtype=np.complex128)
