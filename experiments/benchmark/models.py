"""The rows and columns of the benchmark: a table of models and a table of data sets.

A row of `MODELS` gives, for training baskets, the models that are tried; the one with the best nDCG on a tenth of the
training baskets is fitted to all of them. Ours stand with their defaults alone: the tuning is the baselines'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from contradpp._threads import blas_threads
from contradpp._types import Array
from contradpp.baselines import EASE, BasketKNN, Implicit, ItemKNN, LogLinear, Popularity, RidgeNeighbors
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets
from contradpp.errors import MissingExtraError
from contradpp.experts.base import Baseline
from contradpp.experts.item_knn import SHRINKAGES
from contradpp.experts.statistics import BasketStatistics, indicator
from contradpp.experts.table import KERNEL
from contradpp.models.combination import Combination
from contradpp.models.conditional import ConditionalDPP
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.mixture import MixtureDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP
from experiments.benchmark.rivals import SparseEASE

OURS = "conditional"
WITHOUT_KERNEL = "conditional-no-kernel"
REGISTRIES = ("health", "bath", "apparel", "bedding", "diaper", "gear", "feeding")
AMAZON = tuple(f"amazon/{registry}" for registry in REGISTRIES)
MOST_RANK = 100
WIDEST = 20  # the window of item2vec


# -- The data sets ---------------------------------------------------------------------------------------


class Group(NamedTuple):
    """A column of a table: the data sets whose mean it is, and what they are like."""

    label: str
    data: tuple[str, ...]
    words: str = ""


GROUPS = (
    Group("Groceries", ("groceries",), "a month of a German supermarket, items by their kind ('whole milk'), not by "
          "brand"),
    Group("grocer", ("grocer",), "made up: 315 items whose substitutes rarely meet and whose complements often do, so "
          "that it is known what there is to be found"),
    Group("Amazon", AMAZON, "baby registries, the mean of seven kinds (apparel, bath, ...) of up to 100 items each"),
    Group("UK", ("uk",), "an online shop for gifts; many baskets are those of wholesalers, and series in several "
          "colors are bought together"),
    Group("Yoochoose", ("yoochoose",), "what was bought in sessions of an online shop: small baskets, and many "
          "of them"),
    Group("Belgian", ("belgian",), "a supermarket with anonymous items and a long tail"),
    Group("Ta-Feng", ("tafeng",), "a supermarket with anonymous items, a visit per basket"),
    Group("Instacart", ("instacart",), "groceries by brand and size; what their buyers bought before is known, but not "
          "to the models here"),
)  # fmt: skip
DATA = tuple(name for group in GROUPS for name in group.data)


def groups_of(data: Sequence[str]) -> list[Group]:
    """Return the columns that these data sets make."""
    known = [group._replace(data=tuple(name for name in group.data if name in data)) for group in GROUPS]
    return [group for group in known if group.data]


# -- The models ------------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """The arguments of the models of a row."""

    train: Baskets
    seed: int
    n_jobs: int | None

    @property
    def own(self) -> dict[str, Any]:
        """The arguments of a model of contradpp."""
        return {"n_jobs": self.n_jobs, "random_state": self.seed}


@dataclass(frozen=True)
class Model:
    """A row: what tables call it, the models that are tried (not fitted yet), and the package that it needs."""

    label: str
    tried: Callable[[Settings], list[Any]]
    package: str = "contradpp"
    tuned_on: int = 10**9  # baskets that settings are learned from before one is chosen, where a fit takes minutes
    variant: bool = False  # for the study of ingredients: a row of the benchmark on request only

    @property
    def available(self) -> bool:
        """True if its package is installed."""
        return find_spec(self.package) is not None

    @property
    def ours(self) -> bool:
        """True for a DPP of contradpp, false for a baseline."""
        return "DPP" in self.label and self.package == "contradpp"


class OneThread(Implicit):
    """A model of implicit, whose threads are its own: those of the matrix library would fight with them."""

    def _fit(self, statistics: BasketStatistics) -> None:
        with blas_threads(1):
            super()._fit(statistics)


def _als(settings: Settings) -> list[Any]:
    from implicit.als import AlternatingLeastSquares

    tried = ((64, 10.0, 1.0), (64, 100.0, 10.0), (128, 30.0, 10.0), (64, 300.0, 30.0))
    with blas_threads(1):  # else it warns already when it is made
        models = [
            AlternatingLeastSquares(n, regularization=r, alpha=a, random_state=settings.seed) for n, r, a in tried
        ]
    return [OneThread(model) for model in models]


def _bpr(settings: Settings) -> list[Any]:
    from implicit.bpr import BayesianPersonalizedRanking

    tried = ((64, 0.01, 0.03), (64, 0.01, 0.1), (64, 0.01, 0.3), (32, 0.003, 0.1))
    return [
        OneThread(BayesianPersonalizedRanking(n, learning_rate=s, regularization=r, random_state=settings.seed))
        for n, s, r in tried
    ]


def _lmf(settings: Settings) -> list[Any]:
    from implicit.lmf import LogisticMatrixFactorization

    tried = ((32, 1.0, 0.6), (8, 1.0, 5.0), (32, 1.0, 5.0), (8, 1.0, 20.0))
    return [
        OneThread(LogisticMatrixFactorization(n, learning_rate=s, regularization=r, random_state=settings.seed))
        for n, s, r in tried
    ]


@dataclass
class Item2Vec(Baseline):
    """Skip-gram with negative samples over baskets (Barkan and Koenigstein 2016), by gensim.

    The score of j is Σ_{a∈A} u_a·w_j, with w the vectors of the context or, as in the paper (`cosine`), u themselves,
    scaled to length 1. With negatives drawn uniformly (`ns_exponent` 0) u_a·w_j tends to log P(j | a) and a constant.
    """

    ns_exponent: float = 0.0
    cosine: bool = False
    epochs: int = 10
    size: int = 64
    random_state: int = 0
    n_jobs: int | None = None

    def _fit(self, statistics: BasketStatistics) -> None:
        try:
            from gensim.models import Word2Vec
        except ImportError as error:
            raise MissingExtraError("item2vec is gensim's: pip install -e '.[experiments]'") from error
        train = statistics.train
        words = train.indices.astype(str).tolist()
        trained = Word2Vec(
            [words[first:last] for first, last in pairwise(train.indptr.tolist())],
            vector_size=self.size, window=min(max(int(train.sizes.max()), 2), WIDEST), min_count=1, sg=1, negative=10,
            ns_exponent=self.ns_exponent, epochs=self.epochs, seed=self.random_state, workers=self.n_jobs or 2,
            sample=0.0,
        )  # fmt: skip
        known = np.array(trained.wv.index_to_key, dtype=np.int64)
        self.given_, self.following_ = np.zeros((2, train.n_items, self.size))
        self.given_[known] = trained.wv.get_normed_vectors() if self.cosine else trained.wv.vectors
        self.following_[known] = self.given_[known] if self.cosine else trained.syn1neg

    def write_scores(self, sets: Sets, out: Array) -> None:
        """Score all items by the sum of the vectors of a set."""
        out[:] = (indicator(sets, len(self.known_items)) @ self.given_) @ self.following_.T


class WithoutKernel(ConditionalDPP):
    """The conditional model whose kernel has no expert: what the DPP brings is the difference."""

    def _combine(self, kernel: Any, experts: Any, items: Any, counts: Any, weights: Any = None) -> Combination:
        full = super()._combine(kernel, experts, items, counts)
        features = {name: of_expert for name, of_expert in full.features.items() if name != KERNEL}
        found = Combination({name: full.experts[name] for name in features}, features, full.counts)
        return found if weights is None else replace(found, weights=weights)


def _lowrank(objective: str, **how: Any) -> Callable[[Settings], list[Any]]:
    def tried(settings: Settings) -> list[Any]:
        rank = min(MOST_RANK, int(settings.train.sizes.max()))
        return [LowRankDPP(rank, objective=objective, oversize="drop", **how, **settings.own)]

    return tried


def _mixture(kernel: Any = None) -> Callable[[Settings], list[Any]]:
    return lambda settings: [MixtureDPP(kernel, **settings.own)]


def _item2vec(settings: Settings) -> list[Any]:
    tried = ((0.0, False, 10), (0.0, False, 20), (0.75, False, 10), (0.75, True, 10))
    return [Item2Vec(e, c, n, random_state=settings.seed, n_jobs=settings.n_jobs) for e, c, n in tried]


def _baskets(settings: Settings) -> list[Any]:
    tried = ((1000, 4.0), (300, 4.0), (1000, 2.0))
    return [BasketKNN(n, power, random_state=settings.seed, n_jobs=settings.n_jobs) for n, power in tried]


def _published(name: str, module: str = "rivals", **how: Any) -> Callable[[Settings], list[Any]]:
    """Return a function that makes the models of a class of `rivals.py` or `networks.py`, which is imported then."""

    def tried(settings: Settings) -> list[Any]:
        kind = getattr(import_module(f"experiments.benchmark.{module}"), name)
        own = {key: value for key, value in settings.own.items() if key in signature(kind).parameters}
        return [kind(**one, **how, **own) for one in getattr(kind, "TRIED", [dict[str, Any]()])]

    return tried


def _sparse_ease(settings: Settings) -> list[Any]:
    M = settings.train.n_items
    density = min(max(0.2 if M <= 5000 else 0.0, 200.0 / M), 1.0)
    return [SparseEASE(ridge, density, exact=M <= 5000) for ridge in (50.0, 200.0, 500.0)]


def _ndpp(settings: Settings) -> list[Any]:
    rank = min(MOST_RANK, int(settings.train.sizes.max()))
    return _published("PublishedNDPP", "networks", n_components=rank)(settings)


OBJECTIVES = ("mle", "explicit", "dynamic", "nce", "product", "exact")
MODELS: dict[str, Model] = {
    "popularity": Model("Popularity", lambda _: [Popularity()]),
    "itemknn-cosine": Model("ItemKNN, cosine", lambda _: [ItemKNN(shrinkage=h) for h in SHRINKAGES]),
    "itemknn": Model("ItemKNN, BM25", lambda _: [ItemKNN(weights="bm25", B=b) for b in (0.1, 0.25, 0.75)]),
    "ease": Model("EASE", lambda _: [EASE(ridge) for ridge in (50.0, 200.0, 500.0)]),
    "ridge": Model(
        "RidgeNeighbors",
        lambda settings: [RidgeNeighbors(ridge=r, n_jobs=settings.n_jobs) for r in (20.0, 50.0, 200.0)],
    ),
    "baskets": Model("BasketKNN", _baskets),
    "loglinear": Model(
        "LogLinear", lambda settings: [LogLinear(penalty, **settings.own) for penalty in (1.0, 4.0, 16.0)]
    ),
    "als": Model("implicit ALS", _als, "implicit"),
    "bpr": Model("implicit BPR", _bpr, "implicit"),
    "lmf": Model("implicit LMF", _lmf, "implicit"),
    "item2vec": Model("item2vec (gensim)", _item2vec, "gensim", tuned_on=10_000),
    "sparse-ease": Model("SANSA (sparse EASE)", _sparse_ease, "sansa"),
    "slim": Model("SLIM, elastic net", _published("SLIM")),
    "rp3beta": Model("RP3β", _published("RP3Beta")),
    "gfcf": Model("GF-CF", _published("GFCF")),
    "multvae": Model("Mult-VAE", _published("MultVAE", "networks"), "torch", tuned_on=10_000),
    "set-transformer": Model("masked-set transformer", _published("SetTransformer", "networks"), "torch", 10_000),
    "flid": Model("FLID", _published("FLID", "networks"), "torch", tuned_on=10_000),
    "ndpp": Model("NDPP, as published", _ndpp, "torch"),
    "boosted": Model("boosted trees over our experts", _published("BoostedTrees"), "lightgbm"),
    "boosted-own": Model(
        "boosted trees from ConditionalDPP on", _published("BoostedTrees", own_logit=True), "lightgbm", variant=True
    ),
    **{f"lowrank-{name}": Model(f"LowRankDPP, {name}", _lowrank(name)) for name in OBJECTIVES},
    "nonsymmetric": Model("NonsymmetricDPP", lambda settings: [NonsymmetricDPP(**settings.own)]),
    "mixture": Model("MixtureDPP", _mixture()),
    "mixture-symmetric": Model("MixtureDPP, symmetric kernel", _mixture(NonsymmetricDPP(n_skew=0))),
    "mixture-independent": Model("MixtureDPP, independent items", _mixture(NonsymmetricDPP(0, 0))),
    WITHOUT_KERNEL: Model(
        "ConditionalDPP, no kernel", lambda settings: [WithoutKernel(NonsymmetricDPP(1, 0, max_iter=1), **settings.own)]
    ),
    OURS: Model("ConditionalDPP", lambda settings: [ConditionalDPP(**settings.own)]),
    "lowrank-mle-random": Model(
        "LowRankDPP, mle, random start, no annealing", _lowrank("mle", init="uniform", anneal=False), variant=True
    ),
    "lowrank-mle-unannealed": Model("LowRankDPP, mle, no annealing", _lowrank("mle", anneal=False), variant=True),
    "lowrank-dynamic-unscaled": Model(
        "LowRankDPP, dynamic, scale as trained", _lowrank("dynamic", calibrate=None), variant=True
    ),
    "diagonal": Model(
        "NonsymmetricDPP, no skew part", lambda settings: [NonsymmetricDPP(n_skew=0, **settings.own)], variant=True
    ),
}
ROWS = tuple(name for name, model in MODELS.items() if not model.variant)


# -- Ingredients -----------------------------------------------------------------------------------------


class Ingredient(NamedTuple):
    """A difference between two models that are alike otherwise."""

    label: str
    with_it: str
    without: str

    @property
    def pair(self) -> str:
        """The two models in words."""
        return f"{self.with_it} over {self.without}"


GENERATED = ("product", "explicit", "nce", "dynamic", "exact")
INGREDIENTS = (
    Ingredient("a start from popularity", "lowrank-mle-unannealed", "lowrank-mle-random"),
    Ingredient("annealing", "lowrank-mle", "lowrank-mle-unannealed"),
    *(Ingredient(f"negatives: {name}", f"lowrank-{name}", "lowrank-mle") for name in GENERATED),
    Ingredient("a scale set by likelihood", "lowrank-dynamic", "lowrank-dynamic-unscaled"),
    Ingredient("a diagonal", "diagonal", "lowrank-exact"),
    Ingredient("a skew part", "nonsymmetric", "diagonal"),
    Ingredient("the other experts", OURS, "nonsymmetric"),
    Ingredient("the kernel among the experts", OURS, WITHOUT_KERNEL),
)
