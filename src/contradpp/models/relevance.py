"""Quality that depends on the basket: what several voices say of the next item, and how much each of them counts.

    P(next = j | A) ∝ exp(τ(A) (Σ_f θ_f(A) f_j(A) + Σ_{u≤v} φ_uv z_u z_v)),    θ(A) = θ₀ + θ₁ log|A| + θ₂ doubt(A),

where doubt(A) is the mean of κ/(κ + n_a) over the items of A, n_a being how many baskets had a: of the company of an
item that hardly ever sold little is known, and voices may count less. The features f are scores of voices
(`models/voices.py`) in one of a few shapes; z_v is the last feature of voice v, in units of its spread: what a voice
says may count for less, or more, where others say the same. θ and φ maximise the likelihood of held-out items given
the rest of their baskets, which no voice has seen. This is concave: the contrastive objective of the kernel, in closed
form. People ask with one item or two, of which whole baskets say little: τ, of the same form as θ, is learned from
parts of baskets as well. It changes probabilities, and no order.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads, run_blocks
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, pointers, runs, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import compiled
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.rank import top_n
from contradpp.errors import NumericalError, ParameterError
from contradpp.models.baselines import Popularity
from contradpp.models.scores import Baseline
from contradpp.models.voices import KERNEL, Feature, KernelVoice, OtherVoice, Voice, features_of

Array = NDArray[np.float64]
Entries = NDArray[np.int64]

N_QUESTIONS, N_PARTS = 8000, 4000  # held-out items from which θ is learned, and τ besides
N_BEST, N_RANDOM = 60, 240  # competitors of each: the best of every voice, and a sample that stands for the rest
ALL_UP_TO = 600  # items: all of them compete
SCORES_PER_BLOCK = 2**20
CIRCUMSTANCES = 3  # of a basket that weights depend on: 1, log|A| and doubt(A)
MOST_WEIGHT = 1e100  # of a feature in a file: what more is multiplied by might overflow
SUPPORT = 10.0  # κ: sales of an item at which doubt is a half
PRIOR = 10.0  # the precision of θ before any data, in units of a feature's spread: as if from some ten questions
PAIR_PRIOR = 100.0  # that of φ
QUIETEST = 0.1  # the least τ


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


AS_LEARNED = np.array([1.0, 0.0, 0.0])
NO_PAIRS = Pairs(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))


class Weights(NamedTuple):
    """θ with φ behind θ₀, and how sure of it the data are; φ does not depend on the basket."""

    theta: Array  # (3, F + P): θ₀, θ₁ and θ₂
    precision: Array  # of all of them: minus the second derivatives of the log-likelihood, and the prior's; ∞ if fixed
    pairs: Pairs = NO_PAIRS
    loudness: Array = AS_LEARNED  # (3,): τ

    def contents(self) -> dict[str, Array]:
        """What a model file holds of it."""
        scale = {"pairs.centre": self.pairs.centre, "pairs.spread": self.pairs.spread}
        return {"theta": self.theta, "theta.precision": self.precision, "loudness": self.loudness} | scale

    @classmethod
    def checked(cls, n_features: Sequence[int], tensors: Mapping[str, NDArray[Any]]) -> Weights:
        """From a model file, for voices with so many features each, or ParameterError if it is damaged."""
        theta, precision, loudness, centre, spread = (
            tensors[name] for name in ("theta", "theta.precision", "loudness", "pairs.centre", "pairs.spread")
        )
        pairs = Pairs(last_of_each(n_features), centre, spread)
        n = sum(n_features) + pairs.n_products
        fits = theta.shape == (CIRCUMSTANCES, n) and precision.shape == (CIRCUMSTANCES * n,) * 2
        fits = fits and centre.shape == spread.shape == pairs.columns.shape and loudness.shape == (CIRCUMSTANCES,)
        if not fits or any(values.dtype.kind != "f" for values in (theta, precision, loudness, centre, spread)):
            raise ParameterError("its weights do not fit its voices, or are of an earlier version")
        theta, loudness, centre, spread = (x.astype(np.float64) for x in (theta, loudness, centre, spread))
        fair = bool((spread >= 1.0 / MOST_WEIGHT).all())
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
        features = {name: features_of(name) for name in voices}
        own = KernelVoice(kernel, len(items))
        told = {} if weights is None else {"weights": weights}
        return cls(asked | {KERNEL: own}, features | {KERNEL: own.features}, counts[: len(items)], **told)

    def __post_init__(self) -> None:
        if not self.weights.theta.size:
            pairs = Pairs(self.last_of_voices, np.zeros(len(self.features)), np.ones(len(self.features)))
            self.weights = self.before(pairs, np.ones(self.n_features + pairs.n_products))
        self._doubts = SUPPORT / (SUPPORT + np.asarray(self.counts, dtype=np.float64))
        self._static = {  # log p does not depend on the basket
            name: np.log(voice.probabilities_) for name, voice in self.voices.items() if isinstance(voice, Popularity)
        }

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
        """τθ and τφ of baskets (n_baskets, F + P)."""
        loudness = np.maximum(circumstances @ self.weights.loudness, QUIETEST)
        theta: Array = (circumstances @ self.weights.theta) * loudness[:, None]
        return theta

    def write_logits(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        """Write Σ_f θ_f f_j for every set, or with `each` every set without each of its entries, and every item j."""
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
        alone, both = theta[:, pairs.columns], np.ascontiguousarray(theta[:, self.n_features :])
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


# -- Learning θ ------------------------------------------------------------------------------------------


class Questions(NamedTuple):
    """Held-out items, each with those that it competes with; it comes first itself."""

    features: NDArray[np.floating]  # (N, C, F), without products
    log_counts: NDArray[np.floating]  # (N, C): for how many items a competitor stands; −inf where there is none
    given: Array  # (N, R): the circumstances of what is left of the basket, or some of them
    codes: NDArray[np.int32] = np.zeros((0, 0), dtype=np.int32)  # (N, C): the items; where there is none, any

    pairs: Pairs = NO_PAIRS

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

    def logits(self, theta: Array) -> Array:
        """Of every question and competitor (N, C), where there is one."""
        found = np.empty(self.log_counts.shape)
        for rows in self.blocks:
            X, _, Z = self.part(rows)
            found[rows] = np.matmul(X, (Z @ theta)[:, :, None])[..., 0]
        return found

    @property
    def spread(self) -> Array:
        """The standard deviation of every feature and product within a question, on average, 1 where there is none."""
        total = 0.0
        for rows in self.blocks:
            X, log_counts, _ = self.part(rows)
            real = np.isfinite(log_counts)[..., None]
            count = np.maximum(real.sum(axis=1), 1)
            features = np.where(real, X, 0.0).astype(np.float64)
            mean = features.sum(axis=1) / count
            total += (np.square(np.where(real, features - mean[:, None], 0.0)).sum(axis=1) / count).sum(axis=0)
        spread = np.sqrt(total / len(self.features))
        return np.where(spread > 0, spread, 1.0)

    def measured(self, columns: Entries) -> Questions:
        """With products of these features, in units of their spread over all competitors."""
        real = np.isfinite(self.log_counts)
        values = [self.features[..., c][real].astype(np.float64) for c in columns.tolist()]
        centre, spread = (np.array([measure(x) for x in values]) for measure in (np.mean, np.std))
        return self._replace(pairs=Pairs(columns, centre, np.where(spread > 0, spread, 1.0)))


def choose_baskets(baskets: Baskets, n: int, seed: int) -> Baskets:
    """Whole baskets of two items and more, at random, until they hold n items."""
    eligible = stream(seed, 0).permutation(np.flatnonzero(baskets.sizes >= 2))
    enough = int(np.searchsorted(np.cumsum(baskets.sizes[eligible]), n)) + 1
    return baskets.subset(np.sort(eligible[:enough]))


def choose_parts(baskets: Baskets, n: int, seed: int) -> Baskets:
    """Random parts, of two items and more, of baskets at random, until they hold n items: few items as often as many.

    The logarithm of a part's size is uniform between those of two and the basket's.
    """
    rng = stream(seed, 2)
    order = rng.permutation(np.flatnonzero(baskets.sizes >= 2))
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
        relevance.write_features(part, told)
        rng = stream(seed, 1, block)
        owner = np.repeat(np.arange(part.count), part.sizes)
        for entry, item in enumerate(part.indices.tolist()):
            ruled_out = np.zeros(n_items, dtype=bool)
            ruled_out[part.indices[part.indptr[owner[entry]] : part.indptr[owner[entry] + 1]]] = True
            given_up = refused.indices[refused.indptr[first + owner[entry]] : refused.indptr[first + owner[entry] + 1]]
            if len(given_up):
                codes, stands_for, share = given_up[: width - 1].astype(np.int64), np.empty(0, dtype=np.int64), 1.0
            elif everything:
                codes, stands_for = np.flatnonzero(~ruled_out), np.empty(0, dtype=np.int64)
                share = 1.0
            else:
                codes, stands_for, share = _competitors(told[first_of_voice, entry], ruled_out, rng)
            chosen = np.concatenate([[item], codes, stands_for])
            features[start + entry, : len(chosen)] = told[:, entry, chosen].T
            competitors[start + entry, : len(chosen)] = chosen
            log_counts[start + entry, : len(chosen)] = 0.0
            log_counts[start + entry, len(chosen) - len(stands_for) : len(chosen)] = np.log(share)

    run_blocks(work, len(blocks), n_jobs)
    given = relevance.circumstances(sets, each=True)
    return Questions(features, log_counts, given, competitors, relevance.weights.pairs)


def _competitors(
    told: NDArray[Any], ruled_out: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Entries, Entries, float]:
    """The best items of every voice, a sample of the others, and for how many each of the sample stands.

    What the voices say is overwritten.
    """
    told[:, ruled_out] = -np.inf
    best = np.unique(top_n(told, N_BEST))
    best = best[~ruled_out[best]]
    left = ~ruled_out
    left[best] = False
    rest = np.flatnonzero(left)
    sample = rest if len(rest) <= N_RANDOM else rng.choice(rest, N_RANDOM, replace=False)
    return best, sample, len(rest) / max(len(sample), 1)


def log_likelihood(questions: Questions, theta: Array, n_jobs: int = 1) -> tuple[float, Array, Array]:
    """Σ log P(held-out item) over the questions, its gradient (R, F), and minus its second derivatives (RF, RF).

    F counts products, too.
    """
    blocks = questions.blocks
    found: list[tuple[float, Array, Array]] = [None] * len(blocks)  # type: ignore[list-item]

    def work(block: int) -> None:
        X, log_counts, Z = questions.part(blocks[block])
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
        found[block] = value, Z.T @ rise, np.block([[np.tensordot(a * b, second, axes=1) for b in Z.T] for a in Z.T])

    with blas_threads(1):
        run_blocks(work, len(blocks), n_jobs)
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
    """The τ that questions of whole baskets and of parts favour, given the weights."""
    logits = np.concatenate([questions.logits(weights.theta) for questions in asked]).astype(np.float32)
    log_counts, given = (np.concatenate([one[k] for one in asked]) for k in (1, 2))
    alone = Questions(np.where(np.isfinite(log_counts), logits, 0.0)[..., None], log_counts, given)
    before = Weights(AS_LEARNED[:, None], np.eye(CIRCUMSTANCES) * PRIOR * np.square(alone.spread[0]))
    return learn_weights(alone, before, n_jobs).theta[:, 0]
