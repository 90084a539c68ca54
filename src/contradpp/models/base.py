"""The methods of every DPP, however its kernel was learned, and model files."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._random import RandomState, root_seed
from contradpp._threads import resolve_n_jobs
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.halves import Halves, hide
from contradpp.data.sets import Sets, take_sets
from contradpp.data.vocabulary import Vocabulary, as_vocabulary
from contradpp.dpp import greedy, normalizer, persist
from contradpp.dpp.greedy import greedy_completion, next_slates
from contradpp.dpp.kernel import Array, Kernel, Skew
from contradpp.dpp.sampling import Chain, Samplers, refuse_too_many
from contradpp.dpp.scoring import best_next, next_shares, top_n
from contradpp.errors import DataError, ModelFileError, NotFittedError, ParameterError, RankError
from contradpp.experts.base import Suggests, allowed_codes, as_codes, as_ids, as_queries, check_count
from contradpp.models.likeness import Likeness, learn_likeness

DIVERSITY = 0.3  # of a slate, unless it is asked for
ONE_SIDED = 1.64  # standard errors of a lower bound that holds nineteen times in twenty


class BaseDPP(Suggests):
    """A DPP over a vocabulary of items, ready for questions.

    Subclasses add how the kernel is learned. In every method a basket is an iterable of item ids, duplicates
    in it are ignored, and `unknown="ignore"` leaves out items that the model does not know instead of raising
    `UnknownItemError`. Methods that take baskets accept one (and answer without the batch axis) or many: a
    `Baskets`, or a list of lists.
    """

    n_components: int
    items_: Vocabulary
    _kernel: Kernel | None = None
    _n_jobs: int | None = None
    _samplers: Samplers | None = None  # made when first asked for
    _likeness: Likeness | None = None  # as `learn_slates` found it
    _vectors: greedy.Vectors | None = None  # those of it, made when first asked for
    _classes: ClassVar[dict[str, type[BaseDPP]]] = {}  # by the name that a file has

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        BaseDPP._classes[cls.__name__] = cls

    # -- The kernel --------------------------------------------------------------------------------

    @classmethod
    def from_factors(cls, V: ArrayLike, items: Iterable[Any] | None = None) -> Self:
        """A model with the kernel L = V Vᵀ.

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
        """A model with this kernel: P(A) = det L_A / det(I + L).

        Parameters
        ----------
        L : array (M, M)
            Positive semi-definite; of `NonsymmetricDPP` its symmetric part is.
        items : iterable of hashable, optional
            The item ids, 0..M−1 if left out.

        Examples
        --------
        >>> import contradpp as cd
        >>> model = cd.LowRankDPP.from_kernel([[2.0, 1.0], [1.0, 2.0]], items=["tea", "coffee"])
        >>> model.K.round(3).tolist(), model.eigenvalues.round(3).tolist()
        ([[0.625, 0.125], [0.125, 0.625]], [3.0, 1.0])
        """
        return cls._of_kernel(Kernel.of_matrix(L), items)

    @property
    def L(self) -> Array:
        """The kernel as a matrix (M, M); for at most 4,000 items."""
        return self.kernel_.matrix()

    @property
    def K(self) -> Array:
        """The marginal kernel K = L (I + L)⁻¹ (M, M), P(A ⊆ Y) = det K_A; for at most 4,000 items."""
        return normalizer.marginal_kernel(self.kernel_)

    @property
    def eigenvalues(self) -> NDArray[Any]:
        """The eigenvalues of L that are not zero, largest first; complex where L is not symmetric."""
        return normalizer.eigenvalues(self.kernel_)

    @classmethod
    def _of_kernel(cls, kernel: Kernel, items: Iterable[Any] | None) -> Self:
        """A model with this kernel, and the parameters that belong to its shape."""
        model = cls(n_components=kernel.n_components)  # type: ignore[call-arg]
        model._adopt(kernel, Vocabulary(range(kernel.n_items)) if items is None else as_vocabulary(items))
        return model

    def _adopt(self, kernel: Kernel, items: Vocabulary) -> None:
        """Take over a kernel, and forget what was derived from earlier ones."""
        if len(items) != kernel.n_items:
            raise ParameterError(f"factors have {kernel.n_items} rows, but there are {len(items)} items")
        kernel.n_jobs = resolve_n_jobs(self.n_jobs)
        self.items_ = items
        self._kernel = kernel
        self._samplers = None
        self._take_likeness(None)

    def _enlarge(self, kernel: Kernel, items: Vocabulary, mix: Any) -> None:
        """Take over a kernel with items behind those there are, which are sums of others by a matrix (new, known)."""
        likeness = None if self._likeness is None else self._likeness.enlarged(len(items), mix)
        self._adopt(kernel, items)
        self._take_likeness(likeness)

    @property
    def is_fitted(self) -> bool:
        """Whether there are parameters to ask."""
        return self._kernel is not None

    @property
    def kernel_(self) -> Kernel:
        """The kernel L, which answers every question about sets of codes."""
        if self._kernel is None:
            name = type(self).__name__
            raise NotFittedError(f"this {name} has no parameters yet: call fit first, or from_factors")
        return self._kernel

    @property
    def item_factors_(self) -> NDArray[np.floating]:
        """The factors of the kernel, a row per item (M, K)."""
        return self.kernel_.factors

    @property
    def log_normalizer_(self) -> float:
        """log det(I + L); an estimate, with a standard error, where more than 4,000 items have partners."""
        return self.kernel_.log_normalizer

    @property
    def log_normalizer_error_(self) -> float:
        """The standard error of `log_normalizer_`, and so of every log P; 0 where it is exact."""
        return self.kernel_.normalizer.error

    def refine_normalizer(self, error: float) -> float:
        """Estimate `log_normalizer_` again until its standard error is at most this; returns what it is then.

        The time grows with the inverse square of the error. Nothing happens where it is small enough already.
        """
        self.kernel_.refine_normalizer(error)
        return self.log_normalizer_error_

    @property
    def n_jobs(self) -> int | None:
        """Threads; None for all cores."""
        return self._n_jobs

    @n_jobs.setter
    def n_jobs(self, value: int | None) -> None:
        if self._kernel is not None:
            self._kernel.n_jobs = resolve_n_jobs(value)
        self._n_jobs = value

    @property
    def law_is_cheap_(self) -> bool:
        """Whether samples and the distribution of sizes are exact: they take a dense matrix over items with partners.

        Of more than 4,000 such items log P and marginals are estimates, and samples come by `method="chain"`.
        """
        return len(self.kernel_.skew.connected) <= normalizer.MOST_DENSE

    # -- Probabilities -----------------------------------------------------------------------------

    def log_det(self, baskets: Any, *, unknown: str = "error") -> Array:
        """log det L_A of every basket: log P(A) up to the normaliser, which it does not need."""
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        logs = self.kernel_.log_det(queries.sets)
        return logs[0] if queries.single else logs

    def score_samples(self, baskets: Any, *, unknown: str = "error") -> Array:
        """log P(A) of every basket; −inf for a set that the model holds impossible, as any beyond its rank."""
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        logs = self.kernel_.log_probability(queries.sets)
        return logs[0] if queries.single else logs

    def score_choices(self, chosen: Any, offered: Any = None, *, unknown: str = "error") -> Array:
        """log P(Y = chosen | Y ⊆ offered) = log det L_chosen − log det(I + L_offered): what is taken of what is shown.

        It rests on the scale of the kernel, which `objective="choice"` learns and `calibrate="choices"` sets.

        Parameters
        ----------
        chosen : a basket, or many
        offered : as many sets, optional
            What each was chosen from; left out if `chosen` are `Baskets` that know it.
        """
        if offered is not None:
            single = as_queries(chosen, self.known_items, unknown=unknown).single
            chosen = Baskets.from_lists([chosen] if single else chosen, offered=[offered] if single else offered)
        elif not isinstance(chosen, Baskets) or chosen.offered is None:
            raise DataError("score_choices needs to know what was offered: pass it, or Baskets with `offered` sets")
        else:
            single = False
        coded = chosen.recode(self.known_items, unknown=unknown)
        logs = self.kernel_.log_choice(coded.sets, coded.offered or coded.sets)
        logs[coded.offered.sizes == 0 if coded.offered else []] = np.nan  # it is not known what was offered
        return logs[0] if single else logs

    def score(self, baskets: Any, y: Any = None, *, unknown: str = "ignore") -> float:  # noqa: ARG002
        """The mean of log P(A) over the baskets.

        Unlike other methods it leaves out items that the model does not know, unless `unknown="error"`: scikit-learn
        scores a model on folds that hold items which the other folds do not.
        """
        logs = self.score_samples(baskets, unknown=unknown)
        if not np.size(logs):
            raise DataError("score needs at least one basket")
        return float(np.mean(logs))

    def size_distribution(self) -> Array:
        """P(|Y| = k) for k = 0..K; of a kernel with a skew part for at most 4,000 items with partners."""
        return np.exp(self.kernel_.log_size_distribution)

    def marginals(self, given: Iterable[Any] = (), *, unknown: str = "error") -> Array:
        """P(i ∈ Y | given ⊆ Y) for every item i, in the order of `items_`; 1 for the given."""
        return self.marginals_with_errors(given, unknown=unknown)[0]

    def marginals_with_errors(self, given: Iterable[Any] = (), *, unknown: str = "error") -> tuple[Array, Array]:
        """The marginals and their standard errors: 0, unless more than 4,000 items have partners."""
        return self.kernel_.marginals_with_errors(as_codes(given, self.known_items, unknown=unknown))

    def condition(self, given: Iterable[Any], *, unknown: str = "error") -> Self:
        """The DPP over the remaining items, given that these are in the set."""
        codes = self._some_left(as_codes(given, self.known_items, unknown=unknown))
        kernel, rest = self.kernel_.condition(codes)
        model = type(self)._of_kernel(kernel, self.items_.subset(rest.tolist()))
        model.n_jobs = self.n_jobs
        return model

    # -- What goes with this basket ----------------------------------------------------------------

    def _next_shares(self, sets: Sets) -> Iterator[tuple[int, int, Array]]:
        return next_shares(self.kernel_, sets)

    def _best(
        self, sets: Sets, n: int, pool: NDArray[np.int64] | None, banned: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], Array]:
        return best_next(self.kernel_, sets, n, candidates=pool, banned=banned)

    def slate(
        self,
        basket: Any,
        N: int = 10,
        *,
        diversity: float | None = None,
        categories: Mapping[Any, Any] | None = None,
        at_most: int | Mapping[Any, int] | None = None,
        candidates: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        unknown: str = "error",
    ) -> tuple[NDArray[Any], Array]:
        """N items that go with the basket and are unlike each other, in the order of choice, and P(next = i | A).

        The greedy most likely slate of the DPP with kernel diag(q) Φ diag(q), q_i² = P(next = i | A)^τ,
        τ = (1 − diversity)/diversity. Φ is what `learn_slates` found, or else holds the correlations of the symmetric
        part of L; in both cases 10⁻³ is added to its diagonal: Φ_ii = 1.001. Items only repel each other in it: what
        attracts is in P. `contradpp.rerank` has more rules, and takes candidates of any model.

        Parameters
        ----------
        basket : a basket, or many
        N : int
            How many; if the catalogue or `at_most` allows fewer, exactly those. Shapes are those of `recommend`.
        diversity : float, optional
            From 0, the most probable items as `recommend` gives them, to 1, variety only. Left out, it is as learned
            (`learn_slates`, which a `ConditionalDPP` does when it is fitted), else 0.3.
        categories : mapping of item to category, optional
            Those of the vocabulary if left out.
        at_most : int or mapping of category to int, optional
            The most items of each category, or of those in the mapping; an item without a category is free of it.
        candidates, exclude : iterables of items, optional
            Choose only from these; never choose those.
        """
        check_count(N)
        chosen = self.default_diversity if diversity is None else diversity
        trade = greedy.Trade(k=int(N), diversity=chosen, scale="log")
        queries = as_queries(basket, self.known_items, unknown=unknown)
        allowed = allowed_codes(self.known_items, candidates, exclude, unknown=unknown)
        shelves = self.known_items.categories if categories is None else categories
        if at_most is not None and not shelves:
            raise ParameterError(
                "at_most needs categories, and the model's items have none", parameters=("categories",)
            )
        labels = None if at_most is None else [shelves.get(item) for item in self.known_items]
        if isinstance(at_most, Mapping) and (strange := set(at_most).difference(shelves.values())):
            some = ", ".join(repr(name) for name in sorted(set(shelves.values()), key=str)[:8])
            message = f"at_most: no item is of the category {strange.pop()!r}; there are such as {some}"
            raise ParameterError(message, parameters=("at_most",))
        shares_of_sets = self._next_shares(queries.sets)
        codes, shares = next_slates(
            self.likeness_, queries.sets, shares_of_sets, trade, allowed, labels, at_most, n_jobs=self.kernel_.n_jobs
        )
        items = as_ids(codes, self.items_)
        return (items[0], shares[0]) if queries.single else (items, shares)

    def item_shares(self) -> Array:
        """The share of every item in all that was sold; of a model without data, in its own baskets by L_ii alone."""
        counts = getattr(self, "item_counts_", None)
        if counts is None or not counts.sum() > 0:
            norms = self.kernel_.squared_norms
            counts = norms / (1.0 + norms)
        shares: Array = counts / max(counts.sum(), 1e-300)
        return shares

    def score_slates(
        self, baskets: Any, slates: Any, *, diversity: float | None = None, alike: bool = True, unknown: str = "error"
    ) -> Array:
        """log P(Y) of a slate Y for every basket, among all slates of its length: of the k-DPP that `slate` maximises.

        Parameters
        ----------
        baskets : a basket, or many
        slates : as many slates
        diversity : float, optional
            Above 0: it sets τ = (1 − diversity)/diversity. At 0 all but the most probable items are impossible.
        alike : bool
            Whether the likeness of items counts; without it Φ = 1.001 I, and slates are likely by relevance alone.
        """
        trade = greedy.Trade(k=1, diversity=self.default_diversity if diversity is None else diversity)
        if not trade.diversity:
            raise ParameterError("score_slates needs a diversity above 0", parameters=("diversity",))
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        wanted = as_queries(slates, self.known_items, unknown=unknown)
        if queries.single != wanted.single or queries.sets.count != wanted.sets.count:
            raise DataError(f"there are {queries.sets.count} baskets but {wanted.sets.count} slates")
        logs = greedy.next_log_likelihoods(
            self.likeness_ if alike else greedy.Vectors.none(), queries.sets, self._next_shares(queries.sets),
            wanted.sets, trade, n_jobs=self.kernel_.n_jobs,
        )  # fmt: skip
        return logs[0] if queries.single else logs

    def learn_slates(
        self,
        baskets: Any,
        *,
        train: Any = None,
        k: int = 10,
        given: float = 0.5,
        min_size: int = 4,
        criterion: str = "hits",
    ) -> Self:
        """Learn what is alike in a slate from baskets that the model has not seen, half of each hidden.

        Φ becomes a mix of the kernel's factors, of rivals (items that share fewer baskets than their sales let expect),
        of company (items that are bought with the same others) and of categories, if the items have any; see
        `slate_settings_`. With fewer than 50 baskets nothing changes.

        Parameters
        ----------
        baskets : Baskets or list of lists
            At most 4,000 of them are used, 200 for "likelihood".
        train : Baskets or list of lists, optional
            Where rivals and company are found: the training baskets. Without them there are none.
        k, given, min_size
            As for `contradpp.evaluate_slates`.
        criterion : {"hits", "likelihood"}
            "hits": slates reach as many categories of the hidden half as possible (without categories: have any item of
            it as often as possible), at no more than 0.5 % less recall than the most probable items have; and they have
            a hit more often, where that can be had. "likelihood": the hidden half is as likely as possible among sets
            of its size; this leaves categories out.
        """
        check_count(k, "k")
        items = self.known_items
        halves = hide(baskets, given, min_size=min_size, random_state=0)
        shown, hidden = (half.recode(items, unknown="ignore") for half in halves)
        open_to_more = self.can_grow(shown.sets)
        halves = Halves(shown.subset(open_to_more), hidden.subset(open_to_more))
        known = None if train is None else as_baskets(train).recode(items, unknown="ignore").sets
        learned = learn_likeness(self.kernel_, items, known, halves, self._next_shares, k=int(k), criterion=criterion)
        self._take_likeness(learned)
        return self

    def can_grow(self, sets: Sets) -> NDArray[np.bool_]:
        """Which sets the model can add an item to: those that it holds possible, with fewer items than its rank."""
        found: NDArray[np.bool_] = sets.sizes < self.kernel_.rank
        some = np.flatnonzero(found)
        found[some] = np.isfinite(self.kernel_.log_det(take_sets(sets, some)))
        return found

    def _take_likeness(self, likeness: Likeness | None) -> None:
        self._likeness = None if likeness is None else likeness.enlarged(len(self.items_))
        self._vectors = None

    @property
    def default_diversity(self) -> float:
        """The diversity of a slate, unless one is asked for: as learned, or 0.3."""
        return DIVERSITY if self._likeness is None else self._likeness.diversity

    @property
    def slate_settings_(self) -> dict[str, float] | None:
        """How much each source counts in what is alike, and the diversity; None if that was not learned."""
        return None if self._likeness is None else self._likeness.settings

    @property
    def likeness_(self) -> greedy.Vectors:
        """What is alike in a slate: vectors whose products are the correlations Φ."""
        if self._likeness is None:
            return greedy.Vectors.of_kernel(self.kernel_)
        if self._vectors is None:
            self._vectors = self._likeness.vectors(self.kernel_, self.items_)
        return self._vectors

    def grow(self, basket: Iterable[Any] = ()) -> GrowingBasket:
        """A basket to which items are added one by one, with suggestions after each at the cost of one pass over V."""
        return GrowingBasket(self.kernel_, self.known_items, basket)

    def complete(
        self,
        basket: Iterable[Any],
        size: int,
        *,
        candidates: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        unknown: str = "error",
    ) -> list[Hashable]:
        """Fill the basket up to `size` items, each time with the most probable next item.

        By a DPP this is the greedy search for the most probable set of that size. The basket comes first in the result,
        then additions in their order.

        Parameters
        ----------
        basket : iterable of items
        size : int
            It counts the basket.
        candidates, exclude : iterables of items, optional
            Add only these; never add those.
        """
        given = as_codes(basket, self.known_items, unknown=unknown)
        check_count(size, "size", least=len(given), why=" (it counts the basket)" if len(given) else "")
        if size > self.kernel_.n_items:
            raise ParameterError(
                f"size={size} is more than the {self.kernel_.n_items} items of the catalogue", parameters=("size",)
            )
        allowed = allowed_codes(self.known_items, candidates, exclude, unknown=unknown)
        return [self.items_[code] for code in self._completion(given, int(size), allowed).tolist()]

    def _completion(self, given: NDArray[np.int32], size: int, allowed: NDArray[np.bool_]) -> NDArray[np.int32]:
        return greedy_completion(self.kernel_, given, size, allowed=allowed)

    def similar_items(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """The N items most alike to `item`, and how alike: |cos| of the angle between their factors.

        1 means that the two are never drawn together: det L_{ij} = L_ii L_jj (1 − cos²). The order is that of a lower
        bound, exp(−1.64/√(n + 1)) times that, for an item in n training baskets: those that seldom sell lie where
        chance has put them.
        """
        check_count(N)
        code, counts = self.known_items.code(item), getattr(self, "item_counts_", None)
        likeness = self.kernel_.likeness(code)
        bound = likeness if counts is None else likeness * np.exp(-ONE_SIDED / np.sqrt(counts + 1.0))
        bound[code] = -np.inf
        best = top_n(bound[None], min(int(N), len(bound) - 1))[0]
        return as_ids(best, self.items_), likeness[best]

    # -- Sampling ----------------------------------------------------------------------------------

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
        """Samples, as `Baskets` over the model's vocabulary.

        Parameters
        ----------
        n_samples : int
        size : int, optional
            Only sets of this size (the k-DPP); it counts the given items.
        given : iterable of items
            Items that every set contains; they come first in it.
        method : {"exact", "chain"}
            "exact" draws from the very law. It takes a dense matrix over the items with partners, at most 4,000 of
            them; what is prepared for these `given` and this `size` is kept for the next call. "chain" runs a Markov
            chain for every sample, whatever the size of the catalogue; its law tends to that of the model.
        n_steps : int, optional
            The steps of a chain; 1,000 and 200 for every expected item if left out.
        """
        fixed = as_codes(given, self.known_items, unknown=unknown)
        check_count(n_samples, "n_samples", least=0)
        if size is not None:
            why = " (it counts the given items)" if len(fixed) else ""
            check_count(size, "size", least=len(fixed), why=why)
        how: dict[str, Any] = {"seed": root_seed(random_state), "size": size, "given": fixed}
        if method == "chain":
            if n_steps is not None:
                check_count(n_steps, "n_steps")
            refuse_too_many(size, self.kernel_.rank)
            drawn = Chain(self.kernel_).sample(int(n_samples), n_steps=n_steps, **how)
        elif method == "exact":
            if len(fixed):
                self._some_left(fixed)
            if self._samplers is None:
                self._samplers = Samplers(self.kernel_)
            drawn = self._samplers.sample(int(n_samples), **how)
        else:
            raise ParameterError(f"method must be 'exact' or 'chain', got {method!r}")
        return Baskets.trusted(*drawn, self.items_)

    # -- Files and parameters ----------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one safetensors file, atomically. Read it with `contradpp.load`."""
        persist.write_model(path, *self.file_contents())

    def file_contents(self) -> tuple[persist.Tensors, dict[str, Any]]:
        """What `save` writes: tensors, and a description that JSON can hold."""
        kernel = self.kernel_
        tensors = {"item_factors": kernel.factors, **persist.encode_items(self.known_items)}
        if kernel.has_diagonal:
            tensors["diagonal"] = kernel.diagonal
        if not kernel.plain:
            tensors["gain"] = kernel.gain
        if kernel.skew.n_entries:
            tensors |= {f"skew.{name}": array for name, array in kernel.skew._asdict().items()}
        info = {"model": type(self).__name__, "params": persist.plain_params(self.get_params(deep=False))}
        own, slates = self.slate_contents()
        return tensors | own, info | slates

    def slate_contents(self) -> tuple[persist.Tensors, dict[str, Any]]:
        """What `save` writes of the learned likeness."""
        return ({}, {}) if self._likeness is None else self._likeness.contents()

    def take_contents(self, tensors: persist.Tensors, info: Mapping[str, Any]) -> None:
        """Set what `file_contents` gave besides the kernel, the items and the parameters."""
        if info.get("slates") is not None:
            self._take_likeness(Likeness.restored(tensors, info["slates"], len(self.items_)))

    @staticmethod
    def restored(tensors: persist.Tensors, info: dict[str, Any], path: str | os.PathLike[str]) -> BaseDPP:
        """The model with these `file_contents`, of whatever class it is."""
        for module in ("lowrank", "nonsymmetric", "conditional"):
            import_module(f"contradpp.models.{module}")  # where no one has used the class yet
        kind = info.get("model")
        if not isinstance(kind, str) or kind not in BaseDPP._classes:
            raise ModelFileError(f"{os.fspath(path)} holds a {kind!r}, which this contradpp does not know")
        try:
            return BaseDPP._classes[kind]._restored(tensors, info, path)
        except _UNUSABLE as error:
            raise ModelFileError(f"the model file {os.fspath(path)} cannot be used: {error}") from error

    @classmethod
    def _restored(cls, tensors: persist.Tensors, info: dict[str, Any], path: str | os.PathLike[str]) -> Self:
        """The model that `save` wrote."""
        model = cls(**cls._own_params(info["params"]))
        model._adopt(_kernel_of(tensors), persist.decode_items(tensors, path))
        model.take_contents(tensors, info)
        return model

    @classmethod
    def _own_params(cls, params: Mapping[str, Any]) -> dict[str, Any]:
        """Those of a file that the constructor takes; its author does not know how many threads suit this machine."""
        names = cls().get_params(deep=False)
        own = {name: value for name, value in params.items() if name in names}
        if isinstance(own.get("n_jobs"), int) and own["n_jobs"] > resolve_n_jobs(None):
            own["n_jobs"] = None
        return own

    # -- Helpers -----------------------------------------------------------------------------------

    @property
    def known_items(self) -> Vocabulary:
        _ = self.kernel_  # raises NotFittedError before fit
        return self.items_

    def _some_left(self, codes: NDArray[np.int32]) -> NDArray[np.int32]:
        if len(codes) == self.kernel_.n_items:
            raise ParameterError("the given items are the whole catalogue: nothing is left to say about the rest")
        return codes


# What reading a damaged file may raise.
_UNUSABLE = (KeyError, TypeError, AttributeError, ValueError, OverflowError)


def load(path: str | os.PathLike[str]) -> BaseDPP:
    """Read a model that was written with `save`.

    Nothing from the file is executed or imported; a damaged, truncated or foreign file raises `ModelFileError`.
    """
    return BaseDPP.restored(*persist.read_model(path), path)


def _kernel_of(tensors: persist.Tensors) -> Kernel:
    """The kernel that `save` wrote."""
    factors, diagonal, skew = tensors["item_factors"], tensors.get("diagonal"), None
    if diagonal is not None and diagonal.dtype != np.float64:
        raise ParameterError("its diagonal is not of float64")
    if "skew.indices" in tensors:
        indptr, indices, values = (tensors[f"skew.{name}"] for name in Skew._fields)
        skew = Skew.of_parts(indptr, indices, values, len(factors))
    return Kernel(factors, tensors.get("gain"), skew, diagonal)


# -- A basket that someone fills -------------------------------------------------------------------


class GrowingBasket:
    """What `model.grow(basket)` returns: add items, ask for suggestions; each item costs one pass over V.

    Examples
    --------
    >>> import numpy as np
    >>> import contradpp as cd
    >>> model = cd.LowRankDPP.from_factors(np.eye(3) * [1, 2, 3], items=["tea", "milk", "bread"])
    >>> basket = model.grow(["tea"])
    >>> basket.add("bread").recommend(N=1)[0].tolist()
    ['milk']
    """

    def __init__(self, kernel: Kernel, items: Vocabulary, basket: Iterable[Any]) -> None:
        self._items = items
        self._set = kernel.grow(as_codes(basket, items))
        self._codes = self._set.codes

    @property
    def items(self) -> list[Hashable]:
        """The items of the basket, in the order in which they came."""
        return [self._items[code] for code in self._codes]

    def add(self, item: Any) -> Self:
        """Put an item into the basket; one that is there already changes nothing."""
        code = self._items.code(item)
        if code not in self._codes:
            self._put(code)
        return self

    def _put(self, code: int) -> None:
        self._set.add(code)

    def probabilities(self) -> Array:
        """P(next = i | basket) for every item, 0 for those in it: they sum to 1, or are all 0 if nothing is left."""
        scores = np.where(self._set.open_to, np.maximum(self._set.scores, 0.0), 0.0)
        total = scores.sum()
        if not total > 0 and self._set.open_to.any():
            raise RankError(f"no item can be added to this basket of {len(self._set)}: every larger set is impossible")
        shares: Array = scores / (total or 1.0)
        return shares

    def recommend(
        self, N: int = 10, *, candidates: Iterable[Any] | None = None, exclude: Iterable[Any] | None = None
    ) -> tuple[NDArray[Any], Array]:
        """The N most probable next items, only candidates and nothing excluded, and P(next = i | A), best first."""
        check_count(N)
        shares = self.probabilities()
        free = self._set.open_to & allowed_codes(self._items, candidates, exclude)
        best = top_n(np.where(free, shares, -np.inf)[None], min(int(N), int(free.sum())))[0]
        return self._items.take(best.tolist()), shares[best]


class ListeningBasket(GrowingBasket):
    """What `ConditionalDPP.grow` returns: add items, ask for suggestions; each is a new question to the model."""

    def __init__(self, model: Suggests, basket: Iterable[Any]) -> None:
        self._model, self._items = model, model.known_items
        self._codes = as_codes(basket, self._items).tolist()

    def _put(self, code: int) -> None:
        self._codes.append(code)

    def probabilities(self) -> Array:
        return self._model.predict_next(self.items)

    def recommend(
        self, N: int = 10, *, candidates: Iterable[Any] | None = None, exclude: Iterable[Any] | None = None
    ) -> tuple[NDArray[Any], Array]:
        return self._model.recommend(self.items, N, candidates=candidates, exclude=exclude)
