"""How well a model says what is taken of what is offered: every metric against its plain definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.baskets import Baskets
from contradpp.errors import DataError, ParameterError

M = 7


def model(seed: int = 0) -> cd.NonsymmetricDPP:
    rng = np.random.default_rng(seed)
    S = np.triu(rng.normal(size=(M, M)) * 0.3, 1)
    return cd.NonsymmetricDPP.from_factors(rng.normal(size=(M, 2)), S=S - S.T, diagonal=rng.uniform(0.2, 1.0, M))


def choices(n: int = 40, seed: int = 1) -> Baskets:
    rng = np.random.default_rng(seed)
    offered = [rng.choice(M, size=rng.integers(1, 6), replace=False).tolist() for _ in range(n)]
    chosen = [items[: rng.integers(0, len(items) + 1)] for items in offered]
    return Baskets.from_lists(chosen, offered=offered, items=range(M))


def by_definition(L: np.ndarray, chosen: list[int], offered: list[int]) -> dict[str, float]:
    def det(items) -> float:
        return float(np.linalg.det(L[np.ix_(items, items)])) if len(items) else 1.0

    subsets = [list(s) for k in range(len(offered) + 1) for s in itertools.combinations(offered, k)]
    alike = [s for s in subsets if len(s) == len(chosen)]
    refused = [j for j in offered if j not in chosen]
    ranks = []
    for i in chosen if refused else []:
        others = [det([a if a != i else j for a in chosen]) for j in refused]
        ranks.append(100 * (1 + sum(det(chosen) > d for d in others)) / (1 + len(others)))
    return {
        "log_likelihood": np.log(det(chosen) / sum(map(det, subsets))),
        "log_likelihood_given_size": np.log(det(chosen) / sum(map(det, alike))),
        "exact": 100.0 * (set(max(subsets, key=det)) == set(chosen)),
        "exact_given_size": 100.0 * (set(max(alike, key=det)) == set(chosen)),
        "mpr": float(np.mean(ranks)) if ranks else np.nan,
    }


def test_metrics_by_their_definitions() -> None:
    dpp, test = model(), choices()
    V, S, d = dpp.item_factors_, dpp.skew_.toarray(), dpp.kernel_.diagonal
    L = np.diag(d) + V @ V.T + S
    report = cd.evaluate_choices(dpp, test)
    assert test.offered is not None
    offered = np.split(test.offered.indices, test.offered.indptr[1:-1])
    for number, (chosen, shown) in enumerate(zip(test, offered, strict=True)):
        for name, value in by_definition(L, [int(str(i)) for i in chosen], shown.tolist()).items():
            assert report.by_basket[name][number] == pytest.approx(value, rel=1e-9, nan_ok=True), name
    assert report.exact == pytest.approx(np.mean(report.by_basket["exact"]))
    assert report.n_baskets == 40
    assert "exact match" in str(report)
    assert report.as_dict()["mpr"] == pytest.approx(report.mpr)


class ByRates:
    """Items taken on their own: a model of the user's."""

    items_ = cd.Vocabulary(range(M))
    rates = np.linspace(0.1, 0.8, M)

    def score_choices(self, baskets: Baskets) -> np.ndarray:
        logs = []
        assert baskets.offered is not None
        for chosen, offered in zip(
            baskets, np.split(baskets.offered.indices, baskets.offered.indptr[1:-1]), strict=True
        ):
            logs.append(sum(np.log(self.rates[i] if i in chosen else 1 - self.rates[i]) for i in offered))
        return np.array(logs)


def test_models_of_the_user_and_paired_differences() -> None:
    test = choices()
    d = ByRates.rates / (1 - ByRates.rates)
    same = cd.NonsymmetricDPP.from_factors(np.zeros((M, 1)), diagonal=d)
    ours, theirs = cd.evaluate_choices(same, test), cd.evaluate_choices(ByRates(), test)
    for name, value in ours.metrics.items():
        assert theirs.metrics[name] == pytest.approx(value, rel=1e-9)
    gain = cd.evaluate_choices(model(), test).difference(ours, "log_likelihood")
    assert gain.low < gain.value < gain.high
    with pytest.raises(ParameterError, match="other choices"):
        ours.difference(cd.evaluate_choices(same, choices(10)), "mpr")


def test_ties_large_offers_and_unknown_items() -> None:
    flat = cd.LowRankDPP.from_factors(np.eye(20))  # every set is as likely as any other
    report = cd.evaluate_choices(flat, Baskets.from_lists([[0]], offered=[[0, 1]], items=range(20)))
    assert (report.exact, report.exact_given_size, report.mpr) == (25.0, 50.0, 75.0)
    large = Baskets.from_lists([[0], [30], [5]], offered=[list(range(15)), [30, 31], []], items=range(32))
    report = cd.evaluate_choices(flat, large)
    assert np.isnan(report.by_basket["exact"]).all()
    assert report.log_likelihood == pytest.approx(-15 * np.log(2))  # the third is not known, the second not the model's
    assert (report.n_baskets, report.n_unknown) == (2, 1)


def test_what_is_refused() -> None:
    for bad in (Baskets.from_lists([[0]]), [[0]], Baskets.from_lists([[0]], offered=[[]])):
        with pytest.raises(DataError, match="`offered` sets"):
            cd.evaluate_choices(model(), bad)
    with pytest.raises(DataError, match="knows none"):
        cd.evaluate_choices(model(), Baskets.from_lists([["x"]], offered=[["x", "y"]]))


def test_score_choices() -> None:
    dpp, test = model(), choices()
    logs = dpp.score_choices(test)
    assert logs.shape == (40,)
    one = dpp.score_choices([1], [1, 2])
    assert np.isscalar(one) or one.shape == ()
    L = dpp.kernel_.restrict(np.arange(M))
    pair = [np.exp(dpp.score_choices(chosen, [1, 2])) for chosen in ([], [1], [2], [1, 2])]
    assert sum(pair) == pytest.approx(1.0)
    assert L.n_items == M
    np.testing.assert_allclose(dpp.score_choices([[1], [2]], [[1, 2], [2, 3]])[0], one)
    with pytest.raises(DataError, match="needs to know what was offered"):
        dpp.score_choices([[1]])
    with pytest.raises(DataError, match="not among what was offered"):
        dpp.score_choices([[1]], [[2]])
    unknown = dpp.score_choices(Baskets.from_lists([[1], [2]], offered=[[1, 2], []]))
    assert np.isnan(unknown).tolist() == [False, True]
