"""One task: what is measured is what the library measures, and the scales are those it would choose."""

from __future__ import annotations

import json

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ConvergenceError
from contradpp.learn.calibration import auc
from contradpp.learn.params import params_from_flat
from experiments import run
from experiments.paper import training
from experiments.protocol import Task

TASK = Task("fit", "amazon/feeding", "dynamic", 1, overrides=(("max_iter", 2),))


def test_a_fit_has_every_metric_and_is_plain_json(tiny):
    result = run.carry_out(TASK, n_jobs=1)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert {"mpr", "precision@10", "auc", "auc_paired"} <= set(result["metrics"])
    assert result["rounds"] == 2
    assert result["ended"] == "cut off"
    assert len(result["history"]["validation"]) == 2


def test_the_auc_at_a_scale_is_that_of_the_rescaled_kernel(tiny):
    train, test = training.split(TASK)
    part, validation = training.set_aside(TASK, train)
    model, _ = training.fit(TASK, part, validation, 1)
    scaled = run.carry_out(TASK, n_jobs=1)["scaled"]
    for name in ("none", "likelihood", "discrimination"):
        other = cd.LowRankDPP.from_factors(model.item_factors_ * scaled["scales"][name], items=model.items_)
        report = cd.evaluate(other, test, random_state=TASK.trial)
        ties = 3 / test.n_baskets**2  # a random set may be a real one: rounding then decides for half a pair
        assert scaled["auc"][name] == pytest.approx(report.auc, abs=ties)
        assert scaled["log_likelihood"][name] == pytest.approx(report.log_likelihood)


def test_calibrating_afterwards_is_calibrating_in_fit(tiny):
    train, _ = training.split(TASK)
    part, validation = training.set_aside(TASK, train)
    model, _ = training.fit(TASK, part, validation, 1)
    scale = run.carry_out(TASK, n_jobs=1)["scaled"]["scales"]["likelihood"]
    settings = {**TASK.estimator, "calibrate": "likelihood"}
    other = cd.LowRankDPP(**params_from_flat(cd.LowRankDPP, settings), n_jobs=1).fit(part, validation=validation)
    np.testing.assert_allclose(other.item_factors_, scale * model.item_factors_)


def test_scales_are_chosen_with_the_models_codes(tiny):
    """Validation baskets that lack most items must not be given codes of their own."""
    train, test = training.split(TASK)
    model, _ = training.fit(TASK, train, train, 1)
    few = cd.Baskets.from_lists([[6, 7], [7], [5, 7, 6]] * 5)
    report = cd.evaluate(model, test, random_state=0)
    scales = training.scaled_results(model, few, test, report, seed=3)["scales"]
    sets = few.recode(model.items_)
    expected = training.choose_scales(Kernel(model.item_factors_), Sets(sets.indptr, sets.indices), 3)
    assert scales == expected
    assert [model.items_[code] for code in sets.indices[:2]] == [6, 7]


def test_pairs_are_baskets_of_two_or_more(tiny):
    baskets = cd.Baskets.from_lists([[0], [1], [2, 3], [1, 2, 3]])
    model = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(4, 4)))
    report = cd.evaluate(model, baskets, random_state=0)
    found = training.metrics_of(report)
    assert found["single_share"] == 0.5
    larger = cd.evaluate(model, baskets.subset(baskets.sizes >= 2), random_state=0)
    assert found["metrics"]["mpr_pairs"] == pytest.approx(larger.by_size.rows[-1].mpr_paper)
    scaled = training.scaled_results(model, baskets, baskets, report, 0)
    scores, others = report.samples["score"][2:], report.samples["random_score"][2:]
    assert scaled["auc_pairs"]["none"] == auc(scores, others)


def test_trials_differ_in_their_split(tiny):
    first, second = (training.split(Task("fit", "uk", "mle", trial))[1] for trial in (0, 1))
    assert first.n_baskets == second.n_baskets == 24
    assert first.indices.tolist() != second.indices.tolist()


def test_runs_from_the_papers_start_are_cut_off(tiny):
    result = run.carry_out(Task("fit", "uk", "mle", 0, "paper"), n_jobs=1)
    assert (result["rounds"], result["ended"]) == (1, "cut off")


def test_a_run_that_diverges_is_reported_with_what_it_reached(tiny, monkeypatch):
    def diverge(self, *args, **kwargs):
        fit(self, *args, **kwargs)
        raise ConvergenceError("left the finite numbers")

    fit = cd.LowRankDPP.fit
    monkeypatch.setattr(cd.LowRankDPP, "fit", diverge)
    result = run.carry_out(TASK, n_jobs=1)
    assert result["ended"] == "left the finite numbers"
    assert result["metrics"]["mpr"] > 0


# -- Figure 1 and the bound that every symmetric kernel obeys --------------------------------------------


def model_of(V) -> cd.LowRankDPP:
    return cd.LowRankDPP.from_factors(V, items=[1, 2, 3, 4])


def test_probabilities_are_those_of_the_determinants():
    V = np.random.default_rng(0).normal(size=(4, 3))
    L = V @ V.T
    a = np.outer(L.diagonal(), L.diagonal()) - L**2
    expected = [a[0, 1] / a[0].sum(), a[1, 0] / a[1].sum(), a[2, 3] / a[2].sum(), a[3, 2] / a[3].sum()]
    np.testing.assert_allclose(training.pair_probabilities(model_of(V)), expected)


def test_divergence_is_the_symmetric_kl_over_the_shared_support():
    p = np.array([0.2, 0.5, 1.0])
    np.testing.assert_allclose(training.divergence(p), np.log(1 / p) + p * np.log(p))


@pytest.mark.parametrize("K", [2, 3, 4])
def test_no_symmetric_kernel_beats_the_bound(K):
    rng = np.random.default_rng(K)
    for _ in range(300):
        scale = np.exp(rng.normal(size=(4, 1)) * rng.choice([0.0, 0.3, 2.0]))
        found = training.toy_results(model_of(rng.normal(size=(4, K)) * scale))
        assert found["geometric_mean"] <= training.MOST_PROBABILITY + 1e-9
        assert found["net_divergence"] >= training.LEAST_DIVERGENCE - 1e-9


def test_the_bound_is_reached_by_a_square():
    angles = np.radians([0, 90, 45, 135])
    found = training.toy_results(model_of(np.column_stack([np.cos(angles), np.sin(angles)])))
    np.testing.assert_allclose(found["probabilities"], 0.5)
    assert found["net_divergence"] == pytest.approx(training.LEAST_DIVERGENCE)
