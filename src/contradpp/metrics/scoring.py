"""What evaluation asks of a model, and the fastest way to the answer: in closed form, or by asking `predict_next`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, runs, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import compiled
from contradpp.errors import ParameterError
from contradpp.experts.base import SCORES_PER_BLOCK, Baseline
from contradpp.experts.statistics import Rows
from contradpp.metrics.leave_one_out import (
    TIE,
    Array,
    Counts,
    KernelScorer,
    Outcome,
    rank_entries,
    rank_one_by_one,
    start_lists,
)
from contradpp.models.base import BaseDPP
from contradpp.models.conditional import ConditionalDPP


class Scorer(Protocol):
    """A model as evaluation sees it; sets hold the codes of `items`."""

    @property
    def items(self) -> Vocabulary:
        """The catalogue."""

    def rankable(self, sizes: Counts) -> NDArray[np.bool_]:
        """Which sets, by their size, leave the model something to say when an item is left out."""

    def leave_one_out(self, sets: Sets, held: Counts, n_top: int, n_jobs: int) -> Outcome:
        """Rank every item of every set given the others; held[s] is the entry whose list of best items is kept."""

    def log_probability(self, sets: Sets) -> Array | None:
        """log P(A) of every set, or None if the model has no such thing."""


def as_scorer(model: Any) -> Scorer:
    """The scorer of a model: that of its kernel, or of its sums, or one that asks `predict_next`."""
    if isinstance(model, ConditionalDPP):
        return ConditionalScorer(model)
    if isinstance(model, BaseDPP):
        return KernelScorer(model.kernel_, model.items_)
    if isinstance(model, Baseline):
        items, sums = model.known_items, model.sums()
        if sums is None:
            return VoiceScorer(model)
        if sums.matrix is None:
            return StaticScorer(items, sums.bias, model.log_probability)
        return LinearScorer(items, sums.matrix, sums.bias)
    if not hasattr(model, "predict_next") or not hasattr(model, "items_"):
        raise ParameterError(f"a model needs predict_next and items_ to be evaluated, which {model!r} lacks")
    return PredictScorer(model)


class PredictScorer:
    """Any model with `predict_next` and `items_`; `score_samples` is used if it is there."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @cached_property
    def items(self) -> Vocabulary:
        """The catalogue."""
        items = self.model.items_
        return items if isinstance(items, Vocabulary) else Vocabulary(items)

    def rankable(self, sizes: Counts) -> NDArray[np.bool_]:
        """All that are not empty and, for a DPP, not larger than its rank."""
        rank = getattr(getattr(self.model, "kernel_", None), "rank", None)
        return (sizes >= 1) & (sizes <= (len(self.items) if rank is None else rank))

    def leave_one_out(self, sets: Sets, held: Counts, n_top: int, n_jobs: int) -> Outcome:
        """One question to `predict_next` per entry."""
        del n_jobs  # the model has threads of its own
        return rank_one_by_one(self._predicted, sets, held, n_top, len(self.items))

    def _predicted(self, sets: Sets) -> Array:
        return np.array(self.model.predict_next(Baskets(sets.indptr, sets.indices, self.items)), dtype=np.float64)

    def log_probability(self, sets: Sets) -> Array | None:
        """By `score_samples`."""
        if not hasattr(self.model, "score_samples"):
            return None
        return np.asarray(self.model.score_samples(Baskets(sets.indptr, sets.indices, self.items)), dtype=np.float64)


class AnySize:
    """A scorer with something to say of every set that is not empty."""

    def rankable(self, sizes: Counts) -> NDArray[np.bool_]:
        """All sets that are not empty."""
        return sizes >= 1


class VoiceScorer(AnySize):
    """A model whose scores are no sums, but which knows them given a basket without each of its items."""

    def __init__(self, model: Baseline | ConditionalDPP) -> None:
        self.model: Any = model
        self.items = model.known_items

    def log_probability(self, sets: Sets) -> Array | None:
        """That of the model."""
        logs: Array | None = self.model.log_probability(sets)
        return logs

    def leave_one_out(self, sets: Sets, held: Counts, n_top: int, n_jobs: int) -> Outcome:
        """Blocks of baskets on threads of their own."""
        scores = partial(self.model.scores, each=True)
        return rank_entries(scores, sets, held, n_top, len(self.items), n_jobs=n_jobs)


class ConditionalScorer(VoiceScorer):
    """A conditional DPP: next items by all its voices, sets by its kernel."""

    def __init__(self, model: ConditionalDPP) -> None:
        super().__init__(model)
        self._law = KernelScorer(model.kernel_, model.items_)

    def log_probability(self, sets: Sets) -> Array | None:
        """That of the kernel."""
        return self._law.log_probability(sets)

    @property
    def log_probability_error(self) -> float:
        """That of the kernel."""
        return self._law.log_probability_error


class LinearScorer(AnySize):
    """Scores bias + Σ_{a∈A} S[a]: leaving out i subtracts its row, so one pass over the rows of A ranks every i."""

    def __init__(self, items: Vocabulary, matrix: Rows | Array, bias: Array | None = None) -> None:
        self.items = items
        self.matrix = matrix
        self.bias = np.zeros(len(items)) if bias is None else bias

    def log_probability(self, sets: Sets) -> None:  # noqa: ARG002
        """There is none: scores are not probabilities of sets."""
        return

    def leave_one_out(self, sets: Sets, held: Counts, n_top: int, n_jobs: int) -> Outcome:
        """Blocks of baskets on threads of their own."""
        out = Outcome.blank(sets, n_top)
        blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // len(self.items), 1)))

        def work(block: int) -> None:
            first, last = blocks[block]
            part = take_sets(sets, np.arange(first, last))
            start, n = int(sets.indptr[first]), len(part.indices)
            counts = np.zeros((n, 2), dtype=np.int64)
            best = start_lists(part.count, n_top)
            own, top = held[first:last] - start, out.top[first:last]
            if isinstance(self.matrix, Rows):
                compiled.ranks.compare_rows(*self.matrix, self.bias, TIE, *part, own, counts, best, top)
            else:
                compiled.ranks.compare_sums(self.matrix[part.indices], self.bias, TIE, *part, own, counts, best, top)
            out.better[start : start + n] = counts[:, 0]
            out.equal[start : start + n] = counts[:, 1] - counts[:, 0]

        run_blocks(work, len(blocks), n_jobs)
        return out


class StaticScorer(AnySize):
    """One score per item, whatever the basket holds."""

    def __init__(self, items: Vocabulary, scores: Array, log_probability: Callable[[Sets], Array | None]) -> None:
        self.items = items
        self.scores = scores
        self.log_probability = log_probability

    def leave_one_out(self, sets: Sets, held: Counts, n_top: int, n_jobs: int) -> Outcome:  # noqa: ARG002
        """Ranks in the whole catalogue, less the other items of the basket."""
        out = Outcome.blank(sets, n_top)
        ascending = np.sort(self.scores)
        own = self.scores[sets.indices]
        above = np.searchsorted(ascending, own, side="right")
        out.better[:] = len(ascending) - above
        out.equal[:] = above - np.searchsorted(ascending, own, side="left") - 1
        order = np.argsort(-self.scores, kind="stable").astype(np.int32)
        for s in range(sets.count):
            entries = slice(int(sets.indptr[s]), int(sets.indptr[s + 1]))
            mine = own[entries]
            out.better[entries] -= (mine[None, :] > mine[:, None]).sum(axis=1)
            out.equal[entries] -= (mine[None, :] == mine[:, None]).sum(axis=1) - 1
            rest = np.delete(sets.indices[entries], held[s] - entries.start)
            best = order[: n_top + len(rest)]
            best = best[~np.isin(best, rest)][:n_top]
            out.top[s, : len(best)] = best
        return out
