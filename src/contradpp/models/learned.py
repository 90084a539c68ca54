"""`fit` and `partial_fit`, the same for every kernel that is learned: parameters in, what was learned out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._random import RandomState, root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp.data.baskets import as_baskets
from contradpp.data.features import ItemFeatures
from contradpp.data.vocabulary import Labels
from contradpp.dpp import persist
from contradpp.dpp.ahead import NEGATIVES, compile_ahead
from contradpp.errors import MissingExtraError, ParameterError
from contradpp.learn import training as learning
from contradpp.learn.callbacks import Callback, ProgressBar
from contradpp.learn.checkpoint import DEFAULT_EVERY, Keeper
from contradpp.learn.params import TABLE, Given, Known, Parameter, Params, problem_of, problem_of_news
from contradpp.learn.state import UPDATE
from contradpp.models.base import BaseDPP
from contradpp.models.cold_start import Arrivals, Kin, arriving, enlarged_kernel

Array = NDArray[np.float64]
# Of one item in a file: sums of more, by whoever wrote it, might overflow.
_COUNTS = {"item_counts": persist.Stored(("M",), low=0, high=1e100)}
_ROUNDS = Parameter("n_iter", "Rounds over the data", low=1, whole=True)


class LearnedDPP(BaseDPP):
    """A DPP whose kernel is learned from baskets; subclasses say by their constructor which parameters they have."""

    random_state: RandomState
    verbose: int
    history_: list[dict[str, Any]]
    n_iter_: int
    item_counts_: Array | None = None  # in how many training baskets each item was; labels count as they weigh
    n_baskets_: float = 0.0
    n_updates_: int = 0  # calls of partial_fit since fit
    kin_: Kin | None = None  # what is known of the items by their features

    def fit(
        self,
        baskets: Any,
        y: Any = None,
        sample_weight: Any = None,
        negatives: Any = None,
        validation: Any = None,
        callbacks: Sequence[Callback] = (),
        *,
        negative_weight: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
        checkpoint_every: int | str = DEFAULT_EVERY,
        item_features: Any = None,
        engine: str | None = None,
        **cluster: Any,
    ) -> Self:
        """Learn the kernel from baskets.

        Parameters
        ----------
        baskets : Baskets, or a list of lists of items
            With `offered` sets, "explicit" and "choice" learn from what was refused.
        y : ignored
            There for scikit-learn.
        sample_weight : array of float, optional
            A label y_A per basket, any real number (the paper's Eq. 2); 1 if left out. Only their ratios matter:
            they are scaled to a mean magnitude of 1. Below zero pushes a basket away, zero leaves it out.
        negatives : Baskets or a list of lists, optional
            The user's own negative sets: combinations that should be unlikely. They join those that the
            objective draws; with negative_ratio=0 there are no others.
        validation : Baskets, list of lists, float or None
            Sets for early stopping and calibration; a share of the baskets to set aside; None for 5 %.
        callbacks : sequence of Callback
        negative_weight : array of float, optional
            A weight per negative set.
        checkpoint : path, optional
            A file that always holds all of the training's state, so that a run that was killed can go on.
        resume : bool
            Go on from that file if it is there. The result is the same, to the last bit, as without the break.
        checkpoint_every : int or str
            The steps from one checkpoint to the next, or the time, such as "30s".
        item_features : data frame, Arrow table, array, sparse array or mapping, optional
            What the items are like, so that `add_items` can tell of new ones: a row per item, in the order of the
            baskets' items if it is an array. Items without a row, and rows of items that are in no basket, are allowed.
        engine : {None, "ray"}
            "ray" trains on a Ray cluster (extra `ray`); `baskets` is then the path of a Parquet file or of a folder of
            them, on any file system that fsspec knows and all machines reach, and each basket is in one of them.
        **cluster
            With engine="ray": `workers` (2), `address` of the cluster (its own, on this machine), `timeout` in seconds
            after which a silent worker counts as lost (120), how many `restarts` replace lost workers (3),
            and `columns` of the files.
        """
        del y
        given = Given(baskets, sample_weight, negatives, negative_weight, validation)
        features, items = None, None
        if engine is not None:
            long_run = {"checkpoint": checkpoint, "resume": resume, "checkpoint_every": checkpoint_every}
            fit_on(engine, self, given, callbacks, item_features, **long_run, **cluster)
            return self
        if item_features is not None:
            train = as_baskets(baskets)
            features, items = ItemFeatures.learn(item_features, train.items), train.items
            given = replace(given, baskets=train)
        if cluster:
            raise TypeError(f"fit() got arguments that only an engine takes: {', '.join(cluster)}")
        params, keeper = self.training_params(), Keeper.of(checkpoint, resume=resume, every=checkpoint_every)
        seed = root_seed(self.random_state) if keeper is None else keeper.seed(self.random_state)
        known = self._known_so_far() if getattr(self, "warm_start", False) and self.is_fitted else None

        def take(learned: learning.Learned) -> None:
            self.take(learned)
            if features is not None and items is not None:
                self.kin_ = Kin.learn(features.recode(items, learned.items), learned.counts)

        two_kernels = params.objective in ("dynamic", "explicit", "product")  # for sets and for next items
        if params.n_skew is None and params.dtype == "float64" and two_kernels:
            compile_ahead(NEGATIVES, n_jobs=self.n_jobs)
        problem = problem_of(given, params, seed, known)
        learning.learn(
            problem, params, take, callbacks=self._watchers(callbacks), model_of=self._model_of, keeper=keeper
        )
        return self

    def partial_fit(
        self,
        baskets: Any = (),
        y: Any = None,
        sample_weight: Any = None,
        negatives: Any = None,
        callbacks: Sequence[Callback] = (),
        *,
        negative_weight: Any = None,
        n_iter: int = 1,
    ) -> Self:
        """Continue from the present parameters with new baskets and rejected sets.

        Items that are new enlarge the vocabulary. Every set in `negatives` loses probability relative to the
        baskets; there may be only negatives. Nothing is set aside for validation; `n_iter` rounds are made and the last
        one counts. Before `fit`, it raises `NotFittedError`.

        The scale is set anew, not kept: with calibrate="likelihood" the expected size becomes the mean size of all
        baskets learned from (for L = V Vᵀ or up to 500 items; else it moves half of the way, by a factor of 1.2 at
        most in L). `fit` sets it by the validation baskets alone, so that the first update may change it by a tenth.
        With another `calibrate`, new items or given factors, the L_ii of known items keep a weighted geometric mean.
        Negatives alone, and "choice", leave it to the steps.
        """
        del y
        _ROUNDS.check(n_iter)
        known = self._known_so_far()
        params = self.training_params(max_iter=int(n_iter), settings=None)
        n_updates = self.n_updates_ + 1  # each call has random streams of its own; one that is refused does not count
        seed = root_seed(stream(root_seed(self.random_state), UPDATE, n_updates))
        given = Given(baskets, sample_weight, negatives, negative_weight)
        problem, take = problem_of_news(given, params, seed, known), partial(self.take, n_updates=n_updates)
        learning.learn(problem, params, take, callbacks=self._watchers(callbacks), model_of=self._model_of)
        return self

    def add_items(
        self, ids: Iterable[Any], features: Any, *, names: Labels | None = None, categories: Labels | None = None
    ) -> Self:
        """Add items that never sold, with what their features say of them; `partial_fit` learns more as they sell.

        An item becomes as popular as the features of items that sell predict, and otherwise like the mean of the items
        that are most alike to it: what goes with them goes with it. A model needs `item_features` in `fit` for this.

        Parameters
        ----------
        ids : iterable of items
            None of which the model knows.
        features : data frame, Arrow table, array, sparse array or mapping
            As in `fit`, with the same columns or the same length of vectors; an array has a row per id. Columns and
            rows may be missing, and a category that was never seen counts as missing.
        names, categories : mappings of item to str, optional
        """
        _ = self.kernel_  # raises NotFittedError before fit
        counts = self._known_counts()
        self.enlarge(arriving(self.kin_, self.known_items, counts, ids, features, names, categories), counts)
        return self

    def enlarge(self, found: Arrivals, counts: Array) -> None:
        """Give the kernel a row for every new item, by the sales of all others."""
        old, mix = self._known_counts(), found.alike.mix(len(self.items_))
        self._enlarge(enlarged_kernel(self.kernel_, found.alike, found.log_shares, counts), found.items, mix)
        self.kin_ = found.kin
        self.item_counts_ = np.concatenate([old, np.zeros(len(found.rows))])

    @property
    def explained_(self) -> dict[str, float] | None:
        """What features explain: the share of the variance of log popularity ("popularity"); None without features."""
        return None if self.kin_ is None else {"popularity": self.kin_.sales.explained}

    def _known_counts(self) -> Array:
        return np.zeros(len(self.items_)) if self.item_counts_ is None else self.item_counts_

    def training_params(self, **instead: Any) -> Params:
        """The checked parameters of training."""
        given = {name: value for name, value in self.get_params().items() if name in TABLE}
        present = {name: value for name, value in instead.items() if name in given}
        return Params.of(type(self).__name__, given | present, resolve_n_jobs(self.n_jobs))

    def take(self, learned: learning.Learned, n_updates: int = 0) -> None:
        """Make what was learned the model's own."""
        likeness = self._likeness if n_updates else None  # an update leaves the codes of the items as they are
        kin = self.kin_.recode(self.items_, learned.items) if n_updates and self.kin_ is not None else None
        self._adopt(learned.kernel, learned.items)
        self.kin_ = kin
        self._take_likeness(likeness)
        self.item_counts_, self.n_baskets_ = learned.counts, learned.n_baskets
        self.history_, self.n_iter_, self.n_updates_ = learned.history, learned.n_iter, n_updates

    def learned(self) -> learning.Learned:
        """What `take` took."""
        return learning.Learned(
            self.kernel_, self.items_, self._known_counts(), self.n_baskets_, self.history_, self.n_iter_
        )

    def _model_of(self, learned: learning.Learned) -> Self:
        """A model with these parameters, as a checkpoint of the best so far saves it."""
        model = type(self)(**self.get_params())
        model.take(learned)
        return model

    def _watchers(self, callbacks: Sequence[Callback]) -> list[Callback]:
        return [*callbacks, ProgressBar()] if self.verbose else list(callbacks)

    def _known_so_far(self) -> Known:
        return Known(self.kernel_, self.items_, self.item_counts_, self.n_baskets_)

    # -- Files -------------------------------------------------------------------------------------

    def file_contents(self) -> tuple[persist.Tensors, dict[str, Any]]:
        tensors, info = super().file_contents()
        if self.item_counts_ is None:
            return tensors, info
        tensors["item_counts"] = self.item_counts_
        info["training"] = {"n_baskets": float(self.n_baskets_), "n_updates": int(self.n_updates_)}
        if self.kin_ is not None:
            own, info["features"] = self.kin_.contents()
            tensors |= own
        return tensors, info

    def take_contents(self, tensors: persist.Tensors, info: Mapping[str, Any]) -> None:
        super().take_contents(tensors, info)
        n_items, features = len(self.items_), info.get("features")
        if "item_counts" in tensors:
            training = info["training"]
            for name in ("n_baskets", "n_updates"):
                Parameter(name, "", low=0).check(training[name])
            self.item_counts_ = persist.read_arrays(tensors, _COUNTS, "item counts", M=n_items)["item_counts"]
            self.n_baskets_, self.n_updates_ = float(training["n_baskets"]), int(training["n_updates"])
        elif features is not None:
            raise ParameterError("its items have features but no counts of their sales")
        if features is not None:
            self.kin_ = Kin.restored(tensors, features, n_items)


def fit_on(
    engine: str, model: Any, given: Given, callbacks: Sequence[Callback], item_features: Any, **how: Any
) -> None:
    """Let an engine fit a model: a function that is registered as an entry point, so that models need not know it."""
    engines = {found.name: found for found in entry_points(group="contradpp.engines")}
    Parameter("engine", "", choices=tuple(engines)).check(engine)
    unused = {
        "sample_weight": given.sample_weight, "negatives": given.negatives, "negative_weight": given.negative_weight,
        "callbacks": callbacks or None, "item_features": item_features,
    }  # fmt: skip
    for name, value in unused.items():
        if value is not None:
            raise ParameterError(f"engine={engine!r} does not take {name}")
    try:
        train = engines[engine].load()
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"engine={engine!r} needs the extra: pip install 'contradpp[{engine}]'") from error
    train(model, given.baskets, validation=given.validation, **how)
