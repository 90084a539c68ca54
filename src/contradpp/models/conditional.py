"""The conditional DPP: a kernel, and a quality of the next item that listens to several voices, the kernel's too."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from contradpp._random import RandomState, root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.features import ItemFeatures
from contradpp.data.sets import Sets, prefixes
from contradpp.data.vocabulary import Labels, Vocabulary
from contradpp.dpp import persist, scoring
from contradpp.dpp.ahead import FIT, compile_ahead
from contradpp.dpp.kernel import Array
from contradpp.errors import ConvergenceError, DataError, ParameterError, RankError
from contradpp.experts.base import Baseline, ScoresItems, as_codes, of_logits
from contradpp.experts.baselines import Implicit
from contradpp.experts.statistics import Labour
from contradpp.learn.callbacks import Callback
from contradpp.learn.params import MOST_LEARNED, Given, checked_weights, without_excess
from contradpp.models.base import BaseDPP, ListeningBasket
from contradpp.models.cold_start import Judgement, Kin, Newcomers, arriving, learn_judgement
from contradpp.models.learned import LearnedDPP, fit_on
from contradpp.models.likeness import Likeness
from contradpp.models.nonsymmetric import NonsymmetricDPP
from contradpp.models.relevance import (
    DEFAULT,
    KERNEL,
    N_PARTS,
    N_QUESTIONS,
    PLAIN,
    Feature,
    KernelVoice,
    Questions,
    Relevance,
    Voice,
    Weights,
    ask_questions,
    choose_baskets,
    choose_parts,
    features_of,
    fit_voices,
    kinds_of,
    learn_loudness,
    learn_weights,
    restored_voices,
    same_kinds,
    voices_contents,
)

FEATURES = "features"  # the name of what features say, among the experts
LEAST_REASON = 0.1  # nats
HALVED = 4  # items that a held-out basket needs to say what belongs on a slate
HELD_OUT = 0.1  # of the baskets: they choose the kernel's last round and the weights of the voices
POPULAR = 0.02  # of all items: the most sold
_SPLIT, _QUESTIONS, _PARTS = 71, 72, 74  # keys of random streams


class ConditionalDPP(ScoresItems, BaseDPP):
    """A DPP whose next items are judged by several voices: its own kernel, and what is known from neighbours.

    P(next = j | A) ∝ exp(τ(A) θ(A)ᵀ f_j(A) + ρ(A) zᵀΦz), with the features f_j of popularity, ridge regressions on
    neighbouring items, items and baskets that were bought together, and log det L_{A∪j}/det L_A of the kernel; z is one
    feature of each voice in units of its spread, so that a voice may count for less where another says the same. θ and
    Φ are learned on a tenth of the baskets that no voice has seen, τ and ρ on parts of these as well; then the voices
    learn from all. What is alike in a slate is learned
    from the same tenth, half of each basket hidden. Probabilities of sets, samples and the likeness of
    items are those of the kernel. Of a basket with more than 500 items, 500 drawn at random are learned from, with a
    warning.

    Parameters
    ----------
    kernel : LowRankDPP or NonsymmetricDPP, optional
        How the kernel is learned; None for `NonsymmetricDPP()`.
    relevance : sequence of str and models
        The other voices: "popularity", "ridge", "neighbours", "baskets", "loglinear" (which is silent in catalogues of
        more than 1,000 items), and models of your own: anything with `predict_next`. Those that are not fitted yet are
        fitted.
    n_jobs : int, optional
        Threads; None for all cores. Results do not depend on it. Unless it is 1, the first `fit` on a machine starts
        another process, which compiles what is needed later
        (CONTRADPP_COMPILE_AHEAD=0 in the environment forbids it).
    random_state : int, Generator or None
    verbose : int

    Attributes
    ----------
    estimator_ : the fitted kernel model
    voices_ : dict of name to voice
    weights_ : dict of feature name to (θ₀, θ₁)
    newcomers_ : how items with few sales or none are judged by their features; None without any
    items_ : Vocabulary

    Examples
    --------
    >>> import contradpp as cd
    >>> baskets = [["tea", "milk"], ["tea", "milk", "sugar"], ["pasta", "sauce"], ["pasta", "sauce", "cheese"]] * 20
    >>> model = cd.ConditionalDPP(random_state=0).fit(baskets)
    >>> model.recommend(["pasta", "cheese"], N=1)[0].tolist()
    ['sauce']
    >>> next(iter(model.explain(["tea"], "milk").by_item))
    'tea'
    """

    estimator_: LearnedDPP
    voices_: dict[str, Any]
    baskets_: Baskets
    relevance_: Relevance
    newcomers_: Newcomers | None = None
    n_updates_: int

    def __init__(
        self, kernel: Any = None, relevance: Sequence[Any] = DEFAULT, *, n_jobs: int | None = None,
        random_state: RandomState = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.relevance = relevance
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # -- Learning ----------------------------------------------------------------------------------

    def fit(
        self, baskets: Any, y: Any = None, sample_weight: Any = None, negatives: Any = None, validation: Any = None,
        callbacks: Sequence[Callback] = (), *, item_features: Any = None, engine: str | None = None, **how: Any,
    ) -> Self:  # fmt: skip
        """Learn the kernel, the other voices, and how much each counts.

        Parameters
        ----------
        baskets : Baskets, or a list of lists of items
            Where it is known what a basket was chosen from, its items compete with those that were refused when the
            weights of the voices are learned, and not with the whole catalogue: for those who rank what is shown. Of
            a whole catalogue next items are then ranked worse (docs/beyond.md); pass baskets without `offered` for it.
        sample_weight : array of float, optional
            Labels of baskets, for the kernel; the other voices learn from those above zero.
        negatives : optional
            The user's negative sets, for the kernel.
        validation : Baskets, list of lists, float or None
            Baskets, or a share of them, for early stopping and the weights of the voices; None for a tenth.
        callbacks : sequence of Callback
        item_features : data frame, Arrow table, array, sparse array or mapping, optional
            What the items are like, as for `NonsymmetricDPP.fit`: for `add_items`, and for items that seldom sell, if
            held-out baskets say that it helps them.
        engine : {None, "ray"}
            "ray" trains on a Ray cluster, from Parquet files, as in `NonsymmetricDPP.fit`: workers learn the kernel,
            count what is bought together and solve the regressions; what else there is to do takes this machine
            seconds, and memory for all baskets.
        **how
            `negative_weight`, `checkpoint`, `resume` and `checkpoint_every` of the kernel's `fit`: it takes nearly all
            of the time, so that a run that was killed loses little besides. With an engine, what it takes besides.
        """
        del y
        kinds_of(self.relevance)  # or an error, before any work
        if engine is not None:
            given = Given(baskets, sample_weight, negatives, how.pop("negative_weight", None), validation)
            fit_on(engine, self, given, callbacks, item_features, **how)
            return self
        train = without_excess(as_baskets(baskets))
        if negatives is not None:  # what was only ever refused belongs to the catalogue, too
            negatives = as_baskets(negatives, "negatives")
            train = train.recode(train.items.merge(negatives.items))
        features = None if item_features is None else ItemFeatures.learn(item_features, train.items)
        seen, held = self._divided(train, validation)
        estimator = self.new_kernel()
        label = checked_weights(sample_weight, train.n_baskets, "sample_weight")
        if not (label[seen] > 0).any():
            raise DataError(
                "ConditionalDPP needs a basket whose sample_weight is above zero: voices learn from no other"
            )
        weights = None if sample_weight is None else label[seen]
        everything = train.subset(np.flatnonzero(label > 0))
        if not (validation is None or np.isscalar(validation)):
            everything = Baskets.concat([everything, held]).recode(held.items)

        def finish() -> None:
            part = train.subset(seen[label[seen] > 0])
            self.learn_voices(estimator, held, Labour(part), Labour(everything), features)

        compile_ahead(FIT, n_jobs=self.n_jobs)
        try:
            estimator.fit(train.subset(seen), None, weights, negatives, held, callbacks, **how)
            finish()
        except (KeyboardInterrupt, ConvergenceError):
            if estimator.is_fitted and estimator.history_:  # its best round so far; the rest takes seconds
                finish()
            raise
        return self

    def learn_voices(
        self, estimator: LearnedDPP, held: Baskets, part: Labour, everything: Labour,
        features: ItemFeatures | None = None,
    ) -> None:  # fmt: skip
        """All that comes after the kernel: weights from what was held out of `part`, then voices that know everything.

        Features are those of the items of the baskets.
        """
        kinds = kinds_of(self.relevance, everything.train.n_items)
        voices = fit_voices(kinds, part, self.n_jobs)
        relevance = self._relevance(estimator, voices, held.items, part.train.item_counts)
        asked, questions = self._learn_weights(relevance, held.recode(estimator.items_))
        weights, judgement = relevance.weights, None
        if features is not None:
            counts = part.train.item_counts.astype(np.float64)
            judgement = learn_judgement(
                relevance, asked.sets, questions, features.matrix, counts, self._seed(), self._threads
            )
        self._take(estimator, voices, weights, part.train, 0)
        likeness = self._learn_likeness(held)
        if features is not None:
            items, counts = part.train.items, everything.train.item_counts.astype(np.float64)
            estimator.kin_ = Kin.learn(features.recode(items, estimator.items_), counts)
        self._take(estimator, fit_voices(kinds, everything, self.n_jobs), weights, everything.train, 0, judgement)
        self._take_likeness(likeness)

    def partial_fit(
        self, baskets: Any = (), y: Any = None, sample_weight: Any = None, negatives: Any = None,
        callbacks: Sequence[Callback] = (), **how: Any,
    ) -> Self:  # fmt: skip
        """Go on with new baskets: θ from them before any voice has seen them, then the kernel and the voices.

        What was known of θ counts as much as the baskets it came from; τ and ρ move from where they were. `how` is that
        of the kernel's `partial_fit`.
        """
        del y
        _ = self.kernel_  # raises NotFittedError before fit
        news = without_excess(as_baskets(baskets))
        kinds = same_kinds(self.relevance, self.voices_, len(self.items_.merge(news.items)))
        estimator = deepcopy(self.estimator_)
        estimator.n_jobs = self.n_jobs
        estimator.partial_fit(news, None, sample_weight, negatives, callbacks, **how)
        known = news.recode(self._voiced_items, unknown="ignore")
        relevance = replace(self.relevance_)
        self._learn_weights(relevance, known)
        label = checked_weights(sample_weight, news.n_baskets, "sample_weight")
        fresh = news.subset(np.flatnonzero(label > 0))
        everything = Baskets.concat([self.baskets_, fresh]).recode(estimator.items_)
        voices = fit_voices(kinds, Labour(everything), self.n_jobs)
        judgement = None if self.newcomers_ is None else self.newcomers_.judgement
        self._take(estimator, voices, relevance.weights, everything, self.n_updates_ + 1, judgement)
        return self

    def add_items(
        self, ids: Iterable[Any], features: Any, *, names: Labels | None = None, categories: Labels | None = None
    ) -> Self:
        """Add items that never sold, with what their features say of them: see `NonsymmetricDPP.add_items`.

        They compete with all others at once, by the popularity that features predict, by how much likelier the basket
        makes the items that are alike to them, and by what they have in common with the basket. In a basket, the voices
        hear the closest of those in their place.
        """
        _ = self.kernel_
        counts, voiced = self.item_counts_, self._voiced_items
        found = arriving(
            self.estimator_.kin_, self.items_, counts, ids, features, names, categories, n_jobs=self._threads
        )
        self.estimator_.enlarge(found, counts)
        self._enlarge(self.estimator_.kernel_, found.items, found.alike.mix(len(self.items_)))
        self.baskets_ = Baskets(self.baskets_.indptr, self.baskets_.indices, found.items)
        self.relevance_ = self._relevance(self.estimator_, self.voices_, voiced, counts, self.relevance_.weights)
        if self.newcomers_ is not None:
            self.newcomers_ = self.newcomers_.add(found.rows, found.alike, found.log_shares)
        return self

    def _divided(self, train: Baskets, validation: Any) -> tuple[NDArray[np.int64], Baskets]:
        """Which baskets the voices see, and those that are held out."""
        if validation is not None and not np.isscalar(validation):
            held = as_baskets(validation, "validation").recode(train.items, unknown="ignore")
            return np.arange(train.n_baskets), held.draw(MOST_LEARNED)
        held_out = self.held_out(validation)
        if not train.n_baskets or not train.n_items:
            raise DataError("ConditionalDPP needs at least one basket and one item to learn from")
        out = held_out(train.n_baskets)
        return not_in(out, train.n_baskets), train.subset(out)

    def held_out(self, validation: Any) -> Callable[[int], NDArray[np.int64]]:
        """Which of n baskets `fit` holds out, as a function of n that can be sent elsewhere."""
        share = HELD_OUT if validation is None else validation
        if not isinstance(share, (int, float, np.number)) or isinstance(share, bool) or not 0 < float(share) < 1:
            raise ParameterError(f"validation must be baskets, or a share between 0 and 1, got {validation!r}")
        return partial(_held_out, share=float(share), seed=self._seed(_SPLIT))

    def new_kernel(self) -> LearnedDPP:
        """The estimator of the kernel, unfitted, with this model's threads and, unless it has its own, seed."""
        given = NonsymmetricDPP() if self.kernel is None else self.kernel
        if not isinstance(given, LearnedDPP):
            raise ParameterError(f"kernel must be a LowRankDPP or a NonsymmetricDPP, got {given!r}")
        own: dict[str, Any] = {"n_jobs": self.n_jobs, "verbose": self.verbose or given.verbose}
        if given.random_state is None:
            own["random_state"] = self.random_state
        return type(given)(**(given.get_params() | own))

    def _relevance(
        self, estimator: LearnedDPP, voices: dict[str, Any], items: Vocabulary, counts: NDArray[np.number],
        weights: Weights | None = None,
    ) -> Relevance:  # fmt: skip
        return Relevance.of(estimator.kernel_, voices, items, counts, weights)

    def _learn_weights(self, relevance: Relevance, baskets: Baskets) -> tuple[Baskets, Questions | None]:
        """Change the weights by baskets that no voice has seen; which of them were asked about, and the questions.

        Where none has two items there are no questions, and the weights stay.
        """
        asked = choose_baskets(baskets, N_QUESTIONS, self._seed(_QUESTIONS))
        if not asked.n_baskets or baskets.n_items < 2:
            return asked, None
        questions, before = ask_questions(relevance, asked, self._seed(), self._threads), relevance.weights
        if not before.pairs.measured:
            questions = questions.measured(relevance.last_of_voices)
            before = relevance.before(questions.pairs, questions.spread(self._threads))
        relevance.weights = learn_weights(questions, before, self._threads)
        free = baskets.subset(np.flatnonzero(baskets.refused.sizes == 0))  # of what was refused parts say nothing
        if (free.sizes >= 2).any():
            parts = choose_parts(free, N_PARTS, self._seed(_PARTS))
            both = [questions, ask_questions(relevance, parts, self._seed(), self._threads)]
            loudness = learn_loudness(both, relevance.weights, self._threads)
            relevance.weights = relevance.weights._replace(loudness=loudness)
        return asked, questions

    def _learn_likeness(self, held: Baskets) -> Likeness | None:
        """What is alike in slates, from held-out baskets that no voice has seen yet."""
        if (held.sizes >= HALVED).any():
            self.learn_slates(held, train=self.baskets_, min_size=HALVED)
        return self._likeness

    def _take(
        self, estimator: LearnedDPP, voices: dict[str, Any], weights: Weights, baskets: Baskets, n_updates: int,
        judgement: Judgement | None = None,
    ) -> None:  # fmt: skip
        """Make what was learned the model's own."""
        likeness = self._likeness if n_updates else None
        self._adopt(estimator.kernel_, estimator.items_)
        self._take_likeness(likeness)
        self.n_components = estimator.kernel_.n_components
        self.estimator_, self.voices_, self.baskets_, self.n_updates_ = estimator, voices, baskets, n_updates
        self.relevance_ = self._relevance(estimator, voices, estimator.items_, baskets.item_counts, weights)
        self.newcomers_ = None
        if judgement is not None and estimator.kin_ is not None:
            self.newcomers_ = Newcomers.of(estimator.kin_, self.item_counts_, judgement, self._threads)

    @property
    def _voiced_items(self) -> Vocabulary:
        """The items that the voices know: not those that `add_items` has added since."""
        if self.newcomers_ is None or self.newcomers_.n_known == len(self.items_):
            return self.items_
        return self.items_.subset(range(self.newcomers_.n_known))

    def _seed(self, *key: int) -> int:
        """A seed that does not depend on luck: without a random state the same baskets are held out every time."""
        fixed = 0 if self.random_state is None else root_seed(deepcopy(self.random_state))
        return root_seed(stream(fixed, *key)) if key else fixed

    @property
    def _threads(self) -> int:
        return resolve_n_jobs(self.n_jobs)

    # -- Questions ---------------------------------------------------------------------------------

    @property
    def weights_(self) -> dict[str, tuple[float, float]]:
        """θ₀ and θ₁ of every feature; `relevance_.weights` has θ₂ and the weights of products, too."""
        names = self.relevance_.names
        theta = self.relevance_.weights.theta[:2, : len(names)]
        counted = [f"{name}:{names[:k].count(name)}" if names.count(name) > 1 else name for k, name in enumerate(names)]
        return {name: (float(a), float(b)) for name, a, b in zip(counted, *theta, strict=True)}

    @property
    def explained_(self) -> dict[str, float] | None:
        """What features explain: the share of the variance of log popularity ("popularity"), the MPR of held-out items
        that were judged as though they had no sales, among such items ("rank"), and κ ("fade"); None without features.
        """
        if self.newcomers_ is None:
            return None
        judgement = self.newcomers_.judgement
        return {**(self.estimator_.explained_ or {}), "rank": judgement.rank, "fade": judgement.fade}

    @property
    def history_(self) -> list[dict[str, Any]]:
        """What the kernel's training said, round by round."""
        return self.estimator_.history_

    @property
    def n_iter_(self) -> int:
        """The rounds of the kernel's training."""
        return self.estimator_.n_iter_

    @property
    def item_counts_(self) -> Array:
        """In how many training baskets each item was."""
        return self.baskets_.item_counts.astype(np.float64)

    @property
    def n_baskets_(self) -> float:
        """How many training baskets there were."""
        return float(self.baskets_.n_baskets)

    def write_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        """Write the logits of every item given every set, or with `each` every set without each of its entries."""
        if self.newcomers_ is None:
            self.relevance_.write_logits(sets, out, each=each)
        else:
            self.newcomers_.write_logits(self.relevance_, sets, out, each=each)
        self._by_kernel(np.repeat(sets.sizes, sets.sizes) == 1 if each else sets.sizes == 0, out)

    def _by_kernel(self, empty: NDArray[np.bool_], logits: Array) -> None:
        """Of an empty basket nothing was learned but the kernel: P(next = j) ∝ L_jj."""
        if empty.any():
            with np.errstate(divide="ignore"):
                logits[empty] = np.log(self.kernel_.squared_norms)

    def as_shares(self, scores: Array, sets: Sets) -> Array:
        """The probabilities of the logits, 0 for items in the set."""
        return of_logits(scores, sets)

    def can_grow(self, sets: Sets) -> NDArray[np.bool_]:
        """All of them: other voices speak where the kernel has nothing to say."""
        return np.ones(sets.count, dtype=bool)

    def _completion(self, given: NDArray[np.int32], size: int, allowed: NDArray[np.bool_]) -> NDArray[np.int32]:
        pool, banned = np.flatnonzero(allowed), np.empty(0, dtype=np.int32)
        while len(given) < size:
            best = self._best(Sets.one(given), 1, pool, banned)[0]
            if not best.size:
                raise RankError(f"no other item may join these {len(given)}, so there is no set of {size}")
            given = np.append(given, best[0, :1].astype(np.int32))
        return given

    def condition(self, given: Iterable[Any], *, unknown: str = "error") -> Any:
        """The DPP over the remaining items, given that these are in the set: that of the kernel."""
        _ = self.kernel_
        return self.estimator_.condition(given, unknown=unknown)

    def complements(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """As `NonsymmetricDPP.complements`."""
        _ = self.kernel_
        if not isinstance(self.estimator_, NonsymmetricDPP):
            raise ParameterError("complements needs a kernel with attraction: kernel=NonsymmetricDPP()")
        return self.estimator_.complements(item, N)

    def grow(self, basket: Iterable[Any] = ()) -> Any:
        """A basket to which items are added one by one, with suggestions after each."""
        return ListeningBasket(self, basket)

    def explain(self, basket: Iterable[Any], item: Any, *, unknown: str = "error") -> Explanation:
        """What speaks for an item given a basket: parts by voice and basket item that add up to log P(next = item).

        A voice that is a sum over the basket's items is divided in the proportion of their terms. What the kernel, or a
        model of the user's, says is divided by adding the items one after the other, in this order and in the reverse
        one, of which the mean is taken.
        """
        return self.explain_each(basket, [item], unknown=unknown)[0]

    def explain_each(self, basket: Iterable[Any], items: Iterable[Any], *, unknown: str = "error") -> list[Explanation]:
        """As `explain`, of several items: the basket is looked at once for all of them."""
        items, codes = list(items), as_codes(basket, self.known_items, unknown=unknown)
        asked = np.array([self.known_items.code(item) for item in items], dtype=np.int64)
        for item, there in zip(items, np.isin(asked, codes).tolist(), strict=True):
            if there:
                raise DataError(f"{item!r} is in the basket: only items outside of it can come next")
        logits = self.scores(Sets.one(codes))
        shares = self.as_shares(logits.copy(), Sets.one(codes))
        parts = divide(self.relevance_, self.newcomers_, codes, asked, len(self._voiced_items))
        if not len(codes):
            parts.alone[:, parts.names.index(KERNEL)] = logits[0, asked]
        logits[0, codes] = -np.inf
        told, top = shares[0, asked], logits.max()
        with np.errstate(divide="ignore"):  # a share may be less than the least number that there is
            logs = np.where(told > 0, np.log(told), logits[0, asked] - top - np.log(np.exp(logits - top).sum()))
        normalizers = parts.totals - logs
        ids, counts = [self.items_[c] for c in codes.tolist()], self.item_counts_
        few = max(POPULAR * len(self.items_), 3)
        popular = [int((counts > counts[code]).sum()) < few for code in asked]
        return [
            Explanation(item, ids, parts.names, *rest)
            for item, *rest in zip(items, parts.alone, parts.by_item, normalizers.tolist(), popular, strict=True)
        ]

    # -- Parameters and files ----------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments, as scikit-learn does; `kernel__x` is that of the kernel."""
        if self.kernel is None and any(name.startswith("kernel__") for name in params):
            self.kernel = NonsymmetricDPP()
        return super().set_params(**params)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, its training baskets included, to one safetensors file, atomically.

        Experts of your own cannot be saved: pickle the model instead, if they can be pickled.
        """
        super().save(path)

    def file_contents(self) -> tuple[persist.Tensors, dict[str, Any]]:
        """The contents of the kernel's file, and what is known besides."""
        _ = self.kernel_
        kinds_of(self.relevance)  # or an error
        spoken, voices = voices_contents(self.voices_)
        tensors, kernel = self.estimator_.file_contents()
        own, slates = self.slate_contents()
        tensors |= own | spoken | self.relevance_.weights.contents()
        tensors |= {"baskets.indptr": self.baskets_.indptr, "baskets.indices": self.baskets_.indices}
        info = {
            "model": type(self).__name__,
            "params": persist.plain_params(self.get_params(deep=False)),
            "kernel": kernel,
            "voices": voices,
            "relevance": [voice for voice in self.relevance if isinstance(voice, str)],
            "n_updates": int(self.n_updates_),
        }
        if self.newcomers_ is not None:
            own, info["newcomers"] = self.newcomers_.contents()
            tensors |= own
        return tensors, info | slates

    @classmethod
    def _restored(cls, tensors: persist.Tensors, info: dict[str, Any], path: str | os.PathLike[str]) -> Self:
        estimator = BaseDPP.restored(tensors, info["kernel"], path)
        if not isinstance(estimator, LearnedDPP):
            raise ParameterError(f"its kernel is a {type(estimator).__name__}")
        items, late = estimator.items_, info.get("newcomers")
        n_known = len(items) if late is None else int(late["n_known"])
        if not 0 < n_known <= len(items):
            raise ParameterError(f"its voices know {n_known} items of {len(items)}")
        voiced = items.subset(range(n_known))
        baskets = Baskets(tensors["baskets.indptr"], tensors["baskets.indices"], voiced)
        voices, relevance = restored_voices(tensors, info["voices"], info["relevance"], baskets)
        kinds_of(relevance)  # or an error
        params = cls._own_params({name: info["params"].get(name) for name in ("n_jobs", "random_state")})
        model = cls(type(estimator)(**estimator.get_params()), relevance, **params)
        everything = Baskets(baskets.indptr, baskets.indices, items)
        weights = Weights.restored([len(features_of(name, voice)) for name, voice in voices.items()] + [1], tensors)
        model._take(estimator, voices, weights, everything, int(info["n_updates"]))
        if late is not None:
            if estimator.kin_ is None:
                raise ParameterError("it knows of new items, but their features are missing")
            model.relevance_ = model._relevance(estimator, voices, voiced, everything.item_counts, weights)
            model.newcomers_ = Newcomers.restored(tensors, late, estimator.kin_, model.item_counts_)
        model.take_contents(tensors, info)
        return model


def _held_out(n_baskets: int, *, share: float, seed: int) -> NDArray[np.int64]:
    n_held = min(max(round(share * n_baskets), 1), max(n_baskets - 1, 1))
    return np.sort(stream(seed).permutation(n_baskets)[:n_held])


def not_in(held: NDArray[np.int64], n_baskets: int) -> NDArray[np.int64]:
    """The baskets that are seen: all but those held out; a single one is both."""
    return np.setdiff1d(np.arange(n_baskets), held) if n_baskets > 1 else held


# -- Explanations ----------------------------------------------------------------------------------


class Explanation(NamedTuple):
    """Why an item is suggested, in nats: log P(next = item | basket) is the sum of all parts less `log_normalizer`."""

    item: Hashable
    basket: list[Hashable]
    voices: list[str]
    alone: Array  # (voices,): what each voice says of the item itself; the basket says how much that counts
    parts: Array  # (voices, basket): what it says because of each item
    log_normalizer: float
    popular: bool  # whether the item is among those that sell most

    @property
    def log_probability(self) -> float:
        """log P(next = item | basket)."""
        return float(self.alone.sum() + self.parts.sum() - self.log_normalizer)

    @property
    def by_item(self) -> dict[Hashable, float]:
        """What speaks for the item because of each item of the basket, over all voices, the most first."""
        totals = self.parts.sum(axis=0)
        return {self.basket[k]: float(totals[k]) for k in np.argsort(-totals, kind="stable").tolist()}

    def reasons(self, most: int = 2) -> list[Hashable]:
        """The items of the basket that speak for it, by at least a tenth of a nat, the strongest first."""
        return [item for item, nats in self.by_item.items() if nats >= LEAST_REASON][:most]

    @property
    def by_voice(self) -> dict[str, float]:
        """What each voice says because of the basket."""
        return dict(zip(self.voices, self.parts.sum(axis=1).tolist(), strict=True))


class Parts(NamedTuple):
    """What the voices of these names say of m items: of themselves, and because of each item of the basket."""

    names: list[str]
    alone: Array  # (m, voices)
    by_item: Array  # (m, voices, basket)

    @property
    def totals(self) -> Array:
        """The sums of all parts (m,)."""
        totals: Array = self.alone.sum(axis=1) + self.by_item.sum(axis=(1, 2))
        return totals


def divide(
    relevance: Relevance, newcomers: Newcomers | None, codes: NDArray[np.int32], asked: NDArray[np.int64], n_items: int
) -> Parts:
    """What speaks for each of the items asked about, given a basket; zeros if it is empty.

    The voices know the first n items.
    """
    names, m = [*relevance.features, *([] if newcomers is None else [FEATURES])], len(asked)
    parts = Parts(names, np.zeros((m, len(names))), np.zeros((m, len(names), len(codes))))
    if not len(codes):
        return parts
    shares, heard = np.ones(m), codes
    if newcomers is not None:
        shares, parts.alone[:, -1], parts.by_item[:, -1] = newcomers.explain(relevance, codes, asked)
        heard = newcomers.stand_ins(codes)
    there = np.flatnonzero(heard >= 0)
    basket = Sets(np.array([0, len(there)], dtype=np.int64), heard[there].astype(np.int32))
    theta = relevance.theta(relevance.circumstances(basket))[0]
    known = np.flatnonzero(shares > 0)  # of others the voices do not know
    if not len(known):
        return parts
    told = [
        (row, *_told(relevance.voices[name], feature, heard[there], asked[known], n_items))
        for row, (name, features) in enumerate(relevance.features.items())
        for feature in features
    ]
    pairs = relevance.weights.pairs
    without = np.array([told[c][1] for c in pairs.columns]).T
    values = np.array([told[c][1] + told[c][2].sum(axis=1) for c in pairs.columns]).T
    pulls = pairs.pulls(values, theta[relevance.n_features :])
    before, after = pairs.steps(without), pairs.steps(values)
    for f, (row, nothing, by_item) in enumerate(told):
        alone, slope = theta[f] * nothing, np.full(len(known), theta[f])
        for v in np.flatnonzero(pairs.columns == f):
            alone += pulls[:, v] * before[:, v]
            moved = values[:, v] != without[:, v]
            slope[moved] += (pulls[:, v] * (after - before)[:, v])[moved] / (values - without)[moved, v]
        parts.alone[known, row] += shares[known] * alone
        parts.by_item[known[:, None], row, there] += (shares[known] * slope)[:, None] * by_item
    return parts


def _told(
    voice: Voice, feature: Feature, codes: NDArray[np.int32], asked: NDArray[np.int64], n_items: int
) -> tuple[Array, Array]:
    """A feature of items without the basket (m,), and how each item of the basket changes it (m, n)."""
    m, n = len(asked), len(codes)
    rate = 1.0 / max(n, 1) if feature.mean else 1.0
    if isinstance(voice, Baseline) and not isinstance(voice, Implicit):
        terms = rate * np.array([voice.contributions(codes, code) for code in asked.tolist()])
        own = voice.alone(asked)
        if feature.shape == PLAIN:
            return own, terms
        totals, sizes = terms.sum(axis=1, keepdims=True), np.abs(terms).sum(axis=1, keepdims=True)
        nothing, whole = _shape(own, feature), _shape(own + totals[:, 0], feature)
        cancelled = np.abs(totals) <= 0.1 * sizes  # then a term's part of the total says little
        parts = np.abs(terms) / np.where(sizes > 0, sizes, 1.0)
        np.divide(terms, totals, out=parts, where=~cancelled)
        return nothing, (whole - nothing)[:, None] * parts
    changes, nothing = np.zeros((m, n)), np.zeros(m)
    for order in (1, -1):
        told = np.stack([_shape(row, feature) for row in rate * _given_prefixes(voice, codes[::order], asked, n_items)])
        nothing = told[0]
        changes += np.diff(told, axis=0)[::order].T / 2
    return nothing, changes


def _given_prefixes(voice: Voice, codes: NDArray[np.int32], asked: NDArray[np.int64], n_items: int) -> Array:
    """The scores of items given the first 0, 1, ..., n of the codes (n + 1, m)."""
    if isinstance(voice, KernelVoice):
        return scoring.scores_given_prefixes(voice.kernel, codes, asked)
    scores = np.empty((len(codes) + 1, n_items))
    voice.write_scores(prefixes(codes), scores)
    return scores[:, asked]


def _shape(x: Array, feature: Feature) -> Array:
    """A feature of scores that are means already, where means are asked for."""
    out = np.empty((1, len(x)))
    feature.write(x[None], np.ones(1, dtype=np.int64), out)
    return out.ravel()
