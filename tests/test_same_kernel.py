"""Same L, same answers: the class that holds a kernel must not matter, nor how far apart the scales of its rows are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import contradpp as cd
from contradpp.errors import ContradppError, RankError
from exact import chi_square_p_value

RNG = np.random.default_rng(5)
KERNELS = {
    "random": RNG.normal(size=(7, 4)),
    "long rows": 10 * RNG.normal(size=(6, 3)),
    "short rows": 0.01 * RNG.normal(size=(6, 3)),
    "full rank": RNG.normal(size=(5, 6)),
    "one item": RNG.normal(size=(1, 2)),
    "columns repeated": np.tile(RNG.normal(size=(6, 2)), 2),
    "nearly singular": np.array([[1, 0], [1, 1e-8], [0.3, 0.7]]),
    "wide scales": np.diag([1e8, 1.0]),
    "wider scales": np.diag([1e8, 1e-8, 1.0]),
}
CLASSES = {
    "LowRankDPP": cd.LowRankDPP.from_factors,
    "NonsymmetricDPP": cd.NonsymmetricDPP.from_factors,
    "NonsymmetricDPP, S = 0": lambda V: cd.NonsymmetricDPP.from_factors(V, S=np.zeros((len(V), len(V)))),
}


def subsets(model) -> list[list[int]]:
    n = len(model.items_)
    return [list(s) for size in range(n + 1) for s in itertools.combinations(range(n), size)]


def each(ask):
    """The question for every basket, an error as its name."""
    return lambda model: [answer_to(ask, model, basket) for basket in subsets(model)[:60]]


def answer_to(ask, *given):
    try:
        return ask(*given)
    except ContradppError as error:
        return type(error).__name__


def ranked(found):
    """The shares of a ranking, best first: of equals, which comes first is a matter of rounding."""
    return found[1]


QUESTIONS = {
    "log_normalizer_": lambda m: m.dpp.log_normalizer,
    "score_samples": lambda m: m.score_samples(subsets(m)),
    "size_distribution": lambda m: np.pad(m.size_distribution(), (0, 9))[:9],  # how far it is told may differ
    "marginals": each(lambda m, basket: m.marginals(basket)),
    "condition": each(lambda m, basket: conditioned(m.condition(basket))),
    "predict_next": each(lambda m, basket: m.predict_next(basket)),
    "recommend": each(lambda m, basket: ranked(m.recommend(basket, N=3))),
    "candidates": each(lambda m, basket: ranked(m.recommend(basket, candidates=[0], N=3))),
    "complete": each(lambda m, basket: m.score_samples(m.complete(basket, len(basket) + 1))),
    "similar_items": lambda m: ranked(m.similar_items(0)),
    "sizes of samples": each(lambda m, basket: m.sample(3, size=len(basket) + 1, given=basket).sizes),
    "evaluate": lambda m: evaluated(m),
}


def conditioned(model) -> list:
    return [list(model.items_), model.marginals(), model.dpp.log_normalizer]


def evaluated(model) -> list:
    report = cd.evaluate(model, [basket for basket in subsets(model) if len(basket) == 2], random_state=0)
    return [report.metrics[name] for name in ("ndcg", "log_likelihood")]


def check_same(one, other) -> None:
    """Equal to rounding, whatever is nested in what."""
    if isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            check_same(a, b)
    elif isinstance(one, str) or isinstance(other, str):
        assert isinstance(one, str), (one, other)
        assert one == other
    else:
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", list(CLASSES)[1:])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_same_kernel_same_answer(kernel, question, name):
    V, ask = KERNELS[kernel], QUESTIONS[question]
    check_same(answer_to(ask, CLASSES["LowRankDPP"](V)), answer_to(ask, CLASSES[name](V)))


# -- Each of them is a distribution -------------------------------------------------------------------------------


def volumes(V) -> np.ndarray:
    """det L_A of every set, by the singular values of its rows: exact to rounding for any scale."""
    return np.array(
        [
            np.prod(np.linalg.svd(V[s] / lengths(V[s]), compute_uv=False)) ** 2 * np.prod(lengths(V[s])) ** 2
            if len(s) <= V.shape[1]
            else 0.0
            for s in subsets(cd.LowRankDPP.from_factors(V))
        ]
    )


def lengths(rows) -> np.ndarray:
    return np.linalg.norm(rows, axis=1, keepdims=True)


def check_sets(model, V) -> None:
    """P(A) = det L_A / Σ det L_B, and they sum to one."""
    shares = np.exp(model.score_samples(subsets(model)))
    assert shares.sum() == pytest.approx(1, abs=1e-8)
    np.testing.assert_allclose(shares, volumes(V) / volumes(V).sum(), atol=1e-8)


def check_sizes(model, V) -> None:
    """P(|Y| = k) is the sum over the sets of k items."""
    distribution = volumes(V) / volumes(V).sum()
    expected = np.bincount([len(s) for s in subsets(model)], distribution, minlength=9)
    np.testing.assert_allclose(np.pad(model.size_distribution(), (0, 9))[:9], expected[:9], atol=1e-8)


def check_marginals(model, V) -> None:
    distribution, sets = volumes(V) / volumes(V).sum(), subsets(model)
    expected = [sum(p for p, s in zip(distribution, sets, strict=True) if i in s) for i in range(len(V))]
    np.testing.assert_allclose(model.marginals(), expected, atol=1e-8)


def check_next(model, V) -> None:
    """P(next = j | A) ∝ det L_{A ∪ j}, for sets that are not singular to rounding."""
    table = {tuple(s): p for s, p in zip(subsets(model), volumes(V), strict=True)}
    for basket, volume in list(table.items())[: len(V) + 1]:
        grown = [0.0 if j in basket else table[tuple(sorted([*basket, j]))] for j in range(len(V))]
        if volume > 0 and max(grown) > 1e-12 * volume:
            np.testing.assert_allclose(model.predict_next(list(basket)), grown / np.sum(grown), atol=1e-8)


def check_samples(model, V) -> None:
    counts = dict.fromkeys(map(tuple, subsets(model)), 0)
    for basket in model.sample(2000, random_state=0):
        counts[tuple(sorted(basket))] += 1
    distribution = volumes(V) / volumes(V).sum()
    assert chi_square_p_value(np.array(list(counts.values())), np.where(distribution > 1e-9, distribution, 0.0)) > 1e-4


def check_beyond(model, V) -> None:
    """A set of more items than the rank is impossible, whoever is asked for it."""
    rank = np.linalg.matrix_rank(V / lengths(V))
    most = list(range(rank))
    if rank == len(V) or np.linalg.det(V[most] @ V[most].T) < 1e-12 * np.prod(lengths(V[most]) ** 2):
        return  # nothing is beyond, or whether these are possible themselves is for the rule of singularity to say
    assert model.score_samples([*most, rank]) == -np.inf
    for ask in (
        lambda: model.predict_next(most),
        lambda: model.complete(most, rank + 1),
        lambda: model.complete(most[:-1], rank + 1),
        lambda: model.sample(size=rank + 1),
        lambda: model.sample(size=rank + 1, given=most),
        lambda: model.marginals([*most, rank]),
    ):
        with pytest.raises(RankError):
            ask()
    np.testing.assert_allclose(model.marginals(most), [1.0] * rank + [0.0] * (len(V) - rank), atol=1e-9)
    assert model.sample(2, given=most).sizes.tolist() == [rank, rank]


CHECKS = {
    "sets": check_sets, "sizes": check_sizes, "marginals": check_marginals, "next": check_next,
    "samples": check_samples, "beyond the rank": check_beyond,
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("question", CHECKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_class_keeps_the_distribution(kernel, question, name):
    CHECKS[question](CLASSES[name](KERNELS[kernel]), KERNELS[kernel])
