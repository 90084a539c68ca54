"""The objectives: what is maximised, each a small piece over weighted sets.

Every one is φ(V) = Σ_A y_A [log det L_A − log det(I + L)] (the paper's Eq. 2), and they differ in the sets and
the weights y_A. The gradient has two parts: rows of the batch's items, and V times a K×K matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from contradpp.data.sets import Sets, concatenate, sums_over_sets
from contradpp.dpp.products import gram, times
from contradpp.learn.negatives import Negatives
from contradpp.learn.state import State

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Gradient:
    """∂φ/∂V = (`values` in the rows `rows`, zero elsewhere) + V `right`, and φ itself on this batch."""

    rows: NDArray[np.int32]
    values: Array  # (len(rows), K)
    right: Array | None  # (K, K), or None for zero
    objective: float
    pairs: Array | None = None  # with respect to `state.pairs`, where there are any


@dataclass(frozen=True)
class Batch:
    """Positives with labels, and negatives with positive weights that sum to what the positive labels sum to."""

    positives: Sets
    weights: Array
    negatives: Negatives

    def together(self) -> Sets:
        """All sets, the positives first."""
        return concatenate(self.positives, self.negatives.sets)


class Objective(Protocol):
    """A function of the factors and a batch, with its gradient."""

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """The gradient of φ on this batch."""
        ...


class Divisible(Objective, Protocol):
    """An objective whose gradient is the sum of those of a batch's parts."""

    @property
    def needs_dual(self) -> bool:
        """Whether the gradient needs C = Vᵀ V."""
        ...

    def for_parts(self, batch: Batch, n_components: int) -> tuple[Divisible, Batch]:
        """The objective of parts of this batch, and the batch to divide: what depends on all sets is settled."""
        ...

    def of_rows(self, rows: NDArray[np.integer]) -> Objective:
        """The same where items are numbered by their place in `rows`."""
        ...


@dataclass(frozen=True)
class Contrastive:
    """φ_CE: the mean log-likelihood of the positives less `contrast` times that of the negatives.

    Without negatives it is φ_MLE. With contrast = 1 the normaliser cancels and only rows of the batch move.
    Contrast None is the counted form of the paper's appendix, |A⁻|/|A⁺|. `cancels` says of a part that the normaliser
    does so in the whole batch.
    """

    contrast: float | None
    cancels: bool = False

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """See `Objective`."""
        sets = batch.together()
        rows, log_dets = set_gradients(state, sets)
        possible = np.isfinite(log_dets)
        n_positive = batch.positives.count
        y = np.concatenate(
            [
                spread(batch.weights, possible[:n_positive]),
                -contrast_of(self.contrast, batch) * spread(batch.negatives.weights, possible[n_positive:]),
            ]
        )
        return weighted_gradient(state, sets, rows, log_dets, y, normalized=not self.cancels)

    @property
    def needs_dual(self) -> bool:
        """See `Divisible`."""
        return not self.cancels

    def for_parts(self, batch: Batch, n_components: int) -> tuple[Contrastive, Batch]:
        """See `Divisible`: the weights of sets beyond the rank go to all others, not only to those of their part."""
        positive = spread(batch.weights, batch.positives.sizes <= n_components)
        negative = spread(batch.negatives.weights, batch.negatives.sets.sizes <= n_components)
        weight = contrast_of(self.contrast, batch)
        total, size = positive.sum() - weight * negative.sum(), np.abs(positive).sum() + weight * negative.sum()
        divided = Batch(batch.positives, positive, replace(batch.negatives, weights=negative))
        return replace(self, cancels=bool(abs(total) <= 1e-12 * size)), divided

    def of_rows(self, rows: NDArray[np.integer]) -> Contrastive:  # noqa: ARG002
        """See `Divisible`."""
        return self


@dataclass(frozen=True)
class NoiseContrastive:
    """φ_NCE: tell positives from sets of a known noise law (the paper's NCE baseline).

    The weight of a set is ε* − (1 + |A⁻|/|A⁺| p_n(A)/P(A))⁻¹. A negative that the model holds impossible, as any
    larger than the rank, contributes the limit: weight 0 and log-likelihood 0. An impossible positive is left out.

    Parameters
    ----------
    log_odds : array (M,)
        logit p̂(i); log p_n(A) is `log_empty` plus their sum over A.
    log_empty : float
        log p_n(∅) = Σ log(1 − p̂(i)).
    """

    log_odds: Array
    log_empty: float

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """See `Objective`."""
        sets = batch.together()
        rows, log_dets = set_gradients(state, sets)
        positive = np.arange(sets.count) < batch.positives.count
        scale = np.concatenate([batch.weights, batch.negatives.ratio * batch.negatives.weights])
        scale[positive & ~np.isfinite(log_dets)] = 0.0  # an impossible positive has no gradient
        log_noise = self.log_empty + sums_over_sets(self.log_odds[sets.indices], sets)
        logit = log_dets - state.log_normalizer - log_noise - np.log(batch.negatives.ratio)
        used = scale != 0
        y = np.where(used, scale * (positive - expit(logit)), 0.0)
        value = float(scale[used] @ log_expit(np.where(positive, logit, -logit)[used]))
        return replace(weighted_gradient(state, sets, rows, log_dets, y), objective=value)

    needs_dual = True

    def for_parts(self, batch: Batch, n_components: int) -> tuple[NoiseContrastive, Batch]:  # noqa: ARG002
        """See `Divisible`."""
        return self, batch

    def of_rows(self, rows: NDArray[np.integer]) -> NoiseContrastive:
        """See `Divisible`."""
        return replace(self, log_odds=self.log_odds[rows])


@dataclass(frozen=True)
class ConditionalLikelihood:
    """Dynamic CE in closed form: Σ_A Σ_i g_i log P(i | A∖i), with no sampling noise.

    Negatives, which only the user can supply here, enter with a weight below zero.

    Parameters
    ----------
    removal : array (M,)
        How often an item is the one left out, relative to the others in its basket.
    contrast : float or None
        The weight of the user's negatives; None for |A⁻|/|A⁺|.
    """

    removal: Array
    contrast: float | None = 1.0

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """See `Objective`."""
        from contradpp.dpp.compiled import gradients

        sets = batch.together()
        y = np.concatenate([batch.weights, -contrast_of(self.contrast, batch) * batch.negatives.weights])
        owner = np.repeat(np.arange(sets.count), sets.sizes)
        share = self.removal[sets.indices]
        g = y[owner] * share / sums_over_sets(share, sets)[owner]
        rows, slots = state.number_rows(sets)
        V_rows = state.V[rows]
        VC = times(V_rows, state.dual, state.n_jobs)
        K = state.V.shape[1]
        G, F = np.empty((len(sets.indices), K)), np.empty((len(sets.indices), K))
        sigmas, values = np.empty(sets.count), np.empty(sets.count)
        before = (VC, slots, float(np.trace(state.dual)))
        results = {"per_entry": (G, F), "per_set": (sigmas, values)}
        state.over_sets(gradients.conditional_gradients, sets, g, before=before, **results)
        ones = np.ones(sets.count)
        row_values, row_products = np.empty_like(V_rows), np.empty_like(V_rows)
        gradients.gather_rows(G, sets.indptr, slots, ones, row_values)
        gradients.gather_rows(F, sets.indptr, slots, ones, row_products)
        row_values += times(row_products, 2.0 * state.dual, state.n_jobs)
        C_bar = gram(V_rows, row_products, state.n_jobs)
        right = C_bar + C_bar.T
        right[np.diag_indices(K)] -= 2 * sigmas.sum()
        return Gradient(rows, row_values, right, float(values.sum()))

    needs_dual = True

    def for_parts(self, batch: Batch, n_components: int) -> tuple[ConditionalLikelihood, Batch]:  # noqa: ARG002
        """See `Divisible`."""
        return self, batch

    def of_rows(self, rows: NDArray[np.integer]) -> ConditionalLikelihood:
        """See `Divisible`."""
        return replace(self, removal=self.removal[rows])


def set_gradients(state: State, sets: Sets) -> tuple[Array, Array]:
    """L_A⁻¹ V_A for every entry (nnz, K), and log det L_A for every set."""
    from contradpp.dpp.compiled import gradients

    rows = np.empty((len(sets.indices), state.V.shape[1]))
    log_dets = np.empty(sets.count)
    state.over_sets(gradients.log_det_gradients, sets, per_entry=(rows,), per_set=(log_dets,))
    return rows, log_dets


def weighted_gradient(
    state: State, sets: Sets, entry_rows: Array, log_dets: Array, y: Array, *, normalized: bool = True
) -> Gradient:
    """The gradient of Σ y_A log P(A): 2 y_A L_A⁻¹ V_A in the rows of A, −2 (Σ y_A) V (I + C)⁻¹ in all.

    Where the weights cancel, as in CE with contrast 1, there is no second part. Sets of weight zero do not
    count, whatever their determinant.
    """
    from contradpp.dpp.compiled import gradients

    rows, slots = state.number_rows(sets)
    values = np.empty((len(rows), state.V.shape[1]))
    gradients.gather_rows(entry_rows, sets.indptr, slots, 2.0 * y, values)
    used = y != 0
    objective = float(y[used] @ log_dets[used])
    total = float(y.sum())
    if not normalized or abs(total) <= 1e-12 * np.abs(y).sum():
        return Gradient(rows, values, None, objective)
    right = -2.0 * total * state.normalizer_factor()
    return Gradient(rows, values, right, objective - total * state.log_normalizer)


def contrast_of(contrast: float | None, batch: Batch) -> float:
    """The weight of a batch's negatives: the given one, or |A⁻|/|A⁺|."""
    return batch.negatives.ratio if contrast is None else contrast


def spread(weights: Array, possible: NDArray[np.bool_]) -> Array:
    """The weights with those of impossible sets moved, in proportion, to the others."""
    if possible.all():
        return weights
    kept = np.where(possible, weights, 0.0)
    size = np.abs(kept).sum()
    return kept * (np.abs(weights).sum() / size) if size > 0 else kept
