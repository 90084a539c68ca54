"""Gradients of every objective against central differences and against their plain definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import reference
import reference_gradients
from contradpp.data.sets import EMPTY
from contradpp.learn.negatives import Negatives
from contradpp.learn.objectives import Batch, ConditionalLikelihood, Contrastive, NoiseContrastive, with_normalizer
from contradpp.learn.state import State
from learn.test_forms import as_sets

POSITIVES = [[0, 1, 5], [2], [6, 3, 1, 0], [4, 2]]
NEGATIVES = [[5, 2], [0, 3, 4], [1]]
LABELS = np.array([0.25, 0.25, 0.25, 0.25])
CONTINUOUS = np.array([0.9, -0.35, 0.05, -0.2])
M, K = 9, 4  # items 7 and 8 are in no set


def batch_of(labels=LABELS, negatives=NEGATIVES, weights=None, ratio=0.75) -> Batch:
    n = len(negatives)
    weights = np.full(n, 1 / max(n, 1)) if weights is None else np.asarray(weights)
    return Batch(as_sets(POSITIVES), np.asarray(labels), Negatives(as_sets(negatives) if n else EMPTY, weights, ratio))


def gradient_of(objective, state: State, batch: Batch):
    """The gradient with the normalizer's part."""
    return with_normalizer(state, objective.gradient(state, batch))


def dense(V: np.ndarray, gradient) -> np.ndarray:
    out = np.zeros_like(V) if gradient.right is None else V @ gradient.right
    np.add.at(out, gradient.rows, gradient.values)
    return out


def central_differences(f, V: np.ndarray, h: float = 1e-5) -> np.ndarray:
    out = np.empty_like(V)
    for index in np.ndindex(*V.shape):
        step = np.zeros_like(V)
        step[index] = h
        out[index] = (8 * (f(V + step) - f(V - step)) - (f(V + 2 * step) - f(V - 2 * step))) / (12 * h)
    return out


def assert_close(actual, expected, tolerance=1e-6):
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()


@pytest.fixture
def V() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(M, K)) * 0.9


@pytest.fixture
def removal() -> np.ndarray:
    return np.random.default_rng(4).uniform(0.1, 0.9, size=M)


@pytest.fixture
def odds() -> np.ndarray:
    return np.random.default_rng(5).normal(size=M)


@pytest.mark.parametrize("labels", [LABELS, CONTINUOUS], ids=["plain", "continuous"])
@pytest.mark.parametrize("contrast", [1.0, 0.3, None, 0.0])
@pytest.mark.parametrize("weights", [[1 / 3] * 3, [0.6, 0.1, 0.3], []], ids=["alike", "weighed", "none"])
def test_contrastive(V, contrast, labels, weights):
    """Contrast 1, a share, counted (|A⁻|/|A⁺| = 3/4 here), and none or no negatives: maximum likelihood (Eq. 2)."""
    n, number = len(weights), 0.75 if contrast is None else contrast
    gradient = gradient_of(Contrastive(contrast), State(V), batch_of(labels, NEGATIVES[:n], weights))
    sets, y = POSITIVES + NEGATIVES[:n], np.concatenate([labels, -number * np.array(weights)])

    def phi(V):
        return reference_gradients.weighted_objective(V, sets, y)

    assert gradient.objective == pytest.approx(phi(V), rel=1e-10)
    assert_close(dense(V, gradient), central_differences(phi, V))
    by_sets = sum(w * reference_gradients.log_det_gradient(V, A) for w, A in zip(y, sets, strict=True))
    assert_close(dense(V, gradient), by_sets - y.sum() * reference_gradients.log_normalizer_gradient(V), 1e-10)


@pytest.mark.parametrize("labels", [LABELS, CONTINUOUS], ids=["plain", "continuous"])
def test_noise_contrastive(V, odds, labels):
    log_empty, ratio = -3.0, 0.75
    batch = batch_of(labels)
    gradient = gradient_of(NoiseContrastive(odds, log_empty), State(V), batch)
    everything = POSITIVES + NEGATIVES
    positive = np.arange(len(everything)) < len(POSITIVES)
    # |A⁺| times the paper's sum: a label per positive, 1/|A⁺| for a negative
    scale = np.concatenate([labels, np.full(len(NEGATIVES), 1 / len(POSITIVES))])
    log_noise = np.array([log_empty + odds[A].sum() for A in everything])

    def phi(V):
        log_p = np.array([reference.log_probability(V, A) for A in everything])
        ours = 1 / (1 + ratio * np.exp(log_noise - log_p))  # P(A ∈ A⁺ | A)
        return float(scale @ np.log(np.where(positive, ours, 1 - ours)))

    assert gradient.objective == pytest.approx(phi(V), rel=1e-10)
    assert_close(dense(V, gradient), central_differences(phi, V))
    log_p = np.array([reference.log_probability(V, A) for A in everything])
    y = scale * reference_gradients.nce_coefficients(log_p, log_noise, np.log(ratio), positive.astype(float))
    by_sets = sum(c * reference_gradients.log_det_gradient(V, A) for c, A in zip(y, everything, strict=True))
    assert_close(dense(V, gradient), by_sets - y.sum() * reference_gradients.log_normalizer_gradient(V), 1e-10)


def test_noise_beyond_the_rank_has_its_exact_limit(V, odds):
    """A negative of K + 1 items: P(A) = 0, so that log P(A ∈ A⁻ | A) = 0 and the coefficient is 0."""
    oversize = [0, 1, 2, 3, 4]
    weights = np.full(4, 0.25)
    objective = NoiseContrastive(odds, -3.0)
    with_it = gradient_of(objective, State(V), batch_of(negatives=[*NEGATIVES, oversize], weights=weights, ratio=1.0))
    without = gradient_of(objective, State(V), batch_of(weights=weights[:3], ratio=1.0))
    assert with_it.objective == pytest.approx(without.objective, rel=1e-12)
    np.testing.assert_allclose(dense(V, with_it), dense(V, without), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("spread", [300.0, -300.0])
def test_noise_of_extreme_odds_stays_finite(V, spread):
    """Coefficients are computed in log space: p_n(A)/P(A) of e^±600 neither overflows nor makes NaN."""
    gradient = gradient_of(NoiseContrastive(np.full(M, spread), -5.0), State(V), batch_of())
    assert np.isfinite(gradient.objective)
    assert np.isfinite(dense(V, gradient)).all()


@pytest.mark.parametrize("labels", [LABELS, CONTINUOUS], ids=["plain", "continuous"])
@pytest.mark.parametrize(("contrast", "number"), [(1.0, 1.0), (0.5, 0.5), (None, 0.75), (1.0, 0.0)])
def test_exact(V, removal, labels, contrast, number):
    """With negatives of the user, and without any (number 0)."""
    negatives = NEGATIVES if number else []
    gradient = gradient_of(ConditionalLikelihood(removal, contrast), State(V), batch_of(labels, negatives))
    sets, y = POSITIVES + negatives, np.concatenate([labels, np.full(len(negatives), -number / 3)])
    shares = [w * removal[A] / removal[A].sum() for w, A in zip(y, sets, strict=True)]

    def phi(V):
        logs = [reference_gradients.conditional_log_likelihood(V, A) for A in sets]
        return float(sum(g @ log for g, log in zip(shares, logs, strict=True)))

    assert gradient.objective == pytest.approx(phi(V), rel=1e-9)
    assert_close(dense(V, gradient), central_differences(phi, V))
    by_sets = sum(reference_gradients.conditional_gradient(V, A, g) for A, g in zip(sets, shares, strict=True))
    assert_close(dense(V, gradient), by_sets, 1e-9)


def test_expected_dynamic_gradient_is_that_of_the_conditional_likelihood(V, removal):
    """The average over every removal i and every replacement j, each with its probability, by enumeration."""
    expected = np.zeros_like(V)
    for A in POSITIVES:
        for i, share in zip(A, removal[A] / removal[A].sum(), strict=True):
            rest = [a for a in A if a != i]
            volumes = np.array([0.0 if j in rest else np.exp(reference.log_det(V, [*rest, j])) for j in range(M)])
            for j in np.flatnonzero(volumes):
                own = Batch(as_sets([A]), np.ones(1), Negatives(as_sets([[*rest, int(j)]]), np.ones(1)))
                gradient = gradient_of(Contrastive(1.0), State(V), own)
                expected += 0.25 * share * volumes[j] / volumes.sum() * dense(V, gradient)
    exact = gradient_of(ConditionalLikelihood(removal), State(V), batch_of(negatives=[]))
    assert_close(expected, dense(V, exact), 1e-9)
    uniform = gradient_of(ConditionalLikelihood(np.ones(M)), State(V), batch_of(negatives=[]))
    assert np.abs(dense(V, uniform) - expected).max() > 1e-2  # the removal's law matters


def test_impossible_sets_leave_the_weights_of_the_others_whole(V):
    """A negative beyond the rank has no gradient; its weight goes to the others, so that the normalizer cancels."""
    batch = batch_of(negatives=[*NEGATIVES, [0, 1, 2, 3, 4]], weights=np.full(4, 0.25))
    gradient = gradient_of(Contrastive(1.0), State(V), batch)
    same = gradient_of(Contrastive(1.0), State(V), batch_of())
    assert gradient.right is None
    np.testing.assert_allclose(dense(V, gradient), dense(V, same), atol=1e-12)


def test_empty_sets_have_only_the_normalizer(V):
    batch = Batch(as_sets([[], [0, 1]]), np.array([0.5, 0.5]), Negatives(EMPTY, np.empty(0)))
    gradient = gradient_of(Contrastive(1.0), State(V), batch)
    logs = [reference.log_probability(V, A) for A in ([], [0, 1])]
    assert gradient.objective == pytest.approx(np.mean(logs))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_threads_and_many_sets(n_jobs):
    """More sets than a block holds: the sum is that of the definitions, and the same bytes for any n_jobs."""
    rng = np.random.default_rng(0)
    V = rng.normal(size=(30, 6))
    lists = [rng.choice(30, size=rng.integers(1, 6), replace=False).tolist() for _ in range(300)]
    y = rng.normal(size=300) / 300
    batch = Batch(as_sets(lists), y, Negatives(EMPTY, np.empty(0)))
    gradient = dense(V, gradient_of(Contrastive(1.0), State(V, n_jobs=n_jobs), batch))
    by_sets = sum(w * reference_gradients.log_det_gradient(V, A) for w, A in zip(y, lists, strict=True))
    assert_close(gradient, by_sets - y.sum() * reference_gradients.log_normalizer_gradient(V), 1e-9)
    np.testing.assert_array_equal(gradient, dense(V, gradient_of(Contrastive(1.0), State(V, n_jobs=1), batch)))
    exact = ConditionalLikelihood(np.ones(30))
    ours, one = (dense(V, gradient_of(exact, State(V, n_jobs=n), batch)) for n in (n_jobs, 1))
    np.testing.assert_array_equal(ours, one)
    shares = [w * np.full(len(A), 1 / len(A)) for w, A in zip(y, lists, strict=True)]
    by_sets = sum(reference_gradients.conditional_gradient(V, A, g) for A, g in zip(lists, shares, strict=True))
    assert_close(ours, by_sets, 1e-9)


def test_penalty_gradient():
    rng = np.random.default_rng(1)
    V, counts = rng.normal(size=(5, 3)), rng.integers(1, 9, size=5).astype(float)
    differences = central_differences(lambda V: reference_gradients.penalty(V, 0.7, counts), V)
    assert_close(reference_gradients.penalty_gradient(V, 0.7, counts), differences)


def test_orthogonal_rotation_turns_the_gradient(V, removal):
    """V → VQ leaves L as it is, so that gradients turn with Q: true of every objective."""
    Q = np.linalg.qr(np.random.default_rng(8).normal(size=(K, K)))[0]
    odds = np.linspace(-1, 1, M)
    for objective, labels in itertools.product(
        [Contrastive(1.0), Contrastive(0.4), NoiseContrastive(odds, -2.0), ConditionalLikelihood(removal)],
        [LABELS, CONTINUOUS],
    ):
        straight = dense(V, gradient_of(objective, State(V), batch_of(labels)))
        turned = dense(V @ Q, gradient_of(objective, State(V @ Q), batch_of(labels)))
        np.testing.assert_allclose(turned, straight @ Q, atol=1e-10)
