"""Optimizers against literal transcriptions of their rules; when training slows down, and when it ends."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
import reference_gradients
from contradpp.data.sets import EMPTY
from contradpp.data.vocabulary import Vocabulary
from contradpp.learn.negatives import Negatives
from contradpp.learn.objectives import Batch, Contrastive, Gradient, Validation, with_normalizer
from contradpp.learn.optimizers import NesterovAscent, ProjectedAscent, RowwiseAdam
from contradpp.learn.params import Problem, TrainingData
from contradpp.learn.state import State
from contradpp.learn.training import Plateau, RelativeChange, Schedule, Status, make_plan
from learn.test_forms import as_sets

M, K = 7, 3
LISTS = [[0, 1], [2, 3, 4], [5]]
Y = np.array([0.5, 0.25, 0.25])


BATCH = Batch(as_sets(LISTS), Y, Negatives(EMPTY, np.empty(0)))


@pytest.fixture
def V() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(M, K))


def likelihood_gradient(V) -> np.ndarray:
    """∇φ of the mle objective by its definition."""
    by_sets = sum(y * reference_gradients.log_det_gradient(V, A) for y, A in zip(Y, LISTS, strict=True))
    return by_sets - Y.sum() * reference_gradients.log_normalizer_gradient(V)


def likelihood(state: State) -> Gradient:
    return with_normalizer(state, Contrastive(1.0).gradient(state, BATCH))


def take_steps(optimizer, state: State, n: int, rate: float = 1.0) -> None:
    for _ in range(n):
        optimizer.step(state, likelihood(optimizer.look_ahead(state)), rate)
    optimizer.settle(state)


def nesterov_transcript(V, n, gradient) -> np.ndarray:
    """β = 0.95, ε = 5e-3 for 50 steps, then β = 0 and ε = 1e-5/(1 + t/50); δ ← βδ + (1−β)ε∇φ(V+βδ)."""
    delta = np.zeros_like(V)
    for t in range(n):
        beta, epsilon = (0.95, 5e-3) if t < 50 else (0.0, 1e-5 / (1 + t / 50))
        delta = beta * delta + (1 - beta) * epsilon * gradient(V + beta * delta)
        V = V + delta
    return V


@pytest.mark.parametrize("n", [1, 2, 5, 50, 51, 60])
def test_nesterov_is_the_rule_as_written(V, n):
    penalty = np.linspace(0.1, 0.7, M)
    state = State(V.copy())
    take_steps(NesterovAscent(penalty, batch_scale=3.0), state, n)
    expected = nesterov_transcript(V, n, lambda W: 3.0 * likelihood_gradient(W) - 2 * penalty[:, None] * W)
    np.testing.assert_allclose(state.V, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(state.dual, state.V.T @ state.V, rtol=1e-12, atol=1e-12)


def test_alpha_is_set_against_the_sum_of_a_batch_as_in_the_paper(V):
    """One step of settings="paper" climbs Σ log P − α Σ ‖v_i‖²/μ_i: n times as far as the mean with α/n would."""
    counts, alpha, n = np.arange(1.0, M + 1), 0.7, 1000
    lists = [LISTS[i % 3] for i in range(2 * n)]
    data = TrainingData(as_sets(lists), np.ones(2 * n), EMPTY, np.empty(0))
    params = cd.LowRankDPP(K, objective="mle", alpha=alpha, settings="paper")._training_params()
    state = State(V.copy())
    validation = Validation(data.positives, data.weights)
    plan = make_plan(Problem(Vocabulary(range(M)), data, validation, counts, 2.0 * n, seed=0), params, state)
    take_steps(plan.optimizer, state, 1)
    mean, pull = likelihood_gradient(V), -2 * V / counts[:, None]
    np.testing.assert_allclose(state.V - V, 0.05 * 5e-3 * (n * mean + alpha * pull), rtol=1e-9)
    np.testing.assert_allclose(state.V - V, n * 0.05 * 5e-3 * (mean + alpha / n * pull), rtol=1e-9)


def test_robbins_monro_steps_meet_the_theorem(V):
    """Σ η_t = ∞ and Σ η_t² < ∞: with a constant gradient, the moves are η_t = η/(1 + t/τ)."""
    state = State(np.zeros((M, K)) + 1e-9)
    optimizer = ProjectedAscent(np.zeros(M), radius=1e9, step_size=0.5, decay=100.0)
    rows = np.arange(M, dtype=np.int32)
    moves = []
    for _ in range(3000):
        before = state.V[0, 0]
        optimizer.step(state, Gradient(rows, np.ones((M, K)), None, 0.0), 1.0)
        moves.append(state.V[0, 0] - before)
    eta = np.array(moves)
    np.testing.assert_allclose(eta, 0.5 / (1 + np.arange(3000) / 100), rtol=1e-6)
    harmonic = eta[1000:2000].sum() / eta[2000:3000].sum()
    assert 1.3 < harmonic < 2  # t η_t tends to a constant: the sum grows like log t, that of squares converges
    assert np.square(eta[2000:]).sum() < np.square(eta[1000:2000]).sum()


def test_robbins_monro_projects_onto_the_ball(V):
    penalty = np.linspace(0.1, 0.7, M)
    state, expected = State(V.copy()), V.copy()
    optimizer = ProjectedAscent(penalty, radius=0.8, step_size=0.8, decay=10.0)
    for t in range(20):
        take_steps(optimizer, state, 1)
        expected = expected + 0.8 / (1 + t / 10) * (likelihood_gradient(expected) - 2 * penalty[:, None] * expected)
        lengths = np.linalg.norm(expected, axis=1)
        expected *= np.minimum(1.0, 0.8 / lengths)[:, None]
        assert np.linalg.norm(state.V, axis=1).max() <= 0.8 * (1 + 1e-12)
        np.testing.assert_allclose(state.V, expected, rtol=1e-9)
    assert (np.linalg.norm(state.V, axis=1) > 0.8 - 1e-9).any()  # the projection was needed


# -- Adam --------------------------------------------------------------------------------------------


def sparse(rows, rng) -> Gradient:
    return Gradient(np.array(rows, dtype=np.int32), rng.normal(size=(len(rows), K)), None, 0.0)


def test_adam_without_penalty_leaves_other_rows_alone(V):
    state = State(V.copy())
    optimizer = RowwiseAdam(np.zeros(M), K)
    optimizer.step(state, sparse([1, 4], np.random.default_rng(0)), 1.0)
    optimizer.settle(state)
    others = [0, 2, 3, 5, 6]
    np.testing.assert_array_equal(state.V[others], V[others])
    assert (state.V[[1, 4]] != V[[1, 4]]).all()
    np.testing.assert_allclose(state.squared_norms, np.square(state.V).sum(axis=1), rtol=1e-12)


def test_adam_settles_what_was_put_off(V):
    """A row that is skipped for many steps owes the penalty: settled at the end, every step, or by its next step."""
    penalty = np.full(M, 0.4)

    def run(*, settle_every_step: bool) -> np.ndarray:
        state, rng = State(V.copy()), np.random.default_rng(1)
        optimizer = RowwiseAdam(penalty, K)
        optimizer.step(state, sparse(range(M), rng), 1.0)
        for step in range(30):
            optimizer.step(state, sparse([0, 1] if step % 3 else [2, 3], rng), 0.7 if step > 10 else 1.0)
            if settle_every_step:
                optimizer.settle(state)
        before = state.V.copy()
        optimizer.settle(state)
        once = state.V.copy()
        optimizer.settle(state)  # twice is once
        np.testing.assert_array_equal(state.V, once)
        if not settle_every_step:
            assert np.linalg.norm(state.V[5]) < np.linalg.norm(before[5])  # something had been put off
        np.testing.assert_allclose(state.squared_norms, np.square(state.V).sum(axis=1), rtol=1e-10)
        return state.V

    lazy, eager = run(settle_every_step=False), run(settle_every_step=True)
    # Rows of a batch see the penalty in their second moment at the norm they have then: equal where untouched.
    np.testing.assert_allclose(lazy[4:], eager[4:], rtol=1e-10)
    np.testing.assert_allclose(lazy, eager, rtol=2e-2)
    assert np.linalg.norm(lazy[5]) < np.linalg.norm(V[5])


def test_adam_moves_log_norm_and_direction_by_their_own_steps(V):
    """The first step of Adam has the size of the step in each part, whatever the gradient's length."""
    state = State(V.copy())
    optimizer = RowwiseAdam(np.zeros(M), K, norm_step=0.01, direction_step=0.2)
    optimizer.step(state, sparse(range(M), np.random.default_rng(6)), 1.0)
    ratio = np.linalg.norm(state.V, axis=1) / np.linalg.norm(V, axis=1)
    np.testing.assert_allclose(np.abs(np.log(ratio)), 0.01, rtol=1e-6)
    cosine = (state.V * V).sum(axis=1) / np.linalg.norm(state.V, axis=1) / np.linalg.norm(V, axis=1)
    np.testing.assert_allclose(np.tan(np.arccos(cosine)), 0.2, rtol=1e-6)


def test_adam_ascends(V):
    """Each optimizer raises the likelihood from the same start."""
    for optimizer in (
        RowwiseAdam(np.zeros(M), K),
        ProjectedAscent(np.zeros(M)),
        NesterovAscent(np.zeros(M), batch_scale=3.0),
    ):
        state = State(V.copy())
        start = likelihood(state).objective
        take_steps(optimizer, state, 40)
        assert Contrastive(1.0).gradient(State(state.V), BATCH).objective > start + 0.01


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_the_state_keeps_is_in_step_with_the_rows(dense, n_jobs):
    """Norms and VᵀV after steps over more rows than a block holds, few and many, against their definitions."""
    rng = np.random.default_rng(2)
    state = State(rng.normal(size=(3000, K)), n_jobs=n_jobs)
    optimizer = RowwiseAdam(np.full(3000, 0.1), K, dense=dense)
    for size in (700, 1200, 2900, 1):
        rows = np.sort(rng.choice(3000, size=size, replace=False)).astype(np.int32)
        right = rng.normal(size=(K, K)) + 0 * state.dual
        before = state.V.copy()
        optimizer.step(state, Gradient(rows, rng.normal(size=(size, K)), right, 0.0), 1.0)
        assert (before != state.V).any(axis=1).sum() == (3000 if dense else size)
        np.testing.assert_allclose(state.squared_norms, np.square(state.V).sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(state.dual, state.V.T @ state.V, rtol=1e-11, atol=1e-9)


def test_a_shared_part_that_was_put_off_counts_for_every_step_since():
    """Row 2 is touched at steps 1 and 4: its gradient then is what its own is, and three times v `right`."""
    V, right = np.random.default_rng(5).normal(size=(M, K)), np.diag([0.3, -0.2, 0.1])
    lazy, state = RowwiseAdam(np.zeros(M), K, dense=False), State(V.copy())
    plain, other = RowwiseAdam(np.zeros(M), K, dense=False), State(V.copy())
    row, scale = np.array([2], dtype=np.int32), np.linspace(0.5, 1.1, M)
    for touched, times in ((row, 1.0), (row + 1, 1.0), (row + 1, 1.0), (row, 3.0)):
        own = np.full((1, K), 0.2)
        lazy.step(state, Gradient(touched, own, right, 0.0, scale=scale), 1.0)
        shared = times * scale[touched[0]] * other.V[touched] @ right
        if touched[0] == 3:
            shared *= 2.0 if plain.t == 1 else 1.0  # its first step was the second of all
        plain.step(other, Gradient(touched, own + shared, None, 0.0), 1.0)
    np.testing.assert_allclose(state.V, other.V, rtol=1e-12)


def test_a_row_of_zeros_stays_finite():
    V = np.zeros((M, K))
    V[0] = 1.0
    state, rng = State(V), np.random.default_rng(0)
    optimizer = RowwiseAdam(np.full(M, 0.3), K)
    for _ in range(5):
        optimizer.step(state, sparse(range(M), rng), 1.0)
    optimizer.settle(state)
    assert np.isfinite(state.V).all()


def test_adam_where_penalty_and_data_cancel():
    """A pull of exactly zero on a row's norm is a reason to stay, not to leap: on balanced data it does happen."""
    V = np.full((M, K), 0.5)
    state = State(V.copy())
    penalty = np.full(M, 0.2)
    rows = np.arange(M, dtype=np.int32)
    RowwiseAdam(penalty, K).step(state, Gradient(rows, 2 * 0.2 * V, None, 0.0), 1.0)  # v·g = 2 penalty ‖v‖²
    assert np.isfinite(state.V).all()
    np.testing.assert_allclose(state.V, V, rtol=0.05)


def test_rounding_beside_a_row_is_no_direction(V):
    """An item only ever bought alone has a gradient along its row; what rounding leaves beside it is not a step."""
    state = State(V.copy())
    optimizer = RowwiseAdam(np.zeros(len(V)), V.shape[1], dense=False)
    for step in range(20):
        noise = 1e-16 * np.random.default_rng(step).standard_normal((1, V.shape[1]))
        along = state.V[[2]] / (state.V[2] @ state.V[2])
        optimizer.step(state, Gradient(np.array([2], dtype=np.int32), along + noise, None, 0.0), 1.0)
    cosine = state.V[2] @ V[2] / np.linalg.norm(state.V[2]) / np.linalg.norm(V[2])
    assert cosine == pytest.approx(1.0, abs=1e-14)
    assert np.linalg.norm(state.V[2]) > np.linalg.norm(V[2])


# -- Slowing down and ending ------------------------------------------------------------------------

ON, SLOW, END = Status.CONTINUE, Status.SLOW_DOWN, Status.CONVERGED


@pytest.mark.parametrize(
    ("rule", "scores", "verdicts", "rate"),
    [
        (RelativeChange(1e-5), (-10.0, -9.0, -8.9999, -8.9999 + 8e-5), [ON, ON, ON, END], 1.0),  # 1.1e-5, then 0.9e-5
        (RelativeChange(1e-2), (-10.0, -11.0, -11.05), [ON, ON, END], 1.0),  # falls are changes, too
        (RelativeChange(0.0), (-3.0, -3.0), [ON, END], 1.0),
        (Plateau(0.0, reductions=2, factor=0.5), (-5.0, -4.0, -4.5, -4.2), [ON, ON, ON, SLOW], 0.5),
        (
            Plateau(0.0, reductions=2, factor=0.5),
            (-5.0, -4.0, -4.5, -4.2, -3.0, -3.5, -3.5, -3.5, -3.0),
            [ON, ON, ON, SLOW, ON, ON, SLOW, ON, END],
            0.25,
        ),
        (Plateau(0.1, reductions=0), (-10.0, -9.5, -9.2), [ON, ON, END], 1.0),  # no rise beyond the tolerance
        (Plateau(0.1, reductions=0), (-10.0, -9.5, -8.9, -8.5, -8.2), [ON, ON, ON, ON, END], 1.0),
        *((Schedule(), (score,) * 50, [ON] * 50, 1.0) for score in (-1e9, 0.0, 5.0)),
    ],
)
def test_schedules_slow_down_and_end_by_the_score(rule, scores, verdicts, rate):
    assert [rule.update(score) for score in scores] == verdicts
    assert rule.rate == rate


def test_the_rounds_left_are_those_until_the_score_has_stopped_rising():
    plateau = Plateau(tol=0.0, patience=2, reductions=2)
    told = []
    for score in (1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0):
        verdict = plateau.update(score)
        told.append(plateau.rounds_left())
    assert verdict is Status.CONVERGED
    assert told == [8, 8, 7, 5, 5, 4, 2, 1, 0]
    assert Schedule().rounds_left() == RelativeChange(1e-3).rounds_left() == float("inf")
