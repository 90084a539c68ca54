"""Likelihood and sampled contrast for L = V Vᵀ + S: objectives `mle` and `dynamic` of kernels that also attract."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import run_blocks
from contradpp.data.sets import Sets, take_sets
from contradpp.dpp.nonsymmetric import NonsymmetricKernel
from contradpp.errors import ParameterError
from contradpp.learn.negatives import room_for_children
from contradpp.learn.objectives import Batch, Gradient, contrast_of, spread
from contradpp.learn.skew import SkewState
from contradpp.learn.state import State

Array = NDArray[np.float64]
MOST_ITEMS = 2000  # up to which (I + L)⁻¹ is computed at every step


@dataclass(frozen=True)
class SkewContrastive:
    """φ_CE for L = V Vᵀ + S: the mean log-likelihood of the positives less `contrast` times that of the negatives.

    Without negatives it is φ_MLE. Where the weights do not cancel, the normaliser's gradient needs (I + L)⁻¹, a dense
    inverse at every step: only for catalogues of up to MOST_ITEMS items.
    """

    contrast: float | None
    cancels: bool = False  # said of a part: in the whole batch the weights do

    @property
    def needs_dual(self) -> bool:
        """See `Divisible`."""
        return False

    def for_parts(self, batch: Batch, n_components: int) -> tuple[SkewContrastive, Batch]:  # noqa: ARG002
        """See `Divisible`."""
        weight = contrast_of(self.contrast, batch)
        liked, others = float(batch.weights.sum()), weight * float(batch.negatives.weights.sum())
        return replace(self, cancels=abs(liked - others) <= 1e-12 * (abs(liked) + others)), batch

    def of_rows(self, rows: NDArray[np.integer]) -> SkewContrastive:  # noqa: ARG002
        """See `Divisible`."""
        return self

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """See `Objective`."""
        from contradpp.dpp.compiled import gradients
        from contradpp.dpp.compiled import skew_gradients as kernels

        if not isinstance(state, SkewState):
            raise ParameterError("this objective needs a state with partners")
        sets, n_positive = batch.together(), batch.positives.count
        pattern, values, V = state.partners, state.skew_values(), state.V
        G, log_dets = np.empty((len(sets.indices), V.shape[1])), np.empty(sets.count)
        y = np.concatenate([batch.weights, -contrast_of(self.contrast, batch) * batch.negatives.weights])
        parts = state.in_parts(sets.count)
        pair_parts = np.zeros((len(parts), len(state.pairs)))

        def work(part: int) -> None:
            kernels.skew_log_det_gradients(
                V, pattern.indptr, pattern.columns, values, pattern.pair, sets.indptr, sets.indices,
                *parts[part], y, G, log_dets, pair_parts[part],
            )  # fmt: skip

        run_blocks(work, len(parts), state.n_jobs)
        possible = np.isfinite(log_dets)
        if not possible.all():  # the weights of impossible sets go to the others, and so the pairs' share is taken anew
            y = np.concatenate(
                [spread(y[:n_positive], possible[:n_positive]), spread(y[n_positive:], possible[n_positive:])]
            )
            pair_parts[:] = 0.0
            run_blocks(work, len(parts), state.n_jobs)
        pairs: Array = pair_parts.sum(axis=0)
        rows, slots = state.number_rows(sets)
        row_values = np.empty((len(rows), V.shape[1]))
        gradients.gather_rows(G, sets.indptr, slots, y, row_values)
        used = y != 0
        objective, total = float(y[used] @ log_dets[used]), float(y.sum())
        if self.cancels or abs(total) <= 1e-12 * np.abs(y).sum():
            return Gradient(rows, row_values, None, objective, pairs)
        return self._with_normalizer(state, values, Gradient(rows, row_values, None, objective, pairs), total)

    def _with_normalizer(self, state: SkewState, values: Array, gradient: Gradient, total: float) -> Gradient:
        """Less total × ∂ log det(I + L): (R + Rᵀ) V in all rows and s_ij R_ji for every entry, R = (I + L)⁻¹."""
        M, pattern = len(state.V), state.partners
        if M > MOST_ITEMS:
            raise ParameterError(
                f"likelihood needs a dense inverse at every step: up to {MOST_ITEMS:,} items, got {M:,}; "
                "use objective='exact', or 'dynamic' with contrast=1"
            )
        row = np.repeat(np.arange(M), np.diff(pattern.indptr))
        A = np.eye(M) + state.V @ state.V.T
        A[row, pattern.columns] += values
        R = np.linalg.inv(A)
        every = -total * ((R + R.T) @ state.V)
        every[gradient.rows] += gradient.values
        entry_shares = -total * values * R[pattern.columns, row]
        pairs: Array = np.bincount(pattern.pair, weights=entry_shares, minlength=len(state.pairs)).astype(np.float64)
        pairs += 0.0 if gradient.pairs is None else gradient.pairs
        log_normalizer = float(np.linalg.slogdet(A)[1])
        everything = np.arange(M, dtype=np.int32)
        return Gradient(everything, every, None, gradient.objective - total * log_normalizer, pairs)


@dataclass(frozen=True)
class SkewDynamic:
    """The paper's Algorithm 1 under a kernel that attracts: an item replaced by j ∝ P(A∖i ∪ j), exactly.

    The rejection bound of symmetric kernels does not hold here, so all items are scored: one product with V a set.

    Parameters
    ----------
    removal : array (M,)
        How often an item is the one that is removed, relative to the others in its basket.
    """

    removal: Array

    def draw(
        self, state: State, positives: Sets, n: int, rng: np.random.Generator, weights: Array | None = None
    ) -> Sets:
        """See `NegativeSource`."""
        if not isinstance(state, SkewState):
            raise ParameterError("these negatives need a state with partners")
        parents, out = room_for_children(positives, n, rng, weights)
        chosen = take_sets(positives, parents)
        owner = np.repeat(np.arange(n), chosen.sizes)
        # The one with the smallest −log u / weight is each with probability ∝ its weight.
        luck = rng.exponential(size=len(owner)) / self.removal[chosen.indices]
        order = np.lexsort((luck, owner))
        removed = order[chosen.indptr[:-1]]
        kept = np.ones(len(owner), dtype=bool)
        kept[removed] = False
        rest = Sets(chosen.indptr - np.arange(n + 1), chosen.indices[kept])
        kernel = NonsymmetricKernel(state.V, skew=state.partners.matrix(state.pairs), n_jobs=state.n_jobs)
        new = np.empty(n, dtype=np.int32)
        for first, last, scores in kernel.next_scores(rest):
            totals = np.cumsum(np.maximum(scores, 0.0), axis=1)
            marks = rng.random(last - first) * totals[:, -1]
            new[first:last] = np.minimum((totals <= marks[:, None]).sum(axis=1), totals.shape[1] - 1)
        out.indices[:] = np.insert(rest.indices, rest.indptr[1:], new)
        return out
