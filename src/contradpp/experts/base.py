"""The interface of all models that recommend next items, and the base class of experts.

An expert scores every item given a basket. By itself it is a baseline; `ConditionalDPP` combines
several. To add one, write a subclass of `Baseline` in a file of its own, with two things:

1. `_fit(statistics)` learns from `statistics.train` (a `Baskets`). Use `statistics.together` and
   `statistics.regress` for counts of pairs and regressions: they are shared with other experts.
2. Scores. If the score of item j is a sum over the basket, Σ_{a∈A} W[a, j], set `item_weights_`
   to W in `_fit`. Otherwise write `write_scores(sets, out)`.

Everything else is inherited. Override, where it applies:

- `write_scores_without_each`, if there is a faster way than to score every reduced basket;
- `contributions` and `alone`, which divide a score among the items of a basket in an explanation
  (without them it adds the items one after the other, and takes the differences);
- `_to_probabilities`, if scores are logits;
- `ARRAYS`, `arrays` and `set_arrays`, if a model file should hold what takes long to learn.

List the class in `contradpp/baselines.py` and in `tests/contract.py`. An expert that
`ConditionalDPP` knows by name also has a row in the table of experts.

Scores become probabilities in a way that keeps every ranking. If one is negative, all are shifted
so that the lowest is zero. Each is then divided by the sum over the items outside the basket; if
all are zero, each of these items gets the same. Ties are broken by popularity: 10⁻⁶ of the largest
weight times p̂_i is added to the score of item i, p̂_i the share of baskets that hold it.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._display import html_table
from contradpp._threads import over_parts, resolve_n_jobs
from contradpp._types import Array, Codes, Ints
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.orders import Histories, SetsWithHistory
from contradpp.data.sets import Sets, take_sets, without_each
from contradpp.data.vocabulary import Lookup, Vocabulary, check_unknown, unknown_items
from contradpp.dpp import files as persist
from contradpp.dpp.scoring import best_columns, without_blanks
from contradpp.errors import DataError, NotFittedError, ParameterError
from contradpp.experts.queries import (
    as_codes,
    as_ids,
    as_items,
    as_queries,
    check_count,
    with_history,
)
from contradpp.experts.statistics import (
    BasketStatistics,
    ItemWeights,
    weights_to,
    write_sums,
    write_sums_without_each,
)

if TYPE_CHECKING:  # scikit-learn has no types: every model would pass for anything

    class BaseEstimator:
        """The methods of scikit-learn's class that are used here."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return the constructor's arguments."""

        def set_params(self, **params: Any) -> Self:
            """Change constructor arguments."""

        def __sklearn_tags__(self) -> Any:
            """Return the tags of an estimator."""

else:
    from sklearn.base import BaseEstimator

SCORES_PER_BLOCK = 2**20  # eight megabytes: larger blocks do not stay in the cache
ONE_SIDED = 1.64  # standard errors of a lower bound at the level of 95 %
MOST = 1e15  # the largest parameter of a baseline: floats hold integers up to here exactly


class Recommender(BaseEstimator, ABC):
    """A model with a catalogue that predicts next items: a scikit-learn estimator of baskets.

    In every method a basket is an iterable of item ids. Duplicates in it are ignored, and
    `unknown="ignore"` leaves out unknown items instead of raising `UnknownItemError`. Methods that
    take baskets accept one (and answer without the batch axis) or many: a `Baskets`, or a list of
    lists.
    """

    items_: Vocabulary
    uses_history: ClassVar[bool] = False  # True if scores depend on a customer's earlier baskets
    n_jobs: int | None = None

    # -- Written by subclasses ---------------------------------------------------------------------

    def _scores(self, sets: Sets) -> Array:
        """Return the scores of every item given every set, in a new array (n_sets, M)."""
        raise NotImplementedError

    def _to_probabilities(self, scores: Array, sets: Sets) -> Array:
        """Turn scores into probabilities, 0 for items in the set; `scores` is overwritten."""
        return softmax_outside(scores, sets)

    # -- Questions ---------------------------------------------------------------------------------

    @property
    def known_items(self) -> Vocabulary:
        """The catalogue; `NotFittedError` before `fit`."""
        if not hasattr(self, "items_"):
            name = type(self).__name__
            raise NotFittedError(f"this {name} has learned nothing yet: call fit first")
        return self.items_

    def item_probabilities(self) -> Array:
        """Return the share of every item in all items of the training baskets (M,)."""
        counts = getattr(self, "item_counts_", np.zeros(len(self.known_items)))
        probabilities: Array = counts / max(int(counts.sum()), 1)
        return probabilities

    def predict_next(self, baskets: Any, *, history: Any = None, unknown: str = "error") -> Array:
        """Return P(next = i | A) for every basket A and item i.

        Parameters
        ----------
        baskets : a basket, or many
        history : list of baskets, optional
            The customer's earlier baskets, oldest first, for models that use them. For many
            baskets, a history for each. Unknown items in it are ignored.
        unknown : {"error", "ignore"}
            Raise `UnknownItemError` for items outside the catalogue, or leave them out.

        Returns
        -------
        array (n, M)
            0 for i in A; (M,) for one basket. A row sums to 1, or is all zeros if the basket holds
            the whole catalogue. Any other basket with as many items as a DPP's kernel has rank
            raises `RankError`, because every larger set has probability zero.
        """
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        queries = with_history(queries, history, self)
        out = np.empty((queries.sets.count, len(self.known_items)))
        for first, last, probabilities in self._next_probabilities(queries.sets):
            out[first:last] = probabilities
        return out[0] if queries.single else out

    def recommend(
        self,
        baskets: Any,
        N: int = 10,
        *,
        history: Any = None,
        new_only: bool = False,
        candidates: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        rank_by: str | float = "probability",
        unknown: str = "error",
    ) -> tuple[NDArray[Any], Array]:
        """Return the N most probable next items and P(next = i | A), best first.

        It answers "What comes next?": each item is rated by itself, so a list may hold several of
        a kind. A DPP's `slate` avoids that, and `complete` fills a basket.

        Parameters
        ----------
        baskets : a basket, or many
            For one basket both results are one-dimensional, for many they have a row per basket.
        N : int
            Length of the lists. If fewer items are left, a list is shorter. In a batch, rows that
            are shorter than others end in None with probability 0.
        history : list of baskets, optional
            The customer's earlier baskets, oldest first; for many baskets, a history for each.
        new_only : bool
            Never recommend items of the history.
        candidates : iterable of items, optional
            Recommend only from these. Probabilities are still among the whole catalogue.
        exclude : iterable of items, optional
            Never recommend these. Unknown items among them are ignored.
        rank_by : {"probability", "lift"} or float
            From 0 or "probability", the most likely items, to 1 or "lift", the most specific ones.
            The former are right most often, and best sellers come first. The latter are those that
            the basket makes likelier than usual. The order is that of
            (P(next = i | A) + dκ)/((p_i + κ) exp(1.64/√(n_i + 1)))^d for the number d, with p_i the
            share of i in all items sold, κ = 1/M, and i in n_i training baskets. So luck does not
            put rare items first.
        unknown : {"error", "ignore"}
            Raise `UnknownItemError` for items outside the catalogue, or leave them out.

        Returns
        -------
        items : array of item ids
        probabilities : array of float
        """
        check_count(N)
        damping = damping_of(rank_by)
        items = self.known_items
        queries = as_queries(baskets, items, unknown=unknown)
        queries = with_history(queries, history, self, new_only=new_only)
        pool = None
        if candidates is not None:
            pool = np.sort(as_codes(candidates, items, unknown=unknown)).astype(np.int64)
        banned = as_codes(() if exclude is None else exclude, items, unknown="ignore")
        if damping:
            codes, probabilities = self._best_lifts(queries.sets, int(N), pool, banned, damping)
        else:
            codes, probabilities = self._best(queries.sets, int(N), pool, banned)
        ids = as_ids(codes, items)
        return (ids[0], probabilities[0]) if queries.single else (ids, probabilities)

    def next_basket(self, history: Any, N: int = 10, **options: Any) -> tuple[NDArray[Any], Array]:
        """Return the N items most probably in a customer's next basket, by earlier baskets.

        It is `recommend` for an empty basket.

        Parameters
        ----------
        history : list of baskets
            The customer's earlier baskets, oldest first.
        N, **options
            As in `recommend`.

        Examples
        --------
        >>> import contradpp as cd
        >>> model = cd.baselines.PersonalFrequency().fit([["tea", "milk"], ["pasta", "tea"]])
        >>> model.next_basket([["milk", "pasta"], ["milk"]], N=2)[0].tolist()
        ['milk', 'pasta']
        """
        return self.recommend([], N, history=history, **options)

    def find_items(self, words: Iterable[Any], *, unknown: str = "error") -> list[Hashable]:
        """Return the ids of the items that these words mean: ids, or names in any case.

        Of several items of one name, the one that sells most is taken. The command line and the
        service find items in this way; other methods take ids only.
        """
        check_unknown(unknown)
        lookup = Lookup(self.known_items, self.item_probabilities())
        queries = as_items(words)
        found = [lookup.find(word) for word in queries]
        missing = [word for word, item in zip(queries, found, strict=True) if item is None]
        if missing and unknown == "error":
            raise unknown_items(missing, self.known_items)
        return [item for item in found if item is not None]

    # -- Scikit-learn ------------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments; an unknown name raises `ParameterError`."""
        try:
            super().set_params(**params)
        except ValueError as error:
            raise ParameterError(str(error)) from error
        return self

    def _repr_html_(self) -> str:
        """Show in a notebook which parameters differ from the defaults, and what was learned."""
        defaults = inspect.signature(type(self)).parameters
        rows = [
            (name, repr(value))
            for name, value in self.get_params(deep=False).items()
            if repr(value) != repr(defaults[name].default)
        ]
        try:
            rows.append(("items", f"{len(self.known_items):,}"))
        except NotFittedError:
            rows.append(("not fitted", ""))
        for name, text in (("n_baskets_", "training baskets"), ("n_iter_", "rounds")):
            if value := getattr(self, name, 0):
                rows.append((text, f"{value:,.0f}"))
        if experts := getattr(self, "experts_", None):
            rows.append(("experts", ", ".join(experts)))
        return html_table((), rows, type(self).__name__)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Replace the diagram of scikit-learn."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # baskets are no table of numbers
        return tags

    # -- The best items ----------------------------------------------------------------------------

    def _next_probabilities(self, sets: Sets) -> Iterator[tuple[int, int, Array]]:
        """Yield blocks of sets: first, last (excluded), and P(next = i | A) of each (sets, M)."""
        step = max(SCORES_PER_BLOCK // len(self.known_items), 1)
        for first in range(0, sets.count, step):
            part = take_sets(sets, np.arange(first, min(first + step, sets.count)))
            probabilities = self._to_probabilities(self._scores(part), part)
            if isinstance(part, SetsWithHistory):
                probabilities[part.histories.banned] = 0.0
            yield first, first + part.count, probabilities

    def _best(self, sets: Sets, n: int, pool: Ints | None, banned: Codes) -> tuple[Ints, Array]:
        """Return the codes of the n best next items of every set, and their probabilities.

        Only items of `pool` (ascending; None for all) that are not banned. Both arrays are as wide
        as the longest row; shorter rows end in −1. Blocks of sets run on threads, on whose number
        the result does not depend.
        """
        n_items = len(self.known_items)
        excluded = excluded_codes(n_items, pool, banned)
        n = min(n, n_items)
        codes = np.full((sets.count, n), -1)
        probabilities = np.zeros((sets.count, n))

        def rank(rows: slice) -> None:
            part = take_sets(sets, np.arange(rows.start, rows.stop))
            scores = self._scores(part)
            normalized = self._to_probabilities(scores.copy(), part)
            scores[:, excluded] = -np.inf
            scores[part.owners, part.indices] = -np.inf
            if isinstance(part, SetsWithHistory):
                scores[part.histories.banned] = -np.inf
            codes[rows], probabilities[rows] = best_columns(scores, normalized, n)

        step = max(SCORES_PER_BLOCK // n_items, 1)
        over_parts(rank, sets.count, step, resolve_n_jobs(self.n_jobs))
        return without_blanks(codes, probabilities)

    def _best_lifts(
        self, sets: Sets, n: int, pool: Ints | None, banned: Codes, damping: float
    ) -> tuple[Ints, Array]:
        """Return the same as `_best`, ranked by lift."""
        M = len(self.known_items)
        excluded = excluded_codes(M, pool, banned)
        n = min(n, M)
        codes = np.full((sets.count, n), -1)
        best = np.zeros((sets.count, n))
        for first, last, probabilities in self._next_probabilities(sets):
            lifts = damped_lifts(self, probabilities, damping)
            lifts[:, excluded] = 0.0
            lifts[lifts == 0] = -np.inf
            codes[first:last], best[first:last] = best_columns(lifts, probabilities, n)
        return without_blanks(codes, best)


class Baseline(Recommender):
    """A model that scores what goes with a basket, and an expert of `ConditionalDPP`.

    The module's docstring says what a subclass writes. `item_weights_` is W where the scores are
    Σ_{a∈A} W[a, j], else None. `bias_` (M,) is added to scores to break ties.
    """

    ARRAYS: ClassVar[persist.Schema] = {}  # the arrays that a model file holds
    item_counts_: Ints
    item_weights_: ItemWeights | None = None
    bias_: Array | float = 0.0

    # -- Written by subclasses ---------------------------------------------------------------------

    @abstractmethod
    def _fit(self, statistics: BasketStatistics) -> None:
        """Learn from the training baskets."""

    def write_scores(self, sets: Sets, out: Array) -> None:
        """Write the score of every item given every set to `out` (n_sets, M), ties unbroken.

        Scores of the items in the set are written, too, and ignored. The method runs on one thread:
        blocks of sets are spread over threads by the caller.
        """
        write_sums(self._checked_item_weights(), sets, out)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        """Write the scores given every set without each of its entries in turn (nnz, M)."""
        if self.item_weights_ is None:
            self.write_scores(without_each(sets), out)
        else:
            write_sums_without_each(self.item_weights_, sets, out)

    def contributions(self, codes: Codes, item: int) -> Array:
        """Return the part of each basket item in the score of an item given the basket (|A|,)."""
        return weights_to(self._checked_item_weights(), codes, item)

    def alone(self, items: Ints) -> Array:
        """Return the part of the scores of items that does not depend on the basket (n,)."""
        return np.zeros(len(items))

    def _to_probabilities(self, scores: Array, sets: Sets) -> Array:
        """Turn scores into probabilities, 0 for items in the set; `scores` is overwritten."""
        inside = sets.owners, sets.indices
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

    def arrays(self) -> persist.Tensors:
        """Return the arrays of `ARRAYS`, as a model file holds them."""
        return {}

    def set_arrays(self, train: Baskets, arrays: persist.Tensors) -> None:
        """Set what `arrays` returned after a fit to the same baskets; ValueError if damaged."""

    def log_probability(self, sets: Sets) -> Array | None:  # noqa: ARG002
        """Return log P(A) of every set, or None for a model that has no distribution of sets."""
        return None

    # -- The same for all --------------------------------------------------------------------------

    def fit(self, baskets: Any, y: Any = None) -> Self:
        """Learn from baskets.

        Parameters
        ----------
        baskets : Baskets, or a list of lists of items
        y : ignored

        Returns
        -------
        the model itself
        """
        del y
        return self.fit_statistics(BasketStatistics(as_baskets(baskets)))

    def fit_statistics(
        self, statistics: BasketStatistics, arrays: persist.Tensors | None = None
    ) -> Self:
        """Learn from statistics that several models share.

        `arrays`, if given, are those of a model file, which are set and not learned again.
        """
        train = statistics.train
        if not train.n_baskets or not train.n_items:
            raise DataError(
                f"{type(self).__name__} needs at least one basket and one item to learn from"
            )
        if arrays is None or not self.ARRAYS:
            self._fit(statistics)
        else:
            self.set_arrays(train, arrays)
        self.items_ = train.items
        self.item_counts_ = train.item_counts
        return self

    @property
    def has_contributions(self) -> bool:
        """True if `contributions` divides the scores among the items of a basket."""
        overridden = type(self).contributions is not Baseline.contributions
        return overridden or self.item_weights_ is not None

    def history_scores(self, history: Sets) -> Array:  # noqa: ARG002
        """Return the scores of items given a customer's earlier baskets, oldest first (M,)."""
        raise ParameterError(f"{type(self).__name__} does not use a history")

    def _scores(self, sets: Sets) -> Array:
        """Return the scores of every item given every set (n_sets, M), ties broken."""
        scores = np.empty((sets.count, len(self.known_items)))
        self.write_scores(sets, scores)
        scores += self.bias_
        if isinstance(sets, SetsWithHistory):
            scores += self.history_scores_of(sets.histories)
        return scores

    def history_scores_of(self, histories: Histories) -> Array:
        """Return `history_scores` of every history, zeros for an empty one (n, M)."""
        scores = np.zeros((len(histories), len(self.known_items)))
        for row in np.flatnonzero(histories.lengths).tolist():
            scores[row] = self.history_scores(histories.baskets(row))
        return scores

    def _checked_item_weights(self) -> ItemWeights:
        if self.item_weights_ is None:
            raise ParameterError(
                f"the scores of {type(self).__name__} are no sums over the items of a basket"
            )
        return self.item_weights_


# -- Next items by score ---------------------------------------------------------------------------


def softmax_outside(logits: Array, sets: Sets) -> Array:
    """Turn logits into probabilities, 0 for items in the set; `logits` is overwritten."""
    logits[sets.owners, sets.indices] = -np.inf
    softmax(logits)
    return logits


def softmax(logits: Array) -> None:
    """Turn every row of logits into probabilities, in place; a row of −inf into zeros."""
    with np.errstate(invalid="ignore"):  # ∞ − ∞
        for row in logits:
            top = row.max(initial=-np.inf)
            row -= top if top != -np.inf else 0.0
            np.exp(row, out=row)
            row /= row.sum() or 1.0


# -- Parts of baselines ----------------------------------------------------------------------------


def tie_break(train: Baskets, weights: Array) -> Array:
    """Return the popularity term that breaks ties, by the module's rule."""
    largest = max(weights.max(initial=0.0), -weights.min(initial=0.0)) or 1.0
    term: Array = 1e-6 * largest * train.item_counts / train.n_baskets
    return term


def check_at_least(least: float, **values: float) -> None:
    """Raise `ParameterError` for a value below `least` or above `MOST`, or that is no number."""
    for name, value in values.items():
        if not isinstance(value, (int, float, np.number)) or not least <= value <= MOST:
            raise ParameterError(
                f"{name} must be a number of at least {least} and at most {MOST:.0e}, got {value!r}"
            )


def excluded_codes(n_items: int, pool: Ints | None, banned: Codes) -> NDArray[np.integer]:
    if pool is None:
        return banned
    excluded = np.ones(n_items, dtype=bool)
    excluded[pool] = False
    excluded[banned] = True
    return np.flatnonzero(excluded)


def damped_lifts(model: Recommender, probabilities: Array, damping: float) -> Array:
    """Return lower bounds of lifts to the power `damping`, 0 for items of probability 0."""
    M = len(model.known_items)
    usual = (model.item_probabilities() + 1.0 / M) ** damping
    counts = getattr(model, "item_counts_", None)
    if counts is not None:
        usual *= np.exp(ONE_SIDED * damping / np.sqrt(counts + 1.0))
    lifts: Array = np.where(probabilities > 0, (probabilities + damping / M) / usual, 0.0)
    return lifts


def damping_of(rank_by: str | float) -> float:
    """Return the exponent that damps popularity: 0 for probability, 1 for lift."""
    named = {"probability": 0.0, "lift": 1.0}
    if isinstance(rank_by, str) and rank_by in named:
        return named[rank_by]
    if isinstance(rank_by, (str, bool)) or not isinstance(rank_by, Real) or not 0 <= rank_by <= 1:
        raise ParameterError(
            f"rank_by must be 'probability', 'lift' or a number from 0 to 1, got {rank_by!r}"
        )
    return float(rank_by)
