"""Exact samples and those of a chain: chi-square tests on counts, which wrong samplers must fail."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from contradpp.data.sets import Sets
from contradpp.dpp import sampling
from contradpp.dpp.compiled import samples
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.linalg import log_elementary_symmetric
from contradpp.dpp.sampling import (
    SAMPLES_PER_BLOCK,
    Chain,
    Sampler,
    Samplers,
    eigenvectors,
    factorize,
    scale_for_size,
)
from contradpp.errors import ParameterError, RankError
from exact import ExactDPP, chi_square_p_value

WAYS = {"exact": 20_000, "chain": 4000}  # and how many samples are drawn
N = WAYS["exact"]
STEPS = 200
NOTHING = np.empty(0, dtype=np.int32)


def draw(way: str, kernel: Kernel, n: int | None = None, **options) -> Sets:
    n = WAYS[way] if n is None else n
    return (
        Samplers(kernel).sample(n, **options) if way == "exact" else Chain(kernel).sample(n, n_steps=STEPS, **options)
    )


def as_lists(sets: Sets) -> list[list[int]]:
    return [sets.indices[a:b].tolist() for a, b in itertools.pairwise(sets.indptr)]


def p_value(drawn, distribution: dict[tuple[int, ...], float]) -> float:
    """The chi-square p-value of drawn sets under a distribution over sorted tuples."""
    counts = Counter(tuple(sorted(s)) for s in (as_lists(drawn) if isinstance(drawn, Sets) else drawn))
    observed = np.array([counts.pop(cell, 0) for cell in distribution])
    return 0.0 if counts else chi_square_p_value(observed, np.array(list(distribution.values())))


def of_size(distribution: dict[tuple[int, ...], float], k: int) -> dict[tuple[int, ...], float]:
    chosen = {s: p for s, p in distribution.items() if len(s) == k}
    total = sum(chosen.values())
    return {s: p / total for s, p in chosen.items()} if total else {}


def skew_of(pairs: dict[tuple[int, int], float]) -> np.ndarray:
    S = np.zeros((5, 5))
    for (i, j), value in pairs.items():
        S[i, j], S[j, i] = value, -value
    return S


V = np.random.default_rng(11).normal(size=(5, 3)) * 0.8
V4 = np.random.default_rng(11).normal(size=(5, 4)) * 0.8  # five items of rank 4: 2⁵ sets, one of them impossible
B = np.random.default_rng(12).normal(size=(5, 2))
D = np.array([0.3, 0.1, 0.05, 0.2, 0.4])
G = [[1.0, 0.6, 0.0], [-0.6, 1.0, 0.0], [0.0, 0.0, 1.0]]
FEW = skew_of({(0, 3): 1.2, (3, 4): -0.7})
ALL = skew_of({(0, 3): 1.2, (3, 4): -0.7, (1, 2): 0.9, (2, 0): 0.4})
LOW_RANK = np.diag([1.0, 1.0, 1.0, 0.0, 0.0])
LOW_RANK[3, 4], LOW_RANK[4, 3] = 1.0, -1.0
FORMS = {
    "V": Kernel(V),
    "V of rank 4": Kernel(V4),
    "D + V": Kernel(V, diagonal=D),
    "G": Kernel(V, G),
    "low rank": Kernel(np.hstack([V, B]), LOW_RANK),
    "V + S": Kernel(V, skew=FEW),
    "V + S, all neighbors": Kernel(V, skew=ALL),
    "D + V + S": Kernel(V, G, ALL, D),
    "D + S": Kernel(np.empty((5, 0)), skew=ALL, diagonal=D),
    "pairs that are nothing alone": Kernel(0 * V, skew=ALL),
}


@pytest.fixture(params=FORMS)
def kernel(request) -> Kernel:
    return FORMS[request.param]


# Some forms are for one of the two: what is special about the others is not.
OF_ONE = {"exact": ["V of rank 4", "low rank", "V + S, all neighbors"], "chain": ["D + V", "G", "D + S"]}
every_way = pytest.mark.parametrize(
    ("way", "kernel"),
    [
        pytest.param(way, kernel, id=f"{way}, {form}")
        for way, other in zip(WAYS, reversed(WAYS), strict=True)
        for form, kernel in FORMS.items()
        if form not in OF_ONE[other]
    ],
)


@every_way
def test_the_dpp(way, kernel):
    assert p_value(draw(way, kernel, seed=0), ExactDPP(kernel.matrix()).table) > 1e-3


@every_way
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_k_dpp(way, kernel, k):
    distribution = of_size(ExactDPP(kernel.matrix()).table, k)
    if not distribution:
        with pytest.raises((RankError, ParameterError)):
            draw(way, kernel, 1, seed=0, size=k)
        return
    drawn = draw(way, kernel, seed=k, size=k)
    assert (drawn.sizes == k).all()
    assert p_value(drawn, distribution) > 1e-3


@every_way
@pytest.mark.parametrize("size", [None, 3, 4])
def test_given_items(way, kernel, size):
    given = np.array([3, 0], dtype=np.int32)
    distribution = ExactDPP(kernel.matrix()).given(given.tolist())
    distribution = distribution if size is None else of_size(distribution, size)
    if distribution:
        drawn = draw(way, kernel, seed=1, size=size, given=given)
        assert (drawn.indices[drawn.indptr[:-1]] == 3).all()
        assert (drawn.indices[drawn.indptr[:-1] + 1] == 0).all()
        assert p_value(drawn, distribution) > 1e-3


def test_the_default_number_of_steps_is_enough_here(kernel):
    assert p_value(Chain(kernel).sample(1000, seed=5), ExactDPP(kernel.matrix()).table) > 1e-3


def test_float32_and_wide_spectra():
    """Eigenvalues over eleven orders; the smallest must still be drawn by the k-DPP of full rank."""
    rng = np.random.default_rng(0)
    U, W = np.linalg.qr(rng.normal(size=(6, 4)))[0], np.linalg.qr(rng.normal(size=(4, 4)))[0]
    V = (U * 10.0 ** np.array([3, 0.5, -0.5, -2.5])) @ W
    exact = {s: np.linalg.det(V[list(s)]) ** 2 for s in itertools.combinations(range(6), 4)}
    distribution = {s: volume / sum(exact.values()) for s, volume in exact.items()}
    assert p_value(Sampler(Kernel(V)).sample(N, seed=0, size=4), distribution) > 1e-3
    V32 = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    drawn = Sampler(Kernel(V32)).sample(N, seed=0)
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


# -- A catalogue that is too large to enumerate ------------------------------------------------------


@pytest.mark.parametrize(("way", "share"), [("exact", 0.0), ("exact", 0.02), ("exact", 1.0), ("chain", 0.01)])
def test_marginals_of_many_items(way, share):
    """With and without items that have no neighbor, over several halvings of the factorization."""
    rng = np.random.default_rng(5)
    S = rng.normal(size=(150, 150)) * (0.02 if share == 1 else 0.15) * (rng.random((150, 150)) < share)
    kernel = Kernel(0.1 * rng.normal(size=(150, 6)), skew=S - S.T, diagonal=0.02 * rng.random(150))
    n = 4000 if way == "exact" else 1000
    drawn = Samplers(kernel).sample(n, seed=0) if way == "exact" else Chain(kernel).sample(n, seed=0)
    p = kernel.marginals(NOTHING)
    z = (np.bincount(drawn.indices, minlength=150) - n * p) / np.sqrt(n * p * (1 - p))
    assert np.abs(z).max() < 5
    assert 0.5 < np.square(z).mean() < 1.7  # they are not independent
    assert drawn.sizes.mean() == pytest.approx(kernel.expected_size, rel=0.1)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_the_factorisation(n):
    A = np.eye(n) + (lambda R: R - R.T)(np.random.default_rng(n).normal(size=(n, n)))
    factors = A.copy()
    factorize(factors)
    product = (np.tril(factors, -1) + np.eye(n)) @ np.triu(factors)
    np.testing.assert_allclose(product, A, atol=1e-9)


@pytest.mark.parametrize("size", [1, 5, 30])
def test_the_scale_of_a_size(size):
    rng = np.random.default_rng(0)
    S = rng.normal(size=(80, 80)) * (rng.random((80, 80)) < 0.1)
    kernel = Kernel(rng.normal(size=(80, 40)), skew=S - S.T)
    assert kernel.scaled(scale_for_size(kernel, size)).expected_size == pytest.approx(size, abs=0.25 * np.sqrt(size))


def test_a_k_dpp_with_huge_eigenvalues():
    """In plain numbers e_100 of these values is 1e3000."""
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(300, 200)))[0] * 1e15
    drawn = Sampler(Kernel(V)).sample(3, seed=0, size=100)
    for row in as_lists(drawn):
        assert len(set(row)) == 100


# -- Samplers that are wrong, which the same test must reject ----------------------------------------


@pytest.mark.parametrize("form", ["V of rank 4", "V + S"])
def test_independent_items_are_rejected(form):
    """The right marginals, but no repulsion."""
    exact = ExactDPP(FORMS[form].matrix())
    coins = np.random.default_rng(0).random((N, 5)) < exact.marginals()
    assert p_value([np.flatnonzero(row).tolist() for row in coins], exact.table) < 1e-9


@pytest.mark.parametrize(
    ("way", "wrong", "form"),
    [
        ("exact", Kernel(V4 * np.array([1.2, 1, 1, 1, 1])[:, None]), "V of rank 4"),  # one item a fifth longer
        ("exact", Kernel(V), "V + S"),
        ("exact", Kernel(V, skew=1.2 * ALL), "V + S, all neighbors"),
        ("chain", Kernel(V, G, 1.3 * ALL, D), "D + V + S"),
    ],
)
def test_another_kernel_is_rejected(way, wrong, form):
    assert p_value(draw(way, wrong, seed=0), ExactDPP(FORMS[form].matrix()).table) < 1e-6


def test_a_sampler_without_the_rejection_step_is_rejected():
    """Items by their proposals alone: ‖y_i‖² given the eigenvectors, whatever was drawn before."""
    (values, columns, _), rng, k = eigenvectors(Kernel(V4)), np.random.default_rng(0), 2
    distribution = of_size(ExactDPP(V4 @ V4.T).table, k)
    pairs = list(itertools.combinations(range(len(values)), k))
    weights = np.array([values[list(pair)].prod() for pair in pairs])
    drawn = []
    for choice in rng.choice(len(pairs), size=N, p=weights / weights.sum()):
        proposal = np.square(columns[:, pairs[choice]]).sum(axis=1) / k
        drawn.append(rng.choice(5, size=k, replace=False, p=proposal / proposal.sum()))
    assert p_value(drawn, distribution) < 1e-9


def test_too_few_steps_are_rejected(kernel):
    assert p_value(Chain(kernel).sample(N, seed=0, n_steps=3), ExactDPP(kernel.matrix()).table) < 1e-9


def test_a_chain_with_wrong_densities_is_rejected():
    """It draws neighbors by other shares than those that it corrects for."""
    kernel = FORMS["D + V + S"]
    chain = Chain(kernel)
    owner = np.repeat(np.arange(5), np.diff(kernel.skew.indptr))
    chain.row_cumulative = np.where(chain.row_cumulative < 1 - 1e-12, chain.row_cumulative**3, chain.row_cumulative)
    assert len(owner) == len(chain.row_cumulative)
    assert p_value(chain.sample(N, seed=0, n_steps=STEPS), ExactDPP(kernel.matrix()).table) < 1e-6


# -- Streams, sizes, edges -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 2])
def test_the_seed_decides_and_the_threads_do_not(kernel, size):
    one, two = Sampler(kernel), Sampler(kernel)
    n = 3 * SAMPLES_PER_BLOCK[one.way] + 17
    two.n_jobs = 2
    first, second = one.sample(n, seed=5, size=size), two.sample(n, seed=5, size=size)
    np.testing.assert_array_equal(first.indptr, second.indptr)
    np.testing.assert_array_equal(first.indices, second.indices)
    assert first.indices.tolist() != one.sample(n, seed=6, size=size).indices.tolist()
    np.testing.assert_array_equal(one.sample(n, seed=5, size=size).indices, first.indices)


def test_the_seed_of_a_chain_decides_and_the_threads_do_not():
    one, two = Chain(Kernel(V, G, ALL, D)), Chain(Kernel(V, G, ALL, D, n_jobs=2))
    n = 5 * SAMPLES_PER_BLOCK["chain"] + 1
    first, second = one.sample(n, seed=5), two.sample(n, seed=5)
    np.testing.assert_array_equal(first.indptr, second.indptr)
    np.testing.assert_array_equal(first.indices, second.indices)
    assert first.indices.tolist() != one.sample(n, seed=6).indices.tolist()


@pytest.mark.parametrize("size", [None, 3])
def test_numbers_that_run_out_do_not_change_the_samples(size):
    values, *basis = eigenvectors(Kernel(V4))
    uniforms, sizes = np.random.default_rng(0).random(4000), np.zeros(50, dtype=np.int64)

    def take(numbers, sizes):
        if size is None:
            return samples.sample_dpp(*basis, values / (1.0 + values), numbers, sizes)
        table = log_elementary_symmetric(values, size)
        return samples.sample_k_dpp(*basis, np.log(values), table, size, numbers, sizes)

    expected, n, used = take(uniforms, sizes)
    assert n == 50
    parts, done, first, last = [], 0, 0, 0
    while done < 50:
        last += 7
        items, n, taken = take(uniforms[first:last], np.zeros(50 - done, dtype=np.int64))
        parts, done, first = [*parts, items], done + n, first + taken
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert first == used


def test_blocks_are_not_copies_of_each_other():
    drawn = Sampler(Kernel(V)).sample(2 * SAMPLES_PER_BLOCK["eigenvectors"], seed=5, size=2).indices.reshape(2, -1)
    assert drawn[0].tolist() != drawn[1].tolist()


@every_way
def test_no_samples_and_no_rank(way, kernel):
    assert draw(way, kernel, 0, seed=0).count == 0
    assert draw(way, kernel, 3, seed=0, size=0).sizes.tolist() == [0, 0, 0]
    empty = Kernel(np.zeros((3, 2)))
    assert empty.rank == 0
    assert draw(way, empty, 4, seed=0).sizes.tolist() == [0, 0, 0, 0]
    assert draw(way, empty, 4, seed=0, size=0).sizes.tolist() == [0, 0, 0, 0]


def test_bad_sizes(kernel, monkeypatch):
    sampler = Sampler(kernel)
    for size in (-1, sampler.rank + 1):
        with pytest.raises(RankError, match=f"0..{sampler.rank}"):
            sampler.sample(1, seed=0, size=size)
    with pytest.raises(ParameterError):
        sampler.sample(-1, seed=0)
    monkeypatch.setattr(sampling, "MAX_TRIES", 1)
    if sampler.way == "elimination":  # by eigenvectors, no tries are needed
        with pytest.raises(ParameterError, match="none of 1 sets had 2 items"):
            sampler.sample(500, seed=0, size=2)


def test_a_chain_does_not_begin_with_what_cannot_be():
    twice = Kernel([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(RankError, match="probability zero"):
        draw("chain", twice, 1, seed=0, given=np.array([0, 1], dtype=np.int32))
    assert not any({0, 1} <= set(drawn) for drawn in as_lists(draw("chain", twice, 300, seed=0)))
