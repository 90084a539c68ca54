"""From baskets and hyper-parameters to learned factors: what `fit` and `partial_fit` do, step by step."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from importlib.metadata import entry_points
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._random import RandomState, root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp.data.baskets import Baskets
from contradpp.data.sets import EMPTY, Sets, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import persist
from contradpp.errors import DataError, ParameterError, RankError
from contradpp.learn.calibrate import discrimination_scale, likelihood_scale, uniform_sets
from contradpp.learn.callbacks import Callback, ProgressBar
from contradpp.learn.checkpoint import Keeper
from contradpp.learn.schedule import Steady
from contradpp.learn.settings import Settings, Watched, number, one_of, whole
from contradpp.learn.start import popularity, start_factors
from contradpp.learn.state import State
from contradpp.learn.trainer import Outcome, Plan, TrainingData, train
from contradpp.models.base import BaseDPP

log = logging.getLogger("contradpp")
Array = NDArray[np.float64]

VALIDATION_SHARE = 0.05
MOST_VALIDATION = 5000
FEWEST_TO_SPLIT = 40
_START, _SPLIT, _TRAIN, _UNIFORM, _UPDATE = range(5)  # keys of the random streams


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
    item_counts_: Array  # in how many training baskets each item was; labels other than one count as they weigh
    n_baskets_: float
    n_updates_: int = 0  # calls of partial_fit since fit

    def _learn(
        self,
        baskets: Any,
        sample_weight: Any,
        negatives: Any,
        negative_weight: Any,
        validation: Any,
        callbacks: Sequence[Callback],
        start: NDArray[np.floating] | None,
        keeper: Keeper | None = None,
    ) -> Self:
        settings = self._settings()
        seed = root_seed(self.random_state) if keeper is None else keeper.seed(self.random_state)
        positives, weights = self._positives(baskets, sample_weight, settings)
        rejected, rejected_weights = self._negatives(negatives, negative_weight)
        items = positives.items.merge(rejected.items)
        if start is not None:
            if start.shape[1] != self.n_components:
                raise ParameterError(f"warm_start: the factors have {start.shape[1]} components, not n_components")
            items = self.items_.merge(items)
        watched, chosen = self._validation(validation, positives, weights, items, settings, seed)
        positives, weights = positives.subset(chosen).recode(items), weights[chosen]
        counts, n_baskets = weighted_counts(positives, weights)
        V = start_factors(self._init(), counts, n_baskets, self.n_components, stream(seed, _START))
        if start is not None:
            V[: len(start)] = start
        data = TrainingData(as_sets(positives), weights, as_sets(rejected.recode(items)), rejected_weights)
        state = self._state(V, data, counts, n_baskets, seed)
        watched = watched if watched.sets.count else what_to_watch(data)
        plan = settings.build_plan(state, data, watched, counts, n_baskets, root_seed(stream(seed, _TRAIN)))
        if keeper is not None:
            given = {name: getattr(self, name) for name in ("n_components", "init", "calibrate", "oversize")}
            keeper.identify(seed, identity(settings, type(self).__name__, given), contents(data, watched, state, items))
        self.n_updates_ = 0
        try:
            self._run(state, data, plan, items, counts, n_baskets, callbacks, keeper)
        finally:
            del V, state, plan  # with the optimiser's memory they are most of what training takes
            if "_kernel" in self.__dict__:  # an interrupted model is as ready for use as a finished one
                self._calibrate(watched, seed)
        return self

    def _learn_on(self, engine: str, source: Any, unused: dict[str, Any], **given: Any) -> Self:
        """Let an engine do it: a function that is registered as an entry point, so that estimators need not know it."""
        engines = {found.name: found for found in entry_points(group="contradpp.engines")}
        one_of("engine", engine, tuple(engines))
        for name, value in unused.items():
            if value is not None:
                raise ParameterError(f"engine={engine!r} does not take {name}")
        engines[engine].load()(self, source, **given)
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
        self.n_updates_ = self.n_updates_ + 1  # each call has random streams of its own
        seed = root_seed(stream(root_seed(self.random_state), _UPDATE, self.n_updates_))
        given = Baskets.from_lists([], items=known) if baskets is None else as_baskets(baskets, "baskets", empty=True)
        positives, weights = (
            self._positives(given, sample_weight, settings) if given.n_baskets else (given, np.empty(0))
        )
        rejected, rejected_weights = self._negatives(negatives, negative_weight)
        if not positives.n_baskets and not rejected.n_baskets:
            raise DataError("partial_fit needs baskets or negatives")
        items = known.merge(positives.items).merge(rejected.items)
        positives = positives.recode(items)
        counts, n_baskets = weighted_counts(positives, weights)
        counts[: len(known)] += getattr(self, "item_counts_", 0.0)
        n_baskets += getattr(self, "n_baskets_", 0.0)
        V = self._enlarged(counts, n_baskets, stream(seed, _START))
        data = TrainingData(as_sets(positives), weights, as_sets(rejected.recode(items)), rejected_weights)
        state = self._state_again(V)
        plan = settings.build_plan(state, data, what_to_watch(data), counts, n_baskets, seed)
        plan = replace(plan, schedule=Steady(), keep_best=False)
        self._run(state, data, plan, items, counts, n_baskets, callbacks)
        return self

    # -- The data ----------------------------------------------------------------------------------

    def _positives(self, baskets: Any, sample_weight: Any, settings: Settings) -> tuple[Baskets, Array]:
        """The baskets with their labels, without those that cannot be used."""
        whole("n_components", self.n_components)
        one_of("oversize", self.oversize, ("error", "drop", "clip"))
        given = as_baskets(baskets, "baskets")
        weights = checked_weights(sample_weight, given.n_baskets, "sample_weight")
        if not weights.any():
            raise DataError("there is no basket to learn from: every sample_weight is zero")
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
        usable = (given.sizes <= self.n_components) & (weights != 0)
        if settings.needs_items:
            usable &= given.sizes > 0
        if not usable.any():
            raise DataError("there is no basket to learn from")
        return given.subset(usable), weights[usable] / np.abs(weights[usable]).mean()

    def _negatives(self, negatives: Any, negative_weight: Any) -> tuple[Baskets, Array]:
        """The user's own negative sets with their weights; sets beyond the rank are impossible already."""
        if negatives is None:
            if negative_weight is not None:
                raise ParameterError("negative_weight needs negatives")
            return Baskets.from_lists([]), np.empty(0)
        given = as_baskets(negatives, "negatives", empty=True)
        weights = checked_weights(negative_weight, given.n_baskets, "negative_weight")
        usable = (given.sizes > 0) & (given.sizes <= self.n_components)
        return given.subset(usable), weights[usable]

    def _validation(
        self, validation: Any, positives: Baskets, weights: Array, items: Vocabulary, settings: Settings, seed: int
    ) -> tuple[Watched, NDArray[np.int64]]:
        """The validation sets, and which of the baskets are left for training; only liked ones are set aside."""
        everything = np.arange(positives.n_baskets)
        liked = np.flatnonzero(weights > 0)
        n = len(liked)
        if isinstance(validation, float) or (validation is None and n >= FEWEST_TO_SPLIT):
            share = validation
            if share is None:
                share = min(0.01 if settings.paper else VALIDATION_SHARE, MOST_VALIDATION / n)
            if not 0 < share < 1:
                raise ParameterError(f"validation must be a share between 0 and 1, or baskets, got {validation!r}")
            count = min(max(round(share * n), 1), max(n - 1, 0))
            aside = np.sort(stream(seed, _SPLIT).permutation(liked)[:count])
            held_out = positives.subset(aside).recode(items)
            return Watched(as_sets(held_out), weights[aside]), np.setdiff1d(everything, aside)
        if validation is None:
            return Watched(EMPTY, np.empty(0)), everything
        given = as_baskets(validation, "validation")
        held_out = given.recode(items, unknown="ignore")
        fits = held_out.sizes <= self.n_components
        fits &= (held_out.sizes > 0) | ((given.sizes == 0) & (not settings.needs_items))
        if not fits.any():
            raise DataError("no validation basket has known items and at most n_components of them")
        return Watched(as_sets(held_out.subset(fits)), np.ones(int(fits.sum()))), everything

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
        state: State,
        data: TrainingData,
        plan: Plan,
        items: Vocabulary,
        counts: Array,
        n_baskets: float,
        callbacks: Sequence[Callback],
        keeper: Keeper | None = None,
    ) -> None:
        """Train, and take over the best factors however the training ends."""
        outcome = Outcome.start(state)
        watchers = [*callbacks, ProgressBar()] if self.verbose else list(callbacks)

        def model_of(factors: Array) -> LearningMixin:
            """A model with these factors and our parameters, as a checkpoint saves it."""
            model = type(self)(**self.get_params())
            model._take(factors, state, outcome.best_pairs, items)
            model.item_counts_, model.n_baskets_ = counts, n_baskets
            return model

        try:
            with ExitStack() as ends:
                for callback in watchers:
                    ends.callback(callback.on_end)
                    callback.on_start(data.count, plan.max_iter, model_of)
                train(state, data, plan, watchers, outcome, keeper)
        finally:
            self._take(outcome.best, state, outcome.best_pairs, items)
            self.item_counts_, self.n_baskets_ = counts, n_baskets
            self.history_, self.n_iter_ = outcome.history, outcome.n_iter

    def _state(self, V: Array, data: TrainingData, counts: Array, n_baskets: float, seed: int) -> State:  # noqa: ARG002
        """What training changes, from the first factors and the data."""
        return State(V, n_jobs=resolve_n_jobs(self.n_jobs))

    def _state_again(self, V: Array) -> State:
        """What training changes where it goes on from the present parameters; V has rows for new items."""
        return State(V, n_jobs=resolve_n_jobs(self.n_jobs))

    def _take(self, factors: Array, state: State, pairs: Array, items: Vocabulary) -> None:  # noqa: ARG002
        """Make learned parameters the model's kernel."""
        self._adopt(factors, items)

    def _calibrate(self, watched: Watched, seed: int) -> None:
        """Set the kernel's scale on these sets, as `calibrate` asks."""
        sets, weights = watched
        if self.calibrate is None or not (weights > 0).any():
            return
        kernel = self._kernel
        if self.calibrate == "likelihood":
            scale = likelihood_scale(kernel.eigen[0], float(np.average(sets.sizes, weights=weights)))
        else:
            drawn = uniform_sets(sets.sizes, kernel.n_items, stream(seed, _UNIFORM))
            others = Sets(sets.indptr, drawn)
            sizes = sets.sizes.astype(np.float64)
            scale = discrimination_scale(kernel.log_det(sets), sizes, kernel.log_det(others), sizes)
        self._adopt(kernel.factors * scale, self.items_)

    def _enlarged(self, counts: Array, n_baskets: float, rng: np.random.Generator) -> Array:
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

    # -- scikit-learn and files --------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of an estimator; only it ever calls this."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            input_tags=InputTags(two_d_array=False),
        )

    def _extras(self) -> tuple[persist.Tensors, dict[str, Any]]:
        if not hasattr(self, "item_counts_"):
            return {}, {}
        training = {"n_baskets": float(self.n_baskets_), "n_updates": int(self.n_updates_)}
        return {"item_counts": self.item_counts_}, {"training": training}

    def _take_extras(self, tensors: persist.Tensors, info: dict[str, Any]) -> None:
        if "item_counts" not in tensors:
            return
        counts, training = tensors["item_counts"].astype(np.float64, casting="safe"), info["training"]
        n_baskets, n_updates = training["n_baskets"], training["n_updates"]
        if counts.shape != (len(self.items_),) or not (np.isfinite(counts) & (counts >= 0)).all():
            raise ParameterError("its item counts do not fit its items")
        number("n_baskets", n_baskets, low=0.0)
        number("n_updates", n_updates, low=0.0)
        self.item_counts_, self.n_baskets_, self.n_updates_ = counts, float(n_baskets), int(n_updates)


def as_sets(baskets: Baskets) -> Sets:
    """The CSR of the baskets."""
    return Sets(baskets.indptr, baskets.indices)


def weighted_counts(baskets: Baskets, weights: Array) -> tuple[Array, float]:
    """In how many liked baskets each item is, and how many there are; a basket of weight 2 counts as two."""
    liked = np.maximum(weights, 0.0)
    counts = np.bincount(baskets.indices, weights=np.repeat(liked, baskets.sizes), minlength=baskets.n_items)
    return counts.astype(np.float64), float(liked.sum())


def what_to_watch(data: TrainingData) -> Watched:
    """Without validation data: the liked sets, else those that should become unlikely."""
    liked = np.flatnonzero(data.weights > 0)
    if len(liked):
        return Watched(take_sets(data.positives, liked), data.weights[liked])
    if data.positives.count:
        return Watched(data.positives, data.weights)
    return Watched(data.negatives, -np.ones(data.negatives.count))


def identity(settings: Settings, model: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint must have been made with to be gone on from: all that the result depends on."""
    values = asdict(settings) | given | {"model": model}
    return {name: value for name, value in values.items() if name != "max_iter"}  # a run may be made longer


def contents(data: TrainingData, watched: Watched, state: State, items: Vocabulary) -> Iterator[NDArray[Any] | str]:
    """All that training is given, for a fingerprint."""
    for sets, weights in ((data.positives, data.weights), (data.negatives, data.negative_weights), watched):
        yield from (sets.indptr, sets.indices, weights)
    yield from (state.V, state.pairs)
    yield from map(repr, items)


def as_baskets(given: Any, name: str, *, empty: bool = False) -> Baskets:
    """`given` itself if it is `Baskets`, else baskets made of the lists."""
    if isinstance(given, Baskets):
        baskets = given
    else:
        try:
            baskets = Baskets.from_lists(given)
        except TypeError:
            raise DataError(f"{name} must be Baskets or a list of lists of items, got {type(given).__name__}") from None
    if baskets.n_baskets == 0 and not empty:
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
