"""From baskets and hyper-parameters to learned factors: what `fit` and `partial_fit` do, step by step."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._random import RandomState, root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp.data.baskets import Baskets
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError, RankError
from contradpp.estimators.base import BaseDPP
from contradpp.learn.calibrate import discrimination_scale, likelihood_scale, uniform_sets
from contradpp.learn.callbacks import Callback, ProgressBar
from contradpp.learn.settings import Settings, one_of, whole
from contradpp.learn.start import popularity, start_factors
from contradpp.learn.state import State
from contradpp.learn.trainer import Outcome, TrainingData, train
from contradpp.model.kernel import Sets

log = logging.getLogger("contradpp")
Array = NDArray[np.float64]

VALIDATION_SHARE = 0.05
MOST_VALIDATION = 5000
FEWEST_TO_SPLIT = 40
_START, _SPLIT, _TRAIN, _UNIFORM = range(4)  # keys of the random streams


class LearningMixin(BaseDPP):
    """`_learn` and `_continue` for estimators whose constructor arguments are those of `LowRankDPP`."""

    settings: str | None
    init: str
    calibrate: str | None
    oversize: str
    random_state: RandomState
    verbose: int
    history_: list[dict[str, Any]]
    n_iter_: int
    item_counts_: NDArray[np.int64]
    n_baskets_: int

    def _learn(
        self,
        baskets: Any,
        sample_weight: Any,
        negatives: Any,
        negative_weight: Any,
        validation: Any,
        callbacks: Sequence[Callback],
        start: NDArray[np.floating] | None,
    ) -> Self:
        settings = self._settings()
        seed = root_seed(self.random_state)
        positives, weights = self._positives(baskets, sample_weight, settings)
        rejected, rejected_weights = self._negatives(negatives, negative_weight)
        items = positives.items.merge(rejected.items)
        if start is not None:
            items = self.items_.merge(items)
        held_out, chosen = self._validation(validation, positives, items, settings, seed)
        positives, weights = positives.subset(chosen).recode(items), weights[chosen]
        counts = positives.subset(weights > 0).item_counts
        V = start_factors(self._init(), counts, positives.n_baskets, self.n_components, stream(seed, _START))
        if start is not None:
            V[: len(start)] = start
        data = TrainingData(as_sets(positives), weights, as_sets(rejected.recode(items)), rejected_weights)
        self._run(V, data, as_sets(held_out), items, counts, positives.n_baskets, settings, callbacks, seed)
        self._calibrate(as_sets(held_out) if held_out.n_baskets else data.positives, seed)
        return self

    def _continue(
        self,
        baskets: Any,
        sample_weight: Any,
        negatives: Any,
        negative_weight: Any,
        callbacks: Sequence[Callback],
        n_iter: int,
    ) -> Self:
        whole("n_iter", n_iter)
        known = self._known
        settings = replace(self._settings(), max_iter=int(n_iter), paper=False)
        seed = root_seed(self.random_state)
        empty = baskets is None or len(baskets) == 0
        if empty and negatives is None:
            raise DataError("partial_fit needs baskets or negatives")
        positives, weights = (
            (Baskets.from_lists([], items=known), np.empty(0))
            if empty
            else self._positives(baskets, sample_weight, settings)
        )
        rejected, rejected_weights = self._negatives(negatives, negative_weight)
        items = known.merge(positives.items).merge(rejected.items)
        positives = positives.recode(items)
        counts = positives.subset(weights > 0).item_counts
        counts[: len(known)] += getattr(self, "item_counts_", np.zeros(len(known), dtype=np.int64))
        n_baskets = positives.n_baskets + getattr(self, "n_baskets_", 0)
        V = self._enlarged(counts, n_baskets, stream(seed, _START, n_baskets))
        data = TrainingData(as_sets(positives), weights, as_sets(rejected.recode(items)), rejected_weights)
        self._run(V, data, EMPTY_SETS, items, counts, n_baskets, settings, callbacks, seed)
        return self

    # -- The data ----------------------------------------------------------------------------------

    def _positives(self, baskets: Any, sample_weight: Any, settings: Settings) -> tuple[Baskets, Array]:
        """The baskets with their labels, without those that cannot be used."""
        whole("n_components", self.n_components)
        one_of("oversize", self.oversize, ("error", "drop", "clip"))
        given = as_baskets(baskets, "baskets")
        weights = checked_weights(sample_weight, given.n_baskets, "sample_weight")
        too_large = given.sizes > self.n_components
        if too_large.any():
            count, most = int(too_large.sum()), int(given.sizes.max())
            if self.oversize == "error":
                raise RankError(
                    f"{count:,} of {given.n_baskets:,} baskets have more than n_components={self.n_components} items "
                    f"(the largest has {most}): set n_components={most}, or oversize='drop' or 'clip'"
                )
            log.warning("%s baskets have more than %s items: %s", count, self.n_components, self.oversize)
            given = clip(given, self.n_components) if self.oversize == "clip" else given
        usable = given.sizes <= self.n_components
        if settings.needs_items:
            usable &= given.sizes > 0
        if not usable.any():
            raise DataError("there is no basket to learn from")
        return given.subset(usable), weights[usable]

    def _negatives(self, negatives: Any, negative_weight: Any) -> tuple[Baskets, Array]:
        """The user's own negative sets with their weights; sets beyond the rank are impossible already."""
        if negatives is None:
            if negative_weight is not None:
                raise ParameterError("negative_weight needs negatives")
            return Baskets.from_lists([]), np.empty(0)
        given = as_baskets(negatives, "negatives")
        weights = checked_weights(negative_weight, given.n_baskets, "negative_weight")
        usable = (given.sizes > 0) & (given.sizes <= self.n_components)
        return given.subset(usable), weights[usable]

    def _validation(
        self, validation: Any, positives: Baskets, items: Vocabulary, settings: Settings, seed: int
    ) -> tuple[Baskets, NDArray[np.int64]]:
        """The validation sets, and which of the baskets are left for training."""
        n = positives.n_baskets
        everything = np.arange(n)
        if isinstance(validation, float) or (validation is None and n >= FEWEST_TO_SPLIT):
            share = validation
            if share is None:
                share = min(0.01 if settings.paper else VALIDATION_SHARE, MOST_VALIDATION / n)
            if not 0 < share < 1:
                raise ParameterError(f"validation must be a share between 0 and 1, or baskets, got {validation!r}")
            order = stream(seed, _SPLIT).permutation(n)
            count = min(max(round(share * n), 1), n - 1)
            held_out = positives.subset(np.sort(order[:count])).recode(items)
            return held_out, np.sort(order[count:])
        if validation is None:
            return Baskets.from_lists([], items=items), everything
        held_out = as_baskets(validation, "validation").recode(items, unknown="ignore")
        fits = (held_out.sizes > 0) & (held_out.sizes <= self.n_components)
        if not fits.any():
            raise DataError("no validation basket has known items and at most n_components of them")
        return held_out.subset(fits), everything

    # -- The run -----------------------------------------------------------------------------------

    def _settings(self) -> Settings:
        one_of("settings", self.settings, (None, "paper"))  # type: ignore[arg-type]
        one_of("calibrate", self.calibrate, (None, "likelihood", "discrimination"))  # type: ignore[arg-type]
        names = Settings.__dataclass_fields__.keys() - {"paper"}
        settings = Settings(**{name: getattr(self, name) for name in names}, paper=self.settings == "paper")
        if not settings.paper:
            return settings
        return replace(
            settings, optimizer="nesterov", learning_rate=None, batch_size=1000, tol=1e-5, monitor="likelihood",
            max_iter=max(settings.max_iter, 1000), refresh=1,
        )  # fmt: skip

    def _init(self) -> str:
        return "uniform" if self.settings == "paper" else self.init

    def _run(
        self,
        V: Array,
        data: TrainingData,
        held_out: Sets,
        items: Vocabulary,
        counts: NDArray[np.int64],
        n_baskets: int,
        settings: Settings,
        callbacks: Sequence[Callback],
        seed: int,
    ) -> None:
        """Train, and take over the best factors however the training ends."""
        state = State(V, n_jobs=resolve_n_jobs(self.n_jobs))
        watched = held_out if held_out.count else data.positives if data.positives.count else data.negatives
        plan = settings.build_plan(state, data.positives, counts, n_baskets, watched, seed)
        outcome = Outcome(best=V.copy())
        watchers = [*callbacks, ProgressBar()] if self.verbose else list(callbacks)
        try:
            for callback in watchers:
                callback.on_start(data.positives.count, plan.max_iter, lambda best: self._model_of(best, items))
            train(state, data, plan, watchers, outcome)
        finally:
            for callback in watchers:
                callback.on_end()
            self._adopt(outcome.best, items)
            self.history_, self.n_iter_ = outcome.history, outcome.n_iter
            self.item_counts_, self.n_baskets_ = counts, n_baskets

    def _model_of(self, factors: Array, items: Vocabulary) -> Self:
        """A model with these factors and our parameters, as a checkpoint saves it."""
        model = type(self)(**self.get_params())
        model._adopt(factors, items)
        return model

    def _calibrate(self, sets: Sets, seed: int) -> None:
        """Set the kernel's scale on these sets, as `calibrate` asks."""
        if self.calibrate is None:
            return
        kernel = self._kernel
        if self.calibrate == "likelihood":
            scale = likelihood_scale(kernel.eigen[0], float(sets.sizes.mean()))
        else:
            drawn = uniform_sets(sets.sizes, kernel.n_items, stream(seed, _UNIFORM))
            others = Sets(sets.indptr, drawn)
            sizes = sets.sizes.astype(np.float64)
            scale = discrimination_scale(kernel.log_det(sets), sizes, kernel.log_det(others), sizes)
        self._adopt(kernel.factors * scale, self.items_)

    def _enlarged(self, counts: NDArray[np.int64], n_baskets: int, rng: np.random.Generator) -> Array:
        """The present factors with rows for new items: as long as their popularity and the kernel's scale ask."""
        old = self._kernel.factors.astype(np.float64)
        fresh = start_factors("popularity", counts, n_baskets, old.shape[1], rng)
        share = popularity(counts, n_baskets)[: len(old)]
        lengths = np.sqrt(self._kernel.squared_norms)
        seen = lengths > 0
        stretch = np.exp(np.mean(np.log(lengths[seen] / np.sqrt(share / (1 - share))[seen]))) if seen.any() else 1.0
        fresh *= stretch
        fresh[: len(old)] = old
        return fresh


EMPTY_SETS = Sets(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32))


def as_sets(baskets: Baskets) -> Sets:
    """The CSR of the baskets."""
    return Sets(baskets.indptr, baskets.indices)


def as_baskets(given: Any, name: str) -> Baskets:
    """`given` itself if it is `Baskets`, else baskets made of the lists."""
    if isinstance(given, Baskets):
        baskets = given
    else:
        try:
            baskets = Baskets.from_lists(given)
        except TypeError:
            raise DataError(f"{name} must be Baskets or a list of lists of items, got {type(given).__name__}") from None
    if baskets.n_baskets == 0:
        raise DataError(f"{name} is empty")
    return baskets


def checked_weights(weights: Any, n: int, name: str) -> Array:
    """A finite number per set; ones if none were given."""
    if weights is None:
        return np.ones(n)
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (n,) or not np.isfinite(values).all():
        raise ParameterError(f"{name} must hold {n} finite numbers, one for each set, got shape {values.shape}")
    return values


def clip(baskets: Baskets, size: int) -> Baskets:
    """The baskets, each cut to its first `size` items."""
    position = np.arange(len(baskets.indices)) - np.repeat(baskets.indptr[:-1], baskets.sizes)
    kept = position < size
    indptr = np.concatenate([[0], np.cumsum(np.minimum(baskets.sizes, size))])
    return Baskets(indptr, baskets.indices[kept], baskets.items)
