"""Samples of nonsymmetric DPPs against the exact law by chi-square on counts, with samplers that must fail."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from contradpp.data.sets import Sets
from contradpp.dpp import sample
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.sample import Sampler, factorise, scale_for_size
from contradpp.errors import ParameterError, RankError
from exact import ExactDPP, chi_square_p_value

N = 20_000


def p_value(drawn, law: dict[tuple[int, ...], float]) -> float:
    counts = Counter(tuple(sorted(s)) for s in drawn)
    observed = np.array([counts.pop(cell, 0) for cell in law])
    return 0.0 if counts else chi_square_p_value(observed, np.array(list(law.values())))


def as_lists(sets: Sets) -> list[list[int]]:
    return [sets.indices[a:b].tolist() for a, b in itertools.pairwise(sets.indptr)]


def of_size(law: dict[tuple[int, ...], float], k: int) -> dict[tuple[int, ...], float]:
    chosen = {s: p for s, p in law.items() if len(s) == k}
    total = sum(chosen.values())
    return {s: p / total for s, p in chosen.items()}


def skew_of(pairs: dict[tuple[int, int], float], n: int = 5) -> np.ndarray:
    S = np.zeros((n, n))
    for (i, j), value in pairs.items():
        S[i, j], S[j, i] = value, -value
    return S


V = np.random.default_rng(11).normal(size=(5, 3)) * 0.8
B = np.random.default_rng(12).normal(size=(5, 2))
G = np.kron(np.eye(1), [[0.0, 1.0], [-1.0, 0.0]])
FORMS = {
    "no partners": (V, np.eye(3), np.zeros((5, 5))),
    "a few partners": (V, np.eye(3), skew_of({(0, 3): 1.2, (3, 4): -0.7})),
    "all partners": (V, np.eye(3), skew_of({(0, 3): 1.2, (3, 4): -0.7, (1, 2): 0.9, (2, 0): 0.4})),
    "low rank": (np.hstack([V, B]), np.block([[np.eye(3), np.zeros((3, 2))], [np.zeros((2, 3)), G]]), np.zeros((5, 5))),
    "only partners": (0 * V, np.eye(3), skew_of({(0, 3): 1.2, (3, 4): -0.7, (1, 2): 0.9, (2, 0): 0.4})),
}


@pytest.fixture(params=FORMS)
def pair(request):
    X, gain, S = FORMS[request.param]
    return Kernel(X, gain, S), X @ gain @ X.T + S


def test_the_dpp(pair):
    kernel, L = pair
    assert p_value(as_lists(Sampler(kernel).sample(N, seed=0)), ExactDPP(L).table) > 1e-3


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_k_dpp(pair, k):
    kernel, L = pair
    law, sampler = ExactDPP(L).table, Sampler(kernel)
    if not any(p > 0 for s, p in law.items() if len(s) == k):
        with pytest.raises((RankError, ParameterError)):
            sampler.sample(1, seed=0, size=k)
        return
    drawn = as_lists(sampler.sample(N, seed=k, size=k))
    assert all(len(s) == k for s in drawn)
    assert p_value(drawn, of_size(law, k)) > 1e-3


@pytest.mark.parametrize("size", [None, 3])
def test_given_items(pair, size):
    kernel, L = pair
    fixed = np.array([0, 3], dtype=np.int32)
    rest_kernel, rest = kernel.condition(fixed)
    law = ExactDPP(L).given(fixed.tolist())
    if size is not None and not any(p > 0 for s, p in law.items() if len(s) == size):
        return
    drawn = Sampler(rest_kernel).sample(N, seed=1, size=None if size is None else size - 2)
    whole = [[0, 3, *rest[s].tolist()] for s in as_lists(drawn)]
    assert p_value(whole, law if size is None else of_size(law, size)) > 1e-3


# -- Samplers that are wrong, which the same test must reject ----------------------------------------


def test_the_symmetric_part_alone_is_rejected():
    X, gain, S = FORMS["a few partners"]
    drawn = as_lists(Sampler(Kernel(X, gain)).sample(N, seed=0))
    assert p_value(drawn, ExactDPP(X @ X.T + S).table) < 1e-9


def test_independent_items_are_rejected():
    X, _, S = FORMS["a few partners"]
    exact = ExactDPP(X @ X.T + S)
    coins = np.random.default_rng(0).random((N, 5)) < exact.marginals()
    assert p_value([np.flatnonzero(row).tolist() for row in coins], exact.table) < 1e-9


def test_a_skew_part_a_fifth_larger_is_rejected():
    X, gain, S = FORMS["all partners"]
    drawn = as_lists(Sampler(Kernel(X, gain, 1.2 * S)).sample(N, seed=0))
    assert p_value(drawn, ExactDPP(X @ X.T + S).table) < 1e-6


# -- A catalogue that is too large to enumerate ------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.02, 1.0])
def test_marginals_of_many_items(share):
    """With and without items that have no partner, over several halvings of the factorisation."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 6)) * 0.3
    S = rng.normal(size=(150, 150)) * (0.02 if share == 1 else 0.2) * (rng.random((150, 150)) < share)
    kernel = Kernel(X, skew=S - S.T)
    drawn = Sampler(kernel).sample(4000, seed=0)
    inside = np.bincount(drawn.indices, minlength=150)
    p = kernel.marginals(np.empty(0, dtype=np.int32))
    z = (inside - 4000 * p) / np.sqrt(4000 * p * (1 - p))
    assert np.abs(z).max() < 4.5
    assert 0.6 < np.square(z).mean() < 1.6  # they are not independent
    assert drawn.sizes.mean() == pytest.approx(kernel.expected_size, rel=0.05)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_the_factorisation(n):
    A = np.eye(n) + (lambda R: R - R.T)(np.random.default_rng(n).normal(size=(n, n)))
    factors = A.copy()
    factorise(factors)
    product = (np.tril(factors, -1) + np.eye(n)) @ np.triu(factors)
    np.testing.assert_allclose(product, A, atol=1e-9)


@pytest.mark.parametrize("size", [1, 5, 30])
def test_the_scale_of_a_size(size):
    rng = np.random.default_rng(0)
    S = rng.normal(size=(80, 80)) * (rng.random((80, 80)) < 0.1)
    kernel = Kernel(rng.normal(size=(80, 40)), skew=S - S.T)
    assert kernel.scaled(scale_for_size(kernel, size)).expected_size == pytest.approx(size, abs=0.25 * np.sqrt(size))


# -- Streams, sizes, edges -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 2])
def test_the_seed_decides_and_the_threads_do_not(pair, size):
    kernel, _ = pair
    one, two = Sampler(kernel), Sampler(kernel)
    n = 3 * sample.SAMPLES_PER_BLOCK[one.way] + 17
    two.n_jobs = 2
    first, second = one.sample(n, seed=5, size=size), two.sample(n, seed=5, size=size)
    np.testing.assert_array_equal(first.indptr, second.indptr)
    np.testing.assert_array_equal(first.indices, second.indices)
    assert first.indices.tolist() != one.sample(n, seed=6, size=size).indices.tolist()
    np.testing.assert_array_equal(one.sample(n, seed=5, size=size).indices, first.indices)


def test_no_samples_and_no_rank(pair):
    kernel, _ = pair
    sampler = Sampler(kernel)
    assert sampler.sample(0, seed=0).count == 0
    assert sampler.sample(3, seed=0, size=0).sizes.tolist() == [0, 0, 0]
    empty = Sampler(Kernel(np.zeros((3, 2))))
    assert empty.rank == 0
    assert empty.sample(4, seed=0).sizes.tolist() == [0, 0, 0, 0]


def test_bad_sizes(pair, monkeypatch):
    kernel, _ = pair
    sampler = Sampler(kernel)
    with pytest.raises(RankError, match=f"0..{sampler.rank}"):
        sampler.sample(1, seed=0, size=6)
    with pytest.raises(ParameterError):
        sampler.sample(-1, seed=0)
    if sampler.way == "eigenvectors":  # no tries are needed
        return
    monkeypatch.setattr(sample, "MOST_TRIES", 1)
    with pytest.raises(ParameterError, match="none of 1 sets had 2 items"):
        sampler.sample(500, seed=0, size=2)
