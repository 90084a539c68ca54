"""scikit-learn's conventions: clone, parameters, cross-validation; and when it is imported."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline

import contradpp as cd

RNG = np.random.default_rng(0)
LISTS = [RNG.choice(8, size=RNG.integers(1, 4), replace=False).tolist() for _ in range(90)]


def as_objects(lists) -> np.ndarray:
    out = np.empty(len(lists), dtype=object)
    out[:] = lists
    return out


@pytest.fixture
def model() -> cd.LowRankDPP:
    return cd.LowRankDPP(4, objective="mle", alpha=0.3, max_iter=3, random_state=0)


def test_clone_copies_parameters_and_nothing_learned(model):
    model.set_params(contrast="counted", negative_ratio=0.25)
    model.fit(LISTS)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy is not model
    assert not [name for name in vars(copy) if name.endswith("_")]
    with pytest.raises(cd.errors.NotFittedError):
        copy.predict_next([0])
    assert copy.fit(LISTS).item_factors_.tobytes() == model.item_factors_.tobytes()


def test_updates_do_not_change_parameters(model):
    before = model.get_params()
    assert model.fit(LISTS).partial_fit(LISTS[:3]) is model
    assert model.get_params() == before == model.get_params(deep=False)


@pytest.mark.parametrize("form", [list, as_objects], ids=["lists", "array of objects"])
def test_grid_search(model, form):
    grid = {"n_components": [3, 6], "alpha": [0.1, 100.0]}
    search = GridSearchCV(model, grid, cv=KFold(3), error_score="raise").fit(form(LISTS))
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) > 1
    best = search.best_params_
    folds = []
    for train, test in KFold(3).split(LISTS):
        one = clone(model).set_params(**best).fit([LISTS[i] for i in train])
        folds.append(one.score([LISTS[i] for i in test]))
    assert search.best_score_ == pytest.approx(np.mean(folds))
    assert search.best_estimator_.predict_next([0]).shape == (8,)


@pytest.mark.parametrize("form", [list, cd.Baskets.from_lists], ids=["lists", "baskets"])
def test_grid_search_where_folds_hold_items_of_their_own(model, form):
    """Every score was NaN: `score` refused the item that only the fold had."""
    lists = [*LISTS, [0, "seen once"], [1, "seen once, too"]]
    search = GridSearchCV(model, {"n_components": [3, 6]}, cv=KFold(3), error_score="raise").fit(form(lists))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_grid_search_over_objectives_and_threads(model):
    grid = {"objective": ["mle", "dynamic", "explicit", "product", "nce", "exact"]}
    search = GridSearchCV(model, grid, cv=2, n_jobs=1, error_score="raise").fit(LISTS)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_cross_validation_with_labels(model):
    scores = cross_val_score(model, LISTS, cv=3, params={"sample_weight": np.linspace(0.5, 2, 90)})
    assert np.isfinite(scores).all()


def test_in_a_pipeline(model):
    pipeline = make_pipeline("passthrough", model).fit(LISTS)
    assert pipeline.score(LISTS) == pytest.approx(model.score(LISTS))


def test_tags(model):
    from sklearn.utils import get_tags

    tags = get_tags(model)
    assert not tags.target_tags.required
    assert not tags.input_tags.two_d_array


def test_it_is_imported_with_the_first_model_and_not_before():
    code = (
        "import sys, contradpp as cd; cd.Baskets.from_lists([[0, 1]]), cd.datasets, cd.read_baskets, cd.objectives\n"
        "assert 'sklearn' not in sys.modules\ncd.LowRankDPP\nassert 'sklearn' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
