"""A mixture of DPPs that share one kernel L and differ in the quality of items.

    P(A) = Σ_c π_c det(L^c_A) / det(I + L^c),    L^c = E_c L E_c,    E_c = diag(exp(u_c / 2))
         = det(L_A) Σ_c exp(β_c + Σ_{i∈A} u_ci),    β_c = log π_c − log det(I + L^c)

u_c, the tilts of cluster c, say how much more an item belongs to this kind of basket than to
others. Given a basket, the posterior probability of a cluster is its responsibility

    r_c(A) ∝ exp(β_c + Σ_{i∈A} u_ci),

which needs no determinant. The score of a next item is the kernel's times the mixture's:

    P(A∪j) / P(A) = det L_{A∪j} / det L_A · Σ_c r_c(A) exp(u_cj)

Everything else is an average over the components, each of which is a `Kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logsumexp, softmax

from contradpp._random import COMPONENT, root_seed, stream
from contradpp._threads import T, blas_threads, results_of_blocks
from contradpp._types import Array, Codes, Ints
from contradpp.data.sets import Sets, joined, prefixes, take_sets
from contradpp.dpp import scoring
from contradpp.dpp.factor import NO_ITEMS
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.normalizer import ROUGH, inclusion
from contradpp.dpp.sampling import first_order_inclusion, refuse_too_many
from contradpp.errors import ParameterError

# Clusters whose share of a score is below this, even for the item they prefer most, do not count.
NEGLIGIBLE = 1e-17
MAX_COMPONENTS = 16  # in memory, with what they know, such as a sampler


class Mixture:
    """A distribution of sets: DPPs with the kernels E_c L E_c, with probability π_c.

    Parameters
    ----------
    kernel : Kernel
        L.
    tilts : array (C, M)
        u, the log of how much heavier an item is in a cluster than in L.
    log_weights : array (C,)
        log π, up to a constant.
    log_normalizers : array (C,), optional
        log det(I + L^c), if it is known already.
    rates : array (M,), optional
        About P(i ∈ Y), if it is known already.
    """

    def __init__(
        self,
        kernel: Kernel,
        tilts: Array,
        log_weights: Array,
        log_normalizers: Array | None = None,
        rates: Array | None = None,
    ) -> None:
        self.kernel = kernel
        self.tilts = np.ascontiguousarray(tilts, dtype=np.float64)
        self.log_weights = np.asarray(log_weights - logsumexp(log_weights), dtype=np.float64)
        if log_normalizers is not None:
            self.log_normalizers = log_normalizers
        if rates is not None:
            self.rates = rates
        self._components: dict[int, Kernel] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what is quickly rebuilt."""
        return {**self.__dict__, "_components": {}}

    @property
    def n_items(self) -> int:
        """M, the number of items."""
        return int(self.tilts.shape[1])

    @property
    def n_jobs(self) -> int:
        """The number of threads."""
        return self.kernel.n_jobs

    @n_jobs.setter
    def n_jobs(self, value: int) -> None:
        self.kernel.n_jobs = value

    @property
    def n_clusters(self) -> int:
        """C, the number of clusters."""
        return len(self.tilts)

    @property
    def weights(self) -> Array:
        """π, the probability of every cluster (C,)."""
        return np.asarray(np.exp(self.log_weights))

    def component(self, cluster: int) -> Kernel:
        """Return the kernel L^c of a cluster."""
        if not self.tilts[cluster].any():
            return self.kernel
        found = self._components.pop(cluster, None) or self.kernel.tilted(self.tilts[cluster])
        found.n_jobs = self.kernel.n_jobs
        self._components[cluster] = found
        if len(self._components) > MAX_COMPONENTS:
            del self._components[next(iter(self._components))]
        return found

    def map_components(self, work: Callable[[Kernel], T]) -> list[T]:
        """Return a function of every L^c. The results do not depend on the threads."""

        def one(cluster: int) -> T:
            kernel = self.kernel
            if self.tilts[cluster].any():
                kernel = kernel.tilted(self.tilts[cluster])
                kernel.n_jobs = 1
            return work(kernel)

        return results_of_blocks(one, self.n_clusters, self.n_jobs)

    @cached_property
    def log_normalizers(self) -> Array:
        """log det(I + L^c) of every cluster (C,); estimates unless the kernel's is exact."""
        return np.array(self.map_components(lambda kernel: kernel.log_normalizer))

    @property
    def log_normalizer_error(self) -> float:
        """The standard error of log P, about that of one normalizer; 0 if the kernel is exact."""
        return self.component(int(np.argmax(self.log_weights))).log_normalizer_error

    @property
    def is_exact(self) -> bool:
        """True if nothing needs an estimate, as `Kernel.is_exact`."""
        return self.kernel.is_exact

    @property
    def rank(self) -> int:
        """The largest size of a set of positive probability, as `Kernel.rank`."""
        return self.kernel.rank

    def in_double(self) -> Mixture:
        """Return the same mixture with factors in float64."""
        kernel = self.kernel.in_double()
        if kernel is self.kernel:
            return self
        return Mixture(kernel, self.tilts, self.log_weights, self.log_normalizers)

    @property
    def offsets(self) -> Array:
        """β (C,)."""
        return self.log_weights - self.log_normalizers

    @cached_property
    def _factors(self) -> Array:
        """exp(u) (C, M)."""
        return np.asarray(np.exp(self.tilts))

    @cached_property
    def _largest_factors(self) -> Array:
        """The largest of exp(u_c) of every cluster (C,)."""
        return np.asarray(self._factors.max(axis=1))

    @cached_property
    def _by_item(self) -> Array:
        """U transposed (M, C)."""
        return np.ascontiguousarray(self.tilts.T)

    @cached_property
    def squared_norms(self) -> Array:
        """The score of every item given the empty set (M,), as the diagonal of a kernel is."""
        alone: Array = np.empty((1, self.n_items))
        self._multiply(self.offsets[None], alone, self.kernel.squared_norms)
        return np.asarray(alone[0])

    # -- Clusters ----------------------------------------------------------------------------------

    def log_joint(self, sets: Sets, *, each: bool = False) -> Array:
        """Return β_c + Σ_A u_c of every set (n, C), which is log P(c, A) − log det L_A.

        With `each`, of every set without each of its entries.
        """
        if sets.count == 1:  # a sparse product takes much longer to set up
            joint: Array = self._by_item[sets.indices].sum(axis=0)[None] + self.offsets
        else:
            joint = np.asarray(membership(sets, self.n_items) @ self._by_item + self.offsets)
        if each:
            joint = joint[sets.owners] - self._by_item[sets.indices]
        return joint

    def responsibilities(self, sets: Sets) -> Array:
        """Return r_c(A), the probability of every cluster given a set (n, C)."""
        return np.asarray(softmax(self.log_joint(sets), axis=1))

    def _multiply(self, joint: Array, out: Array, scores: Array | None = None) -> None:
        """Multiply scores (n, M), those in `out` unless others are given, by Σ_c r_c exp(u_c)."""
        responsibilities = softmax(joint, axis=1)
        share = (responsibilities * self._largest_factors).max(axis=0)
        used = np.flatnonzero(share > NEGLIGIBLE * share.max())
        factors = responsibilities[:, used] @ self._factors[used]
        np.multiply(out if scores is None else scores, factors, out=out)

    # -- Probabilities of sets ---------------------------------------------------------------------

    def log_probability(self, sets: Sets) -> Array:
        """Return log P(A) of every set."""
        mixed: Array = logsumexp(self.log_joint(sets), axis=1)
        return self.kernel.log_det(sets) + mixed

    def unnormalized_log_probability(self, sets: Sets) -> Array:
        """Return log P(A) up to a constant, here none."""
        return self.log_probability(sets)

    def log_choice(self, chosen: Sets, offered: Sets) -> Array:
        """Return log P(Y = chosen | Y ⊆ offered) for every pair of sets."""
        totals = np.stack(
            [
                self.component(c).plus_identity.log_det(offered) + self.offsets[c]
                for c in range(self.n_clusters)
            ]
        )
        mixed: Array = logsumexp(totals, axis=0)
        return self.log_probability(chosen) - mixed

    @cached_property
    def log_sizes_by_cluster(self) -> Array:
        """log P(c, |Y| = k) for k = 0, 1, ... (C, n)."""
        logs = self.map_components(lambda kernel: kernel.log_size_distribution)
        joint = np.full((len(logs), max(map(len, logs))), -np.inf)
        for row, log_weight, own in zip(joint, self.log_weights, logs, strict=True):
            row[: len(own)] = log_weight + own
        return joint

    @property
    def log_size_distribution(self) -> Array:
        """log P(|Y| = k) for k = 0, 1, ..."""
        return np.asarray(logsumexp(self.log_sizes_by_cluster, axis=0), dtype=np.float64)

    @cached_property
    def expected_size(self) -> float:
        """E|Y|."""
        return float(self.weights @ self.map_components(lambda kernel: kernel.expected_size))

    @cached_property
    def rates(self) -> Array:
        """About P(i ∈ Y) of every item (M,), by quick estimates where the kernel is large."""
        marginals = self.map_components(lambda kernel: inclusion(kernel, ROUGH)[0])
        return np.asarray(self.weights @ np.clip(np.stack(marginals), 0.0, 1.0))

    def marginals(self, given: Codes = NO_ITEMS) -> Array:
        """Return P(i ∈ Y | given ⊆ Y) for every item i, which is 1 for the given items (M,)."""
        found = np.ones(self.n_items)
        if len(given) == self.n_items:
            scoring.refuse_impossible(self.kernel, given)
            return found
        rest, codes = self.condition(given)
        of_clusters = rest.map_components(lambda kernel: kernel.marginals())
        found[codes] = np.clip(rest.weights @ np.stack(of_clusters), 0.0, 1.0)
        return found

    def condition(self, given: Codes) -> tuple[Mixture, Ints]:
        """Return the mixture of the remaining items given that `given` ⊆ Y, and their codes.

        Its kernel is L given those items, and π_c ∝ exp(β_c + Σ_given u_c) det(I + L'^c).
        """
        if not len(given):
            return self, np.arange(self.n_items)
        kernel, rest = self.kernel.condition(given)
        joint = self.log_joint(Sets.one(given))[0]
        found = Mixture(kernel, self.tilts[:, rest], joint)
        return Mixture(
            kernel, found.tilts, joint + found.log_normalizers, found.log_normalizers
        ), rest

    # -- Next items --------------------------------------------------------------------------------

    def write_scores(self, sets: Sets, out: Array) -> None:
        """Write the score of every item given every set (n, M), as far as rounding allows."""
        self.kernel.write_scores(sets, out)
        self._multiply(self.log_joint(sets), out)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        """Write the scores given every set without each of its entries in turn (nnz, M)."""
        self.kernel.write_scores_without_each(sets, out)
        self._multiply(self.log_joint(sets, each=True), out)

    def write_cluster_scores(self, sets: Sets, out: Array, *, each: bool = False) -> None:
        """Write L_jj Σ_c r_c(A) exp(u_cj), the scores of independent items (n, M).

        With `each`, given every set without each of its entries (nnz, M).
        """
        self._multiply(self.log_joint(sets, each=each), out, self.kernel.squared_norms)

    def scores_given_prefixes(self, codes: Codes, items: Ints) -> Array:
        """Score items given the first 0, 1, ..., n of the codes (n + 1, m)."""
        scores = self.kernel.scores_given_prefixes(codes, items)
        responsibilities = self.responsibilities(prefixes(codes))
        return scores * (responsibilities @ self._factors[:, items])

    def next_scores(self, sets: Sets) -> Iterator[scoring.Block]:
        """Score every item given every set, block by block; see `scoring.next_scores`."""
        for first, last, scores in self.kernel.next_scores(sets):
            part = take_sets(sets, np.arange(first, last))
            with blas_threads(1):
                self._multiply(self.log_joint(part), scores)
            yield scoring.Block(first, last, scores)

    # -- Samples -----------------------------------------------------------------------------------

    def sample(
        self,
        n: int,
        *,
        seed: int,
        size: int | None = None,
        given: Codes = NO_ITEMS,
        chain: bool = False,
        n_steps: int | None = None,
    ) -> Sets:
        """Draw n independent sets with the given items first, of exactly `size` items if given.

        A cluster is drawn for each, then a set of its DPP. Beside a chain, given items and sizes
        count for the clusters to first order in the kernel.
        """
        rest, codes = (self._condition_to_first_order if chain else self.condition)(given)
        logs = rest.log_weights
        if size is not None:
            refuse_too_many(size, self.kernel.rank)
        if size is not None and self.n_clusters > 1:
            logs = rest._log_size_weights(size - len(given), chain=chain)
        left = None if size is None else size - len(given)
        drawn = stream(seed, COMPONENT).choice(self.n_clusters, size=n, p=softmax(logs))
        parts: list[Sets] = []
        for c in np.unique(drawn).tolist():
            own_seed = root_seed(stream(seed, COMPONENT, c)) if self.n_clusters > 1 else seed
            count = int((drawn == c).sum())
            kernel = rest.component(c)
            parts.append(
                kernel.sample(count, seed=own_seed, size=left, chain=chain, n_steps=n_steps)
            )
        order = np.argsort(np.argsort(drawn, kind="stable"), kind="stable")
        sets = take_sets(joined(parts), order) if parts else Sets.empty(0)
        starts = np.repeat(sets.indptr[:-1], len(given))
        items = np.insert(codes[sets.indices], starts, np.tile(given, sets.count))
        indptr = sets.indptr + len(given) * np.arange(sets.count + 1)
        return Sets(indptr, items.astype(np.int32))

    def _condition_to_first_order(self, given: Codes) -> tuple[Mixture, Ints]:
        """Return about the same as `condition`, without a normalizer: P(given | c) = Π P(i | c)."""
        if not len(given):
            return self, np.arange(self.n_items)
        kernel, rest = self.kernel.condition(given)
        shares = [first_order_inclusion(self.component(c))[given] for c in range(self.n_clusters)]
        logs = self.log_weights + np.log(np.maximum(shares, 1e-300)).sum(axis=1)
        return Mixture(kernel, self.tilts[:, rest], logs), rest

    def _log_size_weights(self, size: int, *, chain: bool) -> Array:
        """Return log P(c, |Y| = size) (C,); beside a chain, by a normal approximation."""
        if not chain:
            joint = self.log_sizes_by_cluster
            logs = joint[:, size] if size < joint.shape[1] else np.full(self.n_clusters, -np.inf)
        else:
            logs = np.empty(self.n_clusters)
            for c in range(self.n_clusters):
                p = first_order_inclusion(self.component(c))
                variance = max(float((p * (1 - p)).sum()), 1e-12)
                logs[c] = -0.5 * ((size - p.sum()) ** 2 / variance + np.log(variance))
            logs += self.log_weights
        if not np.isfinite(logs).any():
            raise ParameterError(f"sets of {size} items have probability zero")
        return logs


def membership(sets: Sets, n_items: int) -> csr_array:
    """Return the matrix of sets × items that is 1 where an item is in a set."""
    ones = np.ones(len(sets.indices))
    return csr_array((ones, sets.indices, sets.indptr), shape=(sets.count, n_items))
