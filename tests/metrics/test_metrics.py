"""Metrics as functions of ranks, intervals, breakdowns and lists, each against its definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import contradpp as cd
import naive_metrics as naive
from contradpp.errors import MissingExtraError, ParameterError
from contradpp.learn.calibration import auc
from contradpp.metrics import intervals, metrics
from contradpp.metrics.report import POPULARITY, popularity_groups

CASES = [(b, e) for b in range(15) for e in range(6)]


@pytest.mark.parametrize("k", [1, 3, 10])
def test_ranks_with_ties_are_means_over_orders(k):
    better, equal = (np.array(column) for column in zip(*CASES, strict=True))
    others = np.full(len(better), 25)
    np.testing.assert_allclose(metrics.hits(better, equal, k), [naive.hit(b, e, k) for b, e in CASES])
    np.testing.assert_allclose(metrics.ndcg(better, equal, k), [naive.ndcg(b, e, k) for b, e in CASES])
    half = metrics.percentile_rank(better, equal, others)
    np.testing.assert_allclose(half, [naive.percentile_rank(b, e, 25) for b, e in CASES])
    paper = metrics.percentile_rank(better, equal, others, lost=0.0)
    np.testing.assert_allclose(paper, [naive.percentile_rank_paper(b, e, 25) for b, e in CASES])


def test_a_perfect_model_has_the_full_score():
    zero = np.zeros(3, dtype=np.int64)
    assert metrics.percentile_rank(zero, zero, zero + 9).tolist() == [100] * 3
    assert metrics.hits(zero, zero, 1).tolist() == [1] * 3
    assert metrics.ndcg(zero, zero).tolist() == [1] * 3


def test_basket_means_and_coverage_and_wins():
    assert metrics.basket_means(np.array([1.0, 3.0, 5.0]), np.array([0, 2, 3])).tolist() == [2, 5]
    assert metrics.basket_means(np.empty(0), np.array([0])).tolist() == []
    assert metrics.coverage(np.array([[0, 1], [1, -1]]), 4) == 0.5
    scores = np.array([1.0, 2.0, -np.inf, -np.inf])
    assert metrics.paired_wins(scores, np.array([0.0, 3.0, -np.inf, 0.0])).tolist() == [1, 0, 0.5, 0]


def test_pooled_auc_with_ties_and_impossible_sets():
    rng = np.random.default_rng(0)
    positive, negative = rng.integers(0, 5, size=30).astype(float), rng.integers(-1, 4, size=20).astype(float)
    positive[:3] = negative[:2] = -np.inf
    assert auc(positive, negative) == pytest.approx(naive.auc(positive, negative))


# -- Lists ---------------------------------------------------------------------------------------------


def test_diversity_and_personalization_are_their_definitions():
    rng = np.random.default_rng(1)
    shop = cd.Baskets.from_lists([rng.choice(15, size=4, replace=False).tolist() for _ in range(30)], items=range(17))
    ten = np.array([rng.choice(17, size=6, replace=False) for _ in range(9)], dtype=np.int32)
    ten[0, 2:] = -1
    ten[1, 1:] = -1
    baskets = [set(basket) for basket in shop]
    rows = [[code for code in row if code >= 0] for row in ten.tolist()]
    got = metrics.intra_list(ten, shop)
    np.testing.assert_allclose(got, [naive.intra_list(row, baskets) for row in rows])
    assert np.isnan(got[1])
    assert metrics.personalization(ten, 17) == pytest.approx(naive.personalization(rows))
    assert metrics.personalization(np.tile(ten[2], (5, 1)), 17) == pytest.approx(0)


def test_diversity_tells_popularity_from_neighbors_and_a_dpp():
    """On the made-up shop: the intervals of diversity do not meet, and personalization is far apart."""
    train, test = cd.datasets.load("grocer", n_baskets=4000, random_state=0).split(0.25, random_state=0)
    dpp = cd.LowRankDPP(n_components=30, max_iter=8, random_state=0, n_jobs=1, oversize="clip").fit(train)
    reports = {
        name: cd.evaluate(model, test, train=train)
        for name, model in {
            "popularity": cd.baselines.Popularity().fit(train),
            "dpp": dpp,
            "neighbors": cd.baselines.ItemKNN().fit(train),
        }.items()
    }
    bounds = {name: report.interval("diversity", level=0.99) for name, report in reports.items()}
    for one, other in itertools.pairwise(["popularity", "dpp", "neighbors"]):
        assert bounds[one][1] < bounds[other][0]
        assert reports[one].personalization < reports[other].personalization - 0.02


# -- Bootstrap -----------------------------------------------------------------------------------------


def test_interval_of_a_mean_is_about_two_standard_errors():
    values = np.random.default_rng(0).normal(size=400)
    low, high = intervals.mean_interval(values, level=0.95, n_resamples=2000, seed=0)
    error = values.std() / 20
    assert values.mean() - low == pytest.approx(1.96 * error, rel=0.15)
    assert high - values.mean() == pytest.approx(1.96 * error, rel=0.15)


def test_interval_of_the_auc_resamples_baskets_with_their_random_sets():
    rng = np.random.default_rng(1)
    real, random = rng.integers(0, 9, size=40).astype(float), rng.integers(-3, 6, size=40).astype(float)
    areas = []
    for weights in intervals.resamples(40, 50, 7):
        drawn = np.repeat(np.arange(40), weights.astype(int))
        areas.append(naive.auc(real[drawn], random[drawn]))
    wanted = np.quantile(areas, [0.1, 0.9])
    got = intervals.percentiles(intervals.resampled_aucs(real, random, 50, 7), 0.8)
    np.testing.assert_allclose(got, wanted)


def test_intervals_of_a_report():
    model = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(20, 5)))
    test = model.sample(200, size=3, random_state=0)
    report = cd.evaluate(model, test, ks=(1, 5))
    names = {"mpr", "precision@1", "precision@5", "ndcg", "auc", "auc_paired", "log_likelihood", "diversity"}
    assert set(report.intervals) == names
    for name, (low, high) in report.intervals.items():
        assert low <= report.metrics[name] <= high, name
        narrow = report.interval(name, level=0.5, n_resamples=200)
        assert low <= narrow[0] <= narrow[1] <= high, name
    assert report.interval("mpr") == cd.evaluate(model, test, ks=(1, 5)).interval("mpr")
    for wrong in ("coverage", "score", "no-such"):
        with pytest.raises(ParameterError, match="interval"):
            report.interval(wrong)
    with pytest.raises(ParameterError):
        report.interval("mpr", level=1.5)
    with pytest.raises(ParameterError):
        report.interval("mpr", n_resamples=0)


# -- Breakdown -----------------------------------------------------------------------------------------


def test_head_middle_and_tail_are_thirds_of_the_occurrences():
    assert popularity_groups(np.array([1, 1, 4, 0, 3, 3])).tolist() == [2, 2, 0, 2, 1, 1]
    assert popularity_groups(np.zeros(3, dtype=np.int64)).tolist() == [2, 2, 2]


def test_breakdowns_are_means_over_held_out_items():
    model = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(20, 9)))
    rng = np.random.default_rng(2)
    rows = [rng.choice(20, size=rng.integers(1, 9), replace=False).tolist() for _ in range(50)]
    test = cd.Baskets.from_lists(rows, items=range(20))
    report = cd.evaluate(model, test, ks=(3,))
    group = popularity_groups(test.item_counts)
    by_size: dict[str, list[tuple[float, float]]] = {}
    by_popularity: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for i in row:
            p = model.predict_next([j for j in row if j != i])
            rank = 1 + int((p > p[i]).sum())
            pair = (1 / len(row), float(rank <= 3))
            size = {1: "1", 2: "2-3", 3: "2-3", 8: "8-15"}.get(len(row), "4-7")
            by_size.setdefault(size, []).append(pair)
            by_popularity.setdefault(POPULARITY[group[i]], []).append(pair)
    for table, wanted in ((report.by_size, by_size), (report.by_popularity, by_popularity)):
        *groups, everything = table.rows
        assert {row.group for row in groups} == set(wanted)
        for row in groups:
            weights, hit = np.array(wanted[row.group]).T
            assert row.precision[3] == pytest.approx(100 * np.average(hit, weights=weights))
        assert everything.precision[3] == pytest.approx(report.precision[3])
    assert sum(row.n for row in report.by_size.rows[:-1]) == 50
    assert sum(row.n for row in report.by_popularity.rows[:-1]) == len(test.indices)


def test_plot_writes_a_figure(tmp_path):
    pytest.importorskip("matplotlib")
    report = cd.evaluate(cd.baselines.Popularity().fit([[1, 2], [2, 3, 4]]), [[1, 2], [2, 3, 4]])
    report.plot(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 5000


def test_plot_without_matplotlib_names_the_extra(monkeypatch):
    report = cd.evaluate(cd.baselines.Popularity().fit([[1, 2]]), [[1, 2]])
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"contradpp\[plot\]"):
        report.plot()
