"""The table of experts of a `ConditionalDPP`: how each is made, and the features of its scores.

To add an expert, write a baseline and give it a row of `EXPERTS`. A user's own models need no row:
their features follow from what they are (`features_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads
from contradpp._types import Array, Codes, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, without_each
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import files
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.mixture import Mixture
from contradpp.errors import ModelFileError, ParameterError
from contradpp.experts.base import Baseline
from contradpp.experts.basket_knn import BasketKNN
from contradpp.experts.ease import EASE
from contradpp.experts.item_knn import ItemKNN
from contradpp.experts.loglinear import DENSE_UP_TO, LogLinear
from contradpp.experts.popularity import Popularity
from contradpp.experts.ridge import RidgeNeighbors
from contradpp.experts.statistics import BasketStatistics

IDENTITY, ROOT, LOG = 0, 1, 2  # transforms of a score
DEFAULT_EXPERTS = (
    "popularity",
    "ridge",
    "item_knn",
    "basket_knn",
    "loglinear",
    "mixture",
    "history",
)
WITHOUT_BASKETS = ("popularity", "ridge", "loglinear", "mixture")  # files need no baskets for them
KERNEL = "kernel"  # the name of the DPP among the experts
MIXTURE = "mixture"  # and of its clusters
SAVED_MODELS: dict[str, type[Baseline]] = {
    model.__name__: model
    for model in (EASE, BasketKNN, ItemKNN, LogLinear, Popularity, RidgeNeighbors)
}


class Feature(NamedTuple):
    """A transform of an expert's score x: x, its signed root, or log(x + floor) of x ≥ 0."""

    transform: int
    floor: float = 0.0
    mean: bool = False  # x is first divided by the size of the basket

    def write(self, scores: Array, sizes: Ints, out: NDArray[np.floating]) -> None:
        """Write the feature of scores (n, M) given baskets of these sizes; in place if same."""
        rates = 1.0 / np.maximum(sizes, 1) if self.mean else np.ones(1)
        np.multiply(scores, rates[:, None], out=out, casting="same_kind")
        if self.transform == ROOT:
            root = np.sqrt(np.abs(out))
            np.copysign(root, out, out=out)
        elif self.transform == LOG:
            np.fmax(out, 0.0, out=out)
            out += self.floor
            np.log(out, out=out)

    def of_means(self, scores: Array) -> Array:
        """Return the feature of scores (m,) that are divided by the size already."""
        out = np.empty((1, len(scores)))
        self.write(scores[None], np.ones(1, dtype=np.int64), out)
        return out.ravel()


class Expert(Protocol):
    """A model that scores all items given a set."""

    def write_scores(self, sets: Sets, out: Array) -> None:
        """Write the scores of all items given every set (n_sets, M)."""

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        """Write the scores given every set without each of its entries in turn (nnz, M)."""


class ExpertSpec(NamedTuple):
    """A row of the table: a name in `experts_` and in model files, and how to make that expert."""

    make: Callable[[], Baseline]  # returns it unfitted
    features: tuple[Feature, ...]  # of its scores; the last one stands for it in products
    word: str  # that selects it in `ConditionalDPP(experts=...)`, perhaps together with others
    max_items: float = np.inf  # in larger catalogs it is left out


# Chosen on validation parts of amazon, uk and belgian (experiments/results/studies.md).
_LOG_MEAN = Feature(LOG, 1e-4, mean=True)
EXPERTS = {
    "popularity": ExpertSpec(Popularity, (Feature(LOG),), "popularity"),
    "ridge": ExpertSpec(
        lambda: RidgeNeighbors(ridge=20.0), (Feature(IDENTITY), Feature(ROOT)), "ridge"
    ),
    "item_knn_share": ExpertSpec(lambda: ItemKNN(weights="share"), (_LOG_MEAN,), "item_knn"),
    "item_knn_cosine": ExpertSpec(lambda: ItemKNN(weights="cosine"), (_LOG_MEAN,), "item_knn"),
    "basket_knn": ExpertSpec(lambda: BasketKNN(shrinkage=3.0), (Feature(LOG, 1e-4),), "basket_knn"),
    "loglinear": ExpertSpec(LogLinear, (Feature(IDENTITY),), "loglinear", max_items=1000),
}


def features_of(name: str, expert: Any) -> tuple[Feature, ...]:
    """Return the features of an expert by its name, or by its type if it is the user's.

    The scores of a user's model count as probabilities, but for those of a `LogLinear`.
    """
    if name in EXPERTS:
        return EXPERTS[name].features
    return EXPERTS["loglinear"].features if isinstance(expert, LogLinear) else (Feature(LOG, 1e-6),)


@dataclass
class KernelExpert:
    """The DPP, or a mixture, as an expert: P(A∪j) / P(A)."""

    distribution: Kernel | Mixture
    n_items: int  # items that the experts know; the kernel may have later ones behind them

    @property
    def features(self) -> tuple[Feature, ...]:
        """The logarithm, floored at 1e-9 of the mean L_jj."""
        return (Feature(LOG, 1e-9 * float(self.distribution.squared_norms[: self.n_items].mean())),)

    def write_scores(self, sets: Sets, out: Array) -> None:
        _write_first(self.distribution.write_scores, self.distribution.n_items, sets, out)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        write = self.distribution.write_scores_without_each
        _write_first(write, self.distribution.n_items, sets, out)

    def scores_given_prefixes(self, codes: Codes, items: Ints) -> Array:
        """Score items given the first 0, 1, ..., n of the codes (n + 1, m)."""
        return self.distribution.scores_given_prefixes(codes, items)


@dataclass
class ClusterExpert:
    """The clusters of a mixture as an expert: L_jj Σ_c r_c(A) exp(u_cj), without interactions."""

    mixture: Mixture
    n_items: int

    @property
    def features(self) -> tuple[Feature, ...]:
        """The logarithm, floored at 1e-9 of the mean."""
        return (Feature(LOG, 1e-9 * float(self.mixture.squared_norms[: self.n_items].mean())),)

    def write_scores(self, sets: Sets, out: Array) -> None:
        _write_first(self.mixture.write_cluster_scores, self.mixture.n_items, sets, out)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        write = partial(self.mixture.write_cluster_scores, each=True)
        _write_first(write, self.mixture.n_items, sets, out)


def _write_first(
    write: Callable[[Sets, Array], None], n_items: int, sets: Sets, out: Array
) -> None:
    """Write the scores of the first items, as many as `out` has columns."""
    scores = out if out.shape[1] == n_items else np.empty((len(out), n_items))
    with blas_threads(1):
        write(sets, scores)
    if scores is not out:
        out[:] = scores[:, : out.shape[1]]


@dataclass
class ExternalExpert:
    """A user's model with `predict_next`, whose catalog may differ."""

    model: Any
    items: Vocabulary

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        self.write_scores(without_each(sets), out)

    def write_scores(self, sets: Sets, out: Array) -> None:
        queries = Baskets(sets.indptr, sets.indices, self.items)
        known: Any = getattr(self.model, "items_", self.items)
        if list(known) == list(self.items):
            out[:] = self.model.predict_next(queries)
            return
        codes = np.array([self.items.code(item) if item in self.items else -1 for item in known])
        queries = queries.recode(Vocabulary(known), unknown="ignore")
        scores = np.asarray(self.model.predict_next(queries))
        out[:] = 0.0
        out[:, codes[codes >= 0]] = scores[:, codes >= 0]


# -- Selecting and fitting -------------------------------------------------------------------------


def select_experts(experts: Sequence[Any], n_items: int = 0) -> dict[str, Any]:
    """Return the unfitted experts by name that suit a catalog of this size; 0 for any size."""
    if isinstance(experts, str) or not isinstance(experts, Iterable):
        raise ParameterError(f"experts must be a sequence of names and models, got {experts!r}")
    selected: dict[str, Any] = {}
    for expert in experts:
        if isinstance(expert, str):
            if expert not in DEFAULT_EXPERTS:
                words = ", ".join(map(repr, DEFAULT_EXPERTS))
                raise ParameterError(f"experts knows {words}, and models; got {expert!r}")
            for name, spec in EXPERTS.items():
                if spec.word == expert and n_items <= spec.max_items:
                    selected[name] = spec.make()
        elif hasattr(expert, "predict_next") and not isinstance(expert, type):
            base = type(expert).__name__
            name, count = base, 1
            while name in selected:
                count += 1
                name = f"{base}{count}"
            selected[name] = expert
        else:
            raise ParameterError(f"an expert needs predict_next, which {expert!r} lacks")
    return selected


def select_fitted_experts(
    experts: Sequence[Any], fitted: Mapping[str, Any], n_items: int
) -> dict[str, Any]:
    """Return the unfitted experts of a fitted model, or raise `ParameterError` if they differ."""
    selected = select_experts(experts)
    left_out = {
        name
        for name in selected.keys() - fitted.keys()
        if name in EXPERTS and EXPERTS[name].max_items < np.inf
    }
    if selected.keys() - left_out != fitted.keys():
        raise ParameterError(
            "experts differ from those that the model was fitted with: fit it anew"
        )
    if n_items > DENSE_UP_TO and any(isinstance(one, LogLinear) for one in fitted.values()):
        raise ParameterError(
            f"{n_items:,} items are too many for the expert LogLinear of this model: fit it anew"
        )
    return {name: selected[name] for name in fitted}


def fit_experts(
    experts: Mapping[str, Any], statistics: BasketStatistics, n_jobs: int | None = None
) -> dict[str, Any]:
    """Return copies of the experts fitted to the baskets; fitted models of the user's stay.

    Experts of the table use `n_jobs` threads.
    """
    fitted: dict[str, Any] = {}
    for name, expert in experts.items():
        if name in EXPERTS:
            copy = deepcopy(expert)
            copy.n_jobs = n_jobs
            fitted[name] = copy.fit_statistics(statistics)
        elif isinstance(expert, Baseline) or (
            hasattr(expert, "fit") and not hasattr(expert, "items_")
        ):
            fitted[name] = deepcopy(expert).fit(statistics.train)
        else:
            fitted[name] = expert
        if isinstance(fitted[name], Baseline):
            # A file holds float32: the round trip gives the same answers after loading.
            fitted[name].set_arrays(statistics.train, fitted[name].arrays())
    return fitted


# -- Files -----------------------------------------------------------------------------------------


def needs_baskets(expert: Any) -> bool:
    """Return whether an expert of a model file learns anew from the training baskets."""
    return not getattr(expert, "ARRAYS", True) and not isinstance(expert, Popularity)


def expert_contents(experts: Mapping[str, Any]) -> tuple[files.Tensors, list[dict[str, Any]]]:
    """Return the experts as a model file holds them: tensors, and a description for JSON."""
    tensors: files.Tensors = {}
    descriptions = []
    for name, expert in experts.items():
        model = type(expert).__name__
        if model not in SAVED_MODELS:
            raise ModelFileError(f"the expert {name!r} ({model}) cannot be written to a model file")
        params = files.plain_params(expert.get_params())
        descriptions.append({"name": name, "model": model, "params": params})
        tensors |= {f"expert.{name}.{part}": values for part, values in expert.arrays().items()}
    return tensors, descriptions


def restore_experts(
    tensors: files.Tensors, descriptions: Iterable[Mapping[str, Any]], baskets: Baskets
) -> dict[str, Any]:
    """Return the fitted experts of a model file."""
    experts: dict[str, Any] = {}
    statistics = BasketStatistics(baskets)  # co-occurrences are counted once for all
    for one in descriptions:
        name = str(one["name"])
        expert = SAVED_MODELS[one["model"]](**one["params"])
        arrays = {part: tensors[f"expert.{name}.{part}"] for part in expert.ARRAYS}
        experts[name] = expert.fit_statistics(statistics, arrays)
    return experts


def restore_parameter(experts: Mapping[str, Any], words: Iterable[str]) -> tuple[Any, ...]:
    """Return the parameter `experts` of a model file: words for rows of the table, else models."""
    found = [EXPERTS[name].word if name in EXPERTS else expert for name, expert in experts.items()]
    found += map(str, words)
    return tuple(word for k, word in enumerate(found) if word not in found[:k])
