"""The closed form of a nonsymmetric DPP's leave-one-out ranks against one factorisation per item left out."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.sets import Sets
from contradpp.metrics.leave_one_out import KernelScorer, rank_one_by_one
from contradpp.metrics.scoring import PredictScorer, as_scorer


def random_model(n_items: int, rank: int, seed: int, *, low_rank: bool = False) -> cd.NonsymmetricDPP:
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(n_items, n_items)) * (rng.random((n_items, n_items)) < min(0.3, 10 / n_items))
    B = rng.normal(size=(n_items, 4)) if low_rank else None
    return cd.NonsymmetricDPP.from_factors(rng.normal(size=(n_items, rank)), B, None if low_rank else S - S.T)


def random_sets(n_items: int, n_sets: int, largest: int, seed: int) -> Sets:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, size=n_sets)
    drawn = [rng.choice(n_items, size=size, replace=False) for size in sizes]
    return Sets(np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(drawn).astype(np.int32))


def first_entries(sets: Sets) -> np.ndarray:
    return sets.indptr[:-1].copy()


def assert_same(ours, theirs) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("low_rank", [False, True])
@pytest.mark.parametrize(("n_items", "rank"), [(9, 4), (300, 7), (700, 20)])
def test_closed_form_is_leave_one_out(n_items, rank, low_rank):
    model, sets = random_model(n_items, rank, 0, low_rank=low_rank), random_sets(n_items, 40, rank, seed=1)
    scorer = as_scorer(model)
    assert isinstance(scorer, KernelScorer)
    ours = scorer.leave_one_out(sets, first_entries(sets), 10, 1)
    asked = PredictScorer(model).leave_one_out(sets, first_entries(sets), 10, 1)
    np.testing.assert_array_equal(ours.better, asked.better)
    np.testing.assert_array_equal(ours.top, asked.top)
    assert_same(ours, rank_one_by_one(scorer.given, sets, first_entries(sets), 10, n_items, rounding=scorer.rounding))


@pytest.mark.parametrize("rows", [1, 7, 64, 10_000])
def test_blocks_and_threads_change_nothing(rows):
    model, sets = random_model(600, 8, 0), random_sets(600, 100, 8, seed=3)
    scorer = as_scorer(model)
    wanted = scorer.leave_one_out(sets, first_entries(sets), 10, 1)
    assert_same(scorer.leave_one_out(sets, first_entries(sets), 10, 2, rows=rows), wanted)


def test_twins_tie():
    """Items 20.. are copies of 0..19, partners included, so that each ties with its copy."""
    rng = np.random.default_rng(2)
    V, S = rng.normal(size=(20, 8)), rng.normal(size=(20, 20)) * (rng.random((20, 20)) < 0.3)
    S = np.tile(S - S.T, (2, 2))
    model = cd.NonsymmetricDPP.from_factors(np.vstack([V, V]), S=S)
    sets = random_sets(20, 30, 5, seed=0)
    out = as_scorer(model).leave_one_out(sets, first_entries(sets), 5, 1)
    assert (out.equal == 1).all()


def test_nearly_dependent_sets_are_done_one_by_one():
    rng = np.random.default_rng(1)
    V = rng.normal(size=(40, 6))
    V[3] = V[2] + 1e-5 * rng.normal(size=6)
    model = cd.NonsymmetricDPP.from_factors(V)
    sets = Sets(np.array([0, 3, 5]), np.array([2, 3, 9, 6, 7], dtype=np.int32))
    ours = as_scorer(model).leave_one_out(sets, first_entries(sets), 5, 2)
    theirs = as_scorer(cd.LowRankDPP.from_factors(V)).leave_one_out(sets, first_entries(sets), 5, 2)
    assert_same(ours, theirs)


def test_impossible_baskets_are_ranked_all_the_same():
    """More items than components and links: det L_A = 0, yet what is linked to the basket should come first."""
    V = np.random.default_rng(0).normal(size=(30, 3))
    S = np.zeros((30, 30))
    for i in range(6):
        S[i, 20], S[20, i] = 5.0, -5.0
    model = cd.NonsymmetricDPP.from_factors(V, S=S)
    sets = Sets.one([0, 1, 2, 3, 4, 5, 20])
    assert model._kernel.log_det(sets)[0] == -np.inf
    out = as_scorer(model).leave_one_out(sets, np.array([6]), 10, 1)
    assert out.better[6] == 0
    assert out.top[0, 0] == 20


def test_without_a_skew_part_it_is_the_low_rank_scorer():
    V = np.random.default_rng(0).normal(size=(200, 9))
    sets = random_sets(200, 60, 9, seed=4)
    ours = as_scorer(cd.NonsymmetricDPP.from_factors(V)).leave_one_out(sets, first_entries(sets), 10, 1)
    assert_same(ours, as_scorer(cd.LowRankDPP.from_factors(V)).leave_one_out(sets, first_entries(sets), 10, 1))


def test_a_report():
    model = random_model(50, 8, 0)
    test = model.sample(300, random_state=0)
    report = cd.evaluate(model, test, random_state=0)
    assert report.log_likelihood == pytest.approx(model.score(test))
    assert (report.n_skipped, report.n_impossible) == (0, 0)
    assert report.mpr > 60  # its own samples
