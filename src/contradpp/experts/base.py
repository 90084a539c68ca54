"""What models that score next items share: how baskets are asked about, how scores become lists, and `Baseline`.

Scores of a baseline are not probabilities. They are made so in a way that keeps every ranking: where one is
negative all are shifted so that the lowest is zero, then each is divided by the sum over the items that are not in
the basket (all zero: the same for each). Items whose scores tie, as all do for an empty basket, are offered by
popularity: a share of 10⁻⁶ of the largest weight times p̂_i is added, which is too little to change any other order.

A model of several experts asks a fitted baseline for plain scores, without the term that breaks ties. They are written
to an array of the caller's, on the caller's thread, so that blocks of baskets can be spread over threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import resolve_n_jobs, run_blocks
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import Sets, take_sets
from contradpp.data.vocabulary import Lookup, Vocabulary, check_unknown, unknown_items
from contradpp.dpp import persist
from contradpp.dpp.scoring import best_columns, without_blanks
from contradpp.errors import ContradppError, DataError, NotFittedError, ParameterError, UnknownItemError
from contradpp.experts.statistics import Labour, Sums

if TYPE_CHECKING:  # scikit-learn has no types: every model would pass for anything

    class BaseEstimator:
        """The methods of scikit-learn's class that are used here."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return the constructor's arguments."""

        def set_params(self, **params: Any) -> Self:
            """Change constructor arguments."""

        def __sklearn_tags__(self) -> Any:
            """Return what scikit-learn asks of an estimator."""

else:
    from sklearn.base import BaseEstimator

Array = NDArray[np.float64]
SCORES_PER_BLOCK = 2**20  # eight megabytes: larger blocks do not stay in the cache
MOST = 1e15  # of any parameter of a baseline: a whole number that every part can count to


# -- Questions -------------------------------------------------------------------------------------


class Queries(NamedTuple):
    """Sets of codes, and whether the user asked about a single basket (not a list of them)."""

    sets: Sets
    single: bool


def as_queries(baskets: Any, items: Vocabulary, *, unknown: str = "error") -> Queries:
    """Read one basket (an iterable of item ids) or many (Baskets, or an iterable of iterables).

    Duplicates within a basket are removed: a basket is a set. An iterable of lists, sets or arrays is many
    baskets; of tuples or frozensets too, unless these are themselves items of the vocabulary.
    """
    check_unknown(unknown)
    if isinstance(baskets, Baskets):
        coded = baskets.recode(items, unknown=unknown)
        return Queries(Sets(coded.indptr, coded.indices), single=False)
    content = _content(baskets)
    if not any(_is_basket(entry, items) for entry in content):
        return Queries(Sets.one(items.codes(content, unknown=unknown)), single=True)
    codes = []
    for number, basket in enumerate(content):
        try:
            codes.append(items.codes(_content(basket), unknown=unknown))
        except ContradppError as error:
            kind = UnknownItemError if isinstance(error, UnknownItemError) else DataError
            raise kind(f"basket {number}: {error}") from None
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in codes])]).astype(np.int64)
    return Queries(Sets(indptr, np.concatenate(codes).astype(np.int32)), single=False)


def as_codes(basket: Iterable[Any], items: Vocabulary, *, unknown: str = "error") -> NDArray[np.int32]:
    """The codes of one basket."""
    return items.codes(_content(basket), unknown=unknown)


def allowed_codes(
    items: Vocabulary, candidates: Iterable[Any] | None, exclude: Iterable[Any] | None, *, unknown: str = "error"
) -> NDArray[np.bool_]:
    """Which items may be suggested: only candidates, if there are any given, and nothing excluded."""
    allowed = np.full(len(items), candidates is None)
    if candidates is not None:
        allowed[as_codes(candidates, items, unknown=unknown)] = True
    allowed[as_codes(() if exclude is None else exclude, items, unknown="ignore")] = False
    return allowed


def as_ids(codes: NDArray[np.int64], items: Vocabulary) -> NDArray[Any]:
    """The item ids of an array of codes, None for −1, in the same shape."""
    if not codes.size or codes.min() >= 0:
        return items.take(codes.ravel().tolist()).reshape(codes.shape)
    ids = np.full(codes.size, None, dtype=object)
    for position, code in enumerate(codes.ravel().tolist()):
        ids[position] = items[code] if code >= 0 else None
    return ids.reshape(codes.shape)


def check_count(value: Any, name: str = "N", *, least: int = 1, why: str = "") -> None:
    """Raise `ParameterError` unless the value is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ParameterError(f"{name} must be an integer of at least {least}{why}, got {value!r}")


def _is_basket(entry: Any, items: Vocabulary) -> bool:
    if isinstance(entry, (list, set, np.ndarray)):
        return True
    if not isinstance(entry, (tuple, frozenset)) or entry in items:
        return False
    # Neither is certain of an entry that holds nothing known: what the vocabulary's ids look like decides.
    return any(part in items for part in entry) or not any(isinstance(item, type(entry)) for item in items)


def _content(basket: Any) -> list[Any]:
    scalar = isinstance(basket, np.ndarray) and basket.ndim == 0
    if scalar or isinstance(basket, (str, bytes)) or not isinstance(basket, Iterable):
        raise DataError(f"a basket must be a list of items, got {basket!r}: write [{basket!r}] for a basket of one")
    return list(basket)


class Suggests(BaseEstimator, ABC):
    """A model with a catalogue that scores what goes with a basket, an estimator as scikit-learn knows them."""

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that baskets are no table of numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments; `ParameterError` for one that there is none of."""
        try:
            super().set_params(**params)
        except ValueError as error:
            raise ParameterError(str(error)) from error
        return self

    @property
    @abstractmethod
    def known_items(self) -> Vocabulary:
        """The catalogue, or `NotFittedError`."""

    @abstractmethod
    def _best(
        self, sets: Sets, n: int, pool: NDArray[np.int64] | None, banned: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The codes of the n best next items of every set, −1 where fewer are left, and their probabilities.

        Only items of `pool` (ascending; all if None) that are not banned; as wide as the longest row.
        """

    @abstractmethod
    def _next_shares(self, sets: Sets) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        """P(next = i | A) of every set and item, block by block: first set, last set (excluded), shares (sets, M)."""

    def find_items(self, words: Iterable[Any], *, unknown: str = "error") -> list[Hashable]:
        """The ids of the items that these words mean: ids, or names in any case; of several so called, the most sold.

        Command line and service find items in the same way; other methods take ids only.
        """
        check_unknown(unknown)
        lookup = Lookup(self.known_items, self.item_shares())
        asked = _content(words)
        found = [lookup.find(word) for word in asked]
        missing = [word for word, item in zip(asked, found, strict=True) if item is None]
        if missing and unknown == "error":
            raise unknown_items(missing, len(self.known_items))
        return [item for item in found if item is not None]

    def predict_next(self, baskets: Any, *, unknown: str = "error") -> NDArray[np.float64]:
        """P(next = i | A) for every basket A and item i: (n, M), 0 for i in A; (M,) for one basket.

        A row sums to 1, or is all zeros if the basket holds the whole catalogue: nothing is left. Any other basket with
        as many items as a DPP's kernel has rank raises `RankError`, because every larger set has probability zero.
        """
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        out = np.empty((queries.sets.count, len(self.known_items)))
        for first, last, shares in self._next_shares(queries.sets):
            out[first:last] = shares
        return out[0] if queries.single else out

    def recommend(
        self,
        baskets: Any,
        N: int = 10,
        *,
        candidates: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        rank_by: str | float = "probability",
        unknown: str = "error",
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The N most probable next items and P(next = i | A), best first.

        Parameters
        ----------
        baskets : a basket, or many
            For one basket both results are one-dimensional, for many they have a row per basket.
        N : int
            How many; if fewer items are left, exactly those. Where a batch has rows of different lengths, the
            short ones end in None with probability 0.
        candidates : iterable of items, optional
            Recommend only from these. Probabilities are still among the whole catalogue.
        exclude : iterable of items, optional
            Never recommend these; what the model does not know it would not anyway.
        rank_by : {"probability", "lift"} or float
            "lift" puts first what the basket makes likelier than it is anyway: (P(next = i | A) + κ)/(p_i + κ), p_i the
            share of i in all that was sold, and κ = 1/M, so that a rare item is not there by luck. A number between 0,
            probability, and 1, lift, is a compromise: popularity is damped by it.
        """
        check_count(N)
        damping = _damping(rank_by)
        items = self.known_items
        queries = as_queries(baskets, items, unknown=unknown)
        pool = None if candidates is None else np.sort(as_codes(candidates, items, unknown=unknown)).astype(np.int64)
        banned = as_codes(() if exclude is None else exclude, items, unknown="ignore")
        best = partial(self._best_lifts, damping=damping) if damping else self._best
        codes, shares = best(queries.sets, int(N), pool, banned)
        found = as_ids(codes, items)
        return (found[0], shares[0]) if queries.single else (found, shares)

    @abstractmethod
    def item_shares(self) -> NDArray[np.float64]:
        """The share of every item in all that was sold."""

    def _best_lifts(
        self, sets: Sets, n: int, pool: NDArray[np.int64] | None, banned: NDArray[np.int32], *, damping: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """As `_best`, ranked by lift."""
        M = len(self.known_items)
        barred = _barred(M, pool, banned)
        usual = damping * np.log(self.item_shares() + 1.0 / M)
        n = min(n, M)
        codes, probabilities = np.full((sets.count, n), -1), np.zeros((sets.count, n))
        for first, last, shares in self._next_shares(sets):
            values = np.log(shares + damping / M) - usual
            values[:, barred] = -np.inf
            values[shares == 0] = -np.inf
            codes[first:last], probabilities[first:last] = best_columns(values, shares, n)
        return without_blanks(codes, probabilities)


def _barred(n_items: int, pool: NDArray[np.int64] | None, banned: NDArray[np.int32]) -> NDArray[np.integer]:
    """The codes of the items that must not be recommended."""
    if pool is None:
        return banned
    barred = np.ones(n_items, dtype=bool)
    barred[pool] = False
    barred[banned] = True
    return np.flatnonzero(barred)


def _damping(rank_by: str | float) -> float:
    """How much popularity is damped: 0 for probability, 1 for lift."""
    named = {"probability": 0.0, "lift": 1.0}
    if isinstance(rank_by, str) and rank_by in named:
        return named[rank_by]
    if isinstance(rank_by, (str, bool)) or not isinstance(rank_by, Real) or not 0 <= rank_by <= 1:
        raise ParameterError(f"rank_by must be 'probability', 'lift' or a number from 0 to 1, got {rank_by!r}")
    return float(rank_by)


# -- Scores ----------------------------------------------------------------------------------------


class ScoresItems(Suggests):
    """A model that gives every item a score, from which probabilities are made that keep the order."""

    items_: Vocabulary
    n_jobs: Any = None
    bias_: Array | float = 0.0  # what breaks ties

    @abstractmethod
    def write_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        """Write the scores of all items given every set (n_sets, M), those in the set included, ties not broken.

        With `each`, given every set without each of its entries in turn (nnz, M).
        """

    def scores(self, sets: Sets, *, each: bool = False) -> Array:
        """A new array of `write_scores`, ties broken by popularity."""
        scores = np.empty((len(sets.indices) if each else sets.count, len(self.known_items)))
        self.write_scores(sets, scores, each=each)
        scores += self.bias_
        return scores

    @abstractmethod
    def as_shares(self, scores: Array, sets: Sets) -> Array:
        """The scores as probabilities, 0 for items in the set; `scores` may be overwritten."""

    def _next_shares(self, sets: Sets) -> Iterator[tuple[int, int, Array]]:
        step = max(SCORES_PER_BLOCK // len(self.known_items), 1)
        for first in range(0, sets.count, step):
            part = take_sets(sets, np.arange(first, min(first + step, sets.count)))
            yield first, first + part.count, self.as_shares(self.scores(part), part)

    def _best(
        self, sets: Sets, n: int, pool: NDArray[np.int64] | None, banned: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], Array]:
        M = len(self.items_)
        barred = _barred(M, pool, banned)
        n = min(n, M)
        codes, shares = np.full((sets.count, n), -1), np.zeros((sets.count, n))
        step = max(SCORES_PER_BLOCK // M, 1)

        def work(block: int) -> None:
            rows = slice(block * step, min((block + 1) * step, sets.count))
            part = take_sets(sets, np.arange(rows.start, rows.stop))
            scores = self.scores(part)
            normalised = self.as_shares(scores.copy(), part)
            scores[:, barred] = -np.inf
            scores[np.repeat(np.arange(part.count), part.sizes), part.indices] = -np.inf
            codes[rows], shares[rows] = best_columns(scores, normalised, n)

        run_blocks(work, -(-sets.count // step), resolve_n_jobs(self.n_jobs))
        return without_blanks(codes, shares)


class Baseline(ScoresItems):
    """A model that scores what goes with a basket. Subclasses learn in `_learn`, score by `sums` or `write_scores`.

    `LEARNED` are the arrays that take long to find, which a model file holds; all else is counted anew.
    """

    LEARNED: ClassVar[persist.Schema] = {}
    item_counts_: NDArray[np.int64]
    n_jobs: int | None = None

    def fit(self, baskets: Any, y: Any = None) -> Self:
        """Learn from baskets: a `Baskets`, or a list of lists of items."""
        del y
        return self.fit_by(Labour(as_baskets(baskets)))

    def fit_by(self, labour: Labour, learned: Mapping[str, NDArray[Any]] | None = None) -> Self:
        """Learn from statistics that several models may share, or take over what was `learned` from them before."""
        train = labour.train
        if not train.n_baskets or not train.n_items:
            raise DataError(f"{type(self).__name__} needs at least one basket and one item to learn from")
        if learned is None or not self.LEARNED:
            self._learn(labour)
        else:
            self.take_learned(train, learned)
        self.items_, self.item_counts_ = train.items, train.item_counts
        return self

    @property
    def known_items(self) -> Vocabulary:
        if not hasattr(self, "items_"):
            raise NotFittedError(f"this {type(self).__name__} has not seen any baskets yet: call fit first")
        return self.items_

    @abstractmethod
    def _learn(self, labour: Labour) -> None:
        """Take what is needed from the training baskets."""

    def item_shares(self) -> Array:
        shares: Array = self.item_counts_ / max(int(self.item_counts_.sum()), 1)
        return shares

    def as_shares(self, scores: Array, sets: Sets) -> Array:
        """The scores as probabilities, by the module's rule; `scores` is overwritten."""
        inside = np.repeat(np.arange(sets.count), sets.sizes), sets.indices
        scores[inside] = np.inf
        scores -= np.minimum(scores.min(axis=1, keepdims=True, initial=np.inf), 0.0)
        scores[inside] = 0.0
        totals = scores.sum(axis=1)
        for row in np.flatnonzero(totals == 0):
            scores[row] = 1.0
            scores[row, sets.indices[sets.indptr[row] : sets.indptr[row + 1]]] = 0.0
            totals[row] = max(scores[row].sum(), 1.0)
        scores /= totals[:, None]
        return scores

    def sums(self) -> Sums | None:
        """What the scores are sums of, if they are: evaluation is faster then."""
        return None

    def log_probability(self, sets: Sets) -> Array | None:  # noqa: ARG002
        """log P(A) of every set, if the model knows it."""
        return None

    # -- As one of several experts -------------------------------------------------------------------

    def write_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        self._known_sums().write(sets, out, each=each)

    def contributions(self, codes: NDArray[np.int32], item: int) -> Array:
        """How much of the score of an item given a set each item of the set is responsible for (|A|,)."""
        return self._known_sums().contributions(codes, item)

    def alone(self, items: NDArray[np.int64]) -> Array:
        """How much of the scores of items does not depend on the basket."""
        return np.zeros(len(items))

    def learned(self) -> persist.Tensors:
        """Return the arrays of `LEARNED`, as a model file holds them."""
        return {}

    def take_learned(self, train: Baskets, learned: Mapping[str, NDArray[Any]]) -> None:
        """Set what `learned` returned for the same baskets; ValueError if it is damaged."""

    def _known_sums(self) -> Sums:
        sums = self.sums()
        if sums is None:
            raise ParameterError(f"the scores of {type(self).__name__} are no sums over the items of a basket")
        return sums


def of_logits(logits: Array, sets: Sets) -> Array:
    """The probabilities of logits, 0 for items in the set; `logits` is overwritten."""
    logits[np.repeat(np.arange(sets.count), sets.sizes), sets.indices] = -np.inf
    softmax(logits)
    return logits


def softmax(logits: Array) -> None:
    """Turn every row of logits, −inf for what is impossible, into probabilities; a row of nothing else into zeros."""
    with np.errstate(invalid="ignore"):  # ∞ − ∞
        for row in logits:
            top = row.max(initial=-np.inf)
            row -= top if top != -np.inf else 0.0
            np.exp(row, out=row)
            row /= row.sum() or 1.0


def tie_break(train: Baskets, weights: Array) -> Array:
    """The popularity term of the module's rule."""
    largest = max(weights.max(initial=0.0), -weights.min(initial=0.0)) or 1.0
    term: Array = 1e-6 * largest * train.item_counts / train.n_baskets
    return term


def at_least(least: float, **values: float) -> None:
    """Raise `ParameterError` for a value below `least` or above `MOST`, or that is no number."""
    for name, value in values.items():
        if not isinstance(value, (int, float, np.number)) or not least <= value <= MOST:
            raise ParameterError(f"{name} must be a number of at least {least} and at most {MOST:.0e}, got {value!r}")
