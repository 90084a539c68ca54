"""Negative samplers by chi-square on counts against enumeration, with wrong laws that the same tests reject."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from contradpp.data.sets import Sets
from contradpp.learn.negatives import DynamicSource, ExplicitSource, ProductSource
from contradpp.learn.state import State
from exact import ExactDPP, chi_square_p_value
from learn.test_forms import as_sets

N = 20_000
M, K = 6, 4
POPULARITY = np.array([0.5, 0.1, 0.3, 0.05, 0.2, 0.4])


def as_lists(sets: Sets) -> list[tuple[int, ...]]:
    return [tuple(sorted(sets.indices[a:b].tolist())) for a, b in itertools.pairwise(sets.indptr)]


def p_value(drawn: Sets, law: dict[tuple[int, ...], float]) -> float:
    counts = Counter(as_lists(drawn))
    observed = np.array([counts.pop(cell, 0) for cell in law])
    return 0.0 if counts else chi_square_p_value(observed, np.array(list(law.values())))


@pytest.fixture
def V() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(M, K))


@pytest.fixture
def state(V) -> State:
    return State(V)


# -- Dynamic -----------------------------------------------------------------------------------------


def dynamic_law(V, A, popularity, *, by_norm=False) -> dict[tuple[int, ...], float]:
    """i ∝ popularity, then j ∝ P(A∖i ∪ j); with `by_norm` the wrong law j ∝ ‖v_j‖², as if nothing were rejected."""
    exact = ExactDPP(V @ V.T)
    law: dict[tuple[int, ...], float] = {}
    for i, removed in zip(A, popularity[A] / popularity[A].sum(), strict=True):
        rest = [a for a in A if a != i]
        scores = np.square(V).sum(axis=1) * np.isin(np.arange(len(V)), rest, invert=True)
        scores = scores / scores.sum() if by_norm else exact.next_item(rest)
        for j in np.flatnonzero(scores):
            cell = tuple(sorted([*rest, int(j)]))
            law[cell] = law.get(cell, 0.0) + removed * scores[j]
    return law


@pytest.mark.parametrize("A", [[0, 1], [5, 2, 0], [3, 1, 2, 4], [3]])
def test_dynamic(V, state, A):
    """From one item A∖i is empty: j is drawn by its norm alone, itself included."""
    drawn = DynamicSource(POPULARITY).draw(state, as_sets([A]), N, np.random.default_rng(0))
    assert p_value(drawn, dynamic_law(V, A, POPULARITY)) > 1e-3
    assert p_value(drawn, dynamic_law(np.eye(M), A, POPULARITY)) < 1e-6  # all items alike
    if len(A) > 1:
        assert p_value(drawn, dynamic_law(V, A, np.ones(M))) < 1e-6  # another removal
        assert p_value(drawn, dynamic_law(V, A, POPULARITY, by_norm=True)) < 1e-6  # no rejection


def test_dynamic_follows_a_change_of_the_factors(V, state):
    """The model's norms are kept in step with V, whatever way V changed."""
    DynamicSource(POPULARITY).draw(state, as_sets([[0, 1]]), 10, np.random.default_rng(0))
    changed = V * np.array([3.0, 0.2, 1.0, 2.0, 0.1, 1.0])[:, None]
    state.V[:] = changed
    state.changed()
    drawn = DynamicSource(POPULARITY).draw(state, as_sets([[0, 1]]), N, np.random.default_rng(0))
    assert p_value(drawn, dynamic_law(changed, [0, 1], POPULARITY)) > 1e-3


def test_dynamic_in_a_large_catalogue():
    """The next item's marginal with many more items than the catalogues that can be enumerated."""
    rng = np.random.default_rng(5)
    V = rng.normal(size=(700, 3)) * np.exp(rng.normal(size=700))[:, None]
    rest = V[7] / np.linalg.norm(V[7])
    scores = np.square(V).sum(axis=1) - (V @ rest) ** 2
    scores[7] = 0.0
    popularity = np.full(700, 1e-12)
    popularity[9] = 1.0  # so that it is always 9 that is removed
    drawn = DynamicSource(popularity).draw(State(V), as_sets([[7, 9]]), N, rng)
    new = drawn.indices.reshape(-1, 2)
    assert (np.sort(new, axis=1) == 7).any(axis=1).all()
    counts = np.bincount(new.sum(axis=1) - 7, minlength=700)
    assert chi_square_p_value(counts, scores / scores.sum()) > 1e-3
    norms = np.square(V).sum(axis=1) * (np.arange(700) != 7)
    assert chi_square_p_value(counts, norms / norms.sum()) < 1e-6


def test_every_parent_has_its_share(state):
    """More negatives than positives: n/|A⁺| children each, to within one; by weight where there are weights."""
    parents = as_sets([[0], [0, 1], [0, 1, 2]])
    drawn = DynamicSource(POPULARITY).draw(state, parents, 30, np.random.default_rng(0))
    assert np.bincount(drawn.sizes).tolist() == [0, 10, 10, 10]
    drawn = DynamicSource(POPULARITY).draw(state, parents, 2, np.random.default_rng(0))
    assert len(set(drawn.sizes.tolist())) == 2
    for source in (DynamicSource(POPULARITY), ExplicitSource(POPULARITY, parents)):
        drawn = source.draw(state, parents, 40, np.random.default_rng(0), np.array([1.0, 2.0, 1.0]))
        assert np.bincount(drawn.sizes).tolist() == [0, 10, 20, 10]


def test_parents_of_few_negatives_are_all_alike(state):
    parents = as_sets([[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]])
    rng = np.random.default_rng(0)
    sizes = np.concatenate([DynamicSource(POPULARITY).draw(state, parents, 1, rng).sizes for _ in range(2000)])
    assert chi_square_p_value(np.bincount(sizes)[1:], np.full(4, 0.25)) > 1e-3


@pytest.mark.parametrize("A", [list(range(M)), list(range(M - 1))])
def test_sets_of_nearly_the_whole_catalogue(A):
    """Only the removed item, or one other, can come in; the negative is a set of as many distinct items."""
    state = State(np.random.default_rng(0).normal(size=(M, M)))
    for source in (DynamicSource(POPULARITY), ExplicitSource(POPULARITY, as_sets([A]))):
        drawn = source.draw(state, as_sets([A]), 50, np.random.default_rng(0))
        assert all(len(set(s)) == len(A) and set(s) <= set(range(M)) for s in as_lists(drawn))
    if len(A) < M:
        assert {s for s in as_lists(drawn) if M - 1 in s}


def test_empty_baskets_have_empty_negatives_at_most(state):
    drawn = ProductSource(POPULARITY).draw(state, as_sets([[], []]), 5, np.random.default_rng(0))
    assert drawn.count == 5


# -- Explicit ----------------------------------------------------------------------------------------

TOGETHER = [[0, 1]] * 45 + [[2, 3]] * 25 + [[0, 4], [2, 5]] * 5 + [[0, 1, 2]] * 20  # 0 and 1 are nearly inseparable


def explicit_law(A, popularity, training, n_items, *, repelled=True) -> dict[tuple[int, ...], float]:
    """i ≠ j from A by popularity one after the other, k ∉ A ∝ 1 − P̂({i,k}) (or uniform, the wrong law)."""
    law: dict[tuple[int, ...], float] = {}
    outside = [k for k in range(n_items) if k not in A]
    p = popularity[A] / popularity[A].sum()
    for (a, i), (b, j) in itertools.product(enumerate(A), enumerate(A)):
        if i == j and len(A) > 1:
            continue
        pair = 1.0 if len(A) == 1 else p[a] * p[b] / (1 - p[a])
        together = np.array([np.mean([{i, k} <= set(B) for B in training]) for k in outside])
        scores = 1 - together if repelled else np.ones(len(outside))
        for k, share in zip(outside, scores / scores.sum(), strict=True):
            cell = tuple(sorted([k, *(item for item in A if item != j)]))
            law[cell] = law.get(cell, 0.0) + pair * share
    return law


@pytest.mark.parametrize("A", [[0, 2], [0, 5], [3, 0, 4], [0], [5]])
def test_explicit(state, A):
    training = as_sets(TOGETHER)
    popularity = np.bincount(training.indices, minlength=M) / len(TOGETHER)
    drawn = ExplicitSource(popularity, training).draw(state, as_sets([A]), N, np.random.default_rng(0))
    assert p_value(drawn, explicit_law(A, popularity, TOGETHER, M)) > 1e-3
    if 0 in A:
        assert p_value(drawn, explicit_law(A, popularity, TOGETHER, M, repelled=False)) < 1e-6
    if len(A) > 1:
        assert p_value(drawn, explicit_law(A, np.ones(M), TOGETHER, M)) < 1e-6


def test_explicit_never_pairs_what_is_always_together(state):
    """Items 0 and 1 in every basket: 1 is never put next to 0, though half of all proposals are 1."""
    training = as_sets([[0, 1]] * 50)
    popularity = np.array([1.0, 1.0, 0.0])
    drawn = ExplicitSource(popularity, training).draw(state, as_sets([[0]]), 500, np.random.default_rng(0))
    assert set(as_lists(drawn)) == {(2,)}


# -- Product -----------------------------------------------------------------------------------------


def product_law(p) -> dict[tuple[int, ...], float]:
    law = {}
    for size in range(len(p) + 1):
        for s in itertools.combinations(range(len(p)), size):
            inside = np.isin(np.arange(len(p)), s)
            law[s] = float(np.prod(np.where(inside, p, 1 - p)))
    return law


def test_product(state):
    drawn = ProductSource(POPULARITY).draw(state, as_sets([[0]]), N, np.random.default_rng(0))
    assert p_value(drawn, product_law(POPULARITY)) > 1e-3
    assert p_value(drawn, product_law(np.full(M, POPULARITY.mean()))) < 1e-6


@pytest.mark.parametrize("power", [0.75, 0.0, 2.0])
def test_product_with_a_power(state, power):
    raised = POPULARITY**power
    p = raised * POPULARITY.sum() / raised.sum()
    if power > 1:
        p = np.minimum(p, POPULARITY.max())  # never above what the data show
    source = ProductSource.from_popularity(POPULARITY, power)
    np.testing.assert_allclose(source.probabilities, p)
    drawn = source.draw(state, as_sets([[0]]), N, np.random.default_rng(0))
    assert p_value(drawn, product_law(p)) > 1e-3
    assert p_value(drawn, product_law(POPULARITY)) < 1e-6
    if power <= 1:
        assert drawn.sizes.mean() == pytest.approx(POPULARITY.sum(), abs=0.05)  # the expected size stays


def test_product_of_certain_and_impossible_items(state):
    p = np.array([1.0, 0.0, 0.5, 0.0, 1.0, 1e-9])
    drawn = ProductSource(p).draw(state, as_sets([[0]]), 400, np.random.default_rng(0))
    assert set(as_lists(drawn)) == {(0, 4), (0, 2, 4)}


def test_product_log_probability_is_its_definition():
    source = ProductSource(POPULARITY)
    for s, p in product_law(POPULARITY).items():
        assert source.log_empty() + source.log_odds()[list(s)].sum() == pytest.approx(np.log(p))
