"""The tuner: finds what is better, goes on where it stopped, and refuses another study's file."""

from __future__ import annotations

import pytest

import contradpp as cd
from contradpp.errors import DataError, ParameterError
from contradpp.research.tuning import Trial, tune

pytest.importorskip("optuna", reason="tuning needs the extra `tune`")


def shop() -> cd.Baskets:
    return cd.Baskets.from_lists([["tea", "milk"], ["coffee", "milk"], ["pasta", "sauce"], ["salt", "tea"]] * 40)


def test_a_study_goes_on_where_it_stopped(tmp_path):
    seen: list[Trial] = []
    common = {"model": "lowrank", "max_iter": 3, "storage": tmp_path / "study", "seed": 1}
    first = tune(shop(), trials=2, watch=seen.append, **common)
    assert [trial.number for trial in seen] == [0, 1]
    again = tune(shop(), trials=4, watch=seen.append, **common)
    assert [trial.number for trial in seen] == [0, 1, 2, 3]
    assert len(first) == 2
    assert len(again) == 4
    values = [trial.value for trial in again if trial.value is not None]
    assert values == sorted(values, reverse=True)
    with pytest.raises(ParameterError, match="metric"):
        tune(shop(), trials=5, metric="ndcg", **common)


def test_nonsymmetric_settings_are_searched():
    found = tune(shop(), model="nonsymmetric", trials=1, max_iter=2)
    assert {"n_components", "n_skew", "dropout", "alpha", "learning_rate"} == set(found[0].parameters)


def test_wrong_words_and_too_little_data():
    with pytest.raises(ParameterError, match="model"):
        tune(shop(), model="tree")
    with pytest.raises(ParameterError, match="metric"):
        tune(shop(), metric="accuracy")
    with pytest.raises(DataError, match="ten"):
        tune(shop().subset(list(range(3))))
