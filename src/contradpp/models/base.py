"""The methods that DPPs share: next items, slates, sets, and model files.

`DPPRecommender` is the base of all models. `BaseDPP` is the base of those that are one kernel.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._random import RandomState, root_seed
from contradpp._threads import resolve_n_jobs
from contradpp._types import Array, Codes, Flags, Ints
from contradpp.data.baskets import Baskets, as_baskets, refuse_order_lines
from contradpp.data.sets import Sets, take_sets
from contradpp.data.vocabulary import as_vocabulary
from contradpp.dpp import files
from contradpp.dpp.greedy import greedy_completion
from contradpp.dpp.kernel import Kernel, Skew
from contradpp.dpp.mixture import Mixture
from contradpp.dpp.scoring import best_next, next_probabilities, top_n
from contradpp.errors import DataError, ModelFileError, NotFittedError, ParameterError, RankError
from contradpp.experts.base import ONE_SIDED, Recommender, damped_lifts, damping_of
from contradpp.experts.queries import (
    Queries,
    allowed_codes,
    as_codes,
    as_ids,
    as_queries,
    check_count,
    with_history,
)
from contradpp.models.cold_start import NewItems
from contradpp.slates.greedy import DEFAULT_DIVERSITY, Vectors, next_slates
from contradpp.slates.rules import limits_of_items
from contradpp.slates.similarity import Similarity


class DPPRecommender(Recommender):
    """A recommender with a DPP over sets of its items.

    Subclasses define `dpp`, the scores of next items, and the contents of files.
    """

    _similarity: Similarity | None = None  # learned by `learn_slates`
    _vectors: Vectors | None = None  # cache of `similarity_`

    @property
    @abstractmethod
    def dpp(self) -> Kernel | Mixture:
        """The distribution of sets, which answers questions about sets of codes."""

    @abstractmethod
    def _can_extend(self, sets: Sets) -> Flags:
        """Return flags of the sets to which the model can add an item."""

    @property
    @abstractmethod
    def n_jobs(self) -> int | None:
        """The number of threads; None for all cores."""

    @n_jobs.setter
    @abstractmethod
    def n_jobs(self, value: int | None) -> None: ...

    def _complete(self, given: Sets, size: int, allowed: Flags) -> Codes:
        """Add allowed items to one set, greedily, up to `size`."""
        pool = np.flatnonzero(allowed)
        banned = np.empty(0, dtype=np.int32)
        codes = given.indices
        while len(codes) < size:
            grown = given.carry(Sets.one(codes), np.zeros(1, dtype=np.int64))
            best = self._best(grown, 1, pool, banned)[0]
            if not best.size:
                raise RankError(
                    f"no other item may join these {len(codes)}, so there is no set of {size}"
                )
            codes = np.append(codes, best[0, :1].astype(np.int32))
        return codes

    # -- Questions about sets ----------------------------------------------------------------------

    def score_samples(self, baskets: Any, *, unknown: str = "error") -> Array:
        """Return log P(A) of every basket; −inf for an impossible set, as any beyond the rank."""
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        logs = self.dpp.log_probability(queries.sets)
        return logs[0] if queries.single else logs

    def score_choices(self, chosen: Any, offered: Any = None, *, unknown: str = "error") -> Array:
        """Return the log-probability of each choice among what was offered.

            log P(Y = chosen | Y ⊆ offered) = log det L_chosen − log det(I + L_offered)

        It depends on the scale of the kernel, which `objective="choice"` learns and
        `calibrate="choices"` sets.

        Parameters
        ----------
        chosen : a basket, or many
        offered : as many sets, optional
            The set that each was chosen from; left out if `chosen` are `Baskets` that know it.
        """
        single = False
        if offered is not None:
            single = as_queries(chosen, self.known_items, unknown=unknown).single
            chosen = Baskets.from_lists(
                [chosen] if single else chosen, offered=[offered] if single else offered
            )
        elif not isinstance(chosen, Baskets) or chosen.offered is None:
            raise DataError(
                "score_choices needs to know what was offered: "
                "pass it, or Baskets with `offered` sets"
            )
        coded = chosen.recode(self.known_items, unknown=unknown)
        logs = self.dpp.log_choice(coded.sets, coded.offered or coded.sets)
        if coded.offered:
            logs[coded.offered.sizes == 0] = np.nan  # the offer is unknown
        return logs[0] if single else logs

    def score(self, baskets: Any, y: Any = None, *, unknown: str = "ignore") -> float:  # noqa: ARG002
        """Return the mean of log P(A) over the baskets, which `GridSearchCV` maximizes by default.

        It says how plausible whole sets are, and nothing of experts: to choose by next items, pass
        `scoring=contradpp.scorer("ndcg")`. Unlike other methods it ignores unknown items by
        default: scikit-learn scores a model on folds with items that the other folds lack. A table
        with a row per basket and item is refused, because folds of it cut baskets apart.
        """
        refuse_order_lines(baskets)
        logs = self.score_samples(baskets, unknown=unknown)
        if not np.size(logs):
            raise DataError("score needs at least one basket")
        return float(np.mean(logs))

    def size_distribution(self) -> Array:
        """Return P(|Y| = k) for k = 0, 1, ...; with a skew part, for at most 4,000 skewed items."""
        return np.asarray(np.exp(self.dpp.log_size_distribution))

    def marginals(self, given: Iterable[Any] = (), *, unknown: str = "error") -> Array:
        """Return P(i ∈ Y | given ⊆ Y) for every item i, in the order of `items_`."""
        return self.dpp.marginals(as_codes(given, self.known_items, unknown=unknown))

    @abstractmethod
    def condition(self, given: Iterable[Any], *, unknown: str = "error") -> DPPRecommender:
        """Return the DPP over the remaining items, given that these are in the set."""

    def sample(
        self,
        n_samples: int = 1,
        size: int | None = None,
        given: Iterable[Any] = (),
        random_state: RandomState = None,
        *,
        method: str = "exact",
        n_steps: int | None = None,
        unknown: str = "error",
    ) -> Baskets:
        """Draw sets, as `Baskets` over the model's vocabulary.

        Parameters
        ----------
        n_samples : int
        size : int, optional
            Only sets of this size (the k-DPP), the given items included.
        given : iterable of items
            Items that every set contains; they come first in it.
        method : {"exact", "chain"}
            "exact" draws from the distribution itself. It takes a dense matrix over the items with
            an entry in the skew part, at most 4,000 of them, and prepares it once for the same
            `given` and `size`. "chain" runs a Markov chain for every sample, in catalogs of any
            size; its distribution tends to that of the model. In a mixture, `given` and `size`
            choose the clusters to first order. An exact draw of one size takes the sizes of every
            cluster first: minutes for 30 clusters over 3,000 connected items.
        n_steps : int, optional
            The steps of a chain; the default is 1,000 and 200 for every expected item.
        """
        fixed = as_codes(given, self.known_items, unknown=unknown)
        check_count(n_samples, "n_samples", least=0)
        if size is not None:
            why = " (it counts the given items)" if len(fixed) else ""
            check_count(size, "size", least=len(fixed), why=why)
        if method not in ("exact", "chain"):
            raise ParameterError(f"method must be 'exact' or 'chain', got {method!r}")
        if method == "chain" and n_steps is not None:
            check_count(n_steps, "n_steps")
        if method == "exact" and len(fixed):
            self._check_remaining(fixed)
        drawn = self.dpp.sample(
            int(n_samples),
            seed=root_seed(random_state),
            size=size,
            given=fixed,
            chain=method == "chain",
            n_steps=n_steps,
        )
        return Baskets.trusted(*drawn, self.items_)

    def _check_remaining(self, given: Codes) -> None:
        if len(given) == self.dpp.n_items:
            raise ParameterError(
                "the given items are the whole catalogue: no items are left to condition"
            )

    def item_probabilities(self) -> Array:
        """Return the share of every item in all sales; by L_ii alone for a model without data."""
        counts = getattr(self, "item_counts_", None)
        if counts is None or not counts.sum() > 0:
            norms = self.dpp.squared_norms
            counts = norms / (1.0 + norms)
        probabilities: Array = counts / max(counts.sum(), 1e-300)
        return probabilities

    def similar_items(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """Return the N items most similar to `item`, and |cos| of the angle of their factors.

        A similarity of 1 means that the two are never drawn together: without a skew part,
        det L_{ij} = L_ii L_jj (1 − cos²).
        The order is that of a lower bound, exp(−1.64/√(n + 1)) |cos| for an item in n training
        baskets: the factors of items that seldom sell are mostly chance.
        """
        check_count(N)
        code = self.known_items.code(item)
        counts = getattr(self, "item_counts_", None)
        similarity = self.dpp.kernel.similarity(code)
        rates = 1.0 if counts is None else np.exp(-ONE_SIDED / np.sqrt(counts + 1.0))
        bound = similarity * rates
        bound[code] = -np.inf
        best = top_n(bound[None], min(int(N), len(bound) - 1))[0]
        return as_ids(best, self.items_), similarity[best]

    # -- Slates ------------------------------------------------------------------------------------

    def slate(
        self,
        basket: Any,
        N: int = 10,
        *,
        history: Any = None,
        new_only: bool = False,
        diversity: float | None = None,
        rank_by: str | float = "probability",
        categories: Mapping[Any, Any] | None = None,
        at_most: int | Mapping[Any, int] | None = None,
        candidates: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        unknown: str = "error",
    ) -> tuple[NDArray[Any], Array]:
        """Choose a list of N next items without more of the same, in order of choice.

        It answers "What shall I show beside this basket?": it gives up a little of the probability
        of what `recommend` suggests for items that are unlike each other. The result is the greedy
        most likely slate of the DPP with the kernel

            diag(q) Φ diag(q),  q_i² = P(next = i | A)^τ

        with 10⁻³ added to the diagonal of Φ. τ is the smallest (of fifteen values) with which the
        slate keeps a share of the probability of the N most probable items. The share is 97.8 % for
        a diversity of ½. Φ is learned by `learn_slates`, or else holds the correlations of the
        symmetric part of L. Items only repel each other in it: attraction is part of P.
        `contradpp.rerank` has more rules, and takes candidates of any model.

        Parameters
        ----------
        basket : a basket, or many
        N : int
            The number of items; fewer if the catalog or `at_most` allows fewer.
        history, new_only
            As in `recommend`.
        diversity : float, optional
            From 0, the most probable items as in `recommend`, to 1, variety only among the hundred
            most probable. A diversity d gives up at most 0.022 (d/(1 − d))^1.5 of the probability.
            The default is ½.
        rank_by : {"probability", "lift"} or float
            The relevance of items, as in `recommend`.
        categories : mapping of item to category, optional
            The default is the categories of the vocabulary.
        at_most : int or mapping of category to int, optional
            The most items of each category, or of those in the mapping. An item without a category
            is not limited.
        candidates, exclude : iterables of items, optional
            Choose only from these; never choose those.

        Returns
        -------
        items, probabilities : arrays
            In the shapes of `recommend`.
        """
        check_count(N)
        damping = damping_of(rank_by)
        queries = as_queries(basket, self.known_items, unknown=unknown)
        queries = with_history(queries, history, self, new_only=new_only)
        codes, probabilities = next_slates(
            self.similarity_,
            queries.sets,
            self._next_probabilities(queries.sets),
            int(N),
            DEFAULT_DIVERSITY if diversity is None else diversity,
            allowed_codes(self.known_items, candidates, exclude, unknown=unknown),
            limits_of_items(self.known_items, N, categories, at_most),
            relevance=partial(damped_lifts, self, damping=damping) if damping else None,
            n_jobs=self.dpp.n_jobs,
        )
        items = as_ids(codes, self.items_)
        return (items[0], probabilities[0]) if queries.single else (items, probabilities)

    def learn_slates(self, baskets: Any) -> Self:
        """Learn from training baskets which items are alike in slates.

        Alike are interchangeable items (they share partners but avoid each other), similar names
        and equal categories. A `ConditionalDPP` learns it in `fit`.
        """
        items = self.known_items
        train = as_baskets(baskets).recode(items, unknown="ignore")
        self._set_similarity(Similarity.of(train.sets, len(items)))
        return self

    @property
    def similarity_(self) -> Vectors:
        """The similarity of items in a slate: vectors whose products are the correlations Φ."""
        if self._similarity is None:
            return Vectors.of_kernel(self.dpp.kernel)
        if self._vectors is None:
            self._vectors = self._similarity.vectors(self.items_)
        return self._vectors

    def _enlarged_similarity(self, new: NewItems) -> Similarity | None:
        """Return the similarity with new items, which are like their neighbors."""
        if self._similarity is None:
            return None
        return self._similarity.enlarged(len(new.items), new.neighbors.matrix(len(self.items_)))

    def _set_similarity(self, similarity: Similarity | None) -> None:
        self._similarity = similarity
        self._vectors = None

    # -- Filling a basket -------------------------------------------------------------------------

    def complete(
        self,
        basket: Iterable[Any],
        size: int,
        *,
        history: Any = None,
        new_only: bool = False,
        candidates: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        unknown: str = "error",
    ) -> list[Hashable]:
        """Fill the basket up to `size` items that go together.

        It answers "What does the full basket look like?": each time the most probable next item is
        added, and the next one goes with it, too. For a single kernel this is the greedy search for
        the most probable set of that size.

        Parameters
        ----------
        basket : iterable of items
        size : int
            The size with the basket.
        history, new_only
            As in `recommend`.
        candidates, exclude : iterables of items, optional
            Add only these; never add those.

        Returns
        -------
        list of items
            The basket, then the additions in their order.
        """
        given = as_codes(basket, self.known_items, unknown=unknown)
        why = " (it counts the basket)" if len(given) else ""
        check_count(size, "size", least=len(given), why=why)
        if size > self.dpp.n_items:
            raise ParameterError(
                f"size={size} is more than the {self.dpp.n_items} items of the catalog",
                parameters=("size",),
            )
        allowed = allowed_codes(self.known_items, candidates, exclude, unknown=unknown)
        queries = Queries(Sets.one(given), single=True)
        queries = with_history(queries, history, self, new_only=new_only)
        completed = self._complete(queries.sets, int(size), allowed)
        return [self.items_[code] for code in completed.tolist()]

    # -- Files -------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one safetensors file, atomically. Read it with `contradpp.load`."""
        files.write_model(path, *self._contents())

    @abstractmethod
    def _contents(self) -> tuple[files.Tensors, dict[str, Any]]:
        """Return the tensors of a model file, and a description that JSON can hold."""

    def _similarity_contents(self) -> tuple[files.Tensors, dict[str, Any]]:
        return ({}, {}) if self._similarity is None else self._similarity.contents()

    def _set_contents(self, tensors: files.Tensors, info: Mapping[str, Any]) -> None:
        """Set what a file holds besides the kernel, the items and the parameters."""
        if info.get("slates") is not None:
            found = Similarity.restored(tensors, len(self.items_))
            self._set_similarity(found)

    @classmethod
    @abstractmethod
    def _restore(
        cls, tensors: files.Tensors, info: dict[str, Any], path: str | os.PathLike[str]
    ) -> Self:
        """Return the model with these contents."""

    @classmethod
    def _own_params(cls, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a file that the constructor takes, without n_jobs."""
        names = cls().get_params(deep=False).keys() - {"n_jobs"}
        return {name: value for name, value in params.items() if name in names}


def can_extend(model: DPPRecommender, sets: Sets) -> Flags:
    """Return flags of the sets to which the model can add an item."""
    return model._can_extend(sets)


class BaseDPP(DPPRecommender):
    """A DPP over a vocabulary of items: one kernel, however it is learned."""

    n_components: int
    _kernel: Kernel | None = None
    _n_jobs: int | None = None

    @classmethod
    def from_factors(cls, V: ArrayLike, items: Iterable[Any] | None = None) -> Self:
        """Return a model with the kernel L = V Vᵀ.

        Parameters
        ----------
        V : array (M, K)
            A row per item; float64 or float32.
        items : iterable of hashable, optional
            The item ids, 0..M−1 if left out.
        """
        return cls._of_kernel(Kernel(V), items)

    @classmethod
    def from_kernel(cls, L: ArrayLike, items: Iterable[Any] | None = None) -> Self:
        """Return a model with the kernel L: P(A) = det L_A / det(I + L).

        Parameters
        ----------
        L : array (M, M)
            Positive semi-definite; for `NonsymmetricDPP`, its symmetric part is.
        items : iterable of hashable, optional
            The item ids, 0..M−1 if left out.

        Examples
        --------
        >>> import contradpp as cd
        >>> model = cd.LowRankDPP.from_kernel([[2.0, 1.0], [1.0, 2.0]], items=["tea", "coffee"])
        >>> model.K.round(3).tolist(), model.kernel_.eigenvalues.round(3).tolist()
        ([[0.625, 0.125], [0.125, 0.625]], [3.0, 1.0])
        """
        return cls._of_kernel(Kernel.from_matrix(L), items)

    @classmethod
    def _of_kernel(cls, kernel: Kernel, items: Iterable[Any] | None) -> Self:
        """Return a model with this kernel, and the parameters that belong to its shape."""
        model = cls(n_components=kernel.n_components)  # type: ignore[call-arg]
        model._set_kernel(kernel, items)
        return model

    def _set_kernel(self, kernel: Kernel, items: Iterable[Any] | None) -> None:
        """Set the kernel, and forget what depends on an earlier one."""
        items = as_vocabulary(range(kernel.n_items) if items is None else items)
        if len(items) != kernel.n_items:
            raise ParameterError(
                f"the kernel has {kernel.n_items} rows, but there are {len(items)} items"
            )
        kernel.n_jobs = resolve_n_jobs(self.n_jobs)
        self.items_ = items
        self._kernel = kernel
        self._set_similarity(None)

    # -- The kernel --------------------------------------------------------------------------------

    @property
    def kernel_(self) -> Kernel:
        """The kernel L, which answers every question about sets of codes."""
        if self._kernel is None:
            name = type(self).__name__
            raise NotFittedError(
                f"this {name} has no parameters yet: call fit first, or from_factors"
            )
        return self._kernel

    @property
    def dpp(self) -> Kernel:
        return self.kernel_

    @property
    def L(self) -> Array:
        """The kernel as a matrix (M, M); for at most 4,000 items."""
        return self.kernel_.matrix()

    @property
    def K(self) -> Array:
        """The marginal kernel K = L (I + L)⁻¹, P(A ⊆ Y) = det K_A; for at most 4,000 items."""
        return self.kernel_.marginal_kernel()

    @property
    def item_factors_(self) -> NDArray[np.floating]:
        """The factors of the kernel, a row per item (M, K)."""
        return self.kernel_.factors

    @property
    def n_jobs(self) -> int | None:
        return self._n_jobs

    @n_jobs.setter
    def n_jobs(self, value: int | None) -> None:
        if self._kernel is not None:
            self._kernel.n_jobs = resolve_n_jobs(value)
        self._n_jobs = value

    # -- Given items -------------------------------------------------------------------------------

    def condition(self, given: Iterable[Any], *, unknown: str = "error") -> Self:
        codes = as_codes(given, self.known_items, unknown=unknown)
        self._check_remaining(codes)
        kernel, rest = self.kernel_.condition(codes)
        model = type(self)._of_kernel(kernel, self.items_.subset(rest.tolist()))
        model.n_jobs = self.n_jobs
        return model

    # -- Next items --------------------------------------------------------------------------------

    def _next_probabilities(self, sets: Sets) -> Iterator[tuple[int, int, Array]]:
        return next_probabilities(self.kernel_, sets)

    def _best(self, sets: Sets, n: int, pool: Ints | None, banned: Codes) -> tuple[Ints, Array]:
        return best_next(self.kernel_, sets, n, candidates=pool, banned=banned)

    def _complete(self, given: Sets, size: int, allowed: Flags) -> Codes:
        return greedy_completion(self.kernel_, given.indices, size, allowed=allowed)

    def _can_extend(self, sets: Sets) -> Flags:
        found: Flags = sets.sizes < self.kernel_.rank
        some = np.flatnonzero(found)
        found[some] = np.isfinite(self.kernel_.log_det(take_sets(sets, some)))
        return found

    # -- Files -------------------------------------------------------------------------------------

    def _contents(self) -> tuple[files.Tensors, dict[str, Any]]:
        kernel = self.kernel_
        tensors = {"item_factors": kernel.factors, **files.encode_items(self.known_items)}
        if kernel.has_diagonal:
            tensors["diagonal"] = kernel.diagonal
        if not kernel.has_identity_inner:
            tensors["inner"] = kernel.inner
        if kernel.skew.n_entries:
            tensors |= {f"skew.{name}": array for name, array in kernel.skew._asdict().items()}
        info = {
            "model": type(self).__name__,
            "params": files.plain_params(self.get_params(deep=False)),
        }
        arrays, settings = self._similarity_contents()
        return tensors | arrays, info | settings

    @classmethod
    def _restore(
        cls, tensors: files.Tensors, info: dict[str, Any], path: str | os.PathLike[str]
    ) -> Self:
        model = cls(**cls._own_params(info["params"]))
        model._set_kernel(_restore_kernel(tensors), files.decode_items(tensors, path))
        model._set_contents(tensors, info)
        return model


# -- Files -----------------------------------------------------------------------------------------

_MODULES = {  # of the models that a file may hold
    "LowRankDPP": "contradpp.models.lowrank",
    "NonsymmetricDPP": "contradpp.models.nonsymmetric",
    "MixtureDPP": "contradpp.models.mixture",
    "ConditionalDPP": "contradpp.models.conditional",
    "DPP": "contradpp.models.dpp",
}
_DAMAGED = (KeyError, TypeError, AttributeError, ValueError, OverflowError)  # by a damaged file


def load(path: str | os.PathLike[str]) -> DPPRecommender:
    """Read a model that was written with `save`.

    Nothing from the file is executed or imported. A damaged, truncated or foreign file raises
    `ModelFileError`.
    """
    return restore_model(*files.read_model(path), path)


def restore_model(
    tensors: files.Tensors, info: dict[str, Any], path: str | os.PathLike[str]
) -> DPPRecommender:
    """Return the model with the contents of a file, of any class."""
    name = info.get("model")
    if not isinstance(name, str) or name not in _MODULES:
        raise ModelFileError(
            f"{os.fspath(path)} holds a {name!r}, which this contradpp does not know"
        )
    model: type[DPPRecommender] = getattr(import_module(_MODULES[name]), name)
    try:
        return model._restore(tensors, info, path)
    except _DAMAGED as error:
        raise ModelFileError(f"the model file {os.fspath(path)} cannot be used: {error}") from error


def _restore_kernel(tensors: files.Tensors) -> Kernel:
    factors = tensors["item_factors"]
    diagonal = tensors.get("diagonal")
    skew = None
    if diagonal is not None and diagonal.dtype != np.float64:
        raise ParameterError("its diagonal is not of float64")
    if "skew.indices" in tensors:
        indptr, indices, values = (tensors[f"skew.{name}"] for name in Skew._fields)
        skew = Skew.from_arrays(indptr, indices, values, len(factors))
    return Kernel(factors, tensors.get("inner"), skew, diagonal)
