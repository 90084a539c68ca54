"""The rank of every item of a basket among all others, given the rest of its basket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from contradpp._threads import blas_threads, run_blocks
from contradpp._types import Array, Codes, Flags, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.orders import SetsWithHistory
from contradpp.data.sets import Sets, runs, take_sets, without_each
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import compiled
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.mixture import Mixture
from contradpp.dpp.scoring import top_n
from contradpp.errors import ParameterError
from contradpp.experts.base import SCORES_PER_BLOCK, Baseline
from contradpp.experts.statistics import Rows
from contradpp.models.base import DPPRecommender
from contradpp.models.conditional import ConditionalDPP, next_logits

# Scores tie if they differ by less than this share of the terms that they are sums of: rounding.
TIE = 1e-12


class LeaveOneOut(NamedTuple):
    """The ranks of the items of several baskets when each is left out in turn, entry by entry.

    i is an entry of the set A. Items of A∖i are not ranked.
    """

    better: Ints  # (nnz,): items that the model prefers to i
    equal: Ints  # (nnz,): other items that tie with i
    top: Codes  # (n_sets, n_top): best items given A without one entry, −1 where none is left
    # With histories: `better` and `equal` of items that were never bought, among such items only;
    # `better_new` is −1 for the others.
    better_new: Ints
    equal_new: Ints

    @staticmethod
    def blank(sets: Sets, n_top: int) -> LeaveOneOut:
        """Return zero counts and empty lists."""
        n = len(sets.indices)
        top = np.full((sets.count, n_top), -1, dtype=np.int32)
        better, equal, better_new, equal_new = np.zeros((4, n), dtype=np.int64)
        return LeaveOneOut(better, equal, top, better_new - 1, equal_new)


def rank_entries(
    scores: Callable[[Sets], Array],
    sets: Sets,
    held: Ints,
    n_top: int,
    n_items: int,
    *,
    n_jobs: int = 1,
    rounding: Array | None = None,
) -> LeaveOneOut:
    """Rank every entry of the sets by the scores of all items given its set without it.

    Parameters
    ----------
    scores : callable
        Takes sets and returns a new array (nnz, n_items): a row for each of their entries.
    held : array (n_sets,)
        The entry of each set that is left out for its list of best items.
    rounding : array (n_items,), optional
        See `count_rows`.
    """
    out = LeaveOneOut.blank(sets, n_top)
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // n_items, 1)))

    def rank(block: int) -> None:
        first, last = blocks[block]
        part = take_sets(sets, np.arange(first, last))
        entries = slice(int(sets.indptr[first]), int(sets.indptr[last]))
        rest = without_each(part)
        x = scores(part)
        x[rest.owners, rest.indices] = -np.inf
        out.better[entries], out.equal[entries] = count_rows(x, part.indices, rounding)
        lists = x[held[first:last] - entries.start]
        best = top_n(lists, n_top, rounding)
        found = np.take_along_axis(lists, best, axis=1) > -np.inf
        out.top[first:last, : best.shape[1]] = np.where(found, best, -1)
        if isinstance(part, SetsWithHistory):
            rows, bought = part.histories.take(part.owners).items_of
            is_new = np.ones(x.shape, dtype=bool)
            is_new[rows, bought] = False
            x[~is_new] = -np.inf
            fresh = is_new[np.arange(len(x)), part.indices]
            better, equal = count_rows(x, part.indices, rounding)
            out.better_new[entries] = np.where(fresh, better, -1)
            out.equal_new[entries] = np.where(fresh, equal, 0)

    run_blocks(rank, len(blocks), n_jobs)
    return out


def count_rows(scores: Array, codes: Codes, rounding: Array | None = None) -> tuple[Ints, Ints]:
    """Count, per row, the scores that beat that of the item `codes[row]`, and others that tie.

    `rounding` bounds the error of each column; by default it is `TIE` of the scores themselves.
    """
    counts = np.empty((len(scores), 2), dtype=np.int64)
    none = np.zeros(scores.shape[1]) if rounding is None else rounding
    compiled.kernels.count_rows(scores, codes, TIE if rounding is None else 0.0, none, counts)
    better, at_least_equal = counts.T
    return better, np.maximum(at_least_equal - better - 1, 0)  # −inf does not tie with itself


# -- Models ----------------------------------------------------------------------------------------


class Scorer(ABC):
    """A model as evaluation sees it; sets hold the codes of `items`."""

    items: Vocabulary
    rounding: Array | None = None  # see `count_rows`

    @abstractmethod
    def scores_without_each(self, sets: Sets) -> Array:
        """Return the scores of all items given every set without each entry in turn (nnz, M)."""

    def log_probability(self, sets: Sets) -> Array | None:  # noqa: ARG002
        """Return log P(A) of every set, or None for a model that has no distribution of sets."""
        return None

    @property
    def log_probability_error(self) -> float:
        """The standard error that all log-probabilities have in common."""
        return 0.0

    def rankable(self, sizes: Ints) -> Flags:
        """Mark the sizes of sets whose entries the model can rank."""
        return sizes >= 1

    def leave_one_out(self, sets: Sets, held: Ints, n_top: int, n_jobs: int) -> LeaveOneOut:
        """Rank every item of every set given the others; lists are those without entry held[s]."""
        return rank_entries(
            self.scores_without_each,
            sets,
            held,
            n_top,
            len(self.items),
            n_jobs=n_jobs,
            rounding=self.rounding,
        )


def as_scorer(model: Any) -> Scorer:
    """Return the scorer of a model."""
    if isinstance(model, ConditionalDPP):
        return ConditionalScorer(model)
    if isinstance(model, DPPRecommender):
        return KernelScorer(model.dpp, model.items_)
    if isinstance(model, Baseline):
        return BaselineScorer(model)
    if not hasattr(model, "predict_next") or not hasattr(model, "items_"):
        raise ParameterError(
            f"a model needs predict_next and items_ to be evaluated, which {model!r} lacks"
        )
    return PredictScorer(model)


class PredictScorer(Scorer):
    """Any model with `predict_next` and `items_`; `score_samples` is used if it is there."""

    def __init__(self, model: Any) -> None:
        self.model = model
        items = model.items_
        self.items = items if isinstance(items, Vocabulary) else Vocabulary(items)

    def rankable(self, sizes: Ints) -> Flags:
        rank = getattr(getattr(self.model, "dpp", None), "rank", None)
        return (sizes >= 1) & (sizes <= (len(self.items) if rank is None else rank))

    def scores_without_each(self, sets: Sets) -> Array:
        rest = without_each(sets)
        queries = Baskets(rest.indptr, rest.indices, self.items)
        return np.array(self.model.predict_next(queries), dtype=np.float64)

    def leave_one_out(self, sets: Sets, held: Ints, n_top: int, n_jobs: int) -> LeaveOneOut:
        del n_jobs  # the model has threads of its own
        return super().leave_one_out(sets, held, n_top, 1)

    def log_probability(self, sets: Sets) -> Array | None:
        if not hasattr(self.model, "score_samples"):
            return None
        baskets = Baskets(sets.indptr, sets.indices, self.items)
        return np.asarray(self.model.score_samples(baskets), dtype=np.float64)


class BaselineScorer(Scorer):
    """A baseline. Where its scores are sums, the largest term of each item bounds the rounding."""

    def __init__(self, model: Baseline) -> None:
        self.model = model
        self.items = model.known_items
        W = model.item_weights_
        if W is None:
            return
        largest = np.broadcast_to(np.abs(model.bias_), len(self.items)).astype(np.float64)
        if isinstance(W, Rows):
            np.maximum.at(largest, W.columns, np.abs(W.values))
        else:
            np.maximum(largest, np.abs(W).max(axis=0), out=largest)
        self.rounding = TIE * largest

    def scores_without_each(self, sets: Sets) -> Array:
        scores = np.empty((len(sets.indices), len(self.items)))
        self.model.write_scores_without_each(sets, scores)
        scores += self.model.bias_
        if isinstance(sets, SetsWithHistory) and self.model.uses_history:
            scores += self.model.history_scores_of(sets.histories)[sets.owners]
        return scores

    def log_probability(self, sets: Sets) -> Array | None:
        return self.model.log_probability(sets)


class KernelScorer(Scorer):
    """A DPP or a mixture; always in float64, whatever its factors are."""

    def __init__(self, distribution: Kernel | Mixture, items: Vocabulary) -> None:
        # The given one may know its normalizer already, more precisely than a copy would.
        self.given = distribution
        self.scoring = distribution.in_double()
        self.items = items
        self.rounding = TIE * distribution.squared_norms

    def rankable(self, sizes: Ints) -> Flags:
        # Given as many items as the rank, every further one is impossible.
        return (sizes >= 1) & (sizes <= self.given.rank)

    def log_probability(self, sets: Sets) -> Array:
        return self.given.log_probability(sets)

    @property
    def log_probability_error(self) -> float:
        return self.given.log_normalizer_error

    def leave_one_out(self, sets: Sets, held: Ints, n_top: int, n_jobs: int) -> LeaveOneOut:
        with blas_threads(1):
            return super().leave_one_out(sets, held, n_top, n_jobs)

    def scores_without_each(self, sets: Sets) -> Array:
        scores = np.empty((len(sets.indices), len(self.items)))
        self.scoring.write_scores_without_each(sets, scores)
        return scores


class ConditionalScorer(Scorer):
    """A conditional DPP: next items by all its experts, sets by its kernel."""

    def __init__(self, model: ConditionalDPP) -> None:
        self.model = model
        self.items = model.known_items
        self._kernel = KernelScorer(model.dpp, model.items_)

    def scores_without_each(self, sets: Sets) -> Array:
        return next_logits(self.model, sets, leave_one_out=True)

    def log_probability(self, sets: Sets) -> Array:
        return self._kernel.log_probability(sets)

    @property
    def log_probability_error(self) -> float:
        return self._kernel.log_probability_error
