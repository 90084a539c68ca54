"""Quality that depends on the basket: what several experts say of the next item, and how much each of them counts.

    P(next = j | A) ∝ exp(τ(A) Σ_f θ_f(A) f_j(A) + ρ(A) Σ_{u≤v} φ_uv z_u z_v),    θ(A) = θ₀ + θ₁ log|A| + θ₂ doubt(A),

where doubt(A) is the mean of κ/(κ + n_a) over the items of A, n_a being how many baskets had a: of the company of an
item that hardly ever sold little is known, and experts may count less. The features f are scores of experts in one of a
few shapes (`KINDS`); z_v is the last feature of expert v, in units of its spread: what an expert says may count for
less, or more, where others say the same. θ and φ maximise the likelihood of held-out items given the rest of their
baskets, which no expert has seen. This is concave: the contrastive objective of the kernel, in closed form. People ask
with one item or two, of which whole baskets say little: τ and ρ, of the same form as θ, are learned from parts of
baskets as well, θ and φ being what they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from contradpp import experts
from contradpp._random import stream
from contradpp._threads import T, blas_threads, results_of_blocks, run_blocks
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, pointers, runs, take_sets, without_each
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import persist, scoring
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.persist import Stored
from contradpp.dpp.scoring import top_n
from contradpp.errors import ModelFileError, NumericalError, ParameterError
from contradpp.experts.base import SCORES_PER_BLOCK, Baseline
from contradpp.experts.baselines import EASE, BasketNeighbours, ItemKNN, Popularity, RidgeNeighbours
from contradpp.experts.loglinear import DENSE_UP_TO, LogLinear
from contradpp.experts.statistics import Labour

Array = NDArray[np.float64]
Entries = NDArray[np.int64]

MOST_SCORES = 2**22  # of one expert that are at hand together
CIRCUMSTANCES = 3  # of a basket that weights depend on: 1, log|A| and doubt(A)
MOST_WEIGHT = 1e100  # of a feature in a file: what more is multiplied by might overflow
SUPPORT = 10.0  # κ: sales of an item at which doubt is a half
PRIOR = 10.0  # the precision of θ before any data, in units of a feature's spread: as if from some ten questions
PAIR_PRIOR = 100.0  # that of φ
QUIETEST = 0.1  # the least τ; that of ρ is 0

N_QUESTIONS, N_PARTS = 8000, 4000  # held-out items from which θ and φ are learned, and τ and ρ besides
N_BEST, N_RANDOM = 60, 240  # competitors of each: the best of every expert, and a sample that stands for the rest
ALL_UP_TO = 600  # items: all of them compete
LOUDNESS_PRIOR = 100.0  # the precision of τ and ρ before any data, in units of the spread of what they multiply

PLAIN, ROOT, LOG = 0, 1, 2


# -- Experts and their features --------------------------------------------------------------------


class Feature(NamedTuple):
    """A shape of a voice's score x: x, its signed root, or log(x + floor), where x is no less than zero."""

    shape: int
    floor: float = 0.0
    mean: bool = False  # x is divided by the size of the basket first

    def write(self, scores: Array, sizes: NDArray[np.int64], out: NDArray[np.floating]) -> None:
        """Write the feature of scores (n, M) given baskets of these sizes; both may be the same array."""
        rates = 1.0 / np.maximum(sizes, 1) if self.mean else np.ones(1)
        np.multiply(scores, rates[:, None], out=out, casting="same_kind")
        if self.shape == ROOT:
            root = np.sqrt(np.abs(out))
            np.copysign(root, out, out=out)
        elif self.shape == LOG:
            np.fmax(out, 0.0, out=out)
            out += self.floor
            np.log(out, out=out)


class Voice(Protocol):
    """An expert: a baseline, or what is asked like one."""

    def write_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        """Write the scores of all items given every set, or with `each` every set without each of its entries."""


class Kind(NamedTuple):
    """A voice by name: how it is made, and its features. `part_of` is the word by which a user asks for it."""

    make: Callable[[], Baseline]
    features: tuple[Feature, ...]
    part_of: str
    up_to: float = np.inf  # items: in larger catalogues it is silent


# Settings were chosen on validation parts of amazon, uk and belgian (docs/beyond.md).
KINDS = {
    "popularity": Kind(Popularity, (Feature(LOG),), "popularity"),
    "ridge": Kind(lambda: RidgeNeighbours(ridge=20.0), (Feature(PLAIN), Feature(ROOT)), "ridge"),
    "share": Kind(lambda: ItemKNN(weights="share"), (Feature(LOG, 1e-4, mean=True),), "neighbours"),
    "cosine": Kind(lambda: ItemKNN(weights="cosine"), (Feature(LOG, 1e-4, mean=True),), "neighbours"),
    "baskets": Kind(lambda: BasketNeighbours(shrinkage=3.0), (Feature(LOG, 1e-4),), "baskets"),
    "loglinear": Kind(LogLinear, (Feature(PLAIN),), "loglinear", up_to=1000),
}
DEFAULT = ("popularity", "ridge", "neighbours", "baskets", "loglinear")
KERNEL = "kernel"  # the name of the DPP among the voices
OF_OTHERS = (Feature(LOG, 1e-6),)  # of a model of the user's: its probabilities


def features_of(name: str, voice: Any) -> tuple[Feature, ...]:
    """The features of a voice: those of its name, or of its scores, which are logits or else as good as shares."""
    if name in KINDS:
        return KINDS[name].features
    return KINDS["loglinear"].features if isinstance(voice, LogLinear) else OF_OTHERS


@dataclass
class KernelVoice:
    """The DPP: det L_{A∪j} / det L_A."""

    kernel: Kernel
    n_items: int  # that the voices know: the kernel may have others behind them, which came later

    @property
    def features(self) -> tuple[Feature, ...]:
        """The logarithm, of at least 1e-9 of what a mean item has on its own."""
        return (Feature(LOG, 1e-9 * float(self.kernel.squared_norms[: self.n_items].mean())),)

    def write_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        write = scoring.write_scores_without_each if each else scoring.write_scores_given
        told = out if self.n_items == self.kernel.n_items else np.empty((len(out), self.kernel.n_items))
        with blas_threads(1):
            write(self.kernel, sets, told)
        if told is not out:
            out[:] = told[:, : self.n_items]


@dataclass
class OtherVoice:
    """A model of the user's with `predict_next`, whose catalogue may be another."""

    model: Any
    items: Vocabulary

    def write_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        if each:
            sets = without_each(sets)
        asked = Baskets(sets.indptr, sets.indices, self.items)
        known: Any = getattr(self.model, "items_", self.items)
        if list(known) == list(self.items):
            out[:] = self.model.predict_next(asked)
            return
        mine = np.array([self.items.code(item) if item in self.items else -1 for item in known])
        told = np.asarray(self.model.predict_next(asked.recode(Vocabulary(known), unknown="ignore")))
        out[:] = 0.0
        out[:, mine[mine >= 0]] = told[:, mine >= 0]


def kinds_of(relevance: Sequence[Any], n_items: int = 0) -> dict[str, Any]:
    """The voices by name that speak in a catalogue of so many items: a row of the table, or a model of the user's."""
    if isinstance(relevance, str) or not isinstance(relevance, Iterable):
        raise ParameterError(f"relevance must be a sequence of names and models, got {relevance!r}")
    words = list(dict.fromkeys(kind.part_of for kind in KINDS.values()))
    kinds: dict[str, Any] = {}
    for voice in relevance:
        if isinstance(voice, str):
            if voice not in words:
                raise ParameterError(f"relevance knows {', '.join(map(repr, words))}, and models; got {voice!r}")
            kinds |= {name: kind for name, kind in KINDS.items() if kind.part_of == voice and n_items <= kind.up_to}
        elif hasattr(voice, "predict_next") and not isinstance(voice, type):
            name = base = type(voice).__name__
            count = 1
            while name in kinds:
                count += 1
                name = f"{base}{count}"
            kinds[name] = voice
        else:
            raise ParameterError(f"a voice needs predict_next, which {voice!r} lacks")
    return kinds


def same_kinds(relevance: Sequence[Any], voices: Mapping[str, Any], n_items: int) -> dict[str, Any]:
    """The kinds of fitted voices, to be fitted again to a catalogue of so many items, or ParameterError."""
    kinds = kinds_of(relevance)
    silent = {name for name in kinds.keys() - voices.keys() if name in KINDS and KINDS[name].up_to < np.inf}
    if kinds.keys() - silent != voices.keys():
        raise ParameterError("the voices (relevance) are not those that the model was fitted with: fit it anew")
    if n_items > DENSE_UP_TO and any(isinstance(voice, LogLinear) for voice in voices.values()):
        raise ParameterError(f"{n_items:,} items are too many for the voice LogLinear of this model: fit it anew")
    return {name: kinds[name] for name in voices}


def fit_voices(kinds: Mapping[str, Any], labour: Labour, n_jobs: int | None = None) -> dict[str, Any]:
    """The voices, fitted to the baskets of this labour; a model of the user's that is fitted already stays as it is.

    Threads are those of the model that listens, but for models of the user's.
    """
    voices: dict[str, Any] = {}
    for name, kind in kinds.items():
        if name in KINDS:
            voices[name] = kind.make()
            voices[name].n_jobs = n_jobs
            voices[name].fit_by(labour)
        elif not isinstance(kind, Baseline) and (hasattr(kind, "items_") or not hasattr(kind, "fit")):
            voices[name] = kind
        else:
            voices[name] = deepcopy(kind).fit(labour.train)
        if isinstance(voices[name], Baseline):  # a file holds float32: no other answers after loading
            voices[name].take_learned(labour.train, voices[name].learned())
    return voices


# -- Weights ---------------------------------------------------------------------------------------


class Pairs(NamedTuple):
    """The products of what two voices say of an item, and the squares."""

    columns: Entries  # (V,): the feature that stands for each voice
    centre: Array  # (V,)
    spread: Array  # (V,)

    @property
    def n_products(self) -> int:
        """P."""
        return len(self.columns) * (len(self.columns) + 1) // 2

    @property
    def measured(self) -> bool:
        """Whether there were ever questions that said what is far from the centre."""
        return bool(self.centre.any())

    @property
    def places(self) -> tuple[Entries, Entries]:
        """The two voices of every product."""
        return np.triu_indices(len(self.columns))

    def steps(self, features: NDArray[np.floating]) -> NDArray[np.floating]:
        """z of every voice (..., V), given its feature."""
        z = (features - self.centre.astype(features.dtype)) / self.spread.astype(features.dtype)
        return np.clip(z, -experts.compiled.FARTHEST, experts.compiled.FARTHEST, out=z)

    def pulls(self, features: Array, both: Array) -> Array:
        """Σ_u φ_uv z_u of every voice v, half of it where u is another: with z_v and summed, all products (m, V)."""
        Q, (one, other) = np.zeros((len(self.columns),) * 2), self.places
        Q[one, other] += both / 2
        Q[other, one] += both / 2
        pulls: Array = self.steps(features) @ Q
        return pulls

    def appended(self, features: NDArray[np.floating]) -> NDArray[np.floating]:
        """The features, and their products behind them (..., F + P)."""
        if not len(self.columns):
            return features
        z, (one, other) = self.steps(features[..., self.columns]), self.places
        return np.concatenate([features, z[..., one] * z[..., other]], axis=-1)


AS_LEARNED = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
NO_PAIRS = Pairs(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))


class Weights(NamedTuple):
    """θ with φ behind θ₀, and how sure of it the data are; φ does not depend on the basket."""

    theta: Array  # (3, F + P): θ₀, θ₁ and θ₂
    precision: Array  # of all of them: minus the second derivatives of the log-likelihood, and the prior's; ∞ if fixed
    pairs: Pairs = NO_PAIRS
    loudness: Array = AS_LEARNED  # (3, 2): τ and ρ

    def contents(self) -> persist.Tensors:
        """What a model file holds of it."""
        scales = {"pairs.centre": self.pairs.centre, "pairs.spread": self.pairs.spread}
        arrays = {"theta": self.theta, "theta.precision": self.precision, "loudness": self.loudness}
        return persist.stored_arrays(arrays | scales, STORED_WEIGHTS)

    @classmethod
    def restored(cls, n_features: Sequence[int], tensors: persist.Tensors) -> Weights:
        """From a model file, for experts with so many features each, or ValueError if it is damaged."""
        if not STORED_WEIGHTS.keys() <= tensors.keys():
            raise ValueError("its weights are of an earlier version: fit the model again")
        columns = last_of_each(n_features)
        n = sum(n_features) + len(columns) * (len(columns) + 1) // 2
        sizes = {"weights": n, "all": CIRCUMSTANCES * n, "experts": len(columns)}
        found = persist.read_arrays(tensors, STORED_WEIGHTS, "weights", **sizes)
        pairs = Pairs(columns, found["pairs.centre"], found["pairs.spread"])
        return cls(found["theta"], found["theta.precision"], pairs, found["loudness"])


STORED_WEIGHTS = {
    "theta": Stored((CIRCUMSTANCES, "weights"), low=-MOST_WEIGHT, high=MOST_WEIGHT),
    "theta.precision": Stored(("all", "all"), low=-np.inf, high=np.inf),
    "loudness": Stored(AS_LEARNED.shape, low=-MOST_WEIGHT, high=MOST_WEIGHT),
    "pairs.centre": Stored(("experts",), low=-MOST_WEIGHT, high=MOST_WEIGHT),
    "pairs.spread": Stored(("experts",), low=1.0 / MOST_WEIGHT, high=MOST_WEIGHT),
}


def last_of_each(n_features: Sequence[int]) -> Entries:
    """The feature that stands for each voice, of which there are so many each."""
    return np.cumsum(n_features, dtype=np.int64) - 1


@dataclass
class Relevance:
    """Voices by name, the features of each, and their weights; the kernel alone counts if these are left out.

    `counts` says how many baskets had each item that the voices know.
    """

    voices: Mapping[str, Voice]
    features: Mapping[str, tuple[Feature, ...]]
    counts: NDArray[np.number]
    weights: Weights = field(default_factory=lambda: Weights(np.empty((CIRCUMSTANCES, 0)), np.empty((0, 0))))

    @classmethod
    def of(
        cls, kernel: Kernel, voices: Mapping[str, Any], items: Vocabulary, counts: NDArray[np.number],
        weights: Weights | None = None,
    ) -> Relevance:  # fmt: skip
        """These voices, models of the user's among them, and the kernel, over the items that the voices know.

        There may be counts of further items behind those.
        """
        asked: dict[str, Voice] = {
            name: voice if isinstance(voice, Baseline) else OtherVoice(voice, items) for name, voice in voices.items()
        }
        features = {name: features_of(name, voice) for name, voice in voices.items()}
        own = KernelVoice(kernel, len(items))
        told = {} if weights is None else {"weights": weights}
        return cls(asked | {KERNEL: own}, features | {KERNEL: own.features}, counts[: len(items)], **told)

    def __post_init__(self) -> None:
        if not self.weights.theta.size:
            pairs = Pairs(self.last_of_voices, np.zeros(len(self.features)), np.ones(len(self.features)))
            self.weights = self.before(pairs, np.ones(self.n_features + pairs.n_products))
        self._doubts = SUPPORT / (SUPPORT + np.asarray(self.counts, dtype=np.float64))
        self._static: dict[str, Array] = {}  # features that do not depend on the basket
        for name, voice in self.voices.items():
            if isinstance(voice, Popularity):
                self._static[name] = voice.probabilities_[None].copy()
                self.features[name][0].write(self._static[name], np.ones(1, dtype=np.int64), self._static[name])

    @property
    def n_features(self) -> int:
        """F."""
        return sum(map(len, self.features.values()))

    @property
    def names(self) -> list[str]:
        """The voice of every feature."""
        return [name for name, features in self.features.items() for _ in features]

    @property
    def last_of_voices(self) -> Entries:
        """The feature that stands for each voice."""
        return last_of_each([len(features) for features in self.features.values()])

    def before(self, pairs: Pairs, spread: Array) -> Weights:
        """What is known of the weights before any data: only the kernel counts, or popularity if there is none.

        `spread` is that of every feature and product.
        """
        names, F = self.names, self.n_features
        theta = np.zeros((CIRCUMSTANCES, len(spread)))
        theta[0, names.index(KERNEL) if KERNEL in names else 0] = 1.0
        precision = np.tile(np.square(spread), (CIRCUMSTANCES, 1))
        precision[:, :F] *= PRIOR
        precision[0, F:] *= PAIR_PRIOR
        precision[1:, F:] = np.inf
        return Weights(theta, np.diag(precision.ravel()), pairs)

    def circumstances(self, sets: Sets, *, each: bool = False) -> Array:
        """1, log|A| and doubt(A) of every set, or with `each` every set without each of its entries (n, 3)."""
        sizes, doubts = sets.sizes, self._doubts[sets.indices]
        owner = np.repeat(np.arange(sets.count), sizes)
        total = np.bincount(owner, doubts, sets.count).astype(np.float64)
        if each:
            sizes, total = sizes[owner] - 1, total[owner] - doubts
        return np.stack([np.ones(len(sizes)), log_sizes(sizes), total / np.maximum(sizes, 1)], axis=1)

    def theta(self, circumstances: Array) -> Array:
        """τθ and ρφ of baskets (n_baskets, F + P)."""
        theta: Array = circumstances @ self.weights.theta
        loudness = self.loudness(circumstances)
        theta[:, : self.n_features] *= loudness[:, :1]
        theta[:, self.n_features :] *= loudness[:, 1:]
        return theta

    def loudness(self, circumstances: Array) -> Array:
        """τ and ρ of baskets (n_baskets, 2)."""
        loudness: Array = np.maximum(circumstances @ self.weights.loudness, [QUIETEST, 0.0])
        return loudness

    def write_logits(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        """Write the logits of every item given every set, or with `each` every set without each of its entries."""
        at_once = max(MOST_SCORES // out.shape[1], 1)
        if len(out) > at_once:  # what every voice says has to be at hand
            whole = without_each(sets) if each else sets
            for first in range(0, len(out), at_once):
                part = np.arange(first, min(first + at_once, len(out)))
                self.write_logits(take_sets(whole, part), out[first : first + len(part)])
            return
        sizes = np.repeat(sets.sizes - 1, sets.sizes) if each else sets.sizes
        theta = self.theta(self.circumstances(sets, each=each))
        told = np.empty((len(self.features), *out.shape))
        out[:] = 0.0
        f = 0
        for row, (name, features) in zip(told, self.features.items(), strict=True):
            if name in self._static:
                row[:] = self._static[name]
                f += 1
                continue
            self.voices[name].write_scores(sets, row, each=each)
            for feature in features[:-1]:
                value = np.empty_like(row)
                feature.write(row, sizes, value)
                value *= theta[:, f, None]
                out += value
                f += 1
            features[-1].write(row, sizes, row)
            f += 1
        pairs = self.weights.pairs
        alone, both = map(np.ascontiguousarray, (theta[:, pairs.columns], theta[:, self.n_features :]))
        experts.compiled.add_pairs(told, pairs.centre, pairs.spread, alone, both, out)

    def write_features(self, sets: Sets, out: NDArray[np.floating]) -> None:
        """Write the features of all items given every set without each of its entries (F, nnz, M)."""
        sizes, scores = np.repeat(sets.sizes - 1, sets.sizes), np.empty(out.shape[1:])
        f = 0
        for name, features in self.features.items():
            if name in self._static:
                out[f] = self._static[name]
                f += 1
                continue
            self.voices[name].write_scores(sets, scores, each=True)
            for feature in features:
                feature.write(scores, sizes, out[f])
                f += 1


def log_sizes(sizes: NDArray[np.int64]) -> Array:
    """log n as θ takes it."""
    logs: Array = np.log(np.maximum(sizes, 1))
    return logs


# -- Learning the weights --------------------------------------------------------------------------


class Questions(NamedTuple):
    """Held-out items, each with those that it competes with; it comes first itself."""

    features: NDArray[np.floating]  # (N, C, F), without products
    log_counts: NDArray[np.floating]  # (N, C): for how many items a competitor stands; −inf where there is none
    given: Array  # (N, R): the circumstances of what is left of the basket, or some of them
    codes: NDArray[np.int32] = np.zeros((0, 0), dtype=np.int32)  # (N, C): the items; where there is none, any
    pairs: Pairs = NO_PAIRS  # of which features there are products

    @property
    def blocks(self) -> list[slice]:
        """Questions that are looked at together: products take much memory."""
        N, C, F = self.features.shape
        n = max(SCORES_PER_BLOCK // max(C * (F + self.pairs.n_products), 1), 1)
        return [slice(first, min(first + n, N)) for first in range(0, N, n)]

    def part(self, rows: slice) -> tuple[NDArray[np.floating], NDArray[np.floating], Array]:
        """Features with products, counts and circumstances of some of the questions."""
        X = self.features[rows]
        return self.pairs.appended(X), self.log_counts[rows], self.given[rows]

    def each_block(self, work: Callable[[slice], T], n_jobs: int) -> list[T]:
        """What is found of every block of questions, on threads."""
        blocks = self.blocks
        with blas_threads(1):
            return results_of_blocks(lambda block: work(blocks[block]), len(blocks), n_jobs)

    def times(self, weights: Array, n_jobs: int = 1) -> Array:
        """Features and products times the weights of every question (N, F + P, n), where there is a competitor."""
        parts = self.each_block(lambda rows: np.matmul(self.part(rows)[0], weights[rows]), n_jobs)
        return np.concatenate(parts)

    def logits(self, weights: Array, n_jobs: int = 1) -> Array:
        """Of every question and competitor, where there is one (N, C), for weights of every question (N, F + P)."""
        logits: Array = self.times(weights[..., None], n_jobs)[..., 0]
        return logits

    def spread(self, n_jobs: int = 1) -> Array:
        """The standard deviation of every feature and product within a question, on average, 1 where there is none."""

        def squares(rows: slice) -> Array:
            X, log_counts, _ = self.part(rows)
            real = np.isfinite(log_counts)[..., None]
            count = np.maximum(real.sum(axis=1), 1)
            features = np.where(real, X, 0.0).astype(np.float64)
            mean = features.sum(axis=1) / count
            found: Array = (np.square(np.where(real, features - mean[:, None], 0.0)).sum(axis=1) / count).sum(axis=0)
            return found

        spread = np.sqrt(sum(self.each_block(squares, n_jobs)) / len(self.features))
        return np.where(spread > 0, spread, 1.0)

    def measured(self, columns: Entries) -> Questions:
        """With products of these features, in units of their spread over all competitors."""
        real = np.isfinite(self.log_counts)
        centre, spread = np.empty((2, len(columns)))
        for k, column in enumerate(columns.tolist()):
            values = self.features[..., column][real].astype(np.float64)
            centre[k], spread[k] = values.mean(), values.std()
        return self._replace(pairs=Pairs(columns, centre, np.where(spread > 0, spread, 1.0)))


def choose_baskets(baskets: Baskets, n: int, seed: int) -> Baskets:
    """Whole baskets of two items and more, at random, until they hold n items."""
    eligible = stream(seed, 0).permutation(np.flatnonzero(baskets.sizes >= 2))
    enough = int(np.searchsorted(np.cumsum(baskets.sizes[eligible]), n)) + 1
    return baskets.subset(np.sort(eligible[:enough]))


def choose_parts(baskets: Baskets, n: int, seed: int) -> Baskets:
    """Random parts, of two items and more, of baskets at random, until they hold n items: few items as often as many.

    The logarithm of a part's size is uniform between those of two and the basket's. Parts hold no more items than the
    baskets together do: the same few baskets over and over would say no more.
    """
    rng = stream(seed, 2)
    order = rng.permutation(np.flatnonzero(baskets.sizes >= 2))
    n = min(n, int(baskets.sizes[order].sum()))
    parts: list[NDArray[np.int32]] = []
    asked = 0
    for basket in itertools.cycle(order.tolist()):
        codes = baskets.codes(basket)
        size = min(int(2.0 * ((len(codes) + 1) / 2.0) ** rng.random()), len(codes))
        parts.append(np.sort(rng.choice(codes, size, replace=False)))
        asked += size
        if asked >= n:
            break
    return Baskets(pointers([len(part) for part in parts]), np.concatenate(parts), baskets.items)


def ask_questions(relevance: Relevance, baskets: Baskets, seed: int, n_jobs: int) -> Questions:
    """A question for every entry of the baskets; where it is known what was refused, only that competes."""
    sets, refused, n_items = baskets.sets, baskets.refused, baskets.n_items
    everything = n_items <= ALL_UP_TO
    n_voices = len(relevance.features)
    width = n_items if everything else min(1 + n_voices * N_BEST + N_RANDOM, n_items)
    N, F = len(sets.indices), relevance.n_features
    features = np.zeros((N, width, F), dtype=np.float32)
    log_counts = np.full((N, width), -np.inf, dtype=np.float32)
    competitors = np.zeros((N, width), dtype=np.int32)
    first_of_voice = [relevance.names.index(name) for name in relevance.features]
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // (n_items * max(F // 2, 1)), 1)))

    def work(block: int) -> None:
        first, last = blocks[block]
        part, start = take_sets(sets, np.arange(first, last)), int(sets.indptr[first])
        told = np.empty((F, len(part.indices), n_items), dtype=np.float32)
        said = np.empty((0 if everything else n_voices, n_items))
        relevance.write_features(part, told)
        rng = stream(seed, 1, block)
        owner = np.repeat(np.arange(part.count), part.sizes)
        for entry, item in enumerate(part.indices.tolist()):
            inside = part.indices[part.indptr[owner[entry]] : part.indptr[owner[entry] + 1]]
            given_up = refused.indices[refused.indptr[first + owner[entry]] : refused.indptr[first + owner[entry] + 1]]
            if len(given_up):
                codes, stands_for, share = given_up[: width - 1].astype(np.int64), np.empty(0, dtype=np.int64), 1.0
            elif everything:
                left = np.ones(n_items, dtype=bool)
                left[inside] = False
                codes, stands_for, share = np.flatnonzero(left), np.empty(0, dtype=np.int64), 1.0
            else:
                for row, feature in zip(said, first_of_voice, strict=True):
                    row[:] = told[feature, entry]
                codes, stands_for, share = _competitors(said, inside, rng)
            chosen = np.concatenate([[item], codes, stands_for])
            features[start + entry, : len(chosen)] = told[:, entry, chosen].T
            competitors[start + entry, : len(chosen)] = chosen
            log_counts[start + entry, : len(chosen)] = 0.0
            log_counts[start + entry, len(chosen) - len(stands_for) : len(chosen)] = np.log(share)

    run_blocks(work, len(blocks), n_jobs)
    given = relevance.circumstances(sets, each=True)
    return Questions(features, log_counts, given, competitors, relevance.weights.pairs)


def _competitors(said: Array, inside: NDArray[np.int32], rng: np.random.Generator) -> tuple[Entries, Entries, float]:
    """The best items of every voice, a sample of the others, and for how many each of the sample stands.

    What the voices say of the items inside the basket is overwritten.
    """
    left = np.ones(said.shape[1], dtype=bool)
    left[inside], said[:, inside] = False, -np.inf
    best = np.unique(top_n(said, N_BEST))
    best = best[left[best]]
    left[best] = False
    rest = np.flatnonzero(left)
    sample = rest if len(rest) <= N_RANDOM else rng.choice(rest, N_RANDOM, replace=False)
    return best, sample, len(rest) / max(len(sample), 1)


def log_likelihood(questions: Questions, theta: Array, n_jobs: int = 1) -> tuple[float, Array, Array]:
    """Σ log P(held-out item) over the questions, its gradient (R, F), and minus its second derivatives (RF, RF).

    F counts products, too.
    """

    @np.errstate(over="ignore", invalid="ignore")  # θ may be a step too far: then the value is no number
    def work(rows: slice) -> tuple[float, Array, Array]:
        X, log_counts, Z = questions.part(rows)
        W = (Z @ theta).astype(X.dtype)
        logits = np.matmul(X, W[:, :, None])[..., 0] + log_counts
        logits -= logits.max(axis=1, keepdims=True)
        P = np.exp(logits)
        totals = P.sum(axis=1, keepdims=True)
        value = float((logits[:, 0] - np.log(totals[:, 0])).sum(dtype=np.float64))
        P /= totals
        mean = np.matmul(P[:, None], X)[:, 0]
        rise = (X[:, 0] - mean).astype(np.float64)
        second = np.matmul((X * P[..., None]).transpose(0, 2, 1), X) - mean[:, :, None] * mean[:, None, :]
        second = second.astype(np.float64)
        return value, Z.T @ rise, np.block([[np.tensordot(a * b, second, axes=1) for b in Z.T] for a in Z.T])

    found = questions.each_block(work, n_jobs)
    value, gradient, curvature = (sum(parts) for parts in zip(*found, strict=True))
    return value, gradient, curvature


def learn_weights(questions: Questions, before: Weights, n_jobs: int = 1) -> Weights:
    """The θ that the questions favour, starting from what is known: its mean and precision are a Gaussian prior.

    Newton's method with halved steps: the function is concave, and has few parameters.
    """
    theta, centre = before.theta.ravel().copy(), before.theta.ravel()
    free = np.flatnonzero(np.isfinite(np.diag(before.precision)))
    inner = np.ix_(free, free)
    K = before.precision[inner]

    def posterior(t: Array) -> tuple[float, Array, Array]:
        value, gradient, curvature = log_likelihood(questions, t.reshape(before.theta.shape), n_jobs)
        away = (t - centre)[free]
        return value - 0.5 * float(away @ K @ away), gradient.ravel()[free] - K @ away, curvature[inner] + K

    here, slope, H = posterior(theta)
    if not np.isfinite(H).all():
        raise NumericalError("the weights of the voices cannot be learned: a voice gives numbers that are not finite")
    for _ in range(100):
        step = np.linalg.lstsq(H, slope, rcond=1e-12)[0]
        rise = float(slope @ step)
        if rise < 1e-5:  # twice what is left to gain, in nats over all questions
            break
        size = 1.0
        while size > 1e-6:
            moved = theta.copy()
            moved[free] += size * step
            there = posterior(moved)
            if there[0] >= here + 1e-4 * size * rise:
                break
            size /= 2
        else:
            break  # rounding
        theta = moved
        here, slope, H = there
    precision = before.precision.copy()
    precision[inner] = H
    return before._replace(theta=theta.reshape(before.theta.shape), precision=precision)


def learn_loudness(asked: Sequence[Questions], weights: Weights, n_jobs: int = 1) -> Array:
    """The τ and ρ that questions of whole baskets and of parts favour, around those so far; θ and φ stay."""
    features = np.concatenate([_parts_of_logits(questions, weights, n_jobs) for questions in asked])
    log_counts, given = (np.concatenate([one[k] for one in asked]) for k in (1, 2))
    sums = Questions(np.where(np.isfinite(log_counts)[..., None], features, 0.0), log_counts, given)
    precision = np.diag(np.tile(np.square(sums.spread(n_jobs)), CIRCUMSTANCES)) * LOUDNESS_PRIOR
    return learn_weights(sums, Weights(weights.loudness, precision), n_jobs).theta


def _parts_of_logits(questions: Questions, weights: Weights, n_jobs: int) -> NDArray[np.float32]:
    """What features add up to, and what products do (N, C, 2)."""
    theta, F = questions.given @ weights.theta, questions.features.shape[2]
    either = np.zeros((*theta.shape, 2))
    either[:, :F, 0], either[:, F:, 1] = theta[:, :F], theta[:, F:]
    return questions.times(either, n_jobs).astype(np.float32)


# -- Files -----------------------------------------------------------------------------------------


# By name; not `Implicit`, which holds a model of another package.
_SAVED: dict[str, type[Baseline]] = {
    kind.__name__: kind for kind in (EASE, BasketNeighbours, ItemKNN, LogLinear, Popularity, RidgeNeighbours)
}


def voices_contents(voices: Mapping[str, Any]) -> tuple[persist.Tensors, list[dict[str, Any]]]:
    """What a model file holds of the voices: tensors, and a description that JSON can hold."""
    tensors: persist.Tensors = {}
    told = []
    for name, voice in voices.items():
        if type(voice).__name__ not in _SAVED:
            raise ModelFileError(f"the voice {name!r} ({type(voice).__name__}) cannot be written to a model file")
        params = persist.plain_params(voice.get_params())
        params.pop("n_jobs", None)
        told.append({"name": name, "model": type(voice).__name__, "params": params})
        tensors |= {f"voice.{name}.{part}": values for part, values in voice.learned().items()}
    return tensors, told


def restored_voices(
    tensors: persist.Tensors, told: Iterable[Mapping[str, Any]], asked: Iterable[str], baskets: Baskets
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The voices that a model file holds, and what a user would write to ask for them and for those that are silent."""
    voices: dict[str, Any] = {}
    labour = Labour(baskets)  # pairs are counted once for all
    for one in told:
        name, voice = str(one["name"]), _SAVED[one["model"]](**one["params"])
        learned = {part: tensors[f"voice.{name}.{part}"] for part in voice.LEARNED}
        voices[name] = voice.fit_by(labour, learned)
    words = [KINDS[name].part_of if name in KINDS else voice for name, voice in voices.items()]
    words += map(str, asked)
    return voices, tuple(word for k, word in enumerate(words) if word not in words[:k])
