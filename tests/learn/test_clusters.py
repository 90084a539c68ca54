"""Clusters of baskets: EM against its definition, and a kernel that is learned with them in place."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

import contradpp as cd
from contradpp.data.sets import Sets, pointers
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.mixture import membership
from contradpp.learn import clusters as module
from contradpp.learn.clusters import (
    choose_clusters,
    draw_clusters,
    fit_clusters,
    fit_mixture,
)
from contradpp.learn.objectives import (
    Assignment,
    ConditionalLikelihood,
    Contrastive,
    through_tilts,
    with_normalizer,
)
from contradpp.learn.state import SkewPattern, State
from contradpp.learn.training import assemble

M = 12


def planted(n: int = 600, seed: int = 0) -> Sets:
    """Baskets of two kinds: one of the first six items, one of the others."""
    rng = np.random.default_rng(seed)
    first = rng.random(n) < 0.5
    q = np.where(first[:, None] == (np.arange(M) < 6), 0.4, 0.02)
    inside = rng.random((n, M)) < q
    inside[inside.sum(axis=1) == 0, 0] = True
    rows, codes = np.nonzero(inside)
    return Sets(pointers(np.bincount(rows, minlength=n)), codes.astype(np.int32))


def naive_log_likelihood(clusters, sets: Sets) -> np.ndarray:
    q = 1 / (1 + np.exp(-clusters.log_odds))
    X = membership(sets, M).toarray()
    each = X @ np.log(q).T + (1 - X) @ np.log1p(-q).T
    return logsumexp(each + clusters.log_weights, axis=1)


def test_the_likelihood_is_that_of_the_definition():
    sets = planted()
    found = fit_clusters(membership(sets, M), np.ones(sets.count), 3, 2.0, 0)
    np.testing.assert_allclose(found.log_probability(sets), naive_log_likelihood(found, sets))


def test_a_round_is_the_m_step_of_the_definition():
    sets = planted(50)
    X = membership(sets, M)
    rng = np.random.default_rng(1)
    r = rng.dirichlet(np.ones(3), sets.count)
    p = np.full(M, 0.2)
    found = module._maximize(X.T.tocsr(), r, p, 4.0, 1)
    q = (r.T @ X.toarray() + 4.0 * p) / (r.sum(axis=0) + 4.0)[:, None]
    np.testing.assert_allclose(1 / (1 + np.exp(-found.log_odds)), q, atol=1e-12)
    np.testing.assert_allclose(np.exp(found.log_weights), r.sum(axis=0) / sets.count)


def test_more_rounds_do_not_lower_the_penalized_likelihood():
    sets = planted()
    X = membership(sets, M)
    p = np.clip((X.sum(axis=0) + 0.5) / (sets.count + 1), 0, 0.99)

    def value(rounds: int) -> float:
        found = fit_clusters(X, np.ones(sets.count), 3, 5.0, 0, max_rounds=rounds)
        q = 1 / (1 + np.exp(-found.log_odds))
        prior = 5.0 * (p * np.log(q) + (1 - p) * np.log1p(-q)).sum()
        return float(naive_log_likelihood(found, sets).sum() + prior)

    values = [value(rounds) for rounds in (2, 4, 8, 16)]
    assert (np.diff(values) > -1e-6).all()


def test_planted_kinds_are_found_whatever_the_threads():
    sets = planted()
    one, two = (fit_clusters(membership(sets, M), np.ones(sets.count), 2, 2.0, 0, n_jobs=n) for n in (1, 2))
    assert one.log_odds.tobytes() == two.log_odds.tobytes()
    prefers = one.log_odds[:, :6].mean(axis=1) - one.log_odds[:, 6:].mean(axis=1)
    assert prefers.max() > 2 > -2 > prefers.min()


@pytest.mark.parametrize(("kinds", "least", "most"), [(1, 1, 1), (2, 2, 30)])
def test_validation_chooses_the_number(kinds, least, most):
    if kinds == 2:
        train, held_out = planted(2000), planted(500, seed=1)
    else:
        draws = np.random.default_rng(0).random((2500, M)) < 0.25
        rows, codes = np.nonzero(draws)
        both = Sets(pointers(np.bincount(rows, minlength=2500)), codes.astype(np.int32))
        end = int(both.indptr[2000])
        train = Sets(both.indptr[:2001], both.indices[:end])
        held_out = Sets(both.indptr[2000:] - end, both.indices[end:])
    found, smoothing = choose_clusters(
        (train, np.ones(train.count)), (held_out, np.ones(held_out.count)), M, "auto", "auto", 0
    )
    assert least <= len(found.log_weights) <= most
    assert smoothing in module.SMOOTHING


def test_clusters_are_drawn_by_their_probability():
    joint = np.log(np.tile([0.2, 0.5, 0.3], (30_000, 1))) - 7.0
    shares = np.bincount(draw_clusters(joint, 0), minlength=3) / 30_000
    np.testing.assert_allclose(shares, [0.2, 0.5, 0.3], atol=0.01)


# -- The kernel with clusters in place -------------------------------------------------------------


def random_state_of(seed: int = 0) -> State:
    rng = np.random.default_rng(seed)
    skew = SkewPattern.from_pairs(np.array([0, 2, 3]), np.array([1, 4, 5]), rng.random(3) + 0.1, M, 1)
    return State(rng.normal(size=(M, 3)) * 0.4, rng.normal(size=M) - 1, skew)


def test_a_tilted_state_has_the_tilted_kernel():
    state = random_state_of()
    tilts = np.random.default_rng(1).normal(size=M)
    E = np.diag(np.exp(tilts / 2))
    np.testing.assert_allclose(state.tilted(tilts).kernel.matrix(), E @ state.kernel.matrix() @ E, atol=1e-12)
    np.testing.assert_allclose(state.kernel.tilted(tilts).matrix(), E @ state.kernel.matrix() @ E, atol=1e-12)


@pytest.mark.parametrize("objective", [Contrastive(1.0), ConditionalLikelihood(np.ones(M))])
def test_gradients_through_tilts_by_central_differences(objective):
    state = random_state_of()
    tilts = np.random.default_rng(2).normal(size=M)
    sets = planted(20)
    batch = assemble(sets, np.ones(20), Sets.empty(0), np.empty(0))

    def gradient():
        view = state.tilted(tilts)
        return with_normalizer(view, objective.gradient(view, batch))

    found = through_tilts(gradient(), tilts)
    dense = np.zeros_like(state.V)
    dense[found.rows] = found.values
    if found.right is not None:
        dense += found.scale[:, None] * (state.V @ found.right)

    def difference(array: np.ndarray, place) -> float:
        values = []
        for step in (1e-5, -2e-5):
            array[place] += step
            state.changed()
            values.append(gradient().objective)
        array[place] += 1e-5
        state.changed()
        return (values[0] - values[1]) / 2e-5

    for place in [(0, 0), (3, 1), (7, 2)]:
        np.testing.assert_allclose(dense[place], difference(state.V, place), atol=1e-6)
    np.testing.assert_allclose(found.log_d[4], difference(state.log_d, 4), atol=1e-6)
    np.testing.assert_allclose(found.pairs[1], difference(state.pairs, 1), atol=1e-6)


def test_the_clusters_of_a_mixture_get_the_marginals_of_their_baskets():
    sets = planted(2000)
    X = membership(sets, M)
    p = np.asarray(X.mean(axis=0)).ravel()
    found = fit_clusters(X, np.ones(sets.count), 2, 5.0, 0)
    rng = np.random.default_rng(0)
    kernel = Kernel(0.3 * rng.normal(size=(M, 2)), diagonal=p / (1 - p))
    ones = np.ones(sets.count)
    mixture = fit_mixture(kernel, found, p, sets, ones, 5.0, lambda one: one.log_probability(sets).mean())
    r = mixture.responsibilities(sets)
    wanted = ((X.T @ r).T + 5.0 * p) / (r.sum(axis=0) + 5.0)[:, None]
    given = np.stack([mixture.component(c).marginals() for c in range(2)])
    np.testing.assert_allclose(given, wanted, atol=0.02)
    np.testing.assert_allclose(mixture.expected_size, sets.sizes.mean(), rtol=0.02)


@pytest.mark.parametrize("part", module.PARTS)
def test_tilts_start_from_their_best_part(part, monkeypatch):
    monkeypatch.setattr(module, "MATCHES", 0)
    sets = planted(200)
    X = membership(sets, M)
    p = np.asarray(X.mean(axis=0)).ravel()
    clusters = fit_clusters(X, np.ones(sets.count), 2, 5.0, 0)
    tilts = clusters.log_odds - np.log(p / (1 - p))
    kernel = Kernel(np.zeros((M, 0)), diagonal=p / (1 - p))

    def score(mixture):
        return -np.abs(mixture.tilts - part * tilts).max()

    mixture = fit_mixture(kernel, clusters, p, sets, np.ones(sets.count), 5.0, score)
    np.testing.assert_allclose(mixture.tilts, part * tilts, rtol=1e-6)


def test_a_batch_has_sets_of_one_cluster():
    from dataclasses import replace

    from contradpp.learn.params import FitData, Params, problem_of
    from contradpp.learn.state import first_state
    from contradpp.learn.training import batches, make_plan

    sets = planted(300)
    baskets = cd.Baskets(sets.indptr, sets.indices, cd.Vocabulary(range(M)))
    model = cd.NonsymmetricDPP(2, 2, random_state=0, optimizer=cd.optimizers.Adam(batch_size=32))
    params = Params.of(model)
    problem = problem_of(FitData(baskets), params, 0)
    of = np.arange(problem.data.count) % 3
    clusters = Assignment(np.zeros((3, M)), of, np.zeros(problem.validation.sets.count, int))
    problem = replace(problem, clusters=clusters)
    state = first_state(problem, params)
    plan = make_plan(problem, params, state)
    seen = sum(batch.positives.count for batch in batches(state, problem.data, plan, 0))
    assert seen == problem.data.count
    weights = [batch.weights.sum() for batch in batches(state, problem.data, plan, 0)]
    np.testing.assert_allclose(np.mean(weights), 1.0)
