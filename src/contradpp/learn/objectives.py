"""The objectives: what is maximised, each a small piece over weighted sets.

Every one is φ = Σ_A y_A [log det L_A − log det(I + L)] (the paper's Eq. 2), and they differ in the sets and the weights
y_A. A gradient is that of the first part, which is a sum over sets and so can be computed in shares, with Σ y_A beside
it; `with_normalizer` adds the second part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from contradpp.data.sets import Sets, concatenate, difference, pointers, sums_over_sets, swaps, take_sets
from contradpp.dpp import compiled
from contradpp.dpp.linalg import gram, inverse_and_log_det, take_rows, times
from contradpp.errors import ParameterError
from contradpp.learn.negatives import Dynamic, Explicit, Negatives, NegativeSource, NotInTraining, Product, Refused
from contradpp.learn.state import ROWS_PER_BLOCK, State, over_parts

if TYPE_CHECKING:
    from contradpp.learn.params import Params, TrainingData

Array = NDArray[np.float64]
IMPOSSIBLE = -1e3  # what a set of probability zero counts for in the validation score
MOST_TO_INVERT = 2000  # items up to which (I + L)⁻¹ is computed at every step where there is an S


@dataclass(frozen=True)
class Gradient:
    """∂φ/∂V = (`values` in the rows `rows`, zero elsewhere) + scale_i v_i `right`, and φ itself on this batch."""

    rows: NDArray[np.int32]
    values: Array  # (len(rows), K)
    right: Array | None  # (K, K), or None for zero
    objective: float
    total: float = 0.0  # Σ y_A: log det(I + L) times it is still to be taken off
    pairs: Array | None = None  # with respect to `state.pairs`, where there are any
    log_d: Array | None = None  # with respect to `state.log_d`, where there is a diagonal
    scale: Array | None = None  # (M,), or None for one


@dataclass(frozen=True)
class Batch:
    """Positives with labels, and negatives with positive weights that sum to what the positive labels sum to."""

    positives: Sets
    weights: Array
    negatives: Negatives
    offered: Sets | None = None  # what each positive was chosen from

    def together(self) -> Sets:
        """All sets, the positives first."""
        return concatenate(self.positives, self.negatives.sets)


class Validation(NamedTuple):
    """The sets whose score decides when training ends, with a weight each; below zero where less is better."""

    sets: Sets
    weights: Array
    offered: Sets | None = None  # what each was chosen from


class Objective(Protocol):
    """A function of the parameters and a batch, with its gradient."""

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """The gradient of φ on this batch, but for the normaliser."""


@dataclass(frozen=True)
class Contrastive:
    """φ_CE: the mean log-likelihood of the positives less `contrast` times that of the negatives.

    Without negatives it is φ_MLE. With contrast = 1 the normaliser cancels and only rows of the batch move.
    Contrast None is the counted form of the paper's appendix, |A⁻|/|A⁺|.
    """

    contrast: float | None

    def gradient(self, state: State, batch: Batch) -> Gradient:
        sets, n = batch.together(), batch.positives.count
        parts = set_gradients(state, sets)
        possible = np.isfinite(parts.log_dets)
        negative = spread(batch.negatives.weights, possible[n:])
        y = np.concatenate([spread(batch.weights, possible[:n]), -contrast_of(self.contrast, batch) * negative])
        return weighted_gradient(state, sets, parts, y)


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
        sets = batch.together()
        parts = set_gradients(state, sets)
        positive = np.arange(sets.count) < batch.positives.count
        scale = np.concatenate([batch.weights, batch.negatives.ratio * batch.negatives.weights])
        scale[positive & ~np.isfinite(parts.log_dets)] = 0.0  # an impossible positive has no gradient
        log_noise = self.log_empty + sums_over_sets(self.log_odds[sets.indices], sets)
        whole = log_normalizer(state)
        logit = parts.log_dets - whole - log_noise - np.log(batch.negatives.ratio)
        used = scale != 0
        y = np.where(used, scale * (positive - expit(logit)), 0.0)
        value = float(scale[used] @ log_expit(np.where(positive, logit, -logit)[used]))
        gradient = weighted_gradient(state, sets, parts, y)
        # The value is whole already: what the normaliser will take off it is added here.
        return replace(gradient, objective=value + gradient.total * whole)


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
        sets, K = batch.together(), state.V.shape[1]
        y = np.concatenate([batch.weights, -contrast_of(self.contrast, batch) * batch.negatives.weights])
        owner = np.repeat(np.arange(sets.count), sets.sizes)
        share = self.removal[sets.indices]
        g = y[owner] * share / sums_over_sets(share, sets)[owner]
        rows, slots = state.number_rows(sets)
        terms, places = state.terms(rows), Places(state, sets)
        F, B = places.rows("F"), places.rows("B") if not state.symmetric else np.empty((0, K))
        sigmas, logs = np.empty(sets.count), np.empty(len(g))
        after = (logs, g, places.G, F, B, places.diagonal, places.pairs, sigmas)
        state.over_sets(compiled.gradients.conditional_gradients, sets, (terms, slots, places.links), after)
        products = state.scratch("products", len(rows), K)
        adjoint = state.scratch("adjoint", 0 if state.symmetric else len(rows), K)
        twice, sums = np.full(sets.count, 2.0), compiled.gradients  # F and B are half of it, as G is
        tasks: list[Callable[[], Any]] = [
            lambda: places.gather(rows, slots, np.ones(sets.count)),
            lambda: sums.gather_rows(F, sets.indptr, slots, twice, products),
        ]
        if not state.symmetric:
            tasks += [
                lambda: state.number_rows(state.partners.with_partners(rows)),
                lambda: sums.gather_rows(B, sets.indptr, slots, twice, adjoint),
            ]
        gradient: Gradient
        gradient, _, *near = state.at_once((sums.gather_rows, sums.gather_pairs, sums.number_rows), *tasks)
        right = through_square(state, rows, products, gradient.values)
        right[np.diag_indices(K)] -= 2 * sigmas.sum()
        if gradient.log_d is not None:
            gradient.log_d[:] -= sigmas.sum() * np.exp(state.log_d)
        if not state.symmetric:
            gradient = through_partners(state, gradient, adjoint, *near[0])
        objective = float((g * logs)[~np.isnan(logs)].sum())  # singular sets do not count
        return replace(gradient, right=right, objective=objective)


@dataclass(frozen=True)
class ChoiceLikelihood:
    """Σ_A y_A log P(A | offered): what was taken of what was offered, log det L_A − log det(I + L_offered).

    The law is the DPP on the offered items alone, so that the normaliser is exact, small, and one per set: the
    log-determinant of a set of the kernel I + L.
    """

    def gradient(self, state: State, batch: Batch) -> Gradient:
        if batch.offered is None:
            raise ParameterError("objective='choice' needs to know what was offered")
        whole, parts = state.plus_identity(), set_gradients(state, batch.positives)
        y = spread(batch.weights, np.isfinite(parts.log_dets))
        taken = weighted_gradient(state, batch.positives, parts, y)
        offered = weighted_gradient(whole, batch.offered, set_gradients(whole, batch.offered), -y)
        return added(taken, 1.0, offered)


def through_square(state: State, rows: NDArray[np.int32], products: Array, values: Array) -> Array:
    """Add (H V_A) C to the gradient of these rows, given H V_A, and return the adjoint of C."""
    V, C, K = state.V, state.dual, state.V.shape[1]
    parts = np.empty((-(-len(rows) // ROWS_PER_BLOCK), K, K))

    def work(part: slice) -> None:
        own = products[part]
        room = state.scratch("square", len(own), K)
        values[part] += np.matmul(own, C, out=room)
        np.matmul(take_rows(V, rows[part], room).T, own, out=parts[part.start // ROWS_PER_BLOCK])

    over_parts(work, len(rows), ROWS_PER_BLOCK, state.n_jobs)
    adjoint: Array = parts.sum(axis=0)
    return adjoint


def through_partners(
    state: State, gradient: Gradient, adjoint: Array, near: NDArray[np.int32], slots: NDArray[np.int32]
) -> Gradient:
    """The gradient with what the adjoint of the rows of S V says: rows of partners, too, and of pairs.

    `near` are the rows of the batch's items and their partners, `slots` the places of both among them, in this order.
    """
    kernels, pattern, parameters, rows = compiled.gradients, state.partners, state.parameters, gradient.rows
    pairs = np.zeros(len(state.pairs)) if gradient.pairs is None else gradient.pairs
    values = np.zeros((len(near), state.V.shape[1]))
    values[slots[: len(rows)]] = gradient.values
    state.at_once(
        (kernels.spread_to_partners, kernels.spread_to_pairs),
        lambda: kernels.spread_to_partners(parameters, rows, adjoint, slots[len(rows) :], values),
        lambda: kernels.spread_to_pairs(parameters, pattern.pair, rows, adjoint, pairs),
    )
    return replace(gradient, rows=near, values=values, pairs=pairs)


class Places:
    """Room for the results of a gradient kernel, a place for every entry: rows (half), d, and the partners of each."""

    def __init__(self, state: State, sets: Sets) -> None:
        self.state, self.sets = state, sets
        self.links: NDArray[np.int64] | None = None
        if not state.symmetric:
            self.links = pointers(np.diff(state.partners.indptr)[sets.indices])
        self.G = self.rows("G")
        self.diagonal = np.empty(len(sets.indices) if len(state.parameters.d) else 0)
        self.pairs = state.scratch("pairs", 0 if self.links is None else int(self.links[-1]))
        self.log_dets = np.empty(sets.count)

    def rows(self, name: str) -> Array:
        """A row for every entry, lost when there are other places."""
        return self.state.scratch(name, len(self.sets.indices), self.state.V.shape[1])

    def gather(self, rows: NDArray[np.int32], slots: NDArray[np.int32], y: Array) -> Gradient:
        """The sums over sets weighted by y: by item, and by pair."""
        kernels, state, sets = compiled.gradients, self.state, self.sets
        values, pairs, log_d = np.empty((len(rows), state.V.shape[1])), None, None
        kernels.gather_rows(self.G, sets.indptr, slots, 2.0 * y, values)  # G is half of it
        if self.links is not None:
            pairs, pattern = np.zeros(len(state.pairs)), state.partners
            kernels.gather_pairs(
                self.pairs, self.links, pattern.indptr, pattern.pair, sets.indptr, sets.indices, y, pairs
            )
        if len(state.log_d):
            weights = self.diagonal * np.repeat(y, sets.sizes)
            sums = np.bincount(sets.indices, weights=weights, minlength=state.n_items).astype(np.float64)
            log_d = sums * np.exp(state.log_d)
        return Gradient(rows, values, None, 0.0, pairs=pairs, log_d=log_d)


def set_gradients(state: State, sets: Sets) -> Places:
    """The gradient of log det L_A for every set, entry by entry, and log det L_A."""
    places = Places(state, sets)
    after = (places.log_dets, places.G, places.diagonal, places.pairs)
    state.over_sets(compiled.gradients.log_det_gradients, sets, (places.links,), after)
    return places


def weighted_gradient(state: State, sets: Sets, places: Places, y: Array) -> Gradient:
    """The gradient of Σ y_A log det L_A. Sets of weight zero do not count, whatever their determinant."""
    gradient = places.gather(*state.number_rows(sets), y)
    used, total = y != 0, float(y.sum())
    if abs(total) <= 1e-12 * np.abs(y).sum():
        total = 0.0  # as in CE with contrast 1
    return replace(gradient, objective=float(y[used] @ places.log_dets[used]), total=total)


def log_normalizer(state: State) -> float:
    """log det(I + L)."""
    if state.symmetric:
        A, rest = _inner_matrix(state)
        return float(np.linalg.slogdet(A)[1]) + rest
    return float(np.linalg.slogdet(_identity_plus_kernel(state))[1])


def normalizer(state: State) -> Gradient:
    """log det(I + L) and its gradient: in rows of V or as scale_i v_i `right`, in log d and in the pairs."""
    if state.symmetric:
        return _symmetric_normalizer(state)
    p, M = state.parameters, state.n_items
    A = _identity_plus_kernel(state)
    R = np.linalg.inv(A)
    row = np.repeat(np.arange(M), np.diff(p.starts))
    pairs = np.bincount(state.partners.pair, weights=p.skew * R[p.partners, row], minlength=len(state.pairs))
    log_d = np.diagonal(R) * np.exp(state.log_d) if len(state.log_d) else None
    log, rows = float(np.linalg.slogdet(A)[1]), np.arange(M, dtype=np.int32)
    return Gradient(rows, (R + R.T) @ p.V, None, log, log_d=log_d, pairs=pairs.astype(np.float64))


def _inner_matrix(state: State) -> tuple[Array, float]:
    """A = I + VᵀEV with E = (I + D)⁻¹, and log det(I + D), for L = D + V Vᵀ."""
    identity = np.eye(state.V.shape[1])
    if not len(state.diagonal):
        return identity + state.dual, 0.0
    E = 1.0 / (1.0 + state.diagonal)
    return identity + gram(state.V * E[:, None], state.V, state.n_jobs), -float(np.log(E).sum())


def _symmetric_normalizer(state: State) -> Gradient:
    """log det(I + D) + log det A, of which the gradient in V is 2 E V A⁻¹."""
    A, rest = _inner_matrix(state)
    inverse, log = inverse_and_log_det(A)
    found = Gradient(np.empty(0, dtype=np.int32), np.empty((0, len(A))), 2.0 * inverse, log + rest)
    if not len(state.diagonal):
        return found
    E = 1.0 / (1.0 + state.diagonal)
    R = E - E**2 * np.einsum("ik,ik->i", times(state.V, inverse, state.n_jobs), state.V)  # the diagonal of (I + L)⁻¹
    return replace(found, scale=E, log_d=R * np.exp(state.log_d) if len(state.log_d) else None)


def _identity_plus_kernel(state: State) -> Array:
    """I + L as a matrix (M, M)."""
    M, p = state.n_items, state.parameters
    if M > MOST_TO_INVERT:
        raise ParameterError(
            f"likelihood needs a dense inverse at every step: up to {MOST_TO_INVERT:,} items, got {M:,}; "
            "use objective='exact', or 'dynamic' with contrast=1"
        )
    A: Array = np.eye(M) + np.matmul(p.V, p.V.T, dtype=np.float64)
    A[np.repeat(np.arange(M), np.diff(p.starts)), p.partners] += p.skew
    if len(p.d):
        A[np.diag_indices(M)] += p.d
    return A


def with_normalizer(state: State, gradient: Gradient) -> Gradient:
    """The gradient less `total` × that of log det(I + L)."""
    return gradient if gradient.total == 0.0 else added(gradient, -gradient.total, normalizer(state))


def added(one: Gradient, factor: float, other: Gradient) -> Gradient:
    """one + factor × other; the scale is that of the other."""
    rows, values, right = one.rows, one.values, one.right
    if len(other.rows):
        rows = np.union1d(one.rows, other.rows).astype(np.int32)
        values = np.zeros((len(rows), one.values.shape[1]))
        values[np.searchsorted(rows, one.rows)] = one.values
        values[np.searchsorted(rows, other.rows)] += factor * other.values
    if other.right is not None:
        right = factor * other.right if right is None else right + factor * other.right
    pairs = one.pairs if one.pairs is None or other.pairs is None else one.pairs + factor * other.pairs
    log_d = one.log_d if one.log_d is None or other.log_d is None else one.log_d + factor * other.log_d
    objective = one.objective + factor * other.objective
    return Gradient(rows, values, right, objective, pairs=pairs, log_d=log_d, scale=other.scale)


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


# -- By the words of the parameters ---------------------------------------------------------------------
# A new objective: a class above, its word here, in `make_source` if it draws negatives, and in `params.OBJECTIVES`.


def make_objective(params: Params, share: Array, removal: Array) -> Objective:
    """Make the objective of these parameters, for the popularity of items and the weights by which one is removed."""
    match params.objective:
        case "mle" | "dynamic" | "explicit" | "product":
            return Contrastive(params.contrast_value)
        case "exact":
            return ConditionalLikelihood(removal, params.contrast_value)
        case "choice":
            return ChoiceLikelihood()
        case "nce":
            noise = Product.from_popularity(share, params.frequency_power)
            return NoiseContrastive(noise.log_odds(), noise.log_empty())
        case own:
            objective: Objective = own
            return objective


def make_closed(params: Params, removal: Array) -> Objective | None:
    """Make the objective of the same aim without chance; None if there is none, or none is wanted."""
    if params.paper:
        return None
    if params.objective in ("mle", "choice", "exact"):
        return make_objective(params, removal, removal)
    # Only with contrast 1 is the mean of dynamic negatives its gradient.
    closed = params.objective == "dynamic" and params.contrast == 1.0
    return ConditionalLikelihood(removal) if closed else None


def make_source(params: Params, share: Array, removal: Array, data: TrainingData) -> NegativeSource | None:
    """Make the source of negatives, None for an objective that draws none."""
    source: NegativeSource
    match params.objective:
        case "dynamic":
            source = Dynamic(removal)
        case "explicit":
            source = Explicit(share, data.liked)
        case "product" | "nce":
            source = Product.from_popularity(share, params.frequency_power)
        case _:
            return None
    if params.false_negatives == "reject":
        source = NotInTraining(source, data.liked)
    return Refused(source) if params.objective == "explicit" and data.offered is not None else source


def make_monitor(params: Params, validation: Validation, removal: Array) -> Callable[[State], float]:
    """Make the function that gives the validation score of a state."""
    if params.by_choice:
        return choice_monitor(validation)
    if params.by_likelihood if params.monitor == "auto" else params.monitor == "likelihood":
        return likelihood_monitor(validation)
    if params.objective == "explicit" and validation.offered is not None:
        return mixed_monitor(validation, validation.offered, np.ones_like(removal))
    removes = params.objective in ("dynamic", "exact")
    return conditional_monitor(validation, removal if removes else np.ones_like(removal))


def likelihood_monitor(validation: Validation) -> Callable[[State], float]:
    """The weighted mean of log P(A) over the sets."""
    sets = validation.sets
    weight = validation.weights / np.abs(validation.weights).sum()

    def score(state: State) -> float:
        logs = state.log_det(sets)
        return float(weight @ (np.where(np.isfinite(logs), logs, IMPOSSIBLE) - log_normalizer(state)))

    return score


def conditional_monitor(validation: Validation, removal: Array) -> Callable[[State], float]:
    """The weighted mean over sets of the mean over their items, weighted by `removal`, of log P(i | A∖i)."""
    sets = validation.sets
    owner = np.repeat(np.arange(sets.count), sets.sizes)
    share = removal[sets.indices]
    total = np.abs(validation.weights[sets.sizes > 0]).sum()
    weight = validation.weights[owner] * share / sums_over_sets(share, sets)[owner] / max(total, 1e-300)
    return lambda state: mean_log(weight, state.conditional_log_likelihood(sets))


def mean_log(weight: Array, logs: Array) -> float:
    """The weighted mean of logarithms; what is impossible counts for IMPOSSIBLE."""
    return float(weight @ np.where(np.isfinite(logs), logs, IMPOSSIBLE))


def choice_monitor(validation: Validation) -> Callable[[State], float]:
    """The weighted mean of log P(A | offered)."""
    sets, weights, offered = validation
    weight = weights / np.abs(weights).sum()
    return lambda state: mean_log(weight, state.log_choice(sets, sets if offered is None else offered))


def mixed_monitor(validation: Validation, offered: Sets, removal: Array) -> Callable[[State], float]:
    """`swap_monitor` over the sets of which it is known what they were chosen from, `conditional_monitor` elsewhere."""
    sets, weights, _ = validation
    known, others = np.flatnonzero(offered.sizes > 0), np.flatnonzero(offered.sizes == 0)
    parts = [Validation(take_sets(sets, some), weights[some]) for some in (known, others)]
    share = np.abs(parts[0].weights).sum() / max(np.abs(weights).sum(), 1e-300)
    by_swaps = swap_monitor(parts[0], take_sets(offered, known), len(removal))
    by_rest = conditional_monitor(parts[1], removal)
    return lambda state: float(share * by_swaps(state) + (1 - share) * by_rest(state))


def swap_monitor(validation: Validation, offered: Sets, n_items: int) -> Callable[[State], float]:
    """The weighted mean of log P(i | A∖i and one of i and what was refused), over the taken items i of each set."""
    sets, weights, _ = validation
    others, entry = swaps(sets, difference(offered, sets, n_items))
    owner = np.repeat(np.arange(sets.count), sets.sizes)
    weight = np.where(np.bincount(entry, minlength=len(owner)) > 0, (weights / np.maximum(sets.sizes, 1))[owner], 0.0)
    weight /= max(np.abs(weight).sum(), 1e-300)

    def score(state: State) -> float:
        own = state.log_det(sets)[owner]
        with np.errstate(invalid="ignore"):
            ratios = np.exp(np.clip(state.log_det(others) - own[entry], -500.0, 500.0))
        logs = -np.log1p(np.bincount(entry, weights=ratios, minlength=len(owner)))
        return float(weight @ np.where(np.isfinite(own), logs, IMPOSSIBLE))

    return score
