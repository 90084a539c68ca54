"""Held-out items that the voices of a conditional DPP are asked for, and the weights that their answers favour.

θ and φ maximise the likelihood of held-out items given the rest of their baskets, which no voice has seen. It is
concave. τ and ρ do so for parts of baskets as well, θ and φ being what they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import T, blas_threads, results_of_blocks, run_blocks
from contradpp.data.baskets import Baskets
from contradpp.data.sets import pointers, runs, take_sets
from contradpp.dpp.scoring import top_n
from contradpp.errors import NumericalError
from contradpp.models.relevance import (
    CIRCUMSTANCES,
    NO_PAIRS,
    SCORES_PER_BLOCK,
    Array,
    Entries,
    Pairs,
    Relevance,
    Weights,
)

N_QUESTIONS, N_PARTS = 8000, 4000  # held-out items from which θ and φ are learned, and τ and ρ besides
N_BEST, N_RANDOM = 60, 240  # competitors of each: the best of every voice, and a sample that stands for the rest
ALL_UP_TO = 600  # items: all of them compete
LOUDNESS_PRIOR = 100.0  # the precision of τ and ρ before any data, in units of the spread of what they multiply


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
