"""Sanity on the paper's data: what popularity alone achieves, measured by the same code as everything else."""

from __future__ import annotations

import os

import numpy as np
import pytest

import contradpp as cd

pytestmark = pytest.mark.skipif("CONTRADPP_DATA" not in os.environ, reason="CONTRADPP_DATA names no folder with data")


def split(name: str) -> tuple[cd.Baskets, cd.Baskets]:
    return cd.datasets.load(name).split(0.2, random_state=0)


def test_popularity_on_belgian():
    train, test = split("belgian")
    report = cd.evaluate(cd.baselines.Popularity().fit(train), test, train=train)
    assert report.mpr_paper == pytest.approx(90.0, abs=0.4)
    assert report.n_skipped == 0


def test_popularity_on_uk():
    """About 83.5 on baskets of two or more items; an invoice of a single item holds it out of an empty basket."""
    train, test = split("uk")
    model = cd.baselines.Popularity().fit(train)
    assert cd.evaluate(model, test.subset(test.sizes >= 2)).mpr_paper == pytest.approx(83.6, abs=0.6)
    assert cd.evaluate(model, test).mpr_paper == pytest.approx(82.3, abs=0.6)


def test_baselines_on_amazon():
    values = {"Popularity": [], "ItemKNN": []}
    for name in cd.datasets.names():
        if name.startswith("amazon/"):
            train, test = split(name)
            for baseline in (cd.baselines.Popularity(), cd.baselines.ItemKNN()):
                values[type(baseline).__name__].append(cd.evaluate(baseline.fit(train), test).mpr)
    assert len(values["ItemKNN"]) == 7
    assert np.mean(values["Popularity"]) == pytest.approx(70.9, abs=0.5)
    assert np.mean(values["ItemKNN"]) > np.mean(values["Popularity"]) + 5


def test_a_dpp_at_the_popularity_start_ranks_as_popularity():
    train, test = split("amazon/feeding")
    p = (train.item_counts + 0.5) / (train.n_baskets + 1)
    model = cd.LowRankDPP.from_factors(np.diag(np.sqrt(p / (1 - p))), items=train.items)
    report, wanted = cd.evaluate(model, test), cd.evaluate(cd.baselines.Popularity().fit(train), test)
    for name in ("mpr", "precision@1", "precision@10", "ndcg", "coverage", "log_likelihood", "auc"):
        assert report.metrics[name] == pytest.approx(wanted.metrics[name]), name
