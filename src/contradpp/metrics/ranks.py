"""How every item of a basket ranks among all others when it is left out, by what the model says of the rest.

A `Scorer` is a model as evaluation sees it. Models that know their scores given a basket without each of its items in
turn are asked for those (see `experts.base` and `dpp.scoring`), any other for `predict_next`, item by item.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads, run_blocks
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, runs, take_sets, without_each
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import compiled
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.scoring import top_n, write_scores_without_each
from contradpp.errors import ParameterError
from contradpp.experts.base import SCORES_PER_BLOCK, Baseline
from contradpp.experts.statistics import Rows, Sums
from contradpp.models.base import BaseDPP
from contradpp.models.conditional import ConditionalDPP

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

# Scores that differ by less than this share of the terms they are made of differ by rounding: they tie.
TIE = 1e-12


class Outcome(NamedTuple):
    """How the items of several baskets rank when each is left out in turn, entry by entry of the sets."""

    better: Counts  # (nnz,): items outside A∖i that the model prefers to i
    equal: Counts  # (nnz,): other items outside A∖i that tie with i
    top: NDArray[np.int32]  # (n_sets, n_top): best items given A without the held-out one, −1 where fewer are left

    @staticmethod
    def blank(sets: Sets, n_top: int) -> Outcome:
        """Zero counts and empty lists."""
        nothing = np.zeros(len(sets.indices), dtype=np.int64)
        return Outcome(nothing, nothing.copy(), np.full((sets.count, n_top), -1, dtype=np.int32))


def rank_one_by_one(
    scores: Callable[[Sets], Array], sets: Sets, held: Counts, n_top: int, n_items: int, *, n_jobs: int = 1,
    rounding: Array | None = None,
) -> Outcome:  # fmt: skip
    """Leave-one-out by its definition: all items scored given A∖i, for every i.

    `scores` takes sets and gives a new array (n_sets, n_items); `rounding` is that of `count_rows`.
    """
    return rank_entries(
        lambda part: scores(without_each(part)), sets, held, n_top, n_items, n_jobs=n_jobs, rounding=rounding
    )


def rank_entries(
    scores: Callable[[Sets], Array], sets: Sets, held: Counts, n_top: int, n_items: int, *, n_jobs: int = 1,
    rounding: Array | None = None,
) -> Outcome:  # fmt: skip
    """Leave-one-out from scores of all items for every entry of the sets, given its set without it (nnz, n_items)."""
    out = Outcome.blank(sets, n_top)
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // n_items, 1)))

    def work(block: int) -> None:
        first, last = blocks[block]
        part = take_sets(sets, np.arange(first, last))
        entries = slice(int(sets.indptr[first]), int(sets.indptr[last]))
        rest, x = without_each(part), scores(part)
        x[np.repeat(np.arange(rest.count), rest.sizes), rest.indices] = -np.inf
        out.better[entries], out.equal[entries] = count_rows(x, part.indices, rounding)
        lists = x[held[first:last] - entries.start]
        best = top_n(lists, n_top, rounding)
        found = np.take_along_axis(lists, best, axis=1) > -np.inf
        out.top[first:last, : best.shape[1]] = np.where(found, best, -1)

    run_blocks(work, len(blocks), n_jobs)
    return out


def count_rows(scores: Array, codes: NDArray[np.int32], rounding: Array | None = None) -> tuple[Counts, Counts]:
    """Per row, how many scores beat that of the item `codes[row]`, and how many others tie with it.

    `rounding` bounds the error of each column; by default it is `TIE` of the scores themselves.
    """
    counts = np.empty((len(scores), 2), dtype=np.int64)
    none = np.zeros(scores.shape[1]) if rounding is None else rounding
    compiled.kernels.count_rows(scores, codes, TIE if rounding is None else 0.0, none, counts)
    return counts[:, 0], np.maximum(counts[:, 1] - counts[:, 0] - 1, 0)  # of −inf not even itself ties


# -- Models -------------------------------------------------------------------------------------------------


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
    """The scorer of a model."""
    if isinstance(model, ConditionalDPP):
        return ConditionalScorer(model)
    if isinstance(model, BaseDPP):
        return KernelScorer(model.kernel_, model.items_)
    if isinstance(model, Baseline):
        scorer, sums = VoiceScorer(model), model.sums()
        return StaticScorer(model, sums.bias) if sums is not None and sums.matrix is None else scorer
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


class VoiceScorer:
    """A model that knows its scores given a basket without each of its items."""

    def __init__(self, model: Baseline | ConditionalDPP) -> None:
        self.model: Any = model
        self.items = model.known_items
        sums = model.sums() if isinstance(model, Baseline) else None
        self.rounding = None if sums is None else TIE * largest_terms(sums)

    def rankable(self, sizes: Counts) -> NDArray[np.bool_]:
        """All sets that are not empty."""
        return sizes >= 1

    def log_probability(self, sets: Sets) -> Array | None:
        """That of the model."""
        logs: Array | None = self.model.log_probability(sets)
        return logs

    def leave_one_out(self, sets: Sets, held: Counts, n_top: int, n_jobs: int) -> Outcome:
        """Blocks of baskets on threads of their own."""
        scores = partial(self.model.scores, each=True)
        return rank_entries(scores, sets, held, n_top, len(self.items), n_jobs=n_jobs, rounding=self.rounding)


def largest_terms(sums: Sums) -> Array:
    """The largest term of the score of every item: what its rounding is a share of, whatever cancels (M,)."""
    largest = np.abs(sums.bias)
    if isinstance(sums.matrix, Rows):
        np.maximum.at(largest, sums.matrix.columns, np.abs(sums.matrix.values))
    elif sums.matrix is not None:
        np.maximum(largest, np.abs(sums.matrix).max(axis=0), out=largest)
    return largest


class KernelScorer:
    """A DPP; always in float64, whatever its factors are."""

    def __init__(self, kernel: Kernel, items: Vocabulary) -> None:
        self.asked = kernel  # it may know its normaliser already, more precisely than a copy would
        if kernel.factors.dtype != np.float64:
            kernel = Kernel.trusted(kernel.wide, kernel.gain, kernel.skew, kernel.diagonal, n_jobs=kernel.n_jobs)
        self.kernel = kernel
        self.items = items

    def rankable(self, sizes: Counts) -> NDArray[np.bool_]:
        """Sets up to the rank, or a bound of it: given as many items as that, every further one is impossible."""
        return (sizes >= 1) & (sizes <= self.kernel.rank)

    def log_probability(self, sets: Sets) -> Array | None:
        """log P(A) of every set."""
        return self.kernel.log_det(sets) - self.asked.log_normalizer

    @property
    def log_probability_error(self) -> float:
        """The standard error that all of them have in common, that of the normaliser."""
        return self.asked.normalizer.error

    def leave_one_out(self, sets: Sets, held: Counts, n_top: int, n_jobs: int) -> Outcome:
        """Blocks of baskets on threads of their own."""
        rounding = TIE * self.kernel.squared_norms
        with blas_threads(1):
            return rank_entries(self._scores, sets, held, n_top, len(self.items), n_jobs=n_jobs, rounding=rounding)

    def _scores(self, sets: Sets) -> Array:
        scores = np.empty((len(sets.indices), len(self.items)))
        write_scores_without_each(self.kernel, sets, scores)
        return scores


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


class StaticScorer(VoiceScorer):
    """One score per item, whatever the basket holds."""

    def __init__(self, model: Baseline, scores: Array) -> None:
        super().__init__(model)
        self.scores = scores

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
