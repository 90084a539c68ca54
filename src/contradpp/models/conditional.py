"""The conditional DPP: a DPP kernel combined with other next-item models."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._random import HELD_OUT_BASKETS, RandomState, root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp._types import Array, Flags, Ints
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.features import ItemFeatures
from contradpp.data.orders import SetsWithHistory
from contradpp.data.sets import Sets, without_each
from contradpp.data.vocabulary import Labels, Vocabulary
from contradpp.dpp import files
from contradpp.dpp.ahead import FIT, compile_ahead
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.mixture import Mixture
from contradpp.errors import ConvergenceError, DataError, NotFittedError, ParameterError
from contradpp.experts.history import (
    HISTORY,
    HistoryExpert,
    in_order,
    item_statistics,
    learn_from_customers,
)
from contradpp.experts.queries import Queries, as_codes, as_ids, check_count, with_history
from contradpp.experts.statistics import BasketStatistics
from contradpp.experts.table import (
    DEFAULT_EXPERTS,
    KERNEL,
    expert_contents,
    fit_experts,
    needs_baskets,
    restore_experts,
    restore_parameter,
    select_experts,
    select_fitted_experts,
)
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoints import Checkpointing
from contradpp.learn.negatives import WeightedSets
from contradpp.learn.params import MOST_LEARNED, FitData, checked_weights, without_excess
from contradpp.models.base import DPPRecommender, restore_model
from contradpp.models.cold_start import (
    ColdStart,
    ColdStartWeights,
    FeatureModel,
    check_new_ids,
    fit_cold_start_weights,
    log_sums,
    new_items,
)
from contradpp.models.combination import Combination, Weights, fit_offset_weights, fit_weights
from contradpp.models.explain import N_TYPICAL, Explanation, clusters_that_matter, divide
from contradpp.models.learned import Engine, LearnedDPP, fit_on, new_estimator
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.mixture import MixtureDPP
from contradpp.models.nonsymmetric import complements
from contradpp.slates.similarity import Company, Similarity, Substitute

log = logging.getLogger("contradpp")

HELD_OUT = 0.1  # the share of baskets that fit the weights, and stop the kernel's training early
POPULAR = 0.02  # the share of items that are popular
KernelModel = LearnedDPP | MixtureDPP


class ConditionalDPP(DPPRecommender):
    """A DPP kernel combined with other next-item models, the experts.

        P(next = j | A) ∝ exp(τ(A) θ(A)ᵀ f_j(A) + ρ(A) z_jᵀ Φ z_j)

    This is a conditional logit over the scores of the experts, which others call stacking. The
    features f_j are transformed scores: popularity, ridge regressions on neighboring items, nearest
    items and baskets, a log-linear model, the clusters of the mixture, and P(A∪j)/P(A) of the
    kernel model. z_j holds one standardized feature of each expert, so that an expert may count for
    less where another agrees. The weights θ(A) are linear in log|A| and in the rarity of the
    basket's items, and so are the temperatures τ and ρ. See `models/combination.py`.

    `fit` holds out a tenth of the baskets. It fits the kernel model, for which they are the
    validation set, and the experts, which do not see them. It fits θ and Φ to the held-out baskets,
    τ and ρ also to parts of them. Then the experts, not the kernel, learn from all baskets.

    `kernel` is the unfitted kernel model, as it was passed, and `kernel_` the fitted one. It
    answers questions about sets: `score_samples`, `sample`, `marginals` and the like. L itself is
    `kernel_.kernel_`. Of a basket with more than 500 items, 500 random ones are learned from, with
    a warning.

    Parameters
    ----------
    kernel : MixtureDPP, NonsymmetricDPP or LowRankDPP, optional
        The kernel model to be fitted; None for `MixtureDPP()`.
    experts : sequence of str and models
        The other experts: "popularity", "ridge", "item_knn", "basket_knn", "loglinear" (left out in
        catalogs of more than 1,000 items), "mixture" (the clusters of a `MixtureDPP`, left out
        without), "history" (which counts if the customers of the training baskets are known, for
        questions with a customer's earlier baskets), and models of your own: anything with
        `predict_next`. Those that are not fitted yet are fitted.
    n_jobs : int, optional
        Threads; None for all cores. Results do not depend on it. Unless it is 1, the first `fit` on
        a machine compiles in a background process what is needed later
        (CONTRADPP_COMPILE_AHEAD=0 in the environment forbids it).
    random_state : int, Generator or None
    verbose : int
        0 to show no progress. See `callbacks.ProgressBar`.

    Attributes
    ----------
    kernel_ : the fitted kernel model
    experts_ : dict of name to fitted expert
    weights_ : dict of feature name to (θ₀, θ₁)
    cold_start_ : the items that are scored by their features, with few sales or none; or None
    baskets_ : Baskets
        The training baskets; missing in a model of a file without them.
    items_ : Vocabulary
    n_updates_ : int
        Calls of `partial_fit` since `fit`.

    Examples
    --------
    >>> import contradpp as cd
    >>> tea, pasta = ["tea", "milk"], ["pasta", "sauce"]
    >>> baskets = [tea, [*tea, "sugar"], pasta, [*pasta, "cheese"]] * 20
    >>> model = cd.ConditionalDPP(random_state=0).fit(baskets)
    >>> model.recommend(["pasta", "cheese"], N=1)[0].tolist()
    ['sauce']
    >>> next(iter(model.explain(["tea"], "milk").by_item))
    'tea'
    """

    experts_: dict[str, Any]
    baskets_: Baskets
    n_baskets_: float
    cold_start_: ColdStart | None
    n_updates_: int
    _baskets: Baskets  # `baskets_`, or the sets of `nested_baskets` instead
    _has_logged = False
    _combination: Combination
    _kernel_model: KernelModel | None = None
    _substitutes: dict[int, list[Substitute]] | None = None  # found when first asked for
    _history: HistoryExpert | None = None
    _n_jobs: int | None = None

    def __init__(
        self,
        kernel: KernelModel | None = None,
        experts: Sequence[Any] = DEFAULT_EXPERTS,
        *,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 1,
    ) -> None:
        self.kernel = kernel
        self.experts = experts
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
        """Fit the kernel, the experts and their weights.

        Parameters
        ----------
        baskets : Baskets, or a list of lists of items
            Where the offer is known that a basket was chosen from, the weights are fitted to prefer
            its items to those that were refused, for ranking what is shown. Next items among a
            whole catalog are then ranked worse; pass baskets without `offered` for it.
        sample_weight : array of float, optional
            Labels of baskets, for the kernel; the experts learn from those with labels above zero.
        negatives : optional
            Negative sets, for the kernel.
        validation : Baskets, list of lists, float or None
            Held-out baskets, or a share of them, for early stopping and the weights of the experts;
            None for a tenth.
        callbacks : sequence of Callback
        checkpoint : path or Checkpointing, optional
            The checkpoint of the kernel's `fit`, which takes nearly all of the time.
        item_features : data frame, Arrow table, array, sparse array or mapping, optional
            Features of items, as for `NonsymmetricDPP.fit`: for `add_items`, and for items that
            seldom sell, if that improves the likelihood of held-out baskets.
        engine : {None, "ray"} or RayEngine
            "ray" trains on a Ray cluster, from Parquet files, as in `NonsymmetricDPP.fit`. Workers
            learn the kernel. This machine learns the rest, with memory for all baskets.
        """
        del y
        select_experts(self.experts)  # refuses wrong names before any work
        given = FitData(baskets, sample_weight, negatives, validation)
        if engine is not None:
            fit_on(engine, self, given, callbacks, item_features, checkpoint)
            return self

        data = hold_out(self, given)
        features = None
        if item_features is not None:
            features = ItemFeatures.learn(item_features, data.train.items)
        kernel_model = new_kernel_model(self)
        part = BasketStatistics(data.part)
        everything = BasketStatistics(data.everything)
        compile_ahead(FIT, n_jobs=self.n_jobs)
        try:
            kernel_model.fit(
                data.train,
                None,
                data.labels,
                data.negatives,
                data.held_out,
                callbacks,
                checkpoint=checkpoint,
            )
            fit_combination(self, kernel_model, data.held_out, part, everything, features)
        except (KeyboardInterrupt, ConvergenceError):
            if getattr(kernel_model, "history_", None):
                # The kernel is the best so far; the rest takes seconds.
                fit_combination(self, kernel_model, data.held_out, part, everything, features)
            raise
        return self

    def partial_fit(
        self,
        baskets: Any = (),
        y: Any = None,
        sample_weight: Any = None,
        negatives: Any = None,
        callbacks: Sequence[Callback] = (),
        **kernel_options: Any,
    ) -> Self:
        """Update the model with new baskets: the weights first, then the kernel and the experts.

        The present weights are a prior that counts as much as the baskets they come from.

        Parameters
        ----------
        baskets, sample_weight, negatives, callbacks, **kernel_options
            As in the `partial_fit` of the kernel model.
        """
        del y
        before = self._training_baskets()
        new = without_excess(as_baskets(baskets))
        n_items = len(self.known_items.merge(new.items))
        selected = select_fitted_experts(self.experts, self.experts_, n_items)
        kernel_model = deepcopy(self.kernel_)
        kernel_model.n_jobs = self.n_jobs
        kernel_model.partial_fit(new, None, sample_weight, negatives, callbacks, **kernel_options)

        known = new.recode(self._expert_items, unknown="ignore")
        n_jobs = resolve_n_jobs(self.n_jobs)
        weights, _, _ = fit_weights(self._combination, known, self._seed(), n_jobs)
        cold_start = None if self.cold_start_ is None else self.cold_start_.weights

        labels = checked_weights(sample_weight, new.n_baskets, "sample_weight")
        added = new.subset(np.flatnonzero(labels > 0))
        everything = Baskets.concat([before, added]).recode(kernel_model.items_)
        statistics = BasketStatistics(everything)
        experts = fit_experts(selected, statistics, self.n_jobs)
        found = HeldOutWeights(weights, cold_start, self._history)
        n_updates = self.n_updates_ + 1
        self._set_fitted(kernel_model, experts, statistics, found, self._similarity, n_updates)
        return self

    def add_items(
        self,
        ids: Iterable[Any],
        features: Any,
        *,
        names: Labels | None = None,
        categories: Labels | None = None,
    ) -> Self:
        """Add items without sales, scored by their features; see `NonsymmetricDPP.add_items`.

        They compete with all others at once: by the popularity that their features predict, by the
        probability of their nearest neighbors, and by the similarity of their features to those of
        the basket. In a basket, experts see the nearest known item instead.
        """
        counts = self.item_counts_
        n_jobs = resolve_n_jobs(self.n_jobs)
        expert_items = self._expert_items
        feature_model = self.kernel_.feature_model_
        added = check_new_ids(ids, names, categories)
        new = new_items(feature_model, self.items_, counts, added, features, n_jobs=n_jobs)
        similarity = self._enlarged_similarity(new)
        self.kernel_._append_items(new, counts)
        self.items_ = new.items
        self._baskets = Baskets(self._baskets.indptr, self._baskets.indices, new.items)
        if hasattr(self, "baskets_"):
            self.baskets_ = self._baskets
        weights = self._combination.weights
        self._combination = self._combine(
            self.kernel_, self.experts_, expert_items, counts, weights
        )
        if self.cold_start_ is not None:
            self.cold_start_ = self.cold_start_.add(new)
        self._set_similarity(similarity)
        return self

    def _combine(
        self,
        kernel_model: KernelModel,
        experts: dict[str, Any],
        items: Vocabulary,
        counts: NDArray[np.number],
        weights: Weights | None = None,
    ) -> Combination:
        """Return the combination of fitted experts, which know these items, and the kernel."""
        distribution = kernel_model.dpp
        by_cluster = "mixture" in self.experts
        return Combination.of(distribution, experts, items, counts, weights, by_cluster=by_cluster)

    def _set_fitted(
        self,
        kernel_model: KernelModel,
        experts: dict[str, Any],
        statistics: BasketStatistics,
        weights: HeldOutWeights,
        similarity: Similarity | None,
        n_updates: int = 0,
    ) -> None:
        """Set all fitted attributes, given experts that have learned from all baskets."""
        baskets = statistics.train
        counts = statistics.counts
        self._kernel_model = kernel_model
        self.items_ = kernel_model.items_
        self.experts_ = experts
        self.baskets_ = Baskets.trusted(*baskets.sets, baskets.items)  # without their customers
        self._baskets = self.baskets_
        self.n_baskets_ = float(baskets.n_baskets)
        self.n_updates_ = n_updates
        self._combination = self._combine(
            kernel_model, experts, self.items_, counts, weights.experts
        )
        self.cold_start_ = None
        features = kernel_model.feature_model_
        if weights.cold_start is not None and features is not None:
            n_jobs = resolve_n_jobs(self.n_jobs)
            self.cold_start_ = ColdStart(features, counts, weights.cold_start, n_jobs=n_jobs)
        history = weights.history
        self._history = None if history is None else history.attach(experts, statistics)
        self._set_similarity(similarity)
        self._substitutes = None

    def _seed(self) -> int:
        """Return the seed; without a random state it is fixed, and so are the held-out baskets."""
        return 0 if self.random_state is None else root_seed(deepcopy(self.random_state))

    @property
    def _expert_items(self) -> Vocabulary:
        """The items that the experts know: all but those of `add_items`."""
        items = self.known_items
        n_known = len(self._combination.counts)
        return items if n_known == len(items) else items.subset(range(n_known))

    # -- The kernel model, and questions about sets ------------------------------------------------

    @property
    def kernel_(self) -> KernelModel:
        """The fitted kernel model, which answers questions about sets."""
        if self._kernel_model is None:
            raise NotFittedError("this ConditionalDPP has no parameters yet: call fit first")
        return self._kernel_model

    @property
    def dpp(self) -> Kernel | Mixture:
        return self.kernel_.dpp

    @property
    def n_jobs(self) -> int | None:
        return self._n_jobs

    @n_jobs.setter
    def n_jobs(self, value: int | None) -> None:
        self._n_jobs = value
        if self._kernel_model is not None:
            self._kernel_model.n_jobs = value

    def condition(self, given: Iterable[Any], *, unknown: str = "error") -> DPPRecommender:
        return self.kernel_.condition(given, unknown=unknown)

    def complements(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """Return the N items that `item` attracts most; see `NonsymmetricDPP.complements`."""
        if isinstance(self.kernel_, LowRankDPP):
            raise ParameterError(
                "complements needs a kernel with attraction: kernel=NonsymmetricDPP()"
            )
        return complements(self.kernel_, item, N)

    def substitutes(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """Return up to N items that replace `item`, those that meet it least first.

        A substitute is of a kind with the item: it has a similar name, the same category, or the
        same company in the training baskets. Both share a basket at most half as often as by
        chance, as a bound at the level of 95 % for all items.

        Returns
        -------
        items : array
            Often empty: few items have substitutes that are clear of chance.
        ratios : array
            The number of baskets with both, over that expected by chance.
        """
        check_count(N)
        code = self.known_items.code(item)
        if self._substitutes is None:
            items = self.items_
            self._substitutes = Company.of(self._training_baskets().sets, len(items)).substitutes(
                items
            )
        found = self._substitutes.get(code, [])[: int(N)]
        codes = np.array([one.code for one in found], dtype=np.int64)
        return as_ids(codes, self.items_), np.array([one.ratio for one in found])

    # -- Attributes --------------------------------------------------------------------------------

    @property
    def weights_(self) -> dict[str, tuple[float, float]]:
        """The weights θ₀ and θ₁ of every feature."""
        _ = self.kernel_  # raises NotFittedError before fit
        names = self._combination.names
        theta = self._combination.weights.theta[:2, : len(names)]
        numbered = [
            f"{name}:{names[:k].count(name)}" if names.count(name) > 1 else name
            for k, name in enumerate(names)
        ]
        return {name: (float(a), float(b)) for name, a, b in zip(numbered, *theta, strict=True)}

    @property
    def explained_(self) -> dict[str, float] | None:
        """The quality of cold-start scores; None without features.

        "popularity" is the explained share of the variance of log popularity, "rank" the MPR of
        held-out items that are scored as if they had no sales, and "decay" is that of
        `models/cold_start.py`.
        """
        explained = self.kernel_.explained_ or {}
        if self.cold_start_ is None:
            return None
        weights = self.cold_start_.weights
        return {**explained, "rank": weights.rank, "decay": weights.decay}

    @property
    def history_(self) -> list[dict[str, Any]]:
        """The training history of the kernel, an entry per round."""
        return self.kernel_.history_

    @property
    def n_iter_(self) -> int:
        """The number of training rounds of the kernel."""
        return self.kernel_.n_iter_

    @property
    def item_counts_(self) -> Array:
        """The number of training baskets with each item (M,)."""
        _ = self.kernel_  # raises NotFittedError before fit
        return self._baskets.item_counts.astype(np.float64)

    def _training_baskets(self) -> Baskets:
        _ = self.kernel_  # raises NotFittedError before fit
        if not hasattr(self, "baskets_"):
            raise NotFittedError(
                "the training baskets, which partial_fit and substitutes need, were left out of "
                "this model's file: fit it anew"
            )
        return self.baskets_

    # -- Next items --------------------------------------------------------------------------------

    @property
    def uses_history(self) -> bool:  # type: ignore[override]
        """True if the model was fitted to baskets whose customers are known."""
        return self._history is not None

    def _scores(self, sets: Sets) -> Array:
        return next_logits(self, sets)

    def _can_extend(self, sets: Sets) -> Flags:
        return np.ones(sets.count, dtype=bool)  # experts score where the kernel is singular

    def explain(
        self, basket: Iterable[Any], item: Any, *, history: Any = None, unknown: str = "error"
    ) -> Explanation:
        """Explain the probability of a next item by experts and by items of the basket.

        The parts add up to log P(next = item). An expert whose score is a sum over the basket's
        items is divided in proportion to its terms. The kernel, and models of the user's, are
        divided by adding the items one after the other, averaged over this order and its reverse.
        Where the clusters of a `MixtureDPP` add a tenth of a nat, `like` has the items of highest
        lift of the cluster that basket and item most probably belong to.
        """
        return self.explain_each(basket, [item], history=history, unknown=unknown)[0]

    def explain_each(
        self,
        basket: Iterable[Any],
        items: Iterable[Any],
        *,
        history: Any = None,
        unknown: str = "error",
    ) -> list[Explanation]:
        """Explain several next items of one basket; see `explain`."""
        items = list(items)
        known = self.known_items
        codes = as_codes(basket, known, unknown=unknown)
        queries = np.array([known.code(item) for item in items], dtype=np.int64)
        for item, is_inside in zip(items, np.isin(queries, codes).tolist(), strict=True):
            if is_inside:
                raise DataError(
                    f"{item!r} is in the basket: only items outside of it can come next"
                )
        sets = Sets.one(codes)
        logits = next_logits(self, sets)
        parts = divide(self._combination, self.cold_start_, codes, queries, len(self._expert_items))
        if not len(codes):
            parts.alone[:, parts.names.index(KERNEL)] = logits[0, queries]
        n_bought = np.zeros(len(known), dtype=np.int64)
        n_orders = 0
        sets = with_history(Queries(sets, single=True), history, self).sets
        if isinstance(sets, SetsWithHistory):
            after = next_logits(self, sets)
            parts = parts.with_expert(HISTORY, (after - logits)[0, queries])
            logits = after
            n_bought = np.bincount(sets.histories.baskets(0).indices, minlength=len(known))
            n_orders = int(sets.histories.lengths[0])
        logits[0, codes] = -np.inf
        normalizers = (parts.totals - logits[0, queries] + log_sums(logits)).tolist()
        counts = self.item_counts_
        n_popular = max(POPULAR * len(known), 3)
        ids = [known[code] for code in codes.tolist()]
        typical: dict[int, tuple[Any, ...]] = {-1: ()}
        clusters = [-1] * len(items)
        if isinstance(self.kernel_, MixtureDPP):
            clusters = clusters_that_matter(self.kernel_.dpp, parts, codes, queries)
            for c in set(clusters) - {-1}:
                typical[c] = tuple(self.kernel_.cluster_items(c, N_TYPICAL)[0].tolist())
        return [
            Explanation(
                item,
                ids,
                parts.names,
                parts.alone[k],
                parts.by_item[k],
                normalizers[k],
                popular=int((counts > counts[queries[k]]).sum()) < n_popular,
                n_bought=int(n_bought[queries[k]]),
                n_orders=n_orders,
                like=typical[clusters[k]],
            )
            for k, item in enumerate(items)
        ]

    # -- Parameters and files ----------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments; `kernel__x` is the argument x of the kernel model."""
        if self.kernel is None and any(name.startswith("kernel__") for name in params):
            self.kernel = MixtureDPP()
        return super().set_params(**params)

    def save(self, path: str | os.PathLike[str], *, baskets: bool = True) -> None:
        """Write the model to one safetensors file, atomically.

        Experts of your own cannot be saved: pickle the model instead, if they can be pickled.

        Parameters
        ----------
        path : str or path
        baskets : bool
            Whether the file holds the training baskets. Without them, it holds the number of
            baskets with each item. The model gives the same answers, without `partial_fit`,
            `substitutes` and `baskets_`. ItemKNN, BasketKNN, EASE and the history of customers
            learn from the baskets whenever a file is loaded. Leave them out of `experts` first.
        """
        _ = self.kernel_  # raises NotFittedError before fit
        if not baskets:
            needed = [name for name, one in self.experts_.items() if needs_baskets(one)]
            needed += [] if self._history is None else [HISTORY]
            if needed:
                raise ParameterError(
                    f"the experts {', '.join(needed)} need the training baskets: fit without "
                    "these experts, or save with baskets=True"
                )
        elif not self._has_logged:
            self._has_logged = True
            message = "%s holds the training baskets; save(path, baskets=False) leaves them out"
            log.info(message, path)
        files.write_model(path, *self._contents(baskets))

    def _contents(self, baskets: bool = True) -> tuple[files.Tensors, dict[str, Any]]:
        tensors, kernel_info = self.kernel_._contents()
        select_experts(self.experts)  # raises an error if they were changed
        experts, descriptions = expert_contents(self.experts_)
        similarity, settings = self._similarity_contents()
        tensors |= similarity | experts | self._combination.weights.contents()
        stored = self._baskets if baskets else nested_baskets(self._baskets)
        tensors["baskets.indptr"] = stored.indptr
        tensors["baskets.indices"] = stored.indices
        info = {
            "model": type(self).__name__,
            "params": files.plain_params(self.get_params(deep=False)),
            "kernel": kernel_info,
            "experts": descriptions,
            "expert_names": [expert for expert in self.experts if isinstance(expert, str)],
            "n_updates": int(self.n_updates_),
            "has_baskets": baskets and hasattr(self, "baskets_"),
        }
        if self._history is not None:
            tensors |= self._history.contents()
        if self.cold_start_ is not None:
            arrays, info["cold_start"] = self.cold_start_.contents()
            tensors |= arrays
        return tensors, info | settings

    @classmethod
    def _restore(
        cls, tensors: files.Tensors, info: dict[str, Any], path: str | os.PathLike[str]
    ) -> Self:
        kernel_model = restore_model(tensors, info["kernel"], path)
        if not isinstance(kernel_model, KernelModel):
            raise ParameterError(f"its kernel is a {type(kernel_model).__name__}")
        items = kernel_model.items_
        cold_start = info.get("cold_start")
        n_known = len(items) if cold_start is None else int(cold_start["n_known"])
        if not 0 < n_known <= len(items):
            raise ParameterError(f"its experts know {n_known} items of {len(items)}")
        known = items.subset(range(n_known))
        baskets = Baskets(tensors["baskets.indptr"], tensors["baskets.indices"], known)
        experts = restore_experts(tensors, info["experts"], baskets)
        parameter = restore_parameter(experts, info["expert_names"])
        select_experts(parameter)  # raises an error for unknown names
        params = {"random_state": info["params"].get("random_state")}
        model = cls(
            type(kernel_model)(**kernel_model.get_params(deep=False)),
            parameter,
            **cls._own_params(params),
        )
        everything = Baskets(baskets.indptr, baskets.indices, items)
        counts = everything.item_counts.astype(np.float64)
        combination = model._combine(kernel_model, experts, known, counts)
        combination.weights = Weights.restore(combination.last_features, tensors)
        weights = HeldOutWeights(combination.weights, None, None)
        n_updates = int(info["n_updates"])
        model._set_fitted(
            kernel_model, experts, BasketStatistics(everything), weights, None, n_updates
        )
        model._combination = combination
        history = HistoryExpert.restore(tensors, n_known)
        if history is not None:
            model._history = history.attach(experts, BasketStatistics(baskets))
        if not info["has_baskets"]:
            del model.baskets_
        model._has_logged = True  # who made the file was told
        if cold_start is not None:
            features = kernel_model.feature_model_
            if features is None:
                raise ParameterError("it knows of new items, but their features are missing")
            model.cold_start_ = ColdStart.restored(tensors, cold_start, features, counts)
        model._set_contents(tensors, info)
        return model


# -- Steps of `fit`, here and on a cluster ---------------------------------------------------------


def new_kernel_model(model: ConditionalDPP) -> KernelModel:
    """Return the unfitted kernel model, with the threads and, unless it has its own, the seed."""
    given = MixtureDPP() if model.kernel is None else model.kernel
    if not isinstance(given, KernelModel):
        raise ParameterError(
            f"kernel must be a MixtureDPP, a NonsymmetricDPP or a LowRankDPP, got {given!r}"
        )
    found: KernelModel = new_estimator(given, model)
    return found


class HeldOutSplit(NamedTuple):
    """The baskets of `fit`, some of them held out."""

    train: Baskets  # for the kernel
    labels: Array | None  # of these
    negatives: Any  # for the kernel
    held_out: Baskets  # for early stopping and the weights of the experts
    part: Baskets  # those of `train` with a label above zero, for the experts
    everything: Baskets  # these and the held-out ones


def hold_out(model: ConditionalDPP, given: FitData) -> HeldOutSplit:
    """Return checked baskets of one vocabulary, with a part of them held out."""
    train = without_excess(as_baskets(given.baskets))
    negatives = given.negatives
    if negatives is not None:  # the catalog includes items that were only ever refused
        weighted = negatives if isinstance(negatives, WeightedSets) else None
        refused = as_baskets(negatives if weighted is None else weighted.sets, "negatives")
        negatives = refused if weighted is None else replace(weighted, sets=refused)
        train = train.recode(train.items.merge(refused.items))
    validation = given.validation
    is_share = validation is None or np.isscalar(validation)
    if is_share:
        if train.customers is not None:
            train = in_order(train)
        choose = held_out_rows(model, validation)
        if not train.n_baskets or not train.n_items:
            raise DataError("ConditionalDPP needs at least one basket and one item to learn from")
        held = choose(train.n_baskets)
        held_out = train.subset(held)
        rows = other_rows(held, train.n_baskets)
    else:
        known = as_baskets(validation, "validation").recode(train.items, unknown="ignore")
        held_out = known.draw(MOST_LEARNED)
        rows = np.arange(train.n_baskets)
    labels = checked_weights(given.sample_weight, train.n_baskets, "sample_weight")
    liked = rows[labels[rows] > 0]
    if not len(liked):
        raise DataError(
            "ConditionalDPP needs a basket whose sample_weight is above zero: "
            "experts learn from no other"
        )
    everything = train.subset(np.flatnonzero(labels > 0))
    if not is_share:
        everything = Baskets.concat([everything, held_out]).recode(held_out.items)
    return HeldOutSplit(
        train.subset(rows),
        None if given.sample_weight is None else labels[rows],
        negatives,
        held_out,
        train.subset(liked),
        everything,
    )


def held_out_rows(model: ConditionalDPP, validation: Any) -> Callable[[int], Ints]:
    """Return a function of the number of baskets that chooses those that `fit` holds out.

    The function can be pickled and sent to workers.
    """
    share = HELD_OUT if validation is None else validation
    is_number = isinstance(share, (int, float, np.number)) and not isinstance(share, bool)
    if not is_number or not 0 < float(share) < 1:
        raise ParameterError(
            f"validation must be baskets, or a share between 0 and 1, got {validation!r}"
        )
    seed = root_seed(stream(model._seed(), HELD_OUT_BASKETS))
    return partial(_choose_rows, share=float(share), seed=seed)


def _choose_rows(n_baskets: int, *, share: float, seed: int) -> Ints:
    n_held = min(max(round(share * n_baskets), 1), max(n_baskets - 1, 1))
    return np.sort(stream(seed).permutation(n_baskets)[:n_held])


def other_rows(held_out: Ints, n_baskets: int) -> Ints:
    """Return the numbers of the baskets that are not held out; a single basket is both."""
    return np.setdiff1d(np.arange(n_baskets), held_out) if n_baskets > 1 else held_out


def fit_combination(
    model: ConditionalDPP,
    kernel_model: KernelModel,
    held_out: Baskets,
    part: BasketStatistics,
    everything: BasketStatistics,
    features: ItemFeatures | None = None,
) -> None:
    """Fit experts and weights beside a fitted kernel model, and set the attributes of the model.

    The experts learn from a part of the baskets first, and in the end from everything. `features`
    are those of the items of the baskets.
    """
    items = kernel_model.items_
    unfitted = select_experts(model.experts, everything.train.n_items)

    experts = fit_experts(unfitted, part, model.n_jobs)
    weights = fit_to_held_out(model, kernel_model, experts, held_out, part, features)

    experts = fit_experts(unfitted, everything, model.n_jobs)
    if features is not None:
        known = features.recode(part.train.items, items)
        kernel_model.feature_model_ = FeatureModel.learn(known, everything.counts)
    if weights.history is not None:
        again, customers = item_statistics(everything.train)
        history = replace(weights.history, again=again, customers=customers)
        weights = weights._replace(history=history)
    similarity = Similarity.of(everything.train.recode(items).sets, len(items))
    model._set_fitted(kernel_model, experts, everything, weights, similarity)


class HeldOutWeights(NamedTuple):
    """The weights that are fitted to held-out baskets."""

    experts: Weights
    cold_start: ColdStartWeights | None
    history: HistoryExpert | None


def fit_to_held_out(
    model: ConditionalDPP,
    kernel_model: KernelModel,
    experts: dict[str, Any],
    held_out: Baskets,
    part: BasketStatistics,
    features: ItemFeatures | None,
) -> HeldOutWeights:
    """Fit all weights to baskets that the experts, which learned from the part, have not seen."""
    seed = model._seed()
    n_jobs = resolve_n_jobs(model.n_jobs)
    combination = model._combine(kernel_model, experts, held_out.items, part.counts)
    queries = held_out.recode(kernel_model.items_)
    weights, sets, examples = fit_weights(combination, queries, seed, n_jobs)
    combination.weights = weights
    cold_start = None
    if features is not None:
        cold_start = fit_cold_start_weights(
            combination, sets, examples, features, part.counts, seed, n_jobs
        )
    history = None
    if HISTORY in model.experts:
        score = partial(_logits, kernel_model.dpp, combination, None)
        fit_theta = partial(fit_offset_weights, n_jobs=n_jobs)
        history = learn_from_customers(score, part, queries, experts, fit_theta, seed)
    return HeldOutWeights(weights, cold_start, history)


def nested_baskets(baskets: Baskets) -> Baskets:
    """Return as many sets with as many of each item, which say nothing else of the baskets.

    The first n_j of them hold item j.
    """
    counts = baskets.item_counts
    codes = np.repeat(np.arange(len(counts)), counts)
    rows = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    indptr = np.zeros(baskets.n_baskets + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=baskets.n_baskets), out=indptr[1:])
    return Baskets(indptr, codes[np.lexsort((codes, rows))], baskets.items)


# -- Scores ----------------------------------------------------------------------------------------


def next_logits(model: ConditionalDPP, sets: Sets, *, leave_one_out: bool = False) -> Array:
    """Return the logits of every item given every set, and its history if it has one (n_sets, M).

    With `leave_one_out`, given every set without each of its entries (nnz, M).
    """
    plain = Sets(*sets)
    logits = _logits(
        model.dpp, model._combination, model.cold_start_, plain, leave_one_out=leave_one_out
    )
    if isinstance(sets, SetsWithHistory) and model._history is not None:
        histories = sets.histories
        if leave_one_out:
            histories = histories.take(sets.owners)
            plain = without_each(plain)
        model._history.add_to(logits, plain, histories)
    return logits


def _logits(
    distribution: Kernel | Mixture,
    combination: Combination,
    cold_start: ColdStart | None,
    sets: Sets,
    *,
    leave_one_out: bool = False,
) -> Array:
    """Return logits; given an empty set the distribution of sets alone decides.

    The weights are fitted to baskets with items.
    """
    logits = np.empty((len(sets.indices) if leave_one_out else sets.count, distribution.n_items))
    if cold_start is None:
        combination.write_logits(sets, logits, leave_one_out=leave_one_out)
    else:
        cold_start.write_logits(combination, sets, logits, leave_one_out=leave_one_out)
    is_empty = np.repeat(sets.sizes, sets.sizes) == 1 if leave_one_out else sets.sizes == 0
    if is_empty.any():
        with np.errstate(divide="ignore"):
            logits[is_empty] = np.log(distribution.squared_norms)
    return logits
