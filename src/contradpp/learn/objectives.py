"""Objectives: the functions that are maximized, with their gradients and properties.

Every objective is a weighted sum over sets (the paper's Eq. 2),

    φ = Σ_A y_A [log det L_A − log det(I + L)],

and they differ in the sets and in the weights y_A. `gradient` returns the gradient of the first
term, which is a sum over sets and so can be computed in shares, with Σ y_A beside it.
`with_normalizer` adds the second term.

To add an objective:

1. Write a class with a method `gradient(state, batch)` that returns a `Gradient`. `set_gradients`
   and its `weighted` do the work for weights y_A; `Contrastive` is the shortest example.
2. Add a row to `OBJECTIVES`, an `ObjectiveSpec`: how the class is made, and the properties.
   `objective="word"` then works everywhere: in the models, on the command line, in `tune`.
3. Test the gradient by central differences (`check_by_differences` in tests/learn/test_forms.py).

Labels and weights may be below zero: such a set should become unlikely. Negatives of the user come
behind those that are drawn. A set of probability zero has log det −∞, and gets the weight zero. On
a cluster of machines a worker sees a share of the sets, perhaps none, and the gradients are summed.

An object with a method `gradient` can be passed as `objective=` without a row. If it has an
attribute `spec`, an `ObjectiveSpec`, that says which negatives are drawn for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

import numpy as np
from scipy.special import expit, log_expit

from contradpp._threads import over_parts
from contradpp._types import Array, Codes, Flags, Ints
from contradpp.data.sets import (
    Sets,
    concatenate,
    difference,
    pointers,
    sums_over_sets,
    swaps,
    take_sets,
)
from contradpp.dpp import compiled
from contradpp.dpp.linalg import gram, inverse_and_log_det, take_rows, times
from contradpp.errors import ParameterError
from contradpp.learn.negatives import (
    DynamicNegatives,
    DynamicSource,
    ExplicitNegatives,
    ExplicitSource,
    Negatives,
    NegativeSettings,
    NegativeSource,
    ProductNegatives,
    ProductSource,
    RefusedSource,
)
from contradpp.learn.settings import Settings
from contradpp.learn.state import ROWS_PER_BLOCK, State

if TYPE_CHECKING:
    from contradpp.learn.params import Params, TrainingData

IMPOSSIBLE = -1e3  # what a set of probability zero counts for in the validation score
MOST_TO_INVERT = 2000  # items up to which (I + L)⁻¹ is computed at every step where there is an S


@dataclass(frozen=True)
class Gradient:
    """φ on a batch and its gradient.

    ∂φ/∂v_i = values_i + scale_i v_i right, with `values` in the rows `rows` and zero elsewhere.
    """

    rows: Codes
    values: Array  # (len(rows), K)
    right: Array | None  # (K, K), or None for zero
    objective: float
    total: float = 0.0  # Σ y_A: φ still lacks −Σ y_A log det(I + L)
    pairs: Array | None = None  # with respect to `state.pairs`, where there are any
    log_d: Array | None = None  # with respect to `state.log_d`, where there is a diagonal
    scale: Array | None = None  # (M,), or None for one


@dataclass(frozen=True)
class Batch:
    """Positives with labels, and negatives whose weights have the sum of the positive labels."""

    positives: Sets
    weights: Array
    negatives: Negatives
    offered: Sets | None = None  # what each positive was chosen from
    tilts: Array | None = None  # of the cluster that all sets belong to

    def together(self) -> Sets:
        """Return all sets, the positives first."""
        return concatenate(self.positives, self.negatives.sets)


class Validation(NamedTuple):
    """The sets whose score ends training, with a weight each; below zero if less is better."""

    sets: Sets
    weights: Array
    offered: Sets | None = None  # what each was chosen from


@dataclass(frozen=True)
class Assignment:
    """A cluster for every set of a training run, which then sees the kernel by its tilts."""

    tilts: Array  # (C, M)
    of_positives: Ints
    of_validation: Ints


class Objective(Protocol):
    """A function of the parameters and a batch, with its gradient."""

    def gradient(self, state: State, batch: Batch) -> Gradient:
        """Return the gradient of φ on this batch, without the normalizer."""


@dataclass(frozen=True)
class Contrastive:
    """φ_CE, the log-likelihood of the positives less `contrast` times that of the negatives.

    Without negatives it is φ_MLE. With contrast = 1 the normalizer cancels and only rows of the
    batch move. Contrast None is the counted form of the paper's appendix, |A⁻|/|A⁺|.
    """

    contrast: float | None

    def gradient(self, state: State, batch: Batch) -> Gradient:
        sets = batch.together()
        n = batch.positives.count
        parts = set_gradients(state, sets)
        possible = np.isfinite(parts.log_dets)
        positive = spread(batch.weights, possible[:n])
        negative = spread(batch.negatives.weights, possible[n:])
        y = np.concatenate([positive, -contrast_of(self.contrast, batch) * negative])
        return parts.weighted(y)


@dataclass(frozen=True)
class NoiseContrastive:
    """φ_NCE, the classification of positives against noise p_n (the paper's NCE baseline).

    The weight of a set is ε* − (1 + |A⁻|/|A⁺| p_n(A)/P(A))⁻¹, ε* = 1 for positives. A negative with
    P(A) = 0 contributes the limit: weight 0 and log-likelihood 0. Such a positive is left out.

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
        scale[positive & ~np.isfinite(parts.log_dets)] = 0.0
        log_noise = self.log_empty + sums_over_sets(self.log_odds[sets.indices], sets)
        log_Z = log_normalizer(state)
        logit = parts.log_dets - log_Z - log_noise - np.log(batch.negatives.ratio)
        used = scale != 0
        y = np.where(used, scale * (positive - expit(logit)), 0.0)
        value = float(scale[used] @ log_expit(np.where(positive, logit, -logit)[used]))
        gradient = parts.weighted(y)
        # The value has its normalizer: `with_normalizer` will subtract what is added here.
        return replace(gradient, objective=value + gradient.total * log_Z)


@dataclass(frozen=True)
class ConditionalLikelihood:
    """Σ_A Σ_i g_i log P(i | A∖i): dynamic CE in closed form, without sampling noise.

    Negatives, which are those of the user, enter with a weight below zero.

    Parameters
    ----------
    removal : array (M,)
        Weight of an item in the choice of the one that is left out.
    contrast : float or None
        The weight of the user's negatives; None for |A⁻|/|A⁺|.
    """

    removal: Array
    contrast: float | None = 1.0

    def gradient(self, state: State, batch: Batch) -> Gradient:
        sets = batch.together()
        negative = contrast_of(self.contrast, batch) * batch.negatives.weights
        y = np.concatenate([batch.weights, -negative])
        share = self.removal[sets.indices]
        g = y[sets.owners] * share / sums_over_sets(share, sets)[sets.owners]
        return ConditionalGradients(state, sets, g).weighted(np.ones(sets.count))


@dataclass(frozen=True)
class ChoiceLikelihood:
    """Σ_A y_A log P(A | offered), the likelihood of choices.

    log P(A | offered) = log det L_A − log det(I + L_offered)

    It is the DPP on the offered items alone: the normalizer is the log-determinant of a set of the
    kernel I + L, exact and small.
    """

    def gradient(self, state: State, batch: Batch) -> Gradient:
        if batch.offered is None:
            raise ParameterError("objective='choice' needs to know what was offered")
        parts = set_gradients(state, batch.positives)
        y = spread(batch.weights, np.isfinite(parts.log_dets))
        taken = parts.weighted(y)
        plus = state.plus_identity()
        offered = set_gradients(plus, batch.offered).weighted(-y)
        return added(taken, 1.0, offered)


def through_square(state: State, rows: Codes, products: Array, values: Array) -> Array:
    """Add (H V_A) C to the gradient of these rows, given H V_A; return the adjoint of C."""
    V = state.V
    C = state.dual
    K = state.V.shape[1]
    parts = np.empty((-(-len(rows) // ROWS_PER_BLOCK), K, K))

    def work(part: slice) -> None:
        own = products[part]
        room = state.scratch("square", len(own), K)
        values[part] += np.matmul(own, C, out=room)
        np.matmul(take_rows(V, rows[part], room).T, own, out=parts[part.start // ROWS_PER_BLOCK])

    over_parts(work, len(rows), ROWS_PER_BLOCK, state.n_jobs)
    adjoint: Array = parts.sum(axis=0)
    return adjoint


def through_neighbors(
    state: State,
    gradient: Gradient,
    adjoint: Array,
    near: Codes,
    slots: Codes,
) -> Gradient:
    """Add the gradient by rows of neighbors and by pairs, given the adjoint of the rows of S V.

    `near` are the rows of the batch's items and of their neighbors in S; `slots` are the places of
    both among them, in this order.
    """
    kernels = compiled.gradients
    pattern = state.skew
    parameters = state.parameters
    rows = gradient.rows
    pairs = np.zeros(len(state.pairs)) if gradient.pairs is None else gradient.pairs
    values = np.zeros((len(near), state.V.shape[1]))
    values[slots[: len(rows)]] = gradient.values
    state.at_once(
        (kernels.spread_to_neighbors, kernels.spread_to_pairs),
        lambda: kernels.spread_to_neighbors(parameters, rows, adjoint, slots[len(rows) :], values),
        lambda: kernels.spread_to_pairs(parameters, pattern.pair, rows, adjoint, pairs),
    )
    return replace(gradient, rows=near, values=values, pairs=pairs)


class EntryGradients:
    """The results of a gradient kernel by entry of the sets: half rows, d, and pairs in S."""

    def __init__(self, state: State, sets: Sets) -> None:
        self.state = state
        self.sets = sets
        self.links: Ints | None = None
        if not state.symmetric:
            self.links = pointers(np.diff(state.skew.indptr)[sets.indices])
        self.G = self.rows("G")
        self.diagonal = np.empty(len(sets.indices) if len(state.parameters.d) else 0)
        self.pairs = state.scratch("pairs", 0 if self.links is None else int(self.links[-1]))
        self.log_dets = np.empty(sets.count)

    def rows(self, name: str) -> Array:
        """Return memory with a row for every entry; the next object of this class takes it over."""
        return self.state.scratch(name, len(self.sets.indices), self.state.V.shape[1])

    def gather(self, rows: Codes, slots: Codes, y: Array) -> Gradient:
        """Sum over sets weighted by y, by item and by pair."""
        kernels = compiled.gradients
        state = self.state
        sets = self.sets
        values = np.empty((len(rows), state.V.shape[1]))
        kernels.gather_rows(self.G, sets.indptr, slots, 2.0 * y, values)  # G is half of the rows
        pairs = None
        log_d = None
        if self.links is not None:
            pairs = np.zeros(len(state.pairs))
            given = (self.pairs, self.links, state.skew.indptr, state.skew.pair)
            kernels.gather_pairs(*given, sets.indptr, sets.indices, y, pairs)
        if len(state.log_d):
            weights = self.diagonal * np.repeat(y, sets.sizes)
            sums = np.bincount(sets.indices, weights=weights, minlength=state.n_items)
            log_d = sums.astype(np.float64) * np.exp(state.log_d)
        return Gradient(rows, values, None, 0.0, pairs=pairs, log_d=log_d)

    def weighted(self, y: Array) -> Gradient:
        """Return the gradient of Σ y_A log det L_A; sets of weight zero do not count."""
        gradient = self.gather(*self.state.number_rows(self.sets), y)
        used = y != 0
        total = float(y.sum())
        if abs(total) <= 1e-12 * np.abs(y).sum():
            total = 0.0  # as in CE with contrast 1
        return replace(gradient, objective=float(y[used] @ self.log_dets[used]), total=total)


class ConditionalGradients:
    """log P(i | A∖i), and if `wanted` the gradient of Σ_i g_i log P(i | A∖i) of every set."""

    def __init__(self, state: State, sets: Sets, g: Array, *, wanted: bool = True) -> None:
        self.state = state
        self.sets = sets
        self.g = g
        self.rows, self.slots = state.number_rows(sets)
        self.places = EntryGradients(state, sets)
        self.F = self.places.rows("F")
        empty = np.empty((0, state.V.shape[1]))
        self.B = empty if state.symmetric else self.places.rows("B")
        self.sigmas = np.empty(sets.count)
        self.logs = np.empty(len(g))  # log P(i | A∖i), NaN where a set is singular
        before = (state.terms(self.rows), self.slots, self.places.links)
        places = self.places
        G = places.G[: None if wanted else 0]
        by_entry = (G, self.F, self.B, places.diagonal, places.pairs)
        after = (self.logs, g, *by_entry, self.sigmas)
        state.over_sets(compiled.gradients.conditional_gradients, sets, before, after)

    def weighted(self, y: Array) -> Gradient:
        """Return the gradient of the sum over sets weighted by y."""
        state = self.state
        sets = self.sets
        rows = self.rows
        K = state.V.shape[1]
        kernels = compiled.gradients
        products = state.scratch("products", len(rows), K)
        adjoint = state.scratch("adjoint", 0 if state.symmetric else len(rows), K)
        twice = 2.0 * y  # F and B are halves, as G is
        tasks: list[Callable[[], Any]] = [
            lambda: self.places.gather(rows, self.slots, y),
            lambda: kernels.gather_rows(self.F, sets.indptr, self.slots, twice, products),
        ]
        if not state.symmetric:
            tasks += [
                lambda: state.number_rows(state.skew.with_neighbors(rows)),
                lambda: kernels.gather_rows(self.B, sets.indptr, self.slots, twice, adjoint),
            ]
        gradient: Gradient
        used = (kernels.gather_rows, kernels.gather_pairs, kernels.number_rows)
        gradient, _, *near = state.at_once(used, *tasks)
        right = through_square(state, rows, products, gradient.values)
        sigma = (self.sigmas * y).sum()
        right[np.diag_indices(K)] -= 2 * sigma
        if gradient.log_d is not None:
            gradient.log_d[:] -= sigma * np.exp(state.log_d)
        if not state.symmetric:
            gradient = through_neighbors(state, gradient, adjoint, *near[0])
        terms = y[sets.owners] * self.g * self.logs
        objective = float(terms[~np.isnan(terms)].sum())  # singular sets do not count
        return replace(gradient, right=right, objective=objective)


def set_gradients(state: State, sets: Sets, *, wanted: bool = True) -> EntryGradients:
    """Compute log det L_A of every set and, if `wanted`, its gradient, entry by entry."""
    places = EntryGradients(state, sets)
    G = places.G[: None if wanted else 0]
    after = (places.log_dets, G, places.diagonal, places.pairs)
    state.over_sets(compiled.gradients.log_det_gradients, sets, (places.links,), after)
    return places


def log_normalizer(state: State) -> float:
    """Return log det(I + L)."""
    if state.symmetric:
        A, rest = _inner_matrix(state)
        return float(np.linalg.slogdet(A)[1]) + rest
    return float(np.linalg.slogdet(_identity_plus_kernel(state))[1])


def normalizer(state: State) -> Gradient:
    """Return log det(I + L) and its gradient in V, log d and the pairs."""
    if state.symmetric:
        return _symmetric_normalizer(state)
    p = state.parameters
    M = state.n_items
    A = _identity_plus_kernel(state)
    R = np.linalg.inv(A)
    row = np.repeat(np.arange(M), np.diff(p.starts))
    weights = p.skew * R[p.neighbors, row]
    pairs = np.bincount(state.skew.pair, weights, len(state.pairs)).astype(np.float64)
    log_d = np.diagonal(R) * np.exp(state.log_d) if len(state.log_d) else None
    log = float(np.linalg.slogdet(A)[1])
    rows = np.arange(M, dtype=np.int32)
    return Gradient(rows, (R + R.T) @ p.V, None, log, log_d=log_d, pairs=pairs)


def _inner_matrix(state: State) -> tuple[Array, float]:
    """Return A = I + VᵀEV, E = (I + D)⁻¹, and log det(I + D), for L = D + V Vᵀ."""
    identity = np.eye(state.V.shape[1])
    if not len(state.diagonal):
        return identity + state.dual, 0.0
    E = 1.0 / (1.0 + state.diagonal)
    return identity + gram(state.V * E[:, None], state.V, state.n_jobs), -float(np.log(E).sum())


def _symmetric_normalizer(state: State) -> Gradient:
    """Return log det(I + D) + log det A and its gradient; in V it is 2 E V A⁻¹."""
    A, rest = _inner_matrix(state)
    inverse, log = inverse_and_log_det(A)
    found = Gradient(np.empty(0, dtype=np.int32), np.empty((0, len(A))), 2.0 * inverse, log + rest)
    if not len(state.diagonal):
        return found
    E = 1.0 / (1.0 + state.diagonal)
    VA = times(state.V, inverse, state.n_jobs)
    R = E - E**2 * np.einsum("ik,ik->i", VA, state.V)  # the diagonal of (I + L)⁻¹
    return replace(found, scale=E, log_d=R * np.exp(state.log_d) if len(state.log_d) else None)


def _identity_plus_kernel(state: State) -> Array:
    """Return I + L as a matrix (M, M)."""
    M = state.n_items
    p = state.parameters
    if M > MOST_TO_INVERT:
        raise ParameterError(
            f"likelihood needs a dense inverse at every step: up to {MOST_TO_INVERT:,} items, "
            f"got {M:,}; use objective='exact', or 'dynamic' with contrast=1"
        )
    A: Array = np.eye(M) + np.matmul(p.V, p.V.T, dtype=np.float64)
    A[np.repeat(np.arange(M), np.diff(p.starts)), p.neighbors] += p.skew
    if len(p.d):
        A[np.diag_indices(M)] += p.d
    return A


def with_normalizer(state: State, gradient: Gradient) -> Gradient:
    """Return the gradient less `total` × that of log det(I + L)."""
    if gradient.total == 0.0:
        return gradient
    return added(gradient, -gradient.total, normalizer(state))


def added(one: Gradient, factor: float, other: Gradient) -> Gradient:
    """Return one + factor × other; the scale is that of the other."""
    rows = one.rows
    values = one.values
    right = one.right
    if len(other.rows):
        rows = np.union1d(one.rows, other.rows).astype(np.int32)
        values = np.zeros((len(rows), one.values.shape[1]))
        values[np.searchsorted(rows, one.rows)] = one.values
        values[np.searchsorted(rows, other.rows)] += factor * other.values
    if other.right is not None:
        right = factor * other.right if right is None else right + factor * other.right
    pairs = one.pairs
    log_d = one.log_d
    if pairs is not None and other.pairs is not None:
        pairs = pairs + factor * other.pairs
    if log_d is not None and other.log_d is not None:
        log_d = log_d + factor * other.log_d
    objective = one.objective + factor * other.objective
    return Gradient(rows, values, right, objective, pairs=pairs, log_d=log_d, scale=other.scale)


def through_tilts(gradient: Gradient, tilts: Array) -> Gradient:
    """Return the gradient in the parameters of L, given that in those of E L E."""
    half = np.exp(tilts / 2)
    values = gradient.values * half[gradient.rows, None]
    scale = np.square(half) if gradient.scale is None else gradient.scale * np.square(half)
    return replace(gradient, values=values, scale=scale)


def contrast_of(contrast: float | None, batch: Batch) -> float:
    """Return the weight of a batch's negatives: the given one, or |A⁻|/|A⁺|."""
    return batch.negatives.ratio if contrast is None else contrast


def spread(weights: Array, possible: Flags) -> Array:
    """Move the weights of impossible sets to the others, in proportion."""
    if possible.all():
        return weights
    left = np.where(possible, weights, 0.0)
    size = np.abs(left).sum()
    return left * (np.abs(weights).sum() / size) if size > 0 else left


# -- The table of objectives -----------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """The parameters and data that objectives, negatives and scores are made of."""

    params: Params
    data: TrainingData
    popularity: Array  # p̂_i, the share of training baskets with item i
    removal: Array  # weight of an item in the choice of the one that is left out


@dataclass(frozen=True)
class ObjectiveSpec:
    """The properties of an objective."""

    make: Callable[[Setup], Objective]
    # The same aim without sampling, if there is one: small problems are climbed to its optimum.
    closed: Callable[[Setup], Objective | None] | None = None
    negatives: type[NegativeSettings] | None = None  # the settings that `negatives=` takes
    draws: bool = True  # negatives are drawn, if there are settings
    # The validation score: mean log P(A), log P(i | A∖i), or log P(A | offered).
    score: Literal["likelihood", "conditional", "choice"] = "conditional"
    # Use of the sets that baskets were chosen from: none, refused items as negatives, or required.
    offered: Literal["unused", "negatives", "required"] = "unused"
    smallest: int = 1  # the fewest items of a basket
    dropout: bool = False  # steps may leave out items: others depend on the sizes of sets
    check: Callable[[Params], None] | None = None  # raises `ParameterError`


def _contrastive(setup: Setup) -> Objective:
    return Contrastive(setup.params.contrast_value)


def _conditional(setup: Setup) -> Objective:
    return ConditionalLikelihood(setup.removal, setup.params.contrast_value)


def _expected_contrast(setup: Setup) -> Objective | None:
    """Return the expectation over dynamic negatives, a conditional likelihood with contrast 1."""
    return ConditionalLikelihood(setup.removal) if setup.params.contrast == 1.0 else None


def _noise_contrastive(setup: Setup) -> Objective:
    power = cast(ProductNegatives, setup.params.negatives).frequency_power
    noise = ProductSource.from_popularity(setup.popularity, power)
    return NoiseContrastive(noise.log_odds(), noise.log_empty())


def _check_noise(params: Params) -> None:
    noise = cast(ProductNegatives, params.negatives)
    if noise.ratio == 0:
        raise ParameterError(
            "objective='nce' compares with noise: negatives.ratio (negative_ratio) must be above 0"
        )


def _choice(setup: Setup) -> Objective:  # noqa: ARG001
    return ChoiceLikelihood()


OBJECTIVES: dict[str, ObjectiveSpec] = {
    "mle": ObjectiveSpec(_contrastive, closed=_contrastive, score="likelihood", smallest=0),
    "dynamic": ObjectiveSpec(_contrastive, closed=_expected_contrast, negatives=DynamicNegatives),
    "explicit": ObjectiveSpec(_contrastive, negatives=ExplicitNegatives, offered="negatives"),
    "product": ObjectiveSpec(_contrastive, negatives=ProductNegatives, smallest=0),
    "nce": ObjectiveSpec(
        _noise_contrastive,
        negatives=ProductNegatives,
        score="likelihood",
        smallest=0,
        check=_check_noise,
    ),
    "exact": ObjectiveSpec(
        _conditional, closed=_conditional, negatives=DynamicNegatives, draws=False, dropout=True
    ),
    "choice": ObjectiveSpec(
        _choice, closed=_choice, score="choice", offered="required", smallest=0
    ),
}


def objective_spec(objective: str | Objective) -> ObjectiveSpec:
    """Return the properties of an objective, given its word or an object of the user's own."""
    if isinstance(objective, str):
        return OBJECTIVES[objective]
    spec: ObjectiveSpec | None = getattr(objective, "spec", None)
    return spec or ObjectiveSpec(make=lambda _: objective)


def make_source(setup: Setup) -> NegativeSource | None:
    """Make the source of negatives; None for an objective that draws none."""
    settings = setup.params.negatives
    data = setup.data
    if settings is None or not setup.params.spec.draws:
        return None
    if not isinstance(settings, Settings):
        return settings
    source: NegativeSource
    match settings:
        case DynamicNegatives():
            source = DynamicSource(setup.removal)
        case ExplicitNegatives():
            source = ExplicitSource(setup.popularity, data.liked)
        case ProductNegatives(frequency_power=power):
            source = ProductSource.from_popularity(setup.popularity, power)
    if setup.params.spec.offered == "negatives" and data.offered is not None:
        source = RefusedSource(source)
    return source


# -- Validation scores -----------------------------------------------------------------------------


def clustered_monitor(
    setup: Setup, validation: Validation, clusters: Assignment
) -> Callable[[State], float]:
    """Score every set by the kernel of its cluster."""
    parts: list[tuple[Array, float, Callable[[State], float]]] = []
    for c in np.unique(clusters.of_validation).tolist():
        chosen = np.flatnonzero(clusters.of_validation == c)
        weights = validation.weights[chosen]
        part = Validation(take_sets(validation.sets, chosen), weights)
        share = float(np.abs(weights).sum() / np.abs(validation.weights).sum())
        parts.append((clusters.tilts[c], share, make_monitor(setup, part)))
    return lambda state: sum(w * score(state.tilted(tilts)) for tilts, w, score in parts)


def make_monitor(setup: Setup, validation: Validation) -> Callable[[State], float]:
    """Make the function that returns the validation score of a state."""
    spec = setup.params.spec
    chosen = setup.params.monitor
    if spec.score == "choice":
        return choice_monitor(validation)
    if (spec.score if chosen == "auto" else chosen) == "likelihood":
        return likelihood_monitor(validation)
    uniform = np.ones_like(setup.removal)
    if spec.offered == "negatives" and validation.offered is not None:
        return mixed_monitor(validation, validation.offered, uniform)
    by_removal = spec.negatives is DynamicNegatives
    return conditional_monitor(validation, setup.removal if by_removal else uniform)


def likelihood_monitor(validation: Validation) -> Callable[[State], float]:
    """Score by the weighted mean of log P(A) over the sets."""
    sets = validation.sets
    weight = validation.weights / np.abs(validation.weights).sum()

    def score(state: State) -> float:
        logs = state.log_det(sets)
        possible = np.where(np.isfinite(logs), logs, IMPOSSIBLE)
        return float(weight @ (possible - log_normalizer(state)))

    return score


def conditional_monitor(validation: Validation, removal: Array) -> Callable[[State], float]:
    """Score by the mean over sets of the mean of log P(i | A∖i), i weighted by `removal`."""
    sets = validation.sets
    share = removal[sets.indices]
    total = np.abs(validation.weights[sets.sizes > 0]).sum()
    by_set = sums_over_sets(share, sets)[sets.owners]
    weight = validation.weights[sets.owners] * share / by_set / max(total, 1e-300)
    return lambda state: _mean_log(weight, state.conditional_log_likelihood(sets))


def choice_monitor(validation: Validation) -> Callable[[State], float]:
    """Score by the weighted mean of log P(A | offered)."""
    sets, weights, offered = validation
    weight = weights / np.abs(weights).sum()
    offered = sets if offered is None else offered
    return lambda state: _mean_log(weight, state.log_choice(sets, offered))


def mixed_monitor(
    validation: Validation, offered: Sets, removal: Array
) -> Callable[[State], float]:
    """Score by `swap_monitor` where offered sets are known, by `conditional_monitor` elsewhere."""
    sets, weights, _ = validation
    known = np.flatnonzero(offered.sizes > 0)
    others = np.flatnonzero(offered.sizes == 0)
    parts = [Validation(take_sets(sets, some), weights[some]) for some in (known, others)]
    share = np.abs(parts[0].weights).sum() / max(np.abs(weights).sum(), 1e-300)
    by_swaps = swap_monitor(parts[0], take_sets(offered, known), len(removal))
    by_rest = conditional_monitor(parts[1], removal)
    return lambda state: float(share * by_swaps(state) + (1 - share) * by_rest(state))


def swap_monitor(validation: Validation, offered: Sets, n_items: int) -> Callable[[State], float]:
    """Score by the mean of log P(i | A∖i and one of i and the refused items), i taken from A."""
    sets, weights, _ = validation
    others, entry = swaps(sets, difference(offered, sets, n_items))
    owner = sets.owners
    n_swaps = np.bincount(entry, minlength=len(owner))
    weight = np.where(n_swaps > 0, (weights / np.maximum(sets.sizes, 1))[owner], 0.0)
    weight /= max(np.abs(weight).sum(), 1e-300)

    def score(state: State) -> float:
        own = state.log_det(sets)[owner]
        with np.errstate(invalid="ignore"):
            ratios = np.exp(np.clip(state.log_det(others) - own[entry], -500.0, 500.0))
        logs = -np.log1p(np.bincount(entry, weights=ratios, minlength=len(owner)))
        return float(weight @ np.where(np.isfinite(own), logs, IMPOSSIBLE))

    return score


def _mean_log(weight: Array, logs: Array) -> float:
    """Return the weighted mean of logarithms, IMPOSSIBLE in place of −inf."""
    return float(weight @ np.where(np.isfinite(logs), logs, IMPOSSIBLE))
