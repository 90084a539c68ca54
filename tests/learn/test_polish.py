"""The end of small problems: stages, restarts and a climb to the optimum."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.sets import EMPTY, distinct_sets
from contradpp.learn import optimizers, training
from contradpp.learn.objectives import Contrastive
from contradpp.learn.optimizers import Adam, Steady
from contradpp.learn.state import Partners, State
from contradpp.learn.training import Outcome, Plan, assemble

WALLED = cd.LowRankDPP.from_factors(np.random.default_rng(1).normal(size=(12, 4)))  # three baskets in five are full
BASKETS = WALLED.sample(5000, random_state=1)
N = BASKETS.n_baskets


def whole(baskets):
    sets, weights = distinct_sets(baskets.sets, np.ones(baskets.n_baskets))
    return assemble(sets, weights * sets.count / baskets.n_baskets, EMPTY, np.empty(0))


def climbed(V, baskets=BASKETS, iterations=2000):
    state = State(V.copy())
    problem = optimizers.FullBatch(state, Contrastive(1.0), whole(baskets), np.zeros(len(V)), 10 * iterations)
    return optimizers.climb(problem, iterations), state


def plan_of(state, monitor=lambda state: 0.0, **others):
    given = {
        "objective": Contrastive(1.0), "optimizer": Adam.for_state(state, np.zeros(len(state.V))),
        "schedule": Steady(), "monitor": monitor, "source": None, "negative_ratio": 0.0, "batch_size": 1000,
        "max_iter": 100, "seed": 0, "penalty": np.zeros(len(state.V)), "closed": Contrastive(1.0),
    }  # fmt: skip
    return Plan(**given | others)


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
    problem = optimizers.FullBatch(state, Contrastive(1.0), whole(BASKETS), np.zeros(12), 1)
    assert np.abs(problem(problem.vector)[1]).max() < 1e-3


def test_without_stages_walls_stop_the_climb(optimum):
    assert optimum - climbed(start(0).V)[0] > 0.05


@pytest.mark.parametrize("seed", range(3))
def test_anneal_and_polish_reach_the_optimum_from_every_start(optimum, seed):
    state = start(seed)
    plan = plan_of(state, stages=tuple(np.geomspace(1, 1e-3, 12)), restarts=True)
    outcome = Outcome.start(state)
    training.anneal(state, whole(BASKETS), plan, outcome)
    assert state.epsilon == 0.0
    assert outcome.converged
    training.polish(state, whole(BASKETS), N, plan, outcome, [])
    assert mean_log_likelihood(state) > optimum - 0.005
    np.testing.assert_array_equal(outcome.V, state.V)
    assert outcome.history[-1]["objective"] == pytest.approx(mean_log_likelihood(state), abs=1e-4)


def test_other_starts_leave_a_local_optimum(optimum):
    value, state = climbed(start(0).V)
    outcome = Outcome.start(state)
    training.restart(state, whole(BASKETS), plan_of(state), outcome, trusted=True)
    assert mean_log_likelihood(state) > max(value + 0.05, optimum - 0.01)


@pytest.mark.parametrize("n_baskets", [100, 10**6])
def test_validation_has_the_last_word_unless_the_data_are_trusted(n_baskets):
    state = start(0)
    first, scores = state.V.copy(), iter(range(0, -(10**6), -1))  # every iterate is worse than the one before
    outcome = Outcome.start(state)
    outcome.take(state, 1.0)
    training.polish(state, whole(BASKETS), n_baskets, plan_of(state, lambda state: next(scores)), outcome, [])
    assert np.array_equal(outcome.V, first) == (n_baskets == 100)


def with_signs(seed, n=4000):
    """A state at the parameters of a known kernel, half of the signs of its S turned, and baskets of that kernel."""
    rng = np.random.default_rng(seed)
    V, d, A = rng.normal(size=(7, 2)) * 0.7, rng.uniform(0.2, 0.5, size=7), np.triu(rng.normal(size=(7, 7)), 1)
    truth = cd.NonsymmetricDPP.from_factors(V, S=A - A.T, diagonal=d)
    partners = Partners.of_matrix(truth.skew_, 7)
    wrong = np.where(rng.random(len(partners.start)) < 0.5, -1.0, 1.0)
    partners.signs[:] *= wrong[partners.pair]
    baskets = truth.sample(n, random_state=seed)
    return State(V, np.log(d), partners), baskets, truth.score(baskets)


def test_turning_signs_raises_the_likelihood_and_reaches_that_of_the_truth():
    state, baskets, truth = with_signs(0)
    pairs = np.argsort(state.partners.pair, kind="stable").reshape(-1, 2)

    def score(state):
        return float(np.mean(state.kernel.log_probability(baskets.sets)))

    before = score(state)
    assert before < truth - 0.1
    assert training.sweep_signs(state, whole(baskets), pairs) > 0
    assert score(state) > before
    S = state.kernel.skew.matrix().toarray()
    np.testing.assert_array_equal(S, -S.T)
    outcome = Outcome.start(state)
    outcome.take(state, score(state))
    training.turn_signs(state, whole(baskets), plan_of(state, score), outcome)
    outcome.give_back(state)
    assert score(state) == pytest.approx(outcome.best_score, abs=1e-9)
    assert score(state) > truth - 0.005


def test_signs_stay_where_validation_sets_do_not_like_others():
    state, baskets, _ = with_signs(1, 500)
    signs, outcome = state.partners.signs.copy(), Outcome.start(state)
    outcome.take(state, 1.0)
    training.turn_signs(state, whole(baskets), plan_of(state, lambda state: 0.0), outcome)
    np.testing.assert_array_equal(state.partners.signs, signs)
    outcome.give_back(state)
    np.testing.assert_array_equal(outcome.V, state.V)


def test_rotations_of_the_factors_are_not_free():
    assert training.n_free(State(np.ones((5, 5)))) == 15  # those of a symmetric matrix
    assert training.n_free(State(np.ones((5, 2)))) == 9
    assert training.n_free(State(np.ones((5, 2)), np.zeros(5))) == 14


def test_five_seeds_of_a_known_kernel_end_at_its_optimum():
    truth = cd.LowRankDPP.from_factors(np.random.default_rng(1).normal(size=(8, 3)) * 0.8)
    data, held_out = truth.sample(6000, random_state=0), truth.sample(6000, random_state=1)
    best = cd.LowRankDPP.from_factors(climbed(truth.item_factors_, data)[1].V).score(held_out)
    for seed in range(5):
        model = cd.LowRankDPP(3, objective="mle", random_state=seed).fit(data)
        assert model.score(held_out) > best - 0.005
