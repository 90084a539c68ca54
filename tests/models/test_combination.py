"""The weights of several experts: their probabilities, its derivatives, and what is left out of sums."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.sets import Sets, without_each
from contradpp.dpp.scoring import scores_given, write_scores_without_each
from contradpp.errors import NumericalError
from contradpp.experts.compiled import FARTHEST
from contradpp.experts.table import EXPERTS
from contradpp.models import combination as module
from contradpp.models.combination import (
    NO_PRODUCTS,
    Combination,
    Examples,
    Products,
    Weights,
    choose_baskets,
    choose_parts,
    fit_temperature,
    log_likelihood,
    make_examples,
    maximize_likelihood,
)


def random_examples(seed: int = 0, n: int = 30, width: int = 7, n_features: int = 3) -> Examples:
    """Random examples in double precision, some with fewer candidates than others."""
    rng = np.random.default_rng(seed)
    counts = rng.choice([0.0, np.log(3.5), -np.inf], size=(n, width), p=[0.6, 0.2, 0.2])
    counts[:, 0] = 0.0
    given = np.stack([np.ones(n), np.log(rng.integers(1, 9, size=n)), rng.random(n)], axis=1)
    return Examples(rng.normal(size=(n, width, n_features)), counts, given)


@pytest.fixture(scope="module")
def shop() -> tuple[cd.Baskets, Combination]:
    """Experts that have learned from a small shop."""
    baskets = cd.Baskets.from_lists(_lists(), items=list("abcdefghij"))
    fitted = cd.NonsymmetricDPP(3, 4, max_iter=5, random_state=0, n_jobs=1).fit(baskets)
    experts = {name: kind.make().fit(baskets) for name, kind in EXPERTS.items()}
    combination = Combination.of(fitted.kernel_, experts, baskets.items, baskets.item_counts)
    rng = np.random.default_rng(1)
    n_experts = len(combination.features)
    products = Products(combination.last_features, rng.normal(size=n_experts), 1 + rng.random(n_experts))
    n = combination.n_features + products.n_products
    combination.weights = Weights(rng.normal(size=(3, n)), np.eye(3 * n), products)
    return baskets, combination


def _lists() -> list[list[str]]:
    rng = np.random.default_rng(0)
    return [list(rng.choice(list("abcdefghij"), rng.integers(2, 6), replace=False)) for _ in range(80)]


PAIRED = Products(np.array([0, 2]), np.array([0.3, -0.2]), np.array([0.5, 2.0]))


def with_products(features: np.ndarray) -> np.ndarray:
    """The definition: z² of feature 0, z₀ z₂, and z² of feature 2, behind the features."""
    a, b = (features[..., 0] - 0.3) / 0.5, (features[..., 2] + 0.2) / 2
    return np.concatenate([features, np.stack([a * a, a * b, b * b], axis=-1)], axis=-1)


@pytest.mark.parametrize("products", [NO_PRODUCTS, PAIRED])
def test_derivatives_are_central_differences(products):
    examples, F = random_examples()._replace(products=products), 3 + products.n_products
    theta = np.random.default_rng(5).normal(size=(3, F))
    value, gradient, curvature = log_likelihood(examples, theta)
    h = 1e-5
    for k in range(3 * F):
        step = np.zeros(3 * F)
        step[k] = h
        above, below = (log_likelihood(examples, theta + sign * step.reshape(3, F)) for sign in (1, -1))
        assert gradient.ravel()[k] == pytest.approx((above[0] - below[0]) / (2 * h), abs=1e-5)
        np.testing.assert_allclose(-curvature[k], (above[1] - below[1]).ravel() / (2 * h), atol=1e-5)
    features = with_products(examples.features) if products.n_products else examples.features
    odds = np.exp(np.einsum("ncf,nf->nc", features, examples.context @ theta) + examples.log_counts)
    assert value == pytest.approx(np.log(odds[:, 0] / odds.sum(axis=1)).sum(), rel=1e-12)


def test_many_blocks_and_threads_give_the_same_derivatives(monkeypatch):
    examples, theta = random_examples()._replace(products=PAIRED), np.random.default_rng(5).normal(size=(3, 6))
    whole = log_likelihood(examples, theta)
    monkeypatch.setattr(module, "SCORES_PER_BLOCK", 4 * 7 * 6)
    assert len(examples.blocks) == 8
    one, two = (log_likelihood(examples, theta, n_jobs) for n_jobs in (1, 2))
    for ours, theirs, expected in zip(one, two, whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


def test_products_are_measured_over_candidates_and_cut():
    examples = random_examples()
    real = np.isfinite(examples.log_counts)
    found = examples.measure_products(np.array([1, 2])).products
    np.testing.assert_allclose(found.center, examples.features[real][:, 1:].mean(axis=0))
    np.testing.assert_allclose(found.spread, examples.features[real][:, 1:].std(axis=0))
    steady = examples._replace(features=np.ones_like(examples.features)).measure_products(np.array([0])).products
    assert steady.spread.tolist() == [1.0]
    np.testing.assert_array_equal(PAIRED.standardize(np.array([1e9, -1e9])), [FARTHEST, -FARTHEST])


def test_what_is_infinitely_sure_stays():
    examples = random_examples(n=200)._replace(products=PAIRED)
    before = Weights(np.full((3, 6), 0.1), np.diag(np.where(np.arange(18) % 6 < 4, 1.0, np.inf)), PAIRED)
    found = maximize_likelihood(examples, before)
    np.testing.assert_array_equal(found.theta[:, 4:], 0.1)
    assert np.abs(found.theta[:, :4] - 0.1).min() > 1e-3
    assert np.isinf(np.diag(found.precision)).sum() == 6
    assert maximize_likelihood(examples, found).theta.shape == (3, 6)


def test_the_weights_are_the_maximum_and_what_was_known_counts():
    examples = random_examples(n=200)
    flat = Weights(np.zeros((3, 3)), 1e-6 * np.eye(9))
    found = maximize_likelihood(examples, flat)
    assert np.abs(log_likelihood(examples, found.theta)[1]).max() < 1e-2
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = found.theta + 0.05 * rng.normal(size=(3, 3))
        assert log_likelihood(examples, other)[0] < log_likelihood(examples, found.theta)[0]
    known = Weights(np.ones((3, 3)), 1e9 * np.eye(9))
    np.testing.assert_allclose(maximize_likelihood(examples, known).theta, 1, atol=1e-6)
    half = [Examples(*(part[rows] for part in examples[:3])) for rows in (slice(100), slice(100, 200))]
    in_turn = maximize_likelihood(half[1], maximize_likelihood(half[0], flat))
    assert np.abs(in_turn.theta - found.theta).max() < np.abs(found.theta).max()


def test_numbers_that_are_too_large_are_refused():
    examples = random_examples()
    flat = Weights(np.zeros((3, 3)), np.eye(9))
    with pytest.raises(NumericalError, match="not finite"):
        maximize_likelihood(examples._replace(features=examples.features * np.nan), flat)
    with pytest.raises(NumericalError, match="not finite"):  # their squares are
        maximize_likelihood(examples._replace(features=examples.features * 1e200), flat)


def test_a_step_too_far_is_not_taken():
    features = np.array([[[1.0], [0.0]]], dtype=np.float32)
    examples = Examples(features, np.array([[0.0, 95.0]], dtype=np.float32), np.ones((1, 1)))
    flat = Weights(np.zeros((1, 1)), np.array([[1e-80]]))  # Newton's step from there is no number of 32 bits
    assert np.isnan(log_likelihood(examples, np.array([[1e41]]))[0])
    found = maximize_likelihood(examples, flat).theta
    assert log_likelihood(examples, found)[0] >= log_likelihood(examples, flat.theta)[0]


def test_weights_depend_on_size_and_on_how_often_the_items_sold(shop):
    baskets, combination = shop
    sets = Sets(np.array([0, 2, 5, 5]), np.array([0, 3, 1, 2, 7], dtype=np.int32))
    sparsity = module.SUPPORT / (module.SUPPORT + baskets.item_counts)
    whole = [[1, np.log(2), sparsity[[0, 3]].mean()], [1, np.log(3), sparsity[[1, 2, 7]].mean()], [1, 0, 0]]
    np.testing.assert_allclose(combination.context(sets), whole)
    rest = without_each(sets)
    np.testing.assert_allclose(combination.context(sets, leave_one_out=True), combination.context(rest), rtol=1e-12)
    np.testing.assert_allclose(combination.theta(np.array([[1.0, 2.0, 3.0]]))[0], [1, 2, 3] @ combination.weights.theta)


def test_logits_are_features_times_weights(shop):
    baskets, combination = shop
    sets = Sets(np.array([0, 2, 5]), np.array([0, 3, 1, 2, 7], dtype=np.int32))
    features = np.empty((combination.n_features, 5, 10))
    combination.write_features(sets, features, leave_one_out=True)
    logits = np.empty((5, 10))
    combination.write_logits(sets, logits, leave_one_out=True)
    theta = combination.theta(combination.context(sets, leave_one_out=True))
    everything = combination.weights.products.append_to(features.transpose(1, 2, 0))
    np.testing.assert_allclose(logits, np.einsum("ef,ejf->ej", theta, everything), rtol=1e-10)
    one_by_one = np.empty((5, 10))
    rest = without_each(sets)
    combination.write_logits(rest, one_by_one)
    outside = np.ones((5, 10), dtype=bool)
    outside[np.repeat(np.arange(5), rest.sizes), rest.indices] = False
    np.testing.assert_allclose(one_by_one[outside], logits[outside], rtol=1e-8)
    assert baskets.n_items == 10


def test_large_blocks_are_done_in_pieces(shop, monkeypatch):
    _, combination = shop
    sets = Sets(np.array([0, 2, 5]), np.array([0, 3, 1, 2, 7], dtype=np.int32))
    whole, pieces = np.empty((2, 5, 10))
    combination.write_logits(sets, whole, leave_one_out=True)
    monkeypatch.setattr(module, "MAX_SCORES", 20)
    combination.write_logits(sets, pieces, leave_one_out=True)
    rest = without_each(sets)
    outside = np.ones((5, 10), dtype=bool)
    outside[np.repeat(np.arange(5), rest.sizes), rest.indices] = False
    np.testing.assert_allclose(pieces[outside], whole[outside], rtol=1e-8)
    combination.write_logits(rest, whole)
    np.testing.assert_allclose(whole, pieces, rtol=1e-12)


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("n_skew", [0, 3])
def test_the_kernel_without_each_item_is_its_definition(diagonal, n_skew):
    rng = np.random.default_rng(3)
    V, S = rng.normal(size=(9, 5)), np.triu(rng.normal(size=(9, 9)), 1) * (n_skew > 0)
    d = rng.random(9) if diagonal else None
    kernel = cd.NonsymmetricDPP.from_factors(V, S=S - S.T, diagonal=d).kernel_
    sets = Sets(np.array([0, 3, 3, 5]), np.array([0, 4, 8, 2, 1], dtype=np.int32))
    found = np.empty((5, 9))
    write_scores_without_each(kernel, sets, found)
    rest = without_each(sets)
    expected = scores_given(kernel, rest)
    outside = np.ones((5, 9), dtype=bool)
    outside[np.repeat(np.arange(5), rest.sizes), rest.indices] = False
    np.testing.assert_allclose(found[outside], expected[outside], rtol=1e-8, atol=1e-10)


def test_nearly_dependent_sets_are_done_one_by_one():
    V = np.array([[1, 0], [1, 1e-5], [0.3, 0.7], [0.2, 0.1]])
    S = np.zeros((4, 4))
    S[2, 3], S[3, 2] = 0.2, -0.2
    kernel = cd.NonsymmetricDPP.from_factors(V, S=S).kernel_
    sets = Sets.one(np.array([0, 1], dtype=np.int32))
    found = np.empty((2, 4))
    write_scores_without_each(kernel, sets, found)
    np.testing.assert_allclose(found[:, 2:], scores_given(kernel, without_each(sets))[:, 2:], rtol=1e-9)


def test_whole_baskets_of_two_and_more_are_asked_about():
    baskets = cd.Baskets.from_csr([0, 1, 4, 6, 6, 9], np.arange(9))
    assert set(choose_baskets(baskets, 100, seed=0).sizes) == {2, 3}
    assert choose_baskets(baskets, 100, seed=0).n_baskets == 3
    few = choose_baskets(baskets, 3, seed=0)
    assert few.n_baskets < 3
    assert len(few.indices) >= 3
    assert choose_baskets(cd.Baskets.from_lists([[1]]), 5, seed=0).n_baskets == 0


def test_what_was_refused_are_the_only_candidates(shop):
    """log P(i | A∖i) among i and the refused items, where these are known."""
    baskets, combination = shop
    some = baskets.subset(np.flatnonzero(baskets.sizes >= 2)[:6])
    rest = [next(item for item in baskets.items if item not in basket) for basket in some]
    offered = [
        [*basket, item] if number % 2 else [] for number, (basket, item) in enumerate(zip(some, rest, strict=True))
    ]
    choices = cd.Baskets.from_lists(list(some), offered=offered, items=baskets.items)
    plain, examples = (make_examples(combination, one, seed=0, n_jobs=1) for one in (some, choices))
    owner = np.repeat(np.arange(6), some.sizes)
    for number, (ours, theirs) in enumerate(zip(examples.log_counts, plain.log_counts, strict=True)):
        if owner[number] % 2:
            assert np.isfinite(ours).sum() == 2  # the item itself and the one that was refused
            code = baskets.items.code(rest[owner[number]])
            without = [c for c in range(baskets.n_items) if c not in some.codes(owner[number])]
            np.testing.assert_array_equal(examples.features[number, 1], plain.features[number, 1 + without.index(code)])
        else:
            np.testing.assert_array_equal(ours, theirs)


def test_a_sample_of_candidates_gives_the_sum_over_all(shop, monkeypatch):
    baskets, combination = shop
    everything = make_examples(combination, baskets, seed=0, n_jobs=1)
    exact = log_likelihood(everything, combination.weights.theta)[0]
    monkeypatch.setattr(module, "MAX_EXHAUSTIVE", 5)
    monkeypatch.setattr(module, "N_BEST", 1)
    monkeypatch.setattr(module, "N_RANDOM", 2)
    sampled = [make_examples(combination, baskets, seed=seed, n_jobs=1) for seed in range(40)]
    assert sampled[0].features.shape[1] < 10 or np.isinf(sampled[0].log_counts).any()
    totals = []
    for examples in [everything, *sampled]:
        logits = examples.logits(examples.context @ combination.weights.theta) + examples.log_counts
        totals.append(np.exp(logits - logits[:, :1]).sum(axis=1))
    np.testing.assert_allclose(np.mean(totals[1:], axis=0), totals[0], rtol=0.5)
    assert np.mean(np.mean(totals[1:], axis=0) / totals[0]) == pytest.approx(1, abs=0.05)
    values = [log_likelihood(examples, combination.weights.theta)[0] for examples in sampled]
    assert np.mean(values) == pytest.approx(exact, rel=0.1)


def test_questions_do_not_depend_on_the_number_of_threads(shop, monkeypatch):
    baskets, combination = shop
    monkeypatch.setattr(module, "SCORES_PER_BLOCK", 100)
    monkeypatch.setattr(module, "MAX_EXHAUSTIVE", 5)
    monkeypatch.setattr(module, "N_BEST", 1)
    monkeypatch.setattr(module, "N_RANDOM", 2)
    one, two = (make_examples(combination, baskets, seed=0, n_jobs=n) for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_parts_of_baskets_are_small_and_large():
    baskets = cd.Baskets.from_lists([list(range(40)), list(range(40, 44)), [50]], items=range(51))
    parts = choose_parts(cd.Baskets.concat([baskets] * 50), 2000, seed=0)
    assert 2000 <= len(parts.indices) < 2040
    assert 44 <= len(choose_parts(baskets, 2000, seed=0).indices) < 84  # as many as they hold
    for part in parts:
        assert set(part) <= set(range(40)) or set(part) <= set(range(40, 44))
        assert len(part) == len(set(part)) >= 2
    of_large = parts.sizes[[set(part) <= set(range(40)) for part in parts]]
    assert of_large.min() == 2
    assert of_large.max() > 30
    assert 3 < np.median(of_large) < 16  # the middle of the logarithms is 9
    again = (choose_parts(cd.Baskets.concat([baskets] * 50), 2000, seed=seed) for seed in (0, 1))
    assert [list(one) == list(parts) for one in again] == [True, False]


def test_loudness_is_what_makes_small_baskets_likeliest():
    """Answers of small baskets that are drawn from half of the logits are found out, and orders stay."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(6000, 6, 2))
    sizes = rng.choice([1, 20], 6000)
    given = np.stack([np.ones(6000), np.log(sizes), np.zeros(6000)], axis=1)
    weights = Weights(np.array([[2.0, -1.0], [0.0, 0.0], [0.0, 0.0]]), np.eye(6))
    logits = np.where(sizes == 1, 0.5, 1.0)[:, None] * (features @ [2.0, -1.0])
    answers = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    rows = np.arange(6000)
    features[rows, 0], features[rows, answers] = features[rows, answers], features[rows, 0].copy()
    examples = [Examples(features[part], np.zeros((3000, 6)), given[part]) for part in (slice(3000), slice(3000, 6000))]
    found = fit_temperature(examples, weights)
    assert found[0, 0] == pytest.approx(0.5, abs=0.05)
    assert found[:, 0] @ [1, np.log(20), 0] == pytest.approx(1, abs=0.08)
    assert found[:, 1].tolist() == [1, 0, 0]  # there are no products


def test_products_that_mislead_small_baskets_fade_for_them():
    """Answers of small baskets are drawn without the product, others with it."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(6000, 6, 1))
    pairs = Products(np.array([0]), np.zeros(1), np.ones(1))
    sizes = rng.choice([1, 20], 6000)
    given = np.stack([np.ones(6000), np.log(sizes), np.zeros(6000)], axis=1)
    weights = Weights(np.array([[1.0, -0.5], [0.0, 0.0], [0.0, 0.0]]), np.eye(6), pairs)
    logits = features[..., 0] - np.where(sizes == 1, 0.0, 0.5)[:, None] * np.square(features[..., 0])
    answers = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    rows = np.arange(6000)
    features[rows, 0], features[rows, answers] = features[rows, answers], features[rows, 0].copy()
    found = fit_temperature([Examples(features, np.zeros((6000, 6)), given, products=pairs)], weights)
    assert found[0] == pytest.approx([1, 0], abs=0.15)
    assert [1, np.log(20), 0] @ found == pytest.approx([1, 1], abs=0.15)


def test_loudness_multiplies_features_and_products(shop):
    _, combination = shop
    sets = Sets(np.array([0, 2, 5]), np.array([0, 3, 1, 2, 7], dtype=np.int32))
    plain, alone, scaled = np.empty((3, 2, 10))

    def with_temperature(temperature):
        weights = combination.weights._replace(temperature=np.array(temperature))
        return Combination(combination.experts, combination.features, combination.counts, weights)

    combination.write_logits(sets, plain)
    with_temperature([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]).write_logits(sets, alone)
    with_temperature([[0.5, 0.2], [0.1, 0.3], [0.0, 0.0]]).write_logits(sets, scaled)
    logs = np.log([[2], [3]])
    np.testing.assert_allclose(scaled, alone * (0.5 + 0.1 * logs) + (plain - alone) * (0.2 + 0.3 * logs), rtol=1e-9)
    with_temperature(-np.ones((3, 2))).write_logits(sets, scaled)
    np.testing.assert_allclose(scaled, module.MIN_TEMPERATURE * alone, rtol=1e-9)
