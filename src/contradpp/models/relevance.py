"""Quality that depends on the basket: what several voices say of the next item, and how much each of them counts.

    P(next = j | A) ∝ exp(τ(A) Σ_f θ_f(A) f_j(A) + ρ(A) Σ_{u≤v} φ_uv z_u z_v),    θ(A) = θ₀ + θ₁ log|A| + θ₂ doubt(A),

where doubt(A) is the mean of κ/(κ + n_a) over the items of A, n_a being how many baskets had a: of the company of an
item that hardly ever sold little is known, and voices may count less. The features f are scores of voices
(`models/voices.py`) in one of a few shapes; z_v is the last feature of voice v, in units of its spread: what a voice
says may count for less, or more, where others say the same. θ and φ maximise the likelihood of held-out items given
the rest of their baskets, which no voice has seen. This is concave: the contrastive objective of the kernel, in closed
form. People ask with one item or two, of which whole baskets say little: τ and ρ, of the same form as θ, are learned
from parts of baskets as well (`models/questions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets, take_sets, without_each
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import compiled
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ParameterError
from contradpp.models.baselines import Popularity
from contradpp.models.scores import Baseline
from contradpp.models.voices import KERNEL, Feature, KernelVoice, OtherVoice, Voice, features_of

Array = NDArray[np.float64]
Entries = NDArray[np.int64]

SCORES_PER_BLOCK = 2**20
MOST_SCORES = 2**22  # of one voice that are at hand together
CIRCUMSTANCES = 3  # of a basket that weights depend on: 1, log|A| and doubt(A)
MOST_WEIGHT = 1e100  # of a feature in a file: what more is multiplied by might overflow
SUPPORT = 10.0  # κ: sales of an item at which doubt is a half
PRIOR = 10.0  # the precision of θ before any data, in units of a feature's spread: as if from some ten questions
PAIR_PRIOR = 100.0  # that of φ
QUIETEST = 0.1  # the least τ; that of ρ is 0


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
        return np.clip(z, -compiled.relevance.FARTHEST, compiled.relevance.FARTHEST, out=z)

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

    def contents(self) -> dict[str, Array]:
        """What a model file holds of it."""
        scale = {"pairs.centre": self.pairs.centre, "pairs.spread": self.pairs.spread}
        return {"theta": self.theta, "theta.precision": self.precision, "loudness": self.loudness} | scale

    @classmethod
    def checked(cls, n_features: Sequence[int], tensors: Mapping[str, NDArray[Any]]) -> Weights:
        """From a model file, for voices with so many features each, or ParameterError if it is damaged."""
        names = ("theta", "theta.precision", "loudness", "pairs.centre", "pairs.spread")
        if not all(name in tensors for name in names):
            raise ParameterError("its weights are of an earlier version: fit the model again")
        theta, precision, loudness, centre, spread = (tensors[name] for name in names)
        pairs = Pairs(last_of_each(n_features), centre, spread)
        n = sum(n_features) + pairs.n_products
        fits = theta.shape == (CIRCUMSTANCES, n) and precision.shape == (CIRCUMSTANCES * n,) * 2
        fits = fits and centre.shape == spread.shape == pairs.columns.shape and loudness.shape == AS_LEARNED.shape
        if not fits or any(values.dtype.kind != "f" for values in (theta, precision, loudness, centre, spread)):
            raise ParameterError("its weights do not fit its voices, or are of an earlier version")
        theta, precision, loudness, centre, spread = (tensors[name].astype(np.float64) for name in names)
        fair = bool((spread >= 1.0 / MOST_WEIGHT).all() and not np.isnan(precision).any())
        if not fair or not all((np.abs(values) <= MOST_WEIGHT).all() for values in (theta, loudness, centre, spread)):
            raise ParameterError("its weights are no numbers, or too large")
        return cls(theta, precision, pairs._replace(centre=centre, spread=spread), loudness)


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
            _ask(self.voices[name], sets, row, each=each)
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
        compiled.relevance.add_pairs(told, pairs.centre, pairs.spread, alone, both, out)

    def write_features(self, sets: Sets, out: NDArray[np.floating]) -> None:
        """Write the features of all items given every set without each of its entries (F, nnz, M)."""
        sizes, scores = np.repeat(sets.sizes - 1, sets.sizes), np.empty(out.shape[1:])
        f = 0
        for name, features in self.features.items():
            if name in self._static:
                out[f] = self._static[name]
                f += 1
                continue
            _ask(self.voices[name], sets, scores, each=True)
            for feature in features:
                feature.write(scores, sizes, out[f])
                f += 1


def _ask(voice: Voice, sets: Sets, out: Array, *, each: bool) -> None:
    (voice.write_scores_without_each if each else voice.write_scores)(sets, out)


def log_sizes(sizes: NDArray[np.int64]) -> Array:
    """log n as θ takes it."""
    logs: Array = np.log(np.maximum(sizes, 1))
    return logs
