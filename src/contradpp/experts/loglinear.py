"""A weight for every pair of items, by the likelihood of the items that are left out of their baskets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import blas_threads, resolve_n_jobs, results_of_blocks
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, runs, take_sets, without_each
from contradpp.dpp import persist
from contradpp.dpp.persist import Stored
from contradpp.errors import ParameterError
from contradpp.experts.base import Array, Baseline, at_least, of_logits
from contradpp.experts.statistics import MOST_WEIGHT, Labour, Sums, indicator

DENSE_UP_TO = 2000  # items: the weights of all pairs, and the optimiser's memory of its last steps, take 0.4 GB then
MOST_SCORES = 2**26  # of a pass over the baskets: of more baskets a sample is taken
SCORES_PER_BLOCK = 2**20  # or as many entries as items, whose weights are gone through for each block
N_GROUPS = 8  # of baskets, each with a gradient of its own
ROUNDS, ENOUGH = 200, 1e-6  # of the optimiser at most, and the gain, over the log-likelihood, of the last
LEAST_PENALTY = 1e-3  # with less, items that hardly ever met would go anywhere
DAMPING = 0.5  # what the items of a basket say is divided by its size to this power


class Answer(NamedTuple):
    """The log-likelihood, and its gradient."""

    value: float
    weights: Array  # (M, M), not symmetric: the row is the item of the basket
    bias: Array  # (M,)


@dataclass(eq=False, repr=False)
class LogLinear(Baseline):
    """P(next = j | A) ∝ exp(b_j + |A|^(−1/2) Σ_{a∈A} w_aj) with w symmetric: pairs attract or repel.

    b and w maximise the likelihood of every item of the training baskets of two and more, given the rest of its basket.
    That is concave. It is dense, and for catalogues of up to 2,000 items. An empty basket is offered what is popular.

    Parameters
    ----------
    penalty : float
        λ ≥ 0.001: ½ λ w² of every pair, and ½ λ (b_j − log(n_j + 1))² of every item, whose logarithms are less the
        largest of them, are taken off the log-likelihood.
    random_state : int
        Chooses the baskets to learn from where there are more than can be looked at in seconds.
    n_jobs : int, optional
        Threads; None for all cores. The result does not depend on it.

    Examples
    --------
    >>> model = LogLinear().fit([["tea", "milk"], ["pasta", "sauce"]] * 5)
    >>> model.recommend(["tea"], N=1)[0].tolist()
    ['milk']
    """

    LEARNED: ClassVar[persist.Schema] = {
        "weights": Stored(("M", "M"), low=-MOST_WEIGHT, high=MOST_WEIGHT, single=True),
        "base": Stored(("M",), low=-MOST_WEIGHT, high=MOST_WEIGHT, single=True),
    }
    penalty: float = 4.0
    random_state: int = 0
    n_jobs: int | None = None

    def _learn(self, labour: Labour) -> None:
        at_least(LEAST_PENALTY, penalty=self.penalty)
        train = labour.train
        if train.n_items > DENSE_UP_TO:
            raise ParameterError(
                f"LogLinear has a weight for every pair of items, and takes {DENSE_UP_TO:,} at most: here are "
                f"{train.n_items:,}. ConditionalDPP does without it when it is fitted anew"
            )
        counts, M = train.item_counts.astype(np.float64), train.n_items
        sets, share = self._sample(train)
        usual = np.log(counts + 1.0)
        usual -= usual.max()
        pairs = np.triu_indices(M, 1)
        # As if every item were bought at its usual rate: then all second derivatives are about one.
        rate = counts / max(counts.sum(), 1.0)
        units = np.concatenate([(2.0 * counts[:, None] * rate)[pairs], counts]) * share
        units = 1.0 / np.sqrt(self.penalty + units)
        n_jobs = resolve_n_jobs(self.n_jobs)

        def unfold(steps: Array) -> tuple[Array, Array]:
            W = np.zeros((M, M))
            W[pairs] = steps[: len(pairs[0])]
            return W + W.T, usual + steps[len(pairs[0]) :]

        def loss(scaled: Array) -> tuple[float, Array]:
            steps = scaled * units
            told = log_likelihood(sets, *unfold(steps), n_jobs)
            slope = np.concatenate([(told.weights + told.weights.T)[pairs], told.bias])
            value = told.value - 0.5 * self.penalty * float(steps @ steps)
            return -value, (self.penalty * steps - slope) * units

        from scipy.optimize import minimize

        options = {"maxiter": ROUNDS, "ftol": ENOUGH}
        with blas_threads(1):  # or its sums depend on the number of threads
            found = minimize(loss, np.zeros(len(units)), jac=True, method="L-BFGS-B", options=options)
        self.weights_, self.base_ = unfold(found.x * units)

    def _sample(self, train: Baskets) -> tuple[Sets, float]:
        """Baskets of two items and more, at random where there are too many, and the share of them that is taken."""
        told = np.flatnonzero(train.sizes >= 2)
        entries = max(int(train.sizes[told].sum()), 1)
        share = min(MOST_SCORES / (entries * train.n_items), 1.0)
        if share < 1:
            told = np.sort(stream(self.random_state).permutation(told)[: max(int(share * len(told)), 1)])
        return take_sets(train.sets, told), share

    # -- Scores are logits ---------------------------------------------------------------------------

    def write_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        """Write b_j + |A|^(−1/2) Σ w_aj."""
        sizes = np.repeat(sets.sizes, sets.sizes) - 1 if each else sets.sizes
        Sums(self.base_, self.weights_).write(sets, out, each=each)
        out *= damped(sizes)[:, None]
        out += self.base_
        out[sizes == 0] = np.log(self.item_counts_ + 1.0)

    def contributions(self, codes: NDArray[np.int32], item: int) -> Array:
        terms: Array = self.weights_[codes, item] * damped(np.array([len(codes)]))
        return terms

    def alone(self, items: NDArray[np.int64]) -> Array:
        return self.base_[items]

    def as_shares(self, scores: Array, sets: Sets) -> Array:
        return of_logits(scores, sets)

    # -- Files ---------------------------------------------------------------------------------------

    def learned(self) -> persist.Tensors:
        return persist.stored_arrays({"weights": self.weights_, "base": self.base_}, self.LEARNED)

    def take_learned(self, train: Baskets, learned: Mapping[str, NDArray[Any]]) -> None:
        found = persist.read_arrays(learned, self.LEARNED, "weights of pairs", M=train.n_items)
        self.weights_, self.base_ = found["weights"], found["base"]


def damped(sizes: NDArray[np.integer]) -> Array:
    """What the items of baskets of these sizes say is multiplied by this."""
    scale: Array = np.maximum(sizes, 1.0) ** -DAMPING
    return scale


def log_likelihood(sets: Sets, W: Array, b: Array, n_jobs: int = 1) -> Answer:
    """Σ log P(i | A∖i) over all entries i of sets A of two items and more, in float32 but for its sums over blocks."""
    groups = np.linspace(0, sets.count, N_GROUPS + 1).astype(int)
    weights, base = W.astype(np.float32), b.astype(np.float32)

    def work(group: int) -> Answer:
        return _pass(take_sets(sets, np.arange(groups[group], groups[group + 1])), weights, base)

    found = results_of_blocks(work, N_GROUPS, n_jobs)
    value, by_pair, by_item = (sum(parts) for parts in zip(*found, strict=True))
    return Answer(value, by_pair, by_item)


def _pass(sets: Sets, W: NDArray[np.float32], b: NDArray[np.float32]) -> Answer:
    """The same for some of the sets; logits are made, and turned into errors of the probabilities, in one array."""
    value, by_pair, by_item = 0.0, np.zeros(W.shape), np.zeros(len(b))
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // len(b), len(b))))
    most = max((int(sets.indptr[last] - sets.indptr[first]) for first, last in blocks), default=0)
    room = np.empty((2, most, len(b)), dtype=np.float32)  # new memory for every block would take longer than its sums
    for first, last in blocks:
        part = take_sets(sets, np.arange(first, last))
        n = len(part.indices)
        owner, codes = np.repeat(np.arange(part.count), part.sizes), part.indices
        entry = np.arange(n, dtype=np.int32)
        scale = damped(part.sizes - 1).astype(np.float32)
        X = indicator(part, len(b)).astype(np.float32)
        P = np.take(X @ W, owner, axis=0, out=room[0, :n], mode="clip")  # which none needs, but it spares a copy
        P -= np.take(W, codes, axis=0, out=room[1, :n], mode="clip")
        P *= scale[owner, None]
        P += b
        rest = without_each(part)
        P[np.repeat(entry, rest.sizes), rest.indices] = -np.inf
        P -= P.max(axis=1, keepdims=True)
        own = P[entry, codes]
        np.exp(P, out=P)
        totals = P.sum(axis=1)
        value += float((own - np.log(totals)).sum(dtype=np.float64))
        by_item += np.bincount(codes, minlength=len(b)) - (1.0 / totals) @ P
        P *= (-scale[owner] / totals)[:, None]
        P[entry, codes] += scale[owner]
        of_sets = indicator(Sets(part.indptr, entry), n).astype(np.float32)
        of_items = indicator(Sets(np.arange(n + 1), codes), len(b)).astype(np.float32)
        by_pair += X.T @ (of_sets @ P)
        by_pair -= of_items.T @ P
    return Answer(value, by_pair, by_item)
