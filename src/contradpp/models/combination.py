"""A weighted combination of experts, whose weights depend on the basket.

    P(next = j | A) ∝ exp(τ(A) Σ_f θ_f(A) f_j(A) + ρ(A) Σ_{u≤v} φ_uv z_u z_v)
    θ(A) = θ₀ + θ₁ log|A| + θ₂ sparsity(A)

The features f are transformed scores of the experts (`experts/table.py`). z_v is the last feature
of expert v, standardized: by the products, an expert counts for less, or more, where others agree.
sparsity(A) is the mean of κ/(κ + n_a) over the items of A, where n_a baskets hold a.

θ and φ maximize the likelihood of held-out items given the rest of their baskets. No expert has
seen these, but for the kernel, whose validation set they are. The objective is concave. Queries
hold few items, of which whole baskets say little. The temperatures τ and ρ, of the same form as θ,
are therefore fitted to parts of baskets as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp import experts
from contradpp._random import EXAMPLES, PARTS, root_seed, stream
from contradpp._threads import T, blas_threads, results_of_blocks, run_blocks
from contradpp._types import Array, Codes, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, pointers, runs, take_sets, without_each
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import files
from contradpp.dpp.files import Stored
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.mixture import Mixture
from contradpp.dpp.scoring import top_n
from contradpp.errors import NumericalError
from contradpp.experts.base import SCORES_PER_BLOCK, Baseline
from contradpp.experts.popularity import Popularity
from contradpp.experts.table import (
    KERNEL,
    MIXTURE,
    ClusterExpert,
    Expert,
    ExternalExpert,
    Feature,
    KernelExpert,
    features_of,
)

MAX_SCORES = 2**22  # of one expert in memory at once
N_CONTEXT = 3  # context features: 1, log|A| and sparsity(A)
MAX_WEIGHT = 1e100  # of a feature in a file: larger products might overflow
SUPPORT = 10.0  # κ: the sales of an item at which its sparsity is a half
PRIOR = 10.0  # prior precision of θ per unit of a feature's spread, as if from ten examples
PRODUCT_PRIOR = 100.0  # the same of φ
TEMPERATURE_PRIOR = 100.0  # the same of τ and ρ, per unit of the spread of what they multiply
MIN_TEMPERATURE = 0.1  # of τ; the least ρ is 0

N_EXAMPLES = 8000  # held-out items from which θ and φ are learned
N_PARTS = 4000  # and further ones for τ and ρ
N_BEST = 60  # candidates of an example that each expert scores highest
N_RANDOM = 240  # candidates of an example that stand for all others
MAX_EXHAUSTIVE = 600  # items: in smaller catalogs all are candidates


# -- Weights ---------------------------------------------------------------------------------------


class Products(NamedTuple):
    """The products z_u z_v of the standardized features of two experts, squares included."""

    columns: Ints  # (V,): the feature that stands for each expert
    center: Array  # (V,)
    spread: Array  # (V,)

    @property
    def n_products(self) -> int:
        """The number of products P."""
        return len(self.columns) * (len(self.columns) + 1) // 2

    @property
    def is_measured(self) -> bool:
        """True if examples have set center and spread."""
        return bool(self.center.any())

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """The two experts of every product."""
        return np.triu_indices(len(self.columns))

    def standardize(self, features: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return z of every expert (..., V), given its feature."""
        z = (features - self.center.astype(features.dtype)) / self.spread.astype(features.dtype)
        return np.clip(z, -experts.compiled.FARTHEST, experts.compiled.FARTHEST, out=z)

    def slopes(self, features: Array, phi: Array) -> Array:
        """Return Σ_u φ_uv z_u of every expert v, half of it for u ≠ v (m, V).

        Times z_v and summed over v, it is the sum of all products.
        """
        Q = np.zeros((len(self.columns),) * 2)
        one, other = self.pairs
        Q[one, other] += phi / 2
        Q[other, one] += phi / 2
        slopes: Array = self.standardize(features) @ Q
        return slopes

    def append_to(self, features: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the features with the products behind them (..., F + P)."""
        if not len(self.columns):
            return features
        z = self.standardize(features[..., self.columns])
        one, other = self.pairs
        return np.concatenate([features, z[..., one] * z[..., other]], axis=-1)


NO_PRODUCTS = Products(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
NEUTRAL_TEMPERATURE = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])


class Weights(NamedTuple):
    """The weights of features and products, their posterior precision, and the temperatures."""

    theta: Array  # (3, F + P): θ₀, θ₁ and θ₂; φ is the end of θ₀
    precision: Array  # of all of theta; ∞ for what is fixed
    products: Products = NO_PRODUCTS
    temperature: Array = NEUTRAL_TEMPERATURE  # (3, 2): τ and ρ

    def contents(self) -> files.Tensors:
        """Return the tensors of a model file."""
        arrays = {
            "theta": self.theta,
            "theta.precision": self.precision,
            "temperature": self.temperature,
            "products.center": self.products.center,
            "products.spread": self.products.spread,
        }
        return files.stored_arrays(arrays, STORED_WEIGHTS)

    @classmethod
    def restore(cls, columns: Ints, tensors: files.Tensors) -> Weights:
        """Return the weights of a model file, given the last feature of each expert."""
        n = int(columns[-1]) + 1 + len(columns) * (len(columns) + 1) // 2
        sizes = {"weights": n, "all": N_CONTEXT * n, "experts": len(columns)}
        found = files.read_arrays(tensors, STORED_WEIGHTS, "weights", **sizes)
        products = Products(columns, found["products.center"], found["products.spread"])
        return cls(found["theta"], found["theta.precision"], products, found["temperature"])


STORED_WEIGHTS = {
    "theta": Stored((N_CONTEXT, "weights"), low=-MAX_WEIGHT, high=MAX_WEIGHT),
    "theta.precision": Stored(("all", "all"), low=-np.inf, high=np.inf),
    "temperature": Stored(NEUTRAL_TEMPERATURE.shape, low=-MAX_WEIGHT, high=MAX_WEIGHT),
    "products.center": Stored(("experts",), low=-MAX_WEIGHT, high=MAX_WEIGHT),
    "products.spread": Stored(("experts",), low=1.0 / MAX_WEIGHT, high=MAX_WEIGHT),
}


# -- The combination -------------------------------------------------------------------------------


@dataclass
class Combination:
    """Experts by name, their features and their weights; without weights the kernel decides."""

    experts: Mapping[str, Expert]
    features: Mapping[str, tuple[Feature, ...]]
    counts: NDArray[np.number]  # baskets that hold each item that the experts know
    weights: Weights = field(
        default_factory=lambda: Weights(np.empty((N_CONTEXT, 0)), np.empty((0, 0)))
    )

    @classmethod
    def of(
        cls,
        distribution: Kernel | Mixture,
        fitted: Mapping[str, Any],
        items: Vocabulary,
        counts: NDArray[np.number],
        weights: Weights | None = None,
        *,
        by_cluster: bool = False,
    ) -> Combination:
        """Return the combination of fitted experts and the kernel.

        The experts know `items`; the kernel and `counts` may have later ones. With `by_cluster`,
        the clusters of a mixture are an expert, too.
        """
        scored: dict[str, Expert] = {
            name: expert if isinstance(expert, Baseline) else ExternalExpert(expert, items)
            for name, expert in fitted.items()
        }
        features = {name: features_of(name, expert) for name, expert in fitted.items()}
        if by_cluster and isinstance(distribution, Mixture) and distribution.n_clusters > 1:
            scored[MIXTURE] = clusters = ClusterExpert(distribution, len(items))
            features[MIXTURE] = clusters.features
        own = KernelExpert(distribution, len(items))
        found = cls(scored | {KERNEL: own}, features | {KERNEL: own.features}, counts[: len(items)])
        return found if weights is None else replace(found, weights=weights)

    def __post_init__(self) -> None:
        self.names = [name for name, features in self.features.items() for _ in features]
        self.n_features = len(self.names)  # F
        # The feature that stands for each expert in products.
        self.last_features = np.cumsum(list(map(len, self.features.values())), dtype=np.int64) - 1
        if not self.weights.theta.size:
            n = len(self.features)
            products = Products(self.last_features, np.zeros(n), np.ones(n))
            self.weights = self.prior(products, np.ones(self.n_features + products.n_products))
        self._sparsities = SUPPORT / (SUPPORT + np.asarray(self.counts, dtype=np.float64))
        self._constant: dict[str, Array] = {}  # features that do not depend on the basket
        for name, expert in self.experts.items():
            if isinstance(expert, Popularity):
                values = expert.probabilities_[None].copy()
                self.features[name][0].write(values, np.ones(1, dtype=np.int64), values)
                self._constant[name] = values

    def prior(self, products: Products, spread: Array) -> Weights:
        """Return the weights before any data: the kernel counts, or popularity if there is none.

        `spread` is the spread of every feature and product.
        """
        F = self.n_features
        theta = np.zeros((N_CONTEXT, len(spread)))
        theta[0, self.names.index(KERNEL) if KERNEL in self.names else 0] = 1.0
        precision = np.tile(np.square(spread), (N_CONTEXT, 1))
        precision[:, :F] *= PRIOR
        precision[0, F:] *= PRODUCT_PRIOR
        precision[1:, F:] = np.inf
        return Weights(theta, np.diag(precision.ravel()), products)

    def context(self, sets: Sets, *, leave_one_out: bool = False) -> Array:
        """Return 1, log|A| and sparsity(A) of every set, or its parts (n, 3)."""
        sizes = sets.sizes
        sparsities = self._sparsities[sets.indices]
        owner = np.repeat(np.arange(sets.count), sizes)
        total = np.bincount(owner, sparsities, sets.count).astype(np.float64)
        if leave_one_out:
            sizes = sizes[owner] - 1
            total = total[owner] - sparsities
        means = total / np.maximum(sizes, 1)
        return np.stack([np.ones(len(sizes)), log_sizes(sizes), means], axis=1)

    def theta(self, context: Array) -> Array:
        """Return τθ and ρφ of baskets (n_baskets, F + P)."""
        theta: Array = context @ self.weights.theta
        temperature = self.temperature(context)
        theta[:, : self.n_features] *= temperature[:, :1]
        theta[:, self.n_features :] *= temperature[:, 1:]
        return theta

    def temperature(self, context: Array) -> Array:
        """Return τ and ρ of baskets (n_baskets, 2)."""
        least = [MIN_TEMPERATURE, 0.0]
        temperature: Array = np.maximum(context @ self.weights.temperature, least)
        return temperature

    def write_logits(self, sets: Sets, out: Array, *, leave_one_out: bool = False) -> None:
        """Write the logits of every item given every set, or its parts; see `write_features`."""
        n_rows = max(MAX_SCORES // out.shape[1], 1)
        if len(out) > n_rows:  # products need the scores of all experts at once
            sets = without_each(sets) if leave_one_out else sets
            for first in range(0, len(out), n_rows):
                part = np.arange(first, min(first + n_rows, len(out)))
                self.write_logits(take_sets(sets, part), out[first : first + len(part)])
            return
        features = np.empty((self.n_features, *out.shape))
        self.write_features(sets, features, leave_one_out=leave_one_out)
        theta = self.theta(self.context(sets, leave_one_out=leave_one_out))
        experts.compiled.write_weighted_sums(features, *self.weights.products, theta, out)

    def write_features(
        self, sets: Sets, out: NDArray[np.floating], *, leave_one_out: bool = False
    ) -> None:
        """Write the features of all items given every set (F, n_sets, M).

        With `leave_one_out`, given every set without each of its entries in turn (F, nnz, M).
        """
        sizes = np.repeat(sets.sizes - 1, sets.sizes) if leave_one_out else sets.sizes
        single = None if out.dtype == np.float64 else np.empty(out.shape[1:])
        f = 0
        for name, features in self.features.items():
            rows = out[f : f + len(features)]
            f += len(features)
            if name in self._constant:
                rows[:] = self._constant[name]
                continue
            expert = self.experts[name]
            write = expert.write_scores_without_each if leave_one_out else expert.write_scores
            scores = rows[-1] if single is None else single
            write(sets, scores)
            for feature, row in zip(features, rows, strict=True):
                feature.write(scores, sizes, row)  # the last one in place


def log_sizes(sizes: Ints) -> Array:
    """Return log max(n, 1)."""
    logs: Array = np.log(np.maximum(sizes, 1))
    return logs


# -- Fitting the weights ---------------------------------------------------------------------------


def fit_weights(
    combination: Combination, held_out: Baskets, seed: int, n_jobs: int
) -> tuple[Weights, Sets, Examples | None]:
    """Fit the weights to baskets that no expert has seen, from those of the combination as prior.

    Also return the baskets that examples were made of, and the examples. If no basket has two
    items, there are no examples, and the weights are those of the combination.
    """
    chosen = choose_baskets(held_out, N_EXAMPLES, root_seed(stream(seed, EXAMPLES)))
    prior = combination.weights
    if not chosen.n_baskets or held_out.n_items < 2:
        return prior, chosen.sets, None
    examples = make_examples(combination, chosen, seed, n_jobs)
    if not prior.products.is_measured:
        examples = examples.measure_products(combination.last_features)
        prior = combination.prior(examples.products, examples.spread(n_jobs))
    weights = maximize_likelihood(examples, prior, n_jobs)
    unrestricted = held_out.subset(np.flatnonzero(held_out.refused.sizes == 0))
    if (unrestricted.sizes >= 2).any():
        combination = replace(combination, weights=weights)
        parts = choose_parts(unrestricted, N_PARTS, root_seed(stream(seed, PARTS)))
        both = [examples, make_examples(combination, parts, seed, n_jobs)]
        weights = weights._replace(temperature=fit_temperature(both, weights, n_jobs))
    return weights, chosen.sets, examples


class Examples(NamedTuple):
    """Training examples: held-out items, each the first of its candidates."""

    features: NDArray[np.floating]  # (N, C, F), without products
    log_counts: NDArray[np.floating]  # (N, C): log of the items a candidate stands for; −∞ for none
    context: Array  # (N, R): context features of the rest of the basket, or some of them
    codes: Codes = np.zeros((0, 0), dtype=np.int32)  # (N, C): the candidates
    products: Products = NO_PRODUCTS

    @property
    def blocks(self) -> list[slice]:
        """Examples that are handled together: products take much memory."""
        N, C, F = self.features.shape
        n = max(SCORES_PER_BLOCK // max(C * (F + self.products.n_products), 1), 1)
        return [slice(first, min(first + n, N)) for first in range(0, N, n)]

    def map_blocks(self, work: Callable[[NDArray[np.floating], slice], T], n_jobs: int) -> list[T]:
        """Return work(features with products, rows) of every block of rows, on threads."""
        blocks = self.blocks

        def of_block(block: int) -> T:
            rows = blocks[block]
            return work(self.products.append_to(self.features[rows]), rows)

        with blas_threads(1):
            return results_of_blocks(of_block, len(blocks), n_jobs)

    def times(self, weights: Array, n_jobs: int = 1) -> Array:
        """Return features and products times the weights of every example (N, F + P, n)."""
        parts = self.map_blocks(lambda X, rows: np.matmul(X, weights[rows]), n_jobs)
        return np.concatenate(parts)

    def logits(self, weights: Array, n_jobs: int = 1) -> Array:
        """Return the logits of all candidates (N, C), for weights of every example (N, F + P)."""
        logits: Array = self.times(weights[..., None], n_jobs)[..., 0]
        return logits

    def spread(self, n_jobs: int = 1) -> Array:
        """Return the mean standard deviation of features and products within examples, 1 for 0."""

        def squares(X: NDArray[np.floating], rows: slice) -> Array:
            real = np.isfinite(self.log_counts[rows])[..., None]
            count = np.maximum(real.sum(axis=1), 1)
            features = np.where(real, X, 0.0).astype(np.float64)
            mean = features.sum(axis=1) / count
            deviations = np.where(real, features - mean[:, None], 0.0)
            found: Array = (np.square(deviations).sum(axis=1) / count).sum(axis=0)
            return found

        spread = np.sqrt(sum(self.map_blocks(squares, n_jobs)) / len(self.features))
        return np.where(spread > 0, spread, 1.0)

    def measure_products(self, columns: Ints) -> Examples:
        """Return the examples with products of these features, standardized over all candidates."""
        real = np.isfinite(self.log_counts)
        center = np.empty(len(columns))
        spread = np.empty(len(columns))
        for k, column in enumerate(columns.tolist()):
            values = self.features[..., column][real].astype(np.float64)
            center[k] = values.mean()
            spread[k] = values.std()
        return self._replace(products=Products(columns, center, np.where(spread > 0, spread, 1.0)))


def choose_baskets(baskets: Baskets, n: int, seed: int) -> Baskets:
    """Choose random baskets of two items and more that together hold n items."""
    eligible = stream(seed, 0).permutation(np.flatnonzero(baskets.sizes >= 2))
    enough = int(np.searchsorted(np.cumsum(baskets.sizes[eligible]), n)) + 1
    return baskets.subset(np.sort(eligible[:enough]))


def choose_parts(baskets: Baskets, n: int, seed: int) -> Baskets:
    """Choose random parts of random baskets, two items and more, that together hold n items.

    The logarithm of a part's size is uniform between those of two and of the basket's size. Parts
    hold no more items than the baskets together: repeated baskets would add no information.
    """
    rng = stream(seed, 2)
    order = rng.permutation(np.flatnonzero(baskets.sizes >= 2))
    n = min(n, int(baskets.sizes[order].sum()))
    parts: list[Codes] = []
    n_chosen = 0
    for basket in itertools.cycle(order.tolist()):
        codes = baskets.codes(basket)
        size = min(int(2.0 * ((len(codes) + 1) / 2.0) ** rng.random()), len(codes))
        parts.append(np.sort(rng.choice(codes, size, replace=False)))
        n_chosen += size
        if n_chosen >= n:
            break
    return Baskets(pointers([len(part) for part in parts]), np.concatenate(parts), baskets.items)


def make_examples(combination: Combination, baskets: Baskets, seed: int, n_jobs: int) -> Examples:
    """Make an example of every item of the baskets.

    Where it is known which items were refused, only these are candidates.
    """
    sets = baskets.sets
    refused = baskets.refused
    n_items = baskets.n_items
    exhaustive = n_items <= MAX_EXHAUSTIVE
    n_experts = len(combination.features)
    width = n_items if exhaustive else min(1 + n_experts * N_BEST + N_RANDOM, n_items)
    N = len(sets.indices)
    F = combination.n_features
    features = np.zeros((N, width, F), dtype=np.float32)
    log_counts = np.full((N, width), -np.inf, dtype=np.float32)
    candidates = np.zeros((N, width), dtype=np.int32)
    first_features = [combination.names.index(name) for name in combination.features]
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // (n_items * max(F // 2, 1)), 1)))

    def work(block: int) -> None:
        first, last = blocks[block]
        part = take_sets(sets, np.arange(first, last))
        values = np.empty((F, len(part.indices), n_items), dtype=np.float32)
        combination.write_features(part, values, leave_one_out=True)
        rng = stream(seed, 1, block)
        owners = part.owners
        for entry, (owner, item) in enumerate(
            zip(owners.tolist(), part.indices.tolist(), strict=True)
        ):
            inside = part.indices[part.indptr[owner] : part.indptr[owner + 1]]
            among = refused.indices[
                refused.indptr[first + owner] : refused.indptr[first + owner + 1]
            ]
            sampled = np.empty(0, dtype=np.int64)
            stands_for = 1.0
            if len(among):
                codes = among[: width - 1].astype(np.int64)
            elif exhaustive:
                codes = np.setdiff1d(np.arange(n_items), inside)
            else:
                scores = values[first_features, entry].astype(np.float64)
                codes, sampled, stands_for = _candidates(scores, inside, rng)
            chosen = np.concatenate([[item], codes, sampled])
            n = len(chosen)
            row = int(sets.indptr[first]) + entry
            features[row, :n] = values[:, entry, chosen].T
            candidates[row, :n] = chosen
            log_counts[row, :n] = 0.0
            log_counts[row, n - len(sampled) : n] = np.log(stands_for)

    run_blocks(work, len(blocks), n_jobs)
    context = combination.context(sets, leave_one_out=True)
    return Examples(features, log_counts, context, candidates, combination.weights.products)


def _candidates(scores: Array, inside: Codes, rng: np.random.Generator) -> tuple[Ints, Ints, float]:
    """Return the best items of every expert, a sample of the others, and how many each stands for.

    The scores (experts, M) of the items inside the basket are overwritten.
    """
    left = np.ones(scores.shape[1], dtype=bool)
    left[inside] = False
    scores[:, inside] = -np.inf
    best = np.unique(top_n(scores, N_BEST))
    best = best[left[best]]
    left[best] = False
    rest = np.flatnonzero(left)
    sample = rest if len(rest) <= N_RANDOM else rng.choice(rest, N_RANDOM, replace=False)
    return best, sample, len(rest) / max(len(sample), 1)


def log_likelihood(examples: Examples, theta: Array, n_jobs: int = 1) -> tuple[float, Array, Array]:
    """Return Σ log P(held-out item), its gradient (R, F) and its negative Hessian (RF, RF).

    F counts products, too.
    """

    # θ may be a step too far: the value is then not a number.
    @np.errstate(over="ignore", invalid="ignore")
    def work(X: NDArray[np.floating], rows: slice) -> tuple[float, Array, Array]:
        Z = examples.context[rows]
        W = (Z @ theta).astype(X.dtype)
        logits = np.matmul(X, W[:, :, None])[..., 0] + examples.log_counts[rows]
        logits -= logits.max(axis=1, keepdims=True)
        P = np.exp(logits)
        totals = P.sum(axis=1, keepdims=True)
        value = float((logits[:, 0] - np.log(totals[:, 0])).sum(dtype=np.float64))
        P /= totals
        mean = np.matmul(P[:, None], X)[:, 0]
        slope = (X[:, 0] - mean).astype(np.float64)
        second = np.matmul((X * P[..., None]).transpose(0, 2, 1), X)
        second -= mean[:, :, None] * mean[:, None, :]
        second = second.astype(np.float64)
        hessian = np.block([[np.tensordot(a * b, second, axes=1) for b in Z.T] for a in Z.T])
        return value, Z.T @ slope, hessian

    parts = examples.map_blocks(work, n_jobs)
    value, gradient, hessian = (sum(terms) for terms in zip(*parts, strict=True))
    return value, gradient, hessian


def maximize_likelihood(examples: Examples, prior: Weights, n_jobs: int = 1) -> Weights:
    """Return the posterior mode of θ, and its precision, under a Gaussian prior.

    Newton's method with halved steps: the function is concave, and has few parameters.
    """
    center = prior.theta.ravel()
    free = np.flatnonzero(np.isfinite(np.diag(prior.precision)))
    block = np.ix_(free, free)
    K = prior.precision[block]

    def posterior(theta: Array) -> tuple[float, Array, Array]:
        weights = theta.reshape(prior.theta.shape)
        value, gradient, hessian = log_likelihood(examples, weights, n_jobs)
        offset = (theta - center)[free]
        value -= 0.5 * float(offset @ K @ offset)
        return value, gradient.ravel()[free] - K @ offset, hessian[block] + K

    theta = center.copy()
    value, gradient, hessian = posterior(theta)
    if not np.isfinite(hessian).all():
        raise NumericalError(
            "the weights of the experts cannot be learned: an expert's scores are not finite"
        )
    for _ in range(100):
        step = np.linalg.lstsq(hessian, gradient, rcond=1e-12)[0]
        slope = float(gradient @ step)
        if slope < 1e-5:  # twice the remaining improvement, in nats over all examples
            break
        size = 1.0
        while size > 1e-6:
            moved = theta.copy()
            moved[free] += size * step
            there = posterior(moved)
            if there[0] >= value + 1e-4 * size * slope:
                break
            size /= 2
        else:
            break  # rounding
        theta = moved
        value, gradient, hessian = there
    precision = prior.precision.copy()
    precision[block] = hessian
    return prior._replace(theta=theta.reshape(prior.theta.shape), precision=precision)


def fit_temperature(examples: Sequence[Examples], weights: Weights, n_jobs: int = 1) -> Array:
    """Return the τ and ρ that maximize the likelihood, around the present ones; θ and φ stay."""
    sums = np.concatenate([_linear_and_product(one, weights, n_jobs) for one in examples])
    log_counts = np.concatenate([one.log_counts for one in examples])
    context = np.concatenate([one.context for one in examples])
    sums = np.where(np.isfinite(log_counts)[..., None], sums, 0.0)
    reduced = Examples(sums, log_counts, context)
    spread = np.tile(np.square(reduced.spread(n_jobs)), N_CONTEXT)
    prior = Weights(weights.temperature, np.diag(spread) * TEMPERATURE_PRIOR)
    return maximize_likelihood(reduced, prior, n_jobs).theta


def _linear_and_product(examples: Examples, weights: Weights, n_jobs: int) -> NDArray[np.float32]:
    """Return the sums over features and over products (N, C, 2)."""
    theta = examples.context @ weights.theta
    F = examples.features.shape[2]
    either = np.zeros((*theta.shape, 2))
    either[:, :F, 0] = theta[:, :F]
    either[:, F:, 1] = theta[:, F:]
    return examples.times(either, n_jobs).astype(np.float32)


def fit_offset_weights(features: Array, offsets: Array, context: Array, n_jobs: int) -> Array:
    """Return the θ of features (N, C, F) that are added to fixed logits, around zero (R, F).

    `offsets` (N, C) are the logits without the features, the held-out item's first; −∞ for no
    candidate. `context` is (N, R).
    """
    examples = Examples(features, offsets, context)
    precision = PRIOR * np.tile(np.square(examples.spread(n_jobs)), context.shape[1])
    prior = Weights(np.zeros((context.shape[1], features.shape[2])), np.diag(precision))
    return maximize_likelihood(examples, prior, n_jobs).theta
