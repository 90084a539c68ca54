"""Hard kernels against mpmath: graded columns, near-duplicates, small diagonals, rare items and absurd training."""

from __future__ import annotations

import itertools
import warnings

import mpmath as mp
import numpy as np
import pytest

import contradpp as cd
from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ContradppError, NumericalError, RankError
from contradpp.learn.params import params_from_flat
from exact import subsets
from reference import as_sets

M = 6
NOTHING = np.array([], dtype=np.int32)


def minors(kernel: Kernel) -> dict[tuple[int, ...], mp.mpf]:
    """det L_A of all sets, to 60 digits."""
    with mp.workdps(60):
        X, S = mp.matrix(kernel.X.tolist()), mp.matrix(kernel.skew.matrix().toarray().tolist())
        L = X * X.T + S + mp.diag([mp.mpf(float(d)) for d in kernel.diagonal])
        return {
            s: mp.det(mp.matrix([[L[i, j] for j in s] for i in s])) if s else mp.mpf(1) for s in subsets(kernel.n_items)
        }


def random_skew(rng: np.random.Generator, first: int = 0) -> np.ndarray:
    """Links between the items from `first` on."""
    S = np.zeros((M, M))
    S[first:, first:] = np.triu(rng.normal(size=(M - first, M - first)), 1)
    return S - S.T


def hard_kernel(name: str) -> tuple[Kernel, float]:
    """A kernel, and the relative error that the condition of its factors allows."""
    rng = np.random.default_rng(0)
    V, S, last = rng.normal(size=(M, 4)), random_skew(rng, 2), random_skew(rng)
    graded, twins, near = V * np.geomspace(1e-4, 1e4, 4), V.copy(), V.copy()
    near[1] += near[0] - near[1] + 1e-8 * rng.normal(size=4)
    twins[1] = twins[0]
    return {
        "graded": (Kernel(graded), 1e-8),
        "graded, D": (Kernel(graded, diagonal=np.full(M, 1e-3)), 1e-8),
        "graded, S": (Kernel(graded, skew=last), 1e-8),
        "graded, little S": (Kernel(graded, skew=1e-6 * last), 1e-8),
        "near": (Kernel(near), 1e-6),
        "near, D": (Kernel(near, diagonal=np.full(M, 1e-4)), 1e-9),
        "near, S elsewhere": (Kernel(near, skew=S), 1e-6),
        "twins, D = 1e-14": (Kernel(twins, diagonal=np.full(M, 1e-14)), 1e-8),
        "twins, D = 1e-20": (Kernel(twins, diagonal=np.full(M, 1e-20)), 1e-5),
        "twins, S, D = 1e-14": (Kernel(twins, skew=S, diagonal=np.full(M, 1e-14)), 1e-8),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "graded", "graded, D", "graded, S", "graded, little S", "near", "near, D", "near, S elsewhere",
        "twins, D = 1e-14", "twins, D = 1e-20", "twins, S, D = 1e-14",
    ],
)  # fmt: skip
def test_probabilities_of_hard_kernels(name):
    """Sets were impossible that are not, and scores were zero or rounding."""
    kernel, rtol = hard_kernel(name)
    exact = minors(kernel)
    sets = [s for s in exact if len(s) <= kernel.largest_set]
    logs = kernel.log_det(as_sets(sets))
    np.testing.assert_allclose(logs, [float(mp.log(exact[s])) for s in sets], atol=rtol)
    for A in sets:
        rest = [j for j in range(M) if j not in A]
        if not rest or len(A) == kernel.largest_set:
            continue
        expected = [float(exact[tuple(sorted((*A, j)))] / exact[A]) for j in rest]
        scores = np.concatenate([block.scores for block in kernel.next_scores(Sets.one(A))])[0]
        np.testing.assert_allclose(scores[rest], expected, rtol=rtol)
        np.testing.assert_allclose(kernel.grow(A).scores[rest], expected, rtol=rtol)
        assert kernel.next_totals(Sets.one(A))[0] == pytest.approx(sum(expected), rel=rtol)


@pytest.mark.parametrize("linked", [False, True])
def test_graded_columns_do_not_hide_dependent_items(linked):
    rng = np.random.default_rng(1)
    V = rng.normal(size=(M, 4)) * np.geomspace(1e-4, 1e4, 4)
    V[1], V[3] = V[0], V[0] + V[2]
    S = np.zeros((M, M))
    S[4, 5], S[5, 4] = 1.0, -1.0
    kernel = Kernel(V, skew=S if linked else None)
    for A in itertools.chain(itertools.permutations([0, 1]), itertools.permutations([0, 2, 3]), [(0, 1, 4), (1, 2, 3)]):
        assert kernel.log_det(Sets.one(A))[0] == -np.inf
    with pytest.raises(RankError):
        kernel.marginals(np.array([0, 2, 3], dtype=np.int32))


@pytest.mark.parametrize("diagonal", [False, True])
def test_marginals_with_links_have_relative_precision(diagonal):
    """They were 1 less something near 1: that of a rare item had few digits, or none."""
    rng = np.random.default_rng(2)
    weight = 10.0 ** -np.arange(M)
    kernel = Kernel(
        rng.normal(size=(M, 3)) * weight[:, None],
        skew=random_skew(rng) * np.outer(weight, weight),
        diagonal=0.1 * weight**2 if diagonal else None,
    )
    exact = minors(kernel)
    total = sum(exact.values())
    expected = [float(sum(p for s, p in exact.items() if i in s) / total) for i in range(M)]
    assert min(expected) < 1e-9
    np.testing.assert_allclose(kernel.marginals(NOTHING), expected, rtol=1e-11)


def test_marginals_given_rare_items_that_are_linked():
    """Entries of W = L_A⁻¹ that are large spoiled the rest of the conditional kernel: errors were up to 7e-4."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        V = rng.normal(size=(M, 4)) * 10.0 ** rng.uniform(-7, 0, size=(M, 1))
        A = rng.normal(size=(M, M)) * (rng.random((M, M)) < 0.4) * 1e-6
        kernel = Kernel(V, skew=A - A.T)
        exact = minors(kernel)
        for given in (s for s in exact if 1 <= len(s) <= 2):
            inside = {s: p for s, p in exact.items() if set(given) <= set(s)}
            total = sum(inside.values())
            expected = [float(sum(p for s, p in inside.items() if i in s) / total) for i in range(M)]
            np.testing.assert_allclose(kernel.marginals(np.array(given, dtype=np.int32)), expected, atol=1e-10)


@pytest.mark.parametrize(
    ("kind", "seed", "options"),
    [
        (cd.NonsymmetricDPP, 0, {"learning_rate": 100.0}),
        (cd.NonsymmetricDPP, 4, {"learning_rate": 30.0, "alpha": 1e6}),
        (cd.LowRankDPP, 16, {"learning_rate": 1000.0, "alpha": 0.0, "anneal": False}),
        (cd.LowRankDPP, 1, {"learning_rate": 10.0, "alpha": 1e6}),
    ],
)
def test_absurd_training_gives_a_distribution_or_an_error(kind, seed, options):
    """Probabilities of all sets added up to 0.47 and to 4e-22, and sizes were those of another distribution."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 7))
    baskets = [sorted(rng.choice(n, int(rng.integers(1, 4)), replace=False).tolist()) for _ in range(60)]
    options = params_from_flat(kind, {"objective": "dynamic", **options})
    model = kind(int(rng.integers(3, 6)), random_state=seed, calibrate=None, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            kernel = model.fit(baskets).kernel_
        except ContradppError:
            return
    check_distribution(kernel)


@pytest.mark.parametrize("form", ["heavy", "linked"])
def test_a_distribution_that_rounding_has_lost_is_an_error(form):
    """One far larger than the others, beside which I + L has no digits of them."""
    V = np.random.default_rng(3).normal(size=(M, 3))
    S = random_skew(np.random.default_rng(3), 1)
    kernel = (
        Kernel(V @ np.diag([1e14, 1.0, 1.0]) @ np.linalg.qr(V[:3])[0]) if form == "heavy" else Kernel(V, skew=1e42 * S)
    )
    with pytest.raises(NumericalError, match="so heavy"):
        _ = kernel.log_normalizer
    check_distribution(kernel)


def check_distribution(kernel: Kernel) -> None:
    """Every answer about the whole distribution is that of enumeration, or a `NumericalError`."""
    exact = minors(kernel)
    total = sum(exact.values())
    distribution = {s: float(p / total) for s, p in exact.items()}
    sizes, inside = np.zeros(kernel.n_items + 1), np.zeros(kernel.n_items)
    for s, p in distribution.items():
        sizes[len(s)] += p
        inside[list(s)] += p
    n = kernel.rank + 1
    for ask, expected in (
        (lambda: np.exp(kernel.log_probability(as_sets(list(distribution)))), list(distribution.values())),
        (lambda: kernel.size_distribution()[:n], sizes[:n]),
        (lambda: kernel.marginals(NOTHING), inside),
        (lambda: kernel.expected_size, inside.sum()),
    ):
        try:
            found = ask()
        except NumericalError:
            continue
        np.testing.assert_allclose(found, expected, atol=2e-6)
