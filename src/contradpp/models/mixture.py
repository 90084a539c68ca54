"""Mixtures of DPPs: one kernel, and clusters of baskets that prefer some of the items."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from contradpp._random import CLUSTER_CHOICE, CLUSTER_DRAW, RandomState, root_seed, stream
from contradpp._types import Array, Codes, Flags, Ints
from contradpp.data.sets import Sets, take_sets
from contradpp.data.vocabulary import Labels
from contradpp.dpp import files
from contradpp.dpp.files import Stored
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.mixture import Mixture
from contradpp.dpp.scoring import best_columns, next_probabilities, top_n, without_blanks
from contradpp.errors import ConvergenceError, NotFittedError, ParameterError
from contradpp.experts.base import excluded_codes
from contradpp.experts.queries import as_codes, as_ids, as_queries, check_count
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoints import Checkpointing
from contradpp.learn.clusters import (
    Clusters,
    choose_clusters,
    counted,
    draw_clusters,
    fit_mixture,
    fit_weights,
    independent_mixture,
    rounded,
    without_empty,
)
from contradpp.learn.objectives import IMPOSSIBLE, Assignment
from contradpp.learn.params import FitData, Parameter, Problem
from contradpp.learn.state import popularity
from contradpp.models.base import DPPRecommender, can_extend, restore_model
from contradpp.models.cold_start import NewItems, check_new_ids, new_items
from contradpp.models.learned import Engine, LearnedDPP, fit_on, new_estimator
from contradpp.models.nonsymmetric import NonsymmetricDPP, complements

_CLUSTERS = Parameter(
    "n_clusters", "Kinds of baskets", choices=("auto",), low=1, high=10_001, whole=True
)
_SMOOTHING = Parameter(
    "smoothing", "Pseudo-baskets of every cluster", choices=("auto",), low=0, above=True
)
MOST_TILT = 300.0  # exp of more might overflow in products
_STORED = {
    "tilts": Stored(("C", "M"), low=-MOST_TILT, high=MOST_TILT, single=True),
    "log_weights": Stored(("C",), low=-1e6, high=1e-6),
    "log_normalizers": Stored(("C",), low=0.0, high=1e9),
    "rates": Stored(("M",), low=0.0, high=1.0),
}
LIFT_PRIOR = 0.001  # a probability added to both sides of a lift, so that luck does not rank first


def _of_kernel_model(name: str, doc: str) -> Any:
    """Return a property that is the attribute of the kernel model."""

    def get(model: MixtureDPP) -> Any:
        return getattr(model.kernel_model_, name)

    def change(model: MixtureDPP, value: Any) -> None:
        setattr(model.kernel_model_, name, value)

    return property(get, change, doc=doc)


class MixtureDPP(DPPRecommender):
    """A mixture of DPPs: what kind of basket it is, and what goes together in it.

        P(A) = Σ_c π_c det(L^c_A) / det(I + L^c) = det(L_A) Σ_c exp(β_c + Σ_{i∈A} u_ci)

    One kernel L keeps items apart and brings them together. The tilts u_c of a cluster say which
    items it prefers: L^c = E_c L E_c with E_c = diag(exp(u_c / 2)). Baskets of a supermarket fall
    into breakfasts, drinks, and weekly shoppings; pairs of items alone do not say so. Sizes of
    baskets vary as those of the data do. Every answer is exact where the kernel's is.

    `fit` starts from a mixture of independent items. The kernel is learned with the clusters in
    place, and the clusters are adapted to it. The number of clusters and their smoothing are those
    for which held-out baskets are most likely. If held-out baskets are more likely without the
    kernel's V and S, those are left out.

    Parameters
    ----------
    kernel : LowRankDPP or NonsymmetricDPP, optional
        The model of the kernel L; None for `NonsymmetricDPP()`. With `n_components=0, n_skew=0` the
        result is a mixture of independent items.
    n_clusters : int or "auto"
        1 is the kernel model alone.
    smoothing : float or "auto"
        The pseudo-baskets of average popularity that are added to every cluster.
    n_jobs : int, optional
        Threads; None for all cores. Results do not depend on it.
    random_state : int, Generator or None
    verbose : int
        0 to show no progress. See `callbacks.ProgressBar`.

    Attributes
    ----------
    kernel_model_ : the fitted model of the kernel
    kernel_ : Kernel
        L.
    weights_ : array (C,)
        π, the share of every cluster.
    tilts_ : array (C, M)
        u.
    smoothing_ : float
    items_ : Vocabulary

    Examples
    --------
    >>> import contradpp as cd
    >>> tea, pasta = ["tea", "milk", "sugar"], ["pasta", "sauce", "cheese"]
    >>> baskets = [tea[:2], tea[1:], pasta[:2], pasta[1:]] * 30
    >>> model = cd.MixtureDPP(n_clusters=2, smoothing=1.0, random_state=0).fit(baskets)
    >>> model.cluster_probabilities(["pasta"]).max().round(1).item()
    1.0
    >>> breakfast = model.cluster_probabilities(["tea"]).argmax().item()
    >>> sorted(model.cluster_items(breakfast, N=3)[0].tolist())
    ['milk', 'sugar', 'tea']
    """

    smoothing_: float
    _kernel_model: LearnedDPP | None = None
    _mixture: Mixture
    _n_jobs: int | None = None

    def __init__(
        self,
        kernel: LearnedDPP | None = None,
        n_clusters: int | str = "auto",
        *,
        smoothing: float | str = "auto",
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 1,
    ) -> None:
        self.kernel = kernel
        self.n_clusters = n_clusters
        self.smoothing = smoothing
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # -- Fitting -----------------------------------------------------------------------------------

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
        """Learn kernel and clusters from baskets.

        Parameters
        ----------
        baskets, sample_weight, negatives, validation, callbacks, checkpoint, item_features, engine
            As in `NonsymmetricDPP.fit`. Baskets with a label of zero or less do not count for the
            clusters. A checkpoint is that of the kernel's training, which takes most of the time.
            On a Ray cluster there is one cluster of baskets, whatever the data say.
        """
        del y
        _CLUSTERS.check(self.n_clusters)
        _SMOOTHING.check(self.smoothing)
        given = FitData(baskets, sample_weight, negatives, validation)
        if engine is not None:
            fit_on(engine, self, given, callbacks, item_features, checkpoint)
            return self
        kernel = self.new_kernel_model()
        start = _Start(self, kernel)
        try:
            if kernel.n_components or getattr(kernel, "n_skew", 0):
                kernel._fit(given, callbacks, checkpoint, item_features, start.prepare)
            else:
                kernel._set_independent(given, item_features, start.prepare)
        except (KeyboardInterrupt, ConvergenceError):
            if hasattr(kernel, "history_"):
                self._set_fitted(kernel, *start.finish())  # to the best kernel so far
            raise
        self._set_fitted(kernel, *start.finish())
        return self

    def new_kernel_model(self) -> LearnedDPP:
        """Return the unfitted kernel model, with the threads and, unless it has one, the seed."""
        given = NonsymmetricDPP() if self.kernel is None else self.kernel
        if not isinstance(given, LearnedDPP):
            raise ParameterError(f"kernel must be a LowRankDPP or a NonsymmetricDPP, got {given!r}")
        found: LearnedDPP = new_estimator(given, self)
        return found

    def set_kernel_model(
        self,
        kernel: LearnedDPP,
        tilts: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Take over a fitted kernel model, with given clusters or as the only one.

        Parameters
        ----------
        kernel : LowRankDPP or NonsymmetricDPP
        tilts : array (C, M), optional
            u; zeros for one cluster if left out.
        weights : array (C,), optional
            π, in proportion; equal if left out.
        """
        M = len(kernel.known_items)
        u = np.zeros((1, M)) if tilts is None else np.asarray(tilts, dtype=np.float64)
        share = np.ones(len(u)) if weights is None else np.asarray(weights, dtype=np.float64)
        if u.shape != (len(share), M) or not np.isfinite(u).all() or np.abs(u).max() > MOST_TILT:
            raise ParameterError(f"tilts must be finite numbers (C, {M}), up to {MOST_TILT:g}")
        if share.ndim != 1 or not np.isfinite(share).all() or not (share > 0).all():
            raise ParameterError("weights must be a number above zero for every cluster")
        self._set_fitted(kernel, Mixture(kernel.kernel_, u, np.log(share)), 0.0)
        return self

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

        The kernel is updated with the clusters in place, and their weights by the new baskets. The
        tilts stay, and are zero for new items.

        Parameters
        ----------
        baskets, sample_weight, negatives, callbacks, n_iter
            As in `NonsymmetricDPP.partial_fit`.
        """
        del y
        mixture = self.dpp
        kernel = deepcopy(self.kernel_model_)
        kernel.n_jobs = self.n_jobs
        before = kernel.n_baskets_
        seen: Problem

        def prepare(problem: Problem) -> Problem:
            nonlocal mixture, seen
            seen = problem
            new = ((0, 0), (0, len(problem.items) - mixture.n_items))  # unknown to the kernel
            mixture = Mixture(
                mixture.kernel,
                np.pad(mixture.tilts, new),
                mixture.log_weights,
                mixture.log_normalizers,
            )
            if mixture.n_clusters == 1:
                return problem
            return _assigned(problem, mixture.tilts, mixture.log_joint)

        kernel._update(FitData(baskets, sample_weight, negatives), callbacks, n_iter, prepare)
        found = Mixture(kernel.kernel_, mixture.tilts, mixture.log_weights)
        sets, weights = counted(seen.data.positives, seen.data.weights)
        if sets.count and found.n_clusters > 1:
            found = fit_weights(found, found.log_joint(sets), weights, before)
        similarity = self._similarity
        self._set_fitted(kernel, found, self.smoothing_)
        self._set_similarity(similarity)
        return self

    def add_items(
        self,
        ids: Iterable[Any],
        features: Any,
        *,
        names: Labels | None = None,
        categories: Labels | None = None,
    ) -> Self:
        """Add items that never sold, by their features; see `NonsymmetricDPP.add_items`.

        Their tilts are those of the nearest items, on average.
        """
        kernel = self.kernel_model_
        counts = kernel._known_counts()
        added = check_new_ids(ids, names, categories)
        new = new_items(kernel.feature_model_, kernel.known_items, counts, added, features)
        self._append_items(new, counts)
        return self

    def _append_items(self, new: NewItems, counts: Array) -> None:
        """Append a row for every new item to the kernel, and its tilts."""
        mixture = self.dpp
        mix = new.neighbors.matrix(mixture.n_items)
        similarity = self._similarity
        if similarity is not None:
            similarity = similarity.enlarged(len(new.items), mix)
        tilts = np.hstack([mixture.tilts, np.asarray((mix @ mixture.tilts.T).T)])
        kernel = self.kernel_model_
        kernel._append_items(new, counts)
        found = Mixture(kernel.kernel_, rounded(tilts), mixture.log_weights)
        self._set_fitted(kernel, found, self.smoothing_)
        self._set_similarity(similarity)

    def _set_fitted(self, kernel: LearnedDPP, mixture: Mixture, smoothing: float) -> None:
        self._kernel_model = kernel
        self._mixture = mixture
        self.items_ = kernel.items_
        self.smoothing_ = smoothing
        _ = mixture.log_normalizers, mixture.rates  # which take the longest
        self._set_similarity(None)

    # -- Parts -------------------------------------------------------------------------------------

    @property
    def kernel_model_(self) -> LearnedDPP:
        """The fitted model of the kernel L."""
        if self._kernel_model is None:
            raise NotFittedError("this MixtureDPP has no parameters yet: call fit first")
        return self._kernel_model

    @property
    def kernel_(self) -> Kernel:
        """L, the kernel that all clusters share."""
        return self.kernel_model_.kernel_

    @property
    def dpp(self) -> Mixture:
        _ = self.kernel_model_  # raises NotFittedError before fit
        return self._mixture

    @property
    def n_jobs(self) -> int | None:
        return self._n_jobs

    @n_jobs.setter
    def n_jobs(self, value: int | None) -> None:
        self._n_jobs = value
        if self._kernel_model is not None:
            self._kernel_model.n_jobs = value

    @property
    def weights_(self) -> Array:
        """π, the share of every cluster (C,)."""
        return self.dpp.weights

    @property
    def tilts_(self) -> Array:
        """u, the log of how much heavier an item is in a cluster than in L (C, M)."""
        return self.dpp.tilts

    item_factors_ = _of_kernel_model("item_factors_", "The factors of L, a row per item (M, K).")
    feature_model_ = _of_kernel_model("feature_model_", "The item features of `add_items`.")
    explained_ = _of_kernel_model("explained_", "What features explain; see the kernel's model.")
    history_ = _of_kernel_model("history_", "The training history, an entry per round.")
    n_iter_ = _of_kernel_model("n_iter_", "The number of training rounds.")
    item_counts_ = _of_kernel_model("item_counts_", "The training baskets with each item (M,).")
    n_baskets_ = _of_kernel_model("n_baskets_", "The number of training baskets.")
    n_updates_ = _of_kernel_model("n_updates_", "Calls of `partial_fit` since `fit`.")

    # -- Clusters ----------------------------------------------------------------------------------

    def cluster_probabilities(self, baskets: Any, *, unknown: str = "error") -> Array:
        """Return the probability of every cluster given a basket, r_c(A) = P(c | Y = A).

        The basket counts as complete. A short one is therefore likely to be of a cluster of short
        baskets, and with an empty basket the answer is not `weights_`.

        Parameters
        ----------
        baskets : a basket, or many

        Returns
        -------
        array (n, C)
            r_c(A); (C,) for one basket.
        """
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        found = self.dpp.responsibilities(queries.sets)
        return found[0] if queries.single else found

    def cluster_items(self, cluster: int, N: int = 10) -> tuple[NDArray[Any], Array]:
        """Return the N items that a cluster holds most beyond others, and their lift.

        The lift is P(i ∈ Y | c) / P(i ∈ Y), both with 0.001 added so that rare items do not come
        first by chance. Where kernels are large, it is that of the next item given no basket.

        Parameters
        ----------
        cluster : int
            From 0 to C − 1.
        N : int

        Returns
        -------
        items : array of item ids
        lift : array of float
        """
        check_count(N)
        C = self.dpp.n_clusters
        if isinstance(cluster, bool) or not isinstance(cluster, (int, np.integer)):
            raise ParameterError(f"cluster must be an integer, got {cluster!r}")
        if not 0 <= cluster < C:
            raise ParameterError(f"cluster must lie in 0..{C - 1}, got {cluster}")
        odds = self.kernel_.squared_norms * np.exp(self.tilts_)
        rates = odds / (1.0 + odds)  # about P(i ∈ Y | c), without the interactions of items
        lift = (rates[cluster] + LIFT_PRIOR) / (self.weights_ @ rates + LIFT_PRIOR)
        best = top_n(lift[None], min(int(N), len(lift)))[0]
        return as_ids(best, self.items_), lift[best]

    # -- Sets --------------------------------------------------------------------------------------

    def condition(self, given: Iterable[Any], *, unknown: str = "error") -> MixtureDPP:
        codes = as_codes(given, self.known_items, unknown=unknown)
        self._check_remaining(codes)
        mixture, rest = self.dpp.condition(codes)
        items = self.items_.subset(rest.tolist())
        kernel = type(self.kernel_model_)._of_kernel(mixture.kernel, items)
        model = MixtureDPP(kernel, mixture.n_clusters, n_jobs=self.n_jobs)
        kernel.n_jobs = self.n_jobs
        model._set_fitted(kernel, mixture, self.smoothing_)
        return model

    def _can_extend(self, sets: Sets) -> Flags:
        return can_extend(self.kernel_model_, sets)

    # -- Next items --------------------------------------------------------------------------------

    def _next_probabilities(self, sets: Sets) -> Iterator[tuple[int, int, Array]]:
        return next_probabilities(self.dpp, sets)

    def _best(self, sets: Sets, n: int, pool: Ints | None, banned: Codes) -> tuple[Ints, Array]:
        excluded = excluded_codes(len(self.items_), pool, banned)
        n = min(n, len(self.items_))
        codes = np.full((sets.count, n), -1)
        found = np.zeros((sets.count, n))
        for first, last, probabilities in self._next_probabilities(sets):
            part = take_sets(sets, np.arange(first, last))
            scores = probabilities.copy()
            scores[:, excluded] = -np.inf
            scores[part.owners, part.indices] = -np.inf
            codes[first:last], found[first:last] = best_columns(scores, probabilities, n)
        return without_blanks(codes, found)

    def complements(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """Return the N items that `item` attracts most; see `NonsymmetricDPP.complements`."""
        return complements(self, item, N)

    # -- Parameters and files ----------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments; `kernel__x` is the argument x of the kernel model."""
        if self.kernel is None and any(name.startswith("kernel__") for name in params):
            self.kernel = NonsymmetricDPP()
        return super().set_params(**params)

    def _contents(self) -> tuple[files.Tensors, dict[str, Any]]:
        tensors, kernel = self.kernel_model_._contents()
        similarity, settings = self._similarity_contents()
        mixture = self.dpp
        values = {name: getattr(mixture, name) for name in _STORED}
        tensors |= similarity | files.stored_arrays(values, _STORED, "mixture.")
        info = {
            "model": type(self).__name__,
            "params": files.plain_params(self.get_params(deep=False)),
            "kernel": kernel,
            "smoothing": float(self.smoothing_),
            "own_seed": getattr(self.kernel, "random_state", None) is not None,
        }
        return tensors, info | settings

    @classmethod
    def _restore(
        cls, tensors: files.Tensors, info: dict[str, Any], path: str | os.PathLike[str]
    ) -> Self:
        kernel = restore_model(tensors, info["kernel"], path)
        if not isinstance(kernel, LearnedDPP):
            raise ParameterError(f"its kernel is a {type(kernel).__name__}")
        params = cls._own_params(info["params"])
        seed = {} if info["own_seed"] else {"random_state": None}
        params["kernel"] = type(kernel)(**kernel.get_params(deep=False) | seed)
        model = cls(**params)
        found = files.read_arrays(tensors, _STORED, "mixture", "mixture.", M=len(kernel.items_))
        mixture = Mixture(kernel.kernel_, *(found[name] for name in _STORED))
        model._set_fitted(kernel, mixture, float(info["smoothing"]))
        kernel.n_jobs = model.n_jobs
        model._set_contents(tensors, info)
        return model


class _Start:
    """The clusters of a fit: chosen before the kernel is learned, adapted to it afterwards."""

    problem: Problem
    popularity: Array  # p̂, the share of training baskets with each item
    clusters: Clusters | None = None
    smoothing = 0.0

    def __init__(self, model: MixtureDPP, kernel: LearnedDPP) -> None:
        self.model = model
        self.kernel = kernel

    def prepare(self, problem: Problem) -> Problem:
        """Choose the clusters, and assign every basket to one."""
        self.problem = problem
        self.popularity = popularity(problem.counts, problem.n_baskets)
        model = self.model
        if model.n_clusters == 1:
            return problem
        self.clusters, self.smoothing = choose_clusters(
            counted(problem.data.positives, problem.data.weights),
            counted(problem.validation.sets, problem.validation.weights),
            len(problem.items),
            model.n_clusters,
            model.smoothing,
            root_seed(stream(problem.seed, CLUSTER_CHOICE)),
            n_jobs=self.kernel._training_params().n_jobs,
        )
        if len(self.clusters.log_weights) == 1:
            return problem
        tilts = self.clusters.log_odds - logit(self.popularity)
        return _assigned(problem, tilts, self.clusters.log_joint)

    def finish(self) -> tuple[Mixture, float]:
        """Return the mixture of the learned kernel, and the smoothing.

        It has no V and S if validation baskets are more likely without them.
        """
        kernel = self.kernel.kernel_
        mixture = Mixture(kernel, np.zeros((1, kernel.n_items)), np.zeros(1))
        if self.clusters is None:
            return mixture, self.smoothing
        problem = self.problem
        validation, shares = counted(problem.validation.sets, problem.validation.weights)
        # Not the validation sets: a `ConditionalDPP` fits its weights to them.
        sets, weights = counted(problem.data.positives, problem.data.weights)

        def score(mixture: Mixture) -> float:
            return float(shares @ np.maximum(mixture.log_probability(validation), IMPOSSIBLE))

        if len(self.clusters.log_weights) > 1:
            args = (self.clusters, self.popularity, sets, weights, self.smoothing)
            mixture = fit_mixture(kernel, *args, score)
        independent = independent_mixture(self.clusters, self.popularity, kernel.n_jobs)
        if len(shares) and score(independent) >= score(mixture):
            self.kernel._set_kernel(independent.kernel, self.kernel.items_)
            mixture = Mixture(self.kernel.kernel_, independent.tilts, independent.log_weights)
        return without_empty(mixture, max(float(weights.sum()), 1.0)), self.smoothing


def _assigned(problem: Problem, tilts: Array, log_joint: Callable[[Sets], Array]) -> Problem:
    """Return the problem with a cluster for every set, drawn by its responsibility."""
    seeds = (root_seed(stream(problem.seed, CLUSTER_DRAW, k)) for k in range(2))
    sets = (problem.data.positives, problem.validation.sets)
    drawn = [draw_clusters(log_joint(part), seed) for part, seed in zip(sets, seeds, strict=True)]
    return replace(problem, clusters=Assignment(tilts, *drawn))
