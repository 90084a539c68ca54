"""Learning L = V Vᵀ + S: the state, the objective and the optimiser of kernels whose items also attract.

S is sparse and skew: each item has a few dozen partners, and a pair has one parameter, log |s_ij|. The factors are
learned as those of a symmetric kernel are; what is added here is the part of the pairs.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import run_blocks
from contradpp.data.sets import Sets, sums_over_sets
from contradpp.dpp.products import gram, times
from contradpp.errors import ParameterError
from contradpp.learn.objectives import Batch, Gradient, contrast_of
from contradpp.learn.optimizers import RowAdam
from contradpp.learn.partners import Partners
from contradpp.learn.state import State

Array = NDArray[np.float64]
PAIR_STEP = 0.02  # of log |s_ij|; docs/beyond.md says how it was chosen
PARTS = 4  # partial sums of the pairs' gradient, in fixed shares of the sets: the same bytes for any number of threads


class SkewState(State):
    """The factors and the pairs' parameters log |s_ij|."""

    def __init__(self, V: Array, partners: Partners, *, n_jobs: int = 1) -> None:
        super().__init__(V, n_jobs=n_jobs)
        self.partners = partners
        self.pairs = partners.start.copy()

    def skew_values(self) -> Array:
        """The entries of S, in the order of the pattern."""
        values: Array = self.partners.signs * np.exp(self.pairs)[self.partners.pair]
        return values

    def in_parts(self, n_sets: int) -> list[tuple[int, int]]:
        """The sets in at most PARTS shares."""
        bounds = np.linspace(0, n_sets, min(PARTS, max(n_sets, 1)) + 1).astype(int)
        return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))

    def conditional_log_likelihood(self, sets: Sets) -> Array:
        """log P(i | A∖i) for every entry of the sets; NaN where a set is singular."""
        from contradpp.dpp.compiled import skew_gradients as kernels

        pattern, values = self.partners, self.skew_values()
        rows, slots = self.number_rows(sets)
        VC, VS = times(self.V[rows], self.dual, self.n_jobs), np.empty((len(rows), self.V.shape[1]))
        kernels.partner_sums(self.V, pattern.indptr, pattern.columns, values, rows, VS)
        out = np.empty(len(sets.indices))
        trace = float(np.trace(self.dual))
        parts = self.in_parts(sets.count)

        def work(part: int) -> None:
            kernels.skew_log_likelihoods(
                self.V, VC, VS, slots, trace, pattern.indptr, pattern.columns, values,
                sets.indptr, sets.indices, *parts[part], out,
            )  # fmt: skip

        run_blocks(work, len(parts), self.n_jobs)
        return out


@dataclass(frozen=True)
class SkewConditionalLikelihood:
    """Σ_A Σ_i g_i log P(i | A∖i) for L = V Vᵀ + S, over sets from which items are dropped at random.

    Parameters
    ----------
    removal : array (M,)
        How often an item is the one left out, relative to the others in its basket.
    contrast : float or None
        The weight of the user's negatives; None for |A⁻|/|A⁺|.
    dropout : float
        The share of items that are dropped from each set, anew in every step.
    seed : int
    """

    removal: Array
    contrast: float | None = 1.0
    dropout: float = 0.0
    seed: int = 0

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """See `Objective`."""
        from contradpp.dpp.compiled import gradients
        from contradpp.dpp.compiled import skew_gradients as kernels

        if not isinstance(state, SkewState):
            raise ParameterError("this objective needs a state with partners")
        sets = self._thinned(batch.together())
        y = np.concatenate([batch.weights, -contrast_of(self.contrast, batch) * batch.negatives.weights])
        owner = np.repeat(np.arange(sets.count), sets.sizes)
        share = self.removal[sets.indices]
        g = y[owner] * share / sums_over_sets(share, sets)[owner]
        pattern, values, V, K = state.partners, state.skew_values(), state.V, state.V.shape[1]
        rows, slots = state.number_rows(sets)
        near, near_slots = state.number_rows(pattern.with_partners(rows))  # the batch's items come first
        VC, VS = times(V[rows], state.dual, state.n_jobs), np.empty((len(rows), K))
        kernels.partner_sums(V, pattern.indptr, pattern.columns, values, rows, VS)
        G, F, B = (np.empty((len(sets.indices), K)) for _ in range(3))
        sigmas, logs = np.empty(sets.count), np.empty(sets.count)
        parts = state.in_parts(sets.count)
        pair_parts = np.zeros((len(parts), len(state.pairs)))
        trace = float(np.trace(state.dual))

        def work(part: int) -> None:
            kernels.skew_conditional_gradients(
                V, VC, VS, slots, trace, pattern.indptr, pattern.columns, values, pattern.pair,
                sets.indptr, sets.indices, *parts[part], g, G, F, B, sigmas, logs, pair_parts[part],
            )  # fmt: skip

        run_blocks(work, len(parts), state.n_jobs)
        pairs: Array = pair_parts.sum(axis=0)
        ones = np.ones(sets.count)
        out = np.zeros((len(near), K))
        products, adjoint = np.empty_like(VC), np.empty_like(VC)
        gradients.gather_rows(G, sets.indptr, slots, ones, out[: len(rows)])
        gradients.gather_rows(F, sets.indptr, slots, ones, products)
        gradients.gather_rows(B, sets.indptr, slots, ones, adjoint)
        out[: len(rows)] += times(products, state.dual, state.n_jobs)
        kernels.spread_to_partners(
            V, pattern.indptr, pattern.columns, values, pattern.pair, rows, adjoint, near_slots[len(rows) :], out, pairs
        )
        right = gram(V[rows], products, state.n_jobs)
        right[np.diag_indices(K)] -= 2 * sigmas.sum()
        return Gradient(near, out, right, float(logs.sum()), pairs)

    needs_dual = True

    def for_parts(self, batch: Batch, n_components: int) -> tuple[SkewConditionalLikelihood, Batch]:  # noqa: ARG002
        """See `Divisible`: items are dropped from the batch as a whole."""
        sets, n = self._thinned(batch.together()), batch.positives.count
        split = int(sets.indptr[n])
        positives = Sets(sets.indptr[: n + 1], sets.indices[:split])
        negatives = replace(batch.negatives, sets=Sets(sets.indptr[n:] - split, sets.indices[split:]))
        return replace(self, dropout=0.0), Batch(positives, batch.weights, negatives)

    def of_rows(self, rows: NDArray[np.integer]) -> SkewConditionalLikelihood:
        """See `Divisible`."""
        return replace(self, removal=self.removal[rows])

    def _thinned(self, sets: Sets) -> Sets:
        """The sets with items dropped, at least two left of each that has as many.

        The random numbers depend on the batch itself, so that a repeated run draws the same.
        """
        if self.dropout == 0:
            return sets
        rng = stream(self.seed, zlib.crc32(sets.indices.tobytes()))
        owner = np.repeat(np.arange(sets.count), sets.sizes)
        luck = rng.random(len(owner))
        order = np.lexsort((luck, owner))
        place = np.empty(len(owner), dtype=np.int64)
        place[order] = np.arange(len(owner)) - np.repeat(sets.indptr[:-1], sets.sizes)
        kept = (luck < 1 - self.dropout) | (place < 2)  # the luckiest two stay
        sizes = np.bincount(owner[kept], minlength=sets.count)
        return Sets(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), sets.indices[kept])


@dataclass
class SkewAdam(RowAdam):
    """Row-wise Adam for the factors, and plain Adam for the pairs' log |s_ij|.

    Parameters
    ----------
    pair_step : float
        Step size of log |s_ij|.
    """

    pair_step: float = PAIR_STEP
    n_pairs: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pair_first, self._pair_second = np.zeros(self.n_pairs), np.zeros(self.n_pairs)

    def step(self, state: State, gradient: Gradient, rate: float) -> None:
        """See `Optimizer`."""
        super().step(state, gradient, rate)
        if gradient.pairs is None:
            return
        first, second = self._pair_first, self._pair_second
        first *= self.beta1
        first += (1 - self.beta1) * gradient.pairs
        second *= self.beta2
        second += (1 - self.beta2) * gradient.pairs**2
        size = rate * self.pair_step / (1 - self.beta1**self._t)
        state.pairs += size * first / (np.sqrt(second / (1 - self.beta2**self._t)) + 1e-12)
