"""`evaluate` against definitions in plain Python: DPPs and baselines, with ties, skipped and impossible baskets."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import contradpp as cd
import naive_metrics as naive
from contradpp._random import stream
from contradpp.data.sets import Sets
from contradpp.errors import DataError, ParameterError
from contradpp.learn.calibration import uniform_sets
from contradpp.metrics.compare import Comparison
from contradpp.metrics.ranks import PredictScorer, as_scorer
from contradpp.metrics.report import Report

KS = (1, 2, 3, 10)


def random_baskets(n_items: int, n_baskets: int, largest: int, seed: int) -> cd.Baskets:
    rng = np.random.default_rng(seed)
    lists = [rng.choice(n_items, size=rng.integers(1, largest + 1), replace=False).tolist() for _ in range(n_baskets)]
    return cd.Baskets.from_lists(lists, items=range(n_items))


def normal_model(n_items: int = 12, rank: int = 5) -> cd.LowRankDPP:
    V = np.round(64 * np.random.default_rng(3).normal(size=(n_items, rank))) / 64  # short fractions
    return cd.LowRankDPP.from_factors(V)


def tied_model() -> cd.LowRankDPP:
    """Small integers, twins and a zero row: plenty of exact ties, and sets that are dependent."""
    V = np.random.default_rng(5).integers(-1, 2, size=(12, 5)).astype(float)
    V[7] = V[2]
    V[8] = -V[3]
    V[9] = 0.0
    return cd.LowRankDPP.from_factors(V)


def held_out(test: cd.Baskets, seed: int) -> list[int]:
    """The item that the report holds out of each basket."""
    draws = stream(seed, 0).random(test.n_baskets)
    return [test.codes(b)[int(u * n)] if n else -1 for b, (u, n) in enumerate(zip(draws, test.sizes, strict=True))]


def expected(scores: naive.Scores, test: cd.Baskets, rankable: list[int], seed: int) -> dict[str, float]:
    """Every metric of ranking by its definition."""
    chosen = held_out(test, seed)
    values: dict[str, list[float]] = {name: [] for name in ("mpr", "mpr_paper", "ndcg", "diversity")}
    values |= {f"precision@{k}": [] for k in KS}
    lists = []
    for b in rankable:
        basket = test.codes(b).tolist()
        ranks = dict(zip(basket, naive.leave_one_out(scores, basket), strict=True))
        better, equal, others = ranks[chosen[b]]
        values["mpr_paper"].append(naive.percentile_rank_paper(better, equal, others))
        values["mpr"].append(naive.percentile_rank(better, equal, others))
        values["ndcg"].append(naive.ndcg(better, equal))
        for k in KS:
            values[f"precision@{k}"].append(100 * np.mean([naive.hit(x, y, k) for x, y, _ in ranks.values()]))
        lists.append(naive.top(scores, tuple(code for code in basket if code != chosen[b]), 10))
    baskets = [set(test.codes(b).tolist()) for b in range(test.n_baskets)]
    values["diversity"] = [naive.intra_list(items, baskets) for items in lists]
    out = {name: float(np.nanmean(entries)) for name, entries in values.items()}
    out["coverage"] = len(set().union(*lists)) / test.n_items
    out["personalization"] = naive.personalization(lists)
    return out


def agree(report: Report, wanted: dict[str, float]) -> None:
    for name, value in wanted.items():
        assert getattr(report, name, report.metrics.get(name)) == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize("make", [normal_model, tied_model])
@pytest.mark.parametrize("seed", [0, 1])
def test_dpp_metrics_are_their_definitions(make, seed):
    model, test = make(), random_baskets(12, 40, largest=5, seed=seed)
    report = cd.evaluate(model, test, ks=KS, random_state=seed)
    agree(report, expected(naive.dpp(model.item_factors_), test, list(range(40)), seed))
    assert report.n_skipped == 0


def test_the_tied_model_does_tie():
    report = cd.evaluate(tied_model(), random_baskets(12, 40, largest=5, seed=0), ks=KS)
    assert report.mpr_paper > report.mpr + 1


def test_ties_among_scores_that_rounding_tells_apart():
    """Rotated twins: equal in exact arithmetic, different in the last bits."""
    rng = np.random.default_rng(0)
    V = rng.integers(-2, 3, size=(30, 6)).astype(float)
    V[15:] = V[:15]
    Q, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    test = random_baskets(30, 60, largest=6, seed=4)
    plain = cd.evaluate(cd.LowRankDPP.from_factors(V), test)
    turned = cd.evaluate(cd.LowRankDPP.from_factors(V @ Q * 0.37), test)
    for name in ("mpr", "precision@1", "precision@10", "ndcg"):
        assert turned.metrics[name] == pytest.approx(plain.metrics[name], abs=1e-9), name


@pytest.mark.parametrize("kind", ["popularity", "knn", "bm25", "ridge", "baskets", "ease"])
def test_baseline_metrics_are_their_definitions(kind):
    rng = np.random.default_rng(2)
    train = cd.Baskets.from_lists(
        [rng.choice(11, size=rng.integers(1, 5), replace=False).tolist() for _ in range(25)], items=range(12)
    )  # item 11 never occurs: ties
    model = {
        "popularity": cd.baselines.Popularity(),
        "knn": cd.baselines.ItemKNN(neighbors=3),
        "bm25": cd.baselines.ItemKNN(weights="bm25"),
        "ridge": cd.baselines.RidgeNeighbors(4, 2.0),
        "baskets": cd.baselines.BasketKNN(5),
        "ease": cd.baselines.EASE(2.0),
    }[kind].fit(train)
    test = random_baskets(12, 40, largest=6, seed=1)

    def scores(given: tuple[int, ...]) -> list[float]:
        # rounding of sums in another order must not part what ties
        return np.round(model._scores(Sets.one(list(given)))[0], 13).tolist()

    report = cd.evaluate(model, test, ks=KS)
    agree(report, expected(scores, test, list(range(40)), 0))
    if kind != "popularity":
        assert np.isnan([report.auc, report.auc_paired, report.log_likelihood]).all()


def test_likelihood_and_auc_are_their_definitions():
    model, test = normal_model(), random_baskets(12, 60, largest=7, seed=3)
    report = cd.evaluate(model, test, random_state=9)
    logs = model.score_samples(test)
    sets = uniform_sets(test.sizes, 12, stream(9, 1))
    random = model.score_samples(cd.Baskets(test.indptr, sets, test.items))
    possible = np.isfinite(logs)
    assert report.n_impossible == (~possible).sum() > 0
    assert report.n_skipped == (test.sizes > 5).sum() > 0
    assert report.log_likelihood == pytest.approx(logs[possible].mean())
    assert report.auc == pytest.approx(naive.auc(logs, random))
    paired = [(p > q) + 0.5 * (p == q) for p, q in zip(logs, random, strict=True)]
    assert report.auc_paired == pytest.approx(np.mean(paired))
    agree(report, {k: v for k, v in expected(naive.dpp(model.item_factors_), test,
          np.flatnonzero(test.sizes <= 5).tolist(), 9).items() if k in ("mpr", "coverage")})  # fmt: skip


def test_a_constant_model_is_a_coin():
    """All scores alike: MPR is as good as 50, the paper's is 100, and p@k is k of the items left."""
    model = cd.baselines.Popularity().fit([[i] for i in range(20)])
    test = cd.Baskets.from_lists([[0, 1], [2, 3], [4, 5]], items=range(20))
    report = cd.evaluate(model, test, ks=(1, 5))
    assert report.mpr == pytest.approx(100 * (19 + 1) / 2 / 19)
    assert report.mpr_paper == 100
    for row in (*report.by_size.rows, *report.by_popularity.rows):
        assert (row.mpr, row.mpr_paper) == pytest.approx((report.mpr, 100))
    content = report.as_dict()
    assert (content["mpr"], content["mpr_paper"]) == (report.mpr, 100)
    assert "paper" not in str(report)
    assert report.precision == pytest.approx({1: 100 / 19, 5: 500 / 19})


def test_ties_of_items_that_never_sold_do_not_count_for_popularity():
    """From few baskets popularity cannot tell most items apart; the paper's MPR counts that in its favor."""
    shop = cd.datasets.load("grocer", n_baskets=1000, random_state=0)
    train, test = shop.split(0.9, random_state=0)
    few, many = (cd.evaluate(cd.baselines.Popularity().fit(part), test) for part in (train[:20], train))
    assert few.mpr < many.mpr - 5
    assert few.mpr_paper > many.mpr_paper + 5


def test_empty_unknown_and_oversize_baskets_are_counted():
    model = normal_model(8, 3)
    report = cd.evaluate(model, [[0, 1], [], [0, 1, 2, 3, 4], ["new"], ["new", 2, 3]])
    assert (report.n_baskets, report.n_skipped, report.n_unknown, report.n_impossible) == (5, 3, 2, 1)
    assert np.isfinite([report.mpr, report.auc, report.log_likelihood]).all()
    logs = model.score_samples([[0, 1], [], [2, 3]])
    assert report.log_likelihood == pytest.approx(logs.mean())


def test_nothing_to_rank_gives_nan_not_an_error():
    report = cd.evaluate(normal_model(8, 2), [[0, 1, 2], []])
    assert np.isnan([report.mpr, report.precision[1], report.ndcg, report.diversity]).all()
    assert report.coverage == 0
    assert str(report)


def test_bad_arguments():
    model = normal_model()
    with pytest.raises(DataError):
        cd.evaluate(model, [])
    for ks in [(0,), (), (1.5,), (True,)]:
        with pytest.raises(ParameterError):
            cd.evaluate(model, [[0, 1]], ks=ks)
    with pytest.raises(ParameterError, match="predict_next"):
        cd.evaluate(object(), [[0, 1]])


@pytest.mark.parametrize("kind", ["dpp", "knn", "popularity", "generic"])
def test_results_do_not_depend_on_threads(kind):
    test = random_baskets(40, 300, largest=6, seed=1)
    model = {"dpp": normal_model(40, 8), "knn": cd.baselines.ItemKNN(), "popularity": cd.baselines.Popularity()}.get(
        kind, normal_model(40, 8)
    )
    model = model if isinstance(model, cd.LowRankDPP) else model.fit(test)
    if kind == "generic":
        model = Stranger(model)
    one, two = (cd.evaluate(model, test, n_jobs=n) for n in (1, 2))
    assert one.as_dict() == two.as_dict()


class Stranger:
    """A model that offers no more than the protocol asks for."""

    def __init__(self, model) -> None:
        self.items_ = model.items_
        self.predict_next = model.predict_next


def test_test_baskets_may_come_from_an_iterator():
    lists = [["tea", "milk"], ["pasta", "sauce"], ["tea", "milk", "sugar"]]
    model = cd.baselines.ItemKNN().fit(lists * 5)
    others = [[*basket, "pasta"] for basket in lists]
    assert cd.evaluate(model, iter(others)).mpr == cd.evaluate(model, others).mpr


def test_any_model_with_predict_next_can_be_evaluated():
    model, test = normal_model(), random_baskets(12, 40, largest=5, seed=6)
    assert isinstance(as_scorer(Stranger(model)), PredictScorer)
    fast, slow = cd.evaluate(model, test), cd.evaluate(Stranger(model), test)
    assert np.isnan(slow.auc)
    agree(slow, {name: value for name, value in fast.metrics.items() if "auc" not in name and "log" not in name})


def test_float32_factors_give_the_same_ranks():
    V = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    test = random_baskets(50, 100, largest=8, seed=2)
    single = cd.evaluate(cd.LowRankDPP.from_factors(V), test)
    double = cd.evaluate(cd.LowRankDPP.from_factors(V.astype(np.float64)), test)
    assert single.mpr == double.mpr
    assert single.precision == double.precision


def test_items_may_be_in_another_order_than_the_models():
    model = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(4, 3)), items=list("abcd"))
    lists = [["d", "a"], ["b", "c"], ["c"]]
    coded = cd.Baskets.from_lists(lists, items="abcd")
    assert cd.evaluate(model, lists).as_dict() == cd.evaluate(model, coded).as_dict()


def test_report_as_text_and_json():
    report = cd.evaluate(normal_model(), random_baskets(12, 30, largest=5, seed=0), ks=(1, 3))
    content = json.loads(json.dumps(report.as_dict()))
    assert content["precision"]["3"] == report.precision[3]
    assert content["intervals"]["mpr"][0] <= content["mpr"] <= content["intervals"]["mpr"][1]
    assert [row["group"] for row in content["by_popularity"]][-1] == "all"
    for word in ("MPR", "p@3", "basket size", "popularity", "95 %"):
        assert word in str(report)
    without = cd.evaluate(cd.baselines.EASE().fit([[1, 2]]), [[1, 2]]).as_dict()
    assert without["auc"] is None
    json.dumps(without, allow_nan=False)


@pytest.mark.parametrize(
    "code",
    [
        "import contradpp.metrics.metrics\nimport contradpp.metrics.compare\nimport contradpp as cd",
        "from contradpp.metrics.metrics import hits\nimport contradpp as cd\nfrom contradpp.metrics import ranks",
        "import contradpp as cd\nfrom contradpp.metrics.compare import compare\nimport contradpp.metrics.report",
    ],
)
def test_names_are_what_they_say_whatever_is_imported_and_when(code):
    """A function of the package never hides a module of the same name, nor the other way round."""
    check = """
import inspect
import contradpp.metrics.compare
assert inspect.isfunction(cd.evaluate) and inspect.isfunction(cd.compare)
assert inspect.ismodule(contradpp.metrics.compare) and inspect.ismodule(cd.metrics.compare)
assert contradpp.metrics.compare.compare is cd.compare
assert cd.baselines.Popularity and cd.callbacks.Callback and cd.callbacks.JsonLog
"""
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_small_baskets_can_be_left_out():
    model = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(4, 4)))
    baskets = cd.Baskets.from_lists([[0], [1], [2, 3], [1, 2, 3]], items=range(4))
    larger = cd.evaluate(model, baskets, min_size=2)
    assert larger.n_baskets == 2
    assert larger.metrics == cd.evaluate(model, baskets.subset([2, 3])).metrics
    with pytest.raises(DataError, match="5 or more items"):
        cd.evaluate(model, baskets, min_size=5)


def test_a_log_likelihood_that_rests_on_an_estimate_says_so(monkeypatch):
    """As text, as JSON and beside other models; what is exact has no such thing."""
    rng = np.random.default_rng(0)
    S = np.triu(0.3 * rng.normal(size=(8, 8)), 1)
    parts = 0.4 * rng.normal(size=(8, 3)).astype(np.float32), None, S - S.T
    test = [[0, 1], [2, 5], [3]]
    exact = cd.evaluate(cd.NonsymmetricDPP.from_factors(*parts), test)
    assert exact.log_likelihood_error == 0 == exact.as_dict()["log_likelihood_error"]
    assert "±" not in str(exact)
    monkeypatch.setattr("contradpp.dpp.normalizer.MAX_DENSE_ITEMS", 4)
    model = cd.NonsymmetricDPP.from_factors(*parts)
    model.dpp.refine_normalizer(0.5 * model.dpp.log_normalizer_error)
    report = cd.evaluate(model, test)
    assert report.log_likelihood_error == model.dpp.log_normalizer_error == report.as_dict()["log_likelihood_error"] > 0
    assert report.log_likelihood == pytest.approx(exact.log_likelihood, abs=4 * report.log_likelihood_error)
    rough, fine = (replace(report, log_likelihood_error=error) for error in (0.2, 5e-6))
    assert f"{report.log_likelihood:.2f} ± 0.20" in str(Comparison({"one": rough}, "one"))
    assert " ± 0.20" in str(rough)
    assert "±" not in str(fine)  # less than the last digit
    without = cd.evaluate(model, test, likelihood=False)
    assert without.log_likelihood_error == 0


def test_what_the_model_learned_from_is_noticed(caplog):
    train = cd.Baskets.from_lists([["tea", "milk", str(number), str(number + 1)] for number in range(60)])
    model = cd.ConditionalDPP(cd.LowRankDPP(4, max_iter=2), random_state=0, n_jobs=1).fit(train)
    cd.evaluate(model, [["tea", "7", "30"], ["milk", "8"]])
    assert not caplog.text
    cd.evaluate(model, train)
    assert "learned from 100 % of these baskets" in caplog.text


def test_of_a_large_basket_some_items_are_ranked(monkeypatch):
    monkeypatch.setattr("contradpp.metrics.report.MOST_LEARNED", 4)
    model, small = normal_model(), random_baskets(12, 30, 4, seed=1)
    large = cd.Baskets.from_lists([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]], items=range(12))
    both = cd.Baskets.from_lists([*map(list, small), *map(list, large)], items=range(12))
    alone, report = cd.evaluate(model, small, train=small), cd.evaluate(model, both, train=small)
    assert (alone.n_shortened, report.n_shortened, report.as_dict()["n_shortened"]) == (0, 2, 2)
    assert "2 baskets of more than 4 items, of which 4 drawn at random are ranked" in str(report)
    assert report.by_size.as_dict() != alone.by_size.as_dict()
    for name, values in alone.by_basket.items():
        if not name.startswith("auc"):
            np.testing.assert_array_equal(report.by_basket[name][:30], values, err_msg=name)
    whole = model.score_samples(large)
    np.testing.assert_array_equal(report.by_basket["log_likelihood"][30:], whole)


def test_the_items_of_a_model_of_the_users_may_be_a_list():
    train = random_baskets(6, 40, 4, seed=0)

    class Counts:
        items_ = list(range(6))

        def predict_next(self, baskets):
            return np.tile(train.item_counts / train.item_counts.sum(), (len(baskets), 1))

    popular = cd.evaluate(cd.baselines.Popularity().fit(train), train, min_size=2)
    assert cd.evaluate(Counts(), train, min_size=2).mpr == pytest.approx(popular.mpr)
