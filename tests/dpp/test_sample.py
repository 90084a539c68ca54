"""Samples against the exact law by chi-square on counts, with biased samplers that the same test rejects."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from contradpp.data.sets import Sets
from contradpp.dpp import sample
from contradpp.dpp.compiled import samples
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.linalg import log_elementary_symmetric
from contradpp.dpp.sample import Sampler, eigenvectors
from contradpp.errors import ParameterError, RankError
from exact import ExactDPP, chi_square_p_value

N = 20_000


@pytest.fixture
def V() -> np.ndarray:
    """Five items of rank 4: 2⁵ sets, one of them impossible."""
    return np.random.default_rng(11).normal(size=(5, 4)) * 0.8


def p_value(drawn, law: dict[tuple[int, ...], float]) -> float:
    """The chi-square p-value of drawn sets under a law over sorted tuples."""
    counts = Counter(tuple(sorted(s)) for s in drawn)
    cells = list(law)
    observed = np.array([counts.pop(cell, 0) for cell in cells])
    if counts:  # a set outside the law
        return 0.0
    return chi_square_p_value(observed, np.array([law[cell] for cell in cells]))


def as_lists(sets: Sets) -> list[list[int]]:
    return [sets.indices[a:b].tolist() for a, b in itertools.pairwise(sets.indptr)]


def of_size(law: dict[tuple[int, ...], float], k: int) -> dict[tuple[int, ...], float]:
    chosen = {s: p for s, p in law.items() if len(s) == k}
    total = sum(chosen.values())
    return {s: p / total for s, p in chosen.items()}


def test_the_dpp(V):
    drawn = as_lists(Sampler(Kernel(V)).sample(N, seed=0))
    assert p_value(drawn, ExactDPP(V @ V.T).table) > 1e-3


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_k_dpp(V, k):
    drawn = as_lists(Sampler(Kernel(V)).sample(N, seed=k, size=k))
    assert all(len(s) == k for s in drawn)
    assert p_value(drawn, of_size(ExactDPP(V @ V.T).table, k)) > 1e-3


@pytest.mark.parametrize("size", [None, 3])
def test_given_items(V, size):
    fixed = np.array([1, 4], dtype=np.int32)
    kernel, rest = Kernel(V).condition(fixed)
    drawn = Sampler(kernel).sample(N, seed=1, size=None if size is None else size - 2)
    law = ExactDPP(V @ V.T).given(fixed.tolist())
    whole = [[1, 4, *rest[s].tolist()] for s in as_lists(drawn)]
    assert p_value(whole, law if size is None else of_size(law, size)) > 1e-3


def test_float32_and_wide_spectra():
    """Eigenvalues over eleven orders; the smallest must still be drawn by the k-DPP of full rank."""
    rng = np.random.default_rng(0)
    U, W = np.linalg.qr(rng.normal(size=(6, 4)))[0], np.linalg.qr(rng.normal(size=(4, 4)))[0]
    V = (U * 10.0 ** np.array([3, 0.5, -0.5, -2.5])) @ W
    exact = {s: np.linalg.det(V[list(s)]) ** 2 for s in itertools.combinations(range(6), 4)}
    law = {s: volume / sum(exact.values()) for s, volume in exact.items()}
    assert p_value(as_lists(Sampler(Kernel(V)).sample(N, seed=0, size=4)), law) > 1e-3
    V32 = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    drawn = as_lists(Sampler(Kernel(V32)).sample(N, seed=0))
    assert p_value(drawn, ExactDPP(V32.astype(float) @ V32.T.astype(float)).table) > 1e-3


def test_the_columns_are_orthonormal_whatever_the_spectrum():
    rng = np.random.default_rng(4)
    for _ in range(20):
        U = np.linalg.qr(rng.normal(size=(9, 6)))[0]
        W = np.linalg.qr(rng.normal(size=(6, 6)))[0]
        kernel = Kernel(U * 10.0 ** rng.uniform(-7, 0, size=6) @ W)
        sampler, columns = Sampler(kernel), eigenvectors(kernel).columns
        np.testing.assert_allclose(columns.T @ columns, np.eye(sampler.rank), atol=1e-9)
        assert (sampler.sample(5, seed=0, size=sampler.rank).sizes == sampler.rank).all()


# -- Samplers that are wrong, which the same test must reject ----------------------------------------


def test_independent_items_are_rejected(V):
    """The right marginals, but no repulsion."""
    exact = ExactDPP(V @ V.T)
    coins = np.random.default_rng(0).random((N, 5)) < exact.marginals()
    assert p_value([np.flatnonzero(row).tolist() for row in coins], exact.table) < 1e-9


def test_a_sampler_without_the_rejection_step_is_rejected(V):
    """Items by their proposals alone: ‖y_i‖² given the eigenvectors, whatever was drawn before."""
    (values, columns, _), rng, k = eigenvectors(Kernel(V)), np.random.default_rng(0), 2
    law = of_size(ExactDPP(V @ V.T).table, k)
    pairs = list(itertools.combinations(range(len(values)), k))
    weights = np.array([values[list(pair)].prod() for pair in pairs])
    drawn = []
    for choice in rng.choice(len(pairs), size=N, p=weights / weights.sum()):
        proposal = np.square(columns[:, pairs[choice]]).sum(axis=1) / k
        drawn.append(rng.choice(5, size=k, replace=False, p=proposal / proposal.sum()))
    assert p_value(drawn, law) < 1e-9


def test_another_kernel_is_rejected(V):
    """One item a fifth longer is enough to be seen."""
    other = V.copy()
    other[0] *= 1.2
    drawn = as_lists(Sampler(Kernel(other)).sample(N, seed=0))
    assert p_value(drawn, ExactDPP(V @ V.T).table) < 1e-6


# -- Streams, sizes, edges -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 2])
def test_the_seed_decides_and_the_threads_do_not(V, size):
    n = 3 * sample.SAMPLES_PER_BLOCK["eigenvectors"] + 17
    one, two = Sampler(Kernel(V, n_jobs=1)), Sampler(Kernel(V, n_jobs=2))
    first, second = one.sample(n, seed=5, size=size), two.sample(n, seed=5, size=size)
    np.testing.assert_array_equal(first.indptr, second.indptr)
    np.testing.assert_array_equal(first.indices, second.indices)
    assert first.indices.tolist() != one.sample(n, seed=6, size=size).indices.tolist()


@pytest.mark.parametrize("size", [None, 3])
def test_numbers_that_run_out_do_not_change_the_samples(V, size):
    values, *basis = eigenvectors(Kernel(V))
    uniforms, sizes = np.random.default_rng(0).random(4000), np.zeros(50, dtype=np.int64)

    def draw(numbers, sizes):
        if size is None:
            return samples.sample_dpp(*basis, values / (1.0 + values), numbers, sizes)
        table = log_elementary_symmetric(values, size)
        return samples.sample_k_dpp(*basis, np.log(values), table, size, numbers, sizes)

    expected, n, used = draw(uniforms, sizes)
    assert n == 50
    parts, done, first, last = [], 0, 0, 0
    while done < 50:
        last += 7
        items, n, taken = draw(uniforms[first:last], np.zeros(50 - done, dtype=np.int64))
        parts, done, first = [*parts, items], done + n, first + taken
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert first == used


def test_blocks_are_not_copies_of_each_other(V):
    drawn = (
        Sampler(Kernel(V)).sample(2 * sample.SAMPLES_PER_BLOCK["eigenvectors"], seed=5, size=2).indices.reshape(2, -1)
    )
    assert drawn[0].tolist() != drawn[1].tolist()


def test_no_samples_and_no_rank(V):
    none = Sampler(Kernel(V)).sample(0, seed=0)
    assert none.count == 0
    assert len(none.indices) == 0
    assert Sampler(Kernel(V)).sample(3, seed=0, size=0).sizes.tolist() == [0, 0, 0]
    empty = Sampler(Kernel(np.zeros((3, 2))))
    assert empty.rank == 0
    assert empty.sample(4, seed=0).sizes.tolist() == [0, 0, 0, 0]
    assert empty.sample(4, seed=0, size=0).sizes.tolist() == [0, 0, 0, 0]


def test_bad_sizes(V):
    sampler = Sampler(Kernel(V))
    with pytest.raises(RankError, match=r"0\.\.4"):
        sampler.sample(1, seed=0, size=5)
    with pytest.raises(RankError):
        sampler.sample(1, seed=0, size=-1)
    with pytest.raises(ParameterError):
        sampler.sample(-1, seed=0)


def test_a_k_dpp_with_huge_eigenvalues():
    """In plain numbers e_100 of these values is 1e3000."""
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(300, 200)))[0] * 1e15
    drawn = Sampler(Kernel(V)).sample(3, seed=0, size=100)
    for row in as_lists(drawn):
        assert len(set(row)) == 100
