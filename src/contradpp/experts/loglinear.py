"""A weight for every pair of items, by the likelihood of items left out of their baskets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads, resolve_n_jobs, results_of_blocks
from contradpp._types import Array, Codes, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, runs, take_sets, without_each
from contradpp.dpp import files as persist
from contradpp.dpp.files import Stored
from contradpp.errors import ParameterError
from contradpp.experts.base import SCORES_PER_BLOCK, Baseline, check_at_least, softmax_outside
from contradpp.experts.statistics import (
    MOST_WEIGHT,
    BasketStatistics,
    indicator,
    write_sums,
    write_sums_without_each,
)

DENSE_UP_TO = 2000  # items: all pairs, and the optimizer's memory of its last steps, take 0.4 GB
MOST_SCORES = 2**26  # of a pass over the baskets: a sample is taken of more baskets
N_GROUPS = 8  # of baskets, each with a gradient of its own
MAX_ITER = 200  # of the optimizer
TOL = 1e-6  # relative rise of the log-likelihood at which the optimizer stops
LEAST_PENALTY = 1e-3  # with less, the weights of items that hardly ever met would diverge
DAMPING = 0.5  # the sum over a basket's items is divided by its size to this power


@dataclass(eq=False, repr=False)
class LogLinear(Baseline):
    """A log-linear model of the next item, in which pairs of items attract or repel each other.

    P(next = j | A) ∝ exp(b_j + |A|^(−1/2) Σ_{a∈A} w_aj),  w symmetric.

    b and w maximize the likelihood of every item of the training baskets of two and more, given the
    rest of its basket. This function is concave. The model is dense, for catalogues of up to 2,000
    items. To an empty basket it offers what is popular.

    Parameters
    ----------
    penalty : float
        λ ≥ 0.001. The log-likelihood loses ½ λ w² for every pair, and ½ λ (b_j − c_j)² for every
        item, where c_j = log(n_j + 1) less the largest of them, n_j the number of baskets with j.
    random_state : int
        Chooses the baskets to learn from where there are too many to pass over in seconds.
    n_jobs : int, optional
        Threads; None for all cores. The result does not depend on it.

    Attributes
    ----------
    weights_ : array (M, M)
        w.
    base_ : array (M,)
        b.

    Examples
    --------
    >>> model = LogLinear().fit([["tea", "milk"], ["pasta", "sauce"]] * 5)
    >>> model.recommend(["tea"], N=1)[0].tolist()
    ['milk']
    """

    ARRAYS: ClassVar[persist.Schema] = {
        "weights": Stored(("M", "M"), low=-MOST_WEIGHT, high=MOST_WEIGHT, single=True),
        "base": Stored(("M",), low=-MOST_WEIGHT, high=MOST_WEIGHT, single=True),
    }
    penalty: float = 4.0
    random_state: int = 0
    n_jobs: int | None = None

    def _fit(self, statistics: BasketStatistics) -> None:
        from scipy.optimize import minimize

        check_at_least(LEAST_PENALTY, penalty=self.penalty)
        train = statistics.train
        M = train.n_items
        if M > DENSE_UP_TO:
            raise ParameterError(
                f"LogLinear has a weight for every pair of items, and takes {DENSE_UP_TO:,} at "
                f"most: here are {M:,}. ConditionalDPP does without it when it is fitted anew"
            )
        sets, fraction = self._sample(train)
        counts = statistics.counts
        center = np.log(counts + 1.0)
        center -= center.max()
        pairs = np.triu_indices(M, 1)
        n_pairs = len(pairs[0])
        # Steps are scaled so that all second derivatives are about one, as if every item were
        # bought at its usual rate.
        rates = counts / max(counts.sum(), 1.0)
        curvature = np.concatenate([(2.0 * counts[:, None] * rates)[pairs], counts]) * fraction
        scale = 1.0 / np.sqrt(self.penalty + curvature)
        n_jobs = resolve_n_jobs(self.n_jobs)

        def unfold(steps: Array) -> tuple[Array, Array]:
            W = np.zeros((M, M))
            W[pairs] = steps[:n_pairs]
            return W + W.T, center + steps[n_pairs:]

        def loss(scaled: Array) -> tuple[float, Array]:
            steps = scaled * scale
            found = log_likelihood(sets, *unfold(steps), n_jobs)
            slope = np.concatenate([(found.weights + found.weights.T)[pairs], found.bias])
            value = found.value - 0.5 * self.penalty * float(steps @ steps)
            return -value, (self.penalty * steps - slope) * scale

        options = {"maxiter": MAX_ITER, "ftol": TOL}
        with blas_threads(1):  # sums would depend on the number of threads
            best = minimize(
                loss, np.zeros(len(scale)), jac=True, method="L-BFGS-B", options=options
            )
        self.weights_, self.base_ = unfold(best.x * scale)

    def _sample(self, train: Baskets) -> tuple[Sets, float]:
        """Return baskets of two items and more, and the fraction of them that was drawn."""
        eligible = np.flatnonzero(train.sizes >= 2)
        entries = max(int(train.sizes[eligible].sum()), 1)
        fraction = min(MOST_SCORES / (entries * train.n_items), 1.0)
        if fraction < 1:
            n = max(int(fraction * len(eligible)), 1)
            eligible = np.sort(stream(self.random_state).permutation(eligible)[:n])
        return take_sets(train.sets, eligible), fraction

    def write_scores(self, sets: Sets, out: Array) -> None:
        write_sums(self.weights_, sets, out)
        self._to_logits(sets.sizes, out)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        write_sums_without_each(self.weights_, sets, out)
        self._to_logits(np.repeat(sets.sizes, sets.sizes) - 1, out)

    def contributions(self, codes: Codes, item: int) -> Array:
        terms: Array = self.weights_[codes, item] * size_damping(np.array([len(codes)]))
        return terms

    def alone(self, items: Ints) -> Array:
        return self.base_[items]

    def _to_probabilities(self, scores: Array, sets: Sets) -> Array:
        return softmax_outside(scores, sets)

    def arrays(self) -> persist.Tensors:
        return persist.stored_arrays({"weights": self.weights_, "base": self.base_}, self.ARRAYS)

    def set_arrays(self, train: Baskets, arrays: persist.Tensors) -> None:
        found = persist.read_arrays(arrays, self.ARRAYS, "weights of pairs", M=train.n_items)
        self.weights_ = found["weights"]
        self.base_ = found["base"]

    def _to_logits(self, sizes: Ints, sums: Array) -> None:
        sums *= size_damping(sizes)[:, None]
        sums += self.base_
        sums[sizes == 0] = np.log(self.item_counts_ + 1.0)


def size_damping(sizes: NDArray[np.integer]) -> Array:
    """Return |A|^(−1/2), the factor of the sum over the items of A; 1 for an empty basket."""
    scale: Array = np.maximum(sizes, 1.0) ** -DAMPING
    return scale


class LogLikelihood(NamedTuple):
    """A log-likelihood and its gradient."""

    value: float
    weights: Array  # (M, M), not symmetric: the row is the item of the basket
    bias: Array  # (M,)


def log_likelihood(sets: Sets, W: Array, b: Array, n_jobs: int = 1) -> LogLikelihood:
    """Sum log P(i | A∖i) over all entries i of sets A of two items and more.

    The computation is in float32, sums over blocks are in float64.
    """
    groups = np.linspace(0, sets.count, N_GROUPS + 1).astype(int)
    weights = W.astype(np.float32)
    base = b.astype(np.float32)

    def add_up(group: int) -> LogLikelihood:
        part = take_sets(sets, np.arange(groups[group], groups[group + 1]))
        return _log_likelihood_of_group(part, weights, base)

    parts = results_of_blocks(add_up, N_GROUPS, n_jobs)
    value, by_pair, by_item = (sum(terms) for terms in zip(*parts, strict=True))
    return LogLikelihood(value, by_pair, by_item)


def _log_likelihood_of_group(
    sets: Sets, W: NDArray[np.float32], b: NDArray[np.float32]
) -> LogLikelihood:
    M = len(b)
    value = 0.0
    by_pair = np.zeros(W.shape)
    by_item = np.zeros(M)
    # A block has as many scores as stay in the cache, or at least as many entries as items, as the
    # weights of all items are read for each block.
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // M, M)))
    most = max((int(sets.indptr[last] - sets.indptr[first]) for first, last in blocks), default=0)
    # New memory for every block would take longer than the sums.
    room = np.empty((2, most, M), dtype=np.float32)
    for first, last in blocks:
        part = take_sets(sets, np.arange(first, last))
        n = len(part.indices)
        owner = part.owners
        codes = part.indices
        entry = np.arange(n, dtype=np.int32)
        scale = size_damping(part.sizes - 1).astype(np.float32)
        X = indicator(part, M).astype(np.float32)
        # One array holds logits, then probabilities, then their errors; "clip" spares a copy.
        P = np.take(X @ W, owner, axis=0, out=room[0, :n], mode="clip")
        P -= np.take(W, codes, axis=0, out=room[1, :n], mode="clip")
        P *= scale[owner, None]
        P += b
        rest = without_each(part)
        P[rest.owners, rest.indices] = -np.inf
        P -= P.max(axis=1, keepdims=True)
        own = P[entry, codes]
        np.exp(P, out=P)
        totals = P.sum(axis=1)
        value += float((own - np.log(totals)).sum(dtype=np.float64))
        by_item += np.bincount(codes, minlength=M) - (1.0 / totals) @ P
        P *= (-scale[owner] / totals)[:, None]
        P[entry, codes] += scale[owner]
        of_sets = indicator(Sets(part.indptr, entry), n).astype(np.float32)
        of_items = indicator(Sets(np.arange(n + 1), codes), M).astype(np.float32)
        by_pair += X.T @ (of_sets @ P)
        by_pair -= of_items.T @ P
    return LogLikelihood(value, by_pair, by_item)
