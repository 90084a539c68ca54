"""Mixtures of DPPs against their definition, by enumeration of all sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from contradpp.data.sets import Sets, pointers
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.mixture import Mixture
from exact import ExactDPP, chi_square_p_value

M, C = 6, 3
ALL = [subset for size in range(M + 1) for subset in itertools.combinations(range(M), size)]
FORMS = ["D", "V", "DV", "DVS", "DS"]


def parts(form: str, seed: int = 0):
    """D, V, S, the tilts and the weights of a random mixture."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(M, M)) * ("V" in form)
    d = rng.random(M) * ("D" in form)
    S = np.triu(rng.normal(size=(M, M)), 1) * (0.5 * ("S" in form))
    return d, V, S - S.T, rng.normal(size=(C, M)), rng.dirichlet(np.ones(C))


def defined(form: str) -> dict[tuple[int, ...], float]:
    """P(A) of every set, as a sum over clusters of DPPs."""
    d, V, S, tilts, weights = parts(form)
    L = np.diag(d) + V @ V.T + S
    P = np.zeros(len(ALL))
    for weight, u in zip(weights, tilts, strict=True):
        E = np.diag(np.exp(u / 2))
        tilted = E @ L @ E
        Z = np.linalg.det(np.eye(M) + tilted)
        P += [weight * np.linalg.det(tilted[np.ix_(A, A)]) / Z for A in map(list, ALL)]
    return dict(zip(ALL, P, strict=True))


def mixture(form: str) -> Mixture:
    d, V, S, tilts, weights = parts(form)
    kernel = Kernel(V, skew=S, diagonal=d if "D" in form else None)
    return Mixture(kernel, tilts, np.log(weights))


def as_sets(subsets) -> Sets:
    codes = np.array([i for subset in subsets for i in subset], dtype=np.int32)
    return Sets(pointers([len(subset) for subset in subsets]), codes)


@pytest.mark.parametrize("form", FORMS)
def test_probabilities_are_those_of_the_definition(form):
    P = defined(form)
    np.testing.assert_allclose(sum(P.values()), 1.0, atol=1e-12)
    found = np.exp(mixture(form).log_probability(as_sets(ALL)))
    np.testing.assert_allclose(found, list(P.values()), atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", [(), (2,), (1, 4)])
def test_marginals_and_conditioning(form, given):
    P = defined(form)
    whole = {A: p for A, p in P.items() if set(given) <= set(A)}
    total = sum(whole.values())
    expected = [sum(p for A, p in whole.items() if i in A) / total for i in range(M)]
    codes = np.array(given, dtype=np.int32)
    np.testing.assert_allclose(mixture(form).marginals(codes), expected, atol=1e-10)
    rest, items = mixture(form).condition(codes)
    subsets = [A for A in ALL if max(A, default=-1) < len(items)]
    found = np.exp(rest.log_probability(as_sets(subsets)))
    wanted = [whole[tuple(sorted({*given, *items[list(A)].tolist()}))] / total for A in subsets]
    np.testing.assert_allclose(found, wanted, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_sizes(form):
    P = defined(form)
    sizes = np.bincount([len(A) for A in P], weights=list(P.values()), minlength=M + 1)
    found = np.exp(mixture(form).log_size_distribution)
    np.testing.assert_allclose(found, sizes[: len(found)], atol=1e-10)
    np.testing.assert_allclose(mixture(form).expected_size, sizes @ np.arange(M + 1), atol=1e-10)
    np.testing.assert_allclose(mixture(form).rates, mixture(form).marginals(), atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_scores_of_next_items(form):
    P = defined(form)
    baskets = [(), (3,), (1, 4), (0, 2, 5)]
    model = mixture(form)
    scores = np.empty((len(baskets), M))
    model.write_scores(as_sets(baskets), scores)
    exact = np.vstack([block.scores for block in model.next_scores(as_sets(baskets))])
    for A, row, other in zip(baskets, scores, exact, strict=True):
        for j in set(range(M)) - set(A):
            ratio = P[tuple(sorted((*A, j)))] / P[A]
            np.testing.assert_allclose([row[j], other[j]], ratio, atol=1e-10)
    np.testing.assert_allclose(model.squared_norms, scores[0], atol=1e-12)
    each = np.empty((3, M))
    model.write_scores_without_each(as_sets([(0, 2, 5)]), each)
    for row, i in zip(each, (0, 2, 5), strict=True):
        rest = tuple(sorted({0, 2, 5} - {i}))
        for j in set(range(M)) - set(rest):
            ratio = P[tuple(sorted((*rest, j)))] / P[rest]
            np.testing.assert_allclose(row[j], ratio, atol=1e-10)
    prefixes = model.scores_given_prefixes(np.array([4, 1], np.int32), np.array([0, 3]))
    for row, A in zip(prefixes, [(), (4,), (1, 4)], strict=True):
        ratios = [P[tuple(sorted((*A, j)))] / P[A] for j in (0, 3)]
        np.testing.assert_allclose(row, ratios, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_choices(form):
    P = defined(form)
    chosen, offered = (1, 4), (0, 1, 4, 5)
    within = sum(p for A, p in P.items() if set(A) <= set(offered))
    found = mixture(form).log_choice(as_sets([chosen]), as_sets([offered]))
    np.testing.assert_allclose(np.exp(found), P[chosen] / within, atol=1e-10)


def p_value(drawn: Sets, P: dict[tuple[int, ...], float]) -> float:
    """Of a chi-square test that samples come from P."""
    counts = dict.fromkeys(P, 0)
    for first, last in itertools.pairwise(drawn.indptr.tolist()):
        counts[tuple(sorted(drawn.indices[first:last].tolist()))] += 1
    return chi_square_p_value(np.array(list(counts.values())), np.array(list(P.values())))


@pytest.mark.parametrize("form", ["V", "DVS"])
@pytest.mark.parametrize(("size", "given"), [(None, ()), (3, ()), (None, (2,)), (3, (2,))])
def test_samples(form, size, given):
    P = {A: p if set(given) <= set(A) and (size is None or len(A) == size) else 0.0 for A, p in defined(form).items()}
    total = sum(P.values())
    P = {A: p / total for A, p in P.items()}
    model = mixture(form)
    options = {"size": size, "given": np.array(given, dtype=np.int32)}
    drawn = model.sample(8000, seed=3, **options)
    assert p_value(drawn, P) > 1e-3
    one_cluster = Mixture(model.kernel, model.tilts[:1], np.zeros(1))
    assert p_value(one_cluster.sample(8000, seed=3, **options), P) < 1e-6


def test_a_chain_tends_to_the_same_distribution():
    drawn = mixture("DVS").sample(1000, seed=5, chain=True, n_steps=200)
    assert p_value(drawn, defined("DVS")) > 1e-3


def test_beside_a_chain_a_weak_kernel_knows_the_clusters_given_items_without_a_normalizer():
    """Normalizers of every cluster would take a large matrix each."""
    strong = mixture("DVS")
    weak = Mixture(strong.kernel.scaled(0.02), strong.tilts, strong.log_weights)
    given = np.array([2], dtype=np.int32)
    exact, quick = weak.condition(given)[0], weak._condition_to_first_order(given)[0]
    assert quick.weights == pytest.approx(exact.weights, abs=0.02)
    assert np.abs(weak.weights - exact.weights).max() > 0.1
    drawn = weak.sample(50, seed=1, size=3, given=given, chain=True, n_steps=50)
    assert drawn.sizes.tolist() == [3] * 50
    assert (drawn.indices[::3] == 2).all()


def test_one_cluster_without_tilts_is_the_kernel_to_the_bit():
    kernel = mixture("DVS").kernel
    one = Mixture(kernel, np.zeros((1, M)), np.zeros(1))
    sets = as_sets(ALL)
    assert (one.log_probability(sets) == kernel.log_probability(sets)).all()
    assert (one.marginals() == kernel.marginals()).all()
    own, plain = one.sample(50, seed=1), kernel.sample(50, seed=1)
    assert (own.indices == plain.indices).all()
    assert (own.indptr == plain.indptr).all()


def test_responsibilities_are_the_posterior_of_clusters():
    d, V, S, tilts, weights = parts("DVS")
    A = [1, 4]
    joint = []
    for weight, u in zip(weights, tilts, strict=True):
        E = np.diag(np.exp(u / 2))
        joint.append(weight * ExactDPP(E @ (np.diag(d) + V @ V.T + S) @ E).probability(A))
    found = mixture("DVS").responsibilities(as_sets([A]))[0]
    np.testing.assert_allclose(found, np.array(joint) / sum(joint), atol=1e-12)
