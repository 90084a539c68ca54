"""Learning L = V Vᵀ + S: values by enumeration, gradients by central differences, partners from data."""

from __future__ import annotations

import numpy as np
import pytest

import reference_gradients
from contradpp.data.sets import EMPTY, Sets
from contradpp.learn.negatives import Negatives
from contradpp.learn.objectives import Batch
from contradpp.learn.partners import Partners, co_occurrences, find_partners, strongest
from contradpp.learn.skew import SkewConditionalLikelihood, SkewState
from contradpp.learn.skew_contrast import SkewContrastive, SkewDynamic

M, K = 9, 5
SETS = [[0, 3, 4], [1, 2], [5], [0, 1, 2, 6], [8, 7, 3]]


def make_state(seed: int = 0, *, n_jobs: int = 1) -> SkewState:
    rng = np.random.default_rng(seed)
    i, j = np.triu_indices(M, k=1)
    chosen = rng.random(len(i)) < 0.5
    partners = Partners.from_pairs(i[chosen], j[chosen], rng.uniform(0.2, 3.0, int(chosen.sum())), M, seed)
    return SkewState(rng.standard_normal((M, K)), partners, n_jobs=n_jobs)


def dense_kernel(state: SkewState) -> np.ndarray:
    S = np.zeros((M, M))
    row = np.repeat(np.arange(M), np.diff(state.partners.indptr))
    S[row, state.partners.columns] = state.skew_values()
    np.testing.assert_array_equal(S, -S.T)
    return state.V @ state.V.T + S


def as_sets(lists: list[list[int]]) -> Sets:
    indptr = np.concatenate([[0], np.cumsum([len(items) for items in lists])]).astype(np.int64)
    return Sets(indptr, np.concatenate(lists).astype(np.int32))


def batch_of(lists: list[list[int]]) -> Batch:
    return Batch(as_sets(lists), np.full(len(lists), 1 / len(lists)), Negatives(EMPTY, np.empty(0), 0.0))


def defined_value(state: SkewState, removal: np.ndarray) -> float:
    shares = [(removal[items] / removal[items].sum() / len(SETS)).tolist() for items in SETS]
    return reference_gradients.skew_conditional(dense_kernel(state), SETS, shares)


def test_value_is_the_definition():
    state, removal = make_state(), np.linspace(0.5, 1.5, M)
    gradient = SkewConditionalLikelihood(removal).gradient(state, batch_of(SETS))
    assert gradient.objective == pytest.approx(defined_value(state, removal), rel=1e-10)


def test_entries_are_the_definition():
    state = make_state(3)
    logs = state.conditional_log_likelihood(as_sets(SETS))
    L = dense_kernel(state)
    expected = [
        reference_gradients.skew_conditional(L, [items], [[float(item == left) for item in items]])
        for items in SETS
        for left in items
    ]
    np.testing.assert_allclose(logs, expected, rtol=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_gradient_by_central_differences(seed: int):
    state, removal = make_state(seed), np.linspace(0.5, 1.5, M)
    gradient = SkewConditionalLikelihood(removal).gradient(state, batch_of(SETS))
    assert gradient.right is not None
    assert gradient.pairs is not None
    dense = state.V @ gradient.right
    dense[gradient.rows] += gradient.values
    step = 1e-6
    for parameters, found in ((state.V, dense), (state.pairs, gradient.pairs)):
        for index in np.ndindex(parameters.shape):
            kept = parameters[index]
            parameters[index] = kept + step
            above = defined_value(state, removal)
            parameters[index] = kept - step
            below = defined_value(state, removal)
            parameters[index] = kept
            assert found[index] == pytest.approx((above - below) / (2 * step), rel=2e-5, abs=2e-7)


def test_same_bytes_for_any_number_of_threads():
    found = [
        SkewConditionalLikelihood(np.ones(M), dropout=0.3, seed=1).gradient(make_state(n_jobs=n), batch_of(SETS))
        for n in (1, 2)
    ]
    assert found[0].pairs is not None
    assert found[0].values.tobytes() == found[1].values.tobytes()
    assert found[0].pairs.tobytes() == found[1].pairs.tobytes()


def test_dropout_keeps_two_items_and_thins_the_rest():
    lists = [list(range(8)), [0, 1], [4]] * 200
    thinned = SkewConditionalLikelihood(np.ones(M), dropout=0.5)._thinned(as_sets(lists))
    sizes = thinned.sizes.reshape(-1, 3)
    assert (sizes[:, 1] == 2).all()
    assert (sizes[:, 2] == 1).all()
    assert sizes[:, 0].min() >= 2
    assert 3.8 < sizes[:, 0].mean() < 4.3
    assert set(thinned.indices[thinned.indptr[2] : thinned.indptr[3]].tolist()) == {4}


def test_partners_are_those_bought_together():
    rng = np.random.default_rng(0)
    baskets = [[0, 1] if rng.random() < 0.5 else [2, 3] for _ in range(300)]
    baskets += [[int(a), int(b)] for a, b in (rng.choice(6, 2, replace=False) for _ in range(30))]
    sets = as_sets(baskets)
    share = np.bincount(sets.indices, minlength=6) / len(baskets)
    found = find_partners(
        co_occurrences(sets, np.ones(len(baskets)), len(share)), len(baskets), share / (1 - share), 1, seed=0
    )
    of_0 = found.columns[found.indptr[0] : found.indptr[1]]
    of_2 = found.columns[found.indptr[2] : found.indptr[3]]
    assert 1 in of_0
    assert 3 in of_2
    assert 2 not in of_0


def test_strongest_keeps_what_either_side_wants():
    i, j = np.array([0, 0, 1, 2]), np.array([1, 2, 2, 3])
    kept = strongest(i, j, np.array([3.0, 2.0, 1.0, 0.5]), 4, 1)
    assert kept.tolist() == [0, 1, 3]  # 0-1 for 0 and 1, 0-2 for 2, 2-3 for 3


def contrast_value(state: SkewState, batch: Batch, contrast: float) -> float:
    """Σ y_A [log det L_A − log det(I + L)] by its definition."""
    L = dense_kernel(state)
    normalizer = np.linalg.slogdet(np.eye(M) + L)[1]
    sets = batch.together()
    y = np.concatenate([batch.weights, -contrast * batch.negatives.weights])
    items = np.split(sets.indices, sets.indptr[1:-1])
    return sum(w * (np.linalg.slogdet(L[np.ix_(A, A)])[1] - normalizer) for w, A in zip(y, items, strict=True))


@pytest.mark.parametrize("contrast", [0.0, 0.4, 1.0])
def test_contrast_gradient_by_central_differences(contrast: float):
    state = make_state(4)
    negatives = Negatives(as_sets([[0, 5, 7], [2, 3]]), np.array([0.4, 0.6]), 0.4)
    batch = Batch(as_sets(SETS), np.full(len(SETS), 1 / len(SETS)), negatives)
    gradient = SkewContrastive(contrast).gradient(state, batch)
    assert gradient.pairs is not None
    if contrast != 1.0:  # with 1 the normaliser cancels, and is left out of the value
        assert gradient.objective == pytest.approx(contrast_value(state, batch, contrast), rel=1e-9)
    dense = np.zeros_like(state.V)
    dense[gradient.rows] += gradient.values
    step = 1e-6
    for parameters, found in ((state.V, dense), (state.pairs, gradient.pairs)):
        for index in np.ndindex(parameters.shape):
            kept = parameters[index]
            parameters[index] = kept + step
            above = contrast_value(state, batch, contrast)
            parameters[index] = kept - step
            below = contrast_value(state, batch, contrast)
            parameters[index] = kept
            assert found[index] == pytest.approx((above - below) / (2 * step), rel=2e-5, abs=2e-7)


def test_dynamic_negatives_follow_the_conditional_law():
    state = make_state(1)
    positives, n = as_sets([[0, 3, 4]]), 30_000
    drawn = SkewDynamic(np.ones(M)).draw(state, positives, n, np.random.default_rng(0))
    L = dense_kernel(state)
    expected: dict[tuple[int, ...], float] = {}
    for left in (0, 3, 4):
        rest = [item for item in (0, 3, 4) if item != left]
        scores = {j: np.linalg.det(L[np.ix_([*rest, j], [*rest, j])]) for j in range(M) if j not in rest}
        for j, score in scores.items():
            key = (*rest, j)
            expected[key] = expected.get(key, 0.0) + n / 3 * score / sum(scores.values())
    counts: dict[tuple[int, ...], int] = {}
    for items in drawn.indices.reshape(n, 3).tolist():
        counts[tuple(items)] = counts.get(tuple(items), 0) + 1
    assert counts.keys() <= expected.keys()
    off = sum((counts.get(key, 0) - mean) ** 2 / mean for key, mean in expected.items() if mean > 5)
    cells = sum(mean > 5 for mean in expected.values())
    assert off < cells + 5 * np.sqrt(2 * cells)  # far in the tail of chi-square; uniform draws are way beyond
    uniform = sum((n / len(expected) - mean) ** 2 / mean for mean in expected.values() if mean > 5)
    assert uniform > cells + 5 * np.sqrt(2 * cells)
