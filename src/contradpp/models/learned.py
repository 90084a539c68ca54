"""Estimators whose kernel is learned: `fit`, `partial_fit`, `add_items` and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any, Protocol, Self

import numpy as np

from contradpp._random import UPDATE, RandomState, root_seed, stream
from contradpp._types import Array
from contradpp.data.baskets import as_baskets
from contradpp.data.features import ItemFeatures
from contradpp.data.vocabulary import Labels, Vocabulary
from contradpp.dpp import files as persist
from contradpp.dpp.ahead import NEGATIVES, compile_ahead
from contradpp.dpp.kernel import Kernel
from contradpp.errors import MissingExtraError, ParameterError
from contradpp.learn import negatives as negative_sets
from contradpp.learn import optimizers
from contradpp.learn.callbacks import Callback, ProgressBar
from contradpp.learn.checkpoints import Checkpointer, Checkpointing
from contradpp.learn.params import (
    FitData,
    Parameter,
    Params,
    Problem,
    StartingPoint,
    problem_of,
    problem_of_update,
)
from contradpp.learn.state import popularity
from contradpp.learn.training import TrainingResult, learn, result_before
from contradpp.models.base import BaseDPP
from contradpp.models.cold_start import (
    FeatureModel,
    NewItems,
    check_new_ids,
    enlarge_kernel,
    new_items,
)

# Of one item in a file: sums of more, by whoever wrote it, might overflow.
_COUNTS = {"item_counts": persist.Stored(("M",), low=0, high=1e100)}
_ROUNDS = Parameter("n_iter", "Rounds over the data", low=1, whole=True)


class Engine(Protocol):
    """The settings of a registered engine, such as `RayEngine`."""

    name: str


class LearnedDPP(BaseDPP):
    """A DPP whose kernel is learned from baskets.

    The constructor of a subclass has the parameters of training that it supports.
    """

    negatives: Any
    optimizer: Any
    random_state: RandomState
    verbose: int
    history_: list[dict[str, Any]]
    n_iter_: int
    item_counts_: Array | None  # training baskets with each item; labels count as they weigh
    n_baskets_: float
    n_updates_: int  # calls of partial_fit since fit
    feature_model_: FeatureModel | None

    def fit(
        self,
        baskets: Any,
        y: Any = None,
        sample_weight: Any = None,
        negatives: Any = None,
        validation: Any = None,
        callbacks: Sequence[Callback] = (),
        *,
        checkpoint: str | os.PathLike[str] | Checkpointing | None = None,
        item_features: Any = None,
        engine: str | Engine | None = None,
    ) -> Self:
        """Learn the kernel from baskets.

        Parameters
        ----------
        baskets : Baskets, or a list of lists of items
            With `offered` sets, "explicit" and "choice" learn from refused items.
        y : ignored
            There for scikit-learn.
        sample_weight : array of float, optional
            A label y_A per basket, any real number (the paper's Eq. 2); 1 if omitted. Only their
            ratios matter: they are scaled to a mean magnitude of 1. A label below zero pushes a
            basket away, zero leaves it out.
        negatives : Baskets, list of lists, or WeightedSets, optional
            The user's own negative sets: combinations that should be unlikely. They join those that
            the objective draws; with a ratio of 0 there are no others. `negatives.WeightedSets`
            gives each a weight.
        validation : Baskets, list of lists, float or None
            Sets for early stopping and calibration, or a share of the baskets to set aside; None
            for 5 %.
        callbacks : sequence of Callback
        checkpoint : path or Checkpointing, optional
            A file that always holds the whole state of training, so that a killed run can continue.
            `Checkpointing(path, every="60s", resume=True)` continues from the file.
        item_features : data frame, Arrow table, array, sparse array or mapping, optional
            Features of items, for `add_items`: a row per item, in the order of the baskets' items
            if it is an array. Items without a row, and rows of unknown items, are allowed.
        engine : {"ray"} or RayEngine, optional
            "ray" trains on a Ray cluster (extra `ray`); `baskets` is then the path of a Parquet
            file or of a folder of them, which all machines reach. `RayEngine` has the settings.

        Returns
        -------
        self
        """
        del y
        given = FitData(baskets, sample_weight, negatives, validation)
        if engine is not None:
            fit_on(engine, self, given, callbacks, item_features, checkpoint)
            return self
        return self._fit(given, callbacks, checkpoint, item_features)

    def _fit(
        self,
        given: FitData,
        callbacks: Sequence[Callback],
        checkpoint: str | os.PathLike[str] | Checkpointing | None,
        item_features: Any,
        prepare: Callable[[Problem], Problem] = lambda problem: problem,
    ) -> Self:
        """Learn the kernel; `prepare` may add clusters to the problem."""
        features = None
        if item_features is not None:
            train = as_baskets(given.baskets)
            features = (ItemFeatures.learn(item_features, train.items), train.items)
            given = replace(given, baskets=train)
        params = self._training_params()
        checkpointer = None if checkpoint is None else Checkpointer.of(checkpoint)
        seed = root_seed(self.random_state)
        if checkpointer is not None:
            seed = checkpointer.seed(self.random_state)
        warm = getattr(self, "warm_start", False) and self._kernel is not None
        start = self._starting_point() if warm else None
        # Such models use two kernels: one for sets, one for next items.
        draws = params.spec.negatives is not None and params.spec.draws
        draws = draws and params.spec.score == "conditional"
        if params.n_skew is None and params.dtype == "float64" and draws:
            compile_ahead(NEGATIVES, n_jobs=self.n_jobs)
        problem = prepare(problem_of(given, params, seed, start))
        self._learn(problem, params, callbacks, checkpointer, features=features)
        return self

    def _set_independent(
        self, given: FitData, item_features: Any, prepare: Callable[[Problem], Problem]
    ) -> None:
        """Set the kernel of independent items, which needs no training."""
        params = self._training_params()
        problem = prepare(problem_of(given, params, root_seed(self.random_state)))
        share = popularity(problem.counts, problem.n_baskets)
        V = np.zeros((len(share), 0))
        kernel = Kernel(V, diagonal=share / (1 - share), n_jobs=params.n_jobs)
        result = TrainingResult(kernel, problem.items, problem.counts, problem.n_baskets)
        features = None
        if item_features is not None:
            items = as_baskets(given.baskets).items
            features = (ItemFeatures.learn(item_features, items), items)
        set_result(self, result, features=features)

    def partial_fit(
        self,
        baskets: Any = (),
        y: Any = None,
        sample_weight: Any = None,
        negatives: Any = None,
        callbacks: Sequence[Callback] = (),
        *,
        n_iter: int = 1,
    ) -> Self:
        """Continue from the present parameters with new baskets and rejected sets.

        New items enlarge the vocabulary. Every set in `negatives` loses probability relative to the
        baskets; there may be only negatives. Nothing is set aside for validation; `n_iter` rounds
        are made and the last one counts. Before `fit`, it raises `NotFittedError`.

        The scale is set anew. With calibrate="likelihood" the expected size becomes the mean size
        of all baskets learned from (for L = V Vᵀ or up to 500 items; else it moves half of the way,
        by a factor of 1.2 at most in L). `fit` sets it by the validation baskets alone, so that the
        first update may change it by a tenth. With another `calibrate`, new items or given factors,
        the L_ii of known items keep a weighted geometric mean. Negatives alone, and "choice", leave
        the scale to the steps.

        Parameters
        ----------
        baskets, y, sample_weight, negatives, callbacks
            As in `fit`.
        n_iter : int
            Rounds over the data.

        Returns
        -------
        self
        """
        del y
        given = FitData(baskets, sample_weight, negatives)
        return self._update(given, callbacks, n_iter)

    def _update(
        self,
        given: FitData,
        callbacks: Sequence[Callback],
        n_iter: int,
        prepare: Callable[[Problem], Problem] = lambda problem: problem,
    ) -> Self:
        """Continue from the present parameters; `prepare` may add clusters to the problem."""
        _ROUNDS.check(n_iter)
        start = self._starting_point()
        params = self._training_params(max_iter=int(n_iter), settings=None)
        # Each call has random streams of its own; one that is refused does not count.
        n_updates = self.n_updates_ + 1
        seed = root_seed(stream(root_seed(self.random_state), UPDATE, n_updates))
        problem = prepare(problem_of_update(given, params, seed, start))
        self._learn(problem, params, callbacks, n_updates=n_updates)
        return self

    def add_items(
        self,
        ids: Iterable[Any],
        features: Any,
        *,
        names: Labels | None = None,
        categories: Labels | None = None,
    ) -> Self:
        """Add items that never sold, by their features; `partial_fit` learns more as they sell.

        An item becomes as popular as the features of items that sell predict, and otherwise like
        the mean of the items nearest to it. A model needs `item_features` in `fit` for this.

        Parameters
        ----------
        ids : iterable of items
            None of which the model knows.
        features : data frame, Arrow table, array, sparse array or mapping
            As in `fit`, with the same columns or the same length of vectors; an array has a row per
            id. Columns and rows may be missing, and an unknown category counts as missing.
        names, categories : mappings of item to str, optional

        Returns
        -------
        self
        """
        items = self.known_items
        counts = self._known_counts()
        added = check_new_ids(ids, names, categories)
        self._append_items(new_items(self.feature_model_, items, counts, added, features), counts)
        return self

    @property
    def explained_(self) -> dict[str, float] | None:
        """The share of the variance of log popularity that features explain ("popularity")."""
        _ = self.kernel_  # raises NotFittedError before fit
        if self.feature_model_ is None:
            return None
        return {"popularity": self.feature_model_.popularity.explained}

    # -- Training ----------------------------------------------------------------------------------

    @classmethod
    def _of_kernel(cls, kernel: Kernel, items: Iterable[Any] | None) -> Self:
        model = super()._of_kernel(kernel, items)
        model._set_untrained()
        return model

    def _set_untrained(self) -> None:
        """Set what is known of the training baskets of given factors: nothing."""
        self.item_counts_ = None
        self.n_baskets_ = 0.0
        self.n_updates_ = 0
        self.feature_model_ = None

    def _learn(
        self,
        problem: Problem,
        params: Params,
        callbacks: Sequence[Callback],
        checkpointer: Checkpointer | None = None,
        *,
        n_updates: int = 0,
        features: tuple[ItemFeatures, Vocabulary] | None = None,
    ) -> None:
        """Train, and take over the result; if training is interrupted, the best so far."""
        if self.verbose:
            callbacks = [*callbacks, ProgressBar()]
        how: dict[str, Any] = {"callbacks": callbacks, "model_of": self._model_of}
        try:
            result = learn(problem, params, checkpointer=checkpointer, **how)
        except BaseException as error:
            best = result_before(error)
            if best is not None:
                set_result(self, best, n_updates, features)
            raise
        set_result(self, result, n_updates, features)

    def _training_params(self, **overrides: Any) -> Params:
        """Return the checked parameters of training."""
        own = self.get_params(deep=False)
        return Params.of(self, **{name: overrides[name] for name in overrides.keys() & own.keys()})

    def _starting_point(self) -> StartingPoint:
        return StartingPoint(self.kernel_, self.items_, self.item_counts_, self.n_baskets_)

    def _model_of(self, result: TrainingResult) -> Self:
        """Make a model of the best so far, as a callback saves it."""
        model = type(self)(**self.get_params(deep=False))
        set_result(model, result)
        return model

    def _append_items(self, new: NewItems, counts: Array) -> None:
        """Append a row for every new item to the kernel, given the sales of all others."""
        old_counts = self._known_counts()
        similarity = self._enlarged_similarity(new)
        kernel = enlarge_kernel(self.kernel_, new.neighbors, new.log_popularity, counts)
        self._set_kernel(kernel, new.items)
        self._set_similarity(similarity)
        self.feature_model_ = new.feature_model
        self.item_counts_ = np.concatenate([old_counts, np.zeros(len(new.rows))])

    def _known_counts(self) -> Array:
        return np.zeros(len(self.items_)) if self.item_counts_ is None else self.item_counts_

    # -- Files -------------------------------------------------------------------------------------

    def _contents(self) -> tuple[persist.Tensors, dict[str, Any]]:
        tensors, info = super()._contents()
        if self.item_counts_ is None:
            return tensors, info
        tensors["item_counts"] = self.item_counts_
        info["training"] = {"n_baskets": float(self.n_baskets_), "n_updates": int(self.n_updates_)}
        if self.feature_model_ is not None:
            own, info["features"] = self.feature_model_.contents()
            tensors |= own
        return tensors, info

    def _set_contents(self, tensors: persist.Tensors, info: Mapping[str, Any]) -> None:
        super()._set_contents(tensors, info)
        self._set_untrained()
        n_items = len(self.items_)
        features = info.get("features")
        if "item_counts" in tensors:
            training = info["training"]
            for name in ("n_baskets", "n_updates"):
                Parameter(name, "", low=0).check(training[name])
            arrays = persist.read_arrays(tensors, _COUNTS, "item counts", M=n_items)
            self.item_counts_ = arrays["item_counts"]
            self.n_baskets_ = float(training["n_baskets"])
            self.n_updates_ = int(training["n_updates"])
        elif features is not None:
            raise ParameterError("its items have features but no counts of their sales")
        if features is not None:
            self.feature_model_ = FeatureModel.restored(tensors, features, n_items)

    @classmethod
    def _own_params(cls, params: Mapping[str, Any]) -> dict[str, Any]:
        own = super()._own_params(params)
        for name, kinds in (("negatives", negative_sets.WORDS), ("optimizer", optimizers.WORDS)):
            if isinstance(own.get(name), dict):
                values = dict(own[name])
                classes = {kind.__name__: kind for kind in kinds.values()}
                own[name] = classes[values.pop("class")](**values)
        return own


def new_estimator(given: Any, owner: Any) -> Any:
    """Return an unfitted copy with its owner's threads and, unless it has one, its seed."""
    own: dict[str, Any] = {"n_jobs": owner.n_jobs, "verbose": min(owner.verbose, given.verbose)}
    if given.random_state is None:
        own["random_state"] = owner.random_state
    return type(given)(**(given.get_params(deep=False) | own))


def set_result(
    model: LearnedDPP,
    result: TrainingResult,
    n_updates: int = 0,
    features: tuple[ItemFeatures, Vocabulary] | None = None,
) -> None:
    """Set the attributes that training learns; an update keeps what belongs to known items."""
    similarity = model._similarity if n_updates else None
    feature_model = model.feature_model_ if n_updates else None
    if feature_model is not None:
        feature_model = feature_model.recode(model.items_, result.items)
    if features is not None:
        known = features[0].recode(features[1], result.items)
        feature_model = FeatureModel.learn(known, result.counts)
    model._set_kernel(result.kernel, result.items)
    model._set_similarity(similarity)
    model.item_counts_ = result.counts
    model.n_baskets_ = result.n_baskets
    model.n_updates_ = n_updates
    model.feature_model_ = feature_model
    model.history_ = result.history
    model.n_iter_ = result.n_iter


def fit_on(
    engine: str | Engine,
    model: Any,
    given: FitData,
    callbacks: Sequence[Callback],
    item_features: Any,
    checkpoint: str | os.PathLike[str] | Checkpointing | None,
) -> None:
    """Fit a model by an engine: a function that is registered as an entry point."""
    engines = {found.name: found for found in entry_points(group="contradpp.engines")}
    name = engine if isinstance(engine, str) else getattr(engine, "name", None)
    if name not in engines:
        Parameter("engine", "", choices=tuple(engines)).check(engine)
    unused = {
        "sample_weight": given.sample_weight,
        "negatives": given.negatives,
        "callbacks": callbacks or None,
        "item_features": item_features,
    }
    for argument, value in unused.items():
        if value is not None:
            raise ParameterError(f"engine={name!r} does not take {argument}")
    try:
        train = engines[str(name)].load()
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"engine={name!r} needs the extra: pip install 'contradpp[{name}]'"
        ) from error
    settings = None if isinstance(engine, str) else engine
    train(model, given.baskets, settings, validation=given.validation, checkpoint=checkpoint)
