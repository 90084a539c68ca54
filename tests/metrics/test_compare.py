"""Several models in one table: the same baskets for all, and differences that are paired."""

from __future__ import annotations

import json

import numpy as np
import pytest

import contradpp as cd
import naive_metrics as naive
from contradpp.errors import ParameterError
from contradpp.metrics import intervals

LISTS = [["a", "b"], ["a", "c"], ["b"], ["d", "e", "a"], ["f", "g"], ["g", "h", "f", "a"], ["b", "c"], ["h"]]


@pytest.fixture
def train() -> cd.Baskets:
    return cd.Baskets.from_lists(LISTS)


def kernels(*ranks: int) -> dict[str, cd.LowRankDPP]:
    rng = np.random.default_rng(0)
    return {f"K={rank}": cd.LowRankDPP.from_factors(rng.normal(size=(12, rank))) for rank in ranks}


def shop(n: int = 60, largest: int = 6) -> cd.Baskets:
    rng = np.random.default_rng(1)
    lists = [rng.choice(12, size=rng.integers(1, largest + 1), replace=False).tolist() for _ in range(n)]
    return cd.Baskets.from_lists(lists, items=range(12))


def test_with_training_baskets_popularity_is_always_shown(train):
    table = cd.compare({"neighbors": cd.baselines.ItemKNN().fit(train)}, train, train=train, ks=(1, 3))
    assert list(table.reports) == ["Popularity", "neighbors"]
    assert table.baseline == "Popularity"
    assert table.reports["Popularity"].as_dict() == cd.evaluate(
        cd.baselines.Popularity().fit(train), train, ks=(1, 3), train=train
    ).as_dict()  # fmt: skip
    for word in ("Popularity", "neighbors", "MPR", "p@3", "–"):
        assert word in str(table)
    own = {"best sellers": cd.baselines.Popularity(smoothing=1).fit(train)}
    assert list(cd.compare(own, train, train=train).reports) == ["best sellers"]
    assert table.as_dict()["neighbors"]["auc"] is None


def test_without_training_baskets_the_first_model_is_the_baseline():
    models, test = kernels(6, 7), shop()
    table = cd.compare(models, test, min_size=2)
    assert list(table.reports) == ["K=6", "K=7"]
    assert table.baseline == "K=6"
    assert table.reports["K=7"].n_baskets == (test.sizes >= 2).sum()
    assert set(table.differences) == {"K=7"}
    assert "Difference from K=6" in str(table)
    other = cd.compare(models, test, baseline="K=7", min_size=2)
    assert other.difference("K=6", "ndcg").value == pytest.approx(-table.difference("K=7", "ndcg").value)


def test_differences_are_those_of_each_basket():
    table = cd.compare(kernels(6, 7), shop())
    ours, theirs = table.reports["K=7"], table.reports["K=6"]
    for metric in ("mpr", "precision@5", "ndcg", "log_likelihood", "auc", "auc_paired"):
        gain = table.differences["K=7"][metric]
        assert gain.value == pytest.approx(ours.metrics[metric] - theirs.metrics[metric]), metric
        assert gain.low <= gain.value <= gain.high
        assert gain.n_baskets == 60
    paired = ours.samples["mpr"] - theirs.samples["mpr"]
    expected = intervals.mean_interval(paired, level=0.8, n_resamples=200, seed=0)
    assert table.difference("K=7", "mpr", level=0.8, n_resamples=200)[1:3] == expected


def test_a_difference_of_aucs_resamples_both_alike():
    table = cd.compare(kernels(6, 7), shop(30))
    samples = [table.reports[name].samples for name in ("K=7", "K=6")]
    gains = []
    for weights in intervals.resamples(30, 40, 0):
        drawn = np.repeat(np.arange(30), weights.astype(int))
        one, two = (naive.auc(s["score"][drawn], s["random_score"][drawn]) for s in samples)
        gains.append(one - two)
    found = table.difference("K=7", "auc", level=0.8, n_resamples=40)
    np.testing.assert_allclose(found[1:3], np.quantile(gains, [0.1, 0.9]))


def test_baskets_that_one_model_cannot_do_are_left_out_of_the_difference():
    """A kernel of rank 3 cannot rank a basket of five items: the pair is missing, not shifted."""
    models, test = kernels(3, 6), shop()
    table = cd.compare(models, test)
    fits = test.sizes <= 3
    gain = table.difference("K=6", "mpr")
    assert gain.n_baskets == fits.sum() < 60
    ours = table.reports["K=6"].by_basket["mpr"][fits].mean()
    assert gain.value == pytest.approx(ours - table.reports["K=3"].mpr)
    assert table.difference("K=6", "log_likelihood").n_baskets == fits.sum()


def test_a_model_against_itself_differs_by_nothing(train):
    model = cd.baselines.ItemKNN().fit(train)
    table = cd.compare({"one": model, "two": model}, train)
    assert table.difference("two", "mpr") == (0, 0, 0, 8)
    nothing = table.difference("two", "auc")
    assert np.isnan(nothing[:3]).all()
    assert nothing.n_baskets == 0
    content = json.loads(json.dumps(table.as_dict(), allow_nan=False))
    assert content["two"]["differences"]["auc"]["value"] is None
    assert content["two"]["differences"]["mpr"] == {"value": 0, "low": 0, "high": 0, "n_baskets": 8}


def test_wrong_words_are_refused(train):
    models = {"one": cd.baselines.ItemKNN().fit(train)}
    with pytest.raises(ParameterError, match="at least one model"):
        cd.compare({}, train)
    with pytest.raises(ParameterError, match="one of one, got 'two'"):
        cd.compare(models, train, baseline="two")
    with pytest.raises(ParameterError, match="interval"):
        cd.compare(models, train, train=train).difference("one", "coverage")
