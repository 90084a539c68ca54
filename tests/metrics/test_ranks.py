"""Leave-one-out ranks against plain NumPy: a DPP's closed forms, sums over the basket's items, and counts of rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import contradpp as cd
import reference
from contradpp.data.sets import Sets, without_each
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.scoring import scores_given
from contradpp.experts.base import Baseline
from contradpp.experts.statistics import Rows
from contradpp.metrics import ranks
from contradpp.metrics.ranks import KernelScorer, LeaveOneOut, PredictScorer, as_scorer, count_rows, rank_entries


def random_sets(n_items: int, n_sets: int, largest: int, seed: int) -> Sets:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, size=n_sets)
    codes = [rng.choice(n_items, size=size, replace=False) for size in sizes]
    return Sets(np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(codes).astype(np.int32))


def ranks_of(model, sets: Sets, n_top: int = 10, n_jobs: int = 1) -> LeaveOneOut:
    """Of every item of every set; the first of a set is the one that is held out."""
    scorer = KernelScorer(model, cd.Vocabulary(range(model.n_items))) if isinstance(model, Kernel) else as_scorer(model)
    return scorer.leave_one_out(sets, sets.indptr[:-1].copy(), n_top, n_jobs)


def counts_of(scores: np.ndarray, code: int, inside: np.ndarray, tie: float) -> tuple[int, int]:
    """The definition: who beats `code`, and who ties with it, among the items that are not inside."""
    others = np.setdiff1d(np.arange(len(scores)), [code, *inside])
    gap = scores[others] - scores[code]
    return int((gap > tie).sum()), int((np.abs(gap) <= tie).sum())


def members(sets: Sets) -> list[np.ndarray]:
    return [sets.indices[first:last] for first, last in zip(sets.indptr[:-1], sets.indptr[1:], strict=True)]


def assert_same(ours: LeaveOneOut, theirs: LeaveOneOut) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


# -- A DPP ---------------------------------------------------------------------------------------------


def nonsymmetric(n_items: int, rank: int, seed: int, *, low_rank: bool = False) -> cd.NonsymmetricDPP:
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(n_items, n_items)) * (rng.random((n_items, n_items)) < min(0.3, 10 / n_items))
    B = rng.normal(size=(n_items, 4)) if low_rank else None
    return cd.NonsymmetricDPP.from_factors(rng.normal(size=(n_items, rank)), B, None if low_rank else S - S.T)


@pytest.mark.parametrize(("n_items", "rank"), [(9, 4), (300, 7), (700, 20)])
def test_closed_form_is_leave_one_out(n_items, rank):
    V = np.random.default_rng(0).normal(size=(n_items, rank))
    sets = random_sets(n_items, 12, rank, seed=1)
    out = ranks_of(Kernel(V), sets)
    for s, codes in enumerate(members(sets)):
        for a, row in enumerate(reference.leave_one_out(V, codes)):
            entry = sets.indptr[s] + a
            assert (out.better[entry], out.equal[entry]) == counts_of(row, codes[a], codes, 1e-9)
            if a == 0:
                row[np.delete(codes, 0)] = -np.inf
                best = np.argsort(-row, kind="stable")[: min(10, n_items - len(codes) + 1)]
                assert out.top[s, : len(best)].tolist() == best.tolist()


@pytest.mark.parametrize("low_rank", [False, True])
@pytest.mark.parametrize(("n_items", "rank"), [(9, 4), (300, 7), (700, 20)])
def test_closed_form_of_a_nonsymmetric_kernel(n_items, rank, low_rank):
    model, sets = nonsymmetric(n_items, rank, 0, low_rank=low_rank), random_sets(n_items, 40, rank, seed=1)
    held, kernel = sets.indptr[:-1].copy(), model.kernel_
    ours = ranks_of(model, sets)
    slow = PredictScorer(model).leave_one_out(sets, held, 10, 1)
    np.testing.assert_array_equal(ours.better, slow.better)
    np.testing.assert_array_equal(ours.top, slow.top)
    rounding = 1e-12 * kernel.squared_norms
    one_by_one = rank_entries(
        lambda part: scores_given(kernel, without_each(part)), sets, held, 10, n_items, rounding=rounding
    )
    assert_same(ours, one_by_one)


def test_without_a_skew_part_it_is_the_low_rank_scorer():
    V = np.random.default_rng(0).normal(size=(200, 9))
    sets = random_sets(200, 60, 9, seed=4)
    assert_same(ranks_of(cd.NonsymmetricDPP.from_factors(V), sets), ranks_of(cd.LowRankDPP.from_factors(V), sets))


def test_dependent_and_nearly_dependent_sets_are_done_one_by_one():
    """Twins in a basket have no closed form; near twins have one that rounding spoils."""
    rng = np.random.default_rng(1)
    V = rng.normal(size=(40, 6))
    V[1] = V[0]
    V[3] = V[2] + 1e-4 * rng.normal(size=6)
    V[4] = 0.0
    V[20:] = V[:20]  # everybody has a twin: ties everywhere
    sets = Sets(np.array([0, 3, 6, 8, 10]), np.array([0, 1, 7, 2, 3, 9, 4, 5, 6, 7], dtype=np.int32))
    out = ranks_of(Kernel(V), sets, 5, 2)
    for s, codes in enumerate(members(sets)):
        for a, code in enumerate(codes):
            rest = np.delete(codes, a)
            basis = np.linalg.svd(V[rest], full_matrices=False)
            Q = basis.Vh[1e-12 * basis.S[0] < basis.S]
            row = (V**2).sum(axis=1) - ((V @ Q.T) ** 2).sum(axis=1)
            assert (out.better[sets.indptr[s] + a], out.equal[sets.indptr[s] + a]) == counts_of(row, code, rest, 1e-11)


def test_nearly_dependent_sets_of_a_nonsymmetric_kernel():
    rng = np.random.default_rng(1)
    V = rng.normal(size=(40, 6))
    V[3] = V[2] + 1e-5 * rng.normal(size=6)
    sets = Sets(np.array([0, 3, 5]), np.array([2, 3, 9, 6, 7], dtype=np.int32))
    models = cd.NonsymmetricDPP.from_factors(V), cd.LowRankDPP.from_factors(V)
    assert_same(*(ranks_of(model, sets, 5, 2) for model in models))


@pytest.mark.parametrize("scores_per_block", [600, 600 * 7, 600 * 64, 2**24])
@pytest.mark.parametrize("skewed", [False, True])
def test_blocks_and_threads_change_nothing(scores_per_block, skewed, monkeypatch):
    model = nonsymmetric(600, 8, 0)
    if not skewed:
        model = Kernel(np.random.default_rng(0).integers(-1, 2, size=(600, 8)).astype(float))
    sets = random_sets(600, 100, 8, seed=3)
    wanted = ranks_of(model, sets)
    monkeypatch.setattr(ranks, "SCORES_PER_BLOCK", scores_per_block)
    assert_same(ranks_of(model, sets, n_jobs=2), wanted)
    assert skewed or wanted.equal.sum() > 0


def test_twins_tie():
    """Items 20.. are copies of 0..19, partners included, so that each ties with its copy."""
    rng = np.random.default_rng(2)
    V, S = rng.normal(size=(20, 8)), rng.normal(size=(20, 20)) * (rng.random((20, 20)) < 0.3)
    S = np.tile(S - S.T, (2, 2))
    model = cd.NonsymmetricDPP.from_factors(np.vstack([V, V]), S=S)
    assert (ranks_of(model, random_sets(20, 30, 5, seed=0), 5).equal == 1).all()


def test_impossible_baskets_are_ranked_all_the_same():
    """More items than components and links: det L_A = 0, yet what is linked to the basket should come first."""
    V = np.random.default_rng(0).normal(size=(30, 3))
    S = np.zeros((30, 30))
    for i in range(6):
        S[i, 20], S[20, i] = 5.0, -5.0
    model = cd.NonsymmetricDPP.from_factors(V, S=S)
    sets = Sets.one([20, 0, 1, 2, 3, 4, 5])
    assert model.kernel_.log_det(sets)[0] == -np.inf
    out = ranks_of(model, sets)
    assert out.better[0] == 0
    assert out.top[0, 0] == 20


def test_a_report():
    model = nonsymmetric(50, 8, 0)
    test = model.sample(300, random_state=0)
    report = cd.evaluate(model, test, random_state=0)
    assert report.log_likelihood == pytest.approx(model.score(test))
    assert (report.n_skipped, report.n_impossible) == (0, 0)
    assert report.mpr > 60  # its own samples


# -- Sums over the basket's items ------------------------------------------------------------------------


class Linear(Baseline):
    """Scores bias_j + Σ_{a∈A} S[a, j]."""

    def __init__(self, matrix, bias) -> None:
        self.items_, self.item_weights_, self.bias_ = cd.Vocabulary(range(len(bias))), matrix, bias

    def _fit(self, statistics) -> None:
        """There is nothing to learn."""


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("bias", [None, "random"])
def test_linear_scores_lose_the_row_of_the_item_left_out(bias, sparse):
    rng = np.random.default_rng(4)
    S = rng.integers(-2, 3, size=(700, 700)) / 10  # tenths: sums of them tie only to rounding
    if sparse:
        S *= rng.random(S.shape) < 0.3
    b = np.zeros(700) if bias is None else rng.integers(0, 2, size=700) / 10
    sets = random_sets(700, 30, 6, seed=5)
    out = ranks_of(Linear(Rows.of(csr_array(S)) if sparse else S, b), sets, n_jobs=2)
    exact = np.round(10 * S), np.round(10 * b)
    for s, codes in enumerate(members(sets)):
        for a, code in enumerate(codes):
            rest = np.delete(codes, a)
            row = exact[1] + exact[0][rest].sum(axis=0)
            entry = sets.indptr[s] + a
            assert (out.better[entry], out.equal[entry]) == counts_of(row, code, rest, 0)
            if a == 0:
                row[rest] = -np.inf
                assert out.top[s].tolist() == np.argsort(-row, kind="stable")[:10].tolist()


def test_popularity_is_a_linear_model_without_weights():
    scores = np.random.default_rng(0).integers(0, 5, size=50).astype(float)
    sets = random_sets(50, 40, 6, seed=6)
    popularity = cd.baselines.Popularity()
    popularity.items_, popularity.probabilities_ = cd.Vocabulary(range(50)), scores / 10
    assert_same(ranks_of(popularity, sets), ranks_of(Linear(np.zeros((50, 50)), scores), sets))


# -- Rows of scores --------------------------------------------------------------------------------------


def test_sets_without_each_item():
    rest = without_each(Sets(np.array([0, 3, 4]), np.array([5, 6, 7, 8], dtype=np.int32)))
    assert [one.tolist() for one in members(rest)] == [[6, 7], [5, 7], [5, 6], []]


def test_lists_end_where_nothing_is_left():
    sets = Sets.one([0, 1, 2])
    out = rank_entries(lambda part: np.tile([3.0, 2.0, 1.0, 0.0], (3, 1)), sets, np.array([1]), 10, 4)
    assert out.top.tolist() == [[1, 3, -1, -1, -1, -1, -1, -1, -1, -1]]


def test_counts_of_rows_know_rounding():
    better, equal = count_rows(np.array([[0.1 + 0.2, 0.3, 0.4, -np.inf]]), np.array([1], dtype=np.int32))
    assert (better.tolist(), equal.tolist()) == ([1], [1])


def test_counts_of_rows_with_scores_that_are_not_finite():
    rows = np.array([[np.inf, 1.0, -np.inf, 1.0], [np.inf, np.inf, 0.0, -np.inf], [-np.inf, 0.0, -np.inf, -np.inf]])
    better, equal = count_rows(rows, np.array([1, 2, 0], dtype=np.int32))
    assert (better.tolist(), equal.tolist()) == ([1, 2, 1], [1, 0, 0])
    better, equal = count_rows(rows[:1], np.array([1], dtype=np.int32), np.array([0.0, 0.5, 0.0, 0.0]))
    assert (better.tolist(), equal.tolist()) == ([1], [1])
