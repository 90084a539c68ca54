"""Learning L = D + V Vᵀ + S with D, V and S on and off: values by enumeration, gradients by central differences."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.sparse import triu

import contradpp as cd
import reference_gradients
from contradpp.data.sets import EMPTY, Sets, pointers
from contradpp.dpp import compiled
from contradpp.learn.negatives import DynamicSource, Negatives
from contradpp.learn.objectives import (
    Batch,
    ConditionalLikelihood,
    Contrastive,
    Gradient,
    NoiseContrastive,
    Objective,
    log_normalizer,
    with_normalizer,
)
from contradpp.learn.state import (
    NO_SKEW,
    SkewPattern,
    State,
    _loaded,
    beyond_neighbors,
    beyond_others,
    co_occurrences,
    find_skew_pattern,
    popularity,
    start_factors,
    strongest,
)
from contradpp.learn.training import thinned
from exact import chi_square_p_value

M = 9
SETS = [[0, 3, 4], [1, 2], [5], [0, 1, 2, 6], [8, 7, 3]]
NEGATIVES = [[0, 5, 7], [2, 3]]
WEIGHTS = np.full(len(SETS), 1 / len(SETS))
# diagonal, components, S, and what annealing adds: every form in which all of SETS have positive probability
FORMS = [(False, 5, False), (True, 5, False), (False, 5, True), (True, 5, True), (True, 2, True), (True, 0, True),
         (True, 0, False), (True, 1, False), (False, 2, False, 0.7), (True, 2, True, 0.3)]  # fmt: skip


def make_state(form=(False, 5, True), seed: int = 0, *, n_jobs: int = 1) -> State:
    diagonal, K, paired, *epsilon = form
    rng = np.random.default_rng(seed)
    i, j = np.triu_indices(M, k=1)
    chosen = rng.random(len(i)) < 0.5
    partners = SkewPattern.from_pairs(i[chosen], j[chosen], rng.uniform(0.2, 3.0, int(chosen.sum())), M, seed)
    V, log_d = rng.standard_normal((M, K)), rng.normal(size=M)
    state = State(V, log_d if diagonal else np.empty(0), partners if paired else NO_SKEW, n_jobs)
    state.refresh(sum(epsilon, 0.0))
    return state


def dense_kernel(state: State) -> np.ndarray:
    S = np.zeros((M, M))
    if not state.symmetric:
        row = np.repeat(np.arange(M), np.diff(state.skew.indptr))
        S[row, state.skew.columns] = state.skew.signs * np.exp(state.pairs)[state.skew.pair]
        np.testing.assert_array_equal(S, -S.T)
    d = np.exp(state.log_d) if len(state.log_d) else np.zeros(M)
    return np.diag(d + state.epsilon) + state.V @ state.V.T + S


def as_sets(lists: list[list[int]]) -> Sets:
    return Sets(pointers([len(items) for items in lists]), np.array(list(itertools.chain(*lists)), dtype=np.int32))


def batch_of(lists=SETS, negatives=()) -> Batch:
    weights = np.array([0.4, 0.6])[: len(negatives)]
    sets = as_sets(list(negatives)) if len(negatives) else EMPTY
    return Batch(as_sets(lists), np.full(len(lists), 1 / len(lists)), Negatives(sets, weights, 0.4))


def log_probabilities(state: State, lists: list[list[int]]) -> np.ndarray:
    L = dense_kernel(state)
    normalizer = np.linalg.slogdet(np.eye(M) + L)[1]
    return np.array([np.linalg.slogdet(L[np.ix_(A, A)])[1] - normalizer for A in lists])


def check_by_differences(objective: Objective, batch: Batch, state: State, value) -> Gradient:
    """The gradient with respect to every parameter against central differences of the definition."""
    gradient = with_normalizer(state, objective.gradient(state, batch))
    dense = np.zeros_like(state.V)
    if gradient.right is not None:
        dense += (np.ones(M) if gradient.scale is None else gradient.scale)[:, None] * (state.V @ gradient.right)
    dense[gradient.rows] += gradient.values
    assert (gradient.log_d is None) == (len(state.log_d) == 0)
    assert (gradient.pairs is None) == state.symmetric
    step = 1e-5
    for parameters, found in ((state.V, dense), (state.log_d, gradient.log_d), (state.pairs, gradient.pairs)):
        for index in np.ndindex(parameters.shape):
            kept, values = parameters[index], []
            for h in (1, -1, 2, -2):
                parameters[index] = kept + h * step
                values.append(value(state))
            parameters[index] = kept
            difference = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * step)
            assert found[index] == pytest.approx(difference, rel=1e-6, abs=1e-9)
    return gradient


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_conditional_likelihood(form, seed):
    state, removal = make_state(form, seed), np.linspace(0.5, 1.5, M)
    shares = [(removal[items] / removal[items].sum() / len(SETS)).tolist() for items in SETS]

    def value(state: State) -> float:
        return reference_gradients.skew_conditional(dense_kernel(state), SETS, shares)

    gradient = check_by_differences(ConditionalLikelihood(removal), batch_of(), state, value)
    assert gradient.objective == pytest.approx(value(state), rel=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("contrast", [0.0, 0.4, 1.0])
def test_contrast_and_likelihood(form, contrast):
    state = make_state(form, 4)
    y = np.concatenate([WEIGHTS, [-contrast * 0.4, -contrast * 0.6]])

    def value(state: State) -> float:
        return float(y @ log_probabilities(state, SETS + NEGATIVES))

    gradient = check_by_differences(Contrastive(contrast), batch_of(negatives=NEGATIVES), state, value)
    assert gradient.objective == pytest.approx(value(state), rel=1e-9)
    if contrast == 1.0:  # the normalizer cancels: only the batch's rows move
        assert gradient.right is None
        assert set(gradient.rows.tolist()) == {item for items in SETS + NEGATIVES for item in items}


@pytest.mark.parametrize("form", FORMS)
def test_noise_contrast(form):
    state, log_odds, log_empty, ratio = make_state(form, 5), np.linspace(-1, 0.5, M), -3.0, 0.4
    everything, n = SETS + NEGATIVES, len(SETS)
    scale = np.concatenate([WEIGHTS, ratio * np.array([0.4, 0.6])])
    log_noise = np.array([log_empty + log_odds[A].sum() for A in everything])

    def value(state: State) -> float:
        ours = 1 / (1 + ratio * np.exp(log_noise - log_probabilities(state, everything)))
        return float(scale @ np.log(np.where(np.arange(n + 2) < n, ours, 1 - ours)))

    gradient = check_by_differences(NoiseContrastive(log_odds, log_empty), batch_of(negatives=NEGATIVES), state, value)
    assert gradient.objective == pytest.approx(value(state), rel=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_entries_determinants_and_normalizer_are_the_definitions(form):
    state = make_state(form, 3)
    L = dense_kernel(state)
    expected = [
        reference_gradients.skew_conditional(L, [items], [[float(item == left) for item in items]])
        for items in SETS
        for left in items
    ]
    np.testing.assert_allclose(state.conditional_log_likelihood(as_sets(SETS)), expected, rtol=1e-9)
    dets = [np.linalg.slogdet(L[np.ix_(A, A)])[1] for A in SETS]
    np.testing.assert_allclose(state.log_det(as_sets(SETS)), dets, rtol=1e-10)
    assert log_normalizer(state) == pytest.approx(np.linalg.slogdet(np.eye(M) + L)[1], rel=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("objective", [ConditionalLikelihood(np.ones(M)), Contrastive(0.5)], ids=["exact", "contrast"])
def test_shares_of_a_batch_sum_to_the_whole(form, objective):
    """What a cluster relies on: the gradient is a sum over sets, with the normalizer put on afterwards."""
    state = make_state(form, 6)
    whole = objective.gradient(state, batch_of())
    parts = [
        objective.gradient(state, Batch(as_sets(SETS[a:b]), WEIGHTS[a:b], Negatives(EMPTY, np.empty(0))))
        for a, b in ((0, 2), (2, 5))
    ]
    assert whole.objective == pytest.approx(sum(part.objective for part in parts))
    assert whole.total == pytest.approx(sum(part.total for part in parts))
    rows = np.zeros((2, *state.V.shape))
    rows[0][whole.rows] = whole.values
    for part in parts:
        rows[1][part.rows] += part.values
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-12)
    for name in ("right", "pairs", "log_d"):
        if getattr(whole, name) is not None:
            np.testing.assert_allclose(getattr(whole, name), sum(getattr(part, name) for part in parts), atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_same_bytes_for_any_number_of_threads(form):
    lists = SETS * 40  # several blocks
    one, two = (ConditionalLikelihood(np.ones(M)).gradient(make_state(form, n_jobs=n), batch_of(lists)) for n in (1, 2))
    for name in ("values", "right", "pairs", "log_d"):
        ours, theirs = getattr(one, name), getattr(two, name)
        assert ours is theirs is None or ours.tobytes() == theirs.tobytes()


def test_a_set_of_any_size_has_a_gradient_with_a_diagonal():
    everything = [list(range(M))]
    state = make_state((True, 2, False))
    assert np.isfinite(state.log_det(as_sets(everything))).all()
    assert np.isfinite(state.conditional_log_likelihood(as_sets(everything))).all()
    assert np.isneginf(make_state((False, 5, False)).log_det(as_sets(everything))).all()


def test_dropout_keeps_two_items_and_thins_the_rest():
    lists = [list(range(8)), [0, 1], [4]] * 200
    left = thinned(as_sets(lists), 0.5, np.random.default_rng(0))
    sizes = left.sizes.reshape(-1, 3)
    assert (sizes[:, 1] == 2).all()
    assert (sizes[:, 2] == 1).all()
    assert sizes[:, 0].min() >= 2
    assert 3.8 < sizes[:, 0].mean() < 4.3
    assert set(left.indices[left.indptr[2] : left.indptr[3]].tolist()) == {4}


def test_partners_are_those_bought_together():
    rng = np.random.default_rng(0)
    baskets = [[0, 1] if rng.random() < 0.5 else [2, 3] for _ in range(300)]
    baskets += [[int(a), int(b)] for a, b in (rng.choice(6, 2, replace=False) for _ in range(30))]
    sets = as_sets(baskets)
    share = np.bincount(sets.indices, minlength=6) / len(baskets)
    together = co_occurrences(sets, np.ones(len(baskets)), 6)
    found = find_skew_pattern(together, len(baskets), share / (1 - share), 1, seed=0)
    of_0, _, of_2, *_ = np.split(found.columns, found.indptr[1:-1])
    assert 1 in of_0
    assert 3 in of_2
    assert 2 not in of_0


def test_strongest_keeps_what_either_side_wants():
    i, j = np.array([0, 0, 1, 2]), np.array([1, 2, 2, 3])
    kept = strongest(i, j, np.array([3.0, 2.0, 1.0, 0.5]), 4, 1)
    assert kept.tolist() == [0, 1, 3]  # 0-1 for 0 and 1, 0-2 for 2, 2-3 for 3


@pytest.mark.parametrize("form", FORMS[:4])
def test_dynamic_negatives_follow_the_conditional_law(form):
    state, A, law = make_state(form, seed=1), [0, 3, 4], Counter()
    drawn = DynamicSource(np.ones(M)).draw(state, as_sets([A]), 30_000, np.random.default_rng(0))
    L = dense_kernel(state)
    for left in A:
        rest = [item for item in A if item != left]
        scores = {j: np.linalg.det(L[np.ix_([*rest, j], [*rest, j])]) for j in range(M) if j not in rest}
        for j, score in scores.items():
            law[tuple(sorted([*rest, j]))] += score / sum(scores.values()) / 3
    counts = Counter(tuple(sorted(items)) for items in drawn.indices.reshape(-1, 3).tolist())
    assert counts.keys() <= law.keys()
    observed = np.array([counts[key] for key in law])
    assert chi_square_p_value(observed, np.array(list(law.values()))) > 1e-3
    assert chi_square_p_value(observed, np.full(len(law), 1 / len(law))) < 1e-6


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e7])
@pytest.mark.parametrize("diagonal", [False, True])
def test_training_leaves_out_what_is_singular(scale, diagonal):
    """Training also leaves out sets that are nearly so; of all others it has the same log-determinant."""
    found, sets = [], as_sets([list(s) for k in range(1, 7) for s in itertools.combinations(range(M), k)])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        state = make_state((diagonal, int(rng.integers(1, 4)), True), seed)
        state.V *= 10.0 ** rng.uniform(-3, 3, size=(M, 1))
        state.V[rng.random(M) < 0.2] = 1e-90
        state.log_d -= 20.0
        state.pairs += np.log(scale)
        state.changed()
        learned, asked = state.log_det(sets), state.kernel.log_det(sets)
        possible = np.isfinite(learned)
        assert np.isfinite(asked[possible]).all()
        np.testing.assert_allclose(learned[possible], asked[possible], atol=0.01)  # rounding over SINGULAR
        found.append(possible.mean())
    assert min(found) < 1.0 or diagonal  # there are singular sets, and others
    assert max(found) > 0.0


def test_regressions_on_all_items_say_what_the_inverse_says():
    """Beyond some thousand items there is no inverse: with every item for a neighbor the two are one."""
    rng = np.random.default_rng(0)
    sets = as_sets([rng.choice(9, size=rng.integers(2, 6), replace=False).tolist() for _ in range(400)])
    together = co_occurrences(sets, np.ones(400), 10)  # item 9 is never sold
    upper = triu(together, k=1).tocoo()
    i, j = upper.row.astype(np.int64), upper.col.astype(np.int64)
    exact = beyond_others(together, i, j, 400.0)
    assert (exact > 0).any()
    regressed = beyond_neighbors(together, together.diagonal(), i, j, 400.0, n_jobs=2)
    np.testing.assert_allclose(regressed, exact, rtol=1e-9, atol=1e-15)


def test_large_catalogues_find_partners_by_regressions(monkeypatch):
    rng = np.random.default_rng(1)
    weights = np.r_[np.full(6, 1 / 9), np.full(6, 1 / 18)]
    sets = as_sets([rng.choice(12, size=3, replace=False, p=weights).tolist() for _ in range(500)])
    share = np.bincount(sets.indices, minlength=12) / 500
    given = (co_occurrences(sets, np.ones(500), 12), 500.0, share / (1 - share), 3, 0)
    small = find_skew_pattern(*given)
    monkeypatch.setattr("contradpp.learn.state.INVERTIBLE", 5)
    large = find_skew_pattern(*given)
    np.testing.assert_array_equal(large.columns, small.columns)
    np.testing.assert_allclose(large.start, small.start, rtol=1e-9)


def test_the_first_block_of_every_form_of_a_kernel_runs_alone():
    """Threads that compile at the same time would not hear Ctrl-C; a symmetric kernel has a form of its own."""

    class Compiled:
        signatures = [("Parameters", "none", "int64")]

    assert _loaded(Compiled(), True)
    assert not _loaded(Compiled(), False)
    assert _loaded(Compiled())
    Compiled.signatures = [("Parameters", "array(int64, 1d, C)", "int64")]
    assert not _loaded(Compiled(), True)
    assert _loaded(Compiled(), False)
    Compiled.signatures = []
    assert not _loaded(Compiled())
    assert _loaded(len, True)  # plain Python
    for form in (FORMS[0], FORMS[-1]):
        state = make_state(form, 3)
        state.log_det(as_sets(SETS))
        assert _loaded(compiled.gradients.log_det_gradients, state.symmetric)


# -- The start --------------------------------------------------------------------------------------


def test_popularity_is_kept_inside_zero_and_one():
    share = popularity(np.array([0.0, 3.0, 10.0]), 10)
    np.testing.assert_allclose(share, [0.05, 0.3, 0.95])
    assert popularity(np.array([0.0, 1.0]), 1).tolist() == [0.5, 0.5]
    assert popularity(np.array([0.0]), 0).tolist() == [0.5]


def test_popularity_start_is_the_popularity_ranking():
    counts = np.array([5.0, 40.0, 1.0, 20.0])
    V = start_factors("popularity", counts, 100, 3, np.random.default_rng(0))
    p = counts / 100
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), np.sqrt(p / (1 - p)))
    order = np.argsort(-cd.LowRankDPP.from_factors(V).predict_next([]))
    assert order.tolist() == [1, 3, 0, 2]


def test_uniform_start_is_the_papers():
    V = start_factors("uniform", np.ones(200), 10, 20, np.random.default_rng(0))
    assert V.shape == (200, 20)
    assert 1.0 <= V.min() < 1.01
    assert 1.99 < V.max() <= 2.0
    assert V.mean() == pytest.approx(1.5, abs=0.02)
    assert V.var() == pytest.approx(1 / 12, abs=0.005)


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_pairs_are_counted_the_same_on_any_number_of_threads(n_jobs):
    rng = np.random.default_rng(0)
    there = rng.random((200, 40)) < rng.random(40) ** 2
    there[:, 7] = False  # never sold
    weights = rng.random(200)
    sets = Sets(pointers(there.sum(axis=1)), np.nonzero(there)[1].astype(np.int32))
    found = co_occurrences(sets, weights, 40, n_jobs)
    np.testing.assert_allclose(found.toarray(), there.T @ (there * weights[:, None]))
    assert found.has_sorted_indices
    assert found.data.tobytes() == co_occurrences(sets, weights, 40).data.tobytes()
