"""Clusters of baskets: a mixture of independent items, fitted by expectation and maximization.

    P(A) = Σ_c π_c Π_{i∈A} q_ci Π_{i∉A} (1 − q_ci)

The M step is π_c = N_c / n and q_ci = (N_ci + s p̂_i) / (N_c + s), where N_c and N_ci count the
baskets of a cluster, and those with item i, by their responsibilities. The s pseudo-baskets pull
every cluster towards popularity p̂; without them, clusters learn the training baskets by heart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logit, logsumexp, softmax

from contradpp._random import CLUSTER_START, stream
from contradpp._threads import blas_threads, run_blocks
from contradpp._types import Array, Ints
from contradpp.data.sets import Sets, take_sets
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.mixture import Mixture, membership
from contradpp.dpp.normalizer import ROUGH, inclusion, log_normalizer

MOST_ROUNDS = 60
MOST_ROUNDS_TO_CHOOSE = 20
LEAST_GAIN = 1e-4  # nats a basket: with less, the rounds end
FIRST_ROUNDS = 10  # with little smoothing: with much, clusters would never part
FIRST_SMOOTHING = 5.0
SETS_PER_BLOCK = 4096
CLUSTERS_PER_BLOCK = 16
SHARPNESS = 0.1  # of the Dirichlet distribution of the first responsibilities
FEWEST_BASKETS = 20  # a cluster on average
WORTH = 0.01  # nats a basket: for less, no clusters are added
CLUSTERS = (10, 30, 100)  # of 300, normalizers would take longer than the kernel
SMOOTHING = (5.0, 20.0, 50.0, 200.0, 1000.0)
LEAST = 1e-9  # of a probability
PARTS = (1.0, 0.7, 0.4)  # of the tilts of independent items, where there is a kernel
MATCHES = 2  # rounds that match the marginals
DAMPING = 0.8
MOST_MOVED = 2.0  # of a log odds at once
CLEAR = 4.0  # standard errors
WEIGHT_ROUNDS = 20
FEWEST_LEFT = 1.0  # baskets of a cluster


class Clusters(NamedTuple):
    """A mixture of independent items."""

    log_odds: Array  # (C, M): logit q
    log_empty: Array  # (C,): Σ_i log(1 − q_ci)
    log_weights: Array  # (C,): log π

    def log_joint(self, sets: Sets | csr_array) -> Array:
        """Return log P(c, A) of every basket (n, C), given as sets or by their membership."""
        members = membership(sets, self.log_odds.shape[1]) if isinstance(sets, Sets) else sets
        joint: Array = members @ np.ascontiguousarray(self.log_odds.T)
        joint += self.log_empty + self.log_weights
        return joint

    def log_probability(self, sets: Sets | csr_array) -> Array:
        """Return log P(A) of every basket (n,)."""
        return np.asarray(logsumexp(self.log_joint(sets), axis=1))


def counted(sets: Sets, weights: Array) -> tuple[Sets, Array]:
    """Return the sets whose weight is above zero, and their weights."""
    rows = np.flatnonzero(weights > 0)
    return take_sets(sets, rows), weights[rows]


def fit_clusters(
    members: csr_array,
    weights: Array,
    n_clusters: int,
    smoothing: float,
    seed: int,
    *,
    max_rounds: int = MOST_ROUNDS,
    n_jobs: int = 1,
) -> Clusters:
    """Fit a mixture of independent items.

    Parameters
    ----------
    members : sparse array (n, M)
    weights : array (n,)
        How much each basket counts, above zero.
    n_clusters : int
    smoothing : float
        s, the pseudo-baskets of every cluster.
    seed : int
        The clusters start from random responsibilities.
    """
    n = max(float(weights.sum()), 1.0)
    popularity = np.clip((members.T @ weights + 0.5) / (n + 1.0), 1e-12, 0.99)
    by_item = members.T.tocsr()
    rng = stream(seed, CLUSTER_START, n_clusters)
    shape = (members.shape[0], n_clusters)
    responsibilities = rng.standard_gamma(SHARPNESS, shape)
    responsibilities /= responsibilities.sum(axis=1, keepdims=True)
    before = -np.inf
    with blas_threads(1):
        for round in range(max_rounds):
            responsibilities *= weights[:, None]
            amount = min(smoothing, FIRST_SMOOTHING) if round < FIRST_ROUNDS else smoothing
            found = _maximize(by_item, responsibilities, popularity, amount, n_jobs)
            value = _expect(found, members, weights, responsibilities, n_jobs) / n
            if round > FIRST_ROUNDS and value - before < LEAST_GAIN:
                break
            before = value
    return found


def _maximize(
    by_item: csr_array, counts: Array, popularity: Array, smoothing: float, n_jobs: int
) -> Clusters:
    """Return the clusters that fit responsibilities times weights (n, C)."""
    totals = counts.sum(axis=0)
    C = counts.shape[1]
    together = np.empty((by_item.shape[0], C))

    def count(block: int) -> None:
        part = slice(block * CLUSTERS_PER_BLOCK, min((block + 1) * CLUSTERS_PER_BLOCK, C))
        together[:, part] = by_item @ np.ascontiguousarray(counts[:, part])

    run_blocks(count, -(-C // CLUSTERS_PER_BLOCK), n_jobs)
    q = (together.T + smoothing * popularity) / (totals + smoothing)[:, None]
    q = np.clip(q, 1e-12, 1 - 1e-6)
    empty = np.log1p(-q)
    with np.errstate(divide="ignore"):
        log_weights = np.log(totals / totals.sum())
    return Clusters(np.log(q) - empty, empty.sum(axis=1), log_weights)


def _expect(
    clusters: Clusters, members: csr_array, weights: Array, out: Array, n_jobs: int
) -> float:
    """Write the responsibilities of every basket, and return the log-likelihood of all."""
    blocks = range(0, members.shape[0], SETS_PER_BLOCK)
    values = np.zeros(len(blocks))

    def work(block: int) -> None:
        rows = slice(blocks[block], blocks[block] + SETS_PER_BLOCK)
        joint = clusters.log_joint(members[rows])
        logs = logsumexp(joint, axis=1)
        np.exp(joint - logs[:, None], out=out[rows])
        values[block] = weights[rows] @ logs

    run_blocks(work, len(blocks), n_jobs)
    return float(values.sum())


def choose_clusters(
    train: tuple[Sets, Array],
    validation: tuple[Sets, Array],
    n_items: int,
    n_clusters: int | str,
    smoothing: float | str,
    seed: int,
    *,
    n_jobs: int = 1,
) -> tuple[Clusters, float]:
    """Fit clusters whose number and smoothing make validation baskets most likely.

    It is the smallest number within one standard error of the best (Breiman's rule).

    Parameters
    ----------
    train, validation : Sets and their weights above zero
    n_items : int
    n_clusters, smoothing : number or "auto"
    seed : int

    Returns
    -------
    clusters : Clusters
    smoothing : float
    """
    members, weights = membership(train[0], n_items), train[1]
    held_out = membership(validation[0], n_items)
    shares = validation[1] / max(validation[1].sum(), 1e-300)
    tried: dict[tuple[int, float], Array] = {}

    def logs(C: int, s: float) -> Array:
        if (C, s) not in tried:
            found = fit_clusters(
                members, weights, C, s, seed, max_rounds=MOST_ROUNDS_TO_CHOOSE, n_jobs=n_jobs
            )
            tried[C, s] = found.log_probability(held_out)
        return tried[C, s]

    def score(C: int, s: float) -> float:
        return float(shares @ logs(C, s))

    largest = members.shape[0] // FEWEST_BASKETS
    numbers = [n_clusters] if isinstance(n_clusters, int) else [1]
    if n_clusters == "auto":
        numbers += [C for C in CLUSTERS if largest >= C]
    amounts = list(SMOOTHING) if smoothing == "auto" else [float(smoothing)]
    C = numbers[min(2, len(numbers) - 1)]
    s = amounts[len(amounts) // 2]
    for _ in range(2):  # one setting at a time
        s = max(amounts, key=lambda other: score(C, other))
        best = max(numbers, key=lambda other: score(other, s))
        C = next(n for n in numbers if _as_good(logs(n, s), logs(best, s), shares))
    return fit_clusters(members, weights, C, s, seed, n_jobs=n_jobs), s


def _as_good(logs: Array, best: Array, shares: Array) -> bool:
    """Return whether log-likelihoods are within one standard error of the best."""
    difference = best - logs
    mean = float(shares @ difference)
    error = float(np.sqrt(np.square(shares) @ np.square(difference - mean)))
    return mean <= max(error, WORTH)


def draw_clusters(joint: Array, seed: int) -> Ints:
    """Draw a cluster for every row of joint log-probabilities (n, C)."""
    marks = stream(seed).random(len(joint))
    cumulative = np.cumsum(softmax(joint, axis=1), axis=1)
    drawn = (cumulative < marks[:, None] * cumulative[:, -1:]).sum(axis=1)
    return np.asarray(np.minimum(drawn, joint.shape[1] - 1))


# -- With a kernel in place ------------------------------------------------------------------------


def fit_mixture(
    kernel: Kernel,
    clusters: Clusters,
    popularity: Array,
    sets: Sets,
    weights: Array,
    smoothing: float,
    score: Callable[[Mixture], float],
) -> Mixture:
    """Return the mixture of a learned kernel whose clusters have the marginals of the data.

    Where the kernel explains what goes together, the tilts of independent items say it a second
    time. They start from the part of themselves that has the best `score`. Each round sets the
    responsibilities, and moves the log odds of P(i ∈ Y | c) towards those of the weighted baskets
    with `smoothing` pseudo-baskets. At the end only the weights π are fitted.
    """
    members = membership(sets, kernel.n_items)
    tilts = clusters.log_odds - logit(popularity)
    starts = (_quick_mixture(kernel, part * tilts, clusters.log_weights) for part in PARTS)
    mixture = max(starts, key=score)
    for _ in range(MATCHES):
        responsibilities = weights[:, None] * softmax(mixture.log_joint(sets), axis=1)
        totals = responsibilities.sum(axis=0)
        wanted = (members.T @ responsibilities).T + smoothing * popularity
        wanted = logit(np.clip(wanted / (totals + smoothing)[:, None], LEAST, 1 - LEAST))
        tilts = mixture.tilts.copy()
        found = mixture.map_components(lambda component: inclusion(component, ROUGH))
        for c, (marginals, error) in enumerate(found):
            known = marginals > CLEAR * error  # rare items are noise in an estimate
            move = wanted[c] - logit(np.clip(marginals, LEAST, 1 - LEAST))
            tilts[c] += np.where(known, np.clip(DAMPING * move, -MOST_MOVED, MOST_MOVED), 0.0)
        mixture = _quick_mixture(kernel, tilts, np.log(totals + LEAST))
    mixture = Mixture(kernel, mixture.tilts, mixture.log_weights)  # with better normalizers
    return fit_weights(mixture, mixture.log_joint(sets), weights)


def _quick_mixture(kernel: Kernel, tilts: Array, log_weights: Array) -> Mixture:
    """Return a mixture with rough normalizers."""
    mixture = Mixture(kernel, rounded(tilts), log_weights)
    quick = mixture.map_components(lambda component: log_normalizer(component, ROUGH).value)
    return Mixture(kernel, mixture.tilts, log_weights, np.array(quick))


def rounded(tilts: Array) -> Array:
    """Return tilts as a file holds them: the round trip gives the same answers after loading."""
    return tilts.astype(np.float32).astype(np.float64)


def fit_weights(mixture: Mixture, joint: Array, weights: Array, prior: float = 0.0) -> Mixture:
    """Return the mixture with the weights π that make baskets most likely.

    Parameters
    ----------
    mixture : Mixture
    joint : array (n, C)
        Its `log_joint` of the baskets.
    weights : array (n,)
    prior : float
        The baskets that the present weights count for.
    """
    log_weights = mixture.log_weights
    own = joint - log_weights
    for _ in range(WEIGHT_ROUNDS):
        totals = weights @ softmax(own + log_weights, axis=1) + prior * mixture.weights
        log_weights = np.log((totals + LEAST) / (totals + LEAST).sum())
    return Mixture(mixture.kernel, mixture.tilts, log_weights, mixture.log_normalizers)


def without_empty(mixture: Mixture, n_baskets: float) -> Mixture:
    """Return the mixture without clusters that are left with less than one basket."""
    share = mixture.weights
    kept = np.flatnonzero(share >= min(FEWEST_LEFT / n_baskets, float(share.max())))
    logs = mixture.log_weights[kept]
    normalizers = mixture.log_normalizers[kept]
    return Mixture(mixture.kernel, mixture.tilts[kept], logs, normalizers)


def independent_mixture(clusters: Clusters, popularity: Array, n_jobs: int) -> Mixture:
    """Return the clusters as a mixture of DPPs whose kernel is a diagonal."""
    odds = popularity / (1.0 - popularity)
    kernel = Kernel(np.zeros((len(odds), 0)), diagonal=odds, n_jobs=n_jobs)
    tilts = clusters.log_odds - np.log(odds)
    return Mixture(kernel, rounded(tilts), clusters.log_weights)
