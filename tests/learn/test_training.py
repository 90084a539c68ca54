"""The loop: batches, divergence, early stopping; and the end of small problems."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.sets import EMPTY, Sets, distinct_sets
from contradpp.errors import ConvergenceError
from contradpp.learn.negatives import ExplicitNegatives
from contradpp.learn.objectives import Contrastive, Gradient
from contradpp.learn.optimizers import Adam, FullBatch, Nesterov, RobbinsMonro, RowwiseAdam, climb
from contradpp.learn.params import FitData, TrainingData, problem_of
from contradpp.learn.state import State, first_state
from contradpp.learn.training import (
    BestSoFar,
    Plan,
    Plateau,
    Schedule,
    anneal,
    assemble,
    batches,
    make_plan,
    n_free,
    refine,
    restart,
    train,
)
from learn.test_checkpoints import Break, BreakAt
from learn.test_forms import as_sets

M, K = 8, 3


def as_lists(sets: Sets) -> list[list[int]]:
    return [sets.indices[a:b].tolist() for a, b in itertools.pairwise(sets.indptr)]


class Source:
    """A source of negatives that can be told apart: the n-th draw gives sets of item n."""

    def __init__(self):
        self.draws = 0
        self.asked = []

    def draw(self, state, positives, n, rng, weights=None):
        self.draws += 1
        self.asked.append((as_lists(positives), n, weights.tolist()))
        return as_sets([[self.draws % M]] * n)


def plan_of(source=None, **changes) -> Plan:
    return Plan(
        **{
            "objective": Contrastive(1.0), "optimizer": RowwiseAdam(np.zeros(M), K), "schedule": Schedule(),
            "monitor": lambda state: 0.0, "source": source, "negative_ratio": 0.5, "batch_size": 4, "max_iter": 3,
            "seed": 0,
        } | changes
    )  # fmt: skip


def data_of(n=10, weights=None, negatives=(), negative_weights=()) -> TrainingData:
    lists = [[i % M, (i + 1) % M] for i in range(n)]
    own = as_sets(list(negatives)) if len(negatives) else EMPTY
    labels = np.ones(n) if weights is None else np.array(weights)
    return TrainingData(as_sets(lists), labels, own, np.array(negative_weights, dtype=float))


def state_of() -> State:
    return State(np.random.default_rng(0).normal(size=(M, K)))


def test_an_epoch_sees_every_basket_once():
    plan, data = plan_of(), data_of()
    epochs = []
    for epoch in (0, 1):
        seen = [as_lists(b.positives) for b in batches(state_of(), data, plan, epoch)]
        assert [len(b) for b in seen] == [4, 4, 2]
        epochs.append(list(itertools.chain(*seen)))
        assert sorted(epochs[-1]) == sorted(as_lists(data.positives))
    assert epochs[0] != epochs[1]  # in another order


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 2.0), (2.5, 10.0), (0.3, 1.2)])
def test_negative_ratio(ratio, expected):
    source = Source()
    train(state_of(), data_of(400), plan_of(source, negative_ratio=ratio), [], BestSoFar(np.zeros((M, K))))
    counts = [n for _, n, _ in source.asked]
    assert min(counts) >= int(expected)
    assert max(counts) <= int(expected) + 1
    assert np.mean(counts) == pytest.approx(expected, abs=0.15)


def test_labels_and_negatives_cancel_in_every_batch():
    """With contrast 1 the normalizer must cancel whatever a batch's labels sum to, or all rows would move."""
    weights = np.linspace(0.1, 3.0, 10)
    data = data_of(weights=weights, negatives=[[0], [1, 2]], negative_weights=[1.0, 5.0])
    plan = plan_of(Source())
    for batch in batches(state_of(), data, plan, 0):
        assert batch.negatives.weights.sum() == pytest.approx(batch.weights.sum())
        assert Contrastive(1.0).gradient(state_of(), batch).right is None


def test_negatives_are_drawn_for_liked_baskets_by_their_weight():
    source = Source()
    data = data_of(4, weights=[2.0, -1.0, 0.5, -3.0])
    plan = plan_of(source, negative_ratio=1.0)
    list(batches(state_of(), data, plan, 0))
    ((parents, n, weights),) = source.asked
    assert sorted(zip(parents, weights, strict=True)) == [([0, 1], 2.0), ([2, 3], 0.5)]
    assert n == 2


def test_counted_negatives_weigh_what_a_positive_weighs():
    data = data_of(4, negatives=[[0], [1, 2], [3]], negative_weights=[1.0, 1.0, 2.0])
    plan = plan_of(batch_size=100)
    (batch,) = batches(state_of(), data, plan, 0)
    assert batch.negatives.ratio == pytest.approx(1.0)  # (1 + 1 + 2) / 4
    y = batch.negatives.ratio * batch.negatives.weights
    assert sorted(y) == pytest.approx([0.25, 0.25, 0.5])


def test_supplied_negatives_all_come_up_in_a_round():
    negatives = [[i] for i in range(7)]
    data, plan = data_of(negatives=negatives, negative_weights=np.ones(7)), plan_of()
    seen = [as_lists(b.negatives.sets) for b in batches(state_of(), data, plan, 0)]
    assert sorted(itertools.chain(*seen)) == negatives
    few = data_of(negatives=[[5]], negative_weights=[1.0])  # fewer than batches: in each of them
    assert [as_lists(b.negatives.sets) for b in batches(state_of(), few, plan, 0)] == [[[5]]] * 3


def test_only_the_batchs_rows_change_without_penalty():
    """contrast 1 and alpha 0: rows 6 and 7 are in no set and stay the same bytes through whole rounds."""
    state = state_of()
    before = state.V.copy()
    data = TrainingData(as_sets([[0, 1], [2, 3]] * 5), np.ones(10), as_sets([[4, 5]]), np.ones(1))
    train(state, data, plan_of(batch_size=3), [], BestSoFar(np.zeros((M, K))))
    np.testing.assert_array_equal(state.V[6:], before[6:])
    assert (state.V[:6] != before[:6]).any(axis=1).all()


def test_the_best_is_kept_and_slow_down_returns_to_it():
    scores = iter([-5.0, -3.0, -4.0, -4.0, -2.0, -6.0])
    seen = []

    def monitor(state):
        seen.append(state.V.copy())
        return next(scores)

    outcome = BestSoFar(np.zeros((M, K)))
    plan = plan_of(schedule=Plateau(0.0, patience=2, reductions=1), monitor=monitor, max_iter=6, batch_size=10)
    state = state_of()
    train(state, data_of(negatives=[[7]], negative_weights=[1.0]), plan, [], outcome)
    np.testing.assert_array_equal(outcome.V, seen[4])
    assert outcome.score == -2.0
    assert [h["validation"] for h in outcome.history] == [-5.0, -3.0, -4.0, -4.0, -2.0, -6.0]
    # after the fourth score training went on from the second's parameters: one step from there, not from the fourth's
    assert np.abs(seen[4] - seen[1]).max() < np.abs(seen[3] - seen[1]).max()


def test_without_keep_best_the_last_counts():
    scores = iter([-1.0, -2.0, -3.0])
    outcome, state = BestSoFar(np.zeros((M, K))), state_of()
    train(state, data_of(), plan_of(monitor=lambda _: next(scores), keep_best=False), [], outcome)
    np.testing.assert_array_equal(outcome.V, state.V)


# -- Remark 2: static negatives can drive the objective to infinity ----------------------------------

PAIRS = [[0, 1], [2, 3]] * 30
ONLY_OWN = ExplicitNegatives(ratio=0)
MANY_PAIRS = PAIRS * 20
SINGLES = [[0], [1], [2], [3]]  # P({i}) / P({i, j}) falls without bound as the kernel grows: φ → ∞


@pytest.mark.parametrize(
    "optimizer",
    [
        Adam(learning_rate=20.0, batch_size=1),
        Nesterov(learning_rate=1e140),
        RobbinsMonro(learning_rate=1e140, radius=1e150),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
@pytest.mark.parametrize("contrast", [1.0, 0.9])
def test_divergence_is_caught(optimizer, contrast):
    model = cd.LowRankDPP(
        3, objective="explicit", contrast=contrast, negatives=ONLY_OWN, alpha=0, tol=0, max_iter=1000,
        monitor="likelihood", random_state=0, optimizer=optimizer,
    )  # fmt: skip
    with pytest.raises(ConvergenceError, match=r"at step \d+ .*objective='dynamic'|after step \d+"):
        model.fit(MANY_PAIRS, negatives=SINGLES)
    assert np.isfinite(model.item_factors_).all()
    assert np.isfinite(model.score(PAIRS))
    assert model.predict_next([0]).sum() == pytest.approx(1.0)
    assert model.recommend([0], N=1)[0].shape == (1,)
    assert len(model.sample(3, random_state=0)) == 3


def test_the_objective_does_rise_without_bound():
    """The divergence itself: each round adds about as much as the one before, where dynamic negatives level off."""

    def objectives(**parameters):
        model = cd.LowRankDPP(
            3, contrast=1.0, alpha=0, tol=0, optimizer=Adam(1.0, batch_size=4), max_iter=4, random_state=0, **parameters
        )
        model.fit(PAIRS, negatives=SINGLES if parameters["objective"] == "explicit" else None)
        return np.array([h["objective"] for h in model.history_])

    static = objectives(objective="explicit", negatives=ONLY_OWN)
    assert (np.diff(static) > 0.5).all()
    dynamic = objectives(objective="dynamic")
    assert np.abs(np.diff(dynamic)).max() < 1.0
    assert dynamic.max() < static.max()


def test_negatives_that_become_impossible_do_no_harm():
    """Remark 2's other face, P(A⁻) → 0 in direction: what has no volume any more has no gradient, and all is finite."""
    for optimizer in ("adam", "nesterov", "robbins-monro"):
        model = cd.LowRankDPP(
            4,
            objective="explicit",
            negatives=ONLY_OWN,
            alpha=0,
            optimizer=optimizer,
            max_iter=60,
            tol=0,
            random_state=0,
        ).fit(PAIRS, negatives=[[0, 2], [1, 3]])
        p = model.predict_next([[0], [1]])
        codes = {item: code for code, item in enumerate(model.items_)}
        assert p[0, codes[1]] > 10 * p[0, codes[2]]
        assert p[1, codes[0]] > 10 * p[1, codes[3]]


def test_a_score_that_is_not_finite_names_the_step():
    outcome = BestSoFar(np.ones((M, K)))
    with pytest.raises(ConvergenceError, match="after step 3"):
        train(state_of(), data_of(), plan_of(monitor=lambda _: np.nan), [], outcome)
    np.testing.assert_array_equal(outcome.V, 1.0)  # what was good before


def test_an_error_of_our_own_is_not_taken_for_divergence():
    class Broken:
        def gradient(self, state, batch):
            raise ValueError("shapes do not match")

    with pytest.raises(ValueError, match="shapes"):
        train(state_of(), data_of(), plan_of(objective=Broken()), [], BestSoFar(np.ones((M, K))))


def test_a_gradient_that_is_not_finite_ends_training():
    class Overflowing:
        def gradient(self, state, batch):
            rows = np.array([2, 5], dtype=np.int32)
            return Gradient(rows, np.array([[1.0, 0.0, 0.0], [0.0, np.inf, 1.0]]), None, 0.0)

    outcome = BestSoFar(np.ones((M, K)))
    with pytest.raises(ConvergenceError, match="at step 1"):
        train(state_of(), data_of(), plan_of(objective=Overflowing()), [], outcome)
    np.testing.assert_array_equal(outcome.V, 1.0)


def after_450_steps(nudge: float) -> State:
    """Training with a diagonal, many baskets larger than the rank, from a start that is changed in its last bits."""
    shop = cd.datasets.load("grocer", n_baskets=400, random_state=0)
    params = cd.NonsymmetricDPP(6, 10, optimizer=Adam(batch_size=50), max_iter=57, tol=0.0, n_jobs=1)._training_params()
    problem = problem_of(FitData(shop), params, seed=0)
    state = first_state(problem, params)
    state.V *= 1 + nudge * np.random.default_rng(0).choice([-1.0, 1.0], size=state.V.shape)
    state.log_d *= 1 + nudge
    state.changed()
    plan = make_plan(problem, params, state)
    train(state, problem.data, replace(plan, schedule=Schedule()), [], BestSoFar.of(state))
    assert (problem.data.positives.sizes > 6).mean() > 0.2
    return state


def test_with_a_diagonal_rounding_stays_rounding():
    """Without one, a change of 1e-15 in the start is one of 0.5 where baskets fill the rank (docs/scale.md)."""
    one, other = after_450_steps(0.0), after_450_steps(1e-15)
    assert 0 < np.abs(one.V - other.V).max() <= 1e-8
    assert np.abs(one.log_d - other.log_d).max() <= 1e-8
    assert np.abs(one.pairs - other.pairs).max() <= 1e-8


# -- Half of the memory ----------------------------------------------------------------------------------

SHOP = cd.datasets.load("grocer", n_baskets=1500, random_state=0)
LARGE = {  # more parameters than are polished
    "mle": lambda **how: cd.LowRankDPP(70, objective="mle", max_iter=3, random_state=0, **how),
    "dynamic": lambda **how: cd.LowRankDPP(70, objective="dynamic", max_iter=3, random_state=0, **how),
    "exact": lambda **how: cd.NonsymmetricDPP(70, 4, max_iter=3, random_state=0, **how),
}


@pytest.mark.parametrize("name", LARGE)
def test_factors_in_float32_end_where_those_in_float64_do(name):
    whole, half = LARGE[name](n_jobs=1).fit(SHOP), LARGE[name](n_jobs=1, dtype="float32").fit(SHOP)
    assert (whole.item_factors_.dtype, half.item_factors_.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(half.history_[-1]["validation"], whole.history_[-1]["validation"], rtol=1e-3)
    if name != "dynamic":  # where a draw comes out another way, the runs part
        np.testing.assert_allclose(half.item_factors_, whole.item_factors_, atol=1e-3)
        np.testing.assert_allclose(half.score_samples(SHOP), whole.score_samples(SHOP), atol=1e-2)


@pytest.mark.parametrize("name", LARGE)
def test_factors_in_float32_are_the_same_for_any_number_of_threads(name):
    one, two = (LARGE[name](n_jobs=n, dtype="float32").fit(SHOP) for n in (1, 2))
    assert one.item_factors_.tobytes() == two.item_factors_.tobytes()


def test_what_is_kept_in_step_with_float32_factors_is_that_of_float64():
    V = np.random.default_rng(0).normal(size=(400, 6)).astype(np.float32)
    state, exact = State(V), V.astype(np.float64)
    np.testing.assert_allclose(state.dual, exact.T @ exact, rtol=1e-13)
    np.testing.assert_allclose(state.squared_norms, (exact**2).sum(axis=1), rtol=1e-13)
    penalty = np.zeros(400)
    optimizer = RowwiseAdam.for_state(state, penalty, dense=False)
    rows = np.arange(0, 400, 7, dtype=np.int32)
    optimizer.step(state, Gradient(rows, np.ones((len(rows), 6)), None, 0.0), 1.0)
    assert state.V.dtype == optimizer.momentum.dtype == np.float32
    assert state.known_dual is not None  # from the rows that moved
    exact = state.V.astype(np.float64)
    np.testing.assert_allclose(state.known_dual, exact.T @ exact, rtol=1e-12)


def test_a_few_parameters_are_polished_in_float64_and_then_rounded():
    few = SHOP.subset(range(400))
    whole, half = (cd.LowRankDPP(8, dtype=t, oversize="drop", random_state=0, n_jobs=1).fit(few)
                   for t in ("float64", "float32"))  # fmt: skip
    np.testing.assert_allclose(half.item_factors_, whole.item_factors_, rtol=1e-6, atol=1e-6)
    assert half.item_factors_.dtype == np.float32


def test_a_broken_run_in_float32_goes_on_to_the_same_bytes(tmp_path):
    whole = LARGE["exact"](n_jobs=1, dtype="float32").fit(SHOP)
    checkpoint = cd.Checkpointing(tmp_path / "run.ckpt", every=1)
    with pytest.raises(Break):
        LARGE["exact"](n_jobs=1, dtype="float32").fit(SHOP, callbacks=[BreakAt(4)], checkpoint=checkpoint)
    resumed = LARGE["exact"](n_jobs=1, dtype="float32").fit(SHOP, checkpoint=replace(checkpoint, resume=True))
    assert resumed.item_factors_.tobytes() == whole.item_factors_.tobytes()


# -- The end of small problems: stages, restarts and a climb to the optimum --------------------------

WALLED = cd.LowRankDPP.from_factors(np.random.default_rng(1).normal(size=(12, 4)))  # three baskets in five are full
BASKETS = WALLED.sample(5000, random_state=1)
N = BASKETS.n_baskets


def whole(baskets):
    sets, weights = distinct_sets(baskets.sets, np.ones(baskets.n_baskets))
    return assemble(sets, weights * sets.count / baskets.n_baskets, EMPTY, np.empty(0))


def climbed(V, baskets=BASKETS, iterations=2000):
    state = State(V.copy())
    problem = FullBatch(state, Contrastive(1.0), whole(baskets), np.zeros(len(V)), 10 * iterations)
    return climb(problem, iterations), state


def small_plan(state, monitor=lambda state: 0.0, **others):
    given = {"monitor": monitor, "max_iter": 100, "penalty": np.zeros(len(state.V)), "closed": Contrastive(1.0)}
    return plan_of(**given | others)


@pytest.fixture(scope="module")
def optimum():
    """The best log-likelihood that is known, by a long climb from the truth."""
    return climbed(WALLED.item_factors_)[0]


def start(seed):
    V = np.random.default_rng(seed).standard_normal((12, 4))
    return State(0.7 * V)


def mean_log_likelihood(state):
    return float(np.mean(state.kernel.log_det(BASKETS.sets)) - state.kernel.log_normalizer)


def test_climb_ends_at_a_stationary_point_and_says_its_value():
    value, state = climbed(start(0).V)
    assert value == pytest.approx(mean_log_likelihood(state), abs=1e-9)
    problem = FullBatch(state, Contrastive(1.0), whole(BASKETS), np.zeros(12), 1)
    assert np.abs(problem(problem.vector)[1]).max() < 1e-3


def test_without_stages_walls_stop_the_climb(optimum):
    assert optimum - climbed(start(0).V)[0] > 0.05


@pytest.mark.parametrize("seed", range(3))
def test_anneal_and_polish_reach_the_optimum_from_every_start(optimum, seed):
    state = start(seed)
    plan = small_plan(state, stages=tuple(np.geomspace(1, 1e-3, 12)), restarts=True)
    outcome = BestSoFar.of(state)
    anneal(state, whole(BASKETS), plan, outcome)
    assert state.epsilon == 0.0
    assert outcome.converged
    refine(state, whole(BASKETS), N, plan, outcome, [])
    assert mean_log_likelihood(state) > optimum - 0.005
    np.testing.assert_array_equal(outcome.V, state.V)
    assert outcome.history[-1]["objective"] == pytest.approx(mean_log_likelihood(state), abs=1e-4)


def test_other_starts_leave_a_local_optimum(optimum):
    value, state = climbed(start(0).V)
    outcome = BestSoFar.of(state)
    restart(state, whole(BASKETS), small_plan(state), outcome, trusted=True)
    assert mean_log_likelihood(state) > max(value + 0.05, optimum - 0.01)


@pytest.mark.parametrize("n_baskets", [100, 10**6])
def test_validation_has_the_last_word_unless_the_data_are_trusted(n_baskets):
    state = start(0)
    first, scores = state.V.copy(), iter(range(0, -(10**6), -1))  # every iterate is worse than the one before
    outcome = BestSoFar.of(state)
    outcome.update(state, 1.0)
    refine(state, whole(BASKETS), n_baskets, small_plan(state, lambda state: next(scores)), outcome, [])
    assert np.array_equal(outcome.V, first) == (n_baskets == 100)


def test_rotations_of_the_factors_are_not_free():
    assert n_free(State(np.ones((5, 5)))) == 15  # those of a symmetric matrix
    assert n_free(State(np.ones((5, 2)))) == 9
    assert n_free(State(np.ones((5, 2)), np.zeros(5))) == 14


def test_five_seeds_of_a_known_kernel_end_at_its_optimum():
    truth = cd.LowRankDPP.from_factors(np.random.default_rng(1).normal(size=(8, 3)) * 0.8)
    data, held_out = truth.sample(6000, random_state=0), truth.sample(6000, random_state=1)
    best = cd.LowRankDPP.from_factors(climbed(truth.item_factors_, data)[1].V).score(held_out)
    for seed in range(5):
        model = cd.LowRankDPP(3, objective="mle", random_state=seed).fit(data)
        assert model.score(held_out) > best - 0.005
