"""The schedule study: its curve, its choice on validation baskets, and the page made from its table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import contradpp as cd
from contradpp.learn.params import FitData, problem_of
from experiments.paper import schedules


def test_a_run_stops_at_every_length(monkeypatch):
    monkeypatch.setattr(schedules, "FIXED_STEPS", (2, 4))
    train, validation = cd.datasets.load("toy").split(0.1, random_state=0)
    for method in schedules.METHODS:
        params = schedules.params_of(method, 2, 0, 1)
        stops = list(schedules.curve(problem_of(FitData(train, validation=validation), params, 0), params))
        found = [(stop.phase, stop.steps) for stop in stops if stop.phase != "rule"]
        assert found == [("fixed", 2), ("small", 2), ("fixed", 4), ("small", 4)]
        two, four = (np.array(stop.model.item_factors_) for stop in stops if stop.phase == "fixed")
        assert np.abs(two - four).max() > 1e-3  # the small steps in between have not moved the run itself


def test_validation_baskets_choose_the_schedule():
    rows = [
        {"data": "uk", "method": "mle", "trial": trial, "schedule": f"fixed {steps}", "phase": "fixed", "steps": steps,
         "validation_mpr": score + trial, "mpr_paper": 100 - score}
        for trial in (0, 1) for steps, score in ((50, 70.0), (100, 80.0), (200, 75.0))
    ]  # fmt: skip
    best = schedules.chosen(pd.DataFrame(rows))
    assert best.schedule.tolist() == ["fixed 100", "fixed 100"]
    assert best.mpr_paper.tolist() == [20.0, 20.0]


@pytest.mark.skipif(not schedules.TABLE.exists(), reason="the table is not in this archive")
def test_the_pages_show_the_tables():
    for path, content in schedules.pages(schedules.read_table()).items():
        page = path.read_text(encoding="utf-8")
        assert schedules.replaced(page, "schedules", content) == page
