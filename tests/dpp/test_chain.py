"""The Markov chain against the exact law by chi-square on counts, with chains that are wrong and must fail."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.sample import SAMPLES_PER_BLOCK, Chain
from contradpp.errors import ParameterError, RankError
from exact import ExactDPP, chi_square_p_value

N = 4000
STEPS = 200


def p_value(sets: Sets, law: dict[tuple[int, ...], float]) -> float:
    drawn = [sets.indices[a:b].tolist() for a, b in itertools.pairwise(sets.indptr)]
    counts = Counter(tuple(sorted(s)) for s in drawn)
    observed = np.array([counts.pop(cell, 0) for cell in law])
    return 0.0 if counts else chi_square_p_value(observed, np.array(list(law.values())))


def of_size(law: dict[tuple[int, ...], float], k: int) -> dict[tuple[int, ...], float]:
    chosen = {s: p for s, p in law.items() if len(s) == k}
    return {s: p / sum(chosen.values()) for s, p in chosen.items()}


def skew_of(pairs: dict[tuple[int, int], float]) -> np.ndarray:
    S = np.zeros((5, 5))
    for (i, j), value in pairs.items():
        S[i, j], S[j, i] = value, -value
    return S


V = np.random.default_rng(11).normal(size=(5, 3)) * 0.8
D = np.array([0.3, 0.1, 0.05, 0.2, 0.4])
G = [[1.0, 0.6, 0.0], [-0.6, 1.0, 0.0], [0.0, 0.0, 1.0]]
FEW = skew_of({(0, 3): 1.2, (3, 4): -0.7})
ALL = skew_of({(0, 3): 1.2, (3, 4): -0.7, (1, 2): 0.9, (2, 0): 0.4})
FORMS = {
    "V": Kernel(V),
    "D + V": Kernel(V, diagonal=D),
    "G": Kernel(V, G),
    "V + S": Kernel(V, skew=FEW),
    "D + V + S": Kernel(V, G, ALL, D),
    "D + S": Kernel(np.empty((5, 0)), skew=ALL, diagonal=D),
    "pairs that are nothing alone": Kernel(0 * V, skew=ALL),
}


def exact(kernel: Kernel) -> ExactDPP:
    return ExactDPP(np.diag(kernel.diagonal) + kernel.left @ kernel.wide.T + kernel.skew.matrix().toarray())


@pytest.fixture(params=FORMS)
def kernel(request) -> Kernel:
    return FORMS[request.param]


def test_the_dpp(kernel):
    assert p_value(Chain(kernel).sample(N, seed=0, n_steps=STEPS), exact(kernel).table) > 1e-3


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_k_dpp(kernel, k):
    law = exact(kernel).table
    if not any(p > 0 for s, p in law.items() if len(s) == k):
        with pytest.raises(ParameterError, match=f"no set of {k} items"):
            Chain(kernel).sample(1, seed=0, size=k)
        return
    drawn = Chain(kernel).sample(N, seed=k, size=k, n_steps=STEPS)
    assert (drawn.sizes == k).all()
    assert p_value(drawn, of_size(law, k)) > 1e-3


@pytest.mark.parametrize("size", [None, 3, 4])
def test_given_items(kernel, size):
    given = np.array([3, 0], dtype=np.int32)
    law = exact(kernel).given(given.tolist())
    if size is not None and not any(p > 0 for s, p in law.items() if len(s) == size):
        return
    drawn = Chain(kernel).sample(N, seed=1, size=size, given=given, n_steps=STEPS)
    starts = drawn.indptr[:-1]
    assert (drawn.indices[starts] == 3).all()
    assert (drawn.indices[starts + 1] == 0).all()
    assert p_value(drawn, law if size is None else of_size(law, size)) > 1e-3


def test_the_default_number_of_steps_is_enough_here(kernel):
    assert p_value(Chain(kernel).sample(1000, seed=5), exact(kernel).table) > 1e-3


# -- Chains that are wrong, which the same test must reject --------------------------------------------------


def test_too_few_steps_are_rejected(kernel):
    assert p_value(Chain(kernel).sample(N, seed=0, n_steps=3), exact(kernel).table) < 1e-9


def test_a_chain_with_wrong_densities_is_rejected():
    """It draws partners by other shares than those that it corrects for."""
    kernel = FORMS["D + V + S"]
    chain = Chain(kernel)
    owner = np.repeat(np.arange(5), np.diff(kernel.skew.indptr))
    chain.shares = np.where(chain.shares < 1 - 1e-12, chain.shares**3, chain.shares)
    assert len(owner) == len(chain.shares)
    assert p_value(chain.sample(N, seed=0, n_steps=STEPS), exact(kernel).table) < 1e-6


def test_another_kernel_is_rejected():
    drawn = Chain(Kernel(V, G, 1.3 * ALL, D)).sample(N, seed=0, n_steps=STEPS)
    assert p_value(drawn, exact(FORMS["D + V + S"]).table) < 1e-6


# -- Streams, sizes, edges -----------------------------------------------------------------------------------


def test_the_seed_decides_and_the_threads_do_not():
    one, two = Chain(Kernel(V, G, ALL, D)), Chain(Kernel(V, G, ALL, D, n_jobs=2))
    n = 5 * SAMPLES_PER_BLOCK["chain"] + 1
    first, second = one.sample(n, seed=5), two.sample(n, seed=5)
    np.testing.assert_array_equal(first.indptr, second.indptr)
    np.testing.assert_array_equal(first.indices, second.indices)
    assert first.indices.tolist() != one.sample(n, seed=6).indices.tolist()


def test_edges():
    chain = Chain(FORMS["V"])
    assert chain.sample(0, seed=0).count == 0
    assert chain.sample(3, seed=0, size=0).sizes.tolist() == [0, 0, 0]
    assert Chain(Kernel(np.zeros((3, 2)))).sample(2, seed=0).sizes.tolist() == [0, 0]
    twice = Kernel([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(RankError, match="probability zero"):
        Chain(twice).sample(1, seed=0, given=np.array([0, 1], dtype=np.int32))
    drawn = Chain(twice).sample(300, seed=0, n_steps=50)
    assert not any({0, 1} <= set(drawn.indices[a:b].tolist()) for a, b in itertools.pairwise(drawn.indptr))


def test_many_items_have_the_marginals_of_the_law():
    rng = np.random.default_rng(5)
    S = rng.normal(size=(150, 150)) * 0.15 * (rng.random((150, 150)) < 0.01)
    kernel = Kernel(0.1 * rng.normal(size=(150, 6)), skew=S - S.T, diagonal=0.02 * rng.random(150))
    drawn = Chain(kernel).sample(1000, seed=0)
    p = kernel.marginals(np.empty(0, dtype=np.int32))
    z = (np.bincount(drawn.indices, minlength=150) - 1000 * p) / np.sqrt(1000 * p * (1 - p))
    assert np.abs(z).max() < 5
    assert 0.5 < np.square(z).mean() < 1.7
