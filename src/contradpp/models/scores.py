"""Models that score items, behind the interface of the DPPs (`fit`, `predict_next`, `recommend`) and as voices.

Such scores are not probabilities. They are made so in a way that keeps every ranking: where one is
negative all are shifted so that the lowest is zero, then each is divided by the sum over the items that are not in
the basket (all zero: the same for each).

As a voice, one of several that a model listens to, a fitted baseline is asked for plain scores, without the term that
breaks ties by popularity. Scores are written to an array of the caller's, over what was in it; the first two questions
are answered on the caller's thread, so that blocks of baskets can be spread over threads, each with one array:

- `write_scores(sets, out)`: out[s, j] is the score of item j given set s;
- `write_scores_without_each(sets, out)`: out[e, j] is that given e's set without its entry e, for all entries of all
  sets, from one pass over what the items of a set say;
- `contributions(codes, item)`: how much of an item's score each item of the basket is responsible for;
- `alone(items)`: how much does not depend on the basket.

The score of j given A is the sum of these, or is what another package says (`Implicit`, no contributions).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import resolve_n_jobs, run_blocks
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import Sets, take_sets, without_each
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp.scoring import best_columns, without_blanks
from contradpp.errors import DataError, NotFittedError, ParameterError
from contradpp.models.queries import Suggests
from contradpp.models.rows import Labour, Sums

Array = NDArray[np.float64]
SCORES_PER_BLOCK = 2**20  # eight megabytes: larger blocks do not stay in the cache

# Writes the scores of the training baskets of these numbers, each without its entries in turn and left out of the data.


class ScoresItems(Suggests):
    """A model that gives every item a score, from which probabilities are made that keep the order."""

    items_: Vocabulary
    n_jobs: Any = None

    @abstractmethod
    def scores(self, sets: Sets) -> Array:
        """A new array (n_sets, M) of scores of every item, those in the set included."""

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
        barred: NDArray[np.integer] = banned
        if pool is not None:
            allowed = np.zeros(M, dtype=bool)
            allowed[pool] = True
            allowed[banned] = False
            barred = np.flatnonzero(~allowed)
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
    """A model that scores what goes with a basket. Subclasses learn in `_learn`, score by `sums` or `write_scores`."""

    LEARNED: ClassVar[tuple[str, ...]] = ()  # parts that take long to find; all else is counted anew from the baskets
    bias_: Array | float = 0.0  # what breaks ties
    item_counts_: NDArray[np.int64]
    n_jobs: int | None = None

    def fit(self, baskets: Any, y: Any = None) -> Self:
        """Learn from baskets: a `Baskets`, or a list of lists of items."""
        del y
        train = as_baskets(baskets)
        return self.fit_by(Labour(train))

    def fit_by(self, labour: Labour) -> Self:
        """Learn from the baskets of whoever does the counting: several models may share it."""
        train = labour.train
        if not train.n_baskets or not train.n_items:
            raise DataError(f"{type(self).__name__} needs at least one basket and one item to learn from")
        self._learn(labour)
        self.items_, self.item_counts_ = train.items, train.item_counts
        return self

    def restore_by(self, labour: Labour, learned: Mapping[str, NDArray[Any]]) -> Self:
        """Take over what `learned` said of the same baskets once; where that is nothing, it takes no time to fit."""
        if not self.LEARNED:
            return self.fit_by(labour)
        self.take_learned(labour.train, learned)
        self.items_, self.item_counts_ = labour.train.items, labour.train.item_counts
        return self

    @property
    def known_items(self) -> Vocabulary:
        """The catalogue, or `NotFittedError`."""
        if not hasattr(self, "items_"):
            raise NotFittedError(f"this {type(self).__name__} has not seen any baskets yet: call fit first")
        return self.items_

    @abstractmethod
    def _learn(self, labour: Labour) -> None:
        """Take what is needed from the training baskets."""

    def scores(self, sets: Sets) -> Array:
        """A new array (n_sets, M) of scores of every item, those in the set included, ties broken by popularity."""
        scores = np.empty((sets.count, len(self.known_items)))
        self.write_scores(sets, scores)
        scores += self.bias_
        return scores

    def item_shares(self) -> Array:
        """The share of every item in all that was sold."""
        shares: Array = self.item_counts_ / max(int(self.item_counts_.sum()), 1)
        return shares

    def as_shares(self, scores: Array, sets: Sets) -> Array:
        """The scores as probabilities, by the module's rule."""
        return _normalised(scores, sets)

    def sums(self) -> Sums | None:
        """What the scores are sums of, if they are: evaluation is faster then."""
        return None

    # -- As a voice: see the module ------------------------------------------------------------------

    def write_scores(self, sets: Sets, out: Array) -> None:
        """Write the scores of all items given every set (n_sets, M)."""
        self._known_sums().write(sets, out)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        """Write the scores of all items given every set without each of its entries in turn (nnz, M)."""
        if self.sums() is None:
            self.write_scores(without_each(sets), out)
        else:
            self._known_sums().write(sets, out, each=True)

    def contributions(self, codes: NDArray[np.int32], item: int) -> Array:
        """How much of the score of an item given a set each item of the set is responsible for (|A|,)."""
        return self._known_sums().contributions(codes, item)

    def alone(self, items: NDArray[np.int64]) -> Array:
        """How much of the scores of items does not depend on the basket."""
        return np.zeros(len(items))

    def learned(self) -> dict[str, NDArray[Any]]:
        """What a file holds because it took long to find, by the names in `LEARNED`."""
        return {}

    def take_learned(self, train: Baskets, learned: Mapping[str, NDArray[Any]]) -> None:
        """Take over what these baskets gave once, or ValueError if it is damaged."""

    def _known_sums(self) -> Sums:
        sums = self.sums()
        if sums is None:
            raise ParameterError(f"the scores of {type(self).__name__} are no sums over the items of a basket")
        return sums

    def log_probability(self, sets: Sets) -> Array | None:  # noqa: ARG002
        """log P(A) of every set, if the model knows it."""
        return None


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


def _normalised(scores: Array, sets: Sets) -> Array:
    """Scores as shares of the items that are not in the set, by the module's rule; `scores` is overwritten."""
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
