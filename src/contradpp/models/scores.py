"""Models that score items, behind the interface of the DPPs: `fit`, `predict_next`, `recommend`.

Such scores are not probabilities. They are made so in a way that keeps every ranking: where one is
negative all are shifted so that the lowest is zero, then each is divided by the sum over the items that are not in
the basket (all zero: the same for each).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import Sets, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp.rank import top_n
from contradpp.errors import DataError, NotFittedError
from contradpp.models.queries import as_codes, as_ids, as_queries, check_count

Array = NDArray[np.float64]
SCORES_PER_BLOCK = 2**22


class Sums(NamedTuple):
    """Scores of the kind bias_j + Σ_{a∈A} S[a, j]; without rows they do not depend on the basket."""

    bias: Array  # (M,)
    rows: Callable[[NDArray[np.int32]], Array] | None  # the rows of S for an array of codes, dense, in float64


class Baseline(ABC):
    """A model that scores what goes with a basket. Subclasses learn in `_learn` and score in `scores`."""

    items_: Vocabulary

    def fit(self, baskets: Any, y: Any = None) -> Self:
        """Learn from baskets: a `Baskets`, or a list of lists of items."""
        del y
        train = as_baskets(baskets)
        if not train.n_baskets or not train.n_items:
            raise DataError(f"{type(self).__name__} needs at least one basket and one item to learn from")
        self._learn(train)
        self.items_ = train.items
        return self

    def predict_next(self, baskets: Any, *, unknown: str = "error") -> Array:
        """The scores as probabilities: (n, M), 0 for items in the basket, rows sum to 1; (M,) for one basket."""
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        shares = _normalised(self.scores(queries.sets), queries.sets)
        return shares[0] if queries.single else shares

    def recommend(
        self,
        baskets: Any,
        N: int = 10,
        *,
        candidates: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        unknown: str = "error",
    ) -> tuple[NDArray[Any], Array]:
        """The N best items that are not in the basket, and their shares as in `predict_next`, best first.

        Parameters and shapes are those of `LowRankDPP.recommend`.
        """
        check_count(N)
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        allowed = np.full(len(self.items_), candidates is None)
        if candidates is not None:
            allowed[as_codes(candidates, self.items_, unknown=unknown)] = True
        allowed[as_codes(() if exclude is None else exclude, self.items_, unknown=unknown)] = False
        codes, shares = self._best(queries.sets, int(N), allowed)
        items = as_ids(codes, self.items_)
        return (items[0], shares[0]) if queries.single else (items, shares)

    def _best(self, sets: Sets, n: int, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Array]:
        n = min(n, len(allowed))
        codes, shares = np.full((sets.count, n), -1), np.zeros((sets.count, n))
        step = max(SCORES_PER_BLOCK // len(allowed), 1)
        for first in range(0, sets.count, step):
            part = take_sets(sets, np.arange(first, min(first + step, sets.count)))
            scores = self.scores(part)
            normalised = _normalised(scores.copy(), part)
            scores[:, ~allowed] = -np.inf
            scores[np.repeat(np.arange(part.count), part.sizes), part.indices] = -np.inf
            best = top_n(scores, n)
            there = np.take_along_axis(scores, best, axis=1) > -np.inf
            codes[first : first + part.count] = np.where(there, best, -1)
            shares[first : first + part.count] = np.where(there, np.take_along_axis(normalised, best, axis=1), 0.0)
        width = int((codes >= 0).sum(axis=1).max(initial=0))
        return codes[:, :width], shares[:, :width]

    @property
    def known_items(self) -> Vocabulary:
        """The catalogue, or `NotFittedError`."""
        if not hasattr(self, "items_"):
            raise NotFittedError(f"this {type(self).__name__} has not seen any baskets yet: call fit first")
        return self.items_

    @abstractmethod
    def _learn(self, train: Baskets) -> None:
        """Take what is needed from the training baskets."""

    @abstractmethod
    def scores(self, sets: Sets) -> Array:
        """A new array (n_sets, M) of scores of every item, those in the set included."""

    def sums(self) -> Sums | None:
        """What the scores are sums of, if they are: evaluation is faster then."""
        return None

    def log_probability(self, sets: Sets) -> Array | None:  # noqa: ARG002
        """log P(A) of every set, if the model knows it."""
        return None


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


def sparse_rows(sets: Sets, n_items: int) -> Any:
    """The sets as a SciPy CSR matrix of ones (n_sets, n_items)."""
    from scipy.sparse import csr_matrix

    return csr_matrix((np.ones(len(sets.indices)), sets.indices, sets.indptr), shape=(sets.count, n_items))
